//! What all services listen with: sockets, and the end of a connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
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
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    match bind_one(address) {
        Err(error) if address.ip() == IpAddr::from([0_u16; 8]) && lacks_ipv6(&error) => {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            warn!("{address}: {error}; this host has no IPv6, listening at {v4}");
            bind_one(v4)
        }
        bound => bound,
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

fn bind_one(address: SocketAddr) -> io::Result<std::net::TcpListener> {
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
