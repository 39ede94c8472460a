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

/// Addresses that cannot be touched until there is memory behind them, which begins as NaNs.
#[derive(Debug)]
pub(crate) struct Reserved {
    map: *mut libc::c_void,
    mapped: usize,
    /// Bytes that may be touched.
    backed: usize,
}

// SAFETY: as for `Guarded`.
#[allow(unsafe_code, reason = "a mapping is owned by its value")]
unsafe impl Send for Reserved {}

/// Bytes that memory comes in.
const PAGE: usize = 4096;

impl Reserved {
    #[allow(unsafe_code, reason = "maps memory")]
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        // One page more, that is never touched.
        let mapped = bytes.checked_next_multiple_of(PAGE)?.checked_add(PAGE)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_NONE, flags, -1, 0) };
        (map != libc::MAP_FAILED).then_some(Reserved { map, mapped, backed: 0 })
    }

    pub(crate) fn address(&self) -> Address {
        self.map.expose_provenance() as Address
    }

    pub(crate) fn backed(&self) -> usize {
        self.backed
    }

    /// Bytes that would be taken to have memory behind the first `bytes`; none if there are not so many addresses.
    pub(crate) fn missing(&self, bytes: usize) -> Option<usize> {
        let wanted = bytes.checked_next_multiple_of(PAGE).filter(|wanted| *wanted <= self.mapped - PAGE)?;
        Some(wanted.saturating_sub(self.backed))
    }

    /// Puts memory behind so many more bytes, which [`Reserved::missing`] gave.
    #[allow(unsafe_code, reason = "makes memory that can be touched")]
    pub(crate) fn back(&mut self, more: usize) -> bool {
        // SAFETY: within the mapping, whose part behind `backed` nobody has touched yet.
        unsafe {
            let start = self.map.byte_add(self.backed);
            if libc::mprotect(start, more, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return false;
            }
            std::ptr::write_bytes(start.cast::<u8>(), 0xff, more);
        }
        self.backed += more;
        true
    }
}

impl Drop for Reserved {
    #[allow(unsafe_code, reason = "unmaps memory")]
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.map, self.mapped) };
    }
}
