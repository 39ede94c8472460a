//! What the machine can do at best: the yardsticks for the kernels.

use super::memory::Arena;
use super::simd::{Job, Simd, with_simd};
use crate::isa::Isa;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Bytes that all threads together read in a pass, at least: far more than caches hold.
const READ_BYTES: usize = 256 << 20;
/// Bytes that each thread reads in a pass, at least.
const READ_BYTES_OF_A_THREAD: usize = 32 << 20;
/// Passes over them.
const PASSES: usize = 5;
/// Rounds of dot products that each thread does.
const PEAK_ROUNDS: usize = 1 << 14;
/// Accumulators in flight: enough to hide the latency of the integer dot product.
const CHAINS: usize = 12;
/// Measurements of arithmetic, of which the best one counts: others on the machine disturb some, and nothing makes one too
/// good.
const ROUNDS: usize = 24;

/// Bytes a second that memory delivers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bandwidth {
    /// In the fastest of a few passes over memory.
    pub best: f64,
    /// In the middle one: what work that goes on for a while can hope for on a machine that is shared.
    pub sustained: f64,
}

/// What `threads` threads read from memory together, with the vectors of `isa`; `None` without memory.
pub fn read_bandwidth(isa: Isa, threads: usize) -> Option<Bandwidth> {
    let arena = Arena::default();
    let len = (READ_BYTES / threads).max(READ_BYTES_OF_A_THREAD);
    let buffers: Option<Vec<_>> = (0..threads).map(|_| arena.allocate(len)).collect();
    let mut buffers = buffers?;
    buffers.iter_mut().for_each(|buffer| buffer.fill(1));
    let mut times = together(threads, PASSES, |index| with_simd(isa, Read(&buffers[index])));
    times.sort_by(f64::total_cmp);
    let rate = |time: f64| (threads * len) as f64 / time;
    Some(Bandwidth { best: rate(times[0]), sustained: rate(times[PASSES / 2]) })
}

/// 8-bit multiplications and additions a second that `threads` threads do together in registers, with the vectors of
/// `isa`.
pub fn integer_peak(isa: Isa, threads: usize) -> f64 {
    let times = together(threads, ROUNDS, |_| with_simd(isa, Peak));
    let time = times.into_iter().fold(f64::INFINITY, f64::min);
    // A dot product of 16 lanes is 64 multiplications and as many additions.
    (threads * PEAK_ROUNDS * CHAINS * 128) as f64 / time
}

/// Multiplications and additions of `f32` a second that `threads` threads do together in registers, with the vectors of
/// `isa`.
pub fn float_peak(isa: Isa, threads: usize) -> f64 {
    let times = together(threads, ROUNDS, |_| with_simd(isa, FloatPeak));
    let time = times.into_iter().fold(f64::INFINITY, f64::min);
    (threads * PEAK_ROUNDS * CHAINS * 32) as f64 / time
}

/// The time in seconds that each round of `threads` threads took, from its common start to the last one's end.
fn together(threads: usize, rounds: usize, work: impl Fn(usize) + Sync) -> Vec<f64> {
    let barrier = Barrier::new(threads);
    let round = |index| {
        barrier.wait();
        let start = Instant::now();
        work(index);
        start.elapsed().as_secs_f64()
    };
    let round = &round;
    let times: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let spawn = |index| scope.spawn(move || (0..rounds).map(|_| round(index)).collect());
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    (0..rounds).map(|round| times.iter().map(|times| times[round]).fold(0.0, f64::max)).collect()
}

/// Reads all bytes.
struct Read<'a>(&'a [u8]);

impl Job for Read<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut seen = [[0u8; 64]; 4];
        // SAFETY: every load is of 64 bytes of a chunk or of `seen`.
        unsafe {
            let mut sums = [simd.load_bytes(seen[0].as_ptr()); 4];
            for chunk in self.0.chunks_exact(4 * 64) {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.or(*sum, simd.load_bytes(chunk.as_ptr().add(64 * i)));
                }
            }
            for (sum, seen) in sums.into_iter().zip(&mut seen) {
                simd.store_bytes(seen.as_mut_ptr(), sum);
            }
        }
        black_box(seen);
    }
}

/// Integer dot products of registers.
struct Peak;

impl Job for Peak {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let bytes = black_box([3u8; 64]);
        // SAFETY: the load is of the 64 bytes.
        let weights = unsafe { simd.load_bytes(bytes.as_ptr()) };
        let activations = simd.quad(black_box(0x0101_0101));
        let mut sums = [simd.splat_int(0); CHAINS];
        for _ in 0..PEAK_ROUNDS {
            for sum in &mut sums {
                *sum = simd.dot(*sum, weights, activations);
            }
        }
        for sum in sums {
            let mut lanes = [0f32; 16];
            // SAFETY: the store is to the 16 lanes.
            unsafe { simd.store(lanes.as_mut_ptr(), simd.to_float(sum)) };
            black_box(lanes);
        }
    }
}

/// Fused multiplications and additions of registers.
struct FloatPeak;

impl Job for FloatPeak {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (a, b) = (simd.splat(black_box(0.5)), simd.splat(black_box(1.0)));
        let mut sums = [simd.zero(); CHAINS];
        for _ in 0..PEAK_ROUNDS {
            for sum in &mut sums {
                *sum = simd.fma(*sum, a, b);
            }
        }
        for sum in sums {
            let mut lanes = [0f32; 16];
            // SAFETY: the store is to the 16 lanes.
            unsafe { simd.store(lanes.as_mut_ptr(), sum) };
            black_box(lanes);
        }
    }
}
