//! From a [`TokenizerSpec`] to a [`Tokenizer`]: checks, and the defaults for what a file leaves out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bpe::ByteLevel;
use super::characters::{CharacterLevel, Rule};
use super::merge::RankedMerges;
use super::spec::TokenizerSpec;
use super::specials::SpecialTokens;
use super::split::PreTokenizer;
use super::vocab::{Spelling, Vocabulary};
use super::{Engine, Framing, Inner, Tokenizer};
use crate::TokenizerError;

const MODELS: [&str; 3] = ["gpt2", "llama", "gemma4"];

impl Tokenizer {
    /// Builds the tokenizer that `spec` describes.
    ///
    /// # Errors
    /// An algorithm or a pre-tokenizer that is not known, and arrays that do not fit the vocabulary, by name. Special ids
    /// outside the vocabulary are left out with a warning.
    pub fn new(mut spec: TokenizerSpec) -> Result<Self, TokenizerError> {
        check(&spec)?;
        let tokens = std::mem::take(&mut spec.tokens);
        let types = std::mem::take(&mut spec.token_types);
        let framing = framing(&spec, tokens.len());
        let spelling = if spec.model == "gpt2" { Spelling::Bytes } else { Spelling::Spaces };
        let vocabulary = Vocabulary::new(tokens, types, spelling);
        let (engine, adds_bos) = engine(&spec, &framing, &vocabulary)?;
        let specials = SpecialTokens::of(&vocabulary, spelling == Spelling::Spaces)?;
        Ok(Self(Arc::new(Inner {
            specials,
            engine,
            framing: Framing { add_bos: framing.add_bos || adds_bos, ..framing },
            strips_leading_space: add_space_prefix(&spec),
            suppressed: std::mem::take(&mut spec.suppressed),
            vocabulary,
        })))
    }
}

fn check(spec: &TokenizerSpec) -> Result<(), TokenizerError> {
    if !MODELS.contains(&spec.model.as_str()) {
        return Err(TokenizerError::UnknownModel { model: spec.model.clone(), known: MODELS.join(", ") });
    }
    if spec.tokens.is_empty() {
        return Err(missing(spec, "tokens"));
    }
    if u32::try_from(spec.tokens.len()).is_err() {
        let reason = format!("{} tokens are more than ids can number", spec.tokens.len());
        return Err(TokenizerError::Value { key: "tokenizer.ggml.tokens".to_owned(), reason });
    }
    fits("tokenizer.ggml.token_type", spec.token_types.len(), spec)?;
    fits("tokenizer.ggml.scores", spec.scores.len(), spec)?;
    if spec.model == "llama" && spec.scores.is_empty() {
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

fn add_space_prefix(spec: &TokenizerSpec) -> bool {
    spec.model == "llama" && spec.add_space_prefix.unwrap_or(true)
}

fn engine(spec: &TokenizerSpec, framing: &Framing, vocabulary: &Vocabulary) -> Result<(Engine, bool), TokenizerError> {
    let unknown = framing.id("unk");
    let characters = |rule| -> Result<_, TokenizerError> {
        let engine = CharacterLevel::new(rule, add_space_prefix(spec), unknown, vocabulary)?;
        Ok((Engine::Characters(engine), false))
    };
    Ok(match spec.model.as_str() {
        "gpt2" => {
            let pre = PreTokenizer::from_spec(spec)?;
            let adds_bos = pre.adds_bos && spec.add_bos.is_none();
            (Engine::Bytes(ByteLevel::new(pre, &spec.merges, vocabulary)), adds_bos)
        }
        "gemma4" => characters(Rule::Ranks(RankedMerges::new(&spec.merges, vocabulary)))?,
        _ => characters(Rule::by_score(&spec.scores))?,
    })
}

/// The special ids, with the algorithm's own where the file names none.
fn framing(spec: &TokenizerSpec, vocab_size: usize) -> Framing {
    let defaults: &[(&str, u32)] = match spec.model.as_str() {
        "llama" => &[("bos", 1), ("eos", 2), ("unk", 0)],
        _ => &[],
    };
    let mut ids: BTreeMap<String, u32> = defaults.iter().map(|(role, id)| ((*role).to_owned(), *id)).collect();
    ids.extend(spec.special_ids.iter().map(|(role, id)| (role.clone(), *id)));
    ids.retain(|role, id| {
        let exists = usize::try_from(*id).is_ok_and(|id| id < vocab_size);
        if !exists {
            tracing::warn!("the {role} token id {id} is left out: there are only {vocab_size} tokens");
        }
        exists
    });
    let add_bos = match spec.model.as_str() {
        // Files that say otherwise were wrong: the model degenerates without.
        "gemma4" => true,
        "llama" => spec.add_bos.unwrap_or(true),
        _ => spec.add_bos.unwrap_or(false),
    };
    Framing { ids, add_bos, add_eos: spec.add_eos.unwrap_or(false), add_sep: spec.add_sep.unwrap_or(false) }
}
