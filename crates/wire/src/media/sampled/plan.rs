//! RTP packets and bursts of a track of samples.
//!
//! A *unit* is what is packetized at a time: one sample, or of sound as many as one packet takes
//! and a listener may wait for. Of each unit is known how many packets it makes; all else about a
//! packet follows when its unit is packetized again.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::SampledTrack;
use super::filling::{Filler, Filling, PacketCut};
use super::sinks::{Images, Lengths};
use super::units::{TRAIN_NS_MAX, Units};
use crate::media::grouping::{BurstLengths, Grouping, Rule, group_bursts};
use crate::media::packetizer::{PAYLOAD_BYTES_MIN, PacketSink, Parts, Unit, UnitSample};
use crate::media::plan::{
    Burst, FilePiece, ImageError, JOINED_NS_MAX, Packets, RtpOrigin, SeekPoint,
};
use crate::media::samples::column::Column;
use crate::media::scale::Timeline;
use crate::media::track::Medium;
use crate::rtp::{HEADER_BYTES, Header, ticks_of};

/// A track of samples as RTP packets.
#[derive(Debug)]
pub(super) struct SampledPlan {
    track: Arc<SampledTrack>,
    payload_type: u8,
    payload_bytes_limit: usize,
    burst_ns: u64,
    timeline: Timeline,
    units: Units,
    /// How many packets each unit makes.
    packets: Column,
    /// How each unit is cut, as the [number](PacketCut::number) of that.
    cuts: Column,
    /// Bytes behind the RTP header of the largest.
    payload_bytes_max: usize,
    /// Bytes of all images. Who lets viewers in asks for it for each of them, and to packetize a
    /// film once more takes as long as the film.
    images_bytes: u64,
    /// How many packets its bursts have, for the same reason.
    burst_lengths: BurstLengths,
}

impl SampledPlan {
    pub(super) fn new(
        track: Arc<SampledTrack>,
        payload_type: u8,
        payload_bytes_max: usize,
        burst_ns: u64,
        grows: bool,
    ) -> Self {
        let units = Units::of(&track, payload_bytes_max, grows);
        let cut = (payload_type, payload_bytes_max);
        Self::with(track, units, cut, burst_ns, (Timeline::NORMAL, grows))
    }

    /// The sync samples alone, by this timeline, and no more of them than can be followed. `None`
    /// of sound of which every sample is one, or if there are none.
    pub(super) fn trick(
        track: Arc<SampledTrack>,
        payload_type: u8,
        payload_bytes_max: usize,
        burst_ns: u64,
        timeline: Timeline,
    ) -> Option<Self> {
        let units = Units::of_syncs(&track, timeline)?;
        let cut = (payload_type, payload_bytes_max);
        Some(Self::with(track, units, cut, burst_ns, (timeline, false)))
    }

    fn with(
        track: Arc<SampledTrack>,
        units: Units,
        (payload_type, payload_bytes_max): (u8, usize),
        burst_ns: u64,
        (timeline, grows): (Timeline, bool),
    ) -> Self {
        let mut plan = Self {
            track,
            payload_type,
            payload_bytes_limit: payload_bytes_max,
            burst_ns,
            timeline,
            units,
            packets: Column::default(),
            cuts: Column::default(),
            payload_bytes_max: 0,
            images_bytes: 0,
            burst_lengths: BurstLengths::default(),
        };
        let mut grouping = Grouping::new(0, plan.rule());
        let mut lengths = Lengths::default();
        let (mut room, mut filler) = (Room::default(), Filler::default());
        for unit in 0..plan.units.count() {
            plan.cut(unit, &mut filler, &mut room, &mut lengths);
            debug_assert!(!lengths.of.is_empty(), "a unit makes a packet");
            let packets = i64::try_from(lengths.of.len()).unwrap_or(i64::MAX);
            plan.packets.push(packets);
            plan.payload_bytes_max = plan
                .payload_bytes_max
                .max(lengths.of.iter().copied().max().unwrap_or(0));
            let images = lengths.of.iter().map(|bytes| (HEADER_BYTES + bytes) as u64);
            plan.images_bytes += images.sum::<u64>();
            let due_ns = plan.unit_due_ns(unit);
            for bytes in &lengths.of {
                if let Some(burst) = grouping.push(due_ns, HEADER_BYTES + bytes) {
                    plan.burst_lengths.count(&burst);
                }
            }
        }
        if let Some(burst) = grouping.end() {
            plan.burst_lengths.count(&burst);
        }
        if grows {
            // What is to come may be as large as any.
            plan.payload_bytes_max = payload_bytes_max;
        }
        plan
    }

    /// Decides how the next unit is cut, and tells its packets' `lengths`.
    fn cut(&mut self, unit: usize, filler: &mut Filler, room: &mut Room, lengths: &mut Lengths) {
        lengths.clear();
        self.packetize_cut(unit, PacketCut::Plain, &[], room, lengths);
        let mut taken = PacketCut::Plain;
        let full_bytes = self.payload_bytes_limit;
        if self.is_followed_soon(unit)
            && let Some(cut) = filler.cut(&lengths.of, full_bytes)
            && self.carries(cut)
        {
            let plain = lengths.clone();
            lengths.clear();
            self.packetize_cut(unit, cut, &[], room, lengths);
            match filler.takes(&plain.of, &lengths.of, full_bytes) {
                true => taken = cut,
                false => *lengths = plain,
            }
        }
        self.cuts.push(taken.number());
    }

    /// Whether the unit after this one may leave with it where a sender is behind: pictures that
    /// are so near to each other as this one is to the one before it.
    fn is_followed_soon(&self, unit: usize) -> bool {
        let is_played = self.timeline.scale().is_normal();
        if !is_played || self.track.codec.medium != Medium::Video || unit == 0 {
            return false;
        }
        let since_ns = self
            .unit_due_ns(unit)
            .saturating_sub(self.unit_due_ns(unit - 1));
        since_ns <= JOINED_NS_MAX
    }

    /// Whether packets that are cut so have room for what their payload format needs.
    fn carries(&self, cut: PacketCut) -> bool {
        let least = self.track.codec.packetizer.payload_bytes_min();
        self.payload_bytes_limit >= least.max(PAYLOAD_BYTES_MIN) + cut.spared_bytes()
    }

    /// Tells `sink` the packets of a unit; with `data`, of which there is an item a sample, if
    /// their bytes are at hand.
    fn packetize(
        &self,
        unit: usize,
        data: &[Cow<'_, [u8]>],
        room: &mut Room,
        sink: &mut dyn PacketSink,
    ) {
        let cut = PacketCut::of_number(self.cuts.get(unit));
        self.packetize_cut(unit, cut, data, room, sink);
    }

    /// The same of a unit that is cut so.
    fn packetize_cut(
        &self,
        unit: usize,
        cut: PacketCut,
        data: &[Cow<'_, [u8]>],
        room: &mut Room,
        sink: &mut dyn PacketSink,
    ) {
        let (samples, packetizer) = (&self.track.samples, &self.track.codec.packetizer);
        let of_unit = self.units.samples(unit);
        let prefix_bytes = u32::try_from(self.track.prefix.len()).unwrap_or(0);
        room.parts.clear();
        room.ends.clear();
        for at in of_unit.clone() {
            let before = room.parts.len();
            if packetizer.parts() != Parts::None {
                samples.parts(at, &mut room.parts);
                if room.parts.len() == before {
                    let bytes = samples.size(at) + prefix_bytes;
                    room.parts.extend(packetizer.only_part(bytes));
                }
            }
            room.ends.push(room.parts.len());
        }
        let mut start = 0;
        let unit_samples = of_unit.clone().zip(&room.ends).enumerate();
        let unit_samples: Vec<_> = unit_samples
            .map(|(number, (at, &end))| {
                let parts = &room.parts[start..end];
                start = end;
                UnitSample {
                    bytes: samples.size(at) + prefix_bytes,
                    parts,
                    data: data.get(number).map(|data| &**data),
                }
            })
            .collect();
        let unit = Unit {
            samples: &unit_samples,
            is_sync: samples.is_sync(of_unit.start),
            entry: samples.entry(of_unit.start),
        };
        let limit = self.payload_bytes_limit;
        match cut {
            PacketCut::Plain => packetizer.packetize(&unit, limit, sink),
            PacketCut::Filled { .. } => {
                let mut sink = Filling::new(sink, limit);
                packetizer.packetize(&unit, limit - cut.spared_bytes(), &mut sink);
            }
        }
    }

    /// Which packets leave together: of sound also what is due a little later. Its packets are few
    /// and small, so that a send each costs more than what is in them; pictures fill sends of their
    /// own, and whoever waits for a picture waits for its last packet.
    fn rule(&self) -> Rule {
        let is_sound = self.track.codec.medium == Medium::Audio;
        Rule {
            burst_ns: self.burst_ns,
            reach_ns: if is_sound { TRAIN_NS_MAX } else { 0 },
        }
    }

    fn unit_of(&self, packet: u64) -> usize {
        self.packets.find(i64::try_from(packet).unwrap_or(i64::MAX))
    }

    fn first_packet(&self, unit: usize) -> u64 {
        self.packets.before(unit).unsigned_abs()
    }

    fn unit_due_ns(&self, unit: usize) -> u64 {
        let is_normal = self.timeline.scale().is_normal();
        match unit < self.units.count() {
            true if is_normal => self.track.due_ns(self.units.samples(unit).start),
            true => self.timeline.due_ns(self.shown_ns(unit)),
            false if is_normal => self.track.end_ns(),
            false => {
                let end_ns = match self.timeline.scale().is_reverse() {
                    true => 0,
                    false => self.track.end_ns(),
                };
                // The last may be shown when no more is decoded.
                let last = self.units.count().checked_sub(1);
                let last_ns = last.map_or(0, |last| self.timeline.due_ns(self.shown_ns(last)));
                self.timeline.due_ns(end_ns).max(last_ns)
            }
        }
    }

    fn shown_ns(&self, unit: usize) -> u64 {
        let sample = self.units.samples(unit).start;
        let shown_ns = self.track.time_ns(self.track.samples.shown_ticks(sample));
        u64::try_from(shown_ns).unwrap_or(0)
    }

    /// The RTP timestamp of a unit, counted from that of media time 0.
    fn unit_ticks(&self, unit: usize) -> u32 {
        let (track, samples) = (&self.track, &self.track.samples);
        if !self.timeline.scale().is_normal() {
            return ticks_of(self.unit_due_ns(unit), track.codec.clock_hz.into());
        }
        match unit < self.units.count() {
            true => track.rtp_ticks(samples.shown_ticks(self.units.samples(unit).start)),
            false => track.rtp_ticks(samples.decode_ticks(track.playable())),
        }
    }

    /// The units of these packets.
    fn units_of(&self, packets: &Range<u64>) -> Range<usize> {
        let end = packets.end.min(self.count());
        if packets.start >= end {
            return 0..0;
        }
        self.unit_of(packets.start)..self.unit_of(end - 1) + 1
    }

    /// Calls `with` the number of each of these packets, its unit, and the bytes of its payload.
    fn each_packet(&self, packets: Range<u64>, mut with: impl FnMut(u64, usize, usize)) {
        let (mut lengths, mut room) = (Lengths::default(), Room::default());
        let units = self.units_of(&packets);
        let mut number = self.first_packet(units.start);
        for unit in units {
            lengths.clear();
            self.packetize(unit, &[], &mut room, &mut lengths);
            for &bytes in &lengths.of {
                if packets.contains(&number) {
                    with(number, unit, bytes);
                }
                number += 1;
            }
        }
    }

    fn samples_of(&self, packets: &Range<u64>) -> Range<usize> {
        let units = self.units_of(packets);
        match units.is_empty() {
            true => 0..0,
            false => self.units.samples(units.start).start..self.units.samples(units.end - 1).end,
        }
    }

    /// The bytes of a unit's samples.
    fn data<'a>(
        &self,
        unit: usize,
        pieces: &[FilePiece<'a>],
        out: &mut Vec<Cow<'a, [u8]>>,
    ) -> Result<(), ImageError> {
        out.clear();
        for at in self.units.samples(unit) {
            let bytes = self.track.data(at, pieces)?;
            if !self.has_its_parts(at, &bytes) {
                let part = self.track.samples.file_part(at);
                let file_offset = part.map_or(0, |part| part.start);
                return Err(ImageError::Changed { file_offset });
            }
            out.push(bytes);
        }
        Ok(())
    }
}

impl SampledPlan {
    /// Whether these bytes, which begin with the prefix, have the parts that sample `at` had when
    /// it was indexed.
    fn has_its_parts(&self, at: usize, mut bytes: &[u8]) -> bool {
        let packetizer = &self.track.codec.packetizer;
        let head_bytes = match packetizer.parts() {
            Parts::None => return true,
            Parts::Chained { head_bytes } => head_bytes,
            Parts::Searched => usize::MAX,
        };
        let mut known = Vec::new();
        self.track.samples.parts(at, &mut known);
        if known.is_empty() {
            let whole_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            known.extend(packetizer.only_part(whole_bytes));
        }
        let mut known = known.into_iter();
        while !bytes.is_empty() {
            let left = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let part = packetizer.part(&bytes[..bytes.len().min(head_bytes)], left);
            let Ok(part) = part else { return false };
            if known.next() != Some(part.number) {
                return false;
            }
            bytes = bytes.get(part.bytes.max(1) as usize..).unwrap_or_default();
        }
        known.next().is_none()
    }
}

/// Memory that is used again from unit to unit.
#[derive(Debug, Default)]
struct Room {
    parts: Vec<u32>,
    /// Where the parts of each sample end.
    ends: Vec<usize>,
}

impl Packets for SampledPlan {
    fn count(&self) -> u64 {
        self.packets.sum().unsigned_abs()
    }

    fn due_ns(&self, packet: u64) -> u64 {
        self.unit_due_ns(self.unit_of(packet))
    }

    fn packet_at(&self, time_ns: u64) -> u64 {
        let (mut low, mut high) = (0, self.units.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.unit_due_ns(middle) >= time_ns {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        self.first_packet(low)
    }

    /// Of pictures, the sync sample at or before the place; of sound, the frame that is heard then.
    fn packet_from(&self, point: SeekPoint) -> u64 {
        let (track, samples) = (&self.track, &self.track.samples);
        let ticks = track.ticks_at(point.place);
        let playable = track.playable();
        let sample = match samples.syncs() < samples.len() {
            true => samples.sync_shown_at(ticks),
            false => {
                let after = samples.at_decode_ticks(ticks.saturating_add(1));
                after.saturating_sub(1)
            }
        };
        let is_over = point.place > 0 && point.place >= track.end_ns();
        match is_over {
            true => self.count(),
            false => self.first_packet(self.units.of_sample(sample.min(playable))),
        }
    }

    fn ticks(&self, packet: u64) -> u32 {
        let unit = self.unit_of(packet);
        let mut lengths = Lengths::default();
        let within = packet - self.first_packet(unit);
        if within > 0 && unit < self.units.count() {
            self.packetize(unit, &[], &mut Room::default(), &mut lengths);
        }
        let later = lengths
            .ticks
            .get(usize::try_from(within).unwrap_or(usize::MAX));
        self.unit_ticks(unit)
            .wrapping_add(later.copied().unwrap_or(0))
    }

    fn payload_bytes(&self, packet: u64) -> usize {
        let mut found = 0;
        self.each_packet(packet..packet.saturating_add(1), |_, _, bytes| {
            found = bytes
        });
        found
    }

    fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    fn images_bytes(&self, packets: Range<u64>) -> u64 {
        if packets.start == 0 && packets.end >= self.count() {
            return self.images_bytes;
        }
        let mut sum = 0;
        self.each_packet(packets, |_, _, bytes| sum += (HEADER_BYTES + bytes) as u64);
        sum
    }

    fn sends(&self, packets_max: u32) -> Option<u64> {
        Some(self.burst_lengths.sends(packets_max))
    }

    fn file_range(&self, packets: Range<u64>) -> Range<u64> {
        let units = self.units_of(&packets);
        let parts = match self.units {
            // What lies between them is not needed.
            Units::Syncs(_) => units.map(|it| self.units.samples(it)).collect(),
            _ => vec![self.samples_of(&packets)],
        };
        let parts = parts.into_iter().map(|it| self.track.file_range(it));
        let all = parts.reduce(|all, part| all.start.min(part.start)..all.end.max(part.end));
        all.unwrap_or(0..0)
    }

    fn file_pieces(&self, packet: u64) -> Vec<Range<u64>> {
        let samples = self.samples_of(&(packet..packet.saturating_add(1)));
        samples.flat_map(|at| self.track.file_pieces(at)).collect()
    }

    fn file_parts(&self, packets: Range<u64>, gap_bytes_max: u64) -> Vec<Range<u64>> {
        let samples = self
            .units_of(&packets)
            .flat_map(|it| self.units.samples(it));
        let parts = samples.map(|at| self.track.file_range(at..at + 1));
        let mut parts: Vec<_> = parts.collect();
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
        let samples = self.track.samples.within(&part);
        if samples.is_empty() && part.end < u64::MAX {
            return 0..0;
        }
        let last = samples.end.saturating_sub(1);
        let units = [samples.start, last].map(|it| self.units.of_sample(it));
        let (from, to) = (units[0].min(units[1]), units[0].max(units[1]));
        let end = match part.end {
            u64::MAX => u64::MAX,
            _ => self.first_packet(to + 1),
        };
        self.first_packet(from)..end
    }

    fn bursts(&self, packets: Range<u64>, out: &mut Vec<Burst>) {
        let first = packets.start;
        let mut facts = Vec::new();
        let mut due = (usize::MAX, 0);
        self.each_packet(packets, |_, unit, bytes| {
            if due.0 != unit {
                due = (unit, self.unit_due_ns(unit));
            }
            facts.push((due.1, HEADER_BYTES + bytes));
        });
        group_bursts(first, facts.into_iter(), self.rule(), out);
    }

    fn write_images(
        &self,
        packets: Range<u64>,
        pieces: &[FilePiece<'_>],
        origin: RtpOrigin,
        out: &mut [u8],
    ) -> Result<(), ImageError> {
        let out_bytes = out.len();
        let room_error = ImageError::Room {
            start: packets.start,
            end: packets.end,
            rtp_packets: self.count(),
            out_bytes,
        };
        if packets.end > self.count() {
            return Err(room_error);
        }
        let (mut data, mut room, mut at) = (Vec::new(), Room::default(), 0);
        for unit in self.units_of(&packets) {
            self.data(unit, pieces, &mut data)?;
            let number = self.first_packet(unit);
            let ticks = self.unit_ticks(unit);
            let mut images = Images {
                data: &data,
                number,
                wanted: packets.clone(),
                header: Header {
                    marker: false,
                    payload_type: self.payload_type,
                    sequence: 0,
                    timestamp: origin.timestamp.wrapping_add(ticks),
                    ssrc: origin.ssrc,
                },
                origin,
                out,
                start: at,
                at,
                is_padded: false,
                failed: false,
            };
            self.packetize(unit, &data, &mut room, &mut images);
            let made = images.number - number;
            if images.failed {
                return Err(room_error);
            }
            at = images.start;
            if made != self.packets.get(unit).unsigned_abs() {
                let file_offset = self
                    .track
                    .samples
                    .file_range(self.units.samples(unit))
                    .start;
                return Err(ImageError::Changed { file_offset });
            }
        }
        Ok(())
    }
}
