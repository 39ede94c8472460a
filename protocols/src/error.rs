//! Errors as clients see them: the status, the message, and the machine-readable type, code and parameter.
//!
//! The texts name the field and never a path of this machine or a key.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bantam_runtime::engine::{Failure, Refusal};
use bantam_runtime::words::brief;
use serde_json::{Value, json};

use crate::fields::FieldError;

/// A refused or failed request. Its response carries it along, for the log and for protocols that tell errors otherwise.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// What clients branch on: `context_length_exceeded`, `model_not_found`, ….
    pub(crate) code: Option<&'static str>,
    /// The field at fault.
    pub(crate) param: Option<String>,
    /// Seconds after which trying again makes sense.
    pub(crate) retry_after_s: Option<u64>,
    /// Further numbers about the fault, beside the fields that every error has.
    pub(crate) details: Vec<(&'static str, usize)>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError {
            status,
            message: brief(&message.into()),
            code: None,
            param: None,
            retry_after_s: None,
            details: Vec::new(),
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>, retry_after_s: u64) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message).code("service_unavailable").retry_after(retry_after_s)
    }

    /// More than the server takes at once.
    pub(crate) fn too_many(message: impl Into<String>, retry_after_s: u64) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, message).code("rate_limit_exceeded").retry_after(retry_after_s)
    }

    /// What clients of other servers ask for, and this one does not do.
    pub(crate) fn not_supported(message: impl Into<String>) -> Self {
        Self::bad_request(message).code("not_supported")
    }

    pub(crate) fn model_not_found(model: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("The model `{model}` does not exist; GET /v1/models lists what does"))
            .code("model_not_found")
            .param("model")
    }

    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// The same with the fields' names of another protocol: each of these parts of a name becomes the other.
    pub(crate) fn in_names(mut self, names: &[(&str, &str)]) -> Self {
        if let Some(param) = self.param.take() {
            let told = names.iter().fold(param.clone(), |told, (from, to)| told.replace(from, to));
            self.message = self.message.replace(&format!("`{param}`"), &format!("`{told}`"));
            self.param = Some(told);
        }
        self
    }

    /// The error's class, as OpenAI names them.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// `{"error": {…}}`, the body of a response or the last event of a stream.
    pub(crate) fn body(&self) -> Value {
        let mut error = json!({
            "message": self.message, "type": self.kind(), "code": self.code, "param": self.param,
        });
        for (name, number) in &self.details {
            error[*name] = json!(number);
        }
        json!({ "error": error })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        let refused = ApiError::bad_request(error.to_string());
        if error.path.is_empty() { refused } else { refused.param(error.path) }
    }
}

impl ApiError {
    /// A request that the runtime took and could not bring to its end.
    pub(crate) fn failed(failure: &Failure) -> Self {
        match failure {
            Failure::Fault(why) => ApiError::internal(why),
            Failure::Deadline { .. } => ApiError::new(StatusCode::GATEWAY_TIMEOUT, failure.to_string())
                .code("deadline_exceeded")
                .param("deadline_ms"),
        }
    }

    /// A request that the runtime did not take; `prompt` is the field that holds its prompt.
    pub(crate) fn refused(refusal: Refusal, prompt: &'static str) -> Self {
        match refusal {
            Refusal::Busy { retry_after_s, .. } => ApiError::too_many(refusal.to_string(), retry_after_s),
            Refusal::NotReady(why) => ApiError::unavailable(why, 2),
            Refusal::ContextExceeded { prompt_tokens, max_tokens, context } => {
                Self::context_exceeded(prompt, prompt_tokens, max_tokens, context)
            }
            Refusal::Template(why) => ApiError::bad_request(why).param(prompt),
            Refusal::NoTemplate(why) => {
                ApiError::bad_request(format!("{why}: send the text to /v1/completions")).param(prompt)
            }
            Refusal::Invalid { field, why } => FieldError::new(field, why).into(),
            Refusal::Internal(why) => ApiError::internal(why),
        }
    }

    /// A prompt over the window. Agents recognise this by the code or by phrases in the text, then compact their history;
    /// the sentence has the phrases of OpenAI's and of llama.cpp's servers.
    pub(crate) fn context_exceeded(field: &'static str, prompt: usize, completion: usize, context: usize) -> ApiError {
        let total = prompt.saturating_add(completion);
        let mut error = ApiError::bad_request(format!(
            "This model's maximum context length is {context} tokens. However, you requested {total} tokens ({prompt} in \
             the {field}, {completion} in the completion). Please reduce the length of the {field} or completion; the \
             request exceeds the available context size."
        ))
        .code("context_length_exceeded")
        .param(field);
        error.details = vec![("n_prompt_tokens", prompt), ("n_ctx", context)];
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_openais_shape() {
        let error = ApiError::from(FieldError::new("messages[2].content", "must be a string, found an integer"));
        let expected = json!({"error": {
            "message": "`messages[2].content` must be a string, found an integer",
            "type": "invalid_request_error", "code": null, "param": "messages[2].content",
        }});
        assert_eq!(error.body(), expected);
    }

    #[test]
    fn fields_are_told_by_the_names_of_their_protocol() {
        let field = "tools[1].function.parameters";
        let error = ApiError::from(FieldError::new(field, "at #/properties/a cannot be kept"));
        let told = error.in_names(&[("x", "y"), (".function.parameters", ".input_schema")]);
        assert_eq!(told.param.as_deref(), Some("tools[1].input_schema"));
        assert_eq!(told.message, "`tools[1].input_schema` at #/properties/a cannot be kept");
        assert_eq!(ApiError::bad_request("x").in_names(&[("x", "y")]).message, "x");
    }

    #[test]
    fn refusals_become_their_status() {
        let invalid = Refusal::Invalid { field: "top_p".into(), why: "must be at most 1, found 2".into() };
        let cases = [
            (Refusal::Busy { limit: 64, retry_after_s: 3 }, 429, "rate_limit_error", Some("rate_limit_exceeded")),
            (Refusal::NotReady("the server is shutting down".into()), 503, "server_error", Some("service_unavailable")),
            (Refusal::Template("no system message".into()), 400, "invalid_request_error", None),
            (invalid, 400, "invalid_request_error", None),
            (Refusal::Internal("oops".into()), 500, "server_error", None),
        ];
        for (refusal, status, kind, code) in cases {
            let error = ApiError::refused(refusal, "messages");
            assert_eq!((error.status.as_u16(), error.kind(), error.code), (status, kind, code));
        }
    }

    #[test]
    fn those_who_should_come_back_are_told_when() {
        let response = ApiError::refused(Refusal::Busy { limit: 64, retry_after_s: 3 }, "prompt").into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "3");
        let response = ApiError::new(StatusCode::UNAUTHORIZED, "no").into_response();
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
    }

    /// Phrases by which agents know that they must shorten the conversation.
    #[test]
    fn agents_recognise_a_full_window() {
        let full = || Refusal::ContextExceeded { prompt_tokens: 9001, max_tokens: 100, context: 8192 };
        let text = ApiError::refused(full(), "prompt");
        assert!(text.message.contains("(9001 in the prompt, 100 in the completion)"), "{}", text.message);
        assert_eq!(text.param.as_deref(), Some("prompt"));
        let error = ApiError::refused(full(), "messages");
        assert_eq!((error.status.as_u16(), error.code), (400, Some("context_length_exceeded")));
        let phrases = [
            "maximum context length is 8192 tokens",
            "you requested 9101 tokens",
            "reduce the length of the messages",
            "exceeds the available context size",
        ];
        for phrase in phrases {
            assert!(error.message.contains(phrase), "{phrase}");
        }
        let body = error.body();
        assert_eq!((&body["error"]["n_prompt_tokens"], &body["error"]["n_ctx"]), (&json!(9001), &json!(8192)));
    }
}
