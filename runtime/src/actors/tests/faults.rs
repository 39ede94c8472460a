//! Faults of every actor, steps that do not end, and clients that leave at any moment.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tokio::time::timeout;

use super::serving::{PATIENCE, Setup, collect, expect_exact, prompt, request, submit, until};
use crate::{
    actors::model::ModelMessage,
    engine::{ActorState, Engine, EngineConfig, Event, Failure, Generation, Readiness, Request, SlotState},
};

/// An actor of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Experts,
    Executor,
    Kv,
    Scheduler,
    Turns,
    Slot(usize),
}

impl Engine {
    /// Lets an actor panic.
    fn fail(&self, who: Who) {
        let (_, model) = self.link().expect("the model is there");
        model.cast(ModelMessage::Fail(who)).unwrap();
    }
}

const STREAMS: usize = 8;

async fn streams(engine: &Engine) -> Vec<Generation> {
    let mut running = Vec::new();
    for i in 0..STREAMS {
        running.push(submit(engine, &prompt(i as u32, 20, 5 + i), 120).await);
    }
    running
}

async fn all_idle(engine: &Engine) {
    until(engine, "all slots idle", |s| {
        s.queued == 0 && s.slots.len() == STREAMS && s.slots.iter().all(|s| s.state == SlotState::Idle)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_fails_every_request_ends_once_and_the_next_is_served() {
    for setup in Setup::all() {
        let config = EngineConfig { parallel: STREAMS, ..setup.config.clone() };
        let engine = Setup { config, ..setup }.start().await;
        for who in [Who::Slot(3), Who::Experts, Who::Executor, Who::Kv, Who::Scheduler, Who::Turns] {
            let running = streams(&engine).await;
            until(&engine, "all generate", |s| s.slots.iter().all(|s| s.generated > 3)).await;
            engine.fail(who);
            for (i, generation) in running.into_iter().enumerate() {
                if matches!(who, Who::Slot(_)) {
                    expect_exact(generation, &prompt(i as u32, 20, 5 + i), 120).await;
                    continue;
                }
                let (_, end) = collect(generation).await;
                assert!(
                    matches!(&end, Event::Failed(Failure::Fault(why)) if why.contains("send it again")),
                    "{who:?}: {end:?}"
                );
            }
            if matches!(engine.readiness(), Readiness::Failed(_)) {
                timeout(PATIENCE, ready(&engine)).await.expect("it is tried again");
            }
            all_idle(&engine).await;
            if matches!(who, Who::Slot(_)) {
                // Its sequence went on without it. What is assigned to it before it is replaced fails.
                let again = async { while fates(&engine).await["slot 3"] != (1, 1) {} };
                timeout(PATIENCE, again).await.expect("the slot is started again");
            }
            let p = prompt(9, 20, 30);
            expect_exact(submit(&engine, &p, 20).await, &p, 20).await;
        }
    }
}

/// Restarts and failures of each actor by its name.
async fn fates(engine: &Engine) -> BTreeMap<String, (u64, u64)> {
    let model = engine.actors().await;
    assert_eq!((model.name.as_str(), model.state), ("model", ActorState::Running));
    model.children.into_iter().map(|actor| (actor.name, (actor.restarts, actor.failures))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_tells_who_failed_and_who_was_started_again() {
    let [setup, _] = Setup::all();
    let config = EngineConfig { parallel: STREAMS, ..setup.config.clone() };
    let engine = Setup { config, ..setup }.start().await;
    assert!(fates(&engine).await.values().all(|fate| *fate == (0, 0)));
    engine.fail(Who::Slot(3));
    let slot_again = async { while fates(&engine).await["slot 3"] != (1, 1) {} };
    timeout(PATIENCE, slot_again).await.expect("the slot is started again");
    assert_eq!(fates(&engine).await.values().filter(|fate| **fate != (0, 0)).count(), 1, "alone");
    engine.fail(Who::Kv);
    let all_again = async { while fates(&engine).await["kv"] != (1, 1) {} };
    timeout(PATIENCE, all_again).await.expect("all are started again");
    let fates = fates(&engine).await;
    assert_eq!((fates["slot 3"], fates["slot 2"], fates["scheduler"]), ((2, 1), (1, 0), (1, 0)));
    let model = engine.actors().await;
    let kv = model.children.iter().find(|actor| actor.name == "kv").unwrap();
    assert!(kv.last_failure.as_deref().is_some_and(|why| why.contains("injected")), "{kv:?}");
    assert_eq!(kv.state, ActorState::Running);
    engine.stop().await;
    assert_eq!(engine.actors().await.state, ActorState::Stopped);
}

async fn ready(engine: &Engine) {
    while !matches!(engine.readiness(), Readiness::Ready(_)) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_does_not_end_fails_its_requests_and_the_engine() {
    let [setup, _] = Setup::all();
    let config = EngineConfig { step_timeout: Duration::from_millis(300), ..setup.config.clone() };
    let setup = Setup { config, ..setup };
    let engine = setup.start().await;
    let p = prompt(1, 0, 12);
    expect_exact(submit(&engine, &p, 20).await, &p, 20).await;
    setup.gate.close();
    let (stuck, queued) = (submit(&engine, &p, 20).await, submit(&engine, &p, 20).await);
    let why = timeout(PATIENCE, engine.hung()).await.expect("it is noticed").unwrap();
    assert!(why.contains("--step-timeout-seconds"), "{why}");
    for generation in [stuck, queued] {
        assert!(matches!(collect(generation).await.1, Event::Failed(_)));
    }
    assert!(matches!(engine.readiness(), Readiness::Failed(told) if told == why));
    setup.gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn where_memory_runs_out_prefixes_go_and_requests_stay() {
    for setup in Setup::all() {
        let config = EngineConfig { available_memory: || Some(0), ..setup.config.clone() };
        let engine = Setup { config, ..setup }.start().await;
        let kept = prompt(3, 0, 100);
        expect_exact(submit(&engine, &kept, 20).await, &kept, 20).await;
        let p = prompt(1, 0, 30);
        let running = submit(&engine, &p, 160).await;
        until(&engine, "it waits for its client", |s| s.slots.iter().any(|s| s.state == SlotState::Blocked)).await;
        // What the running one's window has left behind may stay.
        until(&engine, "what nobody uses is gone", |s| s.state.pages_cached < 5).await;
        expect_exact(running, &p, 160).await;
        assert_eq!(expect_exact(submit(&engine, &kept, 20).await, &kept, 20).await, 0, "it is computed again");
    }
}

/// Conversations that share beginnings of several lengths, urgent ones among them, on memory for hardly two: who waits for
/// whom, who is displaced and who goes first change all the time, and nobody may wait for one that waits for him.
#[derive(Clone, Debug)]
struct Contender {
    priority: i32,
    shared: usize,
    own: usize,
    tokens: usize,
    /// Whether it comes a little later than the one before.
    late: bool,
}

fn contender() -> impl Strategy<Value = Contender> {
    let shared = prop_oneof![Just(40_usize), Just(80), Just(120)];
    (-1..2, shared, 1..60_usize, 1..20_usize, any::<bool>())
        .prop_map(|(priority, shared, own, tokens, late)| Contender { priority, shared, own, tokens, late })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn nobody_waits_for_ever(
        contenders in prop::collection::vec(contender(), 2..16),
        pages in 70..130_u64,
        hybrid in any::<bool>(),
    ) {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
            let setup = Setup::all().into_iter().nth(usize::from(hybrid)).unwrap();
            let config = EngineConfig { parallel: STREAMS, ..setup.config.clone() };
            let least: usize = setup.minimum(&config).iter().sum();
            let setup = Setup { budget: 4 * pages.max(least as u64), config, slots: 3, ..setup };
            let engine = setup.start().await;
            let mut running = Vec::new();
            for (i, contender) in contenders.into_iter().enumerate() {
                let p = prompt(i as u32, contender.shared, contender.own);
                let asked = Request { priority: contender.priority, ..request(p.clone(), contender.tokens) };
                let generation = engine.submit(asked).await.unwrap();
                running.push(tokio::spawn(async move { expect_exact(generation, &p, contender.tokens).await }));
                if contender.late {
                    tokio::time::sleep(Duration::from_micros(300)).await;
                }
            }
            for generation in running {
                generation.await.unwrap();
            }
        });
    }
}

#[derive(Clone, Debug)]
struct Client {
    priority: i32,
    prompt: usize,
    shared: usize,
    tokens: usize,
    /// Events after which it leaves; none: it stays.
    leaves_after: Option<usize>,
}

fn client() -> impl Strategy<Value = Client> {
    (-1..2, 1..60_usize, 0..60_usize, 1..60_usize, prop::option::weighted(0.8, 0..40_usize)).prop_map(
        |(priority, prompt, shared, tokens, leaves_after)| Client { priority, prompt, shared, tokens, leaves_after },
    )
}

/// Follows a generation as far as its client does.
async fn follow(mut generation: Generation, client: Client, prompt: Vec<u32>) {
    let Some(events) = client.leaves_after else {
        expect_exact(generation, &prompt, client.tokens).await;
        return;
    };
    for _ in 0..events {
        if timeout(PATIENCE, generation.next()).await.expect("an event in time").is_none() {
            break;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn clients_that_leave_at_any_moment_leave_nothing_behind(
        clients in prop::collection::vec(client(), 42),
        tight in any::<bool>(),
        hybrid in any::<bool>(),
    ) {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
            let setup = Setup::all().into_iter().nth(usize::from(hybrid)).unwrap();
            let config = EngineConfig { parallel: STREAMS, ..setup.config.clone() };
            let budget = if tight { 4 * 200 } else { setup.budget };
            let engine = Setup { config, budget, ..setup }.start().await;
            let mut following = Vec::new();
            for (i, client) in clients.into_iter().enumerate() {
                let p = prompt(i as u32, client.shared, client.prompt);
                let request = Request { priority: client.priority, ..request(p.clone(), client.tokens) };
                let generation = engine.submit(request).await.unwrap();
                following.push(tokio::spawn(follow(generation, client, p)));
            }
            for client in following {
                client.await.unwrap();
            }
            all_idle(&engine).await;
            // What is told of pages may be a moment old.
            until(&engine, "pages that no sequence uses any more are cached or free", |s| s.state.pages_held == 0).await;
            let p = prompt(99, 30, 30);
            expect_exact(submit(&engine, &p, 20).await, &p, 20).await;
        });
    }
}
