//! RTP and RTCP in an RTSP connection (RFC 2326, section 10.12): whose the channels are, and how
//! what control says gets between the frames.
//!
//! A connection is interleaved from its first SETUP of that kind on. Then all that leaves on it,
//! answers too, goes by the engine that sends its frames; control still reads. A track holds its
//! channels as long as it is set up.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use onrush_sys::socket::path_mtu;
use onrush_wire::rtsp::{Channels, Reply, StatusCode, frame_prefix};

use super::Control;
use super::refusals::refusal;
use crate::byte_stream::ByteStream;
use crate::engine::InterleavedConnection;

/// Bytes of a packet from a client that are read: a report.
pub(super) const PACKET_BYTES_MAX: usize = 1500;

/// What a connection has beside requests and answers.
#[derive(Debug)]
pub(super) struct Interleaving {
    local: IpAddr,
    peer: IpAddr,
    /// Of the path to the client.
    pub(super) mtu_bytes: u32,
    pub(super) connection: Arc<InterleavedConnection>,
    slots: RefCell<Vec<Slot>>,
    /// The connection is gone.
    is_closed: Cell<bool>,
    /// Of the task that reads from it.
    pub(super) reader: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    channels: Channels,
    /// Who is told what the client says; 0 for nobody.
    owner: u64,
}

/// A track's channels in a connection. Dropping it frees them.
#[derive(Debug)]
pub(super) struct ChannelSlot {
    pub(super) interleaving: Rc<Interleaving>,
    pub(super) channels: Channels,
}

impl Interleaving {
    /// Gives the writing side of a connection to an engine.
    pub(super) fn open(
        control: &Control,
        stream: &ByteStream,
        (local, peer): (SocketAddr, SocketAddr),
    ) -> Result<Rc<Self>, Reply> {
        let data = control.content.sending.wanted();
        let data = data.expect("frames are chosen where something sends them");
        let unavailable = |error: io::Error| {
            let note = format!("this connection cannot carry packets: {error}");
            Reply::refusal(StatusCode::ServiceUnavailable, &note)
        };
        let socket = stream.socket();
        let writing = socket.as_fd().try_clone_to_owned().map_err(unavailable)?;
        let mtu_bytes = path_mtu(socket).map_err(unavailable)?;
        let mut sealer = stream.take_sealer();
        let connection = data.engines().open_connection(writing, &mut sealer);
        // A refusal is sealed here, as all before it.
        if let Some(sealer) = sealer {
            stream.put_sealer_back(sealer);
        }
        Ok(Rc::new(Self {
            local: local.ip().to_canonical(),
            peer: peer.ip().to_canonical(),
            mtu_bytes,
            connection: connection.map_err(|error| refusal(&error))?,
            slots: RefCell::default(),
            is_closed: Cell::new(false),
            reader: RefCell::default(),
        }))
    }

    /// The channels that a client has asked for, or others if it has named none or if they are
    /// another track's; `None` if all are taken.
    pub(super) fn take(self: &Rc<Self>, asked: Option<Channels>) -> Option<ChannelSlot> {
        let mut slots = self.slots.borrow_mut();
        let taken: Vec<_> = slots.iter().map(|slot| slot.channels).collect();
        let is_free = |asked: &Channels| !taken.iter().any(|other| other.overlaps(*asked));
        let channels = asked
            .filter(is_free)
            .or_else(|| Channels::free_of(&taken))?;
        slots.push(Slot { channels, owner: 0 });
        Some(ChannelSlot {
            interleaving: Rc::clone(self),
            channels,
        })
    }

    /// Whom it concerns what a client says on a channel.
    pub(super) fn owner_of(&self, channel: u8) -> Option<u64> {
        let slots = self.slots.borrow();
        let slot = slots.iter().find(|slot| slot.channels.rtcp == channel)?;
        Some(slot.owner).filter(|&owner| owner != 0)
    }

    /// Sends an answer, and waits until the kernel has taken it.
    pub(super) async fn write(&self, bytes: Vec<u8>) -> io::Result<()> {
        self.connection.write(bytes).await
    }

    /// Its task waits for a request, and is woken so.
    pub(super) fn wake_by(&self, waker: &Waker) {
        let mut reader = self.reader.borrow_mut();
        if !reader.as_ref().is_some_and(|own| own.will_wake(waker)) {
            *reader = Some(waker.clone());
        }
    }

    /// Nobody is at the other end any more.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        // It keeps the task's memory.
        self.reader.replace(None);
    }

    fn is_cut_off(&self) -> bool {
        self.is_closed.get() || self.connection.has_failed()
    }
}

impl ChannelSlot {
    /// From now on what the client says is told with this number.
    pub(super) fn belongs_to(&self, owner: u64) {
        let mut slots = self.interleaving.slots.borrow_mut();
        let own = slots.iter_mut().find(|it| it.channels == self.channels);
        if let Some(own) = own {
            own.owner = owner;
        }
    }

    pub(super) fn local_ip(&self) -> IpAddr {
        self.interleaving.local
    }

    pub(super) fn peer_ip(&self) -> IpAddr {
        self.interleaving.peer
    }

    /// Whether nothing reaches the client any more.
    pub(super) fn is_cut_off(&self) -> bool {
        self.interleaving.is_cut_off()
    }

    /// Sends a report, unless the client has left too much else unread.
    pub(super) fn send(&self, report: &[u8]) -> io::Result<()> {
        let bytes = u16::try_from(report.len()).map_err(io::Error::other)?;
        let prefix = frame_prefix(self.channels.rtcp, bytes);
        self.interleaving
            .connection
            .try_send([&prefix[..], report].concat())
    }
}

impl Drop for ChannelSlot {
    fn drop(&mut self) {
        let mut slots = self.interleaving.slots.borrow_mut();
        slots.retain(|slot| slot.channels != self.channels);
    }
}
