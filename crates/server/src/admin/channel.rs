//! A live channel's rows of the table: what came in, what went out, and to how many.
//!
//! The control API and `onrush relay --status-at-exit` say the same [`Channel`] as `/status`.

use std::net::SocketAddr;

use onrush_sys::clock::monotonic_ns;
use serde::{Deserialize, Serialize};

use super::table::{Field, Kind, Row, Samples, table};
use crate::channels::published::{IngestSource, Ingests, PublishedChannel, PullState};
use crate::channels::{self, ChannelState, Stats};

table! {
    /// A live channel.
    #[serde(default)]
    pub struct Channel from (
        name: &str, source: Source, ssrc: Option<u32>, stats: &Stats, ingests: &Ingests
    ) {
        /// Its name.
        name: String = name.to_owned(), Info;
        /// Where it arrives; `published` if somebody publishes it, or the URL it is pulled from.
        input: String = source.input, Info;
        /// Why what it is pulled from could not be had last, until it can.
        error: Option<String> = source.error, Info;
        /// 1 for the state of the channel: waiting for its first datagram, live, silent, or
        /// connecting to what it is pulled from.
        state: ChannelState = source.state, Info "onrush_channel_state" by "state";
        /// From whom the last datagram came.
        from: Option<SocketAddr> = stats.from, Info;
        /// The synchronisation source that its players get, once it is known.
        ssrc: Option<u32> = ssrc, Info;
        /// Members of the channel: receivers by command line, by file and by control API.
        members: u64 = stats.members as u64, Gauge "onrush_channel_members";
        /// Players of the channel, which came by RTSP.
        players: u64 = stats.players as u64, Gauge "onrush_channel_players";
        /// Who publishes it.
        publishers: Publishers = Publishers::of(ingests), Info;
        /// What came in.
        received: Received = Received::of(stats), Counter;
        /// What went out.
        sent: Sent = Sent::of(stats), Counter;
    }
    metrics {}
}

table! {
    /// Who publishes a channel.
    #[serde(default)]
    pub struct Publishers from (ingests: &Ingests) {
        /// Whose packets players get: an address, or the URL that it is pulled from.
        active: Option<String> = ingests.active().map(|it| it.from.clone()), Info;
        /// Who stands by.
        standby: Option<String> = ingests.standby().map(|it| it.from.clone()), Info;
        /// Publishers of the channel that stand by: 1 or none.
        standbys: u64 = ingests.standby().is_some().into(), Gauge "onrush_channel_standbys";
        /// Since when the one that stands by is there.
        standby_ns: u64 = since(ingests.standby()), Gauge "onrush_channel_standby_seconds";
        /// Times that players got the packets of the one that stood by from then on.
        switches: u64 = ingests.switches, Counter "onrush_channel_switches_total";
    }
    metrics {}
}

table! {
    /// What came in.
    #[serde(default)]
    pub struct Received from (stats: &Stats) {
        /// Datagrams that came in.
        datagrams: u64 = stats.heard.datagrams, Counter "onrush_channel_received_datagrams_total";
        /// Bytes of those datagrams, without UDP's and lower headers.
        bytes: u64 = stats.heard.bytes, Counter "onrush_channel_received_bytes_total";
        /// Of those datagrams, RTP packets.
        rtp: u64 = stats.heard.rtp, Counter "onrush_channel_received_rtp_total";
        /// Of those datagrams, transport packets without RTP.
        transport_streams: u64 = stats.heard.transport_streams,
            Counter "onrush_channel_received_ts_total";
        /// RTP packets, or places in a transport stream, that are missing.
        missing: u64 = stats.heard.missing, Counter "onrush_channel_missing_total";
        /// RTP packets that came again or out of order.
        behind: u64 = stats.heard.behind, Counter "onrush_channel_behind_total";
        /// Times that the numbers of RTP packets began anew.
        restarts: u64 = stats.heard.restarts, Counter "onrush_channel_restarts_total";
        /// Times that the sender changed.
        source_changes: u64 = stats.heard.source_changes,
            Counter "onrush_channel_source_changes_total";
        /// Times that an RTP stream was replaced by another.
        ssrc_changes: u64 = stats.heard.ssrc_changes, Counter "onrush_channel_ssrc_changes_total";
        /// Times that nothing came for a while.
        silences: u64 = stats.heard.silences, Counter "onrush_channel_silences_total";
        /// Datagrams that were dropped because they came from others than the sender that is kept.
        from_others: u64 = stats.heard.from_others, Counter "onrush_channel_from_others_total";
        /// Datagrams that found no room in the socket's buffer.
        overflows: u64 = stats.overflows, Counter "onrush_channel_overflows_total";
        /// Datagrams that were too long to be passed on.
        too_long: u64 = stats.too_long, Counter "onrush_channel_too_long_total";
        /// Packets of a publisher that are not of the payload type that it has announced.
        unannounced: u64 = stats.unannounced, Counter "onrush_channel_unannounced_total";
        /// Packets and reports of a publisher with another SSRC than the one that is taken, or of
        /// before its numbers or clock began anew.
        foreign: u64 = stats.foreign, Counter "onrush_channel_foreign_total";
        /// Frames of a publisher on channels that it has not set up, and bytes between frames that
        /// are none.
        strays: u64 = stats.strays, Counter "onrush_channel_strays_total";
        /// How unevenly packets of a publisher arrive (RFC 3550, section 6.4.1): its worst track.
        jitter_ns: u64 = stats.jitter_ns, Gauge "onrush_channel_jitter_seconds";
        /// How much later packets of a publisher come, by their timestamps, than the most punctual
        /// ones of the last minutes: its worst track.
        lag_ns: u64 = stats.lag_ns, Gauge "onrush_channel_lag_seconds";
    }
    metrics {}
}

table! {
    /// What went out.
    #[serde(default)]
    pub struct Sent from (stats: &Stats) {
        /// Packets that the kernel took, each counted once for each receiver.
        packets: u64 = stats.packets, Counter "onrush_channel_packets_total";
        /// Bytes of those packets, without UDP's and lower headers.
        bytes: u64 = stats.bytes, Counter "onrush_channel_sent_bytes_total";
        /// Trains that left: each a send to all members, or to all players of one address.
        trains: u64 = stats.trains, Counter "onrush_channel_trains_total";
        /// Packets that the kernel refused, each counted once for each receiver.
        refused: u64 = stats.refused, Counter "onrush_channel_packets_refused_total";
        /// Packets that were dropped for players on TCP who were slow, in whole access units.
        dropped: u64 = stats.dropped, Counter "onrush_channel_packets_dropped_total";
        /// Players on TCP who took nothing for too long.
        stalled_out: u64 = stats.stalled_out, Counter "onrush_channel_stalled_out_total";
        /// Packets that were encrypted (SRTP): each once for all players who share a key, and once
        /// for each player who shares none.
        encrypted: u64 = stats.encrypted, Counter "onrush_channel_packets_encrypted_total";
        /// Packets that players with SRTP were not sent, because their numbers had been used.
        unencrypted: u64 = stats.unencrypted, Counter "onrush_channel_packets_unencrypted_total";
        /// Entries into the kernel to send the channel.
        crossings: u64 = stats.crossings, Counter "onrush_channel_crossings_total";
        /// Time from the arrival of a train's first packet until all had the train, added up.
        passing_ns: u64 = stats.passing_ns, Counter "onrush_channel_passing_seconds_total";
        /// The same of a train, on average.
        passing_ns_mean: u64 = stats.passing_ns.checked_div(stats.trains).unwrap_or(0), Gauge;
        /// The longest time from the arrival of a train's first packet until all had the train.
        passing_ns_max: u64 = stats.passing_ns_max, Gauge "onrush_channel_passing_max_seconds";
    }
    metrics {}
}

/// Where a channel comes from, and whether it does.
struct Source {
    input: String,
    state: ChannelState,
    error: Option<String>,
}

impl Channel {
    /// As it is now.
    pub(crate) fn now(channel: &channels::Channel) -> Self {
        let stats = channel.stats();
        let ssrc = stats.playable.map(|playable| playable.ssrc);
        let source = Source {
            input: channel.input().to_string(),
            state: stats.state(),
            error: None,
        };
        Self::of(channel.name(), source, ssrc, &stats, &Ingests::default())
    }

    /// One that is published, or pulled.
    pub(crate) fn published(channel: &PublishedChannel, pulled: Option<&PullState>) -> Self {
        let (stats, ssrc) = (channel.stats(), Some(channel.ssrc(0)));
        let source = Source {
            input: pulled.map_or_else(|| "published".to_owned(), PullState::source),
            state: stats.state(),
            error: pulled.and_then(PullState::error),
        };
        Self::of(channel.path(), source, ssrc, &stats, &channel.ingests())
    }

    /// One that is pulled from what has not answered.
    pub(crate) fn pulled(state: &PullState) -> Self {
        let source = Source {
            input: state.source(),
            state: match state.is_asked() {
                true => ChannelState::Connecting,
                false => ChannelState::Waiting,
            },
            error: state.error(),
        };
        let (stats, ingests) = (Stats::default(), Ingests::default());
        Self::of(state.path(), source, None, &stats, &ingests)
    }
}

fn since(source: Option<&IngestSource>) -> u64 {
    source.map_or(0, |it| monotonic_ns().saturating_sub(it.since_ns))
}

/// A sample for each state that there is, so that each is there to be asked for: 1 for this one.
impl Field for ChannelState {
    fn samples(&self) -> Samples {
        let states = Self::ALL.map(|state| (state.as_str(), u64::from(state == *self)));
        Samples::labelled(states.to_vec())
    }
}
