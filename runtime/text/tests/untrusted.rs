//! Vocabularies and templates are untrusted: whatever they hold, the answer is a result or an error that names the fault.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use bantam_gguf::{GgufFile, StringArray, writer::GgufWriter};
use bantam_text::{
    ChatTemplate, RenderInput, Specials, TemplateError, TokenType, Tokenizer, TokenizerError, TokenizerSpec, local_now,
};
use proptest::prelude::*;
use serde_json::json;

fn byte_level(tokens: &[&str]) -> TokenizerSpec {
    TokenizerSpec {
        model: "gpt2".to_owned(),
        pre: Some("gpt-2".to_owned()),
        tokens: tokens.iter().map(|token| token.as_bytes().to_vec()).collect(),
        ..TokenizerSpec::default()
    }
}

fn error(spec: TokenizerSpec) -> String {
    Tokenizer::new(spec).unwrap_err().to_string()
}

#[test]
fn faults_of_a_vocabulary_are_named() {
    let spec = byte_level(&["a", "b"]);
    let unknown = error(TokenizerSpec { model: "rwkv".to_owned(), ..spec.clone() });
    assert!(unknown.contains("\"rwkv\"") && unknown.contains("gpt2, llama, gemma4, bert, t5"), "{unknown}");
    let unknown = error(TokenizerSpec { pre: Some("new-model".to_owned()), ..spec.clone() });
    assert!(unknown.contains("\"new-model\"") && unknown.contains("llama-bpe"), "{unknown}");
    let short = error(TokenizerSpec { token_types: vec![TokenType::Normal], ..spec.clone() });
    assert!(short.contains("`tokenizer.ggml.token_type` has 1 entries, expected at least 2"), "{short}");
    let short = error(TokenizerSpec { model: "llama".to_owned(), scores: vec![0.0], ..spec.clone() });
    assert!(short.contains("`tokenizer.ggml.scores`"), "{short}");
    let missing = error(TokenizerSpec { model: "llama".to_owned(), ..spec });
    assert!(missing.contains("`tokenizer.ggml.scores` is missing"), "{missing}");
    assert!(error(byte_level(&[])).contains("`tokenizer.ggml.tokens` is missing"));
}

fn from_gguf(fill: impl FnOnce(&mut GgufWriter<'_>)) -> Result<Tokenizer, TokenizerError> {
    let mut writer = GgufWriter::new();
    fill(&mut writer);
    Tokenizer::from_gguf(GgufFile::from_bytes("test.gguf", writer.to_bytes()).unwrap().metadata())
}

fn strings(strings: &[&str]) -> StringArray {
    strings.iter().collect()
}

#[test]
fn faults_of_metadata_are_named() {
    let error = |fill: fn(&mut GgufWriter<'_>)| from_gguf(fill).unwrap_err().to_string();
    assert!(error(|_| ()).contains("tokenizer.ggml.model"));
    let no_merges = error(|file| {
        file.key("tokenizer.ggml.model", "gpt2").key("tokenizer.ggml.tokens", strings(&["a"]));
    });
    assert!(no_merges.contains("`tokenizer.ggml.merges` is missing"), "{no_merges}");
    let no_tokens = error(|file| {
        file.key("tokenizer.ggml.model", "llama").key("tokenizer.ggml.tokens", vec![1_i32]);
    });
    assert!(no_tokens.contains("tokenizer.ggml.tokens") && no_tokens.contains("array of strings"), "{no_tokens}");
    let bad_type = error(|file| {
        file.key("tokenizer.ggml.model", "llama").key("tokenizer.ggml.tokens", strings(&["a"]));
        file.key("tokenizer.ggml.token_type", vec![9_i32]);
    });
    assert!(bad_type.contains("`tokenizer.ggml.token_type`: entry 0 is 9"), "{bad_type}");
    let bad_scores = error(|file| {
        file.key("tokenizer.ggml.model", "llama").key("tokenizer.ggml.tokens", strings(&["a"]));
        file.key("tokenizer.ggml.scores", strings(&["1"]));
    });
    assert!(bad_scores.contains("`tokenizer.ggml.scores`: expected an array of f32"), "{bad_scores}");
}

#[test]
fn old_and_odd_metadata_are_read() {
    let tokenizer = from_gguf(|file| {
        file.key("tokenizer.ggml.model", "llama")
            .key("tokenizer.ggml.tokens", strings(&["<unk>", "<s>", "</s>", "▁", "a"]));
        file.key("tokenizer.ggml.scores", vec![0_i32, 0, 0, -1, -2]);
        file.key("tokenizer.ggml.token_type", vec![2_u32, 3, 3, 1, 1]);
        file.key("tokenizer.ggml.eot_token_id", 4_u32).key("tokenizer.ggml.padding_token_id", -1_i32);
        file.key("tokenizer.ggml.mask_token_id", 99_u32);
    });
    let tokenizer = tokenizer.unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.end_ids(), tokenizer.add_bos()), (Some(1), vec![2, 4], true));
    assert_eq!((tokenizer.special_id("pad"), tokenizer.special_id("mask")), (None, None));
    assert_eq!(tokenizer.encode("aé", Specials::Plain).unwrap(), [3, 4, 0]);
    assert_eq!(tokenizer.frame(vec![4]), [1, 4]);
}

/// Quadratic work on these would take hours, not tenths of a second.
#[test]
fn text_without_borders_is_no_burden() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers");
    let begin = std::time::Instant::now();
    for name in ["smollm2.gguf", "llama-spm.gguf"] {
        let tokenizer = Tokenizer::from_gguf(GgufFile::open(directory.join(name)).unwrap().metadata()).unwrap();
        for unit in ["a", " ", "\n", " \n", "<", "é", "\u{301}", "<|im_end|> ", "QmFudGFt"] {
            let text = unit.repeat(400_000 / unit.len());
            let ids = tokenizer.encode(&text, Specials::Plain).unwrap();
            assert_eq!(tokenizer.decode(&ids, false), text.as_bytes(), "{name}: {unit:?}");
            assert!((1..=ids.len()).contains(&tokenizer.fewest_tokens(text.len())), "{name}: {unit:?}");
            assert!(tokenizer.control_spellings(&text).len() < text.len());
        }
    }
    assert!(begin.elapsed().as_secs() < 120);
}

/// Special tokens that repeat themselves and each other are the worst for the tables that find them.
#[test]
fn special_tokens_without_borders_are_no_burden() {
    let begin = std::time::Instant::now();
    let spec = |texts: Vec<String>| TokenizerSpec {
        token_types: vec![TokenType::Control; texts.len()],
        ..byte_level(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let long = error(spec(vec!["<s>".into(), "a".repeat(300_000)]));
    assert_eq!(long, "the special token 1 has 300000 bytes, expected at most 1024");
    let many = (0..2000).map(|i| format!("{}{i}", "a".repeat(1000))).collect();
    let tokenizer = Tokenizer::new(spec(many)).unwrap();
    assert_eq!(tokenizer.encode(&"a".repeat(200_000), Specials::Parse).unwrap().len(), 0);
    assert!(begin.elapsed().as_secs() < 60);
}

/// Specs of all algorithms with everything in them at random.
fn any_spec() -> impl Strategy<Value = TokenizerSpec> {
    let token = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..6),
        "[a-c▁Ġ <>|]{0,4}".prop_map(String::into_bytes),
        prop::sample::select(vec!["<0x41>", "<0x0A>", "##a", "[UNK]", "<s>"])
            .prop_map(|token| token.as_bytes().to_vec()),
    ];
    let number = prop::sample::select(vec![1_i64, 2, 3, 4, 5, 6]);
    let merge = prop_oneof!["[a-cĠ▁ ]{0,5}".prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 0..5)];
    let models = prop::sample::select(vec!["gpt2", "llama", "gemma4", "bert", "t5"]);
    (
        models,
        prop::collection::vec(token, 1..40),
        prop::collection::vec(number, 40),
        prop::collection::vec(any::<f32>(), 40),
        prop::collection::vec(merge, 0..20),
        prop::collection::btree_map("(bos|eos|unk|sep)", 0_u32..50, 0..4),
        prop::collection::vec(any::<u8>(), 0..40),
        any::<Option<bool>>(),
    )
        .prop_map(|(model, tokens, kinds, scores, merges, special_ids, charsmap, flag)| TokenizerSpec {
            model: model.to_owned(),
            pre: Some("llama-bpe".to_owned()),
            token_types: kinds.into_iter().map(|kind| TokenType::from_gguf(kind).unwrap()).collect(),
            add_bos: flag,
            add_space_prefix: flag,
            remove_extra_whitespaces: flag,
            tokens,
            scores,
            merges,
            special_ids,
            charsmap,
            ..TokenizerSpec::default()
        })
}

proptest! {
    #[test]
    fn no_vocabulary_makes_a_panic(spec in any_spec(), text in "[a-c <s>|\\n\u{e9}\u{2581}A]{0,12}", id in any::<u32>()) {
        if let Ok(tokenizer) = Tokenizer::new(spec) {
            for specials in [Specials::Parse, Specials::Plain] {
                if let Ok(ids) = tokenizer.encode(&text, specials) {
                    prop_assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()));
                    tokenizer.decode(&tokenizer.frame(ids), true);
                }
            }
            prop_assert!(tokenizer.control_spellings(&text).iter().all(|range| text.get(range.clone()).is_some()));
            tokenizer.decode(&[id], false);
            tokenizer.special_tokens();
        }
    }

    #[test]
    fn no_template_makes_a_panic(source in "(\\{%|%\\}|\\{\\{|\\}\\}|[a-z .|()\\[\\]'\"0-9-]|for m in messages|endfor|if|set ){0,12}") {
        if let Ok(template) = ChatTemplate::new(&source, &[]) {
            let _ = template.render(&input(), local_now());
        }
    }
}

/// A conversation of one greeting.
fn input() -> RenderInput {
    RenderInput { messages: vec![json!({"role": "user", "content": "hi"})], ..RenderInput::default() }
}

fn render(source: &str) -> Result<String, TemplateError> {
    let template = ChatTemplate::new(source, &[]).unwrap();
    template.render(&input(), local_now())
}

#[test]
fn templates_come_to_an_end() {
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    assert!(matches!(render(endless), Err(TemplateError::Exhausted { .. })));
    let doubling = "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}";
    assert!(matches!(render(doubling), Err(TemplateError::Exhausted { .. })));
    assert!(render("{{ 'x' * 9999999999 }}").is_err());
    let long = "{% set s = 'x' * 1000000 %}{% for i in range(100) %}{{ s }}{% endfor %}";
    assert!(matches!(render(long), Err(TemplateError::Exhausted { .. })));
}

#[test]
fn templates_do_not_exhaust_the_stack() {
    let recursive = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    assert!(render(recursive).is_err());
    let nested = |end: &str| {
        let nest = "{% set ns = namespace(l=[]) %}{% for i in range(20000) %}{% set ns.l = [ns.l] %}{% endfor %}";
        render(&format!("{nest}{end}"))
    };
    assert!(nested("{{ ns.l|tojson }}").is_err());
    assert!(nested("{{ ns.l }}").unwrap_err().to_string().contains("nested too deeply"));
    assert!(nested("{{ ns.l|length }}").is_ok());
    assert!(render("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}").is_err());
    for (link, end) in [("not ", ""), ("-", ""), ("1 + ", ""), ("1 if 1 else ", ""), ("", "|string"), ("", ".a")] {
        let source = format!("{{{{ {}1{} }}}}", link.repeat(8_000), end.repeat(8_000));
        // Whatever comes of it, it comes.
        let _ = ChatTemplate::new(&source, &[]).map(|template| template.render(&RenderInput::default(), local_now()));
    }
    assert!(ChatTemplate::new(&format!("{{{{ {}1 }}}}", "(".repeat(10_000)), &[]).is_err());
    assert!(ChatTemplate::new(&"{% if true %}".repeat(5_000), &[]).is_err());
}

#[test]
fn templates_beyond_a_size_are_not_read() {
    let error = ChatTemplate::new(&" ".repeat(1 << 20), &[]).unwrap_err().to_string();
    assert!(error.contains("1048576 bytes"), "{error}");
}

#[test]
fn templates_load_nothing() {
    assert!(render("{% include 'chat_template.jinja' %}").is_err());
    assert!(render("{% include '/etc/hostname' %}").is_err());
}

#[test]
fn errors_tell_the_line_and_what_was_wrong() {
    let refused = render("\n\n{{ raise_exception('no ' ~ 'luck') }}").unwrap_err();
    assert_eq!(refused.to_string(), "the chat template refused: no luck (template line 3)");
    let in_macro =
        render("{% macro f() %}\n{{ raise_exception('no luck') }}{% endmacro %}\n{{ f()|trim }}").unwrap_err();
    assert!(matches!(&in_macro, TemplateError::Refused { reason, .. } if reason == "no luck"), "{in_macro}");
    let failed = render("{{ messages[0].tools.name }}").unwrap_err().to_string();
    assert!(failed.contains("tools") && failed.contains("line 1"), "{failed}");
    let syntax = ChatTemplate::new("a\n{% if %}", &[]).unwrap_err();
    assert!(matches!(syntax, TemplateError::Syntax { line: 2, .. }), "{syntax}");
}

#[test]
fn the_template_for_tools_is_taken_when_there_are_tools() {
    let template = ChatTemplate::new("plain", &[("tool_use".to_owned(), "with tools".to_owned())]).unwrap();
    let mut input = RenderInput { special_tokens: BTreeMap::new(), ..RenderInput::default() };
    assert_eq!(template.render(&input, local_now()).unwrap(), "plain");
    input.tools = Some(json!([]));
    assert_eq!(template.render(&input, local_now()).unwrap(), "with tools");
}

#[test]
fn line_ends_are_those_of_jinja() {
    assert_eq!(render("a\r\nb\rc\r\n").unwrap(), "a\nb\nc");
}

#[test]
fn what_an_assistant_said_is_rendered_in_a_scope_of_its_own() {
    let source = "{% set x = 1 %}{%- generation -%} {% set x = 2 %}{{ x }} {%- endgeneration %}{{ x }}";
    assert_eq!(render(source).unwrap(), "21");
}
