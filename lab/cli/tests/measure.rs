//! `onrush-lab measure` as it is typed: what it writes, what it names when it cannot, and that it
//! comes to its end.
//!
//! Nothing here asserts a time but in the widest bounds: that a figure is one that a machine can
//! have.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use onrush_measure::experiment::Record;
use onrush_measure::primitives::{Entry, MeasureRecord, NAME, Row};
use onrush_testkit::netns::Netns;
use onrush_testkit::process::Process;
use onrush_testkit::{require_root, skip};

const ONRUSH_LAB: &str = env!("CARGO_BIN_EXE_onrush-lab");
/// Bounds every wait for something that takes moments; never a measure.
const LONG: Duration = Duration::from_secs(60);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn measure(arguments: &[&str]) -> Output {
    let mut command = Command::new(ONRUSH_LAB);
    command.arg("measure").args(arguments);
    command.output().expect("it runs")
}

fn read(path: &Path) -> MeasureRecord {
    Record::read(path, NAME).expect("a record of measure")
}

fn rows(record: &MeasureRecord) -> Vec<&Row> {
    let rows = record.runs.iter().filter_map(|entry| match entry {
        Entry::Row(row) => Some(row),
        _ => None,
    });
    rows.collect()
}

fn ids(record: &MeasureRecord) -> Vec<&str> {
    rows(record).iter().map(|row| row.id.as_str()).collect()
}

/// Of each line of a curve, how many points it has.
fn points(record: &MeasureRecord, id: &str) -> Vec<usize> {
    let curve = record.runs.iter().find_map(|entry| match entry {
        Entry::Curve(curve) if curve.id == id => Some(curve),
        _ => None,
    });
    let curve = curve.unwrap_or_else(|| panic!("there is no curve {id}"));
    curve.series.iter().map(|line| line.points.len()).collect()
}

/// Each of these rows has the prediction of which the hash was told before the first probe.
fn predicted_before(record: &MeasureRecord, ids: &[&str]) {
    let predictions = record.runs.iter().find_map(|entry| match entry {
        Entry::Predictions(predictions) => Some(predictions),
        _ => None,
    });
    let predictions = predictions.expect("they are kept");
    assert!(predictions.are_unchanged());
    for id in ids {
        let row = rows(record).into_iter().find(|row| row.id == *id);
        let row = row.unwrap_or_else(|| panic!("{id} is not in {:?}", self::ids(record)));
        assert_eq!(predictions.estimate(id), Some(row.estimate), "{id}");
        assert!(
            row.estimate.predicted.is_some_and(|value| value > 0.0),
            "{row:?}"
        );
    }
}

#[test]
fn memory_has_faults_by_what_they_are_made_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("memory.json");
    let name = json.to_str().expect("a name");
    let said = measure(&["--quick", "--only", "memory", "--json", name]);
    let record = read(&json);
    predicted_before(
        &record,
        &[
            "fault_unzeroed",
            "fault_populated",
            "fault_stride_64k_order",
            "fault_stride_1024k_random",
        ],
    );
    let table = text(&said.stdout);
    match ids(&record).contains(&"bandwidth_two_read_simd") {
        true => predicted_before(&record, &["bandwidth_two_read_simd"]),
        false => assert!(
            table.contains("missing: bandwidth_two_read_simd: "),
            "{table}"
        ),
    }
    // Two lines: in order and at random. Each touch has a point.
    assert_eq!(points(&record, "fault_over_stride").len(), 2);
    for curve in ["fault_each_touch", "fault_each_touch_random"] {
        assert_eq!(points(&record, curve).iter().max(), Some(&100), "{curve}");
    }
}

#[test]
fn a_process_started_for_its_calls_prints_each_threads() {
    let said = measure(&["--null-calls", "--quick"]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let calls: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let figures = calls["getppid_ns"].as_array().expect("a list");
    assert_eq!(figures.len(), 7);
    assert!(
        figures
            .iter()
            .all(|ns| ns.as_f64().is_some_and(|ns| ns > 0.0))
    );
}

#[test]
fn every_row_has_all_that_the_papers_table_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("cpu.json");
    let said = measure(&[
        "--quick",
        "--only",
        "cpu",
        "--json",
        json.to_str().expect("a name"),
    ]);
    assert!(
        said.status.code().is_some_and(|code| code <= 1),
        "{}",
        text(&said.stderr)
    );
    let record = read(&json);
    let found = ids(&record);
    for id in [
        "clock_read",
        "loop",
        "call_0",
        "call_7",
        "getpid_cached",
        "getppid",
        "time_vdso",
        "fork",
        "vfork",
        "spawn_exec",
        "thread",
        "switch_process_pipe",
        "switch_thread_futex",
        "add_plain",
        "load_unrolled",
        "loop_flat_from",
        "fork_page",
        "exit_waited",
        "exit_unwaited",
    ] {
        assert!(found.contains(&id), "{id} is not in {found:?}");
    }
    predicted_before(
        &record,
        &["load_plain", "loop_flat_from", "fork_page", "exit_unwaited"],
    );
    assert_eq!(points(&record, "loop_over_turns"), [14, 14]);
    assert_eq!(points(&record, "fork_over_memory")[0], 4);
    for row in rows(&record) {
        let (low, high) = row.measured.interval;
        assert!(
            low <= row.measured.median && row.measured.median <= high,
            "{row:?}"
        );
        assert_eq!(row.measured.rounds.len(), 5, "{row:?}");
        assert!(
            row.explanation.ends_with('.') && row.explanation.len() > 20,
            "{row:?}"
        );
        assert!(row.void.is_none() && row.measured.median < 1e12, "{row:?}");
    }
    // The file alone gives the same table.
    let again = measure(&["--from", json.to_str().expect("a name")]);
    assert_eq!(text(&again.stdout), text(&said.stdout));
}

#[test]
fn several_processes_are_rounds_of_one_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let name = |name: &str| file(name).to_str().expect("a name").to_owned();
    let whole = name("hours.json");
    let said = measure(&["--quick", "--only", "cpu", "--times", "2", "--json", &whole]);
    assert!(
        said.status.code().is_some_and(|code| code <= 1),
        "{}",
        text(&said.stderr)
    );
    let record = read(&file("hours.json"));
    for row in rows(&record) {
        assert_eq!(row.measured.rounds.len(), 2, "{row:?}");
        // Of each process the medians of its rounds.
        assert_eq!(row.measured.rounds[0].len(), 5, "{row:?}");
    }
    assert!(text(&said.stdout).contains("2 runs, each by a process of its own"));
    // Each has a record of its own, and these make the same.
    let (first, second) = (name("hours-1.json"), name("hours-2.json"));
    let again = name("again.json");
    let joined = measure(&["--join", &first, &second, "--json", &again]);
    assert!(
        joined.status.code().is_some_and(|code| code <= 1),
        "{}",
        text(&joined.stderr)
    );
    assert_eq!(read(&file("again.json")).runs, record.runs);
    // One that is of something else is refused, with what to do instead.
    let mut other = read(&file("hours-2.json"));
    other.settings.quick = false;
    other.write(&file("other.json")).expect("it is written");
    let refused = measure(&["--join", &first, &name("other.json")]);
    assert_eq!(refused.status.code(), Some(2));
    let why = text(&refused.stderr);
    assert!(
        why.contains("onrush-lab compare tells what changed"),
        "{why}"
    );
}

#[test]
fn nothing_written_is_no_success_and_the_reason_is_named() {
    let said = measure(&["--quick", "--only", "file", "--dir", "/proc"]);
    assert_eq!(said.status.code(), Some(2));
    let why = text(&said.stderr);
    assert!(why.contains("nothing could be measured"), "{why}");
    let table = text(&said.stdout);
    for id in ["read_time_over_file", "contention", "file_cache"] {
        assert!(table.contains(&format!("missing: {id}: /proc")), "{table}");
    }
    assert!(
        table.contains("name another directory with --dir"),
        "{table}"
    );
}

#[test]
fn one_processor_and_no_counter_are_said() {
    let mut command = Command::new("taskset");
    command.args([
        "-c",
        "0",
        ONRUSH_LAB,
        "measure",
        "--quick",
        "--only",
        "file",
        "--dir",
        "/proc",
        "--system-clock",
    ]);
    let table = text(&command.output().expect("util-linux").stdout);
    assert!(
        table.contains("warning: there is one processor only"),
        "{table}"
    );
    assert!(
        table.contains("time is told by CLOCK_MONOTONIC_RAW"),
        "{table}"
    );
}

#[test]
fn wrong_options_end_with_2_before_anything_is_measured() {
    for (arguments, said) in [
        (&["--only", "disk"][..], "cpu, memory, network, file"),
        (&["--json", "/no/such/file"], "--json"),
        (&["--from", "/no/such/file"], "/no/such/file"),
        (&["--from", "x", "--quick"], "--from"),
        (&["--peer", "nowhere"], "--peer"),
        (&["--peer", "127.0.0.1:0", "--quick"], "--peer"),
    ] {
        let output = measure(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(said),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_full_disk_is_named() {
    require_root!();
    let script = format!(
        "mount -t tmpfs -o size=1m none /mnt && exec {ONRUSH_LAB} measure --quick --only file \
         --dir /mnt"
    );
    let mut command = Command::new("unshare");
    let output = command
        .args(["--mount", "sh", "-c", &script])
        .output()
        .expect("util-linux");
    let table = text(&output.stdout);
    assert!(
        table.contains("No space left on device"),
        "{table}{}",
        text(&output.stderr)
    );
    assert!(table.contains("--dir"), "{table}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_report_that_does_not_fit_its_disk_is_no_success() {
    let from = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/results/measure/quick.json"
    );
    let said = measure(&["--from", from, "--html", "/dev/full"]);
    assert_eq!(said.status.code(), Some(2));
    let why = text(&said.stderr);
    assert!(
        why.contains("/dev/full") && why.contains("the room on that disk"),
        "{why}"
    );
}

#[test]
fn loopback_that_is_down_is_named_and_keeps_nobody_waiting() {
    require_root!();
    let mut command = Command::new("unshare");
    command.args([
        "--net", ONRUSH_LAB, "measure", "--quick", "--only", "network",
    ]);
    let output = command.output().expect("util-linux");
    let table = text(&output.stdout);
    let hint = "missing: rtt_tcp_loopback: Network is unreachable (os error 101); loopback is \
     down: ip link set lo up";
    assert!(table.contains(hint), "{table}{}", text(&output.stderr));
}

/// Root of a user namespace may make network namespaces; but who leaves the one it is in cannot
/// come back.
#[test]
fn who_cannot_come_back_from_a_namespace_does_without() {
    require_root!();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", ONRUSH_LAB]);
    command.args(["measure", "--quick", "--only", "network"]);
    let output = command.output().expect("util-linux");
    let table = text(&output.stdout);
    assert!(
        table.contains("missing: veth: ") && table.contains("unshare -Urn"),
        "{table}{}",
        text(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_peer_is_measured_to_and_ipv6_is_missed_where_there_is_none() {
    require_root!();
    let netns = Netns::new().expect("a namespace");
    let off = ["-w", "net.ipv6.conf.all.disable_ipv6=1"];
    netns.tool("sysctl", off).expect("procps");
    let mut peer = netns.command(ONRUSH_LAB);
    let peer = Process::start(peer.args(["measure", "--peer", "127.0.0.1:0"])).expect("it starts");
    let line = peer
        .wait_for_line("listening at ", LONG)
        .expect("it listens");
    let address = line
        .split("listening at ")
        .nth(1)
        .expect("an address")
        .trim();
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("network.json");
    let mut command = netns.command(ONRUSH_LAB);
    command.args([
        "measure", "--quick", "--only", "network", "--remote", address, "--json",
    ]);
    let output = command.arg(&json).output().expect("it runs");
    let record = read(&json);
    let found = ids(&record);
    for id in [
        "rtt_icmp_loopback",
        "rtt_tcp_remote",
        "rtt_udp_remote",
        "tcp_setup_remote",
        "tcp_bandwidth_remote",
        "remote_read_random_remote",
        "rtt_tcp_veth",
        "remote_read_sequential_http",
        "rtt_single_icmp_loopback",
        "rtt_single_udp_remote",
        "tcp_first_remote",
        "tcp_warm_veth",
        "tcp_teardown_unwaited_loopback",
    ] {
        assert!(
            found.contains(&id),
            "{id} is not in {found:?}: {}",
            text(&output.stderr)
        );
    }
    let table = text(&output.stdout);
    assert!(table.contains("missing: loopback6: "), "{table}");
    let in_a_line = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        in_a_line.contains("with a standard deviation of "),
        "{table}"
    );
    let told = ["rtt_tcp_apart", "rtt_single_tcp_apart", "tcp_first_apart"];
    match onrush_sys::thread::allowed_cores().len() {
        1 => assert!(table.contains("missing: apart: "), "{table}"),
        _ => predicted_before(&record, &told),
    }
    assert!(
        !found.contains(&"rtt_icmp_apart"),
        "the asker's processor answers"
    );
    assert!(
        points(&record, "slow_start")
            .iter()
            .all(|count| *count >= 6)
    );
}

#[test]
fn an_ordinary_user_gets_what_there_is_and_the_rest_by_name() {
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        ONRUSH_LAB,
        "measure",
        "--quick",
        "--only",
        "network,file",
    ]);
    if !Netns::is_permitted() {
        command = Command::new(ONRUSH_LAB);
        command.args(["measure", "--quick", "--only", "network,file"]);
    }
    let output = command.output().expect("util-linux");
    if text(&output.stderr).contains("Permission denied") && output.stdout.is_empty() {
        skip::record("another user may not run the program where it was built");
        return;
    }
    let table = text(&output.stdout);
    assert!(
        table.contains("Round trip, TCP, 56 bytes, loopback "),
        "{table}{}",
        text(&output.stderr)
    );
    assert!(table.contains("missing: veth: "), "{table}");
    assert!(table.contains("missing: file_cache: "), "{table}");
}
