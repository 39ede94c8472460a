//! The `bantam` command: what a user typed becomes a configuration, the configuration becomes calls into the libraries.
//!
//! One file per command. Each holds the command's arguments (what was typed), one fallible function that turns them into
//! what will be done, and the doing. Data goes to standard output, everything else to standard error.

mod args;
mod benchmark;
mod cuda;
mod doctor;
mod error;
mod families;
mod files;
mod generate;
mod home;
mod inspect;
mod model_source;
mod os;
mod output;
mod placement;
mod plan;
mod plugins;
mod probe;
mod progress;
mod render;
mod serve;
mod text;
mod tokenize;
mod transcript_audit;

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::error::CliError;

/// A local LLM inference runtime that serves many agents at once.
#[derive(Debug, Parser)]
#[command(name = "bantam", version, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    Generate(generate::GenerateArgs),
    Inspect(inspect::InspectArgs),
    Tokenize(tokenize::TokenizeArgs),
    Render(render::RenderArgs),
    Probe(probe::ProbeArgs),
    Benchmark(benchmark::BenchmarkArgs),
    Plan(plan::PlanArgs),
    Plugins(plugins::PluginsArgs),
    Doctor(doctor::DoctorArgs),
    TranscriptAudit(transcript_audit::TranscriptAuditArgs),
    #[command(name = plugins::WORKER, hide = true)]
    PluginWorker(plugins::WorkerArgs),
}

impl Command {
    fn run(self) -> Result<(), CliError> {
        match self {
            Command::Serve(args) => serve::run(*args),
            Command::Generate(args) => generate::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Tokenize(args) => tokenize::run(&args),
            Command::Render(args) => render::run(&args),
            Command::Probe(args) => probe::run(&args),
            Command::Benchmark(args) => benchmark::run(&args),
            Command::Plan(args) => plan::run(&args),
            Command::Plugins(args) => plugins::run(&args),
            Command::PluginWorker(args) => plugins::work(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::TranscriptAudit(args) => transcript_audit::run(&args),
        }
    }
}

fn main() -> ExitCode {
    show_warnings();
    let matches = args::with_environment(args::with_negative_numbers(Cli::command()))
        .try_get_matches_from(args::spelled_out(std::env::args_os()));
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli.command.run().map_or_else(|error| error.report(), |()| ExitCode::SUCCESS),
        Err(error) => error::report_usage(&error),
    }
}

/// Lets the libraries' warnings reach standard error.
fn show_warnings() {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && !unwanted)
        .without_time()
        .with_target(false)
        .init();
}
