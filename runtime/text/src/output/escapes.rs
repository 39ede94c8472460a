//! Escapes in texts, character by character: how JSON writes them, how JSON and Python are read.

/// Adds a text as it stands between the quotes of a JSON string.
pub(super) fn escape(text: &str, out: &mut String) {
    text.chars().for_each(|c| escape_char(c, out));
}

/// Adds a character of a JSON string.
pub(super) fn escape_char(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        c => out.push(c),
    }
}

/// Adds a text as a JSON string.
pub(super) fn quote(text: &str, out: &mut String) {
    out.push('"');
    escape(text, out);
    out.push('"');
}

/// Reads what stands between the quotes of a string of JSON or Python.
#[derive(Clone, Debug, Default)]
pub(super) struct Unescape {
    /// The escape begun, without its backslash.
    escape: Option<String>,
    /// The first half of a character written as two.
    half: Option<u32>,
}

impl Unescape {
    /// Whether the next character belongs to an escape.
    pub(super) fn is_open(&self) -> bool {
        self.escape.is_some()
    }

    /// Takes the next character, adding what it makes complete.
    pub(super) fn push(&mut self, c: char, out: &mut String) {
        let Some(mut escape) = self.escape.take() else {
            match c {
                '\\' => self.escape = Some(String::new()),
                c => self.put(c, out),
            }
            return;
        };
        escape.push(c);
        let digits = match escape.as_bytes().first() {
            Some(b'u') => 4,
            Some(b'x') => 2,
            Some(b'U') => 8,
            _ => 0,
        };
        match escape.get(1..).unwrap_or_default() {
            read if read.chars().any(|c| !c.is_ascii_hexdigit()) => self.put_all(&escape, out),
            read if read.len() < digits => self.escape = Some(escape),
            read if digits > 0 => self.code(u32::from_str_radix(read, 16).unwrap_or_default(), out),
            _ => self.short(c, out),
        }
    }

    fn short(&mut self, c: char, out: &mut String) {
        match c {
            'n' => self.put('\n', out),
            'r' => self.put('\r', out),
            't' => self.put('\t', out),
            'b' => self.put('\u{8}', out),
            'f' => self.put('\u{c}', out),
            '0' => self.put('\0', out),
            '\\' | '\'' | '"' | '/' => self.put(c, out),
            // Python leaves out a line break behind a backslash, and keeps a backslash that escapes nothing.
            '\n' => {}
            c => self.put_all(c.encode_utf8(&mut [0; 4]), out),
        }
    }

    /// A backslash that began no escape, and what followed it.
    fn put_all(&mut self, text: &str, out: &mut String) {
        self.put('\\', out);
        text.chars().for_each(|c| self.put(c, out));
    }

    /// A character by its number; those beyond 16 bits are written as two halves.
    fn code(&mut self, code: u32, out: &mut String) {
        match (self.half.take(), code) {
            (Some(high), 0xDC00..=0xDFFF) => {
                let code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00);
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            (half, code) => {
                out.extend(half.map(|_| char::REPLACEMENT_CHARACTER));
                match code {
                    0xD800..=0xDBFF => self.half = Some(code),
                    code => out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)),
                }
            }
        }
    }

    fn put(&mut self, c: char, out: &mut String) {
        out.extend(self.half.take().map(|_| char::REPLACEMENT_CHARACTER));
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unescaped(text: &str) -> String {
        let (mut unescape, mut out) = (Unescape::default(), String::new());
        text.chars().for_each(|c| unescape.push(c, &mut out));
        out
    }

    #[test]
    fn escapes_of_json_and_python_are_read() {
        assert_eq!(
            unescaped(r"a\n\t\\\'\x41\u00e9\ud83d\ude00\U0001f600\d\q"),
            "a\n\t\\'A\u{e9}\u{1f600}\u{1f600}\\d\\q"
        );
        assert_eq!(unescaped(r"\ud83d!\ude00\uZ"), "\u{fffd}!\u{fffd}\\uZ");
    }

    #[test]
    fn what_is_quoted_is_json() {
        let text = "\"\\\n\r\t\u{1}\u{7f}é😀";
        let mut json = String::new();
        quote(text, &mut json);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
