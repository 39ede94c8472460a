//! Memory for the state of sequences: how much, for what, and that one sequence fits.
//!
//! All pages are one pool. Its size is what running sequences are sure to need (one of the whole context, the others of
//! `--scratch-context`) and what is kept of those that have ended (`--cache`); whoever runs may use all of it.

use bantam_backend::{Program, RecurrentGroup, StateGroup};

use super::TRUNK;
use crate::{
    actors::kv::KvArguments,
    cache::one_sequence,
    engine::{CacheSize, EngineConfig},
    memory::Ledger,
};

/// Conversations kept per slot beyond which more memory would rarely be used.
const USEFUL_PREFIXES_PER_SLOT: u64 = 8;

/// Part of the free memory that kept prefixes take, and the most, where the user says nothing.
const PART_FOR_CACHE: u64 = 8;
const MOST_FOR_CACHE: u64 = 8 << 30;

/// Part of the free memory that running sequences take at most, unless one needs more or the user says so.
const PART_FOR_SEQUENCES: u64 = 2;

/// Points of each running sequence whose recurrent value is kept, beside its own.
const POINTS_PER_SEQUENCE: u64 = 8;

/// Part of the free memory that recurrent values take at most, unless it takes more to run the sequences.
const PART_FOR_POINTS: u64 = 8;

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
    let (recurrent, points) = provide_slots(config, program, owner, ledger)?;
    let minimum = one_sequence(program.groups(), context, config.batch);
    let budget = page_budget(config, context, program.groups(), points, owner, ledger)?;
    reserve_pages(program, budget).map_err(|e| format!("{e}; {}", hint(config)))?;
    Ok(KvArguments { groups: program.groups().to_vec(), budget, minimum, recurrent })
}

/// Slots of recurrent state: one for each running sequence and one to go on from a shared point, and as many more for
/// points as memory allows. Returns the bytes of these too.
fn provide_slots(
    config: &EngineConfig,
    program: &mut dyn Program,
    owner: &str,
    ledger: &mut Ledger,
) -> Result<(Option<(RecurrentGroup, u64)>, u64), String> {
    let Some(group) = program.recurrent(TRUNK).cloned() else { return Ok((None, 0)) };
    let sequences = config.parallel as u64;
    let bytes = |slots: u64| (group.slot_bytes as u64).saturating_mul(slots);
    let needed = bytes(sequences + 1);
    ledger.enter(owner, "recurrent state of the sequences", needed, "lower --parallel").map_err(|e| e.to_string())?;
    let useful = bytes(sequences.saturating_mul(1 + POINTS_PER_SEQUENCE) + 1);
    let most = match config.cache {
        CacheSize::Mib(mib) => ((mib as u64).saturating_mul(1 << 20) / 2).min(ledger.free()),
        // Where running sequences part, they go on from points too.
        CacheSize::Auto | CacheSize::Off => ledger.free() / PART_FOR_POINTS,
    };
    let budget = most.min(useful).max(needed);
    ledger
        .enter(owner, "recurrent state of shared points", budget - needed, "lower --parallel or --cache")
        .map_err(|e| e.to_string())?;
    let slots = budget.checked_div(group.slot_bytes as u64).unwrap_or(sequences + 1);
    program
        .reserve_slots(TRUNK, usize::try_from(slots).unwrap_or(usize::MAX))
        .map_err(|e| format!("{e}; {}", hint(config)))?;
    Ok((Some((group, budget)), budget - needed))
}

/// What to do where the system gives no memory, by flags that the command has.
fn hint(config: &EngineConfig) -> &'static str {
    match config.cache {
        CacheSize::Off => "lower --context, or free memory",
        CacheSize::Auto | CacheSize::Mib(_) => "set --cache to less, or lower --context or --parallel",
    }
}

fn bytes_of(groups: &[StateGroup], pages: &[usize]) -> u64 {
    groups.iter().zip(pages).fold(0, |sum, (g, &n)| sum.saturating_add((g.page_bytes as u64).saturating_mul(n as u64)))
}

/// Enters the memory for pages, where so many bytes of what is kept are recurrent values.
fn page_budget(
    config: &EngineConfig,
    context: usize,
    groups: &[StateGroup],
    points: u64,
    owner: &str,
    ledger: &mut Ledger,
) -> Result<u64, String> {
    let bytes = |tokens: usize| bytes_of(groups, &one_sequence(groups, tokens, config.batch));
    let (free, one, sequences) = (ledger.free(), bytes(context), config.parallel as u64);
    let others = sequences.saturating_sub(1);
    let scratch = match config.scratch_context {
        Some(tokens) => bytes(tokens.min(context)).saturating_mul(others),
        None => one.saturating_mul(others).min((free / PART_FOR_SEQUENCES).saturating_sub(one)),
    };
    let kept = match config.cache {
        CacheSize::Off => 0,
        CacheSize::Mib(mib) => (mib as u64).saturating_mul(1 << 20).saturating_sub(points),
        CacheSize::Auto => {
            let useful = one.saturating_mul(sequences).saturating_mul(USEFUL_PREFIXES_PER_SLOT);
            let left = free.saturating_sub(one).saturating_sub(scratch);
            (free / PART_FOR_CACHE).min(MOST_FOR_CACHE).min(useful).min(left)
        }
    };
    let entries = [
        ("state of one sequence", one, "lower --context, or choose a smaller --cache-type-k and --cache-type-v"),
        ("state of the other sequences", scratch, "lower --scratch-context or --parallel"),
        ("kept prefixes", kept, "lower --cache"),
    ];
    for (what, bytes, hint) in entries {
        ledger.enter(owner, what, bytes, hint).map_err(|e| e.to_string())?;
    }
    Ok(one.saturating_add(scratch).saturating_add(kept))
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

    const GIB: u64 = 1 << 30;

    /// A sequence of 16 Ki tokens takes 1 GiB and a page.
    fn groups() -> [StateGroup; 1] {
        [StateGroup { kind: StateKind::PerToken, page_tokens: 16, page_bytes: 1 << 20, states: vec![0] }]
    }

    /// Pages in MiB with so much memory, without the page that each sequence may have beside its own.
    fn budget(config: &EngineConfig, total: u64, sequences: u64) -> Result<u64, String> {
        let budget = page_budget(config, 1 << 14, &groups(), 0, "x:0", &mut Ledger::with_total(total))?;
        Ok((budget >> 20).saturating_sub(sequences))
    }

    fn config(parallel: usize, cache: CacheSize, scratch_context: Option<usize>) -> EngineConfig {
        EngineConfig { parallel, cache, scratch_context, ..EngineConfig::new("") }
    }

    #[test]
    fn running_sequences_have_what_they_are_sure_to_need_and_the_cache_what_was_asked_for() {
        let off = |parallel, scratch| config(parallel, CacheSize::Off, scratch);
        assert_eq!(budget(&off(1, None), 1 << 40, 1), Ok(1024));
        assert_eq!(budget(&off(4, None), 1 << 40, 4), Ok(4 * 1024));
        assert_eq!(budget(&off(4, Some(1 << 10)), 1 << 40, 4), Ok(1024 + 3 * 64));
        assert_eq!(budget(&off(4, Some(1 << 20)), 1 << 40, 4), Ok(4 * 1024), "none is longer than the context");
        assert_eq!(budget(&config(2, CacheSize::Mib(300), None), 1 << 40, 2), Ok(2 * 1024 + 300));
    }

    #[test]
    fn what_is_not_said_takes_a_part_of_the_free_memory() {
        let auto = |parallel| config(parallel, CacheSize::Auto, None);
        // An eighth of 16 GiB; of 160 GiB, the most.
        assert_eq!(budget(&auto(1), 16 * GIB, 1), Ok(1024 + 2048));
        assert_eq!(budget(&auto(2), 160 * GIB, 2), Ok(2 * 1024 + 8192));
        // Half of 3 GiB is for the sequences.
        assert_eq!(budget(&config(4, CacheSize::Off, None), 3 * GIB, 0), Ok(1536));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_flag_that_helps() {
        for (config, total, flag) in [
            (config(1, CacheSize::Auto, None), GIB, "--context"),
            (config(4, CacheSize::Auto, Some(1 << 14)), 3 * GIB, "--scratch-context"),
            (config(1, CacheSize::Mib(4096), None), 3 * GIB, "--cache"),
        ] {
            let error = budget(&config, total, 0).unwrap_err();
            assert!(error.ends_with(flag) || error.contains(&format!("lower {flag}")), "{error}");
        }
    }
}
