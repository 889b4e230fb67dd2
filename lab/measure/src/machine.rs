//! What the machine did meanwhile: whose time each processor spent, and how even its own pace was.
//!
//! A sender's own clock can miss work that it caused elsewhere, on a kernel thread or in an
//! interrupt. So the idle time of its processor is read beside it: what was not idle was busy,
//! whoever is charged for it.

use std::fs;
use std::hint::{black_box, spin_loop};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use onrush_sys::clock::{cpu_ns_of, cpu_ns_of_process, thread_cpu_ns};
use onrush_sys::thread::{pin_to, run_when_idle};
use serde::{Deserialize, Serialize};

/// How one processor has spent its time since boot, in ns; the kernel tells it in steps of 10 ms.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct CoreTimes {
    /// Doing nothing. The kernel measures this; the rest it samples.
    pub idle_ns: u64,
    /// Taken away by the host of a virtual machine.
    pub stolen_ns: u64,
}

/// The times of every processor, by number.
#[must_use]
pub fn core_times() -> Vec<CoreTimes> {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    parse_stat(
        &stat,
        1_000_000_000 / rustix::param::clock_ticks_per_second(),
    )
}

fn parse_stat(stat: &str, tick_ns: u64) -> Vec<CoreTimes> {
    let mut cores = Vec::new();
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|word| word.strip_prefix("cpu"));
        let Some(number) = number.and_then(|digits| digits.parse::<usize>().ok()) else {
            continue;
        };
        // proc_stat(5): user nice system idle iowait irq softirq steal ...
        let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let of = |i: usize| ticks.get(i).copied().unwrap_or(0) * tick_ns;
        // A processor that is off has no line; it never has had any time.
        cores.resize(cores.len().max(number + 1), CoreTimes::default());
        cores[number] = CoreTimes {
            idle_ns: of(3) + of(4),
            stolen_ns: of(7),
        };
    }
    cores
}

/// Keeps a processor from resting, by a thread that runs only when nobody else would.
///
/// A processor at rest lowers its clock and empties its caches, and that of a virtual machine is
/// given to somebody else; whoever wakes it pays, by tens of per cents that change from second to
/// second. Those who compare what work costs keep it awake.
#[derive(Debug)]
pub struct Awake(#[expect(dead_code, reason = "it works until it is dropped")] Background);

impl Awake {
    /// Keeps processor `core` awake until it is dropped.
    ///
    /// # Errors
    ///
    /// If no thread can be made.
    pub fn keep(core: usize) -> io::Result<Self> {
        let background = Background::start(AWAKE_NAME, move |is_over| {
            // Elsewhere, or at an ordinary priority, it would do harm.
            if pin_to(core).and_then(|()| run_when_idle()).is_ok() {
                while !is_over.load(Ordering::Relaxed) {
                    spin_loop();
                }
            }
        })?;
        Ok(Self(background))
    }

    /// How long nobody else wanted the processor, in ns.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        awake_ns()
    }
}

/// A thread that works until it is dropped.
#[derive(Debug)]
pub(crate) struct Background {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts `work`, which looks now and then whether it is over.
    pub(crate) fn start(
        name: &str,
        work: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let its_own = Arc::clone(&is_over);
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = Some(thread.spawn(move || work(&its_own))?);
        Ok(Self { is_over, thread })
    }

    /// Says that it is over, and does not wait.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            // If it has panicked there is nothing to do about it.
            drop(thread.join());
        }
    }
}

/// Processor time of all that keep processors awake, in ns.
#[must_use]
pub fn awake_ns() -> u64 {
    cpu_ns_of_all(&threads_named(AWAKE_NAME))
}

/// The threads that keep processors awake.
#[must_use]
pub fn awake_threads() -> Vec<u32> {
    threads_named(AWAKE_NAME)
}

const AWAKE_NAME: &str = "keep-awake";

/// What work costs a thread that is bound to a processor: its own time, and that of the processor's
/// softirq thread.
///
/// The kernel wakes that thread (ksoftirqd) from time to time. If the sender is in a long call, it
/// is switched to when the call ends, but the time of the switch is taken to be that of the
/// wake-up, because the kernel has "just" read the clock then (kernel/sched/core.c,
/// `wakeup_preempt`, `rq_clock_skip_update`). So what the sender did in between, up to a tick of 4
/// ms, is charged to the other. The sum is right.
#[derive(Clone, Copy, Debug)]
pub struct SenderClock {
    softirq_thread: Option<u32>,
}

impl SenderClock {
    /// The clock of a thread that is bound to this processor. Where the kernel's threads are not to
    /// be seen, as in some containers, that of the thread alone.
    #[must_use]
    pub fn bound_to(core: usize) -> Self {
        Self {
            softirq_thread: softirq_thread(core),
        }
    }

    /// The clock of a thread that sleeps while others work for it: what is done on its processor
    /// meanwhile is theirs.
    #[must_use]
    pub fn of_sleeper() -> Self {
        Self {
            softirq_thread: None,
        }
    }

    /// Time of the calling thread and of the softirq thread, in ns.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.softirq_ns() + thread_cpu_ns()
    }

    /// The latter alone.
    #[must_use]
    pub fn softirq_ns(&self) -> u64 {
        self.softirq_thread.and_then(cpu_ns_of_process).unwrap_or(0)
    }
}

/// The softirq thread of a processor, if the kernel shows it.
#[must_use]
pub fn softirq_thread(core: usize) -> Option<u32> {
    let name = format!("ksoftirqd/{core}");
    let all = fs::read_dir("/proc").ok()?;
    let numbers = all
        .flatten()
        .filter_map(|one| one.file_name().to_str()?.parse().ok());
    // Numbers of processes only; the kernel's own come first.
    numbers.into_iter().find(|number: &u32| {
        let found = fs::read_to_string(format!("/proc/{number}/comm"));
        found.is_ok_and(|found| found.trim_end() == name)
    })
}

/// The threads of this process whose name begins so (the kernel keeps 15 bytes of a name).
#[must_use]
pub fn threads_named(prefix: &str) -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks
        .flatten()
        .filter(|task| {
            let name = fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| name.starts_with(prefix))
        })
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .collect()
}

/// The threads of a process; none of one that is gone.
#[must_use]
pub fn threads_of(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter();
    let numbers = tasks.flatten().flatten();
    numbers
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .collect()
}

/// Processor time of these threads together, in ns; threads that are gone count nothing.
#[must_use]
pub fn cpu_ns_of_all(threads: &[u32]) -> u64 {
    threads.iter().filter_map(|&thread| cpu_ns_of(thread)).sum()
}

/// How long a thread was ready to run and did not, in ns, because another had its processor. 0
/// where the kernel keeps no such account (CONFIG_SCHED_INFO).
#[must_use]
pub fn waited_ns(thread: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
    let waited = stat.ok().and_then(|text| {
        let mut words = text.split_ascii_whitespace();
        words.nth(1)?.parse().ok()
    });
    waited.unwrap_or(0)
}

/// Whether a hypervisor says that it is there.
#[must_use]
pub fn is_virtual() -> bool {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    // The latter is what QEMU, kvmtool and Firecracker are.
    let has_node = Path::new("/proc/device-tree/hypervisor").exists()
        || read("/proc/device-tree/compatible").contains("linux,dummy-virt");
    let [vendor, product] =
        ["sys_vendor", "product_name"].map(|name| read(&format!("/sys/class/dmi/id/{name}")));
    is_guest(&read("/proc/cpuinfo"), has_node, (&vendor, &product))
}

/// On x86 by a flag of the processor. Elsewhere by a node of the device tree, or by who says that
/// the machine is theirs (dmidecode(8)).
fn is_guest(cpuinfo: &str, has_node: bool, (vendor, product): (&str, &str)) -> bool {
    const HOSTS: [&str; 7] = [
        "Alibaba Cloud",
        "Amazon EC2",
        "Google",
        "OpenStack",
        "QEMU",
        "VMware",
        "Xen",
    ];
    if let Some(flags) = cpuinfo.lines().find(|line| line.starts_with("flags")) {
        let mut flags = flags.split_ascii_whitespace();
        return flags.any(|flag| flag == "hypervisor");
    }
    let is_host = HOSTS.iter().any(|host| vendor.starts_with(host));
    // Amazon says the same of its machines of metal.
    let is_metal = product.trim_end().ends_with(".metal");
    has_node || product.contains("Virtual") || is_host && !is_metal
}

/// Runnable threads of the whole machine, averaged over the last minute.
#[must_use]
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_ascii_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// Does a fixed piece of arithmetic on the calling thread's processor, and says how long it took in
/// ns: on a machine at rest the same each time.
#[must_use]
pub fn yardstick_ns() -> u64 {
    let begin = Instant::now();
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..YARDSTICK_STEPS {
        // A chain: no step can begin before the last has ended.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// About 20 ms.
const YARDSTICK_STEPS: u32 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_go_by_number_and_waiting_for_disks_is_idle() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 100 20 4 5 6 0 0\ncpu2 0 0 0 7 0 0 0\nintr 5\n";
        let cores = parse_stat(stat, 10_000_000);
        assert_eq!(cores.len(), 3);
        assert_eq!(
            (cores[0].idle_ns, cores[0].stolen_ns),
            (1_200_000_000, 60_000_000)
        );
        assert_eq!(cores[1], CoreTimes::default());
        assert_eq!((cores[2].idle_ns, cores[2].stolen_ns), (70_000_000, 0));
        assert!(!core_times().is_empty());
    }

    #[test]
    fn guests_are_told_from_metal() {
        let x86 = |flags: &str| {
            let cpuinfo = format!("model name\t: AMD EPYC\nflags\t\t: fpu {flags}\n");
            is_guest(&cpuinfo, false, ("Amazon EC2\n", "m5.large\n"))
        };
        assert!(x86("sse2 hypervisor lahf_lm") && !x86("sse2"));
        let arm = |has_node, vendor, product| {
            let cpuinfo = "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n";
            is_guest(cpuinfo, has_node, (vendor, product))
        };
        assert!(arm(false, "Amazon EC2\n", "c6g.large\n"));
        assert!(!arm(false, "Amazon EC2\n", "c6g.metal\n"));
        assert!(arm(false, "Microsoft Corporation\n", "Virtual Machine\n"));
        assert!(!arm(false, "Microsoft Corporation\n", "Surface\n"));
        assert!(arm(true, "", "") && !arm(false, "", ""));
    }

    #[test]
    fn a_processor_that_is_kept_awake_spends_its_time_on_that() {
        let core = *onrush_sys::thread::allowed_cores().last().unwrap();
        let awake = Awake::keep(core).unwrap();
        // It gets what others leave; on a busy machine that may take a while.
        let has_run = (0..6000).any(|_| {
            thread::sleep(std::time::Duration::from_millis(10));
            awake.cpu_ns() > 1_000_000
        });
        assert!(has_run);
        drop(awake);
        // Joined, it may take the kernel a moment more to forget it.
        let is_gone = (0..6000).any(|_| {
            thread::sleep(std::time::Duration::from_millis(10));
            threads_named(AWAKE_NAME).is_empty()
        });
        assert!(is_gone);
    }

    #[test]
    fn the_softirq_thread_is_found_where_the_kernel_shows_it() {
        let core = *onrush_sys::thread::allowed_cores().last().unwrap();
        // Of each processor that is there, and of none beyond; in a container of none at all.
        let is_shown = (2..64).any(|number| {
            let name = fs::read_to_string(format!("/proc/{number}/comm"));
            name.is_ok_and(|name| name.starts_with("ksoftirqd/"))
        });
        assert_eq!(softirq_thread(core).is_some(), is_shown);
        assert_eq!(softirq_thread(100_000), None);
        let clock = SenderClock::bound_to(core);
        // It has done something since the machine came up, and goes on.
        let (before, own) = (clock.softirq_ns(), SenderClock::of_sleeper().now_ns());
        assert_eq!(before > 0, is_shown);
        assert!(own > 0 && clock.now_ns() >= before + own);
        assert_eq!(SenderClock::of_sleeper().softirq_ns(), 0);
    }

    #[test]
    fn threads_are_found_by_name_and_their_time_is_theirs() {
        let (finish, is_finished) = std::sync::mpsc::channel::<()>();
        let (begun, is_begun) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name("yardstick-77".to_owned());
        let thread = thread.spawn(move || {
            assert!(yardstick_ns() > 0);
            begun.send(()).unwrap();
            is_finished.recv().ok();
        });
        is_begun.recv().unwrap();
        let found = threads_named("yardstick-");
        assert_eq!(found.len(), 1);
        assert!(cpu_ns_of_all(&found) > 1_000_000);
        drop(finish);
        thread.unwrap().join().unwrap();
        assert!(threads_named("no such thread").is_empty());
    }
}
