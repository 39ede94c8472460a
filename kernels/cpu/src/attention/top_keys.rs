//! The rows of a state that a query scores highest.
//!
//! The choice is exact, and its order that of the rows: so it depends on the query and the rows alone.

use bantam_backend::{KvType, Step};
use bantam_graph::NO_ID;

use super::{
    element::{Element, Single, with_element},
    kernels::{PlainKeys, QUERY_GROUP, Row, Scores},
    quantized,
};
use crate::{
    compile::ir::Best,
    isa::Isa,
    pool::{PAGE_ROWS, Pool},
    simd::{Floats, Kernel, LANES, with_floats},
    step::RowMap,
};

/// Room for one query's candidates.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    queries: Vec<f32>,
    scores: Vec<Row>,
    /// A head of a page as floats.
    unpacked: Vec<f32>,
    best: Vec<Candidate>,
}

/// A row and its score, the better the greater: of equal scores the lower row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    score: u32,
    row: std::cmp::Reverse<u32>,
}

impl Candidates {
    /// For the largest of some choices.
    pub(crate) fn new(choices: &[Best]) -> Self {
        let mut room = Candidates::default();
        for best in choices {
            let heads = best.heads.next_multiple_of(QUERY_GROUP);
            room.queries.resize(room.queries.len().max(heads * best.k.dim), 0.0);
            room.scores.resize(room.scores.len().max(heads), [0.0; PAGE_ROWS]);
            room.unpacked.resize(room.unpacked.len().max(best.k.dim * PAGE_ROWS), 0.0);
            // Candidates are sifted whenever as many again have come.
            room.best.reserve_exact(2 * best.count + PAGE_ROWS);
        }
        room
    }
}

/// A choice in a running step.
pub(crate) struct Choice<'a> {
    pub(crate) best: &'a Best,
    pub(crate) pool: &'a Pool,
    pub(crate) step: &'a Step,
    pub(crate) rows: &'a RowMap,
    pub(crate) isa: Isa,
    /// Queries, `[row][head][entry]`.
    pub(crate) q: &'a [f32],
    /// A weight of each head, `[row][head]`.
    pub(crate) weights: Option<&'a [f32]>,
}

impl Choice<'_> {
    /// Lists the rows chosen for the query of a row, rising.
    ///
    /// # Safety
    /// The step must have been checked against the pool, and nobody may write to it.
    pub(crate) unsafe fn run(&self, row: usize, room: &mut Candidates, out: &mut [u32]) {
        let stand = self.rows.stand(row, self.step);
        let complete = self.best.sight.complete(stand);
        if complete <= out.len() {
            for (i, id) in out.iter_mut().enumerate() {
                *id = if i < complete { i as u32 } else { NO_ID };
            }
            return;
        }
        self.gather(row, room);
        room.best.clear();
        let blocks = complete.div_ceil(PAGE_ROWS);
        for block in 0..blocks {
            let next = (block + 1).min(blocks - 1);
            // SAFETY: as this function's.
            unsafe { self.score(row, [block, next], room) };
            let scores =
                with_floats(self.isa, Weigh { heads: &room.scores, weights: self.weights_of(row), of: self.best });
            let first = block * PAGE_ROWS;
            for (i, score) in scores[..PAGE_ROWS.min(complete - first)].iter().enumerate() {
                let row = std::cmp::Reverse((first + i) as u32);
                room.best.push(Candidate { score: order(*score), row });
            }
            if room.best.len() > 2 * out.len() {
                sift(&mut room.best, out.len());
            }
        }
        sift(&mut room.best, out.len());
        for (id, candidate) in out.iter_mut().zip(&room.best) {
            *id = candidate.row.0;
        }
        out.sort_unstable();
    }

    fn weights_of(&self, row: usize) -> Option<&[f32]> {
        self.weights.map(|weights| &weights[row * self.best.heads..][..self.best.heads])
    }

    /// Lays the queries of a row out as the kernel reads them.
    fn gather(&self, row: usize, room: &mut Candidates) {
        let (heads, dim) = (self.best.heads, self.best.k.dim);
        for (head, query) in self.q[row * heads * dim..][..heads * dim].chunks_exact(dim).enumerate() {
            let target = &mut room.queries[head / QUERY_GROUP * QUERY_GROUP * dim..];
            for (d, q) in query.iter().enumerate() {
                target[d * QUERY_GROUP + head % QUERY_GROUP] = *q;
            }
        }
    }

    /// Scores of all heads with the keys of a block, before another is scored.
    unsafe fn score(&self, row: usize, blocks: [usize; 2], room: &mut Candidates) {
        let slot = &self.best.k;
        let table = &self.step.sequences[self.rows.sequences[row] as usize].tables[slot.group];
        let [page, ahead] = blocks.map(|block| self.pool.head(slot, table[block], 0).cast_const());
        let Candidates { queries, scores, unpacked, .. } = room;
        let scores = &mut scores[..self.best.heads];
        with_element!(slot.ty, E => {
            let keys = page.cast::<<E as Element>::Bits>();
            // SAFETY: a page holds a whole head, aligned, and nobody writes to it.
            let keys = unsafe { std::slice::from_raw_parts(keys, slot.dim * PAGE_ROWS) };
            with_floats(self.isa, Scores { queries, first: 0, keys: PlainKeys::<E>::new(keys), scores, ahead });
        }, quantized => {
            // SAFETY: as above.
            unsafe { quantized::unpack(self.isa, slot, [page, ahead], unpacked) };
            let keys = PlainKeys::<Single>::new(&unpacked[..slot.dim * PAGE_ROWS]);
            with_floats(self.isa, Scores { queries, first: 0, keys, scores, ahead });
        });
    }
}

/// Keeps the best `count` candidates, in any order.
fn sift(candidates: &mut Vec<Candidate>, count: usize) {
    if candidates.len() > count {
        candidates.select_nth_unstable_by(count, |a, b| b.cmp(a));
        candidates.truncate(count);
    }
}

/// An integer in the order of the numbers, equal for equal ones; NaN counts as the least.
fn order(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    match () {
        () if x.is_nan() => 0,
        () if bits >> 31 == 0 => bits | 1 << 31,
        () => !bits,
    }
}

/// `scale · Σ_h weight_h · max(score_h, 0)` of the keys of a block, by rising head.
struct Weigh<'a> {
    heads: &'a [Row],
    weights: Option<&'a [f32]>,
    of: &'a Best,
}

impl Kernel for Weigh<'_> {
    type Output = Row;

    #[inline(always)]
    fn run<S: Floats>(self, s: S) -> Row {
        let mut sums = [s.splat(0.0); 2];
        for (head, scores) in self.heads[..self.of.heads].iter().enumerate() {
            let weight = s.splat(self.weights.map_or(1.0, |weights| weights[head]));
            for (sum, scores) in sums.iter_mut().zip(scores.as_chunks::<LANES>().0) {
                *sum = s.fma(weight, s.max(s.splat(0.0), s.load(scores)), *sum);
            }
        }
        let mut row = [0.0; PAGE_ROWS];
        for (part, sum) in row.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
            s.store(part, s.mul(sum, s.splat(self.of.scale)));
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_scores_the_lower_rows_are_kept() {
        let scores = [1.0, 0.0, 3.0, -0.0, 1.0, -2.0, f32::NAN, 1.0];
        let candidate =
            |(row, score): (usize, &f32)| Candidate { score: order(*score), row: std::cmp::Reverse(row as u32) };
        let kept = |count: usize| {
            let mut candidates: Vec<Candidate> = scores.iter().enumerate().map(candidate).collect();
            sift(&mut candidates, count);
            let mut rows: Vec<u32> = candidates.iter().map(|c| c.row.0).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(kept(1), [2]);
        assert_eq!(kept(3), [0, 2, 4]);
        assert_eq!(kept(5), [0, 1, 2, 4, 7]);
        assert_eq!(kept(7), [0, 1, 2, 3, 4, 5, 7]);
        assert_eq!(kept(8).len(), 8);
    }
}
