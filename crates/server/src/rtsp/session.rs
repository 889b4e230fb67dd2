//! One session: what it plays, in which state it is, and the task that looks after it.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::rtcp::{self, Heard};
use onrush_wire::rtsp::{Range, RangeError, Reply, SessionId, Span, State, StatusCode, npt};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep_until};

use super::flow::{Flow, Road, is_unreachable, refusal};
use super::presentation::Presentation;
use super::{Control, random};
use crate::engine::EndReason;
use crate::library::Media;

/// One client's use of one file or live stream.
#[derive(Debug)]
pub(super) struct Session {
    id: SessionId,
    peer_ip: IpAddr,
    path: String,
    presentation: Presentation,
    /// Held while a request is carried out and answered, so that the requests of two connections do not
    /// mix.
    pub(super) turn: Mutex<()>,
    flow: RefCell<Rc<Flow>>,
    /// The track's URL as the client spelt it, for RTP-Info.
    track_url: RefCell<String>,
    state: Cell<State>,
    /// The packet that PLAY without a range starts from.
    resume_at: Cell<u64>,
    /// What is played, or was last.
    span: Cell<Span>,
    seen: Cell<Instant>,
    connections: Cell<usize>,
    /// When the next report is due, if one is.
    report_at: Cell<Option<Instant>>,
    end: RefCell<Option<End>>,
    /// Something of the above has changed that the task acts on.
    changed: Notify,
    is_over: Cell<bool>,
    over: Notify,
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
}

/// A PLAY that has been found possible.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    /// Of a file.
    Stored {
        /// What is played: from the first packet's time.
        span: Span,
        sequence: u16,
        timestamp: u32,
        from: u64,
        stop_before: Option<u64>,
    },
    /// Whatever comes next.
    Live,
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        peer_ip: IpAddr,
        path: String,
        presentation: Presentation,
        flow: Flow,
        track_url: &str,
    ) -> Rc<Self> {
        Rc::new(Self {
            id,
            peer_ip,
            path,
            presentation,
            turn: Mutex::new(()),
            flow: RefCell::new(Rc::new(flow)),
            track_url: RefCell::new(track_url.to_owned()),
            state: Cell::new(State::Ready),
            resume_at: Cell::new(0),
            span: Cell::new(Span {
                start_ns: 0,
                stop_ns: None,
            }),
            seen: Cell::new(Instant::now()),
            connections: Cell::new(0),
            report_at: Cell::new(None),
            end: RefCell::new(None),
            changed: Notify::new(),
            is_over: Cell::new(false),
            over: Notify::new(),
        })
    }

    pub(super) const fn id(&self) -> SessionId {
        self.id
    }

    pub(super) const fn peer_ip(&self) -> IpAddr {
        self.peer_ip
    }

    pub(super) fn path(&self) -> &str {
        &self.path
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

    pub(super) fn flow(&self) -> Rc<Flow> {
        Rc::clone(&self.flow.borrow())
    }

    pub(super) fn track_url(&self) -> String {
        self.track_url.borrow().clone()
    }

    /// `Init` once there is a reason to end.
    pub(super) fn state(&self) -> State {
        if self.end.borrow().is_some() {
            State::Init
        } else {
            self.state.get()
        }
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
            self.changed.notify_one();
        }
    }

    /// Takes another transport; then it is as if newly set up.
    pub(super) fn replace(&self, flow: Flow, track_url: &str, path_name: &str) {
        self.flow()
            .log_end(self.id.short(), "another transport", path_name);
        *self.flow.borrow_mut() = Rc::new(flow);
        track_url.clone_into(&mut self.track_url.borrow_mut());
        self.resume_at.set(0);
        self.set_state(State::Ready);
    }

    /// Finds what a PLAY would do, and makes ready for it: stops what plays already, so that no packet of
    /// the old place follows the answer. `None` if it plays already what is asked for.
    pub(super) async fn prepare(&self, range: Option<Range>) -> Result<Option<Start>, Reply> {
        let flow = self.flow();
        let is_playing = self.state() == State::Playing;
        let (Some(media), Road::Stored(road)) = (self.media(), &flow.road) else {
            // Whatever part is asked for: there is only what comes now.
            return Ok((!is_playing).then_some(Start::Live));
        };
        let duration_ns = media.index().duration_ns();
        let Some(range) = range.or_else(|| (!is_playing).then(Range::default)) else {
            return Ok(None);
        };
        if is_playing {
            // A range that can not be played must not stop what plays.
            range
                .resolve(flow.position_ns(), duration_ns)
                .map_err(no_range)?;
            self.pause().await?;
        }
        let plan = road.plan();
        let resume_at = if self.state() == State::Ended {
            0
        } else {
            self.resume_at.get()
        };
        let mut span = range
            .resolve(plan.due_ns(resume_at), duration_ns)
            .map_err(no_range)?;
        let from = match range.start_ns {
            None => resume_at,
            Some(start_ns) => plan.rtp_packet_of(media.index().seek(start_ns).ts_packet),
        };
        let stop_before = span.stop_ns.map(|stop_ns| plan.rtp_packet_at(stop_ns));
        if from >= stop_before.unwrap_or_else(|| plan.rtp_packets()) {
            return Err(no_range(RangeError::Stop));
        }
        road.stream
            .prepare(from)
            .await
            .map_err(|error| refusal(&error))?;
        span.start_ns = plan.due_ns(from);
        Ok(Some(Start::Stored {
            span,
            sequence: media.sequence(from),
            timestamp: media.timestamp(span.start_ns),
            from,
            stop_before,
        }))
    }

    /// Starts what was prepared. The answer must be on its way: packets follow at once.
    pub(super) fn start(&self, start: Start, path_name: &str) {
        if self.state() == State::Init {
            return;
        }
        let flow = self.flow();
        let position_ns = match (start, &flow.road) {
            (
                Start::Stored {
                    span,
                    from,
                    stop_before,
                    ..
                },
                Road::Stored(road),
            ) => {
                let Span { start_ns, stop_ns } = span;
                let stop = stop_ns.map_or_else(String::new, |stop_ns| npt(stop_ns).to_string());
                let range = format!("npt={}-{stop}", npt(start_ns));
                flow.log_start(self.id.short(), &range, path_name);
                if let Err(error) = road.stream.play(from, stop_before, Duration::ZERO) {
                    return self.end(End::Send(error.to_string()));
                }
                if from != self.resume_at.get() {
                    flow.count_seek();
                }
                self.span.set(span);
                start_ns
            }
            (_, Road::Live(seat)) => {
                flow.log_start(self.id.short(), "npt=now-", path_name);
                seat.take();
                0
            }
            (Start::Live, Road::Stored(_)) => unreachable!("a file is played from somewhere"),
        };
        self.set_state(State::Playing);
        // Not asked of the engine, which takes the play up at its next tick.
        self.report(&flow, position_ns);
    }

    /// Stops sending, and remembers where.
    pub(super) async fn pause(&self) -> Result<(), Reply> {
        if self.state() != State::Playing {
            return Ok(());
        }
        let flow = self.flow();
        // First of all: from now on the stream's end is none of the task's business.
        self.set_state(State::Ready);
        let road = match &flow.road {
            Road::Stored(road) => road,
            Road::Live(seat) => {
                seat.leave();
                return Ok(());
            }
        };
        let next = road.stream.pause().await.map_err(|error| {
            self.set_state(State::Playing);
            refusal(&error)
        })?;
        self.resume_at.set(next);
        if next >= road.plan().rtp_packets() {
            self.set_state(State::Ended);
        }
        Ok(())
    }

    /// What is being played, from where it is now.
    pub(super) fn rest(&self) -> Span {
        Span {
            start_ns: self.flow().position_ns(),
            ..self.span.get()
        }
    }

    /// Ends it, for the first reason that is given; [`Self::over`] tells when it is done.
    pub(super) fn end(&self, end: End) {
        self.end.borrow_mut().get_or_insert(end);
        self.changed.notify_one();
    }

    /// Waits until nothing is left of it.
    pub(super) async fn over(&self) {
        while !self.is_over.get() {
            self.over.notified().await;
        }
    }

    pub(super) fn set_over(&self) {
        self.is_over.set(true);
        self.over.notify_waiters();
    }

    /// Looks after the session to its end.
    pub(super) async fn run(&self, control: &Control) {
        let session_timeout = control.config.limits.session_timeout;
        while self.end.borrow().is_none() {
            let flow = self.flow();
            let (seen, report_at) = (self.seen.get(), self.report_at.get());
            let is_playing = self.state.get() == State::Playing;
            let wake_at = seen + session_timeout;
            tokio::select! {
                () = self.changed.notified() => {}
                heard = flow.hear() => match heard {
                    Ok(heard) => self.heard(heard),
                    Err(error) => self.missing(&error),
                },
                reason = flow.ended(), if is_playing => self.ended(&flow, reason),
                () = sleep_until(report_at.map_or(wake_at, |at| at.min(wake_at))) => {
                    if report_at.is_some_and(|at| at <= Instant::now()) {
                        self.report(&flow, flow.position_ns());
                    }
                    if self.seen.get().elapsed() >= session_timeout {
                        self.end(End::Timeout);
                    }
                }
            }
        }
        Box::pin(self.wind_up(control)).await;
    }

    /// Stops what plays, and says goodbye.
    async fn wind_up(&self, control: &Control) {
        let flow = self.flow();
        // So that the farewell counts every packet.
        flow.halt().await;
        let end = self.end.borrow().clone().expect("there is a reason to end");
        flow.say_goodbye(end.farewell());
        flow.log_end(self.id.short(), &end.to_string(), control.path_name());
    }

    /// Sends a report, and plans the next.
    fn report(&self, flow: &Flow, position_ns: u64) {
        let random = u32::from_ne_bytes(random());
        let next = Instant::now() + rtcp::report_interval(random);
        self.report_at
            .set((self.state.get() == State::Playing).then_some(next));
        if let Err(error) = flow.report(position_ns) {
            self.missing(&error);
        }
    }

    /// Acts on what the client's RTCP port said. A goodbye alone ends nothing: players send it beside
    /// TEARDOWN, or before they play again.
    fn heard(&self, heard: Heard) {
        if heard.alive {
            self.touch();
        }
        if heard.bye && self.connections.get() == 0 {
            self.end(End::Gone);
        }
    }

    /// Acts on an error of the RTCP socket. With a connection open the client is there, and its ports may
    /// be so soon; without one, ports that nobody listens to mean that it has died.
    fn missing(&self, error: &io::Error) {
        if is_unreachable(error) && self.connections.get() == 0 {
            self.end(End::Gone);
        }
    }

    fn ended(&self, flow: &Flow, reason: EndReason) {
        if self.state.get() != State::Playing {
            return;
        }
        match reason {
            EndReason::EndOfMedia => {
                flow.say_goodbye("end of media");
                self.set_state(State::Ended);
            }
            EndReason::Media(reason) => self.end(End::Media(reason)),
            EndReason::Send(reason) => self.end(End::Send(reason)),
            EndReason::Stopped => self.end(End::Stopped),
        }
    }

    fn set_state(&self, state: State) {
        self.state.set(state);
        if state != State::Playing {
            self.report_at.set(None);
        }
        self.changed.notify_one();
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
        }
    }
}
