//! What the machine can do at best: the yardsticks for the kernels.

use super::memory::Arena;
use super::simd::{Job, Simd, with_simd};
use crate::isa::Isa;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Bytes that each thread reads; far more than its caches hold.
const READ_BYTES: usize = 64 << 20;
/// Rounds of [`Peak`] that each thread does.
const PEAK_ROUNDS: usize = 1 << 17;
/// Accumulators in flight: enough to hide the latency of the integer dot product.
const CHAINS: usize = 12;

/// Bytes a second that `threads` threads read from memory together, with the vectors of `isa`; `None` without memory.
pub fn read_bandwidth(isa: Isa, threads: usize) -> Option<f64> {
    let arena = Arena::new();
    let buffers: Option<Vec<_>> = (0..threads).map(|_| arena.allocate(READ_BYTES)).collect();
    let mut buffers = buffers?;
    buffers.iter_mut().for_each(|buffer| buffer.fill(1));
    let time = together(threads, |index| with_simd(isa, Read(&buffers[index])));
    Some((threads * READ_BYTES) as f64 / time.as_secs_f64())
}

/// 8-bit multiplications and additions a second that `threads` threads do together in registers, with the vectors of
/// `isa`.
pub fn integer_peak(isa: Isa, threads: usize) -> f64 {
    let time = together(threads, |_| with_simd(isa, Peak));
    // A dot product of 16 lanes is 64 multiplications and as many additions.
    (threads * PEAK_ROUNDS * CHAINS * 128) as f64 / time.as_secs_f64()
}

/// The time from a common start to the last thread's end.
fn together(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let run = |index| {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                let start = Instant::now();
                work(index);
                (start, Instant::now())
            })
        };
        let handles: Vec<_> = (0..threads).map(run).collect();
        let times: Vec<_> = handles.into_iter().filter_map(|handle| handle.join().ok()).collect();
        let start = times.iter().map(|(start, _)| *start).min();
        let end = times.iter().map(|(_, end)| *end).max();
        start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start)
    })
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
