//! Live channels by HLS, with low latency (RFC 8216bis), and by DASH.
//!
//! A [`Window`] keeps the segments and parts of a channel, within bounds of time and bytes, and
//! writes its playlists and its manifest; a [`Reload`] is what a request for one waits for. Neither
//! knows a clock: time passes by what comes.
//!
//! `reload` and `segment` stand on nothing here, `window` on both, `playlist` and `manifest` on all
//! of these.

mod manifest;
mod playlist;
mod reload;
mod segment;
#[cfg(test)]
mod tests;
mod window;

pub use playlist::date_time;
pub use reload::{BadReload, Reload};
pub use segment::Stored;
pub use window::{Found, Kept, Leaving, LivePoster, Window, WindowSettings};
