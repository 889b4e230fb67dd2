//! What a stream has sent, for the log.

use crate::engine::StreamSnapshot;

pub(super) fn describe(snapshot: &StreamSnapshot) -> String {
    let StreamSnapshot {
        packets,
        bytes,
        packets_refused,
        lateness_mean_ns,
        lateness_max_ns,
        ..
    } = *snapshot;
    format!(
        "{packets} packets, {bytes} bytes, {packets_refused} refused, lateness mean {:.3} ms, \
         worst {:.3} ms",
        ms(lateness_mean_ns),
        ms(lateness_max_ns),
    )
}

#[allow(
    clippy::cast_precision_loss,
    reason = "for people; 2^53 ns are 104 days"
)]
fn ms(time_ns: i64) -> f64 {
    time_ns as f64 / 1e6
}
