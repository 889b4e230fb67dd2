//! Several libraries in one server: each below its name by every protocol, and none reached from
//! another. A store beside a folder is in `objects.rs`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use onrush_testkit::film::{Container, film};
use onrush_testkit::media::{age, counting_mp4};
use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, skip};
use rustix::process::Signal;
use tempfile::TempDir;

use download_site::{LONG, ONRUSH, Site, bytes};

mod download_site;

/// A server of `films` and `archive`, with links from the one to the other and out of both; told
/// by a file, `onrush.toml`, which stands beside them with a secret.
fn site() -> Site {
    let media = TempDir::with_prefix("onrush-libraries-").unwrap();
    let [films, archive] = ["films", "archive"].map(|name| media.path().join(name));
    for folder in [&films, &archive.join("in")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(media.path().join("secret.ts"), "secret").unwrap();
    fs::write(archive.join("in/old.bin"), bytes(50_000)).unwrap();
    fs::copy(
        film(Container::Mp4, 1_000_000, 4).unwrap(),
        films.join("a.mp4"),
    )
    .unwrap();
    age(&films.join("a.mp4")).unwrap();
    symlink("../archive/in/old.bin", films.join("other.bin")).unwrap();
    symlink(&archive, films.join("archive")).unwrap();
    symlink("../secret.ts", films.join("out.ts")).unwrap();
    serve(media)
}

/// A server of `films` and `archive` of this folder.
fn serve(media: TempDir) -> Site {
    let file = media.path().join("onrush.toml");
    fs::write(&file, text(media.path(), "")).unwrap();
    let mut command = Command::new(ONRUSH);
    let server = Process::start(command.args(["serve", "--config"]).arg(&file)).unwrap();
    let ready = server.wait_for_line("stopping ", LONG);
    assert!(ready.is_some(), "no server:\n{}", server.log_tail());
    let at = |scheme: &str| {
        let line = server.wait_for_line(&format!("listening  {scheme}://"), LONG);
        let line = line.unwrap();
        let address = line.rsplit("//").next().unwrap().trim_end_matches('/');
        address.parse().unwrap()
    };
    let (rtsp, http, ftp) = (at("rtsp"), at("http"), at("ftp"));
    Site {
        server,
        rtsp,
        http,
        ftp,
        media,
    }
}

fn text(folder: &Path, more: &str) -> String {
    let [films, archive] = ["films", "archive"].map(|name| folder.join(name));
    format!(
        "[[library]]\nname = \"films\"\npath = {films:?}\n\
         [[library]]\nname = \"archive\"\npath = {archive:?}\n\
         [libraries]\nstate = \"off\"\n[server]\ncache = \"8MiB\"\n\
         [listen]\nrtsp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nftp = \"127.0.0.1:0\"\n{more}"
    )
}

/// What ffmpeg decodes of a source: a hash for each picture, in order.
fn pictures(source: &str) -> Vec<String> {
    let mut ffmpeg = Command::new("ffmpeg");
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

fn curl(arguments: &[&str]) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--path-as-is"]);
    curl.args(arguments).output().unwrap()
}

/// The status and the body that curl gets.
fn get(url: &str) -> (String, Vec<u8>) {
    let mut all = curl(&["--write-out", "%{http_code}", url]).stdout;
    let status = all.split_off(all.len() - 3);
    (String::from_utf8(status).unwrap(), all)
}

#[test]
fn ffmpeg_and_curl_find_each_library_below_its_name() {
    require_programs!("curl", "ffmpeg");
    let site = site();
    let file = site.media.path().join("films/a.mp4");
    let wanted = pictures(file.to_str().unwrap());
    for source in [
        site.rtsp_url("films/a.mp4"),
        site.url("films/a.mp4/hls/index.m3u8"),
    ] {
        assert!(pictures(&source) == wanted, "{source}");
    }
    let old = bytes(50_000);
    assert_eq!(
        get(&site.url("archive/in/old.bin")),
        ("200".to_owned(), old.clone())
    );
    assert_eq!(curl(&[&site.ftp_url("archive/in/old.bin")]).stdout, old);
    let listed = curl(&["--list-only", &site.ftp_url("")]).stdout;
    assert_eq!(String::from_utf8(listed).unwrap(), "archive\nfilms\n");
    let listed = curl(&["--list-only", &site.ftp_url("films/")]).stdout;
    assert_eq!(
        String::from_utf8(listed).unwrap(),
        "a.mp4\n",
        "links lead out"
    );
    let (status, page) = get(&site.url(""));
    let page = String::from_utf8(page).unwrap();
    assert_eq!(status, "200");
    for library in ["films/", "archive/"] {
        assert!(
            page.contains(&format!("href=\"{library}\"")),
            "{library}: {page}"
        );
    }
    let (_, page) = get(&site.url("films/"));
    assert!(String::from_utf8(page).unwrap().contains("a.mp4"));
    assert_eq!(get(&site.url("films")).0, "301");
}

/// A film of either has the same name, and another length.
#[test]
fn chromium_plays_the_films_of_each_library() {
    require_programs!("ffmpeg", "node", "chromium-headless-shell");
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/browser");
    if !scripts.join("node_modules/puppeteer-core").exists() {
        return skip::record("needs `npm ci --prefix tests/browser`, as ./test does it");
    }
    let media = TempDir::with_prefix("onrush-libraries-").unwrap();
    for (library, seconds) in [("films", 30), ("archive", 20)] {
        let folder = media.path().join(library);
        fs::create_dir(&folder).unwrap();
        fs::copy(counting_mp4(seconds).unwrap(), folder.join("counting.mp4")).unwrap();
        age(&folder.join("counting.mp4")).unwrap();
    }
    let site = serve(media);
    let mut command = Command::new("node");
    command.arg(scripts.join("libraries.mjs"));
    command.args([&site.url(""), "chromium"]);
    let (status, said) = Process::run(&mut command, Duration::from_secs(400)).unwrap();
    assert!(status.success(), "{said}\n{}", site.server.log_tail());
}

// SPECIFICATION.md: 74
#[test]
fn nothing_leads_from_a_library_to_another() {
    require_programs!("curl");
    let site = site();
    for none in [
        "a.mp4",
        "in/old.bin",
        "films/other.bin",
        "films/archive/in/old.bin",
        "films/archive/",
        "films/out.ts",
        "films/../secret.ts",
        "films/%2e%2e/archive/in/old.bin",
        "films%2f..%2fsecret.ts",
        "Films/a.mp4",
        "nobody/",
    ] {
        let (status, _) = get(&site.url(none));
        assert!(["400", "404"].contains(&&*status), "{none}: {status}");
    }
    for none in ["films/other.bin", "films/out.ts", "a.mp4"] {
        assert!(!curl(&[&site.ftp_url(none)]).status.success(), "{none}");
    }
}

#[test]
fn other_libraries_need_a_restart() {
    let site = site();
    let more = "[[library]]\nname = \"more\"\npath = \"/\"\n";
    fs::write(
        site.media.path().join("onrush.toml"),
        text(site.media.path(), more),
    )
    .unwrap();
    site.server.signal(Signal::HUP).unwrap();
    let line = site.server.wait_for_line("reload: ", LONG).unwrap();
    assert!(line.contains("needs a restart: library.path"), "{line}");
}

#[test]
fn libraries_that_cannot_be_are_told_by_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onrush.toml");
    let one =
        |name: &str, path: &str| format!("[[library]]\nname = \"{name}\"\npath = \"{path}\"\n");
    for (text, said) in [
        (
            one("live", "/srv"),
            ":2:8: library[0].name: \"live\" is where live channels are",
        ),
        (
            one("a", "/nonexistent"),
            ":3:8: library[0].path: media directory /nonexistent",
        ),
        (
            one("a", "/") + &one("a", "/tmp"),
            ":6:8: library[1].path: library[0] is named a, too",
        ),
        (
            one("a", "/") + "[library]\n",
            "write [libraries] for what all",
        ),
        (
            one("a", "/") + "[uploads]\non = true\n[users]\nfile = \"/dev/null\"\n",
            "uploads.on",
        ),
    ] {
        fs::write(&file, &text).unwrap();
        let output = Command::new(ONRUSH)
            .arg("check")
            .arg(&file)
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}: {printed}");
        assert!(printed.contains(said), "{text}: {printed}");
    }
}
