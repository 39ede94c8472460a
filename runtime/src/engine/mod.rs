//! The runtime's front: start an engine, submit requests, read what it is doing.
//!
//! ```ignore
//! let engine = Engine::start(EngineConfig::new("model.gguf"))?;
//! engine.ready().await?;
//! let mut generation = engine.submit(Request::new(Prompt::Text("Once".into()))).await?;
//! while let Some(event) = generation.next().await { … }
//! ```
//!
//! Dropping a [`Generation`] cancels it; its slot is free again within one step.

mod asked;
mod config;
mod continued;
mod defaults;
mod error;
mod event;
mod gate;
mod generation;
mod handle;
mod inside;
mod miss;
mod prepare;
mod request;
pub(crate) mod sequel;
mod state;
mod status;

pub use bantam_grammar::{ResponseFormat, ToolChoice};
pub use bantam_text::{Call, Part, Piece, Turn};
pub use config::{AnswerRules, CacheSize, EngineConfig};
pub use defaults::SamplingDefaults;
pub(crate) use defaults::{of_generation_config, of_metadata, or};
pub use error::{EngineError, Refusal};
pub use event::{Delta, Event, Failure, FinishReason, Outcome, TokenLogprob};
pub(crate) use gate::Place;
pub(crate) use generation::CancelFlag;
pub use generation::{Generation, StopThinking};
pub use handle::Engine;
pub(crate) use handle::{Link, Prepared};
pub use miss::{Difference, Miss};
pub use request::{ChatPrompt, Prompt, Request};
pub use status::{
    ActorState, ActorStatus, DeviceStatus, MemoryEntry, MemoryStatus, MixtureStatus, ModelInfo, QueuedStatus,
    Readiness, SlotState, SlotStatus, StateStatus, Status,
};
