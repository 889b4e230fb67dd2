//! PLAY: what range is meant, and what the answer says.

use std::rc::Rc;

use onrush_wire::media::{Index, Scale};
use onrush_wire::pace::Speed;
use onrush_wire::rtsp::{AskedRange, Range, Reply, Request, RtpInfo, StatusCode};

use super::super::session::{Session, Start};

/// A range as it is meant. Players on libavformat (ffplay, mpv, VLC's avformat) name places in a
/// transport stream by the stamps in it, which of a recording begin anywhere; so does whoever names
/// a time behind the end that would be one of those.
fn in_media_time(range: Range, request: &Request, index: &Index) -> Range {
    match is_libavformat(request) || is_behind(range, index.duration_ns()) {
        true => range.map(|time_ns| index.time_of_stamp_ns(time_ns)),
        false => range,
    }
}

fn is_behind(range: Range, duration_ns: u64) -> bool {
    range
        .start_ns
        .is_some_and(|start_ns| start_ns >= duration_ns)
}

fn is_libavformat(request: &Request) -> bool {
    let agent = request.header("User-Agent").unwrap_or("");
    LIBAVFORMAT.iter().any(|name| agent.starts_with(name))
}

/// What players on libavformat call themselves (libavformat/rtsp.c sends LIBAVFORMAT_IDENT unless
/// it is told otherwise).
const LIBAVFORMAT: [&str; 3] = ["Lavf", "libmpv", "mpv"];

/// Prepares what is asked for. A player on libavformat that is refused a place stays in a state in
/// which it sends no PLAY again (`rtsp_read_seek` of libavformat/rtspdec.c), so behind the end it
/// gets the last sync sample, and then the end.
async fn prepare(
    request: &Request,
    session: &Rc<Session>,
    range: Option<Range>,
    pace: (Scale, Speed),
) -> Result<Option<Start>, Reply> {
    let refused = match session.prepare(range, pace).await {
        Err(refused) if is_libavformat(request) => refused,
        prepared => return prepared,
    };
    // How long it is is known now.
    let (Some(media), Some(range)) = (session.media(), range) else {
        return Err(refused);
    };
    let index = media.index();
    if refused.status() != u16::from(StatusCode::InvalidRange)
        || !is_behind(range, index.duration_ns())
    {
        return Err(refused);
    }
    let last = Range {
        start_ns: Some(index.seek(index.duration_ns()).time_ns),
        ..Range::default()
    };
    session.prepare(Some(last), pace).await
}

/// Prepares what a PLAY asks for; the answer, and what to start once it is sent.
pub(super) async fn play(
    request: &Request,
    session: &Rc<Session>,
    asked: Option<AskedRange>,
    pace: (Scale, Speed),
) -> Result<(Reply, Option<Start>), Reply> {
    let range = asked.map(|asked| session.presentation().in_npt(asked));
    let range = range.transpose()?.map(|range| match session.media() {
        Some(media) if matches!(asked, Some(AskedRange::Npt(_))) => {
            in_media_time(range, request, &media.index())
        }
        _ => range,
    });
    let start = prepare(request, session, range, pace).await?;
    let Some(media) = session.media() else {
        let starts = match &start {
            Some(Start::Live(starts) | Start::Group { tracks: starts, .. }) => &starts[..],
            _ => &[],
        };
        let infos = starts.iter().filter_map(|(track, position)| {
            let position = (*position)?;
            Some(RtpInfo {
                url: &track.track_url,
                sequence: position.sequence,
                timestamp: position.timestamp,
            })
        });
        let infos: Vec<_> = infos.collect();
        return Ok((Reply::playing_live(request, &infos), start));
    };
    let (span, speed, tracks) = match &start {
        Some(Start::Stored { span, line, tracks }) => (*span, line.speed(), &tracks[..]),
        _ => (session.remaining(), session.speed(), &[][..]),
    };
    let infos = tracks.iter().map(|start| RtpInfo {
        url: &start.track.track_url,
        sequence: start.position.sequence,
        timestamp: start.position.timestamp,
    });
    let infos: Vec<_> = infos.collect();
    let end_ns = (!media.grows()).then(|| media.duration_ns());
    let reply = Reply::playing(request, (span, speed), end_ns, &infos);
    Ok((reply, start))
}
