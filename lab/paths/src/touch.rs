//! What a program does to the data between the file and the socket: nothing, or one pass over each
//! packet's payload.
//!
//! The paper's section 5 says that its mechanisms can touch data: check sums and filters without a
//! copy, encryption with one. Here a [`Toucher`] is such a pass and each [`Mover`](super::Mover)
//! makes it once for each packet, where its path has the payload: in the buffer that it was read
//! to, in the mapped file, in packet images. What changes the payload must not change the file, so
//! a mapped file is then mapped privately (a copy of each page, as it is written to), and packet
//! images are made for the one send that they are changed for. Both changes undo themselves when
//! made twice, which is how a receiver verifies them.

use std::fmt;
use std::ops::Range;

use aes::Aes128Enc;
use aes::cipher::{InnerIvInit, KeyInit, StreamCipher, StreamCipherCoreWrapper};
use crc32fast::Hasher;
use ctr::CtrCore;
use ctr::flavors::Ctr128BE;

/// A pass over each packet's payload.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Touch {
    /// None: the data is moved as it is.
    #[default]
    None,
    /// CRC-32 (IEEE 802.3) of each payload: all of it is read.
    Checksum,
    /// A mark: in each 64 bytes, a line of the cache, one is read and its lowest bit changed, which
    /// one by the packet's number. Sync bytes of transport packets (0x47) stay, and none is made.
    Filter,
    /// AES-128 in counter mode, with a counter of its own for each packet: all of it is changed.
    Encrypt,
}

/// Carries out a [`Touch`], with the key that it needs: the same for all, so that whoever measures
/// can undo it.
pub struct Toucher {
    touch: Touch,
    key: Aes128Enc,
}

/// The pass over one packet's payload, a part of it after the other.
pub(super) enum Pass<'k> {
    Checksum(Hasher),
    /// The place of the next byte that is marked, from the start of the part to come.
    Filter(usize),
    Encrypt(StreamCipherCoreWrapper<CtrCore<&'k Aes128Enc, Ctr128BE>>),
}

/// What was touched in one send: each packet once, whatever is tried again.
pub(super) struct Touched {
    toucher: Toucher,
    /// The packets that were.
    packets: Range<usize>,
    checksums: Vec<u32>,
}

/// Packet images that are touched are so few at a time, in bytes, that they are in the cache still
/// when they are sent.
pub(super) const WINDOW_BYTES: usize = 1 << 20;

/// Of so many bytes [`Touch::Filter`] marks one.
const MARK_EVERY: usize = 64;
/// With which a packet of a transport stream begins (ISO/IEC 13818-1).
const SYNC_BYTE: u8 = 0x47;
const KEY: [u8; 16] = *b"onrush-lab paths";

impl Touch {
    /// All, in the order of tables.
    pub const ALL: [Self; 4] = [Self::None, Self::Checksum, Self::Filter, Self::Encrypt];

    /// Its name, for people and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Checksum => "checksum",
            Self::Filter => "filter",
            Self::Encrypt => "encrypt",
        }
    }

    /// Whether what arrives differs from the file.
    #[must_use]
    pub const fn changes(self) -> bool {
        matches!(self, Self::Filter | Self::Encrypt)
    }
}

impl fmt::Display for Touch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Touch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|touch| touch.name() == name);
        found.ok_or_else(|| format!("ask for {}", Self::ALL.map(Self::name).join(", ")))
    }
}

impl Toucher {
    /// For that touch.
    #[must_use]
    pub fn new(touch: Touch) -> Self {
        Self {
            touch,
            key: Aes128Enc::new(&KEY.into()),
        }
    }

    /// Touches the payload of packet `number`: its checksum, if that is asked for. Who does so
    /// again has it as it was.
    pub fn touch(&self, number: usize, payload: &mut [u8]) -> Option<u32> {
        let mut pass = self.begin(number)?;
        pass.go(payload);
        pass.end()
    }

    /// Begins with the payload of packet `number`, if anything is to be done.
    fn begin(&self, number: usize) -> Option<Pass<'_>> {
        match self.touch {
            Touch::None => None,
            Touch::Checksum => Some(Pass::Checksum(Hasher::new())),
            Touch::Filter => Some(Pass::Filter(place_of_mark(number))),
            Touch::Encrypt => {
                let iv = (number as u128) << 64;
                let core = CtrCore::inner_iv_init(&self.key, &iv.to_be_bytes().into());
                Some(Pass::Encrypt(StreamCipherCoreWrapper::from_core(core)))
            }
        }
    }
}

impl fmt::Debug for Toucher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Toucher").field(&self.touch).finish()
    }
}

impl Pass<'_> {
    /// Passes over the next part of the payload, which may be changed.
    pub(super) fn go(&mut self, part: &mut [u8]) {
        match self {
            Self::Checksum(_) => self.read(part),
            Self::Filter(next) => {
                while let Some(byte) = part.get_mut(*next) {
                    if *byte | 1 != SYNC_BYTE {
                        *byte ^= 1;
                    }
                    *next += MARK_EVERY;
                }
                *next -= part.len();
            }
            Self::Encrypt(stream) => stream.apply_keystream(part),
        }
    }

    /// Passes over the next part, which is only read.
    ///
    /// # Panics
    ///
    /// If it would be changed.
    pub(super) fn read(&mut self, part: &[u8]) {
        match self {
            Self::Checksum(hasher) => hasher.update(part),
            _ => panic!("a pass that changes what it passes over needs it to be writable"),
        }
    }

    fn end(self) -> Option<u32> {
        match self {
            Self::Checksum(hasher) => Some(hasher.finalize()),
            _ => None,
        }
    }
}

impl Touched {
    pub(super) fn new(touch: Touch) -> Self {
        Self {
            toucher: Toucher::new(touch),
            packets: 0..0,
            checksums: Vec::new(),
        }
    }

    pub(super) fn touch(&self) -> Touch {
        self.toucher.touch
    }

    /// The checksums of the last send's packets, in order.
    pub(super) fn checksums(&self) -> &[u32] {
        &self.checksums
    }

    /// A send of these packets begins.
    pub(super) fn begin(&mut self, packets: &Range<usize>) {
        self.packets = packets.start..packets.start;
        self.checksums.clear();
        if self.touch() == Touch::Checksum {
            self.checksums.reserve(packets.len());
        }
    }

    /// Touches packet `number`, if that is to be and was not in this send: `go` takes the pass over
    /// the parts of its payload. Packets come in order.
    pub(super) fn once(&mut self, number: usize, go: impl FnOnce(&mut Pass<'_>)) {
        if number < self.packets.end {
            return;
        }
        let Some(mut pass) = self.toucher.begin(number) else {
            return;
        };
        go(&mut pass);
        self.checksums.extend(pass.end());
        self.packets.end = number + 1;
    }

    /// Touches it for nobody's account: what is made ready in front of what is sent.
    pub(super) fn change(&self, number: usize, payload: &mut [u8]) {
        if self.touch().changes() {
            self.toucher.touch(number, payload);
        }
    }
}

/// Where in its payload the first mark of a packet is, by chance but the same each time (the
/// golden ratio's multiples lie evenly; Knuth).
fn place_of_mark(number: usize) -> usize {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
    usize::try_from(mixed).expect("six bits") % MARK_EVERY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_a_payload_undoes_itself_and_is_each_packets_own() {
        let content: Vec<u8> = (0..1460_u32).map(|n| n.to_le_bytes()[0]).collect();
        for touch in [Touch::Filter, Touch::Encrypt] {
            let toucher = Toucher::new(touch);
            let touched = |number| {
                let mut payload = content.clone();
                assert_eq!(toucher.touch(number, &mut payload), None);
                payload
            };
            let mut seventh = touched(7);
            assert_ne!(seventh, content, "{touch}");
            assert_ne!(seventh, touched(8), "{touch}");
            toucher.touch(7, &mut seventh);
            assert_eq!(seventh, content, "{touch}");
        }
    }

    #[test]
    fn a_checksum_is_that_of_ethernet() {
        let toucher = Toucher::new(Touch::Checksum);
        let mut digits = *b"123456789";
        assert_eq!(toucher.touch(3, &mut digits), Some(0xcbf4_3926));
        assert_eq!(Toucher::new(Touch::None).touch(3, &mut digits), None);
        assert_eq!(&digits, b"123456789");
    }

    #[test]
    fn a_filter_marks_a_byte_of_each_line_and_no_sync_byte() {
        let toucher = Toucher::new(Touch::Filter);
        let mut payload = [0; 1316];
        toucher.touch(5, &mut payload);
        let marks = payload.iter().filter(|byte| **byte == 1).count();
        assert!((20..=21).contains(&marks), "{marks}");
        for sync in [[0x47; 256], [0x46; 256]] {
            let mut payload = sync;
            toucher.touch(5, &mut payload);
            assert_eq!(payload, sync);
        }
    }

    #[test]
    fn a_payload_in_parts_is_touched_as_one_in_a_piece() {
        for touch in [Touch::Checksum, Touch::Filter, Touch::Encrypt] {
            let toucher = Toucher::new(touch);
            let (mut whole, mut parts) = ([9; 1316], [9; 1316]);
            let checksum = toucher.touch(11, &mut whole);
            let mut pass = toucher.begin(11).expect("something is done");
            for part in parts.chunks_mut(188) {
                pass.go(part);
            }
            assert_eq!((pass.end(), parts), (checksum, whole), "{touch}");
        }
    }

    #[test]
    fn a_packet_is_touched_once_a_send() {
        let mut touched = Touched::new(Touch::Checksum);
        for _ in 0..2 {
            touched.begin(&(4..7));
            for number in [4, 5, 5, 4, 6] {
                touched.once(number, |pass| pass.read(&[number.to_le_bytes()[0]]));
            }
            assert_eq!(touched.checksums().len(), 3);
        }
    }

    #[test]
    fn touches_are_found_by_their_names() {
        for touch in Touch::ALL {
            assert_eq!(touch.name().parse(), Ok(touch));
        }
        let wrong = "crc".parse::<Touch>().unwrap_err();
        assert_eq!(wrong, "ask for none, checksum, filter, encrypt");
    }
}
