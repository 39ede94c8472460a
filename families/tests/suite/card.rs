//! Every fixture on an emulated card: the logits and greedy tokens of the reference, and the same bits however tokens come.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use bantam_backend::{
    Backend, CompileOptions, KvType, NO_SLOT, Program, RecurrentStep, SequenceStep, SharedBytes, StateGroup, Step,
    WeightData, WeightError, WeightSource,
};
use bantam_cuda::CudaBackend;
use bantam_cuda_emulated::under_test;
use bantam_gguf::{GgmlType, GgufFile};
use bantam_graph::{Weight, WeightExpr};

use crate::{
    golden::{argmax, largest_difference},
    interpreter::{self, Tensor},
    support::{Fixture, describe, fixtures},
};

/// A fixture's tensors: as they lie in the file where a weight is one of them, else what the expression makes of them.
struct Source<'f> {
    fixture: &'f Fixture,
    file: GgufFile,
}

impl WeightSource for Source<'_> {
    fn load(&self, weight: &Weight) -> Result<WeightData, WeightError> {
        let tensor = match &weight.expr {
            WeightExpr::Tensor(name) => self.file.tensor(name),
            _ => None,
        };
        let shape = |tensor: &bantam_gguf::TensorInfo| {
            tensor.shape.iter().rev().map(|n| usize::try_from(*n).unwrap()).collect::<Vec<_>>()
        };
        if let Some(tensor) = tensor.filter(|tensor| shape(tensor) == weight.shape) {
            let bytes = SharedBytes::owned(self.file.tensor_bytes(tensor).unwrap().to_vec());
            return Ok(WeightData { ty: tensor.ty, shape: weight.shape.clone(), bytes });
        }
        let tensors = |name: &str| self.fixture.tensors[name].clone();
        let Tensor { shape, data } = interpreter::weights::expression(&weight.expr, &tensors);
        let bytes: Vec<u8> = data.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
        Ok(WeightData { ty: GgmlType::F32, shape, bytes: SharedBytes::owned(bytes) })
    }

    fn release(&self, _weight: &Weight) {}
}

/// A program of a fixture on a card of this compute capability, times ten.
fn program(fixture: &Fixture, arch: u32) -> Box<dyn Program> {
    let graph = describe(&fixture.checkpoint).unwrap().text;
    let source = Source { fixture, file: GgufFile::open(fixture.folder.join("model.gguf")).unwrap() };
    let options = CompileOptions {
        max_rows: 512,
        max_logit_rows: 512,
        max_tentative: 0,
        k_type: KvType::F32,
        v_type: KvType::F32,
        repack: true,
        ops: None,
    };
    let backend = CudaBackend::on(under_test(arch));
    let compiled = backend.compile(&graph, &source, &options, &mut |_, _| {});
    let mut program = compiled.unwrap_or_else(|e| panic!("{}: {e}", fixture.name));
    for group in 0..program.groups().len() {
        program.reserve_pages(group, 64).unwrap();
    }
    if program.recurrent(0).is_some() {
        program.reserve_slots(0, 1).unwrap();
    }
    program
}

/// Logits of all rows of a sequence, which comes in runs of so many tokens.
fn logits(program: &mut dyn Program, tokens: &[u32], run: usize) -> Vec<f32> {
    let mut logits = Vec::new();
    for start in (0..tokens.len()).step_by(run) {
        let end = tokens.len().min(start.saturating_add(run));
        let step = step(program, tokens, start, end);
        program.run(&step).unwrap();
        logits.extend(program.logits());
    }
    logits
}

/// The step that brings tokens `start .. end` of a sequence.
fn step(program: &dyn Program, tokens: &[u32], start: usize, end: usize) -> Step {
    let pages = |group: &StateGroup| (0..group.pages(end) as u32).map(|page| page * 3 % 64).collect();
    let recurrent = program.recurrent(0).map(|_| RecurrentStep {
        from: if start == 0 { NO_SLOT } else { 0 },
        to: 0,
        accepted: 0,
        tentative: 0,
    });
    let sequence = SequenceStep {
        rows: end - start,
        start,
        tables: program.groups().iter().map(pages).collect(),
        history: tokens[start.saturating_sub(program.history(0))..start].to_vec(),
        recurrent,
    };
    let logit_rows = (0..(end - start) as u32).collect();
    Step { tokens: tokens[start..end].to_vec(), sequences: vec![sequence], logit_rows, ..Step::default() }
}

/// The first value that is not near what the interpreter makes of it.
fn first_difference(fixture: &Fixture, program: &mut dyn Program, tokens: &[u32]) -> String {
    let rows: Vec<usize> = (0..tokens.len()).collect();
    let graph = describe(&fixture.checkpoint).unwrap().text;
    let expected = interpreter::run(&graph, &|name| fixture.tensors[name].clone(), tokens, &rows);
    let mut first = None;
    let mut note = |name: &str, width: usize, found: &[f32]| {
        let Some(expected) = expected.get(name).filter(|_| first.is_none()) else { return };
        let largest = expected.data.iter().fold(1e-3_f64, |m, x| m.max(x.abs()));
        let differs = |(found, expected): (&f32, &f64)| {
            let difference = (f64::from(*found) - expected).abs();
            difference.is_nan() || difference > 1e-2 * largest
        };
        if found.len() != expected.data.len() {
            first = Some(format!("`{name}` has {} entries, expected {}", found.len(), expected.data.len()));
        } else if let Some(at) = found.iter().zip(&expected.data).position(differs) {
            let (row, entry) = (at / width, at % width);
            first = Some(format!("`{name}`, row {row}, entry {entry}: {}, expected {}", found[at], expected.data[at]));
        }
    };
    let step = step(program, tokens, 0, tokens.len());
    program.run_traced(&step, &mut note).unwrap();
    first.unwrap_or_else(|| "no value".into())
}

/// What is wrong with a fixture on an emulated card.
fn wrong_with(fixture: &Fixture) -> Vec<String> {
    let (mut wrong, name) = (Vec::new(), &fixture.name);
    let mut program = program(fixture, 80);
    let prompt = fixture.ids("prompt");
    let tokens = [prompt.clone(), fixture.ids("greedy").split_last().unwrap().1.to_vec()].concat();
    let whole = logits(program.as_mut(), &tokens, usize::MAX);
    let vocab = program.vocab();
    let rows: Vec<f64> = whole.iter().map(|x| f64::from(*x)).collect();
    let difference = largest_difference(&rows[..prompt.len() * vocab], &fixture.numbers("logits.f32"));
    let bound = 2e-3 * fixture.expect["logits_std"].as_f64().unwrap().max(1.0);
    if difference.is_nan() || difference > bound {
        let first = first_difference(fixture, program.as_mut(), &tokens);
        wrong.push(format!("{name}: logits differ by {difference}, allowed {bound}; first {first}"));
    }
    let continued: Vec<u32> = rows.chunks(vocab).skip(prompt.len() - 1).map(|row| argmax(row) as u32).collect();
    if continued != fixture.ids("greedy") {
        wrong.push(format!("{name}: greedy tokens {continued:?}, expected {:?}", fixture.ids("greedy")));
    }
    // A row depends on nothing behind it, so that the first ones will do.
    for (run, first) in [(7, 60), (1, 20)] {
        let parts = logits(program.as_mut(), &tokens[..tokens.len().min(first)], run);
        if let Some(at) = parts.iter().zip(&whole).position(|(a, b)| a.to_bits() != b.to_bits()) {
            wrong.push(format!("{name}: in runs of {run}, row {} differs", at / vocab));
        }
    }
    wrong
}

#[test]
fn an_emulated_card_gives_the_logits_of_the_reference_however_tokens_come() {
    let only = std::env::var("BANTAM_TEST_FIXTURE").ok();
    let mut chosen = fixtures();
    chosen.retain(|f| only.as_ref().is_none_or(|only| f.name.contains(only)));
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(4) {
            scope.spawn(|| {
                while let Some(fixture) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = wrong_with(fixture);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
