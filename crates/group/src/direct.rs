//! `sendmmsg` and `loop`: the ways that name each member to the kernel.

use std::io;
use std::mem;
use std::net::UdpSocket;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};

use super::members::{Members, Name};
use super::network::option;
use super::{GroupError, Sent, Train};
use onrush_sys::path::{check_udp_segment, set_option};

/// Messages of one `sendmmsg`: UIO_MAXIOV, beyond which the kernel silently takes fewer.
const BATCH_MESSAGES_MAX: usize = 1024;

const SEND_FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Sends to members by name.
pub(super) struct Direct {
    /// Headers of a batch; empty for the way `loop`.
    messages: Vec<libc::mmsghdr>,
    names: Vec<Name>,
    /// What UDP_SEGMENT of the socket is now.
    segment: usize,
    pub(super) crossings: u64,
    pub(super) trains_cut: u64,
}

// SAFETY: the pointers in `messages` are set and used within one call and never read after it.
unsafe impl Send for Direct {}

/// Whom to send to, by the members' slots.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slots<'a> {
    /// The first so many.
    All(usize),
    /// These.
    Of(&'a [u32]),
}

impl Slots<'_> {
    fn len(self) -> usize {
        match self {
            Self::All(count) => count,
            Self::Of(slots) => slots.len(),
        }
    }

    fn at(self, place: usize) -> usize {
        match self {
            Self::All(_) => place,
            Self::Of(slots) => slots[place] as usize,
        }
    }
}

/// What a group changes of its socket, as it was before: a program may have kept another descriptor
/// of it.
#[derive(Debug)]
pub(super) struct SocketBefore {
    segment: Option<i32>,
    send_buffer_bytes: Option<i32>,
}

impl SocketBefore {
    pub(super) fn of(socket: &UdpSocket) -> Self {
        Self {
            segment: option(socket, libc::SOL_UDP, libc::UDP_SEGMENT),
            send_buffer_bytes: option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF),
        }
    }

    /// Makes the socket that again, as far as the kernel lets this process.
    pub(super) fn restore(&self, socket: &UdpSocket) {
        let fd = socket.as_raw_fd();
        if let Some(segment) = self.segment {
            drop(set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, segment));
        }
        if let Some(bytes) = self.send_buffer_bytes {
            // The kernel says twice what it was told (socket(7)). Without privileges
            // net.core.wmem_max bounds it.
            let half = bytes / 2;
            let forced = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, half);
            drop(forced.or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, half)));
        }
    }
}

impl Direct {
    pub(super) fn by_loop(fd: RawFd) -> Result<Self, GroupError> {
        // Where there is no such option nothing can be cut.
        match set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0) {
            Err(error) if error.raw_os_error() != Some(libc::ENOPROTOOPT) => {
                return Err(GroupError::UdpSegment(error));
            }
            _ => {}
        }
        onrush_sys::path::widen_send_buffer(fd).map_err(GroupError::Socket)?;
        Ok(Self {
            messages: Vec::new(),
            names: Vec::new(),
            segment: 0,
            crossings: 0,
            trains_cut: 0,
        })
    }

    pub(super) fn sendmmsg(socket: &UdpSocket) -> Result<Self, GroupError> {
        check_udp_segment(socket).map_err(GroupError::UdpSegment)?;
        let mut direct = Self::by_loop(socket.as_raw_fd())?;
        // SAFETY: an mmsghdr is addresses, lengths and flags, for which all zeroes is valid (and
        // empty).
        direct.messages = vec![unsafe { mem::zeroed() }; BATCH_MESSAGES_MAX];
        Ok(direct)
    }

    /// Sends `train` to members.
    pub(super) fn send(
        &mut self,
        fd: RawFd,
        members: &mut Members,
        slots: Slots<'_>,
        train: Train<'_>,
    ) -> Sent {
        let (mut sent, all) = (Sent::default(), slots.len());
        if self.messages.is_empty() || all == 1 && train.packets() == 1 {
            return self.send_each(fd, members, slots, train);
        }
        if all == 0 {
            return sent;
        }
        if let Err(errno) = self.set_segment(fd, train) {
            return refuse_all(members, slots, 0..all, train, errno);
        }
        let mut place = 0;
        while place < all {
            let end = all.min(place + BATCH_MESSAGES_MAX);
            sent.add(self.send_batch(fd, members, slots, place..end, train));
            place = end;
        }
        sent
    }

    /// Sends `train` to members, as the way `loop` does.
    pub(super) fn send_each(
        &mut self,
        fd: RawFd,
        members: &mut Members,
        slots: Slots<'_>,
        train: Train<'_>,
    ) -> Sent {
        let mut sent = Sent::default();
        for place in 0..slots.len() {
            sent.add(self.send_singly(fd, members, slots.at(place), train));
        }
        sent
    }

    /// Sends a train that the kernel does not cut for this member.
    pub(super) fn send_cut(
        &mut self,
        fd: RawFd,
        members: &mut Members,
        slot: usize,
        train: Train<'_>,
    ) -> Sent {
        self.trains_cut += 1;
        self.send_singly(fd, members, slot, train)
    }

    /// Sends each packet with a `sendto` of its own.
    fn send_singly(
        &mut self,
        fd: RawFd,
        members: &mut Members,
        slot: usize,
        train: Train<'_>,
    ) -> Sent {
        if let Err(errno) = self.set_segment_to(fd, 0) {
            return refuse_all(members, Slots::All(slot + 1), slot..slot + 1, train, errno);
        }
        let name = members.name(slot);
        let mut sent = Sent::default();
        let whole = train.bytes.chunks(train.stride);
        let empty = train.bytes.is_empty().then_some(train.bytes);
        for packet in whole.chain(empty) {
            self.crossings += 1;
            match send_to(fd, packet, &name) {
                0 => {
                    members.taken(slot, 1);
                    sent.packets += 1;
                }
                errno => {
                    members.refused(slot, 1, errno);
                    sent.refused += 1;
                }
            }
        }
        sent
    }

    fn send_batch(
        &mut self,
        fd: RawFd,
        members: &mut Members,
        slots: Slots<'_>,
        places: Range<usize>,
        train: Train<'_>,
    ) -> Sent {
        let packets = train.packets() as u64;
        let mut iovec = libc::iovec {
            iov_base: train.bytes.as_ptr().cast_mut().cast(),
            iov_len: train.bytes.len(),
        };
        self.names.clear();
        self.names
            .extend(places.clone().map(|place| members.name(slots.at(place))));
        for (message, name) in self.messages.iter_mut().zip(&self.names) {
            message.msg_hdr.msg_name = name.as_ptr().cast_mut().cast();
            message.msg_hdr.msg_namelen = name.length();
            message.msg_hdr.msg_iov = &raw mut iovec;
            message.msg_hdr.msg_iovlen = 1;
        }
        let (mut place, mut sent) = (places.start, Sent::default());
        while place < places.end {
            let done = self.send_messages(fd, place - places.start, places.end - place);
            for _ in 0..*done.as_ref().unwrap_or(&0) {
                members.taken(slots.at(place), packets);
                sent.packets += packets;
                place += 1;
            }
            let Err(errno) = done else { continue };
            // It is the first that was refused, and the others wait behind it.
            if is_refused_whole(packets, errno) {
                sent.add(self.send_cut(fd, members, slots.at(place), train));
                if let Err(errno) = self.set_segment(fd, train) {
                    sent.add(refuse_all(
                        members,
                        slots,
                        place + 1..places.end,
                        train,
                        errno,
                    ));
                    return sent;
                }
            } else {
                members.refused(slots.at(place), packets, errno);
                sent.refused += packets;
            }
            place += 1;
        }
        sent
    }

    /// How many of the messages from `first` on the kernel took, at least one; or the errno of the
    /// first.
    fn send_messages(&mut self, fd: RawFd, first: usize, count: usize) -> Result<usize, i32> {
        let messages = &mut self.messages[first..first + count];
        let count = libc::c_uint::try_from(count).expect("a batch has at most 1024 messages");
        self.crossings += 1;
        // SAFETY: each message points to a name in `self.names`, with its length, and to one iovec
        // over the train's bytes, all of which the caller holds until the call returns; the kernel
        // only reads them, and writes the lengths into the headers, which are ours. Control data
        // there is none.
        let sent = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count, SEND_FLAGS as _) };
        match usize::try_from(sent) {
            Ok(sent) if sent > 0 => Ok(sent),
            _ => Err(last_errno()),
        }
    }

    /// Has the kernel cut what is sent from now on as `train` says; the errno if it will not.
    pub(super) fn set_segment(&mut self, fd: RawFd, train: Train<'_>) -> Result<(), i32> {
        let segment = if train.packets() > 1 { train.stride } else { 0 };
        self.set_segment_to(fd, segment)
    }

    fn set_segment_to(&mut self, fd: RawFd, segment: usize) -> Result<(), i32> {
        if self.segment != segment {
            let value = i32::try_from(segment).expect("a train is at most 65,507 bytes");
            set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, value).map_err(|e| errno_of(&e))?;
            self.segment = segment;
        }
        Ok(())
    }
}

/// Whether single packets may get through where the kernel refused a train of so many: the device
/// computes no checksums (EIO), or a packet of it exceeds the path's MTU (EMSGSIZE; EINVAL before
/// Linux 6.14).
pub(super) fn is_refused_whole(packets: u64, errno: i32) -> bool {
    packets > 1 && matches!(errno, libc::EIO | libc::EMSGSIZE | libc::EINVAL)
}

fn refuse_all(
    members: &mut Members,
    slots: Slots<'_>,
    places: Range<usize>,
    train: Train<'_>,
    errno: i32,
) -> Sent {
    let packets = train.packets() as u64;
    let refused = packets * places.len() as u64;
    for place in places {
        members.refused(slots.at(place), packets, errno);
    }
    Sent {
        packets: 0,
        refused,
    }
}

/// Sends one datagram; the errno, or 0.
pub(super) fn send_to(fd: RawFd, packet: &[u8], name: &Name) -> i32 {
    // SAFETY: the packet is readable for its length, the name for its own; the kernel only reads
    // them.
    let sent = unsafe {
        libc::sendto(
            fd,
            packet.as_ptr().cast(),
            packet.len(),
            SEND_FLAGS,
            name.as_ptr(),
            name.length(),
        )
    };
    if sent < 0 { last_errno() } else { 0 }
}

fn last_errno() -> i32 {
    errno_of(&io::Error::last_os_error())
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
