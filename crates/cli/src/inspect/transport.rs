//! What a transport stream holds, on one screen.

use std::io::Write;
use std::path::Path;

use onrush_wire::media::ts::report::{Bursts, ClockSource, Kind, Program, Report, SeekKind};

use super::Transport;
use super::samples;
use super::text::{count, percent, time, wrapped};
use crate::units::{Rate, Size};

/// Prints what a transport stream holds.
///
/// # Errors
///
/// If `out` does not take it.
pub(super) fn print(path: &Path, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
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

/// Prints what its streams are as tracks of their own.
///
/// # Errors
///
/// If `out` does not take it.
pub(super) fn print_tracks(report: &Transport, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(reason) = &report.no_tracks {
        writeln!(out, "{}", wrapped("tracks   ", reason))?;
        return Ok(());
    }
    writeln!(out, "\nas tracks of their own (?tracks=elementary)")?;
    let tracks = (&report.tracks[..], &report.left_out[..]);
    samples::print_tracks(tracks, &|pid| format!("0x{pid:04x}"), out)
}

/// What fits a screen.
const PROGRAMS_SHOWN: usize = 8;
const STREAMS_SHOWN: usize = 12;
