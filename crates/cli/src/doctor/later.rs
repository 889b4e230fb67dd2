//! What kernels of the last years have added that the data path works without, at a price.

use std::io;

use onrush_sys::path::Vectored;
use onrush_sys::probe::Facts;

use super::rows::Row;

pub(super) fn rows(facts: &Facts, vectored: Vectored) -> Vec<Row> {
    let mut rows = Vec::new();
    // Without a ring its own row says it all.
    if let Ok(ring) = &facts.ring {
        rows.extend([own_headers_row(vectored), sockets_row(ring.keeps_sockets)]);
    }
    rows.push(groups_row(
        facts.host.tcx.as_ref().err().map(|it| &it.source),
    ));
    rows
}

/// How packets leave whose headers are a client's own.
fn own_headers_row(vectored: Vectored) -> Row {
    match vectored {
        Vectored::ZeroCopy => Row::good("own headers", "by reference (SENDMSG_ZC)"),
        Vectored::Copied => Row::lacking(
            "own headers",
            "gathered with a copy (SENDMSG)",
            "after a jump, and over TCP, each packet is copied once",
        )
        .remedy("use Linux 6.15 or later"),
    }
}

/// Where the sockets of sessions are.
fn sockets_row(keeps_sockets: bool) -> Row {
    if keeps_sockets {
        return Row::good("session sockets", "in the ring's table");
    }
    Row {
        means: "a viewer takes a descriptor (ulimit -n), and each send looks it up",
        remedy: "use Linux 6.8 or later".to_owned(),
        ..Row::note("session sockets", "as descriptors")
    }
}

/// Whether the kernel replicates for groups.
fn groups_row(refused: Option<&io::Error>) -> Row {
    const NAME: &str = "group programs";
    let Some(refused) = refused else {
        return Row::good(NAME, "can be attached to devices (tcx)");
    };
    let remedy = match refused.raw_os_error() {
        Some(libc::EPERM) => "run it as root, or with CAP_BPF and CAP_NET_ADMIN",
        _ => "use Linux 6.6 or later",
    };
    Row {
        means: "groups are sent to by io_uring or sendmmsg: about 3 times the CPU for each \
                member; relay --in-kernel and group serve cannot run",
        remedy: remedy.to_owned(),
        ..Row::note(NAME, format!("no tcx ({refused})"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::State;
    use super::*;

    #[test]
    fn what_older_kernels_lack_has_its_price_and_its_version() {
        let row = own_headers_row(Vectored::Copied);
        assert_eq!(row.state, State::Lacking);
        assert!(row.means.contains("copied once") && row.remedy.contains("6.15"));
        let row = sockets_row(false);
        assert!(row.means.contains("ulimit -n") && row.remedy.contains("6.8"));
        let refused = |errno| groups_row(Some(&io::Error::from_raw_os_error(errno)));
        assert!(refused(libc::EINVAL).remedy.contains("6.6"));
        assert!(refused(libc::EPERM).remedy.contains("CAP_NET_ADMIN"));
        assert!(refused(libc::EINVAL).means.contains("3 times"));
    }

    #[test]
    fn what_nothing_lacks_costs_nothing() {
        for row in [
            own_headers_row(Vectored::ZeroCopy),
            sockets_row(true),
            groups_row(None),
        ] {
            assert_eq!((row.state, row.means), (State::Good, ""), "{}", row.what);
        }
    }
}
