//! One session: what it plays and in which state it is.
//!
//! It has no task of its own. Requests, reports, the engine's bell and the clock call it on
//! control's thread, and each call is over at once; only its end takes a while, and has a task
//! then.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::media::Scale;
use onrush_wire::pace::Speed;
use onrush_wire::rtcp::Heard;
use onrush_wire::rtp::Position;
use onrush_wire::rtsp::{RangeError, Reply, SessionId, Span, State, npt};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::Instant;

use super::Control;
pub(super) use super::end::End;
use super::presentation::Presentation;
use super::refusals::refusal;
use super::report_clock::ReportClock;
use super::track_session::{TrackSession, report_interval};
use super::tracks::{Line, TrackStart, each, play_all};
use super::uses::Uses;
use crate::channels::ViewerCommand;
use crate::engine::EndReason;
use crate::library::Media;

/// How long behind PLAY the first report of encrypted packets is sent, at the least. GStreamer's
/// `srtpdec` takes a source's key in the threads of both sockets, without a lock (1.22): where a
/// report comes when that of the packets begins, both make the source, and the program crashes.
const ENCRYPTED_REPORT_DELAY: Duration = Duration::from_millis(300);

/// One client's use of one file or live stream.
#[derive(Debug)]
pub(super) struct Session {
    id: SessionId,
    control: Rc<Control>,
    presentation: Presentation,
    /// Held while a request is carried out and answered, so that the requests of two connections do
    /// not mix.
    pub(super) turn: Mutex<()>,
    /// Those of its tracks that were set up, one at least, by their numbers.
    tracks: RefCell<Vec<Rc<TrackSession>>>,
    /// `Init` once there is a reason to end.
    state: Cell<State>,
    pub(super) uses: Uses,
    /// What is played, or was last.
    span_ns: Cell<(u64, Option<u64>)>,
    /// How fast, and how fast that is delivered. Beside it, so that a session is no larger.
    scale: Cell<Scale>,
    speed: Cell<Speed>,
    seen: Cell<Instant>,
    /// When the next report is due, if one is.
    report_at: Cell<Option<Instant>>,
    /// By what reports tell the time: of a file by the clock of its last play, once there was one.
    report_clock: Cell<ReportClock>,
}

/// A PLAY that has been found possible.
#[derive(Clone, Debug)]
pub(super) enum Start {
    /// Of a file.
    Stored {
        /// What is played: from the time of the first packet of all tracks.
        span: Span,
        /// By which clock.
        line: Line,
        tracks: Vec<TrackStart>,
    },
    /// Whatever comes next, of a published channel with the numbers of each track's first packet as
    /// far as they are known.
    Live(Vec<(Rc<TrackSession>, Option<Position>)>),
    /// Likewise, of what is sent to a group; the session that sends is started, if it has to be.
    Group {
        tracks: Vec<(Rc<TrackSession>, Option<Position>)>,
        start: Option<(Rc<Session>, Box<Self>)>,
    },
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        control: &Rc<Control>,
        presentation: Presentation,
        track: TrackSession,
    ) -> Rc<Self> {
        track.belongs_to(id.number());
        let tracks = RefCell::new(vec![Rc::new(track)]);
        let report_clock = match presentation {
            Presentation::Stored(_) => ReportClock::default(),
            _ => ReportClock::of_zero(0),
        };
        Rc::new(Self {
            id,
            control: Rc::clone(control),
            presentation,
            turn: Mutex::new(()),
            tracks,
            state: Cell::new(State::Ready),
            span_ns: Cell::new((0, None)),
            scale: Cell::new(Scale::NORMAL),
            speed: Cell::new(Speed::NORMAL),
            seen: Cell::new(Instant::now()),
            uses: Uses::default(),
            report_at: Cell::new(None),
            report_clock: Cell::new(report_clock),
        })
    }

    pub(super) const fn id(&self) -> SessionId {
        self.id
    }

    pub(super) fn peer_ip(&self) -> IpAddr {
        self.tracks.borrow()[0].peer_ip()
    }

    pub(super) const fn control(&self) -> &Rc<Control> {
        &self.control
    }

    pub(super) const fn presentation(&self) -> &Presentation {
        &self.presentation
    }

    /// The file, if it is one.
    pub(super) const fn media(&self) -> Option<&Arc<Media>> {
        match &self.presentation {
            Presentation::Stored(media) => Some(media),
            Presentation::Live(_) | Presentation::Published(_) | Presentation::Multicast(_) => None,
        }
    }

    /// Those of its tracks that were set up, one at least, by their numbers.
    pub(super) fn tracks(&self) -> Vec<Rc<TrackSession>> {
        self.tracks.borrow().clone()
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
        self.uses.join();
    }

    /// Counts it out. When the last one goes, it may be that the client has died: a report finds
    /// out, for nothing is unreachable that was not sent to.
    pub(super) fn leave(&self) {
        self.uses.leave();
        if self.uses.connections() == 0 {
            self.report_at.set(Some(Instant::now()));
        }
    }

    /// What is played, or was last.
    pub(super) fn span(&self) -> Span {
        let ((start_ns, stop_ns), scale) = (self.span_ns.get(), self.scale.get());
        Span {
            start_ns,
            stop_ns,
            scale,
        }
    }

    /// What media time is due now; of no meaning in a live stream. Tracks that are over have stayed
    /// behind.
    pub(super) fn position_ns(&self) -> u64 {
        let (tracks, span) = (self.tracks.borrow(), self.span());
        let playing = tracks.iter().filter(|track| !track.is_silent());
        let positions = playing.map(|track| track.position_ns());
        match span.scale {
            scale if scale.is_normal() => positions.max().unwrap_or(0),
            // Not before it begins, though its first packet may wait for its turn.
            scale if scale.is_reverse() => positions.min().unwrap_or(0).min(span.start_ns),
            _ => positions.max().unwrap_or(0).max(span.start_ns),
        }
    }

    /// Takes one more track, which then begins where the others go on, or another transport for one
    /// that it has; then it is as if newly set up.
    pub(super) fn add(&self, track: TrackSession) {
        let path_name = self.control.path_name();
        let track = Rc::new(track);
        let (number, id) = (track.number(), self.id.short());
        let at = self
            .tracks
            .borrow()
            .binary_search_by_key(&number, |it| it.number());
        let mut tracks = self.tracks.borrow_mut();
        match at {
            Ok(at) => {
                tracks[at].log_end(id, "another transport", path_name);
                // The old one goes first: it may have been told of the same addresses.
                tracks[at] = Rc::clone(&track);
                tracks.iter().for_each(|track| track.resume_at.set(0));
            }
            Err(at) => {
                track.resume_beside(&tracks);
                tracks.insert(at, Rc::clone(&track));
            }
        }
        track.belongs_to(self.id.number());
        if tracks.len() > 1 {
            let clock = tracks.iter().find_map(|track| track.clock());
            let clock = clock.unwrap_or_default();
            tracks
                .iter()
                .filter_map(|track| track.stored())
                .for_each(|delivery| delivery.stream.share_clock(&clock));
        }
        drop(tracks);
        if self.media().is_some() {
            self.forget_report_clock();
        }
        self.set_state(State::Ready);
    }

    /// Starts what was prepared. The answer must be on its way: packets follow at once.
    pub(super) fn start(self: &Rc<Self>, start: Start) {
        if self.state() == State::Init {
            return;
        }
        let (id, path_name) = (self.id.short(), self.control.path_name());
        match start {
            Start::Stored { span, line, tracks } => {
                let Span {
                    start_ns, stop_ns, ..
                } = span;
                let stop = stop_ns.map_or_else(String::new, |stop_ns| npt(stop_ns).to_string());
                let range = format!("npt={}-{stop}", npt(start_ns));
                for start in &tracks {
                    start.track.log_start(&id, &range, path_name);
                }
                for track in self.tracks() {
                    let plays = tracks.iter().any(|start| Rc::ptr_eq(&start.track, &track));
                    track.set_silent(!plays);
                }
                match play_all(line, &tracks) {
                    Ok(zero_ns) => self.report_clock.set(ReportClock::of_zero(zero_ns)),
                    Err(error) => return drop(self.end(End::Send(error.to_string()))),
                }
                self.span_ns.set((start_ns, stop_ns));
                self.scale.set(span.scale);
                self.speed.set(line.speed());
            }
            Start::Live(_) => {
                for track in self.tracks() {
                    track.log_start(&id, "npt=now-", path_name);
                }
                if let Some(channel) = self.presentation.live() {
                    channel.command(ViewerCommand::Start(self.id.number()));
                }
            }
            Start::Group { tracks, start } => {
                tracks
                    .iter()
                    .for_each(|(track, _)| track.log_start(&id, "npt=now-", path_name));
                // Somebody else may have been faster.
                if let Some((leader, start)) = start.filter(|(it, _)| it.state() != State::Playing)
                {
                    leader.start(*start);
                }
            }
        }
        self.set_state(State::Playing);
        let tracks = self.tracks();
        tracks.iter().for_each(|track| track.goes_on());
        match tracks.iter().any(|track| track.is_encrypted()) {
            true => self
                .report_at
                .set(Some(Instant::now() + ENCRYPTED_REPORT_DELAY)),
            false => self.report(),
        }
        self.stream_stopped();
    }

    /// Stops sending, and remembers where.
    pub(super) async fn pause(self: &Rc<Self>) -> Result<(), Reply> {
        if self.state() != State::Playing {
            return Ok(());
        }
        let (position_ns, is_normal) = (self.position_ns(), self.scale.get().is_normal());
        // First of all: from now on it is nobody's business that the streams stop.
        self.set_state(State::Ready);
        let tracks = self.tracks();
        let paused = each(&tracks, async |track| track.pause().await).await;
        let mut is_over = self.media().is_some_and(|media| !media.goes_on());
        for (track, paused) in tracks.iter().zip(paused) {
            let paused = paused.map_err(|error| {
                self.set_state(State::Playing);
                self.stream_stopped();
                refusal(&error)
            })?;
            let Some((delivery, next)) = track.stored().zip(paused) else {
                continue;
            };
            track.set_pause_before(None);
            if is_normal {
                track.resume_at.set(next);
                is_over &= next >= delivery.plan().rtp_packets();
            }
        }
        if !is_normal {
            self.stay_at(position_ns);
        } else if is_over {
            self.set_state(State::Ended);
        }
        Ok(())
    }

    /// PLAY without a range starts from the last place to start before that, of all tracks.
    fn stay_at(&self, media_ns: u64) {
        let Some(media) = self.media() else {
            return;
        };
        let point = media.index().seek(media_ns);
        for track in self.tracks.borrow().iter() {
            if let Some(delivery) = track.stored() {
                track.resume_at.set(delivery.plan().rtp_packet_from(point));
            }
        }
    }

    /// Stops sending when media time comes to `at_ns`, which must be still to come in what plays.
    pub(super) fn pause_at(self: &Rc<Self>, at_ns: u64) -> Result<(), Reply> {
        let (State::Playing, Some(media)) = (self.state(), self.media()) else {
            return Err(RangeError::Point.into());
        };
        let Span { stop_ns, scale, .. } = self.span();
        let end_ns = || match media.is_partial() {
            true => media.index().known_ns(),
            false => media.duration_ns(),
        };
        let to_come = match scale.is_reverse() {
            true => stop_ns.unwrap_or(0)..self.position_ns(),
            false => self.position_ns()..stop_ns.unwrap_or_else(end_ns),
        };
        if !to_come.contains(&at_ns) {
            return Err(RangeError::Point.into());
        }
        for track in self.tracks() {
            let Some(delivery) = track.stored().filter(|_| !track.is_silent()) else {
                continue;
            };
            let plan = delivery.played();
            let before = plan.rtp_packet_at(plan.timeline().due_ns(at_ns));
            let stopping = delivery.stream.stop_before(before);
            stopping.map_err(|error| refusal(&error))?;
            track.set_pause_before(Some(before));
        }
        Ok(())
    }

    /// How fast what is played is delivered.
    pub(super) fn speed(&self) -> Speed {
        self.speed.get()
    }

    /// Of a file: its tracks may get other clocks than that of the last play, or have none yet.
    pub(super) fn forget_report_clock(&self) {
        self.report_clock.set(ReportClock::default());
    }

    /// By what a track's reports tell the time. One that is silent has the clock of an older play.
    fn report_clock_of(&self, track: &TrackSession) -> ReportClock {
        match track.is_silent() {
            true => ReportClock::default(),
            false => self.report_clock.get(),
        }
    }

    /// What is being played, from where it is now.
    pub(super) fn remaining(&self) -> Span {
        Span {
            start_ns: self.position_ns(),
            ..self.span()
        }
    }

    /// Ends it, for the first reason that is given. What that first caller gets is done when
    /// nothing is left of it.
    pub(super) fn end(self: &Rc<Self>, end: End) -> Option<JoinHandle<()>> {
        (self.state.replace(State::Init) != State::Init)
            .then(|| spawn_local(Rc::clone(self).wind_up(end)))
    }

    /// Stops what plays, says goodbye, and leaves.
    async fn wind_up(self: Rc<Self>, end: End) {
        let tracks = self.tracks();
        // So that the farewell counts every packet.
        each(&tracks, async |track| track.halt().await).await;
        let path_name = self.control.path_name();
        for track in tracks {
            track.say_goodbye(self.report_clock_of(&track), end.farewell());
            track.log_end(self.id.short(), &end.to_string(), path_name);
        }
        self.control.remove(self.id);
    }

    /// Does what is due by now.
    pub(super) fn look(self: &Rc<Self>, now: Instant) {
        if self.state.get() == State::Init {
            return;
        }
        if self.tracks.borrow().iter().any(|track| track.is_cut_off()) {
            self.stream_stopped();
            self.end(End::Gone);
            return;
        }
        let ended = self
            .tracks
            .borrow()
            .iter()
            .find_map(|track| track.live()?.end());
        if let Some(why) = ended {
            self.end(End::Channel(why));
            return;
        }
        self.look_at_group();
        if self.report_at.get().is_some_and(|at| at <= now) {
            self.report();
        }
        let timeout = self.control.config.limits.session_timeout;
        if now.saturating_duration_since(self.seen.get()) >= timeout {
            self.end(End::Timeout);
        }
    }

    /// Sends a report of each track, and plans the next.
    fn report(self: &Rc<Self>) {
        let tracks = self.tracks();
        let next = Instant::now() + report_interval(&tracks);
        self.report_at
            .set((self.state.get() == State::Playing).then_some(next));
        for track in tracks.iter().filter(|track| !track.is_silent()) {
            if let Err(error) = track.report(self.report_clock.get()) {
                self.missing(error.kind());
            }
        }
    }

    /// Acts on what the client's RTCP port said, or the network instead. A goodbye alone ends
    /// nothing: players send it beside TEARDOWN, or before they play again.
    pub(super) fn heard(self: &Rc<Self>, said: Result<&[u8], ErrorKind>) {
        let datagram = match said {
            Ok(datagram) => datagram,
            Err(error) => return self.missing(error),
        };
        // Each keeps what is said about its own packets; the rest is said to all.
        for track in self.tracks() {
            let Heard { alive, bye, .. } = track.hear(self.report_ntp(&track), datagram);
            if alive {
                self.touch();
            }
            if bye && self.uses.connections() == 0 {
                self.end(End::Gone);
            }
        }
    }

    /// What time it is by the reports that a track's client gets: of a group, by those of the
    /// session that sends to it.
    fn report_ntp(&self, track: &TrackSession) -> u64 {
        if let Presentation::Multicast(on) = &self.presentation
            && let Some(leader) = self.control.leader(&on.group)
        {
            let tracks = leader.tracks();
            let sent = tracks.iter().find(|it| it.number() == track.number());
            return sent.map_or(0, |sent| leader.report_ntp(sent));
        }
        track.ntp(self.report_clock_of(track))
    }

    /// Acts on an error of the RTCP socket. With a connection open the client is there, and its
    /// ports may be so soon; without one, ports that nobody listens to mean that it has died. A
    /// network or a host that cannot be reached may come back: until then the session's timeout
    /// counts. A group never has a connection, and does not die.
    fn missing(self: &Rc<Self>, error: ErrorKind) {
        let may_die = self.uses.connections() == 0 && !self.peer_ip().is_multicast();
        if error == ErrorKind::ConnectionRefused && may_die {
            self.end(End::Gone);
        }
    }

    /// Acts on the end of its streams, if all have come to one while it plays, or one has failed.
    pub(super) fn stream_stopped(self: &Rc<Self>) {
        if self.state.get() != State::Playing {
            return;
        }
        let mut is_over = true;
        for track in self.tracks.borrow().iter() {
            if track.is_silent() {
                continue;
            }
            let end = match track.end_reason() {
                None => {
                    is_over = false;
                    continue;
                }
                Some(EndReason::EndOfMedia) => continue,
                Some(EndReason::Media(reason)) => End::Media(reason),
                Some(EndReason::Send(reason)) => End::Send(reason),
                Some(EndReason::Stopped) => End::Stopped,
            };
            self.end(end);
            return;
        }
        if is_over {
            self.media_ended();
        }
    }

    /// All was sent that was asked for: to the end, or to a pause point. From that it goes on then,
    /// and what was sent beyond it already is sent again (RFC 2326, section 10.6).
    fn media_ended(&self) {
        let may_go_on = self.media().is_some_and(|media| media.goes_on());
        let is_normal = self.scale.get().is_normal();
        let (mut goes_on, mut stays_at) = (false, None);
        for track in self.tracks.borrow().iter() {
            if let (Some(before), Some(delivery)) = (track.pause_before(), track.stored()) {
                track.set_pause_before(None);
                if !is_normal {
                    // What was shown last.
                    let (plan, last) = (delivery.played(), before.saturating_sub(1));
                    stays_at = Some(plan.timeline().media_ns(plan.due_ns(last)));
                    continue;
                }
                let next = delivery.stream.snapshot().next_packet.min(before);
                track.resume_at.set(next);
                goes_on |= next < delivery.plan().rtp_packets() || may_go_on;
            }
        }
        if let Some(media_ns) = stays_at {
            self.stay_at(media_ns);
        }
        if goes_on || stays_at.is_some() {
            return self.set_state(State::Ready);
        }
        self.say_end();
        self.has_ended();
    }

    /// There is no more to come of what it plays.
    pub(super) fn has_ended(&self) {
        self.set_state(State::Ended);
    }

    /// Says to the client that this is the end of a file.
    pub(super) fn say_end(&self) {
        for track in self.tracks.borrow().iter().filter(|it| !it.is_silent()) {
            track.say_goodbye(self.report_clock.get(), "end of media");
        }
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
