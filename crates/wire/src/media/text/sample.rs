//! One sample of a text track: what is in it, of each format.

use std::ops::Range;

use super::{Cue, escaped};
use crate::media::codec::text::TextKind;

/// The cues of a sample. Matroska has the `settings` of WebVTT beside it.
pub(super) fn cues(
    kind: TextKind,
    sample: &[u8],
    settings: &str,
    times_ms: &Range<u64>,
) -> Vec<Cue> {
    let plain = |text: &str| Cue::new(times_ms.clone(), "", &escaped(text));
    let text = || String::from_utf8_lossy(sample);
    let one = match kind {
        TextKind::Timed => timed(sample).and_then(|it| plain(&it)),
        TextKind::BoxedWebVtt => return boxed(sample, times_ms),
        TextKind::WebVtt => Cue::new(times_ms.clone(), settings, &text()),
        TextKind::SubRip => Cue::new(times_ms.clone(), "", &subrip(&text())),
        TextKind::Ass => ass(&text()).and_then(|it| plain(&it)),
        TextKind::WebMVtt => of_webm(&text(), times_ms),
    };
    one.into_iter().collect()
}

/// The text of a sample of 3GPP timed text (section 5.17): UTF-8, or UTF-16 with its mark.
fn timed(sample: &[u8]) -> Option<String> {
    let (length, rest) = sample.split_first_chunk()?;
    let text = rest.get(..u16::from_be_bytes(*length).into())?;
    Some(match text {
        [0xfe, 0xff, text @ ..] => {
            let units = text.chunks_exact(2);
            let units = units.map(|it| u16::from_be_bytes([it[0], it[1]]));
            String::from_utf16_lossy(&units.collect::<Vec<_>>())
        }
        text => String::from_utf8_lossy(text).into_owned(),
    })
}

/// The cues of a sample of boxes (ISO/IEC 14496-30, section 7.4).
fn boxed(sample: &[u8], times_ms: &Range<u64>) -> Vec<Cue> {
    let cues = boxes(sample).filter(|(name, _)| name == b"vttc");
    let cues = cues.filter_map(|(_, cue)| {
        let of = |wanted: &[u8; 4]| {
            let mut found = boxes(cue).filter(|(name, _)| name == wanted);
            found.next().map(|(_, it)| String::from_utf8_lossy(it))
        };
        let settings = of(b"sttg").unwrap_or_default();
        Cue::new(times_ms.clone(), &settings, &of(b"payl")?)
    });
    cues.collect()
}

/// Boxes with a length of 32 bits.
fn boxes(mut bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (name, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let inside = rest.get(..length.checked_sub(8)?)?;
        bytes = &rest[inside.len()..];
        Some((*name, inside))
    })
}

/// The cue of a block of WebM ("WebVTT in WebM"): behind the lines of its identifier and of its
/// settings.
fn of_webm(block: &str, times_ms: &Range<u64>) -> Option<Cue> {
    let mut parts = block.splitn(3, '\n').skip(1);
    let (settings, text) = (parts.next()?, parts.next()?);
    Cue::new(times_ms.clone(), settings.trim_end_matches('\r'), text)
}

/// The text of an event of ASS: what is behind eight commas.
fn ass(event: &str) -> Option<String> {
    plain_event(event.splitn(9, ',').nth(8)?)
}

/// The text of an event, without its overrides; `None` of a drawing.
pub(super) fn plain_event(text: &str) -> Option<String> {
    // Shapes are drawn by words of a language of their own, at a scale from 1 on.
    let is_scale = |it: &str| it.starts_with(|first: char| matches!(first, '1'..='9'));
    if text.split("\\p").skip(1).any(is_scale) {
        return None;
    }
    let text = without_overrides(text);
    let text = text.replace("\\N", "\n").replace("\\n", "\n");
    Some(text.replace("\\h", " "))
}

/// Without what SubRip and ASS write as `{\...}`.
pub(super) fn without_overrides(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{\\") {
        let Some(end) = rest[at..].find('}') else {
            break;
        };
        out += &rest[..at];
        rest = &rest[at + end + 1..];
    }
    out + rest
}

/// A text of SubRip: bold, italic and underlined stay, and fonts go; what else is written between
/// `<` and `>` is text.
pub(super) fn subrip(text: &str) -> String {
    let text = without_overrides(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = &text[..];
    while let Some(at) = rest.find('<') {
        out += &escaped(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest
            .find(['<', '>'])
            .filter(|&it| rest[it..].starts_with('>'));
        let tag = end.and_then(|at| {
            let (tag, rest) = (&rest[..at], &rest[at + 1..]);
            let (end, tag) = tag.strip_prefix('/').map_or(("", tag), |it| ("/", it));
            let name = tag.split(' ').next()?.to_ascii_lowercase();
            match &*name {
                "b" | "i" | "u" => Some((format!("<{end}{name}>"), rest)),
                "font" | "s" => Some((String::new(), rest)),
                _ => None,
            }
        });
        out += match &tag {
            Some((tag, _)) => tag,
            None => "&lt;",
        };
        rest = tag.map_or(rest, |(_, rest)| rest);
    }
    out + &escaped(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::webvtt;
    use super::*;

    fn texts(kind: TextKind, sample: &[u8]) -> Vec<String> {
        let cues = cues(kind, sample, "", &(0..1000));
        cues.into_iter().map(|it| it.text).collect()
    }

    #[test]
    fn samples_of_each_kind_are_read() {
        assert_eq!(texts(TextKind::Timed, b"\0\x04a<b>style"), ["a&lt;b&gt;"]);
        assert_eq!(texts(TextKind::Timed, b"\0\x04\xfe\xff\0ax"), ["a"]);
        let none: [&str; 0] = [];
        for empty in [&b"\0\0"[..], b"\0\x09a", b"\0", b""] {
            assert_eq!(texts(TextKind::Timed, empty), none);
        }
        let cue = b"\0\0\0\x21vttc\0\0\0\x0esttgline:0\0\0\0\x0bpayl<i>";
        assert_eq!(texts(TextKind::BoxedWebVtt, cue), ["<i>"]);
        assert_eq!(texts(TextKind::BoxedWebVtt, b"\0\0\0\x08vtte"), none);
        assert_eq!(
            texts(TextKind::SubRip, b"<i>a</i>\r\n{\\an8}b"),
            ["<i>a</i>\nb"]
        );
        assert_eq!(texts(TextKind::WebVtt, b"<b>a</b>\n\nb"), ["<b>a</b>\nb"]);
        let event = b"3,0,Default,,0,0,0,,{\\i1}a, b{\\i0}\\Nc<d";
        assert_eq!(texts(TextKind::Ass, event), ["a, b\nc&lt;d"]);
        assert_eq!(
            texts(TextKind::Ass, b"3,0,Default,,0,0,0,,{\\p1}m 0 0"),
            none
        );
        let drawn = b"3,0,Default,,0,0,0,,{\\an7\\p4}m 0 0 l 8 8";
        assert_eq!(texts(TextKind::Ass, drawn), none);
        let text = b"3,0,Default,,0,0,0,,{\\pos(8,8)\\p0\\pbo9}a";
        assert_eq!(texts(TextKind::Ass, text), ["a"]);
        assert_eq!(texts(TextKind::Ass, b"a,b"), none);
    }

    #[test]
    fn a_block_of_webm_has_an_identifier_and_settings() {
        let of = |block: &[u8]| {
            let cues = cues(TextKind::WebMVtt, block, "", &(0..1000));
            let told = cues.into_iter().map(|it| (it.settings, it.text));
            told.collect::<Vec<_>>()
        };
        let one = |settings: &str, text: &str| vec![(settings.to_owned(), text.to_owned())];
        let block = b"id\nline:0 align:start\n<i>a</i>\nb";
        assert_eq!(of(block), one("line:0 align:start", "<i>a</i>\nb"));
        assert_eq!(of(b"id\r\nline:0\r\na\r\n"), one("line:0", "a"));
        assert_eq!(of(b"\n\na"), one("", "a"));
        for none in [&b"a"[..], b"id\nline:0", b"id\nline:0\n", b""] {
            assert!(of(none).is_empty(), "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn no_sample_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            use TextKind::{Ass, BoxedWebVtt, SubRip, Timed, WebMVtt, WebVtt};
            for kind in [Timed, BoxedWebVtt, SubRip, WebVtt, Ass, WebMVtt] {
                let cues = cues(kind, &bytes, "", &(0..1000));
                let text = webvtt(&cues, &(0..u64::MAX), false);
                prop_assert_eq!(text.matches(" --> ").count(), cues.len());
            }
        }
    }
}
