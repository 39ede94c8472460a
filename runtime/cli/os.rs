//! What differs between operating systems.

use std::{fs, io, path::Path};

use crate::error::CliError;

/// Most memory that this process has held, in bytes; `None` where the system does not say.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes that this user may still write to the file system of an existing folder; `None` where the system does not say.
pub(crate) fn free_disk_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    return rustix::fs::statvfs(folder).ok().and_then(|fs| fs.f_bavail.checked_mul(fs.f_frsize));
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

/// Takes a file out of the system's cache, so that the next to read it reads the disk.
pub(crate) fn drop_from_cache(file: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        use rustix::fs::{Advice, fadvise, fsync};
        let file = fs::File::open(file)?;
        // Pages that have not reached the disk yet stay in the cache.
        fsync(&file)?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    {
        let _ = file;
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system does not let a program empty its file cache"))
    }
}

/// CPUs of the machine, whether this process may use them or not; `None` where the system does not say.
pub(crate) fn online_cpus() -> Option<usize> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    Some(text.lines().filter(|line| line.starts_with("processor")).count()).filter(|&cpus| cpus > 0)
}

/// How the system gives out large pages: `always`, `madvise` or `never`; `None` where it does not say.
pub(crate) fn large_pages() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    let (_, chosen) = text.split_once('[')?;
    chosen.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

/// Name of a GPU driver that is loaded, if any.
pub(crate) fn gpu_driver() -> Option<&'static str> {
    let drivers = [("/proc/driver/nvidia", "NVIDIA"), ("/dev/kfd", "AMD")];
    drivers.into_iter().find(|(path, _)| Path::new(path).exists()).map(|(_, name)| name)
}

/// Threads for waiting on clients and files.
///
/// # Errors
/// Where the system lets the process have too few files or threads.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    // The library ends the process where it finds no handle for the signals that it listens to.
    let spare: io::Result<Vec<fs::File>> = (0..RUNTIME_FILES).map(|_| fs::File::open(NOTHING)).collect();
    let runtime = spare.and_then(|spare| {
        drop(spare);
        tokio::runtime::Runtime::new()
    });
    runtime.map_err(|e| {
        CliError::Failed(format!("no threads or files for the server: {e}; raise the limits (ulimit -n, -u)"))
    })
}

/// Files that a runtime opens as it starts.
const RUNTIME_FILES: usize = 6;
/// A file that can always be opened.
const NOTHING: &str = if cfg!(windows) { "NUL" } else { "/dev/null" };

/// Requests of the user or the system to stop this process (Ctrl-C, `kill`).
pub(crate) struct Stops {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Stops {
    /// From now on such requests no longer end the process; each listener is told of each.
    pub(crate) fn listen() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Stops { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
        }
        #[cfg(not(unix))]
        Ok(Stops {})
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
