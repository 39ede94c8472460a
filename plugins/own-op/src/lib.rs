//! A family whose feed-forward has an activation that graphs have no op for: the plugin brings it along.
//!
//! The decoder is Llama's, under the architecture `llama-own-op`; the op `swiglu` computes `silu(gate) ⊙ up` on rows. (That
//! one graphs do have, so that what it computes can be compared.)

use bantam_plugin_sdk::{
    blocks::{
        Decoder, DecoderSizes, FfnShape, PlainAttention, PlainLayer, RopeConfig, Tensors, attention_scale, described,
        plain,
    },
    export_family,
    family::{ChatFormat, Checkpoint, Family, FamilyError, Model, wire::OpRequest},
    graph::{Custom, Glu, Graph, GraphBuilder, Op, Pairing},
    ops::{OpFailed, RowOp, Rows},
    serde_json::Map,
};

/// `llama-own-op`.
#[derive(Clone, Copy, Debug)]
struct OwnOp;

export_family!(OwnOp, ops = make);

impl Family for OwnOp {
    fn name(&self) -> &'static str {
        "own-op"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["llama-own-op"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let fields = checkpoint.fields();
        let sizes = DecoderSizes::read(checkpoint)?;
        let rope = RopeConfig::read(&fields, Pairing::Interleaved, sizes.key_dim)?;
        let shape = FfnShape::read(&fields, sizes.layers)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let mut t = Tensors::new(checkpoint, &mut graph);
        let layer = |t: &mut Tensors<'_>, i| PlainLayer::declare(t, &sizes, &shape, i, false);
        let weights = Decoder::declare(&mut t, sizes.table(), sizes.layers, layer)?;
        let rope_factors = t.optional("rope_freqs", rope.dims / 2)?;
        let scale = attention_scale(&fields, sizes.key_dim)?;
        let how = PlainAttention { rope: &rope, rope_factors: rope_factors.as_deref(), scale };
        let logits = plain(&mut graph, &weights, sizes.norm_eps, how);
        let graph = with_own_op(graph.finish(&logits)?);
        described(checkpoint, &sizes, sizes.context_length, graph, ChatFormat::default())
    }
}

/// The graph with the plugin's op wherever there is a gated product.
fn with_own_op(mut graph: Graph) -> Graph {
    for i in 0..graph.nodes.len() {
        let Op::Glu(Glu { gate, up, .. }) = graph.nodes[i].op.clone() else { continue };
        let width = graph.nodes.iter().find(|node| node.name == up).and_then(|node| match &node.op {
            Op::Linear(linear) => graph.weight(&linear.weight)?.shape.first().copied(),
            _ => None,
        });
        if let Some(width) = width {
            let attributes = Map::new();
            graph.nodes[i].op =
                Op::Custom(Custom { op: SWIGLU.into(), x: vec![gate, up], weights: vec![], attributes, width });
        }
    }
    graph
}

const SWIGLU: &str = "swiglu";

/// Makes the op of a node, refusing what it does not know.
fn make(request: &OpRequest) -> Result<Box<dyn RowOp>, FamilyError> {
    let OpRequest { op, attributes, operands, weights, .. } = request;
    match (op.as_str(), operands.as_slice()) {
        (SWIGLU, [gate, up]) if gate == up && weights.is_empty() && attributes.is_empty() => {
            Ok(Box::new(Swiglu { width: *up }))
        }
        _ => Err(FamilyError::Unsupported(format!(
            "op `{op}`: expected `{SWIGLU}` of two operands of one width, without weights and attributes"
        ))),
    }
}

struct Swiglu {
    width: usize,
}

impl RowOp for Swiglu {
    fn width(&self) -> usize {
        self.width
    }

    fn run(&self, rows: &Rows<'_>, out: &mut [f32]) -> Result<(), OpFailed> {
        let entries = rows.x(0).iter().zip(rows.x(1));
        out.iter_mut().zip(entries).for_each(|(out, (gate, up))| *out = gate / (1.0 + (-gate).exp()) * up);
        Ok(())
    }

    fn cuda(&self) -> Option<&str> {
        Some(include_str!("swiglu.cu"))
    }
}
