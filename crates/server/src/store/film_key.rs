//! The key of a track's images that all who are told it share, and the encryption of chunks with
//! it.
//!
//! No (key, SSRC, index) may ever be used for two plaintexts (RFC 3711, section 9.1). A key is
//! random and one track's, as it was opened. Each source that is encrypted with it, and each
//! session that has left the shared images, has an SSRC that the key gives to nobody else. Of a
//! source, a packet's index is its number in the plan, so a packet that is built again, because the
//! cache has given its chunk up, or because two chunks hold it, has the same index; [`ImageCipher`]
//! keeps a digest of the plain bytes of each [run](HeldRun) of packets that chunks hold whole or
//! not at all, and refuses to encrypt others. Reports under the images' SSRC are numbered by the
//! key, whichever session they are of.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use onrush_wire::media::Burst;
use onrush_wire::srtp::{MasterKey, RtcpSender, RtpKeys, Suite};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::random::random;

/// Uses of a key, as SSRCs or reports, after which new viewers are told another. It is half of what
/// a key can be used for (RFC 3711, section 9.2), so that those who have it can go on.
pub const FILM_KEY_USES_MAX: u32 = 1 << 30;

/// The key of a track for all who are told it.
#[derive(Debug)]
pub struct FilmKey {
    master: MasterKey,
    first_ssrc: u32,
    /// SSRCs given so far.
    ssrcs: AtomicU32,
    /// What reports under the SSRCs of images are encrypted with, one after the other.
    reports: Mutex<RtcpSender>,
    reports_sent: AtomicU32,
}

/// What encrypts the chunks of one source.
#[derive(Debug)]
pub struct ImageCipher {
    key: Arc<FilmKey>,
    keys: RtpKeys,
    /// What each run of packets that was encrypted was, by its first packet: two for a chunk of the
    /// file, 48 bytes each.
    contents: Mutex<BTreeMap<u64, RunContent>>,
}

/// What a run of packets was when it was encrypted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct RunContent {
    /// The packet behind its last.
    end: u64,
    /// Of its images' plain bytes.
    digest: [u8; 32],
}

/// Packets that lie one behind the other in each chunk that holds one of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct HeldRun {
    pub(super) packets: Range<u64>,
    /// Bytes of their images before they are encrypted.
    pub(super) images_bytes: u64,
}

impl FilmKey {
    /// A random one.
    #[must_use]
    pub fn new(suite: Suite) -> Self {
        let bytes = Zeroizing::<[u8; 32]>::new(random());
        let master = MasterKey::new(suite, &bytes[..suite.master_bytes()]);
        let master = master.expect("a key is shorter than 32 bytes");
        Self {
            reports: Mutex::new(RtcpSender::new(&master)),
            master,
            first_ssrc: u32::from_be_bytes(random()),
            ssrcs: AtomicU32::new(0),
            reports_sent: AtomicU32::new(0),
        }
    }

    /// The key itself, for those who may know it.
    #[must_use]
    pub fn master(&self) -> &MasterKey {
        &self.master
    }

    /// An SSRC that this key has given to nobody else; `None` once it has given all.
    pub fn take_ssrc(&self) -> Option<u32> {
        let more = |given: u32| given.checked_add(1);
        let given = self
            .ssrcs
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        given.ok().map(|given| self.first_ssrc.wrapping_add(given))
    }

    /// A report whose sender has the SSRC of images, encrypted; `None` once the key is used up.
    pub fn protect_report(&self, report: &[u8]) -> Option<Vec<u8>> {
        self.reports_sent.fetch_add(1, Ordering::Relaxed);
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.protect(report).ok()
    }

    /// Whether new viewers are to be told another.
    #[must_use]
    pub fn is_worn(&self) -> bool {
        let used = |uses: &AtomicU32| uses.load(Ordering::Relaxed) >= FILM_KEY_USES_MAX;
        used(&self.ssrcs) || used(&self.reports_sent)
    }

    #[cfg(test)]
    pub(crate) fn wear(&self, uses: u32) {
        self.ssrcs.store(uses, Ordering::Relaxed);
    }
}

impl ImageCipher {
    /// For a source whose SSRC that key has given.
    #[must_use]
    pub fn new(key: &Arc<FilmKey>) -> Self {
        Self {
            key: Arc::clone(key),
            keys: RtpKeys::new(key.master()),
            contents: Mutex::default(),
        }
    }

    /// The key that it encrypts with.
    #[must_use]
    pub fn key(&self) -> &Arc<FilmKey> {
        &self.key
    }

    /// Bytes that each image is longer by: its authentication tag.
    #[must_use]
    pub fn tag_bytes(&self) -> usize {
        self.keys.tag_bytes()
    }

    /// Encrypts the images at the front of `out`, which lie one behind the other as `bursts` say,
    /// and changes `bursts` to where they lie then. The first has that index. `runs` are all of
    /// them, as each chunk that holds some of them has them.
    ///
    /// # Errors
    ///
    /// In words, if one of them was encrypted before with other bytes in it.
    ///
    /// # Panics
    ///
    /// If there is no room for the tags, or an image is no RTP packet.
    pub(super) fn encrypt(
        &self,
        first_index: u64,
        runs: &[HeldRun],
        bursts: &mut [Burst],
        out: &mut [u8],
    ) -> Result<(), String> {
        let end = bursts.last().map_or(0, |burst| burst.offset + burst.bytes);
        let at = |offset: u64| usize::try_from(offset).expect("a chunk is in memory");
        self.note(runs, &out[..at(end)])?;
        let tag_bytes = self.tag_bytes();
        let images: u32 = bursts.iter().map(|burst| burst.packets).sum();
        let mut before = u64::from(images);
        // From the last on, so that none is written over one that has not been moved yet.
        for burst in bursts.iter_mut().rev() {
            let segment_bytes = u64::from(burst.segment_bytes);
            for image in (0..u64::from(burst.packets)).rev() {
                before -= 1;
                let start = burst.offset + image * segment_bytes;
                let bytes = segment_bytes.min(burst.bytes - image * segment_bytes);
                let (start, bytes) = (at(start), at(bytes));
                let to = start + at(before) * tag_bytes;
                out.copy_within(start..start + bytes, to);
                let packet = &mut out[to..to + bytes + tag_bytes];
                let protected = self.keys.protect(first_index + before, packet);
                protected.expect("an image is a packet, and a source has fewer than 2^47");
            }
            burst.offset += before * tag_bytes as u64;
            burst.bytes += u64::from(burst.packets) * tag_bytes as u64;
            burst.segment_bytes += u16::try_from(tag_bytes).expect("16 at most");
        }
        Ok(())
    }

    /// Notes what these runs are, whose images are all of `plain`, before anything of them is
    /// encrypted. Two builders may have the same run at once: the first to come here decides.
    fn note(&self, runs: &[HeldRun], plain: &[u8]) -> Result<(), String> {
        let mut left = plain;
        let contents = runs.iter().map(|run| {
            let bytes = usize::try_from(run.images_bytes).expect("a chunk is in memory");
            let (images, rest) = left.split_at(bytes);
            left = rest;
            let digest = Sha256::digest(images).into();
            let end = run.packets.end;
            (run.packets.start, RunContent { end, digest })
        });
        let contents: Vec<_> = contents.collect();
        assert!(left.is_empty(), "every image is of a run");
        let mut noted = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        for &(start, content) in &contents {
            // Those that are noted do not overlap, so that the last of those that begin before this
            // one ends is the only one that can.
            let last = noted.range(..content.end).next_back();
            let touches = |&(_, other): &(&u64, &RunContent)| other.end > start;
            if let Some((&other_start, other)) = last.filter(touches)
                && (other_start != start || *other != content)
            {
                return Err("the file was overwritten: packets of it are others by now".to_owned());
            }
        }
        noted.extend(contents);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    use onrush_wire::srtp::RtpReceiver;

    use super::super::{Backing, Source, layout};
    use super::*;
    use crate::data;
    use crate::experiments::Faults;
    use crate::testing::{CHUNK_BYTES, TestSource, block_on, store, store_of};

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn no_two_are_given_one_ssrc() {
        let key = FilmKey::new(Suite::default());
        let mut given: Vec<_> = (0..1000).map(|_| key.take_ssrc().unwrap()).collect();
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), 1000);
    }

    #[test]
    fn a_key_is_worn_at_half_of_its_uses() {
        let key = FilmKey::new(Suite::default());
        key.wear(FILM_KEY_USES_MAX - 1);
        assert!(!key.is_worn());
        assert!(key.take_ssrc().is_some() && key.is_worn());
        key.wear(u32::MAX - 1);
        assert!(key.take_ssrc().is_some());
        assert_eq!(key.take_ssrc(), None, "all are given");
        assert_eq!(key.take_ssrc(), None);
    }

    #[test]
    fn reports_of_many_sessions_have_an_index_each() {
        let key = FilmKey::new(Suite::default());
        let report = [0x80, 200, 0, 1, 0, 0, 0, 7];
        let index = |report: Vec<u8>| report[8..12].to_vec();
        let first = index(key.protect_report(&report).unwrap());
        assert_ne!(index(key.protect_report(&report).unwrap()), first);
    }

    const SUITES: [Suite; 2] = [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm];

    /// The same film, encrypted.
    fn encrypted(test: &TestSource, key: &Arc<FilmKey>) -> Arc<Source> {
        encrypted_in(CHUNK_BYTES, test, key)
    }

    fn encrypted_in(chunk_bytes: usize, test: &TestSource, key: &Arc<FilmKey>) -> Arc<Source> {
        let of = (test.source.plan(), test.source.origin());
        let backing = Arc::clone(&test.backing) as _;
        let source = Source::encrypted(of, backing, chunk_bytes, ImageCipher::new(key));
        Arc::new(source.expect("it fits its chunks"))
    }

    /// All images of a chunk, by the number of their packet.
    fn images_in(source: &Source, chunk: u32, bytes: &[u8]) -> BTreeMap<u64, Vec<u8>> {
        let mut images = BTreeMap::new();
        for burst in (0..).map_while(|number| layout::burst(bytes, number)) {
            let (from, len) = (burst.offset as usize, burst.bytes as usize);
            let packets = bytes[from..from + len].chunks(burst.segment_bytes.into());
            let first = source.first_of(chunk) + u64::from(burst.first);
            images.extend((first..).zip(packets.map(<[u8]>::to_vec)));
        }
        images
    }

    /// Its sequence numbers wrap soon.
    #[test]
    fn images_decrypt_to_those_of_the_file() {
        for (suite, test) in SUITES.map(|suite| (suite, TestSource::lasting(2000))) {
            let key = Arc::new(FilmKey::new(suite));
            let source = encrypted(&test, &key);
            let (store, expected) = (store(4, Faults::default()), test.images());
            let mut receiver = RtpReceiver::new(key.master());
            let (shared, mut images) = (store.shared(), Vec::new());
            for chunk in 0..source.chunks() {
                let pin = block_on(shared.fetch(&source, chunk, PATIENCE)).expect("built");
                let held = images_in(&source, chunk, shared.pool().bytes(&pin));
                // Its own: what it holds beyond is in the next, too.
                for (_, mut image) in held
                    .into_iter()
                    .take_while(|(packet, _)| source.packets_of(chunk).contains(packet))
                {
                    assert!(image.len() <= source.image_bytes_max());
                    images.push(receiver.unprotect(&mut image).expect("ours").to_vec());
                }
                shared.pool().unpin(pin);
            }
            assert!(images == expected, "{suite:?}");
            assert!(
                source.index_of(images.len() as u64) > 1 << 16,
                "it has wrapped"
            );
        }
    }

    #[test]
    fn other_bytes_are_not_encrypted_in_place_of_those_before() {
        let (test, store) = (TestSource::lasting(1000), store(2, Faults::default()));
        let source = encrypted(&test, &Arc::new(FilmKey::new(Suite::default())));
        let shared = store.shared();
        let fetch = |chunk| block_on(shared.fetch(&source, chunk, PATIENCE));
        let around = || {
            for chunk in 0..4 {
                shared.pool().unpin(fetch(chunk).expect("built"));
            }
        };
        around();
        // The same once more.
        around();
        // Within a packet that is looked at by nobody else.
        let (file, at) = (test.backing.file(), 188 * 3 + 100);
        file.write_all_at(&[test.bytes[at] ^ 1], at as u64).unwrap();
        assert!(fetch(0).is_none());
        let failure = source.failure().expect("it says why");
        assert!(failure.contains("overwritten"), "{failure}");
    }

    /// One index never has two contents, whatever becomes of the file between two chunks.
    #[test]
    fn a_packet_of_two_chunks_has_one_content() {
        let (test, store) = (
            TestSource::lasting(2000),
            store_of(data::CHUNK_BYTES, 4, Faults::default()),
        );
        let shared = store.shared();
        for order in [[1, 2], [2, 1]] {
            let key = Arc::new(FilmKey::new(Suite::default()));
            let source = encrypted_in(data::CHUNK_BYTES, &test, &key);
            let fetch = |chunk| block_on(shared.fetch(&source, chunk, PATIENCE));
            let [one, two] = order.map(|chunk| {
                let pin = fetch(chunk).expect("built");
                let images = images_in(&source, chunk, shared.pool().bytes(&pin));
                shared.pool().unpin(pin);
                images
            });
            let both: Vec<_> = one.keys().filter(|&it| two.contains_key(it)).collect();
            assert!(!both.is_empty(), "{:?} {:?}", one.keys(), two.keys());
            assert!(both.iter().all(|it| one[it] == two[it]));
            // The same with another key, and in between another byte of a packet of both.
            let at = (**both.last().expect("some") * 7 + 3) * 188 + 100;
            let key = Arc::new(FilmKey::new(Suite::default()));
            let source = encrypted_in(data::CHUNK_BYTES, &test, &key);
            let fetch = |chunk| block_on(shared.fetch(&source, chunk, PATIENCE));
            shared.pool().unpin(fetch(order[0]).expect("built"));
            let place = usize::try_from(at).expect("a short film");
            let (file, byte) = (test.backing.file(), test.bytes[place]);
            file.write_all_at(&[byte ^ 1], at).unwrap();
            assert!(fetch(order[1]).is_none(), "{order:?}");
            let failure = source.failure().expect("it says why");
            assert!(failure.contains("overwritten"), "{failure}");
            file.write_all_at(&[byte], at).unwrap();
        }
    }
}
