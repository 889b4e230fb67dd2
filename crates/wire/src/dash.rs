//! DASH (ISO/IEC 23009-1) of films: the manifest. That of live channels is in
//! [`hls::live`](crate::hls::live).
//!
//! Its segments are those of [HLS](crate::hls), under the same URLs. What lasts equally long in a
//! row is one line of the time line, so that manifests are short.

mod representation;
mod xml;

use std::fmt::Write;

use crate::hls::{Listed, Presentation, Sound, Text, sounds};
use crate::language::tag;
use crate::media::Medium;
use crate::media::segments::{Format, Rendition};

pub(crate) use self::representation::{Representation, Row, Template};
pub(crate) use self::xml::{duration, escaped, transfer};

/// What the roles of tracks are of (section 5.8.5.5).
const ROLES: &str = "urn:mpeg:dash:role:2011";

/// The manifest of a film; `None` if it cannot have one: DASH players take no transport streams,
/// and what is not known to its end has no duration.
#[must_use]
pub fn manifest(film: &Presentation<'_>) -> Option<String> {
    let is_cmaf = |it: &Listed<'_>| it.of.format() == Format::Cmaf;
    if !film.is_complete || !film.renditions.iter().all(is_cmaf) {
        return None;
    }
    let longest = film.renditions.iter().map(|it| it.of.longest_ns()).max();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" type=\"static\" \
         profiles=\"urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019\" \
         mediaPresentationDuration=\"{}\" maxSegmentDuration=\"{}\" minBufferTime=\"PT4S\">\n\
         <Period id=\"1\" start=\"PT0S\">\n",
        duration(film.duration_ns()),
        duration(longest.unwrap_or(0)),
    );
    // A player may change between those of pictures that have the same dynamic range; of sound
    // each is a choice of its own.
    let is_aligned = film.not_aligned().is_empty();
    let mut sets: Vec<Vec<&Listed<'_>>> = Vec::new();
    for rendition in &film.renditions {
        let is_video = |it: &Listed<'_>| it.of.medium == Medium::Video;
        let range = rendition.of.video_range;
        let is_alike = |it: &Listed<'_>| is_video(it) && it.of.video_range == range;
        let mut alike = sets
            .iter_mut()
            .filter(|set| set.iter().all(|it| is_alike(it)));
        match alike.next().filter(|_| is_video(rendition)) {
            Some(set) => set.push(rendition),
            None => sets.push(vec![rendition]),
        }
    }
    let sounds = sounds(film);
    for (number, set) in (1..).zip(&sets) {
        let role = set.first().and_then(|it| role(&sounds, it));
        adaptation_set(&mut out, (number, role), set, (is_aligned, film.query));
    }
    for (number, text) in (sets.len() + 1..).zip(&film.texts) {
        subtitles(&mut out, number, text, film.query);
    }
    out += "</Period>\n</MPD>\n";
    Some(out)
}

/// What a track of sound is for (section 5.8.5.5): to be heard where nobody chooses, or instead.
fn role(sounds: &[Sound<'_>], track: &Listed<'_>) -> Option<&'static str> {
    let has = |it: &&Sound<'_>| it.tracks.iter().any(|it| it.name == track.name);
    let sound = sounds.iter().find(has)?;
    Some(if sound.is_default {
        "main"
    } else {
        "alternate"
    })
}

/// Renditions that a player may change between; there is at least one.
fn adaptation_set(
    out: &mut String,
    (number, role): (usize, Option<&str>),
    set: &[&Listed<'_>],
    (is_aligned, query): (bool, &str),
) {
    let of = set[0].of;
    let kind = match of.medium {
        Medium::Video => "video",
        Medium::Audio => "audio",
        Medium::Application => "application",
    };
    let language = of.language.as_deref().and_then(tag);
    let language = language.map(|it| format!(" lang=\"{it}\""));
    let starts_with = u8::from(set.iter().all(|it| it.of.is_independent));
    let mut text = |arguments: std::fmt::Arguments<'_>| {
        out.write_fmt(arguments).expect("a string takes all");
    };
    text(format_args!(
        "<AdaptationSet id=\"{number}\" contentType=\"{kind}\" mimeType=\"{kind}/mp4\"{} \
         segmentAlignment=\"{is_aligned}\" startWithSAP=\"{starts_with}\">\n",
        language.unwrap_or_default(),
    ));
    text(format_args!("{}", transfer(of.video_range)));
    if let Some(label) = &of.label {
        text(format_args!("<Label>{}</Label>\n", escaped(label)));
    }
    if let Some(role) = role {
        text(format_args!(
            "<Role schemeIdUri=\"{ROLES}\" value=\"{role}\"/>\n"
        ));
    }
    for listed in set {
        representation(out, listed, query);
    }
    *out += "</AdaptationSet>\n";
}

/// Subtitles, which are one file (ISO/IEC 23009-1, section 5.3.9.1).
fn subtitles(out: &mut String, number: usize, text: &Text, query: &str) {
    let (name, version, query) = (&text.name, text.version, escaped(query));
    let language = text.language.as_deref().and_then(tag);
    let language = language.map(|it| format!(" lang=\"{it}\""));
    let role = match text.is_forced {
        true => "forced-subtitle",
        false => "subtitle",
    };
    let label = text.label.as_deref();
    let label = label.map(|it| format!("<Label>{}</Label>\n", escaped(it)));
    write!(
        out,
        "<AdaptationSet id=\"{number}\" contentType=\"text\" mimeType=\"text/vtt\"{}>\n\
         {}<Role schemeIdUri=\"{ROLES}\" value=\"{role}\"/>\n\
         <Representation id=\"{name}\" bandwidth=\"1000\">\n\
         <BaseURL>../hls/{name}/{version}/all.vtt{query}</BaseURL>\n\
         </Representation>\n</AdaptationSet>\n",
        language.unwrap_or_default(),
        label.unwrap_or_default(),
    )
    .expect("a string takes all");
}

fn representation(out: &mut String, listed: &Listed<'_>, query: &str) {
    let of = listed.of;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is above 0, and what is too large becomes the largest"
    )]
    let thousandths = |rate: f64| (rate * 1000.0).round() as u64;
    let representation = Representation {
        name: &listed.name,
        peak_bps: of.rates.peak_bps,
        codec: of.codec.as_deref().unwrap_or_default(),
        dimensions: of.dimensions,
        frame_rate_milli: of.frame_rate.map(thousandths),
        sample_rate_hz: of.sample_rate_hz,
        channels: of.channels,
        segments: Template {
            timescale: of.timescale,
            offset_ticks: None,
            first: Some(1),
            version: listed.version,
            query,
        },
    };
    representation.write(out, &rows(of));
}

/// The time line. Of the first row it is told when it begins.
fn rows(of: &Rendition) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (start, lasts) in of.times() {
        match rows.last_mut() {
            Some(row) if row.lasts_ticks == lasts => row.more += 1,
            last => {
                let starts_ticks = last.is_none().then_some(start);
                rows.push(Row {
                    starts_ticks,
                    lasts_ticks: lasts,
                    more: 0,
                });
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use roxmltree::{Document, Node};

    use super::*;
    use crate::hls::Version;
    use crate::media::VideoRange;
    use crate::media::segments::Segmented;
    use crate::media::segments::testing::{film, sounds};

    const VERSION: Version = Version(0x00ab_cdef_0123_4567);

    fn of(film: &Segmented) -> Presentation<'_> {
        Presentation::new(&[(film, VERSION)], "")
    }

    fn number(node: Node<'_, '_>, name: &str) -> u64 {
        node.attribute(name)
            .and_then(|it| it.parse().ok())
            .unwrap_or(0)
    }

    fn named<'a, 'i>(node: Node<'a, 'i>, name: &'static str) -> Vec<Node<'a, 'i>> {
        node.descendants()
            .filter(|it| it.has_tag_name(name))
            .collect()
    }

    /// As a player reads it: what it knows of each segment is what the rendition has.
    #[test]
    fn the_time_line_is_that_of_the_segments() {
        let film = film(40, 50);
        let text = manifest(&of(&film)).unwrap();
        let document = Document::parse(&text).unwrap();
        let root = document.root_element();
        assert_eq!(
            root.attribute("mediaPresentationDuration"),
            Some("PT40.000S")
        );
        let representations = named(root, "Representation");
        assert_eq!(representations.len(), film.renditions.len());
        for (node, rendition) in representations.into_iter().zip(&film.renditions) {
            assert_eq!(node.attribute("id"), Some(&rendition.name[..]));
            assert_eq!(number(node, "bandwidth"), rendition.rates.peak_bps);
            let template = named(node, "SegmentTemplate")[0];
            assert_eq!(
                number(template, "timescale"),
                u64::from(rendition.timescale)
            );
            let media = "../hls/$RepresentationID$/00abcdef01234567/$Number$.m4s";
            assert_eq!(template.attribute("media"), Some(media));
            let (mut times, mut at) = (Vec::new(), 0);
            for row in named(template, "S") {
                at = row.attribute("t").map_or(at, |_| number(row, "t"));
                for _ in 0..=number(row, "r") {
                    times.push((at, number(row, "d")));
                    at += number(row, "d");
                }
            }
            let expected = rendition.times();
            let expected =
                expected.map(|(start, lasts)| (start.cast_unsigned(), lasts.cast_unsigned()));
            assert_eq!(times, expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_of_others_is_escaped() {
        let text = manifest(&of(&film(40, 50))).unwrap();
        let document = Document::parse(&text).unwrap();
        let labels = named(document.root_element(), "Label");
        let labels: Vec<_> = labels.iter().filter_map(|it| it.text()).collect();
        assert_eq!(labels, ["Le \"commentaire\"<b>&"]);
        let languages = named(document.root_element(), "AdaptationSet");
        let languages = languages.iter().filter_map(|it| it.attribute("lang"));
        assert_eq!(languages.collect::<Vec<_>>(), ["en", "fr"]);
    }

    /// What the adaptation sets say of their dynamic range, and of pictures how many there are.
    fn ranges(film: &Presentation<'_>) -> Vec<(Option<u64>, usize)> {
        let text = manifest(film).unwrap();
        let document = Document::parse(&text).unwrap();
        let sets = named(document.root_element(), "AdaptationSet").into_iter();
        let pictures = sets.filter(|it| it.attribute("contentType") == Some("video"));
        let told = pictures.map(|set| {
            let mut properties = named(set, "SupplementalProperty").into_iter();
            let scheme = Some("urn:mpeg:mpegB:cicp:TransferCharacteristics");
            let property = properties.find(|it| it.attribute("schemeIdUri") == scheme);
            let code = property.map(|it| number(it, "value"));
            (code, named(set, "Representation").len())
        });
        told.collect()
    }

    /// DASH-IF's guidelines have it of the set, so renditions of another range are another set.
    #[test]
    fn a_high_dynamic_range_is_told_of_its_set() {
        let standard = film(40, 50);
        let mut high = standard.clone();
        high.renditions[0].video_range = Some(VideoRange::Pq);
        let all = |films: &[&Segmented]| {
            let parts: Vec<_> = films.iter().map(|&it| (it, VERSION)).collect();
            ranges(&Presentation::new(&parts, ""))
        };
        assert_eq!(all(&[&standard, &standard]), [(None, 2)]);
        assert_eq!(all(&[&high]), [(Some(16), 1)]);
        let mixed = all(&[&high, &standard, &high]);
        assert_eq!(mixed, [(Some(16), 2), (None, 1)]);
    }

    #[test]
    fn subtitles_are_sets_of_their_own() {
        let film = film(40, 50);
        let mut film = of(&film);
        film.texts = vec![Text {
            name: "text".to_owned(),
            version: VERSION,
            language: Some("ger-AT".to_owned()),
            label: Some("a & b".to_owned()),
            is_forced: false,
        }];
        film.query = "?a=b&c=d";
        let text = manifest(&film).unwrap();
        let document = Document::parse(&text).unwrap();
        let sets = named(document.root_element(), "AdaptationSet");
        let set = sets
            .into_iter()
            .find(|it| it.attribute("mimeType") == Some("text/vtt"));
        let set = set.unwrap();
        assert_eq!(set.attribute("lang"), Some("de-AT"));
        assert_eq!(named(set, "Label")[0].text(), Some("a & b"));
        let url = "../hls/text/00abcdef01234567/all.vtt?a=b&c=d";
        assert_eq!(named(set, "BaseURL")[0].text(), Some(url));
    }

    #[test]
    fn roles_tell_what_is_played_where_nobody_chooses() {
        let film = sounds(&[("mp4a.40.2", "eng", ""), ("*ac-3", "fra", "")]);
        let mut film = of(&film);
        let text = |is_forced| Text {
            name: "text".to_owned(),
            version: VERSION,
            language: None,
            label: None,
            is_forced,
        };
        film.texts = vec![text(false), text(true)];
        let text = manifest(&film).unwrap();
        let document = Document::parse(&text).unwrap();
        let sets = named(document.root_element(), "AdaptationSet");
        let role = |set: Node<'_, '_>| {
            let role = named(set, "Role").first().copied()?;
            role.attribute("value").map(str::to_owned)
        };
        let roles: Vec<_> = sets.into_iter().map(role).collect();
        let roles: Vec<_> = roles.iter().map(Option::as_deref).collect();
        let texts = [Some("subtitle"), Some("forced-subtitle")];
        let expected = [None, Some("alternate"), Some("main"), texts[0], texts[1]];
        assert_eq!(roles, expected);
    }

    #[test]
    fn what_goes_on_has_no_manifest() {
        let mut film = film(40, 50);
        film.is_complete = false;
        assert_eq!(manifest(&of(&film)), None);
    }
}
