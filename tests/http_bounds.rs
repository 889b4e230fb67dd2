//! What HTTP clients are refused, and how: the rows of docs/downloads.md about bounds and attacks.

use std::os::unix::net::UnixListener;

use onrush_wire::media::ts::synth::constant_rate;

use super::*;

/// Each of these, passed on by a proxy that reads it otherwise, would smuggle the second request
/// in.
// SPECIFICATION.md: 48
#[test]
fn smuggling_is_refused() {
    let site = Site::plain(&[]);
    for (lines, status) in [
        ("Content-Length: 4\r\nContent-Length: 4\r\n", 400),
        ("Content-Length: 4\r\nContent-Length: 0\r\n", 400),
        ("Content-Length: 4, 4\r\n", 400),
        ("Content-Length: +4\r\n", 400),
        ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", 400),
        ("Transfer-Encoding: gzip\r\n", 501),
        ("Transfer-Encoding: chunked, identity\r\n", 501),
        ("Transfer-Encoding : chunked\r\n", 400),
        ("X: a\rb\r\n", 400),
        ("X: a\r\r\n", 400),
        ("X: a\n", 400),
        ("X: a\r\n b\r\n", 400),
        ("X: a\r\n\tb\r\n", 400),
        ("X: a\0b\r\n", 400),
        ("X a\r\n", 400),
        ("Host: h\r\n", 400),
    ] {
        let mut raw = site.connect();
        let second = "GET /film.ts HTTP/1.1\r\nHost: h\r\n\r\n";
        raw.send(format!(
            "GET /empty HTTP/1.1\r\nHost: h\r\n{lines}\r\n{second}"
        ));
        let refused = raw.response(false);
        assert_eq!(
            (refused.status, refused.header("Connection")),
            (status, Some("close")),
            "{lines:?}"
        );
        assert!(
            raw.is_closed(),
            "{lines:?}: the second request was answered"
        );
    }
    for (head, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: h\n\n", 400),
        ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        ("GET / HTTP/0.9\r\nHost: h\r\n\r\n", 505),
        ("GET / HTTP/1.2\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("\u{16}\u{3}\u{1}TLS\r\n\r\n", 400),
    ] {
        let mut raw = site.connect();
        raw.send(head);
        assert_eq!(raw.response(false).status, status, "{head:?}");
        assert!(raw.is_closed(), "{head:?}");
    }
}

// SPECIFICATION.md: 27
#[test]
fn bounds_of_heads() {
    let site = Site::plain(&[]);
    let padded = |bytes: usize| {
        let head = |pad: &str| format!("GET /empty HTTP/1.1\r\nHost: h\r\nX: {pad}\r\n\r\n");
        head(&"x".repeat(bytes - head("").len()))
    };
    let target =
        |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(bytes - 1));
    let lines = |count: usize| {
        format!(
            "GET /empty HTTP/1.1\r\nHost: h\r\n{}\r\n",
            "X: y\r\n".repeat(count - 1)
        )
    };
    for (head, status) in [
        (padded(HEAD_BYTES_MAX), 200),
        (padded(HEAD_BYTES_MAX + 1), 431),
        (target(TARGET_BYTES_MAX), 404),
        (target(TARGET_BYTES_MAX + 1), 414),
        (target(HEAD_BYTES_MAX * 2), 414),
        (lines(64), 200),
        (lines(65), 431),
    ] {
        let mut raw = site.connect();
        raw.send(&head);
        assert_eq!(raw.response(false).status, status, "{} bytes", head.len());
    }
}

#[test]
fn slow_and_silent_clients_are_let_go() {
    let site = Site::plain(&["--download-head-time-max=4s", "--download-idle-time-max=4s"]);
    let [mut begun, mut silent, mut served] = [(); 3].map(|()| site.connect());
    begun.send("GET / HTTP/1.1\r\n");
    assert_eq!(served.request("GET", "/empty", "").status, 200);
    let response = begun.response(false);
    assert_eq!(
        (response.status, response.header("Connection")),
        (408, Some("close"))
    );
    assert!(begun.is_closed());
    assert!(silent.is_closed());
    assert!(served.is_closed());
    // A byte now and then is no request.
    let mut dripping = site.connect();
    for byte in b"GET / HTTP/1.1\r\nHost: h\r\n".iter().cycle() {
        thread::sleep(Duration::from_millis(20));
        if std::io::Write::write_all(&mut dripping.stream, &[*byte]).is_err() {
            break;
        }
        dripping.stream.set_nonblocking(true).unwrap();
        let is_answered = dripping.stream.peek(&mut [0]).is_ok();
        dripping.stream.set_nonblocking(false).unwrap();
        if is_answered {
            break;
        }
    }
    assert_eq!(dripping.response(false).status, 408);
}

#[test]
fn more_connections_than_there_may_be_are_told_so() {
    let site = Site::plain(&["--download-connections-max=2"]);
    refuses_the_third(&site);
    let site = Site::plain(&["--download-connections-per-address-max=2"]);
    refuses_the_third(&site);
}

fn refuses_the_third(site: &Site) {
    let mut places: Vec<Raw> = (0..2).map(|_| site.connect()).collect();
    for raw in &mut places {
        assert_eq!(raw.request("GET", "/empty", "").status, 200);
    }
    let mut third = site.connect();
    let refused = third.response(false);
    assert_eq!(
        (refused.status, refused.header("Retry-After")),
        (503, Some("5"))
    );
    assert!(third.is_closed());
    // Another takes the place of one that leaves.
    places.pop();
    for _ in 0..600 {
        let mut raw = site.connect();
        // It may have been refused, and closed, before it could say anything.
        let said =
            std::io::Write::write_all(&mut raw.stream, b"GET /empty HTTP/1.1\r\nHost: h\r\n\r\n");
        if said.is_ok() && raw.receive() > 0 && raw.received.starts_with(b"HTTP/1.1 200 ") {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the place was never free again");
}

/// Of 885 open files 768 are set apart, 110 for files that are kept, and an HTTP connection takes
/// two: three fit, and one of RTSP. A client is told, before a file that it asks for cannot be
/// opened.
#[test]
fn descriptors_are_shared_out_among_all_who_come() {
    require_programs!("prlimit");
    let mut command = Command::new("prlimit");
    command.args(["--nofile=885:885", ONRUSH]);
    let site = Site::by(command, &[], |root| {
        fs::write(root.join("film.ts"), bytes(FILM_BYTES)).unwrap();
    });
    let mut served: Vec<Raw> = (0..3).map(|_| site.connect()).collect();
    for raw in &mut served {
        assert_eq!(raw.request("GET", "/film.ts", "").body, bytes(FILM_BYTES));
    }
    let mut fourth = site.connect();
    assert_eq!(fourth.response(false).status, 503);
    // FTP takes three, so there is none for it either.
    assert_eq!(Raw::connect(site.ftp).reply().0, 421);
    // RTSP takes one, and has what is left; the next is told.
    let options = "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";
    let mut rtsp = Raw::connect(site.rtsp);
    rtsp.send(options);
    assert!(rtsp.receive() > 0 && rtsp.received.starts_with(b"RTSP/1.0 200 "));
    let mut other = Raw::connect(site.rtsp);
    assert!(other.receive() > 0 && other.received.starts_with(b"RTSP/1.0 503 "));
    // Those who are there are served on.
    assert_eq!(served[0].request("HEAD", "/film.ts", "").status, 200);
}

/// They stay open, and are no clients' either until one lacks them: two that take one each would
/// leave room for two HTTP connections, or five of RTSP.
#[test]
fn films_that_nobody_plays_make_room_for_clients() {
    require_programs!("prlimit");
    for is_rtsp in [false, true] {
        let mut command = Command::new("prlimit");
        command.args(["--nofile=885:885", ONRUSH]);
        let films = ["one.ts", "two.ts"];
        let site = Site::by(command, &[], |root| {
            for name in films {
                fs::write(root.join(name), constant_rate(700, 0, 10_152)).unwrap();
                set_modified(&root.join(name), FILM_MODIFIED_S);
            }
        });
        for name in films {
            let mut rtsp = Raw::connect(site.rtsp);
            let url = site.rtsp_url(name);
            rtsp.send(format!("DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\n\r\n"));
            assert!(rtsp.receive() > 0 && rtsp.received.starts_with(b"RTSP/1.0 200 "));
        }
        let (at, count, request, answer) = match is_rtsp {
            false => (
                site.http,
                3,
                "HEAD /one.ts HTTP/1.1\r\nHost: h\r\n\r\n",
                "HTTP/1.1 200 ",
            ),
            true => (
                site.rtsp,
                6,
                "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n",
                "RTSP/1.0 200 ",
            ),
        };
        let are_served = || {
            let mut all: Vec<_> = (0..count).map(|_| Raw::connect(at)).collect();
            all.iter_mut().all(|raw| {
                // It may have been refused, and closed, before it could say anything.
                let said = std::io::Write::write_all(&mut raw.stream, request.as_bytes());
                let is_told = said.is_ok() && raw.receive() > 0;
                is_told && raw.received.starts_with(answer.as_bytes())
            })
        };
        // Those who were there before may not have gone yet.
        let are_served = (0..600).any(|_| {
            thread::sleep(Duration::from_millis(20));
            are_served()
        });
        assert!(are_served, "{count} at {at}: {}", site.server.log_tail());
    }
}

// SPECIFICATION.md: 40
#[test]
fn nothing_outside_is_ever_reached() {
    let site = Site::new(&[], |root| {
        let outside = root.parent().unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        fs::create_dir(outside.join("other")).unwrap();
        fs::write(outside.join("other/secret"), "secret").unwrap();
        fs::create_dir(root.join("in")).unwrap();
        fs::write(root.join("in/secret"), "inside").unwrap();
        symlink("../secret", root.join("link")).unwrap();
        symlink(outside.join("secret"), root.join("absolute")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("/proc/self/environ", root.join("proc")).unwrap();
        symlink("/dev/zero", root.join("zero")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        fs::write(root.join(".secret"), "secret").unwrap();
        let fifo = Command::new("mkfifo")
            .arg(root.join("fifo"))
            .status()
            .unwrap();
        assert!(fifo.success());
        // The socket stays in the folder when its listener goes.
        drop(UnixListener::bind(root.join("socket")).unwrap());
    });
    let mut raw = site.connect();
    for target in [
        "/link",
        "/absolute",
        "/up/secret",
        "/proc",
        "/zero",
        "/circle",
        "/fifo",
        "/.secret",
        "/../secret",
        "/in/../../secret",
        "/%2e%2e/secret",
        "/%2E%2E%2Fsecret",
        "/in%2f..%2f..%2fsecret",
        "/..%c0%afsecret",
        "/in/..\\..\\secret",
        "//../secret",
        "/./../secret",
        "/secret",
        "/etc/passwd",
        "//etc/passwd",
        "http://h/../secret",
        "/in/secret%00",
        "/up/",
        "/up/other/secret",
    ] {
        let response = raw.request("GET", target, "");
        assert!(
            matches!(response.status, 403 | 404),
            "{target}: {response:?}"
        );
    }
    for target in ["/socket", "/fifo"] {
        assert_eq!(raw.request("GET", target, "").status, 404, "{target}");
    }
    let page = raw.request("GET", "/", "").text();
    for name in [
        "link", "absolute", "up", "proc", "zero", "fifo", "socket", "secret",
    ] {
        assert!(!page.contains(&format!("./{name}")), "{name}\n{page}");
    }
    assert_eq!(raw.request("GET", "/in/secret", "").text(), "inside");
    the_folder_becomes_a_link_and_a_folder_again(&site);
}

/// As fast as can be, while the file in it is asked for, and always anew.
fn the_folder_becomes_a_link_and_a_folder_again(site: &Site) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            symlink("../other", site.path("out")).unwrap();
            for _ in 0..200_000 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                fs::rename(site.path("in"), site.path("aside")).unwrap();
                fs::rename(site.path("out"), site.path("in")).unwrap();
                fs::rename(site.path("in"), site.path("out")).unwrap();
                fs::rename(site.path("aside"), site.path("in")).unwrap();
            }
        });
        let mut raw = site.connect();
        let mut found = 0;
        for i in 0..2000 {
            // Other names for the same, so that none is known already.
            let slashes = "/".repeat(i % 50);
            let response = raw.request("GET", &format!("/in/{slashes}secret"), "");
            match response.status {
                200 => assert_eq!(response.text(), "inside"),
                status => assert!(matches!(status, 403 | 404), "{response:?}"),
            }
            found += u32::from(response.status == 200);
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(found > 0, "the folder was there now and then");
    });
}
