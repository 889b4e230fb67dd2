//! Programs in C and in Python that use the library as it is built: what they do works, and what
//! they do wrongly is told.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Lines, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use onrush_testkit::testbed::{self, RCV_IPV4, Testbed};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);

/// A program, and the library under the name by which it is asked for.
struct Built {
    folder: TempDir,
    program: PathBuf,
    /// What the sanitizer is to be told.
    options: &'static str,
}

/// Cargo builds the library before it runs tests, beside them.
fn library(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.join(name)
}

fn tree() -> PathBuf {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    tree.canonicalize().unwrap()
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    output
}

fn compiler(program: &Path, sources: &[&Path]) -> Command {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let group = tree().join("crates/group/include");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    compiler
        .args(["-g", "-O1", "-o"])
        .arg(program)
        .args(sources);
    compiler.arg("-I").arg(include).arg("-I").arg(group);
    compiler
}

impl Built {
    fn new(flags: &[&str]) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/all.c");
        Self::of(&source, flags)
    }

    fn of(source: &Path, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libonrush.so", "libonrush.so.1"] {
            std::os::unix::fs::symlink(library("libonrush.so"), folder.path().join(name)).unwrap();
        }
        let program = folder.path().join("program");
        let mut compiler = compiler(&program, &[source]);
        compiler.args(flags).arg("-L").arg(folder.path());
        run(compiler.args(["-lonrush", "-lpthread"]));
        Self {
            folder,
            program,
            options: "abort_on_error=0:detect_leaks=0",
        }
    }

    /// With the sanitizers of addresses and of what is undefined, whose every report ends it.
    fn checked() -> Self {
        Self::new(&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        self.prepare(command.args(words));
        command
    }

    fn prepare(&self, command: &mut Command) {
        command.env("LD_LIBRARY_PATH", self.folder.path());
        command.env("ASAN_OPTIONS", self.options);
    }
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn receivers(ip: IpAddr, count: usize) -> (Vec<UdpSocket>, Vec<String>) {
    let bind = |_| {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    };
    let receivers: Vec<_> = (0..count).map(bind).collect();
    let ports = receivers.iter().map(|it| it.local_addr().unwrap().port());
    let ports = ports.map(|port| port.to_string()).collect();
    (receivers, ports)
}

fn expect(receiver: &UdpSocket, datagrams: &[&str]) {
    let mut bytes = [0; 100];
    for datagram in datagrams {
        let length = receiver.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], datagram.as_bytes());
    }
}

/// The members get what `all.c` sends while they are some.
fn expect_all(receivers: &[UdpSocket]) {
    let [first, between @ .., last] = receivers else {
        panic!("there are several");
    };
    expect(first, &["one", "two", "two"]);
    for receiver in between {
        expect(
            receiver,
            &["one", "two", "two", "three", "sealed", "sealed"],
        );
    }
    expect(last, &["two", "two", "three", "sealed", "sealed"]);
}

#[test]
fn a_c_program_locks_and_registers_memory() {
    for built in [Built::new(&[]), Built::checked()] {
        let output = run(&mut built.command(&["memory"]));
        assert_eq!(told(&output), "done\n");
    }
}

#[test]
fn a_c_program_links_the_static_library() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/all.c");
    let mut compiler = compiler(&program, &[&source, &library("libonrush.a")]);
    // As `rustc --print native-static-libs` and onrush.pc say.
    run(compiler.args(["-lgcc_s", "-lpthread", "-lm", "-ldl"]));
    assert_eq!(told(&run(Command::new(program).arg("memory"))), "done\n");
}

#[test]
fn a_c_program_sends_to_a_group() {
    let built = Built::checked();
    for way in ["0", "2", "3", "4"] {
        let (receivers, ports) = receivers(Ipv4Addr::LOCALHOST.into(), 5);
        let mut command = built.command(&["group", way, "127.0.0.1"]);
        let said = told(&run(command.args(ports)));
        assert!(said.contains(", 18 packets, "), "{said}");
        expect_all(&receivers);
    }
}

#[test]
fn a_c_program_has_its_group_replicated_by_the_kernel() {
    onrush_testkit::require_root!();
    testbed::stay_on_one_processor();
    let testbed = Testbed::new(testbed::Options::default()).unwrap();
    let (receivers, ports) = testbed.rcv.run(|| receivers(RCV_IPV4.into(), 20));
    let built = Built::new(&[]);
    let mut command = testbed.snd.command(&built.program);
    built.prepare(&mut command);
    command
        .args(["group", "1", &RCV_IPV4.to_string()])
        .args(ports);
    let said = told(&run(&mut command));
    assert_eq!(said, "way 1, 78 packets, with clones\ndone\n");
    expect_all(&receivers);
}

/// A program with a server in it, that is spoken with.
struct Host {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Host {
    /// It serves that folder; at which ports of RTSP and HTTP.
    fn serving(built: &Built, folder: &Path) -> (Self, u16, u16) {
        Self::started(built.command(&["server", folder.to_str().unwrap()]))
    }

    fn started(mut command: Command) -> (Self, u16, u16) {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let mut host = Self {
            input: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        };
        let line = host.hear();
        let ports = line.strip_prefix("listens ").expect(&line);
        let (rtsp, http) = ports.split_once(' ').unwrap();
        (host, rtsp.parse().unwrap(), http.parse().unwrap())
    }

    fn hear(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        self.hear()
    }

    fn until(&mut self, line: &str, answer: &str) {
        let give_up = Instant::now() + LONG;
        while self.ask(line) != answer {
            let answer = self.ask(line);
            assert!(Instant::now() < give_up, "{line}: {answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_c_program_embeds_a_server_and_plays_from_it() {
    let built = Built::checked();
    let (mut host, rtsp, http) = Host::serving(&built, &tree().join("media"));

    let url = format!("rtsp://127.0.0.1:{rtsp}/demo.mp4");
    let probe = ["-v", "error", "-rtsp_transport", "udp", "-show_entries"];
    let entries = ["stream=codec_name", "-of", "csv=p=0", &url];
    let probed = told(&run(Command::new("ffprobe").args(probe).args(entries)));
    let mut codecs: Vec<_> = probed.split_whitespace().collect();
    codecs.sort_unstable();
    assert_eq!(codecs, ["aac", "h264"]);
    let url = format!("http://127.0.0.1:{http}/demo.mp4");
    let probed = Command::new("ffprobe")
        .args(["-v", "error", &url])
        .output()
        .unwrap();
    assert!(probed.status.success());
    host.until("count", "0");
    host.until("heard", "1 1 -9");

    // A player that plays until its session is ended from here.
    let url = format!("rtsp://127.0.0.1:{rtsp}/demo.ts");
    let arguments = ["-v", "error", "-rtsp_transport", "tcp", "-re", "-i", &url];
    let mut player = Command::new("ffmpeg")
        .args(arguments)
        .args(["-c", "copy", "-f", "null", "-"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    host.until("count", "1");
    let list = host.ask("list");
    assert!(list.starts_with(r#"{"all":1,"found":1,"#), "{list}");
    assert!(list.contains("demo.ts"), "{list}");
    let (_, id) = list.split_once(r#""id":""#).unwrap();
    assert_eq!(host.ask(&format!("end {}", &id[..16])), "0");
    host.until("count", "0");
    host.until("heard", "2 2 -9");
    assert_eq!(host.ask("end 123"), "-1");
    player.kill().unwrap();
    player.wait().unwrap();

    let status = host.ask("status");
    assert!(status.starts_with('{') && status.ends_with('}'), "{status}");
    drop(host.input.take());
    assert_eq!(host.hear(), "done");
    assert!(host.child.wait().unwrap().success());
}

/// Of each thread of a process, whether it is the first, and a set of signals.
fn signals(process: u32, set: &str) -> Vec<(bool, u64)> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let threads = threads.filter_map(|thread| {
        let thread = thread.ok()?;
        // It may have ended by now.
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let signals = status.lines().find_map(|it| it.strip_prefix(set)).unwrap();
        let is_first = thread.file_name().to_str() == Some(&process.to_string());
        Some((is_first, u64::from_str_radix(signals.trim(), 16).unwrap()))
    });
    threads.collect()
}

/// The program leaves SIGPIPE as it is, which ends whoever gets it.
#[test]
fn a_client_that_goes_does_not_end_the_program() {
    const PIPE: u64 = 1 << (libc::SIGPIPE - 1);
    let folder = tempfile::tempdir().unwrap();
    // More than lies in sockets.
    let large = File::create(folder.path().join("large.ts")).unwrap();
    large.set_len(256 << 20).unwrap();
    let built = Built::new(&[]);
    let (mut host, _, http) = Host::serving(&built, folder.path());
    let process = host.child.id();
    let ignored = signals(process, "SigIgn:");
    assert!(ignored.iter().all(|(_, set)| set & PIPE == 0));
    // Of a thread that is just ending nothing is told.
    let give_up = Instant::now() + LONG;
    loop {
        let blocked = signals(process, "SigBlk:");
        let is_so = |&(is_first, set): &(bool, u64)| is_first == (set & PIPE == 0);
        if blocked.len() > 2 && blocked.iter().all(is_so) {
            break;
        }
        assert!(Instant::now() < give_up, "{blocked:x?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    for round in 0..20 {
        let mut client = TcpStream::connect(("127.0.0.1", http)).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let request = b"GET /large.ts HTTP/1.1\r\nHost: here\r\n\r\n";
        client.write_all(request).unwrap();
        client.read_exact(&mut [0; 10_000]).unwrap();
        if round % 2 == 0 {
            client.shutdown(Shutdown::Write).unwrap();
        }
        drop(client);
        assert_eq!(host.ask("count"), "0");
    }
}

/// A supervisor that has its standard error and looks at it when it has ended, at the earliest.
#[test]
fn who_does_not_read_the_log_does_not_stop_the_server() {
    let (reader, mut writer) = io::pipe().unwrap();
    let media = tree().join("media");
    let built = Built::new(&[]);
    let mut command = built.command(&["server", media.to_str().unwrap(), "info"]);
    command.stderr(writer.try_clone().unwrap());
    // Full from the start on. A server that waits goes on when nobody can read any more.
    std::thread::spawn(move || while writer.write_all(&[b'x'; 4096]).is_ok() {});
    std::thread::spawn(move || {
        std::thread::sleep(LONG);
        drop(reader);
    });
    let began = Instant::now();
    let (mut host, rtsp, _) = Host::started(command);
    let mut client = TcpStream::connect(("127.0.0.1", rtsp)).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    let request = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";
    client.write_all(request).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"RTSP/1.0 200");
    assert_eq!(host.ask("count"), "0");
    drop(host.input.take());
    assert_eq!(host.hear(), "done");
    assert!(began.elapsed() < LONG, "it has waited");
}

#[test]
fn a_python_program_does_all_of_it_by_ctypes() {
    let (receivers, ports) = receivers(Ipv4Addr::LOCALHOST.into(), 3);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/all.py");
    let mut python = Command::new("python3");
    python.arg(script).arg(library("libonrush.so"));
    python.arg(tree().join("media")).args(ports);
    assert_eq!(told(&run(&mut python)), "aac h264\ndone\n");
    for receiver in receivers {
        expect(&receiver, &["from Python"]);
    }
}

/// As `crates/capi/install` leaves it, and pkg-config tells it.
#[test]
fn what_is_installed_is_found_by_pkg_config() {
    let folder = tempfile::tempdir().unwrap();
    let mut install = Command::new(tree().join("crates/capi/install"));
    let install = install.arg(library("libonrush.so").parent().unwrap());
    run(install
        .env("DESTDIR", folder.path())
        .env("PREFIX", "/opt/it"));
    let root = folder.path().join("opt/it");
    let told_of = std::fs::read_to_string(root.join("lib/pkgconfig/onrush.pc")).unwrap();
    assert!(told_of.starts_with("prefix=/opt/it\n"), "{told_of}");
    let line = |name: &str| {
        let line = told_of.lines().find_map(|it| it.strip_prefix(name));
        let line = line.unwrap().replace("${includedir}", "${prefix}/include");
        let line = line.replace("${libdir}", "${prefix}/lib");
        line.replace("${prefix}", root.to_str().unwrap())
    };
    assert_eq!(line("Version: "), env!("CARGO_PKG_VERSION"));
    let program = folder.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/all.c");
    let mut compiler = Command::new("cc");
    compiler.arg(source).arg("-o").arg(&program);
    let flags = [line("Cflags: "), line("Libs: ")].join(" ");
    run(compiler.args(flags.split_whitespace()).arg("-lpthread"));
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", root.join("lib"));
    assert_eq!(told(&run(command.arg("memory"))), "done\n");
}

/// The first programs in C of the documents, which somebody copies first.
#[test]
fn what_documents_show_compiles_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("shown.c");
    for (document, runs) in [
        ("docs/locking.md", true),
        ("docs/group.md", false),
        ("crates/group/README.md", false),
        ("crates/lock/README.md", true),
        ("crates/capi/README.md", true),
    ] {
        let text = std::fs::read_to_string(tree().join(document)).unwrap();
        let shown: Vec<_> = text.split("```c\n").skip(1).collect();
        assert!(!shown.is_empty(), "{document} shows a program in C");
        for block in shown {
            let code = block.split("```").next().unwrap();
            let is_whole = code.contains("int main(");
            assert!(is_whole || !runs, "{document}: {code}");
            let main = if is_whole {
                ""
            } else {
                "\nint main(void) { return 0; }\n"
            };
            std::fs::write(&source, format!("{code}{main}")).unwrap();
            let built = Built::of(&source, &[]);
            run(&mut built.command(&[]));
        }
    }
}
