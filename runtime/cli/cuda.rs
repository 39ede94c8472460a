//! What a GPU would need of this machine, and what of it is there.

use bantam_cuda_libraries::{Found, Part, Places, find};

use crate::error::CliError;

/// What is there.
pub(crate) fn found() -> Found {
    find(&Places::of_this_machine())
}

/// Why nothing can be computed on a GPU: this version has no backend for it; and what the machine lacks.
pub(crate) fn unavailable() -> CliError {
    CliError::Failed(unavailable_with(&found()))
}

fn unavailable_with(found: &Found) -> String {
    let missing: Vec<String> = found.missing().map(|part| format!("no {part} was found ({})", part.fix())).collect();
    let machine = match missing.is_empty() {
        true => String::new(),
        false => format!(", and {}", missing.join(", ")),
    };
    format!("--backend cuda: this version has no GPU backend{machine}; leave it out to compute on the CPU")
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
        assert!(
            all.contains("no GPU backend") && !all.contains("NVRTC") && all.ends_with("compute on the CPU"),
            "{all}"
        );
    }
}
