//! Files in fragments.

use proptest::prelude::*;

use super::builder::*;
use super::*;
use crate::media::container::{Continued, Index};

const BASE_OFFSET: u32 = 0x1;
const BASE_IS_MOOF: u32 = 0x0002_0000;

/// What a run says of each sample, and what is left to defaults.
#[derive(Clone, Debug)]
struct Run {
    /// Duration, size, whether it is a sync sample, composition offset.
    samples: Vec<(u32, u32, bool, u32)>,
    /// Which of these are in the run; what is not is the same for all samples.
    flags: u32,
    /// Whether the first sample's flags stand apart, and where its data lies is told.
    first_flags: bool,
    data_offset: bool,
}

#[derive(Clone, Debug)]
struct Fragment {
    /// The runs of each track that is in it.
    trafs: Vec<(usize, Vec<Run>)>,
    base: u32,
    with_tfdt: bool,
    defaults_in_tfhd: bool,
}

const DEFAULT: (u32, u32, bool, u32) = (10, 5, false, 0);

fn run() -> impl Strategy<Value = Run> {
    let sample = (1_u32..50, 1_u32..9, any::<bool>(), 0_u32..30);
    let samples = prop::collection::vec(sample, 1..6);
    (samples, 0_u32..16, any::<bool>(), any::<bool>()).prop_map(
        |(mut samples, columns, first_flags, data_offset)| {
            let has = |column: u32| columns >> column & 1 == 1;
            for (at, sample) in samples.iter_mut().enumerate() {
                let is_sync = match (has(2), first_flags && at == 0) {
                    (false, false) => DEFAULT.2,
                    _ => sample.2,
                };
                *sample = (
                    if has(0) { sample.0 } else { DEFAULT.0 },
                    if has(1) { sample.1 } else { DEFAULT.1 },
                    is_sync,
                    if has(3) { sample.3 } else { DEFAULT.3 },
                );
            }
            Run {
                samples,
                flags: columns << 8,
                first_flags,
                data_offset,
            }
        },
    )
}

fn fragments() -> impl Strategy<Value = Vec<Fragment>> {
    let traf = (0_usize..3, prop::collection::vec(run(), 1..3));
    let trafs = prop::collection::vec(traf, 1..4);
    let base = prop_oneof![Just(0), Just(BASE_OFFSET), Just(BASE_IS_MOOF)];
    let one = (trafs, base, any::<bool>(), any::<bool>()).prop_map(
        |(mut trafs, base, with_tfdt, defaults_in_tfhd)| {
            for (_, runs) in &mut trafs {
                // Otherwise it says nothing of where data lies.
                runs[0].data_offset = true;
            }
            Fragment {
                trafs,
                base,
                with_tfdt,
                defaults_in_tfhd,
            }
        },
    );
    prop::collection::vec(one, 1..6)
}

fn sample_flags(is_sync: bool) -> u32 {
    if is_sync { 0 } else { 0x0001_0000 }
}

fn trun(run: &Run, data_offset: u32) -> Vec<u8> {
    let count = u32::try_from(run.samples.len()).unwrap();
    let mut fields = vec![count];
    let mut flags = run.flags;
    if run.data_offset {
        flags |= 1;
        fields.push(data_offset);
    }
    if run.first_flags {
        flags |= 4;
        fields.push(sample_flags(run.samples[0].2));
    }
    for &(duration, bytes, is_sync, composition) in &run.samples {
        let columns = [duration, bytes, sample_flags(is_sync), composition];
        let of_run = (0..4).filter(|column| flags >> (8 + column) & 1 == 1);
        fields.extend(of_run.map(|column| columns[column]));
    }
    full(b"trun", 0, flags, &[&numbers(&fields)])
}

/// `moof` and `mdat` at `at` in the file, and the samples in it, by track: 1 and 2 are played, 3 is
/// not.
fn fragment(of: &Fragment, at: u64, next_ticks: &mut [i64; 3]) -> (Vec<u8>, Vec<(usize, Sample)>) {
    let mut samples = Vec::new();
    let begin_ticks = *next_ticks;
    let mut make = |data: u32| {
        samples.clear();
        *next_ticks = begin_ticks;
        let mut offset = u64::from(data);
        let mut trafs = Vec::new();
        for (track, runs) in &of.trafs {
            let mut tfhd = vec![u32::try_from(track + 1).unwrap()];
            let mut flags = of.base;
            if of.base == BASE_OFFSET {
                tfhd.extend([0, u32::try_from(at).unwrap()]);
            }
            if of.defaults_in_tfhd {
                flags |= 0x2 | 0x8 | 0x10 | 0x20;
                tfhd.extend([1, DEFAULT.0, DEFAULT.1, sample_flags(DEFAULT.2)]);
            }
            let mut traf = full(b"tfhd", 0, flags, &[&numbers(&tfhd)]);
            if of.with_tfdt {
                let ticks = next_ticks[*track].cast_unsigned();
                traf.extend(full(b"tfdt", 1, 0, &[&ticks.to_be_bytes()]));
            }
            // What is not told is counted from where the data of the track before ends.
            let base = match (of.base, trafs.is_empty()) {
                (0, false) => offset,
                _ => 0,
            };
            for run in runs {
                traf.extend(trun(run, u32::try_from(offset - base).unwrap()));
                for &(duration, bytes, is_sync, composition) in &run.samples {
                    let sample = Sample {
                        offset: at + offset,
                        bytes,
                        decode_ticks: next_ticks[*track],
                        composition_ticks: composition.into(),
                        is_sync,
                        entry: 0,
                    };
                    samples.push((*track, sample));
                    next_ticks[*track] += i64::from(duration);
                    offset += u64::from(bytes);
                }
            }
            trafs.extend(boxed(b"traf", &[&traf]));
        }
        let mfhd = full(b"mfhd", 0, 0, &[&numbers(&[1])]);
        (boxed(b"moof", &[&mfhd, &trafs]), offset)
    };
    let moof_bytes = u32::try_from(make(0).0.len()).unwrap();
    let (moof, end) = make(moof_bytes + 8);
    let data = vec![0x55; usize::try_from(end).unwrap() - moof.len() - 8];
    ([moof, boxed(b"mdat", &[&data])].concat(), samples)
}

/// A file, where in it each fragment ends, and the samples of its tracks.
fn file(fragments: &[Fragment]) -> (Vec<u8>, Vec<usize>, [Vec<Sample>; 2]) {
    let of_track = |id| Track::pictures(id, Vec::new());
    let other = Track {
        handler: *b"text",
        ..of_track(3)
    };
    let trex = [1, 2, 3].map(|id| [id, 1, DEFAULT.0, DEFAULT.1, sample_flags(DEFAULT.2)]);
    let tracks = [of_track(1), of_track(2), other];
    let mut file = [ftyp(), moov_of_fragments(&tracks, &trex)].concat();
    let (mut ends, mut expected, mut next_ticks) = (vec![], [vec![], vec![]], [0; 3]);
    for of in fragments {
        file.extend(boxed(b"styp", &[b"msdh\0\0\0\0"]));
        let at = file.len() as u64;
        let (bytes, samples) = fragment(of, at, &mut next_ticks);
        file.extend(bytes);
        ends.push(file.len());
        for (track, sample) in samples.into_iter().filter(|it| it.0 < 2) {
            expected[track].push(sample);
        }
    }
    (file, ends, expected)
}

fn by_id(index: &SampledIndex, id: u64) -> Vec<Sample> {
    let track = index.sampled.iter().find(|it| it.facts.id == id);
    track.map(|it| samples(it)).unwrap_or_default()
}

proptest! {
    #[test]
    fn samples_are_those_that_fragments_tell_of(
        fragments in fragments(), at_once in 1_usize..400,
    ) {
        let (file, _, expected) = file(&fragments);
        match pushed(&file, at_once) {
            Ok(index) => {
                prop_assert_eq!(&by_id(&index, 1), &expected[0]);
                prop_assert_eq!(&by_id(&index, 2), &expected[1]);
                let problems = index.sampled.iter().map(|it| it.facts.problems.len());
                prop_assert_eq!(problems.sum::<usize>(), 0);
            }
            Err(_) => prop_assert!(expected.iter().all(Vec::is_empty)),
        }
    }

    #[test]
    fn what_a_growing_file_has_stays(
        fragments in fragments(), steps in prop::collection::vec(1_usize..300, 1..40),
    ) {
        let (file, ends, expected) = file(&fragments);
        let (mut scanner, mut old, mut has) = (Scanner::default(), None::<Index>, 0);
        for step in steps {
            has = file.len().min(has + step);
            read(&mut scanner, &file[..has], 9999).unwrap();
            let Ok(settled) = scanner.settled() else {
                prop_assert!(old.is_none());
                continue;
            };
            for id in [1, 2] {
                let is = by_id(&settled, id as u64);
                prop_assert_eq!(&is[..], &expected[id - 1][..is.len()]);
                // All that is whole, and nothing that is not there.
                let whole = ends.iter().filter(|&&end| end <= has).max().map_or(0, |&it| it as u64);
                let is_whole = |it: &&Sample| it.offset + u64::from(it.bytes) <= whole;
                prop_assert!(is.len() >= expected[id - 1].iter().filter(is_whole).count());
                prop_assert!(is.iter().all(|it| it.offset + u64::from(it.bytes) <= has as u64));
            }
            let index = Index::of(settled);
            if let Some(old) = &old {
                prop_assert!(matches!(index.clone().continuing(old), Continued::More(_)));
            }
            old = Some(index);
        }
    }
}

/// A file with a fragment for each of these: its `tfdt`, and how many samples of 10 ticks it has.
fn clocked(fragments: &[(Option<u64>, u32)]) -> Vec<u8> {
    clocked_of(Track::pictures(1, Vec::new()), fragments)
}

fn clocked_of(track: Track, fragments: &[(Option<u64>, u32)]) -> Vec<u8> {
    let trex = [[1, 1, 10, 1, 0]];
    let mut file = moov_of_fragments(&[track], &trex);
    for &(ticks, count) in fragments {
        let mut traf = full(b"tfhd", 0, BASE_IS_MOOF, &[&numbers(&[1])]);
        if let Some(ticks) = ticks {
            traf.extend(full(b"tfdt", 1, 0, &[&ticks.to_be_bytes()]));
        }
        traf.extend(full(b"trun", 0, 1, &[&numbers(&[count, 0])]));
        file.extend(boxed(b"moof", &[&boxed(b"traf", &[&traf])]));
    }
    padded(&file)
}

fn times(file: &[u8]) -> (Vec<i64>, String) {
    let index = index(file);
    let track = only(&index);
    let times = samples(track)
        .into_iter()
        .map(|it| it.decode_ticks + track.shift_ticks);
    (times.collect(), track.facts.problems.join("; "))
}

#[test]
fn a_file_begins_with_its_first_fragment() {
    let (is, problems) = times(&clocked(&[(Some(1 << 32), 2), (Some((1 << 32) + 50), 1)]));
    assert_eq!((is, &*problems), (vec![0, 10, 50], ""));
}

/// Also where its edit list begins later: what is in front of that would leave at once.
#[test]
fn a_cut_file_begins_with_its_first_fragment() {
    let track = Track {
        edits: vec![(0, 25, 1 << 16)],
        ..Track::pictures(1, Vec::new())
    };
    let (is, problems) = times(&clocked_of(track, &[(Some(0), 4), (Some(40), 1)]));
    assert_eq!((is, &*problems), (vec![0, 10, 20, 30, 40], ""));
}

/// Those of a live stream, whose clock counts from 1970: far beyond what is kept of a time.
#[test]
fn a_clock_that_counts_from_1970_begins_at_0() {
    const UNIX_S: u64 = 1_750_000_000;
    let opus = boxed(b"dOps", &[&[0, 2, 1, 56, 0, 0, 187, 128, 0, 0, 0]]);
    let tracks = [
        Track {
            timescale: 90_000,
            ..Track::pictures(1, Vec::new())
        },
        Track {
            timescale: 48_000,
            entries: vec![sound(b"Opus", 2, 16, 48_000, &opus)],
            ..Track::sound(2, Vec::new())
        },
    ];
    let timescales = [(1, 90_000), (2, 48_000)];
    let trex = timescales.map(|(id, timescale)| [id, 1, timescale, 1, 0]);
    // A moment of the first track's clock, and when it was.
    let ntp_s = u32::try_from(UNIX_S + 2_208_988_800).unwrap();
    let ticks = (UNIX_S * 90_000).to_be_bytes();
    let prft = full(b"prft", 1, 24, &[&numbers(&[1, ntp_s, 0]), &ticks]);
    let mut file = [moov_of_fragments(&tracks, &trex), prft].concat();
    // Two seconds each.
    for begins_s in [UNIX_S, UNIX_S + 2] {
        let trafs = timescales.map(|(id, timescale)| {
            let ticks = begins_s * u64::from(timescale);
            let tfhd = full(b"tfhd", 0, BASE_IS_MOOF, &[&numbers(&[id])]);
            let tfdt = full(b"tfdt", 1, 0, &[&ticks.to_be_bytes()]);
            let trun = full(b"trun", 0, 1, &[&numbers(&[2, 0])]);
            boxed(b"traf", &[&tfhd, &tfdt, &trun])
        });
        file.extend(boxed(b"moof", &[&trafs.concat()]));
    }
    let index = index(&padded(&file));
    assert_eq!(index.sampled.len(), 2, "{:?}", index.left_out);
    for track in &index.sampled {
        assert_eq!(track.facts.problems, [""; 0]);
        let due_s: Vec<_> = (0..track.samples.len())
            .map(|at| track.due_ns(at) / 1_000_000_000)
            .collect();
        assert_eq!(due_s, [0, 1, 2, 3]);
    }
    let began_ns = UNIX_S * 1_000_000_000;
    assert_eq!(index.wall_clock_start_ns, Some(began_ns));
}

/// In steps of 100 ns, as Windows counts: more ns than 64 bits have room for.
#[test]
fn a_clock_that_counts_from_1601_begins_at_0() {
    const NOW: u64 = 134_000_000_000_000_000;
    let track = Track {
        timescale: 10_000_000,
        ..Track::pictures(1, Vec::new())
    };
    let (is, problems) = times(&clocked_of(track, &[(Some(NOW), 2), (Some(NOW + 50), 1)]));
    assert_eq!((is, &*problems), (vec![0, 10, 50], ""));
}

/// Whether decoders can start at the samples of a fragment that have these flags.
fn syncs(track: Track, flags: &[u32]) -> Vec<bool> {
    let count = u32::try_from(flags.len()).unwrap();
    let traf = [
        full(b"tfhd", 0, BASE_IS_MOOF, &[&numbers(&[1])]),
        full(b"trun", 0, 0x401, &[&numbers(&[count, 0]), &numbers(flags)]),
    ];
    let moov = moov_of_fragments(&[track], &[[1, 1, 10, 100, 0]]);
    let moof = boxed(b"moof", &[&boxed(b"traf", &[&traf.concat()])]);
    let index = index(&padded(&[moov, moof].concat()));
    samples(only(&index)).iter().map(|it| it.is_sync).collect()
}

/// As encoders tell them that set only what a picture depends on.
#[test]
fn no_decoder_starts_at_a_picture_that_depends_on_others() {
    let flags = [0x0200_0000, 0x0100_0000, 0, 0x0001_0000, 0x0101_0000];
    let of_pictures = syncs(Track::pictures(1, Vec::new()), &flags);
    assert_eq!(of_pictures, [true, false, true, false, false]);
    // Each frame of sound stands for itself.
    let of_sound = syncs(Track::sound(1, Vec::new()), &flags);
    assert_eq!(of_sound, [true; 5]);
}

#[test]
fn fragments_without_a_time_follow_on_each_other() {
    let (is, problems) = times(&clocked(&[(None, 2), (Some(30), 1), (None, 1)]));
    assert_eq!((is, &*problems), (vec![0, 10, 30, 40], ""));
}

#[test]
fn a_fragment_that_goes_back_follows_and_is_told() {
    let (is, problems) = times(&clocked(&[(Some(0), 3), (Some(0), 2), (Some(50), 1)]));
    let told = "a fragment begins before the one in front of it";
    assert_eq!((is, &*problems), (vec![0, 10, 20, 30, 40, 50], told));
    // A little is what rounding does.
    let (is, problems) = times(&clocked(&[(Some(0), 3), (Some(29), 1)]));
    assert_eq!((is, &*problems), (vec![0, 10, 20, 29], ""));
}

#[test]
fn runs_of_any_count_take_what_they_have_bytes_for() {
    // Told of more rows than there are.
    let traf = [
        full(b"tfhd", 0, BASE_IS_MOOF, &[&numbers(&[1])]),
        full(b"trun", 0, 0x201, &[&numbers(&[u32::MAX, 0, 3, 4])]),
    ];
    let moov = moov_of_fragments(&[Track::pictures(1, Vec::new())], &[[1, 1, 10, 1, 0]]);
    let moof = boxed(b"moof", &[&boxed(b"traf", &[&traf.concat()])]);
    let index = index(&padded(&[moov, moof].concat()));
    let sizes: Vec<_> = samples(only(&index)).iter().map(|it| it.bytes).collect();
    assert_eq!(sizes, [3, 4]);
}
