//! What a backend is: it compiles a graph into a [`Program`], and the program runs [`Step`]s.
//!
//! A program owns the memory of the sequences' state, in pools of pages, one pool per [`StateGroup`]. It does not know
//! which sequence has which page: each step brings the page tables along. So sharing a prefix, forking and rolling back
//! are matters of whoever writes the tables.
//!
//! Invariant: a row's result depends on that row's token and the state it reads, and on nothing else in the step.

mod group;
mod step;
mod weights;

pub use group::{StateGroup, state_groups};
pub use step::{NO_PAGE, PageCopy, PageTable, SequenceStep, Step, StepError};
pub use weights::{SharedBytes, WeightData, WeightError, WeightSource};

use bantam_graph::Graph;

/// Number format of the state that follows the cache type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// 32-bit floats.
    F32,
    /// IEEE half floats.
    F16,
    /// bfloat16.
    Bf16,
}

impl KvType {
    /// All cache types, for help texts and errors.
    pub const ALL: &[KvType] = &[KvType::F32, KvType::F16, KvType::Bf16];

    /// The name users write.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Bf16 => "bf16",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|t| t.name() == name)
    }

    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        match self {
            KvType::F32 => 4,
            KvType::F16 | KvType::Bf16 => 2,
        }
    }
}

/// Choices that hold for the life of a program.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Most token rows in a step; buffers are planned for it once.
    pub max_rows: usize,
    /// Most logit rows in a step.
    pub max_logit_rows: usize,
    /// Format of key states that follow the cache type.
    pub k_type: KvType,
    /// Format of value states that follow the cache type.
    pub v_type: KvType,
}

/// Why a graph could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The graph does not fit in itself.
    #[error(transparent)]
    Graph(#[from] bantam_graph::GraphError),
    /// A weight cannot be had.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// The backend cannot do what the graph asks.
    #[error("node `{node}`: {why}")]
    Unsupported {
        /// The node's name.
        node: String,
        /// What is missing.
        why: String,
    },
    /// The state of a token cannot be stored.
    #[error("state `{state}`: {why}")]
    State {
        /// The state's name.
        state: String,
        /// What does not fit.
        why: String,
    },
}

/// Told of each weight as it is made ready: `(done, of)` in bytes of the checkpoint.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Makes programs out of graphs.
pub trait Backend: Send + Sync {
    /// Short name (`cpu`).
    fn name(&self) -> &'static str;

    /// Compiles a graph: reads and repacks its weights, plans its buffers.
    ///
    /// # Errors
    /// A graph that does not fit, a weight that cannot be had, an op that this backend lacks.
    fn compile(
        &self,
        graph: &Graph,
        weights: &dyn WeightSource,
        options: &CompileOptions,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Program>, CompileError>;
}

/// Takes every intermediate value of a step: name, entries of a row, and the rows one after another.
pub type Trace<'a> = &'a mut dyn FnMut(&str, usize, &[f32]);

/// A compiled graph with the memory of its sequences' state. Runs one step at a time.
pub trait Program: Send {
    /// The state groups, in the order of the tables in [`SequenceStep::tables`].
    fn groups(&self) -> &[StateGroup];

    /// Entries of a logit row.
    fn vocab(&self) -> usize;

    /// Bytes of weights as held in memory.
    fn weight_bytes(&self) -> u64;

    /// Bytes of weights that one decoded token reads.
    fn weight_bytes_per_token(&self) -> u64;

    /// Makes page ids `0..pages` of a group valid. Never shrinks; memory is taken from the system as pages are written.
    ///
    /// # Errors
    /// If the system has no address space for it.
    fn reserve_pages(&mut self, group: usize, pages: usize) -> Result<(), StepError>;

    /// Runs one step: copies pages, writes the step's state, computes the wanted logits.
    ///
    /// # Errors
    /// A step that does not fit the program (too many rows, a page that does not exist); nothing is computed then.
    fn run(&mut self, step: &Step) -> Result<(), StepError>;

    /// As [`Program::run`], showing every intermediate value.
    ///
    /// # Errors
    /// As [`Program::run`].
    fn run_traced(&mut self, step: &Step, trace: Trace<'_>) -> Result<(), StepError>;

    /// Logits of the last step: `[logit rows, vocab]`.
    fn logits(&self) -> &[f32];

    /// Appends the state of the first `tokens` tokens of a page, in a form that [`Program::load_page`] of a program
    /// compiled from the same graph with the same options reads.
    ///
    /// # Errors
    /// If the page does not exist.
    fn save_page(&self, group: usize, page: u32, tokens: usize, out: &mut Vec<u8>) -> Result<(), StepError>;

    /// Writes what [`Program::save_page`] gave into a page.
    ///
    /// # Errors
    /// If the page does not exist or the bytes have another length.
    fn load_page(&mut self, group: usize, page: u32, tokens: usize, bytes: &[u8]) -> Result<(), StepError>;
}
