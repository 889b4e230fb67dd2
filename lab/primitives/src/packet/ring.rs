//! Entries of a ring, sent and accounted for.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

use super::Sends;
use onrush_lock::LockedArea;
use onrush_lock::memory::Area;

/// Entries that a [`RingSends`] takes in one crossing, at the most.
pub const CROSSING_ENTRIES_MAX: usize = 256;

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

impl RingSends {
    /// A ring with `bytes` of registered memory, in huge pages if they fill one.
    ///
    /// # Errors
    ///
    /// If there is no ring, or the memory cannot be locked.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        Self::built(&mut builder, bytes)
    }

    /// The same with a thread of the kernel that looks for entries, and rests when it found none
    /// for 100 ms.
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

    /// Hands over so many entries in one crossing, each a send of the first `bytes` of the memory,
    /// and waits until the kernel needs none of it; all that `times`.
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
        // SAFETY: the caller has borrowed the socket and owns the memory that entries refer to
        // until all have been answered and released, below.
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

    /// So many entries in one crossing, each by the next socket and from the next place, `apart`
    /// bytes further: what neither this processor's cache has nor the kernel had in hand a moment
    /// ago. `at` says where it goes on.
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

    /// What a program does for entries that send beside handing them over, with nothing sent: it
    /// makes each, notes what it stands for, and looks up whose the two answers are, the one that
    /// it was sent and the one that its memory is free. In their place two entries that do nothing
    /// are handed over, so that there are the answers. Returns the packets that would have been
    /// sent.
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

    /// Reads the first `bytes` of the file and waits for that: of a ring whose thread looks for
    /// entries the caller does nothing but hand an entry over, sleep, and wake up.
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
            // SAFETY: the memory is ours, that long, and borrowed by nobody (`&mut`) until the
            // answer is there.
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

/// A ring, which cannot be printed.
pub(super) struct Unlisted(pub(super) IoUring);

impl std::fmt::Debug for Unlisted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IoUring")
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{pair, sizes};
    use super::*;

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
            let file = onrush_lock::memfd(10_000).unwrap();
            ring.wait_for_read(&file, 10_000, 3).unwrap();
            assert!(ring.wait_for_read(&file, 10_001, 1).is_err());
        }
        assert_eq!(sizes(&receiver, 0), []);
    }
}
