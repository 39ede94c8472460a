//! What a backend is: it compiles a graph into a [`Program`], and the program runs [`Step`]s.
//!
//! A program owns the memory of the sequences' state, in pools of pages, one pool per [`StateGroup`]. It does not know
//! which sequence has which page: each step brings the page tables along. So sharing a prefix, forking and rolling back
//! are matters of whoever writes the tables.
//!
//! Recurrent state is no rows and has no pages: it lies in slots, one for each sequence or published point of one
//! ([`RecurrentStep`]).
//!
//! A model of several graphs (a trunk, a draft block) is one program: its graphs share weights, and the state that one
//! sees of another. A step runs one of them. Rows go from a tap of one graph to a hidden input of another by way of the
//! caller.
//!
//! Invariant: a row's result depends on that row's token and the state it reads, and on nothing else in the step.

mod books;
mod check;
mod custom;
mod group;
mod roles;
mod rope;
mod state_roles;
mod step;
mod weights;

pub use books::{PageBook, SlotBook};
pub use check::{Demands, Limits, MostRows, check};
pub use custom::{CustomOp, CustomOps, CustomRows};
pub use group::{RecurrentGroup, StateGroup, state_groups};
pub use roles::{Role, Wanted, WeightUse, wanted, weight_uses};
pub use rope::RopeTable;
pub use state_roles::{Follows, RowForm, StateRoles, aliases};
pub use step::{NO_PAGE, NO_SLOT, PageCopy, PageTable, RecurrentStep, SequenceStep, Step, StepError};
pub use weights::{SharedBytes, WeightData, WeightError, WeightSource};

use std::{ops::Range, sync::Arc};

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
    /// 8-bit integers, with a half float as scale for every [`KV_BLOCK`] entries of a head.
    Q8_0,
    /// The rotated head in codes of 4 bits, with one half float as its scale (TurboQuant, arXiv 2504.19874).
    Turbo4,
    /// As [`KvType::Turbo4`], in codes of 3 bits.
    Turbo3,
}

/// Entries of a head that share a scale.
pub const KV_BLOCK: usize = 32;

/// Fewest entries of a head that is rotated.
pub const TURBO_DIM: usize = 16;

impl KvType {
    /// All cache types, for help texts and errors.
    pub const ALL: &[KvType] = &[KvType::F32, KvType::F16, KvType::Bf16, KvType::Q8_0, KvType::Turbo4, KvType::Turbo3];

    /// The name users write.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Bf16 => "bf16",
            KvType::Q8_0 => "q8_0",
            KvType::Turbo4 => "turbo4",
            KvType::Turbo3 => "turbo3",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|t| t.name() == name)
    }

    /// Bits of a code, where heads are rotated before they are stored.
    pub fn code_bits(self) -> Option<usize> {
        match self {
            KvType::Turbo4 => Some(4),
            KvType::Turbo3 => Some(3),
            KvType::F32 | KvType::F16 | KvType::Bf16 | KvType::Q8_0 => None,
        }
    }

    /// Entries that `dim` entries of a head become: rotated ones are filled up with zeros to a power of two, at least
    /// [`TURBO_DIM`]; saturates.
    pub fn width(self, dim: usize) -> usize {
        match self.code_bits() {
            Some(_) => dim.max(TURBO_DIM).checked_next_power_of_two().unwrap_or(usize::MAX),
            None => dim,
        }
    }

    /// Bytes that `dim` entries of a head take; saturates.
    pub fn head_bytes(self, dim: usize) -> usize {
        match self {
            KvType::F32 => dim.saturating_mul(4),
            KvType::F16 | KvType::Bf16 => dim.saturating_mul(2),
            KvType::Q8_0 => dim.saturating_add(dim.div_ceil(KV_BLOCK).saturating_mul(2)),
            KvType::Turbo4 => (self.width(dim) / 8).saturating_mul(4).saturating_add(2),
            KvType::Turbo3 => (self.width(dim) / 8).saturating_mul(3).saturating_add(2),
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
    /// Most tentative rows of a sequence in a step; recurrent slots have room for their inputs.
    pub max_tentative: usize,
    /// Format of key states that follow the cache type.
    pub k_type: KvType,
    /// Format of value states that follow the cache type.
    pub v_type: KvType,
    /// Whether weights may be copied into a form that is faster to compute with. Otherwise those that a file has as they
    /// are needed stay in its mapping, which the system fills and empties as it sees fit. Results are the same.
    pub repack: bool,
    /// Makes the ops that the graph's language does not have; none: there are none.
    pub ops: Option<Arc<dyn CustomOps>>,
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
    /// The backend cannot compile so many graphs together.
    #[error("backend {backend} cannot run a model of {graphs} graphs: leave out the draft")]
    Graphs {
        /// The backend.
        backend: &'static str,
        /// Graphs of the model.
        graphs: usize,
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

/// The memory of a device that a backend computes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The device's number.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Bytes that could be taken now.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// Makes programs out of graphs.
pub trait Backend: Send + Sync {
    /// Short name (`cpu`).
    fn name(&self) -> &'static str;

    /// The device with a memory of its own that weights and state lie in; `None`: they lie in the host's.
    ///
    /// # Errors
    /// If the device does not answer.
    fn device(&self) -> Result<Option<DeviceMemory>, StepError> {
        Ok(None)
    }

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

    /// Compiles the graphs of one model, which [`bantam_graph::link()`] accepts, into one program; the first is the trunk.
    /// A backend that runs one graph at a time need not do better than this.
    ///
    /// # Errors
    /// As [`Backend::compile`]; more graphs than this backend takes.
    fn compile_model(
        &self,
        graphs: &[&Graph],
        weights: &dyn WeightSource,
        options: &CompileOptions,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Program>, CompileError> {
        match graphs {
            [graph] => self.compile(graph, weights, options, progress),
            _ => Err(CompileError::Graphs { backend: self.name(), graphs: graphs.len() }),
        }
    }
}

/// Takes every intermediate value of a step: name, entries of a row, and the rows one after another.
pub type Trace<'a> = &'a mut dyn FnMut(&str, usize, &[f32]);

/// A compiled model with the memory of its sequences' state. Runs one step at a time.
///
/// Numbers of pages and slots are the caller's to give out. A step reads and writes only those it names.
pub trait Program: Send {
    /// The state groups of all its graphs, in the order of the tables in [`SequenceStep::tables`].
    fn groups(&self) -> &[StateGroup];

    /// Which of the groups a graph declares. Sequences of two graphs need not be of equal length: each graph's groups are
    /// shared, rolled back and saved on their own.
    fn graph_groups(&self, graph: usize) -> Range<usize> {
        if graph == 0 { 0..self.groups().len() } else { 0..0 }
    }

    /// A graph's recurrent state; `None` if it has none.
    fn recurrent(&self, _graph: usize) -> Option<&RecurrentGroup> {
        None
    }

    /// How many ids of tokens before its rows a sequence's step must name ([`SequenceStep::history`]).
    fn history(&self, _graph: usize) -> usize {
        0
    }

    /// How many experts each of the trunk's mixtures has, in the order in which rows pass them.
    fn mixtures(&self) -> &[usize] {
        &[]
    }

    /// Takes out how many rows each expert of the trunk has computed since the last call: adds them to `rows`, which has
    /// a place for each expert of the first mixture, then of the next.
    fn take_expert_rows(&mut self, _rows: &mut [u64]) {}

    /// Entries of the trunk's logit row.
    fn vocab(&self) -> usize;

    /// Bytes of weights as held in memory.
    fn weight_bytes(&self) -> u64;

    /// Bytes of weights that one decoded token reads.
    fn weight_bytes_per_token(&self) -> u64;

    /// Makes page ids `0..pages` of a group valid. Never shrinks; memory is taken from the system, or the device, as pages are
    /// written: a step that writes the first page for which there is none left fails with [`StepError::Memory`].
    ///
    /// # Errors
    /// If there is no address space for it.
    fn reserve_pages(&mut self, group: usize, pages: usize) -> Result<(), StepError>;

    /// Gives the memory of pages back to the system, as far as it can be: what they hold is lost. They stay valid and may be
    /// written again.
    fn release_pages(&mut self, _group: usize, _pages: &[u32]) {}

    /// Makes slot ids `0..slots` of a graph's recurrent state valid. Never shrinks.
    ///
    /// # Errors
    /// If the graph has no recurrent state, or the system no memory for it.
    fn reserve_slots(&mut self, graph: usize, _slots: usize) -> Result<(), StepError> {
        Err(no_recurrent(graph))
    }

    /// Runs one step: copies pages, writes the step's state, computes the wanted logits and taps.
    ///
    /// # Errors
    /// A step that does not fit the program (too many rows, a page or slot that does not exist, hidden rows that are not
    /// given); nothing is computed then.
    fn run(&mut self, step: &Step) -> Result<(), StepError>;

    /// As [`Program::run`], showing every intermediate value.
    ///
    /// # Errors
    /// As [`Program::run`].
    fn run_traced(&mut self, step: &Step, trace: Trace<'_>) -> Result<(), StepError>;

    /// Logits of the last step: `[logit rows, vocab]`.
    fn logits(&self) -> &[f32];

    /// A tap of the last step's graph: `[rows, width]`. Empty if the step did not ask for taps, or there is none of this
    /// index.
    fn tap(&self, _index: usize) -> &[f32] {
        &[]
    }

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

    /// Appends the state in a slot, as it stands after the tokens that were taken in for good, in a form that
    /// [`Program::load_slot`] of a program compiled from the same graphs reads. Tentative rows are not saved.
    ///
    /// # Errors
    /// If the slot does not exist.
    fn save_slot(&self, graph: usize, _slot: u32, _out: &mut Vec<u8>) -> Result<(), StepError> {
        Err(no_recurrent(graph))
    }

    /// Writes what [`Program::save_slot`] gave into a slot, which then has no tentative rows.
    ///
    /// # Errors
    /// If the slot does not exist or the bytes have another length.
    fn load_slot(&mut self, graph: usize, _slot: u32, _bytes: &[u8]) -> Result<(), StepError> {
        Err(no_recurrent(graph))
    }
}

fn no_recurrent(graph: usize) -> StepError {
    StepError::Invalid(format!("graph {graph} has no recurrent state"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_heads() {
        let of = |dim| KvType::ALL.iter().map(|ty| ty.head_bytes(dim)).collect::<Vec<_>>();
        assert_eq!(of(64), [256, 128, 128, 68, 34, 26]);
        assert_eq!(of(80), [320, 160, 160, 86, 66, 50], "codes are for 128 entries");
        assert_eq!(of(8), [32, 16, 16, 10, 10, 8], "codes are for 16 entries");
        assert!(of(usize::MAX).iter().all(|bytes| *bytes > usize::MAX / 4), "no wrapping around");
    }

    #[test]
    fn names_are_those_of_types() {
        for ty in KvType::ALL {
            assert_eq!(KvType::from_name(ty.name()), Some(*ty));
        }
        assert_eq!(KvType::from_name("turbo5"), None);
    }
}
