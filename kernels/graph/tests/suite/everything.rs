//! A graph that has every op and every attribute: no model, but it fits.

use bantam_graph::{
    Act, Attention, BlockSelection, CompressedKeys, Custom, DeltaRule, ExpertGroups, ExpertScales, Experts, GluLimit,
    Graph, GraphBuilder, HashHead, InputSource, NgramHash, Pairing, Pool, Rope, RopeScaling, Route, Scoring, ShortConv,
    Ssm, State, StateKind, StateType, StreamGates, StreamUpdate, TopKeys,
};
use serde_json::Map;

/// Entries of the residual row; two heads of 8.
const WIDTH: usize = 16;
const HEADS: usize = 2;
const DIM: usize = 8;
const STREAMS: usize = 2;
const EXPERTS: usize = 8;

pub(crate) fn everything() -> Graph {
    let mut g = GraphBuilder::new("everything");
    let x = inputs(&mut g);
    g.layer(Some(0));
    let x = recurrences(&mut g, &x);
    let x = streams(&mut g, &x);
    let x = sparse_attention(&mut g, &x);
    let x = compressed_attention(&mut g, &x);
    let x = mixture(&mut g, &x);
    g.layer(None);
    g.tap(&x);
    // What attributes it has is the op's own business: with one, this would be no example of what is refused.
    let swirl = g.tensor("swirl", &[3, 5]);
    let op = Custom { op: "swirl".into(), x: vec![x], weights: vec![swirl], attributes: Map::new(), width: WIDTH };
    let x = g.custom("swirled", op);
    let rows = g.logit_rows("rows", &x);
    let output = g.tensor("output", &[40, WIDTH]);
    let logits = g.linear("logits", &rows, &output, None);
    let logits = g.softcap("capped", &logits, 30.0);
    g.finish(&logits).unwrap()
}

fn inputs(g: &mut GraphBuilder) -> String {
    let ids = g.input("ids", InputSource::TokenIds);
    let before = g.input("before", InputSource::PreviousTokens { back: 1, missing: 3 });
    g.input("positions", InputSource::Positions);
    g.input("starts", InputSource::StridedPositions { stride: 4 });
    let hidden = g.input("hidden", InputSource::Hidden { index: 0, width: WIDTH });
    let hash = NgramHash {
        ids: vec![ids.clone(), before],
        boundary: 3,
        multipliers: vec![23_703_573_157_769, u64::MAX],
        heads: vec![HashHead { order: 2, rows: 7, offset: 0 }, HashHead { order: 1, rows: 5, offset: 7 }],
    };
    let rows = g.ngram_hash("ngrams", hash);
    let ngrams = g.tensor("ngrams", &[12, WIDTH / 2]);
    let ngrams = g.embed("ngram", &rows, &ngrams, 1.0);
    let table = g.tensor("embd", &[40, WIDTH]);
    let x = g.embed("embed", &ids, &table, 2.5);
    let x = g.add("summed", &x, &ngrams);
    g.add("input", &x, &hidden)
}

fn recurrences(g: &mut GraphBuilder, x: &str) -> String {
    let conv = ShortConv {
        x: x.into(),
        weight: g.tensor("conv", &[WIDTH, 4]),
        bias: Some(g.tensor("conv.bias", &[WIDTH])),
        dilation: 3,
        state: g.recurrent("conv", &[9, WIDTH]),
    };
    let conv = g.short_conv("conv", conv);
    let conv = g.activate("conv_act", &conv, Act::Silu);
    let k = g.l2_norm("k_unit", &conv, 1e-6, DIM);
    let heads = g.tensor("heads", &[HEADS, WIDTH]);
    let bias = g.tensor("heads.bias", &[HEADS]);
    let beta = g.linear("beta", x, &heads, Some(&bias));
    let decay = g.affine("decay", &beta, Some(&bias), Some(&bias));
    let part = g.slice("part", &conv, 1, 0, 4);
    let rule = DeltaRule {
        q: k.clone(),
        k,
        v: conv.clone(),
        decay,
        beta: beta.clone(),
        state: g.recurrent("delta", &[HEADS, DIM, DIM]),
        scale: 0.25,
    };
    let o = g.delta_rule("delta", rule);
    let scan = Ssm {
        x: o,
        b: part.clone(),
        c: part,
        dt: beta,
        a: "heads.bias".into(),
        d: Some("heads.bias".into()),
        state: g.recurrent("ssm", &[HEADS, DIM, 4]),
    };
    g.ssm("ssm", scan)
}

fn streams(g: &mut GraphBuilder, x: &str) -> String {
    let streams = g.concat("streams", &[x, x], 1);
    let width = (2 + STREAMS) * STREAMS;
    let matrix = g.tensor("hc", &[width, WIDTH * STREAMS]);
    let gates = StreamGates {
        x: g.linear("hc", &streams, &matrix, None),
        scale: g.tensor("hc.scale", &[3]),
        base: g.tensor("hc.base", &[width]),
        streams: STREAMS,
        iterations: 20,
        eps: 1e-6,
    };
    let [pre, post, mix] = g.stream_gates("gates", gates);
    let y = g.stream_collapse("block_in", &streams, STREAMS, Some(&pre));
    let y = g.scale("half", &y, 0.5);
    let update = StreamUpdate { x: Some(streams.clone()), y, post, mix: Some(mix) };
    let streams = g.stream_update("streams_out", update);
    let dots = g.dot("dots", &streams, &streams, STREAMS);
    let dots = g.activate("roots", &dots, Act::SignedSqrt);
    let same = g.tensor("same", &[WIDTH, WIDTH]);
    let streams = g.linear_runs("same", &streams, &same, STREAMS);
    let gated = g.mul("gated", &streams, &dots);
    g.stream_collapse("collapsed", &gated, STREAMS, None)
}

fn state(g: &mut GraphBuilder, name: &str, heads: usize, dim: usize, kind: StateKind, dtype: StateType) -> String {
    g.state(State { name: name.into(), heads, dim, kind, dtype, alias: None })
}

fn rope(x: &str, positions: &str, head_dim: usize) -> Rope {
    let scaling =
        RopeScaling::Yarn { factor: 16.0, original_context: 8192, beta_fast: 32.0, beta_slow: 1.0, magnitude: 1.1 };
    Rope {
        x: x.into(),
        positions: positions.into(),
        head_dim,
        dims: 4,
        offset: head_dim - 4,
        pairing: Pairing::Interleaved,
        base: 10_000.0,
        scaling: Some(scaling),
        factors: None,
        inverse: false,
    }
}

/// Values beside the keys, of which only the blocks are seen that an index over their means chooses.
fn sparse_attention(g: &mut GraphBuilder, x: &str) -> String {
    let raw = state(g, "raw", 1, WIDTH, StateKind::Window { len: 4 }, StateType::F32);
    let pool = Pool { x: x.into(), gate: None, bias: None, state: raw, stride: 4, overlap: false };
    let means = g.pool("means", pool);
    let narrow = g.tensor("narrow", &[DIM, WIDTH]);
    let means = g.linear("index_k", &means, &narrow, None);
    let means = g.rope("index_k_rope", rope(&means, "starts", DIM));
    let index = state(g, "index", 1, DIM, StateKind::Strided { stride: 4 }, StateType::F32);
    g.store("index_store", &means, &index);
    let top = TopKeys { q: x.into(), weights: None, k_state: index, heads: HEADS, scale: 0.5, count: 3 };
    let ids = g.top_keys("blocks", top);
    let k_state = state(g, "k", 1, DIM, StateKind::PerToken, StateType::Kv);
    let v_state = state(g, "v", 1, DIM, StateKind::PerToken, StateType::Kv);
    let kv = g.linear("kv", x, &narrow, None);
    let attention = Attention {
        q: g.rope("q_rope", rope(x, "positions", DIM)),
        k: Some(kv.clone()),
        v: Some(kv),
        k_state,
        v_state: Some(v_state),
        heads: HEADS,
        scale: 0.3,
        select: Some(BlockSelection { ids, block: 4 }),
        ..Attention::default()
    };
    let o = g.attention("sparse", attention);
    let shared = Attention {
        q: x.into(),
        k_state: "k.0".into(),
        v_state: Some("v.0".into()),
        heads: HEADS,
        scale: 1.0,
        window: Some(9),
        ..Attention::default()
    };
    let shared = g.attention("shared", shared);
    g.glu("sparse_gated", &shared, &o, Act::Sigmoid)
}

/// Values that are a view of the keys, in a window and in rows that stand for four tokens each.
fn compressed_attention(g: &mut GraphBuilder, x: &str) -> String {
    let open = state(g, "open", 2, WIDTH, StateKind::Window { len: 8 }, StateType::F32);
    let pool = Pool {
        x: x.into(),
        gate: Some(x.into()),
        bias: Some(g.tensor("ape", &[4, WIDTH])),
        state: open,
        stride: 4,
        overlap: true,
    };
    let entries = g.pool("entries", pool);
    let compressed = state(g, "entries", 1, DIM, StateKind::Strided { stride: 4 }, StateType::Kv);
    g.store("entries_store", &entries, &compressed);
    let weights = g.linear("index_w", x, "heads", None);
    let top =
        TopKeys { q: x.into(), weights: Some(weights), k_state: "index.0".into(), heads: HEADS, scale: 0.5, count: 2 };
    let select = g.top_keys("chosen", top);
    let attention = Attention {
        q: x.into(),
        k: Some("kv.0".into()),
        k_state: state(g, "ring", 1, DIM, StateKind::Window { len: 8 }, StateType::Kv),
        heads: HEADS,
        scale: 0.3,
        window: Some(8),
        sinks: Some(g.tensor("sinks", &[HEADS])),
        compressed: Some(CompressedKeys { state: compressed, select: Some(select) }),
        ..Attention::default()
    };
    let o = g.attention("compressed", attention);
    let back = Rope { inverse: true, ..rope(&o, "positions", DIM) };
    let o = g.rope("turned_back", back);
    let grouped = g.tensor("grouped", &[HEADS, DIM, DIM]);
    let o = g.linear("grouped", &o, &grouped, None);
    let weight = g.tensor("norm", &[DIM]);
    g.rms_norm("normed", &o, Some(&weight), 1e-6, Some(DIM))
}

fn mixture(g: &mut GraphBuilder, x: &str) -> String {
    let router = g.tensor("router", &[EXPERTS, WIDTH]);
    let scores = g.linear("router", x, &router, None);
    let hashed = g.tensor("hashed", &[40, 2]);
    let ids = g.lookup("hashed", "ids", &hashed);
    let given = Route {
        scores: scores.clone(),
        used: 2,
        scoring: Scoring::SqrtSoftplus,
        ids: Some(ids),
        normalize: true,
        ..Route::default()
    };
    g.route("given", given);
    let route = Route {
        scores,
        used: 2,
        scoring: Scoring::Sigmoid,
        bias: Some(g.tensor("router.bias", &[EXPERTS])),
        groups: Some(ExpertGroups { count: 4, used: 2 }),
        ids: None,
        normalize: true,
        scale: 2.5,
    };
    let (ids, weights) = g.route("route", route);
    let per_expert = g.tensor("expert.scale", &[EXPERTS]);
    let experts = Experts {
        x: x.into(),
        ids: ids.clone(),
        weights: weights.clone(),
        gate: Some(g.tensor("expert.gate", &[EXPERTS, 24, WIDTH])),
        up: g.tensor("expert.up", &[EXPERTS, 24, WIDTH]),
        down: Some(g.tensor("expert.down", &[EXPERTS, WIDTH, 24])),
        act: Act::Silu,
        limit: Some(GluLimit::AfterAct(4.0)),
        scales: Some(ExpertScales { down: Some(per_expert), ..ExpertScales::default() }),
    };
    let y = g.experts("experts", experts);
    let single = Experts {
        x: x.into(),
        ids,
        weights,
        gate: None,
        up: g.tensor("expert.single", &[EXPERTS, WIDTH, WIDTH]),
        down: None,
        act: Act::ReluSquared,
        limit: None,
        scales: None,
    };
    let z = g.experts("single", single);
    g.limited_glu("limited", &y, &z, Act::Softplus, Some(GluLimit::BeforeAct(10.0)))
}
