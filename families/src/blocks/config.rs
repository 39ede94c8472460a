//! Reading configurations: the sizes that all decoders have, with bounds that keep later products harmless.

use bantam_family_api::{Checkpoint, FamilyError, Fields};
use serde::{Serialize, Serializer};

use super::listed_tokens;

/// Largest size that is accepted from metadata: far above any model.
const MAX_EXTENT: usize = 1 << 31;

/// One size per layer.
#[derive(Clone, Debug)]
pub(crate) struct PerLayer(Vec<usize>);

impl PerLayer {
    /// The size of a layer; 0 past the last.
    pub(crate) fn at(&self, layer: usize) -> usize {
        self.0.get(layer).copied().unwrap_or_default()
    }

    /// One size for all layers or an array of sizes; `None` if not given. `layers` must have been checked.
    pub(crate) fn read(fields: &Fields<'_>, key: &str, layers: usize) -> Result<Option<Self>, FamilyError> {
        let Some(sizes) = fields.per_layer(key, layers)? else { return Ok(None) };
        sizes.iter().try_for_each(|&size| bounded(fields, key, size))?;
        Ok(Some(PerLayer(sizes)))
    }
}

impl Serialize for PerLayer {
    /// A single number where all layers agree.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.split_first() {
            Some((first, rest)) if rest.iter().all(|size| size == first) => first.serialize(serializer),
            _ => self.0.serialize(serializer),
        }
    }
}

/// Sizes of a decoder.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DecoderSizes {
    /// Layers.
    pub(crate) layers: usize,
    /// Entries of the residual stream.
    pub(crate) hidden: usize,
    /// Rows of the embedding table.
    pub(crate) vocab: usize,
    /// Longest sequence of the training.
    pub(crate) context_length: usize,
    /// Query heads.
    pub(crate) heads: usize,
    /// Key/value heads of each layer; they divide the query heads.
    pub(crate) kv_heads: PerLayer,
    /// Entries of a query or key head.
    pub(crate) key_dim: usize,
    /// Entries of a value head.
    pub(crate) value_dim: usize,
    /// Added under the root of every RMS norm.
    pub(crate) norm_eps: f32,
}

impl DecoderSizes {
    /// Reads the sizes and checks them against each other and the embedding table.
    ///
    /// # Errors
    /// The key or tensor that does not fit.
    pub(crate) fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let layers = layer_count(checkpoint)?;
        let hidden = extent(&fields, "embedding_length")?;
        let heads = extent(&fields, "attention.head_count")?;
        Ok(DecoderSizes {
            layers,
            hidden,
            vocab: vocabulary(checkpoint, hidden)?,
            context_length: extent(&fields, "context_length")?,
            heads,
            kv_heads: kv_heads(&fields, layers, heads)?,
            key_dim: head_dim(&fields, "attention.key_length", hidden, heads)?,
            value_dim: head_dim(&fields, "attention.value_length", hidden, heads)?,
            norm_eps: norm_eps(&fields)?,
        })
    }
}

/// Layers; each has tensors, so more layers than tensors is a damaged file, found before anything of that size is made.
fn layer_count(checkpoint: &Checkpoint) -> Result<usize, FamilyError> {
    let fields = checkpoint.fields();
    let layers = fields.size("block_count")?;
    let tensors = checkpoint.tensors.len();
    if layers > tensors {
        let expected = format!("at most the number of tensors ({tensors})");
        return Err(fields.wrong("block_count", &expected, &layers.to_string()));
    }
    Ok(layers)
}

/// Rows of the embedding table, which has one for every token of the tokenizer and sometimes padding.
fn vocabulary(checkpoint: &Checkpoint, hidden: usize) -> Result<usize, FamilyError> {
    const TABLE: &str = "token_embd.weight";
    let wrong = |expected: String, found: &[usize]| FamilyError::Tensor {
        tensor: TABLE.into(),
        expected,
        found: format!("shape {found:?}"),
    };
    match checkpoint.shape(TABLE)? {
        shape @ &[rows, cols] if cols == hidden => match listed_tokens(checkpoint) {
            Some(tokens) if tokens > rows as u64 => {
                Err(wrong(format!("a row for each of the {tokens} entries of `tokenizer.ggml.tokens`"), shape))
            }
            _ => Ok(rows),
        },
        shape => Err(wrong(format!("shape [vocabulary, {hidden}]"), shape)),
    }
}

fn kv_heads(fields: &Fields<'_>, layers: usize, heads: usize) -> Result<PerLayer, FamilyError> {
    const KEY: &str = "attention.head_count_kv";
    let Some(kv_heads) = PerLayer::read(fields, KEY, layers)? else { return Ok(PerLayer(vec![heads; layers])) };
    match kv_heads.0.iter().find(|&&n| n == 0 || !heads.is_multiple_of(n)) {
        None => Ok(kv_heads),
        Some(n) => Err(fields.wrong(KEY, &format!("a divisor of the {heads} query heads"), &n.to_string())),
    }
}

fn head_dim(fields: &Fields<'_>, key: &str, hidden: usize, heads: usize) -> Result<usize, FamilyError> {
    if let Some(dim) = extent_opt(fields, key)? {
        return Ok(dim);
    }
    if !hidden.is_multiple_of(heads) {
        let expected = format!("a divisor of embedding_length {hidden}, since {key} is not given");
        return Err(fields.wrong("attention.head_count", &expected, &heads.to_string()));
    }
    Ok(hidden / heads)
}

fn norm_eps(fields: &Fields<'_>) -> Result<f32, FamilyError> {
    const KEY: &str = "attention.layer_norm_rms_epsilon";
    let eps = fields.f32(KEY)?;
    if eps < 0.0 { Err(fields.wrong(KEY, "a number of 0 or more", &eps.to_string())) } else { Ok(eps) }
}

/// A size of at least 1 that must be given.
pub(crate) fn extent(fields: &Fields<'_>, key: &str) -> Result<usize, FamilyError> {
    let size = fields.size(key)?;
    bounded(fields, key, size)?;
    Ok(size)
}

/// A size of at least 1, if given.
pub(crate) fn extent_opt(fields: &Fields<'_>, key: &str) -> Result<Option<usize>, FamilyError> {
    fields.usize_opt(key)?.map(|_| extent(fields, key)).transpose()
}

/// A number above 0, if given.
pub(crate) fn positive_opt(fields: &Fields<'_>, key: &str) -> Result<Option<f32>, FamilyError> {
    match fields.f32_opt(key)? {
        Some(x) if x <= 0.0 => Err(fields.wrong(key, "a number above 0", &x.to_string())),
        x => Ok(x),
    }
}

fn bounded(fields: &Fields<'_>, key: &str, size: usize) -> Result<(), FamilyError> {
    if size > MAX_EXTENT {
        return Err(fields.wrong(key, &format!("at most {MAX_EXTENT}"), &size.to_string()));
    }
    Ok(())
}
