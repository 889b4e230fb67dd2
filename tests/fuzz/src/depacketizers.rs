//! What a publisher sends: a session description, and behind it frames of RTP on the channels of
//! its tracks, as they come interleaved. They are put together to samples and cut into segments,
//! which a window keeps and lists.

use onrush_wire::live::{CatchUp, Reserve, SyncRule};
use onrush_wire::media::live::LiveCutter;
use onrush_wire::rtp::{Header, payload};
use onrush_wire::sdp::announced;

use crate::cut::{MEMORY_BYTES, Told};
use crate::memory::bounded;
use crate::random::Random;

/// What is kept of a standby, for each track.
const RESERVE_PACKETS_MAX: usize = 64;
const RESERVE_BYTES_MAX: usize = 16 << 10;

/// Between two packets, at the most, and about.
const PAUSE_NS: u64 = 20_000_000_000;
const PICTURE_NS: u64 = 40_000_000;

/// Takes packets apart.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let _any = parts(input);
}

/// Takes packets apart: how many parts of segments are made of them.
///
/// # Panics
///
/// If a promise is broken.
#[must_use]
pub fn parts(input: &[u8]) -> usize {
    let frames_at = input.windows(2).position(|two| two == b"\n$");
    let (description, mut frames) = input.split_at(frames_at.map_or(input.len(), |at| at + 1));
    let Ok(tracks) = announced(description) else {
        return 0;
    };
    let tracks: Vec<_> = tracks.into_iter().map(|it| it.track).collect();
    let rules: Vec<_> = tracks.iter().map(SyncRule::of).collect();
    // Not all formats are cut; whether a sync sample begins is asked of each.
    let mut cutter = LiveCutter::new(&tracks, 0).ok();
    let mut random = Random::of(input);
    let mut told = cutter.as_ref().map(Told::of);
    let with_types = rules
        .iter()
        .copied()
        .zip(tracks.iter().map(|it| it.payload_type));
    let mut reserve = Reserve::new(with_types, RESERVE_PACKETS_MAX, RESERVE_BYTES_MAX);
    let (mut now_ns, mut taken, mut last) = (1_000_000_000, 0, 0);
    let mut out = Vec::new();
    while let [b'$', channel, high, low, rest @ ..] = frames {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (packet, behind) = rest.split_at(length.min(rest.len()));
        frames = behind;
        let track = usize::from(channel / 2);
        if channel % 2 == 1 || track >= tracks.len() {
            continue;
        }
        // A moment, and now and then a pause.
        let is_pause = random.is_one_in(64);
        now_ns += random.below(if is_pause { PAUSE_NS } else { 2 * PICTURE_NS });
        taken += packet.len();
        reserve.push(track, packet, now_ns);
        assert!(reserve.bytes() <= tracks.len() * RESERVE_BYTES_MAX);
        bounded(MEMORY_BYTES + 32 * input.len(), || {
            if let (Some(header), Some(payload)) = (Header::read(packet), payload(packet)) {
                let is_other = header.timestamp != last;
                last = header.timestamp;
                let _any = rules[track].is_sync(payload);
                let _any = rules[track].begins_unit(is_other, payload);
                if random.is_one_in(64)
                    && let Some(cutter) = &mut cutter
                {
                    cutter.line(track, header.timestamp, now_ns, header.marker);
                }
            }
            if let Some(cutter) = &mut cutter {
                if random.is_one_in(256) {
                    cutter.begin(&mut out);
                }
                cutter.push(track, packet, now_ns, &mut out);
            }
        });
        if let Some(told) = &mut told {
            told.take(&mut out, taken, &mut random);
        }
    }
    caught_up(&mut reserve, now_ns);
    told.map_or(0, |told| told.parts)
}

/// What was kept of a standby is sent in the order in which it came, and no sooner.
fn caught_up(reserve: &mut Reserve, now_ns: u64) {
    let kept = reserve.take();
    assert!(reserve.bytes() == 0);
    let (mut left, mut last_ns) = (kept.len(), 0);
    let mut sending = CatchUp::new(kept, RESERVE_BYTES_MAX, now_ns);
    for ns in [now_ns, now_ns + PICTURE_NS, 2 * now_ns] {
        while let Some(packet) = sending.next_due(ns) {
            assert!(packet.arrived_ns > last_ns && !packet.bytes.is_empty());
            (last_ns, left) = (packet.arrived_ns, left - 1);
        }
    }
    assert!(sending.is_over() && left == 0);
}
