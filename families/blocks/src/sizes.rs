//! Sizes that every text model has, and which of a checkpoint's blocks are layers of the trunk.

use bantam_family_api::{Checkpoint, FamilyError, Fields};
use serde::Serialize;

use super::{
    config::extent,
    listed_tokens,
    numbers::{EPSILON, number, number_opt},
};

/// Most blocks that are accepted from metadata: far above any model.
const MAX_BLOCKS: usize = 1 << 12;

const TABLE: &str = "token_embd.weight";

/// Sizes of a model, whatever its layers are.
#[derive(Clone, Debug, Serialize)]
pub struct ModelSizes {
    /// Layers of the trunk.
    pub layers: usize,
    /// The block behind them that drafts tokens, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_block: Option<usize>,
    /// Entries of an array that lists a value per block.
    #[serde(skip)]
    pub blocks: usize,
    /// Entries of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Longest sequence of the training.
    pub context_length: usize,
    /// Added under the root of every RMS norm.
    pub norm_eps: f32,
}

impl ModelSizes {
    /// Shape of the embedding table.
    pub fn table(&self) -> [usize; 2] {
        [self.vocab, self.hidden]
    }

    /// Reads the sizes and checks them against the embedding table.
    ///
    /// # Errors
    /// The key or tensor that does not fit.
    pub fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        Self::with_vocabulary(checkpoint, |hidden| vocabulary(checkpoint, hidden))
    }

    /// As [`ModelSizes::read`], for a draft that reads and proposes the tokens of `target` by its tables.
    ///
    /// # Errors
    /// The key that does not fit.
    pub fn of_draft(checkpoint: &Checkpoint, target: &ModelSizes) -> Result<Self, FamilyError> {
        Self::with_vocabulary(checkpoint, |hidden| match hidden {
            hidden if hidden == target.hidden => Ok(target.vocab),
            hidden => {
                let expected = format!("{}, as the model that it drafts for", target.hidden);
                Err(checkpoint.fields().wrong("embedding_length", &expected, &hidden.to_string()))
            }
        })
    }

    fn with_vocabulary(
        checkpoint: &Checkpoint,
        vocabulary: impl FnOnce(usize) -> Result<usize, FamilyError>,
    ) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let blocks = block_count(&fields)?;
        let (layers, draft_block) = trunk(checkpoint, blocks)?;
        let hidden = extent(&fields, "embedding_length")?;
        Ok(ModelSizes {
            layers,
            draft_block,
            blocks,
            hidden,
            vocab: vocabulary(hidden)?,
            context_length: extent(&fields, "context_length")?,
            norm_eps: norm_eps(&fields)?,
        })
    }

    /// The block that drafts, in a file that is nothing without it.
    ///
    /// # Errors
    /// If there is none.
    pub fn required_draft_block(&self) -> Result<usize, FamilyError> {
        self.draft_block.ok_or_else(|| FamilyError::Tensor {
            tensor: format!("blk.{}.nextn.eh_proj.weight", self.blocks.saturating_sub(1)),
            expected: "a block that drafts".into(),
            found: "no tensor of this name".into(),
        })
    }
}

/// Checks that a draft reads and proposes the tokens of its target, and rows as wide: `[vocabulary, width]` of both.
///
/// # Errors
/// Both shapes of the embedding table.
pub fn draft_fits(draft: &Checkpoint, found: [usize; 2], target: [usize; 2]) -> Result<(), FamilyError> {
    if found == target {
        return Ok(());
    }
    let expected = format!("shape {} as in the file of the model that it drafts for", draft.shown(&target));
    Err(FamilyError::Tensor { tensor: TABLE.into(), expected, found: draft.shown(&found) })
}

/// Blocks, few enough to list them.
fn block_count(fields: &Fields<'_>) -> Result<usize, FamilyError> {
    const KEY: &str = "block_count";
    match fields.size(KEY)? {
        blocks if blocks > MAX_BLOCKS => Err(fields.wrong(KEY, &format!("at most {MAX_BLOCKS}"), &blocks.to_string())),
        blocks => Ok(blocks),
    }
}

const NEXTN: &str = "nextn_predict_layers";

/// The layers of the trunk and the block that drafts.
///
/// Of the last `nextn_predict_layers` blocks those with `nextn` tensors draft. Files whose draft was left out keep the key:
/// blocks without any tensor are not there, and all others are layers.
fn trunk(checkpoint: &Checkpoint, blocks: usize) -> Result<(usize, Option<usize>), FamilyError> {
    let fields = checkpoint.fields();
    let nextn = fields.usize_opt(NEXTN)?.unwrap_or(0);
    let Some(first) = blocks.checked_sub(nextn).filter(|&first| first > 0) else {
        return Err(fields.wrong(NEXTN, &format!("fewer than the {blocks} blocks"), &nextn.to_string()));
    };
    let drafts = |block: &usize| has_any(checkpoint, &format!("blk.{block}.nextn."));
    let absent = |block: &usize| !has_any(checkpoint, &format!("blk.{block}."));
    let layers = (first..blocks).find(|block| drafts(block) || absent(block)).unwrap_or(blocks);
    all_of_the_trunk(checkpoint, layers)?;
    let mut draft_blocks = (layers..blocks).filter(drafts);
    match (draft_blocks.next(), draft_blocks.next()) {
        (_, Some(second)) => {
            Err(fields.wrong(NEXTN, "one block that drafts", &format!("`blk.{second}.nextn.*` beside another one")))
        }
        (draft, None) => Ok((layers, draft)),
    }
}

/// Checks that none of the first `layers` blocks drafts: run as one of the trunk, it would spoil what the others make.
///
/// # Errors
/// The key that says how many do.
pub(super) fn all_of_the_trunk(checkpoint: &Checkpoint, layers: usize) -> Result<(), FamilyError> {
    let drafts = |block: &usize| has_any(checkpoint, &format!("blk.{block}.nextn."));
    let Some(block) = (0..layers).find(drafts) else { return Ok(()) };
    let fields = checkpoint.fields();
    let found = fields.usize_opt(NEXTN)?.map_or("no such key".into(), |n| n.to_string());
    Err(fields.wrong(NEXTN, &format!("the number of blocks that draft: there is `blk.{block}.nextn.*`"), &found))
}

fn has_any(checkpoint: &Checkpoint, prefix: &str) -> bool {
    checkpoint.tensors.range(prefix.to_owned()..).next().is_some_and(|(name, _)| name.starts_with(prefix))
}

/// Rows of the embedding table, which has one for every token of the tokenizer and sometimes padding.
fn vocabulary(checkpoint: &Checkpoint, hidden: usize) -> Result<usize, FamilyError> {
    let wrong = |expected: String, found: &[usize]| FamilyError::Tensor {
        tensor: TABLE.into(),
        expected,
        found: format!("shape {}", checkpoint.shown(found)),
    };
    match checkpoint.shape(TABLE)? {
        shape @ &[rows, cols] if cols == hidden => match listed_tokens(checkpoint) {
            Some(tokens) if tokens > rows as u64 => {
                Err(wrong(format!("a row for each of the {tokens} entries of `tokenizer.ggml.tokens`"), shape))
            }
            _ => Ok(rows),
        },
        shape => {
            let expected = ["vocabulary".to_owned(), hidden.to_string()];
            Err(wrong(format!("shape {}", checkpoint.shown(&expected)), shape))
        }
    }
}

/// `attention.layer_norm_rms_epsilon`, which some writers call `attention.layer_norm_epsilon`.
fn norm_eps(fields: &Fields<'_>) -> Result<f32, FamilyError> {
    const RMS: &str = "attention.layer_norm_rms_epsilon";
    const OTHER: &str = "attention.layer_norm_epsilon";
    match (number_opt(fields, RMS, EPSILON)?, number_opt(fields, OTHER, EPSILON)?) {
        (None, Some(eps)) => Ok(eps),
        _ => number(fields, RMS, EPSILON),
    }
}
