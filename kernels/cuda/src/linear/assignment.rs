//! Rows put together by the expert that they meet.

use std::sync::Arc;

use super::{Linear, kernels::MANY};
use crate::{
    device::{Address, Buffer, Device, DeviceError, Launch},
    source::Unit,
};

/// Threads of a block of these kernels.
const THREADS: u32 = 256;

/// The rows of a step by expert, made on the device from the chosen experts' ids.
#[derive(Debug)]
pub struct Assignment {
    pub(super) experts: usize,
    capacity: usize,
    /// Which of [`MANY`] its tiles have rows of.
    pub(super) tile: usize,
    counts: Buffer,
    pub(super) members: Buffer,
    pub(super) tiles: Buffer,
    pub(super) tile_count: Buffer,
}

impl Assignment {
    /// Room for `pairs` choices (rows, times experts of a row) among `experts` experts.
    ///
    /// # Errors
    /// If the device has no room for it.
    pub fn new(device: &Arc<dyn Device>, pairs: usize, experts: usize) -> Result<Self, DeviceError> {
        let buffer = |words: usize| Buffer::new(device, 4 * words, "rows by expert");
        Ok(Assignment {
            experts,
            capacity: pairs,
            tile: 0,
            counts: buffer(experts)?,
            members: buffer(pairs)?,
            tiles: buffer(4 * tiles(pairs, experts, MANY[0]))?,
            tile_count: buffer(1)?,
        })
    }

    /// Tiles that so many pairs can make at most.
    pub(super) fn tiles(&self, pairs: usize) -> usize {
        tiles(pairs, self.experts, MANY[self.tile])
    }
}

/// Each expert's last tile may be incomplete; no tile is empty.
fn tiles(pairs: usize, experts: usize, rows: usize) -> usize {
    (pairs / rows + experts).min(pairs)
}

impl Linear {
    /// Puts `pairs` choices together by expert: `ids` are u32, those of a row one after another. What is no expert's id belongs
    /// to nobody. More pairs than there is room for are left out.
    ///
    /// # Errors
    /// If the device failed.
    pub fn assign(&self, ids: Address, pairs: usize, to: &mut Assignment) -> Result<(), DeviceError> {
        let pairs = pairs.min(to.capacity);
        // Tiles about as large as what an expert gets on average.
        let average = pairs.div_ceil(to.experts.max(1));
        to.tile = MANY.iter().position(|rows| average <= *rows).unwrap_or(MANY.len() - 1);
        let unit = Unit::plain("assign.cu");
        let grid = [to.experts as u32, 1, 1];
        let count = Launch::new(grid, THREADS).arg(ids).arg(pairs as u32).arg(&to.counts);
        self.device.launch(self.shared.count.get(&self.device, &unit, "count_members")?, &count)?;
        let assign = Launch::new(grid, THREADS)
            .arg(ids)
            .arg(pairs as u32)
            .arg(&to.counts)
            .arg(MANY[to.tile] as u32)
            .arg(&to.members)
            .arg(&to.tiles)
            .arg(&to.tile_count);
        self.device.launch(self.shared.assign.get(&self.device, &unit, "assign")?, &assign)
    }
}
