//! A tokenizer.json gives the ids of the GGUF file made from it, on our own engine and on the library's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bantam_gguf::GgufFile;
use bantam_text::{ChatTemplate, RenderInput, Segment, Specials, TokenType, Tokenizer, TokenizerSpec, local_now};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers")
}

fn spec(name: &str) -> TokenizerSpec {
    TokenizerSpec::from_gguf(GgufFile::open(fixtures().join(name)).unwrap().metadata()).unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The tokenizer.json that `spec`, a byte-level one, was made from.
fn description(spec: &TokenizerSpec, normalizer: &Value) -> Value {
    let vocabulary: Map<String, Value> =
        spec.tokens.iter().enumerate().map(|(id, token)| (text(token).to_owned(), json!(id))).collect();
    let merges: Vec<Value> = spec.merges.iter().map(|merge| json!(text(merge).split_once(' ').unwrap())).collect();
    let added: Vec<Value> = (spec.tokens.iter().zip(&spec.token_types).enumerate())
        .filter(|(_, (_, kind))| **kind == TokenType::Control)
        .map(|(id, (token, _))| {
            json!({"id": id, "content": text(token), "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false})
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let digits = json!({"type": "Digits", "individual_digits": true});
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
        },
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges},
    })
}

fn build(description: &Value) -> Tokenizer {
    let config = json!({"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>", "lstrip": false}});
    let (description, config) = (serde_json::to_vec(description).unwrap(), serde_json::to_vec(&config).unwrap());
    Tokenizer::from_hf_json(&description, Some(&config)).unwrap()
}

static GGUF: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::new(spec("smollm2.gguf")).unwrap());
static OWN: LazyLock<Tokenizer> = LazyLock::new(|| build(&description(&spec("smollm2.gguf"), &Value::Null)));
/// A sequence of no normalizers does nothing, but is left to the library.
static LIBRARY: LazyLock<Tokenizer> =
    LazyLock::new(|| build(&description(&spec("smollm2.gguf"), &json!({"type": "Sequence", "normalizers": []}))));

#[test]
fn recorded_texts_have_the_recorded_ids() {
    let cases: Value = serde_json::from_slice(&std::fs::read(fixtures().join("cases-smollm2.json")).unwrap()).unwrap();
    for case in cases["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        for (field, specials) in [("want", Specials::Parse), ("want_plain", Specials::Plain)] {
            for tokenizer in [&*OWN, &*LIBRARY] {
                assert_eq!(json!(tokenizer.encode(text, specials).unwrap()), case[field], "{text:?} {field}");
            }
        }
    }
}

#[test]
fn special_tokens_and_framing_are_read() {
    for tokenizer in [&*OWN, &*LIBRARY] {
        assert_eq!((tokenizer.bos(), tokenizer.end_ids()), (Some(1), vec![2]));
        assert_eq!(tokenizer.special_tokens()["eos_token"], "<|im_end|>");
        assert!(tokenizer.add_bos() && tokenizer.is_control(1));
        assert_eq!(tokenizer.frame(vec![100]), [1, 100]);
        assert_eq!(tokenizer.frame(vec![1, 100]), [1, 100]);
        assert_eq!(tokenizer.decode(&[1, 3000, 2], true), GGUF.decode(&[3000], false));
    }
}

#[test]
fn added_tokens_take_white_space_as_they_say() {
    let mut description = description(&spec("smollm2.gguf"), &Value::Null);
    description["added_tokens"][1]["rstrip"] = json!(true);
    description["added_tokens"][2]["lstrip"] = json!(true);
    description["added_tokens"][3]["single_word"] = json!(true);
    let tokenizer = build(&description);
    let encode = |text| tokenizer.encode(text, Specials::Parse).unwrap();
    assert_eq!(encode("<|im_start|> \n a <|im_end|>"), [encode("<|im_start|>a"), encode("<|im_end|>")].concat());
    let (whole, part) = (encode("<repo_name>"), encode("x<repo_name>"));
    assert_eq!(whole, [3]);
    assert!(!part.contains(&3));
}

#[test]
fn a_sentence_piece_description_puts_its_space_first_only() {
    let tokens = ["<unk>", "<s>", "▁", "a", "▁a"];
    let vocabulary: Map<String, Value> =
        tokens.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), json!(id))).collect();
    let bos = json!({"id": 1, "content": "<s>", "special": true, "normalized": false});
    let tokenizer = build(&json!({
        "version": "1.0", "added_tokens": [bos], "normalizer": null, "post_processor": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary,
            "merges": ["▁ a"]},
    }));
    assert_eq!(tokenizer.encode("a<s>a", Specials::Parse).unwrap(), [4, 1, 3]);
    assert_eq!(tokenizer.encode("<s>a a", Specials::Parse).unwrap(), [1, 3, 4]);
    assert_eq!(tokenizer.decode(&[1, 4, 4], true), b"a a");
}

#[test]
fn damaged_descriptions_are_refused_by_name() {
    let error = |json: &str| Tokenizer::from_hf_json(json.as_bytes(), None).unwrap_err().to_string();
    assert!(error("{").contains("tokenizer.json"));
    assert!(error("{}").contains("model.vocab"));
    assert!(error(r#"{"model": {"vocab": {}}}"#).contains("model.vocab"));
    assert!(error(r#"{"added_tokens": [{"id": -1}], "model": {"vocab": {"a": 0}}}"#).contains("added_tokens"));
    assert!(error(r#"{"model": {"type": "none", "vocab": {"a": 0}}}"#).contains("building the tokenizer"));
}

proptest! {
    #[test]
    fn all_engines_agree(text in "([a-zA-Z0-9 \\t\\r\\n.,'\u{e9}\u{301}\u{4e2d}\u{1f600}]|<\\|im_end\\|>|'ll|  ){0,30}") {
        for specials in [Specials::Parse, Specials::Plain] {
            let want = GGUF.encode(&text, specials).unwrap();
            prop_assert_eq!(&OWN.encode(&text, specials).unwrap(), &want);
            prop_assert_eq!(&LIBRARY.encode(&text, specials).unwrap(), &want);
        }
        let segments = [(&*text, Specials::Plain), ("<|im_end|>", Specials::Parse), (&*text, Specials::Parse)]
            .map(|(text, specials)| Segment { text: text.to_owned(), specials });
        let want = GGUF.encode_segments(&segments).unwrap();
        prop_assert_eq!(&LIBRARY.encode_segments(&segments).unwrap(), &want);
    }
}

#[test]
fn chat_templates_of_checkpoints_are_found() {
    let render = |template: &ChatTemplate, tools| {
        let input = RenderInput { tools, ..RenderInput::default() };
        template.render(&input, local_now()).unwrap()
    };
    assert!(ChatTemplate::from_hf(None, Some(b"{}")).unwrap().is_none());
    assert!(ChatTemplate::from_hf(None, None).unwrap().is_none());
    let one = br#"{"chat_template": "one"}"#;
    assert_eq!(render(&ChatTemplate::from_hf(None, Some(one)).unwrap().unwrap(), None), "one");
    assert_eq!(render(&ChatTemplate::from_hf(Some("file"), Some(one)).unwrap().unwrap(), None), "file");
    let two = br#"{"chat_template": [{"name": "tool_use", "template": "b"}, {"name": "default", "template": "a"}]}"#;
    let two = ChatTemplate::from_hf(None, Some(two)).unwrap().unwrap();
    assert_eq!((render(&two, None), render(&two, Some(json!([])))), ("a".to_owned(), "b".to_owned()));
}
