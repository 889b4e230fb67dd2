//! Whose processor time it was: the server's threads by what they do, and all processors, idle or
//! not.

use std::collections::BTreeMap;
use std::fs;

use onrush_sys::clock::monotonic_ns;
use serde::{Deserialize, Serialize};

use crate::counters::{Counted, Counting};
use crate::machine::{self, CoreTimes};
use crate::stats::ratio;

/// The thread that answers requests.
const CONTROL: &str = "onrush-control";

/// The threads that send.
const SEND: &str = "onrush-send";

/// A host that takes no more than this part of a processor has not been seen to make anybody late:
/// it is what ticks of 10 ms can tell from nothing in a few seconds.
pub const STOLEN_PART_TOLD: f64 = 0.02;

/// The time that all watched, by processor and by thread of the server.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Account {
    /// How long it was, in ns.
    pub wall_ns: u64,
    /// How long the server's processor was busy, for whomever.
    pub core_busy_ns: u64,
    /// How long all others were, together.
    pub other_cores_busy_ns: u64,
    /// For how long the host of a virtual machine had taken the server's processor away; `None` of
    /// a record from before that was kept.
    #[serde(default)]
    pub stolen_ns: Option<u64>,
    /// For how long all others, together.
    #[serde(default)]
    pub other_cores_stolen_ns: Option<u64>,
    /// Processor time of the server's threads, in ns, by their names; those that differ in a number
    /// are one.
    pub threads: BTreeMap<String, u64>,
    /// Bytes that the server had read from disks, past or into the page cache.
    #[serde(default)]
    pub disk_bytes: u64,
    /// What processors counted of the server, all its threads, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
}

/// What there was to be read at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    at_ns: u64,
    cores: Vec<CoreTimes>,
    threads: BTreeMap<String, u64>,
    disk_bytes: u64,
    counted: Option<Counted>,
}

impl Moment {
    /// Now, of process `server`.
    pub(crate) fn now(server: u32) -> Self {
        Self {
            at_ns: monotonic_ns(),
            cores: machine::core_times(),
            threads: threads_of(server),
            disk_bytes: disk_bytes_of(server),
            counted: None,
        }
    }

    /// The same, and what was counted so far.
    pub(crate) fn counted(self, counting: &Counting) -> Self {
        Self {
            counted: counting.now(),
            ..self
        }
    }
}

impl Account {
    /// From one moment to another; the server's processor is `core`.
    pub(crate) fn between(from: &Moment, to: &Moment, core: usize) -> Self {
        let wall_ns = to.at_ns - from.at_ns;
        let busy = |core: usize| {
            let rest = rest_ns(&to.cores, core).saturating_sub(rest_ns(&from.cores, core));
            wall_ns.saturating_sub(rest)
        };
        let stolen = |core: usize| {
            let stolen_ns = |moment: &Moment| moment.cores.get(core).map_or(0, |t| t.stolen_ns);
            stolen_ns(to).saturating_sub(stolen_ns(from))
        };
        let others = || (0..to.cores.len()).filter(|&other| other != core);
        let spent = |(name, &to_ns): (&String, &u64)| {
            let from_ns = from.threads.get(name).copied().unwrap_or(0);
            (name.clone(), to_ns.saturating_sub(from_ns))
        };
        Self {
            wall_ns,
            core_busy_ns: busy(core),
            other_cores_busy_ns: others().map(busy).sum(),
            stolen_ns: Some(stolen(core)),
            other_cores_stolen_ns: Some(others().map(stolen).sum()),
            threads: to.threads.iter().map(spent).collect(),
            disk_bytes: to.disk_bytes.saturating_sub(from.disk_bytes),
            counted: Counted::between(from.counted, to.counted),
        }
    }

    /// Processor time of `onrush serve`'s control thread for each of those who came meanwhile, so
    /// many a second, in ns. None if nobody came, or if there is no such thread.
    #[must_use]
    pub fn set_up_ns(&self, arrivals_per_second: u32) -> Option<u64> {
        let control_ns = self.threads.get(CONTROL)?;
        let came = u128::from(self.wall_ns) * u128::from(arrivals_per_second) / 1_000_000_000;
        u128::from(*control_ns).checked_div(came)?.try_into().ok()
    }

    /// The part of its time for which the server's processor was taken away, from 0 to 1; `None` if
    /// nobody looked.
    #[must_use]
    pub fn stolen_part(&self) -> Option<f64> {
        let stolen_ns = self.stolen_ns.filter(|_| self.wall_ns > 0)?;
        Some(ratio(stolen_ns, self.wall_ns))
    }

    /// Whether so much of it was that what was seen may be the host's doing.
    #[must_use]
    pub fn is_robbed(&self) -> bool {
        self.stolen_part()
            .is_some_and(|part| part > STOLEN_PART_TOLD)
    }

    /// What the host took, for people; `None` if it was nothing to speak of.
    #[must_use]
    pub fn theft_in_words(&self) -> Option<String> {
        let percent = self.stolen_part().filter(|_| self.is_robbed())? * 100.0;
        let others = ratio(self.other_cores_stolen_ns.unwrap_or(0), self.wall_ns);
        let others = if others > STOLEN_PART_TOLD {
            format!(" and {:.0} % of the others", others * 100.0)
        } else {
            String::new()
        };
        Some(format!(
            "the host took {percent:.0} % of the server's processor{others}"
        ))
    }

    /// Processor time of the threads that send, of `onrush serve`; 0 of another server.
    #[must_use]
    pub fn send_ns(&self) -> u64 {
        self.threads_ns(SEND)
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

/// Bytes that `process` has had read from disks so far: proc(5), `read_bytes` of `io`. What a page
/// cache gave is not among them.
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
    fn what_the_host_took_is_told_apart_from_work_and_from_rest() {
        let moment = |at_ms: u64, idle_stolen_ms: [(u64, u64); 3]| Moment {
            at_ns: at_ms * 1_000_000,
            cores: idle_stolen_ms
                .map(|(idle_ms, stolen_ms)| CoreTimes {
                    idle_ns: idle_ms * 1_000_000,
                    stolen_ns: stolen_ms * 1_000_000,
                })
                .to_vec(),
            threads: BTreeMap::new(),
            disk_bytes: 0,
            counted: None,
        };
        let from = moment(500, [(7, 3), (100, 40), (0, 0)]);
        let account = |stolen_ms: u64| {
            let to = moment(1500, [(307, 53), (400, 40 + stolen_ms), (900, 20)]);
            Account::between(&from, &to, 1)
        };
        let robbed = account(120);
        assert_eq!(robbed.stolen_ns, Some(120_000_000));
        assert_eq!(robbed.other_cores_stolen_ns, Some(70_000_000));
        assert_eq!(robbed.core_busy_ns, 580_000_000);
        assert_eq!(robbed.other_cores_busy_ns, 730_000_000);
        assert_eq!(robbed.stolen_part(), Some(0.12));
        let words = "the host took 12 % of the server's processor and 7 % of the others";
        assert_eq!(robbed.theft_in_words().unwrap(), words);
        assert!(account(21).is_robbed());
        for untold in [account(20), account(0), Account::default()] {
            assert!(!untold.is_robbed() && untold.theft_in_words().is_none());
        }
        assert_eq!(Account::default().stolen_part(), None);
        // What others lost says nothing of the server.
        let alone = Account {
            other_cores_stolen_ns: Some(0),
            ..robbed
        };
        assert!(
            alone
                .theft_in_words()
                .unwrap()
                .ends_with("server's processor")
        );
    }

    #[test]
    fn an_account_without_theft_is_read_and_says_nothing_of_it() {
        let old =
            r#"{"wall_ns":9,"core_busy_ns":5,"other_cores_busy_ns":1,"threads":{"onrush-send":3}}"#;
        let old: Account = serde_json::from_str(old).unwrap();
        assert_eq!((old.stolen_ns, old.other_cores_stolen_ns), (None, None));
        assert_eq!(old.send_ns(), 3);
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
