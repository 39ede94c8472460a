//! `bantam plugins`: what is in the directories of plugins, and why what is not used is not. And the hidden command that
//! asks one plugin one question.

use std::{path::PathBuf, sync::Arc};

use bantam_plugins::{
    Found, Plugin, PluginError,
    worker::{self, Question},
};
use bantam_runtime::words::{brief, printable};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{error::CliError, families::PluginArgs, output};

/// Name of the hidden command.
pub(crate) const WORKER: &str = "plugin-worker";

/// List the family plugins that are found, or why each is refused
#[derive(Debug, Args)]
pub(crate) struct PluginsArgs {
    #[command(subcommand)]
    action: Option<Action>,

    /// Print a JSON array
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    plugins: PluginArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check one file, wherever it lies; a failure if it could not be used
    Check {
        /// The plugin
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn run(args: &PluginsArgs) -> Result<(), CliError> {
    let plugins = args.plugins.resolve()?;
    let (found, failure) = match &args.action {
        None => (plugins.look(), None),
        Some(Action::Check { file }) => {
            let plugin = plugins.open(file);
            let failure = plugin.as_ref().err().map(|why| CliError::Failed(format!("{}: {why}", file.display())));
            (vec![Found { file: file.clone(), plugin }], failure)
        }
    };
    if args.json {
        output::json(&found.iter().map(as_json).collect::<Vec<_>>())?;
    } else if found.is_empty() {
        let directories: Vec<String> = plugins.directories().iter().map(|path| path.display().to_string()).collect();
        output::line(&format!("no plugins in {}", directories.join(", ")))?;
    } else {
        found.iter().try_for_each(|found| output::line(&as_text(found)))?;
    }
    failure.map_or(Ok(()), Err)
}

fn as_text(found: &Found) -> String {
    let told = match &found.plugin {
        Ok(plugin) => {
            let about = &plugin.description;
            let architectures = [about.architectures.as_slice(), about.hf_architectures.as_slice()].concat().join(", ");
            format!("{} {}, ABI {}, for {architectures}", about.name, about.version, about.bantam_plugin)
        }
        Err(why) => format!("refused: {}", brief(&why.to_string())),
    };
    printable(&format!("{}: {told}", found.file.display()))
}

fn as_json(found: &Found) -> Value {
    let file = found.file.display().to_string();
    match &found.plugin {
        Ok(plugin) => accepted(&file, plugin),
        Err(why) => refused(&file, why),
    }
}

fn accepted(file: &str, plugin: &Arc<Plugin>) -> Value {
    let about = &plugin.description;
    json!({
        "file": file,
        "name": about.name,
        "version": about.version,
        "abi": about.bantam_plugin,
        "architectures": about.architectures,
        "hf_architectures": about.hf_architectures,
        "draft_architectures": about.draft_architectures,
        "sha256": plugin.sha256,
    })
}

fn refused(file: &str, why: &PluginError) -> Value {
    json!({ "file": file, "error": why.to_string() })
}

/// Asks the plugin in a file, in a process that is made for it.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    #[arg(value_parser = question)]
    question: Question,
    copy: PathBuf,
}

fn question(name: &str) -> Result<Question, String> {
    Question::from_name(name).ok_or_else(|| "expected describe or build".into())
}

/// Runs the hidden command.
pub(crate) fn work(args: &WorkerArgs) -> Result<(), CliError> {
    Ok(worker::answer(args.question, &args.copy)?)
}
