//! Channels of tracks: one of pictures and one of sound, cut at the same times.
//!
//! Pictures say where segments end: at sync samples. Sound waits until pictures have come as far,
//! so that its segments end at the same times. Without pictures sound is cut by its own times. So
//! it is where they are announced and do not come, or cease to: with the next sync sample of theirs
//! both begin anew.
//!
//! The first units are held until it is known how pictures are ordered and how the tracks' clocks
//! lie to each other; after a publisher has come anew, again.

use std::collections::VecDeque;
use std::sync::Arc;

use super::TARGET_S_MIN;
use super::description::{describe, left_out, units_of};
use super::ends::Ends;
use super::lane::LiveSample;
use super::order::DecodeTimes;
use super::output::{InitSegment, LiveRendition, Output};
use super::silence::Silence;
use super::track_cut::{JUMP_NS, TrackCut};
use super::units::AccessUnit;
use crate::media::segments::Format;
use crate::media::track::{Medium, Track};

/// Units that are held until a start is known, at the most, and their bytes: the oldest go.
const HELD_MAX: usize = 2048;
const HELD_BYTES_MAX: usize = 24 << 20;

/// So many pictures tell their order, or so many as come in this time.
const ORDER_UNITS: usize = 10;
const ORDER_NS: u64 = 500_000_000;

/// Frames of sound that wait for pictures, at the most.
const SOUND_WAITING_MAX: usize = 512;

/// How much sound waits for pictures at the most, in ns.
const SOUND_WAITING_NS_MAX: i64 = 1_500_000_000;

/// Pictures that have not come for so many ns of sound are waited for no longer.
const SILENCE_NS_MAX: u64 = 10_000_000_000;

/// Pictures and sound that are further apart, in ns, are tied anew: less is not noticed (ITU-R
/// BT.1359).
const APART_NS_MAX: u64 = 40_000_000;

/// Cuts a channel of tracks.
#[derive(Debug)]
pub(super) struct TracksCutter {
    /// By the channel's numbers; those that are not cut have none.
    tracks: Vec<Option<TrackCut>>,
    pictures: Option<usize>,
    sound: Option<usize>,
    unix_offset_ns: i64,
    /// Where on the clock the first time of all is.
    origin_ns: Option<i64>,
    held: VecDeque<Held>,
    held_bytes: usize,
    is_running: bool,
    part_us: Option<u64>,
    target_s: Option<u64>,
    /// Where segments of sound are to end.
    ends: Ends,
    silence: Silence,
    /// Pictures are waited for no longer, and sound has come.
    is_sound_alone: bool,
}

#[derive(Debug)]
struct Held {
    track: usize,
    unit: AccessUnit,
    init: Option<Arc<InitSegment>>,
    at_ns: u64,
}

impl TracksCutter {
    /// See [`super::LiveCutter::new`].
    pub(super) fn new(tracks: &[Track], unix_offset_ns: i64) -> Result<Self, String> {
        let mut cutter = Self {
            tracks: tracks.iter().map(|_| None).collect(),
            pictures: None,
            sound: None,
            unix_offset_ns,
            origin_ns: None,
            held: VecDeque::new(),
            held_bytes: 0,
            is_running: false,
            part_us: None,
            target_s: None,
            ends: Ends::default(),
            silence: Silence::default(),
            is_sound_alone: false,
        };
        let mut lanes = 0;
        for medium in [Medium::Video, Medium::Audio] {
            let of_medium = tracks.iter().enumerate();
            let mut of_medium = of_medium.filter(|(_, track)| track.medium == medium);
            let found =
                of_medium.find_map(|(number, track)| Some((number, track, units_of(track).ok()?)));
            let Some((number, track, units)) = found else {
                continue;
            };
            let place = match medium {
                Medium::Video => &mut cutter.pictures,
                _ => &mut cutter.sound,
            };
            *place = Some(number);
            cutter.tracks[number] = Some(TrackCut::new(track, units, lanes));
            lanes += 1;
        }
        if lanes == 0 {
            let reasons: Vec<_> = left_out(tracks).into_iter().map(|(_, why)| why).collect();
            return Err(match reasons.is_empty() {
                true => "it has neither pictures nor sound".to_owned(),
                false => reasons.join("; "),
            });
        }
        Ok(cutter)
    }

    pub(super) fn renditions(&self) -> Vec<LiveRendition> {
        let of = |name, medium| LiveRendition {
            name,
            medium,
            format: Format::Cmaf,
        };
        let pictures = self.pictures.map(|_| of("video", Medium::Video));
        let sound = self.sound.map(|_| of("audio", Medium::Audio));
        pictures.into_iter().chain(sound).collect()
    }

    pub(super) fn line(&mut self, track: usize, line: (u32, u64), is_reported: bool) {
        if let Some(Some(track)) = self.tracks.get_mut(track) {
            track.set_line(line, is_reported, self.origin_ns);
        }
    }

    pub(super) fn begin(&mut self, out: &mut Vec<Output>) {
        self.break_off(out);
        for track in self.tracks.iter_mut().flatten() {
            track.begin();
        }
        self.held.clear();
        self.held_bytes = 0;
        (self.silence, self.is_sound_alone) = (Silence::default(), false);
    }

    pub(super) fn push(
        &mut self,
        number: usize,
        packet: &[u8],
        now_ns: u64,
        out: &mut Vec<Output>,
    ) {
        let Some(Some(track)) = self.tracks.get_mut(number) else {
            return;
        };
        let (mut units, of) = (Vec::new(), &track.track);
        let (described, init) = (&mut track.described, &mut track.init);
        track.units.push(packet, |of_track, unit| {
            let is_new = unit.is_sync && of_track.changes() != *described || init.is_none();
            let mut told = None;
            if is_new && let Ok(Some(next)) = describe(of, of_track.sets()) {
                *described = of_track.changes();
                if init.as_deref() != Some(&next) {
                    *init = Some(Arc::new(next));
                    told = init.clone();
                }
            }
            if init.is_some() {
                units.push((of_track.with_sets(unit), told));
            }
        });
        if self.pictures == Some(number) {
            self.silence.end();
        } else if self.pictures.is_some() && self.silence.go_on(now_ns) >= SILENCE_NS_MAX {
            self.leave_pictures(out);
        }
        for (unit, init) in units {
            self.unit(number, unit, init, now_ns, out);
        }
    }

    /// Ends what has come of pictures: sound goes on alone.
    fn leave_pictures(&mut self, out: &mut Vec<Output>) {
        let Some(number) = self.pictures.filter(|_| !self.is_sound_alone) else {
            return;
        };
        self.is_sound_alone = true;
        self.held.retain(|held| held.track != number);
        self.held_bytes = self.held.iter().map(|held| held.unit.data.len()).sum();
        if let Some((sample, lasts)) = self.last_of(number) {
            self.picture(number, sample, lasts, out);
            self.decide_target(out);
        }
        if let Some(track) = self.tracks[number].as_mut() {
            track.lane.end_segment(out);
            track.untie();
        }
    }

    fn unit(
        &mut self,
        number: usize,
        unit: AccessUnit,
        init: Option<Arc<InitSegment>>,
        now_ns: u64,
        out: &mut Vec<Output>,
    ) {
        if self.is_sound_alone && self.pictures == Some(number) {
            if !unit.is_sync {
                return;
            }
            self.is_sound_alone = false;
            self.break_off(out);
        }
        let leads = self.leading() == Some(number);
        // Where a decoder can start nothing is lost by it.
        if unit.is_sync && leads && self.is_off() {
            self.break_off(out);
        }
        let Some(Some(track)) = self.tracks.get_mut(number) else {
            return;
        };
        track.look((unit.timestamp, now_ns));
        if self.is_running {
            // Sound that comes for the first time since the pictures began.
            if let Some(origin_ns) = self.origin_ns.filter(|_| !track.is_tied()) {
                track.tie((unit.timestamp, now_ns), origin_ns, self.unix_offset_ns);
                track.order = DecodeTimes::default();
            }
            let shown = track.shown_at(unit.timestamp);
            let step = track.shown.map_or(0, |last| shown.saturating_sub(last));
            if track.lane.ns(step).abs() <= JUMP_NS && !track.has_jumped {
                return self.give(number, unit, init, out);
            }
            // Pictures lose nothing by sound that was muted, or whose clock was set: both begin
            // anew with the next that a decoder can start with.
            if !leads {
                track.has_jumped = true;
                return;
            }
            self.break_off(out);
        }
        self.hold(number, unit, init, now_ns);
        if self.may_start(now_ns) {
            self.start(out);
        }
    }

    /// Whether tracks are to be tied anew.
    fn is_off(&self) -> bool {
        let mut tracks = self.tracks.iter().flatten();
        let off_ns = |number: Option<usize>| self.tracks[number?].as_ref()?.off_ns;
        let is_apart = match (off_ns(self.pictures), off_ns(self.sound)) {
            (Some(pictures), Some(sound)) => pictures.abs_diff(sound) > APART_NS_MAX,
            _ => false,
        };
        is_apart || tracks.any(|it| it.has_jumped || it.has_drifted())
    }

    fn hold(&mut self, track: usize, unit: AccessUnit, init: Option<Arc<InitSegment>>, at_ns: u64) {
        // Its units between which the clock jumps have no times that are tied to each other.
        let mut own = self.held.iter().filter(|held| held.track == track);
        let jumps = own.next_back().is_some_and(|last| {
            let step = unit.timestamp.wrapping_sub(last.unit.timestamp);
            let of = self.tracks[track].as_ref();
            let ns = of.map_or(0, |of| of.lane.ns(step.cast_signed().into()));
            ns.abs() > JUMP_NS
        });
        if jumps {
            self.held.retain(|held| held.track != track);
            self.held_bytes = self.held.iter().map(|held| held.unit.data.len()).sum();
        }
        let is_picture = self.pictures == Some(track);
        let has_begun = self.held.iter().any(|held| held.track == track);
        let mut init = init;
        if is_picture && !has_begun {
            if !unit.is_sync {
                return;
            }
            // What was told with a unit that was left out.
            init = init.or_else(|| self.tracks[track].as_ref()?.init.clone());
        }
        self.held_bytes += unit.data.len();
        self.held.push_back(Held {
            track,
            unit,
            init,
            at_ns,
        });
        while self.held.len() > HELD_MAX || self.held_bytes > HELD_BYTES_MAX {
            let Some(first) = self.held.pop_front() else {
                break;
            };
            self.held_bytes -= first.unit.data.len();
        }
    }

    fn may_start(&self, now_ns: u64) -> bool {
        let leading = self.leading();
        let mut held = self.held.iter().filter(|held| Some(held.track) == leading);
        let count = held.clone().count();
        let since_ns = held.next().map_or(now_ns, |first| first.at_ns);
        count >= ORDER_UNITS || count >= 2 && now_ns.saturating_sub(since_ns) >= ORDER_NS
    }

    /// The track whose sync samples are where segments begin.
    fn leading(&self) -> Option<usize> {
        let pictures = self.pictures.filter(|_| !self.is_sound_alone);
        pictures.or(self.sound)
    }

    fn start(&mut self, out: &mut Vec<Output>) {
        let held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        let origin_ns = self.origin_ns.unwrap_or_else(|| self.first_ns(&held));
        self.origin_ns = Some(origin_ns);
        let leading = self.leading();
        for (number, track) in self.tracks.iter_mut().enumerate() {
            let Some(track) = track else { continue };
            let own = held.iter().filter(|held| held.track == number);
            let Some(first) = own.clone().next() else {
                continue;
            };
            let first = (first.unit.timestamp, first.at_ns);
            track.tie(first, origin_ns, self.unix_offset_ns);
            // From the first unit on; the line is near to it.
            let shown = own.map(|held| track.shown_at(held.unit.timestamp));
            let shown: Vec<_> = shown.take(ORDER_UNITS).collect();
            track.order = DecodeTimes::new(&shown);
            if let Some(&first) = shown.first() {
                track.go_back_to(first);
            }
            if self.part_us.is_none() && leading == Some(number) {
                let us = track.lane.part_us(&shown);
                self.part_us = Some(us);
                out.push(Output::PartTarget(us));
            }
        }
        self.is_running = true;
        let begins = held.iter().find(|held| Some(held.track) == self.pictures);
        let begins_ns = begins.and_then(|first| {
            let track = self.tracks[first.track].as_mut()?;
            let shown = track.shown_at(first.unit.timestamp);
            Some(track.lane.ns(shown))
        });
        for Held {
            track, unit, init, ..
        } in held
        {
            if self.sound == Some(track)
                && let Some(of) = &mut self.tracks[track]
            {
                let shown = of.shown_at(unit.timestamp);
                if begins_ns.is_some_and(|begins| of.lane.ns(shown) < begins) {
                    // It is described with the next.
                    continue;
                }
            }
            self.give(track, unit, init, out);
        }
    }

    /// When the first of these was on the clock, by its track's line: what was kept before the
    /// channel was asked for came all at once, and may be older by then than the lead of its times.
    fn first_ns(&self, held: &VecDeque<Held>) -> i64 {
        let tracks = self.tracks.iter().enumerate();
        let firsts = tracks.filter_map(|(number, track)| {
            let first = held.iter().find(|held| held.track == number)?;
            let unit = (first.unit.timestamp, first.at_ns);
            Some(track.as_ref()?.clock_ns(unit))
        });
        firsts.min().unwrap_or(0)
    }

    /// Takes a unit whose time is tied to the others'.
    fn give(
        &mut self,
        number: usize,
        unit: AccessUnit,
        init: Option<Arc<InitSegment>>,
        out: &mut Vec<Output>,
    ) {
        let Some(Some(track)) = self.tracks.get_mut(number) else {
            return;
        };
        let shown = track.shown_at(unit.timestamp);
        track.shown = Some(track.order.newest().unwrap_or(shown).max(shown));
        let is_picture = self.pictures == Some(number);
        let decoded = track.order.next(shown);
        track.waiting.push_back(LiveSample {
            data: unit.data,
            decoded,
            shown,
            is_sync: unit.is_sync,
            init,
        });
        if is_picture {
            while let Some((sample, lasts)) = self.next_of(number) {
                self.picture(number, sample, lasts, out);
            }
        }
        self.release_sound(false, out);
    }

    /// A sample of which it is known how long it lasts.
    fn next_of(&mut self, number: usize) -> Option<(LiveSample, i64)> {
        let track = self.tracks[number].as_mut()?;
        let next = track.waiting.get(1)?.decoded;
        let sample = track.waiting.pop_front()?;
        let lasts = next.saturating_sub(sample.decoded).max(1);
        track.lasts = lasts;
        Some((sample, lasts))
    }

    /// The last sample: nothing tells how long it lasts.
    fn last_of(&mut self, number: usize) -> Option<(LiveSample, i64)> {
        let track = self.tracks[number].as_mut()?;
        let sample = track.waiting.pop_front()?;
        Some((sample, track.lasts.max(1)))
    }

    fn picture(&mut self, number: usize, sample: LiveSample, lasts: i64, out: &mut Vec<Output>) {
        let Some(track) = self.tracks[number].as_ref() else {
            return;
        };
        let lengths = track.lane.lengths(self.part_us, self.target_s);
        let ends = sample.is_sync && track.lane.may_end();
        let is_new = sample.init.is_some();
        if ends || is_new || track.lane.must_end(&sample, lasts, lengths) {
            let is_first = track.lane.ticks() == 0;
            if !is_first {
                self.decide_target(out);
                self.end_pictures(number, sample.shown, is_new, out);
            }
        }
        self.add(number, sample, lasts, out);
    }

    /// Ends a segment of pictures where this one is shown, and says so to sound.
    fn end_pictures(&mut self, number: usize, shown: i64, is_break: bool, out: &mut Vec<Output>) {
        let Some(track) = self.tracks[number].as_mut() else {
            return;
        };
        track.lane.end_segment(out);
        self.ends.push(track.lane.ns(shown), is_break);
        if is_break {
            track.lane.break_off();
        }
    }

    /// Puts a sample behind those of its segment.
    fn add(&mut self, number: usize, sample: LiveSample, lasts: i64, out: &mut Vec<Output>) {
        if let Some(track) = self.tracks[number].as_mut() {
            let lengths = track.lane.lengths(self.part_us, self.target_s);
            track.lane.push(sample, lasts, lengths, out);
        }
    }

    /// The first segment says how long all are (RFC 8216bis, section 4.4.3.1: it never changes), or
    /// one that is longer by then: sound goes on while pictures are late.
    fn decide_target(&mut self, out: &mut Vec<Output>) {
        if self.target_s.is_none() {
            let tracks = self.tracks.iter().flatten();
            let longest_s = tracks.map(|track| track.lane.target_s()).max();
            let seconds = longest_s.unwrap_or(0).max(TARGET_S_MIN);
            self.target_s = Some(seconds);
            out.push(Output::Target(seconds));
        }
    }

    /// Gives sound as far as pictures have come; with `all` what waits.
    fn release_sound(&mut self, all: bool, out: &mut Vec<Output>) {
        let pictures = self.pictures.filter(|_| !self.is_sound_alone);
        let pictures = pictures.and_then(|it| self.tracks[it].as_ref());
        let come_ns = pictures.map(|track| {
            let next = track.waiting.front().map(|sample| sample.decoded);
            next.map_or(i64::MIN, |ticks| track.lane.ns(ticks))
        });
        let Some(number) = self.sound else { return };
        loop {
            let Some(track) = &self.tracks[number] else {
                return;
            };
            let Some(front) = track.waiting.front() else {
                return;
            };
            let at_ns = track.lane.ns(front.shown);
            let newest = track
                .waiting
                .back()
                .map_or(at_ns, |it| track.lane.ns(it.shown));
            let is_late = track.waiting.len() > SOUND_WAITING_MAX
                || newest.saturating_sub(at_ns) > SOUND_WAITING_NS_MAX;
            if come_ns.is_some_and(|come| at_ns >= come) && !is_late && !all {
                return;
            }
            let Some((sample, lasts)) = self.next_of(number) else {
                return;
            };
            self.frame(number, sample, lasts, at_ns, out);
        }
    }

    fn frame(
        &mut self,
        number: usize,
        mut sample: LiveSample,
        lasts: i64,
        at_ns: i64,
        out: &mut Vec<Output>,
    ) {
        let is_alone = self.leading() == Some(number);
        let Some(track) = self.tracks[number].as_mut() else {
            return;
        };
        if let Some(breaks) = self.ends.take_until(at_ns) {
            track.lane.end_segment(out);
            (0..breaks).for_each(|_| track.lane.break_off());
        }
        let lengths = track.lane.lengths(self.part_us, self.target_s);
        let must_end = track.lane.must_end(&sample, lasts, lengths);
        let is_first = !std::mem::replace(&mut track.is_told, true);
        sample.init = track.init.clone().filter(|_| is_first);
        if must_end || is_alone && track.lane.is_long() {
            self.decide_target(out);
            if let Some(track) = self.tracks[number].as_mut() {
                track.lane.end_segment(out);
            }
        }
        self.add(number, sample, lasts, out);
    }

    /// Ends all that is open; what comes begins anew.
    fn break_off(&mut self, out: &mut Vec<Output>) {
        if !self.is_running {
            return;
        }
        if let Some(number) = self.pictures
            && let Some((sample, lasts)) = self.last_of(number)
        {
            self.picture(number, sample, lasts, out);
        }
        self.release_sound(true, out);
        if let Some(number) = self.sound
            && let Some((sample, lasts)) = self.last_of(number)
        {
            let at_ns = self.tracks[number]
                .as_ref()
                .map_or(0, |it| it.lane.ns(sample.shown));
            self.frame(number, sample, lasts, at_ns, out);
        }
        // Breaks that sound has not come to are breaks of it all the same.
        let passed = self.ends.take_all();
        if let Some(Some(track)) = self.sound.map(|it| &mut self.tracks[it]) {
            (0..passed).for_each(|_| track.lane.break_off());
        }
        let mut lanes = self.tracks.iter().flatten().map(|track| &track.lane);
        if lanes.any(|lane| lane.ticks() > 0) {
            self.decide_target(out);
        }
        for track in self.tracks.iter_mut().flatten() {
            track.lane.end_segment(out);
            track.lane.break_off();
            track.untie();
        }
        self.is_running = false;
    }
}
