//! A running step allocates nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(unsafe_code, reason = "an allocator that counts")]
#![allow(dead_code, reason = "shares its models with the suite")]

#[path = "suite/hybrid.rs"]
mod hybrid;
#[path = "suite/model.rs"]
mod model;
#[path = "suite/session.rs"]
mod session;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use bantam_backend::KvType;
use bantam_gguf::GgmlType;

use model::{HYBRID, MIXTURE, WINDOWED, quantized};
use session::{Session, Setup, prompt};

struct Counting;

static WATCHING: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note();
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn note() {
    if WATCHING.load(Ordering::Relaxed) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn steps_do_not_allocate() {
    let rotated = Setup { k_type: KvType::Turbo4, v_type: KvType::Turbo3, ..Setup::default() };
    for (shape, setup) in [
        (WINDOWED, Setup::default()),
        (WINDOWED, rotated),
        (HYBRID, Setup::default()),
        (quantized(MIXTURE, GgmlType::Q8_0), Setup::default()),
    ] {
        let tokens = prompt(200, shape.vocab, 1);
        let mut session = Session::new(&shape, Setup { threads: 3, ..setup });
        session.run(&[(0, &tokens[..1], 1)]);
        let one = &tokens[..1];
        let runs = [vec![(0, &tokens[..], 3), (1, &tokens[..40], 40)], vec![(0, one, 1), (2, one, 1)]];
        let mut steps: Vec<_> = [&runs[0], &runs[1], &runs[1]].into_iter().map(|runs| session.advance(runs)).collect();
        if session.program.recurrent(0).is_none() {
            session.fork(0, 3, 5);
            session.fork(0, 4, 5);
            steps.push(session.advance(&[(3, one, 1), (4, one, 1)]));
        }
        WATCHING.store(true, Ordering::SeqCst);
        for step in &steps {
            session.program.run(step).unwrap();
        }
        WATCHING.store(false, Ordering::SeqCst);
        assert_eq!(CALLS.load(Ordering::SeqCst), 0, "{shape:?}");
    }
    WATCHING.store(true, Ordering::SeqCst);
    drop(vec![1u8; 10]);
    WATCHING.store(false, Ordering::SeqCst);
    assert_eq!(CALLS.load(Ordering::SeqCst), 2, "the allocator counts");
}
