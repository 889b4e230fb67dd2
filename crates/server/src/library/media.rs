//! One file of the library: indexed once, and what all of its clients share.
//!
//! Plans and sources are made when they are first asked for, one for each size of packets. The file stays open, so
//! that what was indexed can be read even if another takes its name; [`Media::check`] tells when that happened.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use onrush_sys::fs::{advise_done, advise_sequential};
use onrush_wire::media::ts::{ScanOptions, Scanner};
use onrush_wire::media::{Index, Packetisation, Plan, RtpOrigin};

use crate::store::{Backing, Source};

/// One file, indexed, with what all of its clients share.
#[derive(Debug)]
pub struct Media {
    name: String,
    opened: Arc<Opened>,
    index: Arc<Index>,
    origin: RtpOrigin,
    burst_ns: u64,
    plans: [OnceLock<Arc<Plan>>; 7],
    sources: [OnceLock<Option<Arc<Source>>>; 7],
}

/// The open file behind a media, for those who read it.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) identity: Identity,
}

/// What makes a file the same file as before.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Identity {
    /// The file system's device number.
    pub device: u64,
    /// The file's number on it.
    pub inode: u64,
    /// Its length.
    pub file_bytes: u64,
    /// When its bytes last changed, in ns since 1970.
    pub modified_ns: i128,
}

impl Media {
    pub(super) fn new(
        name: String,
        opened: Opened,
        index: Arc<Index>,
        burst_ns: u64,
    ) -> io::Result<Self> {
        Ok(Self {
            name,
            opened: Arc::new(opened),
            index,
            origin: random_origin()?,
            burst_ns,
            plans: Default::default(),
            sources: Default::default(),
        })
    }

    /// The name it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What made it this file when it was indexed.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.opened.identity
    }

    /// What the file holds.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// What its RTP headers count from: random, as RFC 3550 asks, and one for all clients.
    #[must_use]
    pub fn origin(&self) -> RtpOrigin {
        self.origin
    }

    /// The synchronisation source of all of the file's packets.
    #[must_use]
    pub fn ssrc(&self) -> u32 {
        self.origin.ssrc
    }

    /// The packets of this file with `ts_packets_per_rtp` transport packets each (1 to 7; what is beyond is
    /// taken as the nearest of these).
    #[must_use]
    pub fn plan(&self, ts_packets_per_rtp: u8) -> &Arc<Plan> {
        let ts_packets_per_rtp = ts_packets_per_rtp.clamp(1, 7);
        let burst_ns = self.burst_ns;
        self.plans[usize::from(ts_packets_per_rtp) - 1].get_or_init(|| {
            let packetisation = Packetisation {
                ts_packets_per_rtp,
                burst_ns,
            };
            Arc::new(Plan::new(Arc::clone(&self.index), packetisation))
        })
    }

    /// What the store makes images from: the plan with `ts_packets_per_rtp`, in chunks of `chunk_bytes`, which
    /// must be the same at every call. `None` if the file is too long for the chunks.
    #[must_use]
    pub fn source(&self, ts_packets_per_rtp: u8, chunk_bytes: usize) -> Option<&Arc<Source>> {
        let plan = self.plan(ts_packets_per_rtp);
        let place = &self.sources[usize::from(ts_packets_per_rtp.clamp(1, 7)) - 1];
        let source = place.get_or_init(|| {
            let backing: Arc<dyn Backing> = Arc::<Opened>::clone(&self.opened);
            Source::new(Arc::clone(plan), self.origin, backing, chunk_bytes).map(Arc::new)
        });
        source.as_ref()
    }

    /// Lets no more packets of it be made, because it is no longer what was indexed.
    pub fn fail(&self, reason: &str) {
        for source in self.sources.iter().filter_map(OnceLock::get).flatten() {
            source.fail(reason.to_owned());
        }
    }

    /// Whether packets of it could not be made, or [`Self::fail`] was told so.
    pub(super) fn has_failed(&self) -> bool {
        let mut sources = self.sources.iter().filter_map(OnceLock::get).flatten();
        sources.any(|source| source.failure().is_some())
    }

    /// The sequence number of RTP packet `rtp_packet` of a plan.
    #[must_use]
    pub fn sequence(&self, rtp_packet: u64) -> u16 {
        self.origin.sequence_of(rtp_packet)
    }

    /// The RTP timestamp of media time `time_ns`.
    #[must_use]
    pub fn timestamp(&self, time_ns: u64) -> u32 {
        self.origin.timestamp_of(time_ns)
    }

    /// Whether the file still is what was indexed. Two system calls that do not read the file.
    ///
    /// # Errors
    ///
    /// In words what became of it: truncated, removed, replaced, modified, or what the system said.
    pub fn check(&self) -> Result<(), String> {
        self.opened.check()
    }
}

impl Backing for Opened {
    fn file(&self) -> &File {
        &self.file
    }

    fn check(&self) -> Result<(), String> {
        let now = self.file.metadata().map_err(|error| error.to_string())?;
        let (before, after) = (self.identity, Identity::of(&now));
        if after.file_bytes < before.file_bytes {
            return Err(format!(
                "the file was truncated from {} to {} bytes",
                before.file_bytes, after.file_bytes
            ));
        }
        if after != before {
            return Err("the file was modified while it was played".to_owned());
        }
        match fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (before.device, before.inode) => Ok(()),
            Ok(_) => Err("the file was replaced by another".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err("the file was removed".to_owned())
            }
            Err(error) => Err(format!("the file is out of reach: {error}")),
        }
    }
}

impl Identity {
    /// The identity of the file with this metadata.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let seconds = i128::from(metadata.mtime()) * 1_000_000_000;
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            file_bytes: metadata.size(),
            modified_ns: seconds + i128::from(metadata.mtime_nsec()),
        }
    }
}

fn random_origin() -> io::Result<RtpOrigin> {
    let mut random = [0; 10];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let [s0, s1, t0, t1, t2, t3, source @ ..] = random;
    Ok(RtpOrigin {
        sequence: u16::from_be_bytes([s0, s1]),
        timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
        ssrc: u32::from_be_bytes(source),
    })
}

/// How much is read at once while indexing.
const READ_BYTES: usize = 1 << 20;

/// Files up to this length may stay in the page cache once indexed; of longer ones the pages are let go,
/// since their packets are read past it.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// Reads all of `file` and indexes it.
pub(super) fn scan(
    file: &File,
    identity: Identity,
    options: ScanOptions,
    stopping: &AtomicBool,
) -> io::Result<Result<Index, String>> {
    advise_sequential(file);
    let mut scanner = Scanner::new(options);
    let mut buffer = vec![0; READ_BYTES];
    let mut at = 0;
    while at < identity.file_bytes {
        if stopping.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the server is stopping",
            ));
        }
        let left = usize::try_from(identity.file_bytes - at).unwrap_or(READ_BYTES);
        let read = match file.read_at(&mut buffer[..left.min(READ_BYTES)], at) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if let Err(error) = scanner.push(&buffer[..read]) {
            return Ok(Err(error.to_string()));
        }
        if identity.file_bytes > KEPT_BYTES_MAX {
            advise_done(file, at, read as u64);
        }
        at += read as u64;
    }
    if Identity::of(&file.metadata()?) != identity {
        return Err(io::Error::other(
            "the file changed while it was read; try again when it is complete",
        ));
    }
    Ok(scanner.finish().map_err(|error| error.to_string()))
}
