//! The code books of the IQ formats and the sign patterns.

use crate::types::GgmlType;

/// Entries of eight magnitudes.
pub(super) static IQ2_XXS: [[u8; 8]; 256] = rows(include_bytes!("grids/iq2xxs_grid.bin"));
/// Entries of eight magnitudes.
pub(super) static IQ2_XS: [[u8; 8]; 512] = rows(include_bytes!("grids/iq2xs_grid.bin"));
/// Entries of eight magnitudes.
pub(super) static IQ2_S: [[u8; 8]; 1024] = rows(include_bytes!("grids/iq2s_grid.bin"));
/// Entries of four magnitudes.
pub(super) static IQ3_XXS: [[u8; 4]; 256] = rows(include_bytes!("grids/iq3xxs_grid.bin"));
/// Entries of four magnitudes.
pub(super) static IQ3_S: [[u8; 4]; 512] = rows(include_bytes!("grids/iq3s_grid.bin"));
/// Entries of eight values −1, 0 or 1, as two's complement.
pub(super) static IQ1_S: [[u8; 8]; 2048] = rows(include_bytes!("grids/iq1s_grid.bin"));

/// Sign bytes by 7-bit index: the eighth bit makes the number of negative values even.
pub(super) static SIGNS: [u8; 128] = even_signs();

/// The code book of a format that has one: its entries one after another, of eight bytes each, or of four in the IQ3 formats.
/// They are magnitudes; in the IQ1 formats values −1, 0 or 1 as two's complement.
pub fn code_book(ty: GgmlType) -> Option<&'static [u8]> {
    Some(match ty {
        GgmlType::IQ2_XXS => IQ2_XXS.as_flattened(),
        GgmlType::IQ2_XS => IQ2_XS.as_flattened(),
        GgmlType::IQ2_S => IQ2_S.as_flattened(),
        GgmlType::IQ3_XXS => IQ3_XXS.as_flattened(),
        GgmlType::IQ3_S => IQ3_S.as_flattened(),
        GgmlType::IQ1_S | GgmlType::IQ1_M => IQ1_S.as_flattened(),
        _ => return None,
    })
}

const fn rows<const WIDTH: usize, const ROWS: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [[u8; WIDTH]; ROWS] {
    assert!(WIDTH * ROWS == BYTES);
    let mut table = [[0; WIDTH]; ROWS];
    let mut at = 0;
    while at < BYTES {
        table[at / WIDTH][at % WIDTH] = bytes[at];
        at += 1;
    }
    table
}

const fn even_signs() -> [u8; 128] {
    let mut table = [0; 128];
    let mut t = 0;
    while t < 128 {
        let bits = t as u8;
        table[t] = bits | ((bits.count_ones() as u8 & 1) << 7);
        t += 1;
    }
    table
}
