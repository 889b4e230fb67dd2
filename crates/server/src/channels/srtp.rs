//! What the packets of a live channel are encrypted with (SRTP): a key that all of its viewers
//! share, or one of each.
//!
//! A shared key encrypts each packet once, when it comes, under an SSRC and with numbers of its
//! own, so that all who share it are sent the same bytes. Most players know of no packets but those
//! whose numbers have not wrapped yet, whatever they are told (RFC 3711, section 3.3.1). So once
//! they have, who comes is told another key, whose numbers begin. A viewer that begins later all
//! the same, or has paused, has an SSRC of its own with the same key from then on, as who has a key
//! of its own has from the start. All that is ever encrypted under one SSRC is numbered by one
//! [`RtpSender`], which uses no index twice, and lives as long as its key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onrush_sys::sha1;
use onrush_wire::live::RecentPacket;
use onrush_wire::rtp::{Header, Position};
use onrush_wire::srtp::{Arrival, MasterKey, RtpSender, Suite, compress_one_by_one};

use crate::random::random;
use crate::store::FilmKey;

/// The keys of all tracks of a channel that its viewers share, for one suite.
#[derive(Debug)]
pub(crate) struct ChannelKeys {
    suite: Suite,
    /// What descriptions name them by.
    nonce: [u8; 16],
    tracks: Vec<Arc<ChannelKey>>,
    /// When somebody was told them last.
    told: Mutex<Instant>,
}

/// The key of a track that its viewers share, and what is encrypted once for all of them.
#[derive(Debug)]
pub(crate) struct ChannelKey {
    key: Arc<FilmKey>,
    ssrc: u32,
    sender: Mutex<RtpSender>,
    /// Numbers have wrapped where who joins begins.
    has_wrapped: AtomicBool,
    /// Nobody is told it any more.
    is_retired: AtomicBool,
}

/// Those of a channel that are in use: of each suite those that who comes is told, and those before
/// that have viewers, or were told a moment ago.
#[derive(Debug, Default)]
pub(crate) struct ChannelKeysInUse(Mutex<Vec<Arc<ChannelKeys>>>);

/// What the packets of a track are encrypted with for one viewer.
#[derive(Debug)]
pub(crate) struct ViewerSrtp {
    /// The key that it shares.
    shared: Option<Arc<ChannelKey>>,
    /// It gets nothing that is shared any more.
    has_left: AtomicBool,
    /// Numbers of its own: from the start, or from when it leaves.
    own: Mutex<Option<Box<RtpSender>>>,
}

/// Keys of a channel and suite at once: each encrypts every packet while somebody has it. Beyond
/// that who comes is told the newest, and gets packets of its own.
pub const CHANNEL_KEYS_MAX: usize = 16;

/// How long a key that nobody watches with is kept for those who were told it.
const TOLD_TIME_MAX: Duration = Duration::from_secs(60);

impl ChannelKeys {
    fn new(suite: Suite, tracks: usize) -> Self {
        let keys = (0..tracks).map(|_| Arc::new(ChannelKey::new(suite)));
        Self {
            suite,
            nonce: crate::library::marked(random(), true),
            tracks: keys.collect(),
            told: Mutex::new(Instant::now()),
        }
    }

    /// What a description names them by.
    pub(crate) fn nonce(&self) -> [u8; 16] {
        self.nonce
    }

    /// That of a track.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    pub(crate) fn track(&self, track: usize) -> &Arc<ChannelKey> {
        &self.tracks[track]
    }

    /// Whether who comes can be told them.
    fn is_fresh(&self) -> bool {
        let mut tracks = self.tracks.iter();
        tracks.all(|track| !track.has_wrapped() && !track.key.is_worn())
    }

    /// Whether somebody has them, beside this and the thread's lane, or was told them a moment ago.
    fn is_in_use(&self) -> bool {
        let mut tracks = self.tracks.iter();
        let is_held = tracks.any(|track| Arc::strong_count(track) > 2);
        is_held || lock(&self.told).elapsed() < TOLD_TIME_MAX
    }
}

impl ChannelKey {
    fn new(suite: Suite) -> Self {
        let key = Arc::new(FilmKey::new(suite));
        let ssrc = key.take_ssrc().expect("it has given none yet");
        let sender = RtpSender::new(key.master(), ssrc, first_index());
        Self {
            sender: Mutex::new(sender),
            ssrc,
            key,
            has_wrapped: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
        }
    }

    /// The key itself, and what numbers reports.
    pub(crate) fn key(&self) -> &Arc<FilmKey> {
        &self.key
    }

    /// Whether numbers have wrapped where who joins begins.
    pub(super) fn has_wrapped(&self) -> bool {
        self.has_wrapped.load(Ordering::Relaxed)
    }

    /// For the thread: whether they have at the next packet.
    pub(super) fn has_wrapped_next(&self) -> bool {
        lock(&self.sender).rollover(None) > 0
    }

    /// For the thread: it begins with the packet of that number, or with the next.
    pub(super) fn set_first(&self, sequence: Option<u16>) {
        let has_wrapped = lock(&self.sender).rollover(sequence) > 0;
        self.has_wrapped.store(has_wrapped, Ordering::Relaxed);
    }

    /// Whether nobody is told it any more.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// For the thread: whether numbers have wrapped at a packet that was encrypted lately.
    pub(super) fn has_wrapped_at(&self, sealed: &RecentPacket) -> bool {
        let sequence = Header::read(&sealed.bytes).map(|header| header.sequence);
        lock(&self.sender).rollover(sequence) > 0
    }

    /// A packet, encrypted for all; `None` if its number was used.
    pub(super) fn seal(&self, packet: &RecentPacket, at: Arrival) -> Option<RecentPacket> {
        let sealed = lock(&self.sender).protect(&packet.bytes, at)?;
        Some(RecentPacket {
            order: packet.order,
            bytes: sealed.into(),
        })
    }

    /// What comes next goes on behind what was encrypted, whatever its numbers.
    pub(super) fn begin_anew(&self) {
        lock(&self.sender).begin_anew();
    }
}

impl ChannelKeysInUse {
    /// Those that new viewers are told.
    pub(crate) fn current(&self, suite: Suite, tracks: usize) -> Arc<ChannelKeys> {
        let mut all = lock(&self.0);
        let newest = all.iter().rfind(|keys| keys.suite == suite);
        if let Some(keys) = newest.filter(|keys| keys.is_fresh()) {
            *lock(&keys.told) = Instant::now();
            return Arc::clone(keys);
        }
        all.retain(|keys| {
            let is_kept = keys.is_in_use();
            for track in keys.tracks.iter().filter(|_| !is_kept) {
                track.is_retired.store(true, Ordering::Relaxed);
            }
            is_kept
        });
        let mut of_suite = all.iter().filter(|keys| keys.suite == suite);
        let count = of_suite.clone().count();
        if let (CHANNEL_KEYS_MAX.., Some(keys)) = (count, of_suite.next_back()) {
            *lock(&keys.told) = Instant::now();
            return Arc::clone(keys);
        }
        let keys = Arc::new(ChannelKeys::new(suite, tracks));
        all.push(Arc::clone(&keys));
        keys
    }

    /// Those that a description has named so.
    pub(crate) fn named(&self, suite: Suite, nonce: [u8; 16]) -> Option<Arc<ChannelKeys>> {
        let all = lock(&self.0);
        let mut all = all.iter();
        let found = all.find(|keys| keys.suite == suite && keys.nonce == nonce);
        found.map(Arc::clone)
    }
}

impl ViewerSrtp {
    /// With a key of its own.
    pub(crate) fn own(master: &MasterKey) -> Arc<Self> {
        let ssrc = u32::from_be_bytes(random());
        let sender = RtpSender::new(master, ssrc, first_index());
        Arc::new(Self {
            shared: None,
            has_left: AtomicBool::new(true),
            own: Mutex::new(Some(Box::new(sender))),
        })
    }

    /// With one that it shares.
    pub(crate) fn shared(key: Arc<ChannelKey>) -> Arc<Self> {
        Arc::new(Self {
            shared: Some(key),
            has_left: AtomicBool::new(false),
            own: Mutex::default(),
        })
    }

    /// What it gets is encrypted for all who share this.
    pub(crate) fn shares(&self) -> Option<&Arc<ChannelKey>> {
        let has_left = self.has_left.load(Ordering::Acquire);
        self.shared.as_ref().filter(|_| !has_left)
    }

    /// From whose ports it is sent to, if not from those of who gets packets in the clear.
    pub(super) fn ports(&self) -> Option<&Arc<ChannelKey>> {
        self.shared.as_ref()
    }

    /// For the thread: from now on it has an SSRC and numbers of its own. `false` if its key is
    /// used up.
    pub(super) fn leave_shared(&self) -> bool {
        let Some(key) = &self.shared else {
            return true;
        };
        let mut own = lock(&self.own);
        if own.is_none() {
            let Some(ssrc) = key.key.take_ssrc() else {
                return false;
            };
            let sender = RtpSender::new(key.key.master(), ssrc, first_index());
            *own = Some(Box::new(sender));
        }
        self.has_left.store(true, Ordering::Release);
        true
    }

    /// The SSRC of what it gets.
    pub(crate) fn ssrc(&self) -> u32 {
        match self.shares() {
            Some(key) => key.ssrc,
            None => lock(&self.own).as_ref().map_or(0, |own| own.ssrc()),
        }
    }

    /// The numbers that a packet with these has when it is encrypted.
    pub(crate) fn position(&self, source: Position) -> Position {
        let of_own = || lock(&self.own).as_ref().map(|own| own.position(source));
        let position = match self.shares() {
            Some(key) => Some(lock(&key.sender).position(source)),
            None => of_own(),
        };
        position.unwrap_or(source)
    }

    /// For the thread: the numbers of its own that a packet with this header has if it is the next.
    pub(super) fn expect(&self, header: &Header, at: Arrival) -> Position {
        let mut own = lock(&self.own);
        let expected = own.as_mut().map(|own| own.expect(header, at));
        expected.unwrap_or(Position {
            sequence: header.sequence,
            timestamp: header.timestamp,
        })
    }

    /// For the thread: packets, encrypted for it alone, several at a time.
    pub(super) fn seal_each<'a>(
        &self,
        packets: impl Iterator<Item = &'a [u8]>,
        at: Arrival,
    ) -> Vec<Vec<u8>> {
        let compress = sha1::compress_each().unwrap_or(compress_one_by_one);
        let mut own = lock(&self.own);
        let sealed = own
            .as_mut()
            .map(|own| own.protect_each(packets, at, compress));
        // A key is used up after thousands of years.
        sealed.and_then(Result::ok).unwrap_or_default()
    }
}

/// Where numbers begin: in the lower quarter, so that a client which misses the first of them knows
/// that they have not wrapped (RFC 3711, section 3.3.1).
fn first_index() -> u64 {
    let [high, low] = random();
    u16::from_be_bytes([high & 0x3f, low]).into()
}

/// Nothing that is locked here is ever left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Arrival = Arrival {
        ns: 0,
        clock_hz: 90_000,
    };

    fn packet(sequence: u16) -> RecentPacket {
        let header = Header {
            marker: false,
            payload_type: 96,
            sequence,
            timestamp: 0,
            ssrc: 5,
        };
        RecentPacket {
            order: sequence.into(),
            bytes: header.to_bytes().into(),
        }
    }

    /// Encrypts until numbers have wrapped.
    fn wrap(keys: &ChannelKeys) {
        let key = keys.track(0);
        for step in 0_u16..4 {
            key.seal(&packet(step.wrapping_mul(30_000)), AT).unwrap();
        }
        key.set_first(None);
    }

    #[test]
    fn who_comes_is_told_keys_whose_numbers_have_not_wrapped() {
        let keys = ChannelKeysInUse::default();
        let told = || keys.current(Suite::default(), 1);
        let first = told();
        assert!(crate::library::is_marked(first.nonce()));
        assert!(Arc::ptr_eq(&first, &told()));
        let gcm = keys.current(Suite::AeadAes128Gcm, 1);
        assert!(!Arc::ptr_eq(&first, &gcm) && first.nonce() != gcm.nonce());
        assert!(!first.track(0).has_wrapped_next());
        wrap(&first);
        assert!(first.track(0).has_wrapped_next());
        let second = told();
        assert!(!Arc::ptr_eq(&first, &second));
        // Who was told the first may set up yet.
        let named = keys.named(Suite::default(), first.nonce()).unwrap();
        assert!(Arc::ptr_eq(&named, &first));
        assert!(keys.named(Suite::AeadAes128Gcm, first.nonce()).is_none());
        // Once nobody has it, it is gone.
        *lock(&first.told) -= TOLD_TIME_MAX;
        wrap(&second);
        let lane = Arc::clone(first.track(0));
        let viewer = ViewerSrtp::shared(Arc::clone(&lane));
        let third = told();
        assert!(!lane.is_retired(), "somebody watches with it");
        drop(viewer);
        wrap(&third);
        told();
        assert!(first.track(0).is_retired() && !second.track(0).is_retired());
        assert!(keys.named(Suite::default(), first.nonce()).is_none());
    }

    #[test]
    fn a_channel_has_so_many_keys_and_no_more() {
        let keys = ChannelKeysInUse::default();
        let told = || keys.current(Suite::default(), 1);
        for _ in 1..CHANNEL_KEYS_MAX {
            wrap(&told());
        }
        let last = told();
        assert!(last.is_fresh());
        wrap(&last);
        assert!(
            Arc::ptr_eq(&told(), &last),
            "its viewers get packets of their own"
        );
        *lock(&last.told) -= TOLD_TIME_MAX;
        let next = told();
        assert!(next.is_fresh() && last.track(0).is_retired(), "one is gone");
    }

    #[test]
    fn who_leaves_has_an_ssrc_of_its_own() {
        let keys = ChannelKeys::new(Suite::default(), 1);
        let key = keys.track(0);
        let [one, two] = [0, 1].map(|_| ViewerSrtp::shared(Arc::clone(key)));
        assert!(one.shares().is_some() && one.ssrc() == two.ssrc());
        let shared = one.ssrc();
        assert!(one.leave_shared() && two.leave_shared());
        assert!(one.shares().is_none());
        assert!(one.ssrc() != shared && two.ssrc() != shared && one.ssrc() != two.ssrc());
        let ssrc = one.ssrc();
        assert!(one.leave_shared() && one.ssrc() == ssrc, "once");
    }
}
