//! What a step costs beside its computing: scheduling, messages between actors, pages, sampling, and events for the clients.
//!
//! `cargo bench -p bantam-runtime --bench scheduling`. A program that computes nothing is served to 1, 8 and 64 clients at once;
//! the time that passes is divided by the steps that ran. `TOKENS` says how many tokens each client takes.

#![allow(clippy::print_stdout, reason = "its result")]

use std::{
    error::Error,
    time::{Duration, Instant},
};

use bantam_backend::{Program, StateGroup, Step, StepError, Trace};
use bantam_graph::StateKind;
use bantam_runtime::{
    engine::{Engine, EngineConfig, Event, Prompt, Request},
    sampling::SamplingOverrides,
};
use bantam_text::{Tokenizer, TokenizerSpec};

const VOCAB: usize = 256;
/// Tokens of a prompt: what an agent's turn is long.
const PROMPT: u32 = 2000;

/// A program whose every logit row is the same.
struct Nothing {
    groups: Vec<StateGroup>,
    logits: Vec<f32>,
    rows: usize,
}

impl Nothing {
    fn new(max_logit_rows: usize) -> Self {
        let group = StateGroup { kind: StateKind::PerToken, page_tokens: 32, page_bytes: 64, states: vec![0] };
        let row = (0..VOCAB).map(|token| token as f32 / VOCAB as f32);
        let logits = (0..max_logit_rows).flat_map(|_| row.clone()).collect();
        Nothing { groups: vec![group], logits, rows: 0 }
    }
}

impl Program for Nothing {
    fn groups(&self) -> &[StateGroup] {
        &self.groups
    }

    fn vocab(&self) -> usize {
        VOCAB
    }

    fn weight_bytes(&self) -> u64 {
        0
    }

    fn weight_bytes_per_token(&self) -> u64 {
        0
    }

    fn reserve_pages(&mut self, _: usize, _: usize) -> Result<(), StepError> {
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), StepError> {
        self.rows = step.logit_rows.len();
        Ok(())
    }

    fn run_traced(&mut self, step: &Step, _: Trace<'_>) -> Result<(), StepError> {
        self.run(step)
    }

    fn logits(&self) -> &[f32] {
        &self.logits[..self.rows * VOCAB]
    }

    fn save_page(&self, _: usize, _: u32, _: usize, _: &mut Vec<u8>) -> Result<(), StepError> {
        Ok(())
    }

    fn load_page(&mut self, _: usize, _: u32, _: usize, _: &[u8]) -> Result<(), StepError> {
        Ok(())
    }
}

fn tokenizer() -> Result<Tokenizer, Box<dyn Error>> {
    let tokens = (0..=u8::MAX).map(|byte| vec![b'a' + byte % 26; 1 + usize::from(byte / 26)]).collect();
    Ok(Tokenizer::new(TokenizerSpec {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens,
        ..TokenizerSpec::default()
    })?)
}

/// Takes all tokens of a client's request.
async fn client(engine: Engine, seed: u32, tokens: usize) -> Result<(), String> {
    let prompt = (0..PROMPT).map(|i| (i * (seed + 3)) % VOCAB as u32).collect();
    let request = Request {
        max_tokens: Some(tokens),
        sampling: SamplingOverrides { temperature: Some(0.0), ..SamplingOverrides::default() },
        ..Request::new(Prompt::Tokens(prompt))
    };
    let mut generation = engine.submit(request).await.map_err(|e| e.to_string())?;
    while let Some(event) = generation.next().await {
        if let Event::Failed(why) = event {
            return Err(why.to_string());
        }
    }
    Ok(())
}

/// Time and steps of `clients` at once.
async fn measure(clients: usize, tokens: usize) -> Result<(Duration, u64), Box<dyn Error>> {
    let mut config = EngineConfig::new("");
    (config.parallel, config.concurrency) = (clients, clients);
    (config.context, config.batch) = (8192, 8192);
    let engine = Engine::around(config, tokenizer()?, Box::new(Nothing::new(clients))).await?;
    let start = Instant::now();
    let all: Vec<_> = (0..clients)
        .map(|seed| tokio::spawn(client(engine.clone(), u32::try_from(seed).unwrap_or(0), tokens)))
        .collect();
    for client in all {
        client.await??;
    }
    let elapsed = start.elapsed();
    let steps = engine.status().await.steps;
    engine.stop().await;
    Ok((elapsed, steps))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tokens = std::env::var("TOKENS").map_or(Ok(1500), |tokens| tokens.parse())?;
    println!("sequences    steps    µs a step    µs a token");
    for clients in [1, 8, 64] {
        let (elapsed, steps) = measure(clients, tokens).await?;
        let micros = elapsed.as_secs_f64() * 1e6;
        let of_tokens = micros / (clients * tokens) as f64;
        println!("{clients:9} {steps:8} {:12.1} {of_tokens:13.2}", micros / steps.max(1) as f64);
    }
    Ok(())
}
