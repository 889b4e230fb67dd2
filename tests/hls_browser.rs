//! The page that plays a film, in Chromium: by the browser's own HLS, and by Media Source.
//!
//! `browser/watch.js` opens it in a frame, plays, seeks, and reads off the pictures in which second
//! of the film they are.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::media::{age, counting_film, counting_mp4};
use onrush_testkit::process::Process;
use onrush_testkit::require_programs;

use download_site::Site;

mod download_site;

const SECONDS: u64 = 30;

/// What the page does in all; on a machine that has other things to do, too.
const DEADLINE: Duration = Duration::from_secs(300);

#[test]
fn chromium_plays_seeks_and_shows_the_right_pictures() {
    require_programs!("ffmpeg", "chromium-headless-shell");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let option = format!("--access-log={}", log.display());
    let site = Site::new(&[&option], |root| {
        let films = [
            ("counting.mp4", counting_mp4(SECONDS).unwrap()),
            ("counting.ts", counting_film(SECONDS).unwrap()),
        ];
        for (name, film) in films {
            fs::copy(film, root.join(name)).unwrap();
            age(&root.join(name)).unwrap();
        }
        for name in ["watch.html", "watch.js"] {
            let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/browser");
            fs::copy(format!("{own}/{name}"), root.join(name)).unwrap();
        }
    });
    let mut command = Command::new("chromium-headless-shell");
    command.args([
        "--no-sandbox",
        "--disable-gpu",
        "--mute-audio",
        "--autoplay-policy=no-user-gesture-required",
        // It stays until it is ended.
        "--remote-debugging-port=0",
    ]);
    command.arg(format!(
        "--user-data-dir={}",
        folder.path().join("browser").display()
    ));
    // Debian's is a script, which starts it.
    let browser = Process::start_group(command.arg(site.url("watch.html"))).unwrap();
    let begin = Instant::now();
    let said = loop {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let said = text.split_whitespace().find(|it| it.starts_with("/said-"));
        if let Some(said) = said {
            break said.to_owned();
        }
        assert!(begin.elapsed() < DEADLINE, "{text}\n{}", browser.log_tail());
        thread::sleep(Duration::from_millis(100));
    };
    let expected = "/said-well-this%20browser%20does%20not%20play%20transport%20streams";
    assert!(said.starts_with(expected), "{said}");
}
