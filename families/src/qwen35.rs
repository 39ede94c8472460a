//! Qwen 3.5, 3.6 and 3.8, dense and with experts.
//!
//! A hybrid: most layers are gated DeltaNets, whose state does not grow; the others attend, with a gate on the output that
//! is projected with the queries, and turn only a part of each head. Beside the routed experts is a gated shared one. A
//! draft block, which always attends, may stand behind the layers.

use bantam_family_api::{Checkpoint, Draft, Family, FamilyError, HfCheckpoint, Import, Model};
use bantam_family_blocks::{
    Attending, AttentionShape, Decoder, DecoderSizes, DeltaNet, DeltaNetShape, DraftInput, Ffn, FfnShape,
    GatedAttention, Hybrid, MixtureShape, Origin, Projection, RopeConfig, Tensors, attention_scale, chain, described,
    draft_output, extent_opt, ffn, trunk_layers,
};
use bantam_graph::{Act, Graph, GraphBuilder, InputSource, Pairing};
use serde::Serialize;

use crate::{chat, hf};

/// `qwen35`, `qwen35moe`.
#[derive(Clone, Copy, Debug)]
pub struct Qwen35;

const ARCHITECTURES: &[&str] = &["qwen35", "qwen35moe"];

/// The value of the trunk that the draft block reads: what the output matrix reads, for every token.
const TAP: &str = "output_norm";

impl Family for Qwen35 {
    fn name(&self) -> &'static str {
        "Qwen 3.5"
    }

    fn architectures(&self) -> &'static [&'static str] {
        ARCHITECTURES
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let t = &mut Tensors::new(checkpoint, &mut graph);
        let layer = |t: &mut Tensors<'_>, i: usize| Layer::declare(t, &config, i);
        let weights = Decoder::declare(t, config.sizes.table(), config.trunk_layers, layer)?;
        let logits = forward(&mut graph, &config, &weights);
        let draft = config.drafts().then(|| draft_graph(checkpoint, &config, Origin::Model)).transpose()?;
        let model =
            described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::qwen35())?;
        Ok(Model { draft: draft.map(|graph| chain(TAP, graph)), ..model })
    }

    fn hf_architectures(&self) -> &'static [&'static str] {
        hf::qwen35::ARCHITECTURES
    }

    fn import(&self, checkpoint: &HfCheckpoint) -> Result<Import, FamilyError> {
        hf::qwen35::import(checkpoint)
    }

    fn draft_architectures(&self) -> &'static [&'static str] {
        ARCHITECTURES
    }

    fn describe_draft(&self, draft: &Checkpoint, target: &Checkpoint) -> Result<Draft, FamilyError> {
        let config = Config::read(draft)?;
        config.sizes.fits(draft, &DecoderSizes::read(target)?)?;
        Ok(chain(TAP, draft_graph(draft, &config, Origin::DraftFile)?))
    }
}

#[derive(Serialize)]
struct Config {
    /// Layers are those of the trunk and the draft block.
    #[serde(flatten)]
    sizes: DecoderSizes,
    trunk_layers: usize,
    #[serde(flatten)]
    hybrid: Hybrid,
    attention_scale: f32,
    rope: RopeConfig,
    delta_net: DeltaNetShape,
    ffn: FfnShape,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let sizes = DecoderSizes::read(checkpoint)?;
        let trunk_layers = trunk_layers(checkpoint, sizes.layers)?;
        Ok(Config {
            trunk_layers,
            hybrid: Hybrid::read(&fields, sizes.layers, trunk_layers)?,
            attention_scale: attention_scale(&fields, sizes.key_dim)?,
            rope: RopeConfig::read_given(&fields, Pairing::Halves, sizes.key_dim)?,
            delta_net: DeltaNetShape::read(&fields)?,
            ffn: match FfnShape::read(&fields, sizes.layers)? {
                FfnShape::Experts(experts) => {
                    let shared = extent_opt(&fields, "expert_shared_feed_forward_length")?;
                    FfnShape::Experts(MixtureShape { shared_width: Some(shared.unwrap_or(experts.width)), ..experts })
                }
                dense => dense,
            },
            sizes,
        })
    }

    fn drafts(&self) -> bool {
        self.trunk_layers < self.sizes.layers
    }

    fn attending<'a>(&'a self, positions: &'a str) -> Attending<'a> {
        Attending {
            positions,
            rope: Some(&self.rope),
            rope_factors: None,
            scale: self.attention_scale,
            window: None,
            norm_eps: self.sizes.norm_eps,
        }
    }
}

struct Layer {
    mixer_norm: String,
    mixer: Mixer,
    ffn_norm: String,
    ffn: Ffn,
}

enum Mixer {
    DeltaNet(DeltaNet),
    Attention(GatedAttention),
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        Ok(Layer {
            mixer_norm: t.plain("attn_norm", &[hidden])?,
            mixer: if c.hybrid.attends(i) {
                Mixer::Attention(GatedAttention::declare(t, AttentionShape::of(&c.sizes, i))?)
            } else {
                Mixer::DeltaNet(DeltaNet::declare(t, c.delta_net, hidden)?)
            },
            ffn_norm: t.plain("post_attention_norm", &[hidden])?,
            ffn: Ffn::declare(t, &c.ffn, i, hidden)?.with_shared_gate(t, hidden)?,
        })
    }

    fn apply(&self, g: &mut GraphBuilder, c: &Config, x: &str, positions: &str) -> String {
        let eps = c.sizes.norm_eps;
        let h = g.rms_norm("attn_norm", x, Some(&self.mixer_norm), eps, None);
        let y = match &self.mixer {
            Mixer::DeltaNet(delta_net) => delta_net.apply(g, &h, Act::Silu, eps),
            Mixer::Attention(attention) => attention.apply(g, &h, c.attending(positions), None),
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
        x = layer.apply(g, c, &x, &positions);
    }
    g.layer(None);
    let h = g.rms_norm(TAP, &x, Some(&w.output_norm), c.sizes.norm_eps, None);
    let h = g.logit_rows("output_rows", &h);
    w.output.apply(g, "logits", &h)
}

/// A draft block: a layer between a norm and projection of its inputs and an output of its own or the trunk's.
struct DraftBlock {
    input: DraftInput,
    layer: Layer,
    output_norm: String,
    output: Projection,
}

impl DraftBlock {
    fn declare(t: &mut Tensors<'_>, c: &Config) -> Result<Self, FamilyError> {
        let DecoderSizes { hidden, vocab, .. } = c.sizes;
        let block = c.trunk_layers;
        let embed = t.plain("token_embd", &[vocab, hidden])?;
        let output = draft_output(t, block, [vocab, hidden])?;
        let t = &mut t.layer(block);
        Ok(DraftBlock {
            input: DraftInput::declare(t, &embed, [vocab, hidden], 1)?,
            layer: Layer::declare(t, c, block)?,
            output_norm: t.plain("nextn.shared_head_norm", &[hidden])?,
            output,
        })
    }
}

/// The draft block as a graph; `origin` says in which file its tensors lie.
fn draft_graph(checkpoint: &Checkpoint, c: &Config, origin: Origin) -> Result<Graph, FamilyError> {
    let mut graph = GraphBuilder::new(&format!("{}-draft", checkpoint.architecture));
    let block = DraftBlock::declare(&mut Tensors::of(origin, checkpoint, &mut graph), c)?;
    let g = &mut graph;
    let ids = g.input("tokens", InputSource::TokenIds);
    let positions = g.input("positions", InputSource::Positions);
    let x = block.input.apply(g, &ids, c.sizes.norm_eps);
    g.layer(Some(c.trunk_layers));
    let x = block.layer.apply(g, c, &x, &positions);
    g.layer(None);
    let h = g.rms_norm("draft_norm", &x, Some(&block.output_norm), c.sizes.norm_eps, None);
    g.tap(&h);
    let h = g.logit_rows("output_rows", &h);
    let logits = block.output.apply(g, "logits", &h);
    Ok(graph.finish(&logits)?)
}
