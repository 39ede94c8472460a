//! Bailing MoE V3 (Ling 3.0).
//!
//! A hybrid: most layers are a delta rule with a decay per channel ([`delta`]), the last of every group attends to latent
//! rows ([`latent`]). Behind a few dense layers come experts that are chosen within the best groups, whose factors are bounded
//! in late layers. The draft block attends.

mod delta;
mod latent;

use bantam_family_api::{Checkpoint, Draft, Family, FamilyError, Fields, HfCheckpoint, Import, Model};
use bantam_family_blocks::{
    Decoder, DraftInput, Ffn, FfnShape, MixtureShape, ModelSizes, Origin, PerLayer, Projection, Routing, Tensors,
    chain, counts, described, draft_fits, draft_output, expert_groups, extent, extent_opt, ffn, flag, glu_limits,
    needed_weights_scale, scoring,
};
use bantam_graph::{Act, GluLimit, Graph, GraphBuilder, InputSource, Scoring};
use serde::Serialize;

use self::{
    delta::{Delta, DeltaShape},
    latent::{Latent, LatentShape},
};
use crate::{chat, hf};

/// `bailingmoe3`.
#[derive(Clone, Copy, Debug)]
pub struct Bailing;

const ARCHITECTURES: &[&str] = &["bailingmoe3"];

/// The value of the trunk that the draft block reads: what the output matrix reads, for every token.
const TAP: &str = "output_norm";

impl Family for Bailing {
    fn name(&self) -> &'static str {
        "Bailing MoE V3"
    }

    fn architectures(&self) -> &'static [&'static str] {
        ARCHITECTURES
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let t = &mut Tensors::new(checkpoint, &mut graph);
        let layer = |t: &mut Tensors<'_>, i: usize| Layer::declare(t, &config, i);
        let weights = Decoder::declare(t, config.sizes.table(), config.sizes.layers, layer)?;
        let logits = forward(&mut graph, &config, &weights);
        let draft = config.sizes.draft_block.map(|block| draft_graph(checkpoint, &config, block, Origin::Model));
        let model =
            described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::bailing())?;
        Ok(Model { draft: draft.transpose()?.map(|graph| chain(TAP, graph)), ..model })
    }

    fn hf_architectures(&self) -> &'static [&'static str] {
        hf::bailing::ARCHITECTURES
    }

    fn import(&self, checkpoint: &HfCheckpoint) -> Result<Import, FamilyError> {
        hf::bailing::import(checkpoint)
    }

    fn draft_architectures(&self) -> &'static [&'static str] {
        ARCHITECTURES
    }

    fn describe_draft(&self, draft: &Checkpoint, target: &Checkpoint) -> Result<Draft, FamilyError> {
        let config = Config::read(draft)?;
        let (sizes, target) = (&config.sizes, ModelSizes::read(target)?);
        draft_fits(draft, [sizes.vocab, sizes.hidden], [target.vocab, target.hidden])?;
        Ok(chain(TAP, draft_graph(draft, &config, sizes.required_draft_block()?, Origin::DraftFile)?))
    }
}

/// What a layer's past is carried by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Delta,
    Latent,
}

#[derive(Serialize)]
struct Config {
    #[serde(flatten)]
    sizes: ModelSizes,
    layer_kinds: Vec<Kind>,
    delta: DeltaShape,
    latent: LatentShape,
    ffn: FfnShape,
    /// Bounds on the factors of routed and shared experts, per layer.
    routed_limits: Vec<Option<f32>>,
    shared_limits: Vec<Option<f32>>,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let sizes = ModelSizes::read(checkpoint)?;
        let heads = extent(&fields, "attention.head_count")?;
        Ok(Config {
            layer_kinds: layer_kinds(&fields, &sizes)?,
            delta: DeltaShape::read(&fields, heads)?,
            latent: LatentShape::read(&fields, heads)?,
            ffn: FfnShape::behind_dense(&fields, sizes.blocks, experts(&fields)?)?,
            routed_limits: glu_limits(&fields, "swiglu_clamp_exp", sizes.blocks)?.unwrap_or_default(),
            shared_limits: glu_limits(&fields, "swiglu_clamp_shexp", sizes.blocks)?.unwrap_or_default(),
            sizes,
        })
    }

    fn limits(&self, block: usize) -> [Option<GluLimit>; 2] {
        [&self.routed_limits, &self.shared_limits]
            .map(|limits| limits.get(block).copied().flatten().map(GluLimit::AfterAct))
    }
}

/// `attention.head_count_kv` per block: 0 where the delta rule is, 1 where the latent row is the one key.
fn layer_kinds(fields: &Fields<'_>, sizes: &ModelSizes) -> Result<Vec<Kind>, FamilyError> {
    const KEY: &str = "attention.head_count_kv";
    let expected = "0 or 1 for each block";
    let heads = PerLayer::read(fields, KEY, sizes.blocks)?;
    let heads = heads.ok_or_else(|| fields.wrong(KEY, expected, "no such key"))?;
    if sizes.draft_block.is_some_and(|block| heads.at(block) == 0) {
        return Err(fields.wrong(KEY, "1 for the block that drafts", "0"));
    }
    let kind = |block| match heads.at(block) {
        0 => Ok(Kind::Delta),
        1 => Ok(Kind::Latent),
        n => Err(fields.wrong(KEY, expected, &n.to_string())),
    };
    (0..sizes.blocks).map(kind).collect()
}

fn experts(fields: &Fields<'_>) -> Result<MixtureShape, FamilyError> {
    let (count, used) = counts(fields, ["expert_count", "expert_used_count"])?;
    let width = extent(fields, "expert_feed_forward_length")?;
    extent(fields, "expert_group_count")?;
    let routing = Routing {
        count,
        used,
        scoring: scoring(fields, Scoring::Sigmoid)?,
        biased_choice: true,
        groups: expert_groups(fields, count)?,
        normalize: flag(fields, "expert_weights_norm")?,
        scale: needed_weights_scale(fields)?,
    };
    routing.check(fields, "expert_used_count")?;
    let shared_count = extent(fields, "expert_shared_count")?;
    let shared = extent_opt(fields, "expert_shared_feed_forward_length")?;
    let shared = shared.unwrap_or_else(|| width.saturating_mul(shared_count));
    Ok(MixtureShape { routing, width, shared_width: Some(shared) })
}

struct Layer {
    mixer_norm: String,
    mixer: Mixer,
    ffn_norm: String,
    ffn: Ffn,
}

enum Mixer {
    Delta(Box<Delta>),
    Latent(Box<Latent>),
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        Ok(Layer {
            mixer_norm: t.plain("attn_norm", &[hidden])?,
            mixer: match c.layer_kinds.get(i) {
                Some(Kind::Delta) => Mixer::Delta(Box::new(Delta::declare(t, c.delta, hidden)?)),
                _ => Mixer::Latent(Box::new(Latent::declare(t, &c.latent, hidden)?)),
            },
            ffn_norm: t.plain("ffn_norm", &[hidden])?,
            ffn: Ffn::declare(t, &c.ffn, i, hidden)?.with_limits(c.limits(i)),
        })
    }

    fn apply(&self, g: &mut GraphBuilder, x: &str, positions: &str, eps: f32) -> String {
        let h = g.rms_norm("attn_norm", x, Some(&self.mixer_norm), eps, None);
        let y = match &self.mixer {
            Mixer::Delta(delta) => delta.apply(g, &h, eps),
            Mixer::Latent(latent) => latent.apply(g, &h, positions),
        };
        let x = g.add("attn_residual", x, &y);
        let h = g.rms_norm("ffn_norm", &x, Some(&self.ffn_norm), eps, None);
        let f = ffn(g, &h, &self.ffn, Act::Silu);
        g.add("layer_out", &x, &f)
    }
}

/// All rows go through all layers, and the last norm: a draft may come with another file, and taps them.
fn forward(g: &mut GraphBuilder, c: &Config, w: &Decoder<Layer>) -> String {
    let ids = g.input("tokens", InputSource::TokenIds);
    let positions = g.input("positions", InputSource::Positions);
    let mut x = g.embed("embed", &ids, &w.embed, 1.0);
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        x = layer.apply(g, &x, &positions, c.sizes.norm_eps);
    }
    g.layer(None);
    let h = g.rms_norm(TAP, &x, Some(&w.output_norm), c.sizes.norm_eps, None);
    let h = g.logit_rows("output_rows", &h);
    w.output.apply(g, "logits", &h)
}

/// A draft block: a layer that attends, between its inputs and the trunk's output matrix.
struct DraftBlock {
    input: DraftInput,
    layer: Layer,
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
            layer: Layer::declare(t, c, block)?,
            output_norm: t.plain("layer_output_norm", &[hidden])?,
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
    let positions = g.input("positions", InputSource::Positions);
    let x = w.input.apply(g, &ids, eps);
    g.layer(Some(block));
    let x = w.layer.apply(g, &x, &positions, eps);
    g.layer(None);
    let h = g.rms_norm("draft_norm", &x, Some(&w.output_norm), eps, None);
    g.tap(&h);
    let h = g.logit_rows("output_rows", &h);
    let logits = w.output.apply(g, "logits", &h);
    Ok(graph.finish(&logits)?)
}
