//! Whether a template renders a turn, once it is past, as it was generated.

use super::capabilities::Probe;

/// Marks around what a model thinks, as templates know them.
const THINKING: [(&str, &str); 3] =
    [("<think>", "</think>"), ("<ifm|think>", "</ifm|think>"), ("<|channel>thought", "<channel|>")];
/// White space between the first mark, what is thought, the second mark and the answer, as models write it.
const SPACES: [[&str; 3]; 3] = [["\n", "\n", "\n\n"], ["\n", "\n", "\n"], ["", "", ""]];
/// What is thought.
const THOUGHT: &str = "Hm.";
/// The answer of a turn.
const ANSWER: &str = "Fine.";
/// White space behind it.
const TRAIL: &str = " \n";

/// What becomes of a generated turn in the prompts of later ones, if a request sets no variables. Where it is rendered in
/// another way than it was generated, what was computed for it serves no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastTurns {
    /// An answer without thinking stands in them as it was generated.
    pub answer: bool,
    /// Thinking and the answer behind it stand in them as they were generated; `None` if the template knows no thinking.
    pub thinking: Option<bool>,
    /// White space at the end of a turn is left out.
    pub trimmed: bool,
}

impl PastTurns {
    /// What the template does to past turns, in words; `None` if they stay as they were generated.
    pub fn drift(&self) -> Option<&'static str> {
        match (self.thinking, self.answer) {
            (Some(false), _) => Some("leaves out past thinking"),
            (None, false) => Some("writes past turns in another way than they are generated"),
            _ if self.trimmed => Some("leaves out white space at the end of past turns"),
            _ => None,
        }
    }
}

impl Probe<'_> {
    pub(super) fn past_turns(&self) -> PastTurns {
        let Some(before) = self.prompt(vec![self.message("user", "hi")]) else { return PastTurns::default() };
        let is_kept = |turn: &String| {
            // Some templates spare the last past turn.
            let turns =
                [("user", "hi"), ("assistant", turn), ("user", "go on"), ("assistant", ANSWER), ("user", "bye")];
            let prompt = self.prompt(turns.iter().map(|(role, text)| self.message(role, text)).collect());
            prompt.is_some_and(|prompt| prompt.starts_with(&format!("{before}{turn}")))
        };
        let answer = Some(ANSWER.to_owned()).filter(is_kept);
        let mut marks = THINKING.into_iter().filter(|(_, close)| self.template.mentions(close));
        let thinking = marks.next().map(|(open, close)| {
            let begun = before.trim_end().ends_with(open);
            let turns = SPACES.map(|[first, second, third]| {
                let opened = if begun { String::new() } else { format!("{open}{first}") };
                format!("{opened}{THOUGHT}{second}{close}{third}{ANSWER}")
            });
            turns.into_iter().find(is_kept)
        });
        let kept = thinking.as_ref().and_then(Option::as_ref).or(answer.as_ref());
        PastTurns {
            trimmed: kept.is_some_and(|turn| !is_kept(&format!("{turn}{TRAIL}"))),
            answer: answer.is_some(),
            thinking: thinking.map(|kept| kept.is_some()),
        }
    }
}
