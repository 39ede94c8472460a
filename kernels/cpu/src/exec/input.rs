//! What a step brings along: ids, positions, rows of other graphs.

use bantam_graph::InputSource;

use super::{GRAIN, turn::Turn};

/// An input for every row of its space.
pub(super) fn input(turn: &Turn<'_>, source: InputSource) {
    let map = turn.row_map();
    match source {
        InputSource::TokenIds => copy(turn, &map.tokens),
        InputSource::Positions | InputSource::StridedPositions { .. } => copy(turn, &map.positions),
        InputSource::PreviousTokens { back, missing } => {
            let share = turn.member.share(map.len(), GRAIN);
            for (row, out) in share.clone().zip(turn.own::<u32>(share, 1)) {
                *out = previous(turn, row, back).unwrap_or(missing);
            }
        }
        InputSource::Hidden { index, width } => {
            let share = turn.member.share(map.len(), 1);
            let hidden = &turn.frame.step.hidden[index];
            for (row, out) in map.rows[share.clone()].iter().zip(turn.own::<f32>(share, width).chunks_exact_mut(width))
            {
                out.copy_from_slice(&hidden[*row as usize * width..][..width]);
            }
        }
    }
}

fn copy(turn: &Turn<'_>, from: &[u32]) {
    let share = turn.member.share(from.len(), GRAIN);
    turn.own(share.clone(), 1).copy_from_slice(&from[share]);
}

/// The token `back` places before that of a row; none before the sequence's first.
fn previous(turn: &Turn<'_>, row: usize, back: usize) -> Option<u32> {
    let (step, map) = (turn.frame.step, turn.row_map());
    let sequence = &step.sequences[map.sequences[row] as usize];
    let in_step = map.positions[row] as usize - sequence.start;
    match back.checked_sub(in_step) {
        None | Some(0) => step.tokens.get(map.rows[row] as usize - back).copied(),
        Some(before) => sequence.history.len().checked_sub(before).map(|at| sequence.history[at]),
    }
}
