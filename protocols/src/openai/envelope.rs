//! What every OpenAI answer is wrapped in, whole and streamed, and what a stream ends with.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::usage::Usage;
use crate::answer::{Frame, Progress};
use crate::error::ApiError;

/// What ends a successful stream.
const DONE: &str = "[DONE]";

/// What all objects of one answer have in common.
#[derive(Clone, Debug)]
pub(super) struct Stamp {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
}

impl Stamp {
    pub(super) fn new(prefix: &str, model: &str) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Stamp { id: format!("{prefix}-{}", uuid::Uuid::new_v4().simple()), created, model: model.to_owned() }
    }

    /// An answer as one object.
    pub(super) fn whole<C>(&self, object: &'static str, choices: Vec<C>, usage: Usage) -> Envelope<'_, C> {
        self.envelope(object, choices, Some(Some(usage)))
    }

    fn envelope<C>(&self, object: &'static str, choices: Vec<C>, usage: Option<Option<Usage>>) -> Envelope<'_, C> {
        Envelope { id: &self.id, object, created: self.created, model: &self.model, choices, usage }
    }
}

/// An answer, or a piece of it.
#[derive(Serialize)]
pub(super) struct Envelope<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<C>,
    /// In a stream without usage absent; with it, null on all pieces but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

/// An answer in pieces.
#[derive(Clone)]
pub(super) struct Pieces {
    pub(super) stamp: Stamp,
    /// Name of the kind of object that a piece is.
    pub(super) object: &'static str,
    pub(super) include_usage: bool,
}

/// A piece that only tells how far the prompt is.
#[derive(Serialize)]
struct ProgressPiece<'a> {
    #[serde(flatten)]
    envelope: Envelope<'a, ()>,
    prompt_progress: Progress,
}

impl Pieces {
    pub(super) fn piece(&self, choice: impl Serialize) -> Frame {
        frame(&self.stamp.envelope(self.object, vec![choice], self.include_usage.then_some(None)))
    }

    /// How far the prompt is, as llama.cpp's server tells it, in a piece without choices.
    pub(super) fn progress(&self, prompt_progress: Progress) -> Frame {
        let envelope = self.stamp.envelope(self.object, Vec::new(), self.include_usage.then_some(None));
        frame(&ProgressPiece { envelope, prompt_progress })
    }

    /// What comes last: the usage, where it was asked for, and the end.
    pub(super) fn ending(&self, usage: Usage) -> Vec<Frame> {
        let mut frames = Vec::new();
        if self.include_usage {
            let usage = Some(Some(usage));
            frames.push(frame(&self.stamp.envelope(self.object, Vec::<()>::new(), usage)));
        }
        frames.push(Frame::Data(DONE.to_owned()));
        frames
    }
}

/// A frame that carries this object.
pub(super) fn frame(object: &impl Serialize) -> Frame {
    Frame::Data(serde_json::to_string(object).unwrap_or_else(|error| {
        ApiError::internal(format!("an event could not be written as JSON: {error}")).body().to_string()
    }))
}
