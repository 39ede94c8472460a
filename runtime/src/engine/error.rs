//! Why an engine cannot start, and why a request is not taken.

/// Why an engine cannot serve.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The model cannot be loaded.
    #[error("{0}")]
    Load(String),
    /// The actors cannot be started or have stopped.
    #[error("the runtime stopped: {0}")]
    Stopped(String),
}

/// Why a request is not taken. Nothing was computed for it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// As many requests as `--concurrency` allows are here already.
    #[error("the server is busy with {limit} requests; try again in {retry_after_s} s or raise --concurrency")]
    Busy {
        /// The limit.
        limit: usize,
        /// When to try again.
        retry_after_s: u64,
    },
    /// Loading, failed to load, or shutting down.
    #[error("{0}")]
    NotReady(String),
    /// Prompt and output do not fit the window.
    #[error(
        "This model's maximum context length is {context} tokens. However, you requested {} tokens ({prompt_tokens} in \
         the prompt, {max_tokens} for the completion). Please reduce the length of the prompt or the completion.",
        prompt_tokens + max_tokens
    )]
    ContextExceeded {
        /// Tokens of the prompt; of one that is far too long no more than its bytes prove.
        prompt_tokens: usize,
        /// Tokens asked for.
        max_tokens: usize,
        /// The window.
        context: usize,
    },
    /// The chat template refuses the conversation.
    #[error("{0}")]
    Template(String),
    /// There is no chat template, or none that can be used.
    #[error("{0}")]
    NoTemplate(String),
    /// A field has a value that cannot be.
    #[error("`{field}` {why}")]
    Invalid {
        /// The field.
        field: String,
        /// What was expected, what was found: a clause that follows the field's name.
        why: String,
    },
    /// A fault of the runtime.
    #[error("internal error: {0}")]
    Internal(String),
}
