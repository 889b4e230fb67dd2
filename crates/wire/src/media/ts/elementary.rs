//! The elementary streams of a transport stream as tables of samples, so that each is a track of
//! its own for players that do not take a transport stream apart.
//!
//! Each stream's bytes are put together as they come, access units and frames are found in them,
//! and of each a sample is kept: where in the file its first and its last byte lie, and its length.
//! Its bytes are taken out of the packets between once more when RTP packets are made of them, by
//! the same code. One program is played, the first that has something to play.
//!
//! Not here: streams that add to others (SVC, MVC), and whatever has no packetizer.

mod bytes;
mod carried;
mod pes;
mod range;
pub(in crate::media) mod saved;
mod sound;
pub(in crate::media) mod start_codes;
mod stream;
mod times;
mod waiting;

use std::sync::Arc;

use super::MediaError;
use super::index::{FORMAT, SyncRun, TS_PACKET_BYTES};
use super::psi::{self, Kind, Program};
use crate::media::sampled::{LeftOut, SampledIndex, SampledTrack, TrackFacts};
use crate::media::samples::SAMPLES_MAX;
use carried::Carried;
pub(in crate::media) use range::video_range;
use stream::{Coding, Stream};
use times::{Clock, STAMPS_HZ, rescaled};

/// Streams of one file that are followed, over all programs, until one of these is chosen.
const FOLLOWED_MAX: usize = 16;

/// Which tracks there are is settled when all streams of a program have begun; when one has so many
/// seconds, or this much was read since the first began, without those that have not.
const WAITING_S: i64 = 5;
const WAITING_BYTES: u64 = 32 << 20;

/// Streams that are told of in an error, at the most.
const TOLD_MAX: usize = 8;

const PIDS: usize = 8192;

/// Not followed: the value of a pid.
const NONE: u8 = u8::MAX;

/// The elementary streams of a file, as it is read.
#[derive(Clone, Debug)]
pub(super) struct Elementary {
    /// Which of those that are followed has a pid, or [`NONE`].
    by_pid: Vec<u8>,
    followed: Vec<Followed>,
    /// Of each program.
    clocks: Vec<Clock>,
    /// How often the tables had changed that were looked at last.
    maps: u64,
    /// Where the first sample was found.
    began_at: Option<u64>,
    chosen: Option<Chosen>,
}

/// One of them.
#[derive(Clone, Debug)]
struct Followed {
    pid: u16,
    /// Which of the programs it is of.
    program: usize,
    coding: Coding,
    language: Option<String>,
    stream: Stream,
}

/// What is played, which stays so.
#[derive(Clone, Debug)]
struct Chosen {
    program: usize,
    /// What the file's time begins at, in ticks of stamps: what is shown first.
    start_ticks: i64,
    /// Those of the streams that are followed.
    tracks: Vec<usize>,
}

impl Default for Elementary {
    fn default() -> Self {
        Self {
            by_pid: vec![NONE; PIDS],
            followed: Vec::new(),
            clocks: Vec::new(),
            maps: 0,
            began_at: None,
            chosen: None,
        }
    }
}

impl Elementary {
    /// Takes a transport packet, which begins at `offset` of the file, and the programs as they are
    /// known up to it, with how often they have changed.
    pub(super) fn packet(
        &mut self,
        offset: u64,
        packet: &[u8; TS_PACKET_BYTES],
        (programs, maps): (&[Program], u64),
    ) {
        if self.maps != maps {
            self.maps = maps;
            self.take_tables(programs);
        }
        let pid = u16::from_be_bytes([packet[1] & 0x1f, packet[2]]);
        let number = self.by_pid[usize::from(pid)];
        let Some(followed) = self.followed.get_mut(usize::from(number)) else {
            return;
        };
        let clock = &mut self.clocks[followed.program];
        let before = followed.stream.samples().len();
        followed.stream.packet(offset, packet, clock);
        let has_more = followed.stream.samples().len() > before;
        if has_more && self.chosen.is_none() {
            let began_at = *self.began_at.get_or_insert(offset);
            self.choose(offset - began_at >= WAITING_BYTES);
        }
        if has_more && self.samples() > SAMPLES_MAX {
            let reason = format!("more than {SAMPLES_MAX} samples in all tracks");
            for followed in &mut self.followed {
                let clock = &mut self.clocks[followed.program];
                followed.stream.end(reason.clone(), clock);
            }
        }
    }

    /// Ends the file.
    pub(super) fn finish(&mut self) {
        for followed in &mut self.followed {
            let clock = &mut self.clocks[followed.program];
            followed.stream.finish(clock);
        }
        if self.chosen.is_none() {
            self.choose(true);
        }
    }

    /// Samples of all streams.
    fn samples(&self) -> usize {
        let each = self.followed.iter();
        each.map(|followed| followed.stream.samples().len()).sum()
    }

    /// Follows what is new in the tables, and ends what has become another stream.
    fn take_tables(&mut self, programs: &[Program]) {
        self.clocks.resize_with(programs.len(), Clock::default);
        for (program, stream) in streams_of(programs) {
            let coding = coding(stream).ok();
            let pid = usize::from(stream.pid);
            if let Some(followed) = self.followed.get_mut(usize::from(self.by_pid[pid])) {
                if followed.program == program && coding != Some(followed.coding) {
                    let clock = &mut self.clocks[program];
                    let reason = format!("it becomes {} in mid-file", stream.codec);
                    followed.stream.end(reason, clock);
                }
                continue;
            }
            let Some(coding) = coding.filter(|_| self.chosen.is_none()) else {
                continue;
            };
            if self.followed.len() < FOLLOWED_MAX {
                self.by_pid[pid] = u8::try_from(self.followed.len()).unwrap_or(NONE);
                self.followed.push(Followed {
                    pid: stream.pid,
                    program,
                    coding,
                    language: stream.language.clone(),
                    stream: Stream::new(stream.pid, coding),
                });
            }
        }
    }

    /// Settles which streams are tracks, if enough is known; `is_late` of what there is.
    fn choose(&mut self, is_late: bool) {
        let is_late = is_late || self.followed.iter().any(|it| it.lasts_s() >= WAITING_S);
        let mut wanted = self.followed.iter().filter(|it| !is_late || it.has_begun());
        let Some(program) = wanted.by_ref().map(|it| it.program).min() else {
            return;
        };
        let mut members = self.followed.iter().filter(|it| it.program == program);
        if !members.all(|it| is_late || it.has_begun() || it.stream.ended().is_some()) {
            return;
        }
        let is_track = |it: &Followed| it.program == program && it.has_begun();
        let numbers = self.followed.iter().enumerate();
        let (tracks, others): (Vec<_>, Vec<_>) = numbers.partition(|(_, it)| is_track(it));
        let starts = tracks.iter().filter_map(|(_, it)| it.start_ticks());
        let Some(start_ticks) = starts.min() else {
            return;
        };
        for (_, other) in others {
            self.by_pid[usize::from(other.pid)] = NONE;
        }
        self.chosen = Some(Chosen {
            program,
            start_ticks,
            tracks: tracks.into_iter().map(|(number, _)| number).collect(),
        });
    }

    /// The index of what has come of the streams that were chosen; `is_whole` is that the file has
    /// ended.
    ///
    /// # Errors
    ///
    /// If none is, or not yet.
    pub(super) fn index(
        &self,
        programs: &[Program],
        runs: &[SyncRun],
        is_whole: bool,
    ) -> Result<SampledIndex, MediaError> {
        let left_out = self.left_out(programs);
        let Some(chosen) = &self.chosen else {
            return Err(match is_whole {
                true => MediaError::NoTracks(reasons(&left_out)),
                false => MediaError::NotYet,
            });
        };
        let runs: Arc<[SyncRun]> = runs.into();
        let jumps = self.clocks[chosen.program].jumps();
        let tracks = chosen.tracks.iter().filter_map(|&number| {
            let mut track = self.followed[number].track(chosen.start_ticks, &runs)?;
            if jumps > 0 {
                let problem = format!("the program's clock jumps {jumps} times: it is sent on");
                track.facts.problems.push(problem);
            }
            Some(track)
        });
        let index = SampledIndex::new(FORMAT, tracks, left_out);
        let mut index = index.ok_or(MediaError::NotYet)?;
        index.is_partial = !is_whole;
        Ok(index)
    }

    /// The streams that are no tracks, and why.
    fn left_out(&self, programs: &[Program]) -> Vec<LeftOut> {
        let chosen = self.chosen.as_ref();
        let reason = |program: usize, stream: &psi::Stream| {
            let number = self.followed.iter().position(|it| it.pid == stream.pid);
            let coding = coding(stream);
            let is_other = chosen.is_some_and(|it| it.program != program);
            match (coding, number) {
                (_, Some(number)) if chosen.is_some_and(|it| it.tracks.contains(&number)) => None,
                (Err(reason), _) => Some(reason.to_owned()),
                (Ok(_), _) if is_other => Some("it is of another program".to_owned()),
                (Ok(_), Some(number)) => Some(self.followed[number].stream.reason()),
                (Ok(_), None) if chosen.is_some() => Some("it begins in mid-file".to_owned()),
                (Ok(_), None) => Some(format!("only {FOLLOWED_MAX} streams are looked at")),
            }
        };
        let left_out = streams_of(programs).filter_map(|(program, stream)| {
            let reason = reason(program, stream)?;
            Some(LeftOut {
                id: stream.pid.into(),
                what: stream.codec.clone().into_owned(),
                reason,
            })
        });
        left_out.collect()
    }
}

impl Followed {
    /// Whether it has something that can be played.
    fn has_begun(&self) -> bool {
        self.stream.samples().len() > 0
    }

    /// Seconds from its first sample to its last.
    fn lasts_s(&self) -> i64 {
        let samples = self.stream.samples();
        let ticks = samples.end_ticks() - samples.decode_ticks(0);
        ticks / i64::from(self.stream.timescale())
    }

    /// When its first sample is shown, in ticks of stamps.
    fn start_ticks(&self) -> Option<i64> {
        let samples = self.stream.samples();
        let shown = (0..samples.len()).map(|at| samples.shown_ticks(at)).min()?;
        Some(rescaled(shown, self.stream.timescale(), STAMPS_HZ))
    }

    /// What is known of it as a track, of a file whose time begins at `start_ticks`.
    fn track(&self, start_ticks: i64, runs: &Arc<[SyncRun]>) -> Option<SampledTrack> {
        let timescale = self.stream.timescale();
        let carried = Carried {
            pid: self.pid,
            runs: Arc::clone(runs),
            form: self.stream.form(),
        };
        let (config, codec) = self.stream.codec()?;
        Some(SampledTrack {
            codec: codec.clone(),
            config: Some(Arc::clone(config)),
            timescale,
            shift_ticks: -rescaled(start_ticks, STAMPS_HZ, timescale),
            samples: self.stream.samples().clone(),
            prefix: Arc::from([]),
            carriage: Some(Arc::new(carried)),
            facts: TrackFacts {
                id: self.pid.into(),
                language: self.language.clone(),
                sound: self.stream.rate_and_channels(),
                problems: self.stream.problems(),
                ..TrackFacts::default()
            },
        })
    }
}

/// All streams, with the number of their program.
fn streams_of(programs: &[Program]) -> impl Iterator<Item = (usize, &psi::Stream)> {
    let programs = programs.iter().enumerate();
    programs.flat_map(|(number, program)| {
        let streams = program.streams.iter();
        streams.map(move |stream| (number, stream))
    })
}

/// How a stream is coded that can be a track, or why it cannot.
fn coding(stream: &psi::Stream) -> Result<Coding, &'static str> {
    use {sound::Coding as Sound, start_codes::Coding as Pictures};
    match (&*stream.codec, stream.stream_type) {
        ("H.264", 0x1f | 0x20) | ("HEVC", 0x25) => Err("it adds to another stream"),
        ("H.264", _) => Ok(Coding::Pictures(Pictures::H264)),
        ("HEVC", _) => Ok(Coding::Pictures(Pictures::H265)),
        ("MPEG-1 video" | "MPEG-2 video", _) => Ok(Coding::Pictures(Pictures::Mpeg)),
        ("MPEG-4 visual", _) => Ok(Coding::Pictures(Pictures::Mpeg4)),
        ("MPEG-1 audio" | "MPEG-2 audio", _) => Ok(Coding::Sound(Sound::Mpeg)),
        ("AAC (ADTS)", _) => Ok(Coding::Sound(Sound::Adts)),
        ("AC-3" | "E-AC-3", _) => Ok(Coding::Sound(Sound::Dolby)),
        ("AAC (LATM)", _) => Ok(Coding::Sound(Sound::Latm)),
        ("Opus", _) => Ok(Coding::Sound(Sound::Opus)),
        _ if matches!(stream.kind, Kind::Video | Kind::Audio) => {
            Err("this is played as a part of the transport stream alone")
        }
        _ => Err("neither pictures nor sound"),
    }
}

/// Why each stream is left out, for an error.
fn reasons(left_out: &[LeftOut]) -> String {
    let told = left_out.iter().take(TOLD_MAX);
    let told = told.map(|it| format!("pid 0x{:04x}, {}: {}", it.id, it.what, it.reason));
    let told: Vec<_> = told.collect();
    match told.is_empty() {
        true => ": its tables name none".to_owned(),
        false => format!(": {}", told.join("; ")),
    }
}

#[cfg(test)]
mod tests;
