//! `POST /tokenize`, `/detokenize`, `/apply-template`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use bantam_runtime::engine::ModelInfo;
use bantam_text::{Specials, Tokenizer};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::fields::{Field, FieldError};
use crate::limits::JsonBody;
use crate::openai::conversation;

/// What `/tokenize` is asked.
struct Tokenize {
    content: String,
    /// Put the beginning-of-text token in front where the vocabulary asks for it.
    add_special: bool,
    /// Take spellings of control tokens for the tokens.
    parse_special: bool,
    /// Answer with each token's text beside its id.
    with_pieces: bool,
}

impl Tokenize {
    fn read(body: &Value) -> Result<Self, FieldError> {
        let fields = Field::body(body).object()?;
        Ok(Tokenize {
            content: fields.required("content")?.text()?.to_owned(),
            add_special: fields.flag("add_special")?.unwrap_or(false),
            parse_special: fields.flag("parse_special")?.unwrap_or(true),
            with_pieces: fields.flag("with_pieces")?.unwrap_or(false),
        })
    }

    fn run(&self, tokenizer: &Tokenizer) -> Result<Value, ApiError> {
        let specials = if self.parse_special { Specials::Parse } else { Specials::Plain };
        let ids = tokenizer.encode(&self.content, specials).map_err(|e| ApiError::internal(e.to_string()))?;
        let ids = if self.add_special { tokenizer.frame(ids) } else { ids };
        Ok(if self.with_pieces { ids.iter().map(|id| piece(tokenizer, *id)).collect() } else { json!(ids) })
    }
}

/// A token with its text, or with its bytes where it is only a part of a character.
fn piece(tokenizer: &Tokenizer, id: u32) -> Value {
    let bytes = tokenizer.token_bytes(id, false);
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({"id": id, "piece": text}),
        Err(_) => json!({"id": id, "piece": bytes}),
    }
}

pub(crate) async fn tokenize(State(app): State<App>, JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    let model = app.model()?;
    let asked = Tokenize::read(&body)?;
    let tokens = compute(&model, move |model| asked.run(&model.tokenizer)).await??;
    Ok(Json(json!({ "tokens": tokens })))
}

pub(crate) async fn detokenize(State(app): State<App>, JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    let model = app.model()?;
    let ids = tokens(&body, model.vocab)?;
    let bytes = compute(&model, move |model| model.tokenizer.decode(&ids, false)).await?;
    Ok(Json(json!({ "content": String::from_utf8_lossy(&bytes) })))
}

fn tokens(body: &Value, vocab: usize) -> Result<Vec<u32>, FieldError> {
    let id = |item: &Field<'_>| match item.token()? {
        id if (id as usize) < vocab => Ok(id),
        id => Err(item.error(format!("must be below {vocab}, the number of tokens, found {id}"))),
    };
    Field::body(body).object()?.required("tokens")?.items()?.iter().map(id).collect()
}

pub(crate) async fn apply_template(State(app): State<App>, JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    app.model()?;
    let chat = conversation(&Field::body(&body).object()?)?;
    let (prompt, tokens) = app.render(chat).await?;
    Ok(Json(json!({ "prompt": prompt, "n_tokens": tokens.len() })))
}

/// Does work that takes time away from the threads that serve connections.
async fn compute<T: Send + 'static>(
    model: &Arc<ModelInfo>,
    work: impl FnOnce(&ModelInfo) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let model = Arc::clone(model);
    tokio::task::spawn_blocking(move || work(&model)).await.map_err(|e| ApiError::internal(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_llama_cpp() {
        let asked = Tokenize::read(&json!({"content": "x"})).unwrap();
        assert!(!asked.add_special && asked.parse_special && !asked.with_pieces);
        assert_eq!(Tokenize::read(&json!({})).err().unwrap().path, "content");
    }

    #[test]
    fn ids_beyond_the_vocabulary_are_named() {
        assert_eq!(tokens(&json!({"tokens": [0, 9]}), 10).unwrap(), [0, 9]);
        let error = tokens(&json!({"tokens": [0, 10]}), 10).unwrap_err();
        assert_eq!(error.to_string(), "`tokens[1]` must be below 10, the number of tokens, found 10");
        assert!(tokens(&json!({"tokens": [-1]}), 10).is_err());
        assert!(tokens(&json!({"tokens": ["a"]}), 10).is_err());
    }
}
