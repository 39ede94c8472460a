//! Private copies of plugins: what is loaded is never the file that lies in a directory of plugins, but a copy, named by what
//! it holds, where nobody else writes.

use std::{
    collections::HashMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{
    PluginError, file,
    platform::{Kind, kind},
    trust::{self, Stamp},
};

/// What directories of copies are called.
const PREFIX: &str = "bantam-plugins-";

/// A plugin as it was when it was read: a file that is there as long as anybody has this.
#[derive(Debug)]
pub(crate) struct PrivateCopy {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// SHA-256 of its bytes, in hexadecimal.
    pub(crate) sha256: String,
    stamp: Option<Stamp>,
    /// Goes after the last copy in it.
    _place: Arc<Place>,
}

impl PrivateCopy {
    /// Whether it still lies there as it was made. Some systems clear away files that were not touched for days.
    pub(crate) fn is_there(&self) -> bool {
        self.stamp.is_some() && Stamp::of(&self.path) == self.stamp
    }
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        // Where the system keeps files that are mapped, the directory takes it along at the end.
        let _ = fs::remove_file(&self.path);
    }
}

/// The copies in use.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Made for the first copy.
    place: Option<Arc<Place>>,
    by_hash: HashMap<String, Weak<PrivateCopy>>,
    made: u64,
}

impl Copies {
    /// None yet. What processes have left that were killed is removed.
    pub(crate) fn new() -> Self {
        sweep(&std::env::temp_dir());
        Copies::default()
    }

    /// Reads a plugin and makes a copy of it, named by what it holds.
    ///
    /// # Errors
    /// A file that is not trusted, cannot be read, is too long or no plugin for this machine; no place for a copy.
    pub(crate) fn copy(&self, path: &Path) -> Result<Arc<PrivateCopy>, PluginError> {
        let bytes = file::read(path)?;
        let kind = kind(&bytes)?;
        let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        // A panic while the lock was held leaves a map that is still true.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.by_hash.retain(|_, copy| copy.strong_count() > 0);
        let known = state.by_hash.get(&sha256).and_then(Weak::upgrade);
        if let Some(copy) = known.filter(|copy| copy.is_there()) {
            return Ok(copy);
        }
        let place = state.place()?;
        // Numbered: the one before of this hash may be about to remove its file.
        state.made += 1;
        let copy = place.directory.path().join(format!("{sha256}-{}.{}", state.made, kind.extension()));
        write(&copy, &bytes).map_err(|e| PluginError::Place(format!("{}: {e}", copy.display())))?;
        let stamp = Stamp::of(&copy);
        let copy = Arc::new(PrivateCopy { path: copy, kind, sha256: sha256.clone(), stamp, _place: place });
        state.by_hash.insert(sha256, Arc::downgrade(&copy));
        Ok(copy)
    }
}

impl State {
    /// The directory of copies, made anew if somebody has taken it away.
    fn place(&mut self) -> Result<Arc<Place>, PluginError> {
        match &self.place {
            Some(place) if place.is_there() => Ok(Arc::clone(place)),
            _ => {
                let place = Arc::new(Place::new(&std::env::temp_dir())?);
                self.place = Some(Arc::clone(&place));
                Ok(place)
            }
        }
    }
}

/// Whole or not at all: a copy that was cut short by a full disk must not be taken for the plugin. Nobody else may read it.
fn write(copy: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = copy.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    file.persist(copy).map(|_| ()).map_err(|e| e.error)
}

/// A directory of this process alone, for this user alone.
#[derive(Debug)]
struct Place {
    directory: TempDir,
    /// Held as long as this process lives: who can take it may remove the directory.
    lock: system::Lock,
}

impl Place {
    fn new(within: &Path) -> Result<Self, PluginError> {
        const TRIES: usize = 64;
        let cannot = |e: io::Error| PluginError::Place(format!("{}: {e}", within.display()));
        let within = &within.canonicalize().map_err(cannot)?;
        trust::check_place(within)
            .map_err(|why| PluginError::Place(format!("{why}; or set TMPDIR to a directory of your own")))?;
        for _ in 0..TRIES {
            let directory = system::make(within).map_err(cannot)?;
            // Whoever sweeps at this very moment may take it for one that was left.
            match system::Lock::take(directory.path()) {
                Ok(Some(lock)) if lock.is_of(directory.path()) => return Ok(Place { directory, lock }),
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(cannot(e)),
                Ok(_) | Err(_) => {}
            }
        }
        Err(cannot(io::Error::other("directories that are made there are taken away again")))
    }

    fn is_there(&self) -> bool {
        self.lock.is_of(self.directory.path())
    }
}

/// Removes the directories that processes of this user have left which were killed. What cannot be removed is left.
fn sweep(places: &Path) {
    let Ok(entries) = fs::read_dir(places) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let lock = system::Lock::take(&entry.path());
        if let Ok(Some(_lock)) = lock {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(unix)]
mod system {
    use std::{fs::Permissions, io, os::fd::OwnedFd, os::unix::fs::PermissionsExt as _, path::Path};

    use rustix::{
        fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, open, statat},
        io::Errno,
    };
    use tempfile::{Builder, TempDir};

    use super::PREFIX;

    /// For the user alone, whatever the mask for new files says.
    pub(super) fn make(within: &Path) -> io::Result<TempDir> {
        Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(within)
    }

    /// The lock is on the directory itself: there is no moment at which it exists without what is locked.
    #[derive(Debug)]
    pub(super) struct Lock(OwnedFd);

    impl Lock {
        /// `None`: another process has it, or the directory is somebody else's.
        pub(super) fn take(directory: &Path) -> io::Result<Option<Self>> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = open(directory, flags, Mode::empty())?;
            if !is_own(&fstat(&opened)?) {
                return Ok(None);
            }
            match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Some(Lock(opened))),
                Err(Errno::WOULDBLOCK) => Ok(None),
                Err(e) => Err(e.into()),
            }
        }

        /// Whether what is called so is still the locked directory, and this user's alone.
        pub(super) fn is_of(&self, directory: &Path) -> bool {
            let (Ok(locked), Ok(found)) = (fstat(&self.0), statat(CWD, directory, AtFlags::SYMLINK_NOFOLLOW)) else {
                return false;
            };
            is_own(&found) && (locked.st_dev, locked.st_ino) == (found.st_dev, found.st_ino)
        }
    }

    fn is_own(stat: &Stat) -> bool {
        let is_private = stat.st_mode & 0o777 == 0o700;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        is_directory && is_private && stat.st_uid == rustix::process::geteuid().as_raw()
    }
}

#[cfg(not(unix))]
mod system {
    use std::{fs::File, io, path::Path};

    use tempfile::{Builder, TempDir};

    use super::PREFIX;

    /// The file in it that is locked.
    const FILE: &str = "in-use";

    /// Directories for temporary files are the user's own.
    pub(super) fn make(within: &Path) -> io::Result<TempDir> {
        let directory = Builder::new().prefix(PREFIX).tempdir_in(within)?;
        File::create_new(directory.path().join(FILE))?;
        Ok(directory)
    }

    #[derive(Debug)]
    pub(super) struct Lock(#[expect(dead_code, reason = "kept for the lock on it")] File);

    impl Lock {
        /// `None`: another process has it.
        pub(super) fn take(directory: &Path) -> io::Result<Option<Self>> {
            let file = File::options().write(true).open(directory.join(FILE))?;
            Ok(file.try_lock().is_ok().then_some(Lock(file)))
        }

        /// Whether what is called so is still the locked directory: a file that is open is not removed.
        pub(super) fn is_of(&self, directory: &Path) -> bool {
            let _ = self;
            directory.join(FILE).exists()
        }
    }
}
