//! Finding the packets of a transport stream in a file's bytes.
//!
//! A [`Scanner`] takes the file in pieces of any size and holds no more of it than a few packets.
//! It believes a sync byte when [`SYNC_CONFIRMATIONS`] more follow at the packets' stride, stays
//! with that stride as long as the sync bytes do, and searches again where one is missing. What
//! lies between is counted and left out.

pub mod clock;
mod demux;
mod descriptor;
pub(in crate::media) mod elementary;
pub mod facts;
pub(in crate::media) mod header;
mod image;
mod index;
pub(in crate::media) mod picture;
pub(super) mod plan;
pub mod psi;
pub mod report;
pub(super) mod saved;
pub(in crate::media) mod seek;
mod span;
#[cfg(any(test, feature = "testing"))]
pub mod synth;
mod trick;

use thiserror::Error;

use super::sampled::SampledIndex;
use clock::Clock;
use demux::Demux;
use elementary::Elementary;
use facts::Facts;
pub use index::{Index, SYNC_BYTE, SyncRun, TS_PACKET_BYTES};
use index::{SAMPLE_EVERY, sample};
pub use plan::{Packetisation, Plan, TS_PACKETS_PER_RTP_MAX};
pub use seek::SeekPoint;
pub use span::clock_span_ns;

/// Sync bytes that must follow the first before it is believed. At the end of a file that has been
/// in sync before, as many as there is room for suffice, but at least one.
pub const SYNC_CONFIRMATIONS: usize = 4;

/// How much of a file may come before the first packet. A file with more garbage is another format.
pub const LEADING_BYTES_MAX: u64 = 16 << 20;

/// Places of which an index of elementary streams remembers the bytes.
const PROBES_MAX: usize = 64;

/// Runs of unbroken sync in one file at the most.
pub const SYNC_RUNS_MAX: usize = 65_536;

/// How packets lie in a file: what stands before and after each is left out.
#[derive(Clone, Copy, Debug)]
struct Unit {
    bytes: usize,
    /// Where in it the packet starts.
    packet: usize,
    /// `bytes` again, as a run has it.
    packet_stride: u16,
}

/// Bare packets; those of M2TS, with 4 bytes of time stamp before each; and those of broadcast
/// receivers, with the 16 bytes of a Reed-Solomon code behind each (ETSI EN 300 744).
const UNITS: [Unit; 3] = [Unit::new(188, 0), Unit::new(192, 4), Unit::new(204, 0)];

/// Bytes that must be at hand to decide whether a packet starts at the first of them.
const WINDOW_BYTES: usize = 204 * (SYNC_CONFIRMATIONS + 1);

/// How a file is to be understood where it does not say.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// The rate of a stream without a usable clock, in bit/s. Not 0.
    pub fallback_bitrate: u64,
    /// Whether the elementary streams of a transport stream are tracks of their own. If not, it is
    /// one track as it is.
    pub is_elementary: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            fallback_bitrate: 4_000_000,
            is_elementary: false,
        }
    }
}

/// Why a file cannot be indexed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum MediaError {
    /// It has no bytes.
    #[error("the file is empty; is it still being copied?")]
    Empty,
    /// It is shorter than the few packets that show what it is.
    #[error(
        "{file_bytes} bytes are too few for a transport stream: at least {} packets in a row are \
         needed",
        SYNC_CONFIRMATIONS + 1
    )]
    TooShort {
        /// The file's length.
        file_bytes: u64,
    },
    /// No row of sync bytes was found where one should be.
    #[error(
        "no MP4, Matroska or MPEG transport stream: nothing known in the first \
         {searched_bytes} bytes; other formats can be converted: ffmpeg -i IN -c copy OUT.ts"
    )]
    NotTransportStream {
        /// How far was searched.
        searched_bytes: u64,
    },
    /// Sync was lost more often than [`SYNC_RUNS_MAX`] times.
    #[error(
        "sync was lost more than {runs_max} times, at last at byte {file_offset}: the file is \
         damaged; ffmpeg -i IN -c copy OUT.ts can repair it"
    )]
    TooManySyncLosses {
        /// The limit.
        runs_max: usize,
        /// Where the run beyond it starts.
        file_offset: u64,
    },
    /// Too little of it is read to know its elementary streams.
    #[error("too little of it is read yet to know its streams")]
    NotYet,
    /// It has no elementary stream that can be played as a track of its own.
    #[error("none of its streams can be played as a track{0}")]
    NoTracks(String),
}

/// Reads a transport stream once, in order, and makes its [`Index`]. Of a file that grows it makes
/// one as often as wanted.
#[derive(Clone, Debug)]
pub struct Scanner {
    options: ScanOptions,
    /// Bytes pushed, but not yet used up.
    carry: Vec<u8>,
    /// Where in the file the next byte to use is.
    offset: u64,
    /// How packets lie while in sync.
    unit: Option<Unit>,
    runs: Vec<SyncRun>,
    leading_bytes: u64,
    garbage_bytes: u64,
    sync_losses: u64,
    samples: Vec<u32>,
    demux: Demux,
    /// Its elementary streams, if they are wanted.
    elementary: Option<Box<Elementary>>,
}

impl Scanner {
    /// A scanner at the start of a file.
    #[must_use]
    pub fn new(options: ScanOptions) -> Self {
        Self {
            options,
            carry: Vec::new(),
            offset: 0,
            unit: None,
            runs: Vec::new(),
            leading_bytes: 0,
            garbage_bytes: 0,
            sync_losses: 0,
            samples: Vec::new(),
            demux: Demux::new(),
            elementary: options.is_elementary.then(Box::default),
        }
    }

    /// Takes the next bytes of the file, as many as the caller has. How a file is split into pushes
    /// makes no difference.
    ///
    /// # Errors
    ///
    /// As soon as it is clear that the file cannot be served; there is no use in reading on.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), MediaError> {
        while !self.carry.is_empty() && !bytes.is_empty() {
            let carried = self.carry.len();
            let more = bytes.len().min(2 * WINDOW_BYTES);
            self.carry.extend_from_slice(&bytes[..more]);
            let mut carry = std::mem::take(&mut self.carry);
            let used = self.consume(&carry, false)?;
            if used >= carried {
                // What is left was copied from `bytes`, and can be read there.
                bytes = &bytes[used - carried..];
                carry.clear();
            } else {
                carry.drain(..used);
                bytes = &bytes[more..];
            }
            self.carry = carry;
        }
        let used = self.consume(bytes, false)?;
        self.carry.extend_from_slice(&bytes[used..]);
        Ok(())
    }

    /// Bytes of the file that it was given.
    #[must_use]
    pub fn pushed_bytes(&self) -> u64 {
        self.offset + self.carry.len() as u64
    }

    /// The index of what is certain so far of a file that grows: packets whose number and time stay
    /// what they are however the file goes on.
    ///
    /// # Errors
    ///
    /// If no transport stream has been found yet.
    pub fn settled(&self) -> Result<Index, MediaError> {
        self.clone().index(0, true)
    }

    /// Ends the file and makes its index.
    ///
    /// # Errors
    ///
    /// If there is no transport stream in it.
    pub fn finish(mut self) -> Result<Index, MediaError> {
        let carry = std::mem::take(&mut self.carry);
        let used = self.consume(&carry, true)?;
        self.index((carry.len() - used) as u64, false)
    }

    /// The same as tables of its elementary streams' samples.
    ///
    /// # Errors
    ///
    /// If none can be played, or too little has come to know which they are.
    pub(super) fn settled_tracks(&self) -> Result<SampledIndex, MediaError> {
        self.check_found(self.offset + self.carry.len() as u64)?;
        self.tracks(false)
    }

    /// Ends the file and makes tables of its elementary streams' samples.
    ///
    /// # Errors
    ///
    /// If none can be played.
    pub(super) fn finish_tracks(mut self) -> Result<SampledIndex, MediaError> {
        let carry = std::mem::take(&mut self.carry);
        self.consume(&carry, true)?;
        self.check_found(self.offset + carry.len() as u64)?;
        if let Some(elementary) = &mut self.elementary {
            elementary.finish();
        }
        self.tracks(true)
    }

    fn tracks(&self, is_whole: bool) -> Result<SampledIndex, MediaError> {
        let elementary = self.elementary.as_ref().ok_or(MediaError::NotYet)?;
        let (programs, _) = self.demux.programs();
        let mut index = elementary.index(programs, &self.runs, is_whole)?;
        let step = self.samples.len().div_ceil(PROBES_MAX).max(1);
        let probes = self.samples.iter().enumerate().step_by(step);
        let probes = probes.map(|(number, sampled)| index::probe(&self.runs, number, *sampled));
        index.probes = probes.collect();
        Ok(index)
    }

    /// Whether there is a transport stream in so many bytes.
    fn check_found(&self, file_bytes: u64) -> Result<(), MediaError> {
        if file_bytes == 0 {
            return Err(MediaError::Empty);
        }
        if self.runs.is_empty() {
            let short = file_bytes < (TS_PACKET_BYTES * (SYNC_CONFIRMATIONS + 1)) as u64;
            return Err(if short {
                MediaError::TooShort { file_bytes }
            } else {
                MediaError::NotTransportStream {
                    searched_bytes: file_bytes,
                }
            });
        }
        Ok(())
    }

    fn index(mut self, carried_bytes: u64, grows: bool) -> Result<Index, MediaError> {
        let trailing_bytes = carried_bytes + self.carry.len() as u64;
        let file_bytes = self.offset + trailing_bytes;
        self.check_found(file_bytes)?;
        self.runs.shrink_to_fit();
        let ts_packets = self.demux.packets();
        let fallback = Clock::constant(ts_packets, self.options.fallback_bitrate);
        let learned = self.demux.finish(fallback, grows);
        let ts_packets = learned.clock.packets().min(ts_packets);
        let runs_end = self.runs.partition_point(|run| run.first < ts_packets);
        self.runs.truncate(runs_end);
        if let Some(last) = self.runs.last_mut() {
            last.packets = ts_packets - last.first;
        }
        let clocked = learned.streams.clocked;
        let facts = Facts {
            file_bytes,
            leading_bytes: self.leading_bytes,
            garbage_bytes: self.garbage_bytes,
            trailing_bytes,
            sync_losses: self.sync_losses,
            fallback_bitrate: (!clocked).then_some(self.options.fallback_bitrate),
            streams: learned.streams,
        };
        let (clock, seek_points) = (learned.clock, learned.seek_points);
        let pictures = learned.pictures;
        let mut associations = learned.associations;
        let within = associations.partition_point(|it| u64::from(*it) < ts_packets);
        associations.truncate(within);
        associations.shrink_to_fit();
        Ok(Index {
            ts_packets,
            runs: self.runs,
            samples: self.samples,
            clock,
            seek_points,
            pictures,
            associations,
            facts,
        })
    }

    /// Uses up the front of `data`, which is at `self.offset` in the file, and says how much.
    fn consume(&mut self, data: &[u8], at_end: bool) -> Result<usize, MediaError> {
        let start = self.offset;
        let mut at = 0;
        loop {
            let left = &data[at..];
            let Some(unit) = self.unit else {
                at += self.search(left, at_end)?;
                self.offset = start + at as u64;
                if self.unit.is_none() {
                    return Ok(at);
                }
                continue;
            };
            at += self.packets(left, unit);
            self.offset = start + at as u64;
            if !self.lost(&data[at..], unit) {
                return Ok(at);
            }
        }
    }

    /// Leaves sync if the next packet has none, and says so.
    fn lost(&mut self, data: &[u8], unit: Unit) -> bool {
        let lost = data.len() >= unit.bytes && data[unit.packet] != SYNC_BYTE;
        if lost {
            self.unit = None;
            self.sync_losses += 1;
        }
        lost
    }

    /// Takes packets as long as they are in sync and whole.
    fn packets(&mut self, data: &[u8], unit: Unit) -> usize {
        let mut used = 0;
        let mut packets = 0;
        for bytes in data.chunks_exact(unit.bytes) {
            let Some(packet) = bytes[unit.packet..].first_chunk::<TS_PACKET_BYTES>() else {
                break;
            };
            if packet[0] != SYNC_BYTE {
                break;
            }
            if self.demux.packets().is_multiple_of(SAMPLE_EVERY) {
                self.samples.push(sample(packet));
            }
            self.demux.packet(packet);
            if let Some(elementary) = &mut self.elementary {
                let offset = self.offset + (used + unit.packet) as u64;
                elementary.packet(offset, packet, self.demux.programs());
            }
            used += unit.bytes;
            packets += 1;
        }
        if let Some(run) = self.runs.last_mut() {
            run.packets += packets;
        }
        used
    }

    /// Looks for sync; what comes before it is garbage.
    fn search(&mut self, data: &[u8], at_end: bool) -> Result<usize, MediaError> {
        let first = self.runs.is_empty();
        let end = if at_end {
            data.len()
        } else {
            (data.len() + 1).saturating_sub(WINDOW_BYTES)
        };
        let found = (0..end).find_map(|at| {
            let confirmations = if first { SYNC_CONFIRMATIONS } else { 1 };
            let unit = UNITS
                .into_iter()
                .find(|unit| is_synced(&data[at..], *unit, confirmations))?;
            Some((at, unit))
        });
        let skipped = found.map_or(end, |(at, _)| at);
        if first {
            self.leading_bytes += skipped as u64;
            if self.leading_bytes > LEADING_BYTES_MAX {
                return Err(MediaError::NotTransportStream {
                    searched_bytes: LEADING_BYTES_MAX,
                });
            }
        } else {
            self.garbage_bytes += skipped as u64;
        }
        if let Some((at, unit)) = found {
            let file_offset = self.offset + (at + unit.packet) as u64;
            if self.runs.len() == SYNC_RUNS_MAX {
                return Err(MediaError::TooManySyncLosses {
                    runs_max: SYNC_RUNS_MAX,
                    file_offset,
                });
            }
            self.unit = Some(unit);
            // `packets` counts up, at once.
            self.runs.push(SyncRun {
                file_offset,
                first: self.demux.packets(),
                packets: 0,
                packet_stride: unit.packet_stride,
            });
        }
        Ok(skipped)
    }
}

impl Unit {
    const fn new(packet_stride: u16, packet: usize) -> Self {
        Self {
            bytes: packet_stride as usize,
            packet,
            packet_stride,
        }
    }
}

/// Whether a packet and `confirmations` (more, where there is room) others start at the front of
/// `data`.
fn is_synced(data: &[u8], unit: Unit, confirmations_min: usize) -> bool {
    // The cheap question first: garbage may be long.
    data.get(unit.packet) == Some(&SYNC_BYTE)
        && data.len() / unit.bytes > confirmations_min
        && data
            .chunks_exact(unit.bytes)
            .take(SYNC_CONFIRMATIONS + 1)
            .all(|bytes| bytes[unit.packet] == SYNC_BYTE)
}

#[cfg(test)]
mod tests;
