//! Playlists against the rules of RFC 8216bis.

use super::*;
use crate::dash;
use crate::hls::{Resource, Version};
use crate::media::segments::Segmented;
use crate::media::segments::testing::{self, film, stills};
use crate::media::ts::clock::PCR_HZ;
use crate::media::ts::synth;
use crate::media::{ScanOptions, Scanner};

const VERSION: Version = Version(0x00ab_cdef_0123_4567);

fn of(film: &Segmented) -> Presentation<'_> {
    Presentation::new(&[(film, VERSION)], "")
}

fn listed(of: &Rendition) -> Listed<'_> {
    Listed {
        name: of.name.clone(),
        version: VERSION,
        part: 0,
        of,
    }
}

/// A rule: where it is, what it says, whether a playlist keeps it, and how one is spoilt that does.
type Rule = (
    &'static str,
    &'static str,
    fn(&str) -> bool,
    fn(&str) -> String,
);

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
}

fn is_uri(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

/// The value of a tag that stands once.
fn value<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let mut found = lines(text).filter_map(|line| line.strip_prefix(tag));
    let first = found.next();
    first.filter(|_| found.next().is_none())
}

/// The attributes of a line: names and values, with the quotes of those that have some.
fn attributes(line: &str) -> Vec<(&str, &str)> {
    let mut rest = line.split_once(':').map_or("", |(_, list)| list);
    let mut found = Vec::new();
    while let Some((name, after)) = rest.split_once('=') {
        let end = match after.strip_prefix('"') {
            Some(inside) => inside.find('"').map_or(after.len(), |at| at + 2),
            None => after.find(',').unwrap_or(after.len()),
        };
        found.push((name, &after[..end]));
        rest = after[end..].trim_start_matches(',');
    }
    found
}

fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let found = attributes(line).into_iter().find(|it| it.0 == name);
    found.map(|it| it.1)
}

/// What all members of a group have that is the same in others.
type Member<'a> = [Option<&'a str>; 4];

/// Of each group of sound its members.
fn members(text: &str) -> Vec<(&str, Vec<Member<'_>>)> {
    let mut groups: Vec<(&str, Vec<Member<'_>>)> = Vec::new();
    let media = of_tag(text, "#EXT-X-MEDIA:").into_iter();
    for line in media.filter(|it| attribute(it, "TYPE") == Some("AUDIO")) {
        let id = attribute(line, "GROUP-ID").unwrap_or_default();
        let member = ["NAME", "LANGUAGE", "DEFAULT", "AUTOSELECT"];
        let member = member.map(|name| attribute(line, name));
        match groups.iter_mut().find(|it| it.0 == id) {
            Some((_, of)) => of.push(member),
            None => groups.push((id, vec![member])),
        }
    }
    groups
}

fn durations(text: &str) -> Vec<f64> {
    let lines = lines(text).filter_map(|line| line.strip_prefix("#EXTINF:"));
    lines
        .map(|it| it.trim_end_matches(',').parse().unwrap_or(0.0))
        .collect()
}

fn of_tag<'a>(text: &'a str, tag: &str) -> Vec<&'a str> {
    lines(text).filter(|line| line.starts_with(tag)).collect()
}

/// What holds for all playlists.
const ALL: [Rule; 4] = [
    (
        "4.1",
        "lines end in LF, and there are no others",
        |text| text.ends_with('\n') && !text.contains('\r'),
        |text| text.replace('\n', "\r"),
    ),
    (
        "4.1",
        "no line is blank space or has control characters",
        |text| lines(text).all(|it| !it.trim().is_empty() && !it.chars().any(char::is_control)),
        |text| text.replacen('\n', "\n \n", 1),
    ),
    (
        "4.4.1.1",
        "it begins with EXTM3U",
        |text| text.starts_with("#EXTM3U\n"),
        |text| text.replacen("#EXTM3U\n", "", 1),
    ),
    (
        "4.4.1.2",
        "there is one version",
        |text| value(text, "#EXT-X-VERSION:").is_some_and(|it| it.parse::<u8>().is_ok()),
        |text| format!("{text}#EXT-X-VERSION:7\n"),
    ),
];

/// What holds for media playlists.
const MEDIA: [Rule; 9] = [
    (
        "4.4.3.1",
        "no segment is longer than the target, rounded",
        |text| {
            let target: f64 = value(text, "#EXT-X-TARGETDURATION:")
                .and_then(|it| it.parse().ok())
                .unwrap_or(0.0);
            durations(text).iter().all(|it| it.round() <= target)
        },
        |text| text.replacen("#EXTINF:", "#EXTINF:9", 1),
    ),
    (
        "4.4.3.1",
        "the target is that of the longest",
        |text| {
            let target: f64 = value(text, "#EXT-X-TARGETDURATION:")
                .and_then(|it| it.parse().ok())
                .unwrap_or(0.0);
            durations(text)
                .iter()
                .any(|it| it.round().max(1.0) == target)
        },
        |text| text.replacen("TARGETDURATION:", "TARGETDURATION:1", 1),
    ),
    (
        "4.4.3.2",
        "the number of the first segment is in front of it",
        |text| {
            let first = text.find("#EXTINF").unwrap_or(0);
            text.find("#EXT-X-MEDIA-SEQUENCE:0\n")
                .is_some_and(|at| at < first)
        },
        |text| text.replacen("#EXT-X-MEDIA-SEQUENCE:0\n", "", 1),
    ),
    (
        "4.4.3.4",
        "what is over says so, and of which kind it is",
        |text| {
            text.ends_with("#EXT-X-ENDLIST\n")
                == (value(text, "#EXT-X-PLAYLIST-TYPE:") == Some("VOD"))
        },
        |text| text.replacen("#EXT-X-ENDLIST\n", "", 1),
    ),
    (
        "4.4.4.1",
        "each segment has its duration in front of it",
        |text| {
            let all: Vec<_> = lines(text).collect();
            let uris = all.iter().filter(|it| is_uri(it)).count();
            let pairs = all
                .windows(2)
                .filter(|it| is_uri(it[1]))
                .all(|it| it[0].starts_with("#EXTINF:") && it[0].ends_with(','));
            pairs && uris == durations(text).len() && uris > 0
        },
        |text| text.replacen("#EXTINF", "#EXTINF:6.0,\n#EXTINF", 1),
    ),
    (
        "4.4.4.1",
        "every segment lasts for some time",
        |text| durations(text).iter().all(|it| *it > 0.0),
        |text| text.replacen("#EXTINF:", "#EXTINF:0.0000", 1),
    ),
    (
        "4.4.4.5",
        "fragments have their initialization segment in front",
        |text| {
            !text.contains(".m4s")
                || text
                    .find("#EXT-X-MAP:URI=\"")
                    .is_some_and(|at| at < text.find("#EXTINF").unwrap_or(0))
        },
        |text| {
            text.replacen("#EXT-X-MAP", "#EXT-X-NONE", 1)
                .replacen(".ts", ".m4s", 1)
        },
    ),
    (
        "8",
        "the version is of what is used",
        |text| {
            let version: u8 = value(text, "#EXT-X-VERSION:")
                .and_then(|it| it.parse().ok())
                .unwrap_or(0);
            version >= if text.contains("#EXT-X-MAP") { 6 } else { 3 }
        },
        |text| {
            text.replacen("VERSION:7", "VERSION:5", 1)
                .replacen("VERSION:3", "VERSION:2", 1)
        },
    ),
    (
        "6.2.1",
        "every segment has a URI of its own",
        |text| {
            let mut uris: Vec<_> = lines(text).filter(|it| is_uri(it)).collect();
            let all = uris.len();
            uris.sort_unstable();
            uris.dedup();
            uris.len() == all
        },
        |text| text.replacen("/2.", "/1.", 1).replacen("/i2.", "/i1.", 1),
    ),
];

/// What holds for multivariant playlists.
const MULTIVARIANT: [Rule; 11] = [
    (
        "4.1",
        "it has no tag of a media playlist",
        |text| {
            ![
                "#EXTINF",
                "#EXT-X-TARGETDURATION",
                "#EXT-X-MAP",
                "#EXT-X-ENDLIST",
            ]
            .iter()
            .any(|it| text.contains(it))
        },
        |text| format!("{text}#EXT-X-ENDLIST\n"),
    ),
    (
        "4.4.6.2",
        "each variant has its URI behind it",
        |text| {
            let all: Vec<_> = lines(text).collect();
            let variants = of_tag(text, "#EXT-X-STREAM-INF:").len();
            let pairs = all
                .windows(2)
                .filter(|it| it[0].starts_with("#EXT-X-STREAM-INF:") && is_uri(it[1]))
                .count();
            variants > 0
                && pairs == variants
                && all.iter().filter(|it| is_uri(it)).count() == variants
        },
        |text| format!("{text}more.m3u8\n"),
    ),
    (
        "4.4.6.2",
        "the peak is told, and no less than the mean",
        |text| {
            of_tag(text, "#EXT-X-STREAM-INF:").iter().all(|it| {
                let of = |name| attribute(it, name).and_then(|it| it.parse::<u64>().ok());
                of("BANDWIDTH")
                    .zip(of("AVERAGE-BANDWIDTH"))
                    .is_some_and(|(peak, mean)| peak >= mean && mean > 0)
            })
        },
        |text| text.replace(",AVERAGE-BANDWIDTH=", ",AVERAGE-BANDWIDTH=99"),
    ),
    (
        "4.4.6.2",
        "all that is coded is told",
        |text| {
            of_tag(text, "#EXT-X-STREAM-INF:").iter().all(|it| {
                let codecs = attribute(it, "CODECS").unwrap_or_default();
                codecs.split(',').count() == 1 + usize::from(attribute(it, "AUDIO").is_some())
            })
        },
        |text| text.replacen(",mp4a.40.2", "", 1),
    ),
    (
        "4.4.6.2",
        "pictures have a size and a rate of three digits",
        |text| {
            of_tag(text, "#EXT-X-STREAM-INF:").iter().all(|it| {
                let rate = attribute(it, "FRAME-RATE")
                    .and_then(|it| it.split_once('.'))
                    .map(|it| it.1.len());
                attribute(it, "RESOLUTION") == Some("320x180") && rate == Some(3)
            })
        },
        |text| text.replacen("FRAME-RATE=25.000", "FRAME-RATE=25", 1),
    ),
    (
        "4.4.6.2",
        "the group of sound is there",
        |text| {
            of_tag(text, "#EXT-X-STREAM-INF:")
                .iter()
                .filter_map(|it| attribute(it, "AUDIO"))
                .all(|id| {
                    of_tag(text, "#EXT-X-MEDIA:")
                        .iter()
                        .any(|it| attribute(it, "GROUP-ID") == Some(id))
                })
        },
        |text| text.replacen("GROUP-ID=\"audio1\"", "GROUP-ID=\"audio2\"", 2),
    ),
    (
        "4.4.6.1",
        "renditions have a type, a group and a name",
        |text| {
            of_tag(text, "#EXT-X-MEDIA:").iter().all(|it| {
                ["TYPE", "GROUP-ID", "NAME", "URI"]
                    .iter()
                    .all(|name| attribute(it, name).is_some())
            })
        },
        |text| text.replacen("TYPE=AUDIO,", "", 1),
    ),
    (
        "4.4.6.1.1",
        "names of a group differ, and one is the default",
        |text| {
            members(text).iter().all(|(_, of)| {
                let mut names: Vec<_> = of.iter().map(|it| it[0]).collect();
                names.sort_unstable();
                names.dedup();
                let defaults = of.iter().filter(|it| it[2] == Some("YES")).count();
                names.len() == of.len() && defaults == 1
            })
        },
        |text| text.replace("DEFAULT=NO", "DEFAULT=YES"),
    ),
    (
        "4.4.6.1.1",
        "groups have the same members",
        |text| {
            let all = members(text);
            all.iter()
                .all(|(_, of)| Some(of) == all.first().map(|it| &it.1))
        },
        |text| {
            let more = "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio9\",NAME=\"en\",DEFAULT=YES\n";
            format!("{text}{more}")
        },
    ),
    (
        "4.2",
        "no attribute stands twice on a line",
        |text| {
            lines(text).filter(|it| it.contains('=')).all(|line| {
                let mut names: Vec<_> = attributes(line).into_iter().map(|it| it.0).collect();
                let all = names.len();
                names.sort_unstable();
                names.dedup();
                names.len() == all
                    && names.iter().all(|it| {
                        it.bytes()
                            .all(|b| b.is_ascii_uppercase() || b == b'-' || b.is_ascii_digit())
                    })
            })
        },
        |text| text.replacen("TYPE=AUDIO", "TYPE=AUDIO,TYPE=AUDIO", 1),
    ),
    (
        "4.4.6.3",
        "playlists of pictures are told with their URI",
        |text| {
            of_tag(text, "#EXT-X-I-FRAME-STREAM-INF:").iter().all(|it| {
                attribute(it, "URI") == Some("\"video/iframes.m3u8\"")
                    && attribute(it, "BANDWIDTH").is_some()
                    && attribute(it, "AUDIO").is_none()
            })
        },
        |text| text.replacen(",URI=\"video/iframes", ",URL=\"video/iframes", 1),
    ),
];

fn check(what: &str, text: &str, rules: &[Rule]) {
    for (section, says, holds, spoil) in rules {
        assert!(holds(text), "{what}: section {section}: {says}\n{text}");
        let spoilt = spoil(text);
        assert!(
            !holds(&spoilt),
            "{what}: section {section}: not seen: {says}\n{spoilt}"
        );
    }
}

#[test]
fn multivariant_playlists_keep_the_rules() {
    let text = main_playlist(&of(&film(40, 50)));
    check("multivariant", &text, &ALL);
    check("multivariant", &text, &MULTIVARIANT);
}

/// RFC 8216bis, section 4.4.6.2: what says nothing is standard, and is told beside what is not.
#[test]
fn a_high_dynamic_range_is_told_of_each_variant() {
    let standard = film(40, 50);
    let text = main_playlist(&of(&standard));
    assert!(!text.contains("VIDEO-RANGE"), "{text}");
    for (range, name) in [(VideoRange::Pq, "PQ"), (VideoRange::Hlg, "HLG")] {
        let mut high = standard.clone();
        high.renditions[0].video_range = Some(range);
        let alone = main_playlist(&of(&high));
        let both = Presentation::new(&[(&high, VERSION), (&standard, VERSION)], "");
        let both = main_playlist(&both);
        for tag in ["#EXT-X-STREAM-INF:", "#EXT-X-I-FRAME-STREAM-INF:"] {
            let ranges = |text| {
                let lines = of_tag(text, tag).into_iter();
                lines
                    .map(|it| attribute(it, "VIDEO-RANGE").unwrap_or("").to_owned())
                    .collect::<Vec<_>>()
            };
            assert_eq!(ranges(&alone), [name], "{alone}");
            assert_eq!(ranges(&both), [name, "SDR"], "{both}");
        }
    }
}

#[test]
fn media_playlists_keep_the_rules() {
    for seconds in [13, 40, 601] {
        let film = film(seconds, 50);
        for rendition in &film.renditions {
            let text = media_playlist(&of(&film), &listed(rendition));
            check(&rendition.name, &text, &ALL);
            check(&rendition.name, &text, &MEDIA);
        }
        let text = picture_playlist(&of(&film), &listed(&film.renditions[0])).unwrap();
        check("pictures", &text, &ALL);
        check("pictures", &text, &MEDIA);
        assert!(text.contains("#EXT-X-I-FRAMES-ONLY\n"));
        assert_eq!(
            picture_playlist(&of(&film), &listed(&film.renditions[1])),
            None
        );
    }
}

/// A transport stream of forty seconds, with a picture that can be shown alone every two.
fn stream() -> Segmented {
    let mut scanner = Scanner::new(ScanOptions::default());
    let pictures = synth::pictures(&[(10, 2000); 20], 27_000);
    scanner.push(&pictures).unwrap();
    Segmented::new(&scanner.finish().unwrap(), true, |_| None).unwrap()
}

#[test]
fn pictures_of_a_stream_are_ranges_of_its_segments() {
    let film = stream();
    let of = of(&film);
    let main = main_playlist(&of);
    check("multivariant", &main, &ALL);
    assert!(main.contains("\nstream/index.m3u8\n"), "{main}");
    assert!(main.contains(",URI=\"stream/iframes.m3u8\"\n"), "{main}");
    assert!(
        !main.contains("CODECS"),
        "what is not known is not told: {main}"
    );
    let text = picture_playlist(&of, &listed(&film.renditions[0])).unwrap();
    check("pictures", &text, &ALL);
    assert!(text.contains("#EXT-X-VERSION:6\n") && text.contains("#EXT-X-I-FRAMES-ONLY\n"));
    let map = format!("#EXT-X-MAP:URI=\"{VERSION}/1.ts\",BYTERANGE=\"376@0\"\n");
    assert!(text.contains(&map), "{text}");
    // Segments of six seconds, of which the first begins with the tables of the file, too.
    let first = format!("#EXTINF:2.400000,\n#EXT-X-BYTERANGE:1880@752\n{VERSION}/1.ts\n");
    assert!(text.contains(&first), "{text}");
    let fourth = format!("#EXTINF:2.000000,\n#EXT-X-BYTERANGE:1880@376\n{VERSION}/2.ts\n");
    assert!(text.contains(&fourth), "{text}");
    assert_eq!(durations(&text).len(), 20);
    let sum: f64 = durations(&text).iter().sum();
    assert!((sum - 40.4).abs() < 0.1, "{sum}");
}

/// One that no picture can be taken out of has nothing to choose between.
#[test]
fn a_stream_without_pictures_has_one_playlist() {
    let mut scanner = Scanner::new(ScanOptions::default());
    scanner
        .push(&synth::constant_rate(2000, 0, 270_000))
        .unwrap();
    let film = Segmented::new(&scanner.finish().unwrap(), true, |_| None).unwrap();
    let text = main_playlist(&of(&film));
    check("a transport stream", &text, &ALL);
    check("a transport stream", &text, &MEDIA);
    assert_eq!(
        picture_playlist(&of(&film), &listed(&film.renditions[0])),
        None
    );
}

#[test]
fn durations_add_up_to_that_of_the_film() {
    let film = film(601, 50);
    for rendition in &film.renditions {
        let text = media_playlist(&of(&film), &listed(rendition));
        let sum: f64 = durations(&text).iter().sum();
        let frame = 1024.0 / 48_000.0;
        assert!((601.0..601.0 + frame).contains(&(sum + 1e-6)), "{sum}");
    }
}

/// Where sound begins late, its first segment is longer than those of pictures.
#[test]
fn all_renditions_of_a_film_have_one_target() {
    let film = testing::late_sound();
    let longest = |text: &str| durations(text).into_iter().fold(0.0, f64::max).round();
    let texts = film
        .renditions
        .iter()
        .map(|it| media_playlist(&of(&film), &listed(it)));
    let texts: Vec<_> = texts.collect();
    assert_eq!(
        (longest(&texts[0]), longest(&texts[1])),
        (6.0, 7.0),
        "{texts:?}"
    );
    let is_7 = |text: &String| text.contains("#EXT-X-TARGETDURATION:7\n");
    assert!(texts.iter().all(is_7), "{texts:?}");
}

/// The second picture lasts 1,499,999.7 us, and ends 1,500,000 us behind the first, both rounded.
#[test]
fn what_is_rounded_is_not_beyond_the_target() {
    let film = stills(3_000_000, &[3_000_001, 4_499_999, 3_000_000]);
    let film = of(&film);
    let text = picture_playlist(&film, &film.renditions[0]).unwrap();
    assert!(text.contains("#EXTINF:1.500000,\n"), "{text}");
    check("pictures", &text, &MEDIA);
}

/// Times of a file may be beyond those that 64 bits of nanoseconds tell.
#[test]
fn playlists_of_centuries_keep_the_rules() {
    let film = stills(1000, &[u32::MAX; 6000]);
    let lasts_s = u64::from(u32::MAX) / 1000 * 6000;
    assert!(lasts_s > u64::MAX / 1_000_000_000);
    let film = of(&film);
    check(
        "centuries",
        &media_playlist(&film, &film.renditions[0]),
        &MEDIA,
    );
    let text = picture_playlist(&film, &film.renditions[0]).unwrap();
    check("pictures of centuries", &text, &MEDIA);
}

#[test]
fn what_goes_on_has_no_end_and_begins_at_its_start() {
    let mut film = film(40, 50);
    film.is_complete = false;
    let text = media_playlist(&of(&film), &listed(&film.renditions[0]));
    assert!(text.contains("#EXT-X-PLAYLIST-TYPE:EVENT\n"), "{text}");
    assert!(
        text.contains("#EXT-X-START:TIME-OFFSET=0,PRECISE=YES\n"),
        "{text}"
    );
    assert!(!text.contains("ENDLIST"), "{text}");
}

/// FFmpeg, VLC and GStreamer begin at the third from the end of what goes on.
#[test]
fn no_more_is_listed_than_is_to_be() {
    let mut film = film(40, 50);
    film.is_complete = false;
    let mut film = of(&film);
    let rendition = film.renditions[0].clone();
    let all = media_playlist(&film, &rendition);
    assert!(durations(&all).len() > 3, "{all}");
    film.listed_max = 3;
    let text = media_playlist(&film, &rendition);
    assert_eq!(durations(&text).len(), 3, "{text}");
    // As before, so that it goes on where this ends.
    assert!(all.starts_with(&text), "{text}");
}

#[test]
fn names_are_made_fit_to_stand_between_quotes() {
    let text = main_playlist(&of(&film(40, 50)));
    assert!(
        text.contains(",NAME=\"en\",LANGUAGE=\"en\",DEFAULT=YES"),
        "{text}"
    );
    assert!(
        text.contains(",NAME=\"Le 'commentaire'<b>&\",LANGUAGE=\"fr\",DEFAULT=NO"),
        "{text}"
    );
}

#[test]
fn tracks_of_sound_alone_are_variants() {
    let mut film = film(40, 50);
    film.renditions.remove(0);
    let text = main_playlist(&of(&film));
    assert!(
        text.ends_with(",CODECS=\"mp4a.40.2\",AUDIO=\"audio1\"\naudio/index.m3u8\n"),
        "{text}"
    );
    film.renditions.pop();
    let text = main_playlist(&of(&film));
    assert!(!text.contains("EXT-X-MEDIA:"), "{text}");
    assert!(
        text.ends_with(",CODECS=\"mp4a.40.2\"\naudio/index.m3u8\n"),
        "{text}"
    );
}

#[test]
fn playlists_of_100_hours_are_below_3_mib() {
    let film = film(360_000 / 25, 50);
    // As many segments as 100 hours have, each a quarter of a second long here.
    let text = media_playlist(&of(&film), &listed(&film.renditions[0]));
    let each = text.len() / film.renditions[0].segments();
    assert!(
        each * crate::media::segments::SEGMENTS_MAX < 3 << 20,
        "{each}"
    );
}

#[test]
fn a_change_of_the_time_base_is_told_in_front_of_what_follows() {
    let pictures = || synth::pictures(&[(10, 2000); 10], 27_000);
    let mut evening = pictures();
    synth::shift_clock(&mut evening, |_| 3600 * PCR_HZ);
    let mut scanner = Scanner::new(ScanOptions::default());
    scanner.push(&evening).unwrap();
    scanner.push(&pictures()).unwrap();
    let film = Segmented::new(&scanner.finish().unwrap(), true, |_| None).unwrap();
    let of = of(&film);
    let rendition = &film.renditions[0];
    let [number] = rendition.breaks() else {
        panic!("{:?}", rendition.breaks());
    };
    let text = media_playlist(&of, &listed(rendition));
    check("media", &text, &MEDIA);
    let of_pictures = picture_playlist(&of, &listed(rendition)).unwrap();
    for text in [text, of_pictures] {
        let (before, after) = text.split_once("#EXT-X-DISCONTINUITY\n#EXTINF:").unwrap();
        let is_first = |line: &str| line.ends_with(&format!("/{number}.ts"));
        assert!(!before.lines().any(is_first), "{text}");
        assert!(
            after
                .lines()
                .find(|it| it.contains(".ts"))
                .is_some_and(is_first),
            "{text}"
        );
        assert!(!after.contains("DISCONTINUITY"), "{text}");
    }
}

#[test]
fn how_long_a_text_becomes_is_known_before_it_is_written() {
    let (film, query) = (film(600, 50), format!("?token={}", "a".repeat(2000)));
    let film = Presentation::new(&[(&film, VERSION)], &query);
    let (rendition, of_video) = ("video", film.rendition("video").unwrap());
    let texts = [
        (Resource::Main, main_playlist(&film)),
        (
            Resource::Media { rendition },
            media_playlist(&film, of_video),
        ),
        (
            Resource::Pictures { rendition },
            picture_playlist(&film, of_video).unwrap(),
        ),
        (Resource::Manifest, dash::manifest(&film).unwrap()),
    ];
    for (of, text) in texts {
        let (bytes, is) = (film.text_bytes(&of), text.len());
        assert!((is..4 * is).contains(&bytes), "{of:?}: {bytes}, not {is}");
    }
}
