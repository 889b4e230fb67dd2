//! What a viewer has not been sent yet, on its way to its socket or connection.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use onrush_sys::path::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX, send_train_to};
use onrush_wire::rtp::HEADER_BYTES;
use onrush_wire::rtsp::{FRAME_PREFIX_BYTES, frame_prefix};
use onrush_wire::srtp::Arrival;

use super::{Bounds, Sent, Watched};
use crate::channels::outlet::Counts;
use crate::channels::viewing::Way;
use crate::engine::{InterleavedConnection, Unwoken};

impl Watched {
    /// Sends datagrams of the backlog, few enough for a player's socket to hold.
    pub(in crate::channels) fn send_datagrams(
        &mut self,
        socket: &UdpSocket,
        to: SocketAddr,
        at: Arrival,
    ) -> Sent {
        if self.unsent.is_empty() {
            self.form_trains(at);
        }
        while let Some(train) = self.unsent.front_mut() {
            if !train.leaves((socket, to), &mut self.alone) {
                return Sent::Some;
            }
            self.unsent.pop_front();
        }
        match self.backlog.is_empty() {
            true => Sent::All,
            false => Sent::Some,
        }
    }

    /// Makes trains of the next packets, with its own numbers, and encrypted if they are for it
    /// alone.
    fn form_trains(&mut self, at: Arrival) {
        let count = self.backlog.len().min(CATCH_UP_PACKETS);
        let packets = self.backlog.iter().take(count);
        let mut packets: Vec<_> = packets.map(|packet| self.numbered(&packet.bytes)).collect();
        if let Some(srtp) = self.encrypts_alone().map(Arc::clone) {
            packets = srtp.seal_each(packets.iter().map(Vec::as_slice), at);
            self.encrypted[0] += packets.len() as u64;
            self.encrypted[1] += (count - packets.len()) as u64;
        }
        self.unsent.extend(trains(packets));
        for _ in 0..count {
            self.pop();
        }
    }

    /// Whether its turn is of any use: on a connection not where nothing waits, but for a look now
    /// and then, nor shortly after it found no room.
    pub(in crate::channels) fn is_served(&self, (bounds, now_ns): (Bounds, u64)) -> bool {
        match self.way {
            Way::Datagrams(..) => true,
            Way::Frames(..) if self.backlog.is_empty() => self.progress.is_due(bounds, now_ns),
            Way::Frames(..) => self.progress.held_ns(now_ns) == 0,
        }
    }

    /// Sends frames of the backlog, as many as its connection takes. What it or its engine has no
    /// room for stays in the backlog.
    pub(in crate::channels) fn send_frames(
        &mut self,
        (connection, channel): (&InterleavedConnection, u8),
        (bounds, now_ns): (Bounds, u64),
        unwoken: &mut Unwoken,
    ) -> Sent {
        // Before anything is given, which would be what it has not acknowledged.
        if self.progress.is_due(bounds, now_ns) {
            self.progress.look(connection, now_ns);
        }
        // One message goes, however long its packet is.
        let bytes_max = bounds.backlog_bytes_max.saturating_sub(MESSAGE_BYTES);
        while !self.backlog.is_empty() {
            // What comes until the engine takes them leaves together.
            if self.backlog_bytes < MESSAGE_BYTES && connection.waiting() >= MESSAGES_AHEAD {
                break;
            }
            if !connection.has_room() || self.progress.is_full(connection, bytes_max, now_ns) {
                self.progress.hold(now_ns);
                break;
            }
            let (message, framed, packets) = self.message(channel);
            // Packets that no frame holds are passed over.
            let given = match message.is_empty() {
                true => Ok(()),
                false => connection.try_send_frames(message, unwoken),
            };
            match given {
                Ok(()) => {
                    self.alone += framed;
                    (0..packets).for_each(|_| drop(self.pop()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.progress.hold(now_ns);
                    break;
                }
                Err(_) => return Sent::Stalled,
            }
        }
        match self.backlog.is_empty() {
            _ if self.progress.is_stalled(bounds, now_ns) => Sent::Stalled,
            true => Sent::All,
            false => Sent::Some,
        }
    }

    /// The next packets as frames, of how many and how long ones, and how many packets that is with
    /// those that no frame holds.
    fn message(&self, channel: u8) -> (Vec<u8>, Counts, usize) {
        let mut message = Vec::with_capacity(MESSAGE_BYTES.min(2 * self.backlog_bytes));
        let (mut framed, mut packets) = (Counts::default(), 0);
        for packet in &self.backlog {
            let whole = packet.bytes.len() + FRAME_PREFIX_BYTES;
            if !message.is_empty() && message.len() + whole > MESSAGE_BYTES {
                break;
            }
            packets += 1;
            let Ok(bytes) = u16::try_from(packet.bytes.len()) else {
                continue;
            };
            framed.count(packet.bytes.len());
            message.extend_from_slice(&frame_prefix(channel, bytes));
            let at = message.len();
            message.extend_from_slice(&packet.bytes);
            if let Some(head) = self.header(&packet.bytes) {
                message[at..at + HEADER_BYTES].copy_from_slice(&head);
            }
        }
        (message, framed, packets)
    }
}

/// Packets of one size, of which the last may be shorter, that leave in one send.
#[derive(Debug)]
pub(super) struct UnsentTrain {
    bytes: Vec<u8>,
    segment_bytes: usize,
}

impl UnsentTrain {
    /// Whether a packet can follow in the same send.
    fn takes(&self, packet: &[u8]) -> bool {
        self.bytes.len().is_multiple_of(self.segment_bytes)
            && packet.len() <= self.segment_bytes
            && self.bytes.len() + packet.len() <= TRAIN_BYTES_MAX
            && self.bytes.len() / self.segment_bytes < TRAIN_PACKETS_MAX
    }

    /// Sends what has not left yet, which is counted. `false` if the socket is full; what the
    /// network says of packets is not worth a second attempt.
    fn leaves(&mut self, (socket, to): (&UdpSocket, SocketAddr), left: &mut Counts) -> bool {
        let sent = match u16::try_from(self.segment_bytes) {
            Ok(segment_bytes) => send_train_to(socket, to, &self.bytes, segment_bytes),
            // One packet, which no datagram holds: the kernel says so.
            Err(_) => socket.send_to(&self.bytes, to),
        };
        match sent {
            Ok(bytes) => {
                let packets = self.bytes[..bytes].chunks(self.segment_bytes);
                packets.for_each(|packet| left.count(packet.len()));
                self.bytes.drain(..bytes);
                self.bytes.is_empty()
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// Packets as trains, as few as may be.
fn trains(packets: Vec<Vec<u8>>) -> Vec<UnsentTrain> {
    let mut trains: Vec<UnsentTrain> = Vec::new();
    for packet in packets {
        match trains.last_mut().filter(|train| train.takes(&packet)) {
            Some(train) => train.bytes.extend_from_slice(&packet),
            None => trains.push(UnsentTrain {
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

/// Messages of a connection that may wait for its engine before packets wait for one another: more
/// than come while an engine sleeps, of an ordinary stream.
const MESSAGES_AHEAD: u64 = 4;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use onrush_sys::receive::Receiver;
    use onrush_wire::live::RecentPacket;
    use onrush_wire::rtp::Header;
    use onrush_wire::srtp::{MasterKey, RtpReceiver, Suite};

    use super::super::ViewerTrack;
    use super::*;
    use crate::channels::srtp::ViewerSrtp;
    use crate::engine::interleaved::tests::ManualConnection;

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

    /// A viewer at that address, with a key of its own if it has one.
    fn viewer(key: Option<&MasterKey>, to: SocketAddr) -> Watched {
        let wanted = ViewerTrack {
            track: 0,
            way: Way::Datagrams(to, to),
            viewing: Arc::default(),
            start: None,
            srtp: key.map(ViewerSrtp::own),
        };
        Watched::new(wanted, None, None)
    }

    #[test]
    fn packets_for_one_viewer_alone_leave_in_trains() {
        let key = MasterKey::new(Suite::default(), &[7; 30]).expect("a key and a salt");
        // Also to who catches up, or has paused, without a key.
        for key in [Some(&key), None] {
            let bind = || UdpSocket::bind("127.0.0.1:0").expect("loopback");
            let (socket, receiver) = (bind(), bind());
            let to = receiver.local_addr().expect("bound");
            // It joins what arrives: a message is what was sent at once.
            let mut receiver = Receiver::new(receiver).expect("a socket");
            let mut watched = viewer(key, to);
            // Two pictures: of ten packets and a shorter one, and of three and a shorter one.
            let lengths = [&[1200; 10][..], &[300], &[1200; 3], &[900]].concat();
            for (sequence, &bytes) in (100..).zip(&lengths) {
                watched.push(&packet(sequence, bytes));
            }
            assert_eq!(watched.send_datagrams(&socket, to, AT), Sent::All);
            assert_eq!(watched.encrypted, [15 * u64::from(key.is_some()), 0]);
            assert_eq!(watched.alone.packets, 15);
            let (give_up, mut counts) = (Instant::now() + PATIENCE, Vec::new());
            let mut decrypting = key.map(RtpReceiver::new);
            let (mut received, mut came_bytes) = (Vec::new(), 0);
            while received.len() < lengths.len() {
                assert!(Instant::now() < give_up, "all come: {received:?}");
                let taken = receiver.receive(|message| {
                    counts.push(message.datagrams().count());
                    for datagram in message.datagrams() {
                        let mut packet = datagram.to_vec();
                        came_bytes += packet.len() as u64;
                        received.push(match &mut decrypting {
                            Some(it) => it.unprotect(&mut packet).expect("ours").len(),
                            None => packet.len(),
                        });
                    }
                });
                taken.expect("received");
            }
            assert_eq!((received, counts), (lengths, vec![11, 4]));
            assert_eq!(watched.alone.bytes, came_bytes);
        }
    }

    /// What the group gets leaves behind it.
    #[test]
    fn who_has_something_unsent_joins_no_group() {
        let to = ([127, 0, 0, 1], 9).into();
        let mut watched = viewer(None, to);
        watched.push(&packet(0, 100));
        watched.form_trains(AT);
        assert!(watched.backlog.is_empty() && !watched.may_join());
        assert_eq!(watched.due_in_ns(1, 0), Some(1));
        watched.unsent.clear();
        assert!(watched.may_join());
    }

    /// A viewer on a connection.
    fn viewer_on(manual: &ManualConnection) -> Watched {
        let wanted = ViewerTrack {
            track: 0,
            way: Way::Frames(Arc::clone(&manual.connection), 0),
            viewing: Arc::default(),
            start: None,
            srtp: None,
        };
        Watched::new(wanted, None, None)
    }

    const BOUNDS: Bounds = Bounds {
        backlog_bytes_max: 512 << 10,
        stall_ns_max: 10_000_000_000,
    };

    fn send(watched: &mut Watched, manual: &ManualConnection, now_ns: u64) -> Sent {
        let to = (&*manual.connection, 0);
        watched.send_frames(to, (BOUNDS, now_ns), &mut Unwoken::default())
    }

    #[test]
    fn frames_that_wait_for_an_engine_leave_together() {
        let manual = ManualConnection::new();
        let mut watched = viewer_on(&manual);
        let ahead = usize::try_from(MESSAGES_AHEAD).unwrap();
        for sequence in 0..10 {
            watched.push(&packet(sequence, 1000));
            send(&mut watched, &manual, 0);
        }
        assert_eq!(manual.take(), vec![1004; ahead]);
        assert_eq!(send(&mut watched, &manual, 0), Sent::All);
        assert_eq!(manual.take(), [(10 - ahead) * 1004]);
        assert_eq!(watched.alone.packets, 10);
        // They do not wait for one another for ever.
        for sequence in 10..110 {
            watched.push(&packet(sequence, 1000));
            send(&mut watched, &manual, 0);
        }
        assert!(watched.backlog_bytes < MESSAGE_BYTES);
        assert!(manual.take().len() < ahead + 4);
    }

    #[test]
    fn what_an_engine_has_no_room_for_stays_in_the_backlog() {
        let manual = ManualConnection::new();
        let mut watched = viewer_on(&manual);
        manual.fill();
        watched.push(&packet(0, 1000));
        assert_eq!(send(&mut watched, &manual, 0), Sent::Some);
        assert_eq!((watched.backlog.len(), watched.alone.packets), (1, 0));
        assert_eq!(watched.newest, None, "nothing is told of it");
        assert!(!watched.is_served((BOUNDS, 0)), "it is not asked at once");
        let later_ns = watched.due_in_ns(1, 0).expect("it waits");
        assert!(watched.is_served((BOUNDS, later_ns)));
        // Control still finds room.
        manual.connection.try_send(b"an answer".to_vec()).unwrap();
        assert_eq!(manual.take(), [9]);
        assert_eq!(send(&mut watched, &manual, later_ns), Sent::All);
        assert_eq!(manual.take(), [1004]);
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
