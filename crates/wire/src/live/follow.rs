//! What happens to a stream on its way here: who sends it, what is missing, when it falls silent.

use std::fmt;
use std::net::SocketAddr;

use super::Kind;
use super::sender::{SenderLock, Verdict};
use crate::media::TS_PACKET_BYTES;
use crate::rtp::Header;

/// RTP packets that may be missing at one place before the numbers are taken to have begun anew
/// (`MAX_DROPOUT` of RFC 3550, appendix A.1).
const MISSING_MAX: u16 = 3000;

/// Packets by which one may come too late before the numbers are taken to have begun anew
/// (`MAX_MISORDER`).
const BEHIND_MAX: u16 = 100;

/// Something that a person who looks after the stream wants to know of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Note {
    /// The first datagram came.
    Began {
        /// From there.
        from: SocketAddr,
    },
    /// Somebody else sends.
    SourceChanged {
        /// Before.
        before: SocketAddr,
        /// Now.
        now: SocketAddr,
    },
    /// Another one sends too, and is refused: told once for each sender that is kept.
    Refused {
        /// The other.
        from: SocketAddr,
        /// Who is kept.
        kept: SocketAddr,
    },
    /// The RTP stream is another one.
    SsrcChanged {
        /// Before.
        before: u32,
        /// Now.
        now: u32,
    },
    /// RTP packets are missing, or transport packets of one PID at least.
    Missing {
        /// How many.
        packets: u16,
    },
    /// An RTP packet came again or out of order.
    Behind {
        /// By so many.
        packets: u16,
    },
    /// The numbers of the RTP packets began anew.
    Restarted {
        /// Number that was next.
        expected: u16,
        /// Number that came.
        got: u16,
    },
    /// Nothing has come for a while.
    Silent {
        /// For so long.
        silent_ns: u64,
    },
    /// Something comes again.
    Resumed {
        /// After so long.
        silent_ns: u64,
    },
}

/// Everything that came from the sender, counted; and what others sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Heard {
    /// Datagrams.
    pub datagrams: u64,
    /// Their bytes, without UDP's and lower headers.
    pub bytes: u64,
    /// Those of them that were RTP.
    pub rtp: u64,
    /// Those that were transport packets without RTP.
    pub transport_streams: u64,
    /// RTP packets, or places in a transport stream, that are missing.
    pub missing: u64,
    /// RTP packets that came again or out of order.
    pub behind: u64,
    /// Times that the numbers of RTP packets began anew.
    pub restarts: u64,
    /// Times that somebody else sent than before.
    pub source_changes: u64,
    /// Times that an RTP stream was replaced by another.
    pub ssrc_changes: u64,
    /// Times that nothing came for a while.
    pub silences: u64,
    /// Datagrams of others than the sender that is kept, refused.
    pub from_others: u64,
}

impl Heard {
    /// Both together.
    #[must_use]
    pub const fn and(&self, other: &Self) -> Self {
        Self {
            datagrams: self.datagrams + other.datagrams,
            bytes: self.bytes + other.bytes,
            rtp: self.rtp + other.rtp,
            transport_streams: self.transport_streams + other.transport_streams,
            missing: self.missing + other.missing,
            behind: self.behind + other.behind,
            restarts: self.restarts + other.restarts,
            source_changes: self.source_changes + other.source_changes,
            ssrc_changes: self.ssrc_changes + other.ssrc_changes,
            silences: self.silences + other.silences,
            from_others: self.from_others + other.from_others,
        }
    }
}

/// Looks at one stream, datagram by datagram.
#[derive(Debug)]
pub struct Follower {
    heard: Heard,
    /// Nothing if everybody is taken from.
    lock: Option<SenderLock>,
    silence_ns: u64,
    from: Option<SocketAddr>,
    arrived_ns: u64,
    is_silent: bool,
    /// The stream's SSRC, and the number that its next packet should have.
    rtp: Option<(u32, u16)>,
    /// By PID, the counter of its last packet.
    counters: Box<[Option<u8>]>,
}

impl Follower {
    /// One that calls a stream silent after `silence_ns` without a datagram.
    #[must_use]
    pub fn new(silence_ns: u64) -> Self {
        Self {
            heard: Heard::default(),
            lock: None,
            silence_ns,
            from: None,
            arrived_ns: 0,
            is_silent: false,
            rtp: None,
            counters: vec![None; PIDS].into(),
        }
    }

    /// The same, and it keeps to the first sender until that has been silent for `kept_ns`.
    #[must_use]
    pub fn keeping_sender(self, kept_ns: u64) -> Self {
        let lock = Some(SenderLock::new(kept_ns));
        Self { lock, ..self }
    }

    /// Keeps to `from`, which was heard just now, if it keeps to a sender: by another process,
    /// whose stream this one goes on with.
    pub fn keep(&mut self, from: SocketAddr, now_ns: u64) {
        if let Some(lock) = &mut self.lock {
            lock.keep(from, now_ns);
        }
    }

    /// Asks whether datagrams that came from `from` together are the stream's and to be followed.
    /// They are taken in at `now_ns`, and arrived at `arrived_ns` at the earliest.
    pub fn admit<'a>(
        &mut self,
        from: SocketAddr,
        mut datagrams: impl Iterator<Item = &'a [u8]>,
        (arrived_ns, now_ns): (u64, u64),
        mut note: impl FnMut(Note),
    ) -> bool {
        let Some(lock) = &mut self.lock else {
            return true;
        };
        let first = datagrams.next().unwrap_or_default();
        let is_stream = || !matches!(Kind::of(first), Kind::Other);
        match lock.judge(from, is_stream, (arrived_ns, now_ns)) {
            Verdict::Taken => true,
            Verdict::Refused { kept, is_first } => {
                self.heard.from_others += 1 + datagrams.count() as u64;
                if is_first {
                    note(Note::Refused { from, kept });
                }
                false
            }
        }
    }

    /// Takes a datagram that came from `from` at `now_ns`, and says what it is. `note` hears what
    /// is odd about it.
    pub fn follow(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now_ns: u64,
        mut note: impl FnMut(Note),
    ) -> Kind {
        self.heard.datagrams += 1;
        self.heard.bytes += datagram.len() as u64;
        match self.from.replace(from) {
            None => note(Note::Began { from }),
            Some(before) if before != from => {
                self.heard.source_changes += 1;
                note(Note::SourceChanged { before, now: from });
            }
            Some(_) => {}
        }
        if std::mem::take(&mut self.is_silent) {
            let silent_ns = now_ns.saturating_sub(self.arrived_ns);
            note(Note::Resumed { silent_ns });
        }
        self.arrived_ns = now_ns;
        let kind = Kind::of(datagram);
        match kind {
            Kind::Rtp(header) => self.rtp(&header, note),
            Kind::TransportStream => self.transport_stream(datagram, note),
            Kind::Other => {}
        }
        kind
    }

    /// Asks whether the stream has fallen silent; says so once.
    pub fn look(&mut self, now_ns: u64) -> Option<Note> {
        let silent_ns = now_ns.saturating_sub(self.arrived_ns);
        if self.from.is_none() || self.is_silent || silent_ns < self.silence_ns {
            return None;
        }
        self.is_silent = true;
        self.heard.silences += 1;
        Some(Note::Silent { silent_ns })
    }

    /// Whether it can be heard: something came, and not too long ago.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.from.is_some() && !self.is_silent
    }

    /// Who sent the last datagram.
    #[must_use]
    pub fn from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// What came so far.
    #[must_use]
    pub fn heard(&self) -> Heard {
        self.heard
    }

    fn rtp(&mut self, header: &Header, mut note: impl FnMut(Note)) {
        self.heard.rtp += 1;
        let got = header.sequence;
        let next = Some((header.ssrc, got.wrapping_add(1)));
        match self.rtp {
            None => self.rtp = next,
            Some((before, _)) if before != header.ssrc => {
                self.heard.ssrc_changes += 1;
                note(Note::SsrcChanged {
                    before,
                    now: header.ssrc,
                });
                self.rtp = next;
            }
            Some((_, expected)) => {
                let (ahead, behind) = (got.wrapping_sub(expected), expected.wrapping_sub(got));
                if ahead == 0 {
                    self.rtp = next;
                } else if ahead <= MISSING_MAX {
                    self.heard.missing += u64::from(ahead);
                    note(Note::Missing { packets: ahead });
                    self.rtp = next;
                } else if behind <= BEHIND_MAX {
                    self.heard.behind += 1;
                    note(Note::Behind { packets: behind });
                } else {
                    self.heard.restarts += 1;
                    note(Note::Restarted { expected, got });
                    self.rtp = next;
                }
            }
        }
    }

    /// Continuity counters (ISO/IEC 13818-1, 2.4.3.3): one up with each packet of a PID that has
    /// payload; a packet may come twice.
    fn transport_stream(&mut self, datagram: &[u8], mut note: impl FnMut(Note)) {
        self.heard.transport_streams += 1;
        let mut missing = 0;
        for ts in datagram.chunks_exact(TS_PACKET_BYTES) {
            let pid = usize::from(u16::from_be_bytes([ts[1], ts[2]]) & 0x1fff);
            let (has_field, has_payload) = (ts[3] & 0x20 != 0, ts[3] & 0x10 != 0);
            if pid == PIDS - 1 || !has_payload {
                continue;
            }
            let counter = ts[3] & 0xf;
            let is_announced = has_field && ts[4] > 0 && ts[5] & 0x80 != 0;
            let before = self.counters[pid].replace(counter);
            missing += u16::from(before.is_some_and(|before| {
                !is_announced && counter != before && counter != (before + 1) & 0xf
            }));
        }
        if missing > 0 {
            self.heard.missing += u64::from(missing);
            note(Note::Missing { packets: missing });
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began { from } => write!(f, "comes from {from}"),
            Self::SourceChanged { before, now } => {
                write!(f, "comes from {now} now, no longer from {before}")
            }
            Self::Refused { from, kept } => {
                write!(
                    f,
                    "is sent by {from} too, which is refused as long as {kept} sends"
                )
            }
            Self::SsrcChanged { before, now } => {
                write!(
                    f,
                    "is another RTP stream: SSRC {now:08x} instead of {before:08x}"
                )
            }
            Self::Missing { packets } => write!(f, "{packets} packets are missing"),
            Self::Behind { packets } => {
                write!(
                    f,
                    "a packet came again or out of order, {packets} behind the newest"
                )
            }
            Self::Restarted { expected, got } => {
                write!(
                    f,
                    "sequence numbers began anew at {got}; {expected} was next"
                )
            }
            Self::Silent { silent_ns } => write!(f, "silent for {:.1} s", seconds(*silent_ns)),
            Self::Resumed { silent_ns } => {
                write!(f, "is back after {:.1} s of silence", seconds(*silent_ns))
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people, to a tenth")]
fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

/// As many as 13 bits tell apart; the last is that of stuffing, whose counter means nothing.
const PIDS: usize = 1 << 13;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rtp::PAYLOAD_TYPE_MP2T;

    const A: &str = "10.0.0.1:5000";
    const SECOND: u64 = 1_000_000_000;

    fn rtp(ssrc: u32, sequence: u16) -> Vec<u8> {
        let header = Header {
            marker: false,
            payload_type: PAYLOAD_TYPE_MP2T,
            sequence,
            timestamp: 0,
            ssrc,
        };
        header.to_bytes().to_vec()
    }

    fn ts(pid: u16, counter: u8, control: u8, flags: u8) -> Vec<u8> {
        let mut ts = vec![0xff; TS_PACKET_BYTES];
        let [high, low] = pid.to_be_bytes();
        ts[..6].copy_from_slice(&[0x47, high, low, control << 4 | counter, 1, flags]);
        ts
    }

    fn notes(follower: &mut Follower, datagrams: &[Vec<u8>]) -> Vec<Note> {
        let mut notes = Vec::new();
        for datagram in datagrams {
            follower.follow(A.parse().unwrap(), datagram, 0, |note| notes.push(note));
        }
        notes
    }

    fn begun() -> Follower {
        let mut follower = Follower::new(SECOND);
        assert_eq!(notes(&mut follower, &[vec![]]).len(), 1, "began");
        follower
    }

    #[test]
    fn numbers_that_follow_each_other_are_nothing_to_tell() {
        let mut follower = begun();
        assert_eq!(
            notes(&mut follower, &[rtp(1, 65_534), rtp(1, 65_535), rtp(1, 0)]),
            []
        );
        let heard = follower.heard();
        assert_eq!((heard.datagrams, heard.rtp, heard.bytes), (4, 3, 36));
        assert_eq!((heard.missing, heard.behind, heard.restarts), (0, 0, 0));
    }

    #[test]
    fn gaps_stragglers_and_restarts_are_told_apart() {
        let first = 65_000_u16;
        let next = first.wrapping_add(1);
        for (got, expected_note) in [
            (next.wrapping_add(1), Note::Missing { packets: 1 }),
            (
                next.wrapping_add(MISSING_MAX),
                Note::Missing {
                    packets: MISSING_MAX,
                },
            ),
            (
                next.wrapping_add(MISSING_MAX + 1),
                Note::Restarted {
                    expected: next,
                    got: next.wrapping_add(MISSING_MAX + 1),
                },
            ),
            (first, Note::Behind { packets: 1 }),
            (
                next.wrapping_sub(BEHIND_MAX),
                Note::Behind {
                    packets: BEHIND_MAX,
                },
            ),
            (
                next.wrapping_sub(BEHIND_MAX + 1),
                Note::Restarted {
                    expected: next,
                    got: next.wrapping_sub(BEHIND_MAX + 1),
                },
            ),
        ] {
            let mut follower = begun();
            assert_eq!(
                notes(&mut follower, &[rtp(1, first), rtp(1, got)]),
                [expected_note]
            );
            // After a straggler the newest goes on, after all else the one that came.
            let after = match expected_note {
                Note::Behind { .. } => next,
                _ => got.wrapping_add(1),
            };
            assert_eq!(
                notes(&mut follower, &[rtp(1, after)]),
                [],
                "{expected_note:?}"
            );
        }
    }

    #[test]
    fn another_stream_and_another_sender_are_noted_and_begin_anew() {
        let mut follower = begun();
        let changed = notes(&mut follower, &[rtp(1, 7), rtp(2, 9000), rtp(2, 9001)]);
        assert_eq!(changed, [Note::SsrcChanged { before: 1, now: 2 }]);
        let mut changed = Vec::new();
        let now = "[::1]:7".parse().unwrap();
        follower.follow(now, &rtp(2, 9002), 0, |note| changed.push(note));
        let before = A.parse().unwrap();
        assert_eq!(changed, [Note::SourceChanged { before, now }]);
        let heard = follower.heard();
        assert_eq!((heard.ssrc_changes, heard.source_changes), (1, 1));
        assert_eq!(follower.from(), Some(now));
    }

    #[test]
    fn datagrams_of_others_are_counted_and_logged_once() {
        let (kept, other) = (A.parse().unwrap(), "10.0.0.1:5001".parse().unwrap());
        let packets = [rtp(1, 1), rtp(1, 2), rtp(1, 3)];
        let mut anybody = Follower::new(SECOND);
        let mut follower = Follower::new(SECOND).keeping_sender(SECOND);
        let mut notes = Vec::new();
        for from in [kept, other, other, kept] {
            let all = || packets.iter().map(Vec::as_slice);
            let is_in = follower.admit(from, all(), (0, 0), |note| notes.push(note));
            assert_eq!(is_in, from == kept);
            assert!(anybody.admit(from, all(), (0, 0), |note| panic!("{note}")));
        }
        assert_eq!(notes, [Note::Refused { from: other, kept }]);
        assert_eq!(follower.heard().from_others, 6);
        assert_eq!(follower.heard().datagrams, 0, "nothing was followed");
        assert_eq!(anybody.heard().from_others, 0);
    }

    #[test]
    fn a_sender_is_kept_that_another_process_has_heard() {
        let (kept, other) = (A.parse().unwrap(), "10.0.0.1:5001".parse().unwrap());
        let packet = rtp(1, 1);
        let mut follower = Follower::new(SECOND).keeping_sender(SECOND);
        follower.keep(kept, 0);
        let mut admits = |from, now_ns| {
            let all = std::iter::once(packet.as_slice());
            follower.admit(from, all, (now_ns, now_ns), drop)
        };
        assert!(!admits(other, SECOND - 1));
        assert!(admits(kept, SECOND - 1));
        assert!(admits(other, 2 * SECOND), "the other is silent");
    }

    #[test]
    fn silence_is_told_once_and_so_is_its_end() {
        let mut follower = Follower::new(SECOND);
        assert_eq!(
            follower.look(5 * SECOND),
            None,
            "nothing has come that could stop"
        );
        assert!(!follower.is_heard());
        notes(&mut follower, &[rtp(1, 1)]);
        assert_eq!(follower.look(SECOND - 1), None);
        assert!(follower.is_heard());
        assert_eq!(
            follower.look(SECOND),
            Some(Note::Silent { silent_ns: SECOND })
        );
        assert_eq!(follower.look(9 * SECOND), None);
        assert!(!follower.is_heard());
        let mut resumed = Vec::new();
        follower.follow(A.parse().unwrap(), &rtp(1, 2), 3 * SECOND, |note| {
            resumed.push(note)
        });
        assert_eq!(
            resumed,
            [Note::Resumed {
                silent_ns: 3 * SECOND
            }]
        );
        assert_eq!(follower.heard().silences, 1);
    }

    #[test]
    fn continuity_counters_are_followed_by_pid() {
        let mut follower = begun();
        let fine = [
            ts(1, 15, 1, 0),
            ts(2, 3, 1, 0),
            ts(1, 0, 1, 0),
            // Without payload it does not count, and one may come twice.
            ts(1, 0, 2, 0),
            ts(1, 0, 1, 0),
            ts(2, 4, 3, 0),
            // Announced.
            ts(2, 9, 3, 0x80),
            ts(0x1fff, 7, 1, 0),
            ts(0x1fff, 7, 1, 0),
            ts(0x1fff, 3, 1, 0),
        ];
        assert_eq!(notes(&mut follower, &fine), []);
        let jumps = [[ts(1, 3, 1, 0), ts(2, 11, 1, 0)].concat(), ts(1, 4, 1, 0)];
        assert_eq!(notes(&mut follower, &jumps), [Note::Missing { packets: 2 }]);
        assert_eq!(follower.heard().transport_streams, 12);
    }

    proptest! {
        /// What is missing and what came make up what was sent, if nothing else happened.
        #[test]
        fn what_is_lost_is_counted(first: u16, kept in proptest::collection::vec(any::<bool>(),
            2..500)) {
            let mut follower = Follower::new(SECOND);
            let sent = (0_u16..).zip(&kept).filter(|(_, kept)| **kept);
            let numbers: Vec<_> = sent.map(|(i, _)| first.wrapping_add(i)).collect();
            let datagrams: Vec<_> = numbers.iter().map(|&number| rtp(1, number)).collect();
            notes(&mut follower, &datagrams);
            let spanned = match (numbers.first(), numbers.last()) {
                (Some(first), Some(last)) => u64::from(last.wrapping_sub(*first)) + 1,
                _ => 0,
            };
            prop_assert_eq!(follower.heard().missing + follower.heard().rtp, spanned);
        }
    }
}
