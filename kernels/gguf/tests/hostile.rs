//! Damaged files: no panic, no tensor outside its file, no memory out of proportion to the file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(unsafe_code, reason = "a counting allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bantam_gguf::writer::GgufWriter;
use bantam_gguf::{GgmlType, GgufError, GgufHeader};
use proptest::prelude::*;

/// Counts what the calling thread holds, and the most it held.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get().wrapping_add(layout.size()));
        PEAK.set(PEAK.get().max(HELD.get()));
        // SAFETY: the caller's promises are System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: `memory` came from System with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes held at most, per byte of the file and beside it. A key of 14 bytes becomes an entry, a name, and an index
/// entry, in vectors that grow by doubling.
const BYTES_PER_BYTE: usize = 20;
const BYTES_BESIDE: usize = 4096;

/// Parses, and checks what must hold for any bytes at all.
fn parse(bytes: &[u8]) -> Result<GgufHeader, GgufError> {
    HELD.set(1 << 40);
    PEAK.set(1 << 40);
    let result = GgufHeader::parse(Path::new("m.gguf"), bytes);
    let held = PEAK.get() - (1 << 40);
    assert!(held <= bytes.len() * BYTES_PER_BYTE + BYTES_BESIDE, "{held} bytes held for a file of {}", bytes.len());
    if let Ok(header) = &result {
        let mut end = 0;
        for tensor in &header.tensors {
            assert!(tensor.offset >= end, "{tensor:?} overlaps the one before");
            end = tensor.offset + tensor.bytes;
            assert!(end <= bytes.len(), "{tensor:?} leaves the file");
            assert_eq!(
                tensor.elements() / tensor.ty.block_len() as u64 * tensor.ty.block_bytes() as u64,
                tensor.bytes as u64
            );
        }
    }
    result
}

fn fixtures() -> &'static [Vec<u8>] {
    static FIXTURES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FIXTURES.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf");
        let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "gguf"));
        paths.sort();
        paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
    })
}

/// A way of damaging a file; places are taken modulo its length.
#[derive(Clone, Debug)]
enum Damage {
    Flip { at: usize, bit: u8 },
    Truncate { len: usize },
    Word { at: usize, value: u64 },
    HalfWord { at: usize, value: u32 },
    Remove { at: usize, len: usize },
    Repeat { at: usize, len: usize },
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let places = bytes.len() + 1;
        let place = |at: usize| at % places;
        match *self {
            Damage::Flip { at, bit } => {
                let at = place(at);
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << bit);
            }
            Damage::Truncate { len } => bytes.truncate(place(len)),
            Damage::Word { at, value } => overwrite(bytes, place(at), &value.to_le_bytes()),
            Damage::HalfWord { at, value } => overwrite(bytes, place(at), &value.to_le_bytes()),
            Damage::Remove { at, len } => {
                let at = place(at);
                let end = bytes.len().min(at + len);
                bytes.drain(at..end);
            }
            Damage::Repeat { at, len } => {
                let at = place(at);
                let again = bytes[at..bytes.len().min(at + len)].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes[at..].iter_mut().zip(with).for_each(|(byte, &with)| *byte = with);
}

fn damage() -> impl Strategy<Value = Damage> {
    let edges = vec![0, 1, 2, 3, 9, 1 << 30, 1 << 31, 1 << 32, 1 << 61, 1 << 62, 1 << 63];
    let word = (proptest::sample::select(edges), -3..=3i64)
        .prop_map(|(edge, step): (u64, i64)| edge.wrapping_add_signed(step));
    prop_oneof![
        (any::<usize>(), 0..8u8).prop_map(|(at, bit)| Damage::Flip { at, bit }),
        any::<usize>().prop_map(|len| Damage::Truncate { len }),
        (any::<usize>(), word.clone()).prop_map(|(at, value)| Damage::Word { at, value }),
        (any::<usize>(), word).prop_map(|(at, value)| Damage::HalfWord { at, value: value as u32 }),
        (any::<usize>(), 1..40usize).prop_map(|(at, len)| Damage::Remove { at, len }),
        (any::<usize>(), 1..40usize).prop_map(|(at, len)| Damage::Repeat { at, len }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn damaged_files_are_parsed_or_refused(
        fixture in proptest::sample::select((0..fixtures().len()).collect::<Vec<_>>()),
        damages in proptest::collection::vec(damage(), 1..4),
    ) {
        let mut bytes = fixtures()[fixture].clone();
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        let _ = parse(&bytes);
    }
}

/// Numbers at the limits, at every place of a good file: whatever field they hit, they are checked.
#[test]
fn extreme_numbers_are_checked_in_every_field() {
    let mut refused = 0;
    for bytes in fixtures() {
        for at in 0..bytes.len().min(256) {
            for value in [0, 1, u64::MAX, u64::MAX - 15, i64::MAX as u64, 1 << 63, 1 << 32, 1 << 61] {
                let mut bytes = bytes.clone();
                overwrite(&mut bytes, at, &value.to_le_bytes());
                refused += usize::from(parse(&bytes).is_err());
            }
        }
    }
    assert!(refused > 10_000, "only {refused} files were refused");
}

#[test]
fn a_file_cut_anywhere_in_what_it_needs_is_refused() {
    let bytes =
        GgufWriter::new().key("k", vec![1u32, 2]).key("s", "text").tensor_f32("t", &[2], &[1.0, 2.0]).to_bytes();
    let needed = parse(&bytes).unwrap().tensors.iter().map(|tensor| tensor.offset + tensor.bytes).max().unwrap();
    for len in 0..bytes.len() {
        assert_eq!(parse(&bytes[..len]).is_ok(), len >= needed, "cut to {len} bytes");
    }
}

#[test]
fn many_small_items_stay_in_proportion() {
    let mut keys = GgufWriter::new();
    let mut tensors = GgufWriter::new();
    for i in 0..2000u32 {
        keys.key(char::from_u32(0x100 + i).unwrap(), 0u8);
        tensors.tensor(char::from_u32(0x100 + i).unwrap(), GgmlType::I8, &[0], vec![]);
    }
    assert_eq!(parse(&keys.to_bytes()).unwrap().metadata.len(), 2000);
    assert_eq!(parse(&tensors.to_bytes()).unwrap().tensors.len(), 2000);
    let strings = std::iter::repeat_n("", 5000).collect::<bantam_gguf::StringArray>();
    parse(GgufWriter::new().key("k", strings).to_bytes().as_slice()).unwrap();
}

#[test]
fn names_in_messages_are_escaped_and_cut() {
    let error = |key: &str| parse(&GgufWriter::new().key(key, 1u8).key(key, 1u8).to_bytes()).unwrap_err().to_string();
    assert_eq!(error("a\n\x1b[31m"), "m.gguf: key a\\n\\u{1b}[31m: expected each key once, found it twice");
    assert!(error(&"k".repeat(60_000)).len() < 200);
}

#[test]
fn older_block_layouts_are_refused() {
    let file = |version: u32, ty: GgmlType| {
        let mut writer = GgufWriter::new();
        let data = vec![0; ty.row_bytes(32).unwrap()];
        parse(&writer.key("general.quantization_version", version).tensor("t", ty, &[32], data).to_bytes())
    };
    file(2, GgmlType::Q4_0).unwrap();
    file(1, GgmlType::F32).unwrap();
    let error = file(1, GgmlType::Q4_0).unwrap_err().to_string();
    assert_eq!(error, "m.gguf: key general.quantization_version: expected u32 2, found u32 1");
}
