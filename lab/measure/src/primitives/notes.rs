//! What a reader must know before believing the figures: what else went on, and what the machine
//! is.

use std::fs;
use std::path::Path;

use super::method::Method;
use super::{Found, Note, staircase};
use crate::machine::{CoreTimes, core_times, is_virtual, yardstick_ns};
use crate::stats::{Summary, ratio, to_f64};
use onrush_primitives::counter::Counter;

/// Looks at the machine between the rounds.
#[derive(Debug)]
pub(super) struct Watch {
    before: Vec<CoreTimes>,
    yardsticks: Vec<f64>,
}

impl Watch {
    pub(super) fn begin() -> Self {
        let mut watch = Self {
            before: core_times(),
            yardsticks: Vec::new(),
        };
        watch.look();
        watch
    }

    /// Takes the machine's pace once more.
    pub(super) fn look(&mut self) {
        self.yardsticks.push(ratio(yardstick_ns(), 1));
    }

    /// All that is to be known.
    pub(super) fn notes(&self, method: &Method, found: &Found) -> Vec<Note> {
        let (core, cores) = (method.core(), method.cores().len());
        let clock = method.counter().name();
        let mut notes = vec![note(format!(
            "bound to processor {core}, of {cores} that this process may use; time is told by \
             {clock}"
        ))];
        if method.counter() == Counter::MonotonicRaw && !method.settings().system_clock {
            notes.push(warning(
                "this processor has no counter that ticks evenly; short times are told by the \
                 kernel's clock, which costs more to read",
            ));
        }
        if cores == 1 {
            let text =
                "there is one processor only: everything takes turns with whatever else runs";
            notes.push(warning(text));
        }
        notes.extend(of_limit(cores, processors_allowed()));
        if is_virtual() {
            notes.push(note(
                "this is a virtual machine: the host may take the processor away, caches are \
                 shared with others, and finding a page takes a walk through two tables",
            ));
        }
        notes.extend(of_frequency(core));
        let pace = Summary::of(&self.yardsticks);
        if let Some(pace) = pace.filter(|pace| pace.spread() > PACE_UNEVEN) {
            notes.push(warning(format!(
                "a fixed piece of work took from {:.1} to {:.1} ms between the rounds: the \
                 machine was busy, or its clock changed. Stop what else runs, and run it again",
                pace.min / 1e6,
                pace.max / 1e6
            )));
        }
        notes.extend(self.stolen());
        notes.extend(of_memory(core, found));
        notes
    }

    /// Processors that the host took more than 1 % of a second from.
    fn stolen(&self) -> Vec<Note> {
        let now = core_times();
        let stolen = self
            .before
            .iter()
            .zip(&now)
            .enumerate()
            .map(|(core, (before, now))| {
                (
                    core,
                    ratio(now.stolen_ns.saturating_sub(before.stolen_ns), 1),
                )
            });
        let stolen = stolen.filter(|(_, stolen_ns)| *stolen_ns > STOLEN_NS);
        let of = |(core, ns)| {
            warning(format!(
                "the host took {:.0} ms from processor {core}",
                ns / 1e6
            ))
        };
        stolen.map(of).collect()
    }
}

fn note(text: impl Into<String>) -> Note {
    Note {
        text: text.into(),
        is_warning: false,
    }
}

fn warning(text: impl Into<String>) -> Note {
    Note {
        is_warning: true,
        ..note(text)
    }
}

/// A machine at rest repeats a fixed piece of work within this part of its median.
const PACE_UNEVEN: f64 = 0.05;
const STOLEN_NS: f64 = 1e7;

/// Whether all processors at once get less time than there are of them.
fn of_limit(cores: usize, allowed: Option<f64>) -> Option<Note> {
    let allowed = allowed.filter(|&allowed| allowed < to_f64(cores))?;
    Some(warning(format!(
        "the control group of this process gives it the time of {allowed:.1} processors (cpu.max), \
         of {cores} that it may use: what more do at once is held back a part of the time"
    )))
}

/// The time of how many processors the control groups of this process give it, by the least
/// `cpu.max` of them (cgroup v2); `None` if as many as there are.
fn processors_allowed() -> Option<f64> {
    let mount = Path::new("/sys/fs/cgroup");
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = mount.join(own);
    let groups = own.ancestors().take_while(|group| group.starts_with(mount));
    let limits = groups.filter_map(|group| {
        let limit = fs::read_to_string(group.join("cpu.max")).ok()?;
        processors_of(&limit)
    });
    limits.min_by(f64::total_cmp)
}

/// Of `QUOTA PERIOD`; `None` of `max PERIOD`.
fn processors_of(cpu_max: &str) -> Option<f64> {
    let (quota, period) = cpu_max.trim().split_once(' ')?;
    Some(ratio(quota.parse().ok()?, period.parse().ok()?))
}

/// What was found about caches, beside what the machine says of the processor `core`.
fn of_memory(core: usize, found: &Found) -> Vec<Note> {
    let mut notes = Vec::new();
    if let Some(seconds) = found.known("staircase_seconds") {
        notes.push(Note {
            text: format!("the staircase took {seconds:.1} s"),
            is_warning: seconds > 15.0,
        });
    }
    if let Some(part) = found.known("huge_part").filter(|part| *part < 0.9) {
        notes.push(warning(format!(
            "only {:.0} % of the memory that should have been huge pages was: latencies on huge \
             pages have page walks in them. See /sys/kernel/mm/transparent_hugepage/enabled",
            part * 100.0
        )));
    }
    let line = found.line(staircase::CURVE, staircase::HUGE);
    let steps = staircase::cache_steps(found);
    let random = staircase::steps(&line);
    for (index, stated) in stated_caches(core).into_iter().enumerate() {
        let level = index + 1;
        let Some(step) = steps.get(index) else {
            if !line.is_empty() {
                notes.push(without_a_step(level, stated));
            }
            continue;
        };
        let part = ratio(step.edge_bytes, stated);
        let verdict = match part {
            0.75..=1.3 => "which agrees".to_owned(),
            _ if part < 1.0 && level > 2 && is_virtual() => format!(
                "{:.0} % of it{}; whether the host gave this guest a part or others fill the rest \
                 cannot be seen from inside",
                part * 100.0,
                passes(found, step.edge_bytes, stated)
            ),
            _ => format!("{part:.2} times as much"),
        };
        notes.push(Note {
            text: format!(
                "cache {level}: the staircase ends its plateau at {}, the machine states {}: \
                 {verdict}",
                size(step.edge_bytes),
                size(stated)
            ),
            is_warning: !(0.75..=1.3).contains(&part),
        });
        let early = random.get(index);
        if let Some(early) = early.filter(|early| early.edge_bytes < step.edge_bytes) {
            notes.push(note(format!(
                "loads in random order leave cache {level} at {} already: beyond, addresses have \
                 to be looked up{}",
                size(early.edge_bytes),
                piecemeal(found).unwrap_or_default()
            )));
        }
    }
    notes
}

/// A cache that the machine states and the staircase did not find.
fn without_a_step(level: usize, stated: u64) -> Note {
    let why = match is_virtual() {
        true => {
            ": other guests of the host use it too, and leave this one too little for a plateau"
        }
        false => "",
    };
    let stated = size(stated);
    let missing = "no step was found for it";
    warning(format!(
        "the machine states {stated} of cache {level}; {missing}{why}"
    ))
}

/// Whether huge pages are looked up like small ones: then a load from each 4 KB gets slower as they
/// become more, though few lines are read.
fn piecemeal(found: &Found) -> Option<String> {
    let line = found.line(staircase::STRIDES, staircase::SPARSE);
    let at = |wanted| Some(line.iter().find(|(bytes, _)| *bytes == wanted)?.1);
    let (few, many) = (at(8 << 20)?, at(32 << 20)?);
    let text = format!(
        ", and huge pages are looked up like small ones, as where a host maps them so: a load from \
         each 4 KB of them takes {few:.1} ns over 8 MiB and {many:.1} ns over 32 MiB, a 65th of \
         which is read"
    );
    (many > PIECEMEAL_MIN * few).then_some(text)
}

/// How much slower that makes loads at least. A second cache holds what is read of both sizes.
const PIECEMEAL_MIN: f64 = 1.5;

/// How much the passes differ where the cache should hold all.
fn passes(found: &Found, edge_bytes: u64, stated_bytes: u64) -> String {
    let curve = found.curve(staircase::CURVE);
    let by_page = curve.iter().find(|(name, _)| *name == staircase::BY_PAGE);
    let points = by_page.map_or(&[][..], |(_, points)| points);
    let wild = |(bytes, samples): &(u64, &[f64])| {
        let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = samples.iter().copied().fold(0.0, f64::max);
        (*bytes, least, most)
    };
    let points = points
        .iter()
        .filter(|(bytes, _)| (edge_bytes..=stated_bytes).contains(bytes));
    let widest = points
        .map(wild)
        .max_by(|a, b| (a.2 / a.1).total_cmp(&(b.2 / b.1)));
    widest.map_or_else(String::new, |(bytes, least, most)| {
        format!(
            " (over {} passes, a second apart, took {least:.0} to {most:.0} ns a load)",
            size(bytes)
        )
    })
}

fn size(bytes: u64) -> String {
    super::Unit::Bytes.told(ratio(bytes, 1))
}

/// Data caches of a processor as the kernel lists them, by level, in bytes. Those of one machine
/// need not be alike.
fn stated_caches(core: usize) -> Vec<u64> {
    let mut found = Vec::new();
    for index in 0..8 {
        let folder = format!("/sys/devices/system/cpu/cpu{core}/cache/index{index}");
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
        if read("type").trim() == "Instruction" {
            continue;
        }
        let size = read("size");
        let (digits, factor) = match size.trim() {
            text if text.ends_with('K') => (text.trim_end_matches('K'), 1 << 10),
            text if text.ends_with('M') => (text.trim_end_matches('M'), 1 << 20),
            text => (text, 1),
        };
        if let Ok(number) = digits.parse::<u64>() {
            found.push(number * factor);
        }
    }
    found
}

/// Who sets the processor's frequency.
fn of_frequency(core: usize) -> Option<Note> {
    let file = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
    match fs::read_to_string(file) {
        Ok(governor) if governor.trim() == "performance" => None,
        Ok(governor) => Some(warning(format!(
            "the processor's frequency is set by the governor {}; for steady figures: cpupower \
             frequency-set --governor performance",
            governor.trim()
        ))),
        Err(_) => Some(note(
            "the processor's frequency is out of the kernel's hands; its pace was watched instead",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    #[test]
    fn a_processor_without_an_even_counter_is_warned_of() {
        let warned = |counter, system_clock| {
            let settings = Settings {
                system_clock,
                ..Settings::quick()
            };
            let method = Method::without_basics(&settings, Some(1.0)).unwrap();
            let notes = Watch::begin().notes(&method.reading(counter), &Found::default());
            let mut warnings = notes.iter().filter(|note| note.is_warning);
            warnings.any(|note| note.text.contains("no counter that ticks evenly"))
        };
        assert!(warned(Counter::MonotonicRaw, false));
        assert!(
            !warned(Counter::MonotonicRaw, true),
            "it was asked to read it"
        );
        assert!(!warned(Counter::Tsc, false));
    }

    #[test]
    fn a_limit_below_the_processors_is_warned_of() {
        assert_eq!(processors_of("150000 100000\n"), Some(1.5));
        assert_eq!(processors_of("max 100000\n"), None);
        assert_eq!(processors_of("max"), None);
        let warned = of_limit(4, Some(1.5)).unwrap();
        assert!(warned.is_warning && warned.text.contains("1.5 processors"));
        assert_eq!(of_limit(4, Some(4.0)), None);
        assert_eq!(of_limit(4, None), None);
    }

    #[test]
    fn caches_that_the_machine_states_rise() {
        assert!(stated_caches(usize::MAX).is_empty());
        let stated = stated_caches(0);
        assert!(
            stated.windows(2).all(|pair| pair[0] < pair[1]),
            "{stated:?}"
        );
        assert!(stated.iter().all(|bytes| *bytes >= 4096), "{stated:?}");
    }
}
