//! Whose files are loaded: the user's own and the system owner's, where nobody else can write.
//!
//! A plugin runs with the user's rights. So a file that somebody else could have written, or put there, must not be opened,
//! or a directory that all can write to would be a way to run code as anybody who serves a model.

use std::{fs::Metadata, path::Path};

use crate::PluginError;

/// Checks an opened file by what the system says of it, and the directory that it lies in.
///
/// # Errors
/// Whose it is, or who may write to it.
pub(crate) fn check(file: &Metadata, path: &Path) -> Result<(), PluginError> {
    let directory = path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    let directory = directory.ok_or_else(|| PluginError::Read("it has no directory".into()))?;
    let of_directory = directory.metadata().map_err(|e| PluginError::Read(format!("{}: {e}", directory.display())))?;
    system::check(file, "the file", "chmod o-w the file")?;
    system::check_directory(&of_directory)
}

#[cfg(unix)]
mod system {
    use std::{fs::Metadata, os::unix::fs::MetadataExt as _};

    use crate::PluginError;

    const WORLD_WRITABLE: u32 = 0o002;
    /// In such a directory only its owner can replace or remove a file.
    const STICKY: u32 = 0o1000;

    pub(super) fn check(of: &Metadata, what: &str, fix: &str) -> Result<(), PluginError> {
        let user = rustix::process::geteuid().as_raw();
        if of.uid() != user && of.uid() != 0 {
            return Err(PluginError::Untrusted(format!(
                "{what} belongs to the user with id {}, expected this user ({user}) or root: chown it if you trust it",
                of.uid()
            )));
        }
        if of.mode() & WORLD_WRITABLE != 0 {
            return Err(PluginError::Untrusted(format!("every user may write to {what}: {fix}")));
        }
        Ok(())
    }

    pub(super) fn check_directory(of: &Metadata) -> Result<(), PluginError> {
        let is_sticky = of.mode() & STICKY != 0;
        match check(of, "its directory", "chmod o-w the directory") {
            // Files are checked by their own owner then.
            Err(_) if is_sticky && (of.uid() == 0 || of.uid() == rustix::process::geteuid().as_raw()) => Ok(()),
            checked => checked,
        }
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::Metadata;

    use crate::PluginError;

    /// Access lists are not read; the directory of plugins is the user's own.
    pub(super) fn check(_: &Metadata, _: &str, _: &str) -> Result<(), PluginError> {
        Ok(())
    }

    pub(super) fn check_directory(_: &Metadata) -> Result<(), PluginError> {
        Ok(())
    }
}
