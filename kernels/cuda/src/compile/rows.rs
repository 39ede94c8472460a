//! Normalisation, rotation, and residual streams.

use std::sync::Arc;

use bantam_backend::RopeTable;
use bantam_graph::{Norm, NormKind, Pairing, Rope, StreamCollapse, StreamGates, StreamUpdate};

use super::{Compiling, Fit, Task, elementwise::each, ir::Node, ir::ValueId, narrow};
use crate::device::{Buffer, DeviceError, Launch};

/// Most threads that share a run of entries.
const NORM_THREADS: usize = 256;

/// What angles depend on.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct AngleKey {
    positions: ValueId,
    dims: usize,
    base: u32,
    scaling: String,
    factors: Option<String>,
}

impl Compiling<'_> {
    pub(super) fn norm(&self, o: &Norm, out: ValueId) -> Fit<Task> {
        let (x, width, kernel) = (self.id(&o.x)?, self.width(out), self.kernel("rows.cu", "norm_runs")?);
        let (weight, weights) = self.optional_vector(&o.weight)?.unwrap_or((0, 1));
        let group = o.group.unwrap_or(width);
        let threads = narrow(group.next_multiple_of(32).min(NORM_THREADS));
        let (mean, eps) = (u32::from(o.kind == NormKind::Rms), o.eps);
        Ok(Box::new(move |run| {
            let runs = narrow(run.rows(out) * (width / group));
            let launch = Launch::new([runs, 1, 1], threads).arg(run.at(x)).arg(run.at(out)).arg(weight);
            run.launch(kernel, &launch.arg(narrow(weights)).arg(narrow(group)).arg(mean).arg(eps))
        }))
    }

    pub(super) fn rope(&mut self, o: &Rope, out: ValueId) -> Fit<Task> {
        let (x, turn) = (self.id(&o.x)?, self.kernel("rows.cu", "rope")?);
        let (angles, make) = self.angles(o, out)?;
        let (width, head_dim, pairs) = (self.width(out), o.head_dim, narrow(o.dims / 2));
        let (first, step, far) = match o.pairing {
            Pairing::Interleaved => (o.offset, 2, 1),
            Pairing::Halves => (o.offset, 1, o.dims / 2),
            Pairing::HeadHalves => (0, 1, head_dim / 2),
        };
        let direction = if o.inverse { -1.0_f32 } else { 1.0 };
        Ok(Box::new(move |run| {
            if let Some(make) = &make {
                make(run)?;
            }
            let rows = run.rows(out);
            let heads = width / head_dim;
            let launch = each(rows * width).arg(run.at(x)).arg(run.at(out)).arg(angles.as_ref());
            let launch = launch.arg((rows * heads) as u64).arg(narrow(heads)).arg(narrow(head_dim));
            let launch = launch.arg(narrow(first)).arg(pairs).arg(step).arg(narrow(far)).arg(direction);
            run.launch(turn, &launch)
        }))
    }

    /// Where the angles of a rope lie, and what computes them if no rope before it has the same.
    fn angles(&mut self, o: &Rope, out: ValueId) -> Fit<(Arc<Buffer>, Option<Task>)> {
        let positions = self.id(&o.positions)?;
        let key = AngleKey {
            positions,
            dims: o.dims,
            base: o.base.to_bits(),
            scaling: format!("{:?}", o.scaling),
            factors: o.factors.clone(),
        };
        if let Some(angles) = self.angles.get(&key) {
            return Ok((Arc::clone(angles), None));
        }
        let factors = o.factors.as_deref().map(|name| self.host_vector(name)).transpose()?;
        let table = RopeTable::new(o.dims, o.base, o.scaling.as_ref(), factors.as_ref().map(|f| f.as_slice()));
        let device = self.around.device;
        let failed = |e: DeviceError| e.to_string();
        let frequencies = Buffer::of_f32(device, &table.frequencies, "rotary frequencies").map_err(failed)?;
        let bytes = self.around.max.of(self.ir.values[out].rows).saturating_mul(o.dims).saturating_mul(4);
        let angles = Arc::new(Buffer::new(device, bytes, "rotary angles").map_err(failed)?);
        self.angles.insert(key, Arc::clone(&angles));
        let (kernel, pairs, magnitude) = (self.kernel("rows.cu", "angles")?, narrow(o.dims / 2), table.magnitude);
        let there = Arc::clone(&angles);
        let make: Task = Box::new(move |run| {
            let rows = run.rows(out);
            let launch = each(rows * pairs as usize).arg(run.at(positions)).arg(there.as_ref()).arg(narrow(rows));
            run.launch(kernel, &launch.arg(&frequencies).arg(pairs).arg(magnitude))
        });
        Ok((angles, Some(make)))
    }

    pub(super) fn stream_gates(&self, node: &Node, o: &StreamGates) -> Fit<Task> {
        let (x, kernel) = (self.id(&o.x)?, self.kernel("streams.cu", "stream_gates")?);
        let (scale, base) = (self.vector(&o.scale)?.0, self.vector(&o.base)?.0);
        let [pre, post, mix] = node.results[..] else { return Err("it yields three values".into()) };
        let (streams, iterations, eps) = (narrow(o.streams), o.iterations, o.eps);
        Ok(Box::new(move |run| {
            let rows = run.rows(pre);
            let launch = each(rows).arg(run.at(x)).arg(run.at(pre)).arg(run.at(post)).arg(run.at(mix));
            let launch = launch.arg(narrow(rows)).arg(scale).arg(base);
            run.launch(kernel, &launch.arg(streams).arg(iterations).arg(eps))
        }))
    }

    pub(super) fn stream_collapse(&self, o: &StreamCollapse, out: ValueId) -> Fit<Task> {
        let (x, weights) = (self.id(&o.x)?, self.optional_id(&o.weights)?);
        let kernel = self.kernel("streams.cu", "stream_collapse")?;
        let (width, streams) = (self.width(out), narrow(o.streams));
        let count = weights.map_or(0, |weights| narrow(self.width(weights)));
        Ok(Box::new(move |run| {
            let entries = run.rows(out) * width;
            let launch = each(entries).arg(run.at(x)).arg(run.at(out)).arg(entries as u64).arg(narrow(width));
            run.launch(kernel, &launch.arg(streams).arg(run.at_or_null(weights)).arg(count))
        }))
    }

    pub(super) fn stream_update(&self, o: &StreamUpdate, out: ValueId) -> Fit<Task> {
        let (y, post) = (self.id(&o.y)?, self.id(&o.post)?);
        let (x, mix) = (self.optional_id(&o.x)?, self.optional_id(&o.mix)?);
        let kernel = self.kernel("streams.cu", "stream_update")?;
        let (width, streams) = (self.width(y), self.width(post));
        Ok(Box::new(move |run| {
            let entries = run.rows(out) * width * streams;
            let launch = each(entries).arg(run.at_or_null(x)).arg(run.at(y)).arg(run.at(post));
            let launch = launch.arg(run.at_or_null(mix)).arg(run.at(out)).arg(entries as u64);
            run.launch(kernel, &launch.arg(narrow(width)).arg(narrow(streams)))
        }))
    }
}
