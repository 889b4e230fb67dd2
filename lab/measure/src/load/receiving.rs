//! What comes to viewers: by sockets of their own, in a group, or in frames of their connections.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;

use onrush_sys::arrival;
use onrush_sys::clock::monotonic_ns;
use onrush_testkit::playout::Ended;
use onrush_testkit::rtsp_client::rtcp_types;
use onrush_wire::srtp::{MasterKey, RtpReceiver};
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::{JoinHandle, spawn_local};

use super::follow::Follow;
use crate::histogram::Histogram;

/// Bytes of a datagram at the most.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Room for what comes to a receiver while others are read.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// Bytes of an RTCP datagram that are looked at; more than a path without jumbo frames carries.
const REPORT_BYTES_MAX: usize = 1500;

/// The type of an RTCP packet that says goodbye (RFC 3550, section 6.6).
const BYE: u8 = 203;

/// So long after a goodbye packets may still be on their way; what comes later is another stream.
const STRAGGLERS_NS: u64 = 50_000_000;

/// What all viewers received who have no sink to count for them.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Packets that were looked at.
    pub(super) packets: Cell<u64>,
    /// By how late they were.
    pub(super) lateness: RefCell<Histogram>,
    /// Bytes of connections whose packets are looked at, and of those that are thrown away unread.
    pub(super) inspected_bytes: Cell<u64>,
    pub(super) unread_bytes: Cell<u64>,
    /// Packets that could not be decrypted.
    pub(super) undecrypted: Cell<u64>,
    /// Datagrams that a socket had no room for, because nobody read it in time.
    pub(super) dropped: Cell<u64>,
    /// How long a datagram lay in a socket until it was read, at the most.
    pub(super) unread_ns_max: Cell<u64>,
}

/// What has come of one stream.
#[derive(Debug)]
pub(super) struct Received {
    tally: Rc<Tally>,
    pub(super) follow: Follow,
    pub(super) first_ns: Option<u64>,
    /// When its sender said that it is over.
    over_ns: Option<u64>,
    /// Who looks into encrypted packets.
    srtp: Option<RtpReceiver>,
}

/// What has come on a connection that nobody looks into.
#[derive(Debug, Default)]
pub(super) struct Unread {
    pub(super) bytes: Cell<u64>,
    pub(super) first_ns: Cell<Option<u64>>,
}

/// Sockets that are read, one for packets and, at a port of its own, one for RTCP.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) state: Rc<RefCell<Received>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Tally {
    fn add(counter: &Cell<u64>, count: u64) {
        counter.set(counter.get() + count);
    }

    /// So many bytes came on a connection whose packets are looked at.
    pub(super) fn inspected(&self, bytes: u64) {
        Self::add(&self.inspected_bytes, bytes);
    }
}

impl Received {
    /// Of a stream whose timestamps have so many ticks a second.
    pub(super) fn new(tally: &Rc<Tally>, clock_hz: u32) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            tally: Rc::clone(tally),
            follow: Follow::new(clock_hz),
            first_ns: None,
            over_ns: None,
            srtp: None,
        }))
    }

    /// From now on packets are decrypted with that key, and those that cannot be are counted.
    pub(super) fn decrypt(&mut self, key: &MasterKey) {
        self.srtp = Some(RtpReceiver::new(key));
    }

    /// Takes a packet.
    pub(super) fn packet(&mut self, packet: &mut [u8], now_ns: u64) {
        if self.over_ns.is_some_and(|ns| now_ns > ns + STRAGGLERS_NS) {
            self.restart_clock(None);
        }
        let Some(lateness_ns) = self.follow.packet(packet, now_ns) else {
            return;
        };
        self.first_ns.get_or_insert(now_ns);
        self.tally.lateness.borrow_mut().count(lateness_ns, 1);
        Tally::add(&self.tally.packets, 1);
        let srtp = self.srtp.as_mut();
        if srtp.is_some_and(|srtp| srtp.unprotect(packet).is_err()) {
            Tally::add(&self.tally.undecrypted, 1);
        }
    }

    /// Takes RTCP, in the clear. After a goodbye nothing more is due.
    pub(super) fn report(&mut self, datagram: &[u8], now_ns: u64) {
        if rtcp_types(datagram).contains(&BYE) {
            self.over_ns = Some(now_ns);
        }
    }

    /// What comes next is measured from its own first packet, and the stream is not over.
    pub(super) fn restart_clock(&mut self, ended: Option<Ended>) {
        let ended = self.ended(ended);
        self.over_ns = None;
        self.follow.restart_clock(ended);
    }

    /// When the viewer stopped watching, unless the stream was over before.
    pub(super) fn ended(&self, ended: Option<Ended>) -> Option<Ended> {
        ended.filter(|_| !self.is_over())
    }

    /// Whether its sender has said that it is over.
    pub(super) fn is_over(&self) -> bool {
        self.over_ns.is_some()
    }
}

impl Unread {
    /// So many bytes more have come.
    pub(super) fn count(&self, tally: &Tally, bytes: u64) {
        Tally::add(&self.bytes, bytes);
        Tally::add(&tally.unread_bytes, bytes);
        if bytes > 0 && self.first_ns.get().is_none() {
            self.first_ns.set(Some(monotonic_ns()));
        }
    }
}

/// Sockets at a pair of ports, of which this is the first; an error if another program has one.
pub(super) fn bind_pair(rtp: SocketAddr) -> io::Result<[std::net::UdpSocket; 2]> {
    let mut rtcp = rtp;
    rtcp.set_port(rtp.port() + 1);
    let bind = std::net::UdpSocket::bind::<SocketAddr>;
    Ok([bind(rtp)?, bind(rtcp)?])
}

impl Receiver {
    /// Receives at a port of its own, and at the one above; an error if another program has one.
    pub(super) fn at_port(
        rtp: SocketAddr,
        is_encrypted: bool,
        state: Rc<RefCell<Received>>,
    ) -> io::Result<Self> {
        let sockets = bind_pair(rtp)?;
        for socket in &sockets {
            socket.set_nonblocking(true)?;
        }
        let [rtp, rtcp] = sockets;
        let (rtp, rtcp) = (UdpSocket::from_std(rtp)?, UdpSocket::from_std(rtcp)?);
        let mut receiver = Self::start(rtp, state)?;
        let listening = listen(rtcp, is_encrypted, Rc::clone(&receiver.state));
        receiver.tasks.push(spawn_local(listening));
        Ok(receiver)
    }

    /// Receives what is sent to a group, as all do who have joined it from `local`.
    pub(super) fn in_group(
        (group, port): (IpAddr, u16),
        local: IpAddr,
        state: Rc<RefCell<Received>>,
    ) -> io::Result<Self> {
        let at = SocketAddr::new(group, port);
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&at.into())?;
        match (group, local) {
            (IpAddr::V4(group), IpAddr::V4(local)) => socket.join_multicast_v4(&group, &local)?,
            (IpAddr::V6(group), _) => socket.join_multicast_v6(&group, 0)?,
            _ => return Err(io::ErrorKind::AddrNotAvailable.into()),
        }
        let socket = UdpSocket::from_std(socket.into())?;
        Self::start(socket, state)
    }

    fn start(rtp: UdpSocket, state: Rc<RefCell<Received>>) -> io::Result<Self> {
        // As much room as this account may have; what is too little is counted.
        if sockopt::set_socket_recv_buffer_size_force(&rtp, RECEIVE_BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&rtp, RECEIVE_BUFFER_BYTES).ok();
        }
        arrival::stamp(&rtp)?;
        let tasks = vec![spawn_local(receive(rtp, Rc::clone(&state)))];
        Ok(Self { state, tasks })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Reads RTCP. What is encrypted is thrown away.
async fn listen(socket: UdpSocket, is_encrypted: bool, state: Rc<RefCell<Received>>) {
    let mut datagram = [0; REPORT_BYTES_MAX];
    while let Ok(bytes) = socket.recv(&mut datagram).await {
        if !is_encrypted {
            let report = &datagram[..bytes];
            state.borrow_mut().report(report, monotonic_ns());
        }
    }
}

async fn receive(socket: UdpSocket, state: Rc<RefCell<Received>>) {
    thread_local! {
        // One for all: nobody waits while it is in use.
        static DATAGRAM: RefCell<Box<[u8]>> = RefCell::new(vec![0; DATAGRAM_BYTES_MAX].into());
    }
    let (mut overflows, mut arrival_ns) = (0, 0);
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        DATAGRAM.with_borrow_mut(|datagram| {
            loop {
                let read = || arrival::receive(socket.as_fd(), datagram);
                let Ok(read) = socket.try_io(Interest::READABLE, read) else {
                    break;
                };
                // When the kernel had it: that it is read late is nobody's fault but ours.
                let age_ns = read.age_ns.unwrap_or(0);
                // Two clocks are read one after the other: packets of one socket come in order.
                arrival_ns = monotonic_ns().saturating_sub(age_ns).max(arrival_ns);
                let mut state = state.borrow_mut();
                state.packet(&mut datagram[..read.bytes], arrival_ns);
                let tally = &state.tally;
                tally
                    .unread_ns_max
                    .set(tally.unread_ns_max.get().max(age_ns));
                if let Some(now) = read.overflows {
                    Tally::add(&tally.dropped, u64::from(now.wrapping_sub(overflows)));
                    overflows = now;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::Builder;
    use tokio::task::LocalSet;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::load::follow::tests::packet;

    const LONG: Duration = Duration::from_secs(60);

    /// A receiver report of nothing, and a goodbye.
    const GOODBYE: [u8; 16] = [0x80, 201, 0, 1, 0, 0, 0, 7, 0x81, BYE, 0, 1, 0, 0, 0, 7];

    /// A second of packets, 10 ms of media each, and when it began.
    fn second_of_packets() -> (Rc<RefCell<Received>>, u64) {
        let (state, begin_ns) = (Received::new(&Rc::default(), 90_000), 1_000_000_000);
        for number in 0..=100_u16 {
            let at_ns = begin_ns + u64::from(number) * 10_000_000;
            let mut packet = packet(number, u32::from(number) * 900);
            state.borrow_mut().packet(&mut packet, at_ns);
        }
        (state, begin_ns)
    }

    /// What has not come to a viewer who waits for four seconds more.
    fn missing(state: &Rc<RefCell<Received>>, begin_ns: u64) -> u64 {
        let ended = Ended {
            at_ns: begin_ns + 5_000_000_000,
            buffer_ns: 40_000_000,
        };
        let state = state.borrow();
        let played = state.follow.played(state.ended(Some(ended)), false);
        played.unwrap().missing
    }

    #[test]
    fn after_a_goodbye_nothing_is_due() {
        let (state, begin_ns) = second_of_packets();
        assert!(missing(&state, begin_ns) > 300);
        state.borrow_mut().report(&GOODBYE[..8], begin_ns);
        assert!(!state.borrow().is_over());
        let over_ns = begin_ns + 1_000_000_000;
        state.borrow_mut().report(&GOODBYE, over_ns);
        assert!(state.borrow().is_over());
        assert_eq!(missing(&state, begin_ns), 0);
        // One was still on its way.
        let mut straggler = packet(101, 101 * 900);
        let at_ns = over_ns + 10_000_000;
        state.borrow_mut().packet(&mut straggler, at_ns);
        assert!(state.borrow().is_over());
        // It goes on, by a clock of its own.
        let mut next = packet(102, 5);
        let at_ns = over_ns + 2_000_000_000;
        state.borrow_mut().packet(&mut next, at_ns);
        let state = state.borrow();
        assert!(!state.is_over());
        assert_eq!(state.follow.arrived.lateness_ns_max, 0);
        assert_eq!(state.follow.arrived.packets, 103);
    }

    #[test]
    fn a_goodbye_is_heard_at_the_port_above() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let receiver = (20_000..60_000).step_by(2).find_map(|port| {
                let at = SocketAddr::from(([127, 0, 0, 1], port));
                let state = Received::new(&Rc::default(), 90_000);
                Receiver::at_port(at, false, state).ok().zip(Some(at))
            });
            let (receiver, rtp) = receiver.unwrap();
            // Nobody else may have the pair.
            assert_eq!(bind_pair(rtp).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            sender
                .send_to(&GOODBYE, (rtp.ip(), rtp.port() + 1))
                .unwrap();
            let give_up = Instant::now() + LONG;
            while !receiver.state.borrow().is_over() {
                assert!(Instant::now() < give_up);
                sleep(Duration::from_millis(1)).await;
            }
        });
    }
}
