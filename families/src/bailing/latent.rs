//! Multi-head latent attention: one key for all heads, from which each head's key and value are made (arXiv 2405.04434),
//! and a gate per head.
//!
//! A head's key is its matrix times the latent row, so the query is multiplied by that matrix instead, and the latent row
//! is what is stored. Behind it in the same row stands the part of the key that knows positions.

use bantam_family_api::{FamilyError, Fields};
use bantam_family_blocks::{Projection, RopeConfig, Tensors, extent, extent_opt, inverse_sqrt};
use bantam_graph::{Act, Attention, GraphBuilder, Pairing, Rope, State, StateKind, StateType};
use serde::Serialize;

/// Added under the root of the norms of the latent rows, whatever that of the other norms is.
const LATENT_NORM_EPS: f32 = 1e-6;

/// Sizes of the layers that attend.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LatentShape {
    heads: usize,
    /// Entries of the row that queries are made from, if it is not the layer's input.
    query_rank: Option<usize>,
    /// Entries of the row that keys and values are made from.
    rank: usize,
    /// Entries of a query or key that know no positions.
    plain_dim: usize,
    value_dim: usize,
    /// Of the other entries of a query or key.
    rope: RopeConfig,
}

impl LatentShape {
    /// Reads `attention.q_lora_rank`, `attention.kv_lora_rank`, `attention.key_length_mla`, `attention.value_length_mla` and
    /// the rotation; `attention.key_length`, if given, must be the entries of a stored row.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(super) fn read(fields: &Fields<'_>, heads: usize) -> Result<Self, FamilyError> {
        const KEY: &str = "attention.key_length_mla";
        const ROTATED: &str = "rope.dimension_count";
        const QUERY_RANK: &str = "attention.q_lora_rank";
        const STORED: &str = "attention.key_length";
        let key_dim = extent(fields, KEY)?;
        extent(fields, ROTATED)?;
        // Checkpoints that also read images turn other pairs; of text all their axes are the one position.
        let sectioned = fields.integers_opt("rope.dimension_sections")?.is_some();
        let pairing = if sectioned { Pairing::Halves } else { Pairing::Interleaved };
        let rope = RopeConfig::read_given(fields, pairing, key_dim)?;
        let plain_dim = match key_dim.checked_sub(rope.dims) {
            None | Some(0) => {
                let expected = format!("more than the {} of {ROTATED}", rope.dims);
                return Err(fields.wrong(KEY, &expected, &key_dim.to_string()));
            }
            Some(rest) => rest,
        };
        let shape = LatentShape {
            heads,
            query_rank: match fields.usize_opt(QUERY_RANK)? {
                None | Some(0) => None,
                Some(_) => extent_opt(fields, QUERY_RANK)?,
            },
            rank: extent(fields, "attention.kv_lora_rank")?,
            plain_dim,
            value_dim: extent(fields, "attention.value_length_mla")?,
            rope,
        };
        match fields.usize_opt(STORED)? {
            Some(width) if width != shape.stored() => {
                let expected = format!("{}, kv_lora_rank and what turns", shape.stored());
                Err(fields.wrong(STORED, &expected, &width.to_string()))
            }
            _ => Ok(shape),
        }
    }

    /// Entries of a stored row.
    fn stored(&self) -> usize {
        self.rank.saturating_add(self.rope.dims)
    }

    fn query_dim(&self) -> usize {
        self.plain_dim.saturating_add(self.rope.dims)
    }

    /// Turns the last entries of rows that are stored, or meet those that are.
    fn rotated(&self, g: &mut GraphBuilder, name: &str, x: &str, positions: &str) -> String {
        let op = self.rope.op(x, positions, self.stored(), None);
        g.rope(name, Rope { offset: self.rank, ..op })
    }
}

/// The weights of one layer.
pub(super) struct Latent {
    shape: LatentShape,
    q: Queries,
    kv: Projection,
    kv_norm: String,
    /// `[heads, rank, plain_dim]`: from a query to what it is against the latent row.
    k: String,
    /// `[heads, value_dim, rank]`.
    v: String,
    gate: Projection,
    output: Projection,
}

enum Queries {
    Direct(Projection),
    ByRank { down: Projection, norm: String, up: Projection },
}

impl Latent {
    /// `attn_q`, or `attn_q_a`, `attn_q_a_norm` and `attn_q_b`; `attn_kv_a_mqa`, `attn_kv_a_norm`, `attn_k_b`, `attn_v_b`,
    /// `attn_gate` and `attn_output`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(t: &mut Tensors<'_>, shape: &LatentShape, hidden: usize) -> Result<Self, FamilyError> {
        let &LatentShape { heads, query_rank, rank, plain_dim, value_dim, .. } = shape;
        let query_rows = heads.saturating_mul(shape.query_dim());
        let q = match query_rank {
            None => Queries::Direct(t.matrix("attn_q", query_rows, hidden)?),
            Some(rank) => Queries::ByRank {
                down: t.matrix("attn_q_a", rank, hidden)?,
                norm: t.plain("attn_q_a_norm", &[rank])?,
                up: t.matrix("attn_q_b", query_rows, rank)?,
            },
        };
        Ok(Latent {
            shape: shape.clone(),
            q,
            kv: t.matrix("attn_kv_a_mqa", shape.stored(), hidden)?,
            kv_norm: t.plain("attn_kv_a_norm", &[rank])?,
            k: t.plain("attn_k_b", &[heads, rank, plain_dim])?,
            v: t.plain("attn_v_b", &[heads, value_dim, rank])?,
            gate: t.matrix("attn_gate", heads, hidden)?,
            output: t.matrix("attn_output", hidden, heads.saturating_mul(value_dim))?,
        })
    }

    /// From the normed residual row to what is added to it.
    pub(super) fn apply(&self, g: &mut GraphBuilder, x: &str, positions: &str) -> String {
        let &LatentShape { heads, rank, .. } = &self.shape;
        let q = self.queries(g, x, positions);
        let k = self.keys(g, x, positions);
        let (name, dim) = ("latent".into(), self.shape.stored());
        let k_state =
            g.state(State { name, heads: 1, dim, kind: StateKind::PerToken, dtype: StateType::Kv, alias: None });
        let scale = inverse_sqrt(self.shape.query_dim());
        let op = Attention { q, k: Some(k), k_state, value_dim: Some(rank), heads, scale, ..Attention::default() };
        let latent = g.attention("attn", op);
        let values = g.linear("attn_values", &latent, &self.v, None);
        let gate = self.gate.apply(g, "attn_gate_proj", x);
        let gate = g.activate("attn_gate", &gate, Act::Sigmoid);
        let gated = g.mul("attn_gated", &values, &gate);
        self.output.apply(g, "attn_out", &gated)
    }

    fn queries(&self, g: &mut GraphBuilder, x: &str, positions: &str) -> String {
        let LatentShape { heads, plain_dim, rope, .. } = &self.shape;
        let q = match &self.q {
            Queries::Direct(projection) => projection.apply(g, "q_proj", x),
            Queries::ByRank { down, norm, up } => {
                let q = down.apply(g, "q_latent", x);
                let q = g.rms_norm("q_latent_norm", &q, Some(norm), LATENT_NORM_EPS, None);
                up.apply(g, "q_proj", &q)
            }
        };
        let plain = g.slice("q_plain", &q, *heads, 0, *plain_dim);
        let turning = g.slice("q_turning", &q, *heads, *plain_dim, rope.dims);
        let absorbed = g.linear("q_absorbed", &plain, &self.k, None);
        let q = g.concat("q", &[&absorbed, &turning], *heads);
        self.shape.rotated(g, "q_rope", &q, positions)
    }

    fn keys(&self, g: &mut GraphBuilder, x: &str, positions: &str) -> String {
        let LatentShape { rank, rope, .. } = &self.shape;
        let kv = self.kv.apply(g, "kv_proj", x);
        let latent = g.slice("kv_latent", &kv, 1, 0, *rank);
        let latent = g.rms_norm("kv_latent_norm", &latent, Some(&self.kv_norm), LATENT_NORM_EPS, None);
        let turning = g.slice("k_turning", &kv, 1, *rank, rope.dims);
        let k = g.concat("k", &[&latent, &turning], 1);
        self.shape.rotated(g, "k_rope", &k, positions)
    }
}
