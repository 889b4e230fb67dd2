//! Connections that came to HTTP and speak RTSP (`x-rtsp-tunnelled`): they go from the thread that
//! serves downloads to the one that has the sessions, with what was read of them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::sync::mpsc;

use crate::byte_stream::{ByteStream, Detached};
use crate::network::canonical;

/// Connections that wait for control at once; beyond that a client is refused.
pub const TUNNELS_WAITING_MAX: usize = 64;

/// A connection whose first request opens one side of a tunnel.
#[derive(Debug)]
pub(crate) struct Tunnelled {
    pub(crate) peer: SocketAddr,
    stream: Detached,
    /// That request, and what came behind it.
    pub(crate) received: Vec<u8>,
}

/// Where they go.
pub(crate) type Tunnels = mpsc::Sender<Tunnelled>;

/// Where they arrive.
pub(crate) type TunnelQueue = mpsc::Receiver<Tunnelled>;

/// Both ends.
pub(crate) fn tunnels() -> (Tunnels, TunnelQueue) {
    mpsc::channel(TUNNELS_WAITING_MAX)
}

impl Tunnelled {
    /// Takes a connection off the runtime of this thread. `client` is whose it is: another than its
    /// peer, where that is a proxy.
    ///
    /// # Errors
    ///
    /// If it is broken already.
    pub(crate) fn new(stream: ByteStream, client: IpAddr, received: Vec<u8>) -> io::Result<Self> {
        let mut peer = canonical(stream.socket().peer_addr()?);
        peer.set_ip(client);
        Ok(Self {
            peer,
            stream: stream.detach()?,
            received,
        })
    }

    /// The connection, in the runtime of this thread, and what was read of it.
    ///
    /// # Errors
    ///
    /// If the runtime cannot have it.
    pub(crate) fn attach(self) -> io::Result<(ByteStream, Vec<u8>)> {
        Ok((self.stream.attach()?, self.received))
    }
}
