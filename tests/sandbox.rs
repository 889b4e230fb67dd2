//! A server that has given up its privileges does all that it did before, and leaves no keys
//! behind.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use onrush_testkit::process::{Process, Signal};
use onrush_testkit::testbed::{Mode, SND_IPV4};
use onrush_testkit::{http_client, require_programs, require_root, skip};
use rustix::process::{Pid, kill_process};

use common::{DEMO, LONG, ONRUSH, Site, clip, watch};

mod common;

/// What /proc says of all threads of a process.
fn of_threads(id: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let status = |folder: &Path| fs::read_to_string(folder.join("status"));
    let all = threads.filter_map(|it| status(&it.unwrap().path()).ok());
    all.collect()
}

fn value<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {status}"))
        .trim()
}

// SPECIFICATION.md: 64
#[test]
fn a_server_serves_in_its_sandbox_with_all_threads() {
    require_root!();
    require_programs!("curl");
    let clip = clip(8.0);
    let ts: Arc<[u8]> = Arc::from(&*clip);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let at_exit = folder.path().join("status.json");
    let http = SocketAddr::from((SND_IPV4, 8080));
    let arguments = [
        "--sandbox=require".to_owned(),
        format!("--http={http}"),
        "--ftp=10.77.0.1:2121".to_owned(),
        "--tls=self-signed".to_owned(),
        format!("--access-log={}", log.display()),
        format!("--status-at-exit={}", at_exit.display()),
        "--cache=16MiB".to_owned(),
    ];
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let site = Site::with_clip(&clip, Mode::Uso, &arguments);
    let line = site.server.wait_for_line("sandbox    ", LONG).unwrap();
    for part in [
        "capabilities: ",
        "core dumps: none",
        "files: its own",
        "(seccomp)",
    ] {
        assert!(line.contains(part), "{line}");
    }
    watch(&site.testbed, "clip.ts", &ts, None);
    watch(&site.testbed, "clip.ts", &ts, Some(4.0));
    let connect = || site.testbed.rcv.run(|| http_client::Client::connect(http));
    assert!(connect().unwrap().get("/clip.ts").unwrap() == clip);
    let playlist = connect().unwrap().get("/clip.ts/hls/index.m3u8");
    assert!(playlist.unwrap().starts_with(b"#EXTM3U"));
    for scheme in ["ftp://10.77.0.1:2121", "https://10.77.0.1:8443"] {
        let mut curl = site.testbed.rcv.command("curl");
        let output = curl.args(["-sSk", "--max-time", "60"]);
        let output = output.arg(format!("{scheme}/clip.ts")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.stdout == clip, "{scheme}: {said}");
    }
    // Those of engines, disks, downloads and control.
    let threads = of_threads(site.server.id());
    assert!(threads.len() > 4, "{} threads", threads.len());
    for status in &threads {
        assert_eq!(value(status, "NoNewPrivs:"), "1", "{status}");
        assert_eq!(value(status, "Seccomp:"), "2", "{status}");
        // CAP_DAC_READ_SEARCH, NET_ADMIN, IPC_LOCK, PERFMON and BPF.
        let kept = u64::from_str_radix(value(status, "CapEff:"), 16).unwrap();
        assert_eq!(
            kept & !(1 << 2 | 1 << 12 | 1 << 14 | 1 << 38 | 1 << 39),
            0,
            "{status}"
        );
        assert_eq!(
            value(status, "CapBnd:"),
            value(status, "CapPrm:"),
            "{status}"
        );
    }
    let said = site.stop();
    assert!(!said.contains("was refused (EPERM)"), "{said}");
    assert!(fs::read_to_string(&log).unwrap().contains("GET /clip.ts"));
    assert!(fs::read_to_string(&at_exit).unwrap().contains("sessions"));
}

/// Ends a server as a crash does; whether the kernel wrote a core dump.
fn leaves_core(how: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(DEMO, folder.path().join("demo.ts")).unwrap();
    let mut command = Command::new("prlimit");
    command.args(["--core=unlimited:unlimited", ONRUSH, "serve"]);
    command.arg(folder.path()).current_dir(folder.path());
    command.args([how, "--state=off", "--rtsp=127.0.0.1:0", "--cache=16MiB"]);
    command.args(["--tls=self-signed", "--rtsps=127.0.0.1:0"]);
    let mut server = Process::start(&mut command).unwrap();
    let ready = server.wait_for_line("stopping", LONG);
    assert!(ready.is_some(), "{}", server.log_tail());
    server.signal(Signal::ABORT).unwrap();
    let status = server.wait(LONG).unwrap();
    assert_eq!(status.signal(), Some(6), "{status}");
    status.core_dumped()
}

// SPECIFICATION.md: 49
#[test]
fn a_server_that_crashes_leaves_no_core_file() {
    require_root!();
    assert!(!leaves_core("--sandbox=require"));
    // Where the kernel writes them beside the program, this one would have been.
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.trim_end().starts_with("core") && !pattern.contains('/') {
        assert!(leaves_core("--sandbox=off"));
    }
}

/// What a server writes in its state folder is made before it may not, and found by the next.
#[test]
fn a_certificate_of_its_own_is_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let films = state.join("media");
    fs::create_dir_all(&films).unwrap();
    fs::copy(DEMO, films.join("demo.ts")).unwrap();
    let shown = || {
        let mut command = Command::new(ONRUSH);
        command.arg("serve").arg(&films).current_dir(folder.path());
        command.args(["--sandbox=require", "--rtsp=127.0.0.1:0", "--cache=8MiB"]);
        command.args(["--tls=self-signed", "--rtsps=127.0.0.1:0"]);
        command.arg(format!("--state={}", state.display()));
        let mut server = Process::start(&mut command).unwrap();
        let line = server.wait_for_line("TLS        self-signed", LONG);
        let line = line.unwrap_or_else(|| panic!("{}", server.log_tail()));
        assert!(server.interrupt(LONG).unwrap().success());
        line
    };
    assert_eq!(shown(), shown());
    assert!(state.join("indexes/lock").exists());
}

/// A server whose file of users moves where it may not read: a reload is refused, a successor is
/// none that has given anything up yet.
#[test]
fn files_elsewhere_need_a_successor() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["films", "etc", "here", "there"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    fs::copy(DEMO, folder.path().join("films/demo.ts")).unwrap();
    for name in ["here", "there"] {
        fs::write(folder.path().join(name).join("users"), "realm films\n").unwrap();
    }
    let file = folder.path().join("etc/onrush.toml");
    let write = |users: &str| {
        let films = folder.path().join("films");
        let users = folder.path().join(users).join("users");
        let text = format!(
            "[library]\nfolder = {films:?}\nstate = \"off\"\n[server]\ncache = \"8MiB\"\n\
             sandbox = \"require\"\n[listen]\nrtsp = \"127.0.0.1:0\"\n[users]\nfile = {users:?}\n"
        );
        fs::write(&file, text).unwrap();
    };
    write("here");
    let mut command = Command::new(ONRUSH);
    command.args(["serve", "--config"]).arg(&file);
    let server = Process::start(&mut command).unwrap();
    assert!(
        server.wait_for_line("stopping", LONG).is_some(),
        "{}",
        server.log_tail()
    );
    // What is where it was is read again.
    server.signal(Signal::HUP).unwrap();
    let line = server.wait_for_line("reload: ", LONG).unwrap();
    assert!(line.contains("as before"), "{line}");
    write("there");
    server.signal(Signal::HUP).unwrap();
    let lines = server.wait_for_lines("reload: ", 2, LONG);
    assert!(lines[1].contains("nothing is changed"), "{lines:?}");
    assert!(lines[1].contains("SIGUSR2 starts a successor"), "{lines:?}");
    server.signal(Signal::USR2).unwrap();
    let line = server.wait_for_line("serves from now on", LONG);
    let line = line.unwrap_or_else(|| panic!("{}", server.log_tail()));
    let number = line
        .split("process ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let successor = Pid::from_raw(number.parse().unwrap()).unwrap();
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap();
    assert_eq!(
        value(&status, "Seccomp_filters:"),
        "1",
        "its own, and no other's: {status}"
    );
    kill_process(successor, Signal::INT).unwrap();
}

/// A folder that takes the media folder's place lies beneath no rule that the server has.
#[test]
fn a_media_folder_in_its_place_needs_a_successor() {
    let folder = tempfile::tempdir().unwrap();
    let films = folder.path().join("films");
    fs::create_dir(&films).unwrap();
    fs::copy(DEMO, films.join("demo.ts")).unwrap();
    let mut command = Command::new(ONRUSH);
    command.arg("serve").arg(&films).current_dir(folder.path());
    command.args(["--sandbox=require", "--state=off", "--rtsp=127.0.0.1:0"]);
    command.args(["--http=off", "--metrics=off", "--cache=8MiB"]);
    let server = Process::start(&mut command).unwrap();
    let ready = server.wait_for_line("stopping", LONG);
    assert!(ready.is_some(), "{}", server.log_tail());
    fs::rename(&films, folder.path().join("before")).unwrap();
    fs::create_dir(&films).unwrap();
    let line = server.wait_for_line("another is there by now", LONG);
    let line = line.unwrap_or_else(|| panic!("{}", server.log_tail()));
    assert!(line.contains("SIGUSR2"), "{line}");
}

/// As with `x-systemd.automount`: the rule is for what is mounted in the folder's place once it is
/// asked for, not for the folder beneath. So the kernel mounts tracefs in debugfs.
#[test]
fn a_media_folder_may_be_mounted_when_it_is_asked_for() {
    require_root!();
    require_programs!("unshare", "mount");
    let folder = tempfile::tempdir().unwrap();
    // A kernel that knows it may refuse it all the same: one that is locked down, or a container.
    let mut mount = Command::new("unshare");
    mount.args(["--mount", "mount", "-t", "debugfs", "debugfs"]);
    let mounted = mount.arg(folder.path()).output().unwrap();
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    if !mounted.status.success() || !known.contains("tracefs") {
        skip::record("needs debugfs and tracefs");
        return;
    }
    let films = folder.path().join("tracing");
    // In a namespace of its own, so that nobody has asked for it before.
    let mount = "mount -t debugfs debugfs \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", mount])
        .arg(folder.path());
    command.args([ONRUSH, "serve"]).arg(&films);
    command.args(["--sandbox=require", "--state=off", "--rtsp=127.0.0.1:0"]);
    command.args(["--http=off", "--metrics=off", "--cache=8MiB"]);
    let mut server = Process::start(&mut command).unwrap();
    let ready = server.wait_for_line("stopping", LONG);
    assert!(ready.is_some(), "{}", server.log_tail());
    let mounts = fs::read_to_string(format!("/proc/{}/mounts", server.id())).unwrap();
    let mounted = format!(" {} tracefs ", films.display());
    assert!(mounts.contains(&mounted), "{mounts}");
    assert!(server.interrupt(LONG).unwrap().success());
}
