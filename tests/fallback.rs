//! An ordinary user's server: less locked memory, no special rights, the same bytes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use onrush_testkit::checker::Start;
use onrush_testkit::testbed::Mode;
use onrush_testkit::{require_programs, require_root};
use tempfile::TempDir;

use common::{LONG, ONRUSH, Site, Viewer, clip, expected, serve_arguments, watch};

mod common;

/// A clip and a server of it, run by an account that may lock so many bytes and has no capability.
struct Ordinary {
    site: Site,
    ts: Arc<[u8]>,
    _programs: TempDir,
}

/// What an account has pinned is counted for all its processes: each test that pins has one of its
/// own.
const NOBODY: u32 = 65_534;
const SOMEBODY: u32 = 65_533;

fn served_by(account: u32, lockable_bytes: u64) -> Ordinary {
    served_with(account, lockable_bytes, &[])
}

fn served_with(account: u32, lockable_bytes: u64, options: &[&str]) -> Ordinary {
    let clip = clip(4.0);
    let ts = Arc::from(&*clip);
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), &clip).unwrap();
    // The build's own folder may be closed to nobody.
    let programs = tempfile::tempdir().unwrap();
    fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let onrush = programs.path().join("onrush");
    fs::copy(ONRUSH, &onrush).unwrap();

    let mut command = testbed.snd.command("prlimit");
    command.arg(format!("--memlock={lockable_bytes}:{lockable_bytes}"));
    command.arg("setpriv").arg(format!("--reuid={account}"));
    command
        .arg(format!("--regid={account}"))
        .arg("--clear-groups");
    command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
    command.arg(&onrush).args(serve_arguments(media.path()));
    command.args(options);
    let site = Site::serve_by(testbed, media, command);
    let status = fs::read_to_string(format!("/proc/{}/status", site.server.id())).unwrap();
    assert!(
        status.contains(&format!("Uid:\t{account}\t{account}")),
        "{status}"
    );
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    Ordinary {
        site,
        ts,
        _programs: programs,
    }
}

impl Ordinary {
    /// Watches the clip whole and from its middle; what the server said in its life.
    fn watched(self) -> String {
        watch(&self.site.testbed, "clip.ts", &self.ts, None);
        watch(&self.site.testbed, "clip.ts", &self.ts, Some(2.0));
        self.site.stop()
    }
}

// SPECIFICATION.md: 38
#[test]
fn an_ordinary_user_with_8_mb_of_lockable_memory_serves() {
    require_root!();
    require_programs!("prlimit", "setpriv");
    let log = served_by(NOBODY, 8 << 20).watched();
    assert!(log.contains("path uring_registered_zc"), "{log}");
    // 15 of 16 parts, in whole huge pages: the ring shares the pin and costs nothing more. Resident
    // is what files are read into.
    assert!(
        log.contains(
            "memory locked: 6MiB pinned, 4.0MiB resident, by 6 handles; at the end: 0B pinned, 0B \
             resident"
        ),
        "{log}"
    );
}

#[test]
fn without_lockable_memory_it_serves_and_says_what_it_costs() {
    require_root!();
    require_programs!("prlimit", "setpriv");
    let log = served_by(NOBODY, 0).watched();
    assert!(log.contains("lock"), "{log}");
}

/// Root of a container that runs in a user namespace: its CAP_IPC_LOCK is no right to lock more.
#[test]
fn root_of_a_user_namespace_serves_from_what_it_may_lock() {
    require_root!();
    require_programs!("prlimit", "unshare");
    let ts: Arc<[u8]> = clip(4.0).into();
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), &ts).unwrap();
    let mut command = testbed.snd.command("prlimit");
    command.args(["--memlock=8388608:8388608", "unshare", "--user"]);
    command.arg("--map-root-user").arg(ONRUSH);
    command.args(serve_arguments(media.path()));
    let site = Site::serve_by(testbed, media, command);
    watch(&site.testbed, "clip.ts", &ts, None);
    let log = site.stop();
    assert!(log.contains("path uring_registered_zc"), "{log}");
    assert!(log.contains("memory locked: 6MiB pinned"), "{log}");
}

/// What may be locked bounds the cache of a server that sends nothing from locked memory as little
/// as no limit at all would.
#[test]
fn without_a_ring_the_cache_is_not_cut_to_what_may_be_locked() {
    require_root!();
    require_programs!("prlimit", "setpriv");
    let log = served_with(NOBODY, 8 << 20, &["--path=sendmmsg_gso"]).watched();
    assert!(log.contains("path sendmmsg_gso"), "{log}");
    let cache = "cache: 256.0 MiB that can be swapped out";
    assert!(log.contains(cache), "{log}");
}

// SPECIFICATION.md: 31
#[test]
fn a_file_made_unreadable_is_played_to_its_end() {
    require_root!();
    require_programs!("prlimit", "setpriv");
    let Ordinary {
        site,
        ts,
        _programs,
    } = served_by(SOMEBODY, 8 << 20);
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    let expected = expected(&ts, Start::At(0), &viewer.play(None));
    assert!(
        viewer
            .receiver
            .wait_until(LONG, |capture| capture.rtp.len() > 50)
    );
    fs::set_permissions(site.path("clip.ts"), fs::Permissions::from_mode(0o000)).unwrap();
    viewer.judged(&expected);
    site.stop();
}
