//! Hyper-connections.

use bantam_graph::{StreamGates, StreamUpdate};

use crate::bench::Bench;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gates(part: &'static str, streams: usize, iterations: u32) {
    const EPS: f64 = 1e-3;
    let width = (2 + streams) * streams;
    let bench = Bench::new(|s| {
        let x = s.floats("x", width);
        let (scale, base) = (s.graph.tensor("scale", &[3]), s.graph.tensor("base", &[width]));
        let gates = StreamGates { x, scale, base, streams, iterations, eps: EPS as f32 };
        let gates = s.graph.stream_gates("gates", gates);
        gates.into_iter().find(|name| name.ends_with(part)).unwrap()
    });
    bench.check(1e-6, |seen| {
        let (scale, base) = (seen.weight("scale"), seen.weight("base"));
        let row = |x: &Vec<f64>| {
            let logit = |i: usize| x[i] * scale[(i / streams).min(2)] + base[i];
            match part {
                "pre" => (0..streams).map(|s| sigmoid(logit(s)) + EPS).collect(),
                "post" => (streams..2 * streams).map(|s| 2.0 * sigmoid(logit(s))).collect(),
                _ => {
                    let logits: Vec<f64> = (2 * streams..width).map(logit).collect();
                    mix(&logits, streams, iterations, EPS)
                }
            }
        };
        seen.rows("x").iter().map(row).collect()
    });
}

fn mix(logits: &[f64], streams: usize, iterations: u32, eps: f64) -> Vec<f64> {
    let mut mix: Vec<f64> = logits.iter().map(|x| x.exp()).collect();
    let rows = |mix: &mut Vec<f64>, eps: f64| {
        for row in mix.chunks_mut(streams) {
            let sum: f64 = row.iter().sum::<f64>() + eps;
            row.iter_mut().for_each(|x| *x /= sum);
        }
    };
    let columns = |mix: &mut Vec<f64>| {
        for c in 0..streams {
            let sum: f64 = (0..streams).map(|r| mix[r * streams + c]).sum::<f64>() + eps;
            (0..streams).for_each(|r| mix[r * streams + c] /= sum);
        }
    };
    rows(&mut mix, 0.0);
    mix.iter_mut().for_each(|x| *x += eps);
    columns(&mut mix);
    for _ in 1..iterations {
        rows(&mut mix, eps);
        columns(&mut mix);
    }
    mix
}

#[test]
fn gates_of_streams() {
    for part in ["pre", "post", "mix"] {
        for (streams, iterations) in [(4, 20), (3, 1), (17, 2)] {
            gates(part, streams, iterations);
        }
    }
}

#[test]
fn streams_collapse_to_a_row() {
    for weights in [None, Some(3), Some(60)] {
        let bench = Bench::new(|s| {
            let x = s.floats("x", 60);
            let weights = weights.map(|n| s.floats("w", n));
            s.graph.stream_collapse("y", &x, 3, weights.as_deref())
        });
        bench.check(1e-6, |seen| {
            let w = weights.map(|_| seen.rows("w"));
            let row = |(r, x): (usize, &Vec<f64>)| {
                let weight = |s: usize, c: usize| match (&w, weights) {
                    (Some(w), Some(3)) => w[r][s],
                    (Some(w), _) => w[r][s * 20 + c],
                    _ => 1.0,
                };
                (0..20).map(|c| (0..3).map(|s| weight(s, c) * x[s * 20 + c]).sum()).collect()
            };
            seen.rows("x").iter().enumerate().map(row).collect()
        });
    }
}

#[test]
fn a_result_goes_into_all_streams() {
    for (old, mixed) in [(false, false), (true, false), (true, true)] {
        let bench = Bench::new(|s| {
            let (y, post) = (s.floats("y", 20), s.floats("post", 3));
            let (x, mix) = (old.then(|| s.floats("x", 60)), mixed.then(|| s.floats("mix", 9)));
            s.graph.stream_update("new", StreamUpdate { x, y, post, mix })
        });
        bench.check(1e-6, |seen| {
            let (y, post) = (seen.rows("y"), seen.rows("post"));
            let (x, mix) = (old.then(|| seen.rows("x")), mixed.then(|| seen.rows("mix")));
            let row = |r: usize| {
                let entry = |d: usize, c: usize| {
                    let share = |s: usize| mix.as_ref().map_or(f64::from(u8::from(s == d)), |mix| mix[r][s * 3 + d]);
                    let old = x.as_ref().map_or(0.0, |x| (0..3).map(|s| share(s) * x[r][s * 20 + c]).sum());
                    post[r][d] * y[r][c] + old
                };
                (0..60).map(|i| entry(i / 20, i % 20)).collect()
            };
            (0..y.len()).map(row).collect()
        });
    }
}
