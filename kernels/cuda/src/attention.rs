//! Attention on the device: queries meet the keys of a source piece by piece, and the results of pieces are merged.
//!
//! An op is one [`Attend::run`] for each source of keys (the state, and the step's own keys or compressed ones), each with its
//! own [`Partials`], and one [`Merge::run`]. Which kernel computes it, and what a piece is, depends on the op and the card
//! alone, so a row's bits do not depend on the step.

use bantam_backend::KvType;

use crate::{
    device::{Address, Device, DeviceError, Kernel, Launch, argument},
    source::Unit,
    state::{State, Step, type_name},
};

/// Keys of a piece (`cu/attention.cuh`).
pub const PIECE: u32 = 256;

/// Threads of a block.
const THREADS: u32 = 128;

/// Most queries that a block computes without tensor cores.
const SLOTS: u32 = 8;

/// Entries of the widest heads for which as many find room in the 48 KiB of shared memory that every card gives a block.
const WIDEST: u32 = 640;

/// Which keys of a source a query sees, of those that its window leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Sight {
    /// Tokens up to its own, which are all stored.
    Stored = 0,
    /// Tokens up to its own, of those before the step: the state is another graph's.
    Before = 1,
    /// Tokens before the step, where a block sees all of itself.
    Past = 2,
    /// All tokens of its sequence in the step: the state holds the step's rows by their numbers (`tables` 0).
    Step = 3,
    /// Strided rows that are complete with the query's token.
    Rows = 4,
    /// Strided rows that were complete before the step: the state is another graph's.
    RowsBefore = 5,
}

argument! {
    /// A source of keys: `Keys` in `cu/attention.cuh`.
    pub struct Keys {
        /// The keys.
        pub k: State,
        /// The values, in the same pages; where they are the first entries of the keys, the keys again.
        pub v: State,
        /// `[rows][ids_width]` chosen blocks or rows of each query, rising, then [`crate::state::NONE`]; 0: all are seen.
        pub ids: Address,
        /// Most that are chosen.
        pub ids_width: u32,
        /// Tokens of a chosen block; 0: ids are rows.
        pub block: u32,
        /// Keys that are seen at most; 0: all.
        pub window: u32,
        /// A [`Sight`].
        pub sight: u32,
    }

    /// Queries: `Queries` in `cu/attention.cuh`.
    pub struct Queries {
        /// `[rows][heads][width]`, f32; rotated if the keys are ([`Rotate`]).
        pub q: Address,
        /// Pairs of `u32`s: first row and number of rows, of runs of rows of one sequence; 0: tile `i` is row `i`.
        pub tiles: Address,
        /// Query heads.
        pub heads: u32,
        /// Query heads of a head of keys.
        pub group: u32,
        /// Entries of a head.
        pub width: u32,
        /// Factor on the scores.
        pub scale: f32,
    }

    /// Results of pieces: `Partials` in `cu/attention.cuh`.
    pub struct Partials {
        /// `[rows][heads][pieces]` pairs of f32.
        pub marks: Address,
        /// `[rows][heads][pieces][width]` f32. Where pieces are joined at once and a stored value is as wide as the result's
        /// heads, this may be the result's own memory.
        pub sums: Address,
        /// Pieces of a row, at most; 1 if they are joined at once.
        pub pieces: u32,
        /// Entries of a value as it is stored.
        pub width: u32,
        /// 1: each piece has a block of threads of its own; 0: one block walks all.
        pub split: u32,
    }

    /// Results of a source, for [`Merge`].
    pub struct Source {
        /// The results; without pieces there is no such source.
        pub partials: Partials,
        /// 1 if the values are rotated.
        pub is_rotated: u32,
    }
}

impl Partials {
    /// Bytes of marks and of sums for `rows` rows of `heads` heads.
    pub fn bytes(rows: usize, heads: usize, pieces: usize, width: usize) -> [usize; 2] {
        let places = rows * heads * pieces;
        [places * 8, places * width * 4]
    }
}

/// Pieces that a row sees at most, of `keys` keys and in a window (0: none).
pub fn pieces_of(keys: u32, window: u32) -> u32 {
    let all = keys.div_ceil(PIECE).max(1);
    // A window may begin within a piece.
    if window == 0 { all } else { all.min((window - 1).div_ceil(PIECE) + 1) }
}

/// Whether each piece of the keys should have blocks of threads of its own: if otherwise `blocks` ([`Attend::blocks_of_tile`]
/// for each tile) would leave some of the card's multiprocessors with nothing, or with one block alone.
pub fn splitting_pays(blocks: u32, pieces: u32, multiprocessors: u32) -> bool {
    pieces > 1 && blocks < multiprocessors.saturating_mul(3)
}

/// What an attention over a source is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads of a head of keys.
    pub group: u32,
    /// Heads of keys.
    pub kv_heads: u32,
    /// Entries of a key.
    pub dim: u32,
    /// Entries of a value: of the value state, or how many of the key's.
    pub value_dim: u32,
    /// Type of the keys.
    pub k_type: KvType,
    /// Type of the values: where they are part of the keys, that of the keys.
    pub v_type: KvType,
    /// Whether values are the first entries of keys.
    pub values_in_keys: bool,
}

impl Heads {
    /// Entries of a query head.
    pub fn width(&self) -> u32 {
        self.k_type.width(self.dim as usize) as u32
    }

    /// Entries of a value as it is stored.
    pub fn value_width(&self) -> u32 {
        let dim = if self.values_in_keys && self.v_type.code_bits().is_some() { self.dim } else { self.value_dim };
        self.v_type.width(dim as usize) as u32
    }
}

/// Attention over one source of keys.
#[derive(Clone, Copy, Debug)]
pub struct Attend {
    kernel: Kernel,
    heads: Heads,
    slots: u32,
    tensor_cores: bool,
}

/// Queries that a block computes with tensor cores; of wide heads.
const MMA_SLOTS: u32 = 64;
const WIDE_SLOTS: u32 = 32;

/// Most entries of heads that are not wide (`cu/attention_mma.cu`).
const NARROW: u32 = 256;

/// Whether tensor cores (of compute capability 8.0 and later) take an op: heads of up to 256 entries, and up to 576 where
/// values are the first entries of keys, as long as no state is of f32, whose numbers would be rounded.
pub fn suits_tensor_cores(heads: &Heads) -> bool {
    let (keys, values) = (heads.width(), heads.value_width());
    let are_narrow = keys.max(values) <= NARROW && keys.is_multiple_of(16) && values.is_multiple_of(16);
    let are_wide = heads.values_in_keys
        && (NARROW + 1..=576).contains(&keys)
        && values <= 512
        && keys.is_multiple_of(16)
        && values.is_multiple_of(32);
    let are_rounded = [heads.k_type, heads.v_type].iter().all(|ty| *ty != KvType::F32);
    (are_narrow || are_wide) && are_rounded
}

/// The unit for heads that suit tensor cores.
fn mma_unit_of(heads: &Heads) -> Unit {
    let defines = vec![
        ("K_TYPE", type_name(heads.k_type).to_owned()),
        ("V_TYPE", type_name(heads.v_type).to_owned()),
        ("K_DIM", heads.width().to_string()),
        ("V_DIM", heads.value_width().to_string()),
    ];
    Unit { defines, ..Unit::plain("attention_mma.cu") }
}

/// Forms in which attention with tensor cores is compiled: common sizes of heads, and each type.
pub(crate) fn mma_units() -> Vec<Unit> {
    let of = |k_type, v_type, dim, value_dim| {
        mma_unit_of(&Heads { group: 1, kv_heads: 1, dim, value_dim, k_type, v_type, values_in_keys: false })
    };
    let sizes = [(64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256)];
    let sizes = sizes.map(|(k, v)| of(KvType::F16, KvType::F16, k, v));
    let types = [KvType::Bf16, KvType::Q8_0, KvType::Turbo4, KvType::Turbo3].map(|ty| of(ty, ty, 128, 128));
    let wide = [KvType::F16, KvType::Q8_0].map(|ty| of(ty, ty, 576, 512));
    sizes.into_iter().chain(types).chain(wide).collect()
}

/// Queries that a block computes, and the unit for heads.
fn unit_of(heads: &Heads) -> (u32, Unit) {
    let slots = if heads.width().max(heads.value_width()) > WIDEST { SLOTS / 2 } else { SLOTS };
    let defines = vec![
        ("K_TYPE", type_name(heads.k_type).to_owned()),
        ("V_TYPE", type_name(heads.v_type).to_owned()),
        ("SLOTS", slots.to_string()),
        ("PARTS", heads.value_width().div_ceil(THREADS).to_string()),
    ];
    (slots, Unit { defines, ..Unit::plain("attention.cu") })
}

/// Forms in which attention is compiled: each type of keys with some type of values, and heads from narrow to wide.
pub(crate) fn units() -> Vec<Unit> {
    let of = |k_type, v_type, dim| {
        let heads = Heads { group: 1, kv_heads: 1, dim, value_dim: dim, k_type, v_type, values_in_keys: false };
        unit_of(&heads).1
    };
    let types = KvType::ALL.iter().zip(KvType::ALL.iter().cycle().skip(1));
    let pairs = types.map(|(k, v)| of(*k, *v, 128));
    pairs
        .chain([256, 576].map(|dim| of(KvType::F16, KvType::F16, dim)))
        .chain([of(KvType::Turbo4, KvType::Turbo4, 576)])
        .collect()
}

impl Attend {
    /// The kernel for an op's heads; with tensor cores if told so ([`suits_tensor_cores`]). All sources of an op, and all
    /// steps, should use the same.
    ///
    /// # Errors
    /// If it does not compile.
    pub fn new(device: &dyn Device, heads: Heads, tensor_cores: bool) -> Result<Self, DeviceError> {
        let (slots, unit) = unit_of(&heads);
        let (slots, unit, name) = match (tensor_cores, heads.width() > NARROW) {
            (false, _) => (slots, unit, "attend"),
            (true, false) => (MMA_SLOTS, mma_unit_of(&heads), "attend_mma"),
            (true, true) => (WIDE_SLOTS, mma_unit_of(&heads), "attend_mma"),
        };
        Ok(Attend { kernel: device.kernel(&unit, name)?, heads, slots, tensor_cores })
    }

    /// Most rows of a tile: rows that see chosen keys stand alone.
    pub fn tile_rows(&self, chosen: bool) -> u32 {
        if chosen { 1 } else { (self.slots / self.heads.group).max(1) }
    }

    /// Blocks of threads that a tile has, for each piece: what tells whether splitting pays.
    pub fn blocks_of_tile(&self) -> u32 {
        self.heads.kv_heads * self.heads.group.div_ceil(self.slots)
    }

    /// Bytes of shared memory of a block.
    fn shared(&self) -> u32 {
        let (keys, values) = (self.heads.width(), self.heads.value_width());
        if self.tensor_cores {
            // Keys and values of a block as half floats, and pages and places of two pieces; of wide heads, keys and queries.
            let block = if keys + values > NARROW { 32 } else { 64 };
            let entries =
                if keys > NARROW { (block + self.slots) * (keys + 8) } else { block * (keys + 8 + values + 8) };
            return entries * 2 + 2 * PIECE * 12;
        }
        // Queries, weights, and a page, a place and a number of each key.
        self.slots * (keys.next_multiple_of(8) + PIECE) * 4 + PIECE * 16
    }

    /// Computes the results of a source for the step's rows, in `tiles` tiles.
    ///
    /// # Errors
    /// If the launch is refused.
    pub fn run(
        &self,
        device: &dyn Device,
        (queries, tiles): (&Queries, u32),
        step: &Step,
        keys: &Keys,
        out: &Partials,
    ) -> Result<(), DeviceError> {
        // The rows of a tile may begin in one piece and end in one more than each of them sees.
        let more = u32::from(keys.window != 0 && self.tile_rows(keys.ids != 0) > 1);
        let pieces = if out.split == 0 { 1 } else { out.pieces + more };
        let launch = Launch::new([tiles, pieces, self.blocks_of_tile()], THREADS).shared(self.shared());
        device.launch(self.kernel, &launch.arg(*queries).arg(*step).arg(*keys).arg(*out))
    }
}

/// Cuts a step's rows into tiles of at most `most` rows of one sequence: pairs of first row and number of rows. `rows_of` are
/// the rows of each sequence.
pub fn tiles(rows_of: impl Iterator<Item = u32>, most: u32, out: &mut Vec<u32>) {
    let mut first = 0;
    for rows in rows_of {
        for at in (0..rows).step_by(most.max(1) as usize) {
            out.extend([first + at, most.min(rows - at)]);
        }
        first += rows;
    }
}

/// Rotates queries that meet rotated keys (`cu/store.cu`).
#[derive(Clone, Copy, Debug)]
pub struct Rotate {
    kernel: Kernel,
}

impl Rotate {
    /// The kernel.
    ///
    /// # Errors
    /// If it does not compile.
    pub fn new(device: &dyn Device) -> Result<Self, DeviceError> {
        Ok(Rotate { kernel: device.kernel(&Unit::plain("store.cu"), "rotate_queries")? })
    }

    /// Rotates `count` heads of `dim` entries at `x` into heads of `width` entries at `out`.
    ///
    /// # Errors
    /// If the launch is refused.
    pub fn run(
        &self,
        device: &dyn Device,
        [x, out]: [Address; 2],
        count: u32,
        [dim, width]: [u32; 2],
    ) -> Result<(), DeviceError> {
        let launch = Launch::new([count, 1, 1], THREADS).shared(width * 4);
        device.launch(self.kernel, &launch.arg(x).arg(out).arg(dim).arg(width))
    }
}

/// Joins the results of one source or two (`cu/merge.cu`).
#[derive(Clone, Copy, Debug)]
pub struct Merge {
    kernel: Kernel,
}

impl Merge {
    /// The kernel.
    ///
    /// # Errors
    /// If it does not compile.
    pub fn new(device: &dyn Device) -> Result<Self, DeviceError> {
        Ok(Merge { kernel: device.kernel(&Unit::plain("merge.cu"), "merge")? })
    }

    /// Writes `[rows][heads][dim]` to `out`. `sinks` has `heads` entries, or is 0.
    ///
    /// # Errors
    /// If the launch is refused.
    pub fn run(
        &self,
        device: &dyn Device,
        step: &Step,
        sources: [(&Source, &Keys); 2],
        (sinks, out): (Address, Address),
        [heads, dim]: [u32; 2],
    ) -> Result<(), DeviceError> {
        let [(first, first_keys), (second, second_keys)] = sources;
        let width = first.partials.width.max(second.partials.width);
        let launch = Launch::new([step.rows, heads, 1], THREADS)
            .shared(width * 4)
            .arg(*step)
            .arg(*first)
            .arg(*first_keys)
            .arg(*second)
            .arg(*second_keys)
            .arg(sinks)
            .arg(out)
            .arg(dim);
        device.launch(self.kernel, &launch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of an argument, as kernels get it.
    fn bytes_of(argument: impl crate::device::Argument) -> usize {
        let launch = Launch::new([1; 3], 1).arg(argument);
        launch.arguments().unwrap().map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn structs_are_padded_as_in_c() {
        // 2 × (8 + 8 + 8 + 8 × 4) for the states, and behind them an address and four integers.
        assert_eq!(bytes_of(Keys::default()), 2 * 56 + 8 + 16);
        assert_eq!(bytes_of(Partials::default()), 2 * 8 + 3 * 4 + 4);
        assert_eq!(bytes_of(Source::default()), 32 + 8);
    }

    #[test]
    fn windows_see_few_pieces() {
        let most = |keys: u32, window: u32| {
            let span = |end: u32| (end.saturating_sub(window) / PIECE, end.div_ceil(PIECE));
            (1..=keys).map(|end| span(end).1 - span(end).0).max().unwrap()
        };
        for window in [1, 2, 255, 256, 257, 258, 512, 513, 2000] {
            assert_eq!(pieces_of(3000, window), most(3000, window), "{window}");
        }
        assert_eq!([pieces_of(0, 0), pieces_of(256, 0), pieces_of(257, 0)], [1, 1, 2]);
    }

    #[test]
    fn tiles_hold_rows_of_one_sequence() {
        let mut out = Vec::new();
        tiles([5, 0, 1, 2].into_iter(), 2, &mut out);
        assert_eq!(out, [0, 2, 2, 2, 4, 1, 5, 1, 6, 2]);
    }
}
