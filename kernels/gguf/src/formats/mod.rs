//! Decoding of every tensor number format.
//!
//! Each quantized format is one function that turns a block into integers and scales ([`UnpackedBlock`]); the values
//! follow from these by one multiplication and at most one addition, in the order that gives ggml's bits.

mod codebook;
mod float4;
mod iq;
mod k_quants;
mod plain;
mod simple;
mod ternary;
mod unpacked;

use half::f16;

pub use codebook::code_book;
pub use unpacked::UnpackedBlock;

use crate::types::GgmlType;

/// Bytes or buffers that do not fit a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes do not hold as many values as the output has room for.
    #[error("{ty}: a block of {} bytes holds {} values, but {bytes} bytes were given for {values} values", .ty.block_bytes(), .ty.block_len())]
    Length {
        /// The format.
        ty: GgmlType,
        /// Bytes given.
        bytes: usize,
        /// Values asked for.
        values: usize,
    },
    /// A row index past the end of the tensor.
    #[error("{ty}: row {row} of {len} values lies outside the {bytes} bytes of the tensor")]
    Row {
        /// The format.
        ty: GgmlType,
        /// Row asked for.
        row: usize,
        /// Values in a row.
        len: usize,
        /// Bytes of the tensor.
        bytes: usize,
    },
    /// A format without blocks cannot be unpacked into integers and scales.
    #[error("{ty} is not a quantized format: it has no blocks to unpack")]
    NotQuantized {
        /// The format.
        ty: GgmlType,
    },
}

/// Runs `$body` with `$unpack` bound to the block decoder of a quantized type, `$other` for all other types.
macro_rules! with_decoder {
    ($ty:expr, $unpack:ident => $body:expr, _ => $other:expr) => {
        with_decoder!(@match $ty, $unpack, $body, $other,
            Q4_0 simple::q4_0, Q4_1 simple::q4_1, Q5_0 simple::q5_0, Q5_1 simple::q5_1,
            Q8_0 simple::q8_0, Q8_1 simple::q8_1, Q1_0 simple::q1_0, Q2_0 simple::q2_0,
            Q2_K k_quants::q2_k, Q3_K k_quants::q3_k, Q4_K k_quants::q4_k, Q5_K k_quants::q5_k,
            Q6_K k_quants::q6_k, Q8_K k_quants::q8_k,
            IQ1_S iq::iq1_s, IQ1_M iq::iq1_m, IQ2_XXS iq::iq2_xxs, IQ2_XS iq::iq2_xs, IQ2_S iq::iq2_s,
            IQ3_XXS iq::iq3_xxs, IQ3_S iq::iq3_s, IQ4_NL float4::iq4_nl, IQ4_XS float4::iq4_xs,
            MXFP4 float4::mxfp4, NVFP4 float4::nvfp4, TQ1_0 ternary::tq1_0, TQ2_0 ternary::tq2_0)
    };
    (@match $ty:expr, $unpack:ident, $body:expr, $other:expr, $($variant:ident $module:ident::$decoder:ident),*) => {
        match $ty {
            $(GgmlType::$variant => { let $unpack = $module::$decoder; $body })*
            _ => $other,
        }
    };
}

/// Decodes whole blocks into f32 values, bit for bit as ggml does.
///
/// # Errors
/// [`FormatError::Length`] unless `bytes` holds exactly `out.len()` values.
pub fn dequantize(ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), FormatError> {
    if ty.row_bytes(out.len()) != Some(bytes.len()) {
        return Err(FormatError::Length { ty, bytes: bytes.len(), values: out.len() });
    }
    with_decoder!(ty, unpack => blocks_to_f32(unpack, ty.block_len(), bytes, out), _ => plain::to_f32(ty, bytes, out));
    Ok(())
}

/// Decodes row `row` of a tensor whose rows have `out.len()` values.
///
/// # Errors
/// [`FormatError::Row`] where the tensor has no such row, [`FormatError::Length`] where a row is no whole number of blocks.
pub fn dequantize_row(ty: GgmlType, tensor: &[u8], row: usize, out: &mut [f32]) -> Result<(), FormatError> {
    let ragged = FormatError::Length { ty, bytes: tensor.len(), values: out.len() };
    let row_bytes = ty.row_bytes(out.len()).ok_or(ragged)?;
    let outside = FormatError::Row { ty, row, len: out.len(), bytes: tensor.len() };
    let start = row.checked_mul(row_bytes).ok_or(outside.clone())?;
    let bytes = tensor.get(start..).and_then(|rest| rest.get(..row_bytes)).ok_or(outside)?;
    dequantize(ty, bytes, out)
}

/// Unpacks one block of a quantized format into integers and scales.
///
/// # Errors
/// [`FormatError::Length`] unless `block` is exactly one block, [`FormatError::NotQuantized`] for F32, I8 and the like.
#[inline]
pub fn unpack_block(ty: GgmlType, block: &[u8], out: &mut UnpackedBlock) -> Result<(), FormatError> {
    with_decoder!(
        ty,
        unpack => one_block(unpack, block, out).ok_or(FormatError::Length {
            ty,
            bytes: block.len(),
            values: ty.block_len(),
        }),
        _ => Err(FormatError::NotQuantized { ty })
    )
}

fn one_block<const N: usize>(
    unpack: impl Fn(&[u8; N], &mut UnpackedBlock),
    block: &[u8],
    out: &mut UnpackedBlock,
) -> Option<()> {
    unpack(block.try_into().ok()?, out);
    Some(())
}

/// Decodes as many blocks as both `bytes` and `out` hold.
fn blocks_to_f32<const N: usize>(
    unpack: impl Fn(&[u8; N], &mut UnpackedBlock),
    block_len: usize,
    bytes: &[u8],
    out: &mut [f32],
) {
    let mut unpacked = UnpackedBlock::new();
    for (block, out) in bytes.as_chunks::<N>().0.iter().zip(out.chunks_exact_mut(block_len)) {
        unpack(block, &mut unpacked);
        unpacked.write_values(out);
    }
}

/// The little-endian half at byte `at`.
#[inline(always)]
fn half_at<const N: usize>(block: &[u8; N], at: usize) -> f32 {
    f16::from_bits(u16_at(block, at)).to_f32()
}

/// The little-endian u16 at byte `at`.
#[inline(always)]
fn u16_at<const N: usize>(block: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// The little-endian u32 at byte `at`.
#[inline(always)]
fn u32_at<const N: usize>(block: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}
