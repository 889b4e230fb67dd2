//! The records of TLS after a handshake (RFC 8446, section 5; RFC 5246, section 6): what is sent is
//! sealed, what has come is opened.
//!
//! The two directions of a connection share nothing, so that one thread reads what another does
//! not know of, and an engine writes. The cipher of each is rustls's; here are only the sequence
//! numbers, and what is no data: alerts and updates of keys.

use std::fmt;
use std::io;

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundPlainMessage,
};
use rustls::{ConnectionTrafficSecrets, ContentType, ProtocolVersion, SupportedCipherSuite};

/// Bytes of data in one record, at most.
pub(crate) const FRAGMENT_BYTES_MAX: usize = 1 << 14;

/// Bytes in front of a record: what it is, a version, its length.
pub(super) const HEADER_BYTES: usize = 5;

/// Bytes of a record with its header, at most (RFC 5246, section 6.2.3; TLS 1.3 allows less).
pub(super) const RECORD_BYTES_MAX: usize = HEADER_BYTES + FRAGMENT_BYTES_MAX + 2048;

/// Records beyond which a new key is to be asked for, as a part of those that a key may seal.
const REKEY_SHARE: u64 = 2;

/// Alerts (RFC 8446, section 6).
pub(super) mod alert {
    pub(crate) const CLOSE_NOTIFY: u8 = 0;
    pub(crate) const UNEXPECTED_MESSAGE: u8 = 10;
    pub(crate) const BAD_RECORD_MAC: u8 = 20;
    pub(crate) const RECORD_OVERFLOW: u8 = 22;
    pub(crate) const USER_CANCELED: u8 = 90;
    pub(crate) const NO_RENEGOTIATION: u8 = 100;
}

/// What a direction is ciphered with: the cipher, and its key from now on.
pub(super) type Secrets = (u64, ConnectionTrafficSecrets);

/// The sending direction of a connection.
pub(crate) struct Sealer {
    encrypter: Box<dyn MessageEncrypter>,
    /// Of the next record.
    sequence: u64,
    suite: SupportedCipherSuite,
}

/// The key that a [`Sealer`] goes on with, once its peer was told.
pub(crate) struct NewKey {
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
}

/// The receiving direction of a connection.
pub(super) struct Opener {
    decrypter: Box<dyn MessageDecrypter>,
    sequence: u64,
    suite: SupportedCipherSuite,
}

/// Why a record cannot be opened, and what the peer is told.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) alert: u8,
    pub(super) what: &'static str,
}

impl Sealer {
    pub(super) fn new(suite: SupportedCipherSuite, secrets: Secrets) -> io::Result<Self> {
        let NewKey {
            encrypter,
            sequence,
        } = NewKey::new(suite, secrets)?;
        Ok(Self {
            encrypter,
            sequence,
            suite,
        })
    }

    /// That of a connection whose handshake is over.
    #[cfg(feature = "experiments")]
    pub(crate) fn of(connection: rustls::ServerConnection) -> io::Result<Self> {
        let suite = connection.negotiated_cipher_suite();
        let suite = suite.ok_or(io::ErrorKind::NotConnected)?;
        let secrets = connection.dangerous_extract_secrets();
        Self::new(suite, secrets.map_err(io::Error::other)?.tx)
    }

    /// Data, which lies in these pieces, as records: one if it is no longer than
    /// [`FRAGMENT_BYTES_MAX`], which then is the only copy that is made.
    ///
    /// # Errors
    ///
    /// If the key has sealed as much as it may (RFC 8446, section 5.5).
    pub(crate) fn seal(&mut self, pieces: &[&[u8]]) -> io::Result<Vec<u8>> {
        let mut rest = OutboundChunks::new(pieces);
        let mut sealed = Vec::new();
        loop {
            let (fragment, after) = rest.split_at(FRAGMENT_BYTES_MAX);
            let record = self.record(ContentType::ApplicationData, fragment)?;
            if sealed.is_empty() {
                sealed = record;
            } else {
                sealed.extend_from_slice(&record);
            }
            if after.is_empty() {
                return Ok(sealed);
            }
            rest = after;
        }
    }

    /// That nothing more comes.
    pub(crate) fn close_notify(&mut self) -> io::Result<Vec<u8>> {
        self.alert(alert::CLOSE_NOTIFY)
    }

    /// An alert.
    pub(super) fn alert(&mut self, description: u8) -> io::Result<Vec<u8>> {
        const WARNING: u8 = 1;
        const FATAL: u8 = 2;
        let level = match description {
            alert::CLOSE_NOTIFY | alert::NO_RENEGOTIATION => WARNING,
            _ => FATAL,
        };
        let payload = [level, description];
        self.record(ContentType::Alert, OutboundChunks::Single(&payload))
    }

    /// Tells the peer that a new key begins (RFC 8446, section 4.6.3), and goes on with it.
    pub(crate) fn change_key(&mut self, key: NewKey) -> io::Result<Vec<u8>> {
        let update = [KEY_UPDATE, 0, 0, 1, UPDATE_NOT_REQUESTED];
        let record = self.record(ContentType::Handshake, OutboundChunks::Single(&update))?;
        (self.encrypter, self.sequence) = (key.encrypter, key.sequence);
        Ok(record)
    }

    /// Whether it is time for a new key.
    pub(crate) fn is_worn(&self) -> bool {
        self.sequence >= self.records_max() / REKEY_SHARE
    }

    fn records_max(&self) -> u64 {
        match self.suite {
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
            SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        }
    }

    fn record(&mut self, typ: ContentType, payload: OutboundChunks<'_>) -> io::Result<Vec<u8>> {
        if self.sequence >= self.records_max() {
            return Err(io::Error::from_raw_os_error(libc::EKEYEXPIRED));
        }
        let version = ProtocolVersion::TLSv1_2;
        let message = OutboundPlainMessage {
            typ,
            version,
            payload,
        };
        let sealed = self.encrypter.encrypt(message, self.sequence);
        self.sequence += 1;
        sealed
            .map(rustls::crypto::cipher::OutboundOpaqueMessage::encode)
            .map_err(io::Error::other)
    }
}

impl NewKey {
    pub(super) fn new(suite: SupportedCipherSuite, secrets: Secrets) -> io::Result<Self> {
        let (sequence, secrets) = secrets;
        let (key, iv) = key_of(secrets)?;
        let encrypter = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
            SupportedCipherSuite::Tls12(suite) => {
                let fixed_bytes = suite.aead_alg.key_block_shape().fixed_iv_len;
                let (fixed, explicit) = iv.as_ref().split_at(fixed_bytes);
                suite.aead_alg.encrypter(key, fixed, explicit)
            }
        };
        Ok(Self {
            encrypter,
            sequence,
        })
    }
}

impl Opener {
    pub(super) fn new(suite: SupportedCipherSuite, secrets: Secrets) -> io::Result<Self> {
        let (sequence, secrets) = secrets;
        let (key, iv) = key_of(secrets)?;
        let decrypter = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
            SupportedCipherSuite::Tls12(suite) => {
                let fixed_bytes = suite.aead_alg.key_block_shape().fixed_iv_len;
                suite.aead_alg.decrypter(key, &iv.as_ref()[..fixed_bytes])
            }
        };
        Ok(Self {
            decrypter,
            sequence,
            suite,
        })
    }

    /// Whether keys can be updated.
    pub(super) fn is_tls13(&self) -> bool {
        matches!(self.suite, SupportedCipherSuite::Tls13(_))
    }

    pub(super) fn suite(&self) -> SupportedCipherSuite {
        self.suite
    }

    /// Opens a whole record where it lies: what it is, and where its payload is in it.
    pub(super) fn open(
        &mut self,
        record: &mut [u8],
    ) -> Result<(ContentType, std::ops::Range<usize>), Broken> {
        let typ = ContentType::from(record[0]);
        let is_known = match self.suite {
            // RFC 8446, section 5.2: all records are of one outer type.
            SupportedCipherSuite::Tls13(_) => typ == ContentType::ApplicationData,
            SupportedCipherSuite::Tls12(_) => matches!(
                typ,
                ContentType::ApplicationData | ContentType::Alert | ContentType::Handshake
            ),
        };
        if !is_known {
            return Err(UNEXPECTED);
        }
        let start = record.as_ptr().addr();
        let message =
            InboundOpaqueMessage::new(typ, ProtocolVersion::TLSv1_2, &mut record[HEADER_BYTES..]);
        let opened = self.decrypter.decrypt(message, self.sequence);
        let opened = opened.map_err(|error| match error {
            rustls::Error::DecryptError => Broken {
                alert: alert::BAD_RECORD_MAC,
                what: "a record was changed on its way",
            },
            rustls::Error::PeerSentOversizedRecord => TOO_LONG,
            _ => UNEXPECTED,
        })?;
        self.sequence += 1;
        let first = opened.payload.as_ptr().addr().saturating_sub(start);
        Ok((opened.typ, first..first + opened.payload.len()))
    }
}

/// Bytes of the record that begins here, with its header; `None` if the header is not whole.
pub(super) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, Broken> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let all = HEADER_BYTES + usize::from(u16::from_be_bytes([header[3], header[4]]));
    match all > RECORD_BYTES_MAX {
        true => Err(TOO_LONG),
        false => Ok(Some(all)),
    }
}

/// Whether these bytes, the payload of a handshake record, are an update of the peer's key; then
/// whether it asks for one of ours.
pub(super) fn key_update(payload: &[u8]) -> Option<bool> {
    match payload {
        [KEY_UPDATE, 0, 0, 1, UPDATE_NOT_REQUESTED] => Some(false),
        [KEY_UPDATE, 0, 0, 1, UPDATE_REQUESTED] => Some(true),
        _ => None,
    }
}

const KEY_UPDATE: u8 = 24;
const UPDATE_NOT_REQUESTED: u8 = 0;
const UPDATE_REQUESTED: u8 = 1;

pub(super) const UNEXPECTED: Broken = Broken {
    alert: alert::UNEXPECTED_MESSAGE,
    what: "a record of a kind that has no place here",
};

const TOO_LONG: Broken = Broken {
    alert: alert::RECORD_OVERFLOW,
    what: "a record is longer than TLS allows",
};

impl From<Broken> for io::Error {
    fn from(broken: Broken) -> Self {
        Self::new(io::ErrorKind::InvalidData, broken.what)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing of a key is ever printed.
        write!(f, "Sealer at record {}", self.sequence)
    }
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewKey")
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener at record {}", self.sequence)
    }
}

fn key_of(secrets: ConnectionTrafficSecrets) -> io::Result<(AeadKey, Iv)> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rustls::crypto::ring::cipher_suite::{
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS13_AES_256_GCM_SHA384,
    };

    use super::*;

    fn sealer(suite: SupportedCipherSuite, sequence: u64) -> Sealer {
        let secrets = ConnectionTrafficSecrets::Aes256Gcm {
            key: AeadKey::from([7; 32]),
            iv: Iv::new([7; 12]),
        };
        Sealer::new(suite, (sequence, secrets)).unwrap()
    }

    /// One of TLS 1.2, whose key has so many records left.
    pub(crate) fn almost_worn(records: u64) -> Sealer {
        let suite = TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
        let records_max = sealer(suite, 0).records_max();
        assert_eq!(records_max, 1 << 24);
        sealer(suite, records_max - records)
    }

    /// There is no other key in TLS 1.2 without negotiating anew, which nobody does any more.
    #[test]
    fn a_worn_key_of_tls_1_2_seals_nothing_more() {
        let mut sealer = almost_worn(2);
        assert!(sealer.is_worn());
        // Two records, of which the second has one byte.
        let data = [7; FRAGMENT_BYTES_MAX + 1];
        assert!(sealer.seal(&[&data]).is_ok());
        for _ in 0..2 {
            let error = sealer.seal(&[b"one more"]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EKEYEXPIRED));
            assert!(sealer.close_notify().is_err(), "no number is used twice");
        }
    }

    #[test]
    fn a_key_of_tls_1_3_is_changed_long_before_its_end() {
        let suite = TLS13_AES_256_GCM_SHA384;
        let half = sealer(suite, 0).records_max() / REKEY_SHARE;
        assert!(!sealer(suite, half - 1).is_worn());
        let mut worn = sealer(suite, half);
        assert!(worn.is_worn());
        let key = NewKey {
            encrypter: sealer(suite, 0).encrypter,
            sequence: 0,
        };
        worn.change_key(key).unwrap();
        assert!(!worn.is_worn());
    }
}
