//! One step: a ragged batch of rows over several sequences.

/// Pages of a sequence in one group, by `token index / page_tokens`.
pub type PageTable = Vec<u32>;

/// Entry of a table whose page is not there: given back because no later token needs it.
pub const NO_PAGE: u32 = u32::MAX;

/// No recurrent slot: the state before the first token.
pub const NO_SLOT: u32 = u32::MAX;

/// A run of consecutive tokens of one sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceStep {
    /// Tokens of it in this step, at least 1; or 0 in a sequence that only takes in rows that were tentative.
    pub rows: usize,
    /// Index in the sequence of the first of them: the tokens before it are in the state already.
    pub start: usize,
    /// Per state group, pages that cover all tokens up to `start + rows` that are still needed. Groups that the step's graph
    /// neither declares nor sees by an alias may have an empty table.
    pub tables: Vec<PageTable>,
    /// Ids of the tokens before `start`, as many as [`crate::Program::history`] asks for, or all there are; oldest first.
    pub history: Vec<u32>,
    /// Recurrent state, if the step's graph has any.
    pub recurrent: Option<RecurrentStep>,
}

/// How a step advances the recurrent state of a sequence.
///
/// 1. The state in slot `from` stands after some number of tokens and keeps the inputs of the tentative rows of the step
///    that wrote it. The first `accepted` of these are taken in; now it stands after exactly `start` tokens. The others are
///    forgotten.
/// 2. All rows of this step are computed from there, in order. All but the last `tentative` are taken in for good.
/// 3. Slot `to` gets the result: the state after `start + rows - tentative` tokens, and the inputs of the tentative rows.
///
/// `from` may be `to`; then the slot is advanced in place, and lost if the step is. Otherwise `from` is only read, and may
/// be read by several sequences at once: so a published state is used without a copy, and a step that fails costs
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecurrentStep {
    /// Slot that is read; [`NO_SLOT`] if `start` is 0.
    pub from: u32,
    /// Slot that is written, by no other sequence of the step.
    pub to: u32,
    /// Tentative rows of `from` that became tokens of the sequence.
    pub accepted: usize,
    /// Rows at the end of this step that may yet be rejected: drafted tokens. At most `rows`.
    pub tentative: usize,
}

/// The first `tokens` tokens of a page, to be copied to another before the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// State group.
    pub group: usize,
    /// Page to read.
    pub from: u32,
    /// Page to write.
    pub to: u32,
    /// Tokens, at most the page's.
    pub tokens: usize,
}

/// What a program computes at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Which of the program's graphs is run.
    pub graph: usize,
    /// Token ids, sequence after sequence.
    pub tokens: Vec<u32>,
    /// The sequences; their `rows` add up to `tokens`.
    pub sequences: Vec<SequenceStep>,
    /// Rows whose logits are wanted, rising.
    pub logit_rows: Vec<u32>,
    /// Copies to be made first.
    pub copies: Vec<PageCopy>,
    /// The graph's hidden inputs, by index: one row per token, one after another.
    pub hidden: Vec<Vec<f32>>,
    /// Whether the graph's taps are wanted, for all rows.
    pub taps: bool,
}

fn gib(count: usize, bytes: usize) -> f64 {
    count as f64 * bytes as f64 / (1u64 << 30) as f64
}

/// Why a step was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The step does not fit the program.
    #[error("step refused: {0}")]
    Invalid(String),
    /// The program broke down while it computed. Its state is lost; compile the graph anew.
    #[error("the program failed and cannot go on: {0}")]
    Failed(String),
    /// An op from outside could not compute its rows. What the step wrote must not be used; the program goes on.
    #[error("an op of a plugin failed: {0}")]
    Op(String),
    /// The pool cannot grow.
    #[error(
        "KV cache: the system gives no {:.2} GiB of memory (state group {group}: {pages} pages of {page_bytes} bytes)",
        gib(*.pages, *.page_bytes)
    )]
    Memory {
        /// The group.
        group: usize,
        /// Pages asked for.
        pages: usize,
        /// Their size.
        page_bytes: usize,
    },
    /// There is no memory for recurrent state.
    #[error(
        "recurrent state: the system gives no {:.2} GiB of memory ({slots} slots of {slot_bytes} bytes)",
        gib(*.slots, *.slot_bytes)
    )]
    SlotMemory {
        /// Slots asked for.
        slots: usize,
        /// Their size.
        slot_bytes: usize,
    },
}
