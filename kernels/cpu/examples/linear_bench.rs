//! Speed of the matrix products beside what the machine can do.
//!
//! `linear_bench [FORMAT ...] [threads=1,2] [rows=1,8,512] [shape=3072x1024 ...] [copies=N] [compact]`
//!
//! For each format, shape and number of threads, one line for each number of activation rows: the time of a product, the
//! weight bytes read a second as a share of the read bandwidth, and the operations a second as a share of the int8 peak.
//! With `copies=1` and a small shape the weights stay in the caches.

#![allow(unsafe_code, reason = "matmul leaves it to its callers that threads share out the outputs")]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop at once")]

use bantam_cpu::isa::Isa;
use bantam_cpu::linear::{
    ActivationKind, Activations, Batch, Output, PackedMatrix, Packer, QBlock, Scratch, machine, matmul, partition,
    quantize_row,
};
use bantam_gguf::GgmlType;
use std::sync::Barrier;
use std::time::Instant;

/// Weight bytes that all copies of a matrix take together, so that none stays in a cache until its turn comes again.
const WORKING_SET: usize = 256 << 20;
/// Multiply-adds of a sample: short, since only a sample that nothing else on the machine interrupts counts.
const SAMPLE: usize = 100 << 20;
const SAMPLES: usize = 300;

struct Options {
    formats: Vec<GgmlType>,
    threads: Vec<usize>,
    rows: Vec<usize>,
    shapes: Vec<(usize, usize)>,
    copies: Option<usize>,
    compact: bool,
}

impl Options {
    /// The defaults: common formats, the layers of a model of 0.6 billion weights.
    fn new() -> Self {
        Self {
            formats: vec![GgmlType::Q4_K, GgmlType::Q6_K, GgmlType::Q8_0, GgmlType::Q4_1],
            threads: vec![1, 2],
            rows: vec![1, 2, 4, 6, 8, 16, 64, 512],
            shapes: vec![(3072, 1024), (1024, 3072), (151_936, 1024)],
            copies: None,
            compact: false,
        }
    }

    fn parse() -> Self {
        let mut options = Self::new();
        let numbers = |list: &str| list.split(',').map(|n| n.parse().unwrap()).collect();
        let (mut formats, mut shapes) = (Vec::new(), Vec::new());
        for argument in std::env::args().skip(1) {
            match argument.split_once('=') {
                Some(("threads", list)) => options.threads = numbers(list),
                Some(("rows", list)) => options.rows = numbers(list),
                Some(("copies", count)) => options.copies = Some(count.parse().unwrap()),
                Some(("shape", shape)) => {
                    let (rows, cols) = shape.split_once('x').unwrap();
                    shapes.push((rows.parse().unwrap(), cols.parse().unwrap()));
                }
                None if argument == "compact" => options.compact = true,
                _ => formats.push(*GgmlType::ALL.iter().find(|ty| ty.name() == argument).unwrap()),
            }
        }
        if !formats.is_empty() {
            options.formats = formats;
        }
        if !shapes.is_empty() {
            options.shapes = shapes;
        }
        options
    }
}

fn main() {
    let options = Options::parse();
    let isa = Isa::detect();
    println!("isa {}", isa.name());
    for &threads in &options.threads {
        let (bandwidth, peak) = (machine::read_bandwidth(isa, threads).unwrap(), machine::integer_peak(isa, threads));
        println!("{threads} threads: machine {:.1} GB/s, {:.0} GOPS", bandwidth / 1e9, peak / 1e9);
        for &ty in &options.formats {
            for &(rows, cols) in &options.shapes {
                println!("{ty} {rows}x{cols}, {threads} threads");
                measure(&options, (isa, ty, rows, cols), threads, (bandwidth, peak));
            }
        }
    }
}

fn measure(
    options: &Options,
    (isa, ty, rows, cols): (Isa, GgmlType, usize, usize),
    threads: usize,
    (bandwidth, peak): (f64, f64),
) {
    let bytes = random_blocks(ty, rows, cols);
    let copies = options.copies.unwrap_or((WORKING_SET / bytes.len()).max(1));
    let packer = if options.compact { Packer::compact(isa) } else { Packer::new(isa) };
    let start = Instant::now();
    let pack = |_| packer.pack(ty, rows, cols, &bytes).unwrap();
    let matrices: Vec<_> = (0..copies).map(pack).collect();
    let packed = copies as f64 * bytes.len() as f64 / start.elapsed().as_secs_f64();
    println!(
        "  packed at {:.2} GB/s, {:.3} times the size",
        packed / 1e9,
        matrices[0].bytes() as f64 / bytes.len() as f64
    );
    for &batch in &options.rows {
        let seconds = product_time(&matrices, threads, batch);
        let read = matrices[0].bytes() as f64 / seconds;
        let operations = 2.0 * (rows * cols * batch) as f64 / seconds;
        println!(
            "  {batch:4} rows: {:9.1} us {:8.1} us/row {:6.1} GB/s {:3.0}%  {:7.0} GOPS {:3.0}%",
            seconds * 1e6,
            seconds * 1e6 / batch as f64,
            read / 1e9,
            100.0 * read / bandwidth,
            operations / 1e9,
            100.0 * operations / peak
        );
    }
}

/// Seconds that one product takes: the shortest time of all samples, each some tiles of a matrix out of the cache.
fn product_time(matrices: &[PackedMatrix], threads: usize, batch: usize) -> f64 {
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
    let input = Batch::first(input, batch);
    let mut y = vec![0.0; batch * first.rows()];
    let output = Output::new(&mut y, first.rows());
    let sample_tiles = (SAMPLE / (16 * first.cols() * batch)).next_multiple_of(2 * threads).min(first.tiles());
    let starts = |m: &PackedMatrix| (0..=m.tiles() - sample_tiles).step_by(sample_tiles.max(1));
    let places: Vec<_> = matrices.iter().flat_map(|m| starts(m).map(move |tile| (m, tile))).collect();
    let barrier = Barrier::new(threads);
    let worker = |index: usize| -> Vec<f64> {
        let mut scratch = Scratch::new().unwrap();
        let part = partition(sample_tiles, threads, index);
        let time = |&(weights, tile): &(&PackedMatrix, usize)| {
            barrier.wait();
            let start = Instant::now();
            // SAFETY: the parts of a partition do not overlap.
            unsafe { matmul(weights, 0, &input, &output, tile + part.start..tile + part.end, &mut scratch) }.unwrap();
            start.elapsed().as_secs_f64()
        };
        places.iter().cycle().take(SAMPLES).map(time).collect()
    };
    let worker = &worker;
    let times: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|index| scope.spawn(move || worker(index))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let slowest = |i: usize| times.iter().map(|times| times[i]).fold(0.0, f64::max);
    let shortest = (0..SAMPLES).map(slowest).fold(f64::INFINITY, f64::min);
    shortest * first.tiles() as f64 / sample_tiles as f64
}

/// Bytes that are valid blocks with harmless scales.
fn random_blocks(ty: GgmlType, rows: usize, cols: usize) -> Vec<u8> {
    let mut state = 1u64;
    let len = ty.row_bytes(cols).unwrap() * rows;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as u32 & 0x3f3f_3f3f).to_le_bytes()
    });
    words.flatten().take(len).collect()
}
