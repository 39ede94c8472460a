//! Sharing out tiles among threads.

use std::ops::Range;

/// The part of `tiles` tiles that worker `index` of `workers` takes: contiguous, and in pairs as far as that goes, since
/// kernels for several rows work on pairs.
pub fn partition(tiles: usize, workers: usize, index: usize) -> Range<usize> {
    let pairs = tiles.div_ceil(2);
    let bound = |i: usize| (2 * (pairs * i / workers.max(1))).min(tiles);
    bound(index.min(workers))..bound((index + 1).min(workers))
}

#[cfg(test)]
mod tests {
    use super::partition;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_cover_everything_once_and_evenly(tiles in 0usize..5000, workers in 1usize..70) {
            let parts: Vec<_> = (0..workers).map(|i| partition(tiles, workers, i)).collect();
            let mut next = 0;
            for part in &parts {
                prop_assert_eq!(part.start, next);
                prop_assert!(part.len() <= tiles.div_ceil(2).div_ceil(workers) * 2);
                next = part.end;
            }
            prop_assert_eq!(next, tiles);
        }
    }
}
