//! Where pieces go.

use super::Piece;

/// Collects pieces, those of a kind that follow each other as one.
#[derive(Clone, Debug, Default)]
pub(super) struct Sink {
    pieces: Vec<Piece>,
    calls: usize,
}

impl Sink {
    /// What came since the last time.
    pub(super) fn take(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }

    /// Number of calls that have begun.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    pub(super) fn reasoning(&mut self, more: &str) {
        match self.pieces.last_mut() {
            _ if more.is_empty() => {}
            Some(Piece::Reasoning(text)) => text.push_str(more),
            _ => self.pieces.push(Piece::Reasoning(more.to_owned())),
        }
    }

    pub(super) fn content(&mut self, more: &str) {
        match self.pieces.last_mut() {
            _ if more.is_empty() => {}
            Some(Piece::Content(text)) => text.push_str(more),
            _ => self.pieces.push(Piece::Content(more.to_owned())),
        }
    }

    /// A call begins.
    pub(super) fn call(&mut self, name: &str) {
        self.pieces.push(Piece::Call { index: self.calls, name: name.to_owned() });
        self.calls += 1;
    }

    /// More of the arguments of the call that began last.
    pub(super) fn arguments(&mut self, more: &str) {
        let index = self.calls.saturating_sub(1);
        match self.pieces.last_mut() {
            _ if more.is_empty() => {}
            Some(Piece::Arguments { json, .. }) => json.push_str(more),
            _ => self.pieces.push(Piece::Arguments { index, json: more.to_owned() }),
        }
    }

    /// The call that began last is complete.
    pub(super) fn end(&mut self) {
        self.pieces.push(Piece::CallEnd { index: self.calls.saturating_sub(1) });
    }
}
