//! Live channels by HLS, with low latency (RFC 8216bis).
//!
//! A [`Window`] keeps the segments and parts of a channel, within bounds of time and bytes, and
//! writes its playlists; a [`Reload`] is what a request for one waits for. Neither knows a clock:
//! time passes by what comes.
//!
//! `reload` stands on nothing here, `window` likewise, `playlist` on both.

mod playlist;
mod reload;
#[cfg(test)]
mod tests;
mod window;

pub use reload::{BadReload, Reload};
pub use window::{Found, Kept, Window, WindowSettings};
