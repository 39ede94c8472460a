//! What the next request of a conversation will begin with.

use bantam_text::Joined;
use serde_json::{Value, json};

use super::{Call, ChatPrompt, ModelInfo, Refusal, Turn, prepare};
use crate::turns::{Digest, Recalled, digests};

/// Two messages that may come next. What their prompts have in common does not depend on the message.
pub(crate) const MESSAGES: [&str; 2] = ["x", "7"];

/// A conversation and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Sequel {
    pub(crate) chat: ChatPrompt,
    pub(crate) answer: Turn,
}

impl Sequel {
    /// The prompt of the conversation with the answer and the user's next message, and names of its beginnings.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub(crate) fn prompt(&self, info: &ModelInfo, message: &str) -> Result<(Joined, Vec<Digest>), Refusal> {
        let mut chat = self.chat.clone();
        chat.messages.push(self.turn());
        chat.messages.extend(self.next(message));
        let joined = prepare::join(info, &prepare::segments(info, &chat)?)?;
        let (beginnings, _) = digests(&joined);
        Ok((joined, beginnings))
    }

    /// The answer as clients send it back.
    fn turn(&self) -> Value {
        let (content, reasoning) = (self.answer.content(), self.answer.reasoning());
        let call = |(index, call): (usize, &Call)| {
            json!({
                "id": call_id(index), "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        };
        let calls: Vec<_> = self.answer.calls().enumerate().map(call).collect();
        let mut turn = json!({"role": "assistant", "content": content});
        if !reasoning.is_empty() {
            turn["reasoning_content"] = reasoning.into();
        }
        if !calls.is_empty() {
            turn["tool_calls"] = calls.into();
        }
        turn
    }

    /// What comes behind it: the results of its calls, or a message of the user.
    fn next(&self, message: &str) -> Vec<Value> {
        let results: Vec<_> = self.answer.calls().enumerate().map(|(index, call)| {
            json!({"role": "tool", "tool_call_id": call_id(index), "name": call.name, "content": message})
        }).collect();
        if results.is_empty() { vec![json!({"role": "user", "content": message})] } else { results }
    }
}

fn call_id(index: usize) -> String {
    format!("call_{index}")
}

/// The tokens of such a prompt.
///
/// # Errors
/// See [`Refusal`].
pub(crate) fn encode(info: &ModelInfo, prompt: &Joined, recalled: Option<Recalled>) -> Result<Vec<u32>, Refusal> {
    prepare::ids(info, prompt, recalled).map_err(|e| prepare::internal(&e))
}
