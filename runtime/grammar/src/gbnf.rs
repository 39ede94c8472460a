//! Grammars in llama.cpp's form of BNF, written over into Lark.
//!
//! There every character is a symbol of its own, so here too: a longer literal as one terminal would be preferred over
//! what begins like it.

use std::collections::BTreeMap;

use crate::lark::literal;

/// The same grammar as Lark, or what is wrong with it and where.
pub(crate) fn to_lark(text: &str) -> Result<String, String> {
    let mut reader = Reader { text, at: 0, names: BTreeMap::new(), undefined: BTreeMap::new() };
    let mut rules = String::new();
    loop {
        reader.skip(true);
        if reader.is_done() {
            break;
        }
        let name = reader.name()?;
        let rule = reader.rule_name(&name);
        reader.expect("::=", &format!("behind the name {name:?}"))?;
        reader.undefined.insert(name, false);
        reader.skip(true);
        let body = reader.alternatives(false)?;
        rules.push_str(&format!("{rule}: {body}\n"));
    }
    if let Some((name, _)) = reader.undefined.iter().find(|(_, undefined)| **undefined) {
        return Err(format!("rule {name:?} is used and not defined"));
    }
    match reader.names.get("root") {
        Some(root) => Ok(format!("start: {root}\n{rules}")),
        None => Err("there is no rule \"root\", with which a text begins".into()),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Names of rules by the names in the text, which may have characters that Lark's may not.
    names: BTreeMap<String, String>,
    undefined: BTreeMap<String, bool>,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn is_done(&self) -> bool {
        self.rest().is_empty()
    }

    fn error<T>(&self, problem: &str) -> Result<T, String> {
        let line = self.text.get(..self.at).unwrap_or_default().matches('\n').count() + 1;
        Err(format!("line {line}: {problem}"))
    }

    fn expect(&mut self, text: &str, place: &str) -> Result<(), String> {
        self.skip(false);
        if self.take(text) { Ok(()) } else { self.error(&format!("expected {text:?} {place}")) }
    }

    /// Passes white space and remarks; a new line too where a rule cannot end.
    fn skip(&mut self, lines: bool) {
        loop {
            match self.peek() {
                Some('#') => while self.peek().is_some_and(|c| c != '\n') && self.next().is_some() {},
                Some('\n' | '\r') if !lines => return,
                Some(c) if c.is_whitespace() => _ = self.next(),
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<String, String> {
        let is_part = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
        let name: String = self.rest().chars().take_while(is_part).collect();
        self.at += name.len();
        if name.is_empty() { self.error("expected the name of a rule") } else { Ok(name) }
    }

    fn rule_name(&mut self, name: &str) -> String {
        let number = self.names.len();
        self.undefined.entry(name.to_owned()).or_insert(true);
        self.names.entry(name.to_owned()).or_insert_with(|| format!("g{number}")).clone()
    }

    fn alternatives(&mut self, inside: bool) -> Result<String, String> {
        let mut written = vec![self.sequence(inside)?];
        while self.take("|") {
            self.skip(true);
            written.push(self.sequence(inside)?);
        }
        Ok(written.join(" | "))
    }

    fn sequence(&mut self, inside: bool) -> Result<String, String> {
        let mut items: Vec<String> = Vec::new();
        loop {
            self.skip(inside);
            let Some(item) = self.item()? else { break };
            let count = self.count()?;
            items.push(format!("{item}{count}"));
        }
        // A line may go on behind a bar that begins the next one.
        let end = self.at;
        self.skip(true);
        if self.peek() != Some('|') {
            self.at = end;
        }
        Ok(if items.is_empty() { literal("") } else { items.join(" ") })
    }

    fn item(&mut self) -> Result<Option<String>, String> {
        let item = match self.peek() {
            Some('"') => self.literal()?,
            Some('[') => self.class()?,
            Some('.') => self.next().map(|_| "/(?s:.)/".to_owned()).unwrap_or_default(),
            Some('(') => self.group()?,
            Some(c) if c.is_ascii_alphanumeric() || c == '_' || c == '-' => {
                let name = self.name()?;
                self.rule_name(&name)
            }
            Some(c) if !c.is_whitespace() && !"|)".contains(c) => return self.error(&format!("{c:?} is unexpected")),
            _ => return Ok(None),
        };
        Ok(Some(item))
    }

    fn group(&mut self) -> Result<String, String> {
        self.next();
        self.skip(true);
        let inner = self.alternatives(true)?;
        self.skip(true);
        if self.take(")") { Ok(format!("({inner})")) } else { self.error("expected \")\"") }
    }

    fn literal(&mut self) -> Result<String, String> {
        self.next();
        let mut characters = Vec::new();
        while !self.take("\"") {
            match self.character()? {
                Some(c) => characters.push(literal(&c.to_string())),
                None => return self.error("a text in quotes does not end"),
            }
        }
        Ok(if characters.is_empty() { literal("") } else { format!("({})", characters.join(" ")) })
    }

    fn class(&mut self) -> Result<String, String> {
        self.next();
        let mut class = String::from(if self.take("^") { "[^" } else { "[" });
        let empty = class.len();
        while !self.take("]") {
            if self.take("-") {
                class.push_str("\\-");
                continue;
            }
            let Some(first) = self.character()? else { return self.error("a class in brackets does not end") };
            class.push_str(&member(first));
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.next();
                let Some(last) = self.character()? else { return self.error("a range in brackets does not end") };
                class.push('-');
                class.push_str(&member(last));
            }
        }
        if class.len() == empty { self.error("a class in brackets is empty") } else { Ok(format!("/{class}]/")) }
    }

    /// A character as it stands, or as an escape means it.
    fn character(&mut self) -> Result<Option<char>, String> {
        match self.next() {
            Some('\\') => {}
            other => return Ok(other),
        }
        let digits = match self.next() {
            Some('n') => return Ok(Some('\n')),
            Some('r') => return Ok(Some('\r')),
            Some('t') => return Ok(Some('\t')),
            Some(c @ ('\\' | '"' | '[' | ']' | '-' | '^' | '/' | '.')) => return Ok(Some(c)),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => return self.error("an unknown escape behind \"\\\""),
        };
        let code = self.rest().get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => {
                self.at += digits;
                Ok(Some(c))
            }
            None => self.error(&format!("expected {digits} hexadecimal digits of a character")),
        }
    }

    fn count(&mut self) -> Result<String, String> {
        for sign in ["*", "+", "?"] {
            if self.take(sign) {
                return Ok(sign.to_owned());
            }
        }
        if !self.take("{") {
            return Ok(String::new());
        }
        let Some((inside, _)) = self.rest().split_once('}') else { return self.error("expected \"}\"") };
        let inside = inside.replace(' ', "");
        self.at += self.rest().find('}').map_or(0, |end| end + 1);
        let (least, most) = inside.split_once(',').unwrap_or((&inside, &inside));
        let is_number = |text: &str| text.parse::<u16>().is_ok();
        if is_number(least) && (most.is_empty() || is_number(most)) {
            Ok(format!("{{{least},{most}}}"))
        } else {
            self.error(&format!("expected numbers below 65536 in {{{inside}}}"))
        }
    }
}

/// A character in a class of a regular expression.
fn member(c: char) -> String {
    format!("\\x{{{:x}}}", u32::from(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_over_character_by_character() {
        let gbnf = "# a list\nroot ::= \"ab\" (item \",\"?)* [^a-z\\n]{2,3}\n  | .\nitem ::=\n [0-9]+";
        let lark = concat!(
            "start: g0\n",
            "g0: (\"a\" \"b\") (g1 (\",\")?)* /[^\\x{61}-\\x{7a}\\x{a}]/{2,3} | /(?s:.)/\n",
            "g1: /[\\x{30}-\\x{39}]/+\n",
        );
        assert_eq!(to_lark(gbnf).as_deref(), Ok(lark));
    }

    #[test]
    fn faults_are_told_with_their_line() {
        let cases = [
            ("root ::= item", "rule \"item\" is used and not defined"),
            ("item ::= \"a\"", "there is no rule \"root\", with which a text begins"),
            ("root := \"a\"", "line 1: expected \"::=\" behind the name \"root\""),
            ("root ::=\n\"a", "line 2: a text in quotes does not end"),
            ("root ::= [a", "line 1: a class in brackets does not end"),
            ("root ::= (\"a\"", "line 1: expected \")\""),
            ("root ::= \"a\"{x}", "line 1: expected numbers below 65536 in {x}"),
            ("root ::= \"\\q\"", "line 1: an unknown escape behind \"\\\""),
            ("root ::= !", "line 1: '!' is unexpected"),
            ("root ::= [\\u12]", "line 1: expected 4 hexadecimal digits of a character"),
        ];
        for (gbnf, fault) in cases {
            assert_eq!(to_lark(gbnf), Err(fault.to_owned()), "{gbnf}");
        }
    }
}
