//! Trouble that a kernel does not give on demand: a library that is loaded before the C library
//! sets the wall clock back, keeps reads of one file waiting, as a disk does that recovers itself,
//! and answers for options of sockets as gVisor does. The clock of the machine is not touched.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use onrush_testkit::checker::Start;
use onrush_testkit::process::Process;
use onrush_testkit::receiver::Capture;
use onrush_testkit::rtsp_client::rtcp_types;
use onrush_testkit::testbed::{Mode, SND_IPV4};
use onrush_testkit::{require_programs, require_root};
use tempfile::TempDir;

use common::{LONG, ONRUSH, Site, Viewer, clip, expected, serve_arguments, wait_until, watch};

mod common;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// What stands between the server and its C library. The page of `INTERPOSED` says how many seconds
/// are added to CLOCK_REALTIME, of which inode reads wait until it says another, and whether
/// options are answered for as by gVisor (pkg/sentry/socket/netstack): those that it does not know
/// are set with success, and cannot be read.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct page { int64_t seconds; uint64_t inode; uint64_t waiting; uint64_t pretends; };
static volatile struct page *page;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("INTERPOSED");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(0, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) page = at;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && page && clock == CLOCK_REALTIME) now->tv_sec += page->seconds;
    return failed;
}

ssize_t pread64(int fd, void *to, size_t bytes, off64_t at) {
    struct stat status;
    if (page && page->inode && !fstat(fd, &status) && status.st_ino == page->inode) {
        __atomic_add_fetch(&page->waiting, 1, __ATOMIC_SEQ_CST);
        while (page->inode == status.st_ino) usleep(10000);
    }
    return syscall(SYS_pread64, fd, to, bytes, at);
}

static int is_pretended(int level) {
    return page && page->pretends && (level == 282 /* SOL_TLS */ || level == IPPROTO_UDP);
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t bytes) {
    int is_ulp = level == IPPROTO_TCP && option == 31 /* TCP_ULP */;
    if (is_pretended(level) || (page && page->pretends && is_ulp)) return 0;
    return (int)syscall(SYS_setsockopt, fd, level, option, value, bytes);
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *bytes) {
    int is_mtu = (level == IPPROTO_IP && option == IP_MTU)
        || (level == IPPROTO_IPV6 && option == IPV6_MTU);
    if (is_pretended(level) || (page && page->pretends && is_mtu)) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return (int)syscall(SYS_getsockopt, fd, level, option, value, bytes);
}
"#;

/// The library, and what it is told.
struct Interposed {
    folder: TempDir,
    page: File,
}

impl Interposed {
    fn new() -> Self {
        let folder = TempDir::with_prefix("onrush-interposed-").unwrap();
        let source = folder.path().join("interposed.c");
        fs::write(&source, LIBRARY).unwrap();
        let library = folder.path().join("interposed.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]);
        let compiled = compiler.arg(&library).arg(&source).output().unwrap();
        assert!(compiled.status.success(), "{compiled:?}");
        fs::write(folder.path().join("page"), [0; 4096]).unwrap();
        let mut options = File::options();
        let page = options.read(true).write(true);
        let page = page.open(folder.path().join("page")).unwrap();
        Self { folder, page }
    }

    /// Serves `clip.ts`, and `other.ts`, with the library between.
    fn serve(&self, ts: &[u8], options: &[&str]) -> Site {
        let (testbed, media) = Site::prepare(Mode::Uso);
        for name in ["clip.ts", "other.ts"] {
            fs::write(media.path().join(name), ts).unwrap();
        }
        let mut command = testbed.snd.command(ONRUSH);
        command.args(serve_arguments(media.path())).args(options);
        command.env("LD_PRELOAD", self.folder.path().join("interposed.so"));
        command.env("INTERPOSED", self.folder.path().join("page"));
        Site::serve_by(testbed, media, command)
    }

    fn set_clock_back(&self, by: Duration) {
        let seconds = -i64::try_from(by.as_secs()).unwrap();
        self.page.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// Options of sockets are as in gVisor from now on.
    fn pretend_options(&self) {
        self.page.write_all_at(&1_u64.to_ne_bytes(), 24).unwrap();
    }

    /// Reads of this file wait from now on; of none, with an end of all waiting.
    fn keep_waiting(&self, file: Option<&Path>) {
        let inode = file.map_or(0, |file| fs::metadata(file).unwrap().ino());
        self.page.write_all_at(&inode.to_ne_bytes(), 8).unwrap();
    }

    /// Reads that had to wait.
    fn waited(&self) -> u64 {
        let mut count = [0; 8];
        self.page.read_exact_at(&mut count, 16).unwrap();
        u64::from_ne_bytes(count)
    }
}

/// What time it is to the server, by what it answers by HTTP.
fn server_time(site: &Site) -> SystemTime {
    let address = SocketAddr::from((SND_IPV4, 8080));
    let connection = site.testbed.rcv.run(|| TcpStream::connect(address));
    let mut connection = connection.unwrap();
    connection.set_read_timeout(Some(LONG)).unwrap();
    let request = b"HEAD /clip.ts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    connection.write_all(request).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let date = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("date").then_some(value)
    });
    let date = format!("--date={}", date.expect("a date"));
    let read = Command::new("date").args([&date, "+%s"]).output().unwrap();
    let seconds = String::from_utf8(read.stdout).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.trim().parse().unwrap())
}

/// Sessions, their keep-alive and their pace live by the monotonic clock.
#[test]
fn a_clock_set_back_a_day_disturbs_nobody() {
    require_root!();
    require_programs!("cc");
    let ts: Arc<[u8]> = clip(12.0).into();
    let interposed = Interposed::new();
    let site = interposed.serve(
        &ts,
        &["--session-timeout=20s", &format!("--http={SND_IPV4}:8080")],
    );
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    let info = viewer.play(None);
    assert!(viewer.receiver.wait_until(LONG, |got| got.rtp.len() > 100));
    let before = server_time(&site);
    interposed.set_clock_back(DAY);
    let after = server_time(&site);
    let back = before.duration_since(after).expect("it went back");
    assert!(back > DAY - LONG, "{back:?}");
    // Who comes now is served as well, and who has begun misses nothing.
    let mut late = Viewer::setup(&site.testbed, "other.ts");
    let late_info = late.play(Some(6.0));
    thread::scope(|scope| {
        scope.spawn(|| late.judged(&expected(&ts, Start::Found, &late_info)));
        viewer.judged(&expected(&ts, Start::At(0), &info));
    });
    // And forward again, over more than any time-out.
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    let info = viewer.play(Some(6.0));
    interposed.set_clock_back(Duration::ZERO);
    viewer.judged(&expected(&ts, Start::Found, &info));
    site.stop();
}

/// A word of a report.
fn word(report: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*report[at..].first_chunk().unwrap())
}

/// When the timestamp of the first sender report was, by each of them, in seconds since 1900.
fn began_s(capture: &Capture) -> Vec<f64> {
    let datagrams = capture.rtcp.iter().map(|datagram| &*datagram.bytes);
    let is_report = |bytes: &&[u8]| rtcp_types(bytes).first() == Some(&200);
    let reports: Vec<_> = datagrams.filter(is_report).collect();
    let began = |report: &&[u8]| {
        let since = word(report, 16).wrapping_sub(word(reports[0], 16));
        let since_s = f64::from(since.cast_signed()) / 90e3;
        f64::from(word(report, 8)) + f64::from(word(report, 12)) / 4_294_967_296.0 - since_s
    };
    reports.iter().map(began).collect()
}

/// A picture by ffmpeg, published as `live/cam` from the server's own machine.
fn publish(site: &Site) -> Process {
    let mut command = site.testbed.snd.command("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-re", "-f", "lavfi"]);
    command.args(["-i", "testsrc=size=128x96:rate=25", "-pix_fmt", "yuv420p"]);
    command.args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "25"]);
    command.args(["-tune", "zerolatency", "-f", "rtsp", "-rtsp_transport"]);
    command.args(["tcp", "rtsp://127.0.0.1:8554/live/cam"]);
    Process::start(&mut command).unwrap()
}

/// Players place what they get by the line that reports draw: a step on it is a hole in what they
/// record, or goes back.
#[test]
fn a_clock_that_is_set_moves_no_line_of_reports() {
    require_root!();
    require_programs!("cc", "ffmpeg");
    let interposed = Interposed::new();
    let site = interposed.serve(&clip(10.0), &["--rtsp=127.0.0.1:8554"]);
    let publisher = publish(&site);
    wait_until("somebody publishes", || {
        let url = site.url("live/cam");
        let described = site.connect().request("DESCRIBE", &url, &[]);
        described.unwrap().status == 200
    });
    let play = |name| {
        let mut viewer = Viewer::setup(&site.testbed, name);
        assert_eq!(viewer.ask("PLAY", &[]).status, 200, "{name}");
        viewer
    };
    let hear = |viewer: &Viewer, reports: usize| {
        let has_come = |got: &Capture| began_s(got).len() >= reports;
        assert!(viewer.receiver.wait_until(LONG, has_come), "{}", viewer.url);
    };
    let (watching, film) = (play("live/cam"), play("clip.ts"));
    hear(&watching, 1);
    hear(&film, 1);
    interposed.set_clock_back(DAY);
    // Who comes now is told the new time, and that one stays, too.
    let late = play("other.ts");
    hear(&late, 1);
    hear(&watching, 2);
    hear(&film, 2);
    interposed.set_clock_back(Duration::ZERO);
    hear(&watching, 3);
    let films = [film, late].map(|viewer| began_s(&viewer.finish()));
    let channel = began_s(&watching.receiver.finish());
    drop(publisher);
    let back = films[0][0] - films[1][0];
    assert!((DAY.as_secs_f64() - back).abs() < 60.0, "{films:?}");
    // Of a channel it is the publisher's line, which moves by as little as that is off.
    for (reports, apart_max) in films.iter().map(|it| (it, 0.01)).chain([(&channel, 1.0)]) {
        let is_on_line = |began: &f64| (began - reports[0]).abs() < apart_max;
        assert!(
            reports.len() > 1 && reports.iter().all(is_on_line),
            "{reports:?}"
        );
    }
    site.stop();
}

/// A film that is played from a disk that answers nothing for 30 s stands still, and goes on where
/// it stood, without a packet less.
#[test]
fn a_disk_that_takes_30_s_ends_no_session() {
    require_root!();
    require_programs!("cc");
    let ts: Arc<[u8]> = clip(24.0).into();
    let interposed = Interposed::new();
    // As small as it may be, so that most of the film is read while it is played.
    let site = interposed.serve(&ts, &["--cache=1MiB"]);
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    let info = viewer.play(None);
    assert!(viewer.receiver.wait_until(LONG, |got| got.rtp.len() > 100));
    interposed.keep_waiting(Some(&site.path("clip.ts")));
    let begin = Instant::now();
    while interposed.waited() == 0 {
        assert!(begin.elapsed() < LONG, "nothing was read");
        thread::sleep(Duration::from_millis(10));
    }
    while begin.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_secs(1));
        let answer = viewer.ask("GET_PARAMETER", &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    interposed.keep_waiting(None);
    viewer.judged(&expected(&ts, Start::At(0), &info));
    let log = site.stop();
    assert!(log.contains("its clock was moved"), "{log}");
}

/// What the kernel is said to encrypt, and to cut into packets, it must do.
#[test]
fn options_that_are_taken_and_do_nothing_are_not_relied_on() {
    require_root!();
    require_programs!("cc", "curl");
    let ts: Arc<[u8]> = clip(12.0).into();
    let interposed = Interposed::new();
    interposed.pretend_options();
    let https = format!("{SND_IPV4}:8443");
    let site = interposed.serve(&ts, &["--tls=self-signed", &format!("--https={https}")]);
    let mut curl = site.testbed.rcv.command("curl");
    curl.args(["-sSfk", "--http1.1", "--max-time", "60"]);
    let fetched = curl.arg(format!("https://{https}/clip.ts")).output();
    let fetched = fetched.unwrap();
    let said = String::from_utf8_lossy(&fetched.stderr);
    assert!(
        fetched.status.success() && fetched.stdout[..] == *ts,
        "{said}"
    );
    watch(&site.testbed, "clip.ts", &ts, None);
    let log = site.stop();
    let refused = "data path sendmmsg_gso is not available: this kernel has no UDP_SEGMENT";
    assert!(log.contains(refused) && log.contains("MTU"), "{log}");
}
