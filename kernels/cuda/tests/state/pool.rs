//! Pooling, and the choice of rows.

use bantam_backend::KvType;
use bantam_cuda::{
    Buffer,
    attention::{Keys, Rotate, Sight},
    pool::{Choice, Pool, PoolBlocks, TopKeys},
    state::{NONE, Shape},
};
use proptest::prelude::*;

use crate::bench::{PAGE_ROWS, Pages, Rows, Run, bits, device, distance, noise, rows_of, stored_head};

/// A result of plain loops for all blocks of a sequence.
fn pooled(
    x: &[f32],
    gate: Option<&[f32]>,
    bias: Option<&[f32]>,
    width: usize,
    (stride, overlap): (usize, bool),
) -> Vec<f64> {
    let channels = if overlap { width / 2 } else { width };
    let entry = |w: usize, c: usize| {
        let first = if overlap { (w * stride).saturating_sub(stride) } else { w * stride };
        let column = |t: usize| if overlap && t >= w * stride { channels + c } else { c };
        let of = |x: Option<&[f32]>, t: usize, c: usize| x.map_or(0.0, |x| f64::from(x[t * width + c]));
        let logit = |t: usize| of(gate, t, column(t)) + of(bias, t % stride, column(t));
        let tokens = first..(w + 1) * stride;
        let total: f64 = tokens.clone().map(|t| logit(t).exp()).sum();
        tokens.map(|t| of(Some(x), t, column(t)) * logit(t).exp() / total).sum::<f64>()
    };
    let blocks = x.len() / width / stride;
    (0..blocks).flat_map(|w| (0..channels).map(move |c| (w, c))).map(|(w, c)| entry(w, c)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn closed_blocks_become_rows(
        tokens in prop::collection::vec(1usize..100, 1..4),
        cuts in prop::collection::vec(0usize..100, 0..4),
        (stride, half) in (1usize..9, prop::sample::select(vec![1usize, 7, 80])),
        (gated, biased, overlap) in (any::<bool>(), any::<bool>(), any::<bool>()),
        seed in 0u64..1000,
    ) {
        let device = device();
        let (gated, width) = (gated || overlap || biased, 2 * half);
        let sequences = |seed: u64| -> Vec<Vec<f32>> {
            tokens.iter().enumerate().map(|(s, n)| noise(n * width, seed + s as u64)).collect()
        };
        let (x, gate) = (sequences(seed), sequences(seed + 50));
        let bias = noise(stride * width, seed + 99);
        let shape = Shape { ty: KvType::F32, heads: 1, dim: if gated { 2 * width } else { width } };
        let pages = Pages::new(&device, &[shape], 1, &tokens);
        let kernels = PoolBlocks::new(&*device).unwrap();
        let there = |x: &[f32]| Buffer::of_f32(&device, x, "operand").unwrap();
        let bias_there = there(&bias);
        let channels = if overlap { half } else { width };
        let mut ends: Vec<usize> = cuts.into_iter().chain([100]).collect();
        ends.sort_unstable();
        let mut found: Vec<Vec<f32>> = vec![Vec::new(); tokens.len()];
        let mut from = 0;
        for end in ends {
            let runs: Vec<Run> = tokens.iter().map(|n| (from.min(*n), end.min(*n) - from.min(*n))).collect();
            let (rows, strided) = (Rows::tokens(&device, &runs), Rows::strided(&device, &runs, stride));
            let (x, gate) = (there(&rows_of(&x, width, &runs)), there(&rows_of(&gate, width, &runs)));
            let out = Buffer::new(&device, strided.len() * channels * 4, "out").unwrap();
            let of = Pool {
                x: x.address(),
                gate: if gated { gate.address() } else { 0 },
                bias: if biased { bias_there.address() } else { 0 },
                out: out.address(),
                width: width as u32,
                stride: stride as u32,
                overlap: u32::from(overlap),
            };
            kernels.run(&*device, &of, (&rows.step, &strided.step), &pages.state(0)).unwrap();
            for (row, y) in out.read_f32().unwrap().chunks(channels).enumerate() {
                found[strided.sequence[row] as usize].extend_from_slice(y);
            }
            from = end;
        }
        for (s, found) in found.iter().enumerate() {
            let (gate, bias) = (gated.then_some(gate[s].as_slice()), biased.then_some(bias.as_slice()));
            let wanted = pooled(&x[s], gate, bias, width, (stride, overlap));
            prop_assert!(distance(found, &wanted) < 1e-4, "stride {}, sequence {}", stride, s);
        }
    }

    #[test]
    fn the_best_rows_are_listed(
        runs in prop::collection::vec((0usize..700, 1usize..5), 1..4),
        (heads, dim) in prop::sample::select(vec![(1usize, 8usize), (3, 20), (64, 128), (2, 300)]),
        (stride, count) in (1usize..5, prop::sample::select(vec![1usize, 5, 64])),
        ty in prop::sample::select(vec![KvType::F32, KvType::F16, KvType::Q8_0, KvType::Turbo4]),
        (weighted, coarse, lent) in (any::<bool>(), any::<bool>(), any::<bool>()),
        seed in 0u64..1000,
    ) {
        let device = device();
        let tokens: Vec<usize> = runs.iter().map(|(start, rows)| start + rows).collect();
        let whole: Vec<Run> = tokens.iter().map(|n| (0, *n)).collect();
        let pages = Pages::new(&device, &[Shape { ty, heads: 1, dim }], stride, &tokens);
        let all = Rows::strided(&device, &whole, stride);
        // Of coarse numbers many scores are equal.
        let round = |x: Vec<f32>| x.into_iter().map(|x| if coarse { x.round() } else { x }).collect::<Vec<f32>>();
        let coarse = coarse && ty != KvType::Turbo4;
        let keys = round(noise(all.len() * dim, seed));
        pages.store(&device, 0, &keys, &all);
        let rows = Rows::tokens(&device, &runs);
        let (q, weights) = (round(noise(rows.len() * heads * dim, seed + 1)), round(noise(rows.len() * heads, seed + 2)));
        let there = |x: &[f32]| Buffer::of_f32(&device, x, "operand").unwrap();
        let (q_there, weights_there) = (there(&q), there(&weights));
        let width = ty.width(dim);
        let turned = Buffer::new(&device, rows.len() * heads * width * 4, "turned").unwrap();
        if ty.code_bits().is_some() {
            let at = [q_there.address(), turned.address()];
            Rotate::new(&*device).unwrap().run(&*device, at, (rows.len() * heads) as u32, [dim as u32, width as u32]).unwrap();
        }
        let pitch = tokens.iter().max().unwrap() / stride + 1;
        let sight = if lent { Sight::RowsBefore } else { Sight::Rows };
        let source = Keys { k: pages.state(0), sight: sight as u32, ..Keys::default() };
        let kernels = TopKeys::new(&*device, ty, width as u32).unwrap();
        let chosen = |rows_at_once: usize| {
            let scores = Buffer::new(&device, rows_at_once * pitch * 4, "scores").unwrap();
            let ids = Buffer::new(&device, rows.len() * count * 4, "ids").unwrap();
            let of = Choice {
                q: if ty.code_bits().is_some() { turned.address() } else { q_there.address() },
                weights: if weighted { weights_there.address() } else { 0 },
                scores: scores.address(),
                ids: ids.address(),
                heads: heads as u32,
                width: width as u32,
                count: count as u32,
                pitch: pitch as u32,
                scale: 0.5,
                ..Choice::default()
            };
            kernels.run(&*device, &of, &rows.step, &source, scores.bytes()).unwrap();
            ids.read_f32().unwrap()
        };
        let ids = bits(&chosen(rows.len()));
        prop_assert_eq!(&ids, &bits(&chosen(2)), "queries by twos");
        let pool = pages.pool.read().unwrap();
        for (row, ids) in ids.chunks(count).enumerate() {
            let s = rows.sequence[row] as usize;
            let complete = if lent { runs[s].0 } else { rows.index[row] as usize + 1 } / stride;
            let listed: Vec<usize> = ids.iter().take_while(|id| **id != NONE).map(|id| *id as usize).collect();
            prop_assert_eq!(listed.len(), complete.min(count));
            prop_assert!(ids[listed.len()..].iter().all(|id| *id == NONE));
            prop_assert!(listed.is_sorted_by(|a, b| a < b) && listed.iter().all(|id| *id < complete));
            let score = |w: usize| -> f64 {
                let key = stored_head(&pages, &pool, 0, (pages.tables[s][w / PAGE_ROWS], w % PAGE_ROWS), 0);
                let of_head = |h: usize| {
                    let q = &q[(row * heads + h) * dim..][..dim];
                    let dot: f64 = q.iter().zip(&key).map(|(q, k)| f64::from(*q) * k).sum();
                    dot.max(0.0) * if weighted { f64::from(weights[row * heads + h]) } else { 1.0 }
                };
                (0..heads).map(of_head).sum::<f64>() * 0.5
            };
            let scores: Vec<f64> = (0..complete).map(score).collect();
            let mut order: Vec<usize> = (0..complete).collect();
            order.sort_by(|a, b| scores[*b].partial_cmp(&scores[*a]).unwrap());
            order.truncate(count);
            if coarse && (ty == KvType::F32 || ty == KvType::F16) {
                // Sums of whole numbers are exact: so is the choice.
                order.sort_unstable();
                prop_assert_eq!(&listed, &order, "row {}", row);
            } else {
                let least = order.iter().map(|w| scores[*w]).fold(f64::INFINITY, f64::min);
                let size = scores.iter().fold(1.0f64, |size, score| size.max(score.abs()));
                prop_assert!(listed.iter().all(|w| scores[*w] >= least - 1e-4 * size), "row {}", row);
            }
        }
    }
}
