//! When frames are decoded, of a format that says when they are shown.
//!
//! Blocks lie in the order of decoding. If a decoder holds back so many frames before it shows one
//! (the depth), then the times of decoding are the times of showing in ascending order, so many
//! frames earlier: each is the largest time so far but for as many larger ones as the depth is. The
//! depth is that of the first frames, [`AHEAD_FRAMES`] of them, and grows where the file shows that
//! it is larger; so the time of a frame never depends on what comes more than that behind it.
//!
//! Matroska rounds times, to milliseconds as a rule. Where the track or its codec says how long a
//! frame lasts, and the times are that, rounded, they are put back to where they were.

use std::collections::VecDeque;

/// Frames at which the depth is found. More than decoders hold back (16, ISO/IEC 14496-10, A.3.1).
const AHEAD_FRAMES: usize = 32;

/// The largest depth.
const DEPTH_MAX: usize = 16;

/// A frame that is so much earlier than one before it is left out: it would come too late to be
/// shown, and the clock would have to stand still until its time comes again.
const LATE_NS: i64 = 5_000_000_000;

/// Ticks a second that have frames of all usual rates of pictures as whole numbers, also those
/// divided by 1.001.
const EXACT_HZ: u32 = 720_000;

/// Times are between the negative of this and this: beyond what a table of samples takes, and far
/// from what overflows.
const TICKS_MAX: i64 = 1 << 50;

/// A frame with all that is known of it but its time of decoding.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) is_sync: bool,
    /// The numbers of its parts; none if it has the usual one.
    pub(super) parts: Box<[u32]>,
    /// When it is shown, in ticks.
    pub(super) shown: i64,
}

/// A frame whose times are certain, in ticks.
#[derive(Debug)]
pub(super) struct Timed {
    pub(super) frame: Frame,
    pub(super) decoded: i64,
    /// Until the next is decoded.
    pub(super) lasts: i64,
}

/// How long each frame of a codec lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Period {
    /// In ticks, of which a second has `hz`. Neither is 0.
    pub(super) ticks: u32,
    pub(super) hz: u32,
}

/// How times of the file become ticks of the track.
#[derive(Clone, Debug)]
struct Grid {
    /// ns of a unit of the file.
    unit_ns: u64,
    hz: u32,
    /// How long a frame lasts, as the file says; and in ticks, if that is a whole number.
    default_ns: Option<u64>,
    period: Option<i64>,
    /// When the first frame is shown.
    first: Option<i64>,
}

impl Grid {
    fn new(unit_ns: u64, default_ns: Option<u64>, frame: Option<Period>, clock_hz: u32) -> Self {
        let plain_hz = if unit_ns.is_multiple_of(1_000_000) {
            1000
        } else {
            1_000_000
        };
        let exact = default_ns.and_then(|ns| {
            let whole = |hz: u32| whole_ticks(ns, hz).map(|ticks| (hz, ticks));
            whole(clock_hz).or_else(|| whole(EXACT_HZ))
        });
        let exact = exact.or_else(|| frame.map(|frame| (frame.hz, frame.ticks.into())));
        Self {
            unit_ns,
            hz: exact.map_or(plain_hz, |(hz, _)| hz),
            default_ns,
            period: exact.map(|(_, period)| period),
            first: None,
        }
    }

    fn ticks_of_ns(&self, ns: i128) -> i64 {
        // A file may say that its unit is centuries: what is cut is far beyond the limit.
        let scaled = ns
            .saturating_mul(self.hz.into())
            .saturating_add(500_000_000);
        let ticks = scaled.div_euclid(1_000_000_000);
        let limit = i128::from(TICKS_MAX);
        i64::try_from(ticks.clamp(-limit, limit)).unwrap_or(TICKS_MAX)
    }

    fn ticks(&self, units: i64) -> i64 {
        self.ticks_of_ns(i128::from(units) * i128::from(self.unit_ns))
    }

    /// When a block is shown that is stamped so, rounding undone.
    fn shown(&mut self, units: i64) -> i64 {
        let ticks = self.ticks(units);
        let first = *self.first.get_or_insert(ticks);
        let rounding = self.ticks_of_ns(self.unit_ns.into()) + 1;
        let Some(period) = self.period.filter(|&period| period > 3 * rounding) else {
            return ticks;
        };
        let beyond = ticks - first;
        let nearest = first + (beyond + period / 2).div_euclid(period) * period;
        match (nearest - ticks).abs() <= rounding {
            true => nearest,
            false => ticks,
        }
    }
}

/// How many ticks `ns` are, if that is a whole number but for what is lost below a ns.
fn whole_ticks(ns: u64, hz: u32) -> Option<i64> {
    let scaled = u128::from(ns) * u128::from(hz);
    let ticks = (scaled + 500_000_000) / 1_000_000_000;
    let off = scaled.abs_diff(ticks * 1_000_000_000);
    i64::try_from(ticks)
        .ok()
        .filter(|&ticks| ticks > 0 && off <= hz.into())
}

/// Gives the frames of one track their times.
#[derive(Clone, Debug)]
pub(super) struct Times {
    grid: Grid,
    /// Frames that wait for the next block, which says how long they last: those of the last block,
    /// if it has several.
    laced: Vec<Frame>,
    /// Frames that wait until the depth is known.
    ahead: VecDeque<Frame>,
    depth: Option<usize>,
    /// The latest times so far, in descending order: one more than the depth may be.
    latest: Vec<i64>,
    frames: usize,
    /// What the first frames count from that come before the depth is reached: the first time, and
    /// how long a frame lasts.
    start: (i64, i64),
    /// The last frame, with its time of decoding, and how long it lasts if no other follows.
    last: Option<(Frame, i64, i64)>,
    /// The same as the file says of the frames of the last block, if it does.
    told: Option<i64>,
    /// How many frames were left out because they are too late.
    pub(super) left_out: u64,
}

impl Times {
    /// Those of a track in a file that counts in units of `unit_ns`, whose RTP clock is `clock_hz`,
    /// and whose frames last so long as the file says, or else as the codec does.
    pub(super) fn new(
        unit_ns: u64,
        default_ns: Option<u64>,
        frame: Option<Period>,
        clock_hz: u32,
        is_reordered: bool,
    ) -> Self {
        Self {
            grid: Grid::new(unit_ns, default_ns, frame, clock_hz),
            laced: Vec::new(),
            ahead: VecDeque::new(),
            depth: (!is_reordered).then_some(0),
            latest: Vec::new(),
            frames: 0,
            start: (0, 0),
            last: None,
            told: None,
            left_out: 0,
        }
    }

    /// Ticks a second of its times.
    pub(super) fn hz(&self) -> u32 {
        self.grid.hz
    }

    /// How many ticks `ns` are.
    pub(super) fn ticks_of_ns(&self, ns: u64) -> i64 {
        self.grid.ticks_of_ns(ns.into())
    }

    /// Takes a block, with its time and how long it lasts in units of the file, and appends to
    /// `out` what is certain now.
    pub(super) fn block(
        &mut self,
        units: i64,
        lasts: Option<u64>,
        frames: &mut Vec<Frame>,
        out: &mut Vec<Timed>,
    ) {
        let shown = self.grid.shown(units);
        self.spread_laced(shown, out);
        let count = i128::try_from(frames.len()).unwrap_or(1).max(1);
        let lasts_ns = lasts.map(|lasts| i128::from(lasts) * i128::from(self.grid.unit_ns));
        let grid = &self.grid;
        let step = |at: usize| {
            let at = i128::try_from(at).unwrap_or(0);
            let period = grid.period.map(|period| at * i128::from(period));
            let period = period.and_then(|ticks| i64::try_from(ticks).ok());
            let default = grid
                .default_ns
                .map(|ns| grid.ticks_of_ns(at * i128::from(ns)));
            let shared = lasts_ns.map(|ns| grid.ticks_of_ns(at * ns / count));
            period.or(default).or(shared)
        };
        let each = step(1);
        let is_certain = frames.len() < 2 || each.is_some();
        self.told = each.filter(|&ticks| ticks > 0);
        for (at, frame) in frames.iter_mut().enumerate() {
            frame.shown = shown.saturating_add(step(at).unwrap_or(0));
        }
        match is_certain {
            true => frames.drain(..).for_each(|frame| self.put(frame, out)),
            false => self.laced.append(frames),
        }
    }

    /// Frames of a block that does not say how long they last share the time until the next.
    fn spread_laced(&mut self, next: i64, out: &mut Vec<Timed>) {
        let mut laced = std::mem::take(&mut self.laced);
        let count = i64::try_from(laced.len()).unwrap_or(i64::MAX).max(1);
        for (at, mut frame) in (0..).zip(laced.drain(..)) {
            let until = next.saturating_sub(frame.shown).max(0);
            frame.shown += until / count * at + until % count * at / count;
            self.put(frame, out);
        }
        self.laced = laced;
    }

    /// Takes a frame with its time of showing, in the order of decoding.
    fn put(&mut self, frame: Frame, out: &mut Vec<Timed>) {
        if self.depth.is_some() {
            return self.place(frame, out);
        }
        self.ahead.push_back(frame);
        if self.ahead.len() >= AHEAD_FRAMES {
            self.find_depth(out);
        }
    }

    /// The depth, as far as the frames that wait show it; and they need wait no more.
    fn find_depth(&mut self, out: &mut Vec<Timed>) {
        let shown: Vec<_> = self.ahead.iter().map(|frame| frame.shown).collect();
        let later = |at: usize| shown[..at].iter().filter(|&&it| it > shown[at]).count();
        let depth = (0..shown.len()).map(later).max().unwrap_or(0);
        let (Some(&least), Some(&most)) = (shown.iter().min(), shown.iter().max()) else {
            return self.depth = Some(0);
        };
        let count = i64::try_from(shown.len()).unwrap_or(i64::MAX);
        let mean = most.saturating_sub(least) / (count - 1).max(1);
        self.start = (least, self.grid.period.unwrap_or(mean));
        self.depth = Some(depth.min(DEPTH_MAX));
        for frame in std::mem::take(&mut self.ahead) {
            self.place(frame, out);
        }
    }

    fn place(&mut self, frame: Frame, out: &mut Vec<Timed>) {
        let shown = frame.shown;
        let late = self.grid.ticks_of_ns(LATE_NS.into());
        if self
            .latest
            .first()
            .is_some_and(|&it| it.saturating_sub(shown) > late)
        {
            self.left_out += 1;
            return;
        }
        let later = self.latest.partition_point(|&it| it > shown);
        let depth = self.depth.unwrap_or(0).max(later).min(DEPTH_MAX);
        self.depth = Some(depth);
        self.latest.insert(later, shown);
        self.latest.truncate(DEPTH_MAX + 1);
        let mut decoded = match self.latest.get(depth) {
            Some(&time) => time,
            None => {
                let early = i64::try_from(depth - self.frames).unwrap_or(0);
                self.start
                    .0
                    .saturating_sub(early.saturating_mul(self.start.1))
            }
        };
        self.frames += 1;
        let mut step = 0;
        if let Some((frame, before, _)) = self.last.take() {
            decoded = decoded.max(before);
            step = decoded - before;
            out.push(Timed {
                frame,
                decoded: before,
                lasts: step,
            });
        }
        self.last = Some((frame, decoded, self.grid.period.unwrap_or(step)));
    }

    /// No block follows.
    pub(super) fn finish(&mut self, out: &mut Vec<Timed>) {
        let last = self.latest.first().copied().unwrap_or(0);
        let each = self.last.as_ref().map_or(0, |last| last.2);
        let laced = i64::try_from(self.laced.len()).unwrap_or(0);
        let first = self.laced.first().map_or(last, |frame| frame.shown);
        self.spread_laced(first.saturating_add(each.saturating_mul(laced)), out);
        if self.depth.is_none() {
            self.find_depth(out);
        }
        if let Some((frame, decoded, lasts)) = self.last.take() {
            out.push(Timed {
                frame,
                decoded,
                lasts: self.told.unwrap_or(lasts),
            });
        }
    }
}

#[cfg(test)]
mod tests;
