//! Network: round trips, bandwidth over message size, connections; over loopback, between two
//! namespaces, and to a remote if one is named.
//!
//! Both ends are on the measuring processor: then a round trip is work, not waiting for another
//! processor to wake up, and it is the same each time. The remote's processor is its own, and so is
//! that of a peer in the second namespace, which is measured to as to a remote.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use onrush_sys::thread::pin_to;
use onrush_testkit::netns::Netns;
use onrush_testkit::testbed::{Options, RCV_IPV4, Testbed};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::Found;
use super::WAIT_MAX;
use super::blocks::{BLOCK_BYTES, ORDERS, Order};
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
            found.missing(target.name, error);
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
    let running = found.there(&["loopback"], local(Ipv4Addr::LOCALHOST.into()));
    let ours = running.map(|running| Target::ours("loopback", running, None));
    kept.targets.extend(ours);
    let no_ipv6 = |error| {
        said(
            &error,
            format!("{error}; this machine has no IPv6 loopback"),
        )
    };
    let running = local(Ipv6Addr::LOCALHOST.into()).map_err(no_ipv6);
    let running = found.there(&["loopback6"], running);
    let ours = running.map(|running| Target::ours("loopback6", running, None));
    kept.targets.extend(ours);
    let testbed = Testbed::new(Options::default());
    let testbed = testbed.map_err(|e| io::Error::other(format!("between two namespaces: {e}")));
    kept.testbed = found.there(&["veth"], testbed);
    if let Some(testbed) = &kept.testbed {
        let home = testbed.rcv.clone();
        let entered = home.enter().map_err(io::Error::other);
        let started = entered.and_then(|_entered| local(RCV_IPV4.into()));
        if let Some(running) = found.there(&["veth"], started) {
            let mut ours = Target::ours("veth", running, Some(home));
            ours.from = Some(testbed.snd.clone());
            kept.targets.push(ours);
        }
        if let Some(running) = found.there(&[APART], apart(method, testbed)) {
            let mut ours = Target::ours(APART, running, Some(testbed.rcv.clone()));
            ours.from = Some(testbed.snd.clone());
            kept.targets.push(ours);
        }
    }
    kept.served = found.there(&["remote_read_http"], Served::start(method));
    if let Some(host) = &method.settings().remote {
        let asked = |peer| peer::ask(peer, Ask::Echo { bytes: 1 }).map(|_| peer);
        let advice = |error: io::Error| {
            let text = format!("{host}: {error}; run `onrush-lab measure --peer` there");
            said(&error, text)
        };
        let peer = peer::find(host).and_then(asked).map_err(advice);
        kept.targets
            .extend(found.there(&["remote"], peer).map(Target::of));
    }
}

/// A peer in the second namespace that has a processor of its own: threads stay where who started
/// them was.
fn apart(method: &Method, testbed: &Testbed) -> io::Result<Running> {
    let [.., other, own] = *method.cores() else {
        return Err(io::Error::other(
            "a peer on a processor of its own needs two; this process may use one",
        ));
    };
    let _entered = testbed.rcv.enter().map_err(io::Error::other)?;
    pin_to(other)?;
    let started = Peer::listen((RCV_IPV4, 0).into()).and_then(Peer::run);
    pin_to(own)?;
    started
}

/// The name of a peer in a second namespace, on a processor of its own.
pub(super) const APART: &str = "apart";

/// The same error in other words.
fn said(error: &io::Error, text: String) -> io::Error {
    io::Error::new(error.kind(), text)
}

impl Target {
    /// The one that was asked for by name.
    fn of(peer: SocketAddr) -> Self {
        Self {
            name: "remote",
            peer,
            from: None,
            running: None,
            home: None,
        }
    }

    fn ours(name: &'static str, running: Running, home: Option<Netns>) -> Self {
        let mut target = Self::of(running.address);
        target.name = name;
        target.running = Some(running);
        target.home = home;
        target
    }
}

/// How round trips are timed: many at once, and then some of them singly.
#[derive(Clone, Copy)]
struct Trips<'m> {
    method: &'m Method,
    time: Duration,
}

/// Nanoseconds of round trips: of each of many, by block, and of single ones.
type Times = (Vec<f64>, Vec<f64>);

/// Round trips that are timed singly: the paper's hundred.
const SINGLES: usize = 100;

impl Trips<'_> {
    fn take(self, mut trip: impl FnMut() -> io::Result<()>) -> io::Result<Times> {
        let each = self.method.try_per_act(self.time, |times| {
            for _ in 0..times {
                trip()?;
            }
            Ok(())
        })?;
        let single = |_| {
            let (taken_ns, done) = self.method.once(&mut trip);
            done.map(|()| six_digits(taken_ns))
        };
        let singles = (0..SINGLES).map(single).collect::<io::Result<_>>()?;
        Ok((each, singles))
    }

    fn keep(self, found: &mut Found, protocol: &str, place: &str, times: io::Result<Times>) {
        let id = format!("rtt_{protocol}_{place}");
        if let Some((each, singles)) = found.there(&[&id], times) {
            found.samples(&id, each);
            found.samples(&format!("rtt_single_{protocol}_{place}"), singles);
        }
    }
}

fn measure_to(method: &Method, found: &mut Found, target: &Target) {
    let Target { name, peer, .. } = target;
    let trips = Trips {
        method,
        time: method.time(70),
    };
    // Echo requests the kernel answers on the processor of who asks, wherever a peer is.
    if *name != APART {
        trips.keep(found, "icmp", name, icmp(trips, peer.ip()));
    }
    trips.keep(found, "tcp", name, tcp(trips, *peer));
    trips.keep(found, "udp", name, udp(trips, *peer));
    if *name == "loopback6" {
        return;
    }
    if *name == "loopback" {
        found.try_samples("tcp_teardown_unwaited_loopback", unwaited(method));
    }
    let taken = slow_start(method, found, name, *peer);
    found.there(
        &[&format!("tcp_first_{name}"), &format!("tcp_warm_{name}")],
        taken,
    );
    let setup_id = format!("tcp_setup_{name}");
    if let Some((setup, teardown)) = found.there(&[&setup_id], connections(method, *peer)) {
        found.samples(&setup_id, setup);
        found.samples(&format!("tcp_teardown_{name}"), teardown);
    }
    let taken = bandwidth(method, found, name, *peer);
    found.there(&[&format!("tcp_bandwidth_{name}")], taken);
    let reads = blocks(method, *peer, found, name).map_err(|error| match error.kind() {
        // A peer that cannot make the file to be read from ends the connection.
        ErrorKind::UnexpectedEof => {
            io::Error::other("the peer has no file to read from: it makes one where TMPDIR says")
        }
        _ => error,
    });
    found.there(&[&format!("remote_read_{name}")], reads);
}

/// Echo requests, by the raw socket that root may open or the one that anybody may where the
/// administrator allows it (`net.ipv4.ping_group_range`).
fn icmp(trips: Trips<'_>, to: IpAddr) -> io::Result<Times> {
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
    trips.take(|| {
        sequence = sequence.wrapping_add(1);
        let packet = echo_request(request, [identity[2], identity[3]], sequence);
        socket.write_all(&packet)?;
        // A raw socket also sees the request itself on its way over loopback, and other people's.
        for _ in 0..=LOOKS_MAX {
            let bytes = socket.read(&mut answer)?;
            let header = if is_raw && request == 8 { 20 } else { 0 };
            let message = answer.get(header..bytes).unwrap_or_default();
            if message.len() >= 8 && message[0] == reply && message[6..8] == sequence.to_be_bytes()
            {
                return Ok(());
            }
        }
        Err(io::Error::from(ErrorKind::TimedOut))
    })
}

/// Messages of others that a raw socket may bring before its own.
const LOOKS_MAX: u32 = 1000;

fn echo_request(kind: u8, identity: [u8; 2], sequence: u16) -> [u8; PAYLOAD_BYTES + 8] {
    let mut packet = [0_u8; PAYLOAD_BYTES + 8];
    packet[0] = kind;
    packet[4..6].copy_from_slice(&identity);
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    // For IPv6 the kernel does it.
    let [_, _, high, low] = (!ones_sum(&packet)).to_be_bytes();
    packet[2..4].copy_from_slice(&[high, low]);
    packet
}

/// The ones' complement sum of 16-bit words (RFC 1071).
fn ones_sum(packet: &[u8]) -> u32 {
    let words = packet.chunks_exact(2);
    let words = words.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16)
}

fn tcp(trips: Trips<'_>, peer: SocketAddr) -> io::Result<Times> {
    let bytes = PAYLOAD_BYTES as u64;
    let mut stream = peer::ask(peer, Ask::Echo { bytes })?;
    let mut message = [1; PAYLOAD_BYTES];
    trips.take(|| {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)
    })
}

fn udp(trips: Trips<'_>, peer: SocketAddr) -> io::Result<Times> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    // Short: a datagram that is lost is not an answer that is late.
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut message = [1; PAYLOAD_BYTES];
    trips.take(|| {
        socket.send(&message)?;
        socket.recv(&mut message).map(drop)
    })
}

/// How long a connection takes to be made and to be closed, as the one who asks sees it.
fn connections(method: &Method, peer: SocketAddr) -> io::Result<(Vec<f64>, Vec<f64>)> {
    let (mut setup, mut teardown) = (Vec::new(), Vec::new());
    for _ in 0..method.much(10, 30) {
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

/// How long a connection takes to be closed to whose other end nobody has come: it is made in the
/// kernel, and whoever might have waited for its end is not woken.
fn unwaited(method: &Method) -> io::Result<Vec<f64>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = listener.local_addr()?;
    let samples = (0..method.much(10, 30)).map(|_| -> io::Result<f64> {
        let stream = TcpStream::connect_timeout(&to, WAIT_MAX)?;
        stream.set_nodelay(true)?;
        let (teardown_ns, ()) = method.once(|| drop(stream));
        // Taken away, so that the queue of those who have come has room for the next.
        drop(listener.accept()?);
        Ok(six_digits(teardown_ns))
    });
    samples.collect()
}

/// Messages of so many segments, each answered with a byte: the first on a fresh connection, which
/// may have ten segments under way, and one on the same connection when it has grown.
fn slow_start(method: &Method, found: &mut Found, name: &str, peer: SocketAddr) -> io::Result<()> {
    for segments in SEGMENTS {
        // In some rounds only: the rows' each time.
        if segments != SEGMENTS_OF_ROWS && found.round() > 1 {
            continue;
        }
        let (mut first, mut warm) = (Vec::new(), Vec::new());
        for _ in 0..method.much(3, 5) {
            let Some((first_ns, warm_ns)) = exchanges(method, peer, segments)? else {
                break;
            };
            first.push(six_digits(first_ns));
            warm.push(six_digits(warm_ns));
        }
        for (state, samples) in [("fresh", &first), ("warmed", &warm)] {
            for sample in samples {
                found.point(SLOW_START, &format!("{name}, {state}"), segments, *sample);
            }
        }
        if segments == SEGMENTS_OF_ROWS {
            found.samples(&format!("tcp_first_{name}"), first);
            found.samples(&format!("tcp_warm_{name}"), warm);
        }
    }
    Ok(())
}

/// The first exchange of a connection, and one after some; nothing if that many segments are more
/// than is sent for one answer.
fn exchanges(method: &Method, peer: SocketAddr, segments: u64) -> io::Result<Option<(f64, f64)>> {
    let probe = TcpStream::connect_timeout(&peer, WAIT_MAX)?;
    let segment_bytes = u64::from(SockRef::from(&probe).tcp_mss()?);
    drop(probe);
    let bytes = segments * segment_bytes;
    if bytes > EXCHANGE_BYTES_MAX {
        return Ok(None);
    }
    let mut stream = peer::ask(peer, Ask::Gulps { bytes })?;
    let mut answer = [0; 1];
    stream.read_exact(&mut answer)?;
    let message = vec![1; usize::try_from(bytes).unwrap_or(0)];
    let mut exchange = || {
        let (taken_ns, done) = method.once(|| {
            stream.write_all(&message)?;
            stream.read_exact(&mut answer)
        });
        done.map(|()| taken_ns)
    };
    let first_ns = exchange()?;
    for _ in 0..EXCHANGES_TO_WARM {
        exchange()?;
    }
    Ok(Some((first_ns, exchange()?)))
}

/// The curve's name.
pub(super) const SLOW_START: &str = "slow_start";
/// Segments of a message.
const SEGMENTS: [u64; 9] = [1, 2, 5, 10, 20, 40, 80, 160, 320];
/// Four times what a fresh connection may have under way (RFC 6928).
pub(super) const SEGMENTS_OF_ROWS: u64 = 40;
const EXCHANGES_TO_WARM: usize = 6;
const EXCHANGE_BYTES_MAX: u64 = 4 << 20;

/// One byte there and back.
fn settle(mut stream: &TcpStream) -> io::Result<()> {
    peer::bound(stream)?;
    stream.write_all(&Ask::Echo { bytes: 1 }.encode())?;
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0; 1])
}

/// Bytes per second over the size of a message, told by the peer; the best is the row.
fn bandwidth(method: &Method, found: &mut Found, name: &str, peer: SocketAddr) -> io::Result<()> {
    // From 512 bytes to 32 MiB, in some rounds only: the best are between.
    let bits = match found.round() {
        0 | 3 | 6 => 9..=25,
        _ => 17..=19,
    };
    let total = method.much(16 << 20, 64 << 20);
    let mut best = Vec::new();
    for size in bits.step_by(2).map(|bits| 1_usize << bits) {
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
    let first_bytes = 1;
    let mut stream = peer::ask(peer, Ask::Swallow { bytes, first_bytes })?;
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
    let file_bytes = method.much(1 << 20, 16 << 20);
    let bytes = BLOCK_BYTES as u64;
    let mut stream = peer::ask(peer, Ask::Blocks { bytes, file_bytes })?;
    stream.read_exact(&mut [0; 1])?;
    let mut block = [0; BLOCK_BYTES];
    found.fact("remote_block_bytes", to_f64(block.len()));
    for (id, factor) in ["sequential", "random"].into_iter().zip(ORDERS) {
        let samples = Order::new(file_bytes, factor).measure(method, 50, |at| {
            stream.write_all(&at.to_be_bytes())?;
            stream.read_exact(&mut block)
        })?;
        if median(&samples).unwrap_or(0.0) > 0.0 {
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
            assert_eq!(ones_sum(&packet), 0xffff);
        }
    }
}
