//! What all services listen with, and streams arrive at: sockets, and the end of a connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
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

/// Sockets as processes hand them to each other: those that this process got from whoever started
/// it, a service manager or the server whose place it takes, and those that its successor will get.
/// A server takes the former where it would have opened sockets of its own at the same addresses.
#[derive(Debug, Default)]
pub struct ListeningSockets {
    inherited: Vec<Inherited>,
    open: Vec<(Service, TcpListener)>,
    inputs_inherited: Vec<(String, UdpSocket)>,
    /// At which streams arrive, each with its name.
    inputs: Vec<(String, UdpSocket)>,
    /// Whether this process takes the place of another, which serves until nobody is left there.
    is_successor: bool,
    /// Over which whose place this process takes says when streams are this one's.
    predecessor: Option<UnixStream>,
    /// The same to the process that is to take this one's place: our end, and its own.
    successor: Option<[UnixStream; 2]>,
}

#[derive(Debug)]
struct Inherited {
    name: String,
    address: SocketAddr,
    listener: TcpListener,
}

impl ListeningSockets {
    /// Those of a process that takes the place of another server, which serves until nobody is left
    /// there: none yet.
    #[must_use]
    pub fn of_successor() -> Self {
        Self {
            is_successor: true,
            ..Self::default()
        }
    }

    /// Whether another server, whose place this process takes, may still serve.
    pub(crate) const fn is_successor(&self) -> bool {
        self.is_successor
    }

    /// Adds a socket that was inherited. Its name is that of a service ([`Service::socket_name`]),
    /// or anything; or what another server [calls it](Self::open).
    ///
    /// # Errors
    ///
    /// When it is no TCP socket that listens at an IP address, and no other server's.
    pub fn inherit(&mut self, name: &str, socket: OwnedFd) -> io::Result<()> {
        if name == HANDOVER {
            self.predecessor = Some(socket.into());
            return Ok(());
        }
        let socket = Socket::from(socket);
        if name.starts_with(INPUT) && socket.r#type()? == Type::DGRAM {
            self.inputs_inherited.push((name.to_owned(), socket.into()));
            return Ok(());
        }
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

    /// The socket at which a stream arrives that `described` says where: the one that was inherited
    /// for it, and `true`, or else what `open` opens. Keeps a copy.
    pub(crate) fn input(
        &mut self,
        described: &str,
        open: impl FnOnce() -> io::Result<UdpSocket>,
    ) -> io::Result<(UdpSocket, bool)> {
        // As names may be: they are separated by colons.
        let name = format!("{INPUT}{}", described.replace(':', ","));
        let inherited = self.inputs_inherited.iter().position(|it| it.0 == name);
        let inherited = inherited.map(|number| self.inputs_inherited.remove(number).1);
        let (socket, is_inherited) = match inherited {
            Some(socket) => (socket, true),
            None => (open()?, false),
        };
        self.inputs.push((name, socket.try_clone()?));
        Ok((socket, is_inherited))
    }

    /// Closes sockets at which streams arrive that nothing is set to take, and names them.
    pub(crate) fn close_unused_inputs(&mut self) -> Vec<String> {
        let unused = self.inputs_inherited.drain(..);
        unused.map(|(name, _)| name).collect()
    }

    /// The server before this one, if it has streams to hand over.
    pub(crate) const fn take_predecessor(&mut self) -> Option<UnixStream> {
        self.predecessor.take()
    }

    /// Makes ready for a successor, as often as one is started.
    ///
    /// # Errors
    ///
    /// When there are no descriptors left.
    pub(crate) fn offer(&mut self) -> io::Result<()> {
        self.successor = match &self.inputs[..] {
            [] => None,
            _ => Some(UnixStream::pair()?.into()),
        };
        Ok(())
    }

    /// The server that has this one's place, if it has been [made ready](Self::offer) for. All else
    /// is closed.
    pub(crate) fn into_successor(self) -> Option<UnixStream> {
        self.successor.map(|[ours, _]| ours)
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

    /// Closes inherited sockets that nobody has taken, and says so: clients would connect there and
    /// wait in vain. To be called when all are open that this process listens with.
    pub(crate) fn close_unused(&mut self) {
        for Inherited { address, .. } in self.inherited.drain(..) {
            warn!("a socket at {address} was handed over, and is closed: nothing is set to use it");
        }
    }

    /// What another process needs to take this one's place, each with the name under which it
    /// [inherits](Self::inherit) it: without a colon.
    pub fn open(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        let listening = self.open.iter();
        let listening = listening.map(|(service, it)| (service.socket_name(), it.as_fd()));
        let inputs = self.inputs.iter();
        let inputs = inputs.map(|(name, socket)| (name.as_str(), socket.as_fd()));
        let successor = self.successor.iter();
        let successor = successor.map(|[_, theirs]| (HANDOVER, theirs.as_fd()));
        listening.chain(inputs).chain(successor)
    }
}

/// What the names of sockets begin with at which streams arrive.
const INPUT: &str = "input ";

/// The name of the socket over which a server and its successor speak of streams.
const HANDOVER: &str = "handover";

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

/// The port at which others reach `host`, where this is listened at: at that very address rather
/// than at all, and there rather than at another. Nobody comes to loopback from outside, so those
/// do not count unless the host is there itself.
pub(crate) fn reached_port(listened_at: &[SocketAddr], host: &str) -> Option<u16> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host_ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let is_loopback = host == "localhost" || host_ip.is_some_and(|ip| ip.is_loopback());
    let ranked = listened_at.iter().filter_map(|address| {
        let ip = address.ip().to_canonical();
        let rank = match ip {
            _ if host_ip == Some(ip) => 0,
            _ if ip.is_loopback() => is_loopback.then_some(1)?,
            _ if ip.is_unspecified() => 2,
            _ => 3,
        };
        Some((rank, address.port()))
    });
    // The first of those that are as good.
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, port)| port)
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
    let drained = drain(socket, CLOSE_TIME_MAX);
    timeout(CLOSE_TIME_MAX, drained).await.unwrap_or(Ok(()))
}

/// As [`close`], where the client still sends what nobody wants: programs that send all before they
/// read hear why only if that is read (RFC 9112, section 9.6). It is thrown away as long as it
/// comes, up to 30 s and 1 GiB, and until nothing has come for 5 s.
pub(crate) async fn linger(socket: &mut TcpStream) -> io::Result<()> {
    socket.shutdown().await?;
    let drained = drain(socket, LINGER_SILENCE_MAX);
    timeout(LINGER_TIME_MAX, drained).await.unwrap_or(Ok(()))
}

/// Reads and throws away, to the end or until nothing has come for so long.
async fn drain(socket: &TcpStream, silence_max: Duration) -> io::Result<()> {
    let mut left = LINGER_BYTES_MAX;
    while left > 0 {
        let Ok(is_readable) = timeout(silence_max, socket.readable()).await else {
            return Ok(());
        };
        is_readable?;
        match socket.try_read(&mut [0; DRAIN_STEP_BYTES]) {
            Ok(0) => return Ok(()),
            Ok(read) => left = left.saturating_sub(read),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How long an end of the client's is waited for.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);
/// How long the same is waited for where the client still sends.
const LINGER_TIME_MAX: Duration = Duration::from_secs(30);
/// How long nothing may come then.
const LINGER_SILENCE_MAX: Duration = Duration::from_secs(5);
/// Bytes that are thrown away at the most.
const LINGER_BYTES_MAX: usize = 1 << 30;
/// Bytes of that which are read at once.
const DRAIN_STEP_BYTES: usize = 16 << 10;

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

/// Whether an address of IPv6 cannot be bound because this host has none.
pub(crate) fn lacks_ipv6(error: &io::Error) -> bool {
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

    use tokio::io::AsyncReadExt;

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
        let of_http = sockets.listen(any, Service::Http).unwrap();
        assert_eq!(of_http.local_addr().unwrap(), other);
        let open = sockets.open().map(|(name, _)| name);
        assert!(open.eq(["rtsp", "rtsp", "http"]));
    }

    #[test]
    fn others_are_told_a_port_that_is_open_to_them() {
        for (listened_at, host, port) in [
            (&["127.0.0.1:8080", "[::]:80"][..], "192.0.2.1", Some(80)),
            (&["[::1]:8080", "192.0.2.1:80"], "node.example", Some(80)),
            (&["10.0.0.1:8080", "[::]:80"], "node.example", Some(80)),
            (&["10.0.0.1:8080", "0.0.0.0:80"], "10.0.0.1", Some(8080)),
            (&["[::]:80", "[2001:db8::1]:81"], "[2001:db8::1]", Some(81)),
            (&["[::]:80", "[::]:81"], "192.0.2.1", Some(80)),
            (&["127.0.0.1:8080"], "192.0.2.1", None),
            (&["[::ffff:127.0.0.1]:8080"], "", None),
            // All nodes on one machine.
            (&["127.0.0.1:8080", "127.0.0.2:81"], "127.0.0.2", Some(81)),
            (&["10.0.0.1:80", "127.0.0.1:81"], "localhost", Some(81)),
            (&["[::]:80"], "[::1]", Some(80)),
            (&[], "127.0.0.1", None),
        ] {
            let addresses = listened_at.iter().map(|it| it.parse().unwrap());
            let addresses: Vec<SocketAddr> = addresses.collect();
            assert_eq!(reached_port(&addresses, host), port, "{listened_at:?}");
        }
    }

    #[test]
    fn what_nobody_takes_is_closed() {
        let (used, unused) = (listener("127.0.0.1:0"), listener("127.0.0.1:0"));
        let [at, elsewhere] = [&used, &unused].map(|it| it.local_addr().unwrap());
        let mut sockets = ListeningSockets::default();
        sockets.inherit("rtsp", used.into()).unwrap();
        sockets.inherit("http", unused.into()).unwrap();
        drop(sockets.listen(at, Service::Rtsp).unwrap());
        sockets.close_unused();
        // Another program may listen there; and a successor gets what this one uses.
        bind(elsewhere).unwrap();
        assert_eq!(bind(at).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(sockets.open().map(|(name, _)| name).eq(["rtsp"]));
    }

    #[tokio::test]
    async fn a_client_that_still_sends_hears_the_answer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut socket, _) = listener.accept().await.unwrap();
        let answers = async move {
            socket.write_all(b"no").await.unwrap();
            linger(&mut socket).await.unwrap();
        };
        let sends = async {
            // For longer than an end is waited for elsewhere.
            for _ in 0..8 {
                client.write_all(&[0; 100_000]).await.unwrap();
                tokio::time::sleep(CLOSE_TIME_MAX / 5).await;
            }
            client.shutdown().await.unwrap();
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.unwrap();
            heard
        };
        let ((), heard) = tokio::join!(answers, sends);
        assert_eq!(heard, b"no");
    }

    #[test]
    fn where_a_stream_arrives_is_inherited_by_what_it_is() {
        let bind = || UdpSocket::bind("127.0.0.1:0");
        let mut before = ListeningSockets::default();
        before.offer().unwrap();
        assert_eq!(before.open().count(), 0, "there is nothing to speak of");
        let (socket, is_inherited) = before.input("[::]:5004%eth0", bind).unwrap();
        assert!(!is_inherited);
        before.offer().unwrap();
        before.offer().unwrap();
        let names: Vec<_> = before.open().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(names, ["input [,,],5004%eth0", "handover"]);

        let mut after = ListeningSockets::default();
        for (name, socket) in before.open() {
            after
                .inherit(name, socket.try_clone_to_owned().unwrap())
                .unwrap();
        }
        let (other, is_inherited) = after.input("[::]:5004%eth1", bind).unwrap();
        assert!(!is_inherited, "of another interface");
        assert_ne!(other.local_addr().unwrap(), socket.local_addr().unwrap());
        let (same, is_inherited) = after.input("[::]:5004%eth0", bind).unwrap();
        assert!(is_inherited);
        assert_eq!(same.local_addr().unwrap(), socket.local_addr().unwrap());
        assert!(after.close_unused_inputs().is_empty(), "all are taken");
        let (heard, told) = (after.take_predecessor(), before.into_successor());
        drop(told.expect("one was offered"));
        let mut heard = heard.expect("one was inherited");
        let closed = io::Read::read(&mut heard, &mut [0]).unwrap();
        assert_eq!(closed, 0, "nobody else has the other end");
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
