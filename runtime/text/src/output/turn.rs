//! A model's turn as it comes together of its pieces.

use super::Piece;

/// What a model said, part by part in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Its parts.
    pub parts: Vec<Part>,
}

/// A part of a turn: as much of one kind as stands together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the model thought.
    Reasoning(String),
    /// What it answered.
    Content(String),
    /// A tool that it called.
    Call(Call),
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// The text of a JSON object, unless the model wrote something else.
    pub arguments: String,
    /// Whether the end of the turn did not cut it off.
    pub complete: bool,
}

impl Turn {
    /// Adds the next piece.
    pub fn add(&mut self, piece: Piece) {
        match (piece, self.parts.last_mut()) {
            (Piece::Reasoning(text), Some(Part::Reasoning(before)))
            | (Piece::Content(text), Some(Part::Content(before))) => before.push_str(&text),
            (Piece::Reasoning(text), _) => self.parts.push(Part::Reasoning(text)),
            (Piece::Content(text), _) => self.parts.push(Part::Content(text)),
            (Piece::Call { name, .. }, _) => {
                self.parts.push(Part::Call(Call { name, arguments: String::new(), complete: false }));
            }
            (Piece::Arguments { json, .. }, Some(Part::Call(call))) => call.arguments.push_str(&json),
            (Piece::CallEnd { .. }, Some(Part::Call(call))) => call.complete = true,
            // Nothing can follow a call that never began.
            (Piece::Arguments { .. } | Piece::CallEnd { .. }, _) => {}
        }
    }

    /// All of the answer's text.
    pub fn content(&self) -> String {
        let text = |part: &Part| match part {
            Part::Content(text) => Some(text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// All that the model thought.
    pub fn reasoning(&self) -> String {
        let text = |part: &Part| match part {
            Part::Reasoning(text) => Some(text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// The calls in their order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_kind_join_and_kinds_keep_their_order() {
        let mut turn = Turn::default();
        let call = |index| Piece::Call { index, name: "f".into() };
        let arguments = |json: &str| Piece::Arguments { index: 0, json: json.into() };
        let pieces = [
            Piece::Reasoning("a".into()),
            Piece::Reasoning("b".into()),
            Piece::Content("c".into()),
            call(0),
            arguments("{"),
            arguments("}"),
            Piece::CallEnd { index: 0 },
            Piece::Reasoning("d".into()),
            call(1),
        ];
        pieces.into_iter().for_each(|piece| turn.add(piece));
        assert_eq!((turn.reasoning().as_str(), turn.content().as_str()), ("abd", "c"));
        let calls: Vec<_> = turn.calls().map(|call| (call.arguments.as_str(), call.complete)).collect();
        assert_eq!(calls, [("{}", true), ("", false)]);
        assert_eq!(turn.parts.len(), 5);
    }
}
