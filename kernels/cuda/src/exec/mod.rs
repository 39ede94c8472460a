//! A step on the device: what tasks are given, and what the host prepares for them.

mod laid;

pub(crate) use laid::{Laid, Layout};

use bantam_backend::{CustomOp, CustomRows};
use bantam_graph::Rows;

use crate::{
    compile::{Plan, ir::ValueId},
    device::{Address, Device, DeviceError, Kernel, Launch},
    pages::Pool,
};

/// A step that runs.
pub(crate) struct Running<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) plan: &'a Plan,
    pub(crate) arena: Address,
    pub(crate) laid: &'a Laid,
    /// Where [`Laid`] lies on the device.
    pub(crate) step: Address,
    pub(crate) pools: &'a [Pool],
    /// Slot 0 of the graph's recurrent state.
    pub(crate) slots: Address,
    pub(crate) slot_bytes: u64,
    /// What an op from outside said when it could not compute its rows.
    pub(crate) fault: &'a std::cell::RefCell<Option<String>>,
}

impl Running<'_> {
    /// Where a value lies.
    pub(crate) fn at(&self, value: ValueId) -> Address {
        self.arena + self.plan.places.offsets[value]
    }

    /// Where a value lies, or null.
    pub(crate) fn at_or_null(&self, value: Option<ValueId>) -> Address {
        value.map_or(0, |value| self.at(value))
    }

    /// Rows of a value in this step.
    pub(crate) fn rows(&self, value: ValueId) -> usize {
        self.laid.rows(self.plan.values[value].rows)
    }

    /// What the rows of a space stand for: addresses of the index of their sequence, of their index in it (of strided rows
    /// that of the block's first token), and of the token's place among those of the step.
    pub(crate) fn row_map(&self, rows: Rows) -> [Address; 3] {
        self.laid.row_map(rows).map(|at| self.word(at))
    }

    /// Which tokens of the step the logit rows are.
    pub(crate) fn logit_rows(&self) -> Address {
        self.row_map(Rows::Logits)[2]
    }

    /// Address of a word of what the host laid out.
    pub(crate) fn word(&self, index: usize) -> Address {
        self.step + 4 * index as u64
    }

    /// Launches a kernel, unless there is nothing for it to do.
    pub(crate) fn launch(&self, kernel: Kernel, launch: &Launch) -> Result<(), DeviceError> {
        if launch.grid.contains(&0) {
            return Ok(());
        }
        self.device.launch(kernel, launch)
    }

    /// Runs an op of the host: its rows are fetched, computed, and brought back.
    pub(crate) fn on_host(
        &self,
        (node, op): (&str, &dyn CustomOp),
        x: &[ValueId],
        widths: &[usize],
        weights: &[std::sync::Arc<Vec<f32>>],
        out: ValueId,
    ) -> Result<(), DeviceError> {
        let rows = self.rows(out);
        if rows == 0 || self.fault.borrow().is_some() {
            return Ok(());
        }
        let fetch = |(x, width): (&ValueId, &usize)| {
            let mut bytes = vec![0; rows * width * 4];
            self.device.download(self.at(*x), &mut bytes)?;
            Ok(floats(&bytes))
        };
        let operands = x.iter().zip(widths).map(fetch).collect::<Result<Vec<_>, DeviceError>>()?;
        let mut result = vec![0.0; rows * self.plan.values[out].width];
        let operands: Vec<&[f32]> = operands.iter().map(Vec::as_slice).collect();
        let weights: Vec<&[f32]> = weights.iter().map(|w| w.as_slice()).collect();
        if let Err(why) = op.run(CustomRows { rows, x: &operands, weights: &weights, out: &mut result }) {
            self.fault.replace(Some(format!("node `{node}`: {why}")));
            return Ok(());
        }
        self.device.upload(self.at(out), &bytes_of(&result))
    }
}

/// Numbers of bytes, in the machine's order.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect()
}

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_ne_bytes()).collect()
}
