//! Launches of products: which kernel, and what it is told.

use super::{
    Activations, Assignment, Linear, Matrix,
    kernels::{FEW, MANY},
    layout::{STRIP, SUPERBLOCK},
};
use crate::device::{Address, Argument, DeviceError, Kernel, Launch};

/// What a matrix is multiplied with.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Rounded rows, for quantized weights.
    Rounded(&'a Activations),
    /// Rows of floats, for weights that are floats.
    Floats(Address),
}

/// `y = x·Wᵀ` for a matrix, or for each matrix of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// The weights `[stack, out, in]`. Run `g` of `in` entries of a row meets matrix `g`.
    pub matrix: &'a Matrix,
    /// The rows `[rows, stack·in]`.
    pub input: Input<'a>,
    /// How many rows.
    pub rows: usize,
    /// Where `[rows, stack·out]` goes.
    pub out: Address,
    /// `[stack·out]`, added to the product.
    pub bias: Option<Address>,
    /// `[rows, stack·out]`, to which that is added; may be `out`.
    pub add: Option<Address>,
}

/// Products of rows with the experts that were chosen for them: pair `p` of a row and an expert meets matrix `ids[p]`.
#[derive(Clone, Copy, Debug)]
pub struct ExpertProduct<'a> {
    /// The weights `[experts, out, in]`.
    pub matrix: &'a Matrix,
    /// The rows: pair `p` meets row `p / share`.
    pub input: Input<'a>,
    /// Neighbouring pairs that have one row: the experts of a row, or 1 where each pair has a row of its own.
    pub share: usize,
    /// u32 `[pairs]`. Where it is 2³²−1 nothing is computed, and `out` is left as it is.
    pub ids: Address,
    /// What [`Linear::assign`] made of the ids; needed where [`Linear::groups`] says so.
    pub assignment: Option<&'a Assignment>,
    /// How many pairs.
    pub pairs: usize,
    /// Where `[pairs, out]` goes.
    pub out: Address,
    /// `[experts]`, factors on the products.
    pub factors: Option<Address>,
    /// `[experts, out]`, added then.
    pub bias: Option<Address>,
}

/// The struct `Product` of the kernels.
#[derive(Clone, Copy, Default)]
struct Told {
    weights: Address,
    matrix_bytes: u64,
    book: Address,
    x: Address,
    scales: Address,
    sums: Address,
    out: Address,
    factors: Address,
    bias: Address,
    add: Address,
    ids: Address,
    tiles: Address,
    tile_count: Address,
    members: Address,
    superblocks: u32,
    columns: u32,
    width: u32,
    rows: u32,
    stack: u32,
    share: u32,
    twice: u32,
}

impl Argument for Told {
    fn write(&self, out: &mut crate::device::Writer<'_>) {
        let addresses = [
            self.weights,
            self.matrix_bytes,
            self.book,
            self.x,
            self.scales,
            self.sums,
            self.out,
            self.factors,
            self.bias,
            self.add,
            self.ids,
            self.tiles,
            self.tile_count,
            self.members,
        ];
        // The struct ends at a multiple of 8 bytes.
        let numbers = [self.superblocks, self.columns, self.width, self.rows, self.stack, self.share, self.twice, 0];
        addresses.iter().for_each(|address| address.write(out));
        numbers.iter().for_each(|number| number.write(out));
    }
}

/// Rows, rests of rows counted, up to which weights are read once for every 8 rows instead of going through tiles.
const FEW_ROWS: usize = 16;
/// Pairs for each expert, on average, up to which each pair reads its expert's weights.
const FEW_PAIRS: usize = 2;
/// Pairs that each read their expert's weights, at most: a launch has no more blocks in that direction.
const MOST_PAIRS: usize = 65535;
/// Threads of a block of the kernels for many rows, and its outputs.
const MANY_THREADS: u32 = 256;
const MANY_OUTPUTS: usize = 128;
/// Blocks that give every multiprocessor of a large card more than one.
const MANY_BLOCKS: usize = 160;
/// Superblocks between two barriers of the kernels for few rows.
const ROUND: usize = 16;
/// Bytes of shared memory that a warp of these has for a row: of integers with their scales and sums, and of floats.
const STAGED_INTEGERS: usize = SUPERBLOCK + 96;
const STAGED_FLOATS: usize = 4 * SUPERBLOCK;

impl Linear {
    /// Multiplies. Rows of another form than the matrix takes, or of other columns, are an error of the caller and yield nothing
    /// of use; use [`Matrix::takes_floats`].
    ///
    /// # Errors
    /// If the device failed, and where the input does not fit the matrix.
    pub fn multiply(&self, product: &Product<'_>) -> Result<(), DeviceError> {
        let matrix = product.matrix;
        let told = Told {
            out: product.out,
            bias: product.bias.unwrap_or(0),
            add: product.add.unwrap_or(0),
            rows: product.rows as u32,
            stack: matrix.stack as u32,
            share: 1,
            ..Told::new(matrix, product.input, product.rows * matrix.stack)?
        };
        let items = product.rows << told.twice;
        if items == 0 || matrix.out == 0 {
            return Ok(());
        }
        let stack = matrix.stack as u32;
        if items <= FEW_ROWS {
            let i = FEW.iter().position(|rows| items <= *rows).unwrap_or(FEW.len() - 1);
            let kernel = matrix.kernels.few(&self.device, i)?;
            return self.few(kernel, matrix, FEW[i], [items.div_ceil(FEW[i]) as u32, stack], told);
        }
        let i = MANY.iter().position(|rows| items <= *rows).unwrap_or(MANY.len() - 1);
        let kernel = matrix.kernels.many(&self.device, i)?;
        let grid = [items.div_ceil(MANY[i]) as u32, matrix.out.div_ceil(MANY_OUTPUTS) as u32, stack];
        self.device.launch(kernel, &Launch::new(grid, MANY_THREADS).arg(told))
    }

    /// Whether so many pairs are multiplied expert by expert, for which they must be assigned.
    pub fn groups(pairs: usize, experts: usize) -> bool {
        pairs > MOST_PAIRS.min(FEW_PAIRS * experts)
    }

    /// Multiplies rows with their experts.
    ///
    /// # Errors
    /// If the device failed, where the input does not fit the matrix, and where an assignment is needed and missing.
    pub fn multiply_experts(&self, product: &ExpertProduct<'_>) -> Result<(), DeviceError> {
        let (matrix, pairs) = (product.matrix, product.pairs);
        let share = product.share.max(1);
        let told = Told {
            out: product.out,
            factors: product.factors.unwrap_or(0),
            bias: product.bias.unwrap_or(0),
            ids: product.ids,
            rows: pairs as u32,
            stack: 1,
            share: share as u32,
            ..Told::new(matrix, product.input, pairs.div_ceil(share))?
        };
        if told.twice != 0 {
            return Err(refused("experts take rows that are rounded once".into()));
        }
        if pairs == 0 || matrix.out == 0 {
            return Ok(());
        }
        if !Self::groups(pairs, matrix.stack) {
            return self.few(matrix.kernels.pairs(&self.device)?, matrix, 1, [pairs as u32, 1], told);
        }
        let assignment = product.assignment.filter(|assignment| assignment.experts == matrix.stack);
        let Some(assignment) = assignment else {
            return Err(refused(format!("{pairs} pairs must be assigned to {} experts before", matrix.stack)));
        };
        let told = Told {
            tiles: assignment.tiles.address(),
            tile_count: assignment.tile_count.address(),
            members: assignment.members.address(),
            ..told
        };
        let kernel = matrix.kernels.grouped(&self.device, assignment.tile)?;
        let grid = [assignment.tiles(pairs) as u32, matrix.out.div_ceil(MANY_OUTPUTS) as u32, 1];
        self.device.launch(kernel, &Launch::new(grid, MANY_THREADS).arg(told))
    }

    /// Reads rows of a table: row `ids[i]` (u32) of matrix 0 to row `i` of `out`, `[rows, in]`; zeros where there is no such row.
    ///
    /// # Errors
    /// If the device failed.
    pub fn embed(&self, table: &Matrix, ids: Address, rows: usize, out: Address) -> Result<(), DeviceError> {
        const THREADS: u32 = 64;
        let told = Told { ids, out, rows: rows as u32, stack: 1, share: 1, ..Told::of(table) };
        let parts = table.cols.div_ceil(32).div_ceil(THREADS as usize);
        let launch = Launch::new([rows as u32, parts as u32, 1], THREADS).arg(told);
        self.device.launch(table.kernels.embed(&self.device)?, &launch)
    }

    /// Launches a kernel for few rows, `rows` at a time.
    fn few(
        &self,
        kernel: Kernel,
        matrix: &Matrix,
        rows: usize,
        [runs, stack]: [u32; 2],
        told: Told,
    ) -> Result<(), DeviceError> {
        // A warp for each superblock of a round, so far as registers and 48 KiB of shared memory allow; but where there are blocks
        // enough for every multiprocessor to have two, two small ones hide each other's ends.
        let blocks = matrix.out.div_ceil(STRIP) * runs as usize * stack as usize;
        let (staged, most) = match (matrix.takes_floats(), rows) {
            (true, 8) => (STAGED_FLOATS, 4),
            (true, 4) => (STAGED_FLOATS, 8),
            (true, _) => (STAGED_FLOATS, 16),
            (false, 8) => (STAGED_INTEGERS, 8),
            (false, _) => (STAGED_INTEGERS, 16),
        };
        let most = if blocks > MANY_BLOCKS { most.min(8) } else { most };
        let warps = matrix.superblocks.next_power_of_two().clamp(rows.min(most).max(4), most);
        let shared = rows * (ROUND * STRIP * 4 + warps * staged);
        let grid = [matrix.out.div_ceil(STRIP) as u32, runs, stack];
        self.device.launch(kernel, &Launch::new(grid, 32 * warps as u32).shared(shared as u32).arg(told))
    }
}

impl Told {
    /// What a kernel is told of a matrix and `rows` rows of its input.
    fn new(matrix: &Matrix, input: Input<'_>, rows: usize) -> Result<Self, DeviceError> {
        let told = Told::of(matrix);
        match input {
            Input::Floats(x) if matrix.takes_floats() => Ok(Told { x, ..told }),
            Input::Rounded(x) if !matrix.takes_floats() && x.cols() == matrix.cols && rows <= x.rows() => Ok(Told {
                x: x.codes.address(),
                scales: x.scales.address(),
                sums: x.sums.address(),
                twice: u32::from(x.is_twice()),
                ..told
            }),
            Input::Floats(_) => Err(refused(format!("{} weights take rounded activations, not floats", matrix.ty))),
            Input::Rounded(_) if matrix.takes_floats() => {
                Err(refused(format!("{} weights take activations that are floats, not rounded ones", matrix.ty)))
            }
            Input::Rounded(x) => Err(refused(format!(
                "{rows} rows of {} columns are asked for, the activations have room for {} of {}",
                matrix.cols,
                x.rows(),
                x.cols()
            ))),
        }
    }

    fn of(matrix: &Matrix) -> Self {
        Told {
            weights: matrix.address(),
            matrix_bytes: matrix.matrix_bytes as u64,
            book: matrix.book(),
            superblocks: matrix.superblocks as u32,
            columns: matrix.cols as u32,
            width: matrix.out as u32,
            ..Told::default()
        }
    }
}

fn refused(why: String) -> DeviceError {
    DeviceError::Launch { kernel: "a matrix product".into(), why }
}
