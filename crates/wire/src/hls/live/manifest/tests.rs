//! Manifests of live channels against the rules of ISO/IEC 23009-1.

use std::collections::BTreeMap;

use roxmltree::{Document, Node};

use super::super::tests::{
    FIRST, FIRST_TICKS, describe, part, part_after, segment, segment_after, segment_behind, window,
};
use super::*;
use crate::media::live::Output;

/// A rule: where it is, what it says, whether a manifest keeps it, and how one is spoilt that does.
type Rule = (
    &'static str,
    &'static str,
    fn(Node<'_, '_>) -> bool,
    fn(&str) -> String,
);

fn named<'a, 'i>(node: Node<'a, 'i>, name: &'static str) -> Vec<Node<'a, 'i>> {
    node.descendants()
        .filter(|it| it.has_tag_name(name))
        .collect()
}

fn number(node: Node<'_, '_>, name: &str) -> i64 {
    let value = node.attribute(name).and_then(|it| it.parse().ok());
    value.unwrap_or(0)
}

/// An XML Schema duration of seconds alone, in ms.
fn ms(node: Node<'_, '_>, name: &str) -> Option<i64> {
    let seconds = node
        .attribute(name)?
        .strip_prefix("PT")?
        .strip_suffix('S')?;
    let (whole, thousandths) = seconds.split_once('.')?;
    let is_sound = thousandths.len() == 3;
    let ms = whole.parse::<i64>().ok()?.checked_mul(1000)? + thousandths.parse::<i64>().ok()?;
    is_sound.then_some(ms)
}

/// The segments of a template: when each begins and how long it lasts.
fn times(template: Node<'_, '_>) -> Vec<(i64, i64)> {
    let (mut times, mut at) = (Vec::new(), 0);
    for row in named(template, "S") {
        at = row.attribute("t").map_or(at, |_| number(row, "t"));
        for _ in 0..=number(row, "r") {
            times.push((at, number(row, "d")));
            at += number(row, "d");
        }
    }
    times
}

fn are_unique(nodes: &[Node<'_, '_>]) -> bool {
    let mut ids: Vec<_> = nodes.iter().map(|it| it.attribute("id")).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    ids.len() == all && !ids.contains(&None)
}

const RULES: [Rule; 14] = [
    (
        "5.3.1.2",
        "what goes on says since when it is available, and of when it is",
        |mpd| {
            let is_time = |name| {
                let value: Option<&str> = mpd.attribute(name);
                value.is_some_and(|it| it.len() >= 20 && it.ends_with('Z'))
            };
            mpd.attribute("type") == Some("dynamic")
                && is_time("availabilityStartTime")
                && is_time("publishTime")
        },
        |text| text.replace("publishTime", "publishedTime"),
    ),
    (
        "5.3.1.2",
        "it says when to ask again",
        |mpd| ms(mpd, "minimumUpdatePeriod").is_some_and(|it| it > 0),
        |text| text.replace("minimumUpdatePeriod=\"PT", "minimumUpdatePeriod=\""),
    ),
    (
        "5.3.1.2",
        "it has no end that it could know",
        |mpd| mpd.attribute("mediaPresentationDuration").is_none(),
        |text| {
            text.replace(
                "minBufferTime",
                "mediaPresentationDuration=\"PT9S\" minBufferTime",
            )
        },
    ),
    (
        "5.3.1.2",
        "it names its profiles and a buffer",
        |mpd| {
            let profiles = mpd.attribute("profiles").unwrap_or_default();
            profiles.contains("urn:mpeg:dash:profile:isoff-live:2011")
                && ms(mpd, "minBufferTime").is_some()
        },
        |text| text.replace("minBufferTime=\"PT2.000S\"", "minBufferTime=\"2 s\""),
    ),
    (
        "5.3.1.2",
        "no segment is longer than the longest",
        |mpd| {
            let longest = ms(mpd, "maxSegmentDuration").unwrap_or(0);
            named(mpd, "SegmentTemplate").into_iter().all(|it| {
                let scale = number(it, "timescale").max(1);
                times(it)
                    .iter()
                    .all(|(_, lasts)| lasts * 1000 / scale <= longest)
            })
        },
        |text| text.replacen(" d=\"", " d=\"9", 1),
    ),
    (
        "5.3.1.2",
        "what may be gone back to is listed",
        |mpd| {
            let depth = ms(mpd, "timeShiftBufferDepth").unwrap_or(i64::MAX);
            let periods = named(mpd, "Period");
            let of = |period: Node<'_, '_>| {
                let template = named(period, "SegmentTemplate")[0];
                let (scale, times) = (number(template, "timescale").max(1), times(template));
                let offset = number(template, "presentationTimeOffset");
                let starts = ms(period, "start").unwrap_or(0);
                let at = |ticks: i64| starts + (ticks - offset) * 1000 / scale;
                (at(times[0].0), times.last().map_or(0, |it| at(it.0 + it.1)))
            };
            let span = of(periods[periods.len() - 1]).1 - of(periods[0]).0;
            // From the channel's beginning on there may be less; and all is rounded.
            let first = named(mpd, "SegmentTemplate")[0];
            times(first)[0].0 == FIRST_TICKS || span + 10 >= depth
        },
        |text| {
            text.replace("timeShiftBufferDepth=\"PT", "timeShiftBufferDepth=\"PT9")
                .replacen("<S t=\"", "<S t=\"9", 1)
        },
    ),
    (
        "5.3.2.2",
        "periods have names, and begin one after the other",
        |mpd| {
            let periods = named(mpd, "Period");
            let starts: Vec<_> = periods.iter().map(|it| ms(*it, "start")).collect();
            are_unique(&periods) && starts.is_sorted() && starts[0].is_some()
        },
        |text| text.replacen("<Period id=\"", "<Period number=\"", 1),
    ),
    (
        "5.3.3.2",
        "sets of a period have names, and say what is in them",
        |mpd| {
            named(mpd, "Period").into_iter().all(|period| {
                let sets = named(period, "AdaptationSet");
                let says = |it: &Node<'_, '_>| {
                    let kind = it.attribute("contentType").unwrap_or_default();
                    it.attribute("mimeType") == Some(&*format!("{kind}/mp4"))
                };
                !sets.is_empty() && are_unique(&sets) && sets.iter().all(says)
            })
        },
        |text| text.replacen("AdaptationSet id=\"2\"", "AdaptationSet id=\"1\"", 1),
    ),
    (
        "5.3.5.2",
        "representations of a period have names, a rate and a codec",
        |mpd| {
            named(mpd, "Period").into_iter().all(|period| {
                let all = named(period, "Representation");
                let is_told = |it: &Node<'_, '_>| {
                    number(*it, "bandwidth") > 0
                        && it
                            .attribute("codecs")
                            .is_some_and(|codecs| !codecs.is_empty())
                };
                are_unique(&all) && all.iter().all(is_told)
            })
        },
        |text| text.replacen("bandwidth=\"", "bandwidth=\"-", 1),
    ),
    (
        "5.3.9.6.2",
        "segments last for some time, and none begins before another ends",
        |mpd| {
            named(mpd, "SegmentTemplate").into_iter().all(|it| {
                let times = times(it);
                let follow = times.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0);
                !times.is_empty() && follow && times.iter().all(|it| it.1 > 0)
            })
        },
        |text| text.replacen("<S t=\"", "<S t=\"1\" d=\"99999999\"/>\n<S t=\"", 1),
    ),
    (
        "5.3.9.4.4",
        "templates have the segment's time, and nothing that nobody knows",
        |mpd| {
            named(mpd, "SegmentTemplate").into_iter().all(|it| {
                let known = |name: &str| {
                    let value = it.attribute(name).unwrap_or_default();
                    let parts: Vec<_> = value.split('$').skip(1).step_by(2).collect();
                    parts.join(" ")
                };
                known("media") == "RepresentationID Time"
                    && known("initialization") == "RepresentationID"
                    && it.attribute("startNumber").is_none()
            })
        },
        |text| text.replacen("$Time$", "$Zeit$", 1),
    ),
    (
        "5.3.9.2.2",
        "a period begins where its segments do, or before them when those are gone",
        |mpd| {
            named(mpd, "SegmentTemplate").into_iter().all(|it| {
                let scale = number(it, "timescale").max(1);
                let begins = times(it)[0].0 - number(it, "presentationTimeOffset");
                // Sound may begin a frame before.
                begins * 10 >= -scale
            })
        },
        |text| text.replacen("presentationTimeOffset=\"", "presentationTimeOffset=\"9", 1),
    ),
    (
        "5.3.1.2",
        "players stay behind the newest, and within what is listed",
        |mpd| {
            let delay = ms(mpd, "suggestedPresentationDelay").unwrap_or(0);
            let longest = named(mpd, "S").into_iter().map(|it| number(it, "d")).max();
            delay >= longest.unwrap_or(0) * 1000 / i64::from(super::super::tests::TIMESCALE)
        },
        |text| {
            text.replace(
                "suggestedPresentationDelay=\"PT9",
                "suggestedPresentationDelay=\"PT0",
            )
        },
    ),
    (
        "5.8.4.11",
        "what is wanted by the clock says which clock",
        |mpd| {
            let timing = named(mpd, "UTCTiming");
            let is_one = |it: &Node<'_, '_>| {
                it.attribute("schemeIdUri") == Some("urn:mpeg:dash:utc:http-iso:2014")
                    && it
                        .attribute("value")
                        .is_some_and(|it| it.starts_with("time.txt"))
            };
            timing.len() == 1 && timing.iter().all(is_one)
        },
        |text| text.replace("UTCTiming", "NTPTiming"),
    ),
];

/// Windows of all kinds: young, old, with discontinuities, with few bytes.
fn manifests() -> Vec<String> {
    let mut all = Vec::new();
    for (window_s, bytes_max) in [(60, 1 << 20), (20, 1 << 20), (3600, 4000)] {
        let mut window = window(window_s, bytes_max);
        for round in 0..4_u8 {
            (0..5).for_each(|_| segment(&mut window, 100));
            // One of pictures is whole, the one of sound not yet.
            part(&mut window, 0, 10);
            window.apply(Output::SegmentEnd { rendition: 0 });
            part(&mut window, 1, 10);
            all.push(window.manifest("?k=1&l=2").unwrap());
            window.apply(Output::SegmentEnd { rendition: 1 });
            (0..2).for_each(|rendition| {
                window.apply(Output::Break {
                    rendition,
                    breaks: 1,
                });
            });
            describe(&mut window, 0, round + 7);
            segment_after(&mut window, 100, 5);
            all.push(window.manifest("").unwrap());
        }
    }
    all
}

#[test]
fn manifests_keep_the_rules() {
    for text in manifests() {
        let document = Document::parse(&text).unwrap();
        for (section, rule, keeps, spoilt) in &RULES {
            assert!(keeps(document.root_element()), "{section}: {rule}\n{text}");
            let spoilt = spoilt(&text);
            let broken = Document::parse(&spoilt).map(|it| keeps(it.root_element()));
            assert!(
                !broken.unwrap_or(false),
                "{section}: {rule}: is not seen\n{spoilt}"
            );
        }
    }
}

/// When the window of the tests begins, which `availabilityStartTime` is to say.
const EPOCH_US: i64 = 1_700_000_000_123_000;

/// What a player reckons of a manifest: of each URL when it is shown, in us since 1970.
fn shown(text: &str) -> BTreeMap<String, i64> {
    let document = Document::parse(text).unwrap();
    let mut shown = BTreeMap::new();
    for period in named(document.root_element(), "Period") {
        for of in named(period, "Representation") {
            let template = named(of, "SegmentTemplate")[0];
            let scale = number(template, "timescale");
            for (start, _) in times(template) {
                let media = template.attribute("media").unwrap();
                let url = media.replace("$RepresentationID$", of.attribute("id").unwrap());
                let url = url.replace("$Time$", &start.to_string());
                let within = start - number(template, "presentationTimeOffset");
                let starts_us = ms(period, "start").unwrap() * 1000;
                let us = EPOCH_US + starts_us + within * 1_000_000 / scale;
                shown.insert(url, us);
            }
        }
    }
    shown
}

#[test]
fn a_segment_is_shown_when_it_says_in_every_manifest() {
    let mut window = window(20, 1 << 20);
    let mut known = BTreeMap::new();
    for round in 0..60_u8 {
        segment(&mut window, 100);
        if round % 9 == 8 {
            (0..2).for_each(|rendition| {
                window.apply(Output::Break {
                    rendition,
                    breaks: 1,
                });
            });
            describe(&mut window, 0, round);
            segment_after(&mut window, 100, 5);
        }
        let manifest = window.manifest("").unwrap();
        assert!(
            manifest.contains("availabilityStartTime=\"2023-11-14T22:13:20.123Z\""),
            "{manifest}"
        );
        let now = shown(&manifest);
        let videos = listed(&window.renditions[0]);
        for segment in videos.clone() {
            let (version, starts_ticks) = (segment.version, segment.starts_ticks);
            let url = format!("../hls/video/{version}/t{starts_ticks}.m4s");
            let apart = (now[&url] - segment.starts_unix_ns / 1000).abs();
            assert!(apart < 100, "{url}: {apart} us");
        }
        let is_of = |it: &&String| it.starts_with("../hls/video/");
        assert_eq!(now.keys().filter(is_of).count(), videos.count());
        for (url, us) in now {
            let before = *known.entry(url.clone()).or_insert(us);
            assert!((before - us).abs() <= 100, "{url}: {before} and {us}");
        }
    }
    assert_eq!(known.len(), 2 * (60 + 6), "of both renditions");
}

#[test]
fn a_period_begins_when_it_has_sound() {
    let mut window = window(60, 1 << 20);
    segment(&mut window, 100);
    (0..2).for_each(|rendition| {
        window.apply(Output::Break {
            rendition,
            breaks: 1,
        });
    });
    let pictures = |window: &mut Window| {
        part(window, 0, 10);
        window.apply(Output::SegmentEnd { rendition: 0 });
        window.manifest("").unwrap().matches("<Period ").count()
    };
    assert_eq!(pictures(&mut window), 1);
    part(&mut window, 1, 10);
    window.apply(Output::SegmentEnd { rendition: 1 });
    let text = window.manifest("").unwrap();
    assert_eq!(text.matches("<Period ").count(), 2);
    assert_eq!(text.matches("<AdaptationSet ").count(), 4);
    // Sound that does not come is not waited for.
    (0..2).for_each(|rendition| {
        window.apply(Output::Break {
            rendition,
            breaks: 1,
        });
    });
    assert_eq!(pictures(&mut window), 2);
    assert_eq!(pictures(&mut window), 3);
}

/// The periods of a manifest that keeps the rules: how each is called and where it begins, and
/// whether it has pictures and sound.
fn periods(window: &Window) -> Vec<(String, [bool; 2])> {
    let text = window.manifest("").unwrap();
    let document = Document::parse(&text).unwrap();
    for (section, rule, keeps, _) in &RULES {
        assert!(keeps(document.root_element()), "{section}: {rule}\n{text}");
    }
    let periods = named(document.root_element(), "Period").into_iter();
    let periods = periods.map(|period| {
        let sets = named(period, "AdaptationSet");
        let has = |kind| {
            let mut sets = sets.iter();
            sets.any(|it| it.attribute("contentType") == Some(kind))
        };
        let told = ["id", "start"].map(|name| period.attribute(name).unwrap());
        (told.join(" "), ["video", "audio"].map(has))
    });
    periods.collect()
}

/// A microphone that is muted, or a camera that sends sound alone. Players keep to what a period
/// had when they met it: some fail where something of it is gone, and others wait for that.
#[test]
fn a_pause_ends_a_period_and_changes_none() {
    for (paused, alone) in [(0, [false, true]), (1, [true, false])] {
        let mut window = window(30, 1 << 20);
        segment(&mut window, 100);
        // 9.6 s behind, and 12.8 s.
        (0..3).for_each(|_| segment_behind(&mut window, 1 - paused, 0));
        let before = periods(&window);
        assert_eq!(before, [("1000 PT0.000S".to_owned(), [true; 2])]);
        segment_behind(&mut window, 1 - paused, 0);
        let now = periods(&window);
        let next = ("1000.3200 PT3.200S".to_owned(), alone);
        assert_eq!(now, [before[0].clone(), next.clone()]);
        // For as long as the pause lasts; what was before leaves the window.
        for _ in 0..36 {
            segment_behind(&mut window, 1 - paused, 0);
            let later = periods(&window);
            assert!(later == now || later == now[1..], "{later:?}");
        }
        assert_eq!(periods(&window), now[1..]);
        // It is back behind a discontinuity, 40 segments later.
        for rendition in 0..2 {
            let breaks = 1;
            window.apply(Output::Break { rendition, breaks });
            let gap_s = if rendition == paused { 128 } else { 0 };
            part_after(&mut window, rendition, 10, gap_s);
            window.apply(Output::SegmentEnd { rendition });
            let back = periods(&window);
            assert_eq!(back[0], next);
            assert_eq!(back.len(), 1 + rendition, "with both: {back:?}");
        }
        let back = periods(&window);
        assert_eq!(back[1], ("1001 PT131.200S".to_owned(), [true; 2]));
    }
}

/// A publisher that comes back after a minute: its sound may be there a moment before its pictures.
#[test]
fn sound_behind_a_gap_is_alone_only_if_pictures_stay_away() {
    let both = |told: &str| (told.to_owned(), [true; 2]);
    for comes_back in [true, false] {
        let mut window = window(300, 1 << 20);
        segment(&mut window, 100);
        let begin = |window: &mut Window, rendition| {
            let breaks = 1;
            window.apply(Output::Break { rendition, breaks });
            part_after(window, rendition, 10, 60);
            window.apply(Output::SegmentEnd { rendition });
        };
        begin(&mut window, 1);
        let before = periods(&window);
        assert_eq!(before, [both("1000 PT0.000S")]);
        if comes_back {
            begin(&mut window, 0);
            let next = both("1001 PT63.200S");
            assert_eq!(periods(&window), [before[0].clone(), next]);
            continue;
        }
        // 9.9 s behind the gap, and 13.1 s.
        (0..4).for_each(|_| segment_behind(&mut window, 1, 0));
        assert_eq!(periods(&window), before);
        segment_behind(&mut window, 1, 0);
        let next = ("1001.63200 PT63.200S".to_owned(), [false, true]);
        assert_eq!(periods(&window), [before[0].clone(), next]);
    }
}

/// As a player asks that goes by a manifest, or by what it has reckoned of one.
#[test]
fn a_segment_is_found_by_the_time_at_which_it_begins() {
    let mut window = window(20, 1 << 20);
    segment(&mut window, 100);
    segment(&mut window, 100);
    let version = window.renditions[0].version();
    let lasts_ticks = window.renditions[0].segments[0].ticks.cast_unsigned();
    let begins = |number: u64| FIRST_TICKS.cast_unsigned() + number * lasts_ticks;
    let asked = |window: &Window, ticks| {
        let found = window.number_at("video", version, ticks);
        (found, window.may_begin_at("video", version, ticks))
    };
    assert_eq!(asked(&window, begins(0)), (Some(FIRST), false));
    assert_eq!(asked(&window, begins(1)), (Some(FIRST + 1), false));
    for ticks in [0, begins(1) - 1, begins(1) + 1, begins(2) - 1] {
        assert_eq!(asked(&window, ticks), (None, false), "{ticks}");
    }
    part(&mut window, 0, 10);
    for ticks in [begins(2), begins(9), u64::MAX] {
        assert_eq!(asked(&window, ticks), (None, true), "{ticks}");
    }
    window.apply(Output::SegmentEnd { rendition: 0 });
    assert_eq!(asked(&window, begins(2)), (Some(FIRST + 2), false));
    // What comes is of another version.
    describe(&mut window, 0, 9);
    assert_eq!(asked(&window, begins(9)), (None, false));
    assert_eq!(window.number_at("none", version, begins(0)), None);
    assert!(!window.may_begin_at("none", version, begins(9)));
}

/// The target duration is one of rounded durations.
#[test]
fn the_longest_segment_may_be_longer_than_the_target() {
    let mut window = window(60, 1 << 20);
    segment(&mut window, 100);
    let has = |window: &Window, longest: &str| {
        let manifest = window.manifest("").unwrap();
        manifest.contains(&format!(" maxSegmentDuration=\"PT{longest}S\" "))
    };
    assert!(has(&window, "4.000"));
    (0..13).for_each(|_| part(&mut window, 1, 10));
    window.apply(Output::SegmentEnd { rendition: 1 });
    assert!(has(&window, "4.160"));
}

#[test]
fn there_is_none_before_the_first_segment() {
    let mut window = window(20, 1 << 20);
    part(&mut window, 0, 10);
    assert_eq!(window.manifest(""), None);
}
