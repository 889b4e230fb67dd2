//! Unfairness that is planted on purpose: each kind turns the verdict of a real run.
//!
//! A load generator that stalls is in `load.rs`, a retry that hides a miss and a host that takes
//! the processor away are where a record is judged (`onrush_measure::capacity`): no test can have a
//! hypervisor steal. Here packets are swallowed between server and viewer, and a processor is taken
//! from the server by somebody of its own machine.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_measure::capacity::{self, CapacityRecord};
use onrush_measure::experiment::Record;
use onrush_measure::load::{self, LoadRecord};
use onrush_testkit::process::Process;
use onrush_testkit::require_root;
use onrush_testkit::testbed::{Mode, RCV_DEVICE, SND_DEVICE, Testbed};

use common::{LONG, Site, clip};

#[path = "../../../tests/common.rs"]
mod common;

const ONRUSH_LAB: &str = env!("CARGO_BIN_EXE_onrush-lab");

/// Where the second viewer receives.
const PORT: u16 = 20_002;

/// A run in which nothing is planted is tried so often: the machine may have more to do than this.
const TRIES_MAX: u32 = 5;

/// Swallows what is sent to [`PORT`], where the sender's device would have it.
struct Blackhole<'a>(&'a Testbed);

impl<'a> Blackhole<'a> {
    /// One that is closed.
    fn prepare(testbed: &'a Testbed) -> Self {
        for words in [
            // What no filter names goes straight on.
            "qdisc add dev DEVICE root handle 1: htb default 0 direct_qlen 100000",
            "class add dev DEVICE parent 1: classid 1:1 htb rate 10gbit quantum 60000",
            "qdisc add dev DEVICE parent 1:1 handle 30: blackhole",
        ] {
            Self::tc(testbed, words);
        }
        Self(testbed)
    }

    fn open(&self) {
        let filter = format!(
            "filter add dev DEVICE parent 1: protocol ip prio 1 u32 match ip dport {PORT} 0xffff \
             flowid 1:1"
        );
        Self::tc(self.0, &filter);
    }

    fn close(&self) {
        Self::tc(self.0, "filter del dev DEVICE parent 1: prio 1");
    }

    /// Packets that it swallowed.
    fn dropped(&self) -> u64 {
        let show = ["-s", "qdisc", "show", "dev", SND_DEVICE];
        let shown = self.0.snd.tool("tc", show).unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let (_, its) = shown.split_once("qdisc blackhole").expect("it is there");
        let (_, dropped) = its.split_once("dropped ").unwrap();
        dropped.split(',').next().unwrap().parse().unwrap()
    }

    fn tc(testbed: &Testbed, words: &str) {
        let words = words.replace("DEVICE", SND_DEVICE);
        testbed.snd.tool("tc", words.split(' ')).unwrap();
    }
}

/// Has `onrush-lab load` watch the site's clip by the sink, while `meanwhile` does something.
fn load_while(
    site: &Site,
    arguments: &[&str],
    meanwhile: impl FnOnce(),
) -> (Option<i32>, String, LoadRecord) {
    let json = site.path("load.json");
    let mut command = site.testbed.rcv.command(ONRUSH_LAB);
    command.args(["load", "--sink", RCV_DEVICE, "--json"]);
    command.arg(&json).args(arguments).arg(site.url("clip.ts"));
    let mut generator = Process::start(&mut command).unwrap();
    meanwhile();
    let status = generator.wait(LONG).unwrap();
    let record = Record::read(&json, load::NAME);
    let record = record.unwrap_or_else(|error| panic!("{error}: {}", generator.log()));
    (status.code(), generator.log(), record)
}

/// That such a load is kept where nothing is planted.
fn is_kept(site: &Site, arguments: &[&str]) {
    let mut said = String::new();
    let is_kept = (0..TRIES_MAX).any(|_| {
        let (code, log, _) = load_while(site, arguments, || ());
        said = log;
        code == Some(0)
    });
    assert!(is_kept, "{said}");
}

/// Waits until packets come to the receiving device at a rate that no control has.
fn wait_for_packets(testbed: &Testbed, count: u64) {
    let give_up = Instant::now() + LONG;
    let received = || -> u64 {
        let shown = testbed
            .rcv
            .tool("ip", ["-s", "-o", "link", "show", RCV_DEVICE]);
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        let rx = shown.split_once("RX:").map_or("", |(_, rx)| rx);
        let numbers = rx
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok());
        // Bytes, then packets.
        numbers.clone().nth(1).unwrap_or_else(|| panic!("{shown}"))
    };
    let before = received();
    while received() < before + count {
        assert!(Instant::now() < give_up, "nothing is sent");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_viewer_starved_among_a_thousand_turns_the_verdict() {
    require_root!();
    let site = Site::with_clip(&clip(30.0), Mode::Uso, &["--burst", "200ms"]);
    // Lateness is not what this is about, on a machine that has more to do.
    let arguments = [
        "-n",
        "1000",
        "--ramp",
        "4s",
        "--time",
        "8s",
        "--lateness",
        "440ms",
        "--start-up-max",
        "20s",
    ];
    is_kept(&site, &arguments);
    let blackhole = Blackhole::prepare(&site.testbed);
    let (code, said, record) = load_while(&site, &arguments, || {
        wait_for_packets(&site.testbed, 2000);
        thread::sleep(Duration::from_secs(4));
        blackhole.open();
    });
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("packets were due and did not come"), "{said}");
    let playouts = record.runs[0].playouts.as_ref().unwrap();
    assert_eq!(playouts.viewers, 1000, "{said}");
    assert!(blackhole.dropped() > 0);
    // It was that one: it alone stands apart by seconds.
    let second_ns = 1_000_000_000;
    assert!(playouts.worst[0].starved_ns > second_ns, "{playouts:?}");
    assert!(playouts.worst[0].missing > 0 && playouts.missing > 0);
}

#[test]
fn a_sink_that_drops_turns_the_verdict() {
    require_root!();
    let site = Site::with_clip(&clip(30.0), Mode::Uso, &[]);
    let arguments = [
        "-n",
        "8",
        "--ramp",
        "200ms",
        "--time",
        "5s",
        "--lateness",
        "400ms",
        "--start-up-max",
        "20s",
    ];
    is_kept(&site, &arguments);
    let blackhole = Blackhole::prepare(&site.testbed);
    let (code, said, record) = load_while(&site, &arguments, || {
        wait_for_packets(&site.testbed, 300);
        blackhole.open();
        // A tenth of a second of one viewer of eight.
        while blackhole.dropped() < 5 {
            thread::sleep(Duration::from_millis(5));
        }
        blackhole.close();
    });
    assert_eq!(code, Some(1), "{said}");
    let lost = record.runs[0].totals.lost;
    assert!(
        lost > 0 && said.contains(&format!("{lost} packets were lost")),
        "{said}"
    );
}

#[test]
fn a_first_packet_that_is_late_turns_the_verdict() {
    require_root!();
    let site = Site::with_clip(&clip(30.0), Mode::Uso, &[]);
    let arguments = [
        "-n",
        "8",
        "--ramp",
        "200ms",
        "--time",
        "7s",
        "--lateness",
        "400ms",
        "--start-up-max",
        "2s",
    ];
    is_kept(&site, &arguments);
    let blackhole = Blackhole::prepare(&site.testbed);
    let load = || {
        blackhole.open();
        load_while(&site, &arguments, || {
            wait_for_packets(&site.testbed, 300);
            thread::sleep(Duration::from_secs(3));
            blackhole.close();
        })
    };
    // Where the machine that watches stood still nothing is judged.
    let (code, said, record) = (1..TRIES_MAX)
        .map(|_| load())
        .find(|(code, ..)| *code != Some(2))
        .unwrap_or_else(load);
    assert_eq!(code, Some(1), "{said}");
    // What it was sent before was not lost: its stream begins with what came first.
    let slow = "1 of 8 viewers waited more than 2 s for a first packet, 0 of them to the end";
    assert!(said.contains(slow), "{said}");
    let slowest = record.runs[0].start_up_ns.iter().max();
    assert!(slowest > Some(&2_000_000_000), "{said}");
}

/// Takes a processor for 300 ms of each second, whoever else wants it, until it is dropped.
struct Thief {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Thief {
    fn of(core: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let its_own = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            onrush_sys::thread::pin_to(core).unwrap();
            let me = rustix::thread::gettid().as_raw_pid().to_string();
            let mut command = Command::new("chrt");
            let output = command
                .args(["--fifo", "--pid", "50", &me])
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            let since = Instant::now();
            // Not for ever, whatever becomes of the test: nobody else gets by.
            while !its_own.load(Ordering::Relaxed) && since.elapsed() < 3 * LONG {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(300) {
                    std::hint::spin_loop();
                }
                thread::sleep(Duration::from_millis(700));
            }
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Thief {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // That it could not steal is told by what was measured.
        drop(self.thread.take().map(thread::JoinHandle::join));
    }
}

/// Of two viewers by `bench capacity`, in trials: how it ended, what it said, what it kept.
fn capacity(json: &std::path::Path) -> (Output, CapacityRecord) {
    let output = Command::new(ONRUSH_LAB)
        .args(["bench", "capacity", "--mode", "uso", "--rate", "1Mbit/s"])
        .args([
            "--first", "2", "--max", "2", "--time", "4s", "--trials", "6", "--aim", "2",
        ])
        .arg("--json")
        .arg(json)
        .output()
        .unwrap();
    let record = Record::read(json, capacity::NAME);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let record = record.unwrap_or_else(|error| panic!("{error}: {said}"));
    (output, record)
}

#[test]
fn a_machine_that_takes_30_percent_turns_the_verdict() {
    require_root!();
    let cores = onrush_sys::thread::allowed_cores();
    let &core = cores.last().expect("a processor");
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("capacity.json");
    let thief = Thief::of(core);
    let (output, record) = capacity(&json);
    drop(thief);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for run in &record.runs {
        assert!(!run.missed.is_empty(), "{said}");
        assert!(run.yardstick.is_some(), "{said}");
    }
    assert!(
        said.contains("would have had to buffer more than 60 ms"),
        "{said}"
    );
}
