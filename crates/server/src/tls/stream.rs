//! A connection after its handshake: bytes in and out, as of a socket.
//!
//! Reading holds one record at the most, and no memory between two. What is sent is sealed here
//! until an engine takes the [`Sealer`] away; from then on what must be sent is for whoever gives
//! messages to that engine. Or until the kernel takes its key: from then on what is written to the
//! socket, by whomever, is sealed there.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onrush_sys::kernel_tls::send_record;
use onrush_sys::path::cue::is_writable;
use onrush_wire::tls::{
    FRAGMENT_BYTES_MAX, Meaning, RecordError, RecordReader, alert, record_bytes, record_type,
};
use rustls::SupportedCipherSuite;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::kernel::{KERNEL_TLS_BODY_BYTES_MIN, KernelKey, KernelTls};
use super::record::{NewKey, Opener, Sealer, alert_payload};

/// A connection after its handshake.
pub(crate) struct TlsStream {
    socket: TcpStream,
    opener: Opener,
    /// What has come, from the record on that is read now.
    received: Vec<u8>,
    /// What of its first record was not read yet; it is opened then.
    opened: Range<usize>,
    /// Bytes of that record, while it is opened.
    opened_bytes: usize,
    reader: RecordReader,
    /// The peer has said that nothing more comes.
    has_ended: bool,
    /// What the client and this server have agreed on, is HTTP/2 (ALPN, RFC 7301).
    pub(super) is_http2: bool,
    outgoing: RefCell<Outgoing>,
}

/// What makes a connection of its socket, which may have got into another runtime.
pub(crate) type Reattach = Box<dyn FnOnce(TcpStream) -> TlsStream + Send>;

/// The sending side, and what makes keys.
struct Outgoing {
    /// Until somebody takes it away, or the kernel its key.
    sealer: Option<Sealer>,
    kernel: Kernel,
    keys: KernelConnection<ServerConnectionData>,
    suite: SupportedCipherSuite,
    /// The peer waits for a new key.
    is_key_asked_for: bool,
    /// What is sealed, and what of it the socket has taken. If the kernel seals it is data.
    sealed: Vec<u8>,
    sent: usize,
}

/// What the kernel does of it.
enum Kernel {
    Nothing,
    /// It has not been asked yet.
    MayTake(Arc<KernelTls>),
    Seals(KernelKey),
}

impl TlsStream {
    /// `received` is what came behind the handshake.
    pub(super) fn new(
        socket: TcpStream,
        (opener, sealer): (Opener, Sealer),
        keys: KernelConnection<ServerConnectionData>,
        received: Vec<u8>,
    ) -> Self {
        let suite = opener.suite();
        Self {
            socket,
            opener,
            received,
            opened: 0..0,
            opened_bytes: 0,
            reader: RecordReader::default(),
            has_ended: false,
            is_http2: false,
            outgoing: RefCell::new(Outgoing {
                sealer: Some(sealer),
                kernel: Kernel::Nothing,
                keys,
                suite,
                is_key_asked_for: false,
                sealed: Vec::new(),
                sent: 0,
            }),
        }
    }

    /// The kernel may be asked to seal, if it is there.
    pub(super) fn may_use(&mut self, kernel: Option<Arc<KernelTls>>) {
        self.outgoing.get_mut().kernel = kernel.map_or(Kernel::Nothing, Kernel::MayTake);
    }

    /// The socket, and what makes a stream of it again, on whatever thread.
    pub(crate) fn detach(self) -> (TcpStream, Reattach) {
        let Self {
            socket,
            opener,
            received,
            opened,
            opened_bytes,
            reader,
            has_ended,
            is_http2,
            outgoing,
        } = self;
        let reattach = move |socket| Self {
            socket,
            opener,
            received,
            opened,
            opened_bytes,
            reader,
            has_ended,
            is_http2,
            outgoing,
        };
        (socket, Box::new(reattach))
    }

    /// The socket beneath.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Likewise, to close it.
    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Takes the sending side away. Nothing may be waiting to be sent.
    pub(crate) fn take_sealer(&self) -> Option<Sealer> {
        self.outgoing.borrow_mut().sealer.take()
    }

    /// Gives it back: whoever took it has sealed nothing.
    pub(crate) fn put_sealer_back(&self, sealer: Sealer) {
        self.outgoing.borrow_mut().sealer = Some(sealer);
    }

    /// Whether the peer waits for a new key.
    pub(crate) fn is_key_asked_for(&self) -> bool {
        self.outgoing.borrow().is_key_asked_for
    }

    /// A key that whoever has the sealer is to go on with, unless this version of TLS has none.
    /// Nobody asks for one from here on, so the peer must be told.
    pub(crate) fn next_key(&self) -> io::Result<Box<NewKey>> {
        self.outgoing.borrow_mut().next_key().map(Box::new)
    }

    /// Whether a read may bring something.
    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.has_something() {
            true => Poll::Ready(Ok(())),
            false => self.socket.poll_read_ready(context),
        }
    }

    /// Reads what is there; 0 at the end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is there; else why the connection must end. The peer has been told
    /// then, if it could be.
    pub(crate) fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.opened.is_empty() {
                return Ok(self.take(into));
            }
            if self.has_ended {
                return Ok(0);
            }
            let whole = match record_bytes(&self.received) {
                Ok(bytes) => bytes.filter(|&bytes| bytes <= self.received.len()),
                Err(error) => return Err(self.refuse(error)),
            };
            if let Some(bytes) = whole {
                self.open(bytes)?;
                continue;
            }
            let mut received = [0; RECEIVE_BYTES];
            match self.socket.try_read(&mut received)? {
                0 => return Ok(0),
                bytes => self.received.extend_from_slice(&received[..bytes]),
            }
        }
    }

    /// Whether the peer has said that nothing more comes. If reading has come to an end without it,
    /// something may have been cut off.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// As [`tokio::io::AsyncRead::poll_read`].
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_read_ready(context))?;
            match self.try_read(into.initialize_unfilled()) {
                Ok(bytes) => {
                    into.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Seals all of these bytes, and gives the socket what it takes. What it does not waits for
    /// [`Self::try_flush`], so call it when nothing waits.
    pub(crate) fn try_send(&self, bytes: &[u8]) -> io::Result<()> {
        for fragment in bytes.chunks(FRAGMENT_BYTES_MAX) {
            self.outgoing.borrow_mut().seal(fragment)?;
        }
        self.try_flush().map(drop)
    }

    /// Gives the socket what is sealed. Whether it has taken all, and if the kernel seals, whether
    /// the connection has room, so that nothing is lost when it is closed: what does not fit into
    /// the socket, the kernel keeps in front of it (net/tls/tls_sw.c, `tls_push_record`).
    pub(crate) fn try_flush(&self) -> io::Result<bool> {
        let outgoing = &mut *self.outgoing.borrow_mut();
        while outgoing.sent < outgoing.sealed.len() {
            outgoing.check_kernel_key(&self.socket)?;
            match self.socket.try_write(&outgoing.sealed[outgoing.sent..]) {
                Ok(bytes) => {
                    outgoing.sent += bytes;
                    if let Kernel::Seals(key) = &outgoing.kernel {
                        key.sealed(bytes as u64, 1);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        outgoing.sealed = Vec::new();
        outgoing.sent = 0;
        match outgoing.kernel {
            Kernel::Seals(_) => self.try_now(|| match is_writable(self.socket.as_fd())? {
                true => Ok(()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }),
            Kernel::Nothing | Kernel::MayTake(_) => Ok(true),
        }
    }

    /// Whether something was done that needs room in the socket. If not, its room can be waited
    /// for.
    fn try_now(&self, what: impl FnOnce() -> io::Result<()>) -> io::Result<bool> {
        match self.socket.try_io(Interest::WRITABLE, what) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends all of it.
    ///
    /// # Errors
    ///
    /// What the system says; `TimedOut` if the peer takes nothing for `stall_time_max`.
    pub(crate) async fn send_all(&self, bytes: &[u8], stall_time_max: Duration) -> io::Result<()> {
        for some in bytes.chunks(4 * FRAGMENT_BYTES_MAX) {
            self.try_send(some)?;
            self.flush(stall_time_max).await?;
        }
        Ok(())
    }

    /// Waits until [`Self::try_flush`] says that all was taken.
    ///
    /// # Errors
    ///
    /// As [`Self::send_all`].
    pub(crate) async fn flush(&self, stall_time_max: Duration) -> io::Result<()> {
        while !self.try_flush()? {
            timeout(stall_time_max, self.socket.writable()).await??;
        }
        Ok(())
    }

    /// As [`tokio::io::AsyncWrite::poll_write`]: takes some bytes once all before have left.
    pub(crate) fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(context))?;
        let taken = bytes.len().min(4 * FRAGMENT_BYTES_MAX);
        self.try_send(&bytes[..taken])?;
        Poll::Ready(Ok(taken))
    }

    /// As [`tokio::io::AsyncWrite::poll_flush`].
    pub(crate) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.try_flush()? {
            ready!(self.socket.poll_write_ready(context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether HTTP/2 is spoken on it.
    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Says that nothing more comes, unless somebody else has the sealer.
    pub(crate) async fn close_notify(&self) -> io::Result<()> {
        self.outgoing.borrow_mut().close_notify()?;
        let mut is_told = self.kernel_socket().is_none();
        loop {
            if !self.try_flush()? {
                self.socket.writable().await?;
            } else if is_told {
                return Ok(());
            } else {
                is_told = self.try_now(|| self.send_alert(alert::CLOSE_NOTIFY))?;
            }
        }
    }

    /// Asks the kernel to seal from now on what is sent, if it can and the body that comes next is
    /// worth it.
    ///
    /// # Errors
    ///
    /// As [`Self::send_all`].
    pub(crate) async fn ask_kernel(
        &self,
        body_bytes: u64,
        stall_time_max: Duration,
    ) -> io::Result<()> {
        while self.may_ask_kernel(body_bytes) && !self.try_ask_kernel(body_bytes)? {
            timeout(stall_time_max, self.socket.writable()).await??;
        }
        Ok(())
    }

    /// Whether [`Self::try_ask_kernel`] can be of use.
    pub(crate) fn may_ask_kernel(&self, body_bytes: u64) -> bool {
        let outgoing = self.outgoing.borrow();
        body_bytes > KERNEL_TLS_BODY_BYTES_MIN
            && matches!(outgoing.kernel, Kernel::MayTake(_))
            // A new key is told in a record that is sealed here.
            && !outgoing.is_key_asked_for
    }

    /// Asks the kernel, once what is sealed here has been sent. `false` if that must be waited for.
    pub(crate) fn try_ask_kernel(&self, body_bytes: u64) -> io::Result<bool> {
        if !self.try_flush()? {
            return Ok(false);
        }
        let outgoing = &mut *self.outgoing.borrow_mut();
        if let (Kernel::MayTake(kernel), Some(sealer)) = (&outgoing.kernel, &outgoing.sealer) {
            let taken = kernel.take(sealer, self.socket.as_fd(), body_bytes);
            // The same number would be sealed with twice.
            outgoing.sealer.take_if(|_| taken.is_some());
            outgoing.kernel = taken.map_or(Kernel::Nothing, Kernel::Seals);
        }
        Ok(true)
    }

    /// The socket, if the kernel seals what is written to it. Whoever writes says so, by
    /// [`Self::has_sent_file`].
    pub(crate) fn kernel_socket(&self) -> Option<&TcpStream> {
        let outgoing = self.outgoing.borrow();
        matches!(outgoing.kernel, Kernel::Seals(_)).then_some(&self.socket)
    }

    /// So many bytes of a file, in so many pieces, were written to [`Self::kernel_socket`].
    pub(crate) fn has_sent_file(&self, bytes: u64, pieces: u64) {
        if let Kernel::Seals(key) = &self.outgoing.borrow().kernel {
            key.sealed_file(bytes, pieces);
        }
    }

    /// That the kernel may seal more.
    ///
    /// # Errors
    ///
    /// `EKEYEXPIRED` if its key is worn: the connection must end.
    pub(crate) fn check_kernel_key(&self) -> io::Result<()> {
        self.outgoing.borrow().check_kernel_key(&self.socket)
    }

    /// Whether a body can be sealed whole: if not, the client is to come again for it.
    pub(crate) fn can_seal(&self, body_bytes: u64) -> bool {
        match &self.outgoing.borrow().kernel {
            Kernel::Seals(key) => key.has_room_for(body_bytes),
            Kernel::Nothing | Kernel::MayTake(_) => true,
        }
    }

    /// Whether the connection should end before another answer, because the kernel's key is worn or
    /// the client asks for another.
    pub(crate) fn is_key_due(&self) -> bool {
        let outgoing = self.outgoing.borrow();
        match &outgoing.kernel {
            Kernel::Seals(key) => outgoing.is_key_asked_for || key.is_worn(self.socket.as_fd()),
            Kernel::Nothing | Kernel::MayTake(_) => false,
        }
    }

    /// Has the kernel seal an alert.
    fn send_alert(&self, description: u8) -> io::Result<()> {
        let payload = alert_payload(description);
        send_record(self.socket.as_fd(), record_type::ALERT, &payload)
    }

    fn has_something(&self) -> bool {
        let is_whole = || match record_bytes(&self.received) {
            Ok(bytes) => bytes.is_some_and(|bytes| bytes <= self.received.len()),
            Err(_) => true,
        };
        !self.opened.is_empty() || self.has_ended || is_whole()
    }

    /// Moves what is opened to whoever reads.
    fn take(&mut self, into: &mut [u8]) -> usize {
        let bytes = self.opened.len().min(into.len());
        let from = self.opened.start;
        into[..bytes].copy_from_slice(&self.received[from..from + bytes]);
        self.opened.start += bytes;
        if self.opened.is_empty() {
            self.forget_record();
        }
        bytes
    }

    /// The first record is done with. Who says nothing keeps no memory for it.
    fn forget_record(&mut self) {
        self.opened = 0..0;
        match std::mem::take(&mut self.opened_bytes) {
            all if all == self.received.len() => self.received = Vec::new(),
            bytes => drop(self.received.drain(..bytes)),
        }
    }

    /// Opens the first record, which has so many bytes.
    fn open(&mut self, bytes: usize) -> io::Result<()> {
        let opened = self.opener.open(&mut self.received[..bytes]);
        let (typ, payload) = opened.map_err(|error| self.refuse(error))?;
        self.opened_bytes = bytes;
        let record = (u8::from(typ), &self.received[payload.clone()]);
        let meaning = self.reader.take(record, self.opener.is_tls13());
        match meaning.map_err(|error| self.refuse(error))? {
            Meaning::Data => {
                self.opened = payload;
                return Ok(());
            }
            Meaning::Nothing => {}
            Meaning::End => self.has_ended = true,
            Meaning::KeyUpdate { is_requested } => self.update(is_requested)?,
        }
        self.forget_record();
        Ok(())
    }

    /// The peer has a new key, and may ask for one of ours.
    fn update(&mut self, is_requested: bool) -> io::Result<()> {
        let outgoing = &mut *self.outgoing.borrow_mut();
        let secrets = outgoing.keys.update_rx_secret();
        self.opener = Opener::new(outgoing.suite, secrets.map_err(io::Error::other)?)?;
        if is_requested {
            // It leaves with what is sent next, so however often the peer asks, no more waits for
            // it. One answer is enough (RFC 8446, section 4.6.3), and moves the key on by one.
            outgoing.is_key_asked_for = true;
            // The kernel keeps the key that it has: the client is to come again.
            self.has_ended |= matches!(outgoing.kernel, Kernel::Seals(_));
        }
        Ok(())
    }

    /// Tells the peer why it ends, if that can be done at once.
    fn refuse(&self, error: RecordError) -> io::Error {
        let RecordError::Broken { alert, .. } = error else {
            return io::Error::new(io::ErrorKind::ConnectionAborted, error);
        };
        let outgoing = &mut *self.outgoing.borrow_mut();
        if outgoing.sealed.is_empty()
            && let Some(sealer) = &mut outgoing.sealer
            && let Ok(record) = sealer.alert(alert)
        {
            // Whether it is heard is the peer's business.
            drop(self.socket.try_write(&record));
        }
        if matches!(outgoing.kernel, Kernel::Seals(_)) {
            drop(self.try_now(|| self.send_alert(alert)));
        }
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

impl Outgoing {
    fn next_key(&mut self) -> io::Result<NewKey> {
        let secrets = self.keys.update_tx_secret().map_err(io::Error::other)?;
        let is_for_kernel = matches!(self.kernel, Kernel::MayTake(_));
        self.is_key_asked_for = false;
        NewKey::new(self.suite, secrets, is_for_kernel)
    }

    fn check_kernel_key(&self, socket: &TcpStream) -> io::Result<()> {
        match &self.kernel {
            Kernel::Seals(key) => key.check(socket.as_fd()),
            Kernel::Nothing | Kernel::MayTake(_) => Ok(()),
        }
    }

    fn seal(&mut self, fragment: &[u8]) -> io::Result<()> {
        if let Kernel::Seals(_) = self.kernel {
            self.sealed.extend_from_slice(fragment);
            return Ok(());
        }
        let is_worn = self.sealer.as_ref().is_some_and(Sealer::is_worn);
        let is_tls13 = matches!(self.suite, SupportedCipherSuite::Tls13(_));
        if self.is_key_asked_for || (is_worn && is_tls13) {
            let key = self.next_key()?;
            let sealer = self.sealer.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
            self.sealed.extend(sealer.change_key(key)?);
        }
        let sealer = self.sealer.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let record = sealer.seal(&[fragment])?;
        match self.sealed.is_empty() {
            true => self.sealed = record,
            false => self.sealed.extend_from_slice(&record),
        }
        Ok(())
    }

    fn close_notify(&mut self) -> io::Result<()> {
        if let Some(mut sealer) = self.sealer.take() {
            self.sealed.extend(sealer.close_notify()?);
        }
        Ok(())
    }
}

impl std::fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsStream of {:?}", self.socket)
    }
}

/// Bytes that are read from a socket at once.
const RECEIVE_BYTES: usize = 4096;
