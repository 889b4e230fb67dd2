//! More than a server can do: those who are served miss nothing, the others are told, and a stall
//! is no flood after.

use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use onrush_testkit::checker::TS_BYTES;
use onrush_testkit::process::Signal;
use onrush_testkit::require_root;
use onrush_testkit::sink::{Counts, Sink};
use onrush_testkit::testbed::{Mode, RCV_DEVICE, SND_IPV4};

use common::{LONG, Site, Viewer, clip, wait_until};

mod common;

/// A budget for thirty streams of the demo clip, by what a stream is reckoned to cost before any
/// played.
const LOAD_MAX: &str = "--load-max=0.2";
/// As many fewer if the engine's waking up for commands is dear.
const LET_IN: RangeInclusive<usize> = 25..=30;

// SPECIFICATION.md: 18
#[test]
fn too_many_are_refused_and_those_who_play_miss_nothing() {
    require_root!();
    // All that arrives on a processor shares one queue: what others push out of it is nobody's
    // fault.
    let is_done = (0..4).any(|_| let_in_and_play().is_some());
    assert!(
        is_done,
        "a machine on which not each play loses something to others"
    );
}

/// Nothing if others took the room that packets needed.
fn let_in_and_play() -> Option<()> {
    let clip = clip(4.0);
    let site = Site::with_clip(&clip, Mode::Uso, &[LOAD_MAX]);
    let sink = Sink::attach(&site.testbed.rcv, RCV_DEVICE, 1024..=u16::MAX).unwrap();
    let dropped = site.testbed.dropped();
    // Nobody plays yet: so what a stream costs is not learnt meanwhile, and how many it is no
    // chance.
    let set_up = |_| Viewer::try_setup_to(&site.testbed, "clip.ts", SND_IPV4.into());
    let (mut viewers, mut refused) = (Vec::new(), Vec::new());
    for answer in (0..60).map(set_up) {
        match answer {
            Ok(viewer) => viewers.push(viewer),
            Err(answer) => refused.push(answer.status),
        }
    }
    // Where others took the processor while the first of them came, too few are let in.
    if viewers.len() < *LET_IN.start() {
        return None;
    }
    assert!(LET_IN.contains(&viewers.len()), "{}", viewers.len());
    assert!(refused.iter().all(|&status| status == 453), "{refused:?}");
    for viewer in &mut viewers {
        viewer.play(None);
    }
    let packets = clip.len().div_ceil(7 * TS_BYTES) as u64;
    for viewer in &viewers {
        let counts = || sink.port(viewer.receiver.rtp_port()).unwrap().counts;
        wait_until("he has seen all", || {
            counts().rtp_packets >= packets || site.testbed.dropped() > dropped
        });
        if site.testbed.dropped() > dropped {
            return None;
        }
        let seen = counts();
        let wrong = (seen.sequence_missing, seen.sequence_repeated);
        assert_eq!((seen.rtp_packets, wrong), (packets, (0, 0)), "{seen:?}");
    }
    drop(viewers);
    let log = site.stop();
    let said = log.matches("a session is refused: the engine would be busy");
    // So many lines a minute there are of those who are refused.
    assert_eq!(said.count(), refused.len().min(20), "{log}");
    Some(())
}

// SPECIFICATION.md: 17
#[test]
fn a_server_stopped_for_a_second_sends_no_flood_and_says_so() {
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
        // Two bursts, each of 20 ms at 95 packets a second.
        assert!(train_packets_max <= 4, "{seen:?}");
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
