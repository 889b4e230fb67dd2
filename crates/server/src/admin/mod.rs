//! What whoever runs the server wants to know: metrics for Prometheus, and the same as JSON.
//!
//! | request | answer |
//! |---|---|
//! | `GET /metrics` | [`exposition`](mod@exposition), for Prometheus |
//! | `GET /status` | [`Status`] as JSON, for programs and `onrush top` |
//! | `GET /health` | 200 while the server runs |
//! | `GET /admin` | a dashboard, live in a browser |
//! | `GET /api/v1` | what else can be asked and done, as OpenAPI says it |
//!
//! A thread of its own answers, off the processors that send: a scrape delays no packet and no
//! PLAY. What it tells it reads from counters that are kept anyway ([`status`](mod@status)).
//! Metrics and status ask for no password; so it listens on loopback, unless told otherwise, and
//! tells nothing to a page there whose name is made to mean this machine.

mod api;
pub mod cache;
mod channel;
mod channel_list;
mod cluster;
pub(crate) mod dashboard;
mod downloads;
pub mod exposition;
mod histogram;
mod hls;
pub mod hour;
pub(crate) mod listen;
pub mod log_tail;
mod objects;
mod own_name;
mod reload;
pub mod status;
mod table;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use onrush_sys::thread::keep_off;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval};

pub(crate) use self::dashboard::Office;
use self::exposition::{CONTENT_TYPE, exposition};
use self::hour::{Hour, SAMPLE_EVERY_S};
use self::listen::{Bounds, answer};
use self::own_name::by_own_name;
use self::reload::fault;
use self::status::{Status, Watched, Window};

/// Connections at once; more wait to be accepted.
pub const METRICS_CONNECTIONS_MAX: usize = 64;

/// The thread, and where it listens. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What all requests see.
#[derive(Debug)]
struct Site {
    watched: Arc<Watched>,
    office: Office,
    /// Only ever locked by the one thread; the router wants it to be.
    window: Mutex<Window>,
    hour: Mutex<Hour>,
}

impl Admin {
    /// Starts the thread, off `data_cores` where there are others.
    ///
    /// # Errors
    ///
    /// If there is no thread to be had.
    pub(crate) fn start(
        listener: TcpListener,
        watched: Arc<Watched>,
        office: Office,
        data_cores: &[usize],
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let data_cores = data_cores.to_vec();
        let run = move || {
            keep_off(&data_cores);
            LocalSet::new().block_on(&runtime, serve(listener, (watched, office), stopped));
        };
        let thread = thread::Builder::new().name("onrush-metrics".to_owned());
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread.spawn(run)?),
        })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            // What the thread died of is not lost, and not thrown over another panic.
            if !thread::panicking() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

async fn serve(
    listener: TcpListener,
    (watched, office): (Arc<Watched>, Office),
    stopped: oneshot::Receiver<()>,
) {
    let site = Arc::new(Site {
        watched,
        office,
        window: Mutex::default(),
        hour: Mutex::default(),
    });
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .route_layer(from_fn(by_own_name))
        .route("/health", get(async || "ok\n"))
        .merge(dashboard::router(&site))
        .merge(api::router(&site))
        .fallback(nothing)
        .with_state(Arc::clone(&site));
    let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime with I/O");
    let bounds = Bounds {
        connections_max: METRICS_CONNECTIONS_MAX,
        request_time_max: REQUEST_TIME_MAX,
        connection_time_max: CONNECTION_TIME_MAX,
    };
    tokio::select! {
        () = answer(listener, router, bounds) => {}
        () = look(&site) => {}
        // A sender that was dropped asks for the same as one that sent.
        _ = stopped => {}
    }
}

/// Once a second: what streams cost lately. Less often, a sample for charts.
async fn look(site: &Site) {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for second in (0..SAMPLE_EVERY_S).cycle() {
        ticks.tick().await;
        {
            let mut window = site.window.lock().unwrap_or_else(PoisonError::into_inner);
            site.watched.look(&mut window);
        }
        if second == 0 {
            let status = site.status();
            site.hour().take(status);
        }
    }
}

impl Site {
    fn status(&self) -> Status {
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        self.watched.status(window.stream_cpu_ratio())
    }

    fn hour(&self) -> MutexGuard<'_, Hour> {
        self.hour.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is not there; beneath the API's paths as it tells errors.
async fn nothing(uri: Uri) -> Response {
    let text = "nothing here; see /metrics, /status, /health, /admin and /api/v1";
    match uri.path().starts_with("/api/") {
        true => fault(StatusCode::NOT_FOUND, text),
        false => (StatusCode::NOT_FOUND, format!("{text}\n")).into_response(),
    }
}

async fn metrics(State(site): State<Arc<Site>>) -> impl IntoResponse {
    let headers = [(header::CONTENT_TYPE, CONTENT_TYPE)];
    (headers, exposition(&site.status()))
}

async fn status(State(site): State<Arc<Site>>) -> Json<Status> {
    Json(site.status())
}

/// Shorter than a scraper's patience (10 s): who takes a place and says nothing does not keep it
/// from others.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(2);
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);
