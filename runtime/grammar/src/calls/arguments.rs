//! The tools that may be called, with their arguments as an object of named values.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::schema::{Fault, escaped, pointed_at, prepared};
use crate::{GrammarError, Rules, Tool, ToolChoice};

/// A tool as grammars call it.
pub(crate) struct Callable {
    pub(crate) name: String,
    /// The field of the request that has its parameters.
    pub(crate) field: String,
    /// A prepared schema of an object.
    pub(crate) parameters: Value,
}

/// A parameter of a tool.
pub(crate) struct Parameter<'a> {
    pub(crate) name: &'a str,
    /// Where its schema stands in the parameters.
    pub(crate) path: String,
    pub(crate) schema: &'a Value,
    pub(crate) is_required: bool,
}

impl Callable {
    /// The tools that a request lets be called.
    pub(crate) fn all(rules: &Rules) -> Result<Vec<Self>, GrammarError> {
        if rules.choice == ToolChoice::None {
            return Ok(Vec::new());
        }
        let mut names = HashSet::new();
        let numbered = rules.tools.iter().enumerate().filter(|(_, tool)| may_be_called(&rules.choice, tool));
        numbered.map(|(number, tool)| Self::new(number, tool, names.insert(tool.name.as_str()))).collect()
    }

    fn new(number: usize, tool: &Tool, is_first: bool) -> Result<Self, GrammarError> {
        let name = tool.name.clone();
        if name.is_empty() || !is_first {
            let reason = if is_first { "is empty" } else { "is the name of another tool too" };
            return Err(GrammarError::new(&format!("tools[{number}].function.name"), reason).of_tool(&name));
        }
        let field = format!("tools[{number}].function.parameters");
        match object(&tool.parameters) {
            Ok(parameters) => Ok(Self { name, field, parameters }),
            Err(fault) => Err(fault.in_field(&field).of_tool(&name)),
        }
    }

    /// The parameters by name, in the schema's order. Those that it requires and does not describe come last.
    pub(crate) fn listed(&self) -> Result<Vec<Parameter<'_>>, Fault> {
        listed(&self.parameters, "", &self.parameters)
    }
}

/// The members of an object schema, by name.
pub(crate) fn listed<'a>(root: &'a Value, path: &str, schema: &'a Value) -> Result<Vec<Parameter<'a>>, Fault> {
    const ANY: &Value = &Value::Bool(true);
    let (path, schema) = behind_references(root, path, schema)?;
    for keyword in ["anyOf", "oneOf", "allOf", "patternProperties", "minProperties", "maxProperties"] {
        if schema.get(keyword).is_some() {
            let reason = "is not supported where this model's syntax names the members; describe them in `properties`";
            return Err(Fault::new(&path, keyword, reason));
        }
    }
    let required = names(schema.get("required"));
    let properties = schema.get("properties").and_then(Value::as_object);
    let described = properties.into_iter().flatten().map(|(name, schema)| Parameter {
        path: format!("{path}/properties/{}", escaped(name)),
        is_required: required.contains(&name.as_str()),
        name,
        schema,
    });
    let is_new = |name: &&str| properties.is_none_or(|properties| !properties.contains_key(*name));
    let others = required.iter().copied().filter(is_new);
    let undescribed = others.map(|name| Parameter { name, path: path.clone(), schema: ANY, is_required: true });
    Ok(described.chain(undescribed).collect())
}

/// The schema that bare references lead to.
pub(crate) fn behind_references<'a>(
    root: &'a Value,
    path: &str,
    schema: &'a Value,
) -> Result<(String, &'a Value), Fault> {
    const FARTHEST: usize = 32;
    let (mut path, mut schema) = (path.to_owned(), schema);
    for _ in 0..FARTHEST {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return Ok((path, schema)) };
        refuse_beside(&path, "$ref", schema)?;
        let found = pointed_at(root, reference);
        (path, schema) = found.ok_or_else(|| Fault::new(&path, "$ref", "can only be a path from the root here"))?;
    }
    Err(Fault::new(&path, "$ref", "leads in a circle"))
}

/// Refuses a keyword that has others beside it that restrict the same value.
pub(crate) fn refuse_beside(path: &str, keyword: &str, schema: &Value) -> Result<(), Fault> {
    let names = schema.as_object().into_iter().flat_map(Map::keys);
    match names.into_iter().find(|name| *name != keyword && super::RESTRICTING.contains(&name.as_str())) {
        Some(other) => {
            let reason = format!("is not supported beside `{other}` in this model's syntax of calls; write one schema");
            Err(Fault::new(path, keyword, reason))
        }
        None => Ok(()),
    }
}

fn names(value: Option<&Value>) -> Vec<&str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn may_be_called(choice: &ToolChoice, tool: &Tool) -> bool {
    match choice {
        ToolChoice::Named(name) => tool.name == *name,
        _ => true,
    }
}

/// A tool's parameters as a schema of an object. Arguments that a tool describes are all that it has, unless it says
/// otherwise.
fn object(parameters: &Value) -> Result<Value, Fault> {
    let mut object = match prepared(parameters) {
        _ if parameters.is_null() => Map::new(),
        Ok(Value::Object(object)) => object,
        Ok(Value::Bool(true)) => return Ok(json!({"type": "object"})),
        Ok(_) => return Err(Fault::new("", "", "allows nothing; leave it out if there are no arguments")),
        Err(fault) => return Err(fault),
    };
    match object.get("type") {
        Some(Value::String(kind)) if kind == "object" => {}
        None => _ = object.insert("type".into(), "object".into()),
        Some(_) => return Err(Fault::new("", "type", "arguments are an \"object\"")),
    }
    let elsewhere = ["additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"];
    let is_described = object.contains_key("properties") || parameters.is_null();
    if is_described && !elsewhere.iter().any(|keyword| object.contains_key(*keyword)) {
        object.insert("additionalProperties".into(), false.into());
    }
    Ok(Value::Object(object))
}
