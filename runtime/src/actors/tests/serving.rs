//! What clients see, whatever else goes on.

use std::{sync::Arc, time::Duration};

use bantam_backend::Program;
use bantam_text::{Tokenizer, TokenizerSpec};
use tokio::time::timeout;

use super::device::{FakeProgram, Gate, Layout, SLOT_BYTES, VOCAB, next_token};
use crate::{
    actors::kv::KvArguments,
    cache::one_sequence,
    engine::{
        Engine, EngineConfig, Event, Failure, FinishReason, Generation, ModelInfo, Prompt, Refusal, Request, SlotState,
    },
    memory::Ledger,
    resident::{self, Resident, bare_info},
    sampling::SamplingOverrides,
    snapshot::{CacheDirectory, SnapshotKey},
};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Setup {
    pub(super) config: EngineConfig,
    pub(super) layout: Layout,
    /// Bytes of pages; each has 4.
    pub(super) budget: u64,
    /// Slots of recurrent state, where there is any.
    pub(super) slots: usize,
    pub(super) gate: Gate,
}

impl Setup {
    fn new() -> Self {
        let config = EngineConfig { batch: 16, context: 200, parallel: 4, ..EngineConfig::new("fake") };
        Setup { config, layout: Layout::Paged, budget: 1 << 20, slots: 40, gate: Gate::default() }
    }

    /// One for each layout.
    pub(super) fn all() -> [Setup; 2] {
        [Layout::Paged, Layout::Hybrid].map(|layout| Setup { layout, ..Setup::new() })
    }

    /// Pages of each group that a lone sequence of this configuration needs.
    pub(super) fn minimum(&self, config: &EngineConfig) -> Vec<usize> {
        let program = FakeProgram::new(self.layout, self.gate.clone());
        one_sequence(program.groups(), config.context, config.batch)
    }

    pub(super) async fn start(&self) -> Engine {
        self.start_with(Vec::new()).await
    }

    /// The same with tokens that end messages.
    pub(super) async fn start_with(&self, end_tokens: Vec<u32>) -> Engine {
        let mut program: Box<dyn Program> = Box::new(FakeProgram::new(self.layout, self.gate.clone()));
        let groups = program.groups().to_vec();
        let recurrent = program.recurrent(0).map(|group| (group.clone(), (self.slots * SLOT_BYTES) as u64));
        let minimum = one_sequence(&groups, self.config.context, self.config.batch);
        let cache = KvArguments { groups, budget: self.budget, minimum, recurrent };
        let key = SnapshotKey::default();
        let directory = self.config.cache_dir.as_deref().map(|path| Arc::new(CacheDirectory::open(path, key)));
        let restored = directory.as_ref().and_then(|directory| resident::restore(directory, &cache, program.as_mut()));
        let resident = Resident {
            history: program.history(0),
            program,
            info: Arc::new(ModelInfo { end_tokens, ..info(&self.config) }),
            cache,
            max_logit_rows: if self.config.all_logits { self.config.batch } else { self.config.parallel },
            ledger: Ledger::with_total(0),
            device: None,
            directory,
            restored,
        };
        Engine::with_resident(self.config.clone(), resident).await.unwrap()
    }
}

fn info(config: &EngineConfig) -> ModelInfo {
    let tokenizer = Tokenizer::new(TokenizerSpec {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens: (0..VOCAB).map(|i| vec![b'a' + (i % 26) as u8; 1 + i / 26]).collect(),
        ..TokenizerSpec::default()
    })
    .unwrap();
    bare_info(config, tokenizer, VOCAB)
}

pub(super) fn request(tokens: Vec<u32>, max_tokens: usize) -> Request {
    Request {
        max_tokens: Some(max_tokens),
        sampling: SamplingOverrides { temperature: Some(0.0), ..SamplingOverrides::default() },
        logprobs: Some(0),
        ..Request::new(Prompt::Tokens(tokens))
    }
}

pub(super) fn expected(prompt: &[u32], count: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        tokens.push(next_token(&tokens));
    }
    tokens.split_off(prompt.len())
}

/// All tokens of a generation and its terminal event.
pub(super) async fn collect(mut generation: Generation) -> (Vec<u32>, Event) {
    let mut tokens = Vec::new();
    loop {
        match timeout(PATIENCE, generation.next()).await.expect("an event in time") {
            Some(Event::Delta(delta)) => tokens.extend(delta.tokens.iter().map(|t| t.token)),
            Some(Event::Started { .. }) => {}
            Some(end) => {
                assert!(generation.next().await.is_none(), "nothing comes after the terminal event");
                return (tokens, end);
            }
            None => panic!("no terminal event"),
        }
    }
}

pub(super) fn prompt(seed: u32, shared: usize, own: usize) -> Vec<u32> {
    let shared = (0..shared as u32).map(|i| (i * 7 + 3) % 48);
    shared.chain((0..own as u32).map(|i| (i * 11 + seed * 5 + 1) % 48)).collect()
}

pub(super) async fn submit(engine: &Engine, tokens: &[u32], count: usize) -> Generation {
    engine.submit(request(tokens.to_vec(), count)).await.unwrap()
}

pub(super) async fn expect_exact(generation: Generation, prompt: &[u32], count: usize) -> usize {
    let (tokens, end) = collect(generation).await;
    let Event::Finished(outcome) = end else { panic!("{end:?}") };
    assert_eq!(tokens, expected(prompt, count));
    assert_eq!((outcome.reason, outcome.completion_tokens), (FinishReason::Length, count));
    outcome.cached_tokens
}

pub(super) async fn until(engine: &Engine, what: &str, holds: impl Fn(&crate::engine::Status) -> bool) {
    let poll = async {
        while !holds(&engine.status().await) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if timeout(PATIENCE, poll).await.is_err() {
        panic!("not in time: {what}: {:?}", engine.status().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_once_get_what_they_would_get_alone() {
    for setup in Setup::all() {
        let engine = setup.start().await;
        let prompts: Vec<_> = (0..12).map(|i| prompt(i, 33, 1 + (i as usize * 13) % 40)).collect();
        let mut running = Vec::new();
        for p in &prompts {
            running.push(submit(&engine, p, 25).await);
        }
        for (generation, p) in running.into_iter().zip(&prompts) {
            expect_exact(generation, p, 25).await;
        }
        let status = engine.status().await;
        assert!(status.max_step_sequences >= 4, "{status:?}");
        assert!(status.reused_tokens >= 8 * 33, "the shared prefix is computed a few times at most: {status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_comes_back_finds_all_that_it_had() {
    for setup in Setup::all() {
        let engine = setup.start().await;
        let first = prompt(1, 10, 30);
        expect_exact(submit(&engine, &first, 10).await, &first, 10).await;
        let mut again = first.clone();
        again.extend(expected(&first, 10));
        again.extend([5, 6, 7]);
        let cached = expect_exact(submit(&engine, &again, 10).await, &again, 10).await;
        // The last token drawn was never computed.
        assert_eq!(cached, first.len() + 9);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sequences_that_exceed_the_memory_together_all_finish() {
    for setup in Setup::all() {
        let setup = Setup { budget: 4 * 150, slots: 3, ..setup };
        let engine = setup.start().await;
        let prompts: Vec<_> = (0..4).map(|i| prompt(i, 0, 90)).collect();
        let mut running = Vec::new();
        for p in &prompts {
            running.push(submit(&engine, p, 60).await);
        }
        for (generation, p) in running.into_iter().zip(&prompts) {
            expect_exact(generation, p, 60).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_slot_and_disturbs_nobody() {
    for setup in Setup::all() {
        let setup = Setup { config: EngineConfig { parallel: 2, ..setup.config.clone() }, ..setup };
        let engine = setup.start().await;
        let (stays, leaves, queued) = (prompt(1, 0, 20), prompt(2, 0, 20), prompt(3, 0, 20));
        let staying = submit(&engine, &stays, 40).await;
        let leaving = submit(&engine, &leaves, 170).await;
        let waiting = submit(&engine, &queued, 30).await;
        let never_run = submit(&engine, &queued, 30).await;
        drop(never_run);
        drop(leaving);
        expect_exact(waiting, &queued, 30).await;
        expect_exact(staying, &stays, 40).await;
        until(&engine, "all slots idle", |s| s.queued == 0 && s.slots.iter().all(|s| s.state == SlotState::Idle)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_blocks_only_its_own_slot() {
    let engine = Setup::new().start().await;
    let slow = prompt(1, 0, 10);
    let unread = submit(&engine, &slow, 180).await;
    until(&engine, "the slot is blocked", |s| s.slots.iter().any(|s| s.state == SlotState::Blocked)).await;
    let quick = prompt(2, 0, 10);
    expect_exact(submit(&engine, &quick, 100).await, &quick, 100).await;
    expect_exact(unread, &slow, 180).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_or_panics_ends_its_requests_only() {
    for setup in Setup::all() {
        let engine = setup.start().await;
        for poison in [VOCAB as u32 - 2, VOCAB as u32 - 1] {
            let (_, end) = collect(submit(&engine, &[1, 2, poison], 5).await).await;
            assert!(matches!(&end, Event::Failed(Failure::Fault(why)) if why.contains("poisoned")), "{end:?}");
            let p = prompt(4, 0, 12);
            expect_exact(submit(&engine, &p, 8).await, &p, 8).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_takes_no_other_request_along() {
    for setup in Setup::all() {
        let setup = Setup { config: EngineConfig { parallel: 8, ..setup.config.clone() }, ..setup };
        for poison in [VOCAB as u32 - 2, VOCAB as u32 - 1] {
            let engine = setup.start().await;
            setup.gate.close();
            let prompts: Vec<_> = (0..7).map(|i| prompt(i, 20, 3 + i as usize)).collect();
            let mut running = Vec::new();
            for p in &prompts[..3] {
                running.push(submit(&engine, p, 60).await);
            }
            let poisoned = submit(&engine, &[1, 2, 3, poison, 5], 9).await;
            for p in &prompts[3..] {
                running.push(submit(&engine, p, 60).await);
            }
            setup.gate.open();
            let (tokens, end) = collect(poisoned).await;
            assert!(tokens.is_empty(), "{tokens:?}");
            assert!(matches!(&end, Event::Failed(Failure::Fault(why)) if why.contains("poisoned")), "{end:?}");
            for (generation, p) in running.into_iter().zip(&prompts) {
                expect_exact(generation, p, 60).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_ends_at_its_deadline_wherever_it_is() {
    let setup = Setup { config: EngineConfig { parallel: 1, ..Setup::new().config }, ..Setup::new() };
    let engine = setup.start().await;
    setup.gate.close();
    let after = Duration::from_millis(300);
    let (p, q) = (prompt(1, 0, 30), prompt(2, 0, 30));
    let overdue = Request { deadline: Some(after), ..request(p.clone(), 150) };
    let computed = engine.submit(overdue.clone()).await.unwrap();
    let queued = engine.submit(overdue).await.unwrap();
    let in_time = engine.submit(Request { deadline: Some(PATIENCE), ..request(q.clone(), 30) }).await.unwrap();
    // While the step is still being computed.
    for generation in [computed, queued] {
        let (_, end) = collect(generation).await;
        assert!(matches!(end, Event::Failed(Failure::Deadline { after: given }) if given == after), "{end:?}");
    }
    setup.gate.open();
    expect_exact(in_time, &q, 30).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_lower_priority_numbers_go_first() {
    let setup = Setup { config: EngineConfig { parallel: 1, ..Setup::new().config }, ..Setup::new() };
    let engine = setup.start().await;
    setup.gate.close();
    let p = prompt(1, 0, 12);
    let first = submit(&engine, &p, 3).await;
    until(&engine, "the first is computed", |s| s.slots.iter().any(|s| s.state == SlotState::Prefill)).await;
    let (ended, mut order) = tokio::sync::mpsc::unbounded_channel();
    for priority in [5, 0, -3, 5] {
        let mut generation = engine.submit(Request { priority, ..request(p.clone(), 3) }).await.unwrap();
        let ended = ended.clone();
        tokio::spawn(async move {
            while generation.next().await.is_some() {}
            ended.send(priority).unwrap();
        });
    }
    drop(ended);
    setup.gate.open();
    expect_exact(first, &p, 3).await;
    let mut found = Vec::new();
    while let Some(priority) = timeout(PATIENCE, order.recv()).await.expect("all end") {
        found.push(priority);
    }
    assert_eq!(found, [-3, 0, 5, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sequences_that_do_not_fit_together_are_not_computed_again_and_again() {
    for setup in Setup::all() {
        // Two of them fit at a time, with what they will generate.
        let setup = Setup { budget: 4 * 180, ..setup };
        let engine = setup.start().await;
        let prompts: Vec<_> = (0..6).map(|i| prompt(i, 0, 90)).collect();
        let mut running = Vec::new();
        for p in &prompts {
            running.push(submit(&engine, p, 60).await);
        }
        for (generation, p) in running.into_iter().zip(&prompts) {
            expect_exact(generation, p, 60).await;
        }
        let status = engine.status().await;
        assert!(status.rows <= 6 * 150, "each token is computed once: {status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_is_told_while_a_step_takes_long() {
    let setup = Setup::new();
    let engine = setup.start().await;
    setup.gate.close();
    let p = prompt(1, 0, 12);
    let generation = submit(&engine, &p, 4).await;
    until(&engine, "prefill", |s| s.slots.iter().any(|s| s.state == SlotState::Prefill)).await;
    let status = timeout(Duration::from_millis(500), engine.status()).await.expect("status at once");
    assert_eq!(status.slots.len(), 4);
    setup.gate.open();
    expect_exact(generation, &p, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_more_than_the_gate_admits_is_refused_at_once() {
    let setup = Setup { config: EngineConfig { concurrency: 3, ..Setup::new().config }, ..Setup::new() };
    let engine = setup.start().await;
    setup.gate.close();
    let p = prompt(1, 0, 12);
    let mut admitted = Vec::new();
    for _ in 0..3 {
        admitted.push(submit(&engine, &p, 4).await);
    }
    for _ in 0..30 {
        let refused = engine.submit(request(p.clone(), 4)).await;
        assert!(matches!(refused, Err(Refusal::Busy { limit: 3, .. })), "{refused:?}");
    }
    setup.gate.open();
    for generation in admitted {
        expect_exact(generation, &p, 4).await;
    }
    expect_exact(submit(&engine, &p, 4).await, &p, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_is_kept_before_any_work() {
    let engine = Setup::new().start().await;
    let full = engine.submit(request(prompt(1, 0, 200), 4)).await;
    assert!(matches!(full, Err(Refusal::ContextExceeded { prompt_tokens: 200, context: 200, .. })), "{full:?}");
    let p = prompt(1, 0, 195);
    expect_exact(submit(&engine, &p, 50).await, &p, 5).await;
    assert!(matches!(engine.submit(request(vec![], 4)).await, Err(Refusal::Invalid { .. })));
    assert!(matches!(engine.submit(request(vec![VOCAB as u32], 4)).await, Err(Refusal::Invalid { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn shutting_down_lets_running_requests_end() {
    let engine = Setup::new().start().await;
    let p = prompt(1, 0, 30);
    let generation = submit(&engine, &p, 60).await;
    let closing = engine.clone();
    let shutdown = tokio::spawn(async move { closing.shutdown().await });
    expect_exact(generation, &p, 60).await;
    timeout(PATIENCE, shutdown).await.expect("shut down in time").unwrap();
    assert!(matches!(engine.submit(request(p, 4)).await, Err(Refusal::Busy { .. } | Refusal::NotReady(_))));
}
