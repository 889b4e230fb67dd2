//! The records of TLS after a handshake (RFC 8446, section 5; RFC 5246, section 6): what is sent is
//! sealed, what has come is opened.
//!
//! The two directions of a connection share nothing, so that one thread reads what another does
//! not know of, and an engine writes. The cipher of each is rustls's; here are only the sequence
//! numbers. Where a record ends and what it means when it is opened decides `onrush_wire::tls`.

use std::fmt;
use std::io;

use onrush_sys::kernel_tls::{Cipher, SendKey, Version};
use onrush_wire::tls::{
    FRAGMENT_BYTES_MAX, KEY_UPDATE, RECORD_HEADER_BYTES, RecordError, TOO_LONG, UNEXPECTED, alert,
};
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundPlainMessage,
};
use rustls::{ConnectionTrafficSecrets, ContentType, ProtocolVersion, SupportedCipherSuite};
use zeroize::Zeroizing;

/// Records beyond which a new key is to be asked for, as a part of those that a key may seal.
pub(super) const REKEY_SHARE: u64 = 2;

/// What a direction is ciphered with: the cipher, and its key from now on.
pub(super) type Secrets = (u64, ConnectionTrafficSecrets);

/// The sending direction of a connection.
pub(crate) struct Sealer {
    encrypter: Box<dyn MessageEncrypter>,
    /// Of the next record.
    sequence: u64,
    suite: SupportedCipherSuite,
    /// What the kernel may go on with.
    copy: Option<Box<KeyCopy>>,
}

/// The key that a [`Sealer`] goes on with, once its peer was told.
pub(crate) struct NewKey {
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
    copy: Option<Box<KeyCopy>>,
}

/// A key as its secrets have it, which the cipher does not give back.
struct KeyCopy {
    of: (Version, Cipher),
    key: Zeroizing<Vec<u8>>,
    iv: [u8; 12],
}

/// The receiving direction of a connection.
pub(super) struct Opener {
    decrypter: Box<dyn MessageDecrypter>,
    sequence: u64,
    suite: SupportedCipherSuite,
}

impl Sealer {
    /// With `is_for_kernel` the key is kept in a form that can be given to the kernel later.
    pub(super) fn new(
        suite: SupportedCipherSuite,
        secrets: Secrets,
        is_for_kernel: bool,
    ) -> io::Result<Self> {
        let NewKey {
            encrypter,
            sequence,
            copy,
        } = NewKey::new(suite, secrets, is_for_kernel)?;
        Ok(Self {
            encrypter,
            sequence,
            suite,
            copy,
        })
    }

    /// That of a connection whose handshake is over.
    #[cfg(feature = "experiments")]
    pub(crate) fn of(connection: rustls::ServerConnection) -> io::Result<Self> {
        let suite = connection.negotiated_cipher_suite();
        let suite = suite.ok_or(io::ErrorKind::NotConnected)?;
        let secrets = connection.dangerous_extract_secrets();
        Self::new(suite, secrets.map_err(io::Error::other)?.tx, false)
    }

    /// What the kernel goes on with behind what was sealed so far, if that was kept.
    pub(super) fn send_key(&self) -> Option<(SendKey, Cipher)> {
        let copy = self.copy.as_ref()?;
        let key = SendKey::new(copy.of, &copy.key, &copy.iv, self.sequence)?;
        Some((key, copy.of.1))
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
        let payload = alert_payload(description);
        self.record(ContentType::Alert, OutboundChunks::Single(&payload))
    }

    /// Tells the peer that a new key begins (RFC 8446, section 4.6.3), and goes on with it.
    pub(crate) fn change_key(&mut self, key: NewKey) -> io::Result<Vec<u8>> {
        let record = self.record(ContentType::Handshake, OutboundChunks::Single(&KEY_UPDATE))?;
        (self.encrypter, self.sequence) = (key.encrypter, key.sequence);
        self.copy = key.copy;
        Ok(record)
    }

    /// Whether it is time for a new key.
    pub(crate) fn is_worn(&self) -> bool {
        self.sequence >= self.records_max() / REKEY_SHARE
    }

    /// Records that were sealed so far, and how many the key may seal.
    pub(super) fn records(&self) -> (u64, u64) {
        (self.sequence, self.records_max())
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
    /// As [`Sealer::new`].
    pub(super) fn new(
        suite: SupportedCipherSuite,
        secrets: Secrets,
        is_for_kernel: bool,
    ) -> io::Result<Self> {
        let (sequence, secrets) = secrets;
        let copy = is_for_kernel
            .then(|| KeyCopy::of(suite, &secrets))
            .flatten();
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
            copy: copy.map(Box::new),
        })
    }
}

impl KeyCopy {
    /// `None` if it is of a cipher that no kernel has.
    fn of(suite: SupportedCipherSuite, secrets: &ConnectionTrafficSecrets) -> Option<Self> {
        let (cipher, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (Cipher::ChaCha20Poly1305, key, iv)
            }
            _ => return None,
        };
        let version = match suite {
            SupportedCipherSuite::Tls13(_) => Version::Tls13,
            SupportedCipherSuite::Tls12(_) => Version::Tls12,
        };
        Some(Self {
            of: (version, cipher),
            key: Zeroizing::new(key.as_ref().to_vec()),
            iv: iv.as_ref().try_into().ok()?,
        })
    }
}

/// What an alert says: how bad it is, and what.
pub(super) fn alert_payload(description: u8) -> [u8; 2] {
    const WARNING: u8 = 1;
    const FATAL: u8 = 2;
    let level = match description {
        alert::CLOSE_NOTIFY | alert::NO_RENEGOTIATION => WARNING,
        _ => FATAL,
    };
    [level, description]
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
    ) -> Result<(ContentType, std::ops::Range<usize>), RecordError> {
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
        let message = InboundOpaqueMessage::new(
            typ,
            ProtocolVersion::TLSv1_2,
            &mut record[RECORD_HEADER_BYTES..],
        );
        let opened = self.decrypter.decrypt(message, self.sequence);
        let opened = opened.map_err(|error| match error {
            rustls::Error::DecryptError => RecordError::Broken {
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
        Sealer::new(suite, (sequence, secrets), true).unwrap()
    }

    /// One of TLS 1.2, whose key has so many records left.
    pub(crate) fn almost_worn(records: u64) -> Sealer {
        let suite = TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
        let records_max = sealer(suite, 0).records_max();
        assert_eq!(records_max, 1 << 24);
        sealer(suite, records_max - records)
    }

    /// One of TLS 1.3.
    pub(crate) fn new_key() -> NewKey {
        NewKey {
            encrypter: sealer(TLS13_AES_256_GCM_SHA384, 0).encrypter,
            sequence: 0,
            copy: None,
        }
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
        worn.change_key(new_key()).unwrap();
        assert!(!worn.is_worn());
    }
}
