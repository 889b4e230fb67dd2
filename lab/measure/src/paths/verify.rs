//! That what arrives is the file, after what the path's touch has done to it is undone.
//!
//! The timed runs end in a sink that counts and drops. So each run is preceded by some packets of
//! its kind, from the beginning, the middle and the end of the file, to a socket in the receiving
//! namespace: there every byte is compared with the file, and every checksum with what the sender
//! had. Nothing of it is in the figures.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use onrush_paths::{Mover, Name, Source, Touch, Toucher};
use onrush_testkit::testbed::{RCV_IPV4, SND_IPV4, Testbed};
use socket2::SockRef;

use super::Transport;

/// Packets that are sent at once: what a receiver's buffer holds of the largest.
const WINDOW_PACKETS: usize = 128;
/// Room for them, as the kernel counts.
const WINDOW_BYTES: usize = 64 << 20;
/// A packet that has not come by then is lost.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Packet images that the sender makes of them.
const IMAGE_BYTES_MAX: usize = 8 << 20;

/// So long a payload has a byte that a filter marks.
const CERTAIN_BYTES: usize = 256;

/// What is verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verify<'a> {
    pub(super) testbed: &'a Testbed,
    pub(super) source: &'a Arc<Source>,
    pub(super) name: Name,
    pub(super) touch: Touch,
    /// Changes a byte on its way, in the middle of what is sent: to see it found.
    pub(super) is_planted: bool,
}

impl Verify<'_> {
    /// Sends and compares; how many packets were as they must be.
    ///
    /// # Errors
    ///
    /// Which packet was not, and how; or what the system refused.
    pub(super) fn over(self, transport: Transport) -> Result<u64, String> {
        let open = Mover::open_touching(self.name, self.source, IMAGE_BYTES_MAX, self.touch);
        let mut mover = open.map_err(|error| error.to_string())?;
        let mut verified = 0;
        for window in windows(self.source.plan.packets()) {
            let arrived = match transport {
                Transport::Tcp => self.by_tcp(&mut mover, &window),
                _ => self.by_udp(&mut mover, &window),
            };
            let mut arrived = arrived.map_err(|error| format!("cannot verify: {error}"))?;
            let middle = arrived.len() / 2;
            if let Some(byte) = arrived[middle].last_mut().filter(|_| self.is_planted) {
                *byte ^= 0x80;
            }
            for (number, packet) in window.clone().zip(&mut arrived) {
                let told = mover.checksums().get(number - window.start).copied();
                self.compare(number, packet, told)?;
                verified += 1;
            }
        }
        Ok(verified)
    }

    fn by_udp(self, mover: &mut Mover, window: &Range<usize>) -> io::Result<Vec<Vec<u8>>> {
        let receiver = self.testbed.rcv.run(|| UdpSocket::bind((RCV_IPV4, 0)))?;
        receiver.set_read_timeout(Some(WAIT_MAX))?;
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, WINDOW_BYTES)?;
        let to = receiver.local_addr()?;
        let sender = self.testbed.snd.run(|| {
            let socket = UdpSocket::bind((SND_IPV4, 0))?;
            socket.connect(to).map(|()| socket)
        })?;
        mover
            .send(&sender, window.clone())
            .map_err(io::Error::other)?;
        let mut packet = vec![0; 1 << 16];
        let mut receive = |number| -> io::Result<Vec<u8>> {
            let bytes = receiver.recv(&mut packet).map_err(|error| {
                io::Error::other(format!("packet {number} has not arrived: {error}"))
            })?;
            Ok(packet[..bytes].to_vec())
        };
        window.clone().map(&mut receive).collect()
    }

    fn by_tcp(self, mover: &mut Mover, window: &Range<usize>) -> io::Result<Vec<Vec<u8>>> {
        let listener = self.testbed.rcv.run(|| TcpListener::bind((RCV_IPV4, 0)))?;
        let to = listener.local_addr()?;
        let bytes = self.source.plan.bytes(window.clone());
        let receiving = thread::spawn(move || -> io::Result<Vec<u8>> {
            SockRef::from(&listener).set_read_timeout(Some(WAIT_MAX))?;
            let stream = listener.accept()?.0;
            stream.set_read_timeout(Some(WAIT_MAX))?;
            let mut all = Vec::new();
            stream.take(bytes + 1).read_to_end(&mut all)?;
            Ok(all)
        });
        let sent = self
            .testbed
            .snd
            .run(|| TcpStream::connect(to))
            .and_then(|stream| {
                let sent = mover.send(&stream, window.clone());
                sent.map_err(io::Error::other)
            });
        let received = receiving.join().expect("it does not panic");
        sent?;
        let received = received?;
        if received.len() as u64 != bytes {
            let text = format!("{bytes} bytes were sent, {} arrived", received.len());
            return Err(io::Error::other(text));
        }
        let mut rest = received.as_slice();
        let cut = |number| {
            let packet;
            (packet, rest) = rest.split_at(self.source.plan.packet_bytes(number));
            packet.to_vec()
        };
        Ok(window.clone().map(cut).collect())
    }

    fn compare(self, number: usize, packet: &mut [u8], told: Option<u32>) -> Result<(), String> {
        let plan = &self.source.plan;
        let wanted = plan.packet(number);
        if packet.len() != wanted.bytes() {
            let (came, bytes) = (packet.len(), wanted.bytes());
            return Err(format!("packet {number}: {came} bytes arrived of {bytes}"));
        }
        let (header, payload) = packet.split_at_mut(plan.header_bytes());
        let mut content = vec![0; payload.len()];
        let mut rest = content.as_mut_slice();
        for piece in wanted.pieces {
            let place;
            (place, rest) = rest.split_at_mut(piece.bytes as usize);
            let read = self.source.file.read_exact_at(place, piece.offset);
            read.map_err(|error| format!("cannot read the file again: {error}"))?;
        }
        let is_changed = payload != content;
        let is_certain = payload.len() >= CERTAIN_BYTES;
        let checksum = Toucher::new(self.touch).touch(number, payload);
        let touch = self.touch;
        let wrong = match () {
            () if header != wanted.header => "its header is another",
            () if told != checksum => "its checksum is not that of what was sent",
            () if payload != content => "it is not what the file has",
            () if is_certain && is_changed != touch.changes() => "it was not touched on its way",
            () => return Ok(()),
        };
        Err(format!("packet {number}, {touch}: {wrong}"))
    }
}

/// The first packets, some of the middle, and the last.
fn windows(packets: usize) -> Vec<Range<usize>> {
    let some = WINDOW_PACKETS.min(packets);
    let starts = [0, (packets - some) / 2, packets - some];
    let mut starts = starts.to_vec();
    starts.dedup();
    starts
        .into_iter()
        .map(|start| start..start + some)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_middle_and_end_are_looked_at() {
        assert_eq!(windows(1000), [0..128, 436..564, 872..1000]);
        assert_eq!(windows(100).len(), 1);
    }
}
