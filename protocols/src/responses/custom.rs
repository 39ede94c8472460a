//! The text that a model gives as the one argument of a custom tool, taken out of the arguments as they come: clients see a
//! patch grow instead of waiting for its end.

/// The arguments of a call of a custom tool, `{"input": "…"}`, and what of the text in them has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    arguments: String,
    state: State,
    text: String,
}

/// How far the arguments have come.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// The text has not begun.
    #[default]
    Before,
    /// The text is read up to here, a place in the arguments.
    Within(usize),
    /// The text has ended.
    Behind,
    /// The arguments are of another shape: all of them are the text.
    Other,
}

/// What stands before the text, white space left out.
const OPENING: [&str; 4] = ["{", "\"input\"", ":", "\""];

impl Input {
    /// Arguments that have come to their end.
    pub(super) fn of(text: &str) -> Self {
        let mut input = Input::default();
        input.add(&serde_json::json!({ "input": text }).to_string());
        input
    }

    /// Takes more of the arguments, and tells what of the text that brings.
    pub(super) fn add(&mut self, more: &str) -> String {
        self.arguments.push_str(more);
        if matches!(self.state, State::Before) {
            self.state = begins(&self.arguments);
        }
        let State::Within(at) = self.state else { return String::new() };
        let (text, read, ended) = unquoted(self.arguments.get(at..).unwrap_or_default());
        self.state = if ended { State::Behind } else { State::Within(at + read) };
        self.text.push_str(&text);
        text
    }

    /// What of the text is not told before the end of the arguments: all, where they are of another shape.
    pub(super) fn rest(&mut self) -> String {
        match self.state {
            State::Within(_) | State::Behind => String::new(),
            State::Before | State::Other => {
                self.state = State::Behind;
                self.text.clone_from(&self.arguments);
                self.text.clone()
            }
        }
    }

    /// All of the text that has been told.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Where the text begins, if the arguments have come so far.
fn begins(arguments: &str) -> State {
    let mut rest = arguments;
    for token in OPENING {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        match rest.strip_prefix(token) {
            Some(behind) => rest = behind,
            None if token.starts_with(rest) => return State::Before,
            None => return State::Other,
        }
    }
    State::Within(arguments.len() - rest.len())
}

/// The text of the inside of a string of JSON, how many bytes of that it took, and whether the closing quote was among them. An
/// escape that has not come to its end is left.
fn unquoted(inside: &str) -> (String, usize, bool) {
    let (mut text, mut rest) = (String::new(), inside);
    loop {
        let plain = rest.find(['"', '\\']).unwrap_or(rest.len());
        let (before, behind) = rest.split_at(plain);
        text.push_str(before);
        rest = behind;
        if rest.starts_with('"') {
            return (text, inside.len() - rest.len() + 1, true);
        }
        let Some((escaped, behind)) = escape(rest) else { break };
        text.push(escaped);
        rest = behind;
    }
    (text, inside.len() - rest.len(), false)
}

/// The character of the escape that a text begins with, and what stands behind it; `None` if it is not all there.
fn escape(text: &str) -> Option<(char, &str)> {
    let mut characters = text.chars();
    characters.next()?;
    let told = match characters.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => return unicode(characters.as_str()),
        other => other,
    };
    Some((told, characters.as_str()))
}

/// The same of what stands behind `\u`. Characters beyond the first plane are written as two such escapes.
fn unicode(text: &str) -> Option<(char, &str)> {
    let (high, behind) = hexadecimal(text)?;
    if !(0xd800..0xdc00).contains(&high) {
        return Some((char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER), behind));
    }
    match behind.strip_prefix("\\u") {
        Some(second) => match hexadecimal(second)? {
            (low @ 0xdc00..0xe000, behind) => {
                let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), behind))
            }
            _ => Some((char::REPLACEMENT_CHARACTER, behind)),
        },
        None if "\\u".starts_with(behind) => None,
        None => Some((char::REPLACEMENT_CHARACTER, behind)),
    }
}

/// Four hexadecimal digits; what is none counts as a character that is unknown.
fn hexadecimal(text: &str) -> Option<(u32, &str)> {
    let end = text.char_indices().nth(3).map(|(at, last)| at + last.len_utf8())?;
    let (digits, behind) = text.split_at(end);
    Some((u32::from_str_radix(digits, 16).unwrap_or(0xfffd), behind))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is told of these arguments, cut into pieces of so many characters.
    fn told(arguments: &str, length: usize) -> Vec<String> {
        let mut input = Input::default();
        let characters: Vec<char> = arguments.chars().collect();
        let mut told: Vec<String> =
            characters.chunks(length).map(|piece| input.add(&piece.iter().collect::<String>())).collect();
        told.push(input.rest());
        assert_eq!(told.concat(), input.text());
        told
    }

    #[test]
    fn a_text_is_told_as_it_comes() {
        let pieces = told(r#"{"input": "ab\ncd"}"#, 1);
        assert_eq!(pieces.iter().filter(|piece| !piece.is_empty()).count(), 5);
        assert_eq!(pieces.concat(), "ab\ncd");
        assert_eq!(Input::of("a\"\u{1f414}").text(), "a\"\u{1f414}");
    }

    #[test]
    fn what_is_cut_off_is_told_as_far_as_it_came() {
        assert_eq!(told(r#"{"input": "cut \ud83d"#, 3).concat(), "cut ");
        assert_eq!(told(r#"{"inp"#, 2).concat(), r#"{"inp"#);
    }

    #[test]
    fn arguments_of_another_shape_are_the_text() {
        for other in ["plain", r#"{"patch": "x"}"#, "[1]", r#"{"input": 5}"#] {
            assert_eq!(told(other, 2).concat(), other);
        }
        assert_eq!(told(r#" {  "input" : "a", "more": 1}"#, 2).concat(), "a");
        assert_eq!(told(r#"{"input": "\ud800x\uzzzz\q"}"#, 4).concat(), "\u{fffd}x\u{fffd}q");
    }

    proptest! {
        #[test]
        fn any_text_comes_through_any_pieces(text in "\\PC{0,20}[\u{0}-\u{20}\"\\\\]{0,5}\\PC{0,9}", ascii: bool, length in 1_usize..9) {
            let mut json = serde_json::json!({"input": text}).to_string();
            if ascii {
                let escaped = |c: char| match c {
                    ' '..='~' => c.to_string(),
                    c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
                };
                json = json.chars().map(escaped).collect();
            }
            prop_assert_eq!(told(&json, length).concat(), text);
        }
    }
}
