//! Where those who come begin.

use super::*;

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
    let mut receivers = vec![audience.tracks[0].lane.receivers()];
    for id in 1..=3 {
        audience.leave(id, 0);
        receivers.push(audience.tracks[0].lane.receivers());
    }
    assert_eq!(receivers, [2, 2, 1, 0]);
    assert_eq!(audience.watching(), 0);
    assert!(audience.members.are(std::iter::empty()));
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
