//! Matrix products on the emulated device, bit by bit against plain loops that add in the same order.

#![allow(clippy::unwrap_used, reason = "tests")]

mod experts;
mod oracle;

use std::sync::LazyLock;

use bantam_cuda::{
    Buffer,
    device::Address,
    linear::{Activations, Input, Linear, Matrix, Product},
};
use bantam_cuda_emulated::under_test;
use bantam_gguf::GgmlType;
use oracle::Numbers;
use proptest::prelude::*;

/// A device whose kernels use the tensor cores, and one whose kernels do not.
static TENSOR: LazyLock<Linear> = LazyLock::new(|| linear(80));
static PLAIN: LazyLock<Linear> = LazyLock::new(|| linear(61));

fn linear(arch: u32) -> Linear {
    let device = under_test(80);
    Linear::new(&device, arch.min(device.arch()))
}

/// The formats with each combination of scales for halves or wholes, with and without offsets.
const KINDS: [GgmlType; 4] = [GgmlType::Q4_0, GgmlType::Q4_K, GgmlType::Q6_K, GgmlType::Q2_K];

/// Columns of which there are some 600, in whole blocks: the last superblock of small blocks is incomplete.
fn some_columns(ty: GgmlType) -> usize {
    600_usize.next_multiple_of(ty.block_len())
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// What a matrix meets, in the form that it takes.
enum Operand {
    Rounded(Activations),
    Floats(Buffer),
}

impl Operand {
    /// Rows of the matrix's columns.
    fn new(linear: &Linear, matrix: &Matrix, x: &[f32], twice: bool) -> Self {
        let floats = Buffer::of_f32(linear.device(), x, "x").unwrap();
        if matrix.takes_floats() {
            return Operand::Floats(floats);
        }
        let cols = matrix.shape()[2];
        let rows = x.len() / cols;
        let rounded = Activations::new(linear.device(), rows, cols, twice).unwrap();
        linear.quantize(floats.address(), rows, &rounded).unwrap();
        Operand::Rounded(rounded)
    }

    fn input(&self) -> Input<'_> {
        match self {
            Operand::Rounded(rounded) => Input::Rounded(rounded),
            Operand::Floats(floats) => Input::Floats(floats.address()),
        }
    }
}

/// The product of all rows of `x`, whose length is a multiple of what a row of the stack takes.
fn multiply(
    linear: &Linear,
    matrix: &Matrix,
    x: &[f32],
    twice: bool,
    bias: Option<Address>,
    add: Option<Address>,
) -> Vec<f32> {
    let [stack, width, cols] = matrix.shape();
    let rows = x.len() / cols / stack;
    let operand = Operand::new(linear, matrix, x, twice);
    let out = Buffer::new(linear.device(), rows * stack * width * 4, "out").unwrap();
    let product = Product { matrix, input: operand.input(), rows, out: out.address(), bias, add };
    linear.multiply(&product).unwrap();
    out.read_f32().unwrap()
}

/// Each format: few rows and many, bit by bit, and near the exact values; and rows read back.
fn meets_plain_loops(linear: &Linear, formats: &[GgmlType]) {
    for &ty in formats {
        let mut numbers = Numbers::new(ty as u64);
        let (width, cols) = (37, some_columns(ty));
        let weights = numbers.weights(ty, width, cols);
        let matrix = linear.matrix(ty, [1, width, cols], &weights, "w").unwrap();
        assert!(matrix.bytes() <= 64 * ty.row_bytes(cols.next_multiple_of(256)).unwrap(), "{ty}");
        let x = numbers.floats(19 * cols);
        let (expected, exact) =
            (oracle::product(ty, &weights, &x, cols, false), oracle::exact(ty, &weights, &x, cols, false));
        for rows in [1, 3, 19] {
            let got = multiply(linear, &matrix, &x[..rows * cols], false, None, None);
            for (i, ((got, expected), (exact, bound))) in got.iter().zip(&expected).zip(&exact).enumerate() {
                assert_eq!(got.to_bits(), expected.to_bits(), "{ty}, {rows} rows, {i}: {got} and {expected}");
                assert!((f64::from(*got) - exact).abs() <= *bound, "{ty}, {rows} rows: {got} is not {exact} ± {bound}");
            }
        }
        let ids = [3, 36, 0, 37, u32::MAX, 3];
        let (there, out) = (
            Buffer::of_u32(linear.device(), &ids, "ids").unwrap(),
            Buffer::new(linear.device(), 6 * cols * 4, "out").unwrap(),
        );
        linear.embed(&matrix, there.address(), ids.len(), out.address()).unwrap();
        let table = oracle::values(ty, &weights);
        for (got, id) in out.read_f32().unwrap().chunks(cols).zip(ids) {
            let expected = table.get(id as usize * cols..).and_then(|rest| rest.get(..cols));
            assert_eq!(bits(got), bits(expected.unwrap_or(&vec![0.0; cols])), "{ty}, row {id}");
        }
    }
}

#[test]
fn formats_of_small_blocks() {
    use GgmlType::{IQ4_NL, MXFP4, NVFP4, Q1_0, Q2_0, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1};
    meets_plain_loops(&linear(80), &[Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q1_0, Q2_0, IQ4_NL, MXFP4, NVFP4]);
}

#[test]
fn formats_of_256_columns() {
    use GgmlType::{IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K, TQ1_0, TQ2_0};
    meets_plain_loops(&linear(80), &[Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K, IQ4_XS, TQ1_0, TQ2_0]);
}

#[test]
fn formats_with_code_books() {
    use GgmlType::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
    meets_plain_loops(&linear(80), &[IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M]);
}

#[test]
fn formats_of_floats() {
    use GgmlType::{BF16, F16, F32};
    meets_plain_loops(&linear(80), &[F32, F16, BF16]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever the numbers of rows, outputs and columns, with tensor cores or without: the same bits.
    #[test]
    fn products_of_any_shape(
        ty in proptest::sample::select(KINDS.to_vec()),
        width in 1..200_usize,
        rows in 1..90_usize,
        size in 1..900_usize,
        tensor in any::<bool>(),
        extras in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let linear: &Linear = if tensor { &TENSOR } else { &PLAIN };
        let mut numbers = Numbers::new(seed);
        let cols = size.next_multiple_of(ty.block_len());
        let weights = numbers.weights(ty, width, cols);
        let matrix = linear.matrix(ty, [1, width, cols], &weights, "w").unwrap();
        let (x, bias, add) = (numbers.floats(rows * cols), numbers.floats(width), numbers.floats(rows * width));
        let there = [&bias, &add].map(|values| Buffer::of_f32(linear.device(), values, "extras").unwrap());
        let [bias_there, add_there] = there.each_ref().map(|buffer| extras.then(|| buffer.address()));
        let got = multiply(linear, &matrix, &x, false, bias_there, add_there);
        let mut expected = oracle::product(ty, &weights, &x, cols, false);
        if extras {
            for ((row, add), y) in (0..).zip(&add).zip(&mut expected) {
                *y = add + (*y + bias[row % width]);
            }
        }
        prop_assert_eq!(bits(&got), bits(&expected));
    }
}

/// More superblocks than are summed between two barriers.
#[test]
fn long_rows() {
    for ty in [GgmlType::Q4_K, GgmlType::BF16] {
        let mut numbers = Numbers::new(5);
        let (width, cols) = (33, 256 * 37);
        let weights = numbers.weights(ty, width, cols);
        let matrix = TENSOR.matrix(ty, [1, width, cols], &weights, "w").unwrap();
        let x = numbers.floats(17 * cols);
        let expected = oracle::product(ty, &weights, &x, cols, false);
        for rows in [1, 2, 4, 8, 15, 17] {
            let got = multiply(&TENSOR, &matrix, &x[..rows * cols], false, None, None);
            assert_eq!(bits(&got), bits(&expected[..rows * width]), "{ty}, {rows} rows");
        }
    }
}

#[test]
fn what_rounding_has_left_is_added() {
    for (ty, linear) in [(GgmlType::Q6_K, &*TENSOR), (GgmlType::Q4_K, &*PLAIN)] {
        let mut numbers = Numbers::new(6);
        let (width, cols) = (70, 768);
        let weights = numbers.weights(ty, width, cols);
        let matrix = linear.matrix(ty, [1, width, cols], &weights, "head").unwrap();
        let x = numbers.floats(21 * cols);
        let (expected, exact) =
            (oracle::product(ty, &weights, &x, cols, true), oracle::exact(ty, &weights, &x, cols, true));
        for rows in [1, 3, 7, 21] {
            let got = multiply(linear, &matrix, &x[..rows * cols], true, None, None);
            assert_eq!(bits(&got), bits(&expected[..rows * width]), "{ty}, {rows} rows");
            for (got, (exact, bound)) in got.iter().zip(&exact) {
                assert!((f64::from(*got) - exact).abs() <= *bound, "{ty}, {rows} rows: {got} is not {exact} ± {bound}");
            }
        }
    }
}

/// Run `g` of a row meets matrix `g`.
#[test]
fn stacks() {
    for ty in [GgmlType::Q4_0, GgmlType::F16] {
        let mut numbers = Numbers::new(7);
        let (stack, width, cols) = (3, 45, 96);
        let weights = numbers.weights(ty, stack * width, cols);
        let matrix = TENSOR.matrix(ty, [stack, width, cols], &weights, "heads").unwrap();
        for rows in [1, 5, 40] {
            let (x, bias) = (numbers.floats(rows * stack * cols), numbers.floats(stack * width));
            let there = Buffer::of_f32(TENSOR.device(), &bias, "bias").unwrap();
            let got = multiply(&TENSOR, &matrix, &x, false, Some(there.address()), None);
            for (run, (x, got)) in x.chunks(cols).zip(got.chunks(width)).enumerate() {
                let g = run % stack;
                let weights = &weights[g * weights.len() / stack..][..weights.len() / stack];
                let mut expected = oracle::product(ty, weights, x, cols, false);
                expected.iter_mut().zip(&bias[g * width..]).for_each(|(y, bias)| *y += bias);
                assert_eq!(bits(got), bits(&expected), "{ty}, {rows} rows, run {run}");
            }
        }
    }
}

/// Floats need no whole number of anything.
#[test]
fn floats_of_odd_shapes() {
    for (ty, width, cols) in [(GgmlType::F32, 3, 1), (GgmlType::F16, 131, 301), (GgmlType::BF16, 64, 250)] {
        let mut numbers = Numbers::new(8);
        let weights = numbers.weights(ty, width, cols);
        let matrix = TENSOR.matrix(ty, [1, width, cols], &weights, "w").unwrap();
        let x = numbers.floats(70 * cols);
        let expected = oracle::product(ty, &weights, &x, cols, false);
        for rows in [1, 2, 7, 17, 33, 70] {
            let got = multiply(&TENSOR, &matrix, &x[..rows * cols], false, None, None);
            assert_eq!(bits(&got), bits(&expected[..rows * width]), "{ty}, {rows} rows");
        }
    }
}

/// Split into terms of 16 bits, floats are multiplied nearly as in f32; and a row's bits depend on that row alone.
#[test]
fn floats_by_the_tensor_cores() {
    let linear = linear(80).splitting_floats();
    for (ty, width, cols) in [(GgmlType::F32, 3, 40), (GgmlType::F16, 131, 301), (GgmlType::BF16, 64, 520)] {
        let mut numbers = Numbers::new(12);
        let weights = numbers.weights(ty, width, cols);
        let matrix = linear.matrix(ty, [1, width, cols], &weights, "w").unwrap();
        // Magnitudes far apart.
        let x: Vec<f32> = (0..90 * cols).map(|i| numbers.float() * 10.0_f32.powi(i as i32 % 11 - 5)).collect();
        let values = oracle::values(ty, &weights);
        let all = multiply(&linear, &matrix, &x, false, None, None);
        for (x, got) in x.chunks(cols).zip(all.chunks(width)) {
            for (w, got) in values.chunks(cols).zip(got) {
                let products = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let (sum, size) =
                    products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs()));
                assert!((f64::from(*got) - sum).abs() <= size * 2.0_f64.powi(-20), "{ty}: {got} is not {sum}");
            }
        }
        for rows in [17, 33] {
            let got = multiply(&linear, &matrix, &x[..rows * cols], false, None, None);
            assert_eq!(bits(&got), bits(&all[..rows * width]), "{ty}, {rows} rows");
        }
    }
}

/// What kernels do not read is made into floats.
#[test]
fn whole_numbers_and_doubles_become_floats() {
    for ty in [GgmlType::I8, GgmlType::I16, GgmlType::I32, GgmlType::F64] {
        let mut numbers = Numbers::new(9);
        let weights = numbers.weights(ty, 5, 40);
        let matrix = TENSOR.matrix(ty, [1, 5, 40], &weights, "w").unwrap();
        assert_eq!(matrix.ty(), GgmlType::F32);
        let x = numbers.floats(40);
        let got = multiply(&TENSOR, &matrix, &x, false, None, None);
        assert_eq!(bits(&got), bits(&oracle::product(ty, &weights, &x, 40, false)), "{ty}");
    }
}

#[test]
fn rows_of_dust_zeros_and_what_is_not_finite() {
    let mut numbers = Numbers::new(10);
    let (ty, width, cols) = (GgmlType::Q4_K, 32, 256);
    let weights = numbers.weights(ty, width, cols);
    let matrix = TENSOR.matrix(ty, [1, width, cols], &weights, "w").unwrap();
    let mut x = vec![0.0; 4 * cols];
    x[cols..2 * cols].fill(1e-40);
    x[2 * cols + 7] = f32::NAN;
    x[3 * cols + 200] = f32::INFINITY;
    let got = multiply(&TENSOR, &matrix, &x, false, None, None);
    assert!(got[..2 * width].iter().all(|y| *y == 0.0));
    assert!(got[2 * width..3 * width].iter().all(|y| y.is_nan()));
    assert!(got[3 * width..].iter().all(|y| !y.is_finite()));
}

#[test]
fn what_does_not_fit_is_refused_with_numbers() {
    let mut numbers = Numbers::new(11);
    let weights = numbers.weights(GgmlType::Q4_0, 32, 64);
    let refused = TENSOR.matrix(GgmlType::Q4_0, [1, 33, 64], &weights, "w").unwrap_err().to_string();
    assert!(refused.contains("`w`: Q4_0 weights of shape [1, 33, 64] do not lie in 1152 bytes"), "{refused}");
    let refused = TENSOR.matrix(GgmlType::Q4_0, [1, 72, 16], &weights, "w").unwrap_err().to_string();
    assert!(refused.contains("[1, 72, 16]"), "{refused}");

    let matrix = TENSOR.matrix(GgmlType::Q4_0, [1, 32, 64], &weights, "w").unwrap();
    let rounded = Activations::new(TENSOR.device(), 2, 64, false).unwrap();
    let out = Buffer::new(TENSOR.device(), 4096, "out").unwrap();
    let try_with = |input, rows| {
        let product = Product { matrix: &matrix, input, rows, out: out.address(), bias: None, add: None };
        TENSOR.multiply(&product).unwrap_err().to_string()
    };
    let refused = try_with(Input::Rounded(&rounded), 3);
    assert!(refused.contains("3 rows of 64 columns are asked for, the activations have room for 2 of 64"), "{refused}");
    let refused = try_with(Input::Floats(out.address()), 1);
    assert!(refused.contains("Q4_0 weights take rounded activations"), "{refused}");
}
