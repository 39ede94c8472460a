//! The recurrent layers of a random model.

use bantam_graph::{
    Act, DeltaRule, GraphBuilder, InputSource, Pairing, Pool, Rope, ShortConv, Ssm, State, StateKind, StateType,
};

use crate::model::Shape;

/// Value heads, the last of which share the keys of the first.
const HEADS: usize = 4;
const KEY_HEADS: usize = 2;
/// Extents that fill no vector, and more than one strip of columns.
const KEY_DIM: usize = 11;
const VALUE_DIM: usize = 40;
/// Groups of a scan, and the entries that a group's operand has in the state.
const GROUPS: usize = 2;
const SIZE: usize = 9;
/// Tokens of a pooled block.
pub(crate) const STRIDE: usize = 4;

fn conv(g: &mut GraphBuilder, layer: usize, x: &str, width: usize) -> String {
    let dilation = 1 + layer;
    let weight = g.tensor(&format!("conv.{layer}"), &[width, 3]);
    let bias = (layer == 0).then(|| g.tensor(&format!("conv_bias.{layer}"), &[width]));
    let state = g.recurrent("conv_state", &[2 * dilation, width]);
    g.short_conv("conv", ShortConv { x: x.into(), weight, bias, dilation, state })
}

impl Shape {
    fn project(&self, g: &mut GraphBuilder, layer: usize, name: &str, x: &str, width: usize) -> String {
        let weight = g.tensor(&format!("{name}.{layer}"), &[width, self.width]);
        g.linear(name, x, &weight, None)
    }

    /// The logarithm of a decay: above -1, below 0.
    fn decay(&self, g: &mut GraphBuilder, layer: usize, x: &str, width: usize) -> String {
        let decay = self.project(g, layer, "decay_in", x, width);
        let decay = g.activate("decay_act", &decay, Act::Sigmoid);
        g.scale("decay", &decay, -1.0)
    }

    /// Adds a gated delta rule, in layer 0 with a decay per head, elsewhere with one per channel.
    pub(crate) fn delta(&self, g: &mut GraphBuilder, layer: usize, x: &str) -> String {
        let normed = self.norm(g, layer, "attn_norm", x);
        let q = self.project(g, layer, "q", &normed, KEY_HEADS * KEY_DIM);
        let k = self.project(g, layer, "k_in", &normed, KEY_HEADS * KEY_DIM);
        let k = g.rms_norm("k_rms", &k, None, 1e-6, Some(KEY_DIM));
        let k = g.scale("k", &k, 1.0 / (KEY_DIM as f32).sqrt());
        let v = self.project(g, layer, "v_in", &normed, HEADS * VALUE_DIM);
        let v = conv(g, layer, &v, HEADS * VALUE_DIM);
        let decay = self.decay(g, layer, &normed, if layer == 0 { HEADS } else { HEADS * KEY_DIM });
        let beta = self.project(g, layer, "beta_in", &normed, HEADS);
        let beta = g.activate("beta", &beta, Act::Sigmoid);
        let state = g.recurrent("delta_state", &[HEADS, KEY_DIM, VALUE_DIM]);
        let y = g.delta_rule("delta", DeltaRule { q, k, v, decay, beta, state, scale: 0.3 });
        self.project_out(g, layer, x, &y, HEADS * VALUE_DIM)
    }

    /// Adds a state-space scan.
    pub(crate) fn scan(&self, g: &mut GraphBuilder, layer: usize, x: &str) -> String {
        let normed = self.norm(g, layer, "attn_norm", x);
        let operand = self.project(g, layer, "ssm_x", &normed, HEADS * VALUE_DIM);
        let operand = conv(g, layer, &operand, HEADS * VALUE_DIM);
        let b = self.project(g, layer, "ssm_b", &normed, GROUPS * SIZE);
        let c = self.project(g, layer, "ssm_c", &normed, GROUPS * SIZE);
        let dt = self.project(g, layer, "dt_in", &normed, HEADS);
        let dt = g.activate("dt", &dt, Act::Sigmoid);
        let (a, d) = (g.tensor("negative_a", &[HEADS]), Some(g.tensor("ssm_d", &[HEADS])));
        let state = g.recurrent("ssm_state", &[HEADS, VALUE_DIM, SIZE]);
        let y = g.ssm("ssm", Ssm { x: operand, b, c, dt, a, d, state });
        self.project_out(g, layer, x, &y, HEADS * VALUE_DIM)
    }

    fn project_out(&self, g: &mut GraphBuilder, layer: usize, x: &str, y: &str, width: usize) -> String {
        let weight = g.tensor(&format!("o.{layer}"), &[self.width, width]);
        let y = g.linear("attn_out", y, &weight, None);
        g.add("attn_sum", x, &y)
    }

    /// Pools blocks of `v`, once plainly and once gated with overlap, and stores what comes of it.
    pub(crate) fn pool(&self, g: &mut GraphBuilder, v: &str, gate: &str) {
        let width = self.kv_heads * self.head_dim;
        let mut state = |name: &str, dim: usize, kind: StateKind| {
            g.state(State { name: name.into(), heads: 1, dim, kind, dtype: StateType::F32, alias: None })
        };
        let plain = state("open", width, StateKind::Window { len: STRIDE });
        let gated = state("open_gated", 2 * width, StateKind::Window { len: 2 * STRIDE });
        let rows = state("pooled", width, StateKind::Strided { stride: STRIDE });
        let halves = state("pooled_gated", width / 2, StateKind::Strided { stride: STRIDE });
        let pool = |state: String| Pool { x: v.into(), gate: None, bias: None, state, stride: STRIDE, overlap: false };
        let mean = g.pool("mean", pool(plain));
        let positions = g.input("block_positions", InputSource::StridedPositions { stride: STRIDE });
        let rope = Rope {
            x: mean,
            positions,
            head_dim: self.head_dim,
            dims: 8,
            offset: 0,
            pairing: Pairing::Halves,
            base: 100.0,
            scaling: None,
            factors: None,
            inverse: false,
        };
        let turned = g.rope("mean_rope", rope);
        g.store("mean_store", &turned, &rows);
        let bias = g.tensor("pool_bias", &[STRIDE, width]);
        let gate = Some(gate.into());
        let joined = g.pool("joined", Pool { gate, bias: Some(bias), overlap: true, ..pool(gated) });
        g.store("joined_store", &joined, &halves);
    }
}
