//! Why an edit failed.

use serde::Serialize;
use serde_json::Value;

use super::conversation::Event;

/// What became of the text that an edit was to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The model saw it.
    Shown,
    /// The client sent it, and the prompt does not have it.
    Lost,
    /// The model saw it with other white space.
    WhiteSpace,
    /// The model saw some of its lines.
    Partly,
    /// The model never saw it.
    Blind,
}

impl Verdict {
    pub(super) fn words(self) -> &'static str {
        match self {
            Verdict::Shown => {
                "the model was shown this text as it is: the file has changed since, or has it more than once"
            }
            Verdict::Lost => "content lost on the way: the client sent this text, and the prompt does not have it",
            Verdict::WhiteSpace => "the model was shown this text with other white space",
            Verdict::Partly => "the model was shown some of these lines, and made up the others",
            Verdict::Blind => "blind edit: the model was never shown this text",
        }
    }
}

/// What harnesses say of an edit whose text is not there.
const REFUSALS: [&str; 9] = [
    "not found",
    "no match",
    "not match",
    "could not find",
    "failed to find",
    "not unique",
    "must be unique",
    "0 occurrences",
    "multiple matches",
];

/// Characters at the beginning of an answer that tell whether it is a refusal.
const TELLING: usize = 400;

/// Whether a tool's answer says that an edit was not made.
pub(super) fn is_refusal(answer: &str) -> bool {
    let beginning: String = answer.chars().take(TELLING).collect::<String>().to_lowercase();
    REFUSALS.iter().any(|words| beginning.contains(words))
}

/// Judges an edit by what was shown before it. `prompts`: what the model saw; none: only what the client sent is known.
pub(super) fn judge<'a>(old: &str, before: impl Iterator<Item = &'a Event>, prompts: &[&str]) -> Verdict {
    let shown: Vec<String> = before.map(shown).collect();
    if shown.iter().any(|text| text.contains(old)) {
        let is_lost = !prompts.is_empty() && !prompts.iter().any(|prompt| prompt.contains(old));
        return if is_lost { Verdict::Lost } else { Verdict::Shown };
    }
    let squeezed = squeeze(old);
    if shown.iter().any(|text| squeeze(text).contains(&squeezed)) {
        return Verdict::WhiteSpace;
    }
    let mut lines = old.lines().map(str::trim).filter(|line| line.len() > 2);
    let is_known = |line: &str| shown.iter().any(|text| text.lines().any(|known| known.contains(line)));
    if lines.any(is_known) { Verdict::Partly } else { Verdict::Blind }
}

/// All texts of an event, those of a call's arguments too: what a model has written it knows.
fn shown(event: &Event) -> String {
    match event {
        Event::Text(text) | Event::Result { text, .. } => text.clone(),
        Event::Call { arguments, .. } => texts(arguments).join("\n"),
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

fn squeeze(text: &str) -> String {
    text.split_whitespace().collect()
}
