//! Attention: against plain loops over what is stored, and bit by bit against itself however the work is cut.

use std::sync::Arc;

use bantam_backend::KvType;
use bantam_cuda::{
    Buffer, Device,
    attention::{
        Attend, Heads, Keys, Merge, Partials, Queries, Rotate, Sight, Source, pieces_of, suits_tensor_cores, tiles,
    },
    state::{NONE, Shape, State},
};
use proptest::prelude::*;

use crate::bench::{PAGE_ROWS, Pages, Rows, Run, bits, device, distance, noise, rows_of, stored_head};

/// What an op looks at beside its keys.
#[derive(Clone, Copy, Debug, Default)]
struct Beside {
    window: usize,
    sinks: bool,
    /// The states are another graph's.
    lent: bool,
    /// A query sees the whole step.
    block: bool,
    /// Tokens of a block, and how many are chosen.
    select: Option<(usize, usize)>,
    /// Stride of compressed keys, their type, and how many are chosen.
    compressed: Option<(usize, KvType, Option<usize>)>,
}

/// An attention over sequences with keys, values and queries of all their tokens.
struct Op {
    heads: Heads,
    beside: Beside,
    scale: f32,
    /// Of each sequence, all tokens.
    q: Vec<Vec<f32>>,
    k: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
    compressed: Vec<Vec<f32>>,
    /// Choices of each sequence, `[token][ids]`.
    chosen: Vec<Vec<u32>>,
    sinks: Vec<f32>,
    tokens: Vec<usize>,
    tensor_cores: bool,
}

impl Op {
    fn new(heads: Heads, beside: Beside, tokens: &[usize], seed: u64) -> Self {
        let sequences = |width: usize, seed: u64| -> Vec<Vec<f32>> {
            tokens.iter().enumerate().map(|(s, tokens)| noise(tokens * width, seed + 1000 * s as u64)).collect()
        };
        let (all, kv, dim) = ((heads.group * heads.kv_heads) as usize, heads.kv_heads as usize, heads.dim as usize);
        let mut op = Op {
            heads,
            beside,
            scale: 2.0 / (dim as f32).sqrt(),
            q: sequences(all * dim, seed + 1).into_iter().map(|q| q.into_iter().map(|x| 2.0 * x).collect()).collect(),
            k: sequences(kv * dim, seed + 2),
            v: sequences(kv * heads.value_dim as usize, seed + 3),
            compressed: beside.compressed.map_or_else(Vec::new, |_| sequences(kv * dim, seed + 4)),
            chosen: Vec::new(),
            sinks: noise(all, seed + 5),
            tokens: tokens.to_vec(),
            tensor_cores: false,
        };
        op.choose(seed);
        op
    }

    /// The same, with tensor cores.
    fn with_tensor_cores(self) -> Self {
        assert!(suits_tensor_cores(&self.heads));
        Op { tensor_cores: true, ..self }
    }

    /// Tokens that an id stands for, and ids of a query.
    fn choice(&self) -> Option<(usize, usize)> {
        self.beside.select.or(self.beside.compressed.and_then(|(stride, _, count)| count.map(|count| (stride, count))))
    }

    fn choose(&mut self, seed: u64) {
        let Some((block, count)) = self.choice() else { return };
        for (s, tokens) in self.tokens.iter().enumerate() {
            let mut chosen = Vec::new();
            for p in 0..*tokens {
                let complete = (p + 1) / block;
                let scores = noise(complete, seed + 77 * p as u64 + s as u64);
                let mut ids: Vec<u32> = (0..complete as u32).collect();
                ids.sort_by(|a, b| scores[*a as usize].total_cmp(&scores[*b as usize]));
                ids.truncate(count);
                ids.sort_unstable();
                ids.resize(count, NONE);
                chosen.extend(ids);
            }
            self.chosen.push(chosen);
        }
    }

    fn kv_shapes(&self) -> Vec<Shape> {
        let Heads { kv_heads, dim, value_dim, k_type, v_type, values_in_keys, .. } = self.heads;
        let shape = |ty, dim: u32| Shape { ty, heads: kv_heads as usize, dim: dim as usize };
        let mut shapes = vec![shape(k_type, dim)];
        if !values_in_keys {
            shapes.push(shape(v_type, value_dim));
        }
        shapes
    }

    /// The rows of steps over these sequences, one step after another, `[sequence][token]`. Parts of a step's work are split
    /// or not as told.
    fn run(&self, device: &Arc<dyn Device>, steps: &[Vec<Run>], split: bool) -> Vec<Vec<f32>> {
        let mut pages = Pages::new(device, &self.kv_shapes(), 1, &self.tokens);
        let strided = self.beside.compressed.map(|(stride, ty, _)| {
            let shape = Shape { ty, heads: self.heads.kv_heads as usize, dim: self.heads.dim as usize };
            (stride, Pages::new(device, &[shape], stride, &self.tokens))
        });
        let width = (self.heads.group * self.heads.kv_heads * self.heads.value_dim) as usize;
        let mut out: Vec<Vec<f32>> = self.tokens.iter().map(|tokens| vec![f32::NAN; tokens * width]).collect();
        for runs in steps {
            let rows = Rows::tokens(device, runs);
            if self.beside.window > 0 && !self.beside.lent {
                let first: Vec<usize> =
                    runs.iter().map(|(start, _)| (start + 1).saturating_sub(self.beside.window)).collect();
                pages.forget(device, &first);
            }
            if !self.beside.lent && !self.beside.block {
                self.store(device, &pages, runs, &rows);
            }
            if let Some((stride, pages)) = &strided {
                let rows = Rows::strided(device, runs, *stride);
                let width = (self.heads.kv_heads * self.heads.dim) as usize;
                let done: Vec<Run> = runs
                    .iter()
                    .map(|(start, rows)| (start / stride, (start + rows) / stride - start / stride))
                    .collect();
                pages.store(device, 0, &rows_of(&self.compressed, width, &done), &rows);
            }
            let y = self.attend(device, runs, &rows, &pages, strided.as_ref().map(|(_, pages)| pages), split);
            let mut y = y.chunks(width);
            for (s, (start, rows)) in runs.iter().enumerate() {
                for p in *start..start + rows {
                    out[s][p * width..(p + 1) * width].copy_from_slice(y.next().unwrap());
                }
            }
            if self.beside.lent || self.beside.block {
                self.store(device, &pages, runs, &rows);
            }
        }
        out
    }

    fn store(&self, device: &Arc<dyn Device>, pages: &Pages, runs: &[Run], rows: &Rows) {
        let Heads { kv_heads, dim, value_dim, values_in_keys, .. } = self.heads;
        pages.store(device, 0, &rows_of(&self.k, (kv_heads * dim) as usize, runs), rows);
        if !values_in_keys {
            pages.store(device, 1, &rows_of(&self.v, (kv_heads * value_dim) as usize, runs), rows);
        }
    }

    fn attend(
        &self,
        device: &Arc<dyn Device>,
        runs: &[Run],
        rows: &Rows,
        pages: &Pages,
        strided: Option<&Pages>,
        split: bool,
    ) -> Vec<f32> {
        let Heads { group, kv_heads, dim, value_dim, values_in_keys, .. } = self.heads;
        let all = group * kv_heads;
        let q = Buffer::of_f32(device, &rows_of(&self.q, (all * dim) as usize, runs), "q").unwrap();
        let sinks = self.beside.sinks.then(|| Buffer::of_f32(device, &self.sinks, "sinks").unwrap());
        let ids: Vec<u32> = match self.choice() {
            None => Vec::new(),
            Some((_, count)) => {
                let of = |(ids, (start, rows)): (&Vec<u32>, &Run)| ids[start * count..(start + rows) * count].to_vec();
                self.chosen.iter().zip(runs).flat_map(of).collect()
            }
        };
        let ids = Buffer::of_u32(device, &ids, "ids").unwrap();
        let ids_of = |choice: Option<usize>| (choice.map_or(0, |_| ids.address()), choice.unwrap_or(0) as u32);
        let longest = runs.iter().map(|(start, rows)| start + rows).max().unwrap() as u32;

        let (chosen, count) = ids_of(self.beside.select.map(|(_, count)| count));
        let sight = match (self.beside.block, self.beside.lent) {
            (true, _) => Sight::Past,
            (_, true) => Sight::Before,
            _ => Sight::Stored,
        };
        let own = Pages::new(device, &self.kv_shapes(), 1, &[PAGE_ROWS]);
        let value = |pages: &Pages| pages.state(usize::from(!values_in_keys));
        let first = Keys {
            k: pages.state(0),
            v: value(pages),
            ids: chosen,
            ids_width: count,
            block: self.beside.select.map_or(0, |(block, _)| block as u32),
            window: self.beside.window as u32,
            sight: sight as u32,
        };
        let mut sources = vec![(self.heads, first, longest)];
        if let (Some(pages), Some((_, ty, choice))) = (strided, self.beside.compressed) {
            let (ids, ids_width) = ids_of(choice);
            let sight = if self.beside.lent { Sight::RowsBefore } else { Sight::Rows };
            let k = pages.state(0);
            let keys = Keys { k, v: k, ids, ids_width, block: 0, window: 0, sight: sight as u32 };
            sources.push((Heads { k_type: ty, v_type: ty, values_in_keys: true, ..self.heads }, keys, longest));
        }
        if self.beside.block {
            // The step's own rows, rounded as the others are, in a page of their own.
            let whole = |state: State| State { tables: 0, page_rows: PAGE_ROWS as u32, ..state };
            let (k, v) = (whole(own.state(0)), whole(value(&own)));
            self.store_own(device, &own, runs, rows);
            let keys = Keys { k, v, ids: 0, ids_width: 0, block: 0, window: 0, sight: Sight::Step as u32 };
            sources.push((self.heads, keys, PAGE_ROWS as u32));
        }

        let (mut buffers, mut results) = (Vec::new(), Vec::new());
        for (heads, keys, most) in &sources {
            let attend = Attend::new(&**device, *heads, self.tensor_cores).unwrap();
            let chosen = keys.ids != 0;
            let most = if chosen { keys.ids_width * keys.block.max(1) + keys.block } else { *most };
            let pieces = if split { pieces_of(most, keys.window) } else { 1 };
            let [marks, sums] =
                Partials::bytes(rows.len(), all as usize, pieces as usize, heads.value_width() as usize)
                    .map(|bytes| Buffer::new(device, bytes, "partials").unwrap());
            let partials = Partials {
                marks: marks.address(),
                sums: sums.address(),
                pieces,
                width: heads.value_width(),
                split: u32::from(split),
            };
            let turned = Buffer::new(device, rows.len() * (all * heads.width()) as usize * 4, "turned").unwrap();
            let is_rotated = heads.k_type.code_bits().is_some();
            if is_rotated {
                let count = rows.len() as u32 * all;
                Rotate::new(&**device)
                    .unwrap()
                    .run(&**device, [q.address(), turned.address()], count, [dim, heads.width()])
                    .unwrap();
            }
            let mut cut = Vec::new();
            tiles(runs.iter().map(|(_, rows)| *rows as u32), attend.tile_rows(chosen), &mut cut);
            let cut_there = Buffer::of_u32(device, &cut, "tiles").unwrap();
            let queries = Queries {
                q: if is_rotated { turned.address() } else { q.address() },
                tiles: cut_there.address(),
                heads: all,
                group,
                width: heads.width(),
                scale: self.scale,
            };
            attend.run(&**device, (&queries, cut.len() as u32 / 2), &rows.step, keys, &partials).unwrap();
            results.push(Source { partials, is_rotated: u32::from(heads.v_type.code_bits().is_some()) });
            buffers.extend([marks, sums, turned, cut_there]);
        }
        let none = (&Source::default(), &Keys::default());
        let of = |i: usize| results.get(i).zip(sources.get(i)).map_or(none, |(result, (_, keys, _))| (result, keys));
        let out = Buffer::new(device, rows.len() * (all * value_dim) as usize * 4, "out").unwrap();
        let sinks_there = sinks.as_ref().map_or(0, Buffer::address);
        Merge::new(&**device)
            .unwrap()
            .run(&**device, &rows.step, [of(0), of(1)], (sinks_there, out.address()), [all, value_dim])
            .unwrap();
        out.read_f32().unwrap()
    }

    /// Rows of the step by their numbers.
    fn store_own(&self, device: &Arc<dyn Device>, own: &Pages, runs: &[Run], rows: &Rows) {
        let Heads { kv_heads, dim, value_dim, values_in_keys, .. } = self.heads;
        let put = |index: usize, x: &[f32], pitch: u32| {
            let x = Buffer::of_f32(device, x, "own").unwrap();
            let state = State { tables: 0, ..own.state(index) };
            let store = bantam_cuda::state::Store::new(&**device, own.shapes[index].ty).unwrap();
            store.run(&**device, x.address(), pitch, &rows.step, &state).unwrap();
        };
        put(0, &rows_of(&self.k, (kv_heads * dim) as usize, runs), kv_heads * dim);
        if !values_in_keys {
            put(1, &rows_of(&self.v, (kv_heads * value_dim) as usize, runs), kv_heads * value_dim);
        }
    }

    /// What plain loops give, for steps that begin at these tokens.
    fn wanted(&self, device: &Arc<dyn Device>, starts: &[Vec<usize>]) -> Vec<Vec<f64>> {
        let whole: Vec<Run> = self.tokens.iter().map(|tokens| (0, *tokens)).collect();
        let pages = Pages::new(device, &self.kv_shapes(), 1, &self.tokens);
        let rows = Rows::tokens(device, &whole);
        self.store(device, &pages, &whole, &rows);
        let pool = pages.pool.read().unwrap();
        let further = self.beside.compressed.map(|(stride, ty, _)| {
            let shape = Shape { ty, heads: self.heads.kv_heads as usize, dim: self.heads.dim as usize };
            let pages = Pages::new(device, &[shape], stride, &self.tokens);
            let rows = Rows::strided(device, &whole, stride);
            let done: Vec<Run> = self.tokens.iter().map(|tokens| (0, tokens / stride)).collect();
            let width = (self.heads.kv_heads * self.heads.dim) as usize;
            pages.store(device, 0, &rows_of(&self.compressed, width, &done), &rows);
            let pool = pages.pool.read().unwrap();
            (stride, pages, pool)
        });
        let Heads { group, kv_heads, dim, value_dim, values_in_keys, .. } = self.heads;
        let (group, dim, value_dim) = (group as usize, dim as usize, value_dim as usize);
        let all = group * kv_heads as usize;
        let place = |pages: &Pages, s: usize, row: usize| (pages.tables[s][row / PAGE_ROWS], row % PAGE_ROWS);
        let mut out = Vec::new();
        for (s, tokens) in self.tokens.iter().enumerate() {
            let mut keys: Vec<Vec<(Vec<f64>, Vec<f64>)>> = Vec::new();
            for t in 0..*tokens {
                let of_head = |h: usize| {
                    let key = stored_head(&pages, &pool, 0, place(&pages, s, t), h);
                    let value = if values_in_keys {
                        key[..value_dim].to_vec()
                    } else {
                        stored_head(&pages, &pool, 1, place(&pages, s, t), h)
                    };
                    (key, value)
                };
                keys.push((0..kv_heads as usize).map(of_head).collect());
            }
            let more: Vec<Vec<Vec<f64>>> = further.as_ref().map_or_else(Vec::new, |(stride, pages, pool)| {
                let of = |w: usize| {
                    (0..kv_heads as usize).map(|h| stored_head(pages, pool, 0, place(pages, s, w), h)).collect()
                };
                (0..tokens / stride).map(of).collect()
            });
            let mut rows = Vec::new();
            for p in 0..*tokens {
                let start = *starts[s].iter().rfind(|start| **start <= p).unwrap();
                let end = starts[s].iter().find(|start| **start > p).copied().unwrap_or(*tokens);
                for h in 0..all {
                    let q: Vec<f64> = self.q[s][(p * all + h) * dim..][..dim].iter().map(|x| f64::from(*x)).collect();
                    let mut seen: Vec<(&[f64], &[f64])> = Vec::new();
                    for t in (0..*tokens).filter(|t| self.sees(s, p, *t, (start, end))) {
                        let (key, value) = &keys[t][h / group];
                        seen.push((key, value));
                    }
                    for w in (0..more.len()).filter(|w| self.sees_row(s, p, *w, start)) {
                        seen.push((&more[w][h / group], &more[w][h / group]));
                    }
                    rows.extend(self.mixed(&q, &seen, h, value_dim));
                }
            }
            out.push(rows);
        }
        out
    }

    fn sees(&self, s: usize, p: usize, t: usize, (start, end): Run) -> bool {
        let Beside { window, lent, block, select, .. } = self.beside;
        if block {
            return t >= start && t < end || t < start && (window == 0 || t + window >= start);
        }
        let is_chosen = |(tokens, count): (usize, usize)| {
            t / tokens >= (p + 1) / tokens
                || self.chosen[s][p * count..(p + 1) * count].contains(&((t / tokens) as u32))
        };
        t <= p && (!lent || t < start) && (window == 0 || t + window > p) && select.is_none_or(is_chosen)
    }

    fn sees_row(&self, s: usize, p: usize, w: usize, start: usize) -> bool {
        let Some((stride, _, chosen)) = self.beside.compressed else { return false };
        let complete = if self.beside.lent { start } else { p + 1 } / stride;
        w < complete && chosen.is_none_or(|count| self.chosen[s][p * count..(p + 1) * count].contains(&(w as u32)))
    }

    fn mixed(&self, q: &[f64], seen: &[(&[f64], &[f64])], head: usize, value_dim: usize) -> Vec<f64> {
        if seen.is_empty() {
            return vec![0.0; value_dim];
        }
        let dot = |k: &[f64]| q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>() * f64::from(self.scale);
        let mut scores: Vec<f64> = seen.iter().map(|(k, _)| dot(k)).collect();
        if self.beside.sinks {
            scores.push(self.sinks[head].into());
        }
        let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - greatest).exp()).collect();
        let total: f64 = weights.iter().sum();
        (0..value_dim).map(|d| weights.iter().zip(seen).map(|(w, (_, v))| w * v[d]).sum::<f64>() / total).collect()
    }

    /// Checks the op on a step after another against plain loops, split and whole, and that cuts do not show in the bits.
    fn check(&self, cuts: &[usize], most: f64) {
        let device = device();
        let steps = |cuts: &[usize]| -> Vec<Vec<Run>> {
            let ends: Vec<usize> = cuts.iter().copied().chain([usize::MAX]).collect();
            let part = |i: usize| {
                let from = if i == 0 { 0 } else { ends[i - 1] };
                let of = |tokens: &usize| (from.min(*tokens), ends[i].min(*tokens) - from.min(*tokens));
                self.tokens.iter().map(of).collect::<Vec<Run>>()
            };
            (0..ends.len()).map(part).collect()
        };
        let starts: Vec<usize> = std::iter::once(0).chain(cuts.iter().copied()).collect();
        let wanted = self.wanted(&device, &vec![starts; self.tokens.len()]).concat();
        let found = self.run(&device, &steps(cuts), true);
        let far = distance(&found.concat(), &wanted);
        assert!(far < most, "{:?} {:?}: {far}", self.heads, self.beside);
        let whole = self.run(&device, &steps(cuts), false);
        assert_eq!(bits(&found.concat()), bits(&whole.concat()), "split and whole: {:?} {:?}", self.heads, self.beside);
        if !self.beside.lent && !self.beside.block {
            let once = self.run(&device, &steps(&[]), false);
            assert_eq!(bits(&found.concat()), bits(&once.concat()), "at once: {:?} {:?}", self.heads, self.beside);
        }
    }
}

const PLAIN: Heads = Heads {
    group: 2,
    kv_heads: 2,
    dim: 16,
    value_dim: 16,
    k_type: KvType::F16,
    v_type: KvType::F16,
    values_in_keys: false,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn causal_queries_see_what_is_stored(
        (group, kv_heads) in prop::sample::select(vec![(1u32, 2u32), (3, 1), (8, 1), (11, 1), (4, 2)]),
        (dim, value_dim) in prop::sample::select(vec![(16u32, 16u32), (24, 20), (37, 7), (64, 64), (40, 130)]),
        tokens in prop::collection::vec(1usize..90, 1..4),
        (cut, window, sinks) in (0usize..60, prop::sample::select(vec![0usize, 0, 1, 20, 33]), any::<bool>()),
        lent in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let heads = Heads { group, kv_heads, dim, value_dim, ..PLAIN };
        Op::new(heads, Beside { window, sinks, lent, ..Beside::default() }, &tokens, seed).check(&[cut, cut + 1], 1e-4);
    }
}

#[test]
fn all_types_of_keys_and_values() {
    use KvType::*;
    for (i, (k_type, v_type)) in
        [(F32, Bf16), (Bf16, Q8_0), (Q8_0, Turbo4), (Turbo4, Turbo3), (Turbo3, F32), (Turbo4, Turbo4)]
            .into_iter()
            .enumerate()
    {
        let heads = Heads { dim: 24, value_dim: [32, 48, 20][i % 3], k_type, v_type, ..PLAIN };
        let beside = Beside { window: [0, 30][i % 2], sinks: i % 2 == 0, ..Beside::default() };
        Op::new(heads, beside, &[70, 3], i as u64).check(&[40], 1e-4);
    }
}

#[test]
fn long_sequences_take_several_pieces() {
    let heads = Heads { group: 4, kv_heads: 1, ..PLAIN };
    for window in [0, 257] {
        let op = Op::new(heads, Beside { window, ..Beside::default() }, &[540, 270], 5);
        op.check(&[250, 511, 512, 530], 1e-4);
    }
}

#[test]
fn values_lie_in_the_keys() {
    for (i, (group, dim, value_dim, ty)) in
        [(4, 24, 17, KvType::F32), (20, 36, 36, KvType::Q8_0), (3, 24, 17, KvType::Turbo4), (2, 700, 600, KvType::F16)]
            .into_iter()
            .enumerate()
    {
        let heads = Heads { group, kv_heads: 1, dim, value_dim, k_type: ty, v_type: ty, values_in_keys: true };
        Op::new(heads, Beside::default(), &[40], i as u64).check(&[25], 1e-4);
    }
}

#[test]
fn only_chosen_blocks_are_seen() {
    for (i, (block, count, window)) in
        [(1, 9, 0), (16, 3, 0), (3, 11, 30), (40, 1, 100), (2, 200, 0)].into_iter().enumerate()
    {
        let heads = Heads { group: 4, kv_heads: 1, dim: 24, value_dim: 20, ..PLAIN };
        let beside = Beside { window, select: Some((block, count)), ..Beside::default() };
        Op::new(heads, beside, &[if i == 4 { 420 } else { 120 }, 17], i as u64).check(&[50, 51], 1e-4);
    }
}

#[test]
fn compressed_keys_meet_the_raw_ones_in_one_softmax() {
    use KvType::*;
    for (i, (stride, ty, count, k_type, lent)) in [
        (4, F16, None, F16, false),
        (4, F32, Some(7), F32, false),
        (3, F32, Some(40), Turbo4, false),
        (40, Turbo3, None, F32, true),
        (2, Turbo4, Some(5), Turbo4, false),
    ]
    .into_iter()
    .enumerate()
    {
        let heads =
            Heads { group: 12, kv_heads: 1, dim: 24, value_dim: 24, k_type, v_type: k_type, values_in_keys: true };
        let beside =
            Beside { window: 20, sinks: true, lent, compressed: Some((stride, ty, count)), ..Beside::default() };
        Op::new(heads, beside, &[60, 20], i as u64).check(&[30, 31], 1e-4);
    }
}

#[test]
fn a_block_sees_all_of_itself() {
    use KvType::*;
    for (i, (window, ty, values_in_keys)) in
        [(0, F16, false), (19, F32, true), (0, Turbo4, false), (19, Turbo3, true)].into_iter().enumerate()
    {
        let heads = Heads { dim: 24, value_dim: 20, k_type: ty, v_type: ty, values_in_keys, ..PLAIN };
        let beside = Beside { window, block: true, ..Beside::default() };
        // Steps of up to a page, whose rows lie in one.
        Op::new(heads, beside, &[50, 11], i as u64).check(&[10, 20, 23, 35], 1e-4);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tensor_cores_give_nearly_the_same(
        (group, kv_heads) in prop::sample::select(vec![(1u32, 2u32), (3, 1), (8, 1), (5, 2)]),
        tokens in prop::collection::vec(1usize..60, 1..3),
        (cut, window, sinks) in (0usize..60, prop::sample::select(vec![0usize, 0, 1, 33]), any::<bool>()),
        lent in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let heads = Heads { group, kv_heads, dim: 32, value_dim: 48, ..PLAIN };
        let beside = Beside { window, sinks, lent, ..Beside::default() };
        Op::new(heads, beside, &tokens, seed).with_tensor_cores().check(&[cut, cut + 1], 1e-2);
    }
}

#[test]
fn tensor_cores_take_all_rounded_types_and_common_sizes() {
    use KvType::*;
    for (i, (k_type, v_type, dim, value_dim, most)) in [
        (F16, F16, 80, 80, 1e-2),
        (Bf16, F16, 64, 32, 5e-2),
        (Q8_0, Bf16, 96, 64, 5e-2),
        (Turbo4, Q8_0, 40, 64, 1e-2),
        (F16, Turbo3, 16, 24, 1e-2),
        (F16, F16, 256, 16, 1e-2),
    ]
    .into_iter()
    .enumerate()
    {
        let heads = Heads { group: 2, kv_heads: 1, dim, value_dim, k_type, v_type, ..PLAIN };
        Op::new(heads, Beside::default(), &[45], i as u64).with_tensor_cores().check(&[40, 41], most);
    }
}

#[test]
fn tensor_cores_take_several_pieces_windows_and_many_heads() {
    for (window, group) in [(0, 2), (257, 2), (40, 70)] {
        let heads = Heads { group, kv_heads: 1, ..PLAIN };
        let beside = Beside { window, ..Beside::default() };
        let tokens = if group > 64 { 66 } else { 540 };
        let op = Op::new(heads, beside, &[tokens], 5).with_tensor_cores();
        op.check(&[tokens - 30, tokens - 29], 1e-2);
    }
    // Values that are the first entries of the keys, and a block that sees all of itself.
    let heads = Heads { group: 3, kv_heads: 1, dim: 48, value_dim: 32, values_in_keys: true, ..PLAIN };
    let beside = Beside { window: 19, block: true, ..Beside::default() };
    Op::new(heads, beside, &[50], 7).with_tensor_cores().check(&[20, 23], 1e-2);
}

#[test]
fn tensor_cores_take_wide_heads_and_chosen_keys() {
    use KvType::*;
    for (i, (group, dim, value_dim, ty)) in [(20, 272, 256, F16), (40, 576, 512, Q8_0)].into_iter().enumerate() {
        let heads = Heads { group, kv_heads: 1, dim, value_dim, k_type: ty, v_type: ty, values_in_keys: true };
        Op::new(heads, Beside::default(), &[[40, 9][i]], i as u64).with_tensor_cores().check(&[7], 1e-2);
    }
    for (i, (block, count, window)) in [(1, 9, 0), (16, 3, 0), (3, 11, 30), (2, 140, 0)].into_iter().enumerate() {
        let heads = Heads { group: 4, kv_heads: 1, dim: 32, value_dim: 16, ..PLAIN };
        let beside = Beside { window, select: Some((block, count)), ..Beside::default() };
        let tokens = if i == 3 { 300 } else { 70 };
        Op::new(heads, beside, &[tokens], i as u64).with_tensor_cores().check(&[tokens - 30, tokens - 29], 1e-2);
    }
    for (stride, ty, count, k_type) in [(4, F16, None, Bf16), (3, Turbo4, Some(5), F16)] {
        let heads =
            Heads { group: 12, kv_heads: 1, dim: 32, value_dim: 32, k_type, v_type: k_type, values_in_keys: true };
        let beside = Beside { window: 20, sinks: true, compressed: Some((stride, ty, count)), ..Beside::default() };
        Op::new(heads, beside, &[60], 3).with_tensor_cores().check(&[30, 31], 5e-2);
    }
}
