//! A pool whose area becomes ready while its first chunks are in use.
//!
//! One thread makes the area ready, piece by piece ([`Pool::grow`]). Each data path that sends from
//! registered memory is a [`PoolUser`]: it takes every piece as a buffer of its own ring, on its
//! own thread and when it suits it. The chunks of a piece can be claimed once all users have it, so
//! that no chunk reaches a ring that does not know its memory. Whoever claims, reads or sends asks
//! one atomic, and waits for nobody.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use onrush_lock::LockError;
use onrush_lock::memory::{Area, MemoryError};

use super::{Pool, chunks_in};
use crate::wake::Waker;

/// How far a pool has come.
#[derive(Debug)]
pub(super) struct Growth {
    /// Chunks from the first on that may be claimed.
    ready: AtomicUsize,
    /// Chunks that there will be, as far as is known.
    planned: AtomicUsize,
    users: Mutex<Vec<Arc<User>>>,
}

#[derive(Debug)]
struct User {
    /// Bytes of the area, from the front on, that are registered.
    taken_bytes: AtomicUsize,
    /// Why the next piece cannot be.
    refusal: OnceLock<LockError>,
    has_refused: AtomicBool,
    waker: Arc<Waker>,
}

/// A data path that registers the pool's memory. While it exists it holds back what it has not
/// registered.
#[derive(Debug)]
pub struct PoolUser {
    pool: Arc<Pool>,
    user: Arc<User>,
}

/// What the users of a pool have taken of what is ready.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Taken {
    /// All of it.
    All,
    /// Not all; they will.
    Some,
    /// One of them cannot take more, for this reason.
    Refused(String),
}

impl Pool {
    /// Makes the next piece of the area ready, unless `stop` says so meanwhile. One thread at a
    /// time does this, which may wait for memory; then it [`publishes`](Self::publish) the chunks.
    ///
    /// # Errors
    ///
    /// Those of [`Area::grow`]; what was ready still is.
    pub fn grow(&self, stop: impl Fn() -> bool) -> Result<(), MemoryError> {
        self.area.grow(stop).map(drop)
    }

    /// Lets the chunks be claimed that all users have registered, and wakes those who have not. One
    /// that was held up is woken by the next call.
    pub fn publish(&self) -> Taken {
        let ready_bytes = self.area.ready_bytes();
        let users = self.growth.users();
        for user in users.iter() {
            if user.taken_bytes.load(Ordering::Relaxed) < ready_bytes {
                user.waker.wake();
            }
        }
        let taken = users
            .iter()
            .map(|user| user.taken_bytes.load(Ordering::Acquire));
        let taken_bytes = taken.min().unwrap_or(ready_bytes).min(ready_bytes);
        let ready = chunks_in(&self.area, taken_bytes, self.chunk_bytes, self.layout);
        // Release: whoever claims a chunk finds its memory ready and registered.
        self.growth.ready.fetch_max(ready, Ordering::Release);
        let mut refusals = users.iter().filter_map(|user| user.refusal.get());
        match refusals.next() {
            Some(error) => Taken::Refused(error.to_string()),
            None if taken_bytes == ready_bytes => Taken::All,
            None => Taken::Some,
        }
    }

    /// No more will become ready: from now on the account of the pool is what it has.
    pub fn end_growth(&self) {
        self.growth.planned.store(self.chunks(), Ordering::Relaxed);
    }

    /// Number of chunks that there will be when all of the area is ready.
    #[must_use]
    pub fn chunks_planned(&self) -> usize {
        self.growth.planned.load(Ordering::Relaxed)
    }

    /// Bytes of the area whose chunks can be used, and how many there will be.
    #[must_use]
    pub fn bytes_ready_of(&self) -> (usize, usize) {
        let (chunks, planned) = (self.chunks(), self.chunks_planned());
        let ready = self.bytes_of(chunks);
        let planned = match planned == chunks {
            true => ready,
            false => self.area.bytes_total(),
        };
        (ready, planned)
    }

    /// Bytes of the area from the front to the end of the registered buffer with so many chunks
    /// before its end; all, if those are all chunks.
    fn bytes_of(&self, chunks: usize) -> usize {
        if chunks == self.chunks.len() {
            return self.area.bytes_total();
        }
        match chunks.checked_sub(1) {
            None => 0,
            Some(last) => {
                let last = u32::try_from(last).expect("chunk numbers are 31 bits");
                let buffer = self.buffer_at(self.offset_of(last));
                (buffer + 1) << self.buffer_shift
            }
        }
    }
}

impl Growth {
    pub(super) fn new(ready: usize, planned: usize) -> Self {
        Self {
            ready: AtomicUsize::new(ready),
            planned: AtomicUsize::new(planned),
            users: Mutex::default(),
        }
    }

    pub(super) fn ready(&self) -> usize {
        // Acquire: pairs with the release in `publish`.
        self.ready.load(Ordering::Acquire)
    }

    fn users(&self) -> MutexGuard<'_, Vec<Arc<User>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolUser {
    /// One more user of the pool, which has taken nothing yet. It takes all that is ready before it
    /// is used; what becomes ready later it is woken for by `waker`.
    #[must_use]
    pub fn join(pool: &Arc<Pool>, waker: &Arc<Waker>) -> Self {
        let user = Arc::new(User {
            taken_bytes: AtomicUsize::new(0),
            refusal: OnceLock::new(),
            has_refused: AtomicBool::new(false),
            waker: Arc::clone(waker),
        });
        pool.growth.users().push(Arc::clone(&user));
        Self {
            pool: Arc::clone(pool),
            user,
        }
    }

    /// Where in the area the next piece lies that is ready and not taken.
    #[must_use]
    pub fn next(&self) -> Option<Range<usize>> {
        let area: &Area = &self.pool.area;
        let start = self.user.taken_bytes.load(Ordering::Relaxed);
        if start >= area.ready_bytes() || self.user.has_refused.load(Ordering::Relaxed) {
            return None;
        }
        Some(start..area.bytes_total().min(start + area.buffer_bytes()))
    }

    /// It has taken the piece that [`Self::next`] has named.
    pub fn took(&self, piece: &Range<usize>) {
        // Release: the registration is seen by whoever lets the chunks be claimed.
        self.user.taken_bytes.store(piece.end, Ordering::Release);
    }

    /// It can take no more: the pool stays what it is.
    pub fn refuse(&self, error: LockError) {
        self.user.refusal.set(error).ok();
        self.user.has_refused.store(true, Ordering::Relaxed);
    }
}

impl Drop for PoolUser {
    fn drop(&mut self) {
        let mut users = self.pool.growth.users();
        users.retain(|user| !Arc::ptr_eq(user, &self.user));
    }
}

#[cfg(test)]
mod tests {
    use onrush_lock::memory::PIECE_BYTES;

    use super::*;

    const CHUNK_BYTES: usize = 1 << 20;
    const IN_PIECE: usize = PIECE_BYTES / CHUNK_BYTES;

    /// A pool of three pieces, of which the first is ready.
    fn pool() -> Arc<Pool> {
        let area = Area::reserve(3 * PIECE_BYTES, false, None).expect("96 MiB");
        area.grow(|| false).expect("32 MiB");
        Arc::new(Pool::new(area, CHUNK_BYTES))
    }

    fn user(pool: &Arc<Pool>) -> PoolUser {
        PoolUser::join(pool, &Arc::new(Waker::new().expect("an eventfd")))
    }

    fn claim_all(pool: &Pool) -> Vec<super::super::Pin> {
        let claims = std::iter::from_fn(|| pool.claim());
        claims.map(|claim| claim.publish(7)).collect()
    }

    #[test]
    fn only_chunks_that_all_have_registered_are_claimed() {
        let pool = pool();
        let (one, other) = (user(&pool), user(&pool));
        for user in [&one, &other] {
            let first = user.next().expect("the first piece");
            assert_eq!(first, 0..PIECE_BYTES);
            user.took(&first);
            assert_eq!(user.next(), None, "the second is not ready");
        }
        assert_eq!(pool.publish(), Taken::All);
        assert_eq!(pool.bytes_ready_of(), (PIECE_BYTES, 3 * PIECE_BYTES));
        let mut pins = claim_all(&pool);
        assert_eq!((pins.len(), pool.chunks()), (IN_PIECE, IN_PIECE));
        pool.grow(|| false).expect("32 MiB");
        one.took(&one.next().expect("the second piece"));
        assert_eq!(pool.publish(), Taken::Some);
        assert!(pool.claim().is_none(), "the other ring does not know it");
        let second = other.next().expect("the second piece");
        other.took(&second);
        assert_eq!(pool.publish(), Taken::All);
        let more = claim_all(&pool);
        assert_eq!(more.len(), IN_PIECE);
        assert!(more.iter().all(|pin| second.contains(&pool.offset(pin))));
        pins.extend(more);
        assert_eq!(pool.chunks_in_use(), 2 * IN_PIECE);
        pins.into_iter().for_each(|pin| pool.unpin(pin));
    }

    #[test]
    fn a_user_that_is_gone_holds_nothing_back() {
        let pool = pool();
        let gone = user(&pool);
        pool.grow(|| false).expect("32 MiB");
        assert_eq!(pool.publish(), Taken::Some);
        assert_eq!(pool.chunks(), IN_PIECE, "what was there stays");
        drop(gone);
        assert_eq!(pool.publish(), Taken::All);
        assert_eq!(pool.chunks(), 2 * IN_PIECE);
    }

    #[test]
    fn a_refusal_ends_growth_and_the_account_follows() {
        let pool = pool();
        let user = user(&pool);
        user.took(&user.next().expect("the first piece"));
        pool.grow(|| false).expect("32 MiB");
        assert!(user.next().is_some());
        user.refuse(LockError::NotPermitted);
        assert_eq!(user.next(), None, "it is not asked again");
        let taken = pool.publish();
        assert_eq!(taken, Taken::Refused(LockError::NotPermitted.to_string()));
        assert_eq!(pool.chunks_planned(), 3 * IN_PIECE);
        pool.end_growth();
        assert_eq!((pool.chunks(), pool.chunks_planned()), (IN_PIECE, IN_PIECE));
        assert_eq!(pool.bytes_ready_of(), (PIECE_BYTES, PIECE_BYTES));
    }

    #[test]
    fn a_small_pool_is_ready_at_once() {
        let area = Area::map_base(4 * 4096).expect("a few pages");
        let pool = Pool::new(area, 4096);
        assert_eq!((pool.chunks(), pool.chunks_planned()), (4, 4));
        assert_eq!(pool.bytes_ready_of(), (4 * 4096, 4 * 4096));
        assert_eq!(pool.publish(), Taken::All);
    }
}
