//! Memory for packed weights and scratch.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// From this size on a buffer is worth huge pages: streaming through small ones spends time on address lookups.
const HUGE_PAGE: usize = 2 << 20;
/// Size of a cache line and of the largest vector.
const LINE: usize = 64;

/// Bytes, at first all zero, aligned to cache lines.
pub(super) struct Buffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a buffer owns its memory and gives it out by the usual rules of borrowing.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `len` bytes; `None` where there is no memory for it.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        let start = match len {
            0 => NonNull::<Line>::dangling().cast(),
            _ if is_mapped(len) => map(len)?,
            // SAFETY: the size is not zero.
            _ => NonNull::new(unsafe { alloc_zeroed(heap_layout(len)?) })?,
        };
        Some(Self { start, len })
    }

    /// The bytes as floats; what does not fill one is left out.
    pub(super) fn floats_mut(&mut self) -> &mut [f32] {
        // SAFETY: the buffer is aligned, and any four bytes are a float.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len / size_of::<f32>()) }
    }
}

#[repr(align(64))]
struct Line;

fn heap_layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len, LINE).ok()
}

/// Whether a buffer of this size is a mapping of its own.
fn is_mapped(len: usize) -> bool {
    cfg!(target_os = "linux") && len >= HUGE_PAGE
}

/// Maps fresh memory, on huge pages where the system grants them.
#[cfg(target_os = "linux")]
fn map(len: usize) -> Option<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping, at a place that the system chooses, touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range is the fresh mapping; the advice changes no contents, and refusing it harms nothing.
    unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
    NonNull::new(start.cast())
}

#[cfg(not(target_os = "linux"))]
fn map(_len: usize) -> Option<NonNull<u8>> {
    None
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer owns this many initialised bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the buffer owns this many initialised bytes, and is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if is_mapped(self.len) {
            // SAFETY: mapped in `zeroed` with this length.
            #[cfg(target_os = "linux")]
            unsafe {
                libc::munmap(self.start.as_ptr().cast(), self.len);
            }
        } else if self.len > 0
            && let Some(layout) = heap_layout(self.len)
        {
            // SAFETY: allocated in `zeroed` with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}
