//! Rows written to pages, and pages copied.

use bantam_backend::KvType;
use bantam_cuda::{
    Buffer,
    state::{CopyPages, PlanesThere, Shape, packed_bytes, plane_bytes},
};
use proptest::prelude::*;

use crate::bench::{PAGE_ROWS, Pages, Rows, device, levels, noise, read_back, rotated};

/// How far a stored head is from the exact one, at most, entry by entry: from the definition of its type.
fn check(ty: KvType, exact: &[f32], found: &[f64]) {
    let exact: Vec<f64> = exact.iter().map(|x| f64::from(*x)).collect();
    match ty {
        KvType::F32 => assert_eq!(found, exact),
        KvType::F16 => assert!(found.iter().zip(&exact).all(|(f, e)| *f == half::f16::from_f64(*e).to_f64())),
        KvType::Bf16 => {
            assert!(found.iter().zip(&exact).all(|(f, e)| *f == half::bf16::from_f32(*e as f32).to_f64()));
        }
        KvType::Q8_0 => {
            for (found, exact) in found.chunks(32).zip(exact.chunks(32)) {
                let greatest = exact.iter().fold(0.0f64, |g, x| g.max(x.abs()));
                for (found, exact) in found.iter().zip(exact) {
                    assert!((found - exact).abs() <= greatest / 127.0 * 0.51 + greatest * 1e-3, "{found} for {exact}");
                }
            }
        }
        KvType::Turbo4 | KvType::Turbo3 => {
            let mut whole = exact.clone();
            whole.resize(ty.width(exact.len()), 0.0);
            let turned = rotated(&whole);
            let spread = (turned.iter().map(|x| x * x).sum::<f64>() / turned.len() as f64).sqrt();
            let far = |x: f64, level: f64| (x.abs() / spread - level).abs();
            let by_distance = |x: f64| {
                let mut all = levels(ty).to_vec();
                all.sort_by(|a, b| far(x, *a).total_cmp(&far(x, *b)));
                [all[0], all[1]]
            };
            let sign = |x: f64| if x < 0.0 { -1.0 } else { 1.0 };
            let nearest: Vec<f64> = turned.iter().map(|x| by_distance(*x)[0] * sign(*x)).collect();
            let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let scale = product(&turned, &nearest) / product(&nearest, &nearest);
            for (found, exact) in found.iter().zip(&turned) {
                let [level, next] = by_distance(*exact);
                let is = |level: f64| (found / scale - level * sign(*exact)).abs() < 2e-3 * level;
                // Halfway between two levels, or around zero, rounding decides.
                let is_between = far(*exact, next) - far(*exact, level) < 1e-4 && is(next);
                let is_zero = exact.abs() < 1e-5 * spread && is(-level);
                assert!(is(level) || is_between || is_zero, "{exact} of spread {spread} became {found}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_come_to_their_places(
        runs in prop::collection::vec((0usize..70, 0usize..40), 1..4),
        heads in 1usize..4,
        dim in prop::sample::select(vec![1usize, 7, 16, 37, 64, 80, 128, 200]),
        ty in prop::sample::select(KvType::ALL.to_vec()),
        strided in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let device = device();
        let stride = if strided { 3 } else { 1 };
        let other = Shape { ty: KvType::F16, heads: 1, dim: 5 };
        let ends: Vec<usize> = runs.iter().map(|(start, rows)| start + rows).collect();
        let pages = Pages::new(&device, &[other, Shape { ty, heads, dim }], stride, &ends);
        let rows = if strided { Rows::strided(&device, &runs, stride) } else { Rows::tokens(&device, &runs) };
        let x = noise(rows.len() * heads * dim, seed);
        pages.store(&device, 1, &x, &rows);
        let pool = pages.pool.read().unwrap();
        let mut touched = 0;
        for (row, x) in x.chunks(heads * dim).enumerate() {
            let index = rows.index[row] as usize;
            let page = pages.tables[rows.sequence[row] as usize][index / PAGE_ROWS];
            for (head, x) in x.chunks(dim).enumerate() {
                check(ty, x, &read_back(&pages, &pool, 1, (page, index % PAGE_ROWS), head));
            }
            touched += heads * ty.head_bytes(dim);
        }
        // Pages begin as bytes of ones; what is stored has some of these too.
        let changed = pool.iter().filter(|byte| **byte != 0xff).count();
        prop_assert!(changed <= touched, "{} bytes changed, of {}", changed, touched);
        prop_assert!(changed + touched / 8 + 64 >= touched, "{} bytes changed, of {}", changed, touched);
    }

    #[test]
    fn copies_take_the_first_rows_along(
        dims in prop::collection::vec((prop::sample::select(KvType::ALL.to_vec()), 1usize..3, 1usize..70), 1..4),
        (first, second) in (0usize..=PAGE_ROWS, 0usize..=PAGE_ROWS),
    ) {
        let device = device();
        let shapes: Vec<Shape> = dims.iter().map(|(ty, heads, dim)| Shape { ty: *ty, heads: *heads, dim: *dim }).collect();
        let pages = Pages::new(&device, &shapes, 1, &[4 * PAGE_ROWS]);
        let bytes = pages.layout.page_bytes;
        let before: Vec<u8> = (0..pages.pool.bytes()).map(|i| (i * 31 % 251) as u8).collect();
        device.upload(pages.pool.address(), &before).unwrap();
        let planes = pages.layout.planes(&shapes);
        let planes_there = Buffer::of(&device, &plane_bytes(&planes), "planes").unwrap();
        let there = PlanesThere { address: planes_there.address(), count: planes.len() as u32 };
        let copies = Buffer::of_u32(&device, &[1, 3, first as u32, 2, 0, second as u32], "copies").unwrap();
        let kernels = CopyPages::new(&*device).unwrap();
        kernels.copy(&*device, (pages.pool.address(), bytes as u64), there, (copies.address(), 2)).unwrap();
        let after = pages.pool.read().unwrap();
        let mut wanted = before.clone();
        for (from, to, rows) in [(1, 3, first), (2, 0, second)] {
            for plane in &planes {
                let len = plane.row_bytes as usize * rows;
                let (from, to) = (from * bytes + plane.offset as usize, to * bytes + plane.offset as usize);
                wanted[to..to + len].copy_from_slice(&before[from..from + len]);
            }
        }
        prop_assert!(after == wanted);

        let packed = Buffer::new(&device, packed_bytes(&planes, first), "packed").unwrap();
        let page = |page: usize| pages.pool.address() + (page * bytes) as u64;
        kernels.pack(&*device, page(4), there, (packed.address(), first as u32), false).unwrap();
        kernels.pack(&*device, page(1), there, (packed.address(), first as u32), true).unwrap();
        let unpacked = pages.pool.read().unwrap();
        for plane in &planes {
            let len = plane.row_bytes as usize * first;
            let at = |page: usize| page * bytes + plane.offset as usize;
            wanted.copy_within(at(4)..at(4) + len, at(1));
        }
        prop_assert!(unpacked == wanted);
    }
}

#[test]
fn rows_without_a_page_or_a_sequence_are_passed_over() {
    let device = device();
    let shape = Shape { ty: KvType::Turbo4, heads: 1, dim: 16 };
    let mut pages = Pages::new(&device, &[shape], 1, &[2 * PAGE_ROWS]);
    pages.forget(&device, &[PAGE_ROWS]);
    let rows = Rows::tokens(&device, &[(PAGE_ROWS - 1, 1)]);
    pages.store(&device, 0, &noise(16, 1), &rows);
    assert!(pages.pool.read().unwrap().iter().all(|byte| *byte == 0xff));
}
