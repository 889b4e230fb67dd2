//! The connections that a transmitter sends over: they come, are given messages, fail and go.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::Framing;
use super::super::connection_shared::{ConnectionShared, Message};
use super::super::flights::Flight;
use super::super::shared::{bump, drop_one};
use super::connections::Gate;
use super::entry::StreamOutlet;
use super::transmitter::Transmitter;
use crate::store::layout::Images;
use crate::tls::record::Sealer;

impl Transmitter {
    /// Takes a connection in.
    pub(super) fn open_connection(
        &mut self,
        number: u32,
        shared: Arc<ConnectionShared>,
        (socket, sealer): (Arc<OwnedFd>, Option<Box<Sealer>>),
    ) {
        let now_ns = self.remote.clock.now_ns();
        self.connections
            .insert(number, shared, (socket, sealer), now_ns);
        bump(&self.remote.shared.connections, 1);
    }

    /// Control has let go of a connection.
    pub(super) fn close_connection(&mut self, number: u32) {
        if self.connections.close(number) {
            self.connection_gone(number);
        }
    }

    pub(super) fn connection_gone(&self, number: u32) {
        drop_one(&self.remote.shared.connections);
        self.remote.connections.give_back(number);
    }

    /// Nothing more leaves on a connection. If that is news, the streams that left on it.
    pub(super) fn fail_connection(&mut self, number: u32, errno: i32) -> Option<Vec<u32>> {
        self.connections.fail(number, errno)
    }

    /// A stream leaves as frames of that connection.
    pub(super) fn frame(&mut self, stream: u32, framing: Framing) -> StreamOutlet {
        let Framing {
            connection,
            channel,
        } = framing;
        self.connections.add_stream(connection, stream);
        StreamOutlet::Interleaved {
            connection,
            channel,
        }
    }

    /// Takes a message of control's.
    pub(super) fn message(&mut self, number: u32, message: Message) {
        self.connections.message(number, message);
    }

    /// Queues the messages whose connections may take them. To be called before streams are, so
    /// that what control has said first leaves first.
    pub(super) fn queue_messages(&mut self) {
        let (room, now_ns) = (self.sends_room(), self.remote.clock.now_ns());
        let flights = &mut self.flights;
        self.connections
            .queue_messages(room, now_ns, |connection, bytes| {
                flights.take(Flight {
                    stream: None,
                    connection: Some(connection),
                    packets: 0,
                    bytes: u32::try_from(bytes).expect("a message is below 4 GiB"),
                    stride: 1,
                    padding_bytes: 0,
                    frame_bytes: 0,
                    pin: None,
                    headers: None,
                    encrypted: None,
                })
            });
    }

    /// Whether these images, which start at `offset`, may be queued for a connection.
    pub(super) fn gate(&self, connection: u32, offset: usize, images: &Images) -> Gate {
        let slots_free = self.slab.as_ref().map_or(0, |slab| slab.room(offset));
        let now_ns = self.remote.clock.now_ns();
        self.connections
            .gate(connection, images.bytes, slots_free, now_ns)
    }
}
