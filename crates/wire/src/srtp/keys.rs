//! Master keys, and the session keys that are derived of them (RFC 3711, section 4.3).

use aes::Aes128Enc;
use aes::cipher::{InnerIvInit, KeyInit, StreamCipher, StreamCipherCoreWrapper};
use ctr::CtrCore;
use ctr::flavors::Ctr128BE;
use hmac::{Hmac, Mac};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use sha1::Sha1;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::tags::{CM_TAG_BYTES, Tags};

/// How packets are encrypted and authenticated.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Suite {
    /// AES-128 in counter mode and HMAC-SHA1 of 80 bits (RFC 3711), which every client has.
    #[default]
    AesCm128HmacSha1,
    /// AES-128 in Galois/counter mode (RFC 7714).
    AeadAes128Gcm,
}

impl Suite {
    /// Its name in `a=crypto` (RFC 4568, section 6.2; RFC 7714, section 14.2).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AesCm128HmacSha1 => "AES_CM_128_HMAC_SHA1_80",
            Self::AeadAes128Gcm => "AEAD_AES_128_GCM",
        }
    }

    /// Bytes that an RTP packet is longer by.
    #[must_use]
    pub const fn tag_bytes(self) -> usize {
        match self {
            Self::AesCm128HmacSha1 => CM_TAG_BYTES,
            Self::AeadAes128Gcm => GCM_TAG_BYTES,
        }
    }

    /// Bytes of a master salt.
    #[must_use]
    pub const fn salt_bytes(self) -> usize {
        match self {
            Self::AesCm128HmacSha1 => 14,
            Self::AeadAes128Gcm => 12,
        }
    }

    /// Bytes of a master key with its salt behind it.
    #[must_use]
    pub const fn master_bytes(self) -> usize {
        KEY_BYTES + self.salt_bytes()
    }
}

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;

const GCM_TAG_BYTES: usize = 16;

/// A master key with its salt. Its bytes are not shown, and wiped from memory when it is dropped.
#[derive(Clone, Eq, PartialEq)]
pub struct MasterKey {
    suite: Suite,
    key: [u8; KEY_BYTES],
    /// Behind a shorter one zeros: RFC 7714 puts it so into the derivation of RFC 3711.
    salt: [u8; 14],
}

impl MasterKey {
    /// Of a key with its salt behind it; `None` unless there are as many bytes as the suite has.
    #[must_use]
    pub fn new(suite: Suite, key_and_salt: &[u8]) -> Option<Self> {
        let (key, salt_bytes) = key_and_salt.split_first_chunk()?;
        let mut salt = [0; 14];
        if salt_bytes.len() != suite.salt_bytes() {
            return None;
        }
        salt[..salt_bytes.len()].copy_from_slice(salt_bytes);
        Some(Self {
            suite,
            key: *key,
            salt,
        })
    }

    /// What it is for.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// The key with its salt behind it, as it is told to clients.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.key[..], &self.salt[..self.suite.salt_bytes()]].concat()
    }

    /// The cipher for what has these labels (RFC 3711, section 4.3.2).
    pub(super) fn cipher(&self, labels: Labels) -> Cipher {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        self.derive(labels.encryption, &mut *key);
        let mut salt = [0; 14];
        self.derive(labels.salt, &mut salt[..self.suite.salt_bytes()]);
        match self.suite {
            Suite::AesCm128HmacSha1 => {
                let mut authentication = Zeroizing::new([0; 20]);
                self.derive(labels.authentication, &mut *authentication);
                Cipher::cm(&key, salt, &authentication)
            }
            Suite::AeadAes128Gcm => {
                let (salt, _) = salt.split_first_chunk().expect("it is longer");
                Cipher::gcm(&key, *salt)
            }
        }
    }

    fn derive(&self, label: u8, derived: &mut [u8]) {
        let mut iv = [0; 16];
        iv[..14].copy_from_slice(&self.salt);
        iv[7] ^= label;
        derived.fill(0);
        key_stream(&Aes128Enc::new(&self.key.into()), iv, derived);
    }
}

impl Drop for MasterKey {
    fn drop(&mut self) {
        self.key.zeroize();
        self.salt.zeroize();
    }
}

impl ZeroizeOnDrop for MasterKey {}

// Of what is derived of it, round keys of AES are wiped by their crate. Not so ring's keys, and
// what HMAC begins with: each packet begins with a copy of that, which would be wiped with it, and
// nothing is read by it.
const _: () = {
    const fn is_wiped<T: ZeroizeOnDrop>() {}
    is_wiped::<MasterKey>();
    is_wiped::<Aes128Enc>();
};

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let suite = &self.suite;
        f.debug_struct("MasterKey")
            .field("suite", suite)
            .finish_non_exhaustive()
    }
}

/// What session keys are derived for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labels {
    encryption: u8,
    authentication: u8,
    salt: u8,
}

/// For RTP, and for RTCP.
pub(super) const RTP: Labels = Labels {
    encryption: 0,
    authentication: 1,
    salt: 2,
};
pub(super) const RTCP: Labels = Labels {
    encryption: 3,
    authentication: 4,
    salt: 5,
};

/// Session keys, ready to be used.
#[derive(Clone)]
pub(super) enum Cipher {
    Cm {
        aes: Box<Aes128Enc>,
        salt: [u8; 14],
        hmac: Hmac<Sha1>,
        /// The same key, for several messages at once.
        tags: Tags,
    },
    Gcm {
        key: Box<LessSafeKey>,
        salt: [u8; 12],
    },
}

/// Which packet is meant: in counter mode its whole index, in Galois/counter mode that in six
/// bytes.
#[derive(Clone, Copy)]
pub(super) struct PacketId {
    pub(super) ssrc: u32,
    /// 48 bits of RTP's, 31 of RTCP's.
    pub(super) index: u64,
}

impl Cipher {
    pub(super) fn cm(key: &[u8; KEY_BYTES], salt: [u8; 14], authentication: &[u8; 20]) -> Self {
        Self::Cm {
            aes: Box::new(Aes128Enc::new(key.into())),
            salt,
            hmac: Hmac::new_from_slice(authentication).expect("any length is a key"),
            tags: Tags::new(authentication),
        }
    }

    pub(super) fn gcm(key: &[u8; KEY_BYTES], salt: [u8; 12]) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, key).expect("16 bytes are a key");
        Self::Gcm {
            key: Box::new(LessSafeKey::new(key)),
            salt,
        }
    }

    pub(super) fn tag_bytes(&self) -> usize {
        match self {
            Self::Cm { .. } => CM_TAG_BYTES,
            Self::Gcm { .. } => GCM_TAG_BYTES,
        }
    }

    /// Encrypts `payload` in counter mode, and says what makes its tag; in Galois/counter mode,
    /// where that is one with encryption, it does nothing.
    pub(super) fn encrypt_untagged(&self, packet: PacketId, payload: &mut [u8]) -> Option<&Tags> {
        let Self::Cm {
            aes, salt, tags, ..
        } = self
        else {
            return None;
        };
        key_stream(aes, cm_iv(salt, packet), payload);
        Some(tags)
    }

    /// Encrypts `payload`, and says its tag, that of Galois/counter mode with `header` and `more`;
    /// that of counter mode is [made](Self::mac) of all of it.
    pub(super) fn encrypt(
        &self,
        packet: PacketId,
        [header, more]: [&[u8]; 2],
        payload: &mut [u8],
    ) -> Tag {
        match self {
            Self::Cm { aes, salt, .. } => {
                key_stream(aes, cm_iv(salt, packet), payload);
                self.mac([header, payload, more])
            }
            Self::Gcm { key, salt } => {
                let (aad, bytes) = joined(header, more);
                let nonce = Nonce::assume_unique_for_key(gcm_iv(salt, packet));
                let tag = key
                    .seal_in_place_separate_tag(nonce, Aad::from(&aad[..bytes]), payload)
                    .expect("a packet is below what one key stream encrypts");
                Tag::new(tag.as_ref())
            }
        }
    }

    /// Decrypts `payload`, in which the tag stands behind what is encrypted, unless the tag is
    /// wrong; then `None`, and what is left there is no one's.
    pub(super) fn decrypt(
        &self,
        packet: PacketId,
        [header, more]: [&[u8]; 2],
        payload: &mut [u8],
    ) -> Option<()> {
        let bytes = payload.len().checked_sub(self.tag_bytes())?;
        match self {
            Self::Cm { aes, salt, .. } => {
                let (payload, tag) = payload.split_at_mut(bytes);
                self.is_mac([header, payload, more], tag)?;
                key_stream(aes, cm_iv(salt, packet), payload);
            }
            Self::Gcm { key, salt } => {
                let (aad, bytes) = joined(header, more);
                let nonce = Nonce::assume_unique_for_key(gcm_iv(salt, packet));
                key.open_in_place(nonce, Aad::from(&aad[..bytes]), payload)
                    .ok()?;
            }
        }
        Some(())
    }

    /// Whether it only authenticates with the whole in the header's place.
    pub(super) fn is_aead(&self) -> bool {
        matches!(self, Self::Gcm { .. })
    }

    fn mac(&self, pieces: [&[u8]; 3]) -> Tag {
        let Self::Cm { hmac, .. } = self else {
            unreachable!("Galois/counter mode has its own tag");
        };
        let mut hmac = hmac.clone();
        pieces.iter().for_each(|piece| hmac.update(piece));
        Tag::new(&hmac.finalize().into_bytes()[..CM_TAG_BYTES])
    }

    /// In a time that does not say where they differ.
    pub(super) fn is_mac(&self, pieces: [&[u8]; 3], tag: &[u8]) -> Option<()> {
        let Self::Cm { hmac, .. } = self else {
            return None;
        };
        let mut hmac = hmac.clone();
        pieces.iter().for_each(|piece| hmac.update(piece));
        (tag.len() == CM_TAG_BYTES).then_some(())?;
        hmac.verify_truncated_left(tag).ok()
    }
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cipher").finish_non_exhaustive()
    }
}

/// A tag of either suite.
pub(super) struct Tag {
    bytes: [u8; GCM_TAG_BYTES],
    len: usize,
}

impl Tag {
    fn new(tag: &[u8]) -> Self {
        let (mut bytes, len) = ([0; GCM_TAG_BYTES], tag.len());
        bytes[..len].copy_from_slice(tag);
        Self { bytes, len }
    }
}

impl AsRef<[u8]> for Tag {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The most that is authenticated and not encrypted: an RTP header with 15 contributing sources
/// and an extension of 64 words; longer ones are refused.
pub(super) const HEADER_BYTES_MAX: usize = 12 + 15 * 4 + 4 + 64 * 4;

/// Bytes of what stands behind a header in what is authenticated.
const MORE_BYTES_MAX: usize = 4;

fn joined(header: &[u8], more: &[u8]) -> ([u8; HEADER_BYTES_MAX + MORE_BYTES_MAX], usize) {
    let mut joined = [0; HEADER_BYTES_MAX + MORE_BYTES_MAX];
    let bytes = header.len() + more.len();
    joined[..header.len()].copy_from_slice(header);
    joined[header.len()..bytes].copy_from_slice(more);
    (joined, bytes)
}

fn key_stream(aes: &Aes128Enc, iv: [u8; 16], data: &mut [u8]) {
    let core = CtrCore::<&Aes128Enc, Ctr128BE>::inner_iv_init(aes, &iv.into());
    StreamCipherCoreWrapper::from_core(core).apply_keystream(data);
}

/// RFC 3711, section 4.1.1.
fn cm_iv(salt: &[u8; 14], PacketId { ssrc, index }: PacketId) -> [u8; 16] {
    let mut iv = [0; 16];
    iv[..14].copy_from_slice(salt);
    xor(&mut iv[4..8], &ssrc.to_be_bytes());
    xor(&mut iv[8..14], &index.to_be_bytes()[2..]);
    iv
}

/// RFC 7714, sections 8.1 and 9.1, which number alike.
fn gcm_iv(salt: &[u8; 12], PacketId { ssrc, index }: PacketId) -> [u8; 12] {
    let mut iv = *salt;
    xor(&mut iv[2..6], &ssrc.to_be_bytes());
    xor(&mut iv[6..12], &index.to_be_bytes()[2..]);
    iv
}

fn xor(bytes: &mut [u8], with: &[u8]) {
    bytes.iter_mut().zip(with).for_each(|(a, b)| *a ^= b);
}

#[cfg(test)]
mod tests {
    use super::super::testing::hex;
    use super::*;

    /// RFC 3711, appendix B.2.
    #[test]
    fn key_stream_of_rfc_3711() {
        let aes = Aes128Enc::new_from_slice(&hex("2B7E151628AED2A6ABF7158809CF4F3C")).unwrap();
        let salt = hex("F0F1F2F3F4F5F6F7F8F9FAFBFCFD").try_into().unwrap();
        let iv = cm_iv(&salt, PacketId { ssrc: 0, index: 0 });
        let mut stream = vec![0; 0xff02 * 16];
        key_stream(&aes, iv, &mut stream);
        let first = "E03EAD0935C95E80E166B16DD92B4EB4D23513162B02D0F72A43A2FE4A5F97AB\
                     41E95B3BB0A2E8DD477901E4FCA894C0";
        assert_eq!(stream[..48], hex(first));
        let last = "EC8CDF7398607CB0F2D21675EA9EA1E4362B7C3C6773516318A077D7FC5073AE\
                    6A2CC3787889374FBEB4C81B17BA6C44";
        assert_eq!(stream[0xfeff * 16..][..48], hex(last));
    }

    /// RFC 3711, appendix B.3.
    #[test]
    fn keys_derived_of_rfc_3711() {
        let master = hex("E1F97A0D3E018BE0D64FA32C06DE41390EC675AD498AFEEBB6960B3AABE6");
        let master = MasterKey::new(Suite::AesCm128HmacSha1, &master).unwrap();
        let derived = |label, bytes| {
            let mut derived = vec![0; bytes];
            master.derive(label, &mut derived);
            derived
        };
        assert_eq!(derived(0, 16), hex("C61E7A93744F39EE10734AFE3FF7A087"));
        assert_eq!(derived(2, 14), hex("30CBBC08863D8C85D49DB34A9AE1"));
        let authentication = "CEBE321F6FF7716B6FD4AB49AF256A156D38BAA48F0A0ACF3C34E2359E6CDBCE\
                              E049646C43D9327AD175578EF72270986371C10C9A369AC2F94A8C5FBCDDDC25\
                              6D6E919A48B610EF17C2041E474035766B68642C59BBFC2F34DB60DBDFB2";
        assert_eq!(derived(1, 94), hex(authentication));
    }

    #[test]
    fn a_master_key_has_as_many_bytes_as_its_suite() {
        for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
            for bytes in 0..40 {
                let key = MasterKey::new(suite, &vec![7; bytes]);
                assert_eq!(key.is_some(), bytes == suite.master_bytes(), "{bytes}");
                assert!(key.is_none_or(|key| key.to_bytes() == vec![7; bytes]));
            }
        }
        let key = MasterKey::new(Suite::AeadAes128Gcm, &[7; 28]).unwrap();
        assert!(!format!("{key:?}").contains('7'), "its bytes are not shown");
    }
}
