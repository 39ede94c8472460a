//! Every recorded conversation against what transformers renders of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bantam_text::{ChatTemplate, RenderInput, TemplateError};
use serde_json::Value;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/templates")
}

fn input(case: &Value) -> RenderInput {
    let text = |(name, value): (&String, &Value)| (name.clone(), value.as_str().unwrap().to_owned());
    RenderInput {
        messages: case["messages"].as_array().unwrap().clone(),
        tools: Some(case["tools"].clone()).filter(|tools| !tools.is_null()),
        kwargs: case["kwargs"].as_object().unwrap().clone(),
        special_tokens: case["special_tokens"].as_object().unwrap().iter().map(text).collect(),
        parse_arguments: false,
    }
}

/// Whether a rendering is what the case wants; of an error only a refusal's words count.
fn is_right(case: &Value, result: &Result<String, TemplateError>) -> bool {
    match (case.get("expect"), result) {
        (Some(want), Ok(text)) => want == text,
        (None, Err(TemplateError::Refused { reason, .. })) => {
            case["error_kind"] == "raise_exception" && case["error"] == reason.as_str()
        }
        (None, Err(_)) => case["error_kind"] != "raise_exception",
        _ => false,
    }
}

#[test]
fn every_conversation_is_rendered_as_transformers_renders_it() {
    let recorded: Value = serde_json::from_slice(&std::fs::read(directory().join("cases.json")).unwrap()).unwrap();
    let now = recorded["now"].as_str().unwrap().parse().unwrap();
    let mut templates = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in recorded["cases"].as_array().unwrap() {
        let name = case["template"].as_str().unwrap();
        let template = templates.entry(name).or_insert_with(|| {
            ChatTemplate::new(&std::fs::read_to_string(directory().join(name)).unwrap(), &[]).unwrap()
        });
        let result = template.render(&input(case), now);
        if !is_right(case, &result) {
            wrong.push(format!(
                "{name} {}: {result:?}, expected {:?}{:?}",
                case["case"],
                case.get("expect"),
                case.get("error")
            ));
        }
    }
    assert_eq!(templates.len(), 25);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}
