//! Doubles the number of sessions of each mechanism and bisects, a step of each in turn.

use onrush_testkit::playout::PART_IN_TIME;
use onrush_testkit::testbed::Mode;

use super::record::{Films, MechanismsRecord, Run, Settings};
use crate::error::{ExperimentError, what_is};
use crate::experiment::Keep;
use crate::film_kind::FilmKind;
use crate::serve::{self, Bench, Contestant, Entrant, Turn};
use crate::stats::{ratio, to_f64};

/// What is known of a mechanism.
#[derive(Clone, Copy, Debug)]
struct Between {
    mechanism: Contestant,
    /// The most that were held.
    held: u32,
    /// The fewest that were not.
    missed: Option<u32>,
}

/// All searches, each rate and kind of films with a film of its own.
pub(super) fn all(
    record: &mut MechanismsRecord,
    core: usize,
    mut progress: impl FnMut(f64, &str),
    keep: Keep<'_, Settings, Run>,
) -> Result<(), ExperimentError> {
    let settings = record.settings.clone();
    let mut parts = Vec::new();
    for &films in &settings.films {
        parts.extend(settings.rates_bps.iter().map(|&rate_bps| (rate_bps, films)));
    }
    let count = to_f64(parts.len() * settings.modes.len());
    let mut done = 0.0;
    for (rate_bps, films) in parts {
        let of_rate = settings.of_rate(rate_bps, films);
        let mut bench = Bench::set_up(&of_rate, core)?;
        record.environment.network = bench.network()?;
        for &mode in &settings.modes {
            let which = (mode, rate_bps, films);
            let told = |next: &str| progress(done / count, next);
            turns(record, &mut bench, (which, of_rate.sessions), told, keep)?;
            done += 1.0;
        }
    }
    Ok(())
}

/// One search of each mechanism, a step of each in turn.
fn turns(
    record: &mut MechanismsRecord,
    bench: &mut Bench,
    ((mode, rate_bps, films), sessions_max): ((Mode, u64, Films), u32),
    mut progress: impl FnMut(&str),
    keep: Keep<'_, Settings, Run>,
) -> Result<(), ExperimentError> {
    let settings = record.settings.clone();
    let each = settings.mechanisms.iter().map(|&mechanism| Between {
        mechanism,
        held: 0,
        missed: None,
    });
    let mut searches: Vec<_> = each.collect();
    loop {
        let mut is_over = true;
        for search in &mut searches {
            let first = settings.first(rate_bps).min(sessions_max);
            let Some(sessions) = search.next(first, sessions_max, settings.precision) else {
                continue;
            };
            is_over = false;
            let upper = search
                .missed
                .map_or_else(|| "?".to_owned(), |missed| missed.to_string());
            progress(&format!(
                "{} {}, {} Mbit/s, {films}: {sessions} sessions (between {} and {upper})",
                mode.name(),
                search.mechanism,
                ratio(rate_bps, 1_000_000),
                search.held,
            ));
            bench.set_sessions(sessions);
            let turn = Turn {
                mode,
                entrant: Entrant {
                    contestant: search.mechanism,
                    media: FilmKind::Ts,
                },
                repeat: 0,
            };
            let seen = bench.run(turn, 0)?;
            let run = Run::of(&settings, &seen, (rate_bps, films), sessions);
            match run.missed.is_empty() {
                true => search.held = sessions,
                false => search.missed = Some(sessions),
            }
            record.runs.push(run);
            keep(record);
        }
        if is_over {
            return Ok(());
        }
    }
}

impl Between {
    /// What is tried next, if anything is.
    fn next(&self, first: u32, most: u32, precision: f64) -> Option<u32> {
        match self.missed {
            None if self.held == 0 => Some(first),
            None if self.held >= most => None,
            None => Some(self.held.saturating_mul(2).min(most)),
            Some(missed) => {
                let step = missed - self.held;
                let is_close = f64::from(step) <= f64::from(missed) * precision;
                (step > 1 && !is_close).then_some(self.held + step / 2)
            }
        }
    }
}

impl Run {
    /// What a run says of so many sessions.
    fn of(
        settings: &Settings,
        seen: &serve::Run,
        (rate_bps, films): (u64, Films),
        sessions: u32,
    ) -> Self {
        let (interval, buffer_ns) = (&seen.interval, settings.buffer_ns());
        let counts = &interval.counts;
        let playouts = seen.playouts.clone().unwrap_or_default();
        let (beyond, viewers) = (playouts.beyond(buffer_ns), playouts.viewers);
        let missed = what_is! {
            viewers < u64::from(sessions) || viewers == 0
                => "{viewers} of {sessions} viewers were followed";
            !playouts.is_in_time(buffer_ns)
                => "{beyond} of {viewers} viewers would have had to buffer more than {} ms",
                buffer_ns / 1_000_000;
        };
        let sends = match counts.trains {
            0 => counts.packets,
            trains => trains,
        };
        Self {
            mode: seen.mode,
            rate_bps,
            films,
            mechanism: seen.contestant,
            sessions,
            missed: seen.void.iter().cloned().chain(missed).collect(),
            needed_ns: playouts.needed_ns(PART_IN_TIME),
            cpu_ns_a_packet: ratio(interval.cpu_ns, counts.packets.max(1)),
            core_busy: ratio(interval.core_busy_ns, interval.wall_ns.max(1)),
            crossings_a_packet: ratio(counts.crossings, counts.packets.max(1)),
            packets_a_send: ratio(counts.packets, sends.max(1)),
            stolen_ns: interval.stolen_ns,
            yardstick_ns: seen.yardstick_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use onrush_testkit::playout::{Played, Playouts};

    use super::*;

    /// What is tried of a mechanism that holds so many.
    fn tried(holds: u32, precision: f64) -> Vec<u32> {
        let mut search = Between {
            mechanism: Contestant::ENGINE,
            held: 0,
            missed: None,
        };
        let mut tried = Vec::new();
        while let Some(sessions) = search.next(500, 8192, precision) {
            tried.push(sessions);
            match sessions <= holds {
                true => search.held = sessions,
                false => search.missed = Some(sessions),
            }
        }
        tried
    }

    #[test]
    fn numbers_double_and_are_bisected() {
        assert_eq!(tried(1700, 0.1), [500, 1000, 2000, 1500, 1750, 1625]);
        assert_eq!(tried(10_000, 0.1), [500, 1000, 2000, 4000, 8000, 8192]);
        // A way that holds few is found, too, and one that holds none.
        assert!(tried(3, 0.3).contains(&3));
        assert_eq!(tried(0, 0.3).last(), Some(&1));
    }

    #[test]
    fn one_late_viewer_of_few_or_a_fault_is_a_miss() {
        let settings = Settings::default();
        let run = |void: &[&str], late: usize, viewers: usize| {
            let mut playouts = Playouts::default();
            for number in 0..viewers {
                playouts.add(Played {
                    packets: 100,
                    needed_ns: if number < late {
                        61_000_000
                    } else {
                        21_000_000
                    },
                    ..Played::default()
                });
            }
            let seen = serve::tests::run(Mode::Uso, Contestant::MmapWritev, 0, 1000);
            let seen = serve::Run {
                void: void.iter().map(|&why| why.to_owned()).collect(),
                playouts: Some(playouts),
                ..seen
            };
            Run::of(&settings, &seen, (4_000_000, Films::One), 1000)
        };
        assert_eq!(run(&[], 1, 1000).missed, [""; 0]);
        assert!(run(&[], 2, 1000).missed[0].contains("2 of 1000 viewers"));
        assert!(run(&[], 0, 999).missed[0].contains("999 of 1000 viewers were followed"));
        let fault = "it did not keep pace: it sent 90 % of what was due";
        assert_eq!(run(&[fault], 0, 1000).missed, [fault]);
        let held = run(&[], 0, 1000);
        assert!((held.cpu_ns_a_packet - 1.0).abs() < 1e-9);
        assert!((held.crossings_a_packet - 0.2).abs() < 1e-9);
        assert!((held.packets_a_send - 1.0).abs() < 1e-9);
    }
}
