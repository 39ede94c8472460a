//! A compiled graph with the memory of its sequences' state.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use bantam_backend::{Demands, MostRows, Program, RecurrentGroup, StateGroup, Step, StepError, Trace};

use crate::{
    attention::{self, Cut, Partials, PieceScratch, top_keys::Candidates},
    compile::{
        FEW_ROWS, MaxRows, Plan, Plans, Weights,
        ir::{Best, Entry, Value, ValueId},
    },
    exec::{
        self,
        experts::Tally,
        frame::{Claims, Frame, MemberScratch, PerMember},
    },
    isa::Isa,
    linear::Scratch,
    memory::Zeroed,
    pool::Pool,
    profile::{self, Marks, Profile},
    recurrent::{STRIP, SlotPool},
    simd::LANES,
    step::Prepared,
    team::{Broken, Member, Panicked, Team},
};

/// The program of [`crate::CpuBackend`].
pub(crate) struct CpuProgram {
    team: Arc<Team>,
    isa: Isa,
    weights: Weights,
    weight_bytes_per_token: u64,
    pools: Vec<Pool>,
    groups: Vec<StateGroup>,
    graphs: Vec<CompiledGraph>,
    max: MaxRows,
    scratch: PerMember<MemberScratch>,
    partials: Partials,
    /// Steps that were tried.
    steps: u64,
    /// What the last step has left to be read.
    last: Option<Results>,
    /// What a member said when it panicked: state and buffers may be half-written since.
    failed: Option<String>,
    /// Why an op from outside could not compute its rows in this step.
    fault: OnceLock<String>,
    profile: Option<Profile>,
}

/// One of the model's graphs.
struct CompiledGraph {
    demands: Demands,
    fast: Runner,
    plain: Runner,
    slots: Option<SlotPool>,
}

/// A plan and what it takes to run it.
struct Runner {
    plan: Plan,
    claims: Vec<Claims>,
    tally: Tally,
    prepared: Prepared,
    /// Made when the plan first runs.
    arena: Option<Zeroed>,
}

/// Where results lie.
#[derive(Clone, Copy)]
struct Results {
    graph: usize,
    plain: bool,
    rows: usize,
    logit_rows: usize,
    taps: bool,
}

/// What a program is made of.
pub(crate) struct Parts {
    pub(crate) team: Arc<Team>,
    pub(crate) isa: Isa,
    pub(crate) weights: Weights,
    pub(crate) weight_bytes_per_token: u64,
    pub(crate) pools: Vec<Pool>,
    pub(crate) graphs: Vec<GraphParts>,
    pub(crate) max: MaxRows,
    pub(crate) profile: Option<Profile>,
}

/// What one of its graphs is made of.
pub(crate) struct GraphParts {
    pub(crate) plans: Plans,
    pub(crate) demands: Demands,
    pub(crate) slots: Option<SlotPool>,
}

impl CpuProgram {
    /// Makes a program; `None` if there is no memory for its buffers.
    pub(crate) fn new(parts: Parts) -> Option<Self> {
        let Parts { team, isa, weights, weight_bytes_per_token, pools, graphs, max, profile } = parts;
        let (places, members) = (attention::places(team.threads()), team.threads());
        let attends = graphs.iter().flat_map(|g| g.plans.plain.attentions());
        let (k_dim, v_dim) = attends.fold((0, 0), |(k, v), (_, a)| (k.max(a.key_width()), v.max(a.sum_width())));
        let choices: Vec<Best> = graphs.iter().flat_map(|g| g.plans.plain.choices()).copied().collect();
        let strips = graphs.iter().map(|g| g.plans.fast.strip_rows()).max().unwrap_or(0);
        let linear: Option<Vec<Scratch>> = (0..members).map(|_| Scratch::new()).collect();
        let scratch = linear?.into_iter().map(|linear| MemberScratch {
            linear,
            piece: PieceScratch::new(k_dim, v_dim),
            candidates: Candidates::new(&choices),
            strips: vec![[[0.0; LANES]; STRIP / LANES]; strips],
        });
        let compiled = |GraphParts { plans, demands, slots }| {
            let [mut fast, plain] = [plans.fast, plans.plain].map(|plan| Runner::new(plan, max, members, places));
            fast.arena()?;
            Some(CompiledGraph { demands, fast, plain, slots })
        };
        Some(CpuProgram {
            isa,
            weights,
            weight_bytes_per_token,
            groups: pools.iter().map(|p| p.group().clone()).collect(),
            pools,
            graphs: graphs.into_iter().map(compiled).collect::<Option<_>>()?,
            max,
            scratch: PerMember::new(scratch),
            partials: Partials::new(places, v_dim)?,
            steps: 0,
            last: None,
            failed: None,
            fault: OnceLock::new(),
            profile,
            team,
        })
    }

    fn check(&mut self, step: &Step) -> Result<(), StepError> {
        if let Some(why) = &self.failed {
            return Err(StepError::Failed(why.clone()));
        }
        self.steps += 1;
        let graphs = self.graphs.len();
        let Some(CompiledGraph { demands, slots, .. }) = self.graphs.get_mut(step.graph) else {
            return Err(StepError::Invalid(format!("graph {}, of {graphs}", step.graph)));
        };
        let max = MostRows { tokens: self.max.tokens, logits: self.max.logits };
        bantam_backend::check(step, demands, max, &mut self.pools, slots.as_mut().map(SlotPool::book_mut), self.steps)
    }

    /// The frame of a step, on one of the plans of its graph.
    fn frame<'a>(&'a self, step: &'a Step, plain: bool) -> Result<Frame<'a>, StepError> {
        let graph = &self.graphs[step.graph];
        let runner = if plain { &graph.plain } else { &graph.fast };
        let arena = runner.arena.as_ref().ok_or_else(|| StepError::Invalid("the arena is missing".into()))?;
        Ok(Frame {
            plan: &runner.plan,
            weights: &self.weights,
            pools: &self.pools,
            slots: graph.slots.as_ref(),
            step,
            prepared: &runner.prepared,
            arena,
            scratch: &self.scratch,
            partials: &self.partials,
            claims: &runner.claims,
            tally: &runner.tally,
            fault: &self.fault,
            isa: self.isa,
            few: step.tokens.len() <= FEW_ROWS,
        })
    }

    /// Runs the plain plan node by node, showing what the graph names.
    fn trace_nodes(&self, step: &Step, trace: Trace<'_>) -> Result<Result<(), Panicked>, StepError> {
        let frame = self.frame(step, true)?;
        let mut shown = Vec::new();
        let mut done = self.team.run(|member| copy_pages(&frame, member));
        for (i, node) in frame.plan.schedule.nodes.iter().enumerate() {
            done = done.and_then(|()| {
                self.team.run(|member| {
                    // SAFETY: this is the order of the plan, each node a job of its own, on a step that was checked.
                    unsafe { exec::run(&frame, member, i) };
                    Ok(())
                })
            });
            if done.is_err() {
                break;
            }
            for result in &node.results {
                show(&frame, *result, &mut shown, trace);
            }
        }
        Ok(done)
    }

    fn finish(&mut self, step: &Step, plain: bool, done: Result<(), Panicked>) -> Result<(), StepError> {
        match done {
            Ok(()) => {
                if let Some(why) = self.fault.take() {
                    self.last = None;
                    return Err(StepError::Op(why));
                }
                if let Some(slots) = &mut self.graphs[step.graph].slots {
                    slots.finish(step);
                }
                let (rows, logit_rows) = (step.tokens.len(), step.logit_rows.len());
                self.last = Some(Results { graph: step.graph, plain, rows, logit_rows, taps: step.taps });
                Ok(())
            }
            Err(Panicked(why)) => {
                self.failed = Some(why.clone());
                self.last = None;
                Err(StepError::Failed(why))
            }
        }
    }

    /// The plan that ran last, and what it has left.
    fn results(&self) -> Option<(&Runner, Results)> {
        let last = self.last?;
        let graph = &self.graphs[last.graph];
        Some((if last.plain { &graph.plain } else { &graph.fast }, last))
    }

    fn slots(&self, graph: usize) -> Result<&SlotPool, StepError> {
        self.graphs.get(graph).and_then(|g| g.slots.as_ref()).ok_or_else(|| no_slots(graph))
    }

    fn slots_mut(&mut self, graph: usize) -> Result<&mut SlotPool, StepError> {
        self.graphs.get_mut(graph).and_then(|g| g.slots.as_mut()).ok_or_else(|| no_slots(graph))
    }

    fn pool(&self, group: usize) -> Result<&Pool, StepError> {
        let groups = self.pools.len();
        self.pools.get(group).ok_or_else(|| StepError::Invalid(format!("state group {group}, of {groups}")))
    }
}

fn no_slots(graph: usize) -> StepError {
    StepError::Invalid(format!("graph {graph} has no recurrent state"))
}

impl Runner {
    fn new(plan: Plan, max: MaxRows, members: usize, places: usize) -> Self {
        let claims = plan.schedule.nodes.iter().map(|_| Claims::default()).collect();
        let tally = Tally::new(plan.schedule.nodes.iter().map(|node| &node.op));
        let cuts = plan.attentions().map(|(rows, attend)| (rows, Cut::of(attend)));
        let prepared = Prepared::new(max, members, places, cuts, plan.strides());
        Runner { plan, claims, tally, prepared, arena: None }
    }

    fn arena(&mut self) -> Option<&Zeroed> {
        if self.arena.is_none() {
            self.arena = Zeroed::new(self.plan.places.bytes);
        }
        self.arena.as_ref()
    }

    /// Lays a step out; a frame can be made then.
    fn prepare(&mut self, step: &Step) -> Result<(), StepError> {
        let bytes = self.plan.places.bytes;
        self.arena()
            .ok_or_else(|| StepError::Invalid(format!("no memory for {bytes} bytes of intermediate values")))?;
        self.prepared.prepare(step);
        self.claims.iter().for_each(Claims::reset);
        Ok(())
    }

    /// The first `rows` rows of an output of the plan.
    fn output(&self, value: ValueId, rows: usize) -> &[f32] {
        let Some(arena) = &self.arena else { return &[] };
        let offset = self.plan.places.offsets[value];
        let len = rows * self.plan.values[value].width;
        assert!(offset + len * size_of::<f32>() <= arena.len(), "an output lies outside of the arena");
        // SAFETY: the place lies in the arena and holds floats; no step runs while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(arena.start().as_ptr().add(offset).cast(), len) }
    }
}

/// Shows a value that the graph names. Integers are shown as floats.
fn show(frame: &Frame<'_>, value: ValueId, buffer: &mut Vec<f32>, trace: Trace<'_>) {
    let Value { name, width, entry, .. } = &frame.plan.values[value];
    if name.is_empty() {
        return;
    }
    // SAFETY: the entries are of this type, and no job runs.
    unsafe {
        match entry {
            Entry::Float => trace(name, *width, frame.read(value, 0)),
            Entry::Integer => {
                buffer.clear();
                buffer.extend(frame.read::<u32>(value, 0).iter().map(|i| *i as f32));
                trace(name, *width, buffer);
            }
            Entry::Block => {}
        }
    }
}

/// Copies pages, then runs the regions of the plan.
fn run_regions(frame: &Frame<'_>, member: &Member<'_>, marks: Option<&Marks>) -> Result<(), Broken> {
    copy_pages(frame, member)?;
    let schedule = &frame.plan.schedule;
    for (i, region) in schedule.regions.iter().enumerate() {
        if i > 0 && !(frame.few && schedule.joined[i - 1]) {
            member.barrier()?;
        }
        if let Some(marks) = marks {
            marks.begin(member, i);
        }
        for node in region.clone() {
            // SAFETY: this is the order of the plan, with its barriers, on a step that was checked.
            unsafe { exec::run(frame, member, node) };
        }
        if let Some(marks) = marks {
            marks.end(member, i);
        }
    }
    Ok(())
}

fn copy_pages(frame: &Frame<'_>, member: &Member<'_>) -> Result<(), Broken> {
    if frame.step.copies.is_empty() {
        return Ok(());
    }
    for copy in &frame.step.copies {
        frame.pools[copy.group].copy(copy, member.index(), member.threads());
    }
    member.barrier()
}

impl Program for CpuProgram {
    fn groups(&self) -> &[StateGroup] {
        &self.groups
    }

    fn graph_groups(&self, graph: usize) -> Range<usize> {
        self.graphs.get(graph).map_or(0..0, |g| g.demands.writes.clone())
    }

    fn recurrent(&self, graph: usize) -> Option<&RecurrentGroup> {
        self.slots(graph).ok().map(SlotPool::group)
    }

    fn history(&self, graph: usize) -> usize {
        self.graphs.get(graph).map_or(0, |g| g.demands.history)
    }

    fn mixtures(&self) -> &[usize] {
        self.graphs.first().map_or(&[], |g| g.fast.tally.mixtures())
    }

    fn take_expert_rows(&mut self, rows: &mut [u64]) {
        if let Some(trunk) = self.graphs.first_mut() {
            trunk.fast.tally.take(rows);
        }
    }

    fn vocab(&self) -> usize {
        self.graphs.first().map_or(0, |g| g.fast.plan.values[g.fast.plan.output].width)
    }

    fn weight_bytes(&self) -> u64 {
        self.weights.bytes()
    }

    fn weight_bytes_per_token(&self) -> u64 {
        self.weight_bytes_per_token
    }

    fn reserve_pages(&mut self, group: usize, pages: usize) -> Result<(), StepError> {
        self.pool(group)?;
        self.pools[group].reserve(group, pages)
    }

    fn release_pages(&mut self, group: usize, pages: &[u32]) {
        if let Some(pool) = self.pools.get_mut(group) {
            pages.iter().for_each(|page| pool.release(*page));
        }
    }

    fn reserve_slots(&mut self, graph: usize, slots: usize) -> Result<(), StepError> {
        self.slots_mut(graph)?.reserve(slots)
    }

    fn run(&mut self, step: &Step) -> Result<(), StepError> {
        self.check(step)?;
        self.graphs[step.graph].fast.prepare(step)?;
        let marks = self.profile.as_ref().map(Profile::marks);
        let frame = self.frame(step, false)?;
        let done = self.team.run(|member| run_regions(&frame, member, marks));
        let work = marks.map(|_| profile::work(&frame));
        if let (Some(profile), Some(work)) = (&mut self.profile, work) {
            profile.add(step.graph, step.tokens.len(), step.sequences.len(), &work);
        }
        self.finish(step, false, done)
    }

    fn run_traced(&mut self, step: &Step, trace: Trace<'_>) -> Result<(), StepError> {
        self.check(step)?;
        self.graphs[step.graph].plain.prepare(step)?;
        let done = self.trace_nodes(step, trace)?;
        self.finish(step, true, done)
    }

    fn logits(&self) -> &[f32] {
        self.results().map_or(&[], |(runner, last)| runner.output(runner.plan.output, last.logit_rows))
    }

    fn tap(&self, index: usize) -> &[f32] {
        let Some((runner, last)) = self.results().filter(|(_, last)| last.taps) else { return &[] };
        runner.plan.taps.get(index).map_or(&[], |value| runner.output(*value, last.rows))
    }

    fn save_page(&self, group: usize, page: u32, tokens: usize, out: &mut Vec<u8>) -> Result<(), StepError> {
        self.pool(group)?.save(page, tokens, out)
    }

    fn load_page(&mut self, group: usize, page: u32, tokens: usize, bytes: &[u8]) -> Result<(), StepError> {
        self.pool(group)?;
        self.pools[group].load(page, tokens, bytes)
    }

    fn save_slot(&self, graph: usize, slot: u32, out: &mut Vec<u8>) -> Result<(), StepError> {
        self.slots(graph)?.save(slot, out)
    }

    fn load_slot(&mut self, graph: usize, slot: u32, bytes: &[u8]) -> Result<(), StepError> {
        self.slots_mut(graph)?.load(slot, bytes)
    }
}
