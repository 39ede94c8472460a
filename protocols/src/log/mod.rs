//! The server's log: a header line, then one aligned row per request.
//!
//! Lines go through a bounded queue to a thread of their own, so that a terminal or pipe that nobody reads never delays
//! a request; lines that find the queue full are dropped.

mod pending;
mod requests;
mod row;

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;

pub(crate) use pending::PendingRow;
pub(crate) use requests::{Arrival, LoggedElsewhere, log_requests};
use row::Row;

/// Lines that may wait to be written.
const QUEUE: usize = 1024;
/// Longest wait for the last lines when the server ends.
const FLUSH: Duration = Duration::from_secs(1);

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Failures only.
    Quiet,
    /// Generations and failures.
    #[default]
    Normal,
    /// Every request.
    Verbose,
}

/// What is logged, where to, and how it looks.
pub struct LogConfig {
    /// How much.
    pub level: LogLevel,
    /// Whether failures are coloured.
    pub colour: bool,
    /// Where to.
    pub sink: Box<dyn Write + Send>,
}

impl LogConfig {
    /// To standard error, in colour if that is a terminal and `NO_COLOR` is not set.
    pub fn stderr(level: LogLevel) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        LogConfig { level, colour: !unwanted && std::io::stderr().is_terminal(), sink: Box::new(std::io::stderr()) }
    }
}

impl std::fmt::Debug for LogConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogConfig").field("level", &self.level).field("colour", &self.colour).finish_non_exhaustive()
    }
}

enum Message {
    Line(String),
    Flush(oneshot::Sender<()>),
}

/// The running log.
#[derive(Debug)]
pub(crate) struct Log {
    level: LogLevel,
    colour: bool,
    queue: SyncSender<Message>,
}

impl Log {
    /// Starts the log's thread, which ends when the log is dropped.
    pub(crate) fn start(config: LogConfig) -> std::io::Result<Log> {
        let LogConfig { level, colour, sink } = config;
        let (queue, messages) = sync_channel(QUEUE);
        std::thread::Builder::new().name("log".into()).spawn(move || write(&messages, sink))?;
        Ok(Log { level, colour, queue })
    }

    /// Writes a line whatever the level.
    pub(crate) fn line(&self, line: impl Into<String>) {
        // A full queue means that nobody reads: the line is lost, the request is not.
        let _ = self.queue.try_send(Message::Line(line.into()));
    }

    /// Whether everything is logged.
    pub(crate) fn is_verbose(&self) -> bool {
        self.level >= LogLevel::Verbose
    }

    /// The line above the rows; where only failures are shown, each speaks for itself.
    pub(crate) fn header(&self) {
        if self.level > LogLevel::Quiet {
            self.line(row::header(self.colour));
        }
    }

    /// Waits, briefly, until the lines so far are written.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            let _ = tokio::time::timeout(FLUSH, flushed).await;
        }
    }

    fn row(&self, row: &Row) {
        if row.ending.is_failure() || self.level > LogLevel::Quiet {
            self.line(row.line(self.colour));
        }
    }
}

fn write(messages: &Receiver<Message>, mut sink: Box<dyn Write + Send>) {
    for message in messages {
        match message {
            // Where nobody reads any more, the server goes on without its log.
            Message::Line(line) => drop(writeln!(sink, "{line}").and_then(|()| sink.flush())),
            Message::Flush(done) => drop(done.send(())),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A log that tests can read.

    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    /// What has been written.
    #[derive(Clone, Default)]
    pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
        }
    }

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    pub(crate) fn log(level: LogLevel) -> (Arc<Log>, Written) {
        let written = Written::default();
        let config = LogConfig { level, colour: false, sink: Box::new(written.clone()) };
        (Arc::new(Log::start(config).unwrap()), written)
    }

    /// A row of a request that arrives now, with a prompt of 10 tokens.
    pub(crate) fn pending(log: &Arc<Log>) -> PendingRow {
        PendingRow::new(Arc::clone(log), "/v1/chat/completions", Arrival::now(), 10)
    }
}
