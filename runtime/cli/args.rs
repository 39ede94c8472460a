//! Arguments that several commands share: the same flag has the same name and meaning everywhere.

use std::{collections::BTreeMap, ffi::OsString};

use bantam_backend::KvType;
use bantam_runtime::{
    engine::{CacheSize, EngineConfig},
    hardware::Hardware,
    placement::{BackendChoice, CacheType, PlacementChoices},
    sampling::{self, SamplingOverrides},
};
use clap::{
    ArgAction, Args, ValueEnum,
    builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser},
};

use crate::{cuda, error::CliError, model_source::ModelSource};

/// Help heading of the flags about the machine and its memory.
pub(crate) const RESOURCES: &str = "Resources";
/// Help heading of the sampling flags.
pub(crate) const SAMPLING: &str = "Sampling";

/// What a model may be.
pub(crate) const MODEL_HELP: &str = "A .gguf file (of a split model, the first), a directory with config.json and \
                                     safetensors files, hf:OWNER/REPO[:QUANT], or demo (a small model fetched with pip)";

/// The model.
#[derive(Debug, Args)]
pub(crate) struct ModelArg {
    #[arg(value_name = "MODEL", help = MODEL_HELP, value_parser = ModelSource::parser())]
    pub(crate) model: ModelSource,
}

/// Where and with how many threads to compute.
#[derive(Debug, Args)]
#[command(next_help_heading = RESOURCES)]
pub(crate) struct ComputeArgs {
    /// Threads to compute with; 0: one per physical core within the affinity mask and the CPU quota
    #[arg(long, alias = "threads", value_name = "N", default_value_t = 0, value_parser = count(0, 1024))]
    cpu_threads: usize,

    /// Where to compute
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,

    /// Copy the weights into a form that is faster to compute with; answers are the same
    #[arg(long, value_enum, default_value_t = Repack::On)]
    repack: Repack,
}

impl ComputeArgs {
    /// Where to compute, as it was said.
    pub(crate) fn wanted_backend(&self) -> BackendChoice {
        match self.backend {
            Backend::Auto => BackendChoice::Auto,
            Backend::Cpu => BackendChoice::Cpu,
            Backend::Cuda => BackendChoice::Cuda,
        }
    }

    /// What computes: this machine's cards where they are asked for, else the CPU.
    pub(crate) fn hardware(&self) -> Hardware {
        match self.backend {
            Backend::Cuda => cuda::hardware(),
            Backend::Auto | Backend::Cpu => Hardware::Cpu,
        }
    }

    /// The same for what plans.
    pub(crate) fn placement(&self) -> PlacementChoices {
        PlacementChoices { backend: self.wanted_backend(), ..PlacementChoices::default() }
    }

    /// A card that is there and not used, in a line.
    pub(crate) fn unused(&self) -> Option<String> {
        (self.backend == Backend::Auto).then(cuda::unused).flatten()
    }

    /// Whether weights are to be repacked.
    pub(crate) fn repack(&self) -> bool {
        self.repack == Repack::On
    }

    /// Threads to compute with, 0 for the backend's own choice.
    pub(crate) fn threads(&self) -> usize {
        let cpus = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        if self.cpu_threads > cpus {
            tracing::warn!(
                "--cpu-threads {}: only {cpus} CPUs may be used, and more threads are slower",
                self.cpu_threads
            );
        }
        self.cpu_threads
    }
}

/// Backends that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The processor, in this version; a card that is there is told of
    Auto,
    /// The processor
    Cpu,
    /// An NVIDIA card, or not at all. No card has been tried yet
    Cuda,
}

/// Whether weights are repacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Repack {
    /// The fastest; the weights take as much memory as in the file, those of IQ2 and IQ3 up to half more
    On,
    /// Compute with the mapped file: ready at once, its memory is shared and given back as needed, slower
    Off,
}

/// Formats of the cache.
#[derive(Debug, Args)]
#[command(next_help_heading = RESOURCES)]
pub(crate) struct CacheTypeArgs {
    /// Number format of cached keys; by default f16 (probe: f32). auto: f16, or turbo4 where a mixture of experts with a context
    /// above 32768 would not fit
    #[arg(long, value_name = "TYPE", value_parser = cache_type(), conflicts_with = "kv")]
    pub(crate) cache_type_k: Option<CacheType>,

    /// Number format of cached values, as above
    #[arg(long, value_name = "TYPE", value_parser = cache_type(), conflicts_with = "kv")]
    pub(crate) cache_type_v: Option<CacheType>,

    /// Number format of both
    #[arg(long, value_name = "TYPE", value_parser = cache_type())]
    pub(crate) kv: Option<CacheType>,
}

impl CacheTypeArgs {
    /// Formats of keys and values, where `default` is the command's.
    pub(crate) fn resolve(&self, default: KvType) -> (CacheType, CacheType) {
        let of = |one: Option<CacheType>| one.or(self.kv).unwrap_or(CacheType::Fixed(default));
        (of(self.cache_type_k), of(self.cache_type_v))
    }

    /// As [`CacheTypeArgs::resolve`], for a command that plans nothing.
    ///
    /// # Errors
    /// Where a type is left to a plan.
    pub(crate) fn fixed(&self, default: KvType) -> Result<(KvType, KvType), CliError> {
        let (k, v) = self.resolve(default);
        let fixed = |flag: &str, ty: CacheType| match ty {
            CacheType::Fixed(ty) => Ok(ty),
            CacheType::Auto => Err(CliError::Usage(format!("{flag} auto: this command needs one of the types named"))),
        };
        Ok((fixed("--cache-type-k", k)?, fixed("--cache-type-v", v)?))
    }
}

/// How much state there is to be.
#[derive(Debug, Args)]
#[command(next_help_heading = RESOURCES)]
pub(crate) struct StateArgs {
    /// Sequences that run at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count(1, 1024))]
    parallel: usize,

    #[command(flatten)]
    context: ContextArg,

    /// Most tokens computed in one step, of all sequences together
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count(1, 1 << 14))]
    step_tokens: usize,

    /// Tokens of each running sequence but one that memory is set aside for; by default as many as --context, as far as half of
    /// the free memory allows. Any one may use all of --context; when all together need more, the youngest wait
    #[arg(long, value_name = "N", value_parser = count(1, 1 << 24))]
    scratch_context: Option<usize>,

    /// Memory to keep ended conversations in, for those that go on from them: MiB, off, or auto for an eighth of what is free
    /// once the model is loaded, at most 8 GiB
    #[arg(long, value_name = "auto|off|MIB", default_value = "auto", value_parser = cache_size)]
    pub(crate) cache: CacheSize,
}

impl StateArgs {
    /// Puts them into a configuration.
    pub(crate) fn apply(&self, config: &mut EngineConfig) {
        config.parallel = self.parallel;
        config.context = self.context.context;
        config.batch = self.step_tokens;
        config.scratch_context = self.scratch_context;
        config.cache = self.cache;
    }
}

fn cache_size(text: &str) -> Result<CacheSize, String> {
    match text {
        "auto" => Ok(CacheSize::Auto),
        "off" => Ok(CacheSize::Off),
        mib => match mib.parse() {
            Ok(mib @ 1..=MOST_MIB) => Ok(CacheSize::Mib(mib)),
            _ => Err(format!("expected auto, off, or MiB from 1 to {MOST_MIB}")),
        },
    }
}

/// More memory than machines have.
pub(crate) const MOST_MIB: usize = 1 << 30;

/// How long a sequence may be.
#[derive(Debug, Args)]
#[command(next_help_heading = RESOURCES)]
pub(crate) struct ContextArg {
    /// Most tokens of one sequence, prompt and output; at most the model's own length. Reserves nothing by itself
    #[arg(long, value_name = "N", default_value_t = 32768, value_parser = count(1, 1 << 24))]
    pub(crate) context: usize,
}

/// How the next token is chosen. What is not given comes from the model's own defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = SAMPLING)]
pub(crate) struct SamplingArgs {
    /// Spread of the choice; 0: always the likeliest token
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    temperature: Option<f32>,

    /// Choose among the N likeliest; 0: all
    #[arg(long, value_name = "N")]
    top_k: Option<usize>,

    /// Choose among the likeliest that together have this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,

    /// Choose among those at least P times as likely as the likeliest
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,

    /// Divide the scores of tokens that were there already by X; 1: do not
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,

    /// Take X from the scores of tokens that were there already
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,

    /// Take X from a token's score for each time that it was there
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,

    /// Tokens that the penalties look back on
    #[arg(long, value_name = "N")]
    penalty_window: Option<usize>,

    /// Start of the random choices: the same seed gives the same answer
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Add to the scores of tokens: a JSON object such as {"42": -5}
    #[arg(long, value_name = "JSON")]
    logit_bias: Option<String>,
}

impl SamplingArgs {
    /// The options that were given.
    pub(crate) fn resolve(&self) -> Result<SamplingOverrides, CliError> {
        let given = SamplingOverrides {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            penalty_window: self.penalty_window,
            seed: self.seed,
            logit_bias: self.logit_bias.as_deref().map(logit_bias).transpose()?,
            ..SamplingOverrides::default()
        };
        let nothing = SamplingOverrides::default();
        match sampling::resolve(&given, &nothing, &nothing) {
            Ok(_) => Ok(given),
            Err(error) => Err(CliError::Usage(format!("--{}", error.to_string().replace('_', "-")))),
        }
    }
}

fn logit_bias(text: &str) -> Result<Vec<(u32, f32)>, CliError> {
    let biases: Result<BTreeMap<u32, f32>, _> = serde_json::from_str(text);
    let biases = biases.map_err(|e| {
        CliError::Usage(format!("--logit-bias {text}: expected a JSON object from token ids to numbers, found {e}"))
    })?;
    Ok(biases.into_iter().collect())
}

fn cache_type() -> impl TypedValueParser<Value = CacheType> {
    let names = PossibleValuesParser::new([AUTO].into_iter().chain(KvType::ALL.iter().map(|ty| ty.name())));
    names.try_map(|name| match KvType::from_name(&name) {
        Some(ty) => Ok(CacheType::Fixed(ty)),
        None if name == AUTO => Ok(CacheType::Auto),
        None => Err(format!("no cache type {name}")),
    })
}

/// What is left to us.
const AUTO: &str = "auto";

/// The short flag that other programs have for --n-gpu-layers.
const SHORT_LAYERS: &str = "-ngl";

/// Arguments with `-ngl` spelled out: flags of one dash are single letters otherwise.
pub(crate) fn spelled_out(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    arguments.map(|argument| match argument.to_str() {
        Some(SHORT_LAYERS) => "--n-gpu-layers".into(),
        Some(text) => match text.strip_prefix(SHORT_LAYERS).and_then(|rest| rest.strip_prefix('=')) {
            Some(value) => format!("--n-gpu-layers={value}").into(),
            None => argument,
        },
        None => argument,
    })
}

/// The variable that stands for `--api-key`.
const API_KEY: &str = "BANTAM_API_KEY";

/// Reads a count from `least` to `most`.
pub(crate) fn count(least: u64, most: u64) -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u64).range(least..=most).try_map(usize::try_from)
}

/// A number below 0 is the value of the flag before it, which says what it may be, not a flag of its own.
pub(crate) fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|command| command.allow_negative_numbers(true))
}

/// Lets each flag of `serve` be given in the environment too, as `BANTAM_` and its name with underscores. A variable that is
/// empty counts as not set, except where it was to be a key.
pub(crate) fn with_environment(command: clap::Command) -> clap::Command {
    let emptied = |name: &str| name != API_KEY && std::env::var_os(name).is_some_and(|value| value.is_empty());
    command.mut_subcommand("serve", |serve| {
        serve.mut_args(|arg| match arg.get_long() {
            Some(long) => {
                let name = format!("BANTAM_{}", long.replace('-', "_").to_ascii_uppercase());
                if emptied(&name) {
                    return arg;
                }
                let arg = arg.env(name);
                if matches!(arg.get_action(), ArgAction::SetTrue) {
                    arg.value_parser(BoolishValueParser::new())
                } else {
                    arg
                }
            }
            None => arg,
        })
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Sampling {
        #[command(flatten)]
        args: SamplingArgs,
    }

    fn sampling(arguments: &[&str]) -> Result<SamplingOverrides, CliError> {
        Sampling::parse_from([&["x"], arguments].concat()).args.resolve()
    }

    #[test]
    fn sampling_options_are_kept_and_bad_ones_named_as_typed() {
        let given = sampling(&["--top-k", "7", "--logit-bias", r#"{"42": -5, "3": 1.5}"#]).unwrap();
        assert_eq!((given.top_k, given.logit_bias), (Some(7), Some(vec![(3, 1.5), (42, -5.0)])));
        assert_eq!(given.temperature, None);
        for (flag, value) in [("--temperature", "-1"), ("--top-p", "2"), ("--logit-bias", "[]")] {
            let error = sampling(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(matches!(error, CliError::Usage(_)) && error.to_string().starts_with(flag), "{error}");
        }
    }
}
