//! One session: what it plays and in which state it is.
//!
//! It has no task of its own. Requests, reports, the engine's bell and the clock call it on control's thread, and each
//! call is over at once; only its end takes a while, and has a task then.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::rtcp::{self, Heard};
use onrush_wire::rtp::Position;
use onrush_wire::rtsp::{Range, RangeError, Reply, SessionId, Span, State, StatusCode, npt};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::Instant;

use super::flow::{Delivery, TrackSession, is_unreachable, refusal};
use super::presentation::Presentation;
use super::{Control, random};
use crate::engine::EndReason;
use crate::library::{Media, REFRESH_BYTES_MAX, refreshed};

/// One client's use of one file or live stream.
#[derive(Debug)]
pub(super) struct Session {
    id: SessionId,
    control: Rc<Control>,
    presentation: Presentation,
    /// Held while a request is carried out and answered, so that the requests of two connections do not
    /// mix.
    pub(super) turn: Mutex<()>,
    flow: RefCell<Rc<TrackSession>>,
    /// `Init` once there is a reason to end.
    state: Cell<State>,
    connections: Cell<u32>,
    /// The packet that PLAY without a range starts from.
    resume_at: Cell<u64>,
    /// The packet that what plays is to stop before, and become ready there, if PAUSE has named a point.
    pause_before: Cell<Option<u64>>,
    /// What is played, or was last.
    span: Cell<Span>,
    seen: Cell<Instant>,
    /// When the next report is due, if one is.
    report_at: Cell<Option<Instant>>,
}

/// Why a session ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The client asked for it.
    Teardown,
    /// The client has not been heard for too long.
    Timeout,
    /// The client has closed its connection, and its ports or the stream.
    Gone,
    /// The file was truncated, replaced or could not be read.
    Media(String),
    /// The kernel does not send to this client.
    Send(String),
    /// The server stops.
    Stopped,
    /// It has met a bug of the server.
    Bug,
}

/// A PLAY that has been found possible.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    /// Of a file.
    Stored {
        /// What is played: from the first packet's time.
        span: Span,
        /// The numbers of the first packet.
        position: Position,
        from: u64,
        stop_before: Option<u64>,
    },
    /// Whatever comes next.
    Live,
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        control: &Rc<Control>,
        presentation: Presentation,
        flow: TrackSession,
    ) -> Rc<Self> {
        flow.belongs_to(id.number());
        Rc::new(Self {
            id,
            control: Rc::clone(control),
            presentation,
            turn: Mutex::new(()),
            flow: RefCell::new(Rc::new(flow)),
            state: Cell::new(State::Ready),
            resume_at: Cell::new(0),
            pause_before: Cell::new(None),
            span: Cell::new(Span {
                start_ns: 0,
                stop_ns: None,
            }),
            seen: Cell::new(Instant::now()),
            connections: Cell::new(0),
            report_at: Cell::new(None),
        })
    }

    pub(super) const fn id(&self) -> SessionId {
        self.id
    }

    pub(super) fn peer_ip(&self) -> IpAddr {
        self.flow.borrow().peer_ip()
    }

    pub(super) const fn presentation(&self) -> &Presentation {
        &self.presentation
    }

    /// The file, if it is one.
    pub(super) const fn media(&self) -> Option<&Arc<Media>> {
        match &self.presentation {
            Presentation::Stored(media) => Some(media),
            Presentation::Live(_) => None,
        }
    }

    pub(super) fn flow(&self) -> Rc<TrackSession> {
        Rc::clone(&self.flow.borrow())
    }

    /// `Init` once there is a reason to end.
    pub(super) fn state(&self) -> State {
        self.state.get()
    }

    /// Notes a sign of its client.
    pub(super) fn touch(&self) {
        self.seen.set(Instant::now());
    }

    /// Counts a connection that uses it.
    pub(super) fn join(&self) {
        self.connections.set(self.connections.get() + 1);
    }

    /// Counts it out. When the last one goes, it may be that the client has died: a report finds out, for
    /// nothing is unreachable that was not sent to.
    pub(super) fn leave(&self) {
        self.connections.set(self.connections.get() - 1);
        if self.connections.get() == 0 {
            self.report_at.set(Some(Instant::now()));
        }
    }

    /// Takes another transport; then it is as if newly set up.
    pub(super) fn replace(&self, flow: TrackSession) {
        let path_name = self.control.path_name();
        self.flow()
            .log_end(self.id.short(), "another transport", path_name);
        let flow = Rc::new(flow);
        // The old one goes first: it may have been told of the same addresses.
        *self.flow.borrow_mut() = Rc::clone(&flow);
        flow.belongs_to(self.id.number());
        self.resume_at.set(0);
        self.set_state(State::Ready);
    }

    /// Finds what a PLAY would do, and makes ready for it: stops what plays already, so that no packet of
    /// the old place follows the answer. `None` if it plays already what is asked for.
    pub(super) async fn prepare(
        self: &Rc<Self>,
        range: Option<Range>,
    ) -> Result<Option<Start>, Reply> {
        let flow = self.flow();
        let is_playing = self.state() == State::Playing;
        let (Some(media), Delivery::Stored(delivery)) = (self.media(), &flow.delivery) else {
            // Whatever part is asked for: there is only what comes now.
            return Ok((!is_playing).then_some(Start::Live));
        };
        if media.grows() {
            // So that what is known is what is there.
            refreshed(Arc::clone(media), Some(REFRESH_BYTES_MAX)).await;
        }
        let (index, grows) = (media.index(), media.grows());
        let duration_ns = index.duration_ns();
        // A PLAY takes a pause point back: it is played on from here to the end.
        let goes_on = is_playing && self.pause_before.get().is_none();
        let Some(range) = range.or_else(|| (!goes_on).then(Range::default)) else {
            return Ok(None);
        };
        let span_from = |position_ns| match grows && range.start_ns.or(range.stop_ns).is_none() {
            // There is always somewhere to go on from: at its end it waits for more.
            true => Ok(Span {
                start_ns: position_ns,
                stop_ns: None,
            }),
            false => range.resolve(position_ns, duration_ns).map_err(no_range),
        };
        if is_playing {
            // A range that cannot be played must not stop what plays.
            span_from(flow.position_ns())?;
            self.pause().await?;
        }
        let plan = delivery.plan();
        let resume_at = if self.state() == State::Ended {
            0
        } else {
            self.resume_at.get()
        };
        let is_live_edge = range.is_now && grows;
        let mut span = span_from(match is_live_edge {
            true => index.seek(duration_ns).time_ns,
            false => plan.due_ns(resume_at),
        })?;
        let from = match range.start_ns {
            Some(start_ns) => plan.rtp_packet_from(index.seek(start_ns)),
            None if is_live_edge => plan.rtp_packet_from(index.seek(duration_ns)),
            None => resume_at,
        };
        let stop_before = span.stop_ns.map(|stop_ns| plan.rtp_packet_at(stop_ns));
        let end = if grows { u64::MAX } else { plan.rtp_packets() };
        if from >= stop_before.unwrap_or(end) {
            return Err(no_range(RangeError::Stop));
        }
        delivery
            .stream
            .prepare(from)
            .await
            .map_err(|error| refusal(&error))?;
        span.start_ns = plan.due_ns(from);
        Ok(Some(Start::Stored {
            span,
            position: delivery.stream.position_from(from),
            from,
            stop_before,
        }))
    }

    /// Starts what was prepared. The answer must be on its way: packets follow at once.
    pub(super) fn start(self: &Rc<Self>, start: Start) {
        if self.state() == State::Init {
            return;
        }
        let (flow, path_name) = (self.flow(), self.control.path_name());
        match (start, &flow.delivery) {
            (
                Start::Stored {
                    span,
                    from,
                    stop_before,
                    ..
                },
                Delivery::Stored(delivery),
            ) => {
                let Span { start_ns, stop_ns } = span;
                let stop = stop_ns.map_or_else(String::new, |stop_ns| npt(stop_ns).to_string());
                let range = format!("npt={}-{stop}", npt(start_ns));
                flow.log_start(self.id.short(), &range, path_name);
                if let Err(error) = delivery.stream.play(from, stop_before, Duration::ZERO) {
                    self.end(End::Send(error.to_string()));
                    return;
                }
                self.span.set(span);
                self.pause_before.set(None);
            }
            (_, Delivery::Live(seat)) => {
                flow.log_start(self.id.short(), "npt=now-", path_name);
                seat.take();
            }
            (Start::Live, Delivery::Stored(_)) => unreachable!("a file is played from somewhere"),
        }
        self.set_state(State::Playing);
        flow.goes_on();
        self.report(&flow);
        self.stream_stopped();
    }

    /// Stops sending, and remembers where.
    pub(super) async fn pause(self: &Rc<Self>) -> Result<(), Reply> {
        if self.state() != State::Playing {
            return Ok(());
        }
        let flow = self.flow();
        // First of all: from now on it is nobody's business that the stream stops.
        self.set_state(State::Ready);
        let delivery = match &flow.delivery {
            Delivery::Stored(delivery) => delivery,
            Delivery::Live(seat) => {
                seat.leave();
                return Ok(());
            }
        };
        let next = delivery.stream.pause().await.map_err(|error| {
            self.set_state(State::Playing);
            self.stream_stopped();
            refusal(&error)
        })?;
        self.resume_at.set(next);
        self.pause_before.set(None);
        if next >= delivery.plan().rtp_packets() && !self.media().is_some_and(|media| media.grows())
        {
            self.set_state(State::Ended);
        }
        Ok(())
    }

    /// Stops sending when media time comes to `at_ns`, which must be still to come in what plays.
    pub(super) fn pause_at(self: &Rc<Self>, at_ns: u64) -> Result<(), Reply> {
        let flow = self.flow();
        let (State::Playing, Some(media), Delivery::Stored(delivery)) =
            (self.state(), self.media(), &flow.delivery)
        else {
            return Err(no_range(RangeError::Point));
        };
        let duration_ns = media.index().duration_ns();
        let end_ns = self.span.get().stop_ns.unwrap_or(duration_ns);
        if !(flow.position_ns()..end_ns).contains(&at_ns) {
            return Err(no_range(RangeError::Point));
        }
        let before = delivery.plan().rtp_packet_at(at_ns);
        delivery
            .stream
            .stop_before(before)
            .map_err(|error| refusal(&error))?;
        self.pause_before.set(Some(before));
        Ok(())
    }

    /// What is being played, from where it is now.
    pub(super) fn rest(&self) -> Span {
        Span {
            start_ns: self.flow().position_ns(),
            ..self.span.get()
        }
    }

    /// Ends it, for the first reason that is given. What that first caller gets is done when nothing is left of it.
    pub(super) fn end(self: &Rc<Self>, end: End) -> Option<JoinHandle<()>> {
        (self.state.replace(State::Init) != State::Init)
            .then(|| spawn_local(Rc::clone(self).wind_up(end)))
    }

    /// Stops what plays, says goodbye, and leaves.
    async fn wind_up(self: Rc<Self>, end: End) {
        let flow = self.flow();
        // So that the farewell counts every packet.
        flow.halt().await;
        flow.say_goodbye(end.farewell());
        let path_name = self.control.path_name();
        flow.log_end(self.id.short(), &end.to_string(), path_name);
        self.control.remove(self.id);
    }

    /// Does what is due by now.
    pub(super) fn look(self: &Rc<Self>, now: Instant) {
        if self.state.get() == State::Init {
            return;
        }
        if self.report_at.get().is_some_and(|at| at <= now) {
            self.report(&self.flow());
        }
        let timeout = self.control.config.limits.session_timeout;
        if now.saturating_duration_since(self.seen.get()) >= timeout {
            self.end(End::Timeout);
        }
    }

    /// Sends a report, and plans the next.
    fn report(self: &Rc<Self>, flow: &TrackSession) {
        let random = u32::from_ne_bytes(random());
        let next = Instant::now() + rtcp::report_interval(random);
        self.report_at
            .set((self.state.get() == State::Playing).then_some(next));
        if let Err(error) = flow.report() {
            self.missing(error.kind());
        }
    }

    /// Acts on what the client's RTCP port said, or the network instead. A goodbye alone ends nothing: players send it
    /// beside TEARDOWN, or before they play again.
    pub(super) fn heard(self: &Rc<Self>, said: Result<&[u8], ErrorKind>) {
        let Heard { alive, bye, .. } = match said {
            Ok(datagram) => self.flow().hear(datagram),
            Err(error) => return self.missing(error),
        };
        if alive {
            self.touch();
        }
        if bye && self.connections.get() == 0 {
            self.end(End::Gone);
        }
    }

    /// Acts on an error of the RTCP socket. With a connection open the client is there, and its ports may
    /// be so soon; without one, ports that nobody listens to mean that it has died.
    fn missing(self: &Rc<Self>, error: ErrorKind) {
        if is_unreachable(error) && self.connections.get() == 0 {
            self.end(End::Gone);
        }
    }

    /// Acts on the end of its stream, if it has come to one while it plays.
    pub(super) fn stream_stopped(self: &Rc<Self>) {
        if self.state.get() != State::Playing {
            return;
        }
        let flow = self.flow();
        let end = match flow.end_reason() {
            None => return,
            Some(EndReason::EndOfMedia) => return self.media_ended(&flow),
            Some(EndReason::Media(reason)) => End::Media(reason),
            Some(EndReason::Send(reason)) => End::Send(reason),
            Some(EndReason::Stopped) => End::Stopped,
        };
        self.end(end);
    }

    /// All was sent that was asked for: to the end, or to a pause point. From that it goes on then, and what was sent
    /// beyond it already is sent again (RFC 2326, section 10.6).
    fn media_ended(&self, flow: &TrackSession) {
        if let (Some(before), Delivery::Stored(delivery)) =
            (self.pause_before.take(), &flow.delivery)
        {
            let next = delivery.stream.snapshot().next_packet.min(before);
            let grows = self.media().is_some_and(|media| media.grows());
            if next < delivery.plan().rtp_packets() || grows {
                self.resume_at.set(next);
                return self.set_state(State::Ready);
            }
        }
        flow.say_goodbye("end of media");
        self.set_state(State::Ended);
    }

    fn set_state(&self, state: State) {
        // What has a reason to end stays at its end.
        if self.state.get() == State::Init {
            return;
        }
        self.state.set(state);
        if state != State::Playing {
            self.report_at.set(None);
        }
    }
}

fn no_range(error: RangeError) -> Reply {
    Reply::refusal(StatusCode::InvalidRange, &error.to_string())
}

impl End {
    /// What the client is told in BYE.
    const fn farewell(&self) -> &str {
        match self {
            Self::Teardown => "teardown",
            Self::Timeout | Self::Gone => "session timeout",
            Self::Media(_) => "the file changed",
            Self::Send(_) => "sending failed",
            Self::Stopped => "the server stops",
            Self::Bug => "server error",
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Teardown => f.write_str("teardown"),
            Self::Timeout => f.write_str("its client was not heard of in the session's time-out"),
            Self::Gone => f.write_str("its client is gone"),
            Self::Media(reason) | Self::Send(reason) => f.write_str(reason),
            Self::Stopped => f.write_str("the server stops"),
            Self::Bug => f.write_str("a bug of the server"),
        }
    }
}
