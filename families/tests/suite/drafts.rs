//! Draft graphs, run by the interpreter behind their trunk, propose what the reference does.

use bantam_family_api::{Draft, DraftMethod, Model};
use bantam_graph::Graph;

use crate::{
    golden::{argmax, largest_difference},
    interpreter::{self, Input, Outcome, Tensor, Value},
    support::{Fixture, describe, family, fixtures},
};

/// A chained draft and what it drafts for, with the tensors of their files.
struct Chain {
    fixture: Fixture,
    file: Option<Fixture>,
    trunk: Graph,
    draft: Graph,
}

impl Chain {
    fn new(fixture: Fixture, file: Option<Fixture>, model: &Model, draft: &Draft) -> Self {
        assert_eq!(draft.method, DraftMethod::Chain { shift: 1, standing: false }, "{}", fixture.name);
        let [trunk, draft] = draft.graphs(&model.text).unwrap().try_into().unwrap();
        Chain { fixture, file, trunk, draft }
    }

    fn tensor(&self, name: &str) -> Tensor {
        match name.strip_prefix("draft.") {
            Some(name) => self.file.as_ref().unwrap().tensors[name].clone(),
            None => self.fixture.tensors[name].clone(),
        }
    }

    /// What the trunk taps for `tokens`.
    fn tapped(&self, tokens: &[u32]) -> Value {
        let mut values = interpreter::run(&self.trunk, &|name| self.tensor(name), tokens, &[]);
        values.remove(&self.trunk.taps[0]).unwrap()
    }

    /// The run of the draft over rows that each read a token and a hidden row.
    fn drafted(&self, tokens: &[u32], hidden: &Value) -> Outcome {
        let logit_rows = (0..tokens.len()).collect();
        let input = Input { tokens, logit_rows, hidden: vec![hidden.clone()], ..Input::default() };
        interpreter::run_from(&self.draft, &|name| self.tensor(name), input)
    }

    fn logits<'o>(&self, outcome: &'o Outcome) -> &'o Value {
        &outcome.values[&self.draft.output]
    }
}

/// Chains of all fixtures that tell what is drafted: blocks of the model's own file, and of one beside it.
fn chains() -> Vec<Chain> {
    let drafted = fixtures().into_iter().filter(|fixture| fixture.expect.get("mtp").is_some());
    let chains = drafted.flat_map(|fixture| {
        let model = describe(&fixture.checkpoint).unwrap();
        let own = Chain::new(fixture.clone(), None, &model, model.draft.as_ref().unwrap());
        let file = fixture.draft_file().map(|file| {
            let draft = family(&file.checkpoint.architecture).describe_draft(&file.checkpoint, &fixture.checkpoint);
            Chain::new(fixture, Some(file), &model, &draft.unwrap())
        });
        std::iter::once(own).chain(file)
    });
    chains.collect()
}

#[test]
fn draft_logits_equal_the_reference_at_every_row() {
    for chain in chains() {
        let (mut tokens, first) = (chain.fixture.ids("prompt"), chain.fixture.ids("greedy")[0]);
        let hidden = chain.tapped(&tokens);
        tokens.remove(0);
        tokens.push(first);
        let outcome = chain.drafted(&tokens, &hidden);
        let expected = chain.fixture.numbers("mtp_logits.f32");
        let found = &chain.logits(&outcome).data[..expected.len()];
        let difference = largest_difference(found, &expected);
        assert!(difference < 2e-3, "{}: draft logits differ by {difference}", chain.fixture.name);
    }
}

#[test]
fn a_chain_goes_on_from_its_own_rows_as_the_reference_does() {
    for chain in chains() {
        let mtp = &chain.fixture.expect["mtp"];
        let tokens = ["draft_greedy", "drafts", "draft_after_prompt"].into_iter().find_map(|key| mtp.get(key));
        let expected: Vec<u32> = serde_json::from_value(tokens.unwrap().clone()).unwrap();
        let (mut tokens, first) = (chain.fixture.ids("prompt"), chain.fixture.ids("greedy")[0]);
        let mut hidden = chain.tapped(&tokens);
        tokens.remove(0);
        tokens.push(first);
        let (mut proposed, mut logits) = (Vec::new(), Vec::new());
        for _ in &expected {
            let outcome = chain.drafted(&tokens, &hidden);
            let last = tokens.len() - 1;
            hidden.data.extend_from_slice(outcome.values[&chain.draft.taps[0]].row(last));
            logits.extend_from_slice(chain.logits(&outcome).row(last));
            proposed.push(argmax(chain.logits(&outcome).row(last)) as u32);
            tokens.extend(proposed.last());
        }
        assert_eq!(proposed, expected, "{}", chain.fixture.name);
        if mtp.get("draft_logits").is_some() {
            let difference = largest_difference(&logits, &chain.fixture.numbers("mtp_chain_logits.f32"));
            assert!(difference < 2e-3, "{}: draft logits differ by {difference}", chain.fixture.name);
        }
    }
}

#[test]
fn a_draft_of_other_tokens_is_refused_with_both_sizes() {
    let chain = chains().into_iter().find(|chain| chain.file.is_some()).unwrap();
    let mut target = chain.fixture;
    let mut table = target.take("token_embd.weight");
    let width = table.shape[1];
    table.shape[0] += 1;
    table.data.extend(vec![0.0; width]);
    let shape = format!("{:?}", table.shape);
    target.put("token_embd.weight", table);
    let draft = chain.file.unwrap().checkpoint;
    let message = family(&draft.architecture).describe_draft(&draft, &target.checkpoint).unwrap_err().to_string();
    assert!(message.contains("token_embd.weight") && message.contains(&shape), "{message}");
}
