//! Which path to take: the cheapest that this kernel, this device and this account have, and why.
//!
//! The order is that of the measurements (docs/paths.md). Each path before the one chosen is named
//! with what stands against it, found by opening it on a few packets.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use super::{Mover, Name, Payload, Plan, Source, kernel};

/// What a sender needs beyond the plan.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Needs {
    /// Each client has headers of its own (SSRC, sequence numbers): nothing can be shared among
    /// clients.
    pub own_headers: bool,
    /// The device cannot send memory in pieces, or not sum it: what should go by reference would be
    /// copied without a word.
    pub copying_device: bool,
}

/// A path, and why this one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// The path.
    pub name: Name,
    /// Why, for people.
    pub reason: String,
    /// Better ones, and what stands against each.
    pub passed_over: Vec<(Name, String)>,
}

/// UDP, headers shared by all clients of the file.
const SHARED: [Name; 5] = [
    Name::Krtpsendfile,
    Name::GsoZerocopy,
    Name::SendmmsgGso,
    Name::Sendmmsg,
    Name::Sendto,
];

/// UDP, headers of each client's own.
const OWN: [Name; 5] = [
    Name::UringVectoredZc,
    Name::Gso,
    Name::MmapRtpmsend,
    Name::Krtpmsend,
    Name::MmapWritev,
];

/// UDP, no headers.
const DOWNLOAD: [Name; 4] = [Name::Ksendfile, Name::Kmsend, Name::Gso, Name::MmapSend];

/// TCP.
const STREAM: [Name; 3] = [Name::SendfileTcp, Name::MmapSend, Name::ReadWrite];

/// Chooses a path for packets of `plan` over `socket`, by what there is here.
///
/// ```
/// use std::net::UdpSocket;
/// use onrush_paths::{Name, Needs, Plan, best};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = Plan::regular(13_160, 1316)?.with_headers(12, vec![0; 120])?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// let needs = Needs { own_headers: true, ..Needs::default() };
/// let choice = best(&plan, &socket, needs);
/// assert!(!choice.name.facts().is_image);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn best(plan: &Plan, socket: &impl AsFd, needs: Needs) -> Choice {
    let is_tcp = kernel::is_stream(socket.as_fd().as_raw_fd());
    let candidates: &[Name] = match (is_tcp, plan.header_bytes() > 0, needs.own_headers) {
        (true, ..) => &STREAM,
        (false, false, _) => &DOWNLOAD,
        (false, true, true) => &OWN,
        (false, true, false) => &SHARED,
    };
    let mut passed_over = Vec::new();
    for &name in candidates {
        match against(name, plan, needs) {
            None => {
                let facts = name.facts();
                let reason = format!("{}; copies: {}", facts.mechanism, facts.copies);
                return Choice {
                    name,
                    reason,
                    passed_over,
                };
            }
            Some(why) => passed_over.push((name, why)),
        }
    }
    // What needs nothing is last in each list; only a plan that no path takes comes here.
    let name = candidates[candidates.len() - 1];
    Choice {
        name,
        reason: "nothing else is available".to_owned(),
        passed_over,
    }
}

/// What stands against a path, found by trying it.
fn against(name: Name, plan: &Plan, needs: Needs) -> Option<String> {
    if needs.copying_device && name.takes_udp() && name.facts().payload != Payload::Copied {
        return Some(
            "the device cannot send without copying (tx-scatter-gather, tx-checksum)".to_owned(),
        );
    }
    let bytes = u32::try_from(plan.packet_bytes_max() - plan.header_bytes()).ok()?;
    let few = Plan::regular(u64::from(bytes) * 2, bytes.max(1)).ok()?;
    let few = match plan.header_bytes() {
        0 => few,
        header_bytes => few
            .with_headers(header_bytes, vec![0; header_bytes * 2])
            .ok()?,
    };
    // Any file: it is opened, never read.
    let file = std::fs::File::open("/dev/null").ok()?;
    let source = Arc::new(Source { file, plan: few });
    Mover::open(name, &source, 1 << 20)
        .err()
        .map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use onrush_sys::path::PathName;

    use super::*;

    /// What the server opens by itself ([`PathName::ALL`]) and what is advised here is one order.
    #[test]
    fn the_server_prefers_what_is_advised() {
        let advised: Vec<_> = SHARED.into_iter().filter_map(Name::engine).collect();
        assert_eq!(advised, PathName::ALL);
    }

    #[test]
    fn the_choice_follows_the_needs_and_says_why_not_better() {
        let plain = Plan::regular(4000, 1000).expect("a plan");
        let headed = plain.clone().with_headers(12, vec![0; 48]).expect("four");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let name = |plan, needs| best(plan, &socket, needs).name;
        let own = Needs {
            own_headers: true,
            ..Needs::default()
        };
        assert_eq!(name(&headed, Needs::default()), Name::Krtpsendfile);
        assert_eq!(name(&headed, own), Name::UringVectoredZc);
        assert_eq!(name(&plain, Needs::default()), Name::Ksendfile);
        let copying = Needs {
            copying_device: true,
            ..Needs::default()
        };
        let choice = best(&headed, &socket, copying);
        assert_eq!(choice.name, Name::SendmmsgGso);
        assert_eq!(choice.passed_over.len(), 2);
        assert!(choice.passed_over[0].1.contains("tx-scatter-gather"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
        assert_eq!(best(&plain, &stream, copying).name, Name::SendfileTcp);
    }
}
