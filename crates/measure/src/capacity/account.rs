//! Whose processor time it was: the server's threads by what they do, and all processors, idle or not.

use std::collections::BTreeMap;
use std::fs;

use onrush_sys::clock::monotonic_ns;
use serde::{Deserialize, Serialize};

use crate::machine::{self, CoreTimes};

/// The thread that answers requests.
const CONTROL: &str = "onrush-control";

/// The time that all watched, by processor and by thread of the server.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Account {
    /// How long it was, in ns.
    pub wall_ns: u64,
    /// How long the server's processor was busy, for whomever.
    pub core_busy_ns: u64,
    /// How long all others were, together.
    pub other_cores_busy_ns: u64,
    /// Processor time of the server's threads, in ns, by their names; those that differ in a number are one.
    pub threads: BTreeMap<String, u64>,
    /// Bytes that the server had read from disks, past or into the page cache.
    #[serde(default)]
    pub disk_bytes: u64,
}

/// What there was to be read at a moment.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    at_ns: u64,
    cores: Vec<CoreTimes>,
    threads: BTreeMap<String, u64>,
    disk_bytes: u64,
}

impl Moment {
    /// Now, of process `server`.
    pub(super) fn now(server: u32) -> Self {
        Self {
            at_ns: monotonic_ns(),
            cores: machine::core_times(),
            threads: threads_of(server),
            disk_bytes: disk_bytes_of(server),
        }
    }
}

impl Account {
    /// From one moment to another; the server's processor is `core`.
    pub(super) fn between(from: &Moment, to: &Moment, core: usize) -> Self {
        let wall_ns = to.at_ns - from.at_ns;
        let busy = |core: usize| {
            let rest = rest_ns(&to.cores, core).saturating_sub(rest_ns(&from.cores, core));
            wall_ns.saturating_sub(rest)
        };
        let others = (0..to.cores.len()).filter(|&other| other != core);
        let spent = |(name, &to_ns): (&String, &u64)| {
            let from_ns = from.threads.get(name).copied().unwrap_or(0);
            (name.clone(), to_ns.saturating_sub(from_ns))
        };
        Self {
            wall_ns,
            core_busy_ns: busy(core),
            other_cores_busy_ns: others.map(busy).sum(),
            threads: to.threads.iter().map(spent).collect(),
            disk_bytes: to.disk_bytes.saturating_sub(from.disk_bytes),
        }
    }

    /// Processor time of `onrush serve`'s control thread for each of those who came meanwhile, so many a second, in ns.
    /// None if nobody came, or if there is no such thread.
    #[must_use]
    pub fn set_up_ns(&self, arrivals_per_second: u32) -> Option<u64> {
        let control_ns = self.threads.get(CONTROL)?;
        let came = u128::from(self.wall_ns) * u128::from(arrivals_per_second) / 1_000_000_000;
        u128::from(*control_ns).checked_div(came)?.try_into().ok()
    }

    /// Processor time of those threads whose name begins so.
    #[must_use]
    pub fn threads_ns(&self, prefix: &str) -> u64 {
        let named = self
            .threads
            .iter()
            .filter(|(name, _)| name.starts_with(prefix));
        named.map(|(_, ns)| ns).sum()
    }
}

/// Time that a processor did nothing, or was not there.
fn rest_ns(cores: &[CoreTimes], core: usize) -> u64 {
    let times = cores.get(core);
    times.map_or(0, |times| times.idle_ns + times.stolen_ns)
}

/// Processor time of the threads of `process` so far. One that ended meanwhile is left out.
fn threads_of(process: u32) -> BTreeMap<String, u64> {
    let mut threads = BTreeMap::new();
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let read = |file| fs::read_to_string(task.path().join(file)).ok();
        // proc(5): time spent on a processor, in ns, is the first of its three numbers.
        let spent = read("schedstat");
        let spent: Option<u64> = spent.and_then(|text| text.split(' ').next()?.parse().ok());
        let Some((name, ns)) = read("comm").zip(spent) else {
            continue;
        };
        let name = name
            .trim()
            .trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
        *threads.entry(name.to_owned()).or_insert(0_u64) += ns;
    }
    threads
}

/// Bytes that `process` has had read from disks so far: proc(5), `read_bytes` of `io`. What a page cache gave is not
/// among them.
fn disk_bytes_of(process: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let mut lines = io.lines();
    let bytes = lines.find_map(|line| line.strip_prefix("read_bytes: "));
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use onrush_sys::clock::thread_cpu_ns;
    use onrush_sys::fs::advise_done;
    use onrush_testkit::skip;

    use super::*;

    const BYTES: usize = 4 << 20;

    #[test]
    fn what_came_from_a_disk_is_told_and_what_was_in_memory_is_not() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; BYTES]).unwrap();
        file.as_file().sync_all().unwrap();
        let me = std::process::id();
        let read_in = || {
            let before = Moment::now(me);
            assert_eq!(fs::read(file.path()).unwrap().len(), BYTES);
            Account::between(&before, &Moment::now(me), 0).disk_bytes
        };
        // Of tmpfs: statfs(2).
        let is_in_memory = rustix::fs::fstatfs(file.as_file()).unwrap().f_type == 0x0102_1994;
        if is_in_memory {
            return skip::record("needs a disk below the temporary directory");
        }
        let in_memory = read_in();
        advise_done(file.as_file(), 0, BYTES as u64);
        let from_disk = read_in();
        // Other tests may read meanwhile, but not as much.
        assert!(from_disk >= BYTES as u64, "{from_disk}");
        assert!(in_memory < BYTES as u64, "{in_memory}");
    }

    #[test]
    fn a_set_up_is_what_control_spent_on_each_who_came() {
        let account = |wall_ns, thread: &str| Account {
            wall_ns,
            threads: [(thread.to_owned(), 200_000_000)].into(),
            ..Account::default()
        };
        let control = account(2_000_000_000, CONTROL);
        assert_eq!(control.set_up_ns(2000), Some(50_000));
        assert_eq!(control.set_up_ns(0), None);
        assert_eq!(account(0, CONTROL).set_up_ns(2000), None);
        assert_eq!(account(2_000_000_000, "main").set_up_ns(2000), None);
    }

    #[test]
    fn time_is_told_by_what_threads_do() {
        let before = Moment::now(std::process::id());
        let work = || while thread_cpu_ns() < 30_000_000 {};
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let stopped = std::sync::Arc::new(std::sync::Mutex::new(stopped));
        let threads: Vec<_> = (0..2)
            .map(|i| {
                let stopped = std::sync::Arc::clone(&stopped);
                let name = format!("toiling-{i}");
                let toil = move || {
                    work();
                    stopped.lock().unwrap().recv().unwrap_err();
                };
                thread::Builder::new().name(name).spawn(toil).unwrap()
            })
            .collect();
        let spent = || {
            let now = Moment::now(std::process::id());
            Account::between(&before, &now, 0)
        };
        for _ in 0..1000 {
            if spent().threads_ns("toiling") >= 60_000_000 {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(10));
        }
        let account = spent();
        assert!(account.threads["toiling"] >= 60_000_000, "{account:?}");
        assert_eq!(account.threads_ns("nobody"), 0);
        assert!(account.wall_ns > 0);
        drop(stop);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
