//! Formulas against counts that are known, and terms against costs that were made up.

use onrush_paths::Name;
use onrush_testkit::testbed::Mode;

use super::term::Term::*;
use super::*;
use crate::experiment::{Environment, Record};

const MTU: Load = Load {
    payload_bytes: 1316.0,
    header_bytes: 12.0,
    burst_packets: f64::INFINITY,
};

/// Costs of which each probe follows exactly.
fn made_up(term: Term) -> f64 {
    let is_of_byte = term.name().contains("byte");
    (term as usize as f64 + 1.0) * if is_of_byte { 0.01 } else { 10.0 }
}

fn record() -> ModelRecord {
    let settings = Settings {
        rounds: 1,
        modes: vec![Mode::Uso],
        ..Settings::default()
    };
    Record::new(NAME, Environment::here("1", "c"), settings)
}

#[test]
fn the_paper_counts_so_many_crossings() {
    let crossings = |name: &str| path(name, &MTU).unwrap().count(Crossing);
    // Switches of its table 1, two a crossing, for large n; ours where the catalogue differs.
    for (name, count) in [
        ("read_write", 2.0),
        ("mmap_send", 1.0),
        ("sendfile_udp", 1.0),
        ("read_send_rtp", 2.0),
        ("read_writev", 2.0),
        ("mmap_send_rtp", 4.0),
        ("mmap_writev", 1.0),
        ("rtp_sendfile", 4.0),
        ("mmap_send_msend", 5.0),
        ("sendto", 1.0),
        ("sendmmsg", 1.0 / 49.0),
        ("krtpsendfile", 1.0 / 49.0 / 256.0),
        ("rtpsendfile", 2.0 + 2.0 / 7.0),
    ] {
        assert!(
            (crossings(name) - count).abs() < 1e-9,
            "{name}: {}",
            crossings(name)
        );
    }
}

#[test]
fn every_path_of_the_catalogue_has_a_formula_or_a_reason() {
    for name in Name::ALL {
        let known = path(name.as_str(), &MTU);
        assert!(!matches!(known, Err(NotPredicted::Name(_))), "{name}");
    }
    let tcp = Name::ALL.into_iter().filter(|name| name.takes_tcp());
    for name in tcp {
        let formula = over_tcp(name.as_str(), &MTU).unwrap();
        let stream = formula.count(StreamWrite) + formula.count(StreamByte);
        assert!(stream > 0.0, "{name}: {formula}");
    }
    for name in ["sendfile_tcp", "cue"] {
        let formula = over_loopback(name, &MTU).unwrap();
        assert_eq!(formula.count(LoopByte), MTU.payload_bytes);
        assert_eq!(formula.count(StreamByte), 0.0);
    }
    assert!(over_loopback("mmap_send", &MTU).is_err() && over_tcp("sendto", &MTU).is_err());
    for way in onrush_group::Way::ALL {
        assert!(
            !matches!(group(way.as_str(), &MTU), Err(NotPredicted::Name(_))),
            "{way}"
        );
    }
}

#[test]
fn a_short_burst_shares_less() {
    let trains = |burst_packets| {
        let load = Load {
            burst_packets,
            ..MTU
        };
        path("krtpsendfile", &load).unwrap().count(Train)
    };
    assert_eq!(trains(8.0), 1.0 / 8.0);
    assert_eq!(trains(0.0), 1.0);
    assert_eq!(trains(1e9), 1.0 / 49.0);
}

#[test]
fn datagrams_beyond_the_mtu_are_not_predicted() {
    let with = |payload_bytes| Load {
        payload_bytes,
        ..MTU
    };
    let (largest, beyond) = (with(1460.0), with(1461.0));
    for name in Name::ALL.into_iter().filter(|name| name.takes_udp()) {
        assert!(path(name.as_str(), &largest).is_ok(), "{name}");
        let refused = path(name.as_str(), &beyond);
        assert_eq!(refused, Err(NotPredicted::BeyondMtu), "{name}");
    }
    for way in onrush_group::Way::ALL {
        assert!(group(way.as_str(), &largest).is_ok(), "{way}");
        let refused = group(way.as_str(), &beyond);
        assert_eq!(refused, Err(NotPredicted::BeyondMtu), "{way}");
    }
    // What goes by TCP is cut elsewhere.
    assert!(path("sendfile_tcp", &beyond).is_ok() && over_tcp("mmap_send", &beyond).is_ok());
}

#[test]
fn bursts_of_many_clients_go_by_cold_sockets() {
    let load = Load {
        burst_packets: 8.0,
        ..MTU
    };
    let formula = of_many(path("krtpsendfile", &load).unwrap(), &load);
    assert_eq!(formula.count(Session), formula.count(Train));
    let one = of_many(
        Formula::default(),
        &Load {
            burst_packets: 0.5,
            ..MTU
        },
    );
    assert_eq!(one.count(Session), 1.0);
    assert_eq!(of_many(Formula::default(), &MTU).count(Session), 0.0);
    // Nor does one wait for another.
    let links = |formula: &Formula| formula.count(Link) + formula.count(LinkSend);
    assert_eq!(links(&formula), 0.0);
    assert_eq!(links(&group("uring", &MTU).unwrap()), 0.0);
    assert!(links(&path("krtpsendfile", &MTU).unwrap()) > 0.0);
}

#[test]
fn what_the_model_does_not_know_is_named() {
    let missing = |name| path(name, &MTU).unwrap_err().to_string();
    assert!(missing("nothing").contains("no path"));
    assert!(
        group("nobody", &MTU)
            .unwrap_err()
            .to_string()
            .contains("no path")
    );
}

#[test]
fn ways_of_groups_are_paths_of_hot_bytes() {
    let with = |way| group(way, &MTU).unwrap().to_string();
    assert!(with("loop").contains("1328 hot byte") && !with("loop").contains("cold byte"));
    assert!(with("sendmmsg").contains("1 segment"));
    assert!(with("sendmmsg").contains("1328 byte of a train"));
    assert!(with("kernel").contains("0.02 clone"));
    let alone = Load {
        burst_packets: 1.0,
        ..MTU
    };
    assert!(
        group("sendmmsg", &alone)
            .unwrap()
            .to_string()
            .contains("1 message")
    );
}

#[test]
fn terms_are_what_is_left_of_the_probes() {
    // Every probe as the sum of its terms; then each term must come back.
    let t = made_up;
    let probe = |probe: Probe| {
        let crossing = t(Crossing);
        let held = |pieces: f64| {
            2.0 * (crossing + t(Set)) + pieces * (crossing + t(Append)) + t(HeldPacket)
        };
        let train = |segments: f64| {
            // The bytes of a short train count as the train's.
            let bytes = (segments - 2.0) * 16.0 * t(HotByte);
            crossing + t(Train) + segments * t(Segment) + bytes
        };
        let ring = |inner: f64, count: f64| crossing + t(RingCrossing) + count * (t(Entry) + inner);
        let referred = |segments: f64| t(Train) + segments * t(ReferredSegment);
        let send = crossing + t(Packet);
        match probe {
            Probe::Getppid => crossing,
            Probe::SendTiny | Probe::Gather1 => send,
            Probe::SendWide => send + 1384.0 * t(HotByte),
            Probe::ReadTiny => crossing + t(ReadCall),
            Probe::ReadWide => crossing + t(ReadCall) + 1384.0 * t(ColdByte),
            Probe::Gather17 => send + 16.0 * t(Piece),
            Probe::Messages => crossing + 48.0 * t(Message),
            Probe::TrainShort => train(2.0),
            Probe::TrainLong => train(48.0),
            Probe::TrainWide => train(48.0) + 48.0 * 1008.0 * t(TrainByte),
            Probe::TrainCold => train(48.0) + 48.0 * 1008.0 * t(ColdTrainByte),
            Probe::Cork => 2.0 * (crossing + t(Set)),
            Probe::Append1 => held(1.0),
            Probe::Append9 => held(9.0),
            Probe::DiscardTiny => crossing + t(SpliceCall) + t(SplicePage),
            Probe::DiscardPages => crossing + t(SpliceCall) + 12.0 * t(SplicePage),
            Probe::DiscardMemory => crossing + t(SpliceCall) + 12.0 * t(MemoryPage),
            Probe::Lend => 2.0 * crossing + t(Lend),
            Probe::LendPages => 1000.0,
            Probe::LendOut => 2.0 * crossing + t(Lend) + t(Packet) + t(SpliceOut),
            Probe::LendOutPages => {
                let pages = t(SpliceOut) + 11.0 * t(SpliceOutPage);
                1000.0 + referred(48.0) + pages
            }
            Probe::LendCold => 3000.0,
            Probe::StreamWrite => crossing + t(StreamWrite) + 1400.0 * t(HotByte),
            Probe::StreamPages => 3000.0 + 1_048_576.0 * t(StreamByte),
            Probe::LoopPages => 3000.0 + 1_048_576.0 * t(LoopByte),
            Probe::GroupShort => 500.0 + 16.0 * t(Clone),
            Probe::GroupLong => 500.0 + 64.0 * t(Clone),
            Probe::ZeroCopyTiny => send + t(Notification),
            Probe::ZeroCopyPieces => send + t(Notification) + 8.0 * t(PinnedPiece),
            Probe::ZeroCopyPages => train(48.0) + t(Notification) + 11.0 * t(PinnedPage),
            Probe::ZeroCopyHuge => train(48.0) + t(Notification) + 11.0 * t(PinnedHugePage),
            Probe::AccountPolled => crossing + 256.0 * t(PolledEntry) + t(Sleep),
            Probe::PolledRead => crossing + t(PolledEntry) + t(Sleep),
            Probe::Account => ring(t(Entry) + t(Account), 256.0),
            Probe::Populate => t(PinFault),
            Probe::RingLinked => {
                let link = t(Link) + t(LinkSend);
                ring(referred(2.0) + t(Release), 256.0) + 255.0 * link
            }
            Probe::RingApart => ring(referred(2.0) + t(Release) + t(ColdTrain), 256.0),
            Probe::RingSockets => {
                let cold = t(ColdTrain) + t(Session);
                ring(referred(2.0) + t(Release) + cold, 256.0)
            }
            Probe::Faults => t(Fault),
            Probe::Miss => t(Miss),
            Probe::Plan => t(Planned),
            Probe::Nops1 => ring(0.0, 1.0),
            Probe::NopsMany => ring(0.0, 256.0),
            Probe::NopsLinked => ring(0.0, 256.0) + 255.0 * t(Link),
            Probe::RingCopied => ring(t(Packet) + t(EntrySend), 256.0),
            Probe::RingShort => ring(referred(2.0) + t(Release), 256.0),
            Probe::RingLong => ring(referred(48.0) + t(Release), 256.0),
            Probe::RingPinned => ring(referred(2.0) + t(PinnedRelease), 256.0),
        }
    };
    let mut record = record();
    for it in Probe::ALL {
        let cost_ns = probe(it);
        let run = |cost_ns, void| Run {
            mode: Mode::Uso,
            of: Of::Probe(it),
            round: 0,
            times: 1,
            cost_ns,
            packet_bytes: None,
            void,
        };
        record.runs.push(run(cost_ns, None));
        // One that is void counts for nothing.
        record.runs.push(run(1e9, Some("lost".to_owned())));
    }
    let costs = Costs::of(&record, Mode::Uso).unwrap();
    for term in Term::ALL {
        let (found, wanted) = (costs.ns(term), made_up(term));
        assert!(
            (found - wanted).abs() < 1e-6,
            "{term:?}: {found}, not {wanted}"
        );
    }
    assert_eq!(Costs::of(&record, Mode::SoftwareGso), None);
    // A file without a probe still tells what the others do.
    let mut older = record.clone();
    older
        .runs
        .retain(|run| run.of != Of::Probe(Probe::StreamPages));
    let older = Costs::of(&older, Mode::Uso).unwrap();
    let of = |name| path(name, &MTU).unwrap().predict(&older);
    assert_eq!(of("sendfile_tcp"), Err(NotPredicted::Probes));
    let over = |name| over_tcp(name, &MTU).unwrap().predict(&older);
    assert!(over("sendfile_tcp").is_err() && over("mmap_send").is_ok());
    assert!(of("sendto").is_ok());
    let formula = path("krtpsendfile", &MTU).unwrap();
    let sum: f64 = formula.parts(&costs).iter().map(|(_, ns)| ns).sum();
    assert!((formula.ns(&costs) - sum).abs() < 1e-9);
}
