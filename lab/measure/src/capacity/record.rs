//! What is kept of the experiment: a run for each number of viewers that was tried.

use onrush_server::engine::phase::Phase;
use onrush_testkit::testbed::Mode;
use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::experiment::Record;
use crate::film_kind::FilmKind;
use crate::load;
use crate::load::account::Account;
use crate::yardstick::Yardstick;

/// Its name on the command line and in files.
pub const NAME: &str = "capacity";

/// What is measured.
pub type CapacityRecord = Record<Settings, Run>;

/// One server, watched by one number of viewers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// `onrush`, or the peer's command.
    pub server: String,
    /// Who cut trains.
    pub mode: Mode,
    /// Length of a burst; 0 for a peer.
    pub burst_ns: u64,
    /// The data path that our server was asked for; `None`: its own choice, or a peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// When within a burst's time streams began.
    #[serde(default)]
    pub phase: Phase,
    /// Viewers.
    pub clients: u32,
    /// Of them, so many of a hundred jump.
    #[serde(default)]
    pub jumping_percent: u32,
    /// What the films were kept in.
    #[serde(default)]
    pub media: FilmKind,
    /// What they saw, without the streams one by one.
    pub load: load::Run,
    /// Whose time it took while all watched.
    #[serde(default)]
    pub account: Account,
    /// The same while they came.
    #[serde(default)]
    pub account_coming: Account,
    /// What each who came took of the thread that sets viewers up, in ns of processor time; none of
    /// a peer, whose threads are its own affair.
    #[serde(default)]
    pub set_up_ns: Option<u64>,
    /// Of our server's bursts, the part that left with the one before, because its engine was
    /// behind.
    #[serde(default)]
    pub joined: Option<f64>,
    /// What our server counted that should not be; in older records, warnings of its log.
    #[serde(default)]
    pub trouble: Vec<String>,
    /// Why it does not count as held; empty if it does.
    pub missed: Vec<String>,
    /// Why it says nothing of the server, whether it was held or not: the load generator was late
    /// itself, or the host took the processor away. Empty if nothing is known.
    #[serde(default)]
    pub void: Vec<String>,
    /// Whether it is one of the trials around the limit, and not of the search for it.
    #[serde(default)]
    pub is_around_limit: bool,
    /// What the host gave meanwhile, on the server's processor.
    #[serde(default)]
    pub yardstick: Option<Yardstick>,
    /// Whether the next one is the same again, and counts in its place.
    #[serde(default)]
    pub is_repeated: bool,
}
