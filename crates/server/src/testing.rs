//! What the tests of store and engine share: small files, sources and stores.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};

use onrush_lock::memory::Area;
use onrush_sys::pool::Pool;
use onrush_wire::media::ts::synth::constant_rate;
use onrush_wire::media::{FilePiece, Plan, RtpOrigin, ScanOptions, Scanner, TS_PACKET_BYTES};

use crate::experiments::Faults;
use crate::store::{Backing, Source, Store};

/// 27 MHz ticks of a packet at 4 Mbit/s.
const TICKS_4_MBIT: u64 = 10_152;

/// Packets of 4 Mbit/s in a second.
const PACKETS_A_SECOND: u64 = 2660;

pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// A file of the tests' own, which can be said to have changed.
#[derive(Debug)]
pub(crate) struct TestFile {
    file: File,
    pub(crate) trouble: Mutex<Option<String>>,
}

impl Backing for TestFile {
    fn file(&self) -> &File {
        &self.file
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

    /// A source that goes on for some time, with so many transport packets of `bytes` at first.
    pub(crate) fn growing(bytes: Vec<u8>, ts_packets: usize) -> Self {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&bytes).expect("a few MB of disk");
        let plan = plan(&bytes, ts_packets, true);
        // Close to both wraps.
        let origin = RtpOrigin {
            sequence: 65_500,
            timestamp: u32::MAX - 9000,
            ssrc: 7,
        };
        let backing = Arc::new(TestFile {
            file,
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
        }
    }

    /// It has so many transport packets by now, and perhaps more later.
    pub(crate) fn grow(&self, ts_packets: usize, grows: bool) {
        self.source
            .publish(plan(&self.bytes, ts_packets, grows), grows);
    }

    /// The images of all of its packets in the end, one behind the other, the slow and sure way.
    pub(crate) fn images(&self) -> Vec<Vec<u8>> {
        let file = FilePiece {
            offset: 0,
            bytes: &self.bytes,
        };
        let ts_packets = self.bytes.len() / TS_PACKET_BYTES;
        let (plan, origin) = (plan(&self.bytes, ts_packets, false), self.source.origin());
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
fn plan(bytes: &[u8], ts_packets: usize, grows: bool) -> Arc<Plan> {
    let mut scanner = Scanner::new(ScanOptions::default());
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
    let area = Area::map(chunks * CHUNK_BYTES).expect("a little memory");
    Store::start(Arc::new(Pool::new(area, CHUNK_BYTES)), &[], faults).expect("threads")
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
