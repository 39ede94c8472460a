//! Small decoders with random weights: what the tests run.

use bantam_backend::{SharedBytes, WeightData, WeightError, WeightSource};
use bantam_gguf::GgmlType;
use bantam_graph::{
    Act, Attention, Experts, Graph, GraphBuilder, InputSource, Op, Pairing, Rope, RopeScaling, Route, Scoring, State,
    StateKind, StateType, Weight,
};
use half::f16;

/// The features of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) ffn: usize,
    pub(crate) vocab: usize,
    /// Every second layer looks back this far.
    pub(crate) window: Option<usize>,
    /// Experts, and how many of them a token uses.
    pub(crate) experts: Option<(usize, usize)>,
    pub(crate) qk_norm: bool,
    pub(crate) pairing: Pairing,
    pub(crate) act: Act,
    pub(crate) softcap: bool,
    /// Recurrences in most layers, and blocks of tokens pooled in the others.
    pub(crate) hybrid: bool,
    /// Format of the matrices.
    pub(crate) ty: GgmlType,
}

/// A decoder with grouped queries.
pub(crate) const PLAIN: Shape = Shape {
    layers: 2,
    width: 64,
    heads: 6,
    kv_heads: 2,
    head_dim: 16,
    ffn: 96,
    vocab: 50,
    window: None,
    experts: None,
    qk_norm: false,
    pairing: Pairing::Interleaved,
    act: Act::Silu,
    softcap: false,
    hybrid: false,
    ty: GgmlType::F32,
};

/// Windows, norms of heads, head sizes that fill no vector.
pub(crate) const WINDOWED: Shape = Shape {
    layers: 3,
    window: Some(37),
    head_dim: 24,
    heads: 5,
    kv_heads: 1,
    qk_norm: true,
    pairing: Pairing::Halves,
    act: Act::GeluTanh,
    softcap: true,
    ..PLAIN
};

/// A mixture of experts.
pub(crate) const MIXTURE: Shape =
    Shape { experts: Some((6, 2)), heads: 4, kv_heads: 4, pairing: Pairing::Halves, ffn: 64, ..PLAIN };

/// A delta rule of either decay, a state-space scan, convolutions, attention whose values are pooled by block.
pub(crate) const HYBRID: Shape = Shape { layers: 4, hybrid: true, ..PLAIN };

/// The same with matrices of another format, and rows of whole blocks of it.
pub(crate) fn quantized(shape: Shape, ty: GgmlType) -> Shape {
    let len = ty.block_len();
    let mut heads = shape.heads;
    while !(heads * shape.head_dim).is_multiple_of(len) {
        heads += shape.kv_heads;
    }
    Shape { ty, heads, width: shape.width.next_multiple_of(len), ffn: shape.ffn.next_multiple_of(len), ..shape }
}

impl Shape {
    /// The model as a graph.
    pub(crate) fn graph(&self) -> Graph {
        let mut g = GraphBuilder::new("random");
        let ids = g.input("ids", InputSource::TokenIds);
        let positions = g.input("positions", InputSource::Positions);
        let table = g.tensor("embd", &[self.vocab, self.width]);
        let mut x = g.embed("embd", &ids, &table, 1.5);
        for layer in 0..self.layers {
            g.layer(Some(layer));
            x = match layer {
                0 | 2 if self.hybrid => self.delta(&mut g, layer, &x),
                3 if self.hybrid => self.scan(&mut g, layer, &x),
                _ => self.attention(&mut g, layer, &x, &positions),
            };
            x = self.ffn(&mut g, layer, &x);
        }
        g.layer(None);
        let weight = g.tensor("output_norm", &[self.width]);
        let normed = g.rms_norm("result_norm", &x, Some(&weight), 1e-5, None);
        let rows = g.logit_rows("rows", &normed);
        let mut logits = g.linear("logits", &rows, &table, None);
        if self.softcap {
            logits = g.softcap("capped", &logits, 3.0);
        }
        g.finish(&logits).unwrap()
    }

    fn attention(&self, g: &mut GraphBuilder, layer: usize, x: &str, positions: &str) -> String {
        let window = self.window.filter(|_| layer % 2 == 1);
        let kind = window.map_or(StateKind::PerToken, |len| StateKind::Window { len });
        let normed = self.norm(g, layer, "attn_norm", x);
        let mut project = |name: &str, heads: usize, bias: bool| {
            let weight = g.tensor(&format!("{name}.{layer}"), &[heads * self.head_dim, self.width]);
            let bias = bias.then(|| g.tensor(&format!("{name}_bias.{layer}"), &[heads * self.head_dim]));
            g.linear(name, &normed, &weight, bias.as_deref())
        };
        let mut q = project("q", self.heads, true);
        let mut k = project("k", self.kv_heads, false);
        let v = project("v", self.kv_heads, false);
        let gate = self.hybrid.then(|| project("pool_gate", self.kv_heads, false));
        if self.qk_norm {
            let weight = g.tensor(&format!("q_norm.{layer}"), &[self.head_dim]);
            q = g.rms_norm("q_normed", &q, Some(&weight), 1e-6, Some(self.head_dim));
            k = g.rms_norm("k_normed", &k, None, 1e-6, Some(self.head_dim));
        }
        let rope = |x: String| Rope {
            x,
            positions: positions.into(),
            head_dim: self.head_dim,
            dims: self.head_dim - 8,
            offset: 0,
            pairing: self.pairing,
            base: 10_000.0,
            scaling: (layer % 2 == 1).then_some(RopeScaling::Linear { factor: 2.0 }),
            factors: None,
            inverse: false,
        };
        let (q, k) = (rope(q), rope(k));
        let q = g.rope("q_rope", q);
        let k = g.rope("k_rope", k);
        let mut state = |name: &str| {
            let (heads, dim) = (self.kv_heads, self.head_dim);
            g.state(State { name: name.into(), heads, dim, kind, dtype: StateType::Kv, alias: None })
        };
        let (k_state, v_state) = (state("k"), state("v"));
        if let Some(gate) = gate {
            self.pool(g, &v, &gate);
        }
        let scale = 1.0 / (self.head_dim as f32).sqrt();
        let attention = Attention {
            q,
            k: Some(k),
            v: Some(v),
            k_state,
            v_state: Some(v_state),
            heads: self.heads,
            scale,
            window,
            ..Attention::default()
        };
        let y = g.attention("attn", attention);
        let weight = g.tensor(&format!("o.{layer}"), &[self.width, self.heads * self.head_dim]);
        let y = g.linear("attn_out", &y, &weight, None);
        g.add("attn_sum", x, &y)
    }

    pub(crate) fn norm(&self, g: &mut GraphBuilder, layer: usize, name: &str, x: &str) -> String {
        let weight = g.tensor(&format!("{name}.{layer}"), &[self.width]);
        g.rms_norm(name, x, Some(&weight), 1e-5, None)
    }

    fn ffn(&self, g: &mut GraphBuilder, layer: usize, x: &str) -> String {
        let normed = self.norm(g, layer, "ffn_norm", x);
        let y = match self.experts {
            Some((experts, used)) => self.mixture(g, layer, &normed, experts, used),
            None => {
                let [gate, up, down] = ["gate", "up", "down"].map(|n| format!("{n}.{layer}"));
                let gate = g.tensor(&gate, &[self.ffn, self.width]);
                let up = g.tensor(&up, &[self.ffn, self.width]);
                let down = g.tensor(&down, &[self.width, self.ffn]);
                let gate = g.linear("ffn_gate", &normed, &gate, None);
                let up = g.linear("ffn_up", &normed, &up, None);
                let h = g.glu("ffn_act", &gate, &up, self.act);
                g.linear("ffn_down", &h, &down, None)
            }
        };
        g.add("ffn_sum", &y, x)
    }

    fn mixture(&self, g: &mut GraphBuilder, layer: usize, x: &str, experts: usize, used: usize) -> String {
        let router = g.tensor(&format!("router.{layer}"), &[experts, self.width]);
        let scores = g.linear("scores", x, &router, None);
        let route = Route { scores, used, scoring: Scoring::Softmax, normalize: true, ..Route::default() };
        let (ids, weights) = g.route("route", route);
        let gate = g.tensor(&format!("gate_exps.{layer}"), &[experts, self.ffn, self.width]);
        let up = g.tensor(&format!("up_exps.{layer}"), &[experts, self.ffn, self.width]);
        let down = g.tensor(&format!("down_exps.{layer}"), &[experts, self.width, self.ffn]);
        let (gate, down) = (Some(gate), Some(down));
        let op = Experts { x: x.into(), ids, weights, gate, up, down, act: self.act, limit: None, scales: None };
        let y = g.experts("moe", op);
        let half = g.push("moe_half", Op::Scale { x: y.clone(), factor: 0.5, offset: 0.0 });
        let gate = g.push("moe_gate", Op::Activate { x: y, act: Act::Sigmoid });
        g.push("moe_gated", Op::Mul { a: half, b: gate })
    }

    /// Its weights.
    pub(crate) fn weights(&self) -> RandomWeights {
        RandomWeights { ty: self.ty }
    }
}

/// Random weights, each from a seed that is its name.
pub(crate) struct RandomWeights {
    ty: GgmlType,
}

impl WeightSource for RandomWeights {
    fn load(&self, weight: &Weight) -> Result<WeightData, WeightError> {
        let seed = weight.name.bytes().fold(7u64, |h, b| h.wrapping_mul(131).wrapping_add(u64::from(b)));
        let mut rng = SplitMix(seed);
        let len: usize = weight.shape.iter().product();
        let cols = *weight.shape.last().unwrap();
        // A router's choice must not hang on the last bit.
        let float = weight.shape.len() == 1 || weight.name.starts_with("router") || !self.ty.is_quantized();
        let (ty, bytes) = if float {
            let scale = if weight.shape.len() == 1 { 0.5 } else { 1.7 / (cols as f32).sqrt() };
            let offset = match weight.shape.len() {
                1 if weight.name.starts_with("negative") => -1.0,
                1 => 1.0,
                _ => 0.0,
            };
            let value = |rng: &mut SplitMix| offset + scale * (rng.unit() - 0.5) * 2.0;
            (GgmlType::F32, (0..len).flat_map(|_| value(&mut rng).to_le_bytes()).collect())
        } else {
            (self.ty, self.blocks(len / self.ty.block_len(), cols, &mut rng))
        };
        Ok(WeightData { ty, shape: weight.shape.clone(), bytes: SharedBytes::owned(bytes) })
    }

    fn release(&self, _weight: &Weight) {}
}

impl RandomWeights {
    /// Random blocks with scales that keep the values near `1 / √cols`.
    fn blocks(&self, count: usize, cols: usize, rng: &mut SplitMix) -> Vec<u8> {
        let (scale, at): (f32, &[usize]) = match self.ty {
            GgmlType::Q8_0 => (1.0 / 75.0, &[0]),
            GgmlType::Q4_0 => (1.0 / 4.5, &[0]),
            GgmlType::Q4_K => (1.0 / 300.0, &[0, 2]),
            GgmlType::Q6_K => (1.0 / 1500.0, &[208]),
            ty => panic!("no random blocks of {ty}"),
        };
        let half = f16::from_f32(scale / (cols as f32).sqrt()).to_le_bytes();
        let block = |rng: &mut SplitMix| {
            let mut block: Vec<u8> = (0..self.ty.block_bytes()).map(|_| rng.next() as u8).collect();
            for at in at {
                block[*at..at + 2].copy_from_slice(&half);
            }
            block
        };
        (0..count).flat_map(|_| block(rng)).collect()
    }
}

/// A generator of random numbers (SplitMix64).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// In `0..1`.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}
