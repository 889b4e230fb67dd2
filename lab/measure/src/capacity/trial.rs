//! A trial: one number of viewers, nothing searched, and judged by what the server does when it is
//! too much.
//!
//! More viewers than it may take (`load_max_percent`): those who are let in are on time, and the
//! others were answered 453. Or it is stopped for a while (`stall_ns`): then all are late alike,
//! and asked is what comes after. Nothing is lost, no stream floods its client, all play on, and
//! the server's status tells what happened.

use onrush_server::admin::status::Engine;

use super::settings::Settings;
use super::status;
use crate::error::what_is;
use crate::load::report::Figures;
use crate::load::{self, NOT_LET_IN};

/// Bursts of a stream that may come together: one that is due, and one to catch up.
const BURSTS_TOGETHER_MAX: u64 = 2;

/// Payload of an RTP packet: seven transport packets.
const PAYLOAD_BITS: u64 = 7 * 188 * 8;

/// Of the packets that are due, so many of 1000 come at least. The time of a stop is known to some
/// milliseconds.
const CAME_PERMILLE_MIN: u64 = 970;

impl Settings {
    /// Whether [`Self::clients_first`] are tried once instead of searched from.
    #[must_use]
    pub fn is_trial(&self) -> bool {
        self.load_max_percent.is_some() || self.stall_ns > 0
    }

    /// What a load says. Where refusals are asked for, who still waits because of one is none that
    /// was served late.
    pub(super) fn figures(&self, load: &load::Settings, seen: &mut load::Run) -> Figures {
        let unserved = seen.unserved;
        if self.load_max_percent.is_some() {
            seen.unserved = 0;
        }
        let figures = Figures::of(load, seen);
        seen.unserved = unserved;
        figures
    }

    /// Of what a load has `missed`, what counts here; and what a trial is judged by besides.
    /// `counted` is from our server.
    pub(super) fn judge(
        &self,
        mut missed: Vec<String>,
        burst_ns: u64,
        seen: &load::Run,
        counted: Option<&Engine>,
    ) -> Vec<String> {
        // Whoever was too much was told so: that is what is asked for, if it is.
        let is_refusal = |missed: &String| {
            missed.ends_with(NOT_LET_IN) || missed.ends_with("viewers watched at the end")
        };
        missed.retain(|missed| self.load_max_percent.is_none() || !is_refusal(missed));
        if let Some((sent, sunk)) = counted.map(|it| it.packets).zip(seen.packets_sunk) {
            missed.extend(what_is! {
                sent != sunk => "the server sent {sent} packets, and the sink counted {sunk}";
            });
        }
        if self.stall_ns > 0 {
            missed.extend(self.judge_stall(burst_ns, seen, counted));
        }
        missed
    }

    fn judge_stall(
        &self,
        burst_ns: u64,
        seen: &load::Run,
        counted: Option<&Engine>,
    ) -> Vec<String> {
        // A peer's bursts are its own affair.
        let together_max = self.packets_together_max(burst_ns);
        let together = seen.totals.burst_packets_max;
        // Those who were let in later have watched for less.
        let watched_ns = self.time_ns.saturating_sub(self.stall_ns);
        let due = self.packets_in(watched_ns);
        let due = due.saturating_mul(u64::from(seen.watching));
        let came = seen.packets_steady;
        let is_short = u128::from(came) * 1000 < u128::from(due) * u128::from(CAME_PERMILLE_MIN);
        let is_silent = |counted: &Engine| {
            counted.lags == 0 && status::late(counted, self.lateness_ns_max) == 0
        };
        what_is! {
            burst_ns > 0 && together > together_max
                => "{together} packets of a stream came together; {together_max} may, two bursts";
            seen.failures.is_empty() && is_short
                => "{came} packets came; without the time of the stop {due} were due";
            counted.is_some_and(is_silent)
                => "the server's status does not tell that it was held up";
        }
    }

    /// Packets of a stream that may come together. A burst may have one more than its time has on
    /// average.
    fn packets_together_max(&self, burst_ns: u64) -> u64 {
        BURSTS_TOGETHER_MAX * (self.packets_in(burst_ns) + 2)
    }

    /// Packets of a stream that are due within that time, rounded down.
    fn packets_in(&self, time_ns: u64) -> u64 {
        let bits = u128::from(self.rate_bps) * u128::from(time_ns) / 1_000_000_000;
        u64::try_from(bits / u128::from(PAYLOAD_BITS)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use onrush_server::admin::status::Histogram;

    use super::*;
    use crate::load::Arrived;

    /// What is missed of ten viewers whose server was stopped for one second of six, and counted
    /// so many moved clocks and late bursts.
    fn stalled(together: u64, came: u64, (lags, late): (u64, u64)) -> Vec<String> {
        let settings = Settings {
            stall_ns: 1_000_000_000,
            time_ns: 6_000_000_000,
            ..Settings::default()
        };
        let seen = load::Run {
            watching: 10,
            packets_steady: came,
            totals: Arrived {
                burst_packets_max: together,
                ..Arrived::default()
            },
            ..load::Run::default()
        };
        let lateness = Histogram {
            buckets: vec![(Some(20_000_000), 100), (None, late)],
            sum: 0,
        };
        let counted = Engine {
            lags,
            lateness,
            ..Engine::default()
        };
        settings.judge(Vec::new(), 20_000_000, &seen, Some(&counted))
    }

    #[test]
    fn a_stopped_server_neither_floods_nor_falls_silent_and_tells() {
        // 4 Mbit/s are 379.9 packets a second and 7.6 in a burst, so 8, and 9 by rounding.
        let (moved, late, none) = ((1, 0), (0, 1), (0, 0));
        assert_eq!(stalled(18, 18_990, moved), [""; 0]);
        assert_eq!(stalled(8, 18_421, late), [""; 0]);
        assert!(stalled(19, 18_990, moved)[0].contains("19 packets of a stream"));
        assert!(stalled(8, 18_420, moved)[0].contains("18420 packets came"));
        assert!(stalled(8, 18_990, none)[0].contains("status"));
        assert_eq!(stalled(19, 0, none).len(), 3);
    }

    #[test]
    fn bounded_load_demands_refusals_and_other_load_a_miss() {
        let missed = || {
            let refused = format!("7 times: {NOT_LET_IN}");
            let away = "3 of 10 viewers watched at the end".to_owned();
            vec![refused, away, "1 packets were lost".to_owned()]
        };
        let searched = Settings::default();
        let bounded = Settings {
            load_max_percent: Some(90),
            ..Settings::default()
        };
        assert!(bounded.is_trial() && !searched.is_trial());
        let seen = load::Run::default();
        assert_eq!(searched.judge(missed(), 0, &seen, None), missed());
        assert_eq!(bounded.judge(missed(), 0, &seen, None), missed()[2..]);
    }
}
