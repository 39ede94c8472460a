//! Routing and experts.

use bantam_graph::{Act, ExpertGroups, ExpertScales, Experts, GluLimit, Route, Scoring};

use crate::bench::{Bench, Seen};

const EXPERTS: usize = 12;
const USED: usize = 4;

fn routed(route: Route) -> Bench {
    Bench::new(|s| {
        let scores = s.floats("scores", EXPERTS);
        if route.bias.is_some() {
            s.graph.tensor("bias", &[EXPERTS]);
        }
        let (ids, weights) = s.graph.route("route", Route { scores, used: USED, ..route });
        // Ids count too: each names a row of a table.
        let table = s.graph.tensor("names", &[EXPERTS, 8]);
        let names = s.graph.embed("named", &ids, &table, 1.0);
        s.graph.mul("y", &names, &weights)
    })
}

/// Chosen experts of a row, best first, and all scores.
fn choice(outputs: &[f64], route: &Route, bias: &[f64]) -> (Vec<usize>, Vec<f64>) {
    let total: f64 = outputs.iter().map(|x| x.exp()).sum();
    let score = |x: &f64| match route.scoring {
        Scoring::Softmax => x.exp() / total,
        Scoring::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Scoring::SqrtSoftplus => (1.0 + x.exp()).ln().sqrt(),
    };
    let scores: Vec<f64> = outputs.iter().map(score).collect();
    let judged: Vec<f64> = scores.iter().zip(bias).map(|(s, b)| s + b).collect();
    let order = |numbers: &[f64]| {
        let mut order: Vec<usize> = (0..numbers.len()).collect();
        order.sort_by(|a, b| numbers[*b].total_cmp(&numbers[*a]));
        order
    };
    let (count, kept) = route.groups.map_or((1, 1), |g| (g.count, g.used));
    let members = EXPERTS / count;
    let goodness = |group: &[f64]| order(group).iter().take(2).map(|e| group[*e]).sum::<f64>();
    let groups = order(&judged.chunks(members).map(goodness).collect::<Vec<_>>());
    let ids = order(&judged).into_iter().filter(|e| groups[..kept].contains(&(e / members))).take(USED).collect();
    (ids, scores)
}

fn check_route(route: &Route) {
    routed(route.clone()).check(1e-6, |seen| {
        let names = seen.weight("names");
        let bias = if route.bias.is_some() { seen.weight("bias") } else { vec![0.0; EXPERTS] };
        let row = |outputs: &Vec<f64>| {
            let (ids, scores) = choice(outputs, route, &bias);
            let sum: f64 = if route.normalize { ids.iter().map(|e| scores[*e]).sum::<f64>() } else { 1.0 };
            let weighted = |e: &usize| {
                let weight = scores[*e] / sum * f64::from(route.scale);
                names[e * 8..e * 8 + 8].iter().map(|x| x * weight).collect::<Vec<_>>()
            };
            ids.iter().flat_map(weighted).collect()
        };
        seen.rows("scores").iter().map(row).collect()
    });
}

#[test]
fn every_scoring_with_every_choice() {
    for scoring in [Scoring::Softmax, Scoring::Sigmoid, Scoring::SqrtSoftplus] {
        for bias in [None, Some("bias".to_owned())] {
            for groups in [None, Some(ExpertGroups { count: 4, used: 2 }), Some(ExpertGroups { count: 2, used: 1 })] {
                let plain = Route { scoring, bias: bias.clone(), groups, ..Route::default() };
                check_route(&plain);
                check_route(&Route { normalize: true, scale: 2.5, ..plain });
            }
        }
    }
}

/// An expert mixture over ids and weights that are given by a router.
fn check_experts(quantized: bool, matrices: [bool; 2], scaled: bool, limit: Option<GluLimit>, act: Act) {
    const WIDTH: usize = 64;
    const FFN: usize = 32;
    let [with_gate, with_down] = matrices;
    let named = |name: &str| if quantized { format!("{name}.q8") } else { name.to_owned() };
    let out = if with_down { WIDTH } else { FFN };
    let bench = Bench::new(|s| {
        let (x, scores) = (s.floats("x", WIDTH), s.floats("scores", EXPERTS));
        let (ids, weights) = s.graph.route("route", Route { scores, used: USED, normalize: true, ..Route::default() });
        let mut matrix = |name: &str, shape: [usize; 3]| s.graph.tensor(&named(name), &shape);
        let gate = with_gate.then(|| matrix("gate", [EXPERTS, FFN, WIDTH]));
        let up = matrix("up", [EXPERTS, FFN, WIDTH]);
        let down = with_down.then(|| matrix("down", [EXPERTS, WIDTH, FFN]));
        let mut scale = |name: &str, there: bool| (scaled && there).then(|| s.graph.tensor(name, &[EXPERTS]));
        let (gate_scale, up_scale) = (scale("gate_scale", with_gate), scale("up_scale", true));
        let scales = ExpertScales { gate: gate_scale, up: up_scale, down: scale("down_scale", with_down) };
        let scales = scaled.then_some(scales);
        s.graph.experts("y", Experts { x, ids, weights, gate, up, down, act, limit, scales })
    });
    bench.check(if quantized { 0.02 } else { 1e-5 }, |seen| {
        let matrix = |name: &str, there: bool| there.then(|| seen.weight(&named(name)));
        let (gate, up, down) = (matrix("gate", with_gate), seen.weight(&named("up")), matrix("down", with_down));
        let scale = |name: &str, e: usize| if scaled { seen.weight(name)[e] } else { 1.0 };
        let expert = |e: usize, x: &[f64]| -> Vec<f64> {
            let up = times(&up, e, x, FFN, scale("up_scale", e));
            let inner: Vec<f64> = match &gate {
                None => up.iter().map(|u| activate(act, *u)).collect(),
                Some(gate) => {
                    let gate = times(gate, e, x, FFN, scale("gate_scale", e));
                    gate.iter().zip(&up).map(|(g, u)| gated(act, limit, *g, *u)).collect()
                }
            };
            down.as_ref().map_or(inner.clone(), |down| times(down, e, &inner, WIDTH, scale("down_scale", e)))
        };
        mixed(seen, out, expert)
    });
}

fn mixed(seen: &Seen<'_>, out: usize, expert: impl Fn(usize, &[f64]) -> Vec<f64>) -> Vec<Vec<f64>> {
    let (ids, weights) = (seen.rows("route.ids"), seen.rows("route.weights"));
    let row = |(i, x): (usize, &Vec<f64>)| {
        let mut sum = vec![0.0; out];
        for (id, weight) in ids[i].iter().zip(&weights[i]) {
            sum.iter_mut().zip(expert(*id as usize, x)).for_each(|(sum, y)| *sum += weight * y);
        }
        sum
    };
    seen.rows("x").iter().enumerate().map(row).collect()
}

fn times(matrices: &[f64], e: usize, x: &[f64], rows: usize, scale: f64) -> Vec<f64> {
    let matrix = &matrices[e * rows * x.len()..][..rows * x.len()];
    matrix.chunks(x.len()).map(|w| scale * w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()).collect()
}

fn activate(act: Act, x: f64) -> f64 {
    match act {
        Act::Silu => x / (1.0 + (-x).exp()),
        Act::ReluSquared => x.max(0.0).powi(2),
        other => panic!("{other:?}"),
    }
}

fn gated(act: Act, limit: Option<GluLimit>, gate: f64, up: f64) -> f64 {
    match limit {
        None => activate(act, gate) * up,
        Some(GluLimit::BeforeAct(l)) => activate(act, gate.min(l.into())) * up.clamp(-f64::from(l), l.into()),
        Some(GluLimit::AfterAct(l)) => activate(act, gate).min(l.into()) * up.clamp(-f64::from(l), l.into()),
    }
}

#[test]
fn experts_of_one_two_and_three_matrices() {
    for quantized in [false, true] {
        check_experts(quantized, [true, true], true, None, Act::Silu);
        check_experts(quantized, [true, true], false, Some(GluLimit::BeforeAct(0.5)), Act::Silu);
        check_experts(quantized, [true, true], false, Some(GluLimit::AfterAct(0.5)), Act::Silu);
        check_experts(quantized, [false, true], true, None, Act::ReluSquared);
        check_experts(quantized, [false, false], false, None, Act::Silu);
        check_experts(quantized, [false, false], true, None, Act::Silu);
    }
}
