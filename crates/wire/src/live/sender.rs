//! Whom a stream is taken from: the first who sends, until that one is silent.
//!
//! Anybody can send to a port. So the first sender, its address and port, is kept, and others are
//! refused as long as it sends. Who has sent neither RTP nor a transport stream gives way at once
//! to whoever does: a stray datagram must not keep a stream out. That an address is not forged is
//! not checked, and cannot be.

use std::net::SocketAddr;

/// Keeps one sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct SenderLock {
    kept_ns: u64,
    sender: Option<Sender>,
}

#[derive(Clone, Copy, Debug)]
struct Sender {
    address: SocketAddr,
    heard_ns: u64,
    is_stream: bool,
    has_refused: bool,
}

/// What becomes of datagrams.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// They are the stream's.
    Taken,
    /// They are not: this sender is kept. Whether they are the first that it is kept against.
    Refused { kept: SocketAddr, is_first: bool },
}

impl SenderLock {
    /// Keeps a sender until it has been silent for `kept_ns`.
    pub(super) const fn new(kept_ns: u64) -> Self {
        Self {
            kept_ns,
            sender: None,
        }
    }

    /// Keeps the sender of a stream that was heard elsewhere.
    pub(super) const fn keep(&mut self, address: SocketAddr, heard_ns: u64) {
        self.sender = Some(Sender {
            address,
            heard_ns,
            is_stream: true,
            has_refused: false,
        });
    }

    /// Judges datagrams from `from` that were taken in at `now_ns`, and arrived at `arrived_ns` at
    /// the earliest: what the sender sent in between may still wait to be taken in. `is_stream`
    /// says whether they are a stream's.
    pub(super) fn judge(
        &mut self,
        from: SocketAddr,
        is_stream: impl FnOnce() -> bool,
        (arrived_ns, now_ns): (u64, u64),
    ) -> Verdict {
        let is_stream = match &mut self.sender {
            Some(sender) if sender.address == from => {
                sender.heard_ns = now_ns;
                sender.is_stream = sender.is_stream || is_stream();
                return Verdict::Taken;
            }
            Some(sender) if arrived_ns.saturating_sub(sender.heard_ns) < self.kept_ns => {
                if sender.is_stream || !is_stream() {
                    let is_first = !std::mem::replace(&mut sender.has_refused, true);
                    let kept = sender.address;
                    return Verdict::Refused { kept, is_first };
                }
                true
            }
            _ => is_stream(),
        };
        self.sender = Some(Sender {
            address: from,
            heard_ns: now_ns,
            is_stream,
            has_refused: false,
        });
        Verdict::Taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEPT_NS: u64 = 3_000;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn judge(lock: &mut SenderLock, port: u16, is_stream: bool, now_ns: u64) -> Verdict {
        lock.judge(at(port), || is_stream, (now_ns, now_ns))
    }

    fn refused(port: u16, is_first: bool) -> Verdict {
        let kept = at(port);
        Verdict::Refused { kept, is_first }
    }

    #[test]
    fn the_first_sender_is_kept_until_it_is_silent() {
        let mut lock = SenderLock::new(KEPT_NS);
        assert_eq!(judge(&mut lock, 1, true, 1_000), Verdict::Taken);
        assert_eq!(judge(&mut lock, 2, true, 1_001), refused(1, true));
        assert_eq!(judge(&mut lock, 3, true, 1_002), refused(1, false));
        assert_eq!(judge(&mut lock, 1, true, 2_000), Verdict::Taken);
        // Others that send do not make the silence shorter or longer.
        assert_eq!(judge(&mut lock, 2, true, 4_999), refused(1, false));
        assert_eq!(judge(&mut lock, 2, true, 5_000), Verdict::Taken);
        assert_eq!(judge(&mut lock, 1, true, 5_001), refused(2, true));
    }

    #[test]
    fn another_port_of_the_same_host_is_another_sender() {
        let mut lock = SenderLock::new(KEPT_NS);
        assert_eq!(judge(&mut lock, 1, true, 0), Verdict::Taken);
        let other_host = SocketAddr::from(([10, 0, 0, 2], 1));
        let other = lock.judge(other_host, || true, (1, 1));
        assert_eq!(other, refused(1, true));
        assert_eq!(judge(&mut lock, 2, true, 2), refused(1, false));
    }

    #[test]
    fn a_stray_datagram_keeps_no_stream_out() {
        let mut lock = SenderLock::new(KEPT_NS);
        assert_eq!(judge(&mut lock, 1, false, 0), Verdict::Taken);
        assert_eq!(judge(&mut lock, 2, false, 1), refused(1, true));
        assert_eq!(judge(&mut lock, 3, true, 2), Verdict::Taken);
        assert_eq!(judge(&mut lock, 1, false, 3), refused(3, true));
        // What is a stream once stays one, whatever comes between.
        assert_eq!(judge(&mut lock, 3, false, 4), Verdict::Taken);
        assert_eq!(judge(&mut lock, 1, true, 5), refused(3, false));
    }

    #[test]
    fn what_may_have_waited_does_not_count_as_silence() {
        let mut lock = SenderLock::new(KEPT_NS);
        assert_eq!(judge(&mut lock, 1, true, 0), Verdict::Taken);
        // The thread was held up: the kept sender's datagrams may be behind this one.
        let held_up = lock.judge(at(2), || true, (KEPT_NS - 1, 10 * KEPT_NS));
        assert_eq!(held_up, refused(1, true));
        let silent = lock.judge(at(2), || true, (KEPT_NS, 10 * KEPT_NS));
        assert_eq!(silent, Verdict::Taken);
    }

    proptest! {
        /// Of streams that are taken, two senders are never closer to each other than the time that
        /// one is kept.
        #[test]
        fn senders_take_turns_only_after_silence(
            steps in proptest::collection::vec((0..3_u16, 0..2 * KEPT_NS), 0..100),
        ) {
            let (mut lock, mut now_ns, mut last) = (SenderLock::new(KEPT_NS), 0, None);
            for (port, gap_ns) in steps {
                now_ns += gap_ns;
                let is_taken = judge(&mut lock, port, true, now_ns) == Verdict::Taken;
                let may = last.is_none_or(|(before, at_ns)| {
                    before == port || now_ns - at_ns >= KEPT_NS
                });
                prop_assert_eq!(is_taken, may);
                if is_taken {
                    last = Some((port, now_ns));
                }
            }
        }
    }
}
