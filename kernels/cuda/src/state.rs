//! Sequences' state on the device: how a step and a state look to kernels, where states lie in pages, and writing them.

use bantam_backend::KvType;

use crate::{
    device::{Address, Device, DeviceError, Kernel, Launch, argument},
    source::Unit,
};

/// An integer that stands for nothing: no page, no slot, no row. Addresses that stand for nothing are 0.
pub const NONE: u32 = u32::MAX;

argument! {
    /// Rows of a step, one sequence after another: `Step` in `cu/common.cuh`. All addresses are of `u32`s.
    pub struct Step {
        /// Rows.
        pub rows: u32,
        /// Sequences of the step.
        pub sequences: u32,
        /// `[rows]`: which sequence a row is of; [`NONE`]: a row that fills up, and is passed over.
        pub row_sequence: Address,
        /// `[rows]`: a token's index in its sequence, or a strided row's index in its state.
        pub row_index: Address,
        /// `[sequences]`: index in the sequence of its first token of the step.
        pub start: Address,
        /// `[sequences + 1]`: its first token among those of the step.
        pub first_row: Address,
    }

    /// A state of rows in the pages of its group: `State` in `cu/common.cuh`.
    pub struct State {
        /// Page 0.
        pub pool: Address,
        /// Bytes of a page.
        pub page_bytes: u64,
        /// `[sequences][table_pages]` pages; 0: all rows lie in page 0, by their number in the step.
        pub tables: Address,
        /// Entries of a sequence's table.
        pub table_pages: u32,
        /// Rows of a page.
        pub page_rows: u32,
        /// Where the codes begin in a page.
        pub codes: u32,
        /// Where the scales begin.
        pub scales: u32,
        /// Tokens that a row stands for.
        pub stride: u32,
        /// Heads of a row.
        pub heads: u32,
        /// Entries of a head.
        pub dim: u32,
        /// Its number format: [`type_number`].
        pub ty: u32,
    }

    /// Part of a row of a state in a page: `Plane` in `cu/store.cu`.
    pub struct Plane {
        /// Where the rows begin in a page.
        pub offset: u32,
        /// Bytes of a row.
        pub row_bytes: u32,
    }
}

/// The number by which kernels know a type.
pub fn type_number(ty: KvType) -> u32 {
    match ty {
        KvType::F32 => 0,
        KvType::F16 => 1,
        KvType::Bf16 => 2,
        KvType::Q8_0 => 3,
        KvType::Turbo4 => 4,
        KvType::Turbo3 => 5,
    }
}

/// The name that kernels have for a type.
pub(crate) fn type_name(ty: KvType) -> &'static str {
    match ty {
        KvType::F32 => "KV_F32",
        KvType::F16 => "KV_F16",
        KvType::Bf16 => "KV_BF16",
        KvType::Q8_0 => "KV_Q8_0",
        KvType::Turbo4 => "KV_TURBO4",
        KvType::Turbo3 => "KV_TURBO3",
    }
}

/// Bytes of the codes of a head, and how many scales it has.
pub fn head_parts(ty: KvType, dim: usize) -> (usize, usize) {
    let scales = match ty {
        KvType::F32 | KvType::F16 | KvType::Bf16 => 0,
        KvType::Q8_0 => dim.div_ceil(bantam_backend::KV_BLOCK),
        KvType::Turbo4 | KvType::Turbo3 => 1,
    };
    (ty.head_bytes(dim).saturating_sub(scales * 2), scales)
}

/// Multiple of bytes at which parts of a page begin.
const ALIGN: usize = 16;

/// What a state of a group is, before it has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its number format.
    pub ty: KvType,
    /// Heads of a row.
    pub heads: usize,
    /// Entries of a head.
    pub dim: usize,
}

/// Where the states of a group lie in its pages: state after state, of each the codes of all rows, then the scales.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageLayout {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Of each state, where its codes and its scales begin.
    pub places: Vec<[u32; 2]>,
}

impl PageLayout {
    /// Lays out pages of `page_rows` rows of each state; `None` if a page would have 4 GiB or more.
    pub fn new(states: &[Shape], page_rows: usize) -> Option<Self> {
        let (mut end, mut places) = (0usize, Vec::new());
        for state in states {
            let (codes, scales) = head_parts(state.ty, state.dim);
            let rows = page_rows.checked_mul(state.heads)?;
            let scales_at = end.checked_add(rows.checked_mul(codes)?)?.checked_next_multiple_of(ALIGN)?;
            places.push([u32::try_from(end).ok()?, u32::try_from(scales_at).ok()?]);
            end = scales_at.checked_add(rows.checked_mul(scales * 2)?)?.checked_next_multiple_of(ALIGN)?;
        }
        u32::try_from(end).ok()?;
        Some(PageLayout { page_bytes: end, places })
    }

    /// The parts that the rows of pages consist of, for copying and packing.
    pub fn planes(&self, states: &[Shape]) -> Vec<Plane> {
        let mut planes = Vec::new();
        for (state, [codes, scales]) in states.iter().zip(&self.places) {
            let (code_bytes, count) = head_parts(state.ty, state.dim);
            let of = |offset: &u32, bytes: usize| Plane { offset: *offset, row_bytes: (state.heads * bytes) as u32 };
            planes.push(of(codes, code_bytes));
            if count > 0 {
                planes.push(of(scales, count * 2));
            }
        }
        planes
    }
}

/// Bytes that planes take when they are packed: each begins at a multiple of 16.
pub fn packed_bytes(planes: &[Plane], rows: usize) -> usize {
    planes.iter().map(|plane| (plane.row_bytes as usize * rows).next_multiple_of(ALIGN)).sum()
}

/// The bytes of planes, to be uploaded.
pub fn plane_bytes(planes: &[Plane]) -> Vec<u8> {
    planes.iter().flat_map(|plane| [plane.offset, plane.row_bytes]).flat_map(u32::to_ne_bytes).collect()
}

/// Threads of a block that writes to states.
const STORE_THREADS: u32 = 128;

/// Writes rows to states of one type (`cu/store.cu`).
#[derive(Clone, Copy, Debug)]
pub struct Store {
    kernel: Kernel,
    ty: KvType,
}

impl Store {
    /// The kernel for states of a type.
    ///
    /// # Errors
    /// If it does not compile.
    pub fn new(device: &dyn Device, ty: KvType) -> Result<Self, DeviceError> {
        let name = match ty {
            KvType::Turbo4 => "store_turbo4",
            KvType::Turbo3 => "store_turbo3",
            KvType::F32 | KvType::F16 | KvType::Bf16 | KvType::Q8_0 => "store_plain",
        };
        Ok(Store { kernel: device.kernel(&Unit::plain("store.cu"), name)?, ty })
    }

    /// Writes the step's rows at `x`, f32, `pitch` entries from one to the next.
    ///
    /// # Errors
    /// If the launch is refused.
    pub fn run(
        &self,
        device: &dyn Device,
        x: Address,
        pitch: u32,
        step: &Step,
        state: &State,
    ) -> Result<(), DeviceError> {
        let launch = if self.ty.code_bits().is_some() {
            let width = self.ty.width(state.dim as usize) as u32;
            // Entries as floats, and a byte for the code of each.
            let launch = Launch::new([step.rows, state.heads, 1], STORE_THREADS).shared(width * 5);
            launch.arg(x).arg(pitch).arg(*step).arg(*state)
        } else {
            let runs = state.dim.div_ceil(32);
            let warps = u64::from(step.rows) * u64::from(state.heads) * u64::from(runs);
            let blocks = warps.div_ceil(u64::from(STORE_THREADS / 32)) as u32;
            Launch::new([blocks, 1, 1], STORE_THREADS).arg(x).arg(pitch).arg(*step).arg(*state).arg(runs)
        };
        device.launch(self.kernel, &launch)
    }
}

/// Copies rows between pages, and between pages and packed memory (`cu/store.cu`).
#[derive(Clone, Copy, Debug)]
pub struct CopyPages {
    copy: Kernel,
    pack: Kernel,
}

/// The planes of a group on the device.
#[derive(Clone, Copy, Debug)]
pub struct PlanesThere {
    /// Where they are: [`plane_bytes`].
    pub address: Address,
    /// How many.
    pub count: u32,
}

impl CopyPages {
    /// The kernels.
    ///
    /// # Errors
    /// If they do not compile.
    pub fn new(device: &dyn Device) -> Result<Self, DeviceError> {
        let unit = Unit::plain("store.cu");
        Ok(CopyPages { copy: device.kernel(&unit, "copy_pages")?, pack: device.kernel(&unit, "pack_page")? })
    }

    /// Copies the first rows of pages of a pool: `copies` is the address of `count` triples of `u32`s: page to read, page to
    /// write, rows.
    ///
    /// # Errors
    /// If the launch is refused.
    pub fn copy(
        &self,
        device: &dyn Device,
        (pool, page_bytes): (Address, u64),
        planes: PlanesThere,
        (copies, count): (Address, u32),
    ) -> Result<(), DeviceError> {
        let launch = Launch::new([planes.count, count, 1], 256);
        device.launch(self.copy, &launch.arg(pool).arg(page_bytes).arg(planes.address).arg(copies))
    }

    /// Copies the first `rows` rows of a page to packed memory of [`packed_bytes`], or back.
    ///
    /// # Errors
    /// If the launch is refused.
    pub fn pack(
        &self,
        device: &dyn Device,
        page: Address,
        planes: PlanesThere,
        (packed, rows): (Address, u32),
        unpack: bool,
    ) -> Result<(), DeviceError> {
        let launch = Launch::new([planes.count, 1, 1], 256);
        device.launch(self.pack, &launch.arg(page).arg(planes.address).arg(packed).arg(rows).arg(u32::from(unpack)))
    }
}
