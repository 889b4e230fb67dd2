//! The connections that a transmitter sends over: they come, are given messages, fail and go.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::Framing;
use super::super::connection_shared::{ConnectionShared, Message};
use super::super::flights::Flight;
use super::super::shared::{bump, drop_one};
use super::connections::{DATAGRAM_TRAINS_KEPT, Free, Gate, SHARE, TRAINS_KEPT};
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
    /// that what control has said first leaves first. Whether some are left that may leave as soon
    /// as these are answered.
    pub(super) fn queue_messages(&mut self) -> bool {
        let flights_free = self.flights.room().saturating_sub(DATAGRAM_TRAINS_KEPT);
        let room = (self.sends_room().min(flights_free), self.trains_free());
        let now_ns = self.remote.clock.now_ns();
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
            })
    }

    /// Whether these images, which start at `offset`, may be queued for a connection.
    pub(super) fn gate(&self, connection: u32, offset: usize, images: &Images) -> Gate {
        let free = Free {
            slots: self.slab.as_ref().map_or(0, |slab| slab.room(offset)),
            trains: self.trains_free(),
        };
        let now_ns = self.remote.clock.now_ns();
        self.connections
            .gate(connection, images.bytes, free, now_ns)
    }

    /// Trains that connections may have beside those that they hold.
    fn trains_free(&self) -> usize {
        self.flights.room().saturating_sub(TRAINS_KEPT)
    }

    /// Trains that a connection may have at once, with one for a fault that repeats a packet: a
    /// burst that is longer leaves in parts.
    pub(super) fn trains_share(&self) -> usize {
        (self.trains_free() / SHARE).max(2)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use onrush_lock::memory::Area;
    use onrush_sys::path::{BATCH_TRAINS_MAX, IN_FLIGHT_TRAINS_MAX};
    use onrush_sys::pool::Pool;

    use super::super::testing::{ManualEngine, Network};
    use super::*;
    use crate::engine::tests::sockets;
    use crate::engine::{Destination, Engines, InterleavedConnection, Stream, StreamSpec};
    use crate::experiments::Faults;
    use crate::store::testing::ManualBuilder;
    use crate::testing::{CHUNK_BYTES, TestSource};
    use crate::tls::record::tests::almost_worn;

    const TICK_NS: u64 = 5_000_000;

    /// An engine whose turns are taken by hand, and a client that its network releases nothing for.
    struct Rig {
        now_ns: Arc<AtomicU64>,
        builder: ManualBuilder,
        network: Arc<Network>,
        engine: ManualEngine,
        engines: Engines,
        test: TestSource,
        silent: TcpStream,
        _client: TcpStream,
    }

    impl Rig {
        fn new() -> Self {
            let area = Area::map(64 * CHUNK_BYTES).expect("a little memory");
            let pool = Arc::new(Pool::with_slabs(area, CHUNK_BYTES, 1));
            let builder = ManualBuilder::new(pool, Faults::default());
            let now_ns = Arc::new(AtomicU64::new(1_000_000_000_000));
            let network = Arc::<Network>::default();
            let (engines, mut engine) = ManualEngine::open(&now_ns, builder.shared(), &network);
            // Nobody is left out.
            engine.worker.load_shedder = None;
            let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
            let address = listener.local_addr().expect("bound");
            let client = TcpStream::connect(address).expect("it listens");
            let (silent, _) = listener.accept().expect("it came");
            Self {
                now_ns,
                builder,
                network,
                engine,
                engines,
                test: TestSource::lasting(5000),
                silent,
                _client: client,
            }
        }

        fn play(&self, to: Destination) -> Stream {
            let source = Arc::clone(&self.test.source);
            let spec = StreamSpec { source, to };
            let stream = self.engines.open(spec).expect("a stream");
            stream.play(0, None, Duration::ZERO).expect("played");
            stream
        }

        fn connect(&self, mut sealer: Option<Sealer>) -> Arc<InterleavedConnection> {
            let socket = self.silent.try_clone().expect("a descriptor");
            let connection = self.engines.open_connection(socket.into(), &mut sealer);
            connection.expect("a connection")
        }

        /// How many packets have been sent there when another second is over.
        fn sent_after_a_second(&mut self, receiver: SocketAddr) -> usize {
            for _ in 0..200 {
                while let Some(reading) = self.builder.begin() {
                    self.builder.finish(reading);
                }
                self.engine.turn();
                self.now_ns.fetch_add(TICK_NS, Ordering::AcqRel);
            }
            self.network.count(receiver)
        }
    }

    /// What each of these clients may leave unacknowledged is together more than an engine has
    /// trains. It is sealed, because then no slots bound it.
    #[test]
    fn clients_that_take_nothing_leave_trains_for_datagrams() {
        const CLIENTS: usize = 200;
        let mut rig = Rig::new();
        let mut streams = Vec::new();
        for _ in 0..CLIENTS {
            let connection = rig.connect(Some(almost_worn(1 << 20)));
            streams.push(rig.play(Destination::Interleaved {
                connection,
                channel: 0,
            }));
        }
        let (socket, receiver) = sockets();
        streams.push(rig.play(socket.into()));
        let receiver = receiver.local_addr().expect("bound");
        let before = rig.sent_after_a_second(receiver);
        let after = rig.sent_after_a_second(receiver);
        // 380 a second.
        assert!(after > before + 300, "{after} after {before}");
        let in_flight = rig.engine.worker.transmitter.in_flight();
        assert!(in_flight > 5000, "{in_flight} trains in flight");
    }

    /// As the packets of films do: frames of live channels are messages.
    #[test]
    fn messages_leave_trains_for_datagrams() {
        const TRAINS: usize = IN_FLIGHT_TRAINS_MAX - DATAGRAM_TRAINS_KEPT;
        let mut rig = Rig::new();
        let connections: Vec<_> = (0..100).map(|_| rig.connect(None)).collect();
        // More than there are trains for.
        for _ in 0..TRAINS / 1000 + 1 {
            for connection in &connections {
                for _ in 0..10 {
                    connection.try_send(vec![0; 20]).expect("few wait");
                }
            }
            rig.engine.turn();
        }
        assert_eq!(rig.engine.worker.transmitter.in_flight(), TRAINS);
        let (socket, receiver) = sockets();
        let _stream = rig.play(socket.into());
        let receiver = receiver.local_addr().expect("bound");
        let before = rig.sent_after_a_second(receiver);
        let after = rig.sent_after_a_second(receiver);
        assert!(after > before + 300, "{after} after {before}");
    }

    /// While a film plays, only time ends a sleep.
    #[test]
    fn an_engine_does_not_sleep_over_messages() {
        let mut rig = Rig::new();
        let (socket, receiver) = sockets();
        let _stream = rig.play(socket.into());
        let receiver = receiver.local_addr().expect("bound");
        assert!(rig.sent_after_a_second(receiver) > 0, "it plays");
        let connections: Vec<_> = (0..2 * SHARE).map(|_| rig.connect(None)).collect();
        for connection in &connections {
            for _ in 0..BATCH_TRAINS_MAX / SHARE {
                connection.try_send(vec![0; 20]).expect("few wait");
            }
        }
        rig.engine.turn();
        let waiting = connections.iter().map(|connection| connection.waiting());
        assert_eq!(waiting.sum::<u64>(), 0, "of two crossings' messages");
    }
}
