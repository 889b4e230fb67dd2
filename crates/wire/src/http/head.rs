//! A request's head: where it ends, and what it says.
//!
//! Whatever two readers could read in two ways is refused, because a proxy in front may be the
//! other reader: line ends without CR, CR without line end, folded lines, a space before the colon,
//! two lengths, a length and a coding.

use std::borrow::Cow;

use super::target::{Target, is_host};
use super::{Codings, Method, Refusal, Status};

/// Bytes of a head.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Header lines of a head.
pub const HEADERS_MAX: usize = 64;

/// Bytes of a request's target.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;

/// Finds the end of a head in bytes that arrive piece by piece.
#[derive(Clone, Debug, Default)]
pub struct HeadScanner {
    seen: usize,
}

/// How the request's content is framed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Content {
    /// It has none.
    None,
    /// So many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// A head, understood.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What is asked for.
    pub method: Method,
    /// The request line as it came, for the log.
    pub line: &'a str,
    /// What it is asked of.
    pub target: Target,
    /// What stands behind the first `?` of the target, as it came. It chooses nothing here.
    pub query: Option<&'a str>,
    /// Whether the client may send another request on this connection.
    pub keeps_alive: bool,
    /// Whether the client speaks HTTP/1.1, not 1.0.
    pub is_http_11: bool,
    /// What it calls this server: `host[:port]`, or nothing.
    pub host: &'a str,
    /// What follows the head.
    pub content: Content,
    /// Whether it waits for a 100 before it sends that.
    pub expects_continue: bool,
    /// The codings it takes.
    pub codings: Codings,
    /// Content-Range: which part of the file the content is.
    pub content_range: Option<&'a str>,
    /// Content-Encoding, all lines as one.
    pub content_encoding: Option<Cow<'a, str>>,
    /// Range.
    pub range: Option<&'a str>,
    /// If-Range.
    pub if_range: Option<&'a str>,
    /// If-Match, all lines as one.
    pub if_match: Option<Cow<'a, str>>,
    /// If-None-Match, all lines as one.
    pub if_none_match: Option<Cow<'a, str>>,
    /// If-Modified-Since.
    pub if_modified_since: Option<&'a str>,
    /// If-Unmodified-Since.
    pub if_unmodified_since: Option<&'a str>,
    /// The target as it came, which Digest hashes.
    pub uri: &'a str,
    /// Authorization.
    pub authorization: Option<&'a str>,
    /// Origin: whose page has a browser ask, where that is another site's.
    pub origin: Option<&'a [u8]>,
    /// X-Forwarded-For, all lines as one; what is not UTF-8 is replaced.
    pub forwarded_for: Option<Cow<'a, str>>,
    /// X-Forwarded-Proto, likewise.
    pub forwarded_proto: Option<Cow<'a, str>>,
    /// Referer, for the log.
    pub referer: &'a [u8],
    /// User-Agent, for the log.
    pub user_agent: &'a [u8],
}

/// Takes the empty lines away that stand in front of a head (RFC 9112, section 2.2), however they
/// came. Whether there is something then that a head may begin with: not if half of an empty line
/// has come.
pub fn skip_empty_lines(bytes: &mut Vec<u8>) -> bool {
    let empty = bytes.chunks(2).take_while(|line| line == b"\r\n").count();
    bytes.drain(..2 * empty);
    bytes != b"\r"
}

impl HeadScanner {
    /// Where the head at the front of `bytes` ends, if it does; `bytes` are those of the call
    /// before, and perhaps more.
    ///
    /// # Errors
    ///
    /// 400 for a line that ends in anything but CR LF, 414 and 431 if it is too long.
    pub fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refusal> {
        let bounded = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
        for at in self.seen..bounded.len() {
            let after_cr = at > 0 && bytes[at - 1] == b'\r';
            match bytes[at] {
                b'\n' if !after_cr => return Err(refused("a line ends in CR LF")),
                b'\n' if bytes[..=at].ends_with(b"\r\n\r\n") => {
                    self.seen = 0;
                    return Ok(Some(at + 1));
                }
                b'\n' => {}
                _ if after_cr => return Err(refused("CR only ends a line, with LF")),
                0 => return Err(refused("a zero byte")),
                _ => {}
            }
        }
        self.seen = bounded.len();
        if bytes.len() < HEAD_BYTES_MAX {
            return Ok(None);
        }
        Err(match bounded.contains(&b'\n') {
            true => Refusal {
                status: Status::HeadersTooLarge,
                note: "the head is too long; send fewer or shorter header lines",
            },
            false => LONG_TARGET,
        })
    }
}

impl<'a> Request<'a> {
    /// Understands a head, which ends in an empty line.
    ///
    /// # Errors
    ///
    /// What it is answered before its connection is closed.
    pub fn parse(head: &'a [u8]) -> Result<Self, Refusal> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut headers);
        let (line, headers) = match parsed.parse(head) {
            Ok(httparse::Status::Complete(_)) => (Line::of(&parsed), &*parsed.headers),
            Ok(httparse::Status::Partial) => return Err(refused("no request line")),
            Err(error @ httparse::Error::Version) => {
                let (line, fields) = later_minor(head).ok_or_else(|| malformed(head, error))?;
                match httparse::parse_headers(fields, &mut headers) {
                    Ok(httparse::Status::Complete((_, headers))) => (Some(line), headers),
                    Ok(httparse::Status::Partial) => return Err(refused("no empty line")),
                    Err(error) => return Err(malformed(head, error)),
                }
            }
            Err(error) => return Err(malformed(head, error)),
        };
        let Some(Line { name, uri, version }) = line else {
            return Err(refused("no request line"));
        };
        if uri.len() > TARGET_BYTES_MAX {
            return Err(LONG_TARGET);
        }
        let method = Method::of(name);
        let (target, authority) = Target::parse(uri, method)?;
        let mut fields = Fields::default();
        for header in headers {
            fields.take(header)?;
        }
        let line = head.split(|&b| b == b'\r').next().unwrap_or_default();
        let is_http_11 = version == 1;
        Ok(Self {
            method,
            line: std::str::from_utf8(line).map_err(|_| refused("a request line is ASCII"))?,
            target,
            query: query(uri),
            keeps_alive: !fields.closes && (is_http_11 || fields.keeps_alive),
            is_http_11,
            host: fields.host(is_http_11, authority)?,
            content: fields.content(is_http_11)?,
            expects_continue: fields.expects_continue(is_http_11)?,
            codings: fields.codings,
            content_range: fields.content_range,
            content_encoding: fields.content_encoding,
            range: fields.range,
            if_range: fields.if_range,
            if_match: fields.if_match,
            if_none_match: fields.if_none_match,
            if_modified_since: fields.if_modified_since,
            if_unmodified_since: fields.if_unmodified_since,
            uri,
            authorization: fields.authorization,
            origin: fields.origin,
            forwarded_for: fields.forwarded_for,
            forwarded_proto: fields.forwarded_proto,
            referer: fields.referer,
            user_agent: fields.user_agent,
        })
    }
}

/// A request line's parts; `version` is the minor one.
struct Line<'a> {
    name: &'a str,
    uri: &'a str,
    version: u8,
}

impl<'a> Line<'a> {
    fn of(parsed: &httparse::Request<'_, 'a>) -> Option<Self> {
        Some(Self {
            name: parsed.method?,
            uri: parsed.path?,
            version: parsed.version?,
        })
    }
}

/// The request line of a head in HTTP/1.2 to HTTP/1.9, and what follows that line. The parser knows
/// no such version; a server treats it as the highest minor version that it speaks (RFC 9110,
/// section 2.5).
fn later_minor(head: &[u8]) -> Option<(Line<'_>, &[u8])> {
    let end = head.windows(2).position(|two| two == b"\r\n")?;
    let (before, minor) = head[..end].split_at_checked(end.checked_sub(1)?)?;
    if !before.ends_with(b" HTTP/1.") || !matches!(minor, [b'2'..=b'9']) {
        return None;
    }
    let as_11 = [before, b"1\r\n\r\n"].concat();
    let mut parsed = httparse::Request::new(&mut []);
    let parts = match parsed.parse(&as_11) {
        Ok(httparse::Status::Complete(_)) => Line::of(&parsed)?,
        _ => return None,
    };
    let (name, rest) = std::str::from_utf8(before).ok()?.split_once(' ')?;
    let uri = rest.strip_suffix(" HTTP/1.")?;
    // An empty line in front, or a space too many, would make two readings of it.
    let line = Line {
        name,
        uri,
        version: 1,
    };
    let is_same = (parts.name, parts.uri) == (name, uri);
    is_same.then_some((line, &head[end + 2..]))
}

/// What the header lines say, as far as it matters here.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a str>,
    content_length: Option<&'a str>,
    transfer_encoding: Option<Cow<'a, str>>,
    closes: bool,
    keeps_alive: bool,
    expect: Option<Cow<'a, str>>,
    codings: Codings,
    content_range: Option<&'a str>,
    content_encoding: Option<Cow<'a, str>>,
    range: Option<&'a str>,
    if_range: Option<&'a str>,
    if_match: Option<Cow<'a, str>>,
    if_none_match: Option<Cow<'a, str>>,
    if_modified_since: Option<&'a str>,
    if_unmodified_since: Option<&'a str>,
    authorization: Option<&'a str>,
    origin: Option<&'a [u8]>,
    forwarded_for: Option<Cow<'a, str>>,
    forwarded_proto: Option<Cow<'a, str>>,
    referer: &'a [u8],
    user_agent: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, header: &httparse::Header<'a>) -> Result<(), Refusal> {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        let text = || std::str::from_utf8(header.value).map_err(|_| refused("a value is ASCII"));
        // The length first: most lines of most requests matter to nobody here.
        match header.name.len() {
            4 if is("Host") => single(&mut self.host, text()?),
            5 if is("Range") => single(&mut self.range, text()?),
            6 if is("Expect") => list(&mut self.expect, text()?),
            6 if is("Origin") => {
                self.origin = Some(header.value);
                Ok(())
            }
            7 if is("Referer") => {
                self.referer = header.value;
                Ok(())
            }
            8 if is("If-Range") => single(&mut self.if_range, text()?),
            8 if is("If-Match") => list(&mut self.if_match, text()?),
            10 if is("User-Agent") => {
                self.user_agent = header.value;
                Ok(())
            }
            10 if is("Connection") => {
                for option in text()?.split(',').map(str::trim) {
                    self.closes |= option.eq_ignore_ascii_case("close");
                    self.keeps_alive |= option.eq_ignore_ascii_case("keep-alive");
                }
                Ok(())
            }
            13 if is("Authorization") => single(&mut self.authorization, text()?),
            13 if is("If-None-Match") => list(&mut self.if_none_match, text()?),
            13 if is("Content-Range") => single(&mut self.content_range, text()?),
            14 if is("Content-Length") => single(&mut self.content_length, text()?),
            15 if is("Accept-Encoding") => {
                self.codings.take(text()?);
                Ok(())
            }
            15 if is("X-Forwarded-For") => {
                forwarded(&mut self.forwarded_for, header.value);
                Ok(())
            }
            16 if is("Content-Encoding") => list(&mut self.content_encoding, text()?),
            17 if is("If-Modified-Since") => single(&mut self.if_modified_since, text()?),
            17 if is("X-Forwarded-Proto") => {
                forwarded(&mut self.forwarded_proto, header.value);
                Ok(())
            }
            17 if is("Transfer-Encoding") => list(&mut self.transfer_encoding, text()?),
            19 if is("If-Unmodified-Since") => single(&mut self.if_unmodified_since, text()?),
            _ => Ok(()),
        }
    }

    /// RFC 9112, section 3.2: exactly one Host in 1.1; that of an absolute target goes before it.
    fn host(&self, is_http_11: bool, authority: Option<&'a str>) -> Result<&'a str, Refusal> {
        let host = match self.host {
            Some(host) if !is_host(host) => return Err(refused("Host names no host")),
            None if is_http_11 => return Err(refused("Host is missing")),
            host => host.unwrap_or_default(),
        };
        Ok(authority.unwrap_or(host))
    }

    /// RFC 9112, section 6.3, with its doubtful cases refused.
    fn content(&self, is_http_11: bool) -> Result<Content, Refusal> {
        match (&self.transfer_encoding, self.content_length) {
            (None, None) => Ok(Content::None),
            (None, Some(length)) => {
                let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
                let bytes = length.parse().ok().filter(|_| digits);
                bytes
                    .map(Content::Length)
                    .ok_or(refused("Content-Length is one whole number"))
            }
            (Some(_), Some(_)) => Err(refused("Content-Length beside Transfer-Encoding")),
            (Some(_), None) if !is_http_11 => Err(refused("Transfer-Encoding in HTTP/1.0")),
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Ok(Content::Chunked),
            (Some(_), None) => Err(Refusal {
                status: Status::NotImplemented,
                note: "no transfer coding but chunked is known",
            }),
        }
    }

    fn expects_continue(&self, is_http_11: bool) -> Result<bool, Refusal> {
        match &self.expect {
            // A 1.0 client cannot know what it asks for (RFC 9110, section 10.1.1).
            Some(_) if !is_http_11 => Ok(false),
            Some(expect) if expect.eq_ignore_ascii_case("100-continue") => Ok(true),
            Some(_) => Err(Refusal {
                status: Status::ExpectationFailed,
                note: "nothing can be expected but 100-continue",
            }),
            None => Ok(false),
        }
    }
}

fn query(uri: &str) -> Option<&str> {
    let (before_fragment, _) = uri.split_once('#').unwrap_or((uri, ""));
    before_fragment.split_once('?').map(|(_, query)| query)
}

fn single<'a>(field: &mut Option<&'a str>, value: &'a str) -> Result<(), Refusal> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(refused("a header line that may stand once stands twice")),
    }
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "as single, beside which it is used"
)]
fn list<'a>(field: &mut Option<Cow<'a, str>>, value: &'a str) -> Result<(), Refusal> {
    *field = Some(match field.take() {
        None => Cow::Borrowed(value),
        Some(before) => Cow::Owned(format!("{before},{value}")),
    });
    Ok(())
}

/// As [`list`], of what the clients of a proxy may have begun to write: nothing in it is refused.
fn forwarded<'a>(field: &mut Option<Cow<'a, str>>, value: &'a [u8]) {
    let value = String::from_utf8_lossy(value);
    *field = Some(match field.take() {
        None => value,
        Some(before) => Cow::Owned(format!("{before},{value}")),
    });
}

fn malformed(head: &[u8], error: httparse::Error) -> Refusal {
    // Of a line with a space too many, something else than the version stands where it should.
    let line = head.split(|&b| b == b'\r').next().unwrap_or_default();
    let is_request_line = line.iter().filter(|&&b| b == b' ').count() == 2;
    let last = line.rsplit(|&b| b == b' ').next().unwrap_or_default();
    match error {
        httparse::Error::Version if is_request_line && last.starts_with(b"HTTP/") => Refusal {
            status: Status::VersionNotSupported,
            note: "HTTP/1.1 and HTTP/1.0 are spoken here",
        },
        httparse::Error::TooManyHeaders => Refusal {
            status: Status::HeadersTooLarge,
            note: "too many header lines",
        },
        _ => refused("no request as RFC 9112 says"),
    }
}

const fn refused(note: &'static str) -> Refusal {
    Refusal {
        status: Status::BadRequest,
        note,
    }
}

const LONG_TARGET: Refusal = Refusal {
    status: Status::UriTooLong,
    note: "the target is too long",
};

#[cfg(test)]
mod tests;
