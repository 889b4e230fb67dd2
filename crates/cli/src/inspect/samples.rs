//! What a file of samples holds, on one screen.

use std::io::Write;
use std::path::Path;

use onrush_wire::media::report::{FrameRate, Report, Sent, TrackReport};
use onrush_wire::media::{LeftOut, Medium};

use super::text::{count, shown, time, wrapped};
use crate::units::{Rate, Size};

/// Prints what a file of samples holds.
///
/// # Errors
///
/// If `out` does not take it.
pub(super) fn print(path: &Path, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let (size, duration) = (Size(report.file_bytes), time(report.duration_ns));
    let mean = Rate(report.rate_mean_bps);
    writeln!(out, "{}", path.display())?;
    writeln!(out, "  {}, {size}, {duration} at {mean}", report.format)?;
    print_tracks(
        (&report.tracks, &report.left_out),
        &|id| format!("track {id}"),
        out,
    )
}

/// Prints the tracks, which are called as `name` says, and those that are left out.
///
/// # Errors
///
/// If `out` does not take it.
pub(super) fn print_tracks(
    (tracks, left_out): (&[TrackReport], &[LeftOut]),
    name: &dyn Fn(u64) -> String,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    for track in tracks {
        writeln!(out)?;
        print_track(track, &name(track.id), out)?;
    }
    if !left_out.is_empty() {
        writeln!(out, "\nleft out")?;
    }
    for track in left_out.iter().take(LEFT_OUT_SHOWN) {
        let text = shown(&format!("{}: {}", track.what, track.reason), TEXT_CHARS_MAX);
        writeln!(
            out,
            "{}",
            wrapped(&format!("  {}  ", name(track.id)), &text)
        )?;
    }
    more(left_out.len(), LEFT_OUT_SHOWN, "  ", out)
}

fn print_track(track: &TrackReport, name: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let medium = match track.medium {
        Medium::Video => "video",
        Medium::Audio => "audio",
        Medium::Application => "data",
    };
    let codec = shown(&track.codec, NAME_CHARS_MAX);
    let head = format!("{name}  {medium}  {codec}  ");
    writeln!(out, "{}", wrapped(&head, &form(track)))?;
    let (duration, mean) = (time(track.duration_ns), Rate(track.rate_mean_bps));
    let start = match track.start_ns {
        0 => String::new(),
        ns => format!(", from {} on", time(ns)),
    };
    let peak = Rate(track.rate_peak_bps);
    let rates = format!("{duration}{start} at {mean}, {peak} in the busiest second");
    writeln!(out, "{}", wrapped(INDENT, &rates))?;
    let samples = count(track.samples as u64, "sample");
    let largest = Size(track.sample_bytes_max);
    let samples = format!("{samples}, {largest} at most; {}", sync(track));
    writeln!(out, "{}", wrapped(INDENT, &samples))?;
    let sent = match &track.sent {
        Some(sent) => sending(sent),
        None => "sent on no path of Ethernet frames: they are too narrow".to_owned(),
    };
    writeln!(out, "{}", wrapped(INDENT, &sent))?;
    for problem in track.problems.iter().take(PROBLEMS_SHOWN) {
        let problem = shown(problem, TEXT_CHARS_MAX);
        let head = format!("{INDENT}problem: ");
        writeln!(out, "{}", wrapped(&head, &problem))?;
    }
    more(track.problems.len(), PROBLEMS_SHOWN, INDENT, out)
}

/// What its pictures and sound are like, and what it is called.
fn form(track: &TrackReport) -> String {
    let size = track
        .dimensions
        .map(|(width, height)| format!("{width}x{height}"));
    let turned = match track.rotation_degrees {
        0 => None,
        degrees => Some(format!("turned by {degrees} degrees")),
    };
    let rate = track.sample_rate_hz.map(|hz| format!("{hz} Hz"));
    let channels = track.channels.map(|it| count(it.into(), "channel"));
    let language = track.language.as_deref().filter(|&it| it != "und");
    let language = language.map(|it| shown(it, NAME_CHARS_MAX));
    let name = track.name.as_deref().filter(|it| !it.is_empty());
    let name = name.map(|it| format!("\"{}\"", shown(it, NAME_CHARS_MAX)));
    let frames = track.frame_rate.as_ref().map(frame_rate);
    let all = [size, turned, frames, rate, channels, language, name];
    let all: Vec<_> = all.into_iter().flatten().collect();
    all.join(", ")
}

fn frame_rate(rate: &FrameRate) -> String {
    let mean = decimals(rate.mean);
    if rate.is_constant {
        return format!("{mean} frames/s");
    }
    let (least, most) = (time(rate.interval_min_ns), time(rate.interval_max_ns));
    format!("{mean} frames/s, variable (every {least} to {most})")
}

/// A number with two decimals, none of them an idle zero.
fn decimals(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn sync(track: &TrackReport) -> String {
    let sync = track.sync;
    if sync.samples == track.samples {
        return "each one to start at".to_owned();
    }
    let (mean, most) = (time(sync.distance_mean_ns), time(sync.distance_max_ns));
    format!("{} to start at, every {mean}, {most} at most", sync.samples)
}

fn sending(sent: &Sent) -> String {
    let packets = count(sent.rtp_packets, "RTP packet");
    let (sends, burst) = (count(sent.sends, "send"), time(sent.burst_ns));
    let (most, bytes) = (sent.burst_packets_max, Size(sent.burst_bytes_max));
    format!(
        "{}: {packets} in {sends}; in {burst} at most {most}, {bytes}",
        sent.encoding
    )
}

/// Says how many are not shown, if any.
fn more(all: usize, shown: usize, indent: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(more) = all.checked_sub(shown).filter(|&more| more > 0) {
        writeln!(out, "{indent}and {more} more; see --json")?;
    }
    Ok(())
}

const INDENT: &str = "         ";

/// What fits a screen.
const LEFT_OUT_SHOWN: usize = 8;
const PROBLEMS_SHOWN: usize = 4;
const NAME_CHARS_MAX: usize = 40;
const TEXT_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use onrush_wire::media::Scanner;

    use super::*;

    /// What is said of the demo, changed by `change`.
    fn said(change: impl FnOnce(&mut Report)) -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media/demo.mp4");
        let bytes = std::fs::read(path).unwrap();
        let mut scanner = Scanner::default();
        scanner.read(&bytes).unwrap();
        let index = scanner.finish().unwrap();
        let mut report = index.report(bytes.len() as u64, 20_000_000).unwrap();
        change(&mut report);
        let mut out = Vec::new();
        print(Path::new("demo.mp4"), &report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn people_get_one_screen() {
        let text = said(|_| {});
        for part in [
            "demo.mp4\n  MP4, 587.7KiB, 24s at 194.5kbit/s\n\ntrack 1  video  avc1.64001e  640x360",
            "\ntrack 2  audio  mp4a.40.2  48000 Hz, 2 channels, eng, \"SoundHandler\"\n",
            "\n         24s at 92.6kbit/s, ",
            "\n         H264/90000: ",
            "24 to start at, every 1s, 1s at most\n",
            "each one to start at\n",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 79), "{text}");
        assert!(text.lines().count() < 24, "{text}");
    }

    #[test]
    fn problems_and_tracks_left_out_are_told() {
        let text = said(|report| {
            let track = &mut report.tracks[0];
            track.rotation_degrees = 90;
            track.name = Some("a\x1b]0;b".to_owned());
            track.problems = (0..6).map(|it| format!("problem number {it}")).collect();
            report.left_out.push(LeftOut {
                id: 3,
                what: "subtitles (tx3g)".to_owned(),
                reason: "neither pictures nor sound".to_owned(),
            });
        });
        for part in [
            "turned by 90 degrees",
            "\"a]0;b\"",
            "\n         problem: problem number 3\n         and 2 more; see --json\n",
            "\nleft out\n  track 3  subtitles (tx3g): neither pictures nor sound\n",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
    }
}
