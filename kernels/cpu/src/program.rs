//! A compiled graph with the memory of its sequences' state.

use std::sync::Arc;

use bantam_backend::{Program, StateGroup, Step, StepError, Trace};

use crate::{
    attention::{self, Cut, Partials, PieceScratch},
    compile::{
        Limits, MaxRows, Plan, Plans, Weights,
        ir::{Entry, Value, ValueId},
    },
    exec::{
        self,
        frame::{Claims, Frame, MemberScratch, PerMember},
    },
    isa::Isa,
    linear::Scratch,
    memory::Zeroed,
    pool::Pool,
    step::{self, Prepared},
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
    limits: Limits,
    max: MaxRows,
    fast: Runner,
    plain: Runner,
    scratch: PerMember<MemberScratch>,
    partials: Partials,
    /// Steps that were tried.
    steps: u64,
    /// Where the last step's logits are.
    logits: Logits,
    /// What a member said when it panicked: state and buffers may be half-written since.
    failed: Option<String>,
}

/// A plan and what it takes to run it.
struct Runner {
    plan: Plan,
    claims: Vec<Claims>,
    prepared: Prepared,
    /// Made when the plan first runs.
    arena: Option<Zeroed>,
}

#[derive(Clone, Copy)]
enum Logits {
    None,
    Fast(usize),
    Plain(usize),
}

/// What a program is made of.
pub(crate) struct Parts {
    pub(crate) team: Arc<Team>,
    pub(crate) isa: Isa,
    pub(crate) weights: Weights,
    pub(crate) weight_bytes_per_token: u64,
    pub(crate) pools: Vec<Pool>,
    pub(crate) plans: Plans,
    pub(crate) max: MaxRows,
}

impl CpuProgram {
    /// Makes a program; `None` if there is no memory for its buffers.
    pub(crate) fn new(parts: Parts) -> Option<Self> {
        let Parts { team, isa, weights, weight_bytes_per_token, pools, plans, max } = parts;
        let (places, members) = (attention::places(team.threads()), team.threads());
        let dims = plans.fast.attentions().map(|(_, a)| (a.k.dim, a.v.dim));
        let (k_dim, v_dim) = dims.fold((0, 0), |(k, v), (k2, v2)| (k.max(k2), v.max(v2)));
        let linear: Option<Vec<Scratch>> = (0..members).map(|_| Scratch::new()).collect();
        let scratch =
            linear?.into_iter().map(|linear| MemberScratch { linear, piece: PieceScratch::new(k_dim, v_dim) });
        let runner = |plan| Runner::new(plan, max, members, places);
        let mut fast = runner(plans.fast);
        fast.arena()?;
        Some(CpuProgram {
            isa,
            weights,
            weight_bytes_per_token,
            groups: pools.iter().map(|p| p.group().clone()).collect(),
            pools,
            limits: plans.limits,
            max,
            fast,
            plain: runner(plans.plain),
            scratch: PerMember::new(scratch),
            partials: Partials::new(places, v_dim)?,
            steps: 0,
            logits: Logits::None,
            failed: None,
            team,
        })
    }

    fn check(&mut self, step: &Step) -> Result<(), StepError> {
        if let Some(why) = &self.failed {
            return Err(StepError::Failed(why.clone()));
        }
        self.steps += 1;
        step::check(step, &self.limits, self.max, &mut self.pools, self.steps)
    }

    fn frame<'a>(&'a self, runner: &'a Runner, step: &'a Step) -> Result<Frame<'a>, StepError> {
        let arena = runner.arena.as_ref().ok_or_else(|| StepError::Invalid("the arena is missing".into()))?;
        Ok(Frame {
            plan: &runner.plan,
            weights: &self.weights,
            pools: &self.pools,
            step,
            prepared: &runner.prepared,
            arena,
            scratch: &self.scratch,
            partials: &self.partials,
            claims: &runner.claims,
            isa: self.isa,
        })
    }

    /// Runs the plain plan node by node, showing what the graph names.
    fn trace_nodes(&self, step: &Step, trace: Trace<'_>) -> Result<Result<(), Panicked>, StepError> {
        let frame = self.frame(&self.plain, step)?;
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

    fn finish(&mut self, done: Result<(), Panicked>, logits: Logits) -> Result<(), StepError> {
        match done {
            Ok(()) => {
                self.logits = logits;
                Ok(())
            }
            Err(Panicked(why)) => {
                self.failed = Some(why.clone());
                self.logits = Logits::None;
                Err(StepError::Failed(why))
            }
        }
    }

    fn pool(&self, group: usize) -> Result<&Pool, StepError> {
        let groups = self.pools.len();
        self.pools.get(group).ok_or_else(|| StepError::Invalid(format!("state group {group}, of {groups}")))
    }
}

impl Runner {
    fn new(plan: Plan, max: MaxRows, members: usize, places: usize) -> Self {
        let claims = plan.schedule.nodes.iter().map(|_| Claims::default()).collect();
        let cuts = plan.attentions().map(|(rows, attend)| (rows, Cut::of(attend)));
        let prepared = Prepared::new(max, members, places, cuts);
        Runner { plan, claims, prepared, arena: None }
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

    fn logits(&self, rows: usize) -> &[f32] {
        let Some(arena) = &self.arena else { return &[] };
        let value = &self.plan.values[self.plan.output];
        let offset = self.plan.places.offsets[self.plan.output];
        let len = rows * value.width;
        assert!(offset + len * size_of::<f32>() <= arena.len(), "logits lie outside of the arena");
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
            Entry::Float => trace(name, *width, frame.read(value)),
            Entry::Integer => {
                buffer.clear();
                buffer.extend(frame.read::<u32>(value).iter().map(|i| *i as f32));
                trace(name, *width, buffer);
            }
            Entry::Block => {}
        }
    }
}

/// Copies pages, then runs nodes `range` of the plan.
fn run_regions(frame: &Frame<'_>, member: &Member<'_>) -> Result<(), Broken> {
    copy_pages(frame, member)?;
    for (i, region) in frame.plan.schedule.regions.iter().enumerate() {
        if i > 0 {
            member.barrier()?;
        }
        for node in region.clone() {
            // SAFETY: this is the order of the plan, with its barriers, on a step that was checked.
            unsafe { exec::run(frame, member, node) };
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

    fn vocab(&self) -> usize {
        self.fast.plan.values[self.fast.plan.output].width
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

    fn run(&mut self, step: &Step) -> Result<(), StepError> {
        self.check(step)?;
        self.fast.prepare(step)?;
        let done = {
            let frame = self.frame(&self.fast, step)?;
            self.team.run(|member| run_regions(&frame, member))
        };
        self.finish(done, Logits::Fast(step.logit_rows.len()))
    }

    fn run_traced(&mut self, step: &Step, trace: Trace<'_>) -> Result<(), StepError> {
        self.check(step)?;
        self.plain.prepare(step)?;
        let done = self.trace_nodes(step, trace)?;
        self.finish(done, Logits::Plain(step.logit_rows.len()))
    }

    fn logits(&self) -> &[f32] {
        match self.logits {
            Logits::None => &[],
            Logits::Fast(rows) => self.fast.logits(rows),
            Logits::Plain(rows) => self.plain.logits(rows),
        }
    }

    fn save_page(&self, group: usize, page: u32, tokens: usize, out: &mut Vec<u8>) -> Result<(), StepError> {
        self.pool(group)?.save(page, tokens, out)
    }

    fn load_page(&mut self, group: usize, page: u32, tokens: usize, bytes: &[u8]) -> Result<(), StepError> {
        self.pool(group)?;
        self.pools[group].load(page, tokens, bytes)
    }
}
