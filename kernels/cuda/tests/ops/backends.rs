//! The CUDA backend on emulated cards: one with tensor cores, and one without.

use bantam_backend::Backend;
use bantam_cuda::CudaBackend;
use bantam_cuda_emulated::under_test;

/// A compute capability, times ten.
pub(crate) type Kind = u32;

/// All kinds. That cards without tensor cores compute the same is held by the tests of products.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    [80].into_iter()
}

/// The kind that is used if none is asked for.
pub(crate) fn usual() -> Kind {
    80
}

/// A backend of a kind; the host emulates on one thread.
pub(crate) fn make(kind: Kind, _threads: usize) -> Box<dyn Backend> {
    Box::new(CudaBackend::on(under_test(kind)))
}

/// Tokens of a test: three pages, and a rest. The host needs a second for what a card does in a millisecond.
pub(crate) const TOKENS: usize = 100;
