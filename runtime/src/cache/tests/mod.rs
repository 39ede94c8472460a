//! The cache against a device that remembers what was written, and against a naive search.

mod attachments;
mod device;
mod examples;
mod interleavings;
mod world;

use bantam_backend::StateGroup;
use bantam_graph::StateKind;

/// A group of one state with pages of 10 bytes a token.
fn group(kind: StateKind, page_tokens: usize) -> StateGroup {
    StateGroup { kind, page_tokens, page_bytes: 10 * page_tokens, states: vec![0] }
}

fn per_token(page_tokens: usize) -> StateGroup {
    group(StateKind::PerToken, page_tokens)
}

fn window(len: usize, page_tokens: usize) -> StateGroup {
    group(StateKind::Window { len }, page_tokens)
}

fn strided(stride: usize, page_tokens: usize) -> StateGroup {
    group(StateKind::Strided { stride }, page_tokens)
}
