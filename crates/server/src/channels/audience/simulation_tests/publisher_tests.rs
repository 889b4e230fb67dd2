//! Who publishes in a simulation: pictures of H.264 and sound, with its faults.

use std::collections::VecDeque;
use std::sync::Arc;

use onrush_wire::live::SyncRule;
use onrush_wire::rtp::{HEADER_BYTES, Header};

use super::{LASTS_NS, MS, SECOND};
use crate::testing::seeds_tests::Random;

const PICTURE_NS: u64 = 40 * MS;
const SOUND_NS: u64 = 21 * MS;

/// NAL units by their first bytes: parameters, an IDR picture, another.
const PARAMETERS: u8 = 0x67;
const SYNC: u8 = 0x65;
const OTHER: u8 = 0x41;

/// A packet that was published, whether or not it came.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) header: Header,
    pub(super) bytes: Arc<[u8]>,
    /// A decoder can start with it.
    pub(super) is_start: bool,
}

/// A track, and all that has come of it.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) rule: SyncRule,
    pub(super) clock_hz: u32,
    pub(super) log: Vec<Entry>,
    sequence: u16,
    begun_ns: u64,
    timestamp: u32,
    ssrc: u32,
    next_ns: u64,
}

/// What comes to the channel.
pub(super) struct Come {
    pub(super) track: usize,
    pub(super) bytes: Arc<[u8]>,
    pub(super) at_ns: u64,
    /// It is the first of another publisher.
    pub(super) is_other_publisher: bool,
}

#[derive(Debug)]
pub(super) struct Publisher {
    random: Random,
    pub(super) tracks: Vec<Track>,
    /// What is left of a picture: track, number in its log, when.
    waiting: VecDeque<(usize, usize, u64)>,
    is_heavy: bool,
    is_over: bool,
    is_other: bool,
    /// Pictures until the next sync sample.
    until_sync: u64,
    /// Of so many packets one is lost; 0: none.
    loses_one_in: u64,
}

impl Publisher {
    pub(super) fn new(mut random: Random, is_heavy: bool, now_ns: u64) -> Self {
        let pictures = [(SyncRule::H264, 90_000), (SyncRule::Every, 48_000)];
        let tracks = match random.below(6) {
            0 if !is_heavy => &pictures[1..],
            1 => &pictures[..1],
            _ => &pictures[..],
        };
        let tracks = tracks.iter().map(|&(rule, clock_hz)| Track {
            rule,
            clock_hz,
            log: Vec::new(),
            sequence: 0,
            begun_ns: 0,
            timestamp: 0,
            ssrc: 0,
            next_ns: now_ns,
        });
        let mut publisher = Self {
            tracks: tracks.collect(),
            waiting: VecDeque::new(),
            is_heavy,
            is_over: false,
            is_other: false,
            until_sync: 0,
            loses_one_in: 0,
            random,
        };
        publisher.begin(now_ns);
        publisher.is_other = false;
        publisher
    }

    pub(super) fn lasts_ns(&self) -> u64 {
        if self.is_heavy { 6 * SECOND } else { LASTS_NS }
    }

    /// Another one, with numbers of its own, which may be about to wrap.
    fn begin(&mut self, now_ns: u64) {
        for track in &mut self.tracks {
            let random = &mut self.random;
            track.ssrc = track.ssrc.wrapping_add(1 + low(random.below(1 << 16)));
            let sequence = u16::try_from(random.below(1 << 16)).expect("below that");
            track.sequence = match random.one_in(2) {
                true => u16::MAX - sequence % 1000,
                false => sequence,
            };
            track.timestamp = low(random.next());
            (track.begun_ns, track.next_ns) = (now_ns, now_ns);
        }
        (self.is_other, self.until_sync) = (true, self.random.below(3));
    }

    pub(super) fn make_trouble(&mut self, now_ns: u64) {
        self.loses_one_in = match self.random.below(3) {
            0 => 20,
            _ => 0,
        };
        match self.random.below(4) {
            0 => {
                let silent_ns = self.random.below(12_000) * MS;
                for track in &mut self.tracks {
                    track.next_ns = track.next_ns.max(now_ns + silent_ns);
                }
            }
            1 => {
                let begins_ns = now_ns + self.random.below(2000) * MS;
                self.begin(begins_ns);
            }
            _ => {}
        }
    }

    /// The clock has gone on, and nobody has published meanwhile.
    pub(super) fn leap(&mut self, leap_ns: u64) {
        for track in &mut self.tracks {
            track.next_ns += leap_ns;
            track.begun_ns += leap_ns;
        }
    }

    pub(super) fn stop(&mut self) {
        self.is_over = true;
    }

    pub(super) fn go_on(&mut self, now_ns: u64) {
        self.is_over = false;
        for track in &mut self.tracks {
            track.next_ns = now_ns.max(track.begun_ns);
        }
    }

    pub(super) fn next_ns(&self) -> u64 {
        if self.is_over {
            return u64::MAX;
        }
        let tracks = self.tracks.iter().map(|track| track.next_ns);
        tracks.min().unwrap_or(u64::MAX)
    }

    /// The next packet that has come by now.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<Come> {
        while self.waiting.is_empty() {
            self.publish(now_ns)?;
        }
        let (track, at, at_ns) = self.waiting.pop_front()?;
        Some(Come {
            track,
            bytes: Arc::clone(&self.tracks[track].log[at].bytes),
            at_ns,
            is_other_publisher: std::mem::take(&mut self.is_other),
        })
    }

    /// Publishes the next picture or sound that is due; `None` if none is.
    fn publish(&mut self, now_ns: u64) -> Option<()> {
        let due = (0..self.tracks.len()).min_by_key(|&track| self.tracks[track].next_ns);
        let due = due.filter(|&track| !self.is_over && self.tracks[track].next_ns <= now_ns)?;
        let due_ns = self.tracks[due].next_ns;
        let is_sound = self.tracks[due].rule == SyncRule::Every;
        let is_sync = !is_sound && self.until_sync == 0;
        if !is_sound {
            self.until_sync = match (is_sync, self.is_heavy) {
                (true, true) => 20 + self.random.below(60),
                (true, false) => self.random.below(50),
                (false, _) => self.until_sync - 1,
            };
        }
        let packets = match (is_sound, self.is_heavy) {
            (true, _) => 1,
            (false, true) => 200 + self.random.below(200),
            (false, false) => 1 + self.random.below(6),
        };
        let track = &mut self.tracks[due];
        track.next_ns += if is_sound { SOUND_NS } else { PICTURE_NS };
        let ticks = (due_ns - track.begun_ns) / 1000 * u64::from(track.clock_hz) / 1_000_000;
        let timestamp = track.timestamp.wrapping_add(low(ticks));
        for number in 0..packets {
            let sequence = track.sequence;
            track.sequence = sequence.wrapping_add(1);
            let is_lost = self.loses_one_in > 0 && self.random.one_in(self.loses_one_in);
            // The packets of a picture that say what it is do come.
            if is_lost && number > 1 {
                continue;
            }
            let header = Header {
                marker: number + 1 == packets,
                payload_type: 96,
                sequence,
                timestamp,
                ssrc: track.ssrc,
            };
            let nal = match (is_sync, number) {
                (true, 0) if packets > 1 => PARAMETERS,
                (true, _) => SYNC,
                _ => OTHER,
            };
            let at = track.log.len();
            let length = if self.is_heavy {
                1300
            } else {
                60 + self.random.index(1200)
            };
            let mut bytes = header.to_bytes().to_vec();
            bytes.push(nal);
            bytes.extend((at as u64).to_be_bytes());
            bytes.resize(HEADER_BYTES + length, nal);
            track.log.push(Entry {
                header,
                bytes: bytes.into(),
                is_start: is_sound || is_sync && number == 0,
            });
            self.waiting.push_back((due, at, due_ns));
        }
        Some(())
    }
}

impl Entry {
    /// Its number in its log, which its payload says.
    pub(super) fn number(payload: &[u8]) -> usize {
        let number = payload[1..9].try_into().expect("eight bytes");
        usize::try_from(u64::from_be_bytes(number)).expect("a log in memory")
    }
}

/// The lower half.
fn low(number: u64) -> u32 {
    u32::try_from(number & 0xffff_ffff).expect("half of it")
}
