//! What part of a file a PUT carries: all of it, or by Content-Range what comes next of one that
//! was broken off (RFC 9110, section 14.5).

use super::head::Content;
use super::{Refusal, Request, Status};

/// What the content of a PUT is of the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StoredPart {
    /// Where it begins.
    pub start: u64,
    /// Where it ends, if that is said.
    pub end: Option<u64>,
    /// How long the file is to be, if that is said.
    pub total: Option<u64>,
}

impl StoredPart {
    /// What a request says.
    ///
    /// # Errors
    ///
    /// 400 for a part that is none or has another length than the content, 411 if nothing says
    /// where the content ends, 415 for content that is compressed.
    pub fn of(request: &Request<'_>) -> Result<Self, Refusal> {
        let encoding = request.content_encoding.as_deref();
        if encoding.is_some_and(|it| !it.eq_ignore_ascii_case("identity")) {
            return Err(Refusal {
                status: Status::UnsupportedMediaType,
                note: "files are stored as they come; send it without Content-Encoding",
            });
        }
        let bytes = match request.content {
            Content::None => {
                return Err(Refusal {
                    status: Status::LengthRequired,
                    note: "say how long the content is (Content-Length), or send it in chunks",
                });
            }
            Content::Length(bytes) => Some(bytes),
            Content::Chunked => None,
        };
        let Some(value) = request.content_range else {
            return Ok(Self {
                start: 0,
                end: bytes,
                total: bytes,
            });
        };
        let part = parse(value).ok_or(BAD_RANGE)?;
        let length = part.end.map(|end| end - part.start);
        match bytes {
            Some(bytes) if length != Some(bytes) => Err(Refusal {
                status: Status::BadRequest,
                note: "Content-Range and Content-Length differ",
            }),
            _ => Ok(part),
        }
    }

    /// Whether nothing of the file is missing behind it.
    #[must_use]
    pub fn is_last(self) -> bool {
        self.end == self.total
    }
}

/// `bytes FIRST-LAST/TOTAL`.
fn parse(value: &str) -> Option<StoredPart> {
    let (unit, rest) = value.trim().split_once(' ')?;
    let (range, total) = rest.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total) = (number(first)?, number(last)?, number(total)?);
    let is_sound = unit.eq_ignore_ascii_case("bytes") && first <= last && last < total;
    is_sound.then(|| StoredPart {
        start: first,
        end: Some(last + 1),
        total: Some(total),
    })
}

fn number(digits: &str) -> Option<u64> {
    let sound = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| sound)
}

const BAD_RANGE: Refusal = Refusal {
    status: Status::BadRequest,
    note: "write Content-Range: bytes FIRST-LAST/TOTAL",
};

#[cfg(test)]
mod tests {
    use super::*;

    fn part(lines: &str) -> Result<StoredPart, Status> {
        let head = format!("PUT /a HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
        let request = Request::parse(head.as_bytes()).unwrap();
        StoredPart::of(&request).map_err(|refusal| refusal.status)
    }

    const fn of(start: u64, end: Option<u64>, total: Option<u64>) -> Result<StoredPart, Status> {
        Ok(StoredPart { start, end, total })
    }

    #[test]
    fn a_put_is_of_all_of_a_file_or_of_a_part() {
        let all = part("Content-Length: 5\r\n");
        assert_eq!(all, of(0, Some(5), Some(5)));
        assert!(all.unwrap().is_last());
        let chunked = part("Transfer-Encoding: chunked\r\n");
        assert_eq!(chunked, of(0, None, None));
        assert!(chunked.unwrap().is_last());
        let end = part("Content-Length: 3\r\nContent-Range: bytes 7-9/10\r\n");
        assert_eq!(end, of(7, Some(10), Some(10)));
        assert!(end.unwrap().is_last());
        let middle = part("Transfer-Encoding: chunked\r\nContent-Range: bytes 0-4/10\r\n");
        assert_eq!(middle, of(0, Some(5), Some(10)));
        assert!(!middle.unwrap().is_last());
    }

    #[test]
    fn what_says_two_things_or_nothing_is_refused() {
        for (lines, status) in [
            ("", Status::LengthRequired),
            (
                "Content-Length: 5\r\nContent-Encoding: gzip\r\n",
                Status::UnsupportedMediaType,
            ),
            (
                "Content-Length: 5\r\nContent-Range: bytes 7-9/10\r\n",
                Status::BadRequest,
            ),
        ] {
            assert_eq!(part(lines), Err(status), "{lines}");
        }
        for range in [
            "bytes 7-9/*",
            "bytes */10",
            "bytes 7-9/9",
            "bytes 9-7/10",
            "bytes=7-9/10",
            "items 7-9/10",
            "bytes +7-9/10",
            "bytes 7-18446744073709551615/18446744073709551615",
        ] {
            let lines = format!("Content-Length: 3\r\nContent-Range: {range}\r\n");
            assert_eq!(part(&lines), Err(Status::BadRequest), "{range}");
        }
        assert!(part("Content-Length: 5\r\nContent-Encoding: Identity\r\n").is_ok());
    }
}
