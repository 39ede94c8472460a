//! The message that a request is answered with, whole or piece by piece.

use bantam_runtime::engine::{Call, FinishReason, Outcome, Part};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::answer::Whole;

/// What a message is known by.
#[derive(Clone, Debug)]
pub(super) struct Stamp {
    pub(super) id: String,
    pub(super) model: String,
}

impl Stamp {
    pub(super) fn new(model: &str) -> Self {
        Stamp { id: new_id("msg"), model: model.to_owned() }
    }

    /// A message with this content and what is known of its end.
    pub(super) fn message(&self, content: &[Value], end: End<'_>, usage: &Value) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": end.reason, "stop_sequence": end.sequence, "usage": usage,
        })
    }

    /// A finished answer, with what was thought as it was asked for.
    pub(super) fn whole(&self, whole: &Whole, display: Display) -> Value {
        let content: Vec<Value> = whole.turn.parts.iter().map(|part| block(part, display)).collect();
        self.message(&content, End::of(&whole.outcome), &usage(&whole.outcome))
    }
}

pub(super) fn new_id(kind: &str) -> String {
    format!("{kind}_{}", uuid::Uuid::new_v4().simple())
}

fn block(part: &Part, display: Display) -> Value {
    match part {
        Part::Content(text) => json!({"type": "text", "text": text}),
        Part::Reasoning(text) => {
            let mut signature = Signature::new(display);
            let shown = signature.add(text);
            json!({"type": "thinking", "thinking": shown, "signature": signature.told()})
        }
        Part::Call(call) => {
            json!({"type": "tool_use", "id": new_id("toolu"), "name": call.name, "input": input(call)})
        }
    }
}

/// The arguments as an object; of ones that the end of the answer cut off, or that are none, an empty one.
fn input(call: &Call) -> Value {
    let parsed = serde_json::from_str(&call.arguments).ok();
    parsed.filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// Why a message ended, as far as it has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End<'a> {
    pub(super) reason: Option<&'static str>,
    pub(super) sequence: Option<&'a str>,
}

impl<'a> End<'a> {
    pub(super) fn of(outcome: &'a Outcome) -> Self {
        match (outcome.reason, &outcome.stop_text) {
            (FinishReason::Stop, Some(text)) => End { reason: Some("stop_sequence"), sequence: Some(text) },
            (FinishReason::Stop, None) => End { reason: Some("end_turn"), sequence: None },
            (FinishReason::Length, _) => End { reason: Some("max_tokens"), sequence: None },
            (FinishReason::ToolCalls, _) => End { reason: Some("tool_use"), sequence: None },
        }
    }
}

/// What the request took. Tokens found in the cache are not among `input_tokens`; those that enter it cost nothing extra.
pub(super) fn usage(outcome: &Outcome) -> Value {
    let mut usage = usage_so_far(outcome.prompt_tokens, outcome.cached_tokens, outcome.completion_tokens);
    usage["output_tokens_details"] = json!({"thinking_tokens": outcome.reasoning_tokens});
    usage
}

pub(super) fn usage_so_far(prompt_tokens: usize, cached_tokens: usize, output_tokens: usize) -> Value {
    json!({
        "input_tokens": prompt_tokens.saturating_sub(cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": output_tokens,
    })
}

/// Whether clients are told what the model thought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Display {
    #[default]
    Shown,
    /// Only that it did. The text is in the signature, as the next turn needs it.
    Omitted,
}

/// What stands for a proof that the model thought this. Nobody checks it here, but clients insist that there is one.
#[derive(Clone, Debug)]
pub(super) enum Signature {
    /// A hash of the text.
    Hash(Sha256),
    /// The text itself, which is told nowhere else.
    Sealed(String),
}

/// What signatures begin with that hold a text.
const SEALED: &[u8] = b"bantam thought ";

impl Signature {
    pub(super) fn new(display: Display) -> Self {
        match display {
            Display::Shown => Signature::Hash(Sha256::new()),
            Display::Omitted => Signature::Sealed(String::new()),
        }
    }

    /// Adds what was thought, and says what of it clients are told.
    pub(super) fn add<'a>(&mut self, text: &'a str) -> &'a str {
        match self {
            Signature::Hash(hash) => {
                hash.update(text);
                text
            }
            Signature::Sealed(sealed) => {
                sealed.push_str(text);
                ""
            }
        }
    }

    pub(super) fn told(self) -> String {
        match self {
            Signature::Hash(hash) => BASE64_STANDARD.encode(hash.finalize()),
            Signature::Sealed(text) => BASE64_STANDARD.encode([SEALED, text.as_bytes()].concat()),
        }
    }

    /// The text that a signature holds; `None` of one that holds none, or is another server's.
    pub(super) fn opened(signature: &str) -> Option<String> {
        let bytes = BASE64_STANDARD.decode(signature).ok()?;
        String::from_utf8(bytes.strip_prefix(SEALED)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use bantam_runtime::engine::{Event, Turn};

    use super::*;
    use crate::answer::testing::finished;

    fn outcome(reason: FinishReason) -> Outcome {
        let Event::Finished(outcome) = finished(reason) else { panic!("an outcome") };
        outcome
    }

    fn call(arguments: &str, complete: bool) -> Part {
        Part::Call(Call { name: "ls".into(), arguments: arguments.into(), complete })
    }

    #[test]
    fn a_whole_message_has_a_block_for_each_part() {
        let parts = vec![Part::Reasoning("hm".into()), Part::Content("I look.".into()), call(r#"{"path":"."}"#, true)];
        let outcome = Outcome { reasoning_tokens: 1, ..outcome(FinishReason::ToolCalls) };
        let whole = Whole { turn: Turn { parts }, tokens: Vec::new(), outcome };
        let mut told = Stamp { id: "msg_1".into(), model: "local".into() }.whole(&whole, Display::Shown);
        let id = told["content"][2]["id"].take();
        assert!(id.as_str().unwrap().starts_with("toolu_"));
        let expected = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "local",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "uC4heOz00MWFncLhadf+2Gc/n27rnzWRvtXyU7d0JAg="},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": null, "name": "ls", "input": {"path": "."}},
            ],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {
                "input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": 2,
                "output_tokens_details": {"thinking_tokens": 1},
            },
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn inputs_are_objects_whatever_the_model_wrote() {
        for wrong in ["", "{\"path\": \"/tm", "[1]", "nonsense"] {
            assert_eq!(block(&call(wrong, false), Display::Shown)["input"], json!({}), "{wrong}");
        }
    }

    #[test]
    fn what_is_omitted_is_in_the_signature_and_comes_back() {
        let told = block(&Part::Reasoning("hm é".into()), Display::Omitted);
        assert_eq!((&told["type"], &told["thinking"]), (&json!("thinking"), &json!("")));
        assert_eq!(Signature::opened(told["signature"].as_str().unwrap()).as_deref(), Some("hm é"));
        let shown = block(&Part::Reasoning("hm".into()), Display::Shown);
        for other in [shown["signature"].as_str().unwrap(), "", "EqQBCgIYAhIM", "no base64!"] {
            assert_eq!(Signature::opened(other), None);
        }
    }

    #[test]
    fn every_end_has_its_reason() {
        let told = |outcome: &Outcome| {
            let end = End::of(outcome);
            (end.reason.unwrap(), end.sequence.map(str::to_owned))
        };
        assert_eq!(told(&outcome(FinishReason::Stop)), ("end_turn", None));
        assert_eq!(told(&outcome(FinishReason::Length)), ("max_tokens", None));
        assert_eq!(told(&outcome(FinishReason::ToolCalls)), ("tool_use", None));
        let stopped = Outcome { stop_text: Some("END".into()), ..outcome(FinishReason::Stop) };
        assert_eq!(told(&stopped), ("stop_sequence", Some("END".to_owned())));
    }
}
