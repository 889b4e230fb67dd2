//! What all services listen with: sockets, and the end of a connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::warn;

/// Ports from one to another, both included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last; not below the first.
    pub last: u16,
}

/// What an address is listened at for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Service {
    /// Players.
    Rtsp,
    /// Players over TLS.
    Rtsps,
    /// Downloads by HTTP.
    Http,
    /// Downloads by HTTP over TLS.
    Https,
    /// Downloads by FTP.
    Ftp,
    /// Metrics.
    Metrics,
    /// The relay's control API.
    Api,
}

impl Service {
    /// The name of its sockets where processes hand them to each other: FileDescriptorName= of a
    /// systemd socket unit.
    #[must_use]
    pub const fn socket_name(self) -> &'static str {
        match self {
            Self::Rtsp => "rtsp",
            Self::Rtsps => "rtsps",
            Self::Http => "http",
            Self::Https => "https",
            Self::Ftp => "ftp",
            Self::Metrics => "metrics",
            Self::Api => "api",
        }
    }
}

/// Sockets that listen, as processes hand them to each other: those that this process got from
/// whoever started it, a service manager or the server whose place it takes, and those that its
/// successor will get. A server listens with the former where it would have opened sockets of its
/// own at the same addresses.
#[derive(Debug, Default)]
pub struct ListeningSockets {
    inherited: Vec<Inherited>,
    open: Vec<(Service, TcpListener)>,
}

#[derive(Debug)]
struct Inherited {
    name: String,
    address: SocketAddr,
    listener: TcpListener,
}

impl ListeningSockets {
    /// Adds a socket that was inherited. Its name is that of a service ([`Service::socket_name`]),
    /// or anything.
    ///
    /// # Errors
    ///
    /// When it is no TCP socket that listens at an IP address.
    pub fn inherit(&mut self, name: &str, socket: OwnedFd) -> io::Result<()> {
        let socket = Socket::from(socket);
        let is_stream = socket.r#type()? == Type::STREAM;
        let Some(address) = socket.local_addr()?.as_socket().filter(|_| is_stream) else {
            return Err(io::Error::other("it is no TCP socket"));
        };
        if !socket.is_listener()? {
            return Err(io::Error::other(format!(
                "the socket at {address} does not listen"
            )));
        }
        socket.set_nonblocking(true)?;
        self.inherited.push(Inherited {
            name: name.to_owned(),
            address,
            listener: socket.into(),
        });
        Ok(())
    }

    /// Listens at `address` for a service, with the socket that was inherited for it, if there is
    /// one. Keeps a copy.
    pub(crate) fn listen(
        &mut self,
        address: SocketAddr,
        service: Service,
    ) -> io::Result<TcpListener> {
        let listener = match self.take(address, service) {
            Some(listener) => listener,
            None => bind(address)?,
        };
        self.open.push((service, listener.try_clone()?));
        Ok(listener)
    }

    /// The inherited socket for a service at an address, if there is one: one that listens there,
    /// or, where any port will do, one that has the service's name.
    fn take(&mut self, asked: SocketAddr, service: Service) -> Option<TcpListener> {
        let is_there = |it: &Inherited| {
            let wildcards = it.address.ip().is_unspecified() && asked.ip().is_unspecified();
            let named = asked.port() == 0 && it.name == service.socket_name();
            (it.address.ip() == asked.ip() || wildcards)
                && (it.address.port() == asked.port() || named)
        };
        let number = self.inherited.iter().position(is_there)?;
        Some(self.inherited.remove(number).listener)
    }

    /// Where inherited sockets listen that nobody has taken.
    pub(crate) fn unused(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.inherited.iter().map(|it| it.address)
    }

    /// Those that a server listens with, to be handed to another process.
    pub fn open(&self) -> impl Iterator<Item = (Service, BorrowedFd<'_>)> {
        self.open
            .iter()
            .map(|(service, listener)| (*service, listener.as_fd()))
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rtsp => "RTSP",
            Self::Rtsps => "RTSP over TLS",
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::Ftp => "FTP",
            Self::Metrics => "metrics",
            Self::Api => "the control API",
        })
    }
}

/// Listens at `address`. `[::]` takes IPv4 as well; on a host without IPv6 it takes nothing but.
///
/// # Errors
///
/// What the system says: the address is in use, not this host's, or not for everybody.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match bind_one(address) {
        Err(error) if address.ip() == IpAddr::from([0_u16; 8]) && lacks_ipv6(&error) => {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            warn!("{address}: {error}; this host has no IPv6, listening at {v4}");
            bind_one(v4)
        }
        bound => bound,
    }
}

/// Whether the server takes nobody more, and only serves those it has.
#[derive(Clone, Debug)]
pub(crate) struct Draining(watch::Receiver<bool>);

impl Draining {
    /// What is told to begin, and what hears of it.
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (begin, heard) = watch::channel(false);
        (begin, Self(heard))
    }

    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it begins.
    pub(crate) async fn begins(mut self) {
        if self.0.wait_for(|has_begun| *has_begun).await.is_err() {
            // The server stops without it.
            std::future::pending::<()>().await;
        }
    }
}

/// Says that nothing more will come, and waits for the client to say so too, for a second at the
/// most: what it has sent unread would make the kernel reset the connection, and the last reply be
/// lost.
pub(crate) async fn close(socket: &mut TcpStream) -> io::Result<()> {
    socket.shutdown().await?;
    let drained = async {
        loop {
            socket.readable().await?;
            match socket.try_read(&mut [0; 512]) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    };
    timeout(CLOSE_TIME_MAX, drained).await.unwrap_or(Ok(()))
}

/// How long that is waited for.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Old connections of a server that was restarted do not keep the port; a server that runs does.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn lacks_ipv6(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
    )
}

/// Connections that may wait to be taken; the kernel bounds it further (net.core.somaxconn).
const BACKLOG: i32 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn listener(address: &str) -> TcpListener {
        TcpListener::bind(address).unwrap()
    }

    #[test]
    fn an_inherited_socket_serves_who_asks_for_its_address() {
        let (first, second) = (listener("127.0.0.1:0"), listener("127.0.0.1:0"));
        let [at, other] = [&first, &second].map(|it| it.local_addr().unwrap());
        let mut sockets = ListeningSockets::default();
        sockets.inherit("unknown", first.into()).unwrap();
        sockets.inherit("http", second.into()).unwrap();
        assert_eq!(bind(at).unwrap_err().kind(), io::ErrorKind::AddrInUse);

        let taken = sockets.listen(at, Service::Rtsp).unwrap();
        assert_eq!(taken.local_addr().unwrap(), at);
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let of_rtsp = sockets.listen(any, Service::Rtsp).unwrap();
        assert_ne!(of_rtsp.local_addr().unwrap(), other, "that is of HTTP");
        assert_eq!(sockets.unused().collect::<Vec<_>>(), [other]);
        let of_http = sockets.listen(any, Service::Http).unwrap();
        assert_eq!(of_http.local_addr().unwrap(), other);
        assert_eq!(sockets.unused().count(), 0);
        let open = sockets.open().map(|(service, _)| service);
        assert!(open.eq([Service::Rtsp, Service::Rtsp, Service::Http]));
    }

    #[test]
    fn what_does_not_listen_cannot_be_inherited() {
        let mut sockets = ListeningSockets::default();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = sockets.inherit("rtsp", datagrams.into()).unwrap_err();
        assert!(error.to_string().contains("no TCP socket"), "{error}");
        let idle = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let error = sockets.inherit("rtsp", idle.into()).unwrap_err();
        assert!(error.to_string().contains("does not listen"), "{error}");
    }
}
