//! Routing and experts.

use bantam_graph::{Act, Experts, Route, Scoring};

use super::{
    Run, Tensor, Value,
    ops::{activate, gated, product, softmax},
};

/// Ids and weights of the chosen experts, best first.
pub(super) fn route(run: &Run<'_>, o: &Route) -> Vec<Value> {
    let (outputs, given) = (run.value(&o.scores), run.optional(&o.ids));
    let bias = run.optional_weight(&o.bias);
    let (mut ids, mut weights) = (Vec::new(), Vec::new());
    for (i, row) in outputs.rows().enumerate() {
        let scores: Vec<f64> = match o.scoring {
            Scoring::Softmax => softmax(row),
            Scoring::Sigmoid => row.iter().map(|&x| activate(Act::Sigmoid, x)).collect(),
            Scoring::SqrtSoftplus => row.iter().map(|&x| activate(Act::Softplus, x).sqrt()).collect(),
        };
        let chosen = match given {
            Some(ids) => ids.row(i).iter().map(|&id| id as usize).collect(),
            None => {
                let bias = |e: usize| bias.map_or(0.0, |bias| bias.data[e]);
                choose(o, &scores.iter().enumerate().map(|(e, score)| score + bias(e)).collect::<Vec<_>>())
            }
        };
        let sum: f64 = chosen.iter().map(|&e| scores[e]).sum();
        let divisor = if o.normalize { sum + 1e-20 } else { 1.0 };
        weights.extend(chosen.iter().map(|&e| scores[e] / divisor * f64::from(o.scale)));
        ids.extend(chosen.iter().map(|&e| e as f64));
    }
    [ids, weights].map(|data| Value { width: o.used, data }).into()
}

fn choose(o: &Route, scores: &[f64]) -> Vec<usize> {
    let members = o.groups.map_or(scores.len(), |groups| scores.len() / groups.count);
    let good = |group: &[f64]| -> f64 { best(group, 2).into_iter().map(|e| group[e]).sum() };
    let groups: Vec<f64> = scores.chunks_exact(members).map(good).collect();
    let kept = best(&groups, o.groups.map_or(1, |groups| groups.used));
    let allowed = |(e, score): (usize, &f64)| if kept.contains(&(e / members)) { *score } else { f64::NEG_INFINITY };
    best(&scores.iter().enumerate().map(allowed).collect::<Vec<_>>(), o.used)
}

/// Indexes of the `n` highest numbers, best first, of equal ones the lower.
fn best(numbers: &[f64], n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[b].total_cmp(&numbers[a]));
    order.truncate(n);
    order
}

pub(super) fn experts(run: &Run<'_>, o: &Experts) -> Value {
    let (up, down) = (run.weight(&o.up), run.optional_weight(&o.down));
    let gate = run.optional_weight(&o.gate);
    let scales = o.scales.clone().unwrap_or_default();
    let scale = |name: &Option<String>, id: usize| run.optional_weight(name).map_or(1.0, |scale| scale.data[id]);
    let times = |matrices: &Tensor, scales: &Option<String>, id: usize, x: &[f64]| -> Vec<f64> {
        product(expert(matrices, id), x).into_iter().map(|y| y * scale(scales, id)).collect()
    };
    let width = down.map_or(up.shape[1], |down| down.shape[1]);
    let values = [&o.x, &o.ids, &o.weights].map(|name| run.value(name));
    Value::by_rows(width, values, |[x, ids, weights]| {
        let mut sum = vec![0.0; width];
        for (&id, &weight) in ids.iter().zip(weights) {
            let id = id as usize;
            let up = times(up, &scales.up, id, x);
            let inner = match gate {
                Some(gate) => {
                    let gate = times(gate, &scales.gate, id, x);
                    gate.iter().zip(&up).map(|(&gate, &up)| gated(o.act, o.limit, gate, up)).collect()
                }
                None => up.iter().map(|&up| activate(o.act, up)).collect::<Vec<_>>(),
            };
            let y = down.map_or(inner.clone(), |down| times(down, &scales.down, id, &inner));
            sum.iter_mut().zip(&y).for_each(|(sum, y)| *sum += weight * y);
        }
        sum
    })
}

fn expert(matrices: &Tensor, id: usize) -> &[f64] {
    let size = matrices.shape[1] * matrices.shape[2];
    &matrices.data[id * size..(id + 1) * size]
}
