//! A server is replaced while it serves, and a service manager starts it, listens for it and hears
//! of it.

use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::process::{Process, Signal};
use onrush_testkit::receiver::Capture;
use onrush_testkit::rtsp_client::Client;
use onrush_testkit::testbed::{Mode, RCV_IPV4, SND_IPV4};
use onrush_testkit::{http_client, require_programs, require_root};
use onrush_wire::rtp::Header;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::process::{Pid, kill_process, test_kill_process};

use common::{LONG, ONRUSH, Site, Viewer, clip, expected, serve_arguments, wait_until, watch};
use onrush_testkit::checker::Start;

mod common;

/// Sessions whose packets nobody looks at.
const CROWD: usize = 480;

/// Sessions of which each byte is looked at.
const JUDGED: usize = 20;

/// MiB of a file that no two sockets hold.
const LARGE_MIB: u64 = 64;

/// The process that took over, ended when the test is.
struct Successor(Pid);

impl Successor {
    fn of(site: &Site) -> Self {
        Self::nth(site, 1)
    }

    /// The last of so many, one after the other.
    fn nth(site: &Site, number: usize) -> Self {
        let lines = site
            .server
            .wait_for_lines("serves from now on", number, LONG);
        assert_eq!(lines.len(), number, "{}", site.server.log_tail());
        let word = lines[number - 1]
            .split("process ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let number = word
            .and_then(|word| word.parse().ok())
            .and_then(Pid::from_raw);
        Self(number.expect("its number is logged"))
    }

    fn is_running(&self) -> bool {
        test_kill_process(self.0).is_ok()
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // It may be gone already.
        kill_process(self.0, Signal::KILL).unwrap_or_default();
    }
}

/// Says at its end that something is over, also where a test fails: threads of a scope, which is
/// not left before they end, would go on.
struct EndGuard<'a>(&'a AtomicBool);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A session of the crowd: it plays, and somebody has its ports.
struct Guest {
    client: Client,
    session: String,
    _ports: [UdpSocket; 2],
}

impl Guest {
    fn come(site: &Site) -> Self {
        let ports = site.testbed.rcv.run(even_ports);
        let port = ports[0].local_addr().unwrap().port();
        let mut client = site.connect();
        let transport = format!("RTP/AVP;unicast;client_port={port}-{}", port + 1);
        let track = format!("{}/track1", site.url("clip.ts"));
        let answer = client
            .request("SETUP", &track, &[("Transport", &transport)])
            .unwrap();
        let session = answer.session().unwrap_or_else(|| panic!("{answer:?}")).id;
        client
            .play(&site.url("clip.ts"), &session, Some("npt=0-"))
            .unwrap();
        Self {
            client,
            session,
            _ports: ports,
        }
    }

    /// Whether the session still is.
    fn is_served(&mut self, url: &str) -> bool {
        let headers = [("Session", &*self.session)];
        let answer = self.client.request("GET_PARAMETER", url, &headers);
        answer.is_ok_and(|answer| answer.status == 200)
    }

    fn leave(&mut self, url: &str) {
        let headers = [("Session", &*self.session)];
        let answer = self.client.request("TEARDOWN", url, &headers).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

fn even_ports() -> [UdpSocket; 2] {
    loop {
        let first = UdpSocket::bind((RCV_IPV4, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        if port.is_multiple_of(2)
            && let Ok(second) = UdpSocket::bind((RCV_IPV4, port + 1))
        {
            return [first, second];
        }
    }
}

/// Makes a file of [`LARGE_MIB`], each of which begins with its number.
fn make_large(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(LARGE_MIB << 20).unwrap();
    for number in 0..LARGE_MIB {
        let at = number << 20;
        file.write_all_at(&number.to_be_bytes(), at).unwrap();
    }
}

/// Takes a little of a download of such a file again and again until it is to end, and then the
/// rest.
fn take_large(mut download: http_client::Client, is_to_end: &AtomicBool) {
    let mut body = Vec::new();
    while !is_to_end.load(Ordering::Relaxed) {
        body.extend(download.connection.take(8 << 10).unwrap());
        thread::sleep(Duration::from_millis(50));
    }
    let length = usize::try_from(LARGE_MIB << 20).unwrap();
    let rest = download.connection.take(length - body.len());
    body.extend(rest.unwrap());
    for (number, part) in (0..LARGE_MIB).zip(body.chunks(1 << 20)) {
        let (begin, zeroes) = part.split_at(8);
        assert_eq!(begin, number.to_be_bytes());
        assert!(zeroes.iter().all(|byte| *byte == 0), "in MiB {number}");
    }
}

// SPECIFICATION.md: 61
#[test]
fn a_successor_takes_over_and_nobody_is_lost() {
    require_root!();
    let clip = clip(24.0);
    let ts: Arc<[u8]> = Arc::from(&*clip);
    let http = SocketAddr::from((SND_IPV4, 8080));
    let http_option = format!("--http={http}");
    // Nobody is refused, or left out, because the machine has much to do.
    let arguments = [
        &*http_option,
        "--metrics=9554",
        "--cache=16MiB",
        "--load-max=0",
    ];
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), &clip).unwrap();
    make_large(&media.path().join("large"));
    let site = Site::serve(testbed, media, &arguments);
    let file = site.url("clip.ts");
    let mut crowd: Vec<_> = (0..CROWD).map(|_| Guest::come(&site)).collect();
    let judged: Vec<_> = (0..JUDGED)
        .map(|_| Viewer::setup(&site.testbed, "clip.ts"))
        .collect();
    // It takes longer than all sessions.
    let connected = site.testbed.rcv.run(|| http_client::Client::connect(http));
    let mut download = connected.unwrap();
    assert_eq!(download.begin("/large", "").unwrap(), LARGE_MIB << 20);
    let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let is_alone = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = [&is_over, &is_alone].map(EndGuard);
        let downloading = scope.spawn(|| take_large(download, &is_alone));
        let watchers: Vec<_> = judged
            .into_iter()
            .map(|mut viewer| {
                let ts = Arc::clone(&ts);
                scope.spawn(move || {
                    let info = viewer.play(Some(12.0));
                    viewer.judged(&expected(&ts, Start::Found, &info));
                })
            })
            .collect();
        // Others come all the while, and none of them finds the door shut.
        let newcomers = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mut client = site.connect();
                assert_eq!(client.request("DESCRIBE", &file, &[]).unwrap().status, 200);
                let mut client = site
                    .testbed
                    .rcv
                    .run(|| http_client::Client::connect(http))
                    .unwrap();
                let part = "Range: bytes=0-99\r\nConnection: close\r\n";
                assert_eq!(client.request("GET", "/clip.ts", part).unwrap().status, 206);
                served.fetch_add(1, Ordering::Relaxed);
            }
        });
        site.server.signal(Signal::USR2).unwrap();
        let successor = Successor::of(&site);
        let before = served.load(Ordering::Relaxed);
        wait_until("others came to the successor", || {
            served.load(Ordering::Relaxed) > before + 3
        });
        // The crowd is still served, by the one who knows it.
        for guest in &mut crowd {
            assert!(guest.is_served(&file), "{}", site.server.log_tail());
        }
        let metrics = ([127, 0, 0, 1], 9554).into();
        let asked = site
            .testbed
            .snd
            .run(|| http_client::Client::connect(metrics))
            .unwrap();
        let status = String::from_utf8(asked.get("/status").unwrap()).unwrap();
        assert!(status.contains("\"sessions\":{\"now\":0,"), "{status}");
        watch(&site.testbed, "clip.ts", &ts, Some(22.0));
        for watcher in watchers {
            watcher.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        newcomers.join().unwrap();
        for guest in &mut crowd {
            guest.leave(&file);
        }
        assert!(successor.is_running());
        // The download alone keeps the first server, which has looked for others several times.
        thread::sleep(Duration::from_secs(1));
        let log = site.server.log_tail();
        assert!(!log.contains("nobody is left here"), "{log}");
        is_alone.store(true, Ordering::Relaxed);
        downloading.join().unwrap();
        // Those who left took the first server with them.
        let done = site.server.wait_for_line("nobody is left here", LONG);
        assert!(done.is_some(), "{}", site.server.log_tail());
        watch(&site.testbed, "clip.ts", &ts, Some(22.0));
    });
    let log = site.server.log();
    assert!(!log.contains("panicked"), "{log}");
}

// SPECIFICATION.md: 61
#[test]
fn who_is_left_when_the_time_is_over_hears_goodbye() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), clip(24.0)).unwrap();
    let site = Site::serve(testbed, media, &["--drain-time-max=3s"]);
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    viewer.play(None);
    let asked = Instant::now();
    site.server.signal(Signal::USR2).unwrap();
    let successor = Successor::of(&site);
    let has_bye = viewer.receiver.wait_until(LONG, Capture::has_bye);
    assert!(has_bye, "{}", site.server.log_tail());
    assert!(asked.elapsed() >= Duration::from_secs(3), "before its time");
    let over = site.server.wait_for_line("--drain-time-max is over", LONG);
    assert!(over.is_some(), "{}", site.server.log_tail());
    assert!(successor.is_running());
}

#[test]
fn a_successor_that_cannot_start_changes_nothing() {
    require_root!();
    let clip = clip(8.0);
    let ts: Arc<[u8]> = Arc::from(&*clip);
    let (testbed, media) = Site::prepare(Mode::Uso);
    let folder = media.path().to_owned();
    fs::write(folder.join("clip.ts"), &clip).unwrap();
    let site = Site::serve(testbed, media, &[]);
    let elsewhere = folder.with_extension("elsewhere");
    fs::rename(&folder, &elsewhere).unwrap();
    site.server.signal(Signal::USR2).unwrap();
    let line = site.server.wait_for_line("goes on serving", LONG);
    let line = line.unwrap_or_else(|| panic!("{}", site.server.log_tail()));
    assert!(line.contains("ended before it was ready"), "{line}");
    fs::rename(&elsewhere, &folder).unwrap();
    watch(&site.testbed, "clip.ts", &ts, Some(6.0));
    site.stop();
}

/// Datagrams that say their number, steadily until they are to end; the last one says so.
fn send_numbered(socket: &UdpSocket, is_over: &AtomicBool) -> u64 {
    for number in 0_u64.. {
        let is_last = is_over.load(Ordering::Relaxed);
        let header = Header {
            marker: false,
            payload_type: 96,
            sequence: (number & 0xffff) as u16,
            timestamp: 0,
            ssrc: 7,
        };
        let mut packet = header.to_bytes().to_vec();
        packet.extend(number.to_be_bytes());
        packet.push(is_last.into());
        packet.resize(500, 0);
        socket.send(&packet).unwrap();
        if is_last {
            return number + 1;
        }
        thread::sleep(Duration::from_micros(300));
    }
    unreachable!("there is no last number")
}

/// The same from elsewhere, with numbers that nobody is to get.
fn intrude(site: &Site, is_over: &AtomicBool) {
    let socket = roomy_socket(site);
    socket.connect((SND_IPV4, 5004)).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        let header = Header {
            marker: false,
            payload_type: 96,
            sequence: 0,
            timestamp: 0,
            ssrc: 8,
        };
        let packet = [&header.to_bytes()[..], &[0xff; 8], &[0; 480]].concat();
        socket.send(&packet).unwrap();
        thread::sleep(Duration::from_micros(300));
    }
}

/// The numbers of what came, to the last. Each that comes is counted in `count`.
fn receive_numbered(socket: &UdpSocket, count: &AtomicUsize) -> Vec<u64> {
    let (mut numbers, mut packet) = (Vec::new(), [0; 2048]);
    loop {
        let bytes = socket.recv(&mut packet).expect("datagrams come to the end");
        assert_eq!(bytes, 500);
        numbers.push(u64::from_be_bytes(packet[12..20].try_into().unwrap()));
        count.fetch_add(1, Ordering::Relaxed);
        if packet[20] == 1 {
            return numbers;
        }
    }
}

/// Where on the receiving side something arrives that must not be lost there.
fn roomy_socket(site: &Site) -> UdpSocket {
    let socket = site
        .testbed
        .rcv
        .run(|| UdpSocket::bind((RCV_IPV4, 0)))
        .unwrap();
    set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

/// A request to the control API; the answer is to be 200.
fn ask_api(site: &Site, method: &str, body: &str) -> String {
    let api = ([127, 0, 0, 1], 8555).into();
    let connected = site.testbed.snd.run(|| http_client::Client::connect(api));
    let mut client = connected.unwrap();
    let head = format!(
        "Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    client.ask(method, "/sources/tv/members", &head).unwrap();
    client.connection.send(body.as_bytes()).unwrap();
    let answer = client.response(false).unwrap();
    let text = String::from_utf8(answer.body).unwrap();
    assert_eq!(answer.status, 200, "{text}");
    text
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Each member gets each datagram once and in order, while a successor fails and two follow each
/// other. In this process's own way, somebody else who sends to the port stays refused.
fn channels_go_on(command: &str, how: &str) {
    // Each takes all that two processors have.
    let _turn = ONE_AT_A_TIME.lock();
    let (testbed, media) = Site::prepare(Mode::Uso);
    let apart = tempfile::tempdir().unwrap();
    let token = apart.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    let listed = testbed.rcv.run(|| UdpSocket::bind((RCV_IPV4, 0))).unwrap();
    let to = format!("--to=tv={}", listed.local_addr().unwrap());
    drop(listed);
    let token_file = format!("--token-file={}", token.display());
    let arguments = [&to, "--api=8555", &token_file, how];
    let site = match command {
        "serve" => {
            let arguments = [&["--channel=tv=5004"], &arguments[..]].concat();
            Site::serve(testbed, media, &arguments)
        }
        _ => {
            let mut relay = testbed.snd.command(ONRUSH);
            relay
                .args(["relay", "tv=5004", "--rtsp=10.77.0.1:8554"])
                .args(arguments);
            Site::serve_by(testbed, media, relay)
        }
    };
    let of_list = site
        .testbed
        .rcv
        .run(|| UdpSocket::bind(to.trim_start_matches("--to=tv=")))
        .unwrap();
    set_socket_recv_buffer_size_force(&of_list, 16 << 20).unwrap();
    of_list.set_read_timeout(Some(LONG)).unwrap();
    let of_api = roomy_socket(&site);
    let added = of_api.local_addr().unwrap().to_string();
    ask_api(&site, "POST", &format!("{{\"members\":[\"{added}\"]}}"));
    let source = site
        .testbed
        .rcv
        .run(|| UdpSocket::bind((RCV_IPV4, 0)))
        .unwrap();
    source.connect((SND_IPV4, 5004)).unwrap();
    let (is_over, counts) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 2]);
    let await_more = || {
        let before = counts.each_ref().map(|it| it.load(Ordering::Relaxed));
        wait_until("more datagrams came", || {
            let mut both = counts.iter().zip(before);
            both.all(|(count, before)| count.load(Ordering::Relaxed) > before + 200)
        });
    };
    let (sent, received, last) = thread::scope(|scope| {
        let _end = EndGuard(&is_over);
        let sender = scope.spawn(|| send_numbered(&source, &is_over));
        let members = [(&of_list, &counts[0]), (&of_api, &counts[1])];
        let members =
            members.map(|(socket, count)| scope.spawn(|| receive_numbered(socket, count)));
        await_more();
        if how != "--in-kernel" {
            scope.spawn(|| intrude(&site, &is_over));
        }
        let elsewhere = token.with_extension("elsewhere");
        fs::rename(&token, &elsewhere).unwrap();
        site.server.signal(Signal::USR2).unwrap();
        let failed = site.server.wait_for_line("goes on serving", LONG);
        assert!(failed.is_some(), "{}", site.server.log_tail());
        fs::rename(&elsewhere, &token).unwrap();
        await_more();
        site.server.signal(Signal::USR2).unwrap();
        let second = Successor::of(&site);
        // At once: it may not have all yet that it is to hand on.
        kill_process(second.0, Signal::USR2).unwrap();
        let third = Successor::nth(&site, 2);
        let taken = site.server.wait_for_lines("are received here", 2, LONG);
        assert_eq!(taken.len(), 2, "{}", site.server.log_tail());
        await_more();
        let told = ask_api(&site, "GET", "");
        assert!(told.contains(&added), "{told}");
        is_over.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap();
        (sent, members.map(|it| it.join().unwrap()), third)
    });
    for numbers in received {
        // Members have come while it was sent already.
        let first = numbers[0];
        assert!(first < sent / 2, "{first} of {sent}");
        let is_next = numbers.iter().zip(first..).all(|(got, next)| *got == next);
        let odd = numbers.windows(2).find(|it| it[0] + 1 != it[1]);
        assert!(is_next && numbers.last() == Some(&(sent - 1)), "{odd:?}");
    }
    kill_process(last.0, Signal::INT).unwrap();
    let done = site.server.wait_for_lines("source tv: ", 3, LONG);
    // Each of the three has passed on a part, and the parts are the whole.
    let totals = site.server.wait_for_lines("datagrams came", 3, LONG);
    let of = |line: &String| -> u64 {
        let words = line.split("source tv: ").nth(1).unwrap();
        words.split(' ').next().unwrap().parse().unwrap()
    };
    let parts: Vec<_> = totals.iter().map(of).collect();
    assert!(
        parts.len() == 3 && parts.iter().all(|&it| it > 0),
        "{parts:?}: {done:?}"
    );
    let (passed, all) = (parts.iter().sum::<u64>(), sent);
    assert_eq!(passed, all, "{parts:?}");
    let log = site.server.log();
    assert!(!log.contains("panicked"), "{log}");
    // Each has a use for all sockets of the one before.
    assert!(!log.contains("was handed over"), "{log}");
}

// SPECIFICATION.md: 70
#[test]
fn a_successor_takes_channels_over_without_a_gap() {
    require_root!();
    channels_go_on("serve", "--delay=0ms");
}

// SPECIFICATION.md: 70
#[test]
fn a_successor_takes_channels_of_the_kernel_over_without_a_gap() {
    require_root!();
    channels_go_on("serve", "--in-kernel");
}

// SPECIFICATION.md: 70
#[test]
fn a_relays_successor_takes_its_channels_over_without_a_gap() {
    require_root!();
    channels_go_on("relay", "--delay=0ms");
}

/// systemd's own program listens, and starts the server with the socket when somebody comes.
#[test]
fn a_service_manager_listens_for_the_server() {
    require_root!();
    require_programs!("systemd-socket-activate");
    let clip = clip(8.0);
    let ts: Arc<[u8]> = Arc::from(&*clip);
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), &clip).unwrap();
    let mut command = testbed.snd.command("systemd-socket-activate");
    let addresses =
        [SND_IPV4].map(|address| format!("--listen={}", SocketAddr::from((address, 8554))));
    command
        .args(addresses)
        .args(["--listen=10.77.0.1:9999", "--fdname=rtsp:spare", ONRUSH]);
    command.args(serve_arguments(media.path()));
    onrush_testkit::media::age(&media.path().join("clip.ts")).unwrap();
    let mut server = Process::start(&mut command).unwrap();
    assert!(
        server.wait_for_line("Listening on", LONG).is_some(),
        "{}",
        server.log_tail()
    );
    watch(&testbed, "clip.ts", &ts, Some(6.0));
    let said = server.wait_for_line("10.77.0.1:9999 was handed over", LONG);
    assert!(said.is_some(), "{}", server.log_tail());
    assert!(
        server.interrupt(LONG).unwrap().success(),
        "{}",
        server.log_tail()
    );
}

#[test]
fn a_service_manager_hears_of_the_server() {
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let heard = UnixDatagram::bind(&path).unwrap();
    heard.set_read_timeout(Some(LONG)).unwrap();
    let next = || {
        let mut said = [0; 4096];
        let bytes = heard.recv(&mut said).expect("the server says something");
        String::from_utf8(said[..bytes].to_vec()).unwrap()
    };
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), clip(3.0)).unwrap();
    let mut command = testbed.snd.command(ONRUSH);
    command.args(serve_arguments(media.path()));
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "1000000");
    let mut site = Site::serve_by(testbed, media, command);
    let ready = next();
    assert!(ready.starts_with("READY=1\nSTATUS=sending"), "{ready}");
    for _ in 0..3 {
        assert_eq!(next(), "WATCHDOG=1\n");
    }
    site.server.signal(Signal::INT).unwrap();
    while next() != "STOPPING=1\n" {}
    assert!(site.server.wait(LONG).unwrap().success());
}

/// The word of the one before would pass for that of its successor, of which systemd is to hear
/// that it is dead.
#[test]
fn a_server_with_a_successor_tells_the_watchdog_nothing() {
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let heard = UnixDatagram::bind(&path).unwrap();
    let (tell, told) = mpsc::channel();
    // Always read: who tells waits where nobody hears.
    thread::spawn(move || {
        let mut said = [0; 4096];
        while heard.recv(&mut said).is_ok() && tell.send(()).is_ok() {}
    });
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), clip(3.0)).unwrap();
    let mut command = testbed.snd.command(ONRUSH);
    command.args(serve_arguments(media.path()));
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "1000000");
    let mut site = Site::serve_by(testbed, media, command);
    // Who has a session keeps the server.
    let viewer = Viewer::setup(&site.testbed, "clip.ts");
    site.server.signal(Signal::USR2).unwrap();
    // It is dead at once.
    drop(Successor::of(&site));
    told.try_iter().for_each(drop);
    let is_silent = (0..40).any(|_| told.recv_timeout(Duration::from_secs(2)).is_err());
    assert!(is_silent, "{}", site.server.log_tail());
    assert!(site.server.is_running().unwrap());
    drop(viewer);
}

/// As /usr/bin/onrush may lead to a folder that has the version in its name.
#[test]
fn a_successor_is_what_the_programs_link_leads_to() {
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let [link, new] = ["onrush", "new"].map(|name| folder.path().join(name));
    symlink(ONRUSH, &link).unwrap();
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), clip(3.0)).unwrap();
    let mut command = testbed.snd.command(&link);
    command.args(serve_arguments(media.path()));
    let site = Site::serve_by(testbed, media, command);
    fs::copy(ONRUSH, &new).unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&new, &link).unwrap();
    site.server.signal(Signal::USR2).unwrap();
    let successor = Successor::of(&site);
    let program = fs::read_link(format!("/proc/{}/exe", successor.0.as_raw_nonzero()));
    assert_eq!(program.unwrap(), new.canonicalize().unwrap());
}

/// The one process that another has started.
fn child_of(parent: u32) -> Pid {
    let parent = format!("PPid:\t{parent}\n");
    let processes = fs::read_dir("/proc").unwrap();
    let numbers = processes.filter_map(|it| it.unwrap().file_name().to_str()?.parse::<i32>().ok());
    let mut children = numbers.filter(|number| {
        let status = fs::read_to_string(format!("/proc/{number}/status"));
        status.is_ok_and(|status| status.contains(&parent))
    });
    let child = children.next().and_then(Pid::from_raw);
    child.expect("it has started one")
}

/// The kernel ends all that a container has with its first process.
#[test]
fn the_first_process_of_a_container_goes_on_serving() {
    require_root!();
    require_programs!("unshare");
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), clip(3.0)).unwrap();
    let mut command = testbed.snd.command("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", ONRUSH]);
    command.args(serve_arguments(media.path()));
    let site = Site::serve_by(testbed, media, command);
    kill_process(child_of(site.server.id()), Signal::USR2).unwrap();
    let line = site.server.wait_for_line("SIGUSR2", LONG);
    let line = line.unwrap_or_else(|| panic!("{}", site.server.log_tail()));
    assert!(line.contains("first of its container"), "{line}");
    let url = site.url("clip.ts");
    let answer = site.connect().request("DESCRIBE", &url, &[]);
    assert_eq!(answer.unwrap().status, 200);
}
