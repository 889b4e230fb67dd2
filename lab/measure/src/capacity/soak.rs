//! A long day in a short time: viewers arrive, jump, pause and leave at random, and files come and
//! go.
//!
//! The server runs in the testbed of the capacity experiment, below its limit. Asked is what only
//! time shows: whether its memory grows, whether viewers come to need deeper buffers, and whether
//! every packet that it says it has sent was counted at the other end.
//!
//! Judged is what each visit would have had to buffer, all its jumps and pauses included. How late
//! packets are against the first of their track is told beside it, and judged in records from
//! before: after a jump that first packet may itself be early.

use std::fs;
use std::mem;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use onrush_testkit::media::age;
use onrush_testkit::testbed::{Mode, RCV_DEVICE};
use serde::{Deserialize, Serialize};

use super::files::{FileSet, Films};
use super::host::Host;
use super::search::{Candidate, STOP_TIME_MAX, Search, testbed};
use super::{settings, status};
use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::film_kind::{FilmKind, transport_stream_alone};
use crate::load::report::Figures;
use crate::load::{self, Behaviour, Receive, Slice};
use crate::setup::{on_core, system, two_cores};
use crate::stats::ratio;
use crate::table::Verdict;
use crate::trend::Trend;

/// Its name on the command line and in files.
pub const NAME: &str = "soak";

/// Of the films, so many are replaced by new ones while they are watched, the least popular.
const FILMS_REPLACED: u32 = 4;

/// How often one of them is.
const REPLACED_EVERY: Duration = Duration::from_secs(3);

/// What ends the viewers of a film that is replaced; they come again.
const EXPECTED_FAILURES: [&str; 4] = ["404", "410", "454", "closed the connection"];

/// Where viewers have their ports from, of whom each may watch two tracks: nobody else is in their
/// namespace.
const PORT_FIRST: u16 = 1024;

/// How long a film is away before there is one of its name again.
const AWAY: Duration = Duration::from_secs(1);

/// Of the slices, the first third is left out of trends: buffers, tables and the allocator's lists
/// find their sizes.
const WARM_UP_PARTS: usize = 3;

/// Bytes that memory may grow by for each visit. Whoever forgets a session, a connection or a film
/// forgets more.
const GROWTH_BYTES_PER_VISIT_MAX: f64 = 64.0;

/// And 999 packets in 1000 may be so much later in the end, in ns.
const LATENESS_GROWTH_NS_MAX: f64 = 5_000_000.0;

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
    /// What films are kept in, in turn.
    #[serde(default = "transport_stream_alone")]
    pub media: Vec<FilmKind>,
    /// Rate of each stream, in bit/s.
    pub rate_bps: u64,
    /// Length of a burst.
    pub burst_ns: u64,
    /// How long a slice is that is looked at alone.
    pub slice_ns: u64,
    /// So much of a viewer's buffer is for what is late; in records from before, a packet later
    /// than this is late, and of 1000 one may be.
    pub lateness_ns_max: i64,
    /// What choices are drawn from.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// By the viewers, without the streams one by one, and without start-up and who waited for it.
    pub load: load::Run,
    /// How long viewers waited for their first packets.
    #[serde(default)]
    pub start_up: Option<StartUp>,
    /// Packets that the server says it has sent.
    pub packets_sent: Option<u64>,
    /// Of its bursts, the part that left with the one before because it was behind.
    #[serde(default)]
    pub joined: Option<f64>,
    /// Films that were removed while they were watched.
    #[serde(default)]
    pub films_removed: u32,
    /// Films that were put in their places.
    pub films_replaced: u32,
}

/// How long viewers waited for their first packets: hundreds of thousands of them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct StartUp {
    /// Visits that saw a first packet.
    pub visits: u64,
    /// Of those, the ones that waited longer than they may.
    pub slow: u64,
    /// Viewers that had waited for longer than they may when all was over, and saw none.
    pub unserved: u64,
    /// So long, in ns, waited half of the visits, 99 of 100, and the slowest.
    pub waited_ns: Option<[u64; 3]>,
}

/// What only time shows, from the slices after warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trends {
    /// When warm-up was over.
    pub from_ns: u64,
    /// How long after that was looked at.
    pub time_ns: u64,
    /// Visits in that time.
    pub visits: u64,
    /// Memory beside the arena in the end: what is resident of the rest, and page tables.
    pub memory_bytes: f64,
    /// By how much it grew, in bytes a second.
    pub memory: Trend,
    /// The median of the slices' latenesses of 999 packets in 1000, in ns.
    pub late_ns: f64,
    /// By how much that grew, in ns a second.
    pub lateness: Trend,
    /// What 99 viewers in 100 had enough with, where that was followed in every slice.
    pub needed: Option<NeededTrend>,
}

/// What 99 viewers in 100 had enough with, in the slices that their visits ended in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NeededTrend {
    /// The median of the slices, in ns.
    pub median_ns: f64,
    /// By how much it grew, in ns a second.
    pub trend: Trend,
}

/// Carries it out. `onrush` is the program to measure.
///
/// # Errors
///
/// If it could not be carried out; see [`ExperimentError::needs_root`].
pub fn run(
    settings: &Settings,
    onrush: &Path,
    version: &str,
    command: &str,
    progress: impl Fn(load::Progress) + Send + 'static,
) -> Result<SoakRecord, ExperimentError> {
    let (rest, core) = two_cores("the server")?;
    let environment = Environment::here(version, command);
    let capacity = settings.capacity();
    capacity.check()?;
    let mut record = Record::new(NAME, environment, settings.clone());
    let run = on_core(rest, || {
        let films = Films::make(capacity.files, capacity.rate_bps, &settings.media)
            .map_err(system("write the films"))?;
        let search = Search {
            settings: &capacity,
            onrush,
            films: vec![films],
            testbed: testbed()?,
            core,
            progress: |_: &str| {},
            runs: &mut Vec::new(),
        };
        soak(settings, &search, progress)
    })?;
    record.runs.push(run);
    Ok(record)
}

fn soak<P: FnMut(&str)>(
    settings: &Settings,
    search: &Search<'_, P>,
    progress: impl Fn(load::Progress) + 'static,
) -> Result<Run, ExperimentError> {
    let (mut server, urls) = search.start(&Candidate {
        media: settings.media.first().copied().unwrap_or_default(),
        ..Candidate::onrush(Mode::Uso, settings.burst_ns)
    })?;
    let load = load::Settings {
        core: Some(search.core),
        ..settings.load(urls, server.id())
    };
    let is_over = AtomicBool::new(false);
    let films = &search.films[0];
    let (seen, (films_removed, films_replaced)) = thread::scope(|scope| {
        let replacing = scope.spawn(|| replace_films(films, &is_over));
        let seen = search
            .testbed
            .rcv
            .run(|| load::run_unrecorded(&load, progress));
        is_over.store(true, Ordering::Relaxed);
        let replaced = replacing.join();
        (
            seen,
            replaced.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    drop(server.interrupt(STOP_TIME_MAX));
    let mut seen = seen?;
    seen.streams.clear();
    let start_up = StartUp::take_from(&mut seen, load.start_up_ns_max);
    let counted = status::read(&films.status());
    Ok(Run {
        packets_sent: counted.as_ref().map(|counted| counted.packets),
        joined: counted.as_ref().map(status::joined),
        films_removed,
        films_replaced,
        start_up: Some(start_up),
        load: seen,
    })
}

/// Removes films and puts new ones in their places, one after the other, until it is over. How many
/// were removed, and how many put there.
fn replace_films(films: &Films, is_over: &AtomicBool) -> (u32, u32) {
    let names: Vec<_> = films.names().collect();
    let last = names.len().saturating_sub(FILMS_REPLACED as usize);
    let is_over_within = |time: Duration| {
        (0..time.as_millis() / 100).any(|_| {
            thread::sleep(Duration::from_millis(100));
            is_over.load(Ordering::Relaxed)
        })
    };
    let (mut removed, mut added) = (0, 0);
    for name in names[last..].iter().cycle() {
        if is_over_within(REPLACED_EVERY - AWAY) {
            break;
        }
        let (film, new) = (films.folder().join(name), films.folder().join("new.part"));
        // One that cannot be removed is one less.
        if fs::copy(&film, &new)
            .and_then(|_| age(&new))
            .and_then(|()| fs::remove_file(&film))
            .is_err()
        {
            continue;
        }
        removed += 1;
        let is_over = is_over_within(AWAY);
        added += u32::from(fs::rename(&new, &film).is_ok());
        if is_over {
            break;
        }
    }
    (removed, added)
}

impl StartUp {
    /// Takes what `seen` has of it, where viewers may wait for so long.
    fn take_from(seen: &mut load::Run, ns_max: u64) -> Self {
        let mut waited_ns = mem::take(&mut seen.start_up_ns);
        waited_ns.sort_unstable();
        let last = waited_ns.len().checked_sub(1);
        Self {
            visits: waited_ns.len() as u64,
            slow: waited_ns.iter().filter(|&&ns| ns > ns_max).count() as u64,
            unserved: mem::take(&mut seen.unserved),
            waited_ns: last.map(|last| [last / 2, last * 99 / 100, last].map(|at| waited_ns[at])),
        }
    }

    /// What is wrong with it: one visit of 1000 may be slow.
    fn missed(&self, ns_max: u64) -> Option<String> {
        let (late, all) = (self.slow + self.unserved, self.visits + self.unserved);
        let seconds = ns_max / 1_000_000_000;
        (late * 1000 > all).then(|| {
            format!(
                "{late} of {all} visits waited more than {seconds} s for a first packet, {} of \
                 them to the end",
                self.unserved
            )
        })
    }
}

impl Run {
    /// Whether all was as `settings` want it. What came late or not at all proves nothing if the
    /// load generator was late itself; memory that grows and packets that are not accounted for
    /// are the server's.
    #[must_use]
    pub fn verdict(&self, settings: &Settings) -> Verdict {
        let what = "sent is what was sunk, nothing grows, nothing gets later";
        let (by_viewers, by_server) = self.missed_by(settings);
        let void = Figures::of(&settings.load(Vec::new(), 0), &self.load).void;
        if by_server.is_empty() && !by_viewers.is_empty() && !void.is_empty() {
            let (missed, void) = (by_viewers.join("; "), void.join("; "));
            return Verdict::void(what, format!("{missed}; but {void}"));
        }
        Verdict::unless(what, &[by_viewers, by_server].concat())
    }

    /// What was not as `settings` want it: what is lost, late or refused, and what only time shows.
    #[must_use]
    pub fn missed(&self, settings: &Settings) -> Vec<String> {
        let (by_viewers, by_server) = self.missed_by(settings);
        [by_viewers, by_server].concat()
    }

    /// What viewers missed, and what the server's own account says against it.
    fn missed_by(&self, settings: &Settings) -> (Vec<String>, Vec<String>) {
        let mut missed = self.missed_by_viewers(settings);
        let mut by_server = Vec::new();
        if self.packets_sent != self.load.packets_sunk {
            by_server.push(format!(
                "sent {:?} packets, sunk {:?}",
                self.packets_sent, self.load.packets_sunk
            ));
        }
        let Some(trends) = self.trends() else {
            by_server.push("too short to say whether anything grows".to_owned());
            return (missed, by_server);
        };
        if trends.memory_leaks() {
            by_server.push(format!("memory grows: {}", trends.memory_in_words()));
        }
        if trends.gets_later() {
            let host = Host::of(&self.load.slices).map(|host| format!("; {}", host.in_words()));
            missed.push(format!(
                "packets get later: {}{}",
                trends.lateness_in_words(),
                host.unwrap_or_default()
            ));
        }
        (missed, by_server)
    }

    /// What is lost, late or refused.
    fn missed_by_viewers(&self, settings: &Settings) -> Vec<String> {
        let load = settings.load(Vec::new(), 0);
        let mut missed = Figures::of(&load, &self.load).missed;
        let is_excused = |reason: &str| EXPECTED_FAILURES.iter().any(|part| reason.contains(part));
        let failures = self.load.failures.iter().map(|(reason, _)| reason);
        let excused: Vec<_> = failures.filter(|reason| is_excused(reason)).collect();
        missed.retain(|missed| !excused.iter().any(|reason| missed.ends_with(*reason)));
        let start_up = self.start_up.as_ref();
        missed.extend(start_up.and_then(|start_up| start_up.missed(load.start_up_ns_max)));
        missed
    }

    /// What only time shows; `None` if it was too short for that.
    #[must_use]
    pub fn trends(&self) -> Option<Trends> {
        let slices = &self.load.slices;
        let after = &slices[slices.len() / WARM_UP_PARTS..];
        let (first, last) = (after.first()?, after.last()?);
        let over_time = |value: fn(&Slice) -> Option<f64>| {
            let samples = after
                .iter()
                .filter_map(|slice| Some((seconds(slice.end_ns), value(slice)?)));
            samples.collect::<Vec<_>>()
        };
        let (memory, lateness) = (over_time(memory_bytes), over_time(late_ns));
        let needed = over_time(|slice| Some(ratio(slice.needed?.p99_ns, 1)));
        // Never half by the one and half by the other.
        let needed = (needed.len() == after.len()).then_some(needed);
        Some(Trends {
            needed: needed.and_then(|samples| {
                Some(NeededTrend {
                    median_ns: middle(&samples)?,
                    trend: Trend::of(&samples)?,
                })
            }),
            from_ns: first.end_ns,
            time_ns: last.end_ns - first.end_ns,
            visits: last.visits.saturating_sub(first.visits),
            memory_bytes: memory.last()?.1,
            memory: Trend::of(&memory)?,
            late_ns: middle(&lateness)?,
            lateness: Trend::of(&lateness)?,
        })
    }
}

impl Trends {
    /// Whether memory grows, and by more than a few bytes for each visit.
    #[must_use]
    pub fn memory_leaks(&self) -> bool {
        self.memory.grows() && self.bytes_per_visit(self.memory.slope) > GROWTH_BYTES_PER_VISIT_MAX
    }

    /// Whether packets get later, by however little.
    #[must_use]
    pub fn lateness_grows(&self) -> bool {
        self.judged().grows()
    }

    /// What viewers need, or in records from before how late packets are.
    fn judged(&self) -> &Trend {
        let needed = self.needed.as_ref();
        needed.map_or(&self.lateness, |needed| &needed.trend)
    }

    /// Whether packets get later, and by more than does no harm.
    #[must_use]
    pub fn gets_later(&self) -> bool {
        self.lateness_grows()
            && self.judged().slope * seconds(self.time_ns) > LATENESS_GROWTH_NS_MAX
    }

    /// For people.
    #[must_use]
    pub fn memory_in_words(&self) -> String {
        let kib_a_minute = |slope: f64| slope * 60.0 / 1024.0;
        let (low, high) = self.memory.interval;
        format!(
            "beside packets {:.1} MiB, {:+.1} KiB a minute ({:+.1} to {:+.1}, 99 %), {:+.1} bytes \
             a visit",
            self.memory_bytes / f64::from(1 << 20),
            kib_a_minute(self.memory.slope),
            kib_a_minute(low),
            kib_a_minute(high),
            self.bytes_per_visit(self.memory.slope),
        )
    }

    /// For people.
    #[must_use]
    pub fn lateness_in_words(&self) -> String {
        let us_a_minute = |slope: f64| slope * 60.0 / 1e3;
        let (low, high) = self.judged().interval;
        let of = match &self.needed {
            Some(needed) => format!(
                "99 of 100 viewers need buffers of {:.1} ms",
                needed.median_ns / 1e6
            ),
            None => format!("p99.9 of {:.1} ms", self.late_ns / 1e6),
        };
        format!(
            "{of}, {:+.0} us a minute ({:+.0} to {:+.0}, 99 %)",
            us_a_minute(self.judged().slope),
            us_a_minute(low),
            us_a_minute(high),
        )
    }

    fn bytes_per_visit(&self, bytes_a_second: f64) -> f64 {
        bytes_a_second * seconds(self.time_ns) / ratio(self.visits.max(1), 1)
    }
}

/// The middle of samples over time; `None` without any.
fn middle(samples: &[(f64, f64)]) -> Option<f64> {
    let mut sorted: Vec<_> = samples.iter().map(|&(_, value)| value).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// What the server held beside packets, at the end of the slice.
fn memory_bytes(slice: &Slice) -> Option<f64> {
    let memory = slice.memory?;
    let rest = memory.resident_bytes.saturating_sub(memory.arena_bytes);
    Some(ratio(rest + memory.page_table_bytes, 1))
}

/// How late 999 packets in 1000 were at the most.
fn late_ns(slice: &Slice) -> Option<f64> {
    let late_ns = slice.lateness.p999_ns?;
    Some(ratio(u64::try_from(late_ns).unwrap_or(0), 1))
}

fn seconds(ns: u64) -> f64 {
    ratio(ns, 1_000_000_000)
}

impl Settings {
    /// Those of the capacity experiment that the server and its films are made by.
    fn capacity(&self) -> settings::Settings {
        settings::Settings {
            rate_bps: self.rate_bps,
            bursts_ns: vec![self.burst_ns],
            files: FileSet::Zipf { files: self.files },
            media: self.media.clone(),
            // All of them: disks are another experiment's.
            cache_bytes: Some(4 << 30),
            modes: vec![Mode::Uso],
            clients_first: self.clients,
            clients_max: self.clients,
            time_ns: self.time_ns,
            lateness_ns_max: self.lateness_ns_max,
            seed: self.seed,
            ..settings::Settings::default()
        }
    }

    /// What a player buffers: of films of several kinds, what the kind needs that needs most.
    fn buffer_ns(&self) -> u64 {
        let capacity = self.capacity();
        let of_each = self.media.iter().map(|&kind| capacity.buffer_ns(kind));
        of_each.fold(capacity.buffer_ns(FilmKind::Ts), u64::max)
    }

    /// What viewers do of those URLs, whom the process `server` serves.
    pub(super) fn load(&self, urls: Vec<String>, server: u32) -> load::Settings {
        load::Settings {
            ramp_ns: self.capacity().ramp_ns(self.clients),
            time_ns: self.time_ns,
            behaviour: self.behaviour,
            receive: Receive::Sink {
                device: RCV_DEVICE.to_owned(),
                look_every: settings::LOOK_EVERY,
                bursts: false,
            },
            lateness_ns_max: self.lateness_ns_max,
            buffer_ns: Some(self.buffer_ns()),
            pid: Some(server),
            seed: self.seed,
            slice_ns: self.slice_ns,
            port_first: PORT_FIRST,
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
                ..Behaviour::default()
            },
            files: 50,
            media: FilmKind::ALL.to_vec(),
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
    use crate::histogram::{FIRST_NS, Histogram, Quantiles, SLOTS, STEP_NS};
    use crate::load::{Generator, Memory, Needed};
    use crate::table::Outcome;
    use onrush_testkit::playout::{Played, Playouts};

    /// Slices of ten seconds, a hundred visits in each.
    fn slices(memory_bytes: impl Fn(u64) -> u64, late_ns: impl Fn(u64) -> i64) -> Vec<Slice> {
        (1..=12)
            .map(|i| {
                // One packet of 501 is as late as that: 999 of 1000 are not earlier.
                let mut lateness = Histogram::default();
                lateness.count(0, 500);
                lateness.count(late_ns(i), 1);
                Slice {
                    needed: None,
                    lateness: Quantiles::from(&lateness),
                    end_ns: i * 10_000_000_000,
                    packets: 1,
                    memory: Some(Memory {
                        resident_bytes: (4 << 30) + memory_bytes(i),
                        arena_bytes: 4 << 30,
                        page_table_bytes: 7,
                        ..Memory::default()
                    }),
                    visits: i * 100,
                    ..Slice::default()
                }
            })
            .collect()
    }

    fn missed(slices: Vec<Slice>, packets_sent: u64) -> String {
        let settings = Settings {
            clients: 10,
            ..Settings::default()
        };
        run(slices, packets_sent).missed(&settings).join(";")
    }

    fn run(slices: Vec<Slice>, packets_sent: u64) -> Run {
        Run {
            load: load::Run {
                slices,
                packets_sunk: Some(5),
                watching: 10,
                packets_steady: 5,
                failures: vec![("PAUSE was answered 454".to_owned(), 3)],
                ..load::Run::default()
            },
            packets_sent: Some(packets_sent),
            ..Run::default()
        }
    }

    #[test]
    fn of_what_is_beside_packets_after_warm_up_trends_are_made() {
        let trends = run(slices(|i| 1000 + i, |_| 2_000_000), 5)
            .trends()
            .unwrap();
        // A third of twelve slices is left out, so the fifth is the first.
        assert_eq!(
            (trends.from_ns, trends.time_ns),
            (50_000_000_000, 70_000_000_000)
        );
        assert_eq!(trends.visits, 700);
        assert_eq!(trends.memory_bytes, 1000.0 + 12.0 + 7.0);
        assert!((trends.memory.slope - 0.1).abs() < 1e-9, "{trends:?}");
        assert!(trends.late_ns >= 2_000_000.0, "{trends:?}");
    }

    #[test]
    fn a_trend_is_missed_and_steadiness_is_not() {
        let (flat, on_time) = (|_| 1000, |_| 1_000_000);
        assert_eq!(missed(slices(flat, on_time), 5), "");
        assert!(missed(slices(flat, on_time), 6).contains("sunk"));
        // While it warms up it may grow.
        let warming = |i: u64| 1_000_000 * i.min(4);
        assert_eq!(missed(slices(warming, on_time), 5), "");
        // Less than anything that could be forgotten is nothing; a session is something.
        for (bytes_per_visit, leaks) in [(60, false), (68, true), (2000, true)] {
            let missed = missed(slices(|i| i * 100 * bytes_per_visit, on_time), 5);
            assert_eq!(missed.contains("memory grows"), leaks, "{missed}");
        }
        for (ms_in_all, later) in [(4, false), (6, true)] {
            let late_ns =
                |i: u64| 1_000_000 + ms_in_all * 1_000_000 * i64::try_from(i).unwrap() / 7;
            let missed = missed(slices(flat, late_ns), 5);
            assert_eq!(missed.contains("get later"), later, "{missed}");
            assert!(!missed.contains("the host"), "{missed}");
        }
        assert!(missed(slices(flat, on_time)[..7].to_vec(), 5).contains("too short"));
    }

    /// A soak of two kinds of films in which each of a thousand visits needed so much.
    fn thousand(needed_ns: u64) -> (Settings, Run) {
        let settings = Settings {
            clients: 10,
            media: vec![FilmKind::Ts, FilmKind::Mp4],
            ..Settings::default()
        };
        let of_slice = |i: u64| Needed {
            viewers: 100,
            missing: 0,
            p50_ns: needed_ns / 2,
            p99_ns: needed_ns + i,
            max_ns: needed_ns + i,
        };
        // By the first packets of tracks all is late, and ever later.
        let late_ns = |i| 58_600_000 + i64::try_from(i).unwrap() * 20_000_000;
        let slices = (1..).zip(slices(|_| 1000, late_ns));
        let slices = slices.map(|(i, slice)| Slice {
            needed: Some(of_slice(i)),
            ..slice
        });
        let mut run = run(slices.collect(), 5);
        run.load.lateness.count(58_600_000, 1000);
        let mut playouts = Playouts::default();
        for _ in 0..1000 {
            playouts.add(Played {
                packets: 1000,
                needed_ns,
                ..Played::default()
            });
        }
        run.load.playouts = Some(playouts);
        run.load.generator = Some(Generator::default());
        run.start_up = Some(StartUp {
            visits: 1000,
            ..StartUp::default()
        });
        (settings, run)
    }

    #[test]
    fn judged_is_what_viewers_need_and_not_first_packets() {
        // Sound leaves up to 160 ms early: of its viewers 180 ms are enough.
        let (settings, mut run) = thousand(170_000_000);
        assert_eq!(run.missed(&settings), [""; 0]);
        let words = run.trends().unwrap().lateness_in_words();
        assert!(
            words.starts_with("99 of 100 viewers need buffers of 170.0 ms"),
            "{words}"
        );
        let ts_alone = Settings {
            media: vec![FilmKind::Ts],
            ..settings.clone()
        };
        assert!(run.missed(&ts_alone)[0].contains("buffer more than 60 ms"));
        // A record from before is judged by its packets.
        run.load.playouts = None;
        run.load
            .slices
            .iter_mut()
            .for_each(|slice| slice.needed = None);
        let missed = run.missed(&settings).join(";");
        assert!(missed.contains("later than 20 ms") && missed.contains("get later"));
    }

    #[test]
    fn each_planted_unfairness_turns_the_verdict_of_a_soak() {
        let (settings, fair) = thousand(20_000_000);
        assert_eq!(fair.verdict(&settings).outcome, Outcome::Kept);
        let starve = |run: &mut Run| {
            let playouts = run.load.playouts.as_mut().unwrap();
            playouts.add(Played::starved(3_000_000_000));
        };
        let need_more = |run: &mut Run| {
            let playouts = run.load.playouts.as_mut().unwrap();
            (0..2).for_each(|_| playouts.add(Played::starved(181_000_000)));
            playouts.missing = 0;
        };
        let get_later = |run: &mut Run| {
            for (i, slice) in (0_u64..).zip(&mut run.load.slices) {
                slice.needed.as_mut().unwrap().p99_ns += i * 1_000_000;
            }
        };
        type Change = fn(&mut Run);
        let planted: [(Change, &str); 7] = [
            (starve, "1 packets were due and did not come"),
            (need_more, "2 of 1002 viewers would have had to buffer more"),
            (get_later, "packets get later: 99 of 100 viewers"),
            (|run| run.load.totals.lost = 1, "1 packets were lost"),
            (|run| run.load.packets_sunk = Some(4), "sunk Some(4)"),
            (
                |run| run.start_up.as_mut().unwrap().slow = 2,
                "2 of 1000 visits waited more than 5 s",
            ),
            // Refused, tried again, and refused to the end.
            (
                |run| run.start_up.as_mut().unwrap().unserved = 2,
                "2 of 1002 visits waited more than 5 s for a first packet, 2 of them to the end",
            ),
        ];
        for (change, said) in planted {
            let mut run = fair.clone();
            change(&mut run);
            let verdict = run.verdict(&settings);
            assert_eq!(verdict.outcome, Outcome::Missed, "{said}");
            assert!(verdict.found.contains(said), "{}", verdict.found);
        }
    }

    #[test]
    fn a_late_generator_voids_what_viewers_missed_and_no_leak() {
        let (settings, mut run) = thousand(20_000_000);
        run.load.generator.as_mut().unwrap().late_ns_max = 3_000_000_000;
        assert_eq!(run.verdict(&settings).outcome, Outcome::Kept);
        run.load.totals.lost = 1;
        let verdict = run.verdict(&settings);
        assert_eq!(verdict.outcome, Outcome::Void);
        assert!(
            verdict.found.contains("were lost; but the load generator"),
            "{}",
            verdict.found
        );
        run.packets_sent = Some(6);
        assert_eq!(run.verdict(&settings).outcome, Outcome::Missed);
    }

    #[test]
    fn waits_are_taken_from_the_load_and_summed_up() {
        let mut seen = load::Run {
            start_up_ns: vec![9, 1, 5],
            unserved: 2,
            ..load::Run::default()
        };
        let start_up = StartUp::take_from(&mut seen, 8);
        let expected = StartUp {
            visits: 3,
            slow: 1,
            unserved: 2,
            waited_ns: Some([5, 5, 9]),
        };
        assert_eq!((start_up, seen), (expected, load::Run::default()));
        let none = StartUp::take_from(&mut load::Run::default(), 8);
        assert_eq!((none.waited_ns, none.missed(8)), (None, None));
    }

    #[test]
    fn what_the_host_did_is_told_beside_a_miss_and_excuses_none() {
        let later = |i: u64| 2_000_000 * i64::try_from(i).unwrap();
        let robbed = slices(|_| 1000, later).into_iter().map(|slice| Slice {
            account: Some(load::Account {
                wall_ns: 10_000_000_000,
                stolen_ns: Some(4_000_000_000),
                ..load::Account::default()
            }),
            ..slice
        });
        let told = missed(robbed.collect(), 5);
        assert!(told.starts_with("packets get later: p99.9 of "), "{told}");
        assert!(
            told.contains("; the host took more than 2 % of the server's processor in 12 of 12"),
            "{told}"
        );
    }

    /// What is kept in the tree has less than 1 MiB.
    #[test]
    fn the_record_of_a_long_and_late_soak_stays_small() {
        let settings = Settings::default();
        let mut everywhere = Histogram::default();
        (0..)
            .zip(0..SLOTS)
            .for_each(|(i, _)| everywhere.count(FIRST_NS + i * STEP_NS, 1 << 30));
        let threads = [
            "onrush",
            "onrush-send",
            "onrush-build",
            "onrush-control",
            "onrush-admin",
        ];
        let slice = Slice {
            end_ns: settings.time_ns,
            packets: 1 << 40,
            lateness: Quantiles::from(&everywhere),
            needed: Some(Needed {
                viewers: 1 << 20,
                missing: u64::MAX,
                p50_ns: u64::MAX,
                p99_ns: u64::MAX,
                max_ns: u64::MAX,
            }),
            server: Some(load::Usage::default()),
            memory: Some(Memory {
                resident_bytes: 1 << 40,
                proportional_bytes: 1 << 40,
                ..Memory::default()
            }),
            account: Some(load::Account {
                wall_ns: settings.slice_ns,
                stolen_ns: Some(settings.slice_ns),
                other_cores_stolen_ns: Some(settings.slice_ns),
                threads: threads
                    .map(|name| (name.to_owned(), settings.slice_ns))
                    .into(),
                ..load::Account::default()
            }),
            visits: 1 << 20,
        };
        let slices = usize::try_from(settings.time_ns / settings.slice_ns).unwrap();
        let mut run = run(vec![slice; slices], 5);
        run.load.lateness = everywhere;
        let bytes = serde_json::to_string(&run).unwrap().len();
        assert!(bytes < 512 << 10, "{bytes}");
    }
}
