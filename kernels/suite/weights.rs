//! Random weights, each from a seed that is its name. How a name ends says what they are.

use bantam_backend::{SharedBytes, WeightData, WeightError, WeightSource};
use bantam_gguf::{GgmlType, dequantize};
use bantam_graph::Weight;
use half::f16;

/// The source of all tests: `NAME.q8` is quantized, `NAME.below7` are integers below 7, all others lie in -1..1.
pub(crate) struct Random;

impl WeightSource for Random {
    fn load(&self, weight: &Weight) -> Result<WeightData, WeightError> {
        let mut rng = SplitMix::new(&weight.name);
        let len: usize = weight.shape.iter().product();
        let (ty, bytes) = match weight.name.split_once('.') {
            Some((_, "q8")) => {
                assert!(weight.shape.last().unwrap().is_multiple_of(32), "{weight:?}");
                (GgmlType::Q8_0, (0..len / 32).flat_map(|_| q8_block(&mut rng)).collect())
            }
            Some((_, kind)) => {
                let bound: u64 = kind.strip_prefix("below").unwrap().parse().unwrap();
                (GgmlType::I32, (0..len).flat_map(|_| ((rng.next() % bound) as i32).to_le_bytes()).collect())
            }
            None => (GgmlType::F32, (0..len).flat_map(|_| rng.signed().to_le_bytes()).collect()),
        };
        Ok(WeightData { ty, shape: weight.shape.clone(), bytes: SharedBytes::owned(bytes) })
    }

    fn release(&self, _weight: &Weight) {}
}

fn q8_block(rng: &mut SplitMix) -> Vec<u8> {
    let mut block = f16::from_f32(1.0 / 127.0).to_le_bytes().to_vec();
    block.extend((0..32).map(|_| rng.next() as u8));
    block
}

/// The numbers of a weight.
pub(crate) fn numbers(weight: &Weight) -> Vec<f64> {
    let data = Random.load(weight).unwrap();
    let mut values = vec![0.0; data.shape.iter().product()];
    dequantize(data.ty, &data.bytes, &mut values).unwrap();
    values.into_iter().map(f64::from).collect()
}

/// A generator of random numbers (SplitMix64).
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(name: &str) -> Self {
        SplitMix(name.bytes().fold(7, |h, b| h.wrapping_mul(131).wrapping_add(u64::from(b))))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// In `-1..1`.
    fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
