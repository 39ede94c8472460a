//! What a graph is lowered to: nodes as coarse as one loop over memory, with operands by index.

use bantam_graph::{Act, InputSource, Rows};

pub(crate) use super::attributes::{
    Attend, Best, Choose, Convolve, Cutting, Gating, PoolBlocks, RunNorm, ScanOf, StreamGating, Turning,
};
use crate::{pool::StateSlot, recurrent::delta::DeltaShape};

/// Index of a value in [`Ir::values`].
pub(crate) type ValueId = usize;

/// What a row of a value is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// `f32`.
    Float,
    /// `u32`.
    Integer,
    /// Activations rounded to 8 bits, [`crate::linear::QBlock`].
    Block,
}

impl Entry {
    /// Bytes of an entry.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Entry::Float | Entry::Integer => 4,
            Entry::Block => size_of::<crate::linear::QBlock>(),
        }
    }
}

/// A value: rows of entries.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// Its name in the graph; empty for what lowering adds.
    pub(crate) name: String,
    /// Its row space.
    pub(crate) rows: Rows,
    /// Rows of it per row of the space: experts have one for each that a token uses.
    pub(crate) per_row: usize,
    /// Entries of a row.
    pub(crate) width: usize,
    /// Entries before the first row that belong to no row.
    pub(crate) extra: usize,
    /// What the entries are.
    pub(crate) entry: Entry,
}

impl Value {
    /// A value with one row per row of the space.
    pub(crate) fn new(name: &str, rows: Rows, width: usize, entry: Entry) -> Self {
        Value { name: name.into(), rows, per_row: 1, width, extra: 0, entry }
    }

    /// Its entries when its space has `rows` rows.
    pub(crate) fn entries(&self, rows: usize) -> usize {
        self.extra + rows * self.per_row * self.width
    }
}

/// What is rounded to 8 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    /// The value as it is.
    Plain(ValueId),
    /// The value, each row normalised.
    Norm(ValueId, RunNorm),
    /// `act(gate) ⊙ up`.
    Glu(ValueId, ValueId, Gating),
}

/// What an attention reads beside queries and states.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Beside {
    /// The blocks chosen for each query.
    pub(crate) chosen_blocks: Option<ValueId>,
    /// The compressed rows chosen for each query.
    pub(crate) chosen_rows: Option<ValueId>,
    /// Keys and values of all tokens of the step, the same value twice if values lie in the keys.
    pub(crate) own: Option<[ValueId; 2]>,
}

/// An operation. Weights are indexes into the tables of [`super::weights::Weights`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// An input of the step.
    Input(InputSource),
    /// Rows of a table, one after another where there are several ids in a row.
    Embed { ids: ValueId, table: usize, scale: f32 },
    /// Rows of a table of integers.
    Lookup { ids: ValueId, table: usize },
    /// Hashes of the last tokens: the token, the one before, and so on.
    NgramHash { places: Vec<ValueId>, hash: usize },
    /// Cosine and sine of every rotary angle: `[cos; dims/2] [sin; dims/2]`.
    Angles { positions: ValueId, rope: usize },
    /// Rotation of heads by [`Op::Angles`].
    Rope { x: ValueId, angles: ValueId, turning: Turning },
    /// Normalisation.
    Norm { x: ValueId, norm: RunNorm },
    /// Rounding of activations to 8 bits.
    Quantize(Source),
    /// The same twice: the blocks of a row, then those of what rounding has left of it.
    QuantizeTwice(ValueId),
    /// `x·Wᵀ (+ bias) (+ add)`, run by run: `x` is as many runs as the matrix has columns, of which all meet the one matrix,
    /// or each one of its own. `twice`: `x` comes from [`Op::QuantizeTwice`].
    Linear { x: ValueId, matrix: usize, bias: Option<usize>, add: Option<ValueId>, twice: bool },
    /// Writes rows to a state. Yields a value without entries: to read the state is to depend on it.
    Store { x: ValueId, slot: StateSlot },
    /// Writes rows of an open block to a state: the operand, and the gate with the bias of its place in the block.
    StoreOpen { x: ValueId, gate: Option<ValueId>, bias: Option<usize>, pool: PoolBlocks },
    /// One row for each block that the step closes; `stored` is the write of its rows.
    Pool { stored: ValueId, pool: PoolBlocks },
    /// Convolution over the last few tokens.
    Convolve { x: ValueId, conv: Convolve },
    /// Gated delta rule on queries, keys, what is kept of the state, values and beta.
    Delta { operands: [ValueId; 5], shape: DeltaShape, state: usize },
    /// State-space scan on the operand, `b`, `c` and the time step.
    Scan { operands: [ValueId; 4], scan: ScanOf },
    /// `e^x`.
    Exp { x: ValueId },
    /// Attention; `stores` are the writes of its states by this graph.
    Attend { q: ValueId, attend: Attend, beside: Beside, stores: Vec<ValueId> },
    /// The rows of a state that score highest; `stores` as above.
    TopKeys { q: ValueId, weights: Option<ValueId>, best: Best, stores: Vec<ValueId> },
    /// `act(x)`.
    Activate { x: ValueId, act: Act },
    /// `act(gate) ⊙ up`.
    Glu { gate: ValueId, up: ValueId, gating: Gating },
    /// `a + b`.
    Add { a: ValueId, b: ValueId },
    /// `a ⊙ b`; the entries of a narrower `b` each meet a run of neighbours.
    Mul { a: ValueId, b: ValueId },
    /// `a_g · b_g` of each of `groups` runs.
    Dot { a: ValueId, b: ValueId, groups: usize },
    /// `x · factor + offset`.
    Scale { x: ValueId, factor: f32, offset: f32 },
    /// `x ⊙ scale + bias` by vectors, whose entries each meet a run of neighbours.
    Affine { x: ValueId, scale: Option<usize>, bias: Option<usize> },
    /// `cap · tanh(x / cap)`.
    Softcap { x: ValueId, cap: f32 },
    /// A part of each run of a row.
    Slice { x: ValueId, cutting: Cutting },
    /// The first runs of all parts, then the second ones, and so on.
    Concat { parts: Vec<ValueId>, groups: usize },
    /// Choice of experts, or the weights of those chosen by `ids`: ids, weights, and scratch of scores and keys.
    Route { scores: ValueId, ids: Option<ValueId>, choose: Choose },
    /// Which rows each expert gets; see [`crate::exec::experts`].
    Assign { ids: ValueId, experts: usize },
    /// One matrix of each expert, times a factor of each. A row of `x` is used by each of its experts, or (`own_rows`) each
    /// expert has its own.
    Experts { x: ValueId, assigned: ValueId, matrix: usize, scale: Option<usize>, own_rows: bool },
    /// `Σ_j weights[j] · y[j]`, by rising `j`.
    Combine { y: ValueId, weights: ValueId },
    /// How residual streams are read and rewritten: `pre`, `post`, `mix`, and scratch for logits.
    StreamGates { x: ValueId, gating: StreamGating },
    /// `Σ_s w_s · x_s`, by rising `s`.
    StreamCollapse { x: ValueId, weights: Option<ValueId>, streams: usize },
    /// `x'_d = post_d · y + Σ_s mix[s, d] · x_s`.
    StreamUpdate { x: Option<ValueId>, y: ValueId, post: ValueId, mix: Option<ValueId> },
    /// An op from outside, in [`super::weights::Weights::customs`].
    Custom { x: Vec<ValueId>, custom: usize },
    /// The logit rows of a value over tokens.
    Select(ValueId),
}

impl Op {
    /// Whether the op writes state, so that every token must go through it.
    pub(crate) fn writes_state(&self) -> bool {
        match self {
            Op::Store { .. } | Op::StoreOpen { .. } => true,
            _ => self.is_recurrent(),
        }
    }

    /// Whether the op advances a recurrent state, even in a step without rows.
    pub(crate) fn is_recurrent(&self) -> bool {
        matches!(self, Op::Convolve { .. } | Op::Delta { .. } | Op::Scan { .. })
    }

    /// Whether members share out the entries of the result, and read the same entries of operands of that size.
    pub(crate) fn is_entrywise(&self) -> bool {
        matches!(
            self,
            Op::Activate { .. }
                | Op::Exp { .. }
                | Op::Glu { .. }
                | Op::Softcap { .. }
                | Op::Add { .. }
                | Op::Mul { .. }
                | Op::Scale { .. }
                | Op::Affine { .. }
                | Op::Combine { .. }
        )
    }

    /// The operands of which the op reads the rows of all tokens, whatever rows it yields.
    pub(crate) fn whole_operands(&self) -> Vec<ValueId> {
        match self {
            Op::Attend { beside: Beside { own: Some(own), .. }, .. } => own.to_vec(),
            _ => Vec::new(),
        }
    }

    /// The values that the op reads.
    pub(crate) fn operands(&self) -> Vec<ValueId> {
        let mut operands = Vec::new();
        // The walk needs `&mut`, and a copy is cheap.
        self.clone().for_each_operand(|v| operands.push(*v));
        operands
    }

    /// Shows every operand, to be changed.
    pub(crate) fn for_each_operand(&mut self, mut f: impl FnMut(&mut ValueId)) {
        match self {
            Op::Input(_) => {}
            Op::Embed { ids: x, .. }
            | Op::Lookup { ids: x, .. }
            | Op::StreamGates { x, .. }
            | Op::Angles { positions: x, .. }
            | Op::Norm { x, .. }
            | Op::Quantize(Source::Plain(x) | Source::Norm(x, _))
            | Op::QuantizeTwice(x)
            | Op::Store { x, .. }
            | Op::Pool { stored: x, .. }
            | Op::Convolve { x, .. }
            | Op::Exp { x }
            | Op::Activate { x, .. }
            | Op::Scale { x, .. }
            | Op::Softcap { x, .. }
            | Op::Affine { x, .. }
            | Op::Slice { x, .. }
            | Op::Assign { ids: x, .. }
            | Op::Select(x) => f(x),
            Op::Rope { x: a, angles: b, .. }
            | Op::Quantize(Source::Glu(a, b, _))
            | Op::Glu { gate: a, up: b, .. }
            | Op::Add { a, b }
            | Op::Mul { a, b }
            | Op::Dot { a, b, .. }
            | Op::Experts { x: a, assigned: b, .. }
            | Op::Combine { y: a, weights: b } => {
                f(a);
                f(b);
            }
            Op::StreamCollapse { x, weights: more, .. }
            | Op::Linear { x, add: more, .. }
            | Op::Route { scores: x, ids: more, .. } => {
                f(x);
                more.iter_mut().for_each(f);
            }
            Op::StoreOpen { x, gate, .. } => {
                f(x);
                gate.iter_mut().for_each(f);
            }
            Op::Delta { operands, .. } => operands.iter_mut().for_each(f),
            Op::Scan { operands, .. } => operands.iter_mut().for_each(f),
            Op::StreamUpdate { x, y, post, mix } => {
                f(y);
                f(post);
                x.iter_mut().chain(mix).for_each(f);
            }
            Op::Concat { parts, .. } | Op::NgramHash { places: parts, .. } | Op::Custom { x: parts, .. } => {
                parts.iter_mut().for_each(f);
            }
            Op::Attend { q, beside: Beside { chosen_blocks, chosen_rows, own }, stores, .. } => {
                f(q);
                chosen_blocks.iter_mut().chain(chosen_rows).for_each(&mut f);
                own.iter_mut().flatten().chain(stores).for_each(f);
            }
            Op::TopKeys { q, weights, stores, .. } => {
                f(q);
                weights.iter_mut().chain(stores).for_each(f);
            }
        }
    }
}

/// An operation and the values it yields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// What is computed.
    pub(crate) op: Op,
    /// What it yields: one value, several for [`Op::Route`].
    pub(crate) results: Vec<ValueId>,
}

/// A lowered graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ir {
    /// All values.
    pub(crate) values: Vec<Value>,
    /// The computation, in order.
    pub(crate) nodes: Vec<Node>,
    /// The logits.
    pub(crate) output: ValueId,
    /// Values over tokens that the caller may ask for.
    pub(crate) taps: Vec<ValueId>,
}

impl Ir {
    /// The values that are read after the step.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = ValueId> {
        self.taps.iter().copied().chain([self.output])
    }

    /// Adds a value.
    pub(crate) fn value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        self.values.len() - 1
    }

    /// Adds a node with one result.
    pub(crate) fn push(&mut self, op: Op, result: Value) -> ValueId {
        let id = self.value(result);
        self.nodes.push(Node { op, results: vec![id] });
        id
    }

    /// How often each value is read; outputs count as read once.
    pub(crate) fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.values.len()];
        self.outputs().for_each(|output| uses[output] += 1);
        for operand in self.nodes.iter().flat_map(|n| n.op.operands()) {
            uses[operand] += 1;
        }
        uses
    }

    /// Index of the node that yields each value, where one does.
    pub(crate) fn producers(&self) -> Vec<Option<usize>> {
        let mut producers = vec![None; self.values.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            for result in &node.results {
                producers[*result] = Some(i);
            }
        }
        producers
    }
}
