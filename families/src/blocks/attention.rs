//! Grouped-query attention with rotary embedding, and its variants: biases, normed heads, fused projections, windows.

use bantam_family_api::{FamilyError, Fields};
use bantam_graph::{Attention, GraphBuilder, State, StateKind, StateType};

use super::{DecoderSizes, RopeConfig, tensors::Projection, tensors::Tensors};

/// Sizes of the attention of one layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionShape {
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    key_dim: usize,
    value_dim: usize,
}

impl AttentionShape {
    /// Those of a layer.
    pub(crate) fn of(sizes: &DecoderSizes, layer: usize) -> Self {
        AttentionShape {
            hidden: sizes.hidden,
            heads: sizes.heads,
            kv_heads: sizes.kv_heads.at(layer),
            key_dim: sizes.key_dim,
            value_dim: sizes.value_dim,
        }
    }
}

/// The weights of one layer's attention.
#[derive(Clone, Debug)]
pub(crate) struct AttentionWeights {
    shape: AttentionShape,
    q: Projection,
    k: Projection,
    v: Projection,
    output: Projection,
    q_norm: Option<String>,
    k_norm: Option<String>,
}

impl AttentionWeights {
    /// `attn_q`, `attn_k`, `attn_v` (or these fused as `attn_qkv`) and `attn_output`, with the biases there are.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(crate) fn declare(t: &mut Tensors<'_>, shape: AttentionShape) -> Result<Self, FamilyError> {
        let q_rows = shape.heads.saturating_mul(shape.key_dim);
        let k_rows = shape.kv_heads.saturating_mul(shape.key_dim);
        let v_rows = shape.kv_heads.saturating_mul(shape.value_dim);
        let [q, k, v] = if t.has("attn_qkv") {
            t.split_rows("attn_qkv", [("attn_q", q_rows), ("attn_k", k_rows), ("attn_v", v_rows)], shape.hidden)?
        } else {
            [
                t.matrix("attn_q", q_rows, shape.hidden)?,
                t.matrix("attn_k", k_rows, shape.hidden)?,
                t.matrix("attn_v", v_rows, shape.hidden)?,
            ]
        };
        let output = t.matrix("attn_output", shape.hidden, shape.heads.saturating_mul(shape.value_dim))?;
        Ok(AttentionWeights { shape, q, k, v, output, q_norm: None, k_norm: None })
    }

    /// Adds `attn_q_norm` and `attn_k_norm`, over each head before it is rotated.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(crate) fn with_head_norms(mut self, t: &mut Tensors<'_>) -> Result<Self, FamilyError> {
        self.q_norm = Some(t.plain("attn_q_norm", &[self.shape.key_dim])?);
        self.k_norm = Some(t.plain("attn_k_norm", &[self.shape.key_dim])?);
        Ok(self)
    }
}

/// How a layer attends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attending<'a> {
    /// Value of the rotary positions.
    pub(crate) positions: &'a str,
    /// Rotation of queries and keys.
    pub(crate) rope: &'a RopeConfig,
    /// Weight with a rotary divisor per pair.
    pub(crate) rope_factors: Option<&'a str>,
    /// Factor on the scores.
    pub(crate) scale: f32,
    /// Keys that a query sees, itself included; none: all before it.
    pub(crate) window: Option<usize>,
    /// Added under the root of the head norms.
    pub(crate) norm_eps: f32,
}

/// Attention of one layer: from the normed residual row to what is added to it.
pub(crate) fn attention(g: &mut GraphBuilder, x: &str, w: &AttentionWeights, how: Attending<'_>) -> String {
    let shape = w.shape;
    let q = w.q.apply(g, "q_proj", x);
    let k = w.k.apply(g, "k_proj", x);
    let v = w.v.apply(g, "v_proj", x);
    let q = head_norm(g, "q_norm", q, w.q_norm.as_deref(), shape.key_dim, how.norm_eps);
    let k = head_norm(g, "k_norm", k, w.k_norm.as_deref(), shape.key_dim, how.norm_eps);
    let q = g.rope("q_rope", how.rope.op(&q, how.positions, shape.key_dim, how.rope_factors));
    let k = g.rope("k_rope", how.rope.op(&k, how.positions, shape.key_dim, how.rope_factors));
    let k_state = cache(g, "k", shape.kv_heads, shape.key_dim, how.window);
    let v_state = cache(g, "v", shape.kv_heads, shape.value_dim, how.window);
    let op = Attention {
        q,
        k: Some(k),
        v: Some(v),
        k_state,
        v_state: Some(v_state),
        heads: shape.heads,
        scale: how.scale,
        window: how.window,
        ..Attention::default()
    };
    let heads = g.attention("attn", op);
    w.output.apply(g, "attn_out", &heads)
}

fn head_norm(g: &mut GraphBuilder, name: &str, x: String, weight: Option<&str>, dim: usize, eps: f32) -> String {
    match weight {
        Some(weight) => g.rms_norm(name, &x, Some(weight), eps, Some(dim)),
        None => x,
    }
}

fn cache(g: &mut GraphBuilder, name: &str, heads: usize, dim: usize, window: Option<usize>) -> String {
    let kind = window.map_or(StateKind::PerToken, |len| StateKind::Window { len });
    g.state(State { name: name.into(), heads, dim, kind, dtype: StateType::Kv, alias: None })
}

/// Factor on the scores: `attention.scale` where it is given and not 0, else `1/√key_dim`.
///
/// # Errors
/// If the key holds no number.
pub(crate) fn attention_scale(fields: &Fields<'_>, key_dim: usize) -> Result<f32, FamilyError> {
    let explicit = fields.f32_opt("attention.scale")?.filter(|scale| *scale != 0.0);
    Ok(explicit.unwrap_or_else(|| inverse_sqrt(key_dim)))
}

/// `1/√n`, rounded once.
fn inverse_sqrt(n: usize) -> f32 {
    (1.0 / (n as f64).sqrt()) as f32
}
