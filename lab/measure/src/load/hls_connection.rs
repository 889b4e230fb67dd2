//! A connection of a player: playlists are read, media is counted and left in the kernel. It stays
//! for the next request as long as its server lets it.

use std::io;

use onrush_testkit::message::{self, lines, request};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::http_client::{FetchError, SILENCE_MAX, SKIP_BYTES, Target, skip};

/// Bytes of a playlist at the most.
const PLAYLIST_BYTES_MAX: u64 = 16 << 20;
/// What is read at once while a head is awaited: little, so that most of a body that follows it can
/// be left in the kernel.
const HEAD_STEP_BYTES: usize = 1024;
const PLAYLIST_STEP_BYTES: usize = 16 << 10;

/// A connection to the server of an URL.
pub(super) struct PlayerConnection<'a> {
    target: &'a Target,
    stream: Option<TcpStream>,
    /// Requests that were made, and bytes of bodies that came.
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

/// What has begun to come.
struct Begun {
    /// Bytes of the body.
    length: u64,
    /// What of it came with the head.
    body: Vec<u8>,
    /// Whether the connection ends with it.
    closes: bool,
}

impl<'a> PlayerConnection<'a> {
    pub(super) fn new(target: &'a Target) -> Self {
        Self {
            target,
            stream: None,
            requests: 0,
            bytes: 0,
        }
    }

    /// The bytes of the text at this URL.
    pub(super) async fn text(&mut self, url: &Url) -> Result<Vec<u8>, FetchError> {
        let (stream, begun) = self.ask(url).await?;
        if begun.length > PLAYLIST_BYTES_MAX {
            return Err(FetchError::Garbled);
        }
        let mut body = begun.body;
        while (body.len() as u64) < begun.length {
            if timeout(SILENCE_MAX, read(&stream, &mut body, PLAYLIST_STEP_BYTES))
                .await
                .map_err(|_| FetchError::Silent)??
                == 0
            {
                return Err(FetchError::Short);
            }
        }
        self.keep(stream, begun.closes);
        self.bytes += body.len() as u64;
        Ok(body)
    }

    /// Takes all of what is at this URL, and throws it away.
    pub(super) async fn discard(&mut self, url: &Url) -> Result<(), FetchError> {
        let (stream, begun) = self.ask(url).await?;
        self.bytes += begun.body.len() as u64;
        let mut left = begun.length - begun.body.len() as u64;
        while left > 0 {
            let taken = timeout(SILENCE_MAX, skip(&stream, left.min(SKIP_BYTES))).await;
            let taken = taken.map_err(|_| FetchError::Silent)??;
            if taken == 0 {
                return Err(FetchError::Short);
            }
            (left, self.bytes) = (left - taken, self.bytes + taken);
        }
        self.keep(stream, begun.closes);
        Ok(())
    }

    fn keep(&mut self, stream: TcpStream, closes: bool) {
        self.stream = (!closes).then_some(stream);
    }

    /// Asks, and reads the head of the answer: on the connection that is there, or on another if
    /// its server has closed it meanwhile.
    async fn ask(&mut self, url: &Url) -> Result<(TcpStream, Begun), FetchError> {
        self.requests += 1;
        if let Some(stream) = self.stream.take() {
            match self.ask_on(stream, url).await {
                Err(FetchError::Short | FetchError::Connection(_)) => {}
                asked => return asked,
            }
        }
        let connect = timeout(SILENCE_MAX, TcpStream::connect(self.target.address)).await;
        let stream = connect
            .map_err(|_| FetchError::Silent)?
            .map_err(FetchError::Connect)?;
        stream.set_nodelay(true)?;
        self.ask_on(stream, url).await
    }

    async fn ask_on(
        &self,
        mut stream: TcpStream,
        url: &Url,
    ) -> Result<(TcpStream, Begun), FetchError> {
        let query = url.query().map_or_else(String::new, |it| format!("?{it}"));
        let path = format!("{}{query}", url.path());
        let headers = lines([("Host", self.target.host.as_str())]);
        let request = request("GET", &path, "HTTP/1.1", &headers);
        stream.write_all(request.as_bytes()).await?;
        let begun = timeout(SILENCE_MAX, begun(&stream)).await;
        let begun = begun.map_err(|_| FetchError::Silent)??;
        Ok((stream, begun))
    }
}

/// Reads the head of an answer.
async fn begun(stream: &TcpStream) -> Result<Begun, FetchError> {
    let mut received = Vec::new();
    let (head, head_bytes) = loop {
        let parsed = message::Head::parse(&received).map_err(|_| FetchError::Garbled)?;
        match parsed {
            Some(parsed) => break parsed,
            None if read(stream, &mut received, HEAD_STEP_BYTES).await? == 0 => {
                return Err(FetchError::Short);
            }
            None => {}
        }
    };
    let body = received.split_off(head_bytes);
    let length = head.content_length().map_err(|_| FetchError::Garbled)?;
    let response = head.into_response().ok().and_then(Result::ok);
    let response = response.ok_or(FetchError::Garbled)?;
    if response.status != 200 {
        return Err(FetchError::Status(response.status));
    }
    let length = length.ok_or(FetchError::NoLength)?;
    if body.len() as u64 > length {
        return Err(FetchError::Garbled);
    }
    let connection = response.header("Connection").unwrap_or_default();
    Ok(Begun {
        length,
        body,
        closes: connection.eq_ignore_ascii_case("close"),
    })
}

/// Reads what is there onto the end of `into`; 0 at the end.
async fn read(stream: &TcpStream, into: &mut Vec<u8>, bytes_max: usize) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        into.reserve(bytes_max);
        match stream.try_read_buf(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}
