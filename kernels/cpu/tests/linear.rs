//! Matrix products of every weight format on every instruction set of the machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(unsafe_code, reason = "matmul leaves it to its callers that threads share out the outputs")]

use bantam_backend::SharedBytes;
use bantam_cpu::isa::Isa;
use bantam_cpu::linear::{
    ActivationKind, Activations, Batch, MatmulError, Output, PackError, PackedMatrix, Packer, QBlock, Scratch, matmul,
    partition, quantize_row,
};
use bantam_gguf::{GgmlType, dequantize};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::LazyLock;

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/quants").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn manifest() -> Vec<Value> {
    let manifest: Value = serde_json::from_slice(&fixture("quants.json")).unwrap();
    manifest["types"].as_array().unwrap().clone()
}

fn type_named(name: &str) -> GgmlType {
    *GgmlType::ALL.iter().find(|ty| ty.name() == name).unwrap()
}

/// Whether the format is one for weights.
fn is_weight(ty: GgmlType) -> bool {
    use GgmlType::{BF16, F16, F32};
    ty.is_quantized() || matches!(ty, F32 | F16 | BF16)
}

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// Activation rows in the form that a matrix takes.
struct Rows {
    values: Vec<f32>,
    blocks: Vec<QBlock>,
    kind: ActivationKind,
    cols: usize,
}

impl Rows {
    fn new(isa: Isa, kind: ActivationKind, values: &[f32], cols: usize) -> Self {
        let per_row = QBlock::count(cols);
        let mut blocks = vec![QBlock::default(); values.len() / cols * per_row];
        for (row, out) in values.chunks(cols).zip(blocks.chunks_mut(per_row)) {
            quantize_row(isa, row, out);
        }
        Self { values: values.to_vec(), blocks, kind, cols }
    }

    fn len(&self) -> usize {
        self.values.len() / self.cols
    }

    fn activations(&self) -> Activations<'_> {
        match self.kind {
            ActivationKind::Float => Activations::Float { values: &self.values, stride: self.cols },
            ActivationKind::Quantized => {
                Activations::Quantized { blocks: &self.blocks, stride: QBlock::count(self.cols) }
            }
        }
    }

    /// The values that the kernel works with.
    fn row(&self, index: usize) -> Vec<f32> {
        match self.kind {
            ActivationKind::Float => self.values[index * self.cols..][..self.cols].to_vec(),
            ActivationKind::Quantized => {
                let per_row = QBlock::count(self.cols);
                self.blocks[index * per_row..][..per_row].iter().flat_map(QBlock::values).collect()
            }
        }
    }
}

/// What no kernel may leave where it should have written, nor write elsewhere.
const UNTOUCHED: f32 = -12345.678;

fn run(weights: &PackedMatrix, matrix: usize, batch: &Batch<'_>, out_rows: usize, tiles: Range<usize>) -> Vec<f32> {
    let mut y = vec![UNTOUCHED; out_rows * weights.rows()];
    let output = Output::new(&mut y, weights.rows());
    // SAFETY: nobody else knows `y`, and the tests scatter to different rows.
    unsafe { matmul(weights, matrix, batch, &output, tiles, &mut Scratch::new().unwrap()) }.unwrap();
    y
}

fn run_all(weights: &PackedMatrix, rows: &Rows) -> Vec<f32> {
    let batch = Batch::first(rows.activations(), rows.len());
    run(weights, 0, &batch, rows.len(), 0..weights.tiles())
}

/// The dot product in f64, and the sum of its terms' magnitudes.
fn exact_dot(weights: &[f32], x: &[f32]) -> (f64, f64) {
    let terms = weights.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
    terms.fold((0.0, 0.0), |(sum, magnitude), term| (sum + term, magnitude + term.abs()))
}

#[test]
fn every_format_meets_the_reference_dot_products() {
    let activation = floats(&fixture("activation.f32"));
    for entry in manifest() {
        let ty = type_named(entry["name"].as_str().unwrap());
        if !is_weight(ty) {
            continue;
        }
        let bytes = fixture(entry["data"].as_str().unwrap());
        let numbers = |field: &str| -> Vec<f64> {
            entry[field].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
        };
        let (dots, magnitudes) = (numbers("dot"), numbers("dot_abs"));
        let rounding = if ty.is_quantized() { numbers("dot_bound_q8_0") } else { vec![0.0; 8] };
        for (isa, form) in isas().flat_map(|isa| FORMS.map(|form| (isa, form))) {
            let weights = form.matrix(isa, ty, 1, 8, 512, &bytes);
            let expected = match form {
                Form::Packed => Packer::new(isa).bytes(ty, 1, 8, 512),
                Form::Compact => Packer::compact(isa).bytes(ty, 1, 8, 512),
                Form::Kept => Some(bytes.len()),
            };
            assert_eq!(expected, Some(weights.bytes()));
            let y = run_all(&weights, &Rows::new(isa, weights.activation(), &activation, 512));
            for n in 0..8 {
                let difference = (f64::from(y[n]) - dots[n]).abs();
                let bound = rounding[n] + 2e-6 * magnitudes[n];
                assert!(difference <= bound, "{ty} {isa:?} row {n}: off by {difference:e}, allowed {bound:e}");
            }
        }
    }
}

/// Blocks of every weight format to build matrices from: real ones, and random bits that reach every code. Weights so
/// large that a sum overflows are left out.
static BLOCKS: LazyLock<BTreeMap<GgmlType, Vec<Vec<u8>>>> = LazyLock::new(|| {
    let entries = manifest().into_iter();
    let pools = entries.map(|entry| -> (GgmlType, Vec<Vec<u8>>) {
        let ty = type_named(entry["name"].as_str().unwrap());
        let mut bytes = fixture(entry["data"].as_str().unwrap());
        if let Some(random) = entry["bits_data"].as_str() {
            bytes.extend(fixture(random));
        }
        let blocks = bytes.chunks(ty.block_bytes()).filter(|block| {
            let mut weights = vec![0.0; ty.block_len()];
            dequantize(ty, block, &mut weights).unwrap();
            weights.iter().all(|w| w.abs() < 1e30)
        });
        (ty, blocks.map(<[u8]>::to_vec).collect())
    });
    pools.filter(|(ty, _)| is_weight(*ty)).collect()
});

/// How a matrix may lie in memory.
#[derive(Clone, Copy, Debug)]
enum Form {
    Packed,
    Compact,
    Kept,
}

const FORMS: [Form; 3] = [Form::Packed, Form::Compact, Form::Kept];

impl Form {
    fn matrix(self, isa: Isa, ty: GgmlType, matrices: usize, rows: usize, cols: usize, bytes: &[u8]) -> PackedMatrix {
        let matrix = match self {
            Form::Packed => Packer::new(isa).pack_stacked(ty, matrices, rows, cols, bytes),
            Form::Compact => Packer::compact(isa).pack_stacked(ty, matrices, rows, cols, bytes),
            Form::Kept => {
                // Tensors of a file begin anywhere.
                let shared = SharedBytes::owned([&[0xa5; 3], bytes].concat());
                Packer::new(isa).keep(ty, matrices, rows, cols, shared.slice(3..3 + bytes.len()).unwrap())
            }
        };
        matrix.unwrap()
    }
}

/// A product with its weights as bytes of the format.
#[derive(Clone)]
struct Case {
    ty: GgmlType,
    rows: usize,
    cols: usize,
    bytes: Vec<u8>,
    x: Vec<f32>,
    form: Form,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} x {}, {} activation rows", self.ty, self.rows, self.cols, self.x.len() / self.cols)
    }
}

impl Case {
    fn pack(&self, isa: Isa) -> PackedMatrix {
        self.form.matrix(isa, self.ty, 1, self.rows, self.cols, &self.bytes)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let types: Vec<GgmlType> = BLOCKS.keys().copied().collect();
    let form = proptest::sample::select(FORMS.to_vec());
    (proptest::sample::select(types), 1usize..52, 1usize..24, 1usize..1200, any::<u64>(), form)
        .prop_map(|(ty, rows, batch, size, seed, form)| case(ty, rows, batch, size, seed, form))
}

/// Blocks and activations chosen by `seed`, of at least `size` columns.
fn case(ty: GgmlType, rows: usize, batch: usize, size: usize, seed: u64, form: Form) -> Case {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize >> 8
    };
    let blocks = size.div_ceil(ty.block_len());
    let pool = &BLOCKS[&ty];
    let bytes = (0..rows * blocks).flat_map(|_| pool[next() % pool.len()].clone()).collect();
    let cols = blocks * ty.block_len();
    let x = (0..batch * cols).map(|_| (next() % 2001) as f32 / 1000.0 - 1.0).collect();
    Case { ty, rows, cols, bytes, x, form }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn products_of_any_shape_are_right(case in cases()) {
        let mut weights = vec![0.0; case.rows * case.cols];
        dequantize(case.ty, &case.bytes, &mut weights).unwrap();
        for isa in isas() {
            let packed = case.pack(isa);
            let rows = Rows::new(isa, packed.activation(), &case.x, case.cols);
            let y = run_all(&packed, &rows);
            for (r, y) in y.chunks(case.rows).enumerate() {
                let x = rows.row(r);
                for (n, y) in y.iter().enumerate() {
                    let (dot, magnitude) = exact_dot(&weights[n * case.cols..][..case.cols], &x);
                    let difference = (f64::from(*y) - dot).abs();
                    prop_assert!(difference <= 4e-6 * magnitude, "{} {isa:?} [{r}][{n}]: {y}, not {dot}", case.ty);
                }
            }
        }
    }

    #[test]
    fn a_result_depends_on_its_rows_alone(case in cases(), cut in 0.0..1.0f64, order in any::<u64>()) {
        for isa in isas() {
            let packed = case.pack(isa);
            let rows = Rows::new(isa, packed.activation(), &case.x, case.cols);
            let count = rows.len();
            let together = run_all(&packed, &rows);

            // Gathered one row at a time, in two ranges of tiles, against all rows at once.
            let middle = (cut * packed.tiles() as f64) as usize;
            let columns = middle * 16;
            for r in 0..count {
                let alone = Batch { rows: 1, gather: Some(&[r as u32]), ..Batch::first(rows.activations(), 1) };
                let left = run(&packed, 0, &alone, 1, 0..middle);
                let right = run(&packed, 0, &alone, 1, middle..packed.tiles());
                let split = columns.min(case.rows);
                let expected = &together[r * case.rows..][..case.rows];
                prop_assert_eq!(bits(&left[..split]), bits(&expected[..split]));
                prop_assert_eq!(bits(&right[split..]), bits(&expected[split..]));
                prop_assert!(left[split..].iter().chain(&right[..split]).all(|y| *y == UNTOUCHED));
            }

            // Every other row, rotated, to the end of a longer output.
            let gather: Vec<u32> = (0..count as u64).map(|r| ((r + order % 64) % count as u64) as u32).step_by(2).collect();
            let scatter: Vec<u32> = (0..gather.len() as u32).map(|r| 2 * count as u32 - 1 - r).collect();
            let batch = Batch {
                gather: Some(&gather),
                scatter: Some(&scatter),
                ..Batch::first(rows.activations(), gather.len())
            };
            let scattered = run(&packed, 0, &batch, 2 * count, 0..packed.tiles());
            for (from, to) in gather.iter().zip(&scatter) {
                let (from, to) = (*from as usize * case.rows, *to as usize * case.rows);
                prop_assert_eq!(bits(&together[from..][..case.rows]), bits(&scattered[to..][..case.rows]));
            }
            let written = scattered.chunks(case.rows).filter(|row| row.iter().any(|y| *y != UNTOUCHED)).count();
            prop_assert_eq!(written, gather.len());
        }
    }

    #[test]
    fn what_rounding_has_left_is_added(case in cases()) {
        let mut weights = vec![0.0; case.rows * case.cols];
        dequantize(case.ty, &case.bytes, &mut weights).unwrap();
        for isa in isas() {
            let packed = case.pack(isa);
            if packed.activation() == ActivationKind::Float {
                continue;
            }
            let rows = Rows::new(isa, packed.activation(), &case.x, case.cols);
            let left = case.x.chunks(case.cols).zip(0..).flat_map(|(x, r)| {
                x.iter().zip(rows.row(r)).map(|(x, rounded)| x - rounded).collect::<Vec<_>>()
            });
            let rest = Rows::new(isa, packed.activation(), &left.collect::<Vec<_>>(), case.cols);
            let of = |first: usize, count: usize| {
                let gather: Vec<u32> = (first as u32..(first + count) as u32).collect();
                let batch = Batch { gather: Some(&gather), ..Batch::first(rows.activations(), count) };
                run(&packed, 0, &Batch { rest: Some(rest.activations()), ..batch }, count, 0..packed.tiles())
            };
            let together = of(0, rows.len());
            for (r, y) in together.chunks(case.rows).enumerate() {
                prop_assert_eq!(bits(y), bits(&of(r, 1)));
                for (n, y) in y.iter().enumerate() {
                    let (dot, magnitude) = exact_dot(&weights[n * case.cols..][..case.cols], &case.x[r * case.cols..][..case.cols]);
                    let difference = (f64::from(*y) - dot).abs();
                    // Blocks reach 1, half a step of the second rounding is 1 / 127² / 2 of that.
                    let sum: f64 = weights[n * case.cols..][..case.cols].iter().map(|w| f64::from(w.abs())).sum();
                    let bound = 4e-6 * magnitude + 3.2e-5 * sum;
                    prop_assert!(difference <= bound, "{} {isa:?} [{r}][{n}]: {y}, not {dot}", case.ty);
                }
            }
        }
    }

    #[test]
    fn a_stack_is_its_matrices(case in cases(), matrices in 1usize..4) {
        for isa in isas() {
            let bytes: Vec<u8> = std::iter::repeat_n(case.bytes.as_slice(), matrices).flatten().copied().collect();
            // Reversed rows make the last matrix differ from the others.
            let row_bytes = case.bytes.len() / case.rows;
            let mut bytes = bytes;
            let last = bytes.len() - case.bytes.len();
            for (n, row) in bytes[last..].chunks_mut(row_bytes).enumerate() {
                row.copy_from_slice(&case.bytes[(case.rows - 1 - n) * row_bytes..][..row_bytes]);
            }
            let stack = case.form.matrix(isa, case.ty, matrices, case.rows, case.cols, &bytes);
            let rows = Rows::new(isa, stack.activation(), &case.x, case.cols);
            let batch = Batch::first(rows.activations(), rows.len());
            let single = run_all(&case.pack(isa), &rows);
            let reversed = run(&stack, matrices - 1, &batch, rows.len(), 0..stack.tiles());
            for (single, reversed) in single.chunks(case.rows).zip(reversed.chunks(case.rows)) {
                let back: Vec<f32> = reversed.iter().rev().copied().collect();
                prop_assert_eq!(bits(single), bits(&back));
            }
            if matrices > 1 {
                prop_assert_eq!(bits(&single), bits(&run(&stack, 0, &batch, rows.len(), 0..stack.tiles())));
            }
        }
    }

    #[test]
    fn rounding_to_8_bits_is_the_same_everywhere_and_close(
        x in proptest::collection::vec(-1e3f32..1e3, 1..200),
        spare in 0usize..3,
        exponent in -30i32..30,
    ) {
        let x: Vec<f32> = x.iter().map(|v| v * 2f32.powi(exponent)).collect();
        let reference = quantized(Isa::Portable, &x, spare);
        for isa in isas() {
            prop_assert_eq!(&quantized(isa, &x, spare), &reference);
        }
        for (x, block) in x.chunks(QBlock::LEN).zip(&reference) {
            let largest = x.iter().fold(0f32, |max, v| max.max(v.abs()));
            for (x, q) in x.iter().zip(block.values()) {
                prop_assert!((x - q).abs() <= largest * (0.5001 / 127.0), "{x} became {q} beside {largest}");
            }
        }
        for block in &reference[QBlock::count(x.len())..] {
            prop_assert_eq!(*block, QBlock::default());
        }
    }
}

proptest! {
    #[test]
    fn a_matrix_gives_the_same_bits_however_it_lies_in_memory(
        ty in prop::sample::select(BLOCKS.keys().copied().collect::<Vec<_>>()),
        rows in 1usize..52, batch in 1usize..40, size in 1usize..1200, seed in any::<u64>(),
    ) {
        for isa in isas() {
            let case = case(ty, rows, batch, size, seed, Form::Packed);
            let packed = case.pack(isa);
            let input = Rows::new(isa, packed.activation(), &case.x, case.cols);
            let expected = bits(&run_all(&packed, &input));
            let twice = |weights: &PackedMatrix| {
                // Any blocks will do as what rounding has left: here the rounded ones.
                let rest = matches!(weights.activation(), ActivationKind::Quantized).then(|| input.activations());
                let batch = Batch { rest, ..Batch::first(input.activations(), input.len()) };
                bits(&run(weights, 0, &batch, input.len(), 0..weights.tiles()))
            };
            let expected_twice = twice(&packed);
            for form in [Form::Compact, Form::Kept] {
                let other = Case { form, ..case.clone() }.pack(isa);
                prop_assert_eq!(&bits(&run_all(&other, &input)), &expected, "{} {:?} {:?}", ty, isa, form);
                prop_assert_eq!(&twice(&other), &expected_twice, "{} {:?} {:?}", ty, isa, form);
            }
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn quantized(isa: Isa, x: &[f32], spare: usize) -> Vec<QBlock> {
    let mut blocks = vec![QBlock::default(); QBlock::count(x.len()) + spare];
    quantize_row(isa, x, &mut blocks);
    blocks
}

#[test]
fn what_is_not_finite_stays_so() {
    let bytes = fixture("q4_k.bin");
    for isa in isas() {
        for (bad, ty) in
            [(f32::NAN, GgmlType::Q4_K), (f32::INFINITY, GgmlType::Q4_K), (f32::NEG_INFINITY, GgmlType::Q4_K)]
        {
            let mut x = vec![0.5; 512];
            x[77] = bad;
            let weights = Packer::new(isa).pack(ty, 8, 512, &bytes).unwrap();
            let y = run_all(&weights, &Rows::new(isa, weights.activation(), &x, 512));
            assert!(y.iter().all(|y| !y.is_finite()), "{isa:?}: {bad} gave {y:?}");
        }
    }
}

#[test]
fn rows_of_dust_and_zeros_give_zeros() {
    let bytes = fixture("q6_k.bin");
    for isa in isas() {
        for value in [0.0, -0.0, 1e-40, -1e-38] {
            let weights = Packer::new(isa).pack(GgmlType::Q6_K, 8, 512, &bytes).unwrap();
            let y = run_all(&weights, &Rows::new(isa, weights.activation(), &vec![value; 512], 512));
            assert!(y.iter().all(|y| *y == 0.0), "{isa:?}: {value:e} gave {y:?}");
        }
    }
}

#[test]
fn threads_that_share_out_a_matrix_write_what_one_would() {
    let (rows, cols) = (200, 512);
    let bytes: Vec<u8> = fixture("q4_k.bin").repeat(rows / 8);
    let weights = Packer::new(Isa::detect()).pack(GgmlType::Q4_K, rows, cols, &bytes).unwrap();
    let x: Vec<f32> = (0..9 * cols).map(|i| (i as f32).sin()).collect();
    let input = Rows::new(Isa::detect(), weights.activation(), &x, cols);
    let batch = Batch::first(input.activations(), 9);
    let mut y = vec![UNTOUCHED; 9 * rows];
    let output = Output::new(&mut y, rows);
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (weights, batch) = (&weights, &batch);
            scope.spawn(move || {
                let tiles = partition(weights.tiles(), 3, worker);
                // SAFETY: the parts of a partition do not overlap.
                unsafe { matmul(weights, 0, batch, &output, tiles, &mut Scratch::new().unwrap()) }.unwrap();
            });
        }
    });
    assert_eq!(bits(&y), bits(&run_all(&weights, &input)));
}

#[test]
fn what_does_not_fit_is_refused_with_numbers() {
    let isa = Isa::detect();
    let pack = |ty, rows, cols, len| Packer::new(isa).pack(ty, rows, cols, &vec![0; len]).map(|_| ());
    assert_eq!(pack(GgmlType::I32, 4, 4, 64), Err(PackError::Format { ty: GgmlType::I32 }));
    assert_eq!(pack(GgmlType::Q4_K, 1, 255, 144), Err(PackError::Cols { ty: GgmlType::Q4_K, cols: 255 }));
    assert!(matches!(pack(GgmlType::Q8_0, 2, 32, 67), Err(PackError::Bytes { expected: 68, found: 67, .. })));
    assert!(matches!(pack(GgmlType::F32, usize::MAX, 32, 64), Err(PackError::Bytes { expected: usize::MAX, .. })));
    assert_eq!(pack(GgmlType::Q8_0, 0, 32, 0), Ok(()));
    let keep = Packer::new(isa).keep(GgmlType::Q8_0, 1, 2, 32, SharedBytes::owned(vec![0; 67]));
    assert!(matches!(keep, Err(PackError::Bytes { expected: 68, found: 67, .. })));

    let weights = Packer::new(isa).pack(GgmlType::Q8_0, 20, 64, &vec![0; 20 * 68]).unwrap();
    let x = Rows::new(isa, ActivationKind::Quantized, &[1.0; 3 * 64], 64);
    let float = Rows::new(isa, ActivationKind::Float, &[1.0; 3 * 64], 64);
    let refused = |batch: Batch<'_>, matrix, tiles, places: usize| {
        let mut y = vec![UNTOUCHED; places];
        let output = Output::new(&mut y, 20);
        // SAFETY: nobody else knows `y`.
        let result = unsafe { matmul(&weights, matrix, &batch, &output, tiles, &mut Scratch::new().unwrap()) };
        assert!(y.iter().all(|y| *y == UNTOUCHED));
        result.unwrap_err()
    };
    let good = Batch::first(x.activations(), 3);
    assert!(matches!(refused(Batch::first(float.activations(), 3), 0, 0..2, 60), MatmulError::Kind { .. }));
    let range = |what, index, count| MatmulError::Range { what, index, count };
    assert_eq!(refused(good, 1, 0..2, 60), range("matrix", 1, 1));
    assert_eq!(refused(good, 0, 0..3, 60), range("tile", 2, 2));
    assert_eq!(refused(good, 0, 0..2, 59), range("output row", 2, 2));
    assert_eq!(refused(Batch { rows: 4, ..good }, 0, 0..2, 80), range("input row", 3, 3));
    assert_eq!(refused(Batch { gather: Some(&[0, 3, 1]), ..good }, 0, 0..2, 60), range("input row", 3, 3));
    assert_eq!(refused(Batch { scatter: Some(&[0, 1]), ..good }, 0, 0..2, 60), range("output row", 3, 2));
}
