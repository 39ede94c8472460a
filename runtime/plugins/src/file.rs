//! A plugin's file: read once, and copied to where nobody else writes.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::SystemTime,
};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{PluginError, platform::Kind, platform::kind, trust};

/// Longest plugin that is read, in bytes.
const LONGEST: u64 = 256 << 20;

/// What shows that a file is not the one it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    changed: Option<SystemTime>,
    #[cfg(unix)]
    inode: [i128; 6],
}

impl Stamp {
    /// Of the file that is there now; `None` if it cannot be seen.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        Some(Stamp {
            bytes: metadata.len(),
            changed: metadata.modified().ok(),
            #[cfg(unix)]
            inode: {
                use std::os::unix::fs::MetadataExt as _;
                let (dev, ino, mode) = (metadata.dev().into(), metadata.ino().into(), metadata.mode().into());
                [dev, ino, metadata.ctime().into(), metadata.ctime_nsec().into(), mode, metadata.uid().into()]
            },
        })
    }
}

/// A plugin as it was when it was read: a file that is there as long as anybody has this.
#[derive(Debug)]
pub(crate) struct PrivateCopy {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// SHA-256 of its bytes, in hexadecimal.
    pub(crate) sha256: String,
    /// Goes after the last copy in it.
    _directory: Arc<TempDir>,
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        // Where the system keeps files that are mapped, the directory takes it along at the end.
        let _ = fs::remove_file(&self.path);
    }
}

/// The copies in use, in a directory of this process.
#[derive(Debug)]
pub(crate) struct Copies {
    directory: Arc<TempDir>,
    /// Held as long as this process lives: who finds it free may remove the directory.
    _lock: File,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_hash: HashMap<String, Weak<PrivateCopy>>,
    made: u64,
}

impl Copies {
    /// None yet.
    ///
    /// # Errors
    /// If there is no place for them.
    pub(crate) fn new() -> io::Result<Self> {
        sweep(&std::env::temp_dir());
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let lock = File::create(directory.path().join(LOCK))?;
        lock.lock()?;
        Ok(Copies { directory: Arc::new(directory), _lock: lock, known: Mutex::default() })
    }

    /// Reads a plugin and puts a copy of it here, named by what it holds.
    ///
    /// # Errors
    /// A file that is not trusted, cannot be read, is too long or no plugin for this machine.
    pub(crate) fn copy(&self, path: &Path) -> Result<Arc<PrivateCopy>, PluginError> {
        let bytes = read(path)?;
        let kind = kind(&bytes)?;
        let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        // A panic while the lock was held leaves a map that is still true.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_hash.retain(|_, copy| copy.strong_count() > 0);
        if let Some(copy) = known.by_hash.get(&sha256).and_then(Weak::upgrade) {
            return Ok(copy);
        }
        // Numbered: the one before of this hash may be about to remove its file.
        known.made += 1;
        let copy = self.directory.path().join(format!("{sha256}-{}.{}", known.made, kind.extension()));
        write(&copy, &bytes).map_err(|e| PluginError::Read(format!("{}: {e}", copy.display())))?;
        let directory = Arc::clone(&self.directory);
        let copy = Arc::new(PrivateCopy { path: copy, kind, sha256: sha256.clone(), _directory: directory });
        known.by_hash.insert(sha256, Arc::downgrade(&copy));
        Ok(copy)
    }
}

/// What directories of copies are called, and the file in them that is locked while they are in use.
const PREFIX: &str = "bantam-plugins-";
const LOCK: &str = "in-use";

/// Removes the directories that processes have left which were killed. What cannot be removed is left.
fn sweep(places: &Path) {
    let Ok(entries) = fs::read_dir(places) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let lock = File::options().write(true).open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, PluginError> {
    let cannot = |e: io::Error| PluginError::Read(e.to_string());
    // Opening a pipe would wait for somebody to write to it.
    if !path.metadata().map_err(cannot)?.is_file() {
        return Err(PluginError::Read("it is not a file".into()));
    }
    let file = File::open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    trust::check(&metadata, path)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(cannot)?;
    match bytes.len() as u64 > LONGEST {
        true => Err(PluginError::Read(format!("it is longer than {LONGEST} bytes"))),
        false => Ok(bytes),
    }
}

/// Whole or not at all: a copy that was cut short by a full disk must not be taken for the plugin.
fn write(copy: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = copy.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    file.persist(copy).map(|_| ()).map_err(|e| e.error)
}

/// The files in a directory that may be plugins, by name.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn candidates(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| crate::platform::EXTENSIONS.contains(&extension)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
