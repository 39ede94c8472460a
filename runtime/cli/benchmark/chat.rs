//! A conversation of two turns through the whole engine: template, tokenizer, scheduler, caches, sampler.

use std::time::Instant;

use bantam_runtime::{
    engine::{ChatPrompt, Engine, EngineConfig, Event, Prompt, Request},
    sampling::SamplingOverrides,
};
use serde_json::{Value, json};

use super::{Plan, measure::median, report::Turn};
use crate::{error::CliError, os, progress};

/// Measures the turns of as many new conversations as there are iterations, the first of which opens with a prompt of
/// about `prompt_tokens` tokens.
///
/// # Errors
/// A model that cannot be loaded or has no chat template.
pub(super) fn measure(plan: &Plan, prompt_tokens: usize) -> Result<[Turn; 2], CliError> {
    let mut config = EngineConfig::new(plan.source.locate()?);
    config.parallel = 1;
    config.families = plan.families.clone();
    config.threads = plan.threads;
    config.hardware = plan.hardware.clone();
    config.placement = plan.placement;
    (config.k_type, config.v_type) = (plan.k_type.into(), plan.v_type.into());
    config.repack = plan.repack;
    let runtime = os::runtime()?;
    let turns = runtime.block_on(async {
        let engine = Engine::start(config).map_err(CliError::failed)?;
        let bar = progress::share("loading the engine");
        tokio::spawn(progress::follow_loading(engine.clone(), bar.clone()));
        engine.ready().await.map_err(CliError::failed)?;
        bar.finish_and_clear();
        let mut conversations = Vec::new();
        for index in 0..=plan.iterations {
            conversations.push(converse(&engine, index, prompt_tokens, plan.decode_tokens).await?);
        }
        // The first one warms up.
        Ok::<_, CliError>([0, 1].map(|turn| medians(&conversations[1..], turn)))
    });
    runtime.shutdown_background();
    turns
}

/// Both turns of a conversation that differs from all others from its first word.
async fn converse(
    engine: &Engine,
    index: usize,
    prompt_tokens: usize,
    max_tokens: usize,
) -> Result<[Turn; 2], CliError> {
    let opening = format!("Conversation {index}: {}", text_of(index, prompt_tokens));
    let mut messages = vec![json!({"role": "user", "content": opening})];
    let (first, answer) = answer(engine, &messages, max_tokens).await?;
    messages.push(json!({"role": "assistant", "content": answer}));
    messages.push(json!({"role": "user", "content": "Go on, please."}));
    let (second, _) = self::answer(engine, &messages, max_tokens).await?;
    Ok([first, second])
}

/// English words, of which most vocabularies have a token each.
fn text_of(seed: usize, words: usize) -> String {
    const WORDS: [&str; 16] = [
        "the", "house", "of", "a", "green", "river", "and", "we", "see", "that", "it", "runs", "to", "sea", "in",
        "time",
    ];
    let word = |at: usize| WORDS[(at * at + at / 7 + seed * (at + 3)) % WORDS.len()];
    (0..words).map(word).collect::<Vec<_>>().join(" ")
}

async fn answer(engine: &Engine, messages: &[Value], max_tokens: usize) -> Result<(Turn, String), CliError> {
    let kwargs = [("add_generation_prompt".to_owned(), json!(true))].into_iter().collect();
    let chat = ChatPrompt { messages: messages.to_vec(), kwargs, ..ChatPrompt::default() };
    let sampling = SamplingOverrides { temperature: Some(0.0), ..SamplingOverrides::default() };
    let start = Instant::now();
    let request = Request {
        sampling,
        max_tokens: Some(max_tokens),
        ignore_eos: true,
        plain: true,
        ..Request::new(Prompt::Chat(chat))
    };
    let mut generation = engine.submit(request).await.map_err(|e| CliError::Failed(format!("--chat: {e}")))?;
    let (mut first, mut text) = (None, String::new());
    while let Some(event) = generation.next().await {
        match event {
            Event::Started { .. } => first = Some(Instant::now()),
            Event::Delta(delta) => text.push_str(&delta.text()),
            Event::Failed(why) => return Err(CliError::failed(why)),
            Event::Finished(outcome) => {
                let first = first.unwrap_or(start);
                let turn = Turn {
                    prompt_tokens: outcome.prompt_tokens,
                    cached_tokens: outcome.cached_tokens,
                    ttft_s: (first - start).as_secs_f64(),
                    decode_tok_s: outcome.completion_tokens.saturating_sub(1) as f64 / first.elapsed().as_secs_f64(),
                };
                return Ok((turn, text));
            }
        }
    }
    Err(CliError::Failed("the engine ended an answer without a word".into()))
}

fn medians(conversations: &[[Turn; 2]], turn: usize) -> Turn {
    let of = |value: fn(&Turn) -> f64| median(conversations.iter().map(|turns| value(&turns[turn])));
    Turn {
        prompt_tokens: of(|turn| turn.prompt_tokens as f64) as usize,
        cached_tokens: of(|turn| turn.cached_tokens as f64) as usize,
        ttft_s: of(|turn| turn.ttft_s),
        decode_tok_s: of(|turn| turn.decode_tok_s),
    }
}
