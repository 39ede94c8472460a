//! Pages: copies, bytes that outlive the program, growth.

use bantam_backend::PageCopy;

use crate::{
    model::{HYBRID, PLAIN, WINDOWED},
    session::{Session, Setup, prompt},
};

#[test]
fn a_forked_sequence_goes_on_like_the_original() {
    for shape in [PLAIN, WINDOWED] {
        let tokens = prompt(75, shape.vocab, 1);
        let mut session = Session::new(&shape, Setup::default());
        session.run(&[(0, &tokens[..70], 0)]);
        // Sequence 1 gets copies of all pages, the last of them in part.
        session.lengths[1] = 70;
        let mut step = session.step(&[(1, &tokens[70..], 5)]);
        for group in 0..session.program.groups().len() {
            let (from, to) = (session.table(0, group, 70, 75), session.table(1, group, 70, 75));
            for (i, (from, to)) in from.into_iter().zip(to).enumerate().filter(|(_, (f, _))| *f != u32::MAX) {
                step.copies.push(PageCopy { group, from, to, tokens: (70 - i * 32).min(32) });
            }
        }
        session.program.run(&step).unwrap();
        let forked = session.program.logits().to_vec();
        assert_eq!(forked, session.run(&[(0, &tokens[70..], 5)]).concat());
    }
}

#[test]
fn saved_state_restores_a_sequence_in_another_program() {
    for shape in [PLAIN, WINDOWED, HYBRID] {
        let tokens = prompt(75, shape.vocab, 1);
        let mut first = Session::new(&shape, Setup::default());
        first.run(&[(0, &tokens[..70], 0)]);
        let mut second = Session::new(&shape, Setup { page_step: 5, threads: 1, ..Setup::default() });
        second.lengths[0] = 70;
        for group in 0..first.program.groups().len() {
            let (from, to) = (first.table(0, group, 70, 70), second.table(0, group, 70, 70));
            for (i, (from, to)) in from.into_iter().zip(to).enumerate().filter(|(_, (f, _))| *f != u32::MAX) {
                let group_of = first.program.groups()[group].clone();
                let (mut bytes, tokens) = (Vec::new(), (70 - i * group_of.page_tokens).min(group_of.page_tokens));
                first.program.save_page(group, from, tokens, &mut bytes).unwrap();
                let rows = tokens / group_of.stride();
                assert_eq!(bytes.len(), group_of.page_bytes / group_of.page_rows() * rows);
                second.program.load_page(group, to, tokens, &bytes).unwrap();
            }
        }
        if let Some(slot) = first.recurrent(0, 0, 0) {
            let mut bytes = Vec::new();
            first.program.save_slot(0, slot.to, &mut bytes).unwrap();
            second.program.load_slot(0, second.recurrent(0, 0, 0).unwrap().from, &bytes).unwrap();
        }
        assert_eq!(first.run(&[(0, &tokens[70..], 5)]), second.run(&[(0, &tokens[70..], 5)]));
    }
}

#[test]
fn pools_grow_between_steps() {
    let tokens = prompt(40, PLAIN.vocab, 1);
    let mut session = Session::new(&PLAIN, Setup::default());
    session.run(&[(0, &tokens, 1)]);
    session.program.reserve_pages(0, 5000).unwrap();
    let mut step = session.step(&[(0, &tokens, 1)]);
    step.sequences[0].tables[0][2] = 4999;
    session.program.run(&step).unwrap();
    let grown = session.program.logits().to_vec();
    assert_eq!(grown, session.run(&[(0, &tokens, 1)]).concat());
}

#[test]
fn bytes_per_token_count_what_is_read() {
    let session = Session::new(&PLAIN, Setup::default());
    let (all, token) = (session.program.weight_bytes(), session.program.weight_bytes_per_token());
    // All matrices and norms are read, and one row of the table beside the tied matrix; biases are not counted.
    assert!(token.abs_diff(all) < 2048, "{token} of {all}");
    let session = Session::new(&crate::model::MIXTURE, Setup::default());
    let (all, token) = (session.program.weight_bytes(), session.program.weight_bytes_per_token());
    let experts = 2 * 3 * 6 * 64 * 64 * 4;
    assert!(token < all - experts * 6 / 10 && token > all - experts * 7 / 10, "{token} of {all}");
}
