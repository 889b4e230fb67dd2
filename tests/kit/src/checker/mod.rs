//! Judges one session's RTP packets against the file they should carry.
//!
//! The checker knows nothing of the server: it is given the transport packets of the file and what
//! arrived when, and says exactly where the two part. Position follows the sequence numbers, so a
//! lost packet is one [`Fault::Missing`] and not a flood of wrong bytes.
//!
//! Timestamps are judged without a clock of their own: a PCR inside packet *k* must lie, but for
//! one constant per continuous stretch, between the timestamps of packets *k* and *k* + 1. Not
//! here: sockets (see [`receiver`](crate::receiver)), so that every fault can be planted in a unit
//! test.

use std::sync::Arc;

use onrush_wire::rtp::{HEADER_BYTES, Header, PAYLOAD_TYPE_MP2T};
use thiserror::Error;

mod clock;

use clock::{Clock, ticks_between};

/// What should arrive.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The file's transport packets, [`TS_BYTES`] each, in order: no M2TS time codes, no garbage.
    pub ts: Arc<[u8]>,
    /// Where in them the session starts.
    pub start: Start,
    /// Arrive they must up to before this transport packet; `None` for wherever the session was
    /// stopped.
    pub end: Option<u64>,
    /// Transport packets in every RTP packet but the last.
    pub ts_packets_per_rtp: u64,
    /// The sequence number that RTP-Info announced.
    pub sequence: Option<u16>,
    /// The RTP timestamp that RTP-Info announced.
    pub timestamp: Option<u32>,
    /// How late a packet may arrive against its timestamp and the first arrival, in ns.
    pub lateness_ns_max: Option<i64>,
}

/// Where a session starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Start {
    /// At this transport packet.
    At(u64),
    /// Where in the file the first payloads are found; [`Report::start`] says where that is.
    Found,
}

/// One datagram and when it arrived.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Datagram {
    /// In ns of any steady clock.
    pub arrival_ns: u64,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// One thing that was wrong. Packets are counted from 0 in order of arrival.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Not one packet arrived.
    #[error("nothing arrived")]
    Nothing,
    /// Not RTP version 2 with payload type 33 and whole transport packets.
    #[error("packet {packet}: {bytes} bytes are no RTP packet of transport packets")]
    NotRtp {
        /// Which.
        packet: u64,
        /// Its length.
        bytes: usize,
    },
    /// The synchronisation source changed.
    #[error("packet {packet}: SSRC {got:08x}, but the session began with {expected:08x}")]
    Ssrc {
        /// Which.
        packet: u64,
        /// The first packet's.
        expected: u32,
        /// This one's.
        got: u32,
    },
    /// The first sequence number is not the announced one.
    #[error("first sequence number {got}, but RTP-Info announced {expected}")]
    FirstSequence {
        /// Announced.
        expected: u16,
        /// Arrived.
        got: u16,
    },
    /// The first timestamp is not the announced one.
    #[error("first timestamp {got}, but RTP-Info announced {expected}")]
    FirstTimestamp {
        /// Announced.
        expected: u32,
        /// Arrived.
        got: u32,
    },
    /// Sequence numbers were jumped over.
    #[error("packet {packet}: sequence number {got} after {}: {missing} \
     missing", got.wrapping_sub(missing + 1))]
    Missing {
        /// The packet after the gap.
        packet: u64,
        /// Its number.
        got: u16,
        /// How many are missing before it.
        missing: u16,
    },
    /// A sequence number came again, or too late.
    #[error("packet {packet}: sequence number {got} again or out of order; {expected} was next")]
    Repeated {
        /// Which.
        packet: u64,
        /// Its number.
        got: u16,
        /// The number that was next.
        expected: u16,
    },
    /// The first payload is nowhere in the file.
    #[error("the first payload is nowhere in the file")]
    NotFound,
    /// A byte differs from the file's.
    #[error(
        "packet {packet}: byte {byte} of transport packet {ts_packet} is {got:#04x}, in the file \
         {expected:#04x}"
    )]
    WrongByte {
        /// Which.
        packet: u64,
        /// The file's transport packet.
        ts_packet: u64,
        /// The first byte of it that differs.
        byte: usize,
        /// In the file.
        expected: u8,
        /// Arrived.
        got: u8,
    },
    /// More arrived than the file, or the range asked for, holds.
    #[error("packet {packet}: transport packet {ts_packet} is beyond the end at {end}")]
    Surplus {
        /// Which.
        packet: u64,
        /// The first transport packet too many.
        ts_packet: u64,
        /// Where the end should be.
        end: u64,
    },
    /// Less arrived than should have.
    #[error("ended before transport packet {ts_packet}, expected up to {end}")]
    EndedEarly {
        /// The first that did not arrive.
        ts_packet: u64,
        /// Where the end should be.
        end: u64,
    },
    /// A packet that is not the last holds fewer transport packets than agreed.
    #[error("packet {packet}: {ts_packets} transport packets, {expected} were agreed")]
    Size {
        /// Which.
        packet: u64,
        /// How many it held.
        ts_packets: u64,
        /// How many it should hold.
        expected: u64,
    },
    /// A timestamp is before its predecessor's.
    #[error("packet {packet}: timestamp {got} is before {previous}")]
    TimestampBackwards {
        /// Which.
        packet: u64,
        /// The packet before.
        previous: u32,
        /// This one's.
        got: u32,
    },
    /// Timestamps do not follow the file's clock.
    #[error("packet {packet}: timestamps and PCR disagree by {ticks} ticks of 90 kHz")]
    TimestampOffPcr {
        /// The packet that holds the PCR.
        packet: u64,
        /// By how much.
        ticks: i64,
    },
    /// A packet came too late against its timestamp.
    #[error("packet {packet}: {lateness_ns} ns late, {lateness_ns_max} are allowed")]
    Late {
        /// Which.
        packet: u64,
        /// How late.
        lateness_ns: i64,
        /// How late it might have been.
        lateness_ns_max: i64,
    },
}

/// The judgement.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The first [`FAULTS_MAX`] faults.
    pub faults: Vec<Fault>,
    /// All faults.
    pub faults_total: u64,
    /// RTP packets that arrived, the faulty ones too.
    pub packets: u64,
    /// Transport packets that were compared with the file.
    pub ts_packets: u64,
    /// The file's transport packet with which the session started.
    pub start: Option<u64>,
    /// The first packet's header.
    pub first: Option<Header>,
    /// The last packet's timestamp minus the first's, in 90 kHz ticks.
    pub span_ticks: i64,
    /// Clock references that agreed with the timestamps.
    pub pcrs: u64,
    /// The latest packet's lateness in ns.
    pub lateness_ns_max: i64,
}

/// Judges all that arrived, in order of arrival.
///
/// # Panics
///
/// If `expected.ts` is not whole transport packets.
#[must_use]
pub fn judge(expected: Expected, arrived: &[Datagram]) -> Report {
    assert!(
        expected.ts.len().is_multiple_of(TS_BYTES),
        "only whole transport packets"
    );
    assert!(
        expected.ts.chunks_exact(TS_BYTES).all(|ts| ts[0] == 0x47),
        "with sync bytes"
    );
    let start = match expected.start {
        Start::At(start) => Some(start),
        Start::Found => locate(&expected, arrived),
    };
    let mut checker = Checker::new(expected, start.unwrap_or(0));
    match start {
        _ if arrived.is_empty() => checker.fault(Fault::Nothing),
        None => checker.fault(Fault::NotFound),
        Some(_) => arrived.iter().for_each(|datagram| checker.push(datagram)),
    }
    checker.finish()
}

/// Compares packets, one by one, with what is expected.
struct Checker {
    expected: Expected,
    report: Report,
    arrival_ns_first: u64,
    sequence_next: u16,
    position: u64,
    short: Option<Fault>,
    clock: Clock,
    previous: Option<Header>,
}

impl Checker {
    fn new(expected: Expected, start: u64) -> Self {
        Self {
            expected,
            report: Report::default(),
            arrival_ns_first: 0,
            sequence_next: 0,
            position: start,
            short: None,
            clock: Clock::default(),
            previous: None,
        }
    }

    fn push(&mut self, datagram: &Datagram) {
        let packet = self.report.packets;
        self.report.packets += 1;
        let bytes = datagram.bytes.len();
        let Some((header, payload)) = split(&datagram.bytes) else {
            return self.fault(Fault::NotRtp { packet, bytes });
        };
        if self.report.first.is_none() {
            self.begin(datagram.arrival_ns, &header);
        }
        if let Some(fault) = self.short.take() {
            self.fault(fault);
        }
        if !self.order(packet, &header) {
            return;
        }
        self.time(packet, datagram.arrival_ns, &header);
        self.bytes(packet, payload);
        let clock = self
            .clock
            .read(packet, header.timestamp, payload, &mut self.report.pcrs);
        if let Some(fault) = clock {
            self.fault(fault);
        }
        self.previous = Some(header);
    }

    fn finish(mut self) -> Report {
        let ts_packet = self.position;
        match self.expected.end {
            Some(end) if ts_packet < end => self.fault(Fault::EndedEarly { ts_packet, end }),
            _ => {}
        }
        self.report
    }

    fn begin(&mut self, arrival_ns: u64, header: &Header) {
        let (sequence, timestamp) = (header.sequence, header.timestamp);
        if let Some(expected) = self
            .expected
            .sequence
            .filter(|&expected| expected != sequence)
        {
            self.fault(Fault::FirstSequence {
                expected,
                got: sequence,
            });
        }
        if let Some(expected) = self
            .expected
            .timestamp
            .filter(|&expected| expected != timestamp)
        {
            self.fault(Fault::FirstTimestamp {
                expected,
                got: timestamp,
            });
        }
        self.report.first = Some(*header);
        self.report.start = Some(self.position);
        self.sequence_next = sequence;
        self.arrival_ns_first = arrival_ns;
    }

    /// Sequence and source; false when the packet is not one to compare.
    fn order(&mut self, packet: u64, header: &Header) -> bool {
        let begun = self.report.first.expect("set by the first packet");
        if header.ssrc != begun.ssrc {
            self.fault(Fault::Ssrc {
                packet,
                expected: begun.ssrc,
                got: header.ssrc,
            });
        }
        let (got, expected) = (header.sequence, self.sequence_next);
        let jump = got.wrapping_sub(expected);
        if jump >= 0x8000 {
            self.fault(Fault::Repeated {
                packet,
                got,
                expected,
            });
            return false;
        }
        if jump > 0 {
            self.fault(Fault::Missing {
                packet,
                got,
                missing: jump,
            });
            self.position += u64::from(jump) * self.expected.ts_packets_per_rtp;
            self.clock = Clock::default();
        }
        self.sequence_next = got.wrapping_add(1);
        true
    }

    fn time(&mut self, packet: u64, arrival_ns: u64, header: &Header) {
        let begun = self.report.first.expect("set by the first packet");
        let got = header.timestamp;
        if let Some(previous) = self.previous.map(|header| header.timestamp) {
            let step = ticks_between(previous, got);
            self.report.span_ticks += step;
            if step < 0 {
                self.fault(Fault::TimestampBackwards {
                    packet,
                    previous,
                    got,
                });
            }
        }
        let elapsed_ns = arrival_ns
            .saturating_sub(self.arrival_ns_first)
            .cast_signed();
        let lateness_ns = elapsed_ns - ticks_between(begun.timestamp, got) * 100_000 / 9;
        self.report.lateness_ns_max = self.report.lateness_ns_max.max(lateness_ns);
        match self.expected.lateness_ns_max {
            Some(lateness_ns_max) if lateness_ns > lateness_ns_max => {
                self.fault(Fault::Late {
                    packet,
                    lateness_ns,
                    lateness_ns_max,
                });
            }
            _ => {}
        }
    }

    fn bytes(&mut self, packet: u64, payload: &[u8]) {
        let ts_packets = (payload.len() / TS_BYTES) as u64;
        let expected = self.expected.ts_packets_per_rtp;
        if ts_packets > expected {
            self.fault(Fault::Size {
                packet,
                ts_packets,
                expected,
            });
        } else if ts_packets < expected {
            // The last may be shorter; whether it is the last shows when another follows.
            self.short = Some(Fault::Size {
                packet,
                ts_packets,
                expected,
            });
        }
        let file = Arc::clone(&self.expected.ts);
        let end = self.expected.end.unwrap_or((file.len() / TS_BYTES) as u64);
        let from = self.position;
        // All of it, also where the comparison ends at the first difference.
        self.position += ts_packets;
        for (ts_packet, got) in (from..).zip(payload.chunks_exact(TS_BYTES)) {
            if ts_packet >= end {
                return self.fault(Fault::Surplus {
                    packet,
                    ts_packet,
                    end,
                });
            }
            self.report.ts_packets += 1;
            let at = usize::try_from(ts_packet).expect("the file is in memory") * TS_BYTES;
            let expected = &file[at..at + TS_BYTES];
            let wrong = got
                .iter()
                .zip(expected)
                .position(|(got, expected)| got != expected);
            if let Some(byte) = wrong {
                let (expected, got) = (expected[byte], got[byte]);
                return self.fault(Fault::WrongByte {
                    packet,
                    ts_packet,
                    byte,
                    expected,
                    got,
                });
            }
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.report.faults_total += 1;
        if self.report.faults.len() < FAULTS_MAX {
            self.report.faults.push(fault);
        }
    }
}

impl Report {
    /// Panics with the first faults, unless there are none.
    ///
    /// # Panics
    ///
    /// If anything was wrong.
    pub fn assert_clean(&self, what: &str) {
        if self.faults_total > 0 {
            let lines: Vec<_> = self
                .faults
                .iter()
                .map(|fault| format!("\n  {fault}"))
                .collect();
            let (total, packets) = (self.faults_total, self.packets);
            panic!(
                "{what}: {total} faults in {packets} packets:{}",
                lines.concat()
            );
        }
    }
}

fn split(datagram: &[u8]) -> Option<(Header, &[u8])> {
    let header = Header::read(datagram)?;
    let payload = &datagram[HEADER_BYTES..];
    let plain = datagram[0] == 0x80 && header.payload_type == PAYLOAD_TYPE_MP2T;
    let whole = !payload.is_empty() && payload.len().is_multiple_of(TS_BYTES);
    (plain && whole).then_some((header, payload))
}

/// Where the first payload is in the file; where that is in doubt, as with padding, the place that
/// the payloads after it agree with most.
fn locate(expected: &Expected, arrived: &[Datagram]) -> Option<u64> {
    let mut packets = arrived.iter().filter_map(|datagram| split(&datagram.bytes));
    let (first, payload) = packets.next()?;
    let witnesses: Vec<_> = packets.take(WITNESSES_MAX).collect();
    let bytes_per_rtp = usize::try_from(expected.ts_packets_per_rtp).ok()? * TS_BYTES;
    let agrees = |at: usize, payload: &[u8]| {
        expected
            .ts
            .get(at..)
            .is_some_and(|file| file.starts_with(payload))
    };
    let score = |at: usize| {
        let agrees = |&&(header, payload): &&(Header, &[u8])| {
            let distance = header.sequence.wrapping_sub(first.sequence);
            agrees(at + usize::from(distance) * bytes_per_rtp, payload)
        };
        witnesses.iter().filter(agrees).count()
    };
    let places = (0..expected.ts.len())
        .step_by(TS_BYTES)
        .filter(|&at| agrees(at, payload));
    // Reversed, since of equals max_by_key takes the last.
    let best = places.rev().max_by_key(|&at| score(at))?;
    Some((best / TS_BYTES) as u64)
}

/// Bytes of a transport packet.
pub const TS_BYTES: usize = 188;
/// Faults a report keeps; the rest are counted.
pub const FAULTS_MAX: usize = 16;
/// Packets after the first that are asked where the first belongs.
const WITNESSES_MAX: usize = 32;
#[cfg(test)]
mod tests;
