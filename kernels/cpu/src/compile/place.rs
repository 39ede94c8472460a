//! Plans the arena: gives every value a place that it shares only with values that live at other times.

use bantam_graph::Rows;

use super::{
    ir::{Ir, Value, ValueId},
    schedule::Schedule,
};
use crate::memory::ALIGN;

/// Where values lie.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// First byte of each value.
    pub(crate) offsets: Vec<usize>,
    /// Of values that each member has for itself, how.
    pub(crate) private: Vec<Option<Private>>,
    /// Bytes of the arena.
    pub(crate) bytes: usize,
}

/// How each member has a value for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Private {
    /// In a step of few rows all of it, so many bytes apart.
    OfFewRows(usize),
    /// Always a piece of it, as its chain makes it; the pieces are so many bytes apart.
    Piece(usize),
}

impl Private {
    /// Bytes from a member's to the next one's.
    pub(crate) fn stride(self) -> usize {
        match self {
            Private::OfFewRows(stride) | Private::Piece(stride) => stride,
        }
    }
}

/// Rows of a step of few rows, at most.
pub(crate) const FEW_ROWS: usize = 2;

/// Most rows of a step in each space, and members of the team.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxRows {
    /// Tokens.
    pub(crate) tokens: usize,
    /// Logit rows.
    pub(crate) logits: usize,
    /// Members of the team.
    pub(crate) members: usize,
}

impl MaxRows {
    /// Of a space.
    pub(crate) fn of(self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.tokens,
            Rows::Logits => self.logits,
            // A block that a step closes has a token of the step.
            Rows::Strided { .. } => self.tokens,
        }
    }
}

/// First and last region in which a value is touched, and its size.
struct Life {
    value: ValueId,
    first: usize,
    last: usize,
    bytes: usize,
}

/// Places all values of a schedule. Places are shared between regions, never within one: nodes of a region run at once.
pub(crate) fn place(ir: &Ir, schedule: &Schedule, max: MaxRows) -> Places {
    let private = private(ir, schedule, max);
    let mut lives = lives(ir, schedule, max, &private);
    // The largest first: small ones fill the gaps.
    lives.sort_by_key(|l| std::cmp::Reverse(l.bytes));
    let mut places = Places { offsets: vec![0; ir.values.len()], private, bytes: 0 };
    let mut placed: Vec<(usize, &Life)> = Vec::new();
    for life in &lives {
        let offset = lowest_gap(&placed, life);
        places.offsets[life.value] = offset;
        places.bytes = places.bytes.max(offset + life.bytes);
        let at = placed.partition_point(|(o, _)| *o <= offset);
        placed.insert(at, (offset, life));
    }
    places
}

/// Which values each member has for itself.
fn private(ir: &Ir, schedule: &Schedule, max: MaxRows) -> Vec<Option<Private>> {
    let mut private = vec![None; ir.values.len()];
    let stride = |value: &Value, entries: usize| (entries * value.entry.bytes()).next_multiple_of(ALIGN);
    for value in schedule.private_nodes().flat_map(|node| &node.results) {
        let of = &ir.values[*value];
        private[*value] = Some(Private::OfFewRows(stride(of, of.entries(FEW_ROWS))));
    }
    for (chain, value) in schedule.chains.iter().flat_map(|chain| chain.local.iter().map(move |value| (chain, value))) {
        let of = &ir.values[*value];
        private[*value] = Some(Private::Piece(stride(of, chain.entries_at_once(max.of(of.rows)))));
    }
    private
}

fn lives(ir: &Ir, schedule: &Schedule, max: MaxRows, private: &[Option<Private>]) -> Vec<Life> {
    let mut spans: Vec<Option<(usize, usize)>> = vec![None; ir.values.len()];
    // Without a barrier behind it a region may still be read from when the next ones write.
    let mut read_until: Vec<usize> = (0..schedule.regions.len()).collect();
    for region in (1..schedule.regions.len()).rev().filter(|region| schedule.joined[region - 1]) {
        read_until[region - 1] = read_until[region];
    }
    for (region, nodes) in schedule.regions.iter().enumerate() {
        let last = read_until[region];
        for node in &schedule.nodes[nodes.clone()] {
            for value in node.op.operands().into_iter().chain(node.results.iter().copied()) {
                let (first, before) = spans[value].unwrap_or((region, last));
                spans[value] = Some((first, before.max(last)));
            }
        }
    }
    // Outputs are read after the step.
    for output in ir.outputs() {
        spans[output] = spans[output].map(|(first, _)| (first, schedule.regions.len()));
    }
    let life = |(value, span): (ValueId, Option<(usize, usize)>)| {
        let (first, last) = span?;
        let shared = bytes(&ir.values[value], max).next_multiple_of(ALIGN);
        let bytes = match private[value] {
            None => shared,
            Some(Private::OfFewRows(stride)) => shared.max(max.members * stride),
            Some(Private::Piece(stride)) => max.members * stride,
        };
        Some(Life { value, first, last, bytes })
    };
    spans.into_iter().enumerate().filter_map(life).collect()
}

fn bytes(value: &Value, max: MaxRows) -> usize {
    value.entries(max.of(value.rows)) * value.entry.bytes()
}

/// The lowest offset at which `life` collides with nothing that lives at the same time. `placed` is in order of offset.
fn lowest_gap(placed: &[(usize, &Life)], life: &Life) -> usize {
    let mut offset = 0;
    for (start, other) in placed.iter().filter(|(_, o)| o.first <= life.last && life.first <= o.last) {
        if offset + life.bytes <= *start {
            break;
        }
        offset = offset.max(start + other.bytes);
    }
    offset
}
