//! Built-in families and plugins as one.
//!
//! Where several take an architecture: what the user chose, then plugins in the order of their directories and names, then
//! the built-in family. Whoever was passed over is told of in the log. A plugin that breaks down is passed over too, unless the
//! user chose it; one that refuses has the last word.

use std::{path::PathBuf, sync::Arc};

use bantam_backend::CustomOps;
use bantam_families as built_in;
use bantam_family_api::{Checkpoint, Draft, FamilyError, HfCheckpoint, Import, Model};
use bantam_graph::Op;

use crate::{Fault, Found, Plugin, Plugins};

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

/// Who can be asked about an architecture.
struct Takers {
    plugins: Vec<Arc<Plugin>>,
    /// Whether a built-in family takes it where these break down.
    is_built_in: bool,
}

impl Takers {
    /// Asks one after another until one answers; `None`: the built-in family is to be asked.
    fn ask<T>(self, ask: impl Fn(&Plugin) -> Result<T, Fault>) -> Result<Option<(T, Arc<Plugin>)>, FamilyError> {
        let mut plugins = self.plugins.into_iter().peekable();
        while let Some(plugin) = plugins.next() {
            let failure = match ask(&plugin) {
                Ok(answer) => return Ok(Some((answer, plugin))),
                Err(Fault::Refusal(why)) => return Err(why),
                Err(Fault::Failure(why)) => why,
            };
            match plugins.peek() {
                Some(next) => tracing::warn!("{failure}; the plugin {} is asked instead", next.name()),
                None if self.is_built_in => tracing::warn!("{failure}; the built-in family is taken instead"),
                None => return Err(failure),
            }
        }
        Ok(None)
    }
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
        let takers = self.takers(architecture, |plugin| plugin.takes(architecture), is_built_in)?;
        Ok(match takers.ask(|plugin| plugin.describe(checkpoint))? {
            Some((model, plugin)) => Described { model, plugin: Some(plugin) },
            None => {
                let model = built_in::describe(checkpoint).map_err(|error| self.with_supported(error))?;
                Described { model, plugin: None }
            }
        })
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
        let takers = self.takers(architecture, imports, is_built_in)?;
        match takers.ask(|plugin| plugin.import(checkpoint))? {
            Some((import, _)) => Ok(import),
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
        let takers = self.takers(architecture, |plugin| plugin.takes(architecture), is_built_in)?;
        let asked =
            takers.ask(|plugin| match plugin.description.draft_architectures.contains(&draft.architecture) {
                true => plugin.describe_draft(draft, target),
                false => Err(Fault::Refusal(FamilyError::Unsupported(format!(
                    "the plugin {} knows no draft files of `{}`",
                    plugin.name(),
                    draft.architecture
                )))),
            })?;
        match asked {
            Some((draft, _)) => Ok(draft),
            None => built_in::describe_draft(draft, target),
        }
    }

    /// The plugins to be asked about an architecture, in order.
    fn takers(
        &self,
        architecture: &str,
        takes: impl Fn(&Plugin) -> bool,
        is_built_in: impl Fn() -> bool,
    ) -> Result<Takers, FamilyError> {
        let found = self.plugins().into_iter().filter_map(|found| found.plugin.ok());
        let mut plugins: Vec<Arc<Plugin>> = found.filter(|plugin| takes(plugin)).collect();
        match &self.config.choice {
            None => {}
            Some(FamilyChoice::BuiltIn) => plugins.clear(),
            Some(FamilyChoice::Plugin(name)) => {
                plugins.retain(|plugin| plugin.description.name == *name);
                if plugins.is_empty() {
                    return Err(FamilyError::Unsupported(format!(
                        "--family {name}: no plugin of this name takes `{architecture}`; `bantam plugins` lists them"
                    )));
                }
            }
        }
        let is_built_in = is_built_in();
        let passed_over = plugins.iter().skip(1).map(|plugin| format!("the plugin {}", plugin.name()));
        let passed_over: Vec<String> = passed_over.chain(is_built_in.then(|| "the built-in family".into())).collect();
        if let (Some(taken), false) = (plugins.first(), passed_over.is_empty()) {
            let others = passed_over.join(" and ");
            tracing::warn!(
                "`{architecture}` is taken by the plugin {}, not by {others}; --family chooses",
                taken.name()
            );
        }
        // Whoever chose a plugin is not given another family without being asked.
        Ok(Takers { is_built_in: is_built_in && self.config.choice.is_none(), plugins })
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
