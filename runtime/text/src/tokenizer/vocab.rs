//! The table of tokens: spelling, role and the bytes each id stands for.

use rustc_hash::FxHashMap;

use super::alphabet::Alphabet;
use super::spec::TokenType;

/// How the spelling of a token relates to the text it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// GPT-2's byte alphabet.
    Bytes,
    /// `▁` for a space, `<0xNN>` for a byte.
    Spaces,
    /// `##` before what continues a word.
    Words,
}

/// Byte strings one after the other in one allocation.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).and_then(|previous| self.ends.get(previous)).copied().unwrap_or(0);
        self.bytes.get(start..end)
    }

    fn longest(&self) -> usize {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        self.ends.iter().zip(starts).map(|(end, start)| end - start).max().unwrap_or(0)
    }
}

/// All tokens of a model.
pub(crate) struct Vocabulary {
    spellings: Strings,
    outputs: Strings,
    /// Bytes of the longest output.
    longest: usize,
    types: Vec<TokenType>,
    ids: FxHashMap<Vec<u8>, u32>,
}

impl Vocabulary {
    /// `types` shorter than `tokens` is filled up with normal ones. Of equal spellings the last id is the one found.
    pub(crate) fn new(tokens: Vec<Vec<u8>>, mut types: Vec<TokenType>, spelling: Spelling) -> Self {
        types.resize(tokens.len(), TokenType::Normal);
        let alphabet = Alphabet::new();
        let (mut spellings, mut outputs) = (Strings::default(), Strings::default());
        for (token, kind) in tokens.iter().zip(&types) {
            spellings.push(token);
            outputs.push(&output(token, *kind, spelling, &alphabet));
        }
        let ids = tokens.into_iter().zip(0..).collect();
        let longest = outputs.longest();
        Self { spellings, outputs, longest, types, ids }
    }

    /// Bytes that a token stands for, at most.
    pub(crate) fn longest_output(&self) -> usize {
        self.longest
    }

    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// The id spelled so.
    pub(crate) fn id(&self, spelling: &[u8]) -> Option<u32> {
        self.ids.get(spelling).copied()
    }

    /// How the vocabulary spells `id`.
    pub(crate) fn spelling(&self, id: u32) -> Option<&[u8]> {
        self.spellings.get(usize::try_from(id).ok()?)
    }

    /// The bytes `id` stands for in decoded text.
    pub(crate) fn output(&self, id: u32) -> Option<&[u8]> {
        self.outputs.get(usize::try_from(id).ok()?)
    }

    pub(crate) fn token_type(&self, id: u32) -> Option<TokenType> {
        self.types.get(usize::try_from(id).ok()?).copied()
    }

    /// Every token with its id and role, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[u8], TokenType)> {
        (0..).zip(&self.types).filter_map(|(id, kind)| Some((id, self.spelling(id)?, *kind)))
    }
}

fn output(token: &[u8], kind: TokenType, spelling: Spelling, alphabet: &Alphabet) -> Vec<u8> {
    let literal = || token.to_vec();
    let Ok(text) = std::str::from_utf8(token) else { return literal() };
    match (spelling, kind) {
        // Also added tokens: as Hugging Face's decoder does, which is how the "ü" of DeepSeek LLM is byte 0xFC.
        (Spelling::Bytes, _) => alphabet.read(text).unwrap_or_else(literal),
        (Spelling::Spaces, TokenType::Byte) => byte_token(text).map_or_else(literal, |byte| vec![byte]),
        (Spelling::Spaces, TokenType::Normal | TokenType::Unused) => text.replace('▁', " ").into_bytes(),
        (Spelling::Words, TokenType::Normal) => {
            text.strip_prefix("##").map_or_else(|| format!(" {text}").into_bytes(), |rest| rest.as_bytes().to_vec())
        }
        (Spelling::Spaces | Spelling::Words, _) => literal(),
    }
}

/// The byte that `<0xNN>` spells.
pub(crate) fn byte_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 { u8::from_str_radix(hex, 16).ok() } else { None }
}
