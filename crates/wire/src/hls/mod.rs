//! HTTP Live Streaming of films (RFC 8216bis): URLs and playlists.
//!
//! All that a playlist says is computed from a film's [segments](crate::media::segments): nothing
//! of it is kept. Beneath the URL of a film `FILM` these are its resources, whose layout stays:
//!
//! | path | what |
//! |---|---|
//! | `FILM/hls/index.m3u8` | the multivariant playlist |
//! | `FILM/hls/RENDITION/index.m3u8` | a media playlist: `video`, `audio-2`, `stream` |
//! | `FILM/hls/RENDITION/iframes.m3u8` | the same of pictures that are shown alone |
//! | `FILM/hls/RENDITION/VERSION/init.mp4` | the initialization segment of all its segments |
//! | `FILM/hls/RENDITION/VERSION/N.m4s`, `N.ts` | segment `N`, from 1 on |
//! | `FILM/hls/RENDITION/VERSION/iN.m4s` | a picture that is shown alone |
//! | `FILM/hls/text/VERSION/N.vtt` | segment `N` of subtitles; `all.vtt` is all of them |
//! | `FILM/hls/index.html` | a page that plays the film |
//! | `FILM/hls/poster.mp4` | its first picture that can be shown alone |
//! | `FILM/dash/manifest.mpd` | the manifest of [DASH](crate::dash), of the same segments |
//!
//! A live channel has the same, of [what is kept of it](live), and `RENDITION/VERSION/N.P.m4s` or
//! `N.P.ts`: part `P` of segment `N`, from 0 on; and `RENDITION/VERSION/tT.m4s`: the segment that
//! begins at `T`, in ticks.
//!
//! `VERSION` names the bytes of the file: what has it in its URL never changes.

pub mod live;
mod playlist;
mod presentation;
mod route;
mod sounds;
mod texts;

pub use playlist::{main_playlist, media_playlist, picture_playlist};
pub use presentation::{Listed, Presentation, Text, is_of_several};
pub use route::{Resource, Version, parse};
pub(crate) use sounds::{Sound, sounds};
pub use texts::{TEXT_SEGMENT_MS, text_playlist, text_stretch_ms};
