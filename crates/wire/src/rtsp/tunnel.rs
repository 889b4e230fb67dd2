//! RTSP over HTTP, as QuickTime began it: a GET whose answer never ends carries what the server
//! says, the body of a POST that never ends carries, in base64, what the client says. Which POST
//! belongs to which GET, a cookie says that the client has chosen (`x-sessioncookie`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

/// Bytes of a cookie; a longer one is none.
pub const TUNNEL_COOKIE_BYTES_MAX: usize = 128;

/// What the answer to a GET begins with; requests' replies and frames follow.
pub const TUNNEL_OPEN: &[u8] = b"HTTP/1.0 200 OK\r\n\
    Connection: close\r\n\
    Cache-Control: no-store\r\n\
    Pragma: no-cache\r\n\
    Content-Type: application/x-rtsp-tunnelled\r\n\r\n";

/// What is said to the side of a tunnel that there is no other side for.
pub const TUNNEL_REFUSED: &[u8] = b"HTTP/1.0 404 Not Found\r\n\
    Connection: close\r\n\
    Content-Length: 0\r\n\r\n";

/// One side of a tunnel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TunnelSide {
    /// Whether it is the POST, by which the client speaks.
    pub is_post: bool,
    /// What the other side has, too.
    pub cookie: Box<str>,
}

/// The body of a POST is not base64.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("what came by the tunnel is not base64")]
pub struct NotBase64;

/// Takes base64 apart, however it was cut: a client ends each request for itself, so that padding
/// may stand anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct TunnelDecoder {
    held: [u8; 4],
    held_bytes: usize,
}

impl TunnelSide {
    /// Whether this head, of a request of HTTP, opens one.
    #[must_use]
    pub fn is_opened_by(head: &[u8]) -> bool {
        Self::of(head).is_some()
    }

    /// The side of a tunnel that a head opens, if it does: one of HTTP with a cookie.
    #[must_use]
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        request
            .parse(head)
            .ok()
            .filter(httparse::Status::is_complete)?;
        let is_post = match request.method? {
            "GET" => false,
            "POST" => true,
            _ => return None,
        };
        let cookie = request.headers.iter().find(|header| {
            let name = header.name;
            name.eq_ignore_ascii_case("x-sessioncookie")
        })?;
        let cookie = std::str::from_utf8(cookie.value).ok()?.trim();
        let is_cookie = (1..=TUNNEL_COOKIE_BYTES_MAX).contains(&cookie.len());
        is_cookie.then(|| Self {
            is_post,
            cookie: cookie.into(),
        })
    }
}

impl TunnelDecoder {
    /// Decodes what has come, onto the end of `into`.
    ///
    /// # Errors
    ///
    /// If it is not base64; what follows cannot be understood then.
    pub fn push(&mut self, text: &[u8], into: &mut Vec<u8>) -> Result<(), NotBase64> {
        for &byte in text.iter().filter(|byte| !byte.is_ascii_whitespace()) {
            self.held[self.held_bytes] = byte;
            self.held_bytes += 1;
            if self.held_bytes < self.held.len() {
                continue;
            }
            self.held_bytes = 0;
            let mut decoded = [0; 3];
            let bytes = STANDARD.decode_slice(self.held, &mut decoded);
            let bytes = bytes.map_err(|_| NotBase64)?;
            into.extend_from_slice(&decoded[..bytes]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_http_with_a_cookie_opens_a_tunnel() {
        let side = |head: &str| TunnelSide::of(head.as_bytes());
        let get = "GET /film.mp4 HTTP/1.0\r\nX-SessionCookie: abc\r\n\r\n";
        let expected = |is_post| {
            Some(TunnelSide {
                is_post,
                cookie: "abc".into(),
            })
        };
        assert_eq!(side(get), expected(false));
        assert_eq!(side(&get.replace("GET", "POST")), expected(true));
        for other in [
            &*get.replace("GET", "PUT"),
            &get.replace("abc", ""),
            &get.replace("abc", &"x".repeat(TUNNEL_COOKIE_BYTES_MAX + 1)),
            &get.replace("X-SessionCookie", "Cookie"),
            "OPTIONS * RTSP/1.0\r\nx-sessioncookie: abc\r\n\r\n",
            "GET_PARAMETER * RTSP/1.0\r\nx-sessioncookie: abc\r\n\r\n",
        ] {
            assert_eq!(side(other), None, "{other}");
        }
        assert!(side(&get.replace("abc", &"x".repeat(TUNNEL_COOKIE_BYTES_MAX))).is_some());
    }

    #[test]
    fn what_is_not_base64_is_an_error() {
        for text in ["ab*d", "a===", "====", "YQ=a"] {
            let decoded = TunnelDecoder::default().push(text.as_bytes(), &mut Vec::new());
            assert_eq!(decoded, Err(NotBase64), "{text}");
        }
    }

    proptest! {
        #[test]
        fn requests_come_whole_however_their_base64_is_cut(
            requests in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            sizes in prop::collection::vec(1_usize..9, 1..9),
        ) {
            // Each is encoded for itself, and may have line ends in it.
            let mut text = String::new();
            for request in &requests {
                text += &STANDARD.encode(request);
                text += "\r\n";
            }
            let (mut decoder, mut decoded) = (TunnelDecoder::default(), Vec::new());
            let (mut rest, mut sizes) = (text.as_bytes(), sizes.iter().cycle());
            while !rest.is_empty() {
                let (some, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                decoder.push(some, &mut decoded).unwrap();
                rest = after;
            }
            prop_assert_eq!(decoded, requests.concat());
        }
    }
}
