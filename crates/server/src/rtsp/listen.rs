//! From an address to connections, and no more of them than there may be.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use onrush_wire::rtsp::{Reply, StatusCode, headers};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::Control;
use super::connection::{self, Connection};
use crate::config::files_suffice;

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

/// Takes connections until it is dropped.
pub(super) async fn accept(control: Rc<Control>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => admit(&control, socket, peer),
            Err(error) => {
                // Out of descriptors, most likely. The connection stays in the backlog: trying
                // again at once would only spin until somebody leaves.
                warn!("accepting connections: {error}; trying again in 100 ms");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// A connection's place among those that may be.
pub(super) struct ConnectionSlot {
    pub(super) control: Rc<Control>,
    pub(super) peer: SocketAddr,
}

impl ConnectionSlot {
    fn take(control: &Rc<Control>, peer: SocketAddr) -> Option<Self> {
        let ip = peer.ip().to_canonical();
        let limits = &control.config.limits;
        let mut connections = control.connections.borrow_mut();
        let all = control.statistics.connections.load(Ordering::Relaxed);
        let of_address = connections.get(&ip).copied().unwrap_or(0);
        if all >= limits.connections_max
            || of_address >= limits.connections_per_address_max
            || !files_suffice(control.files, all + 1, control.descriptors(0))
        {
            return None;
        }
        connections.insert(ip, of_address + 1);
        control
            .statistics
            .connections
            .store(all + 1, Ordering::Relaxed);
        Some(Self {
            control: Rc::clone(control),
            peer,
        })
    }

    /// Whose it is.
    pub(super) fn ip(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut connections = self.control.connections.borrow_mut();
        let ip = self.ip();
        let of_address = connections.get_mut(&ip).expect("it was counted in");
        *of_address -= 1;
        if *of_address == 0 {
            connections.remove(&ip);
        }
        self.control
            .statistics
            .connections
            .fetch_sub(1, Ordering::Relaxed);
    }
}

fn admit(control: &Rc<Control>, socket: TcpStream, peer: SocketAddr) {
    let control = Rc::clone(control);
    match ConnectionSlot::take(&control, peer) {
        Some(place) => match Connection::new(place, socket) {
            Ok(connection) => drop(spawn_local(connection.serve())),
            Err(error) => debug!("connection of {peer}: {error}"),
        },
        None if control.refusals.get() < REFUSALS_MAX => {
            debug!("connection of {peer} refused: there are too many");
            control.refusals.set(control.refusals.get() + 1);
            drop(spawn_local(async move {
                // Whether it is heard is the client's business.
                refuse(socket).await.unwrap_or_default();
                control.refusals.set(control.refusals.get() - 1);
            }));
        }
        None => {}
    }
}

async fn refuse(mut socket: TcpStream) -> io::Result<()> {
    let reply = Reply::refusal(StatusCode::ServiceUnavailable, "too many connections")
        .with(headers::CONNECTION, "close");
    // Into an empty buffer: this waits for nobody.
    socket
        .write_all(&reply.to_bytes(None, SystemTime::now()))
        .await?;
    connection::close(&mut socket).await
}

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

/// Connections that are told why they are refused, at once; the others of a flood are just closed.
const REFUSALS_MAX: usize = 64;
