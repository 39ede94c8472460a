//! The exported functions' work: bytes in, bytes out, and nothing unwinds into the host.

use std::{
    iter,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
};

use bantam_family_api::{Family, wire};

/// Bytes that the plugin has allocated: `bantam_bytes` of `bantam_plugin.h`.
#[derive(Debug)]
#[repr(C)]
pub struct Bytes {
    /// The first of them; null: none.
    pub data: *mut u8,
    /// How many.
    pub len: usize,
}

/// What the functions return when they have answered.
pub(crate) const ANSWERED: i32 = 0;

/// What they return when they have not: the host left out a pointer, or the plugin is broken beyond words.
pub(crate) const NO_ANSWER: i32 = 1;

/// Writes the family's description to `answer`; 0 if it did.
///
/// # Safety
/// `answer` is null or can be written.
pub unsafe fn describe(family: &dyn Family, version: &str, answer: *mut Bytes) -> i32 {
    let bytes = catch_unwind(AssertUnwindSafe(|| wire::description(family, version)));
    // SAFETY: the caller's promise.
    bytes.map_or(NO_ANSWER, |bytes| unsafe { give(bytes, answer) })
}

/// Answers a request of `len` bytes; 0 if it did. A refusal is an answer too.
///
/// # Safety
/// `request` is null or points to `len` bytes that nobody writes meanwhile; `answer` is null or can be written.
pub unsafe fn build(family: &dyn Family, request: *const u8, len: usize, answer: *mut Bytes) -> i32 {
    // SAFETY: the caller's promise.
    let request = unsafe { bytes(request, len) };
    let bytes = catch_unwind(AssertUnwindSafe(|| wire::answer(family, request)));
    // SAFETY: the caller's promise.
    bytes.map_or(NO_ANSWER, |bytes| unsafe { give(bytes, answer) })
}

/// What the host has put there.
///
/// # Safety
/// `data` is null or points to `len` bytes that nobody writes while they are used.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    match data.is_null() {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { slice::from_raw_parts(data, len) },
    }
}

/// Hands an answer over, to come back to [`free`].
///
/// # Safety
/// `answer` is null or can be written.
pub(crate) unsafe fn give(bytes: Vec<u8>, answer: *mut Bytes) -> i32 {
    if bytes.is_empty() || answer.is_null() {
        return NO_ANSWER;
    }
    let len = bytes.len();
    let data = Box::into_raw(bytes.into_boxed_slice()).cast();
    // SAFETY: not null, and the caller promises that it can be written.
    unsafe { answer.write(Bytes { data, len }) };
    ANSWERED
}

/// Gives the memory of an answer back, or of what [`alloc`] made, and leaves null behind: doing it twice does nothing.
///
/// # Safety
/// `answer` is null or holds null, or what [`describe`], [`build`] or [`alloc`] allocated and nobody uses any more.
pub unsafe fn free(answer: *mut Bytes) {
    if answer.is_null() {
        return;
    }
    // SAFETY: not null, and the caller promises that it can be read and written.
    let Bytes { data, len } = unsafe { answer.replace(Bytes { data: ptr::null_mut(), len: 0 }) };
    if !data.is_null() {
        // SAFETY: the caller promises that the bytes are a boxed slice of this crate's, given away once.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(data, len)) });
    }
}

/// Memory of `len` bytes for a request, all 0, to come back to [`free`]; null if there is none. For WebAssembly, where the
/// host has no memory that the plugin could read.
pub fn alloc(len: usize) -> *mut u8 {
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len).is_err() {
        return ptr::null_mut();
    }
    bytes.extend(iter::repeat_n(0_u8, len));
    Box::into_raw(bytes.into_boxed_slice()).cast()
}
