//! A block of any quantized format as small integers with scales.

use crate::types::GgmlType;

/// One block of a quantized format: value `i` is `q[i] * scale[i / group] + min[i / group]`.
///
/// The integers are exact. Evaluated in this order in f32, the formula gives the very bits of
/// [`dequantize`](crate::dequantize).
#[derive(Clone, Debug)]
pub struct UnpackedBlock {
    /// Values in the block; what lies beyond them in `q` is left over from earlier blocks.
    pub len: usize,
    /// Values that share a scale: 16 or 32.
    pub group: usize,
    /// The integers.
    pub q: [i8; 256],
    /// The factor of each group.
    pub scale: [f32; 16],
    /// The summand of each group (mostly below zero); only set where `has_min`.
    pub min: [f32; 16],
    /// Whether the format has minima. Where it has none, `min` is neither written nor to be read.
    pub has_min: bool,
}

impl UnpackedBlock {
    /// An empty block, to be filled by [`unpack_block`](crate::unpack_block).
    pub const fn new() -> Self {
        Self { len: 0, group: 32, q: [0; 256], scale: [0.0; 16], min: [0.0; 16], has_min: false }
    }

    /// Writes the values to `out`; stops at the shorter of `out` and the block.
    #[inline]
    pub fn write_values(&self, out: &mut [f32]) {
        let groups = out.chunks_mut(self.group).zip(self.q.chunks(self.group)).take(self.len / self.group);
        for ((out, q), (&scale, &min)) in groups.zip(self.scale.iter().zip(&self.min)) {
            if self.has_min {
                out.iter_mut().zip(q).for_each(|(y, &q)| *y = f32::from(q) * scale + min);
            } else {
                out.iter_mut().zip(q).for_each(|(y, &q)| *y = f32::from(q) * scale);
            }
        }
    }

    /// Declares what the caller is about to fill in.
    #[inline(always)]
    pub(super) fn shape(&mut self, len: usize, group: usize, has_min: bool) {
        self.len = len;
        self.group = group;
        self.has_min = has_min;
    }

    /// A block of `len` values under the single scale `d`.
    #[inline(always)]
    pub(super) fn one_scale(&mut self, len: usize, d: f32) {
        self.shape(len, 32, false);
        self.scale[..len.min(256) / 32].fill(d);
    }
}

impl Default for UnpackedBlock {
    fn default() -> Self {
        Self::new()
    }
}

impl GgmlType {
    /// Values that share a scale in an [`UnpackedBlock`] of this format: 16 or 32; 1 where values are stored one by one.
    pub const fn unpack_group(self) -> usize {
        match self {
            Self::Q2_K | Self::Q3_K | Self::Q6_K | Self::IQ1_M | Self::IQ2_XS | Self::IQ2_S | Self::NVFP4 => 16,
            _ if self.is_quantized() => 32,
            _ => 1,
        }
    }
}
