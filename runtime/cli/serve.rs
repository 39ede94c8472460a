//! `bantam serve`: the HTTP server.

use std::{
    io::{self, LineWriter, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use bantam_backend::KvType;
use bantam_protocols::{BindError, LogConfig, LogLevel, ServerConfig, TotalTokens, TranscriptConfig};
use bantam_runtime::engine::{AnswerRules, CacheSize, Engine, EngineConfig, Readiness};
use bantam_text::EFFORT_LEVELS;
use clap::Args;
use indicatif::ProgressBar;

use crate::{
    args::{CacheTypeArgs, ComputeArgs, ModelArg, RESOURCES, SamplingArgs, StateArgs, count},
    error::CliError,
    families::FamilyArgs,
    model_source::ModelSource,
    os::{self, Stops},
    placement::{PlacementArgs, summary},
    progress,
};

/// Serve a model over HTTP: OpenAI's API, and a chat page for the browser
///
/// Each flag can also be given in the environment, as BANTAM_ and its name in capitals with underscores; a flag on the
/// command line wins.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    model: ModelArg,

    #[command(flatten)]
    families: FamilyArgs,

    /// Address to listen on; 0.0.0.0 for all of this machine's
    #[arg(long, default_value = "127.0.0.1", help_heading = SERVER)]
    host: String,

    /// Port to listen on; 0 picks a free one
    #[arg(long, default_value_t = 8000, help_heading = SERVER)]
    port: u16,

    /// Name that the model is served under
    #[arg(long, value_name = "NAME", default_value = "local", help_heading = SERVER)]
    model_name: String,

    /// Further names that the model answers to; several with commas between
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = SERVER)]
    model_alias: Vec<String>,

    /// Refuse requests that name another model instead of answering with this one
    #[arg(long, help_heading = SERVER)]
    strict_model: bool,

    /// Key that requests must carry; several with commas between
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = api_key, hide_env_values = true, help_heading = SERVER)]
    api_key: Vec<String>,

    /// File with such keys, one a line; lines that begin with # are none
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    api_key_file: Option<PathBuf>,

    /// Where a key is asked for, tell everybody on /health and /ready whether the server is up
    #[arg(long, help_heading = SERVER)]
    open_probes: bool,

    /// Names by which a server on a loopback address may be called besides localhost; several with commas between
    #[arg(long, value_name = "HOST", value_delimiter = ',', help_heading = SERVER)]
    allowed_hosts: Vec<String>,

    /// Origins whose pages may call the API: * for all, or a list with commas between
    #[arg(long, value_name = "ORIGINS", default_value = "*", value_parser = origins, help_heading = SERVER)]
    cors_origin: String,

    /// Requests admitted at once, running and queued; more are answered with 429
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count(1, 1 << 16), help_heading = SERVER)]
    concurrency: usize,

    /// Connections served at once; requests on further ones are answered with 429, unless one that rests gives way
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = count(1, 1 << 16), help_heading = SERVER)]
    max_connections: usize,

    /// Longest time for a request to arrive
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86400), help_heading = SERVER)]
    request_timeout_seconds: u64,

    /// Longest silence in a stream before a sign of life is sent
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = SERVER)]
    sse_keepalive_seconds: u64,

    /// Give the model the prompts as agents send them, with what they write into every request anew, such as its checksum and
    /// the tokens that are left. By default that is left out or made the same, so that requests share what was computed before
    #[arg(long, help_heading = SERVER)]
    no_normalize: bool,

    /// Make a client's count of the tokens that are left the same in every request instead of leaving it out
    #[arg(long, conflicts_with = "strip_total_tokens", help_heading = SERVER)]
    freeze_total_tokens: bool,

    /// Leave out a client's count of the tokens that are left also with --no-normalize
    #[arg(long, help_heading = SERVER)]
    strip_total_tokens: bool,

    /// End the process, to be started again by what watches it, if a step takes longer; 0: never
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=86400), help_heading = SERVER)]
    step_timeout_seconds: u64,

    /// Log failures only
    #[arg(long, conflicts_with = "verbose", help_heading = SERVER)]
    quiet: bool,

    /// Log every request, not only generations
    #[arg(long, help_heading = SERVER)]
    verbose: bool,

    #[command(flatten)]
    state: StateArgs,

    /// Most tokens generated for a request that sets no limit
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = count(1, 1 << 24), help_heading = RESOURCES)]
    max_tokens: usize,

    /// Part of the time, in percent, that prompts get while other sequences generate
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = count(1, 99), help_heading = RESOURCES)]
    prefill_share: usize,

    /// Tokens between two points of a long prompt that later requests can go on from, for models with windows or recurrent state
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = count(1, 1 << 24), help_heading = RESOURCES)]
    prefill_checkpoint_interval: usize,

    /// Keep the cache in this directory: saved now and then and at the end, restored at the start
    #[arg(long, value_name = "DIR", help_heading = RESOURCES)]
    cache_dir: Option<PathBuf>,

    /// Time between two saves to --cache-dir while requests are served; longer where saving takes long
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86400), help_heading = RESOURCES)]
    cache_save_seconds: u64,

    #[command(flatten)]
    cache_types: CacheTypeArgs,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    placement: PlacementArgs,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    thinking: ThinkingArgs,

    #[command(flatten)]
    answers: AnswerArgs,
}

/// What answers are held to.
#[derive(Debug, Args)]
#[command(next_help_heading = "Tools and forms")]
struct AnswerArgs {
    /// Hold calls of tools to their declarations
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = switch)]
    tool_grammar: bool,

    /// Hold answers to the form that a request asks for
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = switch)]
    response_grammar: bool,

    /// Most tokens of a call, after which the answer is cut off; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count(0, 1 << 24))]
    max_tool_call_tokens: usize,

    /// Take the spelling of a control token within a message for the token. A text that a model is given could then pretend to
    /// be another's turn
    #[arg(long)]
    parse_special_in_content: bool,
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".into()),
    }
}

/// How much models think that can.
#[derive(Debug, Args)]
#[command(next_help_heading = "Thinking")]
struct ThinkingArgs {
    /// How much the model thinks where a request does not say; none: not at all. The template's nearest level is taken
    #[arg(long, value_name = "LEVEL", value_parser = clap::builder::PossibleValuesParser::new(EFFORT_LEVELS))]
    reasoning_effort: Option<String>,

    /// Most tokens that it may think where a request does not say, after which it must answer; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count(0, 1 << 24))]
    thinking_budget: usize,
}

fn origins(text: &str) -> Result<String, String> {
    bantam_protocols::check_origins(text).map(|()| text.to_owned()).map_err(|wrong| wrong.to_string())
}

/// A key without the spaces around it. An empty one, which stands for a variable that was not set, must not open the server
/// to everybody.
fn api_key(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the key is empty; give one, or leave --api-key and BANTAM_API_KEY out".into()),
        key => Ok(key.to_owned()),
    }
}

/// What `BANTAM_TRANSCRIPT_DUMP` and `BANTAM_TRANSCRIPT_PROMPT` ask for.
fn transcripts() -> Option<TranscriptConfig> {
    let directory = std::env::var_os("BANTAM_TRANSCRIPT_DUMP").filter(|directory| !directory.is_empty())?;
    let prompts = std::env::var_os("BANTAM_TRANSCRIPT_PROMPT").is_none_or(|value| value != "0");
    Some(TranscriptConfig { directory: directory.into(), prompts })
}

/// The keys in a file. One without any must not open the server to everybody.
fn read_keys(file: &Path) -> Result<Vec<String>, CliError> {
    let usage = |why: String| CliError::Usage(format!("--api-key-file {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| usage(e.to_string()))?;
    let keys: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    if keys.is_empty() {
        return Err(usage("there is no key in it; write one on a line of its own".into()));
    }
    Ok(keys.into_iter().map(str::to_owned).collect())
}

/// Help heading of the flags about the server.
const SERVER: &str = "Server";

/// What will be done once the address is taken.
struct Plan {
    source: ModelSource,
    engine: EngineConfig,
    server: ServerConfig,
    bar: ProgressBar,
}

impl Plan {
    fn resolve(args: ServeArgs) -> Result<Self, CliError> {
        if args.state.cache == CacheSize::Off && args.cache_dir.is_some() {
            let why = "--cache-dir: --cache off keeps nothing that could be saved; leave one of them out";
            return Err(CliError::Usage(why.into()));
        }
        let mut engine = EngineConfig::new("");
        engine.families = args.families.resolve()?;
        engine.model_name = args.model_name;
        args.state.apply(&mut engine);
        engine.max_tokens = args.max_tokens;
        engine.concurrency = args.concurrency;
        engine.threads = args.compute.threads();
        engine.repack = args.compute.repack();
        engine.hardware = args.compute.hardware();
        engine.placement = args.placement.resolve(args.compute.wanted_backend());
        (engine.k_type, engine.v_type) = args.cache_types.resolve(KvType::F16);
        engine.sampling = args.sampling.resolve()?;
        engine.rules = AnswerRules {
            calls: args.answers.tool_grammar,
            responses: args.answers.response_grammar,
            max_call_tokens: Some(args.answers.max_tool_call_tokens).filter(|most| *most > 0),
        };
        engine.parse_special = args.answers.parse_special_in_content;
        engine.reasoning_effort = args.thinking.reasoning_effort;
        engine.thinking_budget = Some(args.thinking.thinking_budget).filter(|budget| *budget > 0);
        engine.prefill_share = args.prefill_share;
        engine.checkpoint_interval = args.prefill_checkpoint_interval;
        engine.step_timeout = Duration::from_secs(args.step_timeout_seconds);
        engine.cache_dir = args.cache_dir;
        engine.cache_save_every = Duration::from_secs(args.cache_save_seconds);
        let bar = progress::share("loading");
        let level = match (args.quiet, args.verbose) {
            (true, _) => LogLevel::Quiet,
            (_, true) => LogLevel::Verbose,
            _ => LogLevel::Normal,
        };
        let sink = Box::new(LineWriter::new(AroundBar(bar.clone())));
        let mut api_keys = args.api_key;
        api_keys.extend(args.api_key_file.as_deref().map_or(Ok(Vec::new()), read_keys)?);
        let total_tokens = match (args.strip_total_tokens, args.freeze_total_tokens) {
            (true, _) => TotalTokens::Strip,
            (_, true) => TotalTokens::Freeze,
            _ => TotalTokens::Default,
        };
        let server = ServerConfig {
            api_keys,
            open_probes: args.open_probes,
            allowed_hosts: args.allowed_hosts,
            model_aliases: args.model_alias,
            normalize: !args.no_normalize,
            total_tokens,
            sse_keepalive: Duration::from_secs(args.sse_keepalive_seconds),
            cors_origin: args.cors_origin,
            transcripts: transcripts(),
            strict_model: args.strict_model,
            max_connections: args.max_connections,
            request_timeout: Duration::from_secs(args.request_timeout_seconds),
            ..ServerConfig::new(LogConfig { sink, ..LogConfig::stderr(level) })
        };
        Ok(Plan { source: args.model.model, engine, server, bar })
    }
}

/// Standard error, the bar taken away while something is written.
struct AroundBar(ProgressBar);

impl Write for AroundBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Moves the bar while the model is loaded, and tells where it went then.
async fn follow_loading(engine: Engine, bar: ProgressBar) {
    progress::follow_loading(engine.clone(), bar).await;
    if let Readiness::Ready(model) = engine.readiness()
        && let Some(plan) = &model.plan
    {
        summary(plan).iter().for_each(|line| eprintln!("{line}"));
    }
}

/// Runs the command.
pub(crate) fn run(args: ServeArgs) -> Result<(), CliError> {
    let runtime = os::runtime()?;
    let (host, port) = (args.host.clone(), args.port);
    if let Some(unused) = args.compute.unused() {
        eprintln!("{unused}");
    }
    let mut plan = Plan::resolve(args)?;
    // First, so that a port in use is known before a model is fetched and loaded.
    let listener = runtime.block_on(bantam_protocols::bind(&host, port)).map_err(|error| match error {
        BindError::Host { .. } => CliError::Usage(format!("--host {error}")),
        other => CliError::failed(other),
    })?;
    plan.engine.model = plan.source.locate()?;
    let outcome = runtime.block_on(async {
        let engine = Engine::start(plan.engine).map_err(CliError::failed)?;
        let mut stops = Stops::listen().map_err(CliError::failed)?;
        let mut second_stops = Stops::listen().map_err(CliError::failed)?;
        let shutdown = async {
            stops.next().await;
            eprintln!("stopping: no new requests, those under way are answered; press Ctrl-C again to stop at once");
        };
        let stopped_twice = async {
            second_stops.next().await;
            second_stops.next().await;
        };
        tokio::spawn(follow_loading(engine.clone(), plan.bar));
        tokio::select! {
            served = bantam_protocols::serve(engine, plan.server, listener, shutdown) => served.map_err(CliError::failed),
            () = stopped_twice => Err(CliError::Interrupted),
        }
    });
    runtime.shutdown_background();
    outcome
}
