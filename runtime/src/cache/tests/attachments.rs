//! What recurrent values do, as stories.

use bantam_backend::{NO_SLOT, RecurrentStep};

use super::{per_token, strided, window, world::World};
use crate::cache::{LeaseError, NoRoom, Resume};

const PLENTY: u64 = 1 << 40;

fn counting(from: u32, tokens: u32) -> Vec<u32> {
    (from..from + tokens).collect()
}

/// A world with all kinds of state and so many slots.
fn hybrid(slots: u64) -> World {
    World::recurrent(vec![per_token(4), strided(3, 6), window(16, 4)], PLENTY, &[0; 3], slots)
}

/// Computes the tokens of a new sequence in one step, keeps its end and ends it.
fn computed(world: &mut World, namespace: u64, tokens: u32) {
    let i = world.start(namespace, counting(0, tokens), 0);
    world.step(&[i], tokens as usize, tokens as usize, 1).unwrap();
    world.retire(i);
}

/// The step of the next token of a sequence, which is computed.
fn next_step(world: &mut World, i: usize) -> RecurrentStep {
    let sequence = &mut world.sequences[i];
    let (start, namespace) = (sequence.lease.len(), sequence.namespace);
    world.cache.grow(&mut sequence.lease, start + 1).unwrap();
    let step = sequence.lease.recurrent_step(1, 0).unwrap().unwrap();
    sequence.lease.take_copies().iter().for_each(|copy| world.device.copy(copy.copy(), &world.groups));
    sequence.tokens.resize(start + 1, 7);
    world.device.advance(step, namespace, &sequence.tokens, start);
    world.device.write(&sequence.lease, &world.groups, namespace, &sequence.tokens, start);
    sequence.lease.advance(1).unwrap();
    world.check();
    step
}

#[test]
fn a_value_is_advanced_in_place_until_others_may_go_on_from_it() {
    let mut world = hybrid(10);
    let i = world.start(0, counting(0, 1), 0);
    let first = next_step(&mut world, i);
    assert_eq!((first.from, first.accepted), (NO_SLOT, 0));
    let second = next_step(&mut world, i);
    assert_eq!((second.from, second.to), (first.to, first.to));
    world.publish(i, 0, Resume::Passing);
    assert_eq!(next_step(&mut world, i).to, first.to, "a sequence that is passing leaves no value");
    world.publish(i, 0, Resume::Keep);
    let moved = next_step(&mut world, i);
    assert_eq!(moved.from, first.to);
    assert_ne!(moved.to, first.to, "the kept value is not written any more");
    assert_eq!(next_step(&mut world, i).from, moved.to);
}

#[test]
fn many_go_on_from_one_value_without_a_copy() {
    let mut world = hybrid(10);
    computed(&mut world, 0, 10);
    let sequences: Vec<usize> = (0..3).map(|_| world.start(0, counting(0, 20), 19)).collect();
    let steps: Vec<_> = sequences.iter().map(|&i| next_step(&mut world, i)).collect();
    assert!(steps.iter().all(|step| step.from == steps[0].from && step.to != step.from));
    assert_eq!(world.cache.slot_usage().capacity, 4);
}

#[test]
fn a_prefix_is_found_only_where_a_value_hangs() {
    let mut world = hybrid(10);
    let i = world.start(0, counting(0, 25), 0);
    for (rows, resume) in [(10, Resume::Keep), (7, Resume::Passing), (8, Resume::Keep)] {
        world.step(&[i], rows, rows, 1).unwrap();
        world.publish(i, 0, resume);
    }
    for (at_most, found) in [(25, 25), (24, 10), (17, 10), (10, 10), (9, 0)] {
        let j = world.start(0, counting(0, 25), at_most);
        assert_eq!(world.sequences[j].lease.len(), found, "of at most {at_most}");
    }
}

#[test]
fn accepted_rows_are_part_of_a_kept_value_and_rejected_ones_are_not() {
    let mut world = hybrid(10);
    let i = world.start(0, counting(0, 10), 0);
    world.step(&[i], 10, 10, 1).unwrap();
    // Four drafted tokens, of which two are right.
    world.sequences[i].tokens.extend([50, 51, 60, 61]);
    world.step(&[i], 4, 2, 0).unwrap();
    world.publish(i, 0, Resume::Keep);
    world.check();
    let mut tokens = counting(0, 10);
    tokens.extend([50, 51, 52]);
    let j = world.start(0, tokens, 12);
    let step = next_step(&mut world, j);
    assert_eq!((step.accepted, world.sequences[j].lease.len()), (2, 13));
    assert_eq!(world.sequences[i].lease.truncate(9), Err(LeaseError::Taken { to: 9, taken: 10 }));
    world.sequences[i].lease.truncate(11).unwrap();
    assert_eq!(next_step(&mut world, i).accepted, 1);
}

#[test]
fn the_value_that_was_not_gone_on_from_for_longest_goes_first() {
    let mut world = hybrid(3);
    (0..3).for_each(|namespace| computed(&mut world, namespace, 8));
    let used = world.start(0, counting(0, 9), 8);
    drop(world.sequences.swap_remove(used));
    computed(&mut world, 3, 8);
    world.check();
    let found: Vec<usize> = (0..4)
        .map(|namespace| {
            let i = world.start(namespace, counting(0, 9), 8);
            world.sequences.swap_remove(i).lease.len()
        })
        .collect();
    assert_eq!(found, [8, 0, 8, 8]);
}

#[test]
fn with_one_slot_a_sequence_takes_over_the_value_it_goes_on_from() {
    let mut world = hybrid(1);
    computed(&mut world, 0, 8);
    let i = world.start(0, counting(0, 12), 11);
    assert_eq!(world.sequences[i].lease.len(), 8);
    let other = world.start(1, counting(0, 3), 0);
    assert_eq!(world.step(&[other], 3, 3, 1), Err(NoRoom::Slots));
    let step = next_step(&mut world, i);
    assert_eq!(step.from, step.to, "nobody else can have it any more");
    assert_eq!(NoRoom::Slots.to_string(), world.step(&[other], 3, 3, 1).unwrap_err().to_string());
}

#[test]
fn a_lease_that_was_not_grown_cannot_be_stepped() {
    let mut world = hybrid(4);
    let i = world.start(0, counting(0, 4), 0);
    let lease = &mut world.sequences[i].lease;
    assert_eq!(lease.recurrent_step(1, 0), Err(LeaseError::NoSlot { len: 0 }));
    world.cache.grow(lease, 4).unwrap();
    assert_eq!(lease.advance(1), Err(LeaseError::NoStep { to: 1 }));
    lease.recurrent_step(4, 1).unwrap();
    assert_eq!(lease.advance(2), Err(LeaseError::Taken { to: 2, taken: 3 }), "three rows were certain");
    lease.advance(3).unwrap();
}
