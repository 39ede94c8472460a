//! Keys that each stand for a block of tokens, and the indexer that chooses among those of short blocks.

use bantam_family_api::{FamilyError, Fields};
use bantam_family_blocks::{Projection, RopeConfig, Tensors, extent, inverse_sqrt};
use bantam_graph::{CompressedKeys, GraphBuilder, Pool, State, StateKind, StateType, TopKeys};
use serde::Serialize;

use super::attention::{Attending, AttentionConfig, INDEXED_BLOCK, last_turned};

/// Sizes of the indexers.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct IndexerConfig {
    heads: usize,
    key_dim: usize,
    /// Keys that a query sees, at most.
    count: usize,
}

impl IndexerConfig {
    /// Reads `attention.indexer.head_count`, `attention.indexer.key_length` and `attention.indexer.top_k`.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(super) fn read(fields: &Fields<'_>, rope: &RopeConfig) -> Result<Self, FamilyError> {
        const DIM: &str = "attention.indexer.key_length";
        let key_dim = extent(fields, DIM)?;
        if key_dim < rope.dims {
            let expected = format!("at least the {} of rope.dimension_count", rope.dims);
            return Err(fields.wrong(DIM, &expected, &key_dim.to_string()));
        }
        let heads = extent(fields, "attention.indexer.head_count")?;
        Ok(IndexerConfig { heads, key_dim, count: extent(fields, "attention.indexer.top_k")? })
    }
}

/// The keys of blocks in one layer.
#[derive(Clone, Debug)]
pub(super) struct Compressed {
    keys: Compressor,
    indexer: Option<Indexer>,
}

impl Compressed {
    /// `attn_compressor_*` and, for short blocks, `indexer.attn_q_b`, `indexer.proj` and `indexer_compressor_*`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(
        t: &mut Tensors<'_>,
        c: &AttentionConfig,
        length: usize,
        hidden: usize,
    ) -> Result<Self, FamilyError> {
        let indexer = c.indexer.filter(|_| length == INDEXED_BLOCK);
        Ok(Compressed {
            keys: Compressor::declare(t, "attn_compressor", length, c.key_dim, hidden)?,
            indexer: indexer.map(|config| Indexer::declare(t, config, length, c.query_rank, hidden)).transpose()?,
        })
    }

    /// What a query sees of them, made from the layer's normed row and the low-rank row of its queries.
    pub(super) fn apply(
        &self,
        g: &mut GraphBuilder,
        x: &str,
        low_query: &str,
        rope: &RopeConfig,
        how: Attending<'_>,
    ) -> CompressedKeys {
        let state = self.keys.apply(g, ["block_k", x], StateType::Kv, rope, how);
        let select = self.indexer.as_ref().map(|indexer| indexer.apply(g, x, low_query, rope, how));
        CompressedKeys { state, select }
    }
}

/// From tokens to a row for each block: a weighted sum per channel.
#[derive(Clone, Debug)]
struct Compressor {
    rows: Projection,
    gate: Projection,
    /// `[length, channels]`: what a token's place in its block adds to the gate.
    place: String,
    norm: String,
    length: usize,
    dim: usize,
}

impl Compressor {
    /// `NAME_kv`, `NAME_gate`, `NAME_ape` and `NAME_norm`.
    fn declare(t: &mut Tensors<'_>, name: &str, length: usize, dim: usize, hidden: usize) -> Result<Self, FamilyError> {
        let channels = if length == INDEXED_BLOCK { dim.saturating_mul(2) } else { dim };
        Ok(Compressor {
            rows: t.matrix(&format!("{name}_kv"), channels, hidden)?,
            gate: t.matrix(&format!("{name}_gate"), channels, hidden)?,
            place: t.plain(&format!("{name}_ape"), &[length, channels])?,
            norm: t.plain(&format!("{name}_norm"), &[dim])?,
            length,
            dim,
        })
    }

    /// Fills a state called NAME, and returns its full name.
    fn apply(
        &self,
        g: &mut GraphBuilder,
        [name, x]: [&str; 2],
        dtype: StateType,
        rope: &RopeConfig,
        how: Attending<'_>,
    ) -> String {
        let named = |part: &str| format!("{name}_{part}");
        let (stride, overlap) = (self.length, self.length == INDEXED_BLOCK);
        let halves = if overlap { 2 } else { 1 };
        let row = self.rows.apply(g, &named("proj"), x);
        let gate = self.gate.apply(g, &named("gate"), x);
        let open = g.state(State {
            name: named("open"),
            heads: 2,
            dim: self.dim.saturating_mul(halves),
            kind: StateKind::Window { len: stride.saturating_mul(halves) },
            dtype: StateType::F32,
            alias: None,
        });
        let bias = Some(self.place.clone());
        let pool = Pool { x: row, gate: Some(gate), bias, state: open, stride, overlap };
        let row = g.pool(&named("pool"), pool);
        let row = g.rms_norm(&named("norm"), &row, Some(&self.norm), how.norm_eps, None);
        let row = g.rope(&named("rope"), last_turned(rope, &row, how.positions.of_blocks(stride), self.dim));
        let (name, kind) = (name.into(), StateKind::Strided { stride });
        let state = g.state(State { name, heads: 1, dim: self.dim, kind, dtype, alias: None });
        g.store(&named("store"), &row, &state);
        state
    }
}

/// Scores the keys of blocks by keys of its own.
#[derive(Clone, Debug)]
struct Indexer {
    config: IndexerConfig,
    q: Projection,
    head_weights: Projection,
    keys: Compressor,
}

impl Indexer {
    fn declare(
        t: &mut Tensors<'_>,
        config: IndexerConfig,
        length: usize,
        query_rank: usize,
        hidden: usize,
    ) -> Result<Self, FamilyError> {
        let IndexerConfig { heads, key_dim, .. } = config;
        Ok(Indexer {
            config,
            q: t.matrix("indexer.attn_q_b", heads.saturating_mul(key_dim), query_rank)?,
            head_weights: t.matrix("indexer.proj", heads, hidden)?,
            keys: Compressor::declare(t, "indexer_compressor", length, key_dim, hidden)?,
        })
    }

    /// The keys that each query sees.
    fn apply(&self, g: &mut GraphBuilder, x: &str, low_query: &str, rope: &RopeConfig, how: Attending<'_>) -> String {
        let IndexerConfig { heads, key_dim, count } = self.config;
        let k_state = self.keys.apply(g, ["index_k", x], StateType::F32, rope, how);
        let q = self.q.apply(g, "index_q_proj", low_query);
        let q = g.rope("index_q_rope", last_turned(rope, &q, &how.positions.tokens, key_dim));
        let weights = Some(self.head_weights.apply(g, "index_weights", x));
        let scale = inverse_sqrt(heads.saturating_mul(key_dim));
        g.top_keys("index_keys", TopKeys { q, weights, k_state, heads, scale, count })
    }
}
