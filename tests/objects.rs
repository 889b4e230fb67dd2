//! Films of an object store: every byte as it lies there, each range asked for once, and what
//! becomes of viewers when the store has a bad day.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use onrush_testkit::film::{Container, film};
use onrush_testkit::http_client::{Client, Response};
use onrush_testkit::process::{Process, Signal};
use onrush_testkit::testbed::{Mode, SND_IPV4, Testbed};
use onrush_testkit::{require_programs, require_root};
use rustix::process::{Pid, kill_process};
use serde_json::Value;

use common::{KEEP_ALIVE, LONG, ONRUSH, Site, Viewer, clip, serve_arguments, wait_until, watch};
use s3::{BUCKET, Fault, KEY, SECRET, Store};

mod common;
mod s3;

/// A server of the films in `folder` of a bucket, each a name and a file.
fn serve(films: &[(&str, &Path)], arguments: &[&str]) -> (Store, Site) {
    let (testbed, media) = Site::prepare(Mode::Uso);
    let store = store_of(films, &testbed);
    let command = command(&testbed, &store, media.path(), arguments);
    let site = Site::serve_by(testbed, media, command);
    (store, site)
}

fn store_of(films: &[(&str, &Path)], testbed: &Testbed) -> Store {
    let store = Store::start(&testbed.snd);
    for (name, file) in films {
        store.put(&testbed.snd, &format!("cinema/{name}"), file);
    }
    store
}

fn command(testbed: &Testbed, store: &Store, cache: &Path, arguments: &[&str]) -> Command {
    let mut command = testbed.snd.command(ONRUSH);
    let url = format!("s3://{BUCKET}/cinema");
    command.args(serve_arguments(Path::new(&url)));
    command.arg(format!("--object-cache={}", cache.display()));
    command
        .args([
            "--cache=64MiB",
            "--http=10.77.0.1:8080",
            "--metrics=10.77.0.1:9554",
        ])
        .args(arguments);
    of_store(&mut command, store.proxy);
    command
}

/// Says where the store is, and who asks.
fn of_store(command: &mut Command, store: SocketAddr) {
    command.env("AWS_ACCESS_KEY_ID", KEY);
    command.env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("AWS_REGION", "us-east-1");
    command.env("AWS_ENDPOINT_URL", format!("http://{store}"));
}

/// A file of the demo clip's first seconds, with its bytes.
fn clip_file(seconds: f64) -> (tempfile::NamedTempFile, Arc<[u8]>) {
    let bytes = clip(seconds);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &bytes).unwrap();
    (file, bytes.into())
}

/// What ffmpeg decodes of a source: a hash for each picture, in order.
fn pictures(mut ffmpeg: Command, source: &str) -> Vec<String> {
    ffmpeg.args(["-v", "error", "-nostdin"]);
    if source.starts_with("rtsp") {
        ffmpeg.args(["-rtsp_transport", "tcp"]);
    }
    ffmpeg.args(["-i", source, "-map", "0:v:0", "-fps_mode", "passthrough"]);
    let output = ffmpeg.args(["-f", "framemd5", "-"]).output().unwrap();
    assert!(output.status.success(), "{source}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let hash = |line: &str| line.rsplit(',').next().unwrap().trim().to_owned();
    lines.map(hash).collect()
}

/// What a client of the receiving side gets by HTTP.
fn ask(site: &Site, port: u16, method: &str, target: &str, more: &str) -> Response {
    let address = SocketAddr::from((SND_IPV4, port));
    site.testbed.rcv.run(|| {
        let mut client = Client::connect(address).unwrap();
        client.request(method, target, more).unwrap()
    })
}

fn get(site: &Site, target: &str, more: &str) -> Response {
    ask(site, 8080, "GET", target, more)
}

/// A number that the server has of its store.
fn counted(site: &Site, name: &str) -> u64 {
    let status = ask(site, 9554, "GET", "/status", "");
    let status: Value = serde_json::from_slice(&status.body).unwrap();
    let number = status["objects"][name].as_u64();
    number.unwrap_or_else(|| panic!("{name}: {status}"))
}

/// Every range was asked for once: again only, on a busy machine, where an answer was late.
fn assert_once(store: &Store, site: &Site, name: &str, blocks: u64) {
    let asked = store.asked(name);
    let ranges: BTreeSet<_> = asked.iter().collect();
    let again = counted(site, "hedges") + counted(site, "retries");
    assert!((asked.len() - ranges.len()) as u64 <= again, "{asked:?}");
    assert!(ranges.len() as u64 <= blocks, "{asked:?}");
}

#[test]
fn ffmpeg_gets_an_mp4_of_a_bucket_by_rtsp_and_hls() {
    require_root!();
    require_programs!("curl", "ffmpeg");
    let mp4 = film(Container::Mp4, 4_000_000, 12).unwrap();
    let (store, site) = serve(&[("film.mp4", &mp4)], &[]);
    let wanted = pictures(Command::new("ffmpeg"), mp4.to_str().unwrap());
    for source in [
        site.url("film.mp4"),
        "http://10.77.0.1:8080/film.mp4/hls/index.m3u8".to_owned(),
    ] {
        let got = pictures(site.testbed.rcv.command("ffmpeg"), &source);
        assert_eq!(got.len(), wanted.len(), "{source}");
        assert!(got == wanted, "{source}");
    }
    let bytes = fs::metadata(&mp4).unwrap().len();
    assert_once(&store, &site, "film.mp4", bytes.div_ceil(1 << 20));
    site.stop();
}

#[test]
fn stores_and_a_folder_are_libraries_of_one_server() {
    require_root!();
    require_programs!("curl", "ffmpeg");
    let mp4 = film(Container::Mp4, 4_000_000, 12).unwrap();
    let (testbed, media) = Site::prepare(Mode::Uso);
    let cache = tempfile::tempdir().unwrap();
    fs::write(media.path().join("clip.ts"), clip(2.0)).unwrap();
    let store = store_of(&[("film.mp4", &mp4)], &testbed);
    let mut command = testbed.snd.command(ONRUSH);
    let folder = format!("films={}", media.path().display());
    let [archive, again] = ["archive", "again"].map(|it| format!("{it}=s3://{BUCKET}/cinema"));
    let arguments = serve_arguments(media.path()).into_iter().enumerate();
    command.args(arguments.filter_map(|(n, it)| (n != 1).then_some(it)));
    command.args([folder, archive, again].map(|it| format!("--library={it}")));
    command.arg(format!("--object-cache={}", cache.path().display()));
    command.args([
        "--cache=64MiB",
        "--http=10.77.0.1:8080",
        "--ftp=10.77.0.1:2121",
    ]);
    command.arg("--metrics=10.77.0.1:9554");
    of_store(&mut command, store.proxy);
    let site = Site::serve_by(testbed, media, command);
    let wanted = pictures(Command::new("ffmpeg"), mp4.to_str().unwrap());
    for source in [
        site.url("archive/film.mp4"),
        "http://10.77.0.1:8080/archive/film.mp4/hls/index.m3u8".to_owned(),
    ] {
        let got = pictures(site.testbed.rcv.command("ffmpeg"), &source);
        assert!(got == wanted, "{source}");
    }
    let bytes = fs::metadata(&mp4).unwrap().len();
    assert_once(&store, &site, "film.mp4", bytes.div_ceil(1 << 20));
    // Two libraries are two, also if they lie in one folder of a store.
    let before = counted(&site, "bytes");
    assert!(get(&site, "/again/film.mp4", "").body == fs::read(&mp4).unwrap());
    assert!(counted(&site, "bytes") >= before + bytes);
    assert!(get(&site, "/films/clip.ts", "").body == clip(2.0));
    for none in [
        "/film.mp4",
        "/clip.ts",
        "/films/film.mp4",
        "/archive/clip.ts",
        "/other/film.mp4",
    ] {
        assert_eq!(get(&site, none, "").status, 404, "{none}");
    }
    let list = |path: &str| {
        let mut curl = site.testbed.rcv.command("curl");
        let url = format!("ftp://10.77.0.1:2121/{path}");
        let output = curl.args(["-s", "--list-only", &url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(list(""), "again\narchive\nfilms\n");
    assert_eq!(
        (list("archive/"), list("films/")),
        ("film.mp4\n".into(), "clip.ts\n".into())
    );
    for blocks in ["onrush-blocks-archive", "onrush-blocks-again"] {
        let files = fs::read_dir(cache.path().join(blocks)).unwrap();
        assert!(files.count() > 0, "{blocks}");
    }
    site.stop();
}

/// A store that answers, and has nothing: no list either. Its threads end with the process.
fn store_without_a_list() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            thread::spawn(move || {
                let lines = BufReader::new(&client).lines().map_while(Result::ok);
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n";
                // Who has gone needs none.
                drop((&client).write_all(format!("{answer}\r\n").as_bytes()));
            });
        }
    });
    address
}

/// The first lines have the films of the other library, and the log says what is missing.
#[test]
fn a_store_without_a_list_hides_no_other_library() {
    let folder = tempfile::tempdir().unwrap();
    let films = folder.path().join("films");
    fs::create_dir(&films).unwrap();
    fs::write(films.join("clip.ts"), clip(1.0)).unwrap();
    let mut command = Command::new(ONRUSH);
    command.args(["serve", "--library=archive=s3://films/cinema"]);
    command.arg(format!("--library=films={}", films.display()));
    command.arg(format!("--object-cache={}", folder.path().display()));
    command.args(["--state=off", "--cache=8MiB", "--rtsp=127.0.0.1:0"]);
    command.args(["--http=off", "--metrics=off"]);
    of_store(&mut command, store_without_a_list());
    let server = Process::start(&mut command).unwrap();
    let ready = server.wait_for_line("stopping ", LONG);
    assert!(ready.is_some(), "{}", server.log_tail());
    let shown = server.wait_for_line("/films/clip.ts", LONG);
    assert!(shown.is_some(), "{}", server.log_tail());
    let said = server.wait_for_line("s3://films/cinema: what can be played is not shown", LONG);
    assert!(said.is_some(), "{}", server.log_tail());
}

#[test]
fn what_fails_in_the_store_is_asked_again_until_it_is_whole() {
    require_root!();
    require_programs!("curl");
    let (clip, ts) = clip_file(20.0);
    let (store, site) = serve(&[("clip.ts", clip.path())], &[]);
    let faults = [
        Fault::Unavailable,
        Fault::Reset,
        Fault::Truncated,
        Fault::Late,
    ];
    store.change(|state| state.faults = faults.to_vec());
    watch(&site.testbed, "clip.ts", &ts, None);
    let asked = store.asked("clip.ts");
    let ranges: BTreeSet<_> = asked.iter().collect();
    assert!(asked.len() >= ranges.len() * 4, "{asked:?}");
    site.stop();
}

#[test]
fn films_of_a_bucket_play_byte_for_byte_and_once() {
    require_root!();
    require_programs!("curl");
    let (clip, ts) = clip_file(20.0);
    let (store, site) = serve(&[("a clip.ts", clip.path())], &["--sandbox=require"]);
    assert!(site.server.wait_for_line("a%20clip.ts", LONG).is_some());
    thread::scope(|all| {
        for start in [None, Some(7.0), Some(12.0), None, Some(15.0), Some(12.0)] {
            let (testbed, ts) = (&site.testbed, &ts);
            all.spawn(move || watch(testbed, "a%20clip.ts", ts, start));
        }
    });
    let blocks = ts.len().div_ceil(1 << 20) as u64;
    assert_once(&store, &site, "a%20clip.ts", blocks);
    assert_eq!(counted(&site, "cached_bytes"), blocks << 20);
    let said = site.stop();
    assert!(!said.contains("was refused (EPERM)"), "{said}");
}

#[test]
fn a_hundred_downloads_cause_one_request_a_range() {
    require_root!();
    require_programs!("curl", "ffmpeg");
    let mp4 = film(Container::Mp4, 4_000_000, 12).unwrap();
    let bytes = fs::read(&mp4).unwrap();
    let (store, site) = serve(&[("film.mp4", &mp4)], &[]);
    thread::scope(|all| {
        for _ in 0..100 {
            all.spawn(|| {
                let whole = get(&site, "/film.mp4", "");
                assert_eq!(whole.status, 200);
                assert!(whole.body == bytes, "{} bytes", whole.body.len());
            });
        }
    });
    assert_once(
        &store,
        &site,
        "film.mp4",
        bytes.len().div_ceil(1 << 20) as u64,
    );
    let part = get(&site, "/film.mp4", "Range: bytes=1048570-1048590\r\n");
    assert_eq!(part.status, 206);
    assert_eq!(part.body, bytes[1_048_570..=1_048_590]);
    let etag = part.header("ETag").unwrap().to_owned();
    let same = get(&site, "/film.mp4", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(same.status, 304);
    let head = ask(&site, 8080, "HEAD", "/film.mp4", "");
    assert_eq!(
        head.header("Content-Length").unwrap(),
        bytes.len().to_string()
    );
    assert_eq!(get(&site, "/none.mp4", "").status, 404);
    site.stop();
}

#[test]
fn folders_of_a_bucket_are_listed_page_by_page() {
    require_root!();
    require_programs!("curl");
    let (clip, _) = clip_file(1.0);
    let (store, site) = serve(&[("a/b/c.ts", clip.path()), ("d.ts", clip.path())], &[]);
    let top = get(&site, "/", "").text();
    assert!(
        top.contains(">a/</a>") && top.contains(">d.ts</a>"),
        "{top}"
    );
    assert!(!top.contains("c.ts"), "{top}");
    assert_eq!(get(&site, "/a/b", "").header("Location"), Some("./b/"));
    assert!(get(&site, "/a/b/", "").text().contains(">c.ts</a>"));
    assert_eq!(get(&site, "/none/", "").status, 404);
    for number in 0..2_500 {
        store.plant(&format!("cinema/many/{number:04}.ts"));
    }
    let before = counted(&site, "requests");
    let many = get(&site, "/many/", "").text();
    let listed = (0..2_500).filter(|it| many.contains(&format!(">{it:04}.ts</a>")));
    assert_eq!(listed.count(), 2_500);
    let requests = counted(&site, "requests") - before;
    assert!(requests >= 3, "a page has 1000: {requests}");
    site.stop();
}

#[test]
fn slow_answers_are_asked_for_twice_and_the_first_taken() {
    require_root!();
    require_programs!("curl", "ffmpeg");
    let large = film(Container::Mp4, 8_000_000, 30).unwrap();
    let bytes = fs::read(&large).unwrap();
    let small = film(Container::Mp4, 4_000_000, 12).unwrap();
    let films = [("large.mp4", &*large), ("small.mp4", &*small)];
    let (store, site) = serve(&films, &[]);
    // One range in eight is two seconds late when it is asked for first.
    store.change(|state| state.late_every = 8);
    let whole = get(&site, "/large.mp4", "");
    assert!(whole.body == bytes, "{} bytes", whole.body.len());
    // And whoever watches has every picture.
    let wanted = pictures(Command::new("ffmpeg"), small.to_str().unwrap());
    let source = site.url("small.mp4");
    let got = pictures(site.testbed.rcv.command("ffmpeg"), &source);
    assert!(got == wanted, "{} of {}", got.len(), wanted.len());
    let (hedges, won) = (counted(&site, "hedges"), counted(&site, "hedges_won"));
    assert!(hedges >= 3 && won >= 1, "{won} of {hedges}");
    assert!(hedges <= 8 + counted(&site, "requests") / 10);
    site.stop();
}

#[test]
fn a_replaced_film_ends_with_the_reason_and_never_mixes() {
    require_root!();
    require_programs!("curl", "ffmpeg");
    // So long that a busy machine has not read all of it before it is replaced.
    let mp4 = film(Container::Mp4, 8_000_000, 60).unwrap();
    let (clip, ts) = clip_file(4.0);
    let (store, site) = serve(&[("film.mp4", &mp4)], &[]);
    let mut viewer = Viewer::setup(&site.testbed, "film.mp4");
    viewer.play(None);
    assert!(viewer.receiver.wait_until(LONG, |it| it.rtp.len() > 200));
    store.put(&site.testbed.snd, "cinema/film.mp4", clip.path());
    wait_until("the server finds the film replaced", || {
        let answer = viewer.ask("GET_PARAMETER", &[]);
        assert!(matches!(answer.status, 200 | 454), "{answer:?}");
        thread::sleep(KEEP_ALIVE);
        site.server.log().contains("the object was replaced")
    });
    let came = viewer.finish();
    let bytes: usize = came.rtp.iter().map(|it| it.bytes.len()).sum();
    assert!(bytes < 50_000_000, "{bytes}: not all of it");
    // Whoever comes now gets the other.
    watch(&site.testbed, "film.mp4", &ts, None);
    site.stop();
}

#[test]
fn bytes_under_another_tag_are_never_sent() {
    require_root!();
    require_programs!("curl");
    let (clip, _) = clip_file(4.0);
    let (store, site) = serve(&[("clip.ts", clip.path())], &[]);
    store.change(|state| state.faults = vec![Fault::WrongTag; 99]);
    let answer = site
        .connect()
        .request("DESCRIBE", &site.url("clip.ts"), &[]);
    assert_eq!(answer.unwrap().status, 500);
    let said = site.server.wait_for_line("replaced or removed", LONG);
    assert!(said.is_some(), "{}", site.server.log_tail());
    site.stop();
}

#[test]
fn a_store_that_lets_nobody_in_is_told_at_the_start() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    let store = Store::start(&testbed.snd);
    let mut command = testbed.snd.command(ONRUSH);
    command.args(["serve", "s3://films", "--state=off", "--rtsp=127.0.0.1:0"]);
    command.arg(format!("--object-cache={}", media.path().display()));
    of_store(&mut command, store.proxy);
    command.env("AWS_SECRET_ACCESS_KEY", "another");
    let mut server = Process::start(&mut command).unwrap();
    let status = server.wait(LONG).unwrap();
    let said = server.log();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("look at AWS_ACCESS_KEY_ID"), "{said}");
}

#[test]
fn with_the_store_gone_warm_films_play_and_cold_get_503() {
    require_root!();
    require_programs!("curl");
    let (clip, ts) = clip_file(6.0);
    let films = [("warm.ts", clip.path()), ("cold.ts", clip.path())];
    let (store, site) = serve(&films, &[]);
    watch(&site.testbed, "warm.ts", &ts, None);
    store.change(|state| state.is_gone = true);
    watch(&site.testbed, "warm.ts", &ts, None);
    watch(&site.testbed, "warm.ts", &ts, Some(3.0));
    let answer = site
        .connect()
        .request("DESCRIBE", &site.url("cold.ts"), &[]);
    let answer = answer.unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("Retry-After"), Some("5"), "{answer:?}");
    for target in ["/cold.ts/hls/index.m3u8", "/cold.ts", "/"] {
        let answer = get(&site, target, "");
        assert_eq!(answer.status, 503, "{target}: {answer:?}");
        assert_eq!(answer.header("Retry-After"), Some("5"), "{target}");
    }
    assert!(get(&site, "/warm.ts", "").body == *ts);
    // Those who probe the server hear of the server, and cost the store nothing.
    let before = counted(&site, "requests");
    assert_eq!(get(&site, "/health", "").status, 200);
    assert_eq!(counted(&site, "requests"), before);
    // Twenty who wait for the same film do so together: one after the other they take 100 s.
    let began = Instant::now();
    thread::scope(|all| {
        for _ in 0..20 {
            all.spawn(|| assert_eq!(get(&site, "/cold.ts", "").status, 503));
        }
    });
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    // And when it is back they are played.
    store.change(|state| state.is_gone = false);
    watch(&site.testbed, "cold.ts", &ts, None);
    site.stop();
}

/// A store's film is not gone because the folder of its blocks is.
#[test]
fn a_film_without_a_file_for_blocks_gets_503() {
    require_root!();
    let (clip, ts) = clip_file(2.0);
    let (_store, site) = serve(&[("clip.ts", clip.path())], &[]);
    fs::remove_dir_all(site.path("onrush-blocks")).unwrap();
    let answer = get(&site, "/clip.ts", "");
    // Some file systems make files without a name there even then.
    if answer.status == 200 {
        assert!(answer.body == *ts);
    } else {
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.header("Retry-After"), Some("5"), "{answer:?}");
        let line = site.server.wait_for_line("no file for blocks in", LONG);
        assert!(line.is_some(), "{}", site.server.log_tail());
    }
    site.stop();
}

/// Who downloads gets what was read before, and then the connection's end: never all that was
/// announced, and no other bytes. Whoever asks for something else is not kept by it.
#[test]
fn a_download_ends_early_when_the_store_goes_and_nothing_else() {
    require_root!();
    require_programs!("curl", "ffmpeg");
    let large = film(Container::Mp4, 8_000_000, 60).unwrap();
    let bytes = fs::read(&large).unwrap();
    let (clip, ts) = clip_file(6.0);
    let films = [
        ("large.mp4", &*large),
        ("warm.ts", clip.path()),
        ("cold.ts", clip.path()),
    ];
    let (store, site) = serve(&films, &[]);
    watch(&site.testbed, "warm.ts", &ts, None);
    let folder = tempfile::tempdir().unwrap();
    let came = folder.path().join("large.mp4");
    let mut curl = site.testbed.rcv.command("curl");
    curl.args(["-sS", "--limit-rate", "4M", "-o"]).arg(&came);
    curl.arg("http://10.77.0.1:8080/large.mp4");
    let mut curl = Process::start(&mut curl).unwrap();
    let length = || fs::metadata(&came).map_or(0, |it| it.len());
    wait_until("some of it came", || length() > 2_000_000);
    store.change(|state| state.is_gone = true);
    watch(&site.testbed, "warm.ts", &ts, None);
    assert!(get(&site, "/warm.ts", "").body == *ts);
    let answer = get(&site, "/cold.ts", "");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("Retry-After"), Some("5"), "{answer:?}");
    // 18: it ended with bytes outstanding; 56: it was reset (curl's manual).
    let status = curl.wait(LONG).unwrap();
    assert!(matches!(status.code(), Some(18 | 56)), "{}", curl.log());
    let part = fs::read(&came).unwrap();
    assert!((2_000_000..bytes.len()).contains(&part.len()));
    assert!(bytes.starts_with(&part), "{} bytes", part.len());
    // It goes on where it ended when the store is back.
    store.change(|state| state.is_gone = false);
    let more = format!("Range: bytes={}-\r\n", part.len());
    let rest = get(&site, "/large.mp4", &more);
    assert_eq!(rest.status, 206, "{}", rest.status);
    assert!(rest.body == bytes[part.len()..]);
    site.stop();
}

/// Another server with the cache of one that was killed, or was told to end.
fn again(site: Site, store: &Store, is_killed: bool, arguments: &[&str]) -> Site {
    let Site {
        mut server,
        testbed,
        media,
    } = site;
    match is_killed {
        true => server.signal(Signal::KILL).unwrap(),
        false => server.signal(Signal::INT).unwrap(),
    }
    server.wait(LONG).unwrap();
    let command = command(&testbed, store, media.path(), arguments);
    Site::serve_by(testbed, media, command)
}

/// The only file of blocks in a cache.
fn file_of_blocks(cache: &Path) -> PathBuf {
    let files = fs::read_dir(cache.join("onrush-blocks")).unwrap();
    let files = files.map(|it| it.unwrap().path());
    let mut files = files.filter(|it| it.extension().is_some_and(|it| it == "blocks"));
    let file = files.next().unwrap();
    assert!(files.next().is_none());
    file
}

// SPECIFICATION.md: 73
#[test]
fn blocks_outlive_the_server_and_damaged_ones_never_leave() {
    require_root!();
    require_programs!("curl");
    let (clip, ts) = clip_file(20.0);
    let sandbox = ["--sandbox=require"];
    let (store, site) = serve(&[("clip.ts", clip.path())], &sandbox);
    assert!(get(&site, "/clip.ts", "").body == *ts);
    let (asked, blocks) = (store.asked("clip.ts"), ts.len().div_ceil(1 << 20) as u64);
    assert!(asked.len() as u64 >= blocks, "{asked:?}");
    // Told to end, and killed: nothing is asked for again, by whatever protocol.
    let site = again(site, &store, false, &sandbox);
    assert_eq!(counted(&site, "cached_bytes"), blocks << 20);
    assert!(get(&site, "/clip.ts", "").body == *ts);
    assert_eq!(counted(&site, "kept"), blocks);
    let site = again(site, &store, true, &sandbox);
    watch(&site.testbed, "clip.ts", &ts, None);
    assert!(get(&site, "/clip.ts", "").body == *ts);
    assert_eq!(counted(&site, "kept"), blocks);
    assert_eq!(store.asked("clip.ts"), asked);
    // One bit of the second block.
    let file = file_of_blocks(site.media.path());
    let file = File::options().read(true).write(true).open(file).unwrap();
    let (mut byte, place) = ([0], (1 << 20) + 4_321);
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 1], place).unwrap();
    let site = again(site, &store, true, &sandbox);
    watch(&site.testbed, "clip.ts", &ts, None);
    assert!(get(&site, "/clip.ts", "").body == *ts);
    let asked_again = &store.asked("clip.ts")[asked.len()..];
    let is_second = |range: &String| range == "bytes=1048576-2097151";
    assert!(!asked_again.is_empty() && asked_again.iter().all(is_second));
    assert_eq!(counted(&site, "damaged"), 1);
    assert_eq!(counted(&site, "kept"), blocks - 1);
    let said = site.server.log();
    assert!(said.contains("block 1 is damaged on the disk"), "{said}");
    file.read_exact_at(&mut byte, place).unwrap();
    assert_eq!(byte[0], ts[usize::try_from(place).unwrap()]);
    let said = site.stop();
    assert!(!said.contains("was refused (EPERM)"), "{said}");
}

#[test]
fn a_cache_of_another_server_is_refused_with_its_process() {
    require_root!();
    let (store, site) = serve(&[], &[]);
    let mut second = site.testbed.snd.command(ONRUSH);
    second.args(["serve", "s3://films", "--state=off", "--rtsp=127.0.0.1:0"]);
    second.arg(format!("--object-cache={}", site.media.path().display()));
    of_store(&mut second, store.proxy);
    let (status, said) = Process::run(&mut second, LONG).unwrap();
    assert_eq!(status.code(), Some(2), "{said}");
    let process = format!("process {} keeps its blocks here", site.server.id());
    assert!(
        said.contains(&process) && said.contains("name another"),
        "{said}"
    );
    site.stop();
}

#[test]
fn a_folder_that_cannot_be_written_is_told_at_the_start() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    let store = store_of(&[], &testbed);
    let file = media.path().join("file");
    fs::write(&file, "").unwrap();
    let mut server = command(&testbed, &store, &file, &[]);
    let (status, said) = Process::run(&mut server, LONG).unwrap();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(
        said.contains("name a folder of a local disk with --object-cache"),
        "{said}"
    );
}

/// A disk of its own, as large as told.
struct Disk(PathBuf);

impl Disk {
    fn mounted(at: &Path, size: &str) -> Self {
        fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={size},mode=700"),
            "none",
        ]);
        assert!(mount.arg(at).status().unwrap().success());
        Self(at.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

/// The cache may have 64 MiB and its disk has 6: each byte comes all the same.
#[test]
fn a_full_disk_makes_the_cache_smaller_and_nothing_else() {
    require_root!();
    require_programs!("curl", "ffmpeg", "mount");
    let mp4 = film(Container::Mp4, 8_000_000, 20).unwrap();
    let bytes = fs::read(&mp4).unwrap();
    let (testbed, media) = Site::prepare(Mode::Uso);
    let store = store_of(&[("film.mp4", &mp4)], &testbed);
    let disk = Disk::mounted(&media.path().join("disk"), "6m");
    assert!(bytes.len() > 12 << 20, "{} bytes", bytes.len());
    let of = command(&testbed, &store, &disk.0, &[]);
    let site = Site::serve_by(testbed, media, of);
    for _ in 0..2 {
        let whole = get(&site, "/film.mp4", "");
        assert!(whole.body == bytes, "{} bytes", whole.body.len());
    }
    assert!(counted(&site, "cached_bytes") <= 6 << 20);
    let said = site.stop();
    let lines = said.matches("blocks go before there are as many").count();
    assert_eq!(lines, 1, "{said}");
}

/// Ends the process that took over.
struct Successor(Pid);

impl Drop for Successor {
    fn drop(&mut self) {
        kill_process(self.0, Signal::KILL).unwrap_or_default();
        let stat = format!("/proc/{}/stat", self.0.as_raw_nonzero());
        // Whoever has to wait for it may never do so.
        let is_over = || !fs::read_to_string(&stat).is_ok_and(|it| !it.contains(") Z "));
        let tries = std::iter::repeat_with(|| thread::sleep(KEEP_ALIVE)).take(60);
        tries.take_while(|()| !is_over()).for_each(drop);
    }
}

/// While the one before serves somebody, a successor has what that one has, and its own beside it;
/// then it has the folder, and whoever comes behind both has all of it.
#[test]
fn a_successor_has_the_blocks_of_the_server_before_it() {
    require_root!();
    require_programs!("curl");
    let (clip, ts) = clip_file(20.0);
    let films = [("clip.ts", clip.path()), ("new.ts", clip.path())];
    let sandbox = ["--sandbox=require"];
    let (store, site) = serve(&films, &sandbox);
    assert!(get(&site, "/clip.ts", "").body == *ts);
    let asked = store.asked("clip.ts");
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    viewer.play(None);
    site.server.signal(Signal::USR2).unwrap();
    let line = site.server.wait_for_line("serves from now on", LONG);
    let line = line.unwrap_or_else(|| panic!("{}", site.server.log_tail()));
    let words: Vec<_> = line.split(' ').collect();
    let at = words.iter().position(|it| *it == "process").unwrap();
    let number = words[at + 1].parse().unwrap();
    let successor = Successor(Pid::from_raw(number).unwrap());
    for name in ["/clip.ts", "/new.ts"] {
        assert!(get(&site, name, "").body == *ts);
    }
    // The one before may accept a connection in the moment in which it ceases to.
    wait_until("the successor has blocks of the one before", || {
        assert!(get(&site, "/clip.ts", "").body == *ts);
        counted(&site, "kept") > 0
    });
    assert_eq!(store.asked("clip.ts"), asked);
    // Its viewer gets the rest from the one before, which ends then.
    let came = viewer.finish();
    assert!(came.rtp.len() > 1_000, "{}", came.rtp.len());
    let told = site.server.wait_for_line("is this process's now", LONG);
    assert!(told.is_some(), "{}", site.server.log_tail());
    drop(successor);
    let asked = (asked, store.asked("new.ts"));
    let site = again(site, &store, true, &sandbox);
    for name in ["/clip.ts", "/new.ts"] {
        assert!(get(&site, name, "").body == *ts);
    }
    assert_eq!((store.asked("clip.ts"), store.asked("new.ts")), asked);
    site.stop();
}
