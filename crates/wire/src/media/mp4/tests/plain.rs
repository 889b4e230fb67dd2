//! Files in one piece.

use proptest::prelude::*;

use super::builder::*;
use super::movie::TRAKS_MAX;
use super::*;
use crate::media::colour::Colour;

/// What a file is made of: the chunks of a track and the samples in each, with their sizes,
/// durations, composition offsets and whether they are sync samples.
type Chunk = Vec<(u32, u32, i32, bool)>;

#[derive(Clone, Copy, Debug)]
struct Form {
    moov_first: bool,
    long_offsets: bool,
    size_bits: u32,
    signed: bool,
    mdat_header: u8,
    at_once: usize,
}

fn chunks() -> impl Strategy<Value = Vec<Chunk>> {
    let sample = (1_u32..16, 1_u32..5, 0_i32..40, any::<bool>());
    prop::collection::vec(prop::collection::vec(sample, 1..6), 1..20)
}

fn form() -> impl Strategy<Value = Form> {
    let bits = prop_oneof![Just(4_u32), Just(8), Just(16), Just(32)];
    let bools = (any::<bool>(), any::<bool>(), any::<bool>());
    (bools, bits, 0_u8..3, 1_usize..600).prop_map(|((a, b, c), size_bits, mdat_header, at_once)| {
        Form {
            moov_first: a,
            long_offsets: b,
            size_bits,
            signed: c,
            mdat_header,
            at_once,
        }
    })
}

/// The file, and the samples that are in it. `mdat` may have a long length, or none if it is last.
fn file(chunks: &[Chunk], form: Form) -> (Vec<u8>, Vec<Sample>) {
    let shift = if form.signed { 20 } else { 0 };
    let of = |data: u64| {
        let (mut offset, mut decode_ticks) = (data, 0);
        let (mut samples, mut offsets) = (Vec::new(), Vec::new());
        for chunk in chunks {
            // A byte between chunks.
            offset += 1;
            offsets.push(offset);
            for &(bytes, duration, composition, is_sync) in chunk {
                samples.push(Sample {
                    offset,
                    bytes,
                    decode_ticks,
                    composition_ticks: (composition - shift).into(),
                    is_sync,
                    entry: 0,
                });
                decode_ticks += i64::from(duration);
                offset += u64::from(bytes);
            }
        }
        let tables = tables_of(chunks, &samples, &offsets, form);
        let moov = moov(&[Track::pictures(1, tables)], b"");
        (moov, samples, offset - data)
    };
    let header = |bytes: u64| match form.mdat_header {
        0 => boxed(b"mdat", &[])[4..].to_vec(),
        1 => [&[0, 0, 0, 1], &b"mdat"[..], &(bytes + 16).to_be_bytes()].concat(),
        // To the end of the file, which it is not if the tables follow.
        _ if form.moov_first => [&[0, 0, 0, 0], &b"mdat"[..]].concat(),
        _ => Vec::new(),
    };
    let (first_moov, _, data_bytes) = of(0);
    let mut mdat = header(data_bytes);
    if mdat.len() < 8 {
        let bytes = u32::try_from(data_bytes + 8).unwrap();
        mdat = [&bytes.to_be_bytes(), &b"mdat"[..]].concat();
    }
    let before = ftyp().len() + mdat.len() + if form.moov_first { first_moov.len() } else { 0 };
    let (moov, samples, _) = of(before as u64);
    mdat.extend(std::iter::repeat_n(
        0x55,
        usize::try_from(data_bytes).unwrap(),
    ));
    let file = match form.moov_first {
        true => [ftyp(), moov, mdat].concat(),
        false => [ftyp(), mdat, moov].concat(),
    };
    (file, samples)
}

fn tables_of(chunks: &[Chunk], samples: &[Sample], offsets: &[u64], form: Form) -> Vec<Vec<u8>> {
    let (mut stts, mut ctts, mut stsc, mut stss) = (vec![], vec![], vec![], vec![]);
    for (number, chunk) in (1..).zip(chunks) {
        let count = u32::try_from(chunk.len()).unwrap();
        let last = stsc.len().checked_sub(2).map(|at| stsc[at]);
        if last != Some(count) {
            stsc.extend([number, count, 1]);
        }
        stts.extend(chunk.iter().flat_map(|it| [1, it.1]));
    }
    for (number, sample) in (1_u32..).zip(samples) {
        let offset = i32::try_from(sample.composition_ticks).unwrap();
        ctts.extend([1, offset.cast_unsigned()]);
        stss.extend(sample.is_sync.then_some(number));
    }
    let sizes: Vec<_> = samples.iter().map(|it| it.bytes).collect();
    let count = u32::try_from(sizes.len()).unwrap();
    let sizes = match form.size_bits {
        32 => full(b"stsz", 0, 0, &[&numbers(&[0, count]), &numbers(&sizes)]),
        bits => full(
            b"stz2",
            0,
            0,
            &[&numbers(&[bits, count]), &packed(&sizes, bits)],
        ),
    };
    let chunks = match form.long_offsets {
        false => {
            let offsets: Vec<_> = offsets
                .iter()
                .map(|&it| u32::try_from(it).unwrap())
                .collect();
            counted(b"stco", 0, 1, &offsets)
        }
        true => {
            let count = numbers(&[u32::try_from(offsets.len()).unwrap()]);
            let offsets: Vec<_> = offsets.iter().flat_map(|it| it.to_be_bytes()).collect();
            full(b"co64", 0, 0, &[&count, &offsets])
        }
    };
    let mut tables = vec![
        counted(b"stts", 0, 2, &stts),
        counted(b"ctts", u8::from(form.signed), 2, &ctts),
        counted(b"stsc", 0, 3, &stsc),
        sizes,
        chunks,
    ];
    if samples.iter().any(|it| !it.is_sync) {
        tables.push(counted(b"stss", 0, 1, &stss));
    }
    tables
}

fn packed(sizes: &[u32], bits: u32) -> Vec<u8> {
    let low = |size: &u32| size.to_be_bytes()[3];
    match bits {
        4 => {
            let pair = |pair: &[u32]| low(&pair[0]) << 4 | pair.get(1).map_or(0, low);
            sizes.chunks(2).map(pair).collect()
        }
        8 => sizes.iter().map(low).collect(),
        _ => sizes.iter().flat_map(|it| [0, low(it)]).collect(),
    }
}

proptest! {
    #[test]
    fn samples_are_those_that_tables_tell_of(chunks in chunks(), form in form()) {
        let (file, expected) = file(&chunks, form);
        let index = pushed(&file, form.at_once).unwrap();
        let track = only(&index);
        // Nothing is shown before it is decoded; when it is shown stays.
        let least = expected.iter().map(|it| it.composition_ticks).min().unwrap().min(0);
        let expected: Vec<_> = expected.into_iter().map(|it| Sample {
            decode_ticks: it.decode_ticks + least,
            composition_ticks: it.composition_ticks - least,
            ..it
        }).collect();
        prop_assert_eq!(samples(track), expected);
        prop_assert_eq!(&track.facts.problems, &[""; 0]);
        prop_assert_eq!(track.shift_ticks, 0);
    }

    #[test]
    fn what_is_cut_off_is_a_beginning_or_an_error(
        chunks in chunks(), form in form(), share in 0.0..1.0_f64,
    ) {
        let (file, expected) = file(&chunks, form);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        let end = (file.len() as f64 * share) as usize;
        if let Ok(index) = pushed(&file[..end], form.at_once) {
            let is = samples(only(&index));
            prop_assert!(is.len() < expected.len() || !form.moov_first);
            for (is, whole) in is.iter().zip(&expected) {
                prop_assert_eq!((is.offset, is.bytes), (whole.offset, whole.bytes));
                prop_assert!(is.offset + u64::from(is.bytes) <= end as u64);
            }
        }
    }
}

/// Six pictures of 10 ticks, edited so; in which ticks they are shown.
fn shown_when(edits: &[(u32, i32, u32)]) -> (Vec<i64>, String) {
    let mut tables = tables(6, 1, 10, 0);
    tables.push(counted(b"stss", 0, 1, &[1, 4]));
    let track = Track {
        edits: edits.to_vec(),
        ..Track::pictures(1, tables)
    };
    let index = index(&padded(&moov(&[track], b"")));
    let track = only(&index);
    let shown = samples(track).into_iter();
    let shown = shown.map(|it| it.decode_ticks + it.composition_ticks + track.shift_ticks);
    (shown.collect(), track.facts.problems.join("; "))
}

#[test]
fn edit_lists_say_what_is_shown_and_when() {
    const ONE: u32 = 1 << 16;
    let shown = |edits: &[(u32, i32, u32)]| shown_when(edits).0;
    assert_eq!(shown(&[]), [0, 10, 20, 30, 40, 50]);
    assert_eq!(shown(&[(60, 0, ONE)]), [0, 10, 20, 30, 40, 50]);
    assert_eq!(shown(&[(0, 0, ONE)]), [0, 10, 20, 30, 40, 50]);
    assert_eq!(
        shown(&[(5, -1, ONE), (60, 0, ONE)]),
        [5, 15, 25, 35, 45, 55]
    );
    assert_eq!(shown(&[(5, -1, ONE), (2, -1, ONE), (60, 0, ONE)])[0], 7);
    // From the sync sample on that is needed for what is shown, which is where the file begins.
    assert_eq!(shown(&[(60, 10, ONE)]), [0, 10, 20, 30, 40, 50]);
    assert_eq!(shown(&[(60, 30, ONE)]), [0, 10, 20]);
    assert_eq!(shown(&[(60, 45, ONE)]), [0, 10, 20]);
    assert_eq!(shown(&[(10, -1, ONE), (60, 45, ONE)]), [0, 10, 20]);
    assert_eq!(shown(&[(20, -1, ONE), (60, 45, ONE)]), [5, 15, 25]);
    // Up to the end that it says.
    assert_eq!(shown(&[(21, 0, ONE)]), [0, 10, 20]);
    assert_eq!(shown(&[(20, 10, ONE)]), [0, 10, 20]);
    assert_eq!(shown_when(&[(20, 0, ONE)]).1, "");
    let (shown, problems) = shown_when(&[(20, 0, ONE), (10, 40, ONE), (5, 0, ONE)]);
    assert_eq!(
        (shown.len(), &*problems),
        (
            5,
            "1 more edits are not honoured; what it leaves out between edits is shown"
        )
    );
    let (_, problems) = shown_when(&[(20, 0, 2 * ONE)]);
    assert_eq!(
        problems,
        "an edit at another than the usual rate is not honoured"
    );
}

#[test]
fn edits_that_go_on_forward_lose_nothing() {
    const ONE: u32 = 1 << 16;
    let all = [0, 10, 20, 30, 40, 50];
    let told = |edits: &[(u32, i32, u32)]| shown_when(edits);
    let whole = (all.to_vec(), String::new());
    assert_eq!(told(&[(20, 0, ONE), (40, 20, ONE)]), whole);
    assert_eq!(told(&[(20, 0, ONE), (19, 21, ONE), (20, 40, ONE)]), whole);
    assert_eq!(told(&[(20, 0, ONE), (0, 20, ONE)]), whole, "to its end");
    assert_eq!(told(&[(20, 0, ONE), (10, 20, ONE)]).0, all[..3]);
    let gap = "what it leaves out between edits is shown".to_owned();
    assert_eq!(
        told(&[(20, 0, ONE), (10, 40, ONE)]),
        (all[..5].to_vec(), gap)
    );
    // What comes again, and what begins later than it would, are none of these.
    let left = "1 more edits are not honoured".to_owned();
    for edit in [(20, 10, ONE), (20, -1, ONE)] {
        assert_eq!(
            told(&[(20, 0, ONE), edit]),
            (all[..2].to_vec(), left.clone())
        );
    }
}

/// Else the pictures between the sync sample and where the edit list begins would leave at once.
#[test]
fn a_film_cut_between_sync_samples_begins_at_one() {
    let mut tables_of_pictures = tables(6, 1, 10, 0);
    tables_of_pictures.push(counted(b"stss", 0, 1, &[1, 4]));
    let pictures = Track {
        edits: vec![(0, 45, 1 << 16)],
        ..Track::pictures(1, tables_of_pictures)
    };
    let of_sound = Track {
        edits: vec![(0, 360, 1 << 16)],
        ..Track::sound(2, tables(100, 30, 160, 0))
    };
    let index = index(&padded(&moov(&[pictures, of_sound], b"")));
    let [pictures, sound] = &index.sampled[..] else {
        panic!("{:?}", index.left_out);
    };
    // The 15 ms from there to where the list begins are in front of the sound, too.
    assert_eq!((pictures.shift_ticks, sound.shift_ticks), (-30, -240));
    assert_eq!(index.lead_ns, 15_000_000);
    let due_ms: Vec<_> = (0..3).map(|at| pictures.due_ns(at) / 1_000_000).collect();
    assert_eq!(due_ms, [0, 10, 20]);
}

/// Which of six pictures are sync samples by these tables, and what is wrong with them.
fn are_sync(more: &[Vec<u8>]) -> (Vec<bool>, String) {
    let mut tables = tables(6, 1, 10, 0);
    tables.extend_from_slice(more);
    let index = index(&padded(&moov(&[Track::pictures(1, tables)], b"")));
    let track = only(&index);
    let are_sync = samples(track).into_iter().map(|it| it.is_sync);
    (are_sync.collect(), track.facts.problems.join("; "))
}

#[test]
fn partial_sync_samples_are_sync_samples() {
    let full = counted(b"stss", 0, 1, &[1, 4]);
    let partial = counted(b"stps", 0, 1, &[3, 6, 9]);
    let some = [true, false, true, true, false, true];
    assert_eq!(are_sync(&[full, partial.clone()]).0, some);
    // Without a table of sync samples all are.
    assert_eq!(are_sync(&[partial]).0, [true; 6]);
}

/// As MP4Box and L-SMASH write what begins an open group of pictures.
#[test]
fn samples_of_the_group_rap_are_sync_samples() {
    let group = |version: u8, grouping: &[u8; 4], rows: &[u32]| {
        // Version 1 has a parameter of the type.
        let parameter = numbers(&vec![7_u32; version.into()]);
        let count = u32::try_from(rows.len() / 2).unwrap();
        let rows = [&numbers(&[count])[..], &numbers(rows)].concat();
        full(b"sbgp", version, 0, &[grouping, &parameter, &rows])
    };
    let told = |are: [bool; 6], problem: &str| (are.to_vec(), problem.to_owned());
    let syncs = |numbers: &[u32]| counted(b"stss", 0, 1, numbers);
    let fourth = told([true, false, false, true, false, false], "");
    let roll = group(0, b"roll", &[6, 1]);
    for version in [0, 1] {
        let open = group(version, b"rap ", &[3, 0, 1, 1, 2, 0]);
        assert_eq!(are_sync(&[syncs(&[1]), roll.clone(), open]), fourth);
    }
    assert_eq!(are_sync(&[syncs(&[1, 4]), roll]), fourth);
    // One is named in both, and the last in none.
    let open = group(0, b"rap ", &[2, 0, 1, 1, 0, 1, 1, 0, 1, 2]);
    let some = told([true, false, true, false, true, false], "");
    assert_eq!(are_sync(&[syncs(&[1, 3]), open.clone()]), some);
    // Without a table of sync samples all are.
    assert_eq!(are_sync(&[open]), told([true; 6], ""));
    let rows = numbers(&[u32::MAX, 3, 0, u32::MAX, 1]);
    let open = full(b"sbgp", 0, 0, &[b"rap ", &rows]);
    let problem = "sbgp tells of 4294967295 rows and has 2";
    let rest = told([true, false, false, true, true, true], problem);
    assert_eq!(are_sync(&[syncs(&[1]), open]), rest);
    for bytes in 0..8 {
        let cut = boxed(b"sbgp", &[&b"\0\0\0\0rap "[..bytes]]);
        let first = told([true, false, false, false, false, false], "");
        assert_eq!(are_sync(&[syncs(&[1]), cut]), first, "{bytes} bytes");
    }
}

#[test]
fn sound_begins_in_front_of_its_edit() {
    let track = Track {
        entries: vec![sound(
            b"Opus",
            2,
            16,
            48000,
            &boxed(b"dOps", &[&[0, 2, 1, 56, 0, 0, 187, 128, 0, 0, 0]]),
        )],
        edits: vec![(0, 8000, 1 << 16)],
        ..Track::sound(1, tables(100, 30, 160, 0))
    };
    let index = index(&padded(&moov(&[track], b"")));
    let track = only(&index);
    let first = track.samples.get(0).unwrap();
    assert_eq!(first.decode_ticks + track.shift_ticks, -800);
    assert_eq!(track.samples.len(), 100 - 45);
}

#[test]
fn samples_of_a_byte_go_together() {
    // 1000 samples in chunks of 300, the last shorter.
    let tables = vec![
        counted(b"stts", 0, 2, &[1000, 1]),
        counted(b"stsc", 0, 3, &[1, 300, 1, 4, 100, 1]),
        full(b"stsz", 0, 0, &[&numbers(&[1, 1000])]),
        counted(b"stco", 0, 1, &[1000, 2000, 3000, 4000]),
    ];
    let index = index(&padded(&moov(&[Track::sound(1, tables)], b"")));
    let is: Vec<_> = samples(only(&index))
        .iter()
        .map(|it| (it.offset, it.bytes, it.decode_ticks))
        .collect();
    let expected = [
        (1000, 160, 0),
        (1160, 140, 160),
        (2000, 160, 300),
        (2160, 140, 460),
        (3000, 160, 600),
        (3160, 140, 760),
        (4000, 100, 900),
    ];
    assert_eq!(is, expected);
}

#[test]
fn samples_of_many_moments_stay_as_they_are() {
    let index = index(&padded(&moov(
        &[Track::sound(1, tables(3, 400, 400, 0))],
        b"",
    )));
    let is: Vec<_> = samples(only(&index))
        .iter()
        .map(|it| (it.offset, it.bytes))
        .collect();
    assert_eq!(is, [(0, 400), (400, 400), (800, 400)]);
}

#[test]
fn quicktime_sound_has_the_size_that_its_entry_tells() {
    // 16 bits and two channels, and 1 byte a sample by its table.
    let track = Track {
        entries: vec![sound(b"twos", 2, 16, 8000, b"")],
        ..Track::sound(1, tables(480, 1, 1, 500))
    };
    let index = index(&padded(&moov(&[track], b"")));
    let is: Vec<_> = samples(only(&index))
        .iter()
        .map(|it| (it.offset, it.bytes))
        .collect();
    assert_eq!(is, [(500, 640), (1140, 640), (1780, 640)]);
}

#[test]
fn several_entries_go_to_one_codec_if_it_takes_them() {
    let tables = vec![
        counted(b"stts", 0, 2, &[6, 10]),
        counted(b"stsc", 0, 3, &[1, 2, 1, 2, 2, 2, 3, 2, 3]),
        full(b"stsz", 0, 0, &[&numbers(&[1, 6])]),
        counted(b"stco", 0, 1, &[10, 20, 30]),
    ];
    let of = |entries: Vec<Vec<u8>>| {
        let track = Track {
            entries,
            ..Track::pictures(1, tables.clone())
        };
        let index = index(&padded(&moov(&[track], b"")));
        let track = only(&index);
        let entries: Vec<_> = samples(track).iter().map(|it| it.entry).collect();
        (entries, track.facts.problems.join("; "))
    };
    let h264 = |level| {
        visual(
            b"avc3",
            &boxed(b"avcC", &[&[1, 0x42, 0xc0, level, 0xff, 0xe0, 0]]),
        )
    };
    // Nothing is read of samples that lie beyond the file; so the tables alone are looked at.
    let track = Track {
        entries: vec![h264(13), h264(30), h264(13)],
        ..Track::pictures(1, tables.clone())
    };
    let file = moov(&[track], b"");
    let mut scanner = Scanner::default();
    read(&mut scanner, &file, 9999).unwrap();
    let samples = &scanner.movie.unwrap().tracks[0].samples;
    let entries: Vec<_> = (0..6).map(|at| samples.get(at).unwrap().entry).collect();
    assert_eq!(entries, [0, 0, 1, 1, 0, 0]);
    let (vp8, vp9) = (visual(b"vp08", b""), visual(b"vp09", b""));
    assert_eq!(of(vec![vp8.clone(), vp8.clone(), vp8.clone()]).0, [0; 6]);
    let (entries, problems) = of(vec![vp8.clone(), vp9, vp8]);
    assert_eq!(entries, [0, 0]);
    let expected = "from sample 2 on it is coded in another way (sample entry 2)";
    assert_eq!(problems, expected);
}

#[test]
fn facts_are_told_as_the_file_has_them() {
    const ONE: i32 = 1 << 16;
    let turned = |a, b, c, d| {
        let track = Track {
            matrix: [a, b, 0, c, d, 0, 0, 0, 1 << 30],
            language: *b"deu",
            name: b"Main camera",
            ..Track::pictures(7, tables(1, 1, 1, 0))
        };
        only(&index(&padded(&moov(&[track], b"")))).facts.clone()
    };
    let facts = turned(ONE, 0, 0, ONE);
    assert_eq!((facts.id, facts.rotation_degrees), (7, 0));
    assert_eq!(facts.language.as_deref(), Some("deu"));
    assert_eq!(facts.name.as_deref(), Some("Main camera"));
    assert_eq!(facts.dimensions, Some((320, 240)));
    assert_eq!(turned(0, ONE, -ONE, 0).rotation_degrees, 90);
    assert_eq!(turned(-ONE, 0, 0, -ONE).rotation_degrees, 180);
    assert_eq!(turned(0, -ONE, ONE, 0).rotation_degrees, 270);
}

/// As ffmpeg writes titles: beside the name of its handler.
#[test]
fn a_title_goes_before_the_name_of_a_handler() {
    let name = |title: &[u8]| {
        let track = Track {
            name: b"SoundHandler",
            more: boxed(b"udta", &[&boxed(b"name", &[title])]),
            ..Track::pictures(7, tables(1, 1, 1, 0))
        };
        let index = index(&padded(&moov(&[track], b"")));
        only(&index).facts.name.clone()
    };
    assert_eq!(name(b"Director").as_deref(), Some("Director"));
    // A string of QuickTime, and one that is none.
    let told = name(b"\0\x08\x15\xc7Director");
    assert_eq!(told.as_deref(), Some("Director"));
    for none in [&b""[..], b"\0\0\x15\xc7", b"\0\x09"] {
        assert_eq!(name(none).as_deref(), Some("SoundHandler"));
    }
}

/// ISO/IEC 14496-12, sections 12.1.3 and 12.1.5.
#[test]
fn a_sample_entry_tells_coded_size_and_colours() {
    let told = |colours: &[&[u8]]| {
        let colours: Vec<_> = colours
            .iter()
            .flat_map(|it| boxed(b"colr", &[it]))
            .collect();
        let mut entry = visual(b"vp08", &colours);
        entry[8 + 24..8 + 28].copy_from_slice(&[0, 180, 0, 240]);
        let track = Track {
            entries: vec![entry],
            ..Track::pictures(7, tables(1, 1, 1, 0))
        };
        let facts = only(&index(&padded(&moov(&[track], b"")))).facts.clone();
        assert_eq!(facts.dimensions, Some((320, 240)));
        assert_eq!(facts.coded, Some((180, 240)));
        facts.colour
    };
    let expected = |is_full_range| {
        Some(Colour {
            primaries: 9,
            transfer: 16,
            matrix: 9,
            is_full_range,
        })
    };
    assert_eq!(told(&[]), None);
    let full = b"nclx\0\x09\0\x10\0\x09\x80";
    assert_eq!(told(&[b"prof1234", full]), expected(true));
    assert_eq!(told(&[b"nclx\0\x09\0\x10\0\x09\0"]), expected(false));
    // QuickTime's has no range.
    assert_eq!(told(&[b"nclc\0\x09\0\x10\0\x09"]), expected(false));
    for end in 0..10 {
        assert_eq!(told(&[&full[..end]]), None, "{end} bytes");
    }
}

/// A text track whose samples are timed text, with these flags for how it is shown.
fn text(id: u32, name: &[u8; 4], display: u32) -> Track {
    Track {
        handler: *b"text",
        entries: vec![boxed(
            name,
            &[&[0; 6], &[0, 1], &numbers(&[display]), &[0; 30]],
        )],
        ..Track::pictures(id, tables(3, 1, 10, 0))
    }
}

#[test]
fn a_track_of_chapters_is_no_subtitles() {
    let jpeg = |id| Track {
        entries: vec![visual(b"jpeg", b"")],
        flags: 0,
        ..Track::pictures(id, tables(3, 1, 10, 0))
    };
    let tracks = [
        // Those behind may be named, too, and what there is not.
        Track {
            chapters: vec![0, 2, 9, 4],
            ..Track::pictures(1, tables(3, 1, 10, 0))
        },
        text(2, b"text", 0),
        text(3, b"tx3g", 0),
        jpeg(4),
        // Two are named that are the film's all the same.
        Track {
            chapters: vec![1, 5],
            ..Track::sound(5, tables(3, 1, 10, 0))
        },
        text(6, b"text", 0),
    ];
    let index = index(&padded(&moov(&tracks, b"")));
    let ids = |of: &[std::sync::Arc<SampledTrack>]| -> Vec<_> {
        of.iter().map(|track| track.facts.id).collect()
    };
    assert_eq!(ids(&index.sampled), [1, 5]);
    assert_eq!(ids(&index.texts), [3, 6]);
    let chapters = index
        .left_out
        .iter()
        .filter(|it| it.what.contains("chapters"));
    let told: Vec<_> = chapters.map(|it| (it.id, &*it.what)).collect();
    assert_eq!(
        told,
        [(2, "chapters (text)"), (4, "pictures of chapters (jpeg)")]
    );
}

/// Entries differ in styles, which are not shown.
#[test]
fn subtitles_go_on_in_entries_of_one_kind() {
    let of_chunks = vec![
        counted(b"stts", 0, 2, &[6, 10]),
        counted(b"stsc", 0, 3, &[1, 2, 1, 2, 2, 2, 3, 2, 3]),
        full(b"stsz", 0, 0, &[&numbers(&[1, 6])]),
        counted(b"stco", 0, 1, &[10, 20, 30]),
    ];
    let told = |names: [&[u8; 4]; 3]| {
        let entries = names.map(|name| text(2, name, 0).entries);
        let subtitles = Track {
            entries: entries.concat(),
            tables: of_chunks.clone(),
            ..text(2, b"tx3g", 0)
        };
        let pictures = Track::pictures(1, tables(3, 1, 10, 0));
        let index = index(&padded(&moov(&[pictures, subtitles], b"")));
        let track = &index.texts[0];
        (track.samples.len(), track.facts.problems.join("; "))
    };
    assert_eq!(told([b"tx3g", b"text", b"tx3g"]), (6, String::new()));
    let ends = |at: usize, entry: usize| {
        let what = "on it is coded in another way (sample entry";
        (at, format!("from sample {at} {what} {entry})"))
    };
    assert_eq!(told([b"tx3g", b"tx3g", b"c608"]), ends(4, 3));
    assert_eq!(told([b"wvtt", b"tx3g", b"wvtt"]), ends(2, 2));
}

#[test]
fn subtitles_beyond_their_number_are_told_of() {
    let pictures = Track::pictures(1, tables(3, 1, 10, 0));
    let texts = (2..=18).map(|id| text(id, b"tx3g", 0));
    let tracks: Vec<_> = [pictures].into_iter().chain(texts).collect();
    let index = index(&padded(&moov(&tracks, b"")));
    let texts = index.texts.iter().map(|track| track.facts.id);
    assert!(texts.eq(2..=17));
    let told: Vec<_> = index.left_out.iter().filter(|it| it.id == 18).collect();
    let [beyond] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(beyond.what, "subtitles (tx3g)");
    assert_eq!(beyond.reason, "only 16 subtitles of a film are shown");
}

/// As many as a file may have tracks, each of which names as many.
#[test]
fn no_more_chapters_are_looked_up_than_there_may_be_tracks() {
    let of = |chapters| {
        let first = Track {
            chapters,
            ..Track::pictures(1, tables(3, 1, 10, 0))
        };
        let moov = moov(&[first, text(2, b"text", 0)], b"");
        index(&padded(&moov)).texts.len()
    };
    assert_eq!(of([vec![9; TRAKS_MAX - 1], vec![2]].concat()), 0);
    assert_eq!(of([vec![9; TRAKS_MAX], vec![2]].concat()), 1);
    assert_eq!(of([vec![0; TRAKS_MAX], vec![2]].concat()), 0);
}

#[test]
fn tracks_tell_whether_they_are_enabled_and_forced() {
    const ALL_FORCED: u32 = 0xc000_0000;
    let disabled = Track {
        flags: 6,
        ..Track::sound(2, tables(3, 1, 10, 0))
    };
    let tracks = [
        Track::pictures(1, tables(3, 1, 10, 0)),
        disabled,
        Track {
            flags: 6,
            ..text(3, b"tx3g", ALL_FORCED)
        },
        text(4, b"tx3g", 0x4000_0000),
        // There its flags have another meaning.
        text(5, b"text", ALL_FORCED),
    ];
    let index = index(&padded(&moov(&tracks, b"")));
    let of = |of: &[std::sync::Arc<SampledTrack>]| -> Vec<_> {
        let facts = of.iter().map(|track| &track.facts);
        facts
            .map(|it| (it.id, it.is_default, it.is_forced))
            .collect()
    };
    assert_eq!(of(&index.sampled), [(1, true, false), (2, false, false)]);
    let texts = [(3, false, true), (4, true, false), (5, true, false)];
    assert_eq!(of(&index.texts), texts);
}

#[test]
fn a_movie_box_to_the_end_of_the_file_is_read() {
    let mut moov = moov(&[Track::pictures(1, tables(3, 1, 10, 0))], b"");
    moov[..4].fill(0);
    for at_once in [1, 7, 9999] {
        let file = [ftyp(), moov.clone()].concat();
        assert_eq!(samples(only(&pushed(&file, at_once).unwrap())).len(), 3);
    }
}
