//! Attention whose output meets a gate that is projected with the queries: each head has rows of both.

use bantam_family_api::FamilyError;
use bantam_graph::{Act, Attention, BlockSelection, GraphBuilder};

use super::{
    attention::{Attending, AttentionShape, over_own_keys, prepared},
    tensors::{Projection, Tensors},
};

/// The weights of one layer's gated attention.
#[derive(Clone, Debug)]
pub struct GatedAttention {
    shape: AttentionShape,
    /// Per head, the query's rows and behind them the gate's.
    q_gate: Projection,
    k: Projection,
    v: Projection,
    q_norm: String,
    k_norm: String,
    output: Projection,
}

impl GatedAttention {
    /// `attn_q`, `attn_k`, `attn_v` (or these fused as `attn_qkv`), `attn_q_norm`, `attn_k_norm` and `attn_output`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(t: &mut Tensors<'_>, shape: AttentionShape) -> Result<Self, FamilyError> {
        let q_rows = shape.query_rows().saturating_add(shape.attended_rows());
        let parts = [("attn_q", q_rows), ("attn_k", shape.key_rows()), ("attn_v", shape.value_rows())];
        let [q_gate, k, v] = t.split_or_fused("attn_qkv", parts, shape.hidden)?;
        Ok(GatedAttention {
            shape,
            q_gate,
            k,
            v,
            q_norm: t.plain("attn_q_norm", &[shape.key_dim])?,
            k_norm: t.plain("attn_k_norm", &[shape.key_dim])?,
            output: t.matrix("attn_output", shape.hidden, shape.attended_rows())?,
        })
    }

    /// From the normed residual row to what is added to it; of the keys only those that are selected are seen.
    pub fn apply(&self, g: &mut GraphBuilder, x: &str, how: Attending<'_>, select: Option<BlockSelection>) -> String {
        let AttentionShape { heads, key_dim, value_dim, .. } = self.shape;
        let both = self.q_gate.apply(g, "q_proj", x);
        let q = g.slice("q", &both, heads, 0, key_dim);
        let gate = g.slice("attn_gate", &both, heads, key_dim, value_dim);
        let k = self.k.apply(g, "k_proj", x);
        let v = self.v.apply(g, "v_proj", x);
        let q = prepared(g, ["q_norm", "q_rope"], q, Some(&self.q_norm), key_dim, &how);
        let k = prepared(g, ["k_norm", "k_rope"], k, Some(&self.k_norm), key_dim, &how);
        let op = Attention { select, ..over_own_keys(g, self.shape, [q, k, v], &how) };
        let attended = g.attention("attn", op);
        let gated = g.glu("attn_gated", &gate, &attended, Act::Sigmoid);
        self.output.apply(g, "attn_out", &gated)
    }
}
