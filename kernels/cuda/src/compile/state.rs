//! Ops that read and write sequences' state.

use std::sync::Arc;

use bantam_graph::{Attention, Mask, Rows};

use super::{Compiling, Fit, Task, ir::ValueId, narrow, scratch::Use};
use crate::{
    attention::{Attend, Heads, Keys, Merge, Partials, Queries, Rotate, Sight, Source, pieces_of},
    device::{Buffer, DeviceError},
    exec::Running,
    pages::{PAGE_ROWS, StateSlot},
    state::{self, PageLayout, Shape, State, Step},
};

/// Bytes that the results of pieces may take where the pieces of a row are shared out to several blocks of threads.
const PIECE_BYTES: usize = 32 << 20;

/// Blocks of threads that keep a large card busy: below this, the pieces of a row are shared out.
const BUSY: usize = 512;

impl Running<'_> {
    /// The rows of a space as kernels of states see them.
    pub(crate) fn step_of(&self, rows: Rows) -> Step {
        let [row_sequence, position, _] = self.row_map(rows);
        let row_index = match rows {
            Rows::Strided { .. } => self.word(self.laid.strided_rows(rows)),
            Rows::Tokens | Rows::Logits => position,
        };
        Step {
            rows: narrow(self.laid.rows(rows)),
            sequences: narrow(self.laid.sequences),
            row_sequence,
            row_index,
            start: self.word(self.laid.starts),
            first_row: self.word(self.laid.first_rows),
        }
    }

    /// A state as kernels see it.
    pub(crate) fn state(&self, slot: &StateSlot) -> State {
        let pool = &self.pools[slot.group];
        let (tables, table_pages) = self.laid.tables.get(slot.group).copied().unwrap_or_default();
        State {
            pool: pool.address(),
            page_bytes: pool.group().page_bytes as u64,
            tables: self.word(tables),
            table_pages: narrow(table_pages),
            page_rows: narrow(PAGE_ROWS),
            codes: narrow(slot.codes),
            scales: narrow(slot.scales),
            stride: narrow(slot.stride),
            heads: narrow(slot.heads),
            dim: narrow(slot.dim),
            ty: state::type_number(slot.ty),
        }
    }

    /// Rows of a state that a table of the step has room for.
    pub(super) fn keys(&self, slot: &StateSlot) -> usize {
        self.laid.tables.get(slot.group).map_or(0, |(_, pages)| pages * PAGE_ROWS)
    }
}

impl Compiling<'_> {
    pub(super) fn slot(&self, state: &str) -> Fit<StateSlot> {
        self.around.places.rows.get(state).copied().ok_or_else(|| format!("state `{state}` has no place"))
    }

    pub(super) fn is_alias(&self, state: &str) -> bool {
        self.checked.state(state).is_some_and(|state| state.alias.is_some())
    }

    pub(super) fn store(&self, x: &str, state: &str) -> Fit<Task> {
        let (x, slot) = (self.id(x)?, self.slot(state)?);
        let store = state::Store::new(self.around.device.as_ref(), slot.ty).map_err(words)?;
        let (rows, width) = (self.ir.values[x].rows, narrow(self.width(x)));
        Ok(Box::new(move |run| {
            let step = run.step_of(rows);
            if step.rows == 0 {
                return Ok(());
            }
            store.run(run.device, run.at(x), width, &step, &run.state(&slot))
        }))
    }

    pub(super) fn attention(&self, o: &Attention, out: ValueId) -> Fit<Task> {
        let made = self.attending(o, out)?;
        Ok(Box::new(move |run| made.run(run, out)))
    }

    fn attending(&self, o: &Attention, out: ValueId) -> Fit<Attending> {
        let k = self.slot(&o.k_state)?;
        let v = o.v_state.as_deref().map(|state| self.slot(state)).transpose()?;
        let value_dim = v.map_or(o.value_dim.unwrap_or(k.dim), |v| v.dim);
        let heads = Heads {
            group: narrow(o.heads / k.heads),
            kv_heads: narrow(k.heads),
            dim: narrow(k.dim),
            value_dim: narrow(value_dim),
            k_type: k.ty,
            v_type: v.map_or(k.ty, |v| v.ty),
            values_in_keys: v.is_none(),
        };
        let sight = match (o.mask, self.is_alias(&o.k_state)) {
            (Mask::Block, _) => Sight::Past,
            (Mask::Causal, true) => Sight::Before,
            (Mask::Causal, false) => Sight::Stored,
        };
        let window = narrow(o.window.unwrap_or(0));
        let chosen = o.select.as_ref().map(|s| Ok::<_, String>((self.id(&s.ids)?, s.block))).transpose()?;
        let compressed =
            o.compressed.as_ref().map(|keys| Ok::<_, String>((keys, self.slot(&keys.state)?))).transpose()?;
        let of_rows = |slot: &StateSlot| Heads {
            dim: narrow(slot.dim),
            k_type: slot.ty,
            v_type: slot.ty,
            values_in_keys: true,
            ..heads
        };
        // All sources of an op are computed alike.
        // The kernel for tensor cores rounds queries and weights to half floats. What that does to answers is to be measured
        // first, on real models.
        let tensor_cores = false;
        let mut sources =
            vec![self.source(0, (heads, tensor_cores), From::State { k, v }, sight, window, chosen, out)?];
        if o.mask == Mask::Block {
            let own = self.own_keys(o, k, v)?;
            sources.push(self.source(1, (heads, tensor_cores), own, Sight::Step, 0, None, out)?);
        }
        if let Some((compressed, keys)) = compressed {
            let sight = if self.is_alias(&compressed.state) { Sight::RowsBefore } else { Sight::Rows };
            let chosen = compressed.select.as_deref().map(|name| Ok::<_, String>((self.id(name)?, 0))).transpose()?;
            let heads = (of_rows(&keys), tensor_cores);
            sources.push(self.source(1, heads, From::State { k: keys, v: None }, sight, 0, chosen, out)?);
        }
        if sources.len() > 2 {
            return Err("attention over the step's own keys and compressed ones at once".into());
        }
        let device = self.around.device.as_ref();
        let max = self.around.max.of(self.ir.values[out].rows);
        let rotated = sources.iter().any(|source| source.heads.k_type.code_bits().is_some());
        let rotation = if rotated {
            let width = sources.iter().map(|s| s.heads.width() as usize).max().unwrap_or(0);
            let buffer = self.scratch(Use::Queries, max * o.heads * width * 4)?;
            Some((Rotate::new(device).map_err(words)?, buffer))
        } else {
            None
        };
        Ok(Attending {
            q: self.id(&o.q)?,
            query_heads: o.heads,
            dim: k.dim,
            value_dim,
            scale: o.scale,
            sinks: self.optional_vector(&o.sinks)?.map_or(0, |sinks| sinks.0),
            sources,
            rotation,
            merge: Merge::new(device).map_err(words)?,
            rows: self.ir.values[out].rows,
        })
    }

    /// The step's own keys and values, which are kept for the step in the states' formats: keys are read as stored.
    fn own_keys(&self, o: &Attention, k: StateSlot, v: Option<StateSlot>) -> Fit<From> {
        let keys = self.optional_id(&o.k)?.ok_or("a block sees keys of the step, and none are given")?;
        let values = v.map(|slot| Ok::<_, String>((self.optional_id(&o.v)?.ok_or("values are missing")?, slot)));
        let mut parts = vec![(keys, k)];
        parts.extend(values.transpose()?);
        let rows = self.around.max.tokens;
        let shapes: Vec<Shape> =
            parts.iter().map(|(_, slot)| Shape { ty: slot.ty, heads: slot.heads, dim: slot.dim }).collect();
        let layout = PageLayout::new(&shapes, rows).ok_or("the step's own keys take too much memory")?;
        let page = self.scratch(Use::OwnKeys, layout.page_bytes)?;
        let mut own = Vec::new();
        for ((value, slot), [codes, scales]) in parts.into_iter().zip(layout.places) {
            let state = State {
                pool: page.address(),
                page_rows: narrow(rows),
                codes,
                scales,
                stride: 1,
                heads: narrow(slot.heads),
                dim: narrow(slot.dim),
                ty: state::type_number(slot.ty),
                ..State::default()
            };
            let store = state::Store::new(self.around.device.as_ref(), slot.ty).map_err(words)?;
            own.push(Own { value, width: narrow(self.width(value)), store, state });
        }
        Ok(From::Own { parts: own, _page: page })
    }

    #[allow(clippy::too_many_arguments, reason = "what a source of keys is")]
    fn source(
        &self,
        number: usize,
        (heads, tensor_cores): (Heads, bool),
        from: From,
        sight: Sight,
        window: u32,
        chosen: Option<(ValueId, usize)>,
        out: ValueId,
    ) -> Fit<KeySource> {
        let attend = Attend::new(self.around.device.as_ref(), heads, tensor_cores).map_err(words)?;
        let rows = self.ir.values[out].rows;
        let (max, tile) = (self.around.max.of(rows), attend.tile_rows(chosen.is_some()));
        if !self.tiles.borrow().contains(&(rows, tile)) {
            self.tiles.borrow_mut().push((rows, tile));
        }
        let query_heads = (heads.group * heads.kv_heads) as usize;
        let [marks, sums] = Partials::bytes(max, query_heads, 1, heads.value_width() as usize);
        let shared_out = PIECE_BYTES.max(sums);
        // Marks are to sums as two entries to the width of a value.
        let marks = marks.max(shared_out / heads.value_width().max(1) as usize * 2 + 8);
        Ok(KeySource {
            attend,
            heads,
            from,
            sight,
            window,
            chosen: chosen.map(|(ids, block)| (ids, narrow(self.width(ids)), narrow(block))),
            marks: self.scratch(Use::Pieces(2 * number), marks)?,
            sums: self.scratch(Use::Pieces(2 * number + 1), shared_out)?,
        })
    }
}

#[allow(clippy::needless_pass_by_value, reason = "handed to map_err")]
pub(super) fn words(e: DeviceError) -> String {
    e.to_string()
}

/// Where keys and values come from.
enum From {
    /// A state, or two.
    State { k: StateSlot, v: Option<StateSlot> },
    /// The step: keys, and values if those are not in the keys, in a page for this step alone.
    Own { parts: Vec<Own>, _page: Arc<Buffer> },
}

/// Keys or values of the step, and where they are kept.
struct Own {
    value: ValueId,
    width: u32,
    store: state::Store,
    state: State,
}

/// A source of keys, ready to be run.
struct KeySource {
    attend: Attend,
    heads: Heads,
    from: From,
    sight: Sight,
    window: u32,
    /// Integers that choose keys: their width, and the tokens of a block.
    chosen: Option<(ValueId, u32, u32)>,
    marks: Arc<Buffer>,
    sums: Arc<Buffer>,
}

/// An attention, ready to be run.
struct Attending {
    q: ValueId,
    query_heads: usize,
    dim: usize,
    value_dim: usize,
    scale: f32,
    sinks: u64,
    sources: Vec<KeySource>,
    rotation: Option<(Rotate, Arc<Buffer>)>,
    merge: Merge,
    rows: Rows,
}

impl Attending {
    fn run(&self, run: &Running<'_>, out: ValueId) -> Result<(), DeviceError> {
        let step = run.step_of(self.rows);
        if step.rows == 0 {
            return Ok(());
        }
        let mut done: Vec<(Source, Keys)> = Vec::with_capacity(2);
        for source in &self.sources {
            done.push(self.run_source(run, source, &step)?);
        }
        let (first, first_keys) = done[0];
        let (second, second_keys) = done.get(1).copied().unwrap_or_default();
        self.merge.run(
            run.device,
            &step,
            [(&first, &first_keys), (&second, &second_keys)],
            (self.sinks, run.at(out)),
            [narrow(self.query_heads), narrow(self.value_dim)],
        )
    }

    fn run_source(&self, run: &Running<'_>, source: &KeySource, step: &Step) -> Result<(Source, Keys), DeviceError> {
        if let From::Own { parts, .. } = &source.from {
            let tokens = run.step_of(Rows::Tokens);
            for own in parts {
                own.store.run(run.device, run.at(own.value), own.width, &tokens, &own.state)?;
            }
        }
        let keys = source.keys(run);
        let rows = step.rows as usize;
        let mut q = run.at(self.q);
        if let Some((rotate, buffer)) = self.rotation.as_ref().filter(|_| source.heads.k_type.code_bits().is_some()) {
            let heads = narrow(rows * self.query_heads);
            rotate.run(run.device, [q, buffer.address()], heads, [narrow(self.dim), source.heads.width()])?;
            q = buffer.address();
        }
        let (tiles_at, tiles) = self.tiles(run, source);
        let queries = Queries {
            q,
            tiles: tiles_at,
            heads: narrow(self.query_heads),
            group: source.heads.group,
            width: source.heads.width(),
            scale: self.scale,
        };
        let partials = source.partials(run, rows, tiles as usize, self.query_heads);
        source.attend.run(run.device, (&queries, tiles), step, &keys, &partials)?;
        let is_rotated = u32::from(source.heads.v_type.code_bits().is_some());
        Ok((Source { partials, is_rotated }, keys))
    }

    /// The tiles of a source's queries: where they lie, and how many. Rows that see chosen keys, and those of a step in which
    /// no sequence has two, are tiles of their own.
    fn tiles(&self, run: &Running<'_>, source: &KeySource) -> (u64, u32) {
        let rows = run.laid.rows(self.rows);
        let most = source.attend.tile_rows(source.chosen.is_some());
        if most == 1 || rows <= run.laid.sequences {
            return (0, narrow(rows));
        }
        let (at, count) = run.laid.tiles(self.rows, most);
        (run.word(at), count)
    }
}

impl KeySource {
    fn keys(&self, run: &Running<'_>) -> Keys {
        let (ids, ids_width, block) = self.chosen.map_or((0, 0, 0), |(ids, width, block)| (run.at(ids), width, block));
        let (k, v) = match &self.from {
            From::State { k, v } => (run.state(k), run.state(&v.unwrap_or(*k))),
            From::Own { parts, .. } => {
                let state = |i: usize| parts.get(i).or(parts.first()).map_or_else(State::default, |own| own.state);
                (state(0), state(1))
            }
        };
        Keys { k, v, ids, ids_width, block, window: self.window, sight: self.sight as u32 }
    }

    /// Where results go: those of pieces side by side, if too few blocks of threads had something to do otherwise and there is
    /// room for them.
    fn partials(&self, run: &Running<'_>, rows: usize, tiles: usize, heads: usize) -> Partials {
        let width = self.heads.value_width() as usize;
        let keys = match (self.chosen, &self.from) {
            (Some((_, count, 0)), _) => count as usize,
            (Some((_, count, block)), _) => (count as usize + 1) * block as usize,
            (None, From::State { k, .. }) => run.keys(k),
            (None, From::Own { .. }) => run.laid.rows(Rows::Tokens),
        };
        let pieces = pieces_of(narrow(keys), self.window) as usize;
        let [marks, sums] = Partials::bytes(rows, heads, pieces, width);
        let fits = marks <= self.marks.bytes() && sums <= self.sums.bytes();
        let split = pieces > 1 && fits && tiles * (self.attend.blocks_of_tile() as usize) < BUSY;
        Partials {
            marks: self.marks.address(),
            sums: self.sums.address(),
            pieces: if split { narrow(pieces) } else { 1 },
            width: narrow(width),
            split: u32::from(split),
        }
    }
}
