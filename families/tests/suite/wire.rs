//! What crosses to a plugin and back: it arrives whole, and nothing that is not known is passed over.

use std::collections::{BTreeMap, BTreeSet};

use bantam_family_api::{
    AxisOrder, CallSyntax, ChatFormat, Checkpoint, Draft, Family, FamilyError, HfCheckpoint, Import, MetaValue, Model,
    PreTokenizer, TensorMeta, TokenizerHints, TokenizerModel,
    wire::{self, ABI, BuildAnswer, BuildRequest, Description, Malformed, WireError},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    everything::everything,
    support::{describe, family, fixture, fixtures},
};

/// A family that does what no family may, and one thing that it may.
struct Odd;

impl Family for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["odd"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        assert!(checkpoint.metadata.is_empty(), "a panic with words");
        Err(FamilyError::key("odd.size", "an integer", "no such key"))
    }
}

fn values() -> impl Strategy<Value = MetaValue> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(MetaValue::Bool),
        any::<u64>().prop_map(MetaValue::Uint),
        (i64::MIN..0).prop_map(MetaValue::Int),
        any::<f64>().prop_map(MetaValue::Float),
        any::<f32>().prop_map(|x| MetaValue::Float(x.into())),
        any::<String>().prop_map(MetaValue::Text),
        any::<Vec<u8>>().prop_map(MetaValue::Bytes),
        (any::<String>(), any::<u64>()).prop_map(|(r#type, length)| MetaValue::Omitted { r#type, length }),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| prop::collection::vec(inner, 0..5).prop_map(MetaValue::Array))
}

fn checkpoints() -> impl Strategy<Value = Checkpoint> {
    let tensor = (prop::collection::vec(any::<u32>(), 0..4), any::<String>())
        .prop_map(|(shape, r#type)| TensorMeta { shape: shape.iter().map(|&n| n as usize).collect(), r#type });
    let metadata = prop::collection::btree_map(any::<String>(), values(), 0..6);
    (any::<String>(), metadata, prop::collection::btree_map(any::<String>(), tensor, 0..4)).prop_map(
        |(architecture, metadata, tensors)| Checkpoint {
            architecture,
            metadata,
            tensors,
            axes: AxisOrder::SlowestFirst,
        },
    )
}

/// A text that tells all values apart, NaN too.
fn told(request: &BuildRequest) -> String {
    format!("{request:?}")
}

proptest! {
    #[test]
    fn a_checkpoint_arrives_as_it_was(draft in checkpoints(), target in checkpoints()) {
        let request = BuildRequest::Draft { draft, target };
        prop_assert_eq!(told(&BuildRequest::from_slice(&request.to_vec().unwrap()).unwrap()), told(&request));
    }

    #[test]
    fn bytes_are_answered_whatever_they_are(bytes in any::<Vec<u8>>(), cut in any::<prop::sample::Index>()) {
        let request = BuildRequest::Model { checkpoint: Checkpoint::default() }.to_vec().unwrap();
        let spliced = [&request[..cut.index(request.len())], &bytes].concat();
        for bytes in [bytes, spliced] {
            let answer = BuildAnswer::from_slice(&wire::answer(&Odd, &bytes)).unwrap();
            prop_assert!(matches!(answer, BuildAnswer::Error(_)));
        }
    }
}

/// Everything that a model may be made of: every op, every hint.
fn everything_at_once() -> Model {
    let hints = TokenizerHints {
        model: Some(TokenizerModel::ByteLevel),
        pre: Some(PreTokenizer { patterns: vec![r"\p{N}".into()], nfc: true, whole_pieces: true }),
        add_bos: Some(false),
        ..TokenizerHints::default()
    };
    let described = describe(&fixture("qwen35-mtp").checkpoint).unwrap();
    Model { text: everything(), tokenizer: Some(hints), ..described }
}

fn chats() -> impl Iterator<Item = ChatFormat> {
    fixtures().into_iter().map(|fixture| describe(&fixture.checkpoint).unwrap().chat)
}

/// A model for each chat format.
fn models() -> Vec<Model> {
    let all = everything_at_once();
    let mut models: Vec<Model> = chats().map(|chat| Model { chat, ..all.clone() }).collect();
    models.dedup_by(|a, b| a == b);
    models
}

#[test]
fn models_and_drafts_arrive_as_they_were() {
    for model in models() {
        let draft = BuildAnswer::Draft(Box::new(model.draft.clone().unwrap()));
        for answer in [draft, BuildAnswer::Model(Box::new(model))] {
            assert_eq!(BuildAnswer::from_slice(&answer.to_vec().unwrap()).unwrap(), answer);
        }
    }
}

#[test]
fn a_family_answers_through_the_wire_what_it_answers_within_the_tree() {
    for fixture in fixtures() {
        let checkpoint = fixture.checkpoint;
        let family = family(&checkpoint.architecture);
        let described = family.describe(&checkpoint).unwrap();
        let request = BuildRequest::Model { checkpoint }.to_vec().unwrap();
        let answer = BuildAnswer::from_slice(&wire::answer(family, &request)).unwrap();
        assert_eq!(answer, BuildAnswer::Model(Box::new(described)), "{}", fixture.name);
    }
}

/// Where objects stand whose keys this version knows; of places that differ only in numbers, and in which op or expression
/// they are of, one.
fn objects(value: &Value, at: String, kinds: &str, found: &mut BTreeMap<String, String>) {
    match value {
        // What the model's authors or its template call things is theirs.
        Value::Object(_) if at.ends_with("/config") || (at.contains("/efforts/") && at.ends_with("/value")) => {}
        Value::Object(keys) => {
            // What is named by the checkpoint, not by the format: `{"tensors": {NAME: …}}`.
            let named = ["/tensors", "/metadata", "/origins"].iter().any(|end| at.ends_with(end));
            for (key, value) in keys {
                let kind = if named { "*" } else { key };
                objects(value, format!("{at}/{key}"), &format!("{kinds}/{kind}"), found);
            }
            if !named {
                found.entry(kinds.into()).or_insert(at);
            }
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| objects(value, format!("{at}/{i}"), kinds, found));
        }
        _ => {}
    }
}

fn refuses_what_it_does_not_know<T: std::fmt::Debug>(message: &[u8], read: impl Fn(&[u8]) -> Result<T, Malformed>) {
    let value: Value = serde_json::from_slice(message).unwrap();
    let mut places = BTreeMap::new();
    objects(&value, String::new(), "", &mut places);
    assert!(!places.is_empty());
    for at in places.values() {
        let mut changed = value.clone();
        changed.pointer_mut(at).unwrap().as_object_mut().unwrap().insert("surprise".into(), json!(1));
        let refusal = read(&serde_json::to_vec(&changed).unwrap()).expect_err(at).to_string();
        assert!(refusal.contains("`surprise`"), "{at}: {refusal}");
    }
}

fn an_import() -> Import {
    let mut import = Import { checkpoint: fixture("qwen35-dense").checkpoint, ..Import::default() };
    import.origins.insert("qwen35.block_count".into(), "config.json: num_hidden_layers".into());
    let weight = everything().weights.swap_remove(0);
    import.tensors.insert(weight.name, weight.expr);
    import
}

#[test]
fn nothing_that_is_not_known_is_passed_over() {
    for model in models() {
        refuses_what_it_does_not_know(&BuildAnswer::Model(Box::new(model)).to_vec().unwrap(), BuildAnswer::from_slice);
    }
    let drafts = ["qwen35-mtp", "deepseek4-within"].map(fixture);
    let own = |f: &crate::support::Fixture| -> Option<Draft> { describe(&f.checkpoint).unwrap().draft };
    for draft in drafts.iter().filter_map(own) {
        refuses_what_it_does_not_know(&BuildAnswer::Draft(Box::new(draft)).to_vec().unwrap(), BuildAnswer::from_slice);
    }
    refuses_what_it_does_not_know(
        &BuildAnswer::Import(Box::new(an_import())).to_vec().unwrap(),
        BuildAnswer::from_slice,
    );
    let errors = [
        WireError::message("no"),
        WireError::Key { key: "k".into(), expected: "e".into(), found: "f".into() },
        WireError::Tensor { tensor: "t".into(), expected: "e".into(), found: "f".into() },
    ];
    for error in errors {
        refuses_what_it_does_not_know(&BuildAnswer::Error(error).to_vec().unwrap(), BuildAnswer::from_slice);
    }
    let checkpoint = fixture("qwen35moe-a").checkpoint;
    let model = BuildRequest::Model { checkpoint: checkpoint.clone() };
    let draft = BuildRequest::Draft { draft: checkpoint.clone(), target: checkpoint };
    let import = BuildRequest::Import { checkpoint: HfCheckpoint::default() };
    for request in [model, draft, import] {
        refuses_what_it_does_not_know(&request.to_vec().unwrap(), BuildRequest::from_slice);
    }
    refuses_what_it_does_not_know(&wire::description(&Odd, "1"), Description::from_slice);
}

#[test]
fn a_call_syntax_of_an_unknown_kind_is_passed_over_and_named() {
    let mut model = everything_at_once();
    let known = model.chat.calls.clone();
    let answer = BuildAnswer::Model(Box::new(model.clone())).to_vec().unwrap();
    let mut value: Value = serde_json::from_slice(&answer).unwrap();
    let calls = value["model"]["chat"]["calls"].as_array_mut().unwrap();
    calls.insert(0, json!({"runes": {"open": "ᚠ"}}));
    calls.push(json!("silence"));
    let answer = BuildAnswer::from_slice(&serde_json::to_vec(&value).unwrap()).unwrap();
    model.chat.unknown_calls = vec!["runes".into(), "silence".into()];
    assert_eq!(model.chat.calls, known);
    assert_eq!(answer, BuildAnswer::Model(Box::new(model)));
    // An unknown attribute of a known kind is no unknown kind.
    value["model"]["chat"]["calls"] = json!([{"python": {"open": "[", "close": "]", "surprise": 1}}]);
    let refusal = BuildAnswer::from_slice(&serde_json::to_vec(&value).unwrap()).unwrap_err().to_string();
    assert!(refusal.starts_with("model.chat.calls[0].python.surprise: unknown key `surprise`"), "{refusal}");
}

#[test]
fn all_kinds_of_call_syntax_are_listed() {
    let refusal = serde_json::from_value::<CallSyntax>(json!({"runes": 1})).unwrap_err().to_string();
    let kinds: BTreeSet<&str> = refusal.split('`').skip(3).step_by(2).collect();
    assert_eq!(kinds, CallSyntax::KINDS.iter().copied().collect());
}

#[test]
fn the_other_version_is_named_before_anything_else_is() {
    for other in [json!(ABI + 1), json!("0"), json!(null)] {
        let message = json!({"bantam_plugin": other, "model": {"surprise": 1}}).to_string();
        let refusal = BuildAnswer::from_slice(message.as_bytes()).unwrap_err();
        assert_eq!(refusal, Malformed::Version { found: other.to_string() });
    }
    let refusal = BuildAnswer::from_slice(b"{}").unwrap_err().to_string();
    assert!(refusal.contains("`bantam_plugin`"), "{refusal}");
}

fn error_of(request: &BuildRequest) -> WireError {
    match BuildAnswer::from_slice(&wire::answer(&Odd, &request.to_vec().unwrap())).unwrap() {
        BuildAnswer::Error(error) => error,
        answer => panic!("expected an error, found {answer:?}"),
    }
}

#[test]
fn refusals_and_panics_are_answers() {
    let mut checkpoint = Checkpoint { architecture: "odd".into(), ..Checkpoint::default() };
    let model = |checkpoint: &Checkpoint| error_of(&BuildRequest::Model { checkpoint: checkpoint.clone() });
    let refusal = FamilyError::from(model(&checkpoint));
    assert_eq!(refusal, FamilyError::key("odd.size", "an integer", "no such key"));
    let draft = BuildRequest::Draft { draft: checkpoint.clone(), target: checkpoint.clone() };
    assert!(FamilyError::from(error_of(&draft)).to_string().contains("knows no draft files"));
    checkpoint.metadata.insert("odd".into(), MetaValue::Bool(true));
    assert_eq!(model(&checkpoint), WireError::message("the plugin panicked: a panic with words"));
}

#[test]
fn a_family_says_who_it_is() {
    let said = Description::from_slice(&wire::description(family("qwen35"), "1.2.3")).unwrap();
    assert_eq!((said.bantam_plugin, said.name.as_str(), said.version.as_str()), (ABI, "Qwen 3.5", "1.2.3"));
    assert!(said.architectures.iter().any(|name| name == "qwen35") && !said.hf_architectures.is_empty());
}
