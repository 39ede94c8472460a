//! A prompt that is being answered, and the turn that comes of it.

use bantam_text::{Specials, Tokenizer, TokenizerError};

use super::{Digest, Open, Turn};
use crate::engine::{ChatPrompt, Turn as Said, sequel::Sequel};

/// What of a prompt is needed to remember the turn that answers it.
#[derive(Clone, Debug)]
pub(crate) struct TurnSeed {
    /// The prompt as it was rendered.
    pub(crate) open: Open,
    /// Its tokens.
    pub(crate) tokens: Vec<u32>,
    /// The remembered turn that it begins with.
    pub(crate) base: Option<Digest>,
    /// Whether white space at the end of turns is left out of later prompts.
    pub(crate) trims: bool,
    /// The conversation, if what is prepared for its next request is worth a thought.
    pub(crate) chat: Option<ChatPrompt>,
}

impl TurnSeed {
    /// What the next request goes on from, if the template renders the turn otherwise than it was generated.
    pub(crate) fn take_sequel(&mut self, shown: &str, said: &Said) -> Option<Sequel> {
        // Calls are written anew, in the template's own way.
        let drifts = !self.trims || shown.trim_end() != shown || said.calls().next().is_some();
        let chat = self.chat.take().filter(|_| drifts && !shown.is_empty())?;
        let is_answer = chat.messages.last().is_some_and(|last| last["role"] != "assistant");
        is_answer.then(|| Sequel { chat, answer: said.clone() })
    }

    /// The turn for which `generated` was drawn and `shown` was sent to the client. None if these do not go together, or
    /// an end token is among them.
    pub(crate) fn turn(self, generated: &[u32], shown: &str, tokenizer: &Tokenizer, ends: &[u32]) -> Option<Turn> {
        let TurnSeed { open, mut tokens, base, trims, .. } = self;
        let shown = if trims { shown.trim_end() } else { shown };
        if generated.is_empty() || generated.iter().any(|token| ends.contains(token)) {
            return None;
        }
        let (taken, bytes) = tokenizer.spelling(generated, shown);
        let rest = shown.get(bytes..).filter(|rest| !rest.is_empty());
        let rest = rest.map_or(Ok(Vec::new()), |rest| tokenizer.encode(rest, Specials::Plain)).ok()?;
        let turn: Vec<u32> = generated.iter().take(taken).copied().chain(rest).collect();
        if tokenizer.spelling(&turn, shown) != (turn.len(), shown.len()) {
            return None;
        }
        let names = names(&open, &turn, shown, tokenizer).ok()?;
        tokens.extend(turn);
        Some(Turn { names, tokens, base })
    }
}

/// What later prompts may call the turn: its text, and if it has control tokens in it, also with these.
fn names(open: &Open, turn: &[u32], shown: &str, tokenizer: &Tokenizer) -> Result<Vec<Digest>, TokenizerError> {
    let mut plain = open.clone();
    plain.text(shown);
    let mut names = vec![plain.close(tokenizer)?];
    if turn.iter().any(|token| tokenizer.is_control(*token)) {
        let (mut spelled, mut decoder) = (open.clone(), tokenizer.stream(true));
        for &token in turn {
            spelled.text(&decoder.push(token));
            if tokenizer.is_control(token) {
                spelled.control(token, tokenizer)?;
            }
        }
        names.push(spelled.close(tokenizer)?);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::super::{digests, testing::tokenizer};
    use super::*;

    const PROMPT: [u32; 2] = [0, 2];

    fn seed() -> TurnSeed {
        let open = digests(&tokenizer().join(&[]).unwrap()).1;
        TurnSeed { open, tokens: PROMPT.to_vec(), base: None, trims: false, chat: None }
    }

    fn turn(generated: &[u32], shown: &str) -> Option<Vec<u32>> {
        seed().turn(generated, shown, &tokenizer(), &[0]).map(|turn| turn.tokens)
    }

    #[test]
    fn a_turn_has_the_tokens_that_were_drawn() {
        let [a, b, ab] = ["a", "b", "ab"].map(|text| tokenizer().token_to_id(text).unwrap());
        assert_eq!(turn(&[a, b, ab], "abab").unwrap(), [0, 2, a, b, ab]);
        assert_eq!(tokenizer().encode("abab", Specials::Plain).unwrap(), [ab, ab]);
    }

    #[test]
    fn what_a_stop_text_hid_is_no_part_of_it() {
        let [a, b, ab] = ["a", "b", "ab"].map(|text| tokenizer().token_to_id(text).unwrap());
        assert_eq!(turn(&[a, b, ab], "ab").unwrap(), [0, 2, a, b]);
        assert_eq!(turn(&[b, ab, ab], "ba").unwrap(), [0, 2, b, a], "half a token is encoded for itself");
    }

    #[test]
    fn white_space_that_the_template_leaves_out_is_no_part_of_it() {
        let [a, space] = ["a", "Ġ"].map(|text| tokenizer().token_to_id(text).unwrap());
        let trimming = TurnSeed { trims: true, ..seed() };
        assert_eq!(trimming.turn(&[a, space], "a ", &tokenizer(), &[]).unwrap().tokens, [0, 2, a]);
        assert_eq!(turn(&[a, space], "a ").unwrap(), [0, 2, a, space]);
    }

    #[test]
    fn hidden_control_tokens_stay_where_they_were_drawn() {
        let [a, b] = ["a", "b"].map(|text| tokenizer().token_to_id(text).unwrap());
        let turn = seed().turn(&[0, a, b], "ab", &tokenizer(), &[]).unwrap();
        assert_eq!((turn.names.len(), turn.tokens), (2, vec![0, 2, 0, a, b]));
    }

    #[test]
    fn a_turn_with_an_end_token_in_it_is_not_remembered() {
        let a = tokenizer().token_to_id("a").unwrap();
        assert_eq!(turn(&[a, 0, a], "aa"), None);
        assert_eq!(turn(&[], ""), None);
    }
}
