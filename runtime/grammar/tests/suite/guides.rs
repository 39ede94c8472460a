//! Guides: reasoning and its end, forms of all kinds, tokens taken back.

use bantam_family_api::{CallSyntax, Reasoning};
use bantam_grammar::{Guide, GuideError, ResponseFormat, Rules, Tool, ToolChoice};
use bantam_text::{OutputFormat, Specials};
use proptest::prelude::*;
use serde_json::json;
use std::sync::atomic::Ordering;

use crate::families::{formats, syntaxes, with_marks};
use crate::model::{Chance, Model, llama, smollm};

fn think() -> Reasoning {
    Reasoning { open: "<think>".into(), close: "</think>".into(), ended_by_calls: true }
}

fn thinking() -> Rules {
    Rules { reasoning: vec![think()], starts_in_reasoning: Some(0), ..Rules::default() }
}

fn boolean() -> ResponseFormat {
    ResponseFormat::JsonSchema(json!({"type": "boolean"}))
}

/// Tells a guide a text in the tokenizer's own tokens, all of which it must allow.
fn tell(model: &Model, guide: &mut Guide, text: &str) {
    for token in model.tokenizer.encode(text, Specials::Parse).unwrap() {
        assert!(Model::allows(guide.mask().unwrap(), token), "{text:?}: {token}");
        guide.accept(token).unwrap();
    }
}

/// The only token that is allowed, if there is just one.
fn forced(model: &Model, guide: &mut Guide) -> Option<u32> {
    let mask = guide.mask().unwrap()?;
    let allowed: Vec<u32> =
        (0..model.tokenizer.vocab_size() as u32).filter(|&id| Model::allows(Some(mask), id)).collect();
    if let [only] = allowed[..] { Some(only) } else { None }
}

/// Follows forced tokens to their end: the text that they make.
fn follow(model: &Model, guide: &mut Guide) -> String {
    let mut tokens = Vec::new();
    while guide.in_reasoning() {
        let Some(token) = forced(model, guide) else { break };
        guide.accept(token).unwrap();
        tokens.push(token);
    }
    model.text(&tokens)
}

#[test]
fn a_spent_budget_closes_the_reasoning_and_the_answer_goes_on() {
    for (family, format) in formats() {
        for (number, marks) in format.reasoning.iter().enumerate() {
            for model in [with_marks(), smollm(), llama()] {
                let reasoning = format.reasoning.clone();
                let rules = Rules {
                    reasoning,
                    starts_in_reasoning: Some(number),
                    reasoning_budget: Some(9),
                    ..Rules::default()
                };
                let mut guide = model.compile(&rules).guide();
                for token in 1000..1009 {
                    assert!(guide.in_reasoning() && guide.mask().unwrap().is_none());
                    guide.accept(token).unwrap();
                }
                assert_eq!(follow(model, &mut guide), marks.close, "{family}");
                assert!(!guide.in_reasoning() && guide.mask().unwrap().is_none());
            }
        }
    }
}

#[test]
fn reasoning_can_be_stopped_from_elsewhere_in_the_middle_of_its_mark() {
    let model = smollm();
    let mut guide = model.compile(&thinking()).guide();
    let stop = guide.stop_thinking();
    tell(model, &mut guide, "Hm, is 1 < 2? </th");
    assert!(guide.in_reasoning() && guide.mask().unwrap().is_none());
    stop.store(true, Ordering::Relaxed);
    assert_eq!(follow(model, &mut guide), "ink>");
    assert!(!guide.in_reasoning());
}

#[test]
fn an_answer_of_a_form_begins_behind_the_reasoning() {
    for model in [with_marks(), smollm()] {
        let mut guide = model.compile(&Rules { response: boolean(), ..thinking() }).guide();
        tell(model, &mut guide, "It is {\"false\"}, I think.");
        assert!(!Model::allows(guide.mask().unwrap(), model.end), "the answer is still to come");
        tell(model, &mut guide, "</think>");
        assert!(!guide.in_reasoning());
        tell(model, &mut guide, "false");
        assert!(Model::allows(guide.mask().unwrap(), model.end));
        guide.accept(model.end).unwrap();
        assert!(guide.must_end());
    }
}

#[test]
fn a_model_may_reason_first_where_the_prompt_does_not_begin_it() {
    let model = with_marks();
    let grammar = model.compile(&Rules { response: boolean(), starts_in_reasoning: None, ..thinking() });
    let mut guide = grammar.guide();
    tell(model, &mut guide, "<think>");
    assert!(guide.in_reasoning());
    tell(model, &mut guide, "well</think>true");
    guide.rewind(2).unwrap();
    tell(model, &mut guide, "</think>");
    let open = model.tokenizer.token_to_id("<think>").unwrap();
    assert!(!Model::allows(guide.mask().unwrap(), open), "once is enough");
    let mut guide = grammar.guide();
    tell(model, &mut guide, "true");
    assert!(Model::allows(guide.mask().unwrap(), model.end));
}

#[test]
fn marks_of_several_tokens_are_written_to_their_end_once_begun() {
    let reasoning =
        formats().values().find(|format| format.reasoning.iter().any(|marks| marks.open.contains("self"))).unwrap();
    let rules = Rules { reasoning: reasoning.reasoning.clone(), response: boolean(), ..Rules::default() };
    let mut guide = smollm().compile(&rules).guide();
    let open = &reasoning.reasoning[0].open;
    let first = smollm().tokenizer.encode(open, Specials::Parse).unwrap()[0];
    guide.accept(first).unwrap();
    let written = smollm().text(&[first]);
    let mut rest = Vec::new();
    while let Some(token) = forced(smollm(), &mut guide) {
        guide.accept(token).unwrap();
        rest.push(token);
    }
    assert_eq!(written + &smollm().text(&rest), *open);
    assert!(guide.in_reasoning() && !guide.must_end());
}

#[test]
fn calls_end_reasoning_where_the_format_has_it_so() {
    let model = with_marks();
    let (_, syntax) = syntaxes()
        .into_iter()
        .find(|(_, syntax)| matches!(syntax, CallSyntax::Tagged(tags) if tags.open.contains("tool_call")))
        .unwrap();
    let tools = vec![Tool { name: "now".into(), parameters: json!(null) }];
    for choice in [ToolChoice::Auto, ToolChoice::Required] {
        let rules = Rules { calls: vec![syntax.clone()], tools: tools.clone(), choice: choice.clone(), ..thinking() };
        let mut guide = model.compile(&rules).guide();
        tell(model, &mut guide, "I call it.<tool_call>");
        assert!(guide.in_call() && !guide.in_reasoning(), "{choice:?}");
        let reasoning = vec![Reasoning { ended_by_calls: false, ..think() }];
        let mut guide = model.compile(&Rules { reasoning, ..rules }).guide();
        tell(model, &mut guide, "I call it.<tool_call>");
        assert!(!guide.in_call() && guide.in_reasoning(), "{choice:?}");
    }
}

#[test]
fn without_anything_asked_everything_is_allowed() {
    let mut guide = smollm().compile(&Rules::default()).guide();
    for token in 500..600 {
        assert!(guide.mask().unwrap().is_none());
        guide.accept(token).unwrap();
    }
    assert!(!guide.in_call() && !guide.in_reasoning() && !guide.must_end());
}

/// Where turns are messages with headers, what is held to a form may say to whom it goes, and nothing else.
#[test]
fn held_answers_have_the_headers_of_their_format() {
    let format = formats().values().find(|format| format.header.is_some()).unwrap();
    let output = OutputFormat::new(format, None, true);
    let tools = vec![Tool { name: "look".into(), parameters: json!({"type": "object", "properties": {}}) }];
    let rules = Rules { header: output.header().cloned(), parallel: true, ..Rules::default() };
    let calls = Rules { calls: format.calls.clone(), tools, choice: ToolChoice::Required, ..rules.clone() };
    let form = Rules { response: ResponseFormat::JsonObject, ..rules };
    let call = "<atem:function_calls>\n<atem:invoke name=\"look\">\n</atem:invoke>\n</atem:function_calls>";
    let to_look = format!(" to=look<|message|>{call}");
    let cases = [
        (&calls, call.to_owned(), true),
        (&calls, to_look.clone(), true),
        (&calls, format!("{to_look}<|eom|><|start|>assistant{to_look}"), true),
        (&calls, format!(" to=user<|message|>{call}"), false),
        (&calls, format!(" to=hear<|message|>{call}"), false),
        (&form, "{\"a\": 1}".into(), true),
        (&form, " to=user<|message|>{\"a\": 1}".into(), true),
        (&form, " to=look<|message|>{\"a\": 1}".into(), false),
    ];
    for (rules, text, good) in cases {
        for reasons in [false, true] {
            let reasoning = if reasons { format.reasoning.clone() } else { Vec::new() };
            let before = if reasons { " to=self<|message|>Hm.<|eom|><|start|>assistant" } else { "" };
            // Without a header, as the turn goes on behind reasoning.
            if reasons && !text.starts_with(' ') {
                continue;
            }
            let mut guide = smollm().compile(&Rules { reasoning, ..rules.clone() }).guide();
            let tokens = smollm().tokenizer.encode(&format!("{before}{text}"), Specials::Plain).unwrap();
            let refused = tokens.iter().find_map(|&token| guide.accept(token).err());
            assert_eq!(refused.is_none(), good, "{before}{text}: {refused:?}");
            assert_eq!(good && Model::allows(guide.mask().unwrap(), smollm().end), good, "{before}{text}");
        }
    }
}

#[test]
fn forms_of_all_kinds_are_held_to() {
    let cases = [
        (ResponseFormat::JsonObject, vec!["{}", "{\"a\": [1, \"b\"]}"], vec!["[", "a", "{,"]),
        (ResponseFormat::Regex("^[0-9]{3}-[a-z]+$".into()), vec!["123-abc"], vec!["12-", "a", "123-A"]),
        (ResponseFormat::Lark("start: \"yes\" | \"no\" /[!?]/\n".into()), vec!["yes", "no!"], vec!["maybe", "no."]),
        (
            ResponseFormat::Gbnf(
                "root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"".into(),
            ),
            vec!["1+2", "(12+(3))+4"],
            vec!["+", "1++", "()"],
        ),
        (
            ResponseFormat::Gbnf("root ::= [a-z]+ \"end\" | \"enx\"".into()),
            vec!["enx", "abcend", "endend"],
            vec!["1", "A"],
        ),
    ];
    for (response, good, bad) in cases {
        let grammar = smollm().compile(&Rules { response: response.clone(), ..Rules::default() });
        for text in good {
            let mut guide = grammar.guide();
            tell(smollm(), &mut guide, text);
            assert!(Model::allows(guide.mask().unwrap(), smollm().end), "{response:?}: {text:?}");
        }
        for text in bad {
            let mut guide = grammar.guide();
            let tokens = smollm().tokenizer.encode(text, Specials::Plain).unwrap();
            let refused = tokens.iter().find_map(|&token| guide.accept(token).err());
            assert!(matches!(refused, Some(GuideError::NotAllowed { .. })), "{response:?}: {text:?}");
        }
    }
}

#[test]
fn texts_that_are_no_grammar_are_refused_by_their_field() {
    let cases = [
        (ResponseFormat::Regex("(".into()), "regex"),
        (ResponseFormat::Regex("(?=a)".into()), "regex"),
        (ResponseFormat::Regex(String::new()), "regex"),
        (ResponseFormat::Lark("start: other".into()), "grammar"),
        (ResponseFormat::Lark("start: \"a".into()), "grammar"),
        (ResponseFormat::Lark(format!("start: {}", "(".repeat(100_000))), "grammar"),
        (ResponseFormat::Gbnf("root ::= other".into()), "grammar"),
        (ResponseFormat::JsonSchema(json!(3)), "response_format.json_schema.schema"),
    ];
    for (response, field) in cases {
        let error = smollm().vocabulary.compile(&Rules { response: response.clone(), ..Rules::default() }).unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert!(error.to_string().len() < 2000, "{error}");
    }
}

#[test]
fn a_token_that_is_not_allowed_changes_nothing() {
    let model = smollm();
    let mut guide = model.compile(&Rules { response: ResponseFormat::JsonObject, ..Rules::default() }).guide();
    tell(model, &mut guide, "{\"a\":");
    let before = guide.mask().unwrap().map(<[u32]>::to_vec);
    let wrong = model.tokenizer.encode("}", Specials::Plain).unwrap()[0];
    for token in [wrong, model.end, u32::MAX] {
        assert_eq!(guide.accept(token), Err(GuideError::NotAllowed { token }));
    }
    assert_eq!(guide.mask().unwrap().map(<[u32]>::to_vec), before);
    assert!(matches!(guide.rewind(99), Err(GuideError::TooFar { tokens: 99, .. })));
    tell(model, &mut guide, "1}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever a model does, tokens taken back and told again lead to the same places.
    #[test]
    fn tokens_taken_back_leave_no_trace(seed in any::<u64>(), kind in 0..4_usize, lengths in prop::collection::vec(1..12_usize, 1..8)) {
        let model = with_marks();
        let tools = vec![Tool { name: "f".into(), parameters: json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}) }];
        let calls: Vec<CallSyntax> = syntaxes().into_iter().map(|(_, syntax)| syntax).collect();
        let rules = match kind {
            0 => Rules { calls, tools, parallel: true, reasoning_budget: Some(10), ..thinking() },
            1 => Rules { calls: vec![calls[seed as usize % calls.len()].clone()], tools, parallel: true, choice: ToolChoice::Required, ..Rules::default() },
            2 => Rules { calls, tools, response: boolean(), ..thinking() },
            _ => Rules { response: ResponseFormat::JsonObject, starts_in_reasoning: None, ..thinking() },
        };
        let wishes = ["</think>", "<think>", "<tool_call>", "<|tool_call>", "\n</parameter>", "</function>", "</tool_call>", "\"", "}", "<|\"|>"];
        let mut guide = model.compile(&rules).guide();
        let mut chance = Chance::new(seed);
        let mut places = Vec::new();
        let step = |guide: &mut Guide, chance: &mut Chance| {
            let mask = guide.mask().unwrap().map(<[u32]>::to_vec);
            let place = (mask, guide.in_call(), guide.in_reasoning(), guide.must_end());
            let wish = wishes[chance.below(wishes.len())].as_bytes();
            let token = model.of_text(place.0.as_deref(), wish).unwrap_or_else(|| model.choose(place.0.as_deref(), chance, 1));
            (place, token)
        };
        for length in lengths {
            for _ in 0..length {
                let (place, token) = step(&mut guide, &mut chance);
                guide.accept(token).unwrap();
                places.push((place, token));
            }
            let back = chance.below(places.len().min(20) + 1);
            // A mask that was found ahead is of no use elsewhere.
            guide.prepare();
            guide.rewind(back).unwrap();
            for (place, token) in &places[places.len() - back..] {
                if chance.below(2) == 0 {
                    guide.prepare();
                    prop_assert!(!guide.takes_work());
                }
                let mask = guide.mask().unwrap().map(<[u32]>::to_vec);
                prop_assert_eq!(&(mask, guide.in_call(), guide.in_reasoning(), guide.must_end()), place);
                guide.accept(*token).unwrap();
            }
            if chance.below(2) == 0 {
                let back = chance.below(places.len().min(20) + 1);
                guide.rewind(back).unwrap();
                places.truncate(places.len() - back);
            }
        }
    }
}
