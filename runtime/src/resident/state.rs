//! Reserves memory for the state of sequences, as much as [`crate::placement::state`] enters into the ledger.

use bantam_backend::{Program, RecurrentGroup};

use super::TRUNK;
use crate::{
    actors::kv::KvArguments,
    cache::one_sequence,
    engine::{CacheSize, EngineConfig},
    memory::Ledger,
    placement::{
        StateFlags,
        state::{enter_rows, enter_slots},
    },
};

/// Decides on the budgets and makes the program reserve them.
///
/// # Errors
/// If the state of one sequence does not fit, or what the user asked for, in words for the user.
pub(super) fn provide_state(
    config: &EngineConfig,
    context: usize,
    program: &mut dyn Program,
    owner: &str,
    ledger: &mut Ledger,
) -> Result<KvArguments, String> {
    let flags = StateFlags::of(config, context);
    let (recurrent, points) = provide_slots(config, &flags, program, owner, ledger)?;
    let minimum = one_sequence(program.groups(), context, config.batch);
    let budget = enter_rows(&flags, program.groups(), None, points, owner, ledger).map_err(|e| e.to_string())?;
    reserve_pages(program, budget).map_err(|e| format!("{e}; {}", hint(config)))?;
    Ok(KvArguments { groups: program.groups().to_vec(), budget, minimum, recurrent })
}

/// Slots of recurrent state. Returns also the bytes of those that are for points.
fn provide_slots(
    config: &EngineConfig,
    flags: &StateFlags,
    program: &mut dyn Program,
    owner: &str,
    ledger: &mut Ledger,
) -> Result<(Option<(RecurrentGroup, u64)>, u64), String> {
    let Some(group) = program.recurrent(TRUNK).cloned() else { return Ok((None, 0)) };
    let slot = group.slot_bytes as u64;
    let (budget, points) = enter_slots(flags, slot, owner, ledger).map_err(|e| e.to_string())?;
    let slots = budget.checked_div(slot).unwrap_or(config.parallel as u64 + 1);
    program
        .reserve_slots(TRUNK, usize::try_from(slots).unwrap_or(usize::MAX))
        .map_err(|e| format!("{e}; {}", hint(config)))?;
    Ok((Some((group, budget)), points))
}

/// What to do where the system gives no memory, by flags that the command has.
fn hint(config: &EngineConfig) -> &'static str {
    match config.cache {
        CacheSize::Off => "lower --context, or free memory",
        CacheSize::Auto | CacheSize::Mib(_) => "set --cache to less, or lower --context or --parallel",
    }
}

fn reserve_pages(program: &mut dyn Program, budget: u64) -> Result<(), String> {
    for group in 0..program.groups().len() {
        let page = program.groups()[group].page_bytes.max(1) as u64;
        let pages = usize::try_from(budget / page).unwrap_or(usize::MAX);
        program.reserve_pages(group, pages).map_err(|e| e.to_string())?;
    }
    Ok(())
}
