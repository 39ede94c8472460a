//! Random numbers that are functions of a key, with no state to save.

use std::hash::{BuildHasher, RandomState};

/// Scrambles 64 bits so that each input bit reaches each output bit: the finalizer of SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The number in `[0, 1)` of a token index under a seed.
pub(super) fn uniform(seed: u64, index: u64) -> f64 {
    // Two rounds with the seed on both sides, so that sequences of near seeds are not shifts of each other.
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let key = mix(seed.wrapping_add(ODD));
    let bits = mix(key ^ mix(index.wrapping_mul(ODD).wrapping_add(key)));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// A seed that nobody can guess.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(0_u8)
}
