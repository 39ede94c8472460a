//! Running the built binary: as a command, and as a server on a free port.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use serde_json::Value;

/// Longest wait for anything that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A file or folder below `tests/fixtures`.
pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

/// The model of a fixture, as an argument.
pub(crate) fn model(name: &str) -> String {
    let path = fixture("models").join(name).join("model.gguf");
    assert!(path.exists(), "{}", path.display());
    path.display().to_string()
}

/// The command, free of this user's settings.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bantam"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BANTAM_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the command to its end.
pub(crate) fn bantam(arguments: &[&str]) -> Output {
    command().args(arguments).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs a command that must succeed; its standard output.
pub(crate) fn succeed(arguments: &[&str]) -> String {
    let output = bantam(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// Runs a command that must print JSON.
pub(crate) fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeed(arguments)).unwrap()
}

/// Runs a command that must fail with this code and nothing on standard output; its last line, `error: …`.
pub(crate) fn fail(code: i32, arguments: &[&str]) -> String {
    let output = bantam(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{arguments:?}");
    let last = stderr(&output).lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("error: "), "{arguments:?}: {last}");
    last
}

/// Reads a file of raw little-endian f32.
pub(crate) fn f32_file(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Asks again and again until there is an answer.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The fixture of Llama under another architecture.
pub(crate) fn renamed(architecture: &str, to: &Path) {
    let file = bantam_gguf::GgufFile::open(model("llama-dense")).unwrap();
    let mut writer = bantam_gguf::writer::GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        match key.strip_prefix("llama.") {
            Some(rest) => writer.key(format!("{architecture}.{rest}"), value.clone()),
            None if key == "general.architecture" => writer.key(key, architecture),
            None => writer.key(key, value.clone()),
        };
    }
    for tensor in file.tensors() {
        writer.tensor(&tensor.name, tensor.ty, &tensor.shape, file.tensor_bytes(tensor).unwrap());
    }
    writer.write(std::fs::File::create(to).unwrap()).unwrap();
}

/// A running `bantam serve`. Killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// `http://HOST:PORT`.
    pub(crate) url: String,
    /// What it said on standard error until it was ready.
    pub(crate) before_ready: Vec<String>,
    lines: Mutex<Receiver<String>>,
}

impl Server {
    /// Starts a server on a free port and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        Server::spawn_ready(command().arg("serve").args(arguments).args(["--port", "0"]))
    }

    /// Starts a command that serves, and waits until it is ready.
    pub(crate) fn spawn_ready(command: &mut Command) -> Server {
        let mut server = Server::spawn(command);
        let (before, line) = server.lines_to("listening on ");
        server.url = line.split_whitespace().find(|w| w.starts_with("http://")).unwrap().into();
        server.before_ready = before;
        server
    }

    /// Starts a command without waiting.
    pub(crate) fn spawn(command: &mut Command) -> Server {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            // Read to the end whether anybody still listens: a full pipe would block the server.
            stderr.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        Server { child, url: String::new(), before_ready: Vec::new(), lines: Mutex::new(lines) }
    }

    /// Waits for a line on standard error that contains `text`.
    pub(crate) fn line_with(&self, text: &str) -> String {
        self.lines_to(text).1
    }

    /// The lines on standard error until one contains `text`.
    pub(crate) fn lines_before(&self, text: &str) -> Vec<String> {
        self.lines_to(text).0
    }

    fn lines_to(&self, text: &str) -> (Vec<String>, String) {
        let mut seen = Vec::new();
        loop {
            match self.lines.lock().unwrap().recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return (seen, line),
                Ok(line) => seen.push(line),
                Err(why) => panic!("no line with `{text}` ({why}) after:\n{}", seen.join("\n")),
            }
        }
    }

    /// Number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap()
    }

    /// Sends a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end.
    pub(crate) fn exit_status(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for("the server's end", || child.try_wait().unwrap())
    }

    /// Answer of `GET path`: status and JSON.
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        answer(agent().get(format!("{}{path}", self.url)).call())
    }

    /// Answer of `POST path` with a JSON body.
    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(agent().post(format!("{}{path}", self.url)).send_json(body))
    }

    /// Sends a request and gives its answer's body as it comes, line by line.
    pub(crate) fn stream(&self, path: &str, body: &Value) -> impl Iterator<Item = String> + use<> {
        let response = agent().post(format!("{}{path}", self.url)).send_json(body).unwrap();
        assert_eq!(response.status(), 200);
        BufReader::new(response.into_body().into_reader()).lines().map_while(Result::ok)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build().into()
}

fn answer(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> (u16, Value) {
    let mut response = response.unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
