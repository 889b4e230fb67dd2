//! What the cache holds by film, for the dashboard.

use std::collections::HashMap;

use serde::Serialize;

use crate::watching::KnownFilm;

/// Films that the map of the cache names at the most: those that have most of it.
pub const CACHED_FILMS_SHOWN_MAX: usize = 20;

/// What the cache holds.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct CacheMap {
    /// Bytes that there is room for.
    bytes: u64,
    /// Those that have most of it first, at most [`CACHED_FILMS_SHOWN_MAX`].
    films: Vec<CachedFilm>,
    /// All others, which are so many, together.
    others: CachedFilm,
    others_count: usize,
    /// Bytes of files that have been closed since, or have changed.
    closed_bytes: u64,
}

/// What it holds of a film.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct CachedFilm {
    film: String,
    bytes: u64,
    /// Of these, those that are being read or sent.
    in_use_bytes: u64,
    /// RTSP sessions that have the film.
    sessions: usize,
}

/// Chunks of a source: how many there are, and how many of these are in use.
pub(super) type Held = HashMap<u32, (u64, u64)>;

/// Of chunks of so many bytes, of which there is room for so many.
pub(super) fn cache_map(
    (chunk_bytes, chunks): (u64, u64),
    mut held: Held,
    known: Vec<KnownFilm>,
) -> CacheMap {
    // A film that was replaced goes by the same name as the new one.
    let mut by_name: HashMap<String, CachedFilm> = HashMap::new();
    for KnownFilm {
        film,
        sources,
        sessions,
    } in known
    {
        let row = by_name.entry(film).or_default();
        row.sessions += sessions;
        for (chunks, in_use) in sources.iter().filter_map(|id| held.remove(id)) {
            row.bytes += chunks * chunk_bytes;
            row.in_use_bytes += in_use * chunk_bytes;
        }
    }
    let named = by_name
        .into_iter()
        .map(|(film, row)| CachedFilm { film, ..row });
    let mut films: Vec<_> = named.filter(|row| row.bytes > 0).collect();
    films.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.film.cmp(&b.film)));
    let rest = films.split_off(films.len().min(CACHED_FILMS_SHOWN_MAX));
    let mut others = CachedFilm::default();
    for row in &rest {
        others.bytes += row.bytes;
        others.in_use_bytes += row.in_use_bytes;
        others.sessions += row.sessions;
    }
    CacheMap {
        bytes: chunks * chunk_bytes,
        films,
        others,
        others_count: rest.len(),
        closed_bytes: held.values().map(|(chunks, _)| chunks * chunk_bytes).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn film(name: &str, sources: &[u32], sessions: usize) -> KnownFilm {
        KnownFilm {
            film: name.to_owned(),
            sources: sources.to_vec(),
            sessions,
        }
    }

    #[test]
    fn films_are_told_by_what_they_have_of_the_cache() {
        let held = Held::from([(1, (5, 2)), (2, (7, 0)), (3, (1, 1)), (9, (4, 0))]);
        let known = vec![
            film("small", &[3], 1),
            film("large", &[1, 2], 3),
            film("none", &[8], 2),
            // Another file was at its name before, which somebody plays still.
            film("small", &[], 4),
        ];
        let map = cache_map((10, 100), held, known);
        let rows = map.films.iter();
        let rows = rows.map(|it| (&*it.film, it.bytes, it.in_use_bytes));
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows, [("large", 120, 20), ("small", 10, 10)]);
        let sessions = map.films.iter().map(|it| it.sessions);
        assert_eq!(sessions.collect::<Vec<_>>(), [3, 5]);
        assert_eq!(
            (map.bytes, map.closed_bytes, map.others_count),
            (1000, 40, 0)
        );
    }

    #[test]
    fn no_more_films_are_named_than_may_be() {
        let most = u32::try_from(CACHED_FILMS_SHOWN_MAX).unwrap();
        let map = |count: u32| {
            let held = (0..count).map(|id| (id, (1 + u64::from(id), 1))).collect();
            let films = (0..count).map(|id| film(&format!("{id}"), &[id], 1));
            cache_map((1, 1000), held, films.collect())
        };
        assert_eq!(map(most).others_count, 0);
        let more = map(most + 2);
        assert_eq!(more.films.len(), CACHED_FILMS_SHOWN_MAX);
        assert_eq!((&*more.films[0].film, more.others_count), ("21", 2));
        assert_eq!((more.others.bytes, more.others.sessions), (3, 2));
    }
}
