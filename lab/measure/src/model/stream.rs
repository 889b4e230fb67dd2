//! A TCP connection to the far end of a testbed, or over loopback, where somebody reads all that
//! comes and counts it.
//!
//! While it is held, nobody reads: the window takes all that is sent, and what the sender takes is
//! its own. A reader on another processor would have its part in it, by each line of memory that
//! goes there and by being woken, and that part is another one from second to second where a host
//! moves processors about.

use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_sys::thread::pin_to;
use onrush_testkit::testbed::{RCV_IPV4, Testbed};

use crate::machine::Awake;
use crate::window;

/// How long a connection, a write and the last byte may take.
const WAIT_MAX: Duration = Duration::from_secs(10);
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes that may be sent while nobody reads.
pub(super) const HELD_BYTES_MAX: u64 = 64 << 20;
/// How long the reader waits before it looks whether it may read, and how long at the most: by then
/// more was sent than the window takes.
const LOOKS_EVERY: Duration = Duration::from_micros(200);
const HELD_FOR_MAX: Duration = Duration::from_secs(2);

/// The near end, and who reads at the far one.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) socket: TcpStream,
    arrived: Arc<AtomicU64>,
    /// While it is set, nobody reads.
    held: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    /// Keeps the reader's processor awake. Else whoever wakes it pays, three times as much at one
    /// time as at another.
    _awake: Awake,
}

impl Stream {
    /// Connects to the far end. Who reads is bound to `reader_core`, away from whoever sends.
    pub(super) fn open(testbed: &Testbed, reader_core: usize) -> io::Result<Self> {
        let listener = testbed.rcv.run(|| TcpListener::bind((RCV_IPV4, 0)))?;
        window::widen(&listener)?;
        let address = listener.local_addr()?;
        let socket = testbed
            .snd
            .run(|| TcpStream::connect_timeout(&address, WAIT_MAX))?;
        // Connected already, so that this does not wait.
        Self::between(socket, listener.accept()?.0, reader_core)
    }

    /// The same over loopback.
    pub(super) fn open_loopback(reader_core: usize) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        window::widen(&listener)?;
        let socket = TcpStream::connect_timeout(&listener.local_addr()?, WAIT_MAX)?;
        Self::between(socket, listener.accept()?.0, reader_core)
    }

    fn between(socket: TcpStream, mut far: TcpStream, reader_core: usize) -> io::Result<Self> {
        socket.set_write_timeout(Some(WAIT_MAX))?;
        let arrived = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&arrived);
        let held = Arc::new(AtomicBool::new(false));
        let its_held = Arc::clone(&held);
        let reader = thread::Builder::new().name("reader".to_owned());
        let reader = reader.spawn(move || {
            pin_to(reader_core).ok();
            let mut buffer = vec![0; BUFFER_BYTES];
            while let Ok(bytes) = far.read(&mut buffer)
                && bytes > 0
            {
                count.fetch_add(bytes as u64, Ordering::Relaxed);
                let since = Instant::now();
                while its_held.load(Ordering::Relaxed) && since.elapsed() < HELD_FOR_MAX {
                    thread::sleep(LOOKS_EVERY);
                }
            }
        })?;
        Ok(Self {
            socket,
            arrived,
            held,
            reader: Some(reader),
            _awake: Awake::keep(reader_core)?,
        })
    }

    /// Nobody reads beyond these bytes, which have been sent, until what is returned is dropped.
    /// Who is asleep in a read is woken by the first that come, and takes those.
    pub(super) fn hold(&self, sent: u64) -> Held {
        self.arrived_at_last(sent);
        self.held.store(true, Ordering::Relaxed);
        Held(Arc::clone(&self.held))
    }

    /// Bytes that have arrived so far.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Bytes that have arrived, once they are so many or nothing more comes.
    pub(super) fn arrived_at_last(&self, expected: u64) -> u64 {
        let deadline = Instant::now() + WAIT_MAX;
        while self.arrived() < expected && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        self.arrived()
    }
}

/// That nobody reads.
#[derive(Debug)]
pub(super) struct Held(Arc<AtomicBool>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.held.store(false, Ordering::Relaxed);
        // The reader sees its end; an error means that there is no connection left, and so no
        // reader.
        self.socket.shutdown(Shutdown::Both).ok();
        drop(self.reader.take().map(JoinHandle::join));
    }
}
