//! What a text may be, as a regular expression of all of it: the keywords of a schema of type "string".

use llguidance::regex_to_lark;
use serde_json::Value;

use crate::lark::{literal, regex};
use crate::schema::Fault;

/// A text in a terminal of Lark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) expression: String,
    pub(crate) may_be_empty: bool,
}

impl Content {
    /// Any text.
    pub(crate) fn any() -> Self {
        Self { expression: regex("(?s:.*)"), may_be_empty: true }
    }

    /// One of these texts.
    pub(crate) fn one_of(texts: &[&str]) -> Self {
        let written: Vec<String> = texts.iter().map(|text| literal(text)).collect();
        Self { expression: format!("({})", written.join(" | ")), may_be_empty: texts.contains(&"") }
    }

    /// What a schema of a text allows, its `enum` and `const` aside.
    pub(crate) fn of(path: &str, schema: &Value) -> Result<Self, Fault> {
        let mut parts = Vec::new();
        let (least, most) = (schema.get("minLength"), schema.get("maxLength"));
        if least.is_some() || most.is_some() {
            let least = least.and_then(Value::as_u64).unwrap_or(0);
            let most = most.and_then(Value::as_u64).map(|most| most.to_string()).unwrap_or_default();
            parts.push(regex(&format!("(?s:.{{{least},{most}}})")));
        }
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
            let whole = whole(pattern).map_err(|reason| Fault::new(path, "pattern", reason))?;
            parts.push(format!("/{}/", regex_to_lark(&whole, "dw")));
        }
        if let Some(format) = schema.get("format").and_then(Value::as_str) {
            let written =
                of_format(format).ok_or_else(|| Fault::new(path, "format", format!("{format:?} is unknown")))?;
            parts.push(regex(&written));
        }
        match parts.as_slice() {
            [] => Ok(Self::any()),
            // Whether a pattern takes the empty text is not looked into; a text that it could be is never needed empty.
            parts => Ok(Self { expression: format!("({})", parts.join(" & ")), may_be_empty: false }),
        }
    }
}

/// A pattern that is searched for, as one of the whole text.
fn whole(pattern: &str) -> Result<String, String> {
    let branches: Result<Vec<String>, String> = branches(pattern).into_iter().map(whole_branch).collect();
    Ok(branches?.join("|"))
}

fn whole_branch(branch: &str) -> Result<String, String> {
    let (begun, body) = branch.strip_prefix('^').map_or((false, branch), |body| (true, body));
    let escapes = |body: &str| body.bytes().rev().take_while(|&byte| byte == b'\\').count();
    let (ended, body) = match body.strip_suffix('$') {
        Some(body) if escapes(body) % 2 == 0 => (true, body),
        _ => (false, body),
    };
    if anchored_inside(body) {
        return Err("anchors are supported at the ends of a pattern or of its alternatives".into());
    }
    let free = |is_anchored| if is_anchored { "" } else { "(?s:.*)" };
    Ok(format!("{}(?:{body}){}", free(begun), free(ended)))
}

/// Calls `visit` for each character of a regular expression that is neither escaped nor in a class, with how many groups
/// are open.
fn walk(pattern: &str, mut visit: impl FnMut(usize, char, usize)) {
    let (mut escaped, mut class, mut depth) = (false, false, 0_usize);
    for (at, c) in pattern.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => class = false,
            _ if class => {}
            '[' => class = true,
            _ => {
                depth = if c == ')' { depth.saturating_sub(1) } else { depth };
                visit(at, c, depth);
                depth += usize::from(c == '(');
            }
        }
    }
}

/// The alternatives of a regular expression.
fn branches(pattern: &str) -> Vec<&str> {
    let mut bars = Vec::new();
    walk(pattern, |at, c, depth| bars.extend((c == '|' && depth == 0).then_some(at)));
    let starts = std::iter::once(0).chain(bars.iter().map(|bar| bar + 1));
    let ends = bars.iter().copied().chain([pattern.len()]);
    starts.zip(ends).filter_map(|(start, end)| pattern.get(start..end)).collect()
}

fn anchored_inside(body: &str) -> bool {
    let mut found = false;
    walk(body, |_, c, _| found |= matches!(c, '^' | '$'));
    found
}

/// The formats of JSON schema that texts are held to.
fn of_format(name: &str) -> Option<String> {
    const DATE: &str = "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|\
        02-(?:0[1-9]|1[0-9]|2[0-8]))";
    const TIME: &str =
        "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
    const LABEL: &str = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
    const ATOM: &str = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
    const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    const HEX: &str = "[0-9A-Fa-f]";
    const PATH: &str = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*";
    let host = format!("{LABEL}(?:\\.{LABEL}){{0,3}}");
    Some(match name {
        "date" => DATE.into(),
        "time" => TIME.into(),
        "date-time" => format!("(?:{DATE})T{TIME}"),
        "duration" => duration(),
        "email" => format!("{ATOM}(?:\\.{ATOM}){{0,2}}@{host}"),
        "hostname" => host,
        "ipv4" => format!("{OCTET}(?:\\.{OCTET}){{3}}"),
        "ipv6" => ipv6(),
        "uri" => format!("[A-Za-z][A-Za-z0-9+.-]*:(?://{host}(?::[0-9]{{1,4}})?/)?{PATH}(?:\\?{PATH})?(?:#{PATH})?"),
        "uuid" => format!("{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}"),
        _ => return None,
    })
}

fn duration() -> String {
    let run = |units: [char; 3]| {
        let [a, b, c] = units.map(|unit| format!("[0-9]{{1,9}}{unit}"));
        format!("(?:{a}(?:{b}(?:{c})?)?|{b}(?:{c})?|{c})")
    };
    let (date, time) = (run(['Y', 'M', 'D']), run(['H', 'M', 'S']));
    format!("P(?:[0-9]{{1,9}}W|{date}(?:T{time})?|T{time})")
}

/// Eight groups, or fewer with a gap before, between or behind them.
fn ipv6() -> String {
    const GROUP: &str = "[0-9A-Fa-f]{1,4}";
    let gaps = (1..=6).map(|before| format!("(?:{GROUP}:){{1,{before}}}(?::{GROUP}){{1,{}}}", 7 - before));
    let ends = [format!("(?:{GROUP}:){{7}}{GROUP}"), format!("(?:{GROUP}:){{1,7}}:"), format!(":(?::{GROUP}){{1,7}}")];
    ends.into_iter().chain(gaps).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_patterns_of_the_whole() {
        let any = "(?s:.*)";
        let cases = [
            ("^a$", "(?:a)".to_owned()),
            ("a", format!("{any}(?:a){any}")),
            ("^a|b$", format!("(?:a){any}|{any}(?:b)")),
            ("(a|b)", format!("{any}(?:(a|b)){any}")),
            (r"^[|$^]\$", format!(r"(?:[|$^]\$){any}")),
        ];
        for (pattern, expected) in cases {
            assert_eq!(whole(pattern), Ok(expected), "{pattern}");
        }
        assert!(whole("(^a)").is_err());
    }
}
