//! `bantam generate`: one answer on standard output.

use std::{
    io::{IsTerminal as _, stdout},
    path::Path,
};

use bantam_backend::KvType;
use bantam_runtime::engine::{CacheSize, ChatPrompt, Engine, EngineConfig, Event, Prompt, Refusal, Request};
use clap::Args;
use serde_json::json;

use crate::{
    args::{CacheTypeArgs, ComputeArgs, ContextArg, ModelArg, SamplingArgs, count},
    error::CliError,
    families::FamilyArgs,
    os, output, progress,
};

/// Print a model's answer to a prompt, as it comes
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    model: ModelArg,

    #[command(flatten)]
    families: FamilyArgs,

    /// What to answer
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: String,

    /// A system message before the prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "raw", allow_hyphen_values = true)]
    system: Option<String>,

    /// Continue the prompt as it is, without the model's chat template
    #[arg(long)]
    raw: bool,

    /// Let models that can think do so before they answer
    #[arg(long, conflicts_with = "raw")]
    enable_thinking: bool,

    /// Most tokens to generate; by default as many as the context leaves, at most 4096
    #[arg(long, value_name = "N", value_parser = count(1, 1 << 24))]
    max_tokens: Option<usize>,

    #[command(flatten)]
    context: ContextArg,

    #[command(flatten)]
    cache_types: CacheTypeArgs,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    sampling: SamplingArgs,
}

impl GenerateArgs {
    fn request(&self) -> Request {
        let prompt = if self.raw { Prompt::Text(self.prompt.clone()) } else { Prompt::Chat(self.chat()) };
        Request { max_tokens: self.max_tokens, plain: true, ..Request::new(prompt) }
    }

    fn chat(&self) -> ChatPrompt {
        let system = self.system.iter().map(|text| json!({ "role": "system", "content": text }));
        let user = json!({ "role": "user", "content": self.prompt });
        let kwargs = [("add_generation_prompt", true), ("enable_thinking", self.enable_thinking)];
        let kwargs = kwargs.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        ChatPrompt { messages: system.chain([user]).collect(), kwargs, ..ChatPrompt::default() }
    }

    fn engine(&self) -> Result<EngineConfig, CliError> {
        let mut config = EngineConfig::new(self.model.model.locate()?);
        config.families = self.families.resolve()?;
        config.parallel = 1;
        config.cache = CacheSize::Off;
        config.context = self.context.context;
        config.threads = self.compute.threads();
        config.repack = self.compute.repack();
        config.hardware = self.compute.hardware();
        config.placement = self.compute.placement();
        (config.k_type, config.v_type) = self.cache_types.resolve(KvType::F16);
        config.sampling = self.sampling.resolve()?;
        Ok(config)
    }
}

/// Runs the command.
pub(crate) fn run(args: &GenerateArgs) -> Result<(), CliError> {
    let config = args.engine()?;
    let runtime = os::runtime()?;
    let outcome = runtime.block_on(async {
        let engine = Engine::start(config).map_err(CliError::failed)?;
        let bar = progress::share("loading");
        tokio::spawn(progress::follow_loading(engine.clone(), bar.clone()));
        engine.ready().await.map_err(CliError::failed)?;
        bar.finish_and_clear();
        generate(&engine, args.request()).await
    });
    runtime.shutdown_background();
    outcome
}

/// Options that this model cannot take are wrong usage.
fn refused(model: &Path, refusal: Refusal) -> CliError {
    const RAW: &str = "with --raw the prompt is continued as it is";
    let file = model.display().to_string();
    match refusal {
        Refusal::Invalid { field, why } => CliError::Usage(format!("--{} {why}", field.replace('_', "-"))),
        Refusal::NoTemplate(why) if why.starts_with(&file) => CliError::Failed(format!("{why}; {RAW}")),
        Refusal::NoTemplate(why) => CliError::Failed(format!("{file}: {why}; {RAW}")),
        Refusal::ContextExceeded { prompt_tokens, context, .. } => CliError::Usage(format!(
            "--prompt: {prompt_tokens} tokens leave no room in a context of {context}; shorten it or raise --context"
        )),
        other => CliError::failed(other),
    }
}

async fn generate(engine: &Engine, request: Request) -> Result<(), CliError> {
    let mut generation = engine.submit(request).await.map_err(|refusal| refused(&engine.config().model, refusal))?;
    while let Some(event) = generation.next().await {
        match event {
            Event::Started { .. } => {}
            Event::Delta(delta) => output::text(&delta.text())?,
            Event::Failed(why) => return Err(CliError::failed(why)),
            // Only people want the line ended; a program wants the text and nothing else.
            Event::Finished(_) if stdout().is_terminal() => output::text("\n")?,
            Event::Finished(_) => {}
        }
    }
    Ok(())
}
