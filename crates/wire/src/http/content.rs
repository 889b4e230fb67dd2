//! The content that a request carries: read, counted, and thrown away or given to who stores it.
//!
//! Few methods take any, but a client may send some with all (RFC 9110, section 9.3.1), and where
//! it ends is where the next request begins. So its framing is read as strictly as a head's.

use super::Refusal;
use super::Status;
use super::head::Content;

/// Bytes of a chunk's size line, with its extensions, or of a line of trailers.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;

/// Where in the content the connection is.
#[derive(Clone, Debug)]
pub struct Discard {
    state: State,
    /// Of all lines and data that may still come.
    left_bytes: u64,
    line: Vec<u8>,
}

/// What became of some bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Discarded {
    /// So many of them were content.
    pub bytes: usize,
    /// Whether that was all of it.
    pub is_done: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Length(u64),
    Size,
    Data(u64),
    DataEnd,
    Trailer,
    Done,
}

impl Discard {
    /// For content of this framing, of at most `content_bytes_max` bytes, framing included.
    ///
    /// # Errors
    ///
    /// 413 if it says itself that it is longer.
    pub fn new(content: Content, content_bytes_max: u64) -> Result<Self, Refusal> {
        let state = match content {
            Content::None | Content::Length(0) => State::Done,
            Content::Length(bytes) if bytes > content_bytes_max => return Err(TOO_LARGE),
            Content::Length(bytes) => State::Length(bytes),
            Content::Chunked => State::Size,
        };
        Ok(Self {
            state,
            left_bytes: content_bytes_max,
            line: Vec::new(),
        })
    }

    /// Takes what belongs to the content from the front of `bytes`.
    ///
    /// # Errors
    ///
    /// 400 for chunks that are none, 413 for more than was allowed; the connection cannot go on.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Discarded, Refusal> {
        self.push_to(bytes, |_| {})
    }

    /// The same, and gives what is content itself, and no framing, to `data`.
    ///
    /// # Errors
    ///
    /// As [`Self::push`].
    pub fn push_to(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
    ) -> Result<Discarded, Refusal> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            let taken = match self.state {
                State::Length(left) | State::Data(left) => {
                    let some = left.min((bytes.len() - at) as u64);
                    let end = at + usize::try_from(some).expect("no more than there are");
                    data(&bytes[at..end]);
                    self.state = match self.state {
                        State::Length(_) if some == left => State::Done,
                        State::Length(_) => State::Length(left - some),
                        _ if some == left => State::DataEnd,
                        _ => State::Data(left - some),
                    };
                    some
                }
                _ => {
                    self.take_byte(bytes[at])?;
                    1
                }
            };
            self.left_bytes = self.left_bytes.checked_sub(taken).ok_or(TOO_LARGE)?;
            at += usize::try_from(taken).expect("no more than there are");
        }
        let is_done = self.state == State::Done;
        Ok(Discarded { bytes: at, is_done })
    }

    /// One byte of a line.
    fn take_byte(&mut self, byte: u8) -> Result<(), Refusal> {
        if byte != b'\n' {
            self.line.push(byte);
            return match self.line.len() > CHUNK_LINE_BYTES_MAX + 1 {
                true => Err(BAD_CHUNK),
                false => Ok(()),
            };
        }
        if self.line.pop() != Some(b'\r') || self.line.contains(&b'\r') {
            return Err(BAD_CHUNK);
        }
        self.state = match self.state {
            State::Size => match size(&self.line).ok_or(BAD_CHUNK)? {
                0 => State::Trailer,
                bytes if bytes > self.left_bytes => return Err(TOO_LARGE),
                bytes => State::Data(bytes),
            },
            State::DataEnd if self.line.is_empty() => State::Size,
            State::DataEnd => return Err(BAD_CHUNK),
            _ if self.line.is_empty() => State::Done,
            other => other,
        };
        self.line.clear();
        Ok(())
    }
}

/// Hexadecimal digits and nothing else before the extensions.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|&b| b == b';').next()?;
    let digits = digits.trim_ascii_end();
    let sound = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| sound)?;
    u64::from_str_radix(text, 16).ok()
}

const TOO_LARGE: Refusal = Refusal {
    status: Status::ContentTooLarge,
    note: "so much is not taken here; send less",
};

const BAD_CHUNK: Refusal = Refusal {
    status: Status::BadRequest,
    note: "not chunked as RFC 9112, section 7.1 says",
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn discard(content: Content, bytes: &[u8]) -> Result<Discarded, Status> {
        let discard = Discard::new(content, 1000);
        let discarded = discard.and_then(|mut discard| discard.push(bytes));
        discarded.map_err(|refusal| refusal.status)
    }

    #[test]
    fn what_follows_the_content_is_left() {
        let done = |bytes| {
            Ok(Discarded {
                bytes,
                is_done: true,
            })
        };
        assert_eq!(discard(Content::None, b"GET"), done(0));
        assert_eq!(discard(Content::Length(3), b"abcGET"), done(3));
        assert_eq!(
            discard(Content::Chunked, b"3\r\nabc\r\n0\r\n\r\nGET"),
            done(13)
        );
        assert_eq!(
            discard(Content::Chunked, b"3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\nGET"),
            done(23)
        );
        let begun = discard(Content::Length(5), b"abc").unwrap();
        assert_eq!((begun.bytes, begun.is_done), (3, false));
    }

    #[test]
    fn who_stores_it_gets_the_content_without_its_framing() {
        for bytes in [
            &b"3\r\nabc\r\n2;x\r\nde\r\n0\r\nA: b\r\n\r\nGET"[..],
            b"abcdeGET",
        ] {
            let content = match bytes.len() {
                8 => Content::Length(5),
                _ => Content::Chunked,
            };
            let (mut discard, mut stored) = (Discard::new(content, 1000).unwrap(), Vec::new());
            let is_done = bytes.chunks(4).any(|piece| {
                let discarded = discard.push_to(piece, |data| stored.extend(data));
                discarded.unwrap().is_done
            });
            assert_eq!((&*stored, is_done), (&b"abcde"[..], true));
        }
    }

    #[test]
    fn chunks_that_two_readers_could_read_in_two_ways_are_refused() {
        let bad: [&[u8]; 9] = [
            b"3\nabc\r\n0\r\n\r\n",
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"+3\r\nabc\r\n",
            b"0x3\r\nabc\r\n",
            b"\r\n",
            b" 3\r\nabc\r\n",
            b"3\rx\r\nabc",
            b"ffffffffffffffff\r\n",
            b"3\r\nabc\n0\r\n\r\n",
        ];
        for bytes in bad {
            assert_eq!(
                discard(Content::Chunked, bytes),
                Err(Status::BadRequest),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn content_and_lines_have_their_bounds() {
        let large = Err(Status::ContentTooLarge);
        assert!(discard(Content::Length(1000), b"").is_ok());
        assert_eq!(discard(Content::Length(1001), b""), large);
        assert_eq!(discard(Content::Chunked, b"3e9\r\n"), large);
        let many = b"1\r\na\r\n".repeat(200);
        assert_eq!(discard(Content::Chunked, &many), large);
        let line = |bytes: usize| [b"0;", &vec![b'x'; bytes - 2][..], b"\r\n\r\n"].concat();
        assert!(
            discard(Content::Chunked, &line(CHUNK_LINE_BYTES_MAX))
                .unwrap()
                .is_done
        );
        let long = discard(Content::Chunked, &line(CHUNK_LINE_BYTES_MAX + 1));
        assert_eq!(long, Err(Status::BadRequest));
    }

    proptest! {
        #[test]
        fn however_it_is_cut_it_ends_at_the_same_byte(chunks in prop::collection::vec(1_usize..40,
            0..8), cut in 1_usize..9) {
            let mut bytes = Vec::new();
            for chunk in chunks {
                bytes.extend(format!("{chunk:x}\r\n").bytes());
                bytes.extend(vec![b'0'; chunk]);
                bytes.extend(*b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            let content_bytes = bytes.len();
            bytes.extend(b"GET / HTTP/1.1\r\n");
            let mut discard = Discard::new(Content::Chunked, 1000).unwrap();
            let mut taken = 0;
            for piece in bytes.chunks(cut) {
                let discarded = discard.push(piece).unwrap();
                taken += discarded.bytes;
                if discarded.is_done {
                    break;
                }
            }
            prop_assert_eq!(taken, content_bytes);
        }

        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(discarded) = discard(Content::Chunked, &bytes) {
                prop_assert!(discarded.bytes <= bytes.len());
            }
        }
    }
}
