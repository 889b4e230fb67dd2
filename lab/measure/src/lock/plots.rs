//! The paper's figures 7 and 8: what the extra `mlock` adds to a registration.

use super::report::cost;
use super::{LockRecord, Memory, Way};
use crate::plot::{Chart, Drawing, Unit};

/// The pictures that a record gives.
#[must_use]
pub fn all(record: &LockRecord) -> Vec<Drawing> {
    let draw = |title: &str, memories: [Memory; 2]| {
        let mut chart = Chart::lines(title)
            .x("size", Unit::Bytes)
            .log_x(2)
            .y("time to register", Unit::Nanoseconds)
            .log_y(10)
            .source(&record.environment);
        for memory in memories {
            for (way, name) in [
                (Way::Pinned, "pinned"),
                (Way::ResidentAndPinned, "with mlock"),
            ] {
                let sizes = record.settings.sizes_bytes.iter();
                #[allow(clippy::cast_precision_loss, reason = "megabytes")]
                let points = sizes.filter_map(|&bytes| {
                    let (lock_ns, _) = cost(record, memory, way, bytes)?;
                    Some((bytes as f64, lock_ns))
                });
                chart = chart.series(&format!("{}: {name}", memory.name()), points);
            }
        }
        chart
    };
    vec![
        Drawing::new(
            "figure-7.svg",
            draw(
                "Registering SysV memory, with and without mlock (figure 7)",
                [Memory::SysvFirst, Memory::SysvAgain],
            ),
        ),
        Drawing::new(
            "figure-8.svg",
            draw(
                "Registering private memory, with and without mlock (figure 8)",
                [Memory::PrivateFirst, Memory::PrivateAgain],
            ),
        ),
    ]
}
