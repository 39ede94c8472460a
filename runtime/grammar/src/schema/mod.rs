//! JSON schemas: which can be held to, and where one cannot.
//!
//! The compiler of llguidance refuses what it does not know, but does not say where, and it takes a few things for more
//! than they are. So a schema is looked through first, written a little differently where that helps, and searched for its
//! smallest faulty part where the compiler still refuses it.

mod check;
mod locate;
mod prepare;
mod relax;
mod relocate;
mod walk;

use serde_json::{Value, json};

use crate::GrammarError;
pub use relax::relaxed;
pub(crate) use relocate::{part, within};
pub(crate) use walk::{escaped, pointed_at};

/// White space between the parts of a JSON text: as templates write it or as people indent it, never without end.
const WHITE_SPACE: &str = r" |\n[ \t]{0,32}";

/// What is wrong with a schema, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Path as `/properties/a`; empty at the root.
    pub(crate) path: String,
    pub(crate) keyword: String,
    pub(crate) reason: String,
}

impl Fault {
    pub(crate) fn new(path: &str, keyword: &str, reason: impl Into<String>) -> Self {
        Self { path: path.into(), keyword: keyword.into(), reason: reason.into() }
    }

    pub(crate) fn in_field(self, field: &str) -> GrammarError {
        let keyword = Some(self.keyword).filter(|keyword| !keyword.is_empty());
        GrammarError { path: Some(format!("#{}", self.path)), keyword, ..GrammarError::new(field, self.reason) }
    }
}

/// The schema as it is to be compiled, unless something in it is known not to be supported.
pub(crate) fn prepared(schema: &Value) -> Result<Value, Fault> {
    check::check(schema)?;
    Ok(prepare::prepare(schema))
}

/// The smallest part of a prepared schema that the compiler refuses alone. None: there is no such part.
pub(crate) fn refused(schema: &Value) -> Option<Fault> {
    locate::locate(schema)
}

/// The schema with the compiler's options in it.
pub(crate) fn with_options(schema: Value) -> Value {
    let mut schema = match schema {
        Value::Bool(true) => json!({}),
        Value::Bool(false) => json!({"anyOf": [false]}),
        other => other,
    };
    if let Some(object) = schema.as_object_mut() {
        object.insert("x-guidance".into(), json!({"whitespace_pattern": WHITE_SPACE}));
    }
    schema
}
