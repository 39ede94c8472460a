//! What computes a model's steps.

use std::{fmt, sync::Arc};

use bantam_backend::Backend;
use bantam_cpu::CpuBackend;

/// What computes.
#[derive(Clone, Default)]
pub enum Hardware {
    /// The CPU.
    #[default]
    Cpu,
    /// A backend that whoever starts the engine has made: one of a card.
    Given(Arc<dyn Backend>),
}

impl fmt::Debug for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hardware::Cpu => f.write_str("Cpu"),
            Hardware::Given(backend) => write!(f, "Given({})", backend.name()),
        }
    }
}

impl Hardware {
    /// The backend, and the threads that it computes with: on the CPU as many as asked for, 0 for its own choice; none of the
    /// host's otherwise.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub(crate) fn backend(&self, threads: usize) -> Result<(Arc<dyn Backend>, usize), String> {
        match self {
            Hardware::Cpu => {
                let backend = CpuBackend::new(threads).map_err(|e| e.to_string())?;
                let threads = backend.threads();
                Ok((Arc::new(backend), threads))
            }
            Hardware::Given(backend) => Ok((Arc::clone(backend), 0)),
        }
    }
}
