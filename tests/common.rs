//! What the end-to-end tests share: the built server in a testbed, clients, and files to serve.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(
    unreachable_pub,
    reason = "a module of test binaries is reached by nobody else"
)]

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::checker::{Expected, Report, Start, TS_BYTES};
use onrush_testkit::media::age;
use onrush_testkit::process::{Holdings, Process, onrush_program};
use onrush_testkit::receiver::{Capture, Receiver};
use onrush_testkit::rtsp_client::{Client, Response, RtpInfo};
use onrush_testkit::skip;
use onrush_testkit::testbed::{Mode, Options, RCV_IPV4, RCV_IPV6, SND_IPV4, SND_IPV6, Testbed};
use tempfile::TempDir;

/// The built `onrush`.
pub const ONRUSH: &str = onrush_program(
    option_env!("CARGO_BIN_EXE_onrush"),
    option_env!("CARGO_BIN_EXE_onrush-lab"),
);
/// Bounds every wait for something that takes moments; never a measure.
pub const LONG: Duration = Duration::from_secs(60);
/// Well within the shortest session time-out that a test sets.
pub const KEEP_ALIVE: Duration = Duration::from_millis(500);
/// Where the server listens, in a namespace where nobody else does.
pub const RTSP_PORT: u16 = 8554;
/// As media/make-demo.sh has the demo clip made.
const DEMO_BITRATE: f64 = 1_000_000.0;

/// A server in a testbed with a media directory of its own.
pub struct Site {
    pub server: Process,
    pub testbed: Testbed,
    pub media: TempDir,
}

impl Site {
    /// A testbed and an empty media directory that anybody may read; no server yet.
    pub fn prepare(mode: Mode) -> (Testbed, TempDir) {
        let testbed = Testbed::new(Options {
            mode,
            ..Options::default()
        })
        .unwrap();
        let media = TempDir::with_prefix("onrush-media-").unwrap();
        fs::set_permissions(media.path(), fs::Permissions::from_mode(0o755)).unwrap();
        (testbed, media)
    }

    /// Serves `clip` as `clip.ts`.
    pub fn with_clip(clip: &[u8], mode: Mode, arguments: &[&str]) -> Self {
        let (testbed, media) = Self::prepare(mode);
        fs::write(media.path().join("clip.ts"), clip).unwrap();
        Self::serve(testbed, media, arguments)
    }

    /// Serves `media`.
    pub fn serve(testbed: Testbed, media: TempDir, arguments: &[&str]) -> Self {
        let mut command = testbed.snd.command(ONRUSH);
        command.args(serve_arguments(media.path())).args(arguments);
        Self::serve_by(testbed, media, command)
    }

    /// Serves `media` by a command that says in full how.
    pub fn serve_by(testbed: Testbed, media: TempDir, mut command: Command) -> Self {
        // What lies there is complete.
        for entry in fs::read_dir(media.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && !path.is_symlink() {
                age(&path).unwrap();
            }
        }
        let server = Process::start(&mut command).unwrap();
        let ready = server.wait_for_line("rtsp://", LONG);
        assert!(ready.is_some(), "no server:\n{}", server.log_tail());
        Self {
            server,
            testbed,
            media,
        }
    }

    /// Where a file is played from, over IPv4.
    pub fn url(&self, name: &str) -> String {
        url(SND_IPV4.into(), name)
    }

    /// The path of a file in the media directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.media.path().join(name)
    }

    /// A player on the receiving side. It goes first: a player has little room for what arrives
    /// while it does not run, and what it loses then is lost by this machine and not by the server.
    pub fn player(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.testbed.rcv.command("chrt");
        command.args(["--rr", "1"]).arg(program);
        command
    }

    /// Connects from the receiving side, over IPv4.
    pub fn connect(&self) -> Client {
        connect(&self.testbed, SND_IPV4.into())
    }

    /// Datagrams that the receiving side's sockets had no room for (`RcvbufErrors` of all of them).
    pub fn overflows(&self) -> u64 {
        self.testbed.rcv.udp_counter("RcvbufErrors")
    }

    /// What the server holds once it has let go of the connections that were closed.
    pub fn settled(&self) -> Holdings {
        let give_up = Instant::now() + LONG;
        let mut last = self.server.holdings().unwrap();
        loop {
            thread::sleep(Duration::from_millis(300));
            let now = self.server.holdings().unwrap();
            if (now.descriptors, now.threads) == (last.descriptors, last.threads) {
                return now;
            }
            assert!(Instant::now() < give_up, "the server does not come to rest");
            last = now;
        }
    }

    /// Waits until the server holds no more descriptors and threads than `before`, but for one
    /// thread: of those that may wait for a disk, as many stay as looked after files at once in the
    /// last ten seconds.
    pub fn assert_returns_to(&self, before: Holdings) {
        let give_up = Instant::now() + LONG;
        loop {
            let now = self.server.holdings().unwrap();
            if now.descriptors <= before.descriptors && now.threads <= before.threads + 1 {
                return;
            }
            let log = self.server.log_tail();
            assert!(
                Instant::now() < give_up,
                "before {before:?}, after {now:?}\n{log}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ctrl-C, which must end the server with 0. What it said comes back.
    pub fn stop(mut self) -> String {
        let status = self.server.interrupt(LONG).unwrap();
        let log = self.server.log();
        assert_eq!(status.code(), Some(0), "{}", self.server.log_tail());
        assert!(!log.contains("panicked"), "{log}");
        log
    }
}

/// Waits for what takes moments.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Connects from the receiving side to one of the server's addresses.
pub fn connect(testbed: &Testbed, server: IpAddr) -> Client {
    let address = SocketAddr::from((server, RTSP_PORT));
    testbed.rcv.run(|| Client::connect(address)).unwrap()
}

/// One session of one file, set up.
#[derive(Debug)]
pub struct Viewer {
    pub client: Client,
    pub receiver: Receiver,
    pub url: String,
    pub session: String,
}

impl Viewer {
    /// Sets a session up over IPv4.
    pub fn setup(testbed: &Testbed, name: &str) -> Self {
        Self::setup_to(testbed, name, SND_IPV4.into())
    }

    /// Sets a session up with one of the server's addresses.
    pub fn setup_to(testbed: &Testbed, name: &str, server: IpAddr) -> Self {
        Self::try_setup_to(testbed, name, server).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    /// The same where sessions may be refused: the answer is then all there is.
    pub fn try_setup_to(testbed: &Testbed, name: &str, server: IpAddr) -> Result<Self, Response> {
        let own = if server.is_ipv4() {
            IpAddr::from(RCV_IPV4)
        } else {
            RCV_IPV6.into()
        };
        let receiver = Receiver::bind(&testbed.rcv, own).unwrap();
        let mut client = connect(testbed, server);
        let url = url(server, name);
        let described = client.request("DESCRIBE", &url, &[]).unwrap();
        assert_eq!(described.status, 200, "{described:?}");
        let port = receiver.rtp_port();
        let transport = format!("RTP/AVP;unicast;client_port={port}-{}", port + 1);
        let track = format!("{url}/track1");
        let give_up = Instant::now() + LONG;
        let answer = loop {
            let headers = [("Transport", &*transport)];
            let answer = client.request("SETUP", &track, &headers).unwrap();
            // On a machine so busy that those who play are late a client is told to come again.
            if !answer.reason.contains("are late; try again") || Instant::now() > give_up {
                break answer;
            }
            thread::sleep(Duration::from_millis(200));
        };
        let Some(session) = answer.session() else {
            return Err(answer);
        };
        Ok(Self {
            client,
            receiver,
            url,
            session: session.id,
        })
    }

    /// A request of this session on its whole presentation.
    pub fn ask(&mut self, method: &str, headers: &[(&str, &str)]) -> Response {
        let headers = [&[("Session", &*self.session)], headers].concat();
        self.client.request(method, &self.url, &headers).unwrap()
    }

    /// Plays from `npt` seconds, or from where it is.
    pub fn play(&mut self, npt: Option<f64>) -> RtpInfo {
        let range = npt.map(|npt| format!("npt={npt}-"));
        self.client
            .play(&self.url, &self.session, range.as_deref())
            .unwrap()
    }

    /// Plays to the end as [`Self::finish`] does; nothing may be wrong with what came.
    pub fn judged(self, expected: &Expected) -> Report {
        let url = self.url.clone();
        let report = self.finish().check(expected.clone());
        report.assert_clean(&url);
        report
    }

    /// Waits for the BYE that follows the last packet, keeping the session alive, and tears it
    /// down.
    pub fn finish(mut self) -> Capture {
        let give_up = Instant::now() + LONG;
        while !self.receiver.wait_until(KEEP_ALIVE, Capture::has_bye) {
            assert!(Instant::now() < give_up, "{}: no BYE", self.url);
            let answer = self.ask("GET_PARAMETER", &[]);
            assert!(matches!(answer.status, 200 | 454), "{answer:?}");
        }
        let answer = self.ask("TEARDOWN", &[]);
        assert!(matches!(answer.status, 200 | 454), "{answer:?}");
        self.receiver.finish()
    }
}

/// Plays `name` from `npt` seconds (or its start) to its end and judges all that came against `ts`.
pub fn watch(testbed: &Testbed, name: &str, ts: &Arc<[u8]>, npt: Option<f64>) -> Report {
    watch_from(testbed, name, ts, npt, SND_IPV4.into())
}

/// Plays as [`watch`] does, from one of the server's addresses.
pub fn watch_from(
    testbed: &Testbed,
    name: &str,
    ts: &Arc<[u8]>,
    npt: Option<f64>,
    server: IpAddr,
) -> Report {
    let mut viewer = Viewer::setup_to(testbed, name, server);
    let info = viewer.play(npt);
    let start = if npt.is_some() {
        Start::Found
    } else {
        Start::At(0)
    };
    viewer.judged(&expected(ts, start, &info))
}

/// What a faultless session delivers, to the end of the file.
pub fn expected(ts: &Arc<[u8]>, start: Start, info: &RtpInfo) -> Expected {
    Expected {
        ts: Arc::clone(ts),
        start,
        end: Some((ts.len() / TS_BYTES) as u64),
        ts_packets_per_rtp: 7,
        sequence: Some(info.sequence),
        timestamp: Some(info.timestamp),
        lateness_ns_max: None,
    }
}

/// What makes `onrush` serve `media` in a testbed.
pub fn serve_arguments(media: &Path) -> Vec<String> {
    let addresses: [IpAddr; 2] = [SND_IPV4.into(), SND_IPV6.into()];
    let listen =
        addresses.map(|address| format!("--rtsp={}", SocketAddr::from((address, RTSP_PORT))));
    let mut arguments = vec!["serve".to_owned(), media.to_str().unwrap().to_owned()];
    arguments.extend(listen);
    // No test finds what another has left behind.
    arguments.push("--state=off".to_owned());
    arguments
}

/// Where a file is played from.
pub fn url(server: IpAddr, name: &str) -> String {
    format!("rtsp://{}/{name}", SocketAddr::from((server, RTSP_PORT)))
}

/// A live source of bars, sent by ffmpeg from the receiving side for as long as it is held.
pub fn bars(testbed: &Testbed, format: &str, url: &str) -> Process {
    let mut command = testbed.rcv.command("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-re", "-f", "lavfi"]);
    command.args(["-i", "testsrc=size=128x96:rate=25", "-c:v", "mpeg2video"]);
    command.args(["-g", "5", "-b:v", "300k", "-f", format, url]);
    Process::start(&mut command).unwrap()
}

/// Debian's: another one on the path has not Debian's modules.
pub const PYTHON: &str = "/usr/bin/python3";

/// Whether Python can use GStreamer; if not, the test is listed as skipped.
pub fn has_python_gstreamer() -> bool {
    let imports = "import gi; gi.require_version('Gst', '1.0'); from gi.repository import Gst";
    let output = Command::new(PYTHON).args(["-c", imports]).output();
    let has = output.is_ok_and(|output| output.status.success());
    if !has {
        skip::record("needs python3-gi and gir1.2-gstreamer-1.0 installed");
    }
    has
}

/// `gst-launch-1.0` plays to the end. Its status does not tell whether that was well: at the end it
/// asks for a pause and takes that back, and where it is sent just then, it calls that an error
/// (`writev_bytes` of GStreamer 1.22 answers a send that it has itself cancelled as the end of its
/// file).
pub fn gst_plays_to_the_end(command: &mut Command) {
    let (_, said) = Process::run(command, LONG).unwrap();
    let is_trouble =
        |line: &&str| line.starts_with("ERROR") && !line.ends_with("Could not write to resource.");
    let trouble: Vec<_> = said.lines().filter(is_trouble).collect();
    assert!(trouble.is_empty(), "{said}");
}

/// Transport packets that GStreamer gets from `source`, at least so many.
pub fn gst_packets(testbed: &Testbed, source: &[&str], packets_min: u64) -> usize {
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut command = testbed.rcv.command("gst-launch-1.0");
    command.arg("-q").args(source);
    command.args(["!", "rtpmp2tdepay", "!", "filesink", "buffer-mode=2"]);
    command.arg(format!("location={}", out.path().display()));
    let mut player = Process::start(&mut command).unwrap();
    let give_up = Instant::now() + LONG;
    while out.as_file().metadata().unwrap().len() < packets_min * TS_BYTES as u64 {
        let is_running = player.is_running().unwrap() && Instant::now() < give_up;
        assert!(is_running, "{source:?}: {}", player.log());
        thread::sleep(Duration::from_millis(20));
    }
    player.interrupt(LONG).unwrap();
    let ts = fs::read(out.path()).unwrap();
    let is_whole = ts.chunks(TS_BYTES).all(|ts| ts[0] == 0x47);
    assert!(is_whole, "whole transport packets");
    ts.len() / TS_BYTES
}

/// The first `seconds` of the demo clip, which has a constant rate and a seek point every second.
pub fn clip(seconds: f64) -> Vec<u8> {
    let mut demo = fs::read(DEMO).unwrap();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small positive"
    )]
    let packets = (seconds * DEMO_BITRATE / 8.0 / 188.0) as usize;
    demo.truncate(packets * TS_BYTES);
    demo
}

/// The demo clip.
pub const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media/demo.ts");
