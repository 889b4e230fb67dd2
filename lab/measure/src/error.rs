//! Why an experiment could not be carried out: what was tried, what was said, what to do next.
//!
//! One error for all of them. What goes wrong with a single run is no error: it makes that run
//! void.

use std::error::Error;
use std::ops::RangeInclusive;

use onrush_testkit::sink::SinkError;
use onrush_testkit::testbed::TestbedError;

use crate::plot::Unit;
use crate::setup::{CoresError, SystemError};
use crate::stats::ratio;

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// A setting is out of bounds.
    #[error("{0}")]
    Settings(String),
    /// There is nothing to leave the rest of the work to.
    #[error(transparent)]
    Cores(#[from] CoresError),
    /// No network to send on.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// No counters at its end.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The system refused something else.
    #[error(transparent)]
    System(#[from] SystemError),
    /// It does what only root may.
    #[error("{0}: it needs root")]
    Root(&'static str),
    /// What is measured refused, or did something else.
    #[error(transparent)]
    Subject(Box<dyn Error + Send + Sync>),
}

impl ExperimentError {
    /// Whether root is all that is missing.
    #[must_use]
    pub fn needs_root(&self) -> bool {
        match self {
            Self::Root(_) => true,
            Self::Testbed(error) => error.is_not_permitted(),
            _ => false,
        }
    }

    /// What is measured did something else, in words.
    pub(crate) fn subject(said: impl Into<String>) -> Self {
        Self::Subject(said.into().into())
    }
}

/// Refuses a setting that is out of bounds, in words with both.
pub(crate) fn within<N: Copy + Into<u64>>(
    value: N,
    bounds: RangeInclusive<N>,
    unit: Unit,
    what: &str,
) -> Result<(), ExperimentError> {
    let [value, low, high] = [value, *bounds.start(), *bounds.end()].map(Into::into);
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let [value, low, high] = [value, low, high].map(|number| unit.tell(ratio(number, 1)));
    let words = format!("{value} {what}: ask for {low} to {high}");
    Err(ExperimentError::Settings(words))
}

/// Refuses settings that are out of bounds: each with its bounds, its unit and what it is.
macro_rules! bounds {
    ($($value:expr, $bounds:expr, $unit:ident, $what:expr;)+) => {
        $($crate::error::within($value, $bounds, $crate::plot::Unit::$unit, $what)?;)+
    };
}
pub(crate) use bounds;

/// Refuses, with such an error, what is wrong, in words.
macro_rules! refuse {
    ($error:path; $($is_wrong:expr => $($words:expr),+;)+) => {
        $(if $is_wrong {
            return Err($error(format!($($words),+)));
        })+
    };
}
pub(crate) use refuse;

/// Of these, what is so: a line of words for each.
macro_rules! what_is {
    ($($is_so:expr => $($words:expr),+;)+) => {{
        let mut lines: Vec<String> = Vec::new();
        $(if $is_so {
            lines.push(format!($($words),+));
        })+
        lines
    }};
}
pub(crate) use what_is;

/// What the things that are measured refuse with.
macro_rules! subjects {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for ExperimentError {
            fn from(error: $error) -> Self {
                Self::Subject(Box::new(error))
            }
        })+
    };
}

subjects!(
    crate::load::LoadError,
    onrush_group::GroupError,
    onrush_lock::CacheError,
    onrush_lock::LockError,
    onrush_lock::SegmentError,
    onrush_paths::OpenError,
    onrush_paths::PlanError,
    onrush_server::data::DataError,
    onrush_server::engine::EngineError,
    onrush_server::library::LibraryError,
    onrush_server::library::OpenError,
    onrush_server::channels::ChannelError,
    onrush_testkit::netns::NetnsError,
    onrush_testkit::slice::SliceError,
);
