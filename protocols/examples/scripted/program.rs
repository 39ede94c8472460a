//! The program: it computes nothing and rates the next token of the script highest.

use std::thread::sleep;
use std::time::Duration;

use bantam_backend::{Program, SequenceStep, StateGroup, Step, StepError, Trace};
use bantam_graph::StateKind;
use bantam_text::{Specials, Tokenizer, TokenizerError};

use crate::script::Script;

/// A program that follows a script.
pub(crate) struct Scripted {
    script: Script,
    /// The answers' tokens.
    said: Vec<Vec<u32>>,
    tokenizer: Tokenizer,
    groups: Vec<StateGroup>,
    end: u32,
    logits: Vec<f32>,
}

/// What comes next in a sequence.
#[derive(Debug, PartialEq)]
struct Next {
    token: u32,
    after_ms: f64,
    fails: bool,
}

impl Scripted {
    pub(crate) fn new(tokenizer: Tokenizer, script: Script) -> Result<Self, TokenizerError> {
        let tokens = |text: &str| tokenizer.encode(text, Specials::Parse);
        let said = script.answers.iter().map(|answer| tokens(&answer.say)).collect::<Result<_, _>>()?;
        let group = StateGroup { kind: StateKind::PerToken, page_tokens: 32, page_bytes: 4096, states: vec![0] };
        let end = tokenizer.end_ids().first().copied().unwrap_or_default();
        Ok(Scripted { script, said, tokenizer, groups: vec![group], end, logits: Vec::new() })
    }

    /// What comes behind these tokens.
    fn next(&self, sequence: &[u32]) -> Next {
        let text = self.tokenizer.decode(sequence, false);
        let text = String::from_utf8_lossy(&text);
        let Some((answer, begin)) = self.script.choose(&text) else { return self.ended(false) };
        let (Some(answer), Some(said)) = (self.script.answers.get(answer), self.said.get(answer)) else {
            return self.ended(false);
        };
        let so_far = self.behind_bytes(sequence, begin);
        let next = match self.behind_thinking(so_far) {
            Some(so_far) => self.behind_thinking(said).unwrap_or(said).get(so_far.len()),
            None => said.get(so_far.len()),
        };
        match next {
            Some(token) => Next { token: *token, after_ms: answer.ms, fails: false },
            None => self.ended(answer.fails),
        }
    }

    fn ended(&self, fails: bool) -> Next {
        Next { token: self.end, after_ms: 0.0, fails }
    }

    /// The tokens behind so many bytes of a sequence.
    fn behind_bytes<'t>(&self, sequence: &'t [u32], bytes: usize) -> &'t [u32] {
        let ends = sequence.iter().scan(0, |end, id| {
            *end += self.tokenizer.token_bytes(*id, false).len();
            Some(*end)
        });
        let before = ends.take_while(|end| *end <= bytes).count();
        sequence.get(before..).unwrap_or_default()
    }

    /// What is said behind the end of the thinking, white space left out; `None` where the thinking has not ended.
    fn behind_thinking<'t>(&self, tokens: &'t [u32]) -> Option<&'t [u32]> {
        let end = self.tokenizer.token_to_id(&self.script.think_end)?;
        let behind = tokens.get(tokens.iter().rposition(|id| *id == end)? + 1..)?;
        let is_space = |id: &&u32| self.tokenizer.token_bytes(**id, false).iter().all(u8::is_ascii_whitespace);
        behind.get(behind.iter().take_while(is_space).count()..)
    }

    /// The tokens of each sequence up to each of its rows whose logits are wanted.
    fn wanted(step: &Step) -> Vec<Vec<u32>> {
        let mut begin = 0;
        let mut wanted = Vec::new();
        for SequenceStep { rows, history, .. } in &step.sequences {
            let of_this =
                step.logit_rows.iter().map(|row| *row as usize).filter(|row| (begin..begin + rows).contains(row));
            wanted.extend(of_this.map(|row| [history, step.tokens.get(begin..=row).unwrap_or_default()].concat()));
            begin += rows;
        }
        wanted
    }
}

impl Program for Scripted {
    fn groups(&self) -> &[StateGroup] {
        &self.groups
    }

    fn history(&self, _: usize) -> usize {
        usize::MAX
    }

    fn vocab(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    fn weight_bytes(&self) -> u64 {
        0
    }

    fn weight_bytes_per_token(&self) -> u64 {
        0
    }

    fn reserve_pages(&mut self, _: usize, _: usize) -> Result<(), StepError> {
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), StepError> {
        self.logits.clear();
        let next: Vec<_> = Self::wanted(step).iter().map(|sequence| self.next(sequence)).collect();
        if next.iter().any(|next| next.fails) {
            return Err(StepError::Invalid("the script says so".into()));
        }
        let prompt: usize = step.sequences.iter().map(|sequence| sequence.rows).filter(|rows| *rows > 1).sum();
        let slowest = next.iter().map(|next| next.after_ms).fold(0.0, f64::max);
        sleep(Duration::try_from_secs_f64((prompt as f64 * self.script.prompt_ms + slowest) / 1e3).unwrap_or_default());
        for Next { token, .. } in next {
            // Where the script is forbidden the end comes next, then the lowest token.
            let rate = |id: usize| match id {
                _ if id == token as usize => 100.0,
                _ if id == self.end as usize => 50.0,
                _ => 0.0,
            };
            self.logits.extend((0..self.tokenizer.vocab_size()).map(rate));
        }
        Ok(())
    }

    fn run_traced(&mut self, step: &Step, _: Trace<'_>) -> Result<(), StepError> {
        self.run(step)
    }

    fn logits(&self) -> &[f32] {
        &self.logits
    }

    fn save_page(&self, _: usize, _: u32, _: usize, _: &mut Vec<u8>) -> Result<(), StepError> {
        Ok(())
    }

    fn load_page(&mut self, _: usize, _: u32, _: usize, _: &[u8]) -> Result<(), StepError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bantam_gguf::GgufFile;
    use bantam_text::TokenizerSpec;

    use super::*;

    fn scripted(script: &str) -> Scripted {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/qwen3-dense/model.gguf");
        let file = GgufFile::open(model).unwrap();
        let tokenizer = Tokenizer::new(TokenizerSpec::from_gguf(file.metadata()).unwrap()).unwrap();
        Scripted::new(tokenizer, serde_json::from_str(script).unwrap()).unwrap()
    }

    /// What is said behind a prompt, the first `forced` after so many tokens.
    fn said(scripted: &Scripted, prompt: &str, forced: Option<(usize, &str)>) -> String {
        let encode = |text: &str| scripted.tokenizer.encode(text, Specials::Parse).unwrap();
        let mut sequence = encode(prompt);
        let begin = sequence.len();
        while sequence.len() < begin + 200 {
            if let Some((after, text)) = forced
                && sequence.len() == begin + after
            {
                sequence.extend(encode(text));
            }
            match scripted.next(&sequence).token {
                token if token == scripted.end => break,
                token => sequence.push(token),
            }
        }
        String::from_utf8(scripted.tokenizer.decode(&sequence[begin..], false)).unwrap()
    }

    const SCRIPT: &str = r#"{"answers": [{"when": "", "say": "<think>\nHm. Hm. Hm.\n</think>\n\nYes."}]}"#;

    #[test]
    fn the_script_is_said_to_its_end() {
        let text = said(&scripted(SCRIPT), "Well?<|im_end|>\n<|im_start|>assistant\n", None);
        assert_eq!(text, "<think>\nHm. Hm. Hm.\n</think>Yes.");
    }

    #[test]
    fn thinking_that_is_broken_off_is_followed_by_the_answer() {
        let prompt = "Well?<|im_end|>\n<|im_start|>assistant\n";
        let text = said(&scripted(SCRIPT), prompt, Some((6, "\n</think>\n\n")));
        assert!(text.ends_with("\n</think>\n\nYes.") && !text.contains("Hm. Hm. Hm."), "{text:?}");
        let off = said(&scripted(SCRIPT), &format!("{prompt}<think>\n\n</think>\n\n"), None);
        assert_eq!(off, "Yes.");
    }
}
