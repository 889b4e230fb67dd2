//! Subtitles in playlists (RFC 8216bis, sections 3.1.4 and 4.4.6.1).

use std::collections::HashSet;
use std::fmt::Write;
use std::ops::Range;

use super::presentation::{shown, unique};
use super::{Presentation, Text};
use crate::language::tag;
use crate::media::segments::SEGMENTS_MAX;

/// How long a segment of subtitles lasts, but for the last. It may differ from those of pictures,
/// because only films that are complete have any (section 6.2.4).
pub const TEXT_SEGMENT_MS: u64 = 60_000;

/// What multivariant playlists call a film's subtitles.
pub(super) const GROUP: &str = "text";

/// EXT-X-MEDIA of each of the subtitles.
pub(super) fn media(out: &mut String, film: &Presentation<'_>) {
    let mut names = HashSet::new();
    for text in &film.texts {
        let language = text.language.as_deref().and_then(tag);
        let name = unique(&called(text, language.as_deref()), &mut names);
        write!(
            out,
            "#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"{GROUP}\",NAME=\"{name}\""
        )
        .expect("text");
        if let Some(language) = &language {
            write!(out, ",LANGUAGE=\"{language}\"").expect("text");
        }
        let (name, query) = (&text.name, film.query);
        let forced = if text.is_forced { "YES" } else { "NO" };
        let rest = format!("DEFAULT=NO,AUTOSELECT=YES,FORCED={forced}");
        writeln!(out, ",{rest},URI=\"{name}/index.m3u8{query}\"").expect("text");
    }
}

/// What people call subtitles: those that are forced may be beside others of their language.
fn called(text: &Text, language: Option<&str>) -> String {
    let label = shown(text.label.as_deref());
    let told = label.or(language).unwrap_or(&text.name);
    match text.is_forced && label.is_none() {
        true => format!("{told} (forced)"),
        false => told.to_owned(),
    }
}

/// The playlist of subtitles of a film: no more segments than a rendition may have, though the film
/// says that it lasts for centuries.
#[must_use]
pub fn text_playlist(film: &Presentation<'_>, text: &Text) -> String {
    let lasts_ms = (film.duration_ns() / 1_000_000).max(1);
    let target = lasts_ms.min(TEXT_SEGMENT_MS).div_ceil(1000);
    let mut out = format!(
        "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:{target}\n\
         #EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n"
    );
    let (version, query) = (text.version, film.query);
    let segments = lasts_ms.div_ceil(TEXT_SEGMENT_MS);
    for number in 1..=segments.min(SEGMENTS_MAX as u64) {
        let stretch = text_stretch_ms(number);
        let ms = stretch.end.min(lasts_ms) - stretch.start;
        let (s, ms) = (ms / 1000, ms % 1000);
        writeln!(out, "#EXTINF:{s}.{ms:03},\n{version}/{number}.vtt{query}").expect("text");
    }
    out + "#EXT-X-ENDLIST\n"
}

/// Which part of the film segment number `number` is of, from 1 on.
#[must_use]
pub fn text_stretch_ms(number: u64) -> Range<u64> {
    let start = number.saturating_sub(1).saturating_mul(TEXT_SEGMENT_MS);
    start..start.saturating_add(TEXT_SEGMENT_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hls::{Version, main_playlist};
    use crate::media::segments::testing::{film, stills};

    #[test]
    fn subtitles_are_named_with_every_variant() {
        let film = film(130, 50);
        let mut film = Presentation::new(&[(&film, Version(1))], "?q");
        assert!(!main_playlist(&film).contains("SUBTITLES"));
        let text = |number: u32, label: Option<&str>| Text {
            name: format!("text-{number}"),
            version: Version(7),
            language: Some("en".to_owned()),
            label: label.map(str::to_owned),
            is_forced: false,
        };
        film.texts = vec![text(1, None), text(2, Some("a\"b")), text(3, None)];
        let main = main_playlist(&film);
        let media: Vec<_> = main
            .lines()
            .filter(|it| it.contains("SUBTITLES,"))
            .collect();
        let expected = |name: &str, number| {
            format!(
                "#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"text\",NAME=\"{name}\",LANGUAGE=\"en\",\
                 DEFAULT=NO,AUTOSELECT=YES,FORCED=NO,URI=\"text-{number}/index.m3u8?q\""
            )
        };
        assert_eq!(
            media,
            [expected("en", 1), expected("a'b", 2), expected("en (2)", 3)]
        );
        let variants = main
            .lines()
            .filter(|it| it.starts_with("#EXT-X-STREAM-INF"));
        let variants: Vec<_> = variants.collect();
        assert!(!variants.is_empty());
        assert!(
            variants
                .iter()
                .all(|it| it.ends_with(",SUBTITLES=\"text\""))
        );
        let playlist = text_playlist(&film, &film.texts[0]);
        let expected = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:60\n\
             #EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n\
             #EXTINF:60.000,\n0000000000000007/1.vtt?q\n\
             #EXTINF:60.000,\n0000000000000007/2.vtt?q\n\
             #EXTINF:10.005,\n0000000000000007/3.vtt?q\n#EXT-X-ENDLIST\n";
        assert_eq!(playlist, expected);
    }

    #[test]
    fn forced_subtitles_are_told_as_such() {
        let film = film(10, 50);
        let mut film = Presentation::new(&[(&film, Version(1))], "");
        let text = |language: &str, label: Option<&str>| Text {
            name: "text".to_owned(),
            version: Version(7),
            language: Some(language.to_owned()),
            label: label.map(str::to_owned),
            is_forced: true,
        };
        film.texts = vec![text("ger", None), text("und", Some("Signs"))];
        let main = main_playlist(&film);
        let rest = "DEFAULT=NO,AUTOSELECT=YES,FORCED=YES,URI=";
        let first = format!(",NAME=\"de (forced)\",LANGUAGE=\"de\",{rest}");
        let second = format!(",NAME=\"Signs\",{rest}");
        assert!(main.contains(&first) && main.contains(&second), "{main}");
    }

    /// Of a file of a few bytes whose one picture lasts for 49 days.
    #[test]
    fn a_playlist_has_no_more_segments_than_others_may_have() {
        let film = stills(1000, &[u32::MAX]);
        let film = Presentation::new(&[(&film, Version(1))], "");
        assert!(film.duration_ns() / 1_000_000 / TEXT_SEGMENT_MS > SEGMENTS_MAX as u64);
        let text = Text {
            name: "text".to_owned(),
            version: Version(7),
            language: None,
            label: None,
            is_forced: false,
        };
        let playlist = text_playlist(&film, &text);
        assert_eq!(playlist.matches("#EXTINF:60.000,\n").count(), SEGMENTS_MAX);
        assert!(playlist.ends_with("/60000.vtt\n#EXT-X-ENDLIST\n"));
    }

    #[test]
    fn numbers_without_bounds_are_stretches() {
        assert_eq!(text_stretch_ms(1), 0..TEXT_SEGMENT_MS);
        assert_eq!(text_stretch_ms(0), 0..TEXT_SEGMENT_MS);
        assert!(text_stretch_ms(u64::MAX).is_empty());
    }
}
