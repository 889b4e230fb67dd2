//! How everything here is measured: pinned, warmed up, enough at once to be far above the clock's
//! own cost, that cost taken off, every sample kept, and never longer than allowed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use onrush_primitives::counter::{Counter, monotonic_raw_ns};
use onrush_primitives::map::{Memory, Pages};
use onrush_primitives::switch::{Medium, PingPong, Who};
use onrush_primitives::{call, code};
use onrush_sys::thread::{allowed_cores, pin_to};

use super::{Measured, Settings};
use crate::error::ExperimentError;
use crate::setup::system;
use crate::stats::{median, ratio, to_f64};

/// The measuring thread, bound to a processor, with a clock whose own cost is known.
#[derive(Debug)]
pub(super) struct Method {
    counter: Counter,
    ns_per_tick: f64,
    read_ticks: f64,
    cores: Vec<usize>,
    settings: Settings,
    basics: Basics,
}

/// What predictions are made of: taken before anything else, whatever group is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Basics {
    /// One dependent addition: a cycle of the processor.
    pub(super) cycle_ns: f64,
    /// `getppid`: into the kernel and back.
    pub(super) crossing_ns: f64,
    /// From one process to another and all that goes with it.
    pub(super) switch_ns: f64,
    /// The first touch of a page.
    pub(super) fault_ns: f64,
    /// A byte copied in the nearest cache but one, as the kernel copies it.
    pub(super) copy_ns: f64,
}

impl Basics {
    /// As vendors and books state them, of no machine in particular but its clock: what predictions
    /// are made of, which nothing that is measured may have a part in.
    pub(super) fn stated() -> Self {
        let cycle_ns = 1e3 / stated_mhz().unwrap_or(STATED_MHZ);
        Self {
            cycle_ns,
            crossing_ns: STATED_CROSSING_CYCLES * cycle_ns,
            switch_ns: STATED_SWITCH_NS,
            fault_ns: STATED_FAULT_CYCLES * cycle_ns,
            copy_ns: cycle_ns / STATED_COPY_BYTES_PER_CYCLE,
        }
    }
}

/// The clock that the measuring processor is said to have, in MHz.
fn stated_mhz() -> Option<f64> {
    let core = allowed_cores().last().copied().unwrap_or(0);
    let read = |name: &str| {
        let file = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/{name}");
        fs::read_to_string(file).unwrap_or_default()
    };
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    mhz_of([read("base_frequency"), read("cpuinfo_max_freq")], &cpuinfo)
}

/// What the kernel's driver of frequencies says, in kHz; else what the processor calls itself
/// (`@ 2.40GHz`); else `cpu MHz`, which is stated on guests without such a driver, and elsewhere
/// what the clock happened to be.
fn mhz_of(driver_khz: [String; 2], cpuinfo: &str) -> Option<f64> {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim())
    };
    let of_driver = driver_khz.iter().map(|khz| {
        let khz: f64 = khz.trim().parse().ok()?;
        Some(khz / 1e3)
    });
    let of_name = || {
        let (_, ghz) = field("model name")?.rsplit_once('@')?;
        let ghz: f64 = ghz.trim().strip_suffix("GHz")?.trim().parse().ok()?;
        Some(ghz * 1e3)
    };
    let of_now = || field("cpu MHz")?.parse::<f64>().ok();
    let is_sane = |mhz: &f64| (100.0..10_000.0).contains(mhz);
    let mut all = of_driver.chain([of_name(), of_now()]).flatten();
    all.find(is_sane)
}

impl Method {
    /// Binds the calling thread to the last processor it may use, and learns its clock.
    ///
    /// # Errors
    ///
    /// If it cannot be bound, or the clock stands still.
    pub(super) fn new(settings: &Settings) -> Result<Self, ExperimentError> {
        let mut method = Self::without_basics(settings, None)?;
        method.basics = method.learn();
        Ok(method)
    }

    /// The same for who makes no predictions, and perhaps knows the pace of the clock, which takes
    /// the longest to learn.
    ///
    /// # Errors
    ///
    /// As above.
    pub(super) fn without_basics(
        settings: &Settings,
        ns_per_tick: Option<f64>,
    ) -> Result<Self, ExperimentError> {
        let cores = allowed_cores();
        let core = cores.last().copied().unwrap_or(0);
        pin_to(core).map_err(system(
            "bind to a processor; look at the cpuset of this process",
        ))?;
        let counter = if settings.system_clock {
            Counter::MonotonicRaw
        } else {
            Counter::best()
        };
        let ns_per_tick = ns_per_tick.or_else(|| self::ns_per_tick(counter));
        let still = "the clock of this machine stands still; nothing can be measured";
        let ns_per_tick = ns_per_tick.ok_or_else(|| ExperimentError::subject(still))?;
        let mut method = Self {
            counter,
            ns_per_tick,
            read_ticks: 0.0,
            cores,
            settings: settings.clone(),
            basics: Basics::default(),
        };
        method.read_ticks = median(method.clock_reads()).unwrap_or(0.0);
        Ok(method)
    }

    /// As on a processor that has no better counter.
    #[cfg(test)]
    pub(super) fn reading(mut self, counter: Counter) -> Self {
        self.counter = counter;
        self
    }

    /// Nanoseconds of each of many `act`s, by block: `act` is told how many to do. A block is as
    /// long as the clock's own cost vanishes in it, and there are several; together they take about
    /// `time`.
    pub(super) fn per_act(&self, time: Duration, mut act: impl FnMut(u64)) -> Vec<f64> {
        let never_fails = self.try_per_act(time, |times| {
            act(times);
            Ok(())
        });
        never_fails.unwrap_or_default()
    }

    /// The same for acts that can fail.
    pub(super) fn try_per_act(
        &self,
        time: Duration,
        mut act: impl FnMut(u64) -> io::Result<()>,
    ) -> io::Result<Vec<f64>> {
        let block_ns = time.as_secs_f64() * 1e9 / BLOCKS;
        let deadline = Instant::now() + time * 4;
        // Doubling warms up, too. Bounded by its own growth: sixty turns are longer than any
        // machine lives.
        let mut times = 1;
        loop {
            let taken_ns = self.block(times, &mut act)?;
            if taken_ns >= block_ns / 2.0 || Instant::now() > deadline {
                break;
            }
            times *= 2;
        }
        let mut samples = Vec::new();
        while to_f64(samples.len()) < BLOCKS && (samples.is_empty() || Instant::now() < deadline) {
            let taken_ns = self.block(times, &mut act)?;
            samples.push(six_digits(taken_ns / ratio(times, 1)));
        }
        Ok(samples)
    }

    /// Nanoseconds that `act` takes, once.
    pub(super) fn once<T>(&self, act: impl FnOnce() -> T) -> (f64, T) {
        let begin = self.counter.begin();
        let result = act();
        let end = self.counter.end();
        let ticks = ratio(end.wrapping_sub(begin), 1) - self.read_ticks;
        ((ticks * self.ns_per_tick).max(0.0), result)
    }

    /// The same with what the clock itself takes.
    pub(super) fn once_with_clock(&self, act: impl FnOnce()) -> f64 {
        self.once(act).0 + self.read_ticks * self.ns_per_tick
    }

    /// Nanoseconds between two readings with nothing between them, each the mean of many.
    pub(super) fn clock_read_ns(&self) -> Vec<f64> {
        let reads = self.clock_reads();
        reads
            .iter()
            .map(|ticks| six_digits(ticks * self.ns_per_tick))
            .collect()
    }

    pub(super) fn basics(&self) -> Basics {
        self.basics
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn counter(&self) -> Counter {
        self.counter
    }

    pub(super) fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick
    }

    pub(super) fn core(&self) -> usize {
        self.cores.last().copied().unwrap_or(0)
    }

    /// The processors that this process may use; the measuring thread is on the last.
    pub(super) fn cores(&self) -> &[usize] {
        &self.cores
    }

    pub(super) fn folder(&self) -> &Path {
        &self.settings.folder
    }

    /// How much of something there is in a quick run, and in a full one.
    pub(super) fn much<T>(&self, quick: T, full: T) -> T {
        if self.settings.quick { quick } else { full }
    }

    /// A time that is shorter in a quick run.
    pub(super) fn time(&self, full_ms: u64) -> Duration {
        Duration::from_micros(full_ms * 1000 / self.much(3, 1))
    }

    fn block(&self, times: u64, act: &mut impl FnMut(u64) -> io::Result<()>) -> io::Result<f64> {
        let (taken_ns, result) = self.once(|| act(times));
        result.map(|()| taken_ns)
    }

    fn clock_reads(&self) -> Vec<f64> {
        const READS: u32 = 1000;
        let block = |_| {
            let ticks: u64 = (0..READS)
                .map(|_| {
                    let begin = self.counter.begin();
                    self.counter.end().wrapping_sub(begin)
                })
                .sum();
            ratio(ticks, READS.into())
        };
        (0..11).map(block).collect()
    }

    fn learn(&self) -> Basics {
        let time = Duration::from_millis(5);
        let of = |samples: Vec<f64>| median(&samples).unwrap_or(0.0);
        let additions = self.per_act(time, |turns| {
            std::hint::black_box(code::add(turns));
        });
        let crossing = self.per_act(time, |times| {
            call::getppid(times);
        });
        let switch = PingPong::start(Who::Process, Medium::Pipe)
            .and_then(|mut pair| self.try_per_act(time, |times| pair.rounds(times)));
        let fault = Memory::map(FAULT_BYTES, Pages::Base).map(|mut memory| {
            let (taken_ns, pages) = self.once(|| memory.touch(FAULT_BYTES));
            taken_ns / to_f64(pages)
        });
        let mut bytes = vec![1_u8; 2 * COPY_BYTES];
        let copy = self.per_act(time, |times| {
            for _ in 0..times {
                bytes.copy_within(..COPY_BYTES, COPY_BYTES);
                std::hint::black_box(&mut bytes);
            }
        });
        Basics {
            cycle_ns: of(additions) / ratio(code::ADDITIONS, 1),
            crossing_ns: of(crossing),
            switch_ns: of(switch.unwrap_or_default()) / 2.0,
            fault_ns: fault.unwrap_or(0.0),
            copy_ns: of(copy) / to_f64(COPY_BYTES),
        }
    }
}

/// A clock, where none is stated.
const STATED_MHZ: f64 = 3000.0;
/// A system call that does nothing: SYSCALL and SYSRET, registers saved, and what mitigations add.
const STATED_CROSSING_CYCLES: f64 = 200.0;
/// From one process to another, with the caches that it finds cold.
const STATED_SWITCH_NS: f64 = 1500.0;
/// A fault of a fresh page: a trap, a page zeroed and mapped.
const STATED_FAULT_CYCLES: f64 = 1500.0;
/// Bytes that are copied in a cycle, from the cache next but one: half a vector of 32.
const STATED_COPY_BYTES_PER_CYCLE: f64 = 16.0;

/// Blocks that a probe takes a round.
const BLOCKS: f64 = 11.0;
const FAULT_BYTES: usize = 8 << 20;
const COPY_BYTES: usize = 64 << 10;

/// How long a tick is, against the kernel's steady clock.
fn ns_per_tick(counter: Counter) -> Option<f64> {
    const WINDOW_NS: u64 = 10_000_000;
    let window = |_| {
        let (begin_ns, begin) = (monotonic_raw_ns(), counter.begin());
        // Bounded by the number of looks too, in case the clock stands still.
        let looked = (0..100_000_000).find(|_| monotonic_raw_ns() - begin_ns >= WINDOW_NS);
        let (end_ns, end) = (monotonic_raw_ns(), counter.end());
        let ticks = end
            .checked_sub(begin)
            .filter(|&ticks| ticks > 0 && looked.is_some())?;
        Some(ratio(end_ns - begin_ns, ticks))
    };
    let windows: Option<Vec<f64>> = (0..5).map(window).collect();
    median(&windows?)
}

/// A number with as many digits as a measurement can have; files are shorter.
pub(super) fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// A line of a curve: its name, and its points with their samples.
pub(super) type Line<'f> = (&'f str, Vec<(u64, &'f [f64])>);

/// What the probes have seen: raw samples by name and round, points of curves, and what was not
/// there.
#[derive(Debug, Default)]
pub(super) struct Found {
    round: usize,
    samples: BTreeMap<String, Vec<Vec<f64>>>,
    points: BTreeMap<(String, String), BTreeMap<u64, Vec<f64>>>,
    missing: BTreeMap<String, String>,
    void: BTreeMap<String, String>,
    facts: BTreeMap<String, f64>,
}

impl Found {
    pub(super) fn begin(&mut self, round: u32) {
        self.round = round as usize;
    }

    /// The round, from 0.
    pub(super) fn round(&self) -> usize {
        self.round
    }

    /// Keeps the samples of this round.
    pub(super) fn samples(&mut self, id: &str, samples: Vec<f64>) {
        if samples.is_empty() {
            return;
        }
        let rounds = self.samples.entry(id.to_owned()).or_default();
        rounds.push(samples);
    }

    /// The same, or why there are none.
    pub(super) fn try_samples(&mut self, id: &str, samples: io::Result<Vec<f64>>) {
        if let Some(samples) = self.there(&[id], samples) {
            self.samples(id, samples);
        }
    }

    /// What is there; or else why all of these cannot be measured.
    pub(super) fn there<T>(&mut self, ids: &[&str], what: io::Result<T>) -> Option<T> {
        what.inspect_err(|error| ids.iter().for_each(|id| self.missing(id, error)))
            .ok()
    }

    /// Keeps a sample of a curve.
    pub(super) fn point(&mut self, curve: &str, series: &str, x: u64, sample: f64) {
        let key = (curve.to_owned(), series.to_owned());
        let points = self.points.entry(key).or_default();
        points.entry(x).or_default().push(six_digits(sample));
    }

    /// Something could not be measured.
    pub(super) fn missing(&mut self, id: &str, why: impl ToString) {
        let why = why.to_string();
        // Nothing else is between a machine and itself.
        let is_own = id.contains("loopback") || id.ends_with("_http");
        let is_down = is_own && why.ends_with("(os error 101)");
        let advice = if is_down {
            "; loopback is down: ip link set lo up"
        } else {
            ""
        };
        self.missing.insert(id.to_owned(), format!("{why}{advice}"));
    }

    /// Something was measured that cannot be.
    pub(super) fn void(&mut self, id: &str, why: String) {
        self.void.insert(id.to_owned(), why);
    }

    /// Something that is so, not measured.
    pub(super) fn fact(&mut self, id: &str, value: f64) {
        self.facts.insert(id.to_owned(), value);
    }

    /// A fact, if it is known.
    pub(super) fn known(&self, id: &str) -> Option<f64> {
        self.facts.get(id).copied()
    }

    /// All samples of a probe.
    pub(super) fn measured(&self, id: &str) -> Option<Measured> {
        self.samples.get(id).and_then(|rounds| Measured::of(rounds))
    }

    /// The median of a probe.
    pub(super) fn median(&self, id: &str) -> Option<f64> {
        self.measured(id).map(|measured| measured.median)
    }

    /// The median of the probe's latest round.
    pub(super) fn latest(&self, id: &str) -> Option<f64> {
        median(self.samples.get(id)?.last()?)
    }

    /// Why a probe's figure counts for nothing.
    pub(super) fn voided(&self, id: &str) -> Option<&String> {
        self.void.get(id)
    }

    /// What could not be measured and was not in another round either.
    pub(super) fn all_missing(&self) -> impl Iterator<Item = (&String, &String)> {
        self.missing
            .iter()
            .filter(|(id, _)| !self.samples.contains_key(*id))
    }

    /// The lines of a curve, by name, with their points.
    pub(super) fn curve(&self, curve: &str) -> Vec<Line<'_>> {
        let of = self.points.iter().filter(|((name, _), _)| name == curve);
        of.map(|((_, series), points)| {
            let points = points.iter().map(|(x, samples)| (*x, samples.as_slice()));
            (series.as_str(), points.collect())
        })
        .collect()
    }

    /// The medians of one line.
    pub(super) fn line(&self, curve: &str, series: &str) -> Vec<(u64, f64)> {
        let key = (curve.to_owned(), series.to_owned());
        let points = self.points.get(&key).into_iter().flatten();
        points
            .filter_map(|(x, samples)| Some((*x, median(samples)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method() -> Method {
        Method::new(&Settings::quick()).unwrap()
    }

    #[test]
    fn the_stated_clock_is_not_that_of_the_moment() {
        let cpuinfo =
            |name: &str| format!("processor : 0\nmodel name : {name}\ncpu MHz : 800.012\n");
        let xeon = cpuinfo("Intel(R) Xeon(R) CPU @ 2.20GHz");
        let of = |base: &str, most: &str, cpuinfo: &str| {
            mhz_of([base.to_owned(), most.to_owned()], cpuinfo)
        };
        assert_eq!(of("2400000\n", "4700000\n", &xeon), Some(2400.0));
        assert_eq!(of("", "4700000\n", &xeon), Some(4700.0));
        assert_eq!(of("", "", &xeon), Some(2200.0));
        // A guest that has nothing else.
        assert_eq!(of("", "", &cpuinfo("AMD EPYC")), Some(800.012));
        assert_eq!(of("0\n", "", &cpuinfo("AMD EPYC @ home")), Some(800.012));
        assert_eq!(of("", "", "CPU part : 0xd0c\n"), None);
    }

    #[test]
    fn more_work_takes_longer_and_nothing_takes_nothing() {
        let method = method();
        let time = Duration::from_millis(10);
        // The least of many: what else this machine does falls on some of them.
        let least = |samples: &mut dyn Iterator<Item = f64>| samples.fold(f64::INFINITY, f64::min);
        let of = |turns_each: u64| {
            let samples = |_| {
                method.per_act(time, |times| {
                    std::hint::black_box(code::add(times * turns_each));
                })
            };
            least(&mut (0..10).flat_map(samples))
        };
        let (one, hundred) = (of(1), of(100));
        assert!(hundred > one * 10.0, "{one} {hundred}");
        assert!(least(&mut (0..100).map(|_| method.once(|| ()).0)) < 1e6);
    }

    #[test]
    fn a_probe_ends_whatever_it_measures() {
        let method = method();
        let mut calls = 0;
        let samples = method.per_act(Duration::from_millis(1), |_| {
            calls += 1;
            std::thread::sleep(Duration::from_millis(5));
        });
        assert!(!samples.is_empty());
        assert!(calls <= 12, "{calls}: it goes on after its time");
        let error = method.try_per_act(Duration::from_millis(1), |_| {
            Err(io::Error::from(io::ErrorKind::TimedOut))
        });
        assert!(error.is_err());
    }

    #[test]
    fn both_clocks_tell_the_same_time() {
        let slow = Method::new(&Settings {
            system_clock: true,
            ..Settings::quick()
        })
        .unwrap();
        assert_eq!(slow.counter(), Counter::MonotonicRaw);
        assert!((slow.ns_per_tick - 1.0).abs() < 0.01);
        let method = method();
        for method in [&slow, &method] {
            let (ns, ()) = method.once(|| {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(2) {}
            });
            assert!((2e6..1e9).contains(&ns), "{ns}");
        }
    }

    #[test]
    fn what_another_round_has_seen_is_not_missing() {
        let mut found = Found::default();
        found.missing("a", "no");
        found.missing("b", "no");
        found.samples("a", vec![1.0]);
        let missing: Vec<_> = found.all_missing().map(|(id, _)| id.as_str()).collect();
        assert_eq!(missing, ["b"]);
        found.point("c", "s", 4, 1.234_567_89);
        assert_eq!(found.line("c", "s"), [(4, 1.23457)]);
    }
}
