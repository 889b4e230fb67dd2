//! Judges one session's RTP packets against the file they should carry.
//!
//! The checker knows nothing of the server: it is given the transport packets of the file and what
//! arrived when, and says exactly where the two part. Position follows the sequence numbers, so a lost
//! packet is one [`Fault::Missing`] and not a flood of wrong bytes.
//!
//! Timestamps are judged without a clock of their own: a PCR inside packet *k* must lie, but for one
//! constant per continuous stretch, between the timestamps of packets *k* and *k* + 1. Not here: sockets
//! (see [`receiver`](crate::receiver)), so that every fault can be planted in a unit test.

use std::sync::Arc;

use onrush_wire::rtp::{HEADER_BYTES, Header, PAYLOAD_TYPE_MP2T};
use thiserror::Error;

/// What should arrive.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The file's transport packets, [`TS_BYTES`] each, in order: no M2TS time codes, no garbage.
    pub ts: Arc<[u8]>,
    /// Where in them the session starts.
    pub start: Start,
    /// Arrive they must up to before this transport packet; `None` for wherever the session was stopped.
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
    #[error("packet {packet}: sequence number {got} after {}: {missing} missing", got.wrapping_sub(missing + 1))]
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
        "packet {packet}: byte {byte} of transport packet {ts_packet} is {got:#04x}, in the file {expected:#04x}"
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

/// The relation between timestamps and the PCRs of one PID, over one continuous stretch.
#[derive(Debug, Default)]
struct Clock {
    pid: Option<u16>,
    /// The timestamp and the PCR that differences are taken from.
    origin: Option<(u32, u64)>,
    pcr_previous: u64,
    /// What PCR minus timestamp may be, after all that was seen: lowest and highest, in ticks.
    offset: Option<(i64, i64)>,
    /// PCRs of the packet before, which the next timestamp bounds from above.
    pending: Vec<u64>,
    pending_packet: u64,
    pending_timestamp: u32,
}

impl Clock {
    fn read(
        &mut self,
        packet: u64,
        timestamp: u32,
        payload: &[u8],
        pcrs: &mut u64,
    ) -> Option<Fault> {
        let mut fault = None;
        for pcr in std::mem::take(&mut self.pending) {
            // Every PCR narrows the bounds, also behind a fault.
            let found = self.bound(pcr, timestamp);
            if fault.is_none() {
                fault = found;
            }
            *pcrs += 1;
        }
        for ts in payload.chunks_exact(TS_BYTES) {
            let Some((pid, pcr, discontinuity)) = clock_reference(ts) else {
                continue;
            };
            if *self.pid.get_or_insert(pid) != pid {
                continue;
            }
            let jumped = pcr_between(self.pcr_previous, pcr);
            if discontinuity || !(0..=JUMP_TICKS).contains(&jumped) {
                *self = Self {
                    pid: self.pid,
                    ..Self::default()
                };
            }
            self.origin.get_or_insert((timestamp, pcr));
            self.pcr_previous = pcr;
            self.pending.push(pcr);
        }
        (self.pending_packet, self.pending_timestamp) = (packet, timestamp);
        fault
    }

    /// A PCR between the pending packet's timestamp and the `next` one.
    fn bound(&mut self, pcr: u64, next: u32) -> Option<Fault> {
        let (timestamp_origin, pcr_origin) = self.origin?;
        let at = pcr_between(pcr_origin, pcr);
        // A tick either way: both clocks are rounded.
        let lowest = at - ticks_between(timestamp_origin, next) - 1;
        let highest = at - ticks_between(timestamp_origin, self.pending_timestamp) + 1;
        let (low, high) = self.offset.unwrap_or((i64::MIN, i64::MAX));
        let (low, high) = (low.max(lowest), high.min(highest));
        if low <= high {
            self.offset = Some((low, high));
            return None;
        }
        self.offset = None;
        Some(Fault::TimestampOffPcr {
            packet: self.pending_packet,
            ticks: low - high,
        })
    }
}

fn split(datagram: &[u8]) -> Option<(Header, &[u8])> {
    let header = Header::read(datagram)?;
    let payload = &datagram[HEADER_BYTES..];
    let plain = datagram[0] == 0x80 && header.payload_type == PAYLOAD_TYPE_MP2T;
    let whole = !payload.is_empty() && payload.len().is_multiple_of(TS_BYTES);
    (plain && whole).then_some((header, payload))
}

/// Where the first payload is in the file; where that is in doubt, as with padding, the place that the
/// payloads after it agree with most.
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

/// PID, PCR base (90 kHz) and discontinuity indicator of a transport packet that has a PCR
/// (ISO/IEC 13818-1, 2.4.3.4).
fn clock_reference(ts: &[u8]) -> Option<(u16, u64, bool)> {
    if ts[3] & 0x20 == 0 || ts[4] < 7 || ts[5] & 0x10 == 0 {
        return None;
    }
    let pid = u16::from_be_bytes([ts[1] & 0x1f, ts[2]]);
    let base = u64::from(u32::from_be_bytes([ts[6], ts[7], ts[8], ts[9]])) << 1;
    Some((pid, base | u64::from(ts[10] >> 7), ts[5] & 0x80 != 0))
}

fn ticks_between(from: u32, to: u32) -> i64 {
    i64::from(to.wrapping_sub(from).cast_signed())
}

/// Of 33-bit clocks.
fn pcr_between(from: u64, to: u64) -> i64 {
    (to.wrapping_sub(from) << 31).cast_signed() >> 31
}

/// Bytes of a transport packet.
pub const TS_BYTES: usize = 188;
/// Faults a report keeps; the rest are counted.
pub const FAULTS_MAX: usize = 16;
/// Packets after the first that are asked where the first belongs.
const WITNESSES_MAX: usize = 32;
/// Clock references further apart than this are a discontinuity: 100 ms are allowed.
const JUMP_TICKS: i64 = 90_000;

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_PACKETS: u64 = 100;
    /// Ticks between two transport packets of the file.
    const TICKS: u64 = 90;

    /// Transport packets that differ, every tenth with a PCR, `pcr_first` at the first.
    fn file(pcr_first: u64) -> Arc<[u8]> {
        let mut file = Vec::new();
        for packet in 0..FILE_PACKETS {
            let mut ts = [u8::try_from(packet).unwrap(); TS_BYTES];
            ts[..4].copy_from_slice(&[0x47, 0x01, 0x00, 0x10]);
            if packet % 10 == 0 {
                let pcr = (pcr_first + packet * TICKS) & 0x1_ffff_ffff;
                ts[3] = 0x30;
                ts[4] = 7;
                ts[5] = 0x10;
                ts[6..10].copy_from_slice(&u32::try_from(pcr >> 1).unwrap().to_be_bytes());
                ts[10] = u8::try_from(pcr & 1).unwrap() << 7;
            }
            file.extend(ts);
        }
        file.into()
    }

    fn expected(ts: &Arc<[u8]>) -> Expected {
        Expected {
            ts: Arc::clone(ts),
            start: Start::Found,
            end: Some(FILE_PACKETS),
            ts_packets_per_rtp: 7,
            sequence: Some(65_530),
            timestamp: Some(0xffff_fff0),
            lateness_ns_max: Some(20_000_000),
        }
    }

    /// What a faultless server sends of the file from transport packet `start`: when, and what.
    fn stream(file: &[u8], start: u64) -> Vec<Datagram> {
        let from = usize::try_from(start).unwrap() * TS_BYTES;
        let mut sent = Vec::new();
        for (i, payload) in (0..).zip(file[from..].chunks(7 * TS_BYTES)) {
            let ticks = u64::from(i) * 7 * TICKS;
            let header = Header {
                marker: false,
                payload_type: PAYLOAD_TYPE_MP2T,
                sequence: 65_530_u16.wrapping_add(i),
                timestamp: 0xffff_fff0_u32.wrapping_add(u32::try_from(ticks).unwrap()),
                ssrc: 0xfeed,
            };
            let bytes = [&header.to_bytes(), payload].concat();
            sent.push(Datagram {
                arrival_ns: 1_000 + ticks * 100_000 / 9,
                bytes,
            });
        }
        sent
    }

    fn faults(plant: impl FnOnce(&mut Vec<Datagram>)) -> Vec<Fault> {
        let file = file(1 << 32);
        let mut sent = stream(&file, 0);
        plant(&mut sent);
        let report = judge(expected(&file), &sent);
        assert_eq!(report.faults.len() as u64, report.faults_total);
        report.faults
    }

    #[test]
    fn a_faultless_stream_is_clean_across_the_wraps_of_all_three_clocks() {
        for start in [0, 3, 50, 99] {
            // The PCR wraps in the middle of the file.
            let file = file((1 << 33) - 50 * TICKS);
            let report = judge(expected(&file), &stream(&file, start));
            report.assert_clean("faultless");
            assert_eq!(
                (report.start, report.ts_packets),
                (Some(start), FILE_PACKETS - start)
            );
            assert_eq!(report.packets, (FILE_PACKETS - start).div_ceil(7));
        }
        let file = file(0);
        let report = judge(expected(&file), &stream(&file, 0));
        assert_eq!((report.pcrs, report.lateness_ns_max), (10, 0));
        assert_eq!(report.span_ticks, 14 * 7 * 90);
    }

    #[test]
    fn a_dropped_packet_is_caught() {
        let caught = faults(|sent| drop(sent.remove(8)));
        assert_eq!(
            caught,
            [Fault::Missing {
                packet: 8,
                got: 3,
                missing: 1
            }]
        );
        let said = caught[0].to_string();
        assert_eq!(said, "packet 8: sequence number 3 after 1: 1 missing");
        let caught = faults(|sent| drop(sent.pop()));
        assert_eq!(
            caught,
            [Fault::EndedEarly {
                ts_packet: 98,
                end: 100
            }]
        );
        assert_eq!(faults(Vec::clear)[0], Fault::Nothing);
    }

    #[test]
    fn a_repeated_sequence_number_is_caught() {
        let again = Fault::Repeated {
            packet: 9,
            got: 2,
            expected: 3,
        };
        assert_eq!(faults(|sent| sent.insert(9, sent[8].clone())), [again]);
        // The number again, on the next packet's bytes: then the number after is jumped over.
        let caught = faults(|sent| sent[9].bytes[2..4].copy_from_slice(&2_u16.to_be_bytes()));
        assert_eq!(caught.len(), 2);
        assert!(matches!(
            caught[0],
            Fault::Repeated {
                packet: 9,
                got: 2,
                expected: 3
            }
        ));
        assert!(matches!(
            caught[1],
            Fault::Missing {
                packet: 10,
                got: 4,
                missing: 1
            }
        ));
        let caught = faults(|sent| sent.swap(3, 4));
        assert!(matches!(caught[0], Fault::Missing { packet: 3, .. }));
        assert!(matches!(caught[1], Fault::Repeated { packet: 4, .. }));
    }

    #[test]
    fn one_wrong_byte_is_caught_and_placed() {
        let caught = faults(|sent| sent[2].bytes[HEADER_BYTES + 3 * TS_BYTES + 187] ^= 1);
        let wrong = Fault::WrongByte {
            packet: 2,
            ts_packet: 17,
            byte: 187,
            expected: 17,
            got: 16,
        };
        assert_eq!(caught, [wrong]);
    }

    #[test]
    fn a_late_burst_is_caught() {
        let caught = faults(|sent| {
            sent[5..8]
                .iter_mut()
                .for_each(|late| late.arrival_ns += 20_000_002)
        });
        assert_eq!(caught.len(), 3);
        assert!(matches!(
            caught[0],
            Fault::Late {
                packet: 5,
                lateness_ns: 20_000_002,
                ..
            }
        ));
        // Exactly as late as allowed; a rounded tick more is not hidden in this tolerance.
        assert_eq!(faults(|sent| sent[9].arrival_ns += 20_000_000), []);
    }

    #[test]
    fn wrong_headers_are_caught() {
        let caught = faults(|sent| sent[4].bytes[0] = 0x90);
        assert_eq!(
            caught[0],
            Fault::NotRtp {
                packet: 4,
                bytes: 1328
            }
        );
        assert!(matches!(
            faults(|sent| sent[4].bytes[1] = 34)[0],
            Fault::NotRtp { packet: 4, .. }
        ));
        assert!(matches!(
            faults(|sent| sent[4].bytes[11] = 0)[0],
            Fault::Ssrc { packet: 4, .. }
        ));
        let caught = faults(|sent| sent[4].bytes.truncate(1327));
        assert_eq!(
            caught[0],
            Fault::NotRtp {
                packet: 4,
                bytes: 1327
            }
        );
        let caught = faults(|sent| drop(sent.remove(0)));
        assert_eq!(
            caught[0],
            Fault::FirstSequence {
                expected: 65_530,
                got: 65_531
            }
        );
        assert!(matches!(caught[1], Fault::FirstTimestamp { .. }));
    }

    #[test]
    fn short_and_surplus_packets_are_caught() {
        let caught = faults(|sent| sent[4].bytes.truncate(HEADER_BYTES + 6 * TS_BYTES));
        assert_eq!(
            caught[0],
            Fault::Size {
                packet: 4,
                ts_packets: 6,
                expected: 7
            }
        );
        let caught = faults(|sent| {
            let ts = sent[0].bytes[HEADER_BYTES..HEADER_BYTES + TS_BYTES].to_vec();
            sent.last_mut().unwrap().bytes.extend(ts);
        });
        assert_eq!(
            caught,
            [Fault::Surplus {
                packet: 14,
                ts_packet: 100,
                end: 100
            }]
        );
        let caught = faults(|sent| {
            let next = sent.remove(1).bytes;
            sent[0].bytes.extend(&next[HEADER_BYTES..]);
        });
        let size = Fault::Size {
            packet: 0,
            ts_packets: 14,
            expected: 7,
        };
        assert_eq!(caught[0], size);
    }

    #[test]
    fn timestamps_that_leave_the_files_clock_are_caught() {
        let shift = |sent: &mut Vec<Datagram>, from: usize, ticks: u32| {
            for Datagram { bytes, .. } in &mut sent[from..] {
                let timestamp = Header::read(bytes).unwrap().timestamp.wrapping_add(ticks);
                bytes[4..8].copy_from_slice(&timestamp.to_be_bytes());
            }
        };
        // The PCRs' places in their packets leave 92 ticks of doubt, over the wrap of the PCR too.
        for pcr_first in [0, (1 << 33) - 50 * TICKS] {
            let file = file(pcr_first);
            let mut sent = stream(&file, 0);
            shift(&mut sent, 7, 92);
            judge(expected(&file), &sent).assert_clean("within the doubt");
            shift(&mut sent, 7, 1);
            let caught = judge(expected(&file), &sent).faults;
            assert_eq!(
                caught,
                [Fault::TimestampOffPcr {
                    packet: 10,
                    ticks: 1
                }]
            );
        }
        let caught = faults(|sent| shift(sent, 7, 0_u32.wrapping_sub(7 * 90 + 1)));
        assert!(
            matches!(caught[0], Fault::TimestampBackwards { packet: 7, .. }),
            "{caught:?}"
        );
    }

    #[test]
    fn padding_does_not_mislead_about_the_start() {
        let mut file = file(0).to_vec();
        // Stuffing but for a few packets, as in a stream of constant rate.
        for (packet, ts) in file.chunks_exact_mut(TS_BYTES).enumerate() {
            if packet % 9 != 8 {
                ts.fill(0xff);
                ts[..4].copy_from_slice(&[0x47, 0x1f, 0xff, 0x10]);
            }
        }
        let file = Arc::from(file);
        for start in 0..FILE_PACKETS - 7 {
            let report = judge(expected(&file), &stream(&file, start));
            report.assert_clean("padded");
            assert_eq!(report.start, Some(start));
        }
    }

    #[test]
    fn a_payload_from_elsewhere_is_not_found() {
        let file = file(0);
        let other = vec![0x47; 20 * TS_BYTES];
        let report = judge(expected(&file), &stream(&other, 0));
        assert_eq!(report.faults[0], Fault::NotFound);
    }

    #[test]
    fn faults_are_kept_up_to_the_limit_and_counted_beyond() {
        let file = file(0);
        let runts = |count: usize| {
            vec![
                Datagram {
                    arrival_ns: 0,
                    bytes: vec![0x80]
                };
                count
            ]
        };
        let report = judge(
            Expected {
                end: None,
                start: Start::At(0),
                ..expected(&file)
            },
            &runts(FAULTS_MAX),
        );
        assert_eq!(
            (report.faults.len(), report.faults_total),
            (FAULTS_MAX, FAULTS_MAX as u64)
        );
        let report = judge(
            Expected {
                end: None,
                start: Start::At(0),
                ..expected(&file)
            },
            &runts(FAULTS_MAX + 1),
        );
        assert_eq!(
            (report.faults.len(), report.faults_total),
            (FAULTS_MAX, FAULTS_MAX as u64 + 1)
        );
    }
}
