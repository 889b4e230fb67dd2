//! What a viewer has not been sent yet, on its way to its socket or connection.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

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
            self.unsent.extend(sealed);
            for _ in 0..count {
                self.pop();
            }
        }
        while let Some(packet) = self.unsent.front() {
            if let Err(error) = socket.send_to(packet, to)
                && error.kind() == ErrorKind::WouldBlock
            {
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

/// Datagrams that a viewer is sent in a step while it catches up: what its socket holds, which is
/// 212,992 bytes of the kernel's own accounting by default, is several times as much.
const CATCH_UP_PACKETS: usize = 24;

/// Bytes of frames that are handed over together.
const MESSAGE_BYTES: usize = 32 << 10;
