//! Transport packets in datagrams that begin and end within them, put together again. So FFmpeg
//! sends a transport stream by UDP, unless it is told how long datagrams are to be (`pkt_size`).

use crate::media::ts::TS_PACKETS_PER_RTP_MAX;
use crate::media::{SYNC_BYTE, TS_PACKET_BYTES};

/// Packets that have to begin in a datagram, one behind the other up to its end, so that it is
/// taken for a piece of a transport stream: one in a billion of other datagrams looks so.
const BEGINNINGS_MIN: usize = 5;

/// Whether packets begin all along this datagram.
pub(super) fn is_cut(datagram: &[u8]) -> bool {
    beginning(datagram, BEGINNINGS_MIN).is_some()
}

/// Where the first of them begins, of which there are so many at least.
fn beginning(bytes: &[u8], least: usize) -> Option<usize> {
    (0..TS_PACKET_BYTES.min(bytes.len())).find(|&first| {
        let mut beginnings = bytes[first..].iter().step_by(TS_PACKET_BYTES);
        beginnings.len() >= least && beginnings.all(|&byte| byte == SYNC_BYTE)
    })
}

/// Whether a packet begins at `at`: what follows it begins one, too, or is still to come.
fn begins(bytes: &[u8], at: usize) -> bool {
    let next = bytes.get(at + TS_PACKET_BYTES);
    bytes[at] == SYNC_BYTE && next.is_none_or(|&byte| byte == SYNC_BYTE)
}

/// Puts packets together.
#[derive(Debug, Default)]
pub(super) struct Aligner {
    /// The beginning of a packet that has not come to its end; behind a gap what is none.
    rest: Vec<u8>,
}

impl Aligner {
    /// Whether a datagram goes on with what came before, as far as it can be told.
    pub(super) fn takes(&self, datagram: &[u8]) -> bool {
        datagram.len() < 3 * TS_PACKET_BYTES || beginning(datagram, 2).is_some()
    }

    /// Takes a datagram, and gives the packets that are whole by it, as many at a time as are sent
    /// together. A packet of which a piece did not come is left out, unless what came instead is as
    /// long by chance, to the end of a datagram.
    pub(super) fn push(&mut self, datagram: &[u8], mut give: impl FnMut(&[u8])) {
        self.rest.extend_from_slice(datagram);
        let (bytes, mut at) = (&self.rest[..], 0);
        while let Some(left) = bytes.get(at..).filter(|it| it.len() >= TS_PACKET_BYTES) {
            let packets = 0..left.len() / TS_PACKET_BYTES;
            let whole = packets.take_while(|number| begins(left, number * TS_PACKET_BYTES));
            let whole = whole.take(TS_PACKETS_PER_RTP_MAX.into()).count() * TS_PACKET_BYTES;
            if whole > 0 {
                give(&left[..whole]);
                at += whole;
            } else {
                let mut others = 1..left.len();
                at += others.find(|&it| begins(left, it)).unwrap_or(left.len());
            }
        }
        self.rest.drain(..at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Packets by their numbers, which have no other sync byte in them.
    fn stream(packets: usize) -> Vec<u8> {
        let packet = |number: usize| {
            let mut packet = [0x80; TS_PACKET_BYTES];
            packet[0] = SYNC_BYTE;
            packet[4] = u8::try_from(number).unwrap();
            packet
        };
        (0..packets).flat_map(packet).collect()
    }

    proptest! {
        /// However a stream is cut: all packets are given; and but for one of each datagram that is
        /// lost no others.
        #[test]
        fn packets_come_back(
            packets in 1..60_usize,
            lengths in prop::collection::vec((1..2000_usize, prop::bool::weighted(0.1)), 1..60),
            loses: bool,
        ) {
            let all = stream(packets);
            let (mut aligner, mut found, mut at, mut lost) = (Aligner::default(), Vec::new(), 0, 0);
            for &(length, is_lost) in lengths.iter().cycle() {
                let end = all.len().min(at + length);
                match loses && is_lost {
                    true => lost += 1,
                    false => aligner.push(&all[at..end], |packets| {
                        assert!((1..=7 * TS_PACKET_BYTES).contains(&packets.len()));
                        found.extend(packets.chunks(TS_PACKET_BYTES).map(<[u8]>::to_vec));
                    }),
                }
                prop_assert!(aligner.rest.len() < TS_PACKET_BYTES);
                at = end;
                if at == all.len() {
                    break;
                }
            }
            let mut wanted = all.chunks(TS_PACKET_BYTES);
            match lost {
                0 => prop_assert!(found.iter().eq(wanted)),
                _ => {
                    let given = found.len();
                    found.retain(|packet| wanted.clone().any(|it| it == packet));
                    prop_assert!(given - found.len() <= lost);
                    prop_assert!(found.iter().all(|packet| wanted.any(|it| it == packet)));
                }
            }
        }
    }

    #[test]
    fn only_what_is_cut_is_told_so() {
        let all = stream(20);
        for first in 1..TS_PACKET_BYTES {
            assert!(is_cut(&all[first..first + 1472]), "{first}");
        }
        assert!(
            !is_cut(&all[5..5 + 4 * TS_PACKET_BYTES]),
            "too few begin in it"
        );
        let noise: Vec<u8> = (0..1472_u32)
            .map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0])
            .collect();
        assert!(!is_cut(&noise) && !is_cut(&[]));
        assert!(Aligner::default().takes(&all[5..1000]) && !Aligner::default().takes(&noise));
    }
}
