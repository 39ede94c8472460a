//! How the rows of a matrix lie on the device: which bytes of a block come where.

use bantam_gguf::GgmlType;

/// Rows of a strip: one for each lane of a warp.
pub const STRIP: usize = 32;
/// Columns of a superblock: the largest block of any format.
pub const SUPERBLOCK: usize = 256;

/// Bytes of a block: the first one, and how many.
type Field = (usize, usize);

/// The fields of a format's block in the order in which they lie on the device: for each field the bytes of all blocks of a
/// superblock. Every field begins at a multiple of the size in which kernels read it. What no kernel needs is left out: the
/// sums that Q8_1 and Q8_K have beside their integers.
fn fields(ty: GgmlType) -> Option<&'static [Field]> {
    Some(match ty {
        GgmlType::F32 => &[(0, 4)],
        GgmlType::F16 | GgmlType::BF16 => &[(0, 2)],
        GgmlType::Q4_0 | GgmlType::IQ4_NL | GgmlType::Q1_0 | GgmlType::Q2_0 => &[(2, 16), (0, 2)],
        GgmlType::Q4_1 => &[(4, 16), (0, 4)],
        GgmlType::Q5_0 => &[(6, 16), (2, 4), (0, 2)],
        GgmlType::Q5_1 => &[(8, 16), (4, 4), (0, 4)],
        GgmlType::Q8_0 => &[(2, 32), (0, 2)],
        GgmlType::Q8_1 => &[(4, 32), (0, 2)],
        GgmlType::Q8_K => &[(4, 256), (0, 4)],
        GgmlType::Q2_K => &[(0, 84)],
        GgmlType::Q3_K => &[(0, 110)],
        GgmlType::Q4_K => &[(0, 144)],
        GgmlType::Q5_K => &[(0, 176)],
        GgmlType::Q6_K => &[(0, 210)],
        GgmlType::IQ2_XXS => &[(2, 64), (0, 2)],
        GgmlType::TQ2_0 => &[(0, 66)],
        GgmlType::IQ2_XS => &[(2, 72), (0, 2)],
        GgmlType::IQ2_S => &[(2, 80), (0, 2)],
        GgmlType::IQ3_XXS => &[(2, 96), (0, 2)],
        GgmlType::IQ3_S => &[(2, 64), (74, 32), (66, 8), (106, 4), (0, 2)],
        GgmlType::IQ1_S => &[(2, 48), (0, 2)],
        GgmlType::IQ1_M => &[(0, 56)],
        GgmlType::IQ4_XS => &[(8, 128), (0, 8)],
        GgmlType::MXFP4 => &[(1, 16), (0, 1)],
        GgmlType::NVFP4 => &[(4, 32), (0, 4)],
        GgmlType::TQ1_0 => &[(0, 54)],
        _ => return None,
    })
}

/// The order of a superblock's bytes on the device: for each, its place among the bytes of the superblock in the file. `None`
/// for formats that no kernel reads: whole numbers and doubles.
pub(super) fn order(ty: GgmlType) -> Option<Vec<u16>> {
    let blocks = SUPERBLOCK / ty.block_len();
    let mut order = Vec::new();
    for (start, len) in fields(ty)? {
        for block in 0..blocks {
            order.extend((0..*len).map(|i| (block * ty.block_bytes() + start + i) as u16));
        }
    }
    Some(order)
}

/// Bytes of one row in one superblock on the device.
pub fn superblock_bytes(ty: GgmlType) -> Option<usize> {
    let blocks = SUPERBLOCK / ty.block_len();
    Some(fields(ty)?.iter().map(|(_, len)| blocks * len).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_stands_twice_and_units_are_even() {
        for ty in GgmlType::ALL {
            let Some(mut order) = order(*ty) else { continue };
            assert_eq!(Some(order.len()), superblock_bytes(*ty));
            assert_eq!(order.len() % 2, 0, "{ty}");
            let len = order.len();
            order.sort_unstable();
            order.dedup();
            assert_eq!(order.len(), len, "{ty}");
            assert!(len <= SUPERBLOCK / ty.block_len() * ty.block_bytes(), "{ty}");
        }
    }
}
