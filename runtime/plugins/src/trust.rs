//! Whose files are loaded: the user's own and the system owner's, where nobody else can write.
//!
//! A plugin runs with the user's rights. So a file that somebody else could have written, or put there, must not be opened,
//! or a directory that all can write to would be a way to run code as anybody who serves a model. That holds for each step of
//! the way to the file: where the entry is a symbolic link, for the link, the directory that it lies in, what it leads to, and
//! the directory that this lies in.
//!
//! Nothing is looked at twice by its name: a directory is opened, judged by its descriptor, and the next entry is opened in
//! that descriptor. So there is no moment between the check and the use in which somebody could put another file there.

use std::{fs::File, io, path::Path};

use crate::PluginError;

pub(crate) use system::Stamp;

/// Opens a plugin's file, if it is one and can be trusted.
///
/// # Errors
/// What it is instead, whose it is, or who may write to it.
pub(crate) fn open(path: &Path) -> Result<File, PluginError> {
    system::open(path)
}

/// Whether a directory is one in which nobody else can replace what is the user's.
///
/// # Errors
/// Whose it is, or who may write to it.
pub(crate) fn check_place(directory: &Path) -> Result<(), PluginError> {
    system::check_place(directory)
}

fn cannot(error: impl Into<io::Error>) -> PluginError {
    PluginError::Read(error.into().to_string())
}

fn no_file() -> PluginError {
    PluginError::Read("it is not a file".into())
}

#[cfg(unix)]
mod system {
    use std::{
        ffi::{OsStr, OsString},
        fs::File,
        io,
        os::{fd::OwnedFd, unix::ffi::OsStringExt as _},
        path::{Path, PathBuf},
        time::{Duration, SystemTime},
    };

    use rustix::{
        fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat},
        io::Errno,
    };

    use super::{cannot, no_file};
    use crate::{PluginError, error::told};

    const GROUP_WRITABLE: i128 = 0o020;
    const WORLD_WRITABLE: i128 = 0o002;
    /// In such a directory only its owner can replace or remove a file.
    const STICKY: i128 = 0o1000;

    /// Most symbolic links on the way to a file, as most systems have it.
    const MOST_LINKS: usize = 40;

    /// A directory is opened for what lies in it, not to be listed.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

    /// A pipe must not be waited for, and a terminal not become this process's.
    const FILE: OFlags =
        OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

    /// What the system says of a file, of which all changes if the file does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct About {
        place: [i128; 2],
        mode: i128,
        owner: [i128; 2],
        bytes: i128,
        times: [i128; 4],
    }

    impl About {
        fn of(stat: &Stat) -> Self {
            About {
                place: [stat.st_dev.into(), stat.st_ino.into()],
                mode: stat.st_mode.into(),
                owner: [stat.st_uid.into(), stat.st_gid.into()],
                bytes: stat.st_size.into(),
                times: [
                    stat.st_mtime.into(),
                    stat.st_mtime_nsec.into(),
                    stat.st_ctime.into(),
                    stat.st_ctime_nsec.into(),
                ],
            }
        }

        /// Of a directory, what does not change with the files in it.
        fn of_directory(stat: &Stat) -> Self {
            About { bytes: 0, times: [0; 4], ..About::of(stat) }
        }
    }

    /// An entry of a directory on the way to a file.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Step {
        directory: PathBuf,
        of_directory: About,
        entry: About,
        /// Where it leads, if it is a symbolic link.
        link: Option<PathBuf>,
    }

    /// The way to a file, and the entry at its end.
    struct Way {
        steps: Vec<Step>,
        end: Result<(OwnedFd, OsString, FileType), Errno>,
    }

    impl Way {
        fn to(path: &Path) -> Self {
            let mut steps = Vec::new();
            let end = follow(path, &mut steps, MOST_LINKS);
            Way { steps, end }
        }

        fn check(&self) -> Result<(), PluginError> {
            self.steps.iter().try_for_each(Step::check)
        }
    }

    /// Goes from entry to entry as long as they are links.
    fn follow(path: &Path, steps: &mut Vec<Step>, most: usize) -> Result<(OwnedFd, OsString, FileType), Errno> {
        let mut path = path.to_owned();
        loop {
            if steps.len() > most {
                return Err(Errno::LOOP);
            }
            let Some(name) = path.file_name().map(OsStr::to_owned) else { return Err(Errno::ISDIR) };
            let directory = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            };
            // A directory that is reached by a link is not better than the place of the link.
            if directory.is_symlink() {
                follow(&directory, steps, most)?;
            }
            let opened = openat(CWD, &directory, DIRECTORY, Mode::empty())?;
            let of_directory = About::of_directory(&fstat(&opened)?);
            let stat = statat(&opened, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            let (entry, kind) = (About::of(&stat), FileType::from_raw_mode(stat.st_mode));
            let link = match kind {
                FileType::Symlink => {
                    let text = readlinkat(&opened, &name, Vec::new())?.into_bytes();
                    Some(directory.join(PathBuf::from(OsString::from_vec(text))))
                }
                _ => None,
            };
            steps.push(Step { directory, of_directory, entry, link: link.clone() });
            match link {
                Some(next) => path = next,
                None => return Ok((opened, name, kind)),
            }
        }
    }

    impl Step {
        fn check(&self) -> Result<(), PluginError> {
            let what = format!("the directory {}", told(&self.directory.display().to_string()));
            check_directory(&self.of_directory, &what)?;
            match &self.link {
                // Everybody may write to every link, says the system, and means nothing by it.
                Some(link) => check_owner(&self.entry, &format!("the link to {}", told(&link.display().to_string()))),
                None => Ok(()),
            }
        }
    }

    fn check_owner(of: &About, what: &str) -> Result<(), PluginError> {
        let user = rustix::process::geteuid().as_raw();
        let [owner, _] = of.owner;
        match owner == i128::from(user) || owner == 0 {
            true => Ok(()),
            false => Err(PluginError::Untrusted(format!(
                "{what} belongs to the user with id {owner}, expected this user ({user}) or root: chown it if you trust it"
            ))),
        }
    }

    fn check_writers(of: &About, what: &str) -> Result<(), PluginError> {
        let who = match (of.mode & WORLD_WRITABLE != 0, of.mode & GROUP_WRITABLE != 0) {
            (true, _) => "every user".to_owned(),
            (false, true) => format!("everybody in the group with id {}", of.owner[1]),
            (false, false) => return Ok(()),
        };
        Err(PluginError::Untrusted(format!("{who} may write to {what}: chmod go-w it if you trust it")))
    }

    fn check_directory(of: &About, what: &str) -> Result<(), PluginError> {
        check_owner(of, what)?;
        // Where it is sticky, entries are checked by their own owner.
        if of.mode & STICKY != 0 { Ok(()) } else { check_writers(of, what) }
    }

    pub(super) fn check_place(directory: &Path) -> Result<(), PluginError> {
        let opened = openat(CWD, directory, DIRECTORY, Mode::empty()).map_err(cannot)?;
        let about = About::of_directory(&fstat(&opened).map_err(cannot)?);
        check_directory(&about, &format!("the directory {}", told(&directory.display().to_string())))
    }

    pub(super) fn open(path: &Path) -> Result<File, PluginError> {
        let way = Way::to(path);
        // Before anything else is said of what somebody else has put there.
        way.check()?;
        let (directory, name, kind) = way.end.map_err(cannot)?;
        // Opening a device may do something.
        if kind != FileType::RegularFile {
            return Err(no_file());
        }
        let file = openat(&directory, &name, FILE, Mode::empty()).map_err(cannot)?;
        let stat = fstat(&file).map_err(cannot)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(no_file());
        }
        check_owner(&About::of(&stat), "the file")?;
        check_writers(&About::of(&stat), "the file")?;
        Ok(File::from(file))
    }

    /// What shows that a file, or the way to it, is not what it was.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Stamp {
        steps: Vec<Step>,
        fault: Option<Errno>,
    }

    impl Stamp {
        /// Of what is there now; `None` if there is no such entry.
        pub(crate) fn of(path: &Path) -> Option<Self> {
            let Way { steps, end } = Way::to(path);
            let fault = end.err();
            let is_gone = fault == Some(Errno::NOENT) && path.symlink_metadata().is_err();
            (!is_gone).then_some(Stamp { steps, fault })
        }

        /// Of an opened file.
        pub(crate) fn of_opened(file: &File) -> io::Result<Self> {
            let entry = About::of(&fstat(file)?);
            let step = Step { directory: PathBuf::new(), of_directory: entry, entry, link: None };
            Ok(Stamp { steps: vec![step], fault: None })
        }

        /// Whether a change from now on is sure to show: times of files are as coarse as the system's clock ticks.
        pub(crate) fn is_settled(&self) -> bool {
            const TICKS: Duration = Duration::from_millis(50);
            let Ok(now) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) else { return false };
            let before = i128::try_from((now.saturating_sub(TICKS)).as_nanos()).unwrap_or_default();
            let changed = |[_, _, seconds, nanos]: [i128; 4]| seconds * 1_000_000_000 + nanos;
            self.steps.iter().all(|step| changed(step.entry.times) < before)
        }
    }
}

#[cfg(not(unix))]
mod system {
    use std::{fs::File, io, path::Path, time::SystemTime};

    use super::{cannot, no_file};
    use crate::PluginError;

    /// Access lists are not read; the directory of plugins is the user's own.
    pub(super) fn open(path: &Path) -> Result<File, PluginError> {
        // Opening what is no file could wait for somebody.
        if !path.metadata().map_err(cannot)?.is_file() {
            return Err(no_file());
        }
        File::open(path).map_err(cannot)
    }

    pub(super) fn check_place(_: &Path) -> Result<(), PluginError> {
        Ok(())
    }

    /// What shows that a file is not the one it was.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Stamp {
        bytes: u64,
        changed: Option<SystemTime>,
        is_there: bool,
    }

    impl Stamp {
        /// Of what is there now; `None` if there is no such entry.
        pub(crate) fn of(path: &Path) -> Option<Self> {
            path.symlink_metadata().ok()?;
            let metadata = path.metadata();
            let changed = metadata.as_ref().ok().and_then(|metadata| metadata.modified().ok());
            let bytes = metadata.as_ref().map_or(0, std::fs::Metadata::len);
            Some(Stamp { bytes, changed, is_there: metadata.is_ok() })
        }

        /// Of an opened file.
        pub(crate) fn of_opened(file: &File) -> io::Result<Self> {
            let metadata = file.metadata()?;
            Ok(Stamp { bytes: metadata.len(), changed: metadata.modified().ok(), is_there: true })
        }

        /// Whether a change from now on is sure to show.
        pub(crate) fn is_settled(&self) -> bool {
            true
        }
    }
}
