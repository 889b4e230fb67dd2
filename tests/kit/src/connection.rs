//! A TCP connection to a server, whose every wait ends: a server that says nothing is an error, not
//! a test that hangs.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::{RecvFlags, recv, sockopt};

use crate::message::{Head, Malformed, Response};

/// One connection, and what came on it and was not taken yet.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub stream: TcpStream,
    /// What came on it and was not taken yet.
    pub received: Vec<u8>,
}

/// The longest wait for a server that says nothing. Long, because it only ends tests that fail.
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// What [`discard`] takes off a connection at once at the most.
pub const DISCARD_BYTES_MAX: usize = 1 << 20;
/// What is read at once while a head is awaited: little, so that most of a body that follows it can
/// be left in the kernel.
const HEAD_STEP_BYTES: usize = 512;
const BODY_STEP_BYTES: usize = 64 << 10;

impl Connection {
    /// Connects. Every later wait for the server ends with an error after [`WAIT_MAX`].
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        Self::over(TcpStream::connect_timeout(&server, WAIT_MAX)?)
    }

    /// The same over a connection that is there.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT_MAX))?;
        stream.set_write_timeout(Some(WAIT_MAX))?;
        let received = Vec::new();
        Ok(Self { stream, received })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Waits for more; how many bytes came, 0 at the end.
    pub fn receive(&mut self) -> io::Result<usize> {
        self.receive_step(BODY_STEP_BYTES)
    }

    /// The next response's head, and the length that it announces. Of the body only the beginning
    /// is received. `UnexpectedEof` if the server closed instead.
    pub fn head(&mut self) -> io::Result<(Response, Option<u64>)> {
        loop {
            let parsed = Head::parse(&self.received).map_err(|error| self.garbled(error))?;
            if let Some((head, head_bytes)) = parsed {
                let length = head.content_length();
                let length = length.map_err(|error| self.garbled(error))?;
                let response = head.into_response().map_err(|error| self.garbled(error))?;
                let response = response.map_err(|_| self.garbled(Malformed))?;
                self.received.drain(..head_bytes);
                return Ok((response, length));
            }
            self.more(HEAD_STEP_BYTES)?;
        }
    }

    /// The next so many bytes.
    pub fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        while self.received.len() < bytes {
            self.more(BODY_STEP_BYTES)?;
        }
        Ok(self.received.drain(..bytes).collect())
    }

    /// Throws the next so many bytes away, without having them copied.
    pub fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let here = self
            .received
            .len()
            .min(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.received.drain(..here);
        let mut left = bytes - here as u64;
        while left > 0 {
            let taken = uninterrupted(|| discard(&self.stream, left, RecvFlags::empty()))?;
            if taken == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= taken;
        }
        Ok(())
    }

    /// Whether nothing more comes: the server has closed, or closes within [`WAIT_MAX`].
    pub fn is_closed(&mut self) -> bool {
        let is_over = |error: io::Error| {
            !matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            )
        };
        self.received.is_empty() && self.receive().map_or_else(is_over, |bytes| bytes == 0)
    }

    fn more(&mut self, bytes_max: usize) -> io::Result<()> {
        match self.receive_step(bytes_max)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn receive_step(&mut self, bytes_max: usize) -> io::Result<usize> {
        let before = self.received.len();
        self.received.resize(before + bytes_max, 0);
        let room = &mut self.received[before..];
        let read = uninterrupted(|| self.stream.read(room));
        self.received
            .truncate(before + *read.as_ref().unwrap_or(&0));
        read
    }

    fn garbled(&self, error: Malformed) -> io::Error {
        let text = String::from_utf8_lossy(&self.received);
        unexpected(format!("{error}: {text:.1000}"))
    }
}

/// Takes up to so many bytes off a socket without having them copied (tcp(7), `MSG_TRUNC`); how
/// many it were, 0 at the end.
pub fn discard(socket: impl AsFd, bytes_max: u64, flags: RecvFlags) -> io::Result<u64> {
    thread_local! {
        static NOWHERE: RefCell<Vec<u8>> = RefCell::new(vec![0; DISCARD_BYTES_MAX]);
    }
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    NOWHERE.with_borrow_mut(|nowhere| {
        let nowhere = &mut nowhere[..bytes_max.min(DISCARD_BYTES_MAX)];
        let (_, taken) = recv(socket, nowhere, flags | RecvFlags::TRUNC)?;
        Ok(taken as u64)
    })
}

/// From here on a connection is readable when so many bytes wait, or when it ends (socket(7),
/// `SO_RCVLOWAT`), and has room for eight times as many. Who throws away what comes is woken up
/// seldom then, and a sender is not held up by his waiting.
pub fn wake_up_at(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let room = (bytes as usize).saturating_mul(8);
    let forced = sockopt::set_socket_recv_buffer_size_force(&socket, room);
    forced.or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, room))?;
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("four bytes");
    let (fd, value) = (socket.as_fd().as_raw_fd(), (&raw const value).cast());
    // SAFETY: `value` points to a live c_int, and `length` is its length.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, length) };
    (done == 0)
        .then_some(())
        .ok_or_else(io::Error::last_os_error)
}

/// Calls again what a signal interrupted. A ring of this process may wake any of its threads so
/// (task work of io_uring), and a read with a time-out is not restarted (signal(7)).
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

pub(crate) fn unexpected(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
pub(crate) mod testing {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread::{self, JoinHandle};

    use super::*;

    /// A server that answers the first request with these bytes, and closes; it gives the request.
    pub(crate) fn answered_with(answer: &'static [u8]) -> (SocketAddr, JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let mut connection = Connection::over(listener.accept().unwrap().0).unwrap();
            while !connection.received.ends_with(b"\r\n\r\n") {
                assert!(connection.receive().unwrap() > 0);
            }
            connection.send(answer).unwrap();
            connection.received
        });
        (address, server)
    }
}
