//! Trains in flight, each with the pin that keeps its memory.

use std::sync::atomic::AtomicU64;

use onrush_sys::path::{IN_FLIGHT_TRAINS_MAX, Sent};
use onrush_sys::pool::{HeaderSlot, PacketSlot, Pin};

use super::shared::bump;

/// As many trains as a path takes; all memory is taken at the start.
pub(super) struct Flights {
    flights: Box<[Option<Flight>]>,
    free: Vec<u32>,
}

/// A train or message that was queued and whose memory is not released yet.
pub(super) struct Flight {
    /// Whose it is; a message is no stream's.
    pub(super) stream: Option<u32>,
    /// What it leaves on, if that is no socket of the stream's own.
    pub(super) connection: Option<u32>,
    pub(super) packets: u32,
    pub(super) bytes: u32,
    /// Bytes of a packet; the last may be shorter.
    pub(super) stride: u16,
    /// Of them padding, which is no payload (RFC 3550, section 6.4.1).
    pub(super) padding_bytes: u32,
    /// Bytes that each packet is longer by as it leaves.
    pub(super) frame_bytes: u16,
    /// Gone before its time only by the fault that is named for it.
    pub(super) pin: Option<Pin>,
    /// Headers of its own.
    pub(super) headers: Option<HeaderSlot>,
    /// Packets of its own, in place of images.
    pub(super) encrypted: Option<PacketSlot>,
}

/// What the kernel took of a train, in whole packets, and what it left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Taken {
    pub(super) packets: u32,
    pub(super) bytes: u32,
    /// Of them padding. Of a train that was taken in part it is as much as its share of packets.
    pub(super) padding_bytes: u32,
    pub(super) packets_refused: u32,
}

impl Flight {
    pub(super) fn taken(&self, sent: Sent) -> Taken {
        let wire_bytes = self.bytes + self.packets * u32::from(self.frame_bytes);
        let packets = sent.packets(wire_bytes, self.stride + self.frame_bytes);
        // Of a message, none.
        let packets = packets.min(self.packets);
        let padding_bytes = match packets == self.packets {
            true => self.padding_bytes,
            false => self.padding_bytes / self.packets.max(1) * packets,
        };
        Taken {
            packets,
            bytes: self.bytes.min(packets * u32::from(self.stride)),
            padding_bytes,
            packets_refused: self.packets - packets,
        }
    }
}

impl Taken {
    /// Adds it to counters of packets, of their bytes, and of packets that were refused.
    pub(super) fn count(self, counters: [&AtomicU64; 3]) {
        let counts = [self.packets, self.bytes, self.packets_refused];
        for (counter, count) in counters.into_iter().zip(counts) {
            bump(counter, u64::from(count));
        }
    }
}

impl Flights {
    pub(super) fn new() -> Self {
        let count = u32::try_from(IN_FLIGHT_TRAINS_MAX).expect("flights are numbered in 32 bits");
        Self {
            flights: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
        }
    }

    /// The token of a new flight.
    ///
    /// # Panics
    /// If there is no room: the caller has seen that there is.
    pub(super) fn take(&mut self, flight: Flight) -> u32 {
        let token = self
            .free
            .pop()
            .expect("the caller has seen that there is room");
        self.flights[token as usize] = Some(flight);
        token
    }

    /// # Panics
    /// If the train is not in flight: it came back twice.
    pub(super) fn get(&mut self, token: u32) -> &mut Flight {
        self.flights[token as usize]
            .as_mut()
            .expect("a train comes back while it is in flight")
    }

    /// A train that is released, with the headers that it had of its own, which are to be given
    /// back too.
    pub(super) fn give_back(&mut self, token: u32) -> Option<Flight> {
        let flight = self.flights[token as usize].take();
        self.free.push(token);
        flight
    }

    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight() -> Flight {
        Flight {
            stream: Some(1),
            connection: None,
            packets: 1,
            bytes: 1,
            stride: 1,
            padding_bytes: 0,
            frame_bytes: 0,
            pin: None,
            headers: None,
            encrypted: None,
        }
    }

    #[test]
    fn only_whole_packets_were_taken() {
        let train = Flight {
            packets: 3,
            bytes: 2500,
            stride: 1000,
            padding_bytes: 300,
            ..flight()
        };
        let taken = |bytes| {
            let taken = train.taken(Sent { bytes, errno: 0 });
            let Taken {
                packets,
                bytes,
                padding_bytes,
                packets_refused,
            } = taken;
            (packets, bytes, padding_bytes, packets_refused)
        };
        assert_eq!(taken(2500), (3, 2500, 300, 0));
        assert_eq!(taken(2499), (2, 2000, 200, 1));
        assert_eq!(taken(999), (0, 0, 0, 3));
        let framed = Flight {
            frame_bytes: 4,
            ..train
        };
        let taken = |bytes| {
            let taken = framed.taken(Sent { bytes, errno: 0 });
            (taken.packets, taken.bytes, taken.packets_refused)
        };
        assert_eq!(taken(2512), (3, 2500, 0));
        assert_eq!(taken(2511), (2, 2000, 1));
        assert_eq!(taken(1003), (0, 0, 3));
    }

    #[test]
    fn as_many_fly_as_the_limit_says() {
        let mut flights = Flights::new();
        let tokens: Vec<_> = (0..IN_FLIGHT_TRAINS_MAX)
            .map(|_| flights.take(flight()))
            .collect();
        assert_eq!(
            (flights.room(), flights.in_flight()),
            (0, IN_FLIGHT_TRAINS_MAX)
        );
        assert!(flights.give_back(tokens[7]).is_some());
        assert_eq!(flights.take(flight()), tokens[7]);
    }

    #[test]
    #[should_panic(expected = "there is room")]
    fn one_more_is_our_own_bug() {
        let mut flights = Flights::new();
        for _ in 0..=IN_FLIGHT_TRAINS_MAX {
            flights.take(flight());
        }
    }

    #[test]
    #[should_panic(expected = "comes back while it is in flight")]
    fn a_train_that_comes_back_twice_is_our_own_bug() {
        let mut flights = Flights::new();
        let token = flights.take(flight());
        assert!(flights.give_back(token).is_some());
        flights.get(token);
    }
}
