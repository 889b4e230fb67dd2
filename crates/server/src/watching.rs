//! What whoever watches the server asks of its control: which sessions there are, and that one
//! ends.
//!
//! The thread that answers pages and the one that has the sessions share nothing: a wish goes over
//! a short queue, and its answer comes back.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

/// Wishes that wait for control at once; beyond that a page is told to come again.
pub const WISHES_MAX: usize = 16;

/// Sessions that one page of them has at the most.
pub const SESSIONS_SHOWN_MAX: usize = 200;

/// What a program that has a server in it is told of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionEvent {
    /// It has been set up; its number is in the lists of sessions from now on.
    Began,
    /// It is over, for whatever reason. That is the last of it.
    Ended,
}

/// Called for each session when it begins and when it has ended, in this order, with its `id`,
/// `client` and `film` as JSON. All on the control thread, which does nothing else meanwhile: write
/// down what is told, and return. A group of multicast is a session too, its client is the group.
#[derive(Clone)]
pub struct SessionHook(Arc<Told>);

type Told = dyn Fn(SessionEvent, &str) + Send + Sync;

impl SessionHook {
    /// One that calls `told`.
    pub fn new(told: impl Fn(SessionEvent, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }

    pub(crate) fn tell(&self, event: SessionEvent, session: &SessionName) {
        if let Ok(text) = serde_json::to_string(session) {
            (self.0)(event, &text);
        }
    }
}

impl fmt::Debug for SessionHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionHook").finish_non_exhaustive()
    }
}

/// Which session it is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SessionName {
    /// As in [`SessionRow`].
    pub(crate) id: String,
    pub(crate) client: String,
    pub(crate) film: String,
}

/// Something that control does for a page.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Tell of sessions whose client or film has `find` in it, from number `first` on.
    List {
        find: String,
        first: usize,
        answer: oneshot::Sender<Roster>,
    },
    /// Tell of films: of all that are known.
    Films {
        answer: oneshot::Sender<Vec<KnownFilm>>,
    },
    /// End the session of this number; whether there is one.
    End {
        number: u64,
        answer: oneshot::Sender<bool>,
    },
}

/// A film that is known.
#[derive(Clone, Debug)]
pub(crate) struct KnownFilm {
    pub(crate) film: String,
    /// The numbers of its sources in the store.
    pub(crate) sources: Vec<u32>,
    /// Sessions that have it.
    pub(crate) sessions: usize,
}

/// Where wishes go.
pub(crate) type Wishes = mpsc::Sender<Wish>;

/// Where they arrive.
pub(crate) type WishQueue = mpsc::Receiver<Wish>;

/// Both ends.
pub(crate) fn wishes() -> (Wishes, WishQueue) {
    mpsc::channel(WISHES_MAX)
}

/// The keys that say something else now, or why nothing was changed.
pub(crate) type Reloaded = Result<Vec<String>, String>;

/// Somebody asks that the configuration is read again, and where the answer goes.
pub(crate) type ReloadWish = oneshot::Sender<Reloaded>;

/// Where such wishes go.
pub(crate) type ReloadWishes = mpsc::Sender<ReloadWish>;

/// Where they arrive.
pub(crate) type ReloadWishQueue = mpsc::Receiver<ReloadWish>;

/// Both ends; one waits, and the next is told that it is so.
pub(crate) fn reload_wishes() -> (ReloadWishes, ReloadWishQueue) {
    mpsc::channel(1)
}

/// Sessions, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Roster {
    /// How many there are.
    pub(crate) all: usize,
    /// How many of them were meant.
    pub(crate) found: usize,
    /// Those from the number on that was asked for, at most [`SESSIONS_SHOWN_MAX`].
    pub(crate) sessions: Vec<SessionRow>,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SessionRow {
    /// What names it here: half of its name, which alone gives no right to it.
    pub(crate) id: String,
    /// The address of its client.
    pub(crate) client: String,
    /// What it plays.
    pub(crate) film: String,
    /// `udp`, `tcp` or `live`.
    pub(crate) transport: &'static str,
    /// `ready`, `playing`, `ended` or `leaving`.
    pub(crate) state: &'static str,
    /// Where in the film it is, in seconds; absent of a live channel.
    pub(crate) position_s: Option<f64>,
    /// What its client reported last of its worst track: packets lost since the beginning.
    pub(crate) lost: Option<i32>,
    /// Of the packets before that report, the part that was lost.
    pub(crate) lost_ratio: Option<f64>,
    /// Variation of the packets' travel time, in ms.
    pub(crate) jitter_ms: Option<f64>,
}
