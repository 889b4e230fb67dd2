//! Transport streams (ISO/IEC 13818-1): packets as they are, cut where a picture begins that a
//! decoder can start at, with the program's tables in front of each segment.
//!
//! Times are those of the pictures (of sound, where there are none, or none come), when they are
//! decoded. Where no packet says `random_access_indicator`, the first bytes of pictures tell.

use super::output::{LiveRendition, Output, PartOf};
use super::programs::Programs;
use super::silence::Silence;
use super::{
    PART_BYTES_MAX, ROUNDED_US, SEGMENT_BYTES_MAX, SEGMENT_US_MIN, TARGET_S_MIN, part_target_us,
    segment_us_max,
};
use crate::media::segments::Format;
use crate::media::track::Medium;
use crate::media::ts::header::Header;
use crate::media::ts::psi::Kind;
use crate::media::ts::seek::starts_picture;
use crate::media::ts::{SYNC_BYTE, TS_PACKET_BYTES};

/// A step of so many us is a break.
const JUMP_US: i64 = 3_000_000;

/// The times of sound count where none of pictures have come for so many ns of it.
const SILENCE_NS_MAX: u64 = 3_000_000_000;

/// Each segment makes good such a part of what its date is off, and no more than so many ns: what
/// came late moves it little, and a clock that is fast or slow is followed.
const DATE_PARTS: i64 = 64;
const DATE_STEP_NS_MAX: i64 = 4_000_000;

/// Cuts one transport stream.
#[derive(Debug)]
pub(super) struct TransportCutter {
    unix_offset_ns: i64,
    programs: Programs,
    /// Since the last break.
    says_random_access: bool,
    silence: Silence,
    /// The program has pictures, of which none come.
    is_sound_alone: bool,
    clock: Clock,
    /// Of the segment that is written, if one is.
    segment: Option<Open>,
    is_told: bool,
    is_broken_off: bool,
    /// How long parts are, once the first one has ended.
    part_us: Option<u64>,
    target_s: Option<u64>,
}

#[derive(Debug)]
struct Open {
    part: Vec<u8>,
    part_starts_us: i64,
    starts_us: i64,
    segment_bytes: usize,
    begins_with_sync: bool,
    /// Of the part's units whether a decoder can start there.
    units: Vec<bool>,
    /// Where in the part the last one begins, and when.
    last: (usize, i64),
}

/// Times without their wrapping.
#[derive(Debug, Default)]
struct Clock {
    last: Option<u64>,
    /// What has passed, in ticks of 90 kHz and in us. Steps are added up as they are: cut to us,
    /// those of 29.97 pictures a second would lose 20 ppm.
    ticks: i64,
    us: i64,
    /// How long the last unit took, and the longest of all.
    step_us: i64,
    longest_us: i64,
    /// What makes of its times those since 1970, in ns.
    unix_ns: i64,
}

impl TransportCutter {
    pub(super) fn new(unix_offset_ns: i64) -> Self {
        Self {
            unix_offset_ns,
            programs: Programs::default(),
            says_random_access: false,
            silence: Silence::default(),
            is_sound_alone: false,
            clock: Clock::default(),
            segment: None,
            is_told: false,
            is_broken_off: false,
            part_us: None,
            target_s: None,
        }
    }

    pub(super) fn rendition() -> LiveRendition {
        LiveRendition {
            name: "stream",
            medium: Medium::Video,
            format: Format::Ts,
        }
    }

    pub(super) fn begin(&mut self, out: &mut Vec<Output>) {
        self.break_off(self.clock.us.saturating_add(self.clock.step_us), out);
        self.clock.last = None;
        (self.silence, self.is_sound_alone) = (Silence::default(), false);
    }

    /// Takes transport packets; what is none is passed over.
    pub(super) fn push(&mut self, packets: &[u8], now_ns: u64, out: &mut Vec<Output>) {
        let (packets, _) = packets.as_chunks::<TS_PACKET_BYTES>();
        for packet in packets.iter().filter(|packet| packet[0] == SYNC_BYTE) {
            self.packet(packet, now_ns, out);
        }
    }

    fn packet(&mut self, packet: &[u8; TS_PACKET_BYTES], now_ns: u64, out: &mut Vec<Output>) {
        let header = Header::read(packet);
        let payload = packet.get(header.payload..).unwrap_or_default();
        let is_kept = self.programs.packet(&header, payload, now_ns);
        // RFC 8216bis, section 4.4.4.3.
        if self.programs.take_change() {
            self.break_off(self.clock.us.saturating_add(self.clock.step_us), out);
            (self.silence, self.is_sound_alone) = (Silence::default(), false);
        }
        let leading = self.programs.leading();
        if let Some((_, stream_type, kind)) = leading.filter(|(pid, ..)| *pid == header.pid) {
            self.leading((&header, payload), (stream_type, kind), now_ns, out);
        } else if self.programs.sound() == Some(header.pid) {
            self.sound(&header, payload, now_ns, out);
        }
        if is_kept && let Some(segment) = &mut self.segment {
            segment.part.extend_from_slice(packet);
            if segment.part.len() >= PART_BYTES_MAX {
                let bytes = segment.segment_bytes;
                let end_us = self.clock.us.saturating_add(self.clock.step_us.max(1));
                self.end_part(end_us, out);
                // Nothing says how the time passes.
                if bytes > SEGMENT_BYTES_MAX {
                    self.begin(out);
                }
            }
        }
    }

    /// A packet of the stream whose times count.
    fn leading(
        &mut self,
        of: (&Header, &[u8]),
        coded: (u8, Kind),
        now_ns: u64,
        out: &mut Vec<Output>,
    ) {
        let Some(time) = pes_time(of.1).filter(|_| of.0.unit_start) else {
            return;
        };
        self.silence.end();
        if self.is_sound_alone {
            if !self.is_start(of, coded) {
                return;
            }
            (self.is_sound_alone, self.clock.last) = (false, None);
        }
        let seen_ns = self.pass(time, now_ns, out);
        // Behind a break nothing is known of what comes.
        let is_start = self.is_start(of, coded);
        self.unit(is_start, seen_ns, out);
    }

    /// A packet of sound beside pictures.
    fn sound(&mut self, header: &Header, payload: &[u8], now_ns: u64, out: &mut Vec<Output>) {
        let silence_ns = self.silence.go_on(now_ns);
        let counts = self.is_sound_alone || silence_ns > SILENCE_NS_MAX;
        let time = pes_time(payload).filter(|_| counts && header.unit_start);
        if let Some(time) = time {
            if !std::mem::replace(&mut self.is_sound_alone, true) {
                self.clock.last = None;
            }
            let seen_ns = self.pass(time, now_ns, out);
            self.unit(true, seen_ns, out);
        }
    }

    /// Whether a decoder can start at a unit.
    fn is_start(
        &mut self,
        (header, payload): (&Header, &[u8]),
        (stream_type, kind): (u8, Kind),
    ) -> bool {
        if kind != Kind::Video {
            return true;
        }
        self.says_random_access |= header.random_access;
        match self.says_random_access {
            true => header.random_access,
            false => begins_with_sync(stream_type, payload),
        }
    }

    /// It is the time of a unit that begins; where that does not follow on the one before, what is
    /// open ends. What makes of times those since 1970 now.
    fn pass(&mut self, time: u64, now_ns: u64, out: &mut Vec<Output>) -> i64 {
        let end_us = self.clock.us.saturating_add(self.clock.step_us);
        let follows = self.clock.take(time);
        let now_ns = i64::try_from(now_ns).unwrap_or(0);
        let seen_ns = now_ns
            .saturating_add(self.unix_offset_ns)
            .saturating_sub(self.clock.us.saturating_mul(1000));
        if !follows {
            self.break_off(end_us, out);
            self.clock.unix_ns = seen_ns;
        }
        seen_ns
    }

    /// Ends what is open; another encoder may follow.
    fn break_off(&mut self, end_us: i64, out: &mut Vec<Output>) {
        self.end_segment(end_us, out);
        self.is_broken_off |= self.is_told;
        self.says_random_access = false;
    }

    /// A unit of the stream whose times count begins.
    fn unit(&mut self, is_start: bool, seen_ns: i64, out: &mut Vec<Output>) {
        self.leave_last(out);
        let (at_us, next_us) = (self.clock.us, self.clock.us + self.clock.step_us);
        if let Some(segment) = &self.segment {
            let lasts_us = at_us - segment.starts_us;
            let bytes = segment.segment_bytes + segment.part.len();
            let must_end = next_us - segment.starts_us > segment.longest_us(self.target_s)
                || bytes > SEGMENT_BYTES_MAX - PART_BYTES_MAX;
            let part_us = self.part_us.unwrap_or_else(|| self.clock.part_us());
            let is_full = next_us - segment.part_starts_us > us(part_us);
            // Behind one that begins with no sync sample the next begins with one, so that all
            // which follow do again.
            let may_end = match segment.begins_with_sync {
                true => lasts_us >= us(SEGMENT_US_MIN),
                false => lasts_us > 0,
            };
            if must_end || is_start && may_end {
                // Who has said where decoders can start may be gone.
                self.says_random_access &= is_start || !self.do_bytes_tell();
                self.end_segment(at_us, out);
            } else if is_full && at_us > segment.part_starts_us {
                self.end_part(at_us, out);
            }
        }
        // The first begins where a decoder can; later ones may have to begin elsewhere.
        let may_begin = is_start || self.is_told && !self.is_broken_off;
        if self.segment.is_none() && may_begin {
            self.clock.follow(seen_ns);
            self.begin_segment(at_us, is_start, out);
        }
        if let Some(segment) = &mut self.segment {
            segment.units.push(is_start);
            segment.last = (segment.part.len(), at_us);
        }
    }

    /// Where the unit that begins comes so late that the segment would be too long, the one before
    /// it begins the next segment: as with tracks, of which it is known how long it lasts.
    fn leave_last(&mut self, out: &mut Vec<Output>) {
        let Some(segment) = &mut self.segment else {
            return;
        };
        let (from, last_us) = segment.last;
        let lasts_us = self.clock.us - segment.starts_us;
        if lasts_us <= segment.longest_us(self.target_s) || last_us <= segment.starts_us {
            return;
        }
        let bytes = segment.part.split_off(from);
        let is_start = segment.units.pop();
        self.end_segment(last_us, out);
        self.begin_segment(last_us, is_start == Some(true), out);
        if let Some(segment) = &mut self.segment {
            segment.part.extend_from_slice(&bytes);
            segment.units.extend(is_start);
        }
    }

    /// Whether the first bytes of pictures tell whether a decoder can start there.
    fn do_bytes_tell(&self) -> bool {
        let leading = self.programs.leading();
        leading.is_some_and(|(_, stream_type, _)| starts_picture(stream_type, &[]).is_some())
    }

    fn begin_segment(&mut self, at_us: i64, begins_with_sync: bool, out: &mut Vec<Output>) {
        self.is_told = true;
        if std::mem::take(&mut self.is_broken_off) {
            out.push(Output::Break {
                rendition: 0,
                breaks: 1,
            });
        }
        let part = self.programs.tables().unwrap_or_default();
        self.segment = Some(Open {
            last: (part.len(), at_us),
            part,
            part_starts_us: at_us,
            starts_us: at_us,
            segment_bytes: 0,
            begins_with_sync,
            units: Vec::new(),
        });
    }

    fn end_part(&mut self, at_us: i64, out: &mut Vec<Output>) {
        let Some(segment) = &mut self.segment else {
            return;
        };
        if segment.part.is_empty() {
            return;
        }
        if self.part_us.is_none() {
            let us = self.clock.part_us();
            self.part_us = Some(us);
            out.push(Output::PartTarget(us));
        }
        let bytes = std::mem::take(&mut segment.part);
        let units = std::mem::take(&mut segment.units);
        segment.last = (0, at_us);
        segment.segment_bytes += bytes.len();
        let starts_us = std::mem::replace(&mut segment.part_starts_us, at_us);
        let starts_ns = starts_us.saturating_mul(1000);
        let lasts_us = u64::try_from(at_us - starts_us).unwrap_or(0).max(1);
        out.push(Output::Part {
            rendition: 0,
            part: PartOf {
                bytes: bytes.into(),
                lasts_us,
                starts_unix_ns: starts_ns.saturating_add(self.clock.unix_ns),
                starts_ticks: starts_us,
                ticks: at_us - starts_us,
                is_independent: units.contains(&true),
                begins_with_sync: units.first() == Some(&true),
                samples: u32::try_from(units.len()).unwrap_or(u32::MAX),
            },
        });
    }

    fn end_segment(&mut self, at_us: i64, out: &mut Vec<Output>) {
        let Some(segment) = &self.segment else {
            return;
        };
        if self.target_s.is_none() {
            let lasts_us = u64::try_from(at_us - segment.starts_us).unwrap_or(0);
            let seconds = lasts_us.saturating_sub(ROUNDED_US).div_ceil(1_000_000);
            let seconds = seconds.max(TARGET_S_MIN);
            self.target_s = Some(seconds);
            out.push(Output::Target(seconds));
        }
        self.end_part(at_us, out);
        self.segment = None;
        out.push(Output::SegmentEnd { rendition: 0 });
    }
}

impl Open {
    /// How long the segment may be.
    fn longest_us(&self, target_s: Option<u64>) -> i64 {
        let rounded_us = if self.begins_with_sync { ROUNDED_US } else { 0 };
        us(segment_us_max(target_s, rounded_us))
    }
}

impl Clock {
    /// How long parts are, by the units that have come.
    fn part_us(&self) -> u64 {
        let longest_us = u64::try_from(self.longest_us).unwrap_or(0);
        part_target_us(longest_us + u64::from(longest_us > 0))
    }

    /// What makes of its times those since 1970 is about this now.
    fn follow(&mut self, seen_ns: i64) {
        let error_ns = seen_ns.saturating_sub(self.unix_ns) / DATE_PARTS;
        let step_ns = error_ns.clamp(-DATE_STEP_NS_MAX, DATE_STEP_NS_MAX);
        self.unix_ns = self.unix_ns.saturating_add(step_ns);
    }

    /// Takes a time of 33 bits at 90 kHz; `false` if it does not follow on the one before.
    fn take(&mut self, time: u64) -> bool {
        const BITS: u64 = 1 << 33;
        let last = self.last.replace(time);
        let Some(last) = last else {
            return false;
        };
        let ahead = time.wrapping_sub(last) % BITS;
        let signed = if ahead >= BITS / 2 {
            -i64::try_from(BITS - ahead).unwrap_or(0)
        } else {
            i64::try_from(ahead).unwrap_or(0)
        };
        let step_us = us_of_ticks(signed);
        if !(0..=JUMP_US).contains(&step_us) {
            return false;
        }
        self.ticks = self.ticks.saturating_add(signed);
        self.us = us_of_ticks(self.ticks);
        if step_us > 0 {
            self.step_us = step_us;
            self.longest_us = self.longest_us.max(step_us);
        }
        true
    }
}

fn us_of_ticks(ticks: i64) -> i64 {
    ticks.saturating_mul(100) / 9
}

fn us(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// When the PES packet that begins here is decoded (section 2.4.3.7), in ticks of 90 kHz.
fn pes_time(payload: &[u8]) -> Option<u64> {
    let &[0, 0, 1, _, _, _, first, flags, _, ref stamps @ ..] = payload else {
        return None;
    };
    if first & 0xc0 != 0x80 {
        return None;
    }
    let at = match flags >> 6 {
        3 => 5,
        2 => 0,
        _ => return None,
    };
    let bytes = stamps.get(at..at + 5)?;
    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|number| u64::from(bytes[number]));
    Some((a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1)
}

/// Whether the first bytes of a unit are those of one at which a decoder can start. Of a codec that
/// nobody here knows, any may be.
fn begins_with_sync(stream_type: u8, payload: &[u8]) -> bool {
    starts_picture(stream_type, payload).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_loses_nothing_to_rounding() {
        let mut clock = Clock::default();
        // 29.97 pictures a second for an hour, over the wrapping of their times.
        let time = |picture: u64| ((1 << 33) - 7 * 3003 + picture * 3003) % (1 << 33);
        assert!(!clock.take(time(0)), "nothing is before it");
        assert!((1..=108_000).all(|picture| clock.take(time(picture))));
        let after = |clock: &Clock| (clock.us, clock.step_us, clock.longest_us);
        assert_eq!(after(&clock), (3_603_600_000, 33_366, 33_366));
        // A jump is none of it.
        assert!(!clock.take(time(108_100)));
        assert!(clock.take(time(108_101)));
        assert_eq!(clock.us, 3_603_633_366);
    }
}
