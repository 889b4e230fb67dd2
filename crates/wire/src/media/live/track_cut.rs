//! A track while it is cut: its units, its lane, and how its timestamps lie to the clock.
//!
//! Timestamps are tied to the clock once, where a track begins or begins anew, so that what is made
//! of it has no steps. What is told of the clock later is compared with that: clocks run apart by
//! seconds a day.

use std::collections::VecDeque;
use std::sync::Arc;

use super::ROUNDED_US;
use super::lane::{Lane, LiveSample};
use super::order::DecodeTimes;
use super::output::InitSegment;
use super::units::Units;
use crate::media::track::{Medium, Track};

/// Where the first time of all is, so that none is negative.
const LEAD_NS: i64 = 10_000_000_000;

/// By so much a line may be off what the track was tied by, in ns.
const OFF_NS_MAX: i64 = 500_000_000;

/// A step of so many ns is a break.
pub(super) const JUMP_NS: i64 = 3_000_000_000;

/// A line by which a unit came so many ns before its time is none of its clock.
const AHEAD_NS_MAX: i64 = 1_000_000_000;

/// A track has drifted when so many lines, one behind the other, are off by more: one that goes by
/// an arrival may be seconds late.
const LINES_OFF_MIN: u32 = 12;

/// Segments of pictures are so many us shorter than they might be: the frame of sound at their end
/// goes on beyond it.
const FRAME_US: u64 = 49_000;

/// A track that is cut.
#[derive(Debug)]
pub(super) struct TrackCut {
    pub(super) track: Track,
    pub(super) units: Units,
    pub(super) lane: Lane,
    pub(super) order: DecodeTimes,
    /// A timestamp, and when that was by the clock; whether a report of the publisher's says so, or
    /// an arrival.
    line: Option<(u32, u64)>,
    is_reported: bool,
    /// The last line that was forgotten, which may be told again.
    stale: Option<(u32, u64)>,
    /// The timestamp of the last unit.
    last: Option<u32>,
    /// Its times do not go on where they have ended; it waits until pictures can begin anew.
    pub(super) has_jumped: bool,
    /// The last lines that were off, one behind the other.
    lines_off: u32,
    /// By how many ns what it was tied by was off the first report of its time.
    pub(super) off_ns: Option<i64>,
    /// The last timestamp without its wrapping, and what makes it a time of the media.
    extended: Option<i64>,
    anchor: i64,
    /// When the last unit is shown.
    pub(super) shown: Option<i64>,
    pub(super) waiting: VecDeque<LiveSample>,
    pub(super) lasts: i64,
    /// Which of its parameter sets `init` is of.
    pub(super) described: u64,
    pub(super) init: Option<Arc<InitSegment>>,
    pub(super) is_told: bool,
}

impl TrackCut {
    pub(super) fn new(track: &Track, units: Units, lane: usize) -> Self {
        let rounded_us = match track.medium {
            Medium::Video => ROUNDED_US - FRAME_US,
            _ => ROUNDED_US,
        };
        Self {
            track: track.clone(),
            units,
            lane: Lane::new(lane, track.clock_hz, rounded_us),
            order: DecodeTimes::default(),
            line: None,
            is_reported: false,
            stale: None,
            last: None,
            has_jumped: false,
            lines_off: 0,
            off_ns: None,
            extended: None,
            anchor: 0,
            shown: None,
            waiting: VecDeque::new(),
            lasts: 0,
            described: 0,
            init: None,
            is_told: false,
        }
    }

    /// Takes a line: `timestamp` was at `at_ns` of the clock, whose first time of all is
    /// `origin_ns` once that is known.
    pub(super) fn set_line(
        &mut self,
        (timestamp, at_ns): (u32, u64),
        is_reported: bool,
        origin_ns: Option<i64>,
    ) {
        let told = Some((timestamp, at_ns));
        if told == self.stale {
            return;
        }
        self.stale = None;
        self.is_reported = is_reported;
        let before = std::mem::replace(&mut self.line, told);
        // The same is told again and again.
        if before == self.line {
            return;
        }
        let (Some(last), Some(origin_ns)) = (self.extended, origin_ns) else {
            return;
        };
        let at = self.ticks_at(at_ns, origin_ns);
        let anchor = at.saturating_sub(extended(last, timestamp));
        let off_ns = self.lane.ns(anchor.saturating_sub(self.anchor));
        self.lines_off = match off_ns.saturating_abs() > OFF_NS_MAX {
            true => self.lines_off.saturating_add(1),
            false => 0,
        };
        if is_reported {
            self.off_ns = self.off_ns.or(Some(off_ns));
        }
    }

    /// Another publisher begins, or the same anew.
    pub(super) fn begin(&mut self) {
        self.units.begin();
        (self.line, self.stale, self.last) = (None, None, None);
    }

    /// Looks at a unit, its timestamp and when it came, before it is given a time. What was told of
    /// the clock holds no longer where that has jumped; where nothing came for a while, it does.
    pub(super) fn look(&mut self, unit: (u32, u64)) {
        let Some(last) = self.last.replace(unit.0) else {
            return;
        };
        let step = unit.0.wrapping_sub(last).cast_signed();
        let step_ns = self.lane.ns(step.into());
        let came_ns = i64::try_from(unit.1).unwrap_or(i64::MAX);
        let ahead_ns = self.clock_ns(unit).saturating_sub(came_ns);
        let is_wrong = step_ns < 0 || ahead_ns > AHEAD_NS_MAX;
        // Less than is a break, as pictures come out of order.
        if step_ns.abs() > JUMP_NS / 2 && is_wrong {
            self.stale = self.line.take().or(self.stale);
        }
    }

    /// Whether its times are so far from the clock that it is to be tied anew.
    pub(super) fn has_drifted(&self) -> bool {
        self.lines_off >= LINES_OFF_MIN
    }

    /// When a unit with that timestamp that came at `at_ns` was on the clock: by the line, or then
    /// if there is none.
    pub(super) fn clock_ns(&self, unit: (u32, u64)) -> i64 {
        let (timestamp, at_ns) = self.line.unwrap_or(unit);
        let ticks = unit.0.wrapping_sub(timestamp).cast_signed();
        let at_ns = i64::try_from(at_ns).unwrap_or(i64::MAX);
        at_ns.saturating_add(self.lane.ns(ticks.into()))
    }

    /// Ties it to the clock: by the line, or by a unit, its timestamp and when it came, if there is
    /// none. `unix_offset_ns` is that of the clock.
    pub(super) fn tie(&mut self, unit: (u32, u64), origin_ns: i64, unix_offset_ns: i64) {
        let (timestamp, at_ns) = self.line.unwrap_or(unit);
        self.extended = Some(i64::from(timestamp));
        let at = self.ticks_at(at_ns, origin_ns);
        self.anchor = at.saturating_sub(timestamp.into());
        self.lines_off = 0;
        self.off_ns = self.line.filter(|_| self.is_reported).map(|_| 0);
        let lead_ns = LEAD_NS.saturating_sub(origin_ns);
        self.lane.unix_offset_ns = unix_offset_ns.saturating_sub(lead_ns);
    }

    pub(super) fn is_tied(&self) -> bool {
        self.extended.is_some()
    }

    /// What comes has no times that go on where those before have ended.
    pub(super) fn untie(&mut self) {
        (self.extended, self.shown, self.lines_off) = (None, None, 0);
        (self.off_ns, self.has_jumped) = (None, false);
    }

    /// When a unit with that timestamp is shown, in ticks of the media.
    pub(super) fn shown_at(&mut self, timestamp: u32) -> i64 {
        let last = self.extended.unwrap_or_else(|| i64::from(timestamp));
        let next = extended(last, timestamp);
        self.extended = Some(next);
        next.saturating_add(self.anchor)
    }

    /// What comes next is near to the unit that is shown then.
    pub(super) fn go_back_to(&mut self, shown: i64) {
        self.extended = Some(shown.saturating_sub(self.anchor));
    }

    /// The time of the media that is `at_ns` of the clock, in ticks.
    fn ticks_at(&self, at_ns: u64, origin_ns: i64) -> i64 {
        let since_ns = i128::from(at_ns) - i128::from(origin_ns) + i128::from(LEAD_NS);
        let ticks = since_ns * i128::from(self.lane.timescale) / 1_000_000_000;
        i64::try_from(ticks).unwrap_or(0)
    }
}

/// A timestamp without its wrapping, as near to the last one as can be.
fn extended(last: i64, timestamp: u32) -> i64 {
    let low = u32::try_from(last.rem_euclid(1 << 32)).unwrap_or(0);
    let step = timestamp.wrapping_sub(low).cast_signed();
    last.saturating_add(i64::from(step))
}
