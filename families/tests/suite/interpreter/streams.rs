//! Residual streams.

use bantam_graph::{Act, StreamCollapse, StreamGates, StreamUpdate};

use super::{Run, Value, ops, ops::softmax};

/// `pre`, `post` and `mix`.
pub(super) fn gates(run: &Run<'_>, o: &StreamGates) -> Vec<Value> {
    let (x, scale, base) = (run.value(&o.x), run.weight(&o.scale), run.weight(&o.base));
    let (n, eps) = (o.streams, f64::from(o.eps));
    let part = |row: &[f64], part: usize, from: usize, len: usize| -> Vec<f64> {
        (from..from + len).map(|i| row[i] * scale.data[part] + base.data[i]).collect()
    };
    let sigmoid = |x: f64| ops::activate(Act::Sigmoid, x);
    let pre = x.by_row(n, |row| part(row, 0, 0, n).into_iter().map(|x| sigmoid(x) + eps).collect());
    let post = x.by_row(n, |row| part(row, 1, n, n).into_iter().map(|x| 2.0 * sigmoid(x)).collect());
    let mix = x.by_row(n * n, |row| {
        let logits = part(row, 2, 2 * n, n * n);
        let mut mix: Vec<f64> = logits.chunks_exact(n).flat_map(softmax).map(|share| share + eps).collect();
        columns_to_one(&mut mix, n, eps);
        for _ in 1..o.iterations {
            for row in mix.chunks_exact_mut(n) {
                let sum = row.iter().sum::<f64>() + eps;
                row.iter_mut().for_each(|x| *x /= sum);
            }
            columns_to_one(&mut mix, n, eps);
        }
        mix
    });
    vec![pre, post, mix]
}

fn columns_to_one(mix: &mut [f64], n: usize, eps: f64) {
    for column in 0..n {
        let sum = (0..n).map(|row| mix[row * n + column]).sum::<f64>() + eps;
        (0..n).for_each(|row| mix[row * n + column] /= sum);
    }
}

pub(super) fn collapse(run: &Run<'_>, o: &StreamCollapse) -> Value {
    let x = run.value(&o.x);
    let width = x.width / o.streams;
    let sum = |row: Vec<f64>| (0..width).map(|i| row.iter().skip(i).step_by(width).sum()).collect();
    match run.optional(&o.weights) {
        None => x.by_row(width, |row| sum(row.to_vec())),
        Some(weights) => Value::by_rows(width, [x, weights], |[x, w]| sum(ops::spread(x, w, |x, w| x * w))),
    }
}

pub(super) fn update(run: &Run<'_>, o: &StreamUpdate) -> Value {
    let (y, post) = (run.value(&o.y), run.value(&o.post));
    let (n, width) = (post.width, y.width);
    let mut out = Value::by_rows(n * width, [y, post], |[y, post]| {
        post.iter().flat_map(|post| y.iter().map(move |y| post * y)).collect()
    });
    let Some(x) = run.optional(&o.x) else { return out };
    for (i, out) in out.data.chunks_exact_mut(n * width).enumerate() {
        for (from, to) in (0..n * n).map(|pair| (pair / n, pair % n)) {
            let own = f64::from(u8::from(from == to));
            let share = run.optional(&o.mix).map_or(own, |mix| mix.row(i)[from * n + to]);
            let old = &x.row(i)[from * width..][..width];
            out[to * width..][..width].iter_mut().zip(old).for_each(|(out, old)| *out += share * old);
        }
    }
    out
}
