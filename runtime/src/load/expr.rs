//! Evaluating weight expressions.
//!
//! A value is rows of blocks. Whatever moves whole blocks (slices, concatenations, stacks, reshapes, permutations that
//! leave rows whole) moves bytes and keeps the number format; what does not, and all arithmetic, is done on f32.

use bantam_backend::{SharedBytes, WeightData};
use bantam_gguf::{GgmlType, dequantize};
use bantam_graph::WeightExpr;

/// A result whose error says what does not fit; the weight's name is added outside.
pub(super) type Fit<T> = Result<T, String>;

/// The value of an expression; `tensor` gives the checkpoint's tensors.
pub(super) fn evaluate(expr: &WeightExpr, tensor: &dyn Fn(&str) -> Fit<WeightData>) -> Fit<WeightData> {
    let value = |of: &WeightExpr| evaluate(of, tensor);
    let values = |of: &[WeightExpr]| of.iter().map(value).collect::<Fit<Vec<_>>>();
    match expr {
        WeightExpr::Tensor(name) => tensor(name),
        WeightExpr::Slice { of, axis, start, len } => slice(value(of)?, *axis, *start, *len),
        WeightExpr::Reshape { of, shape } => reshape(value(of)?, shape),
        WeightExpr::Permute { of, axes } => permute(value(of)?, axes),
        WeightExpr::Concat { of, axis } => concat(values(of)?, *axis),
        WeightExpr::Stack(of) => concat(values(of)?.into_iter().map(with_leading_one).collect(), 0),
        WeightExpr::Affine { of, scale, offset } => map(&value(of)?, |x| scale * x + offset),
        WeightExpr::Exp(of) => map(&value(of)?, f32::exp),
    }
}

/// A shape less its first axes of extent 1, which files drop as they like.
pub(super) fn without_leading_ones(shape: &[usize]) -> &[usize] {
    let ones = shape.iter().take_while(|&&n| n == 1).count();
    shape.get(ones..).unwrap_or_default()
}

fn with_leading_one(mut value: WeightData) -> WeightData {
    value.shape.insert(0, 1);
    value
}

/// A value seen along one axis: `outer` runs, each of `extent` indexes.
struct Along<'v> {
    value: &'v WeightData,
    outer: usize,
    extent: usize,
    /// Rows under one index; `None` where the axis is the row itself.
    rows: Option<usize>,
    row_len: usize,
}

impl<'v> Along<'v> {
    fn new(value: &'v WeightData, axis: usize) -> Fit<Self> {
        let shape = &value.shape;
        let (Some(&extent), Some(&row_len)) = (shape.get(axis), shape.last()) else {
            return Err(format!("shape {shape:?} has no axis {axis}"));
        };
        let rows = match shape.get(axis + 1..shape.len() - 1) {
            Some(inner) => Some(product(inner)?),
            None => None,
        };
        let outer = product(shape.get(..axis).unwrap_or_default())?;
        Ok(Along { value, outer, extent, rows, row_len })
    }

    /// Bytes of `len` indexes, which must be a whole number of blocks.
    fn bytes(&self, len: usize) -> Fit<usize> {
        let bytes = match self.rows {
            Some(rows) => self.value.ty.row_bytes(self.row_len).and_then(|row| row.checked_mul(rows)?.checked_mul(len)),
            None => self.value.ty.row_bytes(len),
        };
        bytes.ok_or_else(|| short(self.value))
    }
}

fn slice(value: WeightData, axis: usize, start: usize, len: usize) -> Fit<WeightData> {
    let extent = value.shape.get(axis).copied().unwrap_or_default();
    let end = start.checked_add(len).filter(|&end| end <= extent);
    let end = end.ok_or_else(|| format!("axis {axis} of shape {:?} has no {len} entries from {start}", value.shape))?;
    let cuts_blocks = axis + 1 == value.shape.len() && [start, end].iter().any(|&at| value.ty.row_bytes(at).is_none());
    let value = if cuts_blocks { decoded(&value)? } else { value };
    let along = Along::new(&value, axis)?;
    let (first, last, run) = (along.bytes(start)?, along.bytes(end)?, along.bytes(extent)?);
    let bytes = if along.outer == 1 {
        value.bytes.slice(first..last).ok_or_else(|| short(&value))?
    } else {
        let runs = value.bytes.chunks_exact(run.max(1)).take(along.outer);
        let parts = runs.map(|run| run.get(first..last).ok_or_else(|| short(&value)));
        SharedBytes::owned(parts.collect::<Fit<Vec<_>>>()?.concat())
    };
    let mut shape = value.shape.clone();
    shape.splice(axis..=axis, [len]);
    Ok(WeightData { ty: value.ty, shape, bytes })
}

fn concat(mut values: Vec<WeightData>, axis: usize) -> Fit<WeightData> {
    let Some(WeightData { ty, shape, .. }) = values.first().cloned() else {
        return Err("nothing to put together".into());
    };
    if values.iter().any(|value| value.ty != ty) {
        values = values.iter().map(decoded).collect::<Fit<_>>()?;
    }
    let ty = if values.iter().all(|value| value.ty == ty) { ty } else { GgmlType::F32 };
    let parts = values.iter().map(|value| Along::new(value, axis)).collect::<Fit<Vec<_>>>()?;
    if let Some(other) = values.iter().find(|value| !differ_only_in(axis, &value.shape, &shape)) {
        return Err(format!("shapes {shape:?} and {:?} differ beside axis {axis}", other.shape));
    }
    let extent = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.extent));
    let extent = extent.ok_or_else(|| format!("axis {axis} of all parts together is too large"))?;
    let mut runs = Vec::new();
    for part in &parts {
        runs.push(part.value.bytes.chunks_exact(part.bytes(part.extent)?.max(1)));
    }
    let mut bytes = Vec::new();
    for _ in 0..parts.first().map_or(0, |part| part.outer) {
        runs.iter_mut().filter_map(Iterator::next).for_each(|run| bytes.extend_from_slice(run));
    }
    let mut shape = shape;
    shape.splice(axis..=axis, [extent]);
    Ok(WeightData { ty, shape, bytes: SharedBytes::owned(bytes) })
}

fn differ_only_in(axis: usize, a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).enumerate().all(|(i, (a, b))| i == axis || a == b)
}

fn short(value: &WeightData) -> String {
    format!("{} bytes do not hold shape {:?} of {}", value.bytes.len(), value.shape, value.ty)
}

fn reshape(value: WeightData, shape: &[usize]) -> Fit<WeightData> {
    if product(shape)? != product(&value.shape)? {
        return Err(format!("shape {:?} cannot become {shape:?}", value.shape));
    }
    let whole_rows = shape.last().is_some_and(|&len| value.ty.row_bytes(len).is_some());
    let value = if whole_rows { value } else { decoded(&value)? };
    Ok(WeightData { shape: shape.into(), ..value })
}

fn permute(value: WeightData, axes: &[usize]) -> Fit<WeightData> {
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..value.shape.len()) {
        return Err(format!("axes {axes:?} are no order of those of shape {:?}", value.shape));
    }
    let Some((&last, outer_axes)) = axes.split_last() else { return Ok(value) };
    let rows_stay = last + 1 == axes.len();
    let value = if rows_stay { value } else { decoded(&value)? };
    // What moves as a whole: a row, or an f32 where the rows are taken apart.
    let moved = if rows_stay { outer_axes } else { axes };
    let row_len = if rows_stay { value.shape.last().copied().unwrap_or(1) } else { 1 };
    let unit = value.ty.row_bytes(row_len).ok_or_else(|| short(&value))?;
    let strides = strides(value.shape.get(..moved.len()).unwrap_or_default())?;
    let shape: Vec<usize> = axes.iter().filter_map(|&axis| value.shape.get(axis)).copied().collect();
    let from: Vec<(usize, usize)> =
        moved.iter().filter_map(|&axis| Some((*value.shape.get(axis)?, *strides.get(axis)?))).collect();
    let source: &[u8] = &value.bytes;
    let mut bytes = Vec::with_capacity(source.len());
    for i in 0..source.len() / unit.max(1) {
        let at = source_unit(i, &from) * unit;
        bytes.extend_from_slice(source.get(at..at + unit).ok_or_else(|| short(&value))?);
    }
    Ok(WeightData { ty: value.ty, shape, bytes: SharedBytes::owned(bytes) })
}

/// Where the `i`-th unit of a permuted value comes from, given extent and source stride of each of its axes.
fn source_unit(mut i: usize, axes: &[(usize, usize)]) -> usize {
    let mut at = 0;
    for &(extent, stride) in axes.iter().rev() {
        at += i % extent.max(1) * stride;
        i /= extent.max(1);
    }
    at
}

/// Entries between neighbours along each axis.
fn strides(shape: &[usize]) -> Fit<Vec<usize>> {
    (0..shape.len()).map(|axis| product(shape.get(axis + 1..).unwrap_or_default())).collect()
}

fn map(value: &WeightData, f: impl Fn(f32) -> f32) -> Fit<WeightData> {
    let mut numbers = numbers(value)?;
    numbers.iter_mut().for_each(|x| *x = f(*x));
    Ok(from_numbers(value.shape.clone(), &numbers))
}

/// The same value in f32.
fn decoded(value: &WeightData) -> Fit<WeightData> {
    if value.ty == GgmlType::F32 {
        return Ok(value.clone());
    }
    Ok(from_numbers(value.shape.clone(), &numbers(value)?))
}

fn numbers(value: &WeightData) -> Fit<Vec<f32>> {
    let mut numbers = vec![0.0; product(&value.shape)?];
    dequantize(value.ty, &value.bytes, &mut numbers).map_err(|e| e.to_string())?;
    Ok(numbers)
}

fn from_numbers(shape: Vec<usize>, numbers: &[f32]) -> WeightData {
    let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    WeightData { ty: GgmlType::F32, shape, bytes: SharedBytes::owned(bytes) }
}

fn product(extents: &[usize]) -> Fit<usize> {
    let product = extents.iter().try_fold(1_usize, |product, n| product.checked_mul(*n));
    product.ok_or_else(|| format!("a shape of {extents:?} is too large"))
}
