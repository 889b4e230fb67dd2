//! What a publisher sends: a session description, and behind it frames of RTP on the channels of
//! its tracks, as they come interleaved. They are put together to samples and cut into segments.

use onrush_wire::live::SyncRule;
use onrush_wire::media::live::{LiveCutter, Output, PART_BYTES_MAX};
use onrush_wire::rtp::{Header, payload};
use onrush_wire::sdp::announced;

use crate::memory::bounded;
use crate::random::Random;

/// What cutting may hold beside some times what has come: packets that wait for others, the part
/// and the segment that are written, descriptions.
const MEMORY_BYTES: usize = 1 << 20;

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
    let mut told = cutter.as_ref().map_or_else(Told::default, Told::of);
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
        bounded(MEMORY_BYTES + 32 * input.len(), || {
            if let (Some(header), Some(payload)) = (Header::read(packet), payload(packet)) {
                let is_other = header.timestamp != last;
                last = header.timestamp;
                let _any = rules[track].is_sync(payload);
                let _any = rules[track].begins_unit(is_other, payload);
                if random.is_one_in(64)
                    && let Some(cutter) = &mut cutter
                {
                    cutter.line(track, header.timestamp, now_ns);
                }
            }
            if let Some(cutter) = &mut cutter {
                if random.is_one_in(256) {
                    cutter.begin(&mut out);
                }
                cutter.push(track, packet, now_ns, &mut out);
            }
        });
        for output in out.drain(..) {
            told.take(&output);
        }
        assert!(
            told.bytes <= MEMORY_BYTES + 64 * taken,
            "{} bytes are told of {taken}",
            told.bytes
        );
    }
    told.parts
}

/// What was told of renditions: whether each was described, and has an open segment with parts.
#[derive(Default)]
struct Told {
    renditions: Vec<(bool, bool)>,
    is_transport: bool,
    bytes: usize,
    parts: usize,
}

impl Told {
    fn of(cutter: &LiveCutter) -> Self {
        let renditions = cutter.renditions();
        assert!(!renditions.is_empty(), "something is cut");
        Self {
            is_transport: renditions.iter().any(|it| it.name == "stream"),
            renditions: vec![(false, false); renditions.len()],
            bytes: 0,
            parts: 0,
        }
    }

    fn take(&mut self, output: &Output) {
        match output {
            Output::PartTarget(_) | Output::Target(_) => {}
            Output::Break { rendition } => assert!(*rendition < self.renditions.len()),
            Output::Init { rendition, init } => {
                self.renditions[*rendition].0 = true;
                self.bytes += init.bytes.len();
            }
            Output::Part { rendition, part } => {
                let (is_described, is_open) = &mut self.renditions[*rendition];
                assert!(
                    *is_described || self.is_transport,
                    "a part of what nobody knows"
                );
                *is_open = true;
                assert!(!part.bytes.is_empty() && part.bytes.len() <= 2 * PART_BYTES_MAX);
                self.bytes += part.bytes.len();
                self.parts += 1;
            }
            Output::SegmentEnd { rendition } => {
                let (_, is_open) = &mut self.renditions[*rendition];
                assert!(*is_open, "a segment without a part");
                *is_open = false;
            }
        }
    }
}
