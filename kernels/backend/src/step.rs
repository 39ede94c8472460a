//! One step: a ragged batch of rows over several sequences.

/// Pages of a sequence in one group, by `token index / page_tokens`.
pub type PageTable = Vec<u32>;

/// Entry of a table whose page is not there: given back because no later token needs it.
pub const NO_PAGE: u32 = u32::MAX;

/// A run of consecutive tokens of one sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceStep {
    /// Tokens of it in this step, at least 1.
    pub rows: usize,
    /// Index in the sequence of the first of them: the tokens before it are in the state already.
    pub start: usize,
    /// Per state group, pages that cover all tokens up to `start + rows` that are still needed.
    pub tables: Vec<PageTable>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Token ids, sequence after sequence.
    pub tokens: Vec<u32>,
    /// The sequences; their `rows` add up to `tokens`.
    pub sequences: Vec<SequenceStep>,
    /// Rows whose logits are wanted, rising.
    pub logit_rows: Vec<u32>,
    /// Copies to be made first.
    pub copies: Vec<PageCopy>,
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
    /// The pool cannot grow.
    #[error("state group {group}: no memory for {pages} pages of {page_bytes} bytes; lower --context or --parallel")]
    Memory {
        /// The group.
        group: usize,
        /// Pages asked for.
        pages: usize,
        /// Their size.
        page_bytes: usize,
    },
}
