//! What becomes of files while they are played: names come and go, files grow, and some are cut or
//! written over.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::thread::{scope, sleep};

use super::*;

/// What RTCP says when a stream ends.
fn reason(bye: &[u8]) -> String {
    let text = String::from_utf8_lossy(bye);
    let reasons = ["end of media", "the file changed"];
    let found = reasons.iter().find(|reason| text.contains(**reason));
    found.unwrap_or_else(|| panic!("{text:?}")).to_string()
}

/// As small a cache as there is, so that most is read after what happens has happened.
fn small(growth_time_max: Duration) -> Fixture {
    Fixture::with(|config| {
        config.cache_bytes = 1 << 20;
        config.limits.growth_time_max = growth_time_max;
    })
}

impl Fixture {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    fn to_append(&self, name: &str) -> File {
        let mut options = OpenOptions::new();
        options.append(true).open(self.path(name)).unwrap()
    }

    fn sdp(&self, name: &str) -> String {
        let response = self.connect().request("DESCRIBE", &self.url(name), &[]);
        String::from_utf8(response.unwrap().body).unwrap()
    }
}

#[test]
fn a_film_plays_on_whatever_becomes_of_its_name() {
    let fixture = small(Duration::from_secs(1));
    let names = ["touched.ts", "renamed.ts", "unlinked.ts", "replaced.ts"];
    for name in names {
        fixture.write(name, &demo(4));
    }
    fixture.write("new", &demo(1));
    let mut viewers = names.map(|name| fixture.set_up_file(name));
    scope(|scope| {
        let playing = viewers.each_mut().map(|viewer| {
            viewer.play(None);
            scope.spawn(|| viewer.to_the_bye())
        });
        sleep(Duration::from_millis(300));
        let touched = fixture.to_append("touched.ts");
        touched.set_modified(std::time::SystemTime::now()).unwrap();
        fs::rename(fixture.path("renamed.ts"), fixture.path("other.ts")).unwrap();
        fs::remove_file(fixture.path("unlinked.ts")).unwrap();
        fs::rename(fixture.path("new"), fixture.path("replaced.ts")).unwrap();
        // New clients get what is there now.
        let mut new = fixture.set_up_file("replaced.ts");
        new.play(None);
        assert_carries(&new.to_the_end(), &demo(1));
        for (name, status) in [("renamed.ts", 404), ("unlinked.ts", 404), ("other.ts", 200)] {
            let described = fixture
                .connect()
                .request("DESCRIBE", &fixture.url(name), &[]);
            assert_eq!(described.unwrap().status, status, "{name}");
        }
        for (name, playing) in names.iter().zip(playing) {
            let (packets, bye) = playing.join().unwrap();
            assert_eq!(reason(&bye), "end of media", "{name}");
            assert_contiguous(&packets);
            assert_carries(&packets, &demo(4));
        }
    });
    // Their sessions are as they were; what was unlinked is let go when the last of them has gone.
    for viewer in &mut viewers {
        assert_eq!(viewer.request("TEARDOWN", &[]).status, 200);
    }
    wait_until("the unlinked file is closed", || {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap();
        let links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let root = fixture.root.path().to_str().unwrap();
        !links.into_iter().any(|link| {
            let link = link.to_string_lossy().into_owned();
            link.starts_with(root) && link.ends_with("(deleted)")
        })
    });
}

#[test]
fn a_film_that_is_appended_to_is_played_with_what_was_appended() {
    let fixture = small(Duration::from_secs(1));
    // Not a whole number of RTP packets, nor does what is written at a time end with a transport
    // packet.
    let film = demo(4);
    let (front, back) = film.split_at(demo(2).len() / 188 * 188 - 3 * 188);
    fixture.write("film.ts", front);
    let mut viewer = fixture.set_up_file("film.ts");
    let response = viewer.request("PLAY", &[]);
    assert!(
        !response.header("Range").unwrap().ends_with('-'),
        "{response:?}"
    );
    scope(|scope| {
        let playing = scope.spawn(|| viewer.to_the_bye());
        sleep(Duration::from_millis(300));
        let mut file = fixture.to_append("film.ts");
        file.write_all(&back[..100_001]).unwrap();
        file.write_all(&back[100_001..]).unwrap();
        let (packets, bye) = playing.join().unwrap();
        assert_eq!(reason(&bye), "end of media");
        assert_contiguous(&packets);
        assert_carries(&packets, &film);
    });
}

#[test]
fn a_film_that_is_cut_or_written_over_is_played_up_to_there() {
    let fixture = small(Duration::from_secs(1));
    let film = demo(4);
    let names = ["cut.ts", "over.ts", "emptied.ts", "left.ts"];
    for name in names {
        fixture.write(name, &film);
    }
    let mut viewers = names.map(|name| fixture.set_up_file(name));
    let cut = film.len() / 2;
    scope(|scope| {
        let [cut_one, over, emptied, left] = &mut viewers;
        let _left = left.play(Some("npt=0-1.5"));
        let playing = [cut_one, over, emptied].map(|viewer| {
            viewer.play(None);
            scope.spawn(|| viewer.to_the_bye())
        });
        let left = scope.spawn(|| left.to_the_bye());
        sleep(Duration::from_millis(200));
        fixture.to_append("cut.ts").set_len(cut as u64).unwrap();
        fixture.to_append("left.ts").set_len(cut as u64).unwrap();
        let other: Vec<_> = film[cut..]
            .chunks(188)
            .flat_map(|ts| [&ts[..187], &[7]].concat())
            .collect();
        let mut options = OpenOptions::new();
        let file = options.write(true).open(fixture.path("over.ts")).unwrap();
        file.write_all_at(&other, (cut / 188 * 188) as u64).unwrap();
        fs::write(fixture.path("emptied.ts"), "").unwrap();
        for (name, playing) in names.iter().zip(playing) {
            let (packets, bye) = playing.join().unwrap();
            assert_eq!(reason(&bye), "the file changed", "{name}");
            assert_contiguous(&packets);
            let carried = payload(&packets);
            // Of something else at most what lies between two packets that are remembered, 256
            // apart.
            assert!(
                film.starts_with(&carried[..carried.len().min(cut)]),
                "{name}"
            );
            assert!(carried.len() < cut + 257 * 188, "{name}: {}", carried.len());
            let expected = if *name == "emptied.ts" { 0 } else { cut / 3 };
            assert!(carried.len() > expected, "{name}: {}", carried.len());
        }
        // Who did not go so far has seen nothing of it.
        let (packets, bye) = left.join().unwrap();
        assert_eq!(reason(&bye), "end of media");
        assert!(film.starts_with(&payload(&packets)));
    });
    fixture.wait_for_sessions(1);
    assert_eq!(viewers[0].request("OPTIONS", &[]).status, 454);
    assert_eq!(viewers[3].request("OPTIONS", &[]).status, 200);
}

#[test]
fn a_recording_is_played_while_it_is_made() {
    let fixture = small(Duration::from_secs(8));
    let film = demo(6);
    let start = demo(1).len() + 77;
    fs::write(fixture.path("live.ts"), &film[..start]).unwrap();
    assert!(fixture.sdp("live.ts").contains("\r\na=range:npt=0-\r\n"));
    let mut viewer = fixture.set_up_file("live.ts");
    let response = viewer.request("PLAY", &[]);
    assert_eq!(response.header("Range"), Some("npt=0.000000-"));
    scope(|scope| {
        let playing = scope.spawn(|| viewer.to_the_bye());
        let mut file = fixture.to_append("live.ts");
        // Faster and slower than it is played, and with a long pause.
        for (i, piece) in film[start..].chunks(99_991).enumerate() {
            sleep(Duration::from_millis([200, 1500, 700][i % 3]));
            file.write_all(piece).unwrap();
        }
        let (packets, bye) = playing.join().unwrap();
        assert_eq!(reason(&bye), "end of media");
        assert_contiguous(&packets);
        assert_carries(&packets, &film);
    });
    let sdp = fixture.sdp("live.ts");
    assert!(!sdp.contains("\r\na=range:npt=0-\r\n"), "{sdp}");
    // It is played again from its beginning, like any other.
    viewer.play(None);
    assert_carries(&viewer.to_the_end(), &film);
}

#[test]
fn a_recording_has_a_live_edge_and_times_that_come() {
    let fixture = small(Duration::from_secs(60));
    let film = demo(8);
    let (front, back) = film.split_at(demo(4).len());
    fs::write(fixture.path("live.ts"), front).unwrap();
    let mut viewer = fixture.set_up_file("live.ts");
    let place = |packets: &[Vec<u8>]| {
        let first = &packets[0][HEADER_BYTES..];
        let found = film.windows(first.len()).position(|bytes| bytes == first);
        (found.expect("it is of the film") * 8 + film.len() / 2) / film.len()
    };
    // There is a place to start at every second.
    viewer.play(Some("npt=now-"));
    assert_eq!(place(&viewer.ports.receive(20).unwrap()), 3);
    let refused = viewer.request("PLAY", &[("Range", "npt=6-")]);
    assert_eq!(refused.status, 457);
    fixture.to_append("live.ts").write_all(back).unwrap();
    wait_until_played(&mut viewer, "npt=6-");
    viewer.drain();
    let response = viewer.request("PLAY", &[("Range", "npt=6-")]);
    assert!(
        response.header("Range").unwrap().ends_with('-'),
        "{response:?}"
    );
    let mut packets = viewer.ports.receive(40).unwrap();
    let (sequence, _) = rtp_info(&response);
    let first = packets.iter().position(|p| header(p).sequence == sequence);
    packets.drain(..first.expect("it starts where it says"));
    assert_eq!(place(&packets), 6);
    assert_contiguous(&packets);
    viewer.play(Some("npt=now-"));
    viewer.drain();
    assert_eq!(viewer.request("PAUSE", &[]).status, 200);
    assert_eq!(viewer.request("TEARDOWN", &[]).status, 200);
}

/// Asks until the server knows that time.
fn wait_until_played(viewer: &mut Viewer, range: &str) {
    let started = Instant::now();
    while viewer.request("PLAY", &[("Range", range)]).status != 200 {
        assert!(started.elapsed() < WAIT_MAX, "{range} was not to be had");
        sleep(Duration::from_millis(100));
    }
}

fn rtp_info(response: &Response) -> (u16, u32) {
    let info = response.header("RTP-Info").expect("it plays");
    let value = |name: &str| {
        let (_, rest) = info.split_once(name).expect("it is told");
        rest.split(';').next().unwrap().to_owned()
    };
    (
        value(";seq=").parse().unwrap(),
        value(";rtptime=").parse().unwrap(),
    )
}
