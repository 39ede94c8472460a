//! DeepSeek-V4 and V4-Flash.
//!
//! Several residual streams, mixed by gates around each block ([`streams`]); attention to a window of tokens and to keys
//! that stand for blocks of them ([`attention`], [`compressed`]); experts in every layer ([`experts`]). Drafts come in files of their own: a layer that goes on token after token, or layers that draft a whole block
//! ([`block_draft`]).

mod attention;
mod block_draft;
mod compressed;
mod experts;
mod streams;

use bantam_family_api::{Checkpoint, Draft, DraftMethod, Family, FamilyError, Model};
use bantam_family_blocks::{
    DraftInput, ModelSizes, Origin, Positions, Projection, Tensors, chain, described, draft_fits, draft_output,
};
use bantam_graph::{GraphBuilder, InputSource};
use serde::Serialize;

use self::{
    attention::{Attending, AttentionConfig, SharedKeyAttention},
    experts::{Experts, ExpertsConfig},
    streams::{Around, Head, StreamConfig},
};
use crate::chat;

/// `deepseek4`, with drafts `deepseek4` and `dflash`.
#[derive(Clone, Copy, Debug)]
pub struct DeepSeek;

/// A draft that makes a whole block at once.
const BLOCK_DRAFT: &str = "dflash";

/// The streams behind a layer, which drafts read.
const LAYER_OUT: &str = "layer_out";

impl Family for DeepSeek {
    fn name(&self) -> &'static str {
        "DeepSeek-V4"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["deepseek4"]
    }

    /// A draft block in the same file is left out: converters write it without the gates in front of its output.
    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint, ModelSizes::read(checkpoint)?)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let weights = Weights::declare(&mut Tensors::new(checkpoint, &mut graph), &config)?;
        let logits = forward(&mut graph, &config, &weights);
        described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::deepseek())
    }

    fn draft_architectures(&self) -> &'static [&'static str] {
        &["deepseek4", BLOCK_DRAFT]
    }

    fn describe_draft(&self, draft: &Checkpoint, target: &Checkpoint) -> Result<Draft, FamilyError> {
        let target_config = Config::read(target, ModelSizes::read(target)?)?;
        if draft.architecture == BLOCK_DRAFT {
            return block_draft::describe(draft, target, &target_config);
        }
        next_token_draft(draft, &target_config)
    }
}

#[derive(Serialize)]
struct Config {
    #[serde(flatten)]
    sizes: ModelSizes,
    streams: StreamConfig,
    attention: AttentionConfig,
    experts: ExpertsConfig,
}

impl Config {
    fn read(checkpoint: &Checkpoint, sizes: ModelSizes) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        Ok(Config {
            streams: StreamConfig::read(&fields)?,
            attention: AttentionConfig::read(checkpoint, sizes.blocks)?,
            experts: ExpertsConfig::read(&fields, sizes.blocks)?,
            sizes,
        })
    }

    fn attending<'a>(&'a self, positions: &'a Positions) -> Attending<'a> {
        Attending { config: &self.attention, positions, norm_eps: self.sizes.norm_eps }
    }
}

struct Weights {
    embed: String,
    layers: Vec<Layer>,
    head: Head,
    output_norm: String,
    output: Projection,
}

struct Layer {
    attn_streams: Around,
    attn_norm: String,
    attn: SharedKeyAttention,
    ffn_streams: Around,
    ffn_norm: String,
    experts: Experts,
}

impl Weights {
    fn declare(t: &mut Tensors<'_>, c: &Config) -> Result<Self, FamilyError> {
        let ModelSizes { layers, hidden, vocab, .. } = c.sizes;
        Ok(Weights {
            embed: t.plain("token_embd", &[vocab, hidden])?,
            layers: (0..layers).map(|i| Layer::declare(&mut t.layer(i), c, i)).collect::<Result<_, _>>()?,
            head: Head::declare(t, c.streams, hidden)?,
            output_norm: t.plain("output_norm", &[hidden])?,
            output: t.matrix("output", vocab, hidden)?,
        })
    }
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let ModelSizes { hidden, vocab, .. } = c.sizes;
        Ok(Layer {
            attn_streams: Around::declare(t, "hc_attn", c.streams, hidden)?,
            attn_norm: t.plain("attn_norm", &[hidden])?,
            attn: SharedKeyAttention::declare(t, &c.attention, i, hidden)?,
            ffn_streams: Around::declare(t, "hc_ffn", c.streams, hidden)?,
            ffn_norm: t.plain("ffn_norm", &[hidden])?,
            experts: Experts::declare(t, &c.experts, i, [vocab, hidden])?,
        })
    }

    /// The streams behind the layer. For `before` see [`SharedKeyAttention::apply`].
    fn apply(
        &self,
        g: &mut GraphBuilder,
        streams: &str,
        tokens: &str,
        how: Attending<'_>,
        before: Option<String>,
    ) -> String {
        let eps = how.norm_eps;
        let (x, gates) = self.attn_streams.read(g, "attn", streams, eps);
        let h = g.rms_norm("attn_norm", &x, Some(&self.attn_norm), eps, None);
        let y = self.attn.apply(g, &h, how, before);
        let streams = gates.update(g, "attn_streams", streams, y);
        let (x, gates) = self.ffn_streams.read(g, "ffn", &streams, eps);
        let h = g.rms_norm("ffn_norm", &x, Some(&self.ffn_norm), eps, None);
        let y = self.experts.apply(g, &h, tokens);
        gates.update(g, LAYER_OUT, &streams, y)
    }
}

/// All rows go through all layers: drafts in other files read the streams behind any of them.
fn forward(g: &mut GraphBuilder, c: &Config, w: &Weights) -> String {
    let tokens = g.input("tokens", InputSource::TokenIds);
    let positions = Positions::declare(g, (0..c.sizes.layers).filter_map(|i| c.attention.block(i)));
    let how = c.attending(&positions);
    let embedded = g.embed("embed", &tokens, &w.embed, 1.0);
    let mut streams = c.streams.spread(g, &embedded);
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        streams = layer.apply(g, &streams, &tokens, how, None);
    }
    g.layer(None);
    let rows = g.logit_rows("output_streams", &streams);
    let x = w.head.apply(g, &rows, how.norm_eps);
    let h = g.rms_norm("output_norm", &x, Some(&w.output_norm), how.norm_eps, None);
    w.output.apply(g, "logits", &h)
}

/// A layer that goes on token after token, from the streams behind the last layer of the model that it drafts for.
fn next_token_draft(draft: &Checkpoint, target: &Config) -> Result<Draft, FamilyError> {
    let c = Config::read(draft, ModelSizes::read(draft)?)?;
    let ModelSizes { hidden, vocab, norm_eps: eps, .. } = c.sizes;
    draft_fits(draft, [vocab, hidden], [target.sizes.vocab, target.sizes.hidden])?;
    let block = c.sizes.required_draft_block()?;
    let mut graph = GraphBuilder::new(&format!("{}-draft", draft.architecture));
    let t = &mut Tensors::of(Origin::DraftFile, draft, &mut graph);
    let (embed, streams) = (t.plain("token_embd", &[vocab, hidden])?, c.streams.count);
    let input = DraftInput::declare_stream_by_stream(&mut t.layer(block), &embed, [vocab, hidden], streams)?;
    let layer = Layer::declare(&mut t.layer(block), &c, block)?;
    let head = Head::declare(t, c.streams, hidden)?;
    let output_norm = t.layer(block).plain("nextn.shared_head_norm", &[hidden])?;
    let output = draft_output(t, block, [vocab, hidden])?;

    let g = &mut graph;
    let tokens = g.input("tokens", InputSource::TokenIds);
    let positions = Positions::declare(g, c.attention.block(block).into_iter());
    let x = input.apply(g, &tokens, eps);
    g.layer(Some(block));
    let x = layer.apply(g, &x, &tokens, c.attending(&positions), None);
    g.layer(None);
    g.tap(&x);
    let rows = g.logit_rows("output_streams", &x);
    let x = head.apply(g, &rows, eps);
    let h = g.rms_norm("draft_norm", &x, Some(&output_norm), eps, None);
    let logits = output.apply(g, "logits", &h);
    let method = DraftMethod::Chain { shift: 0, standing: false };
    Ok(Draft { method, ..chain(&layer_out(target.sizes.layers), graph.finish(&logits)?) })
}

/// The value of the trunk that holds the streams behind its first `layers` layers.
fn layer_out(layers: usize) -> String {
    format!("{LAYER_OUT}.{}", layers.saturating_sub(1))
}
