//! Where a model's weights, its state and its experts go: a pure function from (model, machine, flags) to a [`Plan`], or to
//! a [`Refusal`] with the numbers.
//!
//! On a device, memory is given out in one order, and what stands later shrinks first:
//!
//! 1. what must be there at all: the driver's own, the buffers of prompts and of decoding, the output head;
//! 2. each layer's mixer (attention, recurrence) with the state of one sequence of the whole context and what the user fixed
//!    for the others, from the last layer to the first;
//! 3. the feed-forward blocks, from the last to the first; one that does not fit is computed by the CPU;
//! 4. more state: points that recurrent models resume from, the other sequences;
//! 5. experts: what is staged while prompts are read, and the hot set.
//!
//! A machine that does not spread models ([`Machine::spreads`]) has all of that on the device, with what is kept of ended
//! sequences behind it, or nothing.
//!
//! So the plan is the longest beginning of one sequence of parts that fits, which is why more memory never places less. What
//! the user fixed is respected, or the plan is refused. Sizes are those that loading enters into the ledger: the same code
//! counts them ([`ModelSizes`], `state`), and on the CPU alone the plan is the ledger.

mod flags;
mod machine;
mod measure;
mod place;
mod plan;
mod remedy;
mod sizes;
pub(crate) mod state;
#[cfg(test)]
mod tests;
mod workspace;

pub use flags::{BackendChoice, CacheType, DenseRequant, ExpertMode, Flags, GpuLayers, PlacementChoices};
pub use machine::{Device, LEAST_CAPABILITY, Machine};
pub use plan::{DevicePlan, ExpertPlan, HostPlan, LayerPlan, Plan, Use};
pub use remedy::{Refusal, Setting};
pub use sizes::{DenseBytes, HostBytes, LayerSizes, MixtureSizes, ModelSizes, WorkspaceSizes};
pub use state::StateFlags;

use flags::Choice;
pub(crate) use place::HostWeights;
use place::{Shortage, Spot, Stop, place};

/// Decides where a model goes.
///
/// # Errors
/// If it does not fit as the flags say: what is needed, what is there, and a setting that would make it fit; or if a flag
/// asks for something that this model or machine does not have.
pub fn plan(model: &ModelSizes, machine: &Machine, flags: &Flags) -> Result<Plan, Refusal> {
    match best(model, machine, flags) {
        Ok(mut plan) => {
            plan.advice = remedy::against_spills(model, machine, flags, &plan);
            Ok(plan)
        }
        Err(Stop::Conflict { flag, why }) => Err(Refusal::Conflict { flag, why }),
        Err(Stop::Short(shortage)) => Err(refused(model, machine, flags, &shortage)),
    }
}

/// The plan with the first of the choices that are left to us under which nothing spills; where all spill, with the last of
/// them, which takes the least.
fn best(model: &ModelSizes, machine: &Machine, flags: &Flags) -> Result<Plan, Stop> {
    let (mut spilled, mut stop) = (None, None);
    // Only an explicit wish for what cannot be had is a conflict.
    let can_be_had =
        |choice: &Choice| machine.spreads || !choice.requantized || flags.choices.dense_requant == DenseRequant::Q8;
    for choice in flags.choices(model).into_iter().filter(can_be_had) {
        match place(model, machine, flags, choice) {
            Ok(plan) if plan.spilled => spilled = Some(plan),
            Err(Stop::Short(shortage)) => stop = Some(Stop::Short(shortage)),
            decided => return decided,
        }
    }
    match (spilled, stop) {
        (Some(plan), _) => Ok(plan),
        (None, Some(stop)) => Err(stop),
        (None, None) => Err(Stop::Conflict { flag: "--cache-type-k".into(), why: "there is no type to choose".into() }),
    }
}

fn refused(model: &ModelSizes, machine: &Machine, flags: &Flags, shortage: &Shortage) -> Refusal {
    let available = machine.room(shortage.spot);
    let short = |room: u64| match best(model, &machine.with_room(shortage.spot, room), flags) {
        Err(Stop::Short(other)) => other.spot == shortage.spot,
        Ok(_) | Err(Stop::Conflict { .. }) => false,
    };
    Refusal::Short {
        place: name(shortage.spot),
        what: shortage.what.clone(),
        needed: least(available, short),
        available,
        setting: remedy::against_refusal(model, machine, flags),
    }
}

/// The least number of bytes above `from` that is not `short`; beyond counting, the largest number.
fn least(from: u64, short: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (from, from.max(1 << 20));
    while short(high) {
        if high == u64::MAX {
            return high;
        }
        low = high;
        high = high.saturating_mul(2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if short(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

impl Machine {
    fn room(&self, spot: Spot) -> u64 {
        match spot {
            Spot::Host => self.host,
            Spot::Device(index) => self.devices.get(index).map_or(0, |device| device.free),
        }
    }

    fn with_room(&self, spot: Spot, room: u64) -> Machine {
        let mut machine = self.clone();
        match spot {
            Spot::Host => machine.host = room,
            Spot::Device(index) => {
                if let Some(device) = machine.devices.get_mut(index) {
                    device.free = room;
                    device.total = device.total.max(room);
                }
            }
        }
        machine
    }
}

fn name(spot: Spot) -> String {
    match spot {
        Spot::Host => "the host".into(),
        Spot::Device(index) => format!("device {index}"),
    }
}
