//! Takes the integers out of blocks as they lie in the file, for the 16 rows of a tile at once.
//!
//! Formats differ in where a block has its integers; a few patterns cover nearly all of them. What matters is that four
//! neighbouring columns, a quad, are mostly found at one place of four neighbouring bytes: so blocks are transposed to
//! vectors of such places, from which shifts and masks make vectors of quads.

#![allow(clippy::needless_range_loop, reason = "several arrays share their indices")]

use super::codes::{self, Codes, VECTOR};
use super::format::Format;
use super::simd::{LANES, Simd};
use bantam_gguf::{UnpackedBlock, unpack_block};

/// One block of each row of a tile.
pub(super) type BlockRows = [*const u8; LANES];

/// Where the integers of a format's block are.
pub(super) trait Order: 'static {
    /// Whether [`Order::unpack`] knows it; otherwise rows are decoded one by one.
    const KNOWN: bool = true;

    /// Writes the stored integers of a block, as bytes: the vectors of quad after quad.
    ///
    /// # Safety
    /// Each of `rows` must be valid for reading a block, `out` for writing a byte for each column of each row.
    unsafe fn unpack<S: Simd>(simd: S, rows: &BlockRows, out: *mut u8);
}

/// Writes the stored integers of a block of `F`, as bytes: the vectors of quad after quad.
///
/// # Safety
/// Each of `rows` must be valid for reading a block, `out` for writing a byte for each column of each row.
#[inline(always)]
pub(super) unsafe fn unpack<S: Simd, F: Format>(simd: S, rows: &BlockRows, out: *mut u8) {
    if F::Order::KNOWN {
        // SAFETY: the caller vouches for rows and room.
        unsafe { F::Order::unpack(simd, rows, out) };
        return;
    }
    let mut unpacked = UnpackedBlock::new();
    for (lane, row) in rows.iter().enumerate() {
        // SAFETY: the caller vouches for a block of each row, and for bytes that anyone may overwrite.
        let (block, out) = unsafe {
            let out = std::slice::from_raw_parts_mut(out, F::TYPE.block_len() * LANES);
            (std::slice::from_raw_parts(*row, F::TYPE.block_bytes()), out)
        };
        if unpack_block(F::TYPE, block, &mut unpacked).is_ok() {
            write_row::<F::Codes>(&unpacked, lane, out);
        }
    }
}

/// Writes a block's integers, as they are stored, to a lane.
#[inline(always)]
pub(super) fn write_row<C: Codes>(unpacked: &UnpackedBlock, lane: usize, out: &mut [u8]) {
    for (quad, vector) in unpacked.q.as_chunks::<4>().0.iter().zip(out.chunks_exact_mut(VECTOR)) {
        vector[4 * lane..][..4].copy_from_slice(&quad.map(codes::encode::<C>));
    }
}

/// Rows are decoded one by one.
pub(super) struct OneByOne;

impl Order for OneByOne {
    const KNOWN: bool = false;

    unsafe fn unpack<S: Simd>(_simd: S, _rows: &BlockRows, _out: *mut u8) {}
}

/// The vectors of places `at` to `at + 4 · N` of a block.
///
/// # Safety
/// Each row must have these bytes; `N` is a multiple of 4.
#[inline(always)]
unsafe fn places<S: Simd, const N: usize>(simd: S, rows: &BlockRows, at: usize) -> [S::W; N] {
    // SAFETY: the caller vouches for the bytes.
    unsafe {
        let mut vectors = [simd.transpose(rows, at)[0]; N];
        for (i, four) in vectors.chunks_exact_mut(4).enumerate() {
            four.copy_from_slice(&simd.transpose(rows, at + 16 * i));
        }
        vectors
    }
}

/// Writes vector `index`.
///
/// # Safety
/// `out` must have room for it.
#[inline(always)]
unsafe fn put<S: Simd>(simd: S, out: *mut u8, index: usize, vector: S::W) {
    // SAFETY: the caller vouches for the room.
    unsafe { simd.store_bytes(out.add(index * VECTOR), vector) };
}

/// `GROUPS` times: 4 · `HALF` bytes, whose low nibbles come before their high nibbles; from byte `AT` on.
pub(super) struct Nibbles<const AT: usize, const HALF: usize, const GROUPS: usize>;

impl<const AT: usize, const HALF: usize, const GROUPS: usize> Order for Nibbles<AT, HALF, GROUPS> {
    #[inline(always)]
    unsafe fn unpack<S: Simd>(simd: S, rows: &BlockRows, out: *mut u8) {
        // SAFETY: the caller vouches for the block and the room; all groups lie in the block.
        unsafe {
            for first in (0..HALF * GROUPS).step_by(4) {
                let packed = simd.transpose(rows, AT + 4 * first);
                for i in 0..4 {
                    let (group, place) = ((first + i) / HALF, (first + i) % HALF);
                    put(simd, out, 2 * HALF * group + place, simd.shr_and(packed[i], 0, 15));
                    put(simd, out, 2 * HALF * group + place + HALF, simd.shr_and(packed[i], 4, 15));
                }
            }
        }
    }
}

/// Four bytes with the fifth bits of 32 integers, then 16 bytes with their nibbles.
pub(super) struct FiveBits<const AT: usize>;

impl<const AT: usize> Order for FiveBits<AT> {
    #[inline(always)]
    unsafe fn unpack<S: Simd>(simd: S, rows: &BlockRows, out: *mut u8) {
        // SAFETY: the caller vouches for the block and the room.
        unsafe {
            let mut fifths = [0u32; LANES];
            for lane in 0..LANES {
                fifths[lane] = rows[lane].add(AT).cast::<u32>().read_unaligned().to_le();
            }
            let packed = simd.transpose(rows, AT + 4);
            for q in 0..8 {
                // Bit c of the four goes to byte c: no two of the shifted copies meet.
                let mut spread = [0u32; LANES];
                for lane in 0..LANES {
                    let four = (fifths[lane] >> (4 * q)) & 15;
                    spread[lane] = ((four | four << 7 | four << 14 | four << 21) & 0x0101_0101) << 4;
                }
                let low = simd.shr_and(packed[q % 4], 4 * (q as u32 / 4), 15);
                put(simd, out, q, simd.or(low, simd.load_bytes(spread.as_ptr().cast())));
            }
        }
    }
}

/// 32 signed bytes from byte `AT` on; stored are their sums with 128.
pub(super) struct SignedBytes<const AT: usize>;

impl<const AT: usize> Order for SignedBytes<AT> {
    #[inline(always)]
    unsafe fn unpack<S: Simd>(simd: S, rows: &BlockRows, out: *mut u8) {
        // SAFETY: the caller vouches for the block and the room.
        unsafe {
            for half in 0..2 {
                let bytes = simd.transpose(rows, AT + 16 * half);
                for i in 0..4 {
                    put(simd, out, 4 * half + i, simd.flip_signs(bytes[i]));
                }
            }
        }
    }
}

/// Twice 32 bytes from byte `AT` on, which hold four integers of two bits, 32 columns apart.
pub(super) struct TwoBits<const AT: usize>;

impl<const AT: usize> Order for TwoBits<AT> {
    #[inline(always)]
    unsafe fn unpack<S: Simd>(simd: S, rows: &BlockRows, out: *mut u8) {
        // SAFETY: the caller vouches for the block and the room.
        unsafe {
            for first in (0..16).step_by(4) {
                let packed = simd.transpose(rows, AT + 4 * first);
                for i in 0..4 {
                    let (half, place) = ((first + i) / 8, (first + i) % 8);
                    for k in 0..4 {
                        put(simd, out, 32 * half + 8 * k + place, simd.shr_and(packed[i], 2 * k as u32, 3));
                    }
                }
            }
        }
    }
}

/// 32 bytes with the third bits, a bit of each byte for 32 columns, then the lower ones as in [`TwoBits`].
pub(super) struct ThreeBits;

impl Order for ThreeBits {
    #[inline(always)]
    unsafe fn unpack<S: Simd>(simd: S, rows: &BlockRows, out: *mut u8) {
        // SAFETY: the caller vouches for the block and the room.
        unsafe {
            let high: [S::W; 8] = places(simd, rows, 0);
            for half in 0..2 {
                let low: [S::W; 8] = places(simd, rows, 32 + 32 * half);
                for k in 0..4 {
                    for place in 0..8 {
                        let third = bit(simd, high[place], 4 * half + k, 2);
                        let codes = simd.or(simd.shr_and(low[place], 2 * k as u32, 3), third);
                        put(simd, out, 32 * half + 8 * k + place, codes);
                    }
                }
            }
        }
    }
}

/// 32 bytes with the fifth bits, a bit of each byte for 32 columns, then nibbles: four times 32 low ones, 32 high ones.
pub(super) struct FiveBitsOf256;

impl Order for FiveBitsOf256 {
    #[inline(always)]
    unsafe fn unpack<S: Simd>(simd: S, rows: &BlockRows, out: *mut u8) {
        // SAFETY: the caller vouches for the block and the room.
        unsafe {
            let high: [S::W; 8] = places(simd, rows, 16);
            for group in 0..4 {
                let low: [S::W; 8] = places(simd, rows, 48 + 32 * group);
                for part in 0..2 {
                    for place in 0..8 {
                        let fifth = bit(simd, high[place], 2 * group + part, 4);
                        let codes = simd.or(simd.shr_and(low[place], 4 * part as u32, 15), fifth);
                        put(simd, out, 16 * group + 8 * part + place, codes);
                    }
                }
            }
        }
    }
}

/// For each 128 columns 64 bytes of nibbles, and behind all of them 32 bytes with two high bits for each column.
pub(super) struct SixBits;

impl Order for SixBits {
    #[inline(always)]
    unsafe fn unpack<S: Simd>(simd: S, rows: &BlockRows, out: *mut u8) {
        // SAFETY: the caller vouches for the block and the room.
        unsafe {
            for half in 0..2 {
                let high: [S::W; 8] = places(simd, rows, 128 + 32 * half);
                for part in 0..2 {
                    let low: [S::W; 8] = places(simd, rows, 64 * half + 32 * part);
                    for place in 0..8 {
                        let (low, high) = (low[place], high[place]);
                        let out = out.add(VECTOR * (32 * half + 8 * part + place));
                        let bits = simd.shl_and(high, 4 - 2 * part as u32, 0x30);
                        put(simd, out, 0, simd.or(simd.shr_and(low, 0, 15), bits));
                        let bits = simd.shr_and(high, 2 * part as u32, 0x30);
                        put(simd, out, 16, simd.or(simd.shr_and(low, 4, 15), bits));
                    }
                }
            }
        }
    }
}

/// Bit `from` of each byte, at bit `to`.
#[inline(always)]
fn bit<S: Simd>(simd: S, bytes: S::W, from: usize, to: usize) -> S::W {
    let mask = 1 << to;
    if from >= to {
        simd.shr_and(bytes, (from - to) as u32, mask)
    } else {
        simd.shl_and(bytes, (to - from) as u32, mask)
    }
}
