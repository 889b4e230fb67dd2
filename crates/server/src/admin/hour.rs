//! The last hour, for charts: what the server did in each few seconds of it.
//!
//! The thread that answers takes a sample from the counters now and then. A page that is opened is
//! told all of them, and from then on each new one.

use std::collections::VecDeque;

use serde::Serialize;

use super::status::{Histogram, Status};

/// Samples that are kept: an hour of them.
pub const HOUR_SAMPLES_MAX: usize = 720;

/// Seconds from one sample to the next.
pub(super) const SAMPLE_EVERY_S: u64 = 5;

/// What is not late for this part of the bursts.
const LATENESS_PART: f64 = 0.999;

/// What happened between two moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Sample {
    /// From 1 on.
    pub(super) number: u64,
    /// RTSP sessions at its end.
    sessions: u64,
    /// By RTP, channels included, and by HTTP and FTP.
    rtp_bps: u64,
    http_bps: u64,
    /// Requests of HTTP a second.
    requests_hz: f64,
    /// By how much bursts were late at the most, but for one in a thousand; absent if none left.
    late_ns: Option<i64>,
    /// How busy the busiest engine was at its end, as a part of a processor.
    load: f64,
}

/// The samples of the last hour.
#[derive(Debug, Default)]
pub(super) struct Hour {
    samples: VecDeque<Sample>,
    count: u64,
    before: Option<Status>,
}

impl Hour {
    /// Takes what the counters say now.
    pub(super) fn take(&mut self, now: Status) {
        if let Some(before) = &self.before {
            self.count += 1;
            if self.samples.len() >= HOUR_SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back(sample(self.count, before, &now));
        }
        self.before = Some(now);
    }

    /// The samples after number `last`.
    pub(super) fn since(&self, last: u64) -> Vec<Sample> {
        let new = self.samples.iter().filter(|it| it.number > last);
        new.cloned().collect()
    }
}

fn sample(number: u64, before: &Status, now: &Status) -> Sample {
    let elapsed_ns = now.at_ns.saturating_sub(before.at_ns).max(1);
    let grown = |of: &dyn Fn(&Status) -> u64| of(now).saturating_sub(of(before));
    let bps = |bytes: u64| {
        let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(elapsed_ns);
        u64::try_from(bits).unwrap_or(u64::MAX)
    };
    let of_engines = |it: &Status| it.engines.iter().map(|it| it.bytes).sum::<u64>();
    // A channel that is gone has taken its bytes along.
    let of_channels = now.channels.iter().map(|it| {
        let earlier = before.channels.iter().find(|then| then.name == it.name);
        let bytes = earlier.map_or(0, |it| it.sent.bytes);
        it.sent.bytes.saturating_sub(bytes)
    });
    let by_http = |it: &Status| {
        let transferred = it.downloads.as_ref().map_or(0, |it| it.bytes);
        transferred + it.hls.sent_bytes
    };
    let answers = |it: &Status| {
        let downloads = it.downloads.as_ref();
        downloads.map_or(0, |it| it.http_answers.iter().sum())
    };
    let lateness = now.engines.iter().zip(&before.engines);
    let lateness = lateness.map(|(now, before)| now.lateness.since(&before.lateness));
    let lateness = lateness.fold(Histogram::default(), |all, it| all.and(&it));
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    let requests_hz = grown(&answers) as f64 * 1e9 / elapsed_ns as f64;
    let loads = now.engines.iter().map(|it| it.admission.load_measured);
    Sample {
        number,
        sessions: now.sessions.now,
        rtp_bps: bps(grown(&of_engines).saturating_add(of_channels.sum())),
        http_bps: bps(grown(&by_http)),
        requests_hz,
        late_ns: lateness.quantile(LATENESS_PART),
        load: loads.fold(0.0, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::status::{Channel, Downloads, Engine, Sent};

    fn status(at_s: u64, count: u64) -> Status {
        let engine = Engine {
            bytes: 1000 * count,
            lateness: Histogram {
                buckets: vec![(Some(100_000), count), (None, count / 2000)],
                sum: 0,
            },
            ..Engine::default()
        };
        let channel = Channel {
            name: "a".to_owned(),
            sent: Sent {
                bytes: 500 * count,
                ..Sent::default()
            },
            ..Channel::default()
        };
        let downloads = Downloads {
            bytes: 2000 * count,
            http_answers: [0, 2 * count, 0, count, 0],
            ..Downloads::default()
        };
        let mut status = Status {
            at_ns: at_s * 1_000_000_000,
            engines: vec![engine],
            channels: vec![channel],
            downloads: Some(downloads),
            ..Status::default()
        };
        status.sessions.now = count;
        status.hls.sent_bytes = 700 * count;
        status
    }

    #[test]
    fn a_sample_is_what_happened_since_the_one_before() {
        let mut hour = Hour::default();
        hour.take(status(10, 1000));
        assert_eq!(hour.since(0), [], "one moment is no time");
        hour.take(status(14, 3000));
        let sample = Sample {
            number: 1,
            sessions: 3000,
            rtp_bps: 8 * (2000 * 1000 + 2000 * 500) / 4,
            http_bps: 8 * (2000 * 2000 + 2000 * 700) / 4,
            requests_hz: 3.0 * 2000.0 / 4.0,
            late_ns: Some(100_000),
            load: 0.0,
        };
        assert_eq!(hour.since(0), [sample]);
        assert_eq!(hour.since(1), []);
    }

    #[test]
    fn counters_that_begin_anew_are_no_rates() {
        let mut hour = Hour::default();
        hour.take(status(10, 1000));
        let mut anew = status(20, 10);
        anew.channels[0].name = "b".to_owned();
        hour.take(anew);
        let sample = &hour.since(0)[0];
        assert_eq!((sample.http_bps, sample.requests_hz), (0, 0.0));
        // Of the channel that was not there before, all.
        assert_eq!(sample.rtp_bps, 8 * 5000 / 10);
    }

    #[test]
    fn an_hour_is_kept() {
        let mut hour = Hour::default();
        for at in 0..=HOUR_SAMPLES_MAX as u64 + 1 {
            hour.take(status(at, at));
        }
        let all = hour.since(0);
        assert_eq!((all.len(), all[0].number), (HOUR_SAMPLES_MAX, 2));
        assert_eq!(HOUR_SAMPLES_MAX as u64 * SAMPLE_EVERY_S, 3600);
    }
}
