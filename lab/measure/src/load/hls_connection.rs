//! A connection of a player: playlists are read, media is counted and left in the kernel. It stays
//! for the next request as long as its server lets it.
//!
//! A body is as long as its head says, or comes in chunks (RFC 9112, section 7.1), as servers send
//! what they do not have whole yet: then its last chunk says that it was whole.

use std::io;
use std::mem;
use std::rc::Rc;

use onrush_testkit::message::{self, HEAD_BYTES_MAX, lines, request};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::hls_playlist::ByteRange;
use super::http_client::{FetchError, SILENCE_MAX, SKIP_BYTES, Target, range_from, refused, skip};
use super::shared::REDIRECTS_MAX;

/// Bytes of a playlist at the most.
const PLAYLIST_BYTES_MAX: u64 = 16 << 20;
/// What is read at once while a head is awaited: little, so that most of a body that follows it can
/// be left in the kernel.
const HEAD_STEP_BYTES: usize = 1024;
const PLAYLIST_STEP_BYTES: usize = 16 << 10;
/// All that players ask by.
const METHOD: &str = "GET";

/// A connection to the server of an URL.
pub(super) struct PlayerConnection {
    target: Rc<Target>,
    stream: Option<TcpStream>,
    /// Requests that were made, and bytes of bodies that came.
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

/// What has begun to come.
struct Begun {
    stream: TcpStream,
    /// What has come and was not taken.
    received: Vec<u8>,
    length: Length,
    /// Whether the connection ends with it.
    closes: bool,
}

/// How the length of a body is known.
#[derive(Clone, Copy)]
enum Length {
    /// So many bytes are still to come.
    Left(u64),
    /// Each chunk says its own; whether one has been read.
    Chunked(bool),
}

impl PlayerConnection {
    pub(super) fn new(target: Rc<Target>) -> Self {
        Self {
            target,
            stream: None,
            requests: 0,
            bytes: 0,
        }
    }

    /// The bytes of the text at this URL, and where it was, if the server has sent the player on.
    pub(super) async fn text(&mut self, url: &Url) -> Result<(Vec<u8>, Option<Url>), FetchError> {
        let (mut begun, moved) = self.ask(url, None).await?;
        let mut text = Vec::new();
        loop {
            let piece = begun.piece().await?;
            if piece == 0 {
                break;
            }
            if piece > PLAYLIST_BYTES_MAX - text.len() as u64 {
                return Err(FetchError::Garbled);
            }
            let piece = usize::try_from(piece).map_err(|_| FetchError::Garbled)?;
            while begun.received.len() < piece {
                begun.more(PLAYLIST_STEP_BYTES).await?;
            }
            text.extend(begun.received.drain(..piece));
        }
        self.keep(begun)?;
        self.bytes += text.len() as u64;
        Ok((text, moved))
    }

    /// Takes all of what is at this URL, or that range of it, and throws it away.
    pub(super) async fn discard(
        &mut self,
        url: &Url,
        range: Option<ByteRange>,
    ) -> Result<(), FetchError> {
        let (mut begun, _) = self.ask(url, range).await?;
        loop {
            let mut left = begun.piece().await?;
            if left == 0 {
                break;
            }
            let here = usize::try_from(left).unwrap_or(usize::MAX);
            let here = here.min(begun.received.len());
            begun.received.drain(..here);
            (left, self.bytes) = (left - here as u64, self.bytes + here as u64);
            while left > 0 {
                let taken = timeout(SILENCE_MAX, skip(&begun.stream, left.min(SKIP_BYTES))).await;
                let taken = taken.map_err(|_| FetchError::Silent)??;
                if taken == 0 {
                    return Err(FetchError::Short);
                }
                (left, self.bytes) = (left - taken, self.bytes + taken);
            }
        }
        self.keep(begun)
    }

    /// Nothing follows on what was asked for.
    fn keep(&mut self, begun: Begun) -> Result<(), FetchError> {
        if !begun.received.is_empty() {
            return Err(FetchError::Garbled);
        }
        self.stream = (!begun.closes).then_some(begun.stream);
        Ok(())
    }

    /// Asks, and reads the head of the answer; and where it was, if the server has sent the player
    /// on.
    async fn ask(
        &mut self,
        url: &Url,
        range: Option<ByteRange>,
    ) -> Result<(Begun, Option<Url>), FetchError> {
        let mut moved = None;
        let mut redirects_left = REDIRECTS_MAX;
        loop {
            let url = moved.as_ref().unwrap_or(url);
            match self.ask_at(url, range).await {
                Err(FetchError::Moved { location, .. }) if redirects_left > 0 => {
                    let next = url.join(&location).map_err(|_| FetchError::Elsewhere)?;
                    (moved, redirects_left) = (Some(next), redirects_left - 1);
                }
                asked => return Ok((asked?, moved)),
            }
        }
    }

    /// The same of one server: on the connection that is there, or on another if the server has
    /// closed it meanwhile.
    async fn ask_at(&mut self, url: &Url, range: Option<ByteRange>) -> Result<Begun, FetchError> {
        self.requests += 1;
        if !self.target.has(url) {
            let target = Target::of(url.as_str()).await;
            self.target = Rc::new(target.map_err(|_| FetchError::Elsewhere)?);
            self.stream = None;
        }
        if let Some(stream) = self.stream.take() {
            match self.ask_on(stream, url, range).await {
                Err(FetchError::Short | FetchError::Connection(_)) => {}
                asked => return asked,
            }
        }
        let stream = self.target.connect().await?;
        stream.set_nodelay(true)?;
        self.ask_on(stream, url, range).await
    }

    async fn ask_on(
        &self,
        mut stream: TcpStream,
        url: &Url,
        range: Option<ByteRange>,
    ) -> Result<Begun, FetchError> {
        let query = url.query().map_or_else(String::new, |it| format!("?{it}"));
        let path = format!("{}{query}", url.path());
        let range_wanted = range.map(|(first, last)| format!("bytes={first}-{last}"));
        let range_wanted = range_wanted.as_deref().map(|it| ("Range", it));
        let host = [("Host", self.target.host.as_str())];
        let headers = lines(host.into_iter().chain(range_wanted));
        let request = request(METHOD, &path, "HTTP/1.1", &headers);
        stream.write_all(request.as_bytes()).await?;
        let begun = timeout(SILENCE_MAX, Begun::read(stream, range)).await;
        begun.map_err(|_| FetchError::Silent)?
    }
}

impl Begun {
    /// Reads the head of an answer.
    async fn read(stream: TcpStream, range: Option<ByteRange>) -> Result<Self, FetchError> {
        let mut received = Vec::new();
        let (head, head_bytes) = loop {
            let parsed = message::Head::parse(&received).map_err(|_| FetchError::Garbled)?;
            match parsed {
                Some(parsed) => break parsed,
                None if read(&stream, &mut received, HEAD_STEP_BYTES).await? == 0 => {
                    return Err(FetchError::Short);
                }
                None => {}
            }
        };
        received.drain(..head_bytes);
        let length = head.content_length().map_err(|_| FetchError::Garbled)?;
        let response = head.into_response().ok().and_then(Result::ok);
        let response = response.ok_or(FetchError::Garbled)?;
        match (response.status, range) {
            (200, None) => {}
            // Who gets all of a file for each segment of it measures something else.
            (200, Some(_)) => return Err(FetchError::Range),
            (206, Some((first, _))) if range_from(&response) == Some(first) => {}
            (206, Some(_)) => return Err(FetchError::Range),
            _ => return Err(refused(METHOD, &response)),
        }
        let coding = response.header("Transfer-Encoding");
        let length = match coding.map(|it| it.eq_ignore_ascii_case("chunked")) {
            None => Length::Left(length.ok_or(FetchError::NoLength)?),
            Some(true) => Length::Chunked(false),
            Some(false) => return Err(FetchError::NoLength),
        };
        if let (Length::Left(bytes), Some((first, last))) = (length, range)
            && bytes != last - first + 1
        {
            return Err(FetchError::Range);
        }
        let connection = response.header("Connection").unwrap_or_default();
        Ok(Self {
            stream,
            received,
            length,
            closes: connection.eq_ignore_ascii_case("close"),
        })
    }

    /// Bytes of the body that come next in one piece: all of it, or a chunk; 0 at its end.
    async fn piece(&mut self) -> Result<u64, FetchError> {
        let is_first = match &mut self.length {
            Length::Left(left) => return Ok(mem::take(left)),
            Length::Chunked(has_begun) => !mem::replace(has_begun, true),
        };
        // What ends the chunk before.
        if !is_first && !self.line().await?.is_empty() {
            return Err(FetchError::Garbled);
        }
        let line = self.line().await?;
        // Extensions of a chunk say nothing that a player needs.
        let bytes = line.split(';').next().unwrap_or_default().trim();
        let bytes = u64::from_str_radix(bytes, 16).map_err(|_| FetchError::Garbled)?;
        if bytes == 0 {
            // Trailers, up to an empty line.
            while !self.line().await?.is_empty() {}
        }
        Ok(bytes)
    }

    /// The next line, without its end.
    async fn line(&mut self) -> Result<String, FetchError> {
        loop {
            if let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&self.received[..end]).into_owned();
                self.received.drain(..end + 2);
                return Ok(line);
            }
            if self.received.len() > HEAD_BYTES_MAX {
                return Err(FetchError::Garbled);
            }
            self.more(HEAD_STEP_BYTES).await?;
        }
    }

    /// Waits for more.
    async fn more(&mut self, bytes_max: usize) -> Result<(), FetchError> {
        let reading = read(&self.stream, &mut self.received, bytes_max);
        match timeout(SILENCE_MAX, reading).await {
            Err(_) => Err(FetchError::Silent),
            Ok(Ok(0)) => Err(FetchError::Short),
            Ok(read) => Ok(read.map(drop)?),
        }
    }
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};

    use tokio::runtime::Builder;

    use super::*;

    /// A server that answers one request after the other so, on one connection or on as many as it
    /// is asked on; what it was asked for, and the ranges. The answer may be sent byte by byte.
    fn server(answers: Vec<String>, is_slow: bool) -> (Url, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/a/b", listener.local_addr().unwrap());
        let serve = move || {
            let mut asked = Vec::new();
            let mut answers = answers.into_iter().peekable();
            while answers.peek().is_some() {
                let (stream, _) = listener.accept().unwrap();
                stream.set_nodelay(true).unwrap();
                let lines = BufReader::new(&stream).lines();
                for line in lines.map_while(Result::ok) {
                    if line.starts_with("GET ") || line.starts_with("Range: ") {
                        asked.push(line.replace(" HTTP/1.1", ""));
                    }
                    if !line.is_empty() {
                        continue;
                    }
                    let answer = answers.next().unwrap();
                    let step = if is_slow { 1 } else { answer.len() };
                    for part in answer.as_bytes().chunks(step) {
                        (&stream).write_all(part).unwrap();
                    }
                    if answers.peek().is_none() || answer.contains("Location") {
                        break;
                    }
                }
            }
            asked
        };
        (url.parse().unwrap(), thread::spawn(serve))
    }

    fn block_on<T>(wanted: impl Future<Output = T>) -> T {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(wanted)
    }

    async fn connection(url: &Url) -> PlayerConnection {
        PlayerConnection::new(Rc::new(Target::of(url.as_str()).await.unwrap()))
    }

    fn chunked(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
    }

    /// As gohlslib sends them.
    #[test]
    fn chunks_are_read_to_the_last() {
        let text = "5\r\nhello\r\nA;x=y\r\n, world!\r\n\r\n0\r\nT: x\r\n\r\n";
        for is_slow in [false, true] {
            let answers = vec![chunked(text), chunked(text), chunked("0\r\n\r\n")];
            let (url, served) = server(answers, is_slow);
            block_on(async {
                let mut connection = connection(&url).await;
                let (came, moved) = connection.text(&url).await.unwrap();
                assert_eq!(came, b"hello, world!\r\n");
                assert_eq!((moved, connection.bytes), (None, 15));
                connection.discard(&url, None).await.unwrap();
                assert_eq!(connection.bytes, 30);
                let (came, _) = connection.text(&url).await.unwrap();
                assert!(came.is_empty());
            });
            assert_eq!(served.join().unwrap(), ["GET /a/b"; 3]);
        }
    }

    #[test]
    fn chunks_that_are_none_or_not_whole_are_refused() {
        for (body, is_short) in [
            ("5\r\nhello\r\n", true),
            ("5\r\nhel", true),
            ("5\r\nhello, \r\n", false),
            ("x\r\n", false),
            ("-1\r\n", false),
            ("0\r\n\r\nmore", false),
        ] {
            let (url, served) = server(vec![chunked(body)], false);
            let came = block_on(async { connection(&url).await.discard(&url, None).await });
            match came {
                Err(FetchError::Short) => assert!(is_short, "{body}"),
                Err(FetchError::Garbled) => assert!(!is_short, "{body}"),
                other => panic!("{body}: {other:?}"),
            }
            served.join().unwrap();
        }
    }

    #[test]
    fn ranges_are_asked_for_and_nothing_else_is_taken() {
        let partial = |range: &str, body: &str| {
            format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {range}/99\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd".to_owned();
        let chunks = partial("3-6", "").replace("Content-Length: 0", "Transfer-Encoding: chunked");
        for (answer, is_it) in [
            (partial("3-6", "defg"), true),
            (chunks + "4\r\ndefg\r\n0\r\n\r\n", true),
            (partial("2-5", "cdef"), false),
            (partial("3-5", "def"), false),
            (whole, false),
        ] {
            let (url, served) = server(vec![answer.clone()], false);
            let came = block_on(async {
                let mut connection = connection(&url).await;
                connection.discard(&url, Some((3, 6))).await
            });
            match came {
                Ok(()) => assert!(is_it, "{answer}"),
                Err(FetchError::Range) => assert!(!is_it, "{answer}"),
                other => panic!("{answer}: {other:?}"),
            }
            assert_eq!(served.join().unwrap(), ["GET /a/b", "Range: bytes=3-6"]);
        }
    }

    #[test]
    fn players_are_sent_on_and_know_where_they_are() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_owned();
        let (there, served_there) = server(vec![text.clone(), text.clone()], false);
        let moved = format!("HTTP/1.1 307 There\r\nLocation: {there}?c\r\n\r\n");
        let (here, served_here) = server(vec![moved, text], false);
        block_on(async {
            let mut connection = connection(&here).await;
            let (came, moved) = connection.text(&here).await.unwrap();
            assert_eq!(came, b"hi");
            let moved = moved.unwrap();
            assert_eq!(moved.as_str(), format!("{there}?c"));
            // On the same connection; what is at the first server is asked for there.
            connection
                .discard(&moved.join("d").unwrap(), None)
                .await
                .unwrap();
            connection.discard(&here, None).await.unwrap();
            assert_eq!((connection.requests, connection.bytes), (4, 6));
        });
        assert_eq!(served_there.join().unwrap(), ["GET /a/b?c", "GET /a/d"]);
        assert_eq!(served_here.join().unwrap(), ["GET /a/b"; 2]);
    }

    #[test]
    fn who_is_sent_on_for_ever_gives_up() {
        let answers = vec!["HTTP/1.1 302 Found\r\nLocation: c\r\n\r\n".to_owned(); 4];
        let (url, served) = server(answers, false);
        let came = block_on(async { connection(&url).await.text(&url).await });
        let error = came.unwrap_err().to_string();
        assert_eq!(error, "GET was answered 302");
        assert_eq!(served.join().unwrap().len(), 4);
    }
}
