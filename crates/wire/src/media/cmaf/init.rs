//! Initialization segments (ISO/IEC 14496-12, section 8.16.3): all of a track but its samples.

use super::boxes::Writer;
use super::entry::{self, Description};
use super::lead_ticks;
use crate::media::sampled::SampledTrack;
use crate::media::track::Medium;

/// The number of the only track of a segment.
pub(super) const TRACK_ID: u32 = 1;

/// Ticks a second of the movie, in which nothing here is counted.
const MOVIE_HZ: u32 = 1000;

/// What is shown as it is: the identity (section 8.2.2.2).
const UPRIGHT: [i32; 4] = [1, 0, 0, 1];

/// The initialization segment of a track.
pub(in crate::media) fn init_segment(track: &SampledTrack, description: &Description) -> Vec<u8> {
    let mut out = Writer::default();
    out.nest(b"ftyp", |out| {
        out.bytes(b"iso6");
        out.u32(1);
        for brand in [b"iso6", b"cmfc", b"dash", b"mp41"] {
            out.bytes(brand);
        }
    });
    out.nest(b"moov", |out| {
        out.full(b"mvhd", 0, 0, |out| {
            out.zeros(8);
            out.u32(MOVIE_HZ);
            out.u32(0);
            out.u32(1 << 16);
            out.u16(1 << 8);
            out.zeros(10);
            matrix(UPRIGHT, out);
            out.zeros(24);
            out.u32(TRACK_ID + 1);
        });
        out.nest(b"trak", |out| trak(track, description, out));
        out.nest(b"mvex", |out| {
            out.full(b"trex", 0, 0, |out| {
                out.u32(TRACK_ID);
                out.u32(1);
                out.zeros(12);
            });
        });
    });
    out.0
}

fn trak(track: &SampledTrack, description: &Description, out: &mut Writer) {
    let is_video = track.codec.medium == Medium::Video;
    let volume = if is_video { 0 } else { 1 << 8 };
    // Enabled, and a part of the movie.
    out.full(b"tkhd", 0, 3, |out| {
        out.zeros(8);
        out.u32(TRACK_ID);
        out.zeros(8 + 8 + 4);
        out.u16(volume);
        out.u16(0);
        matrix(turned(track.facts.rotation_degrees), out);
        let shown = track.shown_dimensions();
        let (width, height) = shown.filter(|_| is_video).unwrap_or((0, 0));
        out.u32(width.min(0xffff) << 16);
        out.u32(height.min(0xffff) << 16);
    });
    let lead = lead_ticks(track);
    if lead > 0 {
        out.nest(b"edts", |out| {
            out.full(b"elst", 1, 0, |out| {
                out.u32(1);
                // For as long as there is something.
                out.u64(0);
                out.u64(lead.unsigned_abs());
                out.u32(1 << 16);
            });
        });
    }
    out.nest(b"mdia", |out| {
        out.full(b"mdhd", 0, 0, |out| {
            out.zeros(8);
            out.u32(track.timescale);
            out.u32(0);
            out.u16(language(track.facts.language.as_deref()));
            out.u16(0);
        });
        out.full(b"hdlr", 0, 0, |out| {
            out.u32(0);
            out.bytes(if is_video { b"vide" } else { b"soun" });
            // And a name without letters.
            out.zeros(12 + 1);
        });
        out.nest(b"minf", |out| minf(track, description, is_video, out));
    });
}

fn minf(track: &SampledTrack, description: &Description, is_video: bool, out: &mut Writer) {
    match is_video {
        true => out.full(b"vmhd", 0, 1, |out| out.zeros(8)),
        false => out.full(b"smhd", 0, 0, |out| out.zeros(4)),
    }
    out.nest(b"dinf", |out| {
        out.full(b"dref", 0, 0, |out| {
            out.u32(1);
            // Media data are in the same file.
            out.full(b"url ", 0, 1, |_| {});
        });
    });
    out.nest(b"stbl", |out| {
        out.full(b"stsd", 0, 0, |out| {
            let count = entry::count(description);
            out.u32(u32::try_from(count).expect("there are few"));
            (0..count).for_each(|number| entry::write(track, description, number, out));
        });
        out.full(b"stts", 0, 0, |out| out.u32(0));
        out.full(b"stsc", 0, 0, |out| out.u32(0));
        out.full(b"stsz", 0, 0, |out| out.zeros(8));
        out.full(b"stco", 0, 0, |out| out.u32(0));
    });
}

fn matrix([a, b, c, d]: [i32; 4], out: &mut Writer) {
    for number in [a, b, 0, c, d, 0, 0, 0] {
        out.i32(number << 16);
    }
    out.i32(1 << 30);
}

/// The matrix of pictures that are turned clockwise by so many degrees to be shown.
fn turned(degrees: u16) -> [i32; 4] {
    match degrees {
        90 => [0, 1, -1, 0],
        180 => [-1, 0, 0, -1],
        270 => [0, -1, 1, 0],
        _ => UPRIGHT,
    }
}

/// Three letters of five bits each (ISO 639-2/T); `und` for all that is none.
fn language(code: Option<&str>) -> u16 {
    let letters = code.map(str::as_bytes).and_then(|it| it.first_chunk::<3>());
    let known = letters.filter(|it| {
        code.is_some_and(|code| code.len() == 3) && it.iter().all(u8::is_ascii_lowercase)
    });
    let letters = known.unwrap_or(b"und");
    letters
        .iter()
        .fold(0, |packed, letter| packed << 5 | u16::from(letter - 0x60))
}
