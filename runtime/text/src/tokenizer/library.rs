//! Pipelines of the `tokenizers` library, for what the engines of our own do not cover: WordPiece, Unigram, and any
//! other tokenizer.json.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Map, Value as Json, json};
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::replace::{Replace, ReplacePattern};
use tokenizers::normalizers::{self, NormalizerWrapper, Precompiled};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::pre_tokenizers::{self, PreTokenizerWrapper};
use tokenizers::tokenizer::normalizer::Range;
use tokenizers::{Model, NormalizedString, Normalizer, OffsetType, PreTokenizedString, PreTokenizer, Token};

use super::spec::TokenizerSpec;
use super::specials::Found;
use crate::TokenizerError;

/// A pipeline without special tokens; those are found before.
pub(crate) struct Library(Box<tokenizers::Tokenizer>);

impl Library {
    /// The pipeline that a tokenizer.json describes. What it says of special tokens, padding and truncation is not used.
    pub(crate) fn new(mut description: Json) -> Result<Self, TokenizerError> {
        for unused in ["added_tokens", "post_processor", "truncation", "padding"] {
            description[unused] = Json::Null;
        }
        description["added_tokens"] = json!([]);
        guarded("building the tokenizer", || {
            let bytes = serde_json::to_vec(&description)?;
            tokenizers::Tokenizer::from_bytes(bytes).map(|pipeline| Self(Box::new(pipeline)))
        })
    }

    /// The ids of `text`, with the special tokens that were found in it.
    pub(crate) fn encode(&self, text: &str, found: &[Found]) -> Result<Vec<u32>, TokenizerError> {
        guarded("tokenizing", || self.run(text, found))
    }

    fn run(&self, text: &str, found: &[Found]) -> tokenizers::Result<Vec<u32>> {
        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, whole| Ok(cut(&whole, text.len(), found)))?;
        if let Some(normalizer) = self.0.get_normalizer() {
            pieces.normalize(|piece| normalizer.normalize(piece))?;
        }
        if let Some(pre_tokenizer) = self.0.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        pieces.tokenize(|piece| self.0.get_model().tokenize(piece.get()))?;
        Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
    }
}

type Piece = (NormalizedString, Option<Vec<Token>>);

/// `whole` cut at the special tokens, which are done, into pieces that know where in the text they stand.
fn cut(whole: &NormalizedString, len: usize, found: &[Found]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut done = 0;
    for special in found {
        pieces.extend(whole.slice(Range::Original(done..special.range.start)).map(|piece| (piece, None)));
        let token = Token::new(special.id, String::new(), (0, 0));
        pieces.extend(whole.slice(Range::Original(special.range.clone())).map(|piece| (piece, Some(vec![token]))));
        done = special.range.end;
    }
    pieces.extend(whole.slice(Range::Original(done..len)).map(|piece| (piece, None)));
    pieces
}

impl Library {
    /// The WordPiece that a GGUF file describes. Files spell the beginning of a word `▁`, where WordPiece spells what
    /// continues one `##`.
    pub(crate) fn word_piece(spec: &TokenizerSpec, unknown: Option<u32>) -> Result<Self, TokenizerError> {
        let unknown = unknown.and_then(|id| spec.tokens.get(usize::try_from(id).ok()?));
        let vocabulary: Map<String, Json> =
            spec.tokens.iter().zip(0u32..).map(|(token, id)| (word_piece_spelling(token), json!(id))).collect();
        Self::new(json!({
            "version": "1.0",
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": true,
                "handle_chinese_chars": true,
                "strip_accents": null,
                "lowercase": spec.lowercase.unwrap_or(true),
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {
                "type": "WordPiece",
                "unk_token": unknown.map_or_else(|| "[UNK]".to_owned(), |token| word_piece_spelling(token)),
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": vocabulary,
            },
        }))
    }

    /// The Unigram that a GGUF file describes.
    pub(crate) fn unigram(spec: &TokenizerSpec, unknown: Option<u32>) -> Result<Self, TokenizerError> {
        guarded("building the tokenizer", || Self::try_unigram(spec, unknown))
    }

    fn try_unigram(spec: &TokenizerSpec, unknown: Option<u32>) -> tokenizers::Result<Self> {
        let kind = |index: usize| spec.token_types.get(index).copied().unwrap_or_default();
        let spelled = |(index, token): (usize, &Vec<u8>)| match String::from_utf8_lossy(token) {
            // No text becomes a control token: spaces never reach the model.
            text if kind(index).is_control() => format!(" {text}"),
            text => text.into_owned(),
        };
        let tokens = spec.tokens.iter().enumerate().map(spelled);
        let vocabulary = tokens.zip(spec.scores.iter().map(|score| f64::from(*score))).collect();
        let unknown = unknown.and_then(|id| usize::try_from(id).ok());
        let mut pipeline = tokenizers::Tokenizer::new(Unigram::from(vocabulary, unknown, false)?);
        let collapses = spec.remove_extra_whitespaces.unwrap_or(false);
        let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
        if !spec.charsmap.is_empty() {
            normalizers.push(Precompiled::from(&spec.charsmap)?.into());
        }
        if collapses {
            normalizers.push(Replace::new(ReplacePattern::Regex(" {2,}".to_owned()), " ")?.into());
        }
        let scheme = if spec.add_space_prefix.unwrap_or(true) { PrependScheme::Always } else { PrependScheme::Never };
        let mut cuts: Vec<PreTokenizerWrapper> = vec![Metaspace::new('▁', scheme, true).into()];
        if collapses {
            cuts.insert(0, WhitespaceSplit.into());
        }
        pipeline.with_normalizer(Some(normalizers::Sequence::new(normalizers)))?;
        pipeline.with_pre_tokenizer(Some(pre_tokenizers::sequence::Sequence::new(cuts)));
        Ok(Self(Box::new(pipeline)))
    }
}

fn word_piece_spelling(token: &[u8]) -> String {
    let text = String::from_utf8_lossy(token);
    let is_marker = text.starts_with('[') && text.ends_with(']');
    match text.strip_prefix('▁') {
        Some(word) => word.to_owned(),
        None if is_marker => text.into_owned(),
        None => format!("##{text}"),
    }
}

/// Runs the library, which may panic on tables that make no sense.
fn guarded<T>(what: &'static str, run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, TokenizerError> {
    let error = |reason: String| TokenizerError::Library { what, reason };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|reason| error(reason.to_string())),
        Err(_) => Err(error("the tokenizers library panicked; the tokenizer's tables are damaged".to_owned())),
    }
}
