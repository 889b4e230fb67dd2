//! Movie fragments (`moof`, ISO/IEC 14496-12, section 8.8): samples that are told of only when they
//! are there.

use super::boxes::{Boxes, Fields};
use super::entry::Kind;
use super::fill::{Defaults, note};
use super::movie::Movie;
use super::tables::Told;
use crate::media::fragment_flags::tfhd::{
    BASE_IS_MOOF, BASE_OFFSET, DEFAULT_BYTES, DEFAULT_DURATION, DEFAULT_FLAGS, DESCRIPTION,
};
use crate::media::fragment_flags::trun::{
    COMPOSITIONS, DATA_OFFSET, DURATIONS, FIRST_FLAGS, FLAGS, SIZES,
};
use crate::media::fragment_flags::{SAMPLE_DEPENDS, SAMPLE_IS_NOT_SYNC};

/// What a fragment says of one track.
#[derive(Clone, Debug)]
struct Traf<'a> {
    /// The track, by its place among those that are played, if it is one of them.
    track: Option<usize>,
    defaults: Defaults,
    /// Where its data is counted from.
    base: u64,
    /// When its first sample is decoded, if it says so.
    decode_ticks: Option<i64>,
    runs: Boxes<'a>,
}

/// The samples of a run (`trun`).
#[derive(Clone, Debug)]
struct Run<'a> {
    flags: u32,
    first_flags: Option<u32>,
    rows: Fields<'a>,
    defaults: Defaults,
    /// The flags that say of a sample that no decoder can start at it.
    not_sync: u32,
    /// How many are left, and how many of them may be put together.
    left: u32,
    at_once: u32,
    offset: u64,
    decode_ticks: i64,
}

impl Movie {
    /// Adds the samples of a fragment that begins at `at` in the file.
    pub(super) fn add_fragment(&mut self, moof: &[u8], at: u64) {
        let trafs = Boxes(moof).filter(|(name, _)| name == b"traf");
        let is_first = self.tracks.iter().all(|it| it.samples.len() == 0);
        if is_first {
            let all = trafs
                .clone()
                .filter_map(|(_, traf)| self.traf(traf, at, at));
            let begins = all.filter_map(|traf| self.begins(&traf));
            let first = begins.min_by(|one, other| (one.0 * other.1).cmp(&(other.0 * one.1)));
            if let Some((ticks, timescale)) = first {
                self.begin(ticks.max(0), timescale);
            }
        }
        // Where data goes on if nothing says where it begins.
        let mut data_end = at;
        for (_, bytes) in trafs {
            if let Some(traf) = self.traf(bytes, at, data_end) {
                data_end = self.add_traf(&traf);
            }
        }
        if is_first {
            self.begin_with_pictures();
        }
    }

    /// When the last sample of a fragment ends, in ns, if it is told when it begins.
    pub(super) fn fragment_end_ns(&self, moof: &[u8]) -> Option<u64> {
        let trafs = Boxes(moof).filter(|(name, _)| name == b"traf");
        let ends = trafs.filter_map(|(_, bytes)| {
            let traf = self.traf(bytes, 0, 0)?;
            let (track, mut ticks) = (traf.track?, traf.decode_ticks?);
            for (_, bytes) in traf.runs.clone().filter(|(name, _)| name == b"trun") {
                if let Some(mut run) = Run::read(bytes, &traf, 0, ticks) {
                    run.at_once = u32::MAX;
                    run.by_ref().for_each(drop);
                    ticks = run.decode_ticks;
                }
            }
            let filler = &self.fillers[track];
            let shift = filler.decode_shift.unwrap_or(0);
            let ticks = filler.since_origin(ticks).saturating_sub(shift);
            let end_ns = self.tracks[track].time_ns(ticks);
            u64::try_from(end_ns).ok()
        });
        ends.max()
    }

    /// When a track fragment begins, if it is told: ticks, and how many a second has.
    fn begins(&self, traf: &Traf<'_>) -> Option<(i128, i128)> {
        let number = traf.track?;
        let (filler, track) = (&self.fillers[number], &self.tracks[number]);
        let ticks = filler.since_origin(traf.decode_ticks?);
        let ticks = i128::from(ticks) + i128::from(track.shift_ticks);
        Some((ticks, i128::from(track.timescale.max(1))))
    }

    /// The beginning of the file is that of its first fragment, whatever its clock shows then. No
    /// ns are made of it: 64 bits have room for those of 292 years, and some clocks count from
    /// 1601.
    fn begin(&mut self, ticks: i128, timescale: i128) {
        for filler in &mut self.fillers {
            let ticks = ticks * i128::from(filler.timescale) / timescale;
            let ticks = i64::try_from(ticks).unwrap_or(0);
            filler.origin_ticks = filler.origin_ticks.saturating_add(ticks);
        }
    }

    /// What a track fragment box says, in a fragment at `moof`, with its data at `data` if it does
    /// not say where.
    fn traf<'a>(&self, traf: &'a [u8], moof: u64, data: u64) -> Option<Traf<'a>> {
        let boxes = Boxes(traf);
        let mut fields = Fields(boxes.first(b"tfhd")?);
        let (_, flags) = fields.version_and_flags()?;
        let id = fields.u32()?;
        let mut base = match flags & BASE_IS_MOOF != 0 {
            true => moof,
            false => data,
        };
        if flags & BASE_OFFSET != 0 {
            base = fields.u64()?;
        }
        let track = self.fillers.iter().position(|it| it.id == id);
        let of_track = self.defaults.iter().find(|(of, _)| *of == id);
        let mut defaults = of_track.map(|it| it.1).unwrap_or_default();
        let told = [
            (DESCRIPTION, &mut defaults.description),
            (DEFAULT_DURATION, &mut defaults.duration),
            (DEFAULT_BYTES, &mut defaults.bytes),
            (DEFAULT_FLAGS, &mut defaults.flags),
        ];
        for (flag, place) in told {
            if flags & flag != 0 {
                *place = fields.u32()?;
            }
        }
        let decode_ticks = boxes.first(b"tfdt").and_then(|bytes| {
            let mut fields = Fields(bytes);
            let (version, _) = fields.version_and_flags()?;
            i64::try_from(fields.wide(version)?).ok()
        });
        Some(Traf {
            track,
            defaults,
            base,
            decode_ticks,
            runs: boxes,
        })
    }

    /// Adds the samples of a track fragment. Returns where its data ends.
    fn add_traf(&mut self, traf: &Traf<'_>) -> u64 {
        let (mut offset, mut decode_ticks) = (traf.base, 0);
        let track = traf.track.filter(|&it| !self.fillers[it].is_ended);
        if let Some(track) = track {
            decode_ticks = self.begin_traf(track, traf.decode_ticks);
        }
        for (_, bytes) in traf.runs.clone().filter(|(name, _)| name == b"trun") {
            let Some(mut run) = Run::read(bytes, traf, offset, decode_ticks) else {
                continue;
            };
            if let Some(track) = track {
                self.add_run(track, &mut run);
            }
            // Of what is not taken only the length counts.
            run.at_once = u32::MAX;
            run.by_ref().for_each(drop);
            (offset, decode_ticks) = (run.offset, run.decode_ticks);
        }
        offset
    }

    /// When the first sample of a fragment of a track is decoded.
    fn begin_traf(&mut self, track: usize, told: Option<i64>) -> i64 {
        let (filler, track) = (&self.fillers[track], &mut self.tracks[track]);
        let last = track.samples.last_decode_ticks() + filler.decode_shift.unwrap_or(0);
        let last = last.saturating_add(filler.origin_ticks);
        match told {
            Some(told) if track.samples.len() == 0 || told >= last => told,
            Some(_) => {
                let problem = "a fragment begins before the one in front of it".to_owned();
                note(&mut track.facts.problems, problem);
                filler.next_ticks
            }
            None => filler.next_ticks,
        }
    }

    fn add_run(&mut self, track: usize, run: &mut Run<'_>) {
        let mut room = self.room();
        let (filler, track) = (&mut self.fillers[track], &mut self.tracks[track]);
        let problems = &mut track.facts.problems;
        if filler.decode_shift.is_none() {
            // Without that column all are 0, and a run may tell of four billion samples.
            let told = (run.flags & COMPOSITIONS != 0).then(|| run.clone());
            let least = told.into_iter().flatten().map(|it| it.composition_ticks);
            let least = least.min();
            filler.shift_by(-least.unwrap_or(0).min(0), problems);
        }
        // Some writers say no more of a picture than that it depends on others.
        if filler.kind == Kind::Pictures {
            run.not_sync = SAMPLE_IS_NOT_SYNC | SAMPLE_DEPENDS;
        }
        run.at_once = filler.at_once(Some(run.defaults.bytes));
        if run.is_uniform() && run.defaults.bytes == 0 {
            run.at_once = u32::MAX;
        }
        for told in run {
            let before = track.samples.len();
            if let Err(reason) = filler.push(&mut track.samples, told, room) {
                filler.is_ended = true;
                note(problems, reason);
                break;
            }
            room -= track.samples.len() - before;
        }
    }
}

impl<'a> Run<'a> {
    fn read(trun: &'a [u8], traf: &Traf<'_>, offset: u64, decode_ticks: i64) -> Option<Self> {
        let mut fields = Fields(trun);
        let (_, flags) = fields.version_and_flags()?;
        let told = fields.u32()?;
        let mut offset = offset;
        if flags & DATA_OFFSET != 0 {
            let from_base = fields.i32()?;
            offset = traf.base.saturating_add_signed(from_base.into());
        }
        let first_flags = match flags & FIRST_FLAGS != 0 {
            true => Some(fields.u32()?),
            false => None,
        };
        let columns = (flags & (DURATIONS | SIZES | FLAGS | COMPOSITIONS)).count_ones();
        let rows = fields.0.len().checked_div(4 * columns as usize);
        let rows = rows.map_or(u32::MAX, |rows| u32::try_from(rows).unwrap_or(u32::MAX));
        Some(Self {
            flags,
            first_flags,
            rows: fields,
            defaults: traf.defaults,
            not_sync: 0,
            left: told.min(rows),
            at_once: 1,
            offset,
            decode_ticks,
        })
    }

    /// Whether all samples are alike.
    fn is_uniform(&self) -> bool {
        self.flags & (DURATIONS | SIZES | FLAGS | COMPOSITIONS) == 0
    }
}

impl Iterator for Run<'_> {
    type Item = Told;

    fn next(&mut self) -> Option<Told> {
        if self.left == 0 {
            return None;
        }
        let count = match self.is_uniform() {
            true => self.at_once.min(self.left),
            false => 1,
        };
        let defaults = self.defaults;
        let mut column = |flag, default| match self.flags & flag != 0 {
            true => self.rows.u32(),
            false => Some(default),
        };
        let duration = column(DURATIONS, defaults.duration)?;
        let bytes = column(SIZES, defaults.bytes)?;
        let flags = column(FLAGS, defaults.flags)?;
        // Version 0 has no negative ones; but nobody has any beyond 2^31, and files lie.
        let composition = column(COMPOSITIONS, 0)?.cast_signed();
        let flags = self.first_flags.take().unwrap_or(flags);
        let told = Told {
            offset: self.offset,
            bytes: u64::from(bytes) * u64::from(count),
            count,
            decode_ticks: self.decode_ticks,
            composition_ticks: composition.into(),
            duration_ticks: u64::from(duration) * u64::from(count),
            is_sync: flags & self.not_sync == 0,
            description: defaults.description,
        };
        self.left -= count;
        self.offset = self.offset.saturating_add(told.bytes);
        let duration = told.duration_ticks.cast_signed();
        self.decode_ticks = self.decode_ticks.saturating_add(duration);
        Some(told)
    }
}
