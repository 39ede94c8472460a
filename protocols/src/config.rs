//! What a server is started with, beside the engine.

use std::time::Duration;

use crate::log::LogConfig;
use crate::normalize::TotalTokens;
use crate::transcript::TranscriptConfig;

/// Choices that hold for the life of a server. [`ServerConfig::new`] gives the defaults of `serve`.
#[derive(Debug)]
pub struct ServerConfig {
    /// Keys of which a request must carry one, as `Authorization: Bearer` or `x-api-key`; empty: none is asked for.
    pub api_keys: Vec<String>,
    /// Origins whose pages may call the API: `*`, or a list separated by commas; empty: none.
    pub cors_origin: String,
    /// Whether `/health` and `/ready` tell everybody, where there is a key, that the server is up, and nothing more.
    pub open_probes: bool,
    /// Names besides this machine's own by which a server on the loopback address may be called.
    pub allowed_hosts: Vec<String>,
    /// Further names of the resident model.
    pub model_aliases: Vec<String>,
    /// Whether what agents write into every request anew is made the same, so that requests share what they begin with.
    pub normalize: bool,
    /// What becomes of a client's count of the tokens that are left.
    pub total_tokens: TotalTokens,
    /// Refuse requests that name another model than the resident one, instead of answering with that.
    pub strict_model: bool,
    /// Connections served at once. Where none of them rests, requests on further ones are refused, `/health` apart.
    pub max_connections: usize,
    /// Largest request body in bytes.
    pub max_body_bytes: usize,
    /// Longest time in which a request's head, and then its body, must have arrived.
    pub request_timeout: Duration,
    /// Longest silence in a stream before a sign of life is sent.
    pub sse_keepalive: Duration,
    /// Where each generation leaves a transcript.
    pub transcripts: Option<TranscriptConfig>,
    /// The log.
    pub log: LogConfig,
}

impl ServerConfig {
    /// The defaults, with this log.
    pub fn new(log: LogConfig) -> Self {
        ServerConfig {
            api_keys: Vec::new(),
            cors_origin: "*".to_owned(),
            open_probes: false,
            allowed_hosts: Vec::new(),
            model_aliases: Vec::new(),
            normalize: true,
            total_tokens: TotalTokens::Default,
            strict_model: false,
            max_connections: 128,
            max_body_bytes: 16 << 20,
            request_timeout: Duration::from_secs(30),
            sse_keepalive: Duration::from_secs(5),
            transcripts: None,
            log,
        }
    }
}
