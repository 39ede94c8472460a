//! The side that asks: starts the process, feeds it, and ends it when it has had its time.

use std::{
    ffi::OsString,
    io::{self, Read, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use super::{ANSWER, Question, REFUSAL, Refusal};
use crate::PluginError;

/// The command that answers for a plugin: it runs [`super::answer`] with what comes behind these arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProgram {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
}

impl WorkerProgram {
    /// This program, with these arguments first.
    ///
    /// # Errors
    /// If the system does not say where it is.
    pub fn itself(arguments: &[&str]) -> io::Result<Self> {
        let arguments = arguments.iter().map(OsString::from).collect();
        // Also there when the file was replaced by a newer version while this one runs.
        let running = Path::new("/proc/self/exe");
        let program = if running.exists() { running.to_owned() } else { std::env::current_exe()? };
        Ok(WorkerProgram { program, arguments })
    }
}

/// What one question may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest time.
    pub time: Duration,
    /// Longest answer, in bytes.
    pub answer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { time: Duration::from_secs(10), answer: 64 << 20 }
    }
}

/// How much of what a process says about its end is kept.
const LONGEST_REASON: u64 = 4096;

/// Longest time between two looks at whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Asks a plugin, by its private copy.
///
/// # Errors
/// No process, no answer in time, or one that is too long.
pub(crate) fn ask(
    worker: &WorkerProgram,
    limits: Limits,
    copy: &Path,
    question: Question,
    request: Vec<u8>,
) -> Result<Vec<u8>, PluginError> {
    let deadline = Instant::now() + limits.time;
    let question = question.name();
    let mut process = start(worker, copy, question).map_err(|e| PluginError::Worker(e.to_string()))?;
    // The threads are not waited for: a process that got away could keep its end of a pipe open.
    let input = process.stdin.take();
    thread::spawn(move || input.map(|mut input| input.write_all(&request)));
    let output = read_aside(process.stdout.take(), limits.answer as u64 + 2);
    let reason = read_aside(process.stderr.take(), LONGEST_REASON);
    let answer = output.recv_timeout(left(deadline)).ok();
    let is_long = answer.as_ref().is_some_and(|answer| answer.len() > limits.answer + 1);
    let in_time = is_long || (answer.is_some() && has_ended(&mut process, deadline));
    let status = end(&mut process).map_err(|e| PluginError::Worker(e.to_string()))?;
    match answer {
        Some(_) if is_long => Err(PluginError::Size { question, limit: limits.answer }),
        Some(answer) if in_time => {
            read(question, answer, status).map_err(|how| how.unwrap_or_else(|| died(question, status, &reason)))
        }
        _ => Err(PluginError::Time { question, limit: limits.time }),
    }
}

fn start(worker: &WorkerProgram, copy: &Path, question: &str) -> io::Result<Child> {
    let mut command = Command::new(&worker.program);
    command.args(&worker.arguments).arg(question).arg(copy);
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(directory) = copy.parent() {
        command.current_dir(directory);
    }
    // Without this variable Windows finds none of its own libraries.
    if let Some(root) = std::env::var_os("SystemRoot").filter(|_| cfg!(windows)) {
        command.env("SystemRoot", root);
    }
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn()
}

/// Reads a pipe to its end or the limit, on a thread of its own.
fn read_aside(pipe: Option<impl Read + Send + 'static>, limit: u64) -> Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before a fault is told; the process's end says what happened.
        let _ = pipe.map(|pipe| pipe.take(limit).read_to_end(&mut bytes));
        let _ = send.send(bytes);
    });
    receive
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Waits for the end of a process; false if it does not come in time. The process keeps its number.
fn has_ended(process: &mut Child, deadline: Instant) -> bool {
    let mut pause = Duration::from_micros(100);
    while !system::has_ended(process) {
        if left(deadline).is_zero() {
            return false;
        }
        thread::sleep(pause);
        pause = LOOK_EVERY.min(pause * 2);
    }
    true
}

/// Ends a process, if it has not ended, with all that it started.
fn end(process: &mut Child) -> io::Result<ExitStatus> {
    // While it is not waited for, no other process can have its number.
    system::end_group(process);
    let _ = process.kill();
    process.wait()
}

/// What the worker said; `None`: nothing that it says.
fn read(question: &'static str, mut told: Vec<u8>, status: ExitStatus) -> Result<Vec<u8>, Option<PluginError>> {
    if !status.success() {
        return Err(None);
    }
    match told.first() {
        Some(&ANSWER) => {
            told.remove(0);
            Ok(told)
        }
        Some(&REFUSAL) => {
            let refusal: Refusal = serde_json::from_slice(told.get(1..).unwrap_or_default()).map_err(|_| None)?;
            Err(Some(refusal.error(question)))
        }
        _ => Err(None),
    }
}

/// How a process ended that gave no answer.
fn died(question: &'static str, status: ExitStatus, reason: &Receiver<Vec<u8>>) -> PluginError {
    let reason = reason.recv_timeout(LOOK_EVERY * 20).unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason);
    let how = match reason.lines().map(str::trim).rfind(|line| !line.is_empty()) {
        Some(line) => format!("its process ended with {status}: {line}"),
        None => format!("its process ended with {status}"),
    };
    PluginError::Died { question, how }
}

#[cfg(unix)]
mod system {
    use std::process::Child;

    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

    fn pid(process: &Child) -> Option<Pid> {
        i32::try_from(process.id()).ok().and_then(Pid::from_raw)
    }

    pub(super) fn has_ended(process: &mut Child) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        pid(process).is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), look), Ok(None)))
    }

    pub(super) fn end_group(process: &Child) {
        if let Some(pid) = pid(process) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

#[cfg(not(unix))]
mod system {
    use std::process::Child;

    pub(super) fn has_ended(process: &mut Child) -> bool {
        !matches!(process.try_wait(), Ok(None))
    }

    pub(super) fn end_group(_: &Child) {}
}
