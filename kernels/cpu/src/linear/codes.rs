//! How the integers of a weight tile lie in memory.
//!
//! The unit is one block of 32 columns of a tile's 16 rows. Four neighbouring columns of a row, a *quad*, fill the four
//! bytes of the row's lane. Integers of fewer than 8 bits are split into planes of 1, 2 and 4 bits, the high bits first; a
//! vector of a plane holds the quads of as many neighbouring columns as its bits leave room for. So a block of b-bit
//! integers takes b vectors of 64 bytes, and any of its 8 quads is a few shifts and masks away. A kernel's first quad needs
//! a vector of each plane: with the smallest plane first it reads memory in order, as the hardware's prefetching expects.

use super::simd::{LANES, Simd};

/// Columns of a block.
pub(super) const BLOCK: usize = 32;
/// Bytes of a vector.
pub(super) const VECTOR: usize = 4 * LANES;

/// The integers of a weight format.
pub(super) trait Codes: 'static {
    /// Bits of a stored integer: 1 to 6, or 8.
    const BITS: usize;
    /// What a stored integer exceeds the weight's by: zero or a power of two, at most 128.
    const BIAS: i32;
    /// What the stored integers, all below 16, stand for: the weight's integer + 128, which is then the bias.
    const TABLE: Option<[u8; 16]> = None;
    /// The same integers, a byte each, as [`widen`] leaves them.
    type Bytes: Codes;
}

/// Integers that stand for themselves, minus a bias.
pub(super) struct Ints<const BITS: usize, const BIAS: i32>;

impl<const BITS: usize, const BIAS: i32> Codes for Ints<BITS, BIAS> {
    const BITS: usize = BITS;
    const BIAS: i32 = BIAS;
    type Bytes = Ints<8, BIAS>;
}

/// One bit: −1 or 1.
pub(super) struct Signs;

impl Codes for Signs {
    const BITS: usize = 1;
    const BIAS: i32 = 128;
    const TABLE: Option<[u8; 16]> = Some(biased([-1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    type Bytes = Ints<8, 128>;
}

/// The non-linear four-bit code of the IQ4 formats.
pub(super) struct Iq4;

impl Codes for Iq4 {
    const BITS: usize = 4;
    const BIAS: i32 = 128;
    const TABLE: Option<[u8; 16]> =
        Some(biased([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]));
    type Bytes = Ints<8, 128>;
}

/// Four-bit floats (sign, two exponent bits, one mantissa bit), doubled to be whole.
pub(super) struct E2m1;

impl Codes for E2m1 {
    const BITS: usize = 4;
    const BIAS: i32 = 128;
    const TABLE: Option<[u8; 16]> = Some(biased([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]));
    type Bytes = Ints<8, 128>;
}

/// Three bits for a sign and one of the three magnitudes of the IQ2 grids.
pub(super) struct Iq2;

impl Codes for Iq2 {
    const BITS: usize = 3;
    const BIAS: i32 = 128;
    const TABLE: Option<[u8; 16]> = Some(biased([8, 25, 43, 0, -8, -25, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    type Bytes = Ints<8, 128>;
}

/// Four bits for a sign and one of the eight magnitudes of the IQ3_XXS grid.
pub(super) struct Iq3Xxs;

impl Codes for Iq3Xxs {
    const BITS: usize = 4;
    const BIAS: i32 = 128;
    const TABLE: Option<[u8; 16]> =
        Some(biased([4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62]));
    type Bytes = Ints<8, 128>;
}

/// Four bits for a sign and one of the eight magnitudes of the IQ3_S grid.
pub(super) struct Iq3S;

impl Codes for Iq3S {
    const BITS: usize = 4;
    const BIAS: i32 = 128;
    const TABLE: Option<[u8; 16]> = Some(biased([1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15]));
    type Bytes = Ints<8, 128>;
}

/// A table of integers as [`Codes::TABLE`] wants it.
const fn biased(integers: [i8; 16]) -> [u8; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = (integers[i] as u8) ^ 0x80;
        i += 1;
    }
    table
}

/// Bytes of one block of a tile.
pub(super) const fn block_bytes<C: Codes>() -> usize {
    C::BITS * VECTOR
}

/// The accumulators' start for dots with activations of which this is −128 times the sum: it takes the bias out.
#[inline(always)]
pub(super) fn start<S: Simd, C: Codes>(simd: S, negated: i32) -> S::I {
    match C::BIAS {
        0 => simd.splat_int(0),
        128 if S::REMOVES_BIAS => simd.splat_int(0),
        bias => simd.splat_int(negated >> (128 / bias).trailing_zeros()),
    }
}

/// Adds the dot products of one quad.
#[inline(always)]
pub(super) fn dot<S: Simd, C: Codes>(simd: S, acc: S::I, weights: S::W, activations: S::X) -> S::I {
    if C::BIAS == 128 { simd.dot_biased(acc, weights, activations) } else { simd.dot(acc, weights, activations) }
}

/// The weights of quad `q` (0 to 7) of a block.
///
/// # Safety
/// `block` must be valid for reading [`block_bytes`].
#[inline(always)]
pub(super) unsafe fn quad<S: Simd, C: Codes>(simd: S, block: *const u8, q: usize) -> S::W {
    // SAFETY: the planes of the block lie within its bytes, in this order.
    let codes = unsafe {
        match C::BITS {
            1 => plane::<S, 1>(simd, block, q, 0),
            2 => plane::<S, 2>(simd, block, q, 0),
            3 => simd.or(plane::<S, 1>(simd, block, q, 2), plane::<S, 2>(simd, block.add(VECTOR), q, 0)),
            4 => plane::<S, 4>(simd, block, q, 0),
            5 => simd.or(plane::<S, 1>(simd, block, q, 4), plane::<S, 4>(simd, block.add(VECTOR), q, 0)),
            6 => simd.or(plane::<S, 2>(simd, block, q, 4), plane::<S, 4>(simd, block.add(2 * VECTOR), q, 0)),
            _ => simd.load_bytes(block.add(q * VECTOR)),
        }
    };
    match &C::TABLE {
        Some(table) => simd.lookup(table, codes),
        None => codes,
    }
}

/// Writes a block's integers as [`Codes::Bytes`].
///
/// # Safety
/// `block` must be valid for reading [`block_bytes`] of `C`, `out` for writing those of [`Codes::Bytes`].
#[inline(always)]
pub(super) unsafe fn widen<S: Simd, C: Codes>(simd: S, block: *const u8, out: *mut u8) {
    for q in 0..8 {
        // SAFETY: the caller vouches for the block and for room for 8 vectors.
        unsafe { simd.store_bytes(out.add(q * VECTOR), quad::<S, C>(simd, block, q)) };
    }
}

/// Quad `q` of a plane of `BITS` bits, moved to bit `to`.
///
/// # Safety
/// `plane` must be valid for reading `BITS` vectors.
#[inline(always)]
unsafe fn plane<S: Simd, const BITS: usize>(simd: S, plane: *const u8, q: usize, to: usize) -> S::W {
    let fields = 8 / BITS;
    // SAFETY: `q` is below 8, so the vector is one of the plane's `BITS`.
    let vector = unsafe { simd.load_bytes(plane.add(q / fields * VECTOR)) };
    moved::<S, BITS>(simd, vector, q % fields * BITS, to)
}

/// The `BITS` bits of each byte from bit `from` on, at bit `to`; zeros beside them.
#[inline(always)]
fn moved<S: Simd, const BITS: usize>(simd: S, vector: S::W, from: usize, to: usize) -> S::W {
    let mask = (((1 << BITS) - 1) << to) as u8;
    if from >= to {
        simd.shr_and(vector, (from - to) as u32, mask)
    } else {
        simd.shl_and(vector, (to - from) as u32, mask)
    }
}

/// Packs a block of stored integers, which come as bytes: the vectors of quad after quad.
///
/// # Safety
/// `bytes` must be valid for reading 8 vectors, `out` for writing [`block_bytes`].
#[inline(always)]
pub(super) unsafe fn pack<S: Simd, C: Codes>(simd: S, bytes: *const u8, out: *mut u8) {
    // SAFETY: the caller vouches for both; the planes lie within the block's bytes, in this order.
    unsafe {
        match C::BITS {
            1 => pack_plane::<S, 1>(simd, bytes, 0, out),
            2 => pack_plane::<S, 2>(simd, bytes, 0, out),
            3 => {
                pack_plane::<S, 1>(simd, bytes, 2, out);
                pack_plane::<S, 2>(simd, bytes, 0, out.add(VECTOR));
            }
            4 => pack_plane::<S, 4>(simd, bytes, 0, out),
            5 => {
                pack_plane::<S, 1>(simd, bytes, 4, out);
                pack_plane::<S, 4>(simd, bytes, 0, out.add(VECTOR));
            }
            6 => {
                pack_plane::<S, 2>(simd, bytes, 4, out);
                pack_plane::<S, 4>(simd, bytes, 0, out.add(2 * VECTOR));
            }
            _ => std::ptr::copy_nonoverlapping(bytes, out, 8 * VECTOR),
        }
    }
}

/// Writes `BITS` bits of each integer, from bit `from`, to a plane.
///
/// # Safety
/// `bytes` must be valid for reading 8 vectors, `plane` for writing `BITS` vectors.
#[inline(always)]
unsafe fn pack_plane<S: Simd, const BITS: usize>(simd: S, bytes: *const u8, from: usize, plane: *mut u8) {
    let fields = 8 / BITS;
    for vector in 0..BITS {
        // SAFETY: a plane has `BITS` vectors of `8 / BITS` quads, 8 quads together.
        unsafe {
            let bytes = bytes.add(vector * fields * VECTOR);
            let mut packed = moved::<S, BITS>(simd, simd.load_bytes(bytes), from, 0);
            for field in 1..fields {
                let quad = simd.load_bytes(bytes.add(field * VECTOR));
                packed = simd.or(packed, moved::<S, BITS>(simd, quad, from, field * BITS));
            }
            simd.store_bytes(plane.add(vector * VECTOR), packed);
        }
    }
}

/// The stored integer of a weight's.
#[inline(always)]
pub(super) fn encode<C: Codes>(integer: i8) -> u8 {
    let inverse = const { &inverse(C::TABLE) };
    let biased = integer.cast_unsigned().wrapping_add(C::BIAS as u8);
    if C::TABLE.is_some() { inverse[usize::from(biased)] } else { biased }
}

/// The first index of each value in a table; zero for values that are not there.
const fn inverse(table: Option<[u8; 16]>) -> [u8; 256] {
    let mut inverse = [0; 256];
    if let Some(table) = table {
        let mut i = 16;
        while i > 0 {
            i -= 1;
            inverse[table[i] as usize] = i as u8;
        }
    }
    inverse
}
