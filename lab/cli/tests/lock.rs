//! Locking memory without privileges: what can work works, up to RLIMIT_MEMLOCK, the rest says what
//! is missing, and nothing stays locked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use onrush_testkit::process::onrush_program;
use onrush_testkit::{require_programs, require_root};
use tempfile::TempDir;

const ONRUSH_LAB: &str = env!("CARGO_BIN_EXE_onrush-lab");
const ONRUSH: &str = onrush_program(None, Some(ONRUSH_LAB));
/// Bounds every wait for something that takes moments; never a measure.
const LONG: Duration = Duration::from_secs(60);
/// What an account has pinned is counted for all its processes: each test has one of its own.
const ACCOUNTS: [u32; 2] = [65_532, 65_531];

/// An account with no rights.
struct Ordinary {
    account: u32,
    programs: TempDir,
}

impl Ordinary {
    fn of(account: u32) -> Self {
        // The build's own folder may be closed to it.
        let programs = tempfile::tempdir().unwrap();
        fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for program in [ONRUSH, ONRUSH_LAB] {
            let name = Path::new(program).file_name().unwrap();
            fs::copy(program, programs.path().join(name)).unwrap();
        }
        Self { account, programs }
    }

    /// Runs it by an account that may lock so much.
    fn run(&self, program: &str, lockable_bytes: u64, arguments: &[&str]) -> Output {
        let Self { account, programs } = self;
        let mut command = Command::new("prlimit");
        command.arg(format!("--memlock={lockable_bytes}:{lockable_bytes}"));
        command.arg("setpriv").arg(format!("--reuid={account}"));
        command.arg(format!("--regid={account}"));
        command.args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
        command.arg("--no-new-privs");
        command.arg(programs.path().join(program)).args(arguments);
        command.output().unwrap()
    }

    /// Waits until nothing is pinned: a ring is taken apart a moment after its process, and counts
    /// until then.
    fn assert_nothing_stays_pinned(&self) {
        let begin = Instant::now();
        while !self.has_nothing_pinned() {
            assert!(begin.elapsed() < LONG, "something stays pinned");
        }
    }

    /// Whether the account can pin 4 MiB and little more: all that it may, if nothing of its is
    /// pinned already.
    fn has_nothing_pinned(&self) -> bool {
        let said = self
            .run("onrush", (4 << 20) + (64 << 10), &["doctor", "--json"])
            .stdout;
        let document: serde_json::Value = serde_json::from_slice(&said).unwrap();
        let mut rows = document["rows"].as_array().unwrap().iter();
        let row = rows.find(|row| row["what"] == "registered memory").unwrap();
        row["found"] == "4MiB or more"
    }
}

#[test]
fn an_ordinary_user_locks_to_the_limit_and_leaves_nothing() {
    require_root!();
    require_programs!("prlimit", "setpriv");
    let ordinary = Ordinary::of(ACCOUNTS[0]);
    ordinary.assert_nothing_stays_pinned();
    let output = ordinary.run("onrush-lab", 8 << 20, &["bench", "lock", "--quick"]);
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    // Whether the bounds were kept is no matter here: the machine is busy.
    assert!(
        output.status.code().is_some_and(|code| code <= 1),
        "{said}{complained}"
    );
    for row in [
        "private, first",
        "SysV, again",
        "\n1 MiB  ",
        "a cache hit and its return",
        "left out: areas: 100000: more than RLIMIT_MEMLOCK (8388608 bytes) allows; raise it",
        "left out: kept registrations: 10000: more",
    ] {
        assert!(said.contains(row), "no {row:?} in\n{said}{complained}");
    }
    ordinary.assert_nothing_stays_pinned();
}

#[test]
fn an_ordinary_user_who_may_lock_nothing_is_told_the_remedy() {
    require_root!();
    require_programs!("prlimit", "setpriv");
    let ordinary = Ordinary::of(ACCOUNTS[1]);
    for (arguments, remedy) in [
        (&["bench", "lock", "--quick"][..], "RLIMIT_MEMLOCK"),
        (&["bench", "lock", "--reliability"], "needs root"),
    ] {
        let output = ordinary.run("onrush-lab", 0, arguments);
        let complained = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{complained}");
        assert!(complained.contains(remedy), "{complained}");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
