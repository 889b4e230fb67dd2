//! The files that tests play: of every kind a recorder or an encoder makes, and of every kind of
//! damage.
//!
//! Real ones are encoded by `ffmpeg` from its test sources; damaged ones are made of these. All are
//! kept under the build directory, named by what made them, and made once: a change of a command or
//! of a [`Damage`] makes new files, and tests that run at the same time share them.

use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use onrush_wire::media::TS_PACKET_BYTES;
use onrush_wire::media::ts::clock::{PCR_HZ, PCR_WRAP};
use onrush_wire::media::ts::synth;
use thiserror::Error;

pub use films::{counting_mp4, film, muxed};

mod films;

/// How long the encoded files play, in seconds.
pub const SECONDS: u64 = 4;

/// What `ffmpeg` is asked to encode.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Source {
    /// H.264 and AAC at a constant rate, with null packets.
    Cbr,
    /// H.264 and AAC at the rate they need.
    Vbr,
    /// MPEG-2 video and MPEG audio, layer 2.
    Mpeg2,
    /// HEVC and AC-3.
    Hevc,
    /// MPEG audio alone.
    AudioOnly,
    /// Two programs, each with a picture and sound.
    TwoProgrammes,
    /// H.264 and AC-3 in 192-byte packets, as Blu-ray discs and camcorders have them.
    M2ts,
}

/// What is done to a transport stream.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Damage {
    /// Bytes before the first packet, sync bytes among them.
    LeadingGarbage,
    /// Bytes in the middle, and a damaged sync byte later on.
    LostSync,
    /// The last packet is cut.
    PartialTail,
    /// All clocks wrap in the middle.
    PcrWrap,
    /// All clocks jump by an hour in the middle, unannounced.
    PcrJump,
    /// All clocks jump back by a minute in the middle, announced.
    PcrDiscontinuity,
    /// No clock references.
    NoPcr,
}

/// What should become of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expectation {
    /// It is played; [`AwkwardFile::packets`] says what must arrive.
    Served,
    /// It is refused.
    Refused {
        /// What the reason must contain.
        reason: &'static str,
    },
}

/// One file to try.
#[derive(Clone, Debug)]
pub struct AwkwardFile {
    /// Its name with its ending, for a media directory.
    pub name: &'static str,
    /// Where it is. Do not change it; other tests use it, too.
    pub path: PathBuf,
    /// What should become of it.
    pub expectation: Expectation,
    /// Bytes that belong to no packet.
    garbage: Vec<Range<usize>>,
    /// Bytes before each packet.
    stamp_bytes: usize,
}

/// Why there is no file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MakeError {
    /// `ffmpeg` does not run.
    #[error("ffmpeg: {source}; install it (apt-get install ffmpeg)")]
    Missing {
        /// What the system said.
        source: io::Error,
    },
    /// `ffmpeg` did not make the file.
    #[error("ffmpeg could not make {file}: {stderr}")]
    Encode {
        /// The file.
        file: String,
        /// What it said.
        stderr: String,
    },
    /// The file could not be kept.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Every kind of file that a server meets, and what should become of each. Kinds that the `ffmpeg`
/// of this machine cannot encode are recorded as skipped and left out.
///
/// # Errors
///
/// If a file cannot be made.
pub fn awkward_files() -> Result<Vec<AwkwardFile>, MakeError> {
    let mut files = Vec::new();
    for (name, source) in SOURCES {
        if source == Source::Hevc && !has_encoder("libx265")? {
            crate::skip::record("needs ffmpeg with libx265");
            continue;
        }
        let stamp_bytes = if source == Source::M2ts { 4 } else { 0 };
        let (path, garbage) = (source.make()?, Vec::new());
        let expectation = Expectation::Served;
        files.push(AwkwardFile {
            name,
            path,
            expectation,
            garbage,
            stamp_bytes,
        });
    }
    for (name, damage) in DAMAGES {
        files.push(damage.make(name)?);
    }
    let packet = synth::constant_rate(1, 0, 1);
    let text = "This is no film. Go and look for another.\n".repeat(1000);
    let refused: [(&str, &[u8], &str); 3] = [
        ("empty.ts", b"", "empty"),
        ("one-packet.ts", &packet, "too few"),
        (
            "text.ts",
            text.as_bytes(),
            "no MP4, Matroska or MPEG transport stream",
        ),
    ];
    for (name, bytes, reason) in refused {
        let path = keep(name, &bytes, |file| file.write_all(bytes))?;
        let expectation = Expectation::Refused { reason };
        files.push(AwkwardFile {
            name,
            path,
            expectation,
            garbage: Vec::new(),
            stamp_bytes: 0,
        });
    }
    Ok(files)
}

/// A film of so many seconds whose picture says in which of them it is, see [`second_shown`]:
/// 300 kbit/s, H.264 and MPEG audio, layer 2, a place to start every second, and times that begin
/// at 0.
///
/// # Errors
///
/// If `ffmpeg` is not there or fails.
pub fn counting_film(seconds: u64) -> Result<PathBuf, MakeError> {
    let (width, height) = COUNTING_PICTURE;
    let bar = width / COUNTING_BITS;
    let picture = format!(
        "color=c=black:size={width}x{height}:rate=25,format=yuv420p,geq=cb=128:cr=128:\
         lum='if(mod(floor(floor(T)/pow(2\\,floor(X/{bar})))\\,2)\\,235\\,16)'"
    );
    let arguments = "-map 0 -map 1 -c:v libx264 -preset veryfast -profile:v baseline \
        -pix_fmt yuv420p -g 25 -keyint_min 25 -sc_threshold 0 -bf 0 -b:v 100k -maxrate 100k \
        -bufsize 50k -c:a mp2 -b:a 64k -muxrate 300k -muxdelay 0 -muxpreload 0";
    let (name, key) = ("counting.ts", (&picture, arguments, seconds));
    let path = place(name, &key);
    if path.exists() {
        return Ok(path);
    }
    let bytes = encode(name, &picture, seconds, arguments)?;
    keep(name, &key, |file| file.write_all(&bytes))
}

/// Which second a picture of the [`counting_film`] is of, by the brightness of its pixels, one byte
/// each: eight bars side by side, the lowest bit to the left. `None` if it is no such picture.
#[must_use]
pub fn second_shown(pixels: &[u8]) -> Option<u64> {
    let (width, height) = COUNTING_PICTURE;
    let bar = width / COUNTING_BITS;
    if pixels.len() != width * height {
        return None;
    }
    let line = pixels.chunks_exact(width).nth(height / 2)?;
    let bits = line.chunks_exact(bar).enumerate();
    Some(bits.fold(0, |second, (bit, bar)| {
        second | u64::from(bar[bar.len() / 2] > 128) << bit
    }))
}

impl AwkwardFile {
    /// The transport packets that a player must get, one after the other. Known from how the file
    /// was made, not from looking for them.
    ///
    /// # Errors
    ///
    /// What the system says on reading.
    pub fn packets(&self) -> io::Result<Vec<u8>> {
        let mut bytes = std::fs::read(&self.path)?;
        for garbage in self.garbage.iter().rev() {
            bytes.drain(garbage.clone());
        }
        let units = bytes.chunks_exact(self.stamp_bytes + TS_PACKET_BYTES);
        Ok(units
            .flat_map(|unit| &unit[self.stamp_bytes..])
            .copied()
            .collect())
    }
}

impl Source {
    /// The file, encoded if it is not there yet.
    ///
    /// # Errors
    ///
    /// If `ffmpeg` is not there or fails.
    pub fn make(self) -> Result<PathBuf, MakeError> {
        let arguments = self.arguments();
        let name = SOURCES
            .iter()
            .find(|(_, source)| *source == self)
            .map_or("x.ts", |(name, _)| name);
        let key = (&arguments, SECONDS);
        let path = place(name, &key);
        if path.exists() {
            return Ok(path);
        }
        let bytes = encode(name, "testsrc2=size=320x180:rate=25", SECONDS, &arguments)?;
        keep(name, &key, |file| file.write_all(&bytes))
    }

    /// What `ffmpeg` is told, between its inputs and its output.
    fn arguments(self) -> String {
        let x264 = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -g 25 -bf 0";
        match self {
            Self::Cbr => format!(
                "-map 0 -map 1 {x264} -b:v 700k -maxrate 700k -bufsize 350k -c:a aac -b:a 96k \
                 -muxrate 1500k -metadata service_name=Constant"
            ),
            Self::Vbr => format!("-map 0 -map 1 {x264} -crf 24 -c:a aac -b:a 96k"),
            Self::Mpeg2 => "-map 0 -map 1 -c:v mpeg2video -g 12 -b:v 1M -c:a mp2 -b:a 128k".into(),
            Self::Hevc => "-map 0 -map 1 -c:v libx265 -preset ultrafast -x265-params \
                           keyint=25:log-level=error -c:a ac3 -b:a 128k"
                .into(),
            Self::AudioOnly => "-map 1 -c:a mp2 -b:a 128k".into(),
            Self::TwoProgrammes => format!(
                "-map 0 -map 1 -map 0 -map 1 {x264} -b:v 400k -c:a mp2 -b:a 96k -program \
                 title=One:program_num=1:st=0:st=1 -program title=Two:program_num=2:st=2:st=3"
            ),
            Self::M2ts => {
                format!("-map 0 -map 1 {x264} -b:v 700k -c:a ac3 -b:a 128k -mpegts_m2ts_mode 1")
            }
        }
    }
}

impl Damage {
    /// The constant-rate file, damaged.
    fn make(self, name: &'static str) -> Result<AwkwardFile, MakeError> {
        let source = Source::Cbr.make()?;
        let read = std::fs::read(&source);
        let stream = read.map_err(|error| MakeError::Write {
            path: source,
            source: error,
        })?;
        let (bytes, garbage) = self.apply(stream);
        let path = keep(name, &bytes, |file| file.write_all(&bytes))?;
        let expectation = Expectation::Served;
        Ok(AwkwardFile {
            name,
            path,
            expectation,
            garbage,
            stamp_bytes: 0,
        })
    }

    /// The damaged stream, and which of its bytes then belong to no packet. `stream` is whole
    /// packets of 188 bytes.
    #[must_use]
    pub fn apply(self, mut stream: Vec<u8>) -> (Vec<u8>, Vec<Range<usize>>) {
        let packets = stream.len() / TS_PACKET_BYTES;
        let middle = (packets / 2) as u64;
        let offset = |packet: usize| packet * TS_PACKET_BYTES;
        match self {
            Self::LeadingGarbage => {
                let garbage: Vec<u8> = (0..1000)
                    .map(|i| if i % 7 == 3 { 0x47 } else { 0 })
                    .collect();
                stream.splice(0..0, garbage);
                let garbage = 0..1000;
                return (stream, vec![garbage]);
            }
            Self::LostSync => {
                // The later one first, so that it does not move.
                let damaged = offset(packets * 3 / 4);
                stream[damaged] = 0;
                let inserted = offset(packets / 2);
                stream.splice(inserted..inserted, [0x11; 333]);
                let damaged = damaged + 333;
                return (
                    stream,
                    vec![inserted..inserted + 333, damaged..damaged + TS_PACKET_BYTES],
                );
            }
            Self::PartialTail => {
                stream.truncate(stream.len() - 88);
                let garbage = stream.len() - 100..stream.len();
                return (stream, vec![garbage]);
            }
            Self::PcrWrap => {
                let pcr = stream[offset(packets / 2)..]
                    .chunks_exact(TS_PACKET_BYTES)
                    .find_map(synth::pcr_of);
                let shift = (PCR_WRAP - pcr.unwrap_or(0)) / 300 * 300;
                synth::shift_clock(&mut stream, |_| shift);
            }
            Self::PcrJump => {
                let jump = 3600 * PCR_HZ;
                synth::shift_clock(&mut stream, |packet| if packet < middle { 0 } else { jump });
            }
            Self::PcrDiscontinuity => {
                // Ahead first, so that back is not below zero.
                let ahead = 60 * PCR_HZ;
                synth::shift_clock(
                    &mut stream,
                    |packet| if packet < middle { ahead } else { 0 },
                );
                synth::flag_discontinuity(&mut stream, middle);
            }
            Self::NoPcr => synth::strip_clock(&mut stream),
        }
        (stream, Vec::new())
    }
}

/// Width and height of the [`counting_film`]'s pictures.
pub const COUNTING_PICTURE: (usize, usize) = (64, 32);
const COUNTING_BITS: usize = 8;

/// The names of encoded files.
const SOURCES: [(&str, Source); 7] = [
    ("h264-cbr.ts", Source::Cbr),
    ("h264-vbr.ts", Source::Vbr),
    ("mpeg2.ts", Source::Mpeg2),
    ("hevc.ts", Source::Hevc),
    ("audio-only.ts", Source::AudioOnly),
    ("two-programs.ts", Source::TwoProgrammes),
    ("h264.m2ts", Source::M2ts),
];

/// The names of damaged files.
const DAMAGES: [(&str, Damage); 7] = [
    ("leading-garbage.ts", Damage::LeadingGarbage),
    ("lost-sync.ts", Damage::LostSync),
    ("partial-tail.ts", Damage::PartialTail),
    ("pcr-wrap.ts", Damage::PcrWrap),
    ("pcr-jump.ts", Damage::PcrJump),
    ("pcr-discontinuity.ts", Damage::PcrDiscontinuity),
    ("no-pcr.ts", Damage::NoPcr),
];

fn encode(name: &str, picture: &str, seconds: u64, arguments: &str) -> Result<Vec<u8>, MakeError> {
    let sound = "sine=frequency=440:sample_rate=48000";
    let output = Command::new("ffmpeg")
        .args([
            "-nostdin", "-v", "error", "-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", sound,
        ])
        .args([
            "-t",
            &seconds.to_string(),
            "-map_metadata",
            "-1",
            "-bitexact",
            "-threads",
            "1",
        ])
        .args(arguments.split_whitespace())
        .args(["-f", "mpegts", "-"])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| MakeError::Missing { source })?;
    if output.status.success() && !output.stdout.is_empty() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(MakeError::Encode {
        file: name.to_owned(),
        stderr,
    })
}

fn has_encoder(encoder: &str) -> Result<bool, MakeError> {
    let output = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-encoders"])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| MakeError::Missing { source })?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(encoder))
}

/// The file of this name and key, written by `write` if it is not there yet.
fn keep(
    name: &str,
    key: &impl Hash,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<PathBuf, MakeError> {
    let path = place(name, key);
    let kept = || -> io::Result<()> {
        if path.exists() {
            return Ok(());
        }
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        write(file.as_file_mut())?;
        // Another test may have been faster; its file may be being played, so it stays.
        match file.persist_noclobber(&path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error.error),
        }
    };
    kept().map_err(|source| MakeError::Write {
        path: path.clone(),
        source,
    })?;
    Ok(path)
}

/// Keeps at `path`, which is a [`place`], what `write` writes to the path that it is given.
pub(crate) fn keep_written(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), MakeError>,
) -> Result<(), MakeError> {
    let failed = |source| MakeError::Write {
        path: path.to_owned(),
        source,
    };
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    write(file.path())?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => {
            Err(failed(error.error))
        }
        // Another may have been faster; its file may be being played, so it stays.
        _ => Ok(()),
    }
}

/// Where a file is kept: in a folder of its own for each key, so that it keeps its name.
pub(crate) fn place(name: &str, key: &impl Hash) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    cache().join(format!("{:016x}", hasher.finish())).join(name)
}

fn cache() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target),
        None if workspace.is_dir() => workspace.join("target"),
        // Run far from where it was built.
        None => std::env::temp_dir().join("onrush"),
    };
    target.join("testmedia")
}

impl fmt::Display for AwkwardFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.path.display())
    }
}

/// Makes a file old: one that was written a moment ago counts as one that still is, and is waited
/// for at its end.
///
/// # Errors
///
/// If it cannot be opened, or is another's.
pub fn age(path: &Path) -> io::Result<()> {
    let long_ago = SystemTime::now() - Duration::from_secs(9999);
    let file = File::options().append(true).open(path)?;
    file.set_modified(long_ago)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onrush_wire::media::ts::report::Report;
    use onrush_wire::media::ts::report::{ClockSource, Kind, SeekKind};
    use onrush_wire::media::ts::{Index, Packetisation, Plan, ScanOptions, Scanner};
    use onrush_wire::media::{FilePiece, RtpOrigin};

    use super::*;
    use crate::require_programs;

    const PACKETISATION: Packetisation = Packetisation {
        ts_packets_per_rtp: 7,
        burst_ns: 20_000_000,
    };

    fn scan(path: &Path) -> Result<(Vec<u8>, Arc<Index>), String> {
        let file = std::fs::read(path).unwrap();
        let mut scanner = Scanner::new(ScanOptions::default());
        scanner.push(&file).map_err(|error| error.to_string())?;
        let index = scanner.finish().map_err(|error| error.to_string())?;
        Ok((file, Arc::new(index)))
    }

    fn report(path: &Path) -> Report {
        scan(path).unwrap().1.report(PACKETISATION)
    }

    #[test]
    fn all_files_are_served_or_refused_as_they_should_be() {
        require_programs!("ffmpeg");
        let files = awkward_files().unwrap();
        assert!(files.len() >= 16);
        for file in files {
            match (scan(&file.path), file.expectation) {
                (Ok((bytes, index)), Expectation::Served) => {
                    let plan = Plan::new(index, PACKETISATION);
                    let all = 0..plan.rtp_packets();
                    let origin = RtpOrigin {
                        sequence: 0,
                        timestamp: 0,
                        ssrc: 0,
                    };
                    let piece = FilePiece {
                        offset: 0,
                        bytes: &bytes,
                    };
                    let stride = plan.image_bytes_max();
                    let mut images = vec![0; stride * usize::try_from(all.end).unwrap()];
                    plan.write_images(all.clone(), &[piece], origin, &mut images)
                        .unwrap();
                    let payloads = all
                        .zip(images.chunks(stride))
                        .flat_map(|(packet, image)| &image[12..12 + plan.payload_bytes(packet)]);
                    assert!(payloads.eq(&file.packets().unwrap()), "{file}");
                }
                (Err(said), Expectation::Refused { reason }) => {
                    assert!(said.contains(reason), "{file}: {said}");
                }
                (scanned, expected) => panic!("{file}: {expected:?}, but {:?}", scanned.err()),
            }
        }
    }

    #[test]
    fn damaged_clocks_keep_the_pace_of_the_undamaged() {
        require_programs!("ffmpeg");
        let (_, whole) = scan(&Source::Cbr.make().unwrap()).unwrap();
        for (name, damage, discontinuities, wraps) in [
            ("pcr-wrap.ts", Damage::PcrWrap, 0, 1),
            ("pcr-jump.ts", Damage::PcrJump, 1, 0),
            ("pcr-discontinuity.ts", Damage::PcrDiscontinuity, 1, 0),
        ] {
            let (_, index) = scan(&damage.make(name).unwrap().path).unwrap();
            let quality = index.report(PACKETISATION).pcr.unwrap().quality;
            assert_eq!(
                (quality.discontinuities, quality.wraps),
                (discontinuities, wraps),
                "{name}"
            );
            for packet in 0..=whole.ts_packets() {
                let off = index.due_ns(packet).abs_diff(whole.due_ns(packet));
                // A tick of PCR rounding either way.
                assert!(off <= 100, "{name}: packet {packet} is off by {off} ns");
            }
        }
        let stripped = report(&Damage::NoPcr.make("no-pcr.ts").unwrap().path);
        assert_eq!(stripped.clock, ClockSource::ConstantRate(4_000_000));
        assert_eq!(stripped.rate_mean_bps, 4_000_000);
    }

    #[test]
    fn reports_agree_with_what_was_encoded() {
        require_programs!("ffmpeg");
        let codecs = |source: Source| {
            let report = report(&source.make().unwrap());
            let seconds = report.duration_ns / 100_000_000;
            assert!(
                (38..=43).contains(&seconds),
                "{source:?}: {} ns",
                report.duration_ns
            );
            let streams = report.programs.iter().flat_map(|program| &program.streams);
            streams
                .map(|stream| stream.codec.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(codecs(Source::Cbr), ["H.264", "AAC (ADTS)"]);
        assert_eq!(codecs(Source::Vbr), ["H.264", "AAC (ADTS)"]);
        assert_eq!(codecs(Source::Mpeg2), ["MPEG-2 video", "MPEG-1 audio"]);
        assert_eq!(codecs(Source::M2ts), ["H.264", "AC-3"]);
        assert_eq!(codecs(Source::AudioOnly), ["MPEG-1 audio"]);
        assert_eq!(
            codecs(Source::TwoProgrammes),
            ["H.264", "MPEG-1 audio"].repeat(2)
        );
        let cbr = report(&Source::Cbr.make().unwrap());
        assert_eq!((cbr.seek.kind, cbr.seek.points), (SeekKind::Flagged, 4));
        assert!(
            cbr.rate_mean_bps.abs_diff(1_500_000) < 1000,
            "{}",
            cbr.rate_mean_bps
        );
        assert!(cbr.packets.nulls > 0);
        assert_eq!(cbr.programs[0].name.as_deref(), Some("Constant"));
        let sound = report(&Source::AudioOnly.make().unwrap());
        assert_eq!(sound.seek.kind, SeekKind::Sound);
        assert_eq!(sound.programs[0].streams[0].kind, Kind::Audio);
        assert_eq!(
            report(&Source::M2ts.make().unwrap()).packet_stride_bytes,
            192
        );
    }

    #[test]
    fn the_counting_film_counts() {
        require_programs!("ffmpeg");
        let film = counting_film(6).unwrap();
        let counted = report(&film);
        assert_eq!(
            (counted.seek.kind, counted.seek.points),
            (SeekKind::Flagged, 6)
        );
        let output = Command::new("ffmpeg")
            .args(["-nostdin", "-v", "error", "-i"])
            .arg(&film)
            .args(["-f", "rawvideo", "-pix_fmt", "gray", "-"])
            .output()
            .unwrap();
        let (width, height) = COUNTING_PICTURE;
        let shown = output.stdout.chunks(width * height).map(second_shown);
        let expected = (0..150).map(|frame| Some(frame / 25));
        assert!(shown.eq(expected));
        assert_eq!(second_shown(&[0; 7]), None);
    }

    #[test]
    fn files_are_made_once_even_by_many() {
        require_programs!("ffmpeg");
        let makers: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| Source::AudioOnly.make()))
            .collect();
        for maker in makers {
            assert!(maker.join().unwrap().unwrap().is_file());
        }
        let path = Source::AudioOnly.make().unwrap();
        let made = std::fs::metadata(&path).unwrap().modified().unwrap();
        Source::AudioOnly.make().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), made);
        let others = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(others, 1, "no temporary files are left");
    }
}
