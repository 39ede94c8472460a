//! The tokens that a request took, in the one shape that every answer carries.

use bantam_runtime::engine::Outcome;
use serde::Serialize;

/// `usage`: the same fields whole and streamed, with chat and without; `cached_tokens` is 0 where nothing was found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptTokensDetails,
}

#[derive(Clone, Debug, Serialize)]
struct PromptTokensDetails {
    cached_tokens: usize,
}

impl From<&Outcome> for Usage {
    fn from(outcome: &Outcome) -> Self {
        Usage {
            prompt_tokens: outcome.prompt_tokens,
            completion_tokens: outcome.completion_tokens,
            total_tokens: outcome.prompt_tokens.saturating_add(outcome.completion_tokens),
            prompt_tokens_details: PromptTokensDetails { cached_tokens: outcome.cached_tokens },
        }
    }
}
