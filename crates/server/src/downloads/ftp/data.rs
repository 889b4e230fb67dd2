//! The data connection: made for one transfer, to or from the client's own address, and nobody
//! else's.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use onrush_sys::path::set_option;
use onrush_wire::ftp::Reply;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::byte_stream::ByteStream;
use crate::downloads::Downloads;
use crate::downloads::admission::{Share, Taken, of_address};
use crate::tls::Tls;

/// How long a client may take to make its data connection, or to take ours.
pub const DATA_TIME_MAX: Duration = Duration::from_secs(30);

/// How the next data connection comes about.
#[derive(Debug, Default)]
pub(super) enum Data {
    /// Nobody has said yet.
    #[default]
    Unknown,
    /// The client connects to this, which is one of its address's share of ports.
    Listening(TcpListener, Taken),
    /// We connect.
    Connecting {
        /// From where the client's control connection came to.
        local: SocketAddr,
        /// To the client's address.
        to: SocketAddr,
    },
}

impl Data {
    /// Listens for the client, at the address that its control connection uses, on a free port of
    /// the range, of which those of its own address have a share.
    pub(super) fn listen(
        local: SocketAddr,
        settings: &Downloads,
        share: &Share,
    ) -> io::Result<(Self, SocketAddr)> {
        thread_local! {
            // One after the other, so that a port is not used again while the last connection on it
            // ends.
            static NEXT: Cell<u16> = const { Cell::new(0) };
        }
        let ports = settings.ftp_ports;
        let count = ports.last - ports.first + 1;
        let port = share.port(of_address(&settings.limits, count.into()));
        let port = port.ok_or_else(|| io::Error::other("its address has its share of them"))?;
        let mut refused = io::Error::from_raw_os_error(libc::EADDRINUSE);
        for _ in 0..count {
            let mut address = local;
            address.set_port(ports.first + NEXT.get() % count);
            NEXT.set((NEXT.get() + 1) % count);
            match bind(address) {
                Ok(listener) => {
                    let address = listener.local_addr()?;
                    return Ok((Self::Listening(listener, port), address));
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// The connection, encrypted if there is something to do it with. The client begins the
    /// handshake, whoever has connected.
    ///
    /// # Errors
    ///
    /// What to answer if nothing comes of it.
    pub(super) async fn open(
        self,
        peer: IpAddr,
        tls: Option<Arc<Tls>>,
    ) -> Result<ByteStream, Reply> {
        let connected = async {
            let socket = self.connect(peer).await?;
            let address = socket.peer_addr()?;
            Ok::<_, io::Error>((socket, address))
        };
        let (socket, address) = connected
            .await
            .map_err(|error| Reply::new(425, format!("no data connection: {error}")))?;
        let Some(tls) = tls else {
            return Ok(ByteStream::Plain(socket));
        };
        match Box::pin(tls.accept_data(socket, address)).await {
            Some(stream) => Ok(ByteStream::Tls(Box::new(stream))),
            None => Err(Reply::new(522, "no handshake on the data connection")),
        }
    }

    /// The connection. Those that others make are closed at once, unheard (RFC 2577, section 4).
    async fn connect(self, peer: IpAddr) -> io::Result<TcpStream> {
        let connection = async {
            match self {
                Self::Unknown => Err(io::ErrorKind::NotConnected.into()),
                Self::Connecting { local, to } => connect(local, to).await,
                Self::Listening(listener, _port) => loop {
                    let (socket, from) = listener.accept().await?;
                    if from.ip().to_canonical() == peer {
                        return Ok(socket);
                    }
                },
            }
        };
        timeout(DATA_TIME_MAX, connection).await?
    }
}

/// Connects from that address: a client, and what stands in front of it, may take nothing from
/// another.
async fn connect(mut local: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let to = on_link_of(local, to);
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // With this a port is chosen when it connects, and several clients may share one.
    let (fd, option) = (socket.as_raw_fd(), libc::IP_BIND_ADDRESS_NO_PORT);
    drop(set_option(fd, libc::IPPROTO_IP, option, 1));
    local.set_port(0);
    socket.bind(local)?;
    socket.connect(to).await
}

/// The client's address, which is one on the link of ours if it is link-local.
fn on_link_of(local: SocketAddr, mut to: SocketAddr) -> SocketAddr {
    to.set_ip(to.ip().to_canonical());
    if let (SocketAddr::V6(local), SocketAddr::V6(to)) = (local, &mut to) {
        to.set_scope_id(local.scope_id());
    }
    to
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    // One connection is wanted; others cannot keep it out for longer than it takes to close them.
    socket.listen(8)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::listening::PortRange;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn settings(ftp_ports: PortRange) -> Downloads {
        Downloads {
            ftp_ports,
            ..Downloads::default()
        }
    }

    fn listen(ports: PortRange) -> io::Result<(Data, SocketAddr)> {
        let local = SocketAddr::new(LOCAL, 0);
        Data::listen(local, &settings(ports), &Share::default())
    }

    /// Some ports from there on that are free just now, one after the other. No two tests look in
    /// the same place.
    fn free_ports(from: u16) -> PortRange {
        let taken = |port| std::net::TcpListener::bind((LOCAL, port)).is_err();
        let first = (from..from + 900)
            .step_by(3)
            .find(|&port| (port..port + 3).all(|p| !taken(p)));
        let first = first.unwrap();
        PortRange {
            first,
            last: first + 2,
        }
    }

    #[tokio::test]
    async fn ports_are_those_of_the_range_and_no_others() {
        let ports = free_ports(30_000);
        let taken: Vec<_> = (0..3).map(|_| listen(ports).unwrap()).collect();
        let mut numbers: Vec<_> = taken.iter().map(|(_, address)| address.port()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [ports.first, ports.first + 1, ports.last]);
        let error = listen(ports).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    /// Of a hundred ports one address has 64, so that few are needed here.
    #[tokio::test]
    async fn an_address_has_its_share_of_ports() {
        let settings = settings(PortRange {
            first: 33_000,
            last: 33_099,
        });
        let (local, share) = (SocketAddr::new(LOCAL, 0), Share::default());
        let listen = |share: &Share| Data::listen(local, &settings, share);
        let held: Vec<_> = (0..64).map(|_| share.port(64).unwrap()).collect();
        assert_eq!(listen(&share).unwrap_err().kind(), io::ErrorKind::Other);
        assert!(listen(&Share::default()).is_ok(), "it is another's");
        drop(held);
        let (data, _) = listen(&share).unwrap();
        assert!(share.port(1).is_none());
        drop(data);
        assert!(share.port(1).is_some());
    }

    #[tokio::test]
    async fn only_the_client_itself_is_taken() {
        let (data, address) = listen(free_ports(31_000)).unwrap();
        let stranger = TcpSocket::new_v4().unwrap();
        stranger.bind("127.0.0.9:0".parse().unwrap()).unwrap();
        let stranger = stranger.connect(address).await.unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let taken = data.connect(LOCAL).await.unwrap();
        assert_eq!(taken.peer_addr().unwrap(), client.local_addr().unwrap());
        stranger.readable().await.unwrap();
        assert!(matches!(stranger.try_read(&mut [0]), Ok(0) | Err(_)));
    }

    #[test]
    fn clients_are_on_the_link_that_they_came_by() {
        for (local, to, expected) in [
            ("[fe80::1%3]:21", "[fe80::2]:5000", "[fe80::2%3]:5000"),
            ("[fd77::1]:21", "[fd77::2]:5000", "[fd77::2]:5000"),
            ("192.0.2.1:21", "[::ffff:192.0.2.2]:5000", "192.0.2.2:5000"),
        ] {
            let found = on_link_of(local.parse().unwrap(), to.parse().unwrap());
            assert_eq!(found.to_string(), expected);
        }
    }

    /// Nobody has these addresses, which is another error than that their link is not known.
    #[tokio::test]
    async fn link_local_addresses_keep_their_link() {
        let local = "[fe80::2:1%1]:21".parse().unwrap();
        let ports = PortRange {
            first: 32_000,
            last: 32_000,
        };
        let share = Share::default();
        let error = Data::listen(local, &settings(ports), &share).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        let to = "[fe80::2:2]:5000".parse().unwrap();
        let error = connect(local, to).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
