//! Datagrams: live streams as they arrive, and what receivers report. A transport stream is tried
//! as a film and as a live stream, which is followed and cut into segments.

use std::net::{Ipv4Addr, SocketAddr};

use onrush_wire::live::{Follower, Kind, Note, Stamper, TrainBuilder};
use onrush_wire::media::live::LiveCutter;
use onrush_wire::media::ts::{Packetisation, TS_PACKETS_PER_RTP_MAX};
use onrush_wire::media::{ScanOptions, TS_PACKET_BYTES};
use onrush_wire::rtcp::{self, Sending};
use onrush_wire::rtp::Header;

use crate::cut::{self, Told};
use crate::file;
use crate::memory::bounded;
use crate::plan::BURST_NS;
use crate::random::Random;

/// Bounds of a train, small so that they are reached.
const TRAIN_PACKETS_MAX: usize = 9;
const TRAIN_BYTES_MAX: usize = 6000;

/// What following a stream may hold beside its tables, which it has from its beginning.
const MEMORY_BYTES: usize = 64 << 10;

/// A transport stream as a film, whole and by its elementary streams, and as datagrams.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn transport_stream(input: &[u8]) {
    file::check(input);
    let elementary = ScanOptions {
        is_elementary: true,
        ..ScanOptions::default()
    };
    file::check_as(input, elementary);
    let mut scanner = onrush_wire::media::Scanner::default();
    let index = scanner.read(input).and_then(|()| scanner.finish());
    if let Some(ts) = index.ok().as_ref().and_then(|index| index.as_ts()) {
        for ts_packets_per_rtp in [1, TS_PACKETS_PER_RTP_MAX] {
            let packetisation = Packetisation {
                ts_packets_per_rtp,
                burst_ns: BURST_NS,
            };
            let _any = std::sync::Arc::new(ts.clone()).report(packetisation);
        }
    }
    live(input);
}

/// Follows a stream that comes in datagrams of any size, from one sender or two.
fn live(input: &[u8]) {
    let mut random = Random::of(input);
    let from = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut follower = Follower::new(1_000_000_000);
    if random.is_one_in(2) {
        follower = follower.keeping_sender(500_000_000);
    }
    let mut trains = TrainBuilder::new(TRAIN_PACKETS_MAX, TRAIN_BYTES_MAX);
    let mut stamper = Stamper::new(1, 0xfff0);
    let (mut left, mut now_ns, mut datagrams) = (input, 0_u64, 0_u64);
    let mut sent = Sent::default();
    let mut segments = Segments::new(input.len());
    while !left.is_empty() {
        let whole = TS_PACKET_BYTES * (1 + random.index(7));
        let bytes = match random.is_one_in(4) {
            true => random.piece(left.len()).min(2000),
            false => whole,
        };
        let datagram;
        (datagram, left) = left.split_at(bytes.min(left.len()));
        now_ns = now_ns.saturating_add(random.below(2_000_000_000));
        let sender = from(if random.is_one_in(16) { 2 } else { 1 });
        let arrived_ns = now_ns - random.below(now_ns.min(1000) + 1);
        let times = (arrived_ns, now_ns);
        let said = |note: Note| assert!(!note.to_string().is_empty());
        let kind = bounded(MEMORY_BYTES, || {
            if let Some(note) = follower.look(now_ns) {
                said(note);
            }
            let all = std::iter::once(datagram);
            if !follower.admit(sender, all, times, said) {
                return None;
            }
            Some(follower.follow(sender, datagram, now_ns, said))
        });
        let Some(kind) = kind else { continue };
        datagrams += 1;
        assert_eq!(follower.heard().datagrams, datagrams);
        let head = stamper.stamp(now_ns);
        let head = match kind {
            Kind::Rtp(header) => {
                assert_eq!(Header::read(&header.to_bytes()), Some(header));
                &[][..]
            }
            Kind::TransportStream => {
                segments.push(datagram, now_ns, &mut random);
                &head[..]
            }
            Kind::Cut => {
                follower.align(datagram, said, |packets| {
                    segments.push(packets, now_ns, &mut random);
                });
                continue;
            }
            Kind::Other => continue,
        };
        assert_eq!(follower.from(), Some(sender));
        sent.expected += head.len() + datagram.len();
        let taken = trains.push(head, datagram, now_ns, |train| sent.take(train));
        assert!(taken, "a datagram is no longer than a train may be");
    }
    trains.flush(|train| sent.take(train));
    assert_eq!(sent.bytes, sent.expected, "all that came leaves");
}

/// The segments of a transport stream.
struct Segments {
    cutter: LiveCutter,
    told: Told,
    /// Bytes of the input, and those that were pushed.
    input: usize,
    pushed: usize,
}

impl Segments {
    fn new(input: usize) -> Self {
        let cutter = LiveCutter::transport(0);
        Self {
            told: Told::of(&cutter),
            cutter,
            input,
            pushed: 0,
        }
    }

    fn push(&mut self, packets: &[u8], now_ns: u64, random: &mut Random) {
        self.pushed += packets.len();
        let mut out = Vec::new();
        bounded(cut::MEMORY_BYTES + 32 * self.input, || {
            self.cutter.push_transport(packets, now_ns, &mut out);
        });
        self.told.take(&mut out, self.pushed, random);
    }
}

/// What left in trains.
#[derive(Debug, Default)]
struct Sent {
    bytes: usize,
    expected: usize,
}

impl Sent {
    fn take(&mut self, train: onrush_wire::live::Train<'_>) {
        assert!(train.packets() <= TRAIN_PACKETS_MAX && train.bytes.len() <= TRAIN_BYTES_MAX);
        assert!(train.stride > 0 && !train.bytes.is_empty());
        self.bytes += train.bytes.len();
    }
}

/// What receivers report: the first byte says how many bytes belong to each datagram.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn rtcp(input: &[u8]) {
    let Some((&bytes, datagrams)) = input.split_first() else {
        return;
    };
    let mut random = Random::of(input);
    let unix = std::time::Duration::from_millis(random.below(1 << 44));
    let now = rtcp::ntp(unix);
    for datagram in datagrams.chunks(8 + usize::from(bytes) * 4) {
        // The source is one that they speak of, if they do.
        let ssrc = datagram.get(8..12).and_then(|it| it.try_into().ok());
        let heard = rtcp::read(datagram, u32::from_be_bytes(ssrc.unwrap_or_default()), now);
        assert!(heard.alive || heard.reception.is_none());
        if let Some(reception) = heard.reception {
            assert!((-0x80_0000..0x80_0000).contains(&reception.lost));
        }
        let text = String::from_utf8_lossy(datagram);
        let sending = Sending {
            ssrc: 1,
            cname: &text,
            ntp: now,
            timestamp: 5,
            packets: random.number(),
            payload_bytes: random.number(),
        };
        for said in [sending.report(), sending.goodbye(&text)] {
            assert!(said.len().is_multiple_of(4) && said.len() < 1200);
            let bye = rtcp::read(&said, 1, now).bye;
            assert_eq!(bye, said.len() != sending.report().len());
        }
        let interval = rtcp::report_interval(ssrc.map_or(0, u32::from_be_bytes));
        assert!((2..8).contains(&interval.as_secs()), "{interval:?}");
    }
}
