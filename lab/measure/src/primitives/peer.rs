//! The other side of a network measurement: `onrush-lab measure --peer`, or a thread of our own.
//!
//! A connection begins with one request of seventeen bytes: what is wanted, and two numbers. The
//! peer echoes, swallows, sends, or closes. It reads no file but one of its own making, and holds a
//! bounded number of connections. UDP datagrams to the same port are echoed, up to
//! [`ECHO_BYTES_MAX`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::WAIT_MAX;
use crate::stats::ratio;

/// Connections that a peer holds at once; one more is closed.
pub const CONNECTIONS_MAX: usize = 16;
/// The largest datagram or message that is echoed, in bytes.
pub const ECHO_BYTES_MAX: usize = 2048;
/// The most that is swallowed or sent for one request, in bytes.
pub const TRANSFER_BYTES_MAX: u64 = 1 << 30;
/// The most that is read from the peer's file at once, in bytes.
pub const BLOCK_BYTES_MAX: u64 = 64 << 10;

/// What is asked of a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ask {
    /// Send back messages of so many bytes until the connection ends.
    Echo { bytes: u64 },
    /// Swallow so many bytes; tell how long it took from the first to the last, in ns.
    Swallow { bytes: u64, first_bytes: u64 },
    /// Answer offsets with blocks of so many bytes from a file of so many.
    Blocks { bytes: u64, file_bytes: u64 },
    /// Say that all is ready, and then answer each so many bytes with one, until the connection
    /// ends.
    Gulps { bytes: u64 },
}

impl Ask {
    pub(super) fn encode(self) -> [u8; 17] {
        let (kind, one, two) = match self {
            Self::Echo { bytes } => (b'e', bytes, 0),
            Self::Swallow { bytes, first_bytes } => (b's', bytes, first_bytes),
            Self::Blocks { bytes, file_bytes } => (b'b', bytes, file_bytes),
            Self::Gulps { bytes } => (b'g', bytes, 0),
        };
        let mut request = [0; 17];
        request[0] = kind;
        request[1..9].copy_from_slice(&one.to_be_bytes());
        request[9..].copy_from_slice(&two.to_be_bytes());
        request
    }

    fn decode(request: [u8; 17]) -> io::Result<Self> {
        let number = |from: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&request[from..from + 8]);
            u64::from_be_bytes(bytes)
        };
        let (one, two) = (number(1), number(9));
        let echo_max = ECHO_BYTES_MAX as u64;
        match request[0] {
            b'e' if (1..=echo_max).contains(&one) => Ok(Self::Echo { bytes: one }),
            b's' if (1..=TRANSFER_BYTES_MAX).contains(&one) && two <= one => Ok(Self::Swallow {
                bytes: one,
                first_bytes: two,
            }),
            b'b' if (1..=BLOCK_BYTES_MAX).contains(&one)
                && (one..=TRANSFER_BYTES_MAX).contains(&two) =>
            {
                Ok(Self::Blocks {
                    bytes: one,
                    file_bytes: two,
                })
            }
            b'g' if (1..=TRANSFER_BYTES_MAX).contains(&one) => Ok(Self::Gulps { bytes: one }),
            _ => Err(io::Error::from(ErrorKind::InvalidData)),
        }
    }
}

/// Connects to a peer and asks.
pub(super) fn ask(peer: SocketAddr, what: Ask) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&peer, WAIT_MAX)?;
    bound(&stream)?;
    stream.write_all(&what.encode())?;
    Ok(stream)
}

/// Lets no wait on a connection be longer than allowed.
pub(super) fn bound(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))
}

/// Finds a peer by name.
///
/// # Errors
///
/// If there is no such host.
pub fn find(host: &str) -> io::Result<SocketAddr> {
    let with_port = if host.parse::<std::net::Ipv6Addr>().is_ok() {
        format!("[{host}]:{PORT}")
    } else if host
        .rsplit(']')
        .next()
        .is_some_and(|rest| rest.contains(':'))
    {
        host.to_owned()
    } else {
        format!("{host}:{PORT}")
    };
    let found = with_port.to_socket_addrs()?.next();
    found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("{host} has no address")))
}

/// Where a peer listens unless told otherwise.
pub const PORT: u16 = 7010;

/// A peer that listens.
#[derive(Debug)]
pub struct Peer {
    listener: TcpListener,
    datagrams: UdpSocket,
    stopping: Arc<AtomicBool>,
}

/// A peer on a thread of its own, stopped when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) address: SocketAddr,
    stopping: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Peer {
    /// Listens for connections and datagrams at `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// If one of the two is taken.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let datagrams = UdpSocket::bind(listener.local_addr()?)?;
        datagrams.set_read_timeout(Some(TURN))?;
        listener.set_nonblocking(false)?;
        // Of a listener it is how long it waits for a connection (socket(7), SO_RCVTIMEO).
        SockRef::from(&listener).set_read_timeout(Some(TURN))?;
        Ok(Self {
            listener,
            datagrams,
            stopping: Arc::default(),
        })
    }

    /// Where.
    ///
    /// # Errors
    ///
    /// If the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process ends.
    pub fn serve(self) {
        for thread in self.start() {
            // A thread that has failed has said so; the other may go on.
            drop(thread.join());
        }
    }

    /// Serves on threads of its own, which run where the caller may run and in the caller's
    /// namespace.
    pub(super) fn run(self) -> io::Result<Running> {
        let address = self.address()?;
        let stopping = Arc::clone(&self.stopping);
        let threads = self.start();
        Ok(Running {
            address,
            stopping,
            threads,
        })
    }

    fn start(self) -> Vec<thread::JoinHandle<()>> {
        let Self {
            listener,
            datagrams,
            stopping,
        } = self;
        let echo = {
            let stopping = Arc::clone(&stopping);
            thread::spawn(move || echo_datagrams(&datagrams, &stopping))
        };
        let accept = thread::spawn(move || accept_all(&listener, &stopping));
        vec![echo, accept]
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Both look whether they are to stop, without a packet: where the network is down none
        // would come.
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

/// How often a waiting thread looks whether it is to stop.
const TURN: Duration = Duration::from_millis(200);

fn echo_datagrams(socket: &UdpSocket, stopping: &AtomicBool) {
    let mut datagram = [0; ECHO_BYTES_MAX];
    while !stopping.load(Ordering::Relaxed) {
        if let Ok((bytes, from)) = socket.recv_from(&mut datagram) {
            // A lost answer is the asker's to notice.
            socket.send_to(&datagram[..bytes], from).ok();
        }
    }
}

fn accept_all(listener: &TcpListener, stopping: &AtomicBool) {
    let connections = Arc::new(AtomicUsize::new(0));
    while !stopping.load(Ordering::Relaxed) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue;
        }
        connections.fetch_add(1, Ordering::Relaxed);
        let leaving = Arc::clone(&connections);
        thread::spawn(move || {
            // However it ends, the asker sees its end of it.
            drop(answer(stream));
            leaving.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    bound(&stream)?;
    let mut request = [0; 17];
    stream.read_exact(&mut request)?;
    match Ask::decode(request)? {
        Ask::Echo { bytes } => {
            let mut message = vec![0; usize::try_from(bytes).unwrap_or(ECHO_BYTES_MAX)];
            loop {
                stream.read_exact(&mut message)?;
                stream.write_all(&message)?;
            }
        }
        Ask::Swallow { bytes, first_bytes } => {
            let taken_ns = swallow(&mut stream, bytes, first_bytes)?;
            stream.write_all(&taken_ns.to_be_bytes())
        }
        Ask::Blocks { bytes, file_bytes } => blocks(&mut stream, bytes, file_bytes),
        Ask::Gulps { bytes } => gulps(&mut stream, bytes),
    }
}

/// Reads what there is, up to `bytes`; how much that was, 0 at the end.
fn read_some(stream: &mut TcpStream, buffer: &mut [u8], bytes: u64) -> io::Result<u64> {
    let room = usize::try_from(bytes).map_or(buffer.len(), |it| it.min(buffer.len()));
    Ok(stream.read(&mut buffer[..room])? as u64)
}

/// Swallows `bytes`, and says how long it took from the first `first_bytes` of them to the last.
fn swallow(stream: &mut TcpStream, bytes: u64, first_bytes: u64) -> io::Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let mut begin = None;
    let mut left = bytes;
    while left > 0 {
        match read_some(stream, &mut buffer, left)? {
            0 => return Err(io::Error::from(ErrorKind::UnexpectedEof)),
            read => left -= read,
        }
        if begin.is_none() && bytes - left >= first_bytes {
            begin = Some((std::time::Instant::now(), left));
        }
    }
    let Some((begin, left)) = begin else {
        return Ok(0);
    };
    let taken_ns = begin.elapsed().as_nanos();
    // Scaled to all of them, so that the asker can divide.
    let part = ratio(bytes, left.max(1));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "seconds at most, in ns"
    )]
    Ok((taken_ns as f64 * part) as u64)
}

/// Says that it is ready, and answers each `bytes` with one.
fn gulps(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    stream.write_all(b"r")?;
    loop {
        let mut left = bytes;
        while left > 0 {
            match read_some(stream, &mut buffer, left)? {
                0 => return Ok(()),
                read => left -= read,
            }
        }
        stream.write_all(b"g")?;
    }
}

/// Answers each offset with a block of a file that is made for this.
fn blocks(stream: &mut TcpStream, bytes: u64, file_bytes: u64) -> io::Result<()> {
    let file = tempfile::tempfile()?;
    let mut block = vec![7; usize::try_from(bytes).unwrap_or(0)];
    for at in (0..file_bytes).step_by(block.len()) {
        file.write_all_at(&block, at)?;
    }
    stream.write_all(b"r")?;
    let mut offset = [0; 8];
    loop {
        stream.read_exact(&mut offset)?;
        let at = u64::from_be_bytes(offset);
        if at > file_bytes - bytes {
            return Err(io::Error::from(ErrorKind::InvalidData));
        }
        file.read_exact_at(&mut block, at)?;
        stream.write_all(&block)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Running {
        let address = "127.0.0.1:0".parse().unwrap();
        Peer::listen(address).unwrap().run().unwrap()
    }

    #[test]
    fn it_ends_where_the_network_is_down() {
        let mut peer = peer();
        // As in a container whose loopback nobody has brought up: it cannot be reached.
        peer.address = "127.0.0.1:1".parse().unwrap();
        let (ended, has_ended) = std::sync::mpsc::channel();
        thread::spawn(move || {
            drop(peer);
            ended.send(()).unwrap();
        });
        has_ended.recv_timeout(WAIT_MAX).expect("it ends by itself");
    }

    #[test]
    fn it_echoes_swallows_and_reads_blocks() {
        let peer = peer();
        let mut echo = ask(peer.address, Ask::Echo { bytes: 56 }).unwrap();
        for byte in 0..3 {
            let mut message = [byte; 56];
            echo.write_all(&message).unwrap();
            message.fill(9);
            echo.read_exact(&mut message).unwrap();
            assert_eq!(message, [byte; 56]);
        }
        let bytes = 1 << 20;
        let mut swallow = ask(
            peer.address,
            Ask::Swallow {
                bytes,
                first_bytes: 1,
            },
        )
        .unwrap();
        swallow.write_all(&vec![1; 1 << 20]).unwrap();
        let mut answer = [0; 8];
        swallow.read_exact(&mut answer).unwrap();
        assert!(u64::from_be_bytes(answer) > 0);
        let mut blocks = ask(
            peer.address,
            Ask::Blocks {
                bytes: 4096,
                file_bytes: 8192,
            },
        )
        .unwrap();
        let mut ready = [0; 1];
        blocks.read_exact(&mut ready).unwrap();
        let mut block = [0; 4096];
        blocks.write_all(&4096_u64.to_be_bytes()).unwrap();
        blocks.read_exact(&mut block).unwrap();
        assert_eq!(block, [7; 4096]);
        blocks.write_all(&4097_u64.to_be_bytes()).unwrap();
        assert!(blocks.read_exact(&mut block).is_err(), "beyond the file");
        let bytes = 300_000;
        let mut gulps = ask(peer.address, Ask::Gulps { bytes }).unwrap();
        gulps.read_exact(&mut ready).unwrap();
        for _ in 0..3 {
            gulps.write_all(&vec![1; 299_999]).unwrap();
            gulps
                .set_read_timeout(Some(Duration::from_millis(20)))
                .unwrap();
            assert!(gulps.read_exact(&mut ready).is_err(), "a byte is missing");
            gulps.set_read_timeout(Some(WAIT_MAX)).unwrap();
            gulps.write_all(&[1]).unwrap();
            gulps.read_exact(&mut ready).unwrap();
        }
    }

    #[test]
    fn more_than_it_may_hold_is_refused() {
        let ok = |what: Ask| Ask::decode(what.encode()).is_ok();
        let echo_max = ECHO_BYTES_MAX as u64;
        assert!(ok(Ask::Echo { bytes: echo_max }));
        assert!(
            !ok(Ask::Echo {
                bytes: echo_max + 1
            }) && !ok(Ask::Echo { bytes: 0 })
        );
        assert!(ok(Ask::Swallow {
            bytes: TRANSFER_BYTES_MAX,
            first_bytes: 0
        }));
        assert!(!ok(Ask::Swallow {
            bytes: TRANSFER_BYTES_MAX + 1,
            first_bytes: 0
        }));
        assert!(!ok(Ask::Swallow {
            bytes: 5,
            first_bytes: 6
        }));
        let blocks = |bytes, file_bytes| ok(Ask::Blocks { bytes, file_bytes });
        assert!(blocks(BLOCK_BYTES_MAX, TRANSFER_BYTES_MAX));
        assert!(
            !blocks(BLOCK_BYTES_MAX + 1, TRANSFER_BYTES_MAX)
                && !blocks(4096, TRANSFER_BYTES_MAX + 1)
        );
        assert!(!blocks(4096, 4095));
        assert!(!ok(Ask::Gulps { bytes: 0 }));
        assert!(!ok(Ask::Gulps {
            bytes: TRANSFER_BYTES_MAX + 1
        }));
        assert!(Ask::decode([b'x'; 17]).is_err());
    }

    #[test]
    fn one_connection_too_many_is_closed() {
        let peer = peer();
        let held: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| {
                let mut stream = ask(peer.address, Ask::Echo { bytes: 1 }).unwrap();
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
                stream
            })
            .collect();
        let mut more = ask(peer.address, Ask::Echo { bytes: 1 }).unwrap();
        more.write_all(b"x").ok();
        assert!(more.read_exact(&mut [0]).is_err());
        drop(held);
    }

    #[test]
    fn peers_are_found_by_name_with_and_without_a_port() {
        assert_eq!(find("127.0.0.1").unwrap().to_string(), "127.0.0.1:7010");
        assert_eq!(find("127.0.0.1:5").unwrap().to_string(), "127.0.0.1:5");
        assert_eq!(find("::1").unwrap().to_string(), "[::1]:7010");
        assert_eq!(find("[::1]:5").unwrap().to_string(), "[::1]:5");
        assert!(find("").is_err());
    }
}
