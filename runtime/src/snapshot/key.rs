//! What a snapshot must agree in with the model that is to go on from it.

use std::fmt::{self, Display, Formatter};

use bantam_backend::{CompileOptions, Program};
use bantam_graph::Graph;
use sha2::{Digest, Sha256};

/// Names a model with its weights, graph and cache types.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SnapshotKey(pub(super) [u8; 32]);

impl Display for SnapshotKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SnapshotKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotKey({self})")
    }
}

/// The key of a compiled graph: of what its weights are (`weights`, a fingerprint), what it computes, and how the backend
/// lays out its state.
pub(crate) fn key_of(
    weights: &[u8],
    graph: &Graph,
    backend: &str,
    options: &CompileOptions,
    program: &dyn Program,
) -> Result<SnapshotKey, serde_json::Error> {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(weights);
    add(&serde_json::to_vec(graph)?);
    add(backend.as_bytes());
    add(options.k_type.name().as_bytes());
    add(options.v_type.name().as_bytes());
    for group in program.groups() {
        add(format!("{:?} {} {}", group.kind, group.page_tokens, group.page_bytes).as_bytes());
    }
    Ok(SnapshotKey(hash.finalize().into()))
}
