//! What `onrush serve` can be told about live channels by HLS.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use onrush_server::hls_live::LiveHlsConfig;

use crate::limit_options::{bytes, size};
use crate::units::{Size, Time, within};
use crate::values::{DAY, count};

/// The options of live channels by HLS.
#[derive(Args, Debug)]
pub(crate) struct HlsOptions {
    /// How far back the HLS playlists of channels reach
    ///
    /// Segments are kept for as long again after they have left the playlists: in memory, up to
    /// --hls-max, and older ones in --hls-store if there is one.
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(LiveHlsConfig::default().hls_window),
          value_parser = within(Time(Duration::from_secs(6)), Time(DAY)))]
    pub(crate) hls_window: Time,

    /// Make HLS segments of channels before anybody asks, and always
    ///
    /// By default a channel is cut while somebody asks for it, and its playlist begins then.
    #[arg(long, hide_short_help = true)]
    pub(crate) hls_always: bool,

    /// Size of the HLS segments that are kept of a channel in memory
    #[arg(long, hide_short_help = true, value_name = "SIZE",
          default_value_t = size(LiveHlsConfig::default().hls_bytes_max),
          value_parser = within(Size(1 << 20), Size(64 << 30)))]
    pub(crate) hls_max: Size,

    /// Directory for HLS segments that --hls-max leaves no memory for
    ///
    /// Playlists then reach back as far as --hls-window says, up to --hls-stored-max. What is there
    /// goes when the server ends, however that happens. By default there is none.
    #[arg(long, hide_short_help = true, value_name = "DIR")]
    pub(crate) hls_store: Option<PathBuf>,

    /// Size of the HLS segments of a channel in --hls-store
    #[arg(long, hide_short_help = true, value_name = "SIZE",
          default_value_t = Size(LiveHlsConfig::default().hls_stored_max),
          value_parser = within(Size(1 << 20), Size(64 << 40)))]
    pub(crate) hls_stored_max: Size,

    /// How long HLS segments are made of a channel that nobody asks for
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(LiveHlsConfig::default().hls_idle_time_max),
          value_parser = within(Time(Duration::from_secs(1)), Time(DAY)))]
    pub(crate) hls_idle_time_max: Time,

    /// Requests for one channel by HLS that wait for what comes next
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = LiveHlsConfig::default().hls_waiting_max, value_parser = count)]
    pub(crate) hls_waiting_max: usize,
}

impl HlsOptions {
    /// The settings.
    pub(crate) fn settings(&self) -> LiveHlsConfig {
        LiveHlsConfig {
            hls_window: self.hls_window.0,
            hls_bytes_max: bytes(self.hls_max),
            hls_store: self.hls_store.clone(),
            hls_stored_max: self.hls_stored_max.0,
            hls_idle_time_max: self.hls_idle_time_max.0,
            is_always: self.hls_always,
            hls_waiting_max: self.hls_waiting_max,
        }
    }
}
