//! How near matrix products come to what the machine can do, format by format and for several numbers of rows.
//!
//! `cargo bench -p bantam-cpu --bench matrix -- [FORMAT…]`; the environment's `THREADS` says with how many threads. The
//! machine's reading of memory and its peak of 8-bit arithmetic are measured between any two formats, since shared machines
//! drift: shares are of what was measured right before.

#![allow(unsafe_code, reason = "matmul leaves it to its callers that threads share out the outputs")]
#![allow(clippy::print_stdout, reason = "its result")]

use std::{
    error::Error,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Instant,
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

/// Outputs and columns of each matrix.
const SIZE: usize = 2048;
/// Bytes of all matrices together: far more than caches hold.
const BYTES: usize = 192 << 20;
/// Rows of activations.
const ROWS: [usize; 7] = [1, 2, 4, 8, 16, 64, 512];
/// Times that each figure is taken; the best one counts.
const ROUNDS: usize = 5;

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
        let read_gb_s = machine::read_bandwidth(Isa::detect(), threads).unwrap_or_default() / 1e9;
        Machine { read_gb_s, int8_tops: machine::integer_peak(Isa::detect(), threads) / 1e12 }
    }
}

/// Threads, each with its scratch.
struct Workers {
    team: Team,
    scratch: Vec<Mutex<Scratch>>,
}

impl Workers {
    fn new(threads: usize) -> Result<Self, Box<dyn Error>> {
        let team = Team::new(threads)?;
        let scratch = (0..team.threads()).map(|_| Scratch::new().map(Mutex::new)).collect::<Option<_>>();
        Ok(Workers { team, scratch: scratch.ok_or("no memory for scratch")? })
    }

    fn multiply(&self, matrix: &PackedMatrix, batch: &Batch<'_>, y: &mut [f32]) -> Result<(), Box<dyn Error>> {
        let output = Output::new(y, SIZE);
        self.team.run(|member| {
            let tiles = partition(matrix.tiles(), member.threads(), member.index());
            let mut scratch = self.scratch[member.index()].lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the members' tiles differ, and nobody reads `y` meanwhile.
            unsafe { matmul(matrix, 0, batch, &output, tiles, &mut scratch) }.map_err(|_| Broken)
        })?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let threads = std::env::var("THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let workers = Workers::new(threads)?;
    let threads = workers.team.threads();
    println!("{:?}, {threads} threads, {SIZE} x {SIZE}", Isa::detect());
    println!("{:<9}{:>5}{:>10}{:>8}{:>8}{:>9}{:>8}", "format", "rows", "us", "GB/s", "share", "GOP/s", "share");
    for ty in chosen()? {
        let machine = Machine::measure(threads);
        let matrices = matrices(ty)?;
        for rows in ROWS {
            report(ty, rows, &matrices, &workers, &machine)?;
        }
    }
    Ok(())
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
fn matrices(ty: GgmlType) -> Result<Vec<PackedMatrix>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/quants");
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("quants.json"))?)?;
    let types = manifest["types"].as_array().ok_or("quants.json lists no types")?;
    let entry = types.iter().find(|entry| entry["name"] == ty.name()).ok_or("no blocks of this format")?;
    let blocks = std::fs::read(folder.join(entry["data"].as_str().ok_or("the format names no file")?))?;
    let bytes = ty.row_bytes(SIZE).ok_or("the size is no multiple of the format's block")? * SIZE;
    let file: Vec<u8> = blocks.iter().copied().cycle().take(bytes).collect();
    let packer = Packer::new(Isa::detect());
    (0..BYTES.div_ceil(bytes)).map(|_| Ok(packer.pack(ty, SIZE, SIZE, &file)?)).collect()
}

fn report(
    ty: GgmlType,
    rows: usize,
    matrices: &[PackedMatrix],
    workers: &Workers,
    machine: &Machine,
) -> Result<(), Box<dyn Error>> {
    let x: Vec<f32> = (0..rows * SIZE).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let mut blocks = vec![QBlock::default(); rows * QBlock::count(SIZE)];
    for (row, out) in x.chunks(SIZE).zip(blocks.chunks_mut(QBlock::count(SIZE))) {
        quantize_row(Isa::detect(), row, out);
    }
    let mut y = vec![0.0; rows * SIZE];
    let bytes = matrices.first().map_or(0, PackedMatrix::bytes);
    // Fewer matrices where each takes long.
    let used = (matrices.len() * 8 / (rows + 7)).clamp(1, matrices.len());
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for matrix in &matrices[..used] {
            let input = match matrix.activation() {
                ActivationKind::Float => Activations::Float { values: &x, stride: SIZE },
                ActivationKind::Quantized => Activations::Quantized { blocks: &blocks, stride: QBlock::count(SIZE) },
            };
            workers.multiply(matrix, &Batch::first(input, rows), &mut y)?;
        }
        best = best.min(start.elapsed().as_secs_f64() / used as f64);
    }
    let (gb_s, gop_s) = (bytes as f64 / best / 1e9, 2.0 * (rows * SIZE * SIZE) as f64 / best / 1e9);
    println!(
        "{:<9}{rows:>5}{:>10.1}{gb_s:>8.1}{:>7.0}%{gop_s:>9.1}{:>7.0}%",
        ty.name(),
        best * 1e6,
        100.0 * gb_s / machine.read_gb_s,
        gop_s / machine.int8_tops / 10.0,
    );
    Ok(())
}
