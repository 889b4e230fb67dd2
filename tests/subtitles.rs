//! Subtitles of films as WebVTT: text tracks of MP4 and Matroska that ffmpeg has written, and files
//! beside a film.

use std::fs;
use std::path::Path;
use std::process::Command;

use onrush_testkit::media::age;
use onrush_testkit::require_programs;

use download_site::Site;

mod download_site;

const SRT: &str = "1\n00:00:01,000 --> 00:00:02,500\nHello <i>you</i> & me\n\n\
                   2\n00:01:01,000 --> 00:01:04,000\ntwo\nlines\n\n";

const ASS: &str = "[Script Info]\nScriptType: v4.00+\n\n[V4+ Styles]\n\
    Format: Name, Fontname, Fontsize\nStyle: Default,Arial,20\n\n[Events]\n\
    Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n\
    Dialogue: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,{\\i1}Hello{\\i0} & <b>, you\\Ntwo\n";

/// Of a film of 65 seconds, with these subtitles.
fn film(root: &Path, name: &str, subtitles: &[(&str, &str)], codec: &str) {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-y", "-f", "lavfi", "-i"]);
    command.arg("testsrc=size=64x48:rate=5:duration=65");
    for (file, _) in subtitles {
        command.arg("-i").arg(root.join(file));
    }
    command.args(["-map", "0"]);
    for (at, (_, language)) in subtitles.iter().enumerate() {
        command.args(["-map", &format!("{}", at + 1)]);
        command.args([
            &format!("-metadata:s:s:{at}"),
            &format!("language={language}"),
        ]);
    }
    command.args([
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "10",
        "-c:s",
        codec,
    ]);
    let status = command.arg(root.join(name)).status().unwrap();
    assert!(status.success(), "{name}");
    age(&root.join(name)).unwrap();
}

fn text(site: &Site, path: &str) -> String {
    let answer = site.get(path, "");
    assert_eq!(answer.status, 200, "{path}");
    String::from_utf8(answer.body).unwrap()
}

/// What a playlist says at each of its URIs.
fn uris(playlist: &str) -> Vec<&str> {
    let lines = playlist.lines();
    lines
        .filter(|it| !it.is_empty() && !it.starts_with('#'))
        .collect()
}

/// The URLs of a film's subtitles, as its multivariant playlist names them.
fn subtitles(main: &str) -> Vec<(String, String)> {
    let lines = main.lines().filter(|it| it.contains("TYPE=SUBTITLES"));
    let value = |line: &str, name: &str| {
        let rest = line.split_once(&format!("{name}=\"")).unwrap().1;
        rest.split('"').next().unwrap().to_owned()
    };
    let found = lines.map(|line| (value(line, "LANGUAGE"), value(line, "URI")));
    found.collect()
}

/// The first segment of a film's first subtitles.
fn first_text(site: &Site, film: &str) -> String {
    let playlist = text(site, &format!("/{film}/hls/text/index.m3u8"));
    text(site, &format!("/{film}/hls/text/{}", uris(&playlist)[0]))
}

#[test]
fn text_tracks_are_webvtt() {
    require_programs!("ffmpeg");
    let site = Site::new(&[], |root| {
        fs::write(root.join("in.srt"), SRT).unwrap();
        fs::write(root.join("in.ass"), ASS).unwrap();
        film(
            root,
            "timed.mp4",
            &[("in.srt", "eng"), ("in.srt", "fra")],
            "mov_text",
        );
        film(root, "plain.mkv", &[("in.srt", "eng")], "srt");
        film(root, "webvtt.mkv", &[("in.srt", "eng")], "webvtt");
        film(root, "ass.mkv", &[("in.ass", "eng")], "ass");
        fs::remove_file(root.join("in.srt")).unwrap();
    });
    let head = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n";
    let first = |text| format!("{head}\n00:00:01.000 --> 00:00:02.500\n{text}\n");
    let second = format!("{head}\n00:01:01.000 --> 00:01:04.000\ntwo\nlines\n");
    for (name, languages, expected) in [
        ("timed.mp4", &["en", "fr"][..], "Hello you &amp; me"),
        ("plain.mkv", &["en"], "Hello <i>you</i> &amp; me"),
        ("webvtt.mkv", &["en"], "Hello <i>you</i> & me"),
        ("ass.mkv", &["en"], "Hello &amp; &lt;b&gt;, you\ntwo"),
    ] {
        let main = text(&site, &format!("/{name}/hls/index.m3u8"));
        let found = subtitles(&main);
        let told: Vec<_> = found.iter().map(|(language, _)| &**language).collect();
        assert_eq!(told, languages, "{name}: {main}");
        for (_, uri) in &found {
            let folder = format!("/{name}/hls/{}", uri.trim_end_matches("index.m3u8"));
            let playlist = text(&site, &format!("/{name}/hls/{uri}"));
            let uris = uris(&playlist);
            assert_eq!(uris.len(), 2, "{playlist}");
            assert_eq!(
                text(&site, &format!("{folder}{}", uris[0])),
                first(expected),
                "{name}"
            );
            if name != "ass.mkv" {
                assert_eq!(
                    text(&site, &format!("{folder}{}", uris[1])),
                    second,
                    "{name}"
                );
            }
            let all = text(
                &site,
                &format!("{folder}{}", uris[0].replace("1.vtt", "all.vtt")),
            );
            assert!(
                all.starts_with("WEBVTT\n\n") && all.contains(expected),
                "{all}"
            );
            let manifest = text(&site, &format!("/{name}/dash/manifest.mpd"));
            let url = format!("{}{}", uri.trim_end_matches("index.m3u8"), uris[0]);
            let url = url.replace("1.vtt", "all.vtt");
            assert!(
                manifest.contains(&format!("<BaseURL>../hls/{url}</BaseURL>")),
                "{manifest}"
            );
            for wrong in ["0.vtt", "18446744073709551616.vtt"] {
                let path = format!("{folder}{}", uris[0].replace("1.vtt", wrong));
                assert_eq!(site.get(&path, "").status, 404, "{path}");
            }
        }
    }
}

/// Which ffmpeg puts into each block, with an identifier that is not shown.
#[test]
fn webvtt_in_matroska_keeps_its_settings() {
    require_programs!("ffmpeg");
    let vtt = "WEBVTT\n\nfirst\n00:01.000 --> 00:02.500 line:0 align:start\n<v Anna>Hello\n";
    let site = Site::new(&[], |root| {
        fs::write(root.join("in.vtt"), vtt).unwrap();
        film(root, "film.mkv", &[("in.vtt", "eng")], "copy");
        fs::remove_file(root.join("in.vtt")).unwrap();
    });
    let said = first_text(&site, "film.mkv");
    let cue = "\n00:00:01.000 --> 00:00:02.500 line:0 align:start\n<v Anna>Hello\n";
    assert!(said.ends_with(&format!(":00.000\n{cue}")), "{said}");
}

/// By an edit list, a second behind a sync sample: there it begins.
#[test]
fn subtitles_beside_a_film_that_was_cut_are_in_time() {
    require_programs!("ffmpeg");
    let site = Site::new(&[], |root| {
        film(root, "whole.mp4", &[], "copy");
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "error", "-y", "-ss", "3", "-i"]);
        command.arg(root.join("whole.mp4")).args(["-c", "copy"]);
        let status = command.arg(root.join("film.mp4")).status().unwrap();
        assert!(status.success());
        age(&root.join("film.mp4")).unwrap();
        for film in ["film", "whole"] {
            fs::write(root.join(format!("{film}.en.srt")), SRT).unwrap();
        }
    });
    for (name, times) in [
        ("whole.mp4", "00:00:01.000 --> 00:00:02.500"),
        ("film.mp4", "00:00:02.000 --> 00:00:03.500"),
    ] {
        let said = first_text(&site, name);
        assert!(said.contains(&format!("\n{times}\nHello")), "{said}");
    }
}

#[test]
fn files_beside_a_film_are_its_subtitles() {
    require_programs!("ffmpeg");
    let site = Site::new(&[], |root| {
        film(root, "film.mp4", &[], "copy");
        fs::write(root.join("film.en.srt"), SRT).unwrap();
        fs::write(
            root.join("film.vtt"),
            "WEBVTT\n\n00:01.000 --> 00:02.000\nplain\n",
        )
        .unwrap();
        fs::write(root.join("film.de.srt"), vec![b'a'; (2 << 20) + 1]).unwrap();
        fs::write(root.join("film.en.forced.srt"), SRT).unwrap();
        fs::write(root.join("other.en.srt"), SRT).unwrap();
    });
    let main = text(&site, "/film.mp4/hls/index.m3u8");
    let media: Vec<_> = main
        .lines()
        .filter(|it| it.contains("TYPE=SUBTITLES"))
        .collect();
    assert_eq!(media.len(), 3, "{main}");
    let forced = "NAME=\"en (forced)\",LANGUAGE=\"en\",DEFAULT=NO,AUTOSELECT=YES,FORCED=YES";
    assert!(media[0].contains(forced), "{main}");
    assert!(media[1].contains("NAME=\"en\",LANGUAGE=\"en\""), "{main}");
    assert!(media[2].contains("NAME=\"text-3\",DEFAULT"), "{main}");
    let playlist = text(&site, "/film.mp4/hls/text-2/index.m3u8");
    let path = format!("/film.mp4/hls/text-2/{}", uris(&playlist)[0]);
    assert!(text(&site, &path).ends_with("\nHello <i>you</i> &amp; me\n"));
    let answer = site.get(&path, "");
    assert_eq!(
        answer.header("content-type"),
        Some("text/vtt; charset=utf-8")
    );
    assert!(
        answer
            .header("cache-control")
            .unwrap()
            .contains("immutable")
    );
    // Another text has another URL, and the old one nothing.
    fs::write(site.path("film.en.srt"), SRT.replace("Hello", "Goodbye")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(site.get(&path, "").status, 404);
    let playlist = text(&site, "/film.mp4/hls/text-2/index.m3u8");
    let path = format!("/film.mp4/hls/text-2/{}", uris(&playlist)[0]);
    assert!(text(&site, &path).contains("Goodbye"));
    // So has that of another film, which may end elsewhere.
    fs::copy(site.path("film.mp4"), site.path("next.mp4")).unwrap();
    age(&site.path("next.mp4")).unwrap();
    fs::rename(site.path("next.mp4"), site.path("film.mp4")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let manifest = text(&site, "/film.mp4/dash/manifest.mpd");
    let before = path.replace("/film.mp4/hls/", "");
    let before = before.replace("1.vtt", "all.vtt");
    assert!(manifest.contains("/text-2/"), "{manifest}");
    assert!(!manifest.contains(&before), "{manifest}");
    assert_eq!(site.get(&path, "").status, 404);
}

/// It ends where the first track has no more, and some have nothing.
#[test]
fn ffmpeg_plays_films_with_subtitles_to_their_end_by_dash() {
    require_programs!("ffmpeg");
    let site = Site::new(&[], |root| {
        film(root, "film.mp4", &[], "copy");
        fs::write(root.join("film.en.srt"), SRT).unwrap();
        fs::write(root.join("film.fr.vtt"), "WEBVTT\n").unwrap();
    });
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]);
    command.arg(site.url("film.mp4/dash/manifest.mpd"));
    command.args(["-map", "0", "-c", "copy", "-f", "framecrc", "-"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let packets = |stream: &str| said.lines().filter(|it| it.starts_with(stream)).count();
    assert_eq!(packets("0,"), 65 * 5, "{said}");
    // The cues, and behind them one that shows nothing.
    assert_eq!((packets("1,"), packets("2,")), (3, 1), "{said}");
}

/// Of chapters, which MP4 has as a text track.
#[test]
fn chapters_are_no_subtitles() {
    require_programs!("ffmpeg");
    let site = Site::new(&[], |root| {
        fs::write(root.join("in.srt"), SRT).unwrap();
        film(root, "plain.mp4", &[("in.srt", "eng")], "mov_text");
        let chapters = "[CHAPTER]\nTIMEBASE=1/1\nSTART=0\nEND=60\ntitle=One\n";
        fs::write(root.join("chapters"), format!(";FFMETADATA1\n{chapters}")).unwrap();
        let mut command = Command::new("ffmpeg");
        command
            .args(["-v", "error", "-y", "-i"])
            .arg(root.join("plain.mp4"));
        command.arg("-i").arg(root.join("chapters"));
        command.args(["-map", "0", "-map_metadata", "1", "-c", "copy"]);
        let status = command.arg(root.join("film.mp4")).status().unwrap();
        assert!(status.success());
        age(&root.join("film.mp4")).unwrap();
        fs::remove_file(root.join("in.srt")).unwrap();
    });
    let main = text(&site, "/film.mp4/hls/index.m3u8");
    assert_eq!(subtitles(&main).len(), 1, "{main}");
    let playlist = text(&site, "/film.mp4/hls/text/index.m3u8");
    let path = format!("/film.mp4/hls/text/{}", uris(&playlist)[0]);
    assert!(!text(&site, &path).contains("One"));
}

#[test]
fn ass_beside_a_film_is_its_plain_text() {
    require_programs!("ffmpeg");
    let site = Site::new(&[], |root| {
        film(root, "film.mp4", &[], "copy");
        fs::write(root.join("film.fr.ass"), ASS).unwrap();
    });
    let main = text(&site, "/film.mp4/hls/index.m3u8");
    let found = subtitles(&main);
    assert_eq!(found.len(), 1, "{main}");
    assert_eq!(found[0].0, "fr");
    let playlist = text(&site, &format!("/film.mp4/hls/{}", found[0].1));
    let folder = found[0].1.trim_end_matches("index.m3u8");
    let path = format!("/film.mp4/hls/{folder}{}", uris(&playlist)[0]);
    let cue = "\n00:00:01.000 --> 00:00:02.500\nHello &amp; &lt;b&gt;, you\ntwo\n";
    let said = text(&site, &path);
    assert!(said.ends_with(cue), "{said}");
}
