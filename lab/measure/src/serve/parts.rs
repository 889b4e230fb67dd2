//! What encryption of a packet is made of, each part alone: the copy of an image into the slot
//! where it is encrypted, and the cipher, of as many packets at once as the engine encrypts.

use std::hint::black_box;

use onrush_sys::clock::thread_cpu_ns;
use onrush_sys::sha1;
use onrush_wire::rtp::HEADER_BYTES;
use onrush_wire::srtp::{MasterKey, PACKETS_AT_ONCE, RtpKeys, Suite, compress_one_by_one};

use super::record::SrtpParts;
use crate::stats::ratio;

/// An image of a transport stream's packet.
const IMAGE_BYTES: usize = 1328;

/// Images that are copied from, far apart as those of many sessions are: more than caches hold.
const IMAGES_BYTES: usize = 64 << 20;

/// Slots that are copied to, as many as an engine has under way in a tick.
const SLOTS: usize = 512;

/// Packets of a sample.
const PACKETS: usize = 20_000;

/// Packets of a train of 20 ms at 4 Mbit/s.
const TRAIN: usize = 8;

/// On the calling thread's processor, as the engine encrypts by that.
pub(super) fn measure(suite: Suite) -> SrtpParts {
    let master = MasterKey::new(suite, &vec![0x5a; suite.master_bytes()]);
    let keys = RtpKeys::new(&master.expect("as long as a key is"));
    let compress = sha1::compress_each().unwrap_or(compress_one_by_one);
    let packet_bytes = IMAGE_BYTES + keys.tag_bytes();
    let images = vec![0x47_u8; IMAGES_BYTES];
    let mut slots = vec![0x80_u8; SLOTS * packet_bytes];
    let places = IMAGES_BYTES / IMAGE_BYTES;
    let begin_ns = thread_cpu_ns();
    for number in 0..PACKETS {
        // A stride that is prime to their number: each is met once before any is again.
        let image = number * 7919 % places * IMAGE_BYTES;
        let slot = number % SLOTS * packet_bytes;
        slots[slot..slot + IMAGE_BYTES].copy_from_slice(&images[image..image + IMAGE_BYTES]);
        black_box(&mut slots);
    }
    let copy_ns = ns_each(begin_ns);
    let begin_ns = thread_cpu_ns();
    for first in (0..PACKETS).step_by(TRAIN) {
        let slot = first % SLOTS * packet_bytes;
        let train = slots[slot..].chunks_exact_mut(packet_bytes);
        let mut packets = [(); TRAIN].map(|()| (0, &mut [][..]));
        for ((number, packet), to) in (first..).zip(train).zip(&mut packets) {
            packet[..HEADER_BYTES].copy_from_slice(&HEADER);
            *to = (number as u64, packet);
        }
        for together in packets.chunks_mut(PACKETS_AT_ONCE) {
            let protected = keys.protect_each(together, compress);
            protected.expect("it has a header and room for a tag");
        }
    }
    black_box(&mut slots);
    let cipher_ns = ns_each(begin_ns);
    SrtpParts { copy_ns, cipher_ns }
}

// Trains fill slots without a rest.
const _: () = assert!(SLOTS.is_multiple_of(TRAIN) && PACKETS.is_multiple_of(TRAIN));

const HEADER: [u8; HEADER_BYTES] = [0x80, 33, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];

/// Processor time of a packet since `begin_ns`: others may have the processor meanwhile.
fn ns_each(begin_ns: u64) -> f64 {
    ratio(thread_cpu_ns() - begin_ns, PACKETS as u64)
}
