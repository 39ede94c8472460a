//! Rotated heads in codes of few bits, in plain words.

use bantam_backend::KvType;

/// The signs of the rotation: the top bits of what SplitMix64 draws from 0 on.
fn signs(count: usize) -> Vec<f64> {
    let mut state = 0u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        if (x ^ (x >> 31)) >> 63 == 1 { -1.0 } else { 1.0 }
    };
    (0..count).map(|_| next()).collect()
}

/// The product with the matrix whose entries are the signs of both indexes and of their common bits.
fn rotated(head: &[f64]) -> Vec<f64> {
    let (signs, norm) = (signs(head.len()), (head.len() as f64).sqrt());
    let entry = |i: usize| {
        let common = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        head.iter().enumerate().map(|(j, x)| common(j) * signs[j] * x).sum::<f64>() * signs[i] / norm
    };
    (0..head.len()).map(entry).collect()
}

/// A head as the cache gives it back.
pub(crate) fn rounded(head: &[f64], kv: KvType) -> Vec<f64> {
    let positive: &[f64] = match kv {
        KvType::Turbo4 => &[0.128395, 0.388048, 0.656759, 0.942340, 1.256231, 1.618046, 2.069017, 2.732590],
        KvType::Turbo3 => &[0.245094, 0.756005, 1.343909, 2.151946],
        _ => panic!("{kv:?} has no codes"),
    };
    let mut whole = head.to_vec();
    whole.resize(head.len().next_power_of_two().max(16), 0.0);
    let turned = rotated(&whole);
    let spread = (turned.iter().map(|x| x * x).sum::<f64>() / turned.len() as f64).sqrt();
    let nearest = |x: &f64| {
        let far = |level: &f64| (x.abs() / spread - level).abs();
        positive.iter().min_by(|a, b| far(a).total_cmp(&far(b))).unwrap() * x.signum()
    };
    let levels: Vec<f64> = turned.iter().map(nearest).collect();
    let products: f64 = turned.iter().zip(&levels).map(|(x, level)| x * level).sum();
    let scale = products / levels.iter().map(|level| level * level).sum::<f64>();
    let scale = f64::from(half::f16::from_f64(scale).to_f32());
    let levels: Vec<f64> = levels.into_iter().map(|level| level * scale).collect();
    rotated(&levels)[..head.len()].to_vec()
}
