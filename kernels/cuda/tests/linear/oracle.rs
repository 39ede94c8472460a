//! Products by plain loops, in the order of sums that the kernels keep, and weights for them.

use bantam_cuda::linear::SUPERBLOCK;
use bantam_gguf::{GgmlType, UnpackedBlock, dequantize, unpack_block};

/// Numbers by a seed.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Between −1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() % 20001) as f32 / 10000.0 - 1.0
    }

    pub(crate) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    /// `rows` rows of `cols` weights: any bytes whose values are of a usual size.
    pub(crate) fn weights(&mut self, ty: GgmlType, rows: usize, cols: usize) -> Vec<u8> {
        if !ty.is_quantized() {
            return self.plain(ty, rows * cols);
        }
        let mut values = vec![0.0; ty.block_len()];
        let mut bytes = Vec::new();
        for _ in 0..rows * cols / ty.block_len() {
            loop {
                let mut block: Vec<u8> = (0..ty.block_bytes()).map(|_| self.next() as u8).collect();
                if ty == GgmlType::Q8_K {
                    block[..4].copy_from_slice(&(0.001 + self.float().abs()).to_le_bytes());
                }
                dequantize(ty, &block, &mut values).unwrap();
                let largest = values.iter().fold(0.0_f32, |max, x| if x.abs() <= max { max } else { x.abs() });
                if (1e-3..100.0).contains(&largest) {
                    bytes.extend(block);
                    break;
                }
            }
        }
        bytes
    }

    fn plain(&mut self, ty: GgmlType, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let x = self.float();
            match ty {
                GgmlType::F32 => bytes.extend(x.to_le_bytes()),
                // A half between 2^-4 and 2 in magnitude, of any sign and mantissa.
                GgmlType::F16 => {
                    bytes.extend((((self.next() % 5 + 11) << 10 | self.next() & 0x83ff) as u16).to_le_bytes());
                }
                GgmlType::BF16 => bytes.extend(((x.to_bits() >> 16) as u16).to_le_bytes()),
                GgmlType::F64 => bytes.extend(f64::from(x).to_le_bytes()),
                _ => bytes.extend((0..ty.block_bytes()).map(|_| self.next() as u8)),
            }
        }
        bytes
    }
}

/// A group of 32 activations: integers, and their scale.
struct Rounded {
    q: [i32; 32],
    scale: f32,
}

/// Rounds a row in groups of 32, filled up with zeros to whole superblocks; also gives what is left of it.
fn round(x: &[f32]) -> (Vec<Rounded>, Vec<f32>) {
    let mut padded = x.to_vec();
    padded.resize(x.len().next_multiple_of(SUPERBLOCK), 0.0);
    let mut left = Vec::new();
    let groups = padded.chunks(32).map(|x| {
        let largest = x.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        let inverse = if largest > 1e-35 { 127.0 / largest } else { 0.0 };
        let scale = largest / 127.0;
        let q = std::array::from_fn(|i| (x[i] * inverse).round_ties_even() as i32);
        left.extend((0..32).map(|i| x[i] - scale * q[i] as f32));
        Rounded { q, scale }
    });
    (groups.collect(), left)
}

/// 32 weights: integers, and scales and offsets of the halves, or of the whole.
struct Group {
    q: [i32; 32],
    scales: Vec<f32>,
    offsets: Vec<f32>,
}

fn groups(ty: GgmlType, row: &[u8]) -> Vec<Group> {
    let mut unpacked = UnpackedBlock::new();
    let mut groups = Vec::new();
    for block in row.chunks(ty.block_bytes()) {
        unpack_block(ty, block, &mut unpacked).unwrap();
        let parts = 32 / unpacked.group;
        for g in 0..unpacked.len / 32 {
            groups.push(Group {
                q: std::array::from_fn(|i| i32::from(unpacked.q[32 * g + i])),
                scales: unpacked.scale[parts * g..][..parts].to_vec(),
                offsets: if unpacked.has_min { unpacked.min[parts * g..][..parts].to_vec() } else { vec![] },
            });
        }
    }
    groups
}

fn rounded_dot(weights: &[Group], x: &[Rounded]) -> f32 {
    let mut y = 0.0;
    for (weights, x) in weights.chunks(8).zip(x.chunks(8)) {
        let mut sum = 0.0_f32;
        for (w, x) in weights.iter().zip(x) {
            let len = 32 / w.scales.len();
            let dot =
                |part: usize| -> f32 { (part * len..(part + 1) * len).map(|i| w.q[i] * x.q[i]).sum::<i32>() as f32 };
            let mut t = dot(0) * w.scales[0];
            if w.scales.len() == 2 {
                t = dot(1).mul_add(w.scales[1], t);
            }
            for (part, offset) in w.offsets.iter().enumerate() {
                t = offset.mul_add(x.q[part * len..(part + 1) * len].iter().sum::<i32>() as f32, t);
            }
            sum = t.mul_add(x.scale, sum);
        }
        y += sum;
    }
    y
}

fn float_dot(weights: &[f32], x: &[f32]) -> f32 {
    let mut y = 0.0;
    for (weights, x) in weights.chunks(SUPERBLOCK).zip(x.chunks(SUPERBLOCK)) {
        let mut sum = 0.0;
        for (weights, x) in weights.chunks(32).zip(x.chunks(32)) {
            let mut parts = [0.0_f32; 4];
            for (i, (w, x)) in weights.iter().zip(x).enumerate() {
                parts[i % 4] = w.mul_add(*x, parts[i % 4]);
            }
            sum += (parts[0] + parts[1]) + (parts[2] + parts[3]);
        }
        y += sum;
    }
    y
}

pub(crate) fn values(ty: GgmlType, bytes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; bytes.len() / ty.block_bytes() * ty.block_len()];
    dequantize(ty, bytes, &mut values).unwrap();
    values
}

/// `x·Wᵀ` for rows `x` of `cols` and rows of weights: `[rows, out]`.
pub(crate) fn product(ty: GgmlType, weights: &[u8], x: &[f32], cols: usize, twice: bool) -> Vec<f32> {
    let row_bytes = ty.row_bytes(cols).unwrap();
    if !ty.is_quantized() {
        let weights = values(ty, weights);
        return x
            .chunks(cols)
            .flat_map(|x| weights.chunks(cols).map(|w| float_dot(w, x)).collect::<Vec<_>>())
            .collect();
    }
    let weights: Vec<Vec<Group>> = weights.chunks(row_bytes).map(|row| groups(ty, row)).collect();
    let row = |x: &[f32]| -> Vec<f32> {
        let (rounded, left) = round(x);
        let rest = round(&left).0;
        let dot = |w: &Vec<Group>| {
            let y = rounded_dot(w, &rounded);
            if twice { y + rounded_dot(w, &rest) } else { y }
        };
        weights.iter().map(dot).collect()
    };
    x.chunks(cols).flat_map(row).collect()
}

/// How far a product may be from the exact one: what rounding activations can do, and sums in f32. And the exact one.
pub(crate) fn exact(ty: GgmlType, weights: &[u8], x: &[f32], cols: usize, twice: bool) -> Vec<(f64, f64)> {
    let weights = values(ty, weights);
    let step = if !ty.is_quantized() {
        0.0
    } else if twice {
        0.5 / 127.0 / 254.0
    } else {
        0.5 / 127.0
    };
    let dot = |w: &[f32], x: &[f32]| {
        let (mut sum, mut bound) = (0.0, 1e-30);
        for (w, x) in w.chunks(32).zip(x.chunks(32)) {
            let largest = x.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
            for (w, x) in w.iter().zip(x) {
                let (w, x) = (f64::from(*w), f64::from(*x));
                sum += w * x;
                bound += w.abs() * (f64::from(largest) * step + x.abs() * 1e-5);
            }
            // Sums of products of integers and offsets that cancel out.
            bound += w.iter().map(|w| f64::from(w.abs())).sum::<f64>() * f64::from(largest) * 1e-5;
        }
        (sum, bound)
    };
    x.chunks(cols).flat_map(|x| weights.chunks(cols).map(|w| dot(w, x)).collect::<Vec<_>>()).collect()
}
