//! The kernel's side of a worker: the path, the sockets that it keeps, what is in flight, and what
//! of it has come back. What belongs to connections alone is in [`framing`](super::framing).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onrush_sys::clock::{monotonic_ns, sleep_until_ns};
use onrush_sys::path::{
    BATCH_TRAINS_MAX, Completion, Counters, FramedPackets, OwnHeaders, Path, PathError, PathName,
    Train, Vectored, prepare_socket,
};
use onrush_sys::pool::{HeaderSlab, HeaderSlot, PacketSlab};
use onrush_wire::rtp::HEADER_BYTES;
use onrush_wire::rtsp::{FRAME_PREFIX_BYTES, frame_prefix};
use tracing::{debug, warn};

use super::super::flights::{Flight, Flights, Taken};
use super::super::numbering::RtpHeaders;
use super::super::reader::Span;
use super::super::shared::bump;
use super::super::{EngineConfig, Framing, OpenPath, Remote};
use super::connections::{Connections, Limits};
use super::entry::{StreamEntry, StreamOutlet};
use super::nanos;
use crate::experiments::{Fault, Faults};
use crate::store;
use crate::store::layout::Images;

/// How long the worker waits after a crossing that failed.
pub(in super::super) const REFUSED_PAUSE_NS: u64 = 5_000_000;

/// Bytes of an RTP header.
const RTP_HEADER_BYTES: u8 = 12;

const _: () = assert!(RTP_HEADER_BYTES as usize == HEADER_BYTES);

/// Bytes of what stands before an RTP header in a frame, and of both.
pub(super) const PREFIX_BYTES: u16 = 4;
pub(super) const FRAME_HEAD_BYTES: u8 = 16;

const _: () = assert!(PREFIX_BYTES as usize == FRAME_PREFIX_BYTES);
const _: () = assert!(FRAME_HEAD_BYTES as usize == FRAME_PREFIX_BYTES + HEADER_BYTES);

/// What an engine has of the pool for encrypted packets, at most: 2048 trains in flight. Of a small
/// one it has less.
const ENCRYPTED_BYTES_MAX: usize = 32 << 20;

/// Packets of a stream whose packets leave singly that are queued at once, of the
/// [`BATCH_TRAINS_MAX`] of all.
const SINGLE_PACKETS_MAX: usize = 64;

const _: () = assert!(SINGLE_PACKETS_MAX < BATCH_TRAINS_MAX);

/// Hands trains to the kernel, and takes what comes back.
pub(super) struct Transmitter {
    path: Box<dyn Path>,
    /// A path that was given up while trains were in flight on it.
    retired: Option<Box<dyn Path>>,
    /// What a path that is closed by now has done: what is counted never goes back.
    closed: Counters,
    open_path: Arc<OpenPath>,
    /// Streams below this number have their sockets in the path's table, and no descriptor.
    files: u32,
    pub(super) flights: Flights,
    /// Room for headers of streams' own.
    pub(super) slab: Option<HeaderSlab>,
    /// Room for packets that are encrypted for one client.
    pub(super) packets: PacketSlab,
    pub(super) connections: Connections,
    /// The kernel has taken a train of several packets for a socket: the path does for most.
    takes_trains: bool,
    faults: Faults,
    pub(super) store: Arc<store::Shared>,
    pub(super) remote: Arc<Remote>,
}

/// What has come back of a train or message.
pub(super) struct Answer {
    /// The stream whose train it is.
    pub(super) stream: Option<u32>,
    /// What it left on, if that is no socket of the stream's own.
    pub(super) connection: Option<u32>,
    /// What the kernel took of it, and why no more.
    pub(super) taken: Option<(Taken, i32)>,
    /// It needs the memory no longer.
    pub(super) released: bool,
}

impl Transmitter {
    /// Opens the best path there is, from the configured one down; `demoted` is told of each that
    /// is not available.
    pub(super) fn open(
        config: &EngineConfig,
        store: Arc<store::Shared>,
        remote: Arc<Remote>,
        mut demoted: impl FnMut(PathName, PathError),
    ) -> Self {
        let open_path = Arc::clone(&config.open_path);
        let shared = &remote.shared;
        let mut path = open_from(config.path, |name| {
            let opened = open_path(name, store.pool(), &remote.waker);
            let failed = |error| {
                bump(&shared.demotions, 1);
                demoted(name, error);
            };
            opened.map_err(failed).ok()
        });
        shared.set_path(path.name());
        let files = path.register_files(config.streams_max.min(config.files_max));
        shared.places.store(files, Ordering::Relaxed);
        let slab = HeaderSlab::take_from(store.pool());
        let has_own_headers = &shared.has_own_headers;
        let is_wanted = config.headers != RtpHeaders::Shared;
        has_own_headers.store(is_wanted && slab.is_some(), Ordering::Relaxed);
        let is_zero_copy = path.vectored() == Vectored::ZeroCopy;
        let zero_copy = &shared.own_headers_zero_copy;
        zero_copy.store(is_zero_copy, Ordering::Relaxed);
        let sends_streams = slab.is_some() && path.sends_streams();
        shared.sends_streams.store(sends_streams, Ordering::Relaxed);
        let limits = Limits {
            unacknowledged_bytes_max: config.unacknowledged_bytes_max,
            stall_ns_max: nanos(config.stall_time_max),
        };
        Self {
            path,
            retired: None,
            closed: Counters::default(),
            open_path,
            files,
            flights: Flights::new(),
            slab,
            packets: PacketSlab::new(store.pool(), ENCRYPTED_BYTES_MAX, config.cores.len()),
            connections: Connections::new(limits),
            takes_trains: false,
            faults: config.faults,
            store,
            remote,
        }
    }

    /// Whether there is room for headers of streams' own.
    pub(super) fn has_slab(&self) -> bool {
        self.slab.is_some()
    }

    /// Keeps the socket of a new stream, if it can.
    pub(super) fn install(
        &mut self,
        number: u32,
        socket: OwnedFd,
        segment_bytes: u16,
    ) -> StreamOutlet {
        // It was made ready for the path of a moment ago.
        if !self.path.name().segments() {
            prepare(self.path.name(), &socket, segment_bytes);
        }
        let is_kept = number < self.files && self.path.install_file(number, socket.as_fd()).is_ok();
        match is_kept {
            true => StreamOutlet::InstalledSocket,
            false => StreamOutlet::Socket(socket),
        }
    }

    /// Lets go of a stream that is gone: of its socket, if it keeps it.
    pub(super) fn release(&mut self, number: u32, stream: &StreamEntry) {
        match stream.outlet {
            StreamOutlet::InstalledSocket => self.path.release_file(number),
            StreamOutlet::Interleaved { connection, .. } => {
                self.connections.remove_stream(connection, number);
            }
            StreamOutlet::Socket(_) | StreamOutlet::Lost(_) => {}
        }
    }

    /// Takes the socket of a stream out of the path's table, with a descriptor of its own. Without
    /// one it stays there.
    pub(super) fn take_socket(&mut self, number: u32) -> io::Result<OwnedFd> {
        let socket = self.descriptor(number)?;
        self.path.release_file(number);
        Ok(socket)
    }

    /// How many trains of the stream that begin at `offset` can be queued; `wanted` of them, if
    /// there can be room for so many.
    pub(super) fn room(&mut self, stream: &StreamEntry, offset: usize, wanted: usize) -> usize {
        let room = self.sends_room();
        match &self.slab {
            _ if stream.srtp().is_some() => room.min(self.packets.room_for(wanted)),
            Some(slab) if stream.has_own_headers() => room.min(slab.room(offset)),
            _ => room,
        }
    }

    /// How many sends of any kind can be queued.
    pub(super) fn sends_room(&self) -> usize {
        let room = self.path.room().min(self.flights.room());
        room.saturating_sub(self.connections.queued())
    }

    /// Trains of the stream that may be queued at once, if that is bounded by what is written for
    /// it alone, by what others on connections leave, or because each packet is a train.
    pub(super) fn own_trains_max(&self, stream: &StreamEntry) -> Option<usize> {
        let trains_max = match stream.srtp() {
            Some(_) => Some(self.packets.slots_of_chunk().max(1)),
            None if stream.has_own_headers() => {
                let slots = self.slab.as_ref().map(HeaderSlab::slots);
                match stream.framing() {
                    Some(_) => slots.map(|slots| slots.min(self.trains_share())),
                    None => slots,
                }
            }
            None => None,
        };
        match stream.sends_singly() {
            true => Some(trains_max.unwrap_or(usize::MAX).min(SINGLE_PACKETS_MAX)),
            false => trains_max,
        }
    }

    /// Queues these images of the stream's page, in as few trains as may be.
    pub(super) fn queue(&mut self, stream: &mut StreamEntry, number: u32, mut left: Images) {
        while left.count > 0 {
            let images = left.take(self.train_images(stream, &left));
            left = left.skip(images.count);
            stream.trains += 1;
            let span = stream.reader.span(&self.store, &images);
            if let Some(framing) = stream.framing() {
                if self.connections.is_sealed(framing.connection) {
                    self.queue_sealed(stream, number, framing, span, &images);
                    continue;
                }
                self.queue_framed(stream, number, framing, span, &images);
                continue;
            }
            if let Some(srtp) = stream.srtp() {
                self.queue_encrypted(stream, number, srtp, span, &images);
                continue;
            }
            let slot = self.own_headers(stream, &span, &images);
            let tag_bytes = stream.shared.source.tag_bytes();
            let headers = slot.as_ref().map(|slot| OwnHeaders {
                offset: slot.offset(),
                bytes: RTP_HEADER_BYTES,
            });
            let token = self.flights.take(Flight {
                stream: Some(number),
                connection: None,
                packets: images.count,
                bytes: span.bytes - images.count * u32::from(tag_bytes),
                stride: images.segment_bytes - tag_bytes,
                padding_bytes: images.padding_bytes,
                frame_bytes: tag_bytes,
                pin: Some(span.pin),
                headers: slot,
                encrypted: None,
            });
            self.queue_train(Train {
                to: stream.to(number),
                offset: span.offset,
                bytes: span.bytes,
                stride: images.segment_bytes,
                segments: stream.segments(&images),
                headers,
                token,
            });
        }
    }

    pub(super) fn queue_train(&mut self, train: Train) {
        self.path.queue(train);
    }

    /// Queues these images as frames of a connection, whose [gate](Self::gate) is open.
    fn queue_framed(
        &mut self,
        stream: &StreamEntry,
        number: u32,
        framing: Framing,
        span: Span,
        images: &Images,
    ) {
        let slot = self.frame_heads(stream, framing.channel, &span, images);
        let packets = FramedPackets {
            offset: span.offset,
            bytes: span.bytes,
            stride: images.segment_bytes,
            heads_offset: slot.offset(),
            head_bytes: FRAME_HEAD_BYTES,
            replaced_bytes: RTP_HEADER_BYTES,
        };
        let token = self.flights.take(Flight {
            stream: Some(number),
            connection: Some(framing.connection),
            packets: images.count,
            bytes: span.bytes,
            stride: images.segment_bytes,
            padding_bytes: images.padding_bytes,
            frame_bytes: PREFIX_BYTES,
            pin: Some(span.pin),
            headers: Some(slot),
            encrypted: None,
        });
        let now_ns = self.remote.clock.now_ns();
        self.connections
            .queue(framing.connection, packets, token, now_ns);
    }

    /// What stands before the payloads of a stream that leaves on a connection.
    fn frame_heads(
        &mut self,
        stream: &StreamEntry,
        channel: u8,
        span: &Span,
        images: &Images,
    ) -> HeaderSlot {
        let slab = self
            .slab
            .as_mut()
            .expect("frames are sent with a slab only");
        slab.take(span.offset, |slot| {
            let (places, _) = slot.as_chunks_mut();
            let images = stream.reader.images(&self.store, images);
            for (image, place) in images.zip(places) {
                *place = frame_head(stream, channel, image);
            }
        })
    }

    /// How many images a train that begins with the first of these may have.
    fn train_images(&self, stream: &StreamEntry, images: &Images) -> u32 {
        if !stream.has_vectored_trains() || stream.sends_singly() {
            return stream.train_images_most(images);
        }
        let offset = stream.reader.offset(&self.store, images);
        let packets = self.path.own_headers_packets(offset, images.segment_bytes);
        u32::try_from(packets.max(1)).expect("at most eight")
    }

    /// The headers of a stream with numbers of its own: those of the images, with its numbers.
    fn own_headers(
        &mut self,
        stream: &StreamEntry,
        span: &Span,
        images: &Images,
    ) -> Option<HeaderSlot> {
        if stream.numbering.is_shared() {
            return None;
        }
        let slab = self
            .slab
            .as_mut()
            .expect("only a slab gives numbers of its own");
        Some(slab.take(span.offset, |slot| {
            let places = slot.chunks_exact_mut(HEADER_BYTES);
            let shared_headers = stream.reader.headers(&self.store, images);
            for (shared_header, place) in shared_headers.zip(places) {
                place.copy_from_slice(&stream.numbering.header(shared_header));
            }
        }))
    }

    /// Whether memory has become ready that is to be registered.
    pub(super) fn has_memory_to_take(&self) -> bool {
        let retired = self.retired.as_ref();
        self.path.has_memory_to_take() || retired.is_some_and(|path| path.has_memory_to_take())
    }

    /// Registers a piece of it. A path that was given up takes part as long as it is there: no
    /// chunk is handed out that it does not have.
    pub(super) fn take_memory(&mut self) {
        self.path.take_memory();
        if let Some(retired) = &mut self.retired {
            retired.take_memory();
        }
    }

    /// Hands over what is queued by `crossing`.
    pub(super) fn cross(&mut self, crossing: impl FnOnce(&mut dyn Path) -> io::Result<()>) {
        self.connections.flush(&mut *self.path);
        if let Err(error) = crossing(&mut *self.path) {
            // Nothing of what we ask can fail but for a lack of memory, which does not pass at
            // once.
            warn!(path = %self.path.name(), %error, "a batch was not handed over; trying again");
            sleep_until_ns(monotonic_ns() + REFUSED_PAUSE_NS);
        }
        if let Some(retired) = &mut self.retired
            && let Err(error) = retired.submit()
        {
            debug!(%error, "a retired path could not be entered");
        }
    }

    /// What has come back next, of those trains too that left by a path that was given up.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let completion = self.path.completion().or_else(|| {
            let retired = self.retired.as_mut()?;
            retired.completion()
        });
        if completion.is_none() {
            // What has nothing in flight any more is closed.
            let closed = self.retired.take_if(|retired| retired.in_flight() == 0);
            if let Some(closed) = closed {
                self.closed = self.closed.plus(closed.counters());
            }
        }
        completion.map(|completion| self.answer_of(completion))
    }

    fn answer_of(&mut self, completion: Completion) -> Answer {
        let Completion {
            token,
            sent,
            released,
            referred,
        } = completion;
        let flight = self.flights.get(token);
        let (stream, connection) = (flight.stream, flight.connection);
        let taken = sent.map(|sent| (flight.taken(sent), sent.errno));
        let bytes = flight.bytes as usize;
        let is_train = |(taken, errno): (Taken, i32)| errno == 0 && taken.packets > 1;
        self.takes_trains |= connection.is_none() && taken.is_some_and(is_train);
        if (released || self.faults.has(Fault::ReleaseEarly))
            && let Some(pin) = flight.pin.take()
        {
            self.store.pool().unpin(pin);
        }
        if let Some(connection) = connection {
            let now_ns = self.remote.clock.now_ns();
            if taken.is_some() {
                self.connections.answered(connection, now_ns);
            }
            if taken.is_some() && stream.is_none() {
                self.connections.message_answered(connection, bytes);
            }
            if let Some(referred) = referred {
                self.connections.referred(connection, referred);
            }
            let packet_bytes = stream.map_or(0, |_| bytes);
            if released && self.connections.released(connection, packet_bytes, now_ns) {
                self.connection_gone(connection);
            }
        }
        if released && let Some(flight) = self.flights.give_back(token) {
            if let Some((slot, slab)) = flight.headers.zip(self.slab.as_mut()) {
                slab.give_back(slot);
            }
            if let Some(slot) = flight.encrypted {
                self.packets.give_back(slot);
            }
        }
        Answer {
            stream,
            connection,
            taken,
            released,
        }
    }

    /// Whether a train that is refused so says that the device, or the way to it, takes none
    /// (net/ipv4/udp.c, `udp_send_skb`: EIO): behind IPsec none, and before Linux 6.11 none where a
    /// device computes no checksums. If [others' are taken](Self::takes_trains), that is one
    /// client's way.
    pub(super) fn is_refused_by_device(&self, errno: i32) -> bool {
        errno == libc::EIO && self.path.name().segments()
    }

    /// Whether the kernel has taken a train on the path.
    pub(super) fn takes_trains(&self) -> bool {
        self.takes_trains
    }

    /// A descriptor for the socket of a stream that the path keeps.
    pub(super) fn descriptor(&mut self, number: u32) -> io::Result<OwnedFd> {
        self.path.descriptor(number)
    }

    /// Goes on without trains, out loud, and once: it takes memory for the path that follows, and
    /// delays what is due for as long as that takes to open. Whether it did; then every stream's
    /// socket is to be [restored](Self::restore).
    pub(super) fn demote(&mut self) -> bool {
        if self.retired.is_some() {
            return false;
        }
        let from = self.path.name();
        let path = open_from(PathName::Sendmmsg, |name| {
            (self.open_path)(name, self.store.pool(), &self.remote.waker).ok()
        });
        let to = path.name();
        warn!(%from, %to, "the device takes no trains (EIO): all packets are sent singly");
        self.retired = Some(std::mem::replace(&mut self.path, path));
        let shared = &self.remote.shared;
        shared.set_path(to);
        bump(&shared.demotions, 1);
        self.files = 0;
        shared.places.store(0, Ordering::Relaxed);
        true
    }

    /// Gives a stream's socket a descriptor again, if it has none, and readies it for the path of
    /// now. If there is none to be had, the socket is lost.
    pub(super) fn restore(&mut self, number: u32, stream: &mut StreamEntry) {
        if matches!(stream.outlet, StreamOutlet::InstalledSocket)
            && let Some(retired) = &mut self.retired
        {
            stream.outlet = match retired.descriptor(number) {
                Ok(socket) => StreamOutlet::Socket(socket),
                Err(error) => StreamOutlet::Lost(error.raw_os_error().unwrap_or(libc::EIO)),
            };
        }
        if let StreamOutlet::Socket(socket) = &stream.outlet {
            prepare(self.path.name(), socket, stream.shared.segment_bytes);
        }
    }

    /// Whether trains are in flight on a path that was given up.
    pub(super) fn is_draining(&self) -> bool {
        self.retired.is_some()
    }

    /// Trains whose memory the kernel still needs.
    pub(super) fn in_flight(&self) -> usize {
        self.flights.in_flight()
    }

    /// Shows what the path has done so far.
    pub(super) fn publish(&self) {
        let retired = self.retired.as_ref().map(|path| path.counters());
        let counters = self.closed.plus(retired.unwrap_or_default());
        let counters = counters.plus(self.path.counters());
        let shared = &self.remote.shared;
        for (shown, counted) in [
            (&shared.crossings, counters.crossings),
            (&shared.trains, counters.trains),
            (&shared.trains_zero_copy, counters.trains_zero_copy),
            (&shared.trains_copied, counters.trains_copied),
            (&shared.trains_single, counters.trains_single),
            (&shared.trains_other, counters.trains_other),
            (&shared.trains_own_headers, counters.trains_own_headers),
            (&shared.trains_framed, counters.trains_framed),
            (&shared.in_flight, self.in_flight() as u64),
        ] {
            shown.store(counted, Ordering::Relaxed);
        }
    }
}

/// What stands in front of the payload of an image that leaves on a connection.
pub(super) fn frame_head(
    stream: &StreamEntry,
    channel: u8,
    image: &[u8],
) -> [u8; FRAME_HEAD_BYTES as usize] {
    let mut head = [0; FRAME_HEAD_BYTES as usize];
    let (prefix, header) = head.split_at_mut(FRAME_PREFIX_BYTES);
    let image_bytes = u16::try_from(image.len()).expect("a packet is below 64 KiB");
    prefix.copy_from_slice(&frame_prefix(channel, image_bytes));
    let shared_header = image.first_chunk();
    let shared_header = shared_header.expect("an image begins with its header");
    header.copy_from_slice(&stream.numbering.header(shared_header));
    head
}

/// Opens the path `first`, or the best after it that `open` yields.
fn open_from(
    first: PathName,
    mut open: impl FnMut(PathName) -> Option<Box<dyn Path>>,
) -> Box<dyn Path> {
    let mut name = first;
    loop {
        if let Some(path) = open(name) {
            return path;
        }
        name = name
            .next()
            .expect("sendto needs nothing and is always available");
    }
}

/// Readies a stream's socket once more, for another path.
fn prepare(path: PathName, socket: &OwnedFd, segment_bytes: u16) {
    if let Err(error) = prepare_socket(path, socket.as_raw_fd(), segment_bytes) {
        debug!(%error, "a socket kept its options");
    }
}
