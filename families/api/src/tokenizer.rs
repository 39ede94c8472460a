//! What a family knows of its vocabulary that a GGUF file may not say, or says by a name that nobody knows.
//!
//! The file has the first word: a hint counts where its key is absent, or holds a name of an algorithm or a pre-tokenizer
//! that is not known. A `tokenizer.json` says all of this itself, and takes no hints.

use serde::{Deserialize, Serialize};

/// The pipeline from text to ids, as far as a family knows it. Each field stands for a key of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenizerHints {
    /// The algorithm: for `tokenizer.ggml.model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<TokenizerModel>,
    /// How a text is cut before tokens are merged, byte-level only: for `tokenizer.ggml.pre`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre: Option<PreTokenizer>,
    /// Whether a plain text gets BOS in front: for `add_bos_token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_bos: Option<bool>,
    /// Whether a plain text gets EOS at its end: for `add_eos_token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_eos: Option<bool>,
    /// Whether a plain text gets the separator at its end: for `add_sep_token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_sep: Option<bool>,
    /// Sentence-piece: whether a space is put in front of each text: for `add_space_prefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_space_prefix: Option<bool>,
    /// Unigram: whether runs of spaces become one: for `remove_extra_whitespaces`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove_extra_whitespaces: Option<bool>,
    /// Word-piece: whether text loses its case and accents: for `normalizer.lowercase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowercase: Option<bool>,
}

/// An algorithm that makes tokens of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TokenizerModel {
    /// Byte-pair encoding on bytes with ranked merges (GPT-2's, and most models' since).
    ByteLevel,
    /// Byte-pair encoding on characters by scores, `▁` for a space, byte tokens for what has no token (Llama 2).
    SentencePiece,
    /// The same with ranked merges instead of scores (Gemma 4).
    CharacterLevel,
    /// Longest known piece first, `##` inside a word (BERT).
    WordPiece,
    /// The likeliest split by a unigram model (T5).
    Unigram,
}

/// How a text is cut into the pieces inside which tokens are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PreTokenizer {
    /// Regular expressions, each applied inside the pieces that those before it left: a match is a piece, and so is what
    /// lies between two. No look-around and no back reference, but an alternative `\s+(?!\S)` before `\s+` at the end.
    pub patterns: Vec<String>,
    /// Whether the text is brought to Unicode's NFC first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nfc: bool,
    /// Whether a piece that is a token is taken without merging (`ignore_merges`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole_pieces: bool,
}
