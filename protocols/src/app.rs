//! What every handler can reach: the engine, the log and the rules of this server.

use std::sync::Arc;
use std::time::Duration;

use bantam_runtime::engine::{ChatPrompt, Engine, ModelInfo, Prompt, Readiness, Request};

use crate::answer::Answer;
use crate::error::ApiError;
use crate::live::Live;
use crate::log::{Arrival, Log, PendingRow};
use crate::metrics::{Observation, Requests};
use crate::normalize::Normalizer;
use crate::responses;
use crate::transcript::TranscriptConfig;

/// Seconds after which to ask again while the model loads.
pub(crate) const RETRY_LOADING_S: u64 = 2;

pub(crate) type App = Arc<AppState>;

pub(crate) struct AppState {
    pub(crate) engine: Engine,
    pub(crate) log: Arc<Log>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) keys: Vec<String>,
    pub(crate) open_probes: bool,
    /// On the loopback address: names by which the server may be called, besides this machine's own.
    pub(crate) allowed_hosts: Option<Vec<String>>,
    pub(crate) model_aliases: Vec<String>,
    pub(crate) normalizer: Normalizer,
    pub(crate) live: Arc<Live>,
    pub(crate) responses: Arc<responses::Store>,
    pub(crate) transcripts: Option<TranscriptConfig>,
    pub(crate) strict_model: bool,
    pub(crate) max_body_bytes: usize,
    pub(crate) request_timeout: Duration,
    pub(crate) sse_keepalive: Duration,
}

impl AppState {
    /// The resident model, or the 503 that says why there is none.
    pub(crate) fn model(&self) -> Result<Arc<ModelInfo>, ApiError> {
        match self.engine.readiness() {
            Readiness::Ready(model) => Ok(model),
            Readiness::Loading(_) => {
                Err(ApiError::unavailable("The model is still being loaded", RETRY_LOADING_S).code("model_loading"))
            }
            Readiness::Failed(_) => Err(ApiError::unavailable("The model could not be loaded", RETRY_LOADING_S)),
            Readiness::Draining => Err(ApiError::unavailable("The server is shutting down", RETRY_LOADING_S)),
        }
    }

    /// Refuses a name that is not the resident model's where the server is strict about it.
    pub(crate) fn check_model(&self, asked: Option<&str>, resident: &ModelInfo) -> Result<(), ApiError> {
        match asked {
            Some(name) if self.strict_model && !self.is_model(name, resident) => Err(ApiError::model_not_found(name)),
            _ => Ok(()),
        }
    }

    /// Whether this is one of the resident model's names.
    pub(crate) fn is_model(&self, name: &str, resident: &ModelInfo) -> bool {
        name == resident.name || self.model_aliases.iter().any(|alias| alias == name)
    }

    /// Starts generations that are told together. If one is refused, none of them goes on.
    pub(crate) async fn submit_all(
        &self,
        endpoint: &'static str,
        arrival: Arrival,
        requests: Vec<Request>,
    ) -> Result<Vec<Answer>, ApiError> {
        let most = self.engine.config().concurrency;
        if requests.len() > most {
            let message = format!("`n` asks for {} answers; this server takes {most} at once", requests.len());
            return Err(ApiError::bad_request(message).param("n"));
        }
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(self.submit(endpoint, arrival, request).await?);
        }
        Ok(answers)
    }

    /// The prompt that a conversation becomes: its text and its tokens.
    pub(crate) async fn render(&self, mut chat: ChatPrompt) -> Result<(String, Vec<u32>), ApiError> {
        self.normalizer.apply(&mut chat);
        self.engine.render(chat).await.map_err(|refusal| ApiError::refused(refusal, "messages"))
    }

    /// Starts a generation, with the row that its end will write and the figures that it adds to.
    pub(crate) async fn submit(
        &self,
        endpoint: &'static str,
        arrival: Arrival,
        mut request: Request,
    ) -> Result<Answer, ApiError> {
        if let Prompt::Chat(chat) = &mut request.prompt {
            self.normalizer.apply(chat);
        }
        request.keep_prompt = self.transcripts.is_some();
        let prompt = if matches!(request.prompt, Prompt::Chat(_)) { "messages" } else { "prompt" };
        let submitted = self.engine.submit(request).await;
        let generation = submitted.map_err(|refusal| ApiError::refused(refusal, prompt))?;
        let row = PendingRow::new(Arc::clone(&self.log), endpoint, arrival, generation.prompt_tokens());
        Ok(Answer::new(generation, row, Observation::new(Arc::clone(&self.requests), arrival)))
    }
}
