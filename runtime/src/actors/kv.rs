//! The kv actor: owns the pages of all sequences' state and the prefix tree.
//!
//! Messages: [`KvMessage::Acquire`] begins a sequence at its longest cached prefix. [`KvMessage::Prepare`] is one round
//! trip a step at most: it shows what the last step computed and provides pages for the next. [`KvMessage::Retire`] ends a
//! sequence and keeps its prefix. [`KvMessage::Watch`] tells the archive what there is.

use std::time::{Duration, Instant};

use bantam_backend::{RecurrentGroup, StateGroup};
use bantam_graph::StateKind;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::{
    cache::{
        Acquired, GroupUsage, Lease, NoRoom, Page, PoolError, Reserve, Resume, SlotUsage, StateCache, WatchedTree,
    },
    engine::StateStatus,
};

/// What the kv actor is asked.
#[derive(Debug)]
pub(crate) enum KvMessage {
    /// A lease for a sequence of these tokens, of which the first `at_most` may come from the cache, if there is room for
    /// what it reserves.
    Acquire { tokens: Vec<u32>, at_most: usize, reserve: Option<Reserve>, reply: RpcReplyPort<Option<Acquired>> },
    /// Publishes and grows leases.
    Prepare { work: Vec<LeaseWork>, reply: RpcReplyPort<Vec<LeaseWork>> },
    /// A lease on the state of these tokens, as far as it is cached, to be saved.
    Export { tokens: Vec<u32>, reply: RpcReplyPort<Result<Lease, NoRoom>> },
    /// A lease for the state of so many tokens, to be restored.
    Import { tokens: usize, reply: RpcReplyPort<Result<Lease, NoRoom>> },
    /// What there is to be saved, used last first, if something was added since.
    Watch { since: u64, reply: RpcReplyPort<Option<WatchedTree>> },
    /// Pages of at most about so many bytes that no sequence uses, to be released.
    GiveUp { bytes: u64, reply: RpcReplyPort<Vec<(usize, Page)>> },
    /// Ends a sequence: these tokens of it are computed and stay findable.
    Retire { lease: Lease, tokens: Vec<u32> },
    /// How full the pools are.
    Usage(RpcReplyPort<StateStatus>),
    /// Fail.
    #[cfg(test)]
    Fail,
}

/// What is to be done with one lease.
#[derive(Debug)]
pub(crate) struct LeaseWork {
    /// The sequence's request number.
    pub(crate) id: u64,
    pub(crate) lease: Lease,
    /// Show the state of these tokens, the first of the sequence, to other requests.
    /// With them: whether others are likely to go on from there.
    pub(crate) publish: Option<(Vec<u32>, Resume)>,
    /// Tokens that pages are wanted for.
    pub(crate) grow_to: usize,
    /// Whether they are there.
    pub(crate) grown: bool,
}

/// What the kv actor is started with.
#[derive(Clone, Debug)]
pub(crate) struct KvArguments {
    pub(crate) groups: Vec<StateGroup>,
    /// Bytes that pages may take.
    pub(crate) budget: u64,
    /// Pages of each group set aside so that one sequence can always run.
    pub(crate) minimum: Vec<usize>,
    /// Recurrent state, if the model has any, and the bytes that its slots may take.
    pub(crate) recurrent: Option<(RecurrentGroup, u64)>,
}

impl KvArguments {
    /// Whether a sequence can be resumed at any token, not only where its state was kept.
    pub(crate) fn resumes_anywhere(&self) -> bool {
        let keeps_all = |group: &StateGroup| !matches!(group.kind, StateKind::Window { .. });
        self.recurrent.is_none() && self.groups.iter().all(keeps_all)
    }

    /// An empty cache.
    ///
    /// # Errors
    /// If the budgets are too small.
    pub(crate) fn cache(&self) -> Result<StateCache, PoolError> {
        let cache = StateCache::new(&self.groups, self.budget, &self.minimum)?;
        match &self.recurrent {
            Some((group, budget)) => cache.with_recurrent(group, *budget),
            None => Ok(cache),
        }
    }
}

/// What the actor owns.
pub(crate) struct KvState {
    cache: StateCache,
    /// What it saw when it looked at all pages last.
    seen: Option<Seen>,
}

struct Seen {
    groups: Vec<GroupUsage>,
    slots: SlotUsage,
    at: Instant,
    took: Duration,
}

/// Who has each page is looked at again after this many times the time that looking took: routers ask up to twenty times a
/// second, and steps wait for this actor.
const LOOK_AFTER: u32 = 50;

/// The actor.
pub(crate) struct Kv;

impl Actor for Kv {
    type Msg = KvMessage;
    type State = KvState;
    type Arguments = StateCache;

    async fn pre_start(
        &self,
        _: ActorRef<Self::Msg>,
        cache: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(KvState { cache, seen: None })
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let cache = &mut state.cache;
        match message {
            KvMessage::Acquire { tokens, at_most, reserve, reply } => {
                reply.send(cache.admit(NAMESPACE, &tokens, at_most, reserve.as_ref())).ok();
            }
            KvMessage::Prepare { mut work, reply } => {
                for item in &mut work {
                    prepare(cache, item)?;
                }
                reply.send(work).ok();
            }
            KvMessage::Export { tokens, reply } => {
                reply.send(cache.export(NAMESPACE, &tokens)).ok();
            }
            KvMessage::Import { tokens, reply } => {
                reply.send(cache.import(NAMESPACE, tokens)).ok();
            }
            KvMessage::Watch { since, reply } => {
                reply.send((cache.additions() != since).then(|| cache.watch(u64::MAX))).ok();
            }
            KvMessage::GiveUp { bytes, reply } => {
                reply.send(cache.give_up(bytes)).ok();
            }
            KvMessage::Retire { lease, tokens } => cache.retire(lease, &tokens)?,
            KvMessage::Usage(reply) => {
                reply.send(state.usage()).ok();
            }
            #[cfg(test)]
            KvMessage::Fail => panic!("injected"),
        }
        Ok(())
    }
}

/// Sequences of equal tokens have equal state: the only key so far.
const NAMESPACE: u64 = 0;

fn prepare(cache: &mut StateCache, item: &mut LeaseWork) -> Result<(), ActorProcessingErr> {
    if let Some((tokens, resume)) = &item.publish {
        cache.publish(&mut item.lease, tokens, *resume)?;
    }
    item.grown = cache.grow(&mut item.lease, item.grow_to).is_ok();
    Ok(())
}

impl KvState {
    fn usage(&mut self) -> StateStatus {
        let counters = self.cache.counters();
        let pages_budget = self.cache.bytes().1;
        let (block_tokens, block_bytes) = block(self.cache.groups());
        let Seen { groups, slots, .. } = self.look();
        let bytes = |count: fn(&GroupUsage) -> usize| -> u64 {
            groups.iter().map(|group| (count(group) * group.page_bytes) as u64).sum()
        };
        StateStatus {
            pages_held: groups.iter().map(|group| group.used).sum(),
            pages_cached: groups.iter().map(|group| group.cached).sum(),
            bytes: bytes(|group| group.used + group.cached) + (slots.capacity - slots.free) as u64 * slots.slot_bytes,
            bytes_held: bytes(|group| group.used) + held(slots),
            budget: pages_budget + slots.budget,
            usage: part(bytes(|group| group.used), pages_budget).max(part(held(slots), slots.budget)),
            block_tokens,
            blocks: pages_budget.checked_div(block_bytes).unwrap_or(0),
            tokens_wanted: counters.tokens_wanted,
            tokens_reused: counters.tokens_reused,
            evictions: counters.evictions,
            tokens_evicted: counters.tokens_evicted,
        }
    }

    fn look(&mut self) -> &Seen {
        let seen = self.seen.take().filter(|seen| seen.at.elapsed() < seen.took * LOOK_AFTER);
        let look = || {
            let at = Instant::now();
            let (groups, slots) = (self.cache.usage(), self.cache.slot_usage());
            Seen { groups, slots, at, took: at.elapsed() }
        };
        let seen = seen.unwrap_or_else(look);
        self.seen.insert(seen)
    }
}

/// Bytes of the slots that are not just points to go on from.
fn held(slots: &SlotUsage) -> u64 {
    slots.capacity.saturating_sub(slots.free + slots.attached) as u64 * slots.slot_bytes
}

fn part(bytes: u64, budget: u64) -> f64 {
    if budget == 0 { 0.0 } else { (bytes as f64 / budget as f64).min(1.0) }
}

/// Tokens and bytes of the smallest stretch of a sequence that is whole pages of every group; windows, which do not grow
/// with a sequence, are left out.
fn block(groups: &[StateGroup]) -> (usize, u64) {
    let growing = || groups.iter().filter(|group| !matches!(group.kind, StateKind::Window { .. }));
    let tokens = growing().map(|group| group.page_tokens).max().unwrap_or(0);
    let bytes = growing().map(|group| group.page_bytes as u64 * tokens.div_ceil(group.page_tokens.max(1)) as u64).sum();
    (tokens, bytes)
}
