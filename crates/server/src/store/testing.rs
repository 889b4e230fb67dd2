//! A store without threads: whoever tests with it says when a read begins and when it ends.

use std::sync::Arc;

use onrush_lock::memory::Buffer;
use onrush_sys::pool::Pool;

#[cfg(test)]
use super::Store;
use super::{Request, Shared, builder};
use crate::experiments::Faults;

/// Builds chunks when it is told to.
pub(crate) struct ManualBuilder {
    shared: Arc<Shared>,
    buffer: Option<Buffer>,
}

/// A chunk that is being read.
pub(crate) struct Reading(Request);

impl ManualBuilder {
    /// One of a pool, and what readers hold.
    pub(crate) fn new(pool: Arc<Pool>, faults: Faults) -> Self {
        Self {
            shared: Arc::new(Shared::new(pool, faults)),
            buffer: Some(builder::buffer().expect("a little memory")),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes the most urgent request that is still open.
    pub(crate) fn begin(&self) -> Option<Reading> {
        while let Some(request) = self.shared.next_request() {
            if request.is_open() {
                return Some(Reading(request));
            }
        }
        None
    }

    /// Reads the file and builds the chunk, or says that it cannot be built.
    pub(crate) fn finish(&mut self, reading: Reading) {
        let buffer = self.buffer.take().expect("one chunk at a time");
        let buffer = builder::serve_once(&self.shared, reading.0, buffer);
        self.buffer = Some(buffer);
    }
}

#[cfg(test)]
impl Store {
    /// A store whose chunks somebody builds by hand.
    pub(crate) fn without_builders(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            builders: Vec::new(),
        }
    }
}
