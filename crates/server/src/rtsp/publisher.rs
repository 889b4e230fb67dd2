//! Somebody who publishes: what a connection has announced, and what comes of it.
//!
//! A publication is its connection's. It ends with TEARDOWN, with the connection, or when nothing
//! has come for too long; viewers of its channel wait then for the next of the same tracks.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use onrush_sys::clock::monotonic_ns;
use onrush_wire::auth::Action;
use onrush_wire::route::channel::standby_of;
use onrush_wire::rtsp::{
    Channels, LowerTransport, Publication, Publish, Reply, Request, ServedAt, SessionId,
    StatusCode, Transport, frame_prefix, headers, kept_setup_url,
};
use onrush_wire::sdp::AnnouncedTrack;
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use super::Control;
use super::authorize::may;
use super::presentation::is_taken;
use crate::byte_stream::ByteStream;
use crate::channels::published::{Lease, PUBLISHER_SILENCE_MAX, PublishError, Right, TrackSockets};
use crate::cluster::ChannelClaim;
use crate::peer_log::{Escaped, PEER_LOG_LINES_MAX, Throttle};

/// What a connection publishes.
#[derive(Debug)]
pub(super) struct Publisher {
    pub(super) session: SessionId,
    /// As its client spelt it: there it asks again.
    pub(super) url: Box<str>,
    lease: Lease,
    /// Of the channel, among all nodes of a cluster.
    claim: Option<Arc<ChannelClaim>>,
    /// It stands by where another node has the channel, and is not let go.
    may_stand_by: bool,
    tracks: Vec<AnnouncedTrack>,
    /// By track, from where it comes, once it is set up.
    inputs: Vec<Option<Input>>,
    peer: SocketAddr,
    /// RECORD was asked for.
    has_begun: bool,
    is_recording: bool,
    /// When it is to be told next how its packets arrive, while it records.
    report_at: Cell<Instant>,
    /// The round in which its client was sent on to another server; 0 before.
    pub(super) redirected: u8,
}

/// Where a track comes in.
#[derive(Debug)]
enum Input {
    /// At two ports; they are the channel's thread's once it records.
    Ports(Option<TrackSockets>),
    Channels(Channels),
}

/// Carries a publisher's request out; `None` if it is none.
pub(super) async fn answer(
    control: &Rc<Control>,
    publisher: &mut Option<Box<Publisher>>,
    request: &Request,
    (socket, peer, is_encrypted): (&ByteStream, SocketAddr, bool),
) -> Option<Result<Reply, Reply>> {
    let publication = publisher.as_ref().map(|publisher| publisher.publication());
    let asked = match Publish::of(request, peer.ip(), publication)? {
        Ok(asked) => asked,
        Err(refusal) => return Some(Err(refusal)),
    };
    let (timeout, session) = (
        control.config.limits.session_timeout,
        publisher.as_ref().map(|publisher| publisher.session),
    );
    let of_session = |reply: Reply| match session {
        Some(session) => reply.with_session(session, timeout),
        None => reply,
    };
    let done = match (asked, publisher.as_mut()) {
        (Publish::Announce { path, tracks }, _) => {
            let from = (peer, is_encrypted);
            let announced = announce(control, request, (path, tracks), from).await;
            announced.map(|new| {
                let session = publisher.insert(Box::new(new)).session;
                Reply::ok().with_session(session, timeout)
            })
        }
        (Publish::Teardown, _) => {
            // Ended by being let go.
            drop(publisher.take());
            Ok(Reply::ok())
        }
        (_, None) => Ok(Reply::ok()),
        (Publish::Setup { track, transports }, Some(publisher)) => {
            let between = (socket.local(), peer);
            let allows_udp = !is_encrypted || control.config.tls.allows_udp;
            let transport = choose(&transports, allows_udp);
            let set_up = transport.and_then(|it| publisher.set_up(control, track, it, between));
            set_up.map(of_session)
        }
        (Publish::Record, Some(publisher)) => {
            publisher.record();
            Ok(of_session(Reply::ok()))
        }
        (Publish::Pause, Some(publisher)) => {
            publisher.is_recording = false;
            publisher.lease.hold(true);
            Ok(of_session(Reply::ok()))
        }
        (Publish::KeepAlive, Some(_)) if request.method == onrush_wire::rtsp::Method::Options => {
            Ok(of_session(Reply::options()))
        }
        (Publish::KeepAlive, Some(_)) => Ok(of_session(Reply::ok())),
    };
    Some(done)
}

/// Which of the transports that a publisher offers it gets: the first, but over TLS one that is
/// encrypted, as for viewers.
fn choose(transports: &[Transport], allows_udp: bool) -> Result<&Transport, Reply> {
    let is_taken = |it: &&Transport| allows_udp || matches!(it.lower, LowerTransport::Tcp { .. });
    transports.iter().find(is_taken).ok_or_else(|| {
        let note = "over TLS packets are interleaved, not sent over UDP";
        Reply::refusal(StatusCode::UnsupportedTransport, note)
    })
}

async fn announce(
    control: &Rc<Control>,
    request: &Request,
    (path, tracks): (String, Vec<AnnouncedTrack>),
    (peer, is_encrypted): (SocketAddr, bool),
) -> Result<Publisher, Reply> {
    let refused = |reply: Reply| {
        static LINES: Throttle = Throttle::new(PEER_LOG_LINES_MAX);
        let (path, why) = (Escaped(&path), reply.reason());
        match LINES.admit() {
            Some(omitted) => info!("{peer} may not publish {path}: {why}{omitted}"),
            None => debug!("{peer} may not publish {path}: {why}"),
        }
        reply
    };
    let allowed = may(
        control,
        (peer.ip(), is_encrypted),
        Action::Publish,
        (request, &path),
    )
    .await;
    allowed.map_err(refused)?;
    if control.stopping.get() {
        let note = "the server stops";
        return Err(Reply::refusal(StatusCode::ServiceUnavailable, note));
    }
    if let Some(note) = is_taken(control, &path).await {
        return Err(refused(Reply::refusal(StatusCode::Forbidden, note)));
    }
    let of_channel = tracks.iter().map(|track| track.track.clone()).collect();
    let claim = claim(control, &path).await.map_err(refused)?;
    let seat = seat(control, &path, claim.as_ref())
        .await
        .map_err(refused)?;
    let holder = claim.as_ref().and_then(|claim| claim.refused());
    let lease = match holder {
        None => take_name(control, &path, of_channel).await,
        Some(_) => stand_by(control, &path, of_channel).await,
    };
    let lease = lease.map_err(|error| {
        let status = match error {
            PublishError::Name | PublishError::Taken | PublishError::Full => StatusCode::Forbidden,
            PublishError::OtherTracks(_) => StatusCode::UnsupportedMediaType,
            PublishError::TooMany => StatusCode::NotEnoughBandwidth,
            PublishError::Stopped | PublishError::Thread(_) => StatusCode::ServiceUnavailable,
        };
        refused(Reply::refusal(status, &error.to_string()))
    })?;
    if let Some(seat) = seat {
        lease.take_seat(seat);
    }
    Ok(Publisher {
        session: control.name(),
        url: kept_setup_url(&request.uri).into(),
        lease,
        claim: claim.map(Arc::new),
        may_stand_by: control.content.published.has_standby(&path),
        inputs: tracks.iter().map(|_| None).collect(),
        tracks,
        peer,
        has_begun: false,
        is_recording: false,
        report_at: Cell::new(Instant::now()),
        redirected: 0,
    })
}

/// Claims the channel in the cluster, if there is one: who publishes where another node has it is
/// told where. Not 302: that node would have to refuse it, too, and publishers do not follow.
async fn claim(control: &Control, path: &str) -> Result<Option<ChannelClaim>, Reply> {
    let cluster = control.statistics.cluster.get();
    let Some(claim) = cluster.and_then(|cluster| cluster.claim(path)) else {
        return Ok(None);
    };
    match claim.settled().await {
        None => Ok(Some(claim)),
        Some(_) if control.content.published.has_standby(path) => Ok(Some(claim)),
        Some(holder) => {
            let note = format!(
                "somebody else publishes under this name, at node {:?} ({})",
                holder.node, holder.rtsp
            );
            Err(Reply::refusal(StatusCode::Forbidden, &note))
        }
    }
}

/// Claims the standby's lease in the cluster for who comes second to a channel, here or at another
/// node: who comes third is told where the others are.
async fn seat(
    control: &Control,
    path: &str,
    claim: Option<&ChannelClaim>,
) -> Result<Option<ChannelClaim>, Reply> {
    let published = &control.content.published;
    let holder = claim.and_then(|claim| claim.refused());
    let is_second = holder.is_some() || published.has_publisher(path);
    let claim = claim.filter(|_| is_second && published.has_standby(path));
    if claim.is_some() && holder.is_some() && published.has_publisher(path) {
        let note = PublishError::Full.to_string();
        return Err(Reply::refusal(StatusCode::Forbidden, &note));
    }
    let Some(seat) = claim.and_then(|claim| claim.claim_other(&standby_of(path))) else {
        return Ok(None);
    };
    let Some(other) = seat.settled().await else {
        return Ok(Some(seat));
    };
    let at = holder.map_or_else(
        || "this node".to_owned(),
        |it| format!("node {:?}", it.node),
    );
    let note = format!(
        "this channel has a publisher at {at} and a standby at node {:?}; a third is not taken \
         until one of them ends",
        other.node
    );
    Err(Reply::refusal(StatusCode::Forbidden, &note))
}

/// Takes the name for a standby of what another node has: that is taken from there for a moment, so
/// that it is known whether the tracks are the same.
async fn stand_by(
    control: &Control,
    path: &str,
    tracks: Vec<onrush_wire::media::Track>,
) -> Result<Lease, PublishError> {
    let content = &control.content;
    let is_wanted = || content.pulls.want(path).unwrap_or(false);
    wait_while(|| is_wanted() && !content.published.is_held(path)).await;
    content.published.announce(path, tracks)
}

/// Takes the name here. Where the channel came from another node a moment ago, that ends first.
async fn take_name(
    control: &Control,
    path: &str,
    tracks: Vec<onrush_wire::media::Track>,
) -> Result<Lease, PublishError> {
    let content = &control.content;
    wait_while(|| content.pulls.leave(path)).await;
    content.published.announce(path, tracks)
}

/// Waits while it is so that another node's part is not over, or for as long as that may take.
async fn wait_while(is_so: impl Fn() -> bool) {
    let give_up = Instant::now() + NODE_LEFT_TIME_MAX;
    while is_so() && Instant::now() < give_up {
        sleep(NODE_LEFT_LOOK_EVERY).await;
    }
}

/// How long it may take until a channel is no longer taken from another node, and how often that is
/// looked at.
const NODE_LEFT_TIME_MAX: Duration = Duration::from_secs(3);
const NODE_LEFT_LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often a publisher is told how its packets arrive, and asked whether any do.
const REPORT_EVERY: Duration = Duration::from_secs(PUBLISHER_SILENCE_MAX.as_secs() / 2);

impl Publisher {
    fn publication(&self) -> Publication<'_> {
        Publication {
            path: self.lease.channel().path(),
            tracks: &self.tracks,
            session: self.session,
            tracks_set_up: self.inputs.iter().flatten().count(),
            is_recording: self.is_recording,
        }
    }

    fn set_up(
        &mut self,
        control: &Control,
        track: usize,
        transport: &Transport,
        (local, peer): (SocketAddr, SocketAddr),
    ) -> Result<Reply, Reply> {
        if self.has_begun {
            let note = "its ways are those that it had when it began; TEARDOWN first";
            return Err(Reply::refusal(StatusCode::MethodNotValidInThisState, note));
        }
        let (input, at) = match transport.lower {
            LowerTransport::Udp {
                rtp_port,
                rtcp_port,
            } => {
                let opened = control.ports.input(local, peer.ip(), [rtp_port, rtcp_port]);
                let ([rtp, rtcp], port) = opened.map_err(|error| {
                    let note = format!("no UDP ports for it: {error}");
                    Reply::refusal(StatusCode::ServiceUnavailable, &note)
                })?;
                let sockets = TrackSockets {
                    track,
                    rtp,
                    rtcp,
                    sender: None,
                };
                (Input::Ports(Some(sockets)), ServedAt::Port(port))
            }
            LowerTransport::Tcp { channels } => {
                let others = self.inputs.iter().enumerate();
                let others = others.filter(|(other, _)| *other != track);
                let taken: Vec<_> = others
                    .filter_map(|(_, it)| it.as_ref()?.channels())
                    .collect();
                let is_free = |asked: &Channels| !taken.iter().any(|it| it.overlaps(*asked));
                let channels = channels
                    .filter(is_free)
                    .or_else(|| Channels::free_of(&taken));
                let channels = channels.expect("eight tracks take few of 256 channels");
                (Input::Channels(channels), ServedAt::Channels(channels))
            }
            LowerTransport::Multicast => unreachable!("no offer of a publisher is that"),
        };
        self.inputs[track] = Some(input);
        Ok(Reply::ok().with(headers::TRANSPORT, transport.answer_record(at)))
    }

    fn record(&mut self) {
        self.is_recording = true;
        self.report_at.set(Instant::now() + REPORT_EVERY);
        if std::mem::replace(&mut self.has_begun, true) {
            return self.lease.hold(false);
        }
        let inputs = self.inputs.iter_mut().flatten();
        let sockets = inputs.filter_map(|input| match input {
            Input::Ports(sockets) => sockets.take(),
            Input::Channels(_) => None,
        });
        let sockets: Vec<_> = sockets.collect();
        let how = if sockets.is_empty() { "TCP" } else { "UDP" };
        let right = match &self.claim {
            Some(claim) => Right::Claim(Arc::clone(claim)),
            None => Right::Always,
        };
        self.lease.begin(sockets, self.peer.to_string(), right);
        let (path, tracks) = (self.lease.channel().path(), self.tracks.len());
        let how = match self.lease.is_standby() {
            true => format!("{how} as a standby"),
            false => how.to_owned(),
        };
        info!(
            "channel {path} is published by {} over {how}, {tracks} tracks",
            self.peer
        );
    }

    /// Takes a frame of its connection.
    pub(super) fn frame(&self, channel: u8, packet: Vec<u8>) {
        let inputs = self.inputs.iter().zip(0_u8..);
        let found = inputs.filter_map(|(input, track)| {
            let channels = input.as_ref()?.channels()?;
            match channel {
                it if it == channels.rtp => Some((track, false)),
                it if it == channels.rtcp => Some((track, true)),
                _ => None,
            }
        });
        match found.into_iter().next().filter(|_| self.is_recording) {
            Some((track, is_rtcp)) => self.lease.frame(track, is_rtcp, packet),
            None => self.lease.stray(),
        }
    }

    /// How packets arrive that come as frames, as receiver reports (RFC 3550, section 6.4.2) on the
    /// tracks' other channels; those of sockets get theirs there. The next are due in a while.
    pub(super) fn reports(&self) -> Vec<u8> {
        self.report_at.set(Instant::now() + REPORT_EVERY);
        let mut frames = Vec::new();
        for (track, input) in self.inputs.iter().enumerate() {
            let Some(channels) = input.as_ref().and_then(Input::channels) else {
                continue;
            };
            if let Some(report) = self.lease.reception_report(track)
                && let Ok(bytes) = u16::try_from(report.len())
            {
                frames.extend_from_slice(&frame_prefix(channels.rtcp, bytes));
                frames.extend_from_slice(&report);
            }
        }
        frames
    }

    /// How long the connection is waited for before it is [asked](Self::is_silent), and told how
    /// packets arrive.
    pub(super) fn patience(&self) -> Option<Duration> {
        let is_due_in = || {
            self.report_at
                .get()
                .saturating_duration_since(Instant::now())
        };
        self.is_recording.then(is_due_in)
    }

    /// Whether it is to be told how its packets arrive. That has a time of its own: the connection
    /// may never be without a frame that has begun.
    pub(super) fn is_report_due(&self) -> bool {
        self.patience().is_some_and(|left| left.is_zero())
    }

    /// Whether it is to be let go. If not, the task is woken once it is, but for another node that
    /// has the channel by then.
    pub(super) fn is_dismissed(&self, context: Option<&Context<'_>>) -> bool {
        let claim = self.claim.as_ref().filter(|_| !self.may_stand_by);
        self.lease.is_dismissed(context) || claim.is_some_and(|it| it.refused().is_some())
    }

    /// Whether it records, and nothing has come for too long; said in the log.
    pub(super) fn is_silent(&self) -> bool {
        let silent_ns = monotonic_ns().saturating_sub(self.lease.arrived_ns());
        let is_silent = u128::from(silent_ns) >= PUBLISHER_SILENCE_MAX.as_nanos();
        if self.is_recording && is_silent {
            let path = self.lease.channel().path();
            let refused = self.lease.refused();
            info!("channel {path}: nothing has come for {PUBLISHER_SILENCE_MAX:?}{refused}");
        }
        self.is_recording && is_silent
    }
}

impl Input {
    fn channels(&self) -> Option<Channels> {
        match self {
            Self::Ports(_) => None,
            Self::Channels(channels) => Some(*channels),
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if self.has_begun {
            let path = self.lease.channel().path();
            info!("channel {path} is no longer published by {}", self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_tls_a_publisher_gets_the_first_that_is_not_udp() {
        let lower = |offer: &str, allows_udp| {
            let offers = std::iter::once(offer);
            let transports = Transport::negotiate_record(offers, [127, 0, 0, 1].into()).unwrap();
            let chosen = choose(&transports, allows_udp);
            let chosen = chosen.map(|it| matches!(it.lower, LowerTransport::Tcp { .. }));
            chosen.map_err(|reply| reply.status())
        };
        let udp = "RTP/AVP;unicast;client_port=6-7;mode=record";
        let both = format!("{udp},RTP/AVP/TCP;unicast;interleaved=0-1;mode=record");
        assert_eq!(lower(&both, true), Ok(false));
        assert_eq!(lower(&both, false), Ok(true));
        assert_eq!(lower(udp, true), Ok(false));
        assert_eq!(lower(udp, false), Err(461));
    }
}
