//! A client whose way takes no trains, while those of others do: it is behind IPsec, or before
//! Linux 6.11 behind a device that computes no checksums, as a tunnel's (net/ipv4/udp.c,
//! `udp_send_skb`: EIO). Each of its packets leaves by itself, on a socket that cuts nothing; the
//! path stays as it is for everybody else. If nobody's trains were taken yet, the path is given up
//! instead.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use onrush_sys::path::set_option;
use socket2::SockRef;
use tracing::{debug, info};

use super::Worker;
use super::entry::StreamOutlet;

impl Worker {
    /// Has the packets of a stream leave singly from now on. Whether that is new: without a
    /// descriptor for its socket it is tried again when the kernel refuses the next train. Nothing
    /// of the stream is queued: before an answer is taken, all that was is handed over.
    pub(super) fn send_singly(&mut self, number: u32) -> bool {
        let stream = self.streams.get(number).filter(|it| !it.sends_singly());
        let Some(stream) = stream else {
            return false;
        };
        let answer = match &stream.outlet {
            StreamOutlet::Socket(socket) => cut_nothing(socket),
            StreamOutlet::InstalledSocket => {
                let socket = self.transmitter.descriptor(number);
                socket.and_then(|socket| cut_nothing(&socket))
            }
            StreamOutlet::Interleaved { .. } | StreamOutlet::Lost(_) => return false,
        };
        match answer {
            Ok(client) => {
                stream.shared.sends_singly.store(true, Ordering::Relaxed);
                info!(%client, "the way to it takes no trains (EIO): its packets leave singly");
                true
            }
            Err(error) => {
                debug!(%error, "a stream whose trains are refused goes on with trains");
                false
            }
        }
    }
}

/// Has the kernel cut nothing of what is sent on a socket. Returns who is at its other end.
fn cut_nothing(socket: &OwnedFd) -> io::Result<String> {
    set_option(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0)?;
    let client = SockRef::from(socket).peer_addr().ok();
    let client = client.and_then(|client| client.as_socket());
    Ok(client.map_or_else(String::new, |client| client.to_string()))
}
