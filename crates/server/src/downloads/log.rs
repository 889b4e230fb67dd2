//! The access log, written by a thread of its own: a slow disk or a full pipe delays no download.

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use onrush_wire::http::{Access, LogFormat};
use tracing::warn;

use super::config::{AccessLog, LogTarget};

/// Where lines go; nowhere, if nobody wants them.
#[derive(Debug)]
pub(crate) struct Log(Option<Writing>);

#[derive(Debug)]
struct Writing {
    format: LogFormat,
    lines: RefCell<String>,
    lost: Cell<u64>,
    batches: Option<SyncSender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Log {
    /// Begins to write.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub(crate) fn open(log: Option<&AccessLog>) -> io::Result<Self> {
        let Some(AccessLog { target, format }) = log else {
            return Ok(Self(None));
        };
        let output: Box<dyn Write + Send> = match target {
            // A descriptor of its own: somebody else may hold the lock of Rust's for as long as we
            // run.
            LogTarget::Stdout => Box::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
            LogTarget::File(path) => {
                let opened = OpenOptions::new().create(true).append(true).open(path);
                let named = |error| {
                    let text = format!("access log {}: {error}", path.display());
                    io::Error::other(text)
                };
                Box::new(opened.map_err(named)?)
            }
        };
        let (batches, received) = sync_channel(BATCHES_MAX);
        let thread = thread::Builder::new().name("onrush-access".to_owned());
        Ok(Self(Some(Writing {
            format: *format,
            lines: RefCell::default(),
            lost: Cell::new(0),
            batches: Some(batches),
            thread: Some(thread.spawn(move || write(output, &received))?),
        })))
    }

    /// Writes a line, soon.
    pub(crate) fn add(&self, access: &Access<'_>) {
        let Some(writing) = &self.0 else { return };
        let mut lines = writing.lines.borrow_mut();
        lines.push_str(&access.to_line(writing.format));
        let is_full = lines.len() >= BATCH_BYTES;
        drop(lines);
        if is_full {
            self.flush();
        }
    }

    /// Hands over what there is. What the disk has no room for in time is lost, and counted.
    pub(crate) fn flush(&self) {
        let Some(writing) = &self.0 else { return };
        let lines = writing.lines.take();
        let Some(batches) = writing.batches.as_ref().filter(|_| !lines.is_empty()) else {
            return;
        };
        let count = lines.lines().count() as u64;
        if batches.try_send(lines).is_err() {
            writing.lost.set(writing.lost.get() + count);
            warn!(
                "access log: {} lines lost, it is written too slowly",
                writing.lost.get()
            );
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
        if let Some(writing) = &mut self.0 {
            drop(writing.batches.take());
            // It has nothing to tell, and cannot panic.
            drop(writing.thread.take().map(JoinHandle::join));
        }
    }
}

fn write(mut output: Box<dyn Write + Send>, batches: &Receiver<String>) {
    let mut has_failed = false;
    for batch in batches {
        match output
            .write_all(batch.as_bytes())
            .and_then(|()| output.flush())
        {
            Ok(()) => has_failed = false,
            Err(error) if !has_failed => {
                has_failed = true;
                warn!("access log: {error}; lines are lost until it can be written again");
            }
            Err(_) => {}
        }
    }
}

/// A batch is handed over when it is this long, or a second old.
const BATCH_BYTES: usize = 16 << 10;
/// Batches that may wait for the disk.
const BATCHES_MAX: usize = 64;
