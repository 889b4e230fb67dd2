//! Ports for programs that are told which to take.
//!
//! A port that the kernel chose and that is let go again may be chosen for anybody else before the
//! program has it. Those here lie below what the kernel chooses from, and processes begin at
//! different ones.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// A port of 127.0.0.1 that no socket of UDP has.
///
/// # Panics
///
/// If all are taken.
#[must_use]
pub fn free_udp_port() -> u16 {
    free_port(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
}

/// A port of 127.0.0.1 that nobody listens at.
///
/// # Panics
///
/// If all are taken.
#[must_use]
pub fn free_tcp_port() -> u16 {
    free_port(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
}

fn free_port(is_free: impl Fn(u16) -> bool) -> u16 {
    // None is given twice in a process before all were.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_EACH);
    let mut ports = (0..PORTS).map(|_| {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        PORT_MIN + u16::try_from(number % PORTS).expect("fewer than there are")
    });
    ports.find(|&port| is_free(port)).expect("a free port")
}

/// Below them are those of servers that choose their own, above them those of RTP and what the
/// kernel chooses (`net.ipv4.ip_local_port_range`).
const PORT_MIN: u16 = 10_000;
const PORTS: u32 = 10_000;
/// Two processes whose numbers follow each other take as many before they meet.
const PORTS_EACH: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_or_chosen_by_the_kernel() {
        let (udp, tcp) = (free_udp_port(), free_tcp_port());
        let held = UdpSocket::bind((Ipv4Addr::LOCALHOST, udp)).unwrap();
        let other = free_udp_port();
        assert!(udp != tcp && other != udp && other != tcp);
        let range = chosen_by_the_kernel();
        assert!([udp, tcp, other].iter().all(|port| !range.contains(port)));
        drop(held);
    }

    fn chosen_by_the_kernel() -> std::ops::RangeInclusive<u16> {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let mut ends = text.split_whitespace().map(|end| end.parse().unwrap());
        ends.next().unwrap()..=ends.next().unwrap()
    }
}
