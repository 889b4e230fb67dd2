//! Live media in segments and parts: what comes as RTP is put together to samples again and
//! written as CMAF, one track for itself; transport streams are cut as they are.
//!
//! Nothing of a part changes once it is told. A [`LiveCutter`] is given packets with their times
//! and tells a list of [`Output`]; what is kept of that, and for how long, is decided elsewhere
//! ([`crate::hls::live`]).
//!
//! The files stand on each other in this order: `output`, `obus`, `order`, `programs` and
//! `silence` on nothing here, `units` on `obus`, `description` on `units`, `lane` on `output`,
//! `track_cut` on `lane`, `order` and `units`, `tracks` on all of these; `transport` on `output`,
//! `programs` and `silence`; this one on both.
//!
//! Not here: repair. An access unit of which a packet is missing is left out.

mod description;
mod ends;
mod lane;
mod obus;
mod order;
mod output;
mod programs;
mod silence;
#[cfg(test)]
mod tests;
mod track_cut;
mod tracks;
mod transport;
mod units;

pub use output::{InitSegment, LiveRendition, Output, PartOf};

use self::tracks::TracksCutter;
use self::transport::TransportCutter;
use super::track::Track;

/// How long parts may be, in us: none is longer unless one picture is.
pub const PART_US: u64 = 330_000;

/// A picture that lasts longer is the last before a break, in us.
const PICTURE_US_MAX: u64 = 3_000_000;

/// How long parts are whose pictures last no longer than `picture_us`: as many of them as fit into
/// [`PART_US`], or one. So no part but the last of a segment is much shorter than the target (RFC
/// 8216bis, section 4.4.4.9: it has 85% of it).
fn part_target_us(picture_us: u64) -> u64 {
    let picture_us = picture_us.clamp(1, PICTURE_US_MAX);
    (PART_US / picture_us).max(1) * picture_us
}

/// A segment ends at the first sync sample that is so far behind its beginning, in us.
pub const SEGMENT_US_MIN: u64 = 1_900_000;

/// The first segment ends here at the latest, in us; others when they are as long as the target
/// duration, which the first one decides. So streams without sync samples are bounded, too.
pub const SEGMENT_US_MAX: u64 = 12_000_000;

/// A segment that begins with a sync sample may be so many us longer than the target duration, so
/// that it ends with the next one: what is compared with that is rounded (RFC 8216bis, section
/// 4.4.3.1). GOPs of a whole number of seconds are longer than that at 29.97 pictures a second.
const ROUNDED_US: u64 = 499_000;

/// How long a segment may be, in us, if it may be so many us longer than the target duration.
fn segment_us_max(target_s: Option<u64>, rounded_us: u64) -> u64 {
    target_s.map_or(SEGMENT_US_MAX, |it| it * 1_000_000 + rounded_us)
}

/// Seconds of the target duration at the least.
pub const TARGET_S_MIN: u64 = 4;

/// Bytes of a segment at the most; then it ends, sync sample or not.
pub const SEGMENT_BYTES_MAX: usize = 32 << 20;

/// Bytes of a part at the most, but for one sample that is larger by itself.
pub const PART_BYTES_MAX: usize = 8 << 20;

/// Cuts one channel.
#[derive(Debug)]
pub struct LiveCutter(Kind);

#[derive(Debug)]
enum Kind {
    Tracks(Box<TracksCutter>),
    Transport(Box<TransportCutter>),
}

impl LiveCutter {
    /// Of a channel of these tracks. `unix_offset_ns` is what is to be added to the clock of
    /// [`push`](Self::push) to have nanoseconds since 1970.
    ///
    /// # Errors
    ///
    /// In words, if there is no track that can be cut.
    pub fn new(tracks: &[Track], unix_offset_ns: i64) -> Result<Self, String> {
        if is_transport(tracks) {
            return Ok(Self::transport(unix_offset_ns));
        }
        let cutter = TracksCutter::new(tracks, unix_offset_ns)?;
        Ok(Self(Kind::Tracks(Box::new(cutter))))
    }

    /// Of a transport stream.
    #[must_use]
    pub fn transport(unix_offset_ns: i64) -> Self {
        Self(Kind::Transport(Box::new(TransportCutter::new(
            unix_offset_ns,
        ))))
    }

    /// Of such tracks those of which nothing can be made, by their numbers, and why, in words.
    #[must_use]
    pub fn left_out(tracks: &[Track]) -> Vec<(usize, String)> {
        match is_transport(tracks) {
            true => Vec::new(),
            false => description::left_out(tracks),
        }
    }

    /// The renditions that it makes.
    #[must_use]
    pub fn renditions(&self) -> Vec<LiveRendition> {
        match &self.0 {
            Kind::Tracks(cutter) => cutter.renditions(),
            Kind::Transport(_) => vec![TransportCutter::rendition()],
        }
    }

    /// Says that `timestamp` of a track is `at_ns` of the clock: tracks are tied together by that.
    /// Where that is told again and again to be otherwise than it was, they are tied anew; and once
    /// where the publisher's reports, if it `is_reported`, say so first of tracks that were tied by
    /// arrivals.
    pub fn line(&mut self, track: usize, timestamp: u32, at_ns: u64, is_reported: bool) {
        if let Kind::Tracks(cutter) = &mut self.0 {
            cutter.line(track, (timestamp, at_ns), is_reported);
        }
    }

    /// Another publisher begins, or the same anew.
    pub fn begin(&mut self, out: &mut Vec<Output>) {
        match &mut self.0 {
            Kind::Tracks(cutter) => cutter.begin(out),
            Kind::Transport(cutter) => cutter.begin(out),
        }
    }

    /// Takes an RTP packet of a track that came at `now_ns`.
    pub fn push(&mut self, track: usize, packet: &[u8], now_ns: u64, out: &mut Vec<Output>) {
        match &mut self.0 {
            Kind::Tracks(cutter) => cutter.push(track, packet, now_ns, out),
            Kind::Transport(cutter) => {
                if let Some(payload) = crate::rtp::payload(packet) {
                    cutter.push(payload, now_ns, out);
                }
            }
        }
    }

    /// Takes transport packets that came at `now_ns`.
    pub fn push_transport(&mut self, packets: &[u8], now_ns: u64, out: &mut Vec<Output>) {
        if let Kind::Transport(cutter) = &mut self.0 {
            cutter.push(packets, now_ns, out);
        }
    }
}

fn is_transport(tracks: &[Track]) -> bool {
    matches!(tracks, [only] if only.encoding.eq_ignore_ascii_case("MP2T"))
}
