//! Speed of the matrix products beside what the machine can do: `linear_bench [FORMAT ...]`.
//!
//! Prints one row for each format, shape, number of threads and number of activation rows: the time of a product, the
//! weight bytes read a second as a share of the read bandwidth, and the operations a second as a share of the int8 peak.

#![allow(unsafe_code, reason = "matmul leaves it to its callers that threads share out the outputs")]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop at once")]

use bantam_cpu::isa::Isa;
use bantam_cpu::linear::{
    ActivationKind, Activations, Batch, Output, PackedMatrix, QBlock, Scratch, machine, matmul, partition, quantize_row,
};
use bantam_gguf::GgmlType;
use std::sync::Barrier;
use std::time::Instant;

/// Outputs × inputs of the layers of a model of 0.6 billion weights, the largest last.
const SHAPES: [(usize, usize); 3] = [(3072, 1024), (1024, 3072), (151_936, 1024)];
const BATCHES: [usize; 8] = [1, 2, 4, 6, 8, 16, 64, 512];
/// Weights that all copies of a matrix hold together, so that none stays in a cache until its turn comes again.
const WORKING_SET: usize = 256 << 20;
/// Multiply-adds after which a measurement is long enough.
const ENOUGH: usize = 3 << 30;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let chosen = |ty: &&GgmlType| match names.as_slice() {
        [] => matches!(ty, GgmlType::Q4_K | GgmlType::Q6_K | GgmlType::Q8_0 | GgmlType::Q4_1),
        names => names.iter().any(|name| name == ty.name()),
    };
    let isa = Isa::detect();
    println!("isa {}", isa.name());
    for threads in [1, 2] {
        for &ty in GgmlType::ALL.iter().filter(chosen) {
            for (rows, cols) in SHAPES {
                measure(isa, threads, ty, rows, cols);
            }
        }
    }
}

fn measure(isa: Isa, threads: usize, ty: GgmlType, rows: usize, cols: usize) {
    let bytes = random_blocks(ty, rows, cols);
    let copies = (WORKING_SET / bytes.len()).clamp(1, 64);
    let matrices: Vec<_> = (0..copies).map(|_| PackedMatrix::pack(ty, rows, cols, &bytes, isa).unwrap()).collect();
    let bandwidth = best(3, || machine::read_bandwidth(isa, threads).unwrap());
    let peak = best(3, || machine::integer_peak(isa, threads));
    println!("{ty} {rows}x{cols}, {threads} threads: machine {:.1} GB/s, {:.0} GOPS", bandwidth / 1e9, peak / 1e9);
    for batch in BATCHES {
        let macs = rows * cols * batch;
        let rounds = (ENOUGH / macs / if batch == 1 { 4 } else { 1 }).clamp(2, 2000);
        let seconds = 1.0 / best(3, || 1.0 / run(&matrices, threads, batch, rounds));
        let read = matrices[0].bytes() as f64 / seconds;
        let ops = 2.0 * macs as f64 / seconds;
        println!(
            "  {batch:4} rows: {:9.1} us {:8.1} us/row {:6.1} GB/s {:3.0}%  {:7.0} GOPS {:3.0}%",
            seconds * 1e6,
            seconds * 1e6 / batch as f64,
            read / 1e9,
            100.0 * read / bandwidth,
            ops / 1e9,
            100.0 * ops / peak
        );
    }
}

fn best(times: usize, mut measurement: impl FnMut() -> f64) -> f64 {
    (0..times).map(|_| measurement()).fold(0.0, f64::max)
}

/// Seconds that one product takes, on average over `rounds` matrices.
fn run(matrices: &[PackedMatrix], threads: usize, batch: usize, rounds: usize) -> f64 {
    let first = &matrices[0];
    let x: Vec<f32> = (0..batch * first.cols()).map(|i| (i as f32 * 0.37).sin()).collect();
    let per_row = QBlock::count(first.cols());
    let mut blocks = vec![QBlock::default(); batch * per_row];
    for (row, out) in x.chunks(first.cols()).zip(blocks.chunks_mut(per_row)) {
        quantize_row(first.isa(), row, out);
    }
    let input = match first.activation() {
        ActivationKind::Float => Activations::Float { values: &x, stride: first.cols() },
        ActivationKind::Quantized => Activations::Quantized { blocks: &blocks, stride: per_row },
    };
    let batch_rows = Batch::first(input, batch);
    let mut y = vec![0.0; batch * first.rows()];
    let output = Output::new(&mut y, first.rows());
    let barrier = Barrier::new(threads);
    let work = |index: usize| {
        let mut scratch = Scratch::new().unwrap();
        barrier.wait();
        let start = Instant::now();
        for weights in matrices.iter().cycle().take(rounds) {
            let tiles = partition(weights.tiles(), threads, index);
            // SAFETY: the parts of a partition do not overlap.
            unsafe { matmul(weights, 0, &batch_rows, &output, tiles, &mut scratch) }.unwrap();
        }
        start.elapsed().as_secs_f64() / rounds as f64
    };
    let work = &work;
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|index| scope.spawn(move || work(index))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).fold(0.0, f64::max)
    })
}

/// Bytes that are valid blocks with harmless scales.
fn random_blocks(ty: GgmlType, rows: usize, cols: usize) -> Vec<u8> {
    let mut state = 1u64;
    let len = ty.row_bytes(cols).unwrap() * rows;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as u32 & 0x3f3f_3f3f).to_le_bytes()
    })
    .flatten()
    .take(len)
    .collect()
}
