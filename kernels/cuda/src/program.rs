//! A compiled model on a device, with the memory of its sequences' state.

use std::{cell::RefCell, ops::Range, sync::Arc};

use bantam_backend::{Demands, MostRows, Program, RecurrentGroup, SlotBook, StateGroup, Step, StepError, Trace, check};

use crate::{
    compile::{Plan, Plans, Weights},
    device::{Buffer, Device, DeviceError},
    exec::{Laid, Layout, Running, floats},
    pages::{Pool, failed},
    slots::Slots,
};

/// The program of [`crate::CudaBackend`].
pub(crate) struct CudaProgram {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) weights: Weights,
    pub(crate) pools: Vec<Pool>,
    pub(crate) groups: Vec<StateGroup>,
    pub(crate) graphs: Vec<CompiledGraph>,
    /// Experts of each of the trunk's mixtures.
    pub(crate) mixtures: Vec<usize>,
    /// Rows that each of them has computed.
    pub(crate) tally: Arc<Buffer>,
    pub(crate) max: MostRows,
    /// Intermediate values of whichever plan runs.
    pub(crate) arena: Buffer,
    pub(crate) laid: Laid,
    /// Where the step lies on the device; grows with what steps hold.
    pub(crate) step: Buffer,
    pub(crate) steps: u64,
    pub(crate) results: Results,
    /// What the device said when it failed: state and buffers may be half-written since.
    pub(crate) failed: Option<String>,
}

/// One of the model's graphs.
pub(crate) struct CompiledGraph {
    pub(crate) plans: Plans,
    pub(crate) demands: Demands,
    pub(crate) layout: Layout,
    pub(crate) slots: Option<Slots>,
    pub(crate) vocab: usize,
}

/// What the last step left to be read.
#[derive(Default)]
pub(crate) struct Results {
    logits: Vec<f32>,
    taps: Vec<Vec<f32>>,
}

impl CudaProgram {
    fn check(&mut self, step: &Step) -> Result<(), StepError> {
        if let Some(why) = &self.failed {
            return Err(StepError::Failed(why.clone()));
        }
        self.steps += 1;
        self.results = Results::default();
        let graphs = self.graphs.len();
        let Some(CompiledGraph { demands, slots, .. }) = self.graphs.get_mut(step.graph) else {
            return Err(StepError::Invalid(format!("graph {}, of {graphs}", step.graph)));
        };
        check(step, demands, self.max, &mut self.pools, slots.as_mut().map(Slots::book_mut), self.steps)?;
        self.pools.iter_mut().enumerate().try_for_each(|(group, pool)| pool.back(group))
    }

    /// Runs a plan of the step's graph on a step that was checked.
    fn compute(&mut self, step: &Step, plain: bool, trace: Option<Trace<'_>>) -> Result<(), StepError> {
        let computed = self.try_to_compute(step, plain, trace);
        if let Err(StepError::Failed(why)) = &computed {
            self.failed = Some(why.clone());
        }
        computed
    }

    fn try_to_compute(&mut self, step: &Step, plain: bool, trace: Option<Trace<'_>>) -> Result<(), StepError> {
        let graph = &self.graphs[step.graph];
        let plan = if plain { &graph.plans.plain } else { &graph.plans.fast };
        let book = graph.slots.as_ref().map(Slots::book);
        self.laid.lay_out(step, &graph.layout, |slot| book.map_or(0, |book: &SlotBook| book.bank(slot)));
        let host = self.laid.host_values(step, plan).map_err(StepError::Invalid)?;
        let words = bytes(&self.laid.words);
        if words.len() > self.step.bytes() {
            self.step = Buffer::new(&self.device, words.len().next_power_of_two(), "steps").map_err(|e| match e {
                DeviceError::Memory { .. } => StepError::Invalid(format!("{e}; lower --step-tokens or --parallel")),
                other => failed(other),
            })?;
        }
        self.device.upload(self.step.address(), &words).map_err(failed)?;
        step.copies.iter().try_for_each(|copy| self.pools[copy.group].copy(copy)).map_err(failed)?;
        let fault = RefCell::new(None);
        let running = Running {
            device: self.device.as_ref(),
            plan,
            arena: self.arena.address(),
            laid: &self.laid,
            step: self.step.address(),
            pools: &self.pools,
            slots: graph.slots.as_ref().map_or(0, Slots::address),
            slot_bytes: graph.slots.as_ref().map_or(0, |slots| slots.group().slot_bytes as u64),
            fault: &fault,
        };
        for (value, _) in &plan.host {
            self.device.upload(running.at(*value), &bytes(&host[*value])).map_err(failed)?;
        }
        run_steps(&running, trace).map_err(failed)?;
        let results = read_results(&running, step).map_err(failed)?;
        if let Some(why) = fault.into_inner() {
            return Err(StepError::Op(why));
        }
        self.results = results;
        if let Some(slots) = &mut self.graphs[step.graph].slots {
            slots.book_mut().finish(step);
        }
        Ok(())
    }

    fn pool(&self, group: usize) -> Result<&Pool, StepError> {
        let groups = self.pools.len();
        self.pools.get(group).ok_or_else(|| StepError::Invalid(format!("state group {group}, of {groups}")))
    }

    fn slots(&self, graph: usize) -> Result<&Slots, StepError> {
        let slots = self.graphs.get(graph).and_then(|g| g.slots.as_ref());
        slots.ok_or_else(|| StepError::Invalid(format!("graph {graph} has no recurrent state")))
    }

    fn slots_mut(&mut self, graph: usize) -> Result<&mut Slots, StepError> {
        let slots = self.graphs.get_mut(graph).and_then(|g| g.slots.as_mut());
        slots.ok_or_else(|| StepError::Invalid(format!("graph {graph} has no recurrent state")))
    }
}

/// Runs the nodes in order; shows their values, if somebody wants to see them.
fn run_steps(running: &Running<'_>, mut trace: Option<Trace<'_>>) -> Result<(), DeviceError> {
    let plan = running.plan;
    if let Some(trace) = &mut trace {
        plan.host.iter().try_for_each(|(value, _)| show(running, *value, trace))?;
    }
    for step in &plan.steps {
        (step.task)(running).map_err(|e| e.at(&step.node))?;
        if let Some(trace) = &mut trace {
            step.results.iter().try_for_each(|value| show(running, *value, trace))?;
        }
    }
    Ok(())
}

/// Shows a value that the graph names. Integers are shown as floats.
fn show(running: &Running<'_>, value: usize, trace: &mut Trace<'_>) -> Result<(), DeviceError> {
    let shown = &running.plan.values[value];
    let mut bytes = vec![0; running.rows(value) * shown.width * 4];
    running.device.download(running.at(value), &mut bytes)?;
    let numbers = if shown.integer {
        bytes.as_chunks().0.iter().map(|b| u32::from_ne_bytes(*b) as f32).collect()
    } else {
        floats(&bytes)
    };
    trace(&shown.name, shown.width, &numbers);
    Ok(())
}

fn read_results(running: &Running<'_>, step: &Step) -> Result<Results, DeviceError> {
    let read = |value: usize| {
        let mut bytes = vec![0; running.rows(value) * running.plan.values[value].width * 4];
        running.device.download(running.at(value), &mut bytes)?;
        Ok(floats(&bytes))
    };
    let taps: &[usize] = if step.taps { &running.plan.taps } else { &[] };
    let taps = taps.iter().map(|tap| read(*tap)).collect::<Result<_, _>>()?;
    Ok(Results { logits: read(running.plan.output)?, taps })
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl Program for CudaProgram {
    fn groups(&self) -> &[StateGroup] {
        &self.groups
    }

    fn graph_groups(&self, graph: usize) -> Range<usize> {
        self.graphs.get(graph).map_or(0..0, |g| g.demands.writes.clone())
    }

    fn recurrent(&self, graph: usize) -> Option<&RecurrentGroup> {
        self.slots(graph).ok().map(Slots::group)
    }

    fn history(&self, graph: usize) -> usize {
        self.graphs.get(graph).map_or(0, |g| g.demands.history)
    }

    fn mixtures(&self) -> &[usize] {
        &self.mixtures
    }

    fn take_expert_rows(&mut self, rows: &mut [u64]) {
        // A device that fails here fails the next step as well, which says so.
        let Ok(counts) = self.tally.read() else { return };
        let counts = counts.as_chunks().0.iter().map(|count| u32::from_ne_bytes(*count));
        rows.iter_mut().zip(counts).for_each(|(rows, count)| *rows += u64::from(count));
        let _ = self.device.fill(self.tally.address(), 0, self.tally.bytes());
    }

    fn vocab(&self) -> usize {
        self.graphs.first().map_or(0, |g| g.vocab)
    }

    fn weight_bytes(&self) -> u64 {
        self.weights.bytes
    }

    fn weight_bytes_per_token(&self) -> u64 {
        self.graphs.first().map_or(0, |g| g.plans.fast.bytes_per_token)
    }

    fn reserve_pages(&mut self, group: usize, pages: usize) -> Result<(), StepError> {
        self.pool(group)?;
        self.pools[group].reserve(group, pages)
    }

    fn reserve_slots(&mut self, graph: usize, slots: usize) -> Result<(), StepError> {
        self.slots_mut(graph)?.reserve(slots)
    }

    fn run(&mut self, step: &Step) -> Result<(), StepError> {
        self.check(step)?;
        self.compute(step, false, None)
    }

    fn run_traced(&mut self, step: &Step, trace: Trace<'_>) -> Result<(), StepError> {
        self.check(step)?;
        self.compute(step, true, Some(trace))
    }

    fn logits(&self) -> &[f32] {
        &self.results.logits
    }

    fn tap(&self, index: usize) -> &[f32] {
        self.results.taps.get(index).map_or(&[], Vec::as_slice)
    }

    fn save_page(&self, group: usize, page: u32, tokens: usize, out: &mut Vec<u8>) -> Result<(), StepError> {
        self.pool(group)?.save(page, tokens, out)
    }

    fn load_page(&mut self, group: usize, page: u32, tokens: usize, bytes: &[u8]) -> Result<(), StepError> {
        self.pool(group)?;
        self.pools[group].load(group, page, tokens, bytes)
    }

    fn save_slot(&self, graph: usize, slot: u32, out: &mut Vec<u8>) -> Result<(), StepError> {
        self.slots(graph)?.save(slot, out)
    }

    fn load_slot(&mut self, graph: usize, slot: u32, bytes: &[u8]) -> Result<(), StepError> {
        self.slots_mut(graph)?.load(slot, bytes)
    }
}

impl Plan {
    /// The width of its result.
    pub(crate) fn output_width(&self) -> usize {
        self.values.get(self.output).map_or(0, |value| value.width)
    }
}
