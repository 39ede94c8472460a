//! Memory for the state of sequences: how much, for what, in which order it is entered into a ledger. Loading a model and
//! planning for it are the same code.
//!
//! All pages are one pool. Its size is what running sequences are sure to need (one of the whole context, the others of
//! `--scratch-context`) and what is kept of those that have ended (`--cache`); whoever runs may use all of it.

use bantam_backend::StateGroup;

use crate::{
    cache::one_sequence,
    engine::{CacheSize, EngineConfig},
    memory::{Ledger, OutOfMemory},
};

/// Conversations kept per slot beyond which more memory would rarely be used.
const USEFUL_PREFIXES_PER_SLOT: u64 = 8;

/// Part of the free memory that kept prefixes take, and the most, where the user says nothing.
const PART_FOR_CACHE: u64 = 8;
const MOST_FOR_CACHE: u64 = 8 << 30;

/// Part of the free memory that running sequences take at most, unless one needs more or the user says so.
pub(super) const PART_FOR_SEQUENCES: u64 = 2;

/// Points of each running sequence whose recurrent value is kept, beside its own.
const POINTS_PER_SEQUENCE: u64 = 8;

/// Part of the free memory that recurrent values take at most, unless it takes more to run the sequences.
pub(super) const PART_FOR_POINTS: u64 = 8;

/// What memory for state is for.
const SLOTS: &str = "recurrent state of the sequences";
const POINTS: &str = "recurrent state of shared points";
const ONE: &str = "state of one sequence";
const OTHERS: &str = "state of the other sequences";
const KEPT: &str = "kept prefixes";

/// Whether memory for this is for state.
pub(crate) fn is_state(what: &str) -> bool {
    [SLOTS, POINTS, ONE, OTHERS, KEPT].contains(&what)
}

/// How much state there is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateFlags {
    /// `--parallel`: sequences that run at once.
    pub parallel: usize,
    /// Tokens of a sequence, at most: `--context`, and what the model was made for.
    pub context: usize,
    /// `--scratch-context`: tokens of each sequence beside one of the whole context that there is memory for.
    pub scratch_context: Option<usize>,
    /// `--cache`.
    pub cache: CacheSize,
    /// `--step-tokens`: rows of a step, at most.
    pub batch: usize,
    /// Logit rows of a step, at most.
    pub logit_rows: usize,
}

impl StateFlags {
    /// Those of a configuration, for sequences of at most `context` tokens.
    pub(crate) fn of(config: &EngineConfig, context: usize) -> Self {
        StateFlags {
            parallel: config.parallel,
            context,
            scratch_context: config.scratch_context,
            cache: config.cache,
            batch: config.batch,
            logit_rows: if config.all_logits { config.batch } else { config.parallel.min(config.batch) },
        }
    }

    /// Sequences beside the one that may use all of the context.
    pub(super) fn others(&self) -> u64 {
        (self.parallel as u64).saturating_sub(1)
    }

    /// Bytes of a sequence's rows, at most, where it has so many tokens; saturates.
    pub(super) fn rows(&self, groups: &[StateGroup], tokens: usize) -> u64 {
        let pages = one_sequence(groups, tokens, self.batch);
        let bytes = groups.iter().zip(pages).map(|(g, n)| (g.page_bytes as u64).saturating_mul(n as u64));
        bytes.fold(0, u64::saturating_add)
    }

    /// Bytes of the other sequences' rows that the user has fixed.
    pub(super) fn fixed_scratch(&self, groups: &[StateGroup]) -> u64 {
        let of = |tokens: usize| self.rows(groups, tokens.min(self.context)).saturating_mul(self.others());
        self.scratch_context.map_or(0, of)
    }

    /// Bytes of slots that running sequences need: one each, and one to go on from a shared point.
    pub(super) fn slots(&self, slot: u64) -> u64 {
        slot.saturating_mul((self.parallel as u64).saturating_add(1))
    }

    /// Bytes of slots for points, where there is room for all that are useful.
    pub(super) fn useful_points(&self, slot: u64) -> u64 {
        slot.saturating_mul((self.parallel as u64).saturating_mul(POINTS_PER_SEQUENCE))
    }
}

/// Enters slots of recurrent state: one for each running sequence and one to go on from a shared point, and as many more for
/// points as memory allows. Returns the bytes of all, and of the points.
///
/// # Errors
/// If there is not enough for the running sequences.
pub(crate) fn enter_slots(
    flags: &StateFlags,
    slot: u64,
    owner: &str,
    ledger: &mut Ledger,
) -> Result<(u64, u64), OutOfMemory> {
    let needed = flags.slots(slot);
    ledger.enter(owner, SLOTS, needed, "lower --parallel")?;
    let useful = needed.saturating_add(flags.useful_points(slot));
    let most = match flags.cache {
        CacheSize::Mib(mib) => (mebibytes(mib) / 2).min(ledger.free()),
        // Where running sequences part, they go on from points too.
        CacheSize::Auto | CacheSize::Off => ledger.free() / PART_FOR_POINTS,
    };
    let budget = most.min(useful).max(needed);
    ledger.enter(owner, POINTS, budget - needed, "lower --parallel or --cache")?;
    Ok((budget, budget - needed))
}

/// Enters the memory for pages of these groups, and for what is kept of sequences that have ended, of which so many bytes are
/// recurrent values; a whole sequence takes `whole` bytes, also where a part of the groups is on a device. Returns the
/// bytes of all pages.
///
/// # Errors
/// If the state of one sequence does not fit, or what the user asked for.
pub(crate) fn enter_rows(
    flags: &StateFlags,
    groups: &[StateGroup],
    whole: Option<u64>,
    points: u64,
    owner: &str,
    ledger: &mut Ledger,
) -> Result<u64, OutOfMemory> {
    let (free, one) = (ledger.free(), flags.rows(groups, flags.context));
    let scratch = match flags.scratch_context {
        Some(_) => flags.fixed_scratch(groups),
        None => one.saturating_mul(flags.others()).min((free / PART_FOR_SEQUENCES).saturating_sub(one)),
    };
    let kept = match flags.cache {
        CacheSize::Off => 0,
        CacheSize::Mib(mib) => mebibytes(mib).saturating_sub(points),
        CacheSize::Auto => {
            let whole = whole.unwrap_or(one);
            let useful = whole.saturating_mul(flags.parallel as u64).saturating_mul(USEFUL_PREFIXES_PER_SLOT);
            let left = free.saturating_sub(one).saturating_sub(scratch);
            (free / PART_FOR_CACHE).min(MOST_FOR_CACHE).min(useful).min(left)
        }
    };
    let entries = [
        (ONE, one, "lower --context, or choose a smaller --cache-type-k and --cache-type-v"),
        (OTHERS, scratch, "lower --scratch-context or --parallel"),
        (KEPT, kept, "lower --cache"),
    ];
    for (what, bytes, hint) in entries {
        ledger.enter(owner, what, bytes, hint)?;
    }
    Ok(one.saturating_add(scratch).saturating_add(kept))
}

/// Bytes that weights in mapped files count, where so many are free: they leave at least half of it to what cannot be taken
/// back, since the system takes theirs back where it must.
pub(crate) fn counted(mapped: u64, free: u64) -> u64 {
    mapped.min(free / 2)
}

pub(super) fn mebibytes(mib: usize) -> u64 {
    (mib as u64).saturating_mul(1 << 20)
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
    fn budget(flags: &StateFlags, total: u64, sequences: u64) -> Result<u64, String> {
        let budget = enter_rows(flags, &groups(), None, 0, "x:0", &mut Ledger::with_total(total));
        Ok((budget.map_err(|e| e.to_string())? >> 20).saturating_sub(sequences))
    }

    fn flags(parallel: usize, cache: CacheSize, scratch_context: Option<usize>) -> StateFlags {
        let config = EngineConfig { parallel, cache, scratch_context, ..EngineConfig::new("") };
        StateFlags::of(&config, 1 << 14)
    }

    #[test]
    fn running_sequences_have_what_they_are_sure_to_need_and_the_cache_what_was_asked_for() {
        let off = |parallel, scratch| flags(parallel, CacheSize::Off, scratch);
        assert_eq!(budget(&off(1, None), 1 << 40, 1), Ok(1024));
        assert_eq!(budget(&off(4, None), 1 << 40, 4), Ok(4 * 1024));
        assert_eq!(budget(&off(4, Some(1 << 10)), 1 << 40, 4), Ok(1024 + 3 * 64));
        assert_eq!(budget(&off(4, Some(1 << 20)), 1 << 40, 4), Ok(4 * 1024), "none is longer than the context");
        assert_eq!(budget(&flags(2, CacheSize::Mib(300), None), 1 << 40, 2), Ok(2 * 1024 + 300));
    }

    #[test]
    fn what_is_not_said_takes_a_part_of_the_free_memory() {
        let auto = |parallel| flags(parallel, CacheSize::Auto, None);
        // An eighth of 16 GiB; of 160 GiB, the most.
        assert_eq!(budget(&auto(1), 16 * GIB, 1), Ok(1024 + 2048));
        assert_eq!(budget(&auto(2), 160 * GIB, 2), Ok(2 * 1024 + 8192));
        // Half of 3 GiB is for the sequences.
        assert_eq!(budget(&flags(4, CacheSize::Off, None), 3 * GIB, 0), Ok(1536));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_flag_that_helps() {
        for (flags, total, flag) in [
            (flags(1, CacheSize::Auto, None), GIB, "--context"),
            (flags(4, CacheSize::Auto, Some(1 << 14)), 3 * GIB, "--scratch-context"),
            (flags(1, CacheSize::Mib(4096), None), 3 * GIB, "--cache"),
        ] {
            let error = budget(&flags, total, 0).unwrap_err();
            assert!(error.ends_with(flag) || error.contains(&format!("lower {flag}")), "{error}");
        }
    }
}
