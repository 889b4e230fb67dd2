//! Faults planted in a server are caught by those who judge it: the suite can go red.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use onrush_server::config::Config;
use onrush_server::experiments::{Experiments, Fault as Planted, Faults};
use onrush_server::server::Server;
use onrush_testkit::checker::{Expected, Fault, Report, Start};
use onrush_testkit::require_root;
use onrush_testkit::testbed::{Mode, SND_IPV4};

use common::{RTSP_PORT, Site, Viewer, clip, expected};

mod common;

/// Plays the clip from a server in this process that does these things wrong.
fn play(faults: &[Planted]) -> Report {
    let clip = clip(4.0);
    let ts: Arc<[u8]> = Arc::from(&*clip);
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), &clip).unwrap();
    onrush_testkit::media::age(&media.path().join("clip.ts")).unwrap();
    let mut experiments = Experiments::default();
    experiments.faults = Faults::planted(faults);
    let config = Config {
        media_root: media.path().to_owned(),
        rtsp_addresses: vec![SocketAddr::from((SND_IPV4, RTSP_PORT))],
        cache_bytes: 16 << 20,
        experiments,
        ..Config::default()
    };
    let server = testbed.snd.run(|| Server::start(config)).unwrap();
    let mut viewer = Viewer::setup(&testbed, "clip.ts");
    let info = viewer.play(None);
    let capture = viewer.finish();
    server.shutdown();
    let expected = expected(&ts, Start::At(0), &info);
    // Bursts are held back for 200 ms; the first packet, against which that shows, may be late
    // itself.
    capture.check(Expected {
        lateness_ns_max: Some(100_000_000),
        ..expected
    })
}

fn caught(fault: Planted, is_it: impl Fn(&Fault) -> bool) {
    let report = play(&[fault]);
    assert!(
        report.faults.iter().any(is_it),
        "{fault:?} was not caught: {:?}",
        report.faults
    );
}

#[test]
fn a_dropped_packet_is_caught() {
    require_root!();
    caught(Planted::DropPacket, |fault| {
        matches!(fault, Fault::Missing { missing: 1, .. })
    });
}

#[test]
fn a_repeated_packet_is_caught() {
    require_root!();
    caught(Planted::RepeatPacket, |fault| {
        matches!(fault, Fault::Repeated { .. })
    });
}

#[test]
fn a_wrong_byte_is_caught() {
    require_root!();
    caught(Planted::WrongByte, |fault| {
        matches!(fault, Fault::WrongByte { .. })
    });
}

#[test]
fn a_late_burst_is_caught() {
    require_root!();
    caught(Planted::LateBurst, |fault| {
        matches!(fault, Fault::Late { .. })
    });
}

#[test]
fn without_a_planted_fault_nothing_is_caught() {
    require_root!();
    let report = play(&[]);
    let is_late = |fault: &Fault| matches!(fault, Fault::Late { .. });
    // That this machine is busy is nobody's fault.
    let faults: Vec<_> = report
        .faults
        .iter()
        .filter(|fault| !is_late(fault))
        .collect();
    assert!(faults.is_empty(), "{faults:?}");
}
