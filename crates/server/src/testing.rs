//! What the tests of store and engine share: small files, sources and stores.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};

use onrush_sys::memory::Area;
use onrush_sys::pool::Pool;
use onrush_wire::media::synth::constant_rate;
use onrush_wire::media::ts::{ScanOptions, Scanner};
use onrush_wire::media::{FilePiece, Packetisation, Plan, RtpOrigin};

use crate::faults::Faults;
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
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&bytes).expect("a few MB of disk");
        let mut scanner = Scanner::new(ScanOptions::default());
        scanner.push(&bytes).expect("a transport stream");
        let index = Arc::new(scanner.finish().expect("a transport stream"));
        let packetisation = Packetisation {
            ts_packets_per_rtp: 7,
            burst_ns: 20_000_000,
        };
        let plan = Arc::new(Plan::new(index, packetisation));
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
        let source = Source::new(plan, origin, Arc::clone(&backing) as _, CHUNK_BYTES);
        Self {
            source: Arc::new(source.expect("it fits its chunks")),
            backing,
            bytes,
        }
    }

    /// The images of all of its packets, one behind the other, the slow and sure way.
    pub(crate) fn images(&self) -> Vec<Vec<u8>> {
        let file = FilePiece {
            offset: 0,
            bytes: &self.bytes,
        };
        let (plan, origin) = (self.source.plan(), self.source.origin());
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

/// A store of so many chunks.
pub(crate) fn store(chunks: usize, faults: Faults) -> Store {
    let area = Area::map(chunks * CHUNK_BYTES).expect("a little memory");
    Store::start(Arc::new(Pool::new(area, CHUNK_BYTES)), &[], faults).expect("threads")
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
