//! Tests of [`super`].

use super::*;
use crate::media::ts::seek::{SeekKind, UNFLAGGED_MAX};
use crate::media::ts::synth::{MapEntry, Packet, Writer, pes, pictures};

/// 10 ms in PCR ticks; a packet in these tests lasts that long.
const PACKET_TICKS: u64 = 270_000;

const IDR: &[u8] = &[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0x65, 1, 2];
const SLICE: &[u8] = &[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0x41, 1, 2];

/// What a stream says, 10 ms a packet where it has no clock.
fn learn(stream: &[u8]) -> Learned {
    let mut demux = Demux::new();
    for packet in stream.chunks_exact(TS_PACKET_BYTES) {
        demux.packet(packet.first_chunk().unwrap());
    }
    let packets = demux.packets();
    demux.finish(Clock::constant(packets, 188 * 8 * 100), false)
}

/// PAT, and maps of programs whose video has the pid after the map's.
fn tables(writer: &mut Writer, maps: &[u16]) {
    let programs: Vec<_> = (1..).zip(maps.iter().copied()).collect();
    writer.pat(&programs);
    for (number, pid) in programs {
        let video = MapEntry {
            pid: pid + 1,
            stream_type: 0x1b,
            descriptors: &[],
        };
        writer.pmt(pid, number, pid + 1, &[video]);
    }
}

fn video(pid: u16, payload: &[u8]) -> Packet<'_> {
    Packet {
        pid,
        unit_start: true,
        payload,
        ..Packet::default()
    }
}

fn nulls(writer: &mut Writer, count: usize) {
    (0..count).for_each(|_| writer.null());
}

fn points(learned: &Learned) -> Vec<u64> {
    learned
        .seek_points
        .iter()
        .map(|point| point.ts_packet)
        .collect()
}

#[test]
fn seeking_starts_with_the_tables_if_they_are_near() {
    let mut writer = Writer::new();
    tables(&mut writer, &[100]);
    let mut expected = vec![0];
    for distance in [3, 48, 49] {
        nulls(&mut writer, 100);
        let tables_start = writer.packets();
        tables(&mut writer, &[100]);
        nulls(&mut writer, distance);
        let access = writer.packets();
        writer.packet(Packet {
            random_access: true,
            ..video(101, SLICE)
        });
        expected.push(if access - tables_start <= 50 {
            tables_start
        } else {
            access
        });
    }
    // A PAT whose map does not follow is of no use.
    nulls(&mut writer, 100);
    writer.pat(&[(1, 100)]);
    expected.push(writer.packets());
    writer.packet(Packet {
        random_access: true,
        ..video(101, SLICE)
    });
    let learned = learn(&writer.finish());
    assert_eq!(learned.streams.seek_kind, SeekKind::Flagged);
    assert_eq!(points(&learned), expected);
}

#[test]
fn pictures_are_looked_for_where_none_is_flagged() {
    let mut writer = Writer::new();
    tables(&mut writer, &[100]);
    let mut expected = vec![0];
    for payload in [SLICE, IDR, SLICE, IDR] {
        nulls(&mut writer, 60);
        if payload == IDR {
            expected.push(writer.packets());
        }
        writer.packet(video(101, payload));
    }
    let learned = learn(&writer.finish());
    assert_eq!(
        (learned.streams.seek_kind, points(&learned)),
        (SeekKind::Pictures, expected)
    );
}

/// Recordings behind one another on the same pids, of which only some flag.
#[test]
fn pictures_are_looked_for_where_flags_end() {
    const KEY: &[u8] = &[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0x65, 0x88, 2];
    // Neither begins such a picture: parameter sets, and its second slice.
    const SETS: &[u8] = &[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0x67, 0x88, 2];
    const REST: &[u8] = &[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0x65, 0x48, 2];
    const MOST: usize = UNFLAGGED_MAX as usize;
    /// Pictures, of which so many at the end are places to start; what they begin with, and whether
    /// they are flagged.
    type Run = (usize, usize, &'static [u8], bool);
    let assert_found = |runs: &[Run], kind: SeekKind| {
        let mut writer = Writer::new();
        tables(&mut writer, &[100]);
        let mut expected = vec![0];
        for &(pictures, places, payload, random_access) in runs {
            for number in 0..pictures {
                nulls(&mut writer, 60);
                if number + places >= pictures {
                    expected.push(writer.packets());
                }
                writer.packet(Packet {
                    random_access,
                    ..video(101, payload)
                });
            }
        }
        let learned = learn(&writer.finish());
        assert_eq!(learned.streams.seek_kind, kind);
        assert_eq!(points(&learned), expected);
    };
    let (flagged, unflagged) = ((20, 20, KEY, true), (30, 30 - MOST, KEY, false));
    let kind = SeekKind::Flagged;
    assert_found(&[flagged, unflagged, flagged], kind);
    assert_found(&[unflagged, flagged], kind);
    // Others that it does not flag are few, or none.
    assert_found(&[flagged, (MOST, 0, KEY, false), flagged], kind);
    for others in [SETS, REST] {
        assert_found(&[flagged, (30, 0, others, false), flagged], kind);
    }
    assert_found(&[(30, 30, SETS, false)], SeekKind::Pictures);
}

#[test]
fn sound_alone_starts_anywhere() {
    let mut writer = Writer::new();
    writer.pat(&[(1, 100)]);
    writer.pmt(
        100,
        1,
        101,
        &[MapEntry {
            pid: 101,
            stream_type: 0x03,
            descriptors: &[],
        }],
    );
    nulls(&mut writer, 100);
    let expected = vec![0, writer.packets(), writer.packets() + 1];
    writer.packet(video(101, &[0, 0, 1, 0xc0]));
    writer.packet(video(101, &[0, 0, 1, 0xc0]));
    writer.packet(video(101, &[1, 0, 1, 0xc0]));
    let learned = learn(&writer.finish());
    assert_eq!(
        (learned.streams.seek_kind, points(&learned)),
        (SeekKind::Sound, expected)
    );
}

#[test]
fn packets_of_a_table_of_several_programs_are_known() {
    // Two packets each.
    let several: Vec<(u16, u16)> = (1..=60).map(|number| (number, 100 + number)).collect();
    let mut writer = Writer::new();
    writer.pat(&several);
    writer.null();
    writer.pat(&several);
    // Others, which may tell of what follows.
    writer.pat(&several[1..]);
    writer.pat(&several[..1]);
    assert_eq!(learn(&writer.finish()).associations, [0, 1, 3, 4]);
    let mut writer = Writer::new();
    tables(&mut writer, &[100]);
    tables(&mut writer, &[100]);
    assert!(learn(&writer.finish()).associations.is_empty());
}

#[test]
fn packets_of_tables_end_at_their_limit() {
    let mut writer = Writer::new();
    writer.pat(&[(0, 16), (1, 100)]);
    let table = writer.finish();
    let table = table.first_chunk().unwrap();
    let mut demux = Demux::new();
    (0..ASSOCIATIONS_MAX).for_each(|_| demux.packet(table));
    assert_eq!(demux.associations.len(), ASSOCIATIONS_MAX);
    demux.packet(table);
    assert_eq!(demux.associations.len(), ASSOCIATIONS_MAX);
}

#[test]
fn without_tables_there_is_only_the_start() {
    let mut writer = Writer::new();
    nulls(&mut writer, 100);
    writer.packet(Packet {
        random_access: true,
        ..video(101, IDR)
    });
    let learned = learn(&writer.finish());
    assert_eq!(
        (learned.streams.seek_kind, points(&learned)),
        (SeekKind::None, vec![0])
    );
}

#[test]
fn the_clock_is_that_of_the_first_program_that_has_one() {
    // Program 1 (pids 100, 101) has one PCR and thus no clock, 2 one at half speed, 3 and a
    // stray pid others.
    let mut writer = Writer::new();
    tables(&mut writer, &[100, 200, 300]);
    for i in 0..100 {
        for (pid, ticks) in [(999, 1), (301, 2), (201, 8), (101, 0)] {
            let pcr = (ticks > 0 || i == 50).then_some(i * ticks * PACKET_TICKS);
            writer.packet(Packet {
                pcr,
                ..video(pid, SLICE)
            });
        }
    }
    let learned = learn(&writer.finish());
    let (pid, quality) = learned.streams.pcr.unwrap();
    assert_eq!(
        (pid, quality.count, learned.streams.clocked),
        (201, 100, true)
    );
    // 8 packet times in 4 packets.
    assert_eq!(
        learned.clock.time_ns(404) - learned.clock.time_ns(400),
        80_000_000
    );
}

/// Packets of pictures, each of which lasts so many of 10 ms by its clock, whose first reference is
/// `pcr`. The packet of the one to start at comes back; it `is_flagged`, or found.
fn piece(writer: &mut Writer, pid: u16, lasts: u64, pcr: u64, is_flagged: bool) -> u64 {
    const SYNC: u64 = 60;
    let first = writer.packets();
    for i in 0..100 {
        let payload = match i == SYNC && !is_flagged {
            true => IDR,
            false => SLICE,
        };
        writer.packet(Packet {
            pcr: Some(pcr + i * lasts * PACKET_TICKS),
            random_access: i == SYNC && is_flagged,
            ..video(pid, payload)
        });
    }
    first + SYNC
}

/// By the clock a piece lasts as long as it says, in which one can start there.
fn assert_lasts(learned: &Learned, sync: u64, lasts: u64) {
    let time_ns = learned.clock.time_ns(sync) - learned.clock.time_ns(sync - 50);
    assert_eq!(time_ns, 50 * lasts * 10_000_000, "at {sync}");
}

const HOUR: u64 = 3600 * 27_000_000;

#[test]
fn a_program_goes_on_with_the_pids_of_another_map() {
    program_goes_on(&[(1, 100)]);
    // As receivers record it: the table names another first, of which there is nothing.
    program_goes_on(&[(7, 700), (1, 100)]);
}

fn program_goes_on(table: &[(u16, u16)]) {
    let mut writer = Writer::new();
    writer.pat(table);
    let mut expected = vec![0];
    for (pid, lasts, pcr) in [(101, 1, 0), (201, 2, HOUR), (101, 1, 2 * HOUR)] {
        let video = MapEntry {
            pid,
            stream_type: 0x1b,
            descriptors: &[],
        };
        writer.pmt(100, 1, pid, &[video]);
        expected.push(piece(&mut writer, pid, lasts, pcr, false));
    }
    let learned = learn(&writer.finish());
    assert_eq!(points(&learned), expected);
    for (sync, lasts) in expected[1..].iter().zip([1, 2, 1]) {
        assert_lasts(&learned, *sync, lasts);
    }
    assert_eq!(learned.streams.pcr.unwrap().0, 101);
    assert_eq!(learned.clock.breaks().len(), 2);
}

/// As `cat` makes them of what different programs have written.
#[test]
fn recordings_behind_one_another_are_one_film() {
    let mut writer = Writer::new();
    let mut expected = vec![0];
    for (map, lasts, pcr) in [(100, 1, 0), (200, 2, HOUR), (100, 1, 2 * HOUR)] {
        // What comes in front of its tables.
        writer.packet(Packet {
            pcr: Some(pcr),
            ..video(map + 1, SLICE)
        });
        tables(&mut writer, &[map]);
        let pcr = pcr + PACKET_TICKS;
        let sync = piece(&mut writer, map + 1, lasts, pcr, map == 200);
        expected.push(sync);
    }
    let learned = learn(&writer.finish());
    assert_eq!(learned.streams.seek_kind, SeekKind::Pictures);
    assert_eq!(points(&learned), expected);
    for (sync, lasts) in expected[1..].iter().zip([1, 2, 1]) {
        assert_lasts(&learned, *sync, lasts);
    }
    assert_eq!(learned.clock.breaks().len(), 2);
}

#[test]
fn replacements_of_streams_end_at_their_limit() {
    for pieces in [REPLACEMENTS_MAX + 1, REPLACEMENTS_MAX + 2] {
        let mut writer = Writer::new();
        writer.pat(&[(1, 100)]);
        for pid in [101, 201].into_iter().cycle().take(pieces) {
            let entry = MapEntry {
                pid,
                stream_type: 0x1b,
                descriptors: &[],
            };
            writer.pmt(100, 1, pid, &[entry]);
            nulls(&mut writer, 60);
            writer.packet(video(pid, IDR));
        }
        let learned = learn(&writer.finish());
        // The start of the file, too.
        assert_eq!(points(&learned).len(), 1 + REPLACEMENTS_MAX + 1);
    }
}

/// What follows the last reference at the rate before it says nothing of how long that picture
/// lasts.
#[test]
fn a_last_picture_lasts_as_long_as_the_shortest() {
    let lasts_ms = |last: &[(u64, u64)]| {
        let stream = pictures(&[&[(5, 40); 25][..], last].concat(), 27_000);
        let learned = learn(&stream);
        let packets = stream.len() as u64 / 188;
        // Behind the tables.
        (learned.clock.time_ns(packets) - learned.clock.time_ns(2)) / 1_000_000
    };
    // 40 s and 0.4 s, if the packets were asked.
    assert_eq!(lasts_ms(&[(5, 4000), (50, 4000)]), 5040);
    assert_eq!(lasts_ms(&[(50, 4000), (5, 4000)]), 5040);
    // One large picture behind small ones.
    assert_eq!(lasts_ms(&[(500, 40)]), 1040);
    // References often enough are believed to the packet.
    assert_eq!(lasts_ms(&[(10, 40)]), 1080);
}

/// References a thousand times too slow would have it sent a thousand times too fast, and the
/// other way round.
#[test]
fn references_that_contradict_their_streams_are_not_believed() {
    let film = [(5, 40); 250];
    for (pcr_per_ms, clock_ms) in [(27, 9), (271_000, 99_968), (2_699, 995)] {
        let learned = learn(&pictures(&film, pcr_per_ms));
        let doubt = learned.streams.doubt.expect("it is grossly wrong");
        assert_eq!((doubt.pid, doubt.stream_ns), (0x100, 9_960_000_000));
        assert_eq!(doubt.clock_ns / 1_000_000, clock_ms, "{pcr_per_ms}");
        let time_ms = |packet| learned.clock.time_ns(packet) / 1_000_000;
        assert_eq!(time_ms(2 + 5 * 100) - time_ms(2), 4000);
        assert_eq!(time_ms(2 + 5 * 250) - time_ms(2), 10_000);
        assert!(learned.streams.clocked && learned.streams.pcr.is_some());
    }
    // Wrong, but not grossly; and too short to say.
    for (pictures_, pcr_per_ms) in [(250, 2_700), (250, 269_000), (250, 27_000), (25, 27)] {
        let learned = learn(&pictures(&film[..pictures_], pcr_per_ms));
        assert_eq!(learned.streams.doubt, None, "{pictures_} {pcr_per_ms}");
    }
}

#[test]
fn times_are_followed_of_so_many_streams() {
    for (programs, is_followed) in [(TIMED_STREAMS_MAX, true), (TIMED_STREAMS_MAX + 1, false)] {
        let mut writer = Writer::new();
        let maps: Vec<u16> = (0_u16..).map(|i| 100 + 2 * i).take(programs).collect();
        tables(&mut writer, &maps);
        // Only the last program has pictures, and a clock a hundred times too slow.
        let pid = maps.last().unwrap() + 1;
        for i in 0..200 {
            writer.packet(Packet {
                pcr: Some(i * PACKET_TICKS / 100),
                ..video(pid, &pes(i * PACKET_TICKS / 300, IDR))
            });
            nulls(&mut writer, 9);
        }
        let learned = learn(&writer.finish());
        assert_eq!(learned.streams.doubt.is_some(), is_followed);
    }
}

#[test]
fn without_a_clock_the_fallback_holds() {
    let mut writer = Writer::new();
    tables(&mut writer, &[100]);
    writer.packet(Packet {
        pcr: Some(5),
        ..video(101, SLICE)
    });
    nulls(&mut writer, 50);
    let learned = learn(&writer.finish());
    assert!(!learned.streams.clocked);
    assert_eq!(learned.clock.time_ns(50), 500_000_000);
}

#[test]
fn an_announced_discontinuity_counts_until_the_next_reference() {
    let mut writer = Writer::new();
    for i in 0..100_u64 {
        // The flag comes a packet before the first reference of the new base, 9 s on.
        let pcr = (i != 49).then_some(i * PACKET_TICKS + u64::from(i >= 50) * 9 * 27_000_000);
        let discontinuity = i == 49;
        writer.packet(Packet {
            pcr,
            discontinuity,
            ..video(101, SLICE)
        });
    }
    let learned = learn(&writer.finish());
    assert_eq!(learned.streams.pcr.unwrap().1.discontinuities, 1);
    assert_eq!(learned.clock.time_ns(100), 1_000_000_000);
}

#[test]
fn faults_are_counted_and_tolerated() {
    let mut writer = Writer::new();
    tables(&mut writer, &[100]);
    for _ in 0..8 {
        writer.packet(video(101, SLICE));
    }
    nulls(&mut writer, 5);
    let mut packets: Vec<Vec<u8>> = writer
        .finish()
        .chunks(TS_PACKET_BYTES)
        .map(<[u8]>::to_vec)
        .collect();
    // Twice the same is allowed, three times is not; nor is a missing one.
    packets.insert(3, packets[3].clone());
    packets.insert(6, packets[6].clone());
    packets.insert(6, packets[6].clone());
    packets.remove(10);
    packets[11][1] |= 0x80;
    packets[9][3] |= 0x80;
    let learned = learn(&packets.concat());
    let facts = &learned.streams;
    // The third copy, the missing packet, and the one whose header cannot be trusted.
    assert_eq!(facts.continuity_errors, 2);
    assert_eq!(
        (facts.nulls, facts.transport_errors, facts.scrambled),
        (5, 1, 1)
    );
    assert_eq!(facts.programs[0].streams[0].packets, 9);
    assert_eq!(facts.programs[0].streams[0].continuity_errors, 2);
    assert_eq!(facts.pids, 3);
}

#[test]
fn clocks_end_at_their_limit() {
    let mut writer = Writer::new();
    let pids = 100..=100 + u16::try_from(CLOCKS_MAX).unwrap();
    // The last is the program's, but comes too late.
    writer.pat(&[(1, 50)]);
    let late = *pids.end();
    writer.pmt(50, 1, late, &[]);
    for pid in pids {
        for i in 0..10 {
            writer.packet(Packet {
                pid,
                pcr: Some(i * PACKET_TICKS),
                ..Packet::default()
            });
        }
    }
    let stream = writer.finish();
    assert_eq!(learn(&stream).streams.pcr.unwrap().0, 100);
    // One less, and it fits.
    let rest = [&stream[..2 * 188], &stream[12 * 188..]].concat();
    assert_eq!(learn(&rest).streams.pcr.unwrap().0, late);
}

#[test]
fn followed_streams_end_at_their_limit() {
    for (programs, kind) in [
        (SEEKERS_MAX, SeekKind::Flagged),
        (SEEKERS_MAX + 1, SeekKind::None),
    ] {
        let mut writer = Writer::new();
        let maps: Vec<u16> = (0_u16..).map(|i| 100 + 2 * i).take(programs).collect();
        tables(&mut writer, &maps);
        nulls(&mut writer, 100);
        // Only the last program has pictures.
        let pid = maps.last().unwrap() + 1;
        writer.packet(Packet {
            random_access: true,
            ..video(pid, SLICE)
        });
        assert_eq!(learn(&writer.finish()).streams.seek_kind, kind);
    }
}
