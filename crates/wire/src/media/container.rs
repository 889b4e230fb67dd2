//! Containers: what a file's format makes of its bytes.
//!
//! An [`Index`] tells which [tracks](Track) there are, where one can start, and has a [`Plan`] of
//! each. To add a format: implement `Container` for its index and `Packets` for its plans, or make
//! a table of samples of it (`sampled`), and name it in `scanner`.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::frame_rate::FrameRate;
use super::plan::{Packets, Plan, SeekPoint};
use super::scale::{Scale, Timeline};
use super::track::{Cut, Track};

/// What one pass over a file learned.
#[derive(Clone, Debug)]
pub struct Index(pub(super) Arc<dyn Container>);

/// A part of a file whose bytes are remembered.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Where in the file it is.
    pub part: Range<u64>,
    /// What its bytes amounted to, by `sample`.
    pub(super) sampled: u32,
    pub(super) sample: fn(&[u8]) -> Option<u32>,
}

/// What an index of more of a file is to the one before.
#[derive(Debug)]
pub enum Continued {
    /// It has all that the old one has, at the same places and times, and perhaps more.
    More(Index),
    /// It has less, because what follows the last packet is not certain again.
    NotYet,
    /// It is of another file.
    Other,
}

/// A format's index.
pub(super) trait Container: Any + fmt::Debug + Send + Sync {
    /// At least one, and at most [`TRACKS_MAX`](super::TRACKS_MAX).
    fn tracks(&self) -> &[Track];
    fn duration_ns(&self) -> u64;
    fn seek(&self, time_ns: u64) -> SeekPoint;
    fn time_of_stamp_ns(&self, stamp_ns: u64) -> u64;
    fn probes(&self, probes_max: usize) -> Vec<Probe>;
    fn cut(&self, track: usize, payload_bytes_max: usize) -> Option<Cut>;
    fn packets(
        self: Arc<Self>,
        track: usize,
        cut: Cut,
        burst_ns: u64,
        grows: bool,
    ) -> Box<dyn Packets>;
    fn continuing(self: Arc<Self>, old: &dyn Any) -> Continued;

    /// As [`Self::packets`], where `before` is what made the same of an index that this one
    /// [continues](Self::continuing): what is known of its packets need not be found again.
    fn packets_continuing(
        self: Arc<Self>,
        track: usize,
        cut: Cut,
        (burst_ns, grows): (u64, bool),
        _before: &dyn Any,
    ) -> Box<dyn Packets> {
        self.packets(track, cut, burst_ns, grows)
    }

    /// Up to when all that is to be played is known; as a rule its duration.
    fn known_ns(&self) -> u64 {
        self.duration_ns()
    }

    /// The track by its sync samples alone, each whole, due at [`Timeline::due_ns`] of the time by
    /// which [`Self::seek`] names it: backwards the last comes first. Its packets are of the same
    /// cut, stamped with when they are due, and each due after those before; `packet_from` is not
    /// asked. `None` if the track has none, or if they cannot be told from the rest.
    fn trick(
        self: Arc<Self>,
        _track: usize,
        _cut: Cut,
        _burst_ns: u64,
        _timeline: Timeline,
    ) -> Option<Box<dyn Packets>> {
        None
    }

    /// Its frame rate, if the file says that it is constant, or all of its pictures do.
    fn frame_rate(&self) -> Option<FrameRate> {
        None
    }

    /// When its time 0 was by the clock on the wall, in ns since 1970, if the file says so.
    fn wall_clock_start_ns(&self) -> Option<u64> {
        None
    }

    fn doubt(&self) -> Option<String> {
        None
    }
}

impl Index {
    pub(super) fn of(container: impl Container) -> Self {
        Self(Arc::new(container))
    }

    /// Its tracks: one at least, and at most [`TRACKS_MAX`](super::TRACKS_MAX). The first is the
    /// one that seeks go by.
    #[must_use]
    pub fn tracks(&self) -> &[Track] {
        self.0.tracks()
    }

    /// From its beginning to its end, in ns.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.0.duration_ns()
    }

    /// Up to when all of it can be played by now, in ns: less than [`Self::duration_ns`] where the
    /// file tells how long it is before all of it was read.
    #[must_use]
    pub fn known_ns(&self) -> u64 {
        self.0.known_ns()
    }

    /// The last place at or before `time_ns` where a decoder can start. The start of the file is
    /// one always.
    #[must_use]
    pub fn seek(&self, time_ns: u64) -> SeekPoint {
        self.0.seek(time_ns)
    }

    /// The media time of what has the stamp `stamp_ns` in the file: some players name places by
    /// these, which seldom begin at 0. As near as is known; 0 for what is before the start.
    #[must_use]
    pub fn time_of_stamp_ns(&self, stamp_ns: u64) -> u64 {
        self.0.time_of_stamp_ns(stamp_ns)
    }

    /// Places at which to see whether the file still is what was indexed: the first, the last, and
    /// between them as many as `probes_max` allows.
    #[must_use]
    pub fn probes(&self, probes_max: usize) -> Vec<Probe> {
        self.0.probes(probes_max)
    }

    /// How a track is cut into packets of at most so many bytes behind their RTP headers; `None` if
    /// it cannot be.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn cut(&self, track: usize, payload_bytes_max: usize) -> Option<Cut> {
        self.0.cut(track, payload_bytes_max)
    }

    /// A track's packets in bursts of `burst_ns`. While the file `grows`, what may become longer at
    /// its end is left out.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn plan(&self, track: usize, cut: Cut, burst_ns: u64, grows: bool) -> Plan {
        let container = Arc::clone(&self.0);
        let packets = container.packets(track, cut, burst_ns, grows);
        let clock_hz = self.tracks()[track].clock_hz;
        Plan::new(packets, burst_ns, clock_hz, Timeline::NORMAL)
    }

    /// As [`Self::plan`], where `before` is that of an index that this one
    /// [continues](Self::continuing), cut in the same way: as a rule only what has come is gone
    /// through.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn plan_continuing(
        &self,
        track: usize,
        cut: Cut,
        (burst_ns, grows): (u64, bool),
        before: &Plan,
    ) -> Plan {
        let container = Arc::clone(&self.0);
        let how = (burst_ns, grows);
        let packets = container.packets_continuing(track, cut, how, before.maker());
        let clock_hz = self.tracks()[track].clock_hz;
        Plan::new(packets, burst_ns, clock_hz, Timeline::NORMAL)
    }

    /// A track's sync samples alone, for another scale than [`Scale::NORMAL`]; `None` if it cannot
    /// be played so.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn trick(&self, track: usize, cut: Cut, burst_ns: u64, scale: Scale) -> Option<Plan> {
        let timeline = Timeline::new(scale, self.duration_ns());
        let container = Arc::clone(&self.0);
        let packets = match scale.is_normal() {
            true => None,
            false => container.trick(track, cut, burst_ns, timeline),
        };
        let clock_hz = self.tracks()[track].clock_hz;
        Some(Plan::new(packets?, burst_ns, clock_hz, timeline))
    }

    /// This index, learned from more of a file than `old` was, with the same to say about all that
    /// `old` tells of.
    #[must_use]
    pub fn continuing(self, old: &Self) -> Continued {
        self.0.continuing(&*old.0)
    }

    /// The constant frame rate by which time codes name its frames, if it has one.
    #[must_use]
    pub fn frame_rate(&self) -> Option<FrameRate> {
        self.0.frame_rate()
    }

    /// When its time 0 was by the clock on the wall, in ns since 1970, if it is known.
    #[must_use]
    pub fn wall_clock_start_ns(&self) -> Option<u64> {
        self.0.wall_clock_start_ns()
    }

    /// In words what about the file is not believed, if anything is.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        self.0.doubt()
    }
}

impl Probe {
    /// Remembers bytes that lie at `offset` in the file; `None` if there are none.
    pub(super) fn of(offset: u64, bytes: &[u8]) -> Option<Self> {
        let part = offset..offset.checked_add(bytes.len() as u64)?;
        Some(Self {
            part,
            sampled: hash(bytes)?,
            sample: hash,
        })
    }

    /// What [`Self::of`] makes of bytes of that part that amount to so much.
    pub(super) fn of_hash(part: Range<u64>, sampled: u32) -> Self {
        Self {
            part,
            sampled,
            sample: hash,
        }
    }

    /// Whether these are its bytes.
    #[must_use]
    pub fn matches(&self, bytes: &[u8]) -> bool {
        (self.sample)(bytes) == Some(self.sampled)
    }
}

/// What bytes amount to (FNV-1a); `None` if there are none.
fn hash(bytes: &[u8]) -> Option<u32> {
    let mix = |hash: u32, &byte: &u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    (!bytes.is_empty()).then(|| bytes.iter().fold(0x811c_9dc5, mix))
}
