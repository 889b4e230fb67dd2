//! Films that experiments stream: H.264 and AAC at a mean rate, in the containers that people have.
//!
//! `ffmpeg` encodes each once; all containers hold the same samples. The picture moves and has
//! noise, so that a sync sample, one every two seconds, is about seven times as large as another
//! picture. Without pictures that are shown in another order than they are sent: an RTP timestamp
//! then tells when its packet is due.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::media::{MakeError, keep_written, place};

/// What a film is kept in.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Container {
    /// ISO/IEC 14496-12, `.mp4`.
    Mp4,
    /// `.mkv`.
    Matroska,
    /// ISO/IEC 13818-1, `.ts`, at the rate that it needs.
    TransportStream,
}

/// Bits a second of its sound.
const SOUND_BPS: u64 = 128_000;

/// Pictures from one sync sample to the next, of 25 a second.
const SYNC_EVERY: u32 = 50;

/// A film of so many seconds, whose samples have `rate_bps` on average: 25 pictures a second and
/// sound of 128 kbit/s at 48 kHz.
///
/// # Errors
///
/// If `ffmpeg` is not there or fails.
pub fn film(container: Container, rate_bps: u64, seconds: u64) -> Result<PathBuf, MakeError> {
    let picture_bps = rate_bps.saturating_sub(SOUND_BPS);
    let (peak_bps, buffer_bits) = (picture_bps + picture_bps / 8, picture_bps);
    let encode = format!(
        "-nostdin -v error -y -f lavfi -i \
         testsrc2=size=1280x720:rate=25,noise=alls=12:allf=t -f lavfi -i \
         sine=frequency=440:sample_rate=48000 -t {seconds} -map 0 -map 1 -map_metadata -1 \
         -bitexact -c:v libx264 -preset ultrafast -pix_fmt yuv420p -g {SYNC_EVERY} \
         -keyint_min {SYNC_EVERY} -sc_threshold 0 -bf 0 -b:v {picture_bps} \
         -maxrate {peak_bps} -bufsize {buffer_bits} \
         -c:a aac -b:a {SOUND_BPS} -threads 1 -f mp4"
    );
    let mp4 = made("film.mp4", &encode, None)?;
    match container {
        Container::Mp4 => Ok(mp4),
        Container::Matroska => made("film.mkv", &encode, Some((&mp4, "matroska"))),
        Container::TransportStream => made("film.ts", &encode, Some((&mp4, "mpegts"))),
    }
}

/// What `ffmpeg` makes with these arguments; of another film, by copying its samples into a format.
fn made(name: &str, encode: &str, copied: Option<(&Path, &str)>) -> Result<PathBuf, MakeError> {
    let path = place(name, &encode);
    if path.exists() {
        return Ok(path);
    }
    let write = |out: &Path| {
        let mut command = Command::new("ffmpeg");
        match copied {
            None => command.args(encode.split_whitespace()),
            Some((film, format)) => command
                .args(["-nostdin", "-v", "error", "-y", "-i"])
                .args([film.as_os_str(), OsStr::new("-c"), OsStr::new("copy")])
                .args(["-bitexact", "-f", format]),
        };
        let output = command.arg(out).stdin(Stdio::null()).output();
        let output = output.map_err(|source| MakeError::Missing { source })?;
        match output.status.success() {
            true => Ok(()),
            false => Err(MakeError::Encode {
                file: name.to_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            }),
        }
    };
    keep_written(&path, write)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::require_programs;
    use onrush_wire::media::{ScanOptions, Scanner};

    #[test]
    fn containers_hold_the_same_samples_at_the_rate_asked_for() {
        require_programs!("ffmpeg");
        let mut seen = Vec::new();
        for container in [Container::Mp4, Container::Matroska] {
            let bytes = std::fs::read(film(container, 1_000_000, 6).unwrap()).unwrap();
            let off = bytes.len().abs_diff(6 * 125_000);
            assert!(off < 6 * 12_500, "{container:?}: {} bytes", bytes.len());
            let mut scanner = Scanner::new(ScanOptions::default());
            scanner.read(&bytes).unwrap();
            let index = scanner.finish().unwrap();
            let plans = [0, 1].map(|track| {
                let cut = index.cut(track, 1460).unwrap();
                let plan = index.plan(track, cut, 20_000_000, false);
                (plan.rtp_packets(), plan.images_bytes(0..plan.rtp_packets()))
            });
            assert_eq!(index.tracks().len(), 2);
            seen.push(plans);
        }
        let [[mp4, mp4_sound], [mkv, mkv_sound]] = seen[..] else {
            panic!("{seen:?}");
        };
        assert_eq!(mp4, mkv);
        // Times in whole milliseconds may put a frame of sound into the packet before.
        assert!(mp4_sound.0.abs_diff(mkv_sound.0) <= 2, "{seen:?}");
    }
}
