//! What sends files, and frames of connections: there from the start, or made for the first who
//! wants it. A relay has no files, and needs an engine only for players on TCP.

use std::cell::OnceCell;

use tracing::{info, warn};

use crate::config::Config;
use crate::data::{CACHE_BYTES_MIN, Data};

/// The data plane, once it is there.
#[derive(Debug)]
pub(crate) struct Sending {
    made: OnceCell<Option<Data>>,
    config: Option<Box<Config>>,
}

impl Sending {
    /// What is there already.
    pub(crate) fn by(data: Data) -> Self {
        Self {
            made: OnceCell::from(Some(data)),
            config: None,
        }
    }

    /// One engine that sends no files, made when somebody wants it.
    pub(crate) fn when_wanted(config: &Config) -> Self {
        let config = Config {
            cache_bytes: CACHE_BYTES_MIN,
            ..config.clone()
        };
        Self {
            made: OnceCell::new(),
            config: Some(Box::new(config)),
        }
    }

    /// The data plane, if it is there.
    pub(super) fn get(&self) -> Option<&Data> {
        self.made.get()?.as_ref()
    }

    /// The data plane, made now if it is not there; nothing if it cannot be had, which is logged
    /// once.
    pub(super) fn wanted(&self) -> Option<&Data> {
        let start = || {
            let started = Data::start(self.config.as_deref()?);
            match &started {
                Ok(data) => info!(
                    "players on TCP are sent to by an engine, path {}",
                    data.path()
                ),
                Err(error) => warn!("players on TCP are refused: {error}"),
            }
            started.ok()
        };
        self.made.get_or_init(start).as_ref()
    }
}
