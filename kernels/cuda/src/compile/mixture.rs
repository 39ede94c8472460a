//! Matrix products, and mixtures of experts.

use std::sync::{Arc, PoisonError};

use bantam_graph::{Experts, Linear, Op, Route, Scoring};

use super::{
    Compiling, Fit, Task,
    elementwise::{act_code, each, limit_code},
    host::Origin,
    ir::{Node, ValueId},
    narrow,
    scratch::Use,
};
use crate::{
    device::{Address, Buffer, DeviceError, Kernel, Launch},
    exec::Running,
    linear::{Activations, ExpertProduct, Input, Matrix, Product},
};

/// Bytes of what experts yield that are held at once; the rows of a step that make more come one part after another.
const EXPERT_BYTES: usize = 128 << 20;

/// Fewest rows of such a part: fewer leave experts with too few rows each.
const FEWEST_ROWS: usize = 256;

impl Compiling<'_> {
    pub(super) fn linear(&mut self, node: &Node, o: &Linear, out: ValueId) -> Fit<Task> {
        let matrix = self.around.weights.matrix(self.around.graph, &o.weight)?;
        let linear = Arc::clone(self.around.linear);
        let x = self.id(&o.x)?;
        let bias = self.optional_vector(&o.bias)?.map(|bias| bias.0);
        // Runs that all meet one matrix are rows of it; runs that meet one each are a stack.
        let runs = o.runs;
        let [stack, _, cols] = matrix.shape();
        let max = self.around.max.of(self.ir.values[out].rows) * runs;
        self.bytes_per_token += matrix.bytes() as u64;
        if matrix.takes_floats() {
            return Ok(Box::new(move |run| {
                let input = Input::Floats(run.at(x));
                let rows = run.rows(out) * runs;
                linear.multiply(&Product { matrix: &matrix, input, rows, out: run.at(out), bias, add: None })
            }));
        }
        let twice = stack == 1 && runs == 1 && self.is_head(node);
        let (activations, there) = self.rounded(Some(x), max * stack, cols, twice)?;
        Ok(Box::new(move |run| {
            let rows = run.rows(out) * runs;
            if !there {
                linear.quantize(run.at(x), rows * stack, &activations)?;
            }
            let input = Input::Rounded(&activations);
            linear.multiply(&Product { matrix: &matrix, input, rows, out: run.at(out), bias, add: None })
        }))
    }

    /// Whether the node yields the logits, or what they are made of entry by entry. Its rounding is the only one that no later
    /// layer evens out, and the one that picks the token: its activations are rounded twice.
    fn is_head(&self, node: &Node) -> bool {
        let mut value = self.ir.output;
        loop {
            let Some(producer) = self.ir.nodes.iter().find(|node| node.results.contains(&value)) else { return false };
            match &producer.op {
                Op::Linear(_) => return producer.name == node.name,
                Op::Softcap { x, .. } | Op::Scale { x, .. } | Op::Select { x, .. } => match self.id(x) {
                    Ok(x) => value = x,
                    Err(_) => return false,
                },
                _ => return false,
            }
        }
    }

    pub(super) fn route(&mut self, node: &Node, o: &Route) -> Fit<Task> {
        let (scores, given) = (self.id(&o.scores)?, self.optional_id(&o.ids)?);
        let experts = self.width(scores);
        if let Some(given) = given {
            self.below(given, experts, &format!("`{}` may exceed the {experts} experts", o.scores))?;
        }
        let bias = self.optional_vector(&o.bias)?.map_or(0, |bias| bias.0);
        let [ids, weights] = node.results[..] else { return Err("it yields two values".into()) };
        self.origins.insert(ids, Origin::Chosen(experts));
        let kernel = self.kernel("mixture.cu", "route")?;
        let scoring = match o.scoring {
            Scoring::Softmax => 0_u32,
            Scoring::Sigmoid => 1,
            Scoring::SqrtSoftplus => 2,
        };
        let (groups, groups_used) = o.groups.map_or((0, 0), |groups| (narrow(groups.count), narrow(groups.used)));
        let (used, normalize, factor) = (narrow(o.used), u32::from(o.normalize), o.scale);
        let shared = narrow((2 * experts + groups as usize) * 4);
        Ok(Box::new(move |run| {
            let launch = Launch::new([narrow(run.rows(ids)), 1, 1], 32).shared(shared);
            let launch = launch.arg(run.at(scores)).arg(run.at(ids)).arg(run.at(weights));
            let launch = launch.arg(run.at_or_null(given)).arg(bias).arg(narrow(experts)).arg(used);
            let launch = launch.arg(scoring).arg(groups).arg(groups_used).arg(normalize).arg(factor);
            run.launch(kernel, &launch)
        }))
    }

    pub(super) fn experts(&mut self, o: &Experts, out: ValueId) -> Fit<Task> {
        let mixture = self.mixture(o, out)?;
        Ok(Box::new(move |run| mixture.run(run, out)))
    }

    fn mixture(&mut self, o: &Experts, out: ValueId) -> Fit<Mixture> {
        let matrix = |name: &String| self.around.weights.matrix(self.around.graph, name);
        let (gate, up, down) =
            (o.gate.as_ref().map(matrix).transpose()?, matrix(&o.up)?, o.down.as_ref().map(matrix).transpose()?);
        let scale = |pick: fn(&bantam_graph::ExpertScales) -> &Option<String>| {
            let name = o.scales.as_ref().and_then(|scales| pick(scales).as_ref());
            name.map(|name| Ok::<_, String>(self.vector(name)?.0)).transpose()
        };
        let scales = [scale(|s| &s.gate)?, scale(|s| &s.up)?, scale(|s| &s.down)?];
        let (x, ids, weights) = (self.id(&o.x)?, self.id(&o.ids)?, self.id(&o.weights)?);
        let [experts, ffn, cols] = up.shape();
        let used = self.width(ids);
        self.below(ids, experts, &format!("`{}` may exceed the {experts} experts", o.ids))?;
        let matrices = [gate.as_ref(), Some(&up), down.as_ref()].into_iter().flatten();
        let bytes: usize = matrices.map(|matrix| matrix.bytes()).sum();
        self.bytes_per_token += (bytes / experts.max(1) * used.min(experts)) as u64;
        let width = self.width(out);
        let max = self.around.max.of(self.ir.values[out].rows);
        let part = (EXPERT_BYTES / (used * (2 * ffn + width) * 4).max(1)).max(FEWEST_ROWS).min(max).max(1);
        let pairs = part * used;
        let buffer = |i: usize, width: usize| self.scratch(Use::Expert(i), pairs * width * 4);
        let yields = [buffer(0, ffn)?, buffer(1, ffn)?, buffer(2, width)?];
        let assignment = self.around.scratch.assignment(self.around.device, pairs, experts)?;
        // Parts are rounded one after another, so that what lies there is no whole value.
        let rounded = if up.takes_floats() { None } else { Some(self.rounded(None, part, cols, false)?.0) };
        let between = match &down {
            Some(down) if !down.takes_floats() => Some(self.rounded(None, pairs, ffn, false)?.0),
            _ => None,
        };
        // Each mixture counts behind those before it.
        let counted = self.experts;
        self.experts += experts;
        let tally = match self.around.tally {
            Some(rows) => Some((self.kernel("mixture.cu", "tally")?, Arc::clone(rows), (counted * 4) as u64)),
            None => None,
        };
        let (limit, bound) = limit_code(o.limit);
        let [glu, activate] = ["glu", "activate"].map(|name| self.kernel("elementwise.cu", name));
        Ok(Mixture {
            linear: Arc::clone(self.around.linear),
            gate,
            up,
            down,
            scales,
            x,
            ids,
            weights,
            used,
            experts,
            ffn,
            cols,
            width,
            part,
            yields,
            assignment,
            rounded,
            between,
            act: act_code(o.act),
            limit,
            bound,
            glu: glu?,
            activate: activate?,
            combine: self.kernel("mixture.cu", "combine")?,
            tally,
        })
    }
}

/// A mixture ready to be run.
struct Mixture {
    linear: Arc<crate::linear::Linear>,
    gate: Option<Arc<Matrix>>,
    up: Arc<Matrix>,
    down: Option<Arc<Matrix>>,
    /// Factors of gate, up and down.
    scales: [Option<Address>; 3],
    x: ValueId,
    ids: ValueId,
    weights: ValueId,
    used: usize,
    experts: usize,
    ffn: usize,
    cols: usize,
    width: usize,
    /// Rows that are computed at once.
    part: usize,
    /// Where gate, up and down yield to.
    yields: [Arc<Buffer>; 3],
    assignment: Arc<std::sync::Mutex<crate::linear::Assignment>>,
    rounded: Option<Arc<Activations>>,
    between: Option<Arc<Activations>>,
    act: u32,
    limit: u32,
    bound: f32,
    glu: Kernel,
    activate: Kernel,
    combine: Kernel,
    /// Counts rows of experts, from an offset of a buffer on.
    tally: Option<(Kernel, Arc<Buffer>, u64)>,
}

impl Mixture {
    fn run(&self, run: &Running<'_>, out: ValueId) -> Result<(), DeviceError> {
        let rows = run.rows(out);
        if let Some((kernel, counts, offset)) = &self.tally {
            let launch = each(rows * self.used).arg(run.at(self.ids)).arg(narrow(rows * self.used));
            run.launch(*kernel, &launch.arg(counts.address() + offset))?;
        }
        let mut first = 0;
        while first < rows {
            let count = self.part.min(rows - first);
            self.run_part(run, first, count, run.at(out))?;
            first += count;
        }
        Ok(())
    }

    /// Computes rows `first .. first + count`.
    fn run_part(&self, run: &Running<'_>, first: usize, count: usize, out: Address) -> Result<(), DeviceError> {
        let behind = |base: Address, width: usize| base + (first * width * 4) as u64;
        let (x, pairs) = (behind(run.at(self.x), self.cols), count * self.used);
        let ids = behind(run.at(self.ids), self.used);
        let mut assignment = self.assignment.lock().unwrap_or_else(PoisonError::into_inner);
        if crate::linear::Linear::groups(pairs, self.experts) {
            self.linear.assign(ids, pairs, &mut assignment)?;
        }
        let input = match &self.rounded {
            Some(rounded) => {
                self.linear.quantize(x, count, rounded)?;
                Input::Rounded(rounded)
            }
            None => Input::Floats(x),
        };
        let multiply = |matrix: &Matrix, input: Input<'_>, share: usize, which: usize| {
            self.linear.multiply_experts(&ExpertProduct {
                matrix,
                input,
                share,
                ids,
                assignment: Some(&assignment),
                pairs,
                out: self.yields[which].address(),
                factors: self.scales[which],
                bias: None,
            })
        };
        let [gate, up, down] = self.yields.each_ref().map(|buffer| buffer.address());
        let entries = pairs * self.ffn;
        multiply(&self.up, input, self.used, 1)?;
        if let Some(matrix) = &self.gate {
            multiply(matrix, input, self.used, 0)?;
            let launch = each(entries).arg(gate).arg(up).arg(up).arg(entries as u64).arg(narrow(self.ffn));
            run.launch(self.glu, &launch.arg(narrow(self.ffn)).arg(self.act).arg(self.limit).arg(self.bound))?;
        } else {
            run.launch(self.activate, &each(entries).arg(up).arg(up).arg(entries as u64).arg(self.act))?;
        }
        let mut yields = up;
        if let Some(matrix) = &self.down {
            let input = match &self.between {
                Some(between) => {
                    self.linear.quantize(up, pairs, between)?;
                    Input::Rounded(between)
                }
                None => Input::Floats(up),
            };
            multiply(matrix, input, 1, 2)?;
            yields = down;
        }
        let entries = count * self.width;
        let launch = each(entries).arg(yields).arg(behind(run.at(self.weights), self.used));
        let launch = launch.arg(behind(out, self.width)).arg(entries as u64);
        run.launch(self.combine, &launch.arg(narrow(self.width)).arg(narrow(self.used)))
    }
}
