//! `logit_bias` in llama.cpp's forms: tokens by their ids or as texts, as pairs or in an object.

use bantam_text::{Specials, Tokenizer};
use serde_json::Value;

use crate::fields::{Field, FieldError, Fields};

/// The bias of each token that has one. A text's is that of each of its tokens.
pub(super) fn read(fields: &Fields<'_>, tokenizer: &Tokenizer) -> Result<Option<Vec<(u32, f32)>>, FieldError> {
    let Some(field) = fields.get("logit_bias") else { return Ok(None) };
    let mut biases = Vec::new();
    match field.value() {
        Value::Array(_) => {
            for pair in field.items()? {
                let items = pair.items()?;
                let [token, bias] = items.as_slice() else {
                    return Err(pair.error("must be a token, by its id or as a text, and a bias"));
                };
                let tokens = match token.value() {
                    Value::String(text) => of_text(token, text, tokenizer)?,
                    Value::Number(_) => vec![token.token()?],
                    _ => return Err(token.expected("a token id or a text")),
                };
                add(&mut biases, tokens, number(bias)?);
            }
        }
        Value::Object(map) => {
            let object = field.object()?;
            for (key, value) in map {
                let bias = Field::at(object.path_of(key), value);
                let id = key.parse::<u32>().ok().filter(|id| id.to_string() == *key);
                let tokens = match id {
                    Some(id) => vec![id],
                    None => of_text(&bias, key, tokenizer)?,
                };
                add(&mut biases, tokens, number(&bias)?);
            }
        }
        _ => return Err(field.expected("an array of pairs, or an object")),
    }
    Ok(Some(biases))
}

fn add(biases: &mut Vec<(u32, f32)>, tokens: Vec<u32>, bias: f32) {
    biases.extend(tokens.into_iter().map(|token| (token, bias)));
}

/// Its tokens, each once.
fn of_text(field: &Field<'_>, text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>, FieldError> {
    let mut tokens = tokenizer.encode(text, Specials::Plain).map_err(|e| field.error(format!("has no tokens: {e}")))?;
    tokens.sort_unstable();
    tokens.dedup();
    Ok(tokens)
}

/// `false` rules a token out.
fn number(field: &Field<'_>) -> Result<f32, FieldError> {
    match field.value() {
        Value::Bool(false) => Ok(f32::NEG_INFINITY),
        Value::Number(_) => field.number(),
        _ => Err(field.expected("a number, or false")),
    }
}
