//! What `onrush serve --sandbox` can give up on this kernel, and what servers that run here have.

use std::fs;

use onrush_sys::probe::Facts;
use onrush_sys::sandbox::{CapabilitySet, capability_names, landlock_version};

use super::rows::Row;

/// Servers that get a row.
const SERVERS_SHOWN_MAX: usize = 3;

/// A row for the kernel, and one for each server that holds memory here.
pub(super) fn rows(facts: &Facts) -> Vec<Row> {
    let kernel = match landlock_version() {
        Some(version) => Row::good(
            "sandbox",
            format!("Landlock {version}; seccomp: a server opens no files but its own"),
        ),
        None => Row {
            means: "a server that is taken over reads all files of its account",
            remedy: "use Linux 5.13 or later, with landlock among its security modules (lsm=)"
                .to_owned(),
            ..Row::note("sandbox", "no Landlock; the rest of --sandbox works")
        },
    };
    let holders = facts.memory.holders.iter().filter(|it| it.name == "onrush");
    let others = holders.filter(|it| it.pid != std::process::id());
    let servers = others.filter_map(|it| {
        let status = fs::read_to_string(format!("/proc/{}/status", it.pid)).ok()?;
        Some(Row::note(format!("server {}", it.pid), held(&status)?))
    });
    std::iter::once(kernel)
        .chain(servers.take(SERVERS_SHOWN_MAX))
        .collect()
}

/// What a process has, from its `status` of proc(5).
fn held(status: &str) -> Option<String> {
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim)
    };
    let capabilities = u64::from_str_radix(value("CapEff:")?, 16).ok()?;
    let capabilities = capability_names(CapabilitySet::from_bits_retain(capabilities));
    let new = match value("NoNewPrivs:")? {
        "0" => "may get new privileges",
        _ => "gets no new privileges",
    };
    let calls = match value("Seccomp:")? {
        "2" => "system calls are filtered",
        _ => "all system calls",
    };
    Some(format!("capabilities: {capabilities}; {new}; {calls}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_rights_are_told_from_its_status() {
        let status = |capabilities: &str, new: u8, calls: u8| {
            format!(
                "Name:\tonrush\nCapEff:\t{capabilities}\nNoNewPrivs:\t{new}\nSeccomp:\t{calls}\n"
            )
        };
        assert_eq!(
            held(&status("0000000000005000", 1, 2)).unwrap(),
            "capabilities: NET_ADMIN IPC_LOCK; gets no new privileges; system calls are filtered"
        );
        assert_eq!(
            held(&status("0000000000000000", 0, 0)).unwrap(),
            "capabilities: none; may get new privileges; all system calls"
        );
        assert_eq!(held("Name:\tonrush\n"), None);
    }
}
