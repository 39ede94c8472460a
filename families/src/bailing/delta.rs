//! Kimi delta attention: a delta rule whose state forgets each channel of a key at its own pace (arXiv 2510.26692).

use bantam_family_api::{FamilyError, Fields};
use bantam_family_blocks::{Convolution, LOG_DECAY, Projection, Tensors, conv_taps, extent, inverse_sqrt, number};
use bantam_graph::{Act, DeltaRule, GraphBuilder};
use serde::Serialize;

/// Added under the root of the norms of queries and keys, whatever that of the other norms is.
const HEAD_NORM_EPS: f32 = 1e-6;

/// Sizes of the layers that are no attention.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct DeltaShape {
    heads: usize,
    /// Entries of any head.
    head_dim: usize,
    /// Tokens that the convolutions see.
    taps: usize,
    /// Below 0: the most that a step's decay takes off the logarithm of the state.
    lower_bound: f32,
}

impl DeltaShape {
    /// Reads `kda.head_dim`, `kda.gate_lower_bound`, `kda.safe_gate` and `ssm.conv_kernel`.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(super) fn read(fields: &Fields<'_>, heads: usize) -> Result<Self, FamilyError> {
        const BOUND: &str = "kda.gate_lower_bound";
        const SAFE: &str = "kda.safe_gate";
        if fields.bool_opt(SAFE)? == Some(false) {
            return Err(fields.wrong(SAFE, "true: a decay within bounds", "false"));
        }
        let lower_bound = number(fields, BOUND, LOG_DECAY)?;
        Ok(DeltaShape { heads, head_dim: extent(fields, "kda.head_dim")?, taps: conv_taps(fields)?, lower_bound })
    }

    fn rows(&self) -> usize {
        self.heads.saturating_mul(self.head_dim)
    }
}

/// The weights of one layer.
pub(super) struct Delta {
    shape: DeltaShape,
    q: Convolved,
    k: Convolved,
    v: Convolved,
    /// With the bias `ssm_dt`: how fast each channel forgets.
    decay: Projection,
    /// A factor per head on that, above 0.
    decay_scale: String,
    beta: Projection,
    norm: String,
    gate: Projection,
    output: Projection,
}

/// A projection and the convolution behind it.
struct Convolved {
    projection: Projection,
    conv: Convolution,
}

impl Delta {
    /// `attn_q`, `attn_k`, `attn_v`, for each of them `ssm_conv1d_*`, and `ssm_f_a`, `ssm_dt.bias`, `ssm_a`, `ssm_beta`,
    /// `ssm_norm`, `ssm_g_a` and `attn_output`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(t: &mut Tensors<'_>, shape: DeltaShape, hidden: usize) -> Result<Self, FamilyError> {
        let (heads, rows) = (shape.heads, shape.rows());
        t.refuse("ssm_f_a", "bias")?;
        let decay_bias = t.exactly("ssm_dt.bias", &[rows])?;
        Ok(Delta {
            shape,
            q: Convolved::declare(t, "q", shape, hidden)?,
            k: Convolved::declare(t, "k", shape, hidden)?,
            v: Convolved::declare(t, "v", shape, hidden)?,
            decay: t.matrix("ssm_f_a", rows, hidden)?.with_bias(decay_bias),
            decay_scale: t.reshaped("ssm_a", &[heads, 1], &[heads])?,
            beta: t.matrix("ssm_beta", heads, hidden)?,
            norm: t.plain("ssm_norm", &[shape.head_dim])?,
            gate: t.matrix("ssm_g_a", rows, hidden)?,
            output: t.matrix("attn_output", hidden, rows)?,
        })
    }

    /// From the normed residual row to what is added to it.
    pub(super) fn apply(&self, g: &mut GraphBuilder, x: &str, norm_eps: f32) -> String {
        let DeltaShape { heads, head_dim, lower_bound, .. } = self.shape;
        let q = self.q.apply(g, "q", x);
        let k = self.k.apply(g, "k", x);
        let v = self.v.apply(g, "v", x);
        let q = g.l2_norm("q_norm", &q, HEAD_NORM_EPS, head_dim);
        let k = g.l2_norm("k_norm", &k, HEAD_NORM_EPS, head_dim);
        let beta = self.beta.apply(g, "beta_proj", x);
        let beta = g.activate("beta", &beta, Act::Sigmoid);
        let decay = self.decay.apply(g, "decay_proj", x);
        let decay = g.affine("decay_scaled", &decay, Some(&self.decay_scale), None);
        let decay = g.activate("decay_share", &decay, Act::Sigmoid);
        let decay = g.scale("decay", &decay, lower_bound);
        let state = g.recurrent("delta", &[heads, head_dim, head_dim]);
        let op = DeltaRule { q, k, v, decay, beta, state, scale: inverse_sqrt(head_dim) };
        let o = g.delta_rule("delta", op);
        let o = g.rms_norm("delta_norm", &o, Some(&self.norm), norm_eps, Some(head_dim));
        let gate = self.gate.apply(g, "delta_gate", x);
        let o = g.glu("delta_gated", &gate, &o, Act::Sigmoid);
        self.output.apply(g, "delta_out", &o)
    }
}

impl Convolved {
    fn declare(t: &mut Tensors<'_>, part: &str, shape: DeltaShape, hidden: usize) -> Result<Self, FamilyError> {
        let (channels, taps) = (shape.rows(), shape.taps);
        let projection = t.matrix(&format!("attn_{part}"), channels, hidden)?;
        let conv = format!("ssm_conv1d_{part}.weight");
        let weight = t.reshaped(&conv, &[1, channels, 1, taps], &[channels, taps])?;
        Ok(Convolved { projection, conv: Convolution { weight, bias: None, channels, taps } })
    }

    fn apply(&self, g: &mut GraphBuilder, part: &str, x: &str) -> String {
        let p = self.projection.apply(g, &format!("{part}_proj"), x);
        self.conv.apply(g, &format!("{part}_conv"), &p)
    }
}
