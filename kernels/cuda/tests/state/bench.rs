//! Sequences with pages on a device, and steps over them.

use std::sync::Arc;

use bantam_backend::KvType;
use bantam_cuda::{
    Buffer, Device,
    state::{NONE, PageLayout, Shape, State, Step, Store},
};
use bantam_cuda_emulated::under_test;

/// Rows of a page.
pub(crate) const PAGE_ROWS: usize = 32;

pub(crate) fn device() -> Arc<dyn Device> {
    under_test(80)
}

/// Numbers between -1 and 1 that look random, the same ones for the same seed.
pub(crate) fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..16).for_each(|_| {
        next();
    });
    (0..count).map(|_| next()).collect()
}

/// A sequence of a step: its tokens before the step, and in it.
pub(crate) type Run = (usize, usize);

/// A group of states: sequences' pages lie in a pool in mixed order.
pub(crate) struct Pages {
    pub(crate) shapes: Vec<Shape>,
    pub(crate) layout: PageLayout,
    pub(crate) pool: Buffer,
    pub(crate) tables: Vec<Vec<u32>>,
    stride: usize,
    there: Buffer,
}

impl Pages {
    /// Pages for sequences of so many tokens.
    pub(crate) fn new(device: &Arc<dyn Device>, shapes: &[Shape], stride: usize, tokens: &[usize]) -> Self {
        let layout = PageLayout::new(shapes, PAGE_ROWS).unwrap();
        let counts: Vec<usize> = tokens.iter().map(|tokens| tokens.div_ceil(PAGE_ROWS * stride)).collect();
        let total: usize = counts.iter().sum::<usize>() + 1;
        // Any odd step goes through all pages but the first, which nobody has.
        let (mut next, mut tables) = (0, Vec::new());
        let place = |i: usize| 1 + (i * 7919 + 3) % (total - 1).max(1);
        assert!(total == 1 || !(total - 1).is_multiple_of(7919), "pages would be given twice");
        for count in counts {
            tables.push((next..next + count).map(|i| place(i) as u32).collect::<Vec<_>>());
            next += count;
        }
        let pool = Buffer::new(device, total * layout.page_bytes, "pages").unwrap();
        let there = tables_there(device, &tables);
        Pages { shapes: shapes.to_vec(), layout, pool, tables, stride, there }
    }

    /// Takes the pages away that hold rows before `first` of each sequence alone.
    pub(crate) fn forget(&mut self, device: &Arc<dyn Device>, first: &[usize]) {
        for (table, first) in self.tables.iter_mut().zip(first) {
            table.iter_mut().take(first / PAGE_ROWS).for_each(|page| *page = NONE);
        }
        self.there = tables_there(device, &self.tables);
    }

    /// A state as kernels see it.
    pub(crate) fn state(&self, index: usize) -> State {
        let Shape { ty, heads, dim } = self.shapes[index];
        let [codes, scales] = self.layout.places[index];
        State {
            pool: self.pool.address(),
            page_bytes: self.layout.page_bytes as u64,
            tables: self.there.address(),
            table_pages: longest(&self.tables) as u32,
            page_rows: PAGE_ROWS as u32,
            codes,
            scales,
            stride: self.stride as u32,
            heads: heads as u32,
            dim: dim as u32,
            ty: bantam_cuda::state::type_number(ty),
        }
    }

    /// Stores rows of all sequences.
    pub(crate) fn store(&self, device: &Arc<dyn Device>, index: usize, x: &[f32], step: &Rows) {
        let shape = self.shapes[index];
        let x = Buffer::of_f32(device, x, "rows").unwrap();
        let store = Store::new(&**device, shape.ty).unwrap();
        let pitch = (shape.heads * shape.dim) as u32;
        store.run(&**device, x.address(), pitch, &step.step, &self.state(index)).unwrap();
    }
}

fn longest(tables: &[Vec<u32>]) -> usize {
    tables.iter().map(Vec::len).max().unwrap_or(0).max(1)
}

fn tables_there(device: &Arc<dyn Device>, tables: &[Vec<u32>]) -> Buffer {
    let width = longest(tables);
    let whole = |table: &Vec<u32>| table.iter().copied().chain(std::iter::repeat(NONE)).take(width).collect::<Vec<_>>();
    Buffer::of_u32(device, &tables.iter().flat_map(whole).collect::<Vec<_>>(), "tables").unwrap()
}

/// The rows of a step on a device.
pub(crate) struct Rows {
    pub(crate) step: Step,
    pub(crate) sequence: Vec<u32>,
    pub(crate) index: Vec<u32>,
    _buffers: Vec<Buffer>,
}

impl Rows {
    /// All tokens of a step.
    pub(crate) fn tokens(device: &Arc<dyn Device>, runs: &[Run]) -> Self {
        let rows = runs.iter().enumerate().flat_map(|(s, (start, rows))| (*start..start + rows).map(move |p| (s, p)));
        Rows::of(device, runs, rows)
    }

    /// The rows of a strided state that a step completes.
    pub(crate) fn strided(device: &Arc<dyn Device>, runs: &[Run], stride: usize) -> Self {
        let rows = runs
            .iter()
            .enumerate()
            .flat_map(move |(s, (start, rows))| (start / stride..(start + rows) / stride).map(move |w| (s, w)));
        Rows::of(device, runs, rows)
    }

    fn of(device: &Arc<dyn Device>, runs: &[Run], rows: impl Iterator<Item = (usize, usize)>) -> Self {
        let (sequence, index): (Vec<u32>, Vec<u32>) = rows.map(|(s, i)| (s as u32, i as u32)).unzip();
        let start: Vec<u32> = runs.iter().map(|(start, _)| *start as u32).collect();
        let mut first = vec![0u32];
        runs.iter().for_each(|(_, rows)| first.push(first[first.len() - 1] + *rows as u32));
        let buffers: Vec<Buffer> =
            [&sequence, &index, &start, &first].map(|x| Buffer::of_u32(device, x, "step").unwrap()).into();
        let step = Step {
            rows: sequence.len() as u32,
            sequences: runs.len() as u32,
            row_sequence: buffers[0].address(),
            row_index: buffers[1].address(),
            start: buffers[2].address(),
            first_row: buffers[3].address(),
        };
        Rows { step, sequence, index, _buffers: buffers }
    }

    pub(crate) fn len(&self) -> usize {
        self.sequence.len()
    }
}

/// Rows of some tokens of each sequence, out of those of all tokens.
pub(crate) fn rows_of(all: &[Vec<f32>], width: usize, runs: &[Run]) -> Vec<f32> {
    let part = |(x, (start, rows)): (&Vec<f32>, &Run)| x[start * width..(start + rows) * width].to_vec();
    all.iter().zip(runs).flat_map(part).collect()
}

pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The largest difference, in shares of the root mean square.
pub(crate) fn distance(found: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let scale = (wanted.iter().map(|x| x * x).sum::<f64>() / wanted.len().max(1) as f64).sqrt().max(1e-9);
    let difference = found.iter().zip(wanted).map(|(f, w)| (f64::from(*f) - w).abs() / scale);
    difference.fold(0.0, |worst, d| if d.is_nan() { f64::INFINITY } else { worst.max(d) })
}

/// The signs of the rotation: the top bits of what SplitMix64 draws from 0 on.
fn signs(count: usize) -> Vec<f64> {
    let mut state = 0u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        if (x ^ (x >> 31)) >> 63 == 1 { -1.0 } else { 1.0 }
    };
    (0..count).map(|_| next()).collect()
}

/// The product with the matrix whose entries are the signs of both indexes and of their common bits.
pub(crate) fn rotated(head: &[f64]) -> Vec<f64> {
    let (signs, norm) = (signs(head.len()), (head.len() as f64).sqrt());
    let entry = |i: usize| {
        let common = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        head.iter().enumerate().map(|(j, x)| common(j) * signs[j] * x).sum::<f64>() * signs[i] / norm
    };
    (0..head.len()).map(entry).collect()
}

/// The positive levels of a type, from its definition in the CPU backend.
pub(crate) fn levels(ty: KvType) -> &'static [f64] {
    match ty {
        KvType::Turbo4 => &[0.128395, 0.388048, 0.656759, 0.942340, 1.256231, 1.618046, 2.069017, 2.732590],
        KvType::Turbo3 => &[0.245094, 0.756005, 1.343909, 2.151946],
        _ => panic!("{ty:?} has no levels"),
    }
}

/// A head's entries as they are read where it is stored: still rotated if the type is.
pub(crate) fn read_back(
    pages: &Pages,
    pool: &[u8],
    index: usize,
    (page, place): (u32, usize),
    head: usize,
) -> Vec<f64> {
    let Shape { ty, heads, dim } = pages.shapes[index];
    let (code_bytes, scale_count) = bantam_cuda::state::head_parts(ty, dim);
    let [codes, scales] = pages.layout.places[index].map(|at| page as usize * pages.layout.page_bytes + at as usize);
    let codes = &pool[codes + (place * heads + head) * code_bytes..][..code_bytes];
    let scales = &pool[scales + (place * heads + head) * scale_count * 2..][..scale_count * 2];
    let half = |i: usize| half::f16::from_le_bytes([scales[2 * i], scales[2 * i + 1]]).to_f64();
    match ty {
        KvType::F32 => codes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect(),
        KvType::F16 => codes.chunks(2).map(|b| half::f16::from_le_bytes(b.try_into().unwrap()).to_f64()).collect(),
        KvType::Bf16 => codes.chunks(2).map(|b| half::bf16::from_le_bytes(b.try_into().unwrap()).to_f64()).collect(),
        KvType::Q8_0 => codes.iter().enumerate().map(|(i, code)| f64::from(*code as i8) * half(i / 32)).collect(),
        KvType::Turbo4 | KvType::Turbo3 => {
            let (bits, positive) = (ty.code_bits().unwrap(), levels(ty));
            let bit = |i: usize| usize::from(codes[i / 8] >> (i % 8) & 1);
            let code = |i: usize| (0..bits).map(|b| bit(i * bits + b) << b).sum::<usize>();
            let level = |code: usize| match code.checked_sub(positive.len()) {
                Some(i) => positive[i],
                None => -positive[positive.len() - 1 - code],
            };
            (0..ty.width(dim)).map(|i| level(code(i)) * half(0)).collect()
        }
    }
}

/// The same, turned back.
pub(crate) fn stored_head(pages: &Pages, pool: &[u8], index: usize, at: (u32, usize), head: usize) -> Vec<f64> {
    let entries = read_back(pages, pool, index, at, head);
    let Shape { ty, dim, .. } = pages.shapes[index];
    if ty.code_bits().is_some() { rotated(&entries)[..dim].to_vec() } else { entries }
}
