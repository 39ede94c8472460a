//! What the worker may take of the machine. It sets this for itself, before the plugin's code runs, for good.

/// Most memory, in bytes of address space.
#[cfg(unix)]
const MEMORY: u64 = 2 << 30;
/// Most processor time, in seconds. Who asks ends the process earlier than that, unless it is gone itself.
#[cfg(unix)]
const SECONDS: u64 = 60;
#[cfg(unix)]
const OPEN_FILES: u64 = 32;

/// Sets the limits. One that the system does not know, or has lower already, is left.
#[cfg(unix)]
pub(super) fn set() {
    use rustix::process::{Resource, Rlimit, setrlimit};

    let limits = [
        (Resource::As, MEMORY),
        (Resource::Cpu, SECONDS),
        (Resource::Core, 0),
        // No file can be written, and no process started.
        (Resource::Fsize, 0),
        (Resource::Nproc, 0),
        (Resource::Nofile, OPEN_FILES),
    ];
    // Whoever asks may be killed; nobody would end this process then.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    for (resource, most) in limits {
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
}

/// This system has no such limits; memory and time are bounded by who asks.
#[cfg(not(unix))]
pub(super) fn set() {}
