//! Secure RTP (RFC 3711, RFC 7714) and the two ways its keys are told in RTSP: MIKEY (RFC 3830, RFC
//! 4567) and `a=crypto` (RFC 4568).
//!
//! Whoever keeps a master key keeps the numbers, too: a packet's index, which is its sequence
//! number and how often those have wrapped, comes in as an argument, and is never used twice with
//! one key and one SSRC. What is received is checked before it is decrypted, and a report that came
//! already is refused.
//!
//! No key is derived anew while a session lasts (a key derivation rate of 0), and there is no MKI.

mod crypto_attribute;
mod keys;
mod mikey;
mod replay;
mod rtcp;
mod rtp;
mod sender;
mod tags;

use thiserror::Error;

pub use self::crypto_attribute::{crypto_attribute, parse_crypto_attribute};
pub use self::keys::{MasterKey, Suite};
pub use self::mikey::{
    CryptoSession, KEY_MGMT_BYTES_MAX, MikeyError, MikeyMessage, SESSIONS_MAX, key_mgmt_header,
    parse_key_mgmt,
};
pub use self::replay::ReplayWindow;
pub use self::rtcp::{RtcpReceiver, RtcpSender};
pub use self::rtp::{RtpKeys, RtpReceiver, index_of, next_index};
pub use self::sender::{Arrival, RtpSender};
pub use self::tags::{CompressEach, PACKETS_AT_ONCE, compress_one_by_one};

/// Why a packet is not accepted.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SrtpError {
    /// It is too short to be one, or its header says more than it has.
    #[error("it is no SRTP packet")]
    Malformed,
    /// Its tag is not that of its bytes: another key, or somebody has changed it.
    #[error("its authentication tag is wrong")]
    Authentication,
    /// It has come before, or so long ago that this is not known.
    #[error("it has come before, or is too old")]
    Replayed,
    /// All numbers that one key may be used with are used (RFC 3711, section 9.2).
    #[error("the key is used up")]
    KeyUsedUp,
}

#[cfg(test)]
mod testing {
    /// Bytes written in hexadecimal digits.
    pub(super) fn hex(digits: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect()
    }
}
