//! The prompts of `/completion`: texts, tokens, and both in one.

use bantam_runtime::engine::{ModelInfo, Prompt};
use bantam_text::Specials;
use serde_json::Value;

use crate::error::ApiError;
use crate::fields::{Field, FieldError};
use crate::llama::text::Part;

/// The prompts that are asked for, and whether they came as a list.
pub(super) fn read(field: &Field<'_>) -> Result<Vec<Vec<Part>>, FieldError> {
    match field.value() {
        Value::Array(items) if items.is_empty() => Err(field.error("must not be empty")),
        // An array with a number in it, and nothing that is a prompt by itself alone, is one prompt.
        Value::Array(items)
            if items.iter().any(Value::is_number) && !items.iter().any(|item| item.is_array() || item.is_object()) =>
        {
            Ok(vec![one(field)?])
        }
        Value::Array(_) => field.items()?.iter().map(one).collect(),
        _ => Ok(vec![one(field)?]),
    }
}

fn one(field: &Field<'_>) -> Result<Vec<Part>, FieldError> {
    match field.value() {
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        Value::Array(items) if items.is_empty() => Err(field.error("must not be empty")),
        Value::Array(_) => field.items()?.iter().map(Part::read).collect(),
        Value::Object(_) => {
            let object = field.object()?;
            if let Some(data) = object.items("multimodal_data")?.filter(|data| !data.is_empty()) {
                let path = format!("{}.multimodal_data", field.path());
                return Err(FieldError::new(path, format!("has {} parts; the model takes text only", data.len())));
            }
            Ok(vec![Part::Text(object.required("prompt_string")?.text()?.to_owned())])
        }
        _ => Err(field.expected("a string, an array of token ids and strings, or an array of prompts")),
    }
}

/// The prompt as the runtime takes it. What begins with a text begins with the token that begins texts.
///
/// # Errors
/// A text that is too long whatever its tokens are.
pub(super) fn prompt(mut parts: Vec<Part>, model: &ModelInfo) -> Result<Prompt, ApiError> {
    if let [Part::Text(text)] = parts.as_mut_slice() {
        return Ok(Prompt::Text(std::mem::take(text)));
    }
    let bytes = parts.iter().map(|part| if let Part::Text(text) = part { text.len() } else { 0 }).sum();
    let fewest = model.tokenizer.fewest_tokens(bytes);
    if fewest > model.context {
        return Err(ApiError::context_exceeded("prompt", fewest, 1, model.context));
    }
    let begins_with_text = matches!(parts.first(), Some(Part::Text(_)));
    let mut tokens = Vec::new();
    for part in parts {
        match part {
            Part::Token(id) => tokens.push(id),
            Part::Text(text) => {
                let encoded = model.tokenizer.encode(&text, Specials::Parse);
                tokens.extend(encoded.map_err(|e| ApiError::internal(e.to_string()))?);
            }
        }
    }
    Ok(Prompt::Tokens(if begins_with_text { begun(tokens, model) } else { tokens }))
}

/// The tokens with the one in front that begins texts, where the vocabulary asks for it.
pub(super) fn begun(mut tokens: Vec<u32>, model: &ModelInfo) -> Vec<u32> {
    let tokenizer = &model.tokenizer;
    if let Some(bos) = tokenizer.bos().filter(|bos| tokenizer.add_bos() && tokens.first() != Some(bos)) {
        tokens.insert(0, bos);
    }
    tokens
}

/// Its text.
pub(super) fn text(prompt: &Prompt, model: &ModelInfo) -> String {
    match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Tokens(tokens) => String::from_utf8_lossy(&model.tokenizer.decode(tokens, false)).into_owned(),
        Prompt::Chat(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prompts(given: &Value) -> Result<Vec<Vec<Part>>, String> {
        read(&Field::at("prompt".into(), given)).map_err(|e| e.to_string())
    }

    #[test]
    fn prompts_come_alone_mixed_and_in_lists() {
        let text = |text: &str| Part::Text(text.into());
        assert_eq!(prompts(&json!("a")).unwrap(), [[text("a")]]);
        assert_eq!(prompts(&json!([1, 2])).unwrap(), [[Part::Token(1), Part::Token(2)]]);
        assert_eq!(prompts(&json!([1, "a", 2])).unwrap(), [[Part::Token(1), text("a"), Part::Token(2)]]);
        assert_eq!(prompts(&json!(["a", "b"])).unwrap(), [[text("a")], [text("b")]]);
        let all = json!([[1, "a"], [2], "b", {"prompt_string": "c"}]);
        let read = prompts(&all).unwrap();
        assert_eq!(read, [vec![Part::Token(1), text("a")], vec![Part::Token(2)], vec![text("b")], vec![text("c")]]);
    }

    #[test]
    fn what_is_no_prompt_is_named() {
        let cases = [
            (json!([]), "`prompt` must not be empty"),
            (json!(["a", []]), "`prompt[1]` must not be empty"),
            (json!([1, true]), "`prompt[1]` must be a string or a token id, found a boolean"),
            (
                json!([[1], 7]),
                "`prompt[1]` must be a string, an array of token ids and strings, or an array of prompts",
            ),
            (json!(7), "`prompt` must be a string, an array"),
            (json!([-1]), "`prompt[0]` must be between 0 and 4294967295, found -1"),
            (json!({"text": "a"}), "`prompt.prompt_string` is required"),
            (json!([{"prompt_string": "a", "multimodal_data": ["x"]}]), "`prompt[0].multimodal_data` has 1 parts"),
        ];
        for (given, problem) in cases {
            let told = prompts(&given).unwrap_err();
            assert!(told.starts_with(problem), "{told}");
        }
    }
}
