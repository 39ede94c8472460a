//! Every number format against ggml's own decoding, bit for bit.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::PathBuf;

use bantam_gguf::{FormatError, GgmlType, UnpackedBlock, dequantize, dequantize_row, unpack_block};
use proptest::prelude::*;

fn fixture(name: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/quants").join(name);
    path.exists().then(|| fs::read(path).unwrap())
}

/// Encoded blocks and their exact values: rows that ggml quantized, and blocks of random bits, which reach every code
/// (formats of plain values and of activations have only the former).
fn cases(ty: GgmlType) -> Vec<(Vec<u8>, Vec<f32>)> {
    let stem = ty.name().to_lowercase();
    let case = |suffix: &str| {
        let values = fixture(&format!("{stem}{suffix}.f32"))?;
        let values = values.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        Some((fixture(&format!("{stem}{suffix}.bin")).unwrap(), values))
    };
    let cases: Vec<_> = ["", ".bits"].into_iter().filter_map(case).collect();
    let activations = [GgmlType::Q8_1, GgmlType::Q8_K].contains(&ty);
    assert_eq!(cases.len(), if ty.is_quantized() && !activations { 2 } else { 1 }, "fixtures of {ty}");
    cases
}

fn assert_same_bits(found: &[f32], expected: &[f32], ty: GgmlType) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert_eq!(a.to_bits(), b.to_bits(), "{ty}: value {i}: {a} for {b}");
    }
}

#[test]
fn every_format_decodes_to_the_bits_of_ggml() {
    for &ty in GgmlType::ALL {
        for (bytes, expected) in cases(ty) {
            let mut out = vec![f32::NAN; expected.len()];
            dequantize(ty, &bytes, &mut out).unwrap();
            assert_same_bits(&out, &expected, ty);
        }
    }
}

#[test]
fn unpacked_blocks_give_the_same_bits() {
    let quantized = GgmlType::ALL.iter().filter(|ty| ty.is_quantized());
    for &ty in quantized {
        // One block for all: what an earlier block left in it must not show.
        let mut block = UnpackedBlock::new();
        for (bytes, expected) in cases(ty) {
            for (bytes, expected) in bytes.chunks(ty.block_bytes()).zip(expected.chunks(ty.block_len())) {
                unpack_block(ty, bytes, &mut block).unwrap();
                assert_eq!((block.len, block.group), (ty.block_len(), ty.unpack_group()), "{ty}");
                let values: Vec<f32> = (0..block.len)
                    .map(|i| {
                        let product = f32::from(block.q[i]) * block.scale[i / block.group];
                        if block.has_min { product + block.min[i / block.group] } else { product }
                    })
                    .collect();
                assert_same_bits(&values, expected, ty);
            }
        }
    }
}

#[test]
fn rows_are_cut_out_of_tensors() {
    for &ty in GgmlType::ALL {
        let (bytes, expected) = cases(ty).swap_remove(0);
        for (row, expected) in expected.chunks(512).enumerate() {
            let mut out = vec![f32::NAN; 512];
            dequantize_row(ty, &bytes, row, &mut out).unwrap();
            assert_same_bits(&out, expected, ty);
        }
        let rows = expected.len() / 512;
        for row in [rows, usize::MAX] {
            let outside = FormatError::Row { ty, row, len: 512, bytes: bytes.len() };
            assert_eq!(dequantize_row(ty, &bytes, row, &mut [0.0; 512]), Err(outside));
        }
    }
}

#[test]
fn plain_formats_have_no_blocks_to_unpack() {
    for &ty in GgmlType::ALL.iter().filter(|ty| !ty.is_quantized()) {
        let error = unpack_block(ty, &vec![0; ty.block_bytes()], &mut UnpackedBlock::new());
        assert_eq!(error, Err(FormatError::NotQuantized { ty }));
    }
}

fn any_type() -> impl Strategy<Value = GgmlType> {
    proptest::sample::select(GgmlType::ALL)
}

fn quantized_type() -> impl Strategy<Value = GgmlType> {
    let quantized: Vec<_> = GgmlType::ALL.iter().copied().filter(|ty| ty.is_quantized()).collect();
    proptest::sample::select(quantized)
}

proptest! {
    #[test]
    fn any_bytes_decode(ty in any_type(), blocks in 0..3usize, seed in proptest::collection::vec(any::<u8>(), 292 * 3)) {
        let bytes = &seed[..blocks * ty.block_bytes()];
        let mut out = vec![0.0; blocks * ty.block_len()];
        prop_assert_eq!(dequantize(ty, bytes, &mut out), Ok(()));
    }

    #[test]
    fn a_length_that_does_not_fit_is_refused(ty in any_type(), bytes in 0..1000usize, values in 0..1000usize) {
        prop_assume!(ty.row_bytes(values) != Some(bytes));
        let error = Err(FormatError::Length { ty, bytes, values });
        prop_assert_eq!(dequantize(ty, &vec![0; bytes], &mut vec![0.0; values]), error);
    }

    #[test]
    fn a_block_of_another_size_is_refused(ty in quantized_type(), size in 0..300usize) {
        let bytes = size + usize::from(size >= ty.block_bytes());
        let error = Err(FormatError::Length { ty, bytes, values: ty.block_len() });
        prop_assert_eq!(unpack_block(ty, &vec![0; bytes], &mut UnpackedBlock::new()), error);
    }
}
