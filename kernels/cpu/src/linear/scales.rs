//! How the scales of a weight tile lie in memory, and their expansion to vectors of `f32`.
//!
//! The unit is a *record*: what one block of the file format says about scales, for a tile's 16 rows. A weight is
//! `scale · integer − min`. Scales and minimums expand without rounding: they are what the format defines, to the bit, but
//! minimums are divided by 128, because sums of activations come times 128 ([`QBlock`](super::activation::QBlock)).

use super::codes::BLOCK;
use super::simd::{LANES, Simd};

/// The scales of a weight format.
pub(super) trait Scales: 'static {
    /// Columns that a record covers: 32, or a multiple.
    const SPAN: usize;
    /// Bytes of a record.
    const BYTES: usize;
    /// Whether the two halves of each 32 columns have scales (and minimums) of their own.
    const HALVES: bool = false;
    /// Whether there are minimums.
    const MINS: bool = false;

    /// Expands one record: for each 32 columns the vectors `[scale] [scale of the second half] [min] [min of the second
    /// half]`, as far as the format has them. Vectors are adjacent; blocks of 32 columns are `stride` floats apart.
    ///
    /// # Safety
    /// `record` must be valid for reading [`Scales::BYTES`], `out` for writing the vectors of `SPAN / 32` blocks.
    unsafe fn expand<S: Simd>(simd: S, record: *const u8, out: *mut f32, stride: usize);
}

/// Vectors that a block of 32 columns expands to.
pub(super) const fn vectors(halves: bool, mins: bool) -> usize {
    (1 + halves as usize) * (1 + mins as usize)
}

/// Half-precision minimums, divided by 128: exactly, since single precision reaches far below half precision.
///
/// # Safety
/// `source` must be valid for reading 32 bytes.
#[inline(always)]
unsafe fn load_min<S: Simd>(simd: S, source: *const u8) -> S::F {
    // SAFETY: the caller vouches for the bytes.
    simd.mul(unsafe { simd.load_f16(source) }, simd.splat(1.0 / 128.0))
}

/// Half-precision scales, one for `SPAN` columns.
pub(super) struct Half<const SPAN: usize>;

impl<const SPAN: usize> Scales for Half<SPAN> {
    const SPAN: usize = SPAN;
    const BYTES: usize = 2 * LANES;

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, record: *const u8, out: *mut f32, stride: usize) {
        // SAFETY: a record is 16 halves; the caller vouches for both pointers.
        unsafe {
            let scale = simd.load_f16(record);
            for block in 0..SPAN / BLOCK {
                simd.store(out.add(block * stride), scale);
            }
        }
    }
}

/// Half-precision scales, one for 16 columns, four of them in a record: four times 16 halves.
pub(super) struct FourHalves;

impl Scales for FourHalves {
    const SPAN: usize = 64;
    const BYTES: usize = 8 * LANES;
    const HALVES: bool = true;

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, record: *const u8, out: *mut f32, stride: usize) {
        // SAFETY: a record is 4 × 16 halves; `out` takes two blocks of two vectors.
        unsafe {
            for j in 0..4 {
                let scale = simd.load_f16(record.add(2 * j * LANES));
                simd.store(out.add(j / 2 * stride + j % 2 * LANES), scale);
            }
        }
    }
}

/// Powers of two, one for 32 columns: byte `e` stands for 2^(e − 128).
pub(super) struct HalvedPower;

impl Scales for HalvedPower {
    const SPAN: usize = 32;
    const BYTES: usize = LANES;

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, record: *const u8, out: *mut f32, _stride: usize) {
        // SAFETY: a record is 16 bytes; the caller vouches for both pointers.
        unsafe { simd.store(out, simd.load_halved_power(record)) };
    }
}

/// Half-precision scales and minimums for 32 columns: 16 scales, then 16 minimums.
pub(super) struct HalfWithMin;

impl Scales for HalfWithMin {
    const SPAN: usize = 32;
    const BYTES: usize = 4 * LANES;
    const MINS: bool = true;

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, record: *const u8, out: *mut f32, _stride: usize) {
        // SAFETY: a record is 32 halves; the caller vouches for both pointers.
        unsafe {
            simd.store(out, simd.load_f16(record));
            simd.store(out.add(LANES), load_min(simd, record.add(2 * LANES)));
        }
    }
}

/// 256 columns share a half-precision scale and a half-precision minimum; each 32 multiply them by integers of 6 bits.
///
/// A record: 16 halves `d`, 16 halves `dmin`, then for j = 0 to 3 the low 6 bits of scale j with bits 4 and 5 of scale
/// j + 4 above them, the same for minimums, and the low 4 bits of scale j + 4 below those of minimum j + 4: as many bytes
/// as in the file.
pub(super) struct SixBit;

impl Scales for SixBit {
    const SPAN: usize = 256;
    const BYTES: usize = 16 * LANES;
    const MINS: bool = true;

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, record: *const u8, out: *mut f32, stride: usize) {
        let mut bytes = [[0u8; 4 * LANES]; 4];
        // SAFETY: the record is 4 × 16 halves and three vectors of 64 bytes; `out` takes 8 blocks of two vectors.
        unsafe {
            let scales = simd.load_bytes(record.add(4 * LANES));
            let mins = simd.load_bytes(record.add(8 * LANES));
            let low = simd.load_bytes(record.add(12 * LANES));
            let last_scales = simd.or(simd.shr_and(scales, 2, 0x30), simd.shr_and(low, 0, 0x0f));
            let last_mins = simd.or(simd.shr_and(mins, 2, 0x30), simd.shr_and(low, 4, 0x0f));
            simd.store_bytes(bytes[0].as_mut_ptr(), simd.shr_and(scales, 0, 0x3f));
            simd.store_bytes(bytes[1].as_mut_ptr(), last_scales);
            simd.store_bytes(bytes[2].as_mut_ptr(), simd.shr_and(mins, 0, 0x3f));
            simd.store_bytes(bytes[3].as_mut_ptr(), last_mins);
            let (d, dmin) = (simd.load_f16(record), load_min(simd, record.add(2 * LANES)));
            for j in 0..8 {
                let at = j % 4 * LANES;
                let block = out.add(j * stride);
                simd.store(block, simd.mul(d, simd.load_u8(bytes[j / 4].as_ptr().add(at))));
                simd.store(block.add(LANES), simd.mul(dmin, simd.load_u8(bytes[2 + j / 4].as_ptr().add(at))));
            }
        }
    }
}

/// 256 columns share a half-precision scale; each `GROUP` of them, 16 or 32, multiply it by a signed byte and divide it by
/// `DIVISOR`, a power of two.
///
/// A record: 16 halves, then for each group the bytes of 16 rows.
pub(super) struct SignedByte<const GROUP: usize, const DIVISOR: u32 = 1>;

impl<const GROUP: usize, const DIVISOR: u32> Scales for SignedByte<GROUP, DIVISOR> {
    const SPAN: usize = 256;
    const BYTES: usize = (2 + 256 / GROUP) * LANES;
    const HALVES: bool = GROUP == 16;

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, record: *const u8, out: *mut f32, stride: usize) {
        let in_block = BLOCK / GROUP;
        // SAFETY: the record is 16 halves and the groups' bytes; `out` takes 8 blocks.
        unsafe {
            let d = simd.mul(simd.load_f16(record), simd.splat(1.0 / DIVISOR as f32));
            for j in 0..256 / GROUP {
                let scale = simd.mul(d, simd.load_i8(record.add((2 + j) * LANES)));
                simd.store(out.add(j / in_block * stride + j % in_block * LANES), scale);
            }
        }
    }
}

impl<const GROUP: usize, const DIVISOR: u32> SignedByte<GROUP, DIVISOR> {
    /// Writes a row's scales to its lane.
    pub(super) fn pack_lane(d: [u8; 2], scales: &[i8], lane: usize, out: &mut [u8]) {
        put(out, 2 * lane, &d);
        for (j, scale) in scales.iter().enumerate() {
            put(out, (2 + j) * LANES + lane, &scale.to_ne_bytes());
        }
    }
}

/// 256 columns share a half-precision scale and minimum; each 16 multiply them by integers of 4 bits.
///
/// A record: 16 halves `d`, 16 halves `dmin`, then for each 16 columns the bytes of 16 rows, minimums in the high bits.
pub(super) struct FourBit;

impl Scales for FourBit {
    const SPAN: usize = 256;
    const BYTES: usize = 20 * LANES;
    const HALVES: bool = true;
    const MINS: bool = true;

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, record: *const u8, out: *mut f32, stride: usize) {
        // SAFETY: the record is 4 × 16 halves' bytes and four vectors; `out` takes 8 blocks of four vectors.
        unsafe {
            let (d, dmin) = (simd.load_f16(record), load_min(simd, record.add(2 * LANES)));
            for quarter in 0..4 {
                let packed = simd.load_bytes(record.add(4 * (1 + quarter) * LANES));
                let mut bytes = [[0u8; 4 * LANES]; 2];
                simd.store_bytes(bytes[0].as_mut_ptr(), simd.shr_and(packed, 0, 15));
                simd.store_bytes(bytes[1].as_mut_ptr(), simd.shr_and(packed, 4, 15));
                for j in 0..4 {
                    let block = out.add((2 * quarter + j / 2) * stride + j % 2 * LANES);
                    simd.store(block, simd.mul(d, simd.load_u8(bytes[0].as_ptr().add(j * LANES))));
                    let min = simd.mul(dmin, simd.load_u8(bytes[1].as_ptr().add(j * LANES)));
                    simd.store(block.add(2 * LANES), min);
                }
            }
        }
    }
}

/// Writes `bytes` at `at`; records are as long as [`Scales::BYTES`] says, so this always fits.
pub(super) fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    debug_assert!(at + bytes.len() <= out.len());
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
