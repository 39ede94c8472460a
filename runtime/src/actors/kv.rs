//! The kv actor: owns the pages of all sequences' state and the prefix tree.
//!
//! Messages: [`KvMessage::Acquire`] begins a sequence at its longest cached prefix. [`KvMessage::Prepare`] is one round
//! trip a step at most: it shows what the last step computed and provides pages for the next. [`KvMessage::Retire`] ends a
//! sequence and keeps its prefix.

use bantam_backend::StateGroup;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::cache::{Acquired, Lease, Resume, StateCache};

/// What the kv actor is asked.
#[derive(Debug)]
pub(crate) enum KvMessage {
    /// A lease for a sequence of these tokens, of which the first `at_most` may come from the cache.
    Acquire { tokens: Vec<u32>, at_most: usize, reply: RpcReplyPort<Acquired> },
    /// Publishes and grows leases.
    Prepare { work: Vec<LeaseWork>, reply: RpcReplyPort<Vec<LeaseWork>> },
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
        let KvArguments { groups, budget, minimum } = arguments;
        Ok(StateCache::new(&groups, budget, &minimum)?)
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: Self::Msg,
        cache: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            KvMessage::Acquire { tokens, at_most, reply } => {
                reply.send(cache.acquire(NAMESPACE, &tokens, at_most)).ok();
            }
            KvMessage::Prepare { mut work, reply } => {
                for item in &mut work {
                    prepare(cache, item)?;
                }
                reply.send(work).ok();
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
    let groups = cache.usage();
    let in_use = |g: &crate::cache::GroupUsage| g.used + g.cached;
    KvUsage {
        pages_used: groups.iter().map(in_use).sum(),
        bytes: groups.iter().map(|g| (in_use(g) * g.page_bytes) as u64).sum(),
        budget: cache.bytes().1,
    }
}
