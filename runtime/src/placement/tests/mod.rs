//! Plans: properties over random machines, models and flags; real shapes; what is planned against what is taken.

mod properties;
mod real;
mod shapes;

use bantam_backend::KvType;

use super::{CacheType, Flags, PlacementChoices, StateFlags};
use crate::engine::{CacheSize, EngineConfig};

const GIB: u64 = 1 << 30;

/// The defaults of `serve`, for sequences of so many tokens.
fn flags(context: usize) -> Flags {
    Flags::of(&EngineConfig::new(""), context)
}

/// As [`flags`], with these choices.
fn choosing(context: usize, choices: PlacementChoices) -> Flags {
    Flags { choices, ..flags(context) }
}

#[test]
fn defaults_are_those_of_serve() {
    let Flags { choices, k_type, v_type, repack, state } = flags(1000);
    assert_eq!(choices, PlacementChoices::default());
    assert_eq!((k_type, v_type, repack), (CacheType::Fixed(KvType::F16), CacheType::Fixed(KvType::F16), true));
    let expected = StateFlags {
        parallel: 4,
        context: 1000,
        scratch_context: None,
        cache: CacheSize::Auto,
        batch: 512,
        logit_rows: 4,
    };
    assert_eq!(state, expected);
}
