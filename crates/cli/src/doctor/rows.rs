//! What the kernel answered, a row for each thing that was asked: what a lack means, and what mends
//! it.

use onrush_lock::memory::Pages;
use onrush_server::config::Config;
use onrush_sys::kernel_tls::Cipher;
use onrush_sys::probe::{Capability, Facts, Holder, Interface, Refused, Ring};
use serde::Serialize;

use crate::units::{Size, ranges};

/// One thing that was looked at.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) what: String,
    pub(super) state: State,
    pub(super) found: String,
    /// What its lack means and costs; empty when nothing is lacking.
    pub(super) means: &'static str,
    /// What mends it; empty when nothing does or nothing needs to.
    pub(super) remedy: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As good as it gets.
    Good,
    /// Worth knowing, costs the server nothing.
    Note,
    /// Costs CPU, memory or clients.
    #[serde(rename = "lacks")]
    Lacking,
}

pub(super) fn rows(facts: &Facts) -> Vec<Row> {
    let mut rows = vec![
        Row::note("kernel", format!("Linux {}", facts.host.kernel_release)),
        Row::note("processors", ranges(&facts.host.cores_allowed)),
    ];
    rows.extend(ring_rows(facts));
    rows.extend(udp_rows(facts));
    rows.push(kernel_tls_row(facts));
    rows.extend(memory_rows(facts));
    rows.extend(direct_read_row(facts));
    match &facts.interfaces {
        Ok(all) => rows.extend(
            all.iter()
                .filter(|interface| interface.up)
                .map(interface_row),
        ),
        Err(refused) => rows.push(Row::note("interfaces", format!("unknown ({refused})"))),
    }
    rows.push(testbed_row(facts));
    rows
}

fn ring_rows(facts: &Facts) -> Vec<Row> {
    let ring = match &facts.ring {
        Ok(ring) => ring,
        Err(refused) => {
            let what = Row::lacking("io_uring", refused.to_string(), NO_RING);
            return vec![what.remedy(ring_remedy(facts, refused))];
        }
    };
    vec![
        Row::good("io_uring", "available"),
        zero_copy_row(ring),
        flags_row(ring),
        wait_row(ring),
        registered_row(ring),
    ]
}

/// Who stands in the way of a ring, from what the kernel answered.
fn ring_remedy(facts: &Facts, refused: &Refused) -> &'static str {
    match (
        refused.source.raw_os_error(),
        facts.host.sysctl("kernel.io_uring_disabled"),
    ) {
        (Some(libc::EPERM), Some(1..)) => "sysctl kernel.io_uring_disabled=0",
        (Some(libc::EPERM | libc::ENOSYS), _) if facts.host.seccomp_filtered => {
            "a seccomp filter is in force: let the container use io_uring \
             (podman run --security-opt seccomp=unconfined)"
        }
        (Some(libc::EPERM | libc::EACCES), _) => {
            "a security module denies it to this account: see SELinux's or AppArmor's log"
        }
        (Some(libc::ENOMEM), _) => "raise the limit of locked memory: ulimit -l unlimited",
        _ => "use a kernel of Linux 6.0 or later with CONFIG_IO_URING",
    }
}

fn zero_copy_row(ring: &Ring) -> Row {
    match &ring.train {
        Ok(train) => Row::good(
            "SEND_ZC",
            match train.copied {
                true => "sent a train from a registered buffer (copied: loopback always copies)",
                false => "sent a train from a registered buffer",
            },
        ),
        Err(refused) if ring.send_zc => {
            Row::lacking("SEND_ZC", refused.to_string(), NO_RING).remedy(SEE_OTHER_ROWS)
        }
        Err(_) => Row::lacking("SEND_ZC", "unknown to this kernel", NO_RING)
            .remedy("use Linux 6.0 or later"),
    }
}

fn flags_row(ring: &Ring) -> Row {
    match (&ring.single_issuer, &ring.defer_taskrun) {
        (Ok(()), Ok(())) => Row::good("ring flags", "SINGLE_ISSUER, DEFER_TASKRUN"),
        (Err(refused), _) | (_, Err(refused)) => {
            let means = "completions interrupt the sending thread";
            Row::lacking("ring flags", refused.to_string(), means).remedy("use Linux 6.1 or later")
        }
    }
}

fn wait_row(ring: &Ring) -> Row {
    match &ring.wait_until {
        Ok(()) => Row::good("ring waits", "until an absolute time"),
        Err(_) if ring.wait_timeout => Row::lacking(
            "ring waits",
            "for a time (EXT_ARG)",
            "a tick is late by what passes between reading the clock and waiting",
        )
        .remedy("use Linux 6.12 or later"),
        Err(_) => Row::lacking("ring waits", "without a time-out", "one more entry a tick")
            .remedy("use Linux 5.11 or later, better 6.12"),
    }
}

fn registered_row(ring: &Ring) -> Row {
    match &ring.registered_bytes {
        // Little of it is the fault of lockable memory, which has a row of its own.
        Ok(bytes) => Row::good("registered memory", at_least(*bytes)),
        Err(refused) => {
            Row::lacking("registered memory", refused.to_string(), NO_RING).remedy(LOCK)
        }
    }
}

fn udp_rows(facts: &Facts) -> [Row; 2] {
    let udp = &facts.udp;
    let train = match &udp.train {
        Ok(()) => Row::good(
            "UDP_SEGMENT",
            format!("trains of up to {} packets", udp.train_segments_max),
        ),
        Err(refused) => Row::lacking(
            "UDP_SEGMENT",
            refused.to_string(),
            "each packet passes through the kernel's network stack alone: about 40 times the CPU",
        )
        .remedy("use Linux 4.18 or later, outside a sandbox such as gVisor"),
    };
    let many = match &udp.sendmmsg {
        Ok(()) => Row::good("sendmmsg", "works"),
        Err(refused) => Row::lacking("sendmmsg", refused.to_string(), "one system call a packet"),
    };
    [train, many]
}

/// Without it films over HTTPS are read and encrypted by the server.
fn kernel_tls_row(facts: &Facts) -> Row {
    match &facts.kernel_tls {
        Ok(ciphers) => Row::good("kernel TLS", list_of(ciphers)),
        Err(refused) => Row::note(
            "kernel TLS",
            format!("none ({refused}; modprobe tls); the server encrypts HTTPS by itself"),
        ),
    }
}

fn list_of(ciphers: &[Cipher]) -> String {
    let names: Vec<_> = ciphers.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn memory_rows(facts: &Facts) -> Vec<Row> {
    let memory = &facts.memory;
    let lockable = match memory.lockable_bytes {
        u64::MAX => Row::good("lockable memory", "any amount"),
        bytes if bytes >= Config::default().cache_bytes as u64 => {
            Row::good("lockable memory", Size(bytes).to_string())
        }
        bytes => Row::lacking(
            "lockable memory",
            format!("{} (ulimit -l)", Size(bytes)),
            SMALL_CACHE,
        )
        .remedy(LOCK),
    };
    let mlock = match &memory.mlock_bytes {
        Ok(bytes) => Row::good("mlock", at_least(*bytes)),
        Err(refused) => Row::lacking("mlock", refused.to_string(), SMALL_CACHE).remedy("as above"),
    };
    let (free, all) = (memory.huge_reserved_free, memory.huge_reserved);
    let has = format!(
        "transparent: {}, reserved: {free} of {all} free",
        memory.huge_transparent
    );
    let huge = match &memory.pages {
        Ok(Pages::HugeReserved) => Row::good("huge pages", format!("got a reserved one ({has})")),
        Ok(Pages::HugeTransparent) => {
            Row::good("huge pages", format!("got a transparent one ({has})"))
        }
        Ok(Pages::Base) => {
            Row::lacking("huge pages", format!("got none ({has})"), SMALL_PAGES).remedy(ENABLE_HUGE)
        }
        Err(refused) => Row::lacking("huge pages", refused.to_string(), SMALL_PAGES),
    };
    vec![
        lockable,
        control_group_row(memory.control_group_bytes),
        mlock,
        pins_row(facts),
        held_row(&memory.holders),
        huge,
        buffers_row(facts),
    ]
}

/// What a container or a unit may have, of which the server leaves a quarter to others.
fn control_group_row(left: Option<u64>) -> Row {
    const NAME: &str = "control group";
    match left {
        None => Row::good(NAME, "no limit of memory"),
        Some(bytes) if bytes / 4 * 3 >= Config::default().cache_bytes as u64 => {
            Row::good(NAME, format!("leaves {}", Size(bytes)))
        }
        Some(bytes) => Row::lacking(
            NAME,
            format!("leaves {} of memory", Size(bytes)),
            SMALL_CACHE,
        )
        .remedy("raise memory.max, or memory.high if less (MemoryMax=, MemoryHigh=, --memory)"),
    }
}

/// Whether several rings account for the cache once.
fn pins_row(facts: &Facts) -> Row {
    if facts.ring.is_err() {
        return Row::note("pins", "none: there is no ring");
    }
    if facts.memory.rings_share_pins {
        return Row::good("pins", "rings share one (CLONE_BUFFERS)");
    }
    let means =
        "the cache counts against the limit of locked memory once for each processor that sends";
    Row {
        means,
        remedy: "use Linux 6.13 or later".to_owned(),
        ..Row::note("pins", "each ring makes its own")
    }
}

/// What is locked at the moment, and by whom.
fn held_row(holders: &[Holder]) -> Row {
    const SHOWN_MAX: usize = 3;
    // What was tried just now may still be on its way back.
    let others = holders.iter().filter(|h| h.pid != std::process::id());
    let holders: Vec<_> = others.collect();
    if holders.is_empty() {
        return Row::note("locked now", "nothing");
    }
    let shown = holders.iter().take(SHOWN_MAX).map(|holder| {
        let Holder { pid, name, .. } = holder;
        let (resident, pinned) = (Size(holder.resident_bytes), Size(holder.pinned_bytes));
        format!("{name} ({pid}): {resident} resident, {pinned} pinned")
    });
    let mut shown: Vec<_> = shown.collect();
    if holders.len() > SHOWN_MAX {
        shown.push(format!("and {} more processes", holders.len() - SHOWN_MAX));
    }
    Row::note("locked now", shown.join("; "))
}

fn buffers_row(facts: &Facts) -> Row {
    let value = |name| {
        facts
            .host
            .sysctl(name)
            .map_or_else(|| "unknown".into(), |bytes| Size(bytes).to_string())
    };
    let found = format!(
        "net.core.wmem_max {}, net.core.optmem_max {}",
        value("net.core.wmem_max"),
        value("net.core.optmem_max"),
    );
    Row::note("socket buffers", found)
}

fn direct_read_row(facts: &Facts) -> Option<Row> {
    Some(match facts.direct_read.as_ref()? {
        Ok(()) => Row::good("O_DIRECT", "files are read past the page cache"),
        Err(refused) => Row::lacking(
            "O_DIRECT",
            refused.to_string(),
            "cold files pass through the page cache: one copy more",
        )
        .remedy("keep media on ext4, xfs or btrfs"),
    })
}

fn interface_row(interface: &Interface) -> Row {
    let on = |feature: Option<bool>| match feature {
        Some(true) => "on",
        Some(false) => "off",
        None => "unknown",
    };
    let cut = match interface.udp_segmentation {
        Some(true) => "on (uso)",
        Some(false) => "off (software-gso)",
        None => "unknown",
    };
    let found = format!(
        "scatter-gather {}, tx checksum {}, udp segmentation {cut}, qdisc {}",
        on(interface.scatter_gather),
        on(interface.checksum),
        match interface.qdiscs.is_empty() {
            true => "unknown".to_owned(),
            false => interface.qdiscs.join("+"),
        },
    );
    let what = format!("nic {}", interface.name);
    let copies = [interface.scatter_gather, interface.checksum].contains(&Some(false));
    match (copies, interface.udp_segmentation) {
        (true, _) => Row::lacking(
            what,
            found,
            "the kernel copies every packet after all, and sums it on the CPU",
        )
        .remedy(format!("ethtool -K {} sg on tx on", interface.name)),
        (false, Some(false)) => Row {
            means: "the kernel cuts trains in software: about 15 times the CPU per packet",
            remedy: format!(
                "ethtool -K {} tx-udp-segmentation on, where the hardware can",
                interface.name
            ),
            ..Row::note(what, found)
        },
        _ => Row::good(what, found),
    }
}

fn testbed_row(facts: &Facts) -> Row {
    let rights = [
        ("CAP_NET_ADMIN", Capability::NetAdmin),
        ("CAP_SYS_ADMIN", Capability::SysAdmin),
    ];
    let missing = rights
        .iter()
        .filter(|right| !facts.host.capabilities.contains(&right.1))
        .map(|right| right.0);
    let mut missing: Vec<_> = missing.map(str::to_owned).collect();
    missing.extend(facts.host.bpf.as_ref().err().map(ToString::to_string));
    if missing.is_empty() {
        return Row::good("test bed", "namespaces and eBPF programs are allowed");
    }
    Row {
        means: "measurements and namespace tests cannot run; serving needs none of it",
        remedy: "run those as root".to_owned(),
        ..Row::note("test bed", format!("lacks {}", missing.join(", ")))
    }
}

impl Row {
    fn new(what: impl Into<String>, state: State, found: impl Into<String>) -> Self {
        let (what, found) = (what.into(), found.into());
        Self {
            what,
            state,
            found,
            means: "",
            remedy: String::new(),
        }
    }

    pub(super) fn good(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(what, State::Good, found)
    }

    pub(super) fn note(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(what, State::Note, found)
    }

    pub(super) fn lacking(
        what: impl Into<String>,
        found: impl Into<String>,
        means: &'static str,
    ) -> Self {
        Self {
            means,
            ..Self::new(what, State::Lacking, found)
        }
    }

    pub(super) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: remedy.into(),
            ..self
        }
    }
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Lacking => "lacks",
        }
    }
}

fn at_least(bytes: usize) -> String {
    format!("{} or more", Size(bytes as u64))
}

const NO_RING: &str = "packets are copied and the kernel is entered more often: about 6 times the \
                       CPU per packet";
const SMALL_CACHE: &str = "the packet cache cannot be larger than this: fewer files at once, more \
                           reading";
const SMALL_PAGES: &str = "a train is many pieces instead of one or two: more work for each send";
const ENABLE_HUGE: &str = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, or sysctl \
                           vm.nr_hugepages=512 for a cache of 1GiB";
const LOCK: &str = "ulimit -l unlimited in the shell, LimitMEMLOCK=infinity in a systemd unit, or \
                    CAP_IPC_LOCK, which counts outside of user namespaces";
const SEE_OTHER_ROWS: &str = "see the rows UDP_SEGMENT and registered memory";

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn refused(call: &'static str, errno: i32) -> Refused {
        Refused {
            call,
            source: io::Error::from_raw_os_error(errno),
        }
    }

    fn row<'a>(rows: &'a [Row], what: &str) -> &'a Row {
        rows.iter()
            .find(|row| row.what == what)
            .expect("there is such a row")
    }

    #[test]
    fn a_ring_that_is_refused_is_traced_to_who_refused_it() {
        let mut facts = Facts::gather(None);
        let mut remedy = |errno, disabled, filtered| {
            facts.host.sysctls = vec![("kernel.io_uring_disabled", disabled)];
            facts.host.seccomp_filtered = filtered;
            ring_remedy(&facts, &refused("io_uring_setup", errno))
        };
        assert!(remedy(libc::EPERM, Some(2), true).starts_with("sysctl"));
        assert!(remedy(libc::EPERM, Some(0), true).starts_with("a seccomp filter"));
        assert!(remedy(libc::EPERM, Some(0), false).starts_with("a security module"));
        assert!(remedy(libc::ENOSYS, None, true).starts_with("a seccomp filter"));
        assert!(remedy(libc::ENOSYS, None, false).starts_with("use a kernel"));
        assert!(remedy(libc::ENOMEM, Some(0), false).contains("ulimit -l"));
    }

    #[test]
    fn whatever_lacks_says_what_it_means() {
        let mut facts = Facts::gather(None);
        facts.ring = Err(refused("io_uring_setup", libc::ENOSYS));
        facts.udp.train = Err(refused("setsockopt(UDP_SEGMENT)", libc::ENOPROTOOPT));
        facts.udp.sendmmsg = Err(refused("sendmmsg", libc::ENOSYS));
        facts.memory.mlock_bytes = Err(refused("mlock", libc::EPERM));
        facts.memory.pages = Ok(Pages::Base);
        facts.direct_read = Some(Err(refused("open(O_DIRECT)", libc::EINVAL)));
        let rows = rows(&facts);
        let lacking: Vec<_> = rows
            .iter()
            .filter(|row| row.state == State::Lacking)
            .collect();
        for what in [
            "io_uring",
            "UDP_SEGMENT",
            "sendmmsg",
            "mlock",
            "huge pages",
            "O_DIRECT",
        ] {
            assert!(lacking.iter().any(|row| row.what == what), "{what}");
        }
        assert!(lacking.iter().all(|row| !row.means.is_empty()));
        let pins = rows.iter().find(|row| row.what == "pins").unwrap();
        assert!(pins.found.starts_with("none"), "{}", pins.found);
    }

    #[test]
    fn an_interface_is_judged_by_what_it_leaves_to_the_processor() {
        let interface = Interface {
            name: "eth7".into(),
            index: 7,
            up: true,
            scatter_gather: Some(true),
            checksum: Some(true),
            udp_segmentation: Some(true),
            qdiscs: vec!["mq".into(), "fq".into()],
        };
        assert_eq!(interface_row(&interface).state, State::Good);
        assert!(interface_row(&interface).found.ends_with("qdisc mq+fq"));
        let software = Interface {
            udp_segmentation: Some(false),
            ..interface.clone()
        };
        assert_eq!(interface_row(&software).state, State::Note);
        assert!(interface_row(&software).found.contains("software-gso"));
        let copying = Interface {
            scatter_gather: Some(false),
            ..interface
        };
        assert_eq!(interface_row(&copying).state, State::Lacking);
        assert_eq!(
            interface_row(&copying).remedy,
            "ethtool -K eth7 sg on tx on"
        );
    }

    #[test]
    fn a_small_control_group_is_a_small_cache() {
        let mut facts = Facts::gather(None);
        for (left, state) in [
            (None, State::Good),
            (Some(300 << 20), State::Lacking),
            (Some(2 << 30), State::Good),
        ] {
            facts.memory.control_group_bytes = left;
            assert_eq!(row(&rows(&facts), "control group").state, state, "{left:?}");
        }
    }

    #[test]
    fn little_lockable_memory_is_a_small_cache() {
        let mut facts = Facts::gather(None);
        facts.memory.lockable_bytes = 8 << 20;
        assert_eq!(
            row(&rows(&facts), "lockable memory").found,
            "8MiB (ulimit -l)"
        );
        assert_eq!(row(&rows(&facts), "lockable memory").state, State::Lacking);
        facts.memory.lockable_bytes = 1 << 30;
        assert_eq!(row(&rows(&facts), "lockable memory").state, State::Good);
        facts.memory.lockable_bytes = u64::MAX;
        assert_eq!(row(&rows(&facts), "lockable memory").found, "any amount");
    }

    #[test]
    fn what_is_locked_is_told_with_its_holder() {
        let holder = |pid| Holder {
            pid,
            name: "onrush".into(),
            resident_bytes: 4096,
            pinned_bytes: 1 << 30,
        };
        assert_eq!(held_row(&[]).found, "nothing");
        assert_eq!(
            held_row(&[holder(7)]).found,
            "onrush (7): 4KiB resident, 1GiB pinned"
        );
        let many = held_row(&[1, 2, 3, 4, 5].map(holder)).found;
        assert!(many.ends_with("; and 2 more processes"), "{many}");
    }
}
