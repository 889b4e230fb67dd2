//! A viewer's connection, with TLS or without: requests and answers, and packets that come between
//! them.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use onrush_testkit::connection::{DISCARD_BYTES_MAX, discard, wake_up_at};
use rustix::net::RecvFlags;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::tls_peer;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes that wait before they are thrown away: one burst of 20 ms at a time, 10 KB at 4 Mbit/s,
/// would keep the generator so busy that senders wait for it. Much more would be missed of those
/// who watch for two seconds.
const UNREAD_BYTES: u32 = 16 << 10;

/// What TLS takes to begin: what all share, and the server's name.
#[derive(Clone, Debug)]
pub(super) struct TlsTo {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    session: Option<Box<ClientConnection>>,
    /// Whether it is readable only when [`UNREAD_BYTES`] have come.
    waits_for_many: bool,
}

impl Connection {
    /// Connects to the first of these addresses that answers ([`connect`]), and shakes hands.
    pub(super) async fn open(
        addresses: &[SocketAddr],
        tls: Option<&TlsTo>,
        connect_time_max: Duration,
    ) -> io::Result<Self> {
        let socket = connect(addresses, connect_time_max).await?;
        socket.set_nodelay(true)?;
        let session = tls.map(|tls| {
            let made = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
            made.map(Box::new).map_err(io::Error::other)
        });
        let session = session.transpose()?;
        let mut connection = Self {
            socket,
            session,
            waits_for_many: false,
        };
        connection.shake_hands().await?;
        Ok(connection)
    }

    async fn shake_hands(&mut self) -> io::Result<()> {
        let mut early = Vec::new();
        loop {
            self.flush().await?;
            let is_done = self.session.as_ref().is_none_or(|it| !it.is_handshaking());
            if is_done {
                return Ok(());
            }
            if self.receive(&mut early).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Where this end of it is.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends a request.
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.session {
            None => self.socket.write_all(bytes).await,
            Some(session) => {
                io::Write::write_all(&mut session.writer(), bytes)?;
                self.flush().await
            }
        }
    }

    /// Sends what TLS has to say.
    async fn flush(&mut self) -> io::Result<()> {
        let mut sealed = Vec::new();
        if let Some(session) = &mut self.session {
            while session.wants_write() {
                session.write_tls(&mut sealed)?;
            }
        }
        self.socket.write_all(&sealed).await
    }

    /// Waits for something and puts its data, which may be none, behind `received`: how many bytes
    /// came on the connection, 0 at its end. Nothing is lost if nobody waits to the end.
    pub(super) async fn receive(&mut self, received: &mut Vec<u8>) -> io::Result<usize> {
        thread_local! {
            // One for all: nobody waits while it is in use.
            static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
        }
        loop {
            self.socket.readable().await?;
            let (socket, session) = (&self.socket, &mut self.session);
            let read = READ.with_borrow_mut(|buffer| {
                let bytes = socket.try_read(buffer)?;
                match session {
                    None => received.extend_from_slice(&buffer[..bytes]),
                    Some(session) => tls_peer::open(session, &buffer[..bytes], received)?,
                }
                Ok(bytes)
            });
            match read {
                Err(error) if is_wait(&error) => {}
                done => return done,
            }
        }
    }

    /// Waits for something, the first time, or for much, and throws it away, without having it
    /// copied: how many bytes came, 0 at the end. What follows cannot be told apart from then on.
    pub(super) async fn discard(&mut self) -> io::Result<u64> {
        let bytes = self.discard_what_came().await?;
        // Not before: when the first of it came is measured.
        if bytes > 0 && !self.waits_for_many {
            wake_up_at(&self.socket, UNREAD_BYTES)?;
            self.waits_for_many = true;
        }
        Ok(bytes)
    }

    async fn discard_what_came(&self) -> io::Result<u64> {
        loop {
            self.socket.readable().await?;
            let taken = self.socket.try_io(Interest::READABLE, || {
                discard(&self.socket, DISCARD_BYTES_MAX as u64, RecvFlags::DONTWAIT)
            });
            match taken {
                Err(error) if is_wait(&error) => {}
                done => return done,
            }
        }
    }
}

/// Connects to the first of these addresses that answers. Each has an equal part of what is left of
/// the time: where a firewall drops what is sent, nobody says no.
pub(super) async fn connect(addresses: &[SocketAddr], time_max: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + time_max;
    let mut last: io::Error = io::ErrorKind::AddrNotAvailable.into();
    for (&address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let part = until.saturating_duration_since(Instant::now()) / left;
        last = match timeout(part, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
    }
    Err(last)
}

fn is_wait(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::net::{TcpListener, TcpStream as Plain};

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn an_address_that_does_not_answer_is_passed_over() {
        let [silent, listener] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [nobody, there] = [&silent, &listener].map(|it| it.local_addr().unwrap());
        // The kernel drops who comes to a full queue that nobody takes from.
        rustix::net::listen(&silent, 0).unwrap();
        let fill = || Plain::connect_timeout(&nobody, Duration::from_millis(500)).ok();
        let _queue: Vec<_> = iter::from_fn(fill).collect();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let connected = |addresses: &[SocketAddr], time_max| {
            let stream = runtime.block_on(connect(addresses, time_max));
            stream.map(|stream| stream.peer_addr().unwrap())
        };
        let reached = connected(&[nobody, there], Duration::from_secs(2));
        assert_eq!(reached.unwrap(), there);
        let none = connected(&[nobody], Duration::from_millis(100));
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
