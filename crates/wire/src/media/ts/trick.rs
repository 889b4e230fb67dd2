//! The sync pictures of a transport stream alone, at another scale than 1 (RFC 2326, section
//! 12.34), as a transport stream again.
//!
//! What is sent for a picture begins an RTP packet: the program's tables, a clock reference, and
//! the packets that carry the picture (see [`picture`](super::picture)), as they lie in the file
//! but for their counters, which go on from picture to picture, and their times: a picture is shown
//! [`SHOWN_LATER_NS`] after it is due, by a clock that is the time since the beginning of the plan.
//! Until the next picture clock references follow, because receivers take a clock that stands still
//! for broken. The other streams of the program are silent.
//!
//! All of it follows from a packet's number, as everywhere in plans.

use std::ops::Range;
use std::sync::Arc;

use super::picture::{Picture, Step, Walk, clock_reference, renumber};
use super::psi::{PAT_PID, Program, in_packets};
use super::{Index, SAMPLE_EVERY, SYNC_BYTE, TS_PACKET_BYTES, sample};
use crate::media::grouping::{BurstLengths, Grouping, Rule, group_bursts};
use crate::media::plan::{Burst, FilePiece, ImageError, Packets, RtpOrigin, SeekPoint};
use crate::media::scale::{TRICK_STEP_NS, Timeline};
use crate::rtp::{self, HEADER_BYTES};

/// How long after it is due a picture is shown: as long may its packets be on their way.
pub(super) const SHOWN_LATER_NS: u64 = 200_000_000;

/// From one clock reference to the next (ISO/IEC 13818-1, section 2.7.2).
const CLOCK_NS: u64 = 100_000_000;

/// Clock references behind a picture at the most, ten seconds of them: a film may say that the next
/// comes in years.
const CLOCKS_MAX: u32 = 100;

/// A pid that stands for no clock.
const NO_PID: u16 = 0x1fff;

/// A piece of a file that is read at a time, at the most.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// The pictures of a transport stream as RTP packets.
#[derive(Debug)]
pub(super) struct TrickPlan {
    index: Arc<Index>,
    timeline: Timeline,
    rule: Rule,
    ts_per_rtp: u64,
    /// The pid of the pictures, and that of the program's clock, if it has one.
    pid: u16,
    clock_pid: Option<u16>,
    /// The packets of the program association table, and of the program's map.
    association: Vec<u8>,
    map: Vec<u8>,
    units: Vec<Unit>,
    /// RTP packets in all, and the bytes of their images.
    count: u64,
    bytes: u64,
    burst_lengths: BurstLengths,
}

/// A picture and what follows it until the next.
#[derive(Clone, Copy, Debug)]
struct Unit {
    /// The number of the place to start at.
    point: u32,
    /// Clock references behind it, an RTP packet each.
    clocks: u32,
    /// RTP packets before it.
    before: u64,
    /// Transport packets of pictures before it.
    carried: u64,
    /// Bytes of images before it.
    bytes: u64,
}

impl TrickPlan {
    /// By this timeline, with so many transport packets in an RTP packet; `None` if no picture of
    /// the stream can be taken out of it, or its tables are not known.
    pub(super) fn new(
        index: Arc<Index>,
        ts_per_rtp: u8,
        burst_ns: u64,
        timeline: Timeline,
    ) -> Option<Self> {
        let streams = &index.facts.streams;
        let pid = streams.sync_pid?;
        let has_it = |it: &&Program| it.streams.iter().any(|it| it.pid == pid);
        let program = streams.programs.iter().find(has_it)?;
        if streams.association.is_empty() || program.map.is_empty() {
            return None;
        }
        let mut plan = Self {
            timeline,
            rule: Rule {
                burst_ns,
                reach_ns: 0,
            },
            ts_per_rtp: ts_per_rtp.max(1).into(),
            pid,
            clock_pid: program.pcr_pid.filter(|&pid| pid != NO_PID),
            association: in_packets(PAT_PID, &streams.association),
            map: in_packets(program.pmt_pid, &program.map),
            units: Vec::new(),
            count: 0,
            bytes: 0,
            burst_lengths: BurstLengths::default(),
            index,
        };
        plan.list();
        (plan.count > 0).then_some(plan)
    }

    /// Lists its pictures, no more of them than [`TRICK_STEP_NS`] allows.
    fn list(&mut self) {
        let pictures = self.index.pictures.iter().enumerate();
        let there = pictures.filter(|(_, it)| it.is_there());
        let mut points: Vec<_> = there.filter_map(|(at, _)| u32::try_from(at).ok()).collect();
        if self.timeline.scale().is_reverse() {
            points.reverse();
        }
        let mut next_ns = 0;
        points.retain(|&point| {
            let due_ns = self.point_due_ns(point);
            let is_due = due_ns >= next_ns;
            if is_due {
                next_ns = due_ns.saturating_add(TRICK_STEP_NS);
            }
            is_due
        });
        let mut grouping = Grouping::new(0, self.rule);
        let mut carried = 0;
        for (at, &point) in points.iter().enumerate() {
            let due_ns = self.point_due_ns(point);
            let gap_ns = points
                .get(at + 1)
                .map(|&next| self.point_due_ns(next) - due_ns);
            let clocks = gap_ns.map_or(0, |gap_ns| gap_ns.saturating_sub(1) / CLOCK_NS);
            let clocks = u32::try_from(clocks).unwrap_or(u32::MAX).min(CLOCKS_MAX);
            let unit = Unit {
                point,
                clocks: if self.clock_pid.is_some() { clocks } else { 0 },
                before: self.count,
                carried,
                bytes: self.bytes,
            };
            let packets = self.rtp_packets_of(&unit) + u64::from(unit.clocks);
            for within in 0..packets {
                let image_bytes = HEADER_BYTES + self.payload_bytes_in(&unit, within);
                self.bytes += image_bytes as u64;
                let due_ns = self.due_ns_in(&unit, within);
                if let Some(burst) = grouping.push(due_ns, image_bytes) {
                    self.burst_lengths.count(&burst);
                }
            }
            self.count += packets;
            carried += u64::from(self.picture(&unit).packets);
            self.units.push(unit);
        }
        if let Some(burst) = grouping.end() {
            self.burst_lengths.count(&burst);
        }
    }

    fn picture(&self, unit: &Unit) -> Picture {
        self.index.pictures[unit.point as usize]
    }

    fn point_due_ns(&self, point: u32) -> u64 {
        let point = &self.index.seek_points[point as usize];
        self.timeline.due_ns(point.time_ns)
    }

    /// Transport packets in front of each picture.
    fn lead_packets(&self) -> u64 {
        let tables = (self.association.len() + self.map.len()) / TS_PACKET_BYTES;
        tables as u64 + u64::from(self.clock_pid.is_some())
    }

    /// Transport packets of a picture, with those in front of it.
    fn ts_packets_of(&self, unit: &Unit) -> u64 {
        self.lead_packets() + u64::from(self.picture(unit).packets)
    }

    /// RTP packets that these fill.
    fn rtp_packets_of(&self, unit: &Unit) -> u64 {
        self.ts_packets_of(unit).div_ceil(self.ts_per_rtp)
    }

    /// The bytes behind the RTP header of packet number `within` of a unit.
    fn payload_bytes_in(&self, unit: &Unit, within: u64) -> usize {
        let left =
            (self.ts_packets_of(unit)).saturating_sub(within.saturating_mul(self.ts_per_rtp));
        // Behind the picture come clock references.
        let packets = if left == 0 {
            1
        } else {
            left.min(self.ts_per_rtp)
        };
        // At most 7, so the conversion holds.
        usize::try_from(packets).unwrap_or(0) * TS_PACKET_BYTES
    }

    fn due_ns_in(&self, unit: &Unit, within: u64) -> u64 {
        let clock = (within + 1).saturating_sub(self.rtp_packets_of(unit));
        let later_ns = clock.saturating_mul(CLOCK_NS);
        self.point_due_ns(unit.point).saturating_add(later_ns)
    }

    /// The unit of a packet, and its number there; `None` beyond the last.
    fn unit_of(&self, packet: u64) -> Option<(&Unit, u64)> {
        let after = self.units.partition_point(|unit| unit.before <= packet);
        let unit = &self.units[after.checked_sub(1)?];
        (packet < self.count).then(|| (unit, packet - unit.before))
    }

    /// The units of these packets.
    fn units_of(&self, packets: &Range<u64>) -> &[Unit] {
        let end = packets.end.min(self.count);
        if packets.start >= end {
            return &[];
        }
        let first = self
            .units
            .partition_point(|unit| unit.before <= packets.start)
            - 1;
        let after = self.units.partition_point(|unit| unit.before < end);
        &self.units[first..after]
    }

    /// The transport packets of the file from the first of a picture to its last.
    fn span(&self, unit: &Unit) -> Range<u64> {
        let point = self.index.seek_points[unit.point as usize].ts_packet;
        let picture = self.picture(unit);
        point + u64::from(picture.ahead)..picture.end(point)
    }

    /// Where in the file these lie.
    fn place(&self, unit: &Unit) -> Range<u64> {
        let span = self.span(unit);
        self.offset_of(span.start)..self.offset_of(span.end - 1) + TS_PACKET_BYTES as u64
    }

    fn offset_of(&self, ts_packet: u64) -> u64 {
        self.index.runs[self.index.run_of(ts_packet)].offset_of(ts_packet)
    }

    /// Of these packets the units whose pictures they carry; those between need nothing of the
    /// file.
    fn with_pictures(&self, packets: Range<u64>) -> impl Iterator<Item = &Unit> {
        let units = self.units_of(&packets).iter();
        units.filter(move |unit| unit.before + self.rtp_packets_of(unit) > packets.start)
    }
}

impl Packets for TrickPlan {
    fn count(&self) -> u64 {
        self.count
    }

    fn due_ns(&self, packet: u64) -> u64 {
        if let Some((unit, within)) = self.unit_of(packet) {
            return self.due_ns_in(unit, within);
        }
        let end_ns = match self.timeline.scale().is_reverse() {
            true => 0,
            false => self.index.duration_ns(),
        };
        let last_ns = self
            .count
            .checked_sub(1)
            .map_or(0, |last| self.due_ns(last));
        self.timeline.due_ns(end_ns).max(last_ns)
    }

    fn packet_at(&self, time_ns: u64) -> u64 {
        let is_before = |unit: &Unit| self.point_due_ns(unit.point) < time_ns;
        let after = self.units.partition_point(is_before);
        let Some(unit) = after.checked_sub(1).map(|before| self.units[before]) else {
            return 0;
        };
        // The first clock reference of the unit before that is late enough, or else the next unit.
        let since_ns = time_ns - self.point_due_ns(unit.point);
        let clock = since_ns.div_ceil(CLOCK_NS).min(u64::from(unit.clocks) + 1);
        unit.before + self.rtp_packets_of(&unit) + clock - 1
    }

    /// The picture that is due then.
    fn packet_from(&self, point: SeekPoint) -> u64 {
        self.packet_at(self.timeline.due_ns(point.time_ns))
    }

    fn ticks(&self, packet: u64) -> u32 {
        rtp::ticks(self.due_ns(packet))
    }

    fn payload_bytes(&self, packet: u64) -> usize {
        let found = self.unit_of(packet);
        found.map_or(0, |(unit, within)| self.payload_bytes_in(unit, within))
    }

    fn payload_bytes_max(&self) -> usize {
        // At most 7, so the conversion holds.
        usize::try_from(self.ts_per_rtp).unwrap_or(0) * TS_PACKET_BYTES
    }

    fn images_bytes(&self, packets: Range<u64>) -> u64 {
        let before = |packet: u64| {
            let Some((unit, within)) = self.unit_of(packet) else {
                return self.bytes;
            };
            let full = within.saturating_mul(self.ts_per_rtp);
            let ts_packets = self.ts_packets_of(unit);
            let clocks = within.saturating_sub(self.rtp_packets_of(unit));
            let payload = (full.min(ts_packets) + clocks) * TS_PACKET_BYTES as u64;
            unit.bytes + within * HEADER_BYTES as u64 + payload
        };
        before(packets.end).saturating_sub(before(packets.start))
    }

    fn sends(&self, packets_max: u32) -> Option<u64> {
        Some(self.burst_lengths.sends(packets_max))
    }

    fn file_range(&self, packets: Range<u64>) -> Range<u64> {
        let places = self.with_pictures(packets).map(|unit| self.place(unit));
        let all = places.reduce(|all, it| all.start.min(it.start)..all.end.max(it.end));
        all.unwrap_or(0..0)
    }

    /// All of the picture, whichever packet of it: where in between these lie, its bytes tell.
    fn file_pieces(&self, packet: u64) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        for unit in self.with_pictures(packet..packet.saturating_add(1)) {
            let span = self.span(unit);
            let mut at = span.start;
            while at < span.end {
                let run = self.index.runs[self.index.run_of(at)];
                let stride = u64::from(run.packet_stride);
                let most = PIECE_BYTES_MAX / stride;
                let packets = (run.end().min(span.end) - at).min(most);
                let start = run.offset_of(at);
                pieces.push(start..start + (packets - 1) * stride + TS_PACKET_BYTES as u64);
                at += packets;
            }
        }
        pieces
    }

    fn file_parts(&self, packets: Range<u64>, gap_bytes_max: u64) -> Vec<Range<u64>> {
        let places = self.with_pictures(packets).map(|unit| self.place(unit));
        let mut parts: Vec<_> = places.collect();
        // Of pictures that are played backwards the last comes first.
        parts.sort_unstable_by_key(|part| part.start);
        parts.dedup_by(|part, before| {
            let is_near = part.start <= before.end.saturating_add(gap_bytes_max);
            if is_near {
                before.end = before.end.max(part.end);
            }
            is_near
        });
        parts
    }

    fn packets_in(&self, part: Range<u64>) -> Range<u64> {
        let is_in = |unit: &&Unit| {
            let place = self.place(unit);
            place.start < part.end && part.start < place.end
        };
        let mut units = self.units.iter().filter(is_in);
        let first = units.next();
        let last = units.next_back().or(first);
        let end_of = |unit: &Unit| unit.before + self.rtp_packets_of(unit) + u64::from(unit.clocks);
        match (first.map_or(self.count, |unit| unit.before), part.end) {
            (start, u64::MAX) => start..u64::MAX,
            (start, _) => start..last.map_or(start, end_of),
        }
    }

    fn bursts(&self, packets: Range<u64>, out: &mut Vec<Burst>) {
        let first = packets.start;
        let facts = (packets.start..packets.end.min(self.count)).filter_map(|packet| {
            let (unit, within) = self.unit_of(packet)?;
            let image_bytes = HEADER_BYTES + self.payload_bytes_in(unit, within);
            Some((self.due_ns_in(unit, within), image_bytes))
        });
        group_bursts(first, facts, self.rule, out);
    }

    fn write_images(
        &self,
        packets: Range<u64>,
        pieces: &[FilePiece<'_>],
        origin: RtpOrigin,
        mut out: &mut [u8],
    ) -> Result<(), ImageError> {
        let room = out.len() as u64;
        let is_over = !packets.is_empty() && packets.end > self.count;
        if is_over || self.images_bytes(packets.clone()) > room {
            return Err(ImageError::Room {
                start: packets.start,
                end: packets.end,
                rtp_packets: self.count,
                out_bytes: out.len(),
            });
        }
        let mut ts = Vec::new();
        for unit in self.units_of(&packets) {
            let numbers = unit.before..unit.before + self.rtp_packets_of(unit);
            ts.clear();
            if packets.start < numbers.end {
                self.take_out(unit, pieces, &mut ts)?;
            }
            let end = numbers.end + u64::from(unit.clocks);
            for packet in packets.start.max(numbers.start)..packets.end.min(end) {
                let within = packet - unit.before;
                let due_ns = self.due_ns_in(unit, within);
                let (image, rest) =
                    out.split_at_mut(HEADER_BYTES + self.payload_bytes_in(unit, within));
                out = rest;
                let header = rtp::Header {
                    marker: false,
                    payload_type: rtp::PAYLOAD_TYPE_MP2T,
                    sequence: origin.sequence_of(packet),
                    timestamp: origin.timestamp_of(due_ns),
                    ssrc: origin.ssrc,
                };
                let (head, payload) = image.split_at_mut(HEADER_BYTES);
                head.copy_from_slice(&header.to_bytes());
                if numbers.contains(&packet) {
                    let at = usize::try_from(within * self.ts_per_rtp).unwrap_or(usize::MAX);
                    let from = ts[at * TS_PACKET_BYTES..].split_at(payload.len()).0;
                    payload.copy_from_slice(from);
                } else {
                    let carried = unit.carried + u64::from(self.picture(unit).packets);
                    payload.copy_from_slice(&self.clock(carried, due_ns));
                }
            }
        }
        Ok(())
    }
}

impl TrickPlan {
    /// Appends the transport packets of a unit: tables, a clock reference, and the picture's.
    fn take_out(
        &self,
        unit: &Unit,
        pieces: &[FilePiece<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), ImageError> {
        let due_ns = self.point_due_ns(unit.point);
        // How many tables came before it.
        let number = self.units.partition_point(|it| it.before < unit.before) as u64;
        for table in [&self.association, &self.map] {
            let start = out.len();
            out.extend_from_slice(table);
            let packets = (table.len() / TS_PACKET_BYTES) as u64;
            for (at, packet) in (number * packets..).zip(out[start..].chunks_mut(TS_PACKET_BYTES)) {
                packet[3] = packet[3] & 0xf0 | counter(at);
            }
        }
        if self.clock_pid.is_some() {
            out.extend_from_slice(&self.clock(unit.carried, due_ns));
        }
        let stamp = u128::from(due_ns.saturating_add(SHOWN_LATER_NS)) * 9 / 100_000;
        let stamp = u64::try_from(stamp).unwrap_or(u64::MAX);
        let (span, picture) = (self.span(unit), self.picture(unit));
        let changed = |ts_packet| ImageError::Changed {
            file_offset: self.offset_of(ts_packet),
        };
        let mut walk: Option<Walk> = None;
        let mut taken = 0;
        for ts_packet in span.clone() {
            let mut packet = self.packet(ts_packet, pieces)?;
            let step = match &mut walk {
                Some(walk) => walk.packet(&packet),
                none => {
                    *none = Walk::begin(&packet).filter(|_| Self::is_on(&packet, self.pid));
                    if none.is_some() {
                        Step::Taken
                    } else {
                        Step::Broken
                    }
                }
            };
            match step {
                Step::Other | Step::Repeated => {}
                Step::Taken => {
                    renumber(&mut packet, counter(unit.carried + taken), stamp);
                    taken += 1;
                    out.extend_from_slice(&packet);
                }
                Step::Ended | Step::Broken => return Err(changed(ts_packet)),
            }
        }
        match taken == u64::from(picture.packets) {
            true => Ok(()),
            false => Err(changed(span.start)),
        }
    }

    fn is_on(packet: &[u8; TS_PACKET_BYTES], pid: u16) -> bool {
        u16::from_be_bytes([packet[1] & 0x1f, packet[2]]) == pid
    }

    /// A clock reference that is due then, behind so many transport packets of pictures.
    fn clock(&self, carried: u64, due_ns: u64) -> [u8; TS_PACKET_BYTES] {
        let pid = self.clock_pid.unwrap_or(NO_PID);
        // One of a pid that is silent otherwise has always the same.
        let counted = if pid == self.pid {
            carried.wrapping_sub(1)
        } else {
            0
        };
        let ticks = u128::from(due_ns) * 27 / 1000;
        clock_reference(
            pid,
            counter(counted),
            u64::try_from(ticks).unwrap_or(u64::MAX),
        )
    }

    /// A packet of the file, if it is there and is what it was.
    fn packet(
        &self,
        ts_packet: u64,
        pieces: &[FilePiece<'_>],
    ) -> Result<[u8; TS_PACKET_BYTES], ImageError> {
        let file_offset = self.offset_of(ts_packet);
        let found = pieces.iter().find_map(|piece| {
            let at = usize::try_from(file_offset.checked_sub(piece.offset)?).ok()?;
            piece.bytes.get(at..)?.first_chunk().copied()
        });
        let packet: [u8; TS_PACKET_BYTES] = found.ok_or(ImageError::Bytes { file_offset })?;
        if packet[0] != SYNC_BYTE {
            return Err(ImageError::Sync { file_offset });
        }
        let number = usize::try_from(ts_packet / SAMPLE_EVERY).ok();
        let known = number.and_then(|number| self.index.samples.get(number));
        let is_sampled = ts_packet.is_multiple_of(SAMPLE_EVERY);
        match known.filter(|_| is_sampled) {
            Some(&known) if known != sample(&packet) => Err(ImageError::Changed { file_offset }),
            _ => Ok(packet),
        }
    }
}

/// The continuity counter of packet number `number` of a pid.
fn counter(number: u64) -> u8 {
    (number & 0x0f) as u8
}

#[cfg(test)]
mod tests;
