//! A plugin that is a library of this machine, called through the C interface of `plugins/bantam_plugin.h`.

#![allow(unsafe_code, reason = "calling a plugin through its C interface; this code runs in the worker only")]

use std::{path::Path, slice};

use bantam_family_api::wire::ABI;
use libloading::Library;

use super::{LONGEST_ANSWER, Question, Refusal, symbols};

/// `bantam_bytes`.
#[repr(C)]
struct Bytes {
    data: *mut u8,
    len: usize,
}

type Abi = unsafe extern "C" fn() -> u32;
type Describe = unsafe extern "C" fn(*mut Bytes) -> i32;
type Answer = unsafe extern "C" fn(*const u8, usize, *mut Bytes) -> i32;
type Free = unsafe extern "C" fn(*mut Bytes);

/// Asks the plugin in a library.
pub(super) fn ask(file: &Path, question: Question, request: &[u8]) -> Result<Vec<u8>, Refusal> {
    // SAFETY: loading runs the library's own initialisers, which may do anything: this process is made for that, holds
    // nothing of value, and its end is expected.
    let library = unsafe { Library::new(file) }.map_err(|e| Refusal::Load(crate::error::chain(&e)))?;
    let found = {
        let abi: Abi = symbol(&library, symbols::ABI)?;
        // SAFETY: the header says that the function takes nothing and returns a number.
        unsafe { abi() }
    };
    if found != ABI {
        return Err(Refusal::Abi(found));
    }
    let describe: Describe = symbol(&library, symbols::DESCRIBE)?;
    let build: Answer = symbol(&library, symbols::BUILD)?;
    let free: Free = symbol(&library, symbols::FREE)?;
    let mut bytes = Bytes { data: std::ptr::null_mut(), len: 0 };
    let code = match question {
        // SAFETY: the header's signature; `bytes` may be written to while the call lasts.
        Question::Describe => unsafe { describe(&raw mut bytes) },
        Question::Build | Question::Infer => {
            let answer = if question == Question::Build { build } else { symbol(&library, symbols::INFER)? };
            // SAFETY: as above; the request can be read while the call lasts.
            unsafe { answer(request.as_ptr(), request.len(), &raw mut bytes) }
        }
    };
    if code != 0 {
        return Err(Refusal::Code(code));
    }
    let answer = taken(&bytes)?;
    // SAFETY: the answer is the plugin's and was copied.
    unsafe { free(&raw mut bytes) };
    Ok(answer)
}

/// A function of the library. `F` must be the type that the header gives it.
fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F, Refusal> {
    // SAFETY: a plugin whose function has another type than the header's breaks the interface; nothing can show it.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| Refusal::Symbol(name.into()))
}

/// A copy of an answer.
fn taken(bytes: &Bytes) -> Result<Vec<u8>, Refusal> {
    if bytes.data.is_null() || bytes.len == 0 {
        return Err(Refusal::Answer("it is empty".into()));
    }
    if bytes.len > LONGEST_ANSWER {
        return Err(Refusal::Answer(format!("it is said to be {} bytes long", bytes.len)));
    }
    // SAFETY: the plugin says that so many bytes can be read there; if they cannot, this process ends.
    Ok(unsafe { slice::from_raw_parts(bytes.data, bytes.len) }.to_vec())
}
