//! The options of `onrush serve` about a server that serves nobody more but those it has.

use std::time::Duration;

use clap::{Args, ValueHint};
use onrush_server::config::DrainConfig;
use onrush_wire::rtsp::RedirectTarget;

use crate::units::{Time, within};
use crate::values::DAY;

#[derive(Args, Debug)]
pub(crate) struct DrainOptions {
    /// How long a server that was replaced or sends its clients on serves those it has
    ///
    /// SIGUSR2 starts the program anew as it lies on the disk now, with the same arguments and the
    /// same sockets. When that one is ready, this one takes nobody more, and ends when the last
    /// session and download has, or after this time. So does a server that sends its clients on to
    /// another, and sessions that have not gone by then end.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        default_value_t = Time(DrainConfig::default().time_max),
        value_parser = within(Time(Duration::ZERO), Time(DAY))
    )]
    drain_time_max: Time,

    /// Another server, to send clients on to
    ///
    /// As in rtsp://HOST/ or rtsps://HOST:PORT/. When this server drains, by SIGTERM or `onrush ctl
    /// drain`, who comes is answered 302 (RTSP) or 307 (HTTP) with the same path there, and
    /// each session of RTSP gets a REDIRECT. Clients of another scheme than the URL's are sent to
    /// the port there that they use here.
    #[arg(long, hide_short_help = true, value_name = "URL", value_hint = ValueHint::Url)]
    drain_to: Option<RedirectTarget>,
}

impl DrainOptions {
    pub(crate) fn settings(&self) -> DrainConfig {
        DrainConfig {
            to: self.drain_to.clone(),
            time_max: self.drain_time_max.0,
        }
    }
}
