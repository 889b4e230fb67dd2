//! What `players/receive.c` and `players/receive.py` say that they have received, and how they are
//! run.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(
    unreachable_pub,
    reason = "a module of test binaries is reached by nobody else"
)]

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use onrush_testkit::process::Process;
use tempfile::TempDir;

/// What was received of one film.
#[derive(Default)]
pub struct Received {
    pub tracks: Vec<Track>,
}

#[derive(Default)]
pub struct Track {
    pub medium: String,
    pub coded: Vec<Frame>,
    pub decoded: Vec<Frame>,
    /// Of sound that may be cut anywhere, all of it.
    pub bytes: Vec<u8>,
}

pub struct Frame {
    pub is_key: bool,
    pub at_us: Option<i64>,
    pub bytes: usize,
    pub hash: String,
}

impl Received {
    pub fn track(&self, medium: &str) -> &Track {
        let track = self.tracks.iter().find(|track| track.medium == medium);
        track.unwrap_or_else(|| panic!("no {medium}"))
    }

    pub fn read(said: &str) -> Self {
        let mut received = Self::default();
        for line in said.lines() {
            let fields: Vec<_> = line.split(' ').collect();
            let [what, rest @ ..] = &fields[..] else {
                continue;
            };
            match (*what, rest) {
                ("stream", [_, medium, _]) => received.tracks.push(Track {
                    medium: (*medium).to_owned(),
                    ..Track::default()
                }),
                ("key" | "coded" | "decoded" | "bytes", [stream, at_us, bytes, hash]) => {
                    let track = &mut received.tracks[stream.parse::<usize>().unwrap()];
                    if *what == "bytes" {
                        track.bytes.extend(unhex(hash));
                    }
                    let frames = match *what {
                        "decoded" => &mut track.decoded,
                        _ => &mut track.coded,
                    };
                    frames.push(Frame {
                        is_key: *what == "key",
                        at_us: at_us.parse().ok(),
                        bytes: bytes.parse().unwrap(),
                        hash: (*hash).to_owned(),
                    });
                }
                // What libavformat says besides.
                _ => {}
            }
        }
        received
    }
}

pub fn unhex(digits: &str) -> impl Iterator<Item = u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
}

/// The program that receives, if it can be compiled here.
pub fn receiver(folder: &TempDir) -> Option<PathBuf> {
    let program = folder.path().join("receive");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/players/receive.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-o"]).arg(&program).arg(source);
    compiler.args(["-lavformat", "-lavcodec", "-lavutil"]);
    let output = compiler.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lacks = said.contains("No such file or directory");
    assert!(output.status.success() || lacks, "{said}");
    output.status.success().then_some(program)
}

pub fn received(command: &mut Command) -> Received {
    let (status, said) = Process::run(command, DEADLINE).unwrap();
    assert!(status.success(), "{command:?}: {status}\n{said}");
    Received::read(&said)
}

/// A program beside the tests.
pub fn program(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    tests.join("players").join(name)
}

/// Runs `act` for each item, a few at a time: all at once would be a test of this machine.
pub fn each<T: Sync>(items: &[T], act: impl Fn(&T) + Sync) {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(items.len()) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // One that fails hides no other.
                    if panic::catch_unwind(AssertUnwindSafe(|| act(item))).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    assert_eq!(failed, 0, "so many of {} failed, see above", items.len());
}

/// A player that plays a film of four seconds hangs if it takes so long, on a slow machine, too.
pub const DEADLINE: Duration = Duration::from_secs(100);
/// Players that run beside each other.
pub const AT_ONCE: usize = 6;
