//! The objects of `/completion`: an answer, a piece of one, and what they are made of.

use std::time::Duration;

use bantam_runtime::engine::{FinishReason, Outcome, TokenLogprob};
use bantam_runtime::sampling::SamplingParams;
use serde_json::{Map, Value, json};

use crate::openai::finite;

/// How long the prompt and the answer took.
pub(super) fn timings(outcome: &Outcome) -> Value {
    let prompt = outcome.prompt_tokens.saturating_sub(outcome.cached_tokens);
    timed(outcome.cached_tokens, prompt, outcome.time_to_first_token, outcome.completion_tokens, outcome.decode_time)
}

/// The same from its parts.
pub(super) fn timed(cached: usize, prompt: usize, prompt_time: Duration, predicted: usize, time: Duration) -> Value {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let each = |time: Duration, n: usize| if n == 0 { 0.0 } else { millis(time) / n as f64 };
    let speed = |time: Duration, n: usize| if time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() };
    json!({
        "cache_n": cached,
        "prompt_n": prompt,
        "prompt_ms": millis(prompt_time),
        "prompt_per_token_ms": each(prompt_time, prompt),
        "prompt_per_second": speed(prompt_time, prompt),
        "predicted_n": predicted,
        "predicted_ms": millis(time),
        "predicted_per_token_ms": each(time, predicted),
        "predicted_per_second": speed(time, predicted),
    })
}

/// Why an answer ended: `stop_type` and `stopping_word`.
pub(super) fn stopped(outcome: &Outcome) -> (&'static str, &str) {
    match (&outcome.stop_text, outcome.reason) {
        (Some(word), _) => ("word", word),
        (None, FinishReason::Length) => ("limit", ""),
        (None, FinishReason::Stop | FinishReason::ToolCalls) => ("eos", ""),
    }
}

/// `completion_probabilities`: each token with the likeliest in its place.
pub(super) fn probabilities(tokens: &[TokenLogprob]) -> Value {
    let told = |token: &TokenLogprob| {
        let mut object = one(token);
        object["top_logprobs"] = token.top.iter().map(one).collect();
        object
    };
    tokens.iter().map(told).collect()
}

fn one(token: &TokenLogprob) -> Value {
    json!({
        "id": token.token,
        "token": String::from_utf8_lossy(&token.bytes),
        "bytes": token.bytes,
        "logprob": short(finite(token.logprob)),
    })
}

/// The number as short as an f32 is written.
pub(super) fn short(x: f32) -> Value {
    x.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// What held for an answer, under llama.cpp's names. What this server does not do has the value with which it is off.
pub(crate) fn settings(sampling: &SamplingParams, answer: &Settings<'_>) -> Value {
    let bias = |(token, bias): &(u32, f32)| match bias.is_finite() {
        true => json!({"token": token, "bias": bias}),
        false => json!({"token": token, "bias": false}),
    };
    json!({
        "n_ctx": answer.n_ctx,
        "model": answer.model,
        "n_predict": answer.n_predict,
        "max_tokens": answer.n_predict,
        "seed": sampling.seed.map_or(json!(u32::MAX), Value::from),
        "temperature": short(sampling.temperature),
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "top_k": sampling.top_k,
        "top_p": short(sampling.top_p),
        "min_p": short(sampling.min_p),
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "typical_p": 1.0,
        "repeat_last_n": i64::try_from(sampling.penalty_window).ok().filter(|n| *n < 1 << 40).unwrap_or(-1),
        "repeat_penalty": short(sampling.repetition_penalty),
        "presence_penalty": short(sampling.presence_penalty),
        "frequency_penalty": short(sampling.frequency_penalty),
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": 0,
        "mirostat": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "stop": answer.stop,
        "n_keep": 0,
        "n_discard": 0,
        "ignore_eos": answer.ignore_eos,
        "stream": answer.stream,
        "logit_bias": sampling.logit_bias.iter().map(bias).collect::<Vec<_>>(),
        "n_probs": answer.n_probs,
        "min_keep": 0,
        "grammar": answer.grammar,
        "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
        "timings_per_token": answer.timings_per_token,
        "post_sampling_probs": false,
        "lora": [],
    })
}

/// The part of the settings that is not about sampling.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings<'a> {
    pub(crate) n_ctx: usize,
    pub(crate) model: &'a str,
    /// Most tokens; -1: as many as the server allows.
    pub(crate) n_predict: i64,
    pub(crate) stop: &'a [String],
    pub(crate) ignore_eos: bool,
    pub(crate) stream: bool,
    pub(crate) n_probs: usize,
    pub(crate) grammar: &'a str,
    pub(crate) timings_per_token: bool,
}

/// The fields of an object that are asked for: one within another by both names with a slash between, under its own name.
/// All, where none are asked for; what is not there is passed over.
pub(super) fn chosen(object: Value, fields: &[String]) -> Value {
    if fields.is_empty() {
        return object;
    }
    let mut told = Map::new();
    for field in fields {
        let found = field.split('/').try_fold(&object, |value, key| value.get(key));
        if let (Some(value), Some(name)) = (found, field.split('/').next_back()) {
            told.insert(name.to_owned(), value.clone());
        }
    }
    Value::Object(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wanted_fields_are_told() {
        let object = json!({"content": "a", "timings": {"prompt_n": 3, "prompt_ms": 1.0}, "stop": true});
        let fields = ["content", "timings/prompt_n", "timings/none", "none", "content/x", ""].map(str::to_owned);
        assert_eq!(chosen(object.clone(), &fields), json!({"content": "a", "prompt_n": 3}));
        assert_eq!(chosen(object.clone(), &[]), object);
    }

    #[test]
    fn times_are_whole_numbers_apart() {
        let told = timed(4, 10, Duration::from_secs(2), 5, Duration::from_millis(500));
        assert_eq!((&told["prompt_per_token_ms"], &told["prompt_per_second"]), (&json!(200.0), &json!(5.0)));
        assert_eq!((&told["predicted_per_token_ms"], &told["predicted_per_second"]), (&json!(100.0), &json!(10.0)));
        let nothing = timed(4, 0, Duration::ZERO, 0, Duration::ZERO);
        assert_eq!((&nothing["prompt_per_second"], &nothing["predicted_per_token_ms"]), (&json!(0.0), &json!(0.0)));
    }
}
