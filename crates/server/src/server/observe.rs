//! What a program that has a server in it asks of it: what it does, and who is there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Server;
use crate::admin::status::Status;
use crate::statistics::Statistics;
use crate::watching::Wish;

/// How long control may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What shows that a server is alive, for a watchdog.
#[derive(Clone, Debug)]
pub struct Pulse(Arc<Statistics>);

impl Pulse {
    /// A number that grows several times a second as long as the control thread gets its turns.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.0.control_turns.load(Ordering::Relaxed)
    }
}

impl Server {
    /// Something that counts up as long as the control thread gets its turns.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse(Arc::clone(&self.statistics))
    }

    /// Sessions that exist at the moment.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.statistics.sessions.load(Ordering::Relaxed)
    }

    /// RTSP connections that are open at the moment.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.statistics.connections.load(Ordering::Relaxed)
    }

    /// What the server has done and does, as `/status` tells it.
    #[must_use]
    pub fn status(&self) -> Status {
        self.watched.status(None)
    }

    /// Sessions whose client or film has `find` in it, from number `first` on, up to
    /// [`SESSIONS_SHOWN_MAX`](crate::watching::SESSIONS_SHOWN_MAX), as the JSON that the dashboard
    /// gets. `None` if control has not answered within two seconds; ask again then. It waits: not
    /// for a thread that runs asynchronous tasks, nor for one that control waits for.
    #[must_use]
    pub fn session_list(&self, find: &str, first: usize) -> Option<String> {
        let (answer, answered) = oneshot::channel();
        let wish = Wish::List {
            find: find.to_owned(),
            first,
            answer,
        };
        serde_json::to_string(&self.told(wish, answered)?).ok()
    }

    /// Ends the session of this number, the `id` of [`Self::session_list`]; whether there is one.
    /// `None` and waiting as there.
    #[must_use]
    pub fn end_session(&self, number: u64) -> Option<bool> {
        let (answer, answered) = oneshot::channel();
        self.told(Wish::End { number, answer }, answered)
    }

    fn told<T>(&self, wish: Wish, mut answered: oneshot::Receiver<T>) -> Option<T> {
        self.wishes.try_send(wish).ok()?;
        let asked = Instant::now();
        loop {
            match answered.try_recv() {
                Ok(answer) => return Some(answer),
                Err(oneshot::error::TryRecvError::Closed) => return None,
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            if asked.elapsed() > ANSWER_TIME_MAX {
                return None;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}
