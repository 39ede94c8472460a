//! The tokens that a request took, in the one shape that every answer carries.

use bantam_runtime::engine::Outcome;
use serde::Serialize;

/// `usage`: the same fields whole and streamed, with chat and without; `cached_tokens` is 0 where nothing was found.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptTokensDetails,
    completion_tokens_details: CompletionTokensDetails,
}

#[derive(Clone, Debug, Default, Serialize)]
struct PromptTokensDetails {
    cached_tokens: usize,
}

#[derive(Clone, Debug, Default, Serialize)]
struct CompletionTokensDetails {
    reasoning_tokens: usize,
}

impl Usage {
    /// Of these answers, `n` to each prompt one after the other. A prompt counts once: its answers share what it took.
    pub(crate) fn of(outcomes: &[Outcome], n: usize) -> Self {
        let sum = |count: fn(&Outcome) -> usize| outcomes.iter().map(count).fold(0, usize::saturating_add);
        let prompts = || outcomes.chunks(n.max(1));
        let cached = |answers: &[Outcome]| answers.iter().map(|outcome| outcome.cached_tokens).min().unwrap_or(0);
        let prompt_tokens = prompts().filter_map(|answers| Some(answers.first()?.prompt_tokens)).sum();
        let completion_tokens = sum(|outcome| outcome.completion_tokens);
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            prompt_tokens_details: PromptTokensDetails { cached_tokens: prompts().map(cached).sum() },
            completion_tokens_details: CompletionTokensDetails {
                reasoning_tokens: sum(|outcome| outcome.reasoning_tokens),
            },
        }
    }
}
