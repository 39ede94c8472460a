//! `bantam benchmark`: how fast a model runs here, and how fast the machine would let it.

mod session;

use std::time::{Duration, Instant};

use bantam_backend::{Backend as _, CompileOptions, KvType};
use bantam_cpu::{CpuBackend, isa::Isa, linear::machine};
use clap::Args;
use serde::Serialize;

use self::session::Session;
use crate::{
    args::{CacheTypeArgs, ComputeArgs, ModelArg, count},
    error::{CliError, printable},
    model_source::ModelSource,
    os, output, progress,
};

/// Most prompt tokens in one step, as `serve` has it by default.
const STEP_TOKENS: usize = 512;

/// Measure a model's speed and the machine's
///
/// Prefill is the speed of reading a prompt (logits of its last token only), decode that of generating (all sequences
/// together). Both are medians over the iterations; tokens are random, always the same; warm-up is not counted. The
/// machine's reading of memory and 8-bit arithmetic are measured between the iterations, with as many threads.
#[derive(Debug, Args)]
pub(crate) struct BenchmarkArgs {
    #[command(flatten)]
    model: ModelArg,

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

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    cache_types: CacheTypeArgs,

    #[command(flatten)]
    compute: ComputeArgs,
}

/// What will be measured.
struct Plan {
    source: ModelSource,
    prompt_tokens: usize,
    decode_tokens: usize,
    depth: usize,
    batch: usize,
    iterations: usize,
    threads: usize,
    k_type: KvType,
    v_type: KvType,
}

impl Plan {
    fn resolve(args: &BenchmarkArgs) -> Self {
        let (k_type, v_type) = args.cache_types.resolve(KvType::F16);
        Plan {
            source: args.model.model.clone(),
            prompt_tokens: args.prompt_tokens,
            decode_tokens: args.decode_tokens,
            depth: args.depth,
            batch: args.batch,
            iterations: args.iterations,
            threads: args.compute.cpu_threads,
            k_type,
            v_type,
        }
    }

    /// Refuses sequences longer than the model's.
    fn check(&self, longest: usize) -> Result<(), CliError> {
        let (flag, tokens) = match (self.prompt_tokens, self.depth + self.decode_tokens) {
            (prompt, _) if prompt > longest => ("--prompt-tokens", prompt),
            (_, decoded) if decoded > longest => ("--depth and --decode-tokens", decoded),
            _ => return Ok(()),
        };
        Err(CliError::Usage(format!("{flag}: {tokens} tokens, but a sequence of this model has at most {longest}")))
    }
}

/// What was measured. Fields with `_s` are seconds or per second.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    architecture: String,
    backend: &'static str,
    threads: usize,
    prompt_tokens: usize,
    decode_tokens: usize,
    depth: usize,
    batch: usize,
    iterations: usize,
    load_s: f64,
    prefill_tok_s: f64,
    decode_tok_s: f64,
    weight_bytes: u64,
    weight_bytes_per_token: u64,
    /// Without the buffers that the machine's memory is measured with.
    peak_rss_bytes: Option<u64>,
    read_gb_s: f64,
    int8_tops: f64,
}

/// Runs the command.
pub(crate) fn run(args: &BenchmarkArgs) -> Result<(), CliError> {
    let report = measure(&Plan::resolve(args))?;
    if args.json { output::json(&report) } else { output::text(&table(&report)) }
}

fn measure(plan: &Plan) -> Result<Report, CliError> {
    let path = plan.source.locate()?;
    let start = Instant::now();
    let loaded = bantam_runtime::load::open(&path).map_err(CliError::failed)?;
    plan.check(loaded.model.context_length)?;
    let backend = CpuBackend::new(plan.threads).map_err(CliError::failed)?;
    let options = CompileOptions {
        max_rows: STEP_TOKENS.max(plan.batch),
        max_logit_rows: plan.batch,
        max_tentative: 0,
        k_type: plan.k_type,
        v_type: plan.v_type,
    };
    let bar = progress::share("loading");
    let program = backend
        .compile(&loaded.model.text, &loaded.source, &options, &mut |done, of| {
            progress::set_share(&bar, done as f32 / of.max(1) as f32);
        })
        .map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))?;
    bar.finish_and_clear();
    let load = start.elapsed();

    let length = plan.prompt_tokens.max(plan.depth + plan.decode_tokens);
    let mut session = Session::new(program, plan.batch, length, STEP_TOKENS).map_err(CliError::failed)?;
    let samples = Samples::take(plan, &mut session, backend.threads()).map_err(CliError::failed)?;
    let rate = |tokens: usize, times: &[Duration]| tokens as f64 / median(times.iter().map(Duration::as_secs_f64));
    Ok(Report {
        model: path.display().to_string(),
        architecture: loaded.model.architecture.clone(),
        backend: backend.name(),
        threads: backend.threads(),
        prompt_tokens: plan.prompt_tokens,
        decode_tokens: plan.decode_tokens,
        depth: plan.depth,
        batch: plan.batch,
        iterations: plan.iterations,
        load_s: load.as_secs_f64(),
        prefill_tok_s: rate(plan.prompt_tokens, &samples.prefill),
        decode_tok_s: rate(plan.decode_tokens * plan.batch, &samples.decode),
        weight_bytes: session.program().weight_bytes(),
        weight_bytes_per_token: session.program().weight_bytes_per_token(),
        peak_rss_bytes: samples.peak_rss_bytes,
        read_gb_s: median(samples.read_gb_s),
        int8_tops: median(samples.int8_tops),
    })
}

/// One entry per iteration.
struct Samples {
    prefill: Vec<Duration>,
    decode: Vec<Duration>,
    read_gb_s: Vec<f64>,
    int8_tops: Vec<f64>,
    peak_rss_bytes: Option<u64>,
}

impl Samples {
    fn take(plan: &Plan, session: &mut Session, threads: usize) -> Result<Self, bantam_backend::StepError> {
        session.prefill(plan.prompt_tokens.min(STEP_TOKENS))?;
        session.fill(plan.depth)?;
        session.decode(plan.depth, plan.decode_tokens.min(4))?;
        let (mut prefill, mut decode, mut read_gb_s, mut int8_tops) = (vec![], vec![], vec![], vec![]);
        let mut peak_rss_bytes = None;
        for _ in 0..plan.iterations {
            prefill.push(timed(|| session.prefill(plan.prompt_tokens))?);
            decode.push(timed(|| session.decode(plan.depth, plan.decode_tokens))?);
            // All iterations need the same memory; the yardsticks, which come now, need more.
            peak_rss_bytes = peak_rss_bytes.or_else(os::peak_rss_bytes);
            read_gb_s.extend(machine::read_bandwidth(Isa::detect(), threads).map(|bytes| bytes / 1e9));
            int8_tops.push(machine::integer_peak(Isa::detect(), threads) / 1e12);
        }
        Ok(Samples { prefill, decode, read_gb_s, int8_tops, peak_rss_bytes })
    }
}

fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let start = Instant::now();
    work().map(|()| start.elapsed())
}

/// The middle value, or the mean of the two in the middle; 0 of none.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied().unwrap_or_default();
    match values.get(middle.wrapping_sub(1)) {
        Some(lower) if values.len().is_multiple_of(2) => (lower + upper) / 2.0,
        _ => upper,
    }
}

fn table(report: &Report) -> String {
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let bound = report.read_gb_s / gb(report.weight_bytes_per_token);
    let steps = report.decode_tok_s / report.batch as f64;
    let rows = [
        ("model", printable(&format!("{} ({})", report.model, report.architecture))),
        ("threads", format!("{} ({})", report.threads, report.backend)),
        ("load", format!("{:.2} s, {:.2} GB of weights", report.load_s, gb(report.weight_bytes))),
        ("prefill", format!("{:.1} tok/s over {} tokens", report.prefill_tok_s, report.prompt_tokens)),
        (
            "decode",
            format!(
                "{:.1} tok/s over {} tokens, {} at once, from depth {}",
                report.decode_tok_s, report.decode_tokens, report.batch, report.depth
            ),
        ),
        ("peak memory", report.peak_rss_bytes.map_or("unknown".into(), |bytes| format!("{:.2} GB", gb(bytes)))),
        ("machine", format!("{:.1} GB/s read, {:.2} int8 TOPS", report.read_gb_s, report.int8_tops)),
        ("decode bound", format!("{:.0} % of reading the weights once a step", 100.0 * steps / bound)),
    ];
    rows.iter().map(|(name, value)| format!("{name:<13}{value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([7.0]), 7.0);
    }
}
