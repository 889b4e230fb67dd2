//! One client's packets and reports: a stream of the engine, and a place at an RTCP port beside it.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::media::Plan;
use onrush_wire::rtcp::{self, Heard, Reception, Sending, ntp};
use onrush_wire::rtp::{self, Position};
use onrush_wire::rtsp::{Reply, Served, StatusCode, Transport, track_name};
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use super::live_player::LivePlayer;
use super::moment::Moment;
use super::ports::PortPairSlot;
use super::presentation::{Presentation, playable};
use super::{Control, Escaped, Files};
use crate::engine::shared::TrackClock;
use crate::engine::{EndReason, EngineError, Stream, StreamSnapshot};
use crate::library::Media;
use crate::relay::Channel;

/// Where a session's packets go, and all that is known about them.
#[derive(Debug)]
pub(super) struct TrackSession {
    pub(super) delivery: Delivery,
    /// The packet that PLAY without a range starts from.
    pub(super) resume_at: Cell<u64>,
    /// The packet that what plays is to stop before, and become ready there, if PAUSE has named a
    /// point; else [`NO_PACKET`].
    pause_before: Cell<u64>,
    place: PortPairSlot,
    /// The track's URL as the client spelt it, for RTP-Info.
    pub(super) track_url: Box<str>,
    /// Of the packets, as the client was told.
    ssrc: u32,
    started: Cell<Option<Instant>>,
    reception: Cell<Option<Reception>>,
    /// The client was told that no more comes.
    is_over: Cell<bool>,
    /// Why the last report could not be sent, so that it is said once.
    send_error: Cell<Option<io::ErrorKind>>,
}

/// A number that no packet has.
const NO_PACKET: u64 = u64::MAX;

/// How packets come to the client.
#[derive(Debug)]
pub(super) enum Delivery {
    /// From a file, for this client alone.
    Stored(StoredDelivery),
    /// From whoever sends them just now, to all who want them.
    Live(LivePlayer),
}

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
}

impl StoredDelivery {
    pub(super) fn plan(&self) -> Arc<Plan> {
        let plan = self
            .media
            .plan(self.track.into(), self.payload_bytes_max.into());
        plan.expect("it was cut so when the session was set up")
    }

    /// The RTP timestamp of a moment: by the line on which those of the packets lie, before,
    /// between and behind them.
    fn timestamp(&self, at: Moment) -> u32 {
        const SECOND_NS: i64 = 1_000_000_000;
        let media_ns = self.stream.media_ns_at(at.monotonic_ns).unwrap_or(0);
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

impl TrackSession {
    /// Opens what `transport` asks for of a track, from the address that the client spoke to,
    /// `local`.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    pub(super) fn open(
        control: &Control,
        (presentation, track): (&Presentation, usize),
        transport: &Transport,
        track_url: &str,
        (local, peer): (SocketAddr, SocketAddr),
    ) -> Result<Self, Reply> {
        let (local, peer) = (canonical(local), canonical(peer));
        let (delivery, place, ssrc) = match presentation {
            Presentation::Stored(media) => {
                stored(control, (media, track), transport, (local, peer))?
            }
            Presentation::Live(channel) => live(control, channel, transport, local, peer)?,
        };
        Ok(Self {
            delivery,
            resume_at: Cell::new(0),
            pause_before: Cell::new(NO_PACKET),
            place,
            track_url: track_url.into(),
            ssrc,
            started: Cell::new(None),
            reception: Cell::new(None),
            is_over: Cell::new(false),
            send_error: Cell::new(None),
        })
    }

    /// The stream, if it is of a file.
    pub(super) fn stored(&self) -> Option<&StoredDelivery> {
        match &self.delivery {
            Delivery::Stored(delivery) => Some(delivery),
            Delivery::Live(_) => None,
        }
    }

    /// The number of its track, from 0 on.
    pub(super) fn number(&self) -> u8 {
        self.stored().map_or(0, |delivery| delivery.track)
    }

    /// From now on the session of this number is told of all that happens to it.
    pub(super) fn belongs_to(&self, session: u64) {
        self.place.belongs_to(session);
        if let Delivery::Stored(delivery) = &self.delivery {
            delivery.stream.belongs_to(session);
        }
    }

    /// What the client is told of it.
    pub(super) fn served(&self) -> Served {
        Served {
            rtp_port: self.place.rtp_port(),
            ssrc: self.ssrc,
        }
    }

    /// Who it is for.
    pub(super) fn peer_ip(&self) -> IpAddr {
        self.place.peer_ip()
    }

    /// Why the stream has ended by itself, if it has. A live one does not.
    pub(super) fn end_reason(&self) -> Option<EndReason> {
        match &self.delivery {
            Delivery::Stored(delivery) => delivery.stream.end_reason(),
            Delivery::Live(_) => None,
        }
    }

    /// What plays is to stop before that packet, and become ready there; or nowhere but at its end.
    pub(super) fn set_pause_before(&self, packet: Option<u64>) {
        self.pause_before.set(packet.unwrap_or(NO_PACKET));
    }

    /// The packet that what plays is to stop before, if PAUSE has named a point.
    pub(super) fn pause_before(&self) -> Option<u64> {
        Some(self.pause_before.get()).filter(|&packet| packet != NO_PACKET)
    }

    /// The clock that it shares with the tracks beside it, if it shares one.
    pub(super) fn clock(&self) -> Option<Arc<TrackClock>> {
        self.stored()?.stream.clock()
    }

    /// When the packet is due that PLAY without a range starts from, if there is one, or may be.
    pub(super) fn resume_ns(&self) -> Option<u64> {
        let delivery = self.stored()?;
        let (plan, resume_at) = (delivery.plan(), self.resume_at.get());
        let is_there = resume_at < plan.rtp_packets() || delivery.media.grows();
        is_there.then(|| plan.due_ns(resume_at))
    }

    /// PLAY without a range starts from where it starts of those `tracks`.
    pub(super) fn resume_beside(&self, tracks: &[Rc<Self>]) {
        let resume_ns = tracks.iter().filter_map(|track| track.resume_ns()).min();
        if let (Some(delivery), Some(resume_ns)) = (self.stored(), resume_ns) {
            self.resume_at.set(delivery.plan().rtp_packet_at(resume_ns));
        }
    }

    /// Stops sending. The packet that would have been next, if that is known.
    pub(super) async fn pause(&self) -> Result<Option<u64>, EngineError> {
        match &self.delivery {
            Delivery::Stored(delivery) => delivery.stream.pause().await.map(Some),
            Delivery::Live(seat) => {
                seat.leave();
                Ok(None)
            }
        }
    }

    /// Stops sending, in the end.
    pub(super) async fn halt(&self) {
        match &self.delivery {
            // An engine that does not answer is not waited for.
            Delivery::Stored(delivery) => {
                drop(timeout(Duration::from_secs(1), delivery.stream.pause()).await);
            }
            Delivery::Live(seat) => seat.leave(),
        }
    }

    /// What the client's RTCP port has said. Keeps what it says about our packets.
    pub(super) fn hear(&self, datagram: &[u8]) -> Heard {
        let heard = rtcp::read(datagram, self.ssrc(), ntp(Moment::now().unix));
        if heard.reception.is_some() {
            self.reception.set(heard.reception);
        }
        heard
    }

    /// Sends a sender report. Also finds out whether there is still somebody: if
    /// not, the RTCP port's listener, or this send, hears that the port is unreachable.
    pub(super) fn report(&self) -> io::Result<()> {
        self.send(&self.sending(Moment::now(), &self.cname()).report())
    }

    /// What media time is due now; of no meaning in a live stream.
    pub(super) fn position_ns(&self) -> u64 {
        match &self.delivery {
            Delivery::Stored(delivery) => delivery.stream.snapshot().position_ns,
            Delivery::Live(_) => 0,
        }
    }

    /// Something comes, also after a goodbye.
    pub(super) fn goes_on(&self) {
        self.is_over.set(false);
    }

    /// Sends the last report, and that it is the last; once, unless it [goes on](Self::goes_on).
    pub(super) fn say_goodbye(&self, reason: &str) {
        if self.is_over.replace(true) {
            return;
        }
        let cname = self.cname();
        let goodbye = self.sending(Moment::now(), &cname).goodbye(reason);
        // Whoever is no longer there needs no farewell.
        self.send(&goodbye).unwrap_or_default();
    }

    /// Says in the log that the session starts, the first time.
    pub(super) fn log_start(&self, id: impl std::fmt::Display, range: &str, path_name: &str) {
        if self.started.get().is_some() {
            return;
        }
        self.started.set(Some(Instant::now()));
        let (ip, name) = (self.peer_ip(), self.shown());
        let with = match &self.delivery {
            Delivery::Stored(delivery) => {
                let bytes = delivery.plan().image_bytes_max();
                format!("packets of up to {bytes} bytes")
            }
            Delivery::Live(_) => "live".to_owned(),
        };
        let path_name = self.path_name(path_name);
        info!("session {id} starts: {ip} plays {name} {range}, {with}, path {path_name}");
    }

    /// Says in the log how it was, if it ever started.
    pub(super) fn log_end(&self, id: impl std::fmt::Display, why: &str, path_name: &str) {
        let Some(started) = self.started.get() else {
            return debug!("session {id} of {} ends unplayed: {why}", self.peer_ip());
        };
        let arrival = match self.reception.get() {
            None => "no reports from it".to_owned(),
            Some(reception) => describe(reception, self.clock_hz()),
        };
        let sent = match &self.delivery {
            Delivery::Stored(delivery) => sent(&delivery.stream.snapshot()),
            Delivery::Live(seat) => format!("about {} packets", seat.sent().0),
        };
        let path_name = self.path_name(path_name);
        info!(
            "session {id} ends ({why}): {} {}, {:.1} s, {sent}, {arrival}, path {path_name}",
            self.peer_ip(),
            self.shown(),
            started.elapsed().as_secs_f64(),
        );
    }

    /// How packets reach the client, for the log: files go by the path of that name.
    fn path_name<'a>(&self, of_files: &'a str) -> &'a str {
        match &self.delivery {
            Delivery::Stored(_) => of_files,
            Delivery::Live(_) => "relay",
        }
    }

    /// What it is of, for the log.
    fn shown(&self) -> String {
        match &self.delivery {
            Delivery::Stored(StoredDelivery { media, track, .. }) if media.tracks() > 1 => {
                let name = track_name(u32::from(*track) + 1);
                format!("{} {name}", Escaped(media.name()))
            }
            Delivery::Stored(delivery) => Escaped(delivery.media.name()).to_string(),
            Delivery::Live(seat) => Escaped(seat.name()).to_string(),
        }
    }

    /// Ticks a second of its timestamps.
    fn clock_hz(&self) -> u32 {
        let live = |seat: &LivePlayer| seat.playable()?.payload.ok().map(|it| it.clock_hz);
        match &self.delivery {
            Delivery::Stored(delivery) => delivery.clock_hz,
            Delivery::Live(seat) => live(seat).unwrap_or(90_000),
        }
    }

    /// A live stream may become another one while it plays.
    fn ssrc(&self) -> u32 {
        match &self.delivery {
            Delivery::Stored(_) => self.ssrc,
            Delivery::Live(seat) => seat.playable().map_or(self.ssrc, |p| p.ssrc),
        }
    }

    /// What our reports call us.
    fn cname(&self) -> String {
        format!("onrush@{}", self.place.local_ip())
    }

    /// What is told of it at a moment.
    pub(super) fn sending<'a>(&self, at: Moment, cname: &'a str) -> Sending<'a> {
        let (timestamp, packets, payload_bytes) = match &self.delivery {
            Delivery::Stored(delivery) => {
                let StreamSnapshot {
                    packets,
                    bytes,
                    numbering,
                    ..
                } = delivery.stream.snapshot();
                let header_bytes = packets * rtp::HEADER_BYTES as u64;
                let payload_bytes = bytes.saturating_sub(header_bytes);
                let position = numbering.position(Position {
                    sequence: 0,
                    timestamp: delivery.timestamp(at),
                });
                (position.timestamp, packets, payload_bytes)
            }
            Delivery::Live(seat) => {
                let (packets, payload_bytes) = seat.sent();
                (seat.timestamp(at), packets, payload_bytes)
            }
        };
        Sending {
            ssrc: self.ssrc(),
            cname,
            ntp: ntp(at.unix),
            timestamp,
            packets,
            payload_bytes,
        }
    }

    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self.place.send(datagram) {
            Ok(()) => {
                self.send_error.replace(None);
                Ok(())
            }
            Err(error) => {
                let before = self.send_error.replace(Some(error.kind()));
                if before != Some(error.kind()) {
                    debug!("reporting to {}: {error}", self.peer_ip());
                }
                Err(error)
            }
        }
    }
}

/// A stream of its own from a file, and a place for its reports.
fn stored(
    control: &Control,
    (media, track): (&Arc<Media>, usize),
    transport: &Transport,
    (local, peer): (SocketAddr, SocketAddr),
) -> Result<(Delivery, PortPairSlot, u32), Reply> {
    let files = control.content.files.as_ref();
    let Files { data, .. } = files.expect("who has opened a file has files");
    let placed = control
        .ports
        .place(local, transport.rtp_port, reports(transport, peer));
    let (rtp, place) = placed.map_err(|error| no_place(&error))?;
    let mtu_bytes = onrush_sys::socket::path_mtu(&rtp).map_err(|error| unavailable(&error))?;
    let payload_bytes_max = payload_bytes_that_fit(mtu_bytes, peer.is_ipv4());
    if media.plan(track, payload_bytes_max).is_none() {
        let note = format!("the path carries {mtu_bytes} bytes, too few for this file's packets");
        return Err(Reply::refusal(StatusCode::UnsupportedTransport, &note));
    }
    let stream = data.open(media, track, payload_bytes_max, rtp.into());
    let stream = stream.map_err(|error| refusal(&error))?;
    let ssrc = stream.snapshot().numbering.ssrc(media.origin(track).ssrc);
    let delivery = Delivery::Stored(StoredDelivery {
        stream,
        media: Arc::clone(media),
        clock_hz: media.track(track).clock_hz,
        // A datagram has fewer bytes than that.
        payload_bytes_max: u16::try_from(payload_bytes_max).unwrap_or(u16::MAX),
        track: u8::try_from(track).expect("there are eight tracks at most"),
    });
    Ok((delivery, place, ssrc))
}

/// A seat among the players of a live stream.
fn live(
    control: &Control,
    channel: &Arc<Channel>,
    transport: &Transport,
    local: SocketAddr,
    peer: SocketAddr,
) -> Result<(Delivery, PortPairSlot, u32), Reply> {
    let ssrc = playable(channel)?.ssrc;
    let mut player = peer;
    player.set_port(transport.rtp_port);
    // Datagrams would come back for ever.
    if let Some(source) = channel.taken_by(player) {
        let note =
            format!("{player} is where source {source} comes in; choose another client_port");
        return Err(Reply::refusal(StatusCode::UnsupportedTransport, &note));
    }
    let pair = control.live_ports.share(&control.ports, channel, local);
    let pair = pair.map_err(|error| no_place(&error))?;
    let place = pair.place(reports(transport, peer));
    let seat = LivePlayer::new(Arc::clone(channel), local.ip(), player);
    Ok((Delivery::Live(seat), place, ssrc))
}

/// What a client is told that the engine cannot serve.
pub(super) fn refusal(error: &EngineError) -> Reply {
    let status = match error {
        EngineError::Full { .. }
        | EngineError::Overload { .. }
        | EngineError::Late
        | EngineError::CacheFull { .. } => StatusCode::NotEnoughBandwidth,
        EngineError::Media { .. } => StatusCode::Gone,
        EngineError::Slow | EngineError::Busy | EngineError::Stopped | EngineError::Socket(_) => {
            StatusCode::ServiceUnavailable
        }
    };
    if status == StatusCode::NotEnoughBandwidth {
        info!("a session is refused: {error}");
    }
    Reply::refusal(status, &error.to_string())
}

/// Whether `error` says that nobody listens at the other end.
pub(super) fn is_unreachable(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(
        error,
        ConnectionRefused | HostUnreachable | NetworkUnreachable
    )
}

/// Where the client wants our reports.
fn reports(transport: &Transport, mut peer: SocketAddr) -> SocketAddr {
    peer.set_port(transport.rtcp_port);
    peer
}

fn no_place(error: &io::Error) -> Reply {
    let note = match error.raw_os_error() {
        None if error.kind() == io::ErrorKind::AddrInUse => {
            "no pair of UDP ports is free".to_owned()
        }
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
            return unavailable(error);
        }
        _ => {
            let note = format!("your UDP ports cannot be reached: {error}");
            return Reply::refusal(StatusCode::UnsupportedTransport, &note);
        }
    };
    Reply::refusal(StatusCode::ServiceUnavailable, &note)
}

/// How many bytes a packet may carry behind its RTP header so that it goes unfragmented.
fn payload_bytes_that_fit(mtu_bytes: u32, is_ipv4: bool) -> usize {
    let (ip_header_bytes, udp_header_bytes) = (if is_ipv4 { 20 } else { 40 }, 8);
    let mtu_bytes = usize::try_from(mtu_bytes).unwrap_or(usize::MAX);
    mtu_bytes.saturating_sub(ip_header_bytes + udp_header_bytes + rtp::HEADER_BYTES)
}

/// An IPv4 address that the dual-stack listener shows as an IPv6 one, as what it is; an IPv6 one
/// with the scope that a link-local address needs.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip.is_ipv4() => SocketAddr::new(ip, address.port()),
        _ => address,
    }
}

fn unavailable(error: &io::Error) -> Reply {
    let note = format!("no UDP socket: {error}");
    Reply::refusal(StatusCode::ServiceUnavailable, &note)
}

fn sent(snapshot: &StreamSnapshot) -> String {
    let StreamSnapshot {
        packets,
        bytes,
        packets_refused,
        lateness_mean_ns,
        lateness_max_ns,
        ..
    } = *snapshot;
    format!(
        "{packets} packets, {bytes} bytes, {packets_refused} refused, lateness mean {:.3} ms, \
         worst {:.3} ms",
        ms(lateness_mean_ns),
        ms(lateness_max_ns),
    )
}

fn describe(reception: Reception, clock_hz: u32) -> String {
    let Reception {
        lost,
        lost_fraction,
        jitter,
        round_trip,
        ..
    } = reception;
    let round_trip =
        round_trip.map(|time| format!(", round trip {:.1} ms", time.as_secs_f64() * 1e3));
    format!(
        "lost {lost} there (last {:.1} %), jitter {:.1} ms{}",
        f64::from(lost_fraction) / 2.56,
        f64::from(jitter) * 1e3 / f64::from(clock_hz),
        round_trip.unwrap_or_default(),
    )
}

#[allow(
    clippy::cast_precision_loss,
    reason = "for people; 2^53 ns are 104 days"
)]
fn ms(time_ns: i64) -> f64 {
    time_ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_all_of_its_headers_is_as_long_as_the_path_carries() {
        for (mtu_bytes, v4, v6) in [(1500, 1460, 1440), (60, 20, 0), (41, 1, 0), (40, 0, 0)] {
            assert_eq!(payload_bytes_that_fit(mtu_bytes, true), v4, "{mtu_bytes}");
            assert_eq!(payload_bytes_that_fit(mtu_bytes, false), v6, "{mtu_bytes}");
        }
    }

    #[test]
    fn mapped_addresses_become_what_they_are_and_scopes_stay() {
        let of = |text: &str| canonical(text.parse().unwrap()).to_string();
        assert_eq!(of("[::ffff:192.0.2.1]:5"), "192.0.2.1:5");
        assert_eq!(of("[fe80::1%3]:5"), "[fe80::1%3]:5");
        assert_eq!(of("[::1]:5"), "[::1]:5");
    }
}
