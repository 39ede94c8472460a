//! Drafts of a whole block at once (DSpark, on DFlash): layers like the trunk's look back on keys made of the trunk's
//! streams, and at all rows of the block; then a bias by the token before makes the proposals depend on each other.

use bantam_family_api::{Checkpoint, Draft, DraftMethod, FamilyError, Fields};
use bantam_family_blocks::{ModelSizes, Origin, Positions, Projection, Tensors, extent, token_id};
use bantam_graph::{Act, Alias, Extension, Graph, GraphBuilder, InputSource, State};

use super::{Attending, Config, Head, Layer, attention::Key, layer_out};

/// Most rows of a block: far above any draft.
const MAX_ROWS: usize = 256;

/// State of the trunk, per layer of the draft: keys that the draft looks back on.
const KEYS: &str = "draft_k";

const MARKOV_IN: &str = "markov_w1";

/// What the draft's file says, beside what a model's does.
struct BlockConfig {
    size: usize,
    mask_token: u32,
    /// Layers of the trunk whose streams are read, counted from 1.
    target_layers: Vec<usize>,
}

impl BlockConfig {
    fn read(draft: &Checkpoint, target: &ModelSizes) -> Result<Self, FamilyError> {
        const SIZE: &str = "block_size";
        const ANCHORED: &str = "sample_from_anchor";
        let fields = draft.fields();
        if fields.bool_opt(ANCHORED)? == Some(false) {
            return Err(fields.wrong(ANCHORED, "true: the first row proposes the token after the known one", "false"));
        }
        let size = extent(&fields, SIZE)?;
        if size > MAX_ROWS {
            return Err(fields.wrong(SIZE, &format!("at most {MAX_ROWS}"), &size.to_string()));
        }
        let mask_token = token_id(&draft.tokenizer_fields(), "mask_token_id", target.vocab)?;
        Ok(BlockConfig { size, mask_token, target_layers: target_layers(&fields, target.layers)? })
    }
}

fn target_layers(fields: &Fields<'_>, layers: usize) -> Result<Vec<usize>, FamilyError> {
    const KEY: &str = "target_layers";
    let expected = format!("layers from 1 to {layers}, once each");
    let wrong = |found: &str| fields.wrong(KEY, &expected, found);
    let given = fields.integers_opt(KEY)?.ok_or_else(|| wrong("no such key"))?;
    let found: Vec<usize> = given.iter().map(|&layer| usize::try_from(layer).unwrap_or(usize::MAX)).collect();
    let unfit = |(i, layer): (usize, &usize)| !(1..=layers).contains(layer) || found.iter().take(i).any(|l| l == layer);
    if found.is_empty() || found.iter().enumerate().any(unfit) {
        return Err(wrong(&format!("{given:?}")));
    }
    Ok(found)
}

/// The draft as the trunk's extension, the graph of a block, and the graph of the bias.
pub(super) fn describe(draft: &Checkpoint, target: &Checkpoint, trunk: &Config) -> Result<Draft, FamilyError> {
    let c = Config::read(draft, ModelSizes::of_draft(draft, &trunk.sizes)?)?;
    let block = BlockConfig::read(draft, &trunk.sizes)?;
    look_back_on_tokens_only(&draft.fields(), &c)?;
    let refine = if draft.has(&format!("{MARKOV_IN}.weight")) { Some(refinement(draft, &c)?) } else { None };
    Ok(Draft {
        trunk: injection(draft, &c, &block, trunk.streams.count)?,
        graph: block_graph(draft, target, &c, refine.is_some())?,
        method: DraftMethod::Block { size: block.size, mask_token: block.mask_token, ahead: 1, refine },
    })
}

fn look_back_on_tokens_only(fields: &Fields<'_>, c: &Config) -> Result<(), FamilyError> {
    match (0..c.sizes.layers).find_map(|i| c.attention.block(i)) {
        Some(ratio) => Err(fields.wrong("attention.compress_ratios", "0 for every layer", &ratio.to_string())),
        None => Ok(()),
    }
}

/// One row more than the draft's window: it looks back from the row behind the last of the trunk.
fn keys(c: &Config, name: &str) -> State {
    c.attention.keys(name, c.attention.window.saturating_add(1))
}

/// What the trunk does for the draft: the keys of every token, one per layer of the draft.
fn injection(draft: &Checkpoint, c: &Config, block: &BlockConfig, streams: usize) -> Result<Extension, FamilyError> {
    let ModelSizes { layers, hidden, norm_eps, .. } = c.sizes;
    let mut graph = GraphBuilder::new("");
    let t = &mut Tensors::of(Origin::DraftFile, draft, &mut graph);
    let read = block.target_layers.len().saturating_mul(hidden);
    let projection = t.matrix("fc", hidden, read)?;
    let norm = t.plain("enc.output_norm", &[hidden])?;
    let made = (0..layers).map(|i| Key::declare(&mut t.layer(i), &c.attention, hidden));
    let made = made.collect::<Result<Vec<Key>, _>>()?;

    let g = &mut graph;
    let positions = Positions::of_tokens("positions");
    let how = Attending { config: &c.attention, positions: &positions, norm_eps };
    let means = block.target_layers.iter().map(|&layers| {
        let sum = g.stream_collapse(&format!("draft_sum_{layers}"), &layer_out(layers), streams, None);
        g.scale(&format!("draft_mean_{layers}"), &sum, 1.0 / streams as f32)
    });
    let means: Vec<String> = means.collect();
    let features = g.concat("draft_features", &means.iter().map(String::as_str).collect::<Vec<_>>(), 1);
    let x = projection.apply(g, "draft_proj", &features);
    let x = g.rms_norm("draft_norm", &x, Some(&norm), norm_eps, None);
    for (i, key) in made.iter().enumerate() {
        g.layer(Some(i));
        let k = key.apply(g, KEYS, &x, how);
        let state = g.state(keys(c, KEYS));
        g.store("draft_store", &k, &state);
    }
    Ok(graph.extension())
}

/// The block: from its tokens to logits. For a refinement it taps what that reads.
fn block_graph(draft: &Checkpoint, target: &Checkpoint, c: &Config, refined: bool) -> Result<Graph, FamilyError> {
    let ModelSizes { layers, hidden, vocab, norm_eps: eps, .. } = c.sizes;
    let mut graph = GraphBuilder::new(&draft.architecture);
    let mut own = Tensors::of(Origin::DraftFile, draft, &mut graph);
    let layers = (0..layers).map(|i| Layer::declare(&mut own.layer(i), c, i)).collect::<Result<Vec<_>, _>>()?;
    let head = Head::declare(&mut own, c.streams, hidden)?;
    let output_norm = own.plain("output_norm", &[hidden])?;
    let mut trunk = Tensors::new(target, &mut graph);
    let embed = trunk.plain("token_embd", &[vocab, hidden])?;
    let output = trunk.matrix("output", vocab, hidden)?;

    let g = &mut graph;
    let tokens = g.input("tokens", InputSource::TokenIds);
    let positions = Positions::declare(g, std::iter::empty());
    let embedded = g.embed("embed", &tokens, &embed, 1.0);
    let mut streams = c.streams.spread(g, &embedded);
    for (i, layer) in layers.iter().enumerate() {
        g.layer(Some(i));
        let alias = Alias { graph: target.architecture.clone(), state: format!("{KEYS}.{i}") };
        let before = g.state(State { alias: Some(alias), ..keys(c, "k") });
        streams = layer.apply(g, &streams, &tokens, c.attending(&positions), Some(before));
    }
    g.layer(None);
    let x = head.apply(g, &streams, eps);
    let h = g.rms_norm("output_norm", &x, Some(&output_norm), eps, None);
    let logits = output.apply(g, "token_logits", &h);
    if refined {
        g.tap(&x);
        g.tap(&logits);
    }
    let logits = g.logit_rows("logits", &logits);
    Ok(graph.finish(&logits)?)
}

/// The bias by the token before a row's proposal, and the probability that the proposal holds.
fn refinement(draft: &Checkpoint, c: &Config) -> Result<Graph, FamilyError> {
    const CONFIDENCE: &str = "conf_proj";
    let ModelSizes { hidden, vocab, .. } = c.sizes;
    let mut graph = GraphBuilder::new(&format!("{}-refinement", draft.architecture));
    let t = &mut Tensors::of(Origin::DraftFile, draft, &mut graph);
    let rank = t.cols(MARKOV_IN).unwrap_or(1);
    let table = t.plain(MARKOV_IN, &[vocab, rank])?;
    let matrix: Projection = t.matrix("markov_w2", vocab, rank)?;
    let expected = draft.fields().bool_opt("has_confidence_head")?.unwrap_or_else(|| t.has(CONFIDENCE));
    let confidence = expected.then(|| t.matrix(CONFIDENCE, 1, hidden.saturating_add(rank))).transpose()?;

    let g = &mut graph;
    let tokens = g.input("tokens", InputSource::TokenIds);
    let row = g.input("hidden", InputSource::Hidden { index: 0, width: hidden });
    let logits = g.input("unbiased_logits", InputSource::Hidden { index: 1, width: vocab });
    let before = g.embed("embed", &tokens, &table, 1.0);
    let bias = matrix.apply(g, "bias", &before);
    let logits = g.add("biased_logits", &logits, &bias);
    if let Some(confidence) = confidence {
        let both = g.concat("hidden_before", &[&row, &before], 1);
        let p = confidence.apply(g, "confidence_proj", &both);
        let p = g.activate("confidence", &p, Act::Sigmoid);
        g.tap(&p);
    }
    let logits = g.logit_rows("logits", &logits);
    Ok(graph.finish(&logits)?)
}
