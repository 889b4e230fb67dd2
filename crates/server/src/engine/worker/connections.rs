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
    BATCH_TRAINS_MAX, FramedPackets, Path, StreamData, StreamSend, abort_stream,
    prepare_copied_stream, prepare_stream,
};

use super::super::connection_shared::{ConnectionShared, Message};
use crate::tls::record::Sealer;

/// Of the free slots for what stands before packets, one connection may hold one in so many: so a
/// crowd of clients that take nothing leaves room for the others, however large it is.
const SLOTS_SHARE: usize = 8;

/// What one connection may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of packets that its client has not acknowledged; a burst that is longer goes alone.
    pub(super) unacknowledged_bytes_max: usize,
    /// How long it may take nothing of what waits for it.
    pub(super) stall_ns_max: u64,
}

/// Whether packets may be queued for a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Gate {
    Open,
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
        match &sealer {
            None => prepare_stream(socket.as_fd()),
            // What is sealed is the kernel's as soon as it has room for it.
            Some(_) => {
                let bytes_max = self.limits.unacknowledged_bytes_max;
                prepare_copied_stream(socket.as_fd(), bytes_max);
            }
        }
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
            unanswered: 0,
            queued: 0,
            in_flight: 0,
            in_flight_bytes: 0,
            progress_ns: now_ns,
            has_failed: false,
            is_closing: false,
        }));
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Connection> {
        self.entries.get_mut(number as usize)?.as_deref_mut()
    }

    /// Sends that are queued.
    pub(super) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Whether so many bytes of packets may be queued, where so many slots are free for what stands
    /// before them.
    pub(super) fn gate(&self, number: u32, bytes: u32, slots_free: usize, now_ns: u64) -> Gate {
        let Some(Some(connection)) = self.entries.get(number as usize) else {
            return Gate::Failed;
        };
        if connection.has_failed || connection.is_closing {
            return Gate::Failed;
        }
        let bytes = connection.in_flight_bytes + bytes as usize;
        let fits = bytes <= self.limits.unacknowledged_bytes_max
            && (connection.in_flight as usize) < slots_free / SLOTS_SHARE;
        // Alone it goes, however long it is.
        let fits = fits || connection.in_flight == 0;
        if fits && connection.takes_more() && connection.messages.is_empty() {
            return Gate::Open;
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
        self.queued.push(Queued {
            connection,
            order,
            send: StreamSend {
                fd,
                data,
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

    /// Queues what messages may leave, as long as there is room for `room` sends; `token` gives
    /// each its token, by its connection and bytes.
    pub(super) fn queue_messages(
        &mut self,
        mut room: usize,
        now_ns: u64,
        mut token: impl FnMut(u32, usize) -> u32,
    ) {
        let mut waiting = std::mem::take(&mut self.with_messages);
        waiting.retain(|&number| {
            while room > 0 {
                let Some(connection) = self.get_mut(number) else {
                    return false;
                };
                if !connection.takes_more() {
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
                room -= 1;
            }
            true
        });
        self.with_messages = waiting;
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

    /// Nothing more leaves on it, and what its client has not taken is thrown away. Whether that is
    /// news.
    pub(super) fn fail(&mut self, number: u32, errno: i32) -> bool {
        let Some(connection) = self.get_mut(number) else {
            return false;
        };
        if std::mem::replace(&mut connection.has_failed, true) {
            return false;
        }
        connection.shared.fail(errno);
        connection.drop_messages();
        abort_stream(connection.socket.as_fd());
        true
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

impl Connection {
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
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::tls::record::tests::almost_worn;

    const LIMITS: Limits = Limits {
        unacknowledged_bytes_max: 1000,
        stall_ns_max: 50,
    };
    const MANY: usize = 1000;

    /// A connection of number 0, and its client.
    fn connections() -> (Connections, Arc<ConnectionShared>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let mut connections = Connections::new(LIMITS);
        let shared = Arc::<ConnectionShared>::default();
        connections.insert(0, Arc::clone(&shared), (Arc::new(socket.into()), None), 0);
        (connections, shared, client)
    }

    fn packets(bytes: u32) -> FramedPackets {
        FramedPackets {
            offset: 0,
            bytes,
            stride: 1000,
            heads_offset: 0,
            head_bytes: 16,
            replaced_bytes: 12,
        }
    }

    /// As if all that is queued were handed over.
    fn hand_over(connections: &mut Connections) -> Vec<u32> {
        let queued = std::mem::take(&mut connections.queued);
        for _ in &queued {
            connections.get_mut(0).unwrap().queued -= 1;
        }
        queued.iter().map(|queued| queued.send.token).collect()
    }

    #[test]
    fn as_much_is_under_way_as_the_limit_says() {
        let (mut connections, ..) = connections();
        // Alone it goes, however long it is.
        assert_eq!(connections.gate(0, 5000, MANY, 0), Gate::Open);
        connections.queue(0, packets(400), 1, 0);
        // In the same turn more may follow.
        assert_eq!(connections.gate(0, 600, MANY, 0), Gate::Open);
        assert_eq!(connections.gate(0, 601, MANY, 0), Gate::Shut);
        hand_over(&mut connections);
        assert_eq!(connections.gate(0, 1, MANY, 0), Gate::Shut, "unanswered");
        connections.answered(0, 10);
        assert_eq!(connections.gate(0, 600, MANY, 10), Gate::Open);
        assert_eq!(connections.gate(0, 601, MANY, 10), Gate::Shut);
        assert!(!connections.released(0, 400, 20));
        assert_eq!(connections.gate(0, 5000, MANY, 20), Gate::Open);
    }

    #[test]
    fn a_client_that_takes_nothing_for_too_long_is_stalled() {
        let (mut connections, ..) = connections();
        // It is not waited for before there is something to take.
        connections.queue(0, packets(900), 1, 1000);
        hand_over(&mut connections);
        assert_eq!(connections.gate(0, 900, MANY, 1050), Gate::Shut);
        assert_eq!(connections.gate(0, 900, MANY, 1051), Gate::Stalled);
        connections.answered(0, 1051);
        assert_eq!(connections.gate(0, 900, MANY, 1101), Gate::Shut);
        assert_eq!(connections.gate(0, 900, MANY, 1102), Gate::Stalled);
    }

    #[test]
    fn the_fewer_slots_are_free_the_fewer_has_a_connection() {
        let (mut connections, ..) = connections();
        for token in 0..3 {
            assert_eq!(connections.gate(0, 1, 8 * 3, 0), Gate::Open);
            connections.queue(0, packets(1), token, 0);
        }
        assert_eq!(connections.gate(0, 1, 8 * 3, 0), Gate::Shut);
        assert_eq!(connections.gate(0, 1, 8 * 4, 0), Gate::Open);
    }

    #[test]
    fn messages_leave_before_packets_that_are_queued_later() {
        let (mut connections, ..) = connections();
        connections.queue(0, packets(10), 7, 0);
        assert_eq!(hand_over(&mut connections), [7]);
        for message in [&b"one"[..], b"two"] {
            connections.message(0, Message::Bytes(message.into()));
        }
        let mut tokens = 20..;
        let mut token = |_: u32, _: usize| tokens.next().unwrap();
        connections.queue_messages(MANY, 0, &mut token);
        assert_eq!(connections.queued(), 0, "the chain before is not answered");
        connections.answered(0, 0);
        assert_eq!(connections.gate(0, 1, MANY, 0), Gate::Shut, "they go first");
        connections.queue_messages(1, 0, &mut token);
        assert_eq!(connections.gate(0, 1, MANY, 0), Gate::Shut, "one is left");
        connections.queue_messages(MANY, 0, &mut token);
        assert_eq!(connections.gate(0, 1, MANY, 0), Gate::Open);
        connections.queue(0, packets(1), 8, 0);
        assert_eq!(hand_over(&mut connections), [20, 21, 8]);
    }

    #[test]
    fn a_worn_key_of_tls_1_2_ends_its_connection() {
        let (mut connections, shared, _client) = connections();
        connections.get_mut(0).unwrap().sealer = Some(Box::new(almost_worn(1)));
        assert!(connections.seal(0, &[b"the last one"]).is_some());
        assert_eq!(connections.gate(0, 1, MANY, 0), Gate::Open);
        assert!(connections.seal(0, &[b"one more"]).is_none());
        assert_eq!(connections.gate(0, 1, MANY, 0), Gate::Failed);
        let error = shared.failure().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::EKEYEXPIRED));
    }

    #[test]
    fn what_fails_fails_once_and_goes_with_its_last_send() {
        let (mut connections, _shared, _client) = connections();
        connections.queue(0, packets(10), 1, 0);
        connections.message(0, Message::Bytes((*b"never").into()));
        assert!(connections.fail(0, libc::EPIPE));
        assert!(!connections.fail(0, libc::EIO));
        assert_eq!(connections.gate(0, 1, MANY, 0), Gate::Failed);
        assert!(!connections.close(0), "a send is in flight");
        hand_over(&mut connections);
        connections.answered(0, 0);
        assert!(connections.released(0, 10, 0));
        assert_eq!(connections.gate(0, 1, MANY, 0), Gate::Failed);
    }
}
