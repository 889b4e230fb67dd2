//! From bytes to requests and the frames between them, however the bytes were cut on their way.
//!
//! The decoder looks at every byte once, in order, and decides at that byte. So what it yields
//! depends on the bytes alone, never on how many of them came together. It holds at most one
//! request or frame within its [`Limits`], and what the last [`Decoder::push`] brought on top. It
//! does not judge what a request asks for (see [`super::Intent`]), nor whose a frame's channel is.

use rtsp_types::StatusCode;

use super::Reply;
use super::interleaved::{FRAME_MARK, FRAME_PREFIX_BYTES, Frame};
use super::request::{Malformed, Request, cseq_in, parse_head};
use super::tunnel::TunnelSide;

/// Cuts a connection's bytes into requests and frames.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    input: Vec<u8>,
    /// Bytes of `input` that have been looked at; all of them belong to the current head.
    scanned: usize,
    line_start: usize,
    lines: usize,
    phase: Phase,
}

/// What has come whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A request.
    Request(Request),
    /// A packet between requests.
    Frame(Frame),
    /// The head of one side of a tunnel over HTTP. What follows is no request of this connection:
    /// [`Decoder::into_rest`] has it.
    Tunnel(TunnelSide),
}

/// The bounds on one request or frame.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the request line and the headers, with the empty line at their end.
    pub head_bytes_max: usize,
    /// Header lines.
    pub headers_max: usize,
    /// Bytes of the body.
    pub body_bytes_max: usize,
    /// Bytes of the packet in a frame. Of a longer one nothing is kept and nothing is said: a frame
    /// tells its length, so passing it over loses nothing else, and closing would lose a session
    /// over a stray packet. 0 where no channel was set up.
    pub frame_bytes_max: usize,
}

/// A connection that cannot go on, because where its next request starts is not known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refused {
    /// What was wrong.
    pub malformed: Malformed,
    /// The number of the request, if its head had come that far.
    pub cseq: Option<u32>,
}

/// A head that has come whole: a request with so many bytes of body, or something else.
enum Head {
    Request(Request, usize),
    Tunnel(TunnelSide),
}

#[derive(Debug)]
enum Phase {
    /// Between requests.
    Start,
    Head,
    Body {
        request: Request,
        body_bytes: usize,
    },
    /// In a frame.
    Frame {
        channel: u8,
        packet_bytes: usize,
    },
    /// In one that is not kept.
    Skip {
        bytes_left: usize,
    },
    Refused,
}

impl Decoder {
    /// A decoder for a new connection.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            input: Vec::new(),
            scanned: 0,
            line_start: 0,
            lines: 0,
            phase: Phase::Start,
        }
    }

    /// Takes bytes from the connection. Call [`Self::next_event`] until it has no more before the
    /// next push, or the input grows.
    pub fn push(&mut self, bytes: &[u8]) {
        if !matches!(self.phase, Phase::Refused) {
            self.input.extend_from_slice(bytes);
        }
    }

    /// The next whole request or frame. After a refusal there is never another one.
    ///
    /// # Errors
    ///
    /// [`Refused`]: answer with [`Refused::reply`], then close.
    pub fn next_event(&mut self) -> Option<Result<Event, Refused>> {
        loop {
            match std::mem::replace(&mut self.phase, Phase::Refused) {
                Phase::Start => self.phase = self.start()?,
                Phase::Frame {
                    channel,
                    packet_bytes,
                } => {
                    if self.input.len() < packet_bytes {
                        self.phase = Phase::Frame {
                            channel,
                            packet_bytes,
                        };
                        return None;
                    }
                    let packet = self.take(packet_bytes);
                    return Some(Ok(Event::Frame(Frame { channel, packet })));
                }
                Phase::Skip { bytes_left } => {
                    let bytes = bytes_left.min(self.input.len());
                    self.input.drain(..bytes);
                    let bytes_left = bytes_left - bytes;
                    let skipping = bytes_left > 0;
                    self.phase = if skipping {
                        Phase::Skip { bytes_left }
                    } else {
                        Phase::Start
                    };
                    if skipping {
                        return None;
                    }
                }
                Phase::Head => match self.head() {
                    Ok(Some(Head::Request(request, body_bytes))) => {
                        self.phase = Phase::Body {
                            request,
                            body_bytes,
                        };
                    }
                    Ok(Some(Head::Tunnel(side))) => return Some(Ok(Event::Tunnel(side))),
                    Ok(None) => {
                        self.phase = Phase::Head;
                        return None;
                    }
                    Err(malformed) => {
                        let cseq = cseq_in(&self.input[..self.scanned]);
                        self.input = Vec::new();
                        return Some(Err(Refused { malformed, cseq }));
                    }
                },
                Phase::Body {
                    mut request,
                    body_bytes,
                } => {
                    if self.input.len() < body_bytes {
                        self.phase = Phase::Body {
                            request,
                            body_bytes,
                        };
                        return None;
                    }
                    request.body = self.take(body_bytes);
                    return Some(Ok(Event::Request(request)));
                }
                Phase::Refused => return None,
            }
        }
    }

    /// The end of a request or frame, so many bytes; what follows is another.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let taken = self.input.drain(..bytes).collect();
        if self.input.is_empty() {
            // Whoever watches says nothing for long, and keeps no memory for it.
            self.input = Vec::new();
        }
        self.phase = Phase::Start;
        taken
    }

    /// What has come and belongs to no event.
    #[must_use]
    pub fn into_rest(self) -> Vec<u8> {
        self.input
    }

    /// Whether a request or frame has begun and is not yet whole, so that its time runs.
    #[must_use]
    pub fn is_mid_request(&self) -> bool {
        !matches!(self.phase, Phase::Start | Phase::Refused) || !self.input.is_empty()
    }

    /// Skips empty lines, which may stand between requests (RFC 2326, section 4), and sees what
    /// comes next.
    fn start(&mut self) -> Option<Phase> {
        let blank = self
            .input
            .iter()
            .take_while(|&&b| b == b'\r' || b == b'\n')
            .count();
        self.input.drain(..blank);
        let prefix = self.input.first_chunk::<FRAME_PREFIX_BYTES>();
        let phase = match (self.input.first(), prefix) {
            (Some(&FRAME_MARK), Some(&[_, channel, high, low])) => {
                let packet_bytes = usize::from(u16::from_be_bytes([high, low]));
                self.input.drain(..FRAME_PREFIX_BYTES);
                match packet_bytes > self.limits.frame_bytes_max {
                    true => Phase::Skip {
                        bytes_left: packet_bytes,
                    },
                    false => Phase::Frame {
                        channel,
                        packet_bytes,
                    },
                }
            }
            (Some(&FRAME_MARK) | None, _) => {
                self.phase = Phase::Start;
                return None;
            }
            (Some(_), _) => Phase::Head,
        };
        (self.scanned, self.line_start, self.lines) = (0, 0, 0);
        Some(phase)
    }

    /// Looks at the bytes that have not been looked at, to the end of the head at the most.
    fn head(&mut self) -> Result<Option<Head>, Malformed> {
        while let Some(&byte) = self.input.get(self.scanned) {
            self.scanned += 1;
            if self.scanned > self.limits.head_bytes_max {
                let head_bytes_max = self.limits.head_bytes_max;
                return Err(match self.lines {
                    0 => Malformed::LineTooLong { head_bytes_max },
                    _ => Malformed::HeadTooLong { head_bytes_max },
                });
            }
            // A CR may only stand before an LF. Taking it as a line end by itself, as RFC 2326
            // advises, would make the end of a request depend on a byte that has not come.
            let after_cr = self.scanned >= 2 && self.input[self.scanned - 2] == b'\r';
            if after_cr && byte != b'\n' {
                return Err(Malformed::Control { byte: b'\r' });
            }
            match byte {
                b'\n' => {}
                b'\t' | b'\r' | b' '..=b'~' | 0x80.. => continue,
                _ => return Err(Malformed::Control { byte }),
            }
            let line_bytes = self.scanned - self.line_start - 1 - usize::from(after_cr);
            self.line_start = self.scanned;
            if line_bytes > 0 {
                self.lines += 1;
                if self.lines > self.limits.headers_max + 1 {
                    return Err(Malformed::TooManyHeaders {
                        headers_max: self.limits.headers_max,
                    });
                }
                continue;
            }
            if let Some(side) = TunnelSide::of(&self.input[..self.scanned]) {
                self.input.drain(..self.scanned);
                return Ok(Some(Head::Tunnel(side)));
            }
            let (request, body_bytes) = parse_head(&self.input[..self.scanned])?;
            if body_bytes > self.limits.body_bytes_max {
                let body_bytes_max = self.limits.body_bytes_max;
                return Err(Malformed::BodyTooLong { body_bytes_max });
            }
            self.input.drain(..self.scanned);
            return Ok(Some(Head::Request(request, body_bytes)));
        }
        Ok(None)
    }
}

impl Refused {
    /// The last answer on this connection.
    #[must_use]
    pub fn reply(&self) -> Reply {
        let status = match self.malformed {
            Malformed::LineTooLong { .. } => StatusCode::RequestURITooLong,
            Malformed::BodyTooLong { .. } => StatusCode::RequestMessageBodyTooLarge,
            _ => StatusCode::BadRequest,
        };
        Reply::refusal(status, &self.malformed.to_string())
            .with(rtsp_types::headers::CONNECTION, "close")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rtsp_types::Method;

    use super::*;

    #[test]
    fn a_tunnel_begins_with_a_head_of_http() {
        let mut decoder = Decoder::new(LIMITS);
        decoder.push(b"POST /a HTTP/1.0\r\nx-sessioncookie: c\r\n\r\nT1BU");
        let Some(Ok(Event::Tunnel(side))) = decoder.next_event() else {
            panic!("it has come whole");
        };
        assert!(side.is_post);
        // What follows is another's to understand.
        assert_eq!(decoder.next_event(), None);
        assert_eq!(decoder.into_rest(), b"T1BU");
    }

    const LIMITS: Limits = Limits {
        head_bytes_max: 256,
        headers_max: 4,
        body_bytes_max: 16,
        frame_bytes_max: 12,
    };

    /// Everything that `bytes` yield, fed in pieces of these sizes, over and over.
    fn decode(bytes: &[u8], pieces: &[usize]) -> Vec<Result<Event, Refused>> {
        let mut decoder = Decoder::new(LIMITS);
        let mut out = Vec::new();
        let mut rest = bytes;
        for &piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at(piece.clamp(1, rest.len().max(1)).min(rest.len()));
            decoder.push(now);
            while let Some(event) = decoder.next_event() {
                out.push(event);
            }
            let held_max = LIMITS.head_bytes_max + LIMITS.body_bytes_max;
            assert!(decoder.input.len() <= held_max);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        out
    }

    fn one(bytes: &[u8]) -> Result<Request, Refused> {
        let mut events = decode(bytes, &[1]);
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0).map(|event| match event {
            Event::Request(request) => request,
            other => panic!("{other:?}"),
        })
    }

    /// What is in a frame, or the number of a request.
    fn seen(event: Result<Event, Refused>) -> (Option<(u8, Vec<u8>)>, Option<u32>) {
        match event.unwrap() {
            Event::Request(request) => (None, request.cseq()),
            Event::Frame(Frame { channel, packet }) => (Some((channel, packet)), None),
            Event::Tunnel(side) => panic!("{side:?}"),
        }
    }

    fn malformed(bytes: &[u8]) -> Malformed {
        one(bytes).unwrap_err().malformed
    }

    #[test]
    fn a_request_is_read() {
        let request = one(
            b"SETUP rtsp://h/a/track1 RTSP/1.0\r\ncseq:  7 \r\nTransport: a,\r\n b\r\n\
            Content-Length: 3\r\n\r\nxyz",
        )
        .unwrap();
        assert_eq!(request.method, Method::Setup);
        assert_eq!(request.uri, "rtsp://h/a/track1");
        assert_eq!(request.version, (1, 0));
        assert_eq!(request.cseq(), Some(7));
        assert_eq!(request.header("TRANSPORT"), Some("a, b"));
        assert_eq!(request.body, b"xyz");
    }

    #[test]
    fn requests_and_frames_are_found_between_each_other() {
        let bytes = b"\r\n\nOPTIONS * RTSP/1.0\nCSeq: 1\n\n$\x01\x00\x05$A\r\n\0\
            PLAY /a RTSP/1.0\r\nCSeq: 2\r\n\r\n$\xff\x00\x00PAUSE /a RTSP/1.0\r\nCSeq: 3\r\n\r\n";
        for pieces in [1, 2, 3, 7, 1000] {
            let events = decode(bytes, &[pieces]).into_iter().map(seen);
            let expected = [
                (None, Some(1)),
                (Some((1, b"$A\r\n\0".to_vec())), None),
                (None, Some(2)),
                (Some((255, Vec::new())), None),
                (None, Some(3)),
            ];
            assert_eq!(events.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn frames_are_kept_to_their_limit_and_passed_over_beyond() {
        let request = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";
        let frame = |packet_bytes: u16| {
            let mut frame = vec![b'$', 0];
            frame.extend(packet_bytes.to_be_bytes());
            frame.resize(4 + usize::from(packet_bytes), b'$');
            frame
        };
        for (packet_bytes, is_kept) in [(12, true), (13, false), (u16::MAX, false)] {
            let bytes = [frame(packet_bytes).as_slice(), request].concat();
            for pieces in [1, 11, 4096, 70_000] {
                let events: Vec<_> = decode(&bytes, &[pieces]).into_iter().map(seen).collect();
                assert_eq!(events.len(), 1 + usize::from(is_kept), "{packet_bytes}");
                assert_eq!(events.last(), Some(&(None, Some(1))));
            }
        }
        // However long it is, half of one is half of something.
        let mut decoder = Decoder::new(LIMITS);
        decoder.push(&frame(u16::MAX)[..60_000]);
        assert_eq!(decoder.next_event(), None);
        assert!(decoder.is_mid_request() && decoder.input.is_empty());
    }

    #[test]
    fn half_a_request_is_known_as_such() {
        let mut decoder = Decoder::new(LIMITS);
        assert!(!decoder.is_mid_request());
        for bytes in [
            &b"\r\nOPT"[..],
            b"IONS * RTSP/1.0\r\nContent-Length: 2\r\n\r\n",
            b"x",
        ] {
            decoder.push(bytes);
            assert_eq!(decoder.next_event(), None);
            assert!(decoder.is_mid_request());
        }
        decoder.push(b"y\r\n");
        assert!(decoder.next_event().unwrap().is_ok());
        assert_eq!(decoder.next_event(), None);
        assert!(!decoder.is_mid_request());
    }

    #[test]
    fn the_head_may_be_as_long_as_its_limit_and_no_longer() {
        let head = |bytes: usize| {
            let frame = "OPTIONS * RTSP/1.0\r\nCSeq: 5\r\nX: \r\n\r\n".len();
            format!(
                "OPTIONS * RTSP/1.0\r\nCSeq: 5\r\nX: {}\r\n\r\n",
                "x".repeat(bytes - frame)
            )
        };
        assert!(one(head(LIMITS.head_bytes_max).as_bytes()).is_ok());
        let refused = one(head(LIMITS.head_bytes_max + 1).as_bytes()).unwrap_err();
        assert_eq!(
            refused.malformed,
            Malformed::HeadTooLong {
                head_bytes_max: 256
            }
        );
        assert_eq!(refused.cseq, Some(5));
        assert_eq!(refused.reply().status(), 400);
        let long = one(&[b'x'; 257]).unwrap_err();
        assert_eq!(
            long.malformed,
            Malformed::LineTooLong {
                head_bytes_max: 256
            }
        );
        assert_eq!(long.reply().status(), 414);
        assert_eq!(decode(&[b'x'; 256], &[1]), []);
    }

    #[test]
    fn headers_are_counted_to_their_limit() {
        let head = |headers| format!("OPTIONS * RTSP/1.0\r\n{}\r\n", "A: b\r\n".repeat(headers));
        assert_eq!(
            one(head(LIMITS.headers_max).as_bytes())
                .unwrap()
                .headers
                .len(),
            4
        );
        let too_many = malformed(head(LIMITS.headers_max + 1).as_bytes());
        assert_eq!(too_many, Malformed::TooManyHeaders { headers_max: 4 });
    }

    #[test]
    fn bodies_are_taken_to_their_limit() {
        let with = |length: &str, body: usize| {
            let head = format!("OPTIONS * RTSP/1.0\r\nCSeq: 9\r\nContent-Length: {length}\r\n\r\n");
            [head.into_bytes(), vec![b'b'; body]].concat()
        };
        assert_eq!(one(&with("16", 16)).unwrap().body.len(), 16);
        let refused = one(&with("17", 0)).unwrap_err();
        assert_eq!((refused.reply().status(), refused.cseq), (413, Some(9)));
        let huge = malformed(&with("99999999999999999999999999", 0));
        assert_eq!(huge, Malformed::BodyTooLong { body_bytes_max: 16 });
        for bad in ["-1", "+1", "1x", "", "0x1", "1, 1"] {
            assert_eq!(malformed(&with(bad, 0)), Malformed::ContentLength, "{bad}");
        }
        let two = b"OPTIONS * RTSP/1.0\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(malformed(two), Malformed::ContentLength);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for line in [
            "OPTIONS *",
            "OPTIONS * RTSP/1.0 x",
            "OPTIONS * HTTP/1.1",
            "OPTIONS * RTSP/1",
            "OPTIONS * RTSP/1.x",
            "OPTIONS * RTSP/+1.0",
            "RTSP/1.0 200 OK",
            "O(S * RTSP/1.0",
        ] {
            assert_eq!(
                malformed(format!("{line}\r\n\r\n").as_bytes()),
                Malformed::RequestLine
            );
        }
        for header in [
            "no colon",
            ": no name",
            "sp ace: x",
            "X : y",
            " first line goes on",
        ] {
            let head = format!("OPTIONS * RTSP/1.0\r\n{header}\r\n\r\n");
            assert_eq!(malformed(head.as_bytes()), Malformed::Header, "{header}");
        }
        assert_eq!(
            malformed(b"\x16\x03\x01"),
            Malformed::Control { byte: 0x16 }
        );
        assert_eq!(malformed(b"OPTIONS\r*"), Malformed::Control { byte: b'\r' });
        assert_eq!(
            malformed(b"OPTIONS /\xff RTSP/1.0\r\n\r\n"),
            Malformed::NotUtf8
        );
    }

    #[test]
    fn nothing_follows_a_refusal() {
        let mut decoder = Decoder::new(LIMITS);
        decoder.push(b"\0OPTIONS * RTSP/1.0\r\n\r\n");
        assert!(decoder.next_event().unwrap().is_err());
        decoder.push(b"OPTIONS * RTSP/1.0\r\n\r\n");
        assert_eq!(decoder.next_event(), None);
        assert!(!decoder.is_mid_request());
    }

    /// Bytes that come near to requests more often than noise would.
    fn nearly_requests() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            3 => Just(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n".to_vec()),
            1 => Just(b"PLAY /a RTSP/1.0\nContent-Length: 4\n\nbody".to_vec()),
            1 => Just(b"$\x00\x00\x03abc".to_vec()),
            1 => Just(b"$\x07\x00\x0d0123456789abc".to_vec()),
            1 => Just(b"$\x01\x01".to_vec()),
            1 => Just(b"\r\n".to_vec()),
            1 => Just(b"A: b\r\n".to_vec()),
            1 => Just(b"Content-Length: 40\r\n".to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..40),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn splits_do_not_matter(
            bytes in nearly_requests(),
            pieces in prop::collection::vec(1_usize..60, 1..20),
        ) {
            prop_assume!(bytes.len() <= 256);
            prop_assert_eq!(decode(&bytes, &[1]), decode(&bytes, &pieces));
        }

        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            decode(&bytes, &[1]);
        }
    }
}
