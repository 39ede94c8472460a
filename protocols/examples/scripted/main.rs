//! A server whose model says what a script tells it to, for tests of clients: `scripted SCRIPT.json [--model FIXTURE]
//! [--port N] [--parallel N] [--context N] [--api-key KEY]`.
//!
//! Everything but the computing is real: the vocabulary, the chat template and the marks of a checkpoint among the
//! fixtures, the actors, the caches, the grammars, the protocols. See [`script`] for what a script says.

mod program;
mod script;

use std::error::Error;
use std::path::PathBuf;

use bantam_gguf::GgufFile;
use bantam_protocols::{LogConfig, LogLevel, ServerConfig, bind, serve};
use bantam_runtime::engine::{Engine, EngineConfig};
use bantam_text::{Tokenizer, TokenizerSpec};

use program::Scripted;
use script::Script;

/// What was typed.
struct Arguments {
    script: PathBuf,
    model: String,
    port: u16,
    parallel: usize,
    context: usize,
    api_keys: Vec<String>,
}

impl Arguments {
    fn read(mut typed: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let script = typed.next().ok_or("which script? scripted SCRIPT.json [--model FIXTURE] [--port N] …")?;
        let mut arguments = Arguments {
            script: script.into(),
            model: "qwen3-dense".into(),
            port: 0,
            parallel: 4,
            context: 32768,
            api_keys: Vec::new(),
        };
        while let Some(flag) = typed.next() {
            let value = typed.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--model" => arguments.model = value,
                "--port" => arguments.port = value.parse()?,
                "--parallel" => arguments.parallel = value.parse()?,
                "--context" => arguments.context = value.parse()?,
                "--api-key" => arguments.api_keys.push(value),
                _ => return Err(format!("there is no {flag}").into()),
            }
        }
        Ok(arguments)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let script: Script = serde_json::from_slice(&std::fs::read(&arguments.script)?)?;
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
    let model = fixtures.join(&arguments.model).join("model.gguf");
    let file = GgufFile::open(&model)?;
    let tokenizer = Tokenizer::new(TokenizerSpec::from_gguf(file.metadata())?)?;
    let mut engine = EngineConfig::new(model);
    engine.parallel = arguments.parallel;
    engine.context = arguments.context;
    engine.model_name = "scripted".into();
    let engine = Engine::acting(engine, Box::new(Scripted::new(tokenizer, script)?)).await?;
    let log = LogConfig { level: LogLevel::Normal, colour: false, sink: Box::new(std::io::stderr()) };
    let config = ServerConfig { api_keys: arguments.api_keys, ..ServerConfig::new(log) };
    let listener = bind("127.0.0.1", arguments.port).await?;
    serve(engine, config, listener, async { drop(tokio::signal::ctrl_c().await) }).await?;
    Ok(())
}
