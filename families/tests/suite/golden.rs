//! Every fixture, described and run by the interpreter, gives the logits of the authors' reference code.

use std::collections::HashMap;

use crate::{
    interpreter::{self, Value},
    support::{Fixture, describe, fixtures},
};

/// Prompt and greedy continuation in one run, with the logits of every row.
struct Run {
    prompt_rows: usize,
    values: HashMap<String, Value>,
    logits: Value,
}

fn run(fixture: &Fixture) -> Run {
    let model = describe(&fixture.checkpoint).unwrap();
    let prompt = fixture.ids("prompt");
    let mut tokens = prompt.clone();
    tokens.extend(fixture.ids("greedy").split_last().unwrap().1);
    let rows: Vec<usize> = (0..tokens.len()).collect();
    let mut values = interpreter::run(&model.text, &|name| fixture.tensors[name].clone(), &tokens, &rows);
    let logits = values.remove(&model.text.output).unwrap();
    Run { prompt_rows: prompt.len(), values, logits }
}

pub(crate) fn largest_difference(found: &[f64], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, &b)| (a - f64::from(b)).abs()).fold(0.0, f64::max)
}

pub(crate) fn argmax(row: &[f64]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap()
}

#[test]
fn logits_and_greedy_tokens_equal_the_reference() {
    for fixture in fixtures() {
        let Run { prompt_rows, logits, .. } = run(&fixture);
        let expected = fixture.numbers("logits.f32");
        let difference = largest_difference(&logits.data[..prompt_rows * logits.width], &expected);
        let bound = 2e-3 * fixture.expect["logits_std"].as_f64().unwrap().max(1.0);
        assert!(difference <= bound, "{}: logits differ by {difference}, allowed {bound}", fixture.name);
        let continued: Vec<u32> = logits.rows().skip(prompt_rows - 1).map(|row| argmax(row) as u32).collect();
        assert_eq!(continued, fixture.ids("greedy"), "{}", fixture.name);
    }
}

#[test]
fn the_residual_stream_equals_the_reference_after_every_layer() {
    let traced: Vec<Fixture> = fixtures().into_iter().filter(|f| f.expect.get("layers").is_some()).collect();
    assert!(!traced.is_empty());
    for fixture in traced {
        let run = run(&fixture);
        let expected = fixture.numbers("layers.f32");
        let width = run.values["embed"].width;
        for (i, expected) in expected.chunks_exact(width).enumerate() {
            let name = if i == 0 { "embed".into() } else { format!("layer_out.{}", i - 1) };
            let difference = largest_difference(run.values[&name].row(run.prompt_rows - 1), expected);
            assert!(difference < 1e-3, "{}: `{name}` differs by {difference}", fixture.name);
        }
    }
}

#[test]
fn every_architecture_has_a_fixture() {
    let fixtures = fixtures();
    for architecture in bantam_families::architectures() {
        assert!(fixtures.iter().any(|f| f.checkpoint.architecture == architecture), "{architecture}");
    }
}

#[test]
fn graphs_survive_their_json_form() {
    for fixture in fixtures() {
        let graph = describe(&fixture.checkpoint).unwrap().text;
        let json = serde_json::to_vec(&bantam_graph::json::to_value(&graph).unwrap()).unwrap();
        assert_eq!(bantam_graph::json::from_slice(&json).unwrap(), graph, "{}", fixture.name);
    }
}
