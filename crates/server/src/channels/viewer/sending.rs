//! What a viewer has not been sent yet, on its way to its socket or connection.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use onrush_sys::path::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX, send_train_to};
use onrush_wire::rtp::HEADER_BYTES;
use onrush_wire::rtsp::{FRAME_PREFIX_BYTES, frame_prefix};
use onrush_wire::srtp::Arrival;

use super::{Bounds, Sent, Watched};
use crate::channels::srtp::ViewerSrtp;
use crate::engine::InterleavedConnection;

impl Watched {
    /// Sends datagrams of the backlog, few enough for a player's socket to hold.
    pub(in crate::channels) fn send_datagrams(
        &mut self,
        socket: &UdpSocket,
        to: SocketAddr,
        at: Arrival,
    ) -> Sent {
        if let Some(srtp) = self.encrypts_alone().map(Arc::clone) {
            return self.send_encrypted(&srtp, (socket, to), at);
        }
        for _ in 0..CATCH_UP_PACKETS {
            let Some(packet) = self.backlog.front() else {
                return Sent::All;
            };
            let own = (!self.numbering.is_shared()).then(|| self.numbered(&packet.bytes));
            // What the network says of one of them is not worth a second attempt.
            if let Err(error) = socket.send_to(own.as_deref().unwrap_or(&packet.bytes), to)
                && error.kind() == ErrorKind::WouldBlock
            {
                return Sent::Some;
            }
            self.pop();
        }
        match self.backlog.is_empty() {
            true => Sent::All,
            false => Sent::Some,
        }
    }

    /// Likewise, encrypted for it alone.
    fn send_encrypted(
        &mut self,
        srtp: &ViewerSrtp,
        (socket, to): (&UdpSocket, SocketAddr),
        at: Arrival,
    ) -> Sent {
        if self.unsent.is_empty() {
            let count = self.backlog.len().min(CATCH_UP_PACKETS);
            let packets = self.backlog.iter().take(count);
            let packets: Vec<_> = packets.map(|packet| self.numbered(&packet.bytes)).collect();
            let sealed = srtp.seal_each(packets.iter().map(Vec::as_slice), at);
            self.encrypted[0] += sealed.len() as u64;
            self.encrypted[1] += (count - sealed.len()) as u64;
            self.unsent.extend(trains(sealed));
            for _ in 0..count {
                self.pop();
            }
        }
        while let Some(train) = self.unsent.front_mut() {
            if !train.leaves(socket, to) {
                return Sent::Some;
            }
            self.unsent.pop_front();
        }
        match self.backlog.is_empty() {
            true => Sent::All,
            false => Sent::Some,
        }
    }

    /// Sends frames of the backlog, as many as its connection takes.
    pub(in crate::channels) fn send_frames(
        &mut self,
        connection: &InterleavedConnection,
        channel: u8,
        bounds: Bounds,
        now_ns: u64,
    ) -> Sent {
        while !self.backlog.is_empty() {
            // One message goes, however long its packet is.
            let unacknowledged = connection.unacknowledged_bytes();
            if unacknowledged > 0 && unacknowledged + MESSAGE_BYTES > bounds.backlog_bytes_max {
                break;
            }
            let mut message = Vec::with_capacity(MESSAGE_BYTES.min(2 * self.backlog_bytes));
            while let Some(packet) = self.backlog.front() {
                let whole = packet.bytes.len() + FRAME_PREFIX_BYTES;
                if !message.is_empty() && message.len() + whole > MESSAGE_BYTES {
                    break;
                }
                let Some(packet) = self.pop() else { break };
                let Ok(bytes) = u16::try_from(packet.bytes.len()) else {
                    continue;
                };
                message.extend_from_slice(&frame_prefix(channel, bytes));
                let at = message.len();
                message.extend_from_slice(&packet.bytes);
                if let Some(head) = self.header(&packet.bytes) {
                    message[at..at + HEADER_BYTES].copy_from_slice(&head);
                }
            }
            match connection.try_send_within(message, usize::MAX) {
                Ok(()) => {}
                // Too much waits for the engine: the numbers show the gap.
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Sent::Stalled,
            }
        }
        let left = connection.unacknowledged_bytes();
        if left == 0 || left != self.progress.0 {
            self.progress = (left, now_ns);
        } else if now_ns.saturating_sub(self.progress.1) > bounds.stall_ns_max {
            return Sent::Stalled;
        }
        match self.backlog.is_empty() && left == 0 {
            true => Sent::All,
            false => Sent::Some,
        }
    }
}

/// Encrypted packets of one size, of which the last may be shorter, that leave in one send.
#[derive(Debug)]
pub(super) struct SealedTrain {
    bytes: Vec<u8>,
    segment_bytes: usize,
}

impl SealedTrain {
    /// Whether a packet can follow in the same send.
    fn takes(&self, packet: &[u8]) -> bool {
        self.bytes.len().is_multiple_of(self.segment_bytes)
            && packet.len() <= self.segment_bytes
            && self.bytes.len() + packet.len() <= TRAIN_BYTES_MAX
            && self.bytes.len() / self.segment_bytes < TRAIN_PACKETS_MAX
    }

    /// Sends what has not left yet. `false` if the socket is full; what the network says of packets
    /// is not worth a second attempt.
    fn leaves(&mut self, socket: &UdpSocket, to: SocketAddr) -> bool {
        let sent = match u16::try_from(self.segment_bytes) {
            Ok(segment_bytes) => send_train_to(socket, to, &self.bytes, segment_bytes),
            // One packet, which no datagram holds: the kernel says so.
            Err(_) => socket.send_to(&self.bytes, to),
        };
        match sent {
            Ok(bytes) if bytes < self.bytes.len() => {
                self.bytes.drain(..bytes);
                false
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
            Ok(_) => true,
        }
    }
}

/// Packets as trains, as few as may be.
fn trains(packets: Vec<Vec<u8>>) -> Vec<SealedTrain> {
    let mut trains: Vec<SealedTrain> = Vec::new();
    for packet in packets {
        match trains.last_mut().filter(|train| train.takes(&packet)) {
            Some(train) => train.bytes.extend_from_slice(&packet),
            None => trains.push(SealedTrain {
                // None is empty: each has a header.
                segment_bytes: packet.len().max(1),
                bytes: packet,
            }),
        }
    }
    trains
}

/// Datagrams that a viewer is sent in a step while it catches up: what its socket holds, which is
/// 212,992 bytes of the kernel's own accounting by default, is several times as much.
const CATCH_UP_PACKETS: usize = 24;

/// Bytes of frames that are handed over together.
const MESSAGE_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use onrush_sys::receive::Receiver;
    use onrush_wire::live::RecentPacket;
    use onrush_wire::rtp::Header;
    use onrush_wire::srtp::{MasterKey, RtpReceiver, Suite};

    use super::super::ViewerTrack;
    use super::*;
    use crate::channels::viewing::Way;

    const AT: Arrival = Arrival {
        ns: 0,
        clock_hz: 90_000,
    };

    const PATIENCE: Duration = Duration::from_secs(60);

    fn packet(sequence: u16, bytes: usize) -> RecentPacket {
        let header = Header {
            marker: false,
            payload_type: 96,
            sequence,
            timestamp: 0,
            ssrc: 1,
        };
        let mut packet = header.to_bytes().to_vec();
        packet.resize(bytes, 7);
        RecentPacket {
            order: sequence.into(),
            bytes: packet.into(),
        }
    }

    /// A viewer with a key of its own, at that address.
    fn viewer(key: &MasterKey, to: SocketAddr) -> Watched {
        let wanted = ViewerTrack {
            track: 0,
            way: Way::Datagrams(to, to),
            viewing: Arc::default(),
            start: None,
            srtp: Some(ViewerSrtp::own(key)),
        };
        Watched::new(wanted, None, (None, 0))
    }

    #[test]
    fn packets_for_one_viewer_alone_leave_in_trains() {
        let key = MasterKey::new(Suite::default(), &[7; 30]).expect("a key and a salt");
        let [socket, receiver] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("loopback"));
        let to = receiver.local_addr().expect("bound");
        // It joins what arrives: a message is what was sent at once.
        let mut receiver = Receiver::new(receiver).expect("a socket");
        let mut watched = viewer(&key, to);
        // Two pictures: of ten packets and a shorter one, and of three and a shorter one.
        let lengths = [&[1200; 10][..], &[300], &[1200; 3], &[900]].concat();
        for (sequence, &bytes) in (100..).zip(&lengths) {
            watched.push(&packet(sequence, bytes));
        }
        assert_eq!(watched.send_datagrams(&socket, to, AT), Sent::All);
        assert_eq!(watched.encrypted, [15, 0]);
        let (give_up, mut counts) = (Instant::now() + PATIENCE, Vec::new());
        let (mut decrypting, mut received) = (RtpReceiver::new(&key), Vec::new());
        while received.len() < lengths.len() {
            assert!(Instant::now() < give_up, "all come: {received:?}");
            let taken = receiver.receive(|message| {
                counts.push(message.datagrams().count());
                for datagram in message.datagrams() {
                    let mut packet = datagram.to_vec();
                    received.push(decrypting.unprotect(&mut packet).expect("ours").len());
                }
            });
            taken.expect("received");
        }
        assert_eq!((received, counts), (lengths, vec![11, 4]));
    }

    #[test]
    fn what_no_train_holds_goes_in_the_next() {
        let lengths = |packets: &[usize]| {
            let packets = packets.iter().map(|&bytes| vec![0; bytes]).collect();
            let trains = trains(packets);
            let all = trains.iter().map(|it| (it.bytes.len(), it.segment_bytes));
            all.collect::<Vec<_>>()
        };
        assert_eq!(lengths(&[]), []);
        assert_eq!(lengths(&[100, 200]), [(100, 100), (200, 200)]);
        assert_eq!(lengths(&[100, 50, 50]), [(150, 100), (50, 50)]);
        let [most, more] = [0, 1].map(|more| lengths(&vec![100; TRAIN_PACKETS_MAX + more]));
        assert_eq!(most, [(100 * TRAIN_PACKETS_MAX, 100)]);
        assert_eq!(more, [(100 * TRAIN_PACKETS_MAX, 100), (100, 100)]);
        assert_eq!(lengths(&[40_000, 40_000]), [(40_000, 40_000); 2]);
        assert_eq!(lengths(&[70_000]), [(70_000, 70_000)]);
    }
}
