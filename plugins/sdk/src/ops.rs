//! Ops that a plugin brings ("custom" in a graph).
//!
//! They compute rows of numbers inside the server, where its user allows it (`--allow-plugin-ops`). An op knows nothing but
//! its operands' rows, its weights, and what the graph's node tells it.

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
};

use bantam_family_api::{
    FamilyError,
    wire::{OpAnswer, OpDescription, OpRequest, WireError},
};

use crate::abi::{ANSWERED, Bytes, NO_ANSWER, bytes, give};

/// The op of one node.
pub trait RowOp: Send + Sync {
    /// Entries of a row of its result.
    fn width(&self) -> usize;

    /// Computes rows. It is called from several threads at once, and a row must come out the same, to the bit, whatever rows
    /// it comes with.
    ///
    /// # Errors
    /// The step is lost then; the server tells which op failed and goes on.
    fn run(&self, rows: &Rows<'_>, out: &mut [f32]) -> Result<(), OpFailed>;

    /// Source of the same in CUDA C++, if there is one: it defines
    /// `__device__ void bantam_op(const BantamOpRows &call, unsigned long long row)`, which computes one row. Where a model runs
    /// on a card it is compiled when the model is loaded; if it does not compile, and without it, [`RowOp::run`] is called.
    fn cuda(&self) -> Option<&str> {
        None
    }
}

/// An op could not compute its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpFailed;

/// Makes the op that a node asks for: by [`OpRequest::op`], for these widths, shapes and attributes.
pub type MakeOp = fn(&OpRequest) -> Result<Box<dyn RowOp>, FamilyError>;

/// Rows to be computed: of every operand these rows, and the weights.
#[derive(Debug)]
pub struct Rows<'a>(&'a Call);

/// `bantam_op_rows` of `bantam_plugin.h`.
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    rows: usize,
    operands: usize,
    x: *const *const f32,
    widths: *const usize,
    weights: usize,
    weight: *const *const f32,
    lengths: *const usize,
    out: *mut f32,
    width: usize,
}

impl Rows<'_> {
    /// How many.
    pub fn count(&self) -> usize {
        self.0.rows
    }

    /// The rows of an operand, one after another; empty if there is none of this number.
    pub fn x(&self, operand: usize) -> &[f32] {
        if operand >= self.0.operands {
            return &[];
        }
        // SAFETY: the host's promise: there are so many operands, each with so many rows of its width.
        unsafe { slice::from_raw_parts(*self.0.x.add(operand), self.0.rows * *self.0.widths.add(operand)) }
    }

    /// The entries of a weight; empty if there is none of this number.
    pub fn weight(&self, weight: usize) -> &[f32] {
        if weight >= self.0.weights {
            return &[];
        }
        // SAFETY: as above, for weights.
        unsafe { slice::from_raw_parts(*self.0.weight.add(weight), *self.0.lengths.add(weight)) }
    }
}

fn made(make: MakeOp, request: &[u8]) -> Result<Box<dyn RowOp>, WireError> {
    let request = OpRequest::from_slice(request).map_err(|malformed| WireError::message(malformed.to_string()))?;
    let made = catch_unwind(AssertUnwindSafe(|| make(&request)));
    Ok(made.map_err(|_| WireError::message("the plugin panicked"))??)
}

/// Says how wide the rows of an op are; 0 if it did, a refusal included.
///
/// # Safety
/// `request` is null or points to `len` bytes that nobody writes meanwhile; `answer` is null or can be written.
pub unsafe fn infer(make: MakeOp, request: *const u8, len: usize, answer: *mut Bytes) -> i32 {
    // SAFETY: the caller's promise.
    let request = unsafe { bytes(request, len) };
    let told = match made(make, request) {
        Ok(op) => OpAnswer::Op(OpDescription { width: op.width(), cuda: op.cuda().map(Into::into) }),
        Err(error) => OpAnswer::Error(error),
    };
    // SAFETY: the caller's promise.
    told.to_vec().map_or(NO_ANSWER, |told| unsafe { give(told, answer) })
}

/// Makes an op; 0 if it did.
///
/// # Safety
/// As [`infer`]; `op` is null or can be written.
pub unsafe fn open(make: MakeOp, request: *const u8, len: usize, op: *mut *mut c_void) -> i32 {
    // SAFETY: the caller's promise.
    match made(make, unsafe { bytes(request, len) }) {
        Ok(made) if !op.is_null() => {
            // SAFETY: not null, and the caller promises that it can be written.
            unsafe { op.write(Box::into_raw(Box::new(made)).cast()) };
            ANSWERED
        }
        _ => NO_ANSWER,
    }
}

/// Computes rows; 0 if it did.
///
/// # Safety
/// `op` came from [`open`], and `call` is as the header says.
pub unsafe fn run(op: *const c_void, call: *const Call) -> i32 {
    if op.is_null() || call.is_null() {
        return NO_ANSWER;
    }
    // SAFETY: the caller's promise.
    let (op, call) = unsafe { (&*op.cast::<Box<dyn RowOp>>(), &*call) };
    // SAFETY: the host's promise: the result has so many rows of this width, which are this call's alone.
    let out = unsafe { slice::from_raw_parts_mut(call.out, call.rows * call.width) };
    match catch_unwind(AssertUnwindSafe(|| op.run(&Rows(call), out))) {
        Ok(Ok(())) => ANSWERED,
        _ => NO_ANSWER,
    }
}

/// Takes an op back.
///
/// # Safety
/// `op` is null or came from [`open`], and nobody uses it any more.
pub unsafe fn close(op: *mut c_void) {
    if !ptr::eq(op, ptr::null()) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(op.cast::<Box<dyn RowOp>>()) });
    }
}
