//! More than a server can do: those who are served miss nothing, the others are told, and a stall is no flood after.

use std::thread;
use std::time::Duration;

use onrush_measure::experiment::Record;
use onrush_measure::load::{self, LoadRecord};
use onrush_testkit::process::Signal;
use onrush_testkit::require_root;
use onrush_testkit::sink::{Counts, Sink};
use onrush_testkit::testbed::{Mode, RCV_DEVICE};

use common::{LONG, ONRUSH, Site, Viewer, clip};

mod common;

/// A budget for about thirty streams of the demo clip, by what a stream is reckoned to cost before any played.
const LOAD_MAX: &str = "--load-max=0.2";

#[test]
fn whoever_is_too_much_is_refused_and_those_who_play_miss_nothing() {
    require_root!();
    let site = Site::with_clip(&clip(20.0), Mode::Uso, &[LOAD_MAX]);
    let json = site.path("load.json");
    let mut command = site.testbed.rcv.command(ONRUSH);
    command.args(["load", "-n", "60", "--time", "4s", "--ramp", "1s", "--json"]);
    command
        .arg(&json)
        .args(["--lateness", "400ms", "--sink", RCV_DEVICE]);
    let output = command.arg(site.url("clip.ts")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "some were refused");
    let record: LoadRecord = Record::read(&json, load::NAME).unwrap();
    let run = &record.runs[0];
    // What a stream costs is learnt meanwhile, so how many it is depends on the machine.
    assert!((2..60).contains(&run.watching), "{}", run.watching);
    assert_eq!(run.played, u64::from(run.watching), "nobody was sent away");
    let (lost, repeated) = (run.totals.lost, run.totals.repeated);
    assert_eq!((lost, repeated), (0, 0), "{:?}", run.totals);
    // A stream has 95 packets a second, of which at least one second's came.
    let least = u64::from(run.watching) * 95;
    assert!(run.totals.packets > least, "{:?} {least}", run.totals);
    let [(reason, count)] = &run.failures[..] else {
        panic!("{:?}", run.failures);
    };
    assert!(reason.contains("SETUP was answered 453"), "{reason}");
    let log = site.stop();
    let said = log.matches("a session is refused: the engine would be busy");
    assert_eq!(said.count() as u64, *count, "{log}");
}

#[test]
fn a_server_that_was_stopped_for_a_second_goes_on_without_a_flood_and_says_so() {
    require_root!();
    const VIEWERS: u16 = 16;
    let site = Site::with_clip(&clip(20.0), Mode::Uso, &[]);
    let sink = Sink::attach(&site.testbed.rcv, RCV_DEVICE, 1024..=u16::MAX).unwrap();
    let set_up = |_| Viewer::setup(&site.testbed, "clip.ts");
    let mut viewers: Vec<_> = (0..VIEWERS).map(set_up).collect();
    for viewer in &mut viewers {
        viewer.play(None);
    }
    let ports: Vec<_> = viewers
        .iter()
        .map(|viewer| viewer.receiver.rtp_port())
        .collect();
    let each = |port: u16| sink.port(port).unwrap();
    let wait_for_packets = |packets: u64| {
        let give_up = std::time::Instant::now() + LONG;
        while ports
            .iter()
            .any(|&port| each(port).counts.packets < packets)
        {
            assert!(std::time::Instant::now() < give_up, "no {packets} packets");
            thread::sleep(Duration::from_millis(10));
        }
    };
    wait_for_packets(50);
    site.server.signal(Signal::STOP).unwrap();
    thread::sleep(Duration::from_millis(1200));
    let stopped = sink.totals().unwrap().rtp_packets;
    site.server.signal(Signal::CONT).unwrap();
    // The clip has some 1900 packets.
    wait_for_packets(400);
    for &port in &ports {
        let seen = each(port);
        let Counts {
            train_packets_max,
            sequence_missing,
            sequence_repeated,
            ..
        } = seen.counts;
        assert_eq!((sequence_missing, sequence_repeated), (0, 0), "{seen:?}");
        // Of 20 ms at 95 packets a second.
        assert!(train_packets_max <= 3, "{seen:?}");
        // What was due in the second came after it and not in a flood: all that follows is as late.
        assert!(seen.lateness_ns.1 > 500_000_000, "{seen:?}");
    }
    assert!(sink.totals().unwrap().rtp_packets > stopped);
    drop(viewers);
    let log = site.stop();
    assert!(
        log.contains("so far behind that its clock was moved"),
        "{log}"
    );
    assert!(log.contains("ms late: the engine is held up"), "{log}");
}
