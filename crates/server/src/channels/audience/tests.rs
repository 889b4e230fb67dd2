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
        way: Way::Datagrams([127, 0, 0, 1].into(), to),
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
