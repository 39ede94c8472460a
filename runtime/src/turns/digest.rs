//! Names of prompts' beginnings.

use bantam_text::{Joined, Segment, Specials, Tokenizer, TokenizerError};
use sha2::{Digest as _, Sha256};

/// Names a beginning of a prompt that a special token follows: its text, and the special tokens in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 32]);

/// Texts and special tokens in turn, the texts with their lengths, so that no two different sequences are written alike.
#[derive(Clone, Debug, Default)]
struct Reader(Sha256);

impl Reader {
    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    fn special(&mut self, id: u32) {
        self.0.update(id.to_le_bytes());
    }

    fn digest(&self) -> Digest {
        Digest(self.0.clone().finalize().into())
    }

    /// Reads a prompt up to its last special token. Calls `before` at each, and returns the text behind the last.
    fn read<'t>(&mut self, prompt: &'t Joined, mut before: impl FnMut(Digest)) -> &'t str {
        let text = |range| prompt.text().get(range).unwrap_or_default();
        let mut done = 0;
        for (range, id) in prompt.specials() {
            self.text(text(done..range.start));
            before(self.digest());
            self.special(id);
            done = range.end;
        }
        text(done..prompt.text().len())
    }
}

/// A prompt that has more to come.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// Has read all up to the last special token.
    reader: Reader,
    /// The text behind it.
    rest: String,
}

impl Open {
    /// Goes on with a text.
    pub(crate) fn text(&mut self, text: &str) {
        self.rest.push_str(text);
    }

    /// Goes on with a control token.
    ///
    /// # Errors
    /// A text before it that is too long to be encoded.
    pub(crate) fn control(&mut self, id: u32, tokenizer: &Tokenizer) -> Result<(), TokenizerError> {
        self.read_rest(tokenizer)?;
        self.reader.special(id);
        Ok(())
    }

    /// Names all of it.
    ///
    /// # Errors
    /// As [`Open::control`].
    pub(crate) fn close(mut self, tokenizer: &Tokenizer) -> Result<Digest, TokenizerError> {
        self.read_rest(tokenizer)?;
        Ok(self.reader.digest())
    }

    fn read_rest(&mut self, tokenizer: &Tokenizer) -> Result<(), TokenizerError> {
        // No control token is in the rest, or it would end there: what spells one was typed.
        let segment = Segment { text: std::mem::take(&mut self.rest), specials: Specials::Plain };
        let joined = tokenizer.join(&[segment])?;
        let rest = self.reader.read(&joined, drop);
        self.reader.text(rest);
        Ok(())
    }
}

/// The digest of what is before each special token of a prompt, in order, and the prompt to go on from.
pub(crate) fn digests(prompt: &Joined) -> (Vec<Digest>, Open) {
    let (mut digests, mut reader) = (Vec::new(), Reader::default());
    let rest = reader.read(prompt, |digest| digests.push(digest)).to_owned();
    (digests, Open { reader, rest })
}

#[cfg(test)]
mod tests {
    use super::super::testing::tokenizer;
    use super::*;

    fn prompt(segments: &[(&str, Specials)]) -> Joined {
        let segment = |&(text, specials): &(&str, Specials)| Segment { text: text.to_owned(), specials };
        tokenizer().join(&segments.iter().map(segment).collect::<Vec<_>>()).unwrap()
    }

    fn turn(segments: &[(&str, Specials)], text: &str) -> Digest {
        let mut open = digests(&prompt(segments)).1;
        open.text(text);
        open.close(&tokenizer()).unwrap()
    }

    #[test]
    fn a_prompt_and_its_answer_are_the_beginning_of_the_next_prompt() {
        let answer = turn(&[("<s>ab<s>", Specials::Parse)], "ba");
        let (next, _) = digests(&prompt(&[("<s>ab<s>ba<s>ab", Specials::Parse)]));
        assert_eq!(next.iter().position(|digest| *digest == answer), Some(2));
        assert!(!next.contains(&turn(&[("<s>ab<s>", Specials::Parse)], "b")));
    }

    #[test]
    fn special_tokens_of_answers_count_as_in_the_next_prompt() {
        let answer = turn(&[("<s>a<", Specials::Parse)], "t>b");
        let (next, _) = digests(&prompt(&[("<s>a<t>b<s>", Specials::Parse)]));
        assert_eq!(next.last(), Some(&answer), "<t> is user-defined and begins in the prompt");
    }

    #[test]
    fn control_tokens_of_answers_count_where_the_template_writes_them() {
        let mut open = digests(&prompt(&[("<s>a", Specials::Parse)])).1;
        open.text("b");
        open.control(0, &tokenizer()).unwrap();
        open.text("a");
        let (next, _) = digests(&prompt(&[("<s>ab<s>a<s>", Specials::Parse)]));
        assert_eq!(next.last(), Some(&open.close(&tokenizer()).unwrap()));
    }

    #[test]
    fn what_was_typed_is_not_what_a_template_wrote() {
        let trusted = turn(&[("<s>ab<s>", Specials::Parse)], "ba");
        let typed = turn(&[("<s>ab", Specials::Parse), ("<s>", Specials::Plain)], "ba");
        assert_ne!(trusted, typed);
        let (next, _) =
            digests(&prompt(&[("<s>ab", Specials::Parse), ("<s>", Specials::Plain), ("ba<s>", Specials::Parse)]));
        assert!(next.contains(&typed) && !next.contains(&trusted));
    }
}
