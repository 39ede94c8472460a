//! Draft graphs, run by the interpreter behind their trunk, propose what the reference does.

use std::collections::HashMap;

use bantam_family_api::{Checkpoint, Draft, DraftMethod, FamilyError, MetaValue};
use bantam_graph::Graph;

use crate::{
    golden::{argmax, largest_difference},
    interpreter::{self, Input, Tensor, Value},
    support::{Fixture, describe, drafts, family, fixture, fixtures},
};

/// A model and a draft for it, with the tensors of their files.
struct Pair {
    target: Fixture,
    file: Option<Fixture>,
    draft: Draft,
    graphs: Vec<Graph>,
}

impl Pair {
    fn within(target: Fixture) -> Self {
        let model = describe(&target.checkpoint).unwrap();
        let draft = model.draft.clone().unwrap();
        Pair { graphs: draft.graphs(&model.text).unwrap(), file: None, target, draft }
    }

    fn beside(target: Fixture, file: Fixture) -> Self {
        let trunk = describe(&target.checkpoint).unwrap().text;
        let draft = family(&target.checkpoint.architecture).describe_draft(&file.checkpoint, &target.checkpoint);
        let draft = draft.unwrap();
        Pair { graphs: draft.graphs(&trunk).unwrap(), file: Some(file), target, draft }
    }

    /// The draft that another checkpoint describes for the same model.
    fn described_from(&self, draft: &Checkpoint) -> Result<Draft, FamilyError> {
        family(&self.target.checkpoint.architecture).describe_draft(draft, &self.target.checkpoint)
    }

    fn name(&self) -> &str {
        self.file.as_ref().map_or(&self.target.name, |file| &file.name)
    }

    fn tensor(&self, name: &str) -> Tensor {
        match name.strip_prefix("draft.") {
            Some(name) => self.file.as_ref().unwrap().tensors[name].clone(),
            None => self.target.tensors[name].clone(),
        }
    }

    fn run(&self, graph: usize, input: Input<'_>) -> interpreter::Outcome {
        interpreter::run_from(&self.graphs[graph], &|name| self.tensor(name), input)
    }
}

/// Every draft in a checkpoint of its model, and every one in a file of its own.
fn pairs() -> Vec<Pair> {
    let drafted = fixtures().into_iter().filter(|fixture| fixture.expect.get("mtp").is_some());
    let mut pairs: Vec<Pair> = Vec::new();
    for target in drafted {
        pairs.extend(target.draft_file().map(|file| Pair::beside(target.clone(), file)));
        pairs.push(Pair::within(target));
    }
    let target = |draft: &Fixture| fixture(draft.expect["target"].as_str().unwrap());
    pairs.extend(drafts().into_iter().map(|draft| Pair::beside(target(&draft), draft)));
    pairs
}

fn ids(value: &serde_json::Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// What the reference says of a draft that goes on one token after another.
struct Chain {
    /// Tokens of the sequence, of which the trunk has not seen the last.
    tokens: Vec<u32>,
    /// Logits of the rows that read them; the reference leaves out the last one where it counts to the tokens it saw.
    logits: Vec<f32>,
    proposed: Vec<u32>,
    proposing_logits: Option<Vec<f32>>,
}

impl Chain {
    fn of(pair: &Pair) -> Self {
        let told = pair.file.as_ref().filter(|file| file.expect["kind"] == "draft");
        if let Some(file) = told {
            let tokens = [file.ids("tokens"), vec![file.expect["chain_first"].as_u64().unwrap() as u32]].concat();
            let (logits, proposed) = (file.numbers("logits.f32"), file.ids("chain"));
            return Chain { tokens, logits, proposed, proposing_logits: None };
        }
        let (fixture, mtp) = (&pair.target, &pair.target.expect["mtp"]);
        let proposed = ["draft_greedy", "drafts", "draft_after_prompt"].into_iter().find_map(|key| mtp.get(key));
        let draft_logits = mtp.get("draft_logits").and_then(serde_json::Value::as_str);
        Chain {
            tokens: [fixture.ids("prompt"), vec![fixture.ids("greedy")[0]]].concat(),
            logits: fixture.numbers(mtp["logits"].as_str().unwrap()),
            proposed: ids(proposed.unwrap()),
            proposing_logits: draft_logits.map(|file| fixture.numbers(file)),
        }
    }
}

/// Logits and taps of the rows that read `tokens`, where `seen` has a row for each of them before the last.
fn chained(pair: &Pair, shift: usize, tokens: &[u32], seen: &Value) -> [Value; 2] {
    let before = |i: usize| if i == 0 { vec![0.0; seen.width] } else { seen.row(i - 1).to_vec() };
    let hidden = Value { width: seen.width, data: (shift..tokens.len()).flat_map(before).collect() };
    let logit_rows = (0..tokens.len() - shift).collect();
    let input = Input { tokens: &tokens[shift..], logit_rows, hidden: vec![hidden], ..Input::default() };
    let values = pair.run(1, input).values;
    [&pair.draft.graph.output, &pair.draft.graph.taps[0]].map(|name| values[name].clone())
}

fn last(value: &Value) -> &[f64] {
    value.row(value.rows().len() - 1)
}

#[test]
fn chains_propose_what_the_reference_does_and_go_on_from_their_own_rows() {
    let mut shifts = Vec::new();
    for pair in pairs() {
        let DraftMethod::Chain { shift, standing: false } = pair.draft.method else { continue };
        shifts.push(shift);
        let Chain { mut tokens, logits, proposed, proposing_logits } = Chain::of(&pair);
        let (_, known) = tokens.split_last().unwrap();
        let mut seen =
            pair.run(0, Input { tokens: known, ..Input::default() }).values.remove(&pair.graphs[0].taps[0]).unwrap();
        let mut found = Vec::new();
        for (i, &token) in proposed.iter().enumerate() {
            let [rows, taps] = chained(&pair, shift, &tokens, &seen);
            if i == 0 {
                assert!(rows.rows().len() - logits.len() / rows.width <= 1);
                let difference = largest_difference(&rows.data[..logits.len()], &logits);
                assert!(difference < 2e-3, "{}: draft logits differ by {difference}", pair.name());
            }
            assert_eq!(argmax(last(&rows)) as u32, token, "{}", pair.name());
            found.extend_from_slice(last(&rows));
            seen.data.extend_from_slice(last(&taps));
            tokens.push(token);
        }
        if let Some(expected) = proposing_logits {
            let difference = largest_difference(&found, &expected);
            assert!(difference < 2e-3, "{}: draft logits differ by {difference}", pair.name());
        }
    }
    assert!(shifts.contains(&0) && shifts.contains(&1));
}

/// A block that is drafted after some of the tokens of its fixture.
struct Block<'p> {
    pair: &'p Pair,
    case: &'p serde_json::Value,
    /// The first rows of the states that the trunk keeps for the draft.
    before: HashMap<String, Value>,
}

impl Block<'_> {
    fn anchor(&self) -> u32 {
        self.case["anchor"].as_u64().unwrap() as u32
    }

    /// What the block taps.
    fn taps(&self, size: usize, mask_token: u32) -> Vec<Value> {
        let mut tokens = vec![mask_token; size];
        tokens[0] = self.anchor();
        let start = self.case["context"].as_u64().unwrap() as usize;
        let first = |rows: &Value| Value { width: rows.width, data: rows.data[..start * rows.width].to_vec() };
        let graph = &self.pair.graphs[1];
        let aliased = graph.states.iter().filter_map(|state| Some((&state.name, &state.alias.as_ref()?.state)));
        let aliases = aliased.map(|(name, owner)| (name.clone(), first(&self.before[owner]))).collect();
        let input = Input { tokens: &tokens, start, aliases, ..Input::default() };
        let values = self.pair.run(1, input).values;
        graph.taps.iter().map(|tap| values[tap].clone()).collect()
    }

    /// Logits of each row with what the row before proposed, what is proposed, and how probably it holds.
    fn refined(&self, taps: &[Value]) -> (Vec<f64>, Vec<u32>, Vec<f64>) {
        let (mut logits, mut proposed, mut probabilities) = (Vec::new(), vec![self.anchor()], Vec::new());
        for row in 0..taps[0].rows().len() {
            let hidden = taps.iter().map(|tap| Value { width: tap.width, data: tap.row(row).to_vec() }).collect();
            let tokens = &proposed[row..];
            let values = self.pair.run(2, Input { tokens, logit_rows: vec![0], hidden, ..Input::default() }).values;
            let graph = &self.pair.graphs[2];
            probabilities.extend(&values[&graph.taps[0]].data);
            logits.extend(&values[&graph.output].data);
            proposed.push(argmax(&values[&graph.output].data) as u32);
        }
        (logits, proposed.split_off(1), probabilities)
    }
}

#[test]
fn blocks_propose_what_the_reference_does_with_its_confidence() {
    let mut blocks = 0;
    for pair in pairs() {
        let DraftMethod::Block { size, mask_token, ahead: 1, refine: Some(_) } = pair.draft.method else { continue };
        let file = pair.file.as_ref().unwrap();
        let trunk = pair.run(0, Input { tokens: &file.ids("tokens"), ..Input::default() });
        let features = largest_difference(&trunk.values["draft_features"].data, &file.numbers("features.f32"));
        assert!(features < 2e-3, "{}: what is read of the trunk differs by {features}", pair.name());
        let expected = file.numbers("logits.f32");
        let rows = expected.chunks_exact(size * pair.target.expect["vocab"].as_u64().unwrap() as usize);
        for (case, expected) in file.expect["cases"].as_array().unwrap().iter().zip(rows) {
            let block = Block { pair: &pair, case, before: trunk.states.clone() };
            let (logits, proposed, probabilities) = block.refined(&block.taps(size, mask_token));
            let difference = largest_difference(&logits, expected);
            assert!(difference < 2e-3, "{}: draft logits differ by {difference}", pair.name());
            assert_eq!(proposed, ids(&case["draft"]), "{}", pair.name());
            let confidence: Vec<f32> = serde_json::from_value(case["confidence"].clone()).unwrap();
            assert!(largest_difference(&probabilities, &confidence) < 1e-4, "{}", pair.name());
            blocks += 1;
        }
    }
    assert!(blocks > 0);
}

#[test]
fn a_block_without_its_bias_proposes_by_itself() {
    let mut file = fixture("dflash-dspark4");
    let expected = Pair::beside(fixture("deepseek4-within"), file.clone());
    file.take("markov_w1.weight");
    let plain = Pair::beside(fixture("deepseek4-within"), file);
    assert_eq!((plain.graphs.len(), expected.graphs.len()), (2, 3));
    assert_eq!((&plain.graphs[0], &plain.graphs[1].nodes), (&expected.graphs[0], &expected.graphs[1].nodes));
    assert!(plain.graphs[1].taps.is_empty());
}

#[test]
fn what_a_block_draft_cannot_be_is_refused_by_key() {
    let refusal = |change: &dyn Fn(&mut Fixture)| {
        let mut file = fixture("dflash-dspark4");
        change(&mut file);
        let target = fixture("deepseek4-within").checkpoint;
        family("deepseek4").describe_draft(&file.checkpoint, &target).unwrap_err().to_string()
    };
    let array = |numbers: &[u64]| MetaValue::Array(numbers.iter().copied().map(MetaValue::Uint).collect());
    for (key, value) in [
        ("block_size", MetaValue::Uint(0)),
        ("block_size", MetaValue::Uint(1 << 31)),
        ("embedding_length", MetaValue::Uint(55)),
        ("sample_from_anchor", MetaValue::Bool(false)),
        ("target_layers", array(&[])),
        ("target_layers", array(&[2, 5])),
        ("target_layers", array(&[0, 2])),
        ("target_layers", array(&[2, 2])),
        ("attention.compress_ratios", array(&[0, 4, 0])),
    ] {
        let message = refusal(&|file| file.set(key, value.clone()));
        assert!(message.contains(&format!("dflash.{key}")), "{key}: {message}");
    }
    let message = refusal(&|file| {
        file.checkpoint.metadata.insert("tokenizer.ggml.mask_token_id".into(), MetaValue::Uint(352));
    });
    assert!(message.contains("tokenizer.ggml.mask_token_id"), "{message}");
}

/// Tensors that files of drafts repeat from the model's, for programs that load them alone.
const REPEATED: &[&str] = &["output_norm.weight", "output.weight", "token_embd.weight"];

/// Without them a block draft is another kind of draft.
const OPTIONAL: &[&str] = &["markov_w1.weight", "conf_proj.weight"];

#[test]
fn every_tensor_of_a_draft_file_is_used() {
    for pair in pairs() {
        let Some(file) = &pair.file else { continue };
        let exprs = pair.graphs.iter().flat_map(|graph| &graph.weights).map(|weight| &weight.expr);
        let read: Vec<&str> = exprs.flat_map(|e| e.tensors()).filter_map(|t| t.strip_prefix("draft.")).collect();
        for tensor in file.tensors.keys().map(String::as_str) {
            assert!(REPEATED.contains(&tensor) || read.contains(&tensor), "{}: {tensor}", pair.name());
        }
    }
}

#[test]
fn a_missing_or_misshapen_tensor_of_a_draft_file_is_named() {
    for pair in pairs() {
        let Some(file) = &pair.file else { continue };
        for tensor in file.tensors.keys().map(String::as_str) {
            let mut missing = file.checkpoint.clone();
            missing.tensors.remove(tensor);
            match pair.described_from(&missing) {
                Ok(_) => assert!(REPEATED.contains(&tensor) || OPTIONAL.contains(&tensor), "{tensor}"),
                Err(e) => assert!(e.to_string().contains(tensor), "{tensor}: {e}"),
            }
            let mut misshapen = file.checkpoint.clone();
            misshapen.tensors.get_mut(tensor).unwrap().shape[0] += 2;
            match pair.described_from(&misshapen) {
                Ok(_) => assert!(REPEATED.contains(&tensor), "{tensor}"),
                Err(e) => assert!(e.to_string().contains(tensor), "{tensor}: {e}"),
            }
        }
    }
}

#[test]
fn a_draft_of_other_tokens_is_refused_with_both_sizes() {
    let Pair { mut target, file, .. } = pairs().into_iter().find(|pair| pair.file.is_some()).unwrap();
    let mut table = target.take("token_embd.weight");
    let width = table.shape[1];
    table.shape[0] += 1;
    table.data.extend(vec![0.0; width]);
    let shape = target.checkpoint.shown(&table.shape);
    target.put("token_embd.weight", table);
    let draft = file.unwrap().checkpoint;
    let message = family(&draft.architecture).describe_draft(&draft, &target.checkpoint).unwrap_err().to_string();
    assert!(message.contains("token_embd.weight") && message.contains(&shape), "{message}");
}
