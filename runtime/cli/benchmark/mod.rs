//! `bantam benchmark`: how fast a model runs here, and how fast the machine would let it.

mod chat;
mod compare;
mod measure;
mod report;
mod session;

use std::path::PathBuf;

use bantam_backend::KvType;
use bantam_plugins::Families;
use bantam_runtime::{hardware::Hardware, placement::PlacementChoices};
use clap::{Args, Subcommand};

use self::{measure::Bench, report::Report};
use crate::{
    args::{CacheTypeArgs, ComputeArgs, MODEL_HELP, count},
    error::CliError,
    families::FamilyArgs,
    model_source::ModelSource,
    output,
};

/// Prompt lengths of a sweep that names none.
const SWEEP: [usize; 5] = [128, 512, 2048, 8192, 32768];

/// Measure a model's speed and the machine's
///
/// Prefill is the speed of reading a prompt (logits of its last token only), decode that of generating (all sequences
/// together). Both are medians over the iterations; tokens are random, always the same; warm-up is not counted. The
/// machine's reading of memory and 8-bit arithmetic are measured between the iterations, with as many threads.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct BenchmarkArgs {
    #[command(subcommand)]
    command: Option<BenchmarkCommand>,

    #[arg(value_name = "MODEL", required = true, help = MODEL_HELP, value_parser = ModelSource::parser())]
    model: Option<ModelSource>,

    /// Tokens of the prompt
    #[arg(long, value_name = "P", default_value_t = 512, value_parser = count(1, 1 << 20))]
    prompt_tokens: usize,

    /// Tokens to generate per sequence
    #[arg(long, value_name = "D", default_value_t = 64, value_parser = count(1, 1 << 20))]
    decode_tokens: usize,

    /// Tokens in the sequences before the first that is generated
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count(0, 1 << 20))]
    depth: usize,

    /// Sequences that generate at once
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = count(1, 1024))]
    batch: usize,

    /// Times that each figure is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = count(1, 1000))]
    iterations: usize,

    /// Prompts of these lengths, one after the other, each with decoding at that depth; one line of JSON each. Without
    /// lengths: 128, 512, 2048, 8192, 32768, as far as the model goes
    #[arg(
        long, value_name = "P,…", num_args = 0..=1, require_equals = true, value_delimiter = ',',
        conflicts_with_all = ["prompt_tokens", "depth"], value_parser = count(1, 1 << 20)
    )]
    sweep: Option<Vec<usize>>,

    /// Also two turns of a conversation through the whole engine, as `serve` answers them
    #[arg(long, conflicts_with = "sweep")]
    chat: bool,

    /// Take the model's files out of the system's cache before loading
    #[arg(long)]
    cold_cache: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    families: FamilyArgs,

    #[command(flatten)]
    cache_types: CacheTypeArgs,

    #[command(flatten)]
    compute: ComputeArgs,
}

#[derive(Debug, Subcommand)]
enum BenchmarkCommand {
    /// Compare two results of `benchmark --json` or `--sweep`
    ///
    /// Each line of B beside the line of A with the same lengths, and the ratio of B to A.
    Compare {
        /// File with the result to compare with
        #[arg(value_name = "A")]
        a: PathBuf,

        /// File with the result to be compared
        #[arg(value_name = "B")]
        b: PathBuf,

        /// Print JSON, a line for each pair
        #[arg(long)]
        json: bool,
    },
}

/// What is measured on one program.
#[derive(Clone, Debug)]
struct Plan {
    source: ModelSource,
    families: Families,
    decode_tokens: usize,
    batch: usize,
    iterations: usize,
    threads: usize,
    hardware: Hardware,
    placement: PlacementChoices,
    k_type: KvType,
    v_type: KvType,
    repack: bool,
    cold_cache: bool,
}

/// Lengths of one line of a result.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    prompt_tokens: usize,
    depth: usize,
}

/// Runs the command.
pub(crate) fn run(args: &BenchmarkArgs) -> Result<(), CliError> {
    if let Some(BenchmarkCommand::Compare { a, b, json }) = &args.command {
        return compare::run(a, b, *json);
    }
    let plan = args.plan()?;
    match &args.sweep {
        Some(lengths) => sweep(&plan, lengths),
        None => single(args, &plan),
    }
}

fn single(args: &BenchmarkArgs, plan: &Plan) -> Result<(), CliError> {
    let lengths = Lengths { prompt_tokens: args.prompt_tokens, depth: args.depth };
    let mut bench = Bench::load(plan, &|longest| {
        args.check(longest)?;
        Ok(vec![lengths])
    })?;
    let report = bench.measure(lengths)?;
    let chat = if args.chat {
        // The engine loads the model for itself.
        drop(bench);
        Some(chat::measure(plan, args.prompt_tokens)?)
    } else {
        None
    };
    let report = Report { chat, ..report };
    if args.json { output::json(&report) } else { output::text(&report.table()) }
}

fn sweep(plan: &Plan, prompts: &[usize]) -> Result<(), CliError> {
    let mut bench = Bench::load(plan, &|longest| sweep_lengths(prompts, longest, plan.decode_tokens))?;
    bench.lengths().to_vec().into_iter().try_for_each(|lengths| output::json(&bench.measure(lengths)?))
}

/// The given lengths, which must fit the model; or those of [`SWEEP`] that do.
fn sweep_lengths(prompts: &[usize], longest: usize, decode_tokens: usize) -> Result<Vec<Lengths>, CliError> {
    let fits = |prompt: usize| prompt.saturating_add(decode_tokens) <= longest;
    let prompts: Vec<usize> = match prompts {
        [] => SWEEP.into_iter().filter(|&prompt| fits(prompt)).collect(),
        given => given.to_vec(),
    };
    if let Some(tokens) = prompts.iter().find(|&&prompt| !fits(prompt)) {
        return Err(too_long("--sweep and --decode-tokens", tokens.saturating_add(decode_tokens), longest));
    }
    if prompts.is_empty() {
        return Err(too_long("--sweep and --decode-tokens", SWEEP[0] + decode_tokens, longest));
    }
    Ok(prompts.into_iter().map(|prompt| Lengths { prompt_tokens: prompt, depth: prompt }).collect())
}

fn too_long(flag: &str, tokens: usize, longest: usize) -> CliError {
    CliError::Usage(format!("{flag}: {tokens} tokens, but a sequence of this model has at most {longest}"))
}

impl BenchmarkArgs {
    fn plan(&self) -> Result<Plan, CliError> {
        let (k_type, v_type) = self.cache_types.fixed(KvType::F16)?;
        let source = self.model.clone().ok_or_else(|| CliError::Usage("MODEL is missing".into()))?;
        Ok(Plan {
            source,
            families: self.families.resolve()?,
            decode_tokens: self.decode_tokens,
            batch: self.batch,
            iterations: self.iterations,
            threads: self.compute.threads(),
            hardware: self.compute.hardware(),
            placement: self.compute.placement(),
            k_type,
            v_type,
            repack: self.compute.repack(),
            cold_cache: self.cold_cache,
        })
    }

    /// Refuses sequences longer than the model's.
    fn check(&self, longest: usize) -> Result<(), CliError> {
        match (self.prompt_tokens, self.depth + self.decode_tokens) {
            (prompt, _) if prompt > longest => Err(too_long("--prompt-tokens", prompt, longest)),
            (_, decoded) if decoded > longest => Err(too_long("--depth and --decode-tokens", decoded, longest)),
            _ => Ok(()),
        }
    }
}
