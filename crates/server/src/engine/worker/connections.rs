//! The connections of one worker: what leaves on each with the next crossing, and what the kernel
//! has not answered.
//!
//! On a connection bytes leave in one order, and the kernel may take a part of them. So what is due
//! on one in a turn is linked, send behind send, into one chain, and as long as a chain is not
//! answered no other follows it: streams wait, and so does control. That is all there is to
//! back-pressure. A client that takes nothing holds one chain, what lies in its socket, which is
//! bounded by [`Limits`], and nobody else up.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onrush_sys::path::{
    BATCH_TRAINS_MAX, FramedPackets, IN_FLIGHT_TRAINS_MAX, Path, StreamData, StreamSend,
    abort_stream, prepare_copied_stream, prepare_stream,
};

use super::super::connection_shared::{ConnectionShared, Message};
use super::referring::Referring;
use crate::tls::record::Sealer;

/// Of the free slots for what stands before packets, and of the free trains, one connection may
/// hold one in so many: so a crowd of clients that take nothing leaves room for the others.
pub(super) const SHARE: usize = 8;

/// Trains that packets on connections leave to datagrams and messages, however large the crowd is,
/// and those that messages leave to datagrams: with ten packets each they are what 10 Gbit/s take
/// for a tick. Of the others a connection's messages may take one at a time in any case, because
/// control's answers are among them.
pub(super) const TRAINS_KEPT: usize = IN_FLIGHT_TRAINS_MAX / 8;
pub(super) const DATAGRAM_TRAINS_KEPT: usize = TRAINS_KEPT / 2;

/// What one connection may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of packets that its client has not acknowledged; a burst that is longer goes alone.
    pub(super) unacknowledged_bytes_max: usize,
    /// How long it may take nothing of what waits for it.
    pub(super) stall_ns_max: u64,
}

/// What all connections together may have beside what they hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    /// Slots for what stands before packets.
    pub(super) slots: usize,
    pub(super) trains: usize,
}

/// Whether packets may be queued for a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Gate {
    Open,
    /// It waits for what others hold.
    Full,
    /// Its client is to take something first.
    Shut,
    /// It has taken nothing for too long.
    Stalled,
    /// Nothing leaves on it any more.
    Failed,
}

/// The connections of one worker, by number.
pub(super) struct Connections {
    /// As many as there ever were at once: most viewers have none.
    entries: Vec<Option<Box<Connection>>>,
    /// What leaves with the next crossing, in the order in which it was queued.
    queued: Vec<Queued>,
    /// Those for which messages wait.
    with_messages: Vec<u32>,
    limits: Limits,
}

struct Queued {
    connection: u32,
    order: usize,
    send: StreamSend,
}

struct Connection {
    shared: Arc<ConnectionShared>,
    socket: Arc<OwnedFd>,
    /// With TLS, what all that leaves is sealed with, in the order in which it is queued.
    sealer: Option<Box<Sealer>>,
    messages: VecDeque<Message>,
    /// The numbers of those that leave on it: of each two channels one at the most, and those that
    /// are on their way out.
    streams: Vec<u32>,
    /// Sends that are queued or handed over, and not answered.
    unanswered: u32,
    /// Of those, what is queued.
    queued: u32,
    /// Sends whose memory is not released.
    in_flight: u32,
    in_flight_bytes: usize,
    /// When its client has taken something last, or was first to take something.
    progress_ns: u64,
    has_failed: bool,
    /// Control has let go of it.
    is_closing: bool,
    referring: Referring,
}

impl Connections {
    /// Takes all memory that packets will ever need, but for what comes with each connection.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            entries: Vec::new(),
            queued: Vec::with_capacity(BATCH_TRAINS_MAX),
            with_messages: Vec::new(),
            limits,
        }
    }

    /// Takes a connection in.
    ///
    /// # Panics
    /// If there is one of that number.
    pub(super) fn insert(
        &mut self,
        number: u32,
        shared: Arc<ConnectionShared>,
        (socket, sealer): (Arc<OwnedFd>, Option<Box<Sealer>>),
        now_ns: u64,
    ) {
        // What is copied, as sealed bytes are, is the kernel's as soon as it has room for it.
        let bytes_max = match sealer {
            Some(_) => self.limits.unacknowledged_bytes_max,
            None => self.limits.copied_bytes_max(),
        };
        prepare_copied_stream(socket.as_fd(), bytes_max);
        let referring = Referring::of(socket.as_fd());
        let at = number as usize;
        if self.entries.len() <= at {
            self.entries.resize_with(at + 1, || None);
        }
        let place = &mut self.entries[at];
        assert!(place.is_none(), "a number belongs to one connection");
        *place = Some(Box::new(Connection {
            shared,
            socket,
            sealer,
            messages: VecDeque::new(),
            streams: Vec::new(),
            unanswered: 0,
            queued: 0,
            in_flight: 0,
            in_flight_bytes: 0,
            progress_ns: now_ns,
            has_failed: false,
            is_closing: false,
            referring,
        }));
    }

    /// A stream leaves on it from now on.
    pub(super) fn add_stream(&mut self, number: u32, stream: u32) {
        if let Some(connection) = self.get_mut(number) {
            connection.streams.push(stream);
        }
    }

    /// A stream is gone that left on it.
    pub(super) fn remove_stream(&mut self, number: u32, stream: u32) {
        if let Some(connection) = self.get_mut(number) {
            connection.streams.retain(|it| *it != stream);
        }
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Connection> {
        self.entries.get_mut(number as usize)?.as_deref_mut()
    }

    /// Sends that are queued.
    pub(super) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Whether so many bytes of packets may be queued, where so much is free.
    pub(super) fn gate(&self, number: u32, bytes: u32, free: Free, now_ns: u64) -> Gate {
        let Some(Some(connection)) = self.entries.get(number as usize) else {
            return Gate::Failed;
        };
        if connection.has_failed || connection.is_closing {
            return Gate::Failed;
        }
        let bytes = connection.in_flight_bytes + bytes as usize;
        let fits = bytes <= connection.bytes_max(&self.limits)
            && (connection.in_flight as usize) < free.slots.min(free.trains) / SHARE;
        // Alone it goes, however long it is. Slots may be free after a crossing.
        let fits = fits || (connection.in_flight == 0 && free.trains > 0);
        if fits && connection.takes_more() && connection.messages.is_empty() {
            return Gate::Open;
        }
        // Its client has taken all.
        if connection.in_flight == 0 {
            return Gate::Full;
        }
        match now_ns.saturating_sub(connection.progress_ns) > self.limits.stall_ns_max {
            true => Gate::Stalled,
            false => Gate::Shut,
        }
    }

    /// Queues packets of a stream, for which the [gate](Self::gate) is open.
    pub(super) fn queue(&mut self, number: u32, packets: FramedPackets, token: u32, now_ns: u64) {
        let Some(connection) = self.get_mut(number) else {
            unreachable!("its gate is open");
        };
        // What follows a send of which the kernel has taken a part would land in its midst.
        assert!(
            connection.takes_more(),
            "all that was handed over is answered"
        );
        let fd = connection.count_in(packets.bytes as usize, now_ns);
        self.push(number, fd, StreamData::Packets(packets), token);
    }

    /// Whether what leaves on it is sealed.
    pub(super) fn is_sealed(&self, number: u32) -> bool {
        let connection = self.entries[number as usize].as_ref();
        connection.is_some_and(|connection| connection.sealer.is_some())
    }

    /// Seals what lies in these pieces; `None` if the connection has failed over it.
    pub(super) fn seal(&mut self, number: u32, pieces: &[&[u8]]) -> Option<Box<[u8]>> {
        let connection = self.get_mut(number)?;
        let sealed = connection.seal(pieces);
        match sealed {
            Ok(sealed) => Some(sealed.into_boxed_slice()),
            Err(error) => {
                self.fail(number, error.raw_os_error().unwrap_or(libc::EIO));
                None
            }
        }
    }

    /// As [`Self::queue`], of packets that are [sealed](Self::seal): so many bytes of them.
    pub(super) fn queue_sealed(
        &mut self,
        number: u32,
        (sealed, bytes): (Box<[u8]>, u32),
        token: u32,
        now_ns: u64,
    ) {
        let Some(connection) = self.get_mut(number) else {
            unreachable!("its gate is open");
        };
        assert!(
            connection.takes_more(),
            "all that was handed over is answered"
        );
        let fd = connection.count_in(bytes as usize, now_ns);
        self.push(number, fd, StreamData::Bytes(sealed), token);
    }

    fn push(&mut self, connection: u32, fd: RawFd, data: StreamData, token: u32) {
        let order = self.queued.len();
        let is_copied = match (&data, self.get_mut(connection)) {
            (StreamData::Packets(packets), Some(connection)) => {
                !connection.referring.next(packets.packets())
            }
            _ => true,
        };
        self.queued.push(Queued {
            connection,
            order,
            send: StreamSend {
                fd,
                data,
                is_copied,
                is_followed: false,
                token,
            },
        });
    }

    /// Takes a message of control's.
    pub(super) fn message(&mut self, number: u32, message: Message) {
        let Some(connection) = self.get_mut(number) else {
            return;
        };
        if connection.has_failed || connection.is_closing {
            return connection.shared.answer(message.len());
        }
        connection.messages.push_back(message);
        if connection.messages.len() == 1 {
            self.with_messages.push(number);
        }
    }

    /// Queues what messages may leave, as long as there is room for `room` sends: of one connection
    /// its [share](SHARE) of those and of the `trains` that are free, but one at the least. `token`
    /// gives each its token, by its connection and bytes. Whether some are left that may leave as
    /// soon as these are answered.
    pub(super) fn queue_messages(
        &mut self,
        (mut room, mut trains): (usize, usize),
        now_ns: u64,
        mut token: impl FnMut(u32, usize) -> u32,
    ) -> bool {
        let (mut has_queued, mut are_left) = (false, false);
        let mut waiting = std::mem::take(&mut self.with_messages);
        waiting.retain(|&number| {
            let mut share = (room.min(trains) / SHARE).max(1).min(room);
            loop {
                let Some(connection) = self.get_mut(number) else {
                    return false;
                };
                if connection.messages.is_empty() {
                    return false;
                }
                if !connection.takes_more() {
                    return true;
                }
                if share == 0 {
                    are_left = true;
                    return true;
                }
                let Some(message) = connection.messages.pop_front() else {
                    return false;
                };
                let bytes = message.len();
                let data = match connection.data_of(message) {
                    Ok(Some(data)) => data,
                    nothing => {
                        connection.shared.answer(bytes);
                        if let Err(error) = nothing {
                            self.fail(number, error.raw_os_error().unwrap_or(libc::EIO));
                        }
                        continue;
                    }
                };
                let fd = connection.count_in(0, now_ns);
                let token = token(number, bytes);
                self.push(number, fd, StreamData::Bytes(data), token);
                has_queued = true;
                (share, room) = (share - 1, room - 1);
                trains = trains.saturating_sub(1);
            }
        });
        self.with_messages = waiting;
        has_queued && are_left
    }

    /// Hands what is queued to the path: of each connection a chain.
    pub(super) fn flush(&mut self, path: &mut dyn Path) {
        if self.queued.is_empty() {
            return;
        }
        self.queued
            .sort_unstable_by_key(|queued| (queued.connection, queued.order));
        let mut all = std::mem::take(&mut self.queued);
        let mut sends = all.drain(..).peekable();
        while let Some(mut queued) = sends.next() {
            let next = sends.peek().map(|next| next.connection);
            queued.send.is_followed = next == Some(queued.connection);
            if let Some(connection) = self.get_mut(queued.connection) {
                connection.queued -= 1;
            }
            path.queue_stream(queued.send);
        }
        drop(sends);
        self.queued = all;
    }

    /// A send was answered.
    pub(super) fn answered(&mut self, number: u32, now_ns: u64) {
        if let Some(connection) = self.get_mut(number) {
            connection.unanswered -= 1;
            connection.progress_ns = now_ns;
        }
    }

    /// A message was answered.
    pub(super) fn message_answered(&mut self, number: u32, bytes: usize) {
        if let Some(connection) = self.get_mut(number) {
            connection.shared.answer(bytes);
        }
    }

    /// The kernel was to refer to packets, and did or did not.
    pub(super) fn referred(&mut self, number: u32, did: bool) {
        let limits = self.limits;
        let Some(connection) = self.get_mut(number) else {
            return;
        };
        if !connection.referring.told(did) {
            return;
        }
        let socket = connection.socket.as_fd();
        if !did {
            prepare_copied_stream(socket, limits.copied_bytes_max());
        } else if !prepare_stream(socket) {
            // Its client is elsewhere: what it has not acknowledged lies in the socket.
            prepare_copied_stream(socket, limits.unacknowledged_bytes_max);
            connection.referring = Referring::Fails;
        }
    }

    /// The memory of a send with so many bytes of packets is released. Whether the connection is
    /// gone with it.
    pub(super) fn released(&mut self, number: u32, bytes: usize, now_ns: u64) -> bool {
        let Some(connection) = self.get_mut(number) else {
            return false;
        };
        connection.in_flight -= 1;
        connection.in_flight_bytes -= bytes;
        connection.progress_ns = now_ns;
        self.remove_if_done(number)
    }

    /// Nothing more leaves on it, and what its client has not taken is thrown away. If that is
    /// news, the streams that left on it.
    pub(super) fn fail(&mut self, number: u32, errno: i32) -> Option<Vec<u32>> {
        let connection = self.get_mut(number)?;
        if std::mem::replace(&mut connection.has_failed, true) {
            return None;
        }
        connection.shared.fail(errno);
        connection.drop_messages();
        abort_stream(connection.socket.as_fd());
        Some(std::mem::take(&mut connection.streams))
    }

    /// Control has let go of it: nobody is left who would read what its client answers. Whether it
    /// is gone.
    pub(super) fn close(&mut self, number: u32) -> bool {
        let Some(connection) = self.get_mut(number) else {
            return false;
        };
        connection.is_closing = true;
        connection.drop_messages();
        if connection.in_flight > 0 && !connection.has_failed {
            abort_stream(connection.socket.as_fd());
        }
        self.remove_if_done(number)
    }

    fn remove_if_done(&mut self, number: u32) -> bool {
        let Some(place) = self.entries.get_mut(number as usize) else {
            return false;
        };
        place
            .take_if(|connection| connection.is_closing && connection.in_flight == 0)
            .is_some()
    }
}

impl Limits {
    /// Of packets that the kernel copies so many lie in the socket, where nobody here can count
    /// them, and as many may wait for room there: together as many as may be unacknowledged.
    fn copied_bytes_max(self) -> usize {
        self.unacknowledged_bytes_max / 2
    }
}

impl Connection {
    /// Bytes of packets that may be under way.
    fn bytes_max(&self, limits: &Limits) -> usize {
        match self.sealer.is_some() || self.referring == Referring::Works {
            true => limits.unacknowledged_bytes_max,
            false => limits.copied_bytes_max(),
        }
    }

    /// Whether something may be queued behind what is: all that was handed over is answered.
    fn takes_more(&self) -> bool {
        self.unanswered == self.queued && !self.has_failed
    }

    /// Counts a send in that is queued: the descriptor that it is for.
    fn count_in(&mut self, bytes: usize, now_ns: u64) -> RawFd {
        if self.in_flight == 0 {
            self.progress_ns = now_ns;
        }
        self.unanswered += 1;
        self.queued += 1;
        self.in_flight += 1;
        self.in_flight_bytes += bytes;
        self.socket.as_raw_fd()
    }

    fn seal(&mut self, pieces: &[&[u8]]) -> io::Result<Vec<u8>> {
        let Some(sealer) = &mut self.sealer else {
            return Ok(pieces.concat());
        };
        let sealed = sealer.seal(pieces);
        if sealer.is_worn() {
            self.shared.is_worn.store(true, Ordering::Relaxed);
        }
        sealed
    }

    /// What leaves of a message, if anything does.
    fn data_of(&mut self, message: Message) -> io::Result<Option<Box<[u8]>>> {
        let data = match (message, &mut self.sealer) {
            (Message::Bytes(bytes), None) => return Ok(Some(bytes)),
            (Message::Bytes(bytes), Some(_)) => self.seal(&[&bytes])?,
            (Message::NewKey(key), Some(sealer)) => sealer.change_key(*key)?,
            (Message::CloseNotify, Some(sealer)) => sealer.close_notify()?,
            (_, None) => return Ok(None),
        };
        Ok(Some(data.into_boxed_slice()))
    }

    fn drop_messages(&mut self) {
        for message in self.messages.drain(..) {
            self.shared.answer(message.len());
        }
    }
}

#[cfg(test)]
mod tests;
