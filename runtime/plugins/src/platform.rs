//! What a file is by its first bytes: a library for this machine, for another, WebAssembly, or something else.
//!
//! The system's loader would refuse the wrong ones too, in words that help nobody.

use crate::PluginError;

/// How a plugin is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By the system's loader.
    Native,
    /// By an interpreter.
    Wasm,
}

impl Kind {
    /// What private copies end with: some loaders look at it.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Kind::Native => std::env::consts::DLL_EXTENSION,
            Kind::Wasm => "wasm",
        }
    }
}

/// File name extensions of plugins, on any system: one that was built for another is told of, not passed over.
pub(crate) const EXTENSIONS: &[&str] = &["so", "dylib", "dll", "wasm"];

/// What a file is that holds these bytes.
///
/// # Errors
/// A library for another system or processor, or none.
pub(crate) fn kind(bytes: &[u8]) -> Result<Kind, PluginError> {
    let library = match bytes {
        [0x00, b'a', b's', b'm', ..] => return Ok(Kind::Wasm),
        [0x7f, b'E', b'L', b'F', ..] => elf(bytes),
        [b'M', b'Z', ..] => pe(bytes),
        [0xcf, 0xfa, 0xed, 0xfe, ..] => mach(bytes),
        [0xca, 0xfe, 0xba, 0xbe, ..] => Some(Library { system: "macos", processor: std::env::consts::ARCH }),
        _ => None,
    };
    let Some(Library { system, processor }) = library else {
        return Err(PluginError::Format("it is neither a library nor WebAssembly".into()));
    };
    let here = Library { system: std::env::consts::OS, processor: std::env::consts::ARCH };
    let fits = match system {
        ELF_SYSTEM => !matches!(here.system, "macos" | "ios" | "windows"),
        system => system == here.system,
    };
    match fits && processor == here.processor {
        true => Ok(Kind::Native),
        false => Err(PluginError::Format(format!(
            "it is a library for {system} on {processor}, and this is {} on {}: build it for this machine",
            here.system, here.processor
        ))),
    }
}

struct Library {
    system: &'static str,
    processor: &'static str,
}

/// Where the same form is used on several systems.
const ELF_SYSTEM: &str = "Linux or alike";
const UNKNOWN: &str = "another processor";

fn at<const N: usize>(bytes: &[u8], from: usize) -> Option<[u8; N]> {
    bytes.get(from..from.checked_add(N)?)?.try_into().ok()
}

/// System V ABI, "ELF Header": `e_machine` at 18, in the byte order that byte 5 says.
fn elf(bytes: &[u8]) -> Option<Library> {
    let machine = at(bytes, 18)?;
    let machine = if bytes.get(5) == Some(&2) { u16::from_be_bytes(machine) } else { u16::from_le_bytes(machine) };
    let wide = bytes.get(4) == Some(&2);
    let processor = match (machine, wide) {
        (62, true) => "x86_64",
        (183, true) => "aarch64",
        (243, true) => "riscv64",
        (3, _) => "x86",
        (40, _) => "arm",
        (258, true) => "loongarch64",
        _ => UNKNOWN,
    };
    Some(Library { system: ELF_SYSTEM, processor })
}

/// Microsoft, "PE Format": the header's place is at 0x3c, the machine behind its signature.
fn pe(bytes: &[u8]) -> Option<Library> {
    let header = usize::try_from(u32::from_le_bytes(at(bytes, 0x3c)?)).ok()?;
    let signature: [u8; 4] = at(bytes, header)?;
    let machine = u16::from_le_bytes(at(bytes, header.checked_add(4)?)?);
    let processor = match machine {
        0x8664 => "x86_64",
        0xaa64 => "aarch64",
        0x014c => "x86",
        _ => UNKNOWN,
    };
    (&signature == b"PE\0\0").then_some(Library { system: "windows", processor })
}

/// Apple, `mach-o/loader.h`: `cputype` behind the magic number.
fn mach(bytes: &[u8]) -> Option<Library> {
    let processor = match u32::from_le_bytes(at(bytes, 4)?) {
        0x0100_0007 => "x86_64",
        0x0100_000c => "aarch64",
        _ => UNKNOWN,
    };
    Some(Library { system: "macos", processor })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf_for(machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    fn refusal(bytes: &[u8]) -> String {
        kind(bytes).unwrap_err().to_string()
    }

    #[test]
    fn the_processor_of_another_machine_is_named() {
        assert!(refusal(&elf_for(183)).contains("aarch64") || cfg!(target_arch = "aarch64"));
        assert!(refusal(&elf_for(22)).contains(UNKNOWN));
        let mut dll = vec![0; 0x100];
        dll[..2].copy_from_slice(b"MZ");
        dll[0x3c] = 0x80;
        dll[0x80..0x84].copy_from_slice(b"PE\0\0");
        dll[0x84..0x86].copy_from_slice(&0xaa64_u16.to_le_bytes());
        assert!(refusal(&dll).contains("windows on aarch64"));
        assert!(
            refusal(&[0xcf, 0xfa, 0xed, 0xfe, 0x07, 0, 0, 1]).contains("macos on x86_64") || cfg!(target_os = "macos")
        );
    }

    #[test]
    fn beginnings_of_any_length_are_told_apart_without_a_fault() {
        assert_eq!(kind(b"\0asm\x01\0\0\0").unwrap(), Kind::Wasm);
        for whole in [elf_for(62), b"MZ".repeat(40), vec![0xcf, 0xfa, 0xed, 0xfe, 7], b"#!/bin/sh".to_vec()] {
            for length in 0..whole.len() {
                let _ = kind(&whole[..length]);
            }
        }
        assert!(refusal(b"#!/bin/sh").contains("neither"));
        assert!(refusal(b"").contains("neither"));
    }
}
