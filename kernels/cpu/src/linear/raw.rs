//! Formats without a packed layout: their blocks stay as they are in the file and are unpacked panel by panel.

use super::codes::{self, BLOCK, Ints};
use super::format::{PANEL, TileRows};
use super::simd::LANES;
use super::unpack::write_row;
use bantam_gguf::{GgmlType, UnpackedBlock, unpack_block};

/// The integers of an unpacked panel: bytes, plus 128.
pub(super) type RawCodes = Ints<8, 128>;

/// Bytes of an unpacked panel of a tile.
pub(super) const PANEL_BYTES: usize = PANEL / BLOCK * codes::block_bytes::<RawCodes>();

/// Whether a quantized format has no packed layout.
pub(super) fn is_never_packed(ty: GgmlType) -> bool {
    use GgmlType::{IQ1_M, IQ1_S, Q8_1, Q8_K};
    matches!(ty, IQ1_S | IQ1_M | Q8_1 | Q8_K)
}

/// Whether a format's packed layout is much larger than its blocks.
pub(super) fn is_larger_packed(ty: GgmlType) -> bool {
    use GgmlType::{IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
    matches!(ty, IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S)
}

/// Unpacks the part of a tile that starts `first` blocks into each row: integers to `codes`, scales to `scales`, where
/// the vectors of neighbouring 32 columns are `stride` floats apart. `codes` covers the panel and decides its length.
pub(super) fn unpack_panel(
    ty: GgmlType,
    tile: TileRows<'_>,
    first: usize,
    codes: &mut [u8],
    scales: &mut [f32],
    stride: usize,
) {
    let mut unpacked = UnpackedBlock::new();
    let (block_bytes, parts) = (ty.block_bytes(), ty.block_len() / BLOCK);
    let part_bytes = codes::block_bytes::<RawCodes>();
    for (lane, row) in tile.rows().enumerate() {
        let blocks = row.chunks_exact(block_bytes).skip(first);
        let places = codes.chunks_exact_mut(parts * part_bytes).zip(scales.chunks_mut(parts * stride));
        for (block, (codes, scales)) in blocks.zip(places) {
            if unpack_block(ty, block, &mut unpacked).is_err() {
                continue;
            }
            write_row::<RawCodes>(&unpacked, lane, codes);
            let per_part = BLOCK / unpacked.group;
            for (part, values) in scales.chunks_mut(stride).zip(unpacked.scale.chunks(per_part)) {
                for (vector, value) in part.chunks_exact_mut(LANES).zip(values) {
                    vector[lane] = *value;
                }
            }
        }
    }
}
