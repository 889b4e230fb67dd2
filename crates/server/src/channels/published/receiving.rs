//! The sockets that a publisher sends a track to.

use std::io;
use std::net::UdpSocket;

use onrush_sys::receive::Receiver;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

/// Two sockets of one track, connected to its publisher's ports, so that nobody else is heard.
#[derive(Debug)]
pub(crate) struct TrackSockets {
    pub(crate) track: usize,
    pub(crate) rtp: UdpSocket,
    pub(crate) rtcp: UdpSocket,
}

/// One of them, received from.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) track: usize,
    pub(super) is_rtcp: bool,
    pub(super) receiver: Receiver,
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
            })
        };
        Ok([input(false, self.rtp)?, input(true, self.rtcp)?])
    }
}

/// Room for what arrives while a train is on its way to everybody.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
