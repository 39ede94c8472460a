//! Where the kernels find the integers and scales of a panel of columns.

use super::ahead::LINE;
use super::codes::{self, BLOCK, Codes, VECTOR};
use super::format::{Format, Layout, PANEL, Panel, TileRows, advanced};
use super::matrix::PackedMatrix;
use super::raw::{self, RawCodes};
use super::scales::Scales;
use super::simd::{LANES, Simd};
use super::strip::Recipe;
use super::unpack::{BlockRows, unpack};
use std::marker::PhantomData;

/// Integers of `C` with scales of `S`.
pub(super) struct Scaled<C, S>(PhantomData<(C, S)>);

impl<C: Codes, S: Scales> Recipe for Scaled<C, S> {
    type Codes = C;
    const HALVES: bool = S::HALVES;
    const MINS: bool = S::MINS;
}

/// How the panels of a quantized matrix are read.
pub(super) trait Panels: 'static {
    /// What the kernels get to see.
    type Recipe: Recipe;

    /// The panels of a tile.
    fn panels(weights: &PackedMatrix) -> impl Iterator<Item = Panel>;

    /// Expands the scales of a panel of a tile of `weights` and says where its integers are. `codes` is room for integers
    /// that are not in the tile as the kernels need them.
    ///
    /// # Safety
    /// The panel must be one of the tile's, `scales` reach its last vector, and `codes` take a panel's integers as bytes.
    unsafe fn read<S: Simd>(
        simd: S,
        weights: &PackedMatrix,
        tile: &[u8],
        panel: Panel,
        codes: &mut [u8],
        scales: &mut [f32],
        stride: usize,
    ) -> *const u8;
}

/// A format with a packed layout.
pub(super) struct Packed<F>(PhantomData<F>);

impl<F: Format> Panels for Packed<F> {
    type Recipe = Scaled<F::Codes, F::Scales>;

    #[inline(always)]
    fn panels(weights: &PackedMatrix) -> impl Iterator<Item = Panel> {
        Layout::new::<F>(weights.cols()).panels::<F>()
    }

    #[inline(always)]
    unsafe fn read<S: Simd>(
        simd: S,
        _weights: &PackedMatrix,
        tile: &[u8],
        panel: Panel,
        _codes: &mut [u8],
        scales: &mut [f32],
        stride: usize,
    ) -> *const u8 {
        // SAFETY: the caller vouches for the panel and the room.
        unsafe { expand::<S, F>(simd, tile, panel, scales, stride) };
        tile[panel.codes_at..].as_ptr()
    }
}

/// Expands the scales of a panel.
///
/// # Safety
/// The panel must be one of the tile's, and `scales` reach its last vector.
#[inline(always)]
unsafe fn expand<S: Simd, F: Format>(simd: S, tile: &[u8], panel: Panel, scales: &mut [f32], stride: usize) {
    let records = tile[panel.records_at..panel.codes_at].chunks_exact(F::Scales::BYTES);
    let step = F::Scales::SPAN / BLOCK * stride;
    for (i, record) in records.take(panel.cols / F::Scales::SPAN).enumerate() {
        // SAFETY: a record has its bytes; the caller vouches for the room.
        unsafe { F::Scales::expand(simd, record.as_ptr(), scales.as_mut_ptr().add(i * step), stride) };
    }
}

/// A format with a packed layout whose integers are widened to bytes once for many rows.
pub(super) struct Widened<F>(PhantomData<F>);

impl<F: Format> Panels for Widened<F> {
    type Recipe = Scaled<<F::Codes as Codes>::Bytes, F::Scales>;

    #[inline(always)]
    fn panels(weights: &PackedMatrix) -> impl Iterator<Item = Panel> {
        Packed::<F>::panels(weights)
    }

    #[inline(always)]
    unsafe fn read<S: Simd>(
        simd: S,
        _weights: &PackedMatrix,
        tile: &[u8],
        panel: Panel,
        codes: &mut [u8],
        scales: &mut [f32],
        stride: usize,
    ) -> *const u8 {
        // SAFETY: the caller vouches for the panel and the room.
        unsafe { expand::<S, F>(simd, tile, panel, scales, stride) };
        let blocks = tile[panel.codes_at..panel.end].chunks_exact(codes::block_bytes::<F::Codes>());
        for (block, out) in blocks.zip(codes.chunks_exact_mut(BLOCK * LANES)) {
            // SAFETY: both chunks have the bytes of a block.
            unsafe { codes::widen::<S, F::Codes>(simd, block.as_ptr(), out.as_mut_ptr()) };
        }
        codes.as_ptr()
    }
}

/// A format with a packed layout, its blocks as they lie in the file.
pub(super) struct InFile<F>(PhantomData<F>);

impl<F: Format> Panels for InFile<F> {
    type Recipe = Scaled<<F::Codes as Codes>::Bytes, F::Scales>;

    fn panels(weights: &PackedMatrix) -> impl Iterator<Item = Panel> {
        raw_panels(weights.cols())
    }

    #[inline(always)]
    unsafe fn read<S: Simd>(
        simd: S,
        weights: &PackedMatrix,
        tile: &[u8],
        panel: Panel,
        codes: &mut [u8],
        scales: &mut [f32],
        stride: usize,
    ) -> *const u8 {
        let rows = TileRows { bytes: tile, row_bytes: weights.row_bytes() };
        let (span, block_bytes) = (F::Scales::SPAN, F::TYPE.block_bytes());
        let (starts, ahead) = (rows.starts(), PANEL / span * block_bytes);
        let mut record = [0; LARGEST_RECORD];
        for i in 0..panel.cols / span {
            let at = (panel.first / span + i) * block_bytes;
            let blocks = advanced(&starts, at);
            look_ahead::<S, F>(simd, &blocks, at + ahead, rows.row_bytes, ahead);
            let (out, scales) =
                (&mut codes[i * span * LANES..][..span * LANES], &mut scales[i * span / BLOCK * stride..]);
            // SAFETY: the rows have the panel's blocks; a record has its bytes; the caller vouches for the room for both.
            unsafe {
                F::pack_scales(simd, &blocks, record.as_mut_ptr());
                F::Scales::expand(simd, record.as_ptr(), scales.as_mut_ptr(), stride);
                unpack::<S, F>(simd, &blocks, out.as_mut_ptr());
            }
            look_up::<S, F::Codes>(simd, out);
        }
        codes.as_ptr()
    }
}

/// Asks for the blocks that lie `ahead` bytes behind these of each row, which is `at` bytes into the row. What lies behind
/// the end of a row is the next tile's row instead: neighbouring rows are at hand already.
#[inline(always)]
fn look_ahead<S: Simd, F: Format>(simd: S, blocks: &BlockRows, at: usize, row_bytes: usize, ahead: usize) {
    let ahead = if at < row_bytes { ahead } else { ahead + (LANES - 1) * row_bytes };
    for block in blocks {
        for line in 0..F::TYPE.block_bytes().div_ceil(LINE) {
            simd.prefetch(block.wrapping_add(ahead + line * LINE));
        }
    }
}

/// Bytes of the largest record of scales.
const LARGEST_RECORD: usize = 20 * LANES;

/// Replaces stored integers, as bytes, by what they stand for.
#[inline(always)]
fn look_up<S: Simd, C: Codes>(simd: S, codes: &mut [u8]) {
    let Some(table) = &C::TABLE else { return };
    for vector in codes.chunks_exact_mut(VECTOR) {
        // SAFETY: a chunk is a vector.
        unsafe { simd.store_bytes(vector.as_mut_ptr(), simd.lookup(table, simd.load_bytes(vector.as_ptr()))) };
    }
}

/// The panels of rows that lie as in the file.
fn raw_panels(cols: usize) -> impl Iterator<Item = Panel> {
    (0..cols.div_ceil(PANEL)).map(move |i| {
        let first = i * PANEL;
        Panel { first, cols: PANEL.min(cols - first), records_at: 0, codes_at: 0, end: 0 }
    })
}

/// A format that is unpacked as it is used.
pub(super) struct Raw<const HALVES: bool>;

impl<const HALVES: bool> Recipe for Raw<HALVES> {
    type Codes = RawCodes;
    const HALVES: bool = HALVES;
    const MINS: bool = false;
}

impl<const HALVES: bool> Panels for Raw<HALVES> {
    type Recipe = Self;

    fn panels(weights: &PackedMatrix) -> impl Iterator<Item = Panel> {
        raw_panels(weights.cols())
    }

    unsafe fn read<S: Simd>(
        _simd: S,
        weights: &PackedMatrix,
        tile: &[u8],
        panel: Panel,
        codes: &mut [u8],
        scales: &mut [f32],
        stride: usize,
    ) -> *const u8 {
        let ty = weights.ty();
        let codes = &mut codes[..panel.cols / BLOCK * codes::block_bytes::<RawCodes>()];
        let rows = TileRows { bytes: tile, row_bytes: weights.row_bytes() };
        raw::unpack_panel(ty, rows, panel.first / ty.block_len(), codes, scales, stride);
        codes.as_ptr()
    }
}
