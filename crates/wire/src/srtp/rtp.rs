//! RTP packets (RFC 3711, section 3.1).

use super::keys::{Cipher, HEADER_BYTES_MAX, MasterKey, PacketId, RTP};
use super::tags::{CompressEach, PACKETS_AT_ONCE};
use super::{ReplayWindow, SrtpError};
use crate::rtp::HEADER_BYTES;

/// What RTP packets of any SSRC are encrypted and decrypted with: session keys, and no state.
#[derive(Clone, Debug)]
pub struct RtpKeys {
    cipher: Cipher,
}

/// The index of the packet with this sequence number that is nearest to one with index `near` (RFC
/// 3711, section 3.3.1): how often sequence numbers have wrapped, and the number.
#[must_use]
pub fn index_of(sequence: u16, near: u64) -> u64 {
    const TURN: u64 = 1 << 16;
    let index = near & !(TURN - 1) | u64::from(sequence);
    match index.cast_signed() - near.cast_signed() {
        above if above > 1 << 15 => index.checked_sub(TURN).unwrap_or(index),
        above if above < -(1 << 15) => index + TURN,
        _ => index,
    }
}

/// The index of a sender's packet with this sequence number that follows one with index `last`, or
/// is the same: never a lower one, which its key was used for already.
#[must_use]
pub fn next_index(sequence: u16, last: u64) -> u64 {
    let [.., high, low] = last.to_be_bytes();
    let ahead = sequence.wrapping_sub(u16::from_be_bytes([high, low]));
    last + u64::from(ahead)
}

/// One more than the last index (RFC 3711, section 3.3.1).
const INDEX_END: u64 = 1 << 48;

impl RtpKeys {
    /// Of that master key.
    #[must_use]
    pub fn new(master: &MasterKey) -> Self {
        Self {
            cipher: master.cipher(RTP),
        }
    }

    /// Bytes that a packet is longer by.
    #[must_use]
    pub fn tag_bytes(&self) -> usize {
        self.cipher.tag_bytes()
    }

    /// Encrypts a packet where it lies, with room for [the tag](Self::tag_bytes) behind it. No
    /// index may be used twice with one SSRC.
    ///
    /// # Errors
    ///
    /// [`SrtpError::Malformed`] if there is no whole packet with that room, or its header is longer
    /// than 332 bytes; [`SrtpError::KeyUsedUp`] beyond 2^48 packets.
    pub fn protect(&self, index: u64, packet: &mut [u8]) -> Result<(), SrtpError> {
        if index >= INDEX_END {
            return Err(SrtpError::KeyUsedUp);
        }
        let bytes = packet.len().checked_sub(self.tag_bytes());
        let (packet, room) = packet.split_at_mut(bytes.ok_or(SrtpError::Malformed)?);
        let (header, ssrc) = header_of(packet)?;
        let (header, payload) = packet.split_at_mut(header);
        let (more, more_bytes) = self.more(index);
        let id = PacketId { ssrc, index };
        let tag = self
            .cipher
            .encrypt(id, [header, &more[..more_bytes]], payload);
        room.copy_from_slice(tag.as_ref());
        Ok(())
    }

    /// As [`Self::protect`], of packets with their indexes. In counter mode tags of up to
    /// [`PACKETS_AT_ONCE`] that follow each other and have one length are made together, by
    /// `compress`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::protect`]; then what lies there is nothing.
    pub fn protect_each(
        &self,
        packets: &mut [(u64, &mut [u8])],
        compress: CompressEach,
    ) -> Result<(), SrtpError> {
        if self.cipher.is_aead() {
            let mut packets = packets.iter_mut();
            return packets.try_for_each(|(index, packet)| self.protect(*index, packet));
        }
        for alike in packets.chunk_by_mut(|(_, a), (_, b)| a.len() == b.len()) {
            for together in alike.chunks_mut(PACKETS_AT_ONCE) {
                self.protect_together(together, compress)?;
            }
        }
        Ok(())
    }

    /// Packets of one length, in counter mode.
    fn protect_together(
        &self,
        packets: &mut [(u64, &mut [u8])],
        compress: CompressEach,
    ) -> Result<(), SrtpError> {
        let (mut tags, count) = (None, packets.len());
        for (index, packet) in packets.iter_mut() {
            if *index >= INDEX_END {
                return Err(SrtpError::KeyUsedUp);
            }
            let bytes = packet.len().checked_sub(self.tag_bytes());
            let (packet, _) = packet.split_at_mut(bytes.ok_or(SrtpError::Malformed)?);
            let (header, ssrc) = header_of(packet)?;
            let id = PacketId {
                ssrc,
                index: *index,
            };
            tags = self.cipher.encrypt_untagged(id, &mut packet[header..]);
        }
        let mut rest = packets.iter_mut();
        let mut lent: [(u32, &mut [u8]); PACKETS_AT_ONCE] = std::array::from_fn(|_| {
            let lent = rest.next();
            lent.map_or((0, &mut [][..]), |(index, it)| (wraps(*index), &mut **it))
        });
        if let Some(tags) = tags {
            tags.write(&mut lent[..count], compress);
        }
        Ok(())
    }

    /// Decrypts a packet of that index where it lies. Its bytes without the tag.
    ///
    /// # Errors
    ///
    /// [`SrtpError::Malformed`], or [`SrtpError::Authentication`]; then what lies there is nothing.
    pub fn unprotect<'a>(
        &self,
        index: u64,
        packet: &'a mut [u8],
    ) -> Result<&'a mut [u8], SrtpError> {
        let bytes = packet.len().checked_sub(self.tag_bytes());
        let bytes = bytes.ok_or(SrtpError::Malformed)?;
        let (header, ssrc) = header_of(&packet[..bytes])?;
        let (head, payload) = packet.split_at_mut(header);
        let (more, more_bytes) = self.more(index);
        let id = PacketId { ssrc, index };
        let decrypted = self
            .cipher
            .decrypt(id, [head, &more[..more_bytes]], payload);
        decrypted.ok_or(SrtpError::Authentication)?;
        Ok(&mut packet[..bytes])
    }

    /// What is authenticated behind a packet: how often numbers have wrapped. In Galois/counter
    /// mode that is in the IV alone.
    fn more(&self, index: u64) -> ([u8; 4], usize) {
        let bytes = if self.cipher.is_aead() { 0 } else { 4 };
        (wraps(index).to_be_bytes(), bytes)
    }
}

/// How often sequence numbers have wrapped at that index.
fn wraps(index: u64) -> u32 {
    u32::try_from(index >> 16 & 0xffff_ffff).expect("32 bits")
}

/// Decrypts the packets of one SSRC, each once.
#[derive(Clone, Debug)]
pub struct RtpReceiver {
    keys: RtpKeys,
    window: ReplayWindow,
}

impl RtpReceiver {
    /// Whose packets are encrypted with that key, and whose numbers have not wrapped before the
    /// first that comes.
    #[must_use]
    pub fn new(master: &MasterKey) -> Self {
        Self {
            keys: RtpKeys::new(master),
            window: ReplayWindow::default(),
        }
    }

    /// Decrypts a packet where it lies: its bytes, without the tag.
    ///
    /// # Errors
    ///
    /// As [`RtpKeys::unprotect`], and [`SrtpError::Replayed`].
    pub fn unprotect<'a>(&mut self, packet: &'a mut [u8]) -> Result<&'a mut [u8], SrtpError> {
        let sequence = packet.get(2..4).ok_or(SrtpError::Malformed)?;
        let sequence = u16::from_be_bytes([sequence[0], sequence[1]]);
        let near = self.window.highest().unwrap_or_else(|| sequence.into());
        let index = index_of(sequence, near);
        if !self.window.is_new(index) {
            return Err(SrtpError::Replayed);
        }
        let packet = self.keys.unprotect(index, packet)?;
        self.window.insert(index);
        Ok(packet)
    }
}

/// Bytes of a packet's header, with all that is not encrypted, and its SSRC.
pub(super) fn header_of(packet: &[u8]) -> Result<(usize, u32), SrtpError> {
    let fixed: &[u8; HEADER_BYTES] = packet.first_chunk().ok_or(SrtpError::Malformed)?;
    let [b0, .., x0, x1, x2, x3] = *fixed;
    let mut bytes = HEADER_BYTES + 4 * usize::from(b0 & 0x0f);
    if b0 & 0x10 != 0 {
        let words = packet.get(bytes + 2..bytes + 4);
        let words = words.ok_or(SrtpError::Malformed)?;
        bytes += 4 + 4 * usize::from(u16::from_be_bytes([words[0], words[1]]));
    }
    let is_one = b0 >> 6 == 2 && bytes <= packet.len() && bytes <= HEADER_BYTES_MAX;
    match is_one {
        true => Ok((bytes, u32::from_be_bytes([x0, x1, x2, x3]))),
        false => Err(SrtpError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::hex;
    use super::super::{Suite, compress_one_by_one};
    use super::*;

    /// RFC 7714, section 16.1.1.
    #[test]
    fn a_packet_of_rfc_7714() {
        let key = hex("000102030405060708090a0b0c0d0e0f").try_into().unwrap();
        let salt = hex("517569642070726f2071756f").try_into().unwrap();
        let keys = RtpKeys {
            cipher: Cipher::gcm(&key, salt),
        };
        let plain = hex(
            "8040f17b8041f8d35501a0b247616c6c696120657374206f6d6e69732064697669\
                         736120696e207061727465732074726573",
        );
        let sealed = hex(
            "8040f17b8041f8d35501a0b2f24de3a3fb34de6cacba861c9d7e4bcabe633bd50d29\
                          4e6f42a5f47a51c7d19b36de3adf8833899d7f27beb16a9152cf765ee4390cce",
        );
        let mut packet = plain.clone();
        packet.resize(plain.len() + 16, 0);
        keys.protect(0xf17b, &mut packet).unwrap();
        assert_eq!(packet, sealed);
        assert_eq!(keys.unprotect(0xf17b, &mut packet).unwrap(), plain);
    }

    /// The one of libsrtp's own test (`srtp_validate`), because RFC 3711 has none of whole packets.
    #[test]
    fn a_packet_of_libsrtp() {
        let master = hex("e1f97a0d3e018be0d64fa32c06de41390ec675ad498afeebb6960b3aabe6");
        let master = MasterKey::new(Suite::AesCm128HmacSha1, &master).unwrap();
        let plain = hex("800f1234decafbadcafebabeabababababababababababababababab");
        let sealed = hex("800f1234decafbadcafebabe4e55dc4ce79978d88ca4d215949d2402\
                          b78d6acc99ea179b8dbb");
        let mut packet = plain.clone();
        packet.resize(plain.len() + 10, 0);
        RtpKeys::new(&master).protect(0x1234, &mut packet).unwrap();
        assert_eq!(packet, sealed);
        let mut again = [&plain[..], &[0; 10]].concat();
        let mut together = [(0x1234, &mut again[..])];
        let keys = RtpKeys::new(&master);
        keys.protect_each(&mut together, compress_one_by_one)
            .unwrap();
        assert_eq!(again, sealed);
        let mut receiver = RtpReceiver::new(&master);
        let again = &mut packet.clone();
        assert_eq!(receiver.unprotect(&mut packet).unwrap(), plain);
        assert_eq!(receiver.unprotect(again), Err(SrtpError::Replayed));
    }

    #[test]
    fn an_index_is_the_nearest_of_its_number() {
        for (sequence, near, index) in [
            (5, 5, 5),
            (65_535, 0, 65_535),
            (0, 65_535, 65_536),
            (65_535, 65_536, 65_535),
            (0, 3 << 16 | 0xfff0, 4 << 16),
            (0xfff0, 3 << 16, 2 << 16 | 0xfff0),
            (0x8000, 3 << 16, 3 << 16 | 0x8000),
            (0x8001, 3 << 16, 2 << 16 | 0x8001),
        ] {
            assert_eq!(index_of(sequence, near), index, "{sequence} near {near}");
        }
    }

    #[test]
    fn a_sender_never_goes_back() {
        for (sequence, last, index) in [
            (7, 7, 7),
            (8, 7, 8),
            (6, 7, 1 << 16 | 6),
            (0, 65_535, 65_536),
            // What was left out is more than half of all numbers.
            (24_464, 50_000, 90_000),
        ] {
            assert_eq!(next_index(sequence, last), index);
        }
    }

    fn master(suite: Suite) -> MasterKey {
        MasterKey::new(suite, &vec![9; suite.master_bytes()]).unwrap()
    }

    fn packet(sequence: u16, payload: &[u8], tag_bytes: usize) -> Vec<u8> {
        let [s0, s1] = sequence.to_be_bytes();
        let header = [0x80, 96, s0, s1, 0, 0, 0, 1, 1, 2, 3, 4];
        [&header, payload, &vec![0; tag_bytes]].concat()
    }

    #[test]
    fn what_is_changed_anywhere_is_refused() {
        for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
            let (keys, tag_bytes) = (RtpKeys::new(&master(suite)), suite.tag_bytes());
            let mut sealed = packet(7, b"payload", tag_bytes);
            keys.protect(7, &mut sealed).unwrap();
            assert_ne!(sealed[12..19], *b"payload");
            for bit in 0..sealed.len() * 8 {
                let mut changed = sealed.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(keys.unprotect(7, &mut changed).is_err(), "bit {bit}");
            }
            // After another wrap it is another packet.
            let mut same = sealed.clone();
            let wrapped = keys.unprotect(1 << 16 | 7, &mut same);
            assert_eq!(wrapped, Err(SrtpError::Authentication));
            let last = (1 << 48) - 1;
            assert_eq!(keys.protect(last, &mut sealed.clone()), Ok(()));
            assert_eq!(
                keys.protect(last + 1, &mut sealed),
                Err(SrtpError::KeyUsedUp)
            );
        }
    }

    #[test]
    fn numbers_wrap_on_the_way() {
        for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
            let (keys, tag_bytes) = (RtpKeys::new(&master(suite)), suite.tag_bytes());
            let mut receiver = RtpReceiver::new(&master(suite));
            for index in [65_534u64, 65_537, 65_535, 65_536, 65_538] {
                let sequence = (index & 0xffff) as u16;
                let mut sealed = packet(sequence, b"payload", tag_bytes);
                keys.protect(index, &mut sealed).unwrap();
                let plain = packet(sequence, b"payload", 0);
                assert_eq!(receiver.unprotect(&mut sealed).unwrap(), plain, "{index}");
            }
        }
    }

    #[test]
    fn packets_together_are_those_one_by_one() {
        for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
            let keys = RtpKeys::new(&master(suite));
            // Numbers wrap on the way, and lengths change within what could go together.
            let bytes = [30, 30, 1300, 1300, 1300, 1300, 1300, 1300, 1300, 70, 0, 0];
            let packets = (65_530_u64..).zip(bytes).map(|(index, bytes)| {
                let sequence = (index & 0xffff) as u16;
                (index, packet(sequence, &vec![7; bytes], suite.tag_bytes()))
            });
            let mut one_by_one: Vec<_> = packets.collect();
            let mut together = one_by_one.clone();
            for (index, packet) in &mut one_by_one {
                keys.protect(*index, packet).unwrap();
            }
            let lent = together.iter_mut();
            let mut lent: Vec<_> = lent.map(|(index, it)| (*index, &mut it[..])).collect();
            keys.protect_each(&mut lent, compress_one_by_one).unwrap();
            assert!(one_by_one == together, "{suite:?}");
        }
    }

    #[test]
    fn what_is_no_packet_is_refused_among_others_too() {
        for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
            let keys = RtpKeys::new(&master(suite));
            let protect = |index, bytes: usize| {
                let [mut one, mut two] = [(); 2].map(|()| packet(7, b"", suite.tag_bytes()));
                two.truncate(bytes);
                let mut both = [(1, &mut one[..]), (index, &mut two[..])];
                keys.protect_each(&mut both, compress_one_by_one)
            };
            let whole = HEADER_BYTES + suite.tag_bytes();
            assert_eq!(protect(INDEX_END - 1, whole), Ok(()));
            assert_eq!(protect(INDEX_END, whole), Err(SrtpError::KeyUsedUp));
            for bytes in [0, suite.tag_bytes() - 1, whole - 1] {
                assert_eq!(protect(2, bytes), Err(SrtpError::Malformed), "{bytes}");
            }
            assert_eq!(keys.protect_each(&mut [], compress_one_by_one), Ok(()));
        }
    }

    proptest! {
        #[test]
        fn noise_is_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
                let mut receiver = RtpReceiver::new(&master(suite));
                prop_assert!(receiver.unprotect(&mut bytes).is_err());
                let keys = RtpKeys::new(&master(suite));
                keys.protect(1, &mut bytes.clone()).unwrap_or_default();
            }
        }
    }
}
