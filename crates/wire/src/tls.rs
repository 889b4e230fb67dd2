//! The records of TLS as they come on a connection (RFC 8446, section 5; RFC 5246, section 6):
//! where each ends, and what one means that a cipher has opened. No cipher is here.

use thiserror::Error;

/// Bytes in front of a record: what it is, a version, its length.
pub const RECORD_HEADER_BYTES: usize = 5;

/// Bytes of data in one record, at most.
pub const FRAGMENT_BYTES_MAX: usize = 1 << 14;

/// Bytes of a record with its header, at most (RFC 5246, section 6.2.3; TLS 1.3 allows less).
pub const RECORD_BYTES_MAX: usize = RECORD_HEADER_BYTES + FRAGMENT_BYTES_MAX + 2048;

/// Records in a row that carry no data: empty ones, updates of keys. A peer that sends more only
/// wants to keep us busy.
pub const TLS_IDLE_RECORDS_MAX: u8 = 32;

/// What a record is (RFC 8446, section 5.1).
pub mod record_type {
    /// A change of cipher, of a handshake.
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    /// Two bytes: how bad it is, and what.
    pub const ALERT: u8 = 21;
    /// A message of a handshake, or behind one.
    pub const HANDSHAKE: u8 = 22;
    /// Data.
    pub const APPLICATION_DATA: u8 = 23;
}

/// Alerts (RFC 8446, section 6).
pub mod alert {
    /// Nothing more comes.
    pub const CLOSE_NOTIFY: u8 = 0;
    /// A record has no place where it comes.
    pub const UNEXPECTED_MESSAGE: u8 = 10;
    /// A record was changed on its way.
    pub const BAD_RECORD_MAC: u8 = 20;
    /// A record is too long.
    pub const RECORD_OVERFLOW: u8 = 22;
    /// The peer's user has ended it; `close_notify` follows.
    pub const USER_CANCELED: u8 = 90;
    /// Nobody negotiates anew.
    pub const NO_RENEGOTIATION: u8 = 100;
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum RecordError {
    /// The peer has broken a rule, and is told that alert.
    #[error("{what}")]
    Broken {
        /// What it is told.
        alert: u8,
        /// What it has done.
        what: &'static str,
    },
    /// The peer ends it.
    #[error("the peer ends it with TLS alert {0}")]
    Ended(u8),
}

/// A record of a kind that has no place where it comes.
pub const UNEXPECTED: RecordError = RecordError::Broken {
    alert: alert::UNEXPECTED_MESSAGE,
    what: "a record of a kind that has no place here",
};

/// A record that is too long.
pub const TOO_LONG: RecordError = RecordError::Broken {
    alert: alert::RECORD_OVERFLOW,
    what: "a record is longer than TLS allows",
};

/// Bytes of the record that begins here, with its header; `None` if the header is not whole.
///
/// # Errors
///
/// [`TOO_LONG`].
pub fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some(header) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
        return Ok(None);
    };
    let all = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([header[3], header[4]]));
    match all > RECORD_BYTES_MAX {
        true => Err(TOO_LONG),
        false => Ok(Some(all)),
    }
}

/// Whether a record begins so: its type, and the major version that all of TLS has.
#[must_use]
pub fn is_record(bytes: &[u8]) -> bool {
    matches!(bytes, [20..=23] | [20..=23, 3, ..])
}

/// What an opened record means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Meaning {
    /// It is data, and not empty.
    Data,
    /// It is to be passed over.
    Nothing,
    /// Nothing more comes.
    End,
    /// The peer's key is another from now on (RFC 8446, section 4.6.3).
    KeyUpdate {
        /// Ours is to be another, too.
        is_requested: bool,
    },
}

/// What the records of a connection mean, behind its handshake.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordReader {
    idle_records: u8,
}

impl RecordReader {
    /// Takes the next record: what it is, and what a cipher has found in it.
    ///
    /// # Errors
    ///
    /// If the connection is to end.
    pub fn take(
        &mut self,
        (record_type, payload): (u8, &[u8]),
        is_tls13: bool,
    ) -> Result<Meaning, RecordError> {
        if record_type == record_type::APPLICATION_DATA && !payload.is_empty() {
            self.idle_records = 0;
            return Ok(Meaning::Data);
        }
        self.idle_records += 1;
        if self.idle_records > TLS_IDLE_RECORDS_MAX {
            return Err(RecordError::Broken {
                alert: alert::UNEXPECTED_MESSAGE,
                what: "too many records without data in a row",
            });
        }
        match (record_type, payload) {
            (record_type::APPLICATION_DATA, _) => Ok(Meaning::Nothing),
            (record_type::ALERT, [_, alert::CLOSE_NOTIFY]) => Ok(Meaning::End),
            (record_type::ALERT, [_, alert::USER_CANCELED]) => Ok(Meaning::Nothing),
            (record_type::ALERT, [_, description]) => Err(RecordError::Ended(*description)),
            (record_type::HANDSHAKE, payload) if is_tls13 => {
                let is_requested = key_update(payload).ok_or(UNEXPECTED)?;
                Ok(Meaning::KeyUpdate { is_requested })
            }
            // RFC 5246, section 7.2.2: a client that insists on new keys is let go.
            (record_type::HANDSHAKE, _) => Err(RecordError::Broken {
                alert: alert::NO_RENEGOTIATION,
                what: "the client wants to negotiate anew",
            }),
            _ => Err(UNEXPECTED),
        }
    }
}

/// That the sender's key is another from now on, and that the receiver's need not be.
pub const KEY_UPDATE: [u8; 5] = [KEY_UPDATE_TYPE, 0, 0, 1, UPDATE_NOT_REQUESTED];

/// Whether this is a message of that kind; then whether it asks for one of ours.
fn key_update(payload: &[u8]) -> Option<bool> {
    match payload {
        [KEY_UPDATE_TYPE, 0, 0, 1, UPDATE_NOT_REQUESTED] => Some(false),
        [KEY_UPDATE_TYPE, 0, 0, 1, UPDATE_REQUESTED] => Some(true),
        _ => None,
    }
}

const KEY_UPDATE_TYPE: u8 = 24;
const UPDATE_NOT_REQUESTED: u8 = 0;
const UPDATE_REQUESTED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_ends_where_its_header_says() {
        assert_eq!(record_bytes(&[23, 3, 3, 1]), Ok(None));
        assert_eq!(record_bytes(&[23, 3, 3, 1, 2, 9]), Ok(Some(5 + 0x102)));
        let [high, low] = 0x4800_u16.to_be_bytes();
        let longest = [23, 3, 3, high, low];
        assert_eq!(record_bytes(&longest), Ok(Some(RECORD_BYTES_MAX)));
        assert_eq!(record_bytes(&[23, 3, 3, high, low + 1]), Err(TOO_LONG));
        assert!(is_record(&[22]) && is_record(&[22, 3]) && !is_record(b"GET /"));
        assert!(!is_record(&[22, 2]) && !is_record(&[24, 3]) && !is_record(&[]));
    }

    fn take(record: (u8, &[u8]), is_tls13: bool) -> Result<Meaning, RecordError> {
        RecordReader::default().take(record, is_tls13)
    }

    #[test]
    fn records_mean_what_their_version_allows() {
        use record_type::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE};
        assert_eq!(take((APPLICATION_DATA, b"x"), true), Ok(Meaning::Data));
        assert_eq!(take((APPLICATION_DATA, b""), true), Ok(Meaning::Nothing));
        assert_eq!(take((ALERT, &[1, 0]), true), Ok(Meaning::End));
        assert_eq!(take((ALERT, &[1, 90]), false), Ok(Meaning::Nothing));
        assert_eq!(take((ALERT, &[2, 40]), false), Err(RecordError::Ended(40)));
        for alert in [&[][..], &[1], &[1, 0, 0]] {
            assert_eq!(take((ALERT, alert), true), Err(UNEXPECTED));
        }
        let update = |byte| [24, 0, 0, 1, byte];
        for (byte, is_requested) in [(0, false), (1, true)] {
            let meaning = Meaning::KeyUpdate { is_requested };
            assert_eq!(take((HANDSHAKE, &update(byte)), true), Ok(meaning));
        }
        assert_eq!(take((HANDSHAKE, &update(2)), true), Err(UNEXPECTED));
        let renegotiation = take((HANDSHAKE, &update(0)), false);
        let alert = alert::NO_RENEGOTIATION;
        assert!(matches!(renegotiation, Err(RecordError::Broken { alert: it, .. }) if it == alert));
        assert_eq!(take((CHANGE_CIPHER_SPEC, &[1]), true), Err(UNEXPECTED));
    }

    #[test]
    fn records_without_data_are_so_many_in_a_row() {
        let mut reader = RecordReader::default();
        let empty = (record_type::APPLICATION_DATA, &b""[..]);
        for _ in 0..2 {
            for _ in 0..TLS_IDLE_RECORDS_MAX {
                assert_eq!(reader.take(empty, true), Ok(Meaning::Nothing));
            }
            let data = (record_type::APPLICATION_DATA, &b"x"[..]);
            assert_eq!(reader.take(data, true), Ok(Meaning::Data));
        }
        for _ in 0..TLS_IDLE_RECORDS_MAX {
            assert_eq!(reader.take(empty, true), Ok(Meaning::Nothing));
        }
        assert!(reader.take(empty, true).is_err());
    }
}
