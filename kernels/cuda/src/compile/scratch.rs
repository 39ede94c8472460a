//! Memory that tasks use for a moment, shared by all that come one after another.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::{Compiling, Fit, ir::ValueId};
use crate::{
    device::{Buffer, Device, DeviceError},
    linear::{Activations, Assignment},
};

/// What a piece of scratch memory is for: pieces of one use are never needed by two tasks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// What experts yield: of the gate, of the other matrix, of the last one.
    Expert(usize),
    /// Attention's results of pieces, of one source of keys: marks or sums.
    Pieces(usize),
    /// Rotated queries.
    Queries,
    /// Keys and values of the step that are not stored.
    OwnKeys,
    /// Scores of keys.
    Scores,
}

type Assignments = HashMap<(usize, usize), Arc<Mutex<Assignment>>>;

/// All scratch memory of a program.
#[derive(Default)]
pub(crate) struct Scratch {
    buffers: RefCell<HashMap<Use, Arc<Buffer>>>,
    /// By columns, and whether rows are rounded twice.
    activations: RefCell<HashMap<(usize, bool), Arc<Activations>>>,
    /// By pairs and experts.
    assignments: RefCell<Assignments>,
}

/// What lies in rounded activations: nothing else was rounded into them since.
pub(crate) type Rounded = HashMap<(usize, bool), ValueId>;

impl Scratch {
    /// A buffer of at least so many bytes.
    pub(crate) fn buffer(&self, device: &Arc<dyn Device>, what: Use, bytes: usize) -> Fit<Arc<Buffer>> {
        let mut buffers = self.buffers.borrow_mut();
        match buffers.get(&what) {
            Some(buffer) if buffer.bytes() >= bytes => Ok(Arc::clone(buffer)),
            _ => {
                let buffer = Arc::new(Buffer::new(device, bytes, "scratch memory").map_err(words)?);
                buffers.insert(what, Arc::clone(&buffer));
                Ok(buffer)
            }
        }
    }

    fn activations(&self, device: &Arc<dyn Device>, rows: usize, key: (usize, bool)) -> Fit<Arc<Activations>> {
        let mut all = self.activations.borrow_mut();
        match all.get(&key) {
            Some(activations) if activations.rows() >= rows => Ok(Arc::clone(activations)),
            _ => {
                let activations = Arc::new(Activations::new(device, rows, key.0, key.1).map_err(words)?);
                all.insert(key, Arc::clone(&activations));
                Ok(activations)
            }
        }
    }

    /// Room for the assignment of so many pairs to so many experts.
    pub(crate) fn assignment(
        &self,
        device: &Arc<dyn Device>,
        pairs: usize,
        experts: usize,
    ) -> Fit<Arc<Mutex<Assignment>>> {
        let mut all = self.assignments.borrow_mut();
        if let Some(assignment) = all.get(&(pairs, experts)) {
            return Ok(Arc::clone(assignment));
        }
        let assignment = Arc::new(Mutex::new(Assignment::new(device, pairs, experts).map_err(words)?));
        all.insert((pairs, experts), Arc::clone(&assignment));
        Ok(assignment)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn words(e: DeviceError) -> String {
    e.to_string()
}

impl Compiling<'_> {
    /// Room for rows of `cols` columns, rounded; and whether `value` lies there already. `None` stands for what is no value:
    /// it replaces what lies there.
    pub(super) fn rounded(
        &mut self,
        value: Option<ValueId>,
        rows: usize,
        cols: usize,
        twice: bool,
    ) -> Fit<(Arc<Activations>, bool)> {
        let before = self.around.scratch.activations.borrow().get(&(cols, twice)).map(Arc::as_ptr);
        let activations = self.around.scratch.activations(self.around.device, rows, (cols, twice))?;
        let same = before == Some(Arc::as_ptr(&activations));
        let there = same && value.is_some() && self.rounded.get(&(cols, twice)) == value.as_ref();
        match value {
            Some(value) => self.rounded.insert((cols, twice), value),
            None => self.rounded.remove(&(cols, twice)),
        };
        Ok((activations, there))
    }

    pub(super) fn scratch(&self, what: Use, bytes: usize) -> Fit<Arc<Buffer>> {
        self.around.scratch.buffer(self.around.device, what, bytes)
    }
}
