//! From a [`TokenizerSpec`] to a [`Tokenizer`]: checks, and the defaults for what a file leaves out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bantam_family_api::TokenizerModel;

use super::bpe::ByteLevel;
use super::characters::{CharacterLevel, Rule};
use super::library::Library;
use super::merge::RankedMerges;
use super::spec::TokenizerSpec;
use super::specials::SpecialTokens;
use super::split::PreTokenizer;
use super::vocab::{Spelling, Vocabulary};
use super::{Engine, Framing, Inner, Tokenizer};
use crate::TokenizerError;

/// The algorithms, as `tokenizer.ggml.model` names them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    /// Byte-level BPE with merges.
    ByteLevel,
    /// SentencePiece BPE by scores.
    SentencePiece,
    /// BPE on characters with merges.
    CharacterLevel,
    WordPiece,
    Unigram,
}

const ALGORITHMS: [(&str, Algorithm); 5] = [
    ("gpt2", Algorithm::ByteLevel),
    ("llama", Algorithm::SentencePiece),
    ("gemma4", Algorithm::CharacterLevel),
    ("bert", Algorithm::WordPiece),
    ("t5", Algorithm::Unigram),
];

impl Algorithm {
    fn named(model: &str) -> Result<Self, TokenizerError> {
        let known = || ALGORITHMS.map(|(name, _)| name).join(", ");
        let found = ALGORITHMS.iter().find(|(name, _)| *name == model);
        found
            .map(|(_, algorithm)| *algorithm)
            .ok_or_else(|| TokenizerError::UnknownModel { model: model.to_owned(), known: known() })
    }

    /// What GGUF files call the algorithm of a hint.
    fn named_by(hint: TokenizerModel) -> &'static str {
        let algorithm = match hint {
            TokenizerModel::ByteLevel => Self::ByteLevel,
            TokenizerModel::SentencePiece => Self::SentencePiece,
            TokenizerModel::CharacterLevel => Self::CharacterLevel,
            TokenizerModel::WordPiece => Self::WordPiece,
            TokenizerModel::Unigram => Self::Unigram,
        };
        ALGORITHMS.iter().find(|(_, known)| *known == algorithm).map_or("", |(name, _)| name)
    }

    fn spelling(self) -> Spelling {
        if self == Self::ByteLevel { Spelling::Bytes } else { Spelling::Spaces }
    }

    fn needs_scores(self) -> bool {
        matches!(self, Self::SentencePiece | Self::Unigram)
    }

    /// The special ids of files that name none.
    fn default_ids(self) -> &'static [(&'static str, u32)] {
        match self {
            Self::SentencePiece => &[("bos", 1), ("eos", 2), ("unk", 0)],
            Self::WordPiece => &[("unk", 100), ("sep", 102), ("pad", 0), ("cls", 101), ("mask", 103)],
            Self::Unigram => &[("eos", 1), ("unk", 2), ("pad", 0)],
            Self::ByteLevel | Self::CharacterLevel => &[],
        }
    }
}

/// The algorithm's name: the file's, unless it has none that is known and there is a hint.
pub(super) fn algorithm_name(in_file: Option<&str>, hint: Option<TokenizerModel>) -> Option<&str> {
    let known = |name: &&str| Algorithm::named(name).is_ok();
    in_file.filter(known).or(hint.map(Algorithm::named_by)).or(in_file)
}

impl Tokenizer {
    /// Builds the tokenizer that `spec` describes.
    ///
    /// # Errors
    /// An algorithm or a pre-tokenizer that is not known, and arrays that do not fit the vocabulary, by name. Special ids
    /// outside the vocabulary are left out with a warning.
    pub fn new(mut spec: TokenizerSpec) -> Result<Self, TokenizerError> {
        let algorithm = Algorithm::named(&spec.model)?;
        check(algorithm, &spec)?;
        let pre = if algorithm == Algorithm::ByteLevel { Some(PreTokenizer::from_spec(&spec)?) } else { None };
        let ids = special_ids(algorithm, &spec);
        let adds_bos = pre.as_ref().is_some_and(|pre| pre.adds_bos);
        let framing = framing(algorithm, &spec, ids, adds_bos);
        let library = match algorithm {
            Algorithm::WordPiece => Some(Library::word_piece(&spec, framing.id("unk"))?),
            Algorithm::Unigram => Some(Library::unigram(&spec, framing.id("unk"))?),
            _ => None,
        };
        let tokens = std::mem::take(&mut spec.tokens);
        let types = std::mem::take(&mut spec.token_types);
        let vocabulary = Vocabulary::new(tokens, types, algorithm.spelling());
        let add_prefix = algorithm == Algorithm::SentencePiece && spec.add_space_prefix.unwrap_or(true);
        let characters =
            |rule| CharacterLevel::new(rule, add_prefix, framing.id("unk"), &vocabulary).map(Engine::Characters);
        let engine = match (library, pre) {
            (Some(library), _) => Engine::Library(library),
            (None, Some(pre)) => Engine::Bytes(ByteLevel::new(pre, &spec.merges, &vocabulary)),
            (None, None) if algorithm == Algorithm::SentencePiece => characters(Rule::by_score(&spec.scores))?,
            (None, None) => characters(Rule::Ranks(RankedMerges::new(&spec.merges, &vocabulary)))?,
        };
        let specials = SpecialTokens::of(&vocabulary, matches!(engine, Engine::Characters(_)))?;
        let suppressed = std::mem::take(&mut spec.suppressed);
        Ok(Self(Arc::new(Inner {
            specials,
            engine,
            framing,
            strips_leading_space: add_prefix,
            suppressed,
            vocabulary,
            large: Mutex::new(()),
        })))
    }
}

fn check(algorithm: Algorithm, spec: &TokenizerSpec) -> Result<(), TokenizerError> {
    if spec.tokens.is_empty() {
        return Err(missing(spec, "tokens"));
    }
    if u32::try_from(spec.tokens.len()).is_err() {
        let reason = format!("{} tokens are more than ids can number", spec.tokens.len());
        return Err(TokenizerError::Value { key: "tokenizer.ggml.tokens".to_owned(), reason });
    }
    fits("tokenizer.ggml.token_type", spec.token_types.len(), spec)?;
    fits("tokenizer.ggml.scores", spec.scores.len(), spec)?;
    if algorithm.needs_scores() && spec.scores.is_empty() {
        return Err(missing(spec, "scores"));
    }
    Ok(())
}

fn missing(spec: &TokenizerSpec, key: &str) -> TokenizerError {
    TokenizerError::Missing { key: format!("tokenizer.ggml.{key}"), model: spec.model.clone() }
}

/// An absent array fits; a present one must cover the vocabulary.
fn fits(key: &'static str, found: usize, spec: &TokenizerSpec) -> Result<(), TokenizerError> {
    let expected = spec.tokens.len();
    if found == 0 || found >= expected { Ok(()) } else { Err(TokenizerError::Length { key, expected, found }) }
}

/// The special ids that exist, with the algorithm's own where the file names none.
fn special_ids(algorithm: Algorithm, spec: &TokenizerSpec) -> BTreeMap<String, u32> {
    let vocab_size = spec.tokens.len();
    let exists = |id: u32| usize::try_from(id).is_ok_and(|id| id < vocab_size);
    let defaults = algorithm.default_ids().iter().map(|(role, id)| ((*role).to_owned(), *id));
    let mut ids: BTreeMap<String, u32> = defaults.filter(|(_, id)| exists(*id)).collect();
    for (role, id) in &spec.special_ids {
        if exists(*id) {
            ids.insert(role.clone(), *id);
        } else {
            tracing::warn!("the {role} token id {id} is left out: there are only {vocab_size} tokens");
            ids.remove(role);
        }
    }
    ids
}

fn framing(algorithm: Algorithm, spec: &TokenizerSpec, ids: BTreeMap<String, u32>, pre_adds_bos: bool) -> Framing {
    let (mut prefix, mut suffix) = (Vec::new(), Vec::new());
    let add_bos = match algorithm {
        // Gemma files that say otherwise were wrong (the model degenerates without), and WordPiece has no other way.
        Algorithm::CharacterLevel | Algorithm::WordPiece => true,
        Algorithm::SentencePiece => spec.add_bos.unwrap_or(true),
        Algorithm::ByteLevel => spec.add_bos.unwrap_or(pre_adds_bos),
        Algorithm::Unigram => spec.add_bos.unwrap_or(false),
    };
    // BERT's [CLS] has a role of its own in older files.
    let first = ids.get("bos").or_else(|| ids.get("cls").filter(|_| algorithm == Algorithm::WordPiece));
    prefix.extend(first.filter(|_| add_bos));
    let add_sep = algorithm == Algorithm::WordPiece || spec.add_sep.unwrap_or(false);
    suffix.extend(ids.get("sep").filter(|_| add_sep));
    let add_eos = spec.add_eos.unwrap_or(algorithm == Algorithm::Unigram);
    suffix.extend(ids.get("eos").filter(|_| add_eos && algorithm != Algorithm::WordPiece));
    Framing { ids, prefix, suffix }
}
