//! Chat formats spell what the authors' templates make of conversations with reasoning and calls.

use std::path::Path;

use bantam_family_api::{CallSyntax, ChatFormat, NamedCalls, TaggedCalls};
use serde_json::Value;

use crate::support::{describe, fixtures};

const TEMPLATES: [(&str, &str); 13] = [
    ("llama", "meta-llama-Llama-3.1-8B-Instruct.jinja"),
    ("qwen2", "Qwen-Qwen2.5-7B-Instruct.jinja"),
    ("qwen3", "Qwen-Qwen3-0.6B.jinja"),
    ("qwen35", "Qwen3.5-4B.jinja"),
    ("qwen4exp", "Qwen3.5-4B.jinja"),
    ("gemma3", "google-gemma-3-it.jinja"),
    ("gemma4", "google-gemma-4-31B-it.jinja"),
    ("laguna", "poolside-Laguna-S-2.1.jinja"),
    ("k2-horizon", "k2-horizon.jinja"),
    ("muse-glimmer", "muse-glimmer.jinja"),
    ("bailingmoe3", "inclusionai-ling-3.0-flash.jinja"),
    ("nemotron_h_moe", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja"),
    ("deepseek4", "deepseek-ai-DeepSeek-V4.jinja"),
];

fn format(architecture: &str) -> ChatFormat {
    let fixture = fixtures().into_iter().find(|f| f.checkpoint.architecture == architecture).unwrap();
    describe(&fixture.checkpoint).unwrap().chat
}

/// What the template makes of all recorded conversations, the prompts one after another.
fn prompts(template: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/templates/cases.json");
    let recorded: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let cases = recorded["cases"].as_array().unwrap().iter().filter(|case| case["template"] == template);
    cases.filter_map(|case| case["expect"].as_str()).collect()
}

/// The texts of a call, in the order in which they come.
fn texts(calls: &CallSyntax) -> Vec<&str> {
    match calls {
        CallSyntax::Json(json) => vec![&json.open, &json.name, &json.arguments[0], &json.close],
        CallSyntax::Named(NamedCalls { open, named, close, .. }) => vec![open, named, close],
        CallSyntax::Python { open, close } => vec![open, close],
        CallSyntax::Braced { open, close, quote } => vec![open, quote, close],
        CallSyntax::Lark(calls) => vec![&calls.open, &calls.close],
        CallSyntax::Tagged(TaggedCalls { block, open, named, close, argument }) => {
            let [before, behind] = block.as_ref().map_or(["", ""], |[before, behind]| [before, behind]);
            vec![before, open, named, &argument.open, &argument.text, &argument.close, close, behind]
        }
    }
}

fn without_white_space(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn calls_are_spelled_as_the_templates_spell_past_ones() {
    for (architecture, template) in TEMPLATES {
        let (format, prompts) = (format(architecture), prompts(template));
        assert!(!prompts.is_empty(), "{template}");
        let Some(calls) = format.calls.first() else { continue };
        // One call after another: each text is found behind the one before, somewhere in the prompts. White space between
        // tags is free.
        let prompts = without_white_space(&prompts);
        let texts: Vec<String> = texts(calls).into_iter().map(without_white_space).collect();
        let starts = prompts.match_indices(texts[0].as_str()).map(|(at, _)| at);
        let spelled = |start: usize| {
            texts.iter().try_fold(&prompts[start..], |rest, text| rest.split_once(text.as_str()).map(|(_, rest)| rest))
        };
        let mut starts = starts.take(10_000);
        assert!(starts.any(|start| spelled(start).is_some()), "{architecture}: {texts:?}");
    }
}

#[test]
fn reasoning_is_marked_as_the_templates_mark_past_reasoning() {
    for (architecture, template) in TEMPLATES {
        let (format, prompts) = (format(architecture), prompts(template));
        // Qwen2.5 does not reason; what was made of it does.
        for reasoning in format.reasoning.iter().filter(|_| architecture != "qwen2") {
            let behind = prompts.split_once(&reasoning.open).map(|(_, behind)| behind);
            let closed = behind.is_some_and(|behind| behind.contains(&reasoning.close));
            assert!(closed, "{architecture}: {reasoning:?}");
        }
    }
}

#[test]
fn turns_end_with_a_stop_token_of_the_family() {
    for (architecture, template) in TEMPLATES {
        let (format, prompts) = (format(architecture), prompts(template));
        assert!(prompts.contains(&format.stop_tokens[0]), "{architecture}: {:?}", format.stop_tokens);
    }
}

#[test]
fn efforts_are_levels_of_variables_that_the_templates_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/templates");
    // Of the others no template with efforts is at hand.
    for (architecture, template) in [
        ("k2-horizon", "k2-horizon.jinja"),
        ("muse-glimmer", "muse-glimmer.jinja"),
        ("deepseek4", "deepseek-ai-DeepSeek-V4-Flash-0731.jinja"),
    ] {
        let source = std::fs::read_to_string(folder.join(template)).unwrap();
        let efforts = format(architecture).efforts;
        assert!(!efforts.is_empty());
        for effort in efforts {
            assert!(source.contains(&effort.variable), "{architecture}: {effort:?}");
        }
    }
}
