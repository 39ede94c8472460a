//! Zeroed memory that the system hands out only as it is touched.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::NonNull,
};

/// Alignment of every buffer: a cache line, and the widest vector.
pub(crate) const ALIGN: usize = 64;

/// Buffers from this size on ask for large pages.
const LARGE: usize = 4 << 20;

/// A run of bytes, all zero at first, aligned to [`ALIGN`].
#[derive(Debug)]
pub(crate) struct Zeroed {
    allocation: NonNull<u8>,
    layout: Layout,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone; how threads share it is the concern of who takes pointers from it.
unsafe impl Send for Zeroed {}
// SAFETY: as above.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// Memory of `len` bytes; `None` if the system has none.
    pub(crate) fn new(len: usize) -> Option<Self> {
        // A larger alignment than malloc's own would make the allocator clear the memory itself, touching all of it: the
        // start is aligned by hand.
        let layout = Layout::from_size_align(len.checked_add(ALIGN)?, 1).ok()?;
        // SAFETY: the size is not zero.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skip = allocation.as_ptr().align_offset(ALIGN);
        // SAFETY: `skip` is less than `ALIGN`, by which the allocation exceeds `len`.
        let start = unsafe { allocation.add(skip) };
        if len >= LARGE {
            crate::os::prefer_large_pages(start.as_ptr(), len);
        }
        Some(Zeroed { allocation, layout, start, len })
    }

    /// Bytes of it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Its first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zero_and_lazy() {
        // Far more than this machine need have: only the address space is taken.
        let memory = Zeroed::new(8 << 30).unwrap();
        assert_eq!(memory.start().as_ptr().align_offset(ALIGN), 0);
        // SAFETY: the last byte lies in the allocation.
        assert_eq!(unsafe { *memory.start().as_ptr().add(memory.len() - 1) }, 0);
        assert!(Zeroed::new(usize::MAX - 10).is_none());
    }
}
