//! Which families there are: the arguments about plugins, and what becomes of them.

use std::{path::PathBuf, sync::Arc};

use bantam_plugins::{
    Families, FamiliesConfig, FamilyChoice, Plugins, PluginsConfig,
    worker::{Limits, WorkerProgram},
};
use bantam_runtime::load::ModelFiles;
use bantam_text::Tokenizer;
use clap::Args;

use crate::{error::CliError, home, plugins};

/// Where plugins are looked for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Families")]
pub(crate) struct PluginArgs {
    /// Directory with family plugins; may be repeated, the first wins. By default `plugins` in the data directory of this user
    #[arg(long, value_name = "DIR", env = "BANTAM_PLUGINS")]
    plugins: Vec<PathBuf>,
}

impl PluginArgs {
    /// The plugins in these directories, of which none has been looked at yet.
    ///
    /// # Errors
    /// If there is no place for what they need.
    pub(crate) fn resolve(&self) -> Result<Plugins, CliError> {
        let directories = match self.plugins.as_slice() {
            [] => home::plugins().into_iter().collect(),
            given => given.to_vec(),
        };
        for given in &self.plugins {
            if given.exists() && !given.is_dir() {
                return Err(CliError::Usage(format!("--plugins {}: expected a directory", given.display())));
            }
            if !given.exists() {
                tracing::warn!("--plugins {}: there is no such directory yet", given.display());
            }
        }
        let failed = |e: std::io::Error| CliError::Failed(format!("family plugins cannot be prepared: {e}"));
        let worker = WorkerProgram::itself(&[plugins::WORKER]).map_err(failed)?;
        Ok(Plugins::new(PluginsConfig { directories, worker, limits: Limits::default() }))
    }
}

/// Which families may describe a model.
#[derive(Debug, Args)]
#[command(next_help_heading = "Families")]
pub(crate) struct FamilyArgs {
    #[command(flatten)]
    plugins: PluginArgs,

    /// Take the plugin of this name, or `built-in` for none; by default a plugin goes before a built-in family
    #[arg(long, value_name = "NAME")]
    family: Option<String>,

    /// Let ops that plugins bring run in this process. They are trusted as this program is
    #[arg(long)]
    allow_plugin_ops: bool,
}

impl FamilyArgs {
    /// The families.
    ///
    /// # Errors
    /// As [`PluginArgs::resolve`].
    pub(crate) fn resolve(&self) -> Result<Families, CliError> {
        let choice = self.family.as_deref().map(FamilyChoice::from_name);
        let config = FamiliesConfig { choice, allow_ops: self.allow_plugin_ops };
        Ok(Families::with_plugins(Arc::new(self.plugins.resolve()?), config))
    }

    /// The tokenizer of a model. What its file does not say of it, the model's family may: that is asked only where it is
    /// needed, since a vocabulary alone has no family.
    ///
    /// # Errors
    /// A file that has none or says too little of it, which no family makes up for.
    pub(crate) fn tokenizer(&self, files: &ModelFiles) -> Result<Tokenizer, CliError> {
        files.tokenizer().or_else(|why| {
            let described = files.describe(&self.resolve()?).ok();
            let hints = described.and_then(|(described, _)| described.model.tokenizer);
            match hints {
                Some(hints) => files.tokenizer_with(Some(&hints)).map_err(CliError::failed),
                None => Err(CliError::failed(why)),
            }
        })
    }
}
