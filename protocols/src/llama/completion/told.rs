//! An answer in llama.cpp's words, whole and in pieces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bantam_runtime::engine::{Delta, ModelInfo, Outcome, Prompt, ResponseFormat};
use bantam_runtime::sampling::SamplingParams;
use serde_json::{Value, json};

use super::prompt;
use super::request::Options;
use super::wire::{Settings, chosen, probabilities, settings, stopped, timed, timings};
use crate::answer::{Frame, Frames, Progress, Whole};
use crate::error::ApiError;
use crate::llama::errors;

/// What all answers of a request have in common.
pub(super) struct Teller {
    model: String,
    settings: Value,
    prompts: Vec<String>,
    /// Answers to each prompt.
    n: usize,
    /// Whether something was left out of the prompt.
    cut: bool,
    return_tokens: bool,
    n_probs: usize,
    timings_per_token: bool,
    fields: Vec<String>,
}

impl Teller {
    pub(super) fn new(
        options: &Options,
        params: &SamplingParams,
        model: &ModelInfo,
        prompts: &[Prompt],
        cut: bool,
    ) -> Self {
        let request = &options.request;
        let n_predict = if options.extent.nothing() { Some(0) } else { request.max_tokens };
        let of_answer = Settings {
            n_ctx: model.context,
            model: &model.name,
            n_predict: n_predict.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1),
            stop: &request.stop,
            ignore_eos: request.ignore_eos,
            stream: options.stream,
            n_probs: options.n_probs,
            grammar: match &request.response_format {
                ResponseFormat::Gbnf(text) | ResponseFormat::Lark(text) => text,
                _ => "",
            },
            timings_per_token: options.timings_per_token,
        };
        Teller {
            model: model.name.clone(),
            settings: settings(params, &of_answer),
            prompts: prompts.iter().map(|prompt| prompt::text(prompt, model)).collect(),
            n: options.n,
            cut,
            return_tokens: options.return_tokens,
            n_probs: options.n_probs,
            timings_per_token: options.timings_per_token,
            fields: options.response_fields.clone(),
        }
    }

    /// An answer as one object.
    pub(super) fn whole(&self, index: usize, whole: &Whole) -> Value {
        let text = whole.turn.content();
        let ids: Vec<u32> = whole.tokens.iter().map(|token| token.token).collect();
        let mut told = self.end(index, &text, &whole.outcome);
        if self.return_tokens {
            told["tokens"] = json!(ids);
        }
        if self.n_probs > 0 {
            told["completion_probabilities"] = probabilities(&whole.tokens);
        }
        chosen(told, &self.fields)
    }

    /// The object that ends an answer, of this text.
    fn end(&self, index: usize, text: &str, outcome: &Outcome) -> Value {
        let (stop_type, stopping_word) = stopped(outcome);
        json!({
            "index": index,
            "content": text,
            "tokens": [],
            "id_slot": -1,
            "stop": true,
            "model": self.model,
            "tokens_predicted": outcome.completion_tokens,
            "tokens_evaluated": outcome.prompt_tokens,
            "generation_settings": self.settings,
            "prompt": self.prompts.get(index / self.n.max(1)).map_or("", String::as_str),
            "has_new_line": text.contains('\n'),
            "truncated": self.cut,
            "stop_type": stop_type,
            "stopping_word": stopping_word,
            "tokens_cached": outcome.cached_tokens,
            "timings": timings(outcome),
        })
    }
}

/// One of the answers, in pieces.
pub(super) struct Stream {
    teller: Arc<Teller>,
    index: usize,
    prompt_tokens: usize,
    cached_tokens: usize,
    predicted: usize,
    new_line: bool,
    submitted: Instant,
    first: Option<Instant>,
}

impl Stream {
    pub(super) fn new(teller: Arc<Teller>, index: usize, prompt_tokens: usize) -> Self {
        let submitted = Instant::now();
        let (cached_tokens, predicted, first, new_line) = (0, 0, None, false);
        Stream { teller, index, prompt_tokens, cached_tokens, predicted, new_line, submitted, first }
    }

    fn piece(&self, content: &str, tokens: &[u32]) -> Value {
        let mut piece = json!({
            "index": self.index,
            "content": content,
            "tokens": tokens,
            "stop": false,
            "id_slot": -1,
            "tokens_predicted": self.predicted,
            "tokens_evaluated": self.prompt_tokens,
        });
        if self.teller.timings_per_token {
            let first = self.first.unwrap_or(self.submitted);
            let decoding = self.first.map_or(Duration::ZERO, |first| first.elapsed());
            let computed = self.prompt_tokens.saturating_sub(self.cached_tokens);
            let prompt = first.saturating_duration_since(self.submitted);
            piece["timings"] = timed(self.cached_tokens, computed, prompt, self.predicted, decoding);
        }
        piece
    }
}

fn frame(object: &Value) -> Vec<Frame> {
    vec![Frame::Data(object.to_string())]
}

impl Frames for Stream {
    fn started(&mut self, cached_tokens: usize) -> Vec<Frame> {
        (self.cached_tokens, self.first) = (cached_tokens, Some(Instant::now()));
        Vec::new()
    }

    fn delta(&mut self, delta: Delta) -> Vec<Frame> {
        let text = delta.text();
        if text.is_empty() && delta.tokens.is_empty() {
            return Vec::new();
        }
        self.predicted += delta.tokens.len();
        self.new_line |= text.contains('\n');
        let ids: Vec<u32> = delta.tokens.iter().map(|token| token.token).collect();
        let mut piece = self.piece(&text, &ids);
        if self.teller.n_probs > 0 {
            piece["completion_probabilities"] = probabilities(&delta.tokens);
        }
        frame(&piece)
    }

    fn finished(&mut self, outcome: &Outcome) -> Vec<Frame> {
        let mut end = self.teller.end(self.index, "", outcome);
        end["has_new_line"] = json!(self.new_line);
        frame(&chosen(end, &self.teller.fields))
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Frame> {
        frame(&errors::body(error))
    }

    fn progress(&mut self, progress: Progress) -> Vec<Frame> {
        let mut piece = self.piece("", &[]);
        piece["prompt_progress"] = json!(progress);
        piece["prompt_progress"]["time_ms"] = json!(self.submitted.elapsed().as_millis() as u64);
        frame(&piece)
    }
}
