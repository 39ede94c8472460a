//! From a graph to tasks: each a launch or a few, with everything known before a step already in it.

mod custom;
mod elementwise;
mod host;
pub(crate) mod ir;
mod mixture;
mod places;
mod recurrent;
mod rows;
mod scratch;
mod state;
mod tables;
mod weights;

use std::{collections::HashMap, sync::Arc};

use bantam_backend::{CompileError, CustomOps, Limits};
use bantam_graph::{Checked, Graph, Op, Rows, Weight};

pub(crate) use host::{HostOp, hashes};
pub(crate) use places::{MaxRows, Places};
pub(crate) use scratch::Scratch;
pub(crate) use weights::{Weights, load};

use crate::{
    device::{Buffer, Device, DeviceError, Kernel},
    exec::Running,
    linear::Linear,
    pages::StatePlaces,
    slots::Place,
    source::Unit,
};
use ir::{Ir, Node, Value, ValueId};

/// What is done for a node in a step.
pub(crate) type Task = Box<dyn Fn(&Running<'_>) -> Result<(), DeviceError> + Send + Sync>;

/// A node ready to be run.
pub(crate) struct Step {
    /// Name of the node.
    pub(crate) node: String,
    /// What it yields.
    pub(crate) results: Vec<ValueId>,
    /// What is done.
    pub(crate) task: Task,
}

/// A graph ready to be run, in one of two ways.
pub(crate) struct Plan {
    pub(crate) values: Vec<Value>,
    pub(crate) places: Places,
    /// What the host computes before the device begins, in order.
    pub(crate) host: Vec<(ValueId, HostOp)>,
    pub(crate) steps: Vec<Step>,
    pub(crate) output: ValueId,
    pub(crate) taps: Vec<ValueId>,
    /// Row spaces whose rows are cut into tiles of so many.
    pub(crate) tiles: Vec<(Rows, u32)>,
    /// Bytes of weights that a token reads: matrices whole, experts by the share that is used.
    pub(crate) bytes_per_token: u64,
}

impl Plan {
    /// Strides of the row spaces of all values.
    pub(crate) fn strides(&self) -> impl Iterator<Item = usize> {
        self.values.iter().filter_map(|value| match value.rows {
            Rows::Strided { stride } => Some(stride),
            Rows::Tokens | Rows::Logits => None,
        })
    }
}

/// The two plans of a graph.
pub(crate) struct Plans {
    /// For logit rows only where that suffices.
    pub(crate) fast: Plan,
    /// Every value that the graph names, for all its rows.
    pub(crate) plain: Plan,
    /// What integers a step may hold.
    pub(crate) limits: Limits,
}

/// Experts of each of a graph's mixtures, in order.
pub(crate) fn mixtures(graph: &Graph) -> Vec<usize> {
    let weights: HashMap<&str, &Weight> = graph.weights.iter().map(|weight| (weight.name.as_str(), weight)).collect();
    let experts = |op: &Op| match op {
        Op::Experts(o) => weights.get(o.up.as_str())?.shape.first().copied(),
        _ => None,
    };
    graph.nodes.iter().filter_map(|node| experts(&node.op)).collect()
}

/// What graphs are compiled with.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) device: &'a Arc<dyn Device>,
    pub(crate) weights: &'a Weights,
    pub(crate) places: &'a StatePlaces,
    /// Where the graph's recurrent states lie in its slots, by name.
    pub(crate) recurrent: &'a HashMap<String, Place>,
    pub(crate) linear: &'a Arc<Linear>,
    pub(crate) scratch: &'a Scratch,
    /// Where the rows of each expert of each mixture are counted, if they are.
    pub(crate) tally: Option<&'a Arc<Buffer>>,
    pub(crate) max: MaxRows,
    pub(crate) ops: Option<&'a dyn CustomOps>,
    /// Index of the graph among the model's.
    pub(crate) graph: usize,
}

/// Makes the plans of a checked graph.
pub(crate) fn plan(checked: &Checked<'_>, around: &Around<'_>) -> Result<Plans, CompileError> {
    let ir = Ir::new(checked);
    let (plain, limits) = Compiling::plan(checked, ir.clone(), &Around { tally: None, ..*around })?;
    let (fast, _) = Compiling::plan(checked, ir.narrow().without_unused(), around)?;
    Ok(Plans { fast, plain, limits })
}

/// Passes, or says why not; the node's name is added outside.
pub(crate) type Fit<T = ()> = Result<T, String>;

pub(crate) struct Compiling<'a> {
    pub(crate) checked: &'a Checked<'a>,
    pub(crate) ir: &'a Ir,
    pub(crate) around: &'a Around<'a>,
    /// Where values come from that are the host's, or integers.
    origins: HashMap<ValueId, host::Origin>,
    limits: Limits,
    /// What lies in rounded activations.
    rounded: scratch::Rounded,
    /// What turns heads by which angles was computed already.
    angles: HashMap<rows::AngleKey, Arc<Buffer>>,
    tiles: std::cell::RefCell<Vec<(Rows, u32)>>,
    bytes_per_token: u64,
    /// Experts of the mixtures so far.
    experts: usize,
}

impl Compiling<'_> {
    fn plan(checked: &Checked<'_>, ir: Ir, around: &Around<'_>) -> Result<(Plan, Limits), CompileError> {
        let mut compiling = Compiling {
            checked,
            ir: &ir,
            around,
            origins: HashMap::new(),
            limits: Limits::default(),
            rounded: scratch::Rounded::new(),
            angles: HashMap::new(),
            tiles: std::cell::RefCell::default(),
            bytes_per_token: 0,
            experts: 0,
        };
        let (mut host, mut steps) = (Vec::new(), Vec::new());
        for node in &ir.nodes {
            let refused = |why| CompileError::Unsupported { node: node.name.clone(), why };
            if let Some(op) = compiling.host(node).map_err(refused)? {
                host.push((node.results[0], op));
                continue;
            }
            let task = compiling.task(node).map_err(refused)?;
            steps.push(Step { node: node.name.clone(), results: node.results.clone(), task });
        }
        let brought: Vec<bool> = (0..ir.values.len()).map(|v| compiling.has(v)).collect();
        let (limits, tiles, bytes_per_token) = (compiling.limits, compiling.tiles.take(), compiling.bytes_per_token);
        let places = places::place(&ir, around.max, &brought).ok_or_else(|| CompileError::Unsupported {
            node: checked.graph.output.clone(),
            why: "its values take more bytes than there are addresses; lower the rows of a step".into(),
        })?;
        let Ir { values, output, taps, .. } = ir;
        Ok((Plan { values, places, host, steps, output, taps, tiles, bytes_per_token }, limits))
    }

    fn task(&mut self, node: &Node) -> Fit<Task> {
        let out = node.results.first().copied().unwrap_or_default();
        match &node.op {
            Op::Linear(o) => self.linear(node, o, out),
            Op::Norm(o) => self.norm(o, out),
            Op::Rope(o) => self.rope(o, out),
            Op::Activate { x, act } => self.activate(x, *act, out),
            Op::Glu(o) => self.glu(o, out),
            Op::Add { a, b } => self.add(a, b, out),
            Op::Mul { a, b } => self.mul(a, b, out),
            Op::Dot { a, b, groups } => self.dot(a, b, *groups, out),
            Op::Scale { x, factor, offset } => self.scale(x, *factor, *offset, out),
            Op::Affine(o) => self.affine(o, out),
            Op::Softcap { x, cap } => self.softcap(x, *cap, out),
            Op::Slice(o) => self.slice(o, out),
            Op::Concat(o) => self.concat(o, out),
            Op::Select { x, .. } => self.select(x, out),
            Op::Route(o) => self.route(node, o),
            Op::Experts(o) => self.experts(o, out),
            Op::StreamGates(o) => self.stream_gates(node, o),
            Op::StreamCollapse(o) => self.stream_collapse(o, out),
            Op::StreamUpdate(o) => self.stream_update(o, out),
            Op::Store { x, state } => self.store(x, state),
            Op::Attention(o) => self.attention(o, out),
            Op::TopKeys(o) => self.top_keys(o, out),
            Op::Pool(o) => self.pool(o, out),
            Op::ShortConv(o) => self.short_conv(o, out),
            Op::DeltaRule(o) => self.delta_rule(o, out),
            Op::Ssm(o) => self.ssm(o, out),
            Op::Custom(o) => self.custom(&node.name, o, out),
            Op::Embed(o) => self.embed_there(o, out),
            Op::Lookup(o) => self.lookup_there(o, out),
            Op::Input { .. } | Op::NgramHash(_) => Err("it is the host's to compute".into()),
        }
    }

    pub(crate) fn id(&self, name: &str) -> Fit<ValueId> {
        self.ir.id(name)
    }

    pub(crate) fn optional_id(&self, name: &Option<String>) -> Fit<Option<ValueId>> {
        name.as_deref().map(|name| self.id(name)).transpose()
    }

    pub(crate) fn width(&self, value: ValueId) -> usize {
        self.ir.values[value].width
    }

    pub(crate) fn kernel(&self, file: &'static str, name: &str) -> Fit<Kernel> {
        self.around.device.kernel(&Unit::plain(file), name).map_err(|e| e.to_string())
    }
}

/// A width as kernels take it; the checker keeps extents below 2³¹.
pub(crate) fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
