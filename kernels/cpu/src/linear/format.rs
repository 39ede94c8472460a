//! The quantized formats that are repacked: which integers, which scales, and how a block of the file becomes a lane.

use super::codes::{self, BLOCK, Codes, E2m1, Ints, Iq2, Iq3S, Iq3Xxs, Iq4, Signs};
use super::scales::{FourBit, FourHalves, Half, HalfWithMin, HalvedPower, Scales, SignedByte, SixBit, put};
use super::simd::{Job, LANES, Simd};
use super::unpack::{
    BlockRows, FiveBits, FiveBitsOf256, Nibbles, OneByOne, Order, SignedBytes, SixBits, ThreeBits, TwoBits, unpack,
};
use bantam_gguf::{GgmlType, UnpackedBlock, unpack_block};
use half::f16;
use std::marker::PhantomData;

/// A quantized format with a packed layout of its own. A block of the file has [`Scales::SPAN`] columns.
pub(super) trait Format: 'static {
    /// The format in the file.
    const TYPE: GgmlType;
    type Codes: Codes;
    type Scales: Scales;
    /// Where a block has its integers.
    type Order: Order;

    /// Writes a record: the scales of a block of each row.
    ///
    /// # Safety
    /// Each of `rows` must be valid for reading a block, `record` for writing [`Scales::BYTES`].
    unsafe fn pack_scales<S: Simd>(simd: S, rows: &BlockRows, record: *mut u8);
}

/// Runs `$body` with `$format` bound to the [`Format`] of a type, `$other` for types without a packed layout.
macro_rules! with_format {
    ($ty:expr, $format:ident => $body:expr, _ => $other:expr) => {
        $crate::linear::format::with_format!(@match $ty, $format, $body, $other,
            Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,
            IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, MXFP4, NVFP4, TQ1_0, TQ2_0, Q1_0, Q2_0)
    };
    (@match $ty:expr, $format:ident, $body:expr, $other:expr, $($name:ident),*) => {
        match $ty {
            $(GgmlType::$name => { type $format = $crate::linear::format::$name; $body })*
            _ => $other,
        }
    };
}
pub(super) use with_format;

macro_rules! formats {
    ($($name:ident: $codes:ty, $scales:ty, $order:ty, |$simd:ident, $rows:ident, $record:ident| $pack:expr;)*) => {$(
        #[allow(non_camel_case_types, reason = "the spelling of the format names in the field")]
        pub(super) struct $name;

        impl Format for $name {
            const TYPE: GgmlType = GgmlType::$name;
            type Codes = $codes;
            type Scales = $scales;
            type Order = $order;

            #[inline(always)]
            unsafe fn pack_scales<S: Simd>($simd: S, $rows: &BlockRows, $record: *mut u8) {
                // SAFETY: the caller vouches for a block of each row and for a record, in which all of these lie.
                unsafe { $pack }
            }
        }
    )*};
}

formats! {
    Q4_0: Ints<4, 8>, Half<32>, Nibbles<2, 4, 1>, |_simd, rows, record| halves(rows, 0, record, 0);
    Q4_1: Ints<4, 0>, HalfWithMin, Nibbles<4, 4, 1>, |_simd, rows, record| half_with_min(rows, record);
    Q5_0: Ints<5, 16>, Half<32>, FiveBits<2>, |_simd, rows, record| halves(rows, 0, record, 0);
    Q5_1: Ints<5, 0>, HalfWithMin, FiveBits<4>, |_simd, rows, record| half_with_min(rows, record);
    Q8_0: Ints<8, 128>, Half<32>, SignedBytes<2>, |_simd, rows, record| halves(rows, 0, record, 0);
    Q1_0: Signs, Half<128>, OneByOne, |_simd, rows, record| halves(rows, 0, record, 0);
    Q2_0: Ints<2, 1>, Half<64>, OneByOne, |_simd, rows, record| halves(rows, 0, record, 0);
    TQ1_0: Ints<2, 1>, Half<256>, OneByOne, |_simd, rows, record| halves(rows, 52, record, 0);
    TQ2_0: Ints<2, 1>, Half<256>, TwoBits<0>, |_simd, rows, record| halves(rows, 64, record, 0);
    Q2_K: Ints<2, 0>, FourBit, TwoBits<16>, |simd, rows, record| four_bit(simd, rows, record);
    Q3_K: Ints<3, 4>, SignedByte<16>, ThreeBits, |_simd, rows, record| by_row::<Self>(rows, record, q3_k);
    Q4_K: Ints<4, 0>, SixBit, Nibbles<16, 8, 4>, |simd, rows, record| six_bit(simd, rows, record);
    Q5_K: Ints<5, 0>, SixBit, FiveBitsOf256, |simd, rows, record| six_bit(simd, rows, record);
    Q6_K: Ints<6, 32>, SignedByte<16>, SixBits, |simd, rows, record| q6_k(simd, rows, record);
    IQ2_XXS: Iq2, SignedByte<32, 8>, OneByOne, |_simd, rows, record| by_row::<Self>(rows, record, unpacked_bytes::<Self, 8>);
    IQ2_XS: Iq2, SignedByte<16, 8>, OneByOne, |_simd, rows, record| by_row::<Self>(rows, record, unpacked_bytes::<Self, 8>);
    IQ2_S: Iq2, SignedByte<16, 8>, OneByOne, |_simd, rows, record| by_row::<Self>(rows, record, unpacked_bytes::<Self, 8>);
    IQ3_XXS: Iq3Xxs, SignedByte<32, 4>, OneByOne, |_simd, rows, record| by_row::<Self>(rows, record, unpacked_bytes::<Self, 4>);
    IQ3_S: Iq3S, SignedByte<32>, OneByOne, |_simd, rows, record| by_row::<Self>(rows, record, unpacked_bytes::<Self, 1>);
    IQ4_NL: Iq4, Half<32>, Nibbles<2, 4, 1>, |_simd, rows, record| halves(rows, 0, record, 0);
    IQ4_XS: Iq4, SignedByte<32>, Nibbles<8, 4, 8>, |_simd, rows, record| by_row::<Self>(rows, record, iq4_xs);
    MXFP4: E2m1, HalvedPower, Nibbles<1, 4, 1>, |_simd, rows, record| first_bytes(rows, record);
    NVFP4: E2m1, FourHalves, Nibbles<4, 2, 4>, |_simd, rows, record| by_row::<Self>(rows, record, unpacked_halves);
}

/// Copies the half at byte `from` of each block to byte `to` of the record and on.
///
/// # Safety
/// The blocks must have these bytes, the record 32 from `to` on.
#[inline(always)]
unsafe fn halves(rows: &BlockRows, from: usize, record: *mut u8, to: usize) {
    for (lane, row) in rows.iter().enumerate() {
        // SAFETY: the caller vouches for both places; no alignment is assumed.
        unsafe {
            let half = row.add(from).cast::<u16>().read_unaligned();
            record.add(to + 2 * lane).cast::<u16>().write_unaligned(half);
        }
    }
}

/// Blocks that start with their scale and a number to add, which is the minimum negated.
///
/// # Safety
/// As [`Format::pack_scales`].
#[inline(always)]
unsafe fn half_with_min(rows: &BlockRows, record: *mut u8) {
    // SAFETY: blocks start with two halves; the record has 16 scales and 16 minimums.
    unsafe {
        halves(rows, 0, record, 0);
        halves(rows, 2, record, 2 * LANES);
        for lane in 0..LANES {
            *record.add(2 * LANES + 2 * lane + 1) ^= 0x80;
        }
    }
}

/// The first byte of each block.
///
/// # Safety
/// As [`Format::pack_scales`].
#[inline(always)]
unsafe fn first_bytes(rows: &BlockRows, record: *mut u8) {
    for (lane, row) in rows.iter().enumerate() {
        // SAFETY: the caller vouches for a byte of each block and of each lane.
        unsafe { *record.add(lane) = **row };
    }
}

/// Blocks that start with `d`, `dmin` and twelve bytes of six-bit integers, which a record keeps as they are.
///
/// # Safety
/// As [`Format::pack_scales`].
#[inline(always)]
unsafe fn six_bit<S: Simd>(simd: S, rows: &BlockRows, record: *mut u8) {
    // SAFETY: blocks have 16 bytes there; the record has 64 bytes of halves and three vectors behind them.
    unsafe {
        halves(rows, 0, record, 0);
        halves(rows, 2, record, 2 * LANES);
        let [_, bytes @ ..] = simd.transpose(rows, 0);
        for (i, bytes) in bytes.into_iter().enumerate() {
            simd.store_bytes(record.add((4 + 4 * i) * LANES), simd.bytes_apart(bytes));
        }
    }
}

/// Blocks that start with sixteen bytes of scales and minimums and end with `d` and `dmin`.
///
/// # Safety
/// As [`Format::pack_scales`].
#[inline(always)]
unsafe fn four_bit<S: Simd>(simd: S, rows: &BlockRows, record: *mut u8) {
    // SAFETY: blocks have 84 bytes; the record has 64 bytes of halves and four vectors behind them.
    unsafe {
        halves(rows, 80, record, 0);
        halves(rows, 82, record, 2 * LANES);
        sixteen_bytes(simd, rows, 0, record.add(4 * LANES));
    }
}

/// Blocks that end with sixteen signed scales and `d`.
///
/// # Safety
/// As [`Format::pack_scales`].
#[inline(always)]
unsafe fn q6_k<S: Simd>(simd: S, rows: &BlockRows, record: *mut u8) {
    // SAFETY: blocks have 210 bytes; the record has 32 bytes of halves and four vectors behind them.
    unsafe {
        halves(rows, 208, record, 0);
        sixteen_bytes(simd, rows, 192, record.add(2 * LANES));
    }
}

/// Byte after byte of sixteen from byte `at` of each block on, each for all rows.
///
/// # Safety
/// The blocks must have these bytes, `out` room for four vectors.
#[inline(always)]
unsafe fn sixteen_bytes<S: Simd>(simd: S, rows: &BlockRows, at: usize, out: *mut u8) {
    // SAFETY: the caller vouches for bytes and room.
    unsafe {
        for (i, bytes) in simd.transpose(rows, at).into_iter().enumerate() {
            simd.store_bytes(out.add(4 * i * LANES), simd.bytes_apart(bytes));
        }
    }
}

/// Has `pack` write the scales of one block after the other to its lane.
///
/// # Safety
/// As [`Format::pack_scales`].
#[inline(always)]
unsafe fn by_row<F: Format>(rows: &BlockRows, record: *mut u8, pack: impl Fn(&[u8], usize, &mut [u8])) {
    for (lane, row) in rows.iter().enumerate() {
        // SAFETY: the caller vouches for a block and a record.
        let (block, record) = unsafe {
            let record = std::slice::from_raw_parts_mut(record, F::Scales::BYTES);
            (std::slice::from_raw_parts(*row, F::TYPE.block_bytes()), record)
        };
        pack(block, lane, record);
    }
}

/// A block that ends with sixteen six-bit scales in twelve bytes, less 32, and `d`.
fn q3_k(block: &[u8], lane: usize, record: &mut [u8]) {
    let Some(&[ref packed @ .., d0, d1]) = block.last_chunk::<14>() else { return };
    let scales: [i8; 16] = std::array::from_fn(|k| {
        let low = (packed[k % 8] >> (4 * (k / 8))) & 15;
        let high = (packed[8 + k % 4] >> (2 * (k / 4))) & 3;
        (low | (high << 4)) as i8 - 32
    });
    SignedByte::<16>::pack_lane([d0, d1], &scales, lane, record);
}

/// A block that starts with `d`, two high bits for each of eight scales, four low bits for each; less 32.
fn iq4_xs(block: &[u8], lane: usize, record: &mut [u8]) {
    let Some(&[d0, d1, h0, h1, ref low @ ..]) = block.first_chunk::<8>() else { return };
    let high = u16::from_le_bytes([h0, h1]);
    let scales: [i8; 8] = std::array::from_fn(|k| {
        let low = (low[k / 2] >> (4 * (k % 2))) & 15;
        let high = ((high >> (2 * k)) & 3) as u8;
        (low | (high << 4)) as i8 - 32
    });
    SignedByte::<32>::pack_lane([d0, d1], &scales, lane, record);
}

/// A block that starts with `d` and whose scales unpack to `d / divisor` times small integers, which are what is stored.
fn unpacked_bytes<F: Format, const DIVISOR: u8>(block: &[u8], lane: usize, record: &mut [u8]) {
    let mut unpacked = UnpackedBlock::new();
    let (Some(d), Ok(())) = (block.first_chunk::<2>(), unpack_block(F::TYPE, block, &mut unpacked)) else { return };
    let unit = f16::from_le_bytes(*d).to_f32() / f32::from(DIVISOR);
    // The division is exact; where `d` is zero or no number any integer will do.
    let scales = unpacked.scale.map(|scale| (scale / unit) as i8);
    SignedByte::<16>::pack_lane(*d, &scales[..256 / F::TYPE.unpack_group()], lane, record);
}

/// A block whose four scales are whatever they unpack to; all of them are exact in half precision.
fn unpacked_halves(block: &[u8], lane: usize, record: &mut [u8]) {
    let mut unpacked = UnpackedBlock::new();
    if unpack_block(GgmlType::NVFP4, block, &mut unpacked).is_ok() {
        for (j, scale) in unpacked.scale[..4].iter().enumerate() {
            put(record, 2 * (j * LANES + lane), &f16::from_f32(*scale).to_le_bytes());
        }
    }
}

/// Columns of the largest block.
pub(super) const BLOCK_LEN: usize = 256;

/// Columns that lie together, scales before integers, and are unpacked together: a multiple of every format's block, and as
/// many as make a kernel's run long without driving the weights and rows that it works on out of the second-level cache.
pub(super) const PANEL: usize = 1024;

/// Where the parts of a tile of `F` are.
pub(super) struct Layout {
    cols: usize,
    codes_at: usize,
    full_panel: usize,
    /// Bytes of a tile; a multiple of 64.
    pub(super) tile: usize,
}

impl Layout {
    /// The layout of tiles of `cols` columns, a multiple of the format's block.
    pub(super) fn new<F: Format>(cols: usize) -> Self {
        let bytes = |cols| codes_at::<F>(cols) + cols / BLOCK * codes::block_bytes::<F::Codes>();
        let (full, rest) = (cols / PANEL, cols % PANEL);
        let full_panel = bytes(PANEL);
        Self { cols, codes_at: codes_at::<F>(PANEL), full_panel, tile: full * full_panel + bytes(rest) }
    }

    /// The panels: columns, bytes of the tile where the records start, bytes from there to the integers.
    pub(super) fn panels<F: Format>(&self) -> impl Iterator<Item = Panel> + use<F> {
        let (cols, full_panel, full_codes_at) = (self.cols, self.full_panel, self.codes_at);
        (0..cols.div_ceil(PANEL)).map(move |i| {
            let first = i * PANEL;
            let len = PANEL.min(cols - first);
            let codes_at = if len == PANEL { full_codes_at } else { codes_at::<F>(len) };
            let records_at = i * full_panel;
            let codes_at = records_at + codes_at;
            let end = codes_at + len / BLOCK * codes::block_bytes::<F::Codes>();
            Panel { first, cols: len, records_at, codes_at, end }
        })
    }
}

/// One panel of a tile.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    /// The first column.
    pub(super) first: usize,
    /// How many columns.
    pub(super) cols: usize,
    /// Where its records are in the tile.
    pub(super) records_at: usize,
    /// Where its integers are in the tile.
    pub(super) codes_at: usize,
    /// Where it ends in the tile.
    pub(super) end: usize,
}

/// Bytes of the records of `cols` columns, with what aligns the integers behind them.
fn codes_at<F: Format>(cols: usize) -> usize {
    (cols / F::Scales::SPAN * F::Scales::BYTES).next_multiple_of(4 * LANES)
}

/// A tile of `F` to be packed from up to 16 rows; it is all zeros before.
pub(super) struct PackTile<'a, F> {
    rows: TileRows<'a>,
    cols: usize,
    tile: &'a mut [u8],
    format: PhantomData<F>,
}

impl<'a, F: Format> PackTile<'a, F> {
    /// Rows of `cols` weights, a multiple of the format's block.
    pub(super) fn new(rows: TileRows<'a>, cols: usize, tile: &'a mut [u8]) -> Self {
        Self { rows, cols, tile, format: PhantomData }
    }
}

impl<F: Format> Job for PackTile<'_, F> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { rows, cols, tile, .. } = self;
        let starts = rows.starts();
        let mut bytes = [0; BLOCK_LEN * LANES];
        for panel in Layout::new::<F>(cols).panels::<F>() {
            let (head, codes) = tile.split_at_mut(panel.codes_at);
            let records = head[panel.records_at..].chunks_exact_mut(F::Scales::BYTES);
            let codes = codes.chunks_exact_mut(F::Scales::SPAN / BLOCK * codes::block_bytes::<F::Codes>());
            let first = panel.first / F::Scales::SPAN;
            for (i, (record, codes)) in records.zip(codes).take(panel.cols / F::Scales::SPAN).enumerate() {
                let rows = advanced(&starts, (first + i) * F::TYPE.block_bytes());
                // SAFETY: rows have the panel's blocks; `bytes` has room for the largest block, the others for this one.
                unsafe {
                    F::pack_scales(simd, &rows, record.as_mut_ptr());
                    pack_block::<S, F>(simd, &rows, bytes.as_mut_ptr(), codes.as_mut_ptr());
                }
            }
        }
    }
}

/// Packs the integers of a block of each row; `bytes` is room for them as bytes.
///
/// # Safety
/// `rows` must be valid for reading a block each, `bytes` and `out` for writing its integers in either form.
#[inline(always)]
unsafe fn pack_block<S: Simd, F: Format>(simd: S, rows: &BlockRows, bytes: *mut u8, out: *mut u8) {
    // SAFETY: the caller vouches for all three; a block has `SPAN / BLOCK` blocks of a tile.
    unsafe {
        unpack::<S, F>(simd, rows, bytes);
        for part in 0..F::Scales::SPAN / BLOCK {
            let out = out.add(part * codes::block_bytes::<F::Codes>());
            codes::pack::<S, F::Codes>(simd, bytes.add(part * BLOCK * LANES), out);
        }
    }
}

/// The rows of a tile as they lie in the file, at most 16.
#[derive(Clone, Copy)]
pub(super) struct TileRows<'a> {
    /// The rows, one after another.
    pub(super) bytes: &'a [u8],
    /// Bytes of each.
    pub(super) row_bytes: usize,
}

impl<'a> TileRows<'a> {
    /// The rows.
    #[inline(always)]
    pub(super) fn rows(self) -> impl Iterator<Item = &'a [u8]> {
        self.bytes.chunks_exact(self.row_bytes).take(LANES)
    }

    /// The start of each row. Where a row is missing it is the first one's, which is there to be read.
    #[inline(always)]
    pub(super) fn starts(self) -> BlockRows {
        let mut starts = [self.bytes.as_ptr(); LANES];
        for (start, row) in starts.iter_mut().zip(self.rows()) {
            *start = row.as_ptr();
        }
        starts
    }
}

/// Byte `at` of each row.
#[inline(always)]
pub(super) fn advanced(starts: &BlockRows, at: usize) -> BlockRows {
    let mut places = *starts;
    for place in &mut places {
        *place = place.wrapping_add(at);
    }
    places
}
