//! Live channels by HLS, with low latency (RFC 8216bis), and by DASH.
//!
//! A [`Window`] keeps the segments and parts of a channel, within bounds of time and bytes, and
//! writes its playlists and its manifest; a [`Reload`] is what a request for one waits for. Neither
//! knows a clock: time passes by what comes.
//!
//! `reload` and `segment` stand on nothing here, `pauses` on `segment`, `window` on these three,
//! `playlist` and `manifest` on all of these.

mod manifest;
mod pauses;
mod playlist;
mod reload;
mod segment;
#[cfg(test)]
mod tests;
mod window;

pub use playlist::date_time;
pub use reload::{BadReload, Reload};
pub use segment::{Found, Leaving, LivePoster, Stored};
pub use window::{Kept, SEGMENTS_PER_SECOND_MAX, Window, WindowSettings};
