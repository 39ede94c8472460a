//! Grouped-query attention with rotary embedding, and its variants: biases, normed heads, fused projections, windows,
//! layers without rotation, values from experts.

use bantam_family_api::{FamilyError, Fields};
use bantam_graph::{Attention, GraphBuilder, State, StateKind, StateType};

use super::{
    DecoderSizes, RopeConfig, Routing, ValueMixture,
    numbers::{SCALE_OR_ZERO, number_opt},
    tensors::{Projection, Tensors},
};

/// Sizes of the attention of one layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Entries of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Entries of a query or key head.
    pub key_dim: usize,
    /// Entries of a value head.
    pub value_dim: usize,
}

impl AttentionShape {
    /// Those of a layer.
    pub fn of(sizes: &DecoderSizes, layer: usize) -> Self {
        AttentionShape {
            hidden: sizes.hidden,
            heads: sizes.heads.at(layer),
            kv_heads: sizes.kv_heads.at(layer),
            key_dim: sizes.key_dim,
            value_dim: sizes.value_dim,
        }
    }

    /// Entries of all queries of a token.
    pub fn query_rows(&self) -> usize {
        self.heads.saturating_mul(self.key_dim)
    }

    /// Entries of all keys of a token.
    pub fn key_rows(&self) -> usize {
        self.kv_heads.saturating_mul(self.key_dim)
    }

    /// Entries of all values of a token.
    pub fn value_rows(&self) -> usize {
        self.kv_heads.saturating_mul(self.value_dim)
    }

    /// Entries that attention yields for a token.
    pub fn attended_rows(&self) -> usize {
        self.heads.saturating_mul(self.value_dim)
    }
}

/// Where values come from.
#[derive(Clone, Debug)]
enum Values {
    Projected(Projection),
    Mixed(ValueMixture),
}

/// The weights of one layer's attention.
#[derive(Clone, Debug)]
pub struct AttentionWeights {
    shape: AttentionShape,
    q: Projection,
    k: Projection,
    v: Values,
    output: Projection,
    q_norm: Option<String>,
    k_norm: Option<String>,
}

impl AttentionWeights {
    /// `attn_q`, `attn_k`, `attn_v` (or these fused as `attn_qkv`) and `attn_output`, with the biases there are.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(t: &mut Tensors<'_>, shape: AttentionShape) -> Result<Self, FamilyError> {
        let (q_rows, k_rows, v_rows) = (shape.query_rows(), shape.key_rows(), shape.value_rows());
        let parts = [("attn_q", q_rows), ("attn_k", k_rows), ("attn_v", v_rows)];
        let [q, k, v] = t.split_or_fused("attn_qkv", parts, shape.hidden)?;
        Self::assemble(t, shape, [q, k], Values::Projected(v))
    }

    /// `attn_q`, `attn_k` and `attn_output`, with the biases there are; and the experts that make the values.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn with_value_experts(
        t: &mut Tensors<'_>,
        shape: AttentionShape,
        values: Routing,
    ) -> Result<Self, FamilyError> {
        let q = t.matrix("attn_q", shape.query_rows(), shape.hidden)?;
        let k = t.matrix("attn_k", shape.key_rows(), shape.hidden)?;
        let v = ValueMixture::declare(t, values, shape.value_rows(), shape.hidden)?;
        Self::assemble(t, shape, [q, k], Values::Mixed(v))
    }

    fn assemble(
        t: &mut Tensors<'_>,
        shape: AttentionShape,
        [q, k]: [Projection; 2],
        v: Values,
    ) -> Result<Self, FamilyError> {
        let output = t.matrix("attn_output", shape.hidden, shape.attended_rows())?;
        Ok(AttentionWeights { shape, q, k, v, output, q_norm: None, k_norm: None })
    }

    /// Adds `attn_q_norm` and `attn_k_norm`, over each head before it is rotated.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn with_head_norms(mut self, t: &mut Tensors<'_>) -> Result<Self, FamilyError> {
        self.q_norm = Some(t.plain("attn_q_norm", &[self.shape.key_dim])?);
        self.k_norm = Some(t.plain("attn_k_norm", &[self.shape.key_dim])?);
        Ok(self)
    }
}

/// How a layer attends.
#[derive(Clone, Copy, Debug)]
pub struct Attending<'a> {
    /// Value of the rotary positions.
    pub positions: &'a str,
    /// Rotation of queries and keys; none: they know no positions.
    pub rope: Option<&'a RopeConfig>,
    /// Weight with a rotary divisor per pair.
    pub rope_factors: Option<&'a str>,
    /// Factor on the scores.
    pub scale: f32,
    /// Keys that a query sees, itself included; none: all before it.
    pub window: Option<usize>,
    /// Added under the root of the head norms.
    pub norm_eps: f32,
}

impl Attending<'static> {
    /// Over all keys, without positions or head norms.
    pub fn anywhere(scale: f32) -> Self {
        Attending { positions: "", rope: None, rope_factors: None, scale, window: None, norm_eps: 0.0 }
    }
}

/// Attention of one layer: from the normed residual row to what is added to it.
pub fn attention(g: &mut GraphBuilder, x: &str, w: &AttentionWeights, how: Attending<'_>) -> String {
    let heads = attended(g, x, w, how);
    attention_output(g, &heads, w)
}

/// The last step of [`attention`].
pub fn attention_output(g: &mut GraphBuilder, heads: &str, w: &AttentionWeights) -> String {
    w.output.apply(g, "attn_out", heads)
}

/// [`attention`] up to its output matrix: the heads side by side, for families that gate them.
pub fn attended(g: &mut GraphBuilder, x: &str, w: &AttentionWeights, how: Attending<'_>) -> String {
    let shape = w.shape;
    let q = w.q.apply(g, "q_proj", x);
    let k = w.k.apply(g, "k_proj", x);
    let v = match &w.v {
        Values::Projected(projection) => projection.apply(g, "v_proj", x),
        Values::Mixed(experts) => experts.apply(g, x),
    };
    let q = prepared(g, ["q_norm", "q_rope"], q, w.q_norm.as_deref(), shape.key_dim, &how);
    let k = prepared(g, ["k_norm", "k_rope"], k, w.k_norm.as_deref(), shape.key_dim, &how);
    let op = over_own_keys(g, shape, [q, k, v], &how);
    g.attention("attn", op)
}

/// Attention over keys and values that the layer stores itself.
pub(crate) fn over_own_keys(
    g: &mut GraphBuilder,
    shape: AttentionShape,
    [q, k, v]: [String; 3],
    how: &Attending<'_>,
) -> Attention {
    let [k_state, v_state] = caches(g, shape, how.window);
    Attention {
        q,
        k: Some(k),
        v: Some(v),
        k_state,
        v_state: Some(v_state),
        heads: shape.heads,
        scale: how.scale,
        window: how.window,
        ..Attention::default()
    }
}

/// Queries or keys as attention reads them: normed head by head, if there is a weight for it, and rotated.
pub fn prepared(
    g: &mut GraphBuilder,
    [norm, rope]: [&str; 2],
    mut x: String,
    weight: Option<&str>,
    dim: usize,
    how: &Attending<'_>,
) -> String {
    if weight.is_some() {
        x = g.rms_norm(norm, &x, weight, how.norm_eps, Some(dim));
    }
    match how.rope {
        Some(config) => g.rope(rope, config.op(&x, how.positions, dim, how.rope_factors)),
        None => x,
    }
}

/// The states that a layer of its own keys and values writes.
pub fn caches(g: &mut GraphBuilder, shape: AttentionShape, window: Option<usize>) -> [String; 2] {
    let kind = window.map_or(StateKind::PerToken, |len| StateKind::Window { len });
    [("k", shape.key_dim), ("v", shape.value_dim)].map(|(name, dim)| {
        let name = name.into();
        g.state(State { name, heads: shape.kv_heads, dim, kind, dtype: StateType::Kv, alias: None })
    })
}

/// Factor on the scores: `attention.scale` where it is given and not 0, else `1/√key_dim`.
///
/// # Errors
/// If the key holds no number.
pub fn attention_scale(fields: &Fields<'_>, key_dim: usize) -> Result<f32, FamilyError> {
    let explicit = number_opt(fields, "attention.scale", SCALE_OR_ZERO)?.filter(|scale| *scale != 0.0);
    Ok(explicit.unwrap_or_else(|| inverse_sqrt(key_dim)))
}

/// `1/√n`, rounded once.
pub fn inverse_sqrt(n: usize) -> f32 {
    (1.0 / (n as f64).sqrt()) as f32
}
