//! The tools of a request: which the model is told of, and whether it is to call one.

use bantam_runtime::engine::ToolChoice;
use serde_json::{Value, json};

use crate::fields::{Field, FieldError, Fields};

/// What a request says about tools.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tools {
    /// Declarations as the chat API has them; `None` if the model is told of none.
    pub(super) declared: Option<Vec<Value>>,
    pub(super) choice: ToolChoice,
    /// Whether several may be called in one turn.
    pub(super) parallel: bool,
}

impl Tools {
    /// `tools` and `tool_choice`.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FieldError> {
        let (mut declared, mut foreign) = (Vec::new(), Vec::new());
        for item in fields.items("tools")?.unwrap_or_default() {
            match tool(&item)? {
                Tool::Declared(tool) => declared.push(tool),
                Tool::Foreign(name) => foreign.push(name),
            }
        }
        let given = fields.object("tool_choice")?;
        let parallel = match &given {
            Some(given) => !given.flag("disable_parallel_tool_use")?.unwrap_or(false),
            None => true,
        };
        let choice = match &given {
            Some(given) => choice(given, &declared, &foreign)?,
            None => ToolChoice::Auto,
        };
        let told = !declared.is_empty() && choice != ToolChoice::None;
        Ok(Tools { declared: told.then_some(declared), choice, parallel })
    }
}

enum Tool {
    Declared(Value),
    /// One whose kind is Anthropic's own, by its name: it has no schema, and some run on their servers.
    Foreign(String),
}

fn tool(item: &Field<'_>) -> Result<Tool, FieldError> {
    let tool = item.object()?;
    match tool.text("type")? {
        None | Some("custom") => {}
        Some(kind) => {
            tracing::info!("{} is of type {kind:?}, which is not supported: passed over", item.path());
            return Ok(Tool::Foreign(tool.text("name")?.unwrap_or_default().to_owned()));
        }
    }
    let mut function = json!({"name": tool.required("name")?.text()?});
    if let Some(description) = tool.text("description")? {
        function["description"] = description.into();
    }
    function["parameters"] = Value::Object(tool.required("input_schema")?.object()?.map().clone());
    if tool.flag("strict")?.unwrap_or(false) {
        function["strict"] = true.into();
    }
    Ok(Tool::Declared(json!({"type": "function", "function": function})))
}

/// A choice of what was passed over is left to the model.
fn choice(given: &Fields<'_>, declared: &[Value], foreign: &[String]) -> Result<ToolChoice, FieldError> {
    let kind = given.required("type")?;
    match kind.text()? {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "any" if !declared.is_empty() => Ok(ToolChoice::Required),
        "any" if !foreign.is_empty() => Ok(ToolChoice::Auto),
        "any" => Err(kind.error("needs `tools`")),
        "tool" => {
            let name = given.required("name")?;
            let wanted = name.text()?;
            if declared.iter().any(|tool| tool["function"]["name"] == wanted) {
                Ok(ToolChoice::Named(wanted.to_owned()))
            } else if foreign.iter().any(|name| name == wanted) {
                Ok(ToolChoice::Auto)
            } else {
                Err(name.error(format!("must be the name of one of `tools`, found \"{wanted}\"")))
            }
        }
        other => Err(kind.error(format!("must be one of auto, any, tool, none, found \"{other}\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<Tools, String> {
        Tools::read(&Field::body(body).object().unwrap()).map_err(|e| e.to_string())
    }

    fn ls() -> Value {
        json!({"name": "ls", "description": "lists", "input_schema": {"type": "object"}, "cache_control": {}})
    }

    #[test]
    fn declarations_are_those_of_the_chat_api() {
        let strict = json!({"type": "custom", "name": "f", "input_schema": {}, "strict": true});
        let declared = read(&json!({"tools": [ls(), strict]})).unwrap().declared.unwrap();
        let function = json!({"name": "ls", "description": "lists", "parameters": {"type": "object"}});
        assert_eq!(declared[0], json!({"type": "function", "function": function}));
        assert_eq!(declared[1]["function"], json!({"name": "f", "parameters": {}, "strict": true}));
    }

    #[test]
    fn tools_of_anthropics_own_are_passed_over() {
        let own = json!([
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}, {"type": "bash_20250124", "name": "bash"},
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, {"type": "browser_toolset_20260801"},
        ]);
        for choice in [json!(null), json!({"type": "any"}), json!({"type": "tool", "name": "web_search"})] {
            let expected = Tools { declared: None, choice: ToolChoice::Auto, parallel: true };
            assert_eq!(read(&json!({"tools": own, "tool_choice": choice})).unwrap(), expected);
        }
    }

    #[test]
    fn choices_arrive() {
        let with = |choice: Value| read(&json!({"tools": [ls()], "tool_choice": choice}));
        let cases = [
            (json!({"type": "auto"}), ToolChoice::Auto),
            (json!({"type": "any"}), ToolChoice::Required),
            (json!({"type": "tool", "name": "ls"}), ToolChoice::Named("ls".into())),
            (json!({"type": "none"}), ToolChoice::None),
        ];
        for (given, choice) in cases {
            let tools = with(given).unwrap();
            assert_eq!(tools.declared.is_some(), choice != ToolChoice::None);
            assert_eq!((tools.choice, tools.parallel), (choice, true));
        }
        assert!(!with(json!({"type": "auto", "disable_parallel_tool_use": true})).unwrap().parallel);
    }

    #[test]
    fn faults_are_named_by_path() {
        let cases = [
            (json!({"tools": [{"name": "f"}]}), "`tools[0].input_schema` is required"),
            (json!({"tools": [{"input_schema": {}}]}), "`tools[0].name` is required"),
            (json!({"tools": [{"type": 3}]}), "`tools[0].type` must be a string, found an integer"),
            (json!({"tool_choice": {"type": "any"}}), "`tool_choice.type` needs `tools`"),
            (
                json!({"tool_choice": {"type": "tool", "name": "g"}}),
                "`tool_choice.name` must be the name of one of `tools`, found \"g\"",
            ),
            (
                json!({"tool_choice": {"type": "often"}}),
                "`tool_choice.type` must be one of auto, any, tool, none, found \"often\"",
            ),
            (json!({"tool_choice": "auto"}), "`tool_choice` must be an object, found a string"),
        ];
        for (body, problem) in cases {
            assert_eq!(read(&body).unwrap_err(), problem);
        }
    }
}
