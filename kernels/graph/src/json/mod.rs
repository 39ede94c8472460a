//! The versioned JSON form: what a plugin returns, what `inspect --graph` prints, what the UI draws.
//!
//! Unknown ops, and unknown attributes of ops, states and weights, are refused: ignoring one makes a model silently wrong.

pub mod digits;
mod object;
mod objects;
mod strict;
mod words;

pub use object::object;
pub use strict::{parse, read};

use serde::{Deserialize, Serialize};

use crate::{Graph, GraphError, check};

/// Version of the JSON form that this crate reads and writes.
pub const VERSION: u32 = 0;

/// Most values that JSON of a graph may hold, counting those in others: far more than any model needs.
pub const MOST_VALUES: usize = 1 << 21;

#[derive(Serialize)]
struct Outer<'a> {
    bantam_graph: u32,
    graph: &'a Graph,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OuterOwned {
    bantam_graph: u32,
    graph: serde_json::Value,
}

/// The graph as a JSON value, version and all.
///
/// # Errors
/// If an attribute is no JSON number (NaN, infinity).
pub fn to_value(graph: &Graph) -> Result<serde_json::Value, GraphError> {
    serde_json::to_value(Outer { bantam_graph: VERSION, graph }).map_err(|e| GraphError::Json(e.to_string()))
}

/// Reads and checks a graph.
///
/// # Errors
/// Another version, malformed JSON, an unknown op or attribute, or a graph that [`check()`] refuses.
pub fn from_slice(bytes: &[u8]) -> Result<Graph, GraphError> {
    let outer: OuterOwned = parse(bytes, MOST_VALUES).and_then(|outer| read(&outer)).map_err(GraphError::Json)?;
    if outer.bantam_graph != VERSION {
        return Err(GraphError::Version { found: outer.bantam_graph, expected: VERSION });
    }
    let graph: Graph = read(&outer.graph).map_err(GraphError::Json)?;
    check(&graph)?;
    Ok(graph)
}
