//! The other end of connections: all that comes is read on one thread, and every frame looked at.
//!
//! It runs on another processor than the sender. What arrives waits in that processor's queue, too
//! ([`Testbed::receive_on_one_processor`](onrush_testkit::testbed::Testbed)), so that the sender
//! pays for sending and not for what TCP does to receive.

use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use onrush_sys::clock::monotonic_ns;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::time::Timespec;
use rustls::ClientConnection;

use super::record::Arrived;
use crate::histogram::Histogram;
use crate::load::Follow;
use crate::machine::Background;
use crate::tls_peer;

/// How long what is under way may take to arrive.
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(5);

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Ticks a second of the timestamps of a transport stream.
const CLOCK_HZ: u32 = 90_000;

/// How often it is looked whether it is over while nothing comes.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// A connection's other end.
pub(super) struct ReceivingEnd {
    pub(super) socket: TcpStream,
    /// Its handshake is over.
    pub(super) tls: Option<ClientConnection>,
}

/// Receives until it is dropped.
pub(super) struct Receiver {
    _thread: Background,
    totals: Arc<Mutex<Totals>>,
}

#[derive(Default)]
struct Totals {
    packets: u64,
    bytes: u64,
    reads: u64,
    missing: u64,
    repeated: u64,
    lateness: Histogram,
    /// Why something cannot be understood.
    failed: Option<String>,
}

struct Connection {
    end: ReceivingEnd,
    /// The beginning of a frame.
    received: Vec<u8>,
    follow: Follow,
}

impl Receiver {
    /// Begins to receive.
    pub(super) fn start(ends: Vec<ReceivingEnd>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(ends.len());
        for (number, end) in (0..).zip(ends) {
            end.socket.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(number);
            epoll::add(&epoll, &end.socket, data, epoll::EventFlags::IN)?;
            connections.push(Connection {
                end,
                received: Vec::new(),
                follow: Follow::new(CLOCK_HZ),
            });
        }
        let totals = Arc::<Mutex<Totals>>::default();
        let its_totals = Arc::clone(&totals);
        let thread = Background::start("receive-frames", move |is_over| {
            let received = receive(&epoll, &mut connections, &its_totals, is_over);
            if let Err(error) = received {
                lock(&its_totals).failed = Some(error.to_string());
            }
        })?;
        Ok(Self {
            _thread: thread,
            totals,
        })
    }

    /// Packets so far, by how late they came.
    pub(super) fn lateness(&self) -> Histogram {
        lock(&self.totals).lateness.clone()
    }

    /// What has come once all of so many bytes of packets have, or nothing more does; and why it
    /// cannot be understood, if it cannot.
    pub(super) fn arrived(&self, bytes: u64) -> (Arrived, Option<String>) {
        let begin = Instant::now();
        while lock(&self.totals).bytes < bytes && begin.elapsed() < ARRIVAL_TIME_MAX {
            thread::sleep(Duration::from_millis(1));
        }
        let totals = lock(&self.totals);
        let arrived = Arrived {
            packets: totals.packets,
            bytes: totals.bytes,
            skbs: totals.reads,
            trains: 0,
            train_packets_max: 0,
            sequence_missing: totals.missing,
            sequence_repeated: totals.repeated,
        };
        (arrived, totals.failed.clone())
    }
}

fn lock(totals: &Mutex<Totals>) -> MutexGuard<'_, Totals> {
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}

fn receive(
    epoll: &std::os::fd::OwnedFd,
    connections: &mut [Connection],
    totals: &Mutex<Totals>,
    is_over: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut events = Vec::with_capacity(connections.len().max(1));
    while !is_over.load(Ordering::Relaxed) {
        events.clear();
        match epoll::wait(epoll, spare_capacity(&mut events), Some(&LOOK_EVERY)) {
            Err(rustix::io::Errno::INTR) => continue,
            waited => waited?,
        };
        for event in &events {
            let number = usize::try_from(event.data.u64()).map_err(io::Error::other)?;
            let connection = &mut connections[number];
            match connection.end.socket.read(&mut buffer) {
                // The sender is gone.
                Ok(0) => epoll::delete(epoll, &connection.end.socket)?,
                Ok(bytes) => connection.take(&buffer[..bytes], &mut lock(totals))?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

impl Connection {
    /// Takes what has come, and of it all frames that are whole.
    fn take(&mut self, bytes: &[u8], totals: &mut Totals) -> io::Result<()> {
        match &mut self.end.tls {
            None => self.received.extend_from_slice(bytes),
            Some(tls) => tls_peer::open(tls, bytes, &mut self.received)?,
        }
        totals.reads += 1;
        let now_ns = monotonic_ns();
        let mut rest = &self.received[..];
        while let [mark, _, high, low, behind @ ..] = rest {
            let packet_bytes = usize::from(u16::from_be_bytes([*high, *low]));
            if *mark != b'$' {
                return Err(io::Error::other("something that is no frame came"));
            }
            let Some((packet, behind)) = behind.split_at_checked(packet_bytes) else {
                break;
            };
            let before = (self.follow.arrived.lost, self.follow.arrived.repeated);
            let lateness_ns = self.follow.packet(packet, now_ns);
            let lateness_ns =
                lateness_ns.ok_or_else(|| io::Error::other("a frame that is no RTP came"))?;
            totals.lateness.count(lateness_ns, 1);
            totals.packets += 1;
            totals.bytes += packet.len() as u64;
            // In a connection nothing overtakes, so that nothing is found again.
            totals.missing += self.follow.arrived.lost.saturating_sub(before.0);
            totals.repeated += self.follow.arrived.repeated - before.1;
            rest = behind;
        }
        let taken = self.received.len() - rest.len();
        self.received.drain(..taken);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    fn frame(sequence: u16) -> Vec<u8> {
        let mut frame = vec![b'$', 0, 0, 13, 0x80, 33];
        frame.extend(sequence.to_be_bytes());
        frame.extend([7; 9]);
        frame
    }

    #[test]
    fn frames_are_counted_at_every_cut() {
        let sent: Vec<u8> = [1, 2, 4, 5].into_iter().flat_map(frame).collect();
        for cut in 0..sent.len() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (end, _) = listener.accept().unwrap();
            let end = ReceivingEnd {
                socket: end,
                tls: None,
            };
            let receiver = Receiver::start(vec![end]).unwrap();
            socket.write_all(&sent[..cut]).unwrap();
            let first = (cut / 17 * 13) as u64;
            assert_eq!(receiver.arrived(first).0.bytes, first);
            socket.write_all(&sent[cut..]).unwrap();
            let (arrived, failed) = receiver.arrived(4 * 13);
            assert_eq!((arrived.packets, arrived.bytes), (4, 52), "{cut}");
            assert_eq!((arrived.sequence_missing, failed), (1, None));
            assert_eq!(receiver.lateness().total(), 4);
        }
    }

    #[test]
    fn what_is_no_frame_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let end = ReceivingEnd {
            socket: listener.accept().unwrap().0,
            tls: None,
        };
        let receiver = Receiver::start(vec![end]).unwrap();
        socket.write_all(b"RTSP/1.0").unwrap();
        let give_up = Instant::now() + Duration::from_secs(60);
        while receiver.arrived(0).1.is_none() {
            assert!(Instant::now() < give_up);
        }
    }
}
