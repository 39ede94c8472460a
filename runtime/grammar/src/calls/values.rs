//! Values in syntaxes of their own: what a schema describes, and what stands for it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Writer;
use super::arguments::{Parameter, behind_references, listed, refuse_beside};
use super::content::Content;
use super::forms::{kinds, of_kind, values_listed};
use super::style::Style;
use crate::schema::{Fault, within};

/// Counts in repetitions are bounded in Lark; nobody counts so far.
const MOST_ITEMS: u64 = 1_000_000;

/// Writes the values of one schema, each part of it once: parts may contain themselves.
pub(super) struct Values<'s> {
    root: &'s Value,
    style: &'s Style,
    /// Rules by the path of what they describe.
    rules: BTreeMap<String, String>,
}

impl<'s> Values<'s> {
    pub(super) fn new(root: &'s Value, style: &'s Style) -> Self {
        Self { root, style, rules: BTreeMap::new() }
    }

    /// Members in their order, those that are not required left out or not.
    pub(super) fn members(
        &mut self,
        writer: &mut Writer<'_, '_>,
        members: &[Parameter<'s>],
        named: impl Fn(&Style, &mut Writer<'_, '_>, &str) -> Option<String>,
    ) -> Result<String, Fault> {
        let mut items = Vec::new();
        for Parameter { name, path, schema, is_required } in members {
            let unwritable =
                || Fault::new(path, "", format!("the name {name:?} cannot be written in this model's syntax"));
            let name = named(self.style, writer, name).ok_or_else(unwritable)?;
            let value = self.value(writer, path, schema)?;
            items.push((format!("{name} {value}"), *is_required));
        }
        Ok(self.sequence(writer, &items))
    }

    /// Items in their order with separators between those that are there. Built from behind, for each item twice: with
    /// something before it, and without.
    fn sequence(&self, writer: &mut Writer<'_, '_>, items: &[(String, bool)]) -> String {
        let separator = self.style.separator(writer);
        let (mut behind, mut first) = (String::new(), String::from("\"\""));
        for (item, is_required) in items.iter().rev() {
            let begun = format!("{item} {behind}");
            first = writer.lark.rule(&if *is_required { begun } else { format!("{begun} | {first}") });
            let sign = if *is_required { "" } else { "?" };
            behind = writer.lark.rule(&format!("({separator} {item}){sign} {behind}"));
        }
        first
    }

    /// A value that the schema at `path` describes.
    fn value(&mut self, writer: &mut Writer<'_, '_>, path: &str, schema: &'s Value) -> Result<String, Fault> {
        let (path, schema) = behind_references(self.root, path, schema)?;
        // A required member that nothing describes stands at its object's path.
        let key = if *schema == Value::Bool(true) { "any".to_owned() } else { format!("#{path}") };
        if let Some(rule) = self.rules.get(&key) {
            return Ok(rule.clone());
        }
        let rule = writer.lark.name();
        self.rules.insert(key, rule.clone());
        let options = match schema {
            Value::Bool(false) => return Err(Fault::new(&path, "", "allows nothing; leave it out")),
            Value::Object(object) => self.object_schema(writer, &path, schema, object)?,
            _ => self.any(writer)?,
        };
        writer.lark.define(&rule, &options.join(" | "));
        Ok(rule)
    }

    fn object_schema(
        &mut self,
        writer: &mut Writer<'_, '_>,
        path: &str,
        schema: &'s Value,
        object: &'s Map<String, Value>,
    ) -> Result<Vec<String>, Fault> {
        if let Some(values) = values_listed(object) {
            return Ok(values.iter().map(|value| self.style.literal(writer, value)).collect());
        }
        for keyword in ["anyOf", "oneOf", "allOf"] {
            if let Some(Value::Array(options)) = object.get(keyword) {
                refuse_beside(path, keyword, schema)?;
                return self.options(writer, &format!("{path}/{keyword}"), keyword, options);
            }
        }
        let kinds = kinds(object);
        if kinds.is_empty() {
            return self.any(writer);
        }
        kinds.iter().map(|kind| self.of_kind(writer, path, schema, kind)).collect()
    }

    fn options(
        &mut self,
        writer: &mut Writer<'_, '_>,
        path: &str,
        keyword: &str,
        options: &'s [Value],
    ) -> Result<Vec<String>, Fault> {
        if keyword == "allOf" && options.len() > 1 {
            return Err(Fault::new(
                path,
                keyword,
                "is not supported in this model's syntax of calls; write one schema",
            ));
        }
        let numbered = options.iter().enumerate();
        numbered.map(|(number, option)| self.value(writer, &format!("{path}/{number}"), option)).collect()
    }

    fn of_kind(
        &mut self,
        writer: &mut Writer<'_, '_>,
        path: &str,
        schema: &'s Value,
        kind: &str,
    ) -> Result<String, Fault> {
        match (kind, schema) {
            ("string", _) => Ok(self.style.text(writer, &Content::of(path, schema)?)),
            ("boolean", _) => Ok(self.style.boolean()),
            ("null", _) => Ok(self.style.literal(writer, &Value::Null)),
            ("array", _) => self.list(writer, path, schema),
            ("object", _) => self.object(writer, path, schema),
            (_, Value::Object(object)) => Ok(writer.json(within(self.root, &of_kind(object, kind)))),
            _ => Err(Fault::new(path, "type", format!("{kind:?} is unknown"))),
        }
    }

    fn list(&mut self, writer: &mut Writer<'_, '_>, path: &str, schema: &'s Value) -> Result<String, Fault> {
        const ANY: &Value = &Value::Bool(true);
        if schema.get("prefixItems").is_some() || schema.get("items").is_some_and(Value::is_array) {
            let keyword = if schema.get("prefixItems").is_some() { "prefixItems" } else { "items" };
            return Err(Fault::new(path, keyword, "lists by place are not supported in this model's syntax of calls"));
        }
        let count = |keyword| schema.get(keyword).and_then(Value::as_u64).map(|count: u64| count.min(MOST_ITEMS));
        let (least, most) = (count("minItems").unwrap_or(0), count("maxItems"));
        if most == Some(0) {
            return Ok("\"[\" \"]\"".into());
        }
        let item = self.value(writer, &format!("{path}/items"), schema.get("items").unwrap_or(ANY))?;
        let (separator, sign) = (self.style.separator(writer), if least == 0 { "?" } else { "" });
        let more = match (least.saturating_sub(1), most.map(|most| most - 1)) {
            (_, Some(0)) => String::new(),
            (least, most) => {
                let most = most.map(|most| most.to_string()).unwrap_or_default();
                format!("({separator} {item}){{{least},{most}}}")
            }
        };
        Ok(format!("\"[\" ({item} {more}){sign} \"]\""))
    }

    fn object(&mut self, writer: &mut Writer<'_, '_>, path: &str, schema: &'s Value) -> Result<String, Fault> {
        const ANY: &Value = &Value::Bool(true);
        let members = listed(self.root, path, schema)?;
        let inside = match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => self.members(writer, &members, Style::key)?,
            others if members.is_empty() => {
                let value = self.value(writer, &format!("{path}/additionalProperties"), others.unwrap_or(ANY))?;
                let (key, separator) = (self.style.any_key(writer), self.style.separator(writer));
                format!("({key} {value} ({separator} {key} {value})*)?")
            }
            _ => self.members(writer, &members, Style::key)?,
        };
        Ok(format!("\"{{\" {inside} \"}}\""))
    }

    /// Any value at all.
    fn any(&mut self, writer: &mut Writer<'_, '_>) -> Result<Vec<String>, Fault> {
        const ANY: &Value = &Value::Bool(true);
        let number = writer.json(serde_json::json!({"type": "number"}));
        let text = self.style.text(writer, &Content::any());
        let (boolean, null) = (self.style.boolean(), self.style.literal(writer, &Value::Null));
        let any = self.value(writer, "", ANY)?;
        let (key, separator) = (self.style.any_key(writer), self.style.separator(writer));
        let list = format!("\"[\" ({any} ({separator} {any})*)? \"]\"");
        let object = format!("\"{{\" ({key} {any} ({separator} {key} {any})*)? \"}}\"");
        Ok(vec![text, number, boolean, null, list, object])
    }
}
