//! Whether a client takes what it is sent on its connection, by what it has not acknowledged.
//!
//! To know that enters the kernel, so it is looked at as seldom as will do: now and then, and where
//! so much was given since that the client may have as much as it may have.

use super::Bounds;
use crate::engine::InterleavedConnection;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// None before the first look.
    last: Option<Look>,
    /// It found no room: until then it need not be tried again.
    held_until_ns: u64,
    #[cfg(test)]
    pub(super) looks: usize,
}

/// What was seen.
#[derive(Clone, Copy, Debug)]
struct Look {
    at_ns: u64,
    /// Bytes that the client had not acknowledged.
    left_bytes: u64,
    /// Bytes that it had been given by then, of whatever is on the connection.
    given_bytes: u64,
    /// When it was last seen that it takes something, or that there is nothing to take.
    progress_ns: u64,
}

impl Look {
    /// As many bytes as it has not acknowledged if it has taken nothing since.
    fn left_bytes_most(&self, given_bytes: u64) -> u64 {
        let more = given_bytes.saturating_sub(self.given_bytes);
        self.left_bytes.saturating_add(more)
    }
}

impl Progress {
    /// Whether it is to be looked at.
    pub(super) fn is_due(&self, bounds: Bounds, now_ns: u64) -> bool {
        self.last.is_none_or(|look| {
            let looks = match look.progress_ns < look.at_ns {
                true => LOOKS_IN_DOUBT,
                false => LOOKS,
            };
            now_ns.saturating_sub(look.at_ns) >= bounds.stall_ns_max / looks
        })
    }

    /// Looks what the client has taken.
    pub(super) fn look(&mut self, connection: &InterleavedConnection, now_ns: u64) {
        let given_bytes = connection.given_bytes();
        let left_bytes = connection.unacknowledged_bytes() as u64;
        self.note((left_bytes, given_bytes), now_ns);
    }

    fn note(&mut self, (left_bytes, given_bytes): (u64, u64), now_ns: u64) {
        let is_nothing_taken =
            |look: &Look| left_bytes > 0 && left_bytes >= look.left_bytes_most(given_bytes);
        let progress_ns = match self.last.filter(is_nothing_taken) {
            Some(look) => look.progress_ns,
            None => now_ns,
        };
        self.last = Some(Look {
            at_ns: now_ns,
            left_bytes,
            given_bytes,
            progress_ns,
        });
        #[cfg(test)]
        {
            self.looks += 1;
        }
    }

    /// Whether the client has more than so many bytes that it has not acknowledged. It is looked at
    /// only if it may.
    pub(super) fn is_full(
        &mut self,
        connection: &InterleavedConnection,
        bytes_max: usize,
        now_ns: u64,
    ) -> bool {
        let is_full = |look: Look| {
            let bytes = look.left_bytes_most(connection.given_bytes());
            bytes > bytes_max as u64
        };
        if self.last.is_none_or(is_full) {
            self.look(connection, now_ns);
        }
        self.last.is_some_and(is_full)
    }

    /// It found no room.
    pub(super) fn hold(&mut self, now_ns: u64) {
        self.held_until_ns = now_ns.saturating_add(HELD_NS);
    }

    /// How long it need not be tried again.
    pub(super) fn held_ns(&self, now_ns: u64) -> u64 {
        self.held_until_ns.saturating_sub(now_ns)
    }

    /// Whether the client has taken nothing for too long.
    pub(super) fn is_stalled(&self, bounds: Bounds, now_ns: u64) -> bool {
        self.last.is_some_and(|look| {
            look.progress_ns < look.at_ns
                && now_ns.saturating_sub(look.progress_ns) > bounds.stall_ns_max
        })
    }
}

/// Looks in the time after which a client is stalled, and where it may be on the way to that.
const LOOKS: u64 = 4;
const LOOKS_IN_DOUBT: u64 = 100;

/// How long what found no room waits: a client takes some time to take something, and most others
/// need none of it.
const HELD_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const BOUNDS: Bounds = Bounds {
        backlog_bytes_max: 0,
        stall_ns_max: 1000 * MS,
    };

    /// Packets of one size, of which always as many are on their way.
    #[test]
    fn a_client_that_takes_sparse_packets_is_never_stalled() {
        for on_their_way in 0..4 {
            let mut progress = Progress::default();
            for packet in 0..300 {
                let now_ns = packet * 50 * MS;
                let left = packet.min(on_their_way);
                if progress.is_due(BOUNDS, now_ns) {
                    progress.note((left * 172, packet * 172), now_ns);
                }
                assert!(!progress.is_stalled(BOUNDS, now_ns), "{packet}");
            }
            assert!(progress.looks < 300 / 4, "{}", progress.looks);
        }
    }

    /// Whether it is given something meanwhile or not, and however that looks at first.
    #[test]
    fn a_client_that_takes_nothing_is_stalled_in_time() {
        for given_each in [0, 172] {
            let mut progress = Progress::default();
            // Nothing is said of what lies there from before.
            progress.note((500, 0), 0);
            progress.note((172, 172), 10 * MS);
            let mut packets = 1;
            let stalled = (0..40).find(|step| {
                let now_ns = (10 + 50 * step) * MS;
                if progress.is_due(BOUNDS, now_ns) {
                    let given = 172 + packets * given_each;
                    progress.note((given, given), now_ns);
                }
                packets += 1;
                progress.is_stalled(BOUNDS, now_ns)
            });
            assert_eq!(stalled, Some(21), "of 50 ms");
        }
    }
}
