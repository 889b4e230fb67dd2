//! How the samples that tables and fragments tell of come into a track.
//!
//! Here is decided what of them is sent: what an edit list shows, with what a decoder needs in
//! front of it; nothing that has no bytes; nothing behind a sample that cannot be sent.

use super::edits::Edits;
use super::entry::Kind;
use super::tables::{Anomalies, Tables, Told};
use crate::media::samples::{SAMPLES_MAX, Sample, Samples};

/// Of sound, so much in front of where an edit list begins is sent: decoders begin there.
const PREROLL_MS: i64 = 100;

/// Samples that are of one or few bytes are put together to such of so many ms.
const GROUP_MS: u32 = 20;

/// Samples that are held back until it is known whether one behind them is shown; more than
/// pictures are ever reordered by.
const HELD_MAX: usize = 64;

/// Pictures are shown at most so much before they are decoded, as files tell it.
const SHOWN_BEFORE_SECONDS_MAX: i64 = 16;

/// What samples of a fragment have if it does not say otherwise (`trex`, ISO/IEC 14496-12, section
/// 8.8.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Defaults {
    pub(super) description: u32,
    pub(super) duration: u32,
    pub(super) bytes: u32,
    pub(super) flags: u32,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            description: 1,
            duration: 0,
            bytes: 0,
            flags: 0,
        }
    }
}

/// What is known of a track besides its samples.
#[derive(Clone, Debug)]
pub(super) struct Filler {
    pub(super) id: u32,
    pub(super) kind: Kind,
    pub(super) timescale: u32,
    pub(super) edits: Edits,
    /// Of each sample entry, which of the codec's configurations it has.
    pub(super) configurations: Vec<Option<u16>>,
    /// Bytes of a moment of sound, if samples are such.
    pub(super) frame_bytes: Option<u32>,
    /// How much earlier samples are decoded than the file says, so that none is shown before;
    /// `None` as long as none is known.
    pub(super) decode_shift: Option<i64>,
    /// What the clock of its fragments shows when the file begins, which may be anything: live
    /// streams count from 1970.
    pub(super) origin_ticks: i64,
    /// When what follows is decoded, by the file's own times.
    pub(super) next_ticks: i64,
    /// Where in the file the last byte of all samples is followed by others.
    pub(super) end_offset: u64,
    /// Whether something cannot be sent, and nothing behind it.
    pub(super) is_ended: bool,
    /// Samples without a byte.
    pub(super) empty: u32,
    /// Samples of tables that were looked at and are not sent: they take time, too.
    pub(super) passed_over: usize,
}

impl Filler {
    /// How many samples of so many bytes go together: those of one moment of sound do.
    pub(super) fn at_once(&self, bytes: Option<u32>) -> u32 {
        match self.frame_bytes {
            Some(of_moment) if bytes.is_some_and(|bytes| bytes <= of_moment) => {
                self.timescale.div_ceil(1000 / GROUP_MS)
            }
            _ => 1,
        }
    }

    /// Appends a sample to those of the track. There is `room` for so many in the file.
    ///
    /// # Errors
    ///
    /// Why it, and what follows, cannot be sent.
    pub(super) fn push(
        &mut self,
        samples: &mut Samples,
        told: Told,
        room: usize,
    ) -> Result<(), String> {
        self.next_ticks = told
            .decode_ticks
            .saturating_add(told.duration_ticks.cast_signed());
        if told.bytes == 0 {
            self.empty = self.empty.saturating_add(1);
            return Ok(());
        }
        let number = samples.len();
        if room == 0 {
            return Err(too_many());
        }
        let at = (told.description as usize).checked_sub(1);
        let entry = at.and_then(|at| self.configurations.get(at).copied().flatten());
        let Some(entry) = entry else {
            return Err(format!(
                "from sample {number} on it is coded in another way (sample entry {})",
                told.description
            ));
        };
        let shift = self.decode_shift.unwrap_or(0);
        let sample = Sample {
            offset: told.offset,
            bytes: u32::try_from(told.bytes).unwrap_or(u32::MAX),
            decode_ticks: self.since_origin(told.decode_ticks).saturating_sub(shift),
            composition_ticks: told.composition_ticks.saturating_add(shift),
            is_sync: told.is_sync,
            entry,
        };
        let duration = u32::try_from(told.duration_ticks).unwrap_or(u32::MAX);
        samples
            .push(sample, duration)
            .map_err(|it| it.to_string())?;
        self.end_offset = self.end_offset.max(told.offset + told.bytes);
        Ok(())
    }

    /// What the clock of its fragments shows, counted from when the file begins.
    pub(super) fn since_origin(&self, ticks: i64) -> i64 {
        ticks.saturating_sub(self.origin_ticks)
    }

    /// Takes from `tables` what is sent of them, and says in `problems` what is wrong. No more of
    /// their samples are looked at than there is `room` for in the file.
    pub(super) fn fill(
        &mut self,
        tables: Tables<'_>,
        room: usize,
        problems: &mut Vec<String>,
    ) -> Samples {
        let tables = match (self.frame_bytes, tables.equal_bytes()) {
            // QuickTime files say 1 or 2 here, whatever the channels.
            (Some(frame_bytes), Some(told)) if told < frame_bytes => {
                tables.with_equal_bytes(frame_bytes)
            }
            _ => tables,
        };
        let shown_before = self.shift_by(tables.shown_before_ticks(), problems);
        let mut told_of = tables.samples(self.at_once(tables.equal_bytes()));
        let mut samples = Samples::default();
        let end_ticks = self.edits.end_ticks.unwrap_or(i64::MAX);
        let mut held: Vec<Told> = Vec::new();
        let mut left = room;
        for _ in 0..self.first_sent(told_of.clone().take(room), shown_before) {
            told_of.next();
            left -= 1;
        }
        let result = told_of.by_ref().try_for_each(|told| {
            left = left.checked_sub(1).ok_or_else(|| Some(too_many()))?;
            let shown = told.decode_ticks.saturating_add(told.composition_ticks);
            if shown < end_ticks && held.is_empty() {
                let room = room - samples.len();
                return self.push(&mut samples, told, room).map_err(Some);
            }
            if shown >= end_ticks {
                held.push(told);
                if held.len() < HELD_MAX {
                    return Ok(());
                }
                // Nothing that is decoded from here on is shown.
                if told.decode_ticks - shown_before >= end_ticks {
                    return Err(None);
                }
            }
            for held in held.drain(..).chain((shown < end_ticks).then_some(told)) {
                let room = room - samples.len();
                self.push(&mut samples, held, room).map_err(Some)?;
            }
            Ok(())
        });
        if let Err(Some(reason)) = result {
            self.is_ended = true;
            problems.push(reason);
        }
        self.passed_over = room - left - samples.len();
        tell(told_of.anomalies, self.empty, problems);
        samples
    }

    /// Lets samples be decoded earlier by as much as they are shown before. Returns how much that
    /// is by the tables.
    pub(super) fn shift_by(&mut self, shown_before: i64, problems: &mut Vec<String>) -> i64 {
        let most = SHOWN_BEFORE_SECONDS_MAX * i64::from(self.timescale);
        if shown_before > most {
            problems.push(format!(
                "samples are shown {shown_before} ticks before they are decoded"
            ));
        }
        self.decode_shift = Some(if shown_before > most { 0 } else { shown_before });
        shown_before
    }

    /// The first sample that is sent so that the edit list's start can be shown.
    fn first_sent(&self, told_of: impl Iterator<Item = Told>, shown_before: i64) -> usize {
        let preroll = match self.kind {
            Kind::Pictures | Kind::Text => 0,
            Kind::Sound => i64::from(self.timescale) * PREROLL_MS / 1000,
        };
        let wanted = self.edits.start_ticks - preroll;
        if wanted <= 0 {
            return 0;
        }
        let mut first = 0;
        for (at, told) in told_of.enumerate() {
            if told.decode_ticks - shown_before > wanted {
                break;
            }
            if told.is_sync && told.decode_ticks + told.composition_ticks <= wanted {
                first = at;
            }
        }
        first
    }
}

fn too_many() -> String {
    format!("the file has more than {SAMPLES_MAX} samples, or more than bytes")
}

/// Adds to what is wrong with a track, once, and no more than [`PROBLEMS_MAX`] things.
pub(super) fn note(problems: &mut Vec<String>, problem: String) {
    if problems.len() < PROBLEMS_MAX && !problems.contains(&problem) {
        problems.push(problem);
    }
}

/// Problems of a track that are told at the most.
pub(super) const PROBLEMS_MAX: usize = 16;

fn tell(anomalies: Anomalies, empty: u32, problems: &mut Vec<String>) {
    let Anomalies {
        without_chunk,
        backwards,
        without_duration,
    } = anomalies;
    let counts = [
        (without_chunk, "samples are in no chunk"),
        (backwards, "samples have a negative duration"),
        (without_duration, "samples have no duration"),
        (empty, "samples are empty"),
    ];
    let counts = counts.into_iter().filter(|&(count, _)| count > 0);
    problems.extend(counts.map(|(count, what)| format!("{count} {what}")));
}
