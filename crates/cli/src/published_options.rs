//! The options of channels that are published.

use std::time::Duration;

use clap::Args;
use onrush_server::channels::ChannelsConfig;
use onrush_server::channels::published::PUBLISHER_SILENCE_MAX;
use onrush_wire::auth::Pattern;

use crate::units::{Time, within};

/// How viewers join, and which channels have a standby.
#[derive(Args, Debug)]
pub(crate) struct PublishedOptions {
    /// Who joins a published or pulled channel waits for the next sync sample
    ///
    /// Without it a player gets what has come since the last one, at once: it shows a picture
    /// sooner, and each that much later than it was taken.
    #[arg(long)]
    next_sync: bool,

    /// A published channel that takes a second publisher as a standby; repeatable
    ///
    /// Its path in URLs, as live/cam, or a pattern: * for any part, ** for any number of parts.
    /// What the standby sends is kept since its last sync sample. Viewers get it from there when
    /// the first publisher goes or is silent. By default a second publisher is refused.
    #[arg(long, value_name = "PATH")]
    standby: Vec<Pattern>,

    /// How long a publisher may send nothing until its standby takes over
    ///
    /// Or in a cluster until its node gives the channel up to the standby of another.
    #[arg(long, value_name = "TIME", default_value_t = default_after(),
          value_parser = within(Time(Duration::from_millis(100)), Time(PUBLISHER_SILENCE_MAX)))]
    standby_after: Time,
}

impl PublishedOptions {
    /// Settings of channels, with these.
    pub(crate) fn settings(&self, channels: ChannelsConfig) -> ChannelsConfig {
        ChannelsConfig {
            is_next_sync_awaited: self.next_sync,
            standby: self.standby.clone(),
            standby_after: self.standby_after.0,
            ..channels
        }
    }
}

fn default_after() -> Time {
    Time(ChannelsConfig::default().standby_after)
}
