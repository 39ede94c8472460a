//! Random interleavings of everything sequences can do.

use bantam_backend::StateGroup;
use proptest::prelude::*;

use super::{
    per_token, strided, window,
    world::{Sequence, World},
};
use crate::cache::{Resume, one_sequence};

const LONGEST: usize = 48;
const ROWS: usize = 6;

#[derive(Clone, Debug)]
enum Op {
    /// Tokens of the alphabet {0, 1}, behind some prefix of an earlier list.
    Start {
        namespace: bool,
        like: usize,
        keep: usize,
        tokens: Vec<u32>,
        leave: usize,
    },
    Step {
        members: u8,
        rows: usize,
        accepted: usize,
        next: u32,
    },
    Publish {
        which: usize,
        back: usize,
        keep: bool,
    },
    Truncate {
        which: usize,
        back: usize,
    },
    Retire {
        which: usize,
    },
    Drop {
        which: usize,
    },
    /// Save an earlier list's state and restore it.
    Transfer {
        like: usize,
    },
    /// Begin to save all.
    Watch {
        limit: u64,
    },
    /// Grow what was begun to be saved elsewhere.
    Restart {
        budget: u64,
        slots: u64,
    },
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let start = (any::<bool>(), any::<usize>(), 0..LONGEST, prop::collection::vec(0..2_u32, 1..20), 0..4_usize)
        .prop_map(|(namespace, like, keep, tokens, leave)| Op::Start { namespace, like, keep, tokens, leave });
    let step = (any::<u8>(), 1..=ROWS, 1..=ROWS, 0..2_u32).prop_map(|(members, rows, accepted, next)| Op::Step {
        members,
        rows,
        accepted,
        next,
    });
    let publish =
        (any::<usize>(), 0..3_usize, any::<bool>()).prop_map(|(which, back, keep)| Op::Publish { which, back, keep });
    prop_oneof![
        4 => start,
        12 => step,
        8 => publish,
        2 => (any::<usize>(), 0..12_usize).prop_map(|(which, back)| Op::Truncate { which, back }),
        3 => any::<usize>().prop_map(|which| Op::Retire { which }),
        1 => any::<usize>().prop_map(|which| Op::Drop { which }),
        1 => any::<usize>().prop_map(|like| Op::Transfer { like }),
        1 => budget().prop_map(|limit| Op::Watch { limit }),
        1 => (budget(), 1..20_u64).prop_map(|(budget, slots)| Op::Restart { budget, slots }),
        1 => Just(Op::Clear),
    ]
}

fn budget() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), 0..4000_u64]
}

fn apply(world: &mut World, op: Op) {
    let count = world.sequences.len();
    match op {
        Op::Start { namespace, like, keep, tokens, leave } => {
            let earlier = world.published.get(like % world.published.len().max(1));
            let mut all: Vec<u32> = earlier.map(|(_, t)| t.iter().copied().take(keep).collect()).unwrap_or_default();
            all.extend(tokens);
            all.truncate(LONGEST);
            let at_most = all.len() - leave.min(all.len());
            world.start(u64::from(namespace), all, at_most);
        }
        Op::Step { members, rows, accepted, next } => {
            let fits = |i: &usize| world.sequences[*i].lease.len() + rows <= LONGEST;
            let members: Vec<usize> = (0..count).filter(|i| members >> (i % 8) & 1 == 1).filter(fits).collect();
            // Finding no room is an answer, not an error.
            let _ = world.step(&members, rows, accepted, next);
        }
        Op::Transfer { like } => {
            let earlier = world.published.get(like % world.published.len().max(1)).cloned();
            earlier.iter().for_each(|(namespace, tokens)| world.transfer(*namespace, tokens));
        }
        Op::Watch { limit } => world.watch(limit),
        Op::Restart { budget, slots } => {
            let slots = if world.cache.shape().recurrent { if budget == u64::MAX { 1000 } else { slots } } else { 0 };
            if let Some(watched) = world.watched.take() {
                world.restart(watched, budget, slots).finish();
            }
        }
        _ if count == 0 => {}
        Op::Publish { which, back, keep } => {
            world.publish(which % count, back, if keep { Resume::Keep } else { Resume::Passing });
        }
        Op::Truncate { which, back } => {
            let Sequence { lease, tokens, .. } = &mut world.sequences[which % count];
            let to = lease.reserved().saturating_sub(back);
            let before = (lease.len(), lease.tables().to_vec());
            match lease.truncate(to) {
                Ok(()) => {
                    assert_eq!((lease.len(), lease.reserved()), (before.0.min(to), to));
                    // Another token comes at the place of the first one taken back.
                    tokens.iter_mut().skip(lease.len()).take(1).for_each(|token| *token ^= 1);
                }
                Err(_) => assert_eq!(before, (lease.len(), lease.tables().to_vec())),
            }
        }
        Op::Retire { which } => world.retire(which % count),
        Op::Drop { which } => drop(world.sequences.swap_remove(which % count)),
        Op::Clear => world.clear(),
    }
}

fn groups() -> impl Strategy<Value = Vec<StateGroup>> {
    prop_oneof![
        Just(vec![per_token(4)]),
        Just(vec![per_token(1)]),
        Just(vec![per_token(4), window(6, 4)]),
        Just(vec![window(3, 2), per_token(8)]),
        Just(vec![window(9, 4), window(2, 3), per_token(4)]),
        Just(vec![window(1, 4)]),
        Just(vec![per_token(8), strided(4, 8), window(7, 4)]),
        Just(vec![strided(6, 6), per_token(4), strided(2, 4)]),
    ]
}

/// Slots of recurrent state: none, hardly any, some, enough.
fn slots() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(2), 3..8_u64, Just(1000)]
}

proptest! {
    #[test]
    fn every_sequence_reads_its_own_rows(
        groups in groups(),
        slots in slots(),
        tight in any::<bool>(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let minimum = one_sequence(&groups, LONGEST, ROWS);
        let least: u64 = groups.iter().zip(&minimum).map(|(g, n)| (g.page_bytes * n) as u64).sum();
        let budget = if tight { least + 100 } else { 1 << 40 };
        let mut world = World::recurrent(groups, budget, &minimum, slots);
        for op in ops {
            apply(&mut world, op);
            world.check();
        }
        world.finish();
    }

    #[test]
    fn a_lone_sequence_always_finds_room(
        groups in groups(),
        slots in slots(),
        ops in prop::collection::vec(op(), 1..80),
        rows in 1..=ROWS,
        publishes in any::<u64>(),
    ) {
        let minimum = one_sequence(&groups, LONGEST, ROWS);
        let least: u64 = groups.iter().zip(&minimum).map(|(g, n)| (g.page_bytes * n) as u64).sum();
        let mut world = World::recurrent(groups, least, &minimum, slots);
        for op in ops {
            apply(&mut world, op);
        }
        world.copies.clear();
        let prompt = world.published.last().map(|(_, tokens)| tokens.clone()).unwrap_or_default();
        world.sequences.clear();
        let at_most = prompt.len();
        let i = world.start(0, prompt, at_most);
        while world.sequences[i].lease.len() < LONGEST {
            let rows = rows.min(LONGEST - world.sequences[i].lease.len());
            prop_assert_eq!(world.step(&[i], rows, rows, 0), Ok(()));
            world.copies.clear();
            let resume = if publishes >> rows & 1 == 0 { Resume::Keep } else { Resume::Passing };
            if publishes >> (world.sequences[i].lease.len() % 64) & 1 == 0 {
                world.publish(i, 0, resume);
            }
            world.check();
        }
    }
}
