//! What a URL names: a file, or a live stream under `live/`.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::name::shown;
use onrush_wire::rtsp::{
    AskedRange, ELEMENTARY, Group as GroupAddress, Range, RangeError, Reply, StatusCode, Units,
    headers,
};
use onrush_wire::sdp::{Description, Extent};
use onrush_wire::srtp::MikeyMessage;
use tokio::time::{Instant, sleep};

use super::Control;
use super::group::Group;
use super::sending::Sending;
use crate::channels::published::{PublishedChannel, PublishedChannels, Pulls};
use crate::channels::{Channel, LiveChannel, Playable};
use crate::library::{Library, Media, OpenError};
use crate::users::Authorizer;

/// What can be played, and by whom.
#[derive(Debug)]
pub(crate) struct Content {
    /// Files; a relay has none.
    pub(crate) library: Option<Arc<Library>>,
    /// What sends files, and frames of connections.
    pub(crate) sending: Sending,
    /// Live channels, under `live/`. A file of that name is not played then.
    pub(crate) channels: Vec<Arc<Channel>>,
    /// What publishers give. A file of the same name cannot be taken for one.
    pub(crate) published: Arc<PublishedChannels>,
    /// Those of them that are pulled.
    pub(crate) pulls: Arc<Pulls>,
    /// Who may play.
    pub(crate) authorizer: Arc<Authorizer>,
}

/// Something that can be played.
#[derive(Clone, Debug)]
pub(super) enum Presentation {
    /// A file.
    Stored(Arc<Media>),
    /// A stream that a relay gets.
    Live(Arc<Channel>),
    /// What somebody publishes.
    Published(Arc<PublishedChannel>),
    /// One of these, as it is sent to a multicast group.
    Multicast(Rc<OnGroup>),
}

/// What is sent to a multicast group, and the group.
#[derive(Debug)]
pub(super) struct OnGroup {
    pub(super) presentation: Presentation,
    pub(super) group: Rc<Group>,
}

impl Presentation {
    /// What `path` names.
    pub(super) async fn open(control: &Control, path: &str) -> Result<Self, Reply> {
        let content = &control.content;
        if let Some(name) = path.strip_prefix(LIVE_FOLDER) {
            let mut channels = content.channels.iter();
            if let Some(channel) = channels.find(|channel| channel.name() == name) {
                return Ok(Self::Live(Arc::clone(channel)));
            }
        }
        if let Some(channel) = published(content, path).await? {
            return Ok(Self::Published(channel));
        }
        let Some(library) = &content.library else {
            let note = "streams are at live/NAME";
            return Err(Reply::refusal(StatusCode::NotFound, note));
        };
        match library.open(path).await {
            Ok(media) => Ok(Self::Stored(media)),
            Err(error) => Err(refused(&error)),
        }
    }

    /// The channel, if it is one.
    pub(super) fn live(&self) -> Option<Arc<dyn LiveChannel>> {
        match self {
            Self::Stored(_) | Self::Multicast(_) => None,
            Self::Live(channel) => Some(Arc::clone(channel) as _),
            Self::Published(channel) => Some(Arc::clone(channel) as _),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Stored(media) => media.name(),
            Self::Live(channel) => channel.name(),
            Self::Published(channel) => channel.path(),
            Self::Multicast(on) => on.presentation.name(),
        }
    }

    /// How many tracks it has.
    pub(super) fn tracks(&self) -> usize {
        match self {
            Self::Stored(media) => media.tracks(),
            Self::Live(_) => 1,
            Self::Published(channel) => channel.tracks().len(),
            Self::Multicast(on) => on.presentation.tracks(),
        }
    }

    /// In which units ranges can be asked for, besides normal play time.
    pub(super) fn units(&self) -> Units {
        match self {
            Self::Stored(media) => {
                let index = media.index();
                Units {
                    frame_rate: index.frame_rate(),
                    wall_clock_start_ns: index.wall_clock_start_ns(),
                }
            }
            Self::Live(_) | Self::Published(_) | Self::Multicast(_) => Units::default(),
        }
    }

    /// What PLAY asks for in normal play time. Of a channel there is only what comes now, by any
    /// clock.
    pub(super) fn in_npt(&self, asked: AskedRange) -> Result<Range, RangeError> {
        match asked.in_npt(self.units()) {
            Err(_) if self.live().is_some() => Ok(Range::default()),
            range => range,
        }
    }

    /// What it is opened by.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Stored(media) => media.name().to_owned(),
            Self::Live(channel) => format!("{LIVE_FOLDER}{}", channel.name()),
            Self::Published(channel) => channel.path().to_owned(),
            Self::Multicast(on) => on.presentation.path(),
        }
    }

    /// Whether both are the same film, as it was opened, or the same channel.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stored(one), Self::Stored(other)) => Arc::ptr_eq(one, other),
            (Self::Live(one), Self::Live(other)) => Arc::ptr_eq(one, other),
            (Self::Published(one), Self::Published(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// What a client at the other end of `server` is told of it, of the group that it is sent to,
    /// and of what its tracks are encrypted with.
    pub(super) fn describe(
        &self,
        server: IpAddr,
        group: Option<GroupAddress>,
        keys: &[MikeyMessage],
    ) -> Result<Vec<u8>, Reply> {
        let (ssrc, tracks, extent) = match self {
            Self::Stored(media) => {
                let index = media.index();
                let extent = match media.grows() {
                    true => Extent::Growing,
                    false => Extent::Whole(media.duration_ns()),
                };
                (media.origin(0).ssrc, index.tracks().to_vec(), extent)
            }
            Self::Live(channel) => {
                let playable = playable(channel)?;
                let track = channel.track(playable.payload_type);
                let track = track.map_err(|payload_type| {
                    let note = format!(
                        "RTP payload type {payload_type} means what its sender says, and nobody \
                         has said here what"
                    );
                    Reply::refusal(StatusCode::UnsupportedMediaType, &note)
                })?;
                (playable.ssrc, vec![track], Extent::Live)
            }
            Self::Published(channel) => (channel.ssrc(0), channel.tracks().to_vec(), Extent::Live),
            Self::Multicast(on) => return on.presentation.describe(server, group, keys),
        };
        let name = self.name();
        let description = Description {
            name: &shown(name.strip_suffix(ELEMENTARY).unwrap_or(name)),
            id: ssrc.into(),
            server,
            tracks: &tracks,
            extent,
            group,
            keys,
        };
        Ok(description.to_bytes())
    }
}

/// Which track is meant, of so many, by the number of one or by the whole.
pub(super) fn find_track(tracks: usize, named: Option<usize>) -> Result<usize, Reply> {
    match named {
        Some(track) if track < tracks => Ok(track),
        Some(_) => {
            let note = match tracks {
                1 => "there is one track, track1".to_owned(),
                _ => format!("there are tracks from track1 to track{tracks}"),
            };
            Err(Reply::refusal(StatusCode::NotFound, &note))
        }
        None if tracks == 1 => Ok(0),
        None => {
            let note = format!("set up each of its tracks, from track1 to track{tracks}");
            let status = StatusCode::AggregateOperationNotAllowed;
            Err(Reply::refusal(status, &note))
        }
    }
}

/// The published channel of that name. One that is pulled is waited for.
async fn published(
    Content {
        published, pulls, ..
    }: &Content,
    path: &str,
) -> Result<Option<Arc<PublishedChannel>>, Reply> {
    let wanted = pulls.want(path);
    let give_up = Instant::now() + PULLED_TIME_MAX;
    loop {
        let channel = published.find(path);
        let is_pulled = match &wanted {
            Ok(is_pulled) => *is_pulled,
            // What is here may be watched all the same.
            Err(_) if channel.is_some() => false,
            Err(full) => {
                let status = StatusCode::ServiceUnavailable;
                return Err(Reply::refusal(status, &full.to_string()));
            }
        };
        if channel.is_some() || !is_pulled {
            return Ok(channel);
        }
        if Instant::now() >= give_up {
            let note = "its source does not answer; try later";
            return Err(Reply::refusal(StatusCode::ServiceUnavailable, note));
        }
        sleep(PULLED_LOOK_EVERY).await;
    }
}

/// How long a client waits for a source that is asked for, and how often that is looked at.
const PULLED_TIME_MAX: Duration = Duration::from_secs(8);
const PULLED_LOOK_EVERY: Duration = Duration::from_millis(50);

/// Why nobody can publish under a name, if something else has it.
pub(super) async fn is_taken(control: &Control, path: &str) -> Option<&'static str> {
    let content = &control.content;
    let live = path.strip_prefix(LIVE_FOLDER).unwrap_or_default();
    if content.channels.iter().any(|it| it.name() == live) {
        return Some("a channel of this name has an input of its own");
    }
    if content.pulls.has_configured(path) {
        return Some("a channel of this name is pulled from elsewhere");
    }
    let opened = content.library.as_ref()?.open(path).await;
    opened.is_ok().then_some("a file has this name")
}

/// The stream as players get it, once something of it has come.
pub(super) fn playable(channel: &Channel) -> Result<Playable, Reply> {
    channel.stats().playable.ok_or_else(|| {
        let note = "nothing has come of this stream yet";
        Reply::refusal(StatusCode::ServiceUnavailable, note)
    })
}

fn refused(error: &OpenError) -> Reply {
    let reply = Reply::refusal(status(error), &error.to_string());
    match error {
        OpenError::Read { source, .. } if source.kind() == io::ErrorKind::HostUnreachable => {
            reply.with(headers::RETRY_AFTER, RETRY_SECONDS)
        }
        _ => reply,
    }
}

fn status(error: &OpenError) -> StatusCode {
    match error {
        OpenError::NotFound { .. } | OpenError::Directory { .. } => StatusCode::NotFound,
        OpenError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            StatusCode::Forbidden
        }
        OpenError::NotMedia { .. } => StatusCode::UnsupportedMediaType,
        OpenError::TooMany { .. } => StatusCode::ServiceUnavailable,
        // What an object store does not tell now, it may later.
        OpenError::Read { source, .. } if source.kind() == io::ErrorKind::HostUnreachable => {
            StatusCode::ServiceUnavailable
        }
        OpenError::Read { .. } => StatusCode::InternalServerError,
    }
}

/// When to ask again for what an object store does not tell now: as HTTP says.
const RETRY_SECONDS: u32 = 5;

/// Where live streams are, in URLs.
pub(super) const LIVE_FOLDER: &str = "live/";
