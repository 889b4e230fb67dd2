//! The counting sink of TCP: what arrived on connections, of which nothing is delivered.
//!
//! A receiver on this machine has zero-copy data copied when it is delivered, so that no client
//! here can tell whether a sender over TCP left copying to it. An eBPF program at tc ingress of the
//! receiving device counts the data of connections and drops it, as the [`sink`](crate::sink) does
//! for UDP, and a thread acknowledges what was counted, by packets of its own making. The clients'
//! sockets are real ones: they connect, and send requests whose answers nobody reads.
//!
//! Not here: payloads, and IPv6.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use aya::maps::{HashMap, MapData, MapError};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, tc};
use aya::{Ebpf, EbpfError, EbpfLoader, Pod, include_bytes_aligned};
use socket2::{Domain, Socket, Type};
use thiserror::Error;

use crate::netns::Netns;

/// Counts on a device, and acknowledges what it has counted. Dropping it takes the program away;
/// connections get no further answer then.
pub struct TcpSink {
    is_over: Arc<AtomicBool>,
    acknowledging: Option<JoinHandle<()>>,
    connections: Arc<Connections>,
    socket: Socket,
    /// Holds the program and its attachment.
    #[expect(dead_code, reason = "holds the program and its attachment")]
    ebpf: Ebpf,
}

type Connections = HashMap<MapData, u32, State>;

/// What arrived on a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TcpCounts {
    /// Bytes of payload, each counted once.
    pub bytes: u64,
    /// Socket buffers, as the sender's stack built them.
    pub skbs: u64,
    /// Packets as they would be on a wire.
    pub segments: u64,
}

/// Why there is no sink, or no number from it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TcpSinkError {
    /// The kernel did not take the program.
    #[error("load the sink's eBPF program (needs CAP_BPF, CAP_NET_ADMIN and Linux 5.4): {0}")]
    Load(#[from] EbpfError),
    /// The program could not be verified or attached.
    #[error("attach the sink: {0}")]
    Attach(#[from] ProgramError),
    /// A map could not be read or written.
    #[error("the sink's counters: {0}")]
    Map(#[from] MapError),
    /// A connection's addresses, or the socket for acknowledgements.
    #[error("a socket of the sink's: {0}")]
    Socket(#[from] io::Error),
}

impl TcpSink {
    /// Counts, drops and acknowledges what comes on these connections, which were made in `netns`
    /// by IPv4 without timestamps ([`without_timestamps`]), and reaches `device` there.
    pub fn attach<'a>(
        netns: &Netns,
        device: &str,
        clients: impl IntoIterator<Item = &'a TcpStream>,
    ) -> Result<Self, TcpSinkError> {
        let mut ebpf = EbpfLoader::new().load(PROGRAM)?;
        let connections = ebpf.take_map("connections");
        let connections = connections.expect("tcp_sink.bpf.c defines it");
        let mut connections: Connections = connections.try_into()?;
        let mut ends = Vec::new();
        for client in clients {
            let end = End::of(client)?;
            connections.insert(u32::from(end.client.port()), State::default(), 0)?;
            ends.push(end);
        }
        let program = ebpf.program_mut("tcp_sink");
        let program = program.expect("tcp_sink.bpf.c defines it");
        let program: &mut SchedClassifier = program.try_into()?;
        program.load()?;
        let socket = netns.run(|| {
            // It may be there already; if it cannot be made, attaching says so.
            drop(tc::qdisc_add_clsact(device));
            program.attach(device, TcAttachType::Ingress)?;
            Ok::<_, TcpSinkError>(Socket::new(
                Domain::IPV4,
                Type::RAW,
                Some(IPPROTO_RAW.into()),
            )?)
        })?;
        let connections = Arc::new(connections);
        let is_over = Arc::new(AtomicBool::new(false));
        let of_thread = (Arc::clone(&connections), Arc::clone(&is_over));
        let thread_socket = socket.try_clone()?;
        let acknowledging = thread::spawn(move || {
            let (connections, is_over) = of_thread;
            acknowledge(&thread_socket, &mut ends, &connections, &is_over);
        });
        Ok(Self {
            is_over,
            acknowledging: Some(acknowledging),
            connections,
            socket,
            ebpf,
        })
    }

    /// Sends bytes of a client's whose connection has had data counted: its own socket has heard
    /// of none of it, and waits for the answer to what it sent before. They have to fit a packet.
    pub fn send(&self, client: &TcpStream, bytes: &[u8]) -> Result<(), TcpSinkError> {
        let end = End::of(client)?;
        let state = self.connections.get(&u32::from(end.client.port()), 0)?;
        Ok(end.send(&self.socket, &state, bytes)?)
    }

    /// What has arrived on one connection so far.
    pub fn connection(&self, client: &TcpStream) -> Result<TcpCounts, TcpSinkError> {
        let port = client.local_addr()?.port();
        Ok(self.connections.get(&u32::from(port), 0)?.into())
    }
}

impl From<State> for TcpCounts {
    fn from(state: State) -> Self {
        Self {
            bytes: state.bytes,
            skbs: state.skbs,
            segments: state.segments,
        }
    }
}

impl Drop for TcpSink {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.acknowledging.take() {
            // It panics nowhere, and a test that unwinds is to say why by itself.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for TcpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpSink").finish_non_exhaustive()
    }
}

/// Connections that are made in the namespace from now on carry no timestamps, which an
/// acknowledgement that is made here would have to go on with.
///
/// # Errors
///
/// If the kernel cannot be told so.
pub fn without_timestamps(netns: &Netns) -> io::Result<()> {
    netns.run(|| std::fs::write("/proc/sys/net/ipv4/tcp_timestamps", "0"))
}

/// A connection's two ends, and what of it was acknowledged last.
struct End {
    client: SocketAddrV4,
    server: SocketAddrV4,
    acknowledged: u32,
}

impl End {
    fn of(client: &TcpStream) -> io::Result<Self> {
        let v4 = |address| match address {
            SocketAddr::V4(address) => Ok(address),
            SocketAddr::V6(_) => Err(io::Error::other("a sink of TCP counts IPv4 alone")),
        };
        Ok(Self {
            client: v4(client.local_addr()?)?,
            server: v4(client.peer_addr()?)?,
            acknowledged: 0,
        })
    }

    /// What the client would send next, behind an IPv4 header whose sum and length the kernel
    /// fills in: all that was counted is acknowledged.
    fn segment(&self, state: &State, payload: &[u8]) -> Vec<u8> {
        let (from, to) = (self.client, self.server);
        let mut packet = [&[0; 40], payload].concat();
        let (ip, tcp) = packet.split_at_mut(20);
        (ip[0], ip[8], ip[9]) = (0x45, 64, IPPROTO_TCP);
        ip[12..16].copy_from_slice(&from.ip().octets());
        ip[16..20].copy_from_slice(&to.ip().octets());
        tcp[..2].copy_from_slice(&from.port().to_be_bytes());
        tcp[2..4].copy_from_slice(&to.port().to_be_bytes());
        tcp[4..8].copy_from_slice(&state.acknowledged.to_be_bytes());
        tcp[8..12].copy_from_slice(&state.next.to_be_bytes());
        // Five words of header, ACK, and as much room as can be said.
        (tcp[12], tcp[13]) = (5 << 4, 0x10);
        tcp[14..16].copy_from_slice(&[0xff; 2]);
        let sum = checksum(*from.ip(), *to.ip(), tcp);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn send(&self, socket: &Socket, state: &State, payload: &[u8]) -> io::Result<()> {
        let to = SocketAddr::from(self.server).into();
        socket.send_to(&self.segment(state, payload), &to).map(drop)
    }
}

/// RFC 9293, section 3.1.
fn checksum(from: Ipv4Addr, to: Ipv4Addr, tcp: &[u8]) -> u16 {
    let length = u16::try_from(tcp.len()).expect("a packet").to_be_bytes();
    let pseudo = [0, IPPROTO_TCP, length[0], length[1]];
    let (from, to) = (from.octets(), to.octets());
    let words = [&from[..], &to, &pseudo, tcp].map(|bytes| {
        let words = bytes.chunks(2);
        let word = |word: &[u8]| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&it| it.into());
        words.map(word).sum::<u32>()
    });
    let mut sum: u32 = words.iter().sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("it was folded")
}

/// Acknowledges what was counted until it is over. An acknowledgement that cannot be sent is one
/// that a network loses.
fn acknowledge(socket: &Socket, ends: &mut [End], counted: &Connections, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        for end in &mut *ends {
            let Ok(state) = counted.get(&u32::from(end.client.port()), 0) else {
                continue;
            };
            if state.skbs == 0 || state.next == end.acknowledged {
                continue;
            }
            if end.send(socket, &state, &[]).is_ok() {
                end.acknowledged = state.next;
            }
        }
        thread::sleep(PAUSE);
    }
}

/// `struct connection` of tcp_sink.bpf.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct State {
    bytes: u64,
    skbs: u64,
    segments: u64,
    next: u32,
    acknowledged: u32,
}

// SAFETY: `Pod` asks for a type of which any bytes are a value: these are integers in a C layout,
// without padding between or behind them.
unsafe impl Pod for State {}

/// Between two looks at what was counted: a round trip of an ordinary network.
const PAUSE: Duration = Duration::from_millis(2);
const IPPROTO_TCP: u8 = 6;
/// What is sent has its IP header.
const IPPROTO_RAW: i32 = libc::IPPROTO_RAW;

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tcp_sink.o"));
