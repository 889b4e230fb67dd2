//! How one track reaches one client: the only file that knows all the ways.
//!
//! A way more is one more variant of [`Delivery`], opened by
//! [`Delivery::open`]; the sessions above ask it what they need and do not look inside. What
//! belongs to files alone, ranges and chunks, they find in [`StoredDelivery`]: a stream of an
//! engine, which sends datagrams or frames of the client's connection.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::media::{Plan, Scale};
use onrush_wire::pace::MediaClock;
use onrush_wire::rtp::{self, Position};
use onrush_wire::rtsp::{Channels, LowerTransport, Reply, StatusCode, Transport, track_name};
use tokio::time::timeout;

use super::Control;
use super::client::Client;
use super::group::GroupSlot;
use super::interleaving::ChannelSlot;
use super::live_player::LivePlayer;
use super::ports::local_address;
use super::presentation::{OnGroup, Presentation, playable};
use super::refusals::{no_ports, refusal, unavailable};
use super::report_clock::signed;
use super::reports::Reports;
use super::srtp::AgreedKeys;
use super::summary::describe;
use crate::channels::{LiveChannel, Played, Way};
use crate::data::Data;
use crate::engine::numbering::RtpHeaders;
use crate::engine::{Destination, EndReason, EngineError, Stream, StreamSnapshot, StreamSrtp};
use crate::library::{FilmKeys, Media};
use crate::peer_log::Escaped;
use crate::random::random;
use crate::store::Source;

/// How packets come to the client.
#[derive(Debug)]
pub(super) enum Delivery {
    /// From a file, for this client alone: a stream of an engine.
    Stored(StoredDelivery),
    /// From whoever sends them just now, to all who want them: as a member of a live group, alone,
    /// or as frames of the client's connection.
    Live(Box<LivePlayer>),
    /// From whoever sends it to a multicast group, to all who hear that.
    Group(GroupPlayer),
}

/// A track of what is sent to a multicast group.
#[derive(Debug)]
pub(super) struct GroupPlayer {
    on: Rc<OnGroup>,
    track: u8,
    clock_hz: u32,
}

/// A track of a file, sent by an engine.
#[derive(Debug)]
pub(super) struct StoredDelivery {
    pub(super) stream: Stream,
    media: Arc<Media>,
    /// Ticks a second of its timestamps.
    clock_hz: u32,
    /// What its packets may carry behind their RTP headers on the way to the client.
    payload_bytes_max: u16,
    /// The number of its track, from 0 on.
    track: u8,
    /// There is nothing of it at the scale that is played.
    pub(super) is_silent: Cell<bool>,
}

/// A delivery, and what the client is told of it.
pub(super) struct Opened {
    pub(super) delivery: Delivery,
    /// Where its reports come in, and ours go out.
    pub(super) reports: Reports,
    pub(super) ssrc: u32,
}

/// What was sent so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The RTP timestamp of the moment that was asked about.
    pub(super) timestamp: u32,
    /// That moment by the clock that timestamps go by.
    pub(super) since_zero_ns: i64,
    pub(super) packets: u64,
    pub(super) payload_bytes: u64,
}

impl Delivery {
    /// Opens what `transport` asks for of a track, which was [chosen](super::choosing::choose).
    ///
    /// # Panics
    ///
    /// If there is no such track.
    pub(super) fn open(
        control: &Control,
        (presentation, track): (&Presentation, usize),
        transport: &Transport,
        client: &Client,
    ) -> Result<Opened, Reply> {
        match (presentation, transport.lower) {
            (
                Presentation::Stored(media),
                LowerTransport::Udp {
                    rtp_port,
                    rtcp_port,
                },
            ) => stored(control, (media, track), [rtp_port, rtcp_port], client),
            (Presentation::Stored(media), LowerTransport::Tcp { channels }) => {
                interleaved(control, (media, track), channels, client)
            }
            (Presentation::Multicast(on), LowerTransport::Multicast) => {
                Ok(on_group(on, track, client))
            }
            (_, LowerTransport::Multicast) | (Presentation::Multicast(_), _) => {
                unreachable!("it is not among what is chosen from")
            }
            (Presentation::Live(channel), lower) => {
                let ssrc = playable(channel)?.ssrc;
                let channel = Arc::clone(channel) as Arc<dyn LiveChannel>;
                live(control, (channel, track, ssrc), lower, client)
            }
            (Presentation::Published(channel), lower) => {
                let ssrc = channel.ssrc(track);
                let channel = Arc::clone(channel) as Arc<dyn LiveChannel>;
                live(control, (channel, track, ssrc), lower, client)
            }
        }
    }

    /// The stream, if it is of a file.
    pub(super) fn stored(&self) -> Option<&StoredDelivery> {
        match self {
            Self::Stored(delivery) => Some(delivery),
            Self::Live(_) | Self::Group(_) => None,
        }
    }

    /// The track of a live channel, if it is one.
    pub(super) fn live(&self) -> Option<&LivePlayer> {
        match self {
            Self::Live(player) => Some(player),
            Self::Stored(_) | Self::Group(_) => None,
        }
    }

    /// The number of its track, from 0 on.
    pub(super) fn track(&self) -> u8 {
        match self {
            Self::Stored(delivery) => delivery.track,
            Self::Live(player) => u8::try_from(player.track()).unwrap_or(u8::MAX),
            Self::Group(player) => player.track,
        }
    }

    /// The session of this number is told when it ends by itself.
    pub(super) fn belongs_to(&self, session: u64) {
        match self {
            Self::Stored(delivery) => delivery.stream.belongs_to(session),
            Self::Live(player) => player.belongs_to(session),
            Self::Group(_) => {}
        }
    }

    /// Stops sending. The packet that would have been next, if that is known.
    pub(super) async fn pause(&self) -> Result<Option<u64>, EngineError> {
        match self {
            Self::Stored(delivery) => delivery.stream.pause().await.map(Some),
            Self::Live(player) => {
                player.leave();
                Ok(None)
            }
            // The others go on.
            Self::Group(_) => Ok(None),
        }
    }

    /// Stops sending, in the end. An engine that does not answer is not waited for.
    pub(super) async fn halt(&self) {
        drop(timeout(Duration::from_secs(1), self.pause()).await);
    }

    /// Why it has ended by itself, if it has. A live one does not.
    pub(super) fn end_reason(&self) -> Option<EndReason> {
        self.stored()?.stream.end_reason()
    }

    /// What media time is due now; of no meaning in a live stream.
    pub(super) fn position_ns(&self) -> u64 {
        self.stored().map_or(0, StoredDelivery::position_ns)
    }

    /// The SSRC of what is sent. A live stream may become another one while it plays; `first` is
    /// what it was when the session was set up.
    pub(super) fn ssrc(&self, first: u32) -> u32 {
        match self {
            Self::Stored(delivery) => delivery.stream.own_ssrc().unwrap_or(first),
            Self::Group(_) => first,
            Self::Live(player) => player.ssrc().unwrap_or(first),
        }
    }

    /// Ticks a second of its timestamps.
    pub(super) fn clock_hz(&self) -> u32 {
        match self {
            Self::Stored(delivery) => delivery.clock_hz,
            Self::Live(player) => player.clock_hz(),
            Self::Group(player) => player.clock_hz,
        }
    }

    /// What was sent until a moment of CLOCK_MONOTONIC; nothing while it is not known which
    /// timestamp that is.
    pub(super) fn sent(&self, at_ns: u64) -> Option<Sent> {
        match self {
            Self::Stored(delivery) => Some(delivery.sent(at_ns)),
            Self::Live(player) => {
                let timestamp = player.timestamp(at_ns)?;
                Some(Sent::of((timestamp, at_ns), player.sent()))
            }
            // Its leader counts.
            Self::Group(_) => Some(Sent::of((0, at_ns), Played::default())),
        }
    }

    /// A moment of CLOCK_MONOTONIC by the clock that timestamps go by: of a file by that of its
    /// play, which is moved with what is sent, and else by the same.
    pub(super) fn since_zero_ns(&self, at_ns: u64) -> i64 {
        since_zero_ns(self.stored().and_then(|it| it.stream.line()), at_ns)
    }

    /// What is sent, for the log: the file or the channel.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Stored(StoredDelivery { media, track, .. }) if media.tracks() > 1 => {
                let track = track_name(u32::from(*track) + 1);
                format!("{} {track}", Escaped(media.name()))
            }
            Self::Stored(delivery) => Escaped(delivery.media.name()).to_string(),
            Self::Live(player) => player.name(),
            Self::Group(GroupPlayer { on, track, .. }) => {
                let track = track_name(u32::from(*track) + 1);
                format!("{} {track}", Escaped(on.presentation.name()))
            }
        }
    }

    /// How large its packets are, for the log.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Stored(delivery) => {
                let bytes = delivery.plan().image_bytes_max();
                format!("packets of up to {bytes} bytes")
            }
            Self::Live(_) => "live".to_owned(),
            Self::Group(player) => format!("group {}", player.on.group.address().ip),
        }
    }

    /// How packets reach the client, for the log: files go by the path of that name.
    pub(super) fn path_name<'a>(&self, of_files: &'a str) -> &'a str {
        match self {
            Self::Stored(delivery) if delivery.stream.is_interleaved() => "interleaved",
            Self::Stored(_) => of_files,
            Self::Live(player) if player.is_interleaved() => "interleaved",
            Self::Live(_) => "relay",
            Self::Group(_) => "multicast",
        }
    }

    /// What was sent in all, for the log.
    pub(super) fn describe_sent(&self) -> String {
        match self {
            Self::Stored(delivery) => describe(&delivery.stream.snapshot()),
            Self::Live(player) => format!("about {} packets", player.sent().packets),
            Self::Group(_) => "what its group was sent".to_owned(),
        }
    }
}

impl Sent {
    fn of((timestamp, at_ns): (u32, u64), played: Played) -> Self {
        let Played {
            packets,
            payload_bytes,
        } = played;
        Self {
            timestamp,
            since_zero_ns: signed(at_ns),
            packets,
            payload_bytes,
        }
    }
}

fn since_zero_ns(line: Option<MediaClock>, at_ns: u64) -> i64 {
    signed(at_ns).saturating_sub(line.map_or(0, MediaClock::epoch_ns))
}

impl StoredDelivery {
    /// What is played of it at that scale, if it can be.
    pub(super) fn source_at(&self, scale: Scale) -> Option<Arc<Source>> {
        let (track, chunk_bytes) = (self.track.into(), self.stream.chunk_bytes());
        let (media, payload_bytes_max) = (&self.media, self.payload_bytes_max.into());
        match scale.is_normal() {
            true => media.source(track, payload_bytes_max, chunk_bytes).cloned(),
            false => media.trick(track, payload_bytes_max, chunk_bytes, scale),
        }
    }

    /// The plan of what is played, or was last, at whatever scale.
    pub(super) fn played(&self) -> Arc<Plan> {
        self.stream.source().plan()
    }

    fn position_ns(&self) -> u64 {
        let (plan, snapshot) = (self.played(), self.stream.snapshot());
        let (timeline, due_ns) = (plan.timeline(), snapshot.position_ns);
        if timeline.scale().is_normal() {
            return due_ns;
        }
        // What leaves a little early is shown all the same, and is not gone back from.
        let sent_ns = plan.due_ns(snapshot.next_packet.saturating_sub(1));
        timeline.media_ns(due_ns.max(sent_ns))
    }

    /// The plan at [`Scale::NORMAL`].
    pub(super) fn plan(&self) -> Arc<Plan> {
        let plan = self
            .media
            .plan(self.track.into(), self.payload_bytes_max.into());
        plan.expect("it was cut so when the session was set up")
    }

    /// Whether there may be more of its file to play than is known by now.
    pub(super) fn goes_on(&self) -> bool {
        self.media.goes_on()
    }

    fn sent(&self, at_ns: u64) -> Sent {
        let StreamSnapshot {
            packets,
            bytes,
            numbering,
            ..
        } = self.stream.snapshot();
        let header_bytes = packets * rtp::HEADER_BYTES as u64;
        // Read once: the engine may move it in between.
        let line = self.stream.line();
        let position = numbering.position(Position {
            sequence: 0,
            timestamp: self.timestamp(line.map_or(0, |line| line.media_ns(signed(at_ns)))),
        });
        Sent {
            timestamp: position.timestamp,
            since_zero_ns: since_zero_ns(line, at_ns),
            packets,
            payload_bytes: bytes.saturating_sub(header_bytes),
        }
    }

    /// The RTP timestamp of what is due at a media time: by the line on which those of the packets
    /// lie, before, between and behind them.
    fn timestamp(&self, media_ns: i64) -> u32 {
        const SECOND_NS: i64 = 1_000_000_000;
        let (seconds, rest_ns) = (
            media_ns.div_euclid(SECOND_NS),
            media_ns.rem_euclid(SECOND_NS),
        );
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "timestamps are modulo 2^32"
        )]
        let ticks = (seconds as u64).wrapping_mul(self.clock_hz.into()) as u32;
        let rest_ns = u64::try_from(rest_ns).expect("not below 0");
        let origin = self.media.origin(self.track.into()).timestamp;
        origin
            .wrapping_add(rtp::ticks_of(rest_ns, self.clock_hz.into()))
            .wrapping_add(ticks)
    }
}

/// A stream of its own from a file, as datagrams, and a place for its reports.
fn stored(
    control: &Control,
    of: (&Arc<Media>, usize),
    [rtp_port, rtcp_port]: [u16; 2],
    client: &Client,
) -> Result<Opened, Reply> {
    let (local, reports) = (client.local, at(client.peer, rtcp_port));
    let placed = control.ports.place(local, rtp_port, reports);
    let (socket, ports) = placed.map_err(|error| no_ports(&error))?;
    let mtu_bytes = onrush_sys::socket::path_mtu(&socket).map_err(|error| unavailable(&error))?;
    let reports = Reports::Ports(ports);
    let Some(keys) = &client.srtp else {
        return open_stream(control, of, (mtu_bytes, client), socket.into(), reports);
    };
    let mtu_bytes = AgreedKeys::mtu_bytes(mtu_bytes);
    let path = (mtu_bytes, client);
    let ssrc = match keys.film() {
        Some(film) => match shared_images(control, of, path, film) {
            Some(source) => {
                let stream = |data: &Data| data.open_source(source, socket.into());
                return open_stream_by(control, of, path, stream, reports);
            }
            // What the client knows does for packets of its own, too.
            None => film.track(of.1).take_ssrc().ok_or_else(|| {
                let note = "the keys of this description are used up: ask for another";
                Reply::refusal(StatusCode::KeyManagementError, note)
            })?,
        },
        None => u32::from_be_bytes(random()),
    };
    let to = Destination::Encrypted {
        socket: socket.into(),
        srtp: Arc::new(StreamSrtp::new(&keys.server, ssrc)),
    };
    open_stream(control, of, path, to, reports)
}

/// Images of a track that are encrypted for all who have its key, if there can be any. Those who
/// want headers of their own from the start do not share.
fn shared_images(
    control: &Control,
    (media, track): (&Arc<Media>, usize),
    (mtu_bytes, client): (u32, &Client),
    film: &FilmKeys,
) -> Option<Arc<Source>> {
    let data = control.content.sending.get()?;
    let payload_bytes_max = client.payload_bytes_max(mtu_bytes);
    let shares = control.config.rtp_headers != RtpHeaders::Own;
    let source = media.encrypted_source(film, track, payload_bytes_max, data.chunk_bytes());
    source.filter(|_| shares)
}

/// A stream of its own from a file, as frames of the connection, and a channel for its reports.
fn interleaved(
    control: &Control,
    of: (&Arc<Media>, usize),
    asked: Option<Channels>,
    client: &Client,
) -> Result<Opened, Reply> {
    let slot = take_channels(client, asked)?;
    let to = Destination::Interleaved {
        connection: Arc::clone(&slot.interleaving.connection),
        channel: slot.channels.rtp,
    };
    // The packets of those who get datagrams, so that all share their images.
    let path = (slot.interleaving.mtu_bytes, client);
    open_stream(control, of, path, to, Reports::Channel(slot))
}

fn open_stream(
    control: &Control,
    of: (&Arc<Media>, usize),
    path: (u32, &Client),
    to: Destination,
    reports: Reports,
) -> Result<Opened, Reply> {
    let payload_bytes_max = path.1.payload_bytes_max(path.0);
    let stream = |data: &Data| data.open(of.0, of.1, payload_bytes_max, to);
    open_stream_by(control, of, path, stream, reports)
}

fn open_stream_by(
    control: &Control,
    (media, track): (&Arc<Media>, usize),
    (mtu_bytes, client): (u32, &Client),
    open: impl FnOnce(&Data) -> Result<Stream, EngineError>,
    reports: Reports,
) -> Result<Opened, Reply> {
    let data = control.content.sending.get();
    let data = data.expect("who has opened a file has what sends it");
    let payload_bytes_max = client.payload_bytes_max(mtu_bytes);
    // As a rule there is one: see `planning`.
    if media.plan(track, payload_bytes_max).is_none() {
        let note = format!("the path carries {mtu_bytes} bytes, too few for this file's packets");
        return Err(Reply::refusal(StatusCode::UnsupportedTransport, &note));
    }
    let stream = open(data).map_err(|error| refusal(&error))?;
    let ssrc = stream
        .snapshot()
        .numbering
        .ssrc(stream.source().origin().ssrc);
    let delivery = Delivery::Stored(StoredDelivery {
        stream,
        media: Arc::clone(media),
        clock_hz: media.track(track).clock_hz,
        // A datagram has fewer bytes than that.
        payload_bytes_max: u16::try_from(payload_bytes_max).unwrap_or(u16::MAX),
        track: u8::try_from(track).expect("there are eight tracks at most"),
        is_silent: Cell::new(false),
    });
    Ok(Opened {
        delivery,
        reports,
        ssrc,
    })
}

/// A track of a live channel, which begins later.
fn live(
    control: &Control,
    (channel, track, ssrc): (Arc<dyn LiveChannel>, usize, u32),
    lower: LowerTransport,
    client: &Client,
) -> Result<Opened, Reply> {
    let (local, peer) = (client.local, client.peer);
    let srtp = client.srtp.as_ref().map(|keys| keys.of_viewer(track));
    let (way, reports) = match lower {
        LowerTransport::Udp {
            rtp_port,
            rtcp_port,
        } => {
            let player = at(peer, rtp_port);
            // Datagrams would come back for ever.
            let mut channels = control.content.channels.iter();
            if let Some(source) = channels.find_map(|channel| channel.taken_by(player)) {
                let note = format!(
                    "{player} is where source {source} comes in; choose another client_port"
                );
                return Err(Reply::refusal(StatusCode::UnsupportedTransport, &note));
            }
            let shared = srtp.as_ref().and_then(|srtp| srtp.shares());
            let of = (&channel, track, shared);
            let pair = control.live_ports.share(&control.ports, of, local);
            let pair = pair.map_err(|error| no_ports(&error))?;
            let reports = Reports::Ports(pair.place(at(peer, rtcp_port)));
            (Way::Datagrams(local_address(local), player), reports)
        }
        LowerTransport::Multicast => unreachable!("its presentation would be another"),
        LowerTransport::Tcp { channels } => {
            let slot = take_channels(client, channels)?;
            let connection = Arc::clone(&slot.interleaving.connection);
            (
                Way::Frames(connection, slot.channels.rtp),
                Reports::Channel(slot),
            )
        }
    };
    let ssrc = srtp.as_ref().map_or(ssrc, |srtp| srtp.ssrc());
    let player = LivePlayer::new(channel, track, (way, srtp));
    Ok(Opened {
        delivery: Delivery::Live(Box::new(player)),
        reports,
        ssrc,
    })
}

/// One who watches what is sent to a group.
fn on_group(on: &Rc<OnGroup>, track: usize, client: &Client) -> Opened {
    let slot = GroupSlot::new(&on.group, track, client.peer.ip());
    let player = GroupPlayer {
        on: Rc::clone(on),
        track: slot.track(),
        clock_hz: slot.clock_hz(),
    };
    Opened {
        ssrc: slot.ssrc(),
        delivery: Delivery::Group(player),
        reports: Reports::Group(slot),
    }
}

/// Channels of the client's connection.
fn take_channels(client: &Client, asked: Option<Channels>) -> Result<ChannelSlot, Reply> {
    let interleaving = client.interleaving.as_ref();
    let interleaving = interleaving.expect("who wants packets in its connection has given it");
    interleaving.take(asked).ok_or_else(|| {
        let note = "all channels of the connection are taken";
        Reply::refusal(StatusCode::UnsupportedTransport, note)
    })
}

/// A port of the client's.
fn at(mut peer: SocketAddr, port: u16) -> SocketAddr {
    peer.set_port(port);
    peer
}
