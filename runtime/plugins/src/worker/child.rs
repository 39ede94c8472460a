//! The side that answers: the worker's whole life.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::Path,
};

use super::{ANSWER, Question, REFUSAL, limits, native, wasm};

/// Asks the plugin in a file, with the request on standard input where there is one, and writes what it says to standard
/// output. The process is to end then: it has given up what it needs for anything else.
///
/// # Errors
/// If standard input cannot be read, or standard output not be written to.
pub fn answer(question: Question, copy: &Path) -> io::Result<()> {
    let mut request = Vec::new();
    io::stdin().read_to_end(&mut request)?;
    let mut output = take_output()?;
    limits::set();
    // From here on this process ends with the one that asks; if that has ended before, it will not be told.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if !limits::is_awaited(&output) {
        return Ok(());
    }
    let answered = match copy.extension().is_some_and(|extension| extension == "wasm") {
        true => wasm::ask(copy, question, &request),
        false => native::ask(copy, question, &request),
    };
    let (kind, told) = match answered {
        Ok(answer) => (ANSWER, answer),
        Err(refusal) => (REFUSAL, serde_json::to_vec(&refusal)?),
    };
    output.write_all(&[kind])?;
    output.write_all(&told)?;
    output.flush()
}

/// Standard output for this side alone: what the plugin prints goes nowhere.
#[cfg(unix)]
fn take_output() -> io::Result<File> {
    let output = rustix::io::dup(rustix::stdio::stdout())?;
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(output.into())
}

/// Standard output, which the plugin must not print to.
#[cfg(not(unix))]
fn take_output() -> io::Result<io::Stdout> {
    Ok(io::stdout())
}
