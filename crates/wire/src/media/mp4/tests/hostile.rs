//! Files that are broken, or made to do harm.

use proptest::prelude::*;

use super::builder::*;
use super::*;
use crate::media::container::{self, Continued};
use crate::media::samples::SAMPLES_MAX;

/// A file with all kinds of boxes in it.
fn rich() -> Vec<u8> {
    let mut of_pictures = tables(6, 8, 10, 44);
    of_pictures.push(counted(b"stss", 0, 1, &[1, 4]));
    let groups = numbers(&[2, 4, 0, 2, 1]);
    of_pictures.push(full(b"sbgp", 0, 0, &[b"rap ", &groups]));
    of_pictures.push(counted(b"ctts", 1, 2, &[3, 5, 3, (-5_i32).cast_unsigned()]));
    let pictures = Track {
        entries: vec![avc3()],
        edits: vec![(5, -1, 1 << 16), (60, 5, 1 << 16)],
        ..Track::pictures(1, of_pictures)
    };
    let esds = [
        &[0, 0, 0, 0, 3, 25, 0, 1, 0, 4, 17, 0x40, 0x15, 0, 0, 0][..],
        &[0; 8],
        &[5, 2, 0x11, 0x90, 6, 1, 2],
    ];
    let esds = boxed(b"esds", &[&esds.concat()]);
    let aac = Track {
        entries: vec![sound(b"mp4a", 2, 16, 48000, &esds)],
        ..Track::sound(2, tables(4, 10, 1024, 92))
    };
    let law = Track::sound(3, tables(400, 1, 1, 132));
    let text = Track {
        handler: *b"text",
        entries: vec![boxed(b"tx3g", &[&[0; 30]])],
        ..Track::pictures(4, tables(1, 1, 1, 0))
    };
    let data: Vec<_> = std::iter::repeat_n([0, 0, 0, 4, 0x65, 1, 2, 3], 61)
        .flatten()
        .collect();
    let trex = [[1, 1, 10, 8, 0], [3, 1, 1, 1, 0]];
    let mdat = boxed(b"mdat", &[&[0; 16], &data]);
    let moov = moov_of_fragments(&[pictures, aac, law, text], &trex);
    let traf = [
        full(b"tfhd", 0, 0x0002_0000, &[&numbers(&[1])]),
        full(b"tfdt", 0, 0, &[&numbers(&[60])]),
        full(b"trun", 1, 0xf05, &[&numbers(&[1, 96, 0, 10, 8, 0, 0])]),
    ];
    let moof = boxed(b"moof", &[&boxed(b"traf", &[&traf.concat()])]);
    [ftyp(), mdat, moov, moof, boxed(b"mdat", &[&data])].concat()
}

/// What holds of any index.
fn check(index: &SampledIndex, file_bytes: u64) {
    assert!(index.sampled.iter().any(|track| track.playable() > 0));
    for track in &index.sampled {
        for sample in samples(track).iter().take(track.playable()) {
            assert!(
                sample.offset + u64::from(sample.bytes) <= file_bytes,
                "{sample:?}"
            );
        }
        assert!(track.facts.problems.len() <= fill::PROBLEMS_MAX + 1);
    }
}

#[test]
fn a_file_cut_at_any_byte_is_an_error_or_a_part() {
    let file = rich();
    let whole = index(&file);
    assert_eq!(whole.sampled.len(), 3, "{:?}", whole.left_out);
    assert_eq!(
        whole.sampled.iter().map(|it| it.playable()).sum::<usize>(),
        7 + 4 + 3
    );
    for end in 0..file.len() {
        let mut scanner = Scanner::default();
        read(&mut scanner, &file[..end], 9999).unwrap();
        if let Ok(settled) = scanner.settled() {
            check(&settled, end as u64);
        }
        if let Ok(index) = scanner.finish() {
            check(&index, end as u64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn changed_bytes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        large in any::<prop::sample::Index>(), value in any::<u32>(), is_large in any::<bool>(),
    ) {
        let mut file = rich();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if is_large {
            let at = large.index(file.len() - 4);
            file[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        let mut scanner = Scanner::default();
        if read(&mut scanner, &file, 9999).is_ok() {
            if let Ok(index) = scanner.settled() {
                check(&index, file.len() as u64);
            }
            if let Ok(index) = scanner.finish() {
                check(&index, file.len() as u64);
            }
        }
    }
}

/// Read behind those who play it, a film turns out to be broken in one track: the other goes on.
#[test]
fn a_sample_found_broken_later_ends_its_track_alone() {
    let pictures = Track {
        entries: vec![avc3()],
        ..Track::pictures(1, tables(6, 8, 10, 0))
    };
    let of_sound = tables(6, 8, 10, 48);
    let moov = |at: u32| {
        let mut tracks = [pictures.clone(), Track::sound(2, of_sound.clone())];
        tracks[0].tables = tables(6, 8, 10, at);
        tracks[1].tables = tables(6, 8, 10, at + 48);
        moov(&tracks, &[])
    };
    let at = moov(0).len() + 8;
    let mut samples = [0, 0, 0, 4, 0x65, 1, 2, 3].repeat(12);
    // The length of the NAL unit in the fifth sample.
    samples[32 + 3] = 5;
    let file = [
        moov(u32::try_from(at).unwrap()),
        boxed(b"mdat", &[&samples]),
    ]
    .concat();
    let mut scanner = Scanner::default();
    let wanted = |scanner: &mut Scanner| scanner.wants(file.len() as u64);
    while let Some(wanted) = wanted(&mut scanner).filter(|it| it.end <= at as u64 + 24) {
        let part = usize::try_from(wanted.start).unwrap()..usize::try_from(wanted.end).unwrap();
        scanner.push(&file[part]).unwrap();
    }
    let old = container::Index::of(scanner.settled().unwrap());
    read(&mut scanner, &file, 9999).unwrap();
    let settled = scanner.settled().unwrap();
    for new in [settled, scanner.finish().unwrap()] {
        let playable: Vec<_> = new.sampled.iter().map(|it| it.playable()).collect();
        assert_eq!(playable, [4, 6]);
        let continued = container::Index::of(new).continuing(&old);
        assert!(matches!(continued, Continued::More(_)), "{continued:?}");
    }
}

#[test]
fn lengths_that_no_box_has_are_told() {
    let at = |size: &[u8]| {
        let file = [ftyp(), size.to_vec(), vec![0; 100]].concat();
        pushed(&file, 9999).unwrap_err().to_string()
    };
    for size in 2..8 {
        let expected = format!("at byte 20 a box is said to have {size} bytes");
        assert_eq!(at(&[0, 0, 0, size, b'm', b'o', b'o', b'v']), expected);
    }
    let long = |name: &[u8], size: u64| [&[0, 0, 0, 1], name, &size.to_be_bytes()].concat();
    assert!(at(&long(b"moov", 15)).contains("said to have 15 bytes"));
    let no_movie = Mp4Error::NoMovie.to_string();
    assert_eq!(at(&long(b"free", 1 << 63)), no_movie);
    assert_eq!(at(&long(b"free", u64::MAX)), no_movie);
    assert_eq!(at(&[0, 0, 0, 0, b'm', b'd', b'a', b't']), no_movie);
    let large = at(&long(b"moov", MOOV_BYTES_MAX + 1));
    assert_eq!(large, "its moov has 268435457 bytes, more than 268435456");
    let cut = at(&long(b"moov", MOOV_BYTES_MAX));
    assert!(
        cut.starts_with("it ends in the middle of its movie box"),
        "{cut}"
    );
}

#[test]
fn a_large_fragment_ends_the_file_and_is_told() {
    let moov = moov_of_fragments(&[Track::pictures(1, tables(3, 1, 10, 0))], &[]);
    let bytes = u32::try_from(MOOF_BYTES_MAX + 1).unwrap();
    let file = [&moov[..], &bytes.to_be_bytes(), b"moof", &[0; 100]].concat();
    assert_eq!(
        told(&file),
        "its moof has 16777217 bytes, more than 16777216"
    );
}

#[test]
fn what_cannot_be_played_is_left_out_with_a_reason() {
    let of = |track: Track| told(&padded(&moov(&[track], b"")));
    let one = || Track::pictures(1, tables(3, 1, 10, 0));
    let coded = |entry| {
        of(Track {
            entries: vec![entry],
            ..one()
        })
    };
    let nothing = "nothing in it can be played: track 1, ";
    let scheme = |name: &[u8; 4]| full(b"schm", 0, 0, &[name, &[0; 4]]);
    let sinf = boxed(b"sinf", &[&boxed(b"frma", &[b"avc1"]), &scheme(b"cenc")]);
    assert_eq!(
        coded(visual(b"encv", &sinf)),
        format!("{nothing}avc1: it is encrypted (cenc)")
    );
    assert_eq!(
        coded(visual(b"encv", b"")),
        format!("{nothing}encv: it is encrypted")
    );
    let alac = Track {
        entries: vec![sound(b"alac", 2, 16, 44100, b"")],
        ..Track::sound(1, tables(3, 1, 10, 0))
    };
    let no_way = "there is no way to send it";
    assert_eq!(
        of(alac),
        format!("{nothing}Apple Lossless (alac): {no_way}")
    );
    assert_eq!(
        coded(visual(b"SVQ9", b"")),
        format!("{nothing}SVQ9: {no_way}")
    );
    let no_configuration = "its sample entry has no avcC";
    assert_eq!(
        coded(visual(b"avc1", b"")),
        format!("{nothing}avc1: {no_configuration}")
    );
    let short = boxed(b"vp08", &[&[0; 20]]);
    assert_eq!(
        coded(short),
        format!("{nothing}vp08: its sample entry ends too early")
    );
}

#[test]
fn other_media_and_tracks_without_samples_are_left_out() {
    let of = |track: Track| told(&padded(&moov(&[track], b"")));
    let one = || Track::pictures(1, tables(3, 1, 10, 0));
    let nothing = "nothing in it can be played: track 1, ";
    let kind = |handler: &[u8; 4], entry: &[u8; 4]| {
        let entries = vec![boxed(entry, &[&[0; 8]])];
        of(Track {
            handler: *handler,
            entries,
            ..one()
        })
    };
    let neither = "neither pictures nor sound";
    assert_eq!(
        kind(b"sbtl", b"tx3g"),
        format!("{nothing}subtitles (tx3g): {neither}")
    );
    assert_eq!(
        kind(b"tmcd", b"tmcd"),
        format!("{nothing}timecode (tmcd): {neither}")
    );
    assert_eq!(
        kind(b"hint", b"rtp "),
        format!("{nothing}hints for servers (rtp): {neither}")
    );
    assert_eq!(
        kind(b"meta", b"mebx"),
        format!("{nothing}metadata (mebx): {neither}")
    );
    let still = Track {
        timescale: 0,
        ..one()
    };
    assert_eq!(
        of(still),
        format!("{nothing}vp8: its times have 0 ticks a second")
    );
    let without = Track::pictures(1, Vec::new());
    assert_eq!(of(without), format!("{nothing}vp8: it has no samples"));
    let without_fragments = moov_of_fragments(&[Track::pictures(1, Vec::new())], &[]);
    assert_eq!(
        told(&without_fragments),
        format!("{nothing}vp8: it has no samples")
    );
    let compressed = boxed(b"moov", &[&boxed(b"cmov", &[&[0; 50]])]);
    assert!(told(&compressed).contains("compressed (cmov)"));
    assert_eq!(
        told(&boxed(b"moov", &[])),
        "nothing in it can be played: it has no tracks"
    );
}

#[test]
fn a_second_track_of_a_number_is_left_out() {
    let tracks = [1, 1].map(|id| Track::pictures(id, tables(3, 1, 10, 0)));
    let index = index(&padded(&moov(&tracks, b"")));
    assert_eq!(only(&index).samples.len(), 3);
    assert_eq!(
        index.left_out[0].reason,
        "a track before it has the same number"
    );
}

#[test]
fn tracks_are_looked_at_up_to_a_limit() {
    let of = |count: u32| {
        let text = |id| Track {
            handler: *b"text",
            ..Track::pictures(id, Vec::new())
        };
        let mut tracks: Vec<_> = (2..=count).map(text).collect();
        tracks.insert(0, Track::pictures(1, tables(3, 1, 10, 0)));
        index(&padded(&moov(&tracks, b""))).left_out
    };
    let most = u32::try_from(movie::TRAKS_MAX).unwrap();
    assert_eq!(of(most).len(), movie::TRAKS_MAX - 1);
    let beyond = of(most + 3);
    assert_eq!(beyond.len(), movie::TRAKS_MAX);
    assert_eq!(beyond.last().unwrap().what, "3 more tracks");
}

#[test]
fn tables_that_disagree_are_taken_as_far_as_they_go() {
    let of = |changed: Vec<u8>| {
        let mut tables = tables(4, 10, 10, 0);
        tables.retain(|it| it[4..8] != changed[4..8]);
        tables.push(changed);
        let file = padded(&moov(&[Track::pictures(1, tables)], b""));
        let times = pushed(&file, 9999).map(|index| {
            let samples = samples(only(&index));
            samples.iter().map(|it| it.decode_ticks).collect::<Vec<_>>()
        });
        (times.unwrap_or_default(), told(&file))
    };
    let is = |times: &[i64], problem: &str| (times.to_vec(), problem.to_owned());
    let all = [0, 10, 20, 30];
    assert_eq!(of(counted(b"stts", 0, 2, &[9, 10])), is(&all, ""));
    assert_eq!(
        of(counted(b"stts", 0, 2, &[2, 10])),
        is(&all, "2 samples have no duration")
    );
    assert_eq!(of(counted(b"stts", 0, 2, &[0, 3, 4, 10])), is(&all, ""));
    let negative = counted(b"stts", 0, 2, &[2, u32::MAX, 2, 10]);
    assert_eq!(
        of(negative),
        is(&[0, 0, 0, 10], "2 samples have a negative duration")
    );
    let three = counted(b"stsc", 0, 3, &[1, 3, 1]);
    assert_eq!(of(three), is(&all[..3], "1 samples are in no chunk"));
    assert_eq!(of(counted(b"stsc", 0, 3, &[1, 9, 1])), is(&all, ""));
    let nothing = |why: &str| {
        is(
            &[],
            &format!("nothing in it can be played: track 1, vp8: {why}"),
        )
    };
    assert_eq!(
        of(counted(b"stsc", 0, 3, &[])),
        nothing("4 samples are in no chunk")
    );
    assert_eq!(
        of(counted(b"stco", 0, 1, &[])),
        nothing("4 samples are in no chunk")
    );
    let other = "from sample 0 on it is coded in another way (sample entry 9)";
    assert_eq!(of(counted(b"stsc", 0, 3, &[1, 4, 9])), nothing(other));
    let rows = full(b"stts", 0, 0, &[&numbers(&[u32::MAX, 4, 10])]);
    assert_eq!(
        of(rows),
        is(&all, "stts tells of 4294967295 rows and has 1")
    );
    let sizes = full(b"stsz", 0, 0, &[&numbers(&[0, u32::MAX, 1, 0, 3])]);
    let problem = "there are 4294967295 samples, and sizes of 3; 1 samples are empty";
    assert_eq!(of(sizes), is(&[0, 20], problem));
    let beyond = counted(b"stco", 0, 1, &[1 << 30]);
    let (times, problem) = of(beyond);
    assert!(
        times.is_empty() && problem.contains("the file ends at byte"),
        "{problem}"
    );
    let large = full(b"stsz", 0, 0, &[&numbers(&[0, 2, 5, u32::MAX])]);
    let problem = "sample 1: a sample of 4294967295 bytes, more than 16777216";
    assert_eq!(of(large), is(&[0], problem));
}

#[test]
fn offsets_and_times_beyond_all_bounds_end_a_track() {
    let mut tables = tables(4, 10, 10, 0);
    tables[0] = counted(b"stts", 0, 2, &[1, 10, 9, i32::MAX.cast_unsigned()]);
    let file = padded(&moov(&[Track::pictures(1, tables.clone())], b""));
    assert_eq!(samples(only(&index(&file))).len(), 4);
    tables.pop();
    let offset = full(b"co64", 0, 0, &[&numbers(&[1, u32::MAX, u32::MAX])]);
    tables.push(offset);
    let problem = told(&padded(&moov(&[Track::pictures(1, tables)], b"")));
    assert!(problem.contains("is beyond all bounds"), "{problem}");
}

#[test]
fn boxes_may_be_nested_as_deep_as_they_like() {
    let mut deep = Vec::new();
    for _ in 0..20_000 {
        let bytes = u32::try_from(deep.len() + 8).unwrap();
        let header = [&bytes.to_be_bytes(), &b"moov"[..]].concat();
        deep.splice(0..0, header);
    }
    assert!(pushed(&deep, 9999).is_err());
}

#[test]
fn samples_of_a_file_are_bounded() {
    let of = |file_bytes: u64, counts: &[u32]| {
        let tracks = (1..).zip(counts);
        let tracks: Vec<_> = tracks
            .map(|(id, &count)| Track::pictures(id, tables(count, 1, 1, 0)))
            .collect();
        let movie = Movie::read(&moov(&tracks, b"")[8..], file_bytes).unwrap();
        let of_track = |track: &SampledTrack| {
            let problem = track.facts.problems.first().cloned().unwrap_or_default();
            (track.samples.len(), problem)
        };
        let memory = movie
            .tracks
            .iter()
            .map(|it| it.samples.memory_bytes())
            .sum::<usize>();
        assert!(memory < 100_000, "{memory}");
        movie.tracks.iter().map(of_track).collect::<Vec<_>>()
    };
    let most = u32::try_from(SAMPLES_MAX).unwrap();
    let too_many = format!("the file has more than {SAMPLES_MAX} samples, or more than bytes");
    let half = most as usize / 2;
    let large = 1 << 40;
    assert_eq!(
        of(large, &[most / 2, most / 2]),
        [(half, String::new()), (half, String::new())]
    );
    assert_eq!(
        of(large, &[most / 2, u32::MAX])[1],
        (half, too_many.clone())
    );
    // No more than bytes, but as many as one may have that is not all here.
    assert_eq!(of(9999, &[1 << 20]), [(1 << 20, String::new())]);
    assert_eq!(
        of(9999, &[3, u32::MAX])[1],
        ((1 << 20) - 3, too_many.clone())
    );
    assert_eq!(of(3 << 20, &[u32::MAX]), [(3 << 20, too_many)]);
}

/// Four billion of them take minutes to look at, and seventy bytes to tell of.
#[test]
fn samples_that_are_not_sent_are_bounded_too() {
    let too_many = format!("the file has more than {SAMPLES_MAX} samples, or more than bytes");
    // Nothing of it is in front of where the edit list begins.
    let skipped = Track {
        edits: vec![(0, 1000, 1 << 16)],
        ..Track::pictures(1, tables(u32::MAX, 1, 0, 0))
    };
    let other = Track::pictures(2, tables(3, 1, 10, 0));
    let movie = Movie::read(&moov(&[skipped, other], &[])[8..], 1 << 40).unwrap();
    assert_eq!(movie.tracks.len(), 1);
    assert_eq!(movie.left_out[0].reason, too_many);
    assert_eq!(movie.tracks[0].facts.problems, [too_many]);
}

/// The first sample of the run cannot be sent; none behind it is looked at.
#[test]
fn a_run_of_four_billion_samples_is_bounded() {
    let moov = moov_of_fragments(&[Track::pictures(1, Vec::new())], &[]);
    let traf = [
        full(b"tfhd", 0, 0x0002_0010, &[&numbers(&[1, u32::MAX])]),
        full(b"trun", 0, 0, &[&numbers(&[u32::MAX])]),
    ];
    let moof = boxed(b"moof", &[&boxed(b"traf", &[&traf.concat()])]);
    let told = told(&[&moov[..], &moof].concat());
    let expected = "sample 0: a sample of 4294967295 bytes, more than 16777216";
    assert!(told.ends_with(expected), "{told}");
}

/// A file with so many samples in its tables that are one and the same, and that one behind them.
fn again_and_again(entry: &[u8], sample: &[u8], count: u32) -> Vec<u8> {
    let bytes = u32::try_from(sample.len()).unwrap();
    let movie = |at: u32| {
        let of = vec![
            counted(b"stts", 0, 2, &[count, 40]),
            counted(b"stsc", 0, 3, &[1, 1, 1]),
            full(b"stsz", 0, 0, &[&numbers(&[bytes, count])]),
            counted(b"stco", 0, 1, &vec![at; count as usize]),
        ];
        let track = Track {
            entries: vec![entry.to_vec()],
            ..Track::pictures(1, of)
        };
        moov(&[track], b"")
    };
    let at = u32::try_from(movie(0).len() + 8).unwrap();
    [movie(at), boxed(b"mdat", &[sample])].concat()
}

/// Each takes four bytes of a table, whatever it has.
#[test]
fn samples_that_lie_over_each_other_are_bounded() {
    let playable = |file: &[u8]| only(&index(file)).playable();
    // In each 1024 NAL units: no more in all than the file has bytes.
    let nal_units = [
        &[0_u8, 0, 0, 4, 0x65, 1, 2, 3][..],
        &[0, 0, 0, 20],
        &[0x65; 20],
    ]
    .concat();
    let file = again_and_again(&avc3(), &nal_units.repeat(512), 5000);
    let (bytes, most) = (file.len(), file.len() / 1024);
    assert_eq!(playable(&file), most);
    let expected = format!("sample {most}: with its parts there are more than {bytes} in all");
    assert!(told(&file).starts_with(&expected), "{}", told(&file));
    // Of MPEG-2 video all is searched for start codes.
    let sample = [0x55; 20 << 10];
    let file = again_and_again(&visual(b"m2v1", b""), &sample, 3000);
    let most = ((512 << 10) + 32 * file.len()) / sample.len();
    assert_eq!(playable(&file), most);
    let expected = format!("sample {most}: samples lie over each other");
    assert!(told(&file).starts_with(&expected), "{}", told(&file));
}

#[test]
fn a_film_of_two_hours_takes_little_memory() {
    let count = 180_000;
    let sizes: Vec<_> = (0..count).map(|it: u32| 8000 + it * 7919 % 30000).collect();
    let chunks: Vec<_> = (0..count / 12).map(|it| it * 200_000).collect();
    let sync: Vec<_> = (0..count / 50).map(|it| it * 50 + 1).collect();
    let ctts: Vec<_> = (0..count).flat_map(|it| [1, it % 3 * 512]).collect();
    let pictures = vec![
        counted(b"stts", 0, 2, &[count, 512]),
        counted(b"ctts", 0, 2, &ctts),
        counted(b"stsc", 0, 3, &[1, 12, 1]),
        full(b"stsz", 0, 0, &[&numbers(&[0, count]), &numbers(&sizes)]),
        counted(b"stco", 0, 1, &chunks),
        counted(b"stss", 0, 1, &sync),
    ];
    let count = 337_000;
    let sizes: Vec<_> = (0..count).map(|it: u32| 300 + it * 7919 % 200).collect();
    let chunks: Vec<_> = (0..count / 22 + 1)
        .map(|it| it * 200_000 + 190_000)
        .collect();
    let sound = vec![
        counted(b"stts", 0, 2, &[count, 1024]),
        counted(b"stsc", 0, 3, &[1, 22, 1]),
        full(b"stsz", 0, 0, &[&numbers(&[0, count]), &numbers(&sizes)]),
        counted(b"stco", 0, 1, &chunks),
    ];
    let mut pictures = Track::pictures(1, pictures);
    pictures.timescale = 12800;
    let mut sound = Track::sound(2, sound);
    sound.timescale = 48000;
    sound.entries = vec![builder::sound(
        b"Opus",
        2,
        16,
        48000,
        &boxed(b"dOps", &[&[0, 2, 1, 56, 0, 0, 187, 128, 0, 0, 0]]),
    )];
    let file = moov(&[pictures, sound], b"");
    let mut scanner = Scanner::default();
    // As if it were as long as it says.
    while scanner.movie.is_none() {
        let wanted = scanner.wants(1 << 33).unwrap();
        let start = usize::try_from(wanted.start).unwrap();
        let end = usize::try_from(wanted.end).unwrap();
        scanner.push(&file[start..end]).unwrap();
    }
    let settled = scanner.settled().unwrap();
    let memory = settled
        .sampled
        .iter()
        .map(|it| it.samples.memory_bytes())
        .sum::<usize>();
    let counts = settled.sampled.iter().map(|it| it.samples.len());
    assert_eq!(counts.collect::<Vec<_>>(), [180_000, 337_000]);
    assert!(memory < 2 << 20, "{memory}");
}
