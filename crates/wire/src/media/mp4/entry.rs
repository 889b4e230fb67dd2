//! Sample entries (ISO/IEC 14496-12, section 8.5.2, and QuickTime's sample descriptions): how the
//! samples of a track are coded.
//!
//! Which box holds a codec's configuration is known here, and nothing of what is in it: that the
//! functions of `media::codec` read.

use super::boxes::{Boxes, Fields, Name, spelled};
use crate::media::codec::{aac, h264, vp8, vp9};
use crate::media::packetizer::{Codec, CodecError};

/// What the entries of a track amount to.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    pub(super) codec: Codec,
    /// Of each entry, which of the codec's configurations it has; `None` if samples that have it
    /// cannot be played together with those of the first.
    pub(super) configurations: Vec<Option<u16>>,
    /// Bytes of a sample for each channel and moment, where samples are such: PCM.
    pub(super) frame_bytes: Option<u32>,
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
}

/// One sample entry.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry<'a> {
    name: Name,
    /// How it is coded, by whichever name.
    coding: Coding,
    configuration: Option<&'a [u8]>,
    sound: Sound,
}

/// What a sample entry tells of sound.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Sound {
    channels: u32,
    rate_hz: u32,
    bits: u32,
}

/// The codings that are played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Coding {
    H264,
    Vp8,
    Vp9,
    Aac,
}

impl Entries {
    /// What the entries in a sample description box (`stsd`) amount to.
    ///
    /// # Errors
    ///
    /// If samples of the first one cannot be played.
    pub(super) fn read(stsd: &[u8], kind: Kind) -> Result<Self, Unplayable> {
        let mut fields = Fields(stsd);
        let version = fields.version_and_flags().map_or(0, |(version, _)| version);
        let told = fields.u32().unwrap_or(0) as usize;
        let entries = Boxes(fields.0).take(told.min(ENTRIES_MAX));
        let entries = entries.map(|(name, bytes)| Entry::read(name, bytes, kind, version));
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
                let bytes = entry.configuration.unwrap_or_default();
                let known = list.iter().position(|&it| it == bytes);
                let number = known.unwrap_or_else(|| {
                    list.push(bytes);
                    list.len() - 1
                });
                u16::try_from(number).expect("there are at most ENTRIES_MAX")
            }));
        }
        let codec = first.codec(&list).or_else(|error| {
            // Others are not to take from those that have the first what they have.
            configurations
                .iter_mut()
                .for_each(|it| *it = it.filter(|&number| number == 0));
            list.get(..1).map_or(Err(error), |list| first.codec(list))
        });
        let codec = codec.map_err(|error| Unplayable {
            what: spelled(&first.name),
            reason: error.to_string(),
        })?;
        Ok(Self {
            codec,
            configurations,
            frame_bytes: first.frame_bytes(),
        })
    }
}

impl<'a> Entry<'a> {
    fn read(name: Name, bytes: &'a [u8], kind: Kind, version: u8) -> Result<Self, Unplayable> {
        let unplayable = |what: String, reason: &str| Unplayable {
            what,
            reason: reason.to_owned(),
        };
        if matches!(&name, b"encv" | b"enca" | b"drmi" | b"drms") {
            let (what, reason) = encrypted(name, bytes, kind, version);
            return Err(unplayable(what, &reason));
        }
        let broken = || unplayable(spelled(&name), "its sample entry ends too early");
        let (sound, inside) = match kind {
            // Behind what all entries have: 70 bytes on size, resolution and the coder's name.
            Kind::Pictures => (Sound::default(), bytes.get(78..).ok_or_else(broken)?),
            Kind::Sound => Sound::read(bytes, version).ok_or_else(broken)?,
        };
        let inside = Boxes(inside);
        let (coding, configuration) =
            coding(&name, &inside).map_err(|reason| unplayable(described(&name), &reason))?;
        Ok(Self {
            name,
            coding,
            configuration,
            sound,
        })
    }

    /// Whether samples of this entry can follow on samples of `first` in one track: the codec takes
    /// several configurations, or both have the same.
    fn goes_with(&self, first: &Self) -> bool {
        let takes_several = matches!(self.coding, Coding::H264);
        self.coding == first.coding
            && self.sound == first.sound
            && (takes_several || self.configuration == first.configuration)
    }

    fn codec(&self, configurations: &[&[u8]]) -> Result<Codec, CodecError> {
        let first = self.configuration.unwrap_or_default();
        match self.coding {
            Coding::H264 => h264::codec(configurations),
            Coding::Vp8 => Ok(vp8::codec()),
            Coding::Vp9 => vp9::codec(self.configuration),
            Coding::Aac => aac::codec(first),
        }
    }

    fn frame_bytes(&self) -> Option<u32> {
        None
    }
}

/// How the samples of an entry are coded, and its configuration; or why they cannot be played.
fn coding<'a>(name: &Name, inside: &Boxes<'a>) -> Result<(Coding, Option<&'a [u8]>), String> {
    let configured = |coding, in_box: &Name| match inside.first(in_box) {
        Some(bytes) => Ok((coding, Some(bytes))),
        None => Err(format!("its sample entry has no {}", spelled(in_box))),
    };
    match name {
        b"avc1" | b"avc3" => configured(Coding::H264, b"avcC"),
        b"vp08" => Ok((Coding::Vp8, None)),
        // Its version and flags are no part of the configuration.
        b"vp09" => Ok((
            Coding::Vp9,
            inside.first(b"vpcC").and_then(|it| it.get(4..)),
        )),
        b"mp4a" | b"mp4v" => elementary(inside),
        b".mp3" => Err("MP3 is not played yet".to_owned()),
        _ => Err("there is no way to send it".to_owned()),
    }
}

/// How samples are coded that `esds` tells of (ISO/IEC 14496-1, section 7.2.6.6); QuickTime has it
/// in a box `wave`.
fn elementary<'a>(inside: &Boxes<'a>) -> Result<(Coding, Option<&'a [u8]>), String> {
    let esds = inside
        .first(b"esds")
        .or_else(|| inside.at(&[b"wave", b"esds"]));
    let esds = esds.ok_or("its sample entry has no esds")?;
    let stream = elementary_stream(esds).ok_or("its esds is broken")?;
    let (object_type, configuration) = stream;
    match object_type {
        0x40 | 0x66..=0x68 => match configuration {
            Some(_) => Ok((Coding::Aac, configuration)),
            None => Err("its esds has no configuration".to_owned()),
        },
        other => Err(format!("there is no way to send object type 0x{other:02x}")),
    }
}

/// The object type that a stream's descriptor tells, and the decoder's configuration in it.
fn elementary_stream(esds: &[u8]) -> Option<(u8, Option<&[u8]>)> {
    const STREAM: u8 = 3;
    const DECODER: u8 = 4;
    const CONFIGURATION: u8 = 5;
    let mut fields = Fields(esds.get(4..)?);
    let mut stream = Fields(descriptor(&mut fields, STREAM)?);
    stream.u16()?;
    let flags = stream.u8()?;
    if flags & 0x80 != 0 {
        stream.u16()?;
    }
    if flags & 0x40 != 0 {
        let url_bytes = stream.u8()?;
        stream.bytes(url_bytes.into())?;
    }
    if flags & 0x20 != 0 {
        stream.u16()?;
    }
    let mut decoder = Fields(descriptor(&mut stream, DECODER)?);
    let object_type = decoder.u8()?;
    // The kind of stream, its buffer, and its rates.
    decoder.bytes(12)?;
    Some((object_type, descriptor(&mut decoder, CONFIGURATION)))
}

/// What is in the next descriptor with that tag, of those that follow (section 8.3.3: lengths are
/// of seven bits a byte, in four bytes at the most).
fn descriptor<'a>(fields: &mut Fields<'a>, wanted: u8) -> Option<&'a [u8]> {
    loop {
        let tag = fields.u8()?;
        let mut bytes = 0;
        for _ in 0..4 {
            let byte = fields.u8()?;
            bytes = bytes << 7 | usize::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                break;
            }
        }
        let inside = fields.bytes(bytes.min(fields.0.len()))?;
        if tag == wanted {
            return Some(inside);
        }
    }
}

impl Sound {
    /// What an entry for sound tells, and the boxes in it. `version` is that of `stsd`: where it is
    /// 1, entries are ISO's and have the form of QuickTime's version 0, whatever they say.
    fn read(bytes: &[u8], version: u8) -> Option<(Self, &[u8])> {
        let mut fields = Fields(bytes);
        fields.bytes(8)?;
        let form = fields.u16()?;
        fields.bytes(6)?;
        let channels = fields.u16()?.into();
        let bits = fields.u16()?.into();
        fields.bytes(4)?;
        let rate_hz = fields.u32()? >> 16;
        let mut sound = Self {
            channels,
            rate_hz,
            bits,
        };
        match form {
            1 if version == 0 => {
                fields.bytes(16)?;
            }
            2 if version == 0 => {
                fields.bytes(4)?;
                let rate = f64::from_bits(fields.u64()?);
                sound.rate_hz = whole(rate);
                sound.channels = fields.u32()?;
                fields.bytes(4)?;
                sound.bits = fields.u32()?;
                fields.bytes(12)?;
            }
            _ => {}
        }
        Some((sound, fields.0))
    }
}

/// A rate as a whole number; 0 if it is none.
fn whole(rate: f64) -> u32 {
    let bits = rate.max(0.0).min(f64::from(u32::MAX)).round();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number between 0 and the largest, or not a number, which becomes 0"
    )]
    let rate = bits as u32;
    rate
}

/// What an encrypted entry is, and how it is encrypted (ISO/IEC 23001-7).
fn encrypted(name: Name, bytes: &[u8], kind: Kind, version: u8) -> (String, String) {
    let inside = match kind {
        Kind::Pictures => bytes.get(78..),
        Kind::Sound => Sound::read(bytes, version).map(|(_, inside)| inside),
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
