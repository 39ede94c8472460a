//! What form an answer must have, and which tools may be called: OpenAI's fields, and those that other servers have for
//! the same.

use std::collections::HashSet;

use bantam_runtime::engine::{ResponseFormat, ToolChoice};
use serde_json::{Value, json};

use crate::fields::{Field, FieldError, Fields};

/// How a field that asks for a form is read.
type Read = fn(&Field<'_>) -> Result<ResponseFormat, FieldError>;

/// Fields with one form each, and how they are read.
const FORMS: [(&str, Read); 10] = [
    ("response_format", response_format),
    ("structured_outputs", structured_outputs),
    ("json_schema", schema),
    ("guided_json", schema),
    ("regex", regex),
    ("guided_regex", regex),
    ("choice", choice),
    ("guided_choice", choice),
    ("grammar", grammar),
    ("guided_grammar", grammar),
];

/// The form that a request asks for.
///
/// # Errors
/// Two fields that each ask for one.
pub(super) fn form(fields: &Fields<'_>) -> Result<ResponseFormat, FieldError> {
    let mut told: Option<(&str, ResponseFormat)> = None;
    for (name, read) in FORMS {
        let Some(field) = fields.get(name) else { continue };
        let format = read(&field)?;
        match &told {
            _ if format == ResponseFormat::Text => {}
            Some((before, _)) => {
                return Err(field.error(format!("cannot be given beside `{before}`: an answer has one form")));
            }
            None => told = Some((name, format)),
        }
    }
    Ok(told.map(|(_, format)| format).unwrap_or_default())
}

fn response_format(field: &Field<'_>) -> Result<ResponseFormat, FieldError> {
    let format = field.object()?;
    let kind = format.required("type")?;
    match kind.text()? {
        "text" => Ok(ResponseFormat::Text),
        // llama.cpp's server takes a schema here too.
        "json_object" => format.get("schema").map_or(Ok(ResponseFormat::JsonObject), |given| schema(&given)),
        "json_schema" => {
            let described = format.required("json_schema")?.object()?;
            schema(&described.required("schema")?)
        }
        "regex" => regex(&format.required("pattern")?),
        "grammar" => grammar(&format.required("grammar")?),
        other => {
            Err(kind.error(format!("must be one of text, json_object, json_schema, regex, grammar, found \"{other}\"")))
        }
    }
}

/// vLLM's object with one of these fields.
fn structured_outputs(field: &Field<'_>) -> Result<ResponseFormat, FieldError> {
    let given = field.object()?;
    let named = [("json", schema as Read), ("regex", regex), ("choice", choice), ("grammar", grammar)];
    if given.flag("json_object")?.unwrap_or(false) {
        return Ok(ResponseFormat::JsonObject);
    }
    let found = named.iter().find_map(|(name, read)| given.get(name).map(|field| read(&field)));
    found.unwrap_or(Ok(ResponseFormat::Text))
}

/// An object, a boolean, or one of these as text.
fn schema(field: &Field<'_>) -> Result<ResponseFormat, FieldError> {
    match field.value() {
        Value::Object(_) | Value::Bool(_) => Ok(ResponseFormat::JsonSchema(field.value().clone())),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(ResponseFormat::JsonSchema(schema)),
            _ => Err(field.error("must be a JSON schema, found a text that is none")),
        },
        _ => Err(field.expected("a JSON schema: an object")),
    }
}

fn regex(field: &Field<'_>) -> Result<ResponseFormat, FieldError> {
    Ok(ResponseFormat::Regex(field.text()?.to_owned()))
}

/// One of these texts.
fn choice(field: &Field<'_>) -> Result<ResponseFormat, FieldError> {
    let texts = field.items()?;
    if texts.is_empty() {
        return Err(field.error("must not be empty"));
    }
    let texts = texts.iter().map(Field::text).collect::<Result<Vec<_>, _>>()?;
    let rules: Vec<String> = texts.iter().map(|text| json!(text).to_string()).collect();
    Ok(ResponseFormat::Lark(format!("start: {}", rules.join(" | "))))
}

/// llama.cpp's BNF defines rules by `::=`, Lark by `:`.
fn grammar(field: &Field<'_>) -> Result<ResponseFormat, FieldError> {
    let text = field.text()?.to_owned();
    // So llama.cpp's clients say that there is none.
    if text.is_empty() {
        return Ok(ResponseFormat::Text);
    }
    Ok(if text.contains("::=") { ResponseFormat::Gbnf(text) } else { ResponseFormat::Lark(text) })
}

/// `tool_choice`. A named tool must be one of these.
pub(super) fn tool_choice(fields: &Fields<'_>, tools: &[Value]) -> Result<ToolChoice, FieldError> {
    let Some(field) = fields.get("tool_choice") else { return Ok(ToolChoice::Auto) };
    match field.value() {
        Value::String(word) => of_mode(word, &field, fields, tools),
        _ => named(&field, fields, tools),
    }
}

/// Whether a request wants no tool to be called: the model is not told of any then.
pub(super) fn wants_none(fields: &Fields<'_>) -> bool {
    fields.get("tool_choice").is_some_and(|choice| choice.value() == "none" || choice.value()["type"] == "none")
}

fn of_mode(word: &str, field: &Field<'_>, fields: &Fields<'_>, tools: &[Value]) -> Result<ToolChoice, FieldError> {
    match word {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        // A call of what was passed over cannot be required.
        "required" | "any" if tools.is_empty() && fields.items("tools")?.is_some_and(|tools| !tools.is_empty()) => {
            Ok(ToolChoice::Auto)
        }
        "required" | "any" if tools.is_empty() => Err(field.error("needs `tools` with at least one function")),
        "required" | "any" => Ok(ToolChoice::Required),
        other => Err(field.error(format!("must be auto, none, required or a function, found \"{other}\""))),
    }
}

/// `{"type": "function", "function": {"name": …}}`, or `{"type": "allowed_tools", …}`.
fn named(field: &Field<'_>, fields: &Fields<'_>, tools: &[Value]) -> Result<ToolChoice, FieldError> {
    let choice = field.object()?;
    let kind = choice.required("type")?;
    let name = match kind.text()? {
        word @ ("auto" | "none" | "required" | "any") => return of_mode(word, field, fields, tools),
        "function" => match choice.object("function")? {
            Some(function) => function.required("name")?,
            None => choice.required("name")?,
        },
        "allowed_tools" => return allowed(&choice, tools),
        other => {
            tracing::info!("`tool_choice` is of type {other:?}, which is not supported: passed over");
            return Ok(ToolChoice::Auto);
        }
    };
    let asked = name.text()?;
    if tools.iter().any(|tool| tool["function"]["name"] == asked) {
        return Ok(ToolChoice::Named(asked.to_owned()));
    }
    Err(name.error(format!("must be the name of one of the `tools`, found \"{asked}\"")))
}

fn allowed(choice: &Fields<'_>, tools: &[Value]) -> Result<ToolChoice, FieldError> {
    let Some(mode) = within(choice)?.get("mode") else { return Ok(ToolChoice::Auto) };
    match mode.text()? {
        "required" if !tools.is_empty() => Ok(ToolChoice::Required),
        "auto" | "required" => Ok(ToolChoice::Auto),
        other => Err(mode.error(format!("must be auto or required, found \"{other}\""))),
    }
}

/// What says which tools are allowed: some clients send it flat.
fn within<'a>(choice: &Fields<'a>) -> Result<Fields<'a>, FieldError> {
    Ok(choice.object("allowed_tools")?.unwrap_or_else(|| choice.clone()))
}

/// The names of the tools that alone may be called, if `tool_choice` says which.
pub(super) fn allowed_names<'a>(fields: &Fields<'a>) -> Result<Option<HashSet<&'a str>>, FieldError> {
    let choice = fields.get("tool_choice").filter(|choice| choice.value().is_object());
    let Some(choice) = choice.map(|choice| choice.object()).transpose()? else { return Ok(None) };
    if choice.text("type")? != Some("allowed_tools") {
        return Ok(None);
    }
    let mut names = HashSet::new();
    for tool in within(&choice)?.items("tools")?.unwrap_or_default() {
        let tool = tool.object()?;
        names.extend(tool.object("function")?.unwrap_or(tool).text("name")?);
    }
    Ok(Some(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<ResponseFormat, String> {
        form(&Field::body(body).object().unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn forms_of_many_servers_mean_the_same() {
        let described = json!({"type": "object"});
        let schema = ResponseFormat::JsonSchema(described.clone());
        for body in [
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": described}}}),
            json!({"response_format": {"type": "json_object", "schema": described}}),
            json!({"json_schema": described}),
            json!({"guided_json": described.to_string()}),
            json!({"structured_outputs": {"json": described}}),
        ] {
            assert_eq!(read(&body).unwrap(), schema, "{body}");
        }
        assert_eq!(read(&json!({"response_format": {"type": "json_object"}})).unwrap(), ResponseFormat::JsonObject);
        for nothing in [json!({}), json!({"response_format": {"type": "text"}}), json!({"response_format": null})] {
            assert_eq!(read(&nothing).unwrap(), ResponseFormat::Text);
        }
        assert_eq!(read(&json!({"grammar": "root ::= \"a\""})).unwrap(), ResponseFormat::Gbnf("root ::= \"a\"".into()));
        assert_eq!(read(&json!({"grammar": "start: \"a\""})).unwrap(), ResponseFormat::Lark("start: \"a\"".into()));
        let choice = read(&json!({"guided_choice": ["a\"b", "c"]})).unwrap();
        assert_eq!(choice, ResponseFormat::Lark("start: \"a\\\"b\" | \"c\"".into()));
    }

    #[test]
    fn a_form_that_cannot_be_is_named() {
        for (body, problem) in [
            (json!({"response_format": {}}), "`response_format.type` is required"),
            (json!({"response_format": {"type": "json_schema"}}), "`response_format.json_schema` is required"),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
                "`response_format.json_schema.schema` is required",
            ),
            (json!({"guided_json": "x"}), "`guided_json` must be a JSON schema, found a text that is none"),
            (json!({"regex": "a", "grammar": "b"}), "`grammar` cannot be given beside `regex`: an answer has one form"),
            (json!({"guided_choice": []}), "`guided_choice` must not be empty"),
        ] {
            assert_eq!(read(&body).unwrap_err(), problem);
        }
    }

    #[test]
    fn a_choice_is_a_word_or_the_name_of_a_tool() {
        let tools = [json!({"type": "function", "function": {"name": "f"}})];
        let choice = |given: Value, tools: &[Value]| {
            let body = json!({ "tool_choice": given });
            tool_choice(&Field::body(&body).object().unwrap(), tools).map_err(|e| e.to_string())
        };
        assert_eq!(choice(json!(null), &[]).unwrap(), ToolChoice::Auto);
        assert_eq!(choice(json!("none"), &tools).unwrap(), ToolChoice::None);
        assert_eq!(choice(json!("required"), &tools).unwrap(), ToolChoice::Required);
        let named = |name: &str| json!({"type": "function", "function": {"name": name}});
        assert_eq!(choice(named("f"), &tools).unwrap(), ToolChoice::Named("f".into()));
        let problem = "`tool_choice.function.name` must be the name of one of the `tools`, found \"g\"";
        assert_eq!(choice(named("g"), &tools).unwrap_err(), problem);
        assert!(choice(json!("required"), &[]).unwrap_err().starts_with("`tool_choice` needs `tools`"));
        let foreign = json!({"tools": [{"type": "web_search"}], "tool_choice": "required"});
        assert_eq!(tool_choice(&Field::body(&foreign).object().unwrap(), &[]).unwrap(), ToolChoice::Auto);
        assert_eq!(choice(json!({"type": "custom", "custom": {"name": "x"}}), &tools).unwrap(), ToolChoice::Auto);
        for (word, meant) in [("none", ToolChoice::None), ("auto", ToolChoice::Auto), ("any", ToolChoice::Required)] {
            assert_eq!(choice(json!({"type": word}), &tools).unwrap(), meant);
        }
        let allowed = |mode: &str| json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": []}});
        assert_eq!(choice(allowed("required"), &tools).unwrap(), ToolChoice::Required);
        assert_eq!(choice(allowed("required"), &[]).unwrap(), ToolChoice::Auto);
        assert!(choice(allowed("often"), &tools).unwrap_err().starts_with("`tool_choice.allowed_tools.mode` must be"));
        assert!(choice(json!("maybe"), &tools).is_err() && choice(json!(3), &tools).is_err());
    }
}
