//! What the runtime tells of itself.

use super::{
    device::{Layout, VOCAB},
    serving::{Setup, collect, expect_exact, prompt, submit, until},
};
use crate::engine::{EngineConfig, Event, SlotState, SlotStatus, Status};

fn slot_of(status: &Status, request: u64) -> Option<&SlotStatus> {
    status.slots.iter().find(|slot| slot.request == Some(request))
}

fn state_of(status: &Status, request: u64) -> Option<SlotState> {
    slot_of(status, request).map(|slot| slot.state)
}

/// More tokens than wait for a client that does not read.
const UNREAD: usize = 180;

fn setups() -> [Setup; 2] {
    Setup::all().map(|setup| {
        let config = EngineConfig { parallel: 3, context: 400, ..setup.config.clone() };
        Setup { config, ..setup }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn who_computes_and_who_waits_for_what_is_told() {
    for setup in setups() {
        let engine = setup.start().await;
        setup.gate.close();
        let (first, alike, other) = (prompt(1, 96, 9), prompt(2, 96, 9), vec![7; 20]);
        let computing = submit(&engine, &first, 4).await;
        until(&engine, "the first step is computed", |s| slot_of(s, 1).is_some()).await;
        let waiting = submit(&engine, &alike, 4).await;
        let unlike = submit(&engine, &other, 4).await;
        let queued = submit(&engine, &other, 4).await;
        until(&engine, "three are queued", |s| s.queued == 3).await;
        let status = engine.status().await;
        assert_eq!((status.last_step, status.steps, status.rows), (None, 0, 0), "no step has ended");
        assert_eq!((status.running(), status.waiting()), (1, 3));
        let in_queue: Vec<_> = status.queue.iter().map(|q| (q.request, q.prompt_tokens)).collect();
        assert_eq!(in_queue, [(waiting.id(), 105), (unlike.id(), 20), (queued.id(), 20)]);

        setup.gate.let_one();
        until(&engine, "the second step is computed", |s| s.queued == 1).await;
        let status = engine.status().await;
        let told = |id| slot_of(&status, id).map(|slot| (slot.state, slot.waits_for));
        assert_eq!(told(computing.id()), Some((SlotState::Prefill, None)));
        assert_eq!(told(waiting.id()), Some((SlotState::Waiting, Some(computing.id()))));
        assert_eq!(told(unlike.id()), Some((SlotState::Prefill, None)));
        assert_eq!((status.running(), status.waiting()), (2, 2));
        assert!(status.step_running.is_some());
        assert_eq!((status.steps, status.rows, status.prompt_rows), (1, 16, 16));
        assert!(status.last_step.is_some() && status.prefill_speed.is_some() && status.decode_speed.is_none());

        setup.gate.open();
        for generation in [computing, waiting, unlike, queued] {
            assert!(matches!(collect(generation).await.1, Event::Finished(_)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_shares_a_prefix_with_whom_is_told() {
    for setup in setups() {
        let engine = setup.start().await;
        let (first, alike) = (prompt(1, 96, 9), prompt(2, 96, 9));
        let one = submit(&engine, &first, UNREAD).await;
        until(&engine, "the first waits for its client", |s| state_of(s, 1) == Some(SlotState::Blocked)).await;
        let two = submit(&engine, &alike, UNREAD).await;
        let three = submit(&engine, &alike, UNREAD).await;
        let ids = [one.id(), two.id(), three.id()];
        let blocked = |s: &Status| ids.iter().all(|id| state_of(s, *id) == Some(SlotState::Blocked));
        until(&engine, "all wait for their clients", blocked).await;
        let status = engine.status().await;
        let told = ids.map(|id| slot_of(&status, id).map(|slot| (slot.cached_tokens, slot.shares_with)).unwrap());
        // Where a prompt cannot be resumed at any token, the first that parts from it computes all of it.
        let found = if told[1].0 > 0 { 96 } else { 0 };
        assert_eq!(told[0], (0, None));
        assert_eq!(told[1], (found, (found > 0).then_some(ids[0])));
        assert_eq!(told[2], (104, Some(ids[1])), "the longest prefix counts");
        let slot = slot_of(&status, ids[0]).unwrap();
        assert!(slot.decoding.unwrap() <= slot.in_slot);
        expect_exact(one, &first, UNREAD).await;
        expect_exact(two, &alike, UNREAD).await;
        expect_exact(three, &alike, UNREAD).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_the_tokens_that_were_not_found() {
    for setup in setups() {
        let engine = setup.start().await;
        let prompts: Vec<_> = (0..5).map(|i| prompt(i, 64, 3 + i as usize)).collect();
        let mut found = 0;
        for p in prompts.iter().chain(&prompts) {
            found += expect_exact(submit(&engine, p, 6).await, p, 6).await as u64;
        }
        let asked: u64 = 2 * prompts.iter().map(|p| p.len() as u64).sum::<u64>();
        let status = engine.status().await;
        assert!(found > 0);
        assert_eq!((status.reused_tokens, status.prompt_tokens, status.generated_tokens), (found, asked, 60));
        assert_eq!(status.prompt_rows, asked - found);
        assert_eq!(status.rows, status.prompt_rows + 50, "of each answer, the last token is not computed");
        assert_eq!((status.state.tokens_wanted, status.state.tokens_reused), (asked, found));
        assert!(status.prefill_speed.is_some() && status.decode_speed.is_some() && !status.step_time.is_zero());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_in_use_while_sequences_hold_it() {
    for setup in setups() {
        let engine = setup.start().await;
        let p = prompt(1, 0, 40);
        let running = submit(&engine, &p, UNREAD).await;
        until(&engine, "it waits for its client", |s| state_of(s, 1) == Some(SlotState::Blocked)).await;
        let state = engine.status().await.state;
        assert!(state.pages_held > 0 && state.usage > 0.0 && state.bytes <= state.budget, "{state:?}");
        assert!(state.block_tokens > 0 && state.blocks > 0, "{state:?}");
        expect_exact(running, &p, UNREAD).await;
        until(&engine, "it has let go", |s| s.state.pages_held == 0).await;
        let state = engine.status().await.state;
        assert!(state.pages_cached > 0 && state.bytes > 0, "{state:?}");
        assert!(state.usage.abs() < f64::EPSILON, "what is only cached is free for others: {state:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sequences_that_give_way_and_prefixes_that_go_are_counted() {
    for setup in Setup::all() {
        // Memory suffices for two as far as is sure when they begin, and not for two whole ones.
        const ANSWER: usize = 500;
        let setup = Setup { config: EngineConfig { context: 600, ..setup.config.clone() }, slots: 3, ..setup };
        let budget = if setup.layout == Layout::Paged { 4 * 180 } else { 4 * 260 };
        let setup = Setup { budget, ..setup };
        let engine = setup.start().await;
        setup.gate.close();
        let prompts: Vec<_> = (0..4).map(|i| prompt(i, 0, 20)).collect();
        let mut running = Vec::new();
        for p in &prompts {
            running.push(submit(&engine, p, ANSWER).await);
        }
        until(&engine, "all are there", |s| s.running() == 1 && s.queued == 3).await;
        setup.gate.open();
        for (generation, p) in running.into_iter().zip(&prompts) {
            expect_exact(generation, p, ANSWER).await;
        }
        let status = engine.status().await;
        assert!(status.displaced > 0, "{status:?}");
        assert!(status.state.evictions > 0 && status.state.tokens_evicted > 0, "{status:?}");
        assert_eq!(
            (status.prompt_tokens, status.generated_tokens),
            (4 * 20, 4 * ANSWER as u64),
            "each once, however often it began"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_is_counted_and_computed_nothing() {
    let engine = Setup::all()[0].start().await;
    let (_, end) = collect(submit(&engine, &[1, 2, VOCAB as u32 - 1], 5).await).await;
    assert!(matches!(end, Event::Failed(_)));
    let status = engine.status().await;
    assert_eq!((status.steps, status.steps_failed, status.rows), (1, 1, 0));
}
