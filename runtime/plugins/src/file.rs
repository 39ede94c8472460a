//! A plugin's file: opened once, and read from that descriptor.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::{
    PluginError,
    trust::{self, Stamp},
};

/// Longest plugin that is read, in bytes.
const LONGEST: u64 = 256 << 20;

/// What a file holds that may be a plugin.
///
/// # Errors
/// A file that is not trusted, cannot be read, is too long, or is written to at this moment.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, PluginError> {
    let cannot = |e: io::Error| PluginError::Read(e.to_string());
    let file = trust::open(path)?;
    let before = Stamp::of_opened(&file).map_err(cannot)?;
    let mut bytes = Vec::new();
    (&file).take(LONGEST + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > LONGEST {
        return Err(PluginError::Format(format!("it is longer than {LONGEST} bytes")));
    }
    match Stamp::of_opened(&file).map_err(cannot)? == before {
        true => Ok(bytes),
        false => Err(PluginError::Read("it was changed while it was read; it is looked at again next time".into())),
    }
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
