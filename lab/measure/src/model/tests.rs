//! Formulas against counts that are known, and terms against costs that were made up.

use onrush_paths::Name;

use super::*;
use crate::experiment::Environment;

const MTU: Load = Load {
    payload_bytes: 1316.0,
    header_bytes: 12.0,
    burst_packets: f64::INFINITY,
};

/// Costs of which each probe follows exactly.
fn made_up(term: Term) -> f64 {
    (term as usize as f64 + 1.0)
        * if matches!(
            term,
            Term::ColdByte
                | Term::HotByte
                | Term::TrainByte
                | Term::ColdTrainByte
                | Term::StreamByte
                | Term::LoopByte
        ) {
            0.01
        } else {
            10.0
        }
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
    let crossings = |name: &str| {
        let formula = path(name, &MTU).unwrap();
        let counted = formula
            .terms
            .iter()
            .filter(|(_, term)| *term == Term::Crossing);
        counted.map(|(count, _)| *count).sum::<f64>()
    };
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
        let stream = formula.count(Term::StreamWrite) + formula.count(Term::StreamByte);
        assert!(stream > 0.0, "{name}: {formula}");
    }
    for name in ["sendfile_tcp", "cue"] {
        let formula = over_loopback(name, &MTU).unwrap();
        assert_eq!(formula.count(Term::LoopByte), MTU.payload_bytes);
        assert_eq!(formula.count(Term::StreamByte), 0.0);
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
    let burst = |burst_packets| {
        path(
            "krtpsendfile",
            &Load {
                burst_packets,
                ..MTU
            },
        )
        .unwrap()
    };
    let trains = |formula: &Formula| {
        formula
            .terms
            .iter()
            .find(|(_, t)| *t == Term::Train)
            .unwrap()
            .0
    };
    assert_eq!(trains(&burst(8.0)), 1.0 / 8.0);
    assert_eq!(trains(&burst(0.0)), 1.0);
    assert_eq!(trains(&burst(1e9)), 1.0 / 49.0);
}

#[test]
fn bursts_of_many_clients_go_by_cold_sockets() {
    let load = Load {
        burst_packets: 8.0,
        ..MTU
    };
    let formula = of_many(path("krtpsendfile", &load).unwrap(), &load);
    assert_eq!(formula.count(Term::Session), formula.count(Term::Train));
    let one = of_many(
        Formula::default(),
        &Load {
            burst_packets: 0.5,
            ..MTU
        },
    );
    assert_eq!(one.count(Term::Session), 1.0);
    assert_eq!(of_many(Formula::default(), &MTU).count(Term::Session), 0.0);
    // Nor does one wait for another.
    let links = |formula: &Formula| formula.count(Term::Link) + formula.count(Term::LinkSend);
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
        let crossing = t(Term::Crossing);
        let held = |pieces: f64| {
            2.0 * (crossing + t(Term::Set))
                + pieces * (crossing + t(Term::Append))
                + t(Term::HeldPacket)
        };
        let train = |segments: f64| {
            crossing + t(Term::Train) + segments * (t(Term::Segment) + 16.0 * t(Term::HotByte))
        };
        let ring = |inner: f64, count: f64| {
            crossing + t(Term::RingCrossing) + count * (t(Term::Entry) + inner)
        };
        let referred = |segments: f64| t(Term::Train) + segments * t(Term::ReferredSegment);
        let send = crossing + t(Term::Packet);
        match probe {
            Probe::Getppid => crossing,
            Probe::SendTiny | Probe::Gather1 => send,
            Probe::SendWide => send + 1384.0 * t(Term::HotByte),
            Probe::ReadTiny => crossing + t(Term::ReadCall),
            Probe::ReadWide => crossing + t(Term::ReadCall) + 1384.0 * t(Term::ColdByte),
            Probe::Gather17 => send + 16.0 * t(Term::Piece),
            Probe::Messages => crossing + 48.0 * t(Term::Message),
            // The bytes of a short train count as the train's.
            Probe::TrainShort => train(2.0) - 32.0 * t(Term::HotByte),
            Probe::TrainLong => train(48.0) - 32.0 * t(Term::HotByte),
            Probe::TrainWide => {
                train(48.0) - 32.0 * t(Term::HotByte) + 48.0 * 1008.0 * t(Term::TrainByte)
            }
            Probe::TrainCold => {
                train(48.0) - 32.0 * t(Term::HotByte) + 48.0 * 1008.0 * t(Term::ColdTrainByte)
            }
            Probe::Cork => 2.0 * (crossing + t(Term::Set)),
            Probe::Append1 => held(1.0),
            Probe::Append9 => held(9.0),
            Probe::DiscardTiny => crossing + t(Term::SpliceCall) + t(Term::SplicePage),
            Probe::DiscardPages => crossing + t(Term::SpliceCall) + 12.0 * t(Term::SplicePage),
            Probe::DiscardMemory => crossing + t(Term::SpliceCall) + 12.0 * t(Term::MemoryPage),
            Probe::Lend => 2.0 * crossing + t(Term::Lend),
            Probe::LendPages => 1000.0,
            Probe::LendOut => 2.0 * crossing + t(Term::Lend) + t(Term::Packet) + t(Term::SpliceOut),
            Probe::LendOutPages => {
                let pages = t(Term::SpliceOut) + 11.0 * t(Term::SpliceOutPage);
                1000.0 + referred(48.0) + pages
            }
            Probe::LendCold => 3000.0,
            Probe::StreamWrite => crossing + t(Term::StreamWrite) + 1400.0 * t(Term::HotByte),
            Probe::StreamPages => 3000.0 + 1_048_576.0 * t(Term::StreamByte),
            Probe::LoopPages => 3000.0 + 1_048_576.0 * t(Term::LoopByte),
            Probe::GroupShort => 500.0 + 16.0 * t(Term::Clone),
            Probe::GroupLong => 500.0 + 64.0 * t(Term::Clone),
            Probe::ZeroCopyTiny => send + t(Term::Notification),
            Probe::ZeroCopyPieces => send + t(Term::Notification) + 8.0 * t(Term::PinnedPiece),
            Probe::ZeroCopyPages => {
                let train = train(48.0) - 32.0 * t(Term::HotByte);
                train + t(Term::Notification) + 11.0 * t(Term::PinnedPage)
            }
            Probe::ZeroCopyHuge => {
                let train = train(48.0) - 32.0 * t(Term::HotByte);
                train + t(Term::Notification) + 11.0 * t(Term::PinnedHugePage)
            }
            Probe::AccountPolled => crossing + 256.0 * t(Term::PolledEntry) + t(Term::Sleep),
            Probe::PolledRead => crossing + t(Term::PolledEntry) + t(Term::Sleep),
            Probe::Account => ring(t(Term::Entry) + t(Term::Account), 256.0),
            Probe::Populate => t(Term::PinFault),
            Probe::RingLinked => {
                let link = t(Term::Link) + t(Term::LinkSend);
                ring(referred(2.0) + t(Term::Release), 256.0) + 255.0 * link
            }
            Probe::RingApart => ring(referred(2.0) + t(Term::Release) + t(Term::ColdTrain), 256.0),
            Probe::RingSockets => {
                let cold = t(Term::ColdTrain) + t(Term::Session);
                ring(referred(2.0) + t(Term::Release) + cold, 256.0)
            }
            Probe::Faults => t(Term::Fault),
            Probe::Miss => t(Term::Miss),
            Probe::Plan => t(Term::Planned),
            Probe::Nops1 => ring(0.0, 1.0),
            Probe::NopsMany => ring(0.0, 256.0),
            Probe::NopsLinked => ring(0.0, 256.0) + 255.0 * t(Term::Link),
            Probe::RingCopied => ring(t(Term::Packet) + t(Term::EntrySend), 256.0),
            Probe::RingShort => ring(referred(2.0) + t(Term::Release), 256.0),
            Probe::RingLong => ring(referred(48.0) + t(Term::Release), 256.0),
            Probe::RingPinned => ring(referred(2.0) + t(Term::PinnedRelease), 256.0),
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
