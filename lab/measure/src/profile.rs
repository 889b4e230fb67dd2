//! Where a processor's time goes: samples of what it was at, by parts of the kernel and of us.
//!
//! A part is a list of what its functions' names begin with. What the kernel inlines counts for the
//! function that it is in, and what several parts call (locks, copies, memory) is a part of its
//! own: the samples have no callers.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use onrush_primitives::named;
use onrush_primitives::sampling::{Event, Sampler, Samples};
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::stats::{ratio, to_f64};
use crate::table::{Column, Table, table};

/// Looks a second on average; a prime number of microseconds apart, so that no tick keeps pace.
const CLOCK_PERIOD_NS: u64 = 199_000;

/// Instructions and misses from one look to the next.
const INSTRUCTIONS_PERIOD: u64 = 500_009;
const MISSES_PERIOD: u64 = 5_003;

/// Functions that are kept by name.
const FUNCTIONS_KEPT_MAX: usize = 60;

named! {
    /// What a sample is charged to.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Part {
        /// The sending thread, outside the kernel.
        OwnCode = "our code",
        /// Into the kernel and back.
        Crossing = "crossing",
        /// Entries of an io_uring, until the socket has them.
        Ring = "ring",
        /// Notifications that memory is free again, and answers of the ring.
        Completion = "completion",
        /// Sockets: their locks, their accounts of memory, and what runs before each send.
        Socket = "socket",
        /// UDP and IP.
        UdpIp = "UDP and IP",
        /// Routes and neighbours.
        Route = "route",
        /// A train that software cuts.
        Segmentation = "segmentation",
        /// Socket buffers and the memory that they are made of.
        Buffer = "skb and slab",
        /// The queue in front of a device.
        Queue = "qdisc",
        /// The device: veth, to the other end's queue.
        Driver = "driver",
        /// What comes in at the other end, until the sink has it.
        Softirq = "softirq and receiving",
        /// The sink, which counts and drops. A network card has none.
        Sink = "sink",
        /// Files and pipes, of paths that read or splice.
        File = "file",
        /// Copies of bytes.
        Copy = "copy",
        /// Locks, read-copy-update, and interrupts switched on again: where the clock's samples of
        /// time without interrupts fall, too.
        Lock = "locks and interrupts",
        /// Timers and who runs next.
        Scheduling = "timers and scheduling",
        /// What is none of these.
        Other = "other",
    }
}

/// What names of functions begin with, the first that fits.
#[rustfmt::skip]
const PARTS: &[(Part, &[&str])] = &[
    (Part::Sink, &[
        "bpf_prog_", "bpf_", "__bpf_", "array_map_", "htab_", "__htab_", "percpu_array_",
        "lookup_nulls", "cls_bpf_", "tcf_", "tcx_", "__tcf", "tc_run", "sch_handle_ingress",
        "bpf_spin", "skb_do_redirect",
    ]),
    (Part::Completion, &[
        "io_notif", "__io_notif", "io_tx_ubuf", "io_req_task_work", "tctx_task_work",
        "__io_run_local_work", "io_run_local", "io_handle_tw", "io_fill_cqe", "io_post", "io_cq",
        "__io_submit_flush", "io_free_batch", "io_req_tw", "io_req_cqe", "__io_cqring",
        "io_cqring", "io_send_zc_cleanup", "skb_zcopy", "__skb_zcopy", "skb_release_data",
        "io_flush", "__io_req_task_work", "io_req_post", "io_get_cqe", "io_cqe_cache",
    ]),
    (Part::Ring, &[
        "io_", "__io_", "__do_sys_io_uring", "__x64_sys_io_uring", "__se_sys_io_uring", "req_",
    ]),
    (Part::Segmentation, &[
        "__skb_gso", "skb_gso", "skb_segment", "__udp_gso", "udp4_ufo", "udp6_ufo", "inet_gso",
        "skb_mac_gso", "__skb_udp_tunnel", "skb_udp", "ipv6_gso", "udp_gso",
    ]),
    (Part::Route, &[
        "ip_route", "fib_", "ipv4_dst", "dst_", "rt_", "neigh_", "ip_rt", "__neigh",
        "ipv4_mtu", "ip_dst", "ip6_route", "ip6_dst", "ip6_pol", "rt6_", "ipv4_neigh",
        "__ip_dev_find", "ip_mtu",
    ]),
    (Part::Softirq, &[
        "__netif_receive", "netif_receive", "process_backlog", "net_rx_action", "__napi_poll",
        "napi_", "handle_softirqs", "do_softirq", "__do_softirq", "run_ksoftirqd",
        "__local_bh", "ip_rcv", "ip_local_deliver", "udp_rcv", "__udp4_lib_rcv", "eth_type_trans",
        "skb_defer", "ipv6_rcv", "sk_filter", "udp_queue_rcv", "tcp_v4_rcv", "do_softirq_own",
    ]),
    (Part::Driver, &[
        "veth_", "__dev_forward", "dev_forward", "netif_rx", "__netif_rx", "enqueue_to_backlog",
        "loopback_", "is_skb_forwardable", "get_rps", "skb_scrub", "rps_",
    ]),
    (Part::Queue, &[
        "__dev_queue_xmit", "dev_queue_xmit", "dev_hard_start", "sch_direct", "__qdisc",
        "qdisc", "pfifo", "noqueue", "netdev_core_pick", "netdev_pick", "validate_xmit",
        "netif_skb_features", "skb_network_protocol", "passthru_features", "dev_direct",
        "skb_csum_hwoffload", "harmonize_features", "skb_checksum_help",
    ]),
    (Part::UdpIp, &[
        "udp", "__udp", "ip_", "__ip_", "inet_", "__inet_", "ip6_", "ipv6_", "__ip6", "udpv6",
        "tcp_", "__tcp", "nf_", "csum_", "__raw_spin_udp",
    ]),
    (Part::Socket, &[
        "sock", "__sock", "sk_", "__sk_", "security_", "apparmor_", "lock_sock", "release_sock",
        "____sys_send", "___sys_send", "__sys_send", "__x64_sys_send", "sendmsg_", "copy_msghdr",
        "import_iovec", "__import_iovec", "move_addr", "compat_", "fput", "fget", "__fget",
        "fdget", "__fdget", "sys_send", "do_sock", "__x64_sys_setsockopt", "__sys_setsockopt",
    ]),
    (Part::Buffer, &[
        "skb_", "__skb", "__alloc_skb", "alloc_skb", "kfree", "consume_skb", "kmem_cache",
        "__kmem_cache", "kmalloc", "__kmalloc", "__slab", "___slab", "slab_", "__consume",
        "page_frag", "__page_frag", "free_frozen", "__free", "alloc_pages", "__alloc_pages",
        "__alloc_frozen", "get_page_from", "put_page", "folio_put", "__folio_put", "put_unref",
        "get_partial", "memset", "mod_memcg", "refill_", "obj_cgroup", "__memcg", "memcg_",
        "zerocopy_", "__zerocopy", "msg_zerocopy", "iov_iter", "__iov_iter", "gup_", "pin_user",
        "unpin_user", "internal_get_user", "try_grab", "sg_",
    ]),
    (Part::File, &[
        "ext4", "filemap", "__filemap", "vfs_", "ksys_", "splice", "__splice", "do_splice",
        "do_sendfile", "pipe_", "xas_", "folio", "generic_file", "rw_verify", "atime", "touch_",
        "file_", "__x64_sys_pread", "__x64_sys_sendfile", "shmem_", "mark_page", "workingset",
        "direct_splice", "copy_splice", "new_sync", "do_iter", "do_writev", "xfs_", "btrfs_",
        "overlay", "ovl_",
    ]),
    (Part::Copy, &[
        "copy_", "_copy", "__copy", "rep_movs", "memcpy", "__memcpy", "memmove", "__get_user",
        "__put_user", "copyin", "copyout", "__check_object", "check_heap", "fault_in",
    ]),
    (Part::Crossing, &[
        "entry_", "do_syscall", "syscall_", "__syscall", "x64_sys_call", "asm_", "exc_", "error_",
        "irqentry", "fpregs", "__seccomp", "seccomp", "exit_to_user", "__do_sys", "__x64_sys",
        "ret_from", "srso_", "retbleed", "__x86_", "its_", "clear_bhb", "swapgs", "restore_fpu",
    ]),
    (Part::Lock, &[
        "_raw_", "__raw", "queued_spin", "native_queued", "__rcu", "rcu_", "mutex_", "__mutex",
        "preempt_", "down_", "up_", "pv_", "__pv", "percpu_", "this_cpu", "__srcu",
    ]),
    (Part::Scheduling, &[
        "sched", "__sched", "schedule", "__schedule", "hrtimer", "__hrtimer", "tick", "update_",
        "pick_", "enqueue_", "dequeue_", "finish_task", "try_to_wake", "wake_", "__wake", "ttwu",
        "ktime", "timer", "timekeeping", "clockevents", "lapic", "native_", "x2apic", "kvm_",
        "psi_", "cpuacct", "cgroup", "put_prev", "set_next", "check_preempt", "reweight",
        "task_", "place_entity", "read_tsc", "run_timer", "run_posix", "account_", "perf_",
        "sysvec", "irq_", "__irq", "read_hpet", "pvclock", "prepare_task", "switch_", "__switch",
        "rb_", "__rb", "avg_", "select_task", "nohz", "calc_", "getrusage", "thread_group",
    ]),
];

/// The kernel's functions, by address.
#[derive(Debug, Default)]
pub(crate) struct Symbols(Vec<(u64, String)>);

/// Looks at a processor until it is finished.
#[derive(Debug)]
pub(crate) struct Profiling {
    clock: Sampler,
    instructions: Option<Sampler>,
    misses: Option<Sampler>,
    threads: Threads,
}

/// Whose time is looked for.
#[derive(Clone, Debug)]
struct Threads {
    sender: u32,
    /// In the kernel these are charged, too: what interrupts them is the sender's.
    interrupted: Vec<u32>,
}

/// What was seen, by part.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Profile {
    /// Processor time that a sample stands for, in ns.
    pub period_ns: u64,
    /// Samples, by what they are charged to.
    pub parts: BTreeMap<Part, u64>,
    /// The functions that most samples were in.
    pub functions: Vec<Function>,
    /// Samples that were of other programs on that processor.
    pub elsewhere: u64,
    /// Samples that there was no room for.
    pub lost: u64,
    /// Instructions by part, where the processor counts them.
    #[serde(default)]
    pub instructions: BTreeMap<Part, u64>,
    /// Misses of the last cache by part, where it does.
    #[serde(default)]
    pub misses: BTreeMap<Part, u64>,
}

/// A function, and how many samples were in it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What it is charged to.
    pub part: Part,
    /// Samples.
    pub samples: u64,
}

impl Symbols {
    /// Those of the running kernel and of its programs.
    ///
    /// # Errors
    ///
    /// If the kernel hides where its functions are (kernel.kptr_restrict, or no root).
    pub(crate) fn of_kernel() -> io::Result<Self> {
        let symbols = Self::parse(&fs::read_to_string("/proc/kallsyms")?);
        match symbols.0.iter().any(|&(address, _)| address > 0) {
            true => Ok(symbols),
            false => Err(io::Error::other(
                "/proc/kallsyms tells no addresses: run as root, or set kernel.kptr_restrict to 1",
            )),
        }
    }

    fn parse(text: &str) -> Self {
        let mut symbols: Vec<_> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let kind = words.next()?;
                // Code, and what may stand in for it.
                let name = words.next()?;
                matches!(kind, "t" | "T" | "w" | "W").then(|| (address, name.to_owned()))
            })
            .collect();
        symbols.sort_unstable();
        Self(symbols)
    }

    /// The function that an address is in.
    fn name(&self, address: u64) -> &str {
        let behind = self.0.partition_point(|&(begin, _)| begin <= address);
        let found = behind.checked_sub(1).map(|place| self.0[place].1.as_str());
        found.unwrap_or("unknown")
    }
}

impl Part {
    /// What a function of the kernel is charged to.
    fn of_kernel(name: &str) -> Self {
        let fits = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let part = PARTS.iter().find(|(_, prefixes)| fits(prefixes));
        part.map_or(Self::Other, |&(part, _)| part)
    }
}

impl Profiling {
    /// Looks at processor `core`, on which `thread` sends.
    ///
    /// # Errors
    ///
    /// If the kernel lets nobody look.
    pub(crate) fn start(core: usize, sender: u32) -> io::Result<Self> {
        // Who rests has no number.
        let mut interrupted = vec![0];
        interrupted.extend(machine::softirq_thread(core));
        interrupted.extend(machine::awake_threads());
        Ok(Self {
            clock: Sampler::start(Event::Clock, core, CLOCK_PERIOD_NS)?,
            // Many machines have none of these to show.
            instructions: Sampler::start(Event::Instructions, core, INSTRUCTIONS_PERIOD).ok(),
            misses: Sampler::start(Event::Misses, core, MISSES_PERIOD).ok(),
            threads: Threads {
                sender,
                interrupted,
            },
        })
    }

    /// Ends, and says whose each sample was.
    pub(crate) fn finish(self, symbols: &Symbols) -> Profile {
        let mut profile = Profile {
            period_ns: CLOCK_PERIOD_NS,
            ..Profile::default()
        };
        let seen = self.clock.finish();
        profile.lost = seen.lost;
        let mut functions = BTreeMap::<(Part, &str), u64>::new();
        for (part, name) in charged(&seen, &self.threads, symbols) {
            match part {
                Some(part) => {
                    *profile.parts.entry(part).or_default() += 1;
                    *functions.entry((part, name)).or_default() += 1;
                }
                None => profile.elsewhere += 1,
            }
        }
        let functions = functions.into_iter();
        let functions = functions.map(|((part, name), samples)| Function {
            name: name.to_owned(),
            part,
            samples,
        });
        profile.functions = functions.collect();
        profile
            .functions
            .sort_by_key(|it| std::cmp::Reverse(it.samples));
        profile.functions.truncate(FUNCTIONS_KEPT_MAX);
        let counted = |sampler: Option<Sampler>, period: u64| {
            let mut parts = BTreeMap::new();
            let seen = sampler.map(Sampler::finish).unwrap_or_default();
            for part in charged(&seen, &self.threads, symbols).filter_map(|(part, _)| part) {
                *parts.entry(part).or_default() += period;
            }
            parts
        };
        profile.instructions = counted(self.instructions, INSTRUCTIONS_PERIOD);
        profile.misses = counted(self.misses, MISSES_PERIOD);
        profile
    }
}

/// What each sample is charged to, and the function; `None`: to nobody of ours. What the kernel
/// does for other programs on the sender's processor is theirs.
fn charged<'a>(
    seen: &'a Samples,
    threads: &'a Threads,
    symbols: &'a Symbols,
) -> impl Iterator<Item = (Option<Part>, &'a str)> {
    seen.samples.iter().map(move |sample| {
        let is_own = sample.thread == threads.sender;
        if sample.is_kernel && (is_own || threads.interrupted.contains(&sample.thread)) {
            let name = symbols.name(sample.address);
            return (Some(Part::of_kernel(name)), name);
        }
        let is_code = is_own && !sample.is_kernel;
        (is_code.then_some(Part::OwnCode), "our code")
    })
}

impl Profile {
    /// Samples of the sender and of all that the kernel did on its processor.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.parts.values().sum()
    }

    /// Adds another.
    pub(crate) fn add(&mut self, other: &Self) {
        let sum = |to: &mut BTreeMap<Part, u64>, from: &BTreeMap<Part, u64>| {
            for (&part, count) in from {
                *to.entry(part).or_default() += count;
            }
        };
        self.period_ns = other.period_ns;
        sum(&mut self.parts, &other.parts);
        sum(&mut self.instructions, &other.instructions);
        sum(&mut self.misses, &other.misses);
        self.elsewhere += other.elsewhere;
        self.lost += other.lost;
        for function in &other.functions {
            let same = self
                .functions
                .iter_mut()
                .find(|it| it.name == function.name);
            match same {
                Some(same) => same.samples += function.samples,
                None => self.functions.push(function.clone()),
            }
        }
        self.functions
            .sort_by_key(|it| std::cmp::Reverse(it.samples));
    }

    /// Where the time of `trains` went, the most first, and what was counted beside it.
    pub(crate) fn told(&self, caption: String, trains: u64) -> Table {
        let mut parts: Vec<_> = self.parts.iter().collect();
        parts.sort_by_key(|&(_, &samples)| std::cmp::Reverse(samples));
        let all = self.samples();
        let a_train = |counts: &BTreeMap<Part, u64>, part: &Part| {
            let count = counts.get(part).copied().unwrap_or(0);
            (!counts.is_empty()).then(|| ratio(count, trains.max(1)))
        };
        let functions = |part: Part| {
            let its = self.functions.iter().filter(|it| it.part == part);
            let named = its.take(3).map(|it| {
                let percent = ratio(it.samples, all.max(1)) * 100.0;
                format!("{} {percent:.1} %", it.name)
            });
            named.collect::<Vec<_>>().join(", ")
        };
        let mut table = table! {
            caption,
            for (&part, &samples) in parts;
            Column::key("part") => part.name(),
            Column::percent("of the time", 1) => vec![ratio(samples, all.max(1))],
            Column::ns("a train", 0).less()
                => vec![ratio(samples * self.period_ns, trains.max(1))],
            Column::count("samples", 0) => samples,
            Column::count("instructions a train", 0) => a_train(&self.instructions, &part),
            Column::count("misses a train", 2) => a_train(&self.misses, &part),
            Column::text("most in") => functions(part),
        };
        let ns = to_f64(all * self.period_ns) / to_f64(trains.max(1));
        table.note(format!(
            "{all} samples, {} us apart, of {trains} trains: {ns:.0} ns a train, interrupts and \
             the far end's work on the sender's processor included. {} samples were of other \
             programs; {} had no room.",
            self.period_ns / 1000,
            self.elsewhere,
            self.lost
        ));
        if self.instructions.is_empty() {
            table.note(
                "This machine shows no counters of instructions and misses (perf_event_open).",
            );
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use onrush_primitives::sampling::Sample;

    use super::*;

    const KALLSYMS: &str = "ffffffff81000000 T io_issue_sqe\n\
                            ffffffff81000100 t udp_send_skb.isra.0\n\
                            ffffffff81000200 D some_data\n\
                            ffffffff81000300 T bpf_prog_1234_sink\t[bpf]\n\
                            0000000000000000 A fixed_percpu_data\n";

    #[test]
    fn addresses_are_in_the_function_that_begins_before_them() {
        let symbols = Symbols::parse(KALLSYMS);
        assert_eq!(symbols.name(0xffff_ffff_8100_0000), "io_issue_sqe");
        assert_eq!(symbols.name(0xffff_ffff_8100_00ff), "io_issue_sqe");
        assert_eq!(symbols.name(0xffff_ffff_8100_02ff), "udp_send_skb.isra.0");
        assert_eq!(symbols.name(0xffff_ffff_8100_0300), "bpf_prog_1234_sink");
        assert_eq!(symbols.name(5), "unknown");
    }

    #[test]
    fn functions_are_of_the_part_that_does_them() {
        for (name, part) in [
            ("io_issue_sqe", Part::Ring),
            ("io_tx_ubuf_complete", Part::Completion),
            ("udp_sendmsg", Part::UdpIp),
            ("__ip_append_data", Part::UdpIp),
            ("ip_route_output_key_hash_rcu", Part::Route),
            ("ipv4_dst_check", Part::Route),
            ("sock_wfree", Part::Socket),
            ("sock_alloc_send_pskb", Part::Socket),
            ("__alloc_skb", Part::Buffer),
            ("kmem_cache_free", Part::Buffer),
            ("skb_segment", Part::Segmentation),
            ("__dev_queue_xmit", Part::Queue),
            ("veth_xmit", Part::Driver),
            ("net_rx_action", Part::Softirq),
            ("bpf_prog_0123_sink", Part::Sink),
            ("array_map_lookup_elem", Part::Sink),
            ("entry_SYSCALL_64_after_hwframe", Part::Crossing),
            ("_raw_spin_lock", Part::Lock),
            ("hrtimer_interrupt", Part::Scheduling),
            ("filemap_read", Part::File),
            ("_copy_from_iter", Part::Copy),
            ("of_no_kind", Part::Other),
        ] {
            assert_eq!(Part::of_kernel(name), part, "{name}");
        }
    }

    #[test]
    fn what_others_do_on_the_processor_is_theirs() {
        let sample = |address, thread, is_kernel| Sample {
            address,
            thread,
            is_kernel,
        };
        let seen = Samples {
            samples: vec![
                sample(0x40_0000, 7, false),
                sample(0x40_0000, 8, false),
                sample(0xffff_ffff_8100_0010, 8, true),
                sample(0xffff_ffff_8100_0010, 9, true),
            ],
            lost: 0,
        };
        let symbols = Symbols::parse(KALLSYMS);
        let threads = Threads {
            sender: 7,
            interrupted: vec![0, 8],
        };
        let charged = charged(&seen, &threads, &symbols).map(|(part, _)| part);
        let expected = [Some(Part::OwnCode), None, Some(Part::Ring), None];
        assert_eq!(charged.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_told_of_a_train_is_of_all_runs() {
        let function = |name: &str, part, samples| Function {
            name: name.to_owned(),
            part,
            samples,
        };
        let one = Profile {
            period_ns: 1000,
            parts: [(Part::Ring, 30), (Part::OwnCode, 10)].into(),
            functions: vec![function("io_issue_sqe", Part::Ring, 30)],
            ..Profile::default()
        };
        let mut all = one.clone();
        all.add(&one);
        assert_eq!((all.samples(), all.functions[0].samples), (80, 60));
        let table = all.told("where".to_owned(), 10);
        let told = |row: usize| -> Vec<_> {
            let cells = table.cells(&table.rows[row]);
            cells.map(|(it, cell)| it.tell(cell)).collect()
        };
        assert_eq!(told(0)[..4], ["ring", "75.0", "6000", "60"]);
        assert_eq!(told(1)[..4], ["our code", "25.0", "2000", "20"]);
        assert!(told(0)[6].contains("io_issue_sqe 75.0 %"));
        assert!(table.notes[0].contains("80 samples, 1 us apart, of 10 trains: 8000 ns"));
        let json = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), all);
    }
}
