//! What a checkpoint says about its tokenizer, independent of the file it came from.

use std::collections::BTreeMap;

use bantam_family_api::PreTokenizer;

/// The role of a token, as in `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TokenType {
    /// A piece of text.
    #[default]
    Normal,
    /// Stands for what the vocabulary cannot spell.
    Unknown,
    /// A marker of the chat format; recognised in text only where the caller trusts the text.
    Control,
    /// Added by the model's authors as one token; recognised in any text.
    UserDefined,
    /// Padding of the table.
    Unused,
    /// `<0xNN>`: one byte.
    Byte,
}

impl TokenType {
    /// The type with GGUF's number, if there is one.
    pub fn from_gguf(number: i64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// True for the markers that are left out of shown text and stay text when typed by a user.
    pub fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// A tokenizer as a checkpoint describes it. Field by field this is `tokenizer.ggml.*`; a `None` is an absent key, for
/// which [`Tokenizer::new`](crate::Tokenizer::new) takes the default of the algorithm.
#[derive(Clone, Debug, Default)]
pub struct TokenizerSpec {
    /// Algorithm: `gpt2`, `llama`, `gemma4`, `bert` or `t5`.
    pub model: String,
    /// Name of the pre-tokenizer; only `gpt2` has one.
    pub pre: Option<String>,
    /// How `gpt2` cuts a text where `pre` is no name that is known.
    pub cut: Option<PreTokenizer>,
    /// Text of each id, as spelled in the vocabulary; not necessarily UTF-8.
    pub tokens: Vec<Vec<u8>>,
    /// Role of each id; empty means all normal.
    pub token_types: Vec<TokenType>,
    /// SentencePiece scores; empty for the algorithms that have none.
    pub scores: Vec<f32>,
    /// "left right" pairs, best first.
    pub merges: Vec<Vec<u8>>,
    /// Ids by role: `bos`, `eos`, `eot`, `eom`, `unk`, `sep`, `pad`, `mask`, `cls`, and the `fim_*` ones.
    pub special_ids: BTreeMap<String, u32>,
    /// Whether a plain text gets BOS in front.
    pub add_bos: Option<bool>,
    /// Whether a plain text gets EOS at its end.
    pub add_eos: Option<bool>,
    /// Whether a plain text gets the separator at its end.
    pub add_sep: Option<bool>,
    /// SentencePiece: whether a space is put in front of each text.
    pub add_space_prefix: Option<bool>,
    /// Unigram: whether runs of spaces are collapsed.
    pub remove_extra_whitespaces: Option<bool>,
    /// WordPiece: whether text is lower-cased and stripped of accents.
    pub lowercase: Option<bool>,
    /// Unigram: SentencePiece's compiled normalization table.
    pub charsmap: Vec<u8>,
    /// Ids that must never be sampled.
    pub suppressed: Vec<u32>,
}
