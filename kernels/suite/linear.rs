//! Products with one matrix, one per head, and one for several runs.

use bantam_graph::{Linear, Op};

use crate::bench::Bench;

/// Runs of a row, entries of a run, and entries of its result.
const SIZES: [(usize, usize, usize); 3] = [(3, 32, 20), (5, 48, 16), (2, 64, 7)];

/// `y = x·W` run by run: with one matrix, or with one for each. The naive product, in double precision.
fn product(x: &[f64], weight: &[f64], bias: &[f64], cols: usize, out: usize) -> Vec<f64> {
    let matrices: Vec<&[f64]> = weight.chunks(out * cols).collect();
    let run = |(r, x): (usize, &[f64])| {
        let matrix = matrices[r % matrices.len()];
        let y = |o: usize| {
            let sum: f64 = x.iter().zip(&matrix[o * cols..]).map(|(x, w)| x * w).sum();
            sum + bias[(r * out + o) % bias.len()]
        };
        (0..out).map(y).collect::<Vec<_>>()
    };
    x.chunks(cols).enumerate().flat_map(run).collect()
}

fn check(per_head: bool, quantized: bool, (runs, cols, out): (usize, usize, usize)) {
    let name = if quantized { "w.q8" } else { "w" };
    let bench = Bench::new(|s| {
        let x = s.floats("x", runs * cols);
        let residual = s.floats("residual", runs * out);
        let shape = if per_head { vec![runs, out, cols] } else { vec![out, cols] };
        let weight = s.graph.tensor(name, &shape);
        let bias = Some(s.graph.tensor("bias", &[if per_head { runs * out } else { out }]));
        let y = s.graph.push("y", Op::Linear(Linear { x, weight, runs: if per_head { 1 } else { runs }, bias }));
        s.graph.add("sum", &residual, &y)
    });
    bench.check(if quantized { 0.01 } else { 1e-6 }, |seen| {
        let (weight, bias, residual) = (seen.weight(name), seen.weight("bias"), seen.rows("residual"));
        let row = |(x, r): (&Vec<f64>, &Vec<f64>)| {
            let y = product(x, &weight, &bias, cols, out);
            y.iter().zip(r).map(|(y, r)| y + r).collect()
        };
        seen.rows("x").iter().zip(&residual).map(row).collect()
    });
}

#[test]
fn a_matrix_per_head() {
    for sizes in SIZES {
        check(true, false, sizes);
    }
    check(true, true, (3, 64, 20));
    check(true, true, (2, 32, 16));
}

#[test]
fn one_matrix_for_several_runs() {
    for sizes in SIZES {
        check(false, false, sizes);
    }
    check(false, true, (3, 64, 20));
}

#[test]
fn rows_that_fill_no_block_are_rounded_run_by_run() {
    // A norm in front, whose fusion into the rounding must see runs for what they are.
    let bench = Bench::new(|s| {
        let x = s.floats("x", 192);
        let x = s.graph.rms_norm("normed", &x, None, 1e-6, None);
        let weight = s.graph.tensor("w.q8", &[5, 64]);
        s.graph.linear_runs("y", &x, &weight, 3)
    });
    bench.check(0.01, |seen| {
        let weight = seen.weight("w.q8");
        seen.rows("normed").iter().map(|x| product(x, &weight, &[0.0], 64, 5)).collect()
    });
}

#[test]
fn several_ids_in_a_row_give_rows_side_by_side() {
    let bench = Bench::new(|s| {
        let scores = s.floats("scores", 6);
        let route = bantam_graph::Route { scores, used: 3, ..bantam_graph::Route::default() };
        let (ids, _) = s.graph.route("route", route);
        let table = s.graph.tensor("table", &[6, 10]);
        s.graph.embed("y", &ids, &table, 0.5)
    });
    bench.check(1e-6, |seen| {
        let table = seen.weight("table");
        let entry = |id: &f64| table[*id as usize * 10..][..10].iter().map(|x| x * 0.5).collect::<Vec<_>>();
        seen.rows("route.ids").iter().map(|ids| ids.iter().flat_map(entry).collect()).collect()
    });
}
