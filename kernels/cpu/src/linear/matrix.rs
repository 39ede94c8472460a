//! Weight matrices, repacked for the kernels.

use super::activation::ActivationKind;
use super::float;
use super::format::{Layout, PackTile, TileRows, with_format};
use super::memory::{Arena, Buffer};
use super::raw::{is_larger_packed, is_never_packed};
use super::simd::{LANES, with_simd};
use crate::isa::Isa;
use bantam_backend::SharedBytes;
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
/// The last tile of each matrix is filled up with rows that nobody reads. The layout is the same for every instruction set.
///
/// Or the rows are as in the file, and unpacked whenever they are used: then the last tile ends with the last row. What
/// comes out is the same, to the bit.
pub struct PackedMatrix {
    ty: GgmlType,
    matrices: usize,
    rows: usize,
    cols: usize,
    isa: Isa,
    raw: bool,
    row_bytes: usize,
    tile_bytes: usize,
    data: Data,
}

/// Whose the weights are.
enum Data {
    Own(Buffer),
    Shared(SharedBytes),
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
        let raw = self.keeps_raw(ty);
        matrix_bytes(ty, rows, cols, raw)?.checked_mul(matrices)
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
        let shape = self.shape(ty, matrices, rows, cols, bytes.len(), self.keeps_raw(ty))?;
        let total = self.bytes(ty, matrices, rows, cols);
        let no_memory = PackError::Memory { bytes: total.unwrap_or(usize::MAX) };
        let mut data = total.and_then(|bytes| self.arena.allocate(bytes)).ok_or(no_memory)?;
        if !data.is_empty() {
            shape.fill(bytes, &mut data);
        }
        Ok(PackedMatrix { data: Data::Own(data), ..shape })
    }

    /// Takes `matrices` matrices that follow one another as they are: they are unpacked whenever they are used.
    ///
    /// # Errors
    /// As [`Packer::pack`]; no memory is taken.
    pub fn keep(
        &self,
        ty: GgmlType,
        matrices: usize,
        rows: usize,
        cols: usize,
        bytes: SharedBytes,
    ) -> Result<PackedMatrix, PackError> {
        let shape = self.shape(ty, matrices, rows, cols, bytes.len(), true)?;
        Ok(PackedMatrix { data: Data::Shared(bytes), ..shape })
    }

    /// A matrix without its weights, for which `found` bytes are given.
    fn shape(
        &self,
        ty: GgmlType,
        matrices: usize,
        rows: usize,
        cols: usize,
        found: usize,
        raw: bool,
    ) -> Result<PackedMatrix, PackError> {
        let isa = self.isa;
        if !isa.is_available() {
            return Err(PackError::Isa { isa });
        }
        let row_bytes = ty.row_bytes(cols).ok_or(PackError::Cols { ty, cols })?;
        let matrix_bytes = row_bytes.checked_mul(rows);
        let expected = matrix_bytes.and_then(|b| b.checked_mul(matrices)).unwrap_or(usize::MAX);
        if expected != found {
            return Err(PackError::Bytes { ty, matrices, rows, cols, expected, found });
        }
        let tile_bytes = tile_bytes(ty, cols, raw).ok_or(PackError::Format { ty })?;
        let data = Data::Shared(SharedBytes::owned(Vec::new()));
        Ok(PackedMatrix { ty, matrices, rows, cols, isa, raw, row_bytes, tile_bytes, data })
    }

    fn keeps_raw(&self, ty: GgmlType) -> bool {
        is_never_packed(ty) || (self.compact && is_larger_packed(ty))
    }
}

impl PackedMatrix {
    /// Packs every tile from the bytes of the file. No dimension is zero.
    fn fill(&self, bytes: &[u8], data: &mut [u8]) {
        let sources = bytes.par_chunks(self.rows * self.row_bytes);
        let targets = data.par_chunks_mut(self.matrix_bytes());
        sources.zip(targets).for_each(|(matrix, target)| {
            let tiles = target.par_chunks_mut(self.tile_bytes).zip(matrix.par_chunks(LANES * self.row_bytes));
            tiles.for_each(|(tile, rows)| self.pack_tile(rows, tile));
        });
    }

    /// Packs up to 16 rows.
    fn pack_tile(&self, rows: &[u8], tile: &mut [u8]) {
        let row_bytes = self.row_bytes;
        match self.ty {
            _ if self.raw => tile.copy_from_slice(rows),
            GgmlType::F32 => float::pack_tile::<4>(rows, row_bytes, tile),
            GgmlType::F16 | GgmlType::BF16 => float::pack_tile::<2>(rows, row_bytes, tile),
            ty => {
                let rows = TileRows { bytes: rows, row_bytes };
                with_format!(ty, F => with_simd(self.isa, PackTile::<F>::new(rows, self.cols, tile)), _ => {});
            }
        }
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

    /// Bytes of the weights.
    pub fn bytes(&self) -> usize {
        self.data().len()
    }

    /// The form in which activations must come.
    pub fn activation(&self) -> ActivationKind {
        if self.ty.is_quantized() { ActivationKind::Quantized } else { ActivationKind::Float }
    }

    /// The tiles of matrix `index`, which exists.
    pub(super) fn tiles_of(&self, index: usize) -> &[u8] {
        let bytes = self.matrix_bytes();
        &self.data()[index * bytes..(index + 1) * bytes]
    }

    fn data(&self) -> &[u8] {
        match &self.data {
            Data::Own(buffer) => buffer,
            Data::Shared(bytes) => bytes,
        }
    }

    /// Bytes of a matrix, which were counted before without going beyond all numbers.
    fn matrix_bytes(&self) -> usize {
        if self.raw { self.rows * self.row_bytes } else { self.tiles() * self.tile_bytes }
    }

    /// Whether the tiles are the rows' blocks as they are in the file.
    pub(super) fn is_raw(&self) -> bool {
        self.raw
    }

    /// Bytes of a row in the file.
    pub(super) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Bytes of a tile with all its rows.
    pub(super) fn tile_bytes(&self) -> usize {
        self.tile_bytes
    }
}

/// Bytes of a matrix; `None` for types that hold no weights, and beyond counting.
fn matrix_bytes(ty: GgmlType, rows: usize, cols: usize, raw: bool) -> Option<usize> {
    match raw {
        true => ty.row_bytes(cols)?.checked_mul(rows),
        false => tile_bytes(ty, cols, raw)?.checked_mul(rows.div_ceil(LANES)),
    }
}

/// Bytes of a tile; `None` for types that hold no weights.
fn tile_bytes(ty: GgmlType, cols: usize, raw: bool) -> Option<usize> {
    match ty {
        GgmlType::F32 => cols.checked_mul(LANES * 4),
        GgmlType::F16 | GgmlType::BF16 => cols.checked_mul(LANES * 2),
        _ if raw && ty.is_quantized() => ty.row_bytes(cols)?.checked_mul(LANES),
        _ => with_format!(ty, F => Some(Layout::new::<F>(cols).tile), _ => None),
    }
}
