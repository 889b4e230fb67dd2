//! One file of the library: indexed once, and what all of its clients share.
//!
//! Plans and sources are made when they are first asked for, one for each way to cut a track into
//! packets. The file stays open, and those who play it play what was opened, whatever becomes of
//! its name. While it grows, what is new is read and published about once a second, when
//! [`Media::refresh`] is called. What was cut off or overwritten in place is played up to there.

mod behind;
mod encrypted;
mod opened;
pub(crate) mod plans;
pub(crate) mod segments;

use std::fs::{self, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use onrush_wire::media::{CUTS_MAX, Continued, Cut, Index, RtpOrigin, Scale, Scanner, Track};
use tokio::sync::Notify;
use tracing::{info, warn};

use super::film_keys::FilmKeysInUse;
use super::identity::{Identity, differing, digest};
use super::scan::{Read, Scanned, read};
use super::settings::Settings;
use super::tricks::Tricks;
use crate::store::{Backing, Source};
pub(super) use opened::Opened;

/// How often a file that grows is read on at the most.
pub const REFRESH_EVERY: Duration = Duration::from_millis(500);

/// Bytes of one file that are read on in one look at all of those that are played.
pub const REFRESH_BYTES_MAX: u64 = 64 << 20;

/// The same while somebody waits who opens it: a second or two of a disk. One that had ended and
/// goes on may have to be read from its start.
const OPENED_BYTES: u64 = if cfg!(test) { 4 << 20 } else { 256 << 20 };

/// Places that are compared to see whether a file still is what was indexed.
const PROBES_MAX: usize = 16;

/// The same of a file that has become longer.
const PROBES_GROWN: usize = 2;

/// One file, indexed, with what all of its clients share.
#[derive(Debug)]
pub struct Media {
    name: String,
    opened: Arc<Opened>,
    settings: Settings,
    /// Held for a moment at a time.
    state: Mutex<State>,
    /// Of each track.
    origins: Box<[RtpOrigin]>,
    /// Of each track, by the numbers of its cuts.
    sources: Box<[[MadeSource; CUTS_MAX]]>,
    /// Of those whose encrypted images are shared.
    film_keys: FilmKeysInUse,
    planning: plans::Planning,
    /// Held while it is cut into segments, so that nobody does it twice.
    cutting: Mutex<()>,
    /// How its playlists begin while not all of it is read.
    beginning: segments::Beginning,
    /// Held while the file is looked at.
    growth: Mutex<Growth>,
    /// Held by a thread that waits for that: the next one waits for it without a thread.
    pub(super) refreshing: Arc<tokio::sync::Mutex<()>>,
    /// New clients get another media of it.
    outdated: AtomicBool,
    /// Told whenever more is known of a file that is read behind those who play it.
    read: Notify,
}

/// A source once somebody has asked for it, and how it is cut; `None` if there cannot be one.
type MadeSource = OnceLock<Option<(Cut, Arc<Source>)>>;

/// What is known of the file by now. Changed by whoever holds [`Media::growth`].
#[derive(Clone, Debug)]
struct Known {
    index: Arc<Index>,
    /// What it was when it was read last.
    identity: Identity,
    /// What its two ends amounted to then.
    digest: u64,
    grows: bool,
    /// Not all of it is read yet, and how long it seems to be.
    estimate_ns: Option<u64>,
}

/// What is known of the file, and what was made of that.
#[derive(Debug)]
struct State {
    known: Known,
    plans: plans::Plans,
    /// The same cut into segments, once somebody has asked for them.
    segments: Option<segments::LastCut>,
    /// Sources of what is played of it at other scales.
    tricks: Tricks,
    /// Parts of the file that are others by now, and what happened to them.
    changes: Vec<(Range<u64>, String)>,
}

/// How a file is followed that grows.
#[derive(Debug)]
struct Growth {
    /// At the end of what was read. It only spares reading all again.
    scanner: Option<Scanner>,
    looked: Instant,
    grew: Instant,
    /// What is left of it, once it was cut.
    bytes_left: u64,
    /// When what is read behind those who play it is published next.
    publish_at: Instant,
}

impl Media {
    pub(super) fn new(
        name: String,
        opened: Opened,
        scanned: Scanned,
        settings: Settings,
    ) -> io::Result<Self> {
        let Scanned {
            index,
            identity,
            digest,
            growth,
            estimate_ns,
        } = scanned;
        let now = Instant::now();
        let grew = now.checked_sub(identity.age()).unwrap_or(now);
        let tracks = index.tracks().len();
        let origins: io::Result<_> = (0..tracks).map(|_| random_origin()).collect();
        Ok(Self {
            name,
            opened: Arc::new(opened),
            origins: origins?,
            sources: (0..tracks).map(|_| Default::default()).collect(),
            beginning: segments::Beginning::new(identity, &settings),
            settings,
            state: Mutex::new(State {
                known: Known {
                    index,
                    identity,
                    digest,
                    grows: growth.is_some() && estimate_ns.is_none(),
                    estimate_ns,
                },
                plans: (0..tracks).map(|_| Default::default()).collect(),
                segments: None,
                tricks: Tricks::default(),
                changes: Vec::new(),
            }),
            film_keys: FilmKeysInUse::default(),
            planning: plans::Planning::default(),
            cutting: Mutex::default(),
            growth: Mutex::new(Growth {
                scanner: growth,
                looked: now,
                grew,
                bytes_left: u64::MAX,
                publish_at: now + behind::PUBLISH_EVERY,
            }),
            refreshing: Arc::default(),
            outdated: AtomicBool::new(false),
            read: Notify::new(),
        })
    }

    /// The name it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What made it this file when it was read last.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.state().known.identity
    }

    /// What the file holds, by now.
    #[must_use]
    pub fn index(&self) -> Arc<Index> {
        Arc::clone(&self.state().known.index)
    }

    /// Whether the file is still being written.
    #[must_use]
    pub fn grows(&self) -> bool {
        self.state().known.grows
    }

    /// Whether not all of the file is read yet: it is, behind those who play it.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.state().known.estimate_ns.is_some()
    }

    /// Whether there may be more of it to play than is known by now.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.state().known.goes_on()
    }

    /// How long it is, in ns; about, while not all of it is read.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        let state = self.state();
        let known = &state.known;
        let known_ns = known.index.duration_ns();
        known
            .estimate_ns
            .map_or(known_ns, |estimate_ns| estimate_ns.max(known_ns))
    }

    /// How many tracks it has; at least one.
    #[must_use]
    pub fn tracks(&self) -> usize {
        self.origins.len()
    }

    /// What a client is told of a track.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn track(&self, track: usize) -> Track {
        self.state().known.index.tracks()[track].clone()
    }

    /// What a track's RTP headers count from: random, as RFC 3550 asks, and one for all clients,
    /// however the file grows.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn origin(&self, track: usize) -> RtpOrigin {
        self.origins[track]
    }

    /// What the store makes images from: such a [plan](Self::plan), which is made if there is none,
    /// in chunks of `chunk_bytes`, which must be the same at every call. `None` if the track cannot
    /// be cut so, or is too long for the chunks.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn source(
        &self,
        track: usize,
        payload_bytes_max: usize,
        chunk_bytes: usize,
    ) -> Option<&Arc<Source>> {
        self.plan(track, payload_bytes_max)?;
        // Until the source stands in its place: what is published meanwhile would not reach it.
        let state = self.state();
        let (cut, plan) = state.planned(track, payload_bytes_max)?;
        let plan = plan?;
        let source = self.sources[track][cut.number()].get_or_init(|| {
            let backing: Arc<dyn Backing> = Arc::<Opened>::clone(&self.opened);
            let origin = self.origins[track];
            let source = Source::new(Arc::clone(&plan), origin, backing, chunk_bytes)?;
            source.publish(plan, state.known.goes_on());
            for (part, reason) in &state.changes {
                change(&source, part, reason);
            }
            Some((cut, Arc::new(source)))
        });
        source.as_ref().map(|(_, source)| source)
    }

    /// As [`Self::source`], for what is played of the track at another scale than
    /// [`Scale::NORMAL`], and likewise one for all who play it so. `None` if the track cannot be
    /// played so, while the file grows or is not read to its end yet, or where
    /// [`TRICKS_MAX`](super::TRICKS_MAX) are in use.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn trick(
        &self,
        track: usize,
        payload_bytes_max: usize,
        chunk_bytes: usize,
        scale: Scale,
    ) -> Option<Arc<Source>> {
        let mut state = self.state();
        let may_go_on = state.known.goes_on();
        let State {
            known: Known { index, .. },
            tricks,
            changes,
            ..
        } = &mut *state;
        let cut = index.cut(track, payload_bytes_max).filter(|_| !may_go_on)?;
        tricks.get_or_make(index, (track, cut.number(), scale), || {
            let plan = index.trick(track, cut, self.settings.burst_ns, scale)?;
            let backing: Arc<dyn Backing> = Arc::<Opened>::clone(&self.opened);
            let source = Source::new(Arc::new(plan), self.origins[track], backing, chunk_bytes)?;
            for (part, reason) in &*changes {
                change(&source, part, reason);
            }
            Some(Arc::new(source))
        })
    }

    /// Looks what has become of the file since it was looked at last: reads on where it has grown,
    /// ends it where it has not for long enough, and notes what was cut off or written over. Costs
    /// a system call where nothing has changed, and blocks. Of a file that has grown by more than
    /// `bytes_max`, the rest is read another time, and it is played as far as it is known.
    ///
    /// Without a limit it waits for whoever is at it, with one it leaves the file to them.
    pub fn refresh(&self, bytes_max: Option<u64>) {
        let mut growth = match (self.growth.try_lock(), bytes_max) {
            (Ok(growth), _) => growth,
            (Err(TryLockError::Poisoned(growth)), _) => growth.into_inner(),
            (Err(TryLockError::WouldBlock), Some(_)) => return,
            (Err(TryLockError::WouldBlock), None) => {
                self.growth.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        let known = self.identity();
        if self.grows() && growth.looked.elapsed() < REFRESH_EVERY {
            return;
        }
        growth.looked = Instant::now();
        // One that lies elsewhere never changes: another under its name is another film.
        if self.opened.file.remote.is_some() {
            return;
        }
        // If the system does not tell, those who read it will be told why.
        let Ok(metadata) = self.opened.file.file.metadata() else {
            return;
        };
        let there = Identity::of(&metadata);
        if there.file_bytes < known.file_bytes.min(growth.bytes_left) {
            growth.bytes_left = there.file_bytes;
            return self.cut(known.file_bytes, there.file_bytes);
        }
        if self.outdated.load(Ordering::Relaxed) || self.is_partial() {
            return;
        }
        if there != known {
            let has_grown = there.file_bytes > known.file_bytes;
            let probes = if has_grown { PROBES_GROWN } else { PROBES_MAX };
            if let Some(part) = differing(&self.opened.file.file, &self.index(), probes) {
                let at = part.start;
                let reason = format!("the file was overwritten: at byte {at} is another packet");
                return self.change(part, &reason);
            }
            growth.grew = Instant::now();
            if has_grown {
                return self.read_on(&mut growth, there, bytes_max.unwrap_or(OPENED_BYTES));
            }
            let digest = digest(&self.opened.file, there);
            let mut state = self.state();
            (state.known.identity, state.known.digest) = (there, digest);
        }
        if self.grows() && growth.grew.elapsed() >= self.settings.growth_time_max {
            self.complete(&growth);
        }
    }

    /// Whether a file that is found under its name now, and looks like this, may be this one, as
    /// far as can be told without reading it.
    pub(super) fn may_be(&self, found: Identity) -> bool {
        let Known {
            identity: known,
            grows,
            ..
        } = self.state().known;
        let is_inode = (found.device, found.inode) == (known.device, known.inode);
        let is_as_long = found.file_bytes == known.file_bytes
            && (grows || found.modified_ns == known.modified_ns);
        is_inode && (is_as_long || found.file_bytes > known.file_bytes)
    }

    /// Whether it is of no use to new clients: it was changed in place, or packets of it could not
    /// be made.
    pub(super) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Relaxed)
            || self.sources().any(|source| source.failure().is_some())
            || has_failed(&self.film_keys.sources())
            || self.state().tricks.have_failed()
    }

    /// Whether it is of no more use to anybody: its name has gone, or is another file's, or it has
    /// grown unseen for so long that it is as well read anew. For files that nobody plays. One that
    /// rests ends there and stays, for whoever has the URLs of its segments. Lets go of what only
    /// helps to follow growth, and to read.
    pub(super) fn is_gone(&self) -> bool {
        self.opened.close_direct();
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.identity();
        if self.grows() && growth.grew.elapsed() >= self.settings.growth_time_max {
            let there = Identity::now(&self.opened.file, known);
            if self.is_outdated() || !there.is_ok_and(|there| there == known) {
                return true;
            }
            self.complete(&growth);
        }
        // One that is not read to its end yet is read on, whether anybody plays it or not.
        if !self.goes_on() {
            growth.scanner = None;
        }
        if let Some(remote) = &self.opened.file.remote {
            return self.is_outdated() || remote.is_replaced();
        }
        let is_cut = |file: &Metadata| file.size() < known.file_bytes;
        match fs::metadata(&self.opened.path) {
            Ok(there) if (there.dev(), there.ino()) == (known.device, known.inode) => {
                self.is_outdated() || is_cut(&there)
            }
            Ok(_) | Err(_) => true,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what has been appended, at most so many bytes of it, and publishes it.
    fn read_on(&self, growth: &mut Growth, there: Identity, bytes_max: u64) {
        let (old, was_growing) = {
            let state = self.state();
            (Arc::clone(&state.known.index), state.known.grows)
        };
        if !was_growing {
            // Whoever is at the end waits from now on, even if it takes long to read all again.
            self.publish(|known| known.grows = true);
        }
        let options = self.settings.options;
        let scanner = growth.scanner.get_or_insert_with(|| Scanner::new(options));
        let end = there.file_bytes;
        let bytes_max = bytes_max.max(1);
        let reading = &self.settings.reading;
        match read(&self.opened.file, scanner, bytes_max, end, reading) {
            Ok(Ok(Read::All)) => {}
            // The rest is read another time.
            Ok(Ok(Read::Enough | Read::Ended)) => return,
            Ok(Err(error)) => return self.give_up(&error.to_string()),
            // It will come again, or to those who make packets.
            Err(_) => return,
        }
        let identity = there;
        let index = match scanner.settled() {
            Ok(index) => index,
            Err(error) => return self.give_up(&error.to_string()),
        };
        match index.continuing(&old) {
            Continued::More(index) => self.publish(|known| {
                known.index = Arc::new(index);
                known.identity = identity;
            }),
            // What comes after the last packet is not certain yet.
            Continued::NotYet => self.state().known.identity = identity,
            Continued::Other => self.give_up("it was overwritten"),
        }
    }

    /// It has not grown for long: what was held back of it is published, and it ends there.
    fn complete(&self, growth: &Growth) {
        let old = self.index();
        let whole = growth.scanner.as_ref().and_then(|scanner| {
            let index = scanner.clone().finish().ok()?;
            self.keep(&index);
            match index.continuing(&old) {
                Continued::More(index) => Some(index),
                Continued::NotYet | Continued::Other => None,
            }
        });
        let digest = digest(&self.opened.file, self.identity());
        self.publish(|known| {
            if let Some(index) = whole {
                known.index = Arc::new(index);
            }
            (known.digest, known.grows) = (digest, false);
        });
    }

    /// It goes on in a way that cannot be followed: it ends where it is known to.
    fn give_up(&self, reason: &str) {
        warn!(
            "{:?} is played as far as it was known, and not on: {reason}",
            self.name
        );
        self.outdated.store(true, Ordering::Relaxed);
        self.publish(|known| (known.grows, known.estimate_ns) = (false, None));
    }

    fn cut(&self, from_bytes: u64, to_bytes: u64) {
        let reason = format!("the file was truncated from {from_bytes} to {to_bytes} bytes");
        self.change(to_bytes..u64::MAX, &reason);
    }

    /// Lets nothing be sent any more that is made of this part of the file, nor anybody new come.
    fn change(&self, part: Range<u64>, reason: &str) {
        info!("{:?} has changed: {reason}", self.name);
        self.outdated.store(true, Ordering::Relaxed);
        let mut state = self.state();
        let encrypted = self.film_keys.sources();
        let all = self.sources().chain(state.tricks.sources());
        for source in all.chain(&encrypted) {
            change(source, &part, reason);
        }
        // More than a few say no more.
        if state.changes.len() < PROBES_MAX {
            state.changes.push((part, reason.to_owned()));
        }
    }

    /// Has the index of all of the file saved, for after a restart: one that is made of the file
    /// alone, not of what was told of it before all was read.
    pub(super) fn keep(&self, index: &Index) {
        if let Some(saved) = self.settings.saved.as_ref().filter(|_| !self.is_outdated()) {
            let file: Arc<dyn Backing> = Arc::<Opened>::clone(&self.opened);
            let is_elementary = self.settings.options.is_elementary;
            saved.keep(file, self.identity(), is_elementary, index.clone());
        }
    }

    /// The numbers of all sources that were made of it.
    pub(crate) fn source_numbers(&self) -> Vec<u32> {
        let encrypted = self.film_keys.sources();
        let state = self.state();
        let all = self.sources().chain(state.tricks.sources());
        all.chain(&encrypted).map(|source| source.id()).collect()
    }

    fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        let sources = self.sources.iter().flatten();
        let made = sources.filter_map(OnceLock::get).flatten();
        made.map(|(_, source)| source)
    }
}

impl Known {
    fn goes_on(&self) -> bool {
        self.grows || self.estimate_ns.is_some()
    }
}

fn has_failed(sources: &[Arc<Source>]) -> bool {
    sources.iter().any(|source| source.failure().is_some())
}

/// Lets nothing be sent any more that is made of this part of the file.
fn change(source: &Source, part: &Range<u64>, reason: &str) {
    let packets = source.plan().rtp_packets_in(part.clone());
    source.change(packets, reason.to_owned());
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
