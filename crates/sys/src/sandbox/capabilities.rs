//! Capabilities (capabilities(7)): those that are not needed go, from every set.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
};

/// More than any kernel has numbers for.
const NUMBERS: u32 = 64;

/// Keeps those of `kept` that this thread has, and no others; says which those are.
///
/// # Errors
///
/// The system's, or that something is left that should not be.
pub(super) fn keep(kept: CapabilitySet) -> io::Result<String> {
    let had = capabilities(None)?;
    // Without the right to, nobody can shrink the bounding set. It matters little then: what it
    // lets a program that is executed gain, no_new_privs takes.
    if had.effective.contains(CapabilitySet::SETPCAP) {
        for one in (0..NUMBERS).map(|number| CapabilitySet::from_bits_retain(1 << number)) {
            // An error is a number that this kernel does not know.
            if !kept.contains(one) && capability_is_in_bounding_set(one).unwrap_or(false) {
                remove_capability_from_bounding_set(one)?;
            }
        }
    }
    // Before Linux 4.3 there are none. They go with the inheritable ones, too.
    clear_ambient_capability_set().or_else(|error| match error {
        rustix::io::Errno::INVAL => Ok(()),
        other => Err(other),
    })?;
    let sets = CapabilitySets {
        effective: had.effective & kept,
        permitted: had.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    // A service manager's filter of system calls may refuse what would change nothing.
    if sets != had {
        set_capabilities(None, sets)?;
    }
    let has = capabilities(None)?;
    if !kept.contains(has.permitted | has.effective | has.inheritable) {
        return Err(io::Error::other("capabilities are left that were dropped"));
    }
    Ok(names(has.effective))
}

/// As in `NET_ADMIN IPC_LOCK`; `none` of the empty set.
#[must_use]
pub fn names(set: CapabilitySet) -> String {
    let names: Vec<_> = set.iter_names().map(|(name, _)| name).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_told_by_name() {
        assert_eq!(names(CapabilitySet::empty()), "none");
        let two = CapabilitySet::NET_ADMIN | CapabilitySet::IPC_LOCK;
        assert_eq!(names(two), "NET_ADMIN IPC_LOCK");
    }
}
