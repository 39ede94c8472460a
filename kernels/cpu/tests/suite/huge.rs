//! Graphs as large as a plugin may send are made ready in a time that grows with their size, not with its square.

use std::time::{Duration, Instant};

use bantam_backend::{Backend, CompileOptions, KvType};
use bantam_cpu::CpuBackend;
use bantam_graph::{
    Act, Attention, Graph, GraphBuilder, InputSource, Op, Pairing, Rope, ShortConv, State, StateKind, StateType,
};

use crate::model::PLAIN;

const WIDTH: usize = 32;
/// Nodes, about as many as the host of plugins takes.
const NODES: usize = 32_000;
/// Many times what it takes; the square took minutes.
const LONGEST: Duration = Duration::from_secs(60);

/// A graph with what `add` puts between the embeddings and the logits.
fn graph(add: impl FnOnce(&mut GraphBuilder, String) -> String) -> Graph {
    let mut g = GraphBuilder::new("huge");
    let ids = g.input("ids", InputSource::TokenIds);
    let table = g.tensor("table", &[PLAIN.vocab, WIDTH]);
    let x = g.embed("x", &ids, &table, 1.0);
    let x = add(&mut g, x);
    let rows = g.logit_rows("rows", &x);
    let logits = g.linear("logits", &rows, &table, None);
    g.finish(&logits).unwrap()
}

fn attention(q: &str, layer: usize) -> Attention {
    Attention {
        q: q.into(),
        k: Some(q.into()),
        v: Some(q.into()),
        k_state: format!("k.{layer}"),
        v_state: Some(format!("v.{layer}")),
        heads: 1,
        scale: 0.2,
        ..Attention::default()
    }
}

#[test]
fn the_largest_graphs_are_compiled_in_seconds() {
    let chain = graph(|g, x| (0..NODES).fold(x, |x, i| g.activate(&format!("a{i}"), &x, Act::Sigmoid)));
    let alive = graph(|g, x| {
        let terms: Vec<String> = (0..NODES / 2).map(|i| g.scale(&format!("a{i}"), &x, i as f32)).collect();
        terms.iter().rev().enumerate().fold(x, |x, (i, term)| g.add(&format!("s{i}"), &x, term))
    });
    let products = graph(|g, x| {
        let matrix = g.tensor("matrix", &[WIDTH, WIDTH]);
        (0..NODES / 2).fold(x.clone(), |_, i| {
            let product = g.linear(&format!("l{i}"), &x, &matrix, None);
            g.rms_norm(&format!("n{i}"), &product, None, 1e-5, Some(16))
        })
    });
    let layers = graph(|g, x| {
        let matrix = g.tensor("matrix", &[WIDTH, WIDTH]);
        (0..NODES / 3).fold(x, |x, i| {
            let normed = g.rms_norm(&format!("n{i}"), &x, None, 1e-5, None);
            let product = g.linear(&format!("l{i}"), &normed, &matrix, None);
            g.add(&format!("r{i}"), &x, &product)
        })
    });
    let taps = graph(|g, x| {
        (0..NODES).fold(x, |x, i| {
            let x = g.activate(&format!("a{i}"), &x, Act::Sigmoid);
            g.tap(&x);
            x
        })
    });
    let ropes = graph(|g, x| {
        let positions = g.input("positions", InputSource::Positions);
        (0..NODES).fold(x, |x, i| {
            let rope = Rope {
                x,
                positions: positions.clone(),
                head_dim: WIDTH,
                offset: 0,
                dims: 2,
                pairing: Pairing::Halves,
                base: 10_000.0 + i as f32,
                scaling: None,
                factors: None,
                inverse: false,
            };
            g.rope(&format!("r{i}"), rope)
        })
    });
    let states = graph(|g, x| {
        (0..NODES).fold(x, |x, i| {
            for name in ["k", "v"] {
                let name = format!("{name}.{i}");
                let (kind, dtype) = (StateKind::PerToken, StateType::Kv);
                g.state(State { name, heads: 1, dim: WIDTH, kind, dtype, alias: None });
            }
            g.push(&format!("a{i}"), Op::Attention(attention(&x, i)))
        })
    });
    let values = graph(|g, x| {
        let weight = g.tensor("taps", &[WIDTH, 2]);
        (0..NODES).fold(x, |x, i| {
            let state = g.recurrent(&format!("s{i}"), &[1, WIDTH]);
            g.short_conv(&format!("c{i}"), ShortConv { x, weight: weight.clone(), bias: None, dilation: 1, state })
        })
    });
    let backend = CpuBackend::new(2).unwrap();
    let options = CompileOptions {
        max_rows: 4,
        max_logit_rows: 4,
        max_tentative: 0,
        k_type: KvType::F16,
        v_type: KvType::F16,
        repack: true,
        ops: None,
    };
    for (what, graph) in [
        ("a chain", chain),
        ("values that all live at once", alive),
        ("products of one value", products),
        ("layers", layers),
        ("taps", taps),
        ("angles", ropes),
        ("states", states),
        ("recurrent states", values),
    ] {
        let begun = Instant::now();
        let program = backend.compile(&graph, &PLAIN.weights(), &options, &mut |_, _| {});
        drop(program.unwrap_or_else(|e| panic!("{what}: {e}")));
        let taken = begun.elapsed();
        println!("{what}: {} nodes in {taken:?}", graph.nodes.len());
        assert!(taken < LONGEST, "{what}: {taken:?}");
    }
}
