//! The system-dependent part: mapping files and giving their pages back.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// Maps a file for reading.
pub(crate) fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    // SAFETY: the mapping is read-only and private. That nobody truncates or rewrites the file while it is mapped cannot
    // be enforced; it is the condition under which every program maps a model file, and is stated to users.
    unsafe { Mmap::map(&file) }
}

/// Lets the system take back the memory of a part of a mapping; reading it again fetches it from the file.
#[cfg(unix)]
pub(crate) fn release(map: &Mmap, range: Range<usize>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    // SAFETY: DontNeed drops the pages' content. They are clean pages of a read-only file mapping, so the next access
    // reads the same bytes from the file.
    unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) }
}

/// Other systems decide by themselves.
#[cfg(not(unix))]
pub(crate) fn release(_map: &Mmap, _range: Range<usize>) -> io::Result<()> {
    Ok(())
}
