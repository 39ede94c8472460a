//! Transcripts, for finding out why a harness failed: what the client sent, what the model saw of it, what came back.
//!
//! With `BANTAM_TRANSCRIPT_DUMP=DIR` each generation leaves a file there. They hold what conversations are made of, so only
//! their owner can read them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use futures::StreamExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::log::Arrival;

/// Most of an answer that is kept.
const MOST_ANSWER: usize = 64 << 20;

/// Where transcripts go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptConfig {
    /// The directory.
    pub directory: PathBuf,
    /// Whether the prompts are kept; otherwise a digest of each.
    pub prompts: bool,
}

/// Beside a generation's response: the prompts that its model saw.
#[derive(Clone, Debug)]
pub(crate) struct Seen(pub(crate) Vec<Arc<str>>);

/// One request on its way.
struct Transcript {
    config: TranscriptConfig,
    id: String,
    endpoint: String,
    request: Value,
    status: u16,
    seen: Vec<Arc<str>>,
    answer: Vec<u8>,
}

/// Writes a transcript of a generation once its answer has ended, or its client has left.
pub(crate) async fn transcribe(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(config) = app.transcripts.clone().filter(|_| request.method() == Method::POST) else {
        return next.run(request).await;
    };
    let (parts, body) = request.into_parts();
    let id = parts.extensions.get::<Arrival>().map(Arrival::id).unwrap_or_default();
    let endpoint = parts.uri.path().to_owned();
    // What is longer is refused by who reads it next; what breaks off is read as far as it came.
    let (bytes, rest) = head(body, app.max_body_bytes).await;
    let told = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    let response = next.run(Request::from_parts(parts, rest)).await;
    let Some(Seen(seen)) = response.extensions().get::<Seen>().cloned() else { return response };
    let status = response.status().as_u16();
    let transcript = Transcript { config, id, endpoint, request: told, status, seen, answer: Vec::new() };
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, Body::from_stream(recorded(body, transcript)))
}

/// The first `most` bytes of a body, and the whole of it again.
async fn head(body: Body, most: usize) -> (Vec<u8>, Body) {
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut taken) = (Vec::new(), Vec::new());
    while bytes.len() <= most {
        match chunks.next().await {
            Some(Ok(chunk)) => {
                bytes.extend_from_slice(&chunk);
                taken.push(Ok(chunk));
            }
            Some(Err(error)) => {
                taken.push(Err(error));
                break;
            }
            None => break,
        }
    }
    (bytes, Body::from_stream(futures::stream::iter(taken).chain(chunks)))
}

fn recorded(body: Body, mut transcript: Transcript) -> impl futures::Stream<Item = Result<Bytes, axum::Error>> + Send {
    async_stream::stream! {
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            if let Ok(chunk) = &chunk
                && transcript.answer.len() + chunk.len() <= MOST_ANSWER
            {
                transcript.answer.extend_from_slice(chunk);
            }
            yield chunk;
        }
    }
}

impl Transcript {
    fn record(&self) -> Value {
        let seen = |prompt: &Arc<str>| match self.config.prompts {
            true => json!(&**prompt),
            false => json!({"sha256": format!("{:x}", Sha256::digest(prompt.as_bytes())), "bytes": prompt.len()}),
        };
        let answer = serde_json::from_slice(&self.answer);
        json!({
            "request_id": self.id,
            "time": jiff::Timestamp::now().to_string(),
            "endpoint": self.endpoint,
            "status": self.status,
            "request": self.request,
            "prompts": self.seen.iter().map(seen).collect::<Vec<_>>(),
            "answer": answer.unwrap_or_else(|_| json!(String::from_utf8_lossy(&self.answer))),
        })
    }

    fn path(&self) -> PathBuf {
        let time = jiff::ZonedDateTime::now().strftime("%Y%m%d-%H%M%S");
        self.config.directory.join(format!("{time}-{}.json", self.id))
    }
}

impl Drop for Transcript {
    fn drop(&mut self) {
        let (path, record) = (self.path(), self.record());
        // The answer has gone out: nobody waits for this.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = write(&path, &record) {
                tracing::warn!("a transcript cannot be written to {}: {error}", path.display());
            }
        });
    }
}

fn write(path: &Path, record: &Value) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(&serde_json::to_vec_pretty(record)?)
}
