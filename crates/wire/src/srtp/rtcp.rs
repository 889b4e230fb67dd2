//! RTCP packets (RFC 3711, section 3.4; RFC 7714, section 9).

use super::keys::{Cipher, MasterKey, PacketId, RTCP};
use super::{ReplayWindow, SrtpError};

/// Bytes in front of what is encrypted: the first header, and the sender's SSRC.
const HEAD_BYTES: usize = 8;

/// Bytes of the index, with the bit that says whether the packet is encrypted.
const INDEX_BYTES: usize = 4;

/// The bit in front of the index that says it.
const ENCRYPTED: u32 = 1 << 31;

/// Encrypts what one end sends.
#[derive(Clone, Debug)]
pub struct RtcpSender {
    cipher: Cipher,
    /// Of the next packet.
    index: u32,
}

/// Decrypts what one end receives, each packet once.
#[derive(Clone, Debug)]
pub struct RtcpReceiver {
    cipher: Cipher,
    window: ReplayWindow,
}

impl RtcpSender {
    /// Whose packets are encrypted with that key.
    #[must_use]
    pub fn new(master: &MasterKey) -> Self {
        Self {
            cipher: master.cipher(RTCP),
            index: 1,
        }
    }

    /// A compound packet, encrypted.
    ///
    /// # Errors
    ///
    /// [`SrtpError::Malformed`] if it has no SSRC, [`SrtpError::KeyUsedUp`] beyond 2^31 packets.
    pub fn protect(&mut self, packet: &[u8]) -> Result<Vec<u8>, SrtpError> {
        let ssrc = ssrc_of(packet)?;
        if self.index >= ENCRYPTED {
            return Err(SrtpError::KeyUsedUp);
        }
        let index = self.index;
        self.index += 1;
        let mut sealed = packet.to_vec();
        let (head, payload) = sealed.split_at_mut(HEAD_BYTES);
        let trailer = (ENCRYPTED | index).to_be_bytes();
        let id = PacketId {
            ssrc,
            index: index.into(),
        };
        let tag = self.cipher.encrypt(id, [head, &trailer], payload);
        let trailing: [&[u8]; 2] = match self.cipher.is_aead() {
            true => [tag.as_ref(), &trailer],
            false => [&trailer, tag.as_ref()],
        };
        sealed.extend(trailing.concat());
        Ok(sealed)
    }
}

impl RtcpReceiver {
    /// Whose packets are encrypted with that key.
    #[must_use]
    pub fn new(master: &MasterKey) -> Self {
        Self {
            cipher: master.cipher(RTCP),
            window: ReplayWindow::default(),
        }
    }

    /// What was encrypted; one that is only authenticated is accepted, too (RFC 3711, section
    /// 3.4: the E bit is the sender's choice).
    ///
    /// # Errors
    ///
    /// See [`SrtpError`].
    pub fn unprotect(&mut self, packet: &[u8]) -> Result<Vec<u8>, SrtpError> {
        let ssrc = ssrc_of(packet)?;
        let tag_bytes = self.cipher.tag_bytes();
        let bytes = packet.len().checked_sub(INDEX_BYTES + tag_bytes);
        let bytes = bytes.filter(|&bytes| bytes >= HEAD_BYTES);
        let bytes = bytes.ok_or(SrtpError::Malformed)?;
        let (plain, trailing) = packet.split_at(bytes);
        let (trailer, tag) = match self.cipher.is_aead() {
            true => {
                let (tag, trailer) = trailing.split_at(tag_bytes);
                (trailer, tag)
            }
            false => trailing.split_at(INDEX_BYTES),
        };
        let word = u32::from_be_bytes(trailer.try_into().expect("four bytes"));
        let index = u64::from(word & !ENCRYPTED);
        if !self.window.is_new(index) {
            return Err(SrtpError::Replayed);
        }
        let id = PacketId { ssrc, index };
        let opened = match word & ENCRYPTED != 0 {
            true => {
                let mut payload = [&plain[HEAD_BYTES..], tag].concat();
                let head = &plain[..HEAD_BYTES];
                let opened = self.cipher.decrypt(id, [head, trailer], &mut payload);
                payload.truncate(bytes - HEAD_BYTES);
                opened.map(|()| [head, &payload].concat())
            }
            false => self
                .is_authentic(id, [plain, trailer], tag)
                .map(|()| plain.to_vec()),
        };
        let opened = opened.ok_or(SrtpError::Authentication)?;
        self.window.insert(index);
        Ok(opened)
    }

    /// Whether the tag is that of a packet that is not encrypted.
    fn is_authentic(&self, id: PacketId, [plain, trailer]: [&[u8]; 2], tag: &[u8]) -> Option<()> {
        match self.cipher.is_aead() {
            false => self.cipher.is_mac([plain, trailer, &[]], tag),
            true if plain.len() <= super::keys::HEADER_BYTES_MAX => {
                self.cipher.decrypt(id, [plain, trailer], &mut tag.to_vec())
            }
            true => None,
        }
    }
}

fn ssrc_of(packet: &[u8]) -> Result<u32, SrtpError> {
    let head: &[u8; HEAD_BYTES] = packet.first_chunk().ok_or(SrtpError::Malformed)?;
    let [_, _, _, _, x0, x1, x2, x3] = *head;
    Ok(u32::from_be_bytes([x0, x1, x2, x3]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Suite;
    use super::super::testing::hex;
    use super::*;

    fn gcm() -> Cipher {
        let key = hex("000102030405060708090a0b0c0d0e0f").try_into().unwrap();
        let salt = hex("517569642070726f2071756f").try_into().unwrap();
        Cipher::gcm(&key, salt)
    }

    const PLAIN: &str = "81c8000d4d6172734e5450314e545032525450200000042a0000e9304c756e61\
                         deadbeefdeadbeefdeadbeefdeadbeefdeadbeef";

    /// RFC 7714, sections 17.1 and 17.3.
    #[test]
    fn packets_of_rfc_7714() {
        let mut sender = RtcpSender {
            cipher: gcm(),
            index: 0x5d4,
        };
        let mut receiver = RtcpReceiver {
            cipher: gcm(),
            window: ReplayWindow::default(),
        };
        let sealed = hex(
            "81c8000d4d61727363e94885dcdab67ca727d7662f6b7e997ff5c0f76c06f32dc676\
                          a5f1730d6fda4ce09b4686303ded0bb9275bc84aa45896cf4d2fc5abf87245d9eade\
                          800005d4",
        );
        assert_eq!(sender.protect(&hex(PLAIN)).unwrap(), sealed);
        assert_eq!(receiver.unprotect(&sealed).unwrap(), hex(PLAIN));
        assert_eq!(receiver.unprotect(&sealed), Err(SrtpError::Replayed));
        let tagged = [hex(PLAIN), hex("841dd9683dd78ec92ae58790125f62b3000005d4")];
        receiver.window = ReplayWindow::default();
        assert_eq!(receiver.unprotect(&tagged.concat()).unwrap(), hex(PLAIN));
    }

    fn master(suite: Suite) -> MasterKey {
        MasterKey::new(suite, &vec![9; suite.master_bytes()]).unwrap()
    }

    #[test]
    fn each_is_accepted_once_and_unchanged() {
        for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
            let mut sender = RtcpSender::new(&master(suite));
            let mut receiver = RtcpReceiver::new(&master(suite));
            let sealed = [1, 2].map(|_| sender.protect(&hex(PLAIN)).unwrap());
            assert_ne!(sealed[0], sealed[1], "each has an index of its own");
            for sealed in sealed {
                for bit in 0..sealed.len() * 8 {
                    let mut changed = sealed.clone();
                    changed[bit / 8] ^= 1 << (bit % 8);
                    assert!(receiver.unprotect(&changed).is_err(), "bit {bit}");
                }
                assert_eq!(receiver.unprotect(&sealed).unwrap(), hex(PLAIN));
                assert_eq!(receiver.unprotect(&sealed), Err(SrtpError::Replayed));
            }
        }
    }

    #[test]
    fn a_key_is_used_for_so_many_packets() {
        let mut sender = RtcpSender::new(&master(Suite::default()));
        sender.index = ENCRYPTED - 1;
        assert!(sender.protect(&hex(PLAIN)).is_ok());
        assert_eq!(sender.protect(&hex(PLAIN)), Err(SrtpError::KeyUsedUp));
    }

    proptest! {
        #[test]
        fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
                let mut receiver = RtcpReceiver::new(&master(suite));
                prop_assert!(receiver.unprotect(&bytes).is_err());
            }
        }
    }
}
