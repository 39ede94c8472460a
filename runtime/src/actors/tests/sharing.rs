//! What sequences of a model with every kind of state share, and when.

use super::serving::{Setup, collect, expect_exact, expected, prompt, submit, until};
use crate::{
    actors::{model::ModelMessage, scheduler::Preparation},
    engine::{EngineConfig, Event},
};

/// A model with all kinds of state.
fn hybrid() -> Setup {
    let [_, hybrid] = Setup::all();
    hybrid
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_that_is_being_computed_is_waited_for() {
    let setup = hybrid();
    let engine = setup.start().await;
    setup.gate.close();
    let prompts: Vec<_> = (0..4).map(|i| prompt(i, 101, 5 + i as usize)).collect();
    let mut running = Vec::new();
    for p in &prompts {
        running.push(submit(&engine, p, 4).await);
    }
    until(&engine, "the first is computed, the others wait", |s| s.queued == 3).await;
    setup.gate.open();
    let mut cached = Vec::new();
    for (generation, p) in running.into_iter().zip(&prompts) {
        cached.push(expect_exact(generation, p, 4).await);
    }
    assert_eq!(cached, [0, 101, 101, 101], "the shared part is computed once, although no page or stride ends there");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_prompt_at_once_is_computed_once() {
    let setup = hybrid();
    let engine = setup.start().await;
    setup.gate.close();
    let p = prompt(1, 0, 90);
    let mut running = Vec::new();
    for _ in 0..4 {
        running.push(submit(&engine, &p, 3).await);
    }
    until(&engine, "the first is computed, the others wait", |s| s.queued == 3).await;
    setup.gate.open();
    for generation in running {
        expect_exact(generation, &p, 3).await;
    }
    assert_eq!(engine.status().await.reused_tokens, 3 * 89);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_third_conversation_goes_on_where_the_second_parted() {
    let engine = hybrid().start().await;
    let prompts: Vec<_> = (0..3).map(|i| prompt(i, 47, 9)).collect();
    let mut cached = Vec::new();
    for p in &prompts {
        cached.push(expect_exact(submit(&engine, p, 3).await, p, 3).await);
    }
    assert_eq!(cached, [0, 0, 47]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_is_sent_again_and_again_is_computed_twice() {
    let engine = hybrid().start().await;
    let p = prompt(1, 0, 50);
    let mut cached = Vec::new();
    for _ in 0..3 {
        cached.push(expect_exact(submit(&engine, &p, 3).await, &p, 3).await);
    }
    assert_eq!(cached, [0, 0, 49]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_message_is_found_again_when_the_answer_is_rewritten() {
    let setup = hybrid();
    let end = 40;
    let engine = setup.start_with(vec![end]).await;
    let mut first = prompt(1, 0, 90);
    first.retain(|token| *token != end);
    first.push(end);
    let question = first.len();
    first.extend([7, 8]);
    collect(submit(&engine, &first, 6).await).await;
    let mut second = first[..question].to_vec();
    second.extend([9, 10, 11, 12]);
    let (_, event) = collect(submit(&engine, &second, 2).await).await;
    let Event::Finished(outcome) = event else { panic!("{event:?}") };
    assert_eq!(outcome.cached_tokens, question);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompts_end_can_be_gone_on_from_while_its_answer_is_written() {
    let setup = hybrid();
    let engine = setup.start().await;
    let p = prompt(1, 0, 37);
    let long = submit(&engine, &p, 120).await;
    until(&engine, "the answer is being written", |s| s.slots.iter().any(|s| s.generated > 2)).await;
    let mut longer = p.clone();
    longer.extend([1, 2, 3]);
    assert_eq!(expect_exact(submit(&engine, &longer, 3).await, &longer, 3).await, p.len());
    expect_exact(long, &p, 120).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_for_each_sequence_suffices_for_all_to_run_and_fewer_for_all_to_finish() {
    for slots in [1, 2, 4] {
        let setup = Setup { slots, ..hybrid() };
        let engine = setup.start().await;
        let prompts: Vec<_> = (0..6).map(|i| prompt(i, 40, 10 + i as usize)).collect();
        let mut running = Vec::new();
        for p in &prompts {
            running.push(submit(&engine, p, 30).await);
        }
        for (generation, p) in running.into_iter().zip(&prompts) {
            expect_exact(generation, p, 30).await;
        }
        let status = engine.status().await;
        assert!(status.max_step_sequences <= slots, "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_of_many_turns_compute_each_token_once() {
    let setup = Setup { config: EngineConfig { parallel: 3, ..hybrid().config }, ..hybrid() };
    let engine = setup.start().await;
    let mut conversations: Vec<_> = (0..3).map(|i| prompt(i, 0, 11 + 7 * i as usize)).collect();
    for turn in 0..5 {
        let mut running = Vec::new();
        for conversation in &conversations {
            running.push(submit(&engine, conversation, 7).await);
        }
        for (generation, conversation) in running.into_iter().zip(&mut conversations) {
            let before = conversation.len();
            let cached = expect_exact(generation, conversation, 7).await;
            // All but the turn's own three tokens and the last one drawn, which was never computed.
            assert_eq!(cached, if turn == 0 { 0 } else { before - 4 });
            conversation.extend(expected(conversation, 7));
            conversation.extend([turn, turn + 1, 3]);
        }
    }
}

/// A main agent with a long conversation and sub-agents with shorter ones take turns on fewer slots than there are agents.
#[tokio::test(flavor = "multi_thread")]
async fn agents_that_take_turns_find_what_they_had() {
    const LENGTHS: [usize; 4] = [28_000, 6000, 6200, 6400];
    for setup in Setup::all() {
        let config = EngineConfig { parallel: 2, context: 32_768, batch: 512, ..setup.config.clone() };
        let minimum = setup.minimum(&config);
        // As much as two sequences of the whole context take, which is what two slots are given.
        let setup = Setup { budget: 2 * 4 * minimum.iter().sum::<usize>() as u64, slots: 20, config, ..setup };
        let engine = setup.start().await;
        let mut conversations: Vec<_> =
            (0..).zip(LENGTHS).map(|(agent, length)| prompt(agent, 1500, length - 1500)).collect();
        let (mut reusable, mut reused) = (0, 0);
        for turn in 0..4 {
            for conversation in &mut conversations {
                let cached = expect_exact(submit(&engine, conversation, 20).await, conversation, 20).await;
                if turn > 0 {
                    // What it had but for the turn's own tokens and the last one drawn, which was never computed.
                    reusable += conversation.len() - 41;
                    reused += cached;
                }
                conversation.extend(expected(conversation, 20));
                conversation.extend((0..40).map(|i| (i * 3 + turn) % 48));
            }
        }
        assert!(reused * 100 >= reusable * 95, "{reused} of {reusable} tokens");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_is_computed_in_advance_while_there_is_nothing_else_to_do() {
    for setup in Setup::all() {
        let engine = setup.start().await;
        let (_, model) = engine.link().unwrap();
        let (prefix, other) = (prompt(1, 0, 140), prompt(2, 0, 12));
        setup.gate.close();
        model.cast(ModelMessage::Prepare(Preparation { prefix: prefix.clone(), next: 0 })).unwrap();
        until(&engine, "the prefix is being computed", |s| s.step_running.is_some()).await;
        let generation = submit(&engine, &other, 100).await;
        until(&engine, "the request waits", |s| s.queued == 1).await;
        setup.gate.open();
        until(&engine, "the request is served", |s| s.slots.iter().any(|s| s.generated > 20)).await;
        let status = engine.status().await;
        if let Some(served) = status.slots.iter().find(|slot| slot.request.is_some()) {
            let of_request = (other.len() + served.generated) as u64;
            assert!(status.rows <= 16 + of_request, "one step of the prefix at most: {status:?}");
        }
        expect_exact(generation, &other, 100).await;
        until(&engine, "the prefix is computed", |s| s.rows >= 140 + 12 + 99).await;
        let mut longer = prefix.clone();
        longer.extend([1, 2, 3]);
        assert_eq!(expect_exact(submit(&engine, &longer, 3).await, &longer, 3).await, prefix.len());
        assert!(engine.status().await.rows <= 140 + 12 + 99 + 3 + 2, "nothing is computed twice");
    }
}
