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

/// Whether somebody still reads what is written there.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[allow(unsafe_code, reason = "asks the system about a pipe")]
pub(super) fn is_awaited(output: &impl std::os::fd::AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: output.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one entry, which is there while the call lasts, and which it may write to.
    let told = unsafe { libc::poll(&raw mut asked, 1, 0) };
    told < 1 || asked.revents & (libc::POLLERR | libc::POLLHUP) == 0
}

/// This system has no such limits; memory and time are bounded by who asks.
#[cfg(not(unix))]
pub(super) fn set() {}

/// No process and no thread can be started, by root neither: what would not end with the process would outlive the time limit.
/// And nothing can be done to others: no file is opened to be written, made, renamed or removed, no connection opened, no other
/// process signalled or traced. A plugin has no use for any of that, and one that goes astray does no harm by it.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod alone {
    #![allow(unsafe_code, reason = "the system call that takes a filter is not in any safe interface")]

    use std::mem::offset_of;

    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, PR_SET_NO_NEW_PRIVS,
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, c_long, c_ulong, seccomp_data,
        sock_filter, sock_fprog,
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

    /// Which begin something that goes on elsewhere.
    const REFUSED: &[c_long] = &[
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_execve,
        libc::SYS_execveat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork,
        // Other processes.
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_send_signal,
        libc::SYS_setpriority,
        // What is asked there passes no filter.
        libc::SYS_io_uring_setup,
        libc::SYS_socket,
        libc::SYS_socketpair,
        // Files: what these take is behind a pointer, which a filter does not follow.
        libc::SYS_openat2,
        libc::SYS_open_by_handle_at,
        libc::SYS_truncate,
        libc::SYS_unlinkat,
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_fremovexattr,
        libc::SYS_mount,
        libc::SYS_umount2,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rmdir,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mknod,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes,
    ];

    /// Whose first argument is the process that it is done to: this one, or 0, which says the same.
    const TO_ITSELF: &[c_long] = &[
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
    ];

    /// Which open files, and the argument that says what for.
    const OPENS: &[(c_long, usize)] = &[
        (libc::SYS_openat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1),
    ];

    /// For anything but reading.
    const WRITES: i32 = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;

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
        let allow = say(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        // Of an argument that is a number of 32 bits, the half that counts: both machines have it first.
        let argument = |index: usize| load(offset_of!(seccomp_data, args) + index * size_of::<u64>());
        let own = std::process::id();
        for number in TO_ITSELF {
            let is = |process: u32, further: u8| instruction(BPF_JMP | BPF_JEQ | BPF_K, (further, 0), process);
            filter.extend(where_it_is(*number, &[argument(0), is(own, 2), is(0, 1), refuse, allow]));
        }
        for (number, flags) in OPENS {
            let writes = instruction(BPF_JMP | BPF_JSET | BPF_K, (0, 1), WRITES.unsigned_abs());
            filter.extend(where_it_is(*number, &[argument(*flags), writes, refuse, allow]));
        }
        filter.push(allow);
        filter
    }

    /// Instructions for the calls of this number, which end with an answer.
    fn where_it_is(number: c_long, then: &[sock_filter]) -> Vec<sock_filter> {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let further = u8::try_from(then.len()).unwrap_or(u8::MAX);
        [&[instruction(BPF_JMP | BPF_JEQ | BPF_K, (0, further), number)], then].concat()
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
