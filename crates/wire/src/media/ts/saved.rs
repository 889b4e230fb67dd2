//! What is saved of the index of a transport stream.

use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::facts::Facts;
use super::index::{Index, SAMPLE_EVERY, SyncRun, TS_PACKET_BYTES};
use super::picture::Picture;
use super::psi::{ASSOCIATIONS_MAX, PROGRAMS_MAX, STREAMS_MAX};
use super::seek::{SEEK_POINTS_MAX, SeekPoint};
use super::{SYNC_RUNS_MAX, UNITS};

/// The index, as it is saved.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::media) struct SavedIndex {
    runs: Vec<SyncRun>,
    /// What bytes of some packets amount to, the lowest byte first.
    samples: Vec<u8>,
    clock: Clock,
    seek_points: Vec<SeekPoint>,
    pictures: Vec<Picture>,
    associations: Vec<u32>,
    facts: Facts,
    /// Of each program its map: reports, which programs are written in as well, have none.
    maps: Vec<Box<[u8]>>,
}

const SAMPLE_BYTES: usize = size_of::<u32>();

impl SavedIndex {
    /// What is saved of `index`.
    pub(in crate::media) fn of(index: &Index) -> Self {
        let samples = index.samples.iter();
        let maps = index.facts.streams.programs.iter().map(|it| it.map.clone());
        Self {
            runs: index.runs.clone(),
            samples: samples.flat_map(|it| it.to_le_bytes()).collect(),
            clock: index.clock.clone(),
            seek_points: index.seek_points.clone(),
            pictures: index.pictures.clone(),
            associations: index.associations.clone(),
            facts: index.facts.clone(),
            maps: maps.collect(),
        }
    }

    /// The index.
    ///
    /// # Errors
    ///
    /// What is wrong with it: it is not what [`Self::of`] has made.
    pub(in crate::media) fn index(mut self) -> Result<Index, &'static str> {
        let ts_packets = packets_of(&self.runs, self.facts.file_bytes);
        let ts_packets = ts_packets.ok_or("runs of packets that no file has")?;
        let (samples, rest) = self.samples.as_chunks::<SAMPLE_BYTES>();
        if samples.len() as u64 != ts_packets.div_ceil(SAMPLE_EVERY) || !rest.is_empty() {
            return Err("samples of other packets");
        }
        if self.clock.packets() < ts_packets {
            return Err("a clock of fewer packets");
        }
        if !self.has_seek_points(ts_packets) {
            return Err("points to start at that are none");
        }
        if !self.has_pictures(ts_packets) {
            return Err("pictures that are none");
        }
        if !self.has_associations(ts_packets) {
            return Err("packets of tables that are none");
        }
        let programs = &self.facts.streams.programs;
        let streams = programs.iter().map(|program| program.streams.len());
        if programs.len() > PROGRAMS_MAX || streams.sum::<usize>() > STREAMS_MAX {
            return Err("too many programs or streams");
        }
        if self.maps.len() != programs.len() {
            return Err("maps of other programs");
        }
        let programs = self.facts.streams.programs.iter_mut();
        for (program, map) in programs.zip(self.maps) {
            program.map = map;
        }
        Ok(Index {
            ts_packets,
            runs: self.runs,
            samples: samples.iter().map(|it| u32::from_le_bytes(*it)).collect(),
            clock: self.clock,
            seek_points: self.seek_points,
            pictures: self.pictures,
            associations: self.associations,
            facts: self.facts,
        })
    }

    fn has_seek_points(&self, ts_packets: u64) -> bool {
        let points = &self.seek_points;
        let in_order = |one: &SeekPoint, next: &SeekPoint| {
            one.ts_packet < next.ts_packet && one.time_ns <= next.time_ns
        };
        let is_start = |point: &SeekPoint| (point.ts_packet, point.time_ns) == (0, 0);
        points.first().is_some_and(is_start)
            && points.is_sorted_by(in_order)
            && points
                .last()
                .is_some_and(|last| last.ts_packet < ts_packets)
            && points.len() <= SEEK_POINTS_MAX + 1
    }

    /// Whether there is one for each point to start at, and all of it in the file, one behind the
    /// other.
    fn has_pictures(&self, ts_packets: u64) -> bool {
        let mut end = 0;
        let mut pairs = self.seek_points.iter().zip(&self.pictures);
        self.pictures.len() == self.seek_points.len()
            && pairs.all(|(point, picture)| {
                let first = point.ts_packet.saturating_add(picture.ahead.into());
                let is_behind = !picture.is_there() || first >= end;
                end = end.max(picture.end(point.ts_packet));
                picture.is_sound() && is_behind && end <= ts_packets
            })
    }

    fn has_associations(&self, ts_packets: u64) -> bool {
        let packets = &self.associations;
        packets.is_sorted_by(|one, next| one < next)
            && packets.last().is_none_or(|it| u64::from(*it) < ts_packets)
            && packets.len() <= ASSOCIATIONS_MAX
    }
}

/// How many packets these runs have, if they follow on one another in a file that ends at `end`.
pub(super) fn packets_of(runs: &[SyncRun], end: u64) -> Option<u64> {
    let (mut packets, mut place) = (0_u64, 0);
    for run in runs {
        let is_known = UNITS.iter().any(|it| it.packet_stride == run.packet_stride);
        if !is_known || run.first != packets {
            return None;
        }
        if run.file_offset < place {
            return None;
        }
        packets = packets.checked_add(run.packets)?;
        place = run.file_offset;
        // What stands before and after a packet need not be there at the end of a run.
        if let Some(before_last) = run.packets.checked_sub(1) {
            let bytes = before_last.checked_mul(run.packet_stride.into())?;
            place = place.checked_add(bytes)?;
            place = place.checked_add(TS_PACKET_BYTES as u64)?;
        }
    }
    let is_in_file = place <= end;
    (packets > 0 && runs.len() <= SYNC_RUNS_MAX && is_in_file).then_some(packets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::ts::{ScanOptions, Scanner, synth};

    #[test]
    fn pictures_that_no_stream_has_are_refused() {
        let mut scanner = Scanner::new(ScanOptions::default());
        let stream = synth::pictures(&[(100, 1000); 9], 27_000);
        scanner.push(&stream).unwrap();
        let index = scanner.finish().unwrap();
        assert!(index.pictures.iter().all(Picture::is_there));
        let saved = SavedIndex::of(&index).index().unwrap();
        assert_eq!(saved.pictures, index.pictures);
        let changes: [fn(&mut SavedIndex); 7] = [
            |it| it.pictures.truncate(4),
            |it| it.pictures[1].span = 2000,
            |it| it.pictures[1].span = u32::MAX,
            |it| it.pictures[1].ahead = u32::MAX,
            |it| it.pictures[1].packets = 101,
            |it| it.pictures[0].span = 101,
            |it| it.pictures[8].ahead = 1,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut saved = SavedIndex::of(&index);
            change(&mut saved);
            let error = saved.index().unwrap_err();
            assert!(error.contains("pictures"), "{number}: {error}");
        }
    }

    #[test]
    fn tables_beyond_a_stream_are_refused() {
        let mut scanner = Scanner::new(ScanOptions::default());
        let mut writer = synth::Writer::new();
        for _ in 0..5 {
            writer.pat(&[(0, 16), (1, 100)]);
            writer.null();
        }
        scanner.push(&writer.finish()).unwrap();
        let index = scanner.finish().unwrap();
        assert_eq!(index.associations, [0, 2, 4, 6, 8]);
        let saved = SavedIndex::of(&index).index().unwrap();
        assert_eq!(saved.associations, index.associations);
        let changes: [fn(&mut SavedIndex); 2] =
            [|it| it.associations[0] = 2, |it| it.associations[4] = 10];
        for change in changes {
            let mut saved = SavedIndex::of(&index);
            change(&mut saved);
            let error = saved.index().unwrap_err();
            assert!(error.contains("tables"), "{error}");
        }
    }

    #[test]
    fn an_index_that_no_stream_has_is_refused() {
        let mut scanner = Scanner::new(ScanOptions::default());
        scanner
            .push(&synth::constant_rate(2000, 0, 10_152))
            .unwrap();
        let index = scanner.finish().unwrap();
        assert!(SavedIndex::of(&index).index().is_ok());
        /// Has packets from the thousandth on lie there.
        fn second_run(saved: &mut SavedIndex, file_offset: u64) {
            let second = SyncRun {
                file_offset,
                first: 1000,
                packets: 1000,
                ..saved.runs[0]
            };
            saved.runs[0].packets = 1000;
            saved.runs.push(second);
        }
        let mut parted = SavedIndex::of(&index);
        second_run(&mut parted, 188_000);
        assert!(parted.index().is_ok());
        type Change = fn(&mut SavedIndex);
        let changes: [(&str, Change); 16] = [
            ("runs", |it| it.runs.clear()),
            ("runs", |it| it.runs[0].first = 1),
            ("runs", |it| it.runs[0].packet_stride = 7),
            ("runs", |it| it.runs[0].packets = u64::MAX),
            ("runs", |it| it.runs[0].file_offset = u64::MAX - 99),
            ("runs", |it| it.facts.file_bytes /= 2),
            ("runs", |it| second_run(it, 188_000 - 1)),
            ("runs", |it| {
                it.runs[0].file_offset = 1;
                let empty = SyncRun {
                    packets: 0,
                    file_offset: 2,
                    ..it.runs[0]
                };
                it.runs.insert(0, empty);
                it.facts.file_bytes += 1;
            }),
            ("samples", |it| it.samples.truncate(4)),
            ("samples", |it| it.samples.push(0)),
            ("clock", |it| it.clock = Clock::constant(1000, 1)),
            ("start", |it| it.seek_points.clear()),
            ("start", |it| it.seek_points[0].time_ns = 1),
            ("start", |it| it.seek_points[1].ts_packet = 0),
            ("start", |it| it.seek_points[1].time_ns = u64::MAX),
            ("start", |it| {
                it.seek_points.last_mut().unwrap().ts_packet = 2000
            }),
        ];
        for (number, (what, change)) in changes.into_iter().enumerate() {
            let mut saved = SavedIndex::of(&index);
            change(&mut saved);
            let error = saved.index().unwrap_err();
            assert!(error.contains(what), "{number}: {error}, not {what}");
        }
    }
}
