//! Values of arguments that are written as plain text: what they may be by the tool's schema, and their JSON.

use serde_json::Value;
use serde_json::value::RawValue;

use super::escapes;

/// Longest number or word that is looked at, in bytes.
const LONGEST_SCALAR: usize = 64;
/// Most references from schema to schema that are followed.
const MOST_REFERENCES: usize = 16;
/// Words that stand for JSON's, as Python writes them and as JSON does.
const WORDS: [(&str, &str); 6] =
    [("true", "true"), ("false", "false"), ("null", "null"), ("True", "true"), ("False", "false"), ("None", "null")];

/// Types that a value may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const TEXT: Self = Self(1);
    const NUMBER: Self = Self(2);
    const BOOLEAN: Self = Self(4);
    const NULL: Self = Self(8);
    const ARRAY: Self = Self(16);
    const OBJECT: Self = Self(32);
    /// Whatever is JSON; a text in quotes is such too.
    pub(super) const JSON: Self = Self(64 | 2 | 4 | 8 | 16 | 32);
    const QUOTED: Self = Self(64);

    /// What a tool's schema says of its argument `key`; `None`: nothing.
    pub(super) fn declared(parameters: &Value, key: &str) -> Option<Self> {
        let types = Self::of(parameters.get("properties")?.get(key)?, parameters, MOST_REFERENCES);
        (types != Self::default()).then_some(types)
    }

    fn of(schema: &Value, root: &Value, depth: usize) -> Self {
        let Some(depth) = depth.checked_sub(1) else { return Self::default() };
        if let Some(named) = schema.get("type") {
            return Self::union(listed(named).iter().filter_map(Value::as_str).map(Self::named));
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
            return target.map_or(Self::default(), |target| Self::of(target, root, depth));
        }
        if let Some(values) = schema.get("enum").or_else(|| schema.get("const")) {
            return Self::union(listed(values).iter().map(Self::of_value));
        }
        let alternatives = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema.get(key)?.as_array());
        Self::union(alternatives.flatten().map(|schema| Self::of(schema, root, depth)))
    }

    fn union(types: impl Iterator<Item = Self>) -> Self {
        types.fold(Self::default(), |all, types| Self(all.0 | types.0))
    }

    /// A type by its name in schemas.
    pub(super) fn spelled(name: &str) -> Option<Self> {
        Some(Self::named(name)).filter(|types| *types != Self::default())
    }

    fn named(name: &str) -> Self {
        match name {
            "string" => Self::TEXT,
            "number" | "integer" => Self::NUMBER,
            "boolean" => Self::BOOLEAN,
            "null" => Self::NULL,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self::default(),
        }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::String(_) => Self::TEXT,
            Value::Number(_) => Self::NUMBER,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Null => Self::NULL,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// What JSON that begins with this may be.
    fn begun_by(c: char) -> Self {
        match c {
            '{' => Self::OBJECT,
            '[' => Self::ARRAY,
            '"' => Self::QUOTED,
            't' | 'f' | 'T' | 'F' => Self::BOOLEAN,
            'n' | 'N' => Self::NULL,
            '-' | '0'..='9' => Self::NUMBER,
            _ => Self::default(),
        }
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The types that text is looked at for. Where a text would do as well, it has to be of one of the others; where not,
    /// any JSON is better than none.
    fn sought(self) -> Self {
        if self.has(Self::TEXT) { Self(self.0 & !Self::TEXT.0) } else { Self::JSON }
    }

    /// Whether a value of which this is the beginning may be something else than a text.
    fn may_begin(self, text: &str) -> bool {
        let text = text.trim_ascii_start();
        let Some(c) = text.chars().next() else { return self.sought() != Self::default() };
        if !self.sought().has(Self::begun_by(c)) {
            return false;
        }
        let text = text.trim_ascii_end();
        match c {
            '{' | '[' | '"' => true,
            _ if text.len() > LONGEST_SCALAR => false,
            '-' | '0'..='9' => text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)),
            _ => WORDS.iter().any(|(word, _)| word.starts_with(text)),
        }
    }

    /// The JSON that a whole value is, if it is not a text.
    fn json(self, text: &str) -> Option<&str> {
        let text = text.trim_ascii();
        let sought = self.sought().has(Self::begun_by(text.chars().next()?));
        Some(json(text)?).filter(|_| sought)
    }
}

/// The elements of a list, or the one thing that is none.
fn listed(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

/// A text that is JSON, as it stands, or a word of Python in JSON's spelling.
pub(super) fn json(text: &str) -> Option<&str> {
    let word = WORDS.iter().find(|(word, _)| *word == text).map(|(_, json)| *json);
    word.or_else(|| serde_json::from_str::<&RawValue>(text).is_ok().then_some(text))
}

/// A value of which more and more comes. A text is written on as it comes; what may be something else is held back until
/// it is whole, or no longer may.
#[derive(Clone, Debug)]
pub(super) enum ValueWriter {
    /// Inside of a text's quotes.
    Text,
    /// What came so far.
    Held(Types, String),
}

impl ValueWriter {
    /// A value of one of these types.
    pub(super) fn new(types: Types, out: &mut String) -> Self {
        let mut value = Self::Held(types, String::new());
        value.push("", out);
        value
    }

    /// Takes more of it, adding JSON.
    pub(super) fn push(&mut self, more: &str, out: &mut String) {
        match self {
            Self::Text => escapes::escape(more, out),
            Self::Held(types, held) => {
                held.push_str(more);
                if !types.may_begin(held) {
                    out.push('"');
                    escapes::escape(held, out);
                    *self = Self::Text;
                }
            }
        }
    }

    /// Ends it, adding the rest of its JSON.
    pub(super) fn end(self, out: &mut String) {
        match self {
            Self::Text => out.push('"'),
            Self::Held(types, held) => match types.json(&held) {
                Some(json) => out.push_str(json),
                None => escapes::quote(&held, out),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(schema: &Value, text: &str) -> String {
        let types = Types::declared(&json!({"properties": {"a": schema}}), "a").unwrap_or(Types::JSON);
        let all_at_once = write(types, &[text]);
        let parts: Vec<String> = text.chars().map(String::from).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        assert_eq!(write(types, &parts), all_at_once);
        all_at_once
    }

    fn write(types: Types, parts: &[&str]) -> String {
        let mut out = String::new();
        let mut value = ValueWriter::new(types, &mut out);
        parts.iter().for_each(|part| value.push(part, &mut out));
        value.end(&mut out);
        out
    }

    #[test]
    fn a_text_stays_as_it_is() {
        for text in ["12", "true", "[1]", "", " a\n\"b\"", "null"] {
            assert_eq!(written(&json!({"type": "string"}), text), serde_json::to_string(text).unwrap());
        }
    }

    #[test]
    fn what_is_no_text_becomes_json_if_it_is_any() {
        for (schema, text, expected) in [
            (json!({"type": "integer"}), " 12\n", "12"),
            (json!({"type": "integer"}), "twelve", "\"twelve\""),
            (json!({"type": "integer"}), "1.2.3", "\"1.2.3\""),
            (json!({"type": "boolean"}), "True", "true"),
            (json!({"type": "object"}), "{\"a\": 1e400}", "{\"a\": 1e400}"),
            (json!({"type": "array"}), "[1, ", "\"[1, \""),
            (json!({"type": ["string", "null"]}), "None", "null"),
            (json!({"type": ["string", "null"]}), "None of it", "\"None of it\""),
            (json!({"type": ["string", "null"]}), "12", "\"12\""),
            (json!({"anyOf": [{"type": "string"}, {"type": "number"}]}), "1.50", "1.50"),
            (json!({"anyOf": [{"type": "string"}, {"type": "number"}]}), "[1]", "\"[1]\""),
            (json!({"enum": ["a", 1]}), "1", "1"),
            (json!({"enum": ["1", "2"]}), "1", "\"1\""),
            (json!({}), "nullable", "\"nullable\""),
            (json!({}), "\"a\"", "\"a\""),
            (json!({}), "", "\"\""),
        ] {
            assert_eq!(written(&schema, text), expected, "{schema} {text:?}");
        }
    }

    #[test]
    fn references_are_followed_but_not_for_ever() {
        let parameters = json!({
            "properties": {"a": {"$ref": "#/$defs/text"}, "b": {"$ref": "#/properties/b"}},
            "$defs": {"text": {"type": "string"}},
        });
        assert_eq!(Types::declared(&parameters, "a"), Some(Types::TEXT));
        assert_eq!(Types::declared(&parameters, "b"), None);
    }

    #[test]
    fn a_text_is_written_on_as_soon_as_it_can_be_nothing_else() {
        let mut out = String::new();
        let mut value = ValueWriter::new(Types::JSON, &mut out);
        value.push("1 s", &mut out);
        assert_eq!(out, "\"1 s");
    }
}
