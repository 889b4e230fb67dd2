//! Live streams as they arrive: what a datagram is, what happened to the stream, which packets
//! leave together.
//!
//! A relay passes on what its sender gives it, unchanged and at once. A [`Follower`] keeps to one
//! sender if it is told to, judges nothing else and notes what is odd about a stream, a
//! [`TrainBuilder`] puts packets of equal size together that may leave as one train, and a
//! [`Stamper`] writes RTP headers for those receivers that need them where the stream has none; a
//! transport stream whose datagrams are pieces of it is put together for them. A [`Recent`] keeps
//! what came since a decoder could start, which a [`SyncRule`] tells. Of two publishers of one
//! channel [`active_ingest`] says which one viewers get, and a [`Reserve`] keeps the other ready. A
//! [`SenderClock`] ties a publisher's clock to ours, and an [`ArrivalClock`] that of one whose
//! reports say nothing.
//! Not here: the network, the clock, and any attempt at mending a stream (reordering, de-jittering,
//! repairing).

mod align;
mod clock;
mod follow;
mod jitter;
mod lag;
mod recent;
mod sender;
mod standby;
mod sync;
mod train;

pub use self::clock::{ArrivalClock, SenderClock};
pub use self::follow::{Follower, Heard, Note};
pub use self::jitter::Jitter;
pub use self::lag::Lag;
pub use self::recent::{Recent, RecentPacket};
pub use self::standby::{
    CATCH_UP_SPEED, CatchUp, INGESTS_MAX, Ingest, Kept, LEAD_MAX, Lead, Reserve, active_ingest,
};
pub use self::sync::SyncRule;
pub use self::train::{Train, TrainBuilder};

use crate::media::TS_PACKET_BYTES;
use crate::rtp::{HEADER_BYTES, Header, PAYLOAD_TYPE_MP2T, ticks};

/// What a datagram is taken for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// An RTP packet.
    Rtp(Header),
    /// Whole transport packets and nothing else.
    TransportStream,
    /// A piece of a transport stream that begins or ends within a packet: what is whole by it
    /// [`Follower::align`] gives.
    Cut,
    /// Neither; RTCP among it.
    Other,
}

impl Kind {
    /// Looks at a datagram's payload, alone; not whether it is cut. No datagram is both others: the
    /// sync byte of a transport packet would be version 1.
    #[must_use]
    pub fn of(datagram: &[u8]) -> Self {
        let is_whole = !datagram.is_empty() && datagram.len().is_multiple_of(TS_PACKET_BYTES);
        if is_whole && datagram.chunks(TS_PACKET_BYTES).all(|ts| ts[0] == 0x47) {
            return Self::TransportStream;
        }
        match Header::read(datagram) {
            // RTCP's packet types, where both share a port (RFC 5761, section 4).
            Some(_) if (192..=223).contains(&datagram[1]) => Self::Other,
            Some(header) => Self::Rtp(header),
            None => Self::Other,
        }
    }
}

/// Writes the RTP headers of a transport stream that comes without (RFC 2250): its own numbers, and
/// the time of arrival as the time stamp.
#[derive(Clone, Copy, Debug)]
pub struct Stamper {
    ssrc: u32,
    sequence: u16,
}

impl Stamper {
    /// Begins with `sequence`; both should be random (RFC 3550, section 5.1).
    #[must_use]
    pub const fn new(ssrc: u32, sequence: u16) -> Self {
        Self { ssrc, sequence }
    }

    /// The synchronisation source.
    #[must_use]
    pub const fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// The header of the next packet, which arrived at `now_ns` of any steady clock.
    pub fn stamp(&mut self, now_ns: u64) -> [u8; HEADER_BYTES] {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        let header = Header {
            marker: false,
            payload_type: PAYLOAD_TYPE_MP2T,
            sequence,
            timestamp: ticks(now_ns),
            ssrc: self.ssrc,
        };
        header.to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn datagrams_are_taken_for_what_they_are() {
        let mut ts = vec![0; 3 * TS_PACKET_BYTES];
        for at in [0, TS_PACKET_BYTES, 2 * TS_PACKET_BYTES] {
            ts[at] = 0x47;
        }
        assert_eq!(Kind::of(&ts), Kind::TransportStream);
        assert_eq!(Kind::of(&ts[..TS_PACKET_BYTES + 1]), Kind::Other);
        ts[2 * TS_PACKET_BYTES] = 0x46;
        assert_eq!(Kind::of(&ts), Kind::Other);
        let mut rtp = Stamper::new(7, 65_535).stamp(0);
        let Kind::Rtp(header) = Kind::of(&rtp) else {
            panic!("a header without payload is RTP");
        };
        assert_eq!((header.ssrc, header.sequence), (7, 65_535));
        for (second, is_rtp) in [(191, true), (192, false), (223, false), (224, true)] {
            rtp[1] = second;
            assert_eq!(matches!(Kind::of(&rtp), Kind::Rtp(_)), is_rtp, "{second}");
        }
        assert_eq!(Kind::of(&[]), Kind::Other);
        assert_eq!(Kind::of(&[0x80; 11]), Kind::Other);
    }

    #[test]
    fn stamps_count_on_over_the_wrap_and_tell_the_arrival() {
        let mut stamper = Stamper::new(1, 65_535);
        let second = 1_000_000_000;
        let headers = [0, second, 100_000 * second]
            .map(|now_ns| Header::read(&stamper.stamp(now_ns)).expect("a header"));
        assert_eq!(headers.map(|header| header.sequence), [65_535, 0, 1]);
        let wrapped = u32::try_from(9_000_000_000_u64 % (1 << 32)).unwrap();
        assert_eq!(headers.map(|header| header.timestamp), [0, 90_000, wrapped]);
    }

    proptest! {
        #[test]
        fn no_datagram_is_too_odd(datagram in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let kind = Kind::of(&datagram);
            prop_assert!(!matches!(kind, Kind::Rtp(_)) || datagram.len() >= HEADER_BYTES);
        }
    }
}
