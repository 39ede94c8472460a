//! GPUs to compute on, and what of them is there.

use std::{path::PathBuf, sync::Arc};

use bantam_backend::Backend;
use bantam_cuda::{
    CudaBackend,
    card::{self, Card, CardInfo, CardOptions},
};
use bantam_cuda_libraries::{Found, Part, Places, find};
use bantam_runtime::{
    hardware::{Devices, Hardware},
    placement::{Device, LEAST_CAPABILITY},
    words::size,
};

use crate::home;

/// What is there.
pub(crate) fn found() -> Found {
    find(&Places::of_this_machine())
}

/// The machine's NVIDIA cards.
struct Cards {
    /// Where NVRTC lies, if the system's loader does not find it.
    nvrtc: Option<PathBuf>,
    /// Where compiled kernels are kept.
    cache: Option<PathBuf>,
}

/// The machine's cards, for whoever computes on them.
pub(crate) fn hardware() -> Hardware {
    let cache = home::home().ok().map(|home| home.join(KERNELS));
    Hardware::Devices(Arc::new(Cards { nvrtc: found().nvrtc, cache }))
}

/// Where compiled kernels are kept, in the home folder.
const KERNELS: &str = "kernels";

impl Devices for Cards {
    fn list(&self) -> Result<Vec<Device>, String> {
        let found = found();
        let missing: Vec<String> =
            found.missing().map(|part| format!("no {part} was found ({})", part.fix())).collect();
        if !missing.is_empty() {
            return Err(without(&missing.join(", ")));
        }
        let cards = card::cards().map_err(|e| without(&e.to_string()))?;
        if cards.is_empty() {
            return Err(without("this machine has no NVIDIA card"));
        }
        Ok(cards.iter().map(described).collect())
    }

    fn open(&self, index: usize) -> Result<Arc<dyn Backend>, String> {
        let options = CardOptions { ordinal: index, nvrtc: self.nvrtc.clone(), cache: self.cache.clone() };
        let card = Card::open(&options).map_err(|e| without(&e.to_string()))?;
        Ok(Arc::new(CudaBackend::on(Arc::new(card))))
    }
}

fn without(why: &str) -> String {
    format!("--backend cuda: {why}; leave it out to compute on the CPU")
}

/// A card, and what is free of its memory: nothing where it does not say so, or is too old.
fn described(card: &CardInfo) -> Device {
    let capability = (card.arch.major, card.arch.minor);
    let usable = capability >= LEAST_CAPABILITY;
    let free = usable.then(|| card::memory_of(card.ordinal).ok()).flatten().map_or(0, |memory| memory.free);
    Device { name: card.name.clone(), capability: Some(capability), total: card.total_bytes, free }
}

/// What there is that `auto` does not use, in a line.
pub(crate) fn unused() -> Option<String> {
    let found = found();
    found.path(Part::Driver)?;
    let cards = card::cards().ok()?;
    let card = cards.iter().find(|card| (card.arch.major, card.arch.minor) >= LEAST_CAPABILITY)?;
    Some(format!(
        "{} ({}) is not used: no card has been tried with this version; --backend cuda tries it",
        card.name,
        size(card.total_bytes)
    ))
}

/// Where a part is, for people.
pub(crate) fn told(found: &Found, part: Part) -> Option<String> {
    found.path(part).map(|path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_is_too_old_has_nothing_to_give() {
        let arch = card::Arch { major: 5, minor: 2 };
        let device = described(&CardInfo { ordinal: 0, name: "old".into(), arch, total_bytes: 4 << 30 });
        assert_eq!((device.free, device.total), (0, 4 << 30));
        let why = device.unusable().unwrap();
        assert!(why.contains("old has compute capability 5.2, expected 6.1"), "{why}");
    }
}
