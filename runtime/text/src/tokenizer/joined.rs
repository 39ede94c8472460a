//! Prompts whose special tokens are found before anything is encoded, so that they can be encoded from any of these on.

use std::ops::Range;

use super::specials::Found;
use super::{MAX_TEXT, Segment, Specials, Tokenizer};
use crate::TokenizerError;

/// The concatenated segments of a prompt, and the special tokens in them: control tokens where all of one lies in
/// [`Specials::Parse`] segments, user-defined ones anywhere.
///
/// What stands between two special tokens is encoded for itself. So the ids from one on do not depend on what is before it.
#[derive(Clone, Debug)]
pub struct Joined {
    text: String,
    found: Vec<Found>,
}

impl Joined {
    /// All of the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The special tokens in order: where in the text each stands, with white space that it takes, and its id.
    pub fn specials(&self) -> impl Iterator<Item = (Range<usize>, u32)> {
        self.found.iter().map(|found| (found.range.clone(), found.id))
    }
}

impl Tokenizer {
    /// Joins the segments and finds the special tokens in them.
    ///
    /// # Errors
    /// A text of more than 1 GiB.
    pub fn join(&self, segments: &[Segment]) -> Result<Joined, TokenizerError> {
        let bytes = segments.iter().map(|segment| segment.text.len()).sum();
        if bytes > MAX_TEXT {
            return Err(TokenizerError::TooLong { bytes, most: MAX_TEXT });
        }
        let mut text = String::with_capacity(bytes);
        let mut untrusted = Vec::new();
        for segment in segments {
            let start = text.len();
            text.push_str(&segment.text);
            if segment.specials == Specials::Plain && start < text.len() {
                untrusted.push(start..text.len());
            }
        }
        let found = self.0.specials.find(&text, &untrusted);
        Ok(Joined { text, found })
    }

    /// The ids of the whole of a prompt.
    ///
    /// # Errors
    /// One that the `tokenizers` library fails on, where a tokenizer needs it.
    pub fn encode_joined(&self, prompt: &Joined) -> Result<Vec<u32>, TokenizerError> {
        self.encode_found(&prompt.text, &prompt.found)
    }

    /// The ids from a special token on, `special` being its index in [`Joined::specials`]: the last ones of
    /// [`encode_joined`](Self::encode_joined). None if there are not so many.
    ///
    /// # Errors
    /// As [`encode_joined`](Self::encode_joined).
    pub fn encode_from(&self, prompt: &Joined, special: usize) -> Result<Vec<u32>, TokenizerError> {
        let Some(start) = prompt.found.get(special).map(|found| found.range.start) else { return Ok(Vec::new()) };
        let shifted = |found: &Found| Found { range: found.range.start - start..found.range.end - start, id: found.id };
        let found: Vec<Found> = prompt.found.iter().skip(special).map(shifted).collect();
        self.encode_found(prompt.text.get(start..).unwrap_or_default(), &found)
    }

    /// How many of the first `ids` stream to a beginning of `text`, and its bytes: the longest such beginning. Control tokens
    /// stand for nothing, and bytes that are no character for U+FFFD.
    pub fn spelling(&self, ids: &[u32], text: &str) -> (usize, usize) {
        let (mut rest, mut longest) = (text, (0, 0));
        let mut decoder = self.stream(true);
        for (index, id) in ids.iter().enumerate() {
            let Some(behind) = rest.strip_prefix(decoder.push(*id).as_str()) else { break };
            rest = behind;
            if decoder.is_whole() {
                longest = (index + 1, text.len() - rest.len());
            }
        }
        longest
    }
}
