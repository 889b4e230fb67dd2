//! What a movie box (`moov`, ISO/IEC 14496-12, section 8.2) tells: which tracks there are, and of
//! those that are played all samples that are in tables.

use std::sync::Arc;

use super::boxes::{Boxes, Fields, Name, spelled, text};
use super::clocks::{self, Reference};
use super::edits::Edits;
use super::entry::{Entries, Kind};
use super::fill::{Defaults, Filler};
use super::tables::Tables;
use crate::media::frame_rate::FrameRate;
use crate::media::sampled::{LeftOut, SampledTrack, TrackFacts};
use crate::media::samples::{SAMPLES_MAX, Samples};

/// Tracks of a file that are looked at; of those beyond only the number is told.
pub(super) const TRAKS_MAX: usize = 256;

/// A file's tracks.
#[derive(Clone, Debug, Default)]
pub(super) struct Movie {
    /// Those that are played.
    pub(super) tracks: Vec<SampledTrack>,
    /// What else is known of each of these.
    pub(super) fillers: Vec<Filler>,
    /// Samples of all tracks, at the most.
    pub(super) samples_max: usize,
    /// What samples of fragments have if they do not say otherwise, by the number of the track.
    pub(super) defaults: Vec<(u32, Defaults)>,
    pub(super) left_out: Vec<LeftOut>,
    /// Whether samples may follow in fragments.
    pub(super) is_fragmented: bool,
    /// How long all is, fragments included, if it is told.
    pub(super) told_duration_ns: Option<u64>,
    /// How much earlier it begins than its edit lists say.
    pub(super) lead_ns: u64,
    /// How time codes count its frames, if it has any.
    pub(super) time_code_rate: Option<FrameRate>,
    /// Whether it was written before all samples.
    is_written_first: bool,
    /// When it was made, in ns since 1970, if it says so.
    created_ns: Option<u64>,
    /// A moment by the clock on the wall, if one was told.
    pub(super) reference: Option<Reference>,
    /// Samples of tables that were looked at and are not sent.
    passed_over: usize,
}

/// What is known of a track before its samples are looked at.
#[derive(Debug)]
struct Head<'a> {
    facts: TrackFacts,
    timescale: u32,
    handler: Name,
    edits: Option<&'a [u8]>,
    stbl: &'a [u8],
}

impl Movie {
    /// The movie in a movie box, of a file that has so many bytes by now.
    ///
    /// # Errors
    ///
    /// If it is compressed, in words.
    pub(super) fn read(moov: &[u8], file_bytes: u64) -> Result<Self, &'static str> {
        let boxes = Boxes(moov);
        if boxes.first(b"cmov").is_some() {
            return Err("its tables are compressed (cmov), which is not supported");
        }
        let (timescale, duration) = boxes.first(b"mvhd").and_then(times).unwrap_or((0, 0));
        let extends = boxes.first(b"mvex").map(Boxes);
        let mut movie = Self {
            is_fragmented: extends.is_some(),
            created_ns: boxes.first(b"mvhd").and_then(clocks::created_ns),
            samples_max: samples_max(file_bytes),
            ..Self::default()
        };
        let told = extends.as_ref().and_then(|it| {
            let mut fields = Fields(it.first(b"mehd")?);
            let (version, _) = fields.version_and_flags()?;
            fields.wide(version)
        });
        let trex = extends
            .into_iter()
            .flatten()
            .filter(|(name, _)| name == b"trex");
        let trex = trex.filter_map(|(_, bytes)| defaults(bytes));
        movie.defaults = trex.take(TRAKS_MAX).collect();
        let told = u128::from(told.unwrap_or(duration)) * 1_000_000_000;
        let told_ns = told.checked_div(timescale.into()).unwrap_or(0);
        movie.told_duration_ns = u64::try_from(told_ns).ok().filter(|&it| it > 0);
        let traks = boxes.filter(|(name, _)| name == b"trak");
        let chapters = chapters(traks.clone().map(|(_, trak)| trak));
        let mut beyond = 0;
        for (number, (_, trak)) in traks.enumerate() {
            match number < TRAKS_MAX {
                true => movie.add(trak, timescale, &chapters),
                false => beyond += 1,
            }
        }
        movie.begin_with_pictures();
        let has_samples = movie.tracks.iter().any(|track| track.samples.len() > 0);
        movie.is_written_first = movie.is_fragmented && !has_samples;
        if beyond > 0 {
            movie.left_out.push(LeftOut {
                id: 0,
                what: format!("{beyond} more tracks"),
                reason: format!("only {TRAKS_MAX} tracks of a file are looked at"),
            });
        }
        Ok(movie)
    }

    /// Adds a track to those that are played, or to the others, among which are those of chapters.
    fn add(&mut self, trak: &[u8], movie_timescale: u32, chapters: &[u64]) {
        let left_out = |id, what, reason| LeftOut { id, what, reason };
        let head = match Head::read(trak) {
            Ok(head) => head,
            Err((id, reason)) => {
                let reason = reason.to_owned();
                self.left_out
                    .push(left_out(id, "a track".to_owned(), reason));
                return;
            }
        };
        let id = head.facts.id;
        if &head.handler == b"tmcd" {
            let stsd = Boxes(head.stbl).first(b"stsd");
            let rate = stsd.and_then(clocks::time_code_rate);
            self.time_code_rate = self.time_code_rate.or(rate);
        }
        if let Some(what) = head.chapters().filter(|_| chapters.contains(&id)) {
            let reason = "they are neither subtitles nor pictures of the film".to_owned();
            self.left_out.push(left_out(id, what, reason));
            return;
        }
        let unplayed = match self.prepare(&head, movie_timescale) {
            Ok((track, filler)) => {
                self.tracks.push(track);
                self.fillers.push(filler);
                return;
            }
            Err((what, reason)) => left_out(id, what, reason),
        };
        self.left_out.push(unplayed);
    }

    /// A track with the samples that are in its tables; or what it is, and why it is not played.
    fn prepare(
        &mut self,
        head: &Head<'_>,
        movie_timescale: u32,
    ) -> Result<(SampledTrack, Filler), (String, String)> {
        let stsd = Boxes(head.stbl).first(b"stsd").unwrap_or_default();
        let kind = match &head.handler {
            b"vide" => Kind::Pictures,
            b"soun" => Kind::Sound,
            b"sbtl" | b"subt" | b"text" if Entries::of_text(stsd).is_some() => Kind::Text,
            other => {
                let reason = "neither pictures nor sound".to_owned();
                return Err((medium(other, stsd), reason));
            }
        };
        let entries = Entries::read(stsd, kind, head.timescale);
        let entries = entries.map_err(|it| (it.what, it.reason))?;
        let named = entries.codec.codec_string.clone();
        let refused = |reason: &str| Err((named.clone(), reason.to_owned()));
        if head.timescale == 0 {
            return refused("its times have 0 ticks a second");
        }
        let id = u32::try_from(head.facts.id).unwrap_or(0);
        if self.fillers.iter().any(|it| it.id == id) {
            return refused("a track before it has the same number");
        }
        let mut facts = entries.facts(&head.facts, is_forced(stsd));
        let edits = head.edits.map_or_else(Edits::default, |elst| {
            let timescales = (head.timescale, movie_timescale);
            Edits::read(elst, timescales, &mut facts.problems)
        });
        let tables = Tables::read(head.stbl, &mut facts.problems);
        if tables.is_none() && !self.is_fragmented {
            return refused("it has no samples");
        }
        let mut filler = Filler {
            id,
            kind,
            timescale: head.timescale,
            edits,
            configurations: entries.configurations,
            frame_bytes: entries.frame_bytes,
            decode_shift: None,
            origin_ticks: 0,
            next_ticks: 0,
            end_offset: 0,
            is_ended: false,
            empty: 0,
            passed_over: 0,
        };
        let samples = tables.map_or_else(Samples::default, |tables| {
            filler.fill(tables, self.room(), &mut facts.problems)
        });
        self.passed_over += filler.passed_over;
        if samples.len() == 0 && !self.is_fragmented {
            let reason = facts.problems.pop();
            return refused(reason.as_deref().unwrap_or("it has no samples"));
        }
        let track = SampledTrack {
            codec: entries.codec,
            config: Some(Arc::new(entries.config)),
            timescale: head.timescale,
            shift_ticks: edits.shift_ticks(),
            samples,
            prefix: Arc::from(&b""[..]),
            carriage: None,
            facts,
        };
        Ok((track, filler))
    }

    /// The file begins when its first picture is shown, if its edit lists would have it begin
    /// later, between two sync samples. Pictures in front of where it begins would otherwise all
    /// leave at once, up to seconds of them, and no receiver has room for that.
    pub(super) fn begin_with_pictures(&mut self) {
        let pictures = self.tracks.iter().zip(&self.fillers);
        let pictures = pictures
            .filter(|(_, filler)| filler.kind == Kind::Pictures && filler.edits.start_ticks > 0);
        let leads = pictures.filter_map(|(track, _)| {
            let first = track.samples.get(0)?;
            let shown_ticks = first.decode_ticks.saturating_add(first.composition_ticks);
            let lead_ticks = -i128::from(shown_ticks.saturating_add(track.shift_ticks));
            let timescale = i128::from(track.timescale);
            (lead_ticks > 0).then_some((lead_ticks, timescale))
        });
        let longest = leads.max_by(|one, other| (one.0 * other.1).cmp(&(other.0 * one.1)));
        let Some((lead_ticks, timescale)) = longest else {
            return;
        };
        let lead_ns = lead_ticks * 1_000_000_000 / timescale;
        self.lead_ns = u64::try_from(lead_ns).unwrap_or(u64::MAX);
        for track in &mut self.tracks {
            let ticks = (lead_ticks * i128::from(track.timescale) + timescale / 2) / timescale;
            let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
            track.shift_ticks = track.shift_ticks.saturating_add(ticks);
        }
    }

    /// Whether it is of use to it to be told of a moment by the clock on the wall.
    pub(super) fn takes_reference(&self) -> bool {
        self.is_fragmented && self.reference.is_none()
    }

    /// When its time 0 was by the clock on the wall, in ns since 1970, if that is told so that it
    /// can be believed.
    pub(super) fn wall_clock_start_ns(&self) -> Option<u64> {
        let created_ns = self.created_ns.filter(|_| self.is_written_first);
        let Some(reference) = self.reference else {
            return created_ns;
        };
        let number = self.fillers.iter().position(|it| it.id == reference.id)?;
        let ticks = self.fillers[number].since_origin(reference.ticks);
        let since_ns = self.tracks[number].time_ns(ticks);
        let start_ns = i128::from(reference.unix_ns) - i128::from(since_ns);
        u64::try_from(start_ns).ok()
    }

    /// For how many more samples of the file there is room, be they sent or only looked at.
    pub(super) fn room(&self) -> usize {
        let samples = self.tracks.iter().map(|it| it.samples.len());
        self.samples_max
            .saturating_sub(self.passed_over + samples.sum::<usize>())
    }
}

/// Samples that are looked at of a file of so many bytes. A table can tell of any number of equal
/// samples in seventy bytes, and each takes time; so there are no more than bytes, but as many as
/// any file may have that is being copied here behind its tables.
pub(super) fn samples_max(file_bytes: u64) -> usize {
    const ALWAYS: usize = 1 << 20;
    let bytes = usize::try_from(file_bytes).unwrap_or(usize::MAX);
    bytes.clamp(ALWAYS, SAMPLES_MAX)
}

/// The numbers of the tracks that others name as those of their chapters (QuickTime's `tref` and
/// `chap`), as many as there may be tracks.
fn chapters<'a>(traks: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
    let named = traks.take(TRAKS_MAX).flat_map(|trak| {
        let references = Boxes(trak).first(b"tref").map(Boxes);
        let chapters = references.into_iter().flatten();
        chapters.filter(|(name, _)| name == b"chap")
    });
    let numbers = named.flat_map(|(_, bytes)| bytes.as_chunks::<4>().0);
    let numbers = numbers.map(|it| u32::from_be_bytes(*it));
    // What is not used is 0.
    let numbers = numbers.filter(|&it| it > 0).map(u64::from);
    numbers.take(TRAKS_MAX).collect()
}

impl<'a> Head<'a> {
    /// What it is if another track names it as that of its chapters, for people: their titles, or
    /// their pictures. `None` of pictures and sound that are played all the same.
    fn chapters(&self) -> Option<String> {
        let entry = Boxes(self.stbl).first(b"stsd");
        let entry = entry.and_then(|stsd| Boxes(stsd.get(8..)?).next());
        let name = entry.map_or(self.handler, |(name, _)| name);
        match &self.handler {
            b"sbtl" | b"subt" | b"text" => Some(format!("chapters ({})", spelled(&name))),
            // Others may be the film's, and be named by mistake.
            b"vide" if &name == b"jpeg" || !self.facts.is_default => {
                Some(format!("pictures of chapters ({})", spelled(&name)))
            }
            _ => None,
        }
    }

    /// What is told of a track. An error has its number, if that is known, and a reason.
    fn read(trak: &'a [u8]) -> Result<Self, (u64, &'static str)> {
        let trak = Boxes(trak);
        let mut facts = TrackFacts::default();
        if trak
            .first(b"tkhd")
            .and_then(|it| tell_header(it, &mut facts))
            .is_none()
        {
            return Err((facts.id, "its header (tkhd) is missing or broken"));
        }
        let id = facts.id;
        let mdia = trak
            .first(b"mdia")
            .map(Boxes)
            .ok_or((id, "it has no media (mdia)"))?;
        let mdhd = mdia.first(b"mdhd").unwrap_or_default();
        let (timescale, _) = times(mdhd).ok_or((id, "its media header (mdhd) is broken"))?;
        facts.language = mdia
            .first(b"elng")
            .and_then(|it| text(it.get(4..)?))
            .or_else(|| language(mdhd));
        let hdlr = mdia.first(b"hdlr").unwrap_or_default();
        let handler = hdlr.get(8..12).and_then(|it| it.try_into().ok());
        let handler = handler.ok_or((id, "nothing tells of which kind it is (hdlr)"))?;
        // Many programs write their own name where its name has its place, and the track's here.
        let title = trak.at(&[b"udta", b"name"]).and_then(title);
        facts.name = title.or_else(|| handler_name(hdlr));
        let stbl = mdia.at(&[b"minf", b"stbl"]);
        Ok(Self {
            facts,
            timescale,
            handler,
            edits: trak.at(&[b"edts", b"elst"]),
            stbl: stbl.ok_or((id, "it has no tables of samples (stbl)"))?,
        })
    }
}

/// The name in a handler box (`hdlr`).
fn handler_name(hdlr: &[u8]) -> Option<String> {
    match (hdlr.get(4..8)?, hdlr.get(24..)?) {
        // QuickTime has the length of the name in front of it.
        (b"mhlr", [bytes, name @ ..]) => text(name.get(..(*bytes).into())?),
        (_, name) => text(name),
    }
}

/// The title in a box of the user's data (`name`): text, or a string of QuickTime with its length
/// and its language in front.
fn title(name: &[u8]) -> Option<String> {
    let mut fields = Fields(name);
    let told = fields.u16().zip(fields.u16());
    let is_string = told.is_some_and(|(bytes, _)| usize::from(bytes) == fields.0.len());
    text(if is_string { fields.0 } else { name })
}

/// Ticks a second, and how many there are, by a header of the movie or of media (`mvhd`, `mdhd`).
fn times(header: &[u8]) -> Option<(u32, u64)> {
    let mut fields = Fields(header);
    let (version, _) = fields.version_and_flags()?;
    fields.wide(version)?;
    fields.wide(version)?;
    let timescale = fields.u32()?;
    let duration = fields.wide(version)?;
    let is_unknown = duration == u64::MAX || version == 0 && duration == u64::from(u32::MAX);
    Some((timescale, if is_unknown { 0 } else { duration }))
}

/// The language of a media header: three letters, each of five bits (ISO 639-2/T). QuickTime's own
/// numbers are not told.
fn language(mdhd: &[u8]) -> Option<String> {
    let mut fields = Fields(mdhd);
    let (version, _) = fields.version_and_flags()?;
    fields.bytes(if version == 0 { 16 } else { 28 })?;
    let packed = fields.u16()?;
    let letters = [10, 5, 0].map(|shift| (packed >> shift & 31) as u8 + 0x60);
    let is_one = letters.iter().all(u8::is_ascii_lowercase);
    let code = String::from_utf8(letters.to_vec()).ok();
    code.filter(|it| is_one && it != "und")
}

/// Tells what is in a track header box (`tkhd`): whether it is enabled (section 8.3.2), which of
/// all others of its kind many programs say of none, the number, the size, and by how much pictures
/// are turned.
fn tell_header(tkhd: &[u8], facts: &mut TrackFacts) -> Option<()> {
    let mut fields = Fields(tkhd);
    let (version, flags) = fields.version_and_flags()?;
    facts.is_default = flags & 1 != 0;
    fields.wide(version)?;
    fields.wide(version)?;
    facts.id = fields.u32()?.into();
    fields.u32()?;
    fields.wide(version)?;
    fields.bytes(16)?;
    let mut matrix = [0; 9];
    for place in &mut matrix {
        *place = fields.i32()?;
    }
    let [a, b, _, c, d, ..] = matrix.map(i32::signum);
    facts.rotation_degrees = match (a, b, c, d) {
        (0, 1, -1, 0) => 90,
        (-1, 0, 0, -1) => 180,
        (0, -1, 1, 0) => 270,
        _ => 0,
    };
    let size = (fields.u32()? >> 16, fields.u32()? >> 16);
    facts.dimensions = Some(size).filter(|&(width, height)| width > 0 && height > 0);
    Some(())
}

/// Whether all samples of a track of timed text are shown though nobody asks for subtitles
/// (QuickTime File Format, "Subtitle sample description").
fn is_forced(stsd: &[u8]) -> bool {
    const ALL_FORCED: u32 = 1 << 31;
    let entry = stsd.get(8..).and_then(|entries| Boxes(entries).next());
    let flags = entry.filter(|(name, _)| name == b"tx3g");
    let flags = flags.and_then(|(_, entry)| Fields(entry.get(8..)?).u32());
    flags.is_some_and(|it| it & ALL_FORCED != 0)
}

/// What fragments have if they do not say otherwise (`trex`), and the number of the track.
fn defaults(trex: &[u8]) -> Option<(u32, Defaults)> {
    let mut fields = Fields(trex);
    fields.version_and_flags()?;
    let id = fields.u32()?;
    let defaults = Defaults {
        description: fields.u32()?,
        duration: fields.u32()?,
        bytes: fields.u32()?,
        flags: fields.u32()?,
    };
    Some((id, defaults))
}

/// What a track is that has neither pictures nor sound, for people.
fn medium(handler: &Name, stsd: &[u8]) -> String {
    let entry = stsd.get(8..).and_then(|entries| Boxes(entries).next());
    let entry = entry.map_or(*handler, |(name, _)| name);
    let words = match handler {
        b"sbtl" | b"subt" | b"subp" | b"clcp" | b"text" => "subtitles",
        b"tmcd" => "timecode",
        b"hint" => "hints for servers",
        b"meta" | b"mp7s" => "metadata",
        b"pict" => "a still picture",
        b"auxv" => "auxiliary pictures",
        _ => "other data",
    };
    format!("{words} ({})", spelled(&entry))
}
