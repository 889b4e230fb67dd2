//! Films: read as the server reads them, in pieces of any size, whole and while they grow.
//!
//! However a film is read, its index is the same; while it grows, what is published of it stays.
//! What plans of it promise, `plan` checks.

use std::net::{IpAddr, Ipv4Addr};

use onrush_wire::media::{Continued, Index, ScanError, ScanOptions, Scanner, TRACKS_MAX, ts};
use onrush_wire::sdp::{Description, Extent};

use crate::memory::bounded;
use crate::plan::{self, BURST_NS};
use crate::random::Random;
use crate::segments;

/// What a file of the tests' own format begins with, which no program reads.
const TEST_MAGIC: &[u8] = b"onrtest\n";

/// What reading a film may hold beside some times the film: tables of samples, and what a format
/// has to look at as a whole.
const MEMORY_BYTES: usize = 8 << 20;
const MEMORY_TIMES: usize = 64;

/// How often a film may be read over: what lies in it more than once is told so by the film.
const READ_TIMES: u64 = 64;
const READ_BYTES: u64 = 1 << 20;

/// Steps in which a film grows, at the most.
const STEPS_MAX: u64 = 5;

/// Scans `film` in all ways, and makes all of its packets.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(film: &[u8]) {
    check_as(film, ScanOptions::default());
}

/// The same of a film that is read so.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check_as(film: &[u8], options: ScanOptions) {
    if film.starts_with(TEST_MAGIC) {
        return;
    }
    let mut random = Random::of(film);
    let memory_max = MEMORY_BYTES + MEMORY_TIMES * film.len();
    let whole = bounded(memory_max, || whole(film, options));
    let pieces = in_pieces(film, options, &mut random);
    match (&whole, &pieces) {
        (Ok(whole), Ok(pieces)) => plan::assert_same(whole, pieces, film),
        (Err(whole), Err(pieces)) => assert_eq!(whole.to_string(), pieces.to_string()),
        other => panic!("read whole and in pieces: {other:?}"),
    }
    grown(film, options, &mut random);
    if let Ok(index) = &whole {
        check_index(index, film, &mut random);
    }
    // What is asked of the ends of a long film.
    let end = film.len() - random.index(film.len() + 1);
    let _any: Option<u64> = ts::clock_span_ns(&film[..film.len().min(4096)], &film[end..]);
}

fn whole(film: &[u8], options: ScanOptions) -> Result<Index, ScanError> {
    let mut scanner = Scanner::new(options);
    scanner.read(film)?;
    scanner.finish()
}

fn in_pieces(film: &[u8], options: ScanOptions, random: &mut Random) -> Result<Index, ScanError> {
    let mut scanner = Scanner::new(options);
    read_to(&mut scanner, film, film.len(), random)?;
    scanner.finish()
}

/// Gives the scanner what it wants of a film that has `end` bytes by now.
fn read_to(
    scanner: &mut Scanner,
    film: &[u8],
    end: usize,
    random: &mut Random,
) -> Result<(), ScanError> {
    let mut left = READ_TIMES * film.len() as u64 + READ_BYTES;
    while let Some(wanted) = scanner.wants(end as u64) {
        assert!(
            wanted.start < wanted.end && wanted.end <= end as u64,
            "{wanted:?} of {end}"
        );
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let (start, all) = (at(wanted.start), at(wanted.end - wanted.start));
        // More than it wants is welcome.
        let most = if random.is_one_in(8) {
            end - start
        } else {
            all
        };
        let piece = random.piece(most);
        left = left.checked_sub(piece.min(all) as u64).unwrap_or_else(|| {
            panic!("a film of {} bytes is read over and over", film.len());
        });
        scanner.push(&film[start..start + piece])?;
    }
    Ok(())
}

/// Reads a film that grows, as far as it comes.
fn grown(film: &[u8], options: ScanOptions, random: &mut Random) {
    let (mut scanner, mut end) = (Scanner::new(options), 0);
    let mut known: Option<(Index, usize)> = None;
    for step in (0..=random.below(STEPS_MAX)).rev() {
        end += match step {
            0 => film.len() - end,
            _ => random.index(film.len() - end + 1),
        };
        if read_to(&mut scanner, film, end, random).is_err() {
            return;
        }
        let Ok(index) = scanner.settled() else {
            // Once there is something to play it stays so.
            assert!(
                known.is_none(),
                "nothing is certain any more: {:?}",
                scanner.settled().err()
            );
            continue;
        };
        known = go_on(known, index, film, end, true);
    }
    if let Ok(index) = scanner.finish() {
        go_on(known, index, film, end, false);
    }
}

/// What is known after an index was published: it has all that the one before has.
fn go_on(
    known: Option<(Index, usize)>,
    index: Index,
    film: &[u8],
    end: usize,
    grows: bool,
) -> Option<(Index, usize)> {
    let Some((old, old_end)) = known else {
        return Some((index, end));
    };
    match index.continuing(&old) {
        Continued::More(index) => {
            let (before, now) = (&film[..old_end], &film[..end]);
            plan::assert_continued((&old, before), (&index, now), grows);
            Some((index, end))
        }
        Continued::NotYet => Some((old, old_end)),
        Continued::Other => panic!("what was published of a film is not in it when it has grown"),
    }
}

/// What an index tells of its tracks, wherever it is from.
pub(crate) fn check_tracks(index: &Index) {
    assert!((1..=TRACKS_MAX).contains(&index.tracks().len()));
    assert!(index.known_ns() <= index.duration_ns());
    check_description(index);
}

fn check_index(index: &Index, film: &[u8], random: &mut Random) {
    let tracks = index.tracks();
    check_tracks(index);
    for probe in index.probes(1 + random.index(16)) {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let part = film.get(at(probe.part.start)..at(probe.part.end));
        let part = part.expect("what is remembered of a film is in it");
        assert!(probe.matches(part), "a film is not what it is");
    }
    let _any: Option<String> = index.doubt();
    let _any = (index.frame_rate(), index.wall_clock_start_ns());
    if let Some(report) = index.report(film.len() as u64, BURST_NS) {
        assert_eq!(report.tracks.len(), tracks.len());
    }
    for _ in 0..4 {
        let time_ns = any_time(index, random);
        assert!(index.seek(time_ns).time_ns <= time_ns);
        let _any: u64 = index.time_of_stamp_ns(random.number());
    }
    for track in 0..tracks.len() {
        plan::check(index, track, film, random);
    }
    segments::check(index, film, random);
}

/// A time within the film as a rule, and any now and then.
pub(crate) fn any_time(index: &Index, random: &mut Random) -> u64 {
    match random.below(8) {
        0 => random.number(),
        1 => index.duration_ns(),
        _ => random.below(index.duration_ns().saturating_add(2)),
    }
}

/// A film cannot make a description that says something else than it should.
fn check_description(index: &Index) {
    let tracks = index.tracks();
    let description = Description {
        keys: &[],
        name: "film",
        id: 1,
        server: IpAddr::V4(Ipv4Addr::LOCALHOST),
        tracks,
        extent: Extent::Whole(index.duration_ns()),
        group: None,
    };
    let bytes = description.to_bytes();
    let parsed = sdp_types::Session::parse(&bytes).expect("a description is one");
    assert_eq!(parsed.medias.len(), tracks.len());
    for (media, track) in parsed.medias.iter().zip(tracks) {
        let parameters = media.get_first_attribute_value("fmtp");
        let expected = track.format_parameters.as_ref();
        let expected = expected.map(|it| format!("{} {it}", track.payload_type));
        let parameters = parameters.unwrap_or_default().map(str::to_owned);
        assert_eq!(parameters, expected);
        assert_eq!(media.attributes.len(), 2 + usize::from(expected.is_some()));
    }
}
