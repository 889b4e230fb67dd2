//! A TCP connection to the far end of a testbed, where somebody reads all that comes and counts it.

use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_sys::thread::pin_to;
use onrush_testkit::testbed::{RCV_IPV4, Testbed};

/// How long a connection, a write and the last byte may take.
const WAIT_MAX: Duration = Duration::from_secs(10);
const BUFFER_BYTES: usize = 256 << 10;

/// The near end, and who reads at the far one.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) socket: TcpStream,
    arrived: Arc<AtomicU64>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    /// Connects. Who reads is bound to `reader_core`, away from whoever sends.
    pub(super) fn open(testbed: &Testbed, reader_core: usize) -> io::Result<Self> {
        let listener = testbed.rcv.run(|| TcpListener::bind((RCV_IPV4, 0)))?;
        let address = listener.local_addr()?;
        let socket = testbed
            .snd
            .run(|| TcpStream::connect_timeout(&address, WAIT_MAX))?;
        socket.set_write_timeout(Some(WAIT_MAX))?;
        // Connected already, so that this does not wait.
        let (mut far, _) = listener.accept()?;
        let arrived = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&arrived);
        let reader = thread::Builder::new().name("reader".to_owned());
        let reader = reader.spawn(move || {
            pin_to(reader_core).ok();
            let mut buffer = vec![0; BUFFER_BYTES];
            while let Ok(bytes) = far.read(&mut buffer)
                && bytes > 0
            {
                count.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        })?;
        Ok(Self {
            socket,
            arrived,
            reader: Some(reader),
        })
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

impl Drop for Stream {
    fn drop(&mut self) {
        // The reader sees its end; an error means that there is no connection left, and so no reader.
        self.socket.shutdown(Shutdown::Both).ok();
        drop(self.reader.take().map(JoinHandle::join));
    }
}
