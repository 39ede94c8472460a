//! Loading a model and running it on sequences of random tokens, with the machine measured in between.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bantam_backend::{CompileOptions, StepError};
use bantam_cpu::{isa::Isa, linear::machine};
use bantam_runtime::load::ModelFiles;

use super::{Lengths, Plan, report::Report, session::Session};
use crate::{error::CliError, os, progress};

/// Most prompt tokens in one step, as `serve` has it by default.
const STEP_TOKENS: usize = 512;

/// A loaded model with room for the sequences.
pub(super) struct Bench<'p> {
    plan: &'p Plan,
    lengths: Vec<Lengths>,
    session: Session,
    path: PathBuf,
    architecture: String,
    backend: &'static str,
    threads: usize,
    load: Duration,
    first_token: Duration,
}

impl<'p> Bench<'p> {
    /// Loads the model, for the lengths that `lengths` gives to one of this context length.
    ///
    /// # Errors
    /// Those of `lengths`, a model that cannot be loaded, too little memory.
    pub(super) fn load(
        plan: &'p Plan,
        lengths: &dyn Fn(usize) -> Result<Vec<Lengths>, CliError>,
    ) -> Result<Self, CliError> {
        let path = plan.source.locate()?;
        if plan.cold_cache {
            drop_from_cache(&path)?;
        }
        let start = Instant::now();
        let loaded = bantam_runtime::load::open(&path, &plan.families).map_err(CliError::failed)?;
        let lengths = lengths(loaded.model.context_length)?;
        let (backend, threads) = plan.hardware.first_backend(plan.threads).map_err(CliError::failed)?;
        let options = CompileOptions {
            max_rows: STEP_TOKENS.max(plan.batch),
            max_logit_rows: plan.batch,
            max_tentative: 0,
            k_type: plan.k_type,
            v_type: plan.v_type,
            repack: plan.repack,
            ops: loaded.ops.clone(),
        };
        let bar = progress::share("loading");
        let program = backend
            .compile(&loaded.model.text, &loaded.source, &options, &mut |done, of| {
                progress::set_share(&bar, done as f32 / of.max(1) as f32);
            })
            .map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))?;
        bar.finish_and_clear();
        let load = start.elapsed();
        let longest = lengths.iter().map(|l| l.prompt_tokens.max(l.depth + plan.decode_tokens)).max().unwrap_or(1);
        let mut session = Session::new(program, plan.batch, longest, STEP_TOKENS).map_err(CliError::failed)?;
        let prompt = lengths.first().map_or(1, |l| l.prompt_tokens);
        session.prefill(prompt).map_err(CliError::failed)?;
        Ok(Bench {
            plan,
            lengths,
            session,
            path,
            architecture: loaded.model.architecture.clone(),
            backend: backend.name(),
            threads,
            load,
            first_token: start.elapsed(),
        })
    }

    /// What it was loaded for.
    pub(super) fn lengths(&self) -> &[Lengths] {
        &self.lengths
    }

    /// Measures sequences of these lengths.
    ///
    /// # Errors
    /// A step that fails.
    pub(super) fn measure(&mut self, lengths: Lengths) -> Result<Report, CliError> {
        let plan = self.plan;
        let samples = Samples::take(plan, lengths, &mut self.session, self.threads).map_err(CliError::failed)?;
        let rate = |tokens: usize, times: &[Duration]| tokens as f64 / median(times.iter().map(Duration::as_secs_f64));
        Ok(Report {
            model: self.path.display().to_string(),
            architecture: self.architecture.clone(),
            backend: self.backend.to_owned(),
            threads: self.threads,
            prompt_tokens: lengths.prompt_tokens,
            decode_tokens: plan.decode_tokens,
            depth: lengths.depth,
            batch: plan.batch,
            iterations: plan.iterations,
            load_s: self.load.as_secs_f64(),
            first_token_s: self.first_token.as_secs_f64(),
            prefill_tok_s: rate(lengths.prompt_tokens, &samples.prefill),
            decode_tok_s: rate(plan.decode_tokens * plan.batch, &samples.decode),
            weight_bytes: self.session.program().weight_bytes(),
            weight_bytes_per_token: self.session.program().weight_bytes_per_token(),
            peak_rss_bytes: samples.peak_rss_bytes,
            read_gb_s: median(samples.read_gb_s),
            int8_tops: median(samples.int8_tops),
            chat: None,
        })
    }
}

fn drop_from_cache(model: &Path) -> Result<(), CliError> {
    let files = ModelFiles::open(model).map_err(CliError::failed)?.tensor_files();
    files.iter().try_for_each(|file| {
        os::drop_from_cache(file).map_err(|e| CliError::Failed(format!("--cold-cache: {}: {e}", file.display())))
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
    fn take(plan: &Plan, lengths: Lengths, session: &mut Session, threads: usize) -> Result<Self, StepError> {
        session.prefill(lengths.prompt_tokens.min(STEP_TOKENS))?;
        session.fill(lengths.depth)?;
        session.decode(lengths.depth, plan.decode_tokens.min(4))?;
        let (mut prefill, mut decode, mut read_gb_s, mut int8_tops) = (vec![], vec![], vec![], vec![]);
        let mut peak_rss_bytes = None;
        for _ in 0..plan.iterations {
            prefill.push(timed(|| session.prefill(lengths.prompt_tokens))?);
            decode.push(timed(|| session.decode(lengths.depth, plan.decode_tokens))?);
            // All iterations need the same memory; the yardsticks, which come now, need more.
            peak_rss_bytes = peak_rss_bytes.or_else(os::peak_rss_bytes);
            read_gb_s.extend(machine::read_bandwidth(Isa::detect(), threads).map(|read| read.sustained / 1e9));
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
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied().unwrap_or_default();
    match values.get(middle.wrapping_sub(1)) {
        Some(lower) if values.len().is_multiple_of(2) => (lower + upper) / 2.0,
        _ => upper,
    }
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
