//! One track of one client's session: its delivery, and the reports that go both ways beside it.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_sys::clock::monotonic_ns;
use onrush_wire::route::Trace;
use onrush_wire::rtcp::{self, Heard, Reception, Sending, Waiting};
use onrush_wire::rtsp::{Reply, Served, Transport, kept_setup_url};
use tracing::{debug, info};

use super::Control;
use super::client::Client;
use super::delivery::{Delivery, Opened, Sent, StoredDelivery};
use super::live_player::LivePlayer;
use super::presentation::Presentation;
use super::report_clock::ReportClock;
use super::reports::Reports;
use super::srtp::TrackSrtp;
use crate::engine::shared::TrackClock;
use crate::engine::{EndReason, EngineError, StreamSrtp};
use crate::random::random;
use crate::store::Source;

/// Where a session's packets go, and all that is known about them.
#[derive(Debug)]
pub(super) struct TrackSession {
    delivery: Delivery,
    /// The packet that PLAY without a range starts from.
    pub(super) resume_at: Cell<u64>,
    /// The packet that what plays is to stop before, and become ready there, if PAUSE has named a
    /// point; else [`NO_PACKET`].
    pause_before: Cell<u64>,
    reports: Reports,
    /// What reports are encrypted with, if they are.
    srtp: Option<Box<TrackSrtp>>,
    /// The track's URL as the client spelt it, for RTP-Info; without a query that makes it long.
    pub(super) track_url: Box<str>,
    /// What another node called the client, if that sent it here.
    trace: Cell<Option<Trace>>,
    /// Of the packets, as the client was told.
    ssrc: u32,
    /// By CLOCK_MONOTONIC, in ns; 0 before it has.
    started_ns: Cell<u64>,
    reception: Cell<Option<Reception>>,
    /// The client was told that no more comes.
    is_over: Cell<bool>,
    /// Why the last report could not be sent, so that it is said once.
    send_error: Cell<Option<io::ErrorKind>>,
}

/// A number that no packet has.
const NO_PACKET: u64 = u64::MAX;

impl TrackSession {
    /// Opens what `transport` asks for of a track.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    pub(super) fn open(
        control: &Control,
        (presentation, track): (&Presentation, usize),
        transport: &Transport,
        track_url: &str,
        client: &Client,
    ) -> Result<Self, Reply> {
        let Opened {
            delivery,
            reports,
            ssrc,
        } = Delivery::open(control, (presentation, track), transport, client)?;
        let of = (delivery.track(), ssrc);
        let srtp = client.srtp.as_deref();
        let srtp = srtp.map(|keys| TrackSrtp::new(keys, of));
        Ok(Self {
            delivery,
            resume_at: Cell::new(0),
            pause_before: Cell::new(NO_PACKET),
            reports,
            srtp,
            track_url: kept_setup_url(track_url).into(),
            trace: Cell::default(),
            ssrc,
            started_ns: Cell::new(0),
            reception: Cell::new(None),
            is_over: Cell::new(false),
            send_error: Cell::new(None),
        })
    }

    /// What it plays, for the log.
    pub(super) fn name(&self) -> String {
        self.delivery.name()
    }

    /// What the client is called in logs, if it was sent here or is sent on.
    pub(super) fn trace(&self) -> Option<Trace> {
        self.trace.get()
    }

    pub(super) fn set_trace(&self, trace: Option<Trace>) {
        self.trace.set(trace);
    }

    /// The stream, if it is of a file.
    pub(super) fn stored(&self) -> Option<&StoredDelivery> {
        self.delivery.stored()
    }

    /// The track of a live channel, if it is one.
    pub(super) fn live(&self) -> Option<&LivePlayer> {
        self.delivery.live()
    }

    /// The number of its track, from 0 on.
    pub(super) fn number(&self) -> u8 {
        self.delivery.track()
    }

    /// Whether its packets and reports are.
    pub(super) fn is_encrypted(&self) -> bool {
        self.srtp.is_some()
    }

    /// From now on the session of this number is told of all that happens to it.
    pub(super) fn belongs_to(&self, session: u64) {
        self.reports.belongs_to(session);
        self.delivery.belongs_to(session);
    }

    /// What the client is told of it.
    pub(super) fn served(&self) -> Served {
        Served {
            at: self.reports.served_at(),
            ssrc: self.ssrc,
        }
    }

    /// What the client reported last, and ticks a second of its jitter.
    pub(super) fn arrival(&self) -> Option<(Reception, u32)> {
        let reception = self.reception.get()?;
        Some((reception, self.delivery.clock_hz()))
    }

    /// Ticks a second of its timestamps.
    pub(super) fn clock_hz(&self) -> u32 {
        self.delivery.clock_hz()
    }

    /// How its packets go.
    pub(super) fn transport(&self) -> &'static str {
        match self.delivery.path_name("udp") {
            "interleaved" => "tcp",
            "multicast" => "multicast",
            _ if self.srtp.is_some() => "srtp",
            "relay" => "live",
            _ => "udp",
        }
    }

    /// Who it is for.
    pub(super) fn peer_ip(&self) -> IpAddr {
        self.reports.peer_ip()
    }

    /// Whether it is known that nothing reaches the client any more.
    pub(super) fn is_cut_off(&self) -> bool {
        self.reports.is_cut_off()
    }

    /// Wakes the task of the connection that its packets go to, if they go to one.
    pub(super) fn wake_connection(&self) {
        self.reports.wake_connection();
    }

    /// Why it has ended by itself, if it has. A live one does not.
    pub(super) fn end_reason(&self) -> Option<EndReason> {
        self.delivery.end_reason()
    }

    /// What plays is to stop before that packet, and become ready there; or nowhere but at its end.
    pub(super) fn set_pause_before(&self, packet: Option<u64>) {
        self.pause_before.set(packet.unwrap_or(NO_PACKET));
    }

    /// The packet that what plays is to stop before, if PAUSE has named a point.
    pub(super) fn pause_before(&self) -> Option<u64> {
        Some(self.pause_before.get()).filter(|&packet| packet != NO_PACKET)
    }

    /// Whether it plays along with the others, or is silent while they do: nothing of it is sent
    /// then, reports neither.
    pub(super) fn set_silent(&self, is_silent: bool) {
        if let Some(delivery) = self.stored() {
            delivery.is_silent.set(is_silent);
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.stored()
            .is_some_and(|delivery| delivery.is_silent.get())
    }

    /// Readies its stream, if it has one, for playing from packet `from` of `source`. What is
    /// encrypted for all who have its key goes on so as long as its numbers do, and from its first
    /// jump on it is encrypted for the client alone.
    pub(super) fn take_source(&self, source: &Arc<Source>, from: u64) -> Result<(), EngineError> {
        let Some(StoredDelivery { stream, .. }) = self.stored() else {
            return Ok(());
        };
        let played = stream.source();
        let (Some(_), Some(key)) = (
            played.film_key(),
            self.srtp.as_ref().and_then(|it| it.film_key()),
        ) else {
            return stream.change_source(source, from);
        };
        let is_normal = |source: &Source| source.plan().timeline().scale().is_normal();
        if is_normal(source) && stream.may_share_from(from) {
            return Ok(());
        }
        let reason = "its key is used up: describe it anew";
        let ssrc = key.take_ssrc().ok_or_else(|| EngineError::Media {
            reason: reason.to_owned(),
        })?;
        let srtp = StreamSrtp::new(key.master(), ssrc);
        stream.leave_shared_images(source, srtp, from)
    }

    /// The clock that it shares with the tracks beside it, if it shares one.
    pub(super) fn clock(&self) -> Option<Arc<TrackClock>> {
        self.stored()?.stream.clock()
    }

    /// When the packet is due that PLAY without a range starts from, if there is one, or may be.
    pub(super) fn resume_ns(&self) -> Option<u64> {
        let delivery = self.stored()?;
        let (plan, resume_at) = (delivery.plan(), self.resume_at.get());
        let is_there = resume_at < plan.rtp_packets() || delivery.goes_on();
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
        self.delivery.pause().await
    }

    /// Stops sending, in the end.
    pub(super) async fn halt(&self) {
        self.delivery.halt().await;
    }

    /// What time it is by its reports.
    pub(super) fn ntp(&self, clock: ReportClock) -> u64 {
        let at_ns = monotonic_ns();
        clock.ntp(at_ns, self.delivery.since_zero_ns(at_ns))
    }

    /// What the client's RTCP port has said at `arrival`, by the reports that it answers. Keeps
    /// what it says about our packets.
    pub(super) fn hear(&self, arrival: u64, datagram: &[u8]) -> Heard {
        let opened;
        let datagram = match &self.srtp {
            None => datagram,
            Some(srtp) => match srtp.unprotect(datagram) {
                // Nobody knows whose it is.
                None => return Heard::default(),
                Some(report) => {
                    opened = report;
                    &opened
                }
            },
        };
        let heard = rtcp::read(datagram, self.ssrc(), arrival);
        if heard.reception.is_some() {
            self.reception.set(heard.reception);
        }
        heard
    }

    /// Sends a sender report, or an empty one of a receiver where nothing has come that could be
    /// reported. Also finds out whether there is still somebody: if not, the RTCP port's listener,
    /// or this send, hears that the port is unreachable.
    pub(super) fn report(&self, clock: ReportClock) -> io::Result<()> {
        let cname = self.cname();
        let report = match self.sending(clock, monotonic_ns(), &cname) {
            Some(sending) => sending.report(),
            None => self.waiting(&cname).report(),
        };
        self.send(&report)
    }

    /// What media time is due now; of no meaning in a live stream.
    pub(super) fn position_ns(&self) -> u64 {
        self.delivery.position_ns()
    }

    /// Something comes, also after a goodbye.
    pub(super) fn goes_on(&self) {
        self.is_over.set(false);
    }

    /// Sends the last report, and that it is the last; once, unless it [goes on](Self::goes_on).
    pub(super) fn say_goodbye(&self, clock: ReportClock, reason: &str) {
        if self.is_over.replace(true) {
            return;
        }
        let cname = self.cname();
        let goodbye = match self.sending(clock, monotonic_ns(), &cname) {
            Some(sending) => sending.goodbye(reason),
            None => self.waiting(&cname).goodbye(reason),
        };
        // Whoever is no longer there needs no farewell.
        self.send(&goodbye).unwrap_or_default();
    }

    /// Says in the log that the session starts, the first time.
    pub(super) fn log_start(&self, id: impl std::fmt::Display, range: &str, path_name: &str) {
        if self.started_ns.get() > 0 {
            return;
        }
        self.started_ns.set(monotonic_ns());
        let (ip, name) = (self.peer_ip(), self.delivery.name());
        let packets = self.delivery.describe();
        let path_name = self.delivery.path_name(path_name);
        let trace = self.trace_told();
        info!("session {id} starts: {ip} plays {name} {range}, {packets}, path {path_name}{trace}");
    }

    /// Says in the log how it was, if it ever started.
    pub(super) fn log_end(&self, id: impl std::fmt::Display, why: &str, path_name: &str) {
        if self.started_ns.get() == 0 {
            return debug!("session {id} of {} ends unplayed: {why}", self.peer_ip());
        }
        let played = Duration::from_nanos(monotonic_ns().saturating_sub(self.started_ns.get()));
        let arrival = match self.reception.get() {
            None => "no reports from it".to_owned(),
            Some(reception) => describe(reception, self.delivery.clock_hz()),
        };
        let sent = self.delivery.describe_sent();
        let path_name = self.delivery.path_name(path_name);
        info!(
            "session {id} ends ({why}): {} {}, {:.1} s, {sent}, {arrival}, path {path_name}{}",
            self.peer_ip(),
            self.delivery.name(),
            played.as_secs_f64(),
            self.trace_told(),
        );
    }

    fn trace_told(&self) -> String {
        let trace = self.trace();
        trace.map_or_else(String::new, |trace| format!(", trace {trace}"))
    }

    fn ssrc(&self) -> u32 {
        self.delivery.ssrc(self.ssrc)
    }

    /// What our reports call us.
    fn cname(&self) -> String {
        format!("onrush@{}", self.reports.local_ip())
    }

    /// What is told of it at a moment of CLOCK_MONOTONIC, if something has come.
    pub(super) fn sending<'a>(
        &self,
        clock: ReportClock,
        at_ns: u64,
        cname: &'a str,
    ) -> Option<Sending<'a>> {
        let Sent {
            timestamp,
            since_zero_ns,
            packets,
            payload_bytes,
        } = self.delivery.sent(at_ns)?;
        Some(Sending {
            ssrc: self.ssrc(),
            cname,
            ntp: clock.ntp(at_ns, since_zero_ns),
            timestamp,
            packets,
            payload_bytes,
        })
    }

    fn waiting<'a>(&self, cname: &'a str) -> Waiting<'a> {
        let ssrc = self.ssrc();
        Waiting { ssrc, cname }
    }

    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        let sealed = self.srtp.as_ref().and_then(|srtp| srtp.protect(datagram));
        let datagram = match (&sealed, &self.srtp) {
            (Some(sealed), _) => sealed,
            (None, None) => datagram,
            (None, Some(_)) => return Ok(()),
        };
        match self.reports.send(datagram) {
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

/// How long to wait before the next report of these tracks. Where nothing has come of any its first
/// sender report is to be soon behind the first packet: players tie tracks together by it.
pub(super) fn report_interval(tracks: &[Rc<TrackSession>]) -> Duration {
    let is_waiting = |track: &Rc<TrackSession>| track.live().is_some_and(LivePlayer::is_waiting);
    match tracks.iter().all(is_waiting) {
        true => WAITING_INTERVAL,
        false => rtcp::report_interval(u32::from_ne_bytes(random())),
    }
}

/// The interval of reports while nothing has come.
const WAITING_INTERVAL: Duration = Duration::from_secs(1);

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
