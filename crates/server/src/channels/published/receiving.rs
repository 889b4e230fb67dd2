//! The sockets that a publisher sends a track to.

use std::io;
use std::net::{IpAddr, UdpSocket};

use onrush_sys::receive::{Message, Receiver};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

/// Two sockets of one track, connected to its publisher's ports if these are known, so that nobody
/// else is heard.
#[derive(Debug)]
pub(crate) struct TrackSockets {
    pub(crate) track: usize,
    pub(crate) rtp: UdpSocket,
    pub(crate) rtcp: UdpSocket,
    /// The publisher's address where its ports are not known: nobody else is heard there either,
    /// and it gets no reports.
    pub(crate) sender: Option<IpAddr>,
}

/// One of them, received from.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) track: usize,
    pub(super) is_rtcp: bool,
    pub(super) receiver: Receiver,
    sender: Option<IpAddr>,
}

impl Input {
    /// Takes a batch, and gives what its publisher has sent to `take`; see [`Receiver::receive`].
    pub(super) fn receive(&mut self, mut take: impl FnMut(Message<'_>)) -> io::Result<usize> {
        let sender = self.sender;
        self.receiver.receive(|message| {
            if sender.is_none_or(|sender| sender == message.from.ip()) {
                take(message);
            }
        })
    }
}

impl TrackSockets {
    pub(super) fn into_inputs(self) -> io::Result<[Input; 2]> {
        // A privilege; who lacks it has as much room as the system gives to all.
        if set_socket_recv_buffer_size_force(&self.rtp, RECEIVE_BUFFER_BYTES).is_err() {
            socket2::SockRef::from(&self.rtp).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        }
        let input = |is_rtcp, socket| -> io::Result<Input> {
            Ok(Input {
                track: self.track,
                is_rtcp,
                receiver: Receiver::new(socket)?,
                sender: self.sender,
            })
        };
        Ok([input(false, self.rtp)?, input(true, self.rtcp)?])
    }
}

/// Room for what arrives while a train is on its way to everybody.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
