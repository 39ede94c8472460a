//! What differs between operating systems: counting cores, asking for large pages, giving memory back, waiting for a core.

use std::num::NonZero;

/// Threads that can run at full speed at the same time: physical cores of the affinity mask, within the CPU quota.
pub(crate) fn physical_cores() -> usize {
    // The standard library knows affinity masks and cgroup quotas, but counts hyper-threads.
    let logical = std::thread::available_parallelism().map_or(1, NonZero::get);
    system::cores().map_or(logical, |cores| cores.clamp(1, logical))
}

/// Asks for large pages under `memory`: attention jumps through gigabytes, and small pages miss the TLB at each jump.
pub(crate) fn prefer_large_pages(memory: *mut u8, bytes: usize) {
    system::prefer_large_pages(memory, bytes);
}

/// Gives memory back to the system, as far as it is whole pages of its: those read as zero from now on, and others keep what
/// they hold.
///
/// # Safety
/// The range must be the caller's, and nobody else may touch it meanwhile.
pub(crate) unsafe fn give_back(memory: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { system::give_back(memory, bytes) }
}

/// How long a thread has waited for a core that others had, as far as the system tells.
pub(crate) struct CoreWaits {
    source: system::WaitSource,
    last: u64,
}

impl CoreWaits {
    pub(crate) fn of_this_thread() -> Self {
        let source = system::WaitSource::of_this_thread();
        let last = source.nanoseconds().unwrap_or_default();
        CoreWaits { source, last }
    }

    /// Nanoseconds since the last call; 0 where the system does not tell.
    pub(crate) fn since_last(&mut self) -> u64 {
        let Some(now) = self.source.nanoseconds() else { return 0 };
        now.saturating_sub(std::mem::replace(&mut self.last, now))
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::{collections::HashSet, fs::File, os::unix::fs::FileExt as _};

    /// The scheduler's account of one thread: nanoseconds on a core, nanoseconds waiting for one, times it got one.
    pub(super) struct WaitSource(Option<File>);

    impl WaitSource {
        pub(super) fn of_this_thread() -> Self {
            WaitSource(File::open("/proc/thread-self/schedstat").ok())
        }

        pub(super) fn nanoseconds(&self) -> Option<u64> {
            let mut text = [0; 64];
            let len = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
            std::str::from_utf8(text.get(..len)?).ok()?.split_whitespace().nth(1)?.parse().ok()
        }
    }

    /// Distinct cores among the CPUs this thread may run on.
    pub(super) fn cores() -> Option<usize> {
        let cores: HashSet<String> = allowed_cpus()?.into_iter().map(core_of).collect::<Option<_>>()?;
        Some(cores.len())
    }

    /// The CPUs that share `cpu`'s core: a name for the core.
    fn core_of(cpu: usize) -> Option<String> {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok()
    }

    fn allowed_cpus() -> Option<Vec<usize>> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
        parse_cpu_list(list.trim())
    }

    /// Reads a list such as `0-3,8`.
    pub(super) fn parse_cpu_list(list: &str) -> Option<Vec<usize>> {
        let mut cpus = Vec::new();
        for part in list.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            cpus.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
        }
        Some(cpus)
    }

    /// Bytes of a page of the system's, or a multiple of them.
    const PAGE: usize = 1 << 14;

    /// The whole pages within a range: where they begin, from its start, and their bytes.
    fn whole_pages(memory: *mut u8, bytes: usize) -> Option<(usize, usize)> {
        let skip = memory.align_offset(PAGE);
        let rest = bytes.checked_sub(skip)? / PAGE * PAGE;
        (rest > 0).then_some((skip, rest))
    }

    pub(super) fn prefer_large_pages(memory: *mut u8, bytes: usize) {
        let Some((skip, rest)) = whole_pages(memory, bytes) else { return };
        // SAFETY: the range lies in the caller's allocation, on page bounds; the advice changes no contents, and its
        // refusal costs only speed.
        unsafe { libc::madvise(memory.add(skip).cast(), rest, libc::MADV_HUGEPAGE) };
    }

    /// See [`super::give_back`].
    pub(super) unsafe fn give_back(memory: *mut u8, bytes: usize) {
        let Some((skip, rest)) = whole_pages(memory, bytes) else { return };
        // SAFETY: the range lies in what is the caller's, on page bounds, in anonymous memory, which reads as zero then; a
        // refusal leaves it as it is.
        unsafe { libc::madvise(memory.add(skip).cast(), rest, libc::MADV_DONTNEED) };
    }
}

#[cfg(target_os = "macos")]
mod system {
    pub(super) use super::no_account::WaitSource;

    /// Performance cores where the chip has two kinds, else all physical ones.
    pub(super) fn cores() -> Option<usize> {
        query(c"hw.perflevel0.physicalcpu").or_else(|| query(c"hw.physicalcpu"))
    }

    fn query(name: &std::ffi::CStr) -> Option<usize> {
        let mut value: libc::c_int = 0;
        let mut size = size_of::<libc::c_int>();
        // SAFETY: `value` and `size` describe a buffer of exactly that size, nothing is set.
        let status = unsafe {
            libc::sysctlbyname(name.as_ptr(), (&raw mut value).cast(), &raw mut size, std::ptr::null_mut(), 0)
        };
        (status == 0).then_some(value).and_then(|v| usize::try_from(v).ok())
    }

    pub(super) fn prefer_large_pages(_memory: *mut u8, _bytes: usize) {}

    /// These systems take back memory that is not used where they need it.
    pub(super) unsafe fn give_back(_memory: *mut u8, _bytes: usize) {}
}

#[cfg(windows)]
mod system {
    pub(super) use super::no_account::WaitSource;

    /// A record of `GetLogicalProcessorInformation`.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Relation {
        mask: usize,
        kind: u32,
        detail: [u64; 2],
    }

    /// `RelationProcessorCore`.
    const CORE: u32 = 0;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetLogicalProcessorInformation(buffer: *mut Relation, bytes: *mut u32) -> i32;
    }

    /// Physical cores of this processor group.
    pub(super) fn cores() -> Option<usize> {
        let mut relations = vec![Relation::default(); 1024];
        let mut bytes = u32::try_from(size_of_val(relations.as_slice())).ok()?;
        // SAFETY: `bytes` is the size of the buffer; the call writes whole records into it and their size to `bytes`.
        if unsafe { GetLogicalProcessorInformation(relations.as_mut_ptr(), &raw mut bytes) } == 0 {
            return None;
        }
        relations.truncate(usize::try_from(bytes).ok()? / size_of::<Relation>());
        Some(relations.iter().filter(|r| r.kind == CORE).count())
    }

    pub(super) fn prefer_large_pages(_memory: *mut u8, _bytes: usize) {}

    /// These systems take back memory that is not used where they need it.
    pub(super) unsafe fn give_back(_memory: *mut u8, _bytes: usize) {}
}

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
mod system {
    pub(super) use super::no_account::WaitSource;

    pub(super) fn cores() -> Option<usize> {
        None
    }

    pub(super) fn prefer_large_pages(_memory: *mut u8, _bytes: usize) {}

    /// These systems take back memory that is not used where they need it.
    pub(super) unsafe fn give_back(_memory: *mut u8, _bytes: usize) {}
}

#[cfg(not(target_os = "linux"))]
mod no_account {
    /// These systems keep no account of waiting.
    pub(crate) struct WaitSource;

    impl WaitSource {
        pub(crate) fn of_this_thread() -> Self {
            WaitSource
        }

        pub(crate) fn nanoseconds(&self) -> Option<u64> {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_among_too_many_waits_for_its_core() {
        if system::WaitSource::of_this_thread().nanoseconds().is_none() {
            return; // a kernel built without the account
        }
        let threads = 4 * std::thread::available_parallelism().unwrap().get();
        let waited = || {
            let mut waits = CoreWaits::of_this_thread();
            let begin = std::time::Instant::now();
            while begin.elapsed().as_millis() < 100 {
                std::hint::spin_loop();
            }
            waits.since_last()
        };
        let all: u64 = std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..threads).map(|_| scope.spawn(waited)).collect();
            waiting.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(all > 100_000_000, "{threads} threads waited {all} ns together");
    }

    #[test]
    fn cores_are_within_what_the_system_grants() {
        let logical = std::thread::available_parallelism().unwrap().get();
        assert!((1..=logical).contains(&physical_cores()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(system::parse_cpu_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(system::parse_cpu_list("7"), Some(vec![7]));
        assert_eq!(system::parse_cpu_list("x"), None);
    }
}
