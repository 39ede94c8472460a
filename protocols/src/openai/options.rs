//! The options that chat and completions share: sampling, length, stops, urgency, streaming.

use std::time::Duration;

use bantam_runtime::engine::{Prompt, Request};
use bantam_runtime::sampling::SamplingOverrides;

use super::{form, samplers};
use crate::fields::{Field, FieldError, Fields};

/// Most texts that may end a generation.
const MAX_STOPS: usize = 16;
/// Most answers to one prompt.
const MAX_CHOICES: usize = 128;
/// Most alternatives reported for a token.
pub(crate) const MAX_LOGPROBS: usize = 20;

/// How an answer is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) stream: bool,
    /// Whether a stream ends with the usage.
    pub(super) include_usage: bool,
    /// Whether a stream tells how far the prompt is.
    pub(super) progress: bool,
}

impl Delivery {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FieldError> {
        let options = fields.object("stream_options")?;
        let include_usage = options.map(|o| o.flag("include_usage")).transpose()?.flatten();
        Ok(Delivery {
            stream: fields.flag("stream")?.unwrap_or(false),
            include_usage: include_usage.unwrap_or(false),
            progress: progress(fields)?,
        })
    }
}

/// Whether a stream is to tell how far the prompt is, in every protocol.
pub(crate) fn progress(fields: &Fields<'_>) -> Result<bool, FieldError> {
    // The second is llama.cpp's name for it.
    let wanted = fields.flag("prefill_progress")?.or(fields.flag("return_progress")?);
    Ok(wanted.unwrap_or(false))
}

/// How many answers are asked for.
pub(super) fn n(fields: &Fields<'_>) -> Result<usize, FieldError> {
    Ok(fields.count("n", 1, MAX_CHOICES)?.unwrap_or(1))
}

/// `n` requests for the same, of which each draws differently.
pub(crate) fn variants(request: &Request, n: usize) -> Vec<Request> {
    let variant = |index: usize| {
        let mut request = request.clone();
        request.sampling.seed = request.sampling.seed.map(|seed| seed.wrapping_add(index as u64));
        request
    };
    (0..n).map(variant).collect()
}

/// A request for this prompt with the options of the body.
pub(crate) fn request(fields: &Fields<'_>, prompt: Prompt, logprobs: Option<usize>) -> Result<Request, FieldError> {
    // The last is llama.cpp's name.
    let mut longest = None;
    for name in ["max_completion_tokens", "max_tokens", "n_predict"] {
        let given = limit(fields, name)?;
        longest = longest.or(given);
    }
    Ok(Request {
        sampling: sampling(fields)?,
        max_tokens: longest,
        stop: stops(fields)?,
        response_format: form::form(fields)?,
        ignore_eos: fields.flag("ignore_eos")?.unwrap_or(false),
        logprobs,
        priority: priority(fields)?,
        deadline: fields.count("deadline_ms", 1, usize::MAX)?.map(|ms| Duration::from_millis(ms as u64)),
        ..Request::new(prompt)
    })
}

/// Most tokens of an answer; -1 is how some clients write "as many as it takes".
fn limit(fields: &Fields<'_>, name: &str) -> Result<Option<usize>, FieldError> {
    let given = fields.get(name).filter(|limit| limit.value() != &serde_json::json!(-1));
    given.map(|limit| limit.count(1, usize::MAX)).transpose()
}

/// The values' ranges are the sampler's to know: it refuses what is out of them by the same names.
fn sampling(fields: &Fields<'_>) -> Result<SamplingOverrides, FieldError> {
    let mut sampling = SamplingOverrides {
        temperature: fields.number("temperature")?,
        top_k: top_k(fields)?,
        top_p: fields.number("top_p")?,
        min_p: fields.number("min_p")?,
        repetition_penalty: repetition_penalty(fields)?,
        presence_penalty: fields.number("presence_penalty")?,
        frequency_penalty: fields.number("frequency_penalty")?,
        penalty_window: penalty_window(fields)?,
        seed: seed(fields)?,
        logit_bias: logit_bias(fields)?,
        ..SamplingOverrides::default()
    };
    samplers::apply(fields, &mut sampling)?;
    Ok(sampling)
}

/// `repetition_penalty`, or llama.cpp's name for it.
fn repetition_penalty(fields: &Fields<'_>) -> Result<Option<f32>, FieldError> {
    let other = fields.number("repeat_penalty")?;
    if other.is_some_and(|penalty| penalty <= 0.0 || !penalty.is_finite()) {
        return Err(FieldError::new("repeat_penalty", "must be a finite number above 0 (1 is off)"));
    }
    Ok(fields.number("repetition_penalty")?.or(other))
}

/// `penalty_window`, or llama.cpp's name for it, where -1 is everything.
fn penalty_window(fields: &Fields<'_>) -> Result<Option<usize>, FieldError> {
    let other = match fields.integer("repeat_last_n")? {
        Some(-1) => Some(usize::MAX - 1),
        _ => fields.count("repeat_last_n", 0, usize::MAX)?,
    };
    Ok(fields.count("penalty_window", 0, usize::MAX)?.or(other))
}

/// 0 and, as some clients write it, -1 keep all tokens.
fn top_k(fields: &Fields<'_>) -> Result<Option<usize>, FieldError> {
    match fields.integer("top_k")? {
        Some(-1) => Ok(Some(0)),
        _ => fields.count("top_k", 0, usize::MAX),
    }
}

/// As with vLLM, the lower number goes first.
fn priority(fields: &Fields<'_>) -> Result<i32, FieldError> {
    let Some(field) = fields.get("priority") else { return Ok(0) };
    let n = field.integer()?;
    i32::try_from(n).map_err(|_| field.error(format!("must be between {} and {}, found {n}", i32::MIN, i32::MAX)))
}

/// Any integer is a seed, except -1, by which some clients mean "none".
fn seed(fields: &Fields<'_>) -> Result<Option<u64>, FieldError> {
    let seed = fields.get("seed").filter(|seed| seed.value() != &serde_json::json!(-1));
    seed.map(|seed| seed.bits()).transpose()
}

/// OpenAI's object of token ids, or llama.cpp's array of pairs.
fn logit_bias(fields: &Fields<'_>) -> Result<Option<Vec<(u32, f32)>>, FieldError> {
    let Some(field) = fields.get("logit_bias") else { return Ok(None) };
    let biases = match field.value() {
        serde_json::Value::Array(_) => {
            return field.items()?.iter().map(biased).collect::<Result<_, _>>().map(Some);
        }
        serde_json::Value::Object(_) => field.object()?,
        _ => return Err(field.expected("an object of token ids, or an array of pairs")),
    };
    let bias = |key: &String| {
        let token =
            key.parse::<u32>().ok().filter(|token| token.to_string() == *key).ok_or_else(|| {
                FieldError::new(biases.path_of(key), "must be named by a token id, a number in decimal")
            })?;
        Ok((token, biases.number(key)?.unwrap_or(0.0)))
    };
    biases.map().keys().map(bias).collect::<Result<_, _>>().map(Some)
}

/// `[TOKEN, BIAS]`; with `false` for a bias the token never comes.
fn biased(field: &Field<'_>) -> Result<(u32, f32), FieldError> {
    let items = field.items()?;
    let [token, bias] = items.as_slice() else { return Err(field.error("must be a token id and a bias")) };
    let bias = match bias.value() {
        serde_json::Value::Bool(false) => f32::NEG_INFINITY,
        _ => bias.number()?,
    };
    Ok((token.token()?, bias))
}

/// A text or an array of texts.
fn stops(fields: &Fields<'_>) -> Result<Vec<String>, FieldError> {
    let Some(field) = fields.get("stop") else { return Ok(Vec::new()) };
    let items = match field.value() {
        serde_json::Value::String(_) => vec![field],
        serde_json::Value::Array(_) => field.items()?,
        _ => return Err(field.expected("a string or an array of strings")),
    };
    if items.len() > MAX_STOPS {
        return Err(FieldError::new("stop", format!("may have {MAX_STOPS} texts at most, found {}", items.len())));
    }
    let text = |item: &Field<'_>| match item.text()? {
        "" => Err(item.error("must not be empty")),
        text => Ok(text.to_owned()),
    };
    items.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(body: &Value) -> Result<Request, String> {
        let fields = Field::body(body).object().unwrap();
        request(&fields, Prompt::Text(String::new()), None).map_err(|e| e.to_string())
    }

    #[test]
    fn every_option_arrives() {
        let body = json!({
            "temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1,
            "presence_penalty": 0.2, "frequency_penalty": -0.3, "penalty_window": 8, "seed": 42,
            "logit_bias": {"7": -100, "9": 1.5}, "max_tokens": 5, "stop": ["a", "b"], "ignore_eos": true,
            "priority": -3, "deadline_ms": 1500,
        });
        let request = read(&body).unwrap();
        let s = &request.sampling;
        assert_eq!((s.temperature, s.top_k, s.top_p, s.min_p), (Some(0.5), Some(3), Some(0.9), Some(0.1)));
        assert_eq!((s.repetition_penalty, s.presence_penalty, s.frequency_penalty), (Some(1.1), Some(0.2), Some(-0.3)));
        assert_eq!((s.penalty_window, s.seed), (Some(8), Some(42)));
        assert_eq!(s.logit_bias, Some(vec![(7, -100.0), (9, 1.5)]));
        assert_eq!((request.max_tokens, request.ignore_eos), (Some(5), true));
        assert_eq!(request.stop, ["a", "b"]);
        assert_eq!((request.priority, request.deadline), (-3, Some(Duration::from_millis(1500))));
    }

    #[test]
    fn what_is_absent_stays_open() {
        let request = read(&json!({"temperature": null, "stop": null})).unwrap();
        assert_eq!(request.sampling.temperature, None);
        assert_eq!((request.max_tokens, request.priority, request.deadline), (None, 0, None));
        assert!(request.stop.is_empty());
    }

    #[test]
    fn the_newer_name_of_the_limit_wins() {
        assert_eq!(read(&json!({"max_tokens": 5, "max_completion_tokens": 7})).unwrap().max_tokens, Some(7));
    }

    #[test]
    fn other_servers_spellings_of_none_are_understood() {
        let request = read(&json!({"top_k": -1, "seed": -1, "max_tokens": -1})).unwrap();
        assert_eq!((request.sampling.top_k, request.sampling.seed, request.max_tokens), (Some(0), None, None));
    }

    #[test]
    fn biases_come_in_two_forms() {
        let bias = |given: Value| read(&json!({ "logit_bias": given })).unwrap().sampling.logit_bias;
        assert_eq!(bias(json!([[7, -100], [9, 1.5]])), bias(json!({"7": -100, "9": 1.5})));
        assert_eq!(bias(json!([[7, false]])), Some(vec![(7, f32::NEG_INFINITY)]));
        assert_eq!((bias(json!([])), bias(json!({}))), (Some(Vec::new()), Some(Vec::new())));
    }

    #[test]
    fn any_number_of_64_bits_is_a_seed() {
        let seed = |given: Value| read(&json!({ "seed": given })).unwrap().sampling.seed;
        assert_eq!(seed(json!(u64::MAX)), Some(u64::MAX));
        assert_eq!(seed(json!(i64::MIN)), Some(1 << 63));
        assert_eq!(seed(json!(7.0)), Some(7));
    }

    #[test]
    fn wrong_values_are_named() {
        let cases = [
            (json!({"temperature": "hot"}), "`temperature` must be a number, found a string"),
            (json!({"top_k": -2}), "`top_k` must be at least 0, found -2"),
            (
                json!({"seed": 1e30}),
                "`seed` must be between -9223372036854775808 and 18446744073709551615, found 1e+30",
            ),
            (json!({"max_tokens": 0}), "`max_tokens` must be at least 1, found 0"),
            (json!({"priority": "high"}), "`priority` must be an integer, found a string"),
            (
                json!({"priority": 1_u64 << 31}),
                "`priority` must be between -2147483648 and 2147483647, found 2147483648",
            ),
            (json!({"deadline_ms": 0}), "`deadline_ms` must be at least 1, found 0"),
            (json!({"stop": 4}), "`stop` must be a string or an array of strings, found an integer"),
            (json!({"stop": ["a", ""]}), "`stop[1]` must not be empty"),
            (json!({"stop": vec!["a"; 17]}), "`stop` may have 16 texts at most, found 17"),
            (json!({"logit_bias": {"x": 1}}), "`logit_bias.x` must be named by a token id, a number in decimal"),
            (json!({"logit_bias": {"028": 1}}), "`logit_bias.028` must be named by a token id, a number in decimal"),
            (json!({"logit_bias": [["a", 1]]}), "`logit_bias[0][0]` must be an integer, found a string"),
            (json!({"logit_bias": [[1, true]]}), "`logit_bias[0][1]` must be a number, found a boolean"),
            (json!({"logit_bias": [[1]]}), "`logit_bias[0]` must be a token id and a bias"),
            (
                json!({"logit_bias": 1}),
                "`logit_bias` must be an object of token ids, or an array of pairs, found an integer",
            ),
            (json!({"logit_bias": {"1": true}}), "`logit_bias.1` must be a number, found a boolean"),
        ];
        for (body, problem) in cases {
            assert_eq!(read(&body).unwrap_err(), problem);
        }
    }

    #[test]
    fn usage_in_a_stream_is_asked_for() {
        let read = |body: Value| Delivery::read(&Field::body(&body).object().unwrap()).unwrap();
        assert_eq!(read(json!({})), Delivery { stream: false, include_usage: false, progress: false });
        let asked = read(json!({"stream": true, "stream_options": {"include_usage": true}, "prefill_progress": true}));
        assert_eq!(asked, Delivery { stream: true, include_usage: true, progress: true });
    }
}
