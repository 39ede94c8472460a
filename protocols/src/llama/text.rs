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

/// A part of what `/tokenize` is asked, or of a prompt.
#[derive(Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    Token(u32),
}

impl Part {
    pub(super) fn read(field: &Field<'_>) -> Result<Self, FieldError> {
        match field.value() {
            Value::String(text) => Ok(Part::Text(text.clone())),
            Value::Number(_) => field.token().map(Part::Token),
            _ => Err(field.expected("a string or a token id")),
        }
    }
}

/// What `/tokenize` is asked.
struct Tokenize {
    /// One after the other; a text alone is one.
    content: Vec<Part>,
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
        let content = fields.required("content")?;
        let content = match content.value() {
            Value::Array(_) => content.items()?.iter().map(Part::read).collect::<Result<_, _>>()?,
            _ => vec![Part::Text(content.text()?.to_owned())],
        };
        Ok(Tokenize {
            content,
            add_special: fields.flag("add_special")?.unwrap_or(false),
            parse_special: fields.flag("parse_special")?.unwrap_or(true),
            with_pieces: fields.flag("with_pieces")?.unwrap_or(false),
        })
    }

    fn run(&self, tokenizer: &Tokenizer) -> Result<Value, ApiError> {
        let specials = if self.parse_special { Specials::Parse } else { Specials::Plain };
        let mut ids = Vec::new();
        for part in &self.content {
            match part {
                Part::Text(text) => {
                    ids.extend(tokenizer.encode(text, specials).map_err(|e| ApiError::internal(e.to_string()))?);
                }
                Part::Token(id) if (*id as usize) < tokenizer.vocab_size() => ids.push(*id),
                Part::Token(id) => {
                    let problem = format!("has tokens below {} only, found {id}", tokenizer.vocab_size());
                    return Err(FieldError::new("content", problem).into());
                }
            }
        }
        let ids = if self.add_special { tokenizer.frame(ids) } else { ids };
        Ok(if self.with_pieces { pieces(tokenizer, &ids) } else { json!(ids) })
    }
}

/// Each token with its text, or with its bytes where it is only a part of a character; control tokens are told as such.
fn pieces(tokenizer: &Tokenizer, ids: &[u32]) -> Value {
    let piece = |id: &u32| {
        let bytes = tokenizer.token_bytes(*id, false);
        let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text));
        let mut token = json!({"id": id, "piece": piece});
        if tokenizer.is_control(*id) {
            token["special"] = json!(true);
        }
        token
    };
    ids.iter().map(piece).collect()
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
    let model = app.model()?;
    let fields = Field::body(&body).object()?;
    let with_pieces = fields.flag("with_pieces")?.unwrap_or(false);
    let (prompt, tokens) = app.render(conversation(&fields)?).await?;
    let mut told = json!({ "prompt": prompt, "n_tokens": tokens.len() });
    if with_pieces {
        told["tokens"] = compute(&model, move |model| pieces(&model.tokenizer, &tokens)).await?;
    }
    Ok(Json(told))
}

/// Does work that takes time away from the threads that serve connections.
pub(super) async fn compute<T: Send + 'static>(
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
        let mixed = Tokenize::read(&json!({"content": [7, "x"]})).unwrap();
        assert_eq!(mixed.content, [Part::Token(7), Part::Text("x".into())]);
        assert_eq!(Tokenize::read(&json!({"content": ["x", {}]})).err().unwrap().path, "content[1]");
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
