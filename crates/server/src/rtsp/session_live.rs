//! Sessions of what comes as it comes: of channels, and of what is sent to a multicast group.

use std::rc::Rc;

use onrush_wire::media::Scale;
use onrush_wire::pace::Speed;
use onrush_wire::rtsp::{LiveStart, Range, Reply, State, StatusCode};
use tokio::sync::oneshot;

use super::group::Group;
use super::presentation::Presentation;
use super::session::{End, Session, Start};
use super::track_session::TrackSession;
use crate::channels::ViewerCommand;

impl Session {
    /// Finds where tracks begin that come now; nothing if they play already.
    pub(super) async fn prepare_live(
        &self,
        tracks: Vec<Rc<TrackSession>>,
        is_playing: bool,
        range: Option<Range>,
    ) -> Result<Option<Start>, Reply> {
        let channel = match self.presentation() {
            Presentation::Multicast(on) => {
                may_be_joined_at(range)?;
                return self.prepare_group(&on.group, tracks, is_playing).await;
            }
            presentation => presentation.live().filter(|_| !is_playing),
        };
        let Some(channel) = channel else {
            return Ok(None);
        };
        let wanted = |track: &Rc<TrackSession>| {
            let start = LiveStart::of_url(&track.track_url);
            track.live().map(|live| live.wanted(start))
        };
        let wanted = tracks.iter().filter_map(wanted).collect();
        let (answer, starts) = oneshot::channel();
        channel.command(ViewerCommand::Prepare(self.id().number(), wanted, answer));
        let ended = |_| Reply::refusal(StatusCode::Gone, "the channel has ended");
        let starts = starts.await.map_err(ended)?;
        Ok(Some(Start::Live(tracks.into_iter().zip(starts).collect())))
    }

    /// Makes what sends to the group ready to play, if it does not play.
    async fn prepare_group(
        &self,
        group: &Group,
        tracks: Vec<Rc<TrackSession>>,
        is_playing: bool,
    ) -> Result<Option<Start>, Reply> {
        let leader = self.control().leader(group);
        let leader = leader.ok_or_else(|| Reply::refusal(StatusCode::Gone, GROUP_HAS_ENDED))?;
        let start = {
            let _turn = leader.turn.lock().await;
            match leader.state() {
                State::Playing if is_playing => return Ok(None),
                State::Playing => None,
                _ => {
                    let pace = (Scale::NORMAL, Speed::NORMAL);
                    let preparing = leader.prepare(Some(Range::default()), pace);
                    // Of what may be prepared this may be a part, which needs a place of its own.
                    Box::pin(preparing).await?
                }
            }
        };
        let position = |track: &Rc<TrackSession>| {
            let Start::Stored { tracks: starts, .. } = start.as_ref()? else {
                return None;
            };
            let its = starts.iter().find(|it| it.track.number() == track.number());
            its.map(|start| start.position)
        };
        let starts: Vec<_> = tracks.iter().map(position).collect();
        Ok(Some(Start::Group {
            tracks: tracks.into_iter().zip(starts).collect(),
            start: start.map(|start| (leader, Box::new(start))),
        }))
    }

    /// Follows what its group has come to, if it has one.
    pub(super) fn look_at_group(self: &Rc<Self>) {
        let Presentation::Multicast(on) = self.presentation() else {
            return;
        };
        match self
            .control()
            .leader(&on.group)
            .map(|leader| leader.state())
        {
            None => drop(self.end(End::Channel(GROUP_HAS_ENDED.to_owned()))),
            Some(State::Ended) if self.state() == State::Playing => self.has_ended(),
            Some(_) => {}
        }
    }
}

/// Why a session of a group is over.
const GROUP_HAS_ENDED: &str = "nothing is sent to its group any more";

/// Whether what is sent to a group may be joined with such a range: all who watch are at one place,
/// so nobody goes to another.
fn may_be_joined_at(range: Option<Range>) -> Result<(), Reply> {
    // Players name the film's end beside its beginning; what comes until then is theirs to see.
    let start_ns = range.and_then(|range| range.start_ns).unwrap_or(0);
    if start_ns > 0 {
        let note = "all who watch a multicast group are at one place; send npt=now-";
        return Err(Reply::refusal(StatusCode::InvalidRange, note));
    }
    Ok(())
}
