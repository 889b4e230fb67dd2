//! Files that are tables of samples, whichever container told of them.
//!
//! ISO BMFF, Matroska and the elementary streams of a transport stream end here: a [`SampledTrack`]
//! has a codec and a table of samples, a [`SampledIndex`] has tracks. What RTP makes of them is the
//! same for all.
//!
//! Times: a track counts in ticks of its own. `shift_ticks` brings them to the time line of the
//! whole file, whose 0 is what a player calls the start; what is shown at 0 may have to be decoded
//! before, and is then due at 0. Timestamps are times of showing (composition), and the order is
//! that of decoding.

mod carriage;
mod filling;
mod gathered;
mod made;
mod parts;
mod plan;
pub mod report;
pub(super) mod saved;
mod sinks;
mod units;

use std::any::Any;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::codec::config::CodecConfig;
use super::codec::dolby_vision::DolbyVision;
use super::colour::Colour;
use super::container::{self, Container, Continued, Probe};
use super::frame_rate::FrameRate;
use super::packetizer::{Codec, PAYLOAD_BYTES_MIN, Parts};
use super::plan::{Packets, SeekPoint};
use super::samples::Samples;
use super::scale::Timeline;
use super::track::{CUTS_MAX, Cut, Medium, TEXTS_MAX, TRACKS_MAX, Track};
pub(in crate::media) use carriage::Carriage;
pub(in crate::media) use parts::{PartReader, SampleParts};
use plan::SampledPlan;

use crate::rtp::PAYLOAD_TYPE_DYNAMIC;

/// Bytes behind the RTP header of the packets of each cut: an Ethernet frame by IPv4 and by IPv6,
/// the same through tunnels, the least that IPv6 carries, and what very narrow paths do.
const CUT_BYTES: [u16; CUTS_MAX] = [1460, 1440, 1400, 1340, 1220, 1000, 536, 128];

/// A track that is made of samples.
#[derive(Clone, Debug)]
pub(in crate::media) struct SampledTrack {
    /// How it is coded, and how packets are made of it.
    pub(in crate::media) codec: Codec,
    /// What the codec was made of, to make it again, and to tell decoders beforehand; without it no
    /// index of the track is saved.
    pub(in crate::media) config: Option<Arc<CodecConfig>>,
    /// Ticks a second of its times. Not 0.
    pub(in crate::media) timescale: u32,
    /// What is added to its times to have those of the file: edit lists, and delays.
    pub(in crate::media) shift_ticks: i64,
    /// Its samples.
    pub(in crate::media) samples: Samples,
    /// Bytes in front of each sample that are not in the file again and again (Matroska's header
    /// stripping).
    pub(in crate::media) prefix: Arc<[u8]>,
    /// How the file carries its samples; `None` if each lies there in one piece.
    pub(in crate::media) carriage: Option<Arc<dyn Carriage>>,
    /// What else is told of it.
    pub(in crate::media) facts: TrackFacts,
}

/// What a container tells of a track, for people.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct TrackFacts {
    /// Its number in the file.
    pub id: u64,
    /// Its language, as the container spells it.
    pub language: Option<String>,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Whether the file would have it played where nobody chooses among those of its kind; it may
    /// say so of several, or of none.
    pub is_default: bool,
    /// Whether it is of subtitles that are shown though nobody asks for any: what is said in other
    /// languages, and written in the pictures.
    pub is_forced: bool,
    /// Pixels, as they are shown.
    pub dimensions: Option<(u32, u32)>,
    /// Pixels as the container says that they are coded.
    pub(in crate::media) coded: Option<(u32, u32)>,
    /// Their colours, as the container tells.
    pub(in crate::media) colour: Option<Colour>,
    /// What a decoder of Dolby Vision is told, if no other can show them.
    pub(in crate::media) dolby_vision: Option<DolbyVision>,
    /// By how many degrees it is turned clockwise to be shown: 0, 90, 180 or 270.
    pub rotation_degrees: u16,
    /// Moments of sound a second, and channels, as the container tells.
    pub sound: Option<(u32, u32)>,
    /// What is not as it should be, and what was made of it.
    pub problems: Vec<String>,
}

impl TrackFacts {
    /// Its name, if that is one for people: that of most files is of the program that wrote them.
    pub(in crate::media) fn label(&self) -> Option<&str> {
        const PROGRAMS: [&str; 5] = ["Handle", "handle", "Core Media", "Bento4", "ISO Media"];
        let is_of_program = |name: &&str| PROGRAMS.iter().any(|it| name.contains(it));
        let name = self.name.as_deref().filter(|it| !it.is_empty());
        name.filter(|name| !is_of_program(name))
    }
}

/// A track of the file that is not played, and why.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LeftOut {
    /// Its number in the file.
    pub id: u64,
    /// What it is, for people: `subtitles (tx3g)`.
    pub what: String,
    /// Why it is not played.
    pub reason: String,
}

/// A file of such tracks.
#[derive(Clone, Debug)]
pub(in crate::media) struct SampledIndex {
    /// What it is: `MP4`, `fragmented MP4`, `Matroska`, `WebM`.
    pub(in crate::media) format: &'static str,
    /// Those that are played, the one that seeks go by first.
    pub(in crate::media) sampled: Vec<Arc<SampledTrack>>,
    /// The same, as a client is told of them.
    tracks: Vec<Track>,
    /// Subtitles, which RTP does not carry.
    pub(in crate::media) texts: Vec<Arc<SampledTrack>>,
    /// The others.
    pub(in crate::media) left_out: Vec<LeftOut>,
    /// How long it is if more is told than the samples that are known.
    pub(in crate::media) told_duration_ns: Option<u64>,
    /// Whether its tables are known only up to some place in the file.
    pub(in crate::media) is_partial: bool,
    /// How much earlier it begins than the file says, at a place to start at.
    pub(in crate::media) lead_ns: u64,
    /// Where to see whether it still is what it was.
    pub(in crate::media) probes: Vec<Probe>,
    /// How time codes count its frames, if it says so.
    pub(in crate::media) time_code_rate: Option<FrameRate>,
    /// The constant rate of its pictures, once somebody has asked.
    constant_rate: OnceLock<Option<FrameRate>>,
    /// When its time 0 was by the clock on the wall, in ns since 1970, if it says so.
    pub(in crate::media) wall_clock_start_ns: Option<u64>,
}

impl SampledTrack {
    /// Pixels as they are shown, if that is known.
    pub(in crate::media) fn shown_dimensions(&self) -> Option<(u32, u32)> {
        let shown = self.facts.dimensions.or(self.codec.dimensions);
        shown.or(self.facts.coded)
    }

    /// Pixels as they are coded, if that is known; as they are shown, if only that is.
    pub(in crate::media) fn coded_dimensions(&self) -> Option<(u32, u32)> {
        let told = self.codec.dimensions.or(self.facts.coded);
        told.or(self.facts.dimensions)
    }

    /// Whether it is of subtitles.
    pub(in crate::media) fn is_text(&self) -> bool {
        matches!(self.config.as_deref(), Some(CodecConfig::Text { .. }))
    }

    /// How many samples can be played: those of which all is known that packets need.
    pub(in crate::media) fn playable(&self) -> usize {
        match self.codec.packetizer.parts() {
            Parts::None => self.samples.len(),
            Parts::Chained { .. } | Parts::Searched => self.samples.with_parts(),
        }
    }

    /// The time of the file that is so many ticks of the track. Negative before the start.
    pub(in crate::media) fn time_ns(&self, ticks: i64) -> i64 {
        let ticks = i128::from(ticks) + i128::from(self.shift_ticks);
        clamped(ticks * 1_000_000_000 / i128::from(self.timescale.max(1)))
    }

    /// The same in ticks of the RTP clock, modulo 2^32.
    pub(in crate::media) fn rtp_ticks(&self, ticks: i64) -> u32 {
        let ticks = i128::from(ticks) + i128::from(self.shift_ticks);
        let scaled = ticks * i128::from(self.codec.clock_hz);
        let rtp = scaled.div_euclid(i128::from(self.timescale.max(1)));
        u32::try_from(rtp.rem_euclid(1 << 32)).expect("within 32 bits")
    }

    /// The last tick of the track that is not after `time_ns` of the file, by [`Self::time_ns`]:
    /// so the time of a tick leads back to it, though most are rounded down.
    pub(in crate::media) fn ticks_at(&self, time_ns: u64) -> i64 {
        let scaled = (i128::from(time_ns) + 1) * i128::from(self.timescale);
        let ticks = (scaled - 1) / 1_000_000_000;
        clamped(ticks - i128::from(self.shift_ticks))
    }

    /// How often pictures are shown, if each comes as long after the one before it.
    fn constant_rate(&self) -> Option<FrameRate> {
        let of_pictures = self.codec.medium == Medium::Video;
        let period = self.samples.period().filter(|_| of_pictures)?;
        FrameRate::new(self.timescale, period)
    }

    /// When sample `at` is due: when it is decoded, and not before the start.
    pub(in crate::media) fn due_ns(&self, at: usize) -> u64 {
        let time_ns = self.time_ns(self.samples.decode_ticks(at));
        u64::try_from(time_ns).unwrap_or(0)
    }

    /// When what can be played of it is over.
    pub(in crate::media) fn end_ns(&self) -> u64 {
        self.due_ns(self.playable())
    }

    /// Whether what packets are made of is in `old` the same as far as that goes.
    fn continues_packets(&self, old: &Self) -> bool {
        let [own, others] = [self, old].map(|it| &it.codec.packetizer);
        // What codecs are made of makes the same packetizer again.
        let is_alike =
            Arc::ptr_eq(own, others) || self.config.is_some() && self.config == old.config;
        is_alike
            && self.prefix == old.prefix
            && self.playable() >= old.playable()
            && continues(self, old)
    }

    /// Whether more of it is known to come than can be played.
    pub(in crate::media) fn is_incomplete(&self) -> bool {
        self.playable() < self.samples.len()
    }
}

fn clamped(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl SampledIndex {
    /// An index of these tracks; pictures come first, and what is beyond [`TRACKS_MAX`], or of
    /// subtitles [`TEXTS_MAX`], is left out. `None` if none of them can be played.
    pub(in crate::media) fn new(
        format: &'static str,
        sampled: impl IntoIterator<Item = SampledTrack>,
        mut left_out: Vec<LeftOut>,
    ) -> Option<Self> {
        let all = sampled.into_iter();
        let (mut texts, mut sampled): (Vec<_>, Vec<_>) = all.partition(SampledTrack::is_text);
        for text in texts.drain(TEXTS_MAX.min(texts.len())..) {
            left_out.push(LeftOut {
                id: text.facts.id,
                what: format!("subtitles ({})", text.codec.codec_string),
                reason: format!("only {TEXTS_MAX} subtitles of a film are shown"),
            });
        }
        for text in &texts {
            let is_told = left_out.iter().any(|it| it.id == text.facts.id);
            left_out.extend((!is_told).then(|| LeftOut {
                id: text.facts.id,
                what: format!("subtitles ({})", text.codec.codec_string),
                reason: "not in RTP; in HLS and DASH it is WebVTT".to_owned(),
            }));
        }
        sampled.sort_by_key(|track| track.codec.medium != Medium::Video);
        for track in sampled.drain(TRACKS_MAX.min(sampled.len())..) {
            left_out.push(LeftOut {
                id: track.facts.id,
                what: track.codec.codec_string,
                reason: format!("only {TRACKS_MAX} tracks of a file are played"),
            });
        }
        let tracks = sampled.iter().zip(PAYLOAD_TYPE_DYNAMIC..);
        let tracks: Vec<_> = tracks
            .map(|(track, number)| told(&track.codec, number))
            .collect();
        (!tracks.is_empty()).then(|| Self {
            format,
            sampled: sampled.into_iter().map(Arc::new).collect(),
            texts: texts.into_iter().map(Arc::new).collect(),
            tracks,
            left_out,
            told_duration_ns: None,
            is_partial: false,
            lead_ns: 0,
            probes: Vec::new(),
            time_code_rate: None,
            constant_rate: OnceLock::new(),
            wall_clock_start_ns: None,
        })
    }
}

/// What a client is told of a track whose payload type is `dynamic` if it has no static one.
fn told(codec: &Codec, dynamic: u8) -> Track {
    Track {
        medium: codec.medium,
        payload_type: codec.payload_type.unwrap_or(dynamic),
        encoding: codec.encoding.into(),
        clock_hz: codec.clock_hz,
        channels: codec.channels,
        format_parameters: codec.format_parameters.clone(),
    }
}

impl container::Index {
    /// How much earlier the film begins than its file says, in ns: one that was cut by an edit list
    /// alone begins at the sync sample in front of the cut. Times of what lies beside the file,
    /// which count from the cut, are later by as much.
    #[must_use]
    pub fn lead_ns(&self) -> u64 {
        self.as_sampled().map_or(0, |it| it.lead_ns)
    }

    /// The index of a file of samples, if it is one.
    pub(super) fn as_sampled(&self) -> Option<&SampledIndex> {
        let container: &dyn Any = &*self.0;
        container.downcast_ref()
    }
}

impl Container for SampledIndex {
    fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    fn duration_ns(&self) -> u64 {
        let ends = self.sampled.iter().map(|track| {
            let end_ns = track.time_ns(track.samples.end_ticks());
            u64::try_from(end_ns).unwrap_or(0)
        });
        let known_ns = ends.max().unwrap_or(0);
        self.told_duration_ns.unwrap_or(0).max(known_ns)
    }

    fn known_ns(&self) -> u64 {
        let sampled = || self.sampled.iter();
        let incomplete = sampled().filter(|track| track.is_incomplete());
        let least = incomplete.map(|track| track.end_ns()).min();
        let most = sampled().map(|track| track.end_ns()).max();
        // Sound that begins late or ends early holds nobody up: pictures decide.
        let first = self.is_partial.then(|| self.sampled[0].end_ns());
        least.or(first).or(most).unwrap_or(0)
    }

    /// A place is the time of showing in ns: that of a sync sample of the first track, if that is
    /// of pictures.
    fn seek(&self, time_ns: u64) -> SeekPoint {
        let first = &self.sampled[0];
        if first.codec.medium != Medium::Video {
            let time_ns = time_ns.min(self.duration_ns());
            return SeekPoint {
                time_ns,
                place: time_ns,
            };
        }
        let at = first.samples.sync_shown_at(first.ticks_at(time_ns));
        // The first is the start of the file, also if sound begins before it.
        let shown = match at {
            0 => 0,
            _ => first.time_ns(first.samples.shown_ticks(at)),
        };
        let place = u64::try_from(shown).unwrap_or(0);
        SeekPoint {
            time_ns: place,
            place,
        }
    }

    fn time_of_stamp_ns(&self, stamp_ns: u64) -> u64 {
        stamp_ns
    }

    fn probes(&self, probes_max: usize) -> Vec<Probe> {
        let step = self.probes.len().div_ceil(probes_max.max(1)).max(1);
        let probes = self.probes.iter().step_by(step).take(probes_max);
        probes.cloned().collect()
    }

    fn cut(&self, track: usize, payload_bytes_max: usize) -> Option<Cut> {
        let fits = |&(_, &bytes): &(u8, &u16)| usize::from(bytes) <= payload_bytes_max;
        let (number, &bytes) = (0..).zip(&CUT_BYTES).find(fits)?;
        debug_assert!(usize::from(bytes) >= PAYLOAD_BYTES_MIN);
        let bytes_min = self.sampled[track].codec.packetizer.payload_bytes_min();
        (usize::from(bytes) >= bytes_min).then_some(Cut {
            number,
            payload_bytes_max: bytes,
        })
    }

    fn packets(
        self: Arc<Self>,
        track: usize,
        cut: Cut,
        burst_ns: u64,
        grows: bool,
    ) -> Box<dyn Packets> {
        let payload_type = self.tracks[track].payload_type;
        let of = Arc::clone(&self.sampled[track]);
        let grows = grows || of.is_incomplete();
        let plan = SampledPlan::new(of, payload_type, cut.payload_bytes_max(), burst_ns, grows);
        Box::new(plan)
    }

    fn packets_continuing(
        self: Arc<Self>,
        track: usize,
        cut: Cut,
        (burst_ns, grows): (u64, bool),
        before: &dyn Any,
    ) -> Box<dyn Packets> {
        let Some(before) = before.downcast_ref::<SampledPlan>() else {
            return self.packets(track, cut, burst_ns, grows);
        };
        let of = Arc::clone(&self.sampled[track]);
        let (payload_type, bytes) = (self.tracks[track].payload_type, cut.payload_bytes_max());
        let how = (burst_ns, grows || of.is_incomplete());
        let plan = SampledPlan::continuing(of, payload_type, bytes, how, before);
        Box::new(plan)
    }

    fn trick(
        self: Arc<Self>,
        track: usize,
        cut: Cut,
        burst_ns: u64,
        timeline: Timeline,
    ) -> Option<Box<dyn Packets>> {
        let of = Arc::clone(&self.sampled[track]);
        let (payload_type, bytes) = (self.tracks[track].payload_type, cut.payload_bytes_max());
        let plan = SampledPlan::trick(of, payload_type, bytes, burst_ns, timeline)?;
        Some(Box::new(plan))
    }

    fn frame_rate(&self) -> Option<FrameRate> {
        let first = &self.sampled[0];
        let constant = || *self.constant_rate.get_or_init(|| first.constant_rate());
        self.time_code_rate.or_else(constant)
    }

    fn wall_clock_start_ns(&self) -> Option<u64> {
        self.wall_clock_start_ns
    }

    fn continuing(self: Arc<Self>, old: &dyn Any) -> Continued {
        let alike = old
            .downcast_ref::<Self>()
            .filter(|old| old.tracks == self.tracks && old.format == self.format);
        let Some(old) = alike else {
            return Continued::Other;
        };
        let mut pairs = self.sampled.iter().zip(&old.sampled);
        if pairs.any(|(new, old)| old.playable() > new.playable()) {
            return Continued::NotYet;
        }
        let mut pairs = self.sampled.iter().zip(&old.sampled);
        match pairs.all(|(new, old)| continues(new, old)) {
            true => Continued::More(container::Index(self)),
            false => Continued::Other,
        }
    }
}

/// Of a track that is not read to its end only what can be played is certain: behind that a sample
/// may turn out to be broken, and the track then ends there.
fn continues(new: &SampledTrack, old: &SampledTrack) -> bool {
    new.timescale == old.timescale
        && new.shift_ticks == old.shift_ticks
        && new.samples.continues(&old.samples, old.playable())
}

#[cfg(test)]
mod tests;
