//! The options of `onrush serve` that bound what RTSP peers and files can make it hold.

use std::time::Duration;

use clap::Args;
use onrush_server::config::Limits;

use crate::units::{Size, Time, within};
use crate::values::{DAY, count};

/// One option for each field of [`Limits`] but the session's time-out, which is no bound on size.
#[derive(Args, Debug)]
pub(crate) struct LimitOptions {
    /// Sessions at once; one more is answered 453
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = Limits::default().sessions_max, value_parser = count)]
    pub(crate) sessions_max: usize,

    /// Sessions at once from one address [default: a quarter]
    ///
    /// Of --sessions-max, or 64 if that is more; one more is answered 453. Of IPv6 an address is
    /// its /64. Raise it for viewers behind one NAT, and for load tests from one machine.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = count)]
    pub(crate) sessions_per_address_max: Option<usize>,

    /// RTSP connections at once; one more is answered 503 and closed
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = Limits::default().connections_max, value_parser = count)]
    pub(crate) connections_max: usize,

    /// RTSP connections at once from one address [default: a quarter]
    ///
    /// Of --connections-max, or 64 if that is more; one more is answered 503 and closed. Of IPv6
    /// an address is its /64. Raise it for viewers behind one NAT, and for load tests from one
    /// machine.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = count)]
    pub(crate) connections_per_address_max: Option<usize>,

    /// Size of a request's head
    #[arg(long, hide_short_help = true, value_name = "SIZE",
          default_value_t = size(Limits::default().request_head_bytes_max),
          value_parser = within(Size(1 << 10), Size(1 << 20)))]
    pub(crate) request_head_max: Size,

    /// Header lines in a request
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = Limits::default().request_headers_max, value_parser = count)]
    pub(crate) request_headers_max: usize,

    /// Size of a request's body
    #[arg(long, hide_short_help = true, value_name = "SIZE",
          default_value_t = size(Limits::default().request_body_bytes_max),
          value_parser = within(Size(0), Size(1 << 20)))]
    pub(crate) request_body_max: Size,

    /// How long a request may take to arrive whole
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(Limits::default().request_time_max),
          value_parser = within(Time(Duration::from_millis(100)), Time(DAY)))]
    pub(crate) request_time_max: Time,

    /// How long a connection without a session may be silent
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(Limits::default().idle_time_max),
          value_parser = within(Time(Duration::from_millis(100)), Time(DAY)))]
    pub(crate) idle_time_max: Time,

    /// Files open at once
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = Limits::default().files_max, value_parser = count)]
    pub(crate) files_max: usize,

    /// How long a file that does not grow still counts as being written; its
    /// sessions wait at its end for more
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(Limits::default().growth_time_max),
          value_parser = within(Time(Duration::ZERO), Time(DAY)))]
    pub(crate) growth_time_max: Time,

    /// Size of all saved indexes (--state)
    #[arg(long, hide_short_help = true, value_name = "SIZE",
          default_value_t = Size(Limits::default().state_bytes_max),
          value_parser = within(Size(1 << 20), Size(1 << 40)))]
    pub(crate) state_max: Size,

    /// Size of what is under way to a client on TCP
    ///
    /// Packets on one connection that its client has not acknowledged; the others wait. It bounds
    /// what a client that reads nothing keeps in the cache, and the rate of each to this much in a
    /// round trip.
    #[arg(long, hide_short_help = true, value_name = "SIZE",
          default_value_t = size(Limits::default().unacknowledged_bytes_max),
          value_parser = within(Size(16 << 10), Size(64 << 20)))]
    pub(crate) unacknowledged_max: Size,

    /// How long a client on TCP may take nothing of what is sent to it; then
    /// its session ends
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(Limits::default().stall_time_max),
          value_parser = within(Time(Duration::from_millis(100)), Time(DAY)))]
    pub(crate) stall_time_max: Time,
}

impl LimitOptions {
    /// The settings, with the time-out of a silent session.
    pub(crate) fn settings(&self, session_timeout: Duration) -> Limits {
        Limits {
            sessions_max: self.sessions_max,
            sessions_per_address_max: self
                .sessions_per_address_max
                .unwrap_or_else(|| Limits::per_address(self.sessions_max)),
            connections_max: self.connections_max,
            connections_per_address_max: self
                .connections_per_address_max
                .unwrap_or_else(|| Limits::per_address(self.connections_max)),
            request_head_bytes_max: bytes(self.request_head_max),
            request_headers_max: self.request_headers_max,
            request_body_bytes_max: bytes(self.request_body_max),
            request_time_max: self.request_time_max.0,
            idle_time_max: self.idle_time_max.0,
            session_timeout,
            files_max: self.files_max,
            growth_time_max: self.growth_time_max.0,
            state_bytes_max: self.state_max.0,
            unacknowledged_bytes_max: bytes(self.unacknowledged_max),
            stall_time_max: self.stall_time_max.0,
        }
    }
}

pub(crate) const fn size(bytes: usize) -> Size {
    Size(bytes as u64)
}

pub(crate) fn bytes(size: Size) -> usize {
    // The parsers allow nothing larger than the address space.
    usize::try_from(size.0).unwrap_or(usize::MAX)
}
