//! The tools that a request declares.

use std::sync::Arc;

use serde_json::Value;

use super::values::Types;

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// JSON schema of the object of its arguments.
    pub parameters: Value,
}

/// The tools that calls are held against.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    pub(super) declared: Arc<[Tool]>,
    /// Whether only they are called. Otherwise a call of another is passed on too: who declared the tools can tell the model
    /// better.
    pub(super) only: bool,
}

impl Tools {
    /// Whether something of this name may be called.
    pub(super) fn allow(&self, name: &str) -> bool {
        !self.only || self.get(name).is_some()
    }

    fn get(&self, name: &str) -> Option<&Tool> {
        self.declared.iter().find(|tool| tool.name == name)
    }

    /// The types of an argument; `None`: nothing is said of it.
    pub(super) fn types(&self, tool: &str, key: &str) -> Option<Types> {
        Types::declared(&self.get(tool)?.parameters, key)
    }

    /// Whether a tool has an argument of this name.
    pub(super) fn has(&self, tool: &str, key: &str) -> bool {
        self.keys(tool).any(|name| name == key)
    }

    /// Names of a tool's arguments.
    pub(super) fn keys(&self, tool: &str) -> impl Iterator<Item = &str> {
        let properties = self.get(tool).and_then(|tool| tool.parameters.get("properties")?.as_object());
        properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str))
    }

    /// Names of the arguments without which a tool cannot be called.
    pub(super) fn required(&self, tool: &str) -> impl Iterator<Item = &str> {
        let required = self.get(tool).and_then(|tool| tool.parameters.get("required")?.as_array());
        required.into_iter().flatten().filter_map(Value::as_str)
    }

    /// A tool and its argument, of which models make one name with a dot.
    pub(super) fn glued<'n>(&self, name: &'n str) -> Option<(&'n str, &'n str)> {
        name.rsplit_once('.').filter(|(tool, key)| self.get(name).is_none() && self.has(tool, key))
    }
}
