//! What is kept of the experiment: settings, cases, and raw samples.

use onrush_server::channels::Stats;
use onrush_testkit::testbed::Mode;
use serde::{Deserialize, Serialize};

use crate::counters::Counted;
use crate::error::{ExperimentError, bounds, refuse, what_is};
use crate::experiment::Record;
use crate::histogram::Histogram;
use crate::stats::ratio;

/// Its name on the command line and in files.
pub const NAME: &str = "relay";

/// How late a packet may be, beyond the delay that the relay was allowed, and still be on time.
pub const BUDGET_NS: u64 = 20_000_000;

/// The way of a case that is replicated at tc ingress.
pub const IN_KERNEL: &str = "in-kernel";

/// Receivers at the most: as many ports as the sink counts.
pub const RECEIVERS_MAX: u32 = 50_000;

/// What is measured.
pub type RelayRecord = Record<Settings, Run>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// The stream's rate, without headers, in bit/s.
    pub rate_bps: u64,
    /// How long a run sends before it is measured.
    pub warm_up_ns: u64,
    /// How long it is measured.
    pub measured_ns: u64,
    /// How often each case is run, turn about.
    pub repeats: u32,
    /// Who cuts trains.
    pub mode: Mode,
    /// What is tried.
    pub cases: Vec<Case>,
    /// Whether the relay's processor is kept from resting, but where the kernel relays; see
    /// [`Awake`](crate::machine::Awake).
    pub keep_awake: bool,
    /// Whether instructions, cycles and misses are counted; see [`Counted`].
    #[serde(default)]
    pub counters: bool,
}

/// One way to relay to so many.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Case {
    /// How many get the stream.
    pub receivers: u32,
    /// How long packets may wait for each other.
    pub delay_ns: u64,
    /// How the group replicates; `None` for the best there is, [`IN_KERNEL`] where packets arrive.
    pub way: Option<String>,
    /// Whether it is to be held on time, or just tried.
    pub is_judged: bool,
    /// How often a second somebody joins or leaves, beside the receivers; records of before have
    /// nobody.
    #[serde(default)]
    pub changes_per_s: u32,
}

/// What one case did, once.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Which case, from 0.
    pub case: usize,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// Packets that the source sent, from the first to the last.
    pub source_packets: u64,
    /// Packets that the relay took in.
    pub received_packets: u64,
    /// Packets that the relay gave to receivers, as it says.
    pub sent_packets: u64,
    /// Packets that it says were refused.
    pub refused_packets: u64,
    /// Sends to the whole group.
    pub trains: u64,
    /// Entries into the kernel to send.
    pub crossings: u64,
    /// Packets that arrived, as the sink counted.
    pub arrived_packets: u64,
    /// Socket buffers that they arrived in.
    pub arrived_skbs: u64,
    /// RTP sequence numbers that the sink missed.
    pub sequence_missing: u64,
    /// RTP packets that came to the sink again, or too late.
    pub sequence_repeated: u64,
    /// The measured time.
    pub wall_ns: u64,
    /// Processor time of the relay's thread in it.
    pub cpu_ns: u64,
    /// What the processor counted meanwhile of the relay's thread, and of the kernel's that takes
    /// in, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// How long its processor was busy in it, for whomever.
    pub core_busy_ns: u64,
    /// Packets that arrived in it.
    pub measured_packets: u64,
    /// How late those arrived that were looked at, from the source's send on.
    pub lateness: Histogram,
}

impl Run {
    pub(super) fn of(told: &Stats) -> Self {
        Self {
            case: 0,
            repeat: 0,
            source_packets: 0,
            received_packets: told.heard.datagrams,
            sent_packets: told.packets,
            refused_packets: told.refused,
            trains: told.trains,
            crossings: told.crossings,
            arrived_packets: 0,
            arrived_skbs: 0,
            sequence_missing: 0,
            sequence_repeated: 0,
            wall_ns: 0,
            cpu_ns: 0,
            counted: None,
            core_busy_ns: 0,
            measured_packets: 0,
            lateness: Histogram::default(),
        }
    }

    /// Why its receivers were not held on time; empty if they were.
    #[must_use]
    pub fn faults(&self, case: &Case) -> Vec<String> {
        let all = self.source_packets * u64::from(case.receivers);
        let (sent, arrived) = (self.sent_packets, self.arrived_packets);
        let (missing, again) = (self.sequence_missing, self.sequence_repeated);
        let late_ns = self.lateness.quantile_ns(0.999).unwrap_or(i64::MAX);
        let allowed_ns = i64::try_from(case.delay_ns + BUDGET_NS).unwrap_or(i64::MAX);
        // Who joins and leaves is sent to as well, and not at the sink.
        let is_sent = sent == all || case.changes_per_s > 0 && sent > all;
        what_is! {
            arrived != all || !is_sent
                => "{all} packets were due, {sent} were sent, {arrived} arrived";
            missing + again > 0 => "{missing} sequence numbers were missing, {again} came again";
            late_ns > allowed_ns => "99.9 % arrived within {} ms only", late_ns / 1_000_000;
        }
    }

    /// Processor time for each packet and receiver: of the processor, softirqs and all, in ns.
    #[must_use]
    pub fn busy_ns_a_packet(&self) -> f64 {
        ratio(self.core_busy_ns, self.measured_packets.max(1))
    }
}

impl Settings {
    /// The judged cases and the steps around them.
    #[must_use]
    pub fn full() -> Self {
        let steps = |way: Option<&str>, delay_ns, judged: u32, all: &[u32]| -> Vec<Case> {
            let case = |&receivers: &u32| Case {
                receivers,
                delay_ns,
                way: way.map(str::to_owned),
                is_judged: receivers == judged,
                changes_per_s: 0,
            };
            all.iter().map(case).collect()
        };
        let mut cases = steps(None, 0, 3000, &[100, 3000, 9000, 24_000]);
        let in_kernel = steps(Some(IN_KERNEL), 0, 3000, &[100, 3000, 9000, 12_000]);
        cases.extend(in_kernel);
        let delayed = steps(None, 20_000_000, 10_000, &[10_000, 15_000, 30_000]);
        cases.extend(delayed);
        let gathered = steps(
            Some(IN_KERNEL),
            20_000_000,
            10_000,
            &[10_000, 15_000, 30_000],
        );
        cases.extend(gathered);
        for way in [None, Some(IN_KERNEL)] {
            let changed = steps(way, 0, 3000, &[3000]).into_iter();
            cases.extend(changed.map(|case| Case {
                changes_per_s: 200,
                ..case
            }));
        }
        Self {
            rate_bps: 4_000_000,
            warm_up_ns: 1_000_000_000,
            measured_ns: 4_000_000_000,
            repeats: 3,
            mode: Mode::Uso,
            cases,
            keep_awake: true,
            counters: false,
        }
    }

    /// The judged cases alone, once, shorter.
    #[must_use]
    pub fn quick() -> Self {
        let mut settings = Self::full();
        settings.cases.retain(|case| case.is_judged);
        settings.measured_ns = 3_000_000_000;
        settings.repeats = 1;
        settings
    }

    /// Refuses what cannot be measured, in words with the bound.
    ///
    /// # Errors
    ///
    /// [`ExperimentError::Settings`].
    pub fn check(&self) -> Result<(), ExperimentError> {
        refuse! { ExperimentError::Settings;
            self.cases.is_empty() || self.repeats == 0
                => "nothing to do: ask for a case and a repeat";
        }
        for case in &self.cases {
            bounds! {
                case.receivers, 1..=RECEIVERS_MAX, Count, "receivers";
                case.changes_per_s, 0..=10_000, Count, "joins and leaves a second";
            }
        }
        bounds! {
            self.rate_bps, 100_000..=100_000_000, BitsPerSecond, "to each";
            self.measured_ns, 100_000_000..=60_000_000_000, Nanoseconds, "in a run";
        }
        Ok(())
    }
}

impl Case {
    pub(super) fn is_in_kernel(&self) -> bool {
        self.way.as_deref() == Some(IN_KERNEL)
    }

    /// What it is, in words: the same in every record.
    #[must_use]
    pub fn told(&self) -> String {
        let way = self.way.as_deref().unwrap_or("best");
        let delay_ms = self.delay_ns / 1_000_000;
        let changes = match self.changes_per_s {
            0 => String::new(),
            changes => format!(", {changes} joins and leaves a second"),
        };
        format!("{way} to {}, {delay_ms} ms{changes}", self.receivers)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn held() -> (Run, Case) {
        let case = Case {
            receivers: 10,
            delay_ns: 5_000_000,
            way: None,
            is_judged: true,
            changes_per_s: 0,
        };
        let mut run = Run::of(&Stats::default());
        run.source_packets = 100;
        (run.sent_packets, run.arrived_packets) = (1000, 1000);
        run.lateness.count(24_900_000, 1000);
        (run, case)
    }

    #[test]
    fn receivers_are_held_up_to_the_budget_and_no_further() {
        let (run, case) = held();
        assert_eq!(run.faults(&case), [""; 0]);
        type Change = fn(&mut Run);
        let changes: [(&str, Change); 6] = [
            ("1000 packets were due", |run| run.arrived_packets -= 1),
            ("1000 packets were due", |run| run.arrived_packets += 1),
            ("1000 packets were due", |run| run.sent_packets -= 1),
            ("1 sequence numbers", |run| run.sequence_missing = 1),
            ("1 came again", |run| run.sequence_repeated = 1),
            ("within 25 ms only", |run| run.lateness.count(25_000_000, 3)),
        ];
        for (said, change) in changes {
            let (mut run, case) = held();
            change(&mut run);
            let faults = run.faults(&case).join("; ");
            assert!(faults.contains(said), "{said}: {faults}");
        }
        // Who joined meanwhile was sent to as well.
        let (mut run, mut case) = held();
        run.sent_packets += 1;
        case.changes_per_s = 1;
        assert_eq!(run.faults(&case), [""; 0]);
        // One in a thousand may be later.
        let (mut run, case) = held();
        run.lateness.count(99_000_000, 1);
        assert_eq!(run.faults(&case), [""; 0]);
    }

    #[test]
    fn settings_are_bounded() {
        Settings::full().check().unwrap();
        Settings::quick().check().unwrap();
        let mut settings = Settings::quick();
        settings.cases[0].receivers = RECEIVERS_MAX;
        settings.check().unwrap();
        settings.cases[0].receivers += 1;
        assert!(settings.check().is_err());
        settings.cases.clear();
        assert!(settings.check().is_err());
    }
}
