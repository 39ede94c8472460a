//! Ops that the graph's language does not have, computed by whoever brings them.

use std::fmt::Debug;

use bantam_graph::Custom;

/// Makes such ops.
pub trait CustomOps: Debug + Send + Sync {
    /// Makes the op of a node, whose operands have rows of `widths` entries and whose weights have these shapes.
    ///
    /// # Errors
    /// An op that is not known, or what it says to its attributes.
    fn make(&self, op: &Custom, widths: &[usize], weights: &[&[usize]]) -> Result<Box<dyn CustomOp>, String>;
}

/// The op of one node.
pub trait CustomOp: Debug + Send + Sync {
    /// Computes some rows. It is called for different rows from several threads at once, and must yield the same for a row
    /// whatever rows it comes with.
    ///
    /// # Errors
    /// Why it cannot; the step is lost then, and nothing else.
    fn run(&self, rows: CustomRows<'_>) -> Result<(), String>;

    /// The source of a function that computes the same on a CUDA card, if there is one.
    fn cuda(&self) -> Option<&str> {
        None
    }

    /// Tells that this source cannot be used, and why: [`CustomOp::run`] is called instead.
    fn refuse_cuda(&self, why: &str) {
        let _ = why;
    }
}

/// Some rows, to be computed.
#[derive(Debug)]
pub struct CustomRows<'a> {
    /// How many.
    pub rows: usize,
    /// Of each operand, these rows one after another.
    pub x: &'a [&'a [f32]],
    /// The weights.
    pub weights: &'a [&'a [f32]],
    /// The rows of the result, one after another, all to be written.
    pub out: &'a mut [f32],
}
