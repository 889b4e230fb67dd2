//! Groups of sound, as playlists have them.

use super::*;
use crate::hls::{Version, main_playlist};
use crate::media::segments::testing;

/// The lines of a playlist that tell of sound, without what all have, and the codecs and groups of
/// variants.
fn told(of: testing::Sounds<'_>) -> Vec<String> {
    let film = testing::sounds(of);
    let playlist = main_playlist(&Presentation::new(&[(&film, Version(1))], ""));
    let mut told = Vec::new();
    for line in playlist.lines() {
        let of = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\""))?;
            rest.split('"').next()
        };
        if let Some(group) = of("TYPE=AUDIO,GROUP-ID") {
            let name = of("NAME").unwrap_or_default();
            let language = of("LANGUAGE").unwrap_or("-");
            let default = if line.contains("DEFAULT=YES") {
                "*"
            } else {
                ""
            };
            let uri = of(",URI").and_then(|it| it.split('/').next());
            let uri = uri.unwrap_or_default();
            told.push(format!("{group} {default}{name} {language} {uri}"));
        } else if let Some(group) = of("AUDIO") {
            let codecs = of("CODECS").and_then(|it| it.split_once(','));
            told.push(format!("{group}: {}", codecs.map_or("", |it| it.1)));
        }
    }
    told
}

#[test]
fn the_same_in_two_codecs_is_two_groups_of_one_name() {
    let of = [("mp4a.40.2", "eng", ""), ("ac-3", "eng", "")];
    let expected = [
        "audio1 *en en audio",
        "audio2 *en en audio-2",
        "audio1: mp4a.40.2",
        "audio2: ac-3",
    ];
    assert_eq!(told(&of), expected);
    // Names that tell of the coding alone do not make them others.
    let of = [
        ("mp4a.40.2", "eng", "Stereo"),
        ("ac-3", "eng", "Surround 5.1"),
    ];
    assert_eq!(told(&of), expected);
}

#[test]
fn languages_in_two_codecs_are_two_groups() {
    let of = [("mp4a.40.2", "eng", ""), ("ac-3", "fre", "")];
    let expected = [
        "audio1 *en en audio",
        "audio2 *fr fr audio-2",
        "audio1: mp4a.40.2",
        "audio2: ac-3",
    ];
    assert_eq!(told(&of), expected);
}

#[test]
fn a_group_has_nothing_of_another_codec() {
    let of = [
        ("ac-3", "ger", "Deutsch"),
        ("mp4a.40.2", "ger", "Deutsch"),
        ("mp4a.40.2", "ger", "Kommentar"),
    ];
    let expected = [
        "audio1 *Deutsch de audio",
        "audio2 *Deutsch de audio-2",
        "audio2 Kommentar de audio-3",
        "audio1: ac-3",
        "audio2: mp4a.40.2",
    ];
    assert_eq!(told(&of), expected);
}

/// Browsers lack AC-3.
#[test]
fn what_is_not_the_default_is_played_where_that_cannot_be() {
    let of = [
        ("ac-3", "eng", ""),
        ("mp4a.40.2", "fre", ""),
        ("mp4a.40.2", "ger", ""),
    ];
    let expected = [
        "audio1 *en en audio",
        "audio2 *fr fr audio-2",
        "audio2 de de audio-3",
        "audio1: ac-3",
        "audio2: mp4a.40.2",
    ];
    assert_eq!(told(&of), expected);
    let mut film = testing::sounds(&of);
    film.renditions.remove(0);
    let text = main_playlist(&Presentation::new(&[(&film, Version(1))], ""));
    let last = ",CODECS=\"mp4a.40.2\",AUDIO=\"audio2\"\naudio-2/index.m3u8\n";
    assert!(text.ends_with(last), "{text}");
}

#[test]
fn what_is_alike_in_all_has_names_of_its_own() {
    let of = [("mp4a.40.2", "", ""), ("mp4a.40.2", "", "")];
    let expected = [
        "audio1 *audio - audio",
        "audio1 audio-2 - audio-2",
        "audio1: mp4a.40.2",
    ];
    assert_eq!(told(&of), expected);
    let of = [("mp4a.40.2", "", " \n"), ("mp4a.40.2", "", "\u{7}")];
    assert_eq!(told(&of), expected);
    let of = [("mp4a.40.2", "eng", "a"), ("mp4a.40.2", "eng", "a")];
    assert_eq!(
        told(&of)[..2],
        ["audio1 *a en audio", "audio1 a (2) en audio-2"]
    );
}

#[test]
fn the_first_that_the_file_wants_is_the_default() {
    let of = [
        ("mp4a.40.2", "eng", ""),
        ("ac-3", "eng", ""),
        ("mp4a.40.2", "fra", ""),
        ("*ac-3", "fra", ""),
        ("*ac-3", "deu", ""),
    ];
    let expected = [
        "audio1 en en audio",
        "audio1 *fr fr audio-3",
        "audio2 en en audio-2",
        "audio2 *fr fr audio-4",
        "audio2 de de audio-5",
    ];
    assert_eq!(told(&of)[..5], expected);
}

#[test]
fn sound_alone_begins_with_the_default() {
    let mut film = testing::sounds(&[("mp4a.40.2", "eng", ""), ("*mp4a.40.2", "fra", "")]);
    film.renditions.remove(0);
    let film = Presentation::new(&[(&film, Version(1))], "");
    let text = main_playlist(&film);
    assert!(
        text.ends_with(",CODECS=\"mp4a.40.2\",AUDIO=\"audio1\"\naudio-2/index.m3u8\n"),
        "{text}"
    );
}
