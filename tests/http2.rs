//! HTTP/2: curl gets what it gets by HTTP/1.1, and a client of our own that keeps no rules meets
//! each limit.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::media::age;
use onrush_testkit::require_programs;
use rustix::net::sockopt::set_socket_recv_buffer_size;

use download_site::{LONG, ONRUSH, Raw as Plain, Site, bytes, wait_for_log};

mod download_site;

const DEMO_MP4: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media/demo.mp4");
const DATA_BYTES: usize = 3_000_000;

/// A server with TLS, and where that is.
fn site(options: &[&str]) -> (Site, SocketAddr) {
    let all = ["--https=127.0.0.1:0", "--tls=self-signed"];
    let site = Site::new(&[&all, options].concat(), |root| {
        fs::copy(DEMO_MP4, root.join("demo.mp4")).unwrap();
        age(&root.join("demo.mp4")).unwrap();
        fs::write(root.join("data"), bytes(DATA_BYTES)).unwrap();
        fs::write(root.join("empty"), []).unwrap();
    });
    let line = site.server.wait_for_line("listening  https://", LONG);
    let line = line.unwrap();
    let address = line.rsplit("//").next().unwrap().trim_end_matches('/');
    let https = address.parse().unwrap();
    (site, https)
}

/// What curl gets.
fn curl(arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new("curl");
    let output = command.args(["-sSk"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output.stdout
}

/// The lines of a head that say something of what is answered, in small letters.
fn fields(head: &[u8]) -> Vec<String> {
    let head = String::from_utf8_lossy(head).to_lowercase();
    let lines = head.lines().skip(1).map(str::to_owned);
    let mut lines: Vec<_> = lines
        .filter(|it| !it.is_empty() && !it.starts_with("date:"))
        .collect();
    lines.sort();
    lines
}

#[test]
fn http_2_answers_as_http_1_does() {
    require_programs!("curl");
    let (_site, https) = site(&[]);
    let url = |path: &str| format!("https://{https}/{path}");
    let version = ["-o", "/dev/null", "-w", "%{http_version}", &url("data")];
    assert_eq!(curl(&version), b"2");
    assert_eq!(curl(&[&["--http1.1"], &version[..]].concat()), b"1.1");
    for (path, more) in [
        ("data", &[][..]),
        ("data", &["-I"]),
        ("data", &["-r", "1000-2000"]),
        ("data", &["-r", "0-0,2999990-"]),
        ("data", &["-r", "3000000-"]),
        ("data", &["-X", "DELETE"]),
        ("data", &["-X", "OPTIONS"]),
        ("data", &["-d", "some content"]),
        ("empty", &[]),
        ("none", &[]),
        ("", &["--compressed"]),
        ("demo.mp4/hls/index.m3u8", &["-H", "Accept-Encoding: gzip"]),
        ("demo.mp4/hls/video/index.m3u8", &[]),
        ("demo.mp4/hls/poster.mp4", &[]),
        ("demo.mp4/hls/index.html", &[]),
    ] {
        let url = url(path);
        let of = |version| curl(&[&[version, "-D-", "-o", "/dev/stderr", &*url], more].concat());
        let (one, two) = (of("--http1.1"), of("--http2"));
        assert!(two.starts_with(b"HTTP/2 "), "{path} {more:?}");
        assert_eq!(one[9..12], two[7..10], "{path} {more:?}");
        // Parts are separated by what is the same for all of a server's run.
        assert_eq!(fields(&one), fields(&two), "{path} {more:?}");
        if !more.contains(&"-I") {
            let of = |version| curl(&[&[version, &*url], more].concat());
            assert!(of("--http1.1") == of("--http2"), "{path} {more:?}");
        }
    }
}

#[test]
fn many_files_share_a_connection() {
    require_programs!("curl");
    let (site, https) = site(&[]);
    let url = format!("https://{https}/data");
    let mut arguments = vec!["-Z", "--parallel-max", "4"];
    arguments.extend(["-w", "%{num_connects} %{size_download} %{http_version}\\n"]);
    for _ in 0..8 {
        arguments.extend(["-o", "/dev/null", &url]);
    }
    let said = String::from_utf8(curl(&arguments)).unwrap();
    let lines: Vec<_> = said.lines().collect();
    let expected = |it: &&str| it.ends_with(&format!(" {DATA_BYTES} 2"));
    assert_eq!(lines.iter().filter(|it| expected(it)).count(), 8, "{said}");
    let opened = lines.iter().filter(|it| it.starts_with('1')).count();
    assert!(opened < 8, "{said}");
    // Without TLS, by prior knowledge. (curl 7.88 begins anew on a connection that it uses again.)
    let plain = ["--http2-prior-knowledge", &site.url("data")];
    assert!(curl(&plain) == bytes(DATA_BYTES));
}

const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// A client that sends whatever it is told (RFC 9113, section 4.1).
struct Raw(TcpStream);

struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Raw {
    fn connect(to: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .unwrap();
        Self(stream)
    }

    /// Whether it could be sent.
    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat()).is_ok()
    }

    /// A GET of this path.
    fn ask(&mut self, stream: u32, path: &str) -> bool {
        let length = u8::try_from(path.len()).unwrap();
        // :method GET, :scheme http, and, without an entry in the table, :path and :authority.
        let block = [&[0x82, 0x86, 4, length], path.as_bytes(), &[1, 1, b'h']].concat();
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &block)
    }

    /// The head of a PUT to this path, whose content is to follow.
    fn put(&mut self, stream: u32, path: &str) -> bool {
        self.put_with(stream, path, &[])
    }

    /// The same with these fields.
    fn put_with(&mut self, stream: u32, path: &str, fields: &[u8]) -> bool {
        let length = u8::try_from(path.len()).unwrap();
        // :method PUT, :scheme http, and, without an entry in the table, :path and :authority.
        let head = [&[2, 3], &b"PUT"[..], &[0x86, 4, length]].concat();
        let block = [&head[..], path.as_bytes(), &[1, 1, b'h'], fields].concat();
        self.send(HEADERS, END_HEADERS, stream, &block)
    }

    /// The fields of the next head on that stream, as they came.
    fn head(&mut self, stream: u32) -> Vec<u8> {
        loop {
            let frame = self.next().expect("the connection goes on");
            if (frame.kind, frame.stream) == (HEADERS, stream) {
                return frame.payload;
            }
        }
    }

    /// By how much the next frame opens the connection's window; `None` at the end.
    fn window_update(&mut self) -> Option<usize> {
        let frame = self.next()?;
        if frame.kind == SETTINGS && !frame.payload.is_empty() {
            // Before that no stream has the window that it says.
            self.send(SETTINGS, ACK, 0, &[]);
        }
        let is_of_all = (frame.kind, frame.stream) == (WINDOW_UPDATE, 0);
        let opened = frame.payload.first_chunk::<4>().filter(|_| is_of_all);
        Some(opened.map_or(0, |it| u32::from_be_bytes(*it) as usize))
    }

    /// What comes next; `None` at the end.
    fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.fill(&mut head)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |all, &it| all << 8 | u32::from(it));
        let mut payload = vec![0; number(&head[..3]) as usize];
        self.fill(&mut payload)?;
        Some(Frame {
            kind: head[3],
            stream: number(&head[5..]),
            payload,
        })
    }

    fn fill(&mut self, into: &mut [u8]) -> Option<()> {
        match self.0.read_exact(into) {
            Ok(()) => Some(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing comes"),
            Err(_) => None,
        }
    }

    /// The error of the next frame of that kind; `None` if the connection ends without one.
    fn error(&mut self, kind: u8) -> Option<u32> {
        loop {
            let frame = self.next()?;
            if frame.kind == kind {
                let last = &frame.payload[if kind == GOAWAY { 4 } else { 0 }..][..4];
                return Some(u32::from_be_bytes(last.try_into().unwrap()));
            }
        }
    }
}

#[test]
fn requests_taken_back_at_once_end_a_connection() {
    let (site, _) = site(&[]);
    let mut client = Raw::connect(site.http);
    client.send(SETTINGS, 0, 0, &[]);
    let mut all = Vec::new();
    for stream in (1..20_000).step_by(2) {
        all.push(stream);
    }
    for stream in all {
        let sent = client.ask(stream, "/data") && client.send(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        if !sent {
            break;
        }
    }
    // A reset of the connection may take what it said with it.
    let said = client.error(GOAWAY);
    assert!(matches!(said, None | Some(ENHANCE_YOUR_CALM)), "{said:?}");
    assert!(site.get("/data", "").status == 200);
}

#[test]
fn frames_that_ask_for_nothing_end_a_connection() {
    let (site, _) = site(&[]);
    for (kind, payload) in [(SETTINGS, &[][..]), (PING, &[0; 8])] {
        let mut client = Raw::connect(site.http);
        client.send(SETTINGS, 0, 0, &[]);
        // They are answered, so what comes must be read; what is sent the system may hold.
        let mut reader = Raw(client.0.try_clone().unwrap());
        let answered = thread::spawn(move || {
            let mut frames = 0;
            while reader.next().is_some() {
                frames += 1;
            }
            frames
        });
        for _ in 0..300_000 {
            if !client.send(kind, 0, 0, payload) {
                break;
            }
        }
        let answered = answered.join().unwrap();
        assert!((10_000..60_000).contains(&answered), "{kind}: {answered}");
    }
    assert!(site.get("/data", "").status == 200);
}

#[test]
fn long_heads_are_refused() {
    let (site, _) = site(&[]);
    // One that is too long is told so; the connection goes on.
    let mut client = Raw::connect(site.http);
    client.send(SETTINGS, 0, 0, &[]);
    let field = [&[0, 1, b'x', 127, 0xc1, 61][..], &[b'y'; 8000]].concat();
    let begin = [&[0x82, 0x86, 0x84][..], &field].concat();
    client.send(HEADERS, END_STREAM, 1, &begin);
    client.send(CONTINUATION, 0, 1, &field);
    client.send(CONTINUATION, END_HEADERS, 1, &field);
    let answer = loop {
        let frame = client.next().unwrap();
        if frame.stream == 1 {
            break frame;
        }
    };
    assert!(matches!(answer.kind, HEADERS | RST_STREAM));
    client.ask(3, "/empty");
    while client.next().unwrap().stream != 3 {}
    // One without an end ends the connection. What comes after that is read past for a moment.
    client.send(HEADERS, END_STREAM, 5, &begin);
    let parts = (0..100).take_while(|_| client.send(CONTINUATION, 0, 5, &field));
    assert!(parts.count() > 5);
    assert_eq!(client.error(GOAWAY), Some(ENHANCE_YOUR_CALM));
    assert!(site.get("/data", "").status == 200);
}

#[test]
fn no_more_requests_are_answered_at_once_than_may_be() {
    let (site, _) = site(&["--download-streams-max=2"]);
    let mut client = Raw::connect(site.http);
    // No window, so that no answer ends.
    client.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for stream in [1, 3, 5] {
        client.ask(stream, "/data");
    }
    let refused = loop {
        let frame = client.next().unwrap();
        if frame.kind == RST_STREAM {
            break frame;
        }
    };
    assert_eq!(
        (refused.stream, refused.payload),
        (5, REFUSED_STREAM.to_be_bytes().to_vec())
    );
}

#[test]
fn the_last_request_ends_a_connection() {
    let (site, _) = site(&["--download-requests-max=2"]);
    let mut client = Raw::connect(site.http);
    client.send(SETTINGS, 0, 0, &[]);
    client.ask(1, "/empty");
    while client.next().unwrap().stream != 1 {}
    client.ask(3, "/empty");
    assert_eq!(client.error(GOAWAY), Some(0));
}

#[test]
fn a_client_that_takes_nothing_is_let_go() {
    let (site, _) = site(&["--download-stall-time-max=500ms"]);
    let mut client = Raw::connect(site.http);
    client.send(SETTINGS, 0, 0, &[]);
    client.ask(1, "/data");
    // What the window allows is not all.
    assert_eq!(client.error(RST_STREAM), Some(INTERNAL_ERROR));
    // One that leaves the socket full.
    let mut client = Raw::connect(site.http);
    client.send(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    client.send(8, 0, 0, &[0x7f, 0, 0, 0]);
    for stream in 0..40 {
        client.ask(2 * stream + 1, "/data");
    }
    thread::sleep(Duration::from_secs(3));
    let mut bytes = 0;
    while let Some(frame) = client.next() {
        bytes += frame.payload.len();
    }
    assert!(bytes < 40 * DATA_BYTES);
}

/// Each stream may wait with 64 KiB: 4 MB for such a connection, if that were the only bound.
#[test]
fn a_client_that_reads_nothing_holds_little_memory() {
    let (site, _) = site(&[]);
    let connect = || {
        let mut client = Raw::connect(site.http);
        // Little of it is left in the sockets.
        set_socket_recv_buffer_size(&client.0, 4096).unwrap();
        client.send(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        client.send(8, 0, 0, &[0x7f, 0, 0, 0]);
        for stream in 0..64 {
            client.ask(2 * stream + 1, "/data");
        }
        client
    };
    let resident = || site.server.holdings().unwrap().resident_bytes;
    // What the first ones take is for all.
    let mut clients = vec![connect()];
    let files = || site.server.holdings().unwrap().sockets;
    thread::sleep(Duration::from_secs(1));
    let (before, sockets) = (resident(), files());
    clients.extend((0..20).map(|_| connect()));
    thread::sleep(Duration::from_secs(2));
    assert_eq!(files(), sockets + 20);
    let each = resident().saturating_sub(before) / 20;
    assert!(each < 1 << 20, "{each} bytes for a connection");
    // Streams take turns, so that none waits for another's end.
    let client = &mut clients[0];
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 64 {
        let frame = client.next().expect("the connection goes on");
        seen.extend((frame.kind == 0).then_some(frame.stream));
    }
}

/// A folder of that name, of so many files with long names.
fn fill(site: &Site, folder: &str, files: usize) {
    fs::create_dir(site.path(folder)).unwrap();
    for number in 0..files {
        let name = format!("{number}-{}.ts", "long".repeat(40));
        fs::write(site.path(folder).join(name), []).unwrap();
    }
}

/// A client that has asked for a page 96 times and takes none of it, and how many it was granted.
fn ask_for_pages(site: &Site, path: &str) -> (Raw, u64) {
    let mut client = Raw::connect(site.http);
    // No stream has a window.
    client.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for stream in 0..96 {
        client.ask(2 * stream + 1, path);
    }
    let (mut answered, mut pages) = (0, 0);
    while answered < 96 {
        let frame = client.next().expect("the connection goes on");
        answered += u32::from(frame.kind == HEADERS);
        // ":status: 200" has the number 8 (RFC 7541, appendix A); others get 503.
        pages += u64::from(frame.kind == HEADERS && frame.payload[0] == 0x88);
    }
    (client, pages)
}

/// Each page is some hundreds of KiB; what a client asks for and does not take stays in memory.
#[test]
fn pages_that_nobody_reads_hold_little_memory() {
    // What a connection before holds still is not to count.
    let (site, _) = site(&["--download-connections-per-address-max=16384"]);
    fill(&site, "many", 1000);
    let page = site.get("/many/", "");
    let page_bytes = page.body.len() as u64;
    assert!(
        page.status == 200 && 96 * page_bytes > 64 << 20,
        "{page_bytes}"
    );
    let resident = || site.server.holdings().unwrap().resident_bytes;
    let ask = || {
        let (client, pages) = ask_for_pages(&site, "/many/");
        let most = 32 << 20;
        let is_bounded = (most..most + page_bytes).contains(&(pages * page_bytes));
        assert!(is_bounded, "{pages} pages");
        client
    };
    // The threads that read folders keep some, whoever asks first.
    drop(ask());
    let before = resident();
    let _client = ask();
    let held = resident().saturating_sub(before);
    assert!(held < 60 << 20, "{held} bytes, of pages of {page_bytes}");
    // Another's are its own.
    assert_eq!(site.get("/many/", "").status, 200);
}

/// Of what all may hold, 256 MiB: so that others have what they ask for.
#[test]
fn an_address_holds_a_quarter_of_all_by_whatever_protocol() {
    let (site, _) = site(&[]);
    fill(&site, "many", 1000);
    fill(&site, "few", 20);
    let page_bytes = site.get("/many/", "").body.len() as u64;
    let mut held: Vec<_> = (0..3).map(|_| ask_for_pages(&site, "/many/")).collect();
    let bytes = held
        .iter()
        .map(|(_, pages)| pages * page_bytes)
        .sum::<u64>();
    assert!((60 << 20..66 << 20).contains(&bytes), "{bytes}");
    // What is too little for one of these pages.
    held.push(ask_for_pages(&site, "/few/"));
    assert_eq!(site.get("/many/", "").status, 503);
    let mut ftp = Plain::connect(site.ftp);
    assert_eq!(ftp.reply().0, 220);
    for (line, code) in [
        ("USER anonymous", 331),
        ("PASS a@b", 230),
        ("EPSV", 229),
        ("LIST many", 450),
    ] {
        assert_eq!(ftp.command(line), code, "{line}");
    }
    drop(held);
    let give_up = Instant::now() + LONG;
    while ftp.command("LIST many") == 450 {
        assert!(Instant::now() < give_up, "it has no room again");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A file goes from the disk to the client: however much of it is asked for, none of it is counted.
#[test]
fn files_are_answered_whatever_waits_in_memory() {
    let (site, _) = site(&[]);
    let mut client = Raw::connect(site.http);
    client.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for stream in 0..96 {
        client.ask(2 * stream + 1, "/data");
    }
    for _ in 0..96 {
        let head = loop {
            let frame = client.next().expect("the connection goes on");
            if frame.kind == HEADERS {
                break frame;
            }
        };
        // 200 is an entry of the table (RFC 7541, appendix A).
        assert_eq!(head.payload[0], 0x88);
    }
}

/// What a client had on its way when its PUT was refused is no offence of its.
#[test]
fn refused_uploads_leave_a_connection_open() {
    const CONTENT_BYTES: usize = 512 << 10;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    fs::write(&file, "group everybody play,download /**\n").unwrap();
    let users = format!("--users={}", file.display());
    let (site, _) = site(&["--uploads", &users]);
    let mut client = Raw::connect(site.http);
    client.send(SETTINGS, 0, 0, &[]);
    let mut window = 65_535;
    let chunk = vec![0; 16 << 10];
    for stream in (1..24).step_by(2) {
        while window < CONTENT_BYTES {
            window += client.window_update().expect("the connection goes on");
        }
        client.put(stream, "/x");
        for _ in 0..CONTENT_BYTES / chunk.len() {
            assert!(client.send(DATA, 0, stream, &chunk), "{stream}");
        }
        window -= CONTENT_BYTES;
    }
    client.ask(25, "/data");
    loop {
        let frame = client.next().expect("the connection goes on");
        if (frame.kind, frame.stream) == (HEADERS, 25) {
            break;
        }
    }
}

/// A field without an entry in the table.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let [name_bytes, value_bytes] = [name, value].map(|it| u8::try_from(it.len()).unwrap());
    let name = [&[0, name_bytes], name.as_bytes()].concat();
    [&name[..], &[value_bytes], value.as_bytes()].concat()
}

/// A server that takes files of ulla, and the field by which it knows who that is.
fn uploads(folder: &Path, options: &[&str]) -> (Site, Vec<u8>) {
    let file = folder.join("users");
    let name = file.to_str().unwrap();
    let mut add = Command::new(ONRUSH);
    add.args(["user", "add", name, "ulla", "--groups=crew"]);
    let piped = add.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + "group crew upload /**\n").unwrap();
    let users = format!("--users={name}");
    let all = ["--uploads", "--upload-free-min=0B", &users];
    let (site, _) = site(&[&all, options].concat());
    (site, literal("authorization", "Basic dWxsYTpzZWNyZXQ="))
}

/// Some wait for it without an end (RFC 9110, section 10.1.1).
#[test]
fn a_client_that_waits_for_it_is_told_to_go_on() {
    // ":status: 100", "401" and "413" (RFC 7541, section 6.2.1 and appendix B).
    const CONTINUE: [u8; 4] = [0x48, 0x82, 0x08, 0x01];
    const UNAUTHORIZED: [u8; 4] = [0x48, 0x82, 0x68, 0x01];
    const TOO_LARGE: [u8; 5] = [0x48, 0x83, 0x68, 0x2c, 0xff];
    let folder = tempfile::tempdir().unwrap();
    let (site, of_ulla) = uploads(folder.path(), &[]);
    let expects = literal("expect", "100-continue");
    let content = bytes(1000);
    let connect = |to| {
        let mut client = Raw::connect(to);
        client.send(SETTINGS, 0, 0, &[]);
        client
    };
    let mut client = connect(site.http);
    client.put_with(1, "/new", &[&expects[..], &of_ulla].concat());
    assert_eq!(client.head(1), CONTINUE);
    client.send(DATA, END_STREAM, 1, &content);
    client.head(1);
    assert_eq!(fs::read(site.path("new")).unwrap(), content);
    // Of whom nothing is taken nothing is asked for.
    let mut client = connect(site.http);
    client.put_with(1, "/other", &expects);
    assert!(client.head(1).starts_with(&UNAUTHORIZED));
    // What is read past, as by HTTP/1.1, must be sent before.
    let plain = Site::plain(&[]);
    let mut client = connect(plain.http);
    client.put_with(1, "/new", &expects);
    assert_eq!(client.head(1), CONTINUE);
    client.send(DATA, END_STREAM, 1, &content);
    client.head(1);
    // What says itself that it is too long is not asked for.
    let mut client = connect(plain.http);
    let length = literal("content-length", "100000");
    client.put_with(1, "/new", &[&expects[..], &length].concat());
    assert!(client.head(1).starts_with(&TOO_LARGE));
}

/// One that is taken back, and one whose connection ends.
#[test]
fn uploads_that_end_early_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let option = format!("--access-log={}", log.display());
    let (site, of_ulla) = uploads(folder.path(), &[&option]);
    let fields = [&literal("expect", "100-continue")[..], &of_ulla].concat();
    let mut client = Raw::connect(site.http);
    client.send(SETTINGS, 0, 0, &[]);
    for (stream, path) in [(1, "/a"), (3, "/b")] {
        client.put_with(stream, path, &fields);
        client.head(stream);
    }
    client.send(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    wait_for_log(&log, "\"PUT /a HTTP/2.0\" 400 0 ", 1);
    drop(client);
    wait_for_log(&log, "\"PUT /b HTTP/2.0\" 400 0 ", 1);
}

#[test]
fn a_silent_connection_is_closed() {
    let (site, _) = site(&[
        "--download-idle-time-max=2s",
        "--download-stall-time-max=2s",
    ]);
    let mut client = Raw::connect(site.http);
    client.send(SETTINGS, 0, 0, &[]);
    assert_eq!(client.error(GOAWAY), Some(0));
    while client.next().is_some() {}
    // So is one that does not even say that it speaks HTTP/2.
    let mut client = Raw::connect(site.http);
    while client.next().is_some() {}
}
