//! Sequences of operations on a store, as bytes say them: what is fuzzed.
//!
//! Two films of a transport stream, one of which grows, have more chunks than the pool. They are
//! asked for, looked for, read, built and given back in any order, while a film may come into
//! trouble. Whoever has a chunk has its packets' images, as long as it is pinned; what is in use is
//! what is pinned; and when all is given back, everything can be had again.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use onrush_lock::memory::Area;
use onrush_sys::pool::{Pin, Pool};
use onrush_wire::media::ts::synth::constant_rate;
use onrush_wire::media::{FilePiece, Plan, RtpOrigin, ScanOptions, Scanner, TS_PACKET_BYTES};
use onrush_wire::rtp::HEADER_BYTES;
use rustix::fs::{MemfdFlags, memfd_create};

use super::testing::{ManualBuilder, Reading};
use super::{Acquired, Backing, Source, layout};
use crate::experiments::Faults;

/// Small, so that films have many.
const CHUNK_BYTES: usize = 16 << 10;

/// Chunks of the pool: fewer than are pinned at a time, now and then.
const CHUNKS: usize = 4;

/// Pins that are held at a time, and chunks that are being read.
const PINS_MAX: usize = 6;
const READINGS_MAX: usize = 3;

/// Transport packets of a film, and of the one that grows at first.
const TS_PACKETS: usize = 700;
const TS_PACKETS_FIRST: usize = 60;

/// Operations of an input, at the most.
const OPERATIONS_MAX: usize = 300;

/// How often a chunk may have to be asked for when nobody else asks for anything.
const TRIES_MAX: usize = 4;

/// Near the ends of what counts modulo something.
const ORIGIN: RtpOrigin = RtpOrigin {
    sequence: 65_500,
    timestamp: u32::MAX - 9000,
    ssrc: 7,
};

/// The bytes of both films.
fn stream() -> &'static [u8] {
    /// 27 MHz ticks of a packet at 4 Mbit/s.
    const TICKS: u64 = 10_152;
    static STREAM: OnceLock<Vec<u8>> = OnceLock::new();
    STREAM.get_or_init(|| constant_rate(TS_PACKETS as u64, 0, TICKS))
}

/// The images of all of its packets.
fn images() -> &'static [Vec<u8>] {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let plan = plan(TS_PACKETS, false);
        let stream = FilePiece {
            offset: 0,
            bytes: stream(),
        };
        let image = |packet| {
            let mut image = vec![0; plan.image_bytes(packet)];
            let written = plan.write_images(packet..packet + 1, &[stream], ORIGIN, &mut image);
            written.expect("all bytes are there");
            image
        };
        (0..plan.rtp_packets()).map(image).collect()
    })
}

/// How so many transport packets of it are cut.
fn plan(ts_packets: usize, grows: bool) -> Arc<Plan> {
    let mut scanner = Scanner::new(ScanOptions::default());
    let bytes = &stream()[..ts_packets * TS_PACKET_BYTES];
    scanner.read(bytes).expect("a transport stream");
    let index = scanner.finish().expect("a transport stream");
    let cut = index.cut(0, 7 * TS_PACKET_BYTES).expect("it can be cut");
    Arc::new(index.plan(0, cut, 20_000_000, grows))
}

/// A file that can come into trouble.
#[derive(Debug)]
struct Troubled {
    file: File,
    is_in_trouble: AtomicBool,
}

impl Backing for Troubled {
    fn file(&self) -> &File {
        &self.file
    }

    fn check(&self) -> Result<(), String> {
        match self.is_in_trouble.load(Ordering::Relaxed) {
            true => Err("it is in trouble".to_owned()),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Film {
    source: Arc<Source>,
    backing: Arc<Troubled>,
    ts_packets: usize,
    was_in_trouble: bool,
}

impl Film {
    fn of(ts_packets: usize) -> Self {
        let file = memfd_create("film", MemfdFlags::CLOEXEC).expect("a little memory");
        let mut file = File::from(file);
        file.write_all(stream()).expect("a little memory");
        let backing = Arc::new(Troubled {
            file,
            is_in_trouble: AtomicBool::new(false),
        });
        let grows = ts_packets < TS_PACKETS;
        let plan = plan(ts_packets, grows);
        let source = Source::new(
            Arc::clone(&plan),
            ORIGIN,
            Arc::clone(&backing) as _,
            CHUNK_BYTES,
        );
        let source = Arc::new(source.expect("it fits its chunks"));
        source.publish(plan, grows);
        Self {
            source,
            backing,
            ts_packets,
            was_in_trouble: false,
        }
    }

    fn grow(&mut self, ts_packets: usize) {
        self.ts_packets = (self.ts_packets + ts_packets).min(TS_PACKETS);
        let grows = self.ts_packets < TS_PACKETS;
        self.source.publish(plan(self.ts_packets, grows), grows);
    }

    fn trouble(&mut self, is_in_trouble: bool) {
        self.was_in_trouble |= is_in_trouble;
        let trouble = &self.backing.is_in_trouble;
        trouble.store(is_in_trouble, Ordering::Relaxed);
    }
}

/// A chunk of a film that somebody reads.
struct Held {
    film: usize,
    chunk: u32,
    pin: Pin,
}

struct Run {
    builder: ManualBuilder,
    films: [Film; 2],
    readings: Vec<Reading>,
    held: Vec<Held>,
}

/// Does what an input says, two bytes an operation.
///
/// # Panics
///
/// If a promise is broken.
pub fn check(input: &[u8]) {
    let area = Area::map(CHUNKS * CHUNK_BYTES).expect("a little memory");
    let pool = Arc::new(Pool::new(area, CHUNK_BYTES));
    let mut run = Run {
        builder: ManualBuilder::new(pool, Faults::default()),
        films: [Film::of(TS_PACKETS), Film::of(TS_PACKETS_FIRST)],
        readings: Vec::new(),
        held: Vec::new(),
    };
    for operation in input.chunks_exact(2).take(OPERATIONS_MAX) {
        run.operate(operation[0], usize::from(operation[1]));
        run.count();
    }
    run.end();
}

impl Run {
    fn operate(&mut self, what: u8, much: usize) {
        let film = usize::from(what >> 3 & 1);
        let source = Arc::clone(&self.films[film].source);
        let packet = source.rtp_packets() * much as u64 / 256;
        let shared = Arc::clone(self.builder.shared());
        match what & 7 {
            0 | 1 => match shared.acquire_for(&source, packet) {
                Acquired::Ready(pin) => self.take(film, packet, pin),
                Acquired::Wait => {}
                Acquired::Failed => {
                    assert!(self.films[film].was_in_trouble && source.failure().is_some());
                }
            },
            2 => {
                if let Some(pin) = shared.prefetch_for(&source, packet) {
                    self.take(film, packet, pin);
                }
            }
            3 => {
                if let Some(pin) = shared.held(&source, packet) {
                    self.take(film, packet, pin);
                }
            }
            4 => self.give_back(much),
            5 => {
                if self.readings.len() == READINGS_MAX {
                    self.finish(much);
                }
                self.readings.extend(self.builder.begin());
            }
            6 => self.finish(much),
            _ if what >> 4 & 1 == 1 => self.films[film].trouble(much & 1 == 1),
            _ => self.films[film].grow(much),
        }
    }

    /// Somebody asked for a packet, and has its chunk.
    fn take(&mut self, film: usize, packet: u64, pin: Pin) {
        let source = &self.films[film].source;
        let chunk = source.chunk_of(packet);
        let held = Held { film, chunk, pin };
        let packets = self.compare(&held);
        assert!(
            packet - source.first_of(chunk) < packets,
            "it is not in there"
        );
        self.held.push(held);
        if self.held.len() > PINS_MAX {
            self.give_back(usize::from(packet.to_le_bytes()[0]));
        }
    }

    /// What is in a chunk is what belongs there: of how many packets.
    fn compare(&self, held: &Held) -> u64 {
        let bytes = self.builder.shared().pool().bytes(&held.pin);
        let contents = layout::contents(bytes);
        let source = &self.films[held.film].source;
        let first = usize::try_from(source.first_of(held.chunk)).expect("a few packets");
        let count = contents.images as usize;
        let mut rest = bytes;
        for (number, image) in (1..).zip(&images()[first..first + count]) {
            let is_cut = number == count && contents.is_last_partial;
            let length = match is_cut {
                true => contents.last_image_bytes as usize,
                false => image.len(),
            };
            let found;
            (found, rest) = rest.split_at(length);
            let part = HEADER_BYTES..length;
            assert!(
                found[part.clone()] == image[part],
                "another packet's payload"
            );
            assert!(is_cut || found == image, "another packet's header");
        }
        count as u64
    }

    fn give_back(&mut self, at: usize) {
        if let Some(at) = at.checked_rem(self.held.len()) {
            let held = self.held.swap_remove(at);
            self.compare(&held);
            self.builder.shared().pool().unpin(held.pin);
        }
    }

    fn finish(&mut self, at: usize) {
        if let Some(at) = at.checked_rem(self.readings.len()) {
            let reading = self.readings.swap_remove(at);
            self.builder.finish(reading);
        }
    }

    /// As many chunks are in use as are held.
    fn count(&self) {
        let pool = self.builder.shared().pool();
        let mut numbers: Vec<_> = self
            .held
            .iter()
            .map(|it| pool.chunk_number(&it.pin))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(pool.chunks_in_use(), numbers.len());
    }

    /// Everything is given back, and can be had again.
    fn end(mut self) {
        while !self.readings.is_empty() {
            self.finish(0);
        }
        while !self.held.is_empty() {
            self.give_back(0);
        }
        self.count();
        for film in 0..self.films.len() {
            self.films[film].trouble(false);
            let source = Arc::clone(&self.films[film].source);
            for chunk in 0..source.chunks() {
                self.fetch(film, &source, chunk);
            }
        }
        self.count();
    }

    fn fetch(&mut self, film: usize, source: &Arc<Source>, chunk: u32) {
        for _ in 0..TRIES_MAX {
            match self.builder.shared().acquire(source, chunk) {
                Acquired::Ready(pin) => {
                    self.take(film, source.first_of(chunk), pin);
                    return self.give_back(0);
                }
                Acquired::Failed => return assert!(self.films[film].was_in_trouble),
                Acquired::Wait => {}
            }
            while let Some(reading) = self.builder.begin() {
                self.builder.finish(reading);
            }
        }
        panic!("chunk {chunk} is asked for, and nobody builds it");
    }
}
