//! A server on a free port, and its log.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bantam_protocols::{LogConfig, LogLevel, ServeError, ServerConfig, bind, serve};
use bantam_runtime::engine::{Engine, EngineConfig};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Reply, send};

/// A model of a few layers with random weights, a vocabulary of 448 tokens and a window of 4096.
pub(crate) fn model() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models/llama-dense/model.gguf")
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn log() -> (Written, LogConfig) {
    let written = Written::default();
    let log = LogConfig { level: LogLevel::Normal, colour: false, sink: Box::new(written.clone()) };
    (written, log)
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    written: Written,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    /// One with the defaults, ready.
    pub(crate) async fn start() -> Server {
        Self::with(|_, _| {}).await
    }

    /// One that is ready, configured by `change`.
    pub(crate) async fn with(change: impl FnOnce(&mut EngineConfig, &mut ServerConfig)) -> Server {
        let server = Self::loading(change).await;
        server.engine.ready().await.unwrap();
        until("the server says that it listens", || async { server.log().contains("listening on http://") }).await;
        server
    }

    /// One whose model may still be loading.
    pub(crate) async fn loading(change: impl FnOnce(&mut EngineConfig, &mut ServerConfig)) -> Server {
        Self::listening("127.0.0.1", change).await
    }

    /// One on this host.
    pub(crate) async fn listening(host: &str, change: impl FnOnce(&mut EngineConfig, &mut ServerConfig)) -> Server {
        let (written, log) = log();
        let (mut engine, mut config) = (EngineConfig::new(model()), ServerConfig::new(log));
        engine.threads = 1;
        change(&mut engine, &mut config);
        Self::serve(Engine::start(engine).unwrap(), host, config, written).await
    }

    /// One of an engine that is ready.
    pub(crate) async fn around(engine: Engine, change: impl FnOnce(&mut ServerConfig)) -> Server {
        let (written, log) = log();
        let mut config = ServerConfig::new(log);
        change(&mut config);
        Self::serve(engine, "127.0.0.1", config, written).await
    }

    async fn serve(engine: Engine, host: &str, config: ServerConfig, written: Written) -> Server {
        let listener = bind(host, 0).await.unwrap();
        let address = listener.address();
        let (stop, stopped) = oneshot::channel();
        let stopped = async { drop(stopped.await) };
        let running = tokio::spawn(serve(engine.clone(), config, listener, stopped));
        Server { address, engine, written, stop, running }
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8(self.written.0.lock().unwrap().clone()).unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        send(self.address, "GET", path, &[], b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        send(self.address, "POST", path, &[("content-type", "application/json")], body.to_string().as_bytes()).await
    }

    /// Asks the server to end, without waiting.
    pub(crate) fn stop(self) -> JoinHandle<Result<(), ServeError>> {
        let _ = self.stop.send(());
        self.running
    }

    /// The end that the server comes to by itself.
    pub(crate) async fn end(self) -> Result<(), ServeError> {
        self.running.await.unwrap()
    }
}

/// Waits until `holds`, which must come true soon.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    for _ in 0..3000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in time: {what}");
}
