//! The packets of a track since its last sync sample, for those who join.
//!
//! Packets have order numbers, counted over all tracks of a channel, by which tracks without sync
//! samples of their own are cut to where the others begin.

use std::collections::VecDeque;
use std::sync::Arc;

use super::SyncRule;
use super::sync::{blank, random_access};
use crate::rtp::{Header, payload};

/// A packet as it is sent, and its number among all of its channel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecentPacket {
    /// Higher than that of all packets before, of whichever track.
    pub order: u64,
    /// With its RTP header.
    pub bytes: Arc<[u8]>,
}

/// The packets of one track since a decoder could start, within bounds.
#[derive(Debug)]
pub struct Recent {
    rule: SyncRule,
    bytes_max: usize,
    packets_max: usize,
    packets: VecDeque<RecentPacket>,
    bytes: usize,
    /// Where the access unit that comes now has begun, and its timestamp.
    unit: Option<(u64, u32)>,
    /// The first packet is the beginning of a sync sample.
    is_whole: bool,
}

impl Recent {
    /// An empty one of a track with that rule. What would exceed a bound empties it until the next
    /// sync sample.
    #[must_use]
    pub const fn new(rule: SyncRule, packets_max: usize, bytes_max: usize) -> Self {
        Self {
            rule,
            bytes_max,
            packets_max,
            packets: VecDeque::new(),
            bytes: 0,
            unit: None,
            is_whole: rule as u8 == SyncRule::Every as u8,
        }
    }

    /// Takes the next packet, an RTP packet. If a sync sample has begun with its access unit, what
    /// was before is gone, and this is the order number of the first packet of that.
    pub fn push(&mut self, packet: RecentPacket) -> Option<u64> {
        let timestamp = Header::read(&packet.bytes).map(|header| header.timestamp);
        let (timestamp, payload) = timestamp.zip(payload(&packet.bytes))?;
        let is_other = self.unit.is_none_or(|(_, of_unit)| of_unit != timestamp);
        if self.unit.is_none() || self.rule.begins_unit(is_other, payload) {
            self.unit = Some((packet.order, timestamp));
        }
        let begin = self.unit.map_or(packet.order, |(begin, _)| begin);
        let is_sync = !self.rule.is_everywhere() && self.rule.is_sync(payload);
        let first = self.packets.front().map(|first| first.order);
        self.bytes += packet.bytes.len();
        self.packets.push_back(packet);
        let begins = is_sync && !(self.is_whole && first == Some(begin));
        if begins {
            self.cut_before(begin);
            self.leave_out_pictures();
            self.is_whole = true;
        }
        if self.bytes > self.bytes_max || self.packets.len() > self.packets_max {
            self.clear();
            return None;
        }
        begins.then_some(begin)
    }

    /// Between its program tables and the picture that a decoder can start at, a transport stream
    /// may have others, where it cannot: in what is kept they become null packets.
    fn leave_out_pictures(&mut self) {
        if self.rule != SyncRule::TransportStream {
            return;
        }
        let newest = self.packets.back();
        let found = newest.and_then(|newest| random_access(payload(&newest.bytes)?));
        let Some((before, pid)) = found else {
            return;
        };
        let newest = self.packets.len() - 1;
        for (i, packet) in self.packets.iter_mut().enumerate() {
            let before = if i == newest { before } else { usize::MAX };
            let Some(payload) = payload(&packet.bytes) else {
                continue;
            };
            let start = payload.as_ptr().addr() - packet.bytes.as_ptr().addr();
            let mut bytes = packet.bytes.to_vec();
            if blank(&mut bytes[start..start + payload.len()], pid, before) {
                packet.bytes = bytes.into();
            }
        }
    }

    /// Forgets packets with lower numbers.
    pub fn cut_before(&mut self, order: u64) {
        while let Some(first) = self.packets.front().filter(|first| first.order < order) {
            self.bytes -= first.bytes.len();
            self.packets.pop_front();
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        (self.bytes, self.unit) = (0, None);
        self.packets.clear();
        self.is_whole = self.rule.is_everywhere();
    }

    /// What a decoder can start with now: from a sync sample to the newest packet. Of a transport
    /// stream the program tables in front of that are among it, and pictures between them are null
    /// packets.
    #[must_use]
    pub fn packets(&self) -> Option<&VecDeque<RecentPacket>> {
        self.is_whole.then_some(&self.packets)
    }

    /// All that is kept, also before a sync sample has come.
    #[must_use]
    pub const fn kept(&self) -> &VecDeque<RecentPacket> {
        &self.packets
    }

    /// Bytes of the packets that are kept.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The track's rule.
    #[must_use]
    pub const fn rule(&self) -> SyncRule {
        self.rule
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::media::TS_PACKET_BYTES;

    fn packet(order: u64, timestamp: u32, nal: u8) -> RecentPacket {
        let header = Header {
            marker: false,
            payload_type: 96,
            sequence: 0,
            timestamp,
            ssrc: 1,
        };
        let bytes = [&header.to_bytes()[..], &[nal, 0, 0, 0]].concat();
        RecentPacket {
            order,
            bytes: bytes.into(),
        }
    }

    fn orders(recent: &Recent) -> Option<Vec<u64>> {
        let packets = recent.packets()?;
        Some(packets.iter().map(|packet| packet.order).collect())
    }

    #[test]
    fn it_begins_with_the_access_unit_of_the_last_sync_sample() {
        let mut recent = Recent::new(SyncRule::H264, 100, 10_000);
        assert_eq!(recent.push(packet(0, 0, 0x41)), None);
        assert_eq!(orders(&recent), None, "a decoder cannot start there");
        // Parameter sets, the picture in two parts, the next picture.
        assert_eq!(recent.push(packet(1, 10, 0x67)), None);
        assert_eq!(recent.push(packet(2, 10, 0x65)), Some(1));
        assert_eq!(recent.push(packet(3, 10, 0x65)), None, "the same one");
        assert_eq!(recent.push(packet(5, 20, 0x41)), None);
        assert_eq!(orders(&recent), Some(vec![1, 2, 3, 5]));
        assert_eq!(recent.push(packet(6, 30, 0x65)), Some(6));
        assert_eq!(orders(&recent), Some(vec![6]));
        assert_eq!(recent.bytes(), 16);
        // A recovery point, behind parameter sets of its access unit.
        assert_eq!(recent.push(packet(7, 40, 0x67)), None);
        let mut recovery = packet(8, 40, 0x06);
        recovery.bytes = [&recovery.bytes[..13], &[6, 1, 0xc4]].concat().into();
        assert_eq!(recent.push(recovery), Some(7));
        assert_eq!(recent.push(packet(9, 40, 0x41)), None);
        assert_eq!(orders(&recent), Some(vec![7, 8, 9]));
    }

    #[test]
    fn other_pictures_before_a_sync_sample_are_left_out() {
        const TABLES: [u8; 4] = [0x47, 0x40, 0, 0x10];
        const SOUND: [u8; 4] = [0x47, 1, 1, 0x10];
        const PICTURE: [u8; 4] = [0x47, 1, 0, 0x10];
        const SYNC: [u8; 4] = [0x47, 0x41, 0, 0x30];
        const NULL: [u8; 4] = [0x47, 0x1f, 0xff, 0x10];
        let rtp = |order: u64, of: &[[u8; 4]]| {
            let mut whole = packet(order, 7, 0).bytes[..12].to_vec();
            for start in of {
                let mut ts = start.to_vec();
                if *start == SYNC {
                    ts.extend([1, 0x40, 0, 0, 1, 0xe0]);
                }
                ts.resize(TS_PACKET_BYTES, 9);
                whole.extend(ts);
            }
            let bytes = whole.into();
            RecentPacket { order, bytes }
        };
        let mut recent = Recent::new(SyncRule::TransportStream, 100, 10_000);
        recent.push(rtp(0, &[TABLES, PICTURE]));
        recent.push(rtp(1, &[PICTURE, TABLES, SOUND, PICTURE]));
        recent.push(rtp(2, &[PICTURE, SOUND]));
        let last = rtp(3, &[SOUND, PICTURE, SYNC, PICTURE]);
        assert_eq!(recent.push(last.clone()), Some(1));
        recent.push(rtp(4, &[PICTURE]));
        let kept = recent.packets().unwrap().iter();
        let kept = kept.map(|packet| {
            let transport = payload(&packet.bytes).unwrap().chunks(TS_PACKET_BYTES);
            let starts = transport.map(|ts| ts[..4].try_into().unwrap());
            (packet.order, starts.collect::<Vec<[u8; 4]>>())
        });
        let expected = [
            (1, vec![NULL, TABLES, SOUND, NULL]),
            (2, vec![NULL, SOUND]),
            (3, vec![SOUND, NULL, SYNC, PICTURE]),
            (4, vec![PICTURE]),
        ];
        assert_eq!(kept.collect::<Vec<_>>(), expected);
        assert_eq!(
            payload(&last.bytes).unwrap()[TS_PACKET_BYTES..][..4],
            PICTURE
        );
    }

    #[test]
    fn bounds_empty_it_until_the_next_sync_sample() {
        let mut recent = Recent::new(SyncRule::H264, 3, 10_000);
        recent.push(packet(0, 0, 0x65));
        recent.push(packet(1, 1, 0x41));
        recent.push(packet(2, 2, 0x41));
        assert_eq!(orders(&recent), Some(vec![0, 1, 2]), "as many as may be");
        recent.push(packet(3, 3, 0x41));
        assert_eq!((orders(&recent), recent.bytes()), (None, 0));
        recent.push(packet(4, 4, 0x65));
        assert_eq!(orders(&recent), Some(vec![4]));
        let mut recent = Recent::new(SyncRule::H264, 100, 32);
        recent.push(packet(0, 0, 0x65));
        recent.push(packet(1, 1, 0x41));
        assert_eq!(orders(&recent), Some(vec![0, 1]));
        recent.push(packet(2, 2, 0x41));
        assert_eq!(orders(&recent), None);
    }

    #[test]
    fn sound_is_cut_to_where_pictures_begin() {
        let mut recent = Recent::new(SyncRule::Every, 100, 10_000);
        for order in [0, 2, 4] {
            assert_eq!(recent.push(packet(order, 0, 0)), None);
        }
        recent.cut_before(2);
        assert_eq!(orders(&recent), Some(vec![2, 4]));
        recent.clear();
        assert_eq!(orders(&recent), Some(vec![]));
    }

    proptest! {
        /// Whatever comes, it holds no more than it may, and begins with a sync sample's unit.
        #[test]
        fn it_stays_within_its_bounds(
            pictures in prop::collection::vec((any::<bool>(), 1..6_usize), 0..60),
        ) {
            let mut recent = Recent::new(SyncRule::H264, 12, 300);
            let (mut order, mut last_sync) = (0, None);
            for (timestamp, (is_sync, packets)) in (0..).zip(pictures) {
                for _ in 0..packets {
                    let nal = if is_sync { 0x65 } else { 0x41 };
                    recent.push(packet(order, timestamp, nal));
                    order += 1;
                }
                if is_sync {
                    last_sync = Some(order - packets as u64);
                }
                let held = orders(&recent);
                prop_assert!(recent.bytes() <= 300);
                if let Some(held) = held {
                    prop_assert!(held.len() <= 12);
                    prop_assert_eq!(held.first().copied(), last_sync);
                    prop_assert_eq!(held.last().copied(), Some(order - 1));
                }
            }
        }
    }
}
