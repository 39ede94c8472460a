//! Draft blocks behind the trunk's layers (multi-token prediction, arXiv 2412.19437).
//!
//! Such a block is a layer like the trunk's. What goes into it is a token, and the row that the trunk made of the token
//! before; what comes out proposes the token after, and goes into the block again with that one.

use bantam_family_api::{Checkpoint, Draft, DraftMethod, FamilyError};
use bantam_graph::{Extension, Graph, GraphBuilder, InputSource};

use super::sizes::all_of_the_trunk;
use super::tensors::{Projection, Tensors, output_matrix};

/// The trunk's layers: `block_count` less the draft block, of which `nextn_predict_layers` says whether it is there.
///
/// # Errors
/// More than one draft block, one that is not counted, or nothing but it.
pub fn trunk_layers(checkpoint: &Checkpoint, blocks: usize) -> Result<usize, FamilyError> {
    const KEY: &str = "nextn_predict_layers";
    let fields = checkpoint.fields();
    let layers = match fields.usize_opt(KEY)?.unwrap_or(0) {
        0 => blocks,
        1 if blocks > 1 => blocks - 1,
        n => return Err(fields.wrong(KEY, &format!("0 or 1, below the {blocks} of block_count"), &n.to_string())),
    };
    all_of_the_trunk(checkpoint, layers)?;
    Ok(layers)
}

/// The weights between a draft block's inputs and its layer.
#[derive(Clone, Debug)]
pub struct DraftInput {
    embed: String,
    token_norm: String,
    hidden_norm: String,
    projection: Projection,
    hidden: usize,
    streams: usize,
    /// Entries of the trunk's row that are normed together.
    hidden_group: usize,
}

impl DraftInput {
    /// `nextn.enorm`, `nextn.hnorm` and `nextn.eh_proj`; `nextn.embed_tokens` instead of the trunk's table `embed` where the
    /// checkpoint has it.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(t: &mut Tensors<'_>, embed: &str, sizes: [usize; 2], streams: usize) -> Result<Self, FamilyError> {
        let [_, hidden] = sizes;
        Self::normed(t, embed, sizes, streams, hidden.saturating_mul(streams))
    }

    /// As [`DraftInput::declare`], but each of the trunk's streams is normed for itself.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare_stream_by_stream(
        t: &mut Tensors<'_>,
        embed: &str,
        sizes: [usize; 2],
        streams: usize,
    ) -> Result<Self, FamilyError> {
        let [_, hidden] = sizes;
        Self::normed(t, embed, sizes, streams, hidden)
    }

    fn normed(
        t: &mut Tensors<'_>,
        embed: &str,
        [vocab, hidden]: [usize; 2],
        streams: usize,
        hidden_group: usize,
    ) -> Result<Self, FamilyError> {
        const OWN_TABLE: &str = "nextn.embed_tokens";
        Ok(DraftInput {
            embed: if t.has(OWN_TABLE) { t.plain(OWN_TABLE, &[vocab, hidden])? } else { embed.into() },
            token_norm: t.plain("nextn.enorm", &[hidden])?,
            hidden_norm: t.plain("nextn.hnorm", &[hidden_group])?,
            projection: t.matrix("nextn.eh_proj", hidden, hidden.saturating_mul(2))?,
            hidden,
            streams,
            hidden_group,
        })
    }

    /// The row, or rows side by side, that go into the layer: each is projected from the token's embedding and one of
    /// the trunk's residual streams.
    pub fn apply(&self, g: &mut GraphBuilder, ids: &str, norm_eps: f32) -> String {
        let width = self.hidden.saturating_mul(self.streams);
        let hidden = g.input("hidden", InputSource::Hidden { index: 0, width });
        let token = g.embed("embed", ids, &self.embed, 1.0);
        let token = g.rms_norm("token_norm", &token, Some(&self.token_norm), norm_eps, None);
        let group = Some(self.hidden_group).filter(|group| *group < width);
        let hidden = g.rms_norm("hidden_norm", &hidden, Some(&self.hidden_norm), norm_eps, group);
        if self.streams == 1 {
            let both = g.concat("token_hidden", &[&token, &hidden], 1);
            return self.projection.apply(g, "draft_in", &both);
        }
        let tokens = g.concat("tokens_normed", &vec![token.as_str(); self.streams], 1);
        let both = g.concat("token_hidden", &[&tokens, &hidden], self.streams);
        self.projection.apply_to_runs(g, "draft_in", &both, self.streams)
    }
}

/// The output matrix of a draft block: `nextn.shared_head_head` where the checkpoint has it, else that of the trunk.
///
/// # Errors
/// As [`Tensors::matrix`].
pub fn draft_output(t: &mut Tensors<'_>, block: usize, [vocab, hidden]: [usize; 2]) -> Result<Projection, FamilyError> {
    const OWN: &str = "nextn.shared_head_head";
    let mut own = t.layer(block);
    if own.has(OWN) { own.matrix(OWN, vocab, hidden) } else { output_matrix(t, vocab, hidden) }
}

/// A draft that reads the trunk's value `tap` with the token behind its row, and then what it taps itself.
pub fn chain(tap: &str, graph: Graph) -> Draft {
    let trunk = Extension { taps: vec![tap.into()], ..Extension::default() };
    Draft { trunk, graph, method: DraftMethod::Chain { shift: 1, standing: false } }
}
