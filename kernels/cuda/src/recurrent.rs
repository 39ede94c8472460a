//! Recurrences on the device (`cu/recurrent.cu`), and how slots are laid out for them.

use bantam_graph::{self as ops, Checked};

use crate::{
    device::{Address, Device, DeviceError, Kernel, Launch, argument},
    source::Unit,
    state::Step,
};

/// Threads of a block.
const THREADS: u32 = 128;

/// Threads that share a column of a state.
const SHARERS: u32 = 4;

/// Columns of a block.
const COLUMNS: u32 = THREADS / SHARERS;

/// Rows of a sequence up to which one launch does a convolution.
const FEW_ROWS: u32 = 8;

argument! {
    /// How a step advances a recurrent state: `Recurrence` in `cu/common.cuh`. Arrays are of `u32`s, one for each sequence.
    pub struct Recurrence {
        /// Slot 0.
        pub slots: Address,
        /// Floats of a slot, a multiple of 4.
        pub slot_floats: u64,
        /// Slot that is read; [`crate::state::NONE`]: zeros.
        pub from: Address,
        /// Slot that is written; [`crate::state::NONE`]: a sequence that fills up, and is passed over.
        pub to: Address,
        /// Kept rows of `from` that are taken in first.
        pub accepted: Address,
        /// Rows at the end of the step that are kept instead of taken in.
        pub tentative: Address,
        /// Which bank of `from` has its kept rows.
        pub from_bank: Address,
        /// Which bank of `to` gets the step's: the one that holds none, if `to` is `from`.
        pub to_bank: Address,
        /// First float of the value in a slot.
        pub value: u64,
        /// First float of the banks.
        pub kept: u64,
        /// Floats that are kept of a row.
        pub inputs: u32,
        /// Rows of a bank.
        pub bank_rows: u32,
    }

    /// Operands of the delta rule: `Delta` in `cu/recurrent.cu`.
    pub struct Delta {
        /// `[rows][key_heads][key_dim]`.
        pub q: Address,
        /// As `q`.
        pub k: Address,
        /// `[rows][heads][value_dim]`.
        pub v: Address,
        /// `[rows][heads]`, with `per_channel` `[rows][heads][key_dim]`: the logarithm of what is kept.
        pub decay: Address,
        /// `[rows][heads]`.
        pub beta: Address,
        /// As `v`.
        pub out: Address,
        /// Heads of queries and keys.
        pub key_heads: u32,
        /// Heads of values.
        pub heads: u32,
        /// Entries of a key.
        pub key_dim: u32,
        /// Entries of a value.
        pub value_dim: u32,
        /// 1 if each channel of a key has its own decay.
        pub per_channel: u32,
        /// Factor on the result.
        pub scale: f32,
    }

    /// Operands of the state-space scan: `Scan` in `cu/recurrent.cu`.
    pub struct Scan {
        /// `[rows][heads][dim]`.
        pub x: Address,
        /// `[rows][groups][size]`.
        pub b: Address,
        /// As `b`.
        pub c: Address,
        /// `[rows][heads]`.
        pub dt: Address,
        /// `[heads]`.
        pub a: Address,
        /// `[heads]`, or 0.
        pub d: Address,
        /// As `x`.
        pub out: Address,
        /// Heads.
        pub heads: u32,
        /// Entries of a head.
        pub dim: u32,
        /// Groups of `b` and `c`.
        pub groups: u32,
        /// Entries of the state for each of a head.
        pub size: u32,
    }

    /// Operands of the convolution: `Conv` in `cu/recurrent.cu`.
    pub struct Conv {
        /// `[rows][width]`.
        pub x: Address,
        /// `[width][taps]`.
        pub weight: Address,
        /// `[width]`, or 0.
        pub bias: Address,
        /// As `x`.
        pub out: Address,
        /// Entries of a row.
        pub width: u32,
        /// Taps.
        pub taps: u32,
        /// Tokens between two taps.
        pub dilation: u32,
    }
}

/// Most entries of a column: registers and shared memory hold no more. These are a key's ([`DeltaRule`]), or those of the
/// state for each of a head ([`Ssm`]).
pub const MOST_ENTRIES: u32 = 256;

/// Entries of a column that each of its threads has.
fn per_thread(entries: u32) -> u32 {
    entries.div_ceil(4 * SHARERS).max(1) * 4
}

/// Floats of a column of so many entries in a slot: filled up with zeros.
fn column(entries: u32) -> usize {
    (per_thread(entries) * SHARERS) as usize
}

impl Delta {
    /// Floats of the value in a slot, and of what is kept of a row.
    pub fn sizes(&self) -> [usize; 2] {
        let [key_heads, heads, key_dim, value_dim] =
            [self.key_heads, self.heads, self.key_dim, self.value_dim].map(|n| n as usize);
        let decays = if self.per_channel != 0 { heads * key_dim } else { heads };
        [heads * value_dim * column(self.key_dim), key_heads * key_dim + decays + heads * value_dim + heads]
    }
}

impl Scan {
    /// Floats of the value in a slot, and of what is kept of a row.
    pub fn sizes(&self) -> [usize; 2] {
        let [heads, dim, groups, size] = [self.heads, self.dim, self.groups, self.size].map(|n| n as usize);
        [heads * dim * column(self.size), heads * dim + groups * size + heads]
    }
}

impl Conv {
    /// Floats of the value in a slot, and of what is kept of a row.
    pub fn sizes(&self) -> [usize; 2] {
        [((self.taps - 1) * self.dilation * self.width) as usize, self.width as usize]
    }
}

fn extents(checked: &Checked<'_>, state: &str) -> Option<[u32; 3]> {
    let shape = &checked.recurrent(state)?.shape;
    let shape: [usize; 3] = shape.as_slice().try_into().ok()?;
    Some(shape.map(|n| n as u32))
}

/// Extents of a delta rule, by the state that it names and the widths of its operands; without addresses.
pub fn delta_shape(checked: &Checked<'_>, o: &ops::DeltaRule, width: impl Fn(&str) -> Option<usize>) -> Option<Delta> {
    let [heads, key_dim, value_dim] = extents(checked, &o.state)?;
    let key_heads = width(&o.q)? as u32 / key_dim;
    let per_channel = u32::from(width(&o.decay)? as u32 != heads);
    Some(Delta { key_heads, heads, key_dim, value_dim, per_channel, scale: o.scale, ..Delta::default() })
}

/// Extents of a scan, likewise.
pub fn scan_shape(checked: &Checked<'_>, o: &ops::Ssm, width: impl Fn(&str) -> Option<usize>) -> Option<Scan> {
    let [heads, dim, size] = extents(checked, &o.state)?;
    Some(Scan { heads, dim, groups: width(&o.b)? as u32 / size, size, ..Scan::default() })
}

/// Where the recurrent states of a graph lie in a slot: of each its value, then two banks of kept inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotLayout {
    /// Floats of a slot.
    pub slot_floats: usize,
    /// Of each state, the first float of its value and of its banks.
    pub places: Vec<[usize; 2]>,
}

impl SlotLayout {
    /// Lays out states of these sizes (floats of the value, floats kept of a row) for steps of at most `tentative` tentative
    /// rows; `None` if no address space holds it.
    pub fn new(sizes: &[[usize; 2]], tentative: usize) -> Option<Self> {
        let (mut end, mut places) = (0usize, Vec::new());
        for [value, inputs] in sizes {
            // Columns are read four floats at a time.
            let kept = end.checked_add(*value)?.checked_next_multiple_of(4)?;
            places.push([end, kept]);
            end = kept.checked_add(inputs.checked_mul(tentative)?.checked_mul(2)?)?.checked_next_multiple_of(4)?;
        }
        Some(SlotLayout { slot_floats: end, places })
    }
}

/// Forms in which recurrences are compiled: columns of up to 16 to 256 entries.
pub(crate) fn units() -> Vec<Unit> {
    [16, 64, 128, 256].map(unit_of).into()
}

fn unit_of(entries: u32) -> Unit {
    Unit::with("recurrent.cu", "PER", per_thread(entries).to_string())
}

/// The delta rule.
#[derive(Clone, Copy, Debug)]
pub struct DeltaRule {
    kernel: Kernel,
}

fn of_entries(device: &dyn Device, entries: u32, name: &str) -> Result<Kernel, DeviceError> {
    device.kernel(&unit_of(entries), name)
}

impl DeltaRule {
    /// The kernel for keys of `key_dim` entries, at most [`MOST_ENTRIES`].
    ///
    /// # Errors
    /// If it does not compile.
    pub fn new(device: &dyn Device, key_dim: u32) -> Result<Self, DeviceError> {
        Ok(DeltaRule { kernel: of_entries(device, key_dim, "delta_rule")? })
    }

    /// Computes the step's rows and advances the state.
    ///
    /// # Errors
    /// If the launch is refused.
    pub fn run(&self, device: &dyn Device, of: &Delta, step: &Step, slots: &Recurrence) -> Result<(), DeviceError> {
        let launch = Launch::new([of.value_dim.div_ceil(COLUMNS), of.heads, step.sequences], THREADS);
        device.launch(self.kernel, &launch.arg(*of).arg(*step).arg(*slots))
    }
}

/// The state-space scan.
#[derive(Clone, Copy, Debug)]
pub struct Ssm {
    kernel: Kernel,
}

impl Ssm {
    /// The kernel for `size` entries of the state for each of a head, at most [`MOST_ENTRIES`].
    ///
    /// # Errors
    /// If it does not compile.
    pub fn new(device: &dyn Device, size: u32) -> Result<Self, DeviceError> {
        Ok(Ssm { kernel: of_entries(device, size, "ssm")? })
    }

    /// Computes the step's rows and advances the state.
    ///
    /// # Errors
    /// If the launch is refused.
    pub fn run(&self, device: &dyn Device, of: &Scan, step: &Step, slots: &Recurrence) -> Result<(), DeviceError> {
        let launch = Launch::new([of.dim.div_ceil(COLUMNS), of.heads, step.sequences], THREADS);
        device.launch(self.kernel, &launch.arg(*of).arg(*step).arg(*slots))
    }
}

/// The short convolution.
#[derive(Clone, Copy, Debug)]
pub struct ShortConv {
    rows: Kernel,
    leave: Kernel,
}

impl ShortConv {
    /// The kernels.
    ///
    /// # Errors
    /// If they do not compile.
    pub fn new(device: &dyn Device) -> Result<Self, DeviceError> {
        let unit = Unit::plain("recurrent.cu");
        Ok(ShortConv { rows: device.kernel(&unit, "conv_rows")?, leave: device.kernel(&unit, "conv_leave")? })
    }

    /// Computes the step's rows and advances the state. No sequence has more than `most_rows` rows in the step.
    ///
    /// # Errors
    /// If a launch is refused.
    pub fn run(
        &self,
        device: &dyn Device,
        of: &Conv,
        step: &Step,
        slots: &Recurrence,
        most_rows: u32,
    ) -> Result<(), DeviceError> {
        let (blocks, few) = (of.width.div_ceil(THREADS), most_rows <= FEW_ROWS);
        if !few {
            let launch = Launch::new([blocks, step.rows, 1], THREADS);
            device.launch(self.rows, &launch.arg(*of).arg(*step).arg(*slots))?;
        }
        let launch = Launch::new([blocks, step.sequences, 1], THREADS);
        device.launch(self.leave, &launch.arg(*of).arg(*step).arg(*slots).arg(u32::from(few)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_whole_runs() {
        assert_eq!([1, 16, 17, 64, 128, 200].map(per_thread), [4, 4, 8, 16, 32, 52]);
        assert_eq!([1, 16, 17, 200].map(column), [16, 16, 32, 208]);
    }

    #[test]
    fn states_lie_one_behind_the_other() {
        let layout = SlotLayout::new(&[[10, 3], [8, 4]], 2).unwrap();
        assert_eq!(layout, SlotLayout { slot_floats: 48, places: vec![[0, 12], [24, 32]] });
        assert_eq!(SlotLayout::new(&[[usize::MAX, 1]], 1), None);
    }
}
