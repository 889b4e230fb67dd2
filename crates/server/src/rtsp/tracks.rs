//! The tracks of a session as one: where each begins, by one clock, and what is done to all at
//! once.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::media::{Scale, SeekPoint};
use onrush_wire::pace::Speed;
use onrush_wire::rtp::Position;
use onrush_wire::rtsp::{RangeError, Reply, Span, StatusCode};
use tokio::task::spawn_local;
use tracing::info;

use super::delivery::StoredDelivery;
use super::refusals::refusal;
use super::track_session::TrackSession;
use crate::engine::{EngineError, PlayMoment, Stream};
use crate::library::Media;
use crate::store::Source;

/// What is played of a track.
#[derive(Clone, Debug)]
pub(super) struct TrackStart {
    pub(super) track: Rc<TrackSession>,
    /// The number of the first packet, and the timestamp of where all tracks begin.
    pub(super) position: Position,
    source: Arc<Source>,
    from: u64,
    stop_before: Option<u64>,
}

impl TrackStart {
    /// What sends it, and the number of the first packet.
    fn stream(&self) -> Option<(&Stream, u64)> {
        let delivery = self.track.stored()?;
        Some((&delivery.stream, self.from))
    }
}

/// By which clock tracks are played.
#[derive(Clone, Copy, Debug)]
pub(super) enum Line {
    /// By one that begins with what is due then in their plans.
    From(u64, Speed),
    /// By the one that they were played by until now, at another speed from now on.
    Turned(Speed),
}

impl Line {
    /// One by which `tracks` are delivered at that speed, or as they were recorded if there is no
    /// room for it for all of them: from what is due at `due_ns` on, or as until now.
    pub(super) fn with_room(tracks: &[TrackStart], due_ns: Option<u64>, speed: Speed) -> Self {
        let speed = make_room(tracks, speed);
        match due_ns {
            Some(due_ns) => Self::From(due_ns, speed),
            None => Self::Turned(speed),
        }
    }

    /// How fast they are delivered.
    pub(super) const fn speed(self) -> Speed {
        match self {
            Self::From(_, speed) | Self::Turned(speed) => speed,
        }
    }
}

/// A track, and what is played of it, if anything is.
pub(super) type Played = (Rc<TrackSession>, Option<Arc<Source>>);

/// What is played of tracks at `scale`. Where that is nothing, it is at the scale that all media
/// have (RFC 2326, section 12.34: a server may choose).
pub(super) fn played(tracks: &[Rc<TrackSession>], scale: Scale) -> (Scale, Vec<Played>) {
    let at = |scale| -> Vec<_> {
        let of = |track: &Rc<TrackSession>| {
            let source = track.stored().and_then(|it| it.source_at(scale));
            (Rc::clone(track), source)
        };
        tracks.iter().map(of).collect()
    };
    let played = at(scale);
    match played.iter().any(|(_, source)| source.is_some()) {
        true => (scale, played),
        false => (Scale::NORMAL, at(Scale::NORMAL)),
    }
}

/// What is played of each track from a point on, or from where it goes on, to the end of `span`:
/// that with its beginning as it is, when that is due in the tracks' plans, and the tracks. Their
/// first chunks are held until then.
pub(super) async fn starts(
    media: &Media,
    tracks: Vec<Played>,
    point: Option<SeekPoint>,
    mut span: Span,
) -> Result<(Span, u64, Vec<TrackStart>), Reply> {
    if let Some(stop_ns) = span.stop_ns.filter(|_| media.is_partial()) {
        match stop_ns < media.duration_ns() {
            true => known_to(media, stop_ns).await?,
            false => span.stop_ns = None,
        }
    }
    let (stop_ns, grows) = (span.stop_ns, media.goes_on());
    let (mut starts, mut first_ns) = (Vec::new(), None);
    for (track, source) in tracks {
        let Some(source) = source else {
            continue;
        };
        let plan = source.plan();
        let timeline = plan.timeline();
        let from = match point {
            Some(point) if timeline.scale().is_normal() => plan.rtp_packet_from(point),
            Some(point) => plan.rtp_packet_at(timeline.due_ns(point.time_ns)),
            None => track.resume_at.get(),
        };
        let stop_before = stop_ns.map(|stop_ns| plan.rtp_packet_at(timeline.due_ns(stop_ns)));
        let end = if grows { u64::MAX } else { plan.rtp_packets() };
        if from < stop_before.unwrap_or(end) {
            let due_ns = plan.due_ns(from);
            first_ns = Some(first_ns.map_or(due_ns, |first_ns: u64| first_ns.min(due_ns)));
        }
        starts.push(TrackStart {
            track,
            position: Position::default(),
            source,
            from,
            stop_before,
        });
    }
    // What some of the tracks have is enough.
    let first_ns = first_ns.ok_or(RangeError::Stop)?;
    for start in &mut starts {
        if let Some(StoredDelivery { stream, .. }) = start.track.stored() {
            let changed = start.track.take_source(&start.source, start.from);
            changed.map_err(|error| refusal(&error))?;
            // One time for all tracks, by each one's clock: so a player knows how they belong
            // together before a report tells it, whichever packet each begins with.
            start.position = stream.position_from(start.from, first_ns);
            let prepared = stream.prepare(start.from).await;
            prepared.map_err(|error| refusal(&error))?;
        }
    }
    if let Some(start) = starts.first() {
        span.start_ns = start.source.plan().timeline().media_ns(first_ns);
    }
    Ok((span, first_ns, starts))
}

/// How long a client waits at most until a place that it wants is known, in a file that is being
/// read for the first time.
const KNOWN_TIME_MAX: Duration = Duration::from_secs(10);

/// Waits until a place of a file is known.
pub(super) async fn known_to(media: &Media, time_ns: u64) -> Result<(), Reply> {
    match media.known_to(time_ns, KNOWN_TIME_MAX).await {
        true => Ok(()),
        false => {
            let note = "the file is being read for the first time, and not so far yet; try again";
            Err(Reply::refusal(StatusCode::ServiceUnavailable, note))
        }
    }
}

/// Makes room for delivering tracks at that speed, or as they were recorded if there is none for
/// all of them. Which it is.
fn make_room(tracks: &[TrackStart], speed: Speed) -> Speed {
    let room_for = |speed| {
        let mut streams = tracks.iter().filter_map(TrackStart::stream);
        streams.try_for_each(|(stream, from)| stream.make_room_for(from, speed))
    };
    match room_for(speed) {
        Ok(()) => speed,
        Err(error) => {
            info!("a session is not played at speed {speed}: {error}");
            // Nobody is refused that; an engine that cannot be asked says so when it is to play.
            room_for(Speed::NORMAL).unwrap_or_default();
            Speed::NORMAL
        }
    }
}

/// Plays tracks by one clock. When its zero is, by CLOCK_MONOTONIC.
pub(super) fn play_all(line: Line, tracks: &[TrackStart]) -> Result<i64, EngineError> {
    let streams = || tracks.iter().filter_map(TrackStart::stream);
    let moments = streams().map(|(stream, _)| match line {
        Line::From(due_ns, speed) => stream.moment(due_ns, Duration::ZERO, speed),
        Line::Turned(speed) => stream.moment_turned(speed),
    });
    let moments: Result<Vec<_>, _> = moments.collect();
    // The latest: a clock that they share may have been moved, and not all have followed yet.
    let Some(moment) = moments?.into_iter().max_by_key(PlayMoment::zero_ns) else {
        return Ok(0);
    };
    for start in tracks {
        if let Some((stream, from)) = start.stream() {
            stream.play_at(from, start.stop_before, moment)?;
            start.track.set_pause_before(None);
        }
    }
    Ok(moment.zero_ns())
}

/// Does something to all tracks at once, and waits until it is done.
pub(super) async fn each<T: 'static>(
    tracks: &[Rc<TrackSession>],
    act: impl AsyncFn(Rc<TrackSession>) -> T + Copy + 'static,
) -> Vec<T> {
    if let [track] = tracks {
        return vec![act(Rc::clone(track)).await];
    }
    let begin = |track: &Rc<TrackSession>| {
        let track = Rc::clone(track);
        spawn_local(async move { act(track).await })
    };
    let acting: Vec<_> = tracks.iter().map(begin).collect();
    let mut done = Vec::with_capacity(acting.len());
    for act in acting {
        match act.await {
            Ok(result) => done.push(result),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    done
}
