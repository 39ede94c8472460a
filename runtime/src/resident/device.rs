//! The memory of a device that a model lies on: what was planned, and what is really there for its state.

use bantam_backend::Backend;

use crate::{
    engine::DeviceStatus,
    memory::Ledger,
    placement::{DevicePlan, state::is_state},
};

/// Bytes that are left alone: tables of steps grow a little, and pieces of memory are rounded up.
const MARGIN: u64 = 32 << 20;

/// A ledger of a device on which the weights and buffers of a plan lie by now: what is free in it is for state. Where they took
/// more than was planned, there is less.
///
/// # Errors
/// If the device does not answer, or there is less than the plan took for granted.
pub(super) fn ledger(planned: &DevicePlan, backend: &dyn Backend, owner: &str) -> Result<Ledger, String> {
    let device = backend.device().map_err(|e| e.to_string())?;
    let free = device.map_or(0, |device| device.free).saturating_sub(MARGIN);
    ledger_where(planned, free, owner)
}

fn ledger_where(planned: &DevicePlan, free: u64, owner: &str) -> Result<Ledger, String> {
    let mut ledger = Ledger::with_total(planned.free);
    let mut enter = |what: &str, bytes: u64| {
        ledger.enter(owner, what, bytes, "free some of the device's memory").map_err(|e| e.to_string())
    };
    for used in planned.uses.iter().filter(|used| !is_state(&used.what)) {
        enter(&used.what, used.bytes)?;
    }
    let beyond = ledger.free().saturating_sub(free);
    if beyond > 0 {
        ledger.enter(owner, "beyond the plan", beyond, "").map_err(|e| e.to_string())?;
    }
    Ok(ledger)
}

/// What is known of a device on which a model lies.
pub(super) fn status(planned: &DevicePlan, ledger: &Ledger) -> DeviceStatus {
    DeviceStatus {
        index: planned.index,
        name: planned.name.clone(),
        bytes: planned.total,
        free: planned.free,
        entries: ledger.status().entries,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Use;

    #[test]
    fn state_gets_what_was_planned_or_what_is_there_if_that_is_less() {
        let used = |what: &str, bytes| Use { what: what.into(), bytes };
        let uses = vec![used("mixers", 30), used("state of one sequence", 50), used("kept prefixes", 10)];
        let planned = DevicePlan { index: 0, name: "x".into(), total: 120, free: 100, uses };
        for (free, left) in [(90, 70), (70, 70), (60, 60), (0, 0)] {
            let ledger = ledger_where(&planned, free, "x:0").unwrap();
            assert_eq!(ledger.free(), left);
            assert!(ledger.status().entries.iter().all(|entry| entry.what != "kept prefixes"));
        }
    }
}
