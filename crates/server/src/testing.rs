//! What the tests of store and engine share: small files, sources and stores.

pub(crate) mod seeds_tests;

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use onrush_lock::memory::Area;
use onrush_sys::pool::Pool;
use onrush_wire::media::ts::synth::{MapEntry, Packet, Writer, constant_rate, pes};
use onrush_wire::media::{FilePiece, Plan, RtpOrigin, ScanOptions, Scanner, TS_PACKET_BYTES};

use crate::experiments::Faults;
use crate::store::{Backing, Source, Store, open_direct};

/// 27 MHz ticks of a packet at 4 Mbit/s.
const TICKS_4_MBIT: u64 = 10_152;

/// Packets of 4 Mbit/s in a second.
const PACKETS_A_SECOND: u64 = 2660;

pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// A file of the tests' own, which can be said to have changed.
#[derive(Debug)]
pub(crate) struct TestFile {
    file: File,
    direct: OnceLock<Option<Arc<File>>>,
    pub(crate) trouble: Mutex<Option<String>>,
}

impl Backing for TestFile {
    fn file(&self) -> &File {
        &self.file
    }

    fn direct(&self) -> Option<Arc<File>> {
        let open = || open_direct(&self.file).map(Arc::new);
        self.direct.get_or_init(open).clone()
    }

    fn check(&self) -> Result<(), String> {
        self.trouble.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

/// A source, its file, and the bytes of that.
pub(crate) struct TestSource {
    pub(crate) source: Arc<Source>,
    pub(crate) backing: Arc<TestFile>,
    pub(crate) bytes: Vec<u8>,
    is_elementary: bool,
}

impl TestSource {
    /// `milliseconds` of 4 Mbit/s.
    pub(crate) fn lasting(milliseconds: u64) -> Self {
        Self::of(constant_rate(
            PACKETS_A_SECOND * milliseconds / 1000,
            0,
            TICKS_4_MBIT,
        ))
    }

    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        let ts_packets = bytes.len() / TS_PACKET_BYTES;
        let test = Self::growing(bytes, ts_packets);
        test.grow(ts_packets, false);
        test
    }

    /// The H.264 of a transport stream as a track of its own: so many pictures of so many bytes.
    pub(crate) fn large_pictures(pictures: usize, bytes: usize) -> Self {
        // Parameter sets of 640 x 360, High, level 3.0, and a picture that needs no other.
        let begin = [
            &[0, 0, 1, 9, 0xf0][..],
            &Self::PARAMETER_SETS,
            &[0, 0, 1, 0x65, 0x88],
        ];
        Self::of_pictures((0..pictures).map(|_| (begin.concat(), bytes)))
    }

    /// 25 pictures a second of just less than four packets of 1220 bytes, as they are cut. Only the
    /// first needs no other.
    pub(crate) fn film(pictures: usize) -> Self {
        let begin = |number| match number {
            0 => [&Self::PARAMETER_SETS[..], &[0, 0, 1, 0x65, 0x88]].concat(),
            _ => vec![0, 0, 1, 0x41, 0x88],
        };
        Self::of_pictures((0..pictures).map(|number| (begin(number), 4700 + number * 37 % 150)))
    }

    const PARAMETER_SETS: [u8; 21] = [
        0, 0, 1, 0x67, 0x64, 0, 0x1e, 0xac, 0xd9, 0x40, 0xa0, 0x2f, 0xf9, 0x70, 0, 0, 1, 0x68,
        0xeb, 0xe3, 0xcb,
    ];

    /// Pictures of a transport stream as a track of their own: how each begins, and how many bytes
    /// it has behind that.
    fn of_pictures(pictures: impl Iterator<Item = (Vec<u8>, usize)>) -> Self {
        let mut writer = Writer::new();
        writer.pat(&[(1, 0x1000)]);
        let video = MapEntry {
            pid: 0x100,
            stream_type: 0x1b,
            descriptors: &[],
        };
        writer.pmt(0x1000, 1, video.pid, &[video]);
        for (number, (mut data, bytes)) in (0..).zip(pictures) {
            data.extend((0..bytes).map(|at| u8::try_from(1 + at % 251).expect("below 252")));
            let pes = pes(90_000 + number * 3600, &data);
            for (at, payload) in pes.chunks(TS_PACKET_BYTES - 4).enumerate() {
                writer.packet(Packet {
                    pid: video.pid,
                    unit_start: at == 0,
                    payload,
                    ..Packet::default()
                });
            }
        }
        let bytes = writer.finish();
        let ts_packets = bytes.len() / TS_PACKET_BYTES;
        let test = Self::with(bytes, ts_packets, true);
        test.grow(ts_packets, false);
        test
    }

    /// The AAC of a transport stream as a track of its own: so many groups of frames, 16 KB each,
    /// with `apart` packets of nothing between them.
    pub(crate) fn sound_apart(groups: u64, apart: usize) -> Self {
        const FRAMES: u64 = 40;
        let mut writer = Writer::new();
        writer.pat(&[(1, 0x1000)]);
        let sound = MapEntry {
            pid: 0x100,
            stream_type: 0x0f,
            descriptors: &[],
        };
        writer.pmt(0x1000, 1, sound.pid, &[sound]);
        for group in 0..groups {
            // AAC-LC, 48 kHz, two channels, 400 bytes with the header.
            let header = [0xff, 0xf1, 0x4c, 0x80, 50, 0x1f, 0xfc];
            let frame = |at: u64| {
                let byte = u8::try_from(1 + (group * FRAMES + at) % 251).expect("below 252");
                [&header[..], &[byte; 393]].concat()
            };
            let data: Vec<_> = (0..FRAMES).flat_map(frame).collect();
            let pes = pes(90_000 + group * FRAMES * 1920, &data);
            for (at, payload) in pes.chunks(TS_PACKET_BYTES - 4).enumerate() {
                writer.packet(Packet {
                    pid: sound.pid,
                    unit_start: at == 0,
                    payload,
                    ..Packet::default()
                });
            }
            (0..apart).for_each(|_| writer.null());
        }
        let bytes = writer.finish();
        let ts_packets = bytes.len() / TS_PACKET_BYTES;
        let test = Self::with(bytes, ts_packets, true);
        test.grow(ts_packets, false);
        test
    }

    /// A source that goes on for some time, with so many transport packets of `bytes` at first.
    pub(crate) fn growing(bytes: Vec<u8>, ts_packets: usize) -> Self {
        Self::with(bytes, ts_packets, false)
    }

    fn with(bytes: Vec<u8>, ts_packets: usize, is_elementary: bool) -> Self {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&bytes).expect("a few MB of disk");
        let plan = plan(&bytes, ts_packets, is_elementary, true);
        // Close to both wraps.
        let origin = RtpOrigin {
            sequence: 65_500,
            timestamp: u32::MAX - 9000,
            ssrc: 7,
        };
        let backing = Arc::new(TestFile {
            file,
            direct: OnceLock::new(),
            trouble: Mutex::new(None),
        });
        let source = Source::new(
            Arc::clone(&plan),
            origin,
            Arc::clone(&backing) as _,
            CHUNK_BYTES,
        );
        let source = source.expect("it fits its chunks");
        source.publish(plan, true);
        Self {
            source: Arc::new(source),
            backing,
            bytes,
            is_elementary,
        }
    }

    /// It has so many transport packets by now, and perhaps more later.
    pub(crate) fn grow(&self, ts_packets: usize, grows: bool) {
        let plan = plan(&self.bytes, ts_packets, self.is_elementary, grows);
        self.source.publish(plan, grows);
    }

    /// The images of all of its packets in the end, one behind the other, the slow and sure way.
    pub(crate) fn images(&self) -> Vec<Vec<u8>> {
        let file = FilePiece {
            offset: 0,
            bytes: &self.bytes,
        };
        let ts_packets = self.bytes.len() / TS_PACKET_BYTES;
        let plan = plan(&self.bytes, ts_packets, self.is_elementary, false);
        let origin = self.source.origin();
        if self.is_elementary {
            // A packet alone wants all of its picture, which is large.
            let all = 0..plan.rtp_packets();
            let bytes = usize::try_from(plan.images_bytes(all.clone())).expect("a few MB");
            let mut images = vec![0; bytes];
            plan.write_images(all.clone(), &[file], origin, &mut images)
                .expect("all bytes are there");
            let mut rest = &images[..];
            let mut next = |packet| rest.split_off(..12 + plan.payload_bytes(packet));
            return all.map(|it| next(it).expect("as many").to_vec()).collect();
        }
        (0..plan.rtp_packets())
            .map(|packet| {
                let mut image = vec![0; 12 + plan.payload_bytes(packet)];
                plan.write_images(packet..packet + 1, &[file], origin, &mut image)
                    .expect("all bytes are there");
                image
            })
            .collect()
    }
}

/// How so many packets of a stream are cut. Its rate is constant, so that times are exact where
/// they are only guessed.
fn plan(bytes: &[u8], ts_packets: usize, is_elementary: bool, grows: bool) -> Arc<Plan> {
    let mut scanner = Scanner::new(ScanOptions {
        is_elementary,
        ..ScanOptions::default()
    });
    // All of it, what is no whole packet too, if it is to have all.
    let end = match ts_packets == bytes.len() / TS_PACKET_BYTES {
        true => bytes.len(),
        false => ts_packets * TS_PACKET_BYTES,
    };
    scanner.read(&bytes[..end]).expect("a transport stream");
    let index = scanner.finish().expect("a transport stream");
    let cut = index.cut(0, 7 * TS_PACKET_BYTES).expect("a frame");
    Arc::new(index.plan(0, cut, 20_000_000, grows))
}

/// A store of so many chunks.
pub(crate) fn store(chunks: usize, faults: Faults) -> Store {
    store_of(CHUNK_BYTES, chunks, faults)
}

/// A store of so many chunks of so many bytes.
pub(crate) fn store_of(chunk_bytes: usize, chunks: usize, faults: Faults) -> Store {
    let area = Area::map(chunks * chunk_bytes).expect("a little memory");
    Store::start(Arc::new(Pool::new(area, chunk_bytes)), &[], faults).expect("threads")
}

/// A store of so many bytes in which so many engines have room for headers of sessions' own.
pub(crate) fn store_with_slabs(bytes: usize, slabs: usize) -> Store {
    let area = Area::map(bytes).expect("a little memory");
    let pool = Pool::with_slabs(area, CHUNK_BYTES, slabs);
    Store::start(Arc::new(pool), &[], Faults::default()).expect("threads")
}

/// Waits, not for ever, until `true`.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(
            std::time::Instant::now() < give_up,
            "waited a minute in vain until {what}"
        );
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}
