//! What the machine can do at best: the yardsticks for the kernels.

use super::memory::Arena;
use super::simd::{Job, Simd, with_simd};
use crate::isa::Isa;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Bytes that each thread reads in a round; all rounds together are far more than the caches hold.
const READ_BYTES: usize = 8 << 20;
/// Rounds of dot products that each thread does.
const PEAK_ROUNDS: usize = 1 << 14;
/// Accumulators in flight: enough to hide the latency of the integer dot product.
const CHAINS: usize = 12;
/// Measurements, of which the best one counts: others on the machine disturb some, and nothing makes one too good.
const ROUNDS: usize = 24;

/// Bytes a second that `threads` threads read from memory together, with the vectors of `isa`; `None` without memory.
pub fn read_bandwidth(isa: Isa, threads: usize) -> Option<f64> {
    let arena = Arena::default();
    let buffers: Option<Vec<_>> = (0..threads).map(|_| arena.allocate(ROUNDS * READ_BYTES)).collect();
    let mut buffers = buffers?;
    buffers.iter_mut().for_each(|buffer| buffer.fill(1));
    let part = |index: usize, round: usize| &buffers[index][round * READ_BYTES..][..READ_BYTES];
    let time = best_together(threads, |index, round| with_simd(isa, Read(part(index, round))));
    Some((threads * READ_BYTES) as f64 / time)
}

/// 8-bit multiplications and additions a second that `threads` threads do together in registers, with the vectors of
/// `isa`.
pub fn integer_peak(isa: Isa, threads: usize) -> f64 {
    let time = best_together(threads, |_, _| with_simd(isa, Peak));
    // A dot product of 16 lanes is 64 multiplications and as many additions.
    (threads * PEAK_ROUNDS * CHAINS * 128) as f64 / time
}

/// The shortest time in seconds that `threads` threads took for a round: from its common start to the last one's end.
fn best_together(threads: usize, work: impl Fn(usize, usize) + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let rounds = |index| -> Vec<f64> {
        let round = |round| {
            barrier.wait();
            let start = Instant::now();
            work(index, round);
            start.elapsed().as_secs_f64()
        };
        (0..ROUNDS).map(round).collect()
    };
    let rounds = &rounds;
    let times: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|index| scope.spawn(move || rounds(index))).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    let slowest = |round: usize| times.iter().filter_map(|times| times.get(round)).copied().fold(0.0, f64::max);
    (0..ROUNDS).map(slowest).fold(f64::INFINITY, f64::min)
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
