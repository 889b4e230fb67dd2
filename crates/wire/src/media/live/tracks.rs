//! Channels of tracks: one of pictures and one of sound, cut at the same times.
//!
//! Pictures say where segments end: at sync samples. Sound waits until pictures have come as far,
//! so that its segments end at the same times. Without pictures sound is cut by its own times.
//!
//! The first units are held until it is known how pictures are ordered and how the tracks' clocks
//! lie to each other; after a publisher has come anew, again.

use std::collections::VecDeque;
use std::sync::Arc;

use super::description::describe;
use super::ends::Ends;
use super::lane::{Lane, Lengths, LiveSample};
use super::order::DecodeTimes;
use super::output::{InitSegment, LiveRendition, Output};
use super::track_cut::{JUMP_NS, TrackCut};
use super::units::{AccessUnit, Units};
use super::{PART_US, SEGMENT_US_MAX, SEGMENT_US_MIN, TARGET_S_MIN, part_target_us};
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

    pub(super) fn line(&mut self, track: usize, timestamp: u32, at_ns: u64) {
        if let Some(Some(track)) = self.tracks.get_mut(track) {
            track.set_line(timestamp, at_ns, self.origin_ns);
        }
    }

    pub(super) fn begin(&mut self, out: &mut Vec<Output>) {
        self.break_off(out);
        for track in self.tracks.iter_mut().flatten() {
            track.begin();
        }
        self.held.clear();
        self.held_bytes = 0;
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
        for (unit, init) in units {
            self.unit(number, unit, init, now_ns, out);
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
        let leads = self.leading() == Some(number);
        let mut tracks = self.tracks.iter().flatten();
        // Where a decoder can start nothing is lost by it.
        if unit.is_sync && leads && tracks.any(|it| it.has_jumped || it.has_drifted()) {
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
        self.pictures.or(self.sound)
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
                let us = part_us(&shown, &track.lane);
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

    fn picture(&mut self, number: usize, sample: LiveSample, lasts: i64, out: &mut Vec<Output>) {
        let Some(track) = self.tracks[number].as_mut() else {
            return;
        };
        let lengths = lengths(&track.lane, self.part_us, self.target_s);
        let ends = sample.is_sync && is_long(&track.lane);
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
            let lengths = lengths(&track.lane, self.part_us, self.target_s);
            track.lane.push(sample, lasts, lengths, out);
        }
    }

    /// The first segment says how long all are (RFC 8216bis, section 4.4.3.1: it never changes), or
    /// one that is longer by then: sound goes on while pictures are late.
    fn decide_target(&mut self, out: &mut Vec<Output>) {
        if self.target_s.is_none() {
            let lanes = self.tracks.iter().flatten().map(|track| &track.lane);
            let longest_ns = lanes.map(|lane| lane.ns(lane.ticks())).max();
            let rounded = longest_ns.unwrap_or(0).saturating_add(500_000_000) / 1_000_000_000;
            let seconds = u64::try_from(rounded).unwrap_or(0).max(TARGET_S_MIN);
            self.target_s = Some(seconds);
            out.push(Output::Target(seconds));
        }
    }

    /// Gives sound as far as pictures have come; with `all` what waits.
    fn release_sound(&mut self, all: bool, out: &mut Vec<Output>) {
        let pictures = self.pictures.and_then(|it| self.tracks[it].as_ref());
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
        let Some(track) = self.tracks[number].as_mut() else {
            return;
        };
        if let Some(breaks) = self.ends.take_until(at_ns) {
            track.lane.end_segment(out);
            (0..breaks).for_each(|_| track.lane.break_off());
        }
        let is_alone = self.pictures.is_none();
        let lengths = lengths(&track.lane, self.part_us, self.target_s);
        let must_end = track.lane.must_end(&sample, lasts, lengths);
        let is_first = !std::mem::replace(&mut track.is_told, true);
        sample.init = track.init.clone().filter(|_| is_first);
        if must_end || is_alone && is_long(&track.lane) {
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
        let last = |track: &mut TrackCut| {
            let sample = track.waiting.pop_front()?;
            Some((sample, track.lasts.max(1)))
        };
        if let Some(number) = self.pictures
            && let Some((sample, lasts)) = self.tracks[number].as_mut().and_then(last)
        {
            self.picture(number, sample, lasts, out);
        }
        self.release_sound(true, out);
        if let Some(number) = self.sound
            && let Some((sample, lasts)) = self.tracks[number].as_mut().and_then(last)
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

/// The tracks that are not cut, by their numbers, and why not.
pub(super) fn left_out(tracks: &[Track]) -> Vec<(usize, String)> {
    let media = tracks.iter().enumerate();
    let media = media.filter(|(_, track)| track.medium != Medium::Application);
    let left_out = media.filter_map(|(number, track)| Some((number, units_of(track).err()?)));
    left_out.collect()
}

/// What puts the packets of a track together.
///
/// # Errors
///
/// In words, if nothing is made of it.
fn units_of(track: &Track) -> Result<Units, String> {
    let nothing = || format!("{} is not made into segments", track.encoding);
    let units = Units::new(track).ok_or_else(nothing)?;
    // Sound has its description from the start, or never.
    if track.medium == Medium::Audio {
        describe(track, units.sets())?.ok_or_else(nothing)?;
    }
    Ok(units)
}

fn ticks(us: u64, timescale: u32) -> i64 {
    let ticks = u128::from(us) * u128::from(timescale) / 1_000_000;
    i64::try_from(ticks).unwrap_or(i64::MAX)
}

fn lengths(lane: &Lane, part_us: Option<u64>, target_s: Option<u64>) -> Lengths {
    let segment_us = target_s.map_or(SEGMENT_US_MAX, |it| it * 1_000_000);
    Lengths {
        part: ticks(part_us.unwrap_or(PART_US), lane.timescale),
        segment: ticks(segment_us, lane.timescale),
    }
}

fn is_long(lane: &Lane) -> bool {
    lane.ticks() >= ticks(SEGMENT_US_MIN, lane.timescale)
}

/// How long parts are, by when the first units are shown.
fn part_us(shown: &[i64], lane: &Lane) -> u64 {
    let mut sorted = shown.to_vec();
    sorted.sort_unstable();
    let steps = sorted.windows(2).map(|pair| lane.ns(pair[1] - pair[0]));
    let longest_us = steps.max().unwrap_or(0).div_euclid(1000) + 1;
    part_target_us(u64::try_from(longest_us).unwrap_or(0))
}
