//! `GET /slots`: what every slot does at this moment.

use axum::Json;
use axum::extract::State;
use bantam_runtime::engine::{SlotState, SlotStatus};
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
    /// `idle`, `prefill`, `decode`, or `blocked` while its client does not read.
    state: &'static str,
    prompt_tokens: usize,
    /// Of these, computed or found in the cache so far.
    prompt_done: usize,
    cached_tokens: usize,
    generated: usize,
}

impl Slot {
    fn new(slot: &SlotStatus, context: usize) -> Self {
        Slot {
            id: slot.id,
            id_task: slot.request,
            n_ctx: context,
            is_processing: slot.state != SlotState::Idle,
            state: match slot.state {
                SlotState::Idle => "idle",
                SlotState::Waiting => "waiting",
                SlotState::Prefill => "prefill",
                SlotState::Decode => "decode",
                SlotState::Blocked => "blocked",
            },
            prompt_tokens: slot.prompt_tokens,
            prompt_done: slot.prompt_done,
            cached_tokens: slot.cached_tokens,
            generated: slot.generated,
        }
    }
}

pub(crate) async fn slots(State(app): State<App>) -> Result<Json<Vec<Slot>>, ApiError> {
    let model = app.model()?;
    let status = app.engine.status().await;
    Ok(Json(status.slots.iter().map(|slot| Slot::new(slot, model.context)).collect()))
}
