//! What comes to viewers: by sockets of their own, in a group, or in frames of their connections.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;

use onrush_sys::arrival;
use onrush_sys::clock::monotonic_ns;
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
    /// Who looks into encrypted packets.
    srtp: Option<RtpReceiver>,
}

/// What has come on a connection that nobody looks into.
#[derive(Debug, Default)]
pub(super) struct Unread {
    pub(super) bytes: Cell<u64>,
    pub(super) first_ns: Cell<Option<u64>>,
}

/// A socket that is read, and one for RTCP that is only there.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) state: Rc<RefCell<Received>>,
    task: JoinHandle<()>,
    _rtcp: Option<UdpSocket>,
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
            srtp: None,
        }))
    }

    /// From now on packets are decrypted with that key, and those that cannot be are counted.
    pub(super) fn decrypt(&mut self, key: &MasterKey) {
        self.srtp = Some(RtpReceiver::new(key));
    }

    /// Takes a packet.
    pub(super) fn packet(&mut self, packet: &mut [u8], now_ns: u64) {
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

impl Receiver {
    /// Receives at a port of its own, and at the one above; an error if another program has one.
    pub(super) async fn at_port(
        (ip, port): (IpAddr, u16),
        state: Rc<RefCell<Received>>,
    ) -> io::Result<Self> {
        let rtp = UdpSocket::bind((ip, port)).await?;
        let rtcp = UdpSocket::bind((ip, port + 1)).await?;
        Self::start(rtp, Some(rtcp), state)
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
        Self::start(socket, None, state)
    }

    fn start(
        rtp: UdpSocket,
        rtcp: Option<UdpSocket>,
        state: Rc<RefCell<Received>>,
    ) -> io::Result<Self> {
        // As much room as this account may have; what is too little is counted.
        if sockopt::set_socket_recv_buffer_size_force(&rtp, RECEIVE_BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&rtp, RECEIVE_BUFFER_BYTES).ok();
        }
        arrival::stamp(&rtp)?;
        let task = spawn_local(receive(rtp, Rc::clone(&state)));
        Ok(Self {
            state,
            task,
            _rtcp: rtcp,
        })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
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
