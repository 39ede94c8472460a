//! Recurrent state: speculation, published slots, steps that name slots wrongly.

use bantam_backend::{NO_SLOT, RecurrentStep, Step, StepError};

use crate::{
    model::HYBRID,
    session::{MAX_TENTATIVE, Session, Setup, prompt},
};

const TOKENS: usize = 60;

/// Logits of all rows but the last `skipped` of the prompt, run at once.
fn expected(tokens: &[u32]) -> Vec<Vec<f32>> {
    Session::new(&HYBRID, Setup::default()).run(&[(0, tokens, tokens.len())])
}

/// A step of one sequence on slots of the test's choice.
fn step(session: &Session, tokens: &[u32], recurrent: RecurrentStep) -> Step {
    let mut step = session.step(&[(0, tokens, tokens.len())]);
    step.sequences[0].recurrent = Some(recurrent);
    step
}

fn rows(session: &mut Session, step: &Step) -> Vec<Vec<f32>> {
    session.program.run(step).unwrap();
    let vocab = session.program.vocab();
    session.program.logits().chunks(vocab).map(<[f32]>::to_vec).collect()
}

#[test]
fn rejected_rows_leave_nothing() {
    let tokens = prompt(TOKENS, HYBRID.vocab, 1);
    let expected = expected(&tokens);
    for tentative in 1..=MAX_TENTATIVE {
        for accepted in 0..=tentative {
            let mut session = Session::new(&HYBRID, Setup::default());
            session.run(&[(0, &tokens[..30], 0)]);
            // One certain row, then drafted ones, of which the first `accepted` are right.
            let mut drafted = tokens[30..=30 + tentative].to_vec();
            drafted[1 + accepted..].iter_mut().for_each(|t| *t = (*t + 1) % HYBRID.vocab as u32);
            let speculation = RecurrentStep { tentative, ..session.recurrent(0, 0, 0).unwrap() };
            let speculation = step(&session, &drafted, speculation);
            let found = rows(&mut session, &speculation);
            assert_eq!(found[..=accepted], expected[30..=30 + accepted], "{accepted} of {tentative}");
            session.lengths[0] = 31 + accepted;
            // Taken in alone, or together with what comes next.
            let alone = session.recurrent(0, accepted, 0).unwrap();
            let mut next = session.recurrent(0, accepted, 0).unwrap();
            if tentative % 2 == 0 {
                let taken_in = step(&session, &[], alone);
                rows(&mut session, &taken_in);
                next.accepted = 0;
            }
            let next = step(&session, &tokens[31 + accepted..40], next);
            assert_eq!(rows(&mut session, &next), expected[31 + accepted..40], "{accepted} of {tentative}");
        }
    }
}

#[test]
fn a_published_slot_is_read_by_many() {
    let tokens = prompt(TOKENS, HYBRID.vocab, 1);
    let expected = expected(&tokens);
    let mut session = Session::new(&HYBRID, Setup::default());
    let published = RecurrentStep { from: NO_SLOT, to: 9, accepted: 0, tentative: 0 };
    let first = step(&session, &tokens[..30], published);
    rows(&mut session, &first);
    session.lengths[0] = 30;
    for to in [4, 5, 4] {
        let fork = RecurrentStep { from: 9, to, ..published };
        let fork = step(&session, &tokens[30..40], fork);
        assert_eq!(rows(&mut session, &fork), expected[30..40]);
    }
}

#[test]
fn wrong_slots_are_refused() {
    let tokens = prompt(TOKENS, HYBRID.vocab, 1);
    let fine = RecurrentStep { from: 1, to: 1, accepted: 0, tentative: 0 };
    let cases: [(Option<RecurrentStep>, &str); 9] = [
        (None, "no slots are given"),
        (Some(RecurrentStep { from: 99, ..fine }), "slot 99 of 20"),
        (Some(RecurrentStep { to: 99, ..fine }), "slot 99 of 20"),
        (Some(RecurrentStep { from: 7, ..fine }), "no tokens at all"),
        (Some(RecurrentStep { from: NO_SLOT, ..fine }), "stands after 0 tokens"),
        (Some(RecurrentStep { accepted: 1, ..fine }), "1 accepted rows"),
        (Some(RecurrentStep { tentative: MAX_TENTATIVE + 1, ..fine }), "tentative rows"),
        (Some(RecurrentStep { from: 0, ..fine }), "slot 0 is read and written"),
        (Some(RecurrentStep { from: 0, to: 0, ..fine }), "slot 0 is written twice"),
    ];
    for (recurrent, expected) in cases {
        let mut session = Session::new(&HYBRID, Setup::default());
        session.run(&[(0, &tokens[..30], 1), (1, &tokens[..30], 1)]);
        let mut step = session.step(&[(0, &tokens[30..40], 1), (1, &tokens[30..40], 1)]);
        step.sequences[1].recurrent = recurrent;
        match session.program.run(&step) {
            Err(StepError::Invalid(why)) => assert!(why.contains(expected), "expected `{expected}` in: {why}"),
            other => panic!("expected a refusal with `{expected}`, found {other:?}"),
        }
        let mut untouched = Session::new(&HYBRID, Setup::default());
        untouched.run(&[(0, &tokens[..30], 1), (1, &tokens[..30], 1)]);
        let rest = [(0, &tokens[30..], 5), (1, &tokens[30..], 5)];
        assert_eq!(session.run(&rest), untouched.run(&rest));
    }
}

#[test]
fn saved_slots_are_checked() {
    let tokens = prompt(TOKENS, HYBRID.vocab, 1);
    let mut session = Session::new(&HYBRID, Setup::default());
    let mut bytes = Vec::new();
    assert!(session.program.save_slot(0, 0, &mut bytes).is_err(), "nothing was written yet");
    session.run(&[(0, &tokens, 1)]);
    session.program.save_slot(0, 0, &mut bytes).unwrap();
    assert!(session.program.save_slot(1, 0, &mut Vec::new()).is_err());
    assert!(session.program.load_slot(0, 20, &bytes).is_err());
    for len in [0, 7, bytes.len() - 4] {
        assert!(session.program.load_slot(0, 3, &bytes[..len]).is_err());
    }
    session.program.load_slot(0, 3, &bytes).unwrap();
    let mut again = Vec::new();
    session.program.save_slot(0, 3, &mut again).unwrap();
    assert_eq!(again, bytes);
}
