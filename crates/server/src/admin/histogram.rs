//! Values counted by size.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::engine::shared::{
    BATCH_BUCKETS, LATENESS_BUCKET_NS, LATENESS_BUCKETS, LATENESS_FIRST_NS,
};

/// How often what happened.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Histogram {
    /// The upper end of each bucket that is not empty, ascending (none: it has no end), and how
    /// many fell there.
    pub buckets: Vec<(Option<i64>, u64)>,
    /// All values added up; negative ones as 0.
    pub sum: u64,
}

/// The buckets that are not empty.
pub(super) fn filled(
    buckets: &[AtomicU64],
    end: fn(usize) -> Option<i64>,
) -> Vec<(Option<i64>, u64)> {
    let counts = buckets
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .enumerate();
    let counts = counts.filter(|&(_, count)| count > 0);
    counts.map(|(i, count)| (end(i), count)).collect()
}

pub(super) fn lateness_end_ns(bucket: usize) -> Option<i64> {
    let buckets = i64::try_from(bucket + 1).ok()?;
    (bucket < LATENESS_BUCKETS - 1).then_some(LATENESS_FIRST_NS + buckets * LATENESS_BUCKET_NS)
}

pub(super) fn batch_end(bucket: usize) -> Option<i64> {
    (bucket < BATCH_BUCKETS - 1).then_some(1 << bucket)
}

impl Histogram {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// How many were not above `end`, which is the end of a bucket.
    #[must_use]
    pub fn up_to(&self, end: i64) -> u64 {
        let below = self
            .buckets
            .iter()
            .take_while(|(bucket, _)| bucket.is_some_and(|bucket| bucket <= end));
        below.map(|(_, count)| count).sum()
    }

    /// What `part` of all were not above, as the end of a bucket; [`i64::MAX`] if that has none.
    /// `None` if there were none.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a count is a count"
    )]
    pub fn quantile(&self, part: f64) -> Option<i64> {
        let rank = ((self.count() as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().find_map(|&(end, count)| {
            seen += count;
            (seen >= rank).then(|| end.unwrap_or(i64::MAX))
        })
    }

    /// What happened since `earlier`, of the same server.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |end| earlier.buckets.iter().find(|&&(e, _)| e == end);
        let buckets = self.buckets.iter().map(|&(end, count)| {
            let before = before(end).map_or(0, |&(_, count)| count);
            (end, count.saturating_sub(before))
        });
        Self {
            buckets: buckets.filter(|&(_, count)| count > 0).collect(),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for &(end, count) in &other.buckets {
            // What has no end is the largest.
            let key = |end: Option<i64>| end.unwrap_or(i64::MAX);
            match self
                .buckets
                .binary_search_by_key(&key(end), |&(end, _)| key(end))
            {
                Ok(at) => self.buckets[at].1 += count,
                Err(at) => self.buckets.insert(at, (end, count)),
            }
        }
        self.sum += other.sum;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(buckets: &[(Option<i64>, u64)]) -> Histogram {
        Histogram {
            buckets: buckets.to_vec(),
            sum: 7,
        }
    }

    #[test]
    fn buckets_end_where_the_engine_says() {
        assert_eq!(lateness_end_ns(0), Some(-49_900_000));
        assert_eq!(lateness_end_ns(499), Some(0));
        assert_eq!(lateness_end_ns(LATENESS_BUCKETS - 2), Some(154_700_000));
        assert_eq!(lateness_end_ns(LATENESS_BUCKETS - 1), None);
        assert_eq!(batch_end(0), Some(1));
        assert_eq!(batch_end(BATCH_BUCKETS - 2), Some(1 << 14));
        assert_eq!(batch_end(BATCH_BUCKETS - 1), None);
    }

    #[test]
    fn histograms_are_read_added_and_subtracted() {
        let some = histogram(&[(Some(-5), 1), (Some(0), 97), (Some(9), 1), (None, 1)]);
        assert_eq!((some.count(), some.up_to(0), some.up_to(8)), (100, 98, 98));
        assert_eq!(some.up_to(9), 99);
        assert_eq!(some.quantile(0.0), Some(-5));
        assert_eq!(some.quantile(0.98), Some(0));
        assert_eq!(some.quantile(0.99), Some(9));
        assert_eq!(some.quantile(1.0), Some(i64::MAX));
        assert_eq!(Histogram::default().quantile(0.5), None);
        let more = some.clone().and(&histogram(&[(Some(3), 2), (None, 1)]));
        assert_eq!(
            more.buckets,
            [
                (Some(-5), 1),
                (Some(0), 97),
                (Some(3), 2),
                (Some(9), 1),
                (None, 2)
            ]
        );
        assert_eq!(more.sum, 14);
        assert_eq!(more.since(&some), histogram(&[(Some(3), 2), (None, 1)]));
    }
}
