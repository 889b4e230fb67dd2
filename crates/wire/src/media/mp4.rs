//! MP4 and QuickTime files (ISO/IEC 14496-12), in one piece and in fragments.
//!
//! A `Scanner` goes from box to box, reads only those that tell of samples (`moov`, `moof`), and
//! takes their tables apart as they lie there; then, or between fragments, it has the parts of
//! samples read. Media data is passed over. What is not as it should be costs the track that has
//! it, not the file.
//!
//! The parser is our own. Of the two crates that are kept up, `mp4-atom` gives a movie up as a
//! whole if one box of one track is broken (709 of 9,400 changes of a single byte did that), knows
//! neither `stz2` nor the sample entries of most of QuickTime, and copies tables to vectors of more
//! bytes than they have; `re_mp4` wants the whole file, keeps a structure for each sample, and
//! after the change of one byte in a table was busy for more than a minute. What is wanted of a
//! file are twenty boxes and one walk through six tables.

mod boxes;
mod clocks;
mod coding;
mod edits;
mod ending;
mod entry;
mod fill;
mod fragment;
mod movie;
mod probes;
mod tables;

use std::ops::Range;
use std::time::Duration;

use thiserror::Error;

use super::sampled::{LeftOut, PartReader, SampledIndex, SampledTrack};
use boxes::{HEADER_BYTES_MAX, Header, spelled};
use clocks::{PRFT_BYTES_MAX, Reference};
use ending::{Ending, Known, SIDX_BYTES_MAX};
use fill::note;
use movie::Movie;
use probes::Probes;

/// Bytes of a movie box at the most. A film of two hours has 5 MB.
const MOOV_BYTES_MAX: u64 = 256 << 20;

/// Bytes of a fragment's box at the most: a million samples.
const MOOF_BYTES_MAX: u64 = 16 << 20;

/// Boxes that are passed on the way through a file, at the most.
const BOXES_MAX: u32 = 1 << 22;

/// Tracks that are told of in an error, at the most.
const TOLD_MAX: usize = 8;

/// Why a file cannot be indexed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum Mp4Error {
    /// Nothing in it can be played.
    #[error("nothing in it can be played{0}")]
    Nothing(String),
    /// All of its bytes are there, and those that tell of its samples are not among them.
    #[error(
        "it has no movie box (moov), without which nobody knows what is where: the recorder was \
         stopped before it wrote one, or it is a segment without its beginning"
    )]
    NoMovie,
    /// It ends before its tables do.
    #[error("it ends in the middle of its movie box (moov), at byte {file_bytes}: it is not whole")]
    CutOff {
        /// Its bytes.
        file_bytes: u64,
    },
    /// Too little of it is read yet.
    #[error("too little of it is read yet")]
    NotYet,
    /// What tells of its samples cannot be read.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A box has a length that no box can have.
    #[error("at byte {at} a box is said to have {bytes} bytes")]
    Box {
        /// Where in the file it begins.
        at: u64,
        /// The bytes that it says to have.
        bytes: u64,
    },
    /// A box is larger than is read.
    #[error("its {name} has {bytes} bytes, more than {bytes_max}")]
    TooLarge {
        /// Its name.
        name: String,
        /// Its bytes.
        bytes: u64,
        /// The most that is read.
        bytes_max: u64,
    },
    /// There are more boxes than are looked at.
    #[error("it has more than {BOXES_MAX} boxes")]
    Boxes,
}

/// Whether a file that begins with these bytes is one.
pub(super) fn is_one(first: &[u8]) -> bool {
    let known = [
        b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"sidx", b"moof",
        b"uuid",
    ];
    let header = Header::read(first).or_else(|| {
        // That of a box with a long length is longer than what is given.
        first.starts_with(&[0, 0, 0, 1]).then_some(Ok(Header {
            name: first.get(4..8)?.try_into().ok()?,
            header_bytes: 16,
            bytes: None,
        }))
    });
    header.is_some_and(|it| it.is_ok_and(|it| known.contains(&&it.name)))
}

/// Reads such a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner {
    /// How long the file was said to be.
    file_bytes: u64,
    /// Where the next box begins that is not looked at, and what has come from there on.
    at: u64,
    carry: Vec<u8>,
    /// How many boxes are behind.
    boxes: u32,
    /// Whether no box behind is of interest.
    is_over: bool,
    /// Why no box behind is looked at, if it is for a reason.
    trouble: Option<String>,
    movie: Option<Movie>,
    parts: PartReader,
    /// The tracks whose samples are read no further, each once, and why. Told behind what else is
    /// wrong with a track, because that is found sooner or later as the file is read.
    broken: Vec<(usize, String)>,
    /// Of a file of fragments, where it ends.
    ending: Ending,
    probes: Probes,
    /// Whose bytes are asked for.
    asked: Asked,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
enum Asked {
    #[default]
    Boxes,
    /// The parts of samples, from there on.
    Parts(u64),
    /// What tells how long the file is.
    Ending,
}

impl Scanner {
    /// What it wants next of a file that has `file_bytes` by now.
    pub(super) fn wants(&mut self, file_bytes: u64) -> Option<Range<u64>> {
        self.file_bytes = file_bytes;
        if let Some(part) = self.ending.wants(file_bytes) {
            self.asked = Asked::Ending;
            return Some(part);
        }
        let of_boxes = self.wants_of_boxes();
        let tracks = self.movie.as_ref().map(|movie| &movie.tracks[..]);
        let of_parts = tracks.and_then(|tracks| self.parts.wants(tracks, file_bytes));
        // Samples in front of the next box first: the file is then gone through once.
        let of_parts = of_parts.filter(|it| of_boxes.is_none() || it.start < self.at);
        self.asked = match &of_parts {
            Some(part) => Asked::Parts(part.start),
            None => Asked::Boxes,
        };
        of_parts.or(of_boxes)
    }

    /// The rest of the next box's header, or of the box if it is one that is read.
    fn wants_of_boxes(&self) -> Option<Range<u64>> {
        if self.is_over {
            return None;
        }
        let start = self.at + self.carry.len() as u64;
        let end = start.checked_add(self.missing()?)?.min(self.file_bytes);
        (start < end).then_some(start..end)
    }

    /// How many bytes of the box are missing to go on; `None` if the file has to be longer for
    /// that to be said.
    fn missing(&self) -> Option<u64> {
        let has = self.carry.len();
        let wanted = match Header::read(&self.carry) {
            None if has < 8 => 8,
            None => HEADER_BYTES_MAX as u64,
            Some(Ok(Header {
                bytes: Some(bytes), ..
            })) => bytes,
            Some(_) => self.file_bytes.checked_sub(self.at)?,
        };
        wanted
            .checked_sub(has as u64)
            .filter(|&missing| missing > 0)
    }

    /// Takes bytes from where it wants them.
    ///
    /// # Errors
    ///
    /// If the file cannot be played.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Mp4Error> {
        match self.asked {
            Asked::Boxes => self.push_boxes(bytes),
            Asked::Parts(at) => {
                self.push_parts(at, bytes);
                Ok(())
            }
            Asked::Ending => {
                if let Some(movie) = &self.movie {
                    self.ending.push(movie, bytes);
                }
                Ok(())
            }
        }
    }

    fn push_parts(&mut self, at: u64, bytes: &[u8]) {
        let Some(movie) = &mut self.movie else {
            return;
        };
        self.probes.add(at, bytes);
        self.asked = Asked::Parts(at + bytes.len() as u64);
        if let Err((number, error)) = self.parts.push(&mut movie.tracks, bytes) {
            let sample = movie.tracks[number].samples.with_parts();
            self.broken
                .push((number, format!("sample {sample}: {error}")));
        }
    }

    fn push_boxes(&mut self, mut bytes: &[u8]) -> Result<(), Mp4Error> {
        while !bytes.is_empty() {
            let Some(missing) = self.missing() else {
                return Ok(());
            };
            let taken = usize::try_from(missing)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            self.carry.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            let end = self.at + self.carry.len() as u64;
            if (taken as u64) < missing {
                return Ok(());
            }
            self.step()?;
            if self.is_over {
                return Ok(());
            }
            if self.carry.is_empty() {
                // Passed over, perhaps also in what has come.
                let skipped = usize::try_from(self.at - end).unwrap_or(usize::MAX);
                bytes = bytes.get(skipped..).unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Goes on by a header, or by a box that is read, which `carry` has whole.
    fn step(&mut self) -> Result<(), Mp4Error> {
        let header = match Header::read(&self.carry) {
            None => return Ok(()),
            Some(Ok(header)) => header,
            Some(Err(bytes)) => return self.stop(Mp4Error::Box { at: self.at, bytes }),
        };
        let has = self.carry.len() as u64;
        let is_read = self.is_read(header);
        let end = match header.bytes {
            Some(bytes) => self.at.checked_add(bytes),
            None if is_read => Some(self.file_bytes.max(self.at + has)),
            None => None,
        };
        let Some(end) = end else {
            // The last box.
            self.is_over = true;
            return Ok(());
        };
        let bytes_max = match &header.name {
            b"moov" => MOOV_BYTES_MAX,
            _ => MOOF_BYTES_MAX,
        };
        if is_read && end - self.at > bytes_max {
            return self.stop(Mp4Error::TooLarge {
                name: spelled(&header.name),
                bytes: end - self.at,
                bytes_max,
            });
        }
        if is_read && self.at + has < end {
            return Ok(());
        }
        if is_read {
            let carry = std::mem::take(&mut self.carry);
            let inside = &carry[header.header_bytes.into()..];
            self.take(header, inside)?;
        }
        self.carry.clear();
        self.boxes += 1;
        self.at = end;
        match self.boxes < BOXES_MAX {
            true => Ok(()),
            false => self.stop(Mp4Error::Boxes),
        }
    }

    fn is_read(&self, header: Header) -> bool {
        match &header.name {
            b"moov" => self.movie.is_none(),
            b"moof" => self.movie.is_some(),
            b"sidx" => {
                let fits = header.bytes.is_some_and(|bytes| bytes <= SIDX_BYTES_MAX);
                fits && self.ending.takes_index()
            }
            b"prft" => {
                let fits = header.bytes.is_some_and(|bytes| bytes <= PRFT_BYTES_MAX);
                fits && self.movie.as_ref().is_some_and(Movie::takes_reference)
            }
            _ => false,
        }
    }

    /// Takes what is in a box that is read.
    fn take(&mut self, header: Header, inside: &[u8]) -> Result<(), Mp4Error> {
        let at = self.at + u64::from(header.header_bytes);
        self.probes.add(at, inside);
        if &header.name == b"sidx" {
            self.ending.add_index(inside, at + inside.len() as u64);
            return Ok(());
        }
        if let Some(movie) = &mut self.movie {
            if &header.name == b"prft" {
                movie.reference = Reference::read(inside);
                return Ok(());
            }
            movie.samples_max = movie::samples_max(self.file_bytes);
            movie.add_fragment(inside, self.at);
            self.ending.begin(self.at, self.file_bytes);
            return Ok(());
        }
        let end = &inside[inside.len().saturating_sub(64)..];
        self.probes.add(at + (inside.len() - end.len()) as u64, end);
        let movie = Movie::read(inside, self.file_bytes).map_err(Mp4Error::Unsupported)?;
        if movie.tracks.iter().all(SampledTrack::is_text) {
            let texts = movie.tracks.iter().map(unaccompanied);
            let left_out: Vec<_> = movie.left_out.iter().cloned().chain(texts).collect();
            return Err(Mp4Error::Nothing(reasons(&left_out)));
        }
        self.is_over = !movie.is_fragmented;
        self.movie = Some(movie);
        Ok(())
    }

    /// Looks at no box behind. Before there is a movie there is nothing to play then.
    fn stop(&mut self, error: Mp4Error) -> Result<(), Mp4Error> {
        self.is_over = true;
        self.carry = Vec::new();
        if self.movie.is_none() {
            return Err(error);
        }
        self.trouble = Some(error.to_string());
        Ok(())
    }

    /// The index of what can be played so far.
    ///
    /// # Errors
    ///
    /// If that is nothing, or too little is known to say which tracks can be played.
    pub(super) fn settled(&self) -> Result<SampledIndex, Mp4Error> {
        let movie = self.movie.as_ref().ok_or(Mp4Error::NotYet)?;
        let is_waiting = |(number, track): (usize, &SampledTrack)| {
            self.playable(number, track).0 == 0 && !self.parts.has_ended(number)
        };
        let tracks = movie.tracks.iter().enumerate();
        // Subtitles hold nothing up.
        let mut tracks = tracks.filter(|(_, track)| !track.is_text());
        // Which tracks there are may not change later. Of fragments that is all that are told of;
        // else it is those whose first sample can be sent.
        let is_too_early = match movie.is_fragmented {
            true => tracks.all(is_waiting),
            false => tracks.any(is_waiting),
        };
        if is_too_early {
            return Err(Mp4Error::NotYet);
        }
        self.index(movie, false)
    }

    /// The index of the file.
    ///
    /// # Errors
    ///
    /// If nothing in it can be played.
    pub(super) fn finish(self) -> Result<SampledIndex, Mp4Error> {
        match &self.movie {
            Some(movie) => self.index(movie, true),
            None if self.carry.get(4..8) == Some(b"moov") => Err(Mp4Error::CutOff {
                file_bytes: self.at + self.carry.len() as u64,
            }),
            None => Err(Mp4Error::NoMovie),
        }
    }

    fn index(&self, movie: &Movie, is_whole: bool) -> Result<SampledIndex, Mp4Error> {
        let is_coming = !is_whole && self.is_coming(movie);
        let mut left_out = movie.left_out.clone();
        let mut tracks = Vec::with_capacity(movie.tracks.len());
        let mut end_ns = 0;
        for (number, track) in movie.tracks.iter().enumerate() {
            let (playable, why) = self.playable(number, track);
            let all = track.samples.len();
            if playable == 0 && !movie.is_fragmented {
                left_out.push(LeftOut {
                    id: track.facts.id,
                    what: track.codec.codec_string.clone(),
                    reason: why.unwrap_or_else(|| "it has no samples".to_owned()),
                });
                continue;
            }
            let ends_ns = track.time_ns(track.samples.end_ticks());
            end_ns = end_ns.max(u64::try_from(ends_ns).unwrap_or(0));
            let mut track = track.clone();
            let kept = match is_whole || is_coming {
                true => all,
                false => track.playable(),
            };
            if playable < kept {
                track.samples = track.samples.first(playable);
            }
            if let Some(reason) = self.reason(number) {
                note(&mut track.facts.problems, reason.to_owned());
            }
            if is_whole && playable < all {
                let why = why.unwrap_or_else(|| "the rest is not read".to_owned());
                let problem = format!("{playable} of {all} samples can be played: {why}");
                note(&mut track.facts.problems, problem);
            }
            if let Some(trouble) = &self.trouble {
                note(&mut track.facts.problems, trouble.clone());
            }
            tracks.push(track);
        }
        let is_played = |track: &SampledTrack| !track.is_text() && track.playable() > 0;
        if !tracks.iter().any(is_played) {
            return Err(nothing(tracks, left_out));
        }
        let format = match movie.is_fragmented {
            true => "fragmented MP4",
            false => "MP4",
        };
        let told_ns = movie.told_duration_ns.filter(|_| movie.is_fragmented);
        if let Some(told_ns) = told_ns.filter(|&it| is_whole && is_longer(it, end_ns)) {
            let [told, is] = [told_ns, end_ns].map(|ns| Duration::from_nanos(ns).as_secs_f64());
            let problem = format!("its header tells of {told:.1} s, and it has {is:.1} s");
            note(&mut tracks[0].facts.problems, problem);
        }
        let index = SampledIndex::new(format, tracks, left_out);
        let mut index = index.expect("there are tracks");
        index.told_duration_ns = match is_whole {
            true => None,
            false if is_coming => Some(end_ns),
            false => self.expected_ns(movie, told_ns, end_ns),
        };
        index.is_partial = is_coming;
        index.lead_ns = movie.lead_ns;
        index.time_code_rate = movie.time_code_rate;
        index.wall_clock_start_ns = movie.wall_clock_start_ns();
        index.probes.clone_from(&self.probes.kept);
        Ok(index)
    }

    /// Whether samples that its tables tell of are not here yet: it is being copied. What is here
    /// is then all that is certain of it.
    fn is_coming(&self, movie: &Movie) -> bool {
        let mut fillers = movie.fillers.iter();
        !movie.is_fragmented && fillers.any(|filler| filler.end_offset > self.file_bytes)
    }

    /// How long the file is, which says itself that it lasts `told_ns`, if it says so, and whose
    /// samples so far end at `end_ns`.
    fn expected_ns(&self, movie: &Movie, told_ns: Option<u64>, end_ns: u64) -> Option<u64> {
        if !movie.is_fragmented || self.wants_of_boxes().is_none() {
            return told_ns;
        }
        let ends = movie.fillers.iter().map(|filler| filler.end_offset);
        let read = Known {
            bytes: ends.fold(self.at, u64::max),
            ns: end_ns,
        };
        Some(self.ending.duration_ns(told_ns, read, self.file_bytes))
    }

    /// Why the samples of a track are read no further, if they are not.
    fn reason(&self, number: usize) -> Option<&str> {
        let mut broken = self.broken.iter();
        broken.find_map(|(it, reason)| (*it == number).then_some(reason.as_str()))
    }

    /// How many samples of a track can be played of the file as it is, and why not all.
    fn playable(&self, number: usize, track: &SampledTrack) -> (usize, Option<String>) {
        let movie = self.movie.as_ref().expect("it has tracks");
        let mut playable = track.playable();
        if let Some(reason) = self.reason(number) {
            return (playable, Some(reason.to_owned()));
        }
        if movie.fillers[number].end_offset <= self.file_bytes {
            return (playable, None);
        }
        let beyond = track.samples.within(&(self.file_bytes..u64::MAX));
        if beyond.start < track.samples.len() {
            playable = playable.min(beyond.start);
        }
        let why = format!("the file ends at byte {}", self.file_bytes);
        (playable, Some(why))
    }
}

/// That nothing can be played: neither these tracks, nor what else the file has.
fn nothing(tracks: Vec<SampledTrack>, mut left_out: Vec<LeftOut>) -> Mp4Error {
    let of = |track: SampledTrack| match track.is_text() {
        true => unaccompanied(&track),
        false => LeftOut {
            id: track.facts.id,
            what: track.codec.codec_string,
            reason: all_of(&track.facts.problems),
        },
    };
    left_out.extend(tracks.into_iter().map(of));
    Mp4Error::Nothing(reasons(&left_out))
}

/// Subtitles of nothing.
fn unaccompanied(track: &SampledTrack) -> LeftOut {
    LeftOut {
        id: track.facts.id,
        what: format!("subtitles ({})", track.codec.codec_string),
        reason: "neither pictures nor sound".to_owned(),
    }
}

/// Whether a file is told to last longer than it does by more than what is lost by rounding.
fn is_longer(told_ns: u64, is_ns: u64) -> bool {
    told_ns
        > is_ns
            .saturating_add(is_ns / 16)
            .saturating_add(1_000_000_000)
}

/// Why nothing of a track can be played.
fn all_of(problems: &[String]) -> String {
    match problems {
        [] => "it has no samples".to_owned(),
        problems => problems.join("; "),
    }
}

/// Why each track is left out, for an error.
fn reasons(left_out: &[LeftOut]) -> String {
    let told = left_out.iter().take(TOLD_MAX);
    let told = told.map(|it| format!("track {}, {}: {}", it.id, it.what, it.reason));
    let told: Vec<_> = told.collect();
    match told.is_empty() {
        true => ": it has no tracks".to_owned(),
        false => format!(": {}", told.join("; ")),
    }
}

#[cfg(test)]
mod tests;
