//! A trunk and the graphs that draft for it.

use bantam_graph::{
    Alias, Attention, Extension, Graph, GraphBuilder, InputSource, Mask, State, StateKind, StateType, link,
};

const DIM: usize = 8;

fn ring(name: &str, alias: Option<Alias>) -> State {
    let kind = StateKind::Window { len: 5 };
    State { name: name.into(), heads: 1, dim: DIM, kind, dtype: StateType::Kv, alias }
}

fn logits(mut g: GraphBuilder, x: &str) -> Graph {
    let rows = g.logit_rows("rows", x);
    let output = g.tensor("output", &[40, DIM]);
    let logits = g.linear("logits", &rows, &output, None);
    g.finish(&logits).unwrap()
}

fn trunk() -> Graph {
    let mut g = GraphBuilder::new("trunk");
    let ids = g.input("ids", InputSource::TokenIds);
    let table = g.tensor("embd", &[40, DIM]);
    let x = g.embed("hidden", &ids, &table, 1.0);
    logits(g, &x)
}

/// Keys made from the trunk's rows, for the draft to read.
fn injected() -> Extension {
    let mut g = GraphBuilder::new("");
    let weight = g.tensor("draft.kv", &[DIM, DIM]);
    let keys = g.linear("draft_kv", "hidden", &weight, None);
    let state = g.state(ring("draft_ring", None));
    g.store("draft_store", &keys, &state);
    g.tap("hidden");
    g.extension()
}

fn draft(alias: Alias, width: usize) -> Graph {
    let mut g = GraphBuilder::new("draft");
    let hidden = g.input("hidden", InputSource::Hidden { index: 0, width });
    let weight = g.tensor("draft.q", &[DIM, width]);
    let x = g.linear("q", &hidden, &weight, None);
    let k_state = g.state(ring("ring", Some(alias)));
    let attention = Attention {
        q: x.clone(),
        k: Some(x),
        k_state,
        heads: 1,
        scale: 1.0,
        mask: Mask::Block,
        window: Some(4),
        ..Attention::default()
    };
    let x = g.attention("attn", attention);
    logits(g, &x)
}

fn alias(graph: &str, state: &str) -> Alias {
    Alias { graph: graph.into(), state: state.into() }
}

#[test]
fn an_extended_trunk_feeds_a_draft() {
    let extended = injected().apply(&trunk()).unwrap();
    assert_eq!((extended.states.len(), extended.taps.len()), (1, 1));
    link(&[&extended, &draft(alias("trunk", "draft_ring"), DIM)]).unwrap();
}

fn refusal(trunk: &Graph, draft: &Graph) -> String {
    link(&[trunk, draft]).unwrap_err().to_string()
}

#[test]
fn a_draft_that_does_not_fit_its_trunk_is_refused() {
    let extended = injected().apply(&trunk()).unwrap();
    let fits = draft(alias("trunk", "draft_ring"), DIM);
    assert!(refusal(&trunk(), &fits).contains("no graph `trunk` has a state `draft_ring`"));
    assert!(refusal(&extended, &draft(alias("other", "draft_ring"), DIM)).contains("no graph `other`"));
    assert!(refusal(&extended, &draft(alias("trunk", "draft_ring"), 3)).contains("tap `hidden` has 8"));
    let mut untapped = extended.clone();
    untapped.taps.clear();
    assert!(refusal(&untapped, &fits).contains("has no tap 0"));
    let mut other = fits.clone();
    other.states[0].dtype = StateType::F32;
    assert!(refusal(&extended, &other).contains("as in graph `trunk`"));
    let mut renamed = fits.clone();
    renamed.name = "trunk".into();
    assert!(refusal(&extended, &renamed).contains("another graph of the model has this name"));
}

#[test]
fn an_alias_is_not_written_and_a_block_needs_its_window() {
    let check = |change: &dyn Fn(&mut Attention)| {
        let mut graph = draft(alias("trunk", "draft_ring"), DIM);
        let op = graph.nodes.iter_mut().find_map(|node| match &mut node.op {
            bantam_graph::Op::Attention(o) => Some(o),
            _ => None,
        });
        change(op.unwrap());
        bantam_graph::check(&graph).unwrap_err().to_string()
    };
    assert!(check(&|o| o.mask = Mask::Causal).contains("`ring` is an alias"));
    assert!(check(&|o| o.window = Some(5)).contains("keeps 5 rows"));
    assert!(check(&|o| o.k = None).contains("needs the step's own `k`"));
}

#[test]
fn an_extension_must_fit() {
    let mut twice = injected();
    twice.nodes.extend(twice.nodes.clone());
    assert!(twice.apply(&trunk()).is_err());
    let mut tap = injected();
    tap.taps = vec!["logits".into()];
    assert!(tap.apply(&trunk()).unwrap_err().to_string().contains("f32 rows over tokens"));
}
