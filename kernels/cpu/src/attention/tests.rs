//! Attention of several sequences in one step, held to that of each alone.

use std::sync::atomic::{AtomicUsize, Ordering};

use bantam_backend::{KvType, NO_PAGE, SequenceStep, StateGroup, Step};
use bantam_graph::StateKind;
use proptest::prelude::*;

use super::{
    quantized::HeadRoom,
    sight::{Own, Sight},
    store::{Heads, store},
    *,
};
use crate::{
    compile::ir::Attend,
    exec::frame::Shared,
    isa::Isa,
    pool::{PAGE_ROWS, Pool, StateSlot},
    step::RowMap,
};

/// A sequence of a step.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    /// Pages that it begins with of the sequence before it.
    shared: usize,
    /// Tokens behind these.
    own: usize,
    /// How many of the last of these are rows of the step.
    rows: usize,
}

fn sequences() -> impl Strategy<Value = Vec<Sequence>> {
    // Prefixes of less and of more than a segment; decoding rows, prompts, and sequences that share nothing.
    let shared = prop_oneof![Just(0usize), 1usize..12, 14usize..40];
    let rows = prop_oneof![4 => Just(1usize), 1 => 1usize..50];
    let one = (shared, 1usize..800, rows).prop_map(|(shared, own, rows)| Sequence { shared, own, rows: rows.min(own) });
    prop::collection::vec(one, 2..9)
}

/// Keys and values of a cache, and who has which page.
struct Setting {
    attend: Attend,
    pools: Vec<Pool>,
    map: RowMap,
    step: Step,
    isa: Isa,
    q: Vec<f32>,
}

fn numbers(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + seed * 104_729) % 10_007) as f32 / 2500.0 - 2.0).collect()
}

impl Setting {
    fn new(attend: Attend, isa: Isa, sequences: &[Sequence]) -> Self {
        let (mut map, mut step) = (RowMap::default(), Step::default());
        let (mut pages, mut before): (u32, Vec<u32>) = (0, Vec::new());
        for (s, &Sequence { shared, own, rows }) in sequences.iter().enumerate() {
            let mut table = before[..shared.min(before.len())].to_vec();
            let end = table.len() * PAGE_ROWS + own;
            let fresh = (end.div_ceil(PAGE_ROWS) - table.len()) as u32;
            table.extend((pages..pages + fresh).rev());
            pages += fresh;
            before.clone_from(&table);
            let start = end - rows;
            map.positions.extend((start..end).map(|p| p as u32));
            map.sequences.extend(std::iter::repeat_n(s as u32, rows));
            map.tokens.extend(std::iter::repeat_n(0, rows));
            step.sequences.push(SequenceStep { start, rows, tables: vec![table], ..SequenceStep::default() });
        }
        let slots: Vec<StateSlot> = [attend.k].into_iter().chain(attend.v).collect();
        let page_bytes = slots.iter().map(|slot| slot.heads * slot.head_bytes()).sum();
        let group = StateGroup {
            kind: StateKind::PerToken,
            page_tokens: PAGE_ROWS,
            page_bytes,
            states: (0..slots.len()).collect(),
        };
        let mut pool = Pool::new(group, slots.clone());
        pool.reserve(0, pages as usize).unwrap();
        for (seed, slot) in slots.iter().enumerate() {
            fill(&pool, slot, isa, seed);
        }
        let q = numbers(map.len() * attend.heads * attend.k.dim, 5);
        Setting { attend, pools: vec![pool], map, step, isa, q }
    }

    /// A sequence by itself: its rows alone are in the step.
    fn alone(&self, sequence: usize) -> (RowMap, Step, Vec<f32>) {
        let rows: Vec<usize> =
            (0..self.map.len()).filter(|row| self.map.sequences[*row] as usize == sequence).collect();
        let width = self.attend.heads * self.attend.k.dim;
        let map = RowMap {
            positions: rows.iter().map(|row| self.map.positions[*row]).collect(),
            sequences: vec![0; rows.len()],
            tokens: vec![0; rows.len()],
            rows: Vec::new(),
        };
        let step = Step { sequences: vec![self.step.sequences[sequence].clone()], ..Step::default() };
        (map, step, rows.iter().flat_map(|row| self.q[row * width..][..width].to_vec()).collect())
    }

    /// The bits of all results, by `threads` threads.
    fn run(&self, (map, step, q): (&RowMap, &Step, &[f32]), pieces: &Pieces, threads: usize) -> Vec<u32> {
        let attend = &self.attend;
        let mut out = vec![f32::NAN; map.len() * attend.heads * attend.value_dim];
        let partials = Partials::new(places(threads), attend.sum_width()).unwrap();
        let attention = Attention {
            attend,
            pools: &self.pools,
            step,
            rows: map,
            pieces,
            partials: &partials,
            isa: self.isa,
            q,
            sinks: None,
            chosen_blocks: None,
            chosen_rows: None,
            own: None,
            first_rows: &[],
            out: Shared::of(&mut out),
        };
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut scratch = PieceScratch::new(attend.key_width(), attend.sum_width());
                    loop {
                        let piece = taken.fetch_add(1, Ordering::Relaxed);
                        if piece >= pieces.len() {
                            break;
                        }
                        // SAFETY: all pages of the tables exist, nobody writes to them, and each piece is taken once.
                        unsafe { attention.run(piece, &mut scratch) };
                    }
                });
            }
        });
        assert!(out.iter().all(|x| x.is_finite()), "every result is written");
        out.into_iter().map(f32::to_bits).collect()
    }

    fn pieces(&self, map: &RowMap, step: &Step, threads: usize) -> Pieces {
        let mut pieces = Pieces::with_capacity(Cut::of(&self.attend), map.len(), threads, places(threads));
        pieces.lay_out(map, step);
        pieces
    }
}

/// Fills all pages with numbers.
fn fill(pool: &Pool, slot: &StateSlot, isa: Isa, seed: usize) {
    let rows = pool.pages() * PAGE_ROWS;
    let tables = vec![(0..pool.pages() as u32).collect()];
    let step = Step { sequences: vec![SequenceStep { rows, tables, ..SequenceStep::default() }], ..Step::default() };
    let map = RowMap { positions: (0..rows as u32).collect(), sequences: vec![0; rows], ..RowMap::default() };
    let values = numbers(rows * slot.heads * slot.dim, seed);
    let heads = Heads { values: &values, pitch: slot.heads * slot.dim, first: 0 };
    let mut room = HeadRoom::new(slot.dim);
    // SAFETY: the pool has these pages, and nobody else has them.
    unsafe { store(heads, (pool, slot), (&step, &map), (0..rows, 0..slot.heads), isa, &mut room) };
}

/// The step without the pages that the plan says need not be read for a sequence, and how many these are.
fn without_shared(pieces: &Pieces, step: &Step) -> (Step, usize) {
    let (mut step, mut gone) = (step.clone(), 0);
    for stretch in (0..pieces.len()).flat_map(|i| pieces.stretches(pieces.piece(i))) {
        for page in &mut step.sequences[stretch.sequence].tables[0][..stretch.shared] {
            gone += usize::from(*page != NO_PAGE);
            *page = NO_PAGE;
        }
    }
    (step, gone)
}

fn attend(heads: usize, kv_heads: usize, (k_type, v_type): (KvType, Option<KvType>)) -> Attend {
    let dim = 24;
    let k = StateSlot { group: 0, offset: 0, heads: kv_heads, dim, ty: k_type, stride: 1, transposed: true };
    let offset = kv_heads * k.head_bytes();
    let v = v_type.map(|ty| StateSlot { offset, dim: 20, ty, transposed: false, ..k });
    let sight = Sight { window: None, own: Own::Stored, block: None, compressed: None };
    Attend {
        k,
        v,
        value_dim: if v.is_some() { 20 } else { 17 },
        compressed: None,
        heads,
        scale: 0.1,
        sinks: None,
        sight,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_row_is_the_same_beside_those_that_share_its_pages(
        sequences in sequences(),
        // Grouped queries, and one head of keys whose first entries are the values.
        (heads, kv_heads) in prop::sample::select(vec![(4, 4), (6, 2), (9, 3), (16, 1), (5, 1)]),
        k_type in prop::sample::select(KvType::ALL.to_vec()),
        v_type in prop::option::weighted(0.75, prop::sample::select(KvType::ALL.to_vec())),
    ) {
        for isa in [Isa::detect(), Isa::Portable] {
            let setting = Setting::new(attend(heads, kv_heads, (k_type, v_type)), isa, &sequences);
            let mut expected = Vec::new();
            for sequence in 0..sequences.len() {
                let (map, step, q) = setting.alone(sequence);
                expected.extend(setting.run((&map, &step, &q), &setting.pieces(&map, &step, 1), 1));
            }
            let Setting { map, step, q, .. } = &setting;
            let is_short = |s: &Sequence| s.rows * heads / kv_heads <= TILE_QUERIES / 2;
            let may_share = sequences.windows(2).any(|pair| {
                pair.iter().all(is_short) && pair[1].shared.min(pair[0].own / PAGE_ROWS) >= 4
            });
            for threads in 1..5 {
                let pieces = setting.pieces(map, step, threads);
                let (step, gone) = without_shared(&pieces, step);
                prop_assert!(gone > 0 || threads > 1 || !may_share, "nothing is shared");
                prop_assert!(setting.run((map, &step, q), &pieces, threads) == expected, "{:?}, {} threads", isa, threads);
            }
        }
    }
}
