//! Whole segments of live channels: by their numbers, as playlists name them, and by when they
//! begin, as manifests do.

use onrush_wire::hls::Version;
use onrush_wire::http::Status;
use onrush_wire::media::segments::Format;

use super::super::made::Made;
use super::{Awaited, Refusal, is_of, media_type_of, nothing, now_s, wait_for};
use crate::downloads::Site;
use crate::hls_live::{LiveStream, SegmentBytes};

/// A segment, if it is whole.
pub(super) fn segment(
    site: &Site,
    stream: &LiveStream,
    (rendition, version, number): (&str, Version, u64),
    format: Format,
) -> Result<Made, Refusal> {
    is_of(stream, rendition, format).ok_or_else(nothing)?;
    let etag = format!("\"{version}-{rendition}-{number}\"");
    let (media_type, now_s) = (media_type_of(format, rendition), now_s(site));
    let found = stream.segment(rendition, version, number);
    Ok(match found.ok_or_else(nothing)? {
        SegmentBytes::Shared(bytes) => Made::live(bytes, etag, media_type, now_s),
        SegmentBytes::Stored(file, at) => Made::stored((file, at), etag, media_type, now_s),
    })
}

/// The number of the whole segment that begins at that time, in ticks.
///
/// Players ask for what a manifest lists, but for FFmpeg: at the end of the list it asks for what
/// comes next. If it got that, it would play it again as soon as it is listed; and if it were told
/// at once that there is nothing, it would ask again without a pause. So it is told that when the
/// segment is whole, loads the manifest again, and has it by that.
pub(super) async fn number_at(
    stream: Awaited<'_>,
    (rendition, version, ticks): (&str, Version, u64),
) -> Result<u64, Refusal> {
    let number = stream.window().number_at(rendition, version, ticks);
    if let Some(number) = number {
        return Ok(number);
    }
    wait_for(stream, || {
        let may_come = stream.window().may_begin_at(rendition, version, ticks);
        (!may_come).then_some(Ok(()))
    })
    .await?;
    let note = "no segment begins then, or none did yet; load the manifest again";
    Err((Status::NotFound, note.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use onrush_wire::media::live::{Output, PartOf};

    use super::super::Waits;
    use super::*;
    use crate::downloads::admission::Share;

    #[tokio::test]
    async fn what_comes_next_is_not_given_before_it_is_listed() {
        let stream = LiveStream::with_segment();
        let first = stream.window().poster().unwrap();
        let waits = Waits {
            is_waiting: Cell::default(),
            share: Share::default(),
            most: 1,
        };
        let awaited = Awaited {
            stream: &stream,
            waits: &waits,
        };
        let ask = async |ticks| number_at(awaited, ("video", first.version, ticks)).await;
        let is_none =
            |answer: Result<u64, Refusal>| answer.is_err_and(|it| it.0 == Status::NotFound);
        assert_eq!(ask(0).await, Ok(first.number));
        assert!(is_none(ask(1).await));
        let next = async {
            assert!(waits.is_waiting());
            let part = PartOf {
                bytes: [0].into(),
                lasts_us: 1_000_000,
                starts_unix_ns: 1_000_000_000,
                starts_ticks: 90_000,
                ticks: 90_000,
                is_independent: true,
                begins_with_sync: true,
                samples: 25,
            };
            let rendition = 0;
            stream.window().apply(Output::Part { rendition, part });
            stream.has_changed();
            tokio::task::yield_now().await;
            assert!(waits.is_waiting());
            stream.window().apply(Output::SegmentEnd { rendition });
            stream.has_changed();
        };
        let (answer, ()) = tokio::join!(ask(90_000), next);
        assert!(is_none(answer));
        assert_eq!(ask(90_000).await, Ok(first.number + 1));
    }
}
