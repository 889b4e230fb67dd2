//! Files whose tables are in front, while what these tell of is still being copied here.

use super::builder::*;
use super::*;
use crate::media::container::{Container, Continued, Index};
use crate::media::segments::{Segment, Segmented};

/// Pictures of a NAL unit and two seconds each, that a decoder can start at.
const PICTURES: u32 = 20;
const PICTURE: [u8; 8] = [0, 0, 0, 4, 0x65, 1, 2, 3];

const SECOND_NS: u64 = 1_000_000_000;

/// A file of these behind their tables, and where the first is.
fn film() -> (Vec<u8>, usize) {
    let movie = |at: u32| {
        let track = Track {
            entries: vec![avc3()],
            ..Track::pictures(1, tables(PICTURES, 8, 2000, at))
        };
        moov(&[track], b"")
    };
    let at = movie(0).len() + 8;
    let mdat = boxed(b"mdat", &[&PICTURE.repeat(PICTURES as usize)]);
    let movie = movie(u32::try_from(at).unwrap());
    ([movie, mdat].concat(), at)
}

/// A film cut into segments, and these.
fn segments(index: &Index, is_whole: bool) -> (Segmented, Vec<Segment>) {
    let film = Segmented::new(index, is_whole, |_| None).unwrap();
    let all = 1..=film.renditions[0].segments() as u64;
    let all = all.map(|number| film.renditions[0].segment(number).unwrap());
    let all = all.collect();
    (film, all)
}

#[test]
fn a_file_that_is_being_copied_goes_on() {
    let (file, at) = film();
    // Twelve pictures, and what is here of the next one: nothing, or some bytes.
    for more in [0, 5, 7] {
        let mut scanner = Scanner::default();
        read(&mut scanner, &file[..at + 12 * 8 + more], 9999).unwrap();
        let settled = scanner.settled().unwrap();
        assert!(settled.is_partial);
        assert_eq!(only(&settled).samples.len(), 12);
        let [known_s, all_s] = [settled.known_ns(), settled.duration_ns()].map(|ns| ns / SECOND_NS);
        assert_eq!((known_s, all_s), (24, 40));
        let before = Index::of(settled);
        assert!(before.save().is_none());
        let (film, listed) = segments(&before, false);
        assert_eq!((film.is_complete, listed.len()), (false, 3));
        // If no more comes, it ends there.
        let ended = Index::of(scanner.clone().finish().unwrap());
        let (film, all) = segments(&ended, true);
        assert_eq!(
            (film.is_complete, film.duration_ns() / SECOND_NS),
            (true, 24)
        );
        assert_eq!((all.len(), &all[..3]), (4, &listed[..]));
        assert!(matches!(ended.continuing(&before), Continued::More(_)));
        // Else it is complete as soon as all is here.
        read(&mut scanner, &file, 9999).unwrap();
        let whole = scanner.settled().unwrap();
        assert!(!whole.is_partial);
        let whole = Index::of(whole);
        let (film, all) = segments(&whole, false);
        assert_eq!(
            (film.is_complete, film.duration_ns() / SECOND_NS),
            (true, 40)
        );
        assert_eq!((all.len(), &all[..3]), (7, &listed[..]));
        assert!(matches!(whole.continuing(&before), Continued::More(_)));
    }
}
