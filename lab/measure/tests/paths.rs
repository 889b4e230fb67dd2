//! The paths experiment, small: that it counts, that nothing is void, and that a silent copy makes
//! it so.

use std::collections::BTreeSet;

use onrush_measure::error::ExperimentError;
use onrush_measure::paths::{self, Sample, Settings, Transport};
use onrush_paths::Touch;
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
    let mut kept = None;
    let mut keep = |record: &paths::PathsRecord| kept = Some(record.clone());
    let command = "onrush-lab bench paths";
    let record = paths::run(settings, "test", command, |_, _| {}, &mut keep);
    match record {
        Err(ExperimentError::Cores(_)) => {
            skip::record("needs two processors");
            None
        }
        record => {
            let record = record.unwrap();
            // What ends early loses none of its runs.
            assert_eq!(kept.as_ref(), Some(&record));
            Some(record)
        }
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

/// Every path with every touch that it can have, over every transport, against the file.
#[test]
fn what_is_touched_arrives_as_it_must() {
    require_root!();
    let settings = Settings {
        packet_bytes: vec![paths::MTU_PACKET_BYTES],
        touches: Touch::ALL.map(|touch| touch.name().to_owned()).to_vec(),
        ..settings()
    };
    let Some(record) = run(&settings) else {
        return;
    };
    let mut kinds = BTreeSet::new();
    for sample in &record.runs {
        let Sample::Path(run) = sample else { continue };
        if run.void.is_empty() {
            assert_eq!(run.verified_packets, 3 * 128, "{run:?}");
            kinds.insert((run.transport.name(), run.path.clone(), run.touch.clone()));
        }
    }
    // As above; three over UDP and one over TCP can be checked and not be changed.
    let expected = 2 * (27 * 4 - 3 * 2) + (3 * 4 - 2);
    assert_eq!(kinds.len(), expected, "{:?}", void(&record));
    let report = paths::report(&record);
    let told = report.to_string();
    for caption in [
        "uso, encrypt: medians",
        "software-gso, filter: medians",
        "cannot",
    ] {
        assert!(told.contains(caption), "{caption}: {told}");
    }
}

#[test]
fn a_wrong_byte_makes_every_run_void() {
    require_root!();
    let settings = Settings {
        packet_bytes: vec![paths::MTU_PACKET_BYTES],
        paths: [
            "read_send_rtp",
            "mmap_writev",
            "krtpsendfile",
            "sendfile_tcp",
        ]
        .map(str::to_owned)
        .to_vec(),
        transports: vec![Transport::Uso, Transport::Tcp],
        touches: Touch::ALL.map(|touch| touch.name().to_owned()).to_vec(),
        planted_byte: true,
        ..settings()
    };
    let Some(record) = run(&settings) else {
        return;
    };
    let mut runs = 0;
    for sample in &record.runs {
        let Sample::Path(run) = sample else { continue };
        let said = run.void.join("; ");
        // In the middle of the first packets.
        assert!(said.contains("packet 64, "), "{run:?}");
        runs += 1;
    }
    assert!(runs >= 4 * 3 + 2, "{runs}");
    assert!(!paths::report(&record).passed());
}

#[test]
fn cold_runs_have_every_size_in_every_mode() {
    require_root!();
    let settings = Settings {
        paths: ["read_send_rtp", "krtpsendfile"]
            .map(str::to_owned)
            .to_vec(),
        cold: true,
        ..settings()
    };
    let Some(record) = run(&settings) else {
        return;
    };
    let runs = record.runs.iter().filter_map(|sample| match sample {
        Sample::Path(run) => Some(run),
        _ => None,
    });
    let cold: BTreeSet<_> = runs
        .filter(|run| run.is_cold && run.void.is_empty())
        .map(|run| (run.transport.name(), run.packet_bytes, run.path.clone()))
        .collect();
    assert_eq!(cold.len(), 2 * 2 * 2, "{:?}", void(&record));
    let told = paths::report(&record).to_string();
    assert!(told.contains("software-gso, cold: medians"), "{told}");
}

/// Why runs are void.
fn void(record: &paths::PathsRecord) -> Vec<&str> {
    let of = record.runs.iter().filter_map(|sample| match sample {
        Sample::Path(run) => Some(run.void.iter().map(String::as_str)),
        _ => None,
    });
    of.flatten().collect()
}
