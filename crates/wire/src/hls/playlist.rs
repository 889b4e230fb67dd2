//! The text of playlists (RFC 8216bis, section 4).

use std::fmt::Write;

use super::presentation::quotable;
use super::sounds::{Group, Sound, groups, sounds};
use super::{Listed, Presentation, texts};
use crate::media::VideoRange;
use crate::media::segments::{Format, Rates, Rendition};

/// The version that playlists of pictures need at the least, which have an EXT-X-MAP (section 8).
const PICTURES_VERSION: u8 = 6;

/// In front of what has another time base than what is before it (section 4.4.4.3).
const DISCONTINUITY: &str = "#EXT-X-DISCONTINUITY\n";

/// The playlist that names a film's others; of a transport stream without pictures that can be
/// shown alone, which is one rendition, the playlist of that.
#[must_use]
pub fn main_playlist(film: &Presentation<'_>) -> String {
    match &film.renditions[..] {
        [only] if only.of.format() == Format::Ts && only.of.picture_rates().is_none() => {
            let folder = format!("{}/{}", only.name, only.version);
            media_text(film, only.of, &folder)
        }
        _ => multivariant(film),
    }
}

/// The playlist of one of a film's renditions.
#[must_use]
pub fn media_playlist(film: &Presentation<'_>, rendition: &Listed<'_>) -> String {
    media_text(film, rendition.of, &rendition.version.to_string())
}

/// The playlist of the pictures of a rendition that are shown alone (section 4.4.3.6); `None` if it
/// has none.
#[must_use]
pub fn picture_playlist(film: &Presentation<'_>, rendition: &Listed<'_>) -> Option<String> {
    let (version, query, rendition) = (rendition.version, film.query, rendition.of);
    let pictures = rendition.pictures();
    let ends = pictures.iter().scan(0_i64, |end_ticks, picture| {
        *end_ticks = end_ticks.saturating_add(picture.lasts_ticks);
        Some(*end_ticks)
    });
    let lasts_us = between(ends, rendition.timescale);
    let longest_us = *lasts_us.iter().max()?;
    let protocol = version_of(rendition.format()).max(PICTURES_VERSION);
    let mut out = head(protocol, longest_us, film.is_complete);
    out += "#EXT-X-I-FRAMES-ONLY\n";
    let map = match rendition.init_bytes() {
        Some(bytes) => format!("{version}/1.ts{query}\",BYTERANGE=\"{bytes}@0\""),
        None => format!("{version}/init.mp4{query}\""),
    };
    line(&mut out, format_args!("#EXT-X-MAP:URI=\"{map}"));
    let mut passed = 0;
    for (picture, lasts_us) in pictures.iter().zip(lasts_us) {
        let (number, lasts) = (picture.number, seconds(lasts_us));
        let segment = picture.part.map_or(0, |part| part.segment);
        let before = rendition.breaks().partition_point(|it| *it <= segment);
        // As many as segments have: players match playlists by how many there were.
        out += &DISCONTINUITY.repeat(before.saturating_sub(passed));
        passed = before;
        line(&mut out, format_args!("#EXTINF:{lasts},"));
        match picture.part {
            Some(part) => line(
                &mut out,
                format_args!(
                    "#EXT-X-BYTERANGE:{}@{}\n{version}/{}.ts{query}",
                    part.bytes, part.offset, part.segment
                ),
            ),
            None => line(&mut out, format_args!("{version}/i{number}.m4s{query}")),
        }
    }
    end(&mut out, film.is_complete);
    Some(out)
}

fn multivariant(film: &Presentation<'_>) -> String {
    let mut out = "#EXTM3U\n#EXT-X-VERSION:7\n".to_owned();
    if film.renditions.iter().all(|it| it.of.is_independent) {
        out += "#EXT-X-INDEPENDENT-SEGMENTS\n";
    }
    for it in film.not_aligned() {
        let name = &it.name;
        line(
            &mut out,
            format_args!("# {name}: its segments begin at other times than those of video"),
        );
    }
    let query = film.query;
    let sounds = sounds(film);
    let groups = groups(&sounds);
    let has_pictures = film.pictures().next().is_some();
    let tracks: usize = sounds.iter().map(|it| it.tracks.len()).sum();
    let is_named = has_pictures || tracks > 1;
    for group in groups.iter().filter(|_| is_named) {
        for (at, &(number, track)) in group.tracks.iter().enumerate() {
            let is_default = at == group.default;
            sound(
                &mut out,
                (group, query),
                (&sounds[number], is_default),
                track,
            );
        }
    }
    texts::media(&mut out, film);
    let has_high = film.video_ranges().any(VideoRange::is_high);
    let of_all = (query, !film.texts.is_empty(), has_high);
    for pictures in film.pictures() {
        match &groups[..] {
            [] => variant(&mut out, pictures, None, of_all),
            groups => groups
                .iter()
                .for_each(|it| variant(&mut out, pictures, Some(it), of_all)),
        }
    }
    for group in groups.iter().filter(|_| !has_pictures) {
        if let Some(&(_, track)) = group.tracks.get(group.default) {
            variant(&mut out, track, Some(group).filter(|_| is_named), of_all);
        }
    }
    for pictures in film.pictures() {
        picture_variant(&mut out, pictures, (query, has_high));
    }
    out
}

/// EXT-X-MEDIA (section 4.4.6.1) of a track of a group.
fn sound(
    out: &mut String,
    (group, query): (&Group<'_>, &str),
    (of, is_default): (&Sound<'_>, bool),
    it: &Listed<'_>,
) {
    let (id, name) = (&group.id, &of.name);
    write!(
        out,
        "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{id}\",NAME=\"{name}\""
    )
    .expect("text");
    if let Some(language) = &of.language {
        write!(out, ",LANGUAGE=\"{language}\"").expect("text");
    }
    let default = if is_default { "YES" } else { "NO" };
    write!(out, ",DEFAULT={default},AUTOSELECT=YES").expect("text");
    if let Some(channels) = it.of.channels {
        write!(out, ",CHANNELS=\"{channels}\"").expect("text");
    }
    line(out, format_args!(",URI=\"{}/index.m3u8{query}\"", it.name));
}

/// EXT-X-STREAM-INF (section 4.4.6.2) of pictures, or of sound alone, with a group of sound.
fn variant(
    out: &mut String,
    listed: &Listed<'_>,
    with: Option<&Group<'_>>,
    (query, has_texts, has_high): (&str, bool, bool),
) {
    let of = listed.of;
    let sounds = with.map_or(&[][..], |group| &group.tracks);
    let sounds = sounds.iter().map(|it| it.1);
    let others = sounds.filter(|it| it.name != listed.name);
    // Of several that may be played with it, the one that takes most.
    let most = others
        .map(|it| it.of.rates)
        .fold(Rates::default(), |most, it| Rates {
            peak_bps: most.peak_bps.max(it.peak_bps),
            mean_bps: most.mean_bps.max(it.mean_bps),
        });
    let Rates { peak_bps, mean_bps } = of.rates.and(most);
    write!(
        out,
        "#EXT-X-STREAM-INF:BANDWIDTH={peak_bps},AVERAGE-BANDWIDTH={mean_bps}"
    )
    .expect("text");
    let own = of.codec.as_deref();
    let mut codecs: Vec<_> = own.into_iter().collect();
    codecs.extend(with.map(|it| it.codec).filter(|it| own != Some(it)));
    if !codecs.is_empty() {
        write!(out, ",CODECS=\"{}\"", quotable(&codecs.join(","))).expect("text");
    }
    shape(out, of, has_high);
    if let Some(rate) = of.frame_rate {
        write!(out, ",FRAME-RATE={rate:.3}").expect("text");
    }
    if let Some(group) = with {
        write!(out, ",AUDIO=\"{}\"", group.id).expect("text");
    }
    if has_texts {
        write!(out, ",SUBTITLES=\"{}\"", texts::GROUP).expect("text");
    }
    line(out, format_args!("\n{}/index.m3u8{query}", listed.name));
}

/// EXT-X-I-FRAME-STREAM-INF (section 4.4.6.3).
fn picture_variant(out: &mut String, listed: &Listed<'_>, (query, has_high): (&str, bool)) {
    let of = listed.of;
    let Some(rates) = of.picture_rates() else {
        return;
    };
    let Rates { peak_bps, mean_bps } = rates;
    write!(
        out,
        "#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH={peak_bps},AVERAGE-BANDWIDTH={mean_bps}"
    )
    .expect("text");
    if let Some(codec) = &of.codec {
        write!(out, ",CODECS=\"{}\"", quotable(codec)).expect("text");
    }
    shape(out, of, has_high);
    line(
        out,
        format_args!(",URI=\"{}/iframes.m3u8{query}\"", listed.name),
    );
}

/// Size and dynamic range. A standard range is told beside a high one alone: untold, all are
/// standard.
fn shape(out: &mut String, of: &Rendition, has_high: bool) {
    if let Some((width, height)) = of.dimensions {
        write!(out, ",RESOLUTION={width}x{height}").expect("text");
    }
    if let Some(range) = of.video_range.filter(|_| has_high) {
        write!(out, ",VIDEO-RANGE={}", range.name()).expect("text");
    }
}

fn media_text(film: &Presentation<'_>, rendition: &Rendition, folder: &str) -> String {
    let query = film.query;
    let lasts_us = lasts_us(rendition);
    let longest_us = longest_us(film).max(lasts_us.iter().max().copied().unwrap_or(0));
    let protocol = version_of(rendition.format());
    let mut out = head(protocol, longest_us, film.is_complete);
    if rendition.is_independent {
        out += "#EXT-X-INDEPENDENT-SEGMENTS\n";
    }
    let ending = match rendition.format() {
        Format::Cmaf => {
            line(
                &mut out,
                format_args!("#EXT-X-MAP:URI=\"{folder}/init.mp4{query}\""),
            );
            "m4s"
        }
        Format::Ts => "ts",
    };
    for (number, lasts_us) in (1_u64..).zip(lasts_us).take(film.listed_max) {
        let lasts = seconds(lasts_us);
        if rendition.breaks().binary_search(&number).is_ok() {
            out += DISCONTINUITY;
        }
        line(
            &mut out,
            format_args!("#EXTINF:{lasts},\n{folder}/{number}.{ending}{query}"),
        );
    }
    end(&mut out, film.is_complete);
    out
}

/// How long each segment lasts, in us.
fn lasts_us(of: &Rendition) -> Vec<u64> {
    between(of.times().map(|(start, lasts)| start + lasts), of.timescale)
}

/// How long the longest segment of a film lasts, whichever rendition has it: the target duration
/// of all is one (RFC 8216, section 6.2.4).
fn longest_us(film: &Presentation<'_>) -> u64 {
    let longest = film
        .renditions
        .iter()
        .filter_map(|it| lasts_us(it.of).into_iter().max());
    longest.max().unwrap_or(0)
}

/// The version of the protocol that playlists of such segments need (section 8).
fn version_of(format: Format) -> u8 {
    match format {
        Format::Cmaf => 7,
        Format::Ts => 3,
    }
}

/// What all media playlists begin with.
fn head(version: u8, longest_us: u64, is_complete: bool) -> String {
    // The longest, rounded as players do who see whether that is so (section 4.4.3.1).
    let target = (longest_us.saturating_add(500_000) / 1_000_000).max(1);
    let kind = if is_complete { "VOD" } else { "EVENT" };
    // From 0 on, though URLs count from 1: yt-dlp takes another number for a live stream.
    let mut out = format!(
        "#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-TARGETDURATION:{target}\n\
         #EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:{kind}\n"
    );
    if !is_complete {
        // Players would begin at the end of what goes on.
        out += "#EXT-X-START:TIME-OFFSET=0,PRECISE=YES\n";
    }
    out
}

fn end(out: &mut String, is_complete: bool) {
    if is_complete {
        *out += "#EXT-X-ENDLIST\n";
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes all");
}

/// How long each lasts, in microseconds, of those that end there; the first counts from the
/// beginning on. What is rounded adds up to what it is in all, and none lasts no time.
fn between(ends: impl Iterator<Item = i64>, timescale: u32) -> Vec<u64> {
    let lengths = ends.scan(0_u64, |start_us, end| {
        let end_us = us(end, timescale);
        let lasts_us = end_us.saturating_sub(*start_us).max(1);
        *start_us = end_us;
        Some(lasts_us)
    });
    lengths.collect()
}

/// So many ticks in microseconds; no more than other times, which are in nanoseconds, can tell:
/// those of a file may be of centuries.
fn us(ticks: i64, timescale: u32) -> u64 {
    const US_MAX: u64 = u64::MAX / 1000;
    let us = i128::from(ticks.max(0)) * 1_000_000 / i128::from(timescale.max(1));
    u64::try_from(us).unwrap_or(US_MAX).min(US_MAX)
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

#[cfg(test)]
mod tests;
