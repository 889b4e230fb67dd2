//! How long a file of fragments is, known before all of it is read, and what lies about that do.

use super::super::ending::LOOKS_MAX;
use super::builder::*;
use super::*;
use crate::media::container::Container;

/// Samples of a fragment, ticks of each (of 1000 a second), and bytes.
const SAMPLES: u32 = 4;
const TICKS: u32 = 40;
const BYTES: u32 = 1000;

/// What their clock shows at first: more than a time of a sample may be.
const CLOCK_TICKS: u64 = 1 << 50;

/// How long a fragment is.
const FRAGMENT_NS: u64 = (SAMPLES * TICKS) as u64 * 1_000_000;

/// `moof` and `mdat` of a fragment that begins then.
fn fragment(ticks: u64) -> Vec<u8> {
    let traf = |data: u32| {
        let tfhd = full(b"tfhd", 0, 0x0002_0000, &[&numbers(&[1])]);
        let tfdt = full(b"tfdt", 1, 0, &[&ticks.to_be_bytes()]);
        let trun = full(b"trun", 0, 1, &[&numbers(&[SAMPLES, data])]);
        boxed(b"moof", &[&boxed(b"traf", &[&tfhd, &tfdt, &trun])])
    };
    let data = u32::try_from(traf(0).len()).unwrap() + 8;
    let media = vec![0x55; (SAMPLES * BYTES) as usize];
    [traf(data), boxed(b"mdat", &[&media])].concat()
}

fn mehd(duration: u64) -> Vec<u8> {
    full(b"mehd", 1, 0, &[&duration.to_be_bytes()])
}

fn movie(more: &[u8]) -> Vec<u8> {
    let trex = full(b"trex", 0, 0, &[&numbers(&[1, 1, TICKS, BYTES, 0])]);
    let mvex = boxed(b"mvex", &[more, &trex]);
    moov(&[Track::pictures(1, Vec::new())], &mvex)
}

fn sidx(first_offset: u32, parts: &[u32], told: u32) -> Vec<u8> {
    let rows = parts.iter().flat_map(|&bytes| [bytes, SAMPLES * TICKS, 0]);
    let head = [1, 1000, 0, first_offset, told];
    full(
        b"sidx",
        0,
        0,
        &[&numbers(&head), &numbers(&rows.collect::<Vec<_>>())],
    )
}

/// `mfra` with these places of fragments, told to have so many more bytes than it has.
fn mfra(places: &[u32], more: u32) -> Vec<u8> {
    let rows = places
        .iter()
        .flat_map(|&at| [numbers(&[0, at]), vec![1, 1, 1]].concat());
    let told = u32::try_from(places.len()).unwrap();
    let rows: Vec<_> = rows.collect();
    let tfra = full(b"tfra", 0, 0, &[&numbers(&[1, 0, told]), &rows]);
    let bytes = u32::try_from(8 + tfra.len() + 16).unwrap() + more;
    let mfro = full(b"mfro", 0, 0, &[&numbers(&[bytes])]);
    boxed(b"mfra", &[&tfra, &mfro])
}

/// A file of so many fragments, with these boxes in front and behind, made when it is known where
/// each fragment is.
fn file(
    count: u32,
    more: &[u8],
    in_front: impl Fn(&[u32]) -> Vec<u8>,
    behind: impl Fn(&[u32]) -> Vec<u8>,
) -> Vec<u8> {
    let bytes = u32::try_from(fragment(0).len()).unwrap();
    let head = |places: &[u32]| [ftyp(), movie(more), in_front(places)].concat();
    let start = u32::try_from(head(&vec![0; count as usize]).len()).unwrap();
    let places: Vec<_> = (0..count).map(|number| start + number * bytes).collect();
    let fragments = (0..u64::from(count)).map(|number| u64::from(SAMPLES * TICKS) * number);
    let fragments = fragments.map(|ticks| CLOCK_TICKS + ticks);
    let mut file = head(&places);
    fragments.for_each(|ticks| file.extend(fragment(ticks)));
    file.extend(behind(&places));
    file
}

fn nothing(_: &[u32]) -> Vec<u8> {
    Vec::new()
}

/// An index of all fragments.
fn index_of_all(places: &[u32]) -> Vec<u8> {
    let bytes = u32::try_from(fragment(0).len()).unwrap();
    let told = u32::try_from(places.len()).unwrap();
    sidx(0, &vec![bytes; places.len()], told)
}

/// How long a file is said to be when its first fragment was read, in pieces of so many bytes; and
/// how many bytes were read then.
pub(super) fn at_once(file: &[u8], piece: usize) -> (u64, usize) {
    let (mut scanner, mut bytes) = (Scanner::default(), 0);
    while let Some(wanted) = scanner.wants(file.len() as u64) {
        let is_read = scanner.settled().is_ok();
        if is_read && scanner.asked != Asked::Ending {
            break;
        }
        let start = usize::try_from(wanted.start).unwrap();
        let end = usize::try_from(wanted.end).unwrap().min(start + piece);
        assert!(start < end && end <= file.len(), "{wanted:?}");
        bytes += end - start;
        scanner.push(&file[start..end]).unwrap();
    }
    (scanner.settled().unwrap().duration_ns(), bytes)
}

#[test]
fn the_last_fragment_says_how_long_a_file_is() {
    const COUNT: u32 = 300;
    let whole_ns = u64::from(COUNT) * FRAGMENT_NS;
    let of_mfra = file(COUNT, b"", nothing, |places| mfra(places, 0));
    let of_sidx = file(COUNT, b"", index_of_all, nothing);
    let of_both = file(COUNT, b"", index_of_all, |places| mfra(places, 0));
    // An index of two, of which the second has the second half of the fragments.
    let indexes = |places: &[u32]| {
        let (half, bytes) = (places.len() / 2, places[1] - places[0]);
        let index = |skipped| sidx(skipped, &vec![bytes; half], COUNT / 2);
        let index_bytes = u32::try_from(index(0).len()).unwrap() | 1 << 31;
        let second = index(bytes * COUNT / 2);
        [sidx(0, &[index_bytes; 2], 2), index(0), second].concat()
    };
    let of_two = file(COUNT, b"", indexes, nothing);
    let files = [
        ("mfra", of_mfra),
        ("sidx", of_sidx),
        ("both", of_both),
        ("two", of_two),
    ];
    for (name, file) in files {
        for piece in [1, 7, usize::MAX / 2] {
            let (told_ns, bytes) = at_once(&file, piece);
            assert_eq!(told_ns, whole_ns, "{name}");
            assert!(bytes < file.len() / 4, "{name}: {bytes} of {}", file.len());
        }
        assert_eq!(index(&file).duration_ns(), whole_ns, "{name}");
    }
}

#[test]
fn without_tables_a_file_lasts_as_long_as_it_lets_expect() {
    let whole_ns = 300 * FRAGMENT_NS;
    let of = |more: &[u8]| at_once(&file(300, more, nothing, nothing), 9999).0;
    let expected_ns = of(b"");
    assert!(
        expected_ns.abs_diff(whole_ns) < whole_ns / 4,
        "{expected_ns}"
    );
    // What its header says counts, if it is likely.
    for told_ms in [5_000, 60_000, 500_000] {
        assert_eq!(of(&mehd(told_ms)), told_ms * 1_000_000);
    }
    for lie in [0, 1, 1000, 1_000_000, 1 << 62, u64::MAX] {
        assert_eq!(of(&mehd(lie)), expected_ns, "{lie}");
    }
}

/// Makes boxes, when it is known where each fragment is.
type Made = Box<dyn Fn(&[u32]) -> Vec<u8>>;

#[test]
fn tables_that_lie_are_found_out() {
    const COUNT: u32 = 300;
    let whole_ns = u64::from(COUNT) * FRAGMENT_NS;
    let expected_ns = at_once(&file(COUNT, b"", nothing, nothing), 9999).0;
    let same = |of: &[u32]| mfra(of, 0);
    let short = |places: &[u32]| sidx(0, &places[..2], 60_000);
    let behind: [(&str, Made); 9] = [
        ("no row", Box::new(move |_| same(&[]))),
        ("beyond the end", Box::new(move |_| same(&[u32::MAX]))),
        (
            "itself",
            Box::new(move |places| same(&[places[299] + places[1] - places[0]])),
        ),
        ("no box", Box::new(move |places| same(&[places[7] + 200]))),
        ("zeros", Box::new(|places| mfra(places, 0)[..40].to_vec())),
        ("too long", Box::new(|places| mfra(places, 9_000_000))),
        (
            "longer than the file",
            Box::new(|places| mfra(places, 3_000_000)),
        ),
        ("another table", Box::new(|places| mfra(places, 100))),
        ("cut off", Box::new(|places| mfra(places, 0)[8..].to_vec())),
    ];
    for (name, behind) in behind {
        let file = file(COUNT, b"", nothing, behind);
        let (told_ns, _) = at_once(&file, 9999);
        assert!(
            told_ns.abs_diff(expected_ns) < expected_ns / 20,
            "{name}: {told_ns}"
        );
        assert_eq!(index(&file).duration_ns(), whole_ns, "{name}");
    }
    let in_front: [(&str, Made); 5] = [
        ("rows that are not there", Box::new(short)),
        ("beyond the end", Box::new(|_| sidx(u32::MAX, &[1, 1], 2))),
        ("no box", Box::new(|_| sidx(100, &[50, 50], 2))),
        ("no row", Box::new(|_| sidx(0, &[], 0))),
        (
            "too large",
            Box::new(|_| sidx(0, &vec![5_000; 1 << 17], 65_535)),
        ),
    ];
    for (name, in_front) in in_front {
        let file = file(COUNT, b"", in_front, nothing);
        let (told_ns, _) = at_once(&file, 9999);
        assert!(
            told_ns > whole_ns / 2 && told_ns < whole_ns * 2,
            "{name}: {told_ns}"
        );
        assert_eq!(index(&file).duration_ns(), whole_ns, "{name}");
    }
}

#[test]
fn so_many_boxes_are_looked_at_on_the_way_to_the_end() {
    // Two for each fragment, and two behind them.
    let most = LOOKS_MAX / 2 - 1;
    let behind_all = |_: &[u32]| [boxed(b"free", &[&[0; 5000]]), boxed(b"free", &[])].concat();
    for (behind, is_exact) in [(most, true), (most + 1, false)] {
        let whole_ns = 300 * FRAGMENT_NS;
        let first = 300 - behind as usize;
        let index = |places: &[u32]| sidx(places[first] - places[0], &[1], 1);
        let file = file(300, b"", index, behind_all);
        let (told_ns, _) = at_once(&file, 9999);
        assert_eq!(told_ns == whole_ns, is_exact, "{told_ns}");
        assert!(told_ns.abs_diff(whole_ns) < whole_ns / 10, "{told_ns}");
    }
}

#[test]
fn a_header_that_tells_too_much_is_told_of() {
    let of = |ms: u64| told(&file(10, &mehd(ms), nothing, nothing));
    assert_eq!(of(1600), "");
    assert_eq!(of(2700), "");
    assert_eq!(of(2701), "its header tells of 2.7 s, and it has 1.6 s");
    assert_eq!(
        of(3_600_000),
        "its header tells of 3600.0 s, and it has 1.6 s"
    );
}
