//! Reading a tokenizer.json, as checkpoints in safetensors have them.
//!
//! Byte-level pipelines whose patterns fit an engine that is linear in the text run on our own; all others run on the
//! `tokenizers` library.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;

use super::bpe::ByteLevel;
use super::library::Library;
use super::specials::{Special, SpecialTokens};
use super::split::PreTokenizer;
use super::vocab::{Spelling, Vocabulary, byte_token};
use super::{Engine, Framing, Inner, TokenType, Tokenizer};
use crate::TokenizerError;

/// Ids may leave holes, but not so large that a damaged file asks for all memory.
const MAX_ID: usize = 1 << 24;
/// The keys of tokenizer_config.json that name special tokens, with the role of each.
const ROLES: [(&str, &str); 7] = [
    ("bos_token", "bos"),
    ("eos_token", "eos"),
    ("unk_token", "unk"),
    ("sep_token", "sep"),
    ("pad_token", "pad"),
    ("cls_token", "cls"),
    ("mask_token", "mask"),
];

impl Tokenizer {
    /// The tokenizer of a checkpoint directory: the text of its tokenizer.json, and of its tokenizer_config.json, which
    /// tells what is BOS, EOS and so on. Padding and truncation in the file are not used.
    ///
    /// # Errors
    /// What is no JSON, lacks a vocabulary, or is refused by the `tokenizers` library.
    pub fn from_hf_json(tokenizer: &[u8], config: Option<&[u8]>) -> Result<Self, TokenizerError> {
        let description = parse("tokenizer.json", tokenizer)?;
        let config = config.map_or(Ok(Json::Null), settings)?;
        let added = added_tokens(&description)?;
        let vocabulary = vocabulary(&description, &added)?;
        let framing = framing(&description, &config, &vocabulary);
        let strips_leading_space = strips_leading_space(&description["decoder"]);
        let engine = match own_engine(&description, &vocabulary) {
            Some(engine) => Engine::Bytes(engine),
            None => Engine::Library(Library::new(description)?),
        };
        let specials = SpecialTokens::new(added.into_iter().map(|(special, _)| special).collect())?;
        Ok(Self(Arc::new(Inner {
            vocabulary,
            specials,
            engine,
            framing,
            strips_leading_space,
            suppressed: Vec::new(),
            large: Mutex::new(()),
        })))
    }
}

fn parse(file: &str, json: &[u8]) -> Result<Json, TokenizerError> {
    serde_json::from_slice(json).map_err(|error| invalid(file, format!("expected JSON, found: {error}")))
}

/// The values of a tokenizer_config.json.
fn settings(json: &[u8]) -> Result<Json, TokenizerError> {
    const FILE: &str = "tokenizer_config.json";
    let settings = parse(FILE, json)?;
    if settings.is_object() { Ok(settings) } else { Err(invalid(FILE, "expected an object, found another value")) }
}

fn invalid(key: &str, reason: impl Into<String>) -> TokenizerError {
    TokenizerError::Value { key: key.to_owned(), reason: reason.into() }
}

fn id_of(json: &Json) -> Option<usize> {
    usize::try_from(json.as_u64()?).ok().filter(|id| *id < MAX_ID)
}

fn items(json: &Json) -> &[Json] {
    json.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn flag(json: &Json, name: &str) -> bool {
    json[name].as_bool().unwrap_or(false)
}

/// The tokens that are looked for in text, with their place in the vocabulary.
fn added_tokens(description: &Json) -> Result<Vec<(Special, usize)>, TokenizerError> {
    let read = |token: &Json| {
        let (Some(id), Some(text)) = (id_of(&token["id"]), token["content"].as_str()) else {
            return Err(invalid(
                "tokenizer.json: added_tokens",
                format!("expected an id and a content, found {token}"),
            ));
        };
        let special = Special {
            id: u32::try_from(id).unwrap_or_default(),
            text: text.to_owned(),
            control: flag(token, "special"),
            strips_left: flag(token, "lstrip"),
            strips_right: flag(token, "rstrip"),
            whole_word: flag(token, "single_word"),
        };
        Ok((special, id))
    };
    items(&description["added_tokens"]).iter().map(read).collect()
}

fn vocabulary(description: &Json, added: &[(Special, usize)]) -> Result<Vocabulary, TokenizerError> {
    let model = &description["model"];
    let mut entries: Vec<(&str, usize)> = match &model["vocab"] {
        Json::Object(map) => map.iter().filter_map(|(text, id)| Some((text.as_str(), id_of(id)?))).collect(),
        Json::Array(list) => list.iter().enumerate().filter_map(|(id, pair)| Some((pair[0].as_str()?, id))).collect(),
        _ => return Err(invalid("tokenizer.json: model.vocab", "expected an object or a list, found neither")),
    };
    entries.extend(added.iter().map(|(special, id)| (special.text.as_str(), *id)));
    let size = entries.iter().map(|(_, id)| id + 1).max().filter(|size| *size <= MAX_ID);
    let size = size.ok_or_else(|| invalid("tokenizer.json: model.vocab", "expected tokens, found none"))?;
    let mut tokens = vec![Vec::new(); size];
    let mut types = vec![TokenType::Unused; size];
    let has_bytes = flag(model, "byte_fallback");
    for (text, id) in entries {
        let is_byte = has_bytes && byte_token(text).is_some();
        if let (Some(token), Some(kind)) = (tokens.get_mut(id), types.get_mut(id)) {
            *token = text.as_bytes().to_vec();
            *kind = if is_byte { TokenType::Byte } else { TokenType::Normal };
        }
    }
    for (special, id) in added {
        if let Some(kind) = types.get_mut(*id) {
            *kind = if special.control { TokenType::Control } else { TokenType::UserDefined };
        }
    }
    Ok(Vocabulary::new(tokens, types, spelling(&description["decoder"])))
}

/// What the decoder does to the spelling of tokens.
fn spelling(decoder: &Json) -> Spelling {
    let is = |name: &str| steps(decoder, "decoders").any(|step| step["type"] == name);
    if is("ByteLevel") {
        Spelling::Bytes
    } else if is("WordPiece") {
        Spelling::Words
    } else {
        Spelling::Spaces
    }
}

/// The steps of a pipeline's part: those of a sequence, or the part itself.
fn steps<'a>(part: &'a Json, list: &str) -> impl Iterator<Item = &'a Json> {
    let is_sequence = part["type"] == "Sequence";
    let single = if is_sequence || part.is_null() { &[] } else { std::slice::from_ref(part) };
    let steps = if is_sequence { items(&part[list]) } else { single };
    steps.iter()
}

fn strips_leading_space(decoder: &Json) -> bool {
    steps(decoder, "decoders").any(|step| match step["type"].as_str() {
        Some("Strip") => step["content"] == " " && step["start"].as_u64() > Some(0),
        Some("Metaspace") => step["prepend_scheme"].as_str().unwrap_or("always") != "never",
        _ => false,
    })
}

/// Our own engine, where it does exactly what the file describes.
fn own_engine(description: &Json, vocabulary: &Vocabulary) -> Option<ByteLevel> {
    let model = &description["model"];
    let plain = model["type"].as_str().is_none_or(|kind| kind == "BPE")
        && ["dropout", "continuing_subword_prefix", "end_of_word_suffix"].iter().all(|name| is_unset(&model[*name]))
        && !flag(model, "byte_fallback");
    let nfc = match description["normalizer"]["type"].as_str() {
        None if description["normalizer"].is_null() => false,
        Some("NFC") => true,
        _ => return None,
    };
    let patterns = plain.then(|| patterns(&description["pre_tokenizer"])).flatten()?;
    let pre = PreTokenizer::published(&patterns, nfc, flag(model, "ignore_merges"))?;
    let merges: Option<Vec<Vec<u8>>> = items(&model["merges"]).iter().map(merge).collect();
    Some(ByteLevel::new(pre, &merges?, vocabulary))
}

fn is_unset(value: &Json) -> bool {
    value.is_null() || value == ""
}

/// A merge as "left right", which is how older files have it.
fn merge(json: &Json) -> Option<Vec<u8>> {
    match json {
        Json::String(pair) => Some(pair.as_bytes().to_vec()),
        Json::Array(pair) => Some(format!("{} {}", pair.first()?.as_str()?, pair.get(1)?.as_str()?).into_bytes()),
        _ => None,
    }
}

/// The patterns of a byte-level pre-tokenizer, in order.
fn patterns(pre_tokenizer: &Json) -> Option<Vec<&str>> {
    let mut patterns = Vec::new();
    let mut is_byte_level = false;
    for step in steps(pre_tokenizer, "pretokenizers") {
        match step["type"].as_str()? {
            "Split" if step["behavior"] == "Isolated" && !flag(step, "invert") => {
                patterns.push(step["pattern"]["Regex"].as_str()?);
            }
            "Digits" if flag(step, "individual_digits") => patterns.push(super::split::ONE_DIGIT),
            "ByteLevel" if !flag(step, "add_prefix_space") => {
                is_byte_level = true;
                // Absent means true.
                if step["use_regex"].as_bool().unwrap_or(true) {
                    patterns.push(super::split::GPT2);
                }
            }
            _ => return None,
        }
    }
    is_byte_level.then_some(patterns)
}

fn framing(description: &Json, config: &Json, vocabulary: &Vocabulary) -> Framing {
    let id = |text: &str| vocabulary.id(text.as_bytes());
    let named = |json: &Json| json.as_str().or_else(|| json["content"].as_str()).and_then(id);
    let roles = ROLES.iter().filter_map(|(key, role)| Some(((*role).to_owned(), named(&config[*key])?)));
    let ids: BTreeMap<String, u32> = roles.collect();
    let (mut prefix, mut suffix) = (Vec::new(), Vec::new());
    for step in steps(&description["post_processor"], "processors") {
        match step["type"].as_str() {
            Some("TemplateProcessing") => {
                let parts = items(&step["single"]);
                let at = parts.iter().position(|part| !part["Sequence"].is_null()).unwrap_or(parts.len());
                let special = |part: &Json| part["SpecialToken"]["id"].as_str().and_then(id);
                prefix = parts.iter().take(at).filter_map(special).collect();
                suffix = parts.iter().skip(at).filter_map(special).collect();
            }
            Some("BertProcessing" | "RobertaProcessing") => {
                prefix = step["cls"][0].as_str().and_then(id).into_iter().collect();
                suffix = step["sep"][0].as_str().and_then(id).into_iter().collect();
            }
            _ => {}
        }
    }
    // The configuration has the last word where it has one.
    if let (Some(bos), Some(adds)) = (ids.get("bos"), config["add_bos_token"].as_bool()) {
        prefix.retain(|id| id != bos);
        prefix.splice(0..0, adds.then_some(*bos));
    }
    if let (Some(eos), Some(adds)) = (ids.get("eos"), config["add_eos_token"].as_bool()) {
        suffix.retain(|id| id != eos);
        suffix.extend(adds.then_some(*eos));
    }
    Framing { ids, prefix, suffix }
}
