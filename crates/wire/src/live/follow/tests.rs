//! What is noted of streams.

use proptest::prelude::*;

use super::*;
use crate::rtp::{BEHIND_MAX, PAYLOAD_TYPE_MP2T};

const A: &str = "10.0.0.1:5000";
const SECOND: u64 = 1_000_000_000;

fn rtp(ssrc: u32, sequence: u16) -> Vec<u8> {
    let header = Header {
        marker: false,
        payload_type: PAYLOAD_TYPE_MP2T,
        sequence,
        timestamp: 0,
        ssrc,
    };
    header.to_bytes().to_vec()
}

fn ts(pid: u16, counter: u8, control: u8, flags: u8) -> Vec<u8> {
    let mut ts = vec![0xff; TS_PACKET_BYTES];
    let [high, low] = pid.to_be_bytes();
    ts[..6].copy_from_slice(&[0x47, high, low, control << 4 | counter, 1, flags]);
    ts
}

fn notes(follower: &mut Follower, datagrams: &[Vec<u8>]) -> Vec<Note> {
    let mut notes = Vec::new();
    for datagram in datagrams {
        follower.follow(A.parse().unwrap(), datagram, 0, |note| notes.push(note));
    }
    notes
}

fn begun() -> Follower {
    let mut follower = Follower::new(SECOND);
    assert_eq!(notes(&mut follower, &[vec![]]).len(), 1, "began");
    follower
}

#[test]
fn numbers_that_follow_each_other_are_nothing_to_tell() {
    let mut follower = begun();
    assert_eq!(
        notes(&mut follower, &[rtp(1, 65_534), rtp(1, 65_535), rtp(1, 0)]),
        []
    );
    let heard = follower.heard();
    assert_eq!((heard.datagrams, heard.rtp, heard.bytes), (4, 3, 36));
    assert_eq!((heard.missing, heard.behind, heard.restarts), (0, 0, 0));
}

#[test]
fn gaps_stragglers_and_restarts_are_told_apart() {
    let first = 65_000_u16;
    let next = first.wrapping_add(1);
    for (got, expected_note) in [
        (next.wrapping_add(1), Note::Missing { packets: 1 }),
        (
            next.wrapping_add(MISSING_MAX),
            Note::Missing {
                packets: MISSING_MAX,
            },
        ),
        (
            next.wrapping_add(MISSING_MAX + 1),
            Note::Restarted {
                expected: next,
                got: next.wrapping_add(MISSING_MAX + 1),
            },
        ),
        (first, Note::Behind { packets: 1 }),
        (
            next.wrapping_sub(BEHIND_MAX),
            Note::Behind {
                packets: BEHIND_MAX,
            },
        ),
        (
            next.wrapping_sub(BEHIND_MAX + 1),
            Note::Behind {
                packets: BEHIND_MAX + 1,
            },
        ),
    ] {
        let mut follower = begun();
        assert_eq!(
            notes(&mut follower, &[rtp(1, first), rtp(1, got)]),
            [expected_note]
        );
        // After a straggler the newest goes on, after all else the one that came.
        let after = match expected_note {
            Note::Behind { .. } => next,
            _ => got.wrapping_add(1),
        };
        assert_eq!(
            notes(&mut follower, &[rtp(1, after)]),
            [],
            "{expected_note:?}"
        );
    }
    // Of what is that late, the second in a row tells that numbers began anew.
    let got = next.wrapping_sub(2 * BEHIND_MAX);
    let all = [first, got, got + 1, got + 2].map(|number| rtp(1, number));
    let restarted = Note::Restarted {
        expected: next,
        got: got + 1,
    };
    let late = Note::Behind {
        packets: 2 * BEHIND_MAX,
    };
    assert_eq!(notes(&mut begun(), &all), [late, restarted]);
}

#[test]
fn another_stream_and_another_sender_are_noted_and_begin_anew() {
    let mut follower = begun();
    let changed = notes(&mut follower, &[rtp(1, 7), rtp(2, 9000), rtp(2, 9001)]);
    assert_eq!(changed, [Note::SsrcChanged { before: 1, now: 2 }]);
    let mut changed = Vec::new();
    let now = "[::1]:7".parse().unwrap();
    follower.follow(now, &rtp(2, 9002), 0, |note| changed.push(note));
    let before = A.parse().unwrap();
    assert_eq!(changed, [Note::SourceChanged { before, now }]);
    let heard = follower.heard();
    assert_eq!((heard.ssrc_changes, heard.source_changes), (1, 1));
    assert_eq!(follower.from(), Some(now));
}

#[test]
fn datagrams_of_others_are_counted_and_logged_once() {
    let (kept, other) = (A.parse().unwrap(), "10.0.0.1:5001".parse().unwrap());
    let packets = [rtp(1, 1), rtp(1, 2), rtp(1, 3)];
    let mut anybody = Follower::new(SECOND);
    let mut follower = Follower::new(SECOND).keeping_sender(SECOND);
    let mut notes = Vec::new();
    for from in [kept, other, other, kept] {
        let all = || packets.iter().map(Vec::as_slice);
        let is_in = follower.admit(from, all(), (0, 0), |note| notes.push(note));
        assert_eq!(is_in, from == kept);
        assert!(anybody.admit(from, all(), (0, 0), |note| panic!("{note}")));
    }
    assert_eq!(notes, [Note::Refused { from: other, kept }]);
    assert_eq!(follower.heard().from_others, 6);
    assert_eq!(follower.heard().datagrams, 0, "nothing was followed");
    assert_eq!(anybody.heard().from_others, 0);
}

#[test]
fn a_sender_is_kept_that_another_process_has_heard() {
    let (kept, other) = (A.parse().unwrap(), "10.0.0.1:5001".parse().unwrap());
    let packet = rtp(1, 1);
    let mut follower = Follower::new(SECOND).keeping_sender(SECOND);
    follower.keep(kept, 0);
    let mut admits = |from, now_ns| {
        let all = std::iter::once(packet.as_slice());
        follower.admit(from, all, (now_ns, now_ns), drop)
    };
    assert!(!admits(other, SECOND - 1));
    assert!(admits(kept, SECOND - 1));
    assert!(admits(other, 2 * SECOND), "the other is silent");
}

#[test]
fn silence_is_told_once_and_so_is_its_end() {
    let mut follower = Follower::new(SECOND);
    assert_eq!(
        follower.look(5 * SECOND),
        None,
        "nothing has come that could stop"
    );
    assert!(!follower.is_heard());
    notes(&mut follower, &[rtp(1, 1)]);
    assert_eq!(follower.look(SECOND - 1), None);
    assert!(follower.is_heard());
    assert_eq!(
        follower.look(SECOND),
        Some(Note::Silent { silent_ns: SECOND })
    );
    assert_eq!(follower.look(9 * SECOND), None);
    assert!(!follower.is_heard());
    let mut resumed = Vec::new();
    follower.follow(A.parse().unwrap(), &rtp(1, 2), 3 * SECOND, |note| {
        resumed.push(note)
    });
    assert_eq!(
        resumed,
        [Note::Resumed {
            silent_ns: 3 * SECOND
        }]
    );
    assert_eq!(follower.heard().silences, 1);
}

#[test]
fn continuity_counters_are_followed_by_pid() {
    let mut follower = begun();
    let fine = [
        ts(1, 15, 1, 0),
        ts(2, 3, 1, 0),
        ts(1, 0, 1, 0),
        // Without payload it does not count, and one may come twice.
        ts(1, 0, 2, 0),
        ts(1, 0, 1, 0),
        ts(2, 4, 3, 0),
        // Announced.
        ts(2, 9, 3, 0x80),
        ts(0x1fff, 7, 1, 0),
        ts(0x1fff, 7, 1, 0),
        ts(0x1fff, 3, 1, 0),
    ];
    assert_eq!(notes(&mut follower, &fine), []);
    let jumps = [[ts(1, 3, 1, 0), ts(2, 11, 1, 0)].concat(), ts(1, 4, 1, 0)];
    assert_eq!(notes(&mut follower, &jumps), [Note::Missing { packets: 2 }]);
    assert_eq!(follower.heard().transport_streams, 12);
}

#[test]
fn pieces_of_packets_are_told_once_and_put_together() {
    let all: Vec<u8> = (0..64).flat_map(|at| ts(256, at & 15, 1, 0)).collect();
    let pieces: Vec<_> = all.chunks(1472).collect();
    let mut follower = begun();
    let mut follow = |pieces: &[&[u8]]| {
        let (mut told, mut packets) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut note = |note| told.push(note);
            let kind = follower.follow(A.parse().unwrap(), piece, 0, &mut note);
            assert_eq!(kind, Kind::Cut);
            follower.align(piece, note, |whole| packets.extend_from_slice(whole));
        }
        (told, packets, follower.heard())
    };
    let (told, packets, heard) = follow(&pieces);
    assert_eq!((told, packets == all), (vec![Note::Cut], true));
    assert_eq!(
        (heard.transport_streams, heard.missing),
        (pieces.len() as u64, 0)
    );
    // One is lost; the packets of which it had a piece are left out.
    let (told, packets, _) = follow(&[&pieces[..2], &pieces[3..]].concat());
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(matches!(told[0], Note::Missing { .. }), "{told:?}");
    assert_eq!(packets.len(), all.len() - 9 * TS_PACKET_BYTES);
    // Another stream, of packets of RTP; one of them looks like a piece.
    let whole = [ts(256, 0, 1, 0), ts(256, 1, 1, 0)].concat();
    let packet = [rtp(1, 0), whole.clone()].concat();
    let mut kind = |datagram: &[u8]| follower.follow(A.parse().unwrap(), datagram, 0, |_| {});
    assert_eq!(kind(&whole), Kind::Cut, "it is not known yet");
    assert!(matches!(kind(&packet), Kind::Rtp(_)));
    assert_eq!(kind(&whole), Kind::TransportStream);
    let like_a_piece = [&rtp(1, 1)[..], &[0; 5], &all[..1200]].concat();
    assert!(matches!(kind(&like_a_piece), Kind::Rtp(_)));
}

proptest! {
    /// What is missing and what came make up what was sent, if nothing else happened.
    #[test]
    fn what_is_lost_is_counted(first: u16, kept in proptest::collection::vec(any::<bool>(),
        2..500)) {
        let mut follower = Follower::new(SECOND);
        let sent = (0_u16..).zip(&kept).filter(|(_, kept)| **kept);
        let numbers: Vec<_> = sent.map(|(i, _)| first.wrapping_add(i)).collect();
        let datagrams: Vec<_> = numbers.iter().map(|&number| rtp(1, number)).collect();
        notes(&mut follower, &datagrams);
        let spanned = match (numbers.first(), numbers.last()) {
            (Some(first), Some(last)) => u64::from(last.wrapping_sub(*first)) + 1,
            _ => 0,
        };
        prop_assert_eq!(follower.heard().missing + follower.heard().rtp, spanned);
    }
}
