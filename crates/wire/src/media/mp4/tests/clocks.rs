//! The frame rate of a file, and when it began by the clock on the wall.

use super::builder::*;
use super::*;
use crate::media::container::{Container, Index};
use crate::media::frame_rate::FrameRate;

/// The rate of pictures of 10 bytes that last so many ticks, of `timescale` a second, and are shown
/// so much later.
fn rate(timescale: u32, durations: &[(u32, u32)], offsets: &[(u32, u32)]) -> Option<FrameRate> {
    let count = durations.iter().map(|it| it.0).sum();
    let mut of = tables(count, 10, 0, 0);
    let rows: Vec<_> = durations.iter().flat_map(|it| [it.0, it.1]).collect();
    of[0] = counted(b"stts", 0, 2, &rows);
    if !offsets.is_empty() {
        let rows: Vec<_> = offsets.iter().flat_map(|it| [it.0, it.1]).collect();
        of.push(counted(b"ctts", 0, 2, &rows));
    }
    let track = Track {
        timescale,
        ..Track::pictures(1, of)
    };
    index(&padded(&moov(&[track], b""))).frame_rate()
}

#[test]
fn pictures_of_one_length_have_a_frame_rate() {
    assert_eq!(rate(25, &[(9, 1)], &[]), Some(FrameRate::PAL));
    assert_eq!(rate(90_000, &[(9, 3003)], &[]), Some(FrameRate::NTSC));
    assert_eq!(rate(600, &[(300, 20)], &[]), FrameRate::new(30, 1));
    // How long the last one lasts is a guess of many writers.
    assert_eq!(rate(1000, &[(8, 40), (1, 7)], &[]), Some(FrameRate::PAL));
    // Shown in another order.
    let offsets = [(1, 80), (1, 200), (1, 80), (1, 0), (5, 80)];
    assert_eq!(rate(1000, &[(9, 40)], &offsets), Some(FrameRate::PAL));
}

#[test]
fn pictures_of_several_lengths_have_none() {
    assert_eq!(rate(1000, &[(7, 40), (1, 41), (1, 40)], &[]), None);
    assert_eq!(rate(1000, &[(9, 40)], &[(8, 80), (1, 90)]), None);
    assert_eq!(rate(1000, &[(9, 0)], &[]), None);
    assert_eq!(rate(1000, &[(1, 40)], &[]), None);
    let sound = moov(&[Track::sound(1, tables(9, 160, 160, 0))], b"");
    assert_eq!(index(&padded(&sound)).frame_rate(), None);
}

#[test]
fn time_codes_count_as_their_track_says() {
    let entry = [&[0; 12], &numbers(&[1, 30_000, 1001, 30 << 24])[..]].concat();
    let codes = Track {
        handler: *b"tmcd",
        entries: vec![boxed(b"tmcd", &[&entry])],
        ..Track::pictures(2, tables(1, 4, 9, 0))
    };
    // Twice as many pictures as codes.
    let pictures = Track {
        timescale: 60_000,
        ..Track::pictures(1, tables(9, 10, 1001, 0))
    };
    let index = index(&padded(&moov(&[pictures, codes], b"")));
    assert_eq!(index.frame_rate(), Some(FrameRate::NTSC));
    assert_eq!(index.left_out[0].what, "timecode (tmcd)");
    assert_eq!(restored(index).frame_rate(), Some(FrameRate::NTSC));
}

/// An index that was saved and made again.
fn restored(index: SampledIndex) -> Index {
    let saved = Index::of(index).save().expect("all of the file is known");
    Index::restore(&saved).expect("it is of this build")
}

/// 2020-01-01 by the clock of such files, and in ns since 1970.
const OF_2020_S: u32 = 2_082_844_800 + 1_577_836_800;
const UNIX_2020_NS: u64 = 1_577_836_800_000_000_000;

/// The same movie box, made in 2020.
fn made(mut moov: Vec<u8>) -> Vec<u8> {
    let at = moov.windows(4).position(|it| it == b"mvhd").unwrap() + 8;
    moov[at..at + 4].copy_from_slice(&OF_2020_S.to_be_bytes());
    moov
}

/// A movie box with these tables, and fragments of it that begin at 500 ms of a clock, the first
/// with these boxes in front.
fn recorded(of_moov: Vec<Vec<u8>>, in_front: &[u8]) -> Option<u64> {
    let movie = moov_of_fragments(&[Track::pictures(1, of_moov)], &[[1, 1, 40, 10, 0]]);
    let mut file = [made(movie), in_front.to_vec()].concat();
    for ticks in [500_u32, 580] {
        let traf = [
            full(b"tfhd", 0, 0x0002_0000, &[&numbers(&[1])]),
            full(b"tfdt", 0, 0, &[&numbers(&[ticks])]),
            full(b"trun", 0, 1, &[&numbers(&[2, 0])]),
        ];
        file.extend(boxed(b"moof", &[&boxed(b"traf", &[&traf.concat()])]));
    }
    let index = index(&padded(&file));
    let told_ns = index.wall_clock_start_ns();
    assert_eq!(restored(index).wall_clock_start_ns(), told_ns);
    told_ns
}

#[test]
fn a_recording_began_when_its_header_was_made() {
    assert_eq!(recorded(Vec::new(), b""), Some(UNIX_2020_NS));
    // A movie box with samples was made behind them.
    assert_eq!(recorded(tables(3, 10, 40, 0), b""), None);
    let whole = moov(&[Track::pictures(1, tables(3, 10, 40, 0))], b"");
    assert_eq!(index(&padded(&made(whole))).wall_clock_start_ns(), None);
}

#[test]
fn a_recording_began_when_its_reference_time_says() {
    let ntp_2021 = 3_818_448_000;
    let unix_2021_ns = 1_609_459_200_000_000_000;
    let prft = |flags, id, ticks| {
        let fields = [id, ntp_2021, 0, ticks];
        full(b"prft", 0, flags, &[&numbers(&fields)])
    };
    let second_ns = 1_000_000_000;
    for flags in [0, 4, 24] {
        let began_ns = recorded(Vec::new(), &prft(flags, 1, 1500));
        assert_eq!(began_ns, Some(unix_2021_ns - second_ns));
    }
    // The first that tells of a clock on the wall.
    let two = [prft(8, 1, 500), prft(0, 1, 500), prft(0, 1, 9999)].concat();
    assert_eq!(recorded(Vec::new(), &two), Some(unix_2021_ns));
    // Of a track that there is not, none; and what is no such time is passed over.
    assert_eq!(recorded(Vec::new(), &prft(0, 9, 500)), None);
    let large = full(b"prft", 0, 0, &[&[0; 99]]);
    assert_eq!(recorded(Vec::new(), &large), Some(UNIX_2020_NS));
}

#[test]
fn the_time_of_a_frame_leads_back_to_it() {
    // Of most frames of such a rate it is no whole number of ns.
    let mut of = tables(600, 10, 1001, 0);
    let syncs: Vec<_> = (0..600).step_by(25).map(|it| it + 1).collect();
    of.push(counted(b"stss", 0, 1, &syncs));
    let track = Track {
        timescale: 30_000,
        ..Track::pictures(1, of)
    };
    let index = index(&padded(&moov(&[track], b"")));
    for frame in (0..600).step_by(25) {
        let time_ns = FrameRate::NTSC.time_ns(frame * 100);
        assert_eq!(index.seek(time_ns).time_ns, time_ns, "frame {frame}");
        assert_eq!(index.seek(time_ns + 1).time_ns, time_ns, "frame {frame}");
        if let Some(before_ns) = time_ns.checked_sub(1) {
            assert!(index.seek(before_ns).time_ns < time_ns, "frame {frame}");
        }
    }
}
