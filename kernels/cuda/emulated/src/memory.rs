//! Memory with an end that cannot be passed.

use bantam_cuda::device::Address;

/// Alignment of a device's buffers.
const ALIGN: usize = 256;

/// Bytes that end where memory ends that must not be touched, as near as their alignment allows. They begin as NaNs.
#[derive(Debug)]
pub(crate) struct Guarded {
    map: *mut libc::c_void,
    mapped: usize,
    start: usize,
    bytes: usize,
}

// SAFETY: the mapping is this value's own, and is not used without its device's lock.
#[allow(unsafe_code, reason = "a mapping is owned by its value")]
unsafe impl Send for Guarded {}

impl Guarded {
    #[allow(unsafe_code, reason = "maps memory")]
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        let page = 4096;
        let room = bytes.checked_next_multiple_of(ALIGN)?.checked_next_multiple_of(page)?;
        let mapped = room.checked_add(page)?;
        // SAFETY: a new private mapping.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return None;
        }
        let start = map.expose_provenance() + room - bytes.next_multiple_of(ALIGN);
        // SAFETY: within the mapping, page by page; the last one becomes the guard.
        unsafe {
            libc::mprotect(map.byte_add(room), page, libc::PROT_NONE);
            std::ptr::write_bytes(
                std::ptr::with_exposed_provenance_mut::<u8>(start),
                0xff,
                bytes.next_multiple_of(ALIGN),
            );
        }
        Some(Guarded { map, mapped, start, bytes })
    }

    pub(crate) fn address(&self) -> Address {
        self.start as Address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Guarded {
    #[allow(unsafe_code, reason = "unmaps memory")]
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.map, self.mapped) };
    }
}
