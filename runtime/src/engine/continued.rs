//! Conversations whose last message, the assistant's, is to be gone on with.
//!
//! Templates only render messages that have ended. So the last one gets a mark behind its text, and the prompt ends where the
//! mark is found in what was rendered.

use bantam_text::Segment;
use serde_json::Value;

use super::{ChatPrompt, Refusal, prepare::invalid};

/// Two characters that Unicode leaves to private use: no text has them, and no template treats them in any way.
const MARK: &str = "\u{10fffd}\u{f8fe}";

/// The conversation with a mark where it is to be gone on.
///
/// # Errors
/// If the last message is not the assistant's, or has no text or calls.
pub(super) fn marked(chat: &ChatPrompt) -> Result<ChatPrompt, Refusal> {
    let mut marked = chat.clone();
    let last = marked.messages.last_mut().and_then(Value::as_object_mut);
    let is_answer = |last: &&mut serde_json::Map<String, Value>| {
        last.get("role").is_some_and(|role| role == "assistant") && last.get("tool_calls").is_none()
    };
    let content = last.filter(is_answer).and_then(|last| last.get_mut("content"));
    match content {
        Some(Value::String(text)) if !text.is_empty() => text.push_str(MARK),
        _ => {
            let why = "must end with an assistant's message that has a text and no calls, to be gone on with";
            return Err(invalid("messages", why.into()));
        }
    }
    marked.kwargs.insert("add_generation_prompt".into(), false.into());
    Ok(marked)
}

/// The rendered prompt up to the mark.
///
/// # Errors
/// If the template did not render the mark.
pub(super) fn cut(mut segments: Vec<Segment>) -> Result<Vec<Segment>, Refusal> {
    let found = segments.iter().enumerate().rev().find_map(|(i, segment)| Some((i, segment.text.rfind(MARK)?)));
    let Some((last, at)) = found else {
        let why = "the chat template leaves out the text of the last message, so that it cannot be gone on with";
        return Err(Refusal::Template(why.into()));
    };
    segments.truncate(last + 1);
    if let Some(segment) = segments.last_mut() {
        segment.text.truncate(at);
    }
    Ok(segments)
}
