//! The tools of a request: which the model is told of, in which form, and whether it is to call one.

use std::collections::HashSet;

use bantam_runtime::engine::ToolChoice;
use serde_json::{Value, json};

use crate::fields::{Field, FieldError, Fields};

/// What a request says about tools.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tools {
    /// Declarations as the chat API has them; `None` if the model is told of none.
    pub(super) declared: Option<Vec<Value>>,
    /// Those that take any text, by name. The model calls them as functions of one string.
    pub(super) custom: HashSet<String>,
    pub(super) choice: ToolChoice,
}

impl Tools {
    /// `tools` and `tool_choice`.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FieldError> {
        let (mut declared, mut custom) = (Vec::new(), HashSet::new());
        for item in fields.items("tools")?.unwrap_or_default() {
            let tool = item.object()?;
            match tool.required("type")?.text()? {
                "function" => declared.push(function(&tool)?),
                "custom" => {
                    custom.insert(tool.required("name")?.text()?.to_owned());
                    declared.push(of_text(&tool)?);
                }
                kind => tracing::info!("{} is of type {kind:?}, which is not supported: passed over", item.path()),
            }
        }
        let choice =
            fields.get("tool_choice").map(|field| choice(&field, &mut declared)).transpose()?.unwrap_or_default();
        let told = !declared.is_empty() && choice != ToolChoice::None;
        Ok(Tools { declared: told.then_some(declared), custom, choice })
    }
}

/// With its name beside the type, or within `function` as the chat API has it.
fn function(tool: &Fields<'_>) -> Result<Value, FieldError> {
    let within = tool.object("function")?;
    let given = within.as_ref().unwrap_or(tool);
    let mut function = json!({"name": given.required("name")?.text()?});
    if let Some(description) = given.text("description")? {
        function["description"] = description.into();
    }
    if let Some(parameters) = given.object("parameters")? {
        function["parameters"] = Value::Object(parameters.map().clone());
    }
    if given.flag("strict")?.unwrap_or(false) {
        function["strict"] = true.into();
    }
    Ok(json!({"type": "function", "function": function}))
}

/// A tool that takes any text, or one of a grammar.
fn of_text(tool: &Fields<'_>) -> Result<Value, FieldError> {
    let mut description = tool.text("description")?.unwrap_or_default().to_owned();
    if let Some(format) = tool.object("format")?
        && let Some(definition) = format.text("definition")?
    {
        let syntax = format.text("syntax")?.unwrap_or_default();
        description = format!("{description}\n\n`input` must be of this grammar ({syntax}):\n{definition}");
    }
    let parameters = json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]});
    let name = tool.required("name")?.text()?;
    Ok(json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}))
}

fn choice(field: &Field<'_>, declared: &mut Vec<Value>) -> Result<ToolChoice, FieldError> {
    match field.value() {
        Value::String(word) => of_mode(word, field, declared),
        Value::Object(_) => named(&field.object()?, declared),
        _ => Err(field.expected("auto, none, required or an object")),
    }
}

/// A call of what was passed over cannot be required.
fn of_mode(word: &str, field: &Field<'_>, declared: &[Value]) -> Result<ToolChoice, FieldError> {
    match word {
        "none" => Ok(ToolChoice::None),
        "required" if !declared.is_empty() => Ok(ToolChoice::Required),
        "auto" | "required" => Ok(ToolChoice::Auto),
        other => Err(field.error(format!("must be one of auto, none, required, found \"{other}\""))),
    }
}

fn named(choice: &Fields<'_>, declared: &mut Vec<Value>) -> Result<ToolChoice, FieldError> {
    match choice.required("type")?.text()? {
        "function" | "custom" => {
            let within = choice.object("function")?;
            let name = within.as_ref().unwrap_or(choice).required("name")?;
            let wanted = name.text()?;
            if declared.iter().any(|tool| tool["function"]["name"] == wanted) {
                return Ok(ToolChoice::Named(wanted.to_owned()));
            }
            Err(name.error(format!("must be the name of one of `tools`, found \"{wanted}\"")))
        }
        "allowed_tools" => {
            let mut allowed = HashSet::new();
            for tool in choice.items("tools")?.unwrap_or_default() {
                allowed.extend(tool.object()?.text("name")?);
            }
            declared.retain(|tool| tool["function"]["name"].as_str().is_some_and(|name| allowed.contains(name)));
            match choice.get("mode") {
                Some(mode) => of_mode(mode.text()?, &mode, declared),
                None => Ok(ToolChoice::Auto),
            }
        }
        kind => {
            tracing::info!("a choice of type {kind:?} is not supported: passed over");
            Ok(ToolChoice::Auto)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<Tools, String> {
        Tools::read(&Field::body(body).object().unwrap()).map_err(|e| e.to_string())
    }

    fn names(tools: &Tools) -> Vec<&str> {
        tools.declared.iter().flatten().map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
    }

    /// As Codex sends them.
    fn mixed() -> Value {
        json!([
            {"type": "function", "name": "shell", "description": "runs", "strict": false, "parameters": {"type": "object"}},
            {"type": "custom", "name": "apply_patch", "description": "patches",
             "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}},
            {"type": "web_search"}, {"type": "local_shell"}, {"type": "namespace", "name": "mcp", "tools": []},
        ])
    }

    #[test]
    fn functions_and_tools_of_text_are_told_and_others_passed_over() {
        let tools = read(&json!({"tools": mixed()})).unwrap();
        assert_eq!(names(&tools), ["shell", "apply_patch"]);
        let declared = tools.declared.unwrap();
        let shell = json!({"name": "shell", "description": "runs", "parameters": {"type": "object"}});
        assert_eq!(declared[0], json!({"type": "function", "function": shell}));
        let description = declared[1]["function"]["description"].as_str().unwrap();
        assert_eq!(description, "patches\n\n`input` must be of this grammar (lark):\nstart: \"a\"");
        assert_eq!(tools.custom, HashSet::from(["apply_patch".to_owned()]));
    }

    #[test]
    fn choices_arrive() {
        let with = |choice: Value| read(&json!({"tools": mixed(), "tool_choice": choice}));
        let cases = [
            (json!(null), ToolChoice::Auto),
            (json!("required"), ToolChoice::Required),
            (json!("none"), ToolChoice::None),
            (json!({"type": "function", "name": "shell"}), ToolChoice::Named("shell".into())),
            (json!({"type": "custom", "name": "apply_patch"}), ToolChoice::Named("apply_patch".into())),
            (json!({"type": "web_search"}), ToolChoice::Auto),
        ];
        for (given, choice) in cases {
            assert_eq!(with(given.clone()).unwrap().choice, choice, "{given}");
        }
        assert_eq!(with(json!("none")).unwrap().declared, None);
        let only = json!([{"type": "function", "name": "shell"}, {"type": "web_search"}]);
        let allowed = with(json!({"type": "allowed_tools", "mode": "required", "tools": only})).unwrap();
        assert_eq!((names(&allowed), &allowed.choice), (vec!["shell"], &ToolChoice::Required));
    }

    #[test]
    fn faults_are_named_by_path() {
        let cases = [
            (json!({"tools": [{"name": "f"}]}), "`tools[0].type` is required"),
            (json!({"tools": [{"type": "function"}]}), "`tools[0].name` is required"),
            (json!({"tools": [{"type": "function", "function": {}}]}), "`tools[0].function.name` is required"),
            (json!({"tool_choice": "often"}), "`tool_choice` must be one of auto, none, required, found \"often\""),
            (json!({"tool_choice": 5}), "`tool_choice` must be auto, none, required or an object, found an integer"),
            (
                json!({"tool_choice": {"type": "function", "name": "g"}}),
                "`tool_choice.name` must be the name of one of `tools`, found \"g\"",
            ),
        ];
        for (body, problem) in cases {
            assert_eq!(read(&body).unwrap_err(), problem);
        }
    }
}
