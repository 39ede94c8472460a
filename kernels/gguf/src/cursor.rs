//! Reading little-endian fields from bytes that may end anywhere.

use crate::error::{Fault, quote};

/// A position in a byte slice. Every read is checked against what is left.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64, field: &str) -> Result<&'a [u8], Fault> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let Some(taken) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            return Err(Fault::new(field, format!("{len} bytes"), format!("{} to the end of the file", self.left())));
        };
        self.at += taken.len();
        Ok(taken)
    }

    /// The next `count` items of `N` bytes.
    pub(crate) fn take_items<const N: usize>(&mut self, count: u64, field: &str) -> Result<&'a [[u8; N]], Fault> {
        let Some(len) = count.checked_mul(N as u64).filter(|&len| len <= self.left() as u64) else {
            let left = format!("{} bytes to the end of the file", self.left());
            return Err(Fault::new(field, format!("{count} items of {N} bytes"), left));
        };
        Ok(self.take(len, field)?.as_chunks().0)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N], Fault> {
        let taken = self.take(N as u64, field)?;
        Ok(std::array::from_fn(|i| taken[i]))
    }

    pub(crate) fn u32(&mut self, field: &str) -> Result<u32, Fault> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &str) -> Result<u64, Fault> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A length word and that many bytes.
    pub(crate) fn string(&mut self, field: &str) -> Result<&'a [u8], Fault> {
        let len = self.u64(field)?;
        self.take(len, field)
    }

    /// A string that must be UTF-8.
    pub(crate) fn text(&mut self, field: &str) -> Result<&'a str, Fault> {
        let bytes = self.string(field)?;
        str::from_utf8(bytes).map_err(|_| Fault::new(field, "UTF-8", quote(bytes)))
    }
}
