//! Weight matrices, repacked for the kernels.

use super::activation::ActivationKind;
use super::float;
use super::format::{self, Layout, with_format};
use super::memory::{Arena, Buffer};
use super::raw::{is_larger_packed, is_never_packed};
use super::simd::LANES;
use crate::isa::Isa;
use bantam_gguf::GgmlType;
use rayon::prelude::*;

/// Why a matrix cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// The format is none of weights.
    #[error("{ty} is no format for weight matrices")]
    Format {
        /// The format.
        ty: GgmlType,
    },
    /// Rows are no whole number of blocks.
    #[error("{ty}: rows of {cols} weights are no whole number of blocks of {}", .ty.block_len())]
    Cols {
        /// The format.
        ty: GgmlType,
        /// Weights in a row.
        cols: usize,
    },
    /// The bytes are not those of the shape.
    #[error("{ty}: {matrices} x {rows} x {cols} weights take {expected} bytes, found {found}")]
    Bytes {
        /// The format.
        ty: GgmlType,
        /// Matrices in the stack.
        matrices: usize,
        /// Rows of each.
        rows: usize,
        /// Weights in a row.
        cols: usize,
        /// Bytes that the shape takes; `usize::MAX` where that is beyond counting.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// There is no memory for the packed form.
    #[error("no memory for {bytes} bytes of packed weights")]
    Memory {
        /// Bytes needed.
        bytes: usize,
    },
    /// The instruction set is missing on this machine.
    #[error("this machine has no {} instructions; unset BANTAM_ISA or choose another", .isa.name())]
    Isa {
        /// The path asked for.
        isa: Isa,
    },
}

/// A matrix, or a stack of matrices of one shape (the experts of a layer), in tiles of 16 rows.
///
/// The last tile of each matrix is filled up with rows of zeros. The layout is the same for every instruction set.
pub struct PackedMatrix {
    ty: GgmlType,
    matrices: usize,
    rows: usize,
    cols: usize,
    isa: Isa,
    raw: bool,
    tile_bytes: usize,
    data: Buffer,
}

impl std::fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ty, matrices, rows, cols, isa, .. } = self;
        write!(f, "PackedMatrix({ty}, {matrices} x {rows} x {cols}, {})", isa.name())
    }
}

/// Packs the weights of a model, into memory that they share.
pub struct Packer {
    arena: Arena,
    isa: Isa,
    compact: bool,
}

impl Packer {
    /// A packer for the fastest products on the path `isa`. Formats that look blocks up in a grid (IQ2, IQ3) take a third
    /// to a half more memory than in the file.
    pub fn new(isa: Isa) -> Self {
        Self { arena: Arena::default(), isa, compact: false }
    }

    /// A packer that keeps every format as small as in the file, where need be at the price of slow products.
    pub fn compact(isa: Isa) -> Self {
        Self { compact: true, ..Self::new(isa) }
    }

    /// Bytes that [`Packer::pack_stacked`] would need; `None` for shapes and formats that it refuses.
    pub fn bytes(&self, ty: GgmlType, matrices: usize, rows: usize, cols: usize) -> Option<usize> {
        ty.row_bytes(cols)?;
        rows.div_ceil(LANES).checked_mul(matrices)?.checked_mul(tile_bytes(ty, cols, self.keeps_raw(ty))?)
    }

    /// Packs one matrix of `rows` × `cols` weights, given row after row in the format's blocks.
    ///
    /// # Errors
    /// Where the bytes do not fit the shape, the format holds no weights, or memory or the instruction set is missing.
    pub fn pack(&self, ty: GgmlType, rows: usize, cols: usize, bytes: &[u8]) -> Result<PackedMatrix, PackError> {
        self.pack_stacked(ty, 1, rows, cols, bytes)
    }

    /// Packs `matrices` matrices that follow one another. Uses the threads of the current rayon pool.
    ///
    /// # Errors
    /// As [`Packer::pack`].
    pub fn pack_stacked(
        &self,
        ty: GgmlType,
        matrices: usize,
        rows: usize,
        cols: usize,
        bytes: &[u8],
    ) -> Result<PackedMatrix, PackError> {
        let isa = self.isa;
        if !isa.is_available() {
            return Err(PackError::Isa { isa });
        }
        let row_bytes = ty.row_bytes(cols).ok_or(PackError::Cols { ty, cols })?;
        let matrix_bytes = row_bytes.checked_mul(rows);
        let expected = matrix_bytes.and_then(|b| b.checked_mul(matrices)).unwrap_or(usize::MAX);
        if expected != bytes.len() {
            return Err(PackError::Bytes { ty, matrices, rows, cols, expected, found: bytes.len() });
        }
        let raw = self.keeps_raw(ty);
        let tile_bytes = tile_bytes(ty, cols, raw).ok_or(PackError::Format { ty })?;
        let total = self.bytes(ty, matrices, rows, cols);
        let no_memory = PackError::Memory { bytes: total.unwrap_or(usize::MAX) };
        let data = total.and_then(|bytes| self.arena.allocate(bytes)).ok_or(no_memory)?;
        let mut matrix = PackedMatrix { ty, matrices, rows, cols, isa, raw, tile_bytes, data };
        if !matrix.data.is_empty() {
            matrix.fill(bytes, row_bytes);
        }
        Ok(matrix)
    }

    fn keeps_raw(&self, ty: GgmlType) -> bool {
        is_never_packed(ty) || (self.compact && is_larger_packed(ty))
    }
}

impl PackedMatrix {
    /// Packs every tile from the bytes of the file. No dimension is zero.
    fn fill(&mut self, bytes: &[u8], row_bytes: usize) {
        let (ty, cols, raw, tiles) = (self.ty, self.cols, self.raw, self.tiles());
        let sources = bytes.par_chunks(self.rows * row_bytes);
        let targets = self.data.par_chunks_mut(tiles * self.tile_bytes);
        let tile_bytes = self.tile_bytes;
        sources.zip(targets).for_each(|(matrix, target)| {
            let tiles = target.par_chunks_mut(tile_bytes).zip(matrix.par_chunks(LANES * row_bytes));
            tiles.for_each(|(tile, rows)| pack_tile((ty, raw), cols, rows, row_bytes, tile));
        });
    }

    /// The format of the weights.
    pub fn ty(&self) -> GgmlType {
        self.ty
    }

    /// Matrices in the stack.
    pub fn matrices(&self) -> usize {
        self.matrices
    }

    /// Rows of a matrix: outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of a matrix: inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The path whose kernels multiply by this matrix.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Tiles of one matrix: the units in which work is shared out.
    pub fn tiles(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Bytes of the packed weights.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// The form in which activations must come.
    pub fn activation(&self) -> ActivationKind {
        if self.ty.is_quantized() { ActivationKind::Quantized } else { ActivationKind::Float }
    }

    /// The tiles of matrix `index`, which exists.
    pub(super) fn tiles_of(&self, index: usize) -> &[u8] {
        let bytes = self.tiles() * self.tile_bytes;
        &self.data[index * bytes..(index + 1) * bytes]
    }

    /// Whether the tiles are the rows' blocks as they are in the file.
    pub(super) fn is_raw(&self) -> bool {
        self.raw
    }

    /// Bytes of a tile.
    pub(super) fn tile_bytes(&self) -> usize {
        self.tile_bytes
    }
}

/// Bytes of a tile; `None` for types that hold no weights.
fn tile_bytes(ty: GgmlType, cols: usize, raw: bool) -> Option<usize> {
    match ty {
        GgmlType::F32 => cols.checked_mul(LANES * 4),
        GgmlType::F16 | GgmlType::BF16 => cols.checked_mul(LANES * 2),
        _ if raw => ty.row_bytes(cols)?.checked_mul(LANES),
        _ => with_format!(ty, F => Some(Layout::new::<F>(cols).tile), _ => None),
    }
}

/// Packs up to 16 rows.
fn pack_tile((ty, raw): (GgmlType, bool), cols: usize, rows: &[u8], row_bytes: usize, tile: &mut [u8]) {
    match ty {
        GgmlType::F32 => float::pack_tile::<4>(rows, row_bytes, tile),
        GgmlType::F16 | GgmlType::BF16 => float::pack_tile::<2>(rows, row_bytes, tile),
        _ if raw => tile[..rows.len()].copy_from_slice(rows),
        _ => with_format!(ty, F => format::pack_tile::<F>(rows, row_bytes, cols, tile), _ => {}),
    }
}
