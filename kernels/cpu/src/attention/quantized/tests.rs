//! Rounding of heads, and the ways of reading them.

use bantam_backend::KvType;
use half::f16;
use proptest::prelude::*;

use super::{
    super::{
        coded::{CodeScores, Weigh},
        element::Single,
        integers::{Integers, Scales},
        kernels::{Plain, PlainKeys, QUERY_GROUP, Row, Scores, ValueSource, Values, padded},
    },
    *,
};

const TURBO: [KvType; 2] = [KvType::Turbo4, KvType::Turbo3];
const QUANTIZED: [KvType; 3] = [KvType::Q8_0, KvType::Turbo4, KvType::Turbo3];

fn paths() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// Numbers that are spread normally.
fn normal(dim: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut unit = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((state >> 40) as f64 + 0.5) / f64::from(1 << 24)
    };
    let mut draw = || ((-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()) as f32;
    (0..dim).map(|_| draw()).collect()
}

/// A head as the cache holds it, turned back.
fn rounded(isa: Isa, ty: KvType, head: &[f32]) -> Vec<f32> {
    let mut room = HeadRoom::new(head.len());
    room.put(head, ty.width(head.len()));
    room.round(isa, ty, head.len());
    let whole = &mut room.entries[..ty.width(head.len())];
    if ty.code_bits().is_some() {
        rotate(isa, whole);
    }
    whole[..head.len()].to_vec()
}

/// Squared error of rounding, in units of the head's squared length.
fn distortion(isa: Isa, ty: KvType, head: &[f32]) -> f64 {
    let squares = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x) * f64::from(x)).sum::<f64>();
    let errors = rounded(isa, ty, head).into_iter().zip(head).map(|(found, x)| found - x);
    squares(&mut { errors }) / squares(&mut head.iter().copied())
}

#[test]
fn the_distortion_of_random_heads_is_that_of_the_best_levels() {
    for isa in paths() {
        for (ty, wanted) in [(KvType::Turbo4, 0.009_50), (KvType::Turbo3, 0.034_55)] {
            for dim in [64, 128, 256] {
                let heads = 40_000 / dim as u64;
                let mean = (0..heads).map(|i| distortion(isa, ty, &normal(dim, i))).sum::<f64>() / heads as f64;
                assert!((0.92..1.02).contains(&(mean / wanted)), "{isa:?} {ty:?} {dim}: {mean}, expected {wanted}");
            }
        }
    }
}

#[test]
fn a_head_with_outliers_is_rounded_as_well_as_any() {
    for (ty, most) in [(KvType::Turbo4, 0.015), (KvType::Turbo3, 0.05)] {
        let heads = (0..200).map(|i| {
            let mut head = normal(128, i);
            head[i as usize % 128] = 60.0;
            head[(i as usize * 7 + 3) % 128] = -90.0;
            distortion(Isa::detect(), ty, &head)
        });
        let mean = heads.sum::<f64>() / 200.0;
        assert!(mean < most, "{ty:?}: {mean}");
    }
}

#[test]
fn heads_that_hold_no_numbers_read_as_none() {
    for isa in paths() {
        for ty in TURBO {
            for dim in [24, 64, 576] {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, f32::MAX] {
                    let mut head = normal(dim, 7);
                    head[dim / 2] = bad;
                    let found = rounded(isa, ty, &head);
                    assert!(found.iter().all(|x| x.is_nan()), "{isa:?} {ty:?} {dim} with {bad}");
                }
                for small in [0.0, -0.0, 1e-30, f32::MIN_POSITIVE] {
                    let found = rounded(isa, ty, &vec![small; dim]);
                    assert!(found.iter().all(|x| *x == 0.0), "{isa:?} {ty:?} {dim} of {small}");
                }
            }
        }
    }
}

/// A head of a page, aligned as pages are.
struct Page(Vec<u64>);

impl Page {
    fn new(slot: &StateSlot) -> Self {
        // What was in memory before must not matter.
        Page(vec![0x5a5a_a5a5_3c3c_c3c3; slot.head_bytes().div_ceil(8)])
    }

    fn head(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// A whole head as attention comes to see it.
fn as_floats(isa: Isa, slot: &StateSlot, page: &mut Page) -> Vec<f32> {
    let mut floats = vec![0.0; PAGE_ROWS * slot.width()];
    if slot.is_rotated() && !slot.transposed {
        // A sum in which a value alone takes part is that value.
        for (key, sums) in floats.chunks_exact_mut(slot.width()).enumerate() {
            let mut rows = [[0.0; PAGE_ROWS]];
            rows[0][key] = 1.0;
            with_bits!(slot.ty, BITS => {
                // SAFETY: the page holds one head of the slot.
                let values = unsafe { Codes::<BITS>::new(slot, page.head()) };
                with_floats(isa, Weigh { rows: &mut rows, values });
                let (rows, corrections, visible, ahead) = (&rows, &[1.0], key..key + 1, std::ptr::null());
                with_floats(isa, Values { rows, corrections, visible, values, sums, ahead });
            });
        }
    } else {
        // SAFETY: as above.
        unsafe { unpack(isa, slot, [page.head(), std::ptr::null()], &mut floats) };
    }
    floats
}

/// Scores of one query for each entry, in which that entry alone takes part.
fn scored(isa: Isa, slot: &StateSlot, page: &mut Page, entry: usize) -> Row {
    let mut queries = vec![0.0; QUERY_GROUP * slot.width()];
    queries[entry * QUERY_GROUP] = 1.0;
    let mut scores = [[0.0; PAGE_ROWS]];
    with_bits!(slot.ty, BITS => {
        // SAFETY: the page holds one head of the slot.
        let keys = unsafe { Codes::<BITS>::new(slot, page.head()) };
        let (queries, scores) = (&queries, scores.as_mut_slice());
        with_floats(isa, CodeScores { queries, first: 0, keys, scores, ahead: std::ptr::null() });
    });
    scores[0]
}

#[test]
fn keys_in_codes_score_as_their_floats() {
    for isa in paths() {
        for (ty, dim) in TURBO.into_iter().flat_map(|ty| [(ty, 16), (ty, 96)]) {
            let slot = StateSlot { group: 0, offset: 0, heads: 1, dim, ty, stride: 1, transposed: true };
            let (mut page, mut room) = (Page::new(&slot), HeadRoom::new(dim));
            for place in 0..PAGE_ROWS {
                let rows = Rows { x: &normal(dim, place as u64), stride: dim, len: 1 };
                // SAFETY: the page holds one head of the slot.
                unsafe { store(isa, rows, &slot, page.head(), place, &mut room) };
            }
            let floats = as_floats(isa, &slot, &mut page);
            for entry in 0..slot.width() {
                assert_eq!(scored(isa, &slot, &mut page, entry), floats[entry * PAGE_ROWS..][..PAGE_ROWS], "{isa:?}");
            }
        }
    }
}

/// One row as each of the ways of reading gives it, of rows that are stored in two runs.
fn readings(isa: Isa, slot: &StateSlot, rows: &[Vec<f32>], cut: usize) -> Vec<[Vec<f32>; 3]> {
    let (mut page, mut room) = (Page::new(slot), HeadRoom::new(slot.dim));
    for run in [cut..PAGE_ROWS, 0..cut] {
        let (place, rows) = (run.start, Rows { x: &rows[run.clone()].concat(), stride: slot.dim, len: run.len() });
        // SAFETY: the page holds one head of the slot.
        unsafe { store(isa, rows, slot, page.head(), place, &mut room) };
    }
    let floats = as_floats(isa, slot, &mut page);
    let layout = StateSlot { ty: KvType::F32, dim: slot.width(), ..*slot };
    let of_row = |(place, row): (usize, &Vec<f32>)| {
        let unpacked = (0..slot.width()).map(|i| floats[layout.entry(place, i)]).collect();
        room.put(row, slot.width());
        room.round(isa, slot.ty, slot.dim);
        let rounded = room.entries[..slot.width()].to_vec();
        room.entries.fill(0.0);
        // SAFETY: as above.
        unsafe { room.read(isa, slot, page.head(), place) };
        [unpacked, rounded, room.entries[..slot.width()].to_vec()]
    };
    rows.iter().enumerate().map(of_row).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_row_is_the_same_however_it_is_read(
        dim in prop::sample::select(vec![1usize, 8, 16, 24, 37, 64, 80, 96, 128, 256, 576]),
        ty in prop::sample::select(QUANTIZED.to_vec()),
        transposed in any::<bool>(),
        scale in prop::sample::select(vec![1e-3f32, 1.0, 1e3]),
        (seed, cut) in (any::<u64>(), 0..=PAGE_ROWS),
    ) {
        let slot = StateSlot { group: 0, offset: 0, heads: 1, dim, ty, stride: 1, transposed };
        prop_assert_eq!(slot.head_bytes(), PAGE_ROWS * ty.head_bytes(dim));
        let row = |place: usize| normal(dim, seed ^ place as u64).into_iter().map(|x| x * scale).collect();
        let rows: Vec<Vec<f32>> = (0..PAGE_ROWS).map(row).collect();
        for isa in paths() {
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            for (place, [unpacked, rounded, read]) in readings(isa, &slot, &rows, cut).iter().enumerate() {
                prop_assert_eq!(bits(unpacked), bits(rounded), "{:?}, row {}: unpacked and rounded", isa, place);
                prop_assert_eq!(bits(unpacked), bits(read), "{:?}, row {}: unpacked and read", isa, place);
            }
            let most = match ty {
                KvType::Q8_0 => 1e-3,
                KvType::Turbo4 => 0.06,
                _ => 0.15,
            };
            // The scale of smaller numbers is no normal half, and rounds more coarsely.
            let is_normal = |row: &&Vec<f32>| row.iter().any(|x| x.abs() > 127.0 * f16::MIN_POSITIVE.to_f32());
            for row in rows.iter().filter(is_normal) {
                let found = distortion(isa, ty, row);
                prop_assert!(found < most, "{:?} {:?} {}: {}", isa, ty, dim, found);
            }
        }
    }
}

/// A page of rows, its floats, and the scales that stand beside its integers.
fn integers(isa: Isa, slot: &StateSlot, seed: u64) -> (Page, Vec<f32>, Vec<f32>) {
    let mut page = Page::new(slot);
    for place in 0..PAGE_ROWS {
        let row: Vec<f32> = normal(slot.dim, seed ^ place as u64).into_iter().map(|x| x * (1 + place) as f32).collect();
        let rows = Rows { x: &row, stride: slot.dim, len: 1 };
        // SAFETY: the page holds one head of the slot.
        unsafe { store(isa, rows, slot, page.head(), place, &mut HeadRoom::default()) };
    }
    let (floats, mut scales) = (as_floats(isa, slot, &mut page), vec![0.0; PAGE_ROWS * slot.dim]);
    // SAFETY: as above.
    with_floats(isa, unsafe { Scales::new(slot, page.head(), &mut scales) });
    (page, floats, scales)
}

/// The sums over some of a block's values, in the bits of their floats.
fn summed<V: ValueSource>(isa: Isa, rows: &[Row], visible: std::ops::Range<usize>, values: V) -> Vec<u32> {
    let mut sums: Vec<f32> = normal(rows.len() * padded(values.dim()), 3);
    let (corrections, ahead) = (&*vec![0.75; rows.len()], std::ptr::null());
    with_floats(isa, Values { rows, corrections, visible, values, sums: &mut sums, ahead });
    sums.into_iter().map(f32::to_bits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn integers_are_read_as_their_floats(
        dim in prop::sample::select(vec![1usize, 8, 16, 24, 37, 64, 80, 96, 128, 256]),
        count in 1usize..20,
        visible in (0..PAGE_ROWS).prop_flat_map(|start| (Just(start), start + 1..=PAGE_ROWS)),
        seed in any::<u64>(),
    ) {
        let slot = StateSlot { group: 0, offset: 0, heads: 1, dim, ty: KvType::Q8_0, stride: 1, transposed: true };
        let queries = normal(count.next_multiple_of(QUERY_GROUP) * dim, seed ^ 99);
        let (queries, ahead) = (&queries, std::ptr::null());
        for isa in paths() {
            let mut scores = [vec![[0.0f32; PAGE_ROWS]; count], vec![[0.0f32; PAGE_ROWS]; count]];
            let (mut page, floats, scales) = integers(isa, &slot, seed);
            // SAFETY: the page holds one head of the slot.
            let keys = unsafe { Integers::new(&slot, page.head(), &scales) };
            with_floats(isa, Scores { queries, first: 0, keys, scores: &mut scores[0], ahead });
            let keys = PlainKeys::<Single>::new(&floats);
            with_floats(isa, Scores { queries, first: 0, keys, scores: &mut scores[1], ahead });
            let [direct, unpacked] = scores.map(|scores| scores.concat().into_iter().map(f32::to_bits).collect::<Vec<_>>());
            prop_assert_eq!(direct, unpacked, "{:?}: scores", isa);

            let slot = StateSlot { transposed: false, ..slot };
            let (mut page, floats, scales) = integers(isa, &slot, seed);
            // SAFETY: as above.
            let values = unsafe { Integers::new(&slot, page.head(), &scales) };
            let numbers = normal(count * PAGE_ROWS, seed ^ 7);
            let rows: &[Row] = numbers.as_chunks().0;
            let direct = summed(isa, rows, visible.0..visible.1, values);
            let unpacked = summed(isa, rows, visible.0..visible.1, Plain::<Single> { values: &floats, dim });
            prop_assert_eq!(direct, unpacked, "{:?}: values", isa);
        }
    }
}
