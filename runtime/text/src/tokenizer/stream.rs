//! Decoding ids one by one into text that is always whole.

use std::sync::Arc;

use super::Tokenizer;

/// Turns ids into text as they are generated. Characters that are spread over several tokens are held back until they
/// are whole; bytes that can never become a character are shown as U+FFFD. All pieces together are the decoded ids, as
/// [`String::from_utf8_lossy`] shows them.
#[derive(Clone, Debug)]
pub struct StreamDecoder {
    tokenizer: Tokenizer,
    skip_special: bool,
    /// Special tokens that are shown all the same, in order.
    shown: Arc<[u32]>,
    at_start: bool,
    pending: Vec<u8>,
}

impl StreamDecoder {
    pub(super) fn new(tokenizer: Tokenizer, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, shown: Arc::default(), at_start: true, pending: Vec::new() }
    }

    /// Shows these special tokens, whose ids are in rising order, among those that are left out.
    #[must_use]
    pub fn showing(mut self, ids: Arc<[u32]>) -> Self {
        self.shown = ids;
        self
    }

    /// Takes the next id and returns the text that is now whole, possibly none.
    pub fn push(&mut self, id: u32) -> String {
        let skip_special = self.skip_special && self.shown.binary_search(&id).is_err();
        let mut bytes = self.tokenizer.token_bytes(id, skip_special);
        if self.at_start && !bytes.is_empty() {
            self.at_start = false;
            if self.tokenizer.0.strips_leading_space {
                bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            }
        }
        self.pending.extend_from_slice(bytes);
        self.take_whole()
    }

    /// Whether nothing is held back.
    pub fn is_whole(&self) -> bool {
        self.pending.is_empty()
    }

    /// Ends the text: what is still held back can no longer become a character.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }

    fn take_whole(&mut self) -> String {
        let mut text = String::new();
        let mut taken = 0;
        for chunk in self.pending.utf8_chunks() {
            let is_last = taken + chunk.valid().len() + chunk.invalid().len() == self.pending.len();
            text.push_str(chunk.valid());
            taken += chunk.valid().len();
            if is_last && may_continue(chunk.invalid()) {
                break;
            }
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            taken += chunk.invalid().len();
        }
        self.pending.drain(..taken);
        text
    }
}

/// Whether more bytes could make a character of `bytes`.
fn may_continue(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
