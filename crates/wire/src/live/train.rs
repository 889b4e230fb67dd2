//! Which packets leave as one train.

/// Packets of equal size, one after the other; the last may be shorter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Train<'a> {
    /// All of them.
    pub bytes: &'a [u8],
    /// The size of each but the last.
    pub stride: usize,
    /// When the first of them arrived.
    pub arrived_ns: u64,
}

/// Collects packets in the order in which they come, until they have to leave.
///
/// A train ends with a packet that is shorter than the others, before one that is longer, when it
/// is full, and when its first packet has waited for as long as it may.
#[derive(Debug)]
pub struct TrainBuilder {
    packets_max: usize,
    bytes_max: usize,
    bytes: Vec<u8>,
    stride: usize,
    packets: usize,
    arrived_ns: u64,
    is_closed: bool,
}

impl Train<'_> {
    /// How many they are.
    #[must_use]
    pub const fn packets(&self) -> usize {
        self.bytes.len().div_ceil(self.stride)
    }
}

impl TrainBuilder {
    /// One that holds nothing, and never more than so many packets and bytes.
    #[must_use]
    pub fn new(packets_max: usize, bytes_max: usize) -> Self {
        Self {
            packets_max,
            bytes_max,
            bytes: Vec::with_capacity(bytes_max),
            stride: 0,
            packets: 0,
            arrived_ns: 0,
            is_closed: false,
        }
    }

    /// Takes the packet `head` + `payload`, which arrived at `now_ns`. What it does not fit to
    /// leaves first. Nothing of a packet that is empty or longer than a train may be; `false` for
    /// those.
    pub fn push(
        &mut self,
        head: &[u8],
        payload: &[u8],
        now_ns: u64,
        mut leave: impl FnMut(Train<'_>),
    ) -> bool {
        let packet_bytes = head.len() + payload.len();
        if packet_bytes == 0 || packet_bytes > self.bytes_max {
            return false;
        }
        let is_full =
            self.packets == self.packets_max || self.bytes.len() + packet_bytes > self.bytes_max;
        if self.packets > 0 && (self.is_closed || is_full || packet_bytes > self.stride) {
            self.flush(&mut leave);
        }
        if self.packets == 0 {
            self.stride = packet_bytes;
            self.arrived_ns = now_ns;
        }
        self.is_closed = packet_bytes < self.stride;
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(payload);
        self.packets += 1;
        true
    }

    /// Lets go of what there is.
    pub fn flush(&mut self, leave: impl FnOnce(Train<'_>)) {
        if self.packets == 0 {
            return;
        }
        leave(Train {
            bytes: &self.bytes,
            stride: self.stride,
            arrived_ns: self.arrived_ns,
        });
        self.bytes.clear();
        self.packets = 0;
        self.is_closed = false;
    }

    /// When the oldest packet arrived, if there is one.
    #[must_use]
    pub fn waiting_since_ns(&self) -> Option<u64> {
        (self.packets > 0).then_some(self.arrived_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PACKETS_MAX: usize = 64;
    const BYTES_MAX: usize = 65_507;

    /// The sizes of the packets of each train that left, the last by a flush.
    fn trains(sizes: &[usize]) -> Vec<Vec<usize>> {
        let (mut former, mut trains) = (TrainBuilder::new(PACKETS_MAX, BYTES_MAX), Vec::new());
        let mut leave = |train: Train<'_>| {
            let sizes = train.bytes.chunks(train.stride).map(<[u8]>::len);
            trains.push(sizes.collect::<Vec<_>>());
        };
        for &size in sizes {
            former.push(&[], &vec![0; size], 0, &mut leave);
        }
        former.flush(&mut leave);
        trains
    }

    #[test]
    fn equal_packets_leave_together_and_a_shorter_one_closes() {
        assert_eq!(trains(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(trains(&[9, 9, 9]), [[9, 9, 9]]);
        assert_eq!(trains(&[9, 4, 9]), [vec![9, 4], vec![9]]);
        assert_eq!(trains(&[9, 4, 4]), [vec![9, 4], vec![4]]);
        assert_eq!(trains(&[4, 9, 9]), [vec![4], vec![9, 9]]);
        assert_eq!(trains(&[0, 9, 0]), [[9]]);
    }

    #[test]
    fn trains_are_as_long_as_they_may_be_and_no_longer() {
        let packets = PACKETS_MAX;
        assert_eq!(trains(&vec![100; packets]).len(), 1);
        assert_eq!(trains(&vec![100; packets + 1]).len(), 2);
        let half = BYTES_MAX / 2;
        assert_eq!(trains(&[half, half, 1]).len(), 1);
        assert_eq!(trains(&[half, half, 2]).len(), 2);
        assert_eq!(trains(&[BYTES_MAX]), [[BYTES_MAX]]);
        assert_eq!(trains(&[BYTES_MAX + 1]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn a_train_has_waited_since_its_first_packet() {
        let mut former = TrainBuilder::new(PACKETS_MAX, BYTES_MAX);
        let nobody = |_: Train<'_>| panic!("nothing leaves");
        assert_eq!(former.waiting_since_ns(), None);
        former.push(b"head", b"payload", 5, nobody);
        former.push(b"head", b"payload", 6, nobody);
        assert_eq!(former.waiting_since_ns(), Some(5));
        former.flush(|train| {
            assert_eq!(train.bytes, b"headpayloadheadpayload");
            assert_eq!((train.packets(), train.arrived_ns), (2, 5));
        });
        former.push(b"", b"x", 7, nobody);
        assert_eq!(former.waiting_since_ns(), Some(7));
    }

    proptest! {
        #[test]
        fn every_byte_leaves_once_in_order_in_trains_that_can_be_sent(
            packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..2000),
                0..200),
        ) {
            let (mut former, mut left) = (TrainBuilder::new(PACKETS_MAX, BYTES_MAX), Vec::new());
            let mut leave = |train: Train<'_>| {
                assert!(train.bytes.len() <= BYTES_MAX && train.packets() <= PACKETS_MAX);
                left.extend(train.bytes.chunks(train.stride).map(<[u8]>::to_vec));
            };
            for packet in &packets {
                let (head, payload) = packet.split_at(packet.len() / 3);
                former.push(head, payload, 0, &mut leave);
            }
            former.flush(&mut leave);
            prop_assert_eq!(left, packets);
        }
    }
}
