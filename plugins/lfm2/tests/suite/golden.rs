//! Logits and greedy tokens are those of the authors' reference, by the interpreter and on the CPU.

use std::sync::Arc;

use bantam_backend::{
    Backend, CompileOptions, KvType, NO_SLOT, Program, RecurrentStep, SequenceStep, SharedBytes, Step, WeightData,
    WeightError, WeightSource,
};
use bantam_cpu::CpuBackend;
use bantam_gguf::GgmlType;
use bantam_lfm2::Lfm2;
use bantam_plugin_sdk::{
    family::wire::{self, BuildAnswer, BuildRequest},
    graph::Weight,
};

use crate::{
    interpreter::{self, Tensor},
    support::{Fixture, both, describe},
};

/// Checks the logits of a prompt and its greedy continuation, a row after the other.
fn compare(fixture: &Fixture, rows: &[Vec<f64>]) {
    let prompt = fixture.ids("prompt").len();
    let found = rows[..prompt].iter().flatten();
    let worst = found.zip(&fixture.logits).map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max);
    let bound = 2e-3 * fixture.expect["logits_std"].as_f64().unwrap().max(1.0);
    let name = &fixture.checkpoint.architecture;
    assert_eq!(rows[..prompt].concat().len(), fixture.logits.len());
    assert!(worst <= bound, "{name}: logits differ by {worst}, allowed {bound}");
    let best = |row: &Vec<f64>| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32;
    let continued: Vec<u32> = rows[prompt - 1..].iter().map(best).collect();
    assert_eq!(continued, fixture.ids("greedy"), "{name}");
}

/// Prompt and greedy continuation, but for its last token.
fn tokens(fixture: &Fixture) -> Vec<u32> {
    [fixture.ids("prompt"), fixture.ids("greedy").split_last().unwrap().1.to_vec()].concat()
}

#[test]
fn the_interpreter_gives_the_logits_of_the_reference() {
    for fixture in both() {
        let graph = describe(&fixture.checkpoint).unwrap().text;
        let tokens = tokens(&fixture);
        let wanted: Vec<usize> = (0..tokens.len()).collect();
        let values = interpreter::run(&graph, &|name| fixture.tensors[name].clone(), &tokens, &wanted);
        compare(&fixture, &values[&graph.output].rows().map(<[f64]>::to_vec).collect::<Vec<_>>());
    }
}

struct Source<'f>(&'f Fixture);

impl WeightSource for Source<'_> {
    fn load(&self, weight: &Weight) -> Result<WeightData, WeightError> {
        let Tensor { shape, data } =
            interpreter::weights::expression(&weight.expr, &|name| self.0.tensors[name].clone());
        let bytes: Vec<u8> = data.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
        let len = bytes.len();
        let bytes = SharedBytes::new(Arc::new(bytes), 0..len).unwrap();
        Ok(WeightData { ty: GgmlType::F32, shape, bytes })
    }

    fn release(&self, _weight: &Weight) {}
}

/// Logits of all rows of one sequence, which comes in runs of so many tokens.
fn run_on_the_cpu(fixture: &Fixture, run: usize) -> Vec<Vec<f64>> {
    let graph = describe(&fixture.checkpoint).unwrap().text;
    let options = CompileOptions {
        max_rows: 128,
        max_logit_rows: 128,
        max_tentative: 0,
        k_type: KvType::F32,
        v_type: KvType::F32,
        repack: true,
        ops: None,
    };
    let mut program = CpuBackend::new(2).unwrap().compile(&graph, &Source(fixture), &options, &mut |_, _| {}).unwrap();
    for group in 0..program.groups().len() {
        program.reserve_pages(group, 16).unwrap();
    }
    program.reserve_slots(0, 1).unwrap();
    let mut rows = Vec::new();
    for part in tokens(fixture).chunks(run) {
        let start = rows.len();
        program.run(&step(&*program, start, part)).unwrap();
        let vocab = program.vocab();
        rows.extend(program.logits().chunks(vocab).map(|row| row.iter().map(|&x| f64::from(x)).collect()));
    }
    rows
}

fn step(program: &dyn Program, start: usize, tokens: &[u32]) -> Step {
    let from = if start == 0 { NO_SLOT } else { 0 };
    let pages = |group: &bantam_backend::StateGroup| (0..group.pages(start + tokens.len()) as u32).collect();
    let sequence = SequenceStep {
        rows: tokens.len(),
        start,
        tables: program.groups().iter().map(pages).collect(),
        recurrent: Some(RecurrentStep { from, to: 0, accepted: 0, tentative: 0 }),
        ..SequenceStep::default()
    };
    let logit_rows = (0..tokens.len() as u32).collect();
    Step { tokens: tokens.to_vec(), sequences: vec![sequence], logit_rows, ..Step::default() }
}

#[test]
fn the_cpu_gives_the_logits_of_the_reference_however_tokens_come() {
    for fixture in both() {
        for run in [usize::MAX, 7, 1] {
            compare(&fixture, &run_on_the_cpu(&fixture, run));
        }
    }
}

/// So a plugin's model costs what the same family's would cost that was built in: a backend is given the same graph.
#[test]
fn nothing_is_lost_on_the_way_to_the_host() {
    for fixture in both() {
        let request = BuildRequest::Model { checkpoint: fixture.checkpoint.clone() }.to_vec().unwrap();
        let answer = BuildAnswer::from_slice(&wire::answer(&Lfm2, &request)).unwrap();
        assert_eq!(answer, BuildAnswer::Model(Box::new(describe(&fixture.checkpoint).unwrap())));
    }
}
