//! A server with a large cache serves while the cache becomes ready: the first client is answered,
//! and a film plays, without a copy, when most of the memory is still to come. Where a control
//! group leaves less memory than the cache is to have, it has less; a successor has the rest when
//! its predecessor has ended.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use onrush_server::admin::status::{Cache, Status};
use onrush_testkit::checker::Start;
use onrush_testkit::http_client;
use onrush_testkit::process::Signal;
use onrush_testkit::rtsp_client::transport;
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{Mode, RCV_DEVICE, SND_IPV4, Testbed};
use onrush_testkit::{require_programs, require_root};
use rustix::process::{Pid, kill_process};

use common::{LONG, ONRUSH, Site, Viewer, clip, expected, serve_arguments, wait_until, watch};

mod common;

/// More than any machine makes ready in the moment before its first client comes; a machine that
/// has less takes what it has.
const CACHE: &str = "--cache=8GiB";
const METRICS: &str = "--metrics=127.0.0.1:9554";
const PORT: u16 = 20_000;

fn status(site: &Site) -> Status {
    let metrics = ([127, 0, 0, 1], 9554).into();
    let get = || {
        http_client::Client::connect(metrics)
            .unwrap()
            .get("/status")
            .unwrap()
    };
    serde_json::from_slice(&site.testbed.snd.run(get)).unwrap()
}

fn cache(status: &Status) -> &Cache {
    status.cache.as_ref().expect("it serves files")
}

// SPECIFICATION.md: 60
#[test]
fn a_film_plays_while_the_cache_becomes_ready() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), clip(2.0)).unwrap();
    let site = Site::serve(testbed, media, &[CACHE, METRICS]);
    // What the sink counts it drops before anybody copies it.
    let sink = Sink::attach(&site.testbed.rcv, RCV_DEVICE, PORT..=PORT).unwrap();
    let mut client = site.connect();
    assert_eq!(client.request("OPTIONS", "*", &[]).unwrap().status, 200);
    let first = status(&site);
    let (bytes, ready) = (cache(&first).bytes, cache(&first).bytes_ready);
    assert!(
        0 < ready && ready < bytes,
        "{ready} of {bytes} at the first answer"
    );
    assert!(cache(&first).chunks > 0);
    // Nothing is told to be ready that is not locked.
    assert!(first.locked.pinned_bytes >= ready);

    let url = site.url("clip.ts");
    let track = format!("{url}/track1");
    let answer = client.request("SETUP", &track, &[("Transport", &transport(PORT))]);
    let session = answer.unwrap().session().expect("a session").id;
    client.play(&url, &session, None).unwrap();
    let seen = || sink.totals().unwrap().trains;
    wait_until("trains arrive", || seen() > 3);
    let during = status(&site);
    let (now, bytes) = (cache(&during).bytes_ready, cache(&during).bytes);
    assert!(now < bytes, "{now} of {bytes} while it plays");
    let engine = &during.engines[0];
    assert_eq!(engine.path, "uring_registered_zc");
    assert_eq!(engine.trains_copied, 0, "{engine:?}");
    wait_until("trains come back", || {
        status(&site).engines[0].trains_zero_copy > 3
    });
    // It goes on, without a step back.
    wait_until("more is ready", || cache(&status(&site)).bytes_ready > now);
    let log = site.stop();
    assert!(
        log.contains("the rest follows while the server serves"),
        "{log}"
    );
    assert!(log.contains("at the end: 0B pinned, 0B resident"), "{log}");
}

#[test]
fn a_cache_of_several_pieces_is_all_ready_at_last() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), clip(2.0)).unwrap();
    let site = Site::serve(
        testbed,
        media,
        &["--cache=144MiB", METRICS, "--rtp-headers=own"],
    );
    let said = site
        .server
        .wait_for_line("cache: all 144.0 MiB are ready", LONG);
    assert!(said.is_some(), "{}", site.server.log_tail());
    let status = status(&site);
    assert_eq!(
        (cache(&status).bytes, cache(&status).bytes_ready),
        (144 << 20, 144 << 20)
    );
    assert_eq!(status.locked.pinned_bytes, 144 << 20);
    // Four pieces of 32 MiB and one of 16, each with slots for headers at its front.
    let set_aside = status.engines.len() as u64 * (512 << 10);
    let in_piece = |bytes: u64| (bytes - set_aside) / cache(&status).chunk_bytes;
    assert_eq!(
        cache(&status).chunks,
        4 * in_piece(32 << 20) + in_piece(16 << 20)
    );
    site.stop();
}

/// More than the server needs without its cache, and less than the cache that is asked for.
const GROUP_BYTES: u64 = 192 << 20;

/// More than two servers need with a cache and a piece of another, and less than with two caches.
const GROUP_OF_TWO_BYTES: u64 = 512 << 20;

/// A control group of memory, of either version, removed at its end.
struct MemoryGroup {
    folder: PathBuf,
    limit: &'static str,
    events: &'static str,
    /// What of `events` counts processes that were ended, and what how often the limit was met.
    ended: &'static str,
    met: (&'static str, &'static str),
}

impl MemoryGroup {
    fn new(name: &str, bytes: u64) -> Self {
        let name = format!("onrush-test-{name}-{}", std::process::id());
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = |wanted: fn(&str, &str) -> bool| {
            mounts.lines().find_map(|line| {
                let words: Vec<_> = line.split(' ').collect();
                wanted(words[2], words[3]).then(|| PathBuf::from(words[1]))
            })
        };
        let group = if let Some(mount) = mount(|system, options| {
            system == "cgroup" && options.split(',').any(|it| it == "memory")
        }) {
            Self {
                folder: mount.join(name),
                limit: "memory.limit_in_bytes",
                events: "memory.oom_control",
                ended: "oom_kill ",
                met: ("memory.failcnt", ""),
            }
        } else {
            let mount =
                mount(|system, _| system == "cgroup2").expect("a hierarchy of control groups");
            fs::write(mount.join("cgroup.subtree_control"), "+memory").unwrap();
            Self {
                folder: mount.join(name),
                limit: "memory.max",
                events: "memory.events",
                ended: "oom_kill ",
                met: ("memory.events", "max "),
            }
        };
        fs::create_dir(&group.folder).unwrap();
        fs::write(group.folder.join(group.limit), bytes.to_string()).unwrap();
        group
    }

    /// A server that is in the group from its start.
    fn serving(&self, testbed: &Testbed, media: &Path) -> Command {
        let mut command = testbed.snd.command("sh");
        command
            .args(["-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\""])
            .arg(&self.folder);
        command.arg(ONRUSH).args(serve_arguments(media));
        command
    }

    /// The number behind `name` in a file of the group; of a file with one number, without a name.
    fn number(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.folder.join(file)).unwrap();
        let number = text.lines().find_map(|line| line.strip_prefix(name));
        number.expect("it is counted").trim().parse().unwrap()
    }

    /// Processes that the kernel ended for want of memory.
    fn ended(&self) -> u64 {
        self.number(self.events, self.ended)
    }

    /// How often the limit was met.
    fn met(&self) -> u64 {
        self.number(self.met.0, self.met.1)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Fails while a process is in it, which the test has told of then.
        drop(fs::remove_dir(&self.folder));
    }
}

// SPECIFICATION.md: 66
#[test]
fn a_memory_cgroup_at_its_limit_ends_nobody() {
    require_root!();
    require_programs!("curl");
    let ts: Arc<[u8]> = Arc::from(clip(4.0));
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), &ts).unwrap();
    // Nothing of it is in memory yet, and all that is read of it is the server's.
    let large = File::create(media.path().join("large.bin")).unwrap();
    large.set_len(2 * GROUP_BYTES).unwrap();

    let group = MemoryGroup::new("cache", GROUP_BYTES);
    let mut command = group.serving(&testbed, media.path());
    let http = SocketAddr::from((SND_IPV4, 8080));
    command.args(["--cache=1GiB", METRICS, &format!("--http={http}")]);
    let site = Site::serve_by(testbed, media, command);
    wait_until("the cache is as large as it gets", || {
        let status = status(&site);
        cache(&status).bytes_ready == cache(&status).bytes
    });
    let bytes = cache(&status(&site)).bytes;
    assert!((32 << 20..GROUP_BYTES / 4 * 3).contains(&bytes), "{bytes}");

    // Files that are sent fill what is left of the group, and a film plays meanwhile.
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    let expected = expected(&ts, Start::At(0), &viewer.play(None));
    let met = group.met();
    let mut curl = site.testbed.rcv.command("curl");
    let curl = curl.args(["-sS", "-o", "/dev/null", "-w", "%{size_download}"]);
    let output = curl
        .arg(format!("http://{http}/large.bin"))
        .output()
        .unwrap();
    let downloaded = String::from_utf8_lossy(&output.stdout);
    assert_eq!(downloaded, (2 * GROUP_BYTES).to_string(), "{output:?}");
    assert!(group.met() > met, "the limit was never met");
    viewer.judged(&expected);
    watch(&site.testbed, "clip.ts", &ts, Some(2.0));
    assert_eq!(group.ended(), 0);
    let log = site.stop();
    assert!(log.contains("its control group leaves no more"), "{log}");
}

/// The process that took over, ended when the test is.
struct Successor(Pid);

impl Drop for Successor {
    fn drop(&mut self) {
        // It may be gone already.
        kill_process(self.0, Signal::KILL).unwrap_or_default();
    }
}

/// While both are there the successor has what is left; then it has all that it is to have.
#[test]
fn a_successor_has_its_whole_cache_when_it_is_alone() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), clip(2.0)).unwrap();
    let group = MemoryGroup::new("successor", GROUP_OF_TWO_BYTES);
    let mut command = group.serving(&testbed, media.path());
    command.args(["--cache=256MiB", METRICS]);
    let site = Site::serve_by(testbed, media, command);
    let all = "cache: all 256.0 MiB are ready";
    assert!(site.server.wait_for_line(all, LONG).is_some());
    // A session keeps the first server, and its cache.
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    site.server.signal(Signal::USR2).unwrap();
    let line = site.server.wait_for_line("serves from now on", LONG);
    let line = line.unwrap_or_else(|| panic!("{}", site.server.log_tail()));
    let number = line.split("process ").nth(1).unwrap().split(' ').next();
    let number = number.unwrap().parse().unwrap();
    let successor = Successor(Pid::from_raw(number).unwrap());
    let waits = " of 256.0 MiB until the server before this one ends";
    let waits = site.server.wait_for_line(waits, LONG);
    assert!(waits.is_some(), "{}", site.server.log_tail());
    assert_eq!(viewer.ask("TEARDOWN", &[]).status, 200);
    drop(viewer);
    let lines = site.server.wait_for_lines(all, 2, LONG);
    assert_eq!(lines.len(), 2, "{}", site.server.log_tail());
    assert_eq!(cache(&status(&site)).bytes_ready, 256 << 20);
    assert_eq!(group.ended(), 0);
    drop(successor);
    let inside = || fs::read_to_string(group.folder.join("cgroup.procs")).unwrap();
    wait_until("nobody is in the group", || inside().is_empty());
}
