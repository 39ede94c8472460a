//! Blocks of tokens to rows, and the rows that a query scores highest (`cu/pool.cu`, `cu/top_keys.cu`).

use bantam_backend::KvType;

use crate::{
    attention::Keys,
    device::{Address, Device, DeviceError, Kernel, Launch, argument},
    source::Unit,
    state::{State, Step, type_name},
};

/// Threads of a block.
const THREADS: u32 = 128;

/// Threads of a block that chooses.
const CHOOSE_THREADS: u32 = 256;

/// Keys that a block scores.
const KEYS: u32 = 64;

/// Floats of queries that a block holds in shared memory: 32 KiB.
const QUERY_FLOATS: u32 = 8192;

argument! {
    /// Operands of a pooling: `Pool` in `cu/pool.cu`.
    pub struct Pool {
        /// `[tokens][width]`.
        pub x: Address,
        /// As `x`, or 0.
        pub gate: Address,
        /// `[stride][width]`, or 0.
        pub bias: Address,
        /// `[rows][width]`, with `overlap` half as wide.
        pub out: Address,
        /// Entries of a row of `x`.
        pub width: u32,
        /// Tokens of a block.
        pub stride: u32,
        /// 1 if a block also takes in the one before it.
        pub overlap: u32,
    }

    /// Operands of a choice: `TopKeys` in `cu/top_keys.cu`.
    pub struct Choice {
        /// `[rows][heads][width]`, f32; rotated if the keys are.
        pub q: Address,
        /// `[rows][heads]`, or 0.
        pub weights: Address,
        /// `[rows of a run][pitch]` f32.
        pub scores: Address,
        /// `[rows][count]` of `u32`s.
        pub ids: Address,
        /// Index heads.
        pub heads: u32,
        /// Entries of a head.
        pub width: u32,
        /// Rows that are chosen, at most.
        pub count: u32,
        /// Rows of the state that any query sees, at most.
        pub pitch: u32,
        /// First query of a run.
        pub first_row: u32,
        /// Heads that are scored together.
        pub head_tile: u32,
        /// Factor on the scores.
        pub scale: f32,
    }
}

/// Pooling.
#[derive(Clone, Copy, Debug)]
pub struct PoolBlocks {
    store: Kernel,
    join: Kernel,
}

impl PoolBlocks {
    /// The kernels.
    ///
    /// # Errors
    /// If they do not compile.
    pub fn new(device: &dyn Device) -> Result<Self, DeviceError> {
        let unit = Unit::plain("pool.cu");
        Ok(PoolBlocks { store: device.kernel(&unit, "pool_store")?, join: device.kernel(&unit, "pool_join")? })
    }

    /// Writes the rows of the step's tokens to the window state, then joins those of the blocks that it closes: `strided` has
    /// a row for each of them, with its index in the strided state.
    ///
    /// # Errors
    /// If a launch is refused.
    pub fn run(
        &self,
        device: &dyn Device,
        of: &Pool,
        (tokens, strided): (&Step, &Step),
        state: &State,
    ) -> Result<(), DeviceError> {
        let store = Launch::new([of.width.div_ceil(THREADS), tokens.rows, 1], THREADS);
        device.launch(self.store, &store.arg(*of).arg(*tokens).arg(*state))?;
        let channels = if of.overlap != 0 { of.width / 2 } else { of.width };
        let join = Launch::new([channels.div_ceil(THREADS), strided.rows, 1], THREADS);
        device.launch(self.join, &join.arg(*of).arg(*strided).arg(*state))
    }
}

/// Forms in which the choice of rows is compiled.
pub(crate) fn units() -> Vec<Unit> {
    vec![unit_of(KvType::F32, 128), unit_of(KvType::F16, 512), unit_of(KvType::Q8_0, 64), unit_of(KvType::Turbo3, 256)]
}

fn unit_of(ty: KvType, width: u32) -> Unit {
    let defines = vec![("K_TYPE", type_name(ty).to_owned()), ("PARTS", width.div_ceil(64).to_string())];
    Unit { defines, ..Unit::plain("top_keys.cu") }
}

/// The choice of rows.
#[derive(Clone, Copy, Debug)]
pub struct TopKeys {
    score: Kernel,
    choose: Kernel,
}

impl TopKeys {
    /// The kernels for keys of a type, of `width` entries as they are stored.
    ///
    /// # Errors
    /// If they do not compile.
    pub fn new(device: &dyn Device, ty: KvType, width: u32) -> Result<Self, DeviceError> {
        let unit = unit_of(ty, width);
        Ok(TopKeys { score: device.kernel(&unit, "score_rows")?, choose: device.kernel(&unit, "choose_rows")? })
    }

    /// Lists the rows chosen for each of the step's queries, for as many queries at a time as `scores_bytes` bytes at
    /// `of.scores` hold scores of (`of.pitch` floats each; at least one). Of the keys, `k` and `sight` count. What runs
    /// differ in (`first_row`, `head_tile`) is filled in here.
    ///
    /// # Errors
    /// If a launch is refused.
    pub fn run(
        &self,
        device: &dyn Device,
        of: &Choice,
        step: &Step,
        keys: &Keys,
        scores_bytes: usize,
    ) -> Result<(), DeviceError> {
        let width = of.width.next_multiple_of(8);
        let head_tile = (QUERY_FLOATS / width).clamp(1, of.heads.max(1));
        let run = u32::try_from(scores_bytes / (of.pitch.max(1) as usize * 4)).unwrap_or(u32::MAX).max(1);
        let needs_scores = of.pitch > of.count;
        let run = if needs_scores { run } else { step.rows.max(1) };
        for first_row in (0..step.rows).step_by(run as usize) {
            let rows = run.min(step.rows - first_row);
            let of = Choice { first_row, head_tile, ..*of };
            if needs_scores {
                let launch = Launch::new([of.pitch.div_ceil(KEYS), rows, 1], THREADS).shared(head_tile * width * 4);
                device.launch(self.score, &launch.arg(of).arg(*step).arg(*keys))?;
            }
            let launch = Launch::new([rows, 1, 1], CHOOSE_THREADS);
            device.launch(self.choose, &launch.arg(of).arg(*step).arg(*keys))?;
        }
        Ok(())
    }
}
