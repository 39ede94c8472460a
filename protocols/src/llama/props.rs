//! `GET /props`: what this server is and what it does where a request leaves it open.

use axum::Json;
use axum::extract::State;
use bantam_runtime::engine::ModelInfo;
use bantam_runtime::sampling::{ParamError, SamplingOverrides};
use bantam_text::{Capabilities, EFFORT_LEVELS};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::llama::completion::{self, Settings, settings};

pub(crate) async fn props(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let model = app.model()?;
    let sampling = sampling(&model).map_err(|e| ApiError::internal(e.to_string()))?;
    Ok(Json(describe(&model, &sampling)))
}

/// Each option with its value and where that comes from.
fn sampling(model: &ModelInfo) -> Result<Map<String, Value>, ParamError> {
    let option =
        |(name, value, from): (&str, Value, &str)| (name.to_owned(), json!({ "value": short(value), "from": from }));
    Ok(model.sampling.origins()?.into_iter().map(option).collect())
}

/// The number as a person would write it: 0.8, not the nearest double of the nearest float.
fn short(value: Value) -> Value {
    match value.as_f64() {
        Some(x) if value.is_f64() => json!((x as f32).to_string().parse().unwrap_or(x)),
        _ => value,
    }
}

fn describe(model: &ModelInfo, sampling: &Map<String, Value>) -> Value {
    let values = sampling.iter().map(|(name, option)| (name.clone(), option["value"].clone()));
    let values: Map<_, _> = generation_settings(model).into_iter().chain(values).collect();
    json!({
        "build_info": concat!("bantam ", env!("CARGO_PKG_VERSION")),
        "model": {
            "name": model.name,
            "title": model.title,
            "architecture": model.architecture,
            "context_length": model.model_context,
            "vocab": model.vocab,
            "weight_bytes": model.weight_bytes,
            "config": model.config,
        },
        "model_path": model.path,
        "model_alias": model.name,
        "context": model.context,
        "max_tokens": model.max_tokens,
        "total_slots": model.parallel,
        "reasoning_effort": model.reasoning_effort,
        "reasoning_efforts": efforts(model),
        "thinking_budget": model.thinking_budget,
        "max_tool_call_tokens": model.rules.max_call_tokens,
        "sampling": sampling,
        "default_generation_settings": { "n_ctx": model.context, "n_predict": model.max_tokens, "params": values },
        "chat_template": model.template_source,
        "chat_template_error": model.template_error,
        "chat_template_caps": model.template_capabilities.as_ref().map(template),
        "bos_token": spelling(model, model.tokenizer.bos()),
        "eos_token": spelling(model, model.tokenizer.special_id("eos")),
        "end_tokens": model.end_tokens,
        "backend": model.backend,
        "threads": model.threads,
        "capabilities": capabilities(model),
        "modalities": { "vision": false, "audio": false, "image_output": false },
    })
}

/// The same under llama.cpp's names, with what else an answer of its protocol tells.
fn generation_settings(model: &ModelInfo) -> Map<String, Value> {
    let answer = Settings { n_ctx: model.context, model: &model.name, n_predict: -1, ..Settings::default() };
    let resolved = model.sampling.with(&SamplingOverrides::default());
    match resolved.map(|params| settings(&params, &answer)) {
        Ok(Value::Object(settings)) => settings,
        _ => Map::new(),
    }
}

/// The efforts that make a difference to this model, least first.
fn efforts(model: &ModelInfo) -> Vec<&str> {
    let Some(template) = &model.template_capabilities else { return Vec::new() };
    let off = template.thinking.as_ref().map(|_| EFFORT_LEVELS[0]);
    let levels = template.effort.iter().flat_map(|effort| effort.levels.iter().map(String::as_str));
    let mut told: Vec<_> = off.into_iter().chain(levels).collect();
    told.dedup();
    told
}

fn spelling(model: &ModelInfo, id: Option<u32>) -> Option<String> {
    model.tokenizer.id_to_token(id?)
}

/// What the template understands: roles and content, and the variables that clients set in `chat_template_kwargs`.
fn template(capabilities: &Capabilities) -> Value {
    json!({
        "system": capabilities.system,
        "late_system": capabilities.late_system,
        "developer": capabilities.developer,
        "tools": capabilities.tools,
        "tool_calls": capabilities.tool_calls,
        "parallel_tool_calls": capabilities.parallel_tool_calls,
        "past_turns": capabilities.past_turns.drift().unwrap_or("stay as they were generated"),
        "thinking": capabilities.thinking.as_ref().map(|switch| json!({
            "variable": switch.variable, "on": switch.on, "off": switch.off, "default_on": switch.default_on,
        })),
        "effort": capabilities.effort.as_ref().map(|effort| json!({
            "variable": effort.variable, "levels": effort.levels, "free_text": effort.free_text,
        })),
    })
}

fn capabilities(model: &ModelInfo) -> Value {
    json!({
        "completions": true,
        "infill": completion::can_infill(&model.tokenizer),
        "chat": model.template.is_some(),
        "responses": model.template.is_some(),
        "messages": model.template.is_some(),
        "logprobs": true,
        "tool_calls": model.template.is_some(),
        "structured_output": model.vocabulary.is_ok() && model.rules.responses,
        "reasoning": !model.output.reasoning().is_empty(),
        "stop_thinking": model.vocabulary.is_ok() && !model.output.reasoning().is_empty(),
        "prefill_progress": true,
        "vision": false,
        "embeddings": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(json!(0.8_f32), "0.8"), (json!(40), "40"), (json!(null), "null"), (json!(1.0_f32), "1.0")]
        {
            assert_eq!(short(value).to_string(), text);
        }
    }
}
