//! Gated DeltaNet: a short convolution, and linear attention whose state forgets and is corrected (arXiv 2412.06464).

use bantam_family_api::{FamilyError, Fields};
use bantam_graph::{Act, DeltaRule, GraphBuilder};
use serde::Serialize;

use super::{
    attention::inverse_sqrt,
    config::extent,
    convolution::{Convolution, conv_taps},
    tensors::{Projection, Tensors},
};

/// Added under the root of the norms of queries and keys, whatever that of the other norms is.
const HEAD_NORM_EPS: f32 = 1e-6;

/// Sizes of the layers that are no attention.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DeltaNetShape {
    /// Tokens that the convolution sees.
    taps: usize,
    /// Heads of queries and keys.
    key_heads: usize,
    /// Heads of values; value head `j` meets key head `j mod key_heads`.
    value_heads: usize,
    /// Entries of any head.
    head_dim: usize,
}

impl DeltaNetShape {
    /// Reads `ssm.conv_kernel`, `ssm.group_count`, `ssm.time_step_rank` and `ssm.state_size`; `ssm.inner_size` must agree.
    ///
    /// # Errors
    /// The key that does not fit.
    pub fn read(fields: &Fields<'_>) -> Result<Self, FamilyError> {
        let shape = DeltaNetShape {
            taps: conv_taps(fields)?,
            key_heads: extent(fields, "ssm.group_count")?,
            value_heads: extent(fields, "ssm.time_step_rank")?,
            head_dim: extent(fields, "ssm.state_size")?,
        };
        let DeltaNetShape { key_heads, value_heads, head_dim, .. } = shape;
        if !value_heads.is_multiple_of(key_heads) {
            let expected = format!("a multiple of the {key_heads} of ssm.group_count");
            return Err(fields.wrong("ssm.time_step_rank", &expected, &value_heads.to_string()));
        }
        match fields.usize_opt("ssm.inner_size")? {
            Some(inner) if inner != shape.value_rows() => {
                let expected = format!("{value_heads} heads of {head_dim}");
                Err(fields.wrong("ssm.inner_size", &expected, &inner.to_string()))
            }
            _ => Ok(shape),
        }
    }

    fn key_rows(&self) -> usize {
        self.key_heads.saturating_mul(self.head_dim)
    }

    fn value_rows(&self) -> usize {
        self.value_heads.saturating_mul(self.head_dim)
    }

    /// Entries that go through the convolution: queries, keys, values.
    fn channels(&self) -> usize {
        self.key_rows().saturating_mul(2).saturating_add(self.value_rows())
    }
}

/// The weights of one layer.
#[derive(Clone, Debug)]
pub struct DeltaNet {
    shape: DeltaNetShape,
    qkv: Projection,
    conv: Convolution,
    beta: Projection,
    /// With the bias `ssm_dt`: how much time passes for the state.
    time_step: Projection,
    /// Below 0: how fast each head forgets.
    decay: String,
    norm: String,
    gate: Projection,
    output: Projection,
}

impl DeltaNet {
    /// `attn_qkv`, `ssm_conv1d`, `ssm_beta`, `ssm_alpha`, `ssm_dt.bias`, `ssm_a`, `ssm_norm`, `attn_gate` and `ssm_out`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(t: &mut Tensors<'_>, shape: DeltaNetShape, hidden: usize) -> Result<Self, FamilyError> {
        t.refuse("ssm_alpha", "bias")?;
        let time_bias = t.exactly("ssm_dt.bias", &[shape.value_heads])?;
        let (channels, taps) = (shape.channels(), shape.taps);
        let weight = t.plain("ssm_conv1d", &[channels, taps])?;
        Ok(DeltaNet {
            shape,
            qkv: t.matrix("attn_qkv", shape.channels(), hidden)?,
            conv: Convolution { weight, bias: None, channels, taps },
            beta: t.matrix("ssm_beta", shape.value_heads, hidden)?,
            time_step: t.matrix("ssm_alpha", shape.value_heads, hidden)?.with_bias(time_bias),
            decay: t.exactly("ssm_a", &[shape.value_heads])?,
            norm: t.plain("ssm_norm", &[shape.head_dim])?,
            gate: t.matrix("attn_gate", shape.value_rows(), hidden)?,
            output: t.matrix("ssm_out", hidden, shape.value_rows())?,
        })
    }

    /// From the normed residual row to what is added to it; `gate_act` is the function on the output gate.
    pub fn apply(&self, g: &mut GraphBuilder, x: &str, gate_act: Act, norm_eps: f32) -> String {
        let [q, k, v] = self.convolved(g, x);
        let beta = self.beta.apply(g, "beta_proj", x);
        let beta = g.activate("beta", &beta, Act::Sigmoid);
        let time = self.time_step.apply(g, "time_proj", x);
        let time = g.activate("time", &time, Act::Softplus);
        let decay = g.affine("decay", &time, Some(&self.decay), None);
        let DeltaNetShape { value_heads, head_dim, .. } = self.shape;
        let state = g.recurrent("delta", &[value_heads, head_dim, head_dim]);
        let scale = inverse_sqrt(head_dim);
        let heads = g.delta_rule("delta", DeltaRule { q, k, v, decay, beta, state, scale });
        let heads = g.rms_norm("delta_norm", &heads, Some(&self.norm), norm_eps, Some(head_dim));
        let gate = self.gate.apply(g, "delta_gate", x);
        let heads = g.glu("delta_gated", &gate, &heads, gate_act);
        self.output.apply(g, "delta_out", &heads)
    }

    fn convolved(&self, g: &mut GraphBuilder, x: &str) -> [String; 3] {
        let (head_dim, keys, values) = (self.shape.head_dim, self.shape.key_rows(), self.shape.value_rows());
        let qkv = self.qkv.apply(g, "qkv_proj", x);
        let c = self.conv.apply(g, "conv", &qkv);
        let q = g.slice("q", &c, 1, 0, keys);
        let k = g.slice("k", &c, 1, keys, keys);
        let v = g.slice("v", &c, 1, keys.saturating_mul(2), values);
        [g.l2_norm("q_norm", &q, HEAD_NORM_EPS, head_dim), g.l2_norm("k_norm", &k, HEAD_NORM_EPS, head_dim), v]
    }
}
