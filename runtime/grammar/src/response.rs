//! The form of an answer that is no call, as a grammar.

use llguidance::api::GrammarWithLexer;
use serde_json::json;

use crate::lark::Lark;
use crate::{GrammarError, ResponseFormat, schema};

/// Longest regular expression or grammar that is looked at, in bytes.
const LONGEST_TEXT: usize = 256 << 10;
/// How deep its brackets may nest: what reads them goes down by calls.
const DEEPEST: usize = 200;

/// The field of the request that asks for this form.
pub(crate) fn field(format: &ResponseFormat) -> &'static str {
    match format {
        ResponseFormat::Text | ResponseFormat::JsonObject => "response_format",
        ResponseFormat::JsonSchema(_) => "response_format.json_schema.schema",
        ResponseFormat::Regex(_) => "regex",
        ResponseFormat::Lark(_) | ResponseFormat::Gbnf(_) => "grammar",
    }
}

/// The form as an expression of the grammar. None: any text.
pub(crate) fn expression(format: &ResponseFormat, lark: &mut Lark<'_>) -> Result<Option<String>, GrammarError> {
    let field = field(format);
    let part = match format {
        ResponseFormat::Text => return Ok(None),
        ResponseFormat::JsonObject => lark.json(json!({"type": "object"})),
        ResponseFormat::JsonSchema(schema) => {
            lark.json(schema::prepared(schema).map_err(|fault| fault.in_field(field))?)
        }
        ResponseFormat::Regex(expression) => {
            let whole = bounded(field, expression)?;
            lark.part(GrammarWithLexer::from_regex(without_anchors(whole)))
        }
        ResponseFormat::Lark(text) => lark.part(GrammarWithLexer::from_lark(bounded(field, text)?.to_owned())),
        ResponseFormat::Gbnf(text) => {
            let text =
                crate::gbnf::to_lark(bounded(field, text)?).map_err(|reason| GrammarError::new(field, reason))?;
            lark.part(GrammarWithLexer::from_lark(text))
        }
    };
    Ok(Some(part))
}

/// Why the compiler refused this form.
pub(crate) fn refused(format: &ResponseFormat, message: &str) -> GrammarError {
    let fault = match format {
        ResponseFormat::JsonSchema(schema) => schema::prepared(schema).ok().and_then(|schema| schema::refused(&schema)),
        _ => None,
    };
    let field = field(format);
    fault.map_or_else(|| GrammarError::new(field, message), |fault| fault.in_field(field))
}

fn bounded<'a>(field: &str, text: &'a str) -> Result<&'a str, GrammarError> {
    let problem = if text.trim().is_empty() {
        "is empty; leave it out for any text".to_owned()
    } else if text.len() > LONGEST_TEXT {
        format!("has {} bytes, expected at most {LONGEST_TEXT}", text.len())
    } else if depth(text) > DEEPEST {
        format!("nests its brackets deeper than {DEEPEST}")
    } else {
        return Ok(text);
    };
    Err(GrammarError::new(field, problem))
}

/// Never less than how deep the brackets of a text nest, whatever of them is quoted.
fn depth(text: &str) -> usize {
    let step = |(open, deepest): (usize, usize), byte: u8| match byte {
        b'(' | b'[' | b'{' => (open + 1, deepest.max(open + 1)),
        b')' | b']' | b'}' => (open.saturating_sub(1), deepest),
        _ => (open, deepest),
    };
    text.bytes().fold((0, 0), step).1
}

/// The expression has to match as a whole anyway, and anchors are no part of the compiler's syntax.
fn without_anchors(expression: &str) -> &str {
    let begun = expression.strip_prefix('^').unwrap_or(expression);
    match begun.strip_suffix('$') {
        Some(body) if body.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 0 => body,
        _ => begun,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_anchors_are_taken_off() {
        for (written, body) in [("^a$", "a"), ("a", "a"), (r"a\$", r"a\$"), (r"a\\$", r"a\\"), ("^", ""), ("$", "")] {
            assert_eq!(without_anchors(written), body);
        }
    }

    #[test]
    fn the_depth_of_brackets_is_never_underestimated() {
        assert_eq!([depth("()()"), depth("(([{"), depth(")))(")], [1, 4, 1]);
    }
}
