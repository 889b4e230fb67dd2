//! `uring_vectored_zc`: SENDMSG_ZC with vectored registered buffers, for headers of a client's own
//! and for trains that say the length of their packets themselves.
//!
//! A train's headers come from a slab and its payloads from the shared images, both in one
//! registered buffer: no byte of the payload is copied, and the train is one entry in the same ring
//! as all others. It needs Linux 6.15. Before, the same pieces are sent by SENDMSG, which gathers
//! them with one copy.
//!
//! A zero-copy send has at most 17 pieces of memory. Where the registered buffer is of huge pages a
//! header and a payload are one each, eight packets a train. Of base pages a payload may lie on
//! two. Which it is, and whether the kernel can do it at all, [`try_out`] finds for each buffer by
//! sending to a socket of its own.

use std::io;
use std::net::UdpSocket;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use io_uring::{opcode, squeue, types};

use super::ring::REPORT_USAGE;
use super::segment_control::SegmentControl;
use super::{
    BATCH_TRAINS_MAX, FramedPackets, OWN_HEADERS_PACKETS_MAX, OwnHeaders, Segments, To, Train,
    gather, set_option,
};
use onrush_lock::memory::{Area, HUGE_PAGE_BYTES, page_bytes};

/// Pieces of memory that one send without a copy is made of, at most (MAX_SKB_FRAGS).
const FRAGMENTS_MAX: usize = 17;

/// Use the registered buffer that `buf_index` names: IORING_RECVSEND_FIXED_BUF.
const FIXED_BUF: u16 = 1 << 2;

/// Where an entry says which buffer: `buf_index` of `struct io_uring_sqe` (linux/io_uring.h).
const BUF_INDEX_OFFSET: usize = 40;

const _: () = assert!(size_of::<squeue::Entry>() == 64);

/// How vectored trains leave from one area.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Means {
    pub(super) is_zero_copy: bool,
    /// Bytes of the pages that the kernel sees: what lies on two of them is two pieces.
    pub(super) page_bytes: usize,
}

/// The messages of a batch. An entry refers to one from when it is queued until the kernel has
/// taken it.
pub(super) struct Messages {
    messages: Box<[Message]>,
    used: usize,
    /// One that is used has a control message.
    has_control: bool,
}

struct Message {
    header: libc::msghdr,
    pieces: [libc::iovec; 2 * OWN_HEADERS_PACKETS_MAX],
    control: SegmentControl,
}

// SAFETY: the pointers in it are to the message's own pieces and control message, which lie on the
// heap, and to memory that is only handed to the kernel; nothing about them is tied to a thread.
unsafe impl Send for Messages {}

impl Messages {
    pub(super) fn new() -> Self {
        // SAFETY: a msghdr, an iovec and a control message are addresses, lengths, flags and
        // numbers, for which all zeroes is valid.
        let empty = || unsafe { std::mem::zeroed::<Message>() };
        Self {
            messages: (0..BATCH_TRAINS_MAX).map(|_| empty()).collect(),
            used: 0,
            has_control: false,
        }
    }

    pub(super) fn room(&self) -> usize {
        self.messages.len() - self.used
    }

    /// The kernel has taken all entries: it keeps copies of messages and of their pieces
    /// (io_uring/net.c, `io_sendmsg_setup`, `io_prep_reg_iovec`). A control message it reads where
    /// it lies, when it sends (net/socket.c, `____sys_sendmsg`): that is when it takes the entry,
    /// unless that is linked to one before it, so that all `are_answered` is waited for then.
    pub(super) fn clear(&mut self, are_answered: bool) {
        if are_answered || !self.has_control {
            (self.used, self.has_control) = (0, false);
        }
    }

    /// A message of the pieces that `gather` fills in and counts, good until [`Self::clear`].
    /// With a control message, if it says how long packets are.
    fn message(
        &mut self,
        segment_bytes: Option<u16>,
        gather: impl FnOnce(&mut [libc::iovec; 2 * OWN_HEADERS_PACKETS_MAX]) -> usize,
    ) -> *const libc::msghdr {
        let message = &mut self.messages[self.used];
        self.used += 1;
        let count = gather(&mut message.pieces);
        message.header.msg_iov = message.pieces.as_mut_ptr();
        message.header.msg_iovlen = count as _;
        (message.header.msg_control, message.header.msg_controllen) = (ptr::null_mut(), 0);
        if let Some(segment_bytes) = segment_bytes {
            message.control = SegmentControl::new(segment_bytes);
            message.control.attach_to(&mut message.header);
            self.has_control = true;
        }
        &raw const message.header
    }

    /// The entry of a train, without a token: by reference, or gathered with a copy.
    pub(super) fn entry(
        &mut self,
        train: &Train,
        area: &Area,
        buffer: u16,
        flags: i32,
        is_zero_copy: bool,
    ) -> squeue::Entry {
        let base = area.base().as_ptr();
        let message = self.message(train.segments_of_send(), |pieces| match train.headers {
            Some(headers) => gather(train, headers, base, pieces),
            None => {
                pieces[0] = libc::iovec {
                    iov_base: base.wrapping_add(train.offset).cast(),
                    iov_len: train.bytes as usize,
                };
                1
            }
        });
        entry(train.to, message, flags, is_zero_copy.then_some(buffer))
    }

    /// The entry of packets that go over a connection, likewise.
    pub(super) fn stream_entry(
        &mut self,
        fd: RawFd,
        packets: &FramedPackets,
        area: &Area,
        flags: i32,
        zero_copy_from: Option<u16>,
    ) -> squeue::Entry {
        let message = self.message(None, |pieces| packets.gather(area.base().as_ptr(), pieces));
        entry(To::Descriptor(fd), message, flags, zero_copy_from)
    }
}

/// The entry of a message: by reference to what lies in a registered buffer, or gathered with a
/// copy.
fn entry(
    to: To,
    message: *const libc::msghdr,
    flags: i32,
    zero_copy_from: Option<u16>,
) -> squeue::Entry {
    let flags = flags.unsigned_abs();
    if let Some(buffer) = zero_copy_from {
        let ioprio = FIXED_BUF | REPORT_USAGE;
        let send = match to {
            To::Descriptor(fd) => opcode::SendMsgZc::new(types::Fd(fd), message),
            To::RegisteredFile(place) => opcode::SendMsgZc::new(types::Fixed(place), message),
        };
        return with_buffer(send.ioprio(ioprio).flags(flags).build(), buffer);
    }
    match to {
        To::Descriptor(fd) => opcode::SendMsg::new(types::Fd(fd), message)
            .flags(flags)
            .build(),
        To::RegisteredFile(place) => opcode::SendMsg::new(types::Fixed(place), message)
            .flags(flags)
            .build(),
    }
}

impl Means {
    /// What is sure before anything was tried: a copy.
    pub(super) fn copying() -> Self {
        Self {
            is_zero_copy: false,
            page_bytes: page_bytes(),
        }
    }

    /// Packets of `stride` bytes from `offset` on whose pieces, with a header each, fit one send.
    pub(super) fn packets(self, offset: usize, stride: u16) -> usize {
        if !self.is_zero_copy {
            return OWN_HEADERS_PACKETS_MAX;
        }
        let (stride, mut fragments) = (usize::from(stride), 0);
        for packet in 0..OWN_HEADERS_PACKETS_MAX {
            let start = offset + packet * stride;
            let pages = (start + stride - 1) / self.page_bytes - start / self.page_bytes + 1;
            fragments += 1 + pages;
            if fragments > FRAGMENTS_MAX {
                return packet;
            }
        }
        OWN_HEADERS_PACKETS_MAX
    }
}

/// The `io_uring` crate has no way to name a registered buffer with this opcode.
fn with_buffer(mut entry: squeue::Entry, buffer: u16) -> squeue::Entry {
    let at = (&raw mut entry).cast::<u8>().wrapping_add(BUF_INDEX_OFFSET);
    // SAFETY: an `Entry` is `repr(C)` around the kernel's `struct io_uring_sqe`, 64 bytes (asserted
    // above) with the 16 bits of `buf_index` at that offset (linux/io_uring.h); any value of them
    // is valid, and `entry` is ours alone.
    unsafe { at.cast::<u16>().write_unaligned(buffer) };
    entry
}

/// A train of some packets of the area to try with, and the socket it goes to.
pub(super) struct Trial {
    _receiver: UdpSocket,
    sender: UdpSocket,
}

impl Trial {
    /// Bytes of the packets that are tried: what fits an Ethernet frame.
    const STRIDE: u16 = 1328;

    /// Bytes of an area that a trial reads.
    pub(super) const BYTES: usize = 4096 * 4;

    pub(super) fn new() -> io::Result<Self> {
        let receiver = super::loopback_socket()?;
        let sender = super::loopback_socket()?;
        sender.connect(receiver.local_addr()?)?;
        let fd = sender.as_raw_fd();
        super::widen_send_buffer(fd)?;
        set_option(
            fd,
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            i32::from(Self::STRIDE),
        )?;
        Ok(Self {
            _receiver: receiver,
            sender,
        })
    }

    /// So many packets from the front of a buffer, with its first bytes as their headers. Eight lie
    /// on three base pages.
    pub(super) fn train(&self, start: usize, packets: u16) -> Train {
        Train {
            to: To::Descriptor(self.fd()),
            offset: start + 128,
            bytes: u32::from(packets) * u32::from(Self::STRIDE),
            stride: Self::STRIDE,
            segments: Segments::OfSocket,
            headers: Some(OwnHeaders {
                offset: start,
                bytes: 12,
            }),
            token: 0,
        }
    }

    fn fd(&self) -> RawFd {
        self.sender.as_raw_fd()
    }
}

/// How trains leave from a registered buffer, found by `send`, which sends one without a copy and
/// answers with its errno, or 0.
pub(super) fn try_out(
    buffer: &Range<usize>,
    mut send: impl FnMut(&Train) -> io::Result<i32>,
) -> Means {
    let copying = Means::copying();
    if buffer.len() < Trial::BYTES {
        return copying;
    }
    let Ok(trial) = Trial::new() else {
        return copying;
    };
    let mut is_lost = false;
    let mut sends = |packets| {
        let sent = send(&trial.train(buffer.start, packets));
        is_lost |= sent.is_err();
        matches!(sent, Ok(0))
    };
    // Eight packets are 16 pieces, and on base pages 18.
    let page_bytes = match (sends(8), sends(4)) {
        (true, _) => Some(HUGE_PAGE_BYTES),
        (false, true) => Some(page_bytes()),
        (false, false) => None,
    };
    if is_lost {
        // What the kernel has not taken names the socket by its number, which stays its own.
        std::mem::forget(trial);
    }
    page_bytes.map_or(copying, |page_bytes| Means {
        is_zero_copy: true,
        page_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_has_as_many_packets_as_its_pieces_allow() {
        let huge = Means {
            is_zero_copy: true,
            page_bytes: HUGE_PAGE_BYTES,
        };
        assert_eq!(huge.packets(0, 1328), 8);
        // The fourth lies on two pages: 17 pieces. All at once would be more.
        assert_eq!(huge.packets(HUGE_PAGE_BYTES - 3 * 1328 - 700, 1328), 8);
        let base = Means {
            is_zero_copy: true,
            page_bytes: 4096,
        };
        for offset in 0..4096 {
            let packets = base.packets(offset, 1328);
            assert!((6..=8).contains(&packets), "{packets} at {offset}");
        }
        assert_eq!((base.packets(112, 1328), base.packets(128, 1328)), (8, 7));
        // The largest that fit an Ethernet frame.
        let least = (0..4096).map(|offset| base.packets(offset, 1500)).min();
        assert!(least >= Some(super::super::OWN_HEADERS_PACKETS_MIN));
        assert_eq!(Means::copying().packets(4000, 1328), 8);
    }

    #[test]
    fn what_is_tried_decides() {
        let means = |eight: i32, four: i32| {
            try_out(&(0..Trial::BYTES), |train| {
                Ok(if train.bytes > 4 * 1328 { eight } else { four })
            })
        };
        assert_eq!(means(0, 0).page_bytes, HUGE_PAGE_BYTES);
        let base = means(libc::EMSGSIZE, 0);
        assert_eq!((base.is_zero_copy, base.page_bytes), (true, page_bytes()));
        assert_eq!(means(libc::EINVAL, libc::EINVAL), Means::copying());
        let small = try_out(&(1..Trial::BYTES), |_| Ok(0));
        assert_eq!(small, Means::copying());
    }
}
