//! Films of an object store: every byte as it lies there, each range asked for once, and what
//! becomes of viewers when the store has a bad day.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use onrush_testkit::film::{Container, film};
use onrush_testkit::http_client::{Client, Response};
use onrush_testkit::process::Process;
use onrush_testkit::testbed::{Mode, SND_IPV4};
use onrush_testkit::{require_programs, require_root};
use serde_json::Value;

use common::{KEEP_ALIVE, LONG, ONRUSH, Site, Viewer, clip, serve_arguments, wait_until, watch};
use s3::{BUCKET, Fault, KEY, SECRET, Store};

mod common;
mod s3;

/// A server of the films in `folder` of a bucket, each a name and a file.
fn serve(films: &[(&str, &Path)], arguments: &[&str]) -> (Store, Site) {
    let (testbed, media) = Site::prepare(Mode::Uso);
    let store = Store::start(&testbed.snd);
    for (name, file) in films {
        store.put(&testbed.snd, &format!("cinema/{name}"), file);
    }
    let mut command = testbed.snd.command(ONRUSH);
    let url = format!("s3://{BUCKET}/cinema");
    command.args(serve_arguments(Path::new(&url)));
    command.arg(format!("--object-cache={}", media.path().display()));
    command
        .args([
            "--cache=64MiB",
            "--http=10.77.0.1:8080",
            "--metrics=10.77.0.1:9554",
        ])
        .args(arguments);
    of_store(&mut command, &store);
    let site = Site::serve_by(testbed, media, command);
    (store, site)
}

/// Says where the store is, and who asks.
fn of_store(command: &mut Command, store: &Store) {
    command.env("AWS_ACCESS_KEY_ID", KEY);
    command.env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("AWS_REGION", "us-east-1");
    command.env("AWS_ENDPOINT_URL", format!("http://{}", store.proxy));
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
        top.contains("<bdi>a</bdi>/") && top.contains("<bdi>d.ts</bdi>"),
        "{top}"
    );
    assert!(!top.contains("c.ts"), "{top}");
    assert_eq!(get(&site, "/a/b", "").header("Location"), Some("/a/b/"));
    assert!(get(&site, "/a/b/", "").text().contains("<bdi>c.ts</bdi>"));
    assert_eq!(get(&site, "/none/", "").status, 404);
    for number in 0..2_500 {
        store.plant(&format!("cinema/many/{number:04}.ts"));
    }
    let before = counted(&site, "requests");
    let many = get(&site, "/many/", "").text();
    let listed = (0..2_500).filter(|it| many.contains(&format!("<bdi>{it:04}.ts</bdi>")));
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
    of_store(&mut command, &store);
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
    // And when it is back they are played.
    store.change(|state| state.is_gone = false);
    watch(&site.testbed, "cold.ts", &ts, None);
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
