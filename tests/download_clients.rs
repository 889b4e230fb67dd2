//! Downloads by other people's programs, byte for byte; many at once; and files that change
//! meanwhile.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_sys::thread::{allowed_cores, pin_to, raise_open_files_limit};
use onrush_testkit::connection::Connection;
use onrush_testkit::http_client::Client;
use onrush_testkit::{require_programs, skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use download_site::{FILM_BYTES, LONG, Raw, Site, bytes, run, set_modified};

mod download_site;

const LARGE_BYTES: usize = 12 << 20;
/// Of a file beyond four GiB, most of which is nothing.
const HUGE_BYTES: u64 = FOUR_GIB + (1 << 20) + 12_345;
const FOUR_GIB: u64 = 4 << 30;
const AWKWARD: &str = "a b#%25+é&.ts";
const AWKWARD_IN_URL: &str = "a%20b%23%2525%2B%C3%A9%26.ts";

/// A server of files of all kinds.
fn site(options: &[&str]) -> Site {
    Site::new(options, |root| {
        fs::write(root.join("large.ts"), bytes(LARGE_BYTES)).unwrap();
        fs::write(root.join(AWKWARD), bytes(FILM_BYTES)).unwrap();
        fs::write(root.join("empty.ts"), []).unwrap();
        let huge = File::create(root.join("huge.ts")).unwrap();
        huge.set_len(HUGE_BYTES).unwrap();
        for (at, part) in huge_parts() {
            huge.write_all_at(&part, at).unwrap();
        }
    })
}

/// Where the huge file is not zero, and what is there.
fn huge_parts() -> [(u64, Vec<u8>); 3] {
    [
        (FOUR_GIB - (1 << 20), bytes(3000)),
        // Across the border.
        (FOUR_GIB - 500, bytes(1500)),
        (HUGE_BYTES - 100, bytes(100)),
    ]
}

/// The huge file from there on.
fn huge_from(at: u64) -> Vec<u8> {
    let mut all = vec![0; usize::try_from(HUGE_BYTES - at).unwrap()];
    for (begin, part) in huge_parts() {
        let begin = usize::try_from(begin - at).unwrap();
        all[begin..begin + part.len()].copy_from_slice(&part);
    }
    all
}

/// A folder for a client, which begins with a part of the large file.
fn begun() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("large.ts"),
        &bytes(LARGE_BYTES)[..1_234_567],
    )
    .unwrap();
    folder
}

fn is_large(folder: &Path, name: &str) {
    assert!(
        fs::read(folder.join(name)).unwrap() == bytes(LARGE_BYTES),
        "{name}"
    );
}

#[test]
fn curl_downloads_resumes_and_takes_parts() {
    require_programs!("curl");
    let site = site(&[]);
    let curl = |folder: &Path, arguments: &[&str]| {
        run(
            folder,
            "curl",
            &[
                &["--silent", "--show-error", "--fail", "--max-time", "60"],
                arguments,
            ]
            .concat(),
        )
    };
    for url in [site.url(""), site.ftp_url("")] {
        let folder = begun();
        let at = |name: &str| format!("{url}{name}");
        curl(folder.path(), &["-C", "-", "-O", &at("large.ts")]);
        is_large(folder.path(), "large.ts");
        curl(folder.path(), &["-o", "whole", &at("large.ts")]);
        is_large(folder.path(), "whole");
        curl(folder.path(), &["-o", "awkward", &at(AWKWARD_IN_URL)]);
        assert!(fs::read(folder.path().join("awkward")).unwrap() == bytes(FILM_BYTES));
        assert_eq!(curl(folder.path(), &[&at("empty.ts")]).stdout, b"");
        // Beyond four GiB.
        let far = curl(
            folder.path(),
            &["-r", "4294966796-4294968295", &at("huge.ts")],
        );
        assert!(far.stdout == bytes(1500));
        let resumed = FOUR_GIB - (1 << 20);
        let far = curl(folder.path(), &["-C", &resumed.to_string(), &at("huge.ts")]);
        assert!(far.stdout == huge_from(resumed));
        let last = curl(
            folder.path(),
            &["-C", &(HUGE_BYTES - 100).to_string(), &at("huge.ts")],
        );
        assert!(last.stdout == bytes(100));
    }
    let folder = tempfile::tempdir().unwrap();
    let parts = curl(
        folder.path(),
        &["-r", "0-9,1000-1009", &site.url("large.ts")],
    );
    assert!(
        String::from_utf8_lossy(&parts.stdout).contains("Content-Range: bytes 1000-1009/12582912")
    );
    let head = curl(folder.path(), &["-I", &site.url("huge.ts")]);
    assert!(
        String::from_utf8_lossy(&head.stdout).contains(&format!("Content-Length: {HUGE_BYTES}"))
    );
    // FTP, active.
    curl(
        folder.path(),
        &["--ftp-port", "-", "-o", "active", &site.ftp_url("large.ts")],
    );
    is_large(folder.path(), "active");
}

#[test]
fn wget_downloads_and_resumes() {
    require_programs!("wget");
    let site = site(&[]);
    for url in [site.url("large.ts"), site.ftp_url("large.ts")] {
        let folder = begun();
        run(
            folder.path(),
            "wget",
            &["--quiet", "--tries=1", "--timeout=60", "--continue", &url],
        );
        is_large(folder.path(), "large.ts");
    }
    // It follows the links of the folder's page.
    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--quiet",
        "--recursive",
        "--level=1",
        "--no-host-directories",
        "--accept=a*",
    ];
    run(
        folder.path(),
        "wget",
        &[
            &options[..],
            &["--restrict-file-names=nocontrol", &site.url("")],
        ]
        .concat(),
    );
    // Under a name of its own making: it decodes the percent sign once more.
    let got = fs::read_dir(folder.path()).unwrap().next().expect("a file");
    assert!(fs::read(got.unwrap().path()).unwrap() == bytes(FILM_BYTES));
}

#[test]
fn aria2_downloads_with_sixteen_connections() {
    require_programs!("aria2c");
    let site = site(&[]);
    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--quiet",
        "-x16",
        "-s16",
        "-k1M",
        "--file-allocation=none",
        "--max-tries=1",
    ];
    run(
        folder.path(),
        "aria2c",
        &[&options[..], &[&site.url("large.ts")]].concat(),
    );
    is_large(folder.path(), "large.ts");
    run(
        folder.path(),
        "aria2c",
        &[&options[..], &["-o", "awkward", &site.url(AWKWARD_IN_URL)]].concat(),
    );
    assert!(fs::read(folder.path().join("awkward")).unwrap() == bytes(FILM_BYTES));
}

#[test]
fn lftp_downloads_in_pieces_and_mirrors() {
    require_programs!("lftp");
    let site = site(&[]);
    for url in [site.url(""), site.ftp_url("")] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "set net:max-retries 1; set net:timeout 60; set ftp:ssl-allow no; open {url}; \
             pget -n 8 large.ts; get \"{AWKWARD}\" -o awkward; get empty.ts; bye"
        );
        run(folder.path(), "lftp", &["-c", &script]);
        is_large(folder.path(), "large.ts");
        assert!(fs::read(folder.path().join("awkward")).unwrap() == bytes(FILM_BYTES));
        assert_eq!(fs::read(folder.path().join("empty.ts")).unwrap(), b"");
    }
}

/// What the page of a folder links to is what is in it, and nothing else.
#[test]
fn lftp_and_wget_mirror_folders() {
    require_programs!("lftp", "wget");
    let site = Site::new(&[], |root| {
        fs::create_dir(root.join("in")).unwrap();
        for name in ["film.mp4", "notes.txt", "in/film.mp4"] {
            fs::write(root.join(name), bytes(FILM_BYTES)).unwrap();
        }
    });
    let url = site.url("");
    let folder = tempfile::tempdir().unwrap();
    let script =
        format!("set net:max-retries 1; set net:timeout 60; open {url}; mirror . got; bye");
    run(folder.path(), "lftp", &["-c", &script]);
    has_files(
        &folder.path().join("got"),
        &["film.mp4", "in/film.mp4", "notes.txt"],
    );

    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--quiet",
        "--tries=1",
        "--timeout=60",
        "--no-host-directories",
    ];
    let asked = ["--recursive", "--accept=mp4", &*url];
    run(folder.path(), "wget", &[&options[..], &asked].concat());
    has_files(folder.path(), &["film.mp4", "in/film.mp4"]);
}

/// Whether these files are in a folder, each of them whole, and none beside them.
fn has_files(folder: &Path, names: &[&str]) {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    let expected: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
    assert_eq!(found, expected);
    for path in found {
        assert!(
            fs::read(&path).unwrap() == bytes(FILM_BYTES),
            "{}",
            path.display()
        );
    }
}

#[test]
fn python_downloads_with_its_own_libraries() {
    require_programs!("python3");
    let site = site(&[]);
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
import ftplib, hashlib, http.client, io, sys
http_at, ftp_at, huge = sys.argv[1], sys.argv[2], int(sys.argv[4])
large = open(sys.argv[3], 'rb').read()
name, url = 'a b#%25+\u00e9&.ts', '/a%20b%23%2525%2B%C3%A9%26.ts'
c = http.client.HTTPConnection(http_at, timeout=60)
def get(path, **headers):
    c.request('GET', path, headers=headers)
    r = c.getresponse()
    return r, r.read()
r, body = get('/large.ts'); assert r.status == 200 and body == large
r, body = get('/large.ts', Range='bytes=5-99'); assert r.status == 206 and body == large[5:100]
tag = r.headers['ETag']
r, body = get('/large.ts', **{'If-None-Match': tag}); assert r.status == 304 and body == b''
r, body = get(url); assert r.status == 200 and len(body) == 100000
r, body = get('/empty.ts'); assert r.status == 200 and body == b''
r, body = get('/huge.ts', Range='bytes=%d-' % (huge - 100))
assert r.status == 206 and body == large[:100]
r, body = get('/huge.ts', Range='bytes=4294966796-4294968295')
assert r.status == 206 and body == large[:1500]
r, body = get('/none'); assert r.status == 404
host, port = ftp_at.split(':')
f = ftplib.FTP(); f.connect(host, int(port), timeout=60); f.login()
def retr(name, **k):
    out = io.BytesIO(); f.retrbinary('RETR ' + name, out.write, **k); return out.getvalue()
for passive in (True, False):
    f.set_pasv(passive)
    assert retr('large.ts') == large
    assert retr('large.ts', rest=12345) == large[12345:]
    assert retr('huge.ts', rest=(4 << 30) - 500)[:1500] == large[:1500]
    assert len(retr(name)) == 100000
    assert retr('empty.ts') == b''
    assert retr('huge.ts', rest=huge - 100) == large[:100]
    assert sorted(f.nlst()) == sorted([name, 'empty.ts', 'huge.ts', 'large.ts'])
facts = dict(f.mlsd())
assert facts['huge.ts']['size'] == str(huge) and facts[name]['type'] == 'file'
assert f.size('huge.ts') == huge
lines = []; f.retrlines('LIST', lines.append); assert len(lines) == 4
try: f.storbinary('STOR x', io.BytesIO(b'x')); assert False
except ftplib.error_perm as e: assert str(e).startswith('550')
f.quit()
"#;
    let large = site.path("large.ts");
    let arguments = [
        site.http.to_string(),
        site.ftp.to_string(),
        large.display().to_string(),
        HUGE_BYTES.to_string(),
    ];
    let arguments: Vec<_> = ["-c", script]
        .into_iter()
        .chain(arguments.iter().map(|a| &**a))
        .collect();
    run(folder.path(), "python3", &arguments);
}

/// All of it, compared byte for byte, by HTTP and by FTP.
// SPECIFICATION.md: 9
#[test]
fn more_than_four_gib_arrive_whole() {
    let site = site(&[]);
    let mut http = Client::connect(site.http).unwrap();
    let length = http.begin("/huge.ts", "Connection: close\r\n").unwrap();
    assert_eq!(length, HUGE_BYTES);
    let Connection { stream, received } = http.connection;
    is_huge(&mut Read::chain(&received[..], stream));

    let mut ftp = Raw::connect(site.ftp);
    assert_eq!(ftp.reply().0, 220);
    assert_eq!((ftp.command("USER ftp"), ftp.command("PASS x")), (331, 230));
    ftp.send("EPSV\r\n");
    let (_, text) = ftp.reply();
    let port: u16 = text.split('|').nth(3).unwrap().parse().unwrap();
    let mut data = Raw::connect(([127, 0, 0, 1], port).into());
    assert_eq!(ftp.command("RETR huge.ts"), 150);
    is_huge(&mut data.stream);
    assert_eq!(ftp.reply().0, 226);
}

/// Reads the huge file, and nothing after it.
fn is_huge(from: &mut impl Read) {
    const PIECE_BYTES: u64 = 1 << 20;
    let (zeroes, mut piece) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    while at < FOUR_GIB - PIECE_BYTES {
        from.read_exact(&mut piece).unwrap();
        assert!(piece == zeroes, "within the MiB at {at}");
        at += PIECE_BYTES;
    }
    let mut rest = Vec::new();
    from.read_to_end(&mut rest).unwrap();
    assert!(rest == huge_from(at), "{} bytes after {at}", rest.len());
}

/// What a client gets of `victim.ts` when it has read a little and then `harm` is done to the file:
/// the bytes behind the head, and whether they were all that was promised.
fn got_after(harm: impl FnOnce(&Path)) -> (Vec<u8>, bool) {
    const VICTIM_BYTES: usize = 64 << 20;
    let site = Site::new(&[], |root| {
        fs::write(root.join("victim.ts"), bytes(VICTIM_BYTES)).unwrap()
    });
    let mut raw = site.connect();
    raw.send("GET /victim.ts HTTP/1.1\r\nHost: h\r\n\r\n");
    while raw.received.len() < 1000 {
        assert!(raw.receive() > 0);
    }
    harm(&site.path("victim.ts"));
    let head_end = loop {
        let end = raw.received.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            break end + 4;
        }
        assert!(raw.receive() > 0);
    };
    while raw.received.len() < head_end + VICTIM_BYTES && raw.receive() > 0 {}
    let body = raw.received.split_off(head_end);
    // Others are served on.
    assert_eq!(site.connect().request("OPTIONS", "*", "").status, 204);
    let is_whole = body.len() >= VICTIM_BYTES;
    (body, is_whole)
}

#[test]
fn a_file_that_is_cut_ends_its_download_early() {
    let (body, is_whole) = got_after(|path| {
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(40 << 20)
            .unwrap();
    });
    assert!(!is_whole && body.len() <= 40 << 20, "{}", body.len());
}

#[test]
fn a_file_that_grows_or_is_replaced_is_sent_as_promised() {
    let grow = |path: &Path| {
        File::options()
            .append(true)
            .open(path)
            .unwrap()
            .write_all(b"more")
            .unwrap();
    };
    let replace = |path: &Path| {
        fs::write(path.with_extension("new"), "new").unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    };
    for harm in [&grow as &dyn Fn(&Path), &replace, &|path| {
        fs::remove_file(path).unwrap()
    }] {
        let (body, is_whole) = got_after(harm);
        assert!(is_whole && body == bytes(64 << 20));
    }
}

/// No faster than allowed; how much slower is the machine's affair.
#[test]
fn rates_are_kept() {
    let options = [
        "--download-rate-per-client=16Mbit/s",
        "--download-rate=24Mbit/s",
    ];
    for (option, bytes_a_second) in [(options[0], 2e6), (options[1], 3e6)] {
        let site = Site::new(&[option], |root| {
            fs::write(root.join("film.ts"), bytes(1 << 20)).unwrap()
        });
        let begin = Instant::now();
        // Two at once share it.
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| assert_eq!(site.get("/film.ts", "").body.len(), 1 << 20));
            }
        });
        // But for what may leave at once.
        let least = (2.0 * f64::from(1 << 20) / bytes_a_second - 0.1) * 0.98;
        assert!(
            begin.elapsed().as_secs_f64() >= least,
            "{option}: {:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn a_slow_reader_delays_nobody_and_is_let_go() {
    let site = Site::new(&["--download-stall-time-max=3s"], |root| {
        fs::write(root.join("large.ts"), bytes(64 << 20)).unwrap();
        fs::write(root.join("small.ts"), bytes(1000)).unwrap();
    });
    let before = site.server.holdings().unwrap().sockets;
    // They ask for much, and read nothing.
    let mut slow: Vec<Raw> = (0..20).map(|_| site.connect()).collect();
    for raw in &mut slow {
        raw.send("GET /large.ts HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for _ in 0..50 {
        assert_eq!(site.get("/small.ts", "").body, bytes(1000));
    }
    assert_eq!(site.get("/large.ts", "").body.len(), 64 << 20);
    // Cut off: what they can still read is less than they were promised.
    let mut first = slow.remove(0);
    let give_up = Instant::now() + LONG;
    while site.server.holdings().unwrap().sockets > before {
        assert!(Instant::now() < give_up, "they are not let go");
        thread::sleep(Duration::from_millis(50));
    }
    while first.receive() > 0 {}
    assert!(first.received.len() < 64 << 20, "{}", first.received.len());
}

/// The memory is the server's own: sockets' buffers are the kernel's.
#[test]
fn five_thousand_idle_and_five_hundred_active_connections() {
    const IDLE: usize = 5000;
    const ACTIVE: usize = 500;
    const FILE_BYTES: usize = 2 << 20;
    if raise_open_files_limit() < 14_000 {
        skip::record("needs 14,000 open files (ulimit -Hn)");
        return;
    }
    // Longer than a slow machine takes for all of it, and all from one address.
    let options = [
        "--download-idle-time-max=600s",
        "--download-stall-time-max=600s",
        "--download-connections-per-address-max=16384",
    ];
    let site = Site::new(&options, |root| {
        fs::write(root.join("film.ts"), bytes(FILE_BYTES)).unwrap()
    });
    let before = site.server.holdings().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let resident_bytes_max = runtime.block_on(async {
        let mut idle = Vec::new();
        for _ in 0..IDLE {
            idle.push(ask_for_nothing(site.http).await);
        }
        let downloads: Vec<_> = (0..ACTIVE)
            .map(|_| tokio::spawn(download(site.http)))
            .collect();
        let mut most = 0;
        for download in downloads {
            let got = tokio::time::timeout(5 * LONG, download)
                .await
                .expect("none is starved");
            assert_eq!(got.unwrap(), FILE_BYTES);
            most = most.max(site.server.holdings().unwrap().resident_bytes);
        }
        assert!(site.server.holdings().unwrap().sockets >= IDLE);
        // Those who were idle are served still.
        for stream in idle.iter_mut().step_by(500) {
            stream
                .write_all(b"HEAD /film.ts HTTP/1.1\r\nHost: h\r\n\r\n")
                .await
                .unwrap();
            let count = stream.read(&mut [0; 1000]).await.unwrap();
            assert!(count > 0);
        }
        most
    });
    let grown = resident_bytes_max.saturating_sub(before.resident_bytes);
    assert!(
        grown < 100 << 20,
        "{grown} bytes more than without connections"
    );
    assert!(
        grown > 1 << 20,
        "{grown}: what was measured is not the server"
    );
}

/// A connection that has had an answer and says nothing more.
async fn ask_for_nothing(address: SocketAddr) -> tokio::net::TcpStream {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
        .await
        .unwrap();
    let count = stream.read(&mut [0; 1000]).await.unwrap();
    assert!(count > 0);
    stream
}

async fn download(address: SocketAddr) -> usize {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /film.ts HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let (mut buffer, mut total, mut head_bytes) = (vec![0; 65_536], 0, None);
    loop {
        let count = stream.read(&mut buffer).await.unwrap();
        if count == 0 {
            break;
        }
        if head_bytes.is_none() {
            let end = buffer[..count]
                .windows(4)
                .position(|bytes| bytes == b"\r\n\r\n");
            head_bytes = end.map(|end| end + 4);
        }
        total += count;
    }
    total - head_bytes.unwrap()
}

/// Whoever shares the server's processor is seen by the kernel's own count, and gets pauses.
#[test]
fn downloads_yield_beside_who_wants_the_processor() {
    require_programs!("curl");
    let core = *allowed_cores().last().unwrap();
    // On a thread of its own, whose processor is that of the program that it starts.
    let started = thread::spawn(move || {
        pin_to(core).unwrap();
        let options = ["--download-schedule=yielding=32,2ms", "--metrics=0"];
        Site::new(&options, |root| {
            fs::write(root.join("large.ts"), bytes(LARGE_BYTES)).unwrap();
        })
    });
    let site = started.join().unwrap();
    let metrics = site.server.wait_for_line("metrics ", LONG).unwrap();
    let metrics = metrics.split_whitespace().last().unwrap();
    let counted = |name: &str| {
        let page = run(site.media.path(), "curl", &["-sS", "--fail", metrics]);
        let page = String::from_utf8(page.stdout).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse::<f64>().unwrap()
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin_to(core).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let begin = Instant::now();
        while counted("onrush_transfer_yields_total ") == 0.0 && begin.elapsed() < LONG {
            for url in [site.url("large.ts"), site.ftp_url("large.ts")] {
                let got = run(site.media.path(), "curl", &["-sS", "--fail", &url]);
                assert!(got.stdout == bytes(LARGE_BYTES), "{url}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(counted("onrush_transfer_yields_total ") > 0.0);
    assert!(counted("onrush_transfer_delayed_seconds_total ") > 0.0);
}

#[test]
fn what_is_told_at_the_start_downloads() {
    require_programs!("curl");
    let site = Site::new(&[], |root| {
        fs::write(root.join("a film.ts"), bytes(1000)).unwrap()
    });
    set_modified(&site.path("a film.ts"), 1);
    let line = site.server.wait_for_line("download   curl ", LONG).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let command = line.trim_start_matches("download").trim();
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}");
    let got = fs::read_dir(folder.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert!(fs::read(got).unwrap() == bytes(1000));
}
