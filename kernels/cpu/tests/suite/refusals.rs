//! A step that does not fit is refused with its reason, and changes nothing.

use bantam_backend::{Backend, CompileError, CompileOptions, KvType, PageCopy, Step, StepError};
use bantam_cpu::CpuBackend;
use bantam_graph::{GraphBuilder, InputSource};

use crate::{
    model::{MIXTURE, PLAIN, WINDOWED},
    session::{MAX_ROWS, Session, Setup, prompt},
};

fn refused(change: impl Fn(&mut Step), expected: &str) {
    let tokens = prompt(40, WINDOWED.vocab, 1);
    let mut session = Session::new(&WINDOWED, Setup::default());
    session.run(&[(0, &tokens, 1), (1, &tokens, 1)]);
    let mut step = session.step(&[(0, &tokens, 2), (1, &tokens, 1)]);
    change(&mut step);
    match session.program.run(&step) {
        Err(StepError::Invalid(why)) => assert!(why.contains(expected), "expected `{expected}` in: {why}"),
        other => panic!("expected a refusal with `{expected}`, found {other:?}"),
    }
    let mut untouched = Session::new(&WINDOWED, Setup::default());
    untouched.run(&[(0, &tokens, 1), (1, &tokens, 1)]);
    assert_eq!(session.run(&[(0, &tokens, 2)]), untouched.run(&[(0, &tokens, 2)]));
}

#[test]
fn rows_and_tokens() {
    refused(|s| s.tokens[3] = WINDOWED.vocab as u32, "token id 50");
    refused(|s| s.tokens.push(0), "80 rows in all, but 81 tokens");
    refused(|s| s.sequences[1].rows = 0, "sequence 1: 0 rows");
    refused(|s| s.sequences[1].start = usize::MAX, "sequence 1");
    refused(|s| s.graph = 1, "graph 1, of 1");
    refused(|s| s.logit_rows = vec![4, 4], "must rise");
    refused(|s| s.logit_rows = vec![80], "logit row 80");
    refused(
        |s| {
            s.tokens.resize(MAX_ROWS + 1, 0);
            s.sequences[1].rows = MAX_ROWS - 39;
        },
        "257 rows, of at most 256",
    );
}

#[test]
fn pages() {
    refused(|s| drop(s.sequences[0].tables.pop()), "expected 2 page tables, found 1");
    refused(|s| s.sequences[1].tables[0].truncate(2), "expected 3 pages, found 2");
    refused(|s| s.sequences[1].tables[0][0] = 200, "page 200 of 200");
    refused(|s| s.sequences[1].tables[1][1] = u32::MAX, "page 4294967295 of 200");
    refused(|s| s.sequences[1].tables[0][2] = s.sequences[0].tables[0][1], "written twice");
    refused(|s| s.sequences[1].tables[0][2] = s.sequences[1].tables[0][1], "written twice");
    let copy = PageCopy { group: 0, from: 0, to: 1, tokens: 32 };
    refused(|s| s.copies.push(PageCopy { group: 2, ..copy }), "group: 2");
    refused(|s| s.copies.push(PageCopy { to: 200, ..copy }), "to: 200");
    refused(|s| s.copies.push(PageCopy { tokens: 33, ..copy }), "tokens: 33");
}

#[test]
fn pages_before_a_window_may_be_missing() {
    let tokens = prompt(200, WINDOWED.vocab, 1);
    let mut session = Session::new(&WINDOWED, Setup::default());
    session.run(&[(0, &tokens, 1)]);
    let step = session.step(&[(0, &tokens[..1], 1)]);
    assert_eq!(step.sequences[0].tables[1][..5], [u32::MAX; 5]);
    session.program.run(&step).unwrap();
}

#[test]
fn groups_that_do_not_exist() {
    let mut session = Session::new(&PLAIN, Setup::default());
    assert!(matches!(session.program.reserve_pages(1, 1), Err(StepError::Invalid(_))));
    assert!(matches!(session.program.save_page(1, 0, 1, &mut Vec::new()), Err(StepError::Invalid(_))));
    assert!(matches!(session.program.load_page(0, 200, 1, &[]), Err(StepError::Invalid(_))));
    assert!(matches!(session.program.reserve_pages(0, usize::MAX), Err(StepError::Memory { .. })));
}

#[test]
fn ids_that_could_leave_a_table_are_refused_at_compile_time() {
    let mut shape = MIXTURE;
    shape.experts = Some((6, 2));
    let mut graph = shape.graph();
    // The router now scores more experts than there are.
    for weight in graph.weights.iter_mut().filter(|w| w.name == "router.1") {
        weight.shape[0] = 7;
    }
    let options = CompileOptions {
        max_rows: 8,
        max_logit_rows: 8,
        max_tentative: 0,
        k_type: KvType::F16,
        v_type: KvType::F16,
        repack: true,
        ops: None,
    };
    let backend = CpuBackend::new(1).unwrap();
    match backend.compile(&graph, &shape.weights(), &options, &mut |_, _| {}) {
        Err(CompileError::Unsupported { node, why }) => {
            assert_eq!(node, "moe.1");
            assert!(why.contains("6 experts"), "{why}");
        }
        other => panic!("expected a refusal, found {:?}", other.map(|_| ())),
    }
}

#[test]
fn a_graph_without_state_runs() {
    let mut g = GraphBuilder::new("bag");
    let ids = g.input("ids", InputSource::TokenIds);
    let table = g.tensor("embd", &[50, 64]);
    let x = g.embed("x", &ids, &table, 1.0);
    let x = g.logit_rows("rows", &x);
    let graph = g.finish(&x).unwrap();
    let options = CompileOptions {
        max_rows: 8,
        max_logit_rows: 8,
        max_tentative: 0,
        k_type: KvType::F16,
        v_type: KvType::F16,
        repack: true,
        ops: None,
    };
    let backend = CpuBackend::new(2).unwrap();
    let mut program = backend.compile(&graph, &PLAIN.weights(), &options, &mut |_, _| {}).unwrap();
    let sequences = vec![bantam_backend::SequenceStep { rows: 3, ..Default::default() }];
    let step = Step { tokens: vec![4, 7, 4], sequences, logit_rows: vec![0, 2], ..Step::default() };
    program.run(&step).unwrap();
    let rows: Vec<&[f32]> = program.logits().chunks(64).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0], rows[1]);
    assert!(rows[0].iter().any(|x| *x != 0.0));
}
