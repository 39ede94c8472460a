//! Nemotron-H MoE: Nano, Super, Puzzle.
//!
//! A layer is one norm, one mixer, one residual. Mixers are state-space scans (Mamba-2), attention that knows no positions,
//! and experts of two matrices with a squared ReLU, in the larger models on a narrower row than the residual stream's. The
//! draft block has attention and experts.

use bantam_family_api::{Checkpoint, Draft, Family, FamilyError, Fields, Model};
use bantam_family_blocks::{
    Attending, AttentionShape, AttentionWeights, DraftInput, ModelSizes, Origin, PerLayer, Projection, Router, Routing,
    StateSpace, StateSpaceShape, Tensors, attention, attention_scale, chain, described, draft_fits, draft_output,
    expert_groups, extent, extent_opt, flag, needed_weights_scale, output_matrix,
};
use bantam_graph::{Act, ExpertGroups, Experts, Graph, GraphBuilder, InputSource, Scoring};
use serde::Serialize;

use crate::chat;

/// `nemotron_h_moe`.
#[derive(Clone, Copy, Debug)]
pub struct NemotronH;

const USED: &str = "expert_used_count";

/// The rows behind the last norm, which a draft starts from.
const TAP: &str = "output_norm";

impl Family for NemotronH {
    fn name(&self) -> &'static str {
        "Nemotron-H"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["nemotron_h_moe"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let weights = Weights::declare(&mut Tensors::new(checkpoint, &mut graph), &config)?;
        let logits = forward(&mut graph, &config, &weights);
        let draft = config.sizes.draft_block.map(|block| draft_graph(checkpoint, &config, block, Origin::Model));
        let model =
            described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::nemotron())?;
        Ok(Model { draft: draft.transpose()?.map(|graph| chain(TAP, graph)), ..model })
    }

    fn draft_architectures(&self) -> &'static [&'static str] {
        self.architectures()
    }

    fn describe_draft(&self, draft: &Checkpoint, target: &Checkpoint) -> Result<Draft, FamilyError> {
        let config = Config::read(draft)?;
        let (sizes, target) = (&config.sizes, ModelSizes::read(target)?);
        draft_fits(draft, [sizes.vocab, sizes.hidden], [target.vocab, target.hidden])?;
        Ok(chain(TAP, draft_graph(draft, &config, sizes.required_draft_block()?, Origin::DraftFile)?))
    }
}

/// What a layer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Mixer {
    StateSpace,
    Attention,
    Experts,
}

#[derive(Serialize)]
struct Config {
    #[serde(flatten)]
    sizes: ModelSizes,
    mixers: Vec<Mixer>,
    heads: PerLayer,
    kv_heads: PerLayer,
    key_dim: usize,
    value_dim: usize,
    attention_scale: f32,
    state_space: StateSpaceShape,
    experts: ExpertsShape,
}

#[derive(Serialize)]
struct ExpertsShape {
    count: usize,
    used: PerLayer,
    width: PerLayer,
    shared_width: usize,
    /// Entries of the row that the experts read and write, where that is not the residual stream's.
    latent: Option<usize>,
    groups: Option<ExpertGroups>,
    normalize: bool,
    scale: f32,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        const HEADS: &str = "attention.head_count";
        const KV_HEADS: &str = "attention.head_count_kv";
        const FFN: &str = "feed_forward_length";
        let fields = checkpoint.fields();
        let sizes = ModelSizes::read(checkpoint)?;
        let per_block = |key: &str| {
            let missing = || fields.wrong(key, "an integer or one per block", "no such key");
            PerLayer::read(&fields, key, sizes.blocks)?.ok_or_else(missing)
        };
        let (heads, kv_heads, ffn) = (per_block(HEADS)?, per_block(KV_HEADS)?, per_block(FFN)?);
        let mixer = |layer: usize| match (ffn.at(layer), kv_heads.at(layer)) {
            (0, 0) => Mixer::StateSpace,
            (0, _) => Mixer::Attention,
            _ => Mixer::Experts,
        };
        let mixers: Vec<Mixer> = (0..sizes.layers).map(mixer).collect();
        let blocks_of = |kind| (0..sizes.layers).filter(move |&i| mixer(i) == kind).chain(sizes.draft_block);
        for block in blocks_of(Mixer::Attention) {
            let (q, kv) = (heads.at(block), kv_heads.at(block));
            if q == 0 {
                return Err(fields.wrong(HEADS, &format!("1 or more in block {block}"), "0"));
            }
            if kv == 0 || !q.is_multiple_of(kv) {
                let expected = format!("a divisor of the {q} heads of block {block}");
                return Err(fields.wrong(KV_HEADS, &expected, &kv.to_string()));
            }
        }
        let experts = ExpertsShape::read(&fields, sizes.blocks, &ffn)?;
        blocks_of(Mixer::Experts).try_for_each(|block| experts.routing(block).check(&fields, USED))?;
        let key_dim = extent(&fields, "attention.key_length")?;
        Ok(Config {
            mixers,
            heads,
            kv_heads,
            key_dim,
            value_dim: extent(&fields, "attention.value_length")?,
            attention_scale: attention_scale(&fields, key_dim)?,
            state_space: StateSpaceShape::read(&fields)?,
            experts,
            sizes,
        })
    }

    fn attention(&self, block: usize) -> AttentionShape {
        AttentionShape {
            hidden: self.sizes.hidden,
            heads: self.heads.at(block),
            kv_heads: self.kv_heads.at(block),
            key_dim: self.key_dim,
            value_dim: self.value_dim,
        }
    }
}

impl ExpertsShape {
    /// Early files say the experts' width only as that of the layer.
    fn read(fields: &Fields<'_>, blocks: usize, ffn: &PerLayer) -> Result<Self, FamilyError> {
        const LATENT: &str = "moe_latent_size";
        let count = extent(fields, "expert_count")?;
        let used = PerLayer::read(fields, USED, blocks)?;
        Ok(ExpertsShape {
            count,
            used: used.ok_or_else(|| fields.wrong(USED, "an integer or one per block", "no such key"))?,
            width: PerLayer::read(fields, "expert_feed_forward_length", blocks)?.unwrap_or_else(|| ffn.clone()),
            shared_width: extent(fields, "expert_shared_feed_forward_length")?,
            latent: match fields.usize_opt(LATENT)? {
                None | Some(0) => None,
                Some(_) => extent_opt(fields, LATENT)?,
            },
            groups: expert_groups(fields, count)?,
            normalize: flag(fields, "expert_weights_norm")?,
            scale: needed_weights_scale(fields)?,
        })
    }

    fn routing(&self, block: usize) -> Routing {
        Routing {
            count: self.count,
            used: self.used.at(block),
            scoring: Scoring::Sigmoid,
            biased_choice: true,
            groups: self.groups,
            normalize: self.normalize,
            scale: self.scale,
        }
    }
}

struct Weights {
    embed: String,
    layers: Vec<(String, Layer)>,
    output_norm: String,
    output: Projection,
}

/// The mixer of a layer, whose norm stands beside it.
enum Layer {
    StateSpace(Box<StateSpace>),
    Attention(Box<AttentionWeights>),
    Experts(Box<LatentExperts>),
}

struct LatentExperts {
    router: Router,
    latent: Option<[Projection; 2]>,
    up: String,
    down: String,
    shared: [Projection; 2],
}

impl Weights {
    fn declare(t: &mut Tensors<'_>, c: &Config) -> Result<Self, FamilyError> {
        let ModelSizes { hidden, vocab, .. } = c.sizes;
        let layer = |t: &mut Tensors<'_>, i: usize, mixer: &Mixer| {
            Ok::<_, FamilyError>((t.plain("attn_norm", &[hidden])?, Layer::declare(t, c, i, *mixer)?))
        };
        Ok(Weights {
            embed: t.plain("token_embd", &[vocab, hidden])?,
            layers: (c.mixers.iter().enumerate())
                .map(|(i, mixer)| layer(&mut t.layer(i), i, mixer))
                .collect::<Result<_, _>>()?,
            output_norm: t.plain("output_norm", &[hidden])?,
            output: output_matrix(t, vocab, hidden)?,
        })
    }
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize, mixer: Mixer) -> Result<Self, FamilyError> {
        Ok(match mixer {
            Mixer::StateSpace => Layer::StateSpace(Box::new(StateSpace::declare(t, c.state_space, c.sizes.hidden)?)),
            Mixer::Attention => Layer::Attention(Box::new(AttentionWeights::declare(t, c.attention(i))?)),
            Mixer::Experts => Layer::Experts(Box::new(LatentExperts::declare(t, c, i)?)),
        })
    }

    fn apply(&self, g: &mut GraphBuilder, x: &str, c: &Config) -> String {
        match self {
            Layer::StateSpace(scan) => scan.apply(g, x, c.sizes.norm_eps),
            Layer::Attention(weights) => attention(g, x, weights, Attending::anywhere(c.attention_scale)),
            Layer::Experts(experts) => experts.apply(g, x),
        }
    }
}

impl LatentExperts {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let (hidden, experts) = (c.sizes.hidden, &c.experts);
        let (width, row) = (experts.width.at(i), experts.latent.unwrap_or(hidden));
        let latent = match experts.latent {
            Some(n) => Some([t.matrix("ffn_latent_down", n, hidden)?, t.matrix("ffn_latent_up", hidden, n)?]),
            None => None,
        };
        Ok(LatentExperts {
            router: Router::declare(t, experts.routing(i), hidden)?,
            latent,
            up: t.plain("ffn_up_exps", &[experts.count, width, row])?,
            down: t.plain("ffn_down_exps", &[experts.count, row, width])?,
            shared: [
                t.matrix("ffn_up_shexp", experts.shared_width, hidden)?,
                t.matrix("ffn_down_shexp", hidden, experts.shared_width)?,
            ],
        })
    }

    /// Only the routed experts work in the latent space; the router and the shared expert read the whole row.
    fn apply(&self, g: &mut GraphBuilder, x: &str) -> String {
        let (ids, weights) = self.router.apply(g, ["ffn_router", "ffn_route"], x);
        let row = self.latent.as_ref().map_or_else(|| x.into(), |[down, _]| down.apply(g, "ffn_latent", x));
        let (up, down, act) = (self.up.clone(), Some(self.down.clone()), Act::ReluSquared);
        let op = Experts { x: row, ids, weights, gate: None, up, down, act, limit: None, scales: None };
        let mut routed = g.experts("ffn_routed", op);
        if let Some([_, up]) = &self.latent {
            routed = up.apply(g, "ffn_latent_out", &routed);
        }
        let [up, down] = &self.shared;
        let inner = up.apply(g, "ffn_shared_up", x);
        let inner = g.activate("ffn_shared_act", &inner, act);
        let shared = down.apply(g, "ffn_shared_out", &inner);
        g.add("ffn_out", &routed, &shared)
    }
}

/// All rows go through all layers, and the last norm: a draft may come with another file, and taps them.
fn forward(g: &mut GraphBuilder, c: &Config, w: &Weights) -> String {
    let eps = c.sizes.norm_eps;
    let ids = g.input("tokens", InputSource::TokenIds);
    let mut x = g.embed("embed", &ids, &w.embed, 1.0);
    for (i, (norm, layer)) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        let h = g.rms_norm("attn_norm", &x, Some(norm), eps, None);
        let mixed = layer.apply(g, &h, c);
        x = g.add("layer_out", &x, &mixed);
    }
    g.layer(None);
    let h = g.rms_norm(TAP, &x, Some(&w.output_norm), eps, None);
    let h = g.logit_rows("output_rows", &h);
    w.output.apply(g, "logits", &h)
}

/// What the draft block has between its inputs and its output matrix: both mixers that need no scan, one after the other.
struct DraftBlock {
    input: DraftInput,
    attn_norm: String,
    attn: AttentionWeights,
    ffn_norm: String,
    experts: LatentExperts,
    output_norm: String,
    output: Projection,
}

impl DraftBlock {
    fn declare(t: &mut Tensors<'_>, c: &Config, block: usize) -> Result<Self, FamilyError> {
        let ModelSizes { hidden, vocab, .. } = c.sizes;
        let embed = t.plain("token_embd", &[vocab, hidden])?;
        let output = draft_output(t, block, [vocab, hidden])?;
        let t = &mut t.layer(block);
        Ok(DraftBlock {
            input: DraftInput::declare(t, &embed, [vocab, hidden], 1)?,
            attn_norm: t.plain("attn_norm", &[hidden])?,
            attn: AttentionWeights::declare(t, c.attention(block))?,
            ffn_norm: t.plain("post_attention_norm", &[hidden])?,
            experts: LatentExperts::declare(t, c, block)?,
            output_norm: t.plain("nextn.shared_head_norm", &[hidden])?,
            output,
        })
    }
}

/// The draft block as a graph; `origin` says in which file its tensors lie.
fn draft_graph(checkpoint: &Checkpoint, c: &Config, block: usize, origin: Origin) -> Result<Graph, FamilyError> {
    let eps = c.sizes.norm_eps;
    let mut graph = GraphBuilder::new(&format!("{}-draft", checkpoint.architecture));
    let w = DraftBlock::declare(&mut Tensors::of(origin, checkpoint, &mut graph), c, block)?;
    let g = &mut graph;
    let ids = g.input("tokens", InputSource::TokenIds);
    let x = w.input.apply(g, &ids, eps);
    g.layer(Some(block));
    let h = g.rms_norm("attn_norm", &x, Some(&w.attn_norm), eps, None);
    let a = attention(g, &h, &w.attn, Attending::anywhere(c.attention_scale));
    let x = g.add("attn_residual", &x, &a);
    let h = g.rms_norm("ffn_norm", &x, Some(&w.ffn_norm), eps, None);
    let f = w.experts.apply(g, &h);
    let x = g.add("layer_out", &x, &f);
    g.layer(None);
    let h = g.rms_norm("draft_norm", &x, Some(&w.output_norm), eps, None);
    g.tap(&h);
    let h = g.logit_rows("output_rows", &h);
    let logits = w.output.apply(g, "logits", &h);
    Ok(graph.finish(&logits)?)
}
