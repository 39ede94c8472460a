//! Which blocks of tokens attention sees: a small attention of its own scores the mean keys of blocks.

use bantam_family_api::{Checkpoint, FamilyError};
use bantam_family_blocks::{Positions, Projection, RopeConfig, Tensors, extent, inverse_sqrt};
use bantam_graph::{BlockSelection, GraphBuilder, Pool, State, StateKind, StateType, TopKeys};
use serde::Serialize;

/// Tokens of a block where the checkpoint has indexers and says 0 for every layer: converters that did not know how the
/// layers are spelled wrote that.
const USUAL_BLOCK: usize = 4;

/// Sizes of the indexers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct IndexerConfig {
    heads: usize,
    head_dim: usize,
    /// Tokens that a query sees in the blocks that are chosen for it, at most.
    budget: usize,
    /// Tokens of a block, per layer; 0: the layer has no indexer.
    block: Vec<usize>,
}

impl IndexerConfig {
    /// Reads `attention.compress_ratios`, and unless no layer has an indexer `attention.indexer.head_count`,
    /// `attention.indexer.key_length` and `attention.indexer.top_k`.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(super) fn read(checkpoint: &Checkpoint, layers: usize, rope: &RopeConfig) -> Result<Option<Self>, FamilyError> {
        const RATIOS: &str = "attention.compress_ratios";
        const BUDGET: &str = "attention.indexer.top_k";
        const DIM: &str = "attention.indexer.key_length";
        let fields = checkpoint.fields();
        let mut block = fields.per_layer(RATIOS, layers)?.unwrap_or_else(|| vec![0; layers]);
        if block.iter().all(|tokens| *tokens == 0) {
            if !checkpoint.tensors.keys().any(|tensor| tensor.contains(".indexer.")) {
                return Ok(None);
            }
            block.fill(USUAL_BLOCK);
        }
        let head_dim = extent(&fields, DIM)?;
        if head_dim < rope.dims {
            let expected = format!("at least the {} of rope.dimension_count", rope.dims);
            return Err(fields.wrong(DIM, &expected, &head_dim.to_string()));
        }
        let budget = extent(&fields, BUDGET)?;
        if let Some(tokens) = block.iter().find(|tokens| **tokens > budget) {
            let expected = format!("at most the {budget} of {BUDGET}");
            return Err(fields.wrong(RATIOS, &expected, &tokens.to_string()));
        }
        Ok(Some(IndexerConfig { heads: extent(&fields, "attention.indexer.head_count")?, head_dim, budget, block }))
    }

    /// Tokens of a block of this layer, if it has an indexer.
    pub(super) fn block(&self, layer: usize) -> Option<usize> {
        self.block.get(layer).copied().filter(|tokens| *tokens > 0)
    }
}

/// The weights of one layer's indexer.
#[derive(Clone, Debug)]
pub(super) struct Indexer {
    heads: usize,
    head_dim: usize,
    budget: usize,
    block: usize,
    q: Projection,
    q_norm: String,
    k: Projection,
    k_norm: String,
}

impl Indexer {
    /// `indexer.q_proj`, `indexer.k_proj`, `indexer.q_norm` and `indexer.k_norm`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(
        t: &mut Tensors<'_>,
        config: &IndexerConfig,
        block: usize,
        hidden: usize,
    ) -> Result<Self, FamilyError> {
        let &IndexerConfig { heads, head_dim, budget, .. } = config;
        Ok(Indexer {
            heads,
            head_dim,
            budget,
            block,
            q: t.matrix("indexer.q_proj", heads.saturating_mul(head_dim), hidden)?,
            q_norm: t.plain("indexer.q_norm", &[head_dim])?,
            k: t.matrix("indexer.k_proj", head_dim, hidden)?,
            k_norm: t.plain("indexer.k_norm", &[head_dim])?,
        })
    }

    /// The blocks that each query of the layer's input `x` sees.
    pub(super) fn apply(
        &self,
        g: &mut GraphBuilder,
        x: &str,
        rope: &RopeConfig,
        positions: &Positions,
        norm_eps: f32,
    ) -> BlockSelection {
        let k_state = self.stored_keys(g, x, rope, positions, norm_eps);
        let q = self.q.apply(g, "index_q_proj", x);
        let q = g.rms_norm("index_q_norm", &q, Some(&self.q_norm), norm_eps, Some(self.head_dim));
        let q = g.rope("index_q_rope", rope.op(&q, &positions.tokens, self.head_dim, None));
        let (heads, scale, count) = (self.heads, inverse_sqrt(self.head_dim), self.budget / self.block.max(1));
        let ids = g.top_keys("index_blocks", TopKeys { q, weights: None, k_state, heads, scale, count });
        BlockSelection { ids, block: self.block }
    }

    /// The state of keys, one for each complete block.
    fn stored_keys(
        &self,
        g: &mut GraphBuilder,
        x: &str,
        rope: &RopeConfig,
        positions: &Positions,
        norm_eps: f32,
    ) -> String {
        let stride = self.block;
        let mut state = |name: &str, kind| {
            let (name, dtype) = (name.into(), StateType::F32);
            g.state(State { name, heads: 1, dim: self.head_dim, kind, dtype, alias: None })
        };
        let open = state("index_open", StateKind::Window { len: stride });
        let keys = state("index_k", StateKind::Strided { stride });
        let k = self.k.apply(g, "index_k_proj", x);
        let k = g.pool("index_k_mean", Pool { x: k, gate: None, bias: None, state: open, stride, overlap: false });
        let k = g.rms_norm("index_k_norm", &k, Some(&self.k_norm), norm_eps, None);
        let k = g.rope("index_k_rope", rope.op(&k, positions.of_blocks(stride), self.head_dim, None));
        g.store("index_k_store", &k, &keys);
        keys
    }
}
