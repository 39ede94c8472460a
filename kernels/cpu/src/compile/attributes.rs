//! What ops are told beside their operands. Weights are indexes into the tables of [`super::weights::Weights`].

use bantam_graph::{Act, ExpertGroups, GluLimit, NormKind, Pairing, Scoring};

use crate::{
    attention::sight::{CompressedSight, Sight},
    pool::StateSlot,
    recurrent::ssm::ScanShape,
};

/// Normalisation of runs of entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RunNorm {
    /// The formula.
    pub(crate) kind: NormKind,
    /// Index of the vector of factors, as long as a run or as a row.
    pub(crate) weight: Option<usize>,
    /// Added under the root.
    pub(crate) eps: f32,
    /// Entries that are normalised together.
    pub(crate) group: usize,
}

/// How the factors of a gated product are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gating {
    /// The function on the gate.
    pub(crate) act: Act,
    /// Bounds on both factors.
    pub(crate) limit: Option<GluLimit>,
}

/// How heads are rotated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turning {
    /// Entries of a head.
    pub(crate) head_dim: usize,
    /// Entries of the head before those that turn.
    pub(crate) offset: usize,
    /// Which entries turn together.
    pub(crate) pairing: Pairing,
    /// Whether they turn back.
    pub(crate) inverse: bool,
}

/// How gates of residual streams are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StreamGating {
    /// Index of the vector of three factors.
    pub(crate) scale: usize,
    /// Index of the vector of summands.
    pub(crate) base: usize,
    /// Streams.
    pub(crate) streams: usize,
    /// Normalisations of the columns.
    pub(crate) iterations: u32,
    /// Keeps shares and sums from 0.
    pub(crate) eps: f32,
}

/// A part of each of several equal runs of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cutting {
    /// Runs.
    pub(crate) groups: usize,
    /// First entry of a run.
    pub(crate) start: usize,
    /// Entries of a run.
    pub(crate) len: usize,
}

/// Attention of queries over the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attend {
    /// Where keys lie.
    pub(crate) k: StateSlot,
    /// Where values lie; none: they are the first entries of the keys.
    pub(crate) v: Option<StateSlot>,
    /// Entries of a value.
    pub(crate) value_dim: usize,
    /// Where further keys lie, which are their own values.
    pub(crate) compressed: Option<StateSlot>,
    /// Query heads.
    pub(crate) heads: usize,
    /// Factor on the scores.
    pub(crate) scale: f32,
    /// Index of the vector of one more score per head.
    pub(crate) sinks: Option<usize>,
    /// What a query sees.
    pub(crate) sight: Sight,
}

/// Choice of the rows of a state that score highest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Best {
    /// Where keys lie, one head of them.
    pub(crate) k: StateSlot,
    /// Query heads.
    pub(crate) heads: usize,
    /// Factor on the scores.
    pub(crate) scale: f32,
    /// Rows chosen at most.
    pub(crate) count: usize,
    /// What a query sees of the rows.
    pub(crate) sight: CompressedSight,
}

impl Attend {
    /// Query heads that share a head of keys.
    pub(crate) fn group(&self) -> usize {
        self.heads / self.k.heads
    }

    /// Entries of a key as it is scored.
    pub(crate) fn key_width(&self) -> usize {
        self.k.width()
    }

    /// Entries of a value as it is summed.
    pub(crate) fn sum_width(&self) -> usize {
        match &self.v {
            Some(v) => v.width(),
            None if self.k.is_rotated() => self.k.width(),
            None => self.value_dim,
        }
    }

    /// Whether values are summed as rotated.
    pub(crate) fn sums_rotated(&self) -> bool {
        self.v.as_ref().unwrap_or(&self.k).is_rotated()
    }
}

/// Routing of rows to experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choose {
    /// Experts per row.
    pub(crate) used: usize,
    /// From router outputs to scores.
    pub(crate) scoring: Scoring,
    /// Index of the vector that is added to the scores for the choice.
    pub(crate) bias: Option<usize>,
    /// Experts outside of the best groups are not chosen.
    pub(crate) groups: Option<ExpertGroups>,
    /// Whether the weights are divided by their sum.
    pub(crate) normalize: bool,
    /// Factor on the weights.
    pub(crate) scale: f32,
}

/// A convolution over the last few tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Convolve {
    /// Index of the vector of factors, `[taps, width]`.
    pub(crate) weight: usize,
    /// Index of the vector of summands.
    pub(crate) bias: Option<usize>,
    /// Tokens between two taps.
    pub(crate) dilation: usize,
    /// Index of the recurrent state.
    pub(crate) state: usize,
}

/// A state-space scan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScanOf {
    /// Extents.
    pub(crate) shape: ScanShape,
    /// Index of the vector of decays.
    pub(crate) a: usize,
    /// Index of the vector of direct factors.
    pub(crate) d: Option<usize>,
    /// Index of the recurrent state.
    pub(crate) state: usize,
}

/// Rows of tokens, joined to one for each block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PoolBlocks {
    /// Where the rows lie: the operand, and behind it the gate if there is one.
    pub(crate) slot: StateSlot,
    /// Tokens of a block.
    pub(crate) stride: usize,
    /// Whether there is a gate.
    pub(crate) gated: bool,
    /// Whether a block takes in the one before it.
    pub(crate) overlap: bool,
}
