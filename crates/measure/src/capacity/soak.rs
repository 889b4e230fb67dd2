//! A long day in a short time: viewers arrive, jump, pause and leave at random, and files come and go.
//!
//! The server runs in the testbed of the capacity experiment, below its limit. Asked is what only time shows:
//! whether its memory grows, whether it gets later, and whether every packet that it says it has sent was counted
//! at the other end.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use onrush_server::engine::phase::Phase;
use onrush_sys::thread::pin_to;
use onrush_testkit::testbed::{Mode, RCV_DEVICE};
use serde::{Deserialize, Serialize};

use super::files::{FileSet, Films};
use super::{
    Candidate, CapacityError, LOOK_EVERY, RAMP_NS_PER_CLIENT, STOP_TIME_MAX, Search, system,
};
use crate::experiment::{Environment, Record};
use crate::load::report::Report as LoadReport;
use crate::load::{self, Behaviour, Receive, Slice};

/// Its name on the command line and in files.
pub const NAME: &str = "soak";

/// Of the films, so many are replaced by new ones while they are watched, the least popular.
const FILMS_REPLACED: u32 = 4;

/// How often one of them is.
const REPLACED_EVERY: Duration = Duration::from_secs(3);

/// What ends the viewers of a film that is replaced; they come again.
const EXPECTED_FAILURES: [&str; 4] = ["404", "410", "454", "closed the connection"];

/// The last quarter of the slices may need so much more memory than the second.
const MEMORY_GROWTH_MAX: f64 = 1.02;

/// And 999 packets in 1000 may be so much later in it, in ns.
const LATENESS_GROWTH_NS_MAX: i64 = 5_000_000;

/// What is measured.
pub type SoakRecord = Record<Settings, Run>;

/// How the soak is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Viewers at once.
    pub clients: u32,
    /// How long, once all have come.
    pub time_ns: u64,
    /// What they do.
    pub behaviour: Behaviour,
    /// Films, by Zipf's law.
    pub files: u32,
    /// Rate of each stream, in bit/s.
    pub rate_bps: u64,
    /// Length of a burst.
    pub burst_ns: u64,
    /// How long a slice is that is looked at alone.
    pub slice_ns: u64,
    /// A packet later than this is late; of 1000 one may be.
    pub lateness_ns_max: i64,
    /// What choices are drawn from.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// By the viewers, without the streams one by one.
    pub load: load::Run,
    /// Packets that the server says it has sent.
    pub packets_sent: Option<u64>,
    /// Films that were replaced.
    pub films_replaced: u32,
}

/// Carries it out. `onrush` is the program to measure.
///
/// # Errors
///
/// If it could not be carried out; see [`CapacityError::needs_root`].
pub fn carry_out(
    settings: &Settings,
    onrush: &Path,
    version: &str,
    command: &str,
    progress: impl Fn(load::Progress) + Send + 'static,
) -> Result<SoakRecord, CapacityError> {
    let environment = Environment::here(version, command);
    let cores = environment.cores.clone();
    let [rest, .., core] = *cores.as_slice() else {
        return Err(CapacityError::Cores { cores });
    };
    let capacity = settings.capacity();
    capacity.check()?;
    let mut record = Record::new(NAME, environment, settings.clone());
    // On a thread of its own: it is pinned, and moves between namespaces.
    let run = thread::scope(|scope| {
        let soak = scope.spawn(|| {
            pin_to(rest).map_err(system("pin the experiment to a processor"))?;
            let films = Films::make(&capacity).map_err(system("write the films"))?;
            let search = Search {
                settings: &capacity,
                onrush,
                films,
                testbed: super::testbed()?,
                core,
                progress: |_| {},
                runs: &mut Vec::new(),
            };
            soak(settings, &search, progress)
        });
        soak.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    record.runs.push(run);
    Ok(record)
}

fn soak<P: FnMut(super::Progress)>(
    settings: &Settings,
    search: &Search<'_, P>,
    progress: impl Fn(load::Progress) + 'static,
) -> Result<Run, CapacityError> {
    let (mut server, urls) = search.start(&Candidate {
        name: "onrush".to_owned(),
        mode: Mode::Uso,
        burst_ns: settings.burst_ns,
        phase: Phase::default(),
        peer: None,
    })?;
    let load = settings.load(urls, server.id());
    let is_over = AtomicBool::new(false);
    let replaced = AtomicU32::new(0);
    let films = &search.films;
    let seen = thread::scope(|scope| {
        scope.spawn(|| replace_films(films, &is_over, &replaced));
        let seen = search.testbed.rcv.run(|| load::run(&load, progress));
        is_over.store(true, Ordering::Relaxed);
        seen
    });
    drop(server.interrupt(STOP_TIME_MAX));
    let mut seen = seen?;
    seen.streams.clear();
    // By the hundred thousand.
    seen.start_up_ns.clear();
    Ok(Run {
        packets_sent: packets_sent(&server.log()),
        films_replaced: replaced.load(Ordering::Relaxed),
        load: seen,
    })
}

/// Puts new films in the place of old ones, one after the other, until it is over. A film that can not be replaced
/// is one replaced less.
fn replace_films(films: &Films, is_over: &AtomicBool, replaced: &AtomicU32) {
    let names: Vec<_> = films.names().collect();
    let last = names.len().saturating_sub(FILMS_REPLACED as usize);
    for name in names[last..].iter().cycle() {
        for _ in 0..REPLACED_EVERY.as_millis() / 100 {
            thread::sleep(Duration::from_millis(100));
            if is_over.load(Ordering::Relaxed) {
                return;
            }
        }
        let (film, new) = (films.folder().join(name), films.folder().join("new.part"));
        let made = fs::copy(&film, &new).and_then(|_| {
            // For a moment it is not there at all.
            fs::remove_file(&film)?;
            thread::sleep(Duration::from_millis(20));
            fs::rename(&new, &film)
        });
        replaced.fetch_add(u32::from(made.is_ok()), Ordering::Relaxed);
    }
}

/// The number in the server's last words: `sessions served: 7; 1234 packets in ...`.
fn packets_sent(log: &str) -> Option<u64> {
    let line = log
        .lines()
        .rfind(|line| line.contains("sessions served: "))?;
    let (before, _) = line.split_once(" packets in ")?;
    before.rsplit(' ').next()?.parse().ok()
}

impl Run {
    /// What was not as `settings` want it: what is lost, late or refused, and what only time shows.
    #[must_use]
    pub fn missed(&self, settings: &Settings) -> Vec<String> {
        let mut missed = LoadReport::of(&settings.load(Vec::new(), 0), &self.load).missed;
        let is_excused = |reason: &str| EXPECTED_FAILURES.iter().any(|part| reason.contains(part));
        let failures = self.load.failures.iter().map(|(reason, _)| reason);
        let excused: Vec<_> = failures.filter(|reason| is_excused(reason)).collect();
        missed.retain(|missed| !excused.iter().any(|reason| missed.ends_with(*reason)));
        if self.packets_sent != self.load.packets_sunk {
            missed.push(format!(
                "sent {:?} packets, sunk {:?}",
                self.packets_sent, self.load.packets_sunk
            ));
        }
        let [_, second, _, last] = quarters(&self.load.slices);
        let (before, after) = (memory(second), memory(last));
        if after > before * MEMORY_GROWTH_MAX {
            missed.push(format!("memory grew from {before:.0} to {after:.0} bytes"));
        }
        let (before, after) = (lateness_ns(second), lateness_ns(last));
        if after > before + LATENESS_GROWTH_NS_MAX {
            missed.push(format!(
                "packets got later: p99.9 from {before} to {after} ns"
            ));
        }
        missed
    }
}

/// The slices in four parts of the same length.
fn quarters(slices: &[Slice]) -> [&[Slice]; 4] {
    let quarter = slices.len() / 4;
    [0, 1, 2, 3].map(|i| &slices[i * quarter..(i + 1) * quarter])
}

/// The mean of what the server held.
#[allow(clippy::cast_precision_loss, reason = "a mean of sizes")]
fn memory(slices: &[Slice]) -> f64 {
    let held = slices.iter().filter_map(|slice| slice.server);
    let bytes: Vec<_> = held.map(|usage| usage.memory_bytes as f64).collect();
    bytes.iter().sum::<f64>() / bytes.len().max(1) as f64
}

/// The median of the slices' latenesses of 999 packets in 1000.
fn lateness_ns(slices: &[Slice]) -> i64 {
    let late = slices.iter().map(|slice| slice.lateness.quantile_ns(0.999));
    let mut late: Vec<_> = late.map(|ns| ns.unwrap_or(0)).collect();
    late.sort_unstable();
    late.get(late.len() / 2).copied().unwrap_or(0)
}

impl Settings {
    /// Those of the capacity experiment that the server and its films are made by.
    fn capacity(&self) -> super::Settings {
        super::Settings {
            rate_bps: self.rate_bps,
            bursts_ns: vec![self.burst_ns],
            files: FileSet::Zipf { files: self.files },
            // All of them: disks are another experiment's.
            cache_bytes: Some(4 << 30),
            modes: vec![Mode::Uso],
            clients_first: self.clients,
            clients_max: self.clients,
            time_ns: self.time_ns,
            lateness_ns_max: self.lateness_ns_max,
            seed: self.seed,
            ..super::Settings::default()
        }
    }

    fn load(&self, urls: Vec<String>, server: u32) -> load::Settings {
        load::Settings {
            ramp_ns: u64::from(self.clients) * RAMP_NS_PER_CLIENT,
            time_ns: self.time_ns,
            behaviour: self.behaviour,
            receive: Receive::Sink {
                device: RCV_DEVICE.to_owned(),
                look_every: LOOK_EVERY,
            },
            lateness_ns_max: self.lateness_ns_max,
            pid: Some(server),
            seed: self.seed,
            slice_ns: self.slice_ns,
            ..load::Settings::new(urls, self.clients)
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clients: 10_000,
            time_ns: 1_200_000_000_000,
            behaviour: Behaviour {
                seek_every_ns: 30_000_000_000,
                pause_every_ns: 120_000_000_000,
                stay_ns: 60_000_000_000,
            },
            files: 50,
            rate_bps: 4_000_000,
            burst_ns: 20_000_000,
            slice_ns: 10_000_000_000,
            lateness_ns_max: 20_000_000,
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Usage;

    #[test]
    fn the_last_words_tell_how_much_was_sent() {
        let log = "x\n2026 INFO onrush_server::rtsp: sessions served: 7; 1234 packets in 9 trains, 9 of them\ny\n";
        assert_eq!(packets_sent(log), Some(1234));
        assert_eq!(packets_sent("sessions served: 7; none"), None);
        assert_eq!(packets_sent(""), None);
    }

    fn slice(memory_bytes: u64, late_ns: i64) -> Slice {
        let mut slice = Slice {
            end_ns: 0,
            packets: 1,
            lateness: crate::histogram::Histogram::default(),
            server: Some(Usage {
                cpu_ns: 0,
                memory_bytes,
            }),
        };
        slice.lateness.count(late_ns, 1);
        slice
    }

    #[test]
    fn a_trend_is_missed_and_steadiness_is_not() {
        let steady: Vec<_> = (0..8).map(|_| slice(1000, 1_000_000)).collect();
        let growing: Vec<_> = (0..8).map(|i| slice(1000 + i * 10, 1_000_000)).collect();
        let later: Vec<_> = (0..8).map(|i| slice(1000, i * 2_000_000)).collect();
        for (slices, words) in [
            (steady, None),
            (growing, Some("memory")),
            (later, Some("later")),
        ] {
            let mut run = Run {
                load: load::Run {
                    slices,
                    packets_sunk: Some(5),
                    watching: 10,
                    packets_steady: 5,
                    failures: vec![("PAUSE was answered 454".to_owned(), 3)],
                    ..load::Run::default()
                },
                packets_sent: Some(5),
                films_replaced: 0,
            };
            let settings = Settings {
                clients: 10,
                ..Settings::default()
            };
            let missed = |run: &Run| run.missed(&settings).join(";");
            match words {
                None => assert_eq!(missed(&run), ""),
                Some(words) => assert!(missed(&run).contains(words), "{}", missed(&run)),
            }
            run.packets_sent = Some(6);
            assert!(missed(&run).contains("sunk"));
        }
    }
}
