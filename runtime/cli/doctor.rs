//! `bantam doctor`: whether this machine can do what Bantam needs, and what to do where it cannot.

use std::{fs, net::TcpListener, num::NonZero, path::Path};

use bantam_cpu::{CpuBackend, isa::Isa};
use bantam_cuda_libraries::{Found, Part};
use clap::Args;
use serde::Serialize;

use crate::{cuda, error::CliError, home, model_source::pip, os, output};

/// Less free memory than this is too little for the smallest useful model.
const LEAST_MEMORY: u64 = 512 << 20;
/// Less free disk than this is too little for the usual model file.
const LEAST_DISK: u64 = 8 << 30;
/// Port that `serve` listens on.
const PORT: u16 = 8000;

/// Check this machine
///
/// Prints a line per check: [ok], [warn] or [FAIL], with what to do. Exits with 1 if a check failed.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

/// How one check went.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    status: Status,
    found: String,
    /// What to do; nothing where all is well, or where `found` says it.
    fix: Option<String>,
}

impl Finding {
    fn new(name: &'static str, status: Status, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let fix = Some(fix.into()).filter(|fix| status != Status::Ok && !fix.is_empty());
        Finding { name, status, found: found.into(), fix }
    }

    fn line(&self) -> String {
        let mark = match self.status {
            Status::Ok => "[ok]  ",
            Status::Warn => "[warn]",
            Status::Fail => "[FAIL]",
        };
        let fix = self.fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
        format!("{mark} {}: {}{fix}\n", self.name, self.found)
    }
}

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), CliError> {
    let mut findings = vec![instructions(), cores(), memory(), home_folder(), disk(), pip_program(), gpu()];
    let found = cuda::found();
    findings.extend(Part::ALL.iter().map(|part| of_nvidia(*part, &found)));
    findings.extend([large_pages(), port()]);
    if args.json {
        output::json(&serde_json::json!({ "checks": findings }))?;
    } else {
        output::text(&findings.iter().map(Finding::line).collect::<String>())?;
    }
    let failed: Vec<&str> = findings.iter().filter(|f| f.status == Status::Fail).map(|f| f.name).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(CliError::Failed(format!("{} failed; what to do stands beside it", failed.join(", "))))
}

fn instructions() -> Finding {
    let isa = Isa::detect();
    let best = Isa::fastest_up_to(Isa::Avx512Vnni);
    let found = format!("kernels for {}, on {}", isa.name(), std::env::consts::ARCH);
    let (status, fix) = match isa {
        _ if isa < best => (Status::Warn, format!("BANTAM_ISA holds back {}: unset it", best.name())),
        Isa::Portable => (Status::Warn, "slow: use a processor with AVX2".to_owned()),
        _ => (Status::Ok, String::new()),
    };
    Finding::new("instructions", status, found, fix)
}

fn cores() -> Finding {
    let usable = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = CpuBackend::new(0).map_or(1, |backend| backend.threads());
    let online = os::online_cpus().unwrap_or(usable);
    let status = if usable < online { Status::Warn } else { Status::Ok };
    let found = format!("{threads} threads by default; {usable} of {online} CPUs may be used");
    Finding::new("cores", status, found, "an affinity mask or a control group's quota holds back the others: widen it")
}

fn memory() -> Finding {
    match bantam_runtime::available_memory() {
        None => Finding::new("memory", Status::Warn, "the system does not say how much is free", "watch it yourself"),
        Some(free) => {
            let status = if free < LEAST_MEMORY { Status::Fail } else { Status::Ok };
            Finding::new("memory", status, format!("{} free", gib(free)), "end other programs: models live in memory")
        }
    }
}

fn home_folder() -> Finding {
    let name = "home";
    let fix = format!("set {} to a folder that can be written to", home::VARIABLE);
    let folder = match home::home() {
        Ok(home) => home.join(home::MODELS),
        // It says itself what to do.
        Err(error) => return Finding::new(name, Status::Fail, error.to_string(), ""),
    };
    // Nothing is made that is not there yet: a look does not change the machine.
    let there = existing_parent(&folder);
    let trial = there.join(format!(".bantam-doctor-{}", std::process::id()));
    let written = fs::write(&trial, b"").and_then(|()| fs::remove_file(&trial));
    match written {
        Ok(()) if there == folder => {
            Finding::new(name, Status::Ok, format!("{} can be written to", folder.display()), fix)
        }
        Ok(()) => Finding::new(name, Status::Ok, format!("{} can be made when it is needed", folder.display()), fix),
        Err(error) => Finding::new(name, Status::Fail, format!("{}: {error}", folder.display()), fix),
    }
}

fn disk() -> Finding {
    let free = home::home().ok().and_then(|home| os::free_disk_bytes(existing_parent(&home)));
    let Some(free) = free else {
        return Finding::new("disk", Status::Warn, "the system does not say how much is free", "watch it yourself");
    };
    let status = if free < LEAST_DISK { Status::Warn } else { Status::Ok };
    let fix = format!("free some, or set {} to a folder on a larger disk", home::VARIABLE);
    Finding::new("disk", status, format!("{} free for downloaded models", gib(free)), fix)
}

fn existing_parent(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."))
}

fn pip_program() -> Finding {
    let fix = "only the model name demo needs it; on Debian: apt install python3-pip";
    match pip::program() {
        Some(words) => Finding::new("pip", Status::Ok, words.join(" "), fix),
        None => Finding::new("pip", Status::Warn, "not found", fix),
    }
}

fn gpu() -> Finding {
    let fix = "models run on the processor";
    match os::gpu_driver() {
        None => Finding::new("gpu", Status::Warn, "no card was found", fix),
        Some(driver) => {
            let found = format!("an {driver} driver is loaded; only probe computes on a GPU in this version");
            Finding::new("gpu", Status::Warn, found, fix)
        }
    }
}

/// A library or a folder that a GPU backend needs.
fn of_nvidia(part: Part, found: &Found) -> Finding {
    match cuda::told(found, part) {
        Some(path) => Finding::new(part.name(), Status::Ok, path, ""),
        None if part.is_needed() => {
            Finding::new(part.name(), Status::Warn, "not found, a GPU needs it", format!("to use one: {}", part.fix()))
        }
        None => {
            let fix = format!("some matrix products are faster with it: {}", part.fix());
            Finding::new(part.name(), Status::Warn, "not found, a GPU can do without", fix)
        }
    }
}

fn large_pages() -> Finding {
    let name = "large pages";
    let fix = "long contexts are slower without: as root, echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    match os::large_pages() {
        None => Finding::new(name, Status::Ok, "left to the system", ""),
        Some(mode) if mode == "never" => Finding::new(name, Status::Warn, "never given", fix),
        Some(mode) => Finding::new(name, Status::Ok, mode, fix),
    }
}

fn port() -> Finding {
    match TcpListener::bind(("127.0.0.1", PORT)) {
        Ok(_) => Finding::new("port", Status::Ok, format!("{PORT} is free"), ""),
        Err(error) => Finding::new(
            "port",
            Status::Warn,
            format!("{PORT}: {error}"),
            "give serve another with --port (0: any free one)",
        ),
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_mark_and_what_to_do_only_where_something_is() {
        assert_eq!(Finding::new("a", Status::Ok, "b", "c").line(), "[ok]   a: b\n");
        assert_eq!(Finding::new("a", Status::Warn, "b", "c").line(), "[warn] a: b; c\n");
        assert_eq!(Finding::new("a", Status::Fail, "b", "c").line(), "[FAIL] a: b; c\n");
        assert_eq!(Finding::new("a", Status::Fail, "b; do c", "").line(), "[FAIL] a: b; do c\n");
    }
}
