//! Films cut into segments for whoever asks: as far as they are read, or once more of them is.
//!
//! A playlist does not wait for long, because it can tell the rest later, and players give up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onrush_wire::hls::{Presentation, Resource as Asked};
use onrush_wire::http::Status;
use onrush_wire::media::Medium;
use onrush_wire::media::segments::{Format, Segmented, SegmentsError};

use super::{Refusal, elsewhere, tell};
use crate::library::Media;

/// How long playlists of a film wait until all of it is read, from when the first of them is asked
/// for: a player loads several. After that they have what is known.
pub const INDEX_WAIT_MAX: Duration = Duration::from_secs(4);

/// How long is waited for what there is no answer without: the first segments, and all of the film
/// for a manifest. Media3 gives up after eight seconds.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(7);

/// What is to be known of a film that is not read to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wanted {
    /// Nothing more.
    Nothing,
    /// Its first segments.
    Segments,
    /// All of it, if that does not take long.
    Index,
    /// All of it.
    All,
}

/// Files that are cut: one film, or several that show the same, best first.
pub(super) struct Films(pub(super) Vec<(Arc<Media>, Arc<Segmented>)>);

impl Films {
    pub(super) fn presentation<'a>(&'a self, query: &'a str) -> Presentation<'a> {
        let parts = self
            .0
            .iter()
            .map(|(media, film)| (&**film, media.version()));
        Presentation::new(&parts.collect::<Vec<_>>(), query)
    }

    /// How many segments playlists list at the most, where not all of them is read.
    pub(super) fn listed_max(&self) -> usize {
        let partial = self.0.iter().filter(|(_, film)| !film.is_complete);
        let listed = partial.filter_map(|(media, _)| media.listed_max(INDEX_WAIT_MAX));
        listed.min().unwrap_or(usize::MAX)
    }
}

/// All of them that can be cut; of several, those in CMAF. What `asked` needs of them is waited
/// for, if that does not take too long.
pub(super) async fn cut_all(parts: &[Arc<Media>], asked: Asked<'_>) -> Result<Films, Refusal> {
    let began = Instant::now();
    // Of several files none begins to wait when another has.
    for media in parts.iter().filter(|_| is_playlist(asked)) {
        media.asked_for();
    }
    let mut films = Vec::with_capacity(parts.len());
    let mut last = None;
    for media in parts {
        let is_alone = parts.len() == 1;
        match cut(media, asked, began).await {
            Ok(film) if is_alone || film.renditions[0].format() == Format::Cmaf => {
                films.push((Arc::clone(media), film));
            }
            Ok(_) => {
                let note = "a film of several files takes none that are transport streams";
                last = Some((Status::NotFound, note.to_owned()));
            }
            Err(refusal) => {
                tell(media.name(), format_args!("{}", refusal.1));
                last = Some(refusal);
            }
        }
    }
    let rate = |film: &Segmented| {
        let of = &film.renditions[0];
        let is_video = of.medium == Medium::Video;
        (!is_video, std::cmp::Reverse(of.rates.peak_bps))
    };
    films.sort_by_key(|(_, film)| rate(film));
    match last {
        Some(refusal) if films.is_empty() => Err(refusal),
        _ => Ok(Films(films)),
    }
}

async fn cut(
    media: &Arc<Media>,
    asked: Asked<'_>,
    began: Instant,
) -> Result<Arc<Segmented>, Refusal> {
    let cut_now = async || -> Result<_, Refusal> {
        if media.is_segmented() {
            return Ok(media.segmented());
        }
        let media = Arc::clone(media);
        elsewhere(move || media.segmented()).await
    };
    let mut film = cut_now().await?;
    while media.is_partial() {
        let (until_ns, left) = match wanted(asked, film.as_deref().ok()) {
            Wanted::Nothing => break,
            Wanted::Index => (u64::MAX, INDEX_WAIT_MAX.saturating_sub(media.asked_for())),
            Wanted::All => (u64::MAX, ANSWER_WAIT_MAX.saturating_sub(began.elapsed())),
            Wanted::Segments => {
                let left = ANSWER_WAIT_MAX.saturating_sub(began.elapsed());
                (media.index().known_ns(), left)
            }
        };
        if left.is_zero() {
            break;
        }
        media.known_to(until_ns, left).await;
        film = cut_now().await?;
    }
    film.map_err(|error: SegmentsError| (Status::NotFound, error.to_string()))
}

fn is_playlist(asked: Asked<'_>) -> bool {
    matches!(
        asked,
        Asked::Main | Asked::Media { .. } | Asked::Pictures { .. }
    )
}

/// What `asked` needs of a film that is not read to its end, and is cut so far: a poster, or a
/// segment, is there or is not.
fn wanted(asked: Asked<'_>, film: Option<&Segmented>) -> Wanted {
    let is_empty = match (asked, film) {
        (Asked::Media { rendition }, Some(film)) => {
            let of = film.rendition(rendition);
            of.is_some_and(|it| it.segments() == 0)
        }
        (_, film) => film.is_none(),
    };
    match asked {
        _ if film.is_some_and(|it| it.is_complete) => Wanted::Nothing,
        Asked::Manifest => Wanted::All,
        _ if !is_playlist(asked) => Wanted::Nothing,
        _ if is_empty => Wanted::Segments,
        _ => Wanted::Index,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_answer_yet_waits_for_one() {
        let rendition = "video";
        for (asked, expected) in [
            (Asked::Main, Wanted::Segments),
            (Asked::Media { rendition }, Wanted::Segments),
            (Asked::Pictures { rendition }, Wanted::Segments),
            (Asked::Manifest, Wanted::All),
            (Asked::Poster, Wanted::Nothing),
        ] {
            assert_eq!(wanted(asked, None), expected, "{asked:?}");
        }
    }
}
