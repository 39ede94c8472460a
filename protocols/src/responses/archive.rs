//! The file of `--cache-dir` that kept responses outlive the server in: read at the start, written whole or not at all now
//! and then and at the end. One server at a time writes it, the one that holds its lock; others only read.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use super::store::{Image, Store};

const NAME: &str = "responses.json";
const UNFINISHED: &str = "responses.json.part";
const LOCK: &str = "responses.lock";
const FORMAT: &str = "bantam responses 1";
/// Longest file that is read: what is kept has 64 MiB, and JSON within JSON may take up more.
const LONGEST: u64 = 512 << 20;

/// What the file holds. Items are told once, however many responses went on from them.
#[derive(Serialize, Deserialize)]
struct Contents<V> {
    format: String,
    items: Vec<V>,
    responses: Vec<Entry<V>>,
}

/// A response, with its items by their places among all.
#[derive(Serialize, Deserialize)]
struct Entry<V> {
    object: V,
    history: Vec<usize>,
    input: Vec<usize>,
}

/// The file, and the right to write it.
#[derive(Debug)]
pub(crate) struct Archive {
    directory: PathBuf,
    /// Held by the one server that may write.
    lock: Option<File>,
}

impl Archive {
    /// Takes the directory, with a warning if it can only be read.
    pub(crate) fn open(directory: &Path) -> Self {
        let lock = lock(directory);
        if let Err(why) = &lock {
            tracing::warn!("--cache-dir {}: {why}; responses are read from it and not saved", directory.display());
        }
        Archive { directory: directory.to_owned(), lock: lock.ok() }
    }

    /// The responses of the file; none, with a warning, if it cannot be used.
    pub(crate) fn read(&self) -> Store {
        let path = self.directory.join(NAME);
        let images = read(&path).unwrap_or_else(|why| {
            tracing::warn!("{}: {why}; no responses are restored", path.display());
            Vec::new()
        });
        Store::restored(images)
    }

    /// Saves what changes from now on every so often, and at the end, until this says that it is there.
    pub(crate) fn keep(
        self,
        store: Arc<Store>,
        every: Duration,
        mut stopped: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send {
        let archive = Arc::new(self);
        let mut saved = store.changes();
        async move {
            let mut ends = archive.lock.is_none();
            while !ends {
                // If nobody is left who could say so, this is the end.
                ends = tokio::time::timeout(every, stopped.wait_for(|stopped| *stopped)).await.is_ok();
                let changes = store.changes();
                if changes != saved {
                    Arc::clone(&archive).save(store.images()).await;
                    saved = changes;
                }
            }
        }
    }

    async fn save(self: Arc<Self>, images: Vec<Image>) {
        let written = tokio::task::spawn_blocking(move || self.write(&images)).await;
        if let Err(why) = written.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
            tracing::warn!("--cache-dir: the responses could not be saved: {why}");
        }
    }

    /// Puts a file with these responses in the place of the one before.
    fn write(&self, images: &[Image]) -> io::Result<()> {
        let path = self.directory.join(UNFINISHED);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut writer = BufWriter::new(create_private(&path)?);
        serde_json::to_writer(&mut writer, &packed(images))?;
        writer.flush()?;
        writer.get_ref().sync_all()?;
        fs::rename(&path, self.directory.join(NAME))
    }
}

/// The file holds what was said: it is its owner's to read.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn lock(directory: &Path) -> Result<File, String> {
    let file = File::options().create(true).truncate(false).write(true).open(directory.join(LOCK));
    let file = file.map_err(|error| format!("cannot be written to: {error}"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err("another server saves its responses there".into()),
        Err(TryLockError::Error(error)) => Err(format!("cannot be locked: {error}")),
    }
}

/// Items, each told once.
#[derive(Default)]
struct Pool<'a> {
    items: Vec<&'a Value>,
    places: HashMap<*const Value, usize>,
}

impl<'a> Pool<'a> {
    fn places(&mut self, items: &'a [Arc<Value>]) -> Vec<usize> {
        items.iter().map(|item| self.place(item)).collect()
    }

    fn place(&mut self, item: &'a Arc<Value>) -> usize {
        *self.places.entry(Arc::as_ptr(item)).or_insert_with(|| {
            self.items.push(item);
            self.items.len() - 1
        })
    }
}

fn packed(images: &[Image]) -> Contents<&Value> {
    let mut pool = Pool::default();
    let mut responses = Vec::with_capacity(images.len());
    for Image { object, history, input } in images {
        responses.push(Entry { object: object.as_ref(), history: pool.places(history), input: pool.places(input) });
    }
    Contents { format: FORMAT.to_owned(), items: pool.items, responses }
}

fn read(path: &Path) -> Result<Vec<Image>, String> {
    let bytes = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Ok(found) if found.len() > LONGEST => return Err(format!("longer than {LONGEST} bytes")),
        _ => fs::read(path).map_err(|error| error.to_string())?,
    };
    let contents: Contents<Value> =
        serde_json::from_slice(&bytes).map_err(|error| format!("not such a file: {error}"))?;
    if contents.format != FORMAT {
        return Err("of another version".into());
    }
    let items: Vec<Arc<Value>> = contents.items.into_iter().map(Arc::new).collect();
    let image = |entry: Entry<Value>| {
        let found = |places: Vec<usize>| places.into_iter().map(|at| items.get(at).cloned()).collect::<Option<_>>();
        Some(Image { object: Arc::new(entry.object), history: found(entry.history)?, input: found(entry.input)? })
    };
    let images: Option<Vec<Image>> = contents.responses.into_iter().map(image).collect();
    images.ok_or_else(|| "refers to items that it does not have".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A store with two responses, the second of which goes on from the first.
    fn store() -> Arc<Store> {
        let store = Arc::default();
        for id in ["a", "b"] {
            let history = if id == "b" { Store::conversation(&store, "a").unwrap() } else { Vec::new() };
            let object = |output: Value| json!({"id": id, "status": "completed", "output": output});
            let input = vec![Arc::new(json!({"id": format!("in_{id}"), "text": "é"}))];
            let (place, _stopped) = Store::open(&store, &object(json!([])), history, input, true);
            place.close(object(json!([{"id": format!("out_{id}")}])));
        }
        let begun = json!({"id": "c", "status": "in_progress", "output": []});
        let (place, stopped) = Store::open(&store, &begun, Vec::new(), Vec::new(), true);
        drop((place, stopped));
        store
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let archive = Archive::open(directory.path());
        assert!(archive.read().images().is_empty());
        archive.write(&store().images()).unwrap();
        let (before, after) = (store(), archive.read());
        for id in ["a", "b"] {
            assert_eq!(after.object(id), before.object(id));
            assert_eq!((after.input(id), after.conversation(id)), (before.input(id), before.conversation(id)));
        }
        assert_eq!(after.images().len(), 2);
        let images = after.images();
        assert_eq!(packed(&images).items.len(), 3, "what responses share is told once");
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(directory.path().join(NAME)).unwrap());
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_left_aside() {
        let directory = tempfile::tempdir().unwrap();
        let archive = Archive::open(directory.path());
        let beyond =
            json!({"format": FORMAT, "items": [], "responses": [{"object": {"id": "a"}, "history": [0], "input": []}]});
        let other = json!({"format": "x", "items": [], "responses": []});
        for text in ["", "{", "[]", &beyond.to_string(), &other.to_string()] {
            fs::write(directory.path().join(NAME), text).unwrap();
            assert!(archive.read().images().is_empty(), "{text}");
        }
        let nameless = json!({"format": FORMAT, "items": [], "responses": [{"object": 5, "history": [], "input": []}]});
        fs::write(directory.path().join(NAME), nameless.to_string()).unwrap();
        assert!(archive.read().images().is_empty());
    }

    #[tokio::test]
    async fn one_server_writes_and_the_others_read() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (Archive::open(directory.path()), Archive::open(directory.path()));
        let (stop, stopped) = watch::channel(true);
        let store = store();
        let late = |archive: Archive| {
            let (store, stopped) = (Arc::clone(&store), stopped.clone());
            let changed = Arc::new(Store::restored(Vec::new()));
            async move {
                let keeping = archive.keep(Arc::clone(&changed), Duration::from_secs(60), stopped);
                changed.restore(store.images());
                keeping.await;
            }
        };
        late(second).await;
        assert!(first.read().images().is_empty());
        late(first).await;
        drop(stop);
        assert_eq!(Archive::open(directory.path()).read().images().len(), 2);
    }
}
