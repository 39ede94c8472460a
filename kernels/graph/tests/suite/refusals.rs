//! One case for each condition of the checker: what is changed in a graph that fits, and the words of the refusal.

use bantam_graph::{GraphBuilder, GraphError, InputSource, json};
use serde_json::{Value, json};

use crate::everything::everything;

/// The attributes of the op of a node.
fn op<'v>(value: &'v mut Value, node: &str) -> &'v mut Value {
    let nodes = value["graph"]["nodes"].as_array_mut().unwrap();
    let node = nodes.iter_mut().find(|n| n["name"] == node).unwrap_or_else(|| panic!("no node `{node}`"));
    node["op"].as_object_mut().unwrap().values_mut().next().unwrap()
}

fn refusal(value: &Value) -> String {
    match json::from_slice(&serde_json::to_vec(value).unwrap()) {
        Err(GraphError::Invalid { name, why, .. }) => format!("{name}: {why}"),
        Err(other) => panic!("expected a refusal of a node, found {other}"),
        Ok(_) => panic!("expected a refusal"),
    }
}

#[test]
fn every_attribute_is_checked() {
    let cases: &[(&str, &str, Value, &str)] = &[
        ("before", "/source/previous_tokens/back", json!(0), "back must be in 1..="),
        ("before", "/source/previous_tokens/missing", json!(u32::MAX), "missing must be a token"),
        ("hidden", "/source/hidden/width", json!(0), "width must be in 1..="),
        ("hidden", "/source/hidden/index", json!(1), "numbered from 0"),
        ("starts", "/source/strided_positions/stride", json!(8), "1 integers a row over blocks of 4 tokens"),
        ("ngrams", "/ids", json!([]), "no ids to hash"),
        ("ngrams", "/multipliers", json!(["1"]), "1 multipliers for 2 places"),
        ("ngrams", "/heads/0/order", json!(3), "expected 1 to 2 tokens"),
        ("ngrams", "/heads/0/rows", json!(0), "expected 1 to 2 tokens"),
        ("ngrams", "/heads/1/offset", json!(u32::MAX - 1), "rows within 32 bits"),
        ("ngrams", "/heads", json!([]), "a row of 0 entries"),
        ("hashed.0", "/ids", json!("ngrams"), "expected one id a row"),
        ("embed", "/ids", json!("hidden"), "must be integers"),
        ("embed", "/table", json!("heads.bias"), "expected [vocab, width]"),
        ("beta.0", "/weight", json!("ape"), "weight `heads.bias`: expected shape [4], found [2]"),
        ("beta.0", "/bias", json!("norm"), "expected shape [2], found [8]"),
        ("grouped.0", "/weight", json!("expert.gate"), "found 8 × 16"),
        ("grouped.0", "/runs", json!(2), "expected one matrix"),
        ("same.0", "/runs", json!(0), "the runs of 1 × 0"),
        ("same.0", "/runs", json!(3), "found 3 × 16"),
        ("k_unit.0", "/group", json!(5), "no whole multiple of group 5"),
        ("k_unit.0", "/eps", json!(-1.0), "eps must be a number ≥ 0"),
        ("normed.0", "/weight", json!("heads.bias"), "expected shape [8] or [16]"),
        ("q_rope.0", "/head_dim", json!(0), "head_dim 0"),
        ("q_rope.0", "/dims", json!(3), "dims must be even"),
        ("q_rope.0", "/dims", json!(0), "dims must be even"),
        ("q_rope.0", "/offset", json!(usize::MAX), "end within the head"),
        ("q_rope.0", "/offset", json!(6), "end within the head"),
        ("q_rope.0", "/pairing", json!("head_halves"), "no offset"),
        ("q_rope.0", "/base", json!(0.0), "base must be a number > 0"),
        ("q_rope.0", "/scaling/yarn/factor", json!(0.0), "factor must be"),
        ("q_rope.0", "/scaling/yarn/beta_slow", json!(-1.0), "beta_slow must be"),
        ("q_rope.0", "/scaling/yarn/original_context", json!(0), "original_context must be"),
        ("q_rope.0", "/positions", json!("starts"), "1 integers a row over tokens"),
        ("conv.0", "/dilation", json!(0), "dilation must be in"),
        ("conv.0", "/dilation", json!(1_u64 << 31), "the rows kept"),
        ("conv.0", "/dilation", json!(2), "expected shape [6, 16], found [9, 16]"),
        ("conv.0", "/weight", json!("heads"), "2 or more taps"),
        ("conv.0", "/state", json!("k.0"), "recurrent state `k.0` is not declared"),
        ("delta.0", "/state", json!("conv.0"), "declared as [heads, key_dim, value_dim]"),
        ("delta.0", "/state", json!("ssm.0"), "expected shape [2, 8, 8], found [2, 8, 4]"),
        ("delta.0", "/decay", json!("part.0"), "must have 2 entries, or 2 × 8, found 4"),
        ("delta.0", "/k", json!("beta.0"), "must be 16 f32 over tokens, found 2"),
        ("ssm.0", "/b", json!("beta.0"), "`part.0` must be 2 f32 over tokens"),
        ("ssm.0", "/a", json!("norm"), "expected shape [2], found [8]"),
        ("decay.0", "/scale", json!("conv.bias"), "n a divisor of 2"),
        ("gates.0", "/streams", json!(3), "must have 15 entries"),
        ("gates.0", "/streams", json!(1_u64 << 31), "pairs of streams"),
        ("gates.0", "/iterations", json!(0), "iterations must be in"),
        ("gates.0", "/eps", json!(0.0), "eps must be"),
        ("gates.0", "/scale", json!("heads.bias"), "expected shape [3]"),
        ("block_in.0", "/weights", json!("kv.0"), "not computed before"),
        ("block_in.0", "/weights", json!("gates.0.mix"), "must have 2 entries or 32"),
        ("block_in.0", "/streams", json!(5), "the streams 5"),
        ("streams_out.0", "/x", json!(null), "nothing to mix"),
        ("streams_out.0", "/mix", json!("gates.0.pre"), "must be 4 f32 over tokens, found 2"),
        ("dots.0", "/groups", json!(0), "groups 0"),
        ("gated.0", "/b", json!("positions"), "must be f32"),
        ("gated.0", "/b", json!("streams"), "is not computed before it"),
        ("part.0", "/start", json!(usize::MAX), "have no 4 from"),
        ("part.0", "/len", json!(0), "have no 0 from"),
        ("streams.0", "/parts", json!([]), "no parts"),
        ("streams.0", "/groups", json!(3), "groups 3"),
        ("half.0", "/factor", json!(1e39), "factor must be a number"),
        ("means.0", "/stride", json!(8), "of a window of 8"),
        ("means.0", "/stride", json!(0), "stride must be in"),
        ("means.0", "/overlap", json!(true), "needs a gate"),
        ("entries.0", "/state", json!("ring.0"), "must be f32, 32 wide, of a window of 8"),
        ("entries.0", "/bias", json!("narrow"), "expected shape [4, 16]"),
        ("index_store.0", "/state", json!("k.0"), "takes rows of 8 over tokens"),
        ("index_store.0", "/x", json!("means.0"), "takes rows of 8"),
        ("blocks.0", "/k_state", json!("k.0"), "must be strided"),
        ("blocks.0", "/k_state", json!("entries.0"), "no node before writes it"),
        ("blocks.0", "/heads", json!(4), "must have 4 heads"),
        ("blocks.0", "/count", json!(0), "count must be in"),
        ("blocks.0", "/scale", json!(0.0), "scale must be"),
        ("chosen.0", "/weights", json!("kv.0"), "must be 2 f32 over tokens, found 8"),
        ("sparse.0", "/heads", json!(3), "must have 3 heads"),
        ("sparse.0", "/heads", json!(0), "must have 0 heads of 8"),
        ("sparse.0", "/v", json!(null), "`v` is to be given"),
        ("sparse.0", "/v_state", json!("ring.0"), "differ in heads or kind"),
        ("sparse.0", "/v_state", json!("k.0"), "is written by `sparse.0` already"),
        ("sparse.0", "/value_dim", json!(4), "leave out `v_state`"),
        ("sparse.0", "/k_state", json!("index.0"), "is strided"),
        ("sparse.0", "/select/block", json!(0), "block must be in"),
        ("sparse.0", "/select/ids", json!("kv.0"), "must be integers"),
        ("sparse.0", "/mask", json!("block"), "a block mask"),
        ("sparse.0", "/scale", json!(0.0), "scale must be"),
        ("shared.0", "/window", json!(0), "a window of 0"),
        ("shared.0", "/k_state", json!("ring.0"), "states `ring.0` and `v.0` differ"),
        ("compressed.0", "/window", json!(9), "keeps 8 rows"),
        ("compressed.0", "/window", json!(null), "keeps 8 rows"),
        ("compressed.0", "/value_dim", json!(9), "value_dim must be in 1..=8"),
        ("compressed.0", "/sinks", json!("norm"), "expected shape [2]"),
        ("compressed.0", "/compressed/state", json!("k.0"), "must be strided"),
        ("compressed.0", "/compressed/select", json!("starts"), "some integers a row over tokens"),
        ("given.0", "/used", json!(3), "must be 3 integers"),
        ("given.0", "/bias", json!("router.bias"), "the choice is made"),
        ("route.0", "/used", json!(5), "used must be in 1..=4"),
        ("route.0", "/groups/count", json!(3), "the groups 3"),
        ("route.0", "/groups/used", json!(0), "groups used must be in 1..=4"),
        ("route.0", "/scale", json!(1e39), "scale must be a number"),
        ("experts.0", "/gate", json!(null), "a limit needs a gate"),
        ("experts.0", "/down", json!(null), "experts with a gate need `down`"),
        ("experts.0", "/down", json!("expert.up"), "expected [8, out, 24]"),
        ("experts.0", "/limit/after_act", json!(0.0), "limit must be"),
        ("experts.0", "/scales/gate", json!("norm.0"), "is not declared"),
        ("single.0", "/scales", json!({"down": "expert.scale"}), "a matrix that is not there"),
        ("experts.0", "/weights", json!("gates.0.mix"), "must be 4 integers a row"),
        ("capped", "/cap", json!(-1.0), "cap must be"),
        ("rows", "/to", json!({"strided": {"stride": 4}}), "no selection leads"),
    ];
    for (node, attribute, new, expected) in cases {
        let mut value = json::to_value(&everything()).unwrap();
        let attributes = op(&mut value, node);
        set(attributes, attribute, new.clone());
        let why = refusal(&value);
        assert!(why.contains(expected), "{node}{attribute} = {new}: {why}");
    }
}

#[test]
fn a_factor_is_no_wider_than_what_it_scales() {
    let mut g = GraphBuilder::new("");
    let [wide, narrow] =
        [6, 4].map(|width| g.input(&format!("x{width}"), InputSource::Hidden { index: 6 - width, width }));
    g.mul("y", &wide, &narrow);
    assert!(g.finish("y").unwrap_err().to_string().contains("a width that divides its own"));
}

/// Sets an attribute that may be left out.
fn set(attributes: &mut Value, at: &str, new: Value) {
    let (parent, key) = at.rsplit_once('/').unwrap();
    attributes.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key.into(), new);
}
