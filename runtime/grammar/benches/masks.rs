//! What grammars cost: arranging a vocabulary, compiling, and the mask before each token.
//!
//! `cargo bench -p bantam-grammar [-- FILE.gguf…]` takes the vocabularies in the repository, or those of the files.

#![allow(clippy::unwrap_used, reason = "a bench ends where it cannot go on")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bantam_family_api::{CallSyntax, JsonCalls};
use bantam_gguf::GgufFile;
use bantam_grammar::{Grammar, ResponseFormat, Rules, Tool, ToolChoice, Vocabulary};
use bantam_text::{Tokenizer, TokenizerSpec};
use serde_json::{Value, json};

fn main() {
    let files: Vec<PathBuf> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).map(Into::into).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers");
    let own = || ["smollm2.gguf", "llama-spm.gguf"].map(|name| folder.join(name)).into();
    for file in if files.is_empty() { own() } else { files } {
        measure(&file);
    }
}

fn measure(file: &Path) {
    let spec = TokenizerSpec::from_gguf(GgufFile::open(file).unwrap().metadata()).unwrap();
    let tokenizer = Tokenizer::new(spec).unwrap();
    let (build, vocabulary) = timed(|| Vocabulary::new(&tokenizer, &tokenizer.end_ids()).unwrap());
    println!("{}: {} tokens arranged in {build:.1?}", file.display(), tokenizer.vocab_size());
    let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap();
    let tokens: HashMap<&[u8], u32> = ids.map(|id| (tokenizer.token_bytes(id, true), id)).collect();
    for (name, rules, text) in cases() {
        let (first, grammar) = timed(|| vocabulary.compile(&rules).unwrap());
        let (again, _) = timed(|| vocabulary.compile(&rules).unwrap());
        let (start, _) = timed(|| grammar.guide());
        let mut masks = masks(&tokens, &grammar, &text);
        masks.sort();
        let at = |share: usize| masks[(masks.len() - 1) * share / 100];
        println!(
            "  {name}: compiled {first:.1?}, found again {again:.1?}, guide {start:.1?}; {} masks: median {:.1?}, 99 % {:.1?}, most {:.1?}",
            masks.len(),
            at(50),
            at(99),
            at(100),
        );
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begun = Instant::now();
    let result = work();
    (begun.elapsed(), result)
}

/// What each mask takes while a model writes this text, each time the longest token that it may.
fn masks(tokens: &HashMap<&[u8], u32>, grammar: &Grammar, text: &str) -> Vec<Duration> {
    let mut guide = grammar.guide();
    let (mut times, mut rest) = (Vec::new(), text.as_bytes());
    while !rest.is_empty() {
        let (time, mask) = timed(|| guide.mask().unwrap().map(<[u32]>::to_vec));
        let is_allowed = |id: u32| mask.as_ref().is_none_or(|mask| mask[id as usize / 32] >> (id % 32) & 1 == 1);
        let longest = (1..=rest.len()).rev().find_map(|end| {
            let id = tokens.get(&rest[..end]).copied().filter(|&id| is_allowed(id))?;
            Some((id, end))
        });
        let (id, end) = longest.unwrap();
        guide.accept(id).unwrap();
        rest = &rest[end..];
        times.push(time);
    }
    times
}

fn cases() -> Vec<(&'static str, Rules, String)> {
    let note = json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 100_000},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 10_000},
            "size": {"type": "integer", "minimum": 0, "maximum": 4096},
            "kind": {"enum": ["a", "b"]},
        },
        "required": ["title", "tags", "size", "kind"],
    });
    let value = json!({"title": "The tides of the northern sea, told twice. ".repeat(8), "tags": ["sea", "moon"], "size": 17, "kind": "b"});
    let form = |schema: &Value| Rules { response: ResponseFormat::JsonSchema(schema.clone()), ..Rules::default() };
    let free = Rules { response: ResponseFormat::JsonObject, ..Rules::default() };
    let regex = Rules { response: ResponseFormat::Regex("([a-z]+ ){1,200}end".into()), ..Rules::default() };
    let call = json!({"name": "tool_17", "arguments": value}).to_string();
    vec![
        ("an object of a schema", form(&note), value.to_string()),
        ("any object", free, value.to_string()),
        ("a regular expression", regex, "so it goes on and on ".repeat(6) + "end"),
        ("one of 30 tools", calls(&note), format!("<tool_call>\n{call}\n</tool_call>")),
    ]
}

fn calls(parameters: &Value) -> Rules {
    let [open, close, name] = ["<tool_call>\n", "\n</tool_call>", "name"].map(Into::into);
    let syntax = CallSyntax::Json(JsonCalls { block: None, open, close, name, arguments: vec!["arguments".into()] });
    let tool = |number| Tool { name: format!("tool_{number}"), parameters: parameters.clone() };
    Rules { calls: vec![syntax], tools: (0..30).map(tool).collect(), choice: ToolChoice::Required, ..Rules::default() }
}
