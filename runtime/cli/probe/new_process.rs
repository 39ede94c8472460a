//! The rest of a sequence in another process of this program, which gets the state of its first tokens as a file.

use std::{
    ffi::OsStr,
    path::Path,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use bantam_runtime::{
    hardware::Hardware,
    probe::{ProbeConfig, Rest},
};
use serde::Deserialize;

/// What the other process prints, as far as it is needed.
#[derive(Deserialize)]
struct Report {
    greedy: Vec<u32>,
    counters: Counters,
}

#[derive(Deserialize)]
struct Counters {
    reused_tokens: usize,
}

/// Runs `bantam probe --restore` on the same model and tokens.
pub(super) fn compute(config: &ProbeConfig, snapshot: &[u8]) -> Result<Rest, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    let folder = std::env::temp_dir().join(format!("bantam-probe-{}-{now}", std::process::id()));
    let named = |e: std::io::Error| format!("{}: {e}", folder.display());
    // Fails if it exists: whoever made it may read or change what is put there.
    std::fs::create_dir(&folder).map_err(named)?;
    let rest = compute_in(&folder, config, snapshot);
    std::fs::remove_dir_all(&folder).map_err(named)?;
    rest
}

fn compute_in(folder: &Path, config: &ProbeConfig, snapshot: &[u8]) -> Result<Rest, String> {
    let (state, tokens, logits) = (folder.join("state"), folder.join("tokens.json"), folder.join("logits.f32"));
    let named = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::write(&state, snapshot).map_err(named)?;
    std::fs::write(&tokens, serde_json::to_vec(&config.tokens).map_err(|e| e.to_string())?).map_err(named)?;
    let output = Command::new(std::env::current_exe().map_err(|e| e.to_string())?)
        .arg("probe")
        .arg(&config.model)
        .args(["--tokens".into(), format!("@{}", tokens.display())])
        .args([Path::new("--restore"), &state, Path::new("--logits"), &logits])
        .args(["--greedy".into(), config.greedy.to_string(), "--cpu-threads".into(), config.threads.to_string()])
        .args(["--cache-type-k", config.k_type.name(), "--cache-type-v", config.v_type.name()])
        .args(config.families.config().allow_ops.then_some("--allow-plugin-ops"))
        .args(matches!(config.hardware, Hardware::Devices(_)).then_some("--backend=cuda"))
        .args(["--repack", if config.repack { "on" } else { "off" }])
        .args(config.families.directories().iter().flat_map(|path| [OsStr::new("--plugins"), path.as_os_str()]))
        .args(config.families.config().choice.iter().flat_map(|choice| ["--family", choice.name()]))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(format!("the process that went on from the snapshot ended with {}", output.status));
    }
    let report: Report = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let bytes = std::fs::read(&logits).map_err(named)?;
    let logits = bytes.chunks_exact(4).filter_map(|b| Some(f32::from_le_bytes(b.try_into().ok()?))).collect();
    Ok(Rest { reused_tokens: report.counters.reused_tokens, logits, greedy: report.greedy })
}
