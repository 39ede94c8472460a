//! Multiplication: walks tiles and panels and hands the rows to the kernels.

use super::activation::{Activations, QBlock};
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
use super::strip::{COLUMNS_A_STEP, LINE, MAX_ROWS, MAX_TILES, QuantizedStrip, Recipe, Strip};
use bantam_gguf::GgmlType;
use std::marker::PhantomData;
use std::ops::Range;

/// What a thread needs beside its stack; one per thread, made once.
pub struct Scratch {
    scales: Buffer,
    codes: Buffer,
}

/// Floats that the scales of a panel of every tile expand to, at most: panels without scales of halves are twice as long.
const PANEL_SCALES: usize = PANEL / BLOCK * MAX_TILES * vectors(true, true) * LANES;

impl Scratch {
    /// Scratch for any multiplication; `None` where there is no memory.
    pub fn new() -> Option<Self> {
        let scales = Buffer::zeroed(PANEL_SCALES * size_of::<f32>())?;
        let codes = Buffer::zeroed(MAX_TILES * PANEL_BYTES)?;
        Some(Self { scales, codes })
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
    let product = Product { weights, tile_data: weights.tiles_of(matrix), batch, output, tiles, scratch };
    match weights.ty() {
        GgmlType::F32 => with_simd(weights.isa(), FloatProduct::<F32>(product, PhantomData)),
        GgmlType::F16 => with_simd(weights.isa(), FloatProduct::<F16>(product, PhantomData)),
        GgmlType::BF16 => with_simd(weights.isa(), FloatProduct::<Bf16>(product, PhantomData)),
        ty if is_never_packed(ty) && ty.unpack_group() == 16 => product.run_quantized::<Raw<true>>(),
        ty if is_never_packed(ty) => product.run_quantized::<Raw<false>>(),
        ty => with_format!(ty, F => product.run_packed::<F>(), _ => {}),
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
    output: &'a Output<'a>,
    tiles: Range<usize>,
    scratch: &'a mut Scratch,
}

impl Product<'_> {
    fn run_packed<F: Format>(self) {
        if self.weights.is_raw() {
            self.run_quantized::<InFile<F>>();
        } else if F::Scales::HALVES && self.batch.rows >= WIDENED_ROWS {
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

    /// Makes a strip look ahead from byte `at` of the tiles on, a tile's size further for the second tile.
    fn point_ahead<X>(&self, strip: &mut Strip<X>, at: usize) {
        for (t, ahead) in strip.ahead.iter_mut().enumerate() {
            *ahead = self.tile_data.as_ptr().wrapping_add(at + t * self.weights.tile_bytes());
        }
    }

    /// Asks for the places that tiles from `tile` on yield for up to `len` rows of the batch from `start` on: written without
    /// being asked for, each would hold up the writes behind it.
    #[inline(always)]
    fn ask_for_outputs<S: Simd>(&self, simd: S, start: usize, len: usize, tile: usize, tiles: usize) {
        for row in start..(start + len).min(self.batch.rows) {
            let target = self.batch.scatter.map_or(row, |list| list[row] as usize);
            for t in 0..tiles {
                simd.prefetch_to_write(self.output.place(target, (tile + t) * LANES).cast());
            }
        }
    }

    /// The output places and the input rows (as indices) of `len` rows of the batch from `start` on.
    fn fill_rows<X>(
        &self,
        strip: &mut Strip<X>,
        start: usize,
        len: usize,
        tile: usize,
        input: impl Fn(usize) -> *const X,
    ) {
        for i in 0..len {
            let row = start + i;
            let source = self.batch.gather.map_or(row, |list| list[row] as usize);
            let target = self.batch.scatter.map_or(row, |list| list[row] as usize);
            strip.x[i] = input(source);
            strip.y[i] = self.output.place(target, tile * LANES);
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
    QuantizedInHalves = 8,
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

/// How the runs over a panel share out to ask for the lines of the next one.
#[derive(Default)]
struct Ahead {
    lines_left: usize,
    lines_a_step: usize,
    /// Steps of a run.
    steps: usize,
    /// Bytes that the last run has gone through.
    gone: usize,
}

impl Ahead {
    /// `runs` runs of `steps` steps each ask for `bytes` bytes of each tile.
    fn new(bytes: usize, runs: usize, steps: usize) -> Self {
        let lines = bytes / LINE;
        Self { lines_left: lines, lines_a_step: lines.div_ceil((runs * steps).max(1)), steps, gone: 0 }
    }

    /// Gives the next run its share.
    fn take<X>(&mut self, strip: &mut Strip<X>) {
        let gone = std::mem::take(&mut self.gone);
        strip.ahead = strip.ahead.map(|place| place.wrapping_add(gone));
        strip.ahead_lines = if self.lines_left == 0 { 0 } else { self.lines_a_step };
        self.gone = strip.ahead_lines * self.steps * LINE;
        self.lines_left = self.lines_left.saturating_sub(strip.ahead_lines * self.steps);
    }
}

/// An empty strip.
fn blank<X>() -> Strip<X> {
    Strip {
        weights: [std::ptr::null(); MAX_TILES],
        scales: std::ptr::null(),
        x: [std::ptr::null(); MAX_ROWS],
        y: [std::ptr::null_mut(); MAX_ROWS],
        ahead: [std::ptr::null(); MAX_TILES],
        ahead_lines: 0,
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
        let rows = self.0.batch.rows;
        let tiles = tiles_at_once::<S>(rows, quantized_wait::<K::Recipe>(rows));
        for tile in self.0.tiles.clone().step_by(tiles) {
            for panel in K::panels(self.0.weights) {
                self.panel(simd, tile, tiles, panel);
            }
        }
    }
}

impl<K: Panels> QuantizedProduct<'_, K> {
    /// Multiplies one panel of `tiles` tiles from `tile` on with every row of the batch.
    #[inline(always)]
    fn panel<S: Simd>(&mut self, simd: S, tile: usize, tiles: usize, panel: Panel) {
        let mut strip = blank();
        (strip.len, strip.first) = (panel.cols / BLOCK, panel.first == 0);
        self.read_weights(simd, tile, tiles, panel, &mut strip);
        let limit = if K::Recipe::HALVES { S::ROWS_OF_HALVES } else { S::ROWS };
        let mut ahead = self.look_ahead(tile, tiles, panel, limit, &mut strip);
        for input in [Some(self.0.batch.input), self.0.batch.rest].into_iter().flatten() {
            let Activations::Quantized { blocks, stride } = input else { continue };
            let blocks = &blocks[panel.first / BLOCK..];
            for (start, rows) in runs(self.0.batch.rows, limit) {
                ahead.take(&mut strip);
                self.0.ask_for_outputs(simd, start + rows, rows, tile, tiles);
                self.0.fill_rows(&mut strip, start, rows, tile, |row| blocks[row * stride..].as_ptr());
                // SAFETY: weights and scales cover the panel, and `check` saw to it that rows and places exist.
                run_strip!(simd, tiles, rows, |R, T| unsafe { QuantizedStrip::<K::Recipe, R, T>::new(&strip) });
            }
            // The rest is added to what is there.
            strip.first = false;
        }
    }

    /// Points `strip` to the panel that comes next, and says how the runs of `limit` rows ask for it.
    fn look_ahead(&self, tile: usize, tiles: usize, panel: Panel, limit: usize, strip: &mut Strip<QBlock>) -> Ahead {
        let (weights, rows) = (self.0.weights, self.0.batch.rows);
        if quantized_wait::<K::Recipe>(rows) {
            return Ahead::default();
        }
        // Panels of a tile are neighbours; from the last one it is as many tiles to the next one's first.
        let is_last = panel.first + panel.cols == weights.cols();
        let skipped = if is_last { (tiles - 1) * weights.tile_bytes() } else { 0 };
        self.0.point_ahead(strip, tile * weights.tile_bytes() + panel.end + skipped);
        Ahead::new(panel.end - panel.records_at, rows.div_ceil(limit), strip.len)
    }

    /// Points `strip` to the integers and expanded scales of a panel.
    #[inline(always)]
    fn read_weights<S: Simd>(&mut self, simd: S, tile: usize, tiles: usize, panel: Panel, strip: &mut Strip<QBlock>) {
        let per_tile = K::Recipe::VECTORS * LANES;
        let Product { weights, tile_data, .. } = self.0;
        let Scratch { scales, codes } = &mut *self.0.scratch;
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
        let product = self.0;
        let Activations::Float { values, stride } = product.batch.input else { return };
        let rows = product.batch.rows;
        let waits = waits_for_memory(8 * W::BYTES, rows, RowCost::Float);
        let tiles = tiles_at_once::<S>(rows, waits);
        let mut strip = blank();
        strip.len = product.weights.cols();
        for tile in product.tiles.clone().step_by(tiles) {
            for t in 0..tiles {
                strip.outputs[t] = outputs(product.weights, &product.tiles, tile + t);
                strip.weights[t] =
                    if strip.outputs[t] == 0 { strip.weights[0] } else { product.tile(tile + t).as_ptr() };
            }
            let mut ahead = Ahead::default();
            if !waits && !product.weights.is_raw() {
                product.point_ahead(&mut strip, (tile + tiles) * product.weights.tile_bytes());
                let steps = strip.len.div_ceil(COLUMNS_A_STEP);
                ahead = Ahead::new(product.weights.tile_bytes(), rows.div_ceil(S::ROWS), steps);
            }
            for (start, rows) in runs(rows, S::ROWS) {
                ahead.take(&mut strip);
                product.ask_for_outputs(simd, start + rows, rows, tile, tiles);
                product.fill_rows(&mut strip, start, rows, tile, |row| values[row * stride..].as_ptr());
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
