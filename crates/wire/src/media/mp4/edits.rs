//! Edit lists (ISO/IEC 14496-12, section 8.6.6): what of a track is shown, and from when on.
//!
//! What is honoured is what nearly all files have: empty edits in front, which let a track begin
//! later than others, and one edit that says where in the track to begin and for how long to go
//! on. Those that go on forward from there are played as one with it, and with what they leave out
//! between, so that nothing is lost. Others are told.

use super::boxes::Fields;

/// What is honoured of a track's edit list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Edits {
    /// How much later than the file it begins, in ticks of the track.
    pub(super) delay_ticks: i64,
    /// What of it is shown then, by its own times.
    pub(super) start_ticks: i64,
    pub(super) end_ticks: Option<i64>,
}

/// The rate of an edit that plays as the track does, in 65,536ths.
const USUAL_RATE: u32 = 1 << 16;

/// No time of a track or file that can be played is beyond this.
const TICKS_MAX: i64 = 1 << 46;

impl Edits {
    /// What is in an edit list box (`elst`) of a track whose ticks a second are `timescales.0`, not
    /// 0, in a file with `timescales.1`; and in `problems`, what is not honoured.
    pub(super) fn read(
        elst: &[u8],
        (timescale, movie_timescale): (u32, u32),
        problems: &mut Vec<String>,
    ) -> Self {
        // As many writers do that forget it.
        let movie_timescale = match movie_timescale {
            0 => 1000,
            told => told,
        };
        let mut edits = Self::default();
        let mut fields = Fields(elst);
        let (Some((version, _)), Some(told)) = (fields.version_and_flags(), fields.u32()) else {
            problems.push("its edit list is broken".to_owned());
            return edits;
        };
        let (mut honoured, mut has_gaps, mut has_other_rates) = (false, false, false);
        // A tick of the file, by which durations are rounded.
        let slack = i64::from(timescale.div_ceil(movie_timescale));
        for number in 0..told {
            let Some(edit) = Edit::read(&mut fields, version) else {
                problems.push(format!(
                    "its edit list tells of {told} edits and has {number}"
                ));
                break;
            };
            let ticks = u128::from(edit.duration) * u128::from(timescale);
            let ticks = i64::try_from(ticks / u128::from(movie_timescale)).unwrap_or(i64::MAX);
            if honoured {
                let Some(gap) = edits.go_on(&edit, ticks, slack) else {
                    let left = told - number;
                    problems.push(format!("{left} more edits are not honoured"));
                    break;
                };
                has_gaps |= gap > slack;
                has_other_rates |= edit.rate != USUAL_RATE;
                continue;
            }
            if edit.start < 0 {
                edits.delay_ticks = edits.delay_ticks.saturating_add(ticks).min(TICKS_MAX);
                continue;
            }
            honoured = true;
            edits.start_ticks = edit.start.min(TICKS_MAX);
            // Nothing is for as long as there is something: fragments follow.
            let end = edits.start_ticks.saturating_add(ticks).min(TICKS_MAX);
            edits.end_ticks = (edit.duration > 0).then_some(end);
            has_other_rates |= edit.rate != USUAL_RATE;
        }
        if has_gaps {
            problems.push("what it leaves out between edits is shown".to_owned());
        }
        if has_other_rates {
            problems.push("an edit at another than the usual rate is not honoured".to_owned());
        }
        edits
    }

    /// Goes on with another edit, which lasts so long, if that is not before the end: how much lies
    /// between.
    fn go_on(&mut self, edit: &Edit, ticks: i64, slack: i64) -> Option<i64> {
        let end = self.end_ticks?;
        let start = Some(edit.start.min(TICKS_MAX)).filter(|&start| start >= 0)?;
        let gap = start - end;
        if gap < -slack {
            return None;
        }
        let last = edit.start.saturating_add(ticks).min(TICKS_MAX).max(end);
        self.end_ticks = (edit.duration > 0).then_some(last);
        Some(gap)
    }

    /// What is added to the track's times to have those of the file.
    pub(super) fn shift_ticks(&self) -> i64 {
        self.delay_ticks - self.start_ticks
    }
}

struct Edit {
    /// In ticks of the file.
    duration: u64,
    /// In ticks of the track; negative for one that is empty.
    start: i64,
    rate: u32,
}

impl Edit {
    fn read(fields: &mut Fields<'_>, version: u8) -> Option<Self> {
        Some(Self {
            duration: fields.wide(version)?,
            start: match version {
                0 => fields.i32()?.into(),
                _ => fields.u64()?.cast_signed(),
            },
            rate: fields.u32()?,
        })
    }
}
