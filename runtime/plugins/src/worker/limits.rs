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
    // Root's processes are not counted.
    alone::set();
}

/// This system has no such limits; memory and time are bounded by who asks.
#[cfg(not(unix))]
pub(super) fn set() {}

/// No process and no thread can be started, by root neither: what would not end with the process would outlive the time limit.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod alone {
    #![allow(unsafe_code, reason = "the system call that takes a filter is not in any safe interface")]

    use std::mem::offset_of;

    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP,
        SECCOMP_MODE_FILTER, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, c_long, c_ulong, seccomp_data, sock_filter,
        sock_fprog,
    };

    /// `linux/audit.h`: the system calls of which machine are numbered.
    #[cfg(target_arch = "x86_64")]
    const MACHINE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const MACHINE: u32 = 0xc000_00b7;

    /// From here on numbers are those of another interface of the same machine, which has all calls once more.
    #[cfg(target_arch = "x86_64")]
    const OTHER_INTERFACE: u32 = 0x4000_0000;
    #[cfg(target_arch = "aarch64")]
    const OTHER_INTERFACE: u32 = u32::MAX;

    const REFUSED: &[c_long] = &[
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_execve,
        libc::SYS_execveat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork,
    ];

    /// Sets the filter, for good. Where the system has no filters nothing happens.
    pub(super) fn set() {
        let mut filter = filter();
        let Ok(len) = u16::try_from(filter.len()) else { return };
        let program = sock_fprog { len, filter: filter.as_mut_ptr() };
        let [yes, no]: [c_ulong; 2] = [1, 0];
        // SAFETY: the first call takes numbers. Of the second, the program and its instructions are there while it lasts; the
        // system copies and checks them.
        unsafe {
            // Without this only root may set a filter.
            libc::prctl(PR_SET_NO_NEW_PRIVS, yes, no, no, no);
            libc::prctl(PR_SET_SECCOMP, c_ulong::from(SECCOMP_MODE_FILTER), &raw const program);
        }
    }

    /// Refuses the calls above, those of other machines, and those of the other interface; allows all others.
    fn filter() -> Vec<sock_filter> {
        let say = |code: u32, k: u32| instruction(code, (0, 0), k);
        let load = |at: usize| say(BPF_LD | BPF_W | BPF_ABS, u32::try_from(at).unwrap_or(u32::MAX));
        let refuse = say(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs());
        let mut filter = vec![
            load(offset_of!(seccomp_data, arch)),
            instruction(BPF_JMP | BPF_JEQ | BPF_K, (1, 0), MACHINE),
            refuse,
            load(offset_of!(seccomp_data, nr)),
            instruction(BPF_JMP | BPF_JGE | BPF_K, (0, 1), OTHER_INTERFACE),
            refuse,
        ];
        for number in REFUSED {
            let number = u32::try_from(*number).unwrap_or(u32::MAX);
            filter.extend([instruction(BPF_JMP | BPF_JEQ | BPF_K, (0, 1), number), refuse]);
        }
        filter.push(say(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
        filter
    }

    /// An instruction that goes on so many further if a comparison holds, and if not.
    fn instruction(code: u32, (jt, jf): (u8, u8), k: u32) -> sock_filter {
        sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt, jf, k }
    }
}

#[cfg(all(unix, not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))))]
mod alone {
    /// This system has no such filter here.
    pub(super) fn set() {}
}
