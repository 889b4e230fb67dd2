//! MIKEY messages (RFC 3830) as RTSP carries them (RFC 4567): one end tells the other the key that
//! it encrypts with.
//!
//! They are of the kind with a shared secret, whose encryption and authentication are NULL, because
//! the connection that carries them has both: GStreamer writes and reads them so. The key is a TEK:
//! the master key with its salt behind it, or the two apart. Of any other kind it is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

use super::{MasterKey, Suite};

/// Bytes of a message that is read, at most: ours have about 100.
pub const KEY_MGMT_BYTES_MAX: usize = 1024;

/// Crypto sessions of a message that is read, at most.
pub const SESSIONS_MAX: usize = 16;

/// What one end says of the key that it encrypts with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MikeyMessage {
    /// A random number of the bundle of sessions that the key is for.
    pub bundle: u32,
    /// Whose packets are encrypted so.
    pub sessions: Vec<CryptoSession>,
    /// When it was made, in NTP's seconds and fractions of one.
    pub ntp: u64,
    /// Random bytes; 16 at least (RFC 3830, section 6.11).
    pub random: Vec<u8>,
    /// The key, and how it is used.
    pub key: MasterKey,
}

/// One source of packets (RFC 3830, section 6.1.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CryptoSession {
    /// Its SSRC; GStreamer's clients say 0 as long as they do not know it.
    pub ssrc: u32,
    /// How often its sequence numbers have wrapped.
    pub rollover: u32,
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum MikeyError {
    /// The header is not `prot=mikey;uri="...";data="..."`, or its data no Base64.
    #[error("send KeyMgmt: prot=mikey;uri=\"...\";data=\"...\" with a message in Base64")]
    Header,
    /// The message is longer than [`KEY_MGMT_BYTES_MAX`], or has more than [`SESSIONS_MAX`]
    /// sessions.
    #[error("the MIKEY message is too long")]
    TooLong,
    /// It ends too early, or says what RFC 3830 does not know.
    #[error("the MIKEY message is malformed")]
    Malformed,
    /// It is none with a shared secret, of SRTP, without encryption of its own.
    #[error("send a MIKEY message of the type PSK, with NULL encryption and authentication")]
    Kind,
    /// Its policy is none of ours.
    #[error("AES-128 with HMAC-SHA1 of 80 bits, or AES-128-GCM, is served")]
    Policy,
    /// It has no key that packets are encrypted with, or not as many bytes as its policy wants.
    #[error("send a TEK of 128 bits with its salt")]
    Key,
}

/// Numbers of payloads (RFC 3830, section 6.1).
mod payload {
    pub(super) const LAST: u8 = 0;
    pub(super) const KEMAC: u8 = 1;
    pub(super) const TIME: u8 = 5;
    pub(super) const ID: u8 = 6;
    pub(super) const POLICY: u8 = 10;
    pub(super) const RANDOM: u8 = 11;
    pub(super) const EXTENSION: u8 = 21;
}

/// Numbers of what a policy says (RFC 3830, section 6.10.1; RFC 7714, section 14.3).
mod policy {
    pub(super) const CIPHER: u8 = 0;
    pub(super) const KEY_BYTES: u8 = 1;
    pub(super) const MAC: u8 = 2;
    pub(super) const MAC_KEY_BYTES: u8 = 3;
    pub(super) const SALT_BYTES: u8 = 4;
    pub(super) const PRF: u8 = 5;
    pub(super) const KEY_RATE: u8 = 6;
    pub(super) const ENCRYPTS_RTP: u8 = 7;
    pub(super) const ENCRYPTS_RTCP: u8 = 8;
    pub(super) const AUTHENTICATES: u8 = 10;
    pub(super) const TAG_BYTES: u8 = 11;
    pub(super) const AEAD_TAG_BYTES: u8 = 20;
    pub(super) const CIPHER_CM: u8 = 1;
    pub(super) const CIPHER_GCM: u8 = 6;
}

/// Kinds of key data (RFC 3830, section 6.13).
const TEK: u8 = 2;
const TEK_WITH_SALT: u8 = 3;

impl MikeyMessage {
    /// The message as it is on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![1, 0, payload::TIME, 0];
        bytes.extend(self.bundle.to_be_bytes());
        let sessions = self.sessions.iter().take(SESSIONS_MAX);
        bytes.extend([u8::try_from(sessions.len()).expect("at most 16"), 0]);
        for session in sessions {
            bytes.push(0);
            bytes.extend(session.ssrc.to_be_bytes());
            bytes.extend(session.rollover.to_be_bytes());
        }
        bytes.extend([payload::RANDOM, 0]);
        bytes.extend(self.ntp.to_be_bytes());
        let random = &self.random[..self.random.len().min(255)];
        let random_bytes = u8::try_from(random.len()).expect("at most 255");
        bytes.extend([payload::POLICY, random_bytes]);
        bytes.extend(random);
        let policy = policy_of(self.key.suite());
        bytes.extend([payload::KEMAC, 0, 0]);
        bytes.extend(length(2 * policy.len() + policy.len()));
        for (name, value) in policy {
            bytes.extend([name, 1, value]);
        }
        let key = self.key.to_bytes();
        bytes.extend([payload::LAST, 0]);
        bytes.extend(length(4 + key.len()));
        bytes.extend([payload::LAST, TEK << 4]);
        bytes.extend(length(key.len()));
        bytes.extend(key);
        bytes.push(0);
        bytes
    }

    /// Takes a message apart.
    ///
    /// # Errors
    ///
    /// See [`MikeyError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, MikeyError> {
        if bytes.len() > KEY_MGMT_BYTES_MAX {
            return Err(MikeyError::TooLong);
        }
        let mut reader = Reader { rest: bytes };
        let [version, kind, mut next, prf] = reader.array()?;
        if version != 1 {
            return Err(MikeyError::Malformed);
        }
        // The bit in front of the function asks for an answer, which RTSP has none for.
        if kind != 0 || prf & 0x7f != 0 {
            return Err(MikeyError::Kind);
        }
        let bundle = u32::from_be_bytes(reader.array()?);
        let sessions = reader.sessions()?;
        let (mut ntp, mut random) = (0, Vec::new());
        let (mut suite, mut keys) = (Some(Suite::default()), None);
        while next != payload::LAST {
            let this = next;
            [next] = reader.array()?;
            match this {
                payload::TIME => ntp = reader.time()?,
                payload::RANDOM => {
                    let [bytes] = reader.array()?;
                    random = reader.take(bytes.into())?.to_vec();
                }
                payload::POLICY => suite = reader.policy()?,
                payload::KEMAC => keys = Some(reader.kemac()?),
                payload::ID | payload::EXTENSION => {
                    let [_] = reader.array()?;
                    reader.counted()?;
                }
                _ => return Err(MikeyError::Kind),
            }
        }
        let suite = suite.ok_or(MikeyError::Policy)?;
        let keys = keys.ok_or(MikeyError::Key)?;
        Ok(Self {
            bundle,
            sessions,
            ntp,
            random,
            key: MasterKey::new(suite, &keys).ok_or(MikeyError::Key)?,
        })
    }
}

/// What is said of a suite.
fn policy_of(suite: Suite) -> Vec<(u8, u8)> {
    use policy as is;
    match suite {
        Suite::AesCm128HmacSha1 => vec![
            (is::CIPHER, is::CIPHER_CM),
            (is::KEY_BYTES, 16),
            (is::MAC, 1),
            (is::MAC_KEY_BYTES, 20),
            (is::ENCRYPTS_RTP, 1),
            (is::ENCRYPTS_RTCP, 1),
            (is::AUTHENTICATES, 1),
            (is::TAG_BYTES, 10),
        ],
        Suite::AeadAes128Gcm => vec![
            (is::CIPHER, is::CIPHER_GCM),
            (is::KEY_BYTES, 16),
            (is::MAC, 0),
            (is::ENCRYPTS_RTP, 1),
            (is::ENCRYPTS_RTCP, 1),
            (is::AEAD_TAG_BYTES, 16),
        ],
    }
}

/// The suite whose policy this is: what is not said is as RFC 3830 has it.
fn suite_of(said: &[(u8, u8)]) -> Option<Suite> {
    use policy as is;
    let cipher = said.iter().find(|(name, _)| *name == is::CIPHER);
    let suite = match cipher.map_or(is::CIPHER_CM, |(_, cipher)| *cipher) {
        is::CIPHER_CM => Suite::AesCm128HmacSha1,
        is::CIPHER_GCM => Suite::AeadAes128Gcm,
        _ => return None,
    };
    let is_gcm = suite == Suite::AeadAes128Gcm;
    let salt_bytes = u8::try_from(suite.salt_bytes()).expect("14");
    let is_ours = said.iter().all(|&(name, value)| match name {
        is::KEY_BYTES => value == 16,
        is::MAC => is_gcm || value == 1,
        // GStreamer says here how long the tag is.
        is::MAC_KEY_BYTES => is_gcm || value == 20 || value == 10,
        is::SALT_BYTES => value == salt_bytes,
        is::PRF | is::KEY_RATE => value == 0,
        is::ENCRYPTS_RTP | is::ENCRYPTS_RTCP => value == 1,
        is::AUTHENTICATES => is_gcm || value == 1,
        is::TAG_BYTES => is_gcm || value == 10,
        is::AEAD_TAG_BYTES => value == 16,
        _ => true,
    });
    is_ours.then_some(suite)
}

/// What is left of a message.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], MikeyError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(MikeyError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MikeyError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many as were taken"))
    }

    /// Bytes behind their number, which has two.
    fn counted(&mut self) -> Result<&'a [u8], MikeyError> {
        let bytes = u16::from_be_bytes(self.array()?);
        self.take(bytes.into())
    }

    fn sessions(&mut self) -> Result<Vec<CryptoSession>, MikeyError> {
        let [count, map] = self.array()?;
        if map != 0 {
            return Err(MikeyError::Kind);
        }
        if usize::from(count) > SESSIONS_MAX {
            return Err(MikeyError::TooLong);
        }
        let session = |reader: &mut Self| {
            let [_policy] = reader.array()?;
            Ok(CryptoSession {
                ssrc: u32::from_be_bytes(reader.array()?),
                rollover: u32::from_be_bytes(reader.array()?),
            })
        };
        (0..count).map(|_| session(self)).collect()
    }

    /// A counter is no time.
    fn time(&mut self) -> Result<u64, MikeyError> {
        match self.array()? {
            [0 | 1] => Ok(u64::from_be_bytes(self.array()?)),
            [2] => self.array::<4>().map(|_| 0),
            _ => Err(MikeyError::Malformed),
        }
    }

    /// The suite, if it is one of ours.
    fn policy(&mut self) -> Result<Option<Suite>, MikeyError> {
        let [_number, protocol] = self.array()?;
        let mut said = Self {
            rest: self.counted()?,
        };
        let mut all = Vec::new();
        while !said.rest.is_empty() {
            let [name, bytes] = said.array()?;
            // What is longer is large, or not a number.
            let value = match said.take(bytes.into())? {
                [before @ .., value] if before.iter().all(|&byte| byte == 0) => *value,
                _ => u8::MAX,
            };
            all.push((name, value));
        }
        Ok(suite_of(&all).filter(|_| protocol == 0))
    }

    /// The first key that packets are encrypted with, with its salt.
    fn kemac(&mut self) -> Result<Vec<u8>, MikeyError> {
        let [encryption] = self.array()?;
        let mut keys = Self {
            rest: self.counted()?,
        };
        let [authentication] = self.array()?;
        if (encryption, authentication) != (0, 0) {
            return Err(MikeyError::Kind);
        }
        let [_next, kind] = keys.array()?;
        let key = keys.counted()?;
        match kind >> 4 {
            TEK => Ok(key.to_vec()),
            TEK_WITH_SALT => Ok([key, keys.counted()?].concat()),
            _ => Err(MikeyError::Key),
        }
    }
}

/// Two bytes that say a length.
fn length(bytes: usize) -> [u8; 2] {
    let bytes = u16::try_from(bytes).expect("a key and a policy are short");
    bytes.to_be_bytes()
}

/// The message in a `KeyMgmt` header (RFC 4567, section 3.2).
///
/// # Errors
///
/// See [`MikeyError`].
pub fn parse_key_mgmt(value: &str) -> Result<MikeyMessage, MikeyError> {
    let (mut is_mikey, mut data) = (false, None);
    for part in value.split(';') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        // Base64 ends in equals signs.
        let value = value.trim().trim_matches('"');
        match name.trim().to_ascii_lowercase().as_str() {
            "prot" => is_mikey = value.eq_ignore_ascii_case("mikey"),
            "data" => data = Some(value),
            _ => {}
        }
    }
    let data = data.filter(|_| is_mikey).ok_or(MikeyError::Header)?;
    if data.len() > KEY_MGMT_BYTES_MAX.div_ceil(3) * 4 {
        return Err(MikeyError::TooLong);
    }
    let bytes = STANDARD.decode(data).map_err(|_| MikeyError::Header)?;
    MikeyMessage::parse(&bytes)
}

/// A `KeyMgmt` header's value with that message, about that URL.
#[must_use]
pub fn key_mgmt_header(message: &MikeyMessage, url: &str) -> String {
    let url: String = url.chars().filter(|c| !"\"\r\n".contains(*c)).collect();
    let data = STANDARD.encode(message.to_bytes());
    format!("prot=mikey;uri=\"{url}\";data=\"{data}\"")
}

impl std::fmt::Display for MikeyMessage {
    /// As `a=key-mgmt` has it (RFC 4567, section 3.1).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mikey {}", STANDARD.encode(self.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(suite: Suite) -> MikeyMessage {
        let key: Vec<u8> = (0..).take(suite.master_bytes()).collect();
        MikeyMessage {
            bundle: 0x0102_0304,
            sessions: vec![CryptoSession {
                ssrc: 0xcafe_babe,
                rollover: 3,
            }],
            ntp: 0xe000_0000_8000_0000,
            random: vec![5; 16],
            key: MasterKey::new(suite, &key).unwrap(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
            let message = message(suite);
            assert_eq!(
                MikeyMessage::parse(&message.to_bytes()),
                Ok(message.clone())
            );
            let header = key_mgmt_header(&message, "rtsps://h/a\"b");
            assert_eq!(parse_key_mgmt(&header), Ok(message));
        }
    }

    /// Byte by byte as RFC 3830 draws it, so that not only our own reader takes it.
    #[test]
    fn a_message_on_the_wire() {
        let expected = [
            &[1, 0, 5, 0, 1, 2, 3, 4, 1, 0][..],
            &[0, 0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 3],
            &[11, 0, 0xe0, 0, 0, 0, 0x80, 0, 0, 0],
            &[10, 16, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
            &[1, 0, 0, 0, 24, 0, 1, 1, 1, 1, 16, 2, 1, 1, 3, 1, 20],
            &[7, 1, 1, 8, 1, 1, 10, 1, 1, 11, 1, 10],
            &[0, 0, 0, 34, 0, 0x20, 0, 30],
            &(0..30).collect::<Vec<u8>>(),
            &[0],
        ];
        assert_eq!(message(Suite::default()).to_bytes(), expected.concat());
    }

    #[test]
    fn a_key_and_its_salt_may_stand_apart() {
        let bytes = message(Suite::default()).to_bytes();
        let (head, key) = bytes.split_at(bytes.len() - 35);
        assert_eq!(key[..5], [0, 0x20, 0, 30, 0]);
        let mut apart = head.to_vec();
        let length = apart.len() - 1;
        apart[length] += 2;
        apart.extend([0, 0x30, 0, 16]);
        apart.extend(&key[4..20]);
        apart.extend([0, 14]);
        apart.extend(&key[20..]);
        let parsed = MikeyMessage::parse(&apart).unwrap();
        assert_eq!(parsed.key, message(Suite::default()).key);
    }

    #[test]
    fn what_gstreamer_tells_is_read() {
        let header = "prot=mikey;uri=\"rtsp://127.0.0.1:18999/a/track1\";data=\"\
                      AQAFANkFEC4BAAAVTOhZAAAAAAsA7q4fyzabnX8KEClOChVmIOMVQ1QyjpZjQi4BAAAAFQAB\
                      AQEBEAIBAQMBCgcBAQgBAQoBAQAAACIAIAAeXBIAW9oYdbEELjaTVtH8y2lDdA5sAumPJxRA\
                      g4l5AA==\"";
        let message = parse_key_mgmt(header).unwrap();
        assert_eq!(message.sessions[0].ssrc, 0x154c_e859);
        assert_eq!(message.key.suite(), Suite::AesCm128HmacSha1);
        assert_eq!(message.key.to_bytes()[..4], [0x5c, 0x12, 0x00, 0x5b]);
    }

    #[test]
    fn what_is_not_served_is_told() {
        use MikeyError::{Header, Key, Kind, Malformed, Policy, TooLong};
        let good = message(Suite::default()).to_bytes();
        let (policy, kemac) = (47, 76);
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            MikeyMessage::parse(&bytes).unwrap_err()
        };
        assert_eq!(changed(0, 2), Malformed);
        assert_eq!(changed(1, 2), Kind, "a public key");
        assert_eq!(changed(9, 1), Kind, "not SRTP's map");
        assert_eq!(changed(8, 17), TooLong);
        assert_eq!(changed(8, 16), Malformed);
        assert_eq!(changed(policy + 7, 0), Policy, "no encryption");
        assert_eq!(changed(policy + 10, 32), Policy, "AES-256");
        assert_eq!(changed(policy + 28, 4), Policy, "a tag of 32 bits");
        assert_eq!(changed(kemac + 1, 1), Kind, "encrypted");
        assert_eq!(changed(kemac + 5, 0), Key, "a TGK");
        assert_eq!(changed(good.len() - 1, 1), Kind, "authenticated");
        assert_eq!(
            MikeyMessage::parse(&[1; KEY_MGMT_BYTES_MAX + 1]),
            Err(TooLong)
        );
        for bytes in 0..good.len() {
            assert!(MikeyMessage::parse(&good[..bytes]).is_err(), "{bytes}");
        }
        for header in [
            "",
            "prot=mikey",
            "prot=x;data=\"AQ==\"",
            "prot=mikey;data=\"%\"",
        ] {
            assert_eq!(parse_key_mgmt(header), Err(Header), "{header}");
        }
        let long = format!("prot=mikey;data={}", "A".repeat(1372));
        assert_eq!(parse_key_mgmt(&long), Err(TooLong));
    }

    proptest! {
        #[test]
        fn noise_never_panics(
            at in 0usize..140, to: u8, cut in 0usize..140, noise in ".{0,80}"
        ) {
            let mut bytes = message(Suite::default()).to_bytes();
            let at = at % bytes.len();
            bytes[at] = to;
            bytes.truncate(cut);
            if let Ok(message) = MikeyMessage::parse(&bytes) {
                prop_assert_eq!(MikeyMessage::parse(&message.to_bytes()), Ok(message));
            }
            parse_key_mgmt(&noise).err();
        }
    }
}
