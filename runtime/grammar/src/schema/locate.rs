//! The smallest part of a schema that the compiler refuses.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;

use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::panic_utils::catch_unwind;
use serde_json::Value;

use super::walk::{children, pointed_at};
use super::{Fault, part, with_options};
use crate::program::{brief, on_a_deep_stack};
use crate::vocabulary::limits;

/// Parts that are tried. A fault behind more than these is told with a longer path than it might have.
const MOST_TRIALS: usize = 256;

/// The compiler's message for `schema` and where in it the cause is. None: it is compiled, taken by itself.
pub(super) fn locate(schema: &Value) -> Option<Fault> {
    on_a_deep_stack(|| Search { root: schema, trials: 0, seen: HashSet::new() }.run()).ok().flatten()
}

struct Search<'a> {
    root: &'a Value,
    trials: usize,
    /// Paths of the parts looked into: references may lead back.
    seen: HashSet<String>,
}

impl<'a> Search<'a> {
    fn run(&mut self) -> Option<Fault> {
        let mut reason = self.refusal(self.root, "")?;
        let (mut path, mut schema) = (String::new(), self.root);
        while let Some((deeper, part, why)) = self.refused_below(&path, schema) {
            (path, schema, reason) = (deeper, part, why);
        }
        let keyword = self.keyword(&path, schema);
        Some(Fault::new(&path, &keyword, reason))
    }

    /// The first part below `schema` that is refused by itself.
    fn refused_below(&mut self, path: &str, schema: &'a Value) -> Option<(String, &'a Value, String)> {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|text| pointed_at(self.root, text));
        let below = children(schema).into_iter().map(|(step, child)| (format!("{path}{step}"), child));
        let mut parts: Vec<(String, &Value)> = below.chain(target).collect();
        // `false` is refused everywhere but where the part around it gives it a meaning.
        parts.retain(|(path, part)| **part != Value::Bool(false) && self.seen.insert(path.clone()));
        parts.into_iter().find_map(|(path, part)| {
            let why = self.refusal(self.root, &path)?;
            Some((path, part, why))
        })
    }

    /// The keyword without which the schema would be taken. What kind of value it describes comes last.
    fn keyword(&mut self, path: &str, schema: &Value) -> String {
        let Some(object) = schema.as_object() else { return String::new() };
        let (last, first): (Vec<&String>, Vec<&String>) = object.keys().partition(|keyword| *keyword == "type");
        let removable = first.into_iter().chain(last).find(|keyword| {
            let mut without = self.root.clone();
            let place = without.pointer_mut(path).and_then(Value::as_object_mut);
            let removed = place.and_then(|object| object.remove(*keyword)).is_some();
            removed && self.trials < MOST_TRIALS && self.refusal(&without, path).is_none()
        });
        removable.cloned().unwrap_or_default()
    }

    /// Why the part of `root` at `path` is refused. None: it is not, or has not been tried.
    fn refusal(&mut self, root: &Value, path: &str) -> Option<String> {
        self.trials += 1;
        if self.trials > MOST_TRIALS {
            return None;
        }
        let schema = with_options(if path.is_empty() { root.clone() } else { part(root, path) });
        let grammar = GrammarInit::Serialized(TopLevelGrammar::from_json_schema(schema));
        let compiled = catch_unwind(AssertUnwindSafe(|| grammar.to_internal(None, limits()).map(drop)));
        compiled.err().map(|error| brief(&error.to_string()))
    }
}
