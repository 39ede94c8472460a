//! A program that breaks down says so, and takes nobody along.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bantam_backend::{
    Backend, CompileOptions, KvType, Program, SequenceStep, SharedBytes, Step, StepError, WeightData, WeightError,
    WeightSource,
};
use bantam_cpu::CpuBackend;
use bantam_graph::Weight;

use crate::model::{PLAIN, RandomWeights};

/// Bytes that can be taken away, as no file ever is.
struct Vanishing {
    bytes: Vec<u8>,
    gone: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Vanishing {
    fn as_ref(&self) -> &[u8] {
        if self.gone.load(Ordering::SeqCst) { &[] } else { &self.bytes }
    }
}

struct Source {
    weights: RandomWeights,
    gone: Arc<AtomicBool>,
}

impl WeightSource for Source {
    fn load(&self, weight: &Weight) -> Result<WeightData, WeightError> {
        let data = self.weights.load(weight)?;
        let owner = Arc::new(Vanishing { bytes: data.bytes.to_vec(), gone: Arc::clone(&self.gone) });
        let bytes = SharedBytes::new(owner, 0..data.bytes.len()).unwrap();
        Ok(WeightData { bytes, ..data })
    }

    fn release(&self, _weight: &Weight) {}
}

fn program(backend: &CpuBackend, gone: &Arc<AtomicBool>) -> Box<dyn Program> {
    let source = Source { weights: PLAIN.weights(), gone: Arc::clone(gone) };
    let options = CompileOptions {
        max_rows: 8,
        max_logit_rows: 8,
        max_tentative: 0,
        k_type: KvType::F16,
        v_type: KvType::F16,
        repack: true,
        ops: None,
    };
    let mut program = backend.compile(&PLAIN.graph(), &source, &options, &mut |_, _| {}).unwrap();
    program.reserve_pages(0, 1).unwrap();
    program
}

#[test]
fn a_panic_in_a_step_becomes_an_error_and_other_programs_run_on() {
    for threads in [1, 3] {
        let backend = CpuBackend::new(threads).unwrap();
        let [broken, sound] = [0, 1].map(|_| Arc::new(AtomicBool::new(false)));
        let (mut first, mut second) = (program(&backend, &broken), program(&backend, &sound));
        let sequences = vec![SequenceStep { rows: 3, tables: vec![vec![0]], ..SequenceStep::default() }];
        let step = Step { tokens: vec![1, 2, 3], sequences, logit_rows: vec![2], ..Step::default() };
        first.run(&step).unwrap();
        broken.store(true, Ordering::SeqCst);
        for _ in 0..2 {
            match first.run(&step) {
                Err(StepError::Failed(why)) => assert!(why.contains("of 50"), "{why}"),
                other => panic!("expected a failure, found {other:?}"),
            }
            assert!(first.logits().is_empty());
        }
        broken.store(false, Ordering::SeqCst);
        assert!(matches!(first.run(&step), Err(StepError::Failed(_))), "what a panic left behind is not used again");
        second.run(&step).unwrap();
        assert_eq!(second.logits().len(), PLAIN.vocab);
    }
}
