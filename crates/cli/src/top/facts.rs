//! What is told in words: a name and a short text for each thing worth knowing.

use std::fmt::Write;

use onrush_server::admin::status::Status;

use super::rates::Rates;
use crate::units::Size;

/// A name and what is known of it.
pub(super) type Fact = (&'static str, String);

/// What is known, and what happened in the last interval.
pub(super) fn facts(status: &Status, rates: Option<&Rates>) -> Vec<Fact> {
    let mut facts = of_streams(status, rates).to_vec();
    facts.extend(of_machine(status, rates));
    facts
}

fn of_streams(status: &Status, rates: Option<&Rates>) -> [Fact; 8] {
    let of = |value: fn(&Rates) -> f64| rates.map(value);
    let sessions = &status.sessions;
    [
        (
            "sessions",
            format!(
                "{}, {} play, {}/s new",
                sessions.now,
                status.engines.iter().map(|e| e.playing).sum::<u64>(),
                shown(of(|r| r.sessions_a_second), 1)
            ),
        ),
        (
            "refused",
            format!(
                "{} in all, {}/s; {} shed",
                sessions.refused,
                shown(of(|r| r.refused_a_second), 1),
                status.engines.iter().map(|e| e.shed).sum::<u64>()
            ),
        ),
        (
            "packets",
            format!("{}/s", shown(of(|r| r.packets_a_second), 0)),
        ),
        (
            "rate",
            format!("{} Mbit/s", shown(of(|r| r.mbit_a_second), 1)),
        ),
        (
            "late",
            format!(
                "p50 {}, p99.9 {} ms",
                shown(rates.and_then(|r| r.late_p50_ms), 1),
                shown(rates.and_then(|r| r.late_p999_ms), 1)
            ),
        ),
        (
            "batch",
            format!(
                "{} bursts, {} % joined",
                shown(rates.and_then(|r| r.batch_bursts), 1),
                shown(rates.and_then(|r| r.joined).map(|part| part * 100.0), 0)
            ),
        ),
        (
            "crossing",
            format!(
                "{} packets, {}/s",
                shown(rates.and_then(|r| r.packets_a_crossing), 1),
                shown(of(|r| r.crossings_a_second), 0)
            ),
        ),
        (
            "trouble",
            format!(
                "{}/s lost, {}/s waits, {}/s lags",
                shown(of(|r| r.packets_refused_a_second), 0),
                shown(of(|r| r.underruns_a_second), 0),
                shown(of(|r| r.lags_a_second), 0)
            ),
        ),
    ]
}

fn of_machine(status: &Status, rates: Option<&Rates>) -> Vec<Fact> {
    let of = |value: fn(&Rates) -> f64| rates.map(value);
    let cache = status.cache.clone().unwrap_or_default();
    let mut facts = vec![
        (
            "CPU",
            format!(
                "{} %, engines {} %",
                shown(of(|r| r.process_cpu * 100.0), 1),
                shown(of(|r| r.engines_cpu * 100.0), 1)
            ),
        ),
        (
            "a stream",
            format!(
                "{} % of a processor",
                shown(rates.and_then(|r| r.stream_cpu).map(|cpu| cpu * 100.0), 4)
            ),
        ),
        ("promised", promised(status)),
        (
            "cache",
            format!(
                "{} of {} in use{}",
                Size(cache.chunks_in_use * cache.chunk_bytes),
                Size(cache.bytes),
                match cache.bytes_ready < cache.bytes {
                    true => format!(", {} ready", Size(cache.bytes_ready)),
                    false => String::new(),
                }
            ),
        ),
        (
            "hits",
            format!(
                "{} %, {} MB/s read",
                shown(rates.and_then(|r| r.cache_hits).map(|hits| hits * 100.0), 1),
                shown(of(|r| r.file_mbyte_a_second), 1)
            ),
        ),
        (
            "memory",
            format!(
                "{:.0} MiB, {:.0} MiB locked",
                mib(status.process.resident_bytes),
                mib(status.locked.pinned_bytes + status.locked.resident_bytes)
            ),
        ),
        (
            "files",
            format!("{} of {}", status.process.files, status.process.files_max),
        ),
    ];
    let interleaved: u64 = status.engines.iter().map(|it| it.connections).sum();
    let mut connected = format!("{} RTSP", status.sessions.connections);
    if interleaved > 0 {
        write!(connected, " ({interleaved} with packets)").expect("a string takes all");
    }
    if let Some(downloads) = &status.downloads {
        let rate = shown(of(|r| r.download_mbit_a_second), 1);
        let running = format!("{} run, {rate} Mbit/s", downloads.active);
        facts.push(("downloads", running));
        let (http, ftp) = (downloads.http_connections, downloads.ftp_connections);
        write!(connected, ", {http} HTTP, {ftp} FTP").expect("a string takes all");
    }
    facts.push(("connected", connected));
    facts
}

/// How busy the fullest engine will be with the streams that it has, of what it may, and what a
/// train costs it.
fn promised(status: &Status) -> String {
    let admissions = status.engines.iter().map(|engine| engine.admission);
    let fullest = admissions.max_by(|a, b| a.load_promised.total_cmp(&b.load_promised));
    let admission = fullest.unwrap_or_default();
    let most = admission.load_max.map(|most| most * 100.0);
    let late = if admission.is_late {
        ", late: closed"
    } else {
        ""
    };
    format!(
        "{:.1} of {} %, {} ns a train{late}",
        admission.load_promised * 100.0,
        shown(most, 0),
        admission.train_ns
    )
}

pub(super) fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
