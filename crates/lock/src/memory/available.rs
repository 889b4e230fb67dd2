//! How much memory there is to be had: of the machine, and of the control groups of this process.
//!
//! A container's or a service's limit (`memory.max` of cgroups(7), `MemoryMax=` of a systemd unit)
//! is no part of `/proc/meminfo`. Who touches more than it leaves is ended by the out-of-memory
//! killer, and pages that are locked or pinned cannot be taken back instead. Beyond `memory.high`
//! (`MemoryHigh=`) nobody is ended, but whoever allocates is held up to take back what there is,
//! and of locked pages there is nothing, so that it is held up as long as it has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// How much memory can be had without swapping: [`machine_bytes`], and no more than
/// [`control_group_bytes`].
#[must_use]
pub fn available_bytes() -> u64 {
    machine_bytes().min(control_group_bytes().unwrap_or(u64::MAX))
}

/// How much memory the machine has without swapping: MemAvailable of `/proc/meminfo`, or no limit
/// if unknown.
#[must_use]
pub fn machine_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = meminfo.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.trim();
        kib.strip_suffix(" kB")?.parse::<u64>().ok()
    });
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

/// How much more memory the control groups of this process let it have: of each group that has a
/// limit, what it has not used, and what it holds of files, which the kernel gives up first. `None`
/// if none has a limit, or none can be read. The groups are those that the process was in when this
/// was asked for the first time.
#[must_use]
pub fn control_group_bytes() -> Option<u64> {
    // It is asked for each piece of memory that grows, and finding the groups takes many reads.
    static HIERARCHIES: LazyLock<Vec<Hierarchy>> = LazyLock::new(|| {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        hierarchies(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
    });
    let left = HIERARCHIES.iter().flat_map(|it| {
        let groups = it
            .group
            .ancestors()
            .take_while(|group| group.starts_with(&it.mount));
        groups.filter_map(|group| it.version.left(group)).min()
    });
    left.min()
}

/// A hierarchy of control groups that counts memory.
#[derive(Debug, Eq, PartialEq)]
struct Hierarchy {
    version: Version,
    /// The folder it is mounted at: the topmost group that is seen.
    mount: PathBuf,
    /// The folder of the process's group.
    group: PathBuf,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Version {
    /// The controller "memory" of cgroup v1.
    One,
    /// Cgroup v2.
    Two,
}

impl Version {
    /// What the limit of this group leaves; `None` if it has none.
    fn left(self, group: &Path) -> Option<u64> {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let (limits, used, files) = match self {
            Self::One => (
                &["memory.limit_in_bytes"][..],
                "memory.usage_in_bytes",
                ["total_inactive_file ", "total_active_file "],
            ),
            Self::Two => (
                &["memory.max", "memory.high"][..],
                "memory.current",
                ["inactive_file ", "active_file "],
            ),
        };
        // "max" is no number. The root of v2 has no such files.
        let limit = limits.iter().filter_map(|limit| number(limit)).min();
        let limit = limit.filter(|&limit| limit < V1_UNLIMITED_BYTES)?;
        let used = number(used)?;
        let stat = read("memory.stat").unwrap_or_default();
        let of = |name: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|bytes| bytes.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let files = files.map(of).iter().sum::<u64>();
        Some(limit.saturating_sub(used.saturating_sub(files)))
    }
}

/// What v1 says at least of a group without a limit: PAGE_COUNTER_MAX in whole pages, of 64 KiB at
/// the most (include/linux/page_counter.h).
const V1_UNLIMITED_BYTES: u64 = (i64::MAX as u64) & !0xffff;

/// The hierarchies that `/proc/PID/cgroup` and `/proc/PID/mountinfo` tell of (cgroups(7), proc(5)).
/// One that is mounted at a place with a space in its name is passed over.
fn hierarchies(groups: &str, mounts: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for mount in mounts.lines() {
        let Some((place, system)) = mount.split_once(" - ") else {
            continue;
        };
        let mut place = place.split(' ').skip(3);
        let mut system = system.split(' ');
        let (Some(root), Some(at)) = (place.next(), place.next()) else {
            continue;
        };
        let version = match system.next() {
            Some("cgroup2") => Version::Two,
            Some("cgroup") if system.any(|options| options.split(',').any(|it| it == "memory")) => {
                Version::One
            }
            _ => continue,
        };
        // "0::/path" of v2, "4:memory:/path" or "4:memory,hugetlb:/path" of v1.
        let of_group = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let is_it = match version {
                Version::One => controllers.split(',').any(|it| it == "memory"),
                Version::Two => controllers.is_empty(),
            };
            is_it.then_some(path)
        });
        let Some(path) = of_group else { continue };
        // A container sees its own group as the root of what is mounted, or, without a namespace of
        // groups, under the path that the host knows it by.
        let below = Path::new(path)
            .strip_prefix(root)
            .unwrap_or_else(|_| Path::new(""));
        let below = match below.components().any(|it| it.as_os_str() == "..") {
            true => Path::new(""),
            false => below,
        };
        let mount = PathBuf::from(at);
        found.push(Hierarchy {
            version,
            group: mount.join(below),
            mount,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const V2: &str =
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn found(groups: &str, mounts: &str) -> Vec<(Version, PathBuf)> {
        let found = hierarchies(groups, mounts).into_iter();
        found.map(|it| (it.version, it.group)).collect()
    }

    #[test]
    fn the_group_is_found_under_its_mount() {
        let v2 = |path: &str| vec![(Version::Two, path.into())];
        assert_eq!(
            found("0::/system.slice/onrush.service\n", V2),
            v2("/sys/fs/cgroup/system.slice/onrush.service")
        );
        assert_eq!(found("0::/\n", V2), v2("/sys/fs/cgroup/"));
        // A process outside of the namespace's root.
        assert_eq!(found("0::/../../other\n", V2), v2("/sys/fs/cgroup/"));
        assert_eq!(
            found("9:name=systemd:/\n4:memory:/a/b\n1:cpu:/c\n0::/\n", V1),
            [
                (Version::One, "/sys/fs/cgroup/memory/a/b".into()),
                (Version::Two, "/sys/fs/cgroup/unified/".into()),
            ]
        );
        // Without a namespace of groups, a container mounts its own group as the root.
        let bound = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(
            found("4:memory:/docker/abc/inner\n", bound),
            [(Version::One, "/sys/fs/cgroup/memory/inner".into())]
        );
        assert_eq!(found("4:cpu:/a\n", V1), []);
        assert_eq!(found("", "nonsense\n1 2 - cgroup2\n"), []);
    }

    #[test]
    fn what_a_group_leaves_has_its_files_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let group = folder.path();
        let write = |name: &str, text: &str| fs::write(group.join(name), text).expect("a file");
        assert_eq!(Version::Two.left(group), None);
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        assert_eq!(Version::Two.left(group), None);
        write("memory.max", "1000\n");
        assert_eq!(Version::Two.left(group), Some(300));
        write(
            "memory.stat",
            "anon 400\ninactive_file 150\nactive_file 50\nfile 900\n",
        );
        assert_eq!(Version::Two.left(group), Some(500));
        write("memory.max", "400\n");
        assert_eq!(Version::Two.left(group), Some(0));
        // The lesser of two limits, and one alone.
        write("memory.max", "1000\n");
        for (high, left) in [("max\n", 500), ("900\n", 400), ("2000\n", 500)] {
            write("memory.high", high);
            assert_eq!(Version::Two.left(group), Some(left), "{high}");
        }
        write("memory.max", "max\n");
        assert_eq!(Version::Two.left(group), Some(1500));

        write("memory.limit_in_bytes", "1000\n");
        write("memory.usage_in_bytes", "700\n");
        write(
            "memory.stat",
            "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 50\n",
        );
        assert_eq!(Version::One.left(group), Some(550));
        // What a machine with pages of 4 KiB says where there is no limit.
        write("memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(Version::One.left(group), None);
    }
}
