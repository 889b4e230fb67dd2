//! Files that come by HTTP and FTP: the rows of the tables in docs/uploads.md, byte by byte and by
//! other people's programs.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use onrush_server::admin::status::{Downloads, Status};
use onrush_testkit::http_client::Response;
use onrush_testkit::{require_programs, require_root};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use common::DEMO;
use download_site::{
    FILM_MODIFIED_S, LONG, ONRUSH, Raw, Site, Tokens, bytes, set_modified, wait_for_log,
};

mod common;
mod download_site;

/// A server that takes files of ulla and of uwe, and none of anna, who may read.
struct Uploads {
    site: Site,
    metrics: SocketAddr,
    _folder: TempDir,
}

impl std::ops::Deref for Uploads {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

fn users_file(folder: &Path) -> String {
    let file = folder.join("users");
    let name = file.to_str().unwrap().to_owned();
    for (user, group) in [("ulla", "crew"), ("uwe", "crew"), ("anna", "viewers")] {
        let group = format!("--groups={group}");
        let mut add = Command::new(ONRUSH);
        add.args(["user", "add", &name, user, &group])
            .stdin(Stdio::piped());
        let mut child = add.stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let text = fs::read_to_string(&file).unwrap();
    let rights = "group everybody play,download /**\ngroup crew upload /**\n";
    fs::write(&file, text + rights).unwrap();
    name
}

fn uploads(options: &[&str]) -> Uploads {
    uploads_leaving("0B", options)
}

/// The same, with so much of the disk to be left free.
fn uploads_leaving(free: &str, options: &[&str]) -> Uploads {
    let folder = tempfile::tempdir().unwrap();
    let users = format!("--users={}", users_file(folder.path()));
    let all = [
        "--uploads",
        &format!("--upload-free-min={free}"),
        "--metrics=127.0.0.1:0",
        &users,
    ];
    let site = Site::plain(&[&all, options].concat());
    let line = site.server.wait_for_line("/metrics", LONG).unwrap();
    let address = line.split("http://").nth(1).unwrap();
    let metrics = address.split('/').next().unwrap().parse().unwrap();
    Uploads {
        site,
        metrics,
        _folder: folder,
    }
}

impl Uploads {
    fn counted(&self) -> Downloads {
        let status = Raw::connect(self.metrics)
            .request("GET", "/status", "")
            .body;
        let status: Status = serde_json::from_slice(&status).unwrap();
        status.downloads.unwrap()
    }

    fn put(&self, name: &str, lines: &str, content: &[u8]) -> Response {
        let mut raw = self.connect();
        let length = content.len();
        let basic = basic("ulla");
        raw.send(format!(
            "PUT /{name} HTTP/1.1\r\nHost: h\r\n{basic}Content-Length: {length}\r\n{lines}\r\n"
        ));
        raw.send(content);
        raw.response(false)
    }

    fn request(&self, method: &str, name: &str, lines: &str) -> Response {
        let lines = format!("{}{lines}", basic("ulla"));
        self.connect().request(method, &format!("/{name}"), &lines)
    }

    /// Names in a folder that begin with a dot: what is not whole.
    fn leftovers(&self, folder: &str) -> usize {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let names = entries.map(|it| it.unwrap().file_name());
        names
            .filter(|it| it.as_encoded_bytes().starts_with(b"."))
            .count()
    }

    /// Waits until that many uploads have been broken off.
    fn broken(&self, count: u64) {
        let began = Instant::now();
        while self.counted().uploads_broken < count {
            assert!(began.elapsed() < LONG, "no upload was broken off");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn log_in(&self, user: &str) -> Raw {
        log_in(self.ftp, user, "secret")
    }
}

fn log_in(ftp: SocketAddr, user: &str, password: &str) -> Raw {
    let mut raw = Raw::connect(ftp);
    assert_eq!(raw.reply().0, 220);
    assert_eq!(raw.command(&format!("USER {user}")), 331);
    assert_eq!(raw.command(&format!("PASS {password}")), 230);
    raw
}

fn basic(user: &str) -> String {
    let both = STANDARD.encode(format!("{user}:secret"));
    format!("Authorization: Basic {both}\r\n")
}

fn field<'a>(response: &'a Response, name: &str) -> &'a str {
    let value = response.header(name);
    value.unwrap_or_else(|| panic!("no {name} in {response:?}"))
}

/// Runs a program, which must end well.
fn well(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// Where EPSV says to connect to.
fn passive(raw: &mut Raw) -> TcpStream {
    raw.send("EPSV\r\n");
    let (code, text) = raw.reply();
    assert_eq!(code, 229, "{text}");
    let port = text.split('|').nth(3).unwrap().parse::<u16>().unwrap();
    TcpStream::connect(("127.0.0.1", port)).unwrap()
}

/// Sends on a data connection; the last reply.
fn store(raw: &mut Raw, command: &str, content: &[u8]) -> u16 {
    let mut data = passive(raw);
    assert_eq!(raw.command(command), 150, "{command}");
    data.write_all(content).unwrap();
    drop(data);
    raw.reply().0
}

#[test]
fn a_put_file_is_there_whole_and_at_once() {
    let site = uploads(&[]);
    let film = fs::read(DEMO).unwrap();
    assert_eq!(site.get("/new/film.ts", "").status, 404);
    let created = site.put("new/film.ts", "", &film);
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(field(&created, "Location"), "./film.ts");
    let got = site.get("/new/film.ts", "");
    assert!(got.body == film);
    assert_eq!(field(&got, "ETag"), field(&created, "ETag"));
    // The library has it, and so has the folder's page.
    let mut rtsp = TcpStream::connect(site.rtsp).unwrap();
    let url = site.rtsp_url("new/film.ts");
    write!(rtsp, "DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    rtsp.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"RTSP/1.0 200");
    assert!(
        String::from_utf8(site.get("/new/", "").body)
            .unwrap()
            .contains("film.ts")
    );
    // Who reads the old one gets all of it.
    let mut reader = site.connect();
    reader.send("GET /new/film.ts HTTP/1.1\r\nHost: h\r\n\r\n");
    let replaced = site.put("new/film.ts", "", b"other");
    assert_eq!(replaced.status, 204);
    assert!(reader.response(false).body == film);
    assert_eq!(site.get("/new/film.ts", "").body, b"other");
    assert_eq!(site.leftovers("new"), 0);
    // In chunks, and empty.
    let mut raw = site.connect();
    raw.send(format!(
        "PUT /chunks HTTP/1.1\r\nHost: h\r\n{}Transfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\nGET /chunks HTTP/1.1\r\nHost: h\r\n\r\n",
        basic("ulla")
    ));
    assert_eq!(raw.response(false).status, 201);
    assert_eq!(raw.response(false).body, b"abcde");
    assert_eq!(site.put("empty-too", "", b"").status, 201);
    assert_eq!(fs::read(site.path("empty-too")).unwrap(), b"");
    assert_eq!(site.counted().uploads, 4);
}

// SPECIFICATION.md: 69
#[test]
fn nobody_stores_without_the_right_to() {
    let site = uploads(&[]);
    let ask = |method: &str, lines: &str| {
        let lines = format!("Content-Length: 0\r\n{lines}");
        let status = site.connect().request(method, "/film.ts", &lines).status;
        assert_eq!(fs::read(site.path("film.ts")).unwrap(), bytes(100_000));
        status
    };
    for method in ["PUT", "DELETE"] {
        assert_eq!(ask(method, ""), 401);
        assert_eq!(ask(method, &basic("anna")), 403);
        assert_eq!(ask(method, &basic("nobody")), 401);
    }
    // Anonymous may read, and no more; nor may a user without the right.
    let mut anonymous = Raw::connect(site.ftp);
    assert_eq!(anonymous.reply().0, 220);
    assert_eq!(anonymous.command("USER anonymous"), 331);
    assert_eq!(anonymous.command("PASS x"), 230);
    let mut anna = site.log_in("anna");
    for (raw, code) in [(&mut anonymous, 532), (&mut anna, 550)] {
        for line in [
            "STOR film.ts",
            "APPE film.ts",
            "DELE film.ts",
            "MKD x",
            "RMD folder",
        ] {
            assert_eq!(raw.command(line), code, "{line}");
        }
        for line in ["RNFR film.ts", "MFMT 20200101000000 film.ts"] {
            assert_eq!(raw.command(line), code, "{line}");
        }
    }
    // Nothing outside, nothing hidden.
    std::os::unix::fs::symlink("..", site.path("out")).unwrap();
    for name in ["out/x", ".hidden", "folder/.x"] {
        assert_eq!(site.put(name, "", b"x").status, 403, "{name}");
    }
    assert_eq!(site.put("folder", "", b"x").status, 409);
    assert_eq!(site.put("film.ts/x", "", b"x").status, 409);
    let mut ulla = site.log_in("ulla");
    for (line, code) in [("STOR out/x", 553), ("STOR .x", 553), ("STOR none/x", 550)] {
        assert_eq!(ulla.command(line), code, "{line}");
    }
    assert!(!site.media.path().join("x").exists());
    // Without the option nobody can, whatever the users' file says.
    let folder = tempfile::tempdir().unwrap();
    let users = format!("--users={}", users_file(folder.path()));
    let off = Site::plain(&[&users]);
    let lines = format!("Content-Length: 0\r\n{}", basic("ulla"));
    let answer = off.connect().request("PUT", "/x", &lines);
    assert_eq!(answer.status, 405);
    assert_eq!(field(&answer, "Allow"), "GET, HEAD, OPTIONS");
    let output = Command::new(ONRUSH)
        .args(["serve", "--uploads", "--state=off"])
        .arg(off.path("."))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--users FILE"), "{said}");
}

/// Who opens it may have credentials here, and whoever sent it wants them.
#[test]
fn pages_that_somebody_sent_run_no_scripts() {
    let site = uploads(&[]);
    for (name, is_page) in [
        ("a.html", true),
        ("b.SVG", true),
        ("c.xml", true),
        ("d.mpd", true),
        ("e.ts", false),
        ("f.txt", false),
    ] {
        assert_eq!(site.put(name, "", b"<script/>").status, 201);
        let got = site.get(&format!("/{name}"), "");
        let policy = got.header("Content-Security-Policy");
        assert_eq!(policy, is_page.then_some("sandbox"), "{name}");
    }
    // The operator's own, where nobody sends any, stay what they are.
    let off = Site::new(&[], |root| fs::write(root.join("a.html"), b"<p>").unwrap());
    let got = off.get("/a.html", "");
    assert_eq!(
        (got.status, got.header("Content-Security-Policy")),
        (200, None)
    );
}

// SPECIFICATION.md: 68
#[test]
fn what_was_broken_off_is_seen_by_nobody_and_gone_on_with() {
    let site = uploads(&[]);
    let film = bytes(300_000);
    let mut raw = site.connect();
    raw.send(format!(
        "PUT /a.ts HTTP/1.1\r\nHost: h\r\n{}Content-Length: 300000\r\nExpect: 100-continue\r\n\r\n",
        basic("ulla")
    ));
    assert_eq!(raw.response(false).status, 100);
    raw.send(&film[..100_000]);
    // Somebody else's does not begin meanwhile, for the same user.
    let busy = || site.request("PUT", "a.ts", "Content-Length: 0\r\n").status;
    assert_eq!(busy(), 503);
    drop(raw);
    site.broken(1);
    assert_eq!(site.get("/a.ts", "").status, 404);
    assert!(
        !String::from_utf8(site.get("/", "").body)
            .unwrap()
            .contains("upload")
    );
    assert_eq!(site.leftovers("."), 1);
    let head = site.request("HEAD", "a.ts", "");
    assert_eq!((head.status, field(&head, "Upload-Offset")), (200, "99999"));
    assert_eq!(field(&head, "Content-Length"), "99999");
    let of_uwe = site.connect().request("HEAD", "/a.ts", &basic("uwe"));
    assert_eq!(of_uwe.status, 404, "it is not his");
    let part = |first: usize, last: usize| {
        let lines = format!("Content-Range: bytes {first}-{last}/300000\r\n");
        site.put("a.ts", &lines, &film[first..=last])
    };
    let wrong = part(200_000, 299_999);
    assert_eq!(
        (wrong.status, field(&wrong, "Upload-Offset")),
        (409, "100000")
    );
    // A middle part, over what was there already.
    let middle = part(50_000, 199_999);
    assert_eq!(
        (middle.status, field(&middle, "Upload-Offset")),
        (202, "200000")
    );
    assert_eq!(site.get("/a.ts", "").status, 404);
    assert_eq!(part(200_000, 299_999).status, 201);
    assert!(site.get("/a.ts", "").body == film);
    assert_eq!(site.leftovers("."), 0);
    // What is whole is gone on with, too, and stays whole meanwhile.
    let longer = site.put(
        "a.ts",
        "Content-Range: bytes 300000-300002/300003\r\n",
        b"end",
    );
    assert_eq!(longer.status, 204);
    assert_eq!(site.get("/a.ts", "").body, [&film, &b"end"[..]].concat());
}

/// Some programs send all before they read an answer.
#[test]
fn whoever_sends_on_hears_why_not() {
    let site = uploads(&[]);
    let content = bytes(3_200_000);
    let mut raw = site.connect();
    raw.send(format!(
        "PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        content.len()
    ));
    for piece in content.chunks(200_000) {
        raw.send(piece);
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(raw.response(false).status, 401);
    assert!(raw.is_closed());
}

#[test]
fn what_is_there_is_replaced_as_the_conditions_say() {
    let site = uploads(&[]);
    let etag = field(&site.get("/film.ts", ""), "ETag").to_owned();
    for (name, lines, status) in [
        ("film.ts", "If-None-Match: *\r\n", 412),
        ("film.ts", "If-Match: \"x\"\r\n", 412),
        ("none", "If-Match: *\r\n", 412),
        ("film.ts", &format!("If-Match: {etag}\r\n"), 204),
        ("film.ts", &format!("If-Match: {etag}\r\n"), 412),
        ("none", "If-None-Match: *\r\n", 201),
    ] {
        assert_eq!(
            site.put(name, lines, b"new").status,
            status,
            "{name} {lines}"
        );
    }
    assert_eq!(
        site.put("x", "Content-Encoding: gzip\r\n", b"x").status,
        415
    );
    assert_eq!(site.request("PUT", "x", "").status, 411);
    assert_eq!(
        site.request("DELETE", "film.ts", "If-Match: \"x\"\r\n")
            .status,
        412
    );
    assert_eq!(site.request("DELETE", "film.ts", "").status, 204);
    assert_eq!(site.request("DELETE", "film.ts", "").status, 404);
    assert_eq!(site.request("DELETE", "folder", "").status, 409);
    assert_eq!(site.get("/film.ts", "").status, 404);
    let options = site.request("OPTIONS", "", "");
    assert_eq!(field(&options, "Allow"), "GET, HEAD, OPTIONS, PUT, DELETE");
}

#[test]
fn ftp_stores_goes_on_and_changes() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let site = uploads(&[&format!("--access-log={}", log.display())]);
    let film = bytes(300_000);
    let mut raw = site.log_in("ulla");
    assert_eq!(store(&mut raw, "STOR a.ts", &film), 226);
    assert!(fs::read(site.path("a.ts")).unwrap() == film);
    assert_eq!(store(&mut raw, "STOR a.ts", b"12345"), 226);
    assert_eq!(raw.command("REST 3"), 350);
    assert_eq!(store(&mut raw, "STOR a.ts", b"678"), 226);
    assert_eq!(store(&mut raw, "APPE a.ts", b"9"), 226);
    assert_eq!(store(&mut raw, "APPE new", b"new"), 226);
    assert_eq!(fs::read(site.path("a.ts")).unwrap(), b"1236789");
    assert_eq!(fs::read(site.path("new")).unwrap(), b"new");
    assert_eq!(raw.command("REST 8"), 350);
    assert_eq!(raw.command("STOR a.ts"), 554);
    // Less than was announced is not the whole.
    assert_eq!(raw.command("ALLO 10"), 200);
    assert_eq!(store(&mut raw, "STOR b", b"12345"), 426);
    // The last byte comes again: who has no more to send goes on, too.
    raw.send("SIZE b\r\n");
    assert_eq!(raw.reply().1, "213 4\r\n");
    assert_eq!(site.log_in("uwe").command("SIZE b"), 550);
    assert!(!site.path("b").exists());
    assert_eq!(raw.command("ALLO 6"), 200);
    assert_eq!(store(&mut raw, "APPE b", b"567890"), 226);
    assert_eq!(fs::read(site.path("b")).unwrap(), b"1234567890");
    // Aborted, and killed: both ends of the control connection are the end.
    let mut data = passive(&mut raw);
    assert_eq!(raw.command("STOR c"), 150);
    data.write_all(b"123").unwrap();
    raw.send("ABOR\r\n");
    assert_eq!((raw.reply().0, raw.reply().0), (426, 226));
    let mut killed = site.log_in("uwe");
    let mut data = passive(&mut killed);
    assert_eq!(killed.command("STOR c"), 150);
    data.write_all(b"123").unwrap();
    drop(killed);
    drop(data);
    site.broken(3);
    assert!(!site.path("c").exists());
    wait_for_log(&log, "\"STOR /c FTP\" 426 ", 2);
    for (line, code) in [
        ("MKD x", 257),
        ("MKD x", 550),
        ("RNFR new", 350),
        ("RNTO x/new", 250),
        ("MFMT 19941106084937 x/new", 213),
        ("RMD x", 550),
        ("DELE x", 550),
        ("DELE x/new", 250),
        ("RMD x", 250),
        ("RNFR none", 550),
        ("SITE CHMOD 644 a.ts", 502),
    ] {
        assert_eq!(raw.command(line), code, "{line}");
        if line.starts_with("MFMT") {
            raw.send("MDTM x/new\r\n");
            assert_eq!(raw.reply().1, "213 19941106084937\r\n");
        }
    }
}

/// Who does not care for the result need not stay to hear it (RFC 959, section 4.1.1).
#[test]
fn who_quits_behind_its_data_has_sent_all() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let site = uploads(&[&format!("--access-log={}", log.display())]);
    for (name, quits_first) in [("a", false), ("b", true)] {
        let mut raw = site.log_in("ulla");
        let mut data = passive(&mut raw);
        assert_eq!(raw.command(&format!("STOR {name}")), 150);
        if quits_first {
            raw.send("QUIT\r\n");
        }
        data.write_all(b"123").unwrap();
        drop(data);
        if !quits_first {
            raw.send("QUIT\r\n");
        }
        drop(raw);
        wait_for_log(&log, &format!("\"STOR /{name} FTP\" 226 3 "), 1);
        assert_eq!(fs::read(site.path(name)).unwrap(), b"123");
    }
}

#[test]
fn uploads_that_are_broken_off_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let site = uploads(&[&format!("--access-log={}", log.display())]);
    let mut raw = site.connect();
    raw.send(format!(
        "PUT /a.ts HTTP/1.1\r\nHost: h\r\n{}Transfer-Encoding: chunked\r\n\r\n186a0\r\n",
        basic("ulla")
    ));
    raw.send(bytes(100_000));
    drop(raw);
    wait_for_log(&log, "\"PUT /a.ts HTTP/1.1\" 400 100000 ", 1);
}

#[test]
fn a_folder_that_stays_keeps_what_was_broken_off() {
    let site = uploads(&[]);
    let mut raw = site.log_in("ulla");
    assert_eq!(raw.command("ALLO 10"), 200);
    assert_eq!(store(&mut raw, "STOR folder/b", b"12345"), 426);
    assert_eq!(site.leftovers("folder"), 1);
    let mut other = site.log_in("uwe");
    assert_eq!(other.command("RMD folder"), 550);
    assert_eq!(site.leftovers("folder"), 1);
    raw.send("SIZE folder/b\r\n");
    assert_eq!(raw.reply().1, "213 4\r\n");
    // With nothing else in it the folder goes.
    assert_eq!(other.command("DELE folder/a b#%ü.ts"), 250);
    assert_eq!(other.command("RMD folder"), 250);
    assert!(!site.path("folder").exists());
}

/// A service that allows everything to whoever knows the password.
fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut asked = String::new();
            while !asked.ends_with('}') {
                let mut bytes = [0; 4096];
                let count = socket.read(&mut bytes).unwrap();
                assert!(count > 0, "{asked}");
                asked += &String::from_utf8_lossy(&bytes[..count]);
            }
            let status = match asked.contains(r#""password":"secret""#) {
                true => "200 OK",
                false => "401 Unauthorized",
            };
            let head = "Content-Length: 0\r\nConnection: close\r\n\r\n";
            write!(socket, "HTTP/1.1 {status}\r\n{head}").unwrap();
        }
    });
    address
}

/// By FTP a password that only the service knows is looked at with the first thing that is asked.
#[test]
fn what_was_broken_off_is_told_to_nobody_who_guesses() {
    let site = uploads(&[&format!("--auth-hook=http://{}/may", service())]);
    let mut raw = site.log_in("carla");
    assert_eq!(raw.command("ALLO 10"), 200);
    assert_eq!(store(&mut raw, "STOR b", b"12345"), 426);
    assert_eq!(log_in(site.ftp, "carla", "guess").command("SIZE b"), 550);
    raw.send("SIZE b\r\n");
    assert_eq!(raw.reply().1, "213 4\r\n");
}

#[test]
fn whoever_may_only_store_gets_to_the_folder() {
    require_programs!("curl");
    let folder = tempfile::tempdir().unwrap();
    let users = users_file(folder.path());
    let text = fs::read_to_string(&users).unwrap();
    let text = text.replace("everybody", "viewers");
    let text = text.replace("upload /**", "upload /folder/*");
    fs::write(&users, text).unwrap();
    let users = format!("--users={users}");
    let site = Site::plain(&["--uploads", "--upload-free-min=0B", &users]);
    fs::create_dir(site.path("other")).unwrap();
    let mut raw = log_in(site.ftp, "ulla", "secret");
    for (line, code) in [
        ("CWD other", 550),
        ("CWD folder/none", 550),
        ("CWD film.ts", 550),
        ("CWD folder", 250),
        ("MLSD", 550),
        ("RETR a b#%ü.ts", 550),
        ("CWD ..", 550),
    ] {
        assert_eq!(raw.command(line), code, "{line}");
    }
    let film = folder.path().join("film");
    fs::write(&film, bytes(1000)).unwrap();
    let mut curl = Command::new("curl");
    curl.args(["-sSf", "--max-time", "60", "-u", "ulla:secret", "-T"]);
    well(curl.arg(&film).arg(site.ftp_url("folder/")));
    assert!(fs::read(site.path("folder/film")).unwrap() == bytes(1000));
}

/// A right to store would be one to read what others have stored beside it.
#[test]
fn nothing_is_renamed_to_where_it_could_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let users = users_file(folder.path());
    let text = fs::read_to_string(&users).unwrap();
    let rights = "everybody play,download /films/**\ngroup everybody play /shown/**\n\
                  group everybody play /*.film\ngroup everybody play,download /clips/*.mp4";
    let text = text.replace("everybody play,download /**", rights);
    fs::write(&users, text).unwrap();
    let users = format!("--users={users}");
    let site = Site::plain(&["--uploads", "--upload-free-min=0B", &users]);
    for name in ["in", "films", "shown", "x.film", "clips"] {
        fs::create_dir(site.path(name)).unwrap();
    }
    for name in [
        "in/a.mp4",
        "in/a.srt",
        "films/b.mp4",
        "films/c.mp4",
        "films/c.srt",
    ] {
        fs::write(site.path(name), name).unwrap();
    }
    let mut raw = log_in(site.ftp, "ulla", "secret");
    for (from, to, code) in [
        ("in/a.mp4", "films/a.mp4", 550),
        ("in/a.mp4", "shown/a.mp4", 550),
        // Who may play a film plays what is in its folder.
        ("in/a.mp4", "x.film/a.mp4", 550),
        ("films/c.mp4", "x.film/c.mp4", 250),
        // Who has the plain file is sent the one beside it, and its subtitles.
        ("in/a.mp4", "clips/x.mp4.gz", 550),
        ("in/a.srt", "clips/x.en.srt", 550),
        ("films/c.srt", "clips/x.en.srt", 250),
        ("in/a.srt", "in/b.srt", 250),
        ("in/a.mp4", "in/new.mp4", 250),
        ("films/b.mp4", "films/new.mp4", 250),
        ("films/new.mp4", "shown/b.mp4", 250),
        ("shown/b.mp4", "films/b.mp4", 550),
        ("shown/b.mp4", "in/b.mp4", 250),
    ] {
        assert_eq!(raw.command(&format!("RNFR {from}")), 350, "{from}");
        assert_eq!(raw.command(&format!("RNTO {to}")), code, "{from} {to}");
    }
}

/// A right to store a list would be one to play whatever lies below it.
#[test]
fn a_list_is_no_right_to_play_what_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let users = users_file(folder.path());
    let text = fs::read_to_string(&users).unwrap();
    let text = text.replace("everybody play,download /**", "crew play /*");
    fs::write(&users, text).unwrap();
    let users = format!("--users={users}");
    let site = Site::plain(&["--uploads", "--upload-free-min=0B", &users]);
    fs::create_dir(site.path("staff")).unwrap();
    for (name, list) in [("own.ts", "own.film.json"), ("staff/a.ts", "a.film.json")] {
        fs::copy(DEMO, site.path(name)).unwrap();
        set_modified(&site.path(name), FILM_MODIFIED_S);
        let renditions = format!(r#"{{"renditions": ["{name}"]}}"#);
        fs::write(site.path(list), renditions).unwrap();
    }
    let status = |user: &str, list: &str| {
        let target = format!("/{list}/hls/index.m3u8");
        site.get(&target, &basic(user)).status
    };
    assert_eq!(status("ulla", "own.film.json"), 200);
    assert_eq!(status("ulla", "a.film.json"), 403);
    // Of the group that may play everything.
    assert_eq!(status("anna", "a.film.json"), 200);
}

/// Everybody may play the list, and users what it names: they are asked who they are, and a token
/// in a URL is carried on.
#[test]
fn a_list_for_all_asks_who_may_play_what_it_names() {
    require_programs!("openssl");
    let (tokens, folder) = (Tokens::new(), tempfile::tempdir().unwrap());
    let users = users_file(folder.path());
    let text = fs::read_to_string(&users).unwrap();
    let text = text.replace("everybody play,download /**", "everybody play /pub/*");
    fs::write(&users, text).unwrap();
    let (users, keys) = (format!("--users={users}"), tokens.option());
    let site = Site::plain(&["--uploads", "--upload-free-min=0B", &users, &keys]);
    fs::create_dir_all(site.path("pub/x")).unwrap();
    fs::copy(DEMO, site.path("pub/x/a.ts")).unwrap();
    set_modified(&site.path("pub/x/a.ts"), FILM_MODIFIED_S);
    let list = r#"{"renditions": ["x/a.ts"]}"#;
    fs::write(site.path("pub/x.film.json"), list).unwrap();
    let main = "/pub/x.film.json/hls/index.m3u8";
    let status = |lines: &str| site.get(main, lines).status;
    assert_eq!(status(""), 401);
    assert_eq!((status(&basic("anna")), status(&basic("ulla"))), (200, 403));
    let token = tokens.sign(r#"{"exp":4e9,"onrush_rights":["play /pub/**"]}"#);
    let mut target = format!("{main}?token={token}");
    for _ in 0..2 {
        let playlist = site.get(&target, "");
        assert_eq!(playlist.status, 200, "{target}");
        let text = String::from_utf8(playlist.body).unwrap();
        let named = text.lines().rfind(|it| !it.starts_with('#')).unwrap();
        let (folder, _) = target.split_once('?').unwrap().0.rsplit_once('/').unwrap();
        target = format!("{folder}/{named}");
    }
    assert_eq!(site.get(&target, "").status, 200, "{target}");
}

/// Files get other names with their folder.
#[test]
fn no_folder_is_renamed_to_where_its_files_could_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let users = users_file(folder.path());
    let text = fs::read_to_string(&users).unwrap();
    let rights = "everybody play,download /films/*/*.mp4\ngroup everybody play /trailers/*.mp4";
    let text = text.replace("everybody play,download /**", rights);
    fs::write(&users, text).unwrap();
    let users = format!("--users={users}");
    let site = Site::plain(&["--uploads", "--upload-free-min=0B", &users]);
    for name in ["in/deeper", "films/a", "trailers"] {
        fs::create_dir_all(site.path(name)).unwrap();
    }
    for name in [
        "in/deeper/x.mp4",
        "in/x.mp4",
        "films/a/a.mp4",
        "trailers/t.mp4",
    ] {
        fs::write(site.path(name), name).unwrap();
    }
    let mut raw = log_in(site.ftp, "ulla", "secret");
    for (from, to, code) in [
        ("in", "films/x", 550),
        ("films/a", "films/b", 250),
        ("films", "other", 250),
        ("in", "films", 550),
        ("other", "films", 550),
        ("trailers", "old", 250),
        ("in", "trailers", 550),
        ("in", "inner", 250),
    ] {
        assert_eq!(raw.command(&format!("RNFR {from}")), 350, "{from}");
        assert_eq!(raw.command(&format!("RNTO {to}")), code, "{from} {to}");
    }
    assert!(site.path("inner/deeper/x.mp4").exists());
}

/// Who aborts closes the data connection, too, before or after; and an end of that alone is the end
/// of the file.
#[test]
fn an_aborted_store_replaces_nothing() {
    require_programs!("python3");
    let site = uploads(&[]);
    let film = bytes(100_000);
    let is_whole = || fs::read(site.path("film.ts")).unwrap() == film;
    for is_closed_first in [true, false].repeat(10) {
        let mut raw = site.log_in("ulla");
        let mut data = passive(&mut raw);
        assert_eq!(raw.command("STOR film.ts"), 150);
        data.write_all(&film[..50_000]).unwrap();
        let (mut data, began) = (Some(data), Instant::now());
        drop(data.take_if(|_| is_closed_first));
        raw.send("ABOR\r\n");
        let took = began.elapsed();
        drop(data);
        let replies = (raw.reply().0, raw.reply().0);
        // The server waits for 20 ms, and this machine may be busy.
        match took < Duration::from_millis(15) || !is_closed_first {
            true => assert_eq!(replies, (426, 226), "closed first: {is_closed_first}"),
            false => assert_eq!(site.put("film.ts", "", &film).status, 204),
        }
        assert!(is_whole());
    }
    // All of it as urgent data; the method takes one reply, and there are two.
    let script = format!(
        "import ftplib\nf = ftplib.FTP()\nf.connect('127.0.0.1', {})\nf.login('ulla', 'secret')\n\
         d = f.transfercmd('STOR film.ts')\nd.sendall(b'x' * 50000)\nprint(f.abort())\n\
         d.close()\nprint(f.getresp())\nf.voidcmd('NOOP')\nf.quit()\n",
        site.ftp.port()
    );
    let output = well(Command::new("python3").args(["-c", &script]));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.starts_with("426 ") && printed.contains("\n226 "),
        "{printed}"
    );
    assert!(is_whole());
}

/// Programs show it, and grey out what they would be refused.
#[test]
fn ftp_tells_who_may_change_what() {
    let site = uploads(&[]);
    let told = |user: &str| {
        let mut raw = site.log_in(user);
        raw.send("MLST film.ts\r\n");
        let (code, facts) = raw.reply();
        assert_eq!(code, 250, "{facts}");
        let listed = ["MLSD", "LIST"].map(|command| {
            let mut data = passive(&mut raw);
            assert_eq!(raw.command(command), 150);
            let listed = std::io::read_to_string(&mut data).unwrap();
            assert_eq!(raw.reply().0, 226);
            listed
        });
        facts + &listed.concat()
    };
    for (user, file, folder, mode) in [
        ("anna", ";Perm=r; ", ";Perm=el; folder", "-r--r--r-- 1 ftp"),
        (
            "ulla",
            ";Perm=adfrw; ",
            ";Perm=cdeflmp; folder",
            "-rw-r--r-- 1 ftp",
        ),
    ] {
        let told = told(user);
        assert_eq!(told.matches(&format!("{file}film.ts")).count(), 1, "{told}");
        assert_eq!(
            told.matches(&format!("{file}/film.ts")).count(),
            1,
            "{told}"
        );
        assert!(told.contains(folder) && told.contains(mode), "{told}");
    }
    let status = Raw::connect(site.metrics).request("GET", "/status", "");
    let users = serde_json::from_slice::<Status>(&status.body)
        .unwrap()
        .users;
    assert_eq!(users.forbidden, 0, "nobody has asked to change anything");
}

#[test]
fn uploads_have_their_bounds() {
    let options = [
        "--upload-max=1000B",
        "--upload-files-max=1",
        "--download-stall-time-max=10s",
        "--upload-kept-time-max=20s",
    ];
    let site = uploads(&options);
    assert_eq!(site.put("a", "", &bytes(1000)).status, 201);
    assert_eq!(site.put("a", "", &bytes(1001)).status, 413);
    let mut chunked = site.connect();
    chunked.send(format!(
        "PUT /c HTTP/1.1\r\nHost: h\r\n{}Transfer-Encoding: chunked\r\n\r\n",
        basic("ulla")
    ));
    chunked.send(format!("3e9\r\n{}\r\n0\r\n\r\n", "x".repeat(1001)));
    assert_eq!(chunked.response(false).status, 413);
    let mut raw = site.log_in("ulla");
    assert_eq!(store(&mut raw, "STOR b", &bytes(1000)), 226);
    assert_eq!(store(&mut raw, "STOR d", &bytes(1001)), 552);
    // One at a time; and one that sends nothing is let go. Passwords take their time before.
    let mut uwe = site.log_in("uwe");
    let _data = passive(&mut raw);
    assert_eq!(raw.command("STOR e"), 150);
    assert_eq!(site.put("f", "", b"x").status, 503);
    assert_eq!(uwe.command("STOR f"), 450);
    assert_eq!(raw.reply().0, 426);
    let mut slow = site.connect();
    slow.send(format!(
        "PUT /g HTTP/1.1\r\nHost: h\r\n{}Content-Length: 10\r\n\r\n12345",
        basic("ulla")
    ));
    assert_eq!(slow.response(false).status, 408);
    assert!(site.leftovers(".") > 0);
    let began = Instant::now();
    while site.leftovers(".") > 0 {
        assert!(began.elapsed() < LONG, "what was broken off is still there");
        thread::sleep(Duration::from_millis(50));
    }
    // More than there is, is to stay free.
    let full = uploads_leaving("1024TiB", &[]);
    assert_eq!(full.put("a", "", b"x").status, 507);
    assert_eq!(full.log_in("ulla").command("STOR a"), 452);
    // Of what is there no copy is made, either.
    assert_eq!(full.log_in("ulla").command("APPE film.ts"), 452);
    assert_eq!(full.leftovers("."), 0);
    assert_eq!(full.counted().uploads_refused, 3);
}

/// Whoever a token is of goes on with another token, by HTTP and FTP, and nobody else does.
#[test]
fn holders_of_tokens_are_told_apart() {
    require_programs!("openssl");
    let tokens = Tokens::new();
    let site = uploads(&[&tokens.option()]);
    let sign = |subject: &str, expires: &str| {
        let rights = r#"["upload,download /**"]"#;
        tokens.sign(&format!(
            r#"{{"exp":{expires},"sub":"{subject}","onrush_rights":{rights}}}"#
        ))
    };
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let film = bytes(300_000);
    let mut raw = site.connect();
    raw.send(format!(
        "PUT /film.ts HTTP/1.1\r\nHost: h\r\n{}Content-Length: 300000\r\n\
         Expect: 100-continue\r\n\r\n",
        bearer(&sign("carla", "4e9"))
    ));
    assert_eq!(raw.response(false).status, 100);
    raw.send(&film[..150_000]);
    drop(raw);
    site.broken(1);
    let (renewed, other) = (sign("carla", "5e9"), sign("dora", "4e9"));
    // Where nothing is: HEAD tells of a file that is there.
    fs::remove_file(site.path("film.ts")).unwrap();
    let head = |token: &str| {
        let lines = bearer(token);
        site.connect().request("HEAD", "/film.ts", &lines)
    };
    let told = || {
        let head = head(&renewed);
        (head.status, head.header("Upload-Offset").map(str::to_owned))
    };
    // The server knows the old file for a second more.
    let began = Instant::now();
    while told().1.is_none() && began.elapsed() < LONG {
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(told(), (200, Some("149999".to_owned())));
    assert_eq!(head(&other).status, 404);
    assert_eq!(
        site.request("HEAD", "film.ts", "").status,
        404,
        "nor ulla's"
    );
    fs::write(site.path("film.ts"), bytes(100_000)).unwrap();
    let log_in = |token: &str| {
        let mut raw = Raw::connect(site.ftp);
        assert_eq!(raw.reply().0, 220);
        assert_eq!(raw.command("USER token"), 331);
        assert_eq!(raw.command(&format!("PASS {token}")), 230);
        raw
    };
    let size = |raw: &mut Raw| {
        raw.send("SIZE film.ts\r\n");
        raw.reply().1
    };
    assert_eq!(size(&mut log_in(&renewed)), "213 149999\r\n");
    let began = Instant::now();
    let mut of_other = log_in(&other);
    while size(&mut of_other) != "213 100000\r\n" {
        assert!(began.elapsed() < LONG, "the file is not there");
        thread::sleep(Duration::from_millis(100));
    }
    let mut raw = log_in(&renewed);
    assert_eq!(store(&mut raw, "APPE film.ts", &film[149_999..]), 226);
    assert!(fs::read(site.path("film.ts")).unwrap() == film);
}

/// Nor do the counts, nor how soon its address is slowed.
#[test]
fn a_wrong_token_tells_nothing_of_what_is_there() {
    require_programs!("openssl");
    let (tokens, folder) = (Tokens::new(), tempfile::tempdir().unwrap());
    let users = users_file(folder.path());
    let text = fs::read_to_string(&users).unwrap();
    fs::write(&users, text.replace("everybody", "viewers")).unwrap();
    let (users, keys) = (format!("--users={users}"), tokens.option());
    let site = Site::plain(&["--uploads", &users, &keys, "--metrics=127.0.0.1:0"]);
    let line = site.server.wait_for_line("/metrics", LONG).unwrap();
    let address = line.split("http://").nth(1).unwrap();
    let metrics: SocketAddr = address.split('/').next().unwrap().parse().unwrap();
    let wrong = || {
        let status = Raw::connect(metrics).request("GET", "/status", "");
        let status = serde_json::from_slice::<Status>(&status.body);
        status.unwrap().users.wrong
    };
    let expired = tokens.sign(r#"{"exp":1e9}"#);
    let [there, not_there] = ["film.ts", "none.ts"].map(|name| {
        let before = wrong();
        let target = format!("/{name}?token={expired}");
        let head = site.connect().request("HEAD", &target, "");
        let challenge = head.header("WWW-Authenticate").map(str::to_owned);
        (head.status, challenge, wrong() - before)
    });
    assert_eq!((there.0, there.2), (401, 1));
    assert_eq!(there, not_there);
}

/// What is there is gone on with in a copy; what cannot be read is not taken for nothing.
#[test]
fn a_link_is_not_replaced_by_the_end_of_its_file() {
    let site = uploads(&[]);
    std::os::unix::fs::symlink("film.ts", site.path("link.ts")).unwrap();
    let mut raw = site.log_in("ulla");
    raw.send("SIZE link.ts\r\n");
    assert_eq!(raw.reply().1, "213 100000\r\n");
    assert_eq!(raw.command("APPE link.ts"), 553);
    assert_eq!(raw.command("REST 100000"), 350);
    assert_eq!(raw.command("STOR link.ts"), 553);
    let part = "Content-Range: bytes 100000-100000/100001\r\n";
    assert_eq!(site.put("link.ts", part, b"x").status, 403);
    assert!(site.path("link.ts").is_symlink());
    assert_eq!(fs::read(site.path("link.ts")).unwrap(), bytes(100_000));
    assert_eq!(site.leftovers("."), 0);
    // From its first byte on it is replaced, and its file is not.
    assert_eq!(site.put("link.ts", "", b"x").status, 204);
    assert!(!site.path("link.ts").is_symlink());
    assert_eq!(fs::read(site.path("film.ts")).unwrap(), bytes(100_000));
}

/// Before a byte of it is sent.
#[test]
fn a_long_name_is_refused_at_the_start() {
    let site = uploads(&[]);
    let name = "x".repeat(256);
    let mut raw = site.connect();
    raw.send(format!(
        "PUT /{name} HTTP/1.1\r\nHost: h\r\n{}Content-Length: 1\r\nExpect: 100-continue\r\n\r\n",
        basic("ulla")
    ));
    let refused = raw.response(false);
    assert_eq!(refused.status, 403);
    let text = String::from_utf8(refused.body).unwrap();
    assert!(text.contains("the name is longer"), "{text}");
    let mut ftp = site.log_in("ulla");
    assert_eq!(ftp.command(&format!("STOR {name}")), 553);
    assert_eq!(ftp.command(&format!("MKD {name}")), 553);
    assert_eq!(site.leftovers("."), 0);
    assert_eq!(site.put(&name[1..], "", b"x").status, 201);
}

/// The answer to a challenge serves once: who looks for what was broken off and then for the file
/// must not ask for it twice.
#[test]
fn a_head_with_digest_is_answered() {
    require_programs!("curl");
    let folder = tempfile::tempdir().unwrap();
    let users = users_file(folder.path());
    // Nobody may without logging in.
    let text = fs::read_to_string(&users).unwrap();
    fs::write(&users, text.replace("everybody", "crew")).unwrap();
    let site = Site::plain(&["--uploads", &format!("--users={users}")]);
    for (name, status) in [("film.ts", "200"), ("none", "404")] {
        let mut head = Command::new("curl");
        head.args(["-sI", "--digest", "-u", "ulla:secret", "--max-time", "20"]);
        head.args(["-o", "/dev/null", "-w", "%{http_code}"]);
        let shown = head.arg(site.url(name)).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert_eq!(shown, status, "{name}");
    }
}

#[test]
fn curl_ftp_and_python_store_and_resume() {
    require_programs!("curl", "ftp", "python3");
    let site = uploads(&["--tls=self-signed", "--https=127.0.0.1:0"]);
    let own = tempfile::tempdir().unwrap();
    let film = own.path().join("film.bin");
    let content = bytes(5_000_000);
    fs::write(&film, &content).unwrap();
    let film = film.to_str().unwrap();
    let is_there = |name: &str| {
        assert!(fs::read(site.path(name)).unwrap() == content, "{name}");
        fs::remove_file(site.path(name)).unwrap();
    };
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-sSfk", "--max-time", "60"]).args(arguments);
        well(&mut curl);
    };
    let ulla = ["-u", "ulla:secret"];
    let line = site
        .server
        .wait_for_line("listening  https://", LONG)
        .unwrap();
    let https = line.split("listening  ").nth(1).unwrap();
    for (how, url) in [
        (&[][..], site.url("by-curl")),
        (&["--digest"], site.url("by-curl")),
        (&["--http1.1"], format!("{https}/by-curl")),
        (&["--http2"], format!("{https}/by-curl")),
        (&[], site.ftp_url("by-curl")),
        (&["-T", "-"], site.url("by-curl")),
    ] {
        let mut command = Command::new("curl");
        command
            .args(["-sSfk", "--max-time", "60"])
            .args(ulla)
            .args(how);
        if !how.contains(&"-T") {
            command.args(["-T", film]);
        }
        well(command.arg(&url).stdin(fs::File::open(film).unwrap()));
        is_there("by-curl");
    }
    // Broken off, by HTTP and FTP, and gone on with.
    for (url, broken) in [(site.url("again"), 1), (site.ftp_url("again"), 2)] {
        let slow = [
            "-u",
            "ulla:secret",
            "--limit-rate",
            "500k",
            "--max-time",
            "5",
        ];
        let mut curl_slow = Command::new("curl");
        let ended = curl_slow
            .args(slow)
            .args(["-sS", "-T", film, &url])
            .output();
        assert!(!ended.unwrap().status.success());
        site.broken(broken);
        assert!(!site.path("again").exists());
        let head = site.request("HEAD", "again", "");
        let offset = field(&head, "Upload-Offset").to_owned();
        assert_ne!(offset, "0");
        let from = if url.starts_with("ftp") { "-" } else { &offset };
        curl(&[&ulla[..], &["-C", from, "-T", film, &url]].concat());
        is_there("again");
    }
    let mut client = Command::new("ftp");
    client.args(["-n", "-p", "127.0.0.1", &site.ftp.port().to_string()]);
    let words = format!("user ulla secret\nbinary\nput {film} by-ftp\nquit\n");
    assert!(fed(&mut client, &words).status.success());
    is_there("by-ftp");
    let script = format!(
        "import ftplib\nf = ftplib.FTP()\nf.connect('127.0.0.1', {})\nf.login('ulla', 'secret')\n\
         f.mkd('by'); f.cwd('by')\nd = open('{film}', 'rb')\nf.storbinary('STOR python', d)\n\
         d.seek(1000000)\nf.storbinary('STOR python', d, rest=1000000)\n\
         f.rename('python', 'python2')\nf.quit()\n",
        site.ftp.port()
    );
    well(Command::new("python3").args(["-c", &script]));
    is_there("by/python2");
}

/// What a program says that is fed with these words.
fn fed(command: &mut Command, words: &str) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(words.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn lftp_puts_resumes_and_mirrors() {
    require_programs!("lftp");
    let site = uploads(&[]);
    let own = tempfile::tempdir().unwrap();
    let content = bytes(2_000_000);
    fs::create_dir_all(own.path().join("tree/deep")).unwrap();
    for name in ["film", "tree/a", "tree/deep/b"] {
        fs::write(own.path().join(name), &content).unwrap();
    }
    let lftp = |words: &str| {
        let settings = "set net:max-retries 2; set net:timeout 10; set ftp:passive-mode on";
        let mut lftp = Command::new("lftp");
        lftp.current_dir(own.path());
        let login = ["-u", "ulla,secret", &format!("ftp://{}", site.ftp)];
        well(
            lftp.args(login)
                .args(["-e", &format!("{settings}; {words}; exit")]),
        );
    };
    lftp("put film");
    assert!(fs::read(site.path("film")).unwrap() == content);
    // The first half, announced as the whole.
    let mut raw = site.log_in("ulla");
    assert_eq!(raw.command("ALLO 2000000"), 200);
    assert_eq!(store(&mut raw, "STOR half", &content[..1_000_000]), 426);
    let before = site.counted().upload_bytes;
    lftp("reput film -o half");
    assert!(fs::read(site.path("half")).unwrap() == content);
    assert_eq!(site.counted().upload_bytes - before, 1_000_001);
    lftp("mirror -R tree tree");
    assert!(fs::read(site.path("tree/deep/b")).unwrap() == content);
    // The second time there is nothing to do, because times are kept.
    let before = site.counted().uploads;
    lftp("mirror -R tree tree");
    assert_eq!(site.counted().uploads, before);
    fs::remove_file(own.path().join("tree/a")).unwrap();
    fs::write(own.path().join("tree/deep/b"), "new").unwrap();
    lftp("mirror -R --delete tree tree");
    assert!(!site.path("tree/a").exists());
    assert_eq!(fs::read(site.path("tree/deep/b")).unwrap(), b"new");
}

// SPECIFICATION.md: 77
#[test]
fn files_come_by_ftp_over_tls() {
    require_programs!("curl", "lftp", "python3");
    let site = uploads(&["--tls=self-signed", "--https=127.0.0.1:0"]);
    let own = tempfile::tempdir().unwrap();
    let content = bytes(3_000_000);
    fs::create_dir(own.path().join("tree")).unwrap();
    for name in ["film", "tree/a"] {
        fs::write(own.path().join(name), &content).unwrap();
    }
    let is_there = |name: &str| {
        assert!(fs::read(site.path(name)).unwrap() == content, "{name}");
        fs::remove_file(site.path(name)).unwrap();
    };
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.current_dir(own.path());
        curl.args(["-sSfk", "--max-time", "60", "--ssl-reqd"]);
        curl.args(["-u", "ulla:secret", "-T", "film"]);
        curl.args(arguments).arg(site.ftp_url("by-curl"));
        well(&mut curl);
    };
    for how in [&[][..], &["--tls-max", "1.2"]] {
        curl(how);
        is_there("by-curl");
    }
    // Cut off by somebody on the way, who cannot say for the client that this was all; also where
    // it was, and curl would send nothing of a file that is as long here.
    for count in [1_000_000, content.len()] {
        let script = format!(
            "import ftplib, ssl\nc = ssl.create_default_context()\nc.check_hostname = False\n\
             c.verify_mode = ssl.CERT_NONE\nf = ftplib.FTP_TLS(context=c)\n\
             f.connect('127.0.0.1', {})\nf.login('ulla', 'secret')\nf.prot_p()\n\
             d = f.transfercmd('STOR by-curl')\nd.sendall(open('film', 'rb').read()[:{count}])\n\
             d.close()\n\
             try:\n  f.getresp()\nexcept ftplib.error_temp as e:\n  print(e)\n\
             print(f.sendcmd('SIZE by-curl'))\n\
             f.storbinary('STOR by-python', open('film', 'rb'))\nf.quit()\n",
            site.ftp.port()
        );
        let mut python = Command::new("python3");
        let output = well(python.current_dir(own.path()).args(["-c", &script]));
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(
            printed.starts_with("426 ") && printed.contains("close_notify"),
            "{printed}"
        );
        let told = format!("\n213 {}\n", count - 1);
        assert!(printed.ends_with(&told), "{printed}");
        is_there("by-python");
        assert!(!site.path("by-curl").exists());
        curl(&["-C", "-"]);
        is_there("by-curl");
    }
    let script = format!(
        "set ftp:ssl-force true; set ftp:ssl-protect-data true; set ssl:verify-certificate no; \
         set net:max-retries 2; open -u ulla,secret ftp://{}; put film; mirror -R tree tree; exit",
        site.ftp
    );
    well(
        Command::new("lftp")
            .current_dir(own.path())
            .args(["-c", &script]),
    );
    is_there("film");
    is_there("tree/a");
}

/// What strace writes of a server's calls, of those that are named, while something is done.
fn traced(site: &Site, calls: &str, what: impl FnOnce()) -> String {
    let trace = site.media.path().join("trace");
    let pid = site.server.id();
    let mut strace = Command::new("strace")
        .args(["-f", "-e", &format!("trace={calls}"), "-p"])
        .args([&pid.to_string(), "-o", trace.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 1];
    strace
        .stderr
        .as_mut()
        .unwrap()
        .read_exact(&mut said)
        .unwrap();
    thread::sleep(Duration::from_millis(300));
    what();
    let id = Pid::from_raw(i32::try_from(strace.id()).unwrap()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    strace.wait().unwrap();
    fs::read_to_string(trace).unwrap()
}

/// Otherwise all that memory takes would be written at the end, while the client hears nothing.
#[test]
fn a_disk_begins_to_write_while_more_of_a_file_comes() {
    require_root!();
    require_programs!("strace");
    let content = bytes(32 << 20);
    for (sync, times) in [("all", 4), ("off", 0)] {
        let site = uploads(&[&format!("--upload-sync={sync}")]);
        let mut ftp = site.log_in("ulla");
        let trace = traced(&site, "sync_file_range,fsync", || {
            assert_eq!(store(&mut ftp, "STOR a", &content), 226);
        });
        assert_eq!(trace.contains(" fsync("), sync == "all", "{trace}");
        let before = trace.split(" fsync(").next().unwrap();
        let begun = before.matches(" sync_file_range(").count();
        assert!(begun == times && !trace.contains("EPERM"), "{trace}");
    }
}

/// The kernel moves it: what the server reads itself are heads and commands.
#[test]
fn no_byte_of_a_plain_upload_is_read() {
    require_root!();
    require_programs!("strace");
    let site = uploads(&[]);
    let content = bytes(8 << 20);
    let calls = "read,recvfrom,recvmsg,readv,splice,write,pwrite64";
    let trace = traced(&site, calls, || {
        let mut raw = site.connect();
        raw.send(format!(
            "PUT /a HTTP/1.1\r\nHost: h\r\n{}Content-Length: {}\r\nExpect: 100-continue\r\n\r\n",
            basic("ulla"),
            content.len()
        ));
        assert_eq!(raw.response(false).status, 100);
        raw.send(&content);
        assert_eq!(raw.response(false).status, 201);
        let mut ftp = site.log_in("ulla");
        assert_eq!(store(&mut ftp, "STOR b", &content), 226);
    });
    for name in ["a", "b"] {
        assert!(fs::read(site.path(name)).unwrap() == content);
    }
    let (mut read, mut spliced) = (0, 0);
    for line in trace.lines() {
        let Some((call, result)) = line.rsplit_once(" = ") else {
            continue;
        };
        let bytes: u64 = result.split(' ').next().unwrap().parse().unwrap_or(0);
        match call.contains("splice") {
            true => spliced += bytes,
            false => read += bytes,
        }
    }
    // Into a pipe, and out of it.
    assert_eq!(spliced, 4 * content.len() as u64);
    assert!(read < 100_000, "{read} bytes were read and written");
    assert_eq!(site.counted().upload_copied_bytes, 0);
}
