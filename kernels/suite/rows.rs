//! Ops that look at one row at a time.

use bantam_graph::{Act, GluLimit, Norm, NormKind, Op, Pairing, Rope, RopeScaling};

use crate::bench::Bench;

type Rows = Vec<Vec<f64>>;

fn each(rows: &Rows, f: impl Fn(&[f64]) -> Vec<f64>) -> Rows {
    rows.iter().map(|row| f(row)).collect()
}

#[test]
fn affine_spreads_its_weights() {
    for (scale, bias) in [(Some(1), None), (Some(12), Some(4)), (None, Some(12)), (Some(4), Some(1))] {
        let bench = Bench::new(|s| {
            let x = s.floats("x", 12);
            let scale = scale.map(|n| s.graph.tensor("scale", &[n]));
            let bias = bias.map(|n| s.graph.tensor("bias", &[n]));
            s.graph.affine("y", &x, scale.as_deref(), bias.as_deref())
        });
        bench.check(1e-6, |seen| {
            let entry =
                |name: &str, n: Option<usize>, i: usize, none: f64| n.map_or(none, |n| seen.weight(name)[i / (12 / n)]);
            each(&seen.rows("x"), |row| {
                let y = |(i, x): (usize, &f64)| x * entry("scale", scale, i, 1.0) + entry("bias", bias, i, 0.0);
                row.iter().enumerate().map(y).collect()
            })
        });
    }
}

#[test]
fn factors_spread_over_heads() {
    for width in [1, 3, 12] {
        let bench = Bench::new(|s| {
            let (x, f) = (s.floats("x", 12), s.floats("f", width));
            s.graph.mul("y", &x, &f)
        });
        bench.check(1e-6, |seen| {
            let factors = seen.rows("f");
            let row = |(x, f): (&Vec<f64>, &Vec<f64>)| (0..12).map(|i| x[i] * f[i / (12 / width)]).collect();
            seen.rows("x").iter().zip(&factors).map(row).collect()
        });
    }
}

#[test]
fn scale_shifts() {
    let bench = Bench::new(|s| {
        let x = s.floats("x", 9);
        s.graph.push("y", Op::Scale { x, factor: -0.75, offset: 1.5 })
    });
    bench.check(1e-6, |seen| each(&seen.rows("x"), |row| row.iter().map(|x| x * -0.75 + 1.5).collect()));
}

#[test]
fn slices_and_concatenations_by_heads() {
    let bench = Bench::new(|s| {
        let x = s.floats("x", 24);
        let other = s.floats("other", 9);
        let part = s.graph.slice("part", &x, 3, 2, 5);
        s.graph.concat("y", &[&part, &other, &part], 3)
    });
    bench.check(0.0, |seen| {
        let others = seen.rows("other");
        let row = |(x, other): (&Vec<f64>, &Vec<f64>)| {
            let head =
                |h: usize| [&x[h * 8 + 2..h * 8 + 7], &other[h * 3..h * 3 + 3], &x[h * 8 + 2..h * 8 + 7]].concat();
            (0..3).flat_map(head).collect()
        };
        seen.rows("x").iter().zip(&others).map(row).collect()
    });
}

#[test]
fn norms_of_groups() {
    for (kind, weight) in [(NormKind::Rms, Some(40)), (NormKind::Rms, Some(20)), (NormKind::L2, None)] {
        let bench = Bench::new(|s| {
            let x = s.floats("x", 40);
            let weight = weight.map(|n| s.graph.tensor("weight", &[n]));
            s.graph.push("y", Op::Norm(Norm { x, weight, kind, eps: 1e-3, group: Some(20) }))
        });
        bench.check(1e-6, |seen| {
            let weight = weight.map_or(vec![1.0], |_| seen.weight("weight"));
            each(&seen.rows("x"), |row| {
                let group = |(g, x): (usize, &[f64])| {
                    let squares: f64 = x.iter().map(|x| x * x).sum();
                    let size = if kind == NormKind::Rms { squares / 20.0 } else { squares };
                    let factor = 1.0 / (size + f64::from(1e-3f32)).sqrt();
                    let y = |i: usize| x[i] * factor * weight[(g * 20 + i) % weight.len()];
                    (0..20).map(y).collect::<Vec<_>>()
                };
                row.chunks(20).enumerate().flat_map(group).collect()
            })
        });
    }
}

#[test]
fn rotations() {
    let cases = [
        (Pairing::HeadHalves, 6, 0, false),
        (Pairing::HeadHalves, 16, 0, true),
        (Pairing::Halves, 10, 6, false),
        (Pairing::Interleaved, 8, 3, true),
        (Pairing::Halves, 16, 0, true),
        (Pairing::Interleaved, 8, 8, false),
    ];
    for (pairing, dims, offset, inverse) in cases {
        let bench = Bench::new(|s| {
            let (x, positions) = (s.floats("x", 32), s.positions.clone());
            let scaling = Some(RopeScaling::Linear { factor: 1.5 });
            let rope = Rope {
                x,
                positions,
                head_dim: 16,
                dims,
                offset,
                pairing,
                base: 100.0,
                scaling,
                factors: None,
                inverse,
            };
            s.graph.rope("y", rope)
        });
        bench.check(1e-6, |seen| {
            let rotated = |(position, x): (usize, &Vec<f64>)| {
                let mut y = x.clone();
                for head in y.chunks_mut(16) {
                    for j in 0..dims / 2 {
                        let (a, b) = match pairing {
                            Pairing::Interleaved => (2 * j, 2 * j + 1),
                            Pairing::Halves => (j, j + dims / 2),
                            Pairing::HeadHalves => (j, j + 8),
                        };
                        let period = 100f64.powf(f64::from((2 * j) as f32 / dims as f32)) as f32;
                        let angle = f64::from(position as f32 * (1.0 / period / 1.5));
                        let (s, c) = if inverse { (-angle).sin_cos() } else { angle.sin_cos() };
                        let (x, y) = (head[offset + a], head[offset + b]);
                        (head[offset + a], head[offset + b]) = (x * c - y * s, y * c + x * s);
                    }
                }
                y
            };
            seen.rows("x").iter().enumerate().map(rotated).collect()
        });
    }
}

fn activate(act: Act, x: f64) -> f64 {
    match act {
        Act::Silu => x / (1.0 + (-x).exp()),
        Act::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Act::Softplus => (1.0 + x.exp()).ln(),
        Act::ReluSquared => x.max(0.0).powi(2),
        Act::SignedSqrt => x.signum() * x.abs().max(1e-6).sqrt(),
        Act::GeluTanh => x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh()),
    }
}

#[test]
fn activations() {
    for act in [Act::Softplus, Act::SignedSqrt, Act::Silu, Act::Sigmoid, Act::ReluSquared, Act::GeluTanh] {
        let bench = Bench::new(|s| {
            let x = s.floats("x", 37);
            let x = s.graph.scale("wide", &x, 9.0);
            s.graph.activate("y", &x, act)
        });
        bench.check(1e-6, |seen| each(&seen.rows("wide"), |row| row.iter().map(|x| activate(act, *x)).collect()));
    }
}

#[test]
fn gated_products_with_bounds() {
    let limits = [None, Some(GluLimit::BeforeAct(0.75)), Some(GluLimit::AfterAct(0.5))];
    for (act, limit) in [Act::Silu, Act::Softplus].into_iter().flat_map(|act| limits.map(|limit| (act, limit))) {
        let bench = Bench::new(|s| {
            let (gate, up) = (s.floats("gate", 64), s.floats("up", 64));
            s.graph.limited_glu("y", &gate, &up, act, limit)
        });
        let product = |gate: f64, up: f64| match limit {
            None => activate(act, gate) * up,
            Some(GluLimit::BeforeAct(l)) => activate(act, gate.min(l.into())) * up.clamp(-f64::from(l), l.into()),
            Some(GluLimit::AfterAct(l)) => activate(act, gate).min(l.into()) * up.clamp(-f64::from(l), l.into()),
        };
        bench.check(1e-6, |seen| {
            let ups = seen.rows("up");
            let row = |(gate, up): (&Vec<f64>, &Vec<f64>)| gate.iter().zip(up).map(|(g, u)| product(*g, *u)).collect();
            seen.rows("gate").iter().zip(&ups).map(row).collect()
        });
    }
}
