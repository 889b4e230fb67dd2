//! One of the two publishers of a channel, as the channel's thread has it: what came of it that
//! viewers have not got, and whether they get it as it comes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use onrush_wire::live::{CatchUp, Ingest, Kept, Reserve, SyncRule};
use onrush_wire::media::Track;
use onrush_wire::rtcp::SenderLine;

use super::right::Right;
use super::{RECENT_BYTES_MAX, RECENT_PACKETS_MAX, SYNC_AWAITED_MAX};

/// A publisher that has begun.
#[derive(Debug)]
pub(super) struct Publishing {
    /// From where its last packet came.
    pub(super) from: SocketAddr,
    pub(super) state: Ingest,
    pub(super) right: Right,
    /// The lease was given up for another node's standby, since nothing came.
    pub(super) has_given_up: bool,
    /// What it sends is passed over.
    pub(super) is_held: bool,
    pub(super) phase: Phase,
    pub(super) reserve: Reserve,
    /// By track, the last report that nobody was told, and when it came.
    pub(super) reports: Vec<Option<(SenderLine, u64)>>,
    /// What is no packet of the track that it came for, while it stands by.
    pub(super) unannounced: u64,
}

/// What becomes of its packets.
#[derive(Debug)]
pub(super) enum Phase {
    /// They are kept: the other one is active.
    Standby,
    /// It is active, since then, and begins with a sync sample.
    Due(u64),
    /// Viewers get what was kept, faster than it came.
    CatchingUp(CatchUp),
    /// Viewers get them as they come.
    Live,
}

impl Publishing {
    pub(super) fn new((path, tracks): (&str, &[Track]), right: Right, now_ns: u64) -> Self {
        Self {
            from: BY_FRAME,
            state: Ingest {
                begun_ns: now_ns,
                heard_ns: None,
                has_right: right.is_held(path),
            },
            right,
            has_given_up: false,
            is_held: false,
            phase: Phase::Standby,
            reserve: reserve(tracks),
            reports: vec![None; tracks.len()],
            unannounced: 0,
        }
    }

    /// Viewers no longer get it.
    pub(super) fn stand_by(&mut self) {
        self.phase = Phase::Standby;
        self.reserve.clear();
    }

    /// A report came that nobody is told yet.
    pub(super) fn keep_report(&mut self, track: usize, line: SenderLine, now_ns: u64) {
        if let Some(kept) = self.reports.get_mut(track) {
            *kept = Some((line, now_ns));
        }
    }

    /// A packet came that viewers do not get yet; whether it is one of that track.
    pub(super) fn keep(
        &mut self,
        track: usize,
        (from, packet): (SocketAddr, &[u8]),
        now_ns: u64,
    ) -> bool {
        match &mut self.phase {
            Phase::CatchingUp(catch_up) => catch_up.push(Kept {
                track,
                bytes: Arc::from(packet),
                arrived_ns: now_ns,
            }),
            _ => {
                let is_of_track = self.reserve.push(track, packet, now_ns);
                self.unannounced += u64::from(!is_of_track);
                if !is_of_track {
                    return false;
                }
            }
        }
        (self.state.heard_ns, self.from) = (Some(now_ns), from);
        self.has_given_up = false;
        true
    }

    /// Whether it has waited for a sync sample for as long as viewers do.
    pub(super) fn is_overdue(&self, now_ns: u64) -> bool {
        let Phase::Due(since_ns) = self.phase else {
            return false;
        };
        u128::from(now_ns.saturating_sub(since_ns)) >= SYNC_AWAITED_MAX.as_nanos()
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }
}

/// What came as a frame has no address of its own.
pub(super) const BY_FRAME: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn reserve(tracks: &[Track]) -> Reserve {
    let rules = tracks.iter();
    let rules = rules.map(|track| (SyncRule::of(track), track.payload_type));
    Reserve::new(rules, RECENT_PACKETS_MAX, RECENT_BYTES_MAX)
}

/// Bytes that wait while a channel catches up: what can have been kept of pictures and sound.
pub const CATCHING_UP_BYTES_MAX: usize = 2 * RECENT_BYTES_MAX;
