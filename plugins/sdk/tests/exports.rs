//! What the macro exports, called as a host does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(unsafe_code, reason = "calls what crosses as pointers")]

use std::{ptr, slice};

use bantam_plugin_sdk::{
    abi::{Bytes, alloc},
    export_family,
    family::{
        Checkpoint, Family, FamilyError, Model,
        wire::{ABI, BuildAnswer, BuildRequest, Description, WireError},
    },
};

struct Panicking;

impl Family for Panicking {
    fn name(&self) -> &'static str {
        "Panicking"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["panicking"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        panic!("about {}", checkpoint.architecture)
    }
}

export_family!(Panicking);

unsafe extern "C" {
    safe fn bantam_plugin_abi() -> u32;
    fn bantam_plugin_describe(answer: *mut Bytes) -> i32;
    fn bantam_plugin_build(request: *const u8, request_len: usize, answer: *mut Bytes) -> i32;
    fn bantam_plugin_free(answer: *mut Bytes);
}

/// Takes an answer as a host does: copied, given back, and given back again.
fn taken(ask: impl FnOnce(*mut Bytes) -> i32) -> Option<Vec<u8>> {
    let mut answer = Bytes { data: ptr::null_mut(), len: 0 };
    let status = ask(&raw mut answer);
    if status != 0 {
        assert!(answer.data.is_null());
        return None;
    }
    // SAFETY: the plugin answered.
    let bytes = unsafe { slice::from_raw_parts(answer.data, answer.len) }.to_vec();
    for _ in 0..2 {
        // SAFETY: what the plugin answered, and then nothing.
        unsafe { bantam_plugin_free(&raw mut answer) };
        assert!(answer.data.is_null() && answer.len == 0);
    }
    Some(bytes)
}

fn built(request: &[u8]) -> WireError {
    // SAFETY: the request is a slice's.
    let answer = taken(|answer| unsafe { bantam_plugin_build(request.as_ptr(), request.len(), answer) });
    match BuildAnswer::from_slice(&answer.unwrap()).unwrap() {
        BuildAnswer::Error(error) => error,
        other => panic!("expected an error, found {other:?}"),
    }
}

#[test]
fn a_plugin_says_who_it_is() {
    assert_eq!(bantam_plugin_abi(), ABI);
    // SAFETY: the answer is the host's.
    let said = taken(|answer| unsafe { bantam_plugin_describe(answer) }).unwrap();
    let said = Description::from_slice(&said).unwrap();
    assert_eq!((said.name.as_str(), said.version.as_str()), ("Panicking", env!("CARGO_PKG_VERSION")));
    assert_eq!(said.architectures, ["panicking"]);
}

#[test]
fn a_panic_and_a_bad_request_are_answers() {
    let checkpoint = Checkpoint { architecture: "panicking".into(), ..Checkpoint::default() };
    let request = BuildRequest::Model { checkpoint }.to_vec().unwrap();
    assert_eq!(built(&request), WireError::message("the plugin panicked: about panicking"));
    for request in [&b""[..], b"{", b"\xff\xff", &request[1..]] {
        assert!(matches!(built(request), WireError::Message { .. }));
    }
}

#[test]
fn pointers_that_are_left_out_do_no_harm() {
    // SAFETY: null is allowed everywhere.
    unsafe {
        assert_ne!(bantam_plugin_describe(ptr::null_mut()), 0);
        assert_ne!(bantam_plugin_build(b"{}".as_ptr(), 2, ptr::null_mut()), 0);
        bantam_plugin_free(ptr::null_mut());
        assert!(taken(|answer| bantam_plugin_build(ptr::null(), 0, answer)).is_some());
    }
}

#[test]
fn memory_for_a_request_comes_back_like_an_answer() {
    for len in [0, 1, 4096] {
        let mut bytes = Bytes { data: alloc(len), len };
        assert!(!bytes.data.is_null());
        // SAFETY: allocated just now, with this length.
        unsafe {
            assert!(slice::from_raw_parts(bytes.data, len).iter().all(|byte| *byte == 0));
            bantam_plugin_free(&raw mut bytes);
        }
    }
    assert!(alloc(usize::MAX / 2).is_null());
}
