//! Sampling options from where they may come: the request, the server's flags, the model's own files, the built-in ones.

use std::path::{Path, PathBuf};

use bantam_gguf::Metadata;
use serde_json::{Value, json};

use crate::sampling::{ParamError, SamplingOverrides, SamplingParams, resolve};

/// What holds where a request says nothing.
#[derive(Clone, Debug, Default)]
pub struct SamplingDefaults {
    /// Given to the server.
    pub flags: SamplingOverrides,
    /// Recommended by the model: `generation_config.json` beside it, then the `general.sampling.*` keys of the file.
    pub model: SamplingOverrides,
}

impl SamplingDefaults {
    /// What holds for a request.
    ///
    /// # Errors
    /// The first value that cannot be.
    pub fn with(&self, request: &SamplingOverrides) -> Result<SamplingParams, ParamError> {
        resolve(request, &self.flags, &self.model)
    }

    /// Each option's value and where it comes from, for people.
    ///
    /// # Errors
    /// The first value that cannot be.
    pub fn origins(&self) -> Result<Vec<(&'static str, Value, &'static str)>, ParamError> {
        let resolved = self.with(&SamplingOverrides::default())?;
        let origin = |flag: bool, model: bool| match (flag, model) {
            (true, _) => "server flag",
            (_, true) => "model",
            _ => "built-in",
        };
        macro_rules! rows {
            ($($field:ident),*) => {
                vec![$((
                    stringify!($field),
                    json!(resolved.$field),
                    origin(self.flags.$field.is_some(), self.model.$field.is_some()),
                )),*]
            };
        }
        Ok(rows!(
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            penalty_window,
            seed
        ))
    }
}

/// What a `generation_config.json` says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct GenerationConfig {
    /// The options that it recommends.
    pub(crate) sampling: SamplingOverrides,
    /// Tokens that end an answer.
    pub(crate) end_tokens: Vec<u32>,
}

impl GenerationConfig {
    /// The end tokens that a vocabulary of this size has; others are warned of.
    pub(crate) fn end_tokens_below(&self, vocab: usize, model: &Path) -> Vec<u32> {
        let (known, unknown): (Vec<u32>, Vec<u32>) = self.end_tokens.iter().partition(|id| (**id as usize) < vocab);
        if !unknown.is_empty() {
            let file = generation_file(model);
            tracing::warn!(
                "{}: eos_token_id names {unknown:?}, expected ids below {vocab}; passed over",
                file.display()
            );
        }
        known
    }
}

fn generation_file(model: &Path) -> PathBuf {
    const FILE: &str = "generation_config.json";
    if model.is_dir() { model.join(FILE) } else { model.with_file_name(FILE) }
}

/// The `generation_config.json` beside a model file, or in a model's directory.
///
/// # Errors
/// A file that is there and cannot be read, or holds a value of another type.
pub(crate) fn of_generation_config(model: &Path) -> Result<GenerationConfig, String> {
    let path = generation_file(model);
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(GenerationConfig::default()),
        Err(e) => return Err(named(&e)),
    };
    let config: Value = serde_json::from_slice(&bytes).map_err(|e| named(&e))?;
    if !config.is_object() {
        return Err(named(&"expected an object, found another value"));
    }
    let given = from_generation_config(&config).map_err(|e| named(&e))?;
    Ok(GenerationConfig { sampling: usable(given.sampling, &path, |field| field), ..given })
}

/// What of `given` can be; the rest, which would stand in the way of all requests, is warned of by file and key.
fn usable(mut given: SamplingOverrides, file: &Path, key: impl Fn(&str) -> &str) -> SamplingOverrides {
    let nothing = SamplingOverrides::default();
    while let Err(ParamError { field, value, range }) = resolve(&given, &nothing, &nothing) {
        let taken = match field.as_str() {
            "temperature" => &mut given.temperature,
            "top_p" => &mut given.top_p,
            "min_p" => &mut given.min_p,
            "repetition_penalty" => &mut given.repetition_penalty,
            // No other is read from files.
            _ => return nothing,
        };
        *taken = None;
        tracing::warn!("{}: {} is {value}, expected {range}; it is passed over", file.display(), key(&field));
    }
    given
}

fn from_generation_config(config: &Value) -> Result<GenerationConfig, String> {
    // Without draws there is no spread: the likeliest token each time.
    let greedy = match config.get("do_sample") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(draws)) => !draws,
        Some(other) => return Err(format!("`do_sample` must be true or false, found {other}")),
    };
    let number = |key: &str| match config.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or_else(|| format!("`{key}` must be a number, found {value}")),
    };
    Ok(GenerationConfig {
        sampling: SamplingOverrides {
            temperature: if greedy { Some(0.0) } else { number("temperature")?.map(|x| x as f32) },
            top_k: top_k(config)?,
            top_p: number("top_p")?.map(|x| x as f32),
            min_p: number("min_p")?.map(|x| x as f32),
            repetition_penalty: number("repetition_penalty")?.map(|x| x as f32),
            ..SamplingOverrides::default()
        },
        end_tokens: end_tokens(config)?,
    })
}

/// A count; -1, as some write it, keeps all tokens like 0.
fn top_k(config: &Value) -> Result<Option<usize>, String> {
    const KEY: &str = "top_k";
    let wrong = |value: &Value| format!("`{KEY}` must be a whole number of at least 0, found {value}");
    match config.get(KEY) {
        None | Some(Value::Null) => Ok(None),
        Some(value) if value.as_i64() == Some(-1) => Ok(Some(0)),
        Some(value) => value.as_u64().and_then(|n| usize::try_from(n).ok()).map(Some).ok_or_else(|| wrong(value)),
    }
}

/// One token or several.
fn end_tokens(config: &Value) -> Result<Vec<u32>, String> {
    const KEY: &str = "eos_token_id";
    let ids: &[Value] = match config.get(KEY) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(ids)) => ids,
        Some(id) => std::slice::from_ref(id),
    };
    let ids = ids.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect::<Option<_>>();
    ids.ok_or_else(|| format!("`{KEY}` must be a token id or an array of them, found {}", config[KEY]))
}

/// The options that a model file recommends in its own metadata.
///
/// # Errors
/// A key of another type.
pub(crate) fn of_metadata(metadata: &Metadata, file: &Path) -> Result<SamplingOverrides, String> {
    let float = |key: &str| metadata.get::<f32>(key).map_err(|e| e.to_string());
    let given = SamplingOverrides {
        temperature: float("general.sampling.temp")?,
        top_k: metadata.get::<usize>("general.sampling.top_k").map_err(|e| e.to_string())?,
        top_p: float("general.sampling.top_p")?,
        min_p: float("general.sampling.min_p")?,
        ..SamplingOverrides::default()
    };
    Ok(usable(given, file, |field| match field {
        "temperature" => "general.sampling.temp",
        "top_p" => "general.sampling.top_p",
        "min_p" => "general.sampling.min_p",
        other => other,
    }))
}

/// `first`'s values, and `second`'s where it has none.
pub(crate) fn or(first: SamplingOverrides, second: &SamplingOverrides) -> SamplingOverrides {
    SamplingOverrides {
        temperature: first.temperature.or(second.temperature),
        top_k: first.top_k.or(second.top_k),
        top_p: first.top_p.or(second.top_p),
        min_p: first.min_p.or(second.min_p),
        repetition_penalty: first.repetition_penalty.or(second.repetition_penalty),
        ..first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_names_its_origin() {
        let defaults = SamplingDefaults {
            flags: SamplingOverrides { top_p: Some(0.5), ..SamplingOverrides::default() },
            model: from_generation_config(&json!({"top_p": 0.9, "top_k": 20, "do_sample": true})).unwrap().sampling,
        };
        let origins = defaults.origins().unwrap();
        let row = |name: &str| origins.iter().find(|(n, ..)| *n == name).map(|(_, v, o)| (v.clone(), *o)).unwrap();
        assert_eq!(row("top_p"), (json!(0.5f32), "server flag"));
        assert_eq!(row("top_k"), (json!(20), "model"));
        assert_eq!(row("penalty_window"), (json!(64), "built-in"));
    }

    #[test]
    fn one_end_token_or_several_are_taken() {
        let ends = |config| from_generation_config(&config).unwrap().end_tokens;
        assert_eq!(ends(json!({"eos_token_id": 7})), [7]);
        assert_eq!(ends(json!({"eos_token_id": [7, 3]})), [7, 3]);
        assert_eq!(ends(json!({})), [0; 0]);
    }

    #[test]
    fn values_that_cannot_be_are_passed_over() {
        let given = SamplingOverrides {
            temperature: Some(f32::NAN),
            top_p: Some(0.5),
            min_p: Some(-1.0),
            ..SamplingOverrides::default()
        };
        let kept = usable(given, Path::new("model.gguf"), |field| field);
        assert_eq!((kept.temperature, kept.top_p, kept.min_p), (None, Some(0.5), None));
    }

    #[test]
    fn a_model_that_does_not_draw_is_greedy() {
        let temperature = |config| from_generation_config(&config).unwrap().sampling.temperature;
        assert_eq!(temperature(json!({"do_sample": false, "temperature": 0.7})), Some(0.0));
        assert_eq!(temperature(json!({"do_sample": true, "temperature": 0.5})), Some(0.5));
        assert_eq!(temperature(json!({"temperature": 0.5})), Some(0.5));
        assert_eq!(temperature(json!({})), None);
    }

    #[test]
    fn end_tokens_that_do_not_exist_are_passed_over() {
        let config = from_generation_config(&json!({"eos_token_id": [7, 99999]})).unwrap();
        assert_eq!(config.end_tokens_below(448, Path::new("model.gguf")), [7]);
    }

    #[test]
    fn a_file_without_an_object_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("generation_config.json"), "[]").unwrap();
        let refused = of_generation_config(&folder.path().join("model.gguf")).unwrap_err();
        assert!(refused.contains("generation_config.json: expected an object"), "{refused}");
    }

    #[test]
    fn a_value_of_another_type_is_named() {
        for (key, value) in [("top_k", json!(1.5)), ("top_k", json!(-2)), ("do_sample", json!("no"))] {
            let refused = from_generation_config(&json!({ key: value })).unwrap_err();
            assert!(refused.contains(&format!("`{key}`")), "{refused}");
        }
        assert_eq!(from_generation_config(&json!({"top_k": -1})).unwrap().sampling.top_k, Some(0));
        assert!(from_generation_config(&json!({"top_k": "many"})).unwrap_err().contains("`top_k`"));
        assert!(from_generation_config(&json!({"eos_token_id": [3, -1]})).unwrap_err().contains("[3,-1]"));
    }
}
