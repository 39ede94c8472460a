//! Tables that are read by ids which the device has chosen: those are there as well.

use std::sync::Arc;

use bantam_graph::{Embed, Lookup};

use super::{Compiling, Fit, Task, elementwise::each, ir::ValueId, narrow, state::words};
use crate::device::Buffer;

impl Compiling<'_> {
    pub(super) fn embed_there(&mut self, o: &Embed, out: ValueId) -> Fit<Task> {
        let ids = self.id(&o.ids)?;
        let table = self.around.weights.table(self.around.graph, &o.table)?;
        self.bound(ids, table.rows, &o.ids, &o.table)?;
        let linear = Arc::clone(self.around.linear);
        let shape = [1, table.rows, table.width];
        let matrix = linear.matrix(table.data.ty, shape, &table.data.bytes, &o.table).map_err(|e| e.to_string())?;
        let (count, width, scale) = (self.width(ids), self.width(out), o.scale);
        let kernel = self.kernel("elementwise.cu", "scale")?;
        Ok(Box::new(move |run| {
            let rows = run.rows(out);
            if rows > 0 {
                linear.embed(&matrix, run.at(ids), rows * count, run.at(out))?;
            }
            if scale == 1.0 {
                return Ok(());
            }
            let entries = rows * width;
            let launch = each(entries).arg(run.at(out)).arg(run.at(out)).arg(entries as u64);
            run.launch(kernel, &launch.arg(scale).arg(0.0_f32))
        }))
    }

    pub(super) fn lookup_there(&mut self, o: &Lookup, out: ValueId) -> Fit<Task> {
        let ids = self.id(&o.ids)?;
        let table = self.around.weights.integers(self.around.graph, &o.table)?;
        self.bound(ids, table.rows, &o.ids, &o.table)?;
        let there = Buffer::of_u32(self.around.device, &table.values, &o.table).map_err(words)?;
        let (kernel, width) = (self.kernel("elementwise.cu", "gather_rows")?, self.width(out));
        self.origins.insert(out, super::host::Origin::Chosen(table.below));
        Ok(Box::new(move |run| {
            let entries = run.rows(out) * width;
            let launch = each(entries).arg(&there).arg(run.at(out)).arg(run.at(ids));
            run.launch(kernel, &launch.arg(entries as u64).arg(narrow(width)))
        }))
    }
}
