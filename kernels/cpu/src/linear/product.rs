//! Multiplication: walks tiles and panels and hands the rows to the kernels.

use super::activation::{Activations, QBlock};
use super::ahead::{Ahead, Outlook};
use super::batch::{Batch, MatmulError, Output, check};
use super::codes::{BLOCK, Codes};
use super::float::{Bf16, F16, F32, FloatStrip, FloatWeights};
use super::float_rows::FloatRowsStrip;
use super::format::{Format, PANEL, Panel, with_format};
use super::matrix::PackedMatrix;
use super::memory::Buffer;
use super::panels::{InFile, Packed, Panels, Raw, Widened};
use super::raw::{PANEL_BYTES, is_never_packed};
use super::scales::{Scales, vectors};
use super::simd::{Job, LANES, Simd, with_simd};
use super::strip::{COLUMNS_A_STEP, MAX_ROWS, MAX_TILES, QuantizedStrip, Recipe, Strip};
use bantam_gguf::GgmlType;
use std::marker::PhantomData;
use std::ops::Range;

/// What a thread needs beside its stack; one per thread, made once.
pub struct Scratch {
    scales: Buffer,
    codes: Buffer,
    /// For each row the sums of what rounding has left, side by side for the tiles.
    rests: Buffer,
}

/// Rows whose sums of what rounding has left are kept at a time.
const REST_ROWS: usize = 32;

/// Floats that the scales of a panel of every tile expand to, at most.
const PANEL_SCALES: usize = PANEL / BLOCK * MAX_TILES * vectors(true, true) * LANES;

impl Scratch {
    /// Scratch for any multiplication; `None` where there is no memory.
    pub fn new() -> Option<Self> {
        let scales = Buffer::zeroed(PANEL_SCALES * size_of::<f32>())?;
        let codes = Buffer::zeroed(MAX_TILES * PANEL_BYTES)?;
        let rests = Buffer::zeroed(REST_ROWS * MAX_TILES * LANES * size_of::<f32>())?;
        Some(Self { scales, codes, rests })
    }
}

/// Multiplies: output row `r`, column `n` becomes the sum over `k` of `weights[n][k] · input[r][k]`, for all rows of the
/// batch and the matrix rows of `tiles`. `matrix` is the index in the stack.
///
/// The bits of a result depend on its weight row, its activation row and the instruction set alone.
///
/// # Errors
/// Where the activations have the wrong form, or a matrix, tile or row does not exist.
///
/// # Safety
/// While this runs no one else may read or write the columns of `tiles` in the batch's output rows. Rows of `scatter` must
/// differ from each other.
pub unsafe fn matmul(
    weights: &PackedMatrix,
    matrix: usize,
    batch: &Batch<'_>,
    output: &Output<'_>,
    tiles: Range<usize>,
    scratch: &mut Scratch,
) -> Result<(), MatmulError> {
    check(weights, matrix, batch, output, &tiles)?;
    if batch.rows == 0 || tiles.is_empty() {
        return Ok(());
    }
    let tile_data = weights.tiles_of(matrix);
    let at_once = if batch.rest.is_some() { REST_ROWS } else { batch.rows };
    for start in (0..batch.rows).step_by(at_once) {
        let rows = start..(start + at_once).min(batch.rows);
        Product { weights, tile_data, batch, rows, output, tiles: tiles.clone(), scratch }.run();
    }
    Ok(())
}

/// From so many rows on it pays to widen integers once for all of them, in the formats whose kernels take so few rows at a
/// time that splitting planes of bits each time costs more than reading bytes.
const WIDENED_ROWS: usize = 16;

/// A multiplication that [`check`] has passed.
struct Product<'a> {
    weights: &'a PackedMatrix,
    tile_data: &'a [u8],
    batch: &'a Batch<'a>,
    /// Rows of the batch.
    rows: Range<usize>,
    output: &'a Output<'a>,
    tiles: Range<usize>,
    scratch: &'a mut Scratch,
}

impl Product<'_> {
    fn run(self) {
        let isa = self.weights.isa();
        match self.weights.ty() {
            GgmlType::F32 => with_simd(isa, FloatProduct::<F32>(self, PhantomData)),
            GgmlType::F16 => with_simd(isa, FloatProduct::<F16>(self, PhantomData)),
            GgmlType::BF16 => with_simd(isa, FloatProduct::<Bf16>(self, PhantomData)),
            ty if is_never_packed(ty) && ty.unpack_group() == 16 => self.run_quantized::<Raw<true>>(),
            ty if is_never_packed(ty) => self.run_quantized::<Raw<false>>(),
            ty => with_format!(ty, F => self.run_packed::<F>(), _ => {}),
        }
    }

    fn run_packed<F: Format>(self) {
        if self.weights.is_raw() {
            self.run_quantized::<InFile<F>>();
        } else if F::Scales::HALVES && self.kernel_rows() >= WIDENED_ROWS {
            self.run_quantized::<Widened<F>>();
        } else {
            self.run_quantized::<Packed<F>>();
        }
    }

    fn run_quantized<K: Panels>(self) {
        with_simd(self.weights.isa(), QuantizedProduct::<K>(self, PhantomData));
    }

    /// The bytes of tile `index`; without its missing rows where rows lie as in the file.
    fn tile(&self, index: usize) -> &[u8] {
        let rest = &self.tile_data[index * self.weights.tile_bytes()..];
        &rest[..self.weights.tile_bytes().min(rest.len())]
    }

    /// Rows for the kernels: what rounding has left is another one.
    fn kernel_rows(&self) -> usize {
        self.rows.len() << usize::from(self.batch.rest.is_some())
    }

    /// Which row a kernel row belongs to, and whether it is what rounding has left of that.
    fn row_of(&self, kernel_row: usize) -> (usize, bool) {
        let rest = usize::from(self.batch.rest.is_some());
        (kernel_row >> rest, kernel_row & rest == 1)
    }

    /// How to ask for weights ahead of kernels that take `tiles` tiles at a time; `waits` for memory, they need no help.
    fn outlook(&self, tiles: usize, waits: bool) -> Outlook {
        let tile_bytes = self.weights.tile_bytes();
        let start = self.tile_data.as_ptr().wrapping_add(self.tiles.start * tile_bytes);
        Outlook::new(start, tile_bytes, self.tiles.len(), tiles, !waits && !self.weights.is_raw())
    }

    /// Asks for the places that tiles from `tile` on yield for up to `len` kernel rows from `start` on: written without being
    /// asked for, each would hold up the writes behind it.
    #[inline(always)]
    fn ask_for_outputs<S: Simd>(&self, simd: S, start: usize, len: usize, tile: usize, tiles: usize) {
        for row in start..(start + len).min(self.kernel_rows()) {
            let (_, target) = self.source_and_target(self.row_of(row).0);
            for t in 0..tiles {
                simd.prefetch_to_write(self.output.place(target, (tile + t) * LANES).cast());
            }
        }
    }

    /// The input row and the output row of row `row` of these.
    fn source_and_target(&self, row: usize) -> (usize, usize) {
        let row = self.rows.start + row;
        let of = |list: Option<&[u32]>| list.map_or(row, |list| list[row] as usize);
        (of(self.batch.gather), of(self.batch.scatter))
    }

    /// The output places and the inputs of `len` kernel rows from `start` on: `input(row, is_rest)` is an input row or what
    /// rounding has left of it.
    fn fill_rows<X>(
        &mut self,
        strip: &mut Strip<X>,
        start: usize,
        len: usize,
        tile: usize,
        input: impl Fn(usize, bool) -> *const X,
    ) {
        let rests = self.scratch.rests.floats_mut().as_mut_ptr();
        for i in 0..len {
            let (row, is_rest) = self.row_of(start + i);
            let (source, target) = self.source_and_target(row);
            strip.x[i] = input(source, is_rest);
            strip.y[i] = if is_rest {
                rests.wrapping_add(row * MAX_TILES * LANES)
            } else {
                self.output.place(target, tile * LANES)
            };
        }
    }

    /// Adds the sums of what rounding has left to those of `tiles` tiles from `tile` on.
    #[inline(always)]
    fn add_rests<S: Simd>(&mut self, simd: S, tile: usize, tiles: usize) {
        if self.batch.rest.is_none() {
            return;
        }
        for row in 0..self.rows.len() {
            let (_, target) = self.source_and_target(row);
            let rests = &self.scratch.rests.floats_mut()[row * MAX_TILES * LANES..];
            for (t, rests) in rests.chunks_exact(LANES).take(tiles).enumerate() {
                let len = outputs(self.weights, &self.tiles, tile + t);
                let place = self.output.place(target, (tile + t) * LANES);
                // SAFETY: `check` saw to it that the row has places for these lanes; `rests` has 16 floats.
                unsafe {
                    let sum = simd.add(simd.load_first(place, len), simd.load(rests.as_ptr()));
                    simd.store_first(place, sum, len);
                }
            }
        }
    }
}

/// How many lanes of tile `index` are rows of the matrix and wanted; none beyond the end.
fn outputs(weights: &PackedMatrix, tiles: &Range<usize>, index: usize) -> usize {
    if index < tiles.end { LANES.min(weights.rows() - index * LANES) } else { 0 }
}

/// Splits `rows` into runs of nearly equal length, at most `limit`: (start, length).
fn runs(rows: usize, limit: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = rows.div_ceil(limit);
    (0..count).map(move |i| (i * rows / count, (i + 1) * rows / count - i * rows / count))
}

/// Rows that the largest kernel for one tile at a time takes, where kernels for two exist.
const MAX_ROWS_OF_A_TILE: usize = 4;

/// Tiles to work on at once. So few rows that memory is what they wait for are best fed by a single stream of weights.
fn tiles_at_once<S: Simd>(rows: usize, waits_for_memory: bool) -> usize {
    if rows <= 2 || waits_for_memory { 1 } else { S::TILES }
}

/// What a row costs the kernels, in bits of a weight that memory delivers in the same time.
#[derive(Clone, Copy)]
enum RowCost {
    Quantized = 2,
    QuantizedInHalves = 3,
    Float = 16,
}

/// Whether the kernels work faster on `rows` rows than memory delivers weights of `bits` bits. Then the hardware's
/// prefetching is best left alone; otherwise asking for weights ahead of time hides that they come from memory.
fn waits_for_memory(bits: usize, rows: usize, cost: RowCost) -> bool {
    rows <= MAX_ROWS_OF_A_TILE && rows * cost as usize <= bits
}

/// The same for the quantized weights of `K`.
fn quantized_wait<K: Recipe>(rows: usize) -> bool {
    let cost = if K::HALVES { RowCost::QuantizedInHalves } else { RowCost::Quantized };
    waits_for_memory(K::Codes::BITS, rows, cost)
}

/// An empty strip.
fn blank<X>() -> Strip<X> {
    Strip {
        weights: [std::ptr::null(); MAX_TILES],
        scales: std::ptr::null(),
        x: [std::ptr::null(); MAX_ROWS],
        y: [std::ptr::null_mut(); MAX_ROWS],
        ahead: Ahead::NOTHING,
        len: 0,
        outputs: [0; MAX_TILES],
        first: true,
    }
}

/// Runs the kernel for these numbers of tiles and rows.
macro_rules! run_strip {
    ($simd:ident, $tiles:ident, $rows:ident, |$r:ident, $t:ident| $strip:expr) => {
        run_strip!(@match $simd, $tiles, $rows, $r, $t, $strip, (1, 1) (1, 2) (1, 3) (1, 4) (2, 2) (2, 3) (2, 4) (2, 5) (2, 6))
    };
    (@match $simd:ident, $tiles:ident, $rows:ident, $r:ident, $t:ident, $strip:expr, $(($tile:literal, $row:literal))*) => {
        match ($tiles, $rows) {
            $(($tile, $row) => {
                const $t: usize = $tile;
                const $r: usize = $row;
                $simd.enter($strip);
            })*
            _ => debug_assert!(false, "no kernel for {} rows", $rows),
        }
    };
}

struct QuantizedProduct<'a, K>(Product<'a>, PhantomData<K>);

impl<K: Panels> Job for QuantizedProduct<'_, K> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let rows = self.0.kernel_rows();
        let waits = quantized_wait::<K::Recipe>(rows);
        let tiles = tiles_at_once::<S>(rows, waits);
        let limit = if K::Recipe::HALVES { S::ROWS_OF_HALVES } else { S::ROWS };
        let mut outlook = self.0.outlook(tiles, waits);
        for (i, tile) in self.0.tiles.clone().step_by(tiles).enumerate() {
            for panel in K::panels(self.0.weights) {
                let end = i * self.0.weights.tile_bytes() + panel.end;
                outlook.plan(panel.end - panel.records_at, end, rows.div_ceil(limit), panel.cols / BLOCK);
                self.panel(simd, (tile, tiles), panel, limit, &mut outlook);
            }
            self.0.add_rests(simd, tile, tiles);
        }
    }
}

impl<K: Panels> QuantizedProduct<'_, K> {
    /// Multiplies one panel of `tiles` tiles from `tile` on with every row, at most `limit` at a time.
    #[inline(always)]
    fn panel<S: Simd>(
        &mut self,
        simd: S,
        (tile, tiles): (usize, usize),
        panel: Panel,
        limit: usize,
        outlook: &mut Outlook,
    ) {
        let mut strip = blank();
        (strip.len, strip.first) = (panel.cols / BLOCK, panel.first == 0);
        self.read_weights(simd, tile, tiles, panel, &mut strip);
        let Batch { input, rest, .. } = *self.0.batch;
        let blocks = |row: usize, is_rest: bool| match if is_rest { rest.unwrap_or(input) } else { input } {
            Activations::Quantized { blocks, stride } => blocks[row * stride + panel.first / BLOCK..].as_ptr(),
            Activations::Float { .. } => std::ptr::null(),
        };
        for (start, rows) in runs(self.0.kernel_rows(), limit) {
            strip.ahead = outlook.take(strip.len);
            self.0.ask_for_outputs(simd, start + rows, rows, tile, tiles);
            self.0.fill_rows(&mut strip, start, rows, tile, blocks);
            // SAFETY: weights and scales cover the panel, and `check` saw to it that activations are quantized and that rows
            // and places exist.
            run_strip!(simd, tiles, rows, |R, T| unsafe { QuantizedStrip::<K::Recipe, R, T>::new(&strip) });
        }
    }

    /// Points `strip` to the integers and expanded scales of a panel.
    #[inline(always)]
    fn read_weights<S: Simd>(&mut self, simd: S, tile: usize, tiles: usize, panel: Panel, strip: &mut Strip<QBlock>) {
        let per_tile = K::Recipe::VECTORS * LANES;
        let Product { weights, tile_data, .. } = self.0;
        let Scratch { scales, codes, .. } = &mut *self.0.scratch;
        let scales = scales.floats_mut();
        for (t, codes) in codes.chunks_exact_mut(PANEL_BYTES).take(tiles).enumerate() {
            strip.outputs[t] = outputs(weights, &self.0.tiles, tile + t);
            if strip.outputs[t] == 0 {
                // A pair's missing tile: the kernel computes the first one twice and keeps it once.
                strip.weights[t] = strip.weights[0];
                continue;
            }
            let data = &tile_data[(tile + t) * weights.tile_bytes()..];
            let data = &data[..weights.tile_bytes().min(data.len())];
            let scales = &mut scales[t * per_tile..];
            // SAFETY: the panel is the tile's, and scratch is made for the largest panel.
            strip.weights[t] = unsafe { K::read(simd, weights, data, panel, codes, scales, tiles * per_tile) };
        }
        strip.scales = scales.as_ptr();
    }
}

struct FloatProduct<'a, W>(Product<'a>, PhantomData<W>);

impl<W: FloatWeights> Job for FloatProduct<'_, W> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut product = self.0;
        let Activations::Float { values, stride } = product.batch.input else { return };
        let rows = product.rows.len();
        let waits = waits_for_memory(8 * W::BYTES, rows, RowCost::Float);
        let tiles = tiles_at_once::<S>(rows, waits);
        let mut strip = blank();
        strip.len = product.weights.cols();
        let steps = strip.len.div_ceil(COLUMNS_A_STEP);
        let mut outlook = product.outlook(tiles, waits);
        for (i, tile) in product.tiles.clone().step_by(tiles).enumerate() {
            for t in 0..tiles {
                strip.outputs[t] = outputs(product.weights, &product.tiles, tile + t);
                strip.weights[t] =
                    if strip.outputs[t] == 0 { strip.weights[0] } else { product.tile(tile + t).as_ptr() };
            }
            let bytes = product.weights.tile_bytes();
            outlook.plan(bytes, (i + 1) * bytes, rows.div_ceil(S::ROWS), steps);
            for (start, rows) in runs(rows, S::ROWS) {
                strip.ahead = outlook.take(steps);
                product.ask_for_outputs(simd, start + rows, rows, tile, tiles);
                product.fill_rows(&mut strip, start, rows, tile, |row, _| values[row * stride..].as_ptr());
                if product.weights.is_raw() {
                    // SAFETY: there are as many rows as outputs, and `check` saw to it that rows and places exist.
                    run_strip!(simd, tiles, rows, |R, T| unsafe { FloatRowsStrip::<W, R, T>::new(&strip) });
                } else {
                    // SAFETY: the tiles cover every column, and `check` saw to it that rows and places exist.
                    run_strip!(simd, tiles, rows, |R, T| unsafe { FloatStrip::<W, R, T>::new(&strip) });
                }
            }
        }
    }
}
