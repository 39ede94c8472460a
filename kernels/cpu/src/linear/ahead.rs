//! Asking for weights before they are needed.
//!
//! A product runs through the bytes of its tiles once, in order; kernels ask for what lies some distance ahead of them.
//! Nothing behind the last tile is asked for: that is another thread's.

use super::simd::Simd;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// How far ahead weights are asked for at least, in bytes of a tile: what memory delivers while it answers, several times
/// over.
const DISTANCE: usize = 8 << 10;

/// The weights of a range of tiles as a kernel runs through them, those of two tiles side by side where it takes two, and how
/// far they have been asked for.
pub(super) struct Outlook {
    /// The first tile.
    start: *const u8,
    tile_bytes: usize,
    /// Tiles side by side.
    tiles: usize,
    /// Bytes of the run, counted once where tiles lie side by side; of these, the ones asked for.
    len: usize,
    asked: usize,
    /// What the runs of rows over a panel have yet to ask for: cache lines, and those a step.
    lines_left: usize,
    lines_a_step: usize,
}

impl Outlook {
    /// Of `count` tiles of `tile_bytes` from `start` on, `tiles` at a time; nothing is asked for unless `wanted`.
    pub(super) fn new(start: *const u8, tile_bytes: usize, count: usize, tiles: usize, wanted: bool) -> Self {
        let len = if wanted { count.div_ceil(tiles) * tile_bytes } else { 0 };
        Self { start, tile_bytes, tiles, len, asked: 0, lines_left: 0, lines_a_step: 0 }
    }

    /// Before `runs` runs of `steps` steps each go through the `bytes` bytes before byte `end`: they ask for what lies ahead,
    /// at least as much again, since the first run of the next ones reads all of it.
    pub(super) fn plan(&mut self, bytes: usize, end: usize, runs: usize, steps: usize) {
        let goal = (end + bytes.max(DISTANCE)).min(self.len);
        self.lines_left = goal.saturating_sub(self.asked) / LINE;
        self.lines_a_step = self.lines_left.div_ceil((runs * steps).max(1));
    }

    /// The share of a run of `steps` steps.
    pub(super) fn take(&mut self, steps: usize) -> Ahead {
        if self.lines_left == 0 {
            return Ahead::NOTHING;
        }
        let (tile, at) = (self.asked / self.tile_bytes, self.asked % self.tile_bytes);
        let place = self.start.wrapping_add(tile * self.tiles * self.tile_bytes + at);
        let lines = self.lines_a_step * steps;
        self.asked += lines * LINE;
        self.lines_left = self.lines_left.saturating_sub(lines);
        Ahead {
            place,
            apart: self.tile_bytes,
            turn: place.wrapping_add(self.tile_bytes - at),
            skip: (self.tiles - 1) * self.tile_bytes,
            lines: self.lines_a_step,
        }
    }
}

/// A place in the tiles ahead of where a kernel works.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// The next cache line of the first tile, and how far behind it that of the second tile lies.
    pub(super) place: *const u8,
    pub(super) apart: usize,
    /// Where the first tile ends, and how far behind that the tile to come next starts.
    pub(super) turn: *const u8,
    pub(super) skip: usize,
    /// Cache lines of each tile to ask for in a step.
    pub(super) lines: usize,
}

impl Ahead {
    /// Nothing to ask for.
    pub(super) const NOTHING: Self =
        Self { place: std::ptr::null(), apart: 0, turn: std::ptr::null(), skip: 0, lines: 0 };

    /// Asks for the next lines of each of `T` tiles, and moves on behind them.
    #[inline(always)]
    pub(super) fn step<S: Simd, const T: usize>(&mut self, simd: S) {
        let start = self.place;
        for t in 0..T {
            self.place = start;
            for _ in 0..self.lines {
                if self.place == self.turn {
                    self.place = self.place.wrapping_add(self.skip);
                }
                simd.prefetch(self.place.wrapping_add(t * self.apart));
                self.place = self.place.wrapping_add(LINE);
            }
        }
    }
}
