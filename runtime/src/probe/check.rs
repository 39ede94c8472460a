//! The equalities.

use std::collections::BTreeMap;

use super::{
    CheckReport, Counters, ProbeConfig, ProbeError,
    run::{Logits, Plan, Run},
    snapshot,
};
use crate::engine::Engine;

/// The checks there are.
pub const CHECKS: [&str; 9] = [
    "chunk_1",
    "chunk_3",
    "chunk_7",
    "chunk_64",
    "interleaved",
    "shared_prefix",
    "other_slot",
    "rejected_speculation",
    "snapshot",
];

/// Sequences that checks run at once.
pub(super) const SEQUENCES: usize = 3;

/// Tokens that checks add to the sequence.
pub(super) const EXTRA_TOKENS: usize = 64;

/// Most wrong tokens that are computed behind the right one and taken back.
pub(super) const MOST_REJECTED: usize = 4;

/// Tokens that are decoded at least, with checks.
pub(super) const DECODED: usize = 8;

/// Tokens without which a sequence has no prefix worth the name.
const SHARED_PREFIX_NEEDS: usize = 3;

/// The checks of these names; `all` stands for all that so many tokens allow.
pub(super) fn select(names: &[String], tokens: usize) -> Result<Vec<&'static str>, ProbeError> {
    let mut chosen = Vec::new();
    for name in names {
        match CHECKS.iter().find(|c| *c == name) {
            _ if name == "all" => {
                let possible = |check: &&str| match *check {
                    "shared_prefix" => tokens >= SHARED_PREFIX_NEEDS,
                    "snapshot" => tokens >= snapshot::NEEDS,
                    _ => true,
                };
                let (possible, left_out): (Vec<&str>, Vec<&str>) = CHECKS.into_iter().partition(possible);
                if !left_out.is_empty() {
                    tracing::warn!("--check all: too few tokens for {}", left_out.join(", "));
                }
                chosen.extend(possible);
            }
            Some(check) => chosen.push(*check),
            None => return Err(ProbeError::UnknownCheck { name: name.clone() }),
        }
    }
    Ok(chosen)
}

/// Runs all of these checks against the plain run. The engine is stopped for the one that needs a new one, so that a model
/// is in memory once; what stopped engines computed is returned.
pub(super) async fn run_all<F: Fresh>(
    names: &[&'static str],
    engine: &mut Engine,
    fresh: &F,
    config: &ProbeConfig,
    whole: &Logits,
    decoded: usize,
) -> Result<(BTreeMap<String, CheckReport>, Counters), ProbeError> {
    let plan = Plan::new(&config.tokens, decoded);
    let (mut reports, mut spent) = (BTreeMap::new(), Counters::default());
    let needs_new = |name: &&str| *name == "snapshot";
    for name in names.iter().copied().filter(|name| !needs_new(name)) {
        reports.insert(name.to_string(), run(name, engine, plan.clone(), whole).await?);
    }
    for name in names.iter().copied().filter(needs_new) {
        let bytes = snapshot::take(engine, &plan).await?;
        spent = spent + Counters::of(&engine.status().await);
        engine.stop().await;
        let report = match config.new_process {
            Some(start) => snapshot::resume_elsewhere(start, config, decoded, bytes, whole).await?,
            None => {
                *engine = fresh.engine().await?;
                snapshot::resume(engine, plan.clone(), bytes, whole).await?
            }
        };
        reports.insert(name.to_string(), report);
    }
    Ok((reports, spent))
}

/// Makes engines of one model and configuration.
pub(crate) trait Fresh {
    /// Another one, which has computed nothing.
    fn engine(&self) -> impl Future<Output = Result<Engine, ProbeError>> + Send;
}

/// Runs a check against the plain run.
async fn run(name: &'static str, engine: &Engine, plan: Plan, whole: &Logits) -> Result<CheckReport, ProbeError> {
    match name {
        "interleaved" => interleaved(engine, plan, whole).await,
        "shared_prefix" => shared_prefix(name, engine, plan, whole).await,
        "other_slot" => other_slot(engine, plan, whole).await,
        "rejected_speculation" => rejected(engine, plan, whole).await,
        chunks => {
            let chunk = chunks.trim_start_matches("chunk_").parse().unwrap_or(1);
            chunked(engine, Plan { chunk, ..plan }, whole).await
        }
    }
}

fn report(max_diff: f32, evidence: [(&'static str, u64); 1]) -> CheckReport {
    CheckReport { max_diff, evidence: BTreeMap::from(evidence) }
}

async fn chunked(engine: &Engine, plan: Plan, whole: &Logits) -> Result<CheckReport, ProbeError> {
    let before = engine.status().await.steps;
    let logits = Run::start(engine, plan)?.finish().await?;
    let steps = engine.status().await.steps - before;
    Ok(report(logits.max_diff(whole), [("steps", steps)]))
}

/// Two other sequences, of other lengths, go through the same steps.
async fn interleaved(engine: &Engine, plan: Plan, whole: &Logits) -> Result<CheckReport, ProbeError> {
    let backwards: Vec<u32> = plan.tokens.iter().rev().copied().collect();
    let others = [
        Plan { chunk: 5, ..Plan::new(&backwards, plan.greedy + 7) },
        Plan { chunk: 2, ..Plan::new(&backwards[..backwards.len().div_ceil(2)], plan.greedy + 3) },
    ];
    let others = others.map(|other| Run::start(engine, other));
    let logits = Run::start(engine, Plan { chunk: 4, ..plan })?.finish().await?;
    for other in others {
        other?.finish().await?;
    }
    let shared = logits.rows.iter().filter(|row| row.sequences > 1).count();
    Ok(report(logits.max_diff(whole), [("rows_in_shared_steps", shared as u64)]))
}

/// Sequences that part ways after two thirds leave their prefix behind. Two of them: where state cannot be resumed at any
/// token, a point is kept where a second one parts from the first.
async fn shared_prefix(
    name: &'static str,
    engine: &Engine,
    plan: Plan,
    whole: &Logits,
) -> Result<CheckReport, ProbeError> {
    let found = plan.tokens.len();
    if found < SHARED_PREFIX_NEEDS {
        return Err(ProbeError::TooShort { name, needed: SHARED_PREFIX_NEEDS, found });
    }
    let parting = found * 2 / 3;
    // Two tokens that differ from the sequence's own and from each other.
    for different in (0..3).filter(|token| *token != plan.tokens[parting]).take(2) {
        let mut other = plan.tokens[..parting].to_vec();
        other.extend([different; 5]);
        Run::start(engine, Plan { share: true, ..Plan::new(&other, 1) })?.finish().await?;
    }
    let logits = Run::start(engine, Plan { share: true, ..plan })?.finish().await?;
    Ok(report(logits.max_diff(whole), [("reused_tokens", logits.cached as u64)]))
}

/// As many copies as there are slots run at once, so most are on other slots and other pages than the plain run was.
async fn other_slot(engine: &Engine, plan: Plan, whole: &Logits) -> Result<CheckReport, ProbeError> {
    let copies: [_; SEQUENCES] = std::array::from_fn(|_| Run::start(engine, plan.clone()));
    let home = whole.rows.first().map(|row| row.slot);
    let (mut worst, mut elsewhere) = (0.0f32, 0);
    for copy in copies {
        let logits = copy?.finish().await?;
        worst = worst.max(logits.max_diff(whole));
        elsewhere += logits.rows.iter().filter(|row| Some(row.slot) != home).count() as u64;
    }
    Ok(report(worst, [("rows_on_other_slots", elsewhere)]))
}

/// In each decoding step wrong tokens are computed behind the right one, and taken back.
async fn rejected(engine: &Engine, plan: Plan, whole: &Logits) -> Result<CheckReport, ProbeError> {
    let mut worst: f32 = 0.0;
    let mut rolled_back = 0;
    for rejected in 1..=MOST_REJECTED {
        let plan = Plan { rejected, ..plan.clone() };
        let logits = Run::start(engine, plan)?.finish().await?;
        worst = worst.max(logits.max_diff(whole));
        rolled_back += logits.rows.iter().map(|row| row.rolled_back as u64).sum::<u64>();
    }
    Ok(report(worst, [("rolled_back", rolled_back)]))
}
