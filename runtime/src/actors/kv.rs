//! The kv actor: owns the pages of all sequences' state and the prefix tree.
//!
//! Messages: [`KvMessage::Acquire`] begins a sequence at its longest cached prefix. [`KvMessage::Prepare`] is one round
//! trip a step at most: it shows what the last step computed and provides pages for the next. [`KvMessage::Retire`] ends a
//! sequence and keeps its prefix.

use bantam_backend::{RecurrentGroup, StateGroup};
use bantam_graph::StateKind;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::cache::{Acquired, GroupUsage, Lease, NoRoom, PoolError, Reserve, Resume, StateCache};

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
    /// Ends a sequence: these tokens of it are computed and stay findable.
    Retire { lease: Lease, tokens: Vec<u32> },
    /// How full the pools are.
    Usage(RpcReplyPort<KvUsage>),
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

/// How full the pools are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KvUsage {
    pub(crate) pages_used: usize,
    pub(crate) bytes: u64,
    pub(crate) budget: u64,
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

    fn cache(&self) -> Result<StateCache, PoolError> {
        let cache = StateCache::new(&self.groups, self.budget, &self.minimum)?;
        match &self.recurrent {
            Some((group, budget)) => cache.with_recurrent(group, *budget),
            None => Ok(cache),
        }
    }
}

/// The actor.
pub(crate) struct Kv;

impl Actor for Kv {
    type Msg = KvMessage;
    type State = StateCache;
    type Arguments = KvArguments;

    async fn pre_start(
        &self,
        _: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(arguments.cache()?)
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: Self::Msg,
        cache: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
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
            KvMessage::Retire { lease, tokens } => cache.retire(lease, &tokens)?,
            KvMessage::Usage(reply) => {
                reply.send(usage(cache)).ok();
            }
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

fn usage(cache: &mut StateCache) -> KvUsage {
    let (groups, slots) = (cache.usage(), cache.slot_usage());
    let in_use = |g: &GroupUsage| g.used + g.cached;
    let pages: u64 = groups.iter().map(|g| (in_use(g) * g.page_bytes) as u64).sum();
    KvUsage {
        pages_used: groups.iter().map(in_use).sum(),
        bytes: pages + (slots.capacity - slots.free) as u64 * slots.slot_bytes,
        budget: cache.bytes().1 + slots.budget,
    }
}
