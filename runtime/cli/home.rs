//! Where Bantam keeps what it downloads, and the user's plugins.

use std::path::PathBuf;

use crate::error::CliError;

/// The environment variable that names the folder.
pub(crate) const VARIABLE: &str = "BANTAM_HOME";

/// Where in it models are.
pub(crate) const MODELS: &str = "models";

/// `$BANTAM_HOME`, else `bantam` in the platform's data directory. It need not exist yet.
pub(crate) fn home() -> Result<PathBuf, CliError> {
    match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(path) => Ok(path.into()),
        None => dirs::data_dir().map(|data| data.join("bantam")).ok_or_else(|| {
            CliError::Failed(format!("this user has no data directory; set {VARIABLE} to a folder for downloads"))
        }),
    }
}

/// The folder of downloaded models, made if need be.
pub(crate) fn models() -> Result<PathBuf, CliError> {
    let path = home()?.join(MODELS);
    std::fs::create_dir_all(&path).map_err(|e| {
        CliError::Failed(format!("{}: {e}; set {VARIABLE} to a folder that can be written to", path.display()))
    })?;
    Ok(path)
}

/// The folder of this user's plugins, which need not exist; `None` where there is no place for it.
pub(crate) fn plugins() -> Option<PathBuf> {
    home().ok().map(|home| home.join("plugins"))
}
