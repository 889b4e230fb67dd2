//! Authentication tags of several packets at once: HMAC-SHA1 (RFC 2104) of messages of one length.
//!
//! SHA-1 makes nine tenths of what a packet's encryption in counter mode costs, and of one message
//! each round waits for the one before. So whoever has several packets may have their blocks hashed
//! together, by a function that knows the processor.

use sha1::block_api::compress;

/// Bytes of a tag of AES_CM_128_HMAC_SHA1_80.
pub(super) const CM_TAG_BYTES: usize = 10;

/// Packets whose tags are made at once, at the most.
pub const PACKETS_AT_ONCE: usize = 4;

/// Bytes of a block of SHA-1.
const BLOCK_BYTES: usize = 64;

/// Bytes of a hash.
const HASH_BYTES: usize = 20;

/// Bytes behind a packet in what is authenticated: how often numbers have wrapped.
const WRAPS_BYTES: usize = 4;

/// Behind a message: a bit, and its length in bits in eight bytes (FIPS 180-4, section 5.1.1).
const PADDING_BYTES_MIN: usize = 9;

/// What SHA-1 has hashed of a message so far.
type State = [u32; 5];

/// Hashes messages, at most [`PACKETS_AT_ONCE`] and of as many whole blocks of 64 bytes each, into
/// their states, which are SHA-1's (FIPS 180-4).
pub type CompressEach = fn(&mut [[u32; 5]], &[&[u8]]);

/// Where SHA-1 begins (FIPS 180-4, section 5.3.1).
const BEGIN: State = [
    0x6745_2301,
    0xefcd_ab89,
    0x98ba_dcfe,
    0x1032_5476,
    0xc3d2_e1f0,
];

/// One after the other, for processors on which nothing is gained otherwise.
pub fn compress_one_by_one(states: &mut [[u32; 5]], messages: &[&[u8]]) {
    for (state, message) in states.iter_mut().zip(messages) {
        compress(state, message.as_chunks().0);
    }
}

/// A key of HMAC-SHA1: hashes of it alone, inner and outer, which messages go on from.
#[derive(Clone, Copy)]
pub(super) struct Tags {
    inner: State,
    outer: State,
}

impl Tags {
    pub(super) fn new(key: &[u8; HASH_BYTES]) -> Self {
        let hashed = |pad: u8| {
            let (mut state, mut block) = (BEGIN, [pad; BLOCK_BYTES]);
            block.iter_mut().zip(key).for_each(|(to, key)| *to ^= key);
            compress(&mut state, &[block]);
            state
        };
        Self {
            inner: hashed(0x36),
            outer: hashed(0x5c),
        }
    }

    /// Writes the tag of each packet into the room behind it. Each comes with how often its numbers
    /// have wrapped; they are of one length, and at most [`PACKETS_AT_ONCE`].
    pub(super) fn write(self, packets: &mut [(u32, &mut [u8])], compress: CompressEach) {
        let count = packets.len();
        let (mut inner, mut outer) = ([self.inner; PACKETS_AT_ONCE], [self.outer; PACKETS_AT_ONCE]);
        let (inner, outer) = (&mut inner[..count], &mut outer[..count]);
        let bytes = packets.first().map_or(0, |(_, it)| it.len() - CM_TAG_BYTES);
        let rest = bytes % BLOCK_BYTES;
        let message = |at: usize| &packets[at.min(count - 1)].1[..bytes - rest];
        let whole: [&[u8]; PACKETS_AT_ONCE] = std::array::from_fn(message);
        compress(inner, &whole[..count]);
        // The rest with what follows it, in one block or two.
        let mut ends = [[0; 2 * BLOCK_BYTES]; PACKETS_AT_ONCE];
        let end_bytes = (rest + WRAPS_BYTES + PADDING_BYTES_MIN).next_multiple_of(BLOCK_BYTES);
        for (end, (wraps, packet)) in ends.iter_mut().zip(&*packets) {
            end[..rest].copy_from_slice(&packet[bytes - rest..bytes]);
            end[rest..rest + WRAPS_BYTES].copy_from_slice(&wraps.to_be_bytes());
            pad(
                &mut end[..end_bytes],
                rest + WRAPS_BYTES,
                bytes + WRAPS_BYTES,
            );
        }
        compress(
            inner,
            &ends.each_ref().map(|end| &end[..end_bytes])[..count],
        );
        let mut ends = [[0; BLOCK_BYTES]; PACKETS_AT_ONCE];
        for (end, state) in ends.iter_mut().zip(&*inner) {
            write_hash(&mut end[..HASH_BYTES], state);
            pad(end, HASH_BYTES, HASH_BYTES);
        }
        compress(outer, &ends.each_ref().map(|end| &end[..])[..count]);
        for ((_, packet), state) in packets.iter_mut().zip(&*outer) {
            let mut hash = [0; HASH_BYTES];
            write_hash(&mut hash, state);
            packet[bytes..].copy_from_slice(&hash[..CM_TAG_BYTES]);
        }
    }
}

/// Ends a message of so many bytes, of which the last `filled` are in `end`, behind the block that
/// the key fills.
fn pad(end: &mut [u8], filled: usize, message_bytes: usize) {
    end[filled] = 0x80;
    let bits = (BLOCK_BYTES + message_bytes) as u64 * 8;
    let (_, length) = end.split_last_chunk_mut().expect("whole blocks");
    *length = bits.to_be_bytes();
}

fn write_hash(to: &mut [u8], state: &State) {
    let words = state.iter().map(|word| word.to_be_bytes());
    let chunks = to.chunks_mut(4).zip(words);
    chunks.for_each(|(to, word)| to.copy_from_slice(&word));
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};
    use sha1::Sha1;

    use super::*;

    /// Test cases 1 and 2 of RFC 2202 are of shorter keys; 3 has 20 bytes.
    #[test]
    fn tags_are_those_of_hmac_at_every_length() {
        let key = [0xaa; HASH_BYTES];
        let tags = Tags::new(&key);
        for bytes in 0..200 {
            for count in 1..=PACKETS_AT_ONCE {
                let packet = |number: usize| -> Vec<u8> {
                    let bytes = (0..bytes).map(|at| (at * 7 + number).to_le_bytes()[0]);
                    bytes.chain([0; CM_TAG_BYTES]).collect()
                };
                let mut packets: [_; PACKETS_AT_ONCE] = std::array::from_fn(packet);
                let wraps = |number: usize| u32::try_from(number).unwrap() * 0x0102_0304;
                let plain = packets.clone();
                let lent = packets.iter_mut().enumerate();
                let mut lent: Vec<_> = lent.map(|(at, it)| (wraps(at), &mut it[..])).collect();
                tags.write(&mut lent[..count], compress_one_by_one);
                for (number, packet) in packets[..count].iter().enumerate() {
                    let mut hmac = Hmac::<Sha1>::new_from_slice(&key).unwrap();
                    hmac.update(&plain[number][..bytes]);
                    hmac.update(&wraps(number).to_be_bytes());
                    let tag = &hmac.finalize().into_bytes()[..CM_TAG_BYTES];
                    assert_eq!(packet[bytes..], *tag, "{number} of {count}, {bytes} bytes");
                }
                assert!(packets[count..] == plain[count..], "others are left alone");
            }
        }
    }
}
