//! Conversations whose turns come back as text: each token is computed once, although the text would be encoded otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

use bantam_runtime::{
    engine::{ChatPrompt, Engine, EngineConfig, Event, Miss, Outcome, Prompt, Request, Turn},
    sampling::SamplingOverrides,
};
use serde_json::{Map, Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models")
}

async fn start(model: &str) -> Engine {
    let mut config = EngineConfig::new(folder().join(model).join("model.gguf"));
    config.threads = 1;
    let engine = Engine::start(config).unwrap();
    engine.ready().await.unwrap();
    engine
}

fn chat(messages: &[Value]) -> ChatPrompt {
    let kwargs = Map::from_iter([("add_generation_prompt".to_owned(), json!(true))]);
    ChatPrompt { messages: messages.to_vec(), kwargs, ..ChatPrompt::default() }
}

/// The same, answered without thinking: what is thought is left out of later prompts, and there is nothing to compute.
fn answering(messages: &[Value]) -> ChatPrompt {
    ChatPrompt { thinking: Some(false), ..chat(messages) }
}

/// An answer that was drawn at random.
struct Answer {
    text: String,
    said: Turn,
    miss: Option<Miss>,
    outcome: Outcome,
    /// Whether all tokens are shown: the end of an answer may cut a character in two.
    whole: bool,
}

impl Answer {
    /// Tokens up to its end. The last one drawn has not been computed where there were enough.
    fn computed(&self) -> usize {
        self.outcome.prompt_tokens + self.outcome.completion_tokens - 1
    }
}

async fn answer(engine: &Engine, prompt: Prompt, seed: u64) -> Answer {
    answer_within(12, engine, prompt, seed).await
}

async fn long_answer(engine: &Engine, prompt: Prompt, seed: u64) -> Answer {
    answer_within(120, engine, prompt, seed).await
}

async fn answer_within(most: usize, engine: &Engine, prompt: Prompt, seed: u64) -> Answer {
    let sampling = SamplingOverrides { temperature: Some(1.0), seed: Some(seed), ..SamplingOverrides::default() };
    let request = Request { sampling, max_tokens: Some(most), logprobs: Some(0), ..Request::new(prompt) };
    let mut generation = engine.submit(request).await.unwrap();
    let (mut said, mut bytes, mut missed) = (Turn::default(), Vec::new(), None);
    loop {
        match generation.next().await.unwrap() {
            Event::Delta(delta) => {
                delta.pieces.into_iter().for_each(|piece| said.add(piece));
                bytes.extend(delta.tokens.into_iter().filter(|token| token.shown).flat_map(|token| token.bytes));
            }
            Event::Finished(outcome) => {
                let text = said.content();
                let whole = String::from_utf8_lossy(&bytes) == text;
                return Answer { text, said, miss: missed, outcome, whole };
            }
            Event::Failed(why) => panic!("{why}"),
            Event::Started { miss, .. } => missed = miss,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_model_finds_past_turns_token_for_token() {
    for model in std::fs::read_dir(folder()).unwrap() {
        let model = model.unwrap().file_name().into_string().unwrap();
        let engine = start(&model).await;
        let info = engine.ready().await.unwrap();
        let end = info.end_tokens.iter().find(|token| info.tokenizer.is_control(**token)).unwrap();
        let end = info.tokenizer.id_to_token(*end).unwrap();
        let (mut whole, mut other) = (0, 0);
        for conversation in 0..4 {
            let mut prompt = format!("tell a question {conversation}{end}");
            for turn in 0..3 {
                let answer = answer(&engine, Prompt::Text(prompt.clone()), 10 * conversation + turn).await;
                prompt = format!("{prompt}{}{end}go on{end}", answer.text);
                if !answer.whole {
                    break;
                }
                let next = self::answer(&engine, Prompt::Text(prompt.clone()), 1).await.outcome;
                assert!(
                    next.cached_tokens >= answer.computed(),
                    "{model}: {} of {}: {prompt:?}",
                    next.cached_tokens,
                    answer.computed()
                );
                let anew = info.tokenizer.encode(&prompt, bantam_text::Specials::Parse).unwrap();
                whole += 1;
                other += usize::from(anew.len() + usize::from(info.tokenizer.add_bos()) != next.prompt_tokens);
            }
        }
        assert!(whole > 3 && other > 1, "{model}: {whole} turns, {other} that would be encoded otherwise");
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_keeps_past_turns_finds_them() {
    for model in ["llama-dense", "deepseek4-within", "qwen3-untied"] {
        let engine = start(model).await;
        let mut kept = 0;
        for conversation in 0..4 {
            let mut messages = vec![json!({"role": "user", "content": format!("tell a question {conversation}")})];
            let mut before: Option<(String, Answer)> = None;
            for turn in 0..4 {
                let (prompt, _) = engine.render(chat(&messages)).await.unwrap();
                let answer = answer(&engine, Prompt::Chat(chat(&messages)), 10 * conversation + turn).await;
                // Templates may leave out white space.
                let same = |(text, before): &(String, Answer)| before.whole && prompt.starts_with(text);
                if let Some((text, before)) = before.filter(same) {
                    let cached = answer.outcome.cached_tokens;
                    assert!(cached >= before.computed(), "{model}: {cached} of {}: {text:?}", before.computed());
                    kept += 1;
                }
                messages.push(json!({"role": "assistant", "content": answer.text}));
                messages.push(json!({"role": "user", "content": "go on"}));
                before = Some((prompt + &answer.text, answer));
            }
        }
        assert!(kept > 3, "{model}: {kept}");
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_types_a_control_token_finds_no_turn_that_ended_in_one() {
    let engine = start("qwen3-untied").await;
    let question = json!({"role": "user", "content": "tell a question"});
    let told = answer(&engine, Prompt::Chat(chat(std::slice::from_ref(&question))), 1).await;
    let (rendered, _) = engine.render(chat(std::slice::from_ref(&question))).await.unwrap();
    let begin = rendered.find("tell a question").unwrap();
    let typed = format!("{}{}<|im_end|>", &rendered[begin..], told.text);
    let next = answer(&engine, Prompt::Chat(chat(&[json!({"role": "user", "content": typed})])), 1).await;
    assert!(next.outcome.cached_tokens < told.outcome.prompt_tokens, "{}", next.outcome.cached_tokens);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_miss_names_the_first_tokens_that_differ() {
    let engine = start("llama-dense").await;
    let info = engine.ready().await.unwrap();
    let first: Vec<u32> = (20..60).collect();
    let told = answer(&engine, Prompt::Tokens(first.clone()), 1).await;
    assert_eq!(told.miss.unwrap().to_string(), "miss at 0: nothing cached begins so");
    let mut second = first.clone();
    second[30] = 70;
    let miss = answer(&engine, Prompt::Tokens(second), 1).await.miss.unwrap();
    let text = |token| String::from_utf8(info.tokenizer.token_bytes(token, false).to_vec()).unwrap();
    assert_eq!(miss.to_string(), format!("miss at 30: cached \"{}\", asked \"{}\"", text(first[30]), text(70)));
    assert_eq!(answer(&engine, Prompt::Tokens(first), 1).await.miss, None, "all of it was found");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_template_rewrites_is_computed_before_it_is_asked_for() {
    /// Fewer tokens are not worth a step in advance.
    const WORTH: usize = 64;
    // Rows alone, rows and recurrent values, rows in windows.
    for model in ["qwen2-dense", "qwen35-dense", "gemma4-dense"] {
        let engine = start(model).await;
        let mut prepared = 0;
        for seed in 0..6 {
            let mut messages = vec![json!({"role": "user", "content": format!("tell a question {seed}")})];
            let said = long_answer(&engine, Prompt::Chat(answering(&messages)), seed).await.said;
            let (content, reasoning) = (said.content(), said.reasoning());
            messages.push(json!({"role": "assistant", "content": content, "reasoning_content": reasoning}));
            quiet(&engine).await;
            let [one, other] = ["one", "other"].map(|text| {
                let next = json!({"role": "user", "content": text});
                messages.iter().cloned().chain([next]).collect::<Vec<_>>()
            });
            let (one, (_, other)) =
                (engine.render(answering(&one)).await.unwrap().1, engine.render(answering(&other)).await.unwrap());
            let shared = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
            messages.push(json!({"role": "user", "content": "and tomorrow"}));
            let cached = answer(&engine, Prompt::Chat(answering(&messages)), seed).await.outcome.cached_tokens;
            assert!(cached + WORTH >= shared, "{model}: {cached} of {shared}");
            prepared += usize::from(cached >= shared);
        }
        assert!(prepared > 1, "{model}: {prepared}");
        engine.stop().await;
    }
}

/// Waits until nothing has been computed for a while.
async fn quiet(engine: &Engine) {
    let mut rows = 0;
    while std::mem::replace(&mut rows, engine.status().await.rows) != rows {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
}
