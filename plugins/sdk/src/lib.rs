//! For authors of model families. A family is a type that implements [`family::Family`], as the built-in ones do; with
//! [`export_family!`] its crate is a plugin that Bantam loads:
//!
//! ```
//! use bantam_plugin_sdk::{
//!     blocks::{Decoder, DecoderSizes, FfnShape, PlainAttention, PlainLayer, RopeConfig, Tensors, attention_scale},
//!     blocks::{described, plain},
//!     family::{ChatFormat, Checkpoint, Family, FamilyError, Model},
//!     graph::{GraphBuilder, Pairing},
//! };
//!
//! /// A decoder like Llama's.
//! struct Mine;
//!
//! impl Family for Mine {
//!     fn name(&self) -> &'static str {
//!         "Mine"
//!     }
//!
//!     fn architectures(&self) -> &'static [&'static str] {
//!         &["mine"]
//!     }
//!
//!     fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
//!         let fields = checkpoint.fields();
//!         let sizes = DecoderSizes::read(checkpoint)?;
//!         let rope = RopeConfig::read(&fields, Pairing::Interleaved, sizes.key_dim)?;
//!         let ffn = FfnShape::read(&fields, sizes.layers)?;
//!         let mut graph = GraphBuilder::new(&checkpoint.architecture);
//!         let mut t = Tensors::new(checkpoint, &mut graph);
//!         let layer = |t: &mut Tensors<'_>, i| PlainLayer::declare(t, &sizes, &ffn, i, false);
//!         let weights = Decoder::declare(&mut t, sizes.table(), sizes.layers, layer)?;
//!         let rope_factors = t.optional("rope_freqs", rope.dims / 2)?;
//!         let scale = attention_scale(&fields, sizes.key_dim)?;
//!         let how = PlainAttention { rope: &rope, rope_factors: rope_factors.as_deref(), scale };
//!         let logits = plain(&mut graph, &weights, sizes.norm_eps, how);
//!         let chat = ChatFormat { stop_tokens: vec!["<|im_end|>".into()], ..ChatFormat::default() };
//!         described(checkpoint, &sizes, sizes.context_length, graph.finish(&logits)?, chat)
//!     }
//! }
//!
//! bantam_plugin_sdk::export_family!(Mine);
//! # fn main() {}
//! ```
//!
//! The crate's manifest says `crate-type = ["cdylib"]`. What is exported is described in the project's `docs/plugins.md`
//! and in `plugins/bantam_plugin.h`. No Rust type crosses: a plugin may be built with any compiler.

#![allow(unsafe_code, reason = "a plugin's memory crosses to its host as pointers")]

pub mod abi;
#[cfg(not(target_family = "wasm"))]
pub mod ops;

pub use bantam_family_api as family;
pub use bantam_family_blocks as blocks;
pub use bantam_graph as graph;
pub use serde_json;

/// Makes the crate a plugin for one family: an expression of a type that implements [`family::Family`] and can be a
/// constant. The plugin's version is the crate's. `ops = MAKE` behind it adds ops of its own, which a function makes that is
/// an [`ops::MakeOp`].
#[macro_export]
macro_rules! export_family {
    ($family:expr, ops = $make:expr) => {
        $crate::export_family!($family);
        #[cfg(not(target_family = "wasm"))]
        #[allow(unsafe_code, reason = "exported functions, of which the SDK does the work")]
        const _: () = {
            #[unsafe(no_mangle)]
            unsafe extern "C" fn bantam_plugin_op_infer(
                request: *const u8,
                request_len: usize,
                answer: *mut $crate::abi::Bytes,
            ) -> i32 {
                // SAFETY: the host's promise is the same.
                unsafe { $crate::ops::infer($make, request, request_len, answer) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn bantam_plugin_op_open(
                request: *const u8,
                request_len: usize,
                op: *mut *mut ::core::ffi::c_void,
            ) -> i32 {
                // SAFETY: the host's promise is the same.
                unsafe { $crate::ops::open($make, request, request_len, op) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn bantam_plugin_op_run(
                op: *const ::core::ffi::c_void,
                call: *const $crate::ops::Call,
            ) -> i32 {
                // SAFETY: the host's promise is the same.
                unsafe { $crate::ops::run(op, call) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn bantam_plugin_op_close(op: *mut ::core::ffi::c_void) {
                // SAFETY: the host's promise is the same.
                unsafe { $crate::ops::close(op) }
            }
        };
    };
    ($family:expr) => {
        #[allow(unsafe_code, reason = "exported functions, of which the SDK does the work")]
        const _: () = {
            #[unsafe(no_mangle)]
            extern "C" fn bantam_plugin_abi() -> u32 {
                $crate::family::wire::ABI
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn bantam_plugin_describe(answer: *mut $crate::abi::Bytes) -> i32 {
                // SAFETY: the host's promise is the same.
                unsafe { $crate::abi::describe(&$family, env!("CARGO_PKG_VERSION"), answer) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn bantam_plugin_build(
                request: *const u8,
                request_len: usize,
                answer: *mut $crate::abi::Bytes,
            ) -> i32 {
                // SAFETY: the host's promise is the same.
                unsafe { $crate::abi::build(&$family, request, request_len, answer) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn bantam_plugin_free(answer: *mut $crate::abi::Bytes) {
                // SAFETY: the host's promise is the same.
                unsafe { $crate::abi::free(answer) }
            }

            #[cfg(target_family = "wasm")]
            #[unsafe(no_mangle)]
            extern "C" fn bantam_plugin_alloc(len: usize) -> *mut u8 {
                $crate::abi::alloc(len)
            }
        };
    };
}
