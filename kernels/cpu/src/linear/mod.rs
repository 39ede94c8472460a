//! Matrix products for every weight format: few rows at the speed of memory, many at the speed of the integer units.
//!
//! A [`PackedMatrix`] holds the weights in tiles of 16 output rows, so that each vector lane is one output and nothing is
//! ever summed across lanes. Quantized weights stay as small as in the file; their integers meet activations rounded to 8
//! bits ([`quantize_row`]) in exact integer dot products. [`matmul`] multiplies a range of tiles with any number of rows
//! and allocates nothing; threads share out a matrix by tiles ([`partition`]). Or the weights stay as they lie in the file
//! ([`Packer::keep`]), and are brought into that form panel by panel whenever they are used.
//!
//! **One arithmetic per format**: on one instruction set the bits of a result depend on its weight row and its activation
//! row alone, whatever the batch, the tile range or the thread.

mod activation;
mod ahead;
mod batch;
mod codes;
mod float;
mod float_rows;
mod format;
pub mod machine;
mod matrix;
mod memory;
mod panels;
mod partition;
mod product;
mod raw;
mod scales;
mod simd;
mod strip;
mod unpack;

pub use activation::{ActivationKind, Activations, QBlock, quantize_row};
pub use batch::{Batch, MatmulError, Output};
pub use matrix::{PackError, PackedMatrix, Packer};
pub use partition::partition;
pub use product::{Scratch, matmul};
