//! Where a source sends its clients on to while it is pulled (REDIRECT, RFC 2326, section 10.10).
//!
//! A thread of its own asks there: who does not answer is given up late, and meanwhile the source
//! is pulled as before.

use std::thread::{self, JoinHandle};

use tracing::{error, info, warn};

use super::super::pull_client::PullError;
use super::node::Origin;
use super::{Asked, Pulling, Source, ask};
use crate::channels::pull_url::{PullUrl, shown};

/// One place at a time is asked, also where a source is pulled anew meanwhile.
#[derive(Default)]
pub(super) struct SentOn {
    /// Where is to be asked next.
    next: Option<String>,
    asking: Option<Asking>,
}

struct Asking {
    location: String,
    /// Who has named it is still pulled.
    is_wanted: bool,
    thread: JoinHandle<Result<Source, PullError>>,
}

impl SentOn {
    /// Another source is pulled, or the same anew: what was said before is of no use.
    pub(super) fn forget(&mut self) {
        self.next = None;
        if let Some(asking) = &mut self.asking {
            asking.is_wanted = false;
        }
    }

    #[cfg(test)]
    pub(super) const fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// Where was asked, and what is there, once that is known.
    fn found(&mut self) -> Option<(String, Result<Source, PullError>)> {
        let asking = self.asking.take_if(|it| it.thread.is_finished())?;
        let Ok(found) = asking.thread.join() else {
            error!("{}: a bug of the server", shown(&asking.location));
            return None;
        };
        asking.is_wanted.then_some((asking.location, found))
    }
}

impl Asking {
    /// Asks there instead of at `from`.
    fn start(path: &str, from: &PullUrl, location: String) -> Result<Self, String> {
        let there = from.moved_to(&location).map_err(|it| it.to_string())?;
        let (path, from) = (path.to_owned(), from.clone());
        let thread = thread::Builder::new().name("onrush-pull".to_owned());
        let thread = thread.spawn(move || find(&path, &from, there));
        Ok(Self {
            location,
            is_wanted: true,
            thread: thread.map_err(|error| format!("no thread: {error}"))?,
        })
    }
}

/// What the source of a channel has, wherever it sends us on to (RFC 2326, section 11.3).
pub(super) fn find(path: &str, from: &PullUrl, mut url: PullUrl) -> Result<Source, PullError> {
    for _ in 0..MOVES_MAX {
        let location = match ask(url)? {
            Asked::Source(source) => return Ok(*source),
            Asked::Moved(location) => location,
        };
        let moved = from.moved_to(&location);
        url = moved.map_err(|_| PullError::Moved(location))?;
        info!("channel {path}: {from} is at {url} by now");
    }
    Err(PullError::Moved(url.to_string()))
}

impl Pulling {
    /// The source to go on with, once it is found where its clients were sent on to: there, if that
    /// was said just now, and else where it was said before. Until then, and if it is not found, it
    /// is pulled as before while it lasts.
    pub(super) fn next_source(&self, origin: &Origin, said: Option<String>) -> Option<Source> {
        let (path, url) = (&self.path, &origin.url);
        let mut sent_on = self.sent_on.borrow_mut();
        if said.is_some() {
            sent_on.next = said;
        }
        if let Some((location, found)) = sent_on.found() {
            let location = shown(&location);
            match found {
                Ok(source) => {
                    info!("channel {path}: {url} sends its clients on to {location}");
                    return Some(source);
                }
                Err(error) => {
                    warn!("channel {path}: {url} sends its clients on to {location}: {error}");
                }
            }
        }
        if sent_on.asking.is_some() {
            return None;
        }
        let location = sent_on.next.take()?;
        let to = shown(&location);
        match Asking::start(path, url, location) {
            Ok(asking) => sent_on.asking = Some(asking),
            Err(error) => warn!("channel {path}: {url} sends its clients on to {to}: {error}"),
        }
        None
    }
}

/// Places that a source is asked for at, one after the other.
const MOVES_MAX: usize = 4;
