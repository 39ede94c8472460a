//! The directory of `--cache-dir`: one file for each model and configuration, written whole or not at all.
//!
//! A file is written under another name, brought to the disk and renamed, so that under its own name there always is a
//! whole one. One server at a time writes to a directory, the one that holds its lock; others only read. The system gives
//! a lock back when its process ends, however it ends.

use std::{
    fs::{self, File, TryLockError},
    io::{self, BufWriter, ErrorKind},
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{SnapshotKey, format::Writer};
use crate::{cache::TreeImage, os};

/// Files of other models and configurations that are kept beside the one just written.
const OTHERS_KEPT: usize = 2;

const LOCK: &str = "bantam.lock";
const PREFIX: &str = "bantam-";
const SUFFIX: &str = ".cache";
/// What the name of a file that is being written has behind it.
const UNFINISHED: &str = ".part";
/// Digits of the key in a name.
const DIGITS: usize = 32;

/// Makes the directory if there is none.
///
/// # Errors
/// If it cannot be made or is none, in words for the user.
pub(crate) fn prepare(path: &Path) -> Result<(), String> {
    let advice = "name a directory, or one that can be made";
    match fs::create_dir_all(path) {
        Ok(()) => fs::read_dir(path).map(drop).map_err(|e| format!("--cache-dir {}: {e}; {advice}", path.display())),
        Err(_) if path.exists() => Err(format!("--cache-dir {}: not a directory; {advice}", path.display())),
        Err(e) => Err(format!("--cache-dir {}: {e}; {advice}", path.display())),
    }
}

/// The place of one model's cache.
#[derive(Debug)]
pub(crate) struct CacheDirectory {
    path: PathBuf,
    key: SnapshotKey,
    /// Held by the one server that may write.
    lock: Option<File>,
}

impl CacheDirectory {
    /// Takes the directory, with a warning if it can only be read, and removes what killed writers left.
    pub(crate) fn open(path: &Path, key: SnapshotKey) -> Self {
        let lock = lock(path);
        if let Err(why) = &lock {
            tracing::warn!("--cache-dir {}: {why}; the cache is read from it and not saved", path.display());
        }
        let directory = CacheDirectory { path: path.to_owned(), key, lock: lock.ok() };
        if directory.can_write() {
            for (name, entry) in entries(path) {
                if name.strip_suffix(UNFINISHED).is_some_and(is_cache) {
                    remove(&entry);
                }
            }
        }
        directory
    }

    pub(crate) fn key(&self) -> SnapshotKey {
        self.key
    }

    pub(crate) fn can_write(&self) -> bool {
        self.lock.is_some()
    }

    /// Bytes of the model's file, if it is there.
    pub(crate) fn bytes(&self) -> Option<u64> {
        fs::metadata(self.file()).ok().map(|file| file.len())
    }

    /// The model's file, whether it is there or not.
    pub(crate) fn file(&self) -> PathBuf {
        self.path.join(self.name())
    }

    fn name(&self) -> String {
        let digits = self.key.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("{PREFIX}{}{SUFFIX}", digits.get(..DIGITS).unwrap_or_default())
    }

    /// Opens the model's file, if there is one.
    pub(crate) fn read(&self) -> io::Result<Option<File>> {
        match File::open(self.file()) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Begins to write the model's file anew. One writer at a time.
    pub(crate) fn write(&self) -> io::Result<Unfinished<'_>> {
        let path = self.path.join(self.name() + UNFINISHED);
        if let Err(e) = fs::remove_file(&path)
            && e.kind() != ErrorKind::NotFound
        {
            return Err(e);
        }
        let file = os::create_private(&path)?;
        let mut unfinished = Unfinished { directory: self, path, writer: None };
        unfinished.writer = Some(Writer::new(self.key, BufWriter::with_capacity(BUFFER, file))?);
        Ok(unfinished)
    }

    /// Removes the files that were written longest ago, beyond those that are kept.
    fn remove_oldest(&self) {
        let own = self.name();
        let mut others: Vec<(SystemTime, PathBuf)> = entries(&self.path)
            .filter(|(name, _)| is_cache(name) && *name != own)
            .filter_map(|(_, path)| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
            .collect();
        others.sort_by_key(|(written, _)| std::cmp::Reverse(*written));
        others.iter().skip(OTHERS_KEPT).for_each(|(_, path)| remove(path));
    }
}

/// Bytes that are written to the system at once.
const BUFFER: usize = 1 << 20;

/// A file that is being written. Dropping it removes it.
pub(crate) struct Unfinished<'a> {
    directory: &'a CacheDirectory,
    path: PathBuf,
    writer: Option<Writer<BufWriter<File>>>,
}

impl Unfinished<'_> {
    /// Adds the bytes of a page or slot.
    pub(crate) fn blob(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), |writer| writer.blob(bytes))
    }

    /// Adds the tree and puts the file in the place of the one before.
    pub(crate) fn finish(mut self, image: &TreeImage) -> io::Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let file = writer.finish(image)?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&self.path, self.directory.file())?;
        os::sync_directory(&self.directory.path)?;
        self.directory.remove_oldest();
        Ok(())
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // After it was renamed there is none of this name.
        drop(fs::remove_file(&self.path));
    }
}

/// Whether a name is one that this module gives to finished files.
fn is_cache(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    digits
        .is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

fn entries(path: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
}

fn remove(path: &Path) {
    if let Err(e) = fs::remove_file(path) {
        tracing::warn!("--cache-dir: {}: {e}; it is left there", path.display());
    }
}

fn lock(path: &Path) -> Result<File, String> {
    let file = File::options().create(true).truncate(false).write(true).open(path.join(LOCK));
    let file = file.map_err(|e| format!("cannot be written to: {e}"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err("another server saves its cache there".into()),
        Err(TryLockError::Error(e)) => Err(format!("cannot be locked: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::NodeImage;

    fn key(n: u8) -> SnapshotKey {
        SnapshotKey([n; 32])
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = entries(path).map(|(name, _)| name).collect();
        names.sort();
        names
    }

    fn save(directory: &CacheDirectory) {
        let image = TreeImage { nodes: vec![NodeImage::default()], ..TreeImage::default() };
        let mut unfinished = directory.write().unwrap();
        unfinished.blob(&[1, 2, 3]).unwrap();
        unfinished.finish(&image).unwrap();
    }

    #[test]
    fn the_three_files_written_last_are_kept_and_nothing_of_others_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let foreign = ["bantam-notes.cache", "model.gguf", "bantam-0123.cache.part", "other.part"];
        foreign.iter().for_each(|name| fs::write(folder.path().join(name), "mine").unwrap());
        for n in [1, 2, 3, 1, 4] {
            let directory = CacheDirectory::open(folder.path(), key(n));
            save(&directory);
            // Files may be written within one tick of the clock that stamps them.
            let stamp = SystemTime::now() - std::time::Duration::from_secs(100)
                + std::time::Duration::from_secs(u64::from(n == 1));
            File::options().write(true).open(directory.file()).unwrap().set_modified(stamp).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let kept: Vec<String> = names(folder.path()).into_iter().filter(|name| is_cache(name)).collect();
        let expected: Vec<String> =
            [1, 3, 4].iter().map(|&n| format!("bantam-{}.cache", format!("{n:02x}").repeat(16))).collect();
        assert_eq!(kept, expected);
        assert!(foreign.iter().all(|name| folder.path().join(name).exists()));
    }

    #[test]
    fn what_killed_writers_left_is_removed_by_who_may_write() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(format!("bantam-{}.cache.part", "ab".repeat(16)));
        let first = CacheDirectory::open(folder.path(), key(1));
        fs::write(&left, "half").unwrap();
        let second = CacheDirectory::open(folder.path(), key(1));
        assert!((first.can_write(), second.can_write(), left.exists()) == (true, false, true));
        drop(first);
        let third = CacheDirectory::open(folder.path(), key(2));
        assert!(third.can_write() && !left.exists());
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let directory = CacheDirectory::open(folder.path(), key(1));
        save(&directory);
        let before = fs::read(directory.file()).unwrap();
        let mut unfinished = directory.write().unwrap();
        unfinished.blob(&[9; 100]).unwrap();
        drop(unfinished);
        assert_eq!(fs::read(directory.file()).unwrap(), before);
        assert_eq!(names(folder.path()).len(), 2, "the file and the lock");
    }

    #[test]
    fn what_is_no_directory_is_refused_by_the_flags_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = prepare(&path).unwrap_err();
            assert!(error.starts_with("--cache-dir ") && error.contains("directory"), "{error}");
        }
        prepare(&folder.path().join("a/b")).unwrap();
        assert!(folder.path().join("a/b").is_dir());
    }
}
