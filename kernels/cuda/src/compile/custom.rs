//! Ops from outside of this program on the card: their own kernel where there is one that compiles, else the host's function.

use std::sync::Arc;

use bantam_backend::CustomOp;
use bantam_graph::{Custom, MAX_CUSTOM_OPERANDS};

use super::{Compiling, Fit, Task, ir::ValueId, narrow};
use crate::{
    device::{Address, Argument, Kernel, Launch, Writer},
    source::Unit,
};

/// What stands before an op's own source: the numbers that kernel files have, and what a call is.
const BEFORE: &str = "#include \"common.cuh\"
struct BantamOpRows {
    const float *x[8];
    const float *weight[8];
    float *out;
    u64 rows;
    u64 lengths[8];
    u32 widths[8];
    u32 operands;
    u32 weights;
    u32 width;
    u32 reserved;
};
";

/// What stands behind it: the kernel, of which each block computes one row.
const BEHIND: &str = "
KERNEL custom_op(const BantamOpRows call) { bantam_op(call, blockIdx.x); }
";

const FILE: &str = "op.cu";
const KERNEL: &str = "custom_op";

/// Threads of a block, as authors are told.
const THREADS: u32 = 256;

const MOST: usize = MAX_CUSTOM_OPERANDS;

/// `BantamOpRows`.
#[derive(Clone, Debug, Default)]
struct Call {
    x: [Address; MOST],
    weight: [Address; MOST],
    out: Address,
    rows: u64,
    lengths: [u64; MOST],
    widths: [u32; MOST],
    operands: u32,
    weights: u32,
    width: u32,
}

impl Argument for &Call {
    fn write(&self, out: &mut Writer<'_>) {
        let words = self.x.iter().chain(&self.weight).chain([&self.out, &self.rows]).chain(&self.lengths);
        words.for_each(|word| word.write(out));
        self.widths.iter().chain([&self.operands, &self.weights, &self.width, &0]).for_each(|n| n.write(out));
    }
}

impl Compiling<'_> {
    /// An op from outside.
    pub(super) fn custom(&self, node: &str, o: &Custom, out: ValueId) -> Fit<Task> {
        let ops = self.around.ops;
        let ops = ops.ok_or_else(|| format!("op `{}` is a plugin's, and no such ops are allowed here", o.op))?;
        let x = o.x.iter().map(|name| self.id(name)).collect::<Fit<Vec<_>>>()?;
        let widths: Vec<usize> = x.iter().map(|x| self.width(*x)).collect();
        let shapes = o.weights.iter().filter_map(|name| Some(self.checked.weight(name)?.shape.as_slice()));
        let shapes: Vec<&[usize]> = shapes.collect();
        let op = ops.make(o, &widths, &shapes).map_err(|why| format!("op `{}`: {why}", o.op))?;
        if let Some(kernel) = self.own_kernel(&o.op, op.as_ref()) {
            return self.on_card(kernel, o, x, &widths, out);
        }
        let weights = o.weights.iter().map(|name| self.host_vector(name)).collect::<Fit<Vec<_>>>()?;
        let node = node.to_owned();
        Ok(Box::new(move |run| run.on_host((&node, op.as_ref()), &x, &widths, &weights, out)))
    }

    /// The kernel that an op brings. Where it does not compile, whoever brings it is told, and the host's function is taken.
    fn own_kernel(&self, name: &str, op: &dyn CustomOp) -> Option<Kernel> {
        let source = op.cuda()?;
        let text: Arc<str> = format!("{BEFORE}#line 1 \"op {name}\"\n{source}{BEHIND}").into();
        let kernel = self.around.device.kernel(&Unit::of_text(FILE, text), KERNEL);
        kernel.map_err(|why| op.refuse_cuda(&why.to_string())).ok()
    }

    fn on_card(&self, kernel: Kernel, o: &Custom, x: Vec<ValueId>, widths: &[usize], out: ValueId) -> Fit<Task> {
        let width = self.width(out);
        let mut call = Call { operands: narrow(x.len()), width: narrow(width), ..Call::default() };
        call.widths.iter_mut().zip(widths).for_each(|(to, width)| *to = narrow(*width));
        for (i, name) in o.weights.iter().enumerate().take(MOST) {
            let (address, length) = self.vector(name)?;
            (call.weight[i], call.lengths[i]) = (address, length as u64);
            call.weights += 1;
        }
        Ok(Box::new(move |run| {
            let rows = run.rows(out);
            if rows == 0 {
                return Ok(());
            }
            // What the op leaves out is no number, and is found where the logits are looked at.
            run.device.fill(run.at(out), u8::MAX, rows * width * size_of::<f32>())?;
            let mut call = Call { out: run.at(out), rows: rows as u64, ..call.clone() };
            call.x.iter_mut().zip(&x).for_each(|(to, x)| *to = run.at(*x));
            run.launch(kernel, &Launch::new([narrow(rows), 1, 1], THREADS).arg(&call))
        }))
    }
}
