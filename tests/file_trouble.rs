//! Files that change while they are served: whose bytes change ends its sessions with a reason when
//! they come to them, whose name changes goes on, and nobody else notices.

use std::fs::{self, OpenOptions};
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use onrush_testkit::checker::Start;
use onrush_testkit::receiver::Capture;
use onrush_testkit::require_root;
use onrush_testkit::testbed::Mode;

use common::{LONG, Site, Viewer, clip, expected, watch};

mod common;

/// Plays `victim.ts`, does `harm` to the file when some of it has arrived, and waits for the
/// session's early end: the reason that the log gives. A session of another file beside it must
/// lose nothing.
fn reason_after(harm: impl FnOnce(&Site)) -> String {
    let good = clip(6.0);
    let ts: Arc<[u8]> = Arc::from(&*good);
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), &good).unwrap();
    fs::write(media.path().join("victim.ts"), clip(24.0)).unwrap();
    // As small as it may be, so that most of the file is read after the harm is done.
    let site = Site::serve(testbed, media, &["--cache=1MiB"]);
    thread::scope(|scope| {
        let session = scope.spawn(|| watch(&site.testbed, "clip.ts", &ts, None));
        let mut victim = Viewer::setup(&site.testbed, "victim.ts");
        victim.play(None);
        assert!(
            victim
                .receiver
                .wait_until(LONG, |capture| capture.rtp.len() > 50)
        );
        harm(&site);
        assert!(
            victim.receiver.wait_until(LONG, Capture::has_bye),
            "{}",
            site.server.log_tail()
        );
        let got = victim.receiver.take().rtp.len();
        assert!(
            got < clip(24.0).len() / (7 * 188),
            "all {got} packets were sent"
        );
        session.join().unwrap();
    });
    // And the server serves on.
    watch(&site.testbed, "clip.ts", &ts, Some(4.0));
    let log = site.stop();
    let line = log
        .lines()
        .find(|line| line.contains(" ends (") && line.contains("victim.ts"));
    let reason = line.and_then(|line| line.split_once(" ends (")?.1.split_once("):"));
    reason.unwrap_or_else(|| panic!("{log}")).0.to_owned()
}

#[test]
fn a_truncated_file_ends_its_session() {
    require_root!();
    let reason = reason_after(|site| {
        let file = OpenOptions::new()
            .write(true)
            .open(site.path("victim.ts"))
            .unwrap();
        file.set_len(188 * 700).unwrap();
    });
    assert!(reason.contains("truncated"), "{reason}");
}

// SPECIFICATION.md: 32
#[test]
fn a_file_written_over_ends_its_session() {
    require_root!();
    let bytes = clip(24.0).iter().map(|byte| byte ^ 1).collect::<Vec<_>>();
    let reason = reason_after(|site| fs::write(site.path("victim.ts"), bytes).unwrap());
    assert!(
        reason.contains("overwritten") || reason.contains("truncated"),
        "{reason}"
    );
}

/// What becomes of its name does not matter to those who play a file: they get all of it, from the
/// disk.
// SPECIFICATION.md: 31
#[test]
fn a_file_that_loses_its_name_is_played_to_its_end() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    let film: Arc<[u8]> = Arc::from(clip(6.0));
    let names = ["touched.ts", "renamed.ts", "replaced.ts", "deleted.ts"];
    for name in names {
        fs::write(media.path().join(name), &film).unwrap();
    }
    let site = Site::serve(testbed, media, &["--cache=1MiB"]);
    let viewers = names.map(|name| {
        let mut viewer = Viewer::setup(&site.testbed, name);
        let info = viewer.play(None);
        let has_begun = |capture: &Capture| capture.rtp.len() > 50;
        assert!(viewer.receiver.wait_until(LONG, has_begun));
        (viewer, expected(&film, Start::At(0), &info))
    });
    let touched = OpenOptions::new()
        .append(true)
        .open(site.path("touched.ts"));
    touched.unwrap().set_modified(SystemTime::now()).unwrap();
    fs::rename(site.path("renamed.ts"), site.path("other.ts")).unwrap();
    fs::write(site.path("new"), clip(2.0)).unwrap();
    fs::rename(site.path("new"), site.path("replaced.ts")).unwrap();
    fs::remove_file(site.path("deleted.ts")).unwrap();
    thread::scope(|scope| {
        for (viewer, expected) in viewers {
            scope.spawn(move || viewer.judged(&expected));
        }
    });
    // Who comes now gets what is there now.
    watch(&site.testbed, "replaced.ts", &Arc::from(clip(2.0)), None);
    let log = site.stop();
    let ends: Vec<_> = log
        .lines()
        .filter(|line| line.contains(" ends ("))
        .collect();
    assert_eq!(ends.len(), names.len() + 1, "{ends:#?}");
    assert!(
        ends.iter().all(|end| end.contains(" ends (teardown)")),
        "{ends:#?}"
    );
}
