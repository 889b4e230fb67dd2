//! Clocks as they are saved: from each point to the next, in few bytes.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Clock, GROWN_POINTS_MAX, Point};

/// The packets and the ns from each point to the next, the first of which is at 0.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SavedClock(Vec<(u64, u64)>);

/// What is said to be a clock is none.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("no clock")]
pub(super) struct NoClock;

impl From<Clock> for SavedClock {
    fn from(clock: Clock) -> Self {
        let pairs = clock.points.windows(2);
        let steps = pairs.map(|pair| {
            let (from, to) = (pair[0], pair[1]);
            (to.packet - from.packet, to.time_ns - from.time_ns)
        });
        Self(steps.collect())
    }
}

impl TryFrom<SavedClock> for Clock {
    type Error = NoClock;

    fn try_from(SavedClock(steps): SavedClock) -> Result<Self, NoClock> {
        if steps.is_empty() || steps.len() >= GROWN_POINTS_MAX {
            return Err(NoClock);
        }
        let mut last = Point {
            packet: 0,
            time_ns: 0,
        };
        let mut points = Vec::with_capacity(steps.len() + 1);
        points.push(last);
        for (packets, ns) in steps {
            last = Point {
                packet: last.packet.checked_add(packets).ok_or(NoClock)?,
                time_ns: last.time_ns.checked_add(ns).ok_or(NoClock)?,
            };
            points.push(last);
        }
        Ok(Self { points })
    }
}
