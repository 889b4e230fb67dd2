//! Network: round trips, bandwidth over message size, connections; over loopback, between two
//! namespaces, and to a remote if one is named.
//!
//! Both ends are on the measuring processor: then a round trip is work, not waiting for another
//! processor to wake up, and it is the same each time. The remote's processor is its own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use onrush_testkit::netns::Netns;
use onrush_testkit::testbed::{Options, RCV_IPV4, Testbed};
use socket2::{Domain, Protocol, Socket, Type};

use super::Found;
use super::WAIT_MAX;
use super::http::Served;
use super::method::{Method, six_digits};
use super::peer::{self, Ask, Peer, Running};
use crate::stats::{median, ratio, to_f64};

/// What is kept from round to round.
#[derive(Debug, Default)]
pub(super) struct Kept {
    is_ready: bool,
    targets: Vec<Target>,
    served: Option<Served>,
    /// After the peers, which run in it.
    testbed: Option<Testbed>,
}

/// Somewhere to measure to.
#[derive(Debug)]
struct Target {
    name: &'static str,
    peer: SocketAddr,
    /// Where our own end is.
    from: Option<Netns>,
    /// The peer, if it is ours. It stops in its namespace.
    running: Option<Running>,
    /// Its namespace.
    home: Option<Netns>,
}

impl Drop for Target {
    fn drop(&mut self) {
        let running = self.running.take();
        let _entered = self.home.as_ref().and_then(|home| home.enter().ok());
        drop(running);
    }
}

/// The paper's payload: what `ping` sends unless told otherwise.
const PAYLOAD_BYTES: usize = 56;

/// One round of all.
pub(super) fn measure(method: &Method, found: &mut Found, kept: &mut Kept) {
    if !kept.is_ready {
        kept.is_ready = true;
        prepare(method, found, kept);
    }
    for target in &kept.targets {
        let entered = target.from.as_ref().map(Netns::enter);
        if let Some(Err(error)) = &entered {
            found.missing(target.name, &error.to_string());
            continue;
        }
        measure_to(method, found, target);
    }
    if let Some(served) = &kept.served {
        served.measure(method, found);
    }
}

fn prepare(method: &Method, found: &mut Found, kept: &mut Kept) {
    let local = |address: IpAddr| Peer::listen((address, 0).into()).and_then(Peer::run);
    match local(Ipv4Addr::LOCALHOST.into()) {
        Ok(running) => kept.targets.push(Target::ours("loopback", running, None)),
        Err(error) => found.missing("loopback", &error.to_string()),
    }
    match local(Ipv6Addr::LOCALHOST.into()) {
        Ok(running) => kept.targets.push(Target::ours("loopback6", running, None)),
        Err(error) => found.missing(
            "loopback6",
            &format!("{error}; this machine has no IPv6 loopback"),
        ),
    }
    match Testbed::new(Options::default()) {
        Ok(testbed) => {
            let home = testbed.rcv.clone();
            let started = home
                .enter()
                .map_err(io::Error::other)
                .and_then(|_entered| local(RCV_IPV4.into()));
            match started {
                Ok(running) => {
                    let mut target = Target::ours("veth", running, Some(home));
                    target.from = Some(testbed.snd.clone());
                    kept.targets.push(target);
                }
                Err(error) => found.missing("veth", &error.to_string()),
            }
            kept.testbed = Some(testbed);
        }
        Err(error) => found.missing("veth", &format!("between two namespaces: {error}")),
    }
    match Served::start(method) {
        Ok(served) => kept.served = Some(served),
        Err(error) => found.missing("remote_read_http", &error.to_string()),
    }
    if let Some(host) = &method.settings().remote {
        match peer::find(host)
            .and_then(|peer| peer::ask(peer, Ask::Echo { bytes: 1 }).map(|_| peer))
        {
            Ok(peer) => kept.targets.push(Target {
                name: "remote",
                peer,
                from: None,
                running: None,
                home: None,
            }),
            Err(error) => found.missing(
                "remote",
                &format!("{host}: {error}; run `onrush-lab measure --peer` there"),
            ),
        }
    }
}

impl Target {
    fn ours(name: &'static str, running: Running, home: Option<Netns>) -> Self {
        Self {
            name,
            peer: running.address,
            from: None,
            running: Some(running),
            home,
        }
    }
}

fn measure_to(method: &Method, found: &mut Found, target: &Target) {
    let Target { name, peer, .. } = target;
    let time = method.time(70);
    found.try_samples(&format!("rtt_icmp_{name}"), icmp(method, peer.ip(), time));
    found.try_samples(&format!("rtt_tcp_{name}"), tcp(method, *peer, time));
    found.try_samples(&format!("rtt_udp_{name}"), udp(method, *peer, time));
    if *name == "loopback6" {
        return;
    }
    match connections(method, *peer) {
        Ok((setup, teardown)) => {
            found.samples(&format!("tcp_setup_{name}"), setup);
            found.samples(&format!("tcp_teardown_{name}"), teardown);
        }
        Err(error) => found.missing(&format!("tcp_setup_{name}"), &error.to_string()),
    }
    if let Err(error) = bandwidth(method, found, name, *peer) {
        found.missing(&format!("tcp_bandwidth_{name}"), &error.to_string());
    }
    let reads = blocks(method, *peer, found, name);
    if let Err(error) = reads {
        // A peer that cannot make the file to be read from ends the connection.
        let why = match error.kind() {
            ErrorKind::UnexpectedEof => {
                "the peer has no file to read from: it makes one where TMPDIR says".to_owned()
            }
            _ => error.to_string(),
        };
        found.missing(&format!("remote_read_{name}"), &why);
    }
}

/// Echo requests, by the raw socket that root may open or the one that anybody may where the
/// administrator allows it (`net.ipv4.ping_group_range`).
fn icmp(method: &Method, to: IpAddr, time: Duration) -> io::Result<Vec<f64>> {
    let (domain, protocol, request) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol));
    let is_raw = socket.is_err();
    let socket = socket.or_else(|_| Socket::new(domain, Type::RAW, Some(protocol)));
    let mut socket = socket.map_err(|error| {
        let text =
            format!("{error}: echo requests need root, or a group in net.ipv4.ping_group_range");
        io::Error::new(error.kind(), text)
    })?;
    socket.connect(&SocketAddr::new(to, 0).into())?;
    socket.set_read_timeout(Some(WAIT_MAX))?;
    let reply = if request == 8 { 0 } else { 129 };
    let identity = std::process::id().to_be_bytes();
    let mut sequence = 0_u16;
    let mut answer = [0_u8; 256];
    method.try_per_act(time, |times| {
        for _ in 0..times {
            sequence = sequence.wrapping_add(1);
            let packet = echo_request(request, [identity[2], identity[3]], sequence);
            socket.write_all(&packet)?;
            // A raw socket also sees the request itself on its way over loopback, and other
            // people's.
            let mut looks = 0;
            loop {
                let bytes = socket.read(&mut answer)?;
                let header = if is_raw && request == 8 { 20 } else { 0 };
                let message = answer.get(header..bytes).unwrap_or_default();
                if message.len() >= 8
                    && message[0] == reply
                    && message[6..8] == sequence.to_be_bytes()
                {
                    break;
                }
                looks += 1;
                if looks > LOOKS_MAX {
                    return Err(io::Error::from(ErrorKind::TimedOut));
                }
            }
        }
        Ok(())
    })
}

/// Messages of others that a raw socket may bring before its own.
const LOOKS_MAX: u32 = 1000;

fn echo_request(kind: u8, identity: [u8; 2], sequence: u16) -> [u8; PAYLOAD_BYTES + 8] {
    let mut packet = [0_u8; PAYLOAD_BYTES + 8];
    packet[0] = kind;
    packet[4..6].copy_from_slice(&identity);
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    // RFC 1071: the ones' complement of the ones' complement sum. For IPv6 the kernel does it.
    let sum: u32 = packet
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let [_, _, high, low] = (!folded).to_be_bytes();
    packet[2..4].copy_from_slice(&[high, low]);
    packet
}

fn tcp(method: &Method, peer: SocketAddr, time: Duration) -> io::Result<Vec<f64>> {
    let mut stream = peer::ask(
        peer,
        Ask::Echo {
            bytes: PAYLOAD_BYTES as u64,
        },
    )?;
    let mut message = [1; PAYLOAD_BYTES];
    method.try_per_act(time, |times| {
        for _ in 0..times {
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
        }
        Ok(())
    })
}

fn udp(method: &Method, peer: SocketAddr, time: Duration) -> io::Result<Vec<f64>> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    // Short: a datagram that is lost is not an answer that is late.
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut message = [1; PAYLOAD_BYTES];
    method.try_per_act(time, |times| {
        for _ in 0..times {
            socket.send(&message)?;
            socket.recv(&mut message)?;
        }
        Ok(())
    })
}

/// How long a connection takes to be made and to be closed, as the one who asks sees it.
fn connections(method: &Method, peer: SocketAddr) -> io::Result<(Vec<f64>, Vec<f64>)> {
    let (mut setup, mut teardown) = (Vec::new(), Vec::new());
    for _ in 0..if method.settings().quick { 10 } else { 30 } {
        let (setup_ns, stream) = method.once(|| TcpStream::connect_timeout(&peer, WAIT_MAX));
        let stream = stream?;
        // The peer has seen the connection and waits: or it would be woken while we close.
        settle(&stream)?;
        let (teardown_ns, ()) = method.once(|| drop(stream));
        setup.push(six_digits(setup_ns));
        teardown.push(six_digits(teardown_ns));
    }
    Ok((setup, teardown))
}

/// One byte there and back.
fn settle(mut stream: &TcpStream) -> io::Result<()> {
    peer::bound(stream)?;
    stream.write_all(&Ask::Echo { bytes: 1 }.encode())?;
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0; 1])
}

/// Bytes per second over the size of a message, told by the peer; the best is the row.
fn bandwidth(method: &Method, found: &mut Found, name: &str, peer: SocketAddr) -> io::Result<()> {
    let sizes: &[usize] = match found.round() {
        0 | 3 | 6 => &[
            512,
            2 << 10,
            8 << 10,
            32 << 10,
            128 << 10,
            512 << 10,
            2 << 20,
            8 << 20,
            32 << 20,
        ],
        _ => &[128 << 10, 512 << 10],
    };
    let total = if method.settings().quick {
        16 << 20
    } else {
        64 << 20
    };
    let mut best = Vec::new();
    for &size in sizes {
        // Small messages cost a crossing each: less of them tells as much.
        let bytes = if size < 8 << 10 { total / 8 } else { total };
        let rate = swallowed(peer, size, bytes)?;
        found.point("tcp_bandwidth_over_message", name, size as u64, rate);
        if size == 128 << 10 || size == 512 << 10 {
            best.push(rate);
        }
    }
    found.samples(&format!("tcp_bandwidth_{name}"), best);
    Ok(())
}

fn swallowed(peer: SocketAddr, size: usize, bytes: u64) -> io::Result<f64> {
    let bytes = bytes.max(size as u64) / size as u64 * size as u64;
    let mut stream = peer::ask(
        peer,
        Ask::Swallow {
            bytes,
            first_bytes: 1,
        },
    )?;
    let message = vec![1; size];
    for _ in 0..bytes / size as u64 {
        stream.write_all(&message)?;
    }
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    let taken_ns = u64::from_be_bytes(answer).max(1);
    Ok(six_digits(ratio(bytes, taken_ns) * 1e9))
}

/// 4 KB blocks of a file of the peer's, each asked for and waited for: in order, and mixed.
fn blocks(method: &Method, peer: SocketAddr, found: &mut Found, name: &str) -> io::Result<()> {
    const BLOCK: u64 = 4096;
    let file_bytes: u64 = if method.settings().quick {
        1 << 20
    } else {
        16 << 20
    };
    let mut stream = peer::ask(
        peer,
        Ask::Blocks {
            bytes: BLOCK,
            file_bytes,
        },
    )?;
    stream.read_exact(&mut [0; 1])?;
    let mut block = vec![0; usize::try_from(BLOCK).unwrap_or(0)];
    for (id, factor) in [("sequential", 1_u64), ("random", 2_654_435_761)] {
        let mut index = 0_u64;
        let samples = method.try_per_act(method.time(50), |times| {
            for _ in 0..times {
                let at = index.wrapping_mul(factor) % (file_bytes / BLOCK) * BLOCK;
                index += 1;
                stream.write_all(&at.to_be_bytes())?;
                stream.read_exact(&mut block)?;
            }
            Ok(())
        })?;
        let each = median(&samples).unwrap_or(0.0);
        found.fact("remote_block_bytes", to_f64(block.len()));
        if each > 0.0 {
            found.samples(&format!("remote_read_{id}_{name}"), samples);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_request_sums_to_nothing() {
        for sequence in [0, 1, 0xffff] {
            let packet = echo_request(8, [0xab, 0xcd], sequence);
            let sum: u32 = packet
                .chunks_exact(2)
                .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
                .sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            assert_eq!((folded & 0xffff) + (folded >> 16), 0xffff);
        }
    }
}
