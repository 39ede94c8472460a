//! The bytes of a saved tree. `docs/cache-file.md` describes them one by one; in short:
//!
//! ```text
//! header: magic "BANTAMPT" · format u32 · 0 u32 · key [32]
//! blobs:  the bytes of pages and slots, one behind the other
//! index:  each blob's length and SHA-256, pages, slots, nodes
//! end:    offset of the index u64 · SHA-256 of header, index and this offset [32]
//! ```
//!
//! The index stands behind what it describes, so that it is written in one go, and names the sums of all of it: whoever has
//! checked the index trusts nothing that he has not checked.

use std::io::{self, Read, Seek, SeekFrom, Write};

use sha2::{Digest, Sha256};

use super::{
    SnapshotError, SnapshotKey,
    index::{self, Blob},
};
use crate::cache::TreeImage;

const MAGIC: &[u8; 8] = b"BANTAMPT";
pub(super) const FORMAT: u32 = 1;
const HEADER: usize = 48;
const SUM: usize = 32;
const END: usize = 8 + SUM;

fn header(key: SnapshotKey) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let parts: [&[u8]; 4] = [MAGIC, &FORMAT.to_le_bytes(), &[0; 4], &key.0];
    header.iter_mut().zip(parts.concat()).for_each(|(to, from)| *to = from);
    header
}

fn sum(parts: &[&[u8]]) -> [u8; SUM] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// Writes a saved tree, blob by blob.
pub(crate) struct Writer<W> {
    out: W,
    header: [u8; HEADER],
    blobs: Vec<Blob>,
    at: u64,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(key: SnapshotKey, mut out: W) -> io::Result<Self> {
        let header = header(key);
        out.write_all(&header)?;
        Ok(Writer { out, header, blobs: Vec::new(), at: HEADER as u64 })
    }

    /// Adds the bytes of a page or slot. The first is source 0 of the image, and so on.
    pub(crate) fn blob(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.blobs.push(Blob { bytes: bytes.len() as u64, sum: sum(&[bytes]) });
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Adds the tree whose sources are the blobs, which ends the file.
    pub(crate) fn finish(mut self, image: &TreeImage) -> io::Result<W> {
        let mut end = index::encode(&self.blobs, image);
        let offset = self.at.to_le_bytes();
        let sum = sum(&[&self.header, &end, &offset]);
        end.extend(offset);
        end.extend(sum);
        self.out.write_all(&end)?;
        Ok(self.out)
    }
}

/// Reads a saved tree.
pub(crate) struct Reader<R> {
    input: R,
    blobs: Vec<Blob>,
}

impl<R: Read + Seek> Reader<R> {
    /// Checks all but the blobs. The tree may still be one that cannot be grown.
    ///
    /// # Errors
    /// If this is no saved tree, or of another format or key, or damaged.
    pub(crate) fn open(key: SnapshotKey, mut input: R) -> Result<(Self, TreeImage), SnapshotError> {
        let all = input.seek(SeekFrom::End(0))?;
        input.rewind()?;
        let mut found = Vec::new();
        input.by_ref().take(HEADER as u64).read_to_end(&mut found)?;
        check_header(key, &found)?;
        let short = SnapshotError::Damaged("it ends too early");
        let last = all.checked_sub(END as u64).filter(|&last| last >= HEADER as u64).ok_or(short.clone())?;
        let end = read_at(&mut input, last, END as u64)?;
        let (offset, expected) = end.split_at_checked(8).ok_or(short.clone())?;
        let at = offset.iter().rev().fold(0, |at: u64, &byte| at << 8 | u64::from(byte));
        if !(HEADER as u64..=last).contains(&at) {
            return Err(SnapshotError::Damaged("its index is not where it should be"));
        }
        let bytes = read_at(&mut input, at, last - at)?;
        if sum(&[&found, &bytes, offset]) != expected {
            return Err(SnapshotError::Damaged("the checksum of its index is that of other bytes"));
        }
        let (blobs, image) = index::decode(&bytes)?;
        let blob_bytes = blobs.iter().try_fold(HEADER as u64, |sum, blob| sum.checked_add(blob.bytes));
        if blob_bytes != Some(at) {
            return Err(SnapshotError::Damaged("its index is that of other pages"));
        }
        Ok((Reader { input, blobs }, image))
    }

    /// Shows each blob, checked, in the order of the sources.
    ///
    /// # Errors
    /// If a blob is damaged, or what `take` says.
    pub(crate) fn blobs(
        mut self,
        mut take: impl FnMut(usize, &[u8]) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        self.input.seek(SeekFrom::Start(HEADER as u64))?;
        let mut bytes = Vec::new();
        for (source, blob) in self.blobs.iter().enumerate() {
            bytes.clear();
            self.input.by_ref().take(blob.bytes).read_to_end(&mut bytes)?;
            if sum(&[&bytes]) != blob.sum {
                return Err(SnapshotError::Damaged("the checksum of a page is that of other bytes"));
            }
            take(source, &bytes)?;
        }
        Ok(())
    }
}

fn check_header(key: SnapshotKey, found: &[u8]) -> Result<(), SnapshotError> {
    let expected = header(key);
    if found == expected {
        return Ok(());
    }
    if !found.starts_with(MAGIC) {
        return Err(SnapshotError::NotASnapshot);
    }
    let format = found.get(8..12).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)));
    match (format, found.get(16..HEADER).and_then(|bytes| <[u8; SUM]>::try_from(bytes).ok())) {
        (Some(found), _) if found != FORMAT => Err(SnapshotError::Version { found, expected: FORMAT }),
        (Some(_), Some(found)) if found != key.0 => {
            Err(SnapshotError::Foreign { expected: key, found: SnapshotKey(found) })
        }
        (Some(_), Some(_)) => Err(SnapshotError::Damaged("its header has been changed")),
        _ => Err(SnapshotError::Damaged("it ends too early")),
    }
}

fn read_at(input: &mut (impl Read + Seek), at: u64, count: u64) -> Result<Vec<u8>, SnapshotError> {
    input.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    input.by_ref().take(count).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == count { Ok(bytes) } else { Err(SnapshotError::Damaged("it ends too early")) }
}
