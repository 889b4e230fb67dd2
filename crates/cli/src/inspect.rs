//! `onrush inspect`: what a file holds, and how it would be sent.
//!
//! Reads of the file what the server does and prints the reports of [`onrush_wire::media`]: for
//! people on one screen, for programs as JSON with a schema version.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use onrush_server::config::Config;
use onrush_server::library::read_whole;
use onrush_wire::media::ts::{Packetisation, TS_PACKETS_PER_RTP_MAX};
use onrush_wire::media::{LeftOut, ScanOptions, Scanner, report, ts};
use serde::Serialize;

use crate::units::{Rate, Time, within};
use crate::values::{BURST_MAX, BURST_MIN, FALLBACK_BITRATE_MAX, FALLBACK_BITRATE_MIN};

mod samples;
mod text;
mod transport;

/// Print what a file holds
///
/// Reads of FILE what the server would, and prints what was understood. Of an MP4, MOV, Matroska or
/// WebM file: each track with its codec, size, rates and places to start at, the RTP packets that
/// it makes on Ethernet, what is not as it should be, and which tracks are left out and why. Of a
/// transport stream: programs, streams and codecs, duration, rate, the quality of its clock, seek
/// points, bursts, and what its streams are as tracks of their own. Ends with 2 if FILE cannot be
/// read or played.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// The file
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Length of a burst, 1ms to 1s
    #[arg(
        long,
        value_name = "TIME",
        default_value_t = Time(Config::default().burst),
        value_parser = within(Time(BURST_MIN), Time(BURST_MAX))
    )]
    burst: Time,

    /// Rate without clock
    #[arg(
        long,
        value_name = "RATE",
        default_value_t = Rate(Config::default().fallback_bitrate),
        value_parser = within(Rate(FALLBACK_BITRATE_MIN), Rate(FALLBACK_BITRATE_MAX))
    )]
    fallback_bitrate: Rate,
}

/// One kind of document, whose `format` says which fields it has.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Report {
    Transport(Box<Transport>),
    Samples(report::Report),
}

/// A transport stream, which is one track, and what its elementary streams are as tracks of their
/// own.
#[derive(Debug, Serialize)]
struct Transport {
    #[serde(flatten)]
    stream: ts::report::Report,
    tracks: Vec<report::TrackReport>,
    left_out: Vec<LeftOut>,
    /// Why there are no tracks.
    no_tracks: Option<String>,
}

/// Prints what the file holds to `out`.
///
/// # Errors
///
/// If it cannot be read or played, with what to do next; or if `out` does not take it.
pub(crate) fn run(arguments: &Inspect, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let report = read(arguments)?;
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &report {
        Report::Transport(report) => {
            transport::print(&arguments.file, &report.stream, out)?;
            transport::print_tracks(report, out)?;
        }
        Report::Samples(report) => samples::print(&arguments.file, report, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(arguments: &Inspect) -> anyhow::Result<Report> {
    let path = &arguments.file;
    let name = path.display();
    let file = File::open(path).map_err(|error| {
        let next = match error.kind() {
            ErrorKind::NotFound => "check the name",
            ErrorKind::PermissionDenied => {
                "you may not read it: chmod +r FILE, or run as its owner"
            }
            _ => "check the file",
        };
        anyhow::Error::from(error).context(format!("{name}: {next}"))
    })?;
    let metadata = file.metadata().with_context(|| name.to_string())?;
    if metadata.is_dir() {
        bail!("{name}: is a directory; name one of the files in it");
    }
    if !metadata.is_file() {
        bail!("{name}: is no regular file; what is in a pipe has to be kept in a file first");
    }
    let scanned = |is_elementary: bool| {
        let mut scanner = Scanner::new(ScanOptions {
            fallback_bitrate: arguments.fallback_bitrate.0,
            is_elementary,
        });
        let read = read_whole(&file, &mut scanner)
            .with_context(|| format!("{name}: reading failed; is the disk well?"))?;
        anyhow::Ok(read.and_then(|()| scanner.finish()))
    };
    let index = scanned(false)?.with_context(|| name.to_string())?;
    let burst_ns = arguments.burst.nanos();
    if let Some(report) = index.report(metadata.len(), burst_ns) {
        return Ok(Report::Samples(report));
    }
    let stream = index.as_ts().cloned();
    let stream = Arc::new(stream.with_context(|| format!("{name}: nothing is told of it"))?);
    let ts_packets_per_rtp = TS_PACKETS_PER_RTP_MAX;
    let (tracks, no_tracks) = match scanned(true)? {
        Ok(index) => (index.report(metadata.len(), burst_ns), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let (tracks, left_out) = tracks.map_or_else(Default::default, |it| (it.tracks, it.left_out));
    Ok(Report::Transport(Box::new(Transport {
        stream: stream.report(Packetisation {
            ts_packets_per_rtp,
            burst_ns,
        }),
        tracks,
        left_out,
        no_tracks,
    })))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::Duration;

    use onrush_wire::media::ts::synth;

    use super::*;

    fn of(file: &Path, json: bool) -> Inspect {
        Inspect {
            file: file.to_owned(),
            json,
            burst: Time(Duration::from_millis(20)),
            fallback_bitrate: Rate(4_000_000),
        }
    }

    /// What is said of a file of these bytes, or why it is refused.
    fn said(bytes: &[u8], json: bool) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film.ts");
        std::fs::write(&path, bytes).unwrap();
        let mut out = Vec::new();
        let inspected = run(&of(&path, json), &mut out);
        let plain = |text: String| text.replace(path.to_str().unwrap(), "film.ts");
        inspected.map_err(|error| plain(format!("{error:#}")))?;
        Ok(plain(String::from_utf8(out).unwrap()))
    }

    /// A packet a ms, with a service's name.
    fn film() -> Vec<u8> {
        let mut writer = synth::Writer::new();
        writer.sdt(1, b"Studio", b"Film");
        [writer.finish(), synth::constant_rate(5000, 0, 27_000)].concat()
    }

    #[test]
    fn people_get_one_screen() {
        let text = said(&film(), false).unwrap();
        let expected = "\
film.ts
  MPEG-TS, 918.1KiB, 5s at 1.5Mbit/s, 1.5Mbit/s in the busiest second

program 1: Film (Studio)
  0x0100  video      H.264                       87.9 %

clock    450 PCRs on pid 0x0100, every 11ms, 20ms at most
         off a constant rate by 0ns, 0ns at most; 0 jumps, 0 wraps
seeking  50 points, flagged in the stream; every 100ms, 101ms at most
packets  5001 on 4 pids, 9.9 % null
faults   none
bursts   250 of 20ms: 2.9 RTP packets each; at most 3 RTP packets, 3.8KiB
tracks   none of its streams can be played as a track: pid 0x0100, H.264:
         nothing was found in it that can be played
";
        assert_eq!(text, expected);
    }

    #[test]
    fn tracks_of_a_transport_stream_are_shown_as_of_others() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media/demo.ts");
        let bytes = std::fs::read(path).unwrap();
        let text = said(&bytes, false).unwrap();
        for part in [
            "\n\nas tracks of their own (?tracks=elementary)\n\n0x0100  video  avc1.",
            "  640x360, 25 frames/s",
            "\n0x0101  audio  mp4a.40.2  48000 Hz, ",
            "24 to start at, every 1s, 1s at most\n",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 79), "{text}");
        let json: serde_json::Value = serde_json::from_str(&said(&bytes, true).unwrap()).unwrap();
        assert_eq!(json["format"], "MPEG-TS");
        assert_eq!(json["tracks"][1]["codec"], "mp4a.40.2");
        assert_eq!(json["tracks"][0]["sync"]["samples"], 24);
        assert_eq!(json["no_tracks"], serde_json::Value::Null);
    }

    #[test]
    fn a_clock_that_is_not_believed_is_named() {
        let text = said(&synth::pictures(&[(5, 40); 250], 27), false).unwrap();
        let expected = "
         not believed: stream 0x0100 lasts 9.96ms by them, but 9.96s
         by its own times, by which it is sent
";
        assert!(text.contains(expected), "{text}");
        assert!(text.lines().all(|line| line.len() <= 79), "{text}");
        let json = said(&synth::pictures(&[(5, 40); 250], 27), true).unwrap();
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            report["clock"],
            serde_json::json!({ "stream-times": 0x100 })
        );
        assert_eq!(report["clock_doubt"]["stream_ns"], 9_960_000_000_u64);
    }

    #[test]
    fn faults_are_listed_and_no_line_is_too_long() {
        let film = film();
        let mut broken = [&[0; 7][..], &film[..188 * 1000], &[1], &film[188 * 1002..]].concat();
        broken.truncate(broken.len() - 1);
        synth::strip_clock(&mut broken[7..]);
        let text = said(&broken, false).unwrap();
        for line in [
            "faults   1 continuity error",
            "         1 sync loss",
            "         7 bytes before the first packet",
            "         1 byte between packets",
            "         187 bytes of a cut last packet",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 79), "{text}");
    }

    #[test]
    fn a_stream_without_clock_or_tables_says_so() {
        let mut writer = synth::Writer::new();
        (0..100).for_each(|_| writer.null());
        let text = said(&writer.finish(), false).unwrap();
        for part in [
            "no program tables",
            "clock    none usable: sent at 4Mbit/s",
            "start only",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
    }

    #[test]
    fn programs_get_json_with_a_version() {
        let json: serde_json::Value = serde_json::from_str(&said(&film(), true).unwrap()).unwrap();
        assert_eq!(json["schema_version"], 3);
        assert_eq!(json["format"], "MPEG-TS");
        assert_eq!(json["packets"]["total"], 5001);
        assert_eq!(json["clock"], "pcr");
        assert_eq!(json["pcr"]["count"], 450);
        assert_eq!(json["programs"][0]["streams"][0]["codec"], "H.264");
        assert_eq!(json["seek"]["kind"], "flagged");
    }

    #[test]
    fn what_cannot_be_inspected_is_refused_with_what_to_do() {
        assert_eq!(
            said(b"", false).unwrap_err(),
            "film.ts: the file is empty; is it still being copied?"
        );
        let text = said("no film at all ".repeat(500).as_bytes(), false).unwrap_err();
        assert!(
            text.starts_with("film.ts: no MP4, Matroska or MPEG transport stream")
                && text.contains("ffmpeg"),
            "{text}"
        );
        let folder = tempfile::tempdir().unwrap();
        let said =
            |path: &Path| format!("{:#}", run(&of(path, false), &mut Vec::new()).unwrap_err());
        let directory = said(folder.path());
        assert!(
            directory.ends_with("is a directory; name one of the files in it"),
            "{directory}"
        );
        let missing = said(&folder.path().join("none.ts"));
        assert!(
            missing.contains("none.ts: check the name: No such file"),
            "{missing}"
        );
    }

    #[test]
    fn an_unreadable_file_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.ts");
        std::fs::write(&path, film()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        match run(&of(&path, false), &mut Vec::new()) {
            // Root may read everything.
            Ok(_) => assert!(rustix::process::geteuid().is_root()),
            Err(error) => {
                let text = format!("{error:#}");
                assert!(
                    text.contains("chmod +r FILE") && text.contains("denied"),
                    "{text}"
                );
            }
        }
    }
}
