//! Files on disk: large ones, shards, and giving memory back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use bantam_gguf::writer::GgufWriter;
use bantam_gguf::{GgmlType, GgufError, GgufFile};

const GIB: u64 = 1 << 30;

/// The header of a file whose tensors `a` and `b` are `len` values of I8 each. The writer would need the data.
fn header(len: u64) -> Vec<u8> {
    let mut header = b"GGUF\x03\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    for (name, offset) in [(b"a", 0), (b"b", len)] {
        header.extend_from_slice(&1u64.to_le_bytes());
        header.extend_from_slice(name);
        header.extend_from_slice(&1u32.to_le_bytes());
        header.extend_from_slice(&len.to_le_bytes());
        header.extend_from_slice(&(GgmlType::I8 as u32).to_le_bytes());
        header.extend_from_slice(&offset.to_le_bytes());
    }
    header.resize(header.len().next_multiple_of(32), 0);
    header
}

#[test]
fn tensors_past_4_gib_are_reached() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.gguf");
    let header = header(5 * GIB);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.write_all(&header).unwrap();
    // A sparse file: only the last byte takes room on the disk.
    file.seek(SeekFrom::Start(header.len() as u64 + 10 * GIB - 1)).unwrap();
    file.write_all(&[7]).unwrap();
    let model = GgufFile::open(&path).unwrap();
    let tensor = model.require_tensor("b").unwrap();
    assert_eq!(tensor.offset as u64, header.len() as u64 + 5 * GIB);
    assert_eq!(model.tensor_bytes(tensor).unwrap().last(), Some(&7));
}

/// KiB of `path` that are in this process's memory.
#[cfg(target_os = "linux")]
fn resident_kib(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let (_, of_file) = maps.split_once(path.to_str().unwrap()).unwrap();
    let line = of_file.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn opening_reads_the_header_and_released_pages_leave_memory() {
    const LEN: usize = 32 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let data: Vec<u8> = (0..LEN).map(|i| (i / 4096) as u8).collect();
    let mut writer = GgufWriter::new();
    writer.tensor("a", GgmlType::I8, &[LEN as u64], data.as_slice()).tensor_f32("b", &[1], &[1.0]);
    fs::write(&path, writer.to_bytes()).unwrap();
    let model = GgufFile::open(&path).unwrap();
    assert!(resident_kib(&path) < LEN as u64 / 1024 / 8);

    let tensor = model.require_tensor("a").unwrap();
    assert_eq!(model.tensor_bytes(tensor).unwrap(), data);
    assert!(resident_kib(&path) > LEN as u64 / 1024 * 9 / 10);
    model.release_pages(tensor).unwrap();
    assert!(resident_kib(&path) < LEN as u64 / 1024 / 8);
    assert_eq!(model.tensor_bytes(tensor).unwrap(), data);
}

#[test]
fn tensors_of_another_model_are_refused() {
    let small = GgufFile::from_bytes("small.gguf", GgufWriter::new().to_bytes()).unwrap();
    let large =
        GgufFile::from_bytes("large.gguf", GgufWriter::new().tensor_f32("t", &[4], &[0.0; 4]).to_bytes()).unwrap();
    let foreign = large.require_tensor("t").unwrap();
    assert!(matches!(small.tensor_bytes(foreign), Err(GgufError::MissingTensor { .. })));
    assert!(matches!(small.release_pages(foreign), Err(GgufError::MissingTensor { .. })));
    large.release_pages(foreign).unwrap();
}

#[test]
fn what_is_no_file_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_path_buf(), folder.path().join("none.gguf")] {
        let error = GgufFile::open(&path).unwrap_err();
        assert!(matches!(error, GgufError::Io { .. }));
        assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
    }
}

/// Writes a shard that says it is number `no` of `count`.
fn shard(path: &Path, no: u16, count: u16) {
    let mut writer = GgufWriter::new();
    writer.key("split.no", no).key("split.count", count).key("split.tensors.count", 0i32);
    fs::write(path, writer.to_bytes()).unwrap();
}

#[test]
fn a_renamed_first_shard_is_told_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for (name, count) in [("model.gguf", 2), ("m-00001-of-00003.gguf", 2), ("m-1-of-2.gguf", 2)] {
        let path = folder.path().join(name);
        shard(&path, 0, count);
        let error = GgufFile::open(&path).unwrap_err().to_string();
        let expected = format!("{}: file name: expected a name that ends in -00001-of-00002.gguf", path.display());
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn a_first_shard_under_a_later_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m-00002-of-00002.gguf");
    shard(&path, 0, 2);
    let error = GgufFile::open(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{}: key split.no: expected 1, found 0", path.display()));
}
