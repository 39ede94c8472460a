//! A JSON value that is passed on as it stands.

use super::escapes;
use super::scan::{Input, Match, Step, literal, settle};

/// Follows a value to its end.
#[derive(Clone, Debug, Default)]
pub(super) struct RawValue {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl RawValue {
    /// Adds what is here of it to `out`; tells whether it ended well, which it does not where `close` stands in it outside
    /// of its texts. What JSON does not allow in a text is escaped: models do write line breaks there.
    pub(super) fn read(&mut self, input: &mut Input<'_>, close: Option<&String>, out: &mut String) -> Step<bool> {
        loop {
            let c = input.peek()?;
            if self.in_text {
                input.advance(c.len_utf8());
                self.text(c, out);
                if !self.in_text && self.depth == 0 {
                    return Step::Continue(true);
                }
                continue;
            }
            let closed = close.map_or(Match::No, |close| literal(input.text(), close));
            if settle(closed)?.is_some() {
                return Step::Continue(false);
            }
            // A number or a word ends before what follows it.
            if self.depth == 0 && (c.is_ascii_whitespace() || matches!(c, ',' | '}' | ']')) {
                return Step::Continue(true);
            }
            input.advance(c.len_utf8());
            out.push(c);
            match c {
                '"' => self.in_text = true,
                '{' | '[' => self.depth += 1,
                '}' | ']' => self.depth -= 1,
                _ => continue,
            }
            if self.depth == 0 && !self.in_text {
                return Step::Continue(true);
            }
        }
    }

    fn text(&mut self, c: char, out: &mut String) {
        match c {
            c if c < ' ' => escapes::escape_char(c, out),
            c => out.push(c),
        }
        match c {
            _ if self.escaped => self.escaped = false,
            '\\' => self.escaped = true,
            '"' => self.in_text = false,
            _ => {}
        }
    }
}

/// Reads a JSON string up to its closing quote, which is taken; what stands before it comes as it is spelled.
pub(super) fn read_text(input: &mut Input<'_>, spelled: &mut String) -> Step<String> {
    loop {
        let c = input.peek()?;
        input.advance(c.len_utf8());
        if c == '"' && !ends_escaped(spelled) {
            break;
        }
        spelled.push(c);
    }
    let read = serde_json::from_str(&format!("\"{spelled}\"")).unwrap_or_else(|_| spelled.clone());
    Step::Continue(read)
}

fn ends_escaped(text: &str) -> bool {
    let backslashes = text.len() - text.trim_end_matches('\\').len();
    backslashes % 2 == 1
}
