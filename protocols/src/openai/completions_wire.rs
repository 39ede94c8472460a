//! The objects that `/v1/completions` answers with: the same kind whole and streamed.

use bantam_runtime::engine::TokenLogprob;
use serde::Serialize;
use serde_json::{Map, Value};

/// An answer, or a piece of it.
#[derive(Serialize)]
pub(super) struct Choice {
    pub(super) index: usize,
    pub(super) text: String,
    pub(super) logprobs: Option<Logprobs>,
    pub(super) finish_reason: Option<&'static str>,
}

/// Log-probabilities as parallel arrays, one entry per token.
#[derive(Serialize)]
pub(super) struct Logprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    top_logprobs: Vec<Map<String, Value>>,
    /// Where each token begins, in characters of the answer.
    text_offset: Vec<usize>,
}

impl Logprobs {
    /// Of these tokens, the first of which begins at `offset`, which is moved on.
    pub(super) fn new(tokens: &[TokenLogprob], offset: &mut Offset) -> Self {
        let mut told = Logprobs {
            tokens: Vec::new(),
            token_logprobs: Vec::new(),
            top_logprobs: Vec::new(),
            text_offset: Vec::new(),
        };
        for token in tokens {
            told.text_offset.push(offset.characters);
            if token.shown {
                offset.pass(&token.bytes);
            }
            told.tokens.push(text_of(token));
            told.token_logprobs.push(super::finite(token.logprob));
            let top = token.top.iter().map(|t| (text_of(t), decimal(super::finite(t.logprob))));
            told.top_logprobs.push(top.collect());
        }
        told
    }
}

/// How far the tokens of an answer have come in its text.
#[derive(Debug, Default)]
pub(super) struct Offset {
    /// Characters that are complete.
    characters: usize,
    /// The beginning of another one.
    begun: Vec<u8>,
}

impl Offset {
    fn pass(&mut self, bytes: &[u8]) {
        self.begun.extend_from_slice(bytes);
        let text = std::mem::take(&mut self.begun);
        let mut rest = text.as_slice();
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.characters += text.chars().count();
                    return;
                }
                Err(error) => {
                    let (valid, behind) = rest.split_at(error.valid_up_to());
                    self.characters += String::from_utf8_lossy(valid).chars().count();
                    let Some(wrong) = error.error_len() else {
                        self.begun = behind.to_vec();
                        return;
                    };
                    // Bytes that are no text are told as one replacement character.
                    self.characters += 1;
                    rest = behind.get(wrong..).unwrap_or_default();
                }
            }
        }
    }
}

/// A token's text. One that is part of a character is told by its bytes, as two such must not fall together in a map.
fn text_of(token: &TokenLogprob) -> String {
    match std::str::from_utf8(&token.bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => token.bytes.iter().fold("bytes:".to_owned(), |told, byte| told + &format!("\\x{byte:02x}")),
    }
}

/// The number as short as an f32 is written.
fn decimal(x: f32) -> Value {
    x.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_counts_once_however_many_tokens_it_takes() {
        let token = |bytes: &[u8]| TokenLogprob {
            token: 0,
            bytes: bytes.to_vec(),
            shown: true,
            logprob: -1.0,
            top: Vec::new(),
        };
        let chicken = "\u{1f414}".as_bytes();
        let tokens =
            [token(b"a"), token(&chicken[..2]), token(&chicken[2..]), token("é".as_bytes()), token(&[0xff, b'b'])];
        let unseen = TokenLogprob { shown: false, ..token(b"<|end|>") };
        let mut offset = Offset::default();
        assert_eq!(Logprobs::new(&[token(b"ab"), unseen, token(b"c")], &mut offset).text_offset, [0, 2, 2]);
        let mut offset = Offset::default();
        let first = Logprobs::new(&tokens[..2], &mut offset);
        let then = Logprobs::new(&tokens[2..], &mut offset);
        assert_eq!((first.text_offset, then.text_offset), (vec![0, 1], vec![1, 2, 3]));
        assert_eq!(offset.characters, 5);
    }
}
