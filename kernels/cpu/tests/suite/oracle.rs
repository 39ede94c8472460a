//! Every value of a model against plain loops in double precision; and the fused plan against the plain one.

use std::collections::HashMap;

use bantam_backend::{KvType, WeightSource};
use bantam_cpu::isa::Isa;
use bantam_gguf::{GgmlType, dequantize};
use bantam_graph::{Act, Graph, InputSource, Op, Pairing, Rope, RopeScaling};

use crate::{
    model::{HYBRID, MIXTURE, PLAIN, RandomWeights, Shape, WINDOWED, quantized},
    session::{Session, Setup, prompt},
};

type Matrix = Vec<Vec<f64>>;

/// Runs a graph on one whole sequence whose logits are all wanted.
struct Oracle<'a> {
    graph: &'a Graph,
    weights: &'a RandomWeights,
    values: HashMap<String, Matrix>,
}

impl Oracle<'_> {
    fn weight(&self, name: &str) -> Matrix {
        let data = self.weights.load(self.graph.weight(name).unwrap()).unwrap();
        let mut values = vec![0.0; data.shape.iter().product()];
        dequantize(data.ty, &data.bytes, &mut values).unwrap();
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        values.chunks(*data.shape.last().unwrap()).map(<[f64]>::to_vec).collect()
    }

    fn run(&mut self, tokens: &[u32]) {
        for node in &self.graph.nodes {
            if let Op::Store { .. } = &node.op {
                continue;
            }
            if let Op::Route(o) = &node.op {
                let (ids, weights) = route(&self.values[&o.scores], o.used, o.normalize);
                self.values.insert(format!("{}.ids", node.name), ids);
                self.values.insert(format!("{}.weights", node.name), weights);
            } else {
                let value = self.node(&node.op, tokens);
                self.values.insert(node.name.clone(), value);
            }
        }
    }

    fn node(&self, op: &Op, tokens: &[u32]) -> Matrix {
        let x = |name: &String| &self.values[name];
        match op {
            Op::Input { source: InputSource::TokenIds } => tokens.iter().map(|t| vec![f64::from(*t)]).collect(),
            Op::Input { source: InputSource::Positions } => (0..tokens.len()).map(|i| vec![i as f64]).collect(),
            Op::Embed(o) => {
                let table = self.weight(&o.table);
                let row = |id: &Vec<f64>| table[id[0] as usize].iter().map(|x| x * f64::from(o.scale)).collect();
                x(&o.ids).iter().map(row).collect()
            }
            Op::Linear(o) => {
                let mut y = multiply(x(&o.x), &self.weight(&o.weight));
                if let Some(bias) = &o.bias {
                    let bias = self.weight(bias);
                    y.iter_mut().for_each(|row| row.iter_mut().zip(&bias[0]).for_each(|(y, b)| *y += b));
                }
                y
            }
            Op::Norm(o) => {
                let weight = o.weight.as_ref().map(|w| self.weight(w).remove(0));
                let group = o.group.unwrap_or(x(&o.x)[0].len());
                x(&o.x).iter().map(|row| norm(row, group, f64::from(o.eps), weight.as_deref())).collect()
            }
            Op::Rope(o) => x(&o.x).iter().zip(x(&o.positions)).map(|(row, p)| rope(row, p[0] as usize, o)).collect(),
            Op::Attention(o) => {
                let dim = self.graph.state(&o.k_state).unwrap().dim;
                attention(
                    x(&o.q),
                    x(o.k.as_ref().unwrap()),
                    x(o.v.as_ref().unwrap()),
                    dim,
                    f64::from(o.scale),
                    o.window,
                )
            }
            Op::Activate { x: a, act } => map(x(a), |v| activate(*act, v)),
            Op::Glu(o) => zip(&map(x(&o.gate), |v| activate(o.act, v)), x(&o.up), |a, b| a * b),
            Op::Add { a, b } => zip(x(a), x(b), |a, b| a + b),
            Op::Mul { a, b } => zip(x(a), x(b), |a, b| a * b),
            Op::Scale { x: a, factor, .. } => map(x(a), |v| v * f64::from(*factor)),
            Op::Softcap { x: a, cap } => map(x(a), |v| f64::from(*cap) * (v / f64::from(*cap)).tanh()),
            Op::Select { x: a, .. } => x(a).clone(),
            Op::Input { source: InputSource::StridedPositions { stride } } => {
                (0..tokens.len() / stride).map(|w| vec![(w * stride) as f64]).collect()
            }
            Op::ShortConv(o) => {
                let bias = o.bias.as_ref().map(|b| self.weight(b).remove(0));
                short_conv(x(&o.x), &self.weight(&o.weight), bias.as_deref(), o.dilation)
            }
            Op::DeltaRule(o) => delta_rule([&o.q, &o.k, &o.v, &o.decay, &o.beta].map(x), f64::from(o.scale)),
            Op::Ssm(o) => {
                let (a, d) = (self.weight(&o.a).remove(0), self.weight(o.d.as_ref().unwrap()).remove(0));
                scan([&o.x, &o.b, &o.c, &o.dt].map(x), &a, &d)
            }
            Op::Pool(o) => {
                let bias = o.bias.as_ref().map(|b| self.weight(b));
                pool(x(&o.x), o.gate.as_ref().map(x), bias.as_ref(), o.stride, o.overlap)
            }
            Op::Experts(o) => {
                let (gate, up, down) =
                    (self.weight(o.gate.as_ref().unwrap()), self.weight(&o.up), self.weight(o.down.as_ref().unwrap()));
                let (ffn, width) = (down[0].len(), x(&o.x)[0].len());
                let row = |i: usize| {
                    let mut sum = vec![0.0; width];
                    for (id, weight) in x(&o.ids)[i].iter().zip(&x(&o.weights)[i]) {
                        let (e, input) = (*id as usize, vec![x(&o.x)[i].clone()]);
                        let [g, u] = [&gate, &up].map(|m| multiply(&input, &m[e * ffn..(e + 1) * ffn]));
                        let h = zip(&map(&g, |v| activate(o.act, v)), &u, |a, b| a * b);
                        let y = multiply(&h, &down[e * width..(e + 1) * width]);
                        sum.iter_mut().zip(&y[0]).for_each(|(s, y)| *s += weight * y);
                    }
                    sum
                };
                (0..x(&o.x).len()).map(row).collect()
            }
            other => unreachable!("{other:?} is in no model here"),
        }
    }
}

fn map(x: &Matrix, f: impl Fn(f64) -> f64) -> Matrix {
    x.iter().map(|row| row.iter().map(|v| f(*v)).collect()).collect()
}

fn zip(a: &Matrix, b: &Matrix, f: impl Fn(f64, f64) -> f64) -> Matrix {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn multiply(x: &Matrix, weight: &[Vec<f64>]) -> Matrix {
    x.iter().map(|row| weight.iter().map(|w| dot(row, w)).collect()).collect()
}

fn norm(row: &[f64], group: usize, eps: f64, weight: Option<&[f64]>) -> Vec<f64> {
    let group = row.chunks(group).flat_map(|x| {
        let factor = 1.0 / (dot(x, x) / x.len() as f64 + eps).sqrt();
        x.iter().enumerate().map(move |(i, v)| v * factor * weight.map_or(1.0, |w| w[i]))
    });
    group.collect()
}

fn activate(act: Act, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match act {
        Act::Silu => x * sigmoid(x),
        Act::Sigmoid => sigmoid(x),
        Act::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Act::ReluSquared => x.max(0.0).powi(2),
        Act::SignedSqrt => x.signum() * x.abs().max(1e-6).sqrt(),
        Act::GeluTanh => x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh()),
    }
}

fn rope(row: &[f64], position: usize, o: &Rope) -> Vec<f64> {
    let factor = match &o.scaling {
        Some(RopeScaling::Linear { factor }) => f64::from(*factor),
        _ => 1.0,
    };
    let mut row = row.to_vec();
    for head in row.chunks_mut(o.head_dim) {
        for j in 0..o.dims / 2 {
            let (a, b) = match o.pairing {
                Pairing::Interleaved => (2 * j, 2 * j + 1),
                Pairing::Halves => (j, j + o.dims / 2),
                Pairing::HeadHalves => (j, j + o.head_dim / 2),
            };
            let angle = position as f64 * f64::from(o.base).powf(-2.0 * j as f64 / o.dims as f64) / factor;
            let (s, c) = angle.sin_cos();
            (head[a], head[b]) = (head[a] * c - head[b] * s, head[b] * c + head[a] * s);
        }
    }
    row
}

fn attention(q: &Matrix, k: &Matrix, v: &Matrix, dim: usize, scale: f64, window: Option<usize>) -> Matrix {
    let (heads, kv_heads) = (q[0].len() / dim, k[0].len() / dim);
    let head = |position: usize, h: usize| {
        let kv = h / (heads / kv_heads) * dim;
        let first = window.map_or(0, |w| (position + 1).saturating_sub(w));
        let query = &q[position][h * dim..(h + 1) * dim];
        let scores: Vec<f64> = (first..=position).map(|j| scale * dot(query, &k[j][kv..kv + dim])).collect();
        let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - greatest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let entry = |d: usize| weights.iter().zip(first..).map(|(w, j)| w * v[j][kv + d]).sum::<f64>() / total;
        (0..dim).map(entry).collect::<Vec<_>>()
    };
    (0..q.len()).map(|p| (0..heads).flat_map(|h| head(p, h)).collect()).collect()
}

fn short_conv(x: &Matrix, weight: &Matrix, bias: Option<&[f64]>, dilation: usize) -> Matrix {
    let taps = weight[0].len();
    let at = |t: usize, c: usize, tap: usize| {
        let before = (taps - 1 - tap) * dilation;
        t.checked_sub(before).map_or(0.0, |t| weight[c][tap] * x[t][c])
    };
    let entry = |t: usize, c: usize| bias.map_or(0.0, |b| b[c]) + (0..taps).map(|tap| at(t, c, tap)).sum::<f64>();
    (0..x.len()).map(|t| (0..x[0].len()).map(|c| entry(t, c)).collect()).collect()
}

fn delta_rule([q, k, v, decay, beta]: [&Matrix; 5], scale: f64) -> Matrix {
    let heads = beta[0].len();
    let value_dim = v[0].len() / heads;
    let key_dim = if decay[0].len() == heads { 11 } else { decay[0].len() / heads };
    let key_heads = q[0].len() / key_dim;
    let mut states = vec![vec![vec![0.0; value_dim]; key_dim]; heads];
    let mut out = Vec::new();
    for t in 0..q.len() {
        let mut row = Vec::new();
        for (h, state) in states.iter_mut().enumerate() {
            let part = h % key_heads * key_dim..(h % key_heads + 1) * key_dim;
            let (q, k, v) = (&q[t][part.clone()], &k[t][part], &v[t][h * value_dim..(h + 1) * value_dim]);
            for (c, entries) in state.iter_mut().enumerate() {
                let decay = if decay[t].len() == heads { decay[t][h] } else { decay[t][h * key_dim + c] };
                entries.iter_mut().for_each(|s| *s *= decay.exp());
            }
            for (j, v) in v.iter().enumerate() {
                let delta = beta[t][h] * (v - (0..key_dim).map(|c| state[c][j] * k[c]).sum::<f64>());
                (0..key_dim).for_each(|c| state[c][j] += k[c] * delta);
                row.push(scale * (0..key_dim).map(|c| state[c][j] * q[c]).sum::<f64>());
            }
        }
        out.push(row);
    }
    out
}

fn scan([x, b, c, dt]: [&Matrix; 4], a: &[f64], d: &[f64]) -> Matrix {
    let heads = dt[0].len();
    let dim = x[0].len() / heads;
    let size = b[0].len() / 2;
    let mut states = vec![vec![vec![0.0; size]; dim]; heads];
    let mut out = Vec::new();
    for t in 0..x.len() {
        let mut row = Vec::new();
        for (h, state) in states.iter_mut().enumerate() {
            let group = h / (heads / 2) * size;
            for (i, entries) in state.iter_mut().enumerate() {
                let x = x[t][h * dim + i];
                for (j, s) in entries.iter_mut().enumerate() {
                    *s = (dt[t][h] * a[h]).exp() * *s + dt[t][h] * x * b[t][group + j];
                }
                row.push(dot(entries, &c[t][group..group + size]) + d[h] * x);
            }
        }
        out.push(row);
    }
    out
}

fn pool(x: &Matrix, gate: Option<&Matrix>, bias: Option<&Matrix>, stride: usize, overlap: bool) -> Matrix {
    let width = if overlap { x[0].len() / 2 } else { x[0].len() };
    let entry = |w: usize, c: usize| {
        let first = if overlap { (w * stride).saturating_sub(stride) } else { w * stride };
        let column = |t: usize| if overlap && t >= w * stride { width + c } else { c };
        let logit = |t: usize| gate.map_or(0.0, |g| g[t][column(t)]) + bias.map_or(0.0, |b| b[t % stride][column(t)]);
        let tokens = first..(w + 1) * stride;
        let total: f64 = tokens.clone().map(|t| logit(t).exp()).sum();
        tokens.map(|t| x[t][column(t)] * logit(t).exp() / total).sum::<f64>()
    };
    (0..x.len() / stride).map(|w| (0..width).map(|c| entry(w, c)).collect()).collect()
}

fn route(scores: &Matrix, used: usize, normalize: bool) -> (Matrix, Matrix) {
    let row = |scores: &Vec<f64>| {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let all: f64 = scores.iter().map(|s| s.exp()).sum();
        let weights: Vec<f64> = order[..used].iter().map(|e| scores[*e].exp() / all).collect();
        let total: f64 = if normalize { weights.iter().sum() } else { 1.0 };
        let ids = order[..used].iter().map(|e| *e as f64).collect();
        (ids, weights.iter().map(|w| w / total).collect())
    };
    scores.iter().map(row).unzip()
}

/// How far traced values are from the oracle's, relative to the root mean square of the value; the worst of all values.
struct Errors {
    /// Largest difference.
    largest: f64,
    /// Root mean square of the differences.
    typical: f64,
}

fn errors(shape: &Shape, setup: Setup) -> Errors {
    let (graph, weights, tokens) = (shape.graph(), shape.weights(), prompt(90, shape.vocab, 4));
    let mut oracle = Oracle { graph: &graph, weights: &weights, values: HashMap::new() };
    oracle.run(&tokens);
    let mut session = Session::new(shape, setup);
    let step = session.step(&[(0, &tokens, tokens.len())]);
    let (mut worst, mut seen) = (Errors { largest: 0.0, typical: 0.0 }, 0);
    let mut compare = |name: &str, width: usize, found: &[f32]| {
        let expected: Vec<f64> = oracle.values[name].concat();
        assert_eq!((expected.len(), oracle.values[name][0].len()), (found.len(), width), "{name}");
        let scale = (dot(&expected, &expected) / expected.len() as f64).sqrt().max(1e-9);
        let differences: Vec<f64> = expected.iter().zip(found).map(|(e, f)| (e - f64::from(*f)) / scale).collect();
        worst.largest = differences.iter().fold(worst.largest, |w, d| w.max(d.abs()));
        worst.typical = worst.typical.max((dot(&differences, &differences) / differences.len() as f64).sqrt());
        seen += 1;
    };
    session.program.run_traced(&step, &mut compare).unwrap();
    assert_eq!(seen, oracle.values.len(), "every named value is shown");
    worst
}

#[test]
fn every_value_is_right() {
    for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
        let exact = Setup { isa, k_type: KvType::F32, v_type: KvType::F32, ..Setup::default() };
        for shape in [PLAIN, WINDOWED, MIXTURE, HYBRID] {
            let error = errors(&shape, exact).largest;
            assert!(error < 4e-5, "{shape:?} on {isa:?}: {error}");
            let error = errors(&shape, Setup { isa, ..Setup::default() }).largest;
            assert!((1e-6..2e-2).contains(&error), "{shape:?} on {isa:?} with a cache of halves: {error}");
        }
    }
}

#[test]
fn quantized_values_are_near() {
    for (shape, ty) in [(PLAIN, GgmlType::Q8_0), (WINDOWED, GgmlType::Q6_K), (PLAIN, GgmlType::Q4_K)] {
        let error = errors(&quantized(shape, ty), Setup::default()).typical;
        assert!(error < 0.05, "{shape:?} in {ty}: {error}");
    }
}

#[test]
fn a_quantized_cache_is_near() {
    for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
        for (kv, bounds) in [(KvType::Q8_0, 1e-4..1e-2), (KvType::Turbo4, 1e-2..0.3), (KvType::Turbo3, 3e-2..0.6)] {
            for shape in [PLAIN, WINDOWED] {
                let error = errors(&shape, Setup { isa, k_type: kv, v_type: kv, ..Setup::default() }).typical;
                assert!(bounds.contains(&error), "{shape:?} with {kv:?} on {isa:?}: {error}");
            }
        }
    }
}

#[test]
fn fused_and_plain_plans_give_the_same_bits() {
    for shape in
        [PLAIN, WINDOWED, MIXTURE, HYBRID, quantized(PLAIN, GgmlType::Q4_K), quantized(MIXTURE, GgmlType::Q8_0)]
    {
        let tokens = prompt(70, shape.vocab, 3);
        let fused = Session::new(&shape, Setup::default()).run(&[(0, &tokens, 9)]).concat();
        let mut session = Session::new(&shape, Setup::default());
        let step = session.step(&[(0, &tokens, 9)]);
        session.program.run_traced(&step, &mut |_, _, _| {}).unwrap();
        let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&fused), bits(session.program.logits()), "{shape:?}");
    }
}
