//! HTTP for programs of whoever runs the server: few connections, each bounded in time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

/// Whose connection it is, for whoever answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections at once; more wait to be accepted.
    pub(crate) connections_max: usize,
    /// How long a connection may take to ask: so long it keeps its place without a word.
    pub(crate) request_time_max: Duration,
    /// How long it may last, whatever it does.
    pub(crate) connection_time_max: Duration,
}

/// Answers by `router` until it is dropped.
pub(crate) async fn answer(listener: TcpListener, router: Router, bounds: Bounds) {
    let places = Arc::new(Semaphore::new(bounds.connections_max));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let (socket, peer) = match listener.accept().await {
            Ok((socket, peer)) => (socket, peer.ip().to_canonical()),
            Err(error) => {
                warn!("accepting connections: {error}; trying again in 100 ms");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let router = router.clone().layer(Extension(Peer(peer)));
        let service = TowerToHyperService::new(router);
        connections.spawn_local(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(bounds.request_time_max)
                .max_headers(HEADERS_MAX)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(socket), service);
            if let Ok(Err(error)) = timeout(bounds.connection_time_max, connection).await {
                debug!("a client of the API: {error}");
            }
            drop(place);
        });
    }
}

const HEADERS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 16 << 10;
