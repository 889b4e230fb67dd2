//! From bytes to requests and the frames between them, however the bytes were cut on their way.
//!
//! The decoder looks at every byte once, in order, and decides at that byte. So what it yields
//! depends on the bytes alone, never on how many of them came together. It holds at most one
//! request or frame within its [`Limits`], and what the last [`Decoder::push`] brought on top. It
//! does not judge what a request asks for (see [`super::Intent`]), nor whose a frame's channel is.

use rtsp_types::StatusCode;

use super::Reply;
use super::interleaved::{FRAME_MARK, FRAME_PREFIX_BYTES, Frame};
use super::request::{ClientAnswer, Headed, Malformed, Request, cseq_in, parse_head};
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
    /// An answer to what the server has asked of its client.
    Answer(ClientAnswer),
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

/// A head that has come whole, with so many bytes of body.
enum Head {
    Request(Request, usize),
    Answer(ClientAnswer, usize),
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
    /// In one that is not kept, or in the body of an answer.
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
                    self.phase = Phase::Start;
                    if bytes_left > bytes {
                        let bytes_left = bytes_left - bytes;
                        self.phase = Phase::Skip { bytes_left };
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
                    Ok(Some(Head::Answer(answer, bytes_left))) => {
                        self.phase = Phase::Skip { bytes_left };
                        return Some(Ok(Event::Answer(answer)));
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
            let (headed, body_bytes) = parse_head(&self.input[..self.scanned])?;
            if body_bytes > self.limits.body_bytes_max {
                let body_bytes_max = self.limits.body_bytes_max;
                return Err(Malformed::BodyTooLong { body_bytes_max });
            }
            self.input.drain(..self.scanned);
            return Ok(Some(match headed {
                Headed::Request(request) => Head::Request(request, body_bytes),
                Headed::Answer(answer) => Head::Answer(answer, body_bytes),
            }));
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
mod tests;
