//! Sample entries (ISO/IEC 14496-12, section 8.5.2, and QuickTime's sample descriptions): how the
//! samples of a track are coded.
//!
//! A track may have several, and each chunk of samples says which of them it has. They are played
//! together if one codec takes all their configurations.

use super::boxes::{Boxes, Fields, Name, spelled};
use super::coding::{Coded, Sound};
use crate::media::codec::config::CodecConfig;
use crate::media::codec::dolby_vision::DolbyVision;
use crate::media::codec::text::TextKind;
use crate::media::colour::{Colour, UNSPECIFIED};
use crate::media::packetizer::Codec;
use crate::media::sampled::TrackFacts;

/// What the entries of a track amount to.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    pub(super) codec: Codec,
    /// What the codec was made of.
    pub(super) config: CodecConfig,
    /// Of each entry, which of the codec's configurations it has; `None` if samples that have it
    /// cannot be played together with those of the first.
    pub(super) configurations: Vec<Option<u16>>,
    /// Bytes of a sample for each channel and moment, where samples are such: PCM.
    pub(super) frame_bytes: Option<u32>,
    /// Moments of sound a second, and channels.
    sound: Option<(u32, u32)>,
    /// What the first tells of pictures.
    pictures: Pictures,
}

/// What a sample entry tells of pictures.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Pictures {
    /// Pixels as they are coded.
    coded: Option<(u32, u32)>,
    colour: Option<Colour>,
    dolby_vision: Option<DolbyVision>,
}

/// Entries of a track at the most; samples of those beyond are not played.
pub(super) const ENTRIES_MAX: usize = 64;

/// Why the samples of a track cannot be played.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Unplayable {
    /// What they are, for people.
    pub(super) what: String,
    pub(super) reason: String,
}

/// What kind of media a track says to have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Pictures,
    Sound,
    Text,
}

/// One sample entry.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry<'a> {
    name: Name,
    coded: Coded<'a>,
    sound: Sound,
    pictures: Pictures,
}

impl Entries {
    /// What the entries in a sample description box (`stsd`) of a track of `timescale` amount to.
    ///
    /// # Errors
    ///
    /// If samples of the first one cannot be played.
    pub(super) fn read(stsd: &[u8], kind: Kind, timescale: u32) -> Result<Self, Unplayable> {
        if let Some(text) = Self::of_text(stsd).filter(|_| kind == Kind::Text) {
            return Ok(text);
        }
        let mut fields = Fields(stsd);
        let version = fields.version_and_flags().map_or(0, |(version, _)| version);
        let told = fields.u32().unwrap_or(0) as usize;
        let entries = Boxes(fields.0).take(told.min(ENTRIES_MAX));
        let entries =
            entries.map(|(name, bytes)| Entry::read(name, bytes, kind, version, timescale));
        let entries: Vec<_> = entries.collect();
        let first = match entries.first() {
            Some(Ok(first)) => first.clone(),
            Some(Err(error)) => return Err(error.clone()),
            None => {
                return Err(Unplayable {
                    what: "samples".to_owned(),
                    reason: "nothing tells how they are coded".to_owned(),
                });
            }
        };
        let mut list: Vec<&[u8]> = Vec::new();
        let mut configurations = Vec::with_capacity(entries.len());
        for entry in &entries {
            let fits = entry.as_ref().ok().filter(|it| it.goes_with(&first));
            configurations.push(fits.map(|entry| {
                let bytes = entry.coded.configuration.unwrap_or_default();
                let known = list.iter().position(|&it| it == bytes);
                let number = known.unwrap_or_else(|| {
                    list.push(bytes);
                    list.len() - 1
                });
                u16::try_from(number).expect("there are at most ENTRIES_MAX")
            }));
        }
        let mut config = first.coded.config(&list, first.sound);
        let codec = config.codec().or_else(|error| {
            // Others are not to take from those that have the first what they have.
            configurations
                .iter_mut()
                .for_each(|it| *it = it.filter(|&number| number == 0));
            list.truncate(1);
            if list.is_empty() {
                return Err(error);
            }
            config = first.coded.config(&list, first.sound);
            config.codec()
        });
        let codec = codec.map_err(|error| Unplayable {
            what: spelled(&first.name),
            reason: error.to_string(),
        })?;
        Ok(Self {
            codec,
            config,
            configurations,
            frame_bytes: first.coded.coding.frame_bytes(first.sound),
            sound: (kind == Kind::Sound).then_some((first.sound.rate_hz, first.sound.channels)),
            pictures: first.pictures,
        })
    }
}

impl Entries {
    /// The same of a track of subtitles: how they are written is all that there is to know, because
    /// what else entries tell is how they look; `None` if they are no text, or in a format that is
    /// not read.
    pub(super) fn of_text(stsd: &[u8]) -> Option<Self> {
        let entries = Boxes(stsd.get(8..)?).take(ENTRIES_MAX);
        let kinds: Vec<_> = entries.map(|(name, _)| text_kind(&name)).collect();
        let kind = kinds.first().copied().flatten()?;
        let alike = kinds.iter().map(|&it| (it == Some(kind)).then_some(0));
        Some(Self {
            codec: kind.codec(),
            config: CodecConfig::Text { kind, unit_ns: 0 },
            configurations: alike.collect(),
            frame_bytes: None,
            sound: None,
            pictures: Pictures::default(),
        })
    }

    /// These facts, and what is told here of pictures, sound and subtitles.
    pub(super) fn facts(&self, of: &TrackFacts, is_forced: bool) -> TrackFacts {
        TrackFacts {
            is_forced,
            sound: self.sound,
            coded: self.pictures.coded,
            colour: self.pictures.colour,
            dolby_vision: self.pictures.dolby_vision,
            ..of.clone()
        }
    }
}

impl<'a> Entry<'a> {
    fn read(
        name: Name,
        bytes: &'a [u8],
        kind: Kind,
        version: u8,
        timescale: u32,
    ) -> Result<Self, Unplayable> {
        let unplayable = |what: String, reason: &str| Unplayable {
            what,
            reason: reason.to_owned(),
        };
        if matches!(&name, b"encv" | b"enca" | b"drmi" | b"drms") {
            let (what, reason) = encrypted(name, bytes, kind, version);
            return Err(unplayable(what, &reason));
        }
        let broken = || unplayable(spelled(&name), "its sample entry ends too early");
        let (mut sound, inside) = match kind {
            // Behind what all entries have: 70 bytes on size, resolution and the coder's name.
            Kind::Pictures => (Sound::default(), bytes.get(78..).ok_or_else(broken)?),
            Kind::Sound => Sound::read(bytes, version).ok_or_else(broken)?,
            Kind::Text => (Sound::default(), bytes),
        };
        if kind == Kind::Sound && sound.rate_hz == 0 {
            // It has no room for rates beyond 65,535.
            sound.rate_hz = timescale;
        }
        let coded = Coded::read(&name, &Boxes(inside), &sound)
            .map_err(|reason| unplayable(described(&name), &reason))?;
        let pictures = match kind {
            Kind::Pictures => Pictures::read(bytes, inside),
            _ => Pictures::default(),
        };
        Ok(Self {
            name,
            coded,
            sound,
            pictures,
        })
    }

    /// Whether samples of this entry can follow on samples of `first` in one track: the codec takes
    /// several configurations, or both have the same.
    fn goes_with(&self, first: &Self) -> bool {
        let alike = self.coded.configuration == first.coded.configuration;
        self.coded.coding == first.coded.coding
            && self.sound == first.sound
            && (alike || first.coded.coding.takes_several())
    }
}

impl Pictures {
    /// Of a `VisualSampleEntry` (sections 12.1.3 and 12.1.5), which has boxes `inside`.
    fn read(bytes: &[u8], inside: &[u8]) -> Self {
        let mut fields = Fields(bytes.get(24..).unwrap_or_default());
        let size = fields.u16().zip(fields.u16());
        let size = size.map(|(width, height)| (u32::from(width), u32::from(height)));
        // Others have an ICC profile.
        let mut colours = Boxes(inside).filter(|(name, _)| name == b"colr");
        let mut dolby = Boxes(inside).filter(|(name, _)| matches!(name, b"dvcC" | b"dvvC"));
        Self {
            coded: size.filter(|&(width, height)| width > 0 && height > 0),
            colour: colours.find_map(|(_, bytes)| colour(bytes)),
            dolby_vision: dolby.find_map(|(_, bytes)| DolbyVision::read(bytes)),
        }
    }
}

/// What `colr` tells by code points: ISO's, and QuickTime's, which has no range.
fn colour(colr: &[u8]) -> Option<Colour> {
    let mut fields = Fields(colr);
    let name: Name = fields.array()?;
    let is_iso = match &name {
        b"nclx" => true,
        b"nclc" => false,
        _ => return None,
    };
    let mut code = || {
        let code = u8::try_from(fields.u16()?);
        Some(code.unwrap_or(UNSPECIFIED))
    };
    let (primaries, transfer, matrix) = (code()?, code()?, code()?);
    let range = fields.u8().filter(|_| is_iso);
    Some(Colour {
        primaries,
        transfer,
        matrix,
        is_full_range: range.is_some_and(|it| it & 0x80 != 0),
    })
}

/// What an encrypted entry is, and how it is encrypted (ISO/IEC 23001-7).
fn encrypted(name: Name, bytes: &[u8], kind: Kind, version: u8) -> (String, String) {
    let inside = match kind {
        Kind::Pictures => bytes.get(78..),
        Kind::Sound => Sound::read(bytes, version).map(|(_, inside)| inside),
        Kind::Text => Some(bytes),
    };
    let sinf = inside.and_then(|inside| Boxes(inside).first(b"sinf"));
    let told = |path, at: usize| {
        let bytes = Boxes(sinf?).first(path)?;
        let name: Option<Name> = bytes.get(at..at + 4)?.try_into().ok();
        name.map(|name| spelled(&name))
    };
    let what = told(b"frma", 0).unwrap_or_else(|| spelled(&name));
    match told(b"schm", 4) {
        Some(scheme) => (what, format!("it is encrypted ({scheme})")),
        None => (what, "it is encrypted".to_owned()),
    }
}

/// How samples of an entry of this name are written, if they are text that is read.
fn text_kind(name: &Name) -> Option<TextKind> {
    match name {
        b"tx3g" | b"text" => Some(TextKind::Timed),
        b"wvtt" => Some(TextKind::BoxedWebVtt),
        _ => None,
    }
}

/// What an entry is that is not played, for people.
fn described(name: &Name) -> String {
    let words = match name {
        b"alac" => "Apple Lossless",
        b"fLaC" => "FLAC",
        b"samr" | b"sawb" => "AMR",
        b"apch" | b"apcn" | b"apcs" | b"apco" | b"ap4h" | b"ap4x" => "ProRes",
        b"mlpa" => "Dolby TrueHD",
        b"dtsc" | b"dtsh" | b"dtsl" | b"dtse" => "DTS",
        b"ac-4" => "AC-4",
        b"s263" => "H.263",
        b"vvc1" | b"vvi1" => "H.266",
        b"raw " | b"2vuy" | b"v210" => "uncompressed",
        b"rle " | b"png " | b"SVQ3" | b"cvid" | b"ima4" | b"QDM2" => "old QuickTime",
        _ => return spelled(name),
    };
    format!("{words} ({})", spelled(name))
}
