//! HTTP by the letter: every row of the table in docs/downloads.md, byte by byte over a socket.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use onrush_testkit::require_programs;
use onrush_wire::http::{HEAD_BYTES_MAX, RANGES_MAX, TARGET_BYTES_MAX};

use download_site::{
    FILM_BYTES, FILM_DATE, FILM_MODIFIED_S, ONRUSH, Raw, Site, bytes, set_modified,
};

mod download_site;
mod http_bounds;

#[test]
fn methods() {
    let site = Site::plain(&[]);
    let film = bytes(FILM_BYTES);
    // All on one connection: none of these ends it.
    let mut raw = site.connect();
    let whole = raw.request("GET", "/film.ts", "");
    assert_eq!((whole.status, &whole.body), (200, &film));
    assert_eq!(whole.header("Content-Type"), Some("video/mp2t"));
    assert_eq!(whole.header("Accept-Ranges"), Some("bytes"));
    assert_eq!(whole.header("Last-Modified"), Some(FILM_DATE));
    assert!(whole.header("Date").unwrap().ends_with(" GMT"));
    let head = raw.request("HEAD", "/film.ts", "");
    assert_eq!(
        (head.status, head.header("Content-Length")),
        (200, Some("100000"))
    );
    for target in ["/film.ts", "*", "/none"] {
        let options = raw.request("OPTIONS", target, "");
        assert_eq!(
            (options.status, options.header("Allow")),
            (204, Some("GET, HEAD, OPTIONS")),
            "{target}"
        );
    }
    for method in ["POST", "PUT", "DELETE", "TRACE", "PATCH"] {
        let refused = raw.request(method, "/film.ts", "");
        assert_eq!(
            (refused.status, refused.header("Allow")),
            (405, Some("GET, HEAD, OPTIONS")),
            "{method}"
        );
    }
    assert_eq!(raw.request("CONNECT", "h:80", "").status, 405);
    assert_eq!(raw.request("BREW", "/film.ts", "").status, 501);
    assert_eq!(raw.request("get", "/film.ts", "").status, 501);
    let empty = raw.request("GET", "/empty", "");
    assert_eq!(
        (empty.status, empty.header("Content-Length")),
        (200, Some("0"))
    );
    assert_eq!(raw.request("GET", "/none", "").status, 404);
    assert_eq!(raw.request("GET", "/film.ts", "").body, film);
}

#[test]
fn ranges() {
    let site = Site::plain(&[]);
    let film = bytes(FILM_BYTES);
    let mut raw = site.connect();
    for (range, part) in [
        ("0-0", 0..1),
        ("0-99", 0..100),
        ("99999-", 99_999..100_000),
        ("50000-", 50_000..100_000),
        ("-1", 99_999..100_000),
        ("-200000", 0..100_000),
        ("10-200000", 10..100_000),
        ("0-9,5-20", 0..21),
        ("200000-,0-3", 0..4),
    ] {
        let response = raw.request("GET", "/film.ts", &format!("Range: bytes={range}\r\n"));
        assert_eq!(
            (response.status, &response.body[..]),
            (206, &film[part.clone()]),
            "{range}"
        );
        let expected = format!("bytes {}-{}/100000", part.start, part.end - 1);
        assert_eq!(
            response.header("Content-Range"),
            Some(&*expected),
            "{range}"
        );
    }
    for range in ["100000-", "-0", "200000-300000"] {
        let response = raw.request("GET", "/film.ts", &format!("Range: bytes={range}\r\n"));
        assert_eq!(
            (response.status, response.header("Content-Range")),
            (416, Some("bytes */100000")),
            "{range}"
        );
    }
    assert_eq!(
        raw.request("GET", "/empty", "Range: bytes=0-\r\n").status,
        416
    );
    for lines in [
        "Range: bytes=5-4\r\n",
        "Range: bytes=x\r\n",
        "Range: items=0-1\r\n",
        "Range: 0-1\r\n",
    ] {
        let response = raw.request("GET", "/film.ts", lines);
        assert_eq!(
            (response.status, response.body.len()),
            (200, FILM_BYTES),
            "{lines}"
        );
    }
    let head = raw.request("HEAD", "/film.ts", "Range: bytes=0-1\r\n");
    assert_eq!(
        (head.status, head.header("Content-Length")),
        (200, Some("100000"))
    );
}

#[test]
fn several_ranges() {
    let site = Site::plain(&[]);
    let film = bytes(FILM_BYTES);
    let mut raw = site.connect();
    let response = raw.request(
        "GET",
        "/film.ts",
        "Range: bytes=90000-90099, 0-49999,-10\r\n",
    );
    assert_eq!(
        (response.status, response.header("Content-Range")),
        (206, None)
    );
    let media_type = response.header("Content-Type").unwrap();
    let boundary = media_type
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let mut expected = Vec::new();
    for (i, part) in [90_000..90_100, 0..50_000, 99_990..100_000]
        .into_iter()
        .enumerate()
    {
        let line = if i == 0 { "" } else { "\r\n" };
        let (first, last) = (part.start, part.end - 1);
        let head = format!(
            "{line}--{boundary}\r\nContent-Type: video/mp2t\r\nContent-Range: bytes \
             {first}-{last}/100000\r\n\r\n"
        );
        expected.extend(head.into_bytes());
        expected.extend(&film[part]);
    }
    expected.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
    assert!(response.body == expected);
    let many = |count: usize| {
        let list: Vec<_> = (0..count).map(|i| format!("{0}-{0}", i * 1000)).collect();
        format!("Range: bytes={}\r\n", list.join(","))
    };
    assert_eq!(
        raw.request("GET", "/film.ts", &many(RANGES_MAX)).status,
        206
    );
    let whole = raw.request("GET", "/film.ts", &many(RANGES_MAX + 1));
    assert_eq!((whole.status, whole.body), (200, film));
}

#[test]
fn conditions() {
    let site = Site::plain(&[]);
    let mut raw = site.connect();
    let etag = raw
        .request("HEAD", "/film.ts", "")
        .header("ETag")
        .unwrap()
        .to_owned();
    assert!(
        etag.starts_with('"') && etag.ends_with('"') && etag.len() > 10,
        "{etag}"
    );
    let before = "Sun, 06 Nov 1994 08:49:36 GMT";
    for (lines, status) in [
        (format!("If-None-Match: {etag}"), 304),
        (format!("If-None-Match: \"x\", W/{etag}"), 304),
        ("If-None-Match: *".to_owned(), 304),
        ("If-None-Match: \"x\"".to_owned(), 200),
        (format!("If-Match: {etag}"), 200),
        ("If-Match: *".to_owned(), 200),
        (format!("If-Match: W/{etag}"), 412),
        ("If-Match: \"x\"".to_owned(), 412),
        (format!("If-Modified-Since: {FILM_DATE}"), 304),
        (format!("If-Modified-Since: {before}"), 200),
        ("If-Modified-Since: yesterday".to_owned(), 200),
        (format!("If-Unmodified-Since: {FILM_DATE}"), 200),
        (format!("If-Unmodified-Since: {before}"), 412),
        (
            format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {FILM_DATE}"),
            200,
        ),
        (
            format!("If-Match: {etag}\r\nIf-Unmodified-Since: {before}"),
            200,
        ),
        (format!("Range: bytes=0-9\r\nIf-Range: {etag}"), 206),
        (format!("Range: bytes=0-9\r\nIf-Range: W/{etag}"), 200),
        ("Range: bytes=0-9\r\nIf-Range: \"x\"".to_owned(), 200),
        (format!("Range: bytes=0-9\r\nIf-Range: {FILM_DATE}"), 206),
        (format!("Range: bytes=0-9\r\nIf-Range: {before}"), 200),
        (format!("Range: bytes=0-9\r\nIf-None-Match: {etag}"), 304),
    ] {
        let response = raw.request("GET", "/film.ts", &format!("{lines}\r\n"));
        assert_eq!(response.status, status, "{lines}");
        if status == 304 {
            assert_eq!(response.header("ETag"), Some(&*etag));
        }
    }
    // The same length and date, other bytes: another tag.
    let mut other = bytes(FILM_BYTES);
    other.reverse();
    fs::write(site.path("other"), &other).unwrap();
    set_modified(&site.path("other"), FILM_MODIFIED_S);
    fs::rename(site.path("other"), site.path("film.ts")).unwrap();
    // What was open may be what is told of for a second.
    for _ in 0..100 {
        let new = raw.request("GET", "/film.ts", "");
        if new.header("ETag") != Some(&*etag) {
            assert_eq!(new.body, other);
            return;
        }
        assert_eq!(
            new.body,
            bytes(FILM_BYTES),
            "an old tag stands beside old bytes"
        );
        thread::sleep(Duration::from_millis(50));
    }
    panic!("the tag never changed");
}

#[test]
fn connections() {
    let site = Site::plain(&["--download-requests-max=20"]);
    let film = bytes(FILM_BYTES);
    // Pipelined, with and without bodies: answered in turn.
    let mut raw = site.connect();
    let get = |lines: &str| format!("GET /film.ts HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    let head = "HEAD /film.ts HTTP/1.1\r\nHost: h\r\n\r\n";
    raw.send(
        [
            &get(""),
            head,
            &get("Range: bytes=5-9\r\n"),
            "\r\n",
            &get(""),
        ]
        .concat(),
    );
    assert_eq!(raw.response(false).body, film);
    assert_eq!(raw.response(true).status, 200);
    assert_eq!(raw.response(false).body, film[5..10]);
    assert_eq!(raw.response(false).body, film);
    // As many requests as there may be; the last one says that it is the last.
    for i in 5..=20 {
        let response = raw.request("GET", "/empty", "");
        assert_eq!(
            response.header("Connection"),
            (i == 20).then_some("close"),
            "request {i}"
        );
    }
    assert!(raw.is_closed());
    for (version, lines, stays) in [
        ("1.1", "", true),
        ("1.2", "", true),
        ("1.9", "Connection: close\r\n", false),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x, CLOSE\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
    ] {
        let mut raw = site.connect();
        raw.send(format!(
            "GET /film.ts HTTP/{version}\r\nHost: h\r\n{lines}\r\n"
        ));
        let response = raw.response(false);
        assert_eq!(response.body, film);
        assert!(response.version == "HTTP/1.1");
        let expected = if stays && version == "1.0" {
            Some("keep-alive")
        } else {
            (!stays).then_some("close")
        };
        assert_eq!(response.header("Connection"), expected, "{version} {lines}");
        match stays {
            true => assert_eq!(raw.request("GET", "/empty", "").status, 200),
            false => assert!(raw.is_closed(), "{version} {lines}"),
        }
    }
    // A 1.0 request needs no Host.
    let mut raw = site.connect();
    raw.send("GET /film.ts HTTP/1.0\r\n\r\n");
    assert_eq!(raw.response(false).status, 200);
}

// SPECIFICATION.md: 27
#[test]
fn content_is_read_past() {
    let site = Site::plain(&[]);
    let mut raw = site.connect();
    let post =
        |lines: &str, body: &str| format!("POST /film.ts HTTP/1.1\r\nHost: h\r\n{lines}\r\n{body}");
    let chunks = "5;x=y\r\nGET /\r\n0\r\nTrailer: x\r\n\r\n";
    raw.send(
        [
            &*post("Content-Length: 5\r\n", "GET /"),
            &*post("Transfer-Encoding: chunked\r\n", chunks),
        ]
        .concat(),
    );
    assert_eq!(
        (raw.response(false).status, raw.response(false).status),
        (405, 405)
    );
    assert_eq!(raw.request("GET", "/empty", "").status, 200);
    // Who waits for a 100 gets it before its content is read.
    raw.send(post("Content-Length: 5\r\nExpect: 100-continue\r\n", ""));
    assert_eq!(raw.response(false).status, 100);
    raw.send("12345");
    assert_eq!(raw.response(false).status, 405);
    assert_eq!(
        raw.request("GET", "/empty", "Expect: 100-continue\r\n")
            .status,
        200
    );
    assert_eq!(site.get("/empty", "Expect: tea\r\n").status, 417);
    // More than 16 KiB of it is not read.
    for (lines, status) in [
        ("Content-Length: 16384\r\n", 405),
        ("Content-Length: 16385\r\n", 413),
    ] {
        let mut raw = site.connect();
        raw.send(post(lines, &"x".repeat(16_384)));
        let response = raw.response(false);
        assert_eq!(
            (response.status, response.header("Connection").is_some()),
            (status, status == 413)
        );
    }
}

#[test]
fn targets() {
    let site = Site::plain(&[]);
    let small = bytes(1000);
    let mut raw = site.connect();
    for target in [
        "/folder/a%20b%23%25%C3%BC.ts",
        "/folder/a%20b%23%25%c3%bc.ts?query=/../x#y",
        "//folder///./a%20b%23%25%C3%BC.ts",
        "http://anybody:81/folder/a%20b%23%25%C3%BC.ts",
        "HTTPS://[::1]/%66older/a%20b%23%25%C3%BC.ts",
        "http://[v1.a:b]:80/folder/a%20b%23%25%C3%BC.ts",
    ] {
        let response = raw.request("GET", target, "");
        assert_eq!((response.status, &response.body), (200, &small), "{target}");
    }
    // Linux takes any bytes for a name.
    fs::write(
        site.path("folder").join(OsStr::from_bytes(b"\xfc.ts")),
        "old",
    )
    .unwrap();
    assert_eq!(raw.request("GET", "/folder/%fc.ts", "").text(), "old");
    let page = raw.request("GET", "/folder/", "").text();
    assert!(
        page.contains("<a href=\"%FC.ts\">\u{fffd}.ts</a>"),
        "{page}"
    );
    let moved = raw.request("GET", "/folder", "");
    assert_eq!(
        (moved.status, moved.header("Location")),
        // Relative: behind a proxy the path may be a longer one.
        (301, Some("./folder/"))
    );
    assert_eq!(
        raw.request("GET", "//folder", "").header("Location"),
        Some("./folder/")
    );
    assert_eq!(
        raw.request("GET", "/folder?a=%2f&b=?#c", "")
            .header("Location"),
        Some("./folder/?a=%2f&b=?")
    );
    for target in [
        "/film.ts/",
        "/none",
        "/folder/none/",
        "/film.ts/x",
        "/..",
        "/%2e%2e/x",
        "/a%2Fb",
        "/%00",
        "/%ff",
    ] {
        assert_eq!(raw.request("GET", target, "").status, 404, "{target}");
    }
    for target in [
        "film.ts",
        "ftp://h/film.ts",
        "*",
        "http:///x",
        "/%zz",
        "http://u@h/",
        "http://[ab..cd::ef98:0:7654:321]/",
        "h:80",
    ] {
        assert_eq!(site.get(target, "").status, 400, "{target}");
    }
}

/// Whoever shares clients out among servers asks without a password, and a film of that name is
/// one as ever.
#[test]
fn health_is_told_to_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users.toml");
    fs::write(&users, "").unwrap();
    let users = format!("--users={}", users.display());
    let site = Site::plain(&[&users]);
    assert_eq!(site.get("/film.ts", "").status, 403);
    for method in ["GET", "HEAD"] {
        let answer = site.connect().request(method, "/health", "");
        assert_eq!(answer.status, 200, "{method}");
        assert_eq!(answer.header("Cache-Control"), Some("no-store"));
        let expected = if method == "GET" {
            "200 OK: the server takes clients\n"
        } else {
            ""
        };
        assert_eq!(answer.body, expected.as_bytes());
    }
    assert_eq!(site.get("/health/", "").status, 200);
    let with_file = |options: &[&str]| {
        Site::new(options, |root| {
            fs::write(root.join("health"), "a file").unwrap();
        })
    };
    let site = with_file(&[&users]);
    assert_eq!(site.get("/health", "").status, 403);
    assert_eq!(with_file(&[]).get("/health", "").body, b"a file");
}

#[test]
fn folders_are_pages() {
    let site = Site::plain(&[]);
    fs::write(site.path("folder/<i>\"'&.ts"), "x").unwrap();
    fs::write(site.path(".hidden.ts"), "x").unwrap();
    let page = site
        .connect()
        .request("GET", "http://example.org:81/folder/", "");
    assert_eq!(
        page.header("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    let html = page.text();
    for part in [
        "<a href=\"a%20b%23%25%C3%BC.ts\">a b#%ü.ts</a></bdi><p>1000 B <span",
        "data-play=\"a%20b%23%25%C3%BC.ts/hls/index.html\"",
        "<a href=\"../\"><bdi>Home</bdi></a>",
        "curl -O 'http://example.org:81/folder/",
        "ffplay -rtsp_transport udp 'rtsp://example.org:",
        "&lt;i&gt;&quot;&#39;&amp;.ts",
        "<html lang=\"en\">",
    ] {
        assert!(html.contains(part), "{part}\n{html}");
    }
    assert!(!html.contains("<i>"));
    let root = site.get("/", "").text();
    assert!(
        root.contains("<a href=\"folder/\">") && !root.contains(".hidden"),
        "{root}"
    );
    let head = site.connect().request("HEAD", "/", "");
    assert_eq!(
        head.header("Content-Length"),
        Some(&*root.len().to_string())
    );
    assert_eq!(site.get("/.hidden.ts", "").status, 404);
}

#[test]
fn codings_lie_ready() {
    let site = Site::plain(&[]);
    for (name, text) in [
        ("page.html", "plain"),
        ("page.html.gz", "gzip"),
        ("page.html.br", "brotli"),
    ] {
        fs::write(site.path(name), text).unwrap();
        set_modified(&site.path(name), FILM_MODIFIED_S);
    }
    let mut raw = site.connect();
    let mut tags = Vec::new();
    for (accepted, coding, body) in [
        ("gzip", Some("gzip"), "gzip"),
        ("gzip, br", Some("br"), "brotli"),
        ("br;q=0.1, gzip;q=0.2", Some("gzip"), "gzip"),
        ("br;q=0, gzip;q=0", None, "plain"),
        ("identity", None, "plain"),
        ("deflate", None, "plain"),
    ] {
        let response = raw.request(
            "GET",
            "/page.html",
            &format!("Accept-Encoding: {accepted}\r\n"),
        );
        assert_eq!(
            (response.header("Content-Encoding"), &*response.text()),
            (coding, body),
            "{accepted}"
        );
        assert_eq!(
            response.header("Content-Type"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(response.header("Vary"), coding.map(|_| "Accept-Encoding"));
        tags.push(response.header("ETag").unwrap().to_owned());
    }
    assert!(tags[0] != tags[1] && tags[1] != tags[4] && tags[0] != tags[4] && tags[0] == tags[2]);
    let part = raw.request(
        "GET",
        "/page.html",
        "Accept-Encoding: gzip\r\nRange: bytes=1-2\r\n",
    );
    assert_eq!((part.status, &*part.text()), (206, "zi"));
}

#[test]
fn accesses_are_logged() {
    for format in ["combined", "json"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("access.log");
        let option = format!("--access-log={}", log.display());
        let mut site = Site::plain(&[&option, "--access-log-format", format]);
        let agent = "User-Agent: a \"b\"\r\nReferer: http://r/\r\n";
        assert_eq!(
            site.get("/film.ts", &format!("Range: bytes=0-9\r\n{agent}"))
                .status,
            206
        );
        assert_eq!(site.get("/none", "").status, 404);
        site.connect().send("nonsense\r\n\r\n");
        let stopped = site.server.interrupt(download_site::LONG).unwrap();
        assert_eq!(stopped.code(), Some(0));
        let text = fs::read_to_string(&log).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.len() >= 2, "{text}");
        if format == "combined" {
            let end = "\"GET /film.ts HTTP/1.1\" 206 10 \"http://r/\" \"a \\\"b\\\"\"";
            assert!(
                lines[0].starts_with("127.0.0.1 - - [") && lines[0].ends_with(end),
                "{text}"
            );
            assert!(lines[1].contains("\"GET /none HTTP/1.1\" 404 "), "{text}");
        } else {
            let line: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
            assert_eq!((&line["status"], &line["bytes"]), (&206.into(), &10.into()));
            assert_eq!(line["user_agent"], "a \"b\"");
        }
    }
}

#[test]
fn what_a_trusted_proxy_says_of_a_request_counts() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let option = format!("--access-log={}", log.display());
    for (proxies, client, scheme) in [
        ("--trusted-proxies=127.0.0.1", "192.0.2.7", "https"),
        (
            "--trusted-proxies=127.0.0.2,10.0.0.0/8",
            "127.0.0.1",
            "http",
        ),
    ] {
        let mut site = Site::plain(&[&option, proxies]);
        let mut raw = site.connect();
        let lines = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-For: 192.0.2.7\r\n\
             X-Forwarded-Proto: https\r\n";
        let page = raw.request("GET", "/folder/?of-a-proxy", lines).text();
        assert!(page.contains(&format!("curl -O '{scheme}://")), "{page}");
        // The next one on the same connection is nobody's but the connection's.
        let page = raw.request("GET", "/folder/?of-none", "").text();
        assert!(page.contains("curl -O 'http://"), "{page}");
        drop(raw);
        let stopped = site.server.interrupt(download_site::LONG).unwrap();
        assert_eq!(stopped.code(), Some(0));
        let text = fs::read_to_string(&log).unwrap();
        let clients = ["?of-a-proxy", "?of-none"].map(|query| {
            let line = text.lines().rfind(|line| line.contains(query));
            line.and_then(|line| line.split(' ').next())
        });
        assert_eq!(clients, [Some(client), Some("127.0.0.1")], "{text}");
    }
}

#[test]
fn a_log_on_stdout_is_written_before_the_end() {
    let mut site = Site::plain(&["--access-log=-"]);
    assert_eq!(site.get("/film.ts", "").status, 200);
    assert_eq!(
        site.server.interrupt(download_site::LONG).unwrap().code(),
        Some(0)
    );
    assert!(
        site.server
            .wait_for_line("\"GET /film.ts HTTP/1.1\" 200 100000", download_site::LONG)
            .is_some()
    );
}
