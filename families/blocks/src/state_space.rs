//! State-space scans (Mamba-2, arXiv 2405.21060): a short convolution, and a recurrence whose state forgets.

use bantam_family_api::{FamilyError, Fields};
use bantam_graph::{Act, GraphBuilder, Ssm};
use serde::Serialize;

use super::{
    config::extent,
    convolution::{Convolution, conv_taps},
    tensors::{Projection, Tensors},
};

/// Sizes of a scan.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StateSpaceShape {
    /// Entries of all heads.
    inner: usize,
    /// Heads, each with a state and a time step of its own.
    heads: usize,
    /// Heads of a group share how the operand enters the state and how the result leaves it.
    groups: usize,
    /// Entries of the state per entry of a head.
    size: usize,
    /// Tokens that the convolution sees.
    taps: usize,
}

impl StateSpaceShape {
    /// Reads `ssm.inner_size`, `ssm.time_step_rank` (heads), `ssm.group_count`, `ssm.state_size` and `ssm.conv_kernel`.
    ///
    /// # Errors
    /// The key that does not fit.
    pub fn read(fields: &Fields<'_>) -> Result<Self, FamilyError> {
        const INNER: &str = "ssm.inner_size";
        const GROUPS: &str = "ssm.group_count";
        let shape = StateSpaceShape {
            inner: extent(fields, INNER)?,
            heads: extent(fields, "ssm.time_step_rank")?,
            groups: extent(fields, GROUPS)?,
            size: extent(fields, "ssm.state_size")?,
            taps: conv_taps(fields)?,
        };
        let StateSpaceShape { inner, heads, groups, .. } = shape;
        if !inner.is_multiple_of(heads) {
            let expected = format!("a multiple of the {heads} heads of ssm.time_step_rank");
            return Err(fields.wrong(INNER, &expected, &inner.to_string()));
        }
        if !heads.is_multiple_of(groups) {
            let expected = format!("a divisor of the {heads} heads of ssm.time_step_rank");
            return Err(fields.wrong(GROUPS, &expected, &groups.to_string()));
        }
        Ok(shape)
    }

    /// Entries of `b` or `c`.
    fn side(&self) -> usize {
        self.groups.saturating_mul(self.size)
    }

    /// Entries that go through the convolution: the operand, `b` and `c`.
    fn channels(&self) -> usize {
        self.inner.saturating_add(self.side().saturating_mul(2))
    }
}

/// The weights of one layer.
#[derive(Clone, Debug)]
pub struct StateSpace {
    shape: StateSpaceShape,
    gate: Projection,
    operands: Projection,
    time_step: Projection,
    conv: Convolution,
    a: String,
    d: String,
    norm: String,
    output: Projection,
}

impl StateSpace {
    /// `ssm_in` (gate, operand, its way in and out, time step), `ssm_conv1d`, `ssm_dt.bias`, `ssm_a`, `ssm_d`, `ssm_norm` and
    /// `ssm_out`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(t: &mut Tensors<'_>, shape: StateSpaceShape, hidden: usize) -> Result<Self, FamilyError> {
        let StateSpaceShape { inner, heads, groups, taps, .. } = shape;
        let channels = shape.channels();
        t.refuse("ssm_in", "bias")?;
        let parts = [("ssm_in_gate", inner), ("ssm_in_operands", channels), ("ssm_in_time", heads)];
        let [gate, operands, time_step] = t.split_rows("ssm_in", parts, hidden)?;
        let weight = t.exactly("ssm_conv1d.weight", &[channels, taps])?;
        let bias = Some(t.exactly("ssm_conv1d.bias", &[channels])?);
        Ok(StateSpace {
            shape,
            gate,
            operands,
            time_step: time_step.with_bias(t.exactly("ssm_dt.bias", &[heads])?),
            conv: Convolution { weight, bias, channels, taps },
            a: t.reshaped("ssm_a", &[heads, 1], &[heads])?,
            d: t.reshaped("ssm_d", &[heads, 1], &[heads])?,
            norm: t.reshaped("ssm_norm.weight", &[groups, inner / groups], &[inner])?,
            output: t.matrix("ssm_out", hidden, inner)?,
        })
    }

    /// From the normed residual row to what is added to it.
    pub fn apply(&self, g: &mut GraphBuilder, x: &str, eps: f32) -> String {
        let StateSpaceShape { inner, heads, groups, size, .. } = self.shape;
        let side = self.shape.side();
        let gate = self.gate.apply(g, "ssm_gate", x);
        let operands = self.operands.apply(g, "ssm_operands", x);
        let dt = self.time_step.apply(g, "ssm_time", x);
        let dt = g.activate("ssm_dt", &dt, Act::Softplus);
        let u = self.conv.apply(g, "ssm_conv", &operands);
        let x = g.slice("ssm_x", &u, 1, 0, inner);
        let b = g.slice("ssm_b", &u, 1, inner, side);
        let c = g.slice("ssm_c", &u, 1, inner.saturating_add(side), side);
        let state = g.recurrent("ssm", &[heads, inner / heads, size]);
        let y = g.ssm("ssm", Ssm { x, b, c, dt, a: self.a.clone(), d: Some(self.d.clone()), state });
        let y = g.glu("ssm_gated", &gate, &y, Act::Silu);
        let y = g.rms_norm("ssm_norm", &y, Some(&self.norm), eps, Some(inner / groups));
        self.output.apply(g, "ssm_out", &y)
    }
}
