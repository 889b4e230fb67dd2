//! An index that was saved is the same when it is made again, and broken bytes make none, or one
//! that harms nobody.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;

use crate::media::ts::{Packetisation, synth};
use crate::media::{FilePiece, Index, Plan, RtpOrigin, ScanOptions, Scanner};

const BURST_NS: u64 = 20_000_000;

/// A file of each kind of container, a few seconds long, and the name that it goes by.
static FILMS: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("onrush-saved-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let made = |name: &'static str, options: &str| {
        let path = folder.join(name);
        (name, ffmpeg(options, path))
    };
    let films = vec![
        made("film.mp4", "-c:v libx264 -bf 2 -g 25 -c:a aac"),
        made(
            "fragments.mp4",
            "-c:v libx264 -c:a aac -movflags frag_keyframe+empty_moov",
        ),
        made(
            "clocks.mov",
            "-c:v libx264 -c:a aac -metadata creation_time=2020-01-01T00:00:00Z \
             -timecode 10:00:00:00",
        ),
        made("film.mkv", "-c:v libx264 -bf 2 -c:a ac3"),
        made("film.webm", "-c:v libvpx -b:v 200k -c:a libopus"),
        made("film.ts", "-c:v libx264 -c:a mp2"),
        made("av1.mp4", "-c:v libaom-av1 -cpu-used 8 -usage realtime -an"),
        made("elementary.ts", "-c:v libx264 -bf 2 -g 25 -c:a ac3"),
        made(
            "elementary-hevc.ts",
            "-c:v libx265 -preset ultrafast -x265-params log-level=none -c:a eac3",
        ),
        made(
            "elementary-latm.ts",
            "-c:v mpeg4 -c:a aac -mpegts_flags latm",
        ),
        made("elementary-opus.m2ts", "-c:v mpeg2video -c:a libopus"),
        made("elementary-adts.ts", "-vn -c:a aac"),
        made("elementary-mp2.ts", "-vn -c:a mp2"),
        made("pictures.mkv", "-c:v mpeg2video -c:a pcm_s16be"),
    ];
    fs::remove_dir_all(&folder).unwrap();
    films
});

fn ffmpeg(options: &str, path: PathBuf) -> Vec<u8> {
    let sources = "-f lavfi -i testsrc=size=160x120:rate=25:duration=3 \
                   -f lavfi -i sine=frequency=440:sample_rate=48000:duration=3 -ac 2";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-y", "-nostdin"]);
    ffmpeg.args(sources.split_whitespace());
    let status = ffmpeg.args(options.split_whitespace()).arg(&path).status();
    assert!(status.expect("ffmpeg is installed").success(), "{options}");
    fs::read(path).unwrap()
}

/// Some of the transport streams by their elementary streams.
fn scanner(name: &str) -> Scanner {
    Scanner::new(ScanOptions {
        is_elementary: name.starts_with("elementary"),
        ..ScanOptions::default()
    })
}

fn index(name: &str, film: &[u8]) -> Index {
    let mut scanner = scanner(name);
    scanner.read(film).unwrap();
    scanner.finish().unwrap()
}

fn plans(index: &Index) -> Vec<Plan> {
    let tracks = 0..index.tracks().len();
    let cuts = tracks.filter_map(|track| Some((track, index.cut(track, 1460)?)));
    cuts.map(|(track, cut)| index.plan(track, cut, BURST_NS, false))
        .collect()
}

/// All packets of a plan as they are sent, and when each is due.
fn packets(plan: &Plan, film: &[u8]) -> (Vec<u64>, Vec<u8>) {
    let origin = RtpOrigin {
        sequence: 1,
        timestamp: 2,
        ssrc: 3,
    };
    let all = 0..plan.rtp_packets();
    let bytes = plan.images_bytes(all.clone());
    let mut images = vec![0; usize::try_from(bytes).unwrap()];
    let piece = FilePiece {
        offset: 0,
        bytes: film,
    };
    plan.write_images(all.clone(), &[piece], origin, &mut images)
        .unwrap();
    (all.map(|packet| plan.due_ns(packet)).collect(), images)
}

/// What a player sees of a file, but for its packets.
fn told(index: &Index) -> String {
    let seeks = (0..40).map(|step| index.seek(step * 100_000_000));
    format!(
        "{:?} {} {} {:?} {:?} {:?} {:?} {:?}",
        index.tracks(),
        index.duration_ns(),
        index.known_ns(),
        index.doubt(),
        index.frame_rate(),
        index.wall_clock_start_ns(),
        index.time_of_stamp_ns(2_000_000_000),
        seeks.collect::<Vec<_>>()
    )
}

#[test]
fn a_restored_index_has_the_same_packets() {
    for (name, film) in &*FILMS {
        let index = index(name, film);
        let saved = index.save().expect(name);
        let restored = Index::restore(&saved).expect(name);
        assert_eq!(restored.save().as_ref(), Some(&saved), "{name}");
        assert_eq!(told(&restored), told(&index), "{name}");
        for (one, other) in plans(&index).iter().zip(plans(&restored)) {
            assert!(packets(one, film) == packets(&other, film), "{name}");
        }
        let probes = restored.probes(16);
        assert_eq!(probes.len(), index.probes(16).len(), "{name}");
        for probe in &probes {
            let part = [probe.part.start, probe.part.end].map(|at| usize::try_from(at).unwrap());
            assert!(probe.matches(&film[part[0]..part[1]]), "{name}: {probe:?}");
        }
        // Reports are made of all that is known.
        let report = |index: &Index| {
            let sampled = index.report(film.len() as u64, BURST_NS);
            let packetisation = Packetisation {
                ts_packets_per_rtp: 7,
                burst_ns: BURST_NS,
            };
            let ts = index.as_ts().cloned().map(Arc::new);
            let ts = ts.map(|ts| ts.report(packetisation));
            format!("{sampled:?} {ts:?}")
        };
        assert_eq!(report(&restored), report(&index), "{name}");
    }
}

#[test]
fn what_is_not_known_to_its_end_is_not_saved() {
    for (name, film) in &*FILMS {
        let mut scanner = scanner(name);
        let half = film.len() as u64 / 2;
        while let Some(wanted) = scanner.wants(film.len() as u64) {
            let [start, end] = [wanted.start, wanted.end.min(half)];
            if start >= end {
                break;
            }
            let part = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
            scanner.push(&film[part]).unwrap();
        }
        // Of a transport stream nobody can tell, and an MP4 may have been understood by then.
        if let Some(index) = scanner
            .settled()
            .ok()
            .filter(|it| it.as_sampled().is_some())
        {
            // Of elementary streams how long they are is not known before.
            let is_elementary = name.starts_with("elementary");
            let is_whole = !is_elementary && index.known_ns() >= index.duration_ns();
            assert_eq!(index.save().is_some(), is_whole, "{name}");
        }
    }
}

/// Whatever of a saved index is another byte: none is made of it, or one that can be played from,
/// as far as the file's bytes allow.
#[test]
fn a_changed_byte_makes_no_index_or_a_harmless_one() {
    for (name, film) in &*FILMS {
        let saved = index(name, film).save().unwrap();
        let step = saved.len().div_ceil(1500);
        for at in (0..saved.len()).step_by(step) {
            let mut changed = saved.clone();
            changed[at] ^= 1 << (at % 8);
            let Ok(index) = Index::restore(&changed) else {
                continue;
            };
            told(&index);
            for plan in plans(&index) {
                let some = 0..plan.rtp_packets().min(20);
                let bytes = usize::try_from(plan.images_bytes(some.clone())).unwrap();
                let origin = RtpOrigin {
                    sequence: 0,
                    timestamp: 0,
                    ssrc: 0,
                };
                let piece = FilePiece {
                    offset: 0,
                    bytes: film,
                };
                let _written = plan.write_images(some, &[piece], origin, &mut vec![0; bytes]);
            }
            assert!(index.tracks().len() <= 8, "{name}");
        }
        for cut in 0..saved.len().min(300) {
            assert!(Index::restore(&saved[..cut]).is_err(), "{name} of {cut}");
        }
        assert!(
            Index::restore(&[&saved[..], &[0]].concat()).is_err(),
            "{name}"
        );
    }
}

proptest! {
    #[test]
    fn bytes_at_random_make_no_index(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(index) = Index::restore(&bytes) {
            told(&index);
        }
    }

    /// Lengths that are larger than what follows them cost no memory.
    #[test]
    fn lengths_without_bytes_make_no_index(
        kind in 0..3_u8,
        length in any::<u64>(),
        rest in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let length = postcard::to_allocvec(&length).unwrap();
        let bytes = [&[kind][..], &length, &rest].concat();
        prop_assert!(Index::restore(&bytes).is_err() || length == [0]);
    }
}

#[test]
fn a_transport_stream_takes_few_bytes() {
    let stream = synth::constant_rate(50_000, 0, 10_152);
    let saved = index("film.ts", &stream).save().unwrap();
    // A point for each clock reference, and four bytes for each 256 packets.
    assert!(saved.len() < stream.len() / 500, "{}", saved.len());
}
