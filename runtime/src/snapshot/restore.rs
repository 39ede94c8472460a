//! Filling an empty cache from the file of an earlier server.

use std::{collections::HashMap, io::BufReader};

use bantam_backend::{Program, StepError};

use super::{CacheDirectory, SnapshotError, format::Reader};
use crate::cache::{GraftError, Held, StateCache, StateKept};

/// The graph whose state is restored.
const TRUNK: usize = 0;

/// Bytes that are read from the system at once.
const BUFFER: usize = 1 << 20;

/// Fills an empty cache and the program's pages and slots; what was used last, if not all fits. Nothing is done if there
/// is no file.
///
/// # Errors
/// If the file cannot be read, is damaged or foreign. The cache is of no use then: some of its pages were not written.
pub(crate) fn restore(
    directory: &CacheDirectory,
    cache: &mut StateCache,
    program: &mut dyn Program,
) -> Result<(), SnapshotError> {
    let Some(file) = directory.read()? else { return Ok(()) };
    let (reader, image) = Reader::open(directory.key(), BufReader::with_capacity(BUFFER, file))?;
    let mut targets: HashMap<usize, Held> = cache.graft(image)?.into_iter().collect();
    reader.blobs(|source, bytes| match targets.remove(&source) {
        Some(held) => load(program, &held, bytes).map_err(|e| SnapshotError::Failed(e.to_string())),
        None => Ok(()),
    })
}

fn load(program: &mut dyn Program, held: &Held, bytes: &[u8]) -> Result<(), StepError> {
    match held.what {
        StateKept::Page { group, tokens } => program.load_page(group, held.id(), tokens, bytes),
        StateKept::Slot => program.load_slot(TRUNK, held.id(), bytes),
    }
}

impl From<GraftError> for SnapshotError {
    fn from(error: GraftError) -> Self {
        match error {
            GraftError::Image(why) => SnapshotError::Damaged(why.0),
            GraftError::NoRoom(why) => SnapshotError::Failed(why.to_string()),
        }
    }
}
