//! How near matrix products come to what the machine can do, format by format and for several numbers of rows.
//!
//! `cargo bench -p bantam-cpu --bench matrix -- [FORMAT…]`; the environment's `THREADS` says with how many threads, `SHAPE`
//! (`3072x1024`: outputs, columns) for which matrices, `ROWS` (`1,8`) for how many rows, `PIECE` how many tiles a thread takes
//! at a time (16 in mixtures of experts); with `TWICE`, activations come with what rounding has left of them. The machine's
//! reading of memory and its peak of 8-bit arithmetic are measured between any two formats, since shared machines drift:
//! shares are of what was measured right before. All figures are those of the best sample.

#![allow(unsafe_code, reason = "matmul leaves it to its callers that threads share out the outputs")]
#![allow(clippy::print_stdout, reason = "its result")]

use std::{
    error::Error,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bantam_cpu::{
    Broken, Team,
    isa::Isa,
    linear::{
        ActivationKind, Activations, Batch, Output, PackedMatrix, Packer, QBlock, Scratch, machine, matmul, partition,
        quantize_row,
    },
};
use bantam_gguf::GgmlType;

/// Outputs and columns of each matrix, unless the environment says otherwise.
const SHAPE: (usize, usize) = (2048, 2048);
/// Bytes of all matrices together: far more than caches hold.
const BYTES: usize = 192 << 20;
/// Rows of activations.
const ROWS: [usize; 7] = [1, 2, 4, 8, 16, 64, 512];
/// How long each figure is sampled, and how often at least.
const SAMPLED: (Duration, usize) = (Duration::from_millis(300), 5);
/// Multiplications and additions of a thread in a sample, at most: few enough for some samples to pass undisturbed.
const SAMPLE: usize = 96 << 20;

/// The formats that are measured unless some are named.
const FORMATS: [GgmlType; 12] = {
    use GgmlType::{F16, IQ2_XXS, IQ3_S, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0};
    [Q8_0, Q4_0, Q4_1, Q4_K, Q6_K, Q3_K, Q2_K, IQ4_XS, IQ3_S, IQ2_XXS, MXFP4, F16]
};

/// What the machine can do, in GB/s and 10¹² operations a second.
struct Machine {
    read_gb_s: f64,
    int8_tops: f64,
}

impl Machine {
    fn measure(threads: usize) -> Self {
        let read = machine::read_bandwidth(Isa::detect(), threads).unwrap_or_default();
        Machine { read_gb_s: read.best / 1e9, int8_tops: machine::integer_peak(Isa::detect(), threads) / 1e12 }
    }
}

/// Threads, each with its scratch.
struct Workers {
    team: Team,
    scratch: Vec<Mutex<Scratch>>,
    /// Tiles that a thread takes at a time.
    piece: usize,
}

impl Workers {
    fn new(threads: usize) -> Result<Self, Box<dyn Error>> {
        let team = Team::new(threads)?;
        let scratch = (0..team.threads()).map(|_| Scratch::new().map(Mutex::new)).collect::<Option<_>>();
        let piece = std::env::var("PIECE").ok().and_then(|n| n.parse().ok()).map_or(usize::MAX, |n: usize| n.max(1));
        Ok(Workers { team, piece, scratch: scratch.ok_or("no memory for scratch")? })
    }

    /// Multiplies by `tiles` tiles of a matrix from tile `first` on.
    fn multiply(
        &self,
        (matrix, first, tiles): (&PackedMatrix, usize, usize),
        batch: &Batch<'_>,
        y: &mut [f32],
    ) -> Result<(), Box<dyn Error>> {
        let output = Output::new(y, matrix.rows());
        self.team.run(|member| {
            let part = partition(tiles, member.threads(), member.index());
            let tiles = first + part.start..first + part.end;
            let mut scratch = self.scratch[member.index()].lock().unwrap_or_else(PoisonError::into_inner);
            for from in tiles.clone().step_by(self.piece) {
                let tiles = from..from.saturating_add(self.piece).min(tiles.end);
                // SAFETY: the members' tiles differ, and nobody reads `y` meanwhile.
                unsafe { matmul(matrix, 0, batch, &output, tiles, &mut scratch) }.map_err(|_| Broken)?;
            }
            Ok(())
        })?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let threads = std::env::var("THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let workers = Workers::new(threads)?;
    let threads = workers.team.threads();
    let (outputs, columns) = shape()?;
    println!("{:?}, {threads} threads, {outputs} x {columns}", Isa::detect());
    println!("{:<9}{:>5}{:>8}{:>8}{:>9}{:>8}", "format", "rows", "GB/s", "share", "GOP/s", "share");
    for ty in chosen()? {
        let machine = Machine::measure(threads);
        let matrices = matrices(ty, outputs, columns)?;
        for rows in rows()? {
            report(ty, rows, &matrices, &workers, &machine)?;
        }
    }
    Ok(())
}

/// Outputs and columns of the matrices.
fn shape() -> Result<(usize, usize), String> {
    let Ok(shape) = std::env::var("SHAPE") else { return Ok(SHAPE) };
    let parsed = shape.split_once('x').and_then(|(a, b)| a.parse().ok().zip(b.parse().ok()));
    parsed.ok_or(format!("SHAPE={shape}: expected OUTPUTSxCOLUMNS, such as 3072x1024"))
}

/// The numbers of rows to measure.
fn rows() -> Result<Vec<usize>, Box<dyn Error>> {
    let Ok(rows) = std::env::var("ROWS") else { return Ok(ROWS.to_vec()) };
    Ok(rows.split(',').map(str::parse).collect::<Result<_, _>>()?)
}

/// The formats that the command line names, or all of [`FORMATS`].
fn chosen() -> Result<Vec<GgmlType>, String> {
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let named = |name: &String| {
        let found = GgmlType::ALL.iter().copied().find(|ty| ty.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| format!("{name}: no such format"))
    };
    if names.is_empty() { Ok(FORMATS.to_vec()) } else { names.iter().map(named).collect() }
}

/// Matrices of real blocks, as many as [`BYTES`] hold.
fn matrices(ty: GgmlType, outputs: usize, columns: usize) -> Result<Vec<PackedMatrix>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/quants");
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("quants.json"))?)?;
    let types = manifest["types"].as_array().ok_or("quants.json lists no types")?;
    let entry = types.iter().find(|entry| entry["name"] == ty.name()).ok_or("no blocks of this format")?;
    let blocks = std::fs::read(folder.join(entry["data"].as_str().ok_or("the format names no file")?))?;
    let row_bytes = ty.row_bytes(columns).ok_or("the columns are no multiple of the format's block")?;
    let file: Vec<u8> = blocks.iter().copied().cycle().take(row_bytes * outputs).collect();
    let packer = Packer::new(Isa::detect());
    (0..BYTES.div_ceil(file.len())).map(|_| Ok(packer.pack(ty, outputs, columns, &file)?)).collect()
}

fn report(
    ty: GgmlType,
    rows: usize,
    matrices: &[PackedMatrix],
    workers: &Workers,
    machine: &Machine,
) -> Result<(), Box<dyn Error>> {
    let Some(first) = matrices.first() else { return Ok(()) };
    let (outputs, columns) = (first.rows(), first.cols());
    let per_row = QBlock::count(columns);
    let x: Vec<f32> = (0..rows * columns).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let mut blocks = vec![QBlock::default(); rows * per_row];
    for (row, out) in x.chunks(columns).zip(blocks.chunks_mut(per_row)) {
        quantize_row(Isa::detect(), row, out);
    }
    let input = match first.activation() {
        ActivationKind::Float => Activations::Float { values: &x, stride: columns },
        ActivationKind::Quantized => Activations::Quantized { blocks: &blocks, stride: per_row },
    };
    let rest = std::env::var("TWICE").is_ok().then_some(input);
    let batch = Batch { rest, ..Batch::first(input, rows) };
    let mut y = vec![0.0; rows * outputs];
    let operations_a_tile = rows * columns * outputs.div_ceil(first.tiles());
    let tiles = (SAMPLE * workers.team.threads() / operations_a_tile).clamp(1, first.tiles());
    let (start, mut best, mut samples) = (Instant::now(), f64::INFINITY, 0);
    // Matrix after matrix, and other outputs each time, so that neither is in a cache from the last time.
    let firsts = (0..=first.tiles() - tiles).step_by(tiles).cycle();
    for (matrix, at) in matrices.iter().cycle().zip(firsts) {
        let sample = Instant::now();
        workers.multiply((matrix, at, tiles), &batch, &mut y)?;
        best = best.min(sample.elapsed().as_secs_f64());
        samples += 1;
        if start.elapsed() > SAMPLED.0 && samples >= SAMPLED.1 {
            break;
        }
    }
    let share = tiles as f64 / first.tiles() as f64;
    let gb_s = share * first.bytes() as f64 / best / 1e9;
    let gop_s = share * 2.0 * (rows * outputs * columns) as f64 / best / 1e9;
    println!(
        "{:<9}{rows:>5}{gb_s:>8.1}{:>7.0}%{gop_s:>9.1}{:>7.0}%",
        ty.name(),
        100.0 * gb_s / machine.read_gb_s,
        gop_s / machine.int8_tops / 10.0,
    );
    Ok(())
}
