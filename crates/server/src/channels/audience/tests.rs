//! Where those who come begin.

use super::*;
use crate::engine::interleaved::tests::ManualConnection;

/// What H.264 begins with: a sync sample, and another picture.
const SYNC: u8 = 0x65;
const OTHER: u8 = 0x41;

/// Of pictures and sound.
fn audience() -> Audience {
    let tracks = [(SyncRule::H264, 90_000), (SyncRule::Every, 48_000)];
    let tracks = tracks.map(|(rule, clock_hz)| (rule, clock_hz, Arc::default()));
    let settings = AudienceSettings::new(&ChannelsConfig::default(), &Limits::default());
    Audience::new(tracks.into_iter(), settings)
}

fn give(audience: &mut Audience, track: usize, sequence: u16, nal: u8) {
    let header = Header {
        marker: true,
        payload_type: 96,
        sequence,
        timestamp: u32::from(sequence) * 3600,
        ssrc: 7,
    };
    let packet = [&header.to_bytes()[..], &[nal, 0]].concat();
    assert!(audience.give(track, packet.into(), (0, 0)));
}

/// The first sequence number of each of these tracks for who begins so, if it is known.
fn begins(audience: &mut Audience, tracks: &[usize], start: LiveStart) -> Vec<Option<u16>> {
    let to = ([127, 0, 0, 1], 9).into();
    let wanted = tracks.iter().map(|&track| ViewerTrack {
        track,
        way: Way::Datagrams(([127, 0, 0, 1], 0).into(), to),
        viewing: Arc::default(),
        start: Some(start),
        srtp: None,
    });
    let starts = audience.prepare(1, wanted.collect(), 0).into_iter();
    starts.map(|start| Some(start?.sequence)).collect()
}

#[test]
fn sound_does_not_come_before_pictures_that_are_awaited() {
    let mut audience = audience();
    for (sequence, nal) in [(0, SYNC), (1, OTHER), (2, OTHER)] {
        give(&mut audience, 0, sequence, nal);
        give(&mut audience, 1, sequence + 100, 0);
    }
    let both = &[0, 1];
    assert_eq!(
        begins(&mut audience, both, LiveStart::Last),
        [Some(0), Some(100)]
    );
    assert_eq!(begins(&mut audience, both, LiveStart::Next), [None, None]);
    // Sound alone waits for nothing.
    assert_eq!(begins(&mut audience, &[1], LiveStart::Next), [Some(100)]);
    // Of pictures nothing is kept.
    audience.forget();
    give(&mut audience, 0, 3, OTHER);
    give(&mut audience, 1, 103, 0);
    assert_eq!(begins(&mut audience, both, LiveStart::Last), [None, None]);
    assert_eq!(begins(&mut audience, &[1], LiveStart::Last), [Some(103)]);
}

/// Pictures are announced and do not come, or have ceased.
#[test]
fn sound_alone_begins_with_what_comes_where_much_is_kept() {
    let mut audience = audience();
    // Of 75 ms each: ten seconds, and then more.
    for has_pictures in [false, true] {
        audience.forget();
        if has_pictures {
            give(&mut audience, 0, 0, SYNC);
        }
        (0..=133).for_each(|it| give(&mut audience, 1, it, 0));
        assert_eq!(begins(&mut audience, &[1], LiveStart::Last), [Some(0)]);
        give(&mut audience, 1, 134, 0);
        assert_eq!(begins(&mut audience, &[1], LiveStart::Last), [None]);
    }
    // Who has the pictures as well gets all of it.
    let both = begins(&mut audience, &[0, 1], LiveStart::Last);
    assert_eq!(both, [Some(0), Some(0)]);
}

#[test]
fn who_has_joined_costs_nothing_when_others_come_and_go() {
    let mut audience = audience();
    audience.settings.way = Some(group::Way::Sendmmsg);
    let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let ports = ViewerPorts {
        track: 0,
        local,
        shared: None,
        sockets: [socket(), socket()],
    };
    audience.open(ports).unwrap();
    for (sequence, nal) in [(0, SYNC), (1, OTHER)] {
        give(&mut audience, 0, sequence, nal);
    }
    let players = [socket(), socket()];
    let [one, other] = players.each_ref().map(|it| it.local_addr().unwrap());
    // The first died, and came back at its port.
    for (id, to) in [(1, one), (2, one), (3, other)] {
        let wanted = ViewerTrack {
            track: 0,
            way: Way::Datagrams(local, to),
            viewing: Arc::default(),
            start: None,
            srtp: None,
        };
        audience.prepare(id, vec![wanted], 0);
        audience.start(id);
    }
    assert_eq!(audience.viewers.busy().count(), 3);
    audience.send_backlogs(0);
    assert_eq!(audience.viewers.busy().count(), 0);
    assert_eq!(audience.watching(), 3);
    // Two packets each, of a header and two bytes.
    let alone = audience.alone;
    assert_eq!((alone.packets, alone.bytes), (6, 6 * 14));
    let mut receivers = vec![audience.tracks[0].lane.receivers()];
    for id in 1..=3 {
        audience.leave(id, 0);
        receivers.push(audience.tracks[0].lane.receivers());
    }
    assert_eq!(receivers, [2, 2, 1, 0]);
    assert_eq!(audience.watching(), 0);
    assert!(audience.members.are(std::iter::empty()));
}

/// What comes meanwhile does not wait for all of a crowd.
#[test]
fn those_who_catch_up_take_turns() {
    let mut audience = audience();
    audience.settings.way = Some(group::Way::Sendmmsg);
    let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let ports = ViewerPorts {
        track: 0,
        local,
        shared: None,
        sockets: [socket(), socket()],
    };
    audience.open(ports).unwrap();
    give(&mut audience, 0, 0, SYNC);
    let player = socket();
    let begin = |audience: &mut Audience, id| {
        let wanted = ViewerTrack {
            track: 0,
            way: Way::Datagrams(local, player.local_addr().unwrap()),
            viewing: Arc::default(),
            start: None,
            srtp: None,
        };
        audience.prepare(id, vec![wanted], 0);
        audience.start(id);
    };
    // Packets that left, and who waits.
    let seen = |audience: &Audience| {
        let waiting = audience.viewers.busy().next().map(|it| it.id);
        (audience.alone.packets, waiting)
    };
    let at_once = viewers::VIEWERS_AT_ONCE as u64;
    (0..=at_once).for_each(|id| begin(&mut audience, id));
    audience.send_backlogs(0);
    assert_eq!(seen(&audience), (at_once, Some(at_once)));
    // Who has waited goes first, and who comes meanwhile has its turn in the next round.
    audience.leave(0, 0);
    begin(&mut audience, 0);
    audience.send_backlogs(0);
    assert_eq!(seen(&audience), (at_once + 1, Some(0)));
    audience.send_backlogs(0);
    assert_eq!(seen(&audience), (at_once + 2, None));
}

/// What a client has taken the kernel says, who is asked for those that wait.
#[test]
fn a_slow_viewer_on_tcp_costs_no_look_at_others() {
    const OTHERS: usize = 100;
    const STEPS: u64 = 50;
    let mut audience = audience();
    give(&mut audience, 0, 0, SYNC);
    let [slow, other] = [0, 1].map(|_| ManualConnection::new());
    for id in 0..=OTHERS as u64 {
        let manual = if id == 0 { &slow } else { &other };
        let wanted = ViewerTrack {
            track: 0,
            way: Way::Frames(Arc::clone(&manual.connection), 0),
            viewing: Arc::default(),
            start: None,
            srtp: None,
        };
        audience.prepare(id, vec![wanted], 0);
        audience.start(id);
    }
    // It has all that it may have.
    let frames = vec![0; audience.settings.bounds.backlog_bytes_max];
    let full = Arc::clone(&slow.connection);
    full.try_send_frames(frames, &mut Unwoken::default())
        .unwrap();
    // Four at a time, because they share a connection.
    for _ in 0..OTHERS {
        audience.send_backlogs(0);
        other.take();
    }
    for step in 1..=STEPS {
        assert!(audience.due_in_ns(step * STEP_NS).unwrap() >= STEP_NS);
        audience.send_backlogs(step * STEP_NS);
    }
    let viewers = audience.viewers.busy();
    let viewers: Vec<_> = viewers.map(|viewer| &viewer.tracks[0]).collect();
    assert!(viewers[0].backlog_bytes() > 0);
    assert!(viewers[1..].iter().all(|it| it.backlog_bytes() == 0));
    let looks = |viewers: &[&Watched]| viewers.iter().map(|it| it.looks()).sum::<usize>();
    assert_eq!(looks(&viewers[1..]), OTHERS, "one each, at first");
    assert_eq!(looks(&viewers[..1]), 2 + 10, "at first, and each 10 ms");
}

#[test]
fn links_with_one_address_have_ports_of_their_own() {
    let mut audience = audience();
    audience.settings.way = Some(group::Way::Sendmmsg);
    let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
    for local in ["[fe80::1%2]:0", "[fe80::1%3]:0"] {
        let ports = ViewerPorts {
            track: 0,
            local: local.parse().unwrap(),
            shared: None,
            sockets: [socket(), socket()],
        };
        audience.open(ports).unwrap();
    }
    let track = &audience.tracks[0];
    assert_eq!(track.lane.outlets.len(), 2);
    assert_eq!(track.single.len(), 2);
}
