//! What a downloading client and a server say to each other: where an URL leads, the head of an
//! answer, and its body, which is counted and left in the kernel. When a client asks, and what for,
//! is decided by its caller.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use onrush_sys::clock::monotonic_ns;
use onrush_testkit::connection::{DISCARD_BYTES_MAX, discard};
use onrush_testkit::message::{self, HEAD_BYTES_MAX, Response};
use rustix::net::RecvFlags;
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::TcpStream;
use url::Url;

use super::LoadError;
use super::connection::connect;
use super::shared::resolve;

/// Why a download ended.
#[derive(Debug, Error)]
pub(super) enum FetchError {
    #[error("connecting failed: {0}")]
    Connect(io::Error),
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    #[error("the server said nothing for {} s", SILENCE_MAX.as_secs())]
    Silent,
    #[error("the connection ended before all had come")]
    Short,
    #[error("{method} was answered {status}")]
    Status { method: &'static str, status: u16 },
    #[error("{method} was answered {status}")]
    Moved {
        method: &'static str,
        status: u16,
        location: String,
    },
    #[error("the server sends its clients on to what is no URL of HTTP, or cannot be found")]
    Elsewhere,
    #[error("the answer's head is not HTTP, or longer than {HEAD_BYTES_MAX} bytes")]
    Garbled,
    #[error("the answer does not announce its length")]
    NoLength,
    #[error("another range came than was asked for")]
    Range,
}

/// Where an URL leads.
pub(super) struct Target {
    /// The first of them that it is reached at is taken.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) host: String,
    pub(super) path: String,
}

impl Target {
    pub(super) async fn of(url: &str) -> Result<Self, LoadError> {
        let (parsed, addresses) = resolve(url, &[("http", 80)]).await?;
        let query = parsed.query().map_or_else(String::new, |q| format!("?{q}"));
        Ok(Self {
            addresses,
            host: host_of(&parsed),
            path: format!("{}{query}", parsed.path()),
        })
    }

    /// Where a Location header leads from here.
    pub(super) async fn moved(&self, location: &str) -> Result<Self, FetchError> {
        let here = Url::parse(&format!("http://{}{}", self.host, self.path));
        let there = here.and_then(|here| here.join(location));
        let there = there.map_err(|_| FetchError::Elsewhere)?;
        let there = Self::of(there.as_str()).await;
        there.map_err(|_| FetchError::Elsewhere)
    }

    /// Connects to the first of its addresses that answers.
    pub(super) async fn connect(&self) -> Result<TcpStream, FetchError> {
        let connected = connect(&self.addresses, SILENCE_MAX).await;
        connected.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => FetchError::Silent,
            _ => FetchError::Connect(error),
        })
    }

    /// Whether the URL is at that server.
    pub(super) fn has(&self, url: &Url) -> bool {
        self.host == host_of(url)
    }
}

fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    format!("{host}:{}", url.port().unwrap_or(80))
}

/// The head of an answer.
pub(super) struct Head {
    /// Bytes of the body that it announces.
    pub(super) length: u64,
    /// Bytes of it that came with the head.
    pub(super) begun: u64,
    /// Where the range begins, if it is one.
    pub(super) range_from: Option<u64>,
    /// When its first byte was there.
    pub(super) first_ns: u64,
}

impl Head {
    /// Reads the head of the answer to a request by `method`.
    pub(super) async fn read(stream: &TcpStream, method: &'static str) -> Result<Self, FetchError> {
        let mut received = Vec::new();
        let mut first_ns = None;
        loop {
            stream.readable().await?;
            // Little, so that most of the body can be left in the kernel.
            match stream.try_read_buf(&mut received) {
                Ok(0) => return Err(FetchError::Short),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            }
            let first_ns = *first_ns.get_or_insert_with(monotonic_ns);
            let parsed = message::Head::parse(&received).map_err(|_| FetchError::Garbled)?;
            if let Some((head, head_bytes)) = parsed {
                let begun = (received.len() - head_bytes) as u64;
                return Self::of(head, method, begun, first_ns);
            }
        }
    }

    fn of(
        head: message::Head,
        method: &'static str,
        begun: u64,
        first_ns: u64,
    ) -> Result<Self, FetchError> {
        let length = head.content_length();
        let response = head.into_response().ok().and_then(Result::ok);
        let response = response.filter(|response| response.version.starts_with("HTTP/1."));
        let response = response.ok_or(FetchError::Garbled)?;
        if !matches!(response.status, 200 | 206) {
            return Err(refused(method, &response));
        }
        Ok(Self {
            length: length.ok().flatten().ok_or(FetchError::NoLength)?,
            begun,
            range_from: range_from(&response),
            first_ns,
        })
    }
}

/// What an answer to `method` says that brings nothing.
pub(super) fn refused(method: &'static str, response: &Response) -> FetchError {
    let status = response.status;
    let is_moved = matches!(status, 301 | 302 | 303 | 307 | 308);
    match response.header("Location").filter(|_| is_moved) {
        None => FetchError::Status { method, status },
        Some(location) => FetchError::Moved {
            method,
            status,
            location: location.to_owned(),
        },
    }
}

/// Where the range begins that an answer brings, if it is one.
pub(super) fn range_from(response: &Response) -> Option<u64> {
    let range = response.header("Content-Range")?;
    let range = range.strip_prefix("bytes ").unwrap_or(range);
    range.split_once('-')?.0.parse().ok()
}

/// Takes up to so many bytes off the connection without having them copied; 0 at its end.
pub(super) async fn skip(stream: &TcpStream, bytes: u64) -> io::Result<u64> {
    let read = || discard(stream, bytes, RecvFlags::DONTWAIT);
    stream.async_io(Interest::READABLE, read).await
}

/// A server that says nothing for so long has failed.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Bytes that are taken off a connection in a step at the most.
pub(super) const SKIP_BYTES: u64 = DISCARD_BYTES_MAX as u64;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn the_first_address_that_answers_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let connected = |addresses| {
            let target = Target {
                addresses,
                host: String::new(),
                path: String::new(),
            };
            let stream = runtime.block_on(target.connect());
            stream.map(|stream| stream.peer_addr().unwrap())
        };
        for addresses in [vec![there], vec![nowhere, there], vec![there, nowhere]] {
            assert_eq!(connected(addresses).unwrap(), there);
        }
        let refused = connected(vec![nowhere, nowhere]);
        assert!(
            matches!(refused, Err(FetchError::Connect(_))),
            "{refused:?}"
        );
    }

    #[test]
    fn redirects_lead_to_other_servers() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let target = |url: &str| runtime.block_on(Target::of(url)).unwrap();
        let here = target("http://127.0.0.1:81/a/b?c=d");
        for (location, host, path) in [
            ("http://127.0.0.2/x?y", "127.0.0.2:80", "/x?y"),
            ("/x", "127.0.0.1:81", "/x"),
            ("x", "127.0.0.1:81", "/a/x"),
        ] {
            let there = runtime.block_on(here.moved(location)).unwrap();
            assert_eq!((there.host.as_str(), there.path.as_str()), (host, path));
            let url = Url::parse(&format!("http://{host}/z")).unwrap();
            assert!(there.has(&url));
            assert_eq!(here.has(&url), host == here.host);
        }
        for location in ["https://127.0.0.1/x", "http://[/", "rtsp://h"] {
            let refused = runtime.block_on(here.moved(location));
            assert!(matches!(refused, Err(FetchError::Elsewhere)), "{location}");
        }
    }

    #[test]
    fn heads_are_understood_or_refused() {
        let parse = |head: &str| {
            let parsed = message::Head::parse(format!("{head}\r\n\r\n").as_bytes());
            let (head, _) = parsed.ok().flatten().ok_or(FetchError::Garbled)?;
            Head::of(head, "HEAD", 3, 7)
        };
        let head = parse(
            "HTTP/1.1 206 Partial Content\r\ncontent-length: 10\r\nContent-Range: bytes 5-14/20",
        );
        let head = head.unwrap();
        assert_eq!((head.length, head.begun), (10, 3));
        assert_eq!((head.range_from, head.first_ns), (Some(5), 7));
        assert_eq!(
            parse("HTTP/1.0 200 OK\r\nContent-Length: 0")
                .unwrap()
                .range_from,
            None
        );
        let moved = parse("HTTP/1.1 307 Elsewhere\r\nLocation: http://h/x").map(|_| ());
        let Err(FetchError::Moved { location, .. }) = &moved else {
            panic!("{moved:?}");
        };
        assert_eq!(location, "http://h/x");
        for (text, said) in [
            ("HTTP/1.1 307 Elsewhere", "HEAD was answered 307"),
            (
                "HTTP/1.1 503 Busy\r\nContent-Length: 1",
                "HEAD was answered 503",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
                "its length",
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1", "its length"),
            ("ICY 200 OK\r\nContent-Length: 1", "not HTTP"),
            ("", "not HTTP"),
        ] {
            let error = parse(text).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
