//! The archive: saves the cache to the directory of `--cache-dir`, so that a later server finds it.
//!
//! Messages: [`ArchiveMessage::Due`] comes now and then, [`ArchiveMessage::Save`] when the engine shuts down. Both save
//! if something was added since the last time. The kv actor tells what there is, and keeps none of it for the purpose;
//! the executor's thread copies a little between two steps; a thread of its own writes. What is lost before it is copied is
//! left out.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::mpsc;

use super::{
    kv::KvMessage,
    scheduler::{SchedulerMessage, Transfer},
    transfer::Copies,
};
use crate::{
    cache::{StateKept, TreeImage, Watched, WatchedTree},
    snapshot::CacheDirectory,
};

/// What the archive is asked.
#[derive(Debug)]
pub(crate) enum ArchiveMessage {
    /// Save if it is worth it.
    Due,
    /// Save, and say when it is done.
    Save(RpcReplyPort<()>),
}

/// What the archive is started with.
pub(crate) struct ArchiveArguments {
    pub(crate) directory: Arc<CacheDirectory>,
    pub(crate) kv: ActorRef<KvMessage>,
    pub(crate) scheduler: ActorRef<SchedulerMessage>,
    /// Time between two saves while requests are served.
    pub(crate) every: Duration,
    /// Bytes of a page of each group.
    pub(crate) page_bytes: Vec<usize>,
}

/// What the archive owns.
pub(crate) struct ArchiveState {
    arguments: ArchiveArguments,
    /// What had been added to the tree when it was last saved.
    saved: u64,
    /// Whether the last save failed, which was told.
    failing: bool,
}

/// Bytes that are asked to be copied between two steps.
const BATCH: usize = 4 << 20;

/// Pages that may wait to be written.
const WAITING: usize = 8;

/// Writing takes at most one part of so many of the time. Waiting for steps to end is not counted.
const REST: u32 = 20;

/// What the writing thread is sent.
enum Part {
    /// Bytes of the next page or slot.
    Blob(Vec<u8>),
    /// The tree over them, which is the end.
    End(TreeImage),
}

/// The actor.
pub(crate) struct Archive;

impl Actor for Archive {
    type Msg = ArchiveMessage;
    type State = ArchiveState;
    type Arguments = ArchiveArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        if arguments.directory.can_write() {
            myself.send_after(arguments.every, || ArchiveMessage::Due);
        }
        Ok(ArchiveState { arguments, saved: 0, failing: false })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let wrote = state.save().await;
        match message {
            ArchiveMessage::Due => {
                let next = state.arguments.every.max(wrote.saturating_mul(REST));
                myself.send_after(next, || ArchiveMessage::Due);
            }
            // Whoever asked may have gone.
            ArchiveMessage::Save(reply) => drop(reply.send(())),
        }
        Ok(())
    }
}

impl ArchiveState {
    /// Saves what there is, if something was added. Returns how long writing took.
    async fn save(&mut self) -> Duration {
        if !self.arguments.directory.can_write() {
            return Duration::ZERO;
        }
        // A client may know its answer before the scheduler has handed over the last of it.
        drop(self.copies(Vec::new()).await);
        let since = self.saved;
        // An actor that has failed takes the others along.
        let found = ractor::call!(self.arguments.kv, |reply| KvMessage::Watch { since, reply });
        let Some(tree) = found.ok().flatten().filter(|tree| !tree.image.nodes.is_empty()) else {
            return Duration::ZERO;
        };
        let additions = tree.additions;
        match self.write(tree).await {
            Ok(took) => {
                (self.saved, self.failing) = (additions, false);
                took
            }
            Err(why) => {
                if !self.failing {
                    let file = self.arguments.directory.file();
                    tracing::warn!("--cache-dir: {}: {why}; the cache is not saved", file.display());
                }
                self.failing = true;
                Duration::ZERO
            }
        }
    }

    async fn write(&self, tree: WatchedTree) -> Result<Duration, String> {
        let (sender, parts) = mpsc::channel(WAITING);
        let directory = Arc::clone(&self.arguments.directory);
        let writer = tokio::task::spawn_blocking(move || write_all(&directory, parts));
        let copied = self.copy(tree, sender).await;
        // A writer that fails stops the copying too, and knows why.
        let took = writer.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        copied.map(|()| took)
    }

    /// Has all state copied and sends it to the writer.
    async fn copy(&self, mut tree: WatchedTree, parts: mpsc::Sender<Part>) -> Result<(), String> {
        const NO_WRITER: &str = "the writer has stopped";
        // Where the bytes of each source are in the file, unless they are lost.
        let mut blobs: Vec<Option<usize>> = Vec::with_capacity(tree.watched.len());
        let mut written = 0;
        while blobs.len() < tree.watched.len() {
            let wanted = self.batch(&tree.watched, blobs.len());
            for bytes in self.copies(wanted).await? {
                blobs.push(bytes.is_some().then_some(written));
                if let Some(bytes) = bytes {
                    written += 1;
                    parts.send(Part::Blob(bytes)).await.map_err(|_| NO_WRITER)?;
                }
            }
        }
        let mut image = std::mem::take(&mut tree.image);
        let all = vec![true; image.nodes.len()];
        image.prune(tree.shape(), &all, |source| blobs[source].is_none());
        if image.nodes.is_empty() {
            return Ok(());
        }
        let sources = image.pages.iter_mut().map(|page| &mut page.source).chain(&mut image.slots);
        sources.for_each(|source| *source = blobs[*source].unwrap_or_default());
        parts.send(Part::End(image)).await.map_err(|_| NO_WRITER.into())
    }

    async fn copies(&self, wanted: Vec<Watched>) -> Result<Copies, String> {
        let copies = ractor::call!(self.arguments.scheduler, |reply| {
            SchedulerMessage::Transfer(Transfer::Copy { wanted, reply })
        });
        copies.map_err(|e| e.to_string())?
    }

    /// What is to be copied next.
    fn batch(&self, watched: &[Watched], from: usize) -> Vec<Watched> {
        let mut bytes = 0;
        let fits = |watched: &&Watched| {
            let fits = bytes < BATCH;
            bytes += match watched.what {
                StateKept::Page { group, .. } => self.arguments.page_bytes.get(group).copied().unwrap_or_default(),
                StateKept::Slot => BATCH,
            };
            fits
        };
        watched.iter().skip(from).take_while(fits).cloned().collect()
    }
}

/// Writes what comes. Without an end, nothing is left of it. Returns how long it took beside waiting for it.
fn write_all(directory: &CacheDirectory, mut parts: mpsc::Receiver<Part>) -> std::io::Result<Duration> {
    let mut file = directory.write()?;
    let mut took = Duration::ZERO;
    while let Some(part) = parts.blocking_recv() {
        let start = Instant::now();
        match part {
            Part::Blob(bytes) => file.blob(&bytes)?,
            Part::End(image) => {
                file.finish(&image)?;
                return Ok(took + start.elapsed());
            }
        }
        took += start.elapsed();
    }
    Ok(took)
}
