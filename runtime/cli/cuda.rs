//! A GPU to compute on, and what of it is there.

use std::sync::Arc;

use bantam_cuda::{
    CudaBackend,
    card::{Card, CardOptions},
};
use bantam_cuda_libraries::{Found, Part, Places, find};
use bantam_runtime::hardware::Hardware;

use crate::{error::CliError, home};

/// What is there.
pub(crate) fn found() -> Found {
    find(&Places::of_this_machine())
}

/// The machine's first card.
///
/// # Errors
/// If there is none, or something is missing that it needs: what, and what to do.
pub(crate) fn open() -> Result<Hardware, CliError> {
    let options =
        CardOptions { ordinal: 0, nvrtc: found().nvrtc, cache: home::home().ok().map(|home| home.join(KERNELS)) };
    let card = Card::open(&options).map_err(|e| CliError::Failed(format!("--backend cuda: {e}")))?;
    Ok(Hardware::Given(Arc::new(CudaBackend::on(Arc::new(card)))))
}

/// Where compiled kernels are kept, in the home folder.
const KERNELS: &str = "kernels";

/// Why this command computes nothing on a GPU, and what the machine lacks for it.
pub(crate) fn unavailable() -> CliError {
    CliError::Failed(unavailable_with(&found()))
}

fn unavailable_with(found: &Found) -> String {
    let missing: Vec<String> = found.missing().map(|part| format!("no {part} was found ({})", part.fix())).collect();
    let machine = match missing.is_empty() {
        true => String::new(),
        false => format!(", and {}", missing.join(", ")),
    };
    format!("--backend cuda: only probe computes on a GPU in this version{machine}; leave it out to compute on the CPU")
}

/// Where a part is, for people.
pub(crate) fn told(found: &Found, part: Part) -> Option<String> {
    found.path(part).map(|path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let nothing = unavailable_with(&Found::default());
        for part in Part::ALL.iter().filter(|part| part.is_needed()) {
            assert!(nothing.contains(&part.to_string()) && nothing.contains(part.fix()), "{nothing}");
        }
        let there = Some("x".into());
        let all = Found { driver: there.clone(), nvrtc: there.clone(), headers: there, cublas: None };
        let all = unavailable_with(&all);
        assert!(all.contains("only probe") && !all.contains("NVRTC") && all.ends_with("compute on the CPU"), "{all}");
    }
}
