//! From an address to connections, and no more of them than there may be.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use onrush_wire::rtsp::{Reply, StatusCode, headers};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::Control;
use super::connection::Connection;
use super::connection_slot::ConnectionSlot;
use crate::listening::close;

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
    close(&mut socket).await
}

/// Connections that are told why they are refused, at once; the others of a flood are just closed.
const REFUSALS_MAX: usize = 64;
