//! Behaviour worth reading as a story.

use std::cmp::Ordering;

use super::{per_token, window, world::World};
use crate::cache::{Candidate, EvictionPolicy, LeaseError, NoRoom, PoolError, Resume, StateCache, one_sequence};

const PLENTY: u64 = 1 << 40;

/// Computes all of a sequence's tokens in steps of `rows`, publishing after each.
fn compute(world: &mut World, i: usize, rows: usize) {
    while world.sequences[i].lease.len() < world.sequences[i].tokens.len() {
        let left = world.sequences[i].tokens.len() - world.sequences[i].lease.len();
        world.step(&[i], rows.min(left), rows.min(left), 0).unwrap();
        world.publish(i, 0, Resume::Passing);
        world.check();
    }
}

fn counting(from: u32, tokens: u32) -> Vec<u32> {
    (from..from + tokens).collect()
}

#[test]
fn a_second_request_uses_what_a_running_one_has_computed() {
    let mut world = World::new(vec![per_token(16)], PLENTY, &[0]);
    let first = world.start(0, counting(0, 100), 99);
    assert_eq!(world.sequences[first].lease.len(), 0);
    compute(&mut world, first, 40);

    let mut tokens = counting(0, 70);
    tokens.extend(counting(500, 30));
    let second = world.start(0, tokens, 99);
    assert_eq!(world.sequences[second].lease.len(), 70);
    let shared = &world.sequences[first].lease.tables()[0][..5];
    assert_eq!(shared, &world.sequences[second].lease.tables()[0][..5]);

    // The fifth page is full of the first sequence's tokens 64..80; the second needs six of them and a page to go on.
    world.cache.grow(&mut world.sequences[second].lease, 71).unwrap();
    let copies = world.sequences[second].lease.take_copies();
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0].copy().tokens, 6);
    assert_eq!(copies[0].copy().from, world.sequences[first].lease.tables()[0][4]);
    assert_eq!(copies[0].copy().to, world.sequences[second].lease.tables()[0][4]);
}

#[test]
fn publishing_a_page_in_parts_copies_nothing() {
    let mut world = World::new(vec![per_token(16)], PLENTY, &[0]);
    let i = world.start(0, counting(0, 50), 49);
    compute(&mut world, i, 1);
    assert_eq!(world.cache.usage()[0].capacity, 4);
    assert_eq!(world.cache.tree.live().count(), 1);
}

#[test]
fn sequences_that_computed_the_same_at_once_end_up_with_one_copy() {
    let mut world = World::new(vec![per_token(4)], PLENTY, &[0]);
    let (a, b) = (world.start(0, counting(0, 16), 15), world.start(0, counting(0, 16), 15));
    world.step(&[a, b], 16, 16, 0).unwrap();
    assert_eq!(world.cache.usage()[0].used, 8);
    world.publish(a, 0, Resume::Passing);
    world.publish(b, 0, Resume::Passing);
    world.check();
    assert_eq!(world.cache.usage()[0].used, 4);
}

#[test]
fn namespaces_do_not_share() {
    let mut world = World::new(vec![per_token(4)], PLENTY, &[0]);
    let a = world.start(1, counting(0, 16), 15);
    compute(&mut world, a, 16);
    let b = world.start(2, counting(0, 16), 15);
    assert_eq!(world.sequences[b].lease.len(), 0);
}

#[test]
fn window_pages_are_kept_only_before_resume_points() {
    let mut world = World::new(vec![window(8, 4)], PLENTY, &[0]);
    let i = world.start(0, counting(0, 100), 99);
    compute(&mut world, i, 4);
    assert!(world.cache.usage()[0].capacity <= 5, "a passing sequence leaves no window pages behind");

    let elsewhere = world.start(0, counting(0, 60), 59);
    assert_eq!(world.sequences[elsewhere].lease.len(), 0, "rows before 60 are gone");
    let end = world.start(0, counting(0, 120), 119);
    assert_eq!(world.sequences[end].lease.len(), 100);
}

#[test]
fn a_kept_end_can_be_resumed_after_its_conversation_went_on() {
    let mut world = World::new(vec![per_token(4), window(8, 4)], PLENTY, &[0, 0]);
    let i = world.start(0, counting(0, 41), 40);
    world.step(&[i], 41, 41, 0).unwrap();
    world.publish(i, 0, Resume::Keep);
    world.sequences[i].tokens.extend(counting(41, 100));
    compute(&mut world, i, 7);
    let mut other = counting(0, 41);
    other.extend(counting(900, 10));
    let other = world.start(0, other, 50);
    assert_eq!(world.sequences[other].lease.len(), 41);
}

#[test]
fn a_superseded_resume_point_goes_before_any_prefix() {
    let groups = vec![per_token(4), window(8, 4)];
    let mut world = World::new(groups, 40 * 40, &[28, 4]);
    let i = world.start(0, counting(0, 20), 19);
    world.step(&[i], 20, 20, 0).unwrap();
    world.publish(i, 0, Resume::Keep);
    world.sequences[i].tokens.extend(counting(20, 40));
    compute(&mut world, i, 4);
    world.retire(i);
    let before = world.cache.usage()[1].cached;
    assert_eq!(before, 4);

    // Twelve window pages exist at most; a long step wants nine.
    let j = world.start(1, counting(0, 36), 35);
    world.step(&[j], 36, 36, 0).unwrap();
    let counters = world.cache.counters();
    assert_eq!((counters.evictions, counters.tokens_evicted), (1, 0));
    world.check();
    let again = world.start(0, counting(0, 61), 60);
    assert_eq!(world.sequences[again].lease.len(), 60);
}

#[test]
fn the_least_recently_used_prefix_is_shortened_from_its_end() {
    let mut world = World::new(vec![per_token(4)], 40 * 10, &[10]);
    for namespace in 0..2 {
        let i = world.start(namespace, counting(0, 20), 19);
        compute(&mut world, i, 20);
        world.retire(i);
    }
    let used = world.start(0, counting(0, 20), 20);
    drop(world.sequences.swap_remove(used));

    let i = world.start(2, counting(0, 8), 7);
    world.step(&[i], 8, 8, 0).unwrap();
    world.check();
    assert_eq!(world.cache.counters().tokens_evicted, 8);
    let (a, b) = (world.start(0, counting(0, 20), 20), world.start(1, counting(0, 20), 20));
    assert_eq!((world.sequences[a].lease.len(), world.sequences[b].lease.len()), (20, 12));
}

#[test]
fn pages_in_use_are_never_evicted() {
    let mut world = World::new(vec![per_token(4)], 40 * 4, &[4]);
    let a = world.start(0, counting(0, 12), 11);
    compute(&mut world, a, 12);
    let b = world.start(1, counting(0, 8), 7);
    let refused = world.step(&[b], 8, 8, 0).unwrap_err();
    assert_eq!(refused, NoRoom::Pages { group: 0, missing: 1 });
    assert_eq!(
        refused.to_string(),
        "state group 0: 1 pages too few are unused; end or displace another sequence first"
    );
    drop(world.sequences.swap_remove(a));
    world.step(&[0], 8, 8, 0).unwrap();
    world.check();
}

#[test]
fn a_policy_decides_what_goes() {
    #[derive(Debug)]
    struct ShortestFirst;
    impl EvictionPolicy for ShortestFirst {
        fn order(&self, a: &Candidate, b: &Candidate) -> Ordering {
            a.tokens.cmp(&b.tokens)
        }
    }
    let mut world = World::new(vec![per_token(4)], 40 * 6, &[6]);
    world.cache = StateCache::new(&world.groups, 240, &[6]).unwrap().with_policy(Box::new(ShortestFirst));
    for (namespace, tokens) in [(0, 16), (1, 8)] {
        let i = world.start(namespace, counting(0, tokens), 0);
        compute(&mut world, i, 16);
        world.retire(i);
    }
    let i = world.start(2, counting(0, 4), 3);
    world.step(&[i], 4, 4, 0).unwrap();
    let (a, b) = (world.start(0, counting(0, 16), 16), world.start(1, counting(0, 8), 8));
    assert_eq!((world.sequences[a].lease.len(), world.sequences[b].lease.len()), (16, 4));
}

#[test]
fn rejected_rows_can_be_taken_back_and_published_ones_are_not_overwritten() {
    let mut world = World::new(vec![per_token(8)], PLENTY, &[0]);
    let i = world.start(0, counting(0, 30), 29);
    compute(&mut world, i, 30);
    world.sequences[i].lease.truncate(20).unwrap();
    world.sequences[i].tokens.truncate(20);
    world.sequences[i].tokens.extend(counting(700, 10));
    compute(&mut world, i, 10);
    let j = world.start(0, counting(0, 30), 30);
    assert_eq!(world.sequences[j].lease.len(), 30);
    world.check();
}

#[test]
fn a_window_cannot_be_rolled_back_past_its_rows() {
    let mut world = World::new(vec![per_token(4), window(4, 4)], PLENTY, &[0, 0]);
    let i = world.start(0, counting(0, 40), 39);
    compute(&mut world, i, 4);
    let lease = &mut world.sequences[i].lease;
    assert_eq!(lease.truncate(20), Err(LeaseError::Forgotten { to: 20, group: 1 }));
    lease.truncate(39).unwrap();
    assert_eq!(lease.advance(5), Err(LeaseError::NotReserved { to: 44, reserved: 39 }));
}

#[test]
fn publishing_more_than_is_computed_is_refused() {
    let mut cache = StateCache::new(&[per_token(4)], PLENTY, &[0]).unwrap();
    let mut lease = cache.acquire(0, &[1, 2, 3], 2).lease;
    let error = cache.publish(&mut lease, &[1, 2, 3], Resume::Keep).unwrap_err();
    assert_eq!(error.to_string(), "cannot publish 3 tokens: the state of only 0 is computed");
}

#[test]
fn pools_that_cannot_work_are_refused() {
    let groups = [per_token(4), window(8, 4)];
    assert_eq!(one_sequence(&groups, 100, 16), [26, 10]);
    let needed = 36 * 40;
    assert_eq!(
        StateCache::new(&groups, 1000, &[26, 10]).unwrap_err(),
        PoolError::Budget { needed, budget: 1000 },
        "each page has 40 bytes"
    );
    assert_eq!(StateCache::new(&groups, 1000, &[1]).unwrap_err(), PoolError::Groups { expected: 2, found: 1 });
    assert_eq!(StateCache::new(&[per_token(0)], 1000, &[1]).unwrap_err(), PoolError::EmptyPage { group: 0 });
}

#[test]
fn pages_return_from_other_threads() {
    let mut cache = StateCache::new(&[per_token(4)], PLENTY, &[0]).unwrap();
    let mut lease = cache.acquire(0, &[], 0).lease;
    cache.grow(&mut lease, 40).unwrap();
    std::thread::spawn(move || drop(lease)).join().unwrap();
    assert_eq!(cache.usage()[0].free, 10);
}

#[test]
fn many_short_conversations_take_the_memory_of_a_few() {
    let mut world = World::new(vec![per_token(4)], PLENTY, &[0]);
    let mut serve = |tokens: Vec<u32>| {
        let (len, i) = (tokens.len(), world.start(0, tokens.clone(), tokens.len() - 1));
        let found = world.sequences[i].lease.len();
        world.step(&[i], len - found, len - found, 0).unwrap();
        world.copies.clear();
        world.retire(i);
        (found, world.cache.capacity(0))
    };
    let short = |i: u32| vec![1000 + i, 2, 3, 4, 5, 6];
    let (_, of_one) = serve(counting(0, 400));
    let (_, after_a_hundred) = (0..100).map(|i| serve(short(i))).last().unwrap();
    assert!(after_a_hundred > of_one + 32);
    let (_, after_a_thousand) = (100..1000).map(|i| serve(short(i))).last().unwrap();
    assert_eq!(after_a_thousand, after_a_hundred);
    assert_eq!(serve(counting(0, 400)).0, 399, "a long one is kept");
    assert_eq!(serve(short(980)).0, 5, "so are those of late");
    assert_eq!(serve(short(100)).0, 0);
}
