//! Pairs of UDP ports: an even one for RTP, the odd one above it for RTCP.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

/// The ports that are given out, and where the next search begins.
#[derive(Debug)]
pub(super) struct Ports {
    first: u16,
    pairs: u16,
    next: Cell<u16>,
}

/// Two sockets connected to a client.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) rtp: UdpSocket,
    pub(super) rtcp: UdpSocket,
    pub(super) rtp_port: u16,
}

impl Ports {
    /// Those from `first` to `last`, both included.
    pub(super) fn new((first, last): (u16, u16)) -> Self {
        // An odd first port is left out, and so is an even last one, which has none above it.
        let first = first.saturating_add(first % 2);
        let pairs = u16::try_from((u32::from(last) + 1).saturating_sub(u32::from(first)) / 2);
        Self {
            first,
            pairs: pairs.expect("half of 65536"),
            next: Cell::new(0),
        }
    }

    /// Binds a pair to `local`'s address. They are taken in turn, so that a port rests for as long as can
    /// be before the next client gets it, and with it what is still on its way to the one before.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if there is no free pair.
    pub(super) fn bind(&self, local: SocketAddr) -> io::Result<Pair> {
        self.search(local, false)
    }

    /// The same, but others may [join](Self::join) at the RTCP port.
    pub(super) fn bind_shared(&self, local: SocketAddr) -> io::Result<Pair> {
        self.search(local, true)
    }

    /// One more socket at the RTCP port of a pair that is shared. Connect it, or it takes what is for others.
    pub(super) fn join(local: SocketAddr, rtp_port: u16) -> io::Result<UdpSocket> {
        Ok(bind_one(local, rtp_port + 1, true)?.into())
    }

    fn search(&self, local: SocketAddr, is_shared: bool) -> io::Result<Pair> {
        for _ in 0..self.pairs {
            let pair = self.next.get();
            self.next.set((pair + 1) % self.pairs);
            let rtp_port = self.first + 2 * pair;
            match bind_pair(local, rtp_port, is_shared) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

impl Pair {
    /// Lets both send to, and hear from, this client alone.
    pub(super) fn connect(&self, peer: SocketAddr, rtp: u16, rtcp: u16) -> io::Result<()> {
        let to = |port| {
            let mut to = peer;
            to.set_port(port);
            to
        };
        self.rtp.connect(to(rtp))?;
        self.rtcp.connect(to(rtcp))
    }
}

fn bind_pair(local: SocketAddr, rtp_port: u16, is_shared: bool) -> io::Result<Pair> {
    let rtp = bind_one(local, rtp_port, false)?;
    let rtcp = bind_one(local, rtp_port + 1, is_shared)?;
    // What clients send to the RTP port (to open their firewalls) is never read.
    rtp.set_recv_buffer_size(1)?;
    Ok(Pair {
        rtp: rtp.into(),
        rtcp: rtcp.into(),
        rtp_port,
    })
}

fn bind_one(mut local: SocketAddr, port: u16, is_shared: bool) -> io::Result<Socket> {
    local.set_port(port);
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_port(is_shared)?;
    socket.bind(&local.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    #[test]
    fn only_whole_pairs_count() {
        for (range, first, pairs) in [
            ((20_000, 20_001), 20_000, 1),
            ((20_000, 20_002), 20_000, 1),
            ((20_001, 20_003), 20_002, 1),
            ((20_001, 20_002), 20_002, 0),
            ((20_000, 20_000), 20_000, 0),
            ((20_000, 10_000), 20_000, 0),
            ((0, 65_535), 0, 32_768),
            ((65_535, 65_535), 65_535, 0),
        ] {
            let ports = Ports::new(range);
            assert_eq!((ports.first, ports.pairs), (first, pairs), "{range:?}");
        }
        let none = Ports::new((20_000, 20_000)).bind(local()).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn pairs_are_taken_in_turn_and_taken_ones_passed_over() {
        // Somewhere in the range other tests may hold a port; then the search goes on, as it should.
        let ports = Ports::new((61_000, 61_007));
        let held: Vec<_> = (0..4).map_while(|_| ports.bind(local()).ok()).collect();
        assert!(!held.is_empty());
        for pair in &held {
            assert_eq!(pair.rtp_port % 2, 0);
            assert_eq!(pair.rtp.local_addr().unwrap().port(), pair.rtp_port);
            assert_eq!(pair.rtcp.local_addr().unwrap().port(), pair.rtp_port + 1);
        }
        let full = ports.bind(local()).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::AddrInUse);
        let freed = held[0].rtp_port;
        drop(held.into_iter().next());
        assert_eq!(ports.bind(local()).unwrap().rtp_port, freed);
    }
}
