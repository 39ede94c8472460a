//! Memory for packed weights and scratch.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Size of a cache line and of the largest vector: what every buffer is aligned to.
const LINE: usize = 64;
/// Size of a huge page.
const HUGE_PAGE: usize = 2 << 20;
/// Address space that an arena reserves at a time; the system gives it memory page by page, as it is used.
const CHUNK: usize = 256 << 20;

/// Memory that the weights of one model share, on huge pages where the system grants them.
///
/// Weights are streamed through once per token. On small pages the hardware's prefetching stops every few kilobytes, and
/// a matrix alone is often smaller than a huge page: so matrices lie side by side. A chunk of memory goes back to the
/// system with the last of its matrices.
#[derive(Default)]
pub(super) struct Arena {
    free: Mutex<Option<Free>>,
}

/// The unused end of a chunk.
struct Free {
    chunk: Arc<Mapping>,
    start: usize,
}

impl Arena {
    /// A buffer of `len` zero bytes; `None` where there is no memory for it.
    pub(super) fn allocate(&self, len: usize) -> Option<Buffer> {
        if !cfg!(target_os = "linux") || len == 0 {
            return Buffer::zeroed(len);
        }
        let size = len.checked_next_multiple_of(LINE)?;
        // What a panic of another thread may have left behind is a bump pointer, which is always whole.
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (chunk, start) = match free.take() {
            Some(Free { chunk, start }) if size <= chunk.len - start => (chunk, start),
            _ => {
                let chunk = Mapping::new(size.max(CHUNK).checked_add(HUGE_PAGE)?)?;
                let start = chunk.start.as_ptr().align_offset(HUGE_PAGE);
                (Arc::new(chunk), start)
            }
        };
        *free = Some(Free { chunk: Arc::clone(&chunk), start: start + size });
        // SAFETY: the range lies within the chunk, and no other buffer gets any of it.
        let start = unsafe { chunk.start.add(start) };
        Some(Buffer { start, len, owner: Owner::Chunk { _chunk: chunk } })
    }
}

/// Fresh memory from the system, all zeros.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is only an address range; its buffers own disjoint parts.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

#[cfg(target_os = "linux")]
impl Mapping {
    fn new(len: usize) -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping, at a place that the system chooses, touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the range is the fresh mapping; the advice changes no contents, and refusing it harms nothing.
        unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
        Some(Self { start: NonNull::new(start.cast())?, len })
    }
}

#[cfg(target_os = "linux")]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; no buffer is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(not(target_os = "linux"))]
impl Mapping {
    fn new(_len: usize) -> Option<Self> {
        None
    }
}

/// Bytes, at first all zero, aligned to cache lines.
pub(super) struct Buffer {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

enum Owner {
    Heap(Layout),
    Chunk { _chunk: Arc<Mapping> },
}

// SAFETY: a buffer owns its memory and gives it out by the usual rules of borrowing.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `len` bytes on the heap; `None` where there is no memory for it.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), LINE).ok()?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, len, owner: Owner::Heap(layout) })
    }

    /// The bytes as floats; what does not fill one is left out.
    pub(super) fn floats_mut(&mut self) -> &mut [f32] {
        // SAFETY: the buffer is aligned, and any four bytes are a float.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len / size_of::<f32>()) }
    }
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
        if let Owner::Heap(layout) = self.owner {
            // SAFETY: allocated in `zeroed` with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, CHUNK};

    #[test]
    fn buffers_of_an_arena_are_zero_aligned_and_apart() {
        let arena = Arena::default();
        let sizes = [1, 64, 0, 65, 3 << 20, CHUNK / 2, CHUNK - 1, 7];
        let mut buffers: Vec<_> = sizes.iter().map(|size| arena.allocate(*size).unwrap()).collect();
        for (i, (buffer, size)) in buffers.iter_mut().zip(sizes).enumerate() {
            assert_eq!((buffer.len(), buffer.as_ptr().align_offset(64)), (size, 0));
            let ends = [0, size.saturating_sub(1)];
            assert!(ends.iter().all(|at| buffer.get(*at).is_none_or(|byte| *byte == 0)));
            ends.iter().for_each(|at| buffer.get_mut(*at).into_iter().for_each(|byte| *byte = i as u8 + 1));
        }
        drop(arena);
        for (i, buffer) in buffers.iter().enumerate() {
            assert!(buffer.first().is_none_or(|byte| *byte == i as u8 + 1));
            assert!(buffer.last().is_none_or(|byte| *byte == i as u8 + 1));
        }
    }

    #[test]
    fn sizes_beyond_all_memory_are_refused() {
        assert!(Arena::default().allocate(usize::MAX).is_none());
        assert!(Arena::default().allocate(usize::MAX / 2).is_none());
    }
}
