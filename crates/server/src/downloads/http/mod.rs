//! HTTP connections: heads are read and answered here, what is answered is decided by
//! [`onrush_wire::http`], bodies are sent by [`crate::transfer`].

mod assets;
mod connection;
mod content;
mod film;
mod http2;
mod live;
mod live_files;
mod made;
mod responder;
mod segment_cache;
mod segment_files;
mod several;
mod store;
mod text_names;
mod texts;

pub use film::{ANSWER_WAIT_MAX, INDEX_WAIT_MAX};
pub use http2::{HTTP2_CONTROL_BYTES_MAX, HTTP2_ERRORS_MAX, HTTP2_RESETS_MAX};
pub use live::FIRST_SEGMENT_WAIT_MAX;
pub use live_files::LIVE_FILES_MAX;
pub(super) use live_files::LiveFiles;
pub use segment_cache::SEGMENT_CACHE_BYTES_MAX;
pub(super) use segment_cache::SegmentCache;
pub use segment_files::{GATHERED_AT_ONCE_MAX, KEPT_SEGMENTS_MAX};
pub(crate) use segment_files::{SegmentFiles, SegmentStats};
pub use several::{RENDITION_FILES_MAX, RENDITIONS_BYTES_MAX};
pub(super) use text_names::TextNames;
pub(super) use texts::films_of;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::http::{Answer, Context, Piece, Status};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::byte_stream::ByteStream;
use crate::downloads::Site;
use crate::downloads::admission::{ConnectionSlot, Protocol};
use crate::downloads::send::send_all;
use crate::listening::close;
use crate::network::canonical;
use crate::tls::Tls;
use responder::Responder;

/// Takes connections until it is dropped: over TLS, if that is given.
pub(crate) async fn accept(site: Rc<Site>, listener: TcpListener, tls: Option<Arc<Tls>>) {
    // Inherited by every connection (net/ipv4/tcp_minisocks.c copies the listener's socket), which
    // saves each a system call: no answer waits for the acknowledgement of the one before.
    if let Err(error) = SockRef::from(&listener).set_tcp_nodelay(true) {
        warn!("HTTP: {error}; small answers may wait");
    }
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => match &tls {
                None => admit(&site, socket, canonical(peer)),
                Some(tls) => admit_to_tls(&site, tls, socket, canonical(peer)),
            },
            Err(error) => {
                // Out of descriptors, most likely. The connection stays in the backlog: trying
                // again at once would only spin until somebody leaves.
                warn!("accepting HTTP connections: {error}; trying again in 100 ms");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn admit(site: &Rc<Site>, socket: TcpStream, peer: SocketAddr) {
    let ip = peer.ip();
    if let Some(place) = ConnectionSlot::take(site, Protocol::Http, ip) {
        let socket = ByteStream::Plain(socket);
        drop(spawn_local(serve(Rc::clone(site), socket, ip, place)));
    } else if let Some(place) = ConnectionSlot::take_refusal(site, Protocol::Http, ip) {
        debug!("HTTP connection of {peer} refused: there are too many");
        let site = Rc::clone(site);
        drop(spawn_local(async move {
            // Whether it is heard is the client's business.
            refuse(&site, socket, ip).await.unwrap_or_default();
            drop(place);
        }));
    }
}

/// A connection has its place from its first byte on, not only from the end of its handshake.
fn admit_to_tls(site: &Rc<Site>, tls: &Arc<Tls>, socket: TcpStream, peer: SocketAddr) {
    let ip = peer.ip();
    let Some(place) = ConnectionSlot::take(site, Protocol::Http, ip) else {
        return debug!("HTTPS connection of {peer} refused: there are too many");
    };
    let (site, tls) = (Rc::clone(site), Arc::clone(tls));
    drop(spawn_local(async move {
        if let Some(stream) = tls.accept_http(socket, peer).await {
            serve(site, ByteStream::Tls(Box::new(stream)), ip, place).await;
        }
    }));
}

/// Serves a connection to its end.
async fn serve(site: Rc<Site>, socket: ByteStream, peer: IpAddr, place: ConnectionSlot) {
    let responder = Responder::new(site, &socket, (peer, &place));
    let goes_on = match socket.is_http2() {
        true => Ok(Some((responder, socket, Vec::new()))),
        false => connection::serve(responder, socket).await,
    };
    let ended = match goes_on {
        Ok(Some((responder, socket, received))) => http2::serve(responder, socket, received).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        debug!("HTTP connection of {peer}: {error}");
    }
    drop(place);
}

async fn refuse(site: &Site, mut socket: TcpStream, _peer: IpAddr) -> io::Result<()> {
    let answer = site.with_context((false, true, false), |context| {
        let note = "too many connections; try later";
        Answer::refusal(Status::ServiceUnavailable, note, context)
    });
    for piece in &answer.pieces {
        if let Piece::Text(text) = piece {
            send_all(&socket, text, false, Duration::from_secs(1)).await?;
        }
    }
    close(&mut socket).await
}

impl Site {
    /// An answer that is given now: whether the connection stays open behind it, and whether its
    /// client speaks HTTP/1.1 and asks for the head alone.
    fn with_context(
        &self,
        (keeps_alive, is_http_11, is_head): (bool, bool, bool),
        answer: impl FnOnce(&Context<'_>) -> Answer,
    ) -> Answer {
        self.clock.with_now(|now_s, date| {
            answer(&Context {
                date,
                now_s,
                boundary: &self.boundary,
                keeps_alive,
                is_http_11,
                is_head,
                takes_uploads: self.uploads.is_some(),
                is_for_all_origins: false,
            })
        })
    }
}
