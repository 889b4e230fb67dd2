//! A disk that fails while files on it are downloaded: only what it fails is cut off, and seen to
//! be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use download_site::{LONG, Raw, Site, bytes, run};
use onrush_testkit::disk::FailingDisk;
use onrush_testkit::{require_programs, require_root};

mod download_site;

const FILM_BYTES: usize = 12 << 20;

/// A file system on a disk that fails, somewhere; not there any more once dropped.
struct Mounted {
    at: PathBuf,
    _disk: FailingDisk,
}

impl Mounted {
    /// Holds `film.ts`, of which the second half cannot be read.
    fn new(at: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let film = bytes(FILM_BYTES);
        fs::create_dir(folder.path().join("content")).unwrap();
        fs::write(folder.path().join("content/film.ts"), &film).unwrap();
        let options = [
            "-q",
            "-F",
            "-b",
            "4096",
            "-O",
            "^has_journal",
            "-d",
            "content",
        ];
        run(
            folder.path(),
            "mkfs.ext4",
            &[&options[..], &["image", "24M"]].concat(),
        );
        let image = fs::read(folder.path().join("image")).unwrap();
        let half = &film[FILM_BYTES / 2..][..4096];
        let half = image.chunks(4096).position(|block| block == half).unwrap();
        let disk = FailingDisk::new(&image, half as u64 * 4096).unwrap();
        fs::create_dir(at).unwrap();
        let device = disk.path().to_str().unwrap();
        run(
            folder.path(),
            "mount",
            &["-o", "ro", device, at.to_str().unwrap()],
        );
        Self {
            at: at.to_owned(),
            _disk: disk,
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever still has a file of it open keeps it until then.
        drop(Command::new("umount").arg("--lazy").arg(&self.at).status());
    }
}

// SPECIFICATION.md: 30
#[test]
fn a_disk_that_fails_ends_only_what_it_fails() {
    require_root!();
    require_programs!("losetup", "mkfs.ext4", "mount");
    let mut disk = None;
    let site = Site::new(&[], |root| {
        fs::write(root.join("good.ts"), bytes(FILM_BYTES)).unwrap();
        disk = Some(Mounted::new(&root.join("disk")));
    });
    let film = bytes(FILM_BYTES);

    // By HTTP, while another file is downloaded.
    let mut good = site.connect();
    good.send("GET /good.ts HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut bad = site.connect();
    bad.send("GET /disk/film.ts HTTP/1.1\r\nHost: h\r\n\r\n");
    while bad.receive() > 0 {}
    let head_end = bad.received.windows(4).position(|four| four == b"\r\n\r\n");
    let part = bad.received.split_off(head_end.unwrap() + 4);
    let head = String::from_utf8(bad.received.clone()).unwrap();
    assert!(
        head.contains(&format!("Content-Length: {FILM_BYTES}\r\n")),
        "{head}"
    );
    // The connection is closed, and nothing came that is not on the disk.
    assert!(
        part.len() <= FILM_BYTES / 2 && part == film[..part.len()],
        "{}",
        part.len()
    );
    let line = site
        .server
        .wait_for_line("cannot read the file at byte", LONG);
    assert!(
        line.is_some_and(|line| line.contains("os error 5")),
        "it is not in the log"
    );
    assert!(good.response(false).body == film);

    // By FTP, where an end of the connection would pass for the end of the file.
    let mut ftp = Raw::connect(site.ftp);
    assert_eq!(ftp.reply().0, 220);
    assert_eq!((ftp.command("USER ftp"), ftp.command("PASS x")), (331, 230));
    ftp.send("EPSV\r\n");
    let port = ftp
        .reply()
        .1
        .split('|')
        .nth(3)
        .unwrap()
        .parse::<u16>()
        .unwrap();
    let mut data = Raw::connect(([127, 0, 0, 1], port).into());
    assert_eq!(ftp.command("RETR disk/film.ts"), 150);
    while data.receive() > 0 {}
    assert!(data.received.len() <= FILM_BYTES / 2);
    assert_eq!(ftp.reply().0, 451);
    assert_eq!(
        site.server
            .wait_for_lines("cannot read the file at byte", 2, LONG)
            .len(),
        2
    );

    // What the disk still gives is served, and so is everything else.
    let first = site.get("/disk/film.ts", "Range: bytes=0-9999\r\n");
    assert_eq!((first.status, &first.body[..]), (206, &film[..10_000]));
    assert_eq!(ftp.command("NOOP"), 200);
    drop(site);
    drop(disk);
}
