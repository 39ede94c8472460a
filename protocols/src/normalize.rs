//! What agents write into every request anew, made the same, so that it does not end the prefix that requests share.
//!
//! Each rule is a row of a table: where it looks, what it finds, and what stands there instead.

use std::sync::LazyLock;

use bantam_runtime::engine::ChatPrompt;
use regex::Regex;
use serde_json::Value;

/// Whose messages a rule looks into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// The instructions.
    System,
    /// All.
    Anywhere,
}

/// One thing that changes with every request.
#[derive(Debug)]
struct Rule {
    place: Where,
    /// A text without which the rule has nothing to do.
    marker: &'static str,
    /// None: it is no regular expression, which a test makes sure of.
    pattern: LazyLock<Option<Regex>>,
    instead: &'static str,
}

macro_rules! rule {
    ($place:expr, $marker:literal, $pattern:literal, $instead:literal) => {
        Rule { place: $place, marker: $marker, pattern: LazyLock::new(|| Regex::new($pattern).ok()), instead: $instead }
    };
}

/// Claude Code's first line: its version and a checksum of the request.
static BILLING: Rule =
    rule!(Where::System, "x-anthropic-billing-header:", r"(?m)^x-anthropic-billing-header:[^\n]*\n*", "");
/// Claude Code's count of what is left of the window, rewritten in past turns with every request.
static PINNED_TOTAL: Rule = rule!(
    Where::Anywhere,
    "<total_tokens>",
    r"<total_tokens>[0-9]+ tokens left</total_tokens>",
    "<total_tokens>1000000 tokens left</total_tokens>"
);
/// The same taken out, with the white space behind it: clients also move it about.
static STRIPPED_TOTAL: Rule =
    rule!(Where::Anywhere, "<total_tokens>", r"<total_tokens>[0-9]+ tokens left</total_tokens>\s*", "");
/// Another such count.
static USAGE: Rule = rule!(
    Where::Anywhere,
    "Token usage: ",
    r"Token usage: \d+/(\d+); \d+ remaining",
    "Token usage: 0/$1; $1 remaining"
);

/// What becomes of the count of tokens that are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TotalTokens {
    /// It is taken out, unless prompts are to be as clients send them.
    #[default]
    Default,
    /// It is always the same.
    Freeze,
    /// It is taken out.
    Strip,
}

/// The rules that a server goes by.
#[derive(Debug, Default)]
pub(crate) struct Normalizer {
    rules: Vec<&'static Rule>,
}

impl Normalizer {
    /// `all`: the whole table.
    pub(crate) fn new(all: bool, total: TotalTokens) -> Self {
        let total = match total {
            TotalTokens::Strip => Some(&STRIPPED_TOTAL),
            TotalTokens::Freeze => Some(&PINNED_TOTAL),
            TotalTokens::Default => all.then_some(&STRIPPED_TOTAL),
        };
        let always = [&BILLING, &USAGE].into_iter().filter(|_| all);
        Normalizer { rules: always.chain(total).collect() }
    }

    /// Makes the same what changes with every request.
    pub(crate) fn apply(&self, chat: &mut ChatPrompt) {
        for message in &mut chat.messages {
            let is_system = message["role"] == "system" || message["role"] == "developer";
            let Some(content) = message.get_mut("content") else { continue };
            match content {
                Value::String(text) => self.rewrite(text, is_system),
                Value::Array(parts) => {
                    for part in parts {
                        if let Some(Value::String(text)) = part.get_mut("text") {
                            self.rewrite(text, is_system);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn rewrite(&self, text: &mut String, is_system: bool) {
        for rule in &self.rules {
            let concerns = (is_system || rule.place == Where::Anywhere) && text.contains(rule.marker);
            if let Some(pattern) = rule.pattern.as_ref().filter(|_| concerns) {
                *text = pattern.replace_all(text, rule.instead).into_owned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chat(messages: Value) -> ChatPrompt {
        ChatPrompt { messages: serde_json::from_value(messages).unwrap(), ..ChatPrompt::default() }
    }

    /// The same conversation as Claude Code sends it twice.
    fn claude(checksum: &str, left: usize) -> ChatPrompt {
        let line =
            format!("x-anthropic-billing-header: cc_version=2.1.37.{checksum}; cc_entrypoint=cli; cch={checksum};");
        chat(json!([
            {"role": "system", "content": [{"type": "text", "text": line}, {"type": "text", "text": "You are an agent."}]},
            {"role": "user", "content": format!("<total_tokens>{left} tokens left</total_tokens>\n\nGo on.")},
            {"role": "tool", "content": format!("Token usage: {left}/200000; {} remaining", 200_000 - left)},
        ]))
    }

    #[test]
    fn two_requests_that_differ_only_in_what_always_differs_are_the_same() {
        for total in [TotalTokens::Default, TotalTokens::Freeze, TotalTokens::Strip] {
            let rules = Normalizer::new(true, total);
            let [one, other] = [("3a3", 9000), ("f01", 123)].map(|(checksum, left)| {
                let mut chat = claude(checksum, left);
                rules.apply(&mut chat);
                chat.messages
            });
            assert_eq!(one, other);
            assert_eq!(one[0]["content"][1]["text"], "You are an agent.");
            assert_eq!(one[1]["content"] == "Go on.", total != TotalTokens::Freeze);
        }
    }

    #[test]
    fn every_pattern_is_one() {
        assert!([&BILLING, &PINNED_TOTAL, &STRIPPED_TOTAL, &USAGE].iter().all(|rule| rule.pattern.is_some()));
    }

    #[test]
    fn nothing_else_is_touched() {
        let rules = Normalizer::new(true, TotalTokens::Default);
        let texts = ["x-anthropic-billing-header: in a user's words", "<total_tokens>many", "Token usage: high"];
        for text in texts {
            let mut told = chat(json!([{"role": "user", "content": text}, {"role": "user", "content": null}, {}]));
            let before = told.messages.clone();
            rules.apply(&mut told);
            assert_eq!(told.messages, before);
        }
    }

    #[test]
    fn the_table_can_be_left_out_and_the_counter_be_named_alone() {
        let (mut raw, before) = (claude("3a3", 7), claude("3a3", 7).messages);
        Normalizer::new(false, TotalTokens::Default).apply(&mut raw);
        assert_eq!(raw.messages, before);
        Normalizer::new(false, TotalTokens::Strip).apply(&mut raw);
        assert_eq!((&raw.messages[0], &raw.messages[1]["content"]), (&before[0], &json!("Go on.")));
    }
}
