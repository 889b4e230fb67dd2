//! `onrush inspect`: what a file holds, and how it would be sent.
//!
//! Reads the whole file the way the server does and prints the report of [`onrush_wire::media`]:
//! for people on one screen, for programs as JSON with a schema version.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use onrush_server::config::Config;
use onrush_wire::media::ts::report::{Bursts, ClockSource, Kind, Program, Report, SeekKind};
use onrush_wire::media::ts::{Packetisation, ScanOptions, Scanner, TS_PACKETS_PER_RTP_MAX};

use crate::values::{BURST_MAX, BURST_MIN, FALLBACK_BITRATE_MAX, FALLBACK_BITRATE_MIN};
use onrush_cli::units::{Rate, Size, Time, within};

/// Print what a transport stream holds
///
/// Reads all of FILE as the server would, and prints what was understood: programs, streams and
/// codecs, duration, rate, the quality of its clock, seek points, bursts. Ends with 2 if FILE
/// cannot be read or is no transport stream.
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

/// Prints what the file holds to `out`.
///
/// # Errors
///
/// If it cannot be read or is no transport stream, with what to do next; or if `out` does not take
/// it.
pub(crate) fn run(arguments: &Inspect, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let report = read(arguments)?;
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&arguments.file, &report, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(arguments: &Inspect) -> anyhow::Result<Report> {
    let path = &arguments.file;
    let name = path.display();
    let mut file = File::open(path).map_err(|error| {
        let next = match error.kind() {
            ErrorKind::NotFound => "check the name",
            ErrorKind::PermissionDenied => {
                "you may not read it: chmod +r FILE, or run as its owner"
            }
            _ => "check the file",
        };
        anyhow::Error::from(error).context(format!("{name}: {next}"))
    })?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        bail!("{name}: is a directory; name one of the files in it");
    }
    let mut scanner = Scanner::new(ScanOptions {
        fallback_bitrate: arguments.fallback_bitrate.0,
    });
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.with_context(|| format!("{name}: reading failed; is the disk well?"))?,
        };
        scanner
            .push(&buffer[..read])
            .with_context(|| name.to_string())?;
    }
    let index = Arc::new(scanner.finish().with_context(|| name.to_string())?);
    let burst_ns = arguments.burst.nanos();
    let ts_packets_per_rtp = TS_PACKETS_PER_RTP_MAX;
    Ok(index.report(Packetisation {
        ts_packets_per_rtp,
        burst_ns,
    }))
}

fn print(path: &Path, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let kind = match report.packet_stride_bytes {
        192 => "M2TS",
        204 => "MPEG-TS in 204 bytes a packet",
        _ => "MPEG-TS",
    };
    let (size, duration) = (Size(report.file_bytes), time(report.duration_ns));
    let (mean, peak) = (Rate(report.rate_mean_bps), Rate(report.rate_peak_bps));
    writeln!(out, "{}", path.display())?;
    writeln!(
        out,
        "  {kind}, {size}, {duration} at {mean}, {peak} in the busiest second"
    )?;
    for program in report.programs.iter().take(PROGRAMS_SHOWN) {
        print_program(program, report.packets.total, out)?;
    }
    match report.programs.len() {
        0 => writeln!(
            out,
            "\nno program tables; players may not know what this is"
        )?,
        known if known > PROGRAMS_SHOWN => {
            writeln!(
                out,
                "\nand {} more programs; see --json",
                known - PROGRAMS_SHOWN
            )?;
        }
        _ => {}
    }
    writeln!(out)?;
    print_clock(report, out)?;
    print_seek(report, out)?;
    print_packets(report, out)?;
    print_bursts(&report.bursts, out)
}

fn print_program(program: &Program, total: u64, out: &mut dyn Write) -> anyhow::Result<()> {
    write!(out, "\nprogram {}", program.number)?;
    if let Some(name) = &program.name {
        write!(out, ": {name}")?;
    }
    if let Some(provider) = &program.provider {
        write!(out, " ({provider})")?;
    }
    writeln!(out)?;
    for stream in program.streams.iter().take(STREAMS_SHOWN) {
        let kind = match stream.kind {
            Kind::Video => "video",
            Kind::Audio => "audio",
            Kind::Subtitles => "subtitles",
            Kind::Data => "data",
        };
        let language = stream.language.as_deref().unwrap_or("");
        let share = percent(stream.packets, total);
        let (pid, codec) = (stream.pid, &stream.codec);
        writeln!(
            out,
            "  0x{pid:04x}  {kind:<9}  {codec:<20}  {language:<3}  {share:>7}"
        )?;
    }
    if let Some(more) = program
        .streams
        .len()
        .checked_sub(STREAMS_SHOWN)
        .filter(|n| *n > 0)
    {
        writeln!(out, "  and {more} more; see --json")?;
    }
    Ok(())
}

fn print_clock(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    if let ClockSource::ConstantRate(rate) = report.clock {
        let rate = Rate(rate);
        writeln!(
            out,
            "clock    none usable: sent at {rate}; --fallback-bitrate sets another"
        )?;
    }
    let Some(pcr) = &report.pcr else {
        return Ok(());
    };
    let quality = &pcr.quality;
    let (mean, max) = (
        time(quality.interval_mean_ns),
        time(quality.interval_max_ns),
    );
    writeln!(
        out,
        "clock    {} PCRs on pid 0x{:04x}, every {mean}, {max} at most",
        quality.count, pcr.pid
    )?;
    if let Some(doubt) = report.clock_doubt {
        let (clock, stream) = (time(doubt.clock_ns), time(doubt.stream_ns));
        writeln!(
            out,
            "         not believed: stream 0x{:04x} lasts {clock} by them, but {stream}\n         \
             by its own times, by which it is sent",
            doubt.pid
        )?;
    }
    let (mean, max) = (time(quality.jitter_mean_ns), time(quality.jitter_max_ns));
    let (jumps, wraps) = (
        count(quality.discontinuities, "jump"),
        count(quality.wraps, "wrap"),
    );
    writeln!(
        out,
        "         off a constant rate by {mean}, {max} at most; {jumps}, {wraps}"
    )?;
    Ok(())
}

fn print_seek(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let seek = &report.seek;
    let how = match seek.kind {
        SeekKind::Flagged => "flagged in the stream",
        SeekKind::Pictures => "found at whole pictures",
        SeekKind::Sound => "sound starts anywhere",
        _ => {
            return Ok(writeln!(
                out,
                "seeking  to the start only: no picture to start at was found"
            )?);
        }
    };
    let (mean, max) = (time(seek.distance_mean_ns), time(seek.distance_max_ns));
    let points = count(seek.points as u64, "point");
    Ok(writeln!(
        out,
        "seeking  {points}, {how}; every {mean}, {max} at most"
    )?)
}

fn print_packets(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let packets = &report.packets;
    let nulls = percent(packets.nulls, packets.total);
    writeln!(
        out,
        "packets  {} on {}, {nulls} null",
        packets.total,
        count(packets.pids as u64, "pid")
    )?;
    let faults: Vec<String> = [
        (packets.continuity_errors, "continuity error"),
        (packets.transport_errors, "damaged packet"),
        (packets.scrambled, "scrambled packet"),
        (packets.sync_losses, "sync loss"),
        (packets.leading_bytes, "byte before the first packet"),
        (packets.garbage_bytes, "byte between packets"),
        (packets.trailing_bytes, "byte of a cut last packet"),
    ]
    .into_iter()
    .filter(|(found, _)| *found > 0)
    .map(|(found, what)| count(found, what))
    .collect();
    match faults.as_slice() {
        [] => writeln!(out, "faults   none")?,
        [first, others @ ..] => {
            writeln!(out, "faults   {first}")?;
            others
                .iter()
                .try_for_each(|fault| writeln!(out, "         {fault}"))?;
        }
    }
    Ok(())
}

fn print_bursts(bursts: &Bursts, out: &mut dyn Write) -> anyhow::Result<()> {
    let (mean, length) = (bursts.packets_mean, time(bursts.burst_ns));
    let (bursts_all, max) = (
        bursts.count,
        count(u64::from(bursts.packets_max), "RTP packet"),
    );
    let bytes = Size(bursts.bytes_max);
    writeln!(
        out,
        "bursts   {bursts_all} of {length}: {mean:.1} RTP packets each; at most {max}, {bytes}"
    )?;
    Ok(())
}

/// A number with its noun, in the plural where it wants it.
fn count(number: u64, noun: &str) -> String {
    let (first, rest) = noun.split_once(' ').unwrap_or((noun, ""));
    let is_byte = first == "byte" && !rest.is_empty();
    let plural = match number {
        1 => noun.to_owned(),
        _ if is_byte => format!("bytes {rest}"),
        _ if noun.ends_with("ss") => format!("{noun}es"),
        _ => format!("{noun}s"),
    };
    format!("{number} {plural}")
}

fn percent(part: u64, whole: u64) -> String {
    let thousandths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

/// A time with three digits or so.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", digits(ns, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", digits(ns, 1_000_000)),
        1_000_000_000..60_000_000_000 => format!("{}s", digits(ns, 1_000_000_000)),
        _ => humantime::format_duration(Duration::from_secs(ns / 1_000_000_000))
            .to_string()
            .replace(' ', ""),
    }
}

/// `ns` in units of `unit`: with as many decimals as make three digits, none of them an idle zero.
fn digits(ns: u64, unit: u64) -> String {
    let hundredths = ns * 100 / unit;
    let text = match hundredths {
        0..1_000 => format!("{}.{:02}", hundredths / 100, hundredths % 100),
        1_000..10_000 => format!("{}.{}", hundredths / 100, hundredths / 10 % 10),
        _ => return format!("{}", hundredths / 100),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// How much is read at once.
const READ_BYTES: usize = 1 << 20;

/// What fits a screen.
const PROGRAMS_SHOWN: usize = 8;
const STREAMS_SHOWN: usize = 12;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
";
        assert_eq!(text, expected);
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
        assert_eq!(json["schema_version"], 2);
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

    #[test]
    fn times_and_counts_read_well() {
        for (ns, text) in [
            (0, "0ns"),
            (37, "37ns"),
            (1_500, "1.5us"),
            (19_605_074, "19.6ms"),
            (20_000_000, "20ms"),
            (100_000_000, "100ms"),
            (924_000_000, "924ms"),
            (1_012_492_795, "1.01s"),
            (59_999_999_999, "59.9s"),
            (5_025_000_000_000, "1h23m45s"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!(count(1, "sync loss"), "1 sync loss");
        assert_eq!(count(2, "sync loss"), "2 sync losses");
        assert_eq!(count(2, "byte between packets"), "2 bytes between packets");
        assert_eq!(percent(1, 3), "33.3 %");
    }
}
