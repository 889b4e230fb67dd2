//! Clocks as they are saved: from each point to the next, in few bytes.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::breaks::{self, Break};
use super::{Clock, GROWN_POINTS_MAX, Point};

/// The packets and the ns from each point to the next, the first of which is at 0; and of each
/// break the packet that it is behind, and that at which it is.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SavedClock(Vec<(u64, u64)>, Vec<(u64, u64)>);

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
        let breaks = clock.breaks.iter().map(|it| (it.after, it.packet));
        Self(steps.collect(), breaks.collect())
    }
}

impl TryFrom<SavedClock> for Clock {
    type Error = NoClock;

    fn try_from(SavedClock(steps, breaks): SavedClock) -> Result<Self, NoClock> {
        if steps.is_empty() || steps.len() >= GROWN_POINTS_MAX {
            return Err(NoClock);
        }
        let breaks = breaks.into_iter();
        let breaks = breaks.map(|(after, packet)| Break { after, packet });
        let breaks: Vec<_> = breaks.collect();
        if !breaks::are_sound(&breaks) {
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
        Ok(Self { points, breaks })
    }
}
