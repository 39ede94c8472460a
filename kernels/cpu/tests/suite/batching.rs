//! A row's bits depend on its token and the state it reads alone: not on chunks, neighbours, pages or threads.

use bantam_backend::KvType;
use bantam_cpu::isa::Isa;
use bantam_gguf::GgmlType;

use crate::{
    model::{HYBRID, MIXTURE, PLAIN, Shape, WINDOWED, quantized},
    session::{Session, Setup, prompt},
};

type Rows = Vec<Vec<f32>>;

fn whole(shape: &Shape, setup: Setup, tokens: &[u32]) -> Rows {
    Session::new(shape, setup).run(&[(0, tokens, tokens.len())])
}

fn chunked(shape: &Shape, setup: Setup, tokens: &[u32], chunk: usize) -> Rows {
    let mut session = Session::new(shape, setup);
    tokens.chunks(chunk).flat_map(|c| session.run(&[(0, c, c.len())])).collect()
}

/// Two other sequences run along, ahead of it and behind it in the step.
fn interleaved(shape: &Shape, setup: Setup, tokens: &[u32]) -> Rows {
    let mut session = Session::new(shape, setup);
    let (before, after) = (prompt(150, shape.vocab, 5), prompt(150, shape.vocab, 9));
    let mut rows = Vec::new();
    for (i, chunk) in tokens.chunks(19).enumerate() {
        let (a, b) = (&before[i * 3..i * 3 + 3], &after[i * 10..i * 10 + 1 + i % 10]);
        let logits = session.run(&[(1, a, 1), (0, chunk, chunk.len()), (2, b, 0)]);
        rows.extend_from_slice(&logits[1..]);
    }
    rows
}

/// Logits of some rows only.
fn sparse(shape: &Shape, setup: Setup, tokens: &[u32], chunk: usize) -> Vec<(usize, Vec<f32>)> {
    let mut session = Session::new(shape, setup);
    let mut rows = Vec::new();
    for (i, c) in tokens.chunks(chunk).enumerate() {
        let wanted = i % 3;
        let logits = session.run(&[(0, c, wanted.min(c.len()))]);
        let end = (i * chunk + c.len()) - logits.len();
        rows.extend(logits.into_iter().enumerate().map(|(j, l)| (end + j, l)));
    }
    rows
}

fn assert_same(expected: &Rows, found: &Rows, what: &str) {
    assert_eq!(expected.len(), found.len(), "{what}");
    for (i, (e, f)) in expected.iter().zip(found).enumerate() {
        let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(e.iter().all(|x| x.is_finite()), "{what}: row {i} is not finite");
        assert_eq!(bits(e), bits(f), "{what}: row {i} differs");
    }
}

fn check(shape: &Shape, setup: Setup) {
    let tokens = prompt(150, shape.vocab, 1);
    let expected = whole(shape, setup, &tokens);
    for threads in [1, 3] {
        assert_same(&expected, &whole(shape, Setup { threads, ..setup }, &tokens), &format!("{threads} threads"));
    }
    for chunk in [1, 7, 32, 100] {
        assert_same(&expected, &chunked(shape, setup, &tokens, chunk), &format!("chunks of {chunk}"));
    }
    let elsewhere = Setup { page_step: 7, threads: 3, ..setup };
    assert_same(&expected, &interleaved(shape, elsewhere, &tokens), "between others, on other pages");
    for (row, logits) in sparse(shape, setup, &tokens, 11) {
        assert_same(&vec![expected[row].clone()], &vec![logits], &format!("row {row}, one of few that are wanted"));
    }
}

#[test]
fn float_models() {
    for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
        for shape in [PLAIN, WINDOWED, MIXTURE, HYBRID] {
            check(&shape, Setup { isa, ..Setup::default() });
        }
    }
}

#[test]
fn quantized_models() {
    for (shape, ty) in [(PLAIN, GgmlType::Q8_0), (WINDOWED, GgmlType::Q4_K), (MIXTURE, GgmlType::Q4_0)] {
        check(&quantized(shape, ty), Setup::default());
    }
}

#[test]
fn cache_types() {
    let mixed = [
        (KvType::F32, KvType::Bf16),
        (KvType::Bf16, KvType::F32),
        (KvType::F16, KvType::Turbo3),
        (KvType::Q8_0, KvType::Turbo4),
        (KvType::Turbo4, KvType::F16),
    ];
    for (k_type, v_type) in KvType::ALL.iter().map(|ty| (*ty, *ty)).chain(mixed) {
        check(&WINDOWED, Setup { k_type, v_type, ..Setup::default() });
    }
}

/// Sequences that go on from the same pages, or from each other's: each must be as if it had been computed alone.
fn check_shared(shape: &Shape, setup: Setup, prefix: usize) {
    let tokens = |sequence: usize| {
        let mut tokens = prompt(prefix * 32, shape.vocab, 4);
        tokens.extend(prompt(90, shape.vocab, 10 + sequence));
        tokens
    };
    let run_in_chunks = |session: &mut Session, sequence: usize, tokens: &[u32]| {
        tokens.chunks(200).for_each(|chunk| drop(session.run(&[(sequence, chunk, 0)])));
    };
    let alone = |sequence: usize| -> Rows {
        let (mut session, tokens) = (Session::new(shape, Setup { threads: 1, ..setup }), tokens(sequence));
        run_in_chunks(&mut session, sequence, &tokens[..prefix * 32]);
        session.run(&[(sequence, &tokens[prefix * 32..], 90)])
    };
    let (sequences, expected): (Vec<_>, Vec<_>) = (0..4).map(|s| (tokens(s), alone(s))).unzip();
    let stranger = prompt(300, shape.vocab, 3);
    for threads in 1..5 {
        let mut session = Session::new(shape, Setup { threads, ..setup });
        run_in_chunks(&mut session, 0, &sequences[0][..prefix * 32]);
        (1..4).for_each(|sequence| session.fork(0, sequence, prefix));
        for place in 0..30 {
            // Now and then prompts of several rows, one that shares nothing, and one that pauses.
            let rows = if place % 10 == 9 { 7 } else { 1 };
            let mut runs = Vec::new();
            for sequence in (0..4).filter(|sequence| (place + sequence) % 6 != 5) {
                let start = session.lengths[sequence];
                runs.push((sequence, &sequences[sequence][start..start + rows], rows));
            }
            let starts: Vec<usize> =
                runs.iter().map(|(sequence, ..)| session.lengths[*sequence] - prefix * 32).collect();
            if place % 7 == 6 {
                runs.insert(2, (4, &stranger[place * 3..place * 3 + 3], 0));
            }
            let mut found = session.run(&runs).into_iter();
            runs.retain(|(sequence, ..)| *sequence < 4);
            for ((sequence, _, rows), start) in runs.into_iter().zip(starts) {
                let found: Rows = found.by_ref().take(rows).collect();
                let expected = expected[sequence][start..start + rows].to_vec();
                assert_same(&expected, &found, &format!("{threads} threads, sequence {sequence} from {start} on"));
            }
        }
    }
}

#[test]
fn shared_prefixes() {
    for shape in [PLAIN, WINDOWED, MIXTURE] {
        for prefix in [3, 5, 20] {
            check_shared(&shape, Setup::default(), prefix);
        }
    }
    for ty in [KvType::F32, KvType::Q8_0, KvType::Turbo4, KvType::Turbo3] {
        check_shared(&PLAIN, Setup { k_type: ty, v_type: ty, ..Setup::default() }, 18);
    }
}

#[test]
fn long_sequences() {
    // Several segments of the softmax, and windows that begin far from the first token.
    let shape = Shape { window: Some(200), ..WINDOWED };
    let tokens = prompt(1400, shape.vocab, 2);
    let run = |threads: usize, chunk: usize| chunked(&shape, Setup { threads, ..Setup::default() }, &tokens, chunk);
    let expected = run(1, 256);
    assert_same(&expected, &run(2, 131), "other chunks");
    let mut session = Session::new(&shape, Setup { threads: 3, ..Setup::default() });
    for c in tokens[..1200].chunks(200) {
        session.run(&[(0, c, 0)]);
    }
    let decoded: Rows = tokens[1200..].iter().flat_map(|t| session.run(&[(0, &[*t], 1)])).collect();
    assert_same(&expected[1200..].to_vec(), &decoded, "token by token");
}
