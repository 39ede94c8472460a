//! The CPU backend, on each instruction set that this machine has.

use bantam_backend::Backend;
use bantam_cpu::{CpuBackend, isa::Isa};

/// An instruction set.
pub(crate) type Kind = Isa;

/// All kinds.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// The kind that is used if none is asked for.
pub(crate) fn usual() -> Kind {
    Isa::detect()
}

/// A backend of a kind.
pub(crate) fn make(kind: Kind, threads: usize) -> Box<dyn Backend> {
    Box::new(CpuBackend::with_isa(threads, kind).unwrap())
}

/// Tokens of a test.
pub(crate) const TOKENS: usize = 150;
