//! One request: what a head says, read all at once when it is whole (RFC 2326, section 6).

use rtsp_types::{Method, StatusCode};
use thiserror::Error;

use super::reply::Reply;

/// One request, as it was sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// What is to be done.
    pub method: Method,
    /// To what; not yet taken apart. Holds no control character and no space: a space in what was
    /// sent is `%20` here.
    pub uri: String,
    /// Major and minor number of the protocol's version.
    pub version: (u32, u32),
    /// Names as sent, values without the space around them, in their order.
    pub headers: Vec<(String, String)>,
    /// As long as Content-Length said.
    pub body: Vec<u8>,
}

/// A client's answer to a request of the server's. Its body is passed over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClientAnswer {
    /// The status code.
    pub status: u16,
    /// The number of the request that it answers, if it has a proper one.
    pub cseq: Option<u32>,
}

/// What a head belongs to.
pub(super) enum Headed {
    Request(Request),
    Answer(ClientAnswer),
}

/// What was wrong with the bytes.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum Malformed {
    /// A control character in a head; also what binary noise and bare CR as a line end look like.
    #[error("byte {byte:#04x} in a request head; end lines with CR LF")]
    Control {
        /// The byte.
        byte: u8,
    },
    /// The request line alone is longer than a head may be.
    #[error("request line longer than {head_bytes_max} bytes; shorten the URL")]
    LineTooLong {
        /// The limit.
        head_bytes_max: usize,
    },
    /// The head is too long.
    #[error("request head longer than {head_bytes_max} bytes; send fewer or shorter headers")]
    HeadTooLong {
        /// The limit.
        head_bytes_max: usize,
    },
    /// There are too many headers.
    #[error("more than {headers_max} headers; send fewer")]
    TooManyHeaders {
        /// The limit.
        headers_max: usize,
    },
    /// The body is too long.
    #[error("Content-Length above {body_bytes_max}; send less")]
    BodyTooLong {
        /// The limit.
        body_bytes_max: usize,
    },
    /// The head is not UTF-8.
    #[error("request head is not UTF-8; percent-encode other bytes in URLs")]
    NotUtf8,
    /// The first line is no request line.
    #[error("not a request line; send METHOD URL RTSP/1.0")]
    RequestLine,
    /// A line of the head is no header.
    #[error("not a header; send Name: value")]
    Header,
    /// Content-Length is not a number, or there are several that differ.
    #[error("bad Content-Length; send one decimal number")]
    ContentLength,
}

impl Request {
    /// The value of the first header of that name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.headers
            .iter()
            .find(named)
            .map(|(_, value)| value.as_str())
    }

    /// The values of all headers of that name, in any case.
    pub fn headers_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = move |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.headers
            .iter()
            .filter(named)
            .map(|(_, value)| value.as_str())
    }

    /// Bytes behind the RTP header of a packet, at the most, that Blocksize asks for (RFC 2326,
    /// section 12.7: "a positive decimal number"); `None` if it asks for none.
    ///
    /// # Errors
    ///
    /// 400, if it is no such number.
    pub fn blocksize(&self) -> Result<Option<usize>, Reply> {
        let Some(value) = self.header("Blocksize").map(str::trim) else {
            return Ok(None);
        };
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
        let is_positive = value.bytes().any(|byte| byte != b'0');
        if !is_number || !is_positive {
            let note = "Blocksize takes a number of bytes above 0, as 1400";
            return Err(Reply::refusal(StatusCode::BadRequest, note));
        }
        // What is larger than any number asks for as much as there can be.
        Ok(Some(value.parse().unwrap_or(usize::MAX)))
    }

    /// The request's number, if it has a proper one.
    #[must_use]
    pub fn cseq(&self) -> Option<u32> {
        self.header("CSeq").and_then(number)
    }
}

/// Reads a head that ends with an empty line; also says how many bytes of body follow.
pub(super) fn parse_head(head: &[u8]) -> Result<(Headed, usize), Malformed> {
    let head = str::from_utf8(head).map_err(|_| Malformed::NotUtf8)?;
    let mut lines = head
        .split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line));
    let first = lines.next().unwrap_or("");
    let status = status_line(first);
    let (method, uri, version) = match status {
        // Of an answer nothing but its headers is read on.
        Some(_) => (Method::Options, String::new(), (1, 0)),
        None => request_line(first).ok_or(Malformed::RequestLine)?,
    };
    let headers = parse_headers(lines)?;
    let request = Request {
        method,
        uri,
        version,
        headers,
        body: Vec::new(),
    };
    let body_bytes = content_length(&request)?;
    let headed = match status {
        Some(status) => Headed::Answer(ClientAnswer {
            status,
            cseq: request.cseq(),
        }),
        None => Headed::Request(request),
    };
    Ok((headed, body_bytes))
}

fn parse_headers<'a>(
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<(String, String)>, Malformed> {
    let mut headers: Vec<(String, String)> = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        if line.starts_with([' ', '\t']) {
            // A line that goes on with the header above it (RFC 2326, section 4; RFC 2068, section
            // 4.2).
            let (_, value) = headers.last_mut().ok_or(Malformed::Header)?;
            value.push(' ');
            value.push_str(line.trim());
            continue;
        }
        let (name, value) = line.split_once(':').ok_or(Malformed::Header)?;
        if !is_token(name) {
            return Err(Malformed::Header);
        }
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    Ok(headers)
}

fn content_length(request: &Request) -> Result<usize, Malformed> {
    let mut lengths = request.headers_named("Content-Length");
    let length = lengths.next().unwrap_or("0");
    let is_number = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    if !is_number || lengths.any(|other| other != length) {
        return Err(Malformed::ContentLength);
    }
    // A number too large for the type is no number less: it is above every limit.
    Ok(length.parse().unwrap_or(usize::MAX))
}

/// The status of `RTSP/1.0 STATUS REASON`, three digits.
fn status_line(line: &str) -> Option<u16> {
    let mut words = line.strip_prefix("RTSP/")?.splitn(3, ' ');
    let (major, minor) = words.next()?.split_once('.')?;
    number::<u32>(major).zip(number::<u32>(minor))?;
    let status = words.next().filter(|status| status.len() == 3)?;
    number(status).filter(|status| (100..600).contains(status))
}

/// `METHOD URL RTSP/1.0`. Players on libavformat send a URL as it was typed, which may be with
/// spaces: what lies between the first word and the last is one.
fn request_line(line: &str) -> Option<(Method, String, (u32, u32))> {
    let (method, rest) = line.trim_matches(' ').split_once(' ')?;
    let (uri, version) = rest.rsplit_once(' ')?;
    let uri = uri.trim_matches(' ');
    let (major, minor) = version.strip_prefix("RTSP/")?.split_once('.')?;
    let version = (number(major)?, number(minor)?);
    let fits = is_token(method) && !uri.is_empty() && !uri.contains('\t');
    fits.then(|| (Method::from(method), uri.replace(' ', "%20"), version))
}

/// RFC 2326, section 15.1: `token`.
fn is_token(word: &str) -> bool {
    let is_token_byte = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !word.is_empty() && word.bytes().all(is_token_byte)
}

/// A decimal number with nothing around it; `parse` alone would let a sign pass.
pub(super) fn number<N: std::str::FromStr>(digits: &str) -> Option<N> {
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// The CSeq of a head that is not fit to be read otherwise, so that its refusal can be matched to
/// it.
pub(super) fn cseq_in(head: &[u8]) -> Option<u32> {
    head.split(|&b| b == b'\n').find_map(|line| {
        let (name, value) = str::from_utf8(line).ok()?.split_once(':')?;
        if name.eq_ignore_ascii_case("CSeq") {
            number(value.trim())
        } else {
            None
        }
    })
}
