//! Where the kernels find the integers and scales of a panel of columns.

use super::codes::{self, BLOCK, Bytes};
use super::format::{Format, Layout, PANEL, Panel};
use super::matrix::PackedMatrix;
use super::raw::{self, RawCodes};
use super::scales::Scales;
use super::simd::Simd;
use super::strip::Recipe;
use bantam_gguf::GgmlType;
use std::marker::PhantomData;

/// How the panels of a quantized matrix are read.
pub(super) trait Panels: Recipe {
    /// The panels of a tile.
    fn panels(weights: &PackedMatrix) -> impl Iterator<Item = Panel>;

    /// Expands the scales of a panel of a tile and says where its integers are. `codes` is room for integers that are
    /// not in the tile as the kernels need them.
    ///
    /// # Safety
    /// The panel must be one of the tile's, and `scales` reach its last vector.
    unsafe fn read<S: Simd>(
        simd: S,
        ty: GgmlType,
        tile: &[u8],
        panel: Panel,
        codes: &mut [u8],
        scales: &mut [f32],
        stride: usize,
    ) -> *const u8;
}

/// A format with a packed layout.
pub(super) struct Packed<F>(PhantomData<F>);

impl<F: Format> Recipe for Packed<F> {
    type Codes = F::Codes;
    const HALVES: bool = F::Scales::HALVES;
    const MINS: bool = F::Scales::MINS;
}

impl<F: Format> Panels for Packed<F> {
    #[inline(always)]
    fn panels(weights: &PackedMatrix) -> impl Iterator<Item = Panel> {
        Layout::new::<F>(weights.cols()).panels::<F>()
    }

    #[inline(always)]
    unsafe fn read<S: Simd>(
        simd: S,
        _ty: GgmlType,
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

impl<F: Format> Recipe for Widened<F> {
    type Codes = Bytes<F::Codes>;
    const HALVES: bool = F::Scales::HALVES;
    const MINS: bool = F::Scales::MINS;
}

impl<F: Format> Panels for Widened<F> {
    #[inline(always)]
    fn panels(weights: &PackedMatrix) -> impl Iterator<Item = Panel> {
        Packed::<F>::panels(weights)
    }

    #[inline(always)]
    unsafe fn read<S: Simd>(
        simd: S,
        _ty: GgmlType,
        tile: &[u8],
        panel: Panel,
        codes: &mut [u8],
        scales: &mut [f32],
        stride: usize,
    ) -> *const u8 {
        // SAFETY: the caller vouches for the panel and the room.
        unsafe { expand::<S, F>(simd, tile, panel, scales, stride) };
        let blocks = tile[panel.codes_at..panel.end].chunks_exact(codes::block_bytes::<F::Codes>());
        for (block, out) in blocks.zip(codes.chunks_exact_mut(codes::block_bytes::<Self::Codes>())) {
            // SAFETY: both chunks have the bytes of a block.
            unsafe { codes::widen::<S, F::Codes>(simd, block.as_ptr(), out.as_mut_ptr()) };
        }
        codes.as_ptr()
    }
}

/// A format that is unpacked as it is used.
pub(super) struct Raw<const HALVES: bool>;

impl<const HALVES: bool> Recipe for Raw<HALVES> {
    type Codes = RawCodes;
    const HALVES: bool = HALVES;
    const MINS: bool = false;
}

impl<const HALVES: bool> Panels for Raw<HALVES> {
    fn panels(weights: &PackedMatrix) -> impl Iterator<Item = Panel> {
        let cols = weights.cols();
        (0..cols.div_ceil(PANEL)).map(move |i| {
            let first = i * PANEL;
            Panel { first, cols: PANEL.min(cols - first), records_at: 0, codes_at: 0, end: 0 }
        })
    }

    unsafe fn read<S: Simd>(
        _simd: S,
        ty: GgmlType,
        tile: &[u8],
        panel: Panel,
        codes: &mut [u8],
        scales: &mut [f32],
        stride: usize,
    ) -> *const u8 {
        let codes = &mut codes[..panel.cols / BLOCK * codes::block_bytes::<RawCodes>()];
        raw::unpack_panel(ty, tile, panel.first / ty.block_len(), codes, scales, stride);
        codes.as_ptr()
    }
}
