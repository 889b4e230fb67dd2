//! From an address to connections, and no more of them than there may be.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use onrush_wire::rtsp::{Reply, StatusCode, TUNNEL_REFUSED, headers};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::Control;
use super::connection::Connection;
use super::connection_slot::ConnectionSlot;
use crate::byte_stream::ByteStream;
use crate::listening::{Draining, close};
use crate::network::canonical;
use crate::tls::Tls;
use crate::tunnelling::{TunnelQueue, Tunnelled};

/// Takes connections until nobody more is to come: over TLS, if that is given.
pub(super) async fn accept(
    control: Rc<Control>,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    draining: Draining,
) {
    tokio::select! {
        () = accept_all(&control, &listener, tls) => {}
        () = draining.begins() => {}
    }
}

async fn accept_all(control: &Rc<Control>, listener: &TcpListener, tls: Option<Arc<Tls>>) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => match &tls {
                None => admit(control, socket, canonical(peer)),
                Some(tls) => admit_to_tls(control, tls, socket, canonical(peer)),
            },
            Err(error) => {
                // Out of descriptors, most likely. The connection stays in the backlog: trying
                // again at once would only spin until somebody leaves.
                warn!("accepting connections: {error}; trying again in 100 ms");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Takes connections that HTTP has found to be sides of tunnels, as long as it serves.
pub(crate) async fn accept_tunnelled(control: Rc<Control>, mut queue: TunnelQueue) {
    while let Some(tunnelled) = queue.recv().await {
        let peer = tunnelled.peer;
        let Some(place) = ConnectionSlot::take(&control, peer) else {
            debug!("tunnel of {peer} refused: there are too many connections");
            let time_max = control.config.limits.request_time_max;
            tell(&control, refuse_tunnel(tunnelled, time_max));
            continue;
        };
        let attached = tunnelled.attach();
        let connection = attached.and_then(|(stream, received)| {
            let mut connection = Connection::new(place, stream)?;
            connection.push(&received);
            Ok(connection)
        });
        match connection {
            Ok(connection) => drop(spawn_local(connection.serve())),
            Err(error) => debug!("tunnel of {peer}: {error}"),
        }
    }
}

fn admit(control: &Rc<Control>, socket: TcpStream, peer: SocketAddr) {
    match ConnectionSlot::take(control, peer) {
        Some(place) => match Connection::new(place, ByteStream::Plain(socket)) {
            Ok(connection) => drop(spawn_local(connection.serve())),
            Err(error) => debug!("connection of {peer}: {error}"),
        },
        None => {
            debug!("connection of {peer} refused: there are too many");
            tell(control, refuse(socket));
        }
    }
}

/// A connection has its place from its first byte on, not only from the end of its handshake.
fn admit_to_tls(control: &Rc<Control>, tls: &Arc<Tls>, socket: TcpStream, peer: SocketAddr) {
    let Some(place) = ConnectionSlot::take(control, peer) else {
        // It could be told why only after a handshake, for which there is no room.
        return debug!("connection of {peer} refused: there are too many");
    };
    let tls = Arc::clone(tls);
    drop(spawn_local(async move {
        let Some(stream) = tls.accept(socket, peer).await else {
            return;
        };
        match Connection::new(place, ByteStream::Tls(Box::new(stream))) {
            // A task of its own: that of the handshake is larger.
            Ok(connection) => drop(spawn_local(connection.serve())),
            Err(error) => debug!("connection of {peer}: {error}"),
        }
    }));
}

/// Tells a client that it is refused, if not too many are being told so.
fn tell(control: &Rc<Control>, refused: impl Future<Output = io::Result<()>> + 'static) {
    if control.refusals.get() >= REFUSALS_MAX {
        return;
    }
    control.refusals.set(control.refusals.get() + 1);
    let control = Rc::clone(control);
    drop(spawn_local(async move {
        // Whether it is heard is the client's business.
        refused.await.unwrap_or_default();
        control.refusals.set(control.refusals.get() - 1);
    }));
}

async fn refuse(mut socket: TcpStream) -> io::Result<()> {
    let reply = Reply::refusal(StatusCode::ServiceUnavailable, "too many connections")
        .with(headers::CONNECTION, "close");
    // Into an empty buffer: this waits for nobody.
    socket
        .write_all(&reply.to_bytes(None, SystemTime::now()))
        .await?;
    close(&mut socket).await
}

/// The same of a side of a tunnel, whose head was read already.
async fn refuse_tunnel(tunnelled: Tunnelled, time_max: Duration) -> io::Result<()> {
    let (mut stream, _) = tunnelled.attach()?;
    timeout(time_max, async {
        stream.write_all(TUNNEL_REFUSED).await?;
        stream.close().await
    })
    .await?
}

/// Connections that are told why they are refused, at once; the others of a flood are just closed.
const REFUSALS_MAX: usize = 64;
