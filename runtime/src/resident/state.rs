//! Memory for the state of sequences: how much, for what, and that one sequence fits.

use bantam_backend::{Program, RecurrentGroup, StateGroup};

use super::TRUNK;
use crate::{
    actors::kv::KvArguments,
    cache::one_sequence,
    engine::EngineConfig,
    memory::{Ledger, size},
};

/// Conversations kept per slot beyond which more memory would rarely be used.
const USEFUL_PREFIXES_PER_SLOT: u64 = 8;

/// Points of each running sequence whose recurrent value is kept, beside its own.
const POINTS_PER_SEQUENCE: u64 = 8;

/// Part of the free memory that recurrent values take at most, unless it takes more to run the sequences.
const PART_FOR_POINTS: u64 = 8;

/// Decides on the budgets and makes the program reserve them.
///
/// # Errors
/// If the state of one sequence does not fit, in words for the user.
pub(super) fn provide_state(
    config: &EngineConfig,
    context: usize,
    program: &mut dyn Program,
    owner: &str,
    ledger: &mut Ledger,
) -> Result<KvArguments, String> {
    let recurrent = provide_slots(config, program, owner, ledger)?;
    let budget = page_budget(config, context, program.groups(), ledger);
    let minimum = one_sequence(program.groups(), context, config.batch);
    let one = bytes_of(program.groups(), &minimum);
    if one > budget {
        let (one, budget) = (size(one), size(budget));
        return Err(format!(
            "--kv-mib: a sequence of {context} tokens needs {one}, found {budget}; raise it or lower --context"
        ));
    }
    let smaller = "lower --context, or choose a smaller --cache-type-k and --cache-type-v";
    ledger.enter(owner, "state of one sequence", one, smaller).map_err(|e| e.to_string())?;
    reserve_pages(program, budget).map_err(|e| format!("{e}; {}", hint(config)))?;
    Ok(KvArguments { groups: program.groups().to_vec(), budget, minimum, recurrent })
}

/// Slots of recurrent state: one for each running sequence and one to go on from a shared point, and as many more for
/// points as memory allows.
fn provide_slots(
    config: &EngineConfig,
    program: &mut dyn Program,
    owner: &str,
    ledger: &mut Ledger,
) -> Result<Option<(RecurrentGroup, u64)>, String> {
    let Some(group) = program.recurrent(TRUNK).cloned() else { return Ok(None) };
    let sequences = config.parallel as u64;
    let bytes = |slots: u64| (group.slot_bytes as u64).saturating_mul(slots);
    let needed = bytes(sequences + 1);
    ledger.enter(owner, "recurrent state of the sequences", needed, "lower --parallel").map_err(|e| e.to_string())?;
    let useful = bytes(sequences.saturating_mul(1 + POINTS_PER_SEQUENCE) + 1);
    let budget = (ledger.free() / PART_FOR_POINTS).min(useful).max(needed);
    ledger
        .enter(owner, "recurrent state of shared points", budget - needed, "lower --parallel")
        .map_err(|e| e.to_string())?;
    let slots = budget.checked_div(group.slot_bytes as u64).unwrap_or(sequences + 1);
    program
        .reserve_slots(TRUNK, usize::try_from(slots).unwrap_or(usize::MAX))
        .map_err(|e| format!("{e}; {}", hint(config)))?;
    Ok(Some((group, budget)))
}

/// What to do where the system gives no memory, by flags that the command has.
fn hint(config: &EngineConfig) -> &'static str {
    if config.keep_prefixes {
        "set --kv-mib to less, or lower --context or --parallel"
    } else {
        "lower --context, or free memory"
    }
}

fn bytes_of(groups: &[StateGroup], pages: &[usize]) -> u64 {
    groups.iter().zip(pages).fold(0, |sum, (g, &n)| sum.saturating_add((g.page_bytes as u64).saturating_mul(n as u64)))
}

/// Memory for pages: what the user gave, or half of what is free, but at least one sequence's and at most what as many
/// sequences as could be useful would take.
fn page_budget(config: &EngineConfig, context: usize, groups: &[StateGroup], ledger: &Ledger) -> u64 {
    let one = bytes_of(groups, &one_sequence(groups, context, config.batch));
    if config.kv_mib > 0 {
        return (config.kv_mib as u64).saturating_mul(1 << 20);
    }
    let per_slot = if config.keep_prefixes { USEFUL_PREFIXES_PER_SLOT } else { 1 };
    let useful = one.saturating_mul(config.parallel as u64).saturating_mul(per_slot);
    (ledger.free() / 2).min(useful).max(one)
}

fn reserve_pages(program: &mut dyn Program, budget: u64) -> Result<(), String> {
    for group in 0..program.groups().len() {
        let page = program.groups()[group].page_bytes.max(1) as u64;
        let pages = usize::try_from(budget / page).unwrap_or(usize::MAX);
        program.reserve_pages(group, pages).map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bantam_graph::StateKind;

    use super::*;

    #[test]
    fn one_answer_takes_the_memory_of_one_sequence() {
        let groups = [StateGroup { kind: StateKind::PerToken, page_tokens: 16, page_bytes: 1 << 20, states: vec![0] }];
        let ledger = Ledger::with_total(1 << 40);
        let mut config = EngineConfig { parallel: 1, keep_prefixes: false, ..EngineConfig::new("") };
        let one = bytes_of(&groups, &one_sequence(&groups, 512, config.batch));
        assert_eq!(page_budget(&config, 512, &groups, &ledger), one);
        config.keep_prefixes = true;
        assert!(page_budget(&config, 512, &groups, &ledger) > one);
    }
}
