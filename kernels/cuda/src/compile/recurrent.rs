//! Recurrences, blocks of tokens, and the choice of keys.

use bantam_graph::{DeltaRule, Pool, Rows, ShortConv, Ssm, TopKeys};

use super::{Compiling, Fit, Task, host::Origin, ir::ValueId, narrow, scratch::Use, state::words};
use crate::{
    attention::{Keys, Rotate, Sight},
    exec::Running,
    pool::{self, Choice, PoolBlocks},
    recurrent::{self, Conv, Delta, Recurrence, Scan},
    slots::Place,
    state::State,
};

/// Bytes of scores that are held at once; queries that make more come one after another.
const SCORE_BYTES: usize = 16 << 20;

impl Running<'_> {
    /// How the step advances a recurrent state.
    fn recurrence(&self, place: &Place) -> Recurrence {
        let [from, to, accepted, tentative, from_bank, to_bank] = self.laid.recurrent.map(|at| self.word(at));
        Recurrence {
            slots: self.slots,
            slot_floats: self.slot_bytes / 4,
            from,
            to,
            accepted,
            tentative,
            from_bank,
            to_bank,
            value: place.value as u64,
            kept: place.kept as u64,
            inputs: narrow(place.inputs),
            bank_rows: narrow(place.bank_rows),
        }
    }
}

impl Compiling<'_> {
    fn place(&self, state: &str) -> Fit<Place> {
        self.around.recurrent.get(state).copied().ok_or_else(|| format!("recurrent state `{state}` has no place"))
    }

    pub(super) fn short_conv(&self, o: &ShortConv, out: ValueId) -> Fit<Task> {
        let (x, place) = (self.id(&o.x)?, self.place(&o.state)?);
        let (weight, entries) = self.vector(&o.weight)?;
        let bias = self.optional_vector(&o.bias)?.map_or(0, |bias| bias.0);
        let kernels = recurrent::ShortConv::new(self.around.device.as_ref()).map_err(words)?;
        let width = self.width(x);
        let (taps, dilation) = (narrow(entries / width), narrow(o.dilation));
        Ok(Box::new(move |run| {
            let [x, out] = [run.at(x), run.at(out)];
            let conv = Conv { x, weight, bias, out, width: narrow(width), taps, dilation };
            let step = run.step_of(Rows::Tokens);
            kernels.run(run.device, &conv, &step, &run.recurrence(&place), narrow(run.laid.most_rows))
        }))
    }

    pub(super) fn delta_rule(&self, o: &DeltaRule, out: ValueId) -> Fit<Task> {
        let place = self.place(&o.state)?;
        let operands = [&o.q, &o.k, &o.v, &o.decay, &o.beta].map(|name| self.id(name));
        let [q, k, v, decay, beta] = operands;
        let (q, k, v, decay, beta) = (q?, k?, v?, decay?, beta?);
        let shape = recurrent::delta_shape(self.checked, o, |name| self.id(name).ok().map(|id| self.width(id)));
        let shape = shape.ok_or_else(|| format!("state `{}` is not declared", o.state))?;
        let kernel = recurrent::DeltaRule::new(self.around.device.as_ref(), shape.key_dim).map_err(words)?;
        Ok(Box::new(move |run| {
            let [q, k, v, decay, beta, out] = [q, k, v, decay, beta, out].map(|value| run.at(value));
            let delta = Delta { q, k, v, decay, beta, out, ..shape };
            kernel.run(run.device, &delta, &run.step_of(Rows::Tokens), &run.recurrence(&place))
        }))
    }

    pub(super) fn ssm(&self, o: &Ssm, out: ValueId) -> Fit<Task> {
        let place = self.place(&o.state)?;
        let [x, b, c, dt] = [&o.x, &o.b, &o.c, &o.dt].map(|name| self.id(name));
        let (x, b, c, dt) = (x?, b?, c?, dt?);
        let (a, d) = (self.vector(&o.a)?.0, self.optional_vector(&o.d)?.map_or(0, |d| d.0));
        let shape = recurrent::scan_shape(self.checked, o, |name| self.id(name).ok().map(|id| self.width(id)));
        let shape = shape.ok_or_else(|| format!("state `{}` is not declared", o.state))?;
        let kernel = recurrent::Ssm::new(self.around.device.as_ref(), shape.size).map_err(words)?;
        Ok(Box::new(move |run| {
            let [x, b, c, dt, out] = [x, b, c, dt, out].map(|value| run.at(value));
            let scan = Scan { x, b, c, dt, a, d, out, ..shape };
            kernel.run(run.device, &scan, &run.step_of(Rows::Tokens), &run.recurrence(&place))
        }))
    }

    pub(super) fn pool(&self, o: &Pool, out: ValueId) -> Fit<Task> {
        let (x, gate, slot) = (self.id(&o.x)?, self.optional_id(&o.gate)?, self.slot(&o.state)?);
        let bias = self.optional_vector(&o.bias)?.map_or(0, |bias| bias.0);
        let kernels = PoolBlocks::new(self.around.device.as_ref()).map_err(words)?;
        let (width, stride, overlap) = (narrow(self.width(x)), narrow(o.stride), u32::from(o.overlap));
        let rows = self.ir.values[out].rows;
        Ok(Box::new(move |run| {
            let [x, out] = [run.at(x), run.at(out)];
            let of = pool::Pool { x, gate: run.at_or_null(gate), bias, out, width, stride, overlap };
            // The operand and its logits are one run of a row, however many heads the state has.
            let state = run.state(&slot);
            let state = State { heads: 1, dim: state.heads * state.dim, ..state };
            kernels.run(run.device, &of, (&run.step_of(Rows::Tokens), &run.step_of(rows)), &state)
        }))
    }

    pub(super) fn top_keys(&mut self, o: &TopKeys, out: ValueId) -> Fit<Task> {
        let (q, weights, slot) = (self.id(&o.q)?, self.optional_id(&o.weights)?, self.slot(&o.k_state)?);
        let sight = if self.is_alias(&o.k_state) { Sight::RowsBefore } else { Sight::Rows };
        let width = narrow(slot.ty.width(slot.dim));
        let device = self.around.device.as_ref();
        let kernels = pool::TopKeys::new(device, slot.ty, width).map_err(words)?;
        let scores = self.scratch(Use::Scores, SCORE_BYTES)?;
        let rows = self.ir.values[out].rows;
        let rotation = if slot.ty.code_bits().is_some() {
            let bytes = self.around.max.of(rows) * o.heads * width as usize * 4;
            Some((Rotate::new(device).map_err(words)?, self.scratch(Use::Queries, bytes)?))
        } else {
            None
        };
        self.origins.insert(out, Origin::TopKeys);
        let (heads, count, scale, dim) = (narrow(o.heads), narrow(o.count), o.scale, narrow(slot.dim));
        Ok(Box::new(move |run| {
            let (step, k) = (run.step_of(rows), run.state(&slot));
            let mut q = run.at(q);
            if let Some((rotate, buffer)) = &rotation {
                rotate.run(run.device, [q, buffer.address()], step.rows * heads, [dim, width])?;
                q = buffer.address();
            }
            let choice = Choice {
                q,
                weights: run.at_or_null(weights),
                scores: scores.address(),
                ids: run.at(out),
                heads,
                width,
                count,
                pitch: narrow(run.keys(&slot)),
                scale,
                ..Choice::default()
            };
            let keys = Keys { k, v: k, sight: sight as u32, ..Keys::default() };
            kernels.run(run.device, &choice, &step, &keys, scores.bytes())
        }))
    }
}
