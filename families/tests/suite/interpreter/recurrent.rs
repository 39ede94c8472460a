//! Recurrences, step by step.

use bantam_graph::{DeltaRule, ShortConv, Ssm};

use super::{Run, Value};

pub(super) fn short_conv(run: &Run<'_>, o: &ShortConv) -> Value {
    let (x, weight, bias) = (run.value(&o.x), run.weight(&o.weight), run.optional_weight(&o.bias));
    let taps = weight.shape[1];
    let mut data = Vec::with_capacity(x.data.len());
    for t in 0..x.rows().len() {
        for channel in 0..x.width {
            let tap = |j: usize| {
                let row = t.checked_sub((taps - 1 - j) * o.dilation);
                row.map_or(0.0, |row| weight.data[channel * taps + j] * x.row(row)[channel])
            };
            data.push(bias.map_or(0.0, |bias| bias.data[channel]) + (0..taps).map(tap).sum::<f64>());
        }
    }
    Value { width: x.width, data }
}

fn shape(run: &Run<'_>, state: &str) -> [usize; 3] {
    let state = run.graph.recurrent.iter().find(|s| s.name == state).expect("declared");
    state.shape.as_slice().try_into().expect("three axes")
}

pub(super) fn delta_rule(run: &Run<'_>, o: &DeltaRule) -> Value {
    let [q, k, v, decay, beta] = [&o.q, &o.k, &o.v, &o.decay, &o.beta].map(|name| run.value(name));
    let [heads, key_dim, value_dim] = shape(run, &o.state);
    let key_heads = q.width / key_dim;
    let mut states = vec![vec![0.0; key_dim * value_dim]; heads];
    Value::by_rows(v.width, [q, k, v, decay, beta], |[q, k, v, decay, beta]| {
        let head = |(h, state): (usize, &mut Vec<f64>)| {
            let [q, k] = [q, k].map(|x| &x[h % key_heads * key_dim..][..key_dim]);
            let v = &v[h * value_dim..][..value_dim];
            let per_channel = decay.len() / heads;
            for (c, row) in state.chunks_exact_mut(value_dim).enumerate() {
                let kept = decay[h * per_channel + c % per_channel].exp();
                row.iter_mut().for_each(|s| *s *= kept);
            }
            let read = |state: &[f64], x: &[f64], j: usize| -> f64 {
                x.iter().enumerate().map(|(c, x)| x * state[c * value_dim + j]).sum()
            };
            let delta: Vec<f64> = (0..value_dim).map(|j| beta[h] * (v[j] - read(state, k, j))).collect();
            for (c, row) in state.chunks_exact_mut(value_dim).enumerate() {
                row.iter_mut().zip(&delta).for_each(|(s, delta)| *s += k[c] * delta);
            }
            (0..value_dim).map(|j| f64::from(o.scale) * read(state, q, j)).collect::<Vec<f64>>()
        };
        states.iter_mut().enumerate().flat_map(head).collect()
    })
}

pub(super) fn ssm(run: &Run<'_>, o: &Ssm) -> Value {
    let [x, b, c, dt] = [&o.x, &o.b, &o.c, &o.dt].map(|name| run.value(name));
    let (a, d) = (run.weight(&o.a), run.optional_weight(&o.d));
    let [heads, dim, size] = shape(run, &o.state);
    let per_group = heads / (b.width / size);
    let mut states = vec![vec![0.0; dim * size]; heads];
    Value::by_rows(x.width, [x, b, c, dt], |[x, b, c, dt]| {
        let head = |(h, state): (usize, &mut Vec<f64>)| {
            let [b, c] = [b, c].map(|row| &row[h / per_group * size..][..size]);
            let kept = (dt[h] * a.data[h]).exp();
            let mut y = Vec::with_capacity(dim);
            for (x, row) in x[h * dim..][..dim].iter().zip(state.chunks_exact_mut(size)) {
                row.iter_mut().zip(b).for_each(|(s, b)| *s = kept * *s + dt[h] * x * b);
                let read: f64 = row.iter().zip(c).map(|(s, c)| s * c).sum();
                y.push(read + d.map_or(0.0, |d| d.data[h]) * x);
            }
            y
        };
        states.iter_mut().enumerate().flat_map(head).collect()
    })
}
