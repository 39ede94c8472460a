//! The ops that look at one row at a time.

use bantam_graph::{Act, Embed, Norm, NormKind, Pairing, Rope, RopeScaling, Route, Scoring};

use super::{Tensor, Value};

pub(crate) fn embed(o: &Embed, ids: &Value, table: &Tensor) -> Value {
    let width = table.shape[1];
    ids.by_row(width, |id| {
        let start = id[0] as usize * width;
        table.data[start..start + width].iter().map(|x| x * f64::from(o.scale)).collect()
    })
}

pub(crate) fn linear(x: &Value, weight: &Tensor, bias: Option<&Tensor>) -> Value {
    x.by_row(weight.shape[0], |row| {
        let mut y = product(&weight.data, row);
        if let Some(bias) = bias {
            y.iter_mut().zip(&bias.data).for_each(|(y, b)| *y += b);
        }
        y
    })
}

/// The rows of a matrix times a vector.
fn product(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix.chunks_exact(x.len()).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

pub(crate) fn norm(o: &Norm, x: &Value, weight: Option<&Tensor>) -> Value {
    let group = o.group.unwrap_or(x.width);
    x.by_row(x.width, |row| {
        row.chunks_exact(group)
            .flat_map(|run| {
                let squares = run.iter().map(|x| x * x).sum::<f64>();
                let size = match o.kind {
                    NormKind::Rms => squares / group as f64,
                    NormKind::L2 => squares,
                };
                let inverse = 1.0 / (size + f64::from(o.eps)).sqrt();
                (0..group).map(move |i| run[i] * inverse * weight.map_or(1.0, |w| w.data[i]))
            })
            .collect()
    })
}

pub(crate) fn rope(o: &Rope, x: &Value, positions: &Value, factors: Option<&Tensor>) -> Value {
    let pairs = o.dims / 2;
    let magnitude = match o.scaling {
        Some(RopeScaling::Yarn { magnitude, .. }) => f64::from(magnitude),
        _ => 1.0,
    };
    let mut out = x.clone();
    for (row, position) in out.data.chunks_exact_mut(x.width).zip(&positions.data) {
        for head in row.chunks_exact_mut(o.head_dim) {
            for j in 0..pairs {
                let angle = position * frequency(o, j) / factors.map_or(1.0, |f| f.data[j]);
                let (sin, cos) = (angle.sin() * magnitude, angle.cos() * magnitude);
                let (first, second) = match o.pairing {
                    Pairing::Interleaved => (2 * j, 2 * j + 1),
                    Pairing::Halves => (j, j + pairs),
                    Pairing::HeadHalves => (j, j + o.head_dim / 2),
                };
                let (a, b) = (head[first], head[second]);
                head[first] = a * cos - b * sin;
                head[second] = b * cos + a * sin;
            }
        }
    }
    out
}

fn frequency(o: &Rope, j: usize) -> f64 {
    let (base, dims, j) = (f64::from(o.base), o.dims as f64, j as f64);
    let plain = base.powf(-2.0 * j / dims);
    match o.scaling {
        None => plain,
        Some(RopeScaling::Linear { factor }) => plain / f64::from(factor),
        Some(RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. }) => {
            // The pair that makes this many rotations over the original context.
            let pair = |rotations: f32| {
                let wavelengths = f64::from(original_context) / (std::f64::consts::TAU * f64::from(rotations));
                dims * wavelengths.ln() / (2.0 * base.ln())
            };
            let low = pair(beta_fast).floor().max(0.0);
            let high = pair(beta_slow).ceil().min(dims - 1.0);
            let kept = 1.0 - ((j - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            plain * (kept + (1.0 - kept) / f64::from(factor))
        }
    }
}

pub(crate) fn activate(act: Act, x: f64) -> f64 {
    match act {
        Act::Silu => x / (1.0 + (-x).exp()),
        Act::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Act::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Act::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Act::ReluSquared => x.max(0.0).powi(2),
        Act::SignedSqrt if x == 0.0 => 0.0,
        Act::SignedSqrt => x.signum() * x.abs().max(1e-6).sqrt(),
    }
}

pub(crate) fn mul(a: &Value, b: &Value) -> Value {
    if b.width == a.width {
        return a.zip(b, |a, b| a * b);
    }
    let mut factors = b.data.iter();
    a.by_row(a.width, |row| {
        let factor = factors.next().expect("a factor per row");
        row.iter().map(|x| x * factor).collect()
    })
}

/// Ids and weights of the chosen experts, best first.
pub(crate) fn route(o: &Route, scores: &Value) -> (Value, Value) {
    let mut ids = Vec::new();
    let mut weights = Vec::new();
    for row in scores.rows() {
        let probabilities = match o.scoring {
            Scoring::Softmax => softmax(row),
            Scoring::Sigmoid => row.iter().map(|&x| activate(Act::Sigmoid, x)).collect(),
            Scoring::SqrtSoftplus => row.iter().map(|&x| activate(Act::Softplus, x).sqrt()).collect(),
        };
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
        order.truncate(o.used);
        let chosen: f64 = order.iter().map(|&e| probabilities[e]).sum();
        let divisor = if o.normalize { chosen } else { 1.0 };
        weights.extend(order.iter().map(|&e| probabilities[e] / divisor * f64::from(o.scale)));
        ids.extend(order.iter().map(|&e| e as f64));
    }
    (Value { width: o.used, data: ids }, Value { width: o.used, data: weights })
}

pub(crate) fn softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = x.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

pub(crate) fn experts(act: Act, x: &Value, ids: &Value, weights: &Value, [gate, up, down]: [&Tensor; 3]) -> Value {
    let mut out = Vec::with_capacity(x.data.len());
    for (row, x) in x.rows().enumerate() {
        let mut sum = vec![0.0; x.len()];
        for (&id, &weight) in ids.row(row).iter().zip(weights.row(row)) {
            let gate = product(expert(gate, id as usize), x);
            let up = product(expert(up, id as usize), x);
            let inner: Vec<f64> = gate.iter().zip(&up).map(|(&g, &u)| activate(act, g) * u).collect();
            let y = product(expert(down, id as usize), &inner);
            sum.iter_mut().zip(&y).for_each(|(sum, y)| *sum += weight * y);
        }
        out.extend(sum);
    }
    Value { width: x.width, data: out }
}

fn expert(matrices: &Tensor, id: usize) -> &[f64] {
    let size = matrices.shape[1] * matrices.shape[2];
    &matrices.data[id * size..(id + 1) * size]
}
