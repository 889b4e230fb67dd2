//! A connection that packets of streams leave on, framed, between messages of control's own: as
//! control sees it.
//!
//! Whoever asked on a connection is answered on it, and RTCP goes there, too. So that nothing lands
//! in the midst of a frame, one side writes: the engine that has the connection's streams. Control
//! gives it whole messages, which leave in their order, before what streams send later and behind
//! what they have sent. Control alone reads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onrush_sys::socket::unacknowledged_bytes;

use super::connection_shared::{ConnectionShared, Message};
use super::remote::{COMMANDS_MAX, Command, Remote};
use super::srtp::StreamSrtp;
use super::{EngineError, Engines};
use crate::tls::record::{NewKey, Sealer};

/// Bytes of messages that may wait for a client before [`InterleavedConnection::try_send`] refuses
/// more.
pub const MESSAGES_WAITING_BYTES_MAX: usize = 16 << 10;

/// Commands that may wait for an engine while frames of live channels are among them: as many more
/// are left to control.
const FRAME_COMMANDS: usize = COMMANDS_MAX / 2;

/// Who gets a stream's packets.
#[derive(Debug)]
pub enum Destination {
    /// Whom a datagram socket is connected to. Its path sets its options, and the engine closes it.
    Socket(OwnedFd),
    /// Likewise, and nobody else can read what is sent.
    Encrypted {
        /// As above.
        socket: OwnedFd,
        /// What its packets are encrypted with, and no other's.
        srtp: Arc<StreamSrtp>,
    },
    /// Whoever is at the other end of a connection.
    Interleaved {
        /// Of the engines that are to have the stream.
        connection: Arc<InterleavedConnection>,
        /// What its frames are marked with.
        channel: u8,
    },
}

impl<T: Into<OwnedFd>> From<T> for Destination {
    fn from(socket: T) -> Self {
        Self::Socket(socket.into())
    }
}

/// A connection of an engine's. Dropped, it is ended.
#[derive(Debug)]
pub struct InterleavedConnection {
    remote: Arc<Remote>,
    number: u32,
    shared: Arc<ConnectionShared>,
    /// The engine's.
    socket: Arc<OwnedFd>,
    /// The number of the message that was the last new key; 0 before there is one.
    key_number: AtomicU64,
}

/// Engines that were given frames and sleep on, if they do, until it is dropped: to wake one enters
/// the kernel.
#[derive(Debug, Default)]
pub(crate) struct Unwoken(Vec<Arc<Remote>>);

impl Unwoken {
    fn add(&mut self, remote: &Arc<Remote>) {
        if !self.0.iter().any(|it| Arc::ptr_eq(it, remote)) {
            self.0.push(Arc::clone(remote));
        }
    }
}

impl Drop for Unwoken {
    fn drop(&mut self) {
        self.0.iter().for_each(|remote| remote.waker.wake());
    }
}

impl InterleavedConnection {
    /// Gives a message to be sent, and waits until the kernel has taken it.
    ///
    /// # Errors
    ///
    /// Why nothing leaves on the connection any more.
    pub async fn write(&self, message: Vec<u8>) -> io::Result<()> {
        let number = self.give(Message::Bytes(message.into_boxed_slice()))?;
        self.taken(number).await
    }

    /// Says by TLS, if the connection has it, that nothing more comes, and waits until the kernel
    /// has taken that.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub(crate) async fn close_notify(&self) -> io::Result<()> {
        let number = self.give(Message::CloseNotify)?;
        self.taken(number).await
    }

    /// From here on another key seals what leaves: the one that `next` makes, if it can. None is
    /// made while one that was given before waits, or a client that takes nothing could have us
    /// hold any number of them.
    ///
    /// # Errors
    ///
    /// As [`Self::try_send`].
    pub(crate) fn change_key(&self, next: impl FnOnce() -> Option<Box<NewKey>>) -> io::Result<()> {
        let answered = self.shared.answered.load(Ordering::Acquire);
        if answered < self.key_number.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(key) = next() {
            self.shared.is_worn.store(false, Ordering::Relaxed);
            let number = self.give(Message::NewKey(key))?;
            self.key_number.store(number, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the key has sealed so much that another is to be given.
    pub(crate) fn is_worn(&self) -> bool {
        self.shared.is_worn.load(Ordering::Relaxed)
    }

    /// Waits until the kernel has taken the message of this number.
    async fn taken(&self, number: u64) -> io::Result<()> {
        loop {
            let changed = self.shared.changed.notified();
            if self.shared.answered.load(Ordering::Acquire) >= number {
                return self.shared.failure().map_or(Ok(()), Err);
            }
            if let Some(error) = self.shared.failure() {
                return Err(error);
            }
            // An engine that panics tells nobody.
            drop(tokio::time::timeout(STOPPED_EVERY, changed).await);
            if self.remote.has_stopped() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    }

    /// Gives a message to be sent, unless too much waits for the client already.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if too much waits; else why nothing leaves on the connection any more.
    pub fn try_send(&self, message: Vec<u8>) -> io::Result<()> {
        if self.waiting_bytes() + message.len() > MESSAGES_WAITING_BYTES_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.give(Message::Bytes(message.into_boxed_slice()))
            .map(drop)
    }

    /// Gives frames of a live channel to be sent, however much waits for the client: the caller has
    /// a bound of its own.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the engine has no [room](Self::has_room); else why nothing leaves on the
    /// connection any more.
    pub(crate) fn try_send_frames(&self, frames: Vec<u8>, unwoken: &mut Unwoken) -> io::Result<()> {
        if !self.has_room() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.give_unwoken(Message::Bytes(frames.into_boxed_slice()))?;
        unwoken.add(&self.remote);
        Ok(())
    }

    /// Whether the engine has so few commands to take that it may be given frames.
    pub(crate) fn has_room(&self) -> bool {
        self.remote.commands.len() < FRAME_COMMANDS
    }

    /// Messages that the kernel has not taken yet.
    pub(crate) fn waiting(&self) -> u64 {
        let answered = self.shared.answered.load(Ordering::Acquire);
        let given = self.shared.given.load(Ordering::Relaxed);
        given.saturating_sub(answered)
    }

    /// Bytes of all messages that were given.
    pub(crate) fn given_bytes(&self) -> u64 {
        self.shared.given_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of messages that the kernel has not taken yet.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.shared.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that its client has not acknowledged: those that wait, and those that lie in the
    /// socket, whose buffer is as large as the engine wants it.
    #[must_use]
    pub fn unacknowledged_bytes(&self) -> usize {
        let in_socket = unacknowledged_bytes(&*self.socket).unwrap_or(0);
        self.waiting_bytes() + in_socket
    }

    /// Whether nothing leaves on it any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.failure().is_some() || self.remote.has_stopped()
    }

    pub(super) fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The number of the message among all.
    fn give(&self, message: Message) -> io::Result<u64> {
        let number = self.give_unwoken(message)?;
        self.remote.waker.wake();
        Ok(number)
    }

    /// As [`Self::give`], and the engine is still to be woken.
    fn give_unwoken(&self, message: Message) -> io::Result<u64> {
        if let Some(error) = self.shared.failure() {
            return Err(error);
        }
        let bytes = message.len();
        self.shared
            .waiting_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        let command = Command::Message {
            connection: self.number,
            message,
        };
        if self.remote.commands.push(command).is_err() || self.remote.has_stopped() {
            self.shared
                .waiting_bytes
                .fetch_sub(bytes, Ordering::Relaxed);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.shared
            .given_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(self.shared.given.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Drop for InterleavedConnection {
    fn drop(&mut self) {
        let connection = self.number;
        self.remote
            .push_surely(Command::CloseConnection { connection });
    }
}

/// How often an engine is looked at that may have stopped without a word.
const STOPPED_EVERY: Duration = Duration::from_secs(1);

#[cfg(feature = "experiments")]
impl Engines {
    /// For experiments: the writing side of a connection of the caller's, which has no requests.
    /// With `tls`, whose handshake is over and all of it sent, what leaves is sealed with its key.
    ///
    /// # Errors
    ///
    /// As of a connection that is accepted; and [`EngineError::Interleaving`] if the key cannot be
    /// taken out of `tls` (`ServerConfig::enable_secret_extraction`).
    pub fn connect(
        &self,
        socket: OwnedFd,
        tls: Option<rustls::ServerConnection>,
    ) -> Result<Arc<InterleavedConnection>, EngineError> {
        let sealer = tls.map(Sealer::of).transpose();
        let mut sealer = sealer.map_err(|_| EngineError::Interleaving)?;
        self.open_connection(socket, &mut sealer)
    }
}

impl Engines {
    /// Gives the writing side of a connection to the engine that has least to do: `socket` is a
    /// descriptor of its own, and what leaves is sealed if there is a `sealer`, which stays where
    /// it is if no engine takes the connection: then the refusal is sealed by it.
    ///
    /// # Errors
    ///
    /// [`EngineError::Interleaving`] if the engine's data path has no way to;
    /// [`EngineError::Busy`], [`EngineError::Full`] or [`EngineError::Stopped`] if no engine takes
    /// it.
    pub(crate) fn open_connection(
        &self,
        socket: OwnedFd,
        sealer: &mut Option<Sealer>,
    ) -> Result<Arc<InterleavedConnection>, EngineError> {
        let remote = Arc::clone(self.least_busy()?);
        if !remote.shared.sends_streams.load(Ordering::Relaxed) {
            return Err(EngineError::Interleaving);
        }
        let socket = Arc::new(socket);
        let number = remote.connections.take().ok_or(EngineError::Full {
            streams_max: remote.streams_max,
        })?;
        let shared = Arc::<ConnectionShared>::default();
        let open = Command::OpenConnection {
            connection: number,
            shared: Arc::clone(&shared),
            socket: Arc::clone(&socket),
            sealer: sealer.take().map(Box::new),
        };
        if let Err(unsent) = remote.push(open) {
            remote.connections.put_back(number);
            if let Command::OpenConnection { sealer: unused, .. } = unsent {
                *sealer = unused.map(|it| *it);
            }
            return Err(EngineError::Busy);
        }
        if remote.has_stopped() {
            return Err(EngineError::Stopped);
        }
        Ok(Arc::new(InterleavedConnection {
            remote,
            number,
            shared,
            socket,
            key_number: AtomicU64::new(0),
        }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use onrush_sys::wake::Waker;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::super::EngineConfig;
    use super::*;
    use crate::tls::record::tests::new_key;

    /// A connection of an engine that takes what it is given when it is told to, and its client.
    pub(crate) struct ManualConnection {
        pub(crate) connection: Arc<InterleavedConnection>,
        writing: TcpStream,
        _client: TcpStream,
    }

    impl ManualConnection {
        pub(crate) fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (writing, _) = listener.accept().unwrap();
            let socket = writing.try_clone().unwrap();
            Self {
                connection: Arc::new(connection(socket.into())),
                writing,
                _client: client,
            }
        }

        /// The engine has as many commands to take as leave no room for frames.
        pub(crate) fn fill(&self) {
            let connection = self.connection.number;
            while self.connection.has_room() {
                let command = Command::CloseConnection { connection };
                self.connection.remote.send(command).unwrap();
            }
        }

        /// The engine takes all that it was given: how long messages are.
        pub(crate) fn take(&self) -> Vec<usize> {
            let mut lengths = Vec::new();
            while let Some(command) = self.connection.remote.commands.pop() {
                if let Command::Message {
                    message: Message::Bytes(bytes),
                    ..
                } = command
                {
                    (&self.writing).write_all(&bytes).unwrap();
                    self.connection.shared.answer(bytes.len());
                    lengths.push(bytes.len());
                }
            }
            lengths
        }
    }

    /// One of an engine that takes no turn.
    fn connection(socket: OwnedFd) -> InterleavedConnection {
        let waker = Arc::new(Waker::new().unwrap());
        let remote = Arc::new(Remote::new(&EngineConfig::default(), waker));
        InterleavedConnection {
            number: remote.connections.take().unwrap(),
            remote,
            shared: Arc::default(),
            socket: Arc::new(socket),
            key_number: AtomicU64::new(0),
        }
    }

    #[test]
    fn an_engine_is_woken_once_for_the_frames_of_many() {
        let manual = ManualConnection::new();
        let is_woken = || {
            let waker = manual.connection.remote.waker.as_fd();
            let mut awaited = [PollFd::from_borrowed_fd(waker, PollFlags::IN)];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            poll(&mut awaited, Some(&now)).unwrap() > 0
        };
        let mut unwoken = Unwoken::default();
        for _ in 0..3 {
            let frames = vec![0; 20];
            let given = manual.connection.try_send_frames(frames, &mut unwoken);
            given.unwrap();
        }
        assert_eq!(unwoken.0.len(), 1);
        assert!(!is_woken());
        drop(unwoken);
        assert!(is_woken());
        assert_eq!(manual.take(), [20; 3]);
    }

    /// Its client takes nothing, and asks again and again.
    #[test]
    fn one_new_key_at_a_time_waits_for_a_client() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let connection = connection(socket.into());
        let given = || connection.remote.commands.len();
        let ask = || {
            for _ in 0..1000 {
                let key = || Some(Box::new(new_key()));
                connection.change_key(key).unwrap();
            }
        };
        connection.try_send(b"an answer".to_vec()).unwrap();
        ask();
        assert_eq!(given(), 2);
        // The kernel has taken what was given before it.
        connection.shared.answer(b"an answer".len());
        connection.shared.is_worn.store(true, Ordering::Relaxed);
        ask();
        assert_eq!(given(), 2);
        assert!(connection.is_worn(), "it is changed later");
        connection.shared.answer(0);
        ask();
        assert_eq!(given(), 3);
        assert!(!connection.is_worn());
    }
}
