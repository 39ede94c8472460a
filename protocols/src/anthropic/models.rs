//! The model as Anthropic's protocol lists it.

use bantam_runtime::engine::ModelInfo;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The list that has the model by each of its names.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a String>, model: &ModelInfo) -> Value {
    let names: Vec<&String> = names.collect();
    let data: Vec<Value> = names.iter().map(|name| one(name, model)).collect();
    json!({"data": data, "has_more": false, "first_id": names.first(), "last_id": names.last()})
}

/// The model by this name.
pub(crate) fn one(name: &str, model: &ModelInfo) -> Value {
    let created = i64::try_from(model.created).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    json!({
        "type": "model",
        "id": name,
        "display_name": model.title.as_deref().unwrap_or(name),
        "created_at": created.unwrap_or(Timestamp::UNIX_EPOCH).to_string(),
        "max_input_tokens": model.context,
        "max_tokens": model.context,
        "lifecycle": "active",
    })
}
