//! Built-in families and plugins as one.
//!
//! Where several take an architecture: what the user chose, then plugins in the order of their directories and names, then
//! the built-in family. Whoever was passed over is told of in the log.

use std::{path::PathBuf, sync::Arc};

use bantam_backend::CustomOps;
use bantam_families as built_in;
use bantam_family_api::{Checkpoint, Draft, FamilyError, HfCheckpoint, Import, Model};
use bantam_graph::Op;

use crate::{Found, Plugin, Plugins};

/// Which family is to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FamilyChoice {
    /// None of the plugins.
    BuiltIn,
    /// The plugin of this name.
    Plugin(String),
}

/// The name that stands for the built-in families.
pub(crate) const BUILT_IN: &str = "built-in";

impl FamilyChoice {
    /// The choice that a user writes: `built-in`, or a plugin's name.
    pub fn from_name(name: &str) -> Self {
        match name {
            BUILT_IN => FamilyChoice::BuiltIn,
            name => FamilyChoice::Plugin(name.into()),
        }
    }

    /// What the user writes for it.
    pub fn name(&self) -> &str {
        match self {
            FamilyChoice::BuiltIn => BUILT_IN,
            FamilyChoice::Plugin(name) => name,
        }
    }
}

/// All families that there are. The default has the built-in ones alone.
#[derive(Clone, Debug, Default)]
pub struct Families {
    plugins: Option<Arc<Plugins>>,
    config: FamiliesConfig,
}

/// What the user says of families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamiliesConfig {
    /// The family to be taken.
    pub choice: Option<FamilyChoice>,
    /// Whether ops that a plugin brings may run in this process.
    pub allow_ops: bool,
}

/// A model, and whose description it is.
#[derive(Clone, Debug)]
pub struct Described {
    /// The description.
    pub model: Model,
    /// The plugin that gave it; none: a built-in family.
    pub plugin: Option<Arc<Plugin>>,
}

impl Families {
    /// These plugins too.
    pub fn with_plugins(plugins: Arc<Plugins>, config: FamiliesConfig) -> Self {
        Families { plugins: Some(plugins), config }
    }

    /// Where plugins are looked for.
    pub fn directories(&self) -> &[PathBuf] {
        self.plugins.as_ref().map(|plugins| plugins.directories()).unwrap_or_default()
    }

    /// What the user says.
    pub fn config(&self) -> &FamiliesConfig {
        &self.config
    }

    /// Looks for plugins that are new or have changed, and tells the log.
    pub fn refresh(&self) {
        if let Some(plugins) = &self.plugins {
            plugins.refresh();
        }
    }

    /// What is in the directories of plugins at this moment.
    pub fn plugins(&self) -> Vec<Found> {
        self.plugins.as_ref().map(|plugins| plugins.scan()).unwrap_or_default()
    }

    /// Describes a checkpoint by the family of its architecture.
    ///
    /// # Errors
    /// An unknown architecture, a draft alone, a key or tensor that does not fit, a plugin that fails.
    pub fn describe(&self, checkpoint: &Checkpoint) -> Result<Described, FamilyError> {
        let architecture = checkpoint.architecture.as_str();
        let is_built_in = || built_in::family(architecture).is_ok();
        let plugin = self.of(architecture, |plugin| plugin.takes(architecture), is_built_in)?;
        let model = match &plugin {
            Some(plugin) => plugin.describe(checkpoint)?,
            None => built_in::describe(checkpoint).map_err(|error| self.with_supported(error))?,
        };
        Ok(Described { model, plugin })
    }

    /// What computes the ops in a model that its plugin brings; none: it has none.
    ///
    /// # Errors
    /// If they may not run, or cannot be loaded.
    pub fn ops(&self, described: &Described) -> Result<Option<Arc<dyn CustomOps>>, FamilyError> {
        let model = &described.model;
        let graphs = std::iter::once(&model.text).chain(model.draft.iter().map(|draft| &draft.graph));
        let mut ops = graphs.flat_map(|graph| &graph.nodes).filter_map(|node| match &node.op {
            Op::Custom(custom) => Some(&custom.op),
            _ => None,
        });
        let (Some(op), Some(plugin)) = (ops.next(), &described.plugin) else { return Ok(None) };
        if !self.config.allow_ops {
            return Err(FamilyError::Unsupported(format!(
                "the plugin {} brings code of its own to be run in this process (op `{op}`): start with --allow-plugin-ops if you trust it",
                plugin.name()
            )));
        }
        plugin.ops().map(Some)
    }

    /// Brings a Hugging Face checkpoint into the terms of its family.
    ///
    /// # Errors
    /// As [`Families::describe`].
    pub fn import(&self, checkpoint: &HfCheckpoint) -> Result<Import, FamilyError> {
        let architecture = checkpoint.architecture()?;
        let imports = |plugin: &Plugin| plugin.description.hf_architectures.iter().any(|taken| taken == architecture);
        let is_built_in =
            || built_in::families().iter().any(|family| family.hf_architectures().contains(&architecture));
        match self.of(architecture, imports, is_built_in)? {
            Some(plugin) => plugin.import(checkpoint),
            None => built_in::import(checkpoint),
        }
    }

    /// Describes a draft from a file of its own, by the family of the model that it drafts for.
    ///
    /// # Errors
    /// As [`Families::describe`].
    pub fn describe_draft(&self, draft: &Checkpoint, target: &Checkpoint) -> Result<Draft, FamilyError> {
        let architecture = target.architecture.as_str();
        let is_built_in = || built_in::family(architecture).is_ok();
        match self.of(architecture, |plugin| plugin.takes(architecture), is_built_in)? {
            Some(plugin) if plugin.description.draft_architectures.contains(&draft.architecture) => {
                plugin.describe_draft(draft, target)
            }
            Some(plugin) => Err(FamilyError::Unsupported(format!(
                "the plugin {} knows no draft files of `{}`",
                plugin.name(),
                draft.architecture
            ))),
            None => built_in::describe_draft(draft, target),
        }
    }

    /// The plugin to be asked about an architecture; `None`: the built-in family.
    fn of(
        &self,
        architecture: &str,
        takes: impl Fn(&Plugin) -> bool,
        is_built_in: impl Fn() -> bool,
    ) -> Result<Option<Arc<Plugin>>, FamilyError> {
        let found = self.plugins().into_iter().filter_map(|found| found.plugin.ok());
        let mut takers: Vec<Arc<Plugin>> = found.filter(|plugin| takes(plugin)).collect();
        match &self.config.choice {
            None => {}
            Some(FamilyChoice::BuiltIn) => takers.clear(),
            Some(FamilyChoice::Plugin(name)) => {
                takers.retain(|plugin| plugin.description.name == *name);
                if takers.is_empty() {
                    return Err(FamilyError::Unsupported(format!(
                        "--family {name}: no plugin of this name takes `{architecture}`; `bantam plugins` lists them"
                    )));
                }
            }
        }
        let mut takers = takers.into_iter();
        let Some(taken) = takers.next() else { return Ok(None) };
        let passed_over = takers.map(|plugin| format!("the plugin {}", plugin.name()));
        let built_in = is_built_in().then(|| "the built-in family".to_owned());
        let passed_over: Vec<String> = passed_over.chain(built_in).collect();
        if !passed_over.is_empty() {
            let others = passed_over.join(" and ");
            tracing::warn!(
                "`{architecture}` is taken by the plugin {}, not by {others}; --family chooses",
                taken.name()
            );
        }
        Ok(Some(taken))
    }

    /// An error about an unknown architecture that names those of plugins too.
    fn with_supported(&self, error: FamilyError) -> FamilyError {
        let FamilyError::UnknownArchitecture { found, supported } = error else { return error };
        let plugins = self.plugins().into_iter().filter_map(|found| found.plugin.ok());
        let further: Vec<String> = plugins.flat_map(|plugin| plugin.description.architectures.clone()).collect();
        let supported = if further.is_empty() { supported } else { format!("{supported}, {}", further.join(", ")) };
        FamilyError::UnknownArchitecture { found, supported }
    }
}
