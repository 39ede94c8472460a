//! Stop strings in streamed text.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::TokenizerError;

/// Looks for stop strings in text that comes in pieces. Text that may still become part of a stop string is held back, so
/// that nothing of one is ever shown. How the text is cut into pieces makes no difference to what comes out: the stop
/// string that is complete first wins, and of several complete at once the longest.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    automaton: AhoCorasick,
    held: String,
    stopped: bool,
}

/// What became of a piece of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopOutput {
    /// Text that can be shown.
    pub text: String,
    /// The stop string that was met; [`text`](Self::text) ends before it, and nothing more will come.
    pub hit: Option<String>,
}

impl StopMatcher {
    /// Empty stop strings are ignored.
    ///
    /// # Errors
    /// More stop strings than can be indexed.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Result<Self, TokenizerError> {
        let stops: Vec<String> = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&stops)
            .map_err(|error| TokenizerError::Library { what: "indexing stop strings", reason: error.to_string() })?;
        Ok(Self { stops, automaton, held: String::new(), stopped: false })
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, piece: &str) -> StopOutput {
        if self.stopped {
            return StopOutput::default();
        }
        self.held.push_str(piece);
        if let Some(found) = self.automaton.find(&self.held) {
            self.stopped = true;
            let text = self.held.get(..found.start()).unwrap_or_default().to_owned();
            self.held.clear();
            return StopOutput { text, hit: self.stops.get(found.pattern().as_usize()).cloned() };
        }
        let rest = self.held.split_off(self.first_possible_stop());
        StopOutput { text: std::mem::replace(&mut self.held, rest), hit: None }
    }

    /// What is held back is no stop string, since something else than text follows it.
    pub fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Ends the text: what is held back is no stop string.
    pub fn finish(&mut self) -> String {
        self.stopped = true;
        std::mem::take(&mut self.held)
    }

    /// Where the longest end of the held text begins that a stop string begins with.
    fn first_possible_stop(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or_default();
        let earliest = self.held.len().saturating_sub(longest.saturating_sub(1));
        let begins_stop = |end: &str| self.stops.iter().any(|stop| stop.starts_with(end));
        let mut starts = self.held.char_indices().map(|(at, _)| at).filter(|at| *at >= earliest);
        starts.find(|at| self.held.get(*at..).is_some_and(begins_stop)).unwrap_or(self.held.len())
    }
}
