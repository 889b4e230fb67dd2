//! What sending is made of: one packet, a train, a piece that is appended, a page that is lent, an entry of a
//! ring, each by itself and many times.
//!
//! None of this moves a file to anybody. Packets are so small that their bytes cost nothing, or have a size
//! that the caller varies; files go to `/dev/null`. What a data path costs can be put together from it.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, PipeReader, PipeWriter, pipe};
use std::mem;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use io_uring::{IoUring, opcode, squeue, types};

use crate::lock::LockedArea;
use crate::memory::Area;

/// Messages of a `sendmmsg`, and pieces of a `sendmsg`, at the most.
pub const CALL_PIECES_MAX: usize = 64;

/// Entries that a [`RingSends`] takes in one crossing, at the most.
pub const CROSSING_ENTRIES_MAX: usize = 256;

/// Bytes that are lent at once, at the most: what fits a pipe that an account without rights may have
/// (pipe-max-size, pipe(7)).
pub const LENT_BYTES_MAX: usize = 1 << 20;

/// A connected socket to send by.
#[derive(Debug)]
pub struct Sends {
    socket: UdpSocket,
    null: File,
    pipe: (PipeReader, PipeWriter),
}

/// A ring to send by, with memory that is registered with it.
#[derive(Debug)]
pub struct RingSends {
    ring: Unlisted,
    area: Area,
    _registered: LockedArea,
}

/// How a ring sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RingSend {
    /// An entry that does nothing.
    Nothing,
    /// The same, each linked to the next.
    Linked,
    /// SEND: the bytes are copied.
    Copied,
    /// SEND_ZC from memory that is pinned for each send.
    Pinned,
    /// SEND_ZC from registered memory.
    Registered,
    /// The same, each linked to the next.
    RegisteredLinked,
}

/// What a program notes of an entry until it has its answers.
#[derive(Clone, Copy, Debug)]
struct Noted {
    packets: u64,
    answer: Option<i32>,
}

impl Sends {
    /// Sends by a connected socket.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let null = File::options().write(true).open("/dev/null")?;
        let sends = Self {
            socket,
            null,
            pipe: pipe()?,
        };
        sends.set(libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)?;
        let bytes = libc::c_int::try_from(LENT_BYTES_MAX).map_err(io::Error::other)?;
        // SAFETY: the pipe is open, and the size is an int.
        done(unsafe { libc::fcntl(sends.pipe.1.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) } as isize)?;
        Ok(sends)
    }

    /// Cuts what is sent from now on into packets of `bytes`; 0 ends that.
    pub fn segment(&self, bytes: u16) -> io::Result<()> {
        segment(&self.socket, bytes)
    }

    /// `send`s the bytes.
    pub fn send(&self, bytes: &[u8], times: u64) -> io::Result<()> {
        let socket = self.socket.as_raw_fd();
        (0..times).try_for_each(|_| {
            // SAFETY: the kernel reads `bytes`, which are borrowed for the call.
            done(unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), 0) })
        })
    }

    /// `sendmsg` of so many pieces of `piece`, as one.
    pub fn gather(&self, piece: &[u8], pieces: usize, times: u64) -> io::Result<()> {
        let pieces = vec![iovec(piece); pieces.min(CALL_PIECES_MAX)];
        let message = message(&pieces);
        let socket = self.socket.as_raw_fd();
        (0..times).try_for_each(|_| {
            // SAFETY: the message and its pieces are alive, and the kernel only reads them.
            done(unsafe { libc::sendmsg(socket, &raw const message, 0) })
        })
    }

    /// `sendmmsg` of so many messages of these bytes each.
    pub fn many(&self, bytes: &[u8], messages: usize, times: u64) -> io::Result<()> {
        let piece = [iovec(bytes)];
        let one = libc::mmsghdr {
            msg_hdr: message(&piece),
            msg_len: 0,
        };
        let mut messages = vec![one; messages.min(CALL_PIECES_MAX)];
        let (socket, count) = (self.socket.as_raw_fd(), messages.len());
        let wanted = libc::c_uint::try_from(count).map_err(io::Error::other)?;
        (0..times).try_for_each(|_| {
            // SAFETY: the messages and their piece are alive; the kernel writes their lengths only.
            let sent = unsafe { libc::sendmmsg(socket, messages.as_mut_ptr(), wanted, 0) };
            done(sent as isize)
        })
    }

    /// Holds back and lets go, with nothing to send: two calls.
    pub fn cork(&self, times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            self.set(libc::SOL_UDP, libc::UDP_CORK, 1)?;
            self.set(libc::SOL_UDP, libc::UDP_CORK, 0)
        })
    }

    /// Holds back, `send`s so many pieces, lets them go as one packet: two calls and one for each.
    pub fn append(&self, piece: &[u8], pieces: u64, times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            self.set(libc::SOL_UDP, libc::UDP_CORK, 1)?;
            self.send(piece, pieces)?;
            self.set(libc::SOL_UDP, libc::UDP_CORK, 0)
        })
    }

    /// `sendfile`s so many of the file's bytes to `/dev/null`, from `offset` on, one part after the other.
    pub fn discard(&self, file: &File, offset: u64, bytes: usize, times: u64) -> io::Result<()> {
        let (to, from) = (self.null.as_raw_fd(), file.as_raw_fd());
        (0..times).try_for_each(|nth| {
            let place = offset + nth * bytes as u64;
            let mut place = libc::off_t::try_from(place).map_err(io::Error::other)?;
            // SAFETY: the place is ours; the kernel reads and writes it only.
            let moved = unsafe { libc::sendfile(to, from, &raw mut place, bytes) };
            done(moved)?;
            // The file has ended: what would be nothing was not done.
            if moved == 0 {
                Err(io::ErrorKind::UnexpectedEof.into())
            } else {
                Ok(())
            }
        })
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Lends the bytes to a pipe and moves them on to `/dev/null`: two calls.
    pub fn lend(&self, bytes: &[u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| self.lend_to(self.null.as_fd(), bytes, 0))
    }

    /// Lends the bytes to a pipe and moves them on to the socket, as one packet or train: two calls.
    pub fn lend_out(&self, bytes: &[u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| self.lend_to(self.socket.as_fd(), bytes, 0))
    }

    /// Lends the bytes to a pipe and moves them on to a connection, more of which come if `is_more`: two calls.
    pub fn lend_on(&self, stream: BorrowedFd<'_>, bytes: &[u8], is_more: bool) -> io::Result<()> {
        let flags = if is_more { libc::SPLICE_F_MORE } else { 0 };
        self.lend_to(stream, bytes, flags)
    }

    /// No more bytes than a pipe holds, so that all of them go at once.
    fn lend_to(&self, to: BorrowedFd<'_>, bytes: &[u8], flags: libc::c_uint) -> io::Result<()> {
        let piece = iovec(bytes);
        let (from, into) = (self.pipe.0.as_raw_fd(), self.pipe.1.as_raw_fd());
        // SAFETY: the piece is alive; what the pipe refers to is drained below. A packet may refer to it for
        // longer, but only reads it: the most that a change could do is to change what arrives.
        let lent = unsafe { libc::vmsplice(into, &raw const piece, 1, 0) };
        done(lent)?;
        let nowhere = ptr::null_mut();
        let to = to.as_raw_fd();
        // SAFETY: no offsets are passed.
        let moved = unsafe { libc::splice(from, nowhere, to, nowhere, bytes.len(), flags) };
        done(moved)?;
        if lent.unsigned_abs() != bytes.len() || moved != lent {
            let parts = format!(
                "of {} bytes {lent} were lent and {moved} moved",
                bytes.len()
            );
            return Err(io::Error::other(parts));
        }
        Ok(())
    }

    /// `sendmsg` of so many pieces of `piece` with MSG_ZEROCOPY; reads what the kernel says of it when it
    /// refuses more, and at the end.
    pub fn zero_copy(&self, piece: &[u8], pieces: usize, times: u64) -> io::Result<()> {
        let pieces = vec![iovec(piece); pieces.min(CALL_PIECES_MAX)];
        let message = message(&pieces);
        let (socket, flags) = (self.socket.as_raw_fd(), libc::MSG_ZEROCOPY);
        let mut sent = 0;
        while sent < times {
            // SAFETY: the pieces are borrowed until the notifications have been read; they never change.
            match done(unsafe { libc::sendmsg(socket, &raw const message, flags) }) {
                Ok(()) => sent += 1,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.drain()?,
                Err(error) => return Err(error),
            }
        }
        self.drain()
    }

    /// Reads all that is in the error queue.
    fn drain(&self) -> io::Result<()> {
        let mut control = [0_u64; 32];
        loop {
            let mut message = message(&[]);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: the message names `control`, which is writable and alive, and nothing else.
            match done(unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) }) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        set(&self.socket, level, option, value)
    }
}

/// Cuts what a socket sends from now on into packets of `bytes`; 0 ends that.
pub fn segment(socket: &UdpSocket, bytes: u16) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes.into())
}

fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) -> io::Result<()> {
    let bytes = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    let value = (&raw const value).cast();
    // SAFETY: the value is a live int of that size.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, bytes) };
    done(set as isize)
}

impl RingSends {
    /// A ring with `bytes` of registered memory, in huge pages if they fill one.
    ///
    /// # Errors
    ///
    /// If there is no ring, or the memory can not be locked.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        Self::built(&mut builder, bytes)
    }

    /// The same with a thread of the kernel that looks for entries, and rests when it found none for 100 ms.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn polled(bytes: usize) -> io::Result<Self> {
        Self::built(IoUring::builder().setup_sqpoll(100), bytes)
    }

    fn built(builder: &mut io_uring::Builder, bytes: usize) -> io::Result<Self> {
        // Two for each whose answers are accounted for.
        let entries = u32::try_from(2 * CROSSING_ENTRIES_MAX).map_err(io::Error::other)?;
        builder.setup_submit_all().setup_cqsize(entries * 4);
        let ring = builder.build(entries)?;
        let area = Area::map(bytes).map_err(io::Error::other)?;
        // SAFETY: the ring is open during the call.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let registered = area.register(fd).map_err(io::Error::other)?;
        Ok(Self {
            ring: Unlisted(ring),
            area,
            _registered: registered,
        })
    }

    /// Hands over so many entries in one crossing, each a send of the first `bytes` of the memory, and waits
    /// until the kernel needs none of it; all that `times`.
    ///
    /// # Errors
    ///
    /// If a send failed.
    pub fn send(
        &mut self,
        by: &Sends,
        how: RingSend,
        bytes: usize,
        entries: usize,
        times: u64,
    ) -> io::Result<()> {
        let entry = self.entry(by, how, bytes)?;
        let entries = entries.min(CROSSING_ENTRIES_MAX);
        let mut batch = vec![entry; entries];
        if let Some(last) = batch.last_mut() {
            // What is linked to nothing would wait for the next batch.
            *last = last.clone().clear_flags();
        }
        (0..times).try_for_each(|_| self.hand_over(&batch))
    }

    /// Hands these over, and waits until the kernel needs no memory any more.
    fn hand_over(&mut self, batch: &[squeue::Entry]) -> io::Result<()> {
        let ring = &mut self.ring.0;
        // SAFETY: the caller has borrowed the socket and owns the memory that entries refer to until all have
        // been answered and released, below.
        let pushed = unsafe { ring.submission().push_multiple(batch) };
        pushed.map_err(io::Error::other)?;
        let (mut unanswered, mut unreleased) = (batch.len(), 0);
        while unanswered + unreleased > 0 {
            ring.submit_and_wait(unanswered + unreleased)?;
            for completion in ring.completion() {
                if io_uring::cqueue::notif(completion.flags()) {
                    unreleased -= 1;
                    continue;
                }
                unanswered -= 1;
                unreleased += usize::from(io_uring::cqueue::more(completion.flags()));
                if completion.result() < 0 {
                    return Err(io::Error::from_raw_os_error(-completion.result()));
                }
            }
        }
        Ok(())
    }

    /// So many entries in one crossing, each by the next socket and from the next place, `apart` bytes further: what
    /// neither this processor's cache has nor the kernel had in hand a moment ago. `at` says where it goes on.
    ///
    /// # Errors
    ///
    /// If a send failed.
    ///
    /// # Panics
    ///
    /// If there is no socket.
    pub fn send_apart(
        &mut self,
        sockets: &[UdpSocket],
        (bytes, apart): (usize, usize),
        entries: usize,
        at: &mut usize,
    ) -> io::Result<()> {
        let places = (self.area.bytes_total() / apart.max(bytes)).max(1);
        let length = u32::try_from(bytes).map_err(io::Error::other)?;
        let mut batch = Vec::with_capacity(entries);
        for _ in 0..entries.min(CROSSING_ENTRIES_MAX) {
            *at += 1;
            let socket = types::Fd(sockets[*at % sockets.len()].as_raw_fd());
            let start = self.area.base().as_ptr().wrapping_add(*at % places * apart);
            let entry = opcode::SendZc::new(socket, start.cast_const(), length);
            batch.push(entry.buf_index(Some(0)).build());
        }
        self.hand_over(&batch)
    }

    /// What a program does for entries that send beside handing them over, with nothing sent: it makes each, notes
    /// what it stands for, and looks up whose the two answers are, the one that it was sent and the one that its
    /// memory is free. In their place two entries that do nothing are handed over, so that there are the answers.
    /// Returns the packets that would have been sent.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn account(&mut self, by: &Sends, entries: usize, times: u64) -> io::Result<u64> {
        let entries = entries.min(CROSSING_ENTRIES_MAX);
        let mut noted = Vec::with_capacity(entries);
        let mut batch = Vec::with_capacity(2 * entries);
        let (mut mark_first, mut packets) = (0, 0);
        for _ in 0..times {
            for mark in (mark_first..).take(entries) {
                let entry = self.entry(by, RingSend::RegisteredLinked, 1)?;
                black_box(entry.user_data(mark));
                noted.push(Noted {
                    packets: black_box(1),
                    answer: None,
                });
                let nothing = |answer| opcode::Nop::new().build().user_data(2 * mark + answer);
                batch.extend([nothing(0), nothing(1)]);
            }
            self.answers(&batch, mark_first, &mut noted)?;
            let of = |one: &Noted| one.answer.map_or(0, |_| one.packets);
            packets += noted.iter().map(of).sum::<u64>();
            mark_first += entries as u64;
            noted.clear();
            batch.clear();
        }
        Ok(packets)
    }

    /// Hands over what stands for the sends that are noted, and notes their answers.
    fn answers(
        &mut self,
        batch: &[squeue::Entry],
        mark_first: u64,
        noted: &mut [Noted],
    ) -> io::Result<()> {
        let ring = &mut self.ring.0;
        // SAFETY: entries that do nothing refer to no memory.
        let pushed = unsafe { ring.submission().push_multiple(batch) };
        pushed.map_err(io::Error::other)?;
        let mut missing = batch.len();
        while missing > 0 {
            ring.submit_and_wait(missing)?;
            for completion in ring.completion() {
                missing -= 1;
                let (mark, is_release) = (completion.user_data() / 2, completion.user_data() % 2);
                if is_release == 1 {
                    continue;
                }
                let place = usize::try_from(mark - mark_first).map_err(io::Error::other)?;
                noted[place].answer = Some(completion.result());
            }
        }
        Ok(())
    }

    /// Reads the first `bytes` of the file and waits for that: of a ring whose thread looks for entries the caller
    /// does nothing but hand an entry over, sleep, and wake up.
    ///
    /// # Errors
    ///
    /// If the file, or the memory, has fewer bytes.
    pub fn wait_for_read(&mut self, file: &File, bytes: usize, times: u64) -> io::Result<()> {
        let length = u32::try_from(bytes.min(self.area.bytes_total())).map_err(io::Error::other)?;
        let start = self.area.base().as_ptr();
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), start, length).build();
        (0..times).try_for_each(|_| {
            let ring = &mut self.ring.0;
            // SAFETY: the memory is ours, that long, and borrowed by nobody (`&mut`) until the answer is there.
            unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
            ring.submit_and_wait(1)?;
            let read = ring
                .completion()
                .next()
                .map(|completion| completion.result());
            match read.map(usize::try_from) {
                Some(Ok(read)) if read == bytes => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        })
    }

    fn entry(&self, by: &Sends, how: RingSend, bytes: usize) -> io::Result<squeue::Entry> {
        let socket = types::Fd(by.socket.as_raw_fd());
        let length = u32::try_from(bytes.min(self.area.bytes_total())).map_err(io::Error::other)?;
        let start = self.area.base().as_ptr().cast_const();
        let send_zc = |registered| {
            let send = opcode::SendZc::new(socket, start, length);
            send.buf_index(registered).build()
        };
        let linked = squeue::Flags::IO_LINK;
        Ok(match how {
            RingSend::Nothing => opcode::Nop::new().build(),
            RingSend::Linked => opcode::Nop::new().build().flags(linked),
            RingSend::Copied => opcode::Send::new(socket, start, length).build(),
            RingSend::Pinned => send_zc(None),
            RingSend::Registered => send_zc(Some(0)),
            RingSend::RegisteredLinked => send_zc(Some(0)).flags(linked),
        })
    }
}

/// A ring, which can not be printed.
struct Unlisted(IoUring);

impl std::fmt::Debug for Unlisted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IoUring")
    }
}

fn iovec(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

fn message(pieces: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: a msghdr is addresses, lengths and flags, for which all zeroes is valid (and empty).
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len();
    message
}

fn done(result: isize) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pair() -> (Sends, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (Sends::new(sender).unwrap(), receiver)
    }

    /// The sizes of all packets that arrive, at least so many: a busy kernel delivers them later.
    fn sizes(receiver: &UdpSocket, count: usize) -> Vec<usize> {
        let mut buffer = vec![0; 65_536];
        let mut found: Vec<_> = (0..count)
            .map(|_| receiver.recv(&mut buffer).unwrap())
            .collect();
        receiver.set_nonblocking(true).unwrap();
        found.extend(std::iter::from_fn(|| receiver.recv(&mut buffer).ok()));
        receiver.set_nonblocking(false).unwrap();
        found
    }

    #[test]
    fn each_way_sends_what_it_says_as_often_as_it_says() {
        let (sends, receiver) = pair();
        sends.send(&[7; 20], 3).unwrap();
        assert_eq!(sizes(&receiver, 3), [20; 3]);
        sends.gather(&[7; 5], 4, 2).unwrap();
        assert_eq!(sizes(&receiver, 2), [20; 2]);
        sends.many(&[7; 9], 5, 2).unwrap();
        assert_eq!(sizes(&receiver, 10), [9; 10]);
        sends.cork(3).unwrap();
        assert_eq!(sizes(&receiver, 0), []);
        sends.append(&[7; 8], 3, 2).unwrap();
        assert_eq!(sizes(&receiver, 2), [24; 2]);
        sends.zero_copy(&[7; 15], 2, 2).unwrap();
        assert_eq!(sizes(&receiver, 2), [30; 2]);
        sends.segment(10).unwrap();
        sends.send(&[7; 35], 1).unwrap();
        assert_eq!(sizes(&receiver, 4), [10, 10, 10, 5]);
        sends.segment(0).unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        sends.discard(&file, 4096, 5000, 3).unwrap();
        sends.lend(&[7; 100], 3).unwrap();
        assert_eq!(sizes(&receiver, 0), []);
        let page = [7; 4096];
        sends.lend_out(&page[..100], 3).unwrap();
        assert_eq!(sizes(&receiver, 3), [100; 3]);
        sends.segment(1000).unwrap();
        sends.lend_out(&page, 1).unwrap();
        assert_eq!(sizes(&receiver, 5), [1000, 1000, 1000, 1000, 96]);
    }

    #[test]
    fn a_ring_sends_so_many_entries_a_crossing() {
        let (sends, receiver) = pair();
        let Ok(mut ring) = RingSends::new(1 << 16) else {
            // A kernel, or a container, without rings; the server's tests say so loudly.
            return;
        };
        for how in [RingSend::Nothing, RingSend::Linked] {
            ring.send(&sends, how, 0, CROSSING_ENTRIES_MAX, 2).unwrap();
        }
        assert_eq!(sizes(&receiver, 0), []);
        let mut polled = RingSends::polled(1 << 16).unwrap();
        for how in [
            RingSend::Copied,
            RingSend::Pinned,
            RingSend::Registered,
            RingSend::RegisteredLinked,
        ] {
            for ring in [&mut ring, &mut polled] {
                ring.send(&sends, how, 100, 4, 2).unwrap();
                assert_eq!(sizes(&receiver, 8), [100; 8], "{how:?}");
            }
        }
        let sockets = [
            sends.socket().try_clone().unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        ];
        sockets[1].connect(receiver.local_addr().unwrap()).unwrap();
        let mut at = 0;
        ring.send_apart(&sockets, (100, 4096), 5, &mut at).unwrap();
        assert_eq!((sizes(&receiver, 5), at), (vec![100; 5], 5));
        ring.send(&sends, RingSend::Copied, 10, CROSSING_ENTRIES_MAX + 1, 1)
            .unwrap();
        assert_eq!(
            sizes(&receiver, CROSSING_ENTRIES_MAX),
            [10; CROSSING_ENTRIES_MAX]
        );
        assert!(ring.send(&sends, RingSend::Copied, 65_508, 1, 1).is_err());
    }

    #[test]
    fn a_ring_accounts_for_each_entry_and_sleeps_for_a_read() {
        let (sends, receiver) = pair();
        let Ok(mut ring) = RingSends::new(1 << 16) else {
            return;
        };
        let mut polled = RingSends::polled(1 << 16).unwrap();
        for ring in [&mut ring, &mut polled] {
            let entries = CROSSING_ENTRIES_MAX as u64;
            // One more than goes at once is left out.
            let packets = ring.account(&sends, CROSSING_ENTRIES_MAX + 1, 3).unwrap();
            assert_eq!(packets, 3 * entries);
            let file = crate::primitive::map::memory_file().unwrap();
            file.set_len(10_000).unwrap();
            ring.wait_for_read(&file, 10_000, 3).unwrap();
            assert!(ring.wait_for_read(&file, 10_001, 1).is_err());
        }
        assert_eq!(sizes(&receiver, 0), []);
    }
}
