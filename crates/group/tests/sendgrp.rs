//! `SO_SETSENDGRP` for programs that were not written for this library: in Python, and in C.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};
use aya::programs::{SchedClassifier, TcAttachType};
use onrush_group::{Agent, AgentError, AgentOptions};
use onrush_testkit::testbed::{
    self, RCV_DEVICE, RCV_IPV4, RCV_IPV6, RCV_MAC, SND_DEVICE, SND_IPV4, SND_IPV6, Testbed,
};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);

/// A control group of version 2 of the test's own, and a testbed.
struct Rig {
    cgroup: PathBuf,
    mounted: TempDir,
    testbed: Testbed,
}

impl Rig {
    fn new() -> Self {
        let mounted = tempfile::tempdir().unwrap();
        tool("mount", &["-t", "cgroup2", "none"], mounted.path());
        // Every mount shows the same hierarchy.
        let name = mounted.path().file_name().unwrap().to_string_lossy();
        let cgroup = mounted.path().join(format!("sendgrp{name}"));
        std::fs::create_dir(&cgroup).unwrap();
        Self {
            cgroup,
            mounted,
            testbed: Testbed::new(testbed::Options::default()).unwrap(),
        }
    }

    fn agent(&self, options: &AgentOptions) -> Agent {
        let start = || Agent::start(&self.cgroup, options).unwrap();
        self.testbed.snd.run(start)
    }

    /// A program in the control group and in the sender's namespace.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        self.command_in(&self.cgroup, program)
    }

    fn command_in(&self, cgroup: &Path, program: impl AsRef<Path>) -> Command {
        let mut command = self.testbed.snd.command("/bin/sh");
        let enter = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
        command.args(["-c", enter]).arg(cgroup);
        command.arg(program.as_ref());
        command
    }

    fn python(&self, script: &str, to: &[SocketAddr]) -> Output {
        self.script(script, to).output().unwrap()
    }

    fn script(&self, script: &str, to: &[SocketAddr]) -> Command {
        self.script_in(&self.cgroup, script, to)
    }

    fn script_in(&self, cgroup: &Path, script: &str, to: &[SocketAddr]) -> Command {
        let ports = to.iter().map(|to| to.port().to_string());
        let mut command = self.command_in(cgroup, "python3");
        command.args(["-c", &[PRELUDE, script].concat()]);
        command.arg(to[0].ip().to_string()).args(ports);
        command
    }

    /// A script that runs, and is spoken with line by line.
    fn talk(&self, script: &str, to: &[SocketAddr]) -> Talk {
        let mut command = self.script(script, to);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        Talk {
            input: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    fn receivers(&self, ip: IpAddr, count: usize) -> (Vec<UdpSocket>, Vec<SocketAddr>) {
        let bind = || {
            let give_up = Instant::now() + LONG;
            loop {
                match UdpSocket::bind((ip, 0)) {
                    Ok(socket) => break socket,
                    // An IPv6 address is tentative for a second or two.
                    Err(error) => assert!(Instant::now() < give_up, "{ip}: {error}"),
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let receivers: Vec<_> = (0..count).map(|_| self.testbed.rcv.run(bind)).collect();
        for receiver in &receivers {
            receiver.set_read_timeout(Some(LONG)).unwrap();
        }
        let addresses = receivers.iter().map(|it| it.local_addr().unwrap());
        let addresses = addresses.collect();
        (receivers, addresses)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Its last process may be a moment on its way out.
        let give_up = Instant::now() + LONG;
        while self.cgroup.exists() && std::fs::remove_dir(&self.cgroup).is_err() {
            if Instant::now() > give_up {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // A child that another test is making may have a file of it open for a moment, too.
        while !umount(self.mounted.path()) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn umount(path: &Path) -> bool {
    let mut command = Command::new("umount");
    command.arg(path).status().unwrap().success()
}

fn tool(name: &str, arguments: &[&str], path: &Path) {
    let done = Command::new(name).args(arguments).arg(path).status();
    assert!(done.unwrap().success(), "{name} {}", path.display());
}

struct Talk {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Talk {
    fn hear(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    /// What it answers.
    fn say(&mut self, line: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        self.hear()
    }

    /// Waits until it has heard all and ends.
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Sends each line that it hears to all. What it says then comes behind.
const SENDS: &str = r#"
s.connect((ip, ports[0]))
s.setsockopt(socket.SOL_SOCKET, SET, members(ports))
for line in sys.stdin:
    s.send(line.encode())
"#;

/// A script's own means: `pack(port, address)`, the constants, and who is named on its command
/// line.
const PRELUDE: &str = r#"
import errno, os, socket, struct, sys, time
SET, ADD, DEL, STAGE, INFO = 0x4f01, 0x4f02, 0x4f03, 0x4f04, 0x4f05
ip, ports = sys.argv[1], [int(port) for port in sys.argv[2:]]
def pack(port, ip=ip):
    if ":" in ip:
        family, port = struct.pack("=H", socket.AF_INET6), struct.pack("!HI", port, 0)
        return family + port + socket.inet_pton(socket.AF_INET6, ip) + bytes(4)
    family, port = struct.pack("=H", socket.AF_INET), struct.pack("!H", port)
    return family + port + socket.inet_aton(ip) + bytes(8)
def members(ports):
    return b"".join(pack(port) for port in ports)
def refused(s, option, value):
    try:
        s.setsockopt(socket.SOL_SOCKET, option, value)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "taken"
s = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM)
"#;

/// An agent that does its work.
struct Working {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), AgentError>>>,
}

impl Working {
    fn new(mut agent: Agent) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                agent.poll(Duration::from_millis(5))?;
            }
            Ok(())
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

/// Programs at the sender's device.
fn attached(testbed: &Testbed) -> usize {
    let query = || SchedClassifier::query_tcx(SND_DEVICE, TcAttachType::Egress);
    testbed.snd.run(query).unwrap().1.len()
}

fn comes(mut is_so: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + LONG;
    while !is_so() {
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[track_caller]
fn told(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    said
}

fn expect(receivers: &[UdpSocket], datagrams: &[&[u8]]) {
    let mut bytes = [0; 2000];
    for (i, receiver) in receivers.iter().enumerate() {
        for datagram in datagrams {
            let length = receiver.recv(&mut bytes);
            let length = length.unwrap_or_else(|error| panic!("receiver {i}: {error}"));
            assert!(bytes[..length] == **datagram, "receiver {i}");
        }
    }
}

fn expect_nothing(receivers: &[UdpSocket]) {
    for receiver in receivers {
        receiver.set_nonblocking(true).unwrap();
        assert!(receiver.recv(&mut [0; 1]).is_err(), "nothing more comes");
        receiver.set_nonblocking(false).unwrap();
    }
}

#[test]
fn a_python_program_sends_to_480_by_one_send() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    for (ip, from) in [
        (IpAddr::from(RCV_IPV4), IpAddr::from(SND_IPV4)),
        (RCV_IPV6.into(), SND_IPV6.into()),
    ] {
        let _agent = rig.agent(&AgentOptions::default());
        let (receivers, addresses) = rig.receivers(ip, 480);
        let script = format!(
            r#"
# It has no capability.
os.setgid(65534)
os.setuid(65534)
s.bind(("{from}", 0))
for at in range(0, 400, 100):
    s.setsockopt(socket.SOL_SOCKET, STAGE, members(ports[at:at + 100]))
s.setsockopt(socket.SOL_SOCKET, SET, members(ports[400:]))
s.connect((ip, ports[0]))
s.send(b"state of the game")
s.sendmsg([b"in ", b"pieces"])
# UDP_SEGMENT: two datagrams by one call.
s.setsockopt(socket.IPPROTO_UDP, 103, 1000)
s.send(b"x" * 1000 + b"y" * 10)
print(*struct.unpack("=IIQQQQ", s.getsockopt(socket.SOL_SOCKET, INFO, 40)))
"#
        );
        let output = rig.python(&script, &addresses);
        assert_eq!(told(&output).trim(), "480 1024 3 1920 0 0", "{ip}");
        let (x, y) = ([b'x'; 1000], [b'y'; 10]);
        expect(&receivers, &[b"state of the game", b"in pieces", &x, &y]);
        expect_nothing(&receivers);
    }
}

#[test]
fn a_c_program_changes_its_group_and_is_told_why_not() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("members");
    let [include, source] =
        ["include", "examples/sendgrp.c"].map(|it| Path::new(env!("CARGO_MANIFEST_DIR")).join(it));
    let mut compiler = Command::new("gcc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]);
    compiler.arg(&program).arg("-I").arg(include).arg(source);
    assert!(compiler.status().unwrap().success());
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 3);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/sendgrp.py");
    for example in [program, script] {
        let mut command = rig.command(&example);
        command.arg(RCV_IPV4.to_string());
        command.args(addresses.iter().map(|to| to.port().to_string()));
        let output = command.output().unwrap();
        assert_eq!(told(&output), "3 members, 3 packets, 0 refused\n");
        expect(&receivers, &[b"one send, many receivers"]);
    }

    let script = r#"
s.connect((ip, ports[0]))
s.setsockopt(socket.SOL_SOCKET, SET, members(ports[:2]))
s.send(b"two")
s.setsockopt(socket.SOL_SOCKET, ADD, members(ports[2:]))
s.send(b"three")
s.setsockopt(socket.SOL_SOCKET, DEL, members(ports[:1]))
s.send(b"not the first, to whom it is connected")
for option, value in [
    (ADD, members(ports[2:])),
    (DEL, members(ports[:1])),
    (SET, members([0])),
    (SET, pack(ports[0], "239.1.2.3")),
    (SET, pack(ports[0], "255.255.255.255")),
    (SET, pack(ports[0], "0.0.0.0")),
    (SET, pack(ports[0], "::1")),
    (SET, members(ports[:1])[:15]),
    (SET, members(ports[:1] * 257)),
]:
    print(refused(s, option, value), end=" ")
t = socket.socket()
print(refused(t, SET, members(ports)), end=" ")
# 1024 fit, and not one more: the list in force stays.
for at in range(4):
    s.setsockopt(socket.SOL_SOCKET, STAGE, members(range(1 + at * 256, 257 + at * 256)))
print(refused(s, SET, members(ports[:1])), end=" ")
for at in range(4):
    s.setsockopt(socket.SOL_SOCKET, STAGE, members(range(1 + at * 256, 257 + at * 256)))
print(refused(s, DEL, members(ports[2:])), end=" ")
s.setsockopt(socket.SOL_SOCKET, SET, b"")
print(*struct.unpack("=II", s.getsockopt(socket.SOL_SOCKET, INFO, 40)[:8]))
s.setsockopt(socket.SOL_SOCKET, SET, b"")
s.send(b"alone again")
print(*struct.unpack("=IIQQQQ", s.getsockopt(socket.SOL_SOCKET, INFO, 40)))
"#;
    let said = told(&rig.python(script, &addresses));
    let expected = "EEXIST ENOENT EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL \
                    ENOTSUP ENOBUFS EBUSY 1024 1024\n0 1024 3 7 0 0\n";
    assert_eq!(said, expected);
    let last = b"not the first, to whom it is connected";
    expect(&receivers[..1], &[b"two", b"three", b"alone again"]);
    expect(&receivers[1..2], &[b"two", b"three", last]);
    expect(&receivers[2..], &[b"three", last]);
    expect_nothing(&receivers);
}

#[test]
fn a_control_group_has_quotas_that_closed_sockets_give_back() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let options = AgentOptions {
        groups_max: 2,
        members_max: 5,
        packets_per_second_max: 10,
        ..AgentOptions::default()
    };
    let _agent = Working::new(rig.agent(&options));
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 5);
    let script = r#"
u, v = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
s.setsockopt(socket.SOL_SOCKET, SET, members(ports[:3]))
u.setsockopt(socket.SOL_SOCKET, SET, members(ports[:2]))
print(refused(v, SET, members(ports[:1])), refused(u, ADD, members(ports[3:4])), end=" ")
# A child that closes its copy gives nothing back, the last that closes does.
if os.fork() == 0:
    os._exit(0)
os.wait()
print(refused(v, SET, members(ports[:1])), end=" ")
u.close()
print(refused(v, SET, members(ports[:1])), end=" ")
s.setsockopt(socket.SOL_SOCKET, SET, members(ports[:1]))
print(refused(v, SET, members(ports[:4])), end=" ")
# Ten packets in a second; v has four members.
v.connect((ip, ports[0]))
info = lambda: struct.unpack("=IIQQQQ", v.getsockopt(socket.SOL_SOCKET, INFO, 40))
begun = time.monotonic()
while info()[2] < 5:
    v.send(b"quota")
    if time.monotonic() - begun > 20:
        sys.exit(f"{info()}")
assert time.monotonic() - begun > 0.5, info()
assert info()[5] > 0, info()
print("later")
"#;
    let output = rig.python(script, &addresses);
    let expected = "EDQUOT EDQUOT EDQUOT taken taken later\n";
    assert_eq!(told(&output), expected);
    // The process is gone, and with it all that it had.
    let script = r#"
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(refused(s, SET, members(ports[:4])), refused(u, SET, members(ports[:1])))
"#;
    assert_eq!(told(&rig.python(script, &addresses)), "taken taken\n");
    // So it is when it is killed.
    let script = r#"
s.setsockopt(socket.SOL_SOCKET, SET, members(ports))
print("has all", flush=True)
sys.stdin.read()
"#;
    let mut victim = rig.talk(script, &addresses);
    assert_eq!(victim.hear(), "has all");
    let script = "print(refused(s, SET, members(ports)))";
    assert_eq!(told(&rig.python(script, &addresses)), "EDQUOT\n");
    victim.child.kill().unwrap();
    victim.child.wait().unwrap();
    let is_free = || told(&rig.python(script, &addresses)) == "taken\n";
    assert!(comes(is_free), "what a killed process had stays taken");
    drop(receivers);
}

/// `groups_max` counts sockets that have members.
#[test]
fn a_group_that_was_emptied_makes_room_for_another() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let options = AgentOptions {
        groups_max: 1,
        ..AgentOptions::default()
    };
    let _agent = Working::new(rig.agent(&options));
    let (_receivers, addresses) = rig.receivers(RCV_IPV4.into(), 2);
    let script = r#"
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(refused(s, SET, members(ports)), refused(u, SET, b""), refused(u, SET, members(ports)))
print(refused(s, SET, b""), refused(u, SET, members(ports)), refused(s, SET, members(ports)))
print(refused(u, DEL, members(ports)), refused(s, SET, members(ports)))
# What has none gives nothing back.
u.close()
v = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(refused(v, SET, members(ports)))
"#;
    let said = told(&rig.python(script, &addresses));
    let expected = "taken taken EDQUOT\ntaken taken EDQUOT\ntaken taken\nEDQUOT\n";
    assert_eq!(said, expected);
}

/// The two lists of a socket are 128 KiB of the kernel's memory, also those without members.
#[test]
fn sockets_without_members_have_lists_within_a_quota() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let options = AgentOptions {
        groups_max: 1,
        ..AgentOptions::default()
    };
    let _agent = Working::new(rig.agent(&options));
    let (_receivers, addresses) = rig.receivers(RCV_IPV4.into(), 2);
    let script = r#"
# SK_MEMINFO_OPTMEM of SO_MEMINFO.
kept = lambda s: struct.unpack("=9I", s.getsockopt(socket.SOL_SOCKET, 55, 36))[6]
t, u, v = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
print(refused(s, SET, b""), refused(s, STAGE, b""), refused(s, DEL, members(ports)), end=" ")
print(kept(s) < 4096)
# Two may have lists, as one may have members.
print(*[refused(it, STAGE, members(ports)) for it in (t, u, v, s)])
# A closed socket makes room.
u.close()
print(refused(v, ADD, members(ports)), kept(v) > 48 << 10, refused(s, ADD, members(ports)))
# So does one that has lost its members, or what it had staged.
time.sleep(1.1)
print(refused(t, SET, members([0])), kept(t) < 4096, refused(s, ADD, members(ports)))
print(refused(v, SET, b""), kept(v) < 4096, refused(s, ADD, members(ports)))
print(refused(t, STAGE, members(ports)), refused(v, STAGE, members(ports)))
"#;
    let said = told(&rig.python(script, &addresses));
    let expected = "taken taken ENOENT True\n\
                    taken taken EDQUOT EDQUOT\n\
                    taken True EDQUOT\n\
                    EINVAL True EDQUOT\n\
                    taken True taken\n\
                    taken EDQUOT\n";
    assert_eq!(said, expected);
}

/// There may be more control groups than are remembered. What the sockets of one that was forgotten
/// give back was not counted, and makes no room.
#[test]
fn a_forgotten_control_group_gains_nothing_by_closing() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let options = AgentOptions {
        groups_max: 1,
        members_max: 2,
        ..AgentOptions::default()
    };
    let _agent = Working::new(rig.agent(&options));
    let (_receivers, addresses) = rig.receivers(RCV_IPV4.into(), 3);
    let script = r#"
u, v, w = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
print(refused(s, SET, members(ports[:2])), flush=True)
sys.stdin.readline()
# It is counted anew from here on.
print(refused(u, SET, members(ports)), flush=True)
s.close()
print(refused(v, SET, members(ports[:2])), refused(w, SET, members(ports[:1])), flush=True)
"#;
    let mut program = rig.talk(script, &addresses);
    assert_eq!(program.hear(), "taken");
    forget(std::fs::metadata(&rig.cgroup).unwrap().ino());
    assert_eq!(program.say("forgotten"), "EDQUOT");
    assert_eq!(program.hear(), "taken EDQUOT");
    program.end();
}

/// As the kernel does with whom it has heard nothing of for longest. Other tests' agents do not
/// know that control group.
fn forget(cgroup_id: u64) {
    let maps = aya::maps::loaded_maps().flatten();
    for map in maps.filter(|map| map.name_as_str() == Some("usages")) {
        let Ok(data) = MapData::from_id(map.id()) else {
            continue;
        };
        let usages: Result<HashMap<_, u64, [u8; 48]>, _> =
            Map::from_map_data(data).unwrap().try_into();
        drop(usages.unwrap().remove(&cgroup_id));
    }
}

/// A socket of IPv6 sends to an IPv4 address, too: to nobody else then, for its members' addresses
/// are none of IPv4.
#[test]
fn a_datagram_of_the_other_family_goes_where_it_says() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let (receivers, addresses) = rig.receivers(RCV_IPV6.into(), 2);
    let (other, others) = rig.receivers(RCV_IPV4.into(), 1);
    let port = others[0].port();
    let script = format!(
        r#"
print(refused(s, SET, pack(ports[0], "fe80::1")), refused(s, SET, members(ports)))
s.sendto(b"for one", ("::ffff:{RCV_IPV4}", {port}))
s.sendto(b"for all", (ip, ports[0]))
s.sendto(b"for one again", ("::ffff:{RCV_IPV4}", {port}))
print(*struct.unpack("=IIQQQQ", s.getsockopt(socket.SOL_SOCKET, INFO, 40)))
"#
    );
    let said = told(&rig.python(&script, &addresses));
    // A zone is not read, so an address that needs one is none.
    assert_eq!(said, "EINVAL taken\n2 1024 1 2 0 0\n");
    expect(&other, &[b"for one", b"for one again"]);
    expect(&receivers, &[b"for all"]);
    expect_nothing(&receivers);
    expect_nothing(&other);
}

#[test]
fn a_member_is_asked_for_its_consent() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let options = AgentOptions {
        needs_consent: true,
        ..AgentOptions::default()
    };
    let _agent = Working::new(rig.agent(&options));
    for (ip, from) in [
        (IpAddr::from(RCV_IPV4), IpAddr::from(SND_IPV4)),
        (RCV_IPV6.into(), SND_IPV6.into()),
    ] {
        let (receivers, addresses) = rig.receivers(ip, 2);
        let script = format!(
            r#"
s.bind(("{from}", 0))
print(refused(s, SET, members(ports)), s.getsockname()[1], flush=True)
s.recv(100)
print(refused(s, ADD, members(ports[1:])), refused(s, SET, members(ports[:1])), flush=True)
s.connect((ip, ports[0]))
s.send(b"agreed")
"#
        );
        let mut program = rig.talk(&script, &addresses);
        let line = program.hear();
        let port = line.strip_prefix("EACCES ").expect(&line).parse().unwrap();
        receivers[0]
            .send_to(b"me", SocketAddr::new(from, port))
            .unwrap();
        assert_eq!(program.hear(), "EACCES taken", "{ip}");
        program.end();
        expect(&receivers[..1], &[b"agreed"]);
        expect_nothing(&receivers);
    }
}

/// What the agent tells is followed: a next hop that changes, and one that goes.
#[test]
fn next_hops_are_followed() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 2);
    let sent = r#"    print("sent", flush=True)"#;
    let mut program = rig.talk(&[SENDS, sent].concat(), &addresses);
    let mut send = |line: &str| assert_eq!(program.say(line), "sent");
    let neighbour = |act: &str, how: &str| {
        let command = format!("neigh {act} {RCV_IPV4} dev {SND_DEVICE}{how}");
        rig.testbed.snd.tool("ip", command.split(' ')).unwrap();
    };
    for round in 0..3 {
        send(&format!("round {round}"));
        expect(&receivers, &[format!("round {round}\n").as_bytes()]);
    }
    // Nobody there has that address: once the agent has heard of it, nothing arrives.
    neighbour("replace", " lladdr 02:00:00:00:00:99 nud permanent");
    receivers[1]
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut bytes = [0; 100];
    let mut is_lost = || {
        send("lost");
        receivers[1].recv(&mut bytes).is_err()
    };
    let give_up = Instant::now() + LONG;
    while !is_lost() {
        assert!(Instant::now() < give_up, "the old next hop is kept");
    }
    // It goes, and the stack asks for the right one.
    neighbour("del", "");
    let mut is_back = || {
        send("back");
        receivers[1].recv(&mut bytes).is_ok()
    };
    while !is_back() {
        assert!(Instant::now() < give_up, "the next hop is not asked for");
    }
    program.end();
}

/// For each line 20 sends, which name the first member until the socket is connected to it; says
/// how many failed. What the receiver's machine says of a closed port comes meanwhile.
const TICKS: &str = r#"
s.setsockopt(socket.SOL_SOCKET, SET, members(ports))
send = lambda: s.sendto(b"tick", (ip, ports[0]))
for line in sys.stdin:
    if line == "connected\n":
        s.connect((ip, ports[0]))
        send = lambda: s.send(b"tick")
    failed = 0
    for _ in range(20):
        try:
            send()
        except ConnectionRefusedError:
            failed += 1
        time.sleep(0.005)
    print(failed, flush=True)
"#;

/// A socket that is connected to a member is told when that member's program has ended, and one of
/// its sends goes to nobody. One that is not connected goes on, as the examples do.
#[test]
fn a_member_that_ended_stops_nobody() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    // Of each datagram to a closed port the sender is told, not of one in a second.
    let each = ["-w", "net.ipv4.icmp_ratelimit=0"];
    rig.testbed.rcv.tool("sysctl", each).unwrap();
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let (mut receivers, addresses) = rig.receivers(RCV_IPV4.into(), 3);
    let mut program = rig.talk(TICKS, &addresses);
    let ticks = [&b"tick"[..]; 20];
    assert_eq!(program.say("all are there"), "0");
    expect(&receivers, &ticks);
    drop(receivers.remove(0));
    assert_eq!(program.say("the first has ended"), "0");
    expect(&receivers, &ticks);
    let failed: usize = program.say("connected").parse().unwrap();
    assert!((1..20).contains(&failed), "{failed} of 20");
    expect(&receivers, &ticks[failed..]);
    expect_nothing(&receivers);
    program.end();
}

/// Other addresses with each call, faster than the agent finds their next hops.
const ASKS: &str = r#"
value = bytearray(pack(9, "10.0.0.0") * 256)
def ask():
    for at in 5, 6, 7:
        value[at::16] = os.urandom(256)
    s.setsockopt(socket.SOL_SOCKET, SET, value)
ask()
print("asks", flush=True)
while True:
    ask()
"#;

/// A program that asks without end is not all that the agent has to do.
#[test]
fn a_poll_ends_whatever_is_asked() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let mut agent = rig.agent(&AgentOptions::default());
    let (_receivers, addresses) = rig.receivers(RCV_IPV4.into(), 1);
    let mut program = rig.talk(ASKS, &addresses);
    assert_eq!(program.hear(), "asks");
    let (done, is_done) = std::sync::mpsc::channel();
    let polling = std::thread::spawn(move || {
        for _ in 0..10 {
            agent.poll(Duration::from_millis(5)).unwrap();
        }
        done.send(()).unwrap();
    });
    let polled = is_done.recv_timeout(LONG);
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    polling.join().unwrap();
    assert!(
        polled.is_ok(),
        "a poll goes on for as long as a program asks"
    );
}

const W0_MAC: &str = "02:00:00:00:00:77";

/// Another way from the sender to the receivers, and who is at its end.
fn second_device(rig: &Rig, mtu_bytes: u32) -> (UdpSocket, SocketAddr) {
    let (snd, rcv) = (&rig.testbed.snd, &rig.testbed.rcv);
    let peer = rcv.path().display().to_string();
    let mtu = mtu_bytes.to_string();
    // Else each device answers for the other's address, too.
    let alone = ["-w", "net.ipv4.conf.all.arp_ignore=1"];
    rcv.tool("sysctl", alone).unwrap();
    let words = |command: &str| command.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let made = format!("link add w0 mtu {mtu} type veth peer name w1 mtu {mtu} netns {peer}");
    snd.tool("ip", words(&made)).unwrap();
    snd.tool("ip", words(&format!("link set w0 address {W0_MAC}")))
        .unwrap();
    for (netns, device, ip) in [(rcv, "w1", "10.78.0.2/24"), (snd, "w0", "10.78.0.1/24")] {
        netns
            .tool("ip", words(&format!("addr add {ip} dev {device}")))
            .unwrap();
        netns
            .tool("ip", words(&format!("link set {device} up")))
            .unwrap();
    }
    let bind = || UdpSocket::bind("10.78.0.2:0").unwrap();
    let receiver = rcv.run(bind);
    let address = receiver.local_addr().unwrap();
    (receiver, address)
}

/// What comes to the second device carries that device's own address, not the first one's.
const SOURCES: &str = r#"
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
s.bind(("w1", 0x0800))
print("listens", flush=True)
packet, (_, _, _, _, mac) = s.recvfrom(2000)
print(mac.hex(":"), socket.inet_ntoa(packet[12:16]), flush=True)
"#;

/// Hears the first packet that comes to the second device.
fn sources(rig: &Rig) -> Talk {
    let mut command = rig.testbed.rcv.command("python3");
    let pipes = command.args(["-c", SOURCES]).stdout(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let mut sources = Talk {
        lines: BufReader::new(child.stdout.take().unwrap()).lines(),
        input: None,
        child,
    };
    assert_eq!(sources.hear(), "listens");
    sources
}

/// Sends what the line says is how long to all, and says what was refused so far.
const SIZES: &str = r#"
s.connect((ip, ports[0]))
for line in sys.stdin:
    what, value = line.split()
    if what == "set":
        value = value.split(",")
        s.setsockopt(socket.SOL_SOCKET, SET, b"".join(pack(int(port), ip) for ip, port in
                                                      (it.split(":") for it in value)))
    else:
        s.send(b"x" * int(value))
    print(struct.unpack("=IIQQQQ", s.getsockopt(socket.SOL_SOCKET, INFO, 40))[4], flush=True)
"#;

#[test]
fn members_may_be_behind_several_devices() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let (second, second_address) = second_device(&rig, 1000);
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 3);
    let mut program = rig.talk(SIZES, &addresses[..1]);
    let all = [addresses[0], second_address, addresses[1], addresses[2]];
    let list = all.map(|to| to.to_string()).join(",");
    assert_eq!(program.say(&format!("set {list}")), "0");

    // Until the agent has told where the second device's is.
    second.set_nonblocking(true).unwrap();
    let (mut bytes, mut sent, give_up) = ([0; 2000], 0, Instant::now() + LONG);
    while second.recv(&mut bytes).is_err() {
        assert!(Instant::now() < give_up, "the second device is not found");
        program.say("send 10");
        sent += 1;
        // Not more than receivers have room for.
        std::thread::sleep(Duration::from_millis(5));
    }
    second.set_nonblocking(false).unwrap();
    second.set_read_timeout(Some(LONG)).unwrap();
    expect(&receivers, &vec![&[b'x'; 10][..]; sent]);

    let mut sources = sources(&rig);
    let refused: u64 = program.say("send 700").parse().unwrap();
    assert_eq!(sources.hear(), format!("{W0_MAC} {SND_IPV4}"));
    sources.end();
    for receiver in receivers.iter().chain([&second]) {
        assert_eq!(receiver.recv(&mut bytes).unwrap(), 700);
    }

    // Longer than the second device takes, and to this machine itself.
    assert_eq!(program.say("send 1200"), (refused + 1).to_string());
    for receiver in &receivers {
        assert_eq!(receiver.recv(&mut bytes).unwrap(), 1200);
    }
    let own = rig
        .testbed
        .snd
        .run(|| UdpSocket::bind((SND_IPV4, 0)))
        .unwrap();
    let list = format!("{},{}", own.local_addr().unwrap(), addresses[1]);
    program.say(&format!("set {list}"));
    let mut last = refused + 1;
    let is_counted = || {
        let now = program.say("send 20").parse().unwrap();
        std::mem::replace(&mut last, now) + 1 == now
    };
    assert!(comes(is_counted), "what stays on this machine is counted");
    program.end();
    own.set_nonblocking(true).unwrap();
    assert!(own.recv(&mut bytes).is_err());
}

/// A socket that the line names sends to all, by way of whom it names, and says what was refused.
const BOUND: &str = r#"
bound, marked = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
# SO_BINDTODEVICE, SO_MARK.
bound.setsockopt(socket.SOL_SOCKET, 25, b"v0")
marked.setsockopt(socket.SOL_SOCKET, 36, 77)
s.setsockopt(socket.SOL_SOCKET, SET, members(ports[2:]))
for it in bound, marked:
    it.setsockopt(socket.SOL_SOCKET, SET, members(ports[:2]))
sockets = dict(free=s, bound=bound, marked=marked)
for line in sys.stdin:
    name, way = line.split()
    it = sockets[name]
    it.sendto(name.encode(), (way, ports[0]))
    print(struct.unpack("=IIQQQQ", it.getsockopt(socket.SOL_SOCKET, INFO, 40))[4], flush=True)
"#;

/// The agent finds the way to the members as for a socket that is bound to nothing: by the second
/// device. That is not the way of a socket that is bound to the first, or has a mark that leads
/// there.
#[test]
fn a_bound_or_marked_socket_keeps_to_its_device() {
    onrush_testkit::require_root!();
    // Nobody's: what goes by the second device is seen there, and received by none.
    const NOBODYS_MAC: &str = "02:00:00:00:00:78";
    const NO_MEMBER: &str = "10.77.0.9";
    let rig = Rig::new();
    let _second = second_device(&rig, 1500);
    for command in [
        format!("route add {RCV_IPV4} dev w0"),
        format!("neigh add {RCV_IPV4} lladdr {NOBODYS_MAC} dev w0 nud permanent"),
        format!("route add {RCV_IPV4} dev {SND_DEVICE} table 77"),
        "rule add fwmark 77 lookup 77".to_owned(),
        format!("neigh add {NO_MEMBER} lladdr {RCV_MAC} dev {SND_DEVICE} nud permanent"),
    ] {
        rig.testbed.snd.tool("ip", command.split(' ')).unwrap();
    }
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 3);
    let mut program = rig.talk(BOUND, &addresses);
    // The agent has told of the second device when what an unbound socket sends comes there.
    let mut sources = sources(&rig);
    let is_told = || {
        program.say(&format!("free {NO_MEMBER}"));
        sources.child.try_wait().unwrap().is_some()
    };
    assert!(comes(is_told), "nothing leaves by the second device");
    assert_eq!(sources.hear(), format!("{W0_MAC} {SND_IPV4}"));
    for _ in 0..10 {
        for name in ["bound", "marked"] {
            assert_eq!(program.say(&format!("{name} {RCV_IPV4}")), "0");
            expect(&receivers[..2], &[name.as_bytes()]);
        }
    }
    // What stays on this machine is for none of them, and counted.
    assert_eq!(program.say(&format!("marked {SND_IPV4}")), "2");
    expect_nothing(&receivers[..2]);
    // As behind a tunnel: whether the mark leads past it is not known.
    let none = format!("route replace unreachable {RCV_IPV4}");
    rig.testbed.snd.tool("ip", none.split(' ')).unwrap();
    let is_refused = || program.say(&format!("marked {RCV_IPV4}")) != "2";
    assert!(comes(is_refused), "a mark leads past a tunnel");
    program.end();
}

/// A tunnel may encrypt: what is for whoever is behind it does not go beside it, though another
/// device would reach it, too.
#[test]
fn a_member_behind_a_tunnel_is_refused() {
    onrush_testkit::require_root!();
    const BEHIND: &str = "10.77.0.9";
    let rig = Rig::new();
    let (snd, rcv) = (&rig.testbed.snd, &rig.testbed.rcv);
    rcv.tool("ip", ["addr", "add", BEHIND, "dev", RCV_DEVICE])
        .unwrap();
    let behind = rcv.run(|| UdpSocket::bind((BEHIND, 0))).unwrap();
    behind.set_nonblocking(true).unwrap();
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 1);
    let mut program = rig.talk(SIZES, &addresses);
    let list = [addresses[0], behind.local_addr().unwrap()].map(|to| to.to_string());
    program.say(&format!("set {}", list.join(",")));
    let mut bytes = [0; 100];
    // What was refused so far, and whether it has come.
    let mut send = |program: &mut Talk| {
        let refused: u64 = program.say("send 10").parse().unwrap();
        assert_eq!(receivers[0].recv(&mut bytes).unwrap(), 10);
        let has_come = behind.recv(&mut bytes).is_ok();
        while behind.recv(&mut bytes).is_ok() {}
        (refused, has_come)
    };
    let mut is_refused = |program: &mut Talk| {
        let (before, _) = send(program);
        send(program) == (before + 1, false)
    };
    let mut follow = |way: &str| {
        let route = |act: &str| {
            let command = format!("route {act} {way}");
            snd.tool("ip", command.split(' ')).unwrap();
        };
        route("add");
        assert!(comes(|| is_refused(&mut program)), "{way}");
        route("del");
        assert!(comes(|| !is_refused(&mut program)), "{way} is gone");
    };
    follow(&format!("unreachable {BEHIND}"));
    let made = snd.tool("ip", ["tuntap", "add", "dev", "t0", "mode", "tun"]);
    if made.is_err() {
        onrush_testkit::skip::record("needs /dev/net/tun");
        return;
    }
    snd.tool("ip", ["link", "set", "t0", "up"]).unwrap();
    follow(&format!("{BEHIND} dev t0"));
    program.end();
}

/// What a tunnel sends has the socket of what it carries, and is for the tunnel's other end alone.
#[test]
fn what_a_tunnel_carries_is_not_sent_to_members() {
    onrush_testkit::require_root!();
    const VXLAN_PORT: u16 = 4789;
    let rig = Rig::new();
    let snd = &rig.testbed.snd;
    let ip = |command: &str| snd.tool("ip", command.split(' '));
    // From a port that no socket is given.
    let tunnel = format!("type vxlan id 7 srcport 7000 7001 dstport {VXLAN_PORT}");
    let made = format!("link add x0 mtu 1000 {tunnel} remote {RCV_IPV4} dev {SND_DEVICE}");
    if ip(&made).is_err() {
        onrush_testkit::skip::record("needs vxlan in the kernel");
        return;
    }
    for command in [
        "addr add 10.79.0.1/24 dev x0",
        "link set x0 up",
        "neigh add 10.79.0.2 lladdr 02:00:00:00:00:79 dev x0 nud permanent",
    ] {
        ip(command).unwrap();
    }
    let bind = || UdpSocket::bind((RCV_IPV4, VXLAN_PORT)).unwrap();
    let end = rig.testbed.rcv.run(bind);
    end.set_read_timeout(Some(LONG)).unwrap();
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 2);
    // In fragments, which the program at the tunnel itself leaves alone.
    let script = r#"
s.connect(("10.79.0.2", 9))
s.setsockopt(socket.SOL_SOCKET, SET, members(ports))
s.send(b"x" * 3000)
print(*struct.unpack("=IIQQQQ", s.getsockopt(socket.SOL_SOCKET, INFO, 40)))
"#;
    assert_eq!(told(&rig.python(script, &addresses)), "2 1024 0 0 0 0\n");
    let mut bytes = [0; 2000];
    let mut fragments = 0;
    // The tunnel's own address brings others there, too.
    while fragments < 4 {
        let length = end.recv(&mut bytes).unwrap();
        let is_ipv4 = bytes[8 + 12..8 + 14] == [8, 0];
        fragments += u32::from(length > 50 && is_ipv4);
    }
    expect_nothing(&receivers);
}

/// A program is in one control group, and in those above it: the nearest agent decides, and what it
/// refuses no other takes.
#[test]
fn the_nearest_agent_decides_alone() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let below = rig.cgroup.join("below");
    std::fs::create_dir(&below).unwrap();
    let few = AgentOptions {
        members_max: 2,
        ..AgentOptions::default()
    };
    let nearest = || Agent::start(&below, &few).unwrap();
    let nearest = Working::new(rig.testbed.snd.run(nearest));
    let above = Working::new(rig.agent(&AgentOptions::default()));
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 3);
    let script = r#"
s.connect((ip, ports[0]))
info = lambda: struct.unpack("=IIQQQQ", s.getsockopt(socket.SOL_SOCKET, INFO, 40))
print(refused(s, SET, members(ports)), info()[0])
s.send(b"to one")
print(refused(s, SET, members(ports[1:])), info()[0])
s.send(b"to two")
print(*info()[2:])
"#;
    let run = || rig.script_in(&below, script, &addresses).output().unwrap();
    assert_eq!(told(&run()), "EDQUOT 0\ntaken 2\n1 2 0 0\n");
    expect(&receivers[..1], &[b"to one"]);
    expect(&receivers[1..], &[b"to two"]);
    expect_nothing(&receivers);
    // Without it the next one above does.
    drop(nearest);
    assert_eq!(told(&run()), "taken 3\ntaken 2\n2 5 0 0\n");
    expect(&receivers[..1], &[b"to one"]);
    expect(&receivers[1..], &[b"to one", b"to two"]);
    expect_nothing(&receivers);
    drop(above);
    std::fs::remove_dir(&below).unwrap();
}

/// The list is the socket's, whoever has a descriptor of it, and so are the options: those of the
/// control group that it was made in.
#[test]
fn a_group_stays_the_sockets_over_fork_and_move() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let name = rig.cgroup.file_name().unwrap().to_string_lossy();
    let elsewhere = rig.cgroup.with_file_name(format!("{name}-elsewhere"));
    std::fs::create_dir(&elsewhere).unwrap();
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 3);
    let script = r#"
s.connect((ip, ports[0]))
s.setsockopt(socket.SOL_SOCKET, SET, members(ports))
info = lambda: struct.unpack("=IIQQQQ", s.getsockopt(socket.SOL_SOCKET, INFO, 40))
if os.fork() == 0:
    s.send(b"child")
    print(refused(s, DEL, members(ports[:1])), end=" ", flush=True)
    os._exit(0)
os.wait()
print(info()[0], end=" ")
s.send(b"parent")
with open(os.environ["ELSEWHERE"] + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
s.send(b"moved")
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(refused(u, SET, members(ports)), refused(s, SET, members(ports)))
s.send(b"as before")
"#;
    let mut script = rig.script(script, &addresses);
    let said = told(&script.env("ELSEWHERE", &elsewhere).output().unwrap());
    assert_eq!(said, "taken 2 ENOPROTOOPT taken\n");
    expect(&receivers[..1], &[b"child", b"as before"]);
    let all: [&[u8]; 4] = [b"child", b"parent", b"moved", b"as before"];
    expect(&receivers[1..], &all);
    expect_nothing(&receivers);
    assert!(comes(|| std::fs::remove_dir(&elsewhere).is_ok()));
}

/// A control group may have sockets of several network namespaces, and the agent serves its own.
/// Elsewhere the options are unknown, so that a program sees that it has to send to each itself.
#[test]
fn a_socket_of_another_namespace_has_no_such_options() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let (_receivers, addresses) = rig.receivers(RCV_IPV4.into(), 2);
    let script = r#"
import ctypes
def count(s):
    try:
        return struct.unpack("=IIQQQQ", s.getsockopt(socket.SOL_SOCKET, INFO, 40))[0]
    except OSError as error:
        return errno.errorcode[error.errno]
elsewhere = os.open(os.environ["ELSEWHERE"], os.O_RDONLY)
assert ctypes.CDLL(None).setns(elsewhere, 0) == 0
there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for it in there, s:
    print(refused(it, SET, members(ports)), refused(it, STAGE, members(ports)), count(it))
"#;
    let mut script = rig.script(script, &addresses);
    let elsewhere = rig.testbed.rcv.path();
    let said = told(&script.env("ELSEWHERE", elsewhere).output().unwrap());
    let expected = "ENOPROTOOPT ENOPROTOOPT ENOPROTOOPT\ntaken taken 2\n";
    assert_eq!(said, expected);
}

#[test]
fn an_agent_has_its_control_group_alone_and_leaves_nothing() {
    onrush_testkit::require_root!();
    if let Some(cgroup) = std::env::var_os("ONRUSH_SENDGRP_VICTIM") {
        let _agent = Agent::start(Path::new(&cgroup), &AgentOptions::default()).unwrap();
        std::io::stdout().write_all(b"\nready\n").unwrap();
        // Until it is killed, or the other's end of the pipe is closed.
        drop(std::io::stdin().read(&mut [0]));
        return;
    }
    let rig = Rig::new();
    let mut command = rig.testbed.snd.command(std::env::current_exe().unwrap());
    let name = "an_agent_has_its_control_group_alone_and_leaves_nothing";
    command.args(["--exact", name, "--nocapture"]);
    command
        .env("ONRUSH_SENDGRP_VICTIM", &rig.cgroup)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut victim = command.spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    assert_eq!(attached(&rig.testbed), 1);
    let second = || Agent::start(&rig.cgroup, &AgentOptions::default());
    let refused = rig.testbed.snd.run(second).unwrap_err();
    assert!(matches!(refused, AgentError::Served { .. }), "{refused}");
    let process = format!("process {} (", victim.id());
    assert!(refused.to_string().contains(&process), "{refused}");
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 2);
    let says = "    print(refused(s, SET, members(ports)), flush=True)";
    let mut program = rig.talk(&[SENDS, says].concat(), &addresses);
    assert_eq!(program.say("to all"), "taken");
    expect(&receivers, &[b"to all\n"]);
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(comes(|| attached(&rig.testbed) == 0));
    // It goes on as any program does.
    assert_eq!(program.say("to whom it is connected"), "ENOPROTOOPT");
    expect(&receivers[..1], &[b"to whom it is connected\n"]);
    expect_nothing(&receivers);
    program.end();

    let mut agent = rig.agent(&AgentOptions::default());
    assert!(agent.devices().any(|device| device == SND_DEVICE));
    assert!(comes(|| std::fs::remove_dir(&rig.cgroup).is_ok()));
    let give_up = Instant::now() + LONG;
    let gone = loop {
        match agent.poll(Duration::from_millis(5)) {
            Ok(()) => assert!(Instant::now() < give_up),
            Err(error) => break error,
        }
    };
    assert!(matches!(gone, AgentError::Gone(_)), "{gone}");
    drop(agent);
    assert!(comes(|| attached(&rig.testbed) == 0));
    let none = Agent::start(Path::new("/proc"), &AgentOptions::default()).unwrap_err();
    assert!(matches!(none, AgentError::Cgroup { .. }), "{none}");
}

/// A datagram goes to each once, whoever it is: nothing that is received is sent on.
#[test]
fn the_sender_and_another_group_may_be_members() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let script = r#"
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ends = [s, other]
for end in ends:
    end.bind((ip, 0))
    end.settimeout(60)
both = members([end.getsockname()[1] for end in ends])
for end in ends:
    end.connect(ends[0].getsockname())
    end.setsockopt(socket.SOL_SOCKET, SET, both)
s.send(b"to both")
for end in ends:
    print(end.recv(100) == b"to both", end=" ")
for end in ends:
    end.setblocking(False)
    try:
        print(end.recv(100))
    except BlockingIOError:
        print("no more", end=" ")
print(*struct.unpack("=IIQQQQ", s.getsockopt(socket.SOL_SOCKET, INFO, 40))[2:])
"#;
    let at_home: SocketAddr = (SND_IPV4, 1).into();
    let said = told(&rig.python(script, &[at_home]));
    assert_eq!(said, "True True no more no more 1 2 0 0\n");
}

#[test]
fn a_device_may_be_renamed_and_removed_under_an_agent() {
    onrush_testkit::require_root!();
    let rig = Rig::new();
    let (second, second_address) = second_device(&rig, 1500);
    let _agent = Working::new(rig.agent(&AgentOptions::default()));
    let (receivers, addresses) = rig.receivers(RCV_IPV4.into(), 2);
    let mut program = rig.talk(SIZES, &addresses[..1]);
    let list = [addresses[0], second_address, addresses[1]].map(|to| to.to_string());
    assert_eq!(program.say(&format!("set {}", list.join(","))), "0");
    second.set_nonblocking(true).unwrap();
    let mut bytes = [0; 2000];
    // Who is behind the first device gets each, whatever becomes of the second.
    let mut send = |program: &mut Talk| {
        program.say("send 10");
        for receiver in &receivers {
            assert_eq!(receiver.recv(&mut bytes).unwrap(), 10);
        }
        let is_there = second.recv(&mut bytes).is_ok();
        while second.recv(&mut bytes).is_ok() {}
        is_there
    };
    let ip = |command: &str| {
        rig.testbed.snd.tool("ip", command.split(' ')).unwrap();
    };
    assert!(comes(|| send(&mut program)), "the second device is found");
    ip("link set w0 down");
    ip("link set w0 name w7");
    ip("link set w7 up");
    assert!(comes(|| send(&mut program)), "it is found by another name");
    ip("link del w7");
    // Nobody is there any more, and nobody else misses anything for it.
    assert!(comes(|| !send(&mut program)));
    program.end();
}
