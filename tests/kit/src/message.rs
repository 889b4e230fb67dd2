//! Requests and responses of HTTP/1 and RTSP/1.0, which are written alike.
//!
//! Nothing is sent or received here, so that clients that block and clients that do not share it.

use std::fmt::Write;

use thiserror::Error;

/// The start of a message, up to the empty line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Head {
    /// The request line or the status line.
    pub first_line: String,
    /// Names as sent, values without the space around them.
    pub headers: Vec<(String, String)>,
}

/// What a server answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Response {
    /// The protocol and its version.
    pub version: String,
    /// The status code.
    pub status: u16,
    /// What stands behind it.
    pub reason: String,
    /// Names as sent, values without the space around them.
    pub headers: Vec<(String, String)>,
    /// As long as Content-Length says.
    pub body: Vec<u8>,
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, Error, Eq, PartialEq)]
#[error("not a message")]
pub struct Malformed;

/// Bytes of a head at the most.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;

/// A request without a body; `lines` are its header lines, each with its end.
#[must_use]
pub fn request(method: &str, target: &str, version: &str, lines: &str) -> String {
    format!("{method} {target} {version}\r\n{lines}\r\n")
}

/// Header lines, each with its end.
#[must_use]
pub fn lines<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut lines = String::new();
    for (name, value) in headers {
        write!(lines, "{name}: {value}\r\n").expect("a string takes all");
    }
    lines
}

impl Head {
    /// The value of the first header of that name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        named(&self.headers, name)
    }

    /// Reads the head at the start of `bytes`, and how long it is; `None` until it is whole.
    ///
    /// # Errors
    ///
    /// If these bytes do not begin a message, or its head is longer than [`HEAD_BYTES_MAX`].
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let too_long = bytes.len() > HEAD_BYTES_MAX;
        let more = || if too_long { Err(Malformed) } else { Ok(None) };
        let Some(line_bytes) = bytes.windows(2).position(|two| two == b"\r\n") else {
            return more();
        };
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let parsed = httparse::parse_headers(&bytes[line_bytes + 2..], &mut headers);
        let httparse::Status::Complete((headers_bytes, headers)) = parsed.map_err(|_| Malformed)?
        else {
            return more();
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let header = |h: &httparse::Header<'_>| (h.name.to_owned(), text(h.value));
        let head = Self {
            first_line: String::from_utf8_lossy(&bytes[..line_bytes]).into_owned(),
            headers: headers.iter().map(header).collect(),
        };
        Ok(Some((head, line_bytes + 2 + headers_bytes)))
    }

    /// Bytes of the body, if they are said.
    ///
    /// # Errors
    ///
    /// If Content-Length is no number.
    pub fn content_length(&self) -> Result<Option<u64>, Malformed> {
        let length = named(&self.headers, "Content-Length").map(str::parse);
        length.transpose().map_err(|_| Malformed)
    }

    /// The response that begins so, without its body; the head again if it is of a request.
    ///
    /// # Errors
    ///
    /// If it is of a response whose status cannot be read.
    pub fn into_response(self) -> Result<Result<Response, Self>, Malformed> {
        let Some((version, rest)) = self.first_line.split_once(' ') else {
            return Err(Malformed);
        };
        if !version.starts_with("HTTP/1.") && version != "RTSP/1.0" {
            return Ok(Err(self));
        }
        let (status, reason) = rest.split_once(' ').unwrap_or((rest, ""));
        Ok(Ok(Response {
            version: version.to_owned(),
            status: status.parse().map_err(|_| Malformed)?,
            reason: reason.to_owned(),
            headers: self.headers,
            body: Vec::new(),
        }))
    }
}

impl Response {
    /// The value of the first header of that name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        named(&self.headers, name)
    }

    /// The body, which is text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn named<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut headers = headers.iter();
    let found = headers.find(|(n, _)| n.eq_ignore_ascii_case(name))?;
    Some(&found.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_when_they_are_whole() {
        let bytes = b"HTTP/1.1 200 OK\r\nA:  b \r\ncontent-length: 3\r\n\r\nabc";
        let (head, head_bytes) = Head::parse(bytes).unwrap().unwrap();
        assert_eq!(&bytes[head_bytes..], b"abc");
        assert_eq!(head.content_length(), Ok(Some(3)));
        for cut in 0..head_bytes {
            assert_eq!(Head::parse(&bytes[..cut]), Ok(None), "{cut}");
        }
        let response = head.into_response().unwrap().unwrap();
        assert_eq!((response.status, response.reason.as_str()), (200, "OK"));
        assert_eq!(
            (response.header("a"), response.header("B")),
            (Some("b"), None)
        );
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let endless = vec![b'x'; HEAD_BYTES_MAX + 1];
        assert_eq!(Head::parse(&endless), Err(Malformed));
        assert_eq!(Head::parse(&endless[..HEAD_BYTES_MAX]), Ok(None));
        assert_eq!(
            Head::parse(b"OPTIONS *\r\nno header\r\n\r\n"),
            Err(Malformed)
        );
        let head = |text: &[u8]| Head::parse(text).unwrap().unwrap().0;
        let negative = head(b"RTSP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n");
        assert_eq!(negative.content_length(), Err(Malformed));
        assert_eq!(
            head(b"RTSP/1.0 2x0 OK\r\n\r\n").into_response(),
            Err(Malformed)
        );
        let request = head(b"OPTIONS * RTSP/1.0\r\n\r\n");
        assert_eq!(request.clone().into_response(), Ok(Err(request)));
    }
}
