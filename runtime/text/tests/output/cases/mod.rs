//! Recorded outputs of every family.

mod json;
mod key_value;
mod literal;
mod own;
mod tags;

use crate::support::Case;

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    [json::cases(), key_value::cases(), literal::cases(), own::cases(), tags::cases()].concat()
}
