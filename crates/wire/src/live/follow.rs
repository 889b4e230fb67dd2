//! What happens to a stream on its way here: who sends it, what is missing, when it falls silent.

use std::fmt;
use std::net::SocketAddr;

use super::Kind;
use super::align::{Aligner, is_cut};
use super::sender::{SenderLock, Verdict};
use crate::media::TS_PACKET_BYTES;
use crate::rtp::{Header, Stragglers, payload};

/// RTP packets that may be missing at one place before the numbers are taken to have begun anew
/// (`MAX_DROPOUT` of RFC 3550, appendix A.1).
const MISSING_MAX: u16 = 3000;

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
    /// Datagrams begin and end within transport packets.
    Cut,
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
    /// Those that were transport packets without RTP, or pieces of some.
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
    stragglers: Stragglers,
    /// By PID, the counter of its last packet.
    counters: Box<[Option<u8>]>,
    /// Of a stream whose datagrams are pieces of it.
    aligner: Option<Aligner>,
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
            stragglers: Stragglers::default(),
            counters: vec![None; PIDS].into(),
            aligner: None,
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
        let is_stream = || !matches!(Kind::of(first), Kind::Other) || is_cut(first);
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
                self.aligner = None;
                note(Note::SourceChanged { before, now: from });
            }
            Some(_) => {}
        }
        if std::mem::take(&mut self.is_silent) {
            let silent_ns = now_ns.saturating_sub(self.arrived_ns);
            note(Note::Resumed { silent_ns });
        }
        self.arrived_ns = now_ns;
        let kind = self.kind(datagram);
        match kind {
            Kind::Rtp(header) => self.rtp(&header, note),
            Kind::TransportStream => {
                self.heard.transport_streams += 1;
                self.continuity(datagram, note);
            }
            Kind::Cut => {
                self.heard.transport_streams += 1;
                if self.aligner.is_none() {
                    self.aligner = Some(Aligner::default());
                    note(Note::Cut);
                }
            }
            Kind::Other => {}
        }
        kind
    }

    /// What a datagram is, by those before it, too: one that ends a packet may look like any other.
    fn kind(&mut self, datagram: &[u8]) -> Kind {
        let kind = Kind::of(datagram);
        if let (None, Kind::Rtp(header)) = (&self.aligner, kind)
            && self.rtp.is_some_and(|(ssrc, _)| ssrc == header.ssrc)
        {
            return kind;
        }
        let carries_packets = || {
            let payload = payload(datagram).unwrap_or_default();
            matches!(Kind::of(payload), Kind::TransportStream)
        };
        match (&self.aligner, kind) {
            (_, Kind::Rtp(_)) if carries_packets() => {}
            (None, Kind::TransportStream) => {}
            (Some(aligner), _) if aligner.takes(datagram) => return Kind::Cut,
            (_, Kind::Rtp(_) | Kind::Other) if is_cut(datagram) => return Kind::Cut,
            _ => {}
        }
        self.aligner = None;
        kind
    }

    /// Takes a datagram that [`follow`](Self::follow) called [`Kind::Cut`], and gives the transport
    /// packets that are whole by it, as many at a time as fit into a packet of RTP.
    pub fn align(
        &mut self,
        datagram: &[u8],
        mut note: impl FnMut(Note),
        mut give: impl FnMut(&[u8]),
    ) {
        let Some(mut aligner) = self.aligner.take() else {
            return;
        };
        aligner.push(datagram, |packets| {
            self.continuity(packets, &mut note);
            give(packets);
        });
        self.aligner = Some(aligner);
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
            None => {}
            Some((before, _)) if before != header.ssrc => {
                self.heard.ssrc_changes += 1;
                self.stragglers = Stragglers::default();
                note(Note::SsrcChanged {
                    before,
                    now: header.ssrc,
                });
            }
            Some((_, expected)) => {
                if self.stragglers.is_late(got, expected) {
                    self.heard.behind += 1;
                    let packets = expected.wrapping_sub(got);
                    return note(Note::Behind { packets });
                }
                match got.wrapping_sub(expected) {
                    0 => {}
                    packets @ 1..=MISSING_MAX => {
                        self.heard.missing += u64::from(packets);
                        note(Note::Missing { packets });
                    }
                    _ => {
                        self.heard.restarts += 1;
                        note(Note::Restarted { expected, got });
                    }
                }
            }
        }
        self.rtp = next;
    }

    /// Continuity counters (ISO/IEC 13818-1, 2.4.3.3): one up with each packet of a PID that has
    /// payload; a packet may come twice.
    fn continuity(&mut self, datagram: &[u8], mut note: impl FnMut(Note)) {
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
            Self::Cut => write!(
                f,
                "sends datagrams that begin within transport packets, which are put together \
                 again for players; whole ones are better (ffmpeg: udp://...?pkt_size=1316)"
            ),
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
mod tests;
