//! PLAY of a file: what it would do, found out before it is answered; and who is refused has all as
//! it was.

use std::rc::Rc;
use std::sync::Arc;

use onrush_wire::media::{Index, Scale};
use onrush_wire::pace::Speed;
use onrush_wire::rtsp::{Range, Reply, Span, State, StatusCode};

use super::session::{End, Session, Start};
use super::tracks::{Line, Played, known_to, played, starts};
use crate::library::{Media, REFRESH_BYTES_MAX, refreshed};

/// What a PLAY asks of a file, as that is now.
struct Asked<'a> {
    media: &'a Media,
    index: Arc<Index>,
    grows: bool,
    duration_ns: u64,
    range: Range,
    scale: Scale,
    speed: Speed,
    played: Vec<Played>,
    /// It plays on by the clock that it has, only faster or slower.
    is_turned: bool,
}

impl Asked<'_> {
    /// What is played of it from where its session is.
    fn span_from(&self, position_ns: u64) -> Result<Span, Reply> {
        let Self { range, scale, .. } = *self;
        match self.grows && range.start_ns.or(range.stop_ns).is_none() {
            // There is always somewhere to go on from: at its end it waits for more.
            true => Ok(Span {
                start_ns: position_ns,
                stop_ns: None,
                scale,
            }),
            false => Ok(range.resolve(position_ns, self.duration_ns, scale)?),
        }
    }
}

impl Session {
    /// Finds what a PLAY would do, and makes ready for it: stops what plays already, so that no
    /// packet of the old place follows the answer. `None` if it plays already what is asked for.
    /// Where it is refused what played plays on.
    pub(super) async fn prepare(
        self: &Rc<Self>,
        range: Option<Range>,
        (scale, speed): (Scale, Speed),
    ) -> Result<Option<Start>, Reply> {
        let tracks = self.tracks();
        let is_playing = self.state() == State::Playing;
        let Some(media) = self.media() else {
            // Whatever part is asked for: there is only what comes now.
            return self.prepare_live(tracks, is_playing, range).await;
        };
        if media.grows() {
            // So that what is known is what is there.
            refreshed(Arc::clone(media), Some(REFRESH_BYTES_MAX)).await;
        }
        if let Some(start_ns) = range.and_then(|range| range.start_ns) {
            known_to(media, start_ns).await?;
        }
        let (index, grows) = (media.index(), media.grows());
        let duration_ns = media.duration_ns();
        // A PLAY takes a pause point back: it is played on from here to the end.
        let has_pause_point = tracks.iter().any(|track| track.pause_before().is_some());
        let (scale, played) = played(&tracks, scale);
        let (before, speed_before) = (self.span(), self.speed());
        let goes_on = is_playing && !has_pause_point && scale == before.scale;
        let is_turned = goes_on && scale.is_normal() && range.is_none();
        let goes_on = goes_on && speed == speed_before;
        let Some(range) = range.or_else(|| (!goes_on).then(Range::default)) else {
            return Ok(None);
        };
        let asked = Asked {
            media,
            index,
            grows,
            duration_ns,
            range,
            scale,
            speed,
            played,
            is_turned,
        };
        if !is_playing {
            return self.start_of(asked).await.map(Some);
        }
        // A range that cannot be played must not stop what plays.
        asked.span_from(self.position_ns())?;
        self.pause().await?;
        let start = self.start_of(asked).await;
        if start.is_err() {
            self.play_on(before, speed_before).await;
        }
        start.map(Some)
    }

    /// Makes ready for what is asked for, while nothing plays.
    async fn start_of(&self, asked: Asked<'_>) -> Result<Start, Reply> {
        let Asked { range, scale, .. } = asked;
        let tracks = self.tracks();
        let has_ended = self.state() == State::Ended;
        if has_ended {
            tracks.iter().for_each(|track| track.resume_at.set(0));
        }
        let is_live_edge = range.is_now && asked.grows;
        let resume_ns = || tracks.iter().filter_map(|track| track.resume_ns()).min();
        let span = asked.span_from(match is_live_edge {
            true => asked.index.seek(asked.duration_ns).time_ns,
            // From the end on there is only a way back.
            false if has_ended && scale.is_reverse() => asked.duration_ns,
            false => resume_ns().unwrap_or(asked.duration_ns),
        })?;
        // One place for all tracks.
        let point = match range.start_ns {
            Some(start_ns) => Some(asked.index.seek(start_ns)),
            None if is_live_edge => Some(asked.index.seek(asked.duration_ns)),
            // Sync samples alone have no other place to go on from.
            None => (!scale.is_normal()).then(|| asked.index.seek(span.start_ns)),
        };
        self.forget_report_clock();
        let (span, due_ns, tracks) = starts(asked.media, asked.played, point, span).await?;
        let due_ns = (!asked.is_turned).then_some(due_ns);
        let line = Line::with_room(&tracks, due_ns, asked.speed);
        Ok(Start::Stored { span, line, tracks })
    }

    /// Plays on from where it was stopped for what is refused: a request that is not carried out
    /// changes no state (RFC 2326, appendix A). A pause point is forgotten.
    async fn play_on(self: &Rc<Self>, before: Span, speed: Speed) {
        // It may have come to its end meanwhile, which nobody has said then, or to a reason to end.
        match self.state() {
            State::Ready => {}
            State::Ended => return self.say_end(),
            State::Init | State::Playing => return,
        }
        let rest = Range {
            stop_ns: before.stop_ns,
            ..Range::default()
        };
        // What stops what plays is not come to again: now nothing does.
        match Box::pin(self.prepare(Some(rest), (before.scale, speed))).await {
            Ok(start) => start.into_iter().for_each(|start| self.start(start)),
            // It was stopped where it would have ended.
            Err(reply) if reply.status() == u16::from(StatusCode::InvalidRange) => {
                self.say_end();
                self.has_ended();
            }
            Err(reply) => {
                // Its client takes it for playing.
                let why = format!("it cannot play on: {}", reply.reason());
                self.end(End::Send(why));
            }
        }
    }
}
