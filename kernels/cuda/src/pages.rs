//! The memory of sequences' state on the device: a pool of pages for each state group, a pool of slots for each graph with
//! recurrent state.
//!
//! A page holds [`PAGE_ROWS`] rows of every state of its group, state after state. Of a state lie the codes first,
//! `[row][head][code]`, then the scales if its type has any, `[row][head][scale]`, both at a multiple of 16 bytes. So the
//! first rows of a page are two runs of bytes of each state.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bantam_backend::{
    CompileError, CompileOptions, KV_BLOCK, KvType, PageBook, PageCopy, RowForm, StateGroup, StateRoles, StepError,
    aliases, state_groups,
};
use bantam_graph::{Checked, Graph, State};

use crate::device::{Address, Device, DeviceError, Growing};

/// Rows of a page.
pub(crate) const PAGE_ROWS: usize = 32;

/// What the memory of pages is for.
const KV: &str = "the KV cache";

/// Alignment of what lies in a page: that of the widest load.
const ALIGN: usize = 16;

/// Where a state lies in the pages of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateSlot {
    /// State group.
    pub(crate) group: usize,
    /// First byte of the codes in a page.
    pub(crate) codes: usize,
    /// First byte of the scales in a page.
    pub(crate) scales: usize,
    /// Heads of a row.
    pub(crate) heads: usize,
    /// Entries of a head.
    pub(crate) dim: usize,
    /// Number format.
    pub(crate) ty: KvType,
    /// Tokens that a row stands for.
    pub(crate) stride: usize,
}

/// Bytes of a head's codes, and of its scales.
fn head_bytes(ty: KvType, dim: usize) -> (usize, usize) {
    match ty {
        KvType::F32 | KvType::F16 | KvType::Bf16 => (ty.head_bytes(dim), 0),
        KvType::Q8_0 => (dim, dim.div_ceil(KV_BLOCK) * 2),
        KvType::Turbo4 | KvType::Turbo3 => (ty.head_bytes(dim) - 2, 2),
    }
}

impl StateSlot {
    /// Where the first `rows` rows lie in a page: their codes and their scales.
    fn prefix(&self, rows: usize) -> [Range<usize>; 2] {
        let (codes, scales) = head_bytes(self.ty, self.dim);
        let part = |start: usize, bytes: usize| start..start + rows * self.heads * bytes;
        [part(self.codes, codes), part(self.scales, scales)]
    }
}

/// Where a graph's states lie, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatePlaces {
    /// Those of rows, aliases included.
    pub(crate) rows: HashMap<String, StateSlot>,
    /// State groups that the graph declares.
    pub(crate) writes: Range<usize>,
    /// State groups of other graphs that it sees.
    pub(crate) reads: Vec<usize>,
}

/// The pools of all graphs' state groups, empty, and where each graph's states lie.
pub(crate) fn layout(
    graphs: &[Checked<'_>],
    options: &CompileOptions,
    device: &Arc<dyn Device>,
) -> Result<(Vec<Pool>, Vec<StatePlaces>), CompileError> {
    let roles = StateRoles::of(graphs);
    let (mut pools, mut all) = (Vec::new(), Vec::new());
    for (g, checked) in graphs.iter().enumerate() {
        let first = pools.len();
        let mut places = StatePlaces::default();
        pools.extend(graph_pools(g, checked.graph, first, &roles, options, device, &mut places)?);
        places.writes = first..pools.len();
        all.push(places);
    }
    for (g, checked) in graphs.iter().enumerate() {
        for (state, owner, name) in aliases(checked.graph, graphs) {
            let Some(slot) = all.get(owner).and_then(|places| places.rows.get(name)).copied() else { continue };
            all[g].rows.insert(state.name.clone(), slot);
            if !all[g].reads.contains(&slot.group) {
                all[g].reads.push(slot.group);
            }
        }
    }
    Ok((pools, all))
}

fn graph_pools(
    index: usize,
    graph: &Graph,
    first: usize,
    roles: &StateRoles<'_>,
    options: &CompileOptions,
    device: &Arc<dyn Device>,
    places: &mut StatePlaces,
) -> Result<Vec<Pool>, CompileError> {
    let form = |(i, state): (usize, &State)| RowForm::new(i, state, (index, state.name.as_str()), roles);
    let forms = graph.states.iter().enumerate().map(form);
    let types: Vec<KvType> = forms.map(|form| form.ty(options.k_type, options.v_type)).collect();
    let planes = |i: usize| {
        let state = &graph.states[i];
        let (codes, scales) = head_bytes(types[i], state.dim);
        [codes, scales].map(|bytes| {
            let all = bytes.saturating_mul(state.heads).saturating_mul(PAGE_ROWS);
            all.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX)
        })
    };
    for (i, state) in graph.states.iter().enumerate() {
        if planes(i).iter().any(|bytes| *bytes > 1 << 31) {
            let why = format!("a page of {} × {} entries is too large", state.heads, state.dim);
            return Err(CompileError::State { state: state.name.clone(), why });
        }
    }
    let mut groups = state_groups(graph, PAGE_ROWS, |_| 0);
    let mut pools = Vec::new();
    for (g, mut group) in groups.drain(..).enumerate() {
        let (mut offset, mut slots) = (0, Vec::new());
        for &i in &group.states {
            let state = &graph.states[i];
            let [codes, scales] = planes(i);
            let slot = StateSlot {
                group: first + g,
                codes: offset,
                scales: offset + codes,
                heads: state.heads,
                dim: state.dim,
                ty: types[i],
                stride: group.stride(),
            };
            offset += codes + scales;
            if offset > 1 << 31 {
                let why = format!("a page with it and the states before it is too large, {offset} bytes");
                return Err(CompileError::State { state: state.name.clone(), why });
            }
            places.rows.insert(state.name.clone(), slot);
            slots.push(slot);
        }
        group.page_bytes = offset;
        pools.push(Pool { book: PageBook::new(group), slots, memory: None, device: Arc::clone(device) });
    }
    Ok(pools)
}

/// The pages of one state group.
#[derive(Debug)]
pub(crate) struct Pool {
    book: PageBook,
    slots: Vec<StateSlot>,
    /// Addresses of all pages; those up to the last that was ever used have memory.
    memory: Option<Growing>,
    device: Arc<dyn Device>,
}

impl AsRef<PageBook> for Pool {
    fn as_ref(&self) -> &PageBook {
        &self.book
    }
}

impl AsMut<PageBook> for Pool {
    fn as_mut(&mut self) -> &mut PageBook {
        &mut self.book
    }
}

impl Pool {
    pub(crate) fn group(&self) -> &StateGroup {
        self.book.group()
    }

    /// Where page 0 lies.
    pub(crate) fn address(&self) -> Address {
        self.memory.as_ref().map_or(0, Growing::address)
    }

    /// Makes pages `0..pages` exist: they get their memory when they are used. If there were some before, what they hold moves.
    pub(crate) fn reserve(&mut self, index: usize, pages: usize) -> Result<(), StepError> {
        if pages <= self.book.pages() {
            return Ok(());
        }
        let refused = self.refused(index, pages);
        let bytes = pages.checked_mul(self.group().page_bytes).ok_or_else(|| refused.clone())?;
        let mut memory = Growing::new(&self.device, bytes, KV).map_err(|_| refused.clone())?;
        let used = self.used_bytes();
        if let Some(old) = self.memory.as_ref().filter(|_| used > 0) {
            memory.grow(used).map_err(|e| self.short(index, e))?;
            self.device.copy(old.address(), memory.address(), used).map_err(failed)?;
            self.device.synchronize().map_err(failed)?;
        }
        self.memory = Some(memory);
        self.book.grow(pages);
        Ok(())
    }

    /// Sees to it that pages have memory that a step which was checked uses.
    pub(crate) fn back(&mut self, index: usize) -> Result<(), StepError> {
        let used = self.used_bytes();
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let Err(error) = memory.grow(used) else { return Ok(()) };
        let short = self.short(index, error);
        let backed = self.memory.as_ref().map_or(0, Growing::backed) / self.group().page_bytes.max(1);
        self.book.untouch(backed);
        Err(short)
    }

    fn used_bytes(&self) -> usize {
        self.book.touched().saturating_mul(self.group().page_bytes)
    }

    fn refused(&self, index: usize, pages: usize) -> StepError {
        StepError::Memory { group: index, pages, page_bytes: self.group().page_bytes }
    }

    /// What a step ends with where pages get no memory.
    #[allow(clippy::needless_pass_by_value, reason = "handed to map_err")]
    fn short(&self, index: usize, error: DeviceError) -> StepError {
        match error {
            DeviceError::Memory { .. } => self.refused(index, self.book.touched()),
            other => failed(other),
        }
    }

    fn page(&self, page: u32) -> Address {
        self.address() + u64::from(page) * self.group().page_bytes as u64
    }

    /// The bytes that hold the first `tokens` tokens of a page.
    fn prefix(&self, tokens: usize) -> impl Iterator<Item = Range<usize>> {
        let rows = tokens / self.group().stride();
        self.slots.iter().flat_map(move |slot| slot.prefix(rows)).filter(|range| !range.is_empty())
    }

    /// Copies a page prefix. Both pages must exist.
    pub(crate) fn copy(&self, copy: &PageCopy) -> Result<(), DeviceError> {
        if copy.from == copy.to {
            return Ok(());
        }
        let (from, to) = (self.page(copy.from), self.page(copy.to));
        self.prefix(copy.tokens).try_for_each(|range| {
            let start = range.start as u64;
            self.device.copy(from + start, to + start, range.len())
        })
    }

    /// Appends the first `tokens` tokens of a page.
    pub(crate) fn save(&self, page: u32, tokens: usize, out: &mut Vec<u8>) -> Result<(), StepError> {
        self.holds(page, tokens)?;
        if page as usize >= self.book.touched() {
            return Err(StepError::Invalid(format!("nothing was ever written to page {page}")));
        }
        for range in self.prefix(tokens) {
            let at = out.len();
            out.resize(at + range.len(), 0);
            self.device.download(self.page(page) + range.start as u64, &mut out[at..]).map_err(failed)?;
        }
        Ok(())
    }

    /// Writes what [`Pool::save`] gave.
    pub(crate) fn load(&mut self, index: usize, page: u32, tokens: usize, bytes: &[u8]) -> Result<(), StepError> {
        self.holds(page, tokens)?;
        let expected: usize = self.prefix(tokens).map(|range| range.len()).sum();
        if bytes.len() != expected {
            return Err(StepError::Invalid(format!(
                "{tokens} tokens of a page take {expected} bytes, found {}: it was saved by another program",
                bytes.len()
            )));
        }
        self.book.touch(&[page]);
        self.back(index)?;
        let mut rest = bytes;
        for range in self.prefix(tokens) {
            let (part, behind) = rest.split_at(range.len());
            rest = behind;
            self.device.upload(self.page(page) + range.start as u64, part).map_err(failed)?;
        }
        Ok(())
    }

    fn holds(&self, page: u32, tokens: usize) -> Result<(), StepError> {
        if self.book.holds(page, tokens) {
            return Ok(());
        }
        let (pages, of) = (self.book.pages(), self.group().page_tokens);
        Err(StepError::Invalid(format!("{tokens} tokens of page {page}, of {pages} pages of {of} tokens")))
    }
}

/// What a step ends with when the device fails.
#[allow(clippy::needless_pass_by_value, reason = "handed to map_err")]
pub(crate) fn failed(error: DeviceError) -> StepError {
    StepError::Failed(error.to_string())
}
