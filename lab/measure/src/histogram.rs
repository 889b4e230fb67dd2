//! How late things were, in steps: fixed memory, so that a sender can count while it sends.
//!
//! Steps are as wide everywhere, because a bound of 20 ms is judged by how many were later, and
//! some are early, below zero: what the sink counts in, and what records have. `hdrhistogram` has
//! steps that grow, from zero up.

use onrush_testkit::sink;
use serde::{Deserialize, Deserializer, Serialize};

/// The lower edge of the first slot. What is earlier counts there too, what is later than the last
/// slot in the last.
pub const FIRST_NS: i64 = -50_000_000;

/// Width of a slot.
pub const STEP_NS: i64 = 100_000;

/// Slots: up to 450 ms late.
pub const SLOTS: usize = 5000;

/// The latest that is told apart: the last slot begins there.
#[allow(clippy::cast_possible_wrap, reason = "some thousands")]
pub const TOLD_NS_MAX: i64 = FIRST_NS + (SLOTS as i64 - 1) * STEP_NS;

/// Counts by lateness. Kept in files as the slots that hold something.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "Vec<(i64, u64)>", into = "Vec<(i64, u64)>")]
pub struct Histogram {
    slots: Box<[u64]>,
}

/// What is kept of a histogram where there are many of them: with a long tail each would fill as
/// many slots as it has steps. Files from before there was this have the histogram in its place;
/// [`quantiles`] reads both.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Quantiles {
    /// How many were counted.
    pub total: u64,
    /// The lateness in ns that half of them did not exceed, as [`Histogram::quantile_ns`] tells it;
    /// `None` without any.
    pub p50_ns: Option<i64>,
    /// That 99 of 100 did not.
    pub p99_ns: Option<i64>,
    /// That 999 of 1000 did not.
    pub p999_ns: Option<i64>,
    /// That none did.
    pub max_ns: Option<i64>,
}

/// How a file has them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    Slots(Histogram),
    Quantiles(Quantiles),
}

/// Reads quantiles, or the histogram that stands in their place in older files.
///
/// # Errors
///
/// If it is neither.
pub fn quantiles<'de, D: Deserializer<'de>>(from: D) -> Result<Quantiles, D::Error> {
    Ok(match Kept::deserialize(from)? {
        Kept::Slots(histogram) => Quantiles::from(&histogram),
        Kept::Quantiles(quantiles) => quantiles,
    })
}

impl Histogram {
    /// Counts `count` things that were late by `lateness_ns`.
    pub fn count(&mut self, lateness_ns: i64, count: u64) {
        self.slots[slot(lateness_ns)] += count;
    }

    /// What was counted since `earlier`, a copy of this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let both = self.slots.iter().zip(&earlier.slots);
        let slots = both.map(|(now, then)| now.saturating_sub(*then)).collect();
        Self { slots }
    }

    /// How many were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.slots.iter().sum()
    }

    /// How many were counted in the slot that `lateness_ns` is in, or in a later one: from
    /// [`FIRST_NS`] to [`TOLD_NS_MAX`], and where a slot begins, those that were as late or later.
    #[must_use]
    pub fn later_than(&self, lateness_ns: i64) -> u64 {
        self.slots[slot(lateness_ns)..].iter().sum()
    }

    /// The slots that hold something: where each begins, and how many.
    pub fn slots(&self) -> impl Iterator<Item = (i64, u64)> {
        let slots = (0..).zip(&self.slots);
        slots
            .filter(|&(_, &count)| count > 0)
            .map(|(i, &count)| (FIRST_NS + i * STEP_NS, count))
    }

    /// The lateness that `fraction` (0 to 1) of them did not exceed, rounded up to the end of its
    /// slot. `None` if nothing was counted.
    #[must_use]
    pub fn quantile_ns(&self, fraction: f64) -> Option<i64> {
        let total = self.total();
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and a count far below 2^53"
        )]
        let wanted = ((total as f64 * fraction.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        (0..).zip(&self.slots).find_map(|(i, count)| {
            seen += count;
            (seen >= wanted).then_some(FIRST_NS + (i + 1) * STEP_NS)
        })
    }
}

impl From<&Histogram> for Quantiles {
    fn from(histogram: &Histogram) -> Self {
        Self {
            total: histogram.total(),
            p50_ns: histogram.quantile_ns(0.5),
            p99_ns: histogram.quantile_ns(0.99),
            p999_ns: histogram.quantile_ns(0.999),
            max_ns: histogram.quantile_ns(1.0),
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            slots: vec![0; SLOTS].into_boxed_slice(),
        }
    }
}

impl From<&sink::Histogram> for Histogram {
    fn from(sink: &sink::Histogram) -> Self {
        let mut histogram = Self::default();
        histogram.count(i64::MIN, sink.under);
        for (i, &count) in (0..).zip(&sink.steps) {
            histogram.count(sink::LATENESS_FLOOR_NS + i * sink::LATENESS_STEP_NS, count);
        }
        histogram.count(i64::MAX, sink.over);
        histogram
    }
}

impl From<Histogram> for Vec<(i64, u64)> {
    fn from(histogram: Histogram) -> Self {
        histogram.slots().collect()
    }
}

impl TryFrom<Vec<(i64, u64)>> for Histogram {
    type Error = String;

    fn try_from(pairs: Vec<(i64, u64)>) -> Result<Self, String> {
        let mut histogram = Self::default();
        for (edge_ns, count) in pairs {
            let place = slot(edge_ns);
            if i64::try_from(place).map(|i| FIRST_NS + i * STEP_NS) != Ok(edge_ns) {
                return Err(format!("no slot of a histogram begins at {edge_ns} ns"));
            }
            histogram.slots[place] += count;
        }
        Ok(histogram)
    }
}

const _: () = assert!(FIRST_NS == sink::LATENESS_FLOOR_NS && STEP_NS == sink::LATENESS_STEP_NS);

fn slot(lateness_ns: i64) -> usize {
    let from_first = lateness_ns.saturating_sub(FIRST_NS).max(0) / STEP_NS;
    usize::try_from(from_first).unwrap_or(0).min(SLOTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_end_of_its_slot() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), None);
        histogram.count(0, 98);
        histogram.count(i64::MIN, 1);
        histogram.count(i64::MAX, 1);
        assert_eq!(histogram.quantile_ns(0.0), Some(FIRST_NS + STEP_NS));
        assert_eq!(histogram.quantile_ns(0.5), Some(STEP_NS));
        assert_eq!(histogram.quantile_ns(0.99), Some(STEP_NS));
        assert_eq!(histogram.quantile_ns(1.0), Some(450_000_000));
        histogram.count(-1, 100);
        assert_eq!(histogram.quantile_ns(0.5), Some(0));
    }

    #[test]
    fn the_sinks_histogram_keeps_its_edges() {
        let mut steps = vec![0; SLOTS];
        (steps[0], steps[500], steps[SLOTS - 1]) = (1, 10, 1);
        let sink = sink::Histogram {
            under: 1,
            steps,
            over: 1,
        };
        let ours = Histogram::from(&sink);
        assert_eq!(ours.total(), sink.packets());
        assert_eq!(ours.quantile_ns(0.5), sink.quantile_ns(0.5));
        assert_eq!(ours.quantile_ns(0.5), Some(STEP_NS));
    }

    #[test]
    fn later_than_a_slots_end_is_late() {
        let mut histogram = Histogram::default();
        histogram.count(-1_000_000, 5);
        histogram.count(19_999_999, 2);
        histogram.count(20_000_000, 1);
        histogram.count(i64::MAX, 1);
        assert_eq!(histogram.later_than(20_000_000), 2);
        assert_eq!(histogram.later_than(i64::MIN), 9);
        assert_eq!(histogram.later_than(i64::MAX), 1);
        histogram.count(TOLD_NS_MAX - 1, 1);
        assert_eq!(histogram.later_than(TOLD_NS_MAX), 1);
    }

    #[test]
    fn what_was_counted_since_is_the_difference() {
        let mut histogram = Histogram::default();
        histogram.count(5, 3);
        let then = histogram.clone();
        histogram.count(5, 1);
        histogram.count(200_000, 2);
        assert_eq!(histogram.since(&then).total(), 3);
        assert_eq!(histogram.since(&then).quantile_ns(1.0), Some(300_000));
    }

    #[test]
    fn it_survives_a_file_and_refuses_what_is_no_slot() {
        let mut histogram = Histogram::default();
        for lateness_ns in [i64::MIN, -1, 0, 99_999, 7_000_000, i64::MAX] {
            histogram.count(lateness_ns, 2);
        }
        let text = serde_json::to_string(&histogram).unwrap();
        assert!(
            text.starts_with("[[-50000000,2],[-100000,2],[0,4],"),
            "{text}"
        );
        let back: Histogram = serde_json::from_str(&text).unwrap();
        assert_eq!(back, histogram);
        for wrong in ["[[1,1]]", "[[450000000,1]]", "[[-50100000,1]]"] {
            assert!(serde_json::from_str::<Histogram>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn quantiles_are_read_from_new_and_from_older_files() {
        let mut histogram = Histogram::default();
        for (lateness_ns, count) in [(0, 600), (2_000_000, 391), (9_000_000, 8), (30_000_000, 1)] {
            histogram.count(lateness_ns, count);
        }
        let quantiles = Quantiles::from(&histogram);
        let told = [
            quantiles.p50_ns,
            quantiles.p99_ns,
            quantiles.p999_ns,
            quantiles.max_ns,
        ];
        let expected = [100_000, 2_100_000, 9_100_000, 30_100_000];
        assert_eq!((quantiles.total, told), (1000, expected.map(Some)));
        let slots = serde_json::to_string(&histogram).unwrap();
        let few = serde_json::to_string(&quantiles).unwrap();
        let read = |text: &str| super::quantiles(&mut serde_json::Deserializer::from_str(text));
        for text in [&slots, &few] {
            assert_eq!(read(text).unwrap(), quantiles);
        }
        let nothing = Quantiles::from(&Histogram::default());
        assert_eq!(nothing, Quantiles::default());
        assert_eq!(read("[]").unwrap(), nothing);
        for wrong in ["[[1,1]]", "{}", r#"{"total":1,"p50_ns":"x"}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
