//! `GET /slots`: what every slot does at this moment. `GET /queue`: who waits for one.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use bantam_runtime::engine::{Difference, Miss, QueuedStatus, SlotState, SlotStatus};
use serde::Serialize;

use crate::app::App;
use crate::error::ApiError;

#[derive(Serialize)]
pub(crate) struct Slot {
    id: usize,
    /// Number of the request it serves.
    id_task: Option<u64>,
    n_ctx: usize,
    is_processing: bool,
    /// See [`state_name`].
    state: &'static str,
    prompt_tokens: usize,
    /// Of these, computed or found in the cache so far.
    prompt_done: usize,
    cached_tokens: usize,
    /// Why there were no more of them.
    miss: Option<MissTold>,
    generated: usize,
    /// Number of the request that computes a prefix which this one waits for.
    waits_for: Option<u64>,
    /// Number of a request that had the cached tokens when this one began.
    shares_with: Option<u64>,
    /// Milliseconds since the request was given the slot.
    in_slot_ms: Option<u64>,
    /// Milliseconds since its first token.
    decoding_ms: Option<u64>,
}

/// `idle`; `waiting` for a prefix that another request computes, for memory or for its turn; `prefill`; `decode`; or
/// `blocked` while its client does not read.
pub(crate) fn state_name(state: SlotState) -> &'static str {
    match state {
        SlotState::Idle => "idle",
        SlotState::Waiting => "waiting",
        SlotState::Prefill => "prefill",
        SlotState::Decode => "decode",
        SlotState::Blocked => "blocked",
    }
}

/// Where the cached beginning of a prompt ended, and why.
#[derive(Serialize)]
struct MissTold {
    /// Index of the first token that had to be computed.
    at: usize,
    /// Tokens that cached prompts begin with alike.
    known: usize,
    /// The text of the token behind these in what is cached, and in the prompt.
    cached: Option<String>,
    asked: Option<String>,
    why: String,
}

impl MissTold {
    fn new(miss: &Miss) -> Self {
        let texts = miss.differs.clone().map(|Difference { cached, asked }| (cached, asked));
        let (cached, asked) = texts.unzip();
        MissTold { at: miss.at, known: miss.known, cached, asked, why: miss.why() }
    }
}

impl Slot {
    fn new(slot: &SlotStatus, context: usize) -> Self {
        Slot {
            id: slot.id,
            id_task: slot.request,
            n_ctx: context,
            is_processing: slot.state != SlotState::Idle,
            state: state_name(slot.state),
            prompt_tokens: slot.prompt_tokens,
            prompt_done: slot.prompt_done,
            cached_tokens: slot.cached_tokens,
            miss: slot.miss.as_ref().map(MissTold::new),
            generated: slot.generated,
            waits_for: slot.waits_for,
            shares_with: slot.shares_with,
            in_slot_ms: slot.request.map(|_| millis(slot.in_slot)),
            decoding_ms: slot.decoding.map(millis),
        }
    }
}

pub(crate) async fn slots(State(app): State<App>) -> Result<Json<Vec<Slot>>, ApiError> {
    let model = app.model()?;
    let status = app.engine.status().await;
    Ok(Json(status.slots.iter().map(|slot| Slot::new(slot, model.context)).collect()))
}

/// A request that waits for a slot, the next first.
#[derive(Serialize)]
pub(crate) struct Queued {
    id_task: u64,
    prompt_tokens: usize,
    waiting_ms: u64,
}

impl From<&QueuedStatus> for Queued {
    fn from(queued: &QueuedStatus) -> Self {
        Queued { id_task: queued.request, prompt_tokens: queued.prompt_tokens, waiting_ms: millis(queued.waiting) }
    }
}

pub(crate) async fn queue(State(app): State<App>) -> Result<Json<Vec<Queued>>, ApiError> {
    app.model()?;
    Ok(Json(app.engine.status().await.queue.iter().map(Queued::from).collect()))
}

/// Whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
