//! OpenAI's protocols: chat completions, completions, models.

pub(crate) mod chat;
mod chat_wire;
pub(crate) mod completions;
mod completions_wire;
mod messages;
pub(crate) mod models;
mod options;
mod unsupported;
mod usage;

pub(crate) use messages::conversation;

use std::time::{SystemTime, UNIX_EPOCH};

use bantam_runtime::engine::FinishReason;

use crate::answer::Frame;
use crate::error::ApiError;

/// What ends a successful stream.
const DONE: &str = "[DONE]";

/// What all objects of one answer have in common.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    id: String,
    created: u64,
    model: String,
}

impl Stamp {
    fn new(prefix: &str, model: &str) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Stamp { id: format!("{prefix}-{}", uuid::Uuid::new_v4().simple()), created, model: model.to_owned() }
    }
}

fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

/// A frame that carries this object.
fn frame(object: &impl serde::Serialize) -> Frame {
    Frame(serde_json::to_string(object).unwrap_or_else(|error| {
        ApiError::internal(format!("an event could not be written as JSON: {error}")).body().to_string()
    }))
}

/// The least log-probability that is told: JSON has no minus infinity.
const LEAST_LOGPROB: f32 = -9999.0;

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LEAST_LOGPROB }
}
