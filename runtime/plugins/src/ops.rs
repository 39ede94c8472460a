//! Ops that a plugin brings: the one thing of a plugin that runs in this process.
//!
//! That code is trusted like this program's own, so it is loaded only where the user allowed it. It comes through the C
//! interface of `plugins/bantam_plugin.h`: the library is opened from its private copy and stays as long as an op of it.

#![allow(unsafe_code, reason = "calling a plugin's ops through their C interface")]

use std::{
    collections::BTreeSet,
    ffi::c_void,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bantam_backend::{CustomOp, CustomOps, CustomRows};
use bantam_family_api::wire::{OpAnswer, OpRequest};
use bantam_graph::{Custom, MAX_CUSTOM_OPERANDS};
use libloading::Library;

use crate::{PluginError, copies::PrivateCopy, error::told};

/// `bantam_op_rows`.
#[repr(C)]
struct Rows {
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

/// `bantam_bytes`.
#[repr(C)]
struct Bytes {
    data: *mut u8,
    len: usize,
}

type Infer = unsafe extern "C" fn(*const u8, usize, *mut Bytes) -> i32;
type Free = unsafe extern "C" fn(*mut Bytes);
type Open = unsafe extern "C" fn(*const u8, usize, *mut *mut c_void) -> i32;
type Run = unsafe extern "C" fn(*const c_void, *const Rows) -> i32;
type Close = unsafe extern "C" fn(*mut c_void);

/// The library of a plugin whose ops may run here.
pub(crate) struct PluginOps {
    library: Arc<Functions>,
    plugin: String,
}

/// What the log was told of the ops in a file, however often it is loaded.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Ops that have failed.
    failed: Mutex<BTreeSet<String>>,
    /// Ops whose source for a card is of no use.
    refused: Mutex<BTreeSet<String>>,
}

/// The functions, and the library that they are in.
struct Functions {
    infer: Infer,
    free: Free,
    open: Open,
    run: Run,
    close: Close,
    /// Where it came from, for the log.
    file: String,
    told: Arc<Told>,
    _library: Library,
    /// The file that is mapped.
    _copy: Arc<PrivateCopy>,
}

impl PluginOps {
    /// Loads the library of the plugin of this name, from this file, into this process.
    ///
    /// # Errors
    /// If the system's loader refuses it, or it has no ops.
    pub(crate) fn load(
        copy: &Arc<PrivateCopy>,
        plugin: &str,
        file: String,
        told: Arc<Told>,
    ) -> Result<Self, PluginError> {
        // SAFETY: the library's initialisers run in this process: the user allowed the ops of plugins, which is to trust
        // their code.
        let library = unsafe { Library::new(&copy.path) }.map_err(|e| PluginError::Load(crate::error::chain(&e)))?;
        let functions = Functions {
            infer: symbol(&library, "bantam_plugin_op_infer")?,
            free: symbol(&library, "bantam_plugin_free")?,
            open: symbol(&library, "bantam_plugin_op_open")?,
            run: symbol(&library, "bantam_plugin_op_run")?,
            close: symbol(&library, "bantam_plugin_op_close")?,
            file,
            told,
            _library: library,
            _copy: Arc::clone(copy),
        };
        // Without its file: clients are shown what an op that fails is called.
        Ok(PluginOps { library: Arc::new(functions), plugin: format!("`{plugin}`") })
    }
}

/// A function of the library. `F` must be the type that the header gives it.
fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F, PluginError> {
    // SAFETY: a plugin whose function has another type than the header's breaks the interface; nothing can show it.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| PluginError::Symbol { symbol: name.into() })
}

impl CustomOps for PluginOps {
    fn make(&self, op: &Custom, widths: &[usize], weights: &[&[usize]]) -> Result<Box<dyn CustomOp>, String> {
        let request = OpRequest::new(op, widths, weights).to_vec().map_err(|e| e.to_string())?;
        let mut state = std::ptr::null_mut();
        // SAFETY: the header's signature; the request can be read and `state` written while the call lasts.
        let code = unsafe { (self.library.open)(request.as_ptr(), request.len(), &raw mut state) };
        if code != 0 {
            let (plugin, file) = (&self.plugin, &self.library.file);
            return Err(format!("the plugin {plugin} ({file}) cannot make it (bantam_plugin_op_open returned {code})"));
        }
        let (library, what) = (Arc::clone(&self.library), format!("`{}` of the plugin {}", op.op, self.plugin));
        let widths = widths.to_vec();
        let lengths = weights.iter().map(|shape| shape.iter().product()).collect();
        let cuda = library.cuda(&request);
        Ok(Box::new(PluginOp { state, library, what, widths, lengths, width: op.width, cuda }))
    }
}

/// The op of one node.
struct PluginOp {
    /// What the plugin made for it.
    state: *mut c_void,
    library: Arc<Functions>,
    what: String,
    /// Entries of a row of each operand, of each weight, and of a row of the result.
    widths: Vec<usize>,
    lengths: Vec<usize>,
    width: usize,
    /// Its own source for a card.
    cuda: Option<String>,
}

// SAFETY: the header asks of `bantam_plugin_op_run` that it may be called from several threads at once with one state, and
// of `bantam_plugin_op_close` that any thread may call it.
unsafe impl Send for PluginOp {}
// SAFETY: as above.
unsafe impl Sync for PluginOp {}

impl CustomOp for PluginOp {
    fn run(&self, rows: CustomRows<'_>) -> Result<(), String> {
        let fits = |parts: &[&[f32]], lengths: &[usize], rows: usize| {
            parts.len() == lengths.len()
                && parts.len() <= MAX_CUSTOM_OPERANDS
                && parts.iter().zip(lengths).all(|(part, length)| Some(part.len()) == length.checked_mul(rows))
        };
        let fits_out = Some(rows.out.len()) == self.width.checked_mul(rows.rows);
        if !fits(rows.x, &self.widths, rows.rows) || !fits(rows.weights, &self.lengths, 1) || !fits_out {
            return Err(format!("op {}: it was given rows of other widths than it was made for", self.what));
        }
        // What the op leaves out is no number, and is found where the logits are looked at.
        rows.out.fill(f32::NAN);
        let (x, weight) = (pointers(rows.x), pointers(rows.weights));
        let call = Rows {
            rows: rows.rows,
            operands: rows.x.len(),
            x: x.as_ptr(),
            widths: self.widths.as_ptr(),
            weights: rows.weights.len(),
            weight: weight.as_ptr(),
            lengths: self.lengths.as_ptr(),
            out: rows.out.as_mut_ptr(),
            width: self.width,
        };
        // SAFETY: every pointer stands for as many entries as the call says, which was checked, while the call lasts.
        match unsafe { (self.library.run)(self.state, &raw const call) } {
            0 => Ok(()),
            code => {
                let why = format!("op {} returned {code} instead of 0", self.what);
                self.library.tell(&self.what, &why);
                Err(why)
            }
        }
    }

    fn cuda(&self) -> Option<&str> {
        let is_refused = || self.library.is_refused(&self.what);
        self.cuda.as_deref().filter(|_| !is_refused())
    }

    fn refuse_cuda(&self, why: &str) {
        self.library.refuse_cuda(&self.what, why);
    }
}

impl Functions {
    /// The source for a card that an op has. Its width was asked before, where a fault does no harm.
    fn cuda(&self, request: &[u8]) -> Option<String> {
        let mut answer = Bytes { data: std::ptr::null_mut(), len: 0 };
        // SAFETY: the header's signature; the request can be read and `answer` written while the call lasts.
        let code = unsafe { (self.infer)(request.as_ptr(), request.len(), &raw mut answer) };
        if code != 0 || answer.data.is_null() {
            return None;
        }
        // SAFETY: the plugin says that so many bytes can be read there; its code is trusted.
        let bytes = unsafe { std::slice::from_raw_parts(answer.data, answer.len) }.to_vec();
        // SAFETY: the answer is the plugin's and was copied.
        unsafe { (self.free)(&raw mut answer) };
        match OpAnswer::from_slice(&bytes) {
            Ok(OpAnswer::Op(op)) => op.cuda,
            _ => None,
        }
    }

    fn is_refused(&self, op: &str) -> bool {
        self.told.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(op)
    }

    /// Tells the log that an op's source for a card is of no use: once, though many nodes have the op.
    fn refuse_cuda(&self, op: &str, why: &str) {
        if self.told.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(op.into()) {
            let why = told(why);
            tracing::warn!(
                "the plugin {}: the CUDA source of op {op} is not used, but its function on the host: {why}",
                self.file
            );
        }
    }

    /// Tells the log that an op has failed: once, since it will fail in every step.
    fn tell(&self, op: &str, why: &str) {
        if self.told.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(op.into()) {
            tracing::warn!("the plugin {}: {why}; requests that need it fail, and this is told once", self.file);
        }
    }
}

/// Where some runs of entries begin.
fn pointers(parts: &[&[f32]]) -> [*const f32; MAX_CUSTOM_OPERANDS] {
    let mut pointers = [std::ptr::null(); MAX_CUSTOM_OPERANDS];
    pointers.iter_mut().zip(parts).for_each(|(pointer, part)| *pointer = part.as_ptr());
    pointers
}

impl Drop for PluginOp {
    fn drop(&mut self) {
        // SAFETY: nobody else has the state, and the library is still there.
        unsafe { (self.library.close)(self.state) };
    }
}

impl fmt::Debug for PluginOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl fmt::Debug for PluginOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ops of the plugin {}", self.plugin)
    }
}
