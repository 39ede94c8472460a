//! The equality that needs two engines: state that went through bytes into a new one.

use std::collections::BTreeMap;

use super::{
    CheckReport, NewProcess, ProbeConfig, ProbeError, Rest,
    run::{Logits, Plan, Run},
};
use crate::engine::Engine;

/// Takes up the state of the file to go on from, if there is one.
pub(super) async fn restore(engine: &Engine, config: &ProbeConfig) -> Result<(), ProbeError> {
    let Some(path) = &config.restore else { return Ok(()) };
    let bytes = std::fs::read(path).map_err(|e| ProbeError::File { path: path.clone(), why: e.to_string() })?;
    let restored = engine.restore(bytes).await;
    restored.map(drop).map_err(|why| ProbeError::Restore { path: path.clone(), why })
}

/// Writes the state after the sequence, if it is asked for.
pub(super) async fn save(engine: &Engine, config: &ProbeConfig) -> Result<(), ProbeError> {
    let Some(path) = &config.save else { return Ok(()) };
    let bytes = engine.save(config.tokens.clone()).await.map_err(|e| ProbeError::Failed(e.to_string()))?;
    std::fs::write(path, bytes).map_err(|e| ProbeError::File { path: path.clone(), why: e.to_string() })
}

/// Tokens without which a sequence has no part to save.
pub(super) const NEEDS: usize = 2;

/// Computes the first two thirds of a sequence and saves their state.
pub(super) async fn take(engine: &Engine, plan: &Plan) -> Result<Vec<u8>, ProbeError> {
    let found = plan.tokens.len();
    if found < NEEDS {
        return Err(ProbeError::TooShort { name: "snapshot", needed: NEEDS, found });
    }
    let part = &plan.tokens[..(found * 2 / 3).max(1)];
    Run::start(engine, Plan { share: true, ..Plan::new(part, 1) })?.finish().await?;
    engine.save(part.to_vec()).await.map_err(|e| ProbeError::Failed(e.to_string()))
}

/// Restores the state in an engine that has computed nothing yet, and computes the rest.
pub(super) async fn resume(
    engine: &Engine,
    plan: Plan,
    bytes: Vec<u8>,
    whole: &Logits,
) -> Result<CheckReport, ProbeError> {
    let restored = bytes.len() as u64;
    engine.restore(bytes).await.map_err(|e| ProbeError::Failed(e.to_string()))?;
    let logits = Run::start(engine, Plan { share: true, ..plan })?.finish().await?;
    let evidence = BTreeMap::from([("restored_bytes", restored), ("reused_tokens", logits.cached as u64)]);
    Ok(CheckReport { max_diff: logits.max_diff(whole), evidence })
}

/// Has another process restore the state and compute the rest.
pub(super) async fn resume_elsewhere(
    start: NewProcess,
    config: &ProbeConfig,
    decoded: usize,
    bytes: Vec<u8>,
    whole: &Logits,
) -> Result<CheckReport, ProbeError> {
    let restored = bytes.len() as u64;
    let there = ProbeConfig { greedy: decoded, ..config.clone() };
    let rest = tokio::task::spawn_blocking(move || start(&there, &bytes)).await;
    let rest = rest.map_err(|e| e.to_string()).and_then(|rest| rest).map_err(ProbeError::Failed)?;
    let evidence = BTreeMap::from([("restored_bytes", restored), ("reused_tokens", rest.reused_tokens as u64)]);
    Ok(CheckReport { max_diff: whole.diff_to_rest(&rest, config.tokens.len()), evidence })
}

impl Logits {
    /// Largest difference to the logits of the rest of a prompt; infinite if there are too few, or the continuation is
    /// another.
    fn diff_to_rest(&self, rest: &Rest, prompt: usize) -> f32 {
        let own: Vec<&[f32]> = self.rows.iter().map(|row| row.logits.as_slice()).collect();
        let own = own.get(rest.reused_tokens..prompt).unwrap_or_default().concat();
        if own.is_empty() || own.len() != rest.logits.len() || self.greedy(prompt) != rest.greedy {
            return f32::INFINITY;
        }
        super::run::row_diff(&own, &rest.logits)
    }
}
