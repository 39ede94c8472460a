//! Embeddings of the last few tokens together: rows of a hashed table, gated by the streams that they are added to.

use bantam_family_api::{Checkpoint, FamilyError, Fields};
use bantam_family_blocks::{Projection, Tensors, extent, inverse_sqrt, token_id};
use bantam_graph::{Act, GraphBuilder, HashHead, InputSource, NgramHash, ShortConv, StreamUpdate};
use serde::Serialize;

use super::streams::StreamConfig;

/// The table's tensor.
const TABLE: &str = "per_layer_token_embd";

/// Sizes and hashes of the n-grams.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NgramConfig {
    /// The layer whose streams they are added to, before it.
    pub(super) layer: usize,
    /// Tokens of the longest n-gram.
    longest: usize,
    /// The token that n-grams do not reach across.
    boundary: u32,
    multipliers: Vec<u64>,
    heads: Vec<HashHead>,
    row_width: usize,
    taps: usize,
}

impl NgramConfig {
    /// Reads `ple.*` and `embedding_length_per_layer_input`, for a vocabulary of so many tokens; without `ple.layers` there are no n-grams.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(super) fn read(checkpoint: &Checkpoint, layers: usize, vocab: usize) -> Result<Option<Self>, FamilyError> {
        const LAYERS: &str = "ple.layers";
        let fields = &checkpoint.fields();
        let wrong = |found: &[u64]| fields.wrong(LAYERS, &format!("one of the {layers} layers"), &format!("{found:?}"));
        let layer = match fields.integers_opt(LAYERS)?.unwrap_or_default()[..] {
            [] if checkpoint.has(&format!("{TABLE}.weight")) => return Err(wrong(&[])),
            [] => return Ok(None),
            [layer] => usize::try_from(layer).ok().filter(|i| *i < layers).ok_or_else(|| wrong(&[layer]))?,
            ref several => return Err(wrong(several)),
        };
        let longest = extent(fields, "ple.ngram_size")?;
        let taps = extent(fields, "ple.conv_kernel")?;
        for (key, n) in [("ple.ngram_size", longest), ("ple.conv_kernel", taps)] {
            if n < 2 {
                return Err(fields.wrong(key, "2 or more", &n.to_string()));
            }
        }
        let boundary = token_id(fields, "ple.eos_token_id", vocab)?;
        Ok(Some(NgramConfig {
            layer,
            longest,
            boundary,
            multipliers: integers(fields, "ple.layer_multipliers", longest)?,
            heads: hashes(fields, longest)?,
            row_width: extent(fields, "embedding_length_per_layer_input")?,
            taps,
        }))
    }

    /// Entries of all rows that a token reads.
    fn width(&self) -> usize {
        self.heads.len().saturating_mul(self.row_width)
    }

    /// Rows of the table that hashes can reach.
    fn table_rows(&self) -> usize {
        let ends = self.heads.iter().map(|head| u64::from(head.offset) + u64::from(head.rows));
        ends.max().map_or(0, |end| usize::try_from(end).unwrap_or(usize::MAX))
    }
}

/// As many integers as there must be.
fn integers(fields: &Fields<'_>, key: &str, count: usize) -> Result<Vec<u64>, FamilyError> {
    let wrong = |found: String| fields.wrong(key, &format!("an array of {count} integers"), &found);
    let found = fields.integers_opt(key)?.ok_or_else(|| wrong("no such key".into()))?;
    if found.len() == count { Ok(found) } else { Err(wrong(format!("{} integers", found.len()))) }
}

/// `ple.heads_per_ngram` hashes of two tokens, then as many of three, and so on.
fn hashes(fields: &Fields<'_>, longest: usize) -> Result<Vec<HashHead>, FamilyError> {
    const OFFSETS: &str = "ple.head_offsets";
    const SIZES: &str = "ple.head_vocab_sizes";
    let per_order = extent(fields, "ple.heads_per_ngram")?;
    let count = per_order.saturating_mul(longest.saturating_sub(1));
    let small = |key: &'static str| {
        let small = |n: u64| u32::try_from(n).map_err(|_| fields.wrong(key, "integers of 32 bits", &n.to_string()));
        integers(fields, key, count)?.into_iter().map(small).collect::<Result<Vec<u32>, FamilyError>>()
    };
    let (offsets, sizes) = (small(OFFSETS)?, small(SIZES)?);
    let heads = offsets.into_iter().zip(sizes).enumerate();
    Ok(heads.map(|(j, (offset, rows))| HashHead { order: 2 + j / per_order.max(1), rows, offset }).collect())
}

/// The table, which lies outside the layers.
///
/// # Errors
/// If it is missing, or has fewer rows than the hashes reach, or rows of another width.
pub(super) fn table(t: &mut Tensors<'_>, config: &NgramConfig) -> Result<String, FamilyError> {
    let needed = config.table_rows();
    let rows = t.rows(TABLE).map_or(needed, |rows| rows.max(needed));
    t.plain(TABLE, &[rows, config.row_width])
}

/// The weights of the layer that n-grams are added before.
#[derive(Clone, Debug)]
pub(super) struct Ngrams {
    config: NgramConfig,
    streams: StreamConfig,
    hidden: usize,
    key: Projection,
    key_norm: String,
    value: Projection,
    query_norm: String,
    conv_norm: String,
    conv: String,
}

impl Ngrams {
    /// `ple_key`, `ple_value`, `ple_norm_key`, `ple_norm_query`, `ple_norm_conv` and `ple_conv1d`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(
        t: &mut Tensors<'_>,
        config: &NgramConfig,
        streams: StreamConfig,
        hidden: usize,
    ) -> Result<Self, FamilyError> {
        let width = streams.width(hidden);
        Ok(Ngrams {
            streams,
            hidden,
            key: t.matrix("ple_key", width, config.width())?,
            key_norm: t.plain("ple_norm_key", &[width])?,
            value: t.matrix("ple_value", hidden, config.width())?,
            query_norm: t.plain("ple_norm_query", &[width])?,
            conv_norm: t.plain("ple_norm_conv", &[width])?,
            conv: t.plain("ple_conv1d", &[width, config.taps])?,
            config: config.clone(),
        })
    }

    /// The streams with what the n-grams that end in each token add to them.
    pub(super) fn apply(&self, g: &mut GraphBuilder, ids: &str, table: &str, streams: &str, norm_eps: f32) -> String {
        let rows = self.hashed(g, ids);
        let found = g.embed("ngram_rows", &rows, table, 1.0);
        let k = self.key.apply(g, "ngram_key", &found);
        let k = g.rms_norm("ngram_key_norm", &k, Some(&self.key_norm), norm_eps, Some(self.hidden));
        let q = g.rms_norm("ngram_query", streams, Some(&self.query_norm), norm_eps, Some(self.hidden));
        let gate = g.dot("ngram_dot", &k, &q, self.streams.count);
        let gate = g.scale("ngram_score", &gate, inverse_sqrt(self.hidden));
        let gate = g.activate("ngram_root", &gate, Act::SignedSqrt);
        let post = g.activate("ngram_gate", &gate, Act::Sigmoid);
        let y = self.value.apply(g, "ngram_value", &found);
        let added = g.stream_update("ngram_gated", StreamUpdate { x: None, y, post, mix: None });
        let spread = self.convolved(g, &added, norm_eps);
        let streams = g.add("ngram_streams", streams, &added);
        g.add("ngram_out", &streams, &spread)
    }

    fn hashed(&self, g: &mut GraphBuilder, ids: &str) -> String {
        let missing = self.config.boundary;
        let earlier = (1..self.config.longest)
            .map(|back| g.input(&format!("tokens_back_{back}"), InputSource::PreviousTokens { back, missing }));
        let ids = std::iter::once(ids.into()).chain(earlier).collect();
        let (multipliers, heads) = (self.config.multipliers.clone(), self.config.heads.clone());
        g.ngram_hash("ngram_hash", NgramHash { ids, boundary: missing, multipliers, heads })
    }

    /// The taps lie as far apart as the longest n-gram is long.
    fn convolved(&self, g: &mut GraphBuilder, x: &str, norm_eps: f32) -> String {
        let x = g.rms_norm("ngram_conv_norm", x, Some(&self.conv_norm), norm_eps, Some(self.hidden));
        let dilation = self.config.longest;
        let rows = self.config.taps.saturating_sub(1).saturating_mul(dilation);
        let state = g.recurrent("ngram_conv", &[rows, self.streams.width(self.hidden)]);
        let conv = ShortConv { x, weight: self.conv.clone(), bias: None, dilation, state };
        let y = g.short_conv("ngram_conv", conv);
        g.activate("ngram_conv_act", &y, Act::Silu)
    }
}
