//! RTP packets and bursts of a track of samples.
//!
//! A *unit* is what is packetized at a time: one sample, or of sound as many as one packet takes
//! and a listener may wait for. Of each unit is known how many packets it makes; all else about a
//! packet follows when its unit is packetized again.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::SampledTrack;
use super::filling::{Filling, PacketCut};
use super::gathered::{self, Gathered};
use super::made::Made;
use super::sinks::{Images, Lengths};
use super::units::{TRAIN_NS_MAX, Units};
use crate::media::grouping::{Rule, group_bursts};
use crate::media::packetizer::{PAYLOAD_BYTES_MIN, PacketSink, Parts};
use crate::media::plan::{
    Burst, FilePiece, ImageError, JOINED_NS_MAX, Packets, RtpOrigin, SeekPoint,
};
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
    /// There is more to come of the track.
    grows: bool,
    units: Units,
    made: Made,
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
        let how = (Timeline::NORMAL, grows);
        Self::with((track, units), cut, burst_ns, how, None)
    }

    /// As [`Self::new`], of a track that goes on where that of `before` ends: all that was made for
    /// that stays, and only what is behind it is made.
    pub(super) fn continuing(
        track: Arc<SampledTrack>,
        payload_type: u8,
        payload_bytes_max: usize,
        (burst_ns, grows): (u64, bool),
        before: &Self,
    ) -> Self {
        let cut = (payload_type, payload_bytes_max);
        let is_alike = before.units.stay(before.grows)
            && (before.payload_type, before.payload_bytes_limit) == cut
            && before.burst_ns == burst_ns;
        if !is_alike || !track.continues_packets(&before.track) {
            return Self::new(track, payload_type, payload_bytes_max, burst_ns, grows);
        }
        let units = before.units.continued(&track, payload_bytes_max, grows);
        let (how, made) = ((Timeline::NORMAL, grows), before.made.clone());
        Self::with((track, units), cut, burst_ns, how, Some(made))
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
        let of = (track, units);
        Some(Self::with(of, cut, burst_ns, (timeline, false), None))
    }

    /// The plan of these units, of which the first are `made`.
    fn with(
        (track, units): (Arc<SampledTrack>, Units),
        (payload_type, payload_bytes_limit): (u8, usize),
        burst_ns: u64,
        (timeline, grows): (Timeline, bool),
        made: Option<Made>,
    ) -> Self {
        let rule = rule(&track, burst_ns);
        let mut plan = Self {
            track,
            payload_type,
            payload_bytes_limit,
            burst_ns,
            timeline,
            grows,
            units,
            made: Made::new(rule),
        };
        let mut made = made.unwrap_or_else(|| Made::new(rule));
        let mut lengths = Lengths::default();
        let first = made.units();
        gathered::each_from(&plan.track, &plan.units, first, |ticks, unit| {
            let due_ns = plan.due_at(ticks);
            let cut = plan.cut(unit, due_ns, &mut made, &mut lengths);
            made.push(due_ns, cut, &lengths.of);
        });
        plan.made = made;
        plan
    }

    /// Decides how the unit behind those that are `made` is cut, and tells its packets' `lengths`.
    fn cut(
        &self,
        unit: &Gathered,
        due_ns: u64,
        made: &mut Made,
        lengths: &mut Lengths,
    ) -> PacketCut {
        lengths.clear();
        self.packetize_cut(unit, PacketCut::Plain, &[], lengths);
        let full_bytes = self.payload_bytes_limit;
        if self.is_followed_soon(due_ns, made.last_ns)
            && let Some(cut) = made.filler.cut(&lengths.of, full_bytes)
            && self.carries(cut)
        {
            let plain = lengths.clone();
            lengths.clear();
            self.packetize_cut(unit, cut, &[], lengths);
            if made.filler.takes(&plain.of, &lengths.of, full_bytes) {
                return cut;
            }
            *lengths = plain;
        }
        PacketCut::Plain
    }

    /// Whether the unit after this one, which is due at `due_ns`, may leave with it where a sender
    /// is behind: pictures that are so near to each other as this one is to the one before it.
    fn is_followed_soon(&self, due_ns: u64, before_ns: Option<u64>) -> bool {
        let is_played = self.timeline.scale().is_normal();
        let is_picture = self.track.codec.medium == Medium::Video;
        let is_near = |before_ns: u64| due_ns.saturating_sub(before_ns) <= JOINED_NS_MAX;
        is_played && is_picture && before_ns.is_some_and(is_near)
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
        room: &mut Gathered,
        sink: &mut dyn PacketSink,
    ) {
        let cut = PacketCut::of_number(self.made.cuts.get(unit));
        room.look_up(&self.track, &self.units, unit);
        self.packetize_cut(room, cut, data, sink);
    }

    /// The same of a unit that is cut so.
    fn packetize_cut(
        &self,
        unit: &Gathered,
        cut: PacketCut,
        data: &[Cow<'_, [u8]>],
        sink: &mut dyn PacketSink,
    ) {
        let (packetizer, limit) = (&*self.track.codec.packetizer, self.payload_bytes_limit);
        match cut {
            PacketCut::Plain => unit.packetize(packetizer, data, limit, sink),
            PacketCut::Filled { .. } => {
                let mut sink = Filling::new(sink, limit);
                unit.packetize(packetizer, data, limit - cut.spared_bytes(), &mut sink);
            }
        }
    }

    fn unit_of(&self, packet: u64) -> usize {
        self.made
            .packets
            .find(i64::try_from(packet).unwrap_or(i64::MAX))
    }

    fn first_packet(&self, unit: usize) -> u64 {
        self.made.packets.before(unit).unsigned_abs()
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

    /// When a unit is due that is decoded and shown then: as [`Self::unit_due_ns`] tells.
    fn due_at(&self, (decode_ticks, shown_ticks): (i64, i64)) -> u64 {
        let time_ns = |ticks| u64::try_from(self.track.time_ns(ticks)).unwrap_or(0);
        match self.timeline.scale().is_normal() {
            true => time_ns(decode_ticks),
            false => self.timeline.due_ns(time_ns(shown_ticks)),
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
        let (mut lengths, mut room) = (Lengths::default(), Gathered::default());
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

/// Which packets leave together: of sound also what is due a little later. Its packets are few and
/// small, so that a send each costs more than what is in them; pictures fill sends of their own,
/// and whoever waits for a picture waits for its last packet.
fn rule(track: &SampledTrack, burst_ns: u64) -> Rule {
    let is_sound = track.codec.medium == Medium::Audio;
    Rule {
        burst_ns,
        reach_ns: if is_sound { TRAIN_NS_MAX } else { 0 },
    }
}

impl Packets for SampledPlan {
    fn count(&self) -> u64 {
        self.made.packets.sum().unsigned_abs()
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
            self.packetize(unit, &[], &mut Gathered::default(), &mut lengths);
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
        match self.grows {
            // What is to come may be as large as any.
            true => self.payload_bytes_limit,
            false => self.made.payload_bytes_max,
        }
    }

    fn images_bytes(&self, packets: Range<u64>) -> u64 {
        if packets.start == 0 && packets.end >= self.count() {
            return self.made.images_bytes;
        }
        let mut sum = 0;
        self.each_packet(packets, |_, _, bytes| sum += (HEADER_BYTES + bytes) as u64);
        sum
    }

    fn sends(&self, packets_max: u32) -> Option<u64> {
        Some(self.made.sends(packets_max))
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
        let rule = rule(&self.track, self.burst_ns);
        group_bursts(first, facts.into_iter(), rule, out);
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
        let (mut data, mut room, mut at) = (Vec::new(), Gathered::default(), 0);
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
            if made != self.made.packets.get(unit).unsigned_abs() {
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
