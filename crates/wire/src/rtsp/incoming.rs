//! What comes to a client of ours: responses, frames between them, and requests of the server's.

use thiserror::Error;

use super::interleaved::{Channels, FRAME_MARK, FRAME_PREFIX_BYTES, Frame};

/// Bytes of a response's head, and of its body, at most; of a description, too.
pub const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// Header lines of a response, at most.
pub const RESPONSE_HEADERS_MAX: usize = 128;

/// Letters of a method, at most.
const METHOD_BYTES_MAX: usize = 24;

/// What messages begin with that are looked for behind bytes that begin none: responses, and the
/// requests that servers have.
const BEGINNINGS: [&[u8]; 7] = [
    b"RTSP/1.0 ",
    b"ANNOUNCE ",
    b"GET_PARAMETER ",
    b"OPTIONS ",
    b"REDIRECT ",
    b"SET_PARAMETER ",
    b"TEARDOWN ",
];

/// Bytes of the longest of them; what tells a frame is shorter.
const BEGINNING_BYTES_MAX: usize = b"GET_PARAMETER ".len();

/// A response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// What is said beside it, without control characters.
    pub reason: String,
    /// Names as sent, values without the space around them, in their order.
    pub headers: Vec<(String, String)>,
    /// As long as Content-Length said.
    pub body: Vec<u8>,
}

/// What has come whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Incoming {
    /// An answer.
    Response(Response),
    /// A packet.
    Frame(Frame),
    /// A request of the server's, as REDIRECT; what is no RTSP at all looks like one, too.
    Request(ServerRequest),
    /// So many bytes that begin nothing: some cameras have them between frames.
    Stray(usize),
}

/// A request of the server's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerRequest {
    /// The first word.
    pub method: String,
    is_rtsp: bool,
    /// Names as sent, values without the space around them, in their order.
    headers: Vec<(String, String)>,
}

/// How far that was looked through of which nothing could be taken yet, so that it is not looked
/// through again with every byte that comes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looked {
    /// No end of a head begins before.
    head: usize,
    /// No message begins before, behind bytes that begin nothing.
    strays: usize,
    /// A message has so many bytes.
    message: usize,
}

/// A server that cannot be understood any more.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("what the server answers is no RTSP: {0}")]
pub struct NoResponse(&'static str);

impl Response {
    /// The value of the first header of that name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        first_header(&self.headers, name)
    }

    /// The values of all headers of that name, in any case.
    pub fn headers_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let headers = self.headers.iter();
        let named = headers.filter(move |(n, _)| n.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str())
    }
}

impl ServerRequest {
    /// The answer that it waits for, as a text (RFC 2326, section 10); none where it is no RTSP.
    #[must_use]
    pub fn answer(&self) -> Option<String> {
        let status = match self.method.as_str() {
            "OPTIONS" | "GET_PARAMETER" | "REDIRECT" => "200 OK",
            _ => "501 Not Implemented",
        };
        let cseq = self.header("CSeq").unwrap_or("0");
        let answer = format!("RTSP/1.0 {status}\r\nCSeq: {cseq}\r\n\r\n");
        self.is_rtsp.then_some(answer)
    }

    /// The value of the first header of that name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        first_header(&self.headers, name)
    }
}

fn first_header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let named = headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str())
}

/// Takes what is whole from the front of `input`, or nothing. Called until it has no more before
/// more is read, `input` is never longer than one message and what was read last. `looked` is of
/// that input, and `channels` change only once something was taken.
///
/// Once a track has `channels`, bytes that begin nothing are passed over up to the next message.
/// Before that they say that this is another protocol.
///
/// # Errors
///
/// If what has come is no RTSP, or exceeds a bound; if [`RESPONSE_BYTES_MAX`] bytes begin nothing.
pub fn take_incoming(
    input: &mut Vec<u8>,
    channels: &[Channels],
    looked: &mut Looked,
) -> Result<Option<Incoming>, NoResponse> {
    if input.len() < looked.message {
        return Ok(None);
    }
    let taken = take(input, channels, looked)?;
    if taken.is_some() {
        *looked = Looked::default();
    }
    Ok(taken)
}

fn take(
    input: &mut Vec<u8>,
    channels: &[Channels],
    looked: &mut Looked,
) -> Result<Option<Incoming>, NoResponse> {
    let blank = input.iter().take_while(|b| matches!(b, b'\r' | b'\n'));
    let blank = blank.count();
    input.drain(..blank);
    if !channels.is_empty() && !can_begin(input) {
        return take_strays(input, channels, &mut looked.strays);
    }
    if input.first() == Some(&FRAME_MARK) {
        let Some(&[_, channel, high, low]) = input.first_chunk::<FRAME_PREFIX_BYTES>() else {
            return Ok(None);
        };
        let end = FRAME_PREFIX_BYTES + usize::from(u16::from_be_bytes([high, low]));
        if input.len() < end {
            return Ok(None);
        }
        let packet = input.drain(..end).skip(FRAME_PREFIX_BYTES).collect();
        return Ok(Some(Incoming::Frame(Frame { channel, packet })));
    }
    take_message(input, looked)
}

/// Takes a response or a request.
fn take_message(input: &mut Vec<u8>, looked: &mut Looked) -> Result<Option<Incoming>, NoResponse> {
    let Some((head_bytes, head)) = head(input, &mut looked.head)? else {
        return Ok(None);
    };
    let mut lines = head.lines();
    let first = lines.next().unwrap_or("");
    let mut headers = Vec::new();
    for line in lines {
        if headers.len() == RESPONSE_HEADERS_MAX {
            return Err(NoResponse("too many headers"));
        }
        // What is no header is passed over: cameras are not exact.
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    let length = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("Content-Length");
    let length = headers.iter().find(length).map_or("0", |(_, value)| value);
    let body_bytes: usize = length
        .parse()
        .map_err(|_| NoResponse("a bad Content-Length"))?;
    if body_bytes > RESPONSE_BYTES_MAX {
        return Err(NoResponse("a body that is too long"));
    }
    looked.message = head_bytes + body_bytes;
    if input.len() < looked.message {
        return Ok(None);
    }
    let Some(behind) = first.strip_prefix("RTSP/") else {
        input.drain(..head_bytes + body_bytes);
        let request = ServerRequest {
            method: first.split(' ').next().unwrap_or("").to_owned(),
            is_rtsp: first.contains(" RTSP/"),
            headers,
        };
        return Ok(Some(Incoming::Request(request)));
    };
    let mut words = behind.splitn(3, ' ');
    let status = words.nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or(NoResponse("no status"))?;
    let reason = words.next().unwrap_or("").chars();
    let reason = reason.filter(|c| !c.is_control()).take(200).collect();
    let body = input.drain(..head_bytes + body_bytes).skip(head_bytes);
    let body = body.collect();
    Ok(Some(Incoming::Response(Response {
        status,
        reason,
        headers,
        body,
    })))
}

/// Whether these can be the first bytes of a message, as far as they have come.
fn can_begin(input: &[u8]) -> bool {
    match input.first() {
        None | Some(&FRAME_MARK) => return true,
        Some(first) if !first.is_ascii_uppercase() => return false,
        Some(_) => {}
    }
    let is_of_method = |b: &&u8| b.is_ascii_uppercase() || **b == b'_';
    let first = &input[..input.len().min(METHOD_BYTES_MAX + 1)];
    let letters = first.iter().take_while(is_of_method).count();
    match input.get(letters) {
        _ if letters > METHOD_BYTES_MAX => false,
        None | Some(b' ') => true,
        Some(_) => input.starts_with(b"RTSP/"),
    }
}

/// Takes the bytes in front of what surely begins a message, once that has come.
fn take_strays(
    input: &mut Vec<u8>,
    channels: &[Channels],
    looked: &mut usize,
) -> Result<Option<Incoming>, NoResponse> {
    let window = &input[..input.len().min(RESPONSE_BYTES_MAX)];
    let next = ((*looked).max(1)..window.len()).find(|&at| begins(&window[at..], channels));
    let Some(strays) = next else {
        // Of what begins here more may have to come.
        *looked = window.len().saturating_sub(BEGINNING_BYTES_MAX - 1);
        return match input.len() >= RESPONSE_BYTES_MAX {
            true => Err(NoResponse("64 KiB that begin nothing")),
            false => Ok(None),
        };
    };
    input.drain(..strays);
    Ok(Some(Incoming::Stray(strays)))
}

/// Whether a message begins here that nothing within a packet is taken for by chance: a frame is of
/// a track's channel, and has RTP or RTCP of version 2.
fn begins(bytes: &[u8], channels: &[Channels]) -> bool {
    match bytes {
        [FRAME_MARK, channel, _, _, first, ..] => {
            let is_of = |it: &Channels| [it.rtp, it.rtcp].contains(channel);
            first >> 6 == 2 && channels.iter().any(is_of)
        }
        _ => BEGINNINGS.iter().any(|it| bytes.starts_with(it)),
    }
}

/// A head that has come whole, without the empty line at its end, and its bytes with that.
fn head(input: &[u8], looked: &mut usize) -> Result<Option<(usize, String)>, NoResponse> {
    let window = &input[..input.len().min(RESPONSE_BYTES_MAX)];
    if window
        .first()
        .is_some_and(|first| !first.is_ascii_uppercase())
    {
        return Err(NoResponse("no status line"));
    }
    let Some((end, empty)) = end_of_head(window, *looked) else {
        // What may be its end has two bytes more at the most.
        *looked = window.len().saturating_sub(2);
        return match input.len() >= RESPONSE_BYTES_MAX {
            true => Err(NoResponse("a head that is too long")),
            false => Ok(None),
        };
    };
    *looked = end - 1;
    let text = String::from_utf8_lossy(&window[..end]).into_owned();
    Ok(Some((end + empty, text)))
}

/// Where the last line of a head ends, not before `from`, and the bytes of the empty line behind
/// it. LF alone ends lines too, as RFC 2326, section 4, asks of receivers.
fn end_of_head(window: &[u8], from: usize) -> Option<(usize, usize)> {
    let rest = window.get(from..)?.iter().enumerate();
    let mut ends = rest.filter(|(_, byte)| **byte == b'\n');
    ends.find_map(|(at, _)| {
        let end = from + at + 1;
        match &window[end..] {
            [b'\n', ..] => Some((end, 1)),
            [b'\r', b'\n', ..] => Some((end, 2)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHANNELS: &[Channels] = &[Channels { rtp: 0, rtcp: 1 }];

    fn all_in_pieces<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
        channels: &[Channels],
    ) -> Result<Vec<Incoming>, NoResponse> {
        let (mut input, mut all, mut looked) = (Vec::new(), Vec::new(), Looked::default());
        for piece in pieces {
            input.extend_from_slice(piece);
            while let Some(incoming) = take_incoming(&mut input, channels, &mut looked)? {
                all.push(incoming);
            }
        }
        Ok(all)
    }

    /// Of bytes that come at once, and the same of each by itself.
    fn all_of(bytes: &[u8], channels: &[Channels]) -> Result<Vec<Incoming>, NoResponse> {
        let all = all_in_pieces([bytes], channels);
        assert_eq!(all_in_pieces(bytes.chunks(1), channels), all);
        all
    }

    fn all(bytes: &[u8]) -> Result<Vec<Incoming>, NoResponse> {
        all_of(bytes, &[])
    }

    #[test]
    fn responses_and_frames_are_told_apart() {
        let text = "RTSP/1.0 401 Unauthorized\r\nCSeq: 1\r\nWWW-Authenticate: a\r\n\
            www-authenticate:b\r\nnonsense\r\n\r\n$\x02\0\x03abc\r\n\
            OPTIONS * RTSP/1.0\r\nCSeq: 9\r\n\r\n\
            RTSP/1.0 200\r\nContent-Length: 2\r\n\r\nhi$\0\0\x05x";
        // As a VuStream 150 ends lines, and mixed ones.
        for text in [
            text.to_owned(),
            text.replace("\r\n", "\n"),
            text.replace("\r\n\r\n", "\r\n\n"),
            text.replace("\r\n\r\n", "\n\r\n"),
        ] {
            for cut in 0..text.len() {
                let (one, other) = text.as_bytes().split_at(cut);
                check_apart(&all_in_pieces([one, other], &[]).unwrap());
            }
        }
    }

    fn check_apart(all: &[Incoming]) {
        let [
            Incoming::Response(first),
            frame,
            Incoming::Request(request),
            Incoming::Response(last),
        ] = all
        else {
            panic!("{all:?}");
        };
        assert_eq!((first.status, first.reason.as_str()), (401, "Unauthorized"));
        assert!(first.headers_named("WWW-Authenticate").eq(["a", "b"]));
        let packet = b"abc".to_vec();
        assert_eq!(*frame, Incoming::Frame(Frame { channel: 2, packet }));
        assert_eq!(
            (&*request.method, request.header("cseq")),
            ("OPTIONS", Some("9"))
        );
        assert_eq!((last.status, &last.body[..]), (200, &b"hi"[..]));
    }

    #[test]
    fn nonsense_and_bounds_are_refused() {
        let long = vec![b'A'; RESPONSE_BYTES_MAX];
        let headers = |count| format!("RTSP/1.0 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
        assert!(all(&long[1..]).unwrap().is_empty());
        for bytes in [
            &long[..],
            b"\0\0\0\0",
            b"http",
            b"RTSP/1.0 x\r\n\r\n",
            b"RTSP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"RTSP/1.0 200 OK\r\nContent-Length: 65537\r\n\r\n",
            headers(RESPONSE_HEADERS_MAX + 1).as_bytes(),
        ] {
            assert!(all(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(
            all(headers(RESPONSE_HEADERS_MAX).as_bytes()).unwrap().len(),
            1
        );
    }

    /// As a Canon VB-H47 sends them.
    #[test]
    fn bytes_between_frames_are_passed_over() {
        const FRAME: &[u8] = b"$\x01\0\x02\x80\xc9";
        const REQUEST: &[u8] = b"OPTIONS * RTSP/1.0\r\n\r\n";
        for strays in [
            &b"\0"[..],
            b"A",
            b"RTS",
            b"_A ",
            b"HTTP/1.1 200 OK\r\n",
            // Of a channel that is not set up, of a packet that is none, and cut short.
            b"\x01$\x02\0\x02\x80\xc9",
            b"\x01$\x01\0\x02\x40\xc9",
            b"\x01$\x01\0",
        ] {
            let bytes = [FRAME, strays, FRAME, REQUEST].concat();
            let found = all_of(&bytes, CHANNELS).unwrap();
            let [
                Incoming::Frame(first),
                Incoming::Stray(bytes),
                Incoming::Frame(second),
                Incoming::Request(_),
            ] = &found[..]
            else {
                panic!("{:?}: {found:?}", String::from_utf8_lossy(strays));
            };
            assert_eq!((first, &first.packet[..]), (second, &FRAME[4..]));
            assert_eq!(*bytes, strays.len());
        }
        let found = all_of(b"\xff\xfeRTSP/1.0 200 OK\r\n\r\n", CHANNELS).unwrap();
        let is_found = matches!(&found[..], [Incoming::Stray(2), Incoming::Response(_)]);
        assert!(is_found, "{found:?}");
        // Until a track is set up it is another protocol.
        assert!(all(&[&b"\0"[..], FRAME].concat()).is_err());
    }

    #[test]
    fn strays_have_a_bound() {
        let (mut input, mut looked) = (vec![0; RESPONSE_BYTES_MAX - 1], Looked::default());
        assert_eq!(take_incoming(&mut input, CHANNELS, &mut looked), Ok(None));
        input.push(0);
        assert!(take_incoming(&mut input, CHANNELS, &mut looked).is_err());
        let lengths = BEGINNINGS.iter().map(|it| it.len());
        assert_eq!(lengths.max(), Some(BEGINNING_BYTES_MAX));
    }

    proptest! {
        #[test]
        fn no_server_is_too_odd(
            bytes in "(RTSP/1.0 |200|\r\n|\\$|Content-Length: |[0-9]|\\PC){0,40}",
        ) {
            for channels in [&[][..], CHANNELS] {
                let _any = all_of(bytes.as_bytes(), channels);
            }
        }
    }
}
