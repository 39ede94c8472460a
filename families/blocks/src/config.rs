//! Reading configurations: the sizes of decoders whose layers all attend, with bounds that keep later products harmless.

use bantam_family_api::{Checkpoint, FamilyError, Fields};
use serde::{Serialize, Serializer};

use super::sizes::{ModelSizes, draft_fits};

/// Largest size that is accepted from metadata: far above any model.
const MAX_EXTENT: usize = 1 << 31;

/// One size per layer.
#[derive(Clone, Debug)]
pub struct PerLayer(Vec<usize>);

impl PerLayer {
    /// The size of a layer; 0 past the last.
    pub fn at(&self, layer: usize) -> usize {
        self.0.get(layer).copied().unwrap_or_default()
    }

    /// The size that all layers share, if they do.
    fn everywhere(&self) -> Option<usize> {
        let (first, rest) = self.0.split_first()?;
        rest.iter().all(|size| size == first).then_some(*first)
    }

    /// One size for all layers or an array of sizes; `None` if not given. `layers` must have been checked.
    pub fn read(fields: &Fields<'_>, key: &str, layers: usize) -> Result<Option<Self>, FamilyError> {
        let Some(sizes) = fields.per_layer(key, layers)? else { return Ok(None) };
        sizes.iter().try_for_each(|&size| bounded(fields, key, size))?;
        Ok(Some(PerLayer(sizes)))
    }
}

impl Serialize for PerLayer {
    /// A single number where all layers agree.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.everywhere() {
            Some(size) => size.serialize(serializer),
            None => self.0.serialize(serializer),
        }
    }
}

/// Sizes of a decoder.
#[derive(Clone, Debug, Serialize)]
pub struct DecoderSizes {
    /// Layers, the draft block included.
    pub layers: usize,
    /// Entries of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Longest sequence of the training.
    pub context_length: usize,
    /// Query heads of each layer.
    pub heads: PerLayer,
    /// Key/value heads of each layer; they divide the query heads.
    pub kv_heads: PerLayer,
    /// Entries of a query or key head.
    pub key_dim: usize,
    /// Entries of a value head.
    pub value_dim: usize,
    /// Added under the root of every RMS norm.
    pub norm_eps: f32,
}

impl DecoderSizes {
    /// Shape of the embedding table.
    pub fn table(&self) -> [usize; 2] {
        [self.vocab, self.hidden]
    }

    /// Reads the sizes and checks them against each other and the embedding table.
    ///
    /// # Errors
    /// The key or tensor that does not fit.
    pub fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let ModelSizes { blocks: layers, hidden, vocab, context_length, norm_eps, .. } = ModelSizes::read(checkpoint)?;
        let heads = heads(&fields, layers)?;
        Ok(DecoderSizes {
            layers,
            hidden,
            vocab,
            context_length,
            kv_heads: kv_heads(&fields, layers, &heads)?,
            key_dim: head_dim(&fields, "attention.key_length", hidden, &heads)?,
            value_dim: head_dim(&fields, "attention.value_length", hidden, &heads)?,
            heads,
            norm_eps,
        })
    }
}

impl DecoderSizes {
    /// Checks that the draft `file`, which has these sizes, reads and proposes the tokens of `target`, and rows as wide.
    ///
    /// # Errors
    /// Both shapes of the embedding table.
    pub fn fits(&self, file: &Checkpoint, target: &DecoderSizes) -> Result<(), FamilyError> {
        draft_fits(file, [self.vocab, self.hidden], [target.vocab, target.hidden])
    }
}

fn heads(fields: &Fields<'_>, layers: usize) -> Result<PerLayer, FamilyError> {
    const KEY: &str = "attention.head_count";
    let expected = "an integer of 1 or more, or one per layer";
    match PerLayer::read(fields, KEY, layers)? {
        Some(heads) if !heads.0.contains(&0) => Ok(heads),
        Some(_) => Err(fields.wrong(KEY, expected, "0")),
        None => Err(fields.wrong(KEY, expected, "no such key")),
    }
}

fn kv_heads(fields: &Fields<'_>, layers: usize, heads: &PerLayer) -> Result<PerLayer, FamilyError> {
    const KEY: &str = "attention.head_count_kv";
    let Some(kv_heads) = PerLayer::read(fields, KEY, layers)? else { return Ok(heads.clone()) };
    let unfit = |&(&n, &heads): &(&usize, &usize)| n == 0 || !heads.is_multiple_of(n);
    match kv_heads.0.iter().zip(&heads.0).find(unfit) {
        None => Ok(kv_heads),
        Some((n, heads)) => Err(fields.wrong(KEY, &format!("a divisor of the {heads} query heads"), &n.to_string())),
    }
}

/// Where the key is not given all layers share the residual stream's width among their heads.
fn head_dim(fields: &Fields<'_>, key: &str, hidden: usize, heads: &PerLayer) -> Result<usize, FamilyError> {
    if let Some(dim) = extent_opt(fields, key)? {
        return Ok(dim);
    }
    match heads.everywhere().filter(|heads| hidden.is_multiple_of(*heads)) {
        Some(heads) => Ok(hidden / heads),
        None => {
            let expected = format!("one divisor of embedding_length {hidden}, since {key} is not given");
            Err(fields.wrong("attention.head_count", &expected, &format!("{:?}", heads.0)))
        }
    }
}

/// A size of at least 1 that must be given.
pub fn extent(fields: &Fields<'_>, key: &str) -> Result<usize, FamilyError> {
    let size = fields.size(key)?;
    bounded(fields, key, size)?;
    Ok(size)
}

/// A size of at least 1, if given.
pub fn extent_opt(fields: &Fields<'_>, key: &str) -> Result<Option<usize>, FamilyError> {
    fields.usize_opt(key)?.map(|_| extent(fields, key)).transpose()
}

fn bounded(fields: &Fields<'_>, key: &str, size: usize) -> Result<(), FamilyError> {
    if size > MAX_EXTENT {
        return Err(fields.wrong(key, &format!("at most {MAX_EXTENT}"), &size.to_string()));
    }
    Ok(())
}
