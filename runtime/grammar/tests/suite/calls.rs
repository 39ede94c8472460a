//! Calls in the syntax of every family: whatever a model writes, they are calls of declared tools with valid arguments.

use bantam_family_api::{CallSyntax, ChatFormat, JsonCalls, NamedCalls, TaggedCalls};
use bantam_grammar::{ResponseFormat, Rules, Tool, ToolChoice};
use bantam_text::{OutputFormat, Turn};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::families::{syntaxes, with_marks};
use crate::model::{Chance, Model, smollm};
use crate::reader;

fn tool(name: &str, parameters: Value) -> Tool {
    Tool { name: name.into(), parameters }
}

fn tools() -> Vec<Tool> {
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required});
    vec![
        tool("now", Value::Null),
        tool("now_in", object(json!({"zone": {"type": "string"}, "precise": {"type": "boolean"}}), &["zone"])),
        tool(
            "write",
            object(
                json!({
                    "path": {"type": "string", "pattern": "^[a-z]{1,8}/[a-z]{1,8}$"},
                    "content": {"type": "string"},
                    "mode": {"enum": ["new", "append", "it's"]},
                    "lines": {"type": "integer", "minimum": 0, "maximum": 500},
                }),
                &["path", "content"],
            ),
        ),
        tool(
            "plan",
            object(
                json!({
                    "steps": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 1, "maxItems": 3},
                    "weights": {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "maxItems": 2},
                    "owner": {"$ref": "#/$defs/person"},
                    "parent": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 99}, {"type": "null"}]},
                    "when": {"type": "string", "format": "date"},
                }),
                &["steps", "owner", "parent"],
            )
            .as_object_mut()
            .map(|schema| {
                let person = json!({
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "minLength": 1, "maxLength": 8},
                        "kind": {"const": "human"},
                        "knows": {"type": "array", "items": {"$ref": "#/$defs/person"}, "maxItems": 1},
                    },
                    "required": ["name", "kind"],
                    "additionalProperties": false,
                });
                schema.insert("$defs".into(), json!({"person": person}));
                Value::Object(schema.clone())
            })
            .unwrap(),
        ),
    ]
}

fn rules(syntax: &CallSyntax, choice: ToolChoice) -> Rules {
    Rules { calls: vec![syntax.clone()], tools: tools(), choice, parallel: true, ..Rules::default() }
}

/// Marks that a model knows of: without these no text would come to its end.
fn wishes(syntax: &CallSyntax) -> Vec<&str> {
    match syntax {
        CallSyntax::Json(calls) => {
            let block = calls.block.as_ref().map_or("", |[_, close]| close);
            vec!["\"", "}", &calls.close, block]
        }
        CallSyntax::Named(calls) => {
            let block = calls.block.as_ref().map_or("", |[_, close]| close);
            vec!["\"", "}", &calls.close, block]
        }
        CallSyntax::Tagged(calls) => {
            let block = calls.block.as_ref().map_or("", |[_, close]| close);
            vec![&calls.argument.close, &calls.close, block]
        }
        CallSyntax::Python { close, .. } => vec!["'", "\"", ")", "]", "}", close],
        CallSyntax::Braced { close, quote, .. } => vec![quote, "}", "]", close],
        CallSyntax::Lark(calls) => vec!["\"", "}", "!", &calls.close],
    }
}

/// Panics unless all of a text is calls of the tools with valid arguments; how many.
fn check(name: &str, text: &str, syntax: &CallSyntax) -> Vec<(String, Value)> {
    let calls = reader::calls(text, syntax, &tools());
    // Marks inside of values are told from others by guessing; all else is read alike.
    if !calls.iter().any(|(_, arguments)| speaks_of_marks(arguments)) {
        COMPARED.fetch_add(1, Ordering::Relaxed);
        assert_eq!(calls, split(text, syntax), "{name}: the splitter reads other calls than {text}");
    }
    for (called, arguments) in &calls {
        let tool = tools().into_iter().find(|tool| tool.name == *called);
        let tool = tool.unwrap_or_else(|| panic!("{name}: no tool {called:?}: {text}"));
        let mut schema = if tool.parameters.is_null() { json!({"type": "object"}) } else { tool.parameters };
        let is_open = !schema["properties"].is_object();
        schema.as_object_mut().unwrap().insert("additionalProperties".into(), is_open.into());
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        if let Err(error) = validator.validate(arguments) {
            panic!("{name}: {error}: {text}");
        }
    }
    calls
}

/// Texts of which the calls were compared with what the runtime reads.
static COMPARED: AtomicUsize = AtomicUsize::new(0);

fn speaks_of_marks(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(['<', '|', '\'', '"']),
        Value::Array(items) => items.iter().any(speaks_of_marks),
        Value::Object(members) => members.values().any(speaks_of_marks),
        _ => false,
    }
}

/// The calls of a text as the runtime reads them.
fn split(text: &str, syntax: &CallSyntax) -> Vec<(String, Value)> {
    let format = ChatFormat { calls: vec![syntax.clone()], ..ChatFormat::default() };
    let tools = tools();
    let mut splitter = OutputFormat::new(&format, None, true).splitter(&tools, "");
    let mut turn = Turn::default();
    splitter.push(text).into_iter().chain(splitter.finish()).for_each(|piece| turn.add(piece));
    let value = |arguments: &str| serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into());
    turn.calls().filter(|call| call.complete).map(|call| (call.name.clone(), value(&call.arguments))).collect()
}

#[test]
fn required_calls_are_calls_in_the_syntax_of_every_family() {
    for (name, syntax) in syntaxes() {
        for (vocabulary, model) in [("marks", with_marks()), ("texts", smollm())] {
            let grammar = model.compile(&rules(&syntax, ToolChoice::Required));
            for seed in 0..6 {
                let name = format!("{name}, {vocabulary}, seed {seed}");
                let text =
                    model.text(&model.write_wishing(&mut grammar.guide(), &mut Chance::new(seed), &wishes(&syntax)));
                assert!(!check(&name, &text, &syntax).is_empty(), "{name}: {text}");
            }
        }
    }
    let compared = COMPARED.load(Ordering::Relaxed);
    assert!(compared > 30, "{compared}");
}

#[test]
fn a_named_tool_is_called_once_where_calls_are_not_parallel() {
    for (name, syntax) in syntaxes() {
        let named = rules(&syntax, ToolChoice::Named("write".into()));
        let grammar = with_marks().compile(&Rules { parallel: false, ..named });
        for seed in 0..4 {
            let tokens = with_marks().write_wishing(&mut grammar.guide(), &mut Chance::new(seed), &wishes(&syntax));
            let text = with_marks().text(&tokens);
            let names: Vec<String> = check(&name, &text, &syntax).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["write"], "{name}: {text}");
        }
    }
}

/// Ways to write a text: in few tokens, and in many.
fn spellings(model: &Model, text: &str) -> [Vec<u32>; 2] {
    let few = model.tokenizer.encode(text, bantam_text::Specials::Parse).unwrap();
    let many = text.chars().flat_map(|c| model.tokenizer.encode(&c.to_string(), bantam_text::Specials::Plain).unwrap());
    [few, many.collect()]
}

#[test]
fn a_call_that_a_model_begins_by_itself_is_held_to_the_tools() {
    let model = with_marks();
    for (name, syntax) in syntaxes() {
        let (lead, opening) = match &syntax {
            CallSyntax::Json(calls) if calls.open.is_empty() => ("", "{\"name\"".to_owned()),
            CallSyntax::Json(JsonCalls { block, open, .. })
            | CallSyntax::Tagged(TaggedCalls { block, open, .. })
            | CallSyntax::Named(NamedCalls { block, open, .. }) => {
                let open = block.as_ref().map_or(open, |[open, _]| open);
                ("I < you <tool ", open.trim().split('\n').next().unwrap().to_owned())
            }
            CallSyntax::Python { open, .. } => ("Let me see. ", open.clone()),
            CallSyntax::Braced { open, .. } => ("", open.clone()),
            CallSyntax::Lark(calls) => ("So I ", calls.open.clone()),
        };
        let grammar = model.compile(&Rules { parallel: false, ..rules(&syntax, ToolChoice::Auto) });
        for (way, spelling) in spellings(model, &opening).into_iter().enumerate() {
            let mut guide = grammar.guide();
            let lead = model.tokenizer.encode(lead, bantam_text::Specials::Plain).unwrap();
            for &token in lead.iter().chain(&spelling) {
                assert!(Model::allows(guide.mask().unwrap(), token), "{name}");
                guide.accept(token).unwrap();
            }
            assert!(guide.in_call(), "{name}, way {way}");
            let rest = model.write_wishing(&mut guide, &mut Chance::new(way as u64), &wishes(&syntax));
            assert!(guide.must_end() && !guide.was_cut() && !guide.in_call());
            let text = model.text(&[spelling, rest].concat());
            assert_eq!(check(&name, &text, &syntax).len(), 1, "{name}: {text}");
        }
    }
}

#[test]
fn text_around_calls_is_free_and_costs_no_mask() {
    let model = with_marks();
    let (_, syntax) = &syntaxes()
        .into_iter()
        .find(|(_, syntax)| matches!(syntax, CallSyntax::Json(calls) if calls.open.contains("tool_call>")))
        .unwrap();
    let mut guide = model.compile(&rules(syntax, ToolChoice::Auto)).guide();
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let text = format!("a {{\"name\": 1}} b{call}\nand{call} c");
    let mut free = 0;
    for token in model.tokenizer.encode(&text, bantam_text::Specials::Parse).unwrap() {
        let mask = guide.mask().unwrap();
        free += usize::from(mask.is_none());
        assert!(Model::allows(mask, token));
        guide.accept(token).unwrap();
    }
    assert!(free > 10 && !guide.in_call() && !guide.must_end());
    guide.accept(model.end).unwrap();
    assert!(guide.must_end());
}

#[test]
fn an_answer_under_a_form_is_of_the_form_or_a_call() {
    let model = with_marks();
    let form = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false});
    let (mut answers, mut called) = (0, 0);
    for (name, syntax) in
        syntaxes().into_iter().filter(|(_, syntax)| !matches!(syntax, CallSyntax::Json(calls) if calls.open.is_empty()))
    {
        let response = ResponseFormat::JsonSchema(form.clone());
        let grammar = model.compile(&Rules { response, ..rules(&syntax, ToolChoice::Auto) });
        for seed in 0..6 {
            let mut guide = grammar.guide();
            // Every second answer begins with a brace, which this model would rarely write.
            let begun = model.tokenizer.encode(["{", ""][seed as usize % 2], bantam_text::Specials::Plain).unwrap();
            begun.iter().for_each(|&token| guide.accept(token).unwrap());
            let rest = model.write_wishing(&mut guide, &mut Chance::new(seed), &wishes(&syntax));
            let text = model.text(&[begun, rest].concat());
            if text.trim_start().starts_with('{') {
                answers += 1;
                assert!(jsonschema::is_valid(&form, &serde_json::from_str(&text).unwrap()), "{name}: {text}");
            } else {
                called += 1;
                assert!(!check(&name, &text, &syntax).is_empty());
            }
        }
    }
    assert!(answers > 0 && called > 0, "{answers} answers, {called} calls");
}

#[test]
fn calls_that_cannot_be_held_to_are_refused_by_their_place() {
    let refusal = |rules: Rules| with_marks().vocabulary.compile(&rules).expect_err("refused").to_string();
    let (_, syntax) = syntaxes().remove(0);
    let with = |tools: Vec<Tool>| Rules { tools, ..rules(&syntax, ToolChoice::Auto) };
    let good = || tool("good", json!({"type": "object"}));
    let bad = |schema: Value| with(vec![good(), tool("bad", json!({"type": "object", "properties": {"x": schema}}))]);
    let place = "`tools[1].function.parameters` (tool \"bad\") at #/properties/x";
    assert!(refusal(bad(json!({"not": {}}))).starts_with(&format!("{place}: `not`: is not supported")));
    assert!(refusal(bad(json!({"type": "string", "pattern": "("}))).starts_with(&format!("{place}: `pattern`: ")));
    assert!(
        refusal(with(vec![tool("t", json!({"type": "array"}))]))
            .starts_with("`tools[0].function.parameters` (tool \"t\") at #: `type`")
    );
    assert!(
        refusal(with(vec![good(), good()]))
            .starts_with("`tools[1].function.name` (tool \"good\"): is the name of another")
    );
    assert!(refusal(rules(&syntax, ToolChoice::Named("other".into()))).starts_with("`tool_choice`: names \"other\""));
    assert!(
        refusal(Rules { tools: vec![], ..rules(&syntax, ToolChoice::Required) })
            .starts_with("`tool_choice`: requires a call")
    );
    assert!(
        refusal(Rules { calls: vec![], ..rules(&syntax, ToolChoice::Required) }).contains("not taught to call tools")
    );
}

#[test]
fn a_call_that_becomes_too_long_is_cut() {
    let model = with_marks();
    for (name, syntax) in syntaxes() {
        let grammar =
            model.compile(&Rules { max_call_tokens: Some(3), ..rules(&syntax, ToolChoice::Named("write".into())) });
        let mut guide = grammar.guide();
        let tokens = model.write(&mut guide, &mut Chance::new(1));
        assert!(tokens.len() <= 4 && guide.was_cut(), "{name}: {} tokens", tokens.len());
        assert!(Model::allows(guide.mask().unwrap(), model.end));
    }
}

#[test]
fn a_token_that_goes_on_behind_a_mark_is_allowed_only_where_the_call_does() {
    let model = smollm();
    let [open, close, name] = ["<tool_call>\n", "\n</tool_call>", "name"].map(Into::into);
    let syntax = CallSyntax::Json(JsonCalls { block: None, open, close, name, arguments: vec!["arguments".into()] });
    let mut guide = model.compile(&rules(&syntax, ToolChoice::Auto)).guide();
    for token in spellings(model, "See <tool_call")[1].clone() {
        assert!(guide.mask().unwrap().is_none());
        guide.accept(token).unwrap();
    }
    let mask = guide.mask().unwrap().map(<[u32]>::to_vec);
    let size = u32::try_from(model.tokenizer.vocab_size()).unwrap();
    let through = (0..size).filter(|&id| model.tokenizer.token_bytes(id, false).starts_with(b">"));
    let (mut taken, mut refused) = (0, 0);
    for token in through {
        match guide.accept(token) {
            Ok(()) => {
                taken += 1;
                guide.rewind(1).unwrap();
                assert!(Model::allows(mask.as_deref(), token));
            }
            Err(_) => {
                refused += 1;
                assert!(!Model::allows(mask.as_deref(), token));
            }
        }
    }
    assert!(taken > 0 && refused > 10, "{taken} taken, {refused} refused");
}
