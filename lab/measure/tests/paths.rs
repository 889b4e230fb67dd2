//! The paths experiment, small: that it counts, that nothing is void, and that a silent copy makes
//! it so.

use onrush_measure::error::ExperimentError;
use onrush_measure::paths::{self, Sample, Settings, Transport};
use onrush_testkit::{require_root, skip};

fn settings() -> Settings {
    Settings {
        file_bytes: 1 << 20,
        packet_bytes: vec![paths::MTU_PACKET_BYTES, 4096],
        repeats: 1,
        cold: false,
        ..Settings::full()
    }
}

fn run(settings: &Settings) -> Option<paths::PathsRecord> {
    match paths::run(settings, "test", "onrush-lab bench paths", |_, _| {}) {
        Err(ExperimentError::Cores(_)) => {
            skip::record("needs two processors");
            None
        }
        record => Some(record.unwrap()),
    }
}

#[test]
fn every_path_is_counted_at_both_ends_on_every_transport() {
    require_root!();
    let Some(record) = run(&settings()) else {
        return;
    };
    let runs = record.runs.iter().filter_map(|sample| match sample {
        Sample::Path(run) => Some(run),
        _ => None,
    });
    let runs: Vec<_> = runs.filter(|run| run.void.is_empty()).collect();
    // 27 over UDP in two modes and 3 over TCP, each in two sizes.
    assert_eq!(runs.len(), (27 * 2 + 3) * 2);
    let zero_copy = runs.iter().filter(|run| run.sends_zero_copy > 0).count();
    assert!(zero_copy >= 9 * 2, "{zero_copy}");
    // Paths that copy anyway report it as copied.
    let mut zero_copy = runs.iter().filter(|run| run.sends_zero_copy > 0);
    assert!(zero_copy.all(|run| run.packet_bytes > 1472 || run.sends_copied == 0));
    assert!(paths::report(&record).drawings().count() > 0);
}

#[test]
fn unexpected_copies_make_runs_void_and_the_result_red() {
    require_root!();
    let settings = Settings {
        // A device that copies has no segmentation either.
        transports: vec![Transport::SoftwareGso],
        packet_bytes: vec![paths::MTU_PACKET_BYTES],
        paths: ["krtpsendfile", "gso_zerocopy", "rtp_sendfile", "gso"]
            .map(str::to_owned)
            .to_vec(),
        planted_copies: true,
        ..settings()
    };
    let Some(record) = run(&settings) else {
        return;
    };
    for sample in &record.runs {
        let Sample::Path(run) = sample else { continue };
        assert_eq!(run.void.is_empty(), run.path == "gso", "{run:?}");
    }
    assert!(!paths::report(&record).passed());
}
