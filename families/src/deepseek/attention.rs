//! Attention to one key per token that is also its value, within a window; and in most layers to keys that each stand for
//! a block of tokens, of which an indexer chooses the best where blocks are short.

use bantam_family_api::{Checkpoint, FamilyError, Fields};
use bantam_family_blocks::{Positions, Projection, ROPE_BASE, RopeConfig, Tensors, attention_scale, extent, number};
use bantam_graph::{Attention, GraphBuilder, Mask, Pairing, Rope, RopeScaling, State, StateKind, StateType};
use serde::Serialize;

use super::compressed::{Compressed, IndexerConfig};

/// The length of blocks that overlap, and of which an indexer chooses. Of longer ones all are seen.
pub(super) const INDEXED_BLOCK: usize = 4;

/// Sizes of attention.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AttentionConfig {
    heads: usize,
    pub(super) key_dim: usize,
    pub(super) query_rank: usize,
    /// Heads of a group go through one matrix to `output_rank` entries.
    output_groups: usize,
    output_rank: usize,
    pub(super) window: usize,
    scale: f32,
    /// Tokens of a block, per layer; 0: the layer has no keys of blocks.
    block: Vec<usize>,
    rope: RopeConfig,
    /// Rotation in layers with keys of blocks.
    rope_blocks: Option<RopeConfig>,
    pub(super) indexer: Option<IndexerConfig>,
}

impl AttentionConfig {
    /// Reads the keys `attention.*` and `rope.*`, for so many blocks of the checkpoint.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(super) fn read(checkpoint: &Checkpoint, blocks: usize) -> Result<Self, FamilyError> {
        const GROUPS: &str = "attention.output_group_count";
        let fields = checkpoint.fields();
        let heads = extent(&fields, "attention.head_count")?;
        let key_dim = extent(&fields, "attention.key_length")?;
        one_key_that_is_the_value(&fields, key_dim)?;
        let output_groups = extent(&fields, GROUPS)?;
        if !heads.is_multiple_of(output_groups) {
            return Err(fields.wrong(GROUPS, &format!("a divisor of the {heads} heads"), &output_groups.to_string()));
        }
        let rope = RopeConfig::read_given(&fields, Pairing::Interleaved, key_dim)?;
        let block = block_lengths(&fields, blocks)?;
        let indexed = block.contains(&INDEXED_BLOCK);
        Ok(AttentionConfig {
            heads,
            key_dim,
            query_rank: extent(&fields, "attention.q_lora_rank")?,
            output_groups,
            output_rank: extent(&fields, "attention.output_lora_rank")?,
            window: extent(&fields, "attention.sliding_window")?,
            scale: attention_scale(&fields, key_dim)?,
            rope_blocks: match block.iter().any(|tokens| *tokens > 0) {
                true => Some(rope_of_blocks(&fields, &rope)?),
                false => None,
            },
            indexer: indexed.then(|| IndexerConfig::read(&fields, &rope)).transpose()?,
            rope: RopeConfig { scaling: None, ..rope },
            block,
        })
    }

    /// Tokens of a block of this layer, if it has keys of blocks.
    pub(super) fn block(&self, layer: usize) -> Option<usize> {
        self.block.get(layer).copied().filter(|tokens| *tokens > 0)
    }

    /// The rotation of queries and keys in a layer with keys of blocks, or without.
    fn rope(&self, with_blocks: bool) -> &RopeConfig {
        self.rope_blocks.as_ref().filter(|_| with_blocks).unwrap_or(&self.rope)
    }

    /// A state of the keys of the last `len` tokens.
    pub(super) fn keys(&self, name: &str, len: usize) -> State {
        let (name, dim) = (name.into(), self.key_dim);
        State { name, heads: 1, dim, kind: StateKind::Window { len }, dtype: StateType::Kv, alias: None }
    }
}

fn one_key_that_is_the_value(fields: &Fields<'_>, key_dim: usize) -> Result<(), FamilyError> {
    for (key, expected) in [("attention.head_count_kv", 1), ("attention.value_length", key_dim)] {
        match fields.usize_opt(key)? {
            Some(found) if found != expected => {
                return Err(fields.wrong(key, &expected.to_string(), &found.to_string()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// `attention.compress_ratios`, which may go on behind the checkpoint's blocks.
fn block_lengths(fields: &Fields<'_>, blocks: usize) -> Result<Vec<usize>, FamilyError> {
    const KEY: &str = "attention.compress_ratios";
    let expected = format!("an array of {blocks} integers or more: 0, {INDEXED_BLOCK} or 128");
    let ratios = fields.integers_opt(KEY)?.ok_or_else(|| fields.wrong(KEY, &expected, "no such key"))?;
    if ratios.len() < blocks {
        return Err(fields.wrong(KEY, &expected, &format!("an array of {}", ratios.len())));
    }
    let length = |ratio: u64| match ratio {
        0 | 4 | 128 => Ok(ratio as usize),
        other => Err(fields.wrong(KEY, &expected, &other.to_string())),
    };
    ratios.into_iter().take(blocks).map(length).collect()
}

/// The rotation that `rope.scaling.*` is for: of another base, and never longer or shorter rows.
fn rope_of_blocks(fields: &Fields<'_>, rope: &RopeConfig) -> Result<RopeConfig, FamilyError> {
    const BASE: &str = "attention.compress_rope_freq_base";
    let base = number(fields, BASE, ROPE_BASE)?;
    let mut scaling = rope.scaling.clone();
    if let Some(RopeScaling::Yarn { magnitude, .. }) = &mut scaling {
        *magnitude = 1.0;
    }
    Ok(RopeConfig { base, scaling, ..rope.clone() })
}

/// The rotation of the last entries of heads.
pub(super) fn last_turned(rope: &RopeConfig, x: &str, positions: &str, head_dim: usize) -> Rope {
    Rope { offset: head_dim.saturating_sub(rope.dims), ..rope.op(x, positions, head_dim, None) }
}

/// What layers attend with, beside their weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attending<'a> {
    pub(super) config: &'a AttentionConfig,
    pub(super) positions: &'a Positions,
    pub(super) norm_eps: f32,
}

/// The key of a token.
#[derive(Clone, Debug)]
pub(super) struct Key {
    projection: Projection,
    norm: String,
}

impl Key {
    /// `attn_kv` and `attn_kv_a_norm`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(t: &mut Tensors<'_>, c: &AttentionConfig, hidden: usize) -> Result<Self, FamilyError> {
        let projection = t.matrix("attn_kv", c.key_dim, hidden)?;
        Ok(Key { projection, norm: t.plain("attn_kv_a_norm", &[c.key_dim])? })
    }

    /// The key in a layer without keys of blocks, by nodes `NAME_proj`, `NAME_norm` and `NAME_rope`.
    pub(super) fn apply(&self, g: &mut GraphBuilder, name: &str, x: &str, how: Attending<'_>) -> String {
        self.turned(g, name, x, &how.config.rope, how)
    }

    fn turned(&self, g: &mut GraphBuilder, name: &str, x: &str, rope: &RopeConfig, how: Attending<'_>) -> String {
        let k = self.projection.apply(g, &format!("{name}_proj"), x);
        let k = g.rms_norm(&format!("{name}_norm"), &k, Some(&self.norm), how.norm_eps, None);
        g.rope(&format!("{name}_rope"), last_turned(rope, &k, &how.positions.tokens, how.config.key_dim))
    }
}

/// The weights of one layer.
#[derive(Clone, Debug)]
pub(super) struct SharedKeyAttention {
    q_down: Projection,
    q_norm: String,
    q_up: Projection,
    key: Key,
    sinks: String,
    compressed: Option<Compressed>,
    /// `[groups, rank, heads of a group]`.
    grouped_output: String,
    output: Projection,
}

impl SharedKeyAttention {
    /// `attn_q_a`, `attn_q_a_norm`, `attn_q_b`, the tensors of a [`Key`], `attn_sinks`, `attn_output_a`, `attn_output_b`, and
    /// in a layer with keys of blocks those of [`Compressed`].
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(
        t: &mut Tensors<'_>,
        c: &AttentionConfig,
        layer: usize,
        hidden: usize,
    ) -> Result<Self, FamilyError> {
        let query_rows = c.heads.saturating_mul(c.key_dim);
        let (groups, rank, cols) = (c.output_groups, c.output_rank, query_rows / c.output_groups);
        let grouped_rows = groups.saturating_mul(rank);
        Ok(SharedKeyAttention {
            q_down: t.matrix("attn_q_a", c.query_rank, hidden)?,
            q_norm: t.plain("attn_q_a_norm", &[c.query_rank])?,
            q_up: t.matrix("attn_q_b", query_rows, c.query_rank)?,
            key: Key::declare(t, c, hidden)?,
            sinks: t.plain("attn_sinks", &[c.heads])?,
            compressed: c.block(layer).map(|length| Compressed::declare(t, c, length, hidden)).transpose()?,
            grouped_output: t.reshaped("attn_output_a.weight", &[grouped_rows, cols], &[groups, rank, cols])?,
            output: t.matrix("attn_output_b", hidden, grouped_rows)?,
        })
    }

    /// From the normed row to what goes into the streams. With `before`, a state of the keys of the tokens before the step,
    /// all rows of the step see each other.
    pub(super) fn apply(&self, g: &mut GraphBuilder, x: &str, how: Attending<'_>, before: Option<String>) -> String {
        let Attending { config: c, positions, norm_eps } = how;
        let rope = c.rope(self.compressed.is_some());
        let low = self.q_down.apply(g, "q_low", x);
        let low = g.rms_norm("q_low_norm", &low, Some(&self.q_norm), norm_eps, None);
        let q = self.q_up.apply(g, "q_proj", &low);
        let q = g.rms_norm("q_norm", &q, None, norm_eps, Some(c.key_dim));
        let q = g.rope("q_rope", last_turned(rope, &q, &positions.tokens, c.key_dim));
        let k = self.key.turned(g, "k", x, rope, how);
        let compressed = self.compressed.as_ref().map(|keys| keys.apply(g, x, &low, rope, how));
        let mask = if before.is_some() { Mask::Block } else { Mask::Causal };
        let k_state = before.unwrap_or_else(|| g.state(c.keys("k", c.window)));
        let op = Attention {
            q,
            k: Some(k),
            k_state,
            heads: c.heads,
            scale: c.scale,
            mask,
            window: Some(c.window),
            sinks: Some(self.sinks.clone()),
            compressed,
            ..Attention::default()
        };
        let heads = g.attention("attn", op);
        let turned_back = Rope { inverse: true, ..last_turned(rope, &heads, &positions.tokens, c.key_dim) };
        let heads = g.rope("attn_rope", turned_back);
        let groups = g.linear("attn_groups", &heads, &self.grouped_output, None);
        self.output.apply(g, "attn_out", &groups)
    }
}
