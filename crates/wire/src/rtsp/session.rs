//! What a session is to the protocol: an unguessable name and a state.

use std::fmt;

use rtsp_types::Method;

use super::reply::METHODS;

/// A session's name: 128 bits that nobody can guess, in hexadecimal.
///
/// Bytes and no number, which would align what it stands in to 16.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SessionId([u8; 16]);

/// Where a session is (RFC 2326, appendix A.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// There is no session.
    Init,
    /// Set up, or paused.
    Ready,
    /// Sending.
    Playing,
    /// Ready again because the media came to its end. The RFC has no name for it, but here a PAUSE
    /// is answered with success: it may have crossed the news of the end, and the client cannot
    /// know.
    Ended,
}

impl SessionId {
    /// Names a session by random bytes.
    #[must_use]
    pub const fn from_random(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Reads a Session header's value, with or without its parameters.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let id = value.split(';').next()?.trim();
        let is_id = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
        if is_id {
            let bits = u128::from_str_radix(id, 16).ok()?;
            Some(Self(bits.to_be_bytes()))
        } else {
            None
        }
    }

    /// Half of it, to find the session by. It is not the whole name: who finds a session by it
    /// compares that.
    #[must_use]
    pub const fn number(self) -> u64 {
        (self.bits() >> 64) as u64
    }

    /// Enough of it to tell sessions apart in a log, and too little to take one over.
    #[must_use]
    pub fn short(self) -> impl fmt::Display {
        format!("{:08x}", self.bits() >> 96)
    }

    const fn bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.bits())
    }
}

impl State {
    /// The state after a success of `method`, or `None` if the method is not valid in this one.
    #[must_use]
    pub const fn after(self, method: &Method) -> Option<Self> {
        match (self, method) {
            (state, Method::Options | Method::Describe) => Some(state),
            (state, Method::GetParameter | Method::SetParameter) => Some(state),
            // A transport is not changed under a stream that is being sent; the RFC (section 10.4)
            // leaves that to the server.
            (Self::Init | Self::Ready | Self::Ended, Method::Setup) => Some(Self::Ready),
            (Self::Ready | Self::Playing | Self::Ended, Method::Play) => Some(Self::Playing),
            (Self::Playing, Method::Pause) => Some(Self::Ready),
            (Self::Ended, Method::Pause) => Some(Self::Ended),
            (_, Method::Teardown) => Some(Self::Init),
            _ => None,
        }
    }

    /// The methods that are valid now.
    #[must_use]
    pub fn allowed(self) -> Vec<Method> {
        METHODS
            .into_iter()
            .filter(|method| self.after(method).is_some())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back() {
        let id = SessionId::from_random(*b"0123456789abcdef");
        assert_eq!(SessionId::parse(&format!("{id}")), Some(id));
        assert_eq!(SessionId::parse(&format!(" {id} ;timeout=60")), Some(id));
        assert!(format!("{id}").starts_with(&id.short().to_string()));
        for other in [
            "",
            "1234",
            &format!("+{}", &id.to_string()[1..]),
            &format!("{id}0"),
        ] {
            assert_eq!(SessionId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_table_of_the_rfc() {
        use Method::{Pause, Play, Record, Setup, Teardown};
        for (state, after) in [
            (
                State::Init,
                [Some(State::Ready), None, None, Some(State::Init)],
            ),
            (
                State::Ready,
                [
                    Some(State::Ready),
                    Some(State::Playing),
                    None,
                    Some(State::Init),
                ],
            ),
            (
                State::Playing,
                [
                    None,
                    Some(State::Playing),
                    Some(State::Ready),
                    Some(State::Init),
                ],
            ),
            (
                State::Ended,
                [
                    Some(State::Ready),
                    Some(State::Playing),
                    Some(State::Ended),
                    Some(State::Init),
                ],
            ),
        ] {
            assert_eq!(
                [Setup, Play, Pause, Teardown].map(|m| state.after(&m)),
                after,
                "{state:?}"
            );
            assert_eq!(state.after(&Record), None);
        }
    }
}
