//! What is said, to whom and how fast.
//!
//! ```json
//! {
//!     "prompt_ms": 0.2,
//!     "answers": [
//!         {"when": "", "say": "<think>\nHm.\n</think>\n\nHello."},
//!         {"when": "weather", "say": "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>", "ms": 20},
//!         {"when": "sunny", "say": "It is sunny.", "ms": 20}
//!     ]
//! }
//! ```
//!
//! Of the answers whose `when` the prompt has, the one is given whose `when` stands last in it; so a conversation goes on as
//! its last message says, and `""` is for everything else. Answers begin behind the prompt's last `opener`, or, in texts
//! that have none, behind their `when`. They are in the model's own format, control tokens as they are spelled.

use serde::Deserialize;

/// A script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// What the template ends prompts with.
    #[serde(default = "chatml")]
    pub(crate) opener: String,
    /// What ends the thinking: behind it the answer goes on, wherever in the thinking it came.
    #[serde(default = "think_end")]
    pub(crate) think_end: String,
    /// Milliseconds that a token of a prompt takes.
    #[serde(default)]
    pub(crate) prompt_ms: f64,
    /// What is said.
    pub(crate) answers: Vec<Answer>,
}

/// An answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// The text that calls for it.
    pub(crate) when: String,
    /// The text, without the token that ends it.
    pub(crate) say: String,
    /// Milliseconds that a token takes.
    #[serde(default)]
    pub(crate) ms: f64,
    /// Whether the model breaks down where it would end.
    #[serde(default)]
    pub(crate) fails: bool,
}

fn chatml() -> String {
    "<|im_start|>assistant\n".into()
}

fn think_end() -> String {
    "</think>".into()
}

impl Script {
    /// Which answer a sequence of this text gets, and where in the text it begins.
    pub(crate) fn choose(&self, text: &str) -> Option<(usize, usize)> {
        let opened = text.rfind(&self.opener).filter(|_| !self.opener.is_empty());
        let prompt = opened.map_or(text, |at| text.get(..at).unwrap_or(text));
        let place = |answer: &Answer| if answer.when.is_empty() { Some(0) } else { prompt.rfind(&answer.when) };
        let found = self.answers.iter().enumerate().filter_map(|(i, answer)| Some((place(answer)?, i)));
        let (at, answer) = found.max_by_key(|(at, i)| (*at, usize::MAX - i))?;
        let begin = opened.map(|at| at + self.opener.len());
        let behind = self.answers.get(answer).map_or(0, |answer| at + answer.when.len());
        Some((answer, begin.unwrap_or(behind)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> Script {
        let text =
            r#"{"answers": [{"when": "", "say": "a"}, {"when": "rain", "say": "b"}, {"when": "sun", "say": "c"}]}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_stands_last_decides() {
        let chosen = |text: &str| script().choose(text).unwrap().0;
        assert_eq!(chosen("hello<|im_start|>assistant\n"), 0);
        assert_eq!(chosen("rain, then sun<|im_start|>assistant\n"), 2);
        assert_eq!(chosen("sun, then rain<|im_start|>assistant\nsun"), 1, "what was said does not count");
    }

    #[test]
    fn answers_begin_behind_the_opener_or_what_called_for_them() {
        let begins = |text: &str| script().choose(text).map(|(_, at)| text[at..].to_owned()).unwrap();
        assert_eq!(begins("rain<|im_start|>assistant\nit"), "it");
        assert_eq!(begins("much rain falls"), " falls");
        assert_eq!(begins("anything"), "anything");
    }
}
