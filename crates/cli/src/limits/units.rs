//! Bounds as they are printed.

use std::time::Duration;

use onrush_wire::media::ts::clock;

use crate::units::{Rate, Size, Time};

pub(super) fn count(number: impl ToString) -> String {
    number.to_string()
}

pub(super) fn bytes(bytes: impl TryInto<u64>) -> String {
    Size(bytes.try_into().unwrap_or(u64::MAX)).to_string()
}

pub(super) fn rate(bits_per_second: u64) -> String {
    Rate(bits_per_second).to_string()
}

pub(super) fn time(time: Duration) -> String {
    Time(time).to_string()
}

pub(super) fn nanoseconds(ns: u64) -> String {
    time(Duration::from_nanos(ns))
}

pub(super) fn microseconds(us: u64) -> String {
    time(Duration::from_micros(us))
}

pub(super) fn pcr_ticks(ticks: u64) -> String {
    time(Duration::from_nanos(ticks * 1_000_000_000 / clock::PCR_HZ))
}
