//! The sessions that there may be, in all and of one address, and the table of those that there
//! are.

use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use onrush_wire::rtsp::SessionId;

use super::session::Session;
use super::{Control, roster};
use crate::config::files_suffice;
use crate::network::network;
use crate::random::random;
use crate::watching::SessionEvent;

impl Control {
    /// Why `peer` is let begin no session, if so. Other nodes may have a channel that comes here
    /// from nowhere else, so that a drain is not about them.
    pub(super) fn refuses(&self, peer: IpAddr, is_node: bool) -> Option<String> {
        if !is_node && self.statistics.drain.is_on() {
            return Some("the server takes no session more; try another".to_owned());
        }
        self.full(peer)
    }

    /// Why there is no room for a session more of `peer`, if so.
    pub(super) fn full(&self, peer: IpAddr) -> Option<String> {
        let bounds = &self.statistics.bounds;
        let sessions = self.sessions.borrow().len();
        let most = bounds.sessions_max.load(Ordering::Relaxed);
        if sessions >= most {
            return Some(format!("all {most} sessions are taken"));
        }
        let client = network(peer);
        let of_address = self.sessions_by_address.borrow().get(&client).copied();
        let most = bounds.sessions_per_address_max.load(Ordering::Relaxed);
        if of_address.unwrap_or(0) >= most {
            return Some(format!(
                "all {most} sessions that one address may have are taken"
            ));
        }
        let connections = self.statistics.connections.load(Ordering::Relaxed);
        let files = self.files;
        (!self.has_files(connections, 1)).then(|| {
            format!("the server may open {files} files (RLIMIT_NOFILE), and all are taken")
        })
    }

    /// Whether there are descriptors for so many connections in all, and for `more` sessions than
    /// there are.
    pub(super) fn has_files(&self, connections: usize, more: usize) -> bool {
        let suffice = || files_suffice(self.files, connections, self.descriptors(more));
        match &self.content.library {
            Some(library) => library.has_descriptors(suffice),
            None => suffice(),
        }
    }

    /// Descriptors that RTP sockets take, with `more` than there are, and downloads, and films.
    pub(super) fn descriptors(&self, more: usize) -> usize {
        let of_downloads = self.statistics.download_files.load(Ordering::Relaxed);
        let library = self.content.library.as_ref();
        let of_films = library.map_or(0, |library| library.descriptors());
        let of_sockets = match self.content.sending.get() {
            Some(data) => {
                // A session has a stream for each of its tracks.
                let streams = self.sessions.borrow().len().max(data.engines().streams());
                let of_sockets = (streams + more).saturating_sub(data.engines().places());
                of_sockets + data.engines().connections()
            }
            None => 0,
        };
        let of_sockets = of_sockets + self.live_ports.descriptors();
        self.statistics
            .rtp_files
            .store(of_sockets, Ordering::Relaxed);
        of_sockets + of_downloads + of_films
    }

    /// A name for a new session.
    pub(super) fn name(&self) -> SessionId {
        loop {
            let id = SessionId::from_random(random());
            // A number says whose a stream is, and 0 that it is nobody's.
            if id.number() != 0 && !self.sessions.borrow().contains_key(&id.number()) {
                return id;
            }
        }
    }

    /// Puts a session into the table.
    pub(super) fn add(&self, session: &Rc<Session>) {
        let number = session.id().number();
        let mut sessions = self.sessions.borrow_mut();
        let before = sessions.insert(number, Rc::clone(session));
        drop(sessions);
        assert!(before.is_none(), "its name was made for it");
        let mut by_address = self.sessions_by_address.borrow_mut();
        *by_address.entry(network(session.peer_ip())).or_insert(0) += 1;
        drop(by_address);
        self.statistics
            .sessions_total
            .fetch_add(1, Ordering::Relaxed);
        self.count_sessions();
        roster::tell(&self.config, SessionEvent::Began, session);
    }

    /// Takes a session out that has ended.
    pub(super) fn remove(&self, id: SessionId) {
        let removed = self.sessions.borrow_mut().remove(&id.number());
        self.count_sessions();
        if let Some(session) = removed {
            let mut by_address = self.sessions_by_address.borrow_mut();
            let client = network(session.peer_ip());
            if let Entry::Occupied(mut of_address) = by_address.entry(client) {
                *of_address.get_mut() -= 1;
                if *of_address.get() == 0 {
                    of_address.remove();
                }
            }
            drop(by_address);
            roster::tell(&self.config, SessionEvent::Ended, &session);
        }
        self.left.notify_one();
    }

    fn count_sessions(&self) {
        let sessions = self.sessions.borrow().len();
        self.statistics.sessions.store(sessions, Ordering::Relaxed);
    }
}
