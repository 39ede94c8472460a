//! The ops that look at one row at a time.

use bantam_graph::{
    Act, Concat, Embed, GluLimit, Linear, NgramHash, Norm, NormKind, Pairing, Rope, RopeScaling, Slice,
};

use super::{Run, Tensor, Value};

pub(crate) fn embed(o: &Embed, ids: &Value, table: &Tensor) -> Value {
    let width = table.shape[1];
    let entry = |id: &f64| table.data[*id as usize * width..][..width].iter().map(|x| x * f64::from(o.scale));
    ids.by_row(ids.width * width, |ids| ids.iter().flat_map(entry).collect())
}

pub(crate) fn lookup(ids: &Value, table: &Tensor) -> Value {
    let width = table.shape[1];
    ids.by_row(width, |id| table.data[id[0] as usize * width..][..width].to_vec())
}

pub(super) fn ngram_hash(run: &Run<'_>, o: &NgramHash) -> Value {
    let ids: Vec<&Value> = o.ids.iter().map(|ids| run.value(ids)).collect();
    let mut data = Vec::new();
    for row in 0..ids[0].rows().len() {
        let mut context: Vec<u64> = ids.iter().map(|ids| ids.row(row)[0] as u64).collect();
        let boundary = u64::from(o.boundary);
        if let Some(cut) = context.iter().skip(1).position(|&id| id == boundary) {
            context[cut + 1..].fill(boundary);
        }
        for head in &o.heads {
            let products = context.iter().zip(&o.multipliers).map(|(id, m)| id.wrapping_mul(*m));
            let mixed = products.take(head.order).fold(0, |mixed, product| mixed ^ product);
            data.push(f64::from(head.offset) + (mixed % u64::from(head.rows)) as f64);
        }
    }
    Value { width: o.heads.len(), data }
}

pub(crate) fn linear(o: &Linear, x: &Value, weight: &Tensor, bias: Option<&Tensor>) -> Value {
    let &[.., out, cols] = weight.shape.as_slice() else { panic!("`{}` is no matrix", o.weight) };
    let matrices: Vec<&[f64]> = weight.data.chunks_exact(out * cols).collect();
    let runs = x.width / cols;
    x.by_row(runs * out, |row| {
        let products = row.chunks_exact(cols).zip(matrices.iter().cycle()).flat_map(|(x, matrix)| product(matrix, x));
        let biases = bias.map_or(&[0.0][..], |bias| &bias.data);
        products.zip(biases.iter().cycle()).map(|(y, bias)| y + bias).collect()
    })
}

/// The rows of a matrix times a vector.
pub(crate) fn product(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix.chunks_exact(x.len()).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

pub(crate) fn norm(o: &Norm, x: &Value, weight: Option<&Tensor>) -> Value {
    let group = o.group.unwrap_or(x.width);
    x.by_row(x.width, |row| {
        row.chunks_exact(group)
            .enumerate()
            .flat_map(|(g, run)| {
                let squares = run.iter().map(|x| x * x).sum::<f64>();
                let size = match o.kind {
                    NormKind::Rms => squares / group as f64,
                    NormKind::L2 => squares,
                };
                let inverse = 1.0 / (size + f64::from(o.eps)).sqrt();
                // A weight as wide as the row goes on over its groups.
                let factor = move |i: usize| weight.map_or(1.0, |w| w.data[(g * group + i) % w.data.len()]);
                (0..group).map(move |i| run[i] * inverse * factor(i))
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
                let direction = if o.inverse { -magnitude } else { magnitude };
                let (sin, cos) = (angle.sin() * direction, angle.cos() * magnitude);
                let (first, second) = match o.pairing {
                    Pairing::Interleaved => (2 * j, 2 * j + 1),
                    Pairing::Halves => (j, j + pairs),
                    Pairing::HeadHalves => (j, j + o.head_dim / 2),
                };
                let (first, second) = (o.offset + first, o.offset + second);
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

/// A gated product with its bounds.
pub(crate) fn gated(act: Act, limit: Option<GluLimit>, gate: f64, up: f64) -> f64 {
    match limit {
        None => activate(act, gate) * up,
        Some(GluLimit::BeforeAct(limit)) => {
            let limit = f64::from(limit);
            activate(act, gate.min(limit)) * up.clamp(-limit, limit)
        }
        Some(GluLimit::AfterAct(limit)) => {
            let limit = f64::from(limit);
            activate(act, gate).min(limit) * up.clamp(-limit, limit)
        }
    }
}

/// Entries of a row with those of another that is as wide, or narrower: then each meets a run of neighbours.
pub(crate) fn spread(row: &[f64], other: &[f64], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let run = row.len() / other.len();
    row.iter().enumerate().map(|(i, &x)| f(x, other[i / run])).collect()
}

pub(crate) fn affine(x: &Value, scale: Option<&Tensor>, bias: Option<&Tensor>) -> Value {
    x.by_row(x.width, |row| {
        let scaled = scale.map_or(row.to_vec(), |scale| spread(row, &scale.data, |x, scale| x * scale));
        bias.map_or(scaled.clone(), |bias| spread(&scaled, &bias.data, |x, bias| x + bias))
    })
}

pub(crate) fn slice(o: &Slice, x: &Value) -> Value {
    x.by_row(o.groups * o.len, |row| {
        row.chunks_exact(row.len() / o.groups).flat_map(|run| run[o.start..o.start + o.len].to_vec()).collect()
    })
}

pub(crate) fn concat(o: &Concat, parts: &[&Value]) -> Value {
    let width = parts.iter().map(|part| part.width).sum();
    let rows = 0..parts[0].rows().len();
    let group = |row: usize, group: usize| {
        parts.iter().flat_map(move |part| {
            let run = part.width / o.groups;
            part.row(row)[group * run..(group + 1) * run].iter().copied()
        })
    };
    Value { width, data: rows.flat_map(|row| (0..o.groups).flat_map(move |g| group(row, g))).collect() }
}

pub(crate) fn softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = x.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}
