//! What a packetizer is told of a unit, out of the table of samples.
//!
//! One unit is looked up, and all of a track are taken in order: to look a sample up takes hundreds
//! of steps where sizes or times differ, and a film has a million.

use std::borrow::Cow;

use super::SampledTrack;
use super::units::Units;
use crate::media::packetizer::{PacketSink, Packetizer, Parts, Unit, UnitSample};

/// What a packetizer is told of a unit, but for its bytes. Its memory is used again from unit to
/// unit.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Bytes of each sample.
    bytes: Vec<u32>,
    parts: Vec<u32>,
    /// Where the parts of each sample end.
    ends: Vec<usize>,
    is_sync: bool,
    entry: u16,
}

/// Calls `with` when each unit from number `first` on is decoded and shown, in ticks of the track,
/// and what a packetizer is told of it, in order.
pub(super) fn each_from(
    track: &SampledTrack,
    units: &Units,
    first: usize,
    mut with: impl FnMut((i64, i64), &Gathered),
) {
    let mut gathered = Gathered::default();
    if let Units::Syncs(syncs) = units {
        for (unit, &sample) in syncs.iter().enumerate().skip(first) {
            gathered.look_up(track, units, unit);
            let (samples, at) = (&track.samples, sample as usize);
            with(
                (samples.decode_ticks(at), samples.shown_ticks(at)),
                &gathered,
            );
        }
        return;
    }
    if first >= units.count() {
        return;
    }
    let start = units.samples(first).start;
    let mut walk = track.samples.walk(start..track.playable());
    let mut parts = track.samples.walk_parts(start);
    for samples in units.lengths_from(first) {
        let (sample, _) = walk.next().expect("units are of samples");
        gathered.begin(sample.is_sync, sample.entry);
        gathered.push(track, sample.bytes, &mut parts);
        for (other, _) in walk.by_ref().take(samples - 1) {
            gathered.push(track, other.bytes, &mut parts);
        }
        let shown_ticks = sample.decode_ticks + sample.composition_ticks;
        with((sample.decode_ticks, shown_ticks), &gathered);
    }
}

impl Gathered {
    /// Looks a unit up.
    pub(super) fn look_up(&mut self, track: &SampledTrack, units: &Units, unit: usize) {
        let (samples, of_unit) = (&track.samples, units.samples(unit));
        self.begin(samples.is_sync(of_unit.start), samples.entry(of_unit.start));
        for at in of_unit {
            self.push(track, samples.size(at), |parts| samples.parts(at, parts));
        }
    }

    fn begin(&mut self, is_sync: bool, entry: u16) {
        self.bytes.clear();
        self.parts.clear();
        self.ends.clear();
        (self.is_sync, self.entry) = (is_sync, entry);
    }

    /// Takes the next sample of the unit, of which `parts` appends the parts that are known.
    fn push(
        &mut self,
        track: &SampledTrack,
        bytes_in_file: u32,
        parts: impl FnOnce(&mut Vec<u32>),
    ) {
        let packetizer = &track.codec.packetizer;
        let bytes = bytes_in_file + u32::try_from(track.prefix.len()).unwrap_or(0);
        let before = self.parts.len();
        if packetizer.parts() != Parts::None {
            parts(&mut self.parts);
            if self.parts.len() == before {
                self.parts.extend(packetizer.only_part(bytes));
            }
        }
        self.bytes.push(bytes);
        self.ends.push(self.parts.len());
    }

    /// Tells `sink` the packets of the unit; with `data`, of which there is an item a sample, if
    /// their bytes are at hand.
    pub(super) fn packetize(
        &self,
        packetizer: &dyn Packetizer,
        data: &[Cow<'_, [u8]>],
        payload_bytes_max: usize,
        sink: &mut dyn PacketSink,
    ) {
        let sample = |number: usize| {
            let before = number.checked_sub(1);
            let start = before.map_or(0, |before| self.ends[before]);
            UnitSample {
                bytes: self.bytes[number],
                parts: &self.parts[start..self.ends[number]],
                data: data.get(number).map(|data| &**data),
            }
        };
        let one;
        let several;
        let samples = match self.bytes.len() {
            // As of all pictures: nothing is allocated for it.
            1 => {
                one = [sample(0)];
                &one[..]
            }
            samples => {
                several = (0..samples).map(sample).collect::<Vec<_>>();
                &several[..]
            }
        };
        let unit = Unit {
            samples,
            is_sync: self.is_sync,
            entry: self.entry,
        };
        packetizer.packetize(&unit, payload_bytes_max, sink);
    }
}
