//! FTP sessions: what a command gets is decided by [`onrush_wire::ftp`], carried out here, and
//! files are sent by [`crate::transfer`].

mod connection;
mod data;
mod folders;
mod login;
mod renaming;
mod sending;
mod store;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::ftp::Reply;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::sleep;
use tracing::{debug, warn};

pub use self::data::DATA_TIME_MAX;
use crate::downloads::Site;
use crate::downloads::admission::{ConnectionSlot, Protocol};
use crate::downloads::send::send_all;
use crate::listening::close;
use crate::network::canonical;
use crate::tls::Tls;

/// Takes connections until it is dropped. With `tls` clients may have them encrypted.
pub(crate) async fn accept(site: Rc<Site>, listener: TcpListener, tls: Option<Arc<Tls>>) {
    // Every connection inherits both. A reply does not wait for the acknowledgement of the one
    // before.
    let socket = SockRef::from(&listener);
    if let Err(error) = socket.set_tcp_nodelay(true) {
        warn!("FTP: {error}; replies may wait");
    }
    // Clients send one or all bytes of ABOR as urgent data (RFC 959, section 4.1.3): otherwise
    // Linux takes the last of these out of the stream.
    if let Err(error) = socket.set_out_of_band_inline(true) {
        warn!("FTP: {error}; some clients cannot abort transfers");
    }
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => admit(&site, tls.as_ref(), socket, canonical(peer)),
            Err(error) => {
                warn!("accepting FTP connections: {error}; trying again in 100 ms");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn admit(site: &Rc<Site>, tls: Option<&Arc<Tls>>, socket: TcpStream, peer: SocketAddr) {
    let ip = peer.ip();
    if let Some(place) = ConnectionSlot::take(site, Protocol::Ftp, ip) {
        let (site, tls) = (Rc::clone(site), tls.cloned());
        drop(spawn_local(async move {
            if let Err(error) = connection::serve(&site, tls, socket, peer, &place).await {
                debug!("FTP session of {peer}: {error}");
            }
            drop(place);
        }));
    } else if let Some(place) = ConnectionSlot::take_refusal(site, Protocol::Ftp, ip) {
        debug!("FTP session of {peer} refused: there are too many");
        drop(spawn_local(async move {
            // Whether it is heard is the client's business.
            refuse(socket).await.unwrap_or_default();
            drop(place);
        }));
    }
}

async fn refuse(mut socket: TcpStream) -> io::Result<()> {
    let reply = Reply::new(421, "too many connections; try later").to_bytes();
    send_all(&socket, &reply, false, Duration::from_secs(1)).await?;
    close(&mut socket).await
}
