//! The items of a request: checked, named, and in one form, as they are kept.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::new_id;
use super::store::Store;
use crate::fields::{Field, FieldError, Fields};

/// An item and where it stood.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) path: String,
    pub(super) item: Arc<Value>,
}

/// `input`: a text of the user, or items, of which references are replaced by what they refer to.
pub(super) fn items(fields: &Fields<'_>, store: &Store) -> Result<Vec<Item>, FieldError> {
    let Some(input) = fields.get("input") else { return Ok(Vec::new()) };
    match input.value() {
        Value::String(text) => {
            let content = json!([{"type": "input_text", "text": text}]);
            let mut item = json!({"id": new_id("msg"), "type": "message", "role": "user", "content": content});
            item["status"] = "completed".into();
            Ok(vec![Item { path: input.path().to_owned(), item: Arc::new(item) }])
        }
        Value::Array(_) => {
            let items = input.items()?;
            let named = |field: &Field<'_>| {
                let path = field.path().to_owned();
                Ok(item(field, store)?.map(|item| Item { path, item }))
            };
            items.iter().filter_map(|field| named(field).transpose()).collect()
        }
        _ => Err(input.expected("a string or an array of items")),
    }
}

/// What kind of item this is. Messages and references may leave it out.
pub(super) fn kind<'a>(item: &Fields<'a>) -> Result<&'a str, FieldError> {
    match item.text("type")? {
        Some(kind) => Ok(kind),
        None if item.get("role").is_some() => Ok("message"),
        None if item.get("id").is_some() => Ok("item_reference"),
        None => Err(FieldError::new(item.path_of("type"), "is required")),
    }
}

/// Items that clients find with a status, whether they were sent with one or not.
const STATED: [&str; 5] =
    ["message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"];

fn item(field: &Field<'_>, store: &Store) -> Result<Option<Arc<Value>>, FieldError> {
    let item = field.object()?;
    let kind = kind(&item)?;
    if kind == "item_reference" {
        return referred(&item, store);
    }
    let prefix = match kind {
        "message" => "msg",
        "reasoning" => "rs",
        "function_call" => "fc",
        "custom_tool_call" => "ctc",
        _ => "item",
    };
    let id = item.text("id")?.map_or_else(|| new_id(prefix), str::to_owned);
    let mut told = Map::from_iter([("id".to_owned(), id.into()), ("type".to_owned(), kind.into())]);
    for (key, value) in item.map() {
        if !matches!(key.as_str(), "id" | "type") {
            told.insert(key.clone(), value.clone());
        }
    }
    if let Some(Value::String(text)) = item.map().get("content") {
        let part = if item.text("role")? == Some("assistant") { "output_text" } else { "input_text" };
        told.insert("content".to_owned(), json!([{"type": part, "text": text}]));
    }
    if STATED.contains(&kind) {
        told.entry("status").or_insert_with(|| "completed".into());
    }
    Ok(Some(Arc::new(Value::Object(told))))
}

/// What was thought may be gone, and nothing is lost; of a conversation everything must be there.
fn referred(item: &Fields<'_>, store: &Store) -> Result<Option<Arc<Value>>, FieldError> {
    let field = item.required("id")?;
    let id = field.text()?;
    match store.item(id) {
        Some(item) => Ok(Some(item)),
        None if id.starts_with("rs_") => {
            tracing::info!("{} refers to {id:?}, which is not kept any more: passed over", field.path());
            Ok(None)
        }
        None => Err(field.error(format!("must name an item that is kept, found \"{id}\": send the item itself"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &Value) -> Result<Vec<Value>, String> {
        let body = json!({ "input": input });
        let items = items(&Field::body(&body).object().unwrap(), &Store::default()).map_err(|e| e.to_string())?;
        Ok(items.iter().map(|item| item.item.as_ref().clone()).collect())
    }

    #[test]
    fn every_item_gets_a_name_and_one_form() {
        let mut told = read(&json!("hello")).unwrap();
        assert!(told[0]["id"].take().as_str().unwrap().starts_with("msg_"));
        let content = json!([{"type": "input_text", "text": "hello"}]);
        let expected =
            json!({"id": null, "type": "message", "role": "user", "content": content, "status": "completed"});
        assert_eq!(told[0], expected);

        let short = json!({"role": "assistant", "content": "x", "phase": "commentary"});
        let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"});
        let told = read(&json!([short, call])).unwrap();
        assert_eq!(told[0]["content"], json!([{"type": "output_text", "text": "x"}]));
        assert_eq!((&told[0]["type"], &told[0]["phase"]), (&json!("message"), &json!("commentary")));
        assert_eq!((&told[1]["id"], &told[1]["status"]), (&json!("fc_1"), &json!("completed")));
        assert!(read(&json!(null)).unwrap().is_empty());
    }

    #[test]
    fn what_is_referred_to_must_be_there_unless_it_was_only_thought() {
        assert_eq!(read(&json!([{"type": "item_reference", "id": "rs_1"}])).unwrap(), Vec::<Value>::new());
        let problem = read(&json!([{"id": "msg_1"}])).unwrap_err();
        assert!(problem.starts_with("`input[0].id` must name an item that is kept"), "{problem}");
        assert_eq!(read(&json!([{}])).unwrap_err(), "`input[0].type` is required");
        assert_eq!(read(&json!(5)).unwrap_err(), "`input` must be a string or an array of items, found an integer");
    }
}
