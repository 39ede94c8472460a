//! What `/completion` and `/infill` are asked, in llama.cpp's names.

use bantam_runtime::engine::{Prompt, Request};
use bantam_text::Tokenizer;
use serde_json::{Map, Value, json};

use super::biases;
use super::extent::Extent;
use crate::fields::{Field, FieldError, Fields};
use crate::openai::options;
use crate::openai::unsupported;

/// Most texts that may end an answer.
const MAX_STOPS: usize = 64;
/// Most answers to one prompt.
const MAX_ANSWERS: usize = 128;
/// Most alternatives told for a token.
const MAX_PROBS: usize = bantam_runtime::sampling::MOST_LOGPROBS;
/// Seeds by which llama.cpp's clients ask for any.
const ANY_SEED: [i64; 2] = [-1, u32::MAX as i64];

/// How and how long is answered, whatever to.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) model: Option<String>,
    pub(super) stream: bool,
    /// Whether a stream tells how far the prompt is.
    pub(super) progress: bool,
    /// Whether the tokens are told in an answer that is no stream.
    pub(super) return_tokens: bool,
    /// Alternatives told for each token; 0: no probabilities.
    pub(super) n_probs: usize,
    /// Whether each piece has the times so far.
    pub(super) timings_per_token: bool,
    /// Answers to each prompt.
    pub(super) n: usize,
    /// Only these fields of the answer are told, if there are any.
    pub(super) response_fields: Vec<String>,
    /// Where an answer ends, besides what the runtime knows.
    pub(super) extent: Extent,
    /// Everything else, with no prompt.
    pub(super) request: Request,
}

impl Options {
    /// Reads all but the prompt.
    pub(super) fn read(fields: &Fields<'_>, tokenizer: &Tokenizer) -> Result<Self, FieldError> {
        unsupported::refuse_in_llama(fields)?;
        fields.flag("cache_prompt")?;
        fields.integer("id_slot")?;
        let n_probs = fields.count("n_probs", 0, MAX_PROBS)?.unwrap_or(0);
        if n_probs > 0 && fields.flag("post_sampling_probs")?.unwrap_or(false) {
            let problem = "is not supported with `n_probs`: probabilities are told as they are before sampling";
            return Err(FieldError::new("post_sampling_probs", problem));
        }
        let stream = fields.flag("stream")?.unwrap_or(false);
        let return_tokens = fields.flag("return_tokens")?.unwrap_or(false);
        let extent = Extent::read(fields)?;
        let told = stream || return_tokens || n_probs > 0 || extent.counts();
        let stop = stops(fields)?;
        let logit_bias = biases::read(fields, tokenizer)?;
        let known = known(fields);
        let known = Field::body(&known).object()?;
        let mut request = options::request(&known, Prompt::Tokens(Vec::new()), told.then_some(n_probs))?;
        request.stop = stop;
        request.sampling.logit_bias = logit_bias.or(request.sampling.logit_bias);
        if extent.nothing() {
            request.max_tokens = Some(1);
        }
        Ok(Options {
            model: fields.text("model")?.map(str::to_owned),
            stream,
            progress: options::progress(fields)?,
            return_tokens,
            n_probs,
            timings_per_token: fields.flag("timings_per_token")?.unwrap_or(false),
            n: n(fields)?,
            response_fields: response_fields(fields)?,
            extent,
            request,
        })
    }
}

/// The fields that the other protocols know too, in their spelling. What has a wrong type stays as it is, to be refused.
fn known(fields: &Fields<'_>) -> Value {
    /// Read here, or long and no option.
    const OWN: [&str; 7] = ["prompt", "logit_bias", "stop", "input_prefix", "input_suffix", "input_extra", "messages"];
    let spelled = |(key, value): (&String, &Value)| {
        let value = match (key.as_str(), value.as_f64()) {
            // Greedy, in llama.cpp's words.
            ("temperature", Some(x)) if x < 0.0 => json!(0),
            ("top_k", Some(x)) if x < 0.0 => json!(0),
            ("top_p", Some(x)) if x > 1.0 => json!(1),
            ("min_p", Some(x)) if x < 0.0 => json!(0),
            // Both are "as many as fit".
            ("n_predict" | "max_tokens", Some(-2.0)) => json!(-1),
            // See `Extent`.
            ("n_predict" | "max_tokens", Some(0.0)) => json!(1),
            ("seed", Some(_)) if value.as_i64().is_some_and(|seed| ANY_SEED.contains(&seed)) => json!(-1),
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    let map: Map<_, _> = fields.map().iter().filter(|(key, _)| !OWN.contains(&key.as_str())).map(spelled).collect();
    Value::Object(map)
}

/// A text or an array of texts; empty ones end nothing.
fn stops(fields: &Fields<'_>) -> Result<Vec<String>, FieldError> {
    let Some(field) = fields.get("stop") else { return Ok(Vec::new()) };
    let items = match field.value() {
        Value::String(_) => vec![field.clone()],
        Value::Array(_) => field.items()?,
        _ => return Err(field.expected("a string or an array of strings")),
    };
    let texts = items.iter().map(Field::text).collect::<Result<Vec<_>, _>>()?;
    let texts: Vec<_> = texts.into_iter().filter(|text| !text.is_empty()).map(str::to_owned).collect();
    if texts.len() > MAX_STOPS {
        return Err(field.error(format!("may have {MAX_STOPS} texts at most, found {}", texts.len())));
    }
    Ok(texts)
}

fn n(fields: &Fields<'_>) -> Result<usize, FieldError> {
    let other = fields.count("n", 1, MAX_ANSWERS)?;
    Ok(fields.count("n_cmpl", 1, MAX_ANSWERS)?.or(other).unwrap_or(1))
}

fn response_fields(fields: &Fields<'_>) -> Result<Vec<String>, FieldError> {
    let items = fields.items("response_fields")?.unwrap_or_default();
    items.iter().map(|item| item.text().map(str::to_owned)).collect()
}
