//! Ops from outside: they get their rows, and a failure costs a step.

use std::sync::Arc;

use bantam_backend::{CustomOp, CustomOps, CustomRows, StepError};
use bantam_graph::Custom;
use serde_json::{Value, json};

use crate::bench::{Bench, tokens};

/// `add_scaled`: `x0 · w0 + factor · x1[last]`; fails at entries beyond `most`.
#[derive(Debug)]
pub(crate) struct Maker;

#[derive(Debug)]
struct AddScaled {
    factor: f32,
    most: f32,
}

pub(crate) fn ops() -> Option<Arc<dyn CustomOps>> {
    Some(Arc::new(Maker))
}

impl CustomOps for Maker {
    fn make(&self, op: &Custom, widths: &[usize], weights: &[&[usize]]) -> Result<Box<dyn CustomOp>, String> {
        if op.op != "add_scaled" {
            return Err("not known".into());
        }
        assert_eq!((widths[0], weights), (op.width, &[&[op.width][..]][..]));
        let number = |name: &str| op.attributes.get(name).and_then(Value::as_f64).map(|x| x as f32);
        Ok(Box::new(AddScaled { factor: number("factor").unwrap_or(1.0), most: number("most").unwrap_or(f32::MAX) }))
    }
}

impl CustomOp for AddScaled {
    fn run(&self, rows: CustomRows<'_>) -> Result<(), String> {
        let CustomRows { rows, x: [x, other], weights: [weight], out } = rows else { return Err("parts".into()) };
        let (width, other_width) = (weight.len(), other.len() / rows);
        for row in 0..rows {
            let last = other[(row + 1) * other_width - 1];
            for i in 0..width {
                let x = x[row * width + i];
                if x.abs() > self.most {
                    return Err(format!("entry {x} is too large"));
                }
                out[row * width + i] = x * weight[i] + self.factor * last;
            }
        }
        Ok(())
    }
}

fn bench(op: &str, attributes: &Value) -> Bench {
    Bench::new(|s| {
        let (x, other) = (s.floats("x", 12), s.floats("other", 3));
        let weight = s.graph.tensor("w", &[12]);
        let attributes = attributes.as_object().unwrap().clone();
        s.graph.custom("y", Custom { op: op.into(), x: vec![x, other], weights: vec![weight], attributes, width: 12 })
    })
}

#[test]
fn it_gets_its_rows_weights_and_attributes() {
    bench("add_scaled", &json!({"factor": 0.5})).check(1e-6, |seen| {
        let (weight, others) = (seen.weight("w"), seen.rows("other"));
        let row =
            |(x, other): (&Vec<f64>, &Vec<f64>)| x.iter().zip(&weight).map(|(x, w)| x * w + 0.5 * other[2]).collect();
        seen.rows("x").iter().zip(&others).map(row).collect()
    });
}

#[test]
fn a_failure_costs_the_step_and_nothing_else() {
    let bench = bench("add_scaled", &json!({"most": 0.95}));
    let mut failed = 0;
    let run = bench.run_each(&tokens(64, 5), |error| {
        let StepError::Op(why) = error else { panic!("{error}") };
        assert!(why.contains("node `y`") && why.contains("too large"), "{why}");
        failed += 1;
    });
    assert!(failed > 0 && run > 0, "{failed} failed, {run} did not");
}

#[test]
fn what_nobody_brings_is_refused() {
    let refused = bench("teleport", &json!({})).compile().err().unwrap().to_string();
    assert!(refused.contains("node `y`") && refused.contains("`teleport`: not known"), "{refused}");
}
