//! HTTP protocols over the runtime: OpenAI's, Anthropic's, llama.cpp's control routes, and the server that carries them.
//!
//! Wire forms live here only. A request is checked field by field (`fields`), converted at once into the runtime's own
//! terms, and its events are told back in the protocol's (`answer`). A protocol is a folder: what it takes, what it
//! answers with, and how it tells a stream.
//!
//! What every request passes, from the outside in: the limit of connections and the time for its head (`server`), CORS,
//! the log (`log`), the catcher of panics, the key (`auth`), the limits of its body (`limits`).

mod answer;
mod anthropic;
mod app;
mod auth;
mod config;
mod error;
mod fields;
mod inside;
mod limits;
mod live;
mod llama;
mod log;
mod metrics;
mod normalize;
mod openai;
mod openapi;
mod responses;
mod server;
mod transcript;

pub use config::ServerConfig;
pub use log::{LogConfig, LogLevel};
pub use normalize::TotalTokens;
pub use server::{BindError, Listener, ServeError, bind, check_origins, serve};
pub use transcript::TranscriptConfig;
