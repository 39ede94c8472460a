//! What the next request of a conversation will begin with.

use bantam_text::Joined;
use serde_json::json;

use super::{ChatPrompt, ModelInfo, Refusal, prepare};
use crate::turns::{Digest, Recalled, digests};

/// Two messages that may come next. What their prompts have in common does not depend on the message.
pub(crate) const MESSAGES: [&str; 2] = ["x", "7"];

/// A conversation and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Sequel {
    pub(crate) chat: ChatPrompt,
    pub(crate) answer: String,
}

impl Sequel {
    /// The prompt of the conversation with the answer and the user's next message, and names of its beginnings.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub(crate) fn prompt(&self, info: &ModelInfo, message: &str) -> Result<(Joined, Vec<Digest>), Refusal> {
        let mut chat = self.chat.clone();
        chat.messages.push(json!({"role": "assistant", "content": self.answer}));
        chat.messages.push(json!({"role": "user", "content": message}));
        let joined = prepare::join(info, &prepare::segments(info, &chat)?)?;
        let (beginnings, _) = digests(&joined);
        Ok((joined, beginnings))
    }
}

/// The tokens of such a prompt.
///
/// # Errors
/// See [`Refusal`].
pub(crate) fn encode(info: &ModelInfo, prompt: &Joined, recalled: Option<Recalled>) -> Result<Vec<u32>, Refusal> {
    prepare::ids(info, prompt, recalled).map_err(|e| prepare::internal(&e))
}
