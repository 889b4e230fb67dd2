//! Files of subtitles: SubRip (`.srt`) and WebVTT (`.vtt`), which are blocks of lines with a line
//! of times in them, and ASS and SSA (`.ass`, `.ssa`), of which each line is an event.

use encoding_rs::WINDOWS_1252;

use super::{CUE_BYTES_MAX, CUES_MAX, Cue, escaped, ordered};

/// The cues of a file with this name; `None` if that is of no such file.
#[must_use]
pub fn of_file(name: &str, bytes: &[u8]) -> Option<Vec<Cue>> {
    let is = |ending: &str| {
        let end = name.len().checked_sub(ending.len());
        let end = end.and_then(|at| name.get(at..));
        end.is_some_and(|it| it.eq_ignore_ascii_case(ending))
    };
    let (is_webvtt, is_ass) = (is(".vtt"), is(".ass") || is(".ssa"));
    if !is_webvtt && !is_ass && !is(".srt") {
        return None;
    }
    let text = decoded(bytes);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    if is_ass {
        return Some(ordered(events(&text)));
    }
    // Between blocks of SubRip there are lines that only look empty.
    let text = match is_webvtt {
        true => text,
        false => text.lines().flat_map(|it| [it.trim_end(), "\n"]).collect(),
    };
    let blocks = text.split("\n\n").filter(|it| it.contains("-->"));
    let cues = blocks
        .take(CUES_MAX)
        .filter_map(|block| cue(block, is_webvtt));
    Some(ordered(cues.collect()))
}

/// UTF-8, or UTF-16 with its mark; else Windows-1252, which is Latin 1 with quotation marks and
/// dashes, and of which no byte is wrong.
fn decoded(bytes: &[u8]) -> String {
    let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|it| unit([it[0], it[1]]));
        String::from_utf16_lossy(&units.collect::<Vec<_>>())
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        bytes => match std::str::from_utf8(bytes) {
            Ok(text) => text.trim_start_matches('\u{feff}').to_owned(),
            Err(_) => WINDOWS_1252.decode_without_bom_handling(bytes).0.into(),
        },
    }
}

fn cue(block: &str, is_webvtt: bool) -> Option<Cue> {
    let at = block.split_inclusive('\n');
    let (mut times, mut before) = (None, 0);
    for line in at {
        before += line.len();
        if line.contains("-->") {
            times = Some(line);
            break;
        }
    }
    let (times, text) = (times?, block.get(before..)?);
    if text.len() > CUE_BYTES_MAX as usize {
        return None;
    }
    let (start, rest) = times.split_once("-->")?;
    let rest = rest.trim();
    let (end, settings) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    let times_ms = time(start.trim())?..time(end)?;
    match is_webvtt {
        true => Cue::new(times_ms, settings, text),
        false => Cue::new(times_ms, "", &super::sample::subrip(text)),
    }
}

/// The plain text of events of ASS, whose fields are in the order that `Format` says; the text is
/// the last, because it may have commas in it.
fn events(text: &str) -> Vec<Cue> {
    let of_events = text
        .lines()
        .map(str::trim)
        .skip_while(|line| !line.eq_ignore_ascii_case("[events]"));
    let mut lines = of_events.skip(1).take_while(|line| !line.starts_with('['));
    let Some(format) = lines.find_map(|line| line.strip_prefix("Format:")) else {
        return Vec::new();
    };
    let fields = format.split(',').count();
    let place = |name: &str| {
        let mut names = format.split(',');
        names.position(|it| it.trim().eq_ignore_ascii_case(name))
    };
    let (Some(start), Some(end)) = (place("Start"), place("End")) else {
        return Vec::new();
    };
    let cues = lines.filter_map(|line| {
        let values = line.strip_prefix("Dialogue:")?.splitn(fields, ',');
        let values: Vec<_> = values.collect();
        let text = values.get(fields - 1)?;
        if text.len() > CUE_BYTES_MAX as usize {
            return None;
        }
        // Of hundredths.
        let at = |place: usize| time(&format!("{}0", values.get(place)?.trim()));
        let text = super::sample::plain_event(text)?;
        Cue::new(at(start)?..at(end)?, "", &escaped(&text))
    });
    cues.take(CUES_MAX).collect()
}

/// `[hours:]minutes:seconds.ms`, with a comma in SubRip.
fn time(text: &str) -> Option<u64> {
    let (whole, ms) = text.split_once(['.', ','])?;
    let number = |digits: &str, most: usize| {
        let is_one =
            (1..=most).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse::<u64>().ok().filter(|_| is_one)
    };
    let mut parts = whole.rsplit(':');
    let seconds = number(parts.next()?, 2)?;
    let minutes = number(parts.next()?, 2)?;
    let hours = parts.next().map_or(Some(0), |it| number(it, 4))?;
    let ms = number(ms, 3).filter(|_| ms.len() == 3)?;
    parts
        .next()
        .is_none()
        .then_some(((hours * 60 + minutes) * 60 + seconds) * 1000 + ms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::webvtt;
    use super::*;

    fn read(name: &str, bytes: &[u8]) -> String {
        webvtt(&of_file(name, bytes).unwrap(), &(0..u64::MAX), false)
    }

    #[test]
    fn subrip_becomes_webvtt() {
        let srt = "\u{feff}1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>a</i> & <script>b\r\n\r\n\
                   2\r\n01:00:00,000 --> 01:00:01,000 X1:1\r\n{\\an8}c\r\nd\r\n\r\n\
                   3\r\nno time --> here\r\ne\r\n";
        let expected = "WEBVTT\n\n00:00:01.000 --> 00:00:02.500\n\
                        <i>a</i> &amp; &lt;script&gt;b\n\n\
                        01:00:00.000 --> 01:00:01.000\nc\nd\n";
        assert_eq!(read("a.SRT", srt.as_bytes()), expected);
        assert_eq!(of_file("a.txt", srt.as_bytes()), None);
    }

    #[test]
    fn subrip_is_read_as_others_write_it() {
        let srt = b"1\n00:00:01,000 --> 00:00:02,000\n\
                    <FONT color=\"#ff0\">Don\x92t</font> <I>\x96 go</I>\n  \n\
                    2\n00:00:03,000 --> 00:00:04,000\n<s>no</s> <b\n";
        let expected = "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n\
                        Don\u{2019}t <i>\u{2013} go</i>\n\n\
                        00:00:03.000 --> 00:00:04.000\nno &lt;b\n";
        assert_eq!(read("a.srt", srt), expected);
    }

    #[test]
    fn webvtt_keeps_its_settings_and_markup() {
        let vtt = "WEBVTT\n\nNOTE a --> b\n\nSTYLE\n::cue{}\n\n\
                   id\n00:01.000 --> 00:02.000 line:0 align:start\n<v Anna>a &amp; b\n";
        let expected = "WEBVTT\n\n00:00:01.000 --> 00:00:02.000 line:0 align:start\n\
                        <v Anna>a &amp; b\n";
        assert_eq!(read("a.vtt", vtt.as_bytes()), expected);
    }

    #[test]
    fn events_of_ass_become_webvtt() {
        let ass = "\u{feff}[Script Info]\r\n[V4+ Styles]\r\nFormat: Name, Start\r\n[Events]\r\n\
                   Format: Layer, Start, End, Style, Text\r\n\
                   Dialogue: 0,0:00:03.00,0:00:04.00,D,later\r\n\
                   Comment: 0,0:00:01.00,0:00:02.00,D,none\r\n\
                   Dialogue: 0,0:00:01.05,0:00:02.50,D,{\\i1}a, <b>{\\i0}\\Nc\r\n\
                   Dialogue: 0,0:00:01.00,0:00:02.00,D,{\\p1}m 0 0\r\n\
                   Dialogue: 0,never,0:00:02.00,D,none\r\n\
                   Dialogue: 0,0:00:01.00\r\n\
                   [Fonts]\r\nDialogue: 0,0:00:05.00,0:00:06.00,D,none\r\n";
        let expected = "WEBVTT\n\n00:00:01.050 --> 00:00:02.500\na, &lt;b&gt;\nc\n\n\
                        00:00:03.000 --> 00:00:04.000\nlater\n";
        assert_eq!(read("a.ass", ass.as_bytes()), expected);
        for none in [
            "",
            "[Events]\nDialogue: a,b",
            "[Events]\nFormat: a, Text\nDialogue: a,b",
        ] {
            assert_eq!(
                of_file("a.SSA", none.as_bytes()),
                Some(Vec::new()),
                "{none}"
            );
        }
    }

    #[test]
    fn other_encodings_are_understood() {
        let srt = "00:00:01,000 --> 00:00:02,000\nü\n";
        let expected = "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\nü\n";
        let wide: Vec<u8> = srt.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(
            read("a.srt", &[&[0xff, 0xfe][..], &wide].concat()),
            expected
        );
        let narrow: Vec<u8> = srt.chars().map(|it| it as u8).collect();
        assert_eq!(read("a.srt", &narrow), expected);
    }

    #[test]
    fn a_cue_is_no_longer_than_it_may_be() {
        let of = |bytes: usize| {
            let text = format!("00:00.000 --> 00:01.000\n{}", "a".repeat(bytes));
            of_file("a.vtt", text.as_bytes()).unwrap().len()
        };
        let max = CUE_BYTES_MAX as usize;
        assert_eq!((of(max), of(max + 1)), (1, 0));
    }

    proptest! {
        /// What is written is read as the same again: nothing in a text breaks out of its cue.
        #[test]
        fn what_is_written_is_read_again(
            texts in prop::collection::vec("[a<>&\\-\n\r 0:.{}\\\\]{0,40}", 0..9),
        ) {
            let blocks = texts.iter().enumerate();
            let blocks = blocks.map(|(at, it)| format!("00:0{at}.000 --> 00:0{at}.500\n{it}\n\n"));
            let cues = of_file("a.srt", blocks.collect::<String>().as_bytes()).unwrap();
            let text = webvtt(&cues, &(0..u64::MAX), false);
            prop_assert_eq!(of_file("a.vtt", text.as_bytes()).unwrap(), cues);
        }

        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for name in ["a.srt", "a.vtt", "a.ass"] {
                prop_assert!(of_file(name, &bytes).is_some());
            }
        }
    }
}
