//! What the runtime asks the operating system. The one module of this crate that differs between systems.

use std::{fs::File, io, path::Path};

/// Memory that can be taken without pushing others out, in bytes; `None` where the system does not say.
#[cfg(target_os = "linux")]
pub fn available_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let machine = meminfo_field(&meminfo, "MemAvailable:")?;
    Some(cgroup_room().map_or(machine, |room| room.min(machine)))
}

/// Memory that can be taken without pushing others out, in bytes; `None` where the system does not say.
#[cfg(not(target_os = "linux"))]
pub fn available_memory() -> Option<u64> {
    None
}

/// What the machine has, or the part of it that this process may use, in bytes; `None` where the system does not say.
#[cfg(target_os = "linux")]
pub(crate) fn machine_memory() -> Option<u64> {
    let machine = meminfo_field(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|limit| limit.trim().parse().ok());
    Some(limit.map_or(machine, |limit: u64| limit.min(machine)))
}

/// What the machine has, or the part of it that this process may use, in bytes; `None` where the system does not say.
#[cfg(not(target_os = "linux"))]
pub(crate) fn machine_memory() -> Option<u64> {
    None
}

/// What this process has in memory, mapped files included, in bytes; `None` where the system does not say.
#[cfg(target_os = "linux")]
pub(crate) fn process_memory() -> Option<u64> {
    meminfo_field(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// What this process has in memory, mapped files included, in bytes; `None` where the system does not say.
#[cfg(not(target_os = "linux"))]
pub(crate) fn process_memory() -> Option<u64> {
    None
}

/// A new file that other users cannot read.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Brings the names in a directory to the disk.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    // Other systems let no program open a directory.
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

#[cfg(target_os = "linux")]
fn meminfo_field(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix(field))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What the control group leaves, if it sets a limit. Page cache counts as used there although it can be dropped, so it is
/// added back.
#[cfg(target_os = "linux")]
fn cgroup_room() -> Option<u64> {
    let read = |file: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let stat = read("memory.stat")?;
    let cached = stat.lines().find_map(|l| l.strip_prefix("inactive_file ")).and_then(|v| v.trim().parse().ok());
    Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0u64))))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_kibibytes() {
        assert_eq!(meminfo_field("MemTotal: 8 kB\nMemAvailable:    3 kB\n", "MemAvailable:"), Some(3072));
        assert_eq!(meminfo_field("MemTotal: 8 kB\n", "MemAvailable:"), None);
    }

    #[test]
    fn this_process_is_a_part_of_the_machine() {
        let (process, machine) = (process_memory().unwrap(), machine_memory().unwrap());
        assert!(0 < process && process < machine, "{process} of {machine}");
    }
}
