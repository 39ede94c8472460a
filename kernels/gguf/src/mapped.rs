//! A whole file in memory.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::os;

/// A file mapped for reading, of any format. It must not be changed while it is open.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

impl MappedFile {
    /// Maps a file.
    ///
    /// # Errors
    /// If it cannot be read or is no file.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        Ok(MappedFile { map: os::map(&path)?, path })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells the system that the memory behind a part may be reused; reading it again fetches it from the file. A range
    /// beyond the end is cut off.
    ///
    /// # Errors
    /// Where the system refuses; ignoring it costs memory only.
    pub fn release(&self, range: Range<usize>) -> io::Result<()> {
        os::release(&self.map, range.start.min(self.map.len())..range.end.min(self.map.len()))
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}
