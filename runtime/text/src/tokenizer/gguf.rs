//! Reading a [`TokenizerSpec`] from the metadata of a GGUF file.

use bantam_family_api::TokenizerHints;
use bantam_gguf::{Array, Metadata, StringArray};

use super::Tokenizer;
use super::build::algorithm_name;
use super::spec::{TokenType, TokenizerSpec};
use crate::TokenizerError;

/// Roles of special ids and the keys that name them, a newer spelling before an older one.
const SPECIAL_IDS: &[(&str, &[&str])] = &[
    ("bos", &["bos_token_id"]),
    ("eos", &["eos_token_id"]),
    ("eot", &["eot_token_id"]),
    ("eom", &["eom_token_id"]),
    ("unk", &["unknown_token_id"]),
    ("sep", &["seperator_token_id", "separator_token_id"]),
    ("pad", &["padding_token_id"]),
    ("cls", &["cls_token_id"]),
    ("mask", &["mask_token_id"]),
    ("fim_pre", &["fim_pre_token_id", "prefix_token_id"]),
    ("fim_suf", &["fim_suf_token_id", "suffix_token_id"]),
    ("fim_mid", &["fim_mid_token_id", "middle_token_id"]),
    ("fim_pad", &["fim_pad_token_id"]),
    ("fim_rep", &["fim_rep_token_id"]),
    ("fim_sep", &["fim_sep_token_id"]),
];

/// `tokenizer.ggml.*` of one file.
struct Keys<'a>(&'a Metadata);

impl<'a> Keys<'a> {
    fn get<T: bantam_gguf::FromValue<'a>>(&self, key: &str) -> Result<Option<T>, TokenizerError> {
        Ok(self.0.get(&format!("tokenizer.ggml.{key}"))?)
    }

    fn strings(&self, key: &str) -> Result<Option<Vec<Vec<u8>>>, TokenizerError> {
        let strings: Option<&StringArray> = self.get(key)?;
        Ok(strings.map(|strings| strings.iter().map(<[u8]>::to_vec).collect()))
    }

    fn token_types(&self) -> Result<Vec<TokenType>, TokenizerError> {
        let numbers: Vec<i64> = self.get("token_type")?.unwrap_or_default();
        // 0 means undefined in old files.
        let read = |(index, number)| match number {
            0 => Ok(TokenType::Normal),
            number => TokenType::from_gguf(number).ok_or_else(|| TokenizerError::Value {
                key: "tokenizer.ggml.token_type".to_owned(),
                reason: format!("entry {index} is {number}, expected 1 to 6"),
            }),
        };
        numbers.into_iter().enumerate().map(read).collect()
    }

    /// Old files have integers for scores.
    #[allow(clippy::cast_precision_loss, reason = "scores are ranks of far fewer than 2^24 tokens")]
    fn scores(&self) -> Result<Vec<f32>, TokenizerError> {
        Ok(match self.get::<&Array>("scores")? {
            None => Vec::new(),
            Some(Array::F32(scores)) => scores.clone(),
            Some(Array::I32(scores)) => scores.iter().map(|score| *score as f32).collect(),
            Some(other) => {
                let reason = format!("expected an array of f32, found {}", other.element_type_name());
                return Err(TokenizerError::Value { key: "tokenizer.ggml.scores".to_owned(), reason });
            }
        })
    }

    fn charsmap(&self) -> Result<Vec<u8>, TokenizerError> {
        Ok(match self.get::<&Array>("precompiled_charsmap")? {
            None => Vec::new(),
            Some(Array::U8(bytes)) => bytes.clone(),
            Some(Array::I8(bytes)) => bytes.iter().map(|byte| byte.cast_unsigned()).collect(),
            Some(other) => {
                let reason = format!("expected an array of u8, found {}", other.element_type_name());
                return Err(TokenizerError::Value { key: "tokenizer.ggml.precompiled_charsmap".to_owned(), reason });
            }
        })
    }
}

impl TokenizerSpec {
    /// What `metadata` says about the tokenizer.
    ///
    /// # Errors
    /// A value of another type than the format says, by key, and a file without a vocabulary.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        Self::from_gguf_with(metadata, &TokenizerHints::default())
    }

    /// As [`from_gguf`](Self::from_gguf), with what the family knows: it counts where `metadata` says nothing, or names an
    /// algorithm or pre-tokenizer that is not known.
    ///
    /// # Errors
    /// As [`from_gguf`](Self::from_gguf).
    pub fn from_gguf_with(metadata: &Metadata, hints: &TokenizerHints) -> Result<Self, TokenizerError> {
        let keys = Keys(metadata);
        let model = match algorithm_name(keys.get("model")?, hints.model) {
            Some(name) => name.to_owned(),
            None => metadata.require::<&str>("tokenizer.ggml.model")?.to_owned(),
        };
        let missing = |key: &str| TokenizerError::Missing { key: key.to_owned(), model: model.clone() };
        let merges = keys.strings("merges")?;
        if merges.is_none() && matches!(model.as_str(), "gpt2" | "gemma4") {
            return Err(missing("tokenizer.ggml.merges"));
        }
        let mut spec = Self {
            pre: keys.get::<&str>("pre")?.map(str::to_owned),
            tokens: keys.strings("tokens")?.ok_or_else(|| missing("tokenizer.ggml.tokens"))?,
            token_types: keys.token_types()?,
            scores: keys.scores()?,
            merges: merges.unwrap_or_default(),
            cut: hints.pre.clone(),
            add_bos: keys.get("add_bos_token")?.or(hints.add_bos),
            add_eos: keys.get("add_eos_token")?.or(hints.add_eos),
            add_sep: keys.get("add_sep_token")?.or(hints.add_sep),
            add_space_prefix: keys.get("add_space_prefix")?.or(hints.add_space_prefix),
            remove_extra_whitespaces: keys.get("remove_extra_whitespaces")?.or(hints.remove_extra_whitespaces),
            lowercase: keys.get("normalizer.lowercase")?.or(hints.lowercase),
            charsmap: keys.charsmap()?,
            suppressed: keys.get("suppress_tokens")?.unwrap_or_default(),
            ..Self::default()
        };
        for (role, names) in SPECIAL_IDS {
            for name in names.iter().rev() {
                // Some files say -1 for "none".
                let id = keys.get::<i64>(name)?.and_then(|id| u32::try_from(id).ok());
                spec.special_ids.extend(id.map(|id| ((*role).to_owned(), id)));
            }
        }
        spec.model = model;
        Ok(spec)
    }
}

impl Tokenizer {
    /// The tokenizer of a GGUF file.
    ///
    /// # Errors
    /// As [`TokenizerSpec::from_gguf`] and [`Tokenizer::new`].
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        Self::new(TokenizerSpec::from_gguf(metadata)?)
    }

    /// The tokenizer of a GGUF file, with what the model's family knows of it.
    ///
    /// # Errors
    /// As [`TokenizerSpec::from_gguf_with`] and [`Tokenizer::new`].
    pub fn from_gguf_with(metadata: &Metadata, hints: &TokenizerHints) -> Result<Self, TokenizerError> {
        Self::new(TokenizerSpec::from_gguf_with(metadata, hints)?)
    }
}
