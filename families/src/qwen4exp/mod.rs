//! Qwen3.8-Flash-Next.
//!
//! A hybrid of gated DeltaNets and gated attention, as Qwen 3.5, with four changes: several residual streams, mixed into
//! the input of each block by a learned gate ([`streams`]); attention sees only the blocks of tokens that an indexer
//! scores highest ([`indexer`]); one layer adds what it finds under the last few tokens in a hashed table ([`ngram`]); and
//! every layer has experts. There are no norms beside those of the streams. A draft block may stand behind the layers.

mod indexer;
mod ngram;
mod streams;

use std::ops::Range;

use bantam_family_api::{Checkpoint, Draft, Family, FamilyError, Fields, Model};
use bantam_family_blocks::{
    Attending, AttentionShape, DecoderSizes, DeltaNet, DeltaNetShape, DraftInput, GatedAttention, Hybrid, Mixture,
    MixtureShape, Origin, Positions, Projection, RopeConfig, Tensors, attention_scale, chain, described, extent_opt,
    output_matrix, trunk_layers,
};
use bantam_graph::{Act, Graph, GraphBuilder, InputSource, Pairing};
use serde::Serialize;

use crate::chat;
use indexer::{Indexer, IndexerConfig};
use ngram::{NgramConfig, Ngrams};
use streams::{Inject, Mix, StreamConfig, injected};

/// `qwen4exp`.
#[derive(Clone, Copy, Debug)]
pub struct Qwen4Exp;

const ARCHITECTURES: &[&str] = &["qwen4exp"];

/// The streams behind a layer; those of the last one are what a draft reads.
const LAYER_OUT: &str = "layer_out";

impl Family for Qwen4Exp {
    fn name(&self) -> &'static str {
        "Qwen3.8-Flash-Next"
    }

    fn architectures(&self) -> &'static [&'static str] {
        ARCHITECTURES
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let weights = Weights::declare(&mut Tensors::new(checkpoint, &mut graph), &config)?;
        let [logits, streams] = forward(&mut graph, &config, &weights);
        let draft = config.drafts().then(|| draft_graph(checkpoint, &config, Origin::Model)).transpose()?;
        let model =
            described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::qwen35())?;
        Ok(Model { draft: draft.map(|graph| chain(&streams, graph)), ..model })
    }

    fn draft_architectures(&self) -> &'static [&'static str] {
        ARCHITECTURES
    }

    fn describe_draft(&self, draft: &Checkpoint, target: &Checkpoint) -> Result<Draft, FamilyError> {
        let (config, target) = (Config::read(draft)?, Config::read(target)?);
        config.sizes.fits(draft, &target.sizes)?;
        let streams = format!("{LAYER_OUT}.{}", target.trunk_layers.saturating_sub(1));
        Ok(chain(&streams, draft_graph(draft, &config, Origin::DraftFile)?))
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
    streams: StreamConfig,
    attention_scale: f32,
    rope: RopeConfig,
    indexer: Option<IndexerConfig>,
    delta_net: DeltaNetShape,
    experts: MixtureShape,
    ngrams: Option<NgramConfig>,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let sizes = DecoderSizes::read(checkpoint)?;
        let trunk_layers = trunk_layers(checkpoint, sizes.layers)?;
        let rope = RopeConfig::read_given(&fields, Pairing::Halves, sizes.key_dim)?;
        Ok(Config {
            trunk_layers,
            hybrid: Hybrid::read(&fields, sizes.layers, trunk_layers)?,
            streams: StreamConfig::read(&fields)?,
            attention_scale: attention_scale(&fields, sizes.key_dim)?,
            indexer: IndexerConfig::read(checkpoint, sizes.layers, &rope)?,
            rope,
            delta_net: DeltaNetShape::read(&fields)?,
            experts: experts(&fields)?,
            ngrams: NgramConfig::read(checkpoint, trunk_layers, sizes.vocab)?,
            sizes,
        })
    }

    /// Inputs of positions for these layers.
    fn positions(&self, g: &mut GraphBuilder, layers: Range<usize>) -> Positions {
        let indexed = layers.filter(|i| self.hybrid.attends(*i));
        Positions::declare(g, indexed.filter_map(|i| self.indexer.as_ref()?.block(i)))
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

/// The shared expert is as wide as a routed one unless a key says otherwise.
fn experts(fields: &Fields<'_>) -> Result<MixtureShape, FamilyError> {
    let experts = MixtureShape::read(fields)?;
    let shared = extent_opt(fields, "expert_shared_feed_forward_length")?;
    Ok(MixtureShape { shared_width: Some(shared.unwrap_or(experts.width)), ..experts })
}

struct Weights {
    embed: String,
    ngram_table: Option<String>,
    layers: Vec<Layer>,
    output_mix: Mix,
    output: Projection,
}

struct Layer {
    ngrams: Option<Ngrams>,
    mixer_streams: Inject,
    mixer: Mixer,
    ffn_streams: Inject,
    experts: Mixture,
}

enum Mixer {
    DeltaNet(DeltaNet),
    Attention(GatedAttention, Option<Indexer>),
}

impl Weights {
    fn declare(t: &mut Tensors<'_>, c: &Config) -> Result<Self, FamilyError> {
        let DecoderSizes { hidden, vocab, .. } = c.sizes;
        Ok(Weights {
            embed: t.plain("token_embd", &[vocab, hidden])?,
            ngram_table: c.ngrams.as_ref().map(|ngrams| ngram::table(t, ngrams)).transpose()?,
            layers: (0..c.trunk_layers).map(|i| Layer::declare(&mut t.layer(i), c, i)).collect::<Result<_, _>>()?,
            output_mix: Mix::declare(t, "output_hc", c.streams, hidden)?,
            output: output_matrix(t, vocab, hidden)?,
        })
    }
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        let ngrams = c.ngrams.as_ref().filter(|ngrams| ngrams.layer == i);
        Ok(Layer {
            ngrams: ngrams.map(|ngrams| Ngrams::declare(t, ngrams, c.streams, hidden)).transpose()?,
            mixer_streams: Inject::declare(t, "hc_attn", c.streams, hidden)?,
            mixer: Mixer::declare(t, c, i)?,
            ffn_streams: Inject::declare(t, "hc_ffn", c.streams, hidden)?,
            experts: Mixture::declare(t, &c.experts, hidden)?.with_shared_gate(t, hidden)?,
        })
    }

    /// The streams behind the layer, n-grams apart.
    fn apply(&self, g: &mut GraphBuilder, c: &Config, streams: &str, positions: &Positions) -> String {
        let eps = c.sizes.norm_eps;
        let [x, post] = self.mixer_streams.read(g, "attn_mix", streams, eps);
        let y = match &self.mixer {
            Mixer::DeltaNet(delta_net) => delta_net.apply(g, &x, Act::Sigmoid, eps),
            Mixer::Attention(attention, indexer) => {
                let select = indexer.as_ref().map(|indexer| indexer.apply(g, &x, &c.rope, positions, eps));
                attention.apply(g, &x, c.attending(&positions.tokens), select)
            }
        };
        let streams = injected(g, "attn_streams", streams, y, post);
        let [x, post] = self.ffn_streams.read(g, "ffn_mix", &streams, eps);
        let y = self.experts.apply(g, &x, Act::Silu);
        injected(g, LAYER_OUT, &streams, y, post)
    }
}

impl Mixer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        if !c.hybrid.attends(i) {
            return DeltaNet::declare(t, c.delta_net, hidden).map(Mixer::DeltaNet);
        }
        let indexer = match &c.indexer {
            Some(config) => {
                let block = config.block(i);
                block.map(|block| Indexer::declare(t, config, block, hidden)).transpose()?
            }
            None => None,
        };
        Ok(Mixer::Attention(GatedAttention::declare(t, AttentionShape::of(&c.sizes, i))?, indexer))
    }
}

/// Logits, and the streams behind the last layer.
fn forward(g: &mut GraphBuilder, c: &Config, w: &Weights) -> [String; 2] {
    let eps = c.sizes.norm_eps;
    let ids = g.input("tokens", InputSource::TokenIds);
    let positions = c.positions(g, 0..c.trunk_layers);
    let embedded = g.embed("embed", &ids, &w.embed, 1.0);
    let mut streams = g.concat("streams", &vec![embedded.as_str(); c.streams.count], 1);
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        if let (Some(ngrams), Some(table)) = (&layer.ngrams, &w.ngram_table) {
            streams = ngrams.apply(g, &ids, table, &streams, eps);
        }
        streams = layer.apply(g, c, &streams, &positions);
    }
    g.layer(None);
    let rows = g.logit_rows("output_streams", &streams);
    let [x, _] = w.output_mix.apply(g, "output_mix", &rows, eps);
    [w.output.apply(g, "logits", &x), streams]
}

/// A draft block: a layer on streams of its inputs, and a mix of its own into the trunk's output matrix.
struct DraftBlock {
    input: DraftInput,
    layer: Layer,
    output_mix: Mix,
    output: Projection,
}

impl DraftBlock {
    fn declare(t: &mut Tensors<'_>, c: &Config) -> Result<Self, FamilyError> {
        let DecoderSizes { hidden, vocab, .. } = c.sizes;
        let embed = t.plain("token_embd", &[vocab, hidden])?;
        let output = output_matrix(t, vocab, hidden)?;
        let t = &mut t.layer(c.trunk_layers);
        Ok(DraftBlock {
            input: DraftInput::declare(t, &embed, [vocab, hidden], c.streams.count)?,
            layer: Layer::declare(t, c, c.trunk_layers)?,
            output_mix: Mix::declare(t, "nextn.hc_head", c.streams, hidden)?,
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
    let positions = c.positions(g, c.trunk_layers..c.sizes.layers);
    let streams = block.input.apply(g, &ids, c.sizes.norm_eps);
    g.layer(Some(c.trunk_layers));
    let streams = block.layer.apply(g, c, &streams, &positions);
    g.layer(None);
    g.tap(&streams);
    let rows = g.logit_rows("output_streams", &streams);
    let [x, _] = block.output_mix.apply(g, "output_mix", &rows, c.sizes.norm_eps);
    let logits = block.output.apply(g, "logits", &x);
    Ok(graph.finish(&logits)?)
}
